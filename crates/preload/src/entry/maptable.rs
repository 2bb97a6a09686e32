//! The table of this process's mappings of files of the volume, in the order of their addresses,
//! and of the descriptions that they hold.
//!
//! Invariants: no two mappings overlap. What is counted (mappings with parts without pages, those
//! that hold a description) and where files are mapped change with the mappings only: in `insert`
//! and `remove`, and where a [`Change`] ends.
//!
//! A call costs the logarithm of the number of mappings, and what lies in its range.
//!
//! Locks: the structure lock guards the table; [`any`] and [`any_gap`] are asked without it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use vfs::{Desc, Mapped, Node};

/// The size of a page.
pub const PAGE: usize = 4096;

/// How many mappings there are: without any, no call takes a lock for them.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many of them have parts without pages.
static GAPPED: AtomicUsize = AtomicUsize::new(0);
/// There was one.
static HAD_GAP: AtomicBool = AtomicBool::new(false);

/// Whether this process has mapped anything.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

fn tell_gaps(count: usize) {
    GAPPED.store(count, Ordering::Release);
    if count != 0 && !had_gap() {
        HAD_GAP.store(true, Ordering::Release);
    }
}

/// Whether some mapping has had a part without pages: a fault there may still be under way when
/// another thread has supplied the last page.
#[inline]
pub fn had_gap() -> bool {
    HAD_GAP.load(Ordering::Relaxed)
}

/// Whether some mapping has a part without pages.
#[inline]
pub fn any_gap() -> bool {
    GAPPED.load(Ordering::Relaxed) != 0
}

/// One mapped range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    pub desc: Desc,
    pub node: Node,
    /// Offset in the file of `start`.
    pub offset: u64,
    pub prot: c_int,
    pub shared: bool,
    /// `mprotect` may add `PROT_WRITE`.
    pub may_write: bool,
    /// The parts without pages of the file: in order, apart from each other.
    pub empty: Vec<(usize, usize)>,
    /// Some of these show zeros, to reads only.
    pub zeros: bool,
    /// The pages that it is made of: `start`, `end` and the parts above are multiples.
    pub unit: usize,
    /// In a mapping of large pages: the parts that the program asked for and still has.
    pub own: Vec<(usize, usize)>,
}

impl Mapping {
    /// What the engine must know of it.
    pub const fn usage(&self) -> Mapped {
        match (self.shared, self.prot & libc::PROT_WRITE) {
            (false, _) => Mapped::Private,
            (true, 0) => Mapped::Read,
            (true, _) => Mapped::Write,
        }
    }

    /// The offset in the file of an address.
    pub const fn offset_of(&self, address: usize) -> u64 {
        self.offset + (address - self.start) as u64
    }

    /// Whether it has a part in `start..end`.
    pub const fn touches(&self, start: usize, end: usize) -> bool {
        start < self.end && self.start < end
    }

    /// Whether its pages are larger than the program knows.
    pub const fn is_large(&self) -> bool {
        self.unit != PAGE
    }

    /// The part without pages at an address.
    pub fn empty_at(&self, address: usize) -> Option<(usize, usize)> {
        self.empty_from(address).filter(|part| part.0 <= address)
    }

    /// The first part without pages that ends behind an address.
    pub fn empty_from(&self, address: usize) -> Option<(usize, usize)> {
        let index = self.empty.partition_point(|part| part.1 <= address);
        self.empty.get(index).copied()
    }

    /// Whether it has a part without pages in `start..end`.
    pub fn lacks(&self, start: usize, end: usize) -> bool {
        self.empty_from(start).is_some_and(|part| part.0 < end)
    }

    /// `from..to` has pages now, or has none.
    pub fn note(&mut self, from: usize, to: usize, is_empty: bool) {
        if from >= to {
            return;
        }
        // A part without pages is joined with those that it borders on.
        let is_before = |part: &(usize, usize)| part.1 < from || part.1 == from && !is_empty;
        let is_behind = |part: &(usize, usize)| part.0 > to || part.0 == to && !is_empty;
        let first = self.empty.partition_point(is_before);
        let last = self.empty.partition_point(|part| !is_behind(part));
        let met = &self.empty[first..last];
        let low = met.first().map_or(from, |part| part.0.min(from));
        let high = met.last().map_or(to, |part| part.1.max(to));
        if is_empty {
            self.empty.splice(first..last, [(low, high)]);
        } else {
            let left = [(low, from), (to, high)].into_iter().filter(|part| part.0 < part.1);
            self.empty.splice(first..last, left);
        }
    }

    /// Whether `next` continues it, so that the kernel would have one mapping for both.
    fn continues_in(&self, next: &Self) -> bool {
        next.start == self.end
            && !self.is_large()
            && next.desc == self.desc
            && next.offset == self.file_end()
            && (next.prot, next.shared, next.may_write) == (self.prot, self.shared, self.may_write)
    }

