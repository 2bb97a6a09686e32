//! Processes: how one attaches the volume, forks, executes programs and ends.

mod apart;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod init;
mod keeper;
pub(crate) mod lifecycle;
mod loader_program;

pub(crate) mod calls;
mod closure;
pub(crate) mod host_program;
mod loadable;
pub(crate) mod supply;
mod symbols;
