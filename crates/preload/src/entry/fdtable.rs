//! The table of the process's descriptors that stand for files of the volume: "ours".
//!
//! A descriptor of ours is a real kernel number, held by a *placeholder*: a duplicate of one
//! descriptor of nothing (`descriptors/placeholder.rs`). So the number is the lowest free one, poll
//! says ready, `FD_CLOEXEC` lives in the kernel, and a call that slips past us fails loudly
//! (`EBADF`, `ENOTDIR`). The table says which open file description each number stands for.
//!
//! Invariant: a slot is set only while its number is a placeholder; it is cleared before the number
//! is given back, and says so while the number is cached (see [`cached`]). Lookups are lock-free:
//! one load. A thread that changes slots holds the process's structure lock (see
//! [`crate::entry::process::Process`]). A stale description is refused by the engine.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use os::InternalFd;
use vfs::{Desc, Errno};

use crate::entry::Stop;
use crate::entry::attachment;
use crate::entry::cached_fd;
use crate::entry::hooks;

/// Descriptors at and beyond this number are never ours.
pub const NUMBERS_MAX: usize = 1 << 20;

const USED: u64 = 1 << 63;
/// Some other number may stand for the same description.
const SHARED: u64 = 1 << 62;
/// The whole word of an internal number, which the program must not see.
const HIDDEN: u64 = 1 << 61;
/// The number is in hand-over form: it is one of a carrier.
const HANDED: u64 = 1 << 60;
/// The whole word, but for the next bit, of the cached number (see [`cached`]).
const CACHED: u64 = 1 << 59;
/// Of a plain or cached number: it is close-on-exec.
const CLOEXEC: u64 = 1 << 58;
/// The number was the lowest free one when it was taken, while the kernel closed none, and its flag
/// has not changed since.
const PLAIN: u64 = 1 << 57;

const _: () = assert!(PLAIN >= 1 << Desc::BITS);

static SLOTS: [AtomicU64; NUMBERS_MAX] = [const { AtomicU64::new(0) }; NUMBERS_MAX];
/// No slot beyond this number was ever used.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// The internal descriptor whose duplicates are placeholders, made for the first of them.
static PLACEHOLDER: OnceLock<InternalFd> = OnceLock::new();

fn slot(fd: c_int) -> Option<&'static AtomicU64> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

const fn pack(desc: Desc) -> u64 {
    // A generation that an environment made up may be longer.
    USED | Desc::of_word(desc.word()).word()
}

const fn unpack(word: u64) -> Option<Desc> {
    if word & USED == 0 {
        return None;
    }
    Some(Desc::of_word(word))
}

/// The descriptor that placeholders duplicate, if it has been made.
pub fn placeholder() -> Option<&'static InternalFd> {
    PLACEHOLDER.get()
}

/// Makes it. Structure lock held.
#[cold]
fn make_placeholder() -> Result<&'static InternalFd, Errno> {
    let process = attachment::process().ok_or(Errno::BADF)?;
    let made = (hooks::get().placeholder)(process)?;
    hide(made.as_raw_fd());
    Ok(PLACEHOLDER.get_or_init(|| made))
}

/// The description that `fd` stands for; `None`: not ours.
#[inline]
pub fn get(fd: c_int) -> Option<Desc> {
    let word = slot(fd)?.load(Ordering::Acquire);
    if word & USED == 0 {
        return not_ours(word);
    }
    unpack(word)
}

/// Whether `fd` is neither ours nor hidden nor cached.
#[inline]
pub fn is_kernels(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Acquire) == 0)
}

#[cold]
fn not_ours(word: u64) -> Option<Desc> {
    if word & CACHED != 0 {
        // For the program it is closed: now it is for the kernel, too.
        cached_fd::give_back();
    }
    None
}

/// The description behind a number of ours; otherwise the kernel serves the call. The internal
/// numbers are not open as far as the program can tell.
#[inline]
pub fn ours(fd: c_int) -> Result<Desc, Stop> {
    get(fd).ok_or_else(|| if is_hidden(fd) { Stop::Errno(Errno::BADF) } else { Stop::Kernel })
}

/// As [`ours`], with the structure lock held.
pub fn ours_held(fd: c_int) -> Result<Desc, Stop> {
    let word = slot(fd).map_or(0, |slot| slot.load(Ordering::Relaxed));
    if word & CACHED != 0 { Err(Stop::Errno(Errno::BADF)) } else { ours(fd) }
}

/// Hides an internal number from the program for ever.
pub fn hide(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(HIDDEN, Ordering::Release);
    }
}

