//! Processes: what the kernel keeps for one, how it begins, forks, executes others and ends.

pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod init;
pub(crate) mod lifecycle;
mod loadable;
mod spawn;
mod symbols;
