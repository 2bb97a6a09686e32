//! Files mapped: the table of what is mapped, the calls that change it, and pages that are filled
//! when they are touched.

mod large;
pub(crate) mod mapping;
mod mmap;
mod mremap;
mod symbols;
pub(crate) mod touched;
