//! System calls that code outside the C library makes by its own instructions: crates built on
//! `rustix`, Zig, Go in shared libraries, code made at run time.
//!
//! The kernel sends SIGSYS for them (Syscall User Dispatch, Linux 5.11), and they are served by the
//! same bodies as those of the door, in the handler. Exempt is the C library's text, whose sites
//! that are served are patched; and this library's own code, while it runs: it says so in a byte of
//! its thread's record (see [`OwnCode`]).
//!
//! The call is made in the handler: so the registers are the kernel's to keep and to bring back,
//! vectors too, and a handler of the program's that leaves by `siglongjmp` leaves nothing behind.
//! The handler blocks no signal, so a call that waits is interrupted as any. It stands on the
//! thread's signal stack, where it has one (Go's routines have small stacks); one that is too small
//! has been replaced (`signals::altstack`). What a call does to the mask, the signal stack, or by a
//! return from a handler is done to what the handler returns to.
//!
//! Threads. The kernel switches it off for a new thread or process and at an exec. Each thread of
//! the C library's and each forked child begins with `set_robust_list`, which arrives by the door:
//! then it is switched on. Not for a thread that a system call of the program's own makes, or that
//! begins behind a filter of system calls, which may end it for the `prctl`: the report says so.
//!
//! A source of such calls must not be fast: 1 us each, beside 0.1. SIGSYS is never blocked in the
//! kernel's mask (see [`crate::signals::sigmask`]).

use std::arch::global_asm;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use ::door::arm::Armed;
use ::door::entry::Call;
use libc::{siginfo_t, stack_t, ucontext_t};
use vfs::Errno;

use crate::door;
use crate::entry::pending_signals::change_mask;
use crate::entry::pointers::Out;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{OwnCode, Thread, here};
use crate::entry::{Inside, Served, Stop, cancel, errno, report, set_errno};
use crate::signals::{altstack, sigaction, signal};

/// `prctl`: switches it on or off.
pub const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const ON: usize = 1;
/// `si_code` of such a SIGSYS.
const SYS_USER_DISPATCH: c_int = 2;

/// The C library's text: address and bytes; 0: it is not switched on in this process.
static EXEMPT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Where handlers of signals return to.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// Why it is not on in all threads.
static MISSING: AtomicU32 = AtomicU32::new(0);
/// The kernel does not have it, or does not let this process have it.
const NOT_THERE: u32 = 1;
/// The program has set a filter of system calls.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// Switches it on: the C library is armed, and there is one thread.
pub fn begin(armed: &Armed) {
    sigaction::trap_by(trapped);
    let Some(restorer) = sigaction::restorer() else { return };
    RESTORER.store(restorer, Ordering::Relaxed);
    EXEMPT[0].store(armed.text.0, Ordering::Relaxed);
    EXEMPT[1].store(armed.text.1, Ordering::Relaxed);
    arm_thread();
}

/// The report is there.
pub fn tell() {
    if MISSING.load(Ordering::Relaxed) == NOT_THERE {
        report::fell_back("prctl", "no-system-call-dispatch");
    }
}

/// Switches it on for this thread, if it is on in the process. Own code runs.
pub fn arm_thread() {
    let [start, bytes] = [0, 1].map(|at: usize| EXEMPT[at].load(Ordering::Relaxed));
    if start == 0 {
        return;
    }
    if IS_FILTERED.load(Ordering::Relaxed) {
        return report::fell_back("clone", "no-system-call-dispatch-behind-a-filter");
    }
    signal::admit_own();
    let selector = (&raw const here().selector) as usize;
    let option = PR_SET_SYSCALL_USER_DISPATCH as usize;
    let given = [option, ON, start, bytes, selector, 0];
    if syscall::kernel(libc::SYS_prctl, given) != 0 {
        EXEMPT[0].store(0, Ordering::Relaxed);
        MISSING.store(NOT_THERE, Ordering::Relaxed);
    }
}

/// The program sets a filter of system calls: threads that begin later are left alone.
pub fn before_filter() {
    IS_FILTERED.store(true, Ordering::Relaxed);
}

/// What never asks for a second look, with the byte behind it (see [`Call::again`]).
static NEVER: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Has the kernel make a call of the program's; gives its answer, or `-errno`.
fn pass(thread: &Thread, number: c_long, given: &Arguments) -> isize {
    let mut looked = thread.looked();
    loop {
        // SAFETY: the program's own call.
        match unsafe { ::door::entry::kernel(number, given, looked) } {
            Some(answer) => return answer,
            // No cancellation point: it is told at its next one.
            None if cancel::end_if_due() => looked = NEVER.as_ptr(),
            None => {}
        }
    }
}

