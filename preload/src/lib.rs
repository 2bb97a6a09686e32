//! `libsolera_preload.so`: unmodified programs on a volume.
//!
//! The dynamic linker loads this library before glibc (`LD_PRELOAD`), so that its functions stand
//! for glibc's of the same names. Calls that concern the volume are served in the process itself;
//! all others go on to glibc.
//!
//! | room | subject |
//! |---|---|
//! | `entry` | the way in: pointers, threads, locks, what is refused and reported |
//! | `paths` | which paths are the volume's, the caller's identity, the working directory |
//! | `descriptors` | the table, copies, what crosses an exec or a socket |
//! | `files`, `names` | the calls on bytes and attributes; on names and directories |
//! | `mappings` | files mapped, pages filled when they are touched |
//! | `processes` | attaching; fork, exec, spawn, exit |
//! | `signals` | actions, masks, handlers |
//! | `glibc` | what glibc does inside itself |
//! | `split` | the second engine: files of a kernel file system |
//! | `syscall` | system calls by number |

mod descriptors;
mod entry;
mod files;
mod glibc;
mod mappings;
mod names;
mod paths;
mod processes;
mod signals;
mod split;
mod syscall;
