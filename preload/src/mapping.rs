//! `mmap` of files on the volume: the region's own blocks, mapped piece by piece into one reserved
//! range. Stores go to the file itself, without a copy and without a page of page cache.
//!
//! A mapping holds the open file description until its last page is unmapped: an engine never moves
//! or frees blocks under it. Pages beyond the end of the file stay inaccessible until the file has
//! grown over them in this process ([`Process::resized`]).
//!
//! A device can be mapped shared only, and device-dax (by default) and hugetlbfs only by large pages: there
//! a private mapping is a copy, made at once, and a shared one that cannot be made is refused.
//!
//! All bookkeeping stands under the structure lock, which is held across the system calls, so that
//! two threads that map and unmap the same range agree on the result.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use pmem::UserOut;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use vfs::{Desc, Errno, Kind, Mapped, Node};

use crate::entry::{Served, Stop, interpose};
use crate::fdtable;
use crate::process::Process;

const PAGE: usize = 4096;
/// More pieces than this exhaust a process's mappings (`vm.max_map_count` is 65,530).
const PIECES_MAX: usize = 4096;

/// One mapped range.
#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    end: usize,
    desc: Desc,
    node: Node,
    /// Offset in the file of `start`.
    offset: u64,
    prot: c_int,
    shared: bool,
    /// `PROT_WRITE` may be asked for later.
    may_write: bool,
    /// End of the part that has pages; the rest lies beyond the end of the file.
    backed: usize,
}

impl Mapping {
    /// What the engine must know of it.
    const fn usage(&self) -> Mapped {
        match (self.shared, self.prot & libc::PROT_WRITE) {
            (false, _) => Mapped::Private,
            (true, 0) => Mapped::Read,
            (true, _) => Mapped::Write,
        }
    }
}

/// The mappings of this process.
#[derive(Default)]
pub struct Mappings(Vec<Mapping>);

/// How many mappings there are: without any, nothing here takes a lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many mappings reach beyond the end of their file: without any, no growth matters.
static SHORT: AtomicUsize = AtomicUsize::new(0);

impl Mappings {
    /// Says to those who do not take the lock how many there are.
    fn publish(&self) {
        let short = self.0.iter().filter(|map| map.backed < map.end).count();
        SHORT.store(short, Ordering::Release);
        COUNT.store(self.0.len(), Ordering::Release);
    }

    /// Whether some mapping needs `desc`.
    pub fn holds(&self, desc: Desc) -> bool {
        self.0.iter().any(|map| map.desc == desc)
    }

    /// The descriptions that mappings hold.
    pub fn descriptions(&self) -> impl Iterator<Item = Desc> {
        self.0.iter().map(|map| map.desc)
    }

    fn add(&mut self, map: Mapping) {
        self.0.push(map);
        self.publish();
    }

    /// Forgets `start..end`. Gives the descriptions that no mapping needs any more.
    fn cut(&mut self, start: usize, end: usize) -> Vec<Desc> {
        let mut freed = Vec::new();
        let mut kept = Vec::with_capacity(self.0.len() + 1);
        for map in &self.0 {
            if map.end <= start || end <= map.start {
                kept.push(*map);
                continue;
            }
            freed.push(map.desc);
            if map.start < start {
                kept.push(Mapping { end: start, backed: map.backed.min(start), ..*map });
            }
            if end < map.end {
                let offset = map.offset + (end - map.start) as u64;
                kept.push(Mapping { start: end, backed: map.backed.max(end), offset, ..*map });
            }
        }
        self.0 = kept;
        self.publish();
        freed.retain(|desc| !self.holds(*desc));
        freed
    }

    /// What is mapped at an address: description and offset in the file.
    pub fn at(&self, address: usize) -> Option<(Desc, u64)> {
        let map = self.0.iter().find(|map| (map.start..map.end).contains(&address))?;
        Some((map.desc, map.offset + (address - map.start) as u64))
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some mapping lies in `start..end`.
    pub fn touches(&self, start: usize, end: usize) -> bool {
        self.0.iter().any(|map| start < map.end && map.start < end)
    }
}

/// Drops the holds of descriptions that neither a mapping nor a number needs. Structure lock held.
fn release(process: &Process, freed: Vec<Desc>) {
    for desc in freed {
        if !fdtable::holds(desc) {
            // An unmap cannot fail for this; the engine has forgotten the description already.
            let _ = process.fs.close(desc);
        }
    }
}

const fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE as u64) * PAGE as u64
}

