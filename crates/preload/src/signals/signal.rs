//! Signals on their way to the program's handlers.
//!
//! A handler of the program's never runs while its thread is inside: so it may read, write, lock,
//! fork, `longjmp` or end the thread. Where the program has a handler, the kernel has ours:
//! [`arrive`]. Outside, it calls the program's in its own frame, so that mask, stack, `siginfo` and
//! context are the real ones. Inside, it keeps the signal back: it stores it in the thread's record
//! and returns with everything blocked but faults. When the thread leaves, [`deliver`] queues the
//! signal to the thread once more and restores the mask: then the kernel delivers it for the second
//! time. A thread that waits in our code is woken (see [`os::interrupt`]).
//!
//! Faults of the program are given at once, in the frame of the fault. SIGSEGV and SIGBUS always
//! come here first, because guarded copies raise them too; where the kernel is to act, the fault is
//! let happen again.
//!
//! Invariant: while `PENDING` is set, no code writes the kept signal or the mask. No locks:
//! handlers find their handler in [`crate::signals::sigaction`] by one load.

use ddmap::Pagers;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::siginfo_t;
use os::interrupt::{Watched, redirect, watch};

use crate::entry::cancel;
use crate::entry::pending_signals::{
    FAULTS, KEEPABLE, OWN, OWN_MASK, bit, change_mask, change_stack, queue, set_mask,
};
use crate::entry::thread::{CANCELLED, OwnCode, PENDING, SENT, Thread, here};
use crate::mappings::page_faults;
use crate::runtime::{guest, relocation};
use crate::signals::altstack::AUTODISARM;
use crate::signals::{passing, sigaction};

/// A handler as the kernel calls it; one that takes only the number ignores the rest.
pub type Handler = guest::Handler;

guest::guest_handler!(pub fn arriving, "solera_guest_arrive" => arrive);

/// The mask in a handler's context, which the thread gets when the handler returns: the kernel's
/// 8 bytes of it.
fn mask_of(context: *mut c_void) -> *mut u64 {
    // SAFETY: the kernel's context of this handler.
    unsafe { (&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast() }
}

/// The kernel's handler of every signal that the program handles, and of SIGSEGV and SIGBUS.
pub extern "C-unwind" fn arrive(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if guest::is_here() {
        // SAFETY: the kernel's context of this handler.
        unsafe { passing::back_to_guest(context) };
    }
    let mut own = OwnCode::interrupting();
    // SAFETY: the kernel called us with these.
    let code = unsafe { (*info).si_code };
    let fault = FAULTS.iter().position(|&fault| fault == signal);
    if fault.is_some() && code > 0 {
        // SAFETY: as above.
        if relocation::touched(unsafe { (*info).si_addr() } as usize) {
            return;
        }
        // SAFETY: as above.
        if unsafe { pmem::handle_fault(signal, info, context) } {
            return;
        }
        if signal == libc::SIGBUS {
            // SAFETY: as above.
            let (address, stores) = unsafe { touch_of(info, context) };
            match page_faults::serve(address, stores) {
                Ok(()) => return,
                Err(Some(reason)) if !sigaction::has_handler(signal) => tell(reason.as_bytes()),
                Err(_) => {}
            }
        }
        // SAFETY: as above.
        if signal == libc::SIGSEGV && unsafe { was_placed(info, context) } {
            return;
        }
        // SAFETY: as above.
        unsafe { pmem::stray::explain(info, context, tell) };
        return give(signal, info, context, &mut own);
    }
    let thread = here();
    if thread.blocks.load(Ordering::Relaxed) & bit(signal) != 0
        && let Some(index) = OWN.iter().position(|&own| own == signal)
    {
        // SAFETY: the thread's own record, and the kernel's information.
        return unsafe { (*thread.held.get())[index] = info.read() };
    }
    if !thread.is_inside() {
        // The handler may end the thread.
        // SAFETY: the kernel's context of this handler.
        unsafe { cancel::go_to_entry(context) };
        return give(signal, info, context, &mut own);
    }
    match fault {
        Some(index) => keep_sent(thread, index, info),
        // `abort`, called by our own code, has unblocked it.
        None if signal == libc::SIGABRT && thread.flags.load(Ordering::Relaxed) & PENDING != 0 => {
            return give(signal, info, context, &mut own);
        }
        None => keep(thread, info, context),
    }
    // SAFETY: the kernel's context of this handler.
    unsafe { redirect(context) };
}

/// Where a fault was, and whether by a store.
///
/// # Safety
///
/// The arguments are the kernel's, of a fault.
unsafe fn touch_of(info: *mut siginfo_t, context: *mut c_void) -> (usize, bool) {
    // SAFETY: as the caller says.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        ((*info).si_addr() as usize, pmem::stray::is_store(registers))
    }
}

