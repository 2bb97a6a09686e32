//! The calls that make, change and end mappings: `mmap`, `munmap`, `mremap`, `mprotect`, `msync`,
//! `madvise`. See [`crate::mapping`]; what they concern that is not of a file of ours goes to the kernel.

use std::ffi::{c_int, c_uint, c_void};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use vfs::{Desc, Errno, Mapped};

use crate::entry::{Served, Stop, errno, interpose};
use crate::fdtable;
use crate::identity::Line;
use crate::mapping::{self, Mapping, PAGE, Wish, any, extend, map_file, release};
use crate::process::Process;
use crate::touched;

/// Nothing is mapped: the kernel's affair.
fn some() -> Result<(), Stop> {
    if any() { Ok(()) } else { Err(Stop::Kernel) }
}

/// `len` bytes from `at` on, as whole pages.
fn range(at: *mut c_void, len: usize) -> (usize, usize) {
    let start = at as usize;
    (start, start.saturating_add(len).saturating_add(PAGE - 1) / PAGE * PAGE)
}

/// Shared mappings need a region that can be mapped by pages.
fn check_shared(process: &Process, flags: c_int) -> Result<(), Stop> {
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE && !process.fs.can_map().0 {
        return Err(Stop::Refused("shared-mapping-on-huge-pages", Errno::NODEV));
    }
    Ok(())
}