/// Maps the part of `map` between `from` (an address) and the end of the file.
fn back(process: &Process, map: &mut Mapping, from: usize) -> Result<(), Errno> {
    let size = round_up(process.fs.attr(map.node)?.size);
    let first = map.offset + (from - map.start) as u64;
    let last = size.min(map.offset + (map.end - map.start) as u64);
    if last <= first {
        return Ok(());
    }
    if !map.shared && !process.fs.can_map().1 {
        return copy_in(process, map, from, (first, last));
    }
    let wanted = |usage| process.fs.map(map.desc, first, last - first, usage);
    let pieces = match wanted(map.usage()) {
        // The volume has no room for the holes: they are shown as the zeros that they are, and stay
        // so here. Nothing may be stored there.
        Err(Errno::NOSPC) if map.usage() == Mapped::Read => {
            let pieces = wanted(Mapped::Private)?;
            map.may_write = false;
            pieces
        }
        pieces => pieces?,
    };
    if pieces.len() > PIECES_MAX {
        return Err(Errno::NOMEM);
    }
    let region = fdtable::borrow(process.fs.region_descriptor().0);
    let kind = if map.shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let prot = ProtFlags::from_bits_retain(map.prot as u32);
    for piece in pieces {
        let at = (map.start as u64 + (piece.file_offset - map.offset)) as *mut c_void;
        let len = piece.length as usize;
        // SAFETY: inside the range that was reserved for this mapping.
        unsafe {
            match piece.region_offset {
                Some(place) => {
                    rustix::mm::mmap(at, len, prot, kind | MapFlags::FIXED, region, place)?
                }
                None => rustix::mm::mmap_anonymous(at, len, prot, kind | MapFlags::FIXED)?,
            };
        }
    }
    map.backed = map.start + (last - map.offset) as usize;
    Ok(())
}

/// As [`back`], of a private mapping, where the region cannot be mapped so: the bytes of `first..last` of
/// the file are copied.
fn copy_in(
    process: &Process,
    map: &mut Mapping,
    from: usize,
    (first, last): (u64, u64),
) -> Result<(), Errno> {
    let (at, len) = (from as *mut c_void, (last - first) as usize);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: inside the range that was reserved for this mapping.
    unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    let mut done = 0;
    while done < len {
        // SAFETY: the memory that was mapped above.
        let to = unsafe { UserOut::from_raw((from + done) as *mut u8, len - done) };
        match process.fs.read_at(map.desc, first + done as u64, &mut [to])? {
            0 => break,
            read => done += read,
        }
    }
    let prot = rustix::mm::MprotectFlags::from_bits_retain(map.prot as u32);
    // SAFETY: the same memory.
    unsafe { rustix::mm::mprotect(at, len, prot)? };
    map.backed = from + len;
    Ok(())
}

/// Shared mappings need a region that can be mapped by pages.
fn check_shared(process: &Process, flags: c_int) -> Result<(), Stop> {
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE && !process.fs.can_map().0 {
        return Err(Stop::Refused("shared-mapping-on-huge-pages", Errno::NODEV));
    }
    Ok(())
}

/// The arguments of `mmap` without the descriptor.
#[derive(Clone, Copy)]
struct Wish {
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: u64,
}

fn map_file(process: &Process, desc: Desc, wish: Wish) -> Result<usize, Errno> {
    let (node, flags) = process.fs.describe(desc)?;
    let attr = process.fs.attr(node)?;
    let shared =
        matches!(wish.flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if !shared && wish.flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Err(Errno::INVAL);
    }
    if wish.len == 0 || !wish.offset.is_multiple_of(PAGE as u64) {
        return Err(Errno::INVAL);
    }
    if attr.kind != Kind::File {
        return Err(Errno::NODEV);
    }
    let writes = flags.reads() && flags.writes() && process.fs.region_descriptor().1;
    if !flags.reads() || shared && wish.prot & libc::PROT_WRITE != 0 && !writes {
        return Err(Errno::ACCESS);
    }
    let len = wish.len.checked_add(PAGE - 1).ok_or(Errno::NOMEM)? / PAGE * PAGE;
    if wish.offset.checked_add(len as u64).is_none() {
        return Err(Errno::OVERFLOW);
    }
    let mut maps = process.lock();
    let keep = MapFlags::from_bits_retain(
        wish.flags as u32 & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u32,
    );
    let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE | keep;
    // SAFETY: new addresses, or those that the program told to replace.
    let start = unsafe { rustix::mm::mmap_anonymous(wish.at, len, ProtFlags::empty(), reserve)? };
    let start = start as usize;
    let replaced = maps.cut(start, start + len);
    let (prot, offset, may_write) = (wish.prot, wish.offset, writes || !shared);
    let mut map = Mapping {
        start,
        end: start + len,
        desc,
        node,
        offset,
        prot,
        shared,
        may_write,
        backed: start,
    };
    if let Err(errno) = back(process, &mut map, start) {
        // SAFETY: the range that was reserved above.
        unsafe { rustix::mm::munmap(start as *mut c_void, len)? };
        release(process, replaced);
        return Err(errno);
    }
    maps.add(map);
    release(process, replaced);
    Ok(start)
}

