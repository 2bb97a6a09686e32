//! The program's signal actions: `sigaction`, `signal` and their kin.
//!
//! Where the program has a handler the kernel has [`signal::arrive`] with the program's own flags
//! and mask, but for these: `SA_SIGINFO` is always set, and `SA_RESETHAND` never (a signal that is
//! kept back arrives twice), so a one-shot handler is taken away here; SIGBUS is not in the mask
//! (see [`crate::mappings::page_faults`]). For SIGSEGV and SIGBUS the kernel always has ours.
//! Everything else, `SIG_IGN` above all, is set as it is, and a new image inherits it. The program
//! is always told its own action.
//!
//! Locks: `ACTIONS`, under which nothing is waited for and no signal arrives. `fork` takes it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::sigaction as Action;
use vfs::Errno;

use crate::entry::lock::{Guard, Lock};
use crate::entry::pointers::Out;
use crate::entry::thread::{Inside, outside};
use crate::entry::{Answer, Real, Served, Stop};
use crate::signals::signal::{self, Handler};

/// Signal numbers are below this.
const NUMBERS: usize = 65;
/// Shown for every action that the C library has set.
const SA_RESTORER: c_int = 0x0400_0000;
/// The flags that the kernel keeps.
const KNOWN: c_int = libc::SA_NOCLDSTOP
    | libc::SA_NOCLDWAIT
    | libc::SA_SIGINFO
    | 0x800 // SA_EXPOSE_TAGBITS
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER
    | libc::SA_RESETHAND
    | SA_RESTORER;

/// One for each number.
pub type Actions = [Action; NUMBERS];

/// The program's actions, where the kernel has ours.
static ACTIONS: Lock<Actions> = {
    // SAFETY: all zeros is a value of this plain structure: the default action.
    Lock::new([unsafe { std::mem::zeroed() }; NUMBERS])
};
/// The handler to call when a signal arrives: the last real one, or for SIGSEGV and SIGBUS the
/// present action. Written under the lock.
static HANDLERS: [AtomicUsize; NUMBERS] = [const { AtomicUsize::new(0) }; NUMBERS];
/// Its flags.
static FLAGS: [AtomicI32; NUMBERS] = [const { AtomicI32::new(0) }; NUMBERS];
/// The signals whose handlers `signal` sets without `SA_RESTART`, by `siginterrupt`.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// The lock; for `fork`, which holds it so that the child never finds it held.
pub fn lock() -> Guard<'static, Actions> {
    ACTIONS.lock()
}

/// Whether no thread holds the lock: in a child of a raw system call.
pub fn is_free() -> bool {
    ACTIONS.try_lock().is_some()
}

/// Whether signals of this number always come to us.
fn is_ours(signal: c_int) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
}

