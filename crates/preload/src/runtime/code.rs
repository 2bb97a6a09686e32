//! Which file the code at an address is from: for those whose system calls are looked at by who
//! makes them, and for the report.
//!
//! The dynamic linker's list is looked through first, without a call of the kernel's; then the
//! kernel's list of mappings, which knows the libraries of a guest and of other name spaces, and
//! memory that no file is behind. What was found is remembered: an object that is unloaded may lend
//! its name to what comes to lie there.

use std::ffi::{CStr, c_char, c_ulong};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use ::door::elf::ProgramHeader;

use crate::runtime::{environment, objects};

/// Memory of the program's own: code that was made at run time.
pub const ANONYMOUS: &[u8] = b"[anonymous]";
/// What cannot be found out, as the kernel is not asked any more, or has nothing to tell.
pub const UNKNOWN: &[u8] = b"[unknown]";
/// Beyond what is remembered.
const OTHERS: &[u8] = b"[others]";

/// A piece of code.
struct Piece {
    place: Range<usize>,
    file: &'static [u8],
}

/// What was found. Each is published once, and lives for ever.
static FOUND: [AtomicPtr<Piece>; 32] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 32];

/// The program has set a filter of system calls, which may end it for a question.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// From here on the kernel is not asked.
pub fn ask_no_more() {
    IS_FILTERED.store(true, Ordering::Relaxed);
}

/// The file of the code at this address: its name as the dynamic linker or the kernel has it, or
/// one in brackets. Own code runs.
pub fn file_at(address: usize) -> &'static [u8] {
    for place in &FOUND {
        let mut found = place.load(Ordering::Acquire);
        if found.is_null() {
            let (null, new) = (std::ptr::null_mut(), Box::into_raw(Box::new(look_for(address))));
            found = match place.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(theirs) => {
                    // SAFETY: made above and not published.
                    drop(unsafe { Box::from_raw(new) });
                    theirs
                }
            };
        }
        // SAFETY: published pieces live for ever.
        let piece = unsafe { &*found };
        if piece.place.contains(&address) {
            return piece.file;
        }
    }
    OTHERS
}

#[cold]
fn look_for(address: usize) -> Piece {
    if let Some((place, file)) = loaded_at(address) {
        return Piece { place, file };
    }
    let told = (!IS_FILTERED.load(Ordering::Relaxed)).then(|| mapped_at(address)).flatten();
    let (place, file) = told.unwrap_or((address..address + 1, UNKNOWN));
    Piece { place, file }
}

/// What the dynamic linker, or the kernel at the program's start, has loaded at this address, and
/// its file.
pub fn loaded_at(address: usize) -> Option<(Range<usize>, &'static [u8])> {
    let libraries = objects::loaded().filter(|object| !object.file().is_empty());
    let mut all = libraries
        .filter_map(|object| {
            let code = code_of(object.base(), headers_of(object.base()))?;
            Some((code, object.file()))
        })
        .chain(program());
    all.find(|(code, _)| code.contains(&address))
}

/// The objects whose calls stay the kernel's, by the names of their files.
const LIBRARIES: [&[u8]; 4] =
    [b"libsolera.so", b"solera_vfs.so", b"libsolera_align.so", b"libsolera_profile.so"];
const PROGRAMS: [&[u8]; 2] = [b"solera", b"solera-bench"];

/// Whether a file is one of those.
pub fn is_of_solera(file: &[u8]) -> bool {
    let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
    // Libraries have a version behind their names, perhaps.
    PROGRAMS.contains(&name) || LIBRARIES.iter().any(|own| name.starts_with(own))
}

/// Whether an engine of their own is in the program, as far as it was loaded.
pub fn has_own_engine() -> bool {
    const OF_THE_PROGRAM: [&[u8]; 2] = [b"libsolera_align.so", b"libsolera_profile.so"];
    let is_one = |file: &[u8]| {
        let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
        is_of_solera(file) && !OF_THE_PROGRAM.iter().any(|own| name.starts_with(own))
    };
    objects::loaded().any(|object| is_one(object.file()))
        || program().is_some_and(|one| is_one(one.1))
}

/// The program's own code, and its file.
fn program() -> Option<(Range<usize>, &'static [u8])> {
    const AT_PHDR: c_ulong = 3;
    const AT_PHNUM: c_ulong = 5;
    const AT_EXECFN: c_ulong = 31;
    let [table, count, file] =
        [AT_PHDR, AT_PHNUM, AT_EXECFN].map(|kind| environment::auxiliary(kind) as usize);
    if table == 0 || file == 0 {
        return None;
    }
    // SAFETY: where the kernel says that the program's headers and its file's name are.
    let (headers, file) = unsafe {
        let headers = std::slice::from_raw_parts(table as *const ProgramHeader, count);
        (headers, CStr::from_ptr(file as *const c_char).to_bytes())
    };
    let base = ::door::elf::base(table, headers)?;
    Some((code_of(base, headers)?, file))
}

/// Where the code of an object with these program headers is, whose addresses are from `base` on.
pub fn code_of(base: usize, headers: &[ProgramHeader]) -> Option<Range<usize>> {
    let text = ::door::elf::code(headers)?;
    let start = base + text.address as usize;
    Some(start..start + text.size as usize)
}

/// The program headers of what is loaded there.
pub fn headers_of(base: usize) -> &'static [ProgramHeader] {
    // SAFETY: an object begins with its header, which says where the others are: in its first
    // pages.
    unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let first = (base + header.e_phoff as usize) as *const ProgramHeader;
        std::slice::from_raw_parts(first, usize::from(header.e_phnum))
    }
}

/// What the kernel has mapped there. `None`: it does not tell.
fn mapped_at(address: usize) -> Option<(Range<usize>, &'static [u8])> {
    let list = std::fs::read("/proc/self/maps").ok()?;
    let mut lines = list.split(|&byte| byte == b'\n').filter_map(Line::parse);
    let line = lines.find(|line| (line.start..line.end).contains(&address))?;
    let file = if line.file.is_empty() { ANONYMOUS } else { line.file.to_vec().leak() };
    Some((line.start..line.end, file))
}

/// A line of `maps`, or the first one of each block of `smaps`.
pub struct Line<'a> {
    pub start: usize,
    pub end: usize,
    /// Empty: there is none.
    pub file: &'a [u8],
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        // Addresses, access, offset, device, inode; then blanks and the file.
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
        words.next().filter(|access| access.len() == 4)?;
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            file: words.nth(3).unwrap_or_default().trim_ascii_start(),
        })
    }
}