impl Process {
    /// The file's size has changed: mappings of this process get the pages they lacked, and lose
    /// those beyond the end.
    pub fn resized(&self, node: Node) -> Result<(), Errno> {
        if COUNT.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut maps = self.lock();
        for map in maps.0.iter_mut().filter(|map| map.node == node) {
            let from = map.backed;
            let inside = round_up(self.fs.attr(node)?.size).saturating_sub(map.offset);
            let last = map.end.min(map.start.saturating_add(inside as usize));
            if last >= from {
                back(self, map, from)?;
                continue;
            }
            let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            let none = ProtFlags::empty();
            // SAFETY: inside this mapping, whose pages there the kernel would take away as well.
            unsafe { rustix::mm::mmap_anonymous(last as *mut c_void, from - last, none, reserve)? };
            map.backed = last;
        }
        maps.publish();
        Ok(())
    }

    /// As [`Process::resized`], after bytes were written through `desc`.
    #[inline]
    pub fn wrote(&self, desc: Desc) -> Result<(), Errno> {
        if SHORT.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.resized_by(desc)
    }

    /// As [`Process::resized`], of the file behind `desc`.
    pub fn resized_by(&self, desc: Desc) -> Result<(), Errno> {
        self.resized(self.fs.describe(desc)?.0)
    }
}

/// The kernel unmaps or replaces `start..start + len` by `call`: what was mapped of ours there
/// goes.
fn replace<T>(
    process: &Process,
    start: usize,
    len: usize,
    call: impl FnOnce() -> T,
    failed: impl Fn(&T) -> bool,
) -> Served<T> {
    let end = start.saturating_add(len).saturating_add(PAGE - 1) / PAGE * PAGE;
    let mut maps = process.lock();
    if !maps.touches(start, end) {
        return Err(Stop::Kernel);
    }
    let value = call();
    if !failed(&value) {
        let freed = maps.cut(start, end);
        release(process, freed);
    }
    Ok(value)
}

fn any() -> Result<(), Stop> {
    if COUNT.load(Ordering::Acquire) == 0 { Err(Stop::Kernel) } else { Ok(()) }
}

