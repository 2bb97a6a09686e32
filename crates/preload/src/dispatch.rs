//! System calls that code outside the C library makes by its own instructions: crates built on
//! `rustix`, Zig, Go in shared libraries, code made at run time.
//!
//! The kernel sends SIGSYS for them (Syscall User Dispatch, Linux 5.11), and they are served by the
//! same bodies as those of the door. Exempt is the C library's text, whose sites
//! that are served are patched; and this library's own code, while it runs: it says so in a byte of
//! its thread's record (see [`OwnCode`]).
//!
//! The handler does no work. It notes the registers on a stack of the library's own that the thread
//! has, and has the thread go on there, when the handler's frame is gone: the thread's signal stack
//! is as free as it was, and a handler of the program's that leaves by `siglongjmp` leaves nothing
//! behind. There the call is served, with the vector registers put aside. One that is the kernel's
//! is made by an instruction here, on the program's own stack and with its registers, as the
//! program has made it: it waits and is interrupted as any. A thread that stands on its signal
//! stack stays there: the call is served in the handler.
//!
//! ```text
//! program: syscall   SIGSYS: handler   own stack: serve   program's stack: goes on behind it
//!                                                     or: syscall, goes on behind it
//! ```
//!
//! Threads. The kernel switches it off for a new thread or process and at an exec. Each thread of
//! the C library's and each forked child begins with `set_robust_list`, which arrives by the door:
//! then it is switched on. Not for a thread that a system call of the program's own makes, or that
//! begins behind a filter of system calls, which may end it for the `prctl`: the report says so.
//!
//! A call costs two entries of the kernel more, and a signal. SIGSYS is never blocked in the
//! kernel's mask (see [`crate::signals::sigmask`]).

