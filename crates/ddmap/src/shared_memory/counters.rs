//! What processes of a volume have done: a file beside the node table, which all of them map. Each
//! process counts in the place of its slot of the table, on pages of its own; the node adds up.
//!
//! ```text
//! slot: 8 KiB  | counts: 64 words | kinds of touches: 128 words each                           |
//! kind:        | 104 buckets, by time | 0 ... | word 120: sum of times | 121: the longest, in ns |
//! ```
//!
//! A slot's words are never set back: they are the sums of all processes that ever had it. So
//! those of processes that have ended, or died, stay counted, and a process's own are what was
//! added since it took the slot. A bucket has a quarter of a power of two of ns, the first one
//! ends at 2^10; what takes longer than 2^35 is in the last one.

use crate::shared_memory::files;
use crate::shared_memory::table::SLOTS;
use pmem::{OpenError, Region};
use std::path::Path;

/// The name of the file in a volume's folder.
pub const NAME: &str = "counts";
const SLOT_BYTES: u64 = 8 << 10;
const KINDS_AT: u64 = 64 * 8;
const KIND_BYTES: u64 = 128 * 8;
/// Buckets of a kind.
pub const BUCKETS: usize = 104;
const SUM: u64 = 120 * 8;
const LONGEST: u64 = 121 * 8;
/// The power of two at which the first bucket ends.
const FIRST: u32 = 10;

const _: () = assert!(KINDS_AT + Touch::ALL.len() as u64 * KIND_BYTES <= SLOT_BYTES);
const _: () = assert!(Count::ALL.len() as u64 * 8 <= KINDS_AT);

macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $one:ident $text:literal)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$of])* $one),* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$one),*];

            /// What reports call it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$one => $text),* }
            }
        }
    };
}

named!(
    /// What is counted.
    Count {
        /// Pages that were fetched.
        Fetched "fetched"
        /// Of them, pages that were not touched, but wanted next.
        Ahead "ahead"
        /// Of those, pages of windows that were used.
        AheadUsed "ahead-used"
        /// And of windows that were not.
        AheadWasted "ahead-wasted"
        /// Touches that waited for room.
        WaitedForRoom "waited-for-room"
        /// Pages that were sent away.
        Sent "sent"
        /// Pages that left as zeros.
        Zero "zero"
        /// Pages that turned out to be lost.
        Lost "lost"
        /// Reads of lines that were there, of pages that stay elsewhere.
        LineHit "line-hit"
        /// And of those that were not.
        LineMiss "line-miss"
        /// Bytes of lines that were fetched.
        LineBytes "line-bytes"
        /// Requests that a holder did not answer.
        Unanswered "unanswered"
        /// Touches that gave way to a signal.
        Interrupted "interrupted"
        /// Pages that were to leave, and stayed since a thread was at them.
        InUse "in-use"
        /// Pages that were to leave, and that the holder has not taken.
        Refused "refused"
        /// Mappings of small files whose pages may leave all the same, since enough stay.
        NotHeld "not-held"
        /// Clean pages that left: a holder had kept their bytes.
        Clean "clean"
        /// Pages that were sent to a second holder.
        Second "second"
        /// Pages that one holder took, and no second one.
        Single "single"
    }
);

named!(
    /// How a touch was served.
    Touch {
        /// A page that nobody had touched.
        Local "local"
        /// It was here, and not mapped.
        Minor "minor"
        /// It was here, and protected.
        Protect "protect"
        /// A holder was asked for it.
        Remote "remote"
        /// Of a line of it.
        Line "line"
    }
);

/// The times of touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeHistogram {
    /// How many, by the bucket.
    pub buckets: [u64; BUCKETS],
    /// All of them together, in ns.
    pub sum_ns: u64,
    /// The longest one, of all that had the slot.
    pub longest_ns: u64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_ns: 0, longest_ns: 0 }
    }
}

impl TimeHistogram {
    /// How many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The time within which so many of 100 were served: the end of their bucket, in ns.
    pub fn within(&self, of_100: u64) -> u64 {
        let wanted = (self.count() * of_100).div_ceil(100).max(1);
        let mut sum = 0;
        let reached = |count: &u64| {
            sum += count;
            sum >= wanted
        };
        let bucket = self.buckets.iter().position(reached);
        bucket.map_or(0, |bucket| end_of(bucket).min(self.longest_ns.max(1)))
    }
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    counts: [u64; Count::ALL.len()],
    touches: [TimeHistogram; Touch::ALL.len()],
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            counts: [0; Count::ALL.len()],
            touches: std::array::from_fn(|_| TimeHistogram::default()),
        }
    }
}

