//! The program's signal actions, whatever sets them.
//!
//! Where the program has a handler the kernel has [`signal::arrive`] with the program's own flags
//! and mask, but for these: `SA_SIGINFO` is always set, and `SA_RESETHAND` never (a signal that is
//! kept back arrives twice), so a one-shot handler is taken away here; SIGBUS is not in the mask
//! (see [`crate::mappings::page_faults`]), nor is SIGSYS (see [`crate::dispatch`]). The masks of
//! SIGSEGV and SIGBUS begin where the program's handlers do ([`mask_of_handler`]). For
//! SIGSEGV, SIGBUS and SIGSYS the kernel always has ours: the last one's, [`trap_by`], is called
//! with all that it needs, whatever the program asks for, and gives what is not its own to
//! [`signal::arrive`] with the program's mask. Everything else, `SIG_IGN` above all, is set as it
//! is, and a new image inherits it. The program is always told its own action.
//!
//! Locks: `ACTIONS`, under which nothing is waited for and no signal arrives. `fork` takes it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::sigaction as Action;
use vfs::Errno;

use crate::entry::lock::{Guard, Lock};
use crate::entry::pending_signals::{KEEPABLE, OWN, OWN_MASK, REALTIME, bit};
use crate::entry::pointers::Out;
use crate::entry::syscall;
use crate::entry::thread::Inside;
use crate::entry::{Real, Served, Stop};
use crate::runtime::{guest, relocation};
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

/// The lock; for `fork`, which holds it so that the child never finds it held.
pub fn lock() -> Guard<'static, Actions> {
    ACTIONS.lock()
}

/// Whether no thread holds the lock: in a child of a raw system call.
pub fn is_free() -> bool {
    ACTIONS.try_lock().is_some()
}

/// The kernel's handler of SIGSYS; 0: as of others.
static TRAP: AtomicUsize = AtomicUsize::new(0);

/// Those that guarded copies and missing pages raise.
const FAULTS_OF_OURS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// What the program's actions of these add to the mask.
static FAULT_MASKS: [AtomicU64; FAULTS_OF_OURS.len()] =
    [const { AtomicU64::new(0) }; FAULTS_OF_OURS.len()];

/// What the mask is to have more while the program's handler of this signal runs, where the kernel
/// does not see to it.
pub fn mask_of_handler(signal: c_int) -> u64 {
    let at = FAULTS_OF_OURS.iter().position(|&fault| fault == signal);
    at.map_or(0, |at| FAULT_MASKS[at].load(Ordering::Relaxed))
}

/// Whether signals of this number always come to us.
fn is_ours(signal: c_int) -> bool {
    FAULTS_OF_OURS.contains(&signal) || is_trap(signal)
}

/// Whether it has a handler of its own.
fn is_trap(signal: c_int) -> bool {
    signal == libc::SIGSYS && TRAP.load(Ordering::Relaxed) != 0
}

/// From here on SIGSYS comes to this handler, whatever is inherited.
pub fn trap_by(handler: Handler) {
    let mut actions = lock();
    if let Ok(found) = kernel(libc::SIGSYS, None) {
        TRAP.store(handler as usize, Ordering::Relaxed);
        actions[libc::SIGSYS as usize] = found;
        let _ = install(libc::SIGSYS, &found);
    }
}

/// The mask that the program's action of SIGSYS adds.
pub fn mask_of_trap() -> u64 {
    TRAP_MASK.load(Ordering::Relaxed)
}

static TRAP_MASK: AtomicU64 = AtomicU64::new(0);

