//! What the crate promises to those who use it, from outside: by one process, by several, by
//! processes that end in the middle.

mod absent;
mod allocator;
mod alone;
mod alone_model;
mod attach;
mod common;
mod counts;
mod fences;
mod locks;
mod policy;
mod processes;
mod remembered;
mod snapshot;
mod space;
mod whole_chunks;