use std::arch::global_asm;
use std::ffi::{c_int, c_long, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use ::door::arm::Armed;
use ::door::entry::Call;
use libc::{siginfo_t, stack_t, ucontext_t};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use vfs::Errno;

use crate::door;
use crate::entry::pending_signals::{change_mask, set_mask};
use crate::entry::pointers::Out;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{OwnCode, RED_ZONE, TRAP_STACK_BYTES, Thread, here};
use crate::entry::{Inside, cancel, errno, report, set_errno};
use crate::host;
use crate::runtime::guest::{self, Registers, guest_handler};
use crate::runtime::{code, cpu, relocation};
use crate::signals::{passing, sigaction, signal};

/// `prctl`: switches it on or off.
pub const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const ON: usize = 1;
/// `si_code` of such a SIGSYS.
const SYS_USER_DISPATCH: c_int = 2;
/// `si_arch` of a call by `syscall`; one by `int 0x80` has another one, and other numbers.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// The word of the kernel's structure that has it, behind the call's address and number.
const SI_ARCH: usize = 7;

/// The C library's text: address and bytes; 0: it is not switched on in this process.
static EXEMPT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// The program has set a filter of system calls.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// The C library is armed, and there is one thread: threads that begin from here on switch it on.
/// This one does in the library's constructor: until then the dynamic linker makes calls, each of
/// which a debugger would stop at.
pub fn begin(armed: &Armed) {
    sigaction::trap_by(trapped);
    EXEMPT[0].store(armed.text.0, Ordering::Relaxed);
    EXEMPT[1].store(armed.text.1, Ordering::Relaxed);
}

/// A guest begins: its calls all come from outside the C library. There is one thread. Gives
/// whether they arrive.
pub fn begin_guest() -> bool {
    if !cancel::sees_outside() {
        return false;
    }
    let thread = here();
    guest::register(&thread.guest, &raw const thread.selector);
    thread.guest.has_begun.store(true, Ordering::Relaxed);
    // The address of the one for guests is known when there is one.
    sigaction::begin_guest(trapping);
    true
}

/// What [`begin`] has left. Called inside.
pub fn go_on() {
    if EXEMPT[0].load(Ordering::Relaxed) == 0 {
        return;
    }
    if arm_thread() {
        let [start, end] = [&raw const solera_dispatch_pass, &raw const solera_dispatch_pass_end];
        cancel::makes_calls_in(start.addr()..end.addr());
    }
}

/// Switches it on for this thread, if it is on in the process. Own code runs.
pub fn arm_thread() -> bool {
    let [start, bytes] = [0, 1].map(|at: usize| EXEMPT[at].load(Ordering::Relaxed));
    if start == 0 {
        return false;
    }
    if IS_FILTERED.load(Ordering::Relaxed) {
        report::fell_back("clone", "no-system-call-dispatch-behind-a-filter");
        return false;
    }
    signal::admit_own();
    keep_stack();
    if guest::is_here() {
        guest::register(&here().guest, &raw const here().selector);
    }
    let selector = (&raw const here().selector) as usize;
    let option = PR_SET_SYSCALL_USER_DISPATCH as usize;
    let given = [option, ON, start, bytes, selector, 0];
    let is_on = syscall::kernel(libc::SYS_prctl, given) == 0;
    // Said once.
    if !is_on && EXEMPT[0].swap(0, Ordering::Relaxed) != 0 {
        report::fell_back("prctl", "no-system-call-dispatch");
    }
    is_on
}

/// The program sets a filter of system calls, or allows itself nothing but reads and writes
/// (`is_strict`): threads that begin later are left alone. This one needs no other call than those
/// that it makes itself, and the return from the handler; in strict mode it is let go.
pub fn before_filter(is_strict: bool) {
    IS_FILTERED.store(true, Ordering::Relaxed);
    relocation::finish();
    code::ask_no_more();
    let thread = here();
    if is_strict {
        const OFF: usize = 0;
        let option = PR_SET_SYSCALL_USER_DISPATCH as usize;
        syscall::kernel(libc::SYS_prctl, [option, OFF, 0, 0, 0, 0]);
    } else if thread.trap_stack.load(Ordering::Relaxed) == 0
        && EXEMPT[0].load(Ordering::Relaxed) != 0
    {
        give_stack(thread);
    }
}

/// A call of the program's that has arrived.
#[repr(C)]
pub struct Slot {
    /// Where the thread goes on, and with what.
    registers: Registers,
    /// For the alignment that the vector registers ask for.
    unused: i64,
}

/// The states of vector registers that are put aside: SSE's, AVX's and AVX-512's. The rights of
/// memory (`PKRU`) are not among them.
const STATES: u32 = 0b1110_0110;
/// Bytes of a slot, and of the vector registers below it.
pub const SLOT: usize = size_of::<Slot>();
const VECTORS: usize = passing::VECTORS;
const _: () = assert!(SLOT.is_multiple_of(64) && VECTORS.is_multiple_of(64));

guest_handler!(fn trapping, "solera_guest_trapped" => trapped);

/// The handler of SIGSYS.
extern "C-unwind" fn trapped(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel called us with these.
    let (code, kind, interrupted) = unsafe {
        let kind = info.cast::<u32>().add(SI_ARCH).read();
        ((*info).si_code, kind, &mut *context.cast::<ucontext_t>())
    };
    if code != SYS_USER_DISPATCH {
        // The program's, whose action may add to the mask.
        set_mask(mask_in(interrupted) | sigaction::mask_of_trap());
        return signal::arrive(signal, info, context);
    }
    let _own = OwnCode::new();
    let failed = errno();
    let thread = here();
    let registers = &mut interrupted.uc_mcontext.gregs;
    let [number, address, stack] = [libc::REG_RAX, libc::REG_RIP, libc::REG_RSP]
        .map(|register| registers[register as usize] as usize);
    if thread.is_inside() || cancel::is_own_code(address) {
        // Own code that made no word of it. It may wait, and be interrupted.
        set_mask(mask_in(interrupted));
        let registers = &mut interrupted.uc_mcontext.gregs;
        let answer = raw(number as c_long, arguments_of(registers));
        registers[libc::REG_RAX as usize] = answer as i64;
    } else if kind != AUDIT_ARCH_X86_64 {
        made_at(address, || report::refused("int-0x80", "system-call-of-32-bit", Errno::NOSYS));
        registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
    } else if number as c_long == libc::SYS_rt_sigreturn {
        // It comes back to the C library's instruction, which is exempt.
        let _inside = Inside::new();
        let restorer = sigaction::restorer().unwrap_or(0);
        registers[libc::REG_RIP as usize] = restorer as i64;
    } else if let Some(slot) = place_of(thread, stack, &interrupted.uc_stack) {
        let compacts = u8::from(cpu::has_xsavec());
        // SAFETY: a byte, always the same; only what this thread goes on with reads it.
        unsafe { (&raw mut solera_dispatch_compacts).write_volatile(compacts) };
        // SAFETY: room for it on the thread's own stack, of which nothing is used below.
        unsafe { (slot as *mut Slot).write(Slot { registers: *registers, unused: 0 }) };
        thread.guest.stands(slot, guest::STANDS);
        registers[libc::REG_RIP as usize] = solera_dispatch_serve as *const () as i64;
        registers[libc::REG_RSP as usize] = slot as i64;
        // The direction that our code assumes.
        registers[libc::REG_EFL as usize] &= !0x400;
    } else {
        serve_here(interrupted);
    }
    set_errno(failed);
}

/// The mask that the thread has where it was interrupted.
fn mask_in(interrupted: &ucontext_t) -> u64 {
    // SAFETY: the kernel's 8 bytes of it.
    unsafe { (&raw const interrupted.uc_sigmask).cast::<u64>().read() }
}

/// Calls the kernel here: its answer, or `-errno`.
fn raw(number: c_long, given: Arguments) -> isize {
    let answer = syscall::kernel(number, given) as isize;
    if answer == -1 { -(errno() as isize) } else { answer }
}

/// A call's arguments, in the kernel's order.
fn arguments_of(registers: &Registers) -> Arguments {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9]
        .map(|register| registers[register as usize] as usize)
}

