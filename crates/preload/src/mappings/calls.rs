//! The calls of this room: mappings made, changed and ended; calls whose buffers need
//! their pages before the kernel sees them.

use std::ffi::{c_int, c_uint, c_void};

use vfs::{Errno, Synced};

use crate::entry::maptable::PAGE;
use crate::entry::pointers::Out;
use crate::entry::{Stop, fdtable};
use crate::files::rw::{self, Vector, vectors};
use crate::interposed::bodies;
use crate::mappings::advice;
use crate::mappings::cache_segments;
use crate::mappings::large;
use crate::mappings::mapping::{MapRequest, map_file, release};
use crate::mappings::mmap::{self, range, replace, some};
use crate::mappings::mremap::remap;
use crate::mappings::page_faults::{self, ready_all};
use crate::paths::flags;

// `isize` stands for the address: -1 is MAP_FAILED.
bodies! {
    fn mmap(
        at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64,
    ) -> isize = |process, kernel| {
        if flags & libc::MAP_ANONYMOUS == 0 && let Some(desc) = fdtable::get(fd) {
            if !offset.cast_unsigned().is_multiple_of(PAGE as u64) {
                return Err(Stop::Errno(Errno::INVAL));
            }
            let wrong = |errno| mmap::first_of(process, desc, errno);
            if !mmap::has_type(flags) && rw::opened_as(process, fd).is_ok() {
                // The kernel looks at the place first, and refuses it then.
                return Err(Stop::Kernel);
            }
            if flags & libc::MAP_HUGETLB != 0 {
                return Err(Stop::Errno(wrong(Errno::INVAL)));
            }
            let offset = mmap::check_range(len, offset).map_err(wrong)?;
            let prot = prot & mmap::ACCESS;
            mmap::check_shared(process, desc, flags)?;
            let request = MapRequest { at, len, prot, flags, offset };
            let mapped = map_file(process, desc, request)? as isize;
            advice::mapped(mapped as usize, len, flags);
            return Ok(mapped);
        }
        let call = || kernel(at, len, prot, flags, fd, offset);
        let call = || {
            if cache_segments::marks(flags) { cache_segments::marking(call) } else { call() }
        };
        let replaced = if flags & libc::MAP_FIXED != 0 && some().is_ok() {
            replace(process, range(at, len), call, |&address| address == -1)
        } else {
            Err(Stop::Kernel)
        };
        match replaced {
            Err(Stop::Kernel) if cache_segments::marks(flags) => Ok(call()),
            other => other,
        }
    }
    fn munmap(at: *mut c_void, len: usize) -> c_int = |process, kernel| {
        some()?;
        let (start, end) = range(at, len);
        if len > 0
            && start.is_multiple_of(PAGE)
            && large::possible(process)
            && process.lock().has_large(start, end)
        {
            let (mut maps, mut freed) = (process.lock(), Vec::new());
            let unmapped = large::unmap(&mut maps, start, end - start, &mut freed);
            release(process, freed);
            return unmapped.map(|()| 0).map_err(Stop::Errno);
        }
        replace(process, (start, end), || kernel(at, len), |&result| result != 0)
    }
    fn mremap(at: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> isize
    = |process, kernel| {
        match some().and_then(|()| remap(process, at as usize, (old, new), flags, to as usize)) {
            Err(Stop::Kernel) => {
                let call = || kernel(at, old, new, flags, to);
                Ok(cache_segments::remap((at as usize, old, new), flags, to as usize, call))
            }
            served => served,
        }
    }
    fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int
    = |process, kernel| {
        let call = || cache_segments::protected((at as usize, len), prot, || kernel(at, len, prot));
        if some().is_err() {
            return Ok(call());
        }
        match mmap::protect(process, range(at, len), prot, || kernel(at, len, prot)) {
            Err(Stop::Kernel) => Ok(call()),
            served => served,
        }
    }
    fn msync(at: *mut c_void, len: usize, flags: c_int) -> c_int = |process, kernel| {
        some()?;
        if mmap::is_nothing(len) {
            return Err(Stop::Kernel);
        }
        let (start, end) = range(at, len);
        let (parts, bytes) = mmap::parts(process, start, end);
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
        if flags & libc::MS_INVALIDATE != 0 && mmap::is_locked(start, end) {
            return Err(Stop::Errno(Errno::BUSY));
        }
        for (desc, offset, length) in parts {
            process.fs.sync(Synced::Range { desc, offset, length })?;
        }
        let mut result = 0;
        for (from, to) in process.lock().around(start, end) {
            // A part that is not mapped is reported when all else is done, as the kernel does.
            if kernel(from as *mut c_void, to - from, flags) != 0 {
                result = -1;
            }
        }
        Ok(result)
    }
    fn remap_file_pages(
        at: *mut c_void, len: usize, prot: c_int, page: usize, flags: c_int,
    ) -> c_int = |process, _| {
        let _ = flags;
        some()?;
        let start = at as usize / PAGE * PAGE;
        mmap::map_other_part(process, start, len / PAGE * PAGE, prot, page)
    }
    // With pages that are not there yet the kernel would answer `EFAULT`.
    fn vmsplice(fd: c_int, list: Out<Vector>, count: usize, flags: c_uint) -> isize
    = |process, _| {
        // The kernel has 32 bits for it.
        let many = c_int::try_from(count as u32).unwrap_or(c_int::MAX);
        ready_all(list, many);
        let Some(desc) = fdtable::get(fd) else { return Err(Stop::Kernel) };
        // Of a file the kernel looks at the list before it says that it is no pipe.
        flags::SPLICE.check(flags.cast_signed())?;
        if process.fs.describe(desc)?.1.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        let pieces = vectors(list, many)?;
        let nothing = pieces.iter().all(|piece| piece.iov_len == 0);
        if nothing { Ok(0) } else { Err(Stop::Errno(Errno::BADF)) }
    }
    fn process_vm_readv(
        who: c_int, list: Out<Vector>, count: usize, theirs: *const c_void, their: usize,
        flags: usize,
    ) -> isize = |_, _| {
        let _ = (who, theirs, their, flags);
        ready_all(list, c_int::try_from(count).unwrap_or(c_int::MAX));
        Err(Stop::Kernel)
    }
    fn process_vm_writev(
        who: c_int, list: Out<Vector>, count: usize, theirs: *const c_void, their: usize,
        flags: usize,
    ) -> isize = |_, _| {
        let _ = (who, theirs, their, flags);
        ready_all(list, c_int::try_from(count).unwrap_or(c_int::MAX));
        Err(Stop::Kernel)
    }
    fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize = |_, _| {
        let _ = flags;
        page_faults::ready(to, len);
        Err(Stop::Kernel)
    }
    fn mlock(at: *const c_void, len: usize) -> c_int = |_, kernel| {
        advice::lock(at, len, || cache_segments::marking(|| kernel(at, len)))
    }
    fn mlock2(at: *const c_void, len: usize, flags: c_uint) -> c_int = |_, kernel| {
        advice::lock(at, len, || cache_segments::marking(|| kernel(at, len, flags)))
    }
    fn munlock(at: *const c_void, len: usize) -> c_int = |_, kernel| {
        advice::unlock(at as usize, len);
        Ok(cache_segments::marking(|| kernel(at, len)))
    }
    fn mlockall(flags: c_int) -> c_int = |_, kernel| {
        Ok(cache_segments::locks_all(flags, || kernel(flags)))
    }
    fn munlockall() -> c_int = |_, kernel| {
        advice::unlock(0, usize::MAX);
        let answer = kernel();
        flac::program::locks_all(false);
        Ok(answer)
    }
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int
    = |process, kernel| {
        let call = |advice| kernel(at, len, advice);
        if len > 0 && mmap::is_nothing(len) {
            return Err(Stop::Kernel);
        }
        if advice == cache_segments::GUARD_INSTALL && some().is_ok() {
            mmap::guard(process, range(at, len))?;
        }
        if let Some(answer) = cache_segments::advised((at as usize, len), advice, call) {
            if advice == libc::MADV_DONTNEED && answer == 0 && some().is_ok() {
                mmap::copy_anew(process, range(at, len))?;
            }
            return Ok(answer);
        }
        some()?;
        match advice {
            libc::MADV_REMOVE => {
                return mmap::remove(process, range(at, len), |at, len| kernel(at, len, advice));
            }
            _ if advice::advise(at as usize, len, advice) => {}
            libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => page_faults::ready(at, len),
            // Advice about a part of a large page is no error to a program that does not know of
            // it.
            _ if large::covered(process, range(at, len)) => return Ok(0),
            libc::MADV_DONTNEED if mmap::any_copied(process) => {
                let result = kernel(at, len, advice);
                if result == 0 {
                    mmap::copy_anew(process, range(at, len))?;
                }
                return Ok(result);
            }
            _ => {}
        }
        Err(Stop::Kernel)
    }
}

/// Calls that say in which memory of the machine pages are to lie.
macro_rules! placed {
    ($($name:ident),*) => {
        bodies! {
            $(fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_int
            = |_, kernel| {
                Ok(cache_segments::marking(|| kernel(a, b, c, d, e, f)))
            })*
        }
    };
}
placed!(mbind, set_mempolicy, set_mempolicy_home_node);