fn is_handler(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

fn arrive() -> usize {
    signal::arriving()
}

fn plain(handler: usize, flags: c_int) -> Action {
    // SAFETY: all zeros is a value of this plain structure.
    let mut action: Action = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// The C library's `sigaction`, whose return from handlers debuggers and unwinders know. Called
/// inside: its system call arrives, and is passed on.
fn kernel(signal: c_int, new: Option<&Action>) -> Result<Action, Errno> {
    type Function = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    static REAL: Real = Real::new("sigaction\0");
    debug_assert!(Inside::already(), "else the program's action is changed");
    if is_kept(signal) && guest::is_here() {
        return kernel_of_kept(signal, new);
    }
    let mut before = plain(libc::SIG_DFL, 0);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: glibc's function of this name, and structures of our own.
    let result = unsafe {
        std::mem::transmute::<usize, Function>(REAL.address())(signal, new, &raw mut before)
    };
    if result == 0 { Ok(before) } else { Err(Errno::from_raw_os_error(crate::entry::errno())) }
}

/// A guest begins (see [`crate::runtime::guest`]), in a process of one thread: from here on the
/// kernel's handlers are those that set the C library's thread pointer. `trap`: gives that of
/// [`trap_by`].
pub fn begin_guest(trap: fn() -> usize) {
    let actions = lock();
    let stands = |signal: &c_int| kernel(*signal, None).is_ok_and(|found| is_standing(&found));
    let standing: Vec<c_int> = (1..REALTIME).filter(stands).collect();
    RESTORER.store(restorer().unwrap_or(0), Ordering::Relaxed);
    guest::is_to_come();
    TRAP.store(trap(), Ordering::Relaxed);
    for signal in REALTIME..REALTIME + 2 {
        // The C library has one, if this library has begun a thread.
        let _ = kernel_of_kept(signal, Some(&plain(libc::SIG_DFL, 0)));
    }
    for signal in standing {
        // What was installed before can be installed again.
        let _ = install(signal, &actions[signal as usize]);
    }
}

/// The C library's function that handlers return to, where a guest runs.
static RESTORER: AtomicUsize = AtomicUsize::new(0);

/// Whether the C library keeps this signal for itself, and would not set an action of it.
fn is_kept(signal: c_int) -> bool {
    (REALTIME..REALTIME + 2).contains(&signal)
}

/// As [`kernel`], of a signal that the C library keeps: where there is a guest it is the guest's.
fn kernel_of_kept(signal: c_int, new: Option<&Action>) -> Result<Action, Errno> {
    let new = new.map(|action| KernelAction {
        handler: action.sa_sigaction,
        flags: u64::from((action.sa_flags | SA_RESTORER).cast_unsigned()),
        restorer: RESTORER.load(Ordering::Relaxed),
        mask: first_word(&action.sa_mask),
    });
    let mut before = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = new.as_ref().map_or(0, |new| std::ptr::from_ref(new) as usize);
    let given = [signal as usize, new, (&raw mut before) as usize, size_of::<u64>(), 0, 0];
    if syscall::kernel(libc::SYS_rt_sigaction, given) != 0 {
        return Err(Errno::from_raw_os_error(crate::entry::errno()));
    }
    let mut found = plain(before.handler, before.flags as c_int);
    // SAFETY: the structure's first word is the kernel's mask.
    unsafe { (&raw mut found.sa_mask).cast::<u64>().write(before.mask) };
    Ok(found)
}

/// Gives the kernel what stands for the program's action. Lock held.
fn install(signal: c_int, action: &Action) -> Result<(), Errno> {
    let mut stands = *action;
    let always = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    if is_trap(signal) {
        stands = plain(TRAP.load(Ordering::Relaxed), always);
        // No handler of the program's comes between what that one prepares and its return.
        // SAFETY: the structure's first word is the kernel's mask.
        unsafe { (&raw mut stands.sa_mask).cast::<u64>().write(KEEPABLE) };
        TRAP_MASK.store(first_word(&action.sa_mask) & !OWN_MASK, Ordering::Relaxed);
    } else if is_handler(action.sa_sigaction) {
        if first_word(&action.sa_mask) & bit(libc::SIGSEGV) != 0 {
            relocation::finish();
        }
        stands.sa_sigaction = arrive();
        stands.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        for own in OWN {
            // SAFETY: a mask of our own. They come while a handler runs, too.
            unsafe { libc::sigdelset(&raw mut stands.sa_mask, own) };
        }
        if let Some(at) = FAULTS_OF_OURS.iter().position(|&fault| fault == signal) {
            // A signal that comes while ours runs, before the program's, is kept with the thread's
            // mask: not with one that has those of the program's handler.
            let deferred = action.sa_flags & libc::SA_NODEFER == 0;
            let own = first_word(&action.sa_mask) | if deferred { bit(signal) } else { 0 };
            FAULT_MASKS[at].store(own & !OWN_MASK, Ordering::Relaxed);
            stands.sa_flags |= libc::SA_NODEFER;
            // SAFETY: the structure's first word is the kernel's mask.
            unsafe { (&raw mut stands.sa_mask).cast::<u64>().write(0) };
        }
    } else if is_ours(signal) {
        stands = plain(arrive(), always);
    }
    if is_standing(&stands) {
        FLAGS[signal as usize].store(action.sa_flags, Ordering::Relaxed);
        HANDLERS[signal as usize].store(action.sa_sigaction, Ordering::Release);
    }
    kernel(signal, Some(&stands)).map(|_| ())
}

/// Whether an action of the kernel's is one of ours.
fn is_standing(found: &Action) -> bool {
    let handler = found.sa_sigaction;
    handler == arrive() || handler != 0 && handler == TRAP.load(Ordering::Relaxed)
}

/// The kernel's 8 bytes of a mask.
pub fn first_word(mask: &libc::sigset_t) -> u64 {
    // SAFETY: the structure is longer, and plain.
    unsafe { std::ptr::from_ref(mask).cast::<u64>().read() }
}

/// What the program is to be told where the kernel has `found`.
fn shown(signal: c_int, own: &Action, mut found: Action) -> Action {
    if !is_standing(&found) {
        return found;
    }
    let has_own_flags = found.sa_sigaction == arrive() && is_handler(own.sa_sigaction);
    found.sa_sigaction = own.sa_sigaction;
    if has_own_flags {
        let nodefer = if is_ours(signal) { libc::SA_NODEFER } else { 0 };
        let ours = libc::SA_SIGINFO | libc::SA_RESETHAND | nodefer;
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
    let before = shown(signal, own, found);
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
    let _inside = Inside::new();
    let _ = kernel(signal, Some(&plain(libc::SIG_DFL, 0)));
}

/// From here on faults come to us, whatever is inherited.
pub fn start() {
    let mut actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let known = relocation::found(signal).map(|handler| Ok(plain(handler, 0)));
        if let Ok(found) = known.unwrap_or_else(|| kernel(signal, None)) {
            actions[signal as usize] = found;
            let _ = install(signal, &found);
        }
    }
}

// ---- for new images

/// Whether the program ignores one of those that come to us: what an exec is to be told.
pub fn ignores_own() -> bool {
    let _inside = Inside::new();
    let actions = lock();
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS]
        .iter()
        .any(|signal| actions[*signal as usize].sa_sigaction == libc::SIG_IGN)
}

/// In a child that shares its parent's memory: no handler of the program's runs in it.
pub fn clear_in_kernel() {
    let _inside = Inside::new();
    for signal in (1..NUMBERS as c_int).filter(|signal| !is_ours(*signal)) {
        let found = kernel_of_kept(signal, None);
        if found.is_ok_and(|found| is_handler(found.sa_sigaction)) {
            let _ = kernel_of_kept(signal, Some(&plain(libc::SIG_DFL, 0)));
        }
    }
}

/// Before an exec: signals that the program ignores must be ignored in the new image.
pub fn before_exec() {
    let _inside = Inside::new();
    signal::block_own(true);
    let actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS] {
        let own = &actions[signal as usize];
        if own.sa_sigaction == libc::SIG_IGN {
            let _ = kernel(signal, Some(own));
        }
    }
}

