//! What a disassembler says of every file: it finds the same system calls as the shapes do; each
//! change begins and ends with an instruction; nothing jumps into one; the stubs lie in padding; no
//! vector register, no flag and nothing below rsp is needed across a call that is patched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use door::elf::Part;
use door::image::{COMPUTED, Image, Record};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHF_ALLOC, SHF_EXECINSTR};
use object::read::elf::{FileHeader, SectionHeader};

use crate::libraries;

/// A file's text, instruction by instruction.
struct Listing {
    instructions: Vec<Instruction>,
    index: HashMap<u64, usize>,
    /// The starts of functions that have unwinding, in order.
    functions: Vec<Part>,
}

impl Listing {
    fn of(file: &[u8]) -> Self {
        let header = FileHeader64::<LE>::parse(file).unwrap();
        let sections = header.sections(LE, file).unwrap();
        let mut instructions = Vec::new();
        for section in sections.iter() {
            let flags = section.sh_flags(LE);
            if flags & u64::from(SHF_ALLOC) == 0 || flags & u64::from(SHF_EXECINSTR) == 0 {
                continue;
            }
            let code = section.data(LE, file).unwrap();
            let decoder = Decoder::with_ip(64, code, section.sh_addr(LE), DecoderOptions::NONE);
            instructions.extend(decoder);
        }
        let index = instructions.iter().enumerate().map(|(at, one)| (one.ip(), at)).collect();
        Self { instructions, index, functions: functions(file) }
    }

    fn at(&self, address: u64) -> Option<&Instruction> {
        self.index.get(&address).map(|at| &self.instructions[*at])
    }

    fn function(&self, address: u64) -> Option<Part> {
        let behind = self.functions.partition_point(|part| part.address <= address);
        self.functions[..behind].last().copied().filter(|part| address < part.end())
    }
}

/// Functions by the table of unwinding.
fn functions(file: &[u8]) -> Vec<Part> {
    let header = FileHeader64::<LE>::parse(file).unwrap();
    let sections = header.sections(LE, file).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (_, table) = sections.section_by_name(LE, b".eh_frame_hdr").unwrap();
    let (_, frames) = sections.section_by_name(LE, b".eh_frame").unwrap();
    let start = table.sh_offset(LE) as usize;
    let near = |base: u64, at: usize| base.wrapping_add_signed(i64::from(word(at) as i32));
    let mut found = Vec::new();
    for entry in 0..word(start + 8) as usize {
        let at = start + 12 + entry * 8;
        let address = near(table.sh_addr(LE), at);
        let frame = near(table.sh_addr(LE), at + 4) - frames.sh_addr(LE) + frames.sh_offset(LE);
        found.push(Part { address, size: u64::from(word(frame as usize + 12)) });
    }
    found
}

fn is_direct(one: &Instruction) -> bool {
    matches!(one.op0_kind(), OpKind::NearBranch64) && one.flow_control() != FlowControl::Next
}

#[test]
fn every_change_is_right() {
    for path in libraries::all() {
        let file = std::fs::read(&path).unwrap();
        let image = Image::make(&file, &door::wanted)
            .unwrap_or_else(|failed| panic!("{}: {failed}", path.display()));
        println!("{}: {}", path.display(), coverage(&image));
        check(&path, &file, &image);
    }
}

#[test]
fn a_text_with_data_in_its_segment_is_patched_the_same() {
    let folder = libraries::Scratch::new("noseparate");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/door/forms.c");
    let object = folder.0.join("forms.so");
    libraries::link(&source, &object, &["-Wl,-z,noseparate-code"]);
    let file = std::fs::read(&object).unwrap();
    let image = Image::make(&file, &door::wanted).unwrap();
    println!("noseparate-code: {}", coverage(&image));
    check(&object, &file, &image);
}

fn coverage(image: &Image) -> String {
    let counts = image.counts();
    let kinds: Vec<_> = door::image::KINDS
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    format!(
        "{} system calls, {} patched: {}",
        image.records.len(),
        image.footer.patched,
        kinds.join(", ")
    )
}

