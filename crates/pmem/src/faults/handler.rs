//! The fault guard: a load or store that hits a vanished page ends in an error, not in a signal.
//!
//! Every instruction of this crate that touches the region or the caller's memory is listed in the
//! section `solera_extable`: three 32-bit distances (each relative to its own place) to the first
//! byte of a guarded range of code, to the byte after it, and to the landing address. When SIGBUS
//! or SIGSEGV stops a thread inside such a range, [`handle_fault`] moves its instruction pointer to
//! the landing address, and the routine returns which side of the copy failed.
//!
//! The section is merged by the linker over all objects of one executable or shared library and is
//! flagged `R` (retain), so that garbage collection of sections cannot drop it. The table belongs
//! to one linked object: an executable and a preload library that both hold this crate have a table
//! and a handler each, which chain.
//!
//! Nothing here locks or allocates: the handler is safe in any thread at any time. A program that
//! has *blocked* SIGBUS or SIGSEGV is killed by the kernel at such a fault, as without us.

use crate::faults::stray;
use crate::faults::truncation;
use crate::interrupt::system_call;
use crate::region::pager;
use crate::region::private_view;
use std::arch::{global_asm, naked_asm};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Emits the table entry for the code between two local labels; used inside `asm!` templates.
macro_rules! guarded {
    ($first:literal, $end:literal, $landing:literal) => {
        concat!(
            ".pushsection solera_extable,\"aR\",@progbits\n",
            ".balign 4\n",
            ".long ",
            $first,
            " - .\n.long ",
            $end,
            " - .\n.long ",
            $landing,
            " - .\n",
            ".popsection\n"
        )
    };
}
pub(crate) use guarded;

/// One guarded range; every field is a distance from the field's own address.
#[repr(C)]
struct Entry {
    first: i32,
    end: i32,
    landing: i32,
}

const _: () = assert!(size_of::<Entry>() == 12 && align_of::<Entry>() == 4);

// Each linked object must find its own table, whatever linker merged it.
global_asm!(".hidden __start_solera_extable", ".hidden __stop_solera_extable");

unsafe extern "C" {
    static __start_solera_extable: Entry;
    static __stop_solera_extable: Entry;
}

/// The address a table field points at.
fn target(field: &i32) -> usize {
    (std::ptr::from_ref(field) as usize).wrapping_add_signed(*field as isize)
}

/// A guarded range, and where a fault in it goes on.
type Range = (usize, usize, usize);

/// The table in ascending order, in memory that is never freed; null until faults are expected.
static SORTED: AtomicPtr<Range> = AtomicPtr::new(std::ptr::null_mut());
/// Where guarded code begins and ends; 0 until a fault has asked.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// The linker's table: in no order.
fn table() -> &'static [Entry] {
    let first = &raw const __start_solera_extable;
    let end = &raw const __stop_solera_extable;
    let count = (end as usize - first as usize) / size_of::<Entry>();
    // SAFETY: the linker defines both symbols around the merged section, which holds only entries.
    unsafe { std::slice::from_raw_parts(first, count) }
}

fn range(entry: &Entry) -> Range {
    (target(&entry.first), target(&entry.end), target(&entry.landing))
}

/// Guarded instructions are going to fault often: a handler finds their ranges in order from here
/// on. Not at a process's start: to sort some thousand ranges is a good part of that.
pub(crate) fn expect_faults() {
    static SORTING: Once = Once::new();
    SORTING.call_once(|| {
        let mut sorted: Vec<Range> = table().iter().map(range).collect();
        sorted.sort_unstable();
        SORTED.store(sorted.leak().as_mut_ptr(), Ordering::Release);
    });
}

/// Whether guarded code may be there. The faults of a program's own code, which may be many, end
/// here.
fn is_near(rip: usize) -> bool {
    if END.load(Ordering::Acquire) == 0 {
        // Handlers of several threads may find this at once: they find the same.
        let bounds = table()
            .iter()
            .map(range)
            .fold((usize::MAX, 0), |(begin, end), range| (begin.min(range.0), end.max(range.1)));
        BEGIN.store(bounds.0, Ordering::Relaxed);
        END.store(bounds.1, Ordering::Release);
    }
    (BEGIN.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&rip)
}

/// The landing address for a fault at instruction `rip`, if that instruction is guarded.
fn landing_for(rip: usize) -> Option<usize> {
    if !is_near(rip) {
        return None;
    }
    let sorted = SORTED.load(Ordering::Acquire);
    let found = if sorted.is_null() {
        table().iter().map(range).find(|range| (range.0..range.1).contains(&rip))
    } else {
        // SAFETY: leaked by `expect_faults`, with as many ranges as the table has.
        let sorted = unsafe { std::slice::from_raw_parts(sorted, table().len()) };
        let behind = sorted.partition_point(|range| range.0 <= rip);
        sorted.get(behind.checked_sub(1)?).copied().filter(|range| rip < range.1)
    };
    found.map(|range| range.2)
}

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
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    match landing_for(*rip as usize) {
        Some(landing) => {
            // SAFETY: the kernel gives the address of a fault.
            let address = unsafe { info.si_addr() } as usize;
            LAST_FAULT.set(address);
            if signal == libc::SIGBUS && pager::touched(address) {
                return true;
            }
            if !(signal == libc::SIGSEGV && private_view::copy_on_write(address)) {
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

thread_local! {
    /// The address of this thread's last fault in a guarded instruction.
    static LAST_FAULT: Cell<usize> = const { Cell::new(0) };
}

/// The same as [`take_last_fault`], which may ask again.
pub(crate) fn last_fault() -> usize {
    LAST_FAULT.get()
}

/// Where this thread's last guarded access that faulted did so; 0 if that was asked already.
pub(crate) fn take_last_fault() -> usize {
    LAST_FAULT.replace(0)
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

/// Installs [`handle_fault`] for SIGBUS and SIGSEGV, in front of the handlers that are there now.
///
/// Does so once a process; opening a region calls it.
pub fn install_fault_handler() {
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
    INSTALLED.call_once(|| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guarded_instruction_is_found() {
        assert!(!table().is_empty());
        each_is_found();
        expect_faults();
        assert!(!SORTED.load(Ordering::Acquire).is_null());
        each_is_found();
    }

    fn each_is_found() {
        for entry in table() {
            let (first, end) = (target(&entry.first), target(&entry.end));
            let landing = Some(target(&entry.landing));
            assert_eq!((landing_for(first), landing_for(end - 1)), (landing, landing));
            let others = table()
                .iter()
                .filter(|other| (target(&other.first)..target(&other.end)).contains(&end));
            assert_eq!(landing_for(end).is_some(), others.count() > 0, "{end:#x}");
        }
        assert_eq!(landing_for(0), None);
        assert_eq!(landing_for(usize::MAX), None);
    }
}