/// The kernel unmaps or replaces a range by `call`: what was mapped of ours there goes.
fn replace<T>(
    process: &Process,
    (start, end): (usize, usize),
    call: impl FnOnce() -> T,
    failed: impl Fn(&T) -> bool,
) -> Served<T> {
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

/// `mprotect` of a range in which something of ours lies.
fn protect(
    process: &Process,
    (start, end): (usize, usize),
    prot: c_int,
    kernel: impl FnOnce() -> c_int,
) -> Served<c_int> {
    let mut maps = process.lock();
    if !maps.touches(start, end) {
        return Err(Stop::Kernel);
    }
    let writes = prot & libc::PROT_WRITE != 0;
    let hit = |map: &&mut Mapping| map.touches(start, end);
    if writes && maps.0.iter_mut().filter(hit).any(|map| map.shared && !map.may_write) {
        return Err(Stop::Errno(Errno::ACCESS));
    }
    maps.split(start);
    maps.split(end);
    for map in maps.0.iter_mut().filter(hit) {
        if writes && map.usage() == Mapped::Read {
            // From here on a sync must make durable what is stored there.
            process.fs.map_present(map.desc, map.offset, PAGE as u64, Mapped::Write)?;
        }
        if writes && std::mem::take(&mut map.zeros) {
            for (from, to) in map.empty.clone() {
                mapping::make_empty(map, from, to)?;
            }
        }
    }
    let result = kernel();
    if result == 0 {
        for map in maps.0.iter_mut().filter(hit) {
            map.prot = prot;
        }
    }
    maps.publish();
    Ok(result)
}

/// The parts of shared mappings in a range: description, offset, length; and how many bytes of it are ours.
fn parts(process: &Process, start: usize, end: usize) -> (Vec<(Desc, u64, u64)>, usize) {
    let maps = process.lock();
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for map in maps.0.iter().filter(|map| map.touches(start, end)) {
        let (from, to) = (start.max(map.start), end.min(map.end));
        bytes += to - from;
        if map.shared {
            parts.push((map.desc, map.offset_of(from), (to - from) as u64));
        }
    }
    (parts, bytes)
}

/// `madvise(MADV_REMOVE)`: makes holes, mapping by mapping in their order, up to one that has none.
fn remove(
    process: &Process,
    (start, end): (usize, usize),
    kernel: impl Fn(*mut c_void, usize) -> c_int,
) -> Served<c_int> {
    let maps = process.lock();
    let hit: Vec<Mapping> = maps.0.iter().filter(|map| map.touches(start, end)).cloned().collect();
    let mut order: Vec<(usize, usize, Option<&Mapping>)> =
        maps.around(start, end).into_iter().map(|(from, to)| (from, to, None)).collect();
    drop(maps);
    if hit.is_empty() {
        return Err(Stop::Kernel);
    }
    if !start.is_multiple_of(PAGE) {
        return Err(Stop::Errno(Errno::INVAL));
    }
    order.extend(hit.iter().map(|map| (map.start.max(start), map.end.min(end), Some(map))));
    order.sort_unstable_by_key(|part| part.0);
    let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
    let mut missing = false;
    for (from, to, map) in order {
        let Some(map) = map else {
            if kernel(from as *mut c_void, to - from) != 0 {
                match errno() {
                    // What is not mapped is told when all else is done.
                    libc::ENOMEM => missing = true,
                    _ => return Ok(-1),
                }
            }
            continue;
        };
        if !map.shared || !map.may_write {
            return Err(Stop::Errno(Errno::ACCESS));
        }
        process.fs.allocate(map.desc, punch, map.offset_of(from), (to - from) as u64)?;
    }
    if missing { Err(Stop::Errno(Errno::NOMEM)) } else { Ok(0) }
}

/// After `madvise(MADV_DONTNEED)` where private mappings are copies: they show the file again.
fn copy_anew(process: &Process, (start, end): (usize, usize)) -> Result<(), Errno> {
    let mut maps = process.lock();
    for map in maps.0.iter_mut().filter(|map| !map.shared && map.touches(start, end)) {
        let (mut at, last) = (start.max(map.start), end.min(map.end));
        while at < last {
            if let Some((_, to)) = map.empty_at(at) {
                at = to;
                continue;
            }
            let next =
                map.empty.iter().find(|part| part.0 > at).map_or(last, |part| part.0.min(last));
            mapping::copy_in(process, map, at, next)?;
            at = next;
        }
    }
    Ok(())
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
        some()?;
        let call = || kernel(at, len, prot, flags, fd, offset);
        replace(process, range(at, len), call, |&address| address == -1)
    }
    fn [munmap, __munmap](at: *mut c_void, len: usize) -> c_int = |process, kernel| {
        some()?;
        replace(process, range(at, len), || kernel(at, len), |&result| result != 0)
    }
    fn [mremap](at: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> isize
    = |process, kernel| {
        some()?;
        match remap(process, at as usize, (old, new), flags, to) {
            // Other memory, moved to where something of ours may lie.
            Err(Stop::Kernel) if flags & libc::MREMAP_FIXED != 0 => {
                let call = || kernel(at, old, new, flags, to);
                replace(process, range(to, new), call, |&address| address == -1)
            }
            result => result,
        }
    }
    fn [mprotect, __mprotect](at: *mut c_void, len: usize, prot: c_int) -> c_int
    = |process, kernel| {
        some()?;
        protect(process, range(at, len), prot, || kernel(at, len, prot))
    }
    fn [msync](at: *mut c_void, len: usize, flags: c_int) -> c_int = |process, kernel| {
        some()?;
        let (start, end) = range(at, len);
        let (parts, bytes) = parts(process, start, end);
        if bytes == 0 {
            return Err(Stop::Kernel);
        }
        let both = libc::MS_ASYNC | libc::MS_SYNC;
        if !start.is_multiple_of(PAGE)
            || flags & !(both | libc::MS_INVALIDATE) != 0
            || flags & both == both
        {
            return Err(Stop::Errno(Errno::INVAL));
        }
        for (desc, offset, length) in parts {
            process.fs.sync_mapped(desc, offset, length)?;
        }
        let mut result = 0;
        for (from, to) in process.lock().around(start, end) {
            // What is not mapped there is told when all else is done, as the kernel does.
            if kernel(from as *mut c_void, to - from, flags) != 0 {
                result = -1;
            }
        }
        Ok(result)
    }
    // Into pages that are not there yet: the kernel would answer `EFAULT`.
    fn [getrandom](to: *mut c_void, len: usize, flags: c_uint) -> isize = |_, _| {
        let _ = flags;
        touched::ready(to, len);
        Err(Stop::Kernel)
    }
    fn [mlock](at: *const c_void, len: usize) -> c_int = |_, _| {
        touched::ready(at, len);
        Err(Stop::Kernel)
    }
    fn [mlock2](at: *const c_void, len: usize, flags: c_uint) -> c_int = |_, _| {
        let _ = flags;
        touched::ready(at, len);
        Err(Stop::Kernel)
    }
    fn [madvise, __madvise](at: *mut c_void, len: usize, advice: c_int) -> c_int
    = |process, kernel| {
        some()?;
        match advice {
            libc::MADV_REMOVE => {
                return remove(process, range(at, len), |at, len| kernel(at, len, advice));
            }
            libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => touched::ready(at, len),
            libc::MADV_DONTNEED if !process.fs.can_map().1 => {
                let result = kernel(at, len, advice);
                if result == 0 {
                    copy_anew(process, range(at, len))?;
                }
                return Ok(result);
            }
            _ => {}
        }
        Err(Stop::Kernel)
    }
}

/// What `mremap` is asked for.
#[derive(Clone, Copy)]
struct Move {
    start: usize,
    old: usize,
    new: usize,
    flags: MremapFlags,
    to: *mut c_void,
}

/// `mremap` of one of ours.
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
    let Some(map) = maps.find(start).cloned() else {
        // One that begins before ours and reaches into it.
        let reaches = maps.touches(start, start.saturating_add(old));
        return Err(if reaches { Stop::Errno(Errno::FAULT) } else { Stop::Kernel });
    };
    drop(maps);
    let flags = MremapFlags::from_bits_retain(flags as u32);
    let fixed = flags.contains(FIXED);
    let keeps = flags.contains(MremapFlags::DONTUNMAP);
    let moves = flags.contains(MremapFlags::MAYMOVE);
    if new == 0
        || !start.is_multiple_of(PAGE)
        || (fixed || keeps) && !moves
        || keeps && old != new
        || old == 0 && !map.shared
    {
        return Err(Stop::Errno(Errno::INVAL));
    }
    // What is too much is unmapped, whatever it is.
    if start + old.min(new) > map.end {
        return Err(Stop::Errno(Errno::FAULT));
    }
    let wish = Move { start, old, new, flags, to };
    if old == 0 || fixed || keeps {
        return if moves { moved(process, &map, &wish) } else { Err(Stop::Errno(Errno::NOMEM)) };
    }
    if new <= old {
        if new < old {
            unmap(process, start + new, old - new)?;
        }
        return Ok(start as isize);
    }
    if start + old == map.end {
        match extend(process, map.end, new - old) {
            Ok(()) => return Ok(start as isize),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Stop::Errno(errno)),
        }
    }
    if moves { moved(process, &map, &wish) } else { Err(Stop::Errno(Errno::NOMEM)) }
}