/// A stack that a thread has, or had: nothing arrives when a thread ends, so the next one that
/// needs a stack asks which threads there are.
struct Owned {
    /// The thread; 0: none was made here.
    thread: AtomicU32,
    stack: AtomicUsize,
}

/// Beyond these each thread makes a stack, which stays.
static STACKS: [Owned; 256] =
    [const { Owned { thread: AtomicU32::new(0), stack: AtomicUsize::new(0) } }; 256];

/// Where the slot of a thread with this stack pointer is to be: on its own stack, below what is in
/// use. `None`: it stands on its signal stack, or there is no memory.
fn place_of(thread: &Thread, at: usize, signals: &stack_t) -> Option<usize> {
    let disarmed = thread.disarmed.each_ref().map(|word| word.load(Ordering::Relaxed));
    for [start, bytes] in [[signals.ss_sp as usize, signals.ss_size], disarmed] {
        if bytes != 0 && (start..start + bytes).contains(&at) {
            return None;
        }
    }
    let own = match thread.trap_stack.load(Ordering::Relaxed) {
        0 => {
            give_stack(thread);
            thread.trap_stack.load(Ordering::Relaxed)
        }
        own => own,
    };
    if own == 0 {
        return None;
    }
    let end = own + TRAP_STACK_BYTES;
    // The handler has come upon another one, of a signal that was there as well, which had not yet
    // noted that the stack is switched off. The call which both have interrupted is still served.
    let is_served = thread.guest.serving.load(Ordering::Relaxed) != 0;
    if guest::is_here() && is_served && signals.ss_size == 0 && !(own..end).contains(&at) {
        return None;
    }
    // In a handler that has interrupted a call which is served; else nothing is in use: a call that
    // was left is over.
    let free = if (own..end).contains(&at) { at - RED_ZONE } else { end };
    Some((free - SLOT) & !63)
}

