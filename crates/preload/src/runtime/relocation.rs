//! The library's own relocations: words that hold addresses within it, to which its base is added.
//!
//! There are 8,000 of them in 50 pages, each of which a program that starts would fault in and copy
//! (some 200 us), though most programs that start use nothing of the volume, and few of those
//! words. The linker writes them into a table that the dynamic linker does not know (Android's, of
//! the format `RELR`: an address, then bitmaps of the 63 words after what was covered). So it
//! leaves them to the library, whose resolver is the first of its code that runs: it applies those
//! of what a start needs, and [`put_off`] closes the pages of the others. What needs those opens
//! them ([`finish`]): the first call that reaches for the volume, a second thread, a signal mask
//! that keeps faults back. A load of such a page by code that was not thought of faults, and the
//! handler of SIGSEGV does the same ([`touched`]). Where the library then serves nothing, and takes
//! no faults, all is as if nothing had been put off ([`give_up`]).
//!
//! Until the resolver has run nothing here may use a word that is relocated, so the loop is written
//! in the machine's language.

use std::arch::global_asm;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::siginfo_t;
use os::interrupt::system_call;

/// The pages of `solera_late` are closed, and not relocated.
static IS_PUT_OFF: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static solera_late: u8;
    static solera_late_end: u8;
    /// Applies those of the pages between.
    fn solera_relocate_between(from: *const u8, to: *const u8);
    /// Where [`faulted`] returns to.
    static solera_relocation_return: u8;
}

/// Start and end of the tables that may wait.
fn late() -> (usize, usize) {
    (&raw const solera_late as usize, &raw const solera_late_end as usize)
}

/// Whether they still wait.
#[inline]
pub fn is_put_off() -> bool {
    IS_PUT_OFF.load(Ordering::Relaxed)
}

fn protect(access: i32) -> bool {
    let (start, end) = late();
    let arguments = [start, end - start, access as usize, 0, 0, 0];
    // SAFETY: pages of this library's own that nothing else lies in.
    unsafe { system_call(libc::SYS_mprotect, arguments) }.is_ok()
}

/// The kernel's own layout of an action.
#[repr(C)]
struct Action {
    handler: usize,
    flags: c_ulong,
    restorer: usize,
    mask: u64,
}

const SA_RESTORER: c_ulong = 0x0400_0000;

/// What the image before this one has left of the handler of SIGSEGV, while [`faulted`] stands
/// there.
static FOUND: AtomicUsize = AtomicUsize::new(NONE);
const NONE: usize = usize::MAX;

/// Closes the pages whose relocations may wait, or applies those, if faults do not arrive. At the
/// start, when there is one thread.
pub fn put_off() {
    let bytes = size_of::<u64>();
    let mut mask = 0_u64;
    let asked = [libc::SIG_BLOCK as usize, 0, &raw mut mask as usize, bytes, 0, 0];
    let mut found = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let own = Action {
        handler: faulted as *const () as usize,
        flags: libc::SA_SIGINFO as c_ulong | SA_RESTORER,
        restorer: &raw const solera_relocation_return as usize,
        mask: 0,
    };
    let (own, before) = (&raw const own as usize, &raw mut found as usize);
    let action = [libc::SIGSEGV as usize, own, before, bytes, 0, 0];
    // SAFETY: a mask and actions of the kernel's sizes.
    let arrive = unsafe {
        system_call(libc::SYS_rt_sigprocmask, asked).is_ok()
            && mask & 1 << (libc::SIGSEGV - 1) == 0
            && system_call(libc::SYS_rt_sigaction, action).is_ok()
    };
    if !arrive {
        return apply_now();
    }
    FOUND.store(found.handler, Ordering::Relaxed);
    IS_PUT_OFF.store(true, Ordering::Relaxed);
    if !protect(libc::PROT_NONE) {
        finish();
    }
}

/// The first handler of SIGSEGV, until that of all faults takes its place.
extern "C" fn faulted(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel called us with this.
    if !touched(unsafe { (*info).si_addr() } as usize) {
        // It happens again, and ends the process.
        let default = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
        let own = &raw const default as usize;
        let action = [signal as usize, own, 0, size_of::<u64>(), 0, 0];
        // SAFETY: an action of the kernel's size.
        let _ = unsafe { system_call(libc::SYS_rt_sigaction, action) };
    }
}

/// The handler of a signal that an image has found, if the kernel does not say so: that of its own
/// stands there.
pub fn found(signal: c_int) -> Option<usize> {
    let found = FOUND.load(Ordering::Relaxed);
    (signal == libc::SIGSEGV && found != NONE).then(|| {
        FOUND.store(NONE, Ordering::Relaxed);
        found
    })
}

