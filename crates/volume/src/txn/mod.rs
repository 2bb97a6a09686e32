//! Transactions: an operation and its locks, the inodes that it holds, undo and redo.

pub(crate) mod acquire;
mod allocate;
pub(crate) mod change_list;
pub(crate) mod gate;
mod inode_read;
pub(crate) mod journal;
pub(crate) mod locked_inodes;
pub(crate) mod looks;
pub(crate) mod op;
pub(crate) mod record;
pub(crate) mod redo;
#[cfg(test)]
mod redo_tests;
pub(crate) mod release;
mod replay;

use crate::inode::Inodes;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;

/// The inodes, and the operations that change them.
pub struct Operations {
    inodes: Inodes,
    /// An operation of this process has changed something.
    pub(crate) worked: AtomicBool,
}

impl Deref for Operations {
    type Target = Inodes;

    #[inline]
    fn deref(&self) -> &Inodes {
        &self.inodes
    }
}

impl Operations {
    pub(crate) fn new(inodes: Inodes) -> Self {
        Self { inodes, worked: AtomicBool::new(false) }
    }
}