/// The exec failed.
pub fn after_exec() {
    let _inside = Inside::new();
    signal::block_own(false);
    let actions = lock();
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS] {
        let own = &actions[signal as usize];
        if own.sa_sigaction == libc::SIG_IGN {
            let _ = install(signal, own);
        }
    }
}

// ---- the call

/// The kernel's own layout of an action.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// `rt_sigaction`. The restorer is the C library's.
pub fn exchange(
    signal: c_int,
    new: Out<KernelAction>,
    old: Out<KernelAction>,
    size: usize,
) -> Served<c_int> {
    if size != size_of::<u64>() {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let new = new.get()?.map(|given| {
        let mut action = plain(given.handler, given.flags as c_int);
        // SAFETY: the structure's first word is the kernel's mask.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(given.mask) };
        action
    });
    if !(1..NUMBERS as c_int).contains(&signal) {
        return Err(Stop::Errno(Errno::INVAL));
    }
    if is_kept(signal) && !guest::is_here() {
        // The C library's own.
        return Err(Stop::Kernel);
    }
    let found = change(signal, new.as_ref())?;
    if !old.is_null() {
        let restorer = found.sa_restorer.map_or(0, |function| function as usize);
        let (handler, mask) = (found.sa_sigaction, first_word(&found.sa_mask));
        let flags = u64::from(found.sa_flags.cast_unsigned());
        old.put(KernelAction { handler, flags, restorer, mask })?;
    }
    Ok(0)
}

/// The C library's function that handlers return to.
pub fn restorer() -> Option<usize> {
    Some(kernel(libc::SIGSYS, None).ok()?.sa_restorer? as usize)
}