/// The start is over. If the handler of all faults has not taken its place, the first one goes: the
/// signal is the program's.
pub fn give_up() {
    let Some(handler) = found(libc::SIGSEGV) else { return };
    finish();
    let before = Action { handler, flags: 0, restorer: 0, mask: 0 };
    let own = &raw const before as usize;
    let action = [libc::SIGSEGV as usize, own, 0, size_of::<u64>(), 0, 0];
    // SAFETY: an action of the kernel's size.
    let _ = unsafe { system_call(libc::SYS_rt_sigaction, action) };
}

/// Applies them at the start.
pub fn apply_now() {
    let (start, end) = late();
    // SAFETY: not applied yet.
    unsafe { solera_relocate_between(start as *const u8, end as *const u8) };
    protect(libc::PROT_READ);
}

/// Applies what was put off. There is one thread.
#[inline]
pub fn finish() {
    if is_put_off() {
        apply();
    }
}

/// No signal arrives while the pages are open and not all of them are relocated.
#[cold]
#[inline(never)]
fn apply() {
    let (all, mut mask) = (u64::MAX, 0_u64);
    let set = |how: i32, new: &u64, old: usize| {
        let new = std::ptr::from_ref(new) as usize;
        let arguments = [how as usize, new, old, size_of::<u64>(), 0, 0];
        // SAFETY: two masks of the kernel's size.
        let _ = unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
    };
    set(libc::SIG_SETMASK, &all, &raw mut mask as usize);
    if IS_PUT_OFF.swap(false, Ordering::Relaxed) {
        protect(libc::PROT_READ | libc::PROT_WRITE);
        apply_now();
    }
    set(libc::SIG_SETMASK, &mask, 0);
}

/// Whether a fault at an address was one of a page that is closed. It is no more.
pub fn touched(address: usize) -> bool {
    let (start, end) = late();
    let is = is_put_off() && (start..end).contains(&address);
    if is {
        apply();
    }
    is
}

global_asm!(
    ".pushsection .text.solera_relocation,\"ax\",@progbits",
    // Adds rdi to those words of the table from rsi to rdx that lie from rcx to r8.
    ".type solera_relocate, @function",
    "solera_relocate:",
    "xor r9d, r9d",
    "2:",
    "cmp rsi, rdx",
    "jae 9f",
    "mov rax, [rsi]",
    "add rsi, 8",
    "test al, 1",
    "jnz 4f",
    "lea r9, [rdi + rax]",
    "cmp r9, rcx",
    "jb 3f",
    "cmp r9, r8",
    "jae 3f",
    "add [r9], rdi",
    "3:",
    "add r9, 8",
    "jmp 2b",
    "4:",
    "mov r10, r9",
    "add r9, 504",
    "cmp r9, rcx",
    "jbe 2b",
    "cmp r10, r8",
    "jae 2b",
    "5:",
    "shr rax, 1",
    "jz 2b",
    "test al, 1",
    "jz 6f",
    "cmp r10, rcx",
    "jb 6f",
    "cmp r10, r8",
    "jae 6f",
    "add [r10], rdi",
    "6:",
    "add r10, 8",
    "jmp 5b",
    "9:",
    "ret",
    ".size solera_relocate, . - solera_relocate",
    // The words from rdi to rsi.
    ".hidden solera_relocate_between",
    ".globl solera_relocate_between",
    ".type solera_relocate_between, @function",
    "solera_relocate_between:",
    "mov rcx, rdi",
    "mov r8, rsi",
    "lea r9, [rip + _DYNAMIC]",
    "xor esi, esi",
    "xor edx, edx",
    "2:",
    "mov rax, [r9]",
    "test rax, rax",
    "jz 3f",
    // The table and its bytes.
    "cmp rax, 0x6fffe000",
    "cmove rsi, [r9 + 8]",
    "cmp rax, 0x6fffe001",
    "cmove rdx, [r9 + 8]",
    "add r9, 16",
    "jmp 2b",
    "3:",
    "lea rdi, [rip + __ehdr_start]",
    "add rsi, rdi",
    "add rdx, rsi",
    "jmp solera_relocate",
    ".size solera_relocate_between, . - solera_relocate_between",
    // All but those that may wait.
    ".hidden solera_relocate_early",
    ".globl solera_relocate_early",
    ".type solera_relocate_early, @function",
    "solera_relocate_early:",
    "xor edi, edi",
    "lea rsi, [rip + solera_late]",
    "call solera_relocate_between",
    "lea rdi, [rip + solera_late_end]",
    "mov rsi, -1",
    "jmp solera_relocate_between",
    ".size solera_relocate_early, . - solera_relocate_early",
    ".hidden solera_relocation_return",
    ".globl solera_relocation_return",
    ".type solera_relocation_return, @function",
    "solera_relocation_return:",
    "mov eax, 15",
    "syscall",
    ".size solera_relocation_return, . - solera_relocation_return",
    ".popsection",
);
