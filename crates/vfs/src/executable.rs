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
    /// No dynamic loader starts it (`PT_INTERP` is missing), position-independent or not; or
    /// another one than glibc's.
    Static,
    /// The dynamic loader itself: what it starts is named by its arguments ([`loader_task`]).
    Loader,
    /// A tool of Valgrind's: static, and all addresses are its own to give away.
    Valgrind,
    /// Go's runtime is in it, which makes its system calls itself.
    Go,
    /// The same, beside the C library: the dynamic loader starts it (cgo).
    GoBesideC,
    /// The dynamic loader starts it, and it calls the C library.
    Dynamic,
}

/// Environment variable of a process that is to run a program which no dynamic linker starts, or
/// that has another C library: `DESCRIPTOR:FILE`, the program's open file, and its path.
pub const GUEST: &str = "SOLERA_GUEST";
/// The same: the name that the program was executed by.
pub const GUEST_CALLED: &str = "SOLERA_GUEST_CALLED";

/// Where Valgrind's tools are linked to lie (`valt_load_address`, 3.x on x86-64).
const VALGRIND: std::ops::Range<u64> = 0x5800_0000..0x5a00_0000;
const CLASS_64: u8 = 2;
const MACHINE_X86_64: u64 = 62;
const TYPE_SHARED: u64 = 3;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DYNAMIC_ENTRY_BYTES: usize = 16;
/// The name that glibc's dynamic loader gives itself.
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
/// The name of glibc.
const C_LIBRARY: &[u8] = b"libc.so.6";
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// Most of a table, of the notes or of the sections' names that is looked at.
const PART_BYTES_MAX: u64 = 1 << 20;
/// Longest text of the dynamic section that is read: some builders write many directories.
const TEXT_BYTES_MAX: usize = 1 << 16;
/// Most objects that one may name as needed.
const NEEDED_MAX: usize = 4096;

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
    if !is_native(&header) {
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
        let entry = field(&header, 24, 8);
        return match is_loader {
            true => Linkage::Loader,
            false if VALGRIND.contains(&entry) => Linkage::Valgrind,
            false => Linkage::Static,
        };
    }
    let names_other = |one: &[u8]| {
        let path = part(read, field(one, 8, 8), field(one, 32, 8));
        path.is_some_and(|path| {
            let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
            path.starts_with(b"/") && path.rsplit(|&byte| byte == b'/').next() != Some(LOADER)
        })
    };
    if programs().any(|one| field(one, 0, 4) == PT_INTERP && names_other(one)) {
        return Linkage::Static;
    }
    let is_go_note = |one: &[u8]| {
        field(one, 0, 4) == PT_NOTE
            && part(read, field(one, 8, 8), field(one, 32, 8)).is_some_and(|notes| is_of_go(&notes))
    };
    if programs().any(is_go_note) || has_section_of_go(read, &header) {
        let needed = dependencies(read).map(|all| all.needed).unwrap_or_default();
        let has_c = needed.iter().any(|name| name == C_LIBRARY);
        return if has_c { Linkage::GoBesideC } else { Linkage::Go };
    }
    Linkage::Dynamic
}

/// The name that a shared object gives itself, if it could be the loader's.
fn shared_name(read: &dyn Fn(u64, &mut [u8]) -> usize, table: &[u8], size: u64) -> Option<Vec<u8>> {
    let (_, entries) = dynamic_entries(read, table, size)?;
    let value = |tag| {
        let mut all = entries.chunks_exact(DYNAMIC_ENTRY_BYTES);
        all.find(|one| field(one, 0, 8) == tag).map(|one| field(one, 8, 8))
    };
    let address = value(DT_STRTAB)?.checked_add(value(DT_SONAME)?)?;
    let name = part(read, place_of(table, size, address)?, LOADER.len() as u64 + 1)?;
    name.strip_suffix(b"\0").map(<[u8]>::to_vec)
}

/// The dynamic section of a file with these program headers: where it stands, and its bytes.
fn dynamic_entries(
    read: &dyn Fn(u64, &mut [u8]) -> usize,
    table: &[u8],
    size: u64,
) -> Option<(u64, Vec<u8>)> {
    let mut programs = table.chunks_exact(size as usize);
    let dynamic = programs.find(|one| field(one, 0, 4) == PT_DYNAMIC)?;
    let place = field(dynamic, 8, 8);
    Some((place, part(read, place, field(dynamic, 32, 8))?))
}