/// To a fixed place.
const FIXED: MremapFlags = MremapFlags::from_bits_retain(libc::MREMAP_FIXED as u32);

/// Maps elsewhere what lies at the old place, and, of a private mapping, moves its pages there: some may
/// have been written.
fn moved(process: &Process, map: &Mapping, wish: &Move) -> Served<isize> {
    let kind = if map.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let fixed = wish.flags.contains(FIXED);
    let at = wish.to as usize;
    if fixed
        && (!at.is_multiple_of(PAGE) || at < wish.start + wish.old && wish.start < at + wish.new)
    {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let keeps = wish.flags.contains(MremapFlags::DONTUNMAP) || wish.old == 0;
    if !map.shared && keeps {
        return Err(Stop::Refused("mremap-keeps-private-mapping", Errno::INVAL));
    }
    let new = Wish {
        at: if fixed { wish.to } else { std::ptr::null_mut() },
        len: wish.new,
        prot: map.prot,
        flags: kind | if fixed { libc::MAP_FIXED } else { 0 },
        offset: map.offset_of(wish.start),
    };
    // Until the old place is gone nobody gets a page there, where a store would be lost.
    let mut maps = process.lock();
    let (target, mut freed) = mapping::map_locked(process, &mut maps, map.desc, new)?;
    let mut moved = Ok(());
    if !map.shared
        && let Some(now) = maps.find(wish.start)
    {
        moved = move_pages(now, wish.start, wish.old.min(wish.new), target);
    }
    if moved.is_ok() && !keeps {
        let (start, len) = (wish.start, wish.old);
        // SAFETY: a mapping of ours, which the program gave up.
        moved = unsafe { rustix::mm::munmap(start as *mut c_void, len) };
        freed.extend(maps.cut(start, start + len));
    }
    freed.retain(|desc| !maps.holds(*desc));
    release(process, freed);
    moved?;
    Ok(target as isize)
}

/// Moves the pages that are there of `start..start + len`, mapping by mapping of the kernel's.
fn move_pages(map: &Mapping, start: usize, len: usize, to: usize) -> Result<(), Errno> {
    let list = std::fs::read("/proc/self/maps")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for line in list.split(|&byte| byte == b'\n').filter_map(Line::parse) {
        let (from, end) = (line.start.max(start), line.end.min(start + len));
        if from >= end || map.empty_at(from).is_some() {
            continue;
        }
        let (target, flags) = ((to + (from - start)) as *mut c_void, MremapFlags::MAYMOVE);
        let none = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
        // SAFETY: from one mapping of ours into another; the old place stays ours until it is unmapped.
        unsafe {
            rustix::mm::mremap_fixed(from as *mut c_void, end - from, end - from, flags, target)?;
            rustix::mm::mmap_anonymous(from as *mut c_void, end - from, none.0, none.1)?;
        }
    }
    Ok(())
}

fn unmap(process: &Process, start: usize, len: usize) -> Result<(), Errno> {
    let mut maps = process.lock();
    // SAFETY: a part of a mapping of ours, which the program gave up.
    unsafe { rustix::mm::munmap(start as *mut c_void, len)? };
    let freed = maps.cut(start, start + len);
    release(process, freed);
    Ok(())
}
