//! The calls on files: bytes, attributes, the kernel's asynchronous I/O.

mod aio;
mod attrs;
pub(crate) mod caching;
pub(crate) mod calls;
pub(crate) mod kernel_aio;
pub(crate) mod lost_pages;
pub(crate) mod rw;
mod splice;
mod stat;
mod symbols;
