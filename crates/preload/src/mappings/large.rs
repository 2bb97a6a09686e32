//! Mappings by pages of 2 MiB, where the region has no smaller ones (hugetlbfs, device-dax): which
//! parts the program has, and what happens when it gives up, protects or replaces a part of a page.
//!
//! Invariant: such a mapping consists of whole pages, each of which has a part of the program's
//! ([`Mapping::own`]). Locks: the structure lock, which the callers hold.

use std::ffi::{c_int, c_void};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use vfs::{Desc, Errno, Fill, Mapped, Piece};

use crate::entry::lock::Guard;
use crate::entry::maptable::{Mapping, Mappings, PAGE};
use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::mappings::mapping::{self, MapRequest, extend};

impl Mapping {
    /// Its pages that have something of `start..end`.
    pub fn rounded(&self, start: usize, end: usize) -> (usize, usize) {
        let (from, to) = (start / self.unit * self.unit, end.div_ceil(self.unit) * self.unit);
        (from.max(self.start), to.min(self.end))
    }

    /// Whether the program has something of the pages of `start..end` outside of that.
    pub fn shares(&self, start: usize, end: usize) -> bool {
        let (first, last) = self.rounded(start, end);
        self.own.iter().any(|&(from, to)| {
            from.max(first) < to.min(start).min(last) || from.max(end).max(first) < to.min(last)
        })
    }
}

impl Mappings {
    /// The program gives up `start..end`: gives the ranges that the kernel is to unmap and
    /// [`Mappings::cut`] to forget.
    pub fn leave(&mut self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let mut gone = Vec::new();
        let mut at = start;
        for mut map in self.within_mut(start, end).filter(|map| map.is_large()) {
            gone.push((at, map.start));
            at = map.end;
            let left =
                map.own.iter().flat_map(|&(from, to)| [(from, to.min(start)), (from.max(end), to)]);
            map.own = left.filter(|part| part.0 < part.1).collect();
            let (first, last) = map.rounded(start, end);
            for page in (first..last).step_by(map.unit) {
                if !map.own.iter().any(|part| part.0 < page + map.unit && page < part.1) {
                    gone.push((page, page + map.unit));
                }
            }
        }
        gone.push((at, end));
        gone.retain(|part| part.0 < part.1);
        gone
    }

    /// Whether a mapping by large pages has a part in `start..end`.
    pub fn has_large(&self, start: usize, end: usize) -> bool {
        self.within(start, end).any(Mapping::is_large)
    }

    /// Whether such a mapping would have pages in `start..end` after the program has left that.
    pub fn shares(&self, start: usize, end: usize) -> bool {
        self.within(start, end).any(|map| map.shares(start, end))
    }
}

/// What of a piece lies on whole pages of the region, and fits them.
pub fn whole(piece: &Piece, unit: u64) -> Option<Piece> {
    let place = piece.region_offset.unwrap_or(piece.file_offset);
    let from = piece.file_offset.next_multiple_of(unit);
    let to = (piece.file_offset + piece.length) / unit * unit;
    let fits = place % unit == piece.file_offset % unit && from < to;
    let region_offset = piece.region_offset.map(|place| place + (from - piece.file_offset));
    fits.then(|| Piece { file_offset: from, region_offset, length: to - from })
}

/// As [`mapping::reserve`], for a mapping by large pages, whole: `EINVAL` where those cannot be at
/// the addresses that the program names, or something else lies beside these.
pub fn reserve(request: &MapRequest, len: usize, unit: usize) -> Result<usize, Errno> {
    let lead = request.offset as usize % unit;
    let whole = (lead + len).checked_next_multiple_of(unit).ok_or(Errno::NOMEM)?;
    let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    if request.flags & fixed == 0 {
        let anywhere = MapRequest {
            at: std::ptr::null_mut(),
            offset: request.offset - lead as u64,
            ..*request
        };
        return Ok(mapping::reserve(&anywhere, whole)? + lead);
    }
    let start = request.at as usize;
    if start % unit != lead {
        return Err(Errno::INVAL);
    }
    let (first, end) = (start - lead, start + len);
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    let mut made = Vec::new();
    for (from, to) in [(first, start), (end, first + whole)] {
        if from >= to {
            continue;
        }
        let flags = flags | MapFlags::FIXED_NOREPLACE;
        // SAFETY: addresses that are not in use.
        let edge =
            unsafe { rustix::mm::mmap_anonymous(from as *mut c_void, to - from, none, flags) };
        if edge.is_err() {
            for (from, to) in made {
                // SAFETY: reserved here.
                unsafe { rustix::mm::munmap(from as *mut c_void, to - from)? };
            }
            return Err(Errno::INVAL);
        }
        made.push((from, to));
    }
    mapping::reserve(request, len)
}

