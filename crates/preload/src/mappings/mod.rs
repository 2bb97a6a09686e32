//! Mapped files: the calls that change mappings, and pages that are filled at a page fault.

pub(crate) mod coming;
pub(crate) mod hinted;
mod large;
pub(crate) mod lent;
pub(crate) mod mapping;
mod mmap;
mod mremap;
pub(crate) mod page_faults;
mod symbols;
