//! What a program says of its mappings: how it reads them, what it wants soon, what is to stay.
//!
//! It says so of addresses, and of this process. A lock (`mlock`) is a hold in the node table, as
//! calls have (`pagers.rs`), but until it is given back: so it ends with the process, however that
//! ends, and a child has none.
//!
//! Locks: `ways`, `locked`, for a moment.

use crate::paging::pager::RegionPager;
use crate::paging::pagers::{self, Pagers};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::messages::PAGES;
use crate::protocol::{Location, PAGE, State};
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::maps::PagedMapping;
use rustix::io::Errno;
use std::cell::Cell;
use std::ops::Range;

/// Locks that a process has at once: calls need places for their holds, too.
const LOCKS: usize = 16;
/// Ranges of which a process says how it reads them.
const WAYS: usize = 256;

/// How a program reads a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPattern {
    /// It does not say.
    Normal,
    /// In no order: nothing is brought ahead.
    Random,
    /// In order.
    InOrder,
}

/// What was said of a region's mappings, by addresses.
pub(super) struct Hints {
    ways: ForkLock<Vec<(Range<usize>, AccessPattern)>>,
    /// With the places of holds.
    locked: ForkLock<Vec<(Range<usize>, u64)>>,
}

impl Default for Hints {
    fn default() -> Self {
        Self { ways: ForkLock::new(Vec::new()), locked: ForkLock::new(Vec::new()) }
    }
}

/// What is left of a range without another one.
fn without(range: &Range<usize>, other: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let before = range.start..range.end.min(other.start);
    let behind = range.start.max(other.end)..range.end;
    [before, behind].into_iter().filter(|part| !part.is_empty())
}

fn overlap(range: &Range<usize>, other: &Range<usize>) -> bool {
    range.start < other.end && other.start < range.end
}

impl Hints {
    /// How pages are brought ahead of a touch. `by_default`: what the program was started with.
    pub(super) fn ahead(&self, address: usize, by_default: PrefetchMode) -> PrefetchMode {
        let ways = self.ways.lock();
        match ways.iter().find(|way| way.0.contains(&address)) {
            Some((_, AccessPattern::Random)) => PrefetchMode::Off,
            Some((_, AccessPattern::InOrder)) if by_default != PrefetchMode::Off => {
                PrefetchMode::Seq
            }
            _ => by_default,
        }
    }

    /// In a forked child, as soon as it may allocate: its mappings are read as its parent's are,
    /// and nothing is locked.
    pub(super) fn forked(&self) {
        let ways = self.ways.get().try_lock().map(|ways| ways.clone()).unwrap_or_default();
        self.ways.renew(ways);
        self.locked.renew(Vec::new());
    }

