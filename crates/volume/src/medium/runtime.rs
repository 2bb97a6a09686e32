//! The runtime: volatile state shared by all processes, reached by offset.
//!
//! It lies in a reserved range of the region and is valid for one epoch. Arrays of fixed-layout
//! words at computed offsets, no heap, no pointers. Every word says who writes it: lock words by
//! whoever takes the lock, a process slot by its process, an operation record by its operation.

use crate::medium::layout::{
    CHUNK_RECORD, COUNTERS, COUNTERS_TOGETHER, DESCRIPTION, HEADER_ANCHOR, LOCK_RECORD, OP_RECORD,
    PROCESS_SLOT, RuntimeLayout,
};
use pmem::counters::{APART, GROUPS};
use pmem::{Fault, OwnedSpan, Region, Span};
use robust::word::{ContendedWord, RegionWord};
use std::sync::Arc;
use std::time::Duration;

/// The mapped runtime range.
pub(crate) struct Runtime {
    map: Arc<Region>,
    base: u64,
    pub(crate) layout: RuntimeLayout,
    /// The words at its beginning that calls look at, if all are there.
    header: Option<OwnedSpan<HEADER_WORDS>>,
}

/// Of them, so many.
const HEADER_WORDS: usize = HEADER_ANCHOR as usize / 8;

impl Runtime {
    pub(crate) fn new(map: Arc<Region>, base: u64, layout: RuntimeLayout) -> Self {
        let header = OwnedSpan::new(&map, base).ok();
        Self { map, base, layout, header }
    }

    #[inline]
    pub(crate) fn process(&self, slot: u32) -> u64 {
        self.layout.processes + u64::from(slot) * PROCESS_SLOT
    }

    #[inline]
    pub(crate) fn op(&self, index: u32) -> u64 {
        self.layout.ops + u64::from(index) * OP_RECORD
    }

    #[inline]
    pub(crate) fn description(&self, index: u32) -> u64 {
        self.layout.descriptions + u64::from(index) * DESCRIPTION
    }

    #[inline]
    pub(crate) fn lock_record(&self, index: u32) -> u64 {
        self.layout.locks + u64::from(index) * LOCK_RECORD
    }

    #[inline]
    pub(crate) fn chunk(&self, chunk: u64) -> u64 {
        debug_assert!(chunk < self.layout.chunk_count);
        self.layout.chunks + chunk * CHUNK_RECORD
    }

    /// Where the counters of a slot's first group of threads lie, if there are any.
    pub(crate) fn counters(&self, slot: u32) -> Option<u64> {
        let (set, place) =
            (u64::from(slot) / COUNTERS_TOGETHER, u64::from(slot) % COUNTERS_TOGETHER);
        let set = set * GROUPS * APART;
        self.layout.counters.map(|at| at + set + place * COUNTERS)
    }

    /// A word, for what is written over any.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> RegionWord<'_> {
        RegionWord(&self.map, self.base + offset)
    }

    /// The same, of a word that newcomers change while this process works alone.
    pub(crate) fn contended(&self, offset: u64) -> ContendedWord<'_> {
        ContendedWord(&self.map, self.base + offset)
    }

    /// Whether nobody but this thread changes its words ([`Region::set_alone`]).
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.map.is_alone()
    }

    /// A word of the header, whose place was looked at when it was mapped.
    #[expect(clippy::inline_always, reason = "a load or two")]
    #[inline(always)]
    pub(crate) fn header<const AT: u64>(&self) -> Result<u64, Fault> {
        match &self.header {
            Some(header) => header.span().load(AT as usize / 8),
            None => self.load(AT),
        }
    }

    /// The region that holds the runtime, and the runtime's offset in it.
    pub(crate) fn place(&self) -> (&Arc<Region>, u64) {
        (&self.map, self.base)
    }

    #[inline]
    pub(crate) fn load(&self, offset: u64) -> Result<u64, Fault> {
        self.map.shared_load(self.base + offset)
    }

    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u64) -> Result<(), Fault> {
        self.map.shared_store(self.base + offset, value)
    }

    /// Some words, checked once.
    #[inline]
    pub(crate) fn span<const WORDS: usize>(&self, offset: u64) -> Result<Span<'_, WORDS>, Fault> {
        self.map.span(self.base + offset)
    }

    /// The eight words of a line, each loaded whole.
    #[inline]
    pub(crate) fn line(&self, offset: u64) -> Result<[u64; 8], Fault> {
        self.span(offset)?.words()
    }

    /// Stores consecutive words, in ascending order.
    #[inline]
    pub(crate) fn write(&self, offset: u64, words: &[u8]) -> Result<(), Fault> {
        self.map.shared_write(self.base + offset, words)
    }

    /// Compare and swap; the inner error is the value found.
    #[inline]
    pub(crate) fn cas(&self, offset: u64, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        self.map.shared_cas(self.base + offset, old, new)
    }

    /// As [`Runtime::cas`], of a word that newcomers change while this process works alone.
    pub(crate) fn contended_cas(
        &self,
        offset: u64,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, Fault> {
        self.map.contended_cas(self.base + offset, old, new)
    }

    #[inline]
    pub(crate) fn add(&self, offset: u64, delta: u64) -> Result<u64, Fault> {
        self.map.shared_add(self.base + offset, delta)
    }

    #[inline]
    pub(crate) fn or(&self, offset: u64, bits: u64) -> Result<u64, Fault> {
        self.map.shared_or(self.base + offset, bits)
    }

    #[inline]
    pub(crate) fn and(&self, offset: u64, bits: u64) -> Result<u64, Fault> {
        self.map.shared_and(self.base + offset, bits)
    }

    #[inline]
    pub(crate) fn swap(&self, offset: u64, value: u64) -> Result<u64, Fault> {
        self.map.shared_swap(self.base + offset, value)
    }

    /// Makes the word at least `value`.
    pub(crate) fn raise(&self, offset: u64, value: u64) -> Result<(), Fault> {
        let mut found = self.load(offset)?;
        while found < value {
            match self.cas(offset, found, value)? {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        Ok(())
    }

    /// Sleeps while the low half of the word is `expected`; `false` on timeout.
    pub(crate) fn wait(&self, offset: u64, expected: u32, timeout: Duration) -> bool {
        self.map.futex_wait(self.base + offset, expected, Some(timeout))
    }

    /// The same, for a wait that a signal may end: `INTERRUPTED` or `BEGIN_ANEW` then.
    pub(crate) fn wait_interruptible(
        &self,
        offset: u64,
        expected: u32,
        timeout: Duration,
    ) -> Result<bool, rustix::io::Errno> {
        match self.map.futex_wait_interruptible(self.base + offset, expected, timeout) {
            Err(rustix::io::Errno::INTR) => Err(vfs::INTERRUPTED),
            Err(_) => Err(vfs::BEGIN_ANEW),
            Ok(woken) => Ok(woken),
        }
    }

    pub(crate) fn wake(&self, offset: u64) {
        self.map.futex_wake(self.base + offset, u32::MAX);
    }
}