fn check(path: &Path, file: &[u8], image: &Image) {
    let name = path.display();
    let before = Listing::of(file);
    // The shapes find what the disassembler finds, and nothing else.
    let calls: BTreeSet<u64> = before
        .instructions
        .iter()
        .filter(|one| one.mnemonic() == Mnemonic::Syscall)
        .map(Instruction::ip)
        .collect();
    let found: BTreeSet<u64> =
        image.records.iter().map(|record| u64::from(record.address)).collect();
    assert_eq!(calls, found, "{name}");
    let patched: Vec<&Record> = image.records.iter().filter(|record| record.is_patched()).collect();
    for record in &patched {
        let (start, end) = (u64::from(record.start), u64::from(record.end));
        assert!(before.at(start).is_some() && before.at(end).is_some(), "{name}: {record:x?}");
        if record.number != COMPUTED {
            let mov = before.at(start).unwrap();
            assert_eq!(mov.code(), Code::Mov_r32_imm32, "{name}: {record:x?}");
            assert_eq!(mov.op0_register(), Register::EAX, "{name}: {record:x?}");
            assert_eq!(mov.immediate32(), record.number, "{name}: {record:x?}");
            // Nothing else between sets the number.
            let mut info = InstructionInfoFactory::new();
            let mut at = mov.next_ip();
            while at != u64::from(record.address) {
                let one = before.at(at).unwrap();
                for used in info.info(one).used_registers() {
                    assert_ne!(
                        used.register().full_register(),
                        Register::RAX,
                        "{name}: {record:x?}"
                    );
                }
                at = one.next_ip();
            }
        }
    }
    check_bytes(path, file, image, &before, &patched);
    check_jumps(path, image, &before, &patched);
    check_registers(path, &before, &patched);
}

/// Only windows, stubs and the jump differ; windows and stubs are instructions that lead to the
/// jump.
fn check_bytes(path: &Path, file: &[u8], image: &Image, before: &Listing, patched: &[&Record]) {
    let name = path.display();
    let footer = &image.footer;
    let offset = |address: u64| (address - footer.text_address + footer.text_offset) as usize;
    let mut same = file.to_vec();
    let mut put = |start: u64, end: u64| {
        same[offset(start)..offset(end)].copy_from_slice(&image.bytes[offset(start)..offset(end)]);
    };
    let after = |address: u64, end: u64| -> Vec<Instruction> {
        let code = &image.bytes[offset(address)..offset(end)];
        Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter().collect()
    };
    let jump = after(footer.jump, footer.jump + 6)[0];
    assert_eq!(jump.code(), Code::Jmp_rm64, "{name}");
    assert_eq!(jump.ip_rel_memory_address(), footer.slot, "{name}");
    put(footer.jump, footer.jump + 6);
    for record in patched {
        let (start, end) = (u64::from(record.start), u64::from(record.end));
        let window = after(start, end);
        assert_eq!(window.last().unwrap().next_ip(), end, "{name}: {record:x?}");
        let calls: Vec<_> = window.iter().filter(|one| one.mnemonic() == Mnemonic::Call).collect();
        assert_eq!(calls.len(), 1, "{name}: {record:x?}");
        put(start, end);
        let target = calls[0].near_branch_target();
        if record.stub == 0 {
            assert_eq!(target, footer.jump, "{name}: {record:x?}");
        } else {
            let stub = u64::from(record.stub);
            assert_eq!(target, stub, "{name}: {record:x?}");
            let mut at = stub;
            loop {
                let one = after(at, at + 15)[0];
                at = one.next_ip();
                match one.mnemonic() {
                    Mnemonic::Jmp => {
                        assert_eq!(one.ip_rel_memory_address(), footer.slot, "{name}: {record:x?}");
                        break;
                    }
                    Mnemonic::Call => assert_eq!(one.near_branch_target(), footer.jump, "{name}"),
                    Mnemonic::Ret => break,
                    _ => assert_eq!(one.flow_control(), FlowControl::Next, "{name}: {record:x?}"),
                }
            }
            check_padding(path, before, stub, at);
            put(stub, at);
        }
    }
    check_padding(path, before, footer.jump, footer.jump + 6);
    assert!(same == image.bytes[..file.len()], "{name}: other bytes differ");
}

