//! Calls of the program's about memory into which a cache may have mapped its segments
//! (`flac::program`): what the kernel would do otherwise with a mapping of a file than with memory.
//!
//! They come here when the kernel is to serve them. Little of this is done before the first segment
//! is mapped, which only `solera run --attach` allows.

use std::ffi::{c_int, c_void};

use flac::program;
use os::interrupt::system_call;
use rustix::mm::{MapFlags, MremapFlags};

use crate::entry::maptable::PAGE;
use crate::entry::{Answer, errno, set_errno};
use crate::mappings::read_estimate::coming_of_file;

/// `_IOWR(0xAA, 0, struct uffdio_register)`.
const UFFDIO_REGISTER: u32 = 0xC020_AA00;

/// `madvise` with the advice `GUARD_INSTALL`, of Linux 6.13.
pub const GUARD_INSTALL: c_int = 102;
/// With the advice `DONTNEED_LOCKED`, of Linux 5.18.
const DONTNEED_LOCKED: c_int = 24;

/// Before the kernel reads from `fd` into memory, at `at` or where it stands: it overwrites what
/// can come.
#[inline]
pub fn read_into(fd: c_int, start: *const c_void, len: usize, at: Option<i64>) {
    if flac::buffers::attached() != 0 {
        read_as_far(fd, start as usize, len, at);
    }
}

#[cold]
fn read_as_far(fd: c_int, start: usize, len: usize, at: Option<i64>) {
    // A short read leaves the rest as it was. That of a pipe may be short.
    if len >= PAGE
        && let Some(coming) = coming_of_file(fd, at)
    {
        program::overwritten(start, coming.min(len));
    }
}

/// A call that may change how memory is marked: a look at the marks before its end does not count.
pub fn marking<T>(call: impl FnOnce() -> T) -> T {
    program::marks_changed();
    let answer = call();
    program::marks_changed();
    answer
}

/// `madvise` of a range where segments may be mapped; `call` makes it, with an advice and maybe
/// another one first. `None`: nothing is to be done for it.
pub fn advised(
    (start, len): (usize, usize),
    advice: c_int,
    call: impl Fn(c_int) -> c_int,
) -> Option<c_int> {
    if changes_marks(advice) {
        let answer = marking(|| call(advice));
        // The kernel takes it for memory only.
        let retry = answer != 0
            && advice == libc::MADV_WIPEONFORK
            && errno() == libc::EINVAL
            && program::was_attached()
            && program::holds(start, len)
            && program::kept(start, len);
        return Some(if retry { marking(|| call(advice)) } else { answer });
    }
    if advice == GUARD_INSTALL {
        program::guards();
    }
    let empties =
        matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | DONTNEED_LOCKED | GUARD_INSTALL);
    if !empties || !program::was_attached() || !program::holds(start, len) {
        return None;
    }
    // Of nothing: an older kernel does not know the advice, and leaves all as it is.
    let asked = [start / PAGE * PAGE, 0, advice as usize, 0, 0, 0];
    // SAFETY: about no byte.
    if unsafe { system_call(libc::SYS_madvise, asked) }.is_err() {
        return None;
    }
    // A file's mapping cannot be freed lazily.
    let now = if advice == DONTNEED_LOCKED { advice } else { libc::MADV_DONTNEED };
    let answer = call(now);
    let failed = errno();
    // A part that is not mapped is reported when all else is done.
    if answer == 0 || failed == libc::ENOMEM {
        program::emptied(start, len);
        set_errno(failed);
    }
    let is_guard = advice == GUARD_INSTALL;
    Some(if is_guard { call(advice) } else { answer })
}

fn changes_marks(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_DONTFORK
            | libc::MADV_DOFORK
            | libc::MADV_WIPEONFORK
            | libc::MADV_KEEPONFORK
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP
    )
}

/// `mprotect` that the kernel serves: a file system may forbid its files to be executed.
pub fn protected((start, len): (usize, usize), prot: c_int, call: impl Fn() -> c_int) -> c_int {
    let answer = call();
    let retry = answer != 0
        && prot & libc::PROT_EXEC != 0
        && errno() == libc::EACCES
        && program::was_attached()
        && program::holds(start, len)
        && program::kept(start, len);
    if retry { call() } else { answer }
}

/// Whether `mmap` with these flags makes memory with marks.
#[inline]
pub const fn marks(flags: c_int) -> bool {
    flags & (libc::MAP_LOCKED | libc::MAP_GROWSDOWN) != 0
}

/// Whether `ioctl` with this request marks memory.
#[inline]
pub const fn controls(request: u32) -> bool {
    request == UFFDIO_REGISTER
}

/// `mlockall`.
pub fn locks_all<T: Answer>(flags: c_int, call: impl FnOnce() -> T) -> T {
    let answer = marking(call);
    if !answer.has_failed() {
        program::locks_all(flags & libc::MCL_FUTURE != 0);
    }
    answer
}