/// The program has put something else at an internal number.
pub fn show(fd: c_int) {
    if is_hidden(fd)
        && let Some(slot) = slot(fd)
    {
        slot.store(0, Ordering::Release);
    }
}

/// Whether `fd` is hidden.
#[inline]
pub fn is_hidden(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Relaxed) == HIDDEN)
}

/// A borrowed form for system calls on a number that the program owns.
pub fn borrow(fd: c_int) -> BorrowedFd<'static> {
    // What a program says may be any number: of those that are none, -1 is the one that the type
    // does not take.
    let fd = if fd == -1 { c_int::MIN } else { fd };
    // SAFETY: used for one call; if the program closes it meanwhile, or it is no number of a file,
    // the kernel says EBADF. Internal ones are valid for ever.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// As [`borrow`], for a directory that may also be `AT_FDCWD`.
pub fn borrow_directory(fd: c_int) -> BorrowedFd<'static> {
    if fd == libc::AT_FDCWD { rustix::fs::CWD } else { borrow(fd.max(0)) }
}

/// As [`borrow`], for a number that the program passed: `EBADF` if it is negative.
pub fn borrow_checked(fd: c_int) -> Result<BorrowedFd<'static>, Errno> {
    if fd < 0 { Err(Errno::BADF) } else { Ok(borrow(fd)) }
}

/// Takes the lowest free number from `min` on for `desc`. Structure lock held.
pub fn install(desc: Desc, min: c_int, cloexec: bool) -> Result<c_int, Errno> {
    let fd = reserve(min, cloexec)?;
    set_reserved(fd, desc);
    Ok(fd)
}

/// Makes the lowest free number from `min` on a placeholder that stands for nothing yet. Structure
/// lock held.
pub fn reserve(min: c_int, cloexec: bool) -> Result<c_int, Errno> {
    if min != 0 {
        cached_fd::give_back_held();
    } else if let Some(fd) = cached_fd::take(cloexec) {
        return Ok(fd);
    }
    let quiet = cached_fd::is_quiet();
    let placeholder = PLACEHOLDER.get().map_or_else(make_placeholder, Ok)?.as_fd();
    let new: OwnedFd = if cloexec {
        rustix::io::fcntl_dupfd_cloexec(placeholder, min)?
    } else {
        dup_plain(placeholder, min)?
    };
    let fd = new.into_raw_fd();
    if fd as usize >= NUMBERS_MAX {
        close_number(fd);
        return Err(Errno::MFILE);
    }
    cached_fd::given(fd);
    raise_highest(fd);
    let plain = if min == 0 && quiet {
        cached_fd::lowest_was(fd);
        PLAIN
    } else {
        0
    };
    restore(fd, plain | if cloexec { CLOEXEC } else { 0 });
    Ok(fd)
}

/// Gives a number back. Structure lock held.
pub fn release(fd: c_int) {
    cached_fd::closes(fd);
    restore(fd, 0);
    close_number(fd);
}

/// Reserves the cached number; `false`: it has the other close-on-exec flag.
#[inline]
pub fn uncache(fd: c_int, cloexec: bool) -> bool {
    let Some(slot) = slot(fd) else { return false };
    let flag = slot.load(Ordering::Relaxed) & CLOEXEC;
    if (flag != 0) != cloexec {
        return false;
    }
    slot.store(PLAIN | flag, Ordering::Relaxed);
    true
}

/// `F_DUPFD`: the duplicate is inherited by exec.
pub fn dup_plain(fd: BorrowedFd<'_>, min: c_int) -> Result<OwnedFd, Errno> {
    if min == 0 {
        return rustix::io::dup(fd);
    }
    let new = rustix::io::fcntl_dupfd_cloexec(fd, min)?;
    rustix::io::fcntl_setfd(&new, rustix::io::FdFlags::empty())?;
    Ok(new)
}

/// Says that `fd`, which was reserved, stands for `desc`. Structure lock held.
#[inline]
pub fn set_reserved(fd: c_int, desc: Desc) {
    if let Some(slot) = slot(fd) {
        let form = slot.load(Ordering::Relaxed) & (PLAIN | CLOEXEC);
        slot.store(pack(desc) | form, Ordering::Release);
    }
}

/// The program changes the flag of `fd` past the table.
pub fn flag_changes(fd: c_int) {
    if let Some(slot) = slot(fd)
        && slot.load(Ordering::Relaxed) & PLAIN != 0
    {
        slot.fetch_and(!PLAIN, Ordering::Relaxed);
    }
}