/// Where in the file stands what is loaded at an address.
fn place_of(table: &[u8], size: u64, address: u64) -> Option<u64> {
    let programs = table.chunks_exact(size as usize);
    programs.filter(|one| field(one, 0, 4) == PT_LOAD).find_map(|one| {
        let into = address.checked_sub(field(one, 16, 8))?;
        (into < field(one, 32, 8)).then(|| field(one, 8, 8).checked_add(into))?
    })
}

/// What an object says of the libraries that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// The name that it gives itself (`DT_SONAME`).
    pub name: Option<Vec<u8>>,
    /// The names of what it needs, in order.
    pub needed: Vec<Vec<u8>>,
    /// For each of these: where in the file it is said where the name stands, and that.
    pub places: Vec<(u64, u64)>,
    /// Where they are looked for before `LD_LIBRARY_PATH`; counts only without the next one.
    pub rpath: Option<Vec<u8>>,
    /// Where they are looked for behind it.
    pub runpath: Option<Vec<u8>>,
}

/// Reads that; `None`: it is no 64-bit x86 object, or has no dynamic section.
pub fn dependencies(read: &dyn Fn(u64, &mut [u8]) -> usize) -> Option<Dependencies> {
    let mut header = [0; HEADER_BYTES];
    if read(0, &mut header) < HEADER_BYTES || !is_native(&header) {
        return None;
    }
    let (start, size, count) =
        (field(&header, 32, 8), field(&header, 54, 2), field(&header, 56, 2));
    if size < PROGRAM_HEADER_BYTES {
        return None;
    }
    let table = part(read, start, size * count)?;
    let (place, entries) = dynamic_entries(read, &table, size)?;
    let entries = || {
        let all = entries.chunks_exact(DYNAMIC_ENTRY_BYTES);
        all.map(|one| (field(one, 0, 8), field(one, 8, 8))).take_while(|&(tag, _)| tag != DT_NULL)
    };
    let strings = entries().find(|&(tag, _)| tag == DT_STRTAB)?.1;
    let mut window = Window { read, at: 0, bytes: Vec::new() };
    let mut said = Dependencies::default();
    for (number, (tag, value)) in (0..).zip(entries()) {
        let mut text = || {
            let place = place_of(&table, size, strings.checked_add(value)?)?;
            window.text(place)
        };
        match tag {
            DT_NEEDED if said.needed.len() < NEEDED_MAX => {
                let Some(name) = text() else { continue };
                said.needed.push(name);
                let into = number * DYNAMIC_ENTRY_BYTES as u64 + 8;
                said.places.push((place.saturating_add(into), value));
            }
            DT_SONAME => said.name = text(),
            DT_RPATH => said.rpath = text(),
            DT_RUNPATH => said.runpath = text(),
            _ => {}
        }
    }
    Some(said)
}

/// How the files of the sanitizers' runtimes begin.
const SANITIZERS: [&[u8]; 6] =
    [b"libasan.so", b"libhwasan.so", b"libtsan.so", b"liblsan.so", b"libubsan.so", b"libclang_rt."];

/// Whether a library of this name is a sanitizer's runtime, which must stand first in the list of
/// what is loaded, and can be named in `LD_PRELOAD`.
pub fn is_sanitizer(name: &[u8]) -> bool {
    SANITIZERS.iter().any(|begins| name.starts_with(begins))
        && !name.iter().any(|byte| b": ".contains(byte))
}

/// A text of an object with the linker's tokens replaced: `$ORIGIN`, the directory in which it
/// lies, `$LIB`, `$PLATFORM`; `None`: the origin is not known.
pub fn expanded(text: &[u8], origin: &[u8], library_directory: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
        whole.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let token = |name: &[u8]| {
            let braced = [b"${", name, b"}"].concat();
            if rest.starts_with(&braced) {
                return Some(braced.len());
            }
            let plain = [b"$", name].concat();
            let next = rest.get(plain.len());
            let ends = next.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            (rest.starts_with(&plain) && ends).then_some(plain.len())
        };
        if let Some(length) = token(b"ORIGIN") {
            if origin.is_empty() {
                return None;
            }
            whole.extend_from_slice(origin);
            rest = &rest[length..];
        } else if let Some(length) = token(b"LIB") {
            whole.extend_from_slice(library_directory);
            rest = &rest[length..];
        } else if let Some(length) = token(b"PLATFORM") {
            whole.extend_from_slice(b"x86_64");
            rest = &rest[length..];
        } else {
            whole.push(b'$');
            rest = &rest[1..];
        }
    }
    whole.extend_from_slice(rest);
    Some(whole)
}