/// A body's answer as the kernel's. `None`: the kernel is to make the call.
fn answer(served: Served<c_int>) -> Option<isize> {
    match served {
        Ok(-1) => Some(-(errno() as isize)),
        Ok(value) => Some(value as isize),
        Err(Stop::Errno(error) | Stop::Refused(_, error)) => Some(-(error.raw_os_error() as isize)),
        Err(Stop::Kernel) => None,
    }
}

/// The handler of SIGSYS.
extern "C-unwind" fn trapped(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel called us with these.
    let (code, interrupted) = unsafe { ((*info).si_code, &mut *context.cast::<ucontext_t>()) };
    if code != SYS_USER_DISPATCH {
        // The program's, whose action may add to the mask.
        change_mask(libc::SIG_BLOCK, sigaction::mask_of_trap());
        return signal::arrive(signal, info, context);
    }
    let _own = OwnCode::new();
    let failed = errno();
    let registers = &mut interrupted.uc_mcontext.gregs;
    let [number, address, stack] = [libc::REG_RAX, libc::REG_RIP, libc::REG_RSP]
        .map(|register| registers[register as usize] as usize);
    let given = ARGUMENTS.map(|register| registers[register as usize] as usize);
    let thread = here();
    let is_own = thread.is_inside() || cancel::is_own_code(address);
    let of_thread = if is_own { None } else { by_context(number as c_long, &given, interrupted) };
    let result = match of_thread {
        _ if is_own => pass(thread, number as c_long, &given),
        Some(result) => result,
        None => {
            let mut call = Call::trapped(number as u32, given, address, stack);
            let served = u32::try_from(number).is_ok() && door::answer(&mut call);
            if number as c_long == libc::SYS_rt_sigprocmask {
                let now = change_mask(libc::SIG_BLOCK, 0);
                // SAFETY: the kernel's 8 bytes of the mask that the thread gets back.
                unsafe { (&raw mut interrupted.uc_sigmask).cast::<u64>().write(now) };
            }
            if let Some(other) = call.other_stack().filter(|other| *other != 0) {
                interrupted.uc_mcontext.gregs[libc::REG_RSP as usize] = other as i64;
            }
            match served {
                true => call.result,
                false => pass_on(thread, number as c_long, &given, interrupted),
            }
        }
    };
    interrupted.uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
    set_errno(failed);
}

/// A call's arguments, in the kernel's order.
const ARGUMENTS: [c_int; 6] =
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

/// Calls that are about what the handler returns to. `None`: another one.
fn by_context(number: c_long, given: &Arguments, interrupted: &mut ucontext_t) -> Option<isize> {
    match number {
        libc::SYS_rt_sigreturn => {
            // It comes back to the C library's instruction, which is exempt.
            let restorer = RESTORER.load(Ordering::Relaxed);
            interrupted.uc_mcontext.gregs[libc::REG_RIP as usize] = restorer as i64;
            Some(libc::SYS_rt_sigreturn as isize)
        }
        libc::SYS_sigaltstack => {
            let at = interrupted.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
            let present = interrupted.uc_stack;
            let mut wanted = None;
            let changed = {
                let _inside = Inside::new();
                let change = |new: Option<&stack_t>| swap(&present, at, new, &mut wanted);
                answer(altstack::exchange_by(Out(given[0] as _), Out(given[1] as _), change))
            };
            if changed == Some(0)
                && let Some(wanted) = wanted
            {
                set_stack_behind(interrupted, at, wanted);
            }
            changed
        }
        _ => None,
    }
}

/// `sigaltstack` of a thread whose stack pointer is `at`, as the kernel does it; `wanted` gets the
/// stack that is to be set.
fn swap(
    present: &stack_t,
    at: usize,
    new: Option<&stack_t>,
    wanted: &mut Option<stack_t>,
) -> Result<stack_t, Errno> {
    /// The stack is switched off while a handler runs on it.
    const AUTODISARM: c_int = c_int::MIN;
    let start = present.ss_sp as usize;
    let is_armed = present.ss_size != 0 && present.ss_flags & AUTODISARM == 0;
    let is_on = is_armed && at > start && at - start <= present.ss_size;
    let mut before = *present;
    before.ss_flags = match present.ss_size {
        0 => libc::SS_DISABLE,
        _ if is_on => libc::SS_ONSTACK,
        _ => present.ss_flags & AUTODISARM,
    };
    let Some(new) = new else { return Ok(before) };
    let is_off = match new.ss_flags & !AUTODISARM {
        _ if is_on => return Err(Errno::PERM),
        libc::SS_DISABLE => true,
        0 | libc::SS_ONSTACK => false,
        _ => return Err(Errno::INVAL),
    };
    if !is_off && new.ss_size < libc::MINSIGSTKSZ {
        return Err(Errno::NOMEM);
    }
    *wanted = Some(*new);
    Ok(before)
}

/// What [`set_stack_behind`] leaves below the thread's stack pointer and its red zone.
#[repr(C)]
struct Behind {
    selector: usize,
    goes_on_at: usize,
    stack: stack_t,
}
const _: () = assert!(size_of::<Behind>() == 40);

