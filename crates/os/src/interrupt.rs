//! Waits that a signal ends without a lost wake-up.
//!
//! A face that keeps signals back while the engine works must be able to end a system call in which
//! the engine waits for another thread or process. It says (by [`watch`]) which word of the thread
//! tells that a signal was kept back. [`wait_call`] looks at that word and makes the call if it is
//! clear; a signal that comes between the look and the call would be lost, so the signal handler
//! sets the word and calls [`redirect`]: if the thread stands there, or at the call that the kernel
//! is about to restart, it goes on behind the call, as interrupted.
//!
//! Nothing here locks or allocates.

use rustix::io::Errno;
use std::arch::{asm, global_asm};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The word of the calling thread that tells which signals were kept back.
#[derive(Clone, Copy)]
pub struct Watched {
    /// Written in its own thread's signal handlers, and by other threads.
    pub word: &'static AtomicU32,
    /// The bits that end a wait at once.
    pub urgent: u32,
    /// The bits that end a wait when it is woken, or its time is up.
    pub idle: u32,
}

/// Gives the calling thread's word.
pub type Source = fn() -> Watched;

static SOURCE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static NOTHING: AtomicU32 = AtomicU32::new(0);

/// Says where to look. Once a process, before the first wait.
pub fn watch(source: Source) {
    SOURCE.store(source as *mut (), Ordering::Release);
}

fn watched() -> Watched {
    let source = SOURCE.load(Ordering::Acquire);
    if source.is_null() {
        return Watched { word: &NOTHING, urgent: 0, idle: 0 };
    }
    // SAFETY: stored by `watch` only.
    unsafe { std::mem::transmute::<*mut (), Source>(source)() }
}

/// Why a wait that was woken, or timed out, should end: `EINTR` for an urgent bit, `EAGAIN` for
/// one that is not.
pub fn reason() -> Option<Errno> {
    let watched = watched();
    let set = watched.word.load(Ordering::Relaxed);
    if set & watched.urgent != 0 {
        Some(Errno::INTR)
    } else {
        (set & watched.idle != 0).then_some(Errno::AGAIN)
    }
}

// The places of the one window: the look, the call, and where a redirected thread goes on.
global_asm!(
    ".pushsection .data.rel.ro.solera_window,\"aw\",@progbits",
    ".balign 8",
    ".hidden solera_window",
    ".globl solera_window",
    "solera_window:",
    ".quad solera_window_look",
    ".quad solera_window_done",
    ".quad solera_window_interrupted",
    ".popsection",
    ".pushsection .text.solera_window,\"ax\",@progbits",
    ".balign 16",
    ".hidden solera_wait_call",
    ".globl solera_wait_call",
    ".type solera_wait_call, @function",
    // (word, urgent bits, number, arguments)
    "solera_wait_call:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "mov rbx, rdi",
    "mov ebp, esi",
    "mov rax, rdx",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "solera_window_look:",
    "test dword ptr [rbx], ebp",
    "jnz solera_window_interrupted",
    "syscall",
    "solera_window_done:",
    ".cfi_remember_state",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_restore_state",
    "solera_window_interrupted:",
    "mov rax, -4",
    "jmp solera_window_done",
    ".cfi_endproc",
    ".size solera_wait_call, . - solera_wait_call",
    ".popsection",
);
const _: () = assert!(libc::EINTR == 4);

unsafe extern "C" {
    static solera_window: [usize; 3];
    fn solera_wait_call(
        word: *const AtomicU32,
        urgent: u32,
        number: i64,
        arguments: *const [usize; 6],
    ) -> isize;
}

fn result_of(result: isize) -> Result<usize, Errno> {
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

/// A system call that a signal which is kept back ends, or keeps from happening, with `EINTR`.
///
/// # Safety
///
/// The arguments are what this system call demands.
pub unsafe fn wait_call(number: i64, arguments: [usize; 6]) -> Result<usize, Errno> {
    let watched = watched();
    // SAFETY: the caller vouches for the arguments; the word lives as long as the thread.
    let result =
        unsafe { solera_wait_call(watched.word, watched.urgent, number, &raw const arguments) };
    result_of(result)
}

/// A plain system call: past the C library, whose wrappers a preload library may interpose.
///
/// # Safety
///
/// The arguments are what this system call demands.
pub unsafe fn system_call(number: i64, arguments: [usize; 6]) -> Result<usize, Errno> {
    let result: i64;
    // SAFETY: the caller vouches for the arguments; the clobbers are those of `syscall`. Not in the
    // window above: such a call is never ended early.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result_of(result as isize)
}

/// In a signal handler, after an urgent bit was set: ends the wait that the signal found.
///
/// # Safety
///
/// `context` is what the kernel gave to the handler.
pub unsafe fn redirect(context: *mut c_void) {
    // SAFETY: the caller passes what the kernel passed.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    // SAFETY: constants, relocated before any code of ours runs.
    let [look, done, interrupted] = unsafe { solera_window };
    if (look..done).contains(&(*rip as usize)) {
        *rip = interrupted as i64;
    }
}
