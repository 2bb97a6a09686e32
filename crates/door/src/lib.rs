//! The door: a C library whose system calls reach a handler first.
//!
//! Its `syscall` instructions are changed in place, in a copy of the file of the same size and
//! layout, and the copy's text is mapped over the text that the loader has loaded.
//!
//! - [`sites`] finds them, by the shapes that they have; [`wanted()`] says for which numbers.
//! - [`patch`] changes them, in a file's bytes or in memory, with the same code.
//! - [`image`] makes the patched file, and reads the trailer that says what it is.
//! - [`cache`] keeps patched files, and says which of them are believed.
//! - [`entry`] is where changed sites arrive; it asks the handler.
//! - [`arm`] puts a patched text in the place of the loaded one.
//! - [`check`] runs every changed site once.
//!
//! `arm`, `entry`, `patch`, `sites` and `elf`, and of `cache` what opens a file, allocate nothing,
//! have no thread-local memory and make raw system calls only: they work in a resolver of
//! relocations, before the C library does.

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
