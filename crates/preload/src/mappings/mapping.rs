//! `mmap` of files on the volume: the region's own blocks, mapped piece by piece into one reserved
//! range. Stores go to the file itself, without a copy and without a page of page cache.
//!
//! A mapping holds the open file description until its last page is unmapped: an engine never moves
//! or frees blocks under it. Over holes, and beyond the end of its file, a mapping's pages are
//! those of an *empty* memory file. An access raises SIGBUS, whose handler maps the place
//! ([`crate::mappings::page_faults`]) or, beyond the end, hands the signal on: so a fault fills
//! holes, and growth by any process is seen. Private mappings do the same: a page shows what is
//! written to the file before its first access; without room for it, zeros.
//!
//! Addresses are congruent to places modulo 2 MiB where the kernel may choose them, so that whole
//! chunks are huge pages.
//!
//! A device can be mapped shared only, and device-dax (by default) and hugetlbfs only by pages of 2
//! MiB: there a private mapping is a copy, made at once. A shared one by such pages stands at
//! addresses congruent to the file's and is rounded out to whole pages ([`Mapping::own`]): a page
//! goes when the program has given up all of its parts, and is protected as a whole or not. A part
//! of the file that does not lie on whole chunks is empty; its first page fault makes it whole.
//!
//! All bookkeeping ([`crate::entry::maptable`]) stands under the structure lock, which is held
//! across the system calls, so that two threads that map and unmap the same range agree on the
//! result.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use os::interrupt::system_call;
use pmem::UserOut;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use vfs::{Changing, Desc, Errno, FileSystemExt, Fill, IoOffset, Kind, Node, Piece};

use crate::entry::fdtable;
use crate::entry::maptable::{Mapping, Mappings, PAGE};
use crate::entry::process::Process;
use crate::mappings::large;
use crate::paths::flags;

/// A huge page.
const HUGE: usize = 2 << 20;
/// A mapping of more pieces, also after its file was rewritten, is `ENOMEM`: more would exhaust a
/// process's mappings (`vm.max_map_count` is 65,530).
const PIECES_MAX: usize = 4096;
/// Of files up to so many bytes, pages stay on the host (`ddmap`) while they are mapped shared.
const LOCKS_BYTES_MAX: u64 = 1 << 20;

/// Drops the holds of descriptions that neither a mapping nor a number needs. Structure lock held.
pub fn release(process: &Process, mut freed: Vec<Desc>) {
    freed.sort_unstable();
    // Once each: another thread's file may get the description's place in the table.
    freed.dedup();
    for desc in freed {
        if !fdtable::holds(desc) {
            // An unmap cannot fail for this; the engine has forgotten the description already.
            let _ = process.fs.close(desc);
        }
    }
}

const fn round_up(bytes: u64, unit: usize) -> u64 {
    bytes.div_ceil(unit as u64) * unit as u64
}

/// A page of this library's own: its address never was one of the program's.
#[repr(align(4096))]
struct Page(UnsafeCell<[u8; PAGE]>);
// SAFETY: its bytes are not used.
unsafe impl Sync for Page {}
static SEED: Page = Page(UnsafeCell::new([0; PAGE]));

/// A page of an empty memory file, mapped shared: the source of all empty pages.
fn seed() -> Result<*mut c_void, Errno> {
    static MADE: OnceLock<()> = OnceLock::new();
    let at = SEED.0.get().cast();
    if MADE.get().is_none() {
        let file = rustix::fs::memfd_create("solera-beyond", MemfdFlags::CLOEXEC)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a page that holds nothing.
        unsafe { rustix::mm::mmap(at, PAGE, prot, MapFlags::SHARED | MapFlags::FIXED, &file, 0)? };
        let _ = MADE.set(());
    }
    Ok(at)
}

