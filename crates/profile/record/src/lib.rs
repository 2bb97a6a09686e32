//! What a profiled program leaves: one anonymous file that all its processes map, and the command
//! reads when they have ended.
//!
//! ```text
//! | header, owners of areas | paths | area, its ring of events | area, ring | ...
//! ```
//!
//! A thread has an *area* of its own and changes it by plain stores, so nothing is waited for; what
//! it has counted stays when it is killed. When it has ended the next one goes on in its area: all
//! that is asked for are sums. The file is sparse: what nobody stores to takes no memory.
//!
//! Times are ticks of the processor's counter. The command, which has run beside the program, knows
//! how long one is.

mod kind;
mod map;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub use kind::Kind;
pub use map::{Map, Unmapped, bytes};

/// The library and the command are of one build.
pub const MAGIC: u64 = u64::from_le_bytes(*b"solprof1");
/// The name of the file, which lies in memory.
pub const NAME: &str = "solera-profile";
/// What /proc calls it.
pub const LINK: &[u8] = b"/memfd:solera-profile (deleted)";
/// Threads at once that are profiled.
pub const AREAS: usize = 1024;
/// Files with a row of their own; number 0 stands for all others.
pub const FILES: usize = 1 << 14;
/// Descriptors that are known again behind an exec.
pub const KEPT: usize = 1024;
/// Processes that a thread has waited for, with a row of their own.
pub const HOLDERS: usize = 16;
/// Kinds of calls, with room for more.
pub const KINDS: usize = 64;
/// Bytes of a path, from its end.
pub const PATH_MAX: usize = 244;
/// Classes of sizes: 2^0, 2^1 and so on, each with all above the one before.
pub const SIZES: usize = 32;
/// Classes of times: four for each power of two.
pub const TIMES: usize = 184;

/// By whom a call is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum By {
    /// The kernel.
    Kernel,
    /// A volume, in the process.
    Volume,
    /// The engine over a kernel file system, which may leave it to the kernel.
    Split,
}

impl By {
    /// All of them, by their numbers.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Volume, Self::Split];

    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Volume => "volume",
            Self::Split => "split",
        }
    }
}

/// Room for those who serve.
pub const BYS: usize = 4;

/// The beginning of the file.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// Events that a thread's ring holds; 0: none are kept.
    pub ring: AtomicU32,
    /// Processes that have begun: an exec begins none.
    pub processes: AtomicU32,
    /// Threads that have begun.
    pub threads: AtomicU32,
    /// Threads that found no area: their calls are not counted.
    pub without: AtomicU32,
    /// Whose an area is: process and thread; 0: nobody's.
    pub owners: [AtomicU64; AREAS],
}

/// A path that was opened: its number is its row.
#[repr(C)]
#[derive(Debug)]
pub struct Path {
    /// Of its bytes; 0: the row is free.
    pub hash: AtomicU64,
    /// How many bytes are kept; 0: the writer has not come so far.
    pub length: AtomicU32,
    /// The last ones.
    pub bytes: [AtomicU8; PATH_MAX],
}

/// Calls of one kind.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Calls {
    /// How many, by whom they were served.
    pub by: [AtomicU64; BYS],
    /// Those that failed.
    pub failed: AtomicU64,
    /// What they took, without the calls that were made inside (by a handler, by a stream).
    pub ticks: AtomicU64,
    /// The longest one.
    pub longest: AtomicU64,
    /// Waits in them for locks of volumes: how many, and what they took.
    pub waits: [AtomicU64; 2],
    /// How many took how long (see [`class_of_time`]).
    pub times: [AtomicU32; TIMES],
    /// Those that moved bytes, by how many (see [`class_of_size`]).
    pub sizes: [Sizes; SIZES],
}

/// Calls that moved about as many bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Sizes {
    /// How many.
    pub count: AtomicU64,
    /// Bytes of all of them.
    pub bytes: AtomicU64,
}

