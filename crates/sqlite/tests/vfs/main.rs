//! The VFS in C programs that have SQLite linked, in SQLite's own shell and in Python.

mod directory;
#[path = "../../../capi/tests/abi/library.rs"]
mod library;
mod programs;
mod shell;
