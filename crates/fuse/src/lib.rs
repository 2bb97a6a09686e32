//! The mount: a face that serves an engine to the kernel by FUSE, so that every program and every
//! user sees it: static programs, the shell's `cd`, `exec` of a binary that lies on it.
//!
//! The mount is one more process that uses the engine through the contract (`vfs`), beside the
//! preloaded ones. It keeps nothing of its own about files: names and attributes are asked for anew
//! at each call, data goes past the kernel's page cache, locks stand in the engine's table. So what
//! one face does the other sees at once; what the kernel must cache (pages of mappings) is dropped
//! when it changes (`page_cache.rs`), and of what comes back from there only that is written which
//! programs have stored (`twins.rs`).
//!
//! The protocol is spoken here rather than by a crate: `fuser` 0.18 and `fuse-backend-rs` 0.14
//! answer no `INTERRUPT` (a program that waits for a lock could not be killed) and know neither
//! `TMPFILE` nor `STATX`. What is left of them is a loop and the kernel's structures: `session.rs`,
//! `abi.rs`.
//!
//! Permissions are checked by the kernel (`default_permissions`) against the attributes that it is
//! given; the process that serves must be allowed to change the volume.

mod abi;
mod attrs;
mod descriptions;
mod dispatch;
mod executables;
mod files;
mod interrupt;
mod invalidations;
mod locks;
mod mount;
mod names;
mod nodes;
mod page_cache;
mod request;
mod session;
mod thread_pool;
mod twins;

pub use attrs::PROCESS;
pub use mount::{HELPER, Made, MountOptions, check_device, mount, unmount};
pub use session::serve;