/// Has the thread set its signal stack when it has left the handler, which may stand on the one
/// before: the kernel changes none that is in use.
fn set_stack_behind(interrupted: &mut ucontext_t, at: usize, stack: stack_t) {
    let registers = &mut interrupted.uc_mcontext.gregs;
    let behind = at - 128 - size_of::<Behind>();
    let selector = (&raw const here().selector) as usize;
    let goes_on_at = registers[libc::REG_RIP as usize] as usize;
    // SAFETY: below the program's stack, as a signal's frame without a stack of its own.
    unsafe { (behind as *mut Behind).write_unaligned(Behind { selector, goes_on_at, stack }) };
    registers[libc::REG_RSP as usize] = behind as i64;
    registers[libc::REG_RIP as usize] = solera_dispatch_stack as *const () as i64;
}

/// A call that is the kernel's. A child that goes on with a stack of its own does so behind the
/// program's instruction, with all of its registers.
fn pass_on(thread: &Thread, number: c_long, given: &Arguments, interrupted: &ucontext_t) -> isize {
    let Some((_, stack)) = door::flags_of(number, given).filter(|made| made.1 != 0) else {
        return pass(thread, number, given);
    };
    let registers = &interrupted.uc_mcontext.gregs;
    let address = registers[libc::REG_RIP as usize] as usize;
    // What the child's `ret` takes from its stack.
    let top = stack.wrapping_sub(size_of::<usize>());
    if let Err(error) = Out(top as *mut usize).put(address) {
        return -(error.raw_os_error() as isize);
    }
    report::fell_back("clone", "no-system-call-dispatch-in-own-threads");
    let mut words = [0; door::CLONE_WORDS];
    let mut given = *given;
    if number == libc::SYS_clone3 {
        let count = (given[1] / size_of::<u64>()).min(words.len());
        let Ok(read) = Out(given[0] as *mut u64).array(count) else {
            return -(libc::EFAULT as isize);
        };
        words[..count].copy_from_slice(&read);
        // The stack's size.
        words[6] -= size_of::<usize>() as u64;
        given[0] = words.as_ptr() as usize;
        given[1] = count * size_of::<u64>();
    } else {
        given[1] = top;
    }
    // SAFETY: the program's own call; the child goes on where the program's instruction ends.
    unsafe { solera_dispatch_clone(number, &given, registers.as_ptr()) }
}

unsafe extern "C" {
    /// Where a thread goes on that is to set its signal stack, with a [`Behind`] on top of its
    /// stack: every register but those of a system call's answer is as it was.
    fn solera_dispatch_stack();
    /// Makes a call whose child begins with these registers, and with a `ret`.
    fn solera_dispatch_clone(number: c_long, given: &Arguments, registers: *const i64) -> isize;
}

const fn at(register: c_int) -> usize {
    register as usize * size_of::<i64>()
}

global_asm!(
    ".pushsection .text.solera_dispatch,\"ax\",@progbits",
    ".hidden solera_dispatch_clone",
    ".globl solera_dispatch_clone",
    ".type solera_dispatch_clone, @function",
    "solera_dispatch_clone:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rax, rdi",
    "mov rcx, rsi",
    "mov r11, rdx",
    "mov rbx, [r11 + {rbx}]",
    "mov rbp, [r11 + {rbp}]",
    "mov r12, [r11 + {r12}]",
    "mov r13, [r11 + {r13}]",
    "mov r14, [r11 + {r14}]",
    "mov r15, [r11 + {r15}]",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "2:",
    "ret",
    ".size solera_dispatch_clone, . - solera_dispatch_clone",
    ".hidden solera_dispatch_stack",
    ".globl solera_dispatch_stack",
    ".type solera_dispatch_stack, @function",
    "solera_dispatch_stack:",
    "pop rcx",
    "mov byte ptr [rcx], 0",
    "push rcx",
    "push rdi",
    "push rsi",
    "lea rdi, [rsp + 32]",
    "mov rsi, 0",
    "mov eax, {sigaltstack}",
    "syscall",
    "pop rsi",
    "pop rdi",
    "pop rcx",
    "mov byte ptr [rcx], 1",
    "pop rcx",
    "lea rsp, [rsp + 128 + {stack}]",
    "jmp rcx",
    ".size solera_dispatch_stack, . - solera_dispatch_stack",
    ".popsection",
    sigaltstack = const libc::SYS_sigaltstack,
    stack = const size_of::<stack_t>(),
    rbx = const at(libc::REG_RBX),
    rbp = const at(libc::REG_RBP),
    r12 = const at(libc::REG_R12),
    r13 = const at(libc::REG_R13),
    r14 = const at(libc::REG_R14),
    r15 = const at(libc::REG_R15),
);
