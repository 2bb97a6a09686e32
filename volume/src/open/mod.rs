//! Open files: descriptions, their holders, positions, record locks, the last close.

mod close;
#[cfg(test)]
mod counts_tests;
pub(crate) mod description;
mod execution;
mod holders;
mod in_flight;
mod lock_table;
mod position;
mod record_lock;
