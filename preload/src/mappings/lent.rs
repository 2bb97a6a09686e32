//! Calls of the program's about memory into which a cache may have mapped its segments
//! (`flac::program`): what the kernel would do otherwise with a mapping of a file than with memory.
//!
//! They come here before the kernel serves them. Nothing of this is done before the first segment
//! is mapped, which only `solera run --attach` allows.

use std::ffi::{c_int, c_long, c_void};

use flac::program;
use pmem::interrupt::system_call;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use crate::entry::maptable::PAGE;
use crate::entry::{errno, set_errno};
use crate::mappings::page_faults;

/// `_IOWR(0xAA, 0, struct uffdio_register)`.
const UFFDIO_REGISTER: u32 = 0xC020_AA00;

/// `madvise` with the advice `GUARD_INSTALL`, of Linux 6.13.
const GUARD_INSTALL: c_int = 102;
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
        && let Some(coming) = page_faults::coming_of_file(fd, at)
    {
        program::overwritten(start, coming.min(len));
    }
}

/// Before `madvise`.
pub fn advised(start: usize, len: usize, advice: c_int) {
    if changes_marks(advice) {
        program::marks_changed();
    }
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | DONTNEED_LOCKED | GUARD_INSTALL => {
            program::emptied(start, len);
        }
        // Of a file's mapping the kernel refuses it, or refuses it otherwise.
        libc::MADV_WIPEONFORK | libc::MADV_REMOVE => _ = program::kept(start, len),
        _ => {}
    }
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

/// Before `mprotect`: a file system may forbid its files to be executed.
pub fn protected(start: usize, len: usize, prot: c_int) {
    if prot & libc::PROT_EXEC != 0 {
        program::kept(start, len);
    }
}

/// Before `mmap` with these flags.
#[inline]
pub fn mapped(flags: c_int) {
    if flags & libc::MAP_LOCKED != 0 {
        program::marks_changed();
    }
}

/// Before `ioctl`.
#[inline]
pub fn controlled(request: u32) {
    if request == UFFDIO_REGISTER {
        program::marks_changed();
    }
}

/// Before a system call by number that this library does not serve.
pub fn called(number: c_long, flags: usize) {
    match number {
        libc::SYS_mlockall => locks_all(flags as c_int),
        libc::SYS_munlockall => program::locks_all(false),
        libc::SYS_mlock
        | libc::SYS_mlock2
        | libc::SYS_munlock
        | libc::SYS_mbind
        | libc::SYS_set_mempolicy
        | libc::SYS_set_mempolicy_home_node
        | libc::SYS_pkey_mprotect => program::marks_changed(),
        _ => {}
    }
}

/// Before `mlockall`.
pub fn locks_all(flags: c_int) {
    program::locks_all(flags & libc::MCL_FUTURE != 0);
}

/// `mremap` of memory in which segments were mapped: it is several mappings then, which the kernel
/// does not move or make longer at once.
pub fn remap(
    (start, old, new): (usize, usize, usize),
    flags: c_int,
    to: usize,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if !program::was_attached() {
        return kernel();
    }
    // What moves is found by nobody at its new place.
    program::kept(start, old);
    let before = errno();
    let moved = kernel();
    if moved != -1 || errno() != libc::EFAULT {
        return moved;
    }
    let pages = |len: usize| len.saturating_add(PAGE - 1) / PAGE * PAGE;
    let flags = MremapFlags::from_bits_retain(flags as u32);
    match by_pieces((start, pages(old), pages(new)), flags, to) {
        Some(at) => {
            set_errno(before);
            at as isize
        }
        None => -1,
    }
}

const FIXED: MremapFlags = MremapFlags::from_bits_retain(libc::MREMAP_FIXED as u32);
const PROT: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

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
    if flags.contains(MremapFlags::DONTUNMAP) || old == 0 {
        return refused(libc::EFAULT);
    }
    let Some(pieces) = program::pieces(start, old.min(new)) else {
        return refused(libc::EFAULT);
    };
    let fixed = flags.contains(FIXED);
    if !fixed && new > old {
        let more = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: where nothing is mapped.
        let grown =
            unsafe { rustix::mm::mmap_anonymous((start + old) as _, new - old, PROT, more) };
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
        unsafe { rustix::mm::mmap_anonymous(at as _, new, PROT, MapFlags::PRIVATE | place) };
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
