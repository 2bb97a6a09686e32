//! `libsolera_preload.so`: runs unmodified programs on a volume.
//!
//! The dynamic linker loads this library before glibc (`LD_PRELOAD`), so that its functions stand
//! for glibc's of the same names. Calls that concern the volume are served in the process itself;
//! all others go on to glibc.
//!
//! | room | subject |
//! |---|---|
//! | `runtime` | what Rust's runtime asks the C library for, done without it |
//! | `entry` | what all calls go by: the attachment and its tables, threads, locks, pointers |
//! | `paths` | which paths are the volume's, the caller's identity, the working directory |
//! | `descriptors` | numbers opened, copied, sent; what crosses an exec or a socket |
//! | `files`, `names` | the calls on bytes and attributes; on names and directories |
//! | `mappings` | mapped files, pages filled at a page fault |
//! | `signals` | actions, masks, handlers |
//! | `glibc` | what glibc does inside itself |
//! | `processes` | attaching; fork, exec, spawn, exit |
//! | `split` | the second engine: files of a kernel file system |
//!
//! The exported functions are in `symbols` of each room; `interposed` is the macro around them,
//! `start` what happens first.

mod by_number;
mod descriptors;
mod door;
mod entry;
mod files;
mod interposed;
mod mappings;
mod names;
mod paths;
mod processes;
mod runtime;
mod signals;
mod split;
mod start;
mod unwind;
