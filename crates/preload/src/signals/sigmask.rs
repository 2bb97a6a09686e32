//! The signal mask: `sigprocmask`, `pthread_sigmask` and their old kin, that of new threads, and
//! the calls that wait with another one or for signals that are blocked.
//!
//! A program that blocks SIGBUS means signals that are sent: at a fault with the signal blocked,
//! the kernel ends it. But missing pages of mappings need that signal (see
//! [`crate::mappings::page_faults`]), and so does asking a fork for its locks. So the kernel's mask
//! never has it: the thread's record says whether the program has blocked it, the program is told
//! so, and one that is sent meanwhile waits there until it is unblocked. Only while a thread waits
//! for signals, and touches nothing, the kernel has it blocked, too: then it keeps those that are
//! sent, and gives them as it gives others.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use vfs::Errno;

use crate::entry::pointers::Out;
use crate::entry::thread::here;
use crate::entry::{Answer, Inside, Served, Stop, outside};
use crate::signals::signal;

pub type Mask = u64;

/// SIGBUS in the kernel's mask.
const BUS: Mask = 1 << (libc::SIGBUS - 1);

/// A mask call: `kernel` gets what the kernel is to hear of it.
pub fn change<T: Answer>(
    how: c_int,
    new: Out<Mask>,
    old: Out<Mask>,
    kernel: impl FnOnce(Out<Mask>, Out<Mask>) -> T,
    done: T,
) -> Served<T> {
    let wanted = new.get()?;
    // glibc's structure is larger than the kernel's mask.
    let (mut given, mut found) = ([0; 16], [0; 16]);
    // Unblocking goes through: in a handler of SIGBUS the kernel has blocked it itself.
    let hidden = if how == libc::SIG_UNBLOCK { 0 } else { BUS };
    given[0] = wanted.map_or(0, |mask| mask & !hidden);
    let given = if wanted.is_some() { given.as_mut_ptr() } else { std::ptr::null_mut() };
    let result = outside(|| kernel(Out(given), Out(found.as_mut_ptr())));
    if result != done {
        return Ok(result);
    }
    let thread = here();
    let before = thread.blocks_bus.load(Ordering::Relaxed);
    if !old.is_null() {
        old.put(found[0] | if before { BUS } else { 0 })?;
    }
    let Some(wanted) = wanted else { return Ok(result) };
    let blocks = match how {
        libc::SIG_SETMASK => wanted & BUS != 0,
        libc::SIG_BLOCK => before || wanted & BUS != 0,
        _ => before && wanted & BUS == 0,
    };
    thread.blocks_bus.store(blocks, Ordering::Relaxed);
    if before && !blocks {
        outside(|| signal::give_held(thread));
    }
    Ok(result)
}

/// While it lives the kernel has SIGBUS blocked, with the one that was sent.
struct Blocked;

impl Blocked {
    fn new() -> Self {
        signal::set_bus_blocked(true);
        signal::give_held(here());
        Self
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        signal::set_bus_blocked(false);
    }
}

/// A call that asks or waits for signals which are blocked.
pub fn with_blocked<T>(call: impl FnOnce() -> T) -> Served<T> {
    if !here().blocks_bus.load(Ordering::Relaxed) {
        return Err(Stop::Kernel);
    }
    Ok(outside(|| {
        let _blocked = Blocked::new();
        call()
    }))
}

/// A call that waits with another mask: `kernel` gets it without SIGBUS.
pub fn with_mask<T>(mask: Out<Mask>, kernel: impl FnOnce(Out<Mask>) -> T) -> Served<T> {
    let wanted = mask.get()?.ok_or(Stop::Kernel)?;
    let thread = here();
    let (before, during) = (thread.blocks_bus.load(Ordering::Relaxed), wanted & BUS != 0);
    if !before && !during {
        return Err(Stop::Kernel);
    }
    let mut given: [Mask; 16] = [0; 16];
    given[0] = wanted & !BUS;
    let call = || kernel(Out(given.as_mut_ptr()));
    let result = outside(|| {
        // One that was sent arrives when the wait has begun.
        let _blocked = (!during).then(Blocked::new);
        let _restored = Restored(before);
        thread.blocks_bus.store(during, Ordering::Relaxed);
        call()
    });
    Ok(result)
}

/// Whether SIGBUS is blocked, for when the wait is over.
struct Restored(bool);

impl Drop for Restored {
    fn drop(&mut self) {
        here().blocks_bus.store(self.0, Ordering::Relaxed);
    }
}

/// BSD's masks: those of the first 32 signals. Gives the one before.
pub fn change_old(how: c_int, mask: c_int) -> c_int {
    let (mut new, mut old): ([Mask; 16], [Mask; 16]) = ([0; 16], [0; 16]);
    new[0] = Mask::from(mask.cast_unsigned());
    // SAFETY: masks of our own.
    outside(|| unsafe { libc::sigprocmask(how, new.as_ptr().cast(), old.as_mut_ptr().cast()) });
    old[0] as c_int
}

/// System V's: one signal.
pub fn change_one(how: c_int, signal: c_int) -> Served<c_int> {
    if !(1..=64).contains(&signal) {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let mut set: [Mask; 16] = [0; 16];
    set[0] = 1 << (signal - 1);
    // SAFETY: a mask of our own.
    Ok(outside(|| unsafe { libc::sigprocmask(how, set.as_ptr().cast(), std::ptr::null_mut()) }))
}

/// What a thread begins with whose parent has blocked SIGBUS.
struct ThreadStart {
    start: Start,
    argument: *mut c_void,
}

pub type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Makes a thread by `create` that begins with SIGBUS blocked.
pub fn born_blocked(
    start: Start,
    argument: *mut c_void,
    create: impl FnOnce(Start, *mut c_void) -> c_int,
) -> c_int {
    let born = Box::into_raw(Box::new(ThreadStart { start, argument }));
    let result = outside(|| create(begin, born.cast()));
    if result != 0 {
        // SAFETY: there is no thread that it was made for.
        drop(unsafe { Box::from_raw(born) });
    }
    result
}

extern "C-unwind" fn begin(born: *mut c_void) -> *mut c_void {
    // SAFETY: made for this thread.
    let born = unsafe {
        let _inside = Inside::new();
        *Box::from_raw(born.cast::<ThreadStart>())
    };
    here().blocks_bus.store(true, Ordering::Relaxed);
    (born.start)(born.argument)
}
