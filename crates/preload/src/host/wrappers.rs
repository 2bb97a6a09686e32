//! Places in a guest's code that make one system call, as compilers and assemblers have them: `mov
//! $number,%eax; syscall`, with moves of arguments between the two, perhaps. glibc and musl have
//! most of theirs so, and Go those of its runtime. A place that traps again and again while the
//! process has one thread is patched, so that its calls need no signal; every other one goes on to
//! trap, which is as right.
//!
//! Patched are the five bytes of the move: they become a jump to an entry in a page near by, which
//! moves the number and the arguments and leads to `solera_guest_wrapper`. What stands behind the
//! move stays: a thread that stands there, a handler's return, a jump from elsewhere find it, and
//! the call traps. No other thread may stand within the move, so there must be none; this one
//! stands behind the `syscall`. The same is done in the one function of musl's that is given the
//! number.
//!
//! ```text
//! place:  jmp ENTRY (was: mov $number,%eax); moves of arguments; syscall
//! entry:  address behind the syscall, address of the syscall
//!         mov $number,%eax; the same moves; lea rcx, [both]; jmp solera_guest_wrapper
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
    if times.fetch_add(1, Ordering::Relaxed) + 1 != TIMES {
        return;
    }
    let Some(site) = place_of(behind, number) else { return };
    let _inside = Inside::new();
    if let Some(mut room) = ROOM.try_lock() {
        let _ = patch(&mut room, site, behind);
    }
}

/// Where the move stands that is patched: of this number, with nothing but moves of arguments
/// between it and the `syscall`.
fn place_of(behind: usize, number: c_long) -> Option<usize> {
    /// Of the instruction, or before it.
    const BEFORE: usize = 3;
    const BYTES: usize = BEFORE + MOVE_BYTES + BETWEEN_MAX + SYSCALL.len();
    let found = Out((behind - BYTES) as *mut [u8; BYTES]).value().ok()?;
    let number = u32::try_from(number).ok()?.to_le_bytes();
    let (code, last) = found.split_at(BYTES - SYSCALL.len());
    if last != SYSCALL {
        return None;
    }
    if code.ends_with(&GIVEN) {
        return Some(behind - SYSCALL.len() - GIVEN.len() + GIVEN_MOVES);
    }
    // The nearest.
    (0..=BETWEEN_MAX).find_map(|length| {
        let (rest, between) = code.split_at(code.len() - length);
        let (before, place) = rest.split_at(rest.len() - MOVE_BYTES);
        let is_move = place[0] == MOVE && place[1..] == number;
        let is_one = is_move && !may_be_longer(before) && are_moves(between);
        is_one.then(|| behind - SYSCALL.len() - length - MOVE_BYTES)
    })
}

/// All of musl's function that makes the calls which wait, in a program without `pthread_cancel`,
/// up to its `syscall`: the number is its first argument. Behind so many bytes stands a move of
/// five (`mov r9, [rsp + 8]`).
const GIVEN: [u8; 23] = [
    0x48, 0x89, 0xf8, 0x4d, 0x89, 0xc2, 0x48, 0x89, 0xf7, 0x4d, 0x89, 0xc8, 0x48, 0x89, 0xd6, 0x4c,
    0x8b, 0x4c, 0x24, 0x08, 0x48, 0x89, 0xca,
];
const GIVEN_MOVES: usize = 15;

/// Bytes between the two: as many as an entry has room for.
const BETWEEN_MAX: usize = 20;

/// Whether these are whole instructions that move values into registers (but for the stack pointer
/// and those that a `syscall` changes), and do the same wherever they stand: they read registers,
/// constants, and memory that is found by registers.
fn are_moves(mut code: &[u8]) -> bool {
    while !code.is_empty() {
        match length_of_move(code).and_then(|length| code.get(length..)) {
            Some(rest) => code = rest,
            None => return false,
        }
    }
    true
}

/// How long such an instruction is that stands at the beginning. `None`: it is another one.
fn length_of_move(code: &[u8]) -> Option<usize> {
    const REX_B: u8 = 1;
    const REX_R: u8 = 4;
    let has_prefix = code.first()? & 0xf0 == 0x40;
    let (prefix, rest) = if has_prefix { (code[0], &code[1..]) } else { (0, code) };
    let form = rest.get(1).copied();
    // The register in the lowest bits of what, or in those above, is one that may change.
    let low = |of: u8| may_change(of & 7 | (prefix & REX_B) << 3);
    let high = |of: u8| may_change(of >> 3 & 7 | (prefix & REX_R) << 1);
    let of_registers = |form: u8| form & 0xc0 == 0xc0;
    let bytes = match *rest.first()? {
        // mov, xor: from register to register.
        0x89 | 0x31 if of_registers(form?) && low(form?) => 2,
        // mov, movsxd: the other way round.
        0x8b | 0x63 if of_registers(form?) && high(form?) => 2,
        // From memory by a register, or by the stack pointer, and a short distance.
        0x8b | 0x63 if form? & 0xc0 == 0x40 && high(form?) => {
            if form? & 7 == 4 {
                4
            } else {
                3
            }
        }
        // A constant of 32 bits; one of the sign of its highest bit.
        code @ 0xb8..=0xbf if low(code) && prefix & 8 == 0 => 5,
        0xc7 if form? & 0xf8 == 0xc0 && low(form?) => 6,
        _ => return None,
    };
    Some(bytes + usize::from(has_prefix))
}