/// Takes the pages of `from..to` away: from here on an access raises SIGBUS.
pub fn make_empty(map: &mut Mapping, from: usize, to: usize) -> Result<(), Errno> {
    if from >= to {
        return Ok(());
    }
    let (at, len, flags) = (from as *mut c_void, to - from, MremapFlags::MAYMOVE);
    // SAFETY: inside the range of this mapping. A length of 0 makes a second mapping of what is
    // shared.
    unsafe {
        rustix::mm::mremap_fixed(seed()?, 0, len, flags, at)?;
        rustix::mm::mprotect(at, len, MprotectFlags::from_bits_retain(map.prot as u32))?;
    }
    ddmap::Pagers::unmap(from, to);
    map.note(from, to, true);
    Ok(())
}

/// Maps pieces of the region where they belong. A piece without a place changes nothing, unless it
/// never gets one: then a private mapping shows zeros. `is_new`: the engine has just filled them.
pub fn place(
    process: &Process,
    map: &mut Mapping,
    pieces: &[Piece],
    (populate, is_new): (bool, bool),
) -> Result<(), Errno> {
    let region = fdtable::borrow(process.fs.region_descriptor(map.desc.into()).0);
    let kind = if map.shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let more = if populate { MapFlags::POPULATE } else { MapFlags::empty() };
    let (prot, flags) =
        (ProtFlags::from_bits_retain(map.prot as u32), kind | MapFlags::FIXED | more);
    let paged = ddmap::Pagers::any();
    for piece in pieces {
        let Some(piece) = large::whole(piece, map.unit as u64) else { continue };
        let from = map.start + (piece.file_offset - map.offset) as usize;
        let (at, len) = (from as *mut c_void, piece.length as usize);
        if let (true, Some(place), HUGE, true) =
            (is_new, piece.region_offset, len, map.shared && from.is_multiple_of(HUGE))
            && !map.is_large()
            && !paged
            && place.is_multiple_of(HUGE as u64)
            && move_chunk(process, map, from, place).is_ok()
        {
            map.note(from, from + len, false);
            continue;
        }
        if let Some(place) = piece.region_offset.filter(|_| paged) {
            place_paged(process, map, (from, len), place)?;
            map.note(from, from + len, false);
            continue;
        }
        // SAFETY: inside the range of this mapping.
        unsafe {
            match piece.region_offset {
                Some(place) => rustix::mm::mmap(at, len, prot, flags, region, place)?,
                None if map.shared || !is_new && comes_later(process, map.desc) => continue,
                None => rustix::mm::mmap_anonymous(at, len, prot, flags)?,
            };
        }
        map.note(from, from + len, false);
        if piece.region_offset.is_some() && !comes_later(process, map.desc) {
            copy_tail(process, map, &piece)?;
        }
    }
    Ok(())
}

/// As [`place`], of a region whose pages may be elsewhere: the kernel would show zeros for them. So
/// nobody may touch the piece before the pager has it: a thread that does has a fault, and waits
/// until this is done ([`crate::mappings::page_faults::was_placed`]).
fn place_paged(
    process: &Process,
    map: &Mapping,
    (from, len): (usize, usize),
    place: u64,
) -> Result<(), Errno> {
    let region = fdtable::borrow(process.fs.region_descriptor(map.desc.into()).0);
    let kind = if map.shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let at = from as *mut c_void;
    // SAFETY: inside the range of this mapping.
    unsafe {
        rustix::mm::mmap(at, len, ProtFlags::empty(), kind | MapFlags::FIXED, region, place)?;
    }
    register(process, map, (from, len), place)?;
    // SAFETY: as above.
    unsafe { rustix::mm::mprotect(at, len, MprotectFlags::from_bits_retain(map.prot as u32)) }
}

/// Tells the region's pager of a piece, of which no page was touched yet in this process.
fn register(
    process: &Process,
    map: &Mapping,
    (from, len): (usize, usize),
    place: u64,
) -> Result<(), Errno> {
    let (start, page) = (from, place / PAGE as u64);
    let (pages, shared) = ((len / PAGE) as u64, map.shared);
    // Processes may have locks there, at which the kernel looks: it brings no page.
    let stays = shared && map.may_write && process.fs.attributes(map.node)?.size <= LOCKS_BYTES_MAX;
    let writes = shared && map.prot & libc::PROT_WRITE != 0;
    let piece = ddmap::PagedMapping { start, page, pages, shared, stays, writes };
    ddmap::Pagers::map(process.fs.region_address(map.desc.into()), piece)
}

