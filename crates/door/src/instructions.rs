//! The few instructions that compilers put between a system call's number and its `syscall`, and
//! before a `syscall` whose number is in a register: moves, sums and addresses. What is not one of
//! them has no length here, and the site is not patched.

/// An instruction that may be executed elsewhere than where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Bytes.
    pub length: usize,
    /// Whether it reads or writes rax, or a part of it.
    pub accumulator: bool,
    /// Whether it addresses memory by rsp, or moves rsp.
    pub stack: Option<Stack>,
    /// Where in it a displacement stands that is relative to the instruction's end.
    pub relative: Option<usize>,
}

/// How an instruction uses the stack's pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// It reads or writes at rsp and a displacement of one byte, which stands here.
    At(usize),
    /// In another way.
    Other,
}

const RAX: u8 = 0;
const RSP: u8 = 4;

/// The instruction at the start of `bytes`, if it is one of the few.
pub(crate) fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut at = 0;
    // Canaries are read by fs; a locked sum is a fence.
    if matches!(bytes.first()?, 0x64 | 0xf0) {
        at += 1;
    }
    let mut vector = false;
    if *bytes.get(at)? == 0x66 && bytes.get(at + 1..).is_some_and(is_vector_move) {
        at += 1;
        vector = true;
    }
    let rex = match *bytes.get(at)? {
        rex @ 0x40..=0x4f => {
            at += 1;
            rex
        }
        _ => 0,
    };
    let opcode = *bytes.get(at)?;
    at += 1;
    let register_of_opcode = (opcode & 7) | ((rex & 1) << 3);
    match opcode {
        // push: in the order that it had, so rsp is what it was at the `syscall`.
        0x50..=0x57 => Some(Instruction {
            length: at,
            accumulator: register_of_opcode == RAX,
            stack: Some(Stack::Other),
            relative: None,
        }),
        // mov of a constant into a register.
        0xb8..=0xbf if rex & 8 == 0 => {
            complete(bytes, at + 4, register_of_opcode == RAX, None, None)
        }
        0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x63 | 0x89
        | 0x8b | 0x8d => operands(bytes, at, rex, 0, true),
        // Shifts, sums and masks with a byte; constants into memory.
        0x83 | 0xc1 => operands(bytes, at, rex, 1, false),
        0xc6 if is_store(*bytes.get(at)?) && bytes.get(at)? >> 6 != 3 => {
            operands(bytes, at, rex, 1, false)
        }
        // With a byte's register only where a prefix says that it is not ah to bh.
        0x80 if rex != 0 => operands(bytes, at, rex, 1, false),
        0x81 => operands(bytes, at, rex, 4, false),
        0xc7 if is_store(*bytes.get(at)?) => operands(bytes, at, rex, 4, false),
        // not, neg.
        0xf7 if matches!(*bytes.get(at)? >> 3 & 7, 2 | 3) => operands(bytes, at, rex, 0, false),
        // Moves of vectors: movups, movaps, movhlps; with 66 movq, punpcklqdq, movdqa.
        0x0f if is_vector_move(bytes.get(at - 1..)?) => {
            let general = vector && matches!(*bytes.get(at)?, 0x6e | 0x7e);
            // Both operands are vectors.
            if !general && bytes.get(at + 1)? >> 6 == 3 {
                return complete(bytes, at + 2, false, None, None);
            }
            operands(bytes, at + 1, rex, 0, false)
        }
        // cmov.
        0x0f if matches!(bytes.get(at)?, 0x40..=0x4f) => operands(bytes, at + 1, rex, 0, true),
        _ => None,
    }
}

/// Whether this is the one operation of c6 and c7 that is no transaction's.
fn is_store(modrm: u8) -> bool {
    matches!(modrm >> 3 & 7, 0)
}

fn is_vector_move(bytes: &[u8]) -> bool {
    let bytes = match bytes {
        [0x40..=0x4f, rest @ ..] => rest,
        _ => bytes,
    };
    matches!(
        bytes,
        [0x0f, 0x10 | 0x11 | 0x12 | 0x16 | 0x28 | 0x29 | 0x6c | 0x6e | 0x6f | 0x7e | 0x7f, ..]
    )
}

fn complete(
    bytes: &[u8],
    length: usize,
    accumulator: bool,
    stack: Option<Stack>,
    relative: Option<usize>,
) -> Option<Instruction> {
    (length <= bytes.len()).then_some(Instruction { length, accumulator, stack, relative })
}

