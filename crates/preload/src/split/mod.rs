//! The second engine (crate `split`): files of a kernel file system, served in their own place.

mod calls;
pub(crate) mod engine;
mod serve;
