//! The fault guard: a load or store that hits a vanished page ends in an error, not in a signal.
//!
//! When SIGBUS or SIGSEGV stops a thread inside a guarded range of code (`exception_table.rs`),
//! [`handle_fault`] moves its instruction pointer to the landing address, and the routine returns
//! which side of the copy failed. An executable and a preload library that both hold this crate
//! have a table and a handler each, which chain.
//!
//! Nothing here locks or allocates: the handler is safe in any thread at any time. A program that
//! has *blocked* SIGBUS or SIGSEGV is killed by the kernel at such a fault, as without us.

use crate::faults::stray;
use crate::faults::{copy_on_write, service, truncation};
use crate::instructions::exception_table::{landing_for, set_last_fault};
use os::interrupt::system_call;
use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Serves a SIGBUS or SIGSEGV if it came from a guarded instruction of this crate.
///
/// True: it did, and `context` now continues at the landing address, or at the same instruction if
/// that was the first store into a piece of a view. False: the signal is not this crate's (`kill`
/// may have sent it), and nothing was changed.
///
/// # Safety
///
/// The arguments are those the kernel gave to an `SA_SIGINFO` handler, unchanged.
pub unsafe fn handle_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    if signal != libc::SIGBUS && signal != libc::SIGSEGV {
        return false;
    }
    // SAFETY: the caller passes what the kernel passed.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    if info.si_code <= 0 {
        return false;
    }
    let stores = stray::is_store(&context.uc_mcontext.gregs);
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    match landing_for(*rip as usize) {
        Some(landing) => {
            // SAFETY: the kernel gives the address of a fault.
            let address = unsafe { info.si_addr() } as usize;
            set_last_fault(address);
            if signal == libc::SIGBUS && service::touched(address, stores) {
                return true;
            }
            if !(signal == libc::SIGSEGV && copy_on_write::copy_piece_at(address)) {
                *rip = landing as i64;
                if signal == libc::SIGBUS {
                    truncation::tell(address);
                }
            }
            true
        }
        None => false,
    }
}

/// The kernel's own layout of `struct sigaction` on x86-64 (libc's differs).
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

const SA_SIGINFO: u64 = 0x4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;

/// The handler that was installed before ours, per signal, and its flags.
struct Previous {
    handler: AtomicUsize,
    flags: AtomicUsize,
}

static PREVIOUS_BUS: Previous =
    Previous { handler: AtomicUsize::new(0), flags: AtomicUsize::new(0) };
static PREVIOUS_SEGV: Previous =
    Previous { handler: AtomicUsize::new(0), flags: AtomicUsize::new(0) };

/// Gets the action for `signal` and, if there is a `new` one, sets it.
fn exchange_action(signal: i32, new: Option<&KernelAction>) -> KernelAction {
    let mut old = KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as usize);
    let arguments = [signal as usize, new, &raw mut old as usize, size_of::<u64>(), 0, 0];
    // SAFETY: the kernel reads and writes whole `KernelAction`s with a mask of 8 bytes.
    let done = unsafe { system_call(libc::SYS_rt_sigaction, arguments) };
    debug_assert!(done.is_ok(), "these signals can be handled");
    old
}

/// Sends `signal` to this very thread; it arrives before this returns, unless it is blocked.
fn raise(signal: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let arguments = [process, thread, signal as usize, 0, 0, 0];
    // SAFETY: plain numbers. A thread can signal itself.
    let _ = unsafe { system_call(libc::SYS_tgkill, arguments) };
}

/// Where the kernel returns to after a handler: the `rt_sigreturn` system call.
#[unsafe(naked)]
extern "C" fn restorer() {
    naked_asm!("mov eax, 15", "syscall", "ud2")
}

const _: () = assert!(libc::SYS_rt_sigreturn == 15);

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel called us with these arguments.
    unsafe {
        if handle_fault(signal, info, context) {
            return;
        }
        stray::explain(info, context, |text| {
            let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
            // A line that cannot be written is lost.
            let _ = system_call(libc::SYS_write, arguments);
        });
    }
    chain(signal, info, context);
}

/// Hands a fault that is not ours to the handler that was installed before.
fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = if signal == libc::SIGBUS { &PREVIOUS_BUS } else { &PREVIOUS_SEGV };
    let handler = previous.handler.load(Ordering::Acquire);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the kernel gave us `info`.
        let sent = unsafe { (*info).si_code } <= 0;
        if sent && handler == libc::SIG_IGN {
            return;
        }
        // A fault repeats when we return and then meets the default action; a signal that was sent
        // (`kill`) does not repeat, so it is raised once more.
        let default = KernelAction {
            handler: libc::SIG_DFL,
            flags: SA_RESTORER,
            restorer: restorer as *const () as usize,
            mask: 0,
        };
        exchange_action(signal, Some(&default));
        if sent {
            raise(signal);
        }
        return;
    }
    if previous.flags.load(Ordering::Relaxed) as u64 & SA_SIGINFO != 0 {
        // SAFETY: the previous owner installed this address as a three-argument handler.
        let call: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: the previous owner installed this address as a one-argument handler.
        let call: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

static INSTALLED: Once = Once::new();
static IS_CALLERS: AtomicBool = AtomicBool::new(false);

/// Installs [`handle_fault`] for SIGBUS and SIGSEGV, in front of the handlers that are there now.
///
/// Does so once a process; opening a region calls it.
pub fn install_fault_handler() {
    if IS_CALLERS.load(Ordering::Acquire) {
        return;
    }
    INSTALLED.call_once(|| {
        for (signal, previous) in [(libc::SIGBUS, &PREVIOUS_BUS), (libc::SIGSEGV, &PREVIOUS_SEGV)] {
            let old = exchange_action(signal, None);
            previous.flags.store(old.flags as usize, Ordering::Relaxed);
            previous.handler.store(old.handler, Ordering::Release);
            let new = KernelAction {
                handler: on_fault as *const () as usize,
                flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_NODEFER,
                restorer: restorer as *const () as usize,
                mask: 0,
            };
            exchange_action(signal, Some(&new));
        }
    });
}

/// Says that the caller's own handlers for SIGBUS and SIGSEGV stand and call [`handle_fault`]
/// first: none is installed here. For a face that owns the program's `sigaction`, before it opens
/// a region.
pub fn own_fault_handler() {
    IS_CALLERS.store(true, Ordering::Release);
}
