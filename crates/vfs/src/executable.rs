//! Tells from a program's file whether a preloaded library will see its calls on files.
//!
//! The file is read through a function, so that it may lie anywhere. A part that is not where
//! linkers put it counts as harmless, except the program headers.

/// How a program comes to its system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// No ELF file: a script, or a format that the kernel knows by other means.
    OtherFormat,
    /// Its program headers are not where its header says.
    Damaged,
    /// It is no 64-bit x86 program.
    Foreign,
    /// No dynamic loader starts it (`PT_INTERP` is missing), position-independent or not.
    Static,
    /// The dynamic loader itself: what it starts is named by its arguments ([`loader_task`]).
    Loader,
    /// Go's runtime is in it, which makes its system calls itself.
    Go,
    /// The dynamic loader starts it, and it calls the C library.
    Dynamic,
}

const CLASS_64: u8 = 2;
const MACHINE_X86_64: u64 = 62;
const TYPE_SHARED: u64 = 3;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DYNAMIC_ENTRY_BYTES: usize = 16;
/// The name that glibc's dynamic loader gives itself.
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// Most of a table, of the notes or of the sections' names that is looked at.
const PART_BYTES_MAX: u64 = 1 << 20;

/// Looks at a program. `read` fills the buffer from an offset (bytes) on and gives how many it got.
pub fn linkage(read: &dyn Fn(u64, &mut [u8]) -> usize) -> Linkage {
    let mut header = [0; HEADER_BYTES];
    if read(0, &mut header) < HEADER_BYTES || !header.starts_with(b"\x7fELF") {
        return if header.starts_with(b"\x7fELF") {
            Linkage::Damaged
        } else {
            Linkage::OtherFormat
        };
    }
    if header[4] != CLASS_64 || field(&header, 18, 2) != MACHINE_X86_64 {
        return Linkage::Foreign;
    }
    let (start, size, count) =
        (field(&header, 32, 8), field(&header, 54, 2), field(&header, 56, 2));
    let Some(table) = part(read, start, size * count).filter(|_| size >= PROGRAM_HEADER_BYTES)
    else {
        return Linkage::Damaged;
    };
    let programs = || table.chunks_exact(size as usize);
    if !programs().any(|one| field(one, 0, 4) == PT_INTERP) {
        let is_loader = field(&header, 16, 2) == TYPE_SHARED
            && shared_name(read, &table, size).as_deref() == Some(LOADER);
        return if is_loader { Linkage::Loader } else { Linkage::Static };
    }
    let is_go_note = |one: &[u8]| {
        field(one, 0, 4) == PT_NOTE
            && part(read, field(one, 8, 8), field(one, 32, 8)).is_some_and(|notes| is_of_go(&notes))
    };
    if programs().any(is_go_note) || has_section_of_go(read, &header) {
        return Linkage::Go;
    }
    Linkage::Dynamic
}

/// The name that a shared object gives itself, if it could be the loader's.
fn shared_name(read: &dyn Fn(u64, &mut [u8]) -> usize, table: &[u8], size: u64) -> Option<Vec<u8>> {
    let programs = || table.chunks_exact(size as usize);
    let dynamic = programs().find(|one| field(one, 0, 4) == PT_DYNAMIC)?;
    let entries = part(read, field(dynamic, 8, 8), field(dynamic, 32, 8))?;
    let value = |tag| {
        let mut all = entries.chunks_exact(DYNAMIC_ENTRY_BYTES);
        all.find(|one| field(one, 0, 8) == tag).map(|one| field(one, 8, 8))
    };
    let address = value(DT_STRTAB)?.checked_add(value(DT_SONAME)?)?;
    let place = programs().filter(|one| field(one, 0, 4) == PT_LOAD).find_map(|one| {
        let into = address.checked_sub(field(one, 16, 8))?;
        (into < field(one, 32, 8)).then(|| field(one, 8, 8).checked_add(into))?
    })?;
    let name = part(read, place, LOADER.len() as u64 + 1)?;
    name.strip_suffix(b"\0").map(<[u8]>::to_vec)
}

