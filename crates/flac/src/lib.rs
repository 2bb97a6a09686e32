//! A cache in fast memory over an engine whose memory is slow (FLAC: Liu et al., FAST 2024).
//!
//! [`Cached`] is an engine over another one, by the contract (`vfs`) and by what that says of
//! versions (`vfs::versions`). It holds clean pages only: reads come from segments in the cache's
//! directory, writes go to the engine below with the guarantees that it gives. So nothing in the
//! cache can be lost, and nobody needs to know of it: who changes a file past it moves the file's
//! version, and what was cached of it is not used again.
//!
//! `index.rs` has the argument; `layout.rs` what lies where; `directory.rs` where, and what
//! outlives an era; `segments.rs` the bytes, `descriptors.rs` their descriptors; `cache.rs` reads
//! and fills, `readahead.rs` fills before anybody asks; `pages.rs` where in a program's memory they
//! are mapped instead of copied, `buffers.rs` and `program.rs` which memory that may be,
//! `kernel.rs` what the kernel says of it; `engine.rs` the contract.

pub mod buffers;
mod cache;
pub mod descriptors;
mod directory;
mod engine;
mod index;
#[cfg(feature = "inject")]
pub mod inject;
#[cfg(not(feature = "inject"))]
mod inject;
mod kernel;
mod layout;
mod pages;
pub mod program;
mod readahead;
mod segments;
mod status;

pub use directory::{Refusal, VolumeId, is_memory, is_uuid, made, place, places};
pub use engine::{Cached, Options, Reporter, Underlying};
pub use index::{COUNTS, Count};
pub use layout::{CHUNK, GRANULE};
pub use readahead::Spawn;
pub use status::{
    CacheListing, Status, destroy, drop_all, drop_file, has_huge_pages, list, status,
};
