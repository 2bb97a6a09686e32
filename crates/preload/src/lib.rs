//! `libsolera_preload.so`: runs unmodified programs on a volume.
//!
//! The dynamic linker loads this library with the program (`LD_PRELOAD`). The C library is patched
//! in the program's memory, so that its system calls arrive here (`door`); those of other code
//! arrive by a signal (`dispatch`), and so do all those of a program that has no C library of the
//! dynamic linker's (`host`). Calls that concern the
//! volume are served in the process itself; all others go on to the kernel.
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
//! | `processes` | attaching; fork, exec, spawn, exit |
//! | `split` | the second engine: files of a kernel file system |
//!
//! A call's number leads to its body (`by_number`), which stands in `calls` of a room. The
//! functions that are interposed by name are in `symbols`. `interposed` has the steps that all of
//! these go through, `start` what happens first.

mod by_number;
mod descriptors;
mod dispatch;
mod door;
mod entry;
mod files;
mod host;
mod interposed;
mod lending;
mod mappings;
mod names;
mod paths;
mod processes;
mod runtime;
mod signals;
mod split;
mod start;
mod unwind;
