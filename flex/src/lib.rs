//! The explicit library: for programs whose author may change a few lines (Xu et al., ASPLOS 2019,
//! section 3.4, "FLEX": file emulation with DAX).
//!
//! - [`Log`] is a write-ahead log in a file that is mapped: an append streams one run and fences
//!   once. [`Follower`] reads it from other processes while it is written.
//!
//! Files are the kernel's: under `solera run` a path on a volume is not found yet.
//!
//! What a fence promises depends on the memory: see [`pmem::Class`]. A plain file of the page cache
//! is taken only if it is asked for by name ([`LogOptions::page`]); there a fence is an `msync`.

mod error;
mod log;
mod process;

pub use error::{Error, Result};
pub use log::{Checked, Follower, Log, LogOptions, Record, check, walk};