    /// Takes in the mapping that continues it.
    fn append(&mut self, next: &Self) {
        self.end = next.end;
        self.zeros |= next.zeros;
        for &part in &next.empty {
            match self.empty.last_mut() {
                Some(last) if last.1 == part.0 => last.1 = part.1,
                _ => self.empty.push(part),
            }
        }
    }

    /// The part of it in `start..end`, which is not empty.
    fn part(&self, start: usize, end: usize) -> Self {
        let (start, end) = (start.max(self.start), end.min(self.end));
        let inside = |&(from, to): &(usize, usize)| (from.max(start), to.min(end));
        let parts = |parts: &[(usize, usize)]| {
            parts.iter().map(inside).filter(|part| part.0 < part.1).collect()
        };
        let (empty, own) = (parts(&self.empty), parts(&self.own));
        Self { start, end, offset: self.offset_of(start), empty, own, ..self.clone() }
    }

    /// The offset in the file of `end`.
    const fn file_end(&self) -> u64 {
        self.offset_of(self.end)
    }

    /// Its place among the mappings of its file.
    const fn place(&self) -> FilePosition {
        (self.node, self.file_end(), self.start)
    }

    const fn is_gapped(&self) -> bool {
        !self.empty.is_empty()
    }
}

/// A mapping of a file: the offset in the file of its end, and its start.
type FilePosition = (Node, u64, usize);

/// The mappings of this process.
#[derive(Default)]
pub struct Mappings {
    /// By their starts.
    by_start: BTreeMap<usize, Mapping>,
    /// How many hold a description, of those that are held.
    holders: BTreeMap<Desc, usize>,
    /// By their files.
    places: BTreeSet<FilePosition>,
    /// How many have parts without pages.
    gapped: Cell<usize>,
}

/// One of the mappings, to change how it is protected and which pages it has; its place, and what
/// it shows there, stay.
pub struct Change<'a> {
    map: &'a mut Mapping,
    before: (FilePosition, Desc, bool),
    gapped: &'a Cell<usize>,
}

impl<'a> Change<'a> {
    fn new(map: &'a mut Mapping, gapped: &'a Cell<usize>) -> Self {
        let before = (map.place(), map.desc, map.is_gapped());
        Self { map, before, gapped }
    }
}

impl Deref for Change<'_> {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        self.map
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Mapping {
        self.map
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let (place, desc, was_gapped) = self.before;
        assert!((place, desc) == (self.map.place(), self.map.desc), "the table lists it there");
        let others = self.gapped.get() - usize::from(was_gapped);
        self.gapped.set(others + usize::from(self.map.is_gapped()));
        tell_gaps(self.gapped.get());
    }
}

impl Mappings {
    // ---- what is there

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Whether some mapping needs `desc`.
    pub fn holds(&self, desc: Desc) -> bool {
        self.holders.contains_key(&desc)
    }

    /// The descriptions that mappings hold, once each.
    pub fn descriptions(&self) -> impl Iterator<Item = Desc> {
        self.holders.keys().copied()
    }

    /// The mapping at an address.
    pub fn find(&self, address: usize) -> Option<&Mapping> {
        let (_, map) = self.by_start.range(..=address).next_back()?;
        (address < map.end).then_some(map)
    }