/// What becomes a stub was nops that nothing reaches: behind a jump, a return or a call that does
/// not return, or between functions.
fn check_padding(path: &Path, before: &Listing, start: u64, end: u64) {
    let name = path.display();
    assert!(before.function(start).is_none(), "{name}: {start:#x} is in a function");
    let mut index =
        before.instructions.partition_point(|one| one.ip() <= start).checked_sub(1).unwrap();
    while before.instructions[index].ip() < end {
        let one = &before.instructions[index];
        let idle = matches!(one.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
            || (one.mnemonic() == Mnemonic::Xchg && one.op0_register() == one.op1_register());
        assert!(idle, "{name}: {:#x} is no padding: {:?}", one.ip(), one.code());
        index += 1;
    }
    // What stands before is the end of a function.
    let mut index = before.instructions.partition_point(|one| one.ip() <= start) - 1;
    while matches!(before.instructions[index].mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
        index -= 1;
    }
    let last = &before.instructions[index];
    let ends = matches!(
        last.flow_control(),
        FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Exception
            | FlowControl::Interrupt
    );
    assert!(ends, "{name}: {start:#x} is reached from {:#x}: {:?}", last.ip(), last.code());
}

/// No jump, and no address that is taken, leads into a window or a stub.
fn check_jumps(path: &Path, image: &Image, before: &Listing, patched: &[&Record]) {
    let name = path.display();
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for record in patched {
        taken.insert(u64::from(record.start) + 1, u64::from(record.end));
        if record.stub != 0 {
            taken.insert(u64::from(record.stub), u64::from(record.stub) + 8);
        }
    }
    taken.insert(image.footer.jump, image.footer.jump + 6);
    for one in &before.instructions {
        let target = if is_direct(one) {
            one.near_branch_target()
        } else if one.is_ip_rel_memory_operand() {
            one.ip_rel_memory_address()
        } else {
            continue;
        };
        let into = taken.range(..=target).next_back().filter(|(_, end)| target < **end);
        assert!(into.is_none(), "{name}: {:#x} leads to {target:#x}: {:?}", one.ip(), one.code());
    }
}

/// What a walk forward from an address reads before it writes it.
struct Needs {
    vectors: BTreeSet<Register>,
    flags: bool,
}

const FLAGS: u64 = 1 << 32;

fn needs(listing: &Listing, from: u64, info: &mut InstructionInfoFactory) -> Needs {
    let mut needs = Needs { vectors: BTreeSet::new(), flags: false };
    // Addresses with what had been written on the way there: vectors as bits, flags as bit 32.
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let mut open = vec![(from, 0u64)];
    while let Some((address, mut written)) = open.pop() {
        let mut address = address;
        while let Some(one) = listing.at(address) {
            let known = seen.entry(address).or_insert(u64::MAX);
            if *known & written == *known {
                break;
            }
            *known &= written;
            // A system call of its own gives back the flags that it finds.
            let system = one.mnemonic() == Mnemonic::Syscall;
            if one.rflags_read() != 0 && written & FLAGS == 0 && !system {
                needs.flags = true;
            }
            let zeroes = matches!(
                one.mnemonic(),
                Mnemonic::Pxor
                    | Mnemonic::Xorps
                    | Mnemonic::Vpxor
                    | Mnemonic::Vxorps
                    | Mnemonic::Pcmpeqd
            ) && one.op_count() >= 2
                && one.op_register(one.op_count() - 1) == one.op_register(one.op_count() - 2)
                // Compilers take the upper half of a register by it, and leave the rest undefined.
                || matches!(one.mnemonic(), Mnemonic::Movhlps | Mnemonic::Unpckhpd);
            let used = info.info(one).used_registers();
            let vector = |register: Register| {
                let full = register.full_register();
                (full.is_zmm() || full.is_ymm() || full.is_xmm())
                    .then(|| (full, 1u64 << (full.number() & 31)))
            };
            for one in used {
                if let Some((full, bit)) = vector(one.register()) {
                    let reads = matches!(
                        one.access(),
                        OpAccess::Read
                            | OpAccess::CondRead
                            | OpAccess::ReadWrite
                            | OpAccess::ReadCondWrite
                    );
                    if reads && !zeroes && written & bit == 0 {
                        needs.vectors.insert(full);
                    }
                }
            }
            for one in used {
                let writes = matches!(one.access(), OpAccess::Write | OpAccess::ReadWrite);
                if let Some((_, bit)) = vector(one.register()).filter(|_| writes) {
                    written |= bit;
                }
            }
            if one.rflags_modified() != 0 && !system {
                written |= FLAGS;
            }
            match one.flow_control() {
                _ if system => address = one.next_ip(),
                FlowControl::Next => address = one.next_ip(),
                // A call, and a jump into another function, takes no vector but as an argument.
                FlowControl::UnconditionalBranch
                    if is_direct(one)
                        && listing
                            .functions
                            .binary_search_by_key(&one.near_branch_target(), |part| part.address)
                            .is_err() =>
                {
                    address = one.near_branch_target();
                }
                FlowControl::ConditionalBranch => {
                    open.push((one.near_branch_target(), written));
                    address = one.next_ip();
                }
                _ => break,
            }
        }
    }
    needs
}

/// Whether an instruction names memory in the bytes below rsp that a call writes, eight or, of a
/// stub that calls, 16. The entry skips the others that a function may use.
fn overlaps(one: &Instruction, base: Register, written: i64) -> bool {
    let start = one.memory_displacement64() as i64;
    let end = start + one.memory_size().size() as i64;
    base == Register::RSP && one.memory_base() == Register::RSP && start < 0 && end > -written
}

/// Whether the bytes below rsp that a call writes are read before they are written, from an address
/// on.
fn reads_below(
    listing: &Listing,
    from: u64,
    calls: i64,
    info: &mut InstructionInfoFactory,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(address) = open.pop() {
        let Some(one) = listing.at(address) else { continue };
        if !seen.insert(address) {
            continue;
        }
        let used = info.info(one);
        let touched = used.used_memory().iter().find(|memory| overlaps(one, memory.base(), calls));
        match touched.map(iced_x86::UsedMemory::access) {
            Some(OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead) => return true,
            Some(OpAccess::Write) => continue,
            _ => {}
        }
        let moves = used.used_registers().iter().any(|used| {
            used.register().full_register() == Register::RSP
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        });
        if moves {
            continue;
        }
        match one.flow_control() {
            FlowControl::Next => open.push(one.next_ip()),
            FlowControl::UnconditionalBranch if is_direct(one) => {
                open.push(one.near_branch_target());
            }
            FlowControl::ConditionalBranch => {
                open.extend([one.near_branch_target(), one.next_ip()]);
            }
            _ if one.mnemonic() == Mnemonic::Syscall => open.push(one.next_ip()),
            _ => {}
        }
    }
    false
}

/// Nothing that the handler may change is needed behind a site; nor behind a call of a function
/// that has sites, whose compiler may have known which registers it leaves alone (`-fipa-ra`).
fn check_registers(path: &Path, before: &Listing, patched: &[&Record]) {
    let name = path.display();
    let mut info = InstructionInfoFactory::new();
    let mut wrong = Vec::new();
    for record in patched {
        let needs = needs(before, u64::from(record.end), &mut info);
        if !needs.vectors.is_empty() {
            wrong.push(format!("{:#x} needs {:?}", record.address, needs.vectors));
        }
        let compared = record.kind() == "compared";
        if needs.flags && !compared {
            wrong.push(format!("{:#x} needs flags", record.address));
        }
        let calls = if record.stub != 0 && record.end - record.start < 7 { 16 } else { 8 };
        if reads_below(before, u64::from(record.end), calls, &mut info) {
            wrong.push(format!("{:#x} needs what is below rsp", record.address));
        }
        // What the kernel may read there: written in the function. Of the action that ld.so's
        // `sigaction` writes there, the kernel reads the first 32 bytes, further down.
        if let Some(function) = before.function(u64::from(record.address)) {
            let mut at = before.index.get(&function.address).copied().unwrap();
            while before.instructions[at].ip() < function.end() {
                let one = &before.instructions[at];
                let written = info.info(one).used_memory().iter().any(|memory| {
                    overlaps(one, memory.base(), calls)
                        && !matches!(memory.access(), OpAccess::Read | OpAccess::NoMemAccess)
                });
                let probe = one.mnemonic() == Mnemonic::Or && one.immediate8() == 0;
                if written && !probe && record.number != 13 {
                    wrong.push(format!("{:#x}: {:#x} writes below rsp", record.address, one.ip()));
                }
                at += 1;
            }
        }
    }
    // Functions that reach a site by direct calls and jumps.
    let mut reach: BTreeSet<u64> = patched
        .iter()
        .filter_map(|record| before.function(u64::from(record.address)).map(|part| part.address))
        .collect();
    let mut callers: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    let mut calls = Vec::new();
    for one in before.instructions.iter().filter(|one| is_direct(one)) {
        let target = one.near_branch_target();
        let (Some(from), Some(to)) = (before.function(one.ip()), before.function(target)) else {
            continue;
        };
        if from.address != to.address {
            callers.entry(to.address).or_default().insert(from.address);
        }
        if one.flow_control() == FlowControl::Call {
            calls.push((one.next_ip(), to.address));
        }
    }
    let mut open: Vec<u64> = reach.iter().copied().collect();
    while let Some(function) = open.pop() {
        for caller in callers.get(&function).into_iter().flatten() {
            if reach.insert(*caller) {
                open.push(*caller);
            }
        }
    }
    let mut looked = 0;
    for (behind, function) in calls {
        // What does not return ends its function.
        if reach.contains(&function) && before.function(behind) == before.function(behind - 1) {
            looked += 1;
            let mut needs = needs(before, behind, &mut info);
            // What a function returns.
            needs.vectors.retain(|register| register.number() > 1);
            if !needs.vectors.is_empty() {
                wrong.push(format!(
                    "behind the call before {behind:#x} are needed {:?}",
                    needs.vectors
                ));
            }
        }
    }
    println!("{name}: {looked} calls of functions with system calls");
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}
