//! Functions of glibc whose inner calls cannot be interposed: done here instead.

mod composed;
mod format;
mod loader;
pub(crate) mod stdio;
mod symbols;
mod wide;
