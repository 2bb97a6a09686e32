//! A file that is mapped, as a program maps it: by the C library, which may be the preload
//! library's.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::connection::PAGE;
use crate::worker::row::Random;

/// Words of a page.
const WORDS: usize = PAGE / 8;

/// A shared mapping of a whole file.
pub struct Mapping {
    start: *mut u64,
    bytes: usize,
}

// SAFETY: the memory is the mapping's own until it is dropped, and each access is volatile.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What a page has in its first word; no page has zeros only.
pub fn word(page: usize) -> u64 {
    (page as u64 + 1) << 32 | 0x5A5A
}

impl Mapping {
    pub fn of(file: &File, bytes: usize) -> io::Result<Self> {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping, wherever there is room.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), bytes })
    }

    pub fn address(&self) -> usize {
        self.start as usize
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn pages(&self) -> usize {
        self.bytes / PAGE
    }

    /// How many pages are in the kernel's cache of the file.
    pub fn cached(&self) -> io::Result<usize> {
        let mut pages = vec![0_u8; self.pages()];
        // SAFETY: a byte for each page of the mapping, which is this value's own.
        match unsafe { libc::mincore(self.start.cast(), self.bytes, pages.as_mut_ptr()) } {
            0 => Ok(pages.iter().filter(|page| **page & 1 == 1).count()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Tells the kernel to read nothing ahead.
    pub fn at_random_only(&self) -> io::Result<()> {
        // SAFETY: the advice changes no byte.
        match unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_RANDOM) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn at(&self, byte: usize) -> *mut u64 {
        assert!(byte + 8 <= self.bytes, "{byte} of {}", self.bytes);
        self.start.wrapping_byte_add(byte)
    }

    /// The word at an offset, a multiple of 8.
    pub fn load(&self, byte: usize) -> u64 {
        // SAFETY: within the mapping, aligned.
        unsafe { self.at(byte).read_volatile() }
    }

    /// The same, the other way.
    pub fn store(&self, byte: usize, word: u64) {
        // SAFETY: within the mapping, aligned.
        unsafe { self.at(byte).write_volatile(word) }
    }

    /// Stores all of a page.
    pub fn fill(&self, page: usize) {
        for number in 0..WORDS {
            self.store(page * PAGE + number * 8, word(page) + number as u64);
        }
    }

    /// Loads all of a page.
    pub fn sum(&self, page: usize) -> u64 {
        let load = |number| self.load(page * PAGE + number * 8);
        (0..WORDS).fold(0, |sum: u64, number| sum.wrapping_add(load(number)))
    }

    /// Nanoseconds of a load and a store of a word, at random, where each page was stored to
    /// before.
    pub fn at_random(&self, count: usize) -> f64 {
        for page in 0..self.pages() {
            self.store(page * PAGE + 8, page as u64);
        }
        let mut random = Random::new();
        let begun = Instant::now();
        for _ in 0..count {
            // Not the first word of a page.
            let byte = random.below(self.pages() as u64) as usize * PAGE;
            let byte = byte + (1 + random.below(WORDS as u64 - 1) as usize) * 8;
            self.store(byte, self.load(byte).wrapping_add(1));
        }
        begun.elapsed().as_nanos() as f64 / count as f64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; nothing points into it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
