//! The calls on what lies in files: bytes, attributes, what glibc and the kernel do in the
//! background.

mod aio;
mod attrs;
pub(crate) mod rings;
pub(crate) mod rw;
mod splice;
mod stat;
mod symbols;
