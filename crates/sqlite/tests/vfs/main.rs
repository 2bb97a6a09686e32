//! The VFS in C programs that have SQLite linked, in SQLite's own shell and in Python.

mod directory;
mod programs;
mod shell;
