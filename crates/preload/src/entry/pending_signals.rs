//! Signals that are kept back until their thread leaves ([`deliver`]; what keeps them back and when
//! is said in [`crate::entry::thread`] and by the room of signals), and the system calls for masks,
//! signal stacks and queued signals that all of this goes by.
//!
//! Invariant: while `PENDING` is set, no code writes the kept signal or the mask. No locks.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::siginfo_t;
use os::interrupt::system_call;

use crate::entry::thread::{OwnCode, PENDING, SENT, Thread};
use crate::entry::{errno, set_errno};
use crate::runtime::relocation;

/// A kept signal, as the kernel gave it.
pub type PendingSignal = siginfo_t;

/// The signals that faults raise.
pub const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// The signals that this library needs whatever the program blocks: of missing pages of mappings,
/// and of system calls that are made outside the C library.
pub const OWN: [c_int; 2] = [libc::SIGBUS, libc::SIGSYS];
/// Them as the kernel's mask.
pub const OWN_MASK: u64 = bit(OWN[0]) | bit(OWN[1]);

/// A signal in the kernel's mask.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// All signals but those of faults, as the kernel's mask.
pub const KEEPABLE: u64 = {
    let mut mask = u64::MAX;
    let mut index = 0;
    while index < FAULTS.len() {
        mask &= !bit(FAULTS[index]);
        index += 1;
    }
    mask
};

/// The first number of the signals that queue.
pub const REALTIME: c_int = 32;

/// Sets the calling thread's whole mask; gives the one before.
pub fn set_mask(mask: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, mask)
}

/// `sigprocmask` of the calling thread. A fault that is blocked ends the process: what has been put
/// off until its first fault is done before.
pub fn change_mask(how: c_int, mask: u64) -> u64 {
    if how != libc::SIG_UNBLOCK && mask & bit(libc::SIGSEGV) != 0 {
        relocation::finish();
    }
    let mut before = 0_u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    let arguments = [how as usize, new, old, size_of::<u64>(), 0, 0];
    let _own = OwnCode::new();
    // SAFETY: two words of the kernel's size. It does not fail.
    let _ = unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

pub const NO_STACK: libc::stack_t =
    libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

/// Tells the thread's signal stack, and sets another.
pub fn change_stack(new: Option<&libc::stack_t>) -> libc::stack_t {
    let mut before = NO_STACK;
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as usize);
    let arguments = [new, (&raw mut before) as usize, 0, 0, 0, 0];
    let _own = OwnCode::new();
    // SAFETY: structures of our own, here and in our callers.
    let _ = unsafe { system_call(libc::SYS_sigaltstack, arguments) };
    before
}

/// In a handler that has left the signal stack: sets it, or switches it off. Gives the one before.
pub fn set_stack(stack: Option<libc::stack_t>) -> libc::stack_t {
    change_stack(Some(&stack.unwrap_or(NO_STACK)))
}

/// In the handler of a fault: only faults arrive. Gives the mask before.
pub fn block_for_fault() -> u64 {
    set_mask(KEEPABLE)
}

/// The process ends: only faults arrive, of this library's own.
pub fn block_for_end() {
    change_mask(libc::SIG_BLOCK, KEEPABLE);
}

/// Sends a signal to the calling thread, with what the first sender said.
pub fn queue(signal: c_int, info: *const siginfo_t) {
    let _own = OwnCode::new();
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let arguments = [process, thread, signal as usize, info as usize, 0, 0];
    // SAFETY: numbers, and a whole structure.
    unsafe {
        if system_call(libc::SYS_rt_tgsigqueueinfo, arguments).is_err() {
            // No room in the queue: better without its value than lost.
            let _ = system_call(libc::SYS_tgkill, arguments);
        }
    }
}

/// Takes the next pending signal of this number, if there is one.
fn next_pending(signal: c_int) -> Option<PendingSignal> {
    let set = bit(signal);
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all zeros is a value of this plain structure, which the kernel fills in.
    unsafe {
        let mut kept: PendingSignal = std::mem::zeroed();
        let (set, kept_at) = ((&raw const set) as usize, (&raw mut kept) as usize);
        let arguments = [set, kept_at, (&raw const now) as usize, size_of::<u64>(), 0, 0];
        system_call(libc::SYS_rt_sigtimedwait, arguments).is_ok().then_some(kept)
    }
}

/// The thread has left: what was kept back is given now, by the kernel.
///
/// The handlers may come here again, and need not come back.
pub fn deliver(thread: &Thread) {
    let failed = errno();
    let restarts = thread.restarts.load(Ordering::Relaxed);
    let now = set_mask(u64::MAX);
    let flags = thread.flags.fetch_and(!(PENDING | SENT), Ordering::Relaxed);
    let mut mask = now;
    if flags & PENDING != 0 {
        mask = thread.mask.load(Ordering::Relaxed);
        // SAFETY: the thread's own record, and everything is blocked.
        queue_first(unsafe { &*thread.kept.get() });
    }
    if flags & SENT != 0 {
        // SAFETY: as above; all zeros are no signals.
        let sent = unsafe { thread.sent.get().replace(std::mem::zeroed()) };
        for kept in sent.iter().filter(|kept| kept.si_signo != 0) {
            queue(kept.si_signo, kept);
        }
    }
    // The handlers run in here.
    set_mask(mask);
    // For the interrupted call; the handlers' own calls may have changed it.
    thread.restarts.store(restarts, Ordering::Relaxed);
    set_errno(failed);
}

/// Queues a kept signal in front of those of its number that came after it.
fn queue_first(kept: &PendingSignal) {
    let signal = kept.si_signo;
    let mut later = Vec::new();
    while signal >= REALTIME
        && let Some(next) = next_pending(signal)
    {
        later.push(next);
    }
    queue(signal, kept);
    for next in &later {
        queue(signal, next);
    }
}