/// In a forked child, before anything else is mapped: the addresses of what it did not inherit are
/// kept for it. Allocates nothing.
pub fn keep_paged(maps: &Mappings) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    for map in maps.within(0, usize::MAX).filter(|map| map.shared) {
        let mut from = map.start;
        for (start, end) in map.empty.iter().copied().chain([(map.end, map.end)]) {
            if from < start {
                // SAFETY: addresses that nothing has.
                unsafe {
                    let none = ProtFlags::empty();
                    rustix::mm::mmap_anonymous(from as *mut c_void, start - from, none, flags)?;
                }
            }
            from = end;
        }
    }
    Ok(())
}

/// In a forked child: what it did not inherit of mappings of a region with a pager is mapped anew.
/// What it did (private ones, with their pages) the pager has found when it has settled.
pub fn renew_paged(process: &Process) -> Result<(), Errno> {
    ddmap::Pagers::settle_child()?;
    let mut maps = process.lock();
    let shared = maps.within(0, usize::MAX).filter(|map| map.shared);
    for start in shared.map(|map| map.start).collect::<Vec<_>>() {
        let Some(mut map) = maps.find_mut(start) else { continue };
        back(process, &mut map, start, false)?;
    }
    Ok(())
}

/// The pages that a mapping is made of: where those of the region are larger, and it is no copy,
/// they are.
fn unit(process: &Process, desc: Desc, shared: bool) -> usize {
    let whole = shared && may_change(process, desc);
    if whole { process.fs.can_map(desc.into()).0.max(PAGE) } else { PAGE }
}

/// Whether a mapping has copies of the pages, made at once.
pub fn is_copied(process: &Process, map: &Mapping) -> bool {
    let (unit, privately) = process.fs.can_map(map.desc.into());
    if map.shared { unit != map.unit } else { !privately }
}

/// Whether what is a hole now may have a page later.
fn comes_later(process: &Process, desc: Desc) -> bool {
    process.fs.region_descriptor(desc.into()).1 != Changing::Nowhere
}

/// Whether this process may store into the file.
fn may_change(process: &Process, desc: Desc) -> bool {
    process.fs.region_descriptor(desc.into()).1 == Changing::Here
}

/// Where nobody changes a volume, what lies behind a file's end in its last page cannot be made
/// zeros there: the page is copied.
fn copy_tail(process: &Process, map: &mut Mapping, piece: &Piece) -> Result<(), Errno> {
    let size = process.fs.attributes(map.node)?.size;
    let tail = size - size % PAGE as u64;
    if tail == size || !(piece.file_offset..piece.file_offset + piece.length).contains(&tail) {
        return Ok(());
    }
    let from = map.start + (tail - map.offset) as usize;
    copy_in(process, map, from, from + PAGE)
}

/// A reserved range of addresses, for one use at a time: structure lock held.
fn scratch() -> Result<usize, Errno> {
    static SCRATCH: OnceLock<usize> = OnceLock::new();
    if let Some(&scratch) = SCRATCH.get() {
        return Ok(scratch);
    }
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: new addresses.
    let made = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * HUGE, none, flags)? };
    Ok(*SCRATCH.get_or_init(|| (made as usize).next_multiple_of(HUGE)))
}

