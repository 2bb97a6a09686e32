//! Places in a guest's code that make one system call, as compilers and assemblers have them: `mov
//! $number,%eax; syscall`. glibc and musl have most of theirs so, and Go those of its runtime. A
//! place that traps again and again while the process has one thread is patched, so that its calls
//! need no signal; every other one goes on to trap, which is as right.
//!
//! Patched are the five bytes of the move: they become a jump to an entry in a page near by, which
//! moves the number and leads to `solera_guest_wrapper`. The `syscall` stays: a thread that stands
//! before it, a handler's return, a jump from elsewhere find it, and the call traps. No other
//! thread may stand within the move, so there must be none; this one stands behind the `syscall`.
//!
//! ```text
//! place:  jmp ENTRY (was: mov $number,%eax); syscall
//! entry:  address behind the syscall, address of the syscall
//!         mov $number,%eax; lea rcx, [both]; jmp solera_guest_wrapper
//! ```
//!
//! All registers but rcx and r11 are kept, vectors too: a compiler may have put the call anywhere.

use std::arch::global_asm;
use std::ffi::c_long;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MprotectFlags, mprotect};

use super::sites::{NEAR, PAGE, near};
use crate::dispatch;
use crate::entry::Inside;
use crate::entry::lock::Lock;
use crate::entry::pointers::Out;
use crate::entry::thread::{TRAP_STACK_BYTES, has_one_thread};
use crate::runtime::guest;

/// The code of the guest's files, which nothing but this changes: addresses; an end of 0: none.
static CODE: [[AtomicUsize; 2]; 8] = [const { [const { AtomicUsize::new(0) }; 2] }; 8];

/// Code of a guest's file was mapped there. There is one thread.
pub fn has_code(code: &Range<usize>) {
    if let Some([start, end]) = CODE.iter().find(|[_, end]| end.load(Ordering::Relaxed) == 0) {
        start.store(code.start, Ordering::Relaxed);
        end.store(code.end, Ordering::Relaxed);
    }
}

fn is_code(at: usize) -> bool {
    CODE.iter().any(|[start, end]| {
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&at)
    })
}

/// What was seen lately of places that trapped: where, and how often.
static SEEN: [[AtomicUsize; 2]; 64] = [const { [const { AtomicUsize::new(0) }; 2] }; 64];
/// To patch a place takes as long as some calls that trap.
const TIMES: usize = 4;

/// The page that has entries, and the bytes of it that are in use.
static ROOM: Lock<[usize; 2]> = Lock::new([0, PAGE]);
const ENTRY: usize = 64;

/// `mov $number,%eax`.
const MOVE: u8 = 0xb8;
const MOVE_BYTES: usize = 5;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const JUMP: u8 = 0xe9;

/// A place in the guest's code has trapped, with a call of this number; `behind`: the address
/// behind its `syscall`. Own code runs.
pub fn consider(behind: usize, number: c_long) {
    // Its stack is that of a handler which is left.
    let is_return = number == libc::SYS_rt_sigreturn;
    if !has_one_thread() || is_return || !is_code(behind) {
        return;
    }
    let [seen, times] = &SEEN[behind / SYSCALL.len() % SEEN.len()];
    if seen.swap(behind, Ordering::Relaxed) != behind {
        times.store(0, Ordering::Relaxed);
    }
    if times.fetch_add(1, Ordering::Relaxed) + 1 != TIMES || !is_place(behind, number) {
        return;
    }
    let _inside = Inside::new();
    if let Some(mut room) = ROOM.try_lock() {
        let _ = patch(&mut room, behind, number);
    }
}

/// Whether a move of this number stands before the `syscall`.
fn is_place(behind: usize, number: c_long) -> bool {
    /// Of the instruction, or before it.
    const BEFORE: usize = 3;
    let start = behind - SYSCALL.len() - MOVE_BYTES - BEFORE;
    let Ok(found) = Out(start as *mut [u8; BEFORE + MOVE_BYTES + SYSCALL.len()]).value() else {
        return false;
    };
    let Ok(number) = u32::try_from(number) else { return false };
    let (before, place) = found.split_at(BEFORE);
    let wanted = [&[MOVE][..], &number.to_le_bytes(), &SYSCALL].concat();
    place == wanted && !may_be_longer(before)
}