    /// The mapping at an address, to be changed.
    pub fn find_mut(&mut self, address: usize) -> Option<Change<'_>> {
        let (_, map) = self.by_start.range_mut(..=address).next_back()?;
        (address < map.end).then(|| Change::new(map, &self.gapped))
    }

    /// The mappings with a part in `start..end`, in their order.
    pub fn within(&self, start: usize, end: usize) -> impl Iterator<Item = &Mapping> {
        let maps = self.by_start.range(self.starts(start, end)).map(|(_, map)| map);
        maps.filter(move |map| map.touches(start, end))
    }

    /// As [`Mappings::within`], to be changed.
    pub fn within_mut(&mut self, start: usize, end: usize) -> impl Iterator<Item = Change<'_>> {
        let starts = self.starts(start, end);
        let maps = self.by_start.range_mut(starts).map(|(_, map)| map);
        maps.filter(move |map| map.touches(start, end)).map(|map| Change::new(map, &self.gapped))
    }

    /// Where those can start that have a part in `start..end`: at most one more does.
    fn starts(&self, start: usize, end: usize) -> Range<usize> {
        let before = self.by_start.range(..=start).next_back();
        let first = before.map_or(start, |(&first, _)| first);
        first..end.max(first)
    }

    /// The starts of the mappings that show what a file has, or would have, behind `offset`.
    pub fn of_file(&self, node: Node, offset: u64) -> impl Iterator<Item = usize> {
        let behind = (node, offset.saturating_add(1), 0)..=(node, u64::MAX, usize::MAX);
        self.places.range(behind).map(|&(_, _, start)| start)
    }

    /// Whether some mapping lies in `start..end`.
    pub fn touches(&self, start: usize, end: usize) -> bool {
        self.within(start, end).next().is_some()
    }

    /// The parts of `start..end` in which no mapping lies.
    pub fn around(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let mut free = Vec::new();
        let mut at = start;
        for map in self.within(start, end) {
            free.push((at, map.start));
            at = map.end;
        }
        free.push((at, end));
        free.retain(|part| part.0 < part.1);
        free
    }

    /// What is mapped at an address: description and offset in the file.
    pub fn at(&self, address: usize) -> Option<(Desc, u64)> {
        self.find(address).map(|map| (map.desc, map.offset_of(address)))
    }

    /// How the program has mapped what is at an address, as `/proc/self/maps` says it. (Its pages
    /// may be mapped otherwise: holes without access, and private pages shared until they are
    /// written.)
    pub fn access_at(&self, address: usize) -> Option<String> {
        let map = self.find(address)?;
        let may = |bit, letter| if map.prot & bit == 0 { '-' } else { letter };
        let kind = if map.shared { 's' } else { 'p' };
        let (read, write) = (may(libc::PROT_READ, 'r'), may(libc::PROT_WRITE, 'w'));
        Some([read, write, may(libc::PROT_EXEC, 'x'), kind].iter().collect())
    }

    // ---- what changes

    /// Lists a mapping, where none lies.
    pub fn add(&mut self, map: Mapping) {
        self.insert(map);
        self.publish();
    }

    /// Puts a mapping in the place of the one that starts there.
    pub fn replace(&mut self, map: Mapping) {
        self.remove(map.start);
        self.add(map);
    }

    /// Forgets `start..end`. Gives the descriptions that no mapping needs any more.
    pub fn cut(&mut self, start: usize, end: usize) -> Vec<Desc> {
        let mut freed = Vec::new();
        if start >= end {
            return freed;
        }
        ddmap::Pagers::unmap(start, end);
        let starts: Vec<usize> = self.within(start, end).map(|map| map.start).collect();
        for first in starts {
            let Some(map) = self.remove(first) else { continue };
            freed.push(map.desc);
            if map.start < start {
                self.insert(map.part(map.start, start));
            }
            if end < map.end {
                self.insert(map.part(end, map.end));
            }
        }
        self.publish();
        freed.retain(|desc| !self.holds(*desc));
        freed
    }

    /// Makes one of neighbours that continue each other, as the kernel does, from the mapping at
    /// `start` to the one at `end` and what continues that.
    pub fn join(&mut self, start: usize, end: usize) {
        let mut next = self.within(start, end.max(start + 1)).next().map(|map| map.start);
        while let Some(map) = next.and_then(|at| self.by_start.get(&at)) {
            let Some((&behind, other)) = self.by_start.range(map.end..).next() else { break };
            if map.continues_in(other) {
                self.append(map.start, behind);
            } else {
                next = (behind < end).then_some(behind);
            }
        }
        self.publish();
    }

    fn append(&mut self, to: usize, next: usize) {
        if let Some(mut map) = self.remove(to)
            && let Some(next) = self.remove(next)
        {
            map.append(&next);
            self.insert(map);
        }
    }

    /// Splits a mapping that reaches over an address into two there.
    pub fn split(&mut self, at: usize) {
        if let Some(map) = self.find(at).filter(|map| map.start < at) {
            let (front, behind) = (map.part(map.start, at), map.part(at, map.end));
            self.remove(front.start);
            self.insert(front);
            self.insert(behind);
            self.publish();
        }
    }

    fn insert(&mut self, map: Mapping) {
        debug_assert!(!self.touches(map.start, map.end), "mappings do not overlap");
        *self.holders.entry(map.desc).or_default() += 1;
        self.places.insert(map.place());
        self.gapped.set(self.gapped.get() + usize::from(map.is_gapped()));
        self.by_start.insert(map.start, map);
    }

    fn remove(&mut self, start: usize) -> Option<Mapping> {
        let map = self.by_start.remove(&start)?;
        if let Some(count) = self.holders.get_mut(&map.desc) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&map.desc);
            }
        }
        self.places.remove(&map.place());
        self.gapped.set(self.gapped.get() - usize::from(map.is_gapped()));
        Some(map)
    }

    /// Publishes the counts for threads that do not take the lock: at the end of a change, since a
    /// mapping under change is out of the table in between.
    fn publish(&self) {
        tell_gaps(self.gapped.get());
        COUNT.store(self.by_start.len(), Ordering::Release);
    }
}