fn is_handler(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

fn arrive() -> usize {
    signal::arrive as Handler as usize
}

fn plain(handler: usize, flags: c_int) -> Action {
    // SAFETY: all zeros is a value of this plain structure.
    let mut action: Action = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// The C library's `sigaction`, whose return from handlers debuggers and unwinders know.
fn kernel(signal: c_int, new: Option<&Action>) -> Result<Action, Errno> {
    type Function = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    static REAL: Real = Real::new("sigaction\0");
    let mut before = plain(libc::SIG_DFL, 0);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: glibc's function of this name, and structures of our own.
    let result = unsafe {
        std::mem::transmute::<usize, Function>(REAL.address())(signal, new, &raw mut before)
    };
    if result == 0 { Ok(before) } else { Err(Errno::from_raw_os_error(crate::entry::errno())) }
}

/// Gives the kernel what stands for the program's action. Lock held.
fn install(signal: c_int, action: &Action) -> Result<(), Errno> {
    let mut stands = *action;
    if is_handler(action.sa_sigaction) {
        stands.sa_sigaction = arrive();
        stands.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        // SAFETY: a mask of our own. Missing pages of mappings come while a handler runs, too.
        unsafe { libc::sigdelset(&raw mut stands.sa_mask, libc::SIGBUS) };
    } else if is_ours(signal) {
        stands = plain(arrive(), libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER);
    }
    if stands.sa_sigaction == arrive() {
        FLAGS[signal as usize].store(action.sa_flags, Ordering::Relaxed);
        HANDLERS[signal as usize].store(action.sa_sigaction, Ordering::Release);
    }
    kernel(signal, Some(&stands)).map(|_| ())
}

/// What the program is to be told where the kernel has `found`.
fn shown(own: &Action, mut found: Action) -> Action {
    if found.sa_sigaction != arrive() {
        return found;
    }
    found.sa_sigaction = own.sa_sigaction;
    if is_handler(own.sa_sigaction) {
        let ours = libc::SA_SIGINFO | libc::SA_RESETHAND;
        found.sa_flags = found.sa_flags & !ours | own.sa_flags & ours;
    } else {
        found.sa_flags = own.sa_flags;
    }
    found.sa_mask = own.sa_mask;
    found
}

/// Tells the program's action, and sets a new one.
fn change(signal: c_int, new: Option<&Action>) -> Result<Action, Errno> {
    let _inside = Inside::new();
    let mut actions = lock();
    let found = kernel(signal, None)?;
    let own = &mut actions[signal as usize];
    let before = shown(own, found);
    if let Some(new) = new {
        install(signal, new)?;
        *own = *new;
        own.sa_flags = new.sa_flags & KNOWN | SA_RESTORER;
        // SAFETY: a mask of the program's own structure; the kernel never blocks these two.
        unsafe {
            libc::sigdelset(&raw mut own.sa_mask, libc::SIGKILL);
            libc::sigdelset(&raw mut own.sa_mask, libc::SIGSTOP);
        }
    }
    Ok(before)
}

// ---- for `signal`

/// The handler of a signal that has arrived; a one-shot handler is gone then.
pub fn take(signal: c_int) -> usize {
    let index = signal as usize;
    if FLAGS[index].load(Ordering::Relaxed) & libc::SA_RESETHAND == 0 {
        return HANDLERS[index].load(Ordering::Acquire);
    }
    let _inside = Inside::new();
    let mut actions = lock();
    let own = &mut actions[index];
    let handler = own.sa_sigaction;
    if own.sa_flags & libc::SA_RESETHAND != 0 && is_handler(handler) {
        own.sa_sigaction = libc::SIG_DFL;
        // What was installed before can be installed again.
        let _ = install(signal, own);
    }
    handler
}

/// Whether the kernel would restart a call that this signal interrupts.
pub fn restarts(signal: c_int) -> bool {
    FLAGS[signal as usize].load(Ordering::Relaxed) & libc::SA_RESTART != 0
}

/// Whether the program ignores SIGSEGV or SIGBUS.
pub fn is_ignored(signal: c_int) -> bool {
    HANDLERS[signal as usize].load(Ordering::Relaxed) == libc::SIG_IGN
}

/// Whether the program handles SIGSEGV or SIGBUS.
pub fn has_handler(signal: c_int) -> bool {
    is_handler(HANDLERS[signal as usize].load(Ordering::Relaxed))
}

/// Gives the kernel the default action: this signal is to end the process.
pub fn make_default(signal: c_int) {
    let _ = kernel(signal, Some(&plain(libc::SIG_DFL, 0)));
}

/// From here on faults come to us, whatever is inherited.
pub fn start() {
    let mut actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        if let Ok(found) = kernel(signal, None) {
            actions[signal as usize] = found;
            let _ = install(signal, &found);
        }
    }
}

// ---- for new images

/// Before an exec: signals that the program ignores must be ignored in the new image.
pub fn before_exec() {
    let _inside = Inside::new();
    signal::block_bus(true);
    let actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let own = &actions[signal as usize];
        if own.sa_sigaction == libc::SIG_IGN {
            let _ = kernel(signal, Some(own));
        }
    }
}