/// Maps one whole chunk of the region by moving the engine's page-table entries
/// (`MREMAP_DONTUNMAP`): the engine has just zeroed the chunk, so the program has no fault of its
/// own. They go by a third place, where they lose the engine's key: no thread may meet it at `to`.
fn move_chunk(process: &Process, map: &Mapping, to: usize, place: u64) -> Result<(), Errno> {
    let own = process.fs.region_address(map.desc.into());
    if own == 0 {
        return Err(Errno::NOSYS);
    }
    let (from, between, to) =
        ((own + place as usize) as *mut c_void, scratch()? as *mut c_void, to as *mut c_void);
    let moves = MremapFlags::MAYMOVE;
    // SAFETY: the engine's mapping stays, without entries; the others are ours.
    unsafe {
        rustix::mm::mremap_fixed(from, HUGE, HUGE, moves | MremapFlags::DONTUNMAP, between)?;
        let key = if pmem::key::available().is_ok() { 0 } else { usize::MAX };
        let arguments = [between as usize, HUGE, map.prot as usize, key, 0, 0];
        let freed = system_call(libc::SYS_pkey_mprotect, arguments)
            // The place stays taken until it is mapped over: another thread's `mmap` might get it.
            .and_then(|_| {
                rustix::mm::mremap_fixed(between, HUGE, HUGE, moves | MremapFlags::DONTUNMAP, to)
            });
        let none = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED);
        rustix::mm::mmap_anonymous(between, HUGE, none.0, none.1)?;
        freed.map(drop)
    }
}

/// Gives `map` its pages between `from` (an address) and its end. `populate`: now, holes too.
fn back(process: &Process, map: &mut Mapping, from: usize, populate: bool) -> Result<(), Errno> {
    let first = map.offset_of(from);
    let size = round_up(process.fs.attributes(map.node)?.size, map.unit);
    let last = size.clamp(first, map.offset_of(map.end));
    let inside = from + (last - first) as usize;
    if is_copied(process, map) {
        make_empty(map, inside, map.end)?;
        return copy_in(process, map, from, inside);
    }
    let length = last - first;
    let mut pieces = Vec::new();
    if length > 0 {
        let filled = populate
            .then(|| process.fs.map(map.desc, (first, length), map.usage(), Fill::All))
            // Populating is only a hint.
            .filter(|filled| *filled != Err(Errno::NOSPC));
        pieces = match filled {
            Some(pieces) => pieces?,
            None => process.fs.map(map.desc, (first, length), map.usage(), Fill::None)?,
        };
    }
    if pieces.len() > PIECES_MAX {
        return Err(Errno::NOMEM);
    }
    let later = map.shared || comes_later(process, map.desc);
    if map.is_large() || later && pieces.iter().any(|piece| piece.region_offset.is_none()) {
        make_empty(map, from, map.end)?;
    } else {
        make_empty(map, inside, map.end)?;
    }
    place(process, map, &pieces, (populate, false))
}

/// Fills `from..to` of a private mapping with copies, where the region cannot be mapped so.
pub fn copy_in(process: &Process, map: &mut Mapping, from: usize, to: usize) -> Result<(), Errno> {
    if from >= to {
        return Ok(());
    }
    let (none, len) = (std::ptr::null_mut(), to - from);
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // At another place, so that no thread sees it half filled.
    // SAFETY: a new mapping.
    let copy = unsafe { rustix::mm::mmap_anonymous(none, len, prot, MapFlags::PRIVATE)? };
    let moved = read_into(process, map, (copy as usize, len), from).and_then(|()| {
        let prot = MprotectFlags::from_bits_retain(map.prot as u32);
        // SAFETY: the memory that was mapped above, and the range of this mapping.
        unsafe {
            rustix::mm::mprotect(copy, len, prot)?;
            rustix::mm::mremap_fixed(copy, len, len, MremapFlags::MAYMOVE, from as *mut c_void)
        }
    });
    if moved.is_err() {
        // SAFETY: as above; it is still there.
        let _ = unsafe { rustix::mm::munmap(copy, len) };
    }
    moved?;
    map.note(from, to, false);
    Ok(())
}