/// What the dynamic loader does with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderTask {
    /// It starts the program that this argument names.
    Start(usize),
    /// It tells something and ends: of the object that this argument names, if there is one.
    Tell(Option<usize>),
    /// It has an option that is not known here.
    Unknown,
}

/// What glibc's loader does with these arguments, the first of which is its own name.
pub fn loader_task(arguments: &[&[u8]]) -> LoaderTask {
    let (mut at, mut tells) = (1, false);
    while let Some(&argument) = arguments.get(at) {
        at += match argument {
            b"--help" | b"--version" | b"--list-tunables" | b"--list-diagnostics" => {
                return LoaderTask::Tell(None);
            }
            b"--list" | b"--verify" => {
                tells = true;
                1
            }
            b"--inhibit-cache" => 1,
            b"--library-path"
            | b"--inhibit-rpath"
            | b"--audit"
            | b"--preload"
            | b"--argv0"
            | b"--glibc-hwcaps-prepend"
            | b"--glibc-hwcaps-mask" => 2,
            option if option.starts_with(b"--") => return LoaderTask::Unknown,
            _ if tells => return LoaderTask::Tell(Some(at)),
            _ => return LoaderTask::Start(at),
        };
    }
    LoaderTask::Tell(None)
}

/// A little-endian number; zero beyond the end.
fn field(bytes: &[u8], at: usize, length: usize) -> u64 {
    let part = bytes.get(at..at + length).unwrap_or_default();
    part.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A part of the file, whole; `None`: it is not there, or too long.
fn part(read: &dyn Fn(u64, &mut [u8]) -> usize, at: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > PART_BYTES_MAX {
        return None;
    }
    let mut part = vec![0; bytes as usize];
    (read(at, &mut part) == part.len()).then_some(part)
}

/// Whether one of the notes is Go's: its build's identity.
fn is_of_go(mut notes: &[u8]) -> bool {
    const HEAD_BYTES: usize = 12;
    while notes.len() >= HEAD_BYTES {
        let name_bytes = field(notes, 0, 4) as usize;
        let value_bytes = field(notes, 4, 4) as usize;
        if notes[HEAD_BYTES..].get(..name_bytes) == Some(b"Go\0\0") {
            return true;
        }
        let next = HEAD_BYTES + name_bytes.next_multiple_of(4) + value_bytes.next_multiple_of(4);
        notes = notes.get(next..).unwrap_or_default();
    }
    false
}

/// Whether it has a section that every Go program has, one without an identity too.
fn has_section_of_go(read: &dyn Fn(u64, &mut [u8]) -> usize, header: &[u8]) -> bool {
    const SECTION: &[u8] = b".go.buildinfo\0";
    let (start, size, count) = (field(header, 40, 8), field(header, 58, 2), field(header, 60, 2));
    let names_at = field(header, 62, 2) as usize;
    let Some(table) = part(read, start, size * count).filter(|_| size >= SECTION_HEADER_BYTES)
    else {
        return false;
    };
    let sections = || table.chunks_exact(size as usize);
    let names = sections().nth(names_at).and_then(|one| {
        part(read, field(one, 24, 8), field(one, 32, 8)) //
    });
    let names = names.unwrap_or_default();
    let name = |one: &[u8]| names.get(field(one, 0, 4) as usize..).unwrap_or_default();
    sections().any(|one| name(one).starts_with(SECTION))
}

#[cfg(test)]
mod tests {
    use super::{Linkage, LoaderTask, linkage, loader_task};

    fn of(program: &[u8]) -> Linkage {
        linkage(&|at, to| {
            let from = program.get(at as usize..).unwrap_or_default();
            let length = from.len().min(to.len());
            to[..length].copy_from_slice(&from[..length]);
            length
        })
    }

    /// A header, then program headers of these kinds; all are said to hold what follows them.
    fn program(kinds: &[u8], notes: &[u8]) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..5].copy_from_slice(b"\x7fELF\x02");
        (program[18], program[32], program[54], program[56]) = (62, 64, 56, kinds.len() as u8);
        let end = 64 + 56 * kinds.len();
        for &kind in kinds {
            let mut one = [0; 56];
            one[0] = kind;
            (one[8], one[9], one[32]) = (end as u8, (end >> 8) as u8, notes.len() as u8);
            program.extend_from_slice(&one);
        }
        program.extend_from_slice(notes);
        program
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(of(b"#!/bin/sh\n"), Linkage::OtherFormat);
        assert_eq!(of(b""), Linkage::OtherFormat);
        assert_eq!(of(b"\x7fELF\x02"), Linkage::Damaged);
        assert_eq!(of(&program(&[1], b"")), Linkage::Static);
        assert_eq!(of(&program(&[3, 1], b"")), Linkage::Dynamic);
        assert_eq!(of(&program(&[3, 1], b"")[..100]), Linkage::Damaged);
        let mut narrow = program(&[3], b"");
        narrow[4] = 1;
        assert_eq!(of(&narrow), Linkage::Foreign);
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert_eq!(of(&own), Linkage::Dynamic);
    }

    /// It has no interpreter, and was taken for a static program.
    #[test]
    fn the_loader_is_no_static_program() {
        let loader = std::fs::read("/lib64/ld-linux-x86-64.so.2").expect("glibc's loader");
        assert_eq!(of(&loader), Linkage::Loader);
        let mut renamed = loader.clone();
        let name = b"ld-linux-x86-64.so.2\0";
        let places: Vec<usize> =
            (0..renamed.len() - name.len()).filter(|&at| renamed[at..].starts_with(name)).collect();
        for at in places {
            renamed[at] = b'x';
        }
        assert_eq!(of(&renamed), Linkage::Static);
        for length in (0..loader.len()).step_by(997) {
            assert_ne!(of(&loader[..length]), Linkage::Dynamic);
        }
    }

    #[test]
    fn the_loader_is_asked_for_a_program_or_for_itself() {
        let asked = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            loader_task(&words)
        };
        assert_eq!(asked("ld.so prog --list"), LoaderTask::Start(1));
        assert_eq!(asked("ld.so --library-path --list --argv0 x -p y"), LoaderTask::Start(5));
        assert_eq!(asked("ld.so --inhibit-cache --verify prog"), LoaderTask::Tell(Some(3)));
        assert_eq!(asked("ld.so --list"), LoaderTask::Tell(None));
        assert_eq!(asked("ld.so"), LoaderTask::Tell(None));
        assert_eq!(asked("ld.so --preload a --version"), LoaderTask::Tell(None));
        assert_eq!(asked("ld.so --of-tomorrow prog"), LoaderTask::Unknown);
    }

    #[test]
    fn go_is_known_by_its_note() {
        let gnu = b"\x04\0\0\0\x05\0\0\0\x03\0\0\0GNU\0abcde\0\0\0";
        let go = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
        assert_eq!(of(&program(&[3, 4], gnu)), Linkage::Dynamic);
        assert_eq!(of(&program(&[3, 4], go)), Linkage::Go);
        assert_eq!(of(&program(&[3, 4], &[&gnu[..], go].concat())), Linkage::Go);
        assert_eq!(of(&program(&[3, 4], &go[..10])), Linkage::Dynamic);
    }

    #[test]
    fn go_is_known_by_its_section() {
        let mut one = program(&[3], b"");
        let (at, names) = (one.len() as u8, b"\0.text\0.go.buildinfo\0");
        (one[40], one[58], one[60], one[62]) = (at, 64, 3, 1);
        let mut sections = [0; 3 * 64];
        (sections[64 + 24], sections[64 + 25]) = (at.wrapping_add(192), 1);
        assert_eq!(usize::from(at) + 192, 256 + usize::from(at.wrapping_add(192)));
        sections[64 + 32] = names.len() as u8;
        one.extend_from_slice(&sections);
        one.extend_from_slice(names);
        assert_eq!(of(&one), Linkage::Dynamic);
        let last = usize::from(at) + 128;
        one[last] = 7;
        assert_eq!(of(&one), Linkage::Go);
    }
}