impl Counted {
    /// Of one kind.
    pub fn get(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// The times of touches of one kind.
    pub fn times(&self, kind: Touch) -> &TimeHistogram {
        &self.touches[kind as usize]
    }

    fn each(&mut self, other: &Self, act: impl Fn(&mut u64, u64)) {
        for (own, other) in self.counts.iter_mut().zip(other.counts) {
            act(own, other);
        }
        for (own, other) in self.touches.iter_mut().zip(&other.touches) {
            for (own, other) in own.buckets.iter_mut().zip(other.buckets) {
                act(own, other);
            }
            act(&mut own.sum_ns, other.sum_ns);
        }
    }

    /// With what others have counted.
    pub fn add(&mut self, other: &Self) {
        self.each(other, |own, other| *own = own.wrapping_add(other));
        for (own, other) in self.touches.iter_mut().zip(&other.touches) {
            own.longest_ns = own.longest_ns.max(other.longest_ns);
        }
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.each(before, |own, before| *own = own.wrapping_sub(before));
        self
    }
}

/// The bucket of a time.
fn bucket_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    if power < FIRST {
        return 0;
    }
    let quarter = (ns >> (power - 2) & 3) as usize;
    (1 + (power - FIRST) as usize * 4 + quarter).min(BUCKETS - 1)
}

/// The time at which a bucket ends, in ns.
pub fn end_of(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 1 << FIRST,
        Some(bucket) => {
            let power = FIRST + bucket as u32 / 4;
            (1 << power) + ((bucket as u64 % 4 + 1) << (power - 2))
        }
    }
}

/// The counts of a volume. Those of a file that was cut short are 0, and what is counted there is
/// lost.
pub struct Counts(Region);

impl Counts {
    /// Those in a volume's folder, which are made if they are not there.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        files::create(&folder.join(NAME), u64::from(SLOTS) * SLOT_BYTES).map(Self)
    }

    fn add_at(&self, slot: u16, word: u64, by: u64) {
        // As said above.
        let _ = self.0.shared_add(u64::from(slot) * SLOT_BYTES + word, by);
    }

    /// Counts in the place of a slot.
    pub fn add(&self, slot: u16, what: Count, by: u64) {
        if by > 0 {
            self.add_at(slot, what as u64 * 8, by);
        }
    }

    /// Counts a touch that took so long.
    pub fn touched(&self, slot: u16, kind: Touch, ns: u64) {
        let at = KINDS_AT + kind as u64 * KIND_BYTES;
        self.add_at(slot, at + bucket_of(ns) as u64 * 8, 1);
        self.add_at(slot, at + SUM, ns);
        let longest = u64::from(slot) * SLOT_BYTES + at + LONGEST;
        let mut known = self.0.shared_load(longest).unwrap_or(u64::MAX);
        while known < ns {
            match self.0.shared_cas(longest, known, ns) {
                Ok(Err(found)) => known = found,
                _ => return,
            }
        }
    }

    /// What was counted in a slot, ever.
    pub fn of(&self, slot: u16) -> Counted {
        let get = |word: u64| self.0.shared_load(u64::from(slot) * SLOT_BYTES + word).unwrap_or(0);
        let mut counted = Counted::default();
        for (count, word) in counted.counts.iter_mut().zip((0..).step_by(8)) {
            *count = get(word);
        }
        for (times, at) in counted.touches.iter_mut().zip((KINDS_AT..).step_by(KIND_BYTES as usize))
        {
            for (bucket, word) in times.buckets.iter_mut().zip((at..).step_by(8)) {
                *bucket = get(word);
            }
            (times.sum_ns, times.longest_ns) = (get(at + SUM), get(at + LONGEST));
        }
        counted
    }

    /// What was counted in the slots below this one, ever.
    pub fn all(&self, slots: u32) -> Counted {
        let mut all = Counted::default();
        (0..slots.min(SLOTS)).for_each(|slot| all.add(&self.of(slot as u16)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_that_ends_behind_it() {
        let mut last = 0;
        for ns in (0..4000).chain((12..36).flat_map(|power| {
            let at = 1_u64 << power;
            [at - 1, at, at + at / 4 - 1, at + at / 4, at + at / 2, at + at / 4 * 3]
        })) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last, "{ns}");
            last = bucket;
            if bucket < BUCKETS - 1 {
                assert!(ns < end_of(bucket), "{ns}: bucket {bucket} ends at {}", end_of(bucket));
            }
            assert!(bucket == 0 || ns >= end_of(bucket - 1), "{ns}: bucket {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn slots_add_up_and_what_was_there_before_is_not_of_who_comes() {
        let path =
            std::path::PathBuf::from(format!("/dev/shm/solera-counts-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let counts = Counts::open(&path).unwrap();
        counts.add(0, Count::Fetched, 3);
        counts.add(511, Count::Fetched, 4);
        for ns in 1..=100 {
            counts.touched(511, Touch::Remote, ns * 10_000);
        }
        let before = counts.of(511);
        counts.add(511, Count::Fetched, 5);
        counts.touched(511, Touch::Remote, 7000);
        // Another process has them, too.
        let others = Counts::open(&path).unwrap();
        let all = others.all(SLOTS);
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!((all.get(Count::Fetched), all.get(Count::Ahead)), (12, 0));
        let times = all.times(Touch::Remote);
        assert_eq!((times.count(), times.sum_ns, times.longest_ns), (101, 50_507_000, 1_000_000));
        assert!((490_000..=650_000).contains(&times.within(50)), "{}", times.within(50));
        assert!((980_000..=1_000_000).contains(&times.within(99)), "{}", times.within(99));
        assert_eq!(all.times(Touch::Local).within(50), 0);
        let new = others.of(511).since(&before);
        assert_eq!((new.get(Count::Fetched), new.times(Touch::Remote).count()), (5, 1));
    }
}