/// Reads into `len` bytes of our own at `to` what the file has for the address `from`.
fn read_into(
    process: &Process,
    map: &Mapping,
    (to, len): (usize, usize),
    from: usize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        // SAFETY: memory that the caller has just mapped.
        let sink = unsafe { UserOut::from_raw((to + done) as *mut u8, len - done) };
        match process.fs.read(
            map.desc,
            &mut [sink],
            IoOffset::offset(map.offset_of(from + done)),
        )? {
            0 => break,
            read => done += read,
        }
    }
    Ok(())
}

/// The arguments of `mmap` without the descriptor.
#[derive(Clone, Copy)]
pub struct MapRequest {
    pub at: *mut c_void,
    pub len: usize,
    pub prot: c_int,
    pub flags: c_int,
    pub offset: u64,
}

/// Reserves addresses for a mapping: those that the program names, or such that whole chunks of the
/// file can be huge pages.
pub fn reserve(request: &MapRequest, len: usize) -> Result<usize, Errno> {
    let keep = MapFlags::from_bits_retain(
        request.flags as u32 & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u32,
    );
    let (flags, none) = (MapFlags::PRIVATE | MapFlags::NORESERVE | keep, ProtFlags::empty());
    let ahead = if request.at.is_null() && keep.is_empty() && len >= HUGE { HUGE } else { 0 };
    let whole = len.checked_add(ahead).ok_or(Errno::NOMEM)?;
    // SAFETY: new addresses, or those that the program told to replace.
    let start = unsafe { rustix::mm::mmap_anonymous(request.at, whole, none, flags)? } as usize;
    if ahead == 0 {
        return Ok(start);
    }
    let lead = (request.offset as usize).wrapping_sub(start) % HUGE;
    let chosen = start + lead;
    for (from, to) in [(start, chosen), (chosen + len, start + whole)] {
        if from < to {
            // SAFETY: what was reserved above and is not needed.
            unsafe { rustix::mm::munmap(from as *mut c_void, to - from)? };
        }
    }
    Ok(chosen)
}

/// Whether a mapping may promise that what it shows is durable once its lines are flushed.
fn check_durable(process: &Process, desc: Desc) -> Result<(), Errno> {
    let region = fdtable::borrow(process.fs.region_descriptor(desc.into()).0);
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    let (none, prot) = (std::ptr::null_mut(), ProtFlags::READ);
    // SAFETY: a new mapping, which goes at once.
    unsafe {
        let len = process.fs.can_map(desc.into()).0.max(PAGE);
        let probe =
            rustix::mm::mmap(none, len, prot, flags, region, 0).map_err(|_| Errno::OPNOTSUPP)?;
        rustix::mm::munmap(probe, len)
    }
}

/// Maps a part of an open file.
pub fn map_file(process: &Process, desc: Desc, request: MapRequest) -> Result<usize, Errno> {
    let mut maps = process.lock();
    let (start, mut replaced) = map_locked(process, &mut maps, desc, request)?;
    replaced.retain(|desc| !maps.holds(*desc));
    release(process, replaced);
    Ok(start)
}

