//! The calls that make, change and end mappings: `mmap`, `munmap`, `mprotect`, `msync`, `madvise`
//! (`mremap`: [`crate::mappings::mremap`]). See [`crate::mappings::mapping`]; the kernel serves all
//! ranges where no file of the volume is mapped.

use std::ffi::{c_int, c_void};

use os::interrupt::system_call;
use vfs::{Desc, Errno, FileSystemExt, Fill, Kind, Mapped};

use crate::entry::maptable::{Mapping, PAGE, any};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, errno, set_errno};
use crate::mappings::large;
use crate::mappings::mapping::{self, MapRequest, release};
use crate::mappings::page_faults;

/// If nothing of ours is mapped, the kernel serves the call.
pub fn some() -> Result<(), Stop> {
    if any() { Ok(()) } else { Err(Stop::Kernel) }
}

/// `len` bytes from `at` on, as whole pages.
pub fn range(at: *mut c_void, len: usize) -> (usize, usize) {
    let start = at as usize;
    (start, start.saturating_add(len).saturating_add(PAGE - 1) / PAGE * PAGE)
}

/// What `mmap` takes of its protection; it ignores the rest.
pub const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

/// Whether a length is none to the kernel, which rounds it up to pages and past zero.
pub const fn is_nothing(len: usize) -> bool {
    len.wrapping_add(PAGE - 1) / PAGE == 0
}

/// The offset of a new mapping, checked as the kernel does before it looks at the file: no length
/// is `EINVAL`, more than all addresses `ENOMEM`, beyond all files `EOVERFLOW`.
pub fn check_range(len: usize, offset: i64) -> Result<u64, Errno> {
    if len == 0 {
        return Err(Errno::INVAL);
    }
    if len > ADDRESSES {
        return Err(Errno::NOMEM);
    }
    u64::try_from(offset).map_err(|_| Errno::OVERFLOW)
}

/// Why a file is not mapped whose range is wrong: that it is open for its path alone comes first,
/// and what has no offsets has none that is too large.
#[cold]
pub fn first_of(process: &Process, desc: Desc, errno: Errno) -> Errno {
    let Ok((node, flags)) = process.fs.describe(desc) else { return errno };
    let is_file = || process.fs.attributes(node).is_ok_and(|attr| attr.kind == Kind::File);
    match errno {
        _ if flags.path_only() => Errno::BADF,
        Errno::OVERFLOW if !is_file() => Errno::NODEV,
        errno => errno,
    }
}

/// Whether it says how what is written is seen.
pub const fn has_type(flags: c_int) -> bool {
    matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_SHARED_VALIDATE
    )
}

/// The program's addresses.
pub const ADDRESSES: usize = (1 << 47) - PAGE;

/// Shared mappings need a region that can be mapped by pages.
pub fn check_shared(process: &Process, desc: Desc, flags: c_int) -> Result<(), Stop> {
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE && process.fs.can_map(desc.into()).0 == 0 {
        report::about(desc.member());
        return Err(Stop::Refused("shared-mapping-on-huge-pages", Errno::NODEV));
    }
    Ok(())
}

/// The kernel unmaps or replaces a range by `call`: what was mapped of ours there goes.
pub fn replace<T>(
    process: &Process,
    (start, end): (usize, usize),
    call: impl FnOnce() -> T,
    failed: impl Fn(&T) -> bool,
) -> Served<T> {
    let mut maps = process.lock();
    if !maps.touches(start, end) {
        return Err(Stop::Kernel);
    }
    let mut vacated = false;
    if start.is_multiple_of(PAGE) && maps.has_large(start, end) {
        if maps.shares(start, end) {
            return Err(Stop::Refused("part-of-a-huge-page", Errno::INVAL));
        }
        let mut freed = Vec::new();
        vacated = large::vacate(&mut maps, start, end, &mut freed)?;
        release(process, freed);
    }
    let value = call();
    if failed(&value) && vacated {
        let failed = errno();
        large::unmap(&mut maps, start, end - start, &mut Vec::new())?;
        set_errno(failed);
    } else if !failed(&value) {
        let freed = maps.cut(start, end);
        release(process, freed);
    }
    Ok(value)
}

/// `mprotect` of a range in which something of ours lies.
pub fn protect(
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
    if writes && maps.within(start, end).any(|map| map.shared && !map.may_write) {
        return Err(Stop::Errno(Errno::ACCESS));
    }
    if maps.has_large(start, end) {
        return large::protect(process, maps, (start, end), prot);
    }
    maps.split(start);
    maps.split(end);
    for mut map in maps.within_mut(start, end) {
        if writes && map.usage() == Mapped::Read {
            // From here on a sync must make durable what is stored there.
            process.fs.map(map.desc, (map.offset, PAGE as u64), Mapped::Write, Fill::None)?;
        }
        if writes && std::mem::take(&mut map.zeros) {
            for (from, to) in map.empty.clone() {
                mapping::make_empty(&mut map, from, to)?;
            }
        }
    }
    let result = kernel();
    if result == 0 {
        for mut map in maps.within_mut(start, end) {
            map.prot = prot;
        }
        if writes {
            ddmap::Pagers::may_store(start, end);
        }
    }
    Ok(result)
}

