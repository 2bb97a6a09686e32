//! Processes: how one attaches the volume, forks, executes programs and ends.

mod by_loader;
mod caching;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod init;
pub(crate) mod lifecycle;

mod loadable;
mod spawn;
mod symbols;
mod told;