/// Whether the byte of the move may be one within a longer instruction that ends with the same four
/// bytes: with a prefix (`mov r8d`), as a distance (`lea edi, [rax + number]`), as that of a
/// constant's place (`mov dword ptr [rsp - 72], number`).
fn may_be_longer(before: &[u8]) -> bool {
    let has_constant = |code: u8| matches!(code, 0x69 | 0x81 | 0xc7 | 0xf7);
    let is_near = |form: u8| form & 0xc0 == 0x40;
    let [third, second, first] = *before else { return true };
    matches!(first, 0x40..=0x4f | 0x8d)
        || is_near(first) && has_constant(second)
        || is_near(second) && second & 7 == 4 && has_constant(third)
}

/// Patches it. `None`: nothing has changed.
fn patch(room: &mut [usize; 2], behind: usize, number: c_long) -> Option<()> {
    let site = behind - SYSCALL.len() - MOVE_BYTES;
    if room[1] + ENTRY > PAGE || room[0].abs_diff(site) > NEAR {
        *room = [near(site)?, 0];
    }
    let at = room[0] + room[1];
    let distance = |from: usize, to: usize| (to.wrapping_sub(from) as i32).to_le_bytes();
    let mut bytes = Vec::with_capacity(ENTRY);
    bytes.extend_from_slice(&behind.to_le_bytes());
    bytes.extend_from_slice(&(behind - SYSCALL.len()).to_le_bytes());
    let code = at + bytes.len();
    bytes.push(MOVE);
    bytes.extend_from_slice(&(number as u32).to_le_bytes());
    // lea rcx, [entry]
    bytes.extend_from_slice(&[0x48, 0x8d, 0x0d]);
    bytes.extend_from_slice(&distance(at + bytes.len() + 4, at));
    // jmp [behind these six bytes]; the address
    bytes.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    bytes.extend_from_slice(&(solera_guest_wrapper as *const () as usize).to_le_bytes());
    let jump = [&[JUMP][..], &distance(site + MOVE_BYTES, code)].concat();
    let (first, last) = (site / PAGE * PAGE, (site + MOVE_BYTES - 1) / PAGE * PAGE);
    let (page, text, length) = (room[0] as *mut _, first as *mut _, last + PAGE - first);
    let (runs, writes) = (MprotectFlags::READ | MprotectFlags::EXEC, MprotectFlags::WRITE);
    // SAFETY: a page of our own; the guest's code, which was looked at, stays executable. There is
    // one thread, which is here.
    unsafe {
        mprotect(page, PAGE, MprotectFlags::READ | writes).ok()?;
        (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        mprotect(page, PAGE, runs).ok()?;
        mprotect(text, length, runs | writes).ok()?;
        (site as *mut u8).copy_from_nonoverlapping(jump.as_ptr(), jump.len());
        let _ = mprotect(text, length, runs);
    }
    room[1] += ENTRY;
    Some(())
}

unsafe extern "C" {
    fn solera_guest_wrapper();
}

// With rcx at the entry, and the number in rax.
global_asm!(
    ".pushsection .text.solera_guest,\"ax\",@progbits",
    ".hidden solera_guest_wrapper",
    ".globl solera_guest_wrapper",
    ".type solera_guest_wrapper, @function",
    "solera_guest_wrapper:",
    "cmp dword ptr gs:[{handling}], 0",
    "jne 9f",
    "mov r11, gs:[{end}]",
    "test r11, r11",
    "jz 9f",
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
    "mov byte ptr gs:[{stage}], {patched}",
    "mov gs:[{serving}], rsp",
    "jmp solera_dispatch_serve",
    // Its own instruction traps.
    "9:",
    "jmp qword ptr [rcx + 8]",
    ".size solera_guest_wrapper, . - solera_guest_wrapper",
    ".popsection",
    handling = const guest::HANDLING,
    end = const guest::STACK_END,
    stage = const guest::STAGE,
    serving = const guest::SERVING,
    patched = const guest::PATCHED,
    stack = const TRAP_STACK_BYTES,
    slot = const dispatch::SLOT,
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

#[cfg(test)]
mod tests {
    use super::may_be_longer;

    #[test]
    fn a_byte_within_a_longer_instruction_is_no_move() {
        // mov r8d, ..; lea edi, [rax + ..]; mov dword ptr [rsp - 72], ..; cmp dword ptr [rbp - 72],
        // ..
        for before in [[0, 0, 0x41], [0, 0, 0x8d], [0xc7, 0x44, 0x24], [0, 0x81, 0x7d]] {
            assert!(may_be_longer(&before), "{before:x?}");
        }
        // xor edi, edi; mov r10, [rsp + 32]; ret
        for before in [[0x90, 0x31, 0xff], [0x54, 0x24, 0x20], [0x90, 0x90, 0xc3]] {
            assert!(!may_be_longer(&before), "{before:x?}");
        }
    }
}
