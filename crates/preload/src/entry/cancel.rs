//! Cancels threads as POSIX says, but never while they are inside this library.
//!
//! The C library's own functions are the cancellation points, and a call of theirs arrives by the
//! door. It is the C library that lets a thread end in such a call: it makes the thread's type
//! asynchronous for the time of it, and sends a signal to a thread that it cancels. So the handler
//! of that signal is called through one of ours:
//!
//! - A thread that the kernel serves, or is about to, may end where it stands: in the entry of the
//!   door, or in the one place here that makes such calls, both of which can be unwound.
//! - A thread that the signal meets elsewhere in our code is set to the deferred type before the C
//!   library's handler runs. If its type was asynchronous for a call that has arrived, it is so
//!   again before the kernel is asked, and when a wait of ours has ended.
//! - An asynchronous thread of the program's own: while it is inside, its type is deferred. In the
//!   entry it may end where it stands. Elsewhere in our code it is set to the deferred type, too,
//!   until the kernel is asked, or the call is served.
//! - What was put into the padding of the C library cannot be unwound from: its jump to the entry
//!   is taken first, and behind its stubs the thread ends where its call arrives.
//!
//! From 2.41 on the type stays as it is. The C library's handler looks whether the signal has met
//! the thread at the one place where such calls are made, which is patched in place; behind a call
//! that gives `EINTR` the C library looks once more. So a wait of ours gives that, and so does a
//! call that has not been made yet ([`TELLS`]). A thread on its way from the entry back to that
//! place is put there before the C library's handler looks.
//!
//! Elsewhere no frame could be unwound from: Rust's tables know calls only, and the C library ends
//! the process then, without a word.

use std::arch::global_asm;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use door::arm::Armed;
use door::entry::Progress;
use once_cell::race::OnceBox;

use crate::entry::Real;
use crate::entry::pointers::{Out, Text};
use crate::entry::syscall;
use crate::entry::thread::{ASYNCHRONOUS, CANCELLED, OwnCode, here};
use crate::runtime::relocation;

const DEFERRED_TYPE: c_int = 0;
/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
pub const ASYNCHRONOUS_TYPE: c_int = 1;

unsafe extern "C-unwind" {
    fn pause() -> c_int;
}

unsafe extern "C" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// glibc's function of this name.
pub static SET_TYPE: Real = Real::new("pthread_setcanceltype\0");

/// Calls it.
pub fn set_type(kind: c_int, old: *mut c_int) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, *mut c_int) -> c_int;
    // SAFETY: glibc's function of this name.
    unsafe { std::mem::transmute::<usize, Function>(SET_TYPE.address())(kind, old) }
}

/// A thread of the asynchronous type enters.
pub fn hold() {
    set_type(DEFERRED_TYPE, std::ptr::null_mut());
}

/// It has left; a cancellation meanwhile acts in here.
pub fn release() {
    set_type(ASYNCHRONOUS_TYPE, std::ptr::null_mut());
}

/// [`crate::entry::thread::Thread::ends_first`]: the C library's type lets the thread end here.
const ACTS: u32 = 1;
/// The same: the call is to give `EINTR`, if it is a cancellation point.
pub const TELLS: u32 = 2;

/// A call of a thread that was cancelled since it arrived is served: one of the asynchronous type
/// ends now, another one at its next cancellation point.
#[cold]
pub extern "C-unwind" fn served() {
    let thread = here();
    thread.ends_first.store(0, Ordering::Relaxed);
    if thread.flags.load(Ordering::Relaxed) & ASYNCHRONOUS != 0 {
        let _programs = OwnCode::not();
        set_type(ASYNCHRONOUS_TYPE, std::ptr::null_mut());
    }
}

/// Before the kernel is asked to serve a call that has arrived, and where a wait has ended: a
/// thread that was cancelled since it arrived ends. Gives whether the call is to give `EINTR`
/// instead.
#[cold]
pub fn end_if_due() -> bool {
    let due = &here().ends_first;
    match due.load(Ordering::Relaxed) {
        ACTS => {
            due.store(0, Ordering::Relaxed);
            let _programs = OwnCode::not();
            set_type(ASYNCHRONOUS_TYPE, std::ptr::null_mut());
            false
        }
        due => due == TELLS,
    }
}

/// The signal by which glibc cancels a thread of the asynchronous type.
pub const SIGCANCEL: usize = 32;
/// The signal by which glibc changes the user of all threads.
const SIGSETXID: usize = 33;
/// glibc's handler of that; 0: not known yet.
static USER_HANDLER: AtomicUsize = AtomicUsize::new(0);
/// glibc's handler of it; 0: not known yet.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

// The linker's own symbols: where this library begins, and where its code ends.
global_asm!(".hidden __ehdr_start", ".hidden etext");

unsafe extern "C" {
    static __ehdr_start: u8;
    static etext: u8;
}

/// The kernel's own layout of `struct sigaction` on x86-64.
#[derive(Clone, Copy)]
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

