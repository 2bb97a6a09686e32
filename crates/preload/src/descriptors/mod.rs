//! Descriptors of the volume: the calls that make, copy and send them, and what crosses an exec.

mod fcntl;
pub(crate) mod handover;
mod hints;
mod messages;
pub(crate) mod open;
pub(crate) mod openat2;
mod owners;
pub(crate) mod sockets;
mod special;
mod symbols;
pub(crate) mod void;