/// Gives a thread its stack, if there is memory for it.
fn give_stack(thread: &Thread) {
    let own = new_stack().unwrap_or(0);
    thread.trap_stack.store(own, Ordering::Relaxed);
    let end = if own == 0 { 0 } else { own + TRAP_STACK_BYTES };
    thread.guest.stack_end.store(end, Ordering::Relaxed);
}

/// A thread has brought its stack, of [`TRAP_STACK_BYTES`].
pub fn has_stack(own: usize) {
    let thread = here();
    thread.trap_stack.store(own, Ordering::Relaxed);
    thread.guest.stack_end.store(own + TRAP_STACK_BYTES, Ordering::Relaxed);
}

/// It has taken it away: no call of the program's arrives any more.
pub fn has_no_stack() {
    let thread = here();
    thread.guest.stack_end.store(0, Ordering::Relaxed);
    thread.trap_stack.store(0, Ordering::Relaxed);
}

/// A stack for the calling thread: one of a thread that has ended (or of the parent process'), or a
/// new one. No lock: a place is taken by compare-and-swap.
fn new_stack() -> Option<usize> {
    let id = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
    let (process, own) = (id(rustix::process::getpid()), id(rustix::thread::gettid()));
    let is_dead = |thread: i32| {
        let asked =
            syscall::kernel(libc::SYS_tgkill, [process as usize, thread as usize, 0, 0, 0, 0]);
        asked != 0 && errno() == libc::ESRCH
    };
    let own_number = own.cast_unsigned();
    let free = STACKS.iter().find(|place| {
        let owner = place.thread.load(Ordering::Acquire);
        let is_free = owner == 0 || owner == own_number || is_dead(owner.cast_signed());
        let (order, other) = (Ordering::AcqRel, Ordering::Relaxed);
        is_free && place.thread.compare_exchange(owner, own_number, order, other).is_ok()
    });
    match free.map(|place| &place.stack) {
        None => made_stack(),
        Some(stack) if stack.load(Ordering::Relaxed) != 0 => Some(stack.load(Ordering::Relaxed)),
        Some(stack) => {
            let made = made_stack()?;
            stack.store(made, Ordering::Relaxed);
            Some(made)
        }
    }
}

/// In a forked process, whose one thread has another number: its stack is its own.
fn keep_stack() {
    let own = here().trap_stack.load(Ordering::Relaxed);
    if own != 0
        && let Some(place) = STACKS.iter().find(|place| place.stack.load(Ordering::Relaxed) == own)
    {
        let number = rustix::thread::gettid().as_raw_nonzero().get();
        place.thread.store(number.cast_unsigned(), Ordering::Release);
    }
}

fn made_stack() -> Option<usize> {
    let (access, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
    );
    let bytes = GUARD + TRAP_STACK_BYTES;
    // SAFETY: a new mapping, whose first page is given away.
    unsafe {
        let made = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags).ok()?;
        let _ = rustix::mm::mprotect(made, GUARD, MprotectFlags::empty());
        Some(made as usize + GUARD)
    }
}

const GUARD: usize = 4096;

/// Serves the call in a slot, on the thread's own stack. Where the kernel is to make it, the thread
/// goes on where that is done.
extern "C-unwind" fn serve(slot: &mut Slot) {
    let _own = OwnCode::new();
    // Not of a place that is patched already.
    if guest::is_here() && here().guest.stage.load(Ordering::Relaxed) == guest::STANDS {
        let [behind, number] =
            [libc::REG_RIP, libc::REG_RAX].map(|register| slot.registers[register as usize]);
        host::sites::consider(behind as usize);
        host::wrappers::consider(behind as usize, number);
    }
    serve_slot(slot);
}

/// The same of a place that is patched.
pub extern "C-unwind" fn serve_patched(slot: &mut Slot) {
    let _own = OwnCode::new();
    here().guest.stands((&raw const slot.registers).addr(), guest::PATCHED);
    serve_slot(slot);
    here().guest.serving.store(0, Ordering::Relaxed);
}

