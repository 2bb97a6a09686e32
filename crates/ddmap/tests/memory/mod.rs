//! What the kernel does with pages, and the slots of forked children.

mod forks;
mod uffd;