/// Clears `start..end` of mappings by large pages, if there are any, before something else is
/// mapped there, and gives whether: if that fails, the addresses are to be unmapped. `EINVAL` if
/// the program would have something left of one of the pages.
pub fn vacate(
    maps: &mut Mappings,
    start: usize,
    end: usize,
    freed: &mut Vec<Desc>,
) -> Result<bool, Errno> {
    if !maps.has_large(start, end) {
        return Ok(false);
    }
    if maps.shares(start, end) {
        return Err(Errno::INVAL);
    }
    clear(maps, start, end, freed).map(|()| true)
}

/// Reserves addresses, whatever lies there.
///
/// # Safety
///
/// What lies there is not needed any more.
pub unsafe fn reserve_over(from: usize, len: usize) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller vouches for it.
    unsafe { rustix::mm::mmap_anonymous(from as *mut c_void, len, ProtFlags::empty(), flags)? };
    Ok(())
}

/// As [`unmap`], but the addresses stay taken until something is mapped over them: another thread's
/// `mmap` might get them.
pub fn clear(
    maps: &mut Mappings,
    start: usize,
    end: usize,
    freed: &mut Vec<Desc>,
) -> Result<(), Errno> {
    for (from, to) in maps.leave(start, end) {
        // SAFETY: as the program asked.
        unsafe { reserve_over(from, to - from)? };
        freed.extend(maps.cut(from, to));
        for (from, to) in [(from, to.min(start)), (from.max(end), to)] {
            if from < to {
                // SAFETY: of a page that reaches over the edge, where the program has nothing.
                unsafe { rustix::mm::munmap(from as *mut c_void, to - from)? };
            }
        }
    }
    Ok(())
}

/// Unmaps what the program has given up, ours and others'.
pub fn unmap(
    maps: &mut Mappings,
    start: usize,
    len: usize,
    freed: &mut Vec<Desc>,
) -> Result<(), Errno> {
    let end = start.checked_add(len).ok_or(Errno::INVAL)?;
    let gone = if maps.has_large(start, end) { maps.leave(start, end) } else { vec![(start, end)] };
    for (from, to) in gone {
        // SAFETY: as the program asked.
        unsafe { rustix::mm::munmap(from as *mut c_void, to - from)? };
        freed.extend(maps.cut(from, to));
    }
    Ok(())
}

/// `mprotect` where a mapping by large pages has a part, whose pages are protected as a whole; what
/// lies between goes to the kernel by itself.
pub fn protect(
    process: &Process,
    mut maps: Guard<'_, Mappings>,
    (start, end): (usize, usize),
    prot: c_int,
) -> Served<c_int> {
    if maps.within(start, end).any(|map| map.prot != prot && map.shares(start, end)) {
        return Err(Stop::Refused("protects-part-of-a-huge-page", Errno::INVAL));
    }
    let ours: Vec<_> = maps.within(start, end).map(|map| map.rounded(start, end)).collect();
    let others = maps.around(start, end);
    for &(from, to) in &ours {
        maps.split(from);
        maps.split(to);
        for mut map in maps.within_mut(from, to) {
            if prot & libc::PROT_WRITE != 0 && map.usage() == Mapped::Read {
                let whole = (map.offset, map.unit as u64);
                process.fs.map(map.desc, whole, Mapped::Write, Fill::None)?;
            }
            map.prot = prot;
        }
    }
    for (from, to) in ours.into_iter().chain(others) {
        let flags = MprotectFlags::from_bits_retain(prot as u32);
        // SAFETY: as the program asked.
        unsafe { rustix::mm::mprotect(from as *mut c_void, to - from, flags)? };
    }
    Ok(0)
}

/// Lets what the program has of a mapping by large pages reach further, in its last page or behind
/// it.
pub fn grow(
    process: &Process,
    maps: &mut Mappings,
    map: &Mapping,
    (end, to): (usize, usize),
) -> bool {
    if map.own.iter().any(|part| part.0 >= end) {
        return false;
    }
    let more = to.next_multiple_of(map.unit).saturating_sub(map.end);
    if more > 0 && extend(process, maps, map.end, more).is_err() {
        return false;
    }
    if let Some(mut last) = maps.find_mut(map.start)
        && let Some(part) = last.own.iter_mut().find(|part| part.1 == end)
    {
        part.1 = to;
    }
    true
}

/// Whether there can be any: without the lock.
pub fn possible(process: &Process) -> bool {
    process.fs.is_attached()
        && process.volumes().any(|seen| process.fs.can_map(seen.root.into()).0 > PAGE)
}

/// Whether a range lies in mappings by large pages.
pub fn covered(process: &Process, (start, end): (usize, usize)) -> bool {
    if !start.is_multiple_of(PAGE) || !possible(process) {
        return false;
    }
    let maps = process.lock();
    maps.has_large(start, end) && maps.around(start, end).is_empty()
}