fn serve_slot(slot: &mut Slot) {
    let failed = errno();
    if let Some(result) = serve_by(&mut slot.registers) {
        slot.registers[libc::REG_RAX as usize] = result as i64;
    } else {
        pass_behind(&mut slot.registers);
    }
    set_errno(failed);
}

/// Something is done for a guest's call from here on, or nothing was (`false`).
fn begin_call(is_begun: bool) {
    let stage = &here().guest.stage;
    if stage.load(Ordering::Relaxed) != guest::PATCHED {
        stage.store(if is_begun { guest::BEGUN } else { guest::STANDS }, Ordering::Relaxed);
    }
}

/// Nothing was done for a guest's call, which the kernel is to serve: signals whose handlers could
/// not know that come now.
fn come_again() {
    let signals = here().guest.again.swap(0, Ordering::Relaxed);
    if signals != 0 {
        signal::unblock(signals);
    }
}

/// The same in the handler, of a thread that stands on its signal stack.
#[cold]
fn serve_here(interrupted: &mut ucontext_t) {
    let number = interrupted.uc_mcontext.gregs[libc::REG_RAX as usize];
    set_mask(mask_in(interrupted));
    let served = serve_by(&mut interrupted.uc_mcontext.gregs);
    if served.is_some() && number == libc::SYS_rt_sigprocmask {
        let now = change_mask(libc::SIG_BLOCK, 0);
        // SAFETY: the kernel's 8 bytes of the mask that the thread gets back.
        unsafe { (&raw mut interrupted.uc_sigmask).cast::<u64>().write(now) };
    }
    let registers = &mut interrupted.uc_mcontext.gregs;
    match served {
        Some(result) => registers[libc::REG_RAX as usize] = result as i64,
        None => pass_behind(registers),
    }
}

/// Serves a call, and says what it answers. `None`: it is the kernel's.
fn serve_by(registers: &mut Registers) -> Option<isize> {
    let [number, address, stack] = [libc::REG_RAX, libc::REG_RIP, libc::REG_RSP]
        .map(|register| registers[register as usize] as usize);
    let mut given = arguments_of(registers);
    if !guest::is_here() && is_of_solera(address) {
        // The explicit library, SQLite's VFS, commands: they have an engine of their own.
        return None;
    }
    if guest::is_here() {
        let number = number as c_long;
        begin_call(host::answers(number));
        let answer = || host::answer(number, &mut given, registers);
        if let Some(result) = made_at(address, answer) {
            return Some(result);
        }
        let is_as_given = given == arguments_of(registers);
        if is_as_given && door::is_kernels_by_number(number, &given) {
            begin_call(false);
            return None;
        }
        begin_call(true);
        here().guest.again.store(0, Ordering::Relaxed);
    } else {
        door::arm_linker_at(address);
        if asks_for_tracer(number as c_long, &given) {
            return Some(0);
        }
    }
    let mut call = Call::trapped(number as u32, given, address, stack);
    let is_served = u32::try_from(number).is_ok() && made_at(address, || door::answer(&mut call));
    if !is_served {
        if given != arguments_of(registers) {
            // The guest's own registers have other ones.
            let answer = syscall::waiting(number as c_long, given) as isize;
            return Some(if answer == -1 { -(errno() as isize) } else { answer });
        }
        let result = made_at(address, || pass_with_stack(number as c_long, &given, registers));
        begin_call(result.is_some());
        return result;
    }
    if let Some(other) = call.other_stack().filter(|other| *other != 0) {
        registers[libc::REG_RSP as usize] = other as i64;
    }
    Some(call.result)
}

/// Whether a call asks for a tracer, which begins at the exec: signals of calls would stop it.
pub fn asks_for_tracer(number: c_long, given: &Arguments) -> bool {
    let asks = number == libc::SYS_ptrace && given[0] == libc::PTRACE_TRACEME as usize;
    if asks {
        here().guest.is_traced.store(true, Ordering::Relaxed);
    }
    asks
}