    fn read_so(&self, range: Range<usize>, way: AccessPattern) {
        let mut ways = self.ways.lock();
        let cut = ways.drain(..).flat_map(|(old, way)| {
            without(&old, &range).map(|part| (part, way)).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = cut.collect();
        // One that is not noted is read as any other.
        if way != AccessPattern::Normal && all.len() < WAYS {
            all.push((range, way));
        }
        *ways = all;
    }
}

impl RegionPager {
    /// These addresses are no mappings of the region any more.
    pub(super) fn forget_hints(&self, range: Range<usize>) {
        self.hints.read_so(range.clone(), AccessPattern::Normal);
        self.unlock(&range);
    }

    /// What of a range lies in mappings of the region.
    fn parts(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let part = |map: PagedMapping| {
            let end = map.start + (map.pages * PAGE) as usize;
            range.start.max(map.start)..range.end.min(end)
        };
        self.maps().each().map(part).filter(|part| !part.is_empty()).collect()
    }

    /// Brings the absent pages of a range that holders have, as far as there is room.
    fn will_need(&self, range: &Range<usize>) {
        let ground = self.ground();
        let mut wanted = Vec::new();
        let bring = |wanted: &mut Vec<u64>| {
            self.bring(wanted, (None, false));
            wanted.clear();
        };
        let parts = self.parts(range);
        for address in parts.into_iter().flat_map(|part| part.step_by(PAGE as usize)) {
            let Some((page, _)) = self.mapping_at(address) else { continue };
            let place = ground.place(page);
            let absent = ground.table.word(page).state() == State::Absent
                && matches!(place, Ok(Location::Held(owner, ..)) if owner != ground.here());
            if absent {
                wanted.push(page);
            }
            if ground.room.free() <= wanted.len() as u64 {
                break;
            }
            if wanted.len() == PAGES {
                bring(&mut wanted);
            }
        }
        if !wanted.is_empty() {
            bring(&mut wanted);
        }
    }

    /// Locks the pages of a range that lie in mappings of the region. `ENOMEM`: that would be too
    /// much; `EAGAIN`: a page cannot be had. Then nothing more is locked than before.
    fn lock(&self, range: &Range<usize>) -> Result<(), Errno> {
        let mut new: Vec<(Range<usize>, u64)> = Vec::new();
        let mut locked = self.hints.locked.lock();
        // A range that is locked once more is locked once.
        let mut parts = self.parts(range);
        for (old, _) in locked.iter() {
            parts = parts.iter().flat_map(|part| without(part, old).collect::<Vec<_>>()).collect();
        }
        let bytes = locked.iter().map(|lock| lock.0.len()).sum::<usize>() as u64;
        let mut left = self.ground().may_stay().saturating_sub(bytes / PAGE);
        let mut outcome = Ok(());
        for mut part in parts {
            while !part.is_empty() && outcome.is_ok() {
                let most = left.min(1 << 20);
                let has_place = locked.len() + new.len() < LOCKS && most > 0;
                let held = has_place.then(|| self.hold_some(part.start, part.end, most)).flatten();
                let Some((place, end)) = held else {
                    outcome = Err(Errno::NOMEM);
                    break;
                };
                let end = end.min(part.start + (most * PAGE) as usize);
                left -= ((end - part.start) as u64).div_ceil(PAGE);
                new.push((part.start..end, place));
                part.start = end;
            }
        }
        if outcome.is_ok() {
            locked.append(&mut new);
        }
        drop(locked);
        for lock in new {
            self.let_go(lock.1);
        }
        outcome?;
        self.will_need(range);
        let parts = self.parts(range).into_iter();
        if parts
            .flat_map(|part| part.step_by(PAGE as usize))
            .any(|at| self.serve(at, true).is_err())
        {
            self.unlock(range);
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    fn unlock(&self, range: &Range<usize>) {
        let mut locked = self.hints.locked.lock();
        let mut at = 0;
        while at < locked.len() {
            if !overlap(&locked[at].0, range) {
                at += 1;
                continue;
            }
            let (old, place) = locked.swap_remove(at);
            // What is left is held anew first. Where nothing can be held it goes, too.
            for part in without(&old, range) {
                if let Some((place, _)) = self.hold_some(part.start, part.end, u64::MAX) {
                    locked.push((part, place));
                }
            }
            self.let_go(place);
        }
    }
}

/// A range of addresses, of whole pages.
fn pages(start: usize, length: usize) -> Range<usize> {
    let (page, end) = (PAGE as usize, start.saturating_add(length));
    start / page * page..end.checked_next_multiple_of(page).unwrap_or(end)
}

/// What a program says of addresses, to all pagers.
impl Pagers {
    /// The program reads these addresses so from here on, as far as they are of mappings of a
    /// region.
    pub fn reads(start: usize, length: usize, way: AccessPattern) {
        pagers::each(|pager| {
            if pager.page_at(start).is_some() {
                pager.hints.read_so(start..start.saturating_add(length), way);
            }
        });
    }

    /// The program wants these addresses soon: what is away is brought, as far as there is room.
    pub fn will_need(start: usize, length: usize) {
        pagers::each(|pager| pager.will_need(&pages(start, length)));
    }

    /// Locks the pages of these addresses: they stay until [`Self::unlock`].
    pub fn lock(start: usize, length: usize) -> Result<(), Errno> {
        let outcome = Cell::new(Ok(()));
        pagers::each(|pager| {
            if outcome.get().is_ok() {
                outcome.set(pager.lock(&pages(start, length)));
            }
        });
        outcome.get()
    }

    /// They may leave.
    pub fn unlock(start: usize, length: usize) {
        pagers::each(|pager| pager.unlock(&pages(start, length)));
    }

    /// Pages that can come before others must leave, in the fullest of the regions' nodes.
    pub fn free_pages() -> u64 {
        let free = Cell::new(u64::MAX);
        pagers::each(|pager| free.set(free.get().min(pager.ground().room.free())));
        free.get()
    }
}
