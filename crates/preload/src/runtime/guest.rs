//! A program without the dynamic linker's C library, in a process that has one: the *guest* (see
//! [`crate::host`]). Its code runs with a thread pointer of its own (the register FS), ours with
//! that of the C library.
//!
//! Each thread of such a process has both in its record, which the register GS points at whatever
//! runs: so a signal's handler and a call that has arrived find their way. Nothing else changes GS.
//!
//! A handler of the kernel's is called through [`crate::runtime::guest_handler`], which sets the
//! C library's thread pointer and puts back the one that it found. The guest's own handlers are
//! called by [`call`], with the guest's.

use std::arch::{asm, global_asm};
use std::ffi::c_ulong;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::runtime::environment;

/// What a thread's GS points at.
#[repr(C)]
pub struct Context {
    /// The C library's thread pointer.
    own: AtomicUsize,
    /// The guest's, while ours is set.
    pub pointer: AtomicUsize,
    /// The byte that the kernel looks at where a system call is made (see
    /// [`crate::entry::thread::Thread::selector`]).
    selector: AtomicUsize,
    /// The stack pointer in [`enter`], to which [`leave`] leads; 0: the thread never leaves.
    returns: AtomicUsize,
    /// The word that is cleared, and its waiter woken, when the thread ends; 0: none.
    pub clears: AtomicUsize,
    /// The list of mutexes that are marked when it ends; 0: none.
    pub robust: AtomicUsize,
    /// The piece of memory, with the stack that the thread stood on, that is given back when it
    /// ends: address and bytes.
    pub left: [AtomicUsize; 2],
    /// The end of the stack on which the thread's calls are served; 0: it has none yet.
    pub stack_end: AtomicUsize,
    /// Where the thread's standing signal stack begins, of [`SIGNAL_BYTES`], which the kernel has
    /// while the guest has none; 0: there is none.
    pub signals: AtomicUsize,
    /// The signal stack that the guest has asked for, where the kernel has the standing one in its
    /// place: address and bytes.
    pub asked: [AtomicUsize; 2],
    /// The registers of the call that is served on the thread's own stack, where the guest goes on;
    /// 0: none is. While a handler of the guest's runs, those of calls that it makes.
    pub serving: AtomicUsize,
    /// How far that is: one of the stages below.
    pub stage: AtomicU8,
    /// Signals whose handlers have blocked them, since the call that is served was begun: they want
    /// to come again (musl's of a thread that is cancelled, where it may not end).
    pub again: AtomicU64,
    /// It has asked to be traced (`PTRACE_TRACEME`), which begins at its exec.
    pub is_traced: AtomicBool,
    /// How many handlers of the guest's run. One that leaves by a jump stays counted.
    handling: AtomicU32,
    /// The thread is the guest's: what it blocks is the guest's to say. Before that it is one that
    /// the C library makes.
    pub has_begun: AtomicBool,
}

impl Context {
    /// A guest's call that is to be served has its registers there. What the host's own libraries
    /// call before there is a guest leaves nothing: their call's end would not clear it.
    pub fn stands(&self, slot: usize, stage: u8) {
        if is_here() {
            self.stage.store(stage, Ordering::Relaxed);
            self.serving.store(slot, Ordering::Relaxed);
        }
    }
}

/// [`Context::stage`]: nothing has been done for the call; the kernel may be asked to serve it.
pub const STANDS: u8 = 0;
/// The same: something may have been done, or all of it.
pub const BEGUN: u8 = 1;
/// The same, of a call from a place that is patched.
pub const PATCHED: u8 = 2;

/// Bytes of a thread's standing signal stack. Handlers that interrupt each other stand on it, where
/// the kernel would have put them on the thread's own stack: so it is no small one.
pub const SIGNAL_BYTES: usize = 512 << 10;

unsafe extern "C" {
    static mut solera_guest_is_here: u8;
}

global_asm!(
    ".pushsection .bss.solera_guest,\"aw\",@nobits",
    ".hidden solera_guest_is_here",
    ".globl solera_guest_is_here",
    ".type solera_guest_is_here, @object",
    ".size solera_guest_is_here, 1",
    "solera_guest_is_here:",
    ".zero 1",
    ".popsection",
);

/// Whether this process has a guest.
#[inline]
pub fn is_here() -> bool {
    // SAFETY: a byte that is written once, while there is one thread.
    unsafe { AtomicU8::from_ptr(&raw mut solera_guest_is_here) }.load(Ordering::Relaxed) != 0
}

/// From here on it has one.
pub fn is_to_come() {
    // SAFETY: as above.
    unsafe { AtomicU8::from_ptr(&raw mut solera_guest_is_here) }.store(1, Ordering::Relaxed);
}

/// Whether this machine's user code may set FS and GS (Linux 5.9, and the processor).
pub fn is_possible() -> bool {
    const AT_HWCAP2: c_ulong = 26;
    const FSGSBASE: c_ulong = 2;
    environment::auxiliary(AT_HWCAP2) & FSGSBASE != 0
}