/// Calls on descriptors of one file.
#[repr(C)]
#[derive(Debug)]
pub struct FileCalls {
    /// How many.
    pub calls: AtomicU64,
    /// What they took.
    pub ticks: AtomicU64,
    /// Bytes read.
    pub read: AtomicU64,
    /// Bytes written.
    pub written: AtomicU64,
    /// The longest one.
    pub longest: AtomicU64,
    /// By whom the last one was served.
    pub by: AtomicU64,
}

/// Waits for locks that threads of one process held.
#[repr(C)]
#[derive(Debug)]
pub struct Holder {
    /// The process; 0: the row is free, or it is not known.
    pub process: AtomicU64,
    /// How many.
    pub count: AtomicU64,
    /// What they took.
    pub ticks: AtomicU64,
}

/// A call, for the trace.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// When it began.
    pub begun: AtomicU64,
    /// What it took, with the calls made inside.
    pub ticks: AtomicU64,
    /// What it moved.
    pub bytes: AtomicU64,
    /// Process, thread.
    pub who: [AtomicU32; 2],
    /// The number of its file.
    pub file: AtomicU32,
    /// Its kind, and by whom it was served: `kind | by << 16`.
    pub what: AtomicU32,
}

/// What one thread counts.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Area {
    /// Events that were put into the ring; the last ones are there.
    pub events: AtomicU64,
    /// The process that had it last, and the program's name, as the kernel cuts it.
    pub process: AtomicU32,
    /// See `process`.
    pub name: [AtomicU8; 16],
    /// It is the first one of its process.
    pub first: AtomicU32,
    /// Descriptors of the process, if this is its first area: as the library's table has them.
    pub descriptors: [AtomicU32; KEPT],
    /// Processes whose locks it has waited for; the last row also has what found none.
    pub holders: [Holder; HOLDERS],
    /// By kind.
    pub calls: [Calls; KINDS],
    /// By file.
    pub files: [FileCalls; FILES],
}

/// The class of a time: exact up to 7, then by a quarter of its power of two. Below 4 it counts as
/// 4.
#[inline]
pub fn class_of_time(ticks: u64) -> usize {
    let ticks = ticks.clamp(4, TICKS_MAX);
    let power = ticks.ilog2() as usize;
    let quarter = (ticks >> (power - 2)) as usize & 3;
    (power << 2) + quarter - 4
}

/// The first time beyond a class.
pub const fn end_of_class(class: usize) -> u64 {
    let (power, quarter) = (class as u32 / 4 + 1, class as u64 % 4);
    if power < 2 { 4 } else { (5 + quarter) << (power - 2) }
}

/// The longest time of the last class.
const TICKS_MAX: u64 = end_of_class(TIMES - 1) - 1;

/// The class of a size: the power of two that is not below it.
#[inline]
pub fn class_of_size(bytes: u64) -> usize {
    match bytes {
        0 | 1 => 0,
        more => ((more - 1).ilog2() as usize + 1).min(SIZES - 1),
    }
}

/// Adds to a word that only this thread changes, and handlers that interrupt it: which the compiler
/// makes one instruction, without the lock prefix.
#[inline]
pub fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// As [`add`], one to a short word.
#[inline]
pub fn count(word: &AtomicU32) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Keeps the largest.
#[inline]
pub fn longest(word: &AtomicU64, now: u64) {
    if now > word.load(Ordering::Relaxed) {
        word.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{TIMES, class_of_size, class_of_time, end_of_class};

    #[test]
    fn classes_of_times_are_in_order_and_hold_what_they_end_with() {
        assert_eq!(class_of_time(0), class_of_time(4));
        for class in 4..TIMES - 1 {
            let end = end_of_class(class);
            assert_eq!(class_of_time(end - 1), class, "{end}");
            assert_eq!(class_of_time(end), class + 1, "{end}");
        }
        assert_eq!(class_of_time(u64::MAX), TIMES - 1);
    }

    #[test]
    fn classes_of_sizes_are_powers_of_two() {
        for (bytes, class) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (4096, 12), (4097, 13)] {
            assert_eq!(class_of_size(bytes), class, "{bytes}");
        }
        assert_eq!(class_of_size(u64::MAX), super::SIZES - 1);
    }
}