/// The parts of shared mappings in a range: description, offset, length; and how many bytes of it
/// are ours.
pub fn parts(process: &Process, start: usize, end: usize) -> (Vec<(Desc, u64, u64)>, usize) {
    let maps = process.lock();
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for map in maps.within(start, end) {
        let (from, to) = (start.max(map.start), end.min(map.end));
        bytes += to - from;
        if map.shared {
            parts.push((map.desc, map.offset_of(from), (to - from) as u64));
        }
    }
    (parts, bytes)
}

/// Whether the kernel keeps some of this memory from being swapped (`mlock`): it says so where
/// pages were to be invalidated.
pub fn is_locked(start: usize, end: usize) -> bool {
    let arguments = [start, end - start, libc::MS_INVALIDATE as usize, 0, 0, 0];
    // SAFETY: of mappings of the region it does nothing else.
    let asked = unsafe { system_call(libc::SYS_msync, arguments) };
    asked == Err(Errno::BUSY)
}

/// `madvise(MADV_REMOVE)`: makes holes, mapping by mapping in their order, up to one that has none.
pub fn remove(
    process: &Process,
    (start, end): (usize, usize),
    kernel: impl Fn(*mut c_void, usize) -> c_int,
) -> Served<c_int> {
    let maps = process.lock();
    let hit: Vec<Mapping> = maps.within(start, end).cloned().collect();
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
                    // A part that is not mapped is reported when all else is done.
                    libc::ENOMEM => missing = true,
                    _ => return Ok(-1),
                }
            }
            continue;
        };
        if is_locked(from, to) {
            return Err(Stop::Errno(Errno::INVAL));
        }
        if !map.shared || !map.may_write {
            return Err(Stop::Errno(Errno::ACCESS));
        }
        process.fs.allocate(map.desc, punch, map.offset_of(from), (to - from) as u64)?;
    }
    if missing { Err(Stop::Errno(Errno::NOMEM)) } else { Ok(0) }
}

/// `madvise(MADV_GUARD_INSTALL)`. A guard is a mark of a page that has none. A part without pages
/// gets pages when one beside it is touched, which would take its guards away: so those are filled
/// first. A pager replaces such marks when it brings what is beside them, or looks whether it is
/// wanted: where there is one, the advice is one that the kernel does not know.
pub fn guard(process: &Process, (start, end): (usize, usize)) -> Result<(), Stop> {
    let is_paged =
        |map: &Mapping| ddmap::Pagers::has_pager(process.fs.region_address(map.desc.into()));
    let paged = process.lock().within(start, end).any(is_paged);
    let lacks = || process.lock().within(start, end).any(|map| map.lacks(start, end));
    if !paged && lacks() {
        page_faults::ready(start as *const c_void, end - start);
    }
    if paged || lacks() {
        return Err(Stop::Refused("guard-pages", Errno::INVAL));
    }
    Ok(())
}

/// Whether a volume's pages cannot be mapped privately, so that such mappings have copies.
pub fn any_copied(process: &Process) -> bool {
    process.fs.is_attached()
        && process.volumes().any(|seen| !process.fs.can_map(seen.root.into()).1)
}

/// After `madvise(MADV_DONTNEED)` where private mappings are copies: they show the file again.
pub fn copy_anew(process: &Process, (start, end): (usize, usize)) -> Result<(), Errno> {
    let mut maps = process.lock();
    for mut map in maps.within_mut(start, end) {
        if map.shared || !mapping::is_copied(process, &map) {
            continue;
        }
        let (mut at, last) = (start.max(map.start), end.min(map.end));
        while at < last {
            if let Some((_, to)) = map.empty_at(at) {
                at = to;
                continue;
            }
            let next =
                map.empty.iter().find(|part| part.0 > at).map_or(last, |part| part.0.min(last));
            mapping::copy_in(process, &mut map, at, next)?;
            at = next;
        }
    }
    Ok(())
}

/// `remap_file_pages`, which is a mapping of another part of the same file over this one.
pub fn map_other_part(
    process: &Process,
    start: usize,
    len: usize,
    prot: c_int,
    page: usize,
) -> Served<c_int> {
    let mut maps = process.lock();
    maps.join(start, start.saturating_add(len));
    let Some(map) = maps.find(start).cloned() else { return Err(Stop::Kernel) };
    let offset = (page as u64).checked_mul(PAGE as u64).ok_or(Errno::INVAL)?;
    if prot != 0 || len == 0 || !map.shared || len > map.end - start {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let request = MapRequest { at: start as *mut c_void, len, prot: map.prot, flags, offset };
    let (_, mut freed) = mapping::map_locked(process, &mut maps, map.desc, request)?;
    freed.retain(|desc| !maps.holds(*desc));
    release(process, freed);
    Ok(0)
}
