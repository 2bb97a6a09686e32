//! Descriptors: the table of those that are the volume's, copies, what crosses an exec, and the
//! calls that make, copy and send them.

mod fcntl;
pub(crate) mod handover;
mod messages;
pub(crate) mod open;
pub(crate) mod openat2;
mod owners;
pub(crate) mod sockets;
mod special;
mod symbols;
