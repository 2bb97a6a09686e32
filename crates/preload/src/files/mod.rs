//! The calls on files: bytes, attributes, asynchronous I/O of glibc and the kernel.

mod aio;
mod attrs;
pub(crate) mod lost;
pub(crate) mod rings;
pub(crate) mod rw;
mod splice;
mod stat;
mod symbols;