/// Whether an instruction between may change this register: no number, no stack pointer, none that
/// the entry uses (the kernel changes those, too).
fn may_change(register: u8) -> bool {
    const RAX: u8 = 0;
    const RCX: u8 = 1;
    const RSP: u8 = 4;
    const R11: u8 = 11;
    !matches!(register, RAX | RCX | RSP | R11)
}

/// Whether the byte of the move may be one within a longer instruction that ends with the same four
/// bytes: with a prefix (`mov r8d`), as a distance (`lea edi, [rax + number]`, `mov edi, [r8 +
/// number]`, `mov esi, [r8 + rdi * 4 + number]`; `mov edi, [rax + number]` leads nowhere, since rax
/// is the number), as that of a constant's place (`mov dword ptr [rsp - 72], number`).
fn may_be_longer(before: &[u8]) -> bool {
    let has_constant = |code: u8| matches!(code, 0x69 | 0x81 | 0xc7 | 0xf7);
    let is_near = |form: u8| form & 0xc0 == 0x40;
    let is_far_by_two = |form: u8| form & 0xc7 == 0x84;
    // Of the register that memory is found by.
    let has_prefix = |code: u8| code & 0xf1 == 0x41;
    let is_push_or_pop = |code: u8| code & 0xf0 == 0x50;
    let [.., third, second, first] = *before else { return true };
    matches!(first, 0x40..=0x4f | 0x8d)
        || has_prefix(second) && !is_push_or_pop(first)
        || second == 0x0f && has_prefix(third)
        || is_far_by_two(first)
        || is_near(first) && has_constant(second)
        || is_near(second) && second & 7 == 4 && has_constant(third)
}

/// Patches it. `None`: nothing has changed.
fn patch(room: &mut [usize; 2], site: usize, behind: usize) -> Option<()> {
    if room[1] + ENTRY > PAGE || room[0].abs_diff(site) > NEAR {
        *room = [near(site)?, 0];
    }
    let at = room[0] + room[1];
    let distance = |from: usize, to: usize| (to.wrapping_sub(from) as i32).to_le_bytes();
    let mut bytes = Vec::with_capacity(ENTRY);
    bytes.extend_from_slice(&behind.to_le_bytes());
    bytes.extend_from_slice(&(behind - SYSCALL.len()).to_le_bytes());
    let code = at + bytes.len();
    // SAFETY: the guest's code, which was looked at.
    bytes.extend_from_slice(unsafe {
        std::slice::from_raw_parts(site as *const u8, behind - SYSCALL.len() - site)
    });
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
    use super::{are_moves, may_be_longer};

    #[test]
    fn a_byte_within_a_longer_instruction_is_no_move() {
        // mov r8d, ..; lea edi, [rax + ..]; mov dword ptr [rsp - 72], ..; cmp dword ptr [rbp - 72],
        // ..; mov edi, [r8 + ..]; movzx edi, byte ptr [r8 + ..]; mov esi, [r8 + rdi * 4 + ..]
        let parts = [
            [0, 0, 0x41],
            [0, 0, 0x8d],
            [0xc7, 0x44, 0x24],
            [0, 0x81, 0x7d],
            [0, 0x41, 0x8b],
            [0x41, 0x0f, 0xb6],
            [0x41, 0x8b, 0xb4],
        ];
        for before in parts {
            assert!(may_be_longer(&before), "{before:x?}");
        }
        // xor edi, edi; mov r10, [rsp + 32]; ret; push r9
        let whole =
            [[0x90, 0x31, 0xff], [0x54, 0x24, 0x20], [0x90, 0x90, 0xc3], [0x90, 0x41, 0x51]];
        for before in whole {
            assert!(!may_be_longer(&before), "{before:x?}");
        }
    }
    #[test]
    fn what_moves_arguments_may_stand_between() {
        let moves: [&[u8]; 5] = [
            // Nothing.
            &[],
            // mov rdi, rbp; mov rsi, r9
            &[0x48, 0x89, 0xef, 0x4c, 0x89, 0xce],
            // mov esi, 2; mov edx, 1; xor r10d, r10d
            &[0xbe, 2, 0, 0, 0, 0xba, 1, 0, 0, 0, 0x45, 0x31, 0xd2],
            // xor edi, edi; mov r8, -1
            &[0x31, 0xff, 0x49, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff],
            // mov r9, [rsp + 8]; movsxd rdi, [r15 + 120]; movsxd rdi, edi; mov rdx, rcx
            &[
                0x4c, 0x8b, 0x4c, 0x24, 8, 0x49, 0x63, 0x7f, 0x78, 0x48, 0x63, 0xff, 0x48, 0x89,
                0xca,
            ],
        ];
        for code in moves {
            assert!(are_moves(code), "{code:x?}");
        }
        let others: [&[u8]; 8] = [
            // mov eax, 2; mov rcx, rdi; mov r11, rdi; mov rsp, rdi
            &[0xb8, 2, 0, 0, 0],
            &[0x48, 0x89, 0xf9],
            &[0x49, 0x89, 0xfb],
            &[0x48, 0x89, 0xfc],
            // mov rsi, [rip + 8]; lea rdi, [rip + 8]; a jump; half an instruction
            &[0x48, 0x8b, 0x35, 8, 0, 0, 0],
            &[0x48, 0x8d, 0x3d, 8, 0, 0, 0],
            &[0x75, 0x07],
            &[0x48, 0x89],
        ];
        for code in others {
            assert!(!are_moves(code), "{code:x?}");
        }
    }
}
