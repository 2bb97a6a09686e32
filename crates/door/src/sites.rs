//! Where a C library makes system calls: `syscall` instructions, found in the bytes of its text by
//! the shapes in which compilers and the library's own assembly have them. There is no
//! disassembler: what has none of the shapes is [`Found::Unknown`], and a file that has one is
//! refused.
//!
//! A shape is what stands around `0f 05`. The *window* are the bytes that are changed. What is
//! executed after the change does the same, but for the call: `call common` stands in the window,
//! and the two bytes behind it tell the entry ([`crate::entry`]) which number it is for.
//!
//! | shape | in the file | changed |
//! |---|---|---|
//! | constant | `mov $nr,%eax; X; syscall` | `X; call common; mov $nr,%cl` (from 256 on `%ch`) |
//! | compared | `syscall; cmp $-4095,%rax` | `call common; nop`: the flags are the comparison's |
//! | displaced | `X; syscall` | `call stub; nops`, or `call stub` if X has less than five bytes |
//! | in place | `mov $nr,%eax; syscall` | `call stub; syscall`, for clone, clone3, vfork |
//!
//! X are moves, sums and addresses ([`crate::instructions`]). A stub does X and jumps to `common`.
//! rcx and r11 are dead behind a system call, so `mov $nr,%cl` does nothing.

use crate::instructions::decode;

/// The bytes of `syscall`.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The bytes of X that one shape may have: glibc 2.31's `raise` fills a mask with 16 moves.
const MOVED_MAX: usize = 250;
/// clone, vfork, clone3: what they make may return on another stack, or first on the same one.
const IN_PLACE: [u32; 3] = [56, 58, 435];

/// What a `0f 05` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A system call that is patched.
    Site(Site),
    /// A system call that stays as it is, and why.
    Left(Reason),
    /// Not an instruction: part of another one's operand.
    Operand,
    /// It may be an instruction, and has no shape that is known.
    Unknown,
}

/// Why a `syscall` stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its number is not wanted.
    Unwanted(u32),
    /// The return from a signal's handler: its stack is the kernel's frame, and debuggers and
    /// unwinders know it by its bytes.
    Restorer,
    /// The end of one thread (number 60, in edx), whose stack may be unmapped already.
    ThreadEnd,
    /// The function keeps values below rsp, where a call would write.
    RedZone,
}

impl Reason {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unwanted(_) => "unwanted",
            Self::Restorer => "restorer",
            Self::ThreadEnd => "thread-end",
            Self::RedZone => "red-zone",
        }
    }
}

/// A system call that is patched. Positions are bytes from the start of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The first byte of the window.
    pub start: usize,
    /// The byte behind the window.
    pub end: usize,
    /// Where the `syscall` stands.
    pub syscall: usize,
    /// The call's number; none if it is in a register.
    pub number: Option<u32>,
    /// How it is patched.
    pub shape: Shape,
}

/// How a site is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `mov $nr,%eax; X; syscall`.
    Constant,
    /// `syscall; cmp`.
    Compared(Comparison),
    /// X, then `syscall`: X goes into a stub, the number is in eax behind it.
    Displaced,
    /// The same, and the `syscall` stays behind the call. `moved` bytes of X stand between the
    /// number and the `syscall`; what is before them goes into the stub.
    InPlace {
        /// Bytes.
        moved: usize,
    },
}

/// The comparison behind a `syscall`: what flags its site expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `cmp $0xfffffffffffff001,%rax`.
    Wide001,
    /// `cmp $0xfffffffffffff000,%rax`.
    Wide000,
    /// `cmp $0xfffff001,%eax`.
    Narrow001,
    /// `cmp $0xfffff000,%eax`.
    Narrow000,
}

/// The next `0f 05` of the text at or behind `from`.
pub fn next(text: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find(text.get(from..)?, &SYSCALL).map(|at| from + at)
}

