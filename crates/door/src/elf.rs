//! What is asked of an ELF file of this machine, whether it lies in a file or has been loaded: its
//! text, its build-id, the gaps between its functions. Nothing here allocates.

use object::LittleEndian as LE;
use object::elf::{
    NT_GNU_BUILD_ID, PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, PT_PHDR,
    ProgramHeader64,
};

/// A program header.
pub type ProgramHeader = ProgramHeader64<LE>;

/// The size of a page, bytes.
pub const PAGE: u64 = 4096;
/// A build-id has at most so many bytes here: SHA-1 has 20.
pub const BUILD_ID_MAX: usize = 32;

/// A range of addresses, as the file has them: relative to where it is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The first address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl Part {
    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// The parts of a shared object that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The executable segment.
    pub text: Part,
    /// Where it stands in the file.
    pub text_offset: u64,
    /// The writable segment: in memory.
    pub data: Part,
    /// The table of unwinding, sorted by address; empty if there is none.
    pub unwinding: Part,
}

/// Why a shared object cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Not an ELF file of this machine, or it ends too early.
    NotElf,
    /// It has no executable segment, or several, or one that is writable.
    Text,
    /// It has no writable segment behind its text.
    Data,
    /// Its text is larger than a patched file can say.
    Large,
    /// It has no build-id, or one of an odd length.
    BuildId,
}

impl Parts {
    /// Of its program headers.
    pub fn of(headers: &[ProgramHeader]) -> Result<Self, Unfit> {
        let mut parts = Self::default();
        for header in headers {
            let part = Part { address: header.p_vaddr.get(LE), size: header.p_memsz.get(LE) };
            let flags = header.p_flags.get(LE);
            match header.p_type.get(LE) {
                PT_LOAD if flags & PF_X != 0 => {
                    let file = header.p_filesz.get(LE);
                    let offset = header.p_offset.get(LE);
                    let congruent = offset % PAGE == part.address % PAGE;
                    if flags & PF_W != 0 || parts.text.size != 0 || file != part.size || !congruent
                    {
                        return Err(Unfit::Text);
                    }
                    parts.text = part;
                    parts.text_offset = offset;
                }
                PT_LOAD if flags & PF_W != 0 => parts.data = part,
                PT_GNU_EH_FRAME => parts.unwinding = part,
                PT_DYNAMIC if part.size == 0 => return Err(Unfit::NotElf),
                _ => {}
            }
        }
        if parts.text.size == 0 || parts.text.end() > 1 << 31 {
            return Err(Unfit::Text);
        }
        if parts.data.address < parts.text.end() || parts.data.end() > 1 << 31 {
            return Err(Unfit::Data);
        }
        Ok(parts)
    }
}

/// The part of any object that may be executed.
pub fn code(headers: &[ProgramHeader]) -> Option<Part> {
    let is_code = |header: &&ProgramHeader| {
        header.p_type.get(LE) == PT_LOAD && header.p_flags.get(LE) & PF_X != 0
    };
    let found = headers.iter().find(is_code)?;
    Some(Part { address: found.p_vaddr.get(LE), size: found.p_memsz.get(LE) })
}

/// What is added to the addresses that these program headers say, which stand at `table`. `None`:
/// they do not say where they would be themselves.
pub fn base(table: usize, headers: &[ProgramHeader]) -> Option<usize> {
    let own = headers.iter().find(|header| header.p_type.get(LE) == PT_PHDR)?;
    Some(table.wrapping_sub(own.p_vaddr.get(LE) as usize))
}

/// Reads bytes at an address; none where the object has none.
pub type Read<'a, 'b> = &'b dyn Fn(u64, usize) -> Option<&'a [u8]>;

/// The build-id among the notes.
pub fn build_id<'a>(
    headers: &[ProgramHeader],
    read: impl Fn(u64, usize) -> Option<&'a [u8]>,
) -> Result<&'a [u8], Unfit> {
    for header in headers.iter().filter(|header| header.p_type.get(LE) == PT_NOTE) {
        let size = header.p_filesz.get(LE).min(PAGE) as usize;
        let Some(mut notes) = read(header.p_vaddr.get(LE), size) else { continue };
        while let Some((note, behind)) = Note::first(notes) {
            if note.kind == NT_GNU_BUILD_ID && note.name == b"GNU\0" {
                let fits = (8..=BUILD_ID_MAX).contains(&note.says.len());
                return if fits { Ok(note.says) } else { Err(Unfit::BuildId) };
            }
            notes = behind;
        }
    }
    Err(Unfit::BuildId)
}

/// A note of an ELF file.
struct Note<'a> {
    kind: u32,
    name: &'a [u8],
    says: &'a [u8],
}

impl<'a> Note<'a> {
    /// The first of several, and the others.
    fn first(notes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (name, says) = (word(notes, 0)? as usize, word(notes, 4)? as usize);
        let rest = notes.get(12..)?;
        let described = rest.get(name.checked_next_multiple_of(4)?..)?;
        let behind = described.get(says.checked_next_multiple_of(4)?..).unwrap_or(&[]);
        let note =
            Self { kind: word(notes, 8)?, name: rest.get(..name)?, says: described.get(..says)? };
        Some((note, behind))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// `DW_EH_PE` for what GNU ld writes: four bytes relative to the table, or to their own address.
const RELATIVE_TO_TABLE: u8 = 0x3b;
const COUNT: u8 = 0x03;

/// The bytes between functions that are known by their unwinding: from the end of each to the start
/// of the next one. What is there may be padding, or a function without unwinding.
pub struct Between<'a, 'b> {
    read: Read<'a, 'b>,
    table: &'a [u8],
    address: u64,
    next: usize,
}

impl<'a, 'b> Between<'a, 'b> {
    /// Those of an object; none where its table is of another kind than GNU ld writes.
    pub fn new(parts: &Parts, read: Read<'a, 'b>) -> Self {
        let address = parts.unwinding.address;
        let table = read(address, parts.unwinding.size as usize).filter(|table| {
            table.first() == Some(&1) && table.get(2..4) == Some(&[COUNT, RELATIVE_TO_TABLE])
        });
        Self { read, table: table.unwrap_or(&[]), address, next: 0 }
    }

    /// The start of the function of an entry, and where its unwinding stands.
    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        if index >= word(self.table, 8)? as usize {
            return None;
        }
        let at = index.checked_mul(8)?.checked_add(12)?;
        let place = |word: u32| self.address.checked_add_signed(i64::from(word as i32));
        Some((place(word(self.table, at)?)?, place(word(self.table, at + 4)?)?))
    }
}

impl Iterator for Between<'_, '_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        loop {
            let (start, unwinding) = self.entry(self.next)?;
            let (following, _) = self.entry(self.next + 1)?;
            self.next += 1;
            // Length, distance to the common part, start relative to itself, size.
            let Some(description) = (self.read)(unwinding, 16) else { continue };
            let begins = word(description, 8)
                .and_then(|own| (unwinding + 8).checked_add_signed(i64::from(own as i32)));
            if begins != Some(start) {
                continue;
            }
            let address = start + u64::from(word(description, 12)?);
            if let Some(size) = following.checked_sub(address).filter(|size| *size > 0) {
                return Some(Part { address, size });
            }
        }
    }
}
