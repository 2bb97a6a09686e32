//! Counts which pages are written often: stores overwrite these, the kernel all others.
//!
//! Where the page cache stands before a medium, the first store to a page that is clean is a fault
//! of the kernel's, which costs 2 to 5 times its `pwrite`; the next ones cost a third of it. Pages
//! become clean by `fsync`, and by write-back, of which no process is told: seconds after they were
//! written, or at once while many are. So a page is warm that was written often within this second
//! and since the last `fsync` of its file: what one fault costs is won back before the next.
//! A byte for each page, found by a hash: pages that collide seem colder or warmer than they are.

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::time::ClockId;

const PLACES: usize = 1 << 14;
/// Writes after which a page is warm.
const WARM: u8 = 7;
/// Of a byte: the count; the rest tells the file, its last `fsync`, and the second.
const COUNT: u8 = 7;
const COUNT_BITS: u32 = 3;

/// See the head.
pub struct PageHeat(Box<[AtomicU8]>);

/// Since when writes are counted.
#[derive(Clone, Copy)]
pub struct HeatEpoch(u64);

impl HeatEpoch {
    /// The `syncs`th `fsync` of a file, and the begin of this second.
    pub fn now(syncs: u64) -> Self {
        let second = rustix::time::clock_gettime(ClockId::MonotonicCoarse).tv_sec as u64;
        Self(syncs.wrapping_add(second))
    }
}

impl PageHeat {
    /// All is cold.
    pub fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU8::new(0)).collect())
    }

    /// Counts a write to a page of a file; whether it was warm.
    pub fn touch(&self, ino: u64, page: u64, since: HeatEpoch) -> bool {
        let hash = (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(32)
            .wrapping_mul(0xd6e8_feb8_6659_fd93);
        let place = &self.0[(hash >> 40) as usize % PLACES];
        let tag = (hash.wrapping_add(since.0) as u8) << COUNT_BITS;
        let found = place.load(Ordering::Relaxed);
        let count = if found & !COUNT == tag { found & COUNT } else { 0 };
        if count >= WARM {
            return true;
        }
        place.store(tag | (count + 1), Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_warm_until_the_file_is_synced_or_the_second_is_over() {
        let warmth = PageHeat::new();
        let cold = |since| (0..20).filter(|_| !warmth.touch(7, 9, HeatEpoch(since))).count();
        assert_eq!((cold(0), cold(0), cold(1)), (7, 0, 7));
        assert!(!warmth.touch(8, 9, HeatEpoch(1)) && !warmth.touch(7, 10, HeatEpoch(1)));
    }
}
