//! The explicit library: for programs whose author may change a few lines (Xu et al., ASPLOS 2019,
//! section 3.4, "FLEX": file emulation with DAX).
//!
//! - [`File`] is a file as memory: appends and writes are streams, one fence makes them durable.
//! - [`Log`] is a write-ahead log in a file that is mapped: an append streams one run and fences
//!   once. [`Follower`] reads it from other processes while it is written.
//! - [`Buffer`] is memory for reads that a cache serves without a copy.
//! - [`Place`] is a directory of both, or a volume, and says what a fence promises there.
//!
//! On a volume all goes through its engine: the one of `solera run` if the program is run so, else
//! this library's own. A process has one engine, so all parts of a program share one library.
//!
//! What a fence promises depends on the memory: see [`pmem::Class`]. A plain file of the page cache
//! is taken only if it is asked for by name ([`FileOptions::page`]); there a fence is a call.

mod buffer;
mod error;
mod file;
mod log;
mod opener;
mod place;
pub mod volumes;

pub use buffer::Buffer;
pub use error::{Error, Result};
pub use file::{Create, File, FileOptions, Length, Ticket};
pub use log::{Checked, Follower, Log, LogOptions, Record, check, walk};
pub use place::Place;
