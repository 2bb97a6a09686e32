//! The door: a C library whose system calls reach a handler first.
//!
//! Its `syscall` instructions are changed in place, in a copy of the file of the same size and
//! layout, and the copy's text is mapped over the text that the loader has loaded.
//!
//! - [`sites`] finds them, by the shapes that they have; [`wanted()`] says for which numbers.
//! - [`patch`] changes them, in a file's bytes or in memory, with the same code.
//! - [`image`] makes the patched file, and reads the trailer that says what it is.

pub mod arm;
pub mod cache;
pub mod check;
pub mod elf;
pub mod entry;
pub mod image;
mod instructions;
pub mod patch;
pub mod sites;
mod wanted;

pub use wanted::wanted;
