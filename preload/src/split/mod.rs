//! The second engine: files of a kernel file system, served in their own place.

pub(crate) mod beneath;
mod beneath_calls;
mod beneath_serve;
