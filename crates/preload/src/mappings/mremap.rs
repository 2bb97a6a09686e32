//! `mremap` of ranges with mappings of the volume's files, as Linux does it since 6.17: neighbours
//! that continue each other are one mapping; the excess of the old range is unmapped first; and a
//! range that only moves may hold several mappings, and gaps.
//!
//! Shared pages are mapped anew at the target. Of a private mapping the pages themselves move,
//! since some may have been written; if not all of them can, they come back. Those of a region with
//! a pager lose their registration on the way: nobody may touch them until they have it again, for
//! the kernel would fill holes of the page file by zeros.
//!
//! Locks: the structure lock, throughout.

use std::ffi::{c_int, c_void};

use rustix::mm::{MprotectFlags, MremapFlags};
use vfs::{Desc, Errno};

use crate::entry::maptable::{Mapping, Mappings, PAGE};
use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::mappings::large::{self, unmap};
use crate::mappings::mapping::{self, MapRequest, extend, release};
use crate::mappings::mmap::ADDRESSES;
use crate::runtime::code::Line;

/// To a fixed place.
const FIXED: MremapFlags = MremapFlags::from_bits_retain(libc::MREMAP_FIXED as u32);
const ALL: MremapFlags = FIXED.union(MremapFlags::MAYMOVE).union(MremapFlags::DONTUNMAP);

/// What `mremap` is asked for; lengths are whole pages.
#[derive(Clone, Copy)]
struct Move {
    start: usize,
    old: usize,
    new: usize,
    flags: MremapFlags,
    to: usize,
}

impl Move {
    /// Whether it goes to a given place, or leaves the old one mapped.
    fn leaves(&self) -> bool {
        self.flags.intersects(FIXED.union(MremapFlags::DONTUNMAP))
    }

    fn check(&self) -> Result<(), Errno> {
        let Self { start, old, new, flags, to } = *self;
        let (moves, fixed) = (flags.contains(MremapFlags::MAYMOVE), flags.contains(FIXED));
        let overlaps = || {
            to.checked_add(new).is_none_or(|end| {
                !to.is_multiple_of(PAGE) || to < start.saturating_add(old) && start < end
            })
        };
        let wrong = !ALL.contains(flags)
            || new == 0
            || new > ADDRESSES
            || !start.is_multiple_of(PAGE)
            || self.leaves() && !moves
            || flags.contains(MremapFlags::DONTUNMAP) && old != new
            || fixed && overlaps();
        if wrong { Err(Errno::INVAL) } else { Ok(()) }
    }
}

/// `mremap`; the kernel's affair if nothing of ours lies there.
pub fn remap(
    process: &Process,
    start: usize,
    (old, new): (usize, usize),
    flags: c_int,
    to: usize,
) -> Served<isize> {
    // As the kernel, past zero.
    let pages = |len: usize| len.wrapping_add(PAGE - 1) / PAGE * PAGE;
    let flags = MremapFlags::from_bits_retain(flags as u32);
    let request = Move { start, old: pages(old), new: pages(new), flags, to };
    let mut maps = process.lock();
    let is_ours = maps.touches(start, start.saturating_add(request.old.max(1)));
    let fixed = flags.contains(FIXED);
    let replaces = fixed && maps.touches(to, to.saturating_add(request.new));
    if !is_ours && !replaces {
        return Err(Stop::Kernel);
    }
    request.check()?;
    let mut freed = Vec::new();
    maps.join(start, start.saturating_add(request.old));
    let result = run(process, &mut maps, request, &mut freed);
    freed.retain(|desc| !maps.holds(*desc));
    release(process, freed);
    Ok(result? as isize)
}

