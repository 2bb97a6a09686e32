//! Transactions: an operation and its locks, the inodes that it holds, undo and redo.

pub(crate) mod acquire;
mod allocate;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod journal;
mod listed;
mod look;
pub(crate) mod op;
pub(crate) mod record;
pub(crate) mod redo;
#[cfg(test)]
mod redo_tests;
pub(crate) mod release;