/// This thread's handlers find its record from here on.
pub fn register(context: &'static Context, selector: *const AtomicU8) {
    let own: usize;
    // SAFETY: FS is the C library's here; nothing in this process but a guest's context is behind
    // GS. The kernel allows both instructions ([`is_possible`]).
    unsafe {
        asm!("rdfsbase {own}", own = out(reg) own, options(nomem, nostack, preserves_flags));
        context.own.store(own, Ordering::Relaxed);
        context.selector.store(selector as usize, Ordering::Relaxed);
        asm!(
            "wrgsbase {at}",
            at = in(reg) std::ptr::from_ref(context),
            options(nostack, preserves_flags),
        );
    }
}

/// A handler of the guest's, or of the program's in a process without one.
pub type Handler = extern "C-unwind" fn(i32, *mut libc::siginfo_t, *mut std::ffi::c_void);

/// Calls a handler with the guest's thread pointer.
pub fn call(handler: Handler, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: nothing of ours runs with that pointer.
    unsafe { solera_guest_call(signal, info, context, handler as usize) };
}

/// The general registers of a thread, as a signal's context has them.
pub type Registers = [i64; 23];

/// Goes on with these registers as the guest. Comes back when the thread [`leave`]s.
///
/// # Safety
///
/// The guest's own registers; nothing of ours holds a lock, and no signal of the guest's is kept.
pub unsafe fn enter(registers: &Registers) {
    // SAFETY: as the caller says.
    unsafe { solera_guest_enter(registers) };
}

/// Back to where this thread's [`enter`] was called: nothing on any other stack of the thread is
/// used any more, nor dropped.
///
/// # Safety
///
/// The thread was entered with a frame that still exists.
pub unsafe fn leave() -> ! {
    // SAFETY: as the caller says.
    unsafe { solera_guest_leave() }
}

unsafe extern "C-unwind" {
    fn solera_guest_call(
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
        handler: usize,
    );
    fn solera_guest_enter(registers: &Registers);
    fn solera_guest_leave() -> !;
}

global_asm!(
    ".pushsection .text.solera_guest,\"ax\",@progbits",
    ".hidden solera_guest_call",
    ".globl solera_guest_call",
    ".type solera_guest_call, @function",
    "solera_guest_call:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "inc dword ptr gs:[{handling}]",
    "mov rax, gs:[{pointer}]",
    "wrfsbase rax",
    "call rcx",
    "mov rax, gs:[{own}]",
    "wrfsbase rax",
    "dec dword ptr gs:[{handling}]",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size solera_guest_call, . - solera_guest_call",
    ".hidden solera_guest_enter",
    ".globl solera_guest_enter",
    ".type solera_guest_enter, @function",
    "solera_guest_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov gs:[{returns}], rsp",
    "mov rbx, rdi",
    "jmp solera_dispatch_go_on",
    ".size solera_guest_enter, . - solera_guest_enter",
    ".hidden solera_guest_leave",
    ".globl solera_guest_leave",
    ".type solera_guest_leave, @function",
    "solera_guest_leave:",
    "mov rsp, gs:[{returns}]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".size solera_guest_leave, . - solera_guest_leave",
    ".popsection",
    own = const offset_of!(Context, own),
    pointer = const POINTER,
    handling = const HANDLING,
    returns = const offset_of!(Context, returns),
);

/// Where assembly elsewhere finds what, from GS on.
pub const OWN: usize = offset_of!(Context, own);
pub const POINTER: usize = offset_of!(Context, pointer);
pub const SELECTOR: usize = offset_of!(Context, selector);
pub const STACK_END: usize = offset_of!(Context, stack_end);
pub const SERVING: usize = offset_of!(Context, serving);
pub const STAGE: usize = offset_of!(Context, stage);
pub const HANDLING: usize = offset_of!(Context, handling);

/// Defines a handler for the kernel that calls this one with the C library's thread pointer: its
/// symbol, and the function that gives its address, or that of the handler itself in a process
/// without a guest.
macro_rules! guest_handler {
    ($access:vis fn $name:ident, $symbol:literal => $handler:path) => {
        $access fn $name() -> usize {
            unsafe extern "C" {
                #[link_name = $symbol]
                fn of_guest();
            }
            if $crate::runtime::guest::is_here() {
                of_guest as *const () as usize
            } else {
                $handler as *const () as usize
            }
        }

        // What it interrupts is in the signal's frame: no register is to be kept but across the
        // call.
        std::arch::global_asm!(
            ".pushsection .text.solera_guest,\"ax\",@progbits",
            concat!(".hidden ", $symbol),
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            "push rbx",
            "rdfsbase rbx",
            "mov rax, gs:[{own}]",
            "wrfsbase rax",
            "call {handler}",
            "wrfsbase rbx",
            "pop rbx",
            "ret",
            concat!(".size ", $symbol, ", . - ", $symbol),
            ".popsection",
            own = const $crate::runtime::guest::OWN,
            handler = sym $handler,
        );
    };
}
pub(crate) use guest_handler;