/// What the `0f 05` at `at` is. `from`: the end of the window before it; what is before that has
/// been changed, or will be.
pub fn look(text: &[u8], from: usize, at: usize, wanted: &dyn Fn(u32) -> bool) -> Found {
    let (Some(before), Some(behind)) = (text.get(from..at), text.get(at + 2..)) else {
        return Found::Unknown;
    };
    if before.ends_with(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0]) {
        return Found::Left(Reason::Restorer);
    }
    let site =
        |start, end, number, shape| Found::Site(Site { start, end, syscall: at, number, shape });
    if let Some((number, moved)) = constant(before) {
        let start = at - moved - 5;
        return if !wanted(number) {
            Found::Left(Reason::Unwanted(number))
        } else if uses_red_zone(before) {
            Found::Left(Reason::RedZone)
        } else if IN_PLACE.contains(&number) {
            site(start, at + 2, Some(number), Shape::InPlace { moved })
        } else {
            site(start, at + 2, Some(number), Shape::Constant)
        };
    }
    if let Some((comparison, length)) = compared(behind) {
        return site(at, at + 2 + length, None, Shape::Compared(comparison));
    }
    if let Some(found) = by_register(before, behind, at) {
        return found;
    }
    if is_operand(text, at) { Found::Operand } else { Found::Unknown }
}

/// The number in `mov $nr,%eax; X` at the end of `before`, and the bytes of X.
fn constant(before: &[u8]) -> Option<(u32, usize)> {
    let mut moved = 0;
    while moved <= MOVED_MAX && moved + 5 <= before.len() {
        let at = before.len() - moved;
        // 512 numbers: what is told behind the call has nine bits.
        if let [0xb8, low, high @ (0 | 1), 0, 0] = before[at - 5..at]
            && is_movable(&before[at..])
        {
            return Some((u32::from(low) | u32::from(high) << 8, moved));
        }
        moved += 1;
    }
    None
}

/// Whether these are whole instructions that may change places with `mov $nr,%eax`.
fn is_movable(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match decode(bytes) {
            Some(one) if !one.accumulator => bytes = &bytes[one.length..],
            _ => return false,
        }
    }
    true
}

/// The comparison at the start of `behind`, and its bytes.
fn compared(behind: &[u8]) -> Option<(Comparison, usize)> {
    match behind {
        [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, ..] => Some((Comparison::Wide001, 6)),
        [0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, ..] => Some((Comparison::Wide000, 6)),
        [0x3d, 0x01, 0xf0, 0xff, 0xff, ..] => Some((Comparison::Narrow001, 5)),
        [0x3d, 0x00, 0xf0, 0xff, 0xff, ..] => Some((Comparison::Narrow000, 5)),
        _ => None,
    }
}

/// The shapes with a number in a register, each with a function of glibc that has it.
fn by_register(before: &[u8], behind: &[u8], at: usize) -> Option<Found> {
    let displaced = |bytes: usize| {
        Some(Found::Site(Site {
            start: at - bytes,
            end: at + 2,
            syscall: at,
            number: None,
            shape: Shape::Displaced,
        }))
    };
    match before {
        // xor %edi,%edi; mov %edx,%eax; syscall; jmp: __libc_start_call_main, start_thread.
        [.., 0x31, 0xff, 0x89, 0xd0] if behind.starts_with(&[0xeb, 0xf8]) => {
            Some(Found::Left(Reason::ThreadEnd))
        }
        // mov $nr,%ecx; mov %ecx,%eax: the number of getpid in raise (2.31).
        [.., 0xb9, 0x27, 0, 0, 0, 0x89, 0xc8] => Some(Found::Left(Reason::Unwanted(39))),
        // mov 0x18(%rbx),%rdx; mov (%rbx),%eax: __nptl_setxid and its handler in other threads.
        [.., 0x48, 0x8b, 0x50, 0x18, 0x8b, 0x00]
        | [.., 0x48, 0x8b, 0x53, 0x18, 0x8b, 0x03]
        // or $MAP_32BIT,%r10d; mov %ecx,%eax: mmap (2.31).
        | [.., 0x41, 0x83, 0xca, 0x40, 0x89, 0xc8] => displaced(6),
        // mov %rax,-0x830(%rbp); mov %ebx,%eax: backtrace_symbols_fd.
        [.., 0x48, 0x89, 0x85, _, _, 0xff, 0xff, 0x89, 0xd8] => displaced(9),
        // mov $FUTEX_WAKE_PRIVATE,%esi; mov %ebx,%eax: pthread_mutex_unlock (2.31).
        [.., 0xbe, 0x81, 0, 0, 0, 0x89, 0xd8]
        // mov $SIG_SETMASK,%edi; mov %ebp,%eax: the start of aio's threads (2.44).
        | [.., 0xbf, 0x02, 0, 0, 0, 0x89, 0xe8] => displaced(7),
        // mov %r11,8(%rsp); syscall; ret: __syscall_cancel_arch (2.41), which a signal's handler
        // knows by the address behind its `syscall`.
        [.., 0x4c, 0x89, 0x5c, 0x24, 0x08] if behind.starts_with(&[0xc3]) => {
            Some(Found::Site(Site {
                start: at - 5,
                end: at + 2,
                syscall: at,
                number: None,
                shape: Shape::InPlace { moved: 0 },
            }))
        }
        // mov %r13d,%edi; mov %ebx,%eax: backtrace_symbols_fd.
        [.., 0x44, 0x89, 0xc7 | 0xcf | 0xd7 | 0xdf | 0xe7 | 0xef | 0xf7 | 0xff, 0x89, 0xd8]
        // xor %r10d,%r10d; xor %eax,%eax: read (2.44).
        | [.., 0x45, 0x31, 0xd2, 0x31, 0xc0]
        // mov 16(%rsp),%rax: __internal_syscall_cancel (2.41).
        | [.., 0x48, 0x8b, 0x44, 0x24, 0..0x70] => displaced(5),
        // mov %r9d,%eax: __libc_message, backtrace_symbols_fd, the start of aio's threads.
        [.., 0x44, 0x89, 0xc0 | 0xc8 | 0xd0 | 0xd8 | 0xe0 | 0xe8 | 0xf0 | 0xf8] => displaced(3),
        // mov %r8,%rdx; syscall; lea: the same.
        [.., 0x4c, 0x89, 0xc2] if behind.starts_with(&[0x48, 0x8d]) => displaced(3),
        _ => None,
    }
}