/// Whether a fault was of a piece of a mapping that another thread was about to place.
///
/// # Safety
///
/// The arguments are the kernel's, of a SIGSEGV.
unsafe fn was_placed(info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: as the caller says.
    let (address, stores) = unsafe { touch_of(info, context) };
    page_faults::was_placed(address, stores)
}

/// Reports a fault on standard error; only the first ones, since a program may go on after each.
fn tell(text: &[u8]) {
    if TOLD.fetch_add(1, Ordering::Relaxed) >= TOLD_MAX {
        return;
    }
    let failed = crate::entry::errno();
    // Nothing is done about a message that cannot be written.
    if on_small_stack() {
        let _ = rustix::io::write(crate::entry::fdtable::borrow(2), text);
    } else {
        // SAFETY: a whole text. In the program's own way: it may be a file on the volume. If our
        // own code has faulted, this goes to the kernel.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    crate::entry::set_errno(failed);
}

/// Whether the thread stands on a signal stack that may be too small for the engine.
fn on_small_stack() -> bool {
    let stack = change_stack(None);
    stack.ss_flags & libc::SS_ONSTACK != 0 && stack.ss_size < STACK_BYTES
}

const STACK_BYTES: usize = 64 << 10;

/// How many stray accesses are reported.
const TOLD_MAX: u32 = 4;
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Keeps a signal back. If one is kept already, that came at the same time: it was handled on top
/// of this one's frame, so this one's mask is the thread's; and this one is queued again at once.
fn keep(thread: &Thread, info: *mut siginfo_t, context: *mut c_void) {
    // Another could come until here, and be handled; from here on none comes.
    set_mask(u64::MAX);
    let another = thread.flags.load(Ordering::Relaxed) & PENDING != 0;
    let mask = mask_of(context);
    // SAFETY: the kernel's information and context, and the thread's own record, which no handler
    // reads while everything is blocked.
    let signal = unsafe {
        thread.mask.store(mask.read(), Ordering::Relaxed);
        mask.write(mask.read() | KEEPABLE);
        if !another {
            thread.kept.get().write(info.read());
        }
        (*info).si_signo
    };
    // The first to be delivered decides, as in the kernel.
    thread.restarts.store(sigaction::restarts(signal), Ordering::Relaxed);
    if another {
        queue(signal, info);
    }
    thread.flags.fetch_or(PENDING, Ordering::Relaxed);
}

/// A fault's signal that was sent: it cannot be blocked, so it has a place of its own. A second one
/// before the first is given is lost, as with any signal that is pending already.
fn keep_sent(thread: &Thread, index: usize, info: *mut siginfo_t) {
    // SAFETY: the thread's own record.
    let kept = unsafe { &mut (*thread.sent.get())[index] };
    if kept.si_signo != 0 {
        return;
    }
    // SAFETY: the kernel's information.
    *kept = unsafe { info.read() };
    thread.restarts.store(sigaction::restarts(kept.si_signo), Ordering::Relaxed);
    thread.flags.fetch_or(SENT, Ordering::Relaxed);
}

/// Calls the program's handler, or does what the kernel would do without one. `own`: what the
/// signal has interrupted.
fn give(signal: c_int, info: *mut siginfo_t, context: *mut c_void, own: &mut OwnCode) {
    let adds = sigaction::mask_of_handler(signal);
    match sigaction::take(signal) {
        libc::SIG_DFL | libc::SIG_IGN => without_handler(signal, info),
        handler => {
            // SAFETY: the program installed this address as a handler; on this machine one that
            // takes fewer arguments may be called with all.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            let thread = here();
            if adds != 0 {
                set_blocked(adds, true);
            }
            let blocked = thread.blocks.load(Ordering::Relaxed);
            if blocked != 0 && !FAULTS.contains(&signal) {
                // A wait for signals may have them in the kernel's mask, which the return brings
                // back.
                unblock(blocked);
            }
            let held = Pagers::any().then(Pagers::set_aside);
            let passes_next = thread.passes_next.swap(false, Ordering::Relaxed);
            let caller = thread.caller.swap(0, Ordering::Relaxed);
            // SAFETY: the kernel's context of this handler.
            let disarmed = unsafe { disarm(thread, context) };
            let programs = OwnCode::not();
            let mut is_left = false;
            if guest::is_here() {
                // Not from under a lock, nor in a fault.
                let may_leave = !thread.is_inside() && !FAULTS.contains(&signal);
                // SAFETY: the kernel's context of this handler.
                let shown = unsafe { passing::Shown::new(context, may_leave) };
                guest::call(handler, signal, info, context);
                is_left = shown.is_some_and(|shown| shown.take_back(signal));
            } else {
                handler(signal, info, context);
            }
            drop(programs);
            for (word, before) in thread.disarmed.iter().zip(disarmed) {
                word.store(before, Ordering::Relaxed);
            }
            thread.passes_next.store(passes_next, Ordering::Relaxed);
            thread.caller.store(if is_left { 0 } else { caller }, Ordering::Relaxed);
            if is_left {
                own.leave();
            }
            if let Some(held) = held {
                Pagers::take_back(held);
            }
            // The mask is what it was before the handler; those of ours are not in the kernel's.
            if thread.blocks.swap(blocked, Ordering::Relaxed) & !blocked != 0 {
                give_held(thread);
            }
        }
    }
}

/// The handler of the program's may stand on a signal stack that the kernel switches off meanwhile:
/// its calls are to know that they come from there. Gives what was known of one before.
///
/// # Safety
///
/// The kernel's context of the handler that runs.
unsafe fn disarm(thread: &Thread, context: *mut c_void) -> [usize; 2] {
    // SAFETY: as the caller says.
    let stack = unsafe { (*context.cast::<libc::ucontext_t>()).uc_stack };
    let known = thread.disarmed.each_ref().map(|word| word.load(Ordering::Relaxed));
    if stack.ss_flags & AUTODISARM != 0 && stack.ss_size != 0 {
        let is = [stack.ss_sp as usize, stack.ss_size];
        for (word, is) in thread.disarmed.iter().zip(is) {
            word.store(is, Ordering::Relaxed);
        }
    }
    known
}

/// SIGSEGV or SIGBUS where the program has no handler (or has just lost a one-shot one).
fn without_handler(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: the kernel's information.
    let sent = unsafe { (*info).si_code } <= 0;
    if sent && sigaction::is_ignored(signal) {
        return;
    }
    // A fault happens again when we return, and ends the process as it should; an ignored one too.
    // The call that a filter has caught is over.
    sigaction::make_default(signal);
    if sent || signal == libc::SIGSYS || !FAULTS.contains(&signal) {
        queue(signal, info);
    }
}

/// Unblocks the signals that this library needs, if the image before this one had blocked them, or
/// a system call of the program has.
pub fn admit_own() {
    let blocked = unblock(OWN_MASK);
    here().blocks.fetch_or(blocked, Ordering::Relaxed);
}

/// As [`admit_own`], where it is not the program that has blocked them (we around a spawn, the
/// kernel in its handler); gives which were blocked.
pub fn unblock(signals: u64) -> u64 {
    change_mask(libc::SIG_UNBLOCK, signals) & signals
}

/// Where the C library has blocked all signals: the faults that our own code serves arrive. Gives
/// the mask before.
pub fn admit_faults() -> u64 {
    change_mask(libc::SIG_UNBLOCK, OWN_MASK | bit(libc::SIGSEGV))
}

/// Around an exec: the kernel blocks those of ours that the program has blocked, for the new image.
pub fn block_own(blocks: bool) {
    let blocked = here().blocks.load(Ordering::Relaxed);
    if blocked != 0 {
        set_blocked(blocked, blocks);
    }
}

/// Lets the kernel block signals, or not.
pub fn set_blocked(signals: u64, blocks: bool) {
    change_mask(if blocks { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK }, signals);
}

/// The program has unblocked signals of ours: what was sent meanwhile arrives.
pub fn give_held(thread: &Thread) {
    let blocked = thread.blocks.load(Ordering::Relaxed);
    for (index, signal) in OWN.into_iter().enumerate() {
        if blocked & bit(signal) == 0 {
            // SAFETY: the thread's own record; all zeros are no signal.
            let held = unsafe {
                let place = &raw mut (*thread.held.get())[index];
                place.replace(std::mem::zeroed())
            };
            if held.si_signo != 0 {
                queue(held.si_signo, &raw const held);
            }
        }
    }
}

/// In a forked child: kept signals are the parent's, which gets them.
pub fn forked() {
    let thread = here();
    // SAFETY: the thread's own record; all zeros are no signals.
    unsafe { thread.held.get().write(std::mem::zeroed()) };
    let flags = thread.flags.fetch_and(!(PENDING | SENT), Ordering::Relaxed);
    if flags & SENT != 0 {
        // SAFETY: the thread's own record; all zeros are no signals.
        unsafe { thread.sent.get().write(std::mem::zeroed()) };
    }
    if flags & PENDING != 0 {
        set_mask(thread.mask.load(Ordering::Relaxed));
    }
}

/// What ends a wait of the calling thread.
fn watched() -> Watched {
    let word = &here().flags;
    Watched { word, urgent: PENDING | SENT, idle: CANCELLED }
}

/// Before the volume is attached: from here on faults come to us.
pub fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    pmem::own_fault_handler();
    pmem::supply_pages_by(page_faults::supply);
    sigaction::start();
    admit_own();
    watch(watched);
}
