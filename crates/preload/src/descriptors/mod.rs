//! Descriptors of the volume: the calls that make, copy and send them, and what crosses an exec.

pub(crate) mod announcement;
pub(crate) mod calls;
mod fcntl;
pub(crate) mod handover;
mod messages;
pub(crate) mod open;
pub(crate) mod openat2;
mod owners;
pub(crate) mod placeholder;
pub(crate) mod sockets;
pub mod special_files;
mod write_hints;