extern "C-unwind" fn be_cancelled(nothing: *mut c_void) -> *mut c_void {
    loop {
        // SAFETY: no arguments; it never returns, for this is where the thread is cancelled.
        unsafe { pause() };
        std::hint::black_box(nothing);
    }
}

/// Puts our handler before glibc's, which is installed when a thread is cancelled for the first
/// time: so one is cancelled now, before the first one of the asynchronous type can be.
#[cold]
pub fn stand_before_first() {
    if HANDLER.load(Ordering::Relaxed) != 0 {
        return;
    }
    relocation::finish();
    // This thread runs no handler of the program; glibc's two signals are not blocked.
    let (blocked, mut before) = (!(3_u64 << (SIGCANCEL - 1)), 0_u64);
    let mask = |new: &u64, old: *mut u64| {
        let how = libc::SIG_SETMASK as usize;
        let arguments = [how, std::ptr::from_ref(new) as usize, old as usize, 8, 0, 0];
        syscall::kernel(libc::SYS_rt_sigprocmask, arguments);
    };
    mask(&blocked, &raw mut before);
    let mut thread: libc::pthread_t = 0;
    let (disabled, mut allowed): (c_int, c_int) = (1, 0);
    // SAFETY: a thread that is joined; this one is not cancelled at that. Without a thread nothing
    // has changed.
    unsafe {
        pthread_setcancelstate(disabled, &raw mut allowed);
        let null = std::ptr::null();
        if pthread_create(&raw mut thread, null, be_cancelled, std::ptr::null_mut()) == 0 {
            pthread_cancel(thread);
            libc::pthread_join(thread, std::ptr::null_mut());
        }
        pthread_setcancelstate(allowed, &raw mut allowed);
    }
    mask(&before, std::ptr::null_mut());
}

/// Puts our handler before glibc's, once.
pub fn stand_before() {
    if HANDLER.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let old = (&raw mut action) as usize;
    let failed = syscall::kernel(libc::SYS_rt_sigaction, [SIGCANCEL, 0, old, 8, 0, 0]) != 0;
    let own = on_cancel as *const () as usize;
    if failed || action.handler <= libc::SIG_IGN || action.handler == own {
        return;
    }
    HANDLER.store(action.handler, Ordering::Release);
    action.handler = own;
    let new = (&raw const action) as usize;
    syscall::kernel(libc::SYS_rt_sigaction, [SIGCANCEL, new, 0, 8, 0, 0]);
}

/// Whether this is a signal of the C library's own.
pub fn is_of_library(signal: usize) -> bool {
    signal == SIGCANCEL || signal == SIGSETXID
}

/// The C library installs its handler by this system call: ours goes before it. Gives the call's
/// answer.
pub fn installed(given: &[usize; 6]) -> c_long {
    let Ok(mut action) = Out(given[1] as *mut Action).value() else {
        return syscall::kernel(libc::SYS_rt_sigaction, *given);
    };
    if action.handler > libc::SIG_IGN {
        let (place, own) = if given[0] == SIGCANCEL {
            (&HANDLER, on_cancel as *const ())
        } else {
            (&USER_HANDLER, on_user_change as *const ())
        };
        place.store(action.handler, Ordering::Release);
        action.handler = own as usize;
    }
    let mut given = *given;
    given[1] = (&raw const action) as usize;
    // Found before a handler needs it.
    SET_TYPE.address();
    TELLS_ALWAYS.store(has_one_place(), Ordering::Relaxed);
    syscall::kernel(libc::SYS_rt_sigaction, given)
}

/// Whether the C library makes the calls that are cancellation points at one place.
static TELLS_ALWAYS: AtomicBool = AtomicBool::new(false);