/// The operands that begin at `at`; behind them `constant` bytes. `register`: the middle field
/// names a general register, and does not extend the opcode or name a vector.
fn operands(
    bytes: &[u8],
    at: usize,
    rex: u8,
    constant: usize,
    register: bool,
) -> Option<Instruction> {
    let modrm = *bytes.get(at)?;
    let (mode, middle, low) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let mut accumulator = register && middle | (rex & 4) << 1 == RAX;
    let base = low | (rex & 1) << 3;
    let mut end = at + 1;
    let mut stack = None;
    let mut relative = None;
    if mode == 3 {
        accumulator |= base == RAX;
        if base == RSP || (register && middle == RSP && rex & 4 == 0) {
            stack = Some(Stack::Other);
        }
        return complete(bytes, end + constant, accumulator, stack, relative);
    }
    let mut absolute = false;
    let mut on_stack = false;
    if low == 4 {
        let sib = *bytes.get(end)?;
        end += 1;
        let index = sib >> 3 & 7 | (rex & 2) << 2;
        let base = sib & 7 | (rex & 1) << 3;
        absolute = mode == 0 && sib & 7 == 5;
        accumulator |= index == RAX || (base == RAX && !absolute);
        on_stack = base == RSP;
    } else {
        accumulator |= base == RAX && !(mode == 0 && low == 5);
        if mode == 0 && low == 5 {
            relative = Some(end);
        }
    }
    if on_stack {
        stack = Some(if mode == 1 { Stack::At(end) } else { Stack::Other });
    }
    end += match mode {
        0 if relative.is_some() || absolute => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    // An instruction that writes rsp itself: a load into it.
    if register && middle == RSP && rex & 4 == 0 && stack.is_none() {
        stack = Some(Stack::Other);
    }
    complete(bytes, end + constant, accumulator, stack, relative)
}

/// The length of the instructions that do nothing at the start of `bytes`, each in a form in which
/// assemblers pad between functions: 0 where there is none.
pub(crate) fn padding(bytes: &[u8]) -> usize {
    match bytes {
        [0xcc | 0x90, ..] => return 1,
        [0x0f, 0x1f, 0x00, ..] => return 3,
        [0x0f, 0x1f, 0x40, 0, ..] => return 4,
        [0x0f, 0x1f, 0x44, 0, 0, ..] => return 5,
        [0x0f, 0x1f, 0x80, 0, 0, 0, 0, ..] => return 7,
        [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, ..] => return 8,
        [0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, ..] => return 9,
        _ => {}
    }
    // Prefixes: 66, several of them, before a nop.
    match bytes {
        [0x66, rest @ ..] if rest.first() != Some(&0xcc) => match padding(rest) {
            0 => 0,
            length => length + 1,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{
        Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    };
    use object::LittleEndian as LE;
    use object::elf::FileHeader64;
    use object::read::elf::{FileHeader, SectionHeader};

    use super::{decode, padding};

    /// Every instruction of this machine's C library: what is decoded here has the length, and
    /// touches the registers, that a disassembler says.
    #[test]
    fn a_disassembler_says_the_same() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
        let file = std::fs::read(path).unwrap();
        let sections = FileHeader64::<LE>::parse(&*file).unwrap().sections(LE, &*file).unwrap();
        let (_, text) = sections.section_by_name(LE, b".text").unwrap();
        let (code, address) = (text.data(LE, &*file).unwrap(), text.sh_addr(LE));
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut info = InstructionInfoFactory::new();
        let (mut decoded, mut nops) = (0, 0);
        while decoder.can_decode() {
            let at = decoder.position();
            let one = decoder.decode();
            let bytes = &code[at..];
            // Several nops in a row are one to the padding's length, or several.
            if padding(&bytes[..one.len()]) == one.len() {
                nops += 1;
                let idle = matches!(one.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
                    || (one.mnemonic() == Mnemonic::Xchg
                        && one.op0_register() == one.op1_register());
                assert!(idle, "{:#x}", one.ip());
            }
            let Some(own) = decode(bytes) else { continue };
            decoded += 1;
            assert_eq!(own.length, one.len(), "{:#x}", one.ip());
            assert_eq!(one.flow_control(), FlowControl::Next, "{:#x}", one.ip());
            let used = info.info(&one);
            let touches = |register: Register| {
                used.used_registers().iter().any(|used| used.register().full_register() == register)
            };
            assert!(own.accumulator || !touches(Register::RAX), "{:#x}", one.ip());
            assert!(own.stack.is_some() || !touches(Register::RSP), "{:#x}", one.ip());
            if let Some(super::Stack::At(place)) = own.stack {
                assert_eq!(one.memory_base(), Register::RSP, "{:#x}", one.ip());
                assert_eq!(
                    bytes[place] as i8 as u64,
                    one.memory_displacement64(),
                    "{:#x}",
                    one.ip()
                );
                let moves = used.used_registers().iter().any(|used| {
                    used.register().full_register() == Register::RSP
                        && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
                });
                assert!(!moves, "{:#x}", one.ip());
            }
            assert_eq!(own.relative.is_some(), one.is_ip_rel_memory_operand(), "{:#x}", one.ip());
            if let Some(place) = own.relative {
                let distance = i32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
                let target = one.next_ip().wrapping_add_signed(i64::from(distance));
                assert_eq!(target, one.ip_rel_memory_address(), "{:#x}", one.ip());
            }
        }
        assert!(decoded > 150_000 && nops > 5_000, "{decoded} {nops}");
    }

    #[test]
    fn what_is_cut_has_no_length() {
        for whole in [&[0x48, 0x8d, 0x35, 1, 2, 3, 4][..], &[0xc7, 0x44, 0x24, 8, 1, 0, 0, 0]] {
            assert_eq!(decode(whole).map(|one| one.length), Some(whole.len()));
            for length in 0..whole.len() {
                assert_eq!(decode(&whole[..length]), None);
            }
        }
        assert_eq!(padding(&[]), 0);
        assert_eq!(padding(&[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), 11);
        assert_eq!(padding(&[0x66, 0xcc]), 0);
    }
}
