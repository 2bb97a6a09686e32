//! The signal mask: `sigprocmask`, `pthread_sigmask`.
//!
//! A program that blocks SIGBUS means signals that are sent: the kernel ends it at a fault in which the
//! signal is blocked. But missing pages of mappings come by that signal (see [`crate::touched`]), and a fork
//! is asked for its locks by it. So the kernel's mask never has it: the thread's record says whether the
//! program has blocked it, the program is told so, and one that is sent meanwhile waits there until
//! it is unblocked.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::entry::{Answer, Served, interpose, outside};
use crate::pointers::Out;
use crate::signal;
use crate::thread::here;

type Mask = u64;

/// SIGBUS in the kernel's mask.
const BUS: Mask = 1 << (libc::SIGBUS - 1);

/// A mask call: `kernel` gets what the kernel is to hear of it.
fn change<T: Answer>(
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

interpose! {
    fn [sigprocmask](how: c_int, new: Out<Mask>, old: Out<Mask>) -> c_int = |_, kernel| {
        change(how, new, old, |new, old| kernel(how, new, old), 0)
    }
    fn [pthread_sigmask](how: c_int, new: Out<Mask>, old: Out<Mask>) -> c_int = |_, kernel| {
        // Gives its error as its value.
        change(how, new, old, |new, old| kernel(how, new, old), 0)
    }
}
