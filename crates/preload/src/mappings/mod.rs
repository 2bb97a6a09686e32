//! Mapped files: the calls that change mappings, and pages that are filled at a page fault.

pub(crate) mod advice;
pub(crate) mod cache_segments;
pub(crate) mod calls;
mod large;
pub(crate) mod mapping;
mod mmap;
mod mremap;
pub(crate) mod page_faults;
pub(crate) mod read_estimate;