/// As [`map_file`], with the structure lock held; gives the descriptions, too, that what was
/// replaced held.
pub fn map_locked(
    process: &Process,
    maps: &mut Mappings,
    desc: Desc,
    request: MapRequest,
) -> Result<(usize, Vec<Desc>), Errno> {
    let (node, opened) = process.fs.describe(desc)?;
    if opened.path_only() {
        return Err(Errno::BADF);
    }
    let attr = process.fs.attributes(node)?;
    let shared =
        matches!(request.flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if !shared && request.flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Err(Errno::INVAL);
    }
    if request.len == 0 || !request.offset.is_multiple_of(PAGE as u64) {
        return Err(Errno::INVAL);
    }
    flags::check_map(request.flags)?;
    let writes = opened.reads() && opened.writes() && may_change(process, desc);
    if !opened.reads() || shared && request.prot & libc::PROT_WRITE != 0 && !writes {
        return Err(Errno::ACCESS);
    }
    if attr.kind != Kind::File {
        return Err(Errno::NODEV);
    }
    let len = request.len.checked_add(PAGE - 1).ok_or(Errno::NOMEM)? / PAGE * PAGE;
    if request.offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::OVERFLOW);
    }
    if request.flags & libc::MAP_TYPE == libc::MAP_SHARED_VALIDATE
        && request.flags & libc::MAP_SYNC != 0
    {
        check_durable(process, desc)?;
    }
    let unit = unit(process, desc, shared);
    let (start, mut replaced) = reserve_for(process, maps, &request, len, unit)?;
    let (first, end) = (start / unit * unit, (start + len).next_multiple_of(unit));
    replaced.extend(maps.cut(first, end));
    let mut map = Mapping {
        start: first,
        end,
        desc,
        node,
        offset: request.offset - (start - first) as u64,
        prot: request.prot,
        shared,
        may_write: writes || !shared,
        empty: Vec::new(),
        zeros: false,
        unit,
        own: if unit == PAGE { Vec::new() } else { vec![(start, start + len)] },
    };
    let populate = request.flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0;
    if let Err(errno) = back(process, &mut map, first, populate) {
        // SAFETY: the range that was reserved above.
        unsafe { rustix::mm::munmap(first as *mut c_void, end - first)? };
        release(process, replaced);
        return Err(errno);
    }
    maps.add(map);
    Ok((start, replaced))
}

/// Reserves addresses for a mapping by pages of `unit`; gives the descriptions, too, that what was
/// replaced held.
fn reserve_for(
    process: &Process,
    maps: &mut Mappings,
    request: &MapRequest,
    len: usize,
    unit: usize,
) -> Result<(usize, Vec<Desc>), Errno> {
    let (at, mut replaced, mut vacated) = (request.at as usize, Vec::new(), false);
    if request.flags & libc::MAP_FIXED != 0 {
        if at % unit != request.offset as usize % unit {
            return Err(Errno::INVAL);
        }
        vacated = large::vacate(maps, at, at.saturating_add(len), &mut replaced)?;
    }
    let made =
        if unit == PAGE { reserve(request, len) } else { large::reserve(request, len, unit) };
    match made {
        Ok(start) => Ok((start, replaced)),
        Err(errno) => {
            if vacated {
                large::unmap(maps, at, len, &mut replaced)?;
            }
            release(process, replaced);
            Err(errno)
        }
    }
}

/// Lets the mapping that ends at `end` reach `more` bytes further, if nothing stands there.
pub fn extend(
    process: &Process,
    maps: &mut Mappings,
    end: usize,
    more: usize,
) -> Result<(), Errno> {
    let found = maps.find(end.wrapping_sub(1)).filter(|map| map.end == end);
    let Some(mut map) = found.cloned() else { return Err(Errno::FAULT) };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: addresses that are not in use.
    unsafe { rustix::mm::mmap_anonymous(end as *mut c_void, more, ProtFlags::empty(), flags)? };
    release(process, maps.cut(end, end + more));
    map.end += more;
    if let Err(errno) = back(process, &mut map, end, false) {
        // SAFETY: what was reserved above.
        unsafe { rustix::mm::munmap(end as *mut c_void, more)? };
        return Err(errno);
    }
    maps.replace(map);
    Ok(())
}

/// The file's size has changed: mappings of this process lose the pages beyond the end.
pub fn resized(process: &Process, node: Node) -> Result<(), Errno> {
    let mut maps = process.lock();
    if maps.of_file(node, 0).next().is_none() {
        return Ok(());
    }
    let size = process.fs.attributes(node)?.size;
    for start in maps.of_file(node, size).collect::<Vec<_>>() {
        let Some(mut map) = maps.find_mut(start) else { continue };
        let size = round_up(size, map.unit);
        let inside = size.saturating_sub(map.offset);
        let last = map.end.min(map.start.saturating_add(inside as usize));
        if map.empty_at(last).is_none_or(|part| part.1 < map.end) {
            let end = map.end;
            make_empty(&mut map, last, end)?;
        }
    }
    Ok(())
}
