//! What glibc does inside itself, where no call of it can be seen: done here instead.

mod composed;
mod format;
mod loader;
pub(crate) mod stdio;
mod symbols;
mod wide;