/// As [`flag_changes`], for a range, also for what is reserved. Structure lock held.
pub fn flags_change(first: c_uint, last: c_uint) {
    let highest = HIGHEST.load(Ordering::Relaxed);
    for fd in first..=last.min(u32::try_from(highest).unwrap_or(0)) {
        flag_changes(fd as c_int);
    }
}

/// Says that `fd`, a placeholder, stands for `desc`. Structure lock held.
pub fn set(fd: c_int, desc: Desc, shared: bool) {
    if let Some(slot) = slot(fd) {
        raise_highest(fd);
        slot.store(pack(desc) | if shared { SHARED } else { 0 }, Ordering::Release);
    }
}

/// A slot of this number is in use from now on. Structure lock held.
fn raise_highest(fd: c_int) {
    if HIGHEST.load(Ordering::Relaxed) < fd {
        HIGHEST.store(fd, Ordering::Release);
    }
}

/// Puts `new` where `old` stands: at no moment between does it stand for nothing. Gives the word
/// that stood there, for [`restore`] and [`description_of`]. Structure lock held.
pub fn duplicate(old: c_int, new: c_int) -> u64 {
    set_shared(old);
    raise_highest(new);
    let word = slot(old).map_or(0, |slot| slot.load(Ordering::Relaxed)) & !PLAIN;
    slot(new).map_or(0, |slot| slot.swap(word, Ordering::AcqRel))
}

/// Undoes [`duplicate`]: the number could not be had. Structure lock held.
pub fn restore(fd: c_int, word: u64) {
    if let Some(slot) = slot(fd) {
        slot.store(word, Ordering::Release);
    }
}

/// The description in a word.
pub fn description_of(word: u64) -> Option<Desc> {
    unpack(word)
}

/// Says that `fd` is in hand-over form. Structure lock held.
pub fn set_handed(fd: c_int) {
    flag_changes(fd);
    if let Some(slot) = slot(fd) {
        slot.fetch_or(HANDED, Ordering::AcqRel);
    }
}

/// Whether `fd` is in hand-over form.
pub fn is_handed(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Relaxed) & (USED | HANDED) == USED | HANDED)
}

/// Marks the description of `fd` as reachable by several numbers. Structure lock held.
pub fn set_shared(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.fetch_or(SHARED, Ordering::AcqRel);
    }
}

/// Before the kernel closes a number that is not ours, which is announced. Structure lock held.
#[cold]
pub fn closed_by_kernel(fd: c_int) -> Result<(), Errno> {
    if slot(fd).is_some_and(|slot| slot.load(Ordering::Relaxed) & CACHED != 0) {
        return Err(Errno::BADF);
    }
    // Another thread may have it reserved.
    flag_changes(fd);
    cached_fd::closes(fd);
    cached_fd::announce();
    Ok(())
}

/// Closes `fd`, or caches it. Gives its description and whether this was the last number for it.
/// Structure lock held.
#[inline]
pub fn close(fd: c_int) -> Option<(Desc, bool)> {
    let slot = slot(fd)?;
    let word = slot.load(Ordering::Relaxed);
    let desc = unpack(word)?;
    if word & PLAIN != 0 && cached_fd::keep(fd) {
        slot.store(CACHED | word & CLOEXEC, Ordering::Release);
    } else {
        release(fd);
    }
    Some((desc, word & SHARED == 0 || !holds(desc)))
}

/// Clears `fd`'s slot. Gives its description and whether this was the last number for it. Structure
/// lock held.
pub fn clear(fd: c_int) -> Option<(Desc, bool)> {
    let slot = slot(fd)?;
    let word = slot.load(Ordering::Relaxed);
    let desc = unpack(word)?;
    slot.store(0, Ordering::Release);
    let last = word & SHARED == 0 || !holds(desc);
    Some((desc, last))
}

/// Whether some number stands for `desc`. Structure lock held.
pub fn holds(desc: Desc) -> bool {
    all().any(|(_, other)| other == desc)
}

/// All numbers of ours. Consistent only under the structure lock.
pub fn all() -> impl Iterator<Item = (c_int, Desc)> {
    let word = |fd| Some(slot(fd)?.load(Ordering::Acquire));
    (0..=HIGHEST.load(Ordering::Acquire)).filter_map(move |fd| Some((fd, unpack(word(fd)?)?)))
}

/// Gives a number back to the kernel.
pub fn close_number(fd: c_int) {
    // SAFETY: the number is a placeholder that the table no longer lists.
    unsafe { rustix::io::close(fd) };
}
