//! A write-ahead log with one fence (Xu et al., ASPLOS 2019, section 3.4: circular append in a
//! preallocated file).
//!
//! A record is valid if its crc fits and it is where the one before ends. So an append stores no
//! tail pointer: it streams one run around the cache, and fences once.
//!
//! The crc is over a **key**, too, which is random and changes with each opening for writing and
//! with each lap of the ring. A key record, checked by the key before it, brings it; it is durable
//! before the first record by the new key. So records behind a hole never come back to life: the
//! next opener writes a key record there, by which none of them is valid. And no payload is ever
//! taken for a record: while it is chosen, the key of the next lap does not exist.
//!
//! - `append` is durable at return; `put` is not until a `commit`, by any thread, that covers it.
//! - One process writes; any number of others follow ([`Follower`]).
//! - `trim` says what is not needed any more. Its space is used again behind the fence of its head
//!   slot.
//!
//! CRASH: what `append` or `commit` returned is valid, and so is all before it, of any thread. What
//! was never committed is there whole or not at all, and nothing behind the first record that
//! is not there counts.

mod file;
mod follow;
pub(crate) mod format;
mod memory;
mod positions;
#[cfg(test)]
mod positions_model;
mod scan;
mod write;

pub(crate) use file::walk_in;
pub use file::{Checked, LogOptions, check, walk};
pub use follow::{Follower, Record};
pub use write::Log;