/// What is reported meanwhile is of a call that is made there. A child goes on behind it, too.
fn made_at<T>(address: usize, serve: impl FnOnce() -> T) -> T {
    let caller = &here().caller;
    // A handler of the program's that leaves by a jump leaves none behind.
    let outer = caller.swap(address, Ordering::Relaxed);
    let served = serve();
    caller.store(outer, Ordering::Relaxed);
    served
}

/// What was found of addresses, so that the list of objects is not looked through at each call:
/// where a piece of code begins and ends, and whether it is one of those. An end of 0: none, or not
/// yet.
static FOUND: [[AtomicUsize; 3]; 8] = [const { [const { AtomicUsize::new(0) }; 3] }; 8];

/// Whether the code at an address is of this project's own: of another library, or of a command.
fn is_of_solera(address: usize) -> bool {
    let known = FOUND.iter().find_map(|[start, end, is]| {
        let end = end.load(Ordering::Acquire);
        let is_in = (start.load(Ordering::Relaxed)..end).contains(&address);
        is_in.then(|| is.load(Ordering::Relaxed) != 0)
    });
    known.unwrap_or_else(|| look_for(address))
}

#[cold]
fn look_for(address: usize) -> bool {
    let Some((code, file)) = code::loaded_at(address) else { return false };
    let is = code::is_of_solera(file);
    for [start, end, is_own] in &FOUND {
        let (order, other) = (Ordering::AcqRel, Ordering::Relaxed);
        if start.compare_exchange(0, code.start, order, other).is_ok() {
            is_own.store(is.into(), Ordering::Relaxed);
            end.store(code.end, Ordering::Release);
            break;
        }
    }
    is
}

/// Has the thread make its call itself, below its own stack pointer and red zone.
fn pass_behind(registers: &mut Registers) {
    let stack = registers[libc::REG_RSP as usize] as usize;
    let behind = stack - RED_ZONE - size_of::<usize>();
    let pass = if guest::is_here() {
        &raw const solera_dispatch_pass_guest
    } else {
        &raw const solera_dispatch_pass
    };
    // A handler finds the guest before its call with all registers, or where that is made.
    begin_call(true);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: below the program's stack, where a signal's frame without a stack of its own is put.
    unsafe { (behind as *mut i64).write_unaligned(registers[libc::REG_RIP as usize]) };
    registers[libc::REG_RSP as usize] = behind as i64;
    compiler_fence(Ordering::SeqCst);
    registers[libc::REG_RIP as usize] = pass.addr() as i64;
    compiler_fence(Ordering::SeqCst);
    begin_call(false);
    come_again();
}

/// A call that is the kernel's, whose child goes on with a stack of its own: behind the program's
/// instruction, with all of its registers. `None`: another one.
fn pass_with_stack(number: c_long, given: &Arguments, registers: &Registers) -> Option<isize> {
    let (flags, stack) = door::flags_of(number, given)?;
    if stack == 0 {
        // A child that shared this stack would leave its parent nothing to come back to: it gets a
        // copy.
        let is_apart = flags & door::CLONE_VM == 0;
        return (!is_apart).then(|| raw(libc::SYS_fork, [0; 6]));
    }
    // What the child's `ret` takes from its stack.
    let top = stack.wrapping_sub(size_of::<usize>());
    if let Err(error) = Out(top as *mut i64).put(registers[libc::REG_RIP as usize]) {
        return Some(-(error.raw_os_error() as isize));
    }
    report::fell_back("clone", "no-system-call-dispatch-in-own-threads");
    let mut words = [0; door::CLONE_WORDS];
    let mut given = *given;
    if number == libc::SYS_clone3 {
        let count = (given[1] / size_of::<u64>()).min(words.len());
        let Ok(read) = Out(given[0] as *mut u64).array(count) else {
            return Some(-(libc::EFAULT as isize));
        };
        words[..count].copy_from_slice(&read);
        // The stack's size.
        words[6] = words[6].wrapping_sub(size_of::<usize>() as u64);
        given[0] = words.as_ptr() as usize;
        given[1] = count * size_of::<u64>();
    } else {
        given[1] = top;
    }
    // SAFETY: the program's own call; the child goes on where the program's instruction ends.
    Some(unsafe { solera_dispatch_clone(number, &given, registers) })
}