/// The exec failed.
pub fn after_exec() {
    let _inside = Inside::new();
    signal::block_bus(false);
    let actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let own = &actions[signal as usize];
        if own.sa_sigaction == libc::SIG_IGN {
            let _ = install(signal, own);
        }
    }
}

/// In a child that is to become another program: no handler runs any more.
pub fn drop_handlers() {
    let _inside = Inside::new();
    let mut actions = lock();
    for (signal, own) in (0..).zip(actions.iter_mut()) {
        if is_handler(own.sa_sigaction) {
            own.sa_sigaction = libc::SIG_DFL;
            let _ = install(signal, own);
        }
    }
}

// ---- the calls

impl Answer for usize {
    /// `SIG_ERR`.
    const FAILED: Self = libc::SIG_ERR;
}

fn valid(signal: c_int) -> Result<c_int, Errno> {
    if (1..NUMBERS as c_int).contains(&signal) { Ok(signal) } else { Err(Errno::INVAL) }
}

/// `sigaction`.
pub fn exchange(signal: c_int, new: Out<Action>, old: Out<Action>) -> Served<c_int> {
    let before = change(valid(signal)?, new.get()?.as_ref())?;
    if !old.is_null() {
        old.put(before)?;
    }
    Ok(0)
}

/// BSD's `signal`, whose handlers stay and are blocked while they run.
pub fn set_handler(signal: c_int, handler: usize) -> Served<usize> {
    if handler == libc::SIG_ERR {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let interrupts = INTERRUPTING.load(Ordering::Relaxed) >> (valid(signal)? - 1) & 1 != 0;
    let mut action = plain(handler, if interrupts { 0 } else { libc::SA_RESTART });
    // SAFETY: a mask of our own.
    unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    Ok(change(signal, Some(&action))?.sa_sigaction)
}

/// Blocks or unblocks one signal; whether it was blocked.
fn set_blocked(signal: c_int, how: c_int) -> bool {
    // The mask is the program's only outside.
    outside(|| {
        // SAFETY: masks of our own.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, signal);
            libc::sigprocmask(how, &raw const set, &raw mut before);
            libc::sigismember(&raw const before, signal) == 1
        }
    })
}

const SIG_HOLD: usize = 2;

/// System V's `signal`, whose handlers run once.
pub fn set_once(signal: c_int, handler: usize) -> Served<usize> {
    if handler == libc::SIG_ERR {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let action = plain(handler, libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT);
    Ok(change(valid(signal)?, Some(&action))?.sa_sigaction)
}

/// `siginterrupt`.
pub fn set_interrupting(signal: c_int, interrupts: bool) -> Served<c_int> {
    let mut action = change(valid(signal)?, None)?;
    let bit = 1 << (signal - 1);
    if interrupts {
        INTERRUPTING.fetch_or(bit, Ordering::Relaxed);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_and(!bit, Ordering::Relaxed);
        action.sa_flags |= libc::SA_RESTART;
    }
    change(signal, Some(&action))?;
    Ok(0)
}

/// `sigset`.
pub fn set_or_hold(signal: c_int, handler: usize) -> Served<usize> {
    if handler == SIG_HOLD {
        let before = change(valid(signal)?, None)?.sa_sigaction;
        let blocked = set_blocked(signal, libc::SIG_BLOCK);
        return Ok(if blocked { SIG_HOLD } else { before });
    }
    if handler == libc::SIG_ERR {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let before = change(valid(signal)?, Some(&plain(handler, 0)))?.sa_sigaction;
    let blocked = set_blocked(signal, libc::SIG_UNBLOCK);
    Ok(if blocked { SIG_HOLD } else { before })
}

/// `sigignore`.
pub fn ignore(signal: c_int) -> Served<c_int> {
    change(valid(signal)?, Some(&plain(libc::SIG_IGN, 0)))?;
    Ok(0)
}

/// Of no effect since long ago.
const SA_INTERRUPT: c_int = 0x2000_0000;