fn has_one_place() -> bool {
    static REAL: Real = Real::new("gnu_get_libc_version\0");
    type Function = unsafe extern "C" fn() -> Text;
    // SAFETY: the C library's function of this name, which gives a text of its own.
    let version = unsafe { std::mem::transmute::<usize, Function>(REAL.address())() };
    let text = version.bytes().ok().and_then(|text| std::str::from_utf8(text).ok());
    let minor = text.and_then(|text| text.strip_prefix("2.")).and_then(|rest| {
        rest.split(|other: char| !other.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    minor.is_some_and(|minor| minor >= 41)
}

/// The code of this library's that makes the calls of code outside the C library: where it begins
/// and ends.
static OUTSIDE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Calls are made there, too (see [`crate::dispatch`]).
pub fn makes_calls_in(code: std::ops::Range<usize>) {
    OUTSIDE[0].store(code.start, Ordering::Relaxed);
    OUTSIDE[1].store(code.end, Ordering::Relaxed);
}

/// Whether calls of code outside the C library arrive.
pub fn sees_outside() -> bool {
    OUTSIDE[1].load(Ordering::Relaxed) != 0
}

/// The C libraries whose calls arrive: of each name space one.
static ARMED: [OnceBox<Armed>; 16] = [const { OnceBox::new() }; 16];

/// Calls arrive from there, too.
pub fn arrives_from(armed: &Armed) {
    // As many as the C library knows name spaces.
    let _ = ARMED.iter().any(|place| place.set(Box::new(*armed)).is_ok());
}

/// The registers that a signal's handler looks at, and may change.
///
/// # Safety
///
/// `context` is what the kernel gave to the handler.
unsafe fn registers<'a>(context: *mut c_void) -> &'a mut [libc::greg_t; 23] {
    // SAFETY: as the caller says.
    unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs }
}

/// Whether an instruction is this library's.
pub fn is_own_code(rip: usize) -> bool {
    (&raw const __ehdr_start as usize..&raw const etext as usize).contains(&rip)
}

/// Whether it is, or was put into the C library's padding.
fn is_ours(rip: usize) -> bool {
    is_own_code(rip) || ARMED.iter().filter_map(OnceBox::get).any(|armed| armed.is_added(rip))
}

/// In a signal's handler: a thread that it has found in padding, where a call of the C library's
/// is on its way to the entry, goes on there. No table of unwinding knows the padding.
///
/// # Safety
///
/// `context` is what the kernel gave to the handler.
pub unsafe fn go_to_entry(context: *mut c_void) {
    // SAFETY: as the caller says.
    let rip = unsafe { &mut registers(context)[libc::REG_RIP as usize] };
    if ARMED.iter().filter_map(OnceBox::get).any(|armed| armed.is_jump(*rip as usize)) {
        *rip = door::entry::entry().start as libc::greg_t;
    }
}

/// Whether the thread that the signal has found may end where it stands, as far as our code is
/// concerned.
fn may_end(registers: &mut [libc::greg_t; 23], is_own: bool) -> bool {
    let [rip, rax] = [libc::REG_RIP, libc::REG_RAX].map(|at| registers[at as usize] as usize);
    let mut from = ARMED.iter().filter_map(OnceBox::get);
    if let Some(armed) = from.find(|armed| armed.is_added(rip)) {
        // In padding, which no table of unwinding knows. The jump leads to the entry at once.
        let jumps = armed.is_jump(rip);
        if jumps {
            registers[libc::REG_RIP as usize] = door::entry::entry().start as libc::greg_t;
        }
        return jumps;
    }
    if let Some(progress) = door::entry::progress(rip, rax) {
        return progress == Progress::Before || is_own;
    }
    // A thread that has the kernel serve its call, or is about to, may end where it stands.
    let [start, end] = [0, 1].map(|at: usize| OUTSIDE[at].load(Ordering::Relaxed));
    !is_own_code(rip) || door::entry::makes_call_at(rip) || (start..end).contains(&rip)
}

type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Has glibc change the thread's user, wherever it is: in a call that is made as before.
unsafe extern "C-unwind" fn on_user_change(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let _programs = OwnCode::not();
    // SAFETY: glibc's handler, by its own address, and what the kernel gave.
    unsafe {
        let handler: Handler = std::mem::transmute(USER_HANDLER.load(Ordering::Acquire));
        handler(signal, info, context);
    }
}

unsafe extern "C-unwind" fn on_cancel(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let thread = here();
    let is_own = thread.flags.load(Ordering::Relaxed) & ASYNCHRONOUS != 0;
    // SAFETY: what the kernel gave.
    let registers = unsafe { registers(context) };
    let tells = TELLS_ALWAYS.load(Ordering::Relaxed);
    // SAFETY: what the kernel gave.
    if tells && !thread.is_inside() && unsafe { door::entry::go_to_site(context) } {
        // The C library's handler finds it where it would be without the library.
    } else if tells && !is_own {
        let rip = registers[libc::REG_RIP as usize] as usize;
        if thread.is_inside() || is_ours(rip) {
            thread.ends_first.store(TELLS, Ordering::Relaxed);
            thread.flags.fetch_or(CANCELLED, Ordering::Relaxed);
            // SAFETY: what the kernel gave.
            unsafe {
                os::interrupt::redirect(context);
                door::entry::leave_out(context);
            }
        }
    } else if thread.is_inside() || !may_end(registers, is_own) {
        let mut before = DEFERRED_TYPE;
        set_type(DEFERRED_TYPE, &raw mut before);
        // The C library has made the type of a thread asynchronous for the time of a call that
        // arrives, or it is the program's own: it is so again before the kernel is asked. Behind
        // the call it is the C library's to end the thread, at its next one that may wait.
        let rip = registers[libc::REG_RIP as usize] as usize;
        let is_behind = !thread.is_inside() && door::entry::progress(rip, 0).is_some();
        if before == ASYNCHRONOUS_TYPE && !is_behind {
            thread.ends_first.store(ACTS, Ordering::Relaxed);
            thread.flags.fetch_or(CANCELLED, Ordering::Relaxed);
            // SAFETY: what the kernel gave.
            unsafe { os::interrupt::redirect(context) };
        }
    }
    // The thread may end in here.
    let _programs = (!thread.is_inside()).then(OwnCode::not);
    // SAFETY: glibc's handler, by its own address, and what the kernel gave.
    unsafe {
        let handler: Handler = std::mem::transmute(HANDLER.load(Ordering::Acquire));
        handler(signal, info, context);
    }
}
