//! Places in a guest's code that are patched, so that their system calls need no signal: those by
//! which Go programs make nearly all of theirs. A place is looked at when it traps, and is one of
//! them if all bytes of its function are as Go 1.21 to 1.26 have it; every other one goes on to
//! trap, which is as right.
//!
//! Patched are two bytes, the `syscall` itself, by one store: other threads find the one or the
//! other. They become a short jump into the padding behind the function, where a jump leads to a
//! page near by, and that to [`solera_guest_site`]. It serves the call on the thread's own stack,
//! as the handler of SIGSYS would have it served. Where that cannot be (a handler of the guest's
//! runs, perhaps on its signal stack; the thread has no stack of ours) the page's own `syscall`
//! traps.
//!
//! ```text
//! function:  .. jmp short PADDING   (was: syscall) ..   ret   PADDING: jmp PAGE
//! page:      return address, address of the syscall; lea rcx, [both]; jmp solera_guest_site
//!            syscall; jmp behind the function's
//! ```
//!
//! Go's calling convention: vector registers are the caller's to keep, X15 is 0.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::dispatch;
use crate::entry::Inside;
use crate::entry::lock::Lock;
use crate::entry::pointers::Out;
use crate::entry::thread::{RED_ZONE, TRAP_STACK_BYTES};
use crate::runtime::guest;