/// `mremap` of memory in which segments are mapped: it is several mappings then, which the kernel
/// does not move or make longer at once, and one of a file must not become longer.
pub fn remap(
    (start, old, new): (usize, usize, usize),
    flags: c_int,
    to: usize,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let pages = |len: usize| len.saturating_add(PAGE - 1) / PAGE * PAGE;
    let wish = (start, pages(old), pages(new));
    let bits = MremapFlags::from_bits_retain(flags as u32);
    let moves = bits.contains(FIXED) || wish.2 > wish.1;
    if !program::was_attached() {
        return kernel();
    }
    let before = errno();
    if !program::is_unmarked(start, wish.1) {
        // The marks go with it.
        program::marks_changed();
    }
    if !program::holds(start, old) {
        let moved = kernel();
        // What was attached, and is memory again, may be mappings of its own.
        if moved != -1 || errno() != libc::EFAULT || !moves || is_wrong(wish, bits, to) {
            return moved;
        }
        set_errno(before);
        return in_pieces(wish, bits, to);
    }
    if bits.contains(MremapFlags::DONTUNMAP) {
        let moved = kernel();
        if moved != -1 {
            // What was there reads as zeros.
            program::emptied(start, old);
        }
        return moved;
    }
    if !moves || is_wrong(wish, bits, to) {
        return kernel();
    }
    in_pieces(wish, bits, to)
}

/// As [`by_pieces`], as the program sees it.
fn in_pieces(wish: (usize, usize, usize), flags: MremapFlags, to: usize) -> isize {
    let before = errno();
    let Some(at) = by_pieces(wish, flags, to) else { return -1 };
    set_errno(before);
    at as isize
}

/// Whether the kernel refuses this.
fn is_wrong((start, old, new): (usize, usize, usize), flags: MremapFlags, to: usize) -> bool {
    let known = FIXED.union(MremapFlags::MAYMOVE);
    let fixed = flags.contains(FIXED);
    let overlaps = || to < start.saturating_add(old) && start < to.saturating_add(new);
    !known.contains(flags)
        || old == 0
        || new == 0
        || !start.is_multiple_of(PAGE)
        || fixed
            && (!flags.contains(MremapFlags::MAYMOVE) || !to.is_multiple_of(PAGE) || overlaps())
}

const FIXED: MremapFlags = MremapFlags::from_bits_retain(libc::MREMAP_FIXED as u32);

/// The same, mapping by mapping. `None`: it cannot be done, and all is as before; `errno` says why.
fn by_pieces(
    (start, old, new): (usize, usize, usize),
    flags: MremapFlags,
    to: usize,
) -> Option<usize> {
    let refused = |errno: c_int| {
        set_errno(errno);
        None
    };
    let Some((pieces, prot)) = program::pieces(start, old.min(new)) else {
        return refused(libc::EFAULT);
    };
    let fixed = flags.contains(FIXED);
    if !fixed && new > old {
        let more = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: where nothing is mapped.
        let grown =
            unsafe { rustix::mm::mmap_anonymous((start + old) as _, new - old, prot, more) };
        if grown.is_ok() {
            return Some(start);
        }
        if !flags.contains(MremapFlags::MAYMOVE) {
            return refused(libc::ENOMEM);
        }
    }
    let place = if fixed { MapFlags::FIXED } else { MapFlags::empty() };
    let at = if fixed { to } else { 0 };
    // SAFETY: at an address of the kernel's choice, or over what the program replaces.
    let target =
        unsafe { rustix::mm::mmap_anonymous(at as _, new, prot, MapFlags::PRIVATE | place) };
    let Ok(target) = target.map(|target| target as usize) else {
        return refused(libc::ENOMEM);
    };
    let shift = |piece: &(usize, usize)| target + (piece.0 - start);
    for (done, piece) in pieces.iter().enumerate() {
        if !move_to(*piece, shift(piece)) {
            // Back: what was there is not mapped any more.
            for piece in pieces[..done].iter().rev() {
                move_to((shift(piece), shift(piece) + (piece.1 - piece.0)), piece.0);
            }
            if !fixed {
                unmap(target, new);
            }
            return refused(libc::ENOMEM);
        }
    }
    for piece in &pieces {
        program::moved(piece.0, shift(piece), piece.1 - piece.0);
    }
    if old > new {
        unmap(start + new, old - new);
    }
    Some(target)
}

fn move_to((from, end): (usize, usize), to: usize) -> bool {
    let length = end - from;
    // SAFETY: memory of the program's, which asks for the move; the target is its own, too.
    unsafe {
        rustix::mm::mremap_fixed(from as _, length, length, MremapFlags::MAYMOVE, to as _).is_ok()
    }
}

fn unmap(start: usize, length: usize) {
    // SAFETY: mapped by the caller, or given up by the program.
    let _ = unsafe { system_call(libc::SYS_munmap, [start, length, 0, 0, 0, 0]) };
}