/// Whether a file that begins so is one for this machine.
pub fn is_native(header: &[u8]) -> bool {
    header.starts_with(b"\x7fELF")
        && header.get(4) == Some(&CLASS_64)
        && field(header, 18, 2) == MACHINE_X86_64
}

/// The texts of a dynamic section mostly lie side by side: read together.
struct Window<'a> {
    read: &'a dyn Fn(u64, &mut [u8]) -> usize,
    at: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The text at a place, without its NUL; `None`: it has no end.
    fn text(&mut self, place: u64) -> Option<Vec<u8>> {
        const FIRST_BYTES: usize = 1 << 12;
        let held = |window: &Self| {
            let from = usize::try_from(place.checked_sub(window.at)?).ok()?;
            let rest = window.bytes.get(from..)?;
            let end = rest.iter().position(|&byte| byte == 0)?;
            Some(rest[..end].to_vec())
        };
        for length in [0, FIRST_BYTES, TEXT_BYTES_MAX] {
            if length > 0 {
                let mut bytes = vec![0; length];
                let got = (self.read)(place, &mut bytes).min(length);
                bytes.truncate(got);
                (self.at, self.bytes) = (place, bytes);
            }
            if let Some(text) = held(self) {
                return Some(text);
            }
        }
        None
    }
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
    use super::{Linkage, LoaderTask, dependencies, linkage, loader_task};

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
        assert_eq!(of(&program(&[3], b"/lib/ld-musl-x86_64.so.1\0")), Linkage::Static);
        assert_eq!(of(&program(&[3], b"/gnu/ld-linux-x86-64.so.2\0")), Linkage::Dynamic);
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

    fn needs(object: &[u8]) -> Option<super::Dependencies> {
        dependencies(&|at, to| {
            let from = object.get(at as usize..).unwrap_or_default();
            let length = from.len().min(to.len());
            to[..length].copy_from_slice(&from[..length]);
            length
        })
    }

    /// Whatever stands in the file, reading ends.
    #[test]
    fn dependencies_are_those_of_the_dynamic_section() {
        let own = std::fs::read("/proc/self/exe").expect("this program");
        let said = needs(&own).expect("a dynamic section");
        assert!(said.needed.iter().any(|name| name == b"libc.so.6"), "{said:?}");
        assert_eq!((said.name, said.rpath, said.runpath), (None, None, None));
        let loader = std::fs::read("/lib64/ld-linux-x86-64.so.2").expect("glibc's loader");
        let said = needs(&loader).expect("a dynamic section");
        assert_eq!(said.name.as_deref(), Some(&b"ld-linux-x86-64.so.2"[..]));
        for length in (0..loader.len()).step_by(997) {
            needs(&loader[..length]);
        }
        let mut damaged = loader.clone();
        for at in (0..loader.len().min(1 << 12)).chain((0..loader.len()).step_by(4099)) {
            damaged[at] = !damaged[at];
            needs(&damaged);
            damaged[at] = loader[at];
        }
    }

    #[test]
    fn tokens_are_replaced() {
        let of = |text: &str| super::expanded(text.as_bytes(), b"/o", b"lib64");
        for (text, is) in [
            ("$ORIGIN/../lib", "/o/../lib"),
            ("${ORIGIN}x$LIB/$PLATFORM", "/oxlib64/x86_64"),
            ("$ORIGINAL/$", "$ORIGINAL/$"),
            ("/a/${LIB", "/a/${LIB"),
            ("", ""),
        ] {
            assert_eq!(of(text).as_deref(), Some(is.as_bytes()), "{text}");
        }
        assert_eq!(super::expanded(b"$ORIGIN", b"", b""), None);
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
