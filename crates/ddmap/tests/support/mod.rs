//! What tests start: a host with its holder, nodes over loopback, folders in memory.

pub mod dir;
pub mod pair;
pub mod process;
pub mod running;