// `isize` stands for the address: -1 is MAP_FAILED.
interpose! {
    fn [mmap, mmap64, __mmap](
        at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64,
    ) -> isize = |process, kernel| {
        if flags & libc::MAP_ANONYMOUS == 0 && let Some(desc) = fdtable::get(fd) {
            let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
            check_shared(process, flags)?;
            return Ok(map_file(process, desc, Wish { at, len, prot, flags, offset })? as isize);
        }
        if flags & libc::MAP_FIXED == 0 {
            return Err(Stop::Kernel);
        }
        any()?;
        let call = || kernel(at, len, prot, flags, fd, offset);
        replace(process, at as usize, len, call, |&address| address == -1)
    }
    fn [munmap, __munmap](at: *mut c_void, len: usize) -> c_int = |process, kernel| {
        any()?;
        replace(process, at as usize, len, || kernel(at, len), |&result| result != 0)
    }
    fn [mremap](at: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> isize
    = |process, _| {
        any()?;
        remap(process, at as usize, (old, new), flags, to)
    }
    fn [mprotect, __mprotect](at: *mut c_void, len: usize, prot: c_int) -> c_int
    = |process, kernel| {
        any()?;
        let (start, end) = (at as usize, (at as usize).saturating_add(len));
        let mut maps = process.lock();
        if !maps.touches(start, end) {
            return Err(Stop::Kernel);
        }
        let hit = |map: &&mut Mapping| start < map.end && map.start < end;
        if prot & libc::PROT_WRITE != 0
            && maps.0.iter_mut().filter(hit).any(|map| map.shared && !map.may_write)
        {
            return Err(Stop::Errno(Errno::ACCESS));
        }
        for map in maps.0.iter_mut().filter(hit) {
            if prot & libc::PROT_WRITE != 0 && map.usage() == Mapped::Read {
                // From here on a sync must make durable what is stored there.
                process.fs.map(map.desc, map.offset, PAGE as u64, Mapped::Write)?;
            }
        }
        // What lies beyond the end of the file stays inaccessible; the rest changes.
        let backed = maps.0.iter().filter(|map| start < map.end && map.start < end)
            .map(|map| map.backed).max().unwrap_or(end).min(end);
        let result = if backed > start { kernel(at, backed - start, prot) } else { 0 };
        if result == 0 {
            for map in maps.0.iter_mut().filter(hit) {
                if start <= map.start && map.end <= end {
                    map.prot = prot;
                }
            }
        }
        Ok(result)
    }
    fn [msync](at: *mut c_void, len: usize, flags: c_int) -> c_int = |process, _| {
        let _ = flags;
        any()?;
        let (start, end) = (at as usize, (at as usize).saturating_add(len.max(1)));
        let maps = process.lock();
        let hit = maps.0.iter().filter(|map| map.shared && start < map.end && map.start < end);
        let part = |map: &Mapping| {
            let (from, to) = (start.max(map.start), end.min(map.end));
            (map.desc, map.offset + (from - map.start) as u64, (to - from) as u64)
        };
        let parts: Vec<(Desc, u64, u64)> = hit.map(part).collect();
        drop(maps);
        if parts.is_empty() {
            return Err(Stop::Kernel);
        }
        for (desc, offset, length) in parts {
            process.fs.sync_mapped(desc, offset, length)?;
        }
        Ok(0)
    }
    fn [madvise, __madvise](at: *mut c_void, len: usize, advice: c_int) -> c_int
    = |process, _| {
        if advice != libc::MADV_REMOVE {
            return Err(Stop::Kernel);
        }
        any()?;
        let start = at as usize;
        if process.lock().touches(start, start.saturating_add(len)) {
            // It would punch the region, not the file.
            return Err(Stop::Refused("madvise-remove", Errno::OPNOTSUPP));
        }
        Err(Stop::Kernel)
    }
}

/// `mremap` of one of ours: shrinks by unmapping, grows by mapping more of the file.
fn remap(
    process: &Process,
    start: usize,
    (old, new): (usize, usize),
    flags: c_int,
    to: *mut c_void,
) -> Served<isize> {
    let pages = |len: usize| len.saturating_add(PAGE - 1) / PAGE * PAGE;
    let (old, new) = (pages(old), pages(new));
    let maps = process.lock();
    let Some(map) = maps.0.iter().find(|map| map.start <= start && start < map.end).copied() else {
        return Err(Stop::Kernel);
    };
    drop(maps);
    if new == 0 || old == 0 || start + old > map.end {
        return Err(Stop::Errno(if new == 0 { Errno::INVAL } else { Errno::FAULT }));
    }
    let flags = MremapFlags::from_bits_retain(flags as u32);
    let fixed = flags.bits() & libc::MREMAP_FIXED as u32 != 0;
    if new <= old && !fixed {
        if new < old {
            unmap(process, start + new, old - new)?;
        }
        return Ok(start as isize);
    }
    if !flags.contains(MremapFlags::MAYMOVE) {
        return Err(Stop::Errno(Errno::NOMEM));
    }
    let kind = if map.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    if !map.shared && map.prot & libc::PROT_WRITE != 0 {
        // Pages that were written privately would have to move along.
        return Err(Stop::Refused("mremap-of-private-mapping", Errno::NOMEM));
    }
    let at = if fixed { to } else { std::ptr::null_mut() };
    let wish = Wish {
        at,
        len: new,
        prot: map.prot,
        flags: kind | if fixed { libc::MAP_FIXED } else { 0 },
        offset: map.offset + (start - map.start) as u64,
    };
    let moved = map_file(process, map.desc, wish)?;
    unmap(process, start, old)?;
    Ok(moved as isize)
}

fn unmap(process: &Process, start: usize, len: usize) -> Result<(), Errno> {
    let mut maps = process.lock();
    // SAFETY: a part of a mapping of ours, which the program gave up.
    unsafe { rustix::mm::munmap(start as *mut c_void, len)? };
    let freed = maps.cut(start, start + len);
    release(process, freed);
    Ok(())
}
