//! What is counted of a process's calls: words of its counters (`pmem::counters`).
//!
//! The face's calls of the engine count, in the process and the thread that make them: reads and
//! writes when they have done what was asked, the others when they begin. A slot's words go on from
//! process to process, and are never set back while the runtime's format number stays: so their sum
//! goes down only by what two threads of a group lose. What they said when a process took the slot
//! stands in the slot (`process/mod.rs`).

/// Reads of files.
pub(crate) const READS: usize = 0;
/// What they gave, bytes.
pub(crate) const BYTES_READ: usize = 1;
/// Writes of files.
pub(crate) const WRITES: usize = 2;
/// What they took, bytes.
pub(crate) const BYTES_WRITTEN: usize = 3;
/// Opens, those that make a file too.
pub(crate) const OPENS: usize = 4;
/// Looks at names and attributes, and changes of them.
pub(crate) const NAMES: usize = 5;
/// Calls that make something durable.
pub(crate) const SYNCS: usize = 6;
/// Waits for a lock of another thread or process: of an inode, of the tables, or a program's.
pub(crate) const LOCK_WAITS: usize = 7;
