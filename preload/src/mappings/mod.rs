//! Files mapped: the table of what is mapped, the calls that change it, and pages that are filled
//! when they are touched.

mod large;
mod mapping;
pub(crate) mod maptable;
mod mmap;
mod mremap;
pub(crate) mod touched;