unsafe extern "C" {
    /// Where a thread goes on that has a [`Slot`] at the top of its stack.
    fn solera_dispatch_serve();
    /// Where a thread goes on that makes its call itself, with the address behind it on its stack.
    static solera_dispatch_pass: [u8; 0];
    static solera_dispatch_pass_guest: [u8; 0];
    static solera_dispatch_pass_end: [u8; 0];
    static mut solera_dispatch_compacts: u8;
    /// Makes a call whose child begins with these registers, and with a `ret`.
    fn solera_dispatch_clone(number: c_long, given: &Arguments, registers: &Registers) -> isize;
}

pub const fn at(register: c_int) -> usize {
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
    // With a slot at rsp: rbx keeps its address. Vectors are put aside below it.
    ".hidden solera_dispatch_serve",
    ".globl solera_dispatch_serve",
    ".type solera_dispatch_serve, @function",
    "solera_dispatch_serve:",
    "mov rbx, rsp",
    "sub rsp, {vectors}",
    "cmp byte ptr [rip + solera_guest_is_here], 0",
    "je 5f",
    "rdfsbase rax",
    "mov gs:[{pointer}], rax",
    "mov rax, gs:[{own}]",
    "wrfsbase rax",
    "5:",
    "cmp byte ptr [rip + solera_dispatch_compacts], 0",
    "je 2f",
    "xor eax, eax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "mov eax, {states}",
    "xor edx, edx",
    "xsavec64 [rsp]",
    "jmp solera_dispatch_kept",
    "2:",
    "fxsave64 [rsp]",
    // The vectors are put aside: a handler may lead from here on to where they are put back.
    ".hidden solera_dispatch_kept",
    ".globl solera_dispatch_kept",
    "solera_dispatch_kept:",
    "mov rdi, rbx",
    "call {serve}",
    ".hidden solera_dispatch_served",
    ".globl solera_dispatch_served",
    "solera_dispatch_served:",
    "cmp byte ptr [rip + solera_dispatch_compacts], 0",
    "je 3f",
    "mov eax, {states}",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "jmp 4f",
    "3:",
    "fxrstor64 [rsp]",
    "4:",
    "cmp byte ptr [rip + solera_guest_is_here], 0",
    "je solera_dispatch_go_on",
    "mov qword ptr gs:[{serving}], 0",
    // Goes on with the registers that rbx points at.
    ".hidden solera_dispatch_go_on",
    ".globl solera_dispatch_go_on",
    "solera_dispatch_go_on:",
    "cmp byte ptr [rip + solera_guest_is_here], 0",
    "je 6f",
    "mov rax, gs:[{pointer}]",
    "wrfsbase rax",
    "6:",
    "mov rax, [rbx + {rax}]",
    "mov rdi, [rbx + {rdi}]",
    "mov rsi, [rbx + {rsi}]",
    "mov rdx, [rbx + {rdx}]",
    "mov rbp, [rbx + {rbp}]",
    "mov r8, [rbx + {r8}]",
    "mov r9, [rbx + {r9}]",
    "mov r10, [rbx + {r10}]",
    "mov r12, [rbx + {r12}]",
    "mov r13, [rbx + {r13}]",
    "mov r14, [rbx + {r14}]",
    "mov r15, [rbx + {r15}]",
    "push qword ptr [rbx + {flags}]",
    "popfq",
    // From the last look at the slot on nothing of this stack is in use.
    "mov rcx, [rbx + {rip}]",
    "mov r11, [rbx + {rsp}]",
    "mov rbx, [rbx + {rbx}]",
    ".hidden solera_dispatch_last",
    ".globl solera_dispatch_last",
    "solera_dispatch_last:",
    "mov rsp, r11",
    "jmp rcx",
    ".hidden solera_dispatch_gone",
    ".globl solera_dispatch_gone",
    "solera_dispatch_gone:",
    ".size solera_dispatch_serve, . - solera_dispatch_serve",
    // With the address to go on at on top of the stack, above the red zone of the program's.
    ".hidden solera_dispatch_pass",
    ".globl solera_dispatch_pass",
    ".hidden solera_dispatch_pass_end",
    ".globl solera_dispatch_pass_end",
    ".type solera_dispatch_pass, @function",
    "solera_dispatch_pass:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, {behind}",
    ".cfi_offset rip, -{behind}",
    "mov rcx, qword ptr [rip + solera_thread@GOTTPOFF]",
    "mov byte ptr fs:[rcx + {selector}], 0",
    "syscall",
    "mov rcx, qword ptr [rip + solera_thread@GOTTPOFF]",
    "mov byte ptr fs:[rcx + {selector}], 1",
    "pop rcx",
    ".cfi_def_cfa rsp, {red_zone}",
    ".cfi_register rip, rcx",
    "lea rsp, [rsp + {red_zone}]",
    ".cfi_def_cfa rsp, 0",
    "jmp rcx",
    ".cfi_endproc",
    // The same of a guest, whose thread pointer is not the C library's.
    ".hidden solera_dispatch_pass_guest",
    ".globl solera_dispatch_pass_guest",
    "solera_dispatch_pass_guest:",
    "mov rcx, gs:[{place}]",
    "mov byte ptr [rcx], 0",
    "syscall",
    ".hidden solera_dispatch_pass_guest_made",
    ".globl solera_dispatch_pass_guest_made",
    // A signal's handler may put a thread elsewhere from here on, or before (`signals::passing`).
    "solera_dispatch_pass_guest_made:",
    "mov rcx, gs:[{place}]",
    "mov byte ptr [rcx], 1",
    "pop rcx",
    ".hidden solera_dispatch_pass_guest_popped",
    ".globl solera_dispatch_pass_guest_popped",
    "solera_dispatch_pass_guest_popped:",
    "lea rsp, [rsp + {red_zone}]",
    "jmp rcx",
    "solera_dispatch_pass_end:",
    ".size solera_dispatch_pass, . - solera_dispatch_pass",
    ".popsection",
    ".pushsection .bss.solera_dispatch,\"aw\",@nobits",
    ".hidden solera_dispatch_compacts",
    ".globl solera_dispatch_compacts",
    ".type solera_dispatch_compacts, @object",
    ".size solera_dispatch_compacts, 1",
    "solera_dispatch_compacts:",
    ".zero 1",
    ".popsection",
    serve = sym serve,
    vectors = const VECTORS,
    states = const STATES,
    selector = const offset_of!(Thread, selector),
    own = const guest::OWN,
    pointer = const guest::POINTER,
    place = const guest::SELECTOR,
    serving = const guest::SERVING,
    red_zone = const RED_ZONE,
    behind = const RED_ZONE + size_of::<usize>(),
    rax = const at(libc::REG_RAX),
    rdi = const at(libc::REG_RDI),
    rsi = const at(libc::REG_RSI),
    rdx = const at(libc::REG_RDX),
    r8 = const at(libc::REG_R8),
    r9 = const at(libc::REG_R9),
    r10 = const at(libc::REG_R10),
    rip = const at(libc::REG_RIP),
    rsp = const at(libc::REG_RSP),
    flags = const at(libc::REG_EFL),
    rbx = const at(libc::REG_RBX),
    rbp = const at(libc::REG_RBP),
    r12 = const at(libc::REG_R12),
    r13 = const at(libc::REG_R13),
    r14 = const at(libc::REG_R14),
    r15 = const at(libc::REG_R15),
);
