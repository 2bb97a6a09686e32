//! The calls on files: bytes, attributes, asynchronous I/O of glibc and the kernel.

mod aio;
mod attrs;
pub(crate) mod kernel_aio;
pub(crate) mod lost_pages;
pub(crate) mod rw;
mod splice;
mod stat;
mod symbols;