fn run(
    process: &Process,
    maps: &mut Mappings,
    request: Move,
    freed: &mut Vec<Desc>,
) -> Result<usize, Errno> {
    let Move { start, mut old, new, flags, .. } = request;
    let fixed = flags.contains(FIXED);
    let map = maps.find(start).cloned();
    let reaches = map.as_ref().is_none_or(|map| old.min(new) > map.end - start);
    if let Some(map) = map.as_ref().filter(|map| map.is_large()) {
        return run_large(process, maps, map, request, freed);
    }
    let several = fixed && old == new && maps.touches(start, start + old);
    if several && reaches && !flags.contains(MremapFlags::DONTUNMAP) {
        return move_several(process, maps, &request, freed);
    }
    let Some(map) = map else { return move_others(maps, &request, freed) };
    if old >= new && old > 0 && !request.leaves() {
        // What lies behind the new end goes, whatever it is.
        if start.checked_add(old).is_none_or(|end| end > ADDRESSES) {
            return Err(Errno::INVAL);
        }
        if old > new {
            unmap(maps, start + new, old - new, freed)?;
        }
        return Ok(start);
    }
    if reaches {
        return Err(Errno::FAULT);
    }
    if old == 0 && !map.shared {
        return Err(Errno::INVAL);
    }
    if old > new {
        unmap(maps, start + new, old - new, freed)?;
        old = new;
    }
    if request.leaves() || old == 0 {
        let moves = flags.contains(MremapFlags::MAYMOVE);
        return if moves {
            moved(process, maps, &map, &Move { old, ..request }, freed)
        } else {
            Err(Errno::NOMEM)
        };
    }
    if old == new {
        return Ok(start);
    }
    if start + old == map.end {
        match extend(process, maps, map.end, new - old) {
            Err(Errno::EXIST) => {}
            extended => return extended.map(|()| start),
        }
    }
    if flags.contains(MremapFlags::MAYMOVE) {
        moved(process, maps, &map, &request, freed)
    } else {
        Err(Errno::NOMEM)
    }
}

/// As [`run`], of a mapping by large pages: of what the program has of it.
fn run_large(
    process: &Process,
    maps: &mut Mappings,
    map: &Mapping,
    request: Move,
    freed: &mut Vec<Desc>,
) -> Result<usize, Errno> {
    let Move { start, mut old, new, flags, .. } = request;
    let part = map.own.iter().copied().find(|part| (part.0..part.1).contains(&start));
    let (_, end) = part.ok_or(Errno::FAULT)?;
    if old.min(new) > end - start {
        return Err(Errno::FAULT);
    }
    if old > new {
        unmap(maps, start + new, old - new, freed)?;
        old = new;
    }
    if !request.leaves() && old == new {
        return Ok(start);
    }
    if !request.leaves()
        && old > 0
        && start + old == end
        && large::grow(process, maps, map, (end, start + new))
    {
        return Ok(start);
    }
    if flags.contains(MremapFlags::MAYMOVE) {
        moved(process, maps, map, &Move { old, ..request }, freed)
    } else {
        Err(Errno::NOMEM)
    }
}

/// Memory that is not ours: it goes to where something of ours lies, or a part of ours behind it is
/// too much.
fn move_others(maps: &mut Mappings, request: &Move, freed: &mut Vec<Desc>) -> Result<usize, Errno> {
    let Move { start, old, new, flags, to } = *request;
    let least = old.min(new);
    if maps.touches(start, start + least) || old > new && !is_one(start, least)? {
        return Err(Errno::FAULT);
    }
    let vacated = flags.contains(FIXED) && large::vacate(maps, to, to + new, freed)?;
    // SAFETY: as the program asked; what it replaces of ours is forgotten below.
    let result = unsafe { kernel(start, least, new, flags, to) };
    if vacated && result.is_err() {
        unmap(maps, to, new, freed)?;
    }
    if flags.contains(FIXED) {
        let ours = maps.within(to, to + new).next();
        // It may have unmapped what lay there before it failed.
        if result.is_ok() || ours.is_some_and(|map| !is_mapped(map.start.max(to))) {
            freed.extend(maps.cut(to, to + new));
        }
    }
    let at = result?;
    if old > new {
        unmap(maps, start + new, old - new, freed)?;
    }
    Ok(at)
}

