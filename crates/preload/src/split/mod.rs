//! The second engine (crate `split`): files of a kernel file system, served in their own place.

mod arms;
pub(crate) mod engine;
mod serve;