/// Sites of functions that keep values in the eight bytes below rsp, where a call writes. (The
/// entry leaves the others alone that a function may use there.)
fn uses_red_zone(before: &[u8]) -> bool {
    match before {
        // lea -0x18(%rsp),%rsi; mov $131,%eax: __longjmp_chk asks for the alternate stack.
        [.., 0x48, 0x8d, 0x74, 0x24, 0xe8, 0xb8, 0x83, 0, 0, 0]
        // lea -8(%rsp),%rdx; mov $F_GETOWN_EX,%esi; mov $72,%eax: fcntl of ld.so.
        | [.., 0x48, 0x8d, 0x54, 0x24, 0xf8, 0xbe, 0x10, 0, 0, 0, 0xb8, 0x48, 0, 0, 0] => true,
        _ => false,
    }
}

/// Whether the `0f 05` at `at` is in the operand of another instruction: a distance that leads into
/// the text, or to within 16 MiB of it, or a sum of registers with a displacement of 5.
fn is_operand(text: &[u8], at: usize) -> bool {
    const FAR: i64 = 1 << 24;
    // The operand's first byte: both bytes lie in it.
    (at.saturating_sub(2)..=at).any(|operand| {
        let Some(&[a, b, c, d]) =
            text.get(operand..operand + 4).and_then(|bytes| <&[u8; 4]>::try_from(bytes).ok())
        else {
            return false;
        };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let target = operand as i64 + 4 + distance;
        let inside = target >= 0 && target < text.len() as i64;
        match text.get(..operand).unwrap_or_default() {
            [.., 0xe8 | 0xe9] | [.., 0x0f, 0x80..=0x8f] => inside,
            [.., opcode, modrm] if modrm & 0xc7 == 0x05 => {
                let data = matches!(opcode, 0x01..=0x3b | 0x63 | 0x80..=0x8d | 0xc6 | 0xc7 | 0xff)
                    || matches!(opcode, 0x10 | 0x11 | 0x28 | 0x29 | 0x6f | 0x7f | 0xb1 | 0xb6);
                data && target.abs() < FAR
            }
            _ => false,
        }
    }) || matches!(
        text.get(at.saturating_sub(2)..at),
        Some([0x00..=0x3b | 0x63 | 0x6f | 0x7f | 0x84..=0x8d | 0xb6 | 0xb7, modrm])
            if modrm & 0xc7 == 0x44
    )
}