/// # Safety
///
/// As for the kernel's call.
unsafe fn kernel(
    start: usize,
    old: usize,
    new: usize,
    flags: MremapFlags,
    to: usize,
) -> Result<usize, Errno> {
    let at = start as *mut c_void;
    // SAFETY: the caller vouches for it.
    let moved = unsafe {
        if flags.contains(FIXED) {
            rustix::mm::mremap_fixed(at, old, new, flags.difference(FIXED), to as *mut c_void)?
        } else {
            rustix::mm::mremap(at, old, new, flags)?
        }
    };
    Ok(moved as usize)
}

fn is_mapped(page: usize) -> bool {
    let mut there = 0_u8;
    let arguments = [page / PAGE * PAGE, PAGE, (&raw mut there) as usize, 0, 0, 0];
    // SAFETY: one byte of our own for one page.
    unsafe { os::interrupt::system_call(libc::SYS_mincore, arguments) }.is_ok()
}

/// The parts of `start..end` that the kernel has mappings for, in their order.
fn kernels_parts(start: usize, end: usize) -> Result<Vec<(usize, usize)>, Errno> {
    let list = std::fs::read("/proc/self/maps")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let lines = list.split(|&byte| byte == b'\n').filter_map(Line::parse);
    let clipped = lines.map(|line| (line.start.max(start), line.end.min(end)));
    Ok(clipped.filter(|part| part.0 < part.1).collect())
}

/// Whether the kernel has one mapping for all of a range.
fn is_one(start: usize, len: usize) -> Result<bool, Errno> {
    Ok(kernels_parts(start, start + len)? == [(start, start + len)])
}

/// Moves all that lies in a range, ours and others'.
fn move_several(
    process: &Process,
    maps: &mut Mappings,
    request: &Move,
    freed: &mut Vec<Desc>,
) -> Result<usize, Errno> {
    let Move { start, old, to, .. } = *request;
    let end = start + old;
    if maps.has_large(start, end) {
        return Err(Errno::FAULT);
    }
    let kernels = kernels_parts(start, end)?;
    if kernels.first().is_none_or(|part| part.0 != start) {
        return Err(Errno::FAULT);
    }
    if maps.shares(to, to + old) {
        return Err(Errno::INVAL);
    }
    // The target stays taken, too, until something lies there.
    large::clear(maps, to, to + old, freed)?;
    let mut done = Vec::with_capacity(kernels.len());
    let moved = move_each(process, maps, (request, &kernels), freed, &mut done);
    done.sort_unstable();
    let mut at = to;
    for (from, until) in done.into_iter().chain([(to + old, to + old)]) {
        if at < from {
            // SAFETY: reserved above, and still so.
            unsafe { rustix::mm::munmap(at as *mut c_void, from - at)? };
        }
        at = until;
    }
    moved.map(|()| to)
}

/// The parts of it, one by one; `done`: where they have gone.
fn move_each(
    process: &Process,
    maps: &mut Mappings,
    (request, kernels): (&Move, &[(usize, usize)]),
    freed: &mut Vec<Desc>,
    done: &mut Vec<(usize, usize)>,
) -> Result<(), Errno> {
    let Move { start, old, to, .. } = *request;
    let end = start + old;
    let ours: Vec<Mapping> = maps.within(start, end).cloned().collect();
    let target = |from: usize| to + (from - start);
    for (from, until) in maps.around(start, end) {
        for part in kernels.iter().map(|part| (part.0.max(from), part.1.min(until))) {
            if part.0 < part.1 {
                let len = part.1 - part.0;
                // SAFETY: as the program asked; the target is reserved.
                unsafe { kernel(part.0, len, len, request.flags, target(part.0))? };
                done.push((target(part.0), target(part.1)));
            }
        }
    }
    for map in ours {
        let (from, until) = (map.start.max(start), map.end.min(end));
        let one = Move {
            start: from,
            old: until - from,
            new: until - from,
            to: target(from),
            ..*request
        };
        // If it fails it leaves nothing there.
        done.push((target(from), target(until)));
        moved(process, maps, &map, &one, freed)?;
    }
    Ok(())
}