/// A function that makes a system call.
struct Function {
    /// Its bytes before the `syscall`, and behind it.
    before: &'static [u8],
    behind: &'static [u8],
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Between Go's functions.
const PADDING: u8 = 0xcc;
/// A jump of 32 bits.
const JUMP: usize = 5;

const FUNCTIONS: [Function; 2] = [
    // `Syscall6` of the runtime: number and arguments are moved to where the kernel has them; an
    // error becomes -1 and its number.
    Function {
        before: &[0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf],
        behind: &[
            0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x76, 0x15, 0x48, 0xf7, 0xd8, 0x48, 0x89, 0xc1,
            0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x48, 0xc7, 0xc3, 0x00, 0x00, 0x00, 0x00,
            0xc3, 0x48, 0x89, 0xd3, 0x48, 0xc7, 0xc1, 0x00, 0x00, 0x00, 0x00, 0xc3,
        ],
    },
    // `runtime.futex`: its arguments are on the stack.
    Function {
        before: &[
            0x48, 0x8b, 0x7c, 0x24, 0x08, 0x8b, 0x74, 0x24, 0x10, 0x8b, 0x54, 0x24, 0x14, 0x4c,
            0x8b, 0x54, 0x24, 0x18, 0x4c, 0x8b, 0x44, 0x24, 0x20, 0x44, 0x8b, 0x4c, 0x24, 0x28,
            0xb8, 0xca, 0x00, 0x00, 0x00,
        ],
        behind: &[0x89, 0x44, 0x24, 0x30, 0xc3],
    },
];
/// As many as are looked at behind the `syscall`: its function's, and the jump.
const BYTES_MAX: usize = 64;

/// Patches a place in the guest's code that has trapped, if it is one of these. `behind`: the
/// address behind its `syscall`.
pub fn consider(behind: usize) {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    /// One thread at a time; how many were patched.
    static PATCHED: Lock<usize> = Lock::new(0);
    /// More places than a program has: it would be made to make more.
    const PATCHED_MAX: usize = 16;
    let Some(padding) = place_of(behind).filter(|_| !IS_OVER.load(Ordering::Relaxed)) else {
        return;
    };
    let _inside = Inside::new();
    let Some(mut patched) = PATCHED.try_lock() else { return };
    // Another thread may have been quicker.
    let is_new = Out((behind - 2) as *mut [u8; 2]).value().is_ok_and(|found| found == SYSCALL);
    if is_new {
        if *patched == PATCHED_MAX || patch(behind, padding).is_none() {
            IS_OVER.store(true, Ordering::Relaxed);
        }
        *patched += 1;
    }
}

/// The padding behind the function that has its `syscall` before this address; `None`: it is not
/// one of these.
fn place_of(behind: usize) -> Option<usize> {
    // At the end of the code there is less: then it is not patched.
    let found = Out(behind as *mut [u8; BYTES_MAX]).value().ok()?;
    let function = FUNCTIONS.iter().find(|function| found.starts_with(function.behind))?;
    let start = behind.checked_sub(SYSCALL.len() + function.before.len())?;
    let before = Out(start as *mut u8).array(function.before.len()).ok()?;
    let length = function.behind.len();
    let is_it = before == function.before && found[length..].starts_with(&[PADDING; JUMP]);
    is_it.then_some(behind + length)
}

pub const PAGE: usize = 4096;
/// How far a jump may lead, with room to spare.
pub const NEAR: usize = 1 << 30;

/// Patches it. `None`: nothing has changed.
fn patch(behind: usize, padding: usize) -> Option<()> {
    let site = behind - SYSCALL.len();
    // One store, in one line of the cache, is seen whole.
    if site % 64 == 63 {
        return None;
    }
    let page = near(site)?;
    let code = page + 2 * size_of::<usize>();
    let distance = |from: usize, to: usize| (to.wrapping_sub(from) as i32).to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&behind.to_le_bytes());
    bytes.extend_from_slice(&[0; size_of::<usize>()]);
    // lea rcx, [page]
    bytes.extend_from_slice(&[0x48, 0x8d, 0x0d]);
    bytes.extend_from_slice(&distance(code + 7, page));
    // jmp [behind these six bytes]; the address
    bytes.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    bytes.extend_from_slice(&(solera_guest_site as *const () as usize).to_le_bytes());
    let slow = page + bytes.len();
    bytes.extend_from_slice(&SYSCALL);
    bytes.push(0xe9);
    bytes.extend_from_slice(&distance(page + bytes.len() + 4, behind));
    bytes[size_of::<usize>()..2 * size_of::<usize>()].copy_from_slice(&slow.to_le_bytes());
    let (first, last) = (site / PAGE * PAGE, (padding + JUMP - 1) / PAGE * PAGE);
    let (text, length) = (first as *mut libc::c_void, last + PAGE - first);
    let (readable, all) = (MprotectFlags::READ | MprotectFlags::EXEC, MprotectFlags::WRITE);
    // SAFETY: a page of our own; the guest's code, which was looked at, stays executable.
    unsafe {
        (page as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        let done = mprotect(page as *mut _, PAGE, readable).is_ok()
            && mprotect(text, length, readable | all).is_ok();
        if !done {
            let _ = munmap(page as *mut _, PAGE);
            return None;
        }
        let jump = [&[0xe9][..], &distance(padding + JUMP, code)].concat();
        (padding as *mut u8).copy_from_nonoverlapping(jump.as_ptr(), JUMP);
        // jmp short
        let short = u16::from_le_bytes([0xeb, (padding - behind) as u8]);
        asm!("mov word ptr [{at}], {short:x}", at = in(reg) site, short = in(reg) short);
        let _ = mprotect(text, length, readable);
    }
    Some(())
}

/// A new page within reach of a jump.
pub fn near(site: usize) -> Option<usize> {
    const STEP: usize = 64 << 10;
    let start = site / STEP * STEP;
    let below = (1..NEAR / STEP).map_while(|step| start.checked_sub(step * STEP));
    let below = below.take_while(|at| *at >= STEP);
    let above = (1..NEAR / STEP).rev().map(|step| start + step * STEP);
    let (access, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
    // A few: where so much is in use, nothing is patched.
    below.take(1024).chain(above.take(1024)).find(|at| {
        // SAFETY: nothing else is there, or it fails.
        let made = unsafe { mmap_anonymous(*at as *mut _, PAGE, access, flags) };
        made.is_ok_and(|made| made as usize == *at)
    })
}

unsafe extern "C" {
    fn solera_guest_site();
}

// With rcx at the page. The slot is at the top of the thread's own stack, which is not in use then.
global_asm!(
    ".pushsection .text.solera_guest,\"ax\",@progbits",
    ".hidden solera_guest_site",
    ".globl solera_guest_site",
    ".type solera_guest_site, @function",
    "solera_guest_site:",
    "cmp dword ptr gs:[{handling}], 0",
    "jne 9f",
    "mov r11, gs:[{end}]",
    "test r11, r11",
    "jz 9f",
    "cmp eax, {futex}",
    "je 8f",
    "sub r11, rsp",
    "cmp r11, {stack}",
    "jb 9f",
    "lea r11, [r11 + rsp - {slot}]",
    // From here on a handler finds this stack in use.
    "xchg rsp, r11",
    "mov [rsp + {rsp}], r11",
    "mov [rsp + {rax}], rax",
    "mov [rsp + {rdi}], rdi",
    "mov [rsp + {rsi}], rsi",
    "mov [rsp + {rdx}], rdx",
    "mov [rsp + {r10}], r10",
    "mov [rsp + {r8}], r8",
    "mov [rsp + {r9}], r9",
    "mov [rsp + {rbx}], rbx",
    "mov [rsp + {rbp}], rbp",
    "mov [rsp + {r12}], r12",
    "mov [rsp + {r13}], r13",
    "mov [rsp + {r14}], r14",
    "mov [rsp + {r15}], r15",
    "mov qword ptr [rsp + {flags}], 0x202",
    "mov rcx, [rcx]",
    "mov [rsp + {rip}], rcx",
    "mov rbx, rsp",
    "rdfsbase rax",
    "mov gs:[{pointer}], rax",
    "mov rax, gs:[{own}]",
    "wrfsbase rax",
    "mov rdi, rbx",
    "call {serve}",
    "mov rax, gs:[{pointer}]",
    "wrfsbase rax",
    "pxor xmm15, xmm15",
    "mov rax, [rbx + {rax}]",
    "mov rdi, [rbx + {rdi}]",
    "mov rsi, [rbx + {rsi}]",
    "mov rdx, [rbx + {rdx}]",
    "mov r10, [rbx + {r10}]",
    "mov r8, [rbx + {r8}]",
    "mov r9, [rbx + {r9}]",
    "mov rbp, [rbx + {rbp}]",
    "mov r12, [rbx + {r12}]",
    "mov r13, [rbx + {r13}]",
    "mov r14, [rbx + {r14}]",
    "mov r15, [rbx + {r15}]",
    "mov rcx, [rbx + {rip}]",
    "mov r11, [rbx + {rsp}]",
    "mov rbx, [rbx + {rbx}]",
    "mov rsp, r11",
    "jmp rcx",
    // The kernel's at once, on the guest's stack, whose last bytes may be in use.
    "8:",
    "lea rsp, [rsp - {red_zone}]",
    "push qword ptr [rcx]",
    "jmp solera_dispatch_pass_guest",
    "9:",
    "jmp qword ptr [rcx + 8]",
    ".size solera_guest_site, . - solera_guest_site",
    ".popsection",
    handling = const guest::HANDLING,
    end = const guest::STACK_END,
    pointer = const guest::POINTER,
    own = const guest::OWN,
    futex = const libc::SYS_futex,
    stack = const TRAP_STACK_BYTES,
    slot = const dispatch::SLOT,
    red_zone = const RED_ZONE,
    serve = sym dispatch::serve_patched,
    rax = const dispatch::at(libc::REG_RAX),
    rdi = const dispatch::at(libc::REG_RDI),
    rsi = const dispatch::at(libc::REG_RSI),
    rdx = const dispatch::at(libc::REG_RDX),
    r8 = const dispatch::at(libc::REG_R8),
    r9 = const dispatch::at(libc::REG_R9),
    r10 = const dispatch::at(libc::REG_R10),
    rip = const dispatch::at(libc::REG_RIP),
    rsp = const dispatch::at(libc::REG_RSP),
    flags = const dispatch::at(libc::REG_EFL),
    rbx = const dispatch::at(libc::REG_RBX),
    rbp = const dispatch::at(libc::REG_RBP),
    r12 = const dispatch::at(libc::REG_R12),
    r13 = const dispatch::at(libc::REG_R13),
    r14 = const dispatch::at(libc::REG_R14),
    r15 = const dispatch::at(libc::REG_R15),
);
