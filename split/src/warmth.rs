//! Counts which pages are written often: stores overwrite these, the kernel all others.
//!
//! Where the page cache stands before a medium, the first store to a page that is clean is a fault
//! of the kernel's, which costs more than its `pwrite`; the next ones cost nothing. `fsync` makes
//! pages clean. So a page is warm after a few writes since the last `fsync` of its file.
//! A byte for each page, found by a hash: pages that collide seem colder or warmer than they are.

use std::sync::atomic::{AtomicU8, Ordering};

const PLACES: usize = 1 << 18;
/// Writes after which a page is warm.
const WARM: u8 = 2;
/// Of a byte: the count; the rest tells the file and its last `fsync`.
const COUNT: u8 = 3;

/// See the head.
pub struct Warmth(Box<[AtomicU8]>);

impl Warmth {
    /// All is cold.
    pub fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU8::new(0)).collect())
    }

    /// Counts a write to a page of a file after its `syncs`th `fsync`; whether it was warm.
    pub fn touch(&self, ino: u64, syncs: u64, page: u64) -> bool {
        let hash = (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(32)
            .wrapping_mul(0xd6e8_feb8_6659_fd93);
        let place = &self.0[(hash >> 40) as usize % PLACES];
        let tag = (hash.wrapping_add(syncs) as u8) << 2;
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
    fn a_page_is_warm_until_the_file_is_synced() {
        let warmth = Warmth::new();
        let touched = |syncs| (0..4).map(|_| warmth.touch(7, syncs, 9)).collect::<Vec<_>>();
        assert_eq!(touched(0), [false, false, true, true]);
        assert_eq!(touched(1), [false, false, true, true]);
        assert!(!warmth.touch(8, 1, 9) && !warmth.touch(7, 1, 10));
    }
}