/// Maps elsewhere what lies at the old place.
fn moved(
    process: &Process,
    maps: &mut Mappings,
    map: &Mapping,
    request: &Move,
    freed: &mut Vec<Desc>,
) -> Result<usize, Errno> {
    let fixed = request.flags.contains(FIXED);
    let kind = if map.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let new = MapRequest {
        at: if fixed { request.to as *mut c_void } else { std::ptr::null_mut() },
        len: request.new,
        prot: map.prot,
        flags: kind | if fixed { libc::MAP_FIXED } else { 0 },
        offset: map.offset_of(request.start),
    };
    // The lock is held: until the old place is gone no thread gets a page there, where a store
    // would be lost.
    let (target, replaced) = match mapping::map_locked(process, maps, map.desc, new) {
        Err(errno) if fixed => {
            // As the kernel, which has unmapped it by then.
            unmap(maps, request.to, request.new, freed)?;
            return Err(errno);
        }
        mapped => mapped?,
    };
    freed.extend(replaced);
    if !map.shared
        && let Err(errno) = move_pages(maps, map, request, target)
    {
        unmap(maps, target, request.new, freed)?;
        return Err(errno);
    }
    let keeps = request.flags.contains(MremapFlags::DONTUNMAP);
    if request.old > 0 && !keeps {
        unmap(maps, request.start, request.old, freed)?;
    } else if keeps && !map.shared {
        // Its pages have gone: it shows the file again.
        let again =
            MapRequest { at: request.start as *mut c_void, flags: kind | libc::MAP_FIXED, ..new };
        freed.extend(mapping::map_locked(process, maps, map.desc, again)?.1);
    }
    Ok(target)
}

/// Moves the pages that are there of the old place, mapping by mapping of the kernel's.
fn move_pages(
    maps: &mut Mappings,
    map: &Mapping,
    request: &Move,
    target: usize,
) -> Result<(), Errno> {
    let (start, len) = (request.start, request.old.min(request.new));
    let mut parts = kernels_parts(start, start + len)?;
    parts.retain(|part| map.empty_at(part.0).is_none());
    let to = |from: usize| target + (from - start);
    for (done, &(from, end)) in parts.iter().enumerate() {
        // SAFETY: from one mapping of ours into another; the old place stays ours until it is
        // unmapped.
        let moved = unsafe { move_part(from, end, to(from), map.prot) };
        if moved.is_err() {
            for &(from, end) in &parts[..done] {
                // SAFETY: as above; what goes back finds its place reserved.
                unsafe { move_part(to(from), end - from + to(from), from, map.prot)? };
            }
            return moved;
        }
    }
    if let Some(mut now) = maps.find_mut(target) {
        for (from, end) in parts {
            now.note(to(from), to(end), false);
        }
    }
    Ok(())
}

/// Moves pages, and reserves the addresses where they were.
///
/// # Safety
///
/// Both ranges are ours.
unsafe fn move_part(from: usize, end: usize, to: usize, prot: c_int) -> Result<(), Errno> {
    let (len, paged) = (end - from, ddmap::Pagers::any());
    let protect = |at: usize, prot: MprotectFlags| {
        // SAFETY: as the caller says. Who touches it meanwhile waits until it is placed
        // (`page_faults::was_placed`).
        if paged { unsafe { rustix::mm::mprotect(at as *mut c_void, len, prot) } } else { Ok(()) }
    };
    let allowed = MprotectFlags::from_bits_retain(prot as u32);
    protect(from, MprotectFlags::empty())?;
    // SAFETY: the caller vouches for it. No store into the old place may be lost meanwhile.
    let moved = unsafe { kernel(from, len, len, MremapFlags::MAYMOVE | FIXED, to) };
    if moved.is_err() {
        protect(from, allowed)?;
    }
    moved?;
    ddmap::Pagers::moved(from, end, to)?;
    protect(to, allowed)?;
    // SAFETY: as above.
    unsafe { large::reserve_over(from, len) }
}
