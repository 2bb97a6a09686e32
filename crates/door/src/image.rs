//! The patched file: the shared object's bytes with its sites changed, and behind them a trailer.
//!
//! ```text
//! 0          the ELF file: same size and layout, only bytes of the text differ
//! elf_size   zeros up to a multiple of 8
//!            a Record for each system call that was found, in the order of addresses
//! the end    a Footer, 512 bytes
//! ```
//!
//! The loader of programs sees none of it. Who arms ([`crate::arm`]) reads the footer alone, by one
//! call; who installs or checks the file reads all of it, and its digest.

use std::fmt;

use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_GNU_RELRO, PT_LOAD, SHF_ALLOC, SHF_TLS, SHF_WRITE, SHT_NOBITS};
use object::read::elf::{FileHeader, SectionHeader};
use ring::digest::{SHA256, digest};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::elf::{BUILD_ID_MAX, Between, PAGE, Part, Parts, ProgramHeader, Unfit, build_id};
use crate::patch::{Done, Gaps, Refused, STUBS, Text, patch};
use crate::sites::{self, Found, Reason, Shape};

/// The first bytes of a footer.
pub const MAGIC: [u8; 8] = *b"SOLERADR";
/// The version of this form, and of which calls are wanted. A file of another one is made anew.
pub const VERSION: u32 = {
    let (mut hash, mut number) = (FORM, 0);
    while number as usize <= calls::LAST {
        // Bits of a number that is made of all that are wanted (FNV-1a).
        let bit = if crate::wanted(number) { 1 } else { 0 };
        hash = (hash ^ (number << 1 | bit)).wrapping_mul(16_777_619);
        number += 1;
    }
    hash
};
const FORM: u32 = 2;
/// The bytes that say which pages are changed: a text of up to 2.75 MiB.
pub const CHANGED: usize = 88;
/// The bytes of a footer.
pub const FOOTER: usize = size_of::<Footer>();

/// What is known of a patched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Footer {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of the build-id.
    pub build_id_size: u32,
    /// The build-id, zeros behind it.
    pub build_id: [u8; BUILD_ID_MAX],
    /// Bytes of the ELF file.
    pub elf_size: u64,
    /// The executable segment: its address, its bytes, its place in the file.
    pub text_address: u64,
    /// See above.
    pub text_size: u64,
    /// See above.
    pub text_offset: u64,
    /// The writable segment: its address, and the address behind it.
    pub data_address: u64,
    /// See above.
    pub data_end: u64,
    /// The address of the slot for the entry's address: eight bytes that nobody else uses.
    pub slot: u64,
    /// What is in the slot until it is filled: what the file has there, or 0.
    pub slot_before: u64,
    /// The address of `jmp *slot(%rip)`.
    pub jump: u64,
    /// How many records there are.
    pub records: u32,
    /// How many of them are patched.
    pub patched: u32,
    /// SHA-256 of all that is before the footer.
    pub digest: [u8; 32],
    /// A bit for each page of the text, from the one that it begins in: whether it is changed.
    pub changed: [u8; CHANGED],
    /// The stubs: their addresses and bytes; 0 bytes of those that are not.
    pub stubs: [Stub; STUBS],
    /// [`checksum`] of the footer's other bytes.
    pub checksum: u64,
}
const _: () = assert!(FOOTER == 512);

/// A stub: in padding, where the library has no unwinding.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Stub {
    /// Its address.
    pub address: u32,
    /// Bytes.
    pub size: u32,
}

impl Footer {
    /// The build-id, if its size is right.
    pub fn build_id(&self) -> &[u8] {
        self.build_id.get(..self.build_id_size as usize).unwrap_or(&[])
    }

    /// The pages that the text lies in.
    pub fn text_pages(&self) -> usize {
        let end = self.text_address.saturating_add(self.text_size).div_ceil(PAGE);
        end.saturating_sub(self.text_address / PAGE) as usize
    }

    /// Whether a page of the text is changed.
    pub fn is_changed(&self, page: usize) -> bool {
        self.changed.get(page / 8).is_some_and(|bits| bits >> (page % 8) & 1 != 0)
    }

    /// Reads one. Nothing is allocated.
    pub fn read(bytes: &[u8; FOOTER]) -> Result<Self, Damaged> {
        let Ok(footer) = Self::read_from_bytes(bytes) else { return Err(Damaged::Magic) };
        if footer.magic != MAGIC {
            return Err(Damaged::Magic);
        }
        if footer.checksum != checksum(&bytes[..FOOTER - 8]) {
            return Err(Damaged::Checksum);
        }
        if footer.version != VERSION {
            return Err(Damaged::Version(footer.version));
        }
        let text_end = footer.text_address.checked_add(footer.text_size);
        let right = footer.build_id_size as usize <= BUILD_ID_MAX
            && footer.text_pages() <= CHANGED * 8
            && footer.text_offset.checked_add(footer.text_size) <= Some(footer.elf_size)
            && footer.text_offset % PAGE == footer.text_address % PAGE
            && text_end <= Some(footer.data_address)
            && (footer.text_address..text_end.unwrap_or(0)).contains(&footer.jump)
            && footer.slot.is_multiple_of(8)
            && footer.slot >= footer.data_address & !(PAGE - 1)
            && footer.slot + 8 <= footer.data_end.next_multiple_of(PAGE)
            && footer.data_end < 1 << 31;
        if right { Ok(footer) } else { Err(Damaged::Contents) }
    }
}

/// FNV-1a, 64 bits: against a torn or half-written footer.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Why a patched file is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// It ends too early.
    Short,
    /// It has no footer.
    Magic,
    /// Its footer is not what was written.
    Checksum,
    /// It has another form.
    Version(u32),
    /// Its footer contradicts itself.
    Contents,
    /// Its bytes are not what was written.
    Digest,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends too early"),
            Self::Magic => f.write_str("it has no footer of a patched file"),
            Self::Checksum => f.write_str("its footer's checksum is wrong"),
            Self::Version(version) => {
                write!(f, "its form is version {version}, this program's is {VERSION}")
            }
            Self::Contents => f.write_str("its footer contradicts itself"),
            Self::Digest => f.write_str("its bytes have another digest than its footer says"),
        }
    }
}

/// One system call of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// The address of the `syscall`.
    pub address: u32,
    /// The first address that is changed; that of the `syscall` if none is.
    pub start: u32,
    /// The address behind the last byte that is changed.
    pub end: u32,
    /// The stub's address, 0 if there is none.
    pub stub: u32,
    /// The call's number, [`COMPUTED`] if it is in a register.
    pub number: u32,
    /// [`KINDS`] of these.
    pub kind: u32,
}

/// The number of a record whose number is in a register.
pub const COMPUTED: u32 = u32::MAX;
/// The names of a record's kinds: how it is patched, or why it is not.
pub const KINDS: [&str; 8] = [
    "constant",
    "compared",
    "displaced",
    "in-place",
    "unwanted",
    "restorer",
    "thread-end",
    "red-zone",
];
const PATCHED: u32 = 4;

impl Record {
    /// Whether it is patched.
    pub fn is_patched(&self) -> bool {
        self.kind < PATCHED
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        KINDS.get(self.kind as usize).copied().unwrap_or("unknown")
    }

    fn of(done: &Done, base: u64) -> Option<Self> {
        let address = |at: usize| (base + at as u64) as u32;
        let (start, end, number, kind) = match done.found {
            Found::Site(site) => {
                let kind = match site.shape {
                    Shape::Constant => 0,
                    Shape::Compared(_) => 1,
                    Shape::Displaced => 2,
                    Shape::InPlace { .. } => 3,
                };
                (site.start, site.end, site.number, kind)
            }
            Found::Left(reason) => {
                let (number, kind) = match reason {
                    Reason::Unwanted(number) => (Some(number), 4),
                    Reason::Restorer => (Some(15), 5),
                    Reason::ThreadEnd => (Some(60), 6),
                    Reason::RedZone => (None, 7),
                };
                (done.at, done.at + 2, number, kind)
            }
            Found::Operand | Found::Unknown => return None,
        };
        let stub = if done.stub.1 == 0 { 0 } else { address(done.stub.0) };
        Some(Self {
            address: address(done.at),
            start: address(start),
            end: address(end),
            stub,
            number: number.unwrap_or(COMPUTED),
            kind,
        })
    }
}

/// Why a file cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It is not a shared object that can be.
    Unfit(Unfit),
    /// A `syscall` at this address may be wanted, and has no known shape.
    Unknown(u64),
    /// Before the `syscall` at this address stand instructions that cannot be moved.
    Bound(u64),
    /// There is not enough padding between its functions.
    Gaps,
    /// No eight bytes of its writable memory are unused.
    Slot,
    /// It makes no system call that is wanted.
    Nothing,
    /// It is a patched file already.
    Patched,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Unfit(Unfit::NotElf) => {
                f.write_str("it is not a whole ELF file of x86-64, or its headers are damaged")
            }
            Self::Unfit(Unfit::Text) => f.write_str("it has not one executable segment"),
            Self::Unfit(Unfit::Large) => f.write_str("its text has more than 2.75 MiB"),
            Self::Unfit(Unfit::Data) => f.write_str("it has no writable segment behind its text"),
            Self::Unfit(Unfit::BuildId) => f.write_str("it has no build-id"),
            Self::Unknown(address) => {
                let shape = "may be a system call of a shape that is not known";
                write!(f, "the bytes 0f 05 at {address:#x} {shape}")
            }
            Self::Bound(address) => {
                write!(f, "what stands before the system call at {address:#x} cannot be moved")
            }
            Self::Gaps => f.write_str("there is not enough padding between its functions"),
            Self::Slot => f.write_str("its writable memory has no eight bytes that are unused"),
            Self::Nothing => f.write_str("it makes no system call that is wanted"),
            Self::Patched => f.write_str("it is a patched file already"),
        }
    }
}

impl From<Unfit> for Failed {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

/// A patched file.
#[derive(Clone)]
pub struct Image {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Its footer.
    pub footer: Footer,
    /// Its system calls.
    pub records: Vec<Record>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Image").field("footer", &self.footer).finish_non_exhaustive()
    }
}

/// An ELF file's headers and how its addresses are read.
struct File<'a> {
    bytes: &'a [u8],
    header: &'a FileHeader64<LE>,
    programs: &'a [ProgramHeader],
}

impl<'a> File<'a> {
    /// Of a whole file.
    fn parse(bytes: &'a [u8]) -> Result<Self, Unfit> {
        let file = Self::begins(bytes)?;
        // All that is loaded is there: a file that ends early is found before it is patched.
        for program in file.programs.iter().filter(|program| program.p_type.get(LE) == PT_LOAD) {
            let end = program.p_offset.get(LE).checked_add(program.p_filesz.get(LE));
            if end.is_none_or(|end| end > bytes.len() as u64) {
                return Err(Unfit::NotElf);
            }
        }
        Ok(file)
    }

    /// Of a file's first bytes, with its headers.
    fn begins(bytes: &'a [u8]) -> Result<Self, Unfit> {
        use object::elf::{EM_X86_64, ET_DYN};
        let header = FileHeader64::<LE>::parse(bytes).map_err(|_| Unfit::NotElf)?;
        let programs = header.program_headers(LE, bytes).map_err(|_| Unfit::NotElf)?;
        let fits = header.e_machine.get(LE) == EM_X86_64
            && header.e_type.get(LE) == ET_DYN
            && header.is_little_endian();
        if !fits {
            return Err(Unfit::NotElf);
        }
        Ok(Self { bytes, header, programs })
    }

    fn read(&self, address: u64, size: usize) -> Option<&'a [u8]> {
        self.programs.iter().find_map(|program| {
            if program.p_type.get(LE) != PT_LOAD {
                return None;
            }
            let within = address.checked_sub(program.p_vaddr.get(LE))?;
            if within.checked_add(size as u64)? > program.p_filesz.get(LE) {
                return None;
            }
            let offset = program.p_offset.get(LE).checked_add(within)? as usize;
            self.bytes.get(offset..offset.checked_add(size)?)
        })
    }

    /// Eight unused bytes of the writable memory: between two sections, or behind the last one (not
    /// of the loader, which allocates there); or before the first one.
    fn slot(&self, parts: &Parts) -> Option<u64> {
        let sealed = self
            .programs
            .iter()
            .filter(|program| program.p_type.get(LE) == PT_GNU_RELRO)
            .map(|program| {
                program
                    .p_vaddr
                    .get(LE)
                    .saturating_add(program.p_memsz.get(LE))
                    .next_multiple_of(PAGE)
            })
            .max()
            .unwrap_or(0)
            .max(parts.data.address);
        let mut taken: Vec<Part> = self
            .header
            .sections(LE, self.bytes)
            .ok()?
            .iter()
            .filter(|section| {
                let flags = section.sh_flags(LE);
                let thread = flags & u64::from(SHF_TLS) != 0 && section.sh_type(LE) == SHT_NOBITS;
                flags & u64::from(SHF_ALLOC) != 0 && flags & u64::from(SHF_WRITE) != 0 && !thread
            })
            .map(|section| Part { address: section.sh_addr(LE), size: section.sh_size(LE) })
            .collect();
        taken.sort_by_key(|part| part.address);
        let mut gaps = taken.windows(2).filter_map(|pair| {
            let start = pair[0].end().max(sealed).next_multiple_of(8);
            (start + 8 <= pair[1].address && start >= pair[0].end()).then_some(start)
        });
        let tail = parts.data.end().next_multiple_of(8);
        let free = tail + 8 <= parts.data.end().next_multiple_of(PAGE);
        // Before the first section, which relocation seals, in the page that the segment begins in.
        let head = parts.data.address & !(PAGE - 1);
        let sealed_gap =
            (head + 8 <= parts.data.address && head >= parts.text.end()).then_some(head);
        gaps.next().or_else(|| (free && !self.is_loader()).then_some(tail)).or(sealed_gap)
    }

    /// Eight bytes in the pages of the writable segment as they are when it has been loaded: the
    /// file's, zeros from the end of what it has to the end of what is asked for, and in whole
    /// pages.
    fn in_memory(&self, parts: &Parts, address: u64) -> Option<u64> {
        let data = self.programs.iter().find(|program| {
            program.p_type.get(LE) == PT_LOAD && program.p_vaddr.get(LE) == parts.data.address
        })?;
        let (size, memory) = (data.p_filesz.get(LE), data.p_memsz.get(LE));
        let file_end = parts.data.address + size;
        let zeroed = file_end..parts.data.address + memory;
        if zeroed.contains(&address)
            || (memory > size && address >= file_end.next_multiple_of(PAGE))
        {
            return Some(0);
        }
        let distance = address.wrapping_sub(parts.data.address);
        let offset = data.p_offset.get(LE).checked_add_signed(distance as i64)?;
        let bytes = self.bytes.get(offset as usize..)?;
        Some(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Whether it is ld.so: a library that needs no other one, and no loader.
    fn is_loader(&self) -> bool {
        let name = b"ld-linux-x86-64.so.2\0";
        let interpreter = object::elf::PT_INTERP;
        !self.programs.iter().any(|program| program.p_type.get(LE) == interpreter)
            && memchr::memmem::find(self.bytes, name).is_some()
    }
}

impl Image {
    /// Patches a file.
    pub fn make(file: &[u8], wanted: &dyn Fn(u32) -> bool) -> Result<Self, Failed> {
        if Self::read(file).is_ok() {
            return Err(Failed::Patched);
        }
        let elf = File::parse(file)?;
        let parts = Parts::of(elf.programs)?;
        let id = build_id(elf.programs, |address, size| elf.read(address, size))?;
        let slot = elf.slot(&parts).ok_or(Failed::Slot)?;
        let slot_before = elf.in_memory(&parts, slot).ok_or(Failed::Slot)?;
        let (text, text_size) = (parts.text_offset as usize, parts.text.size as usize);
        let original = file.get(text..text + text_size).ok_or(Unfit::NotElf)?;
        let address = parts.text.address;
        let read = |address, size| elf.read(address, size);
        let mut gaps = Gaps::find(original, address, Between::new(&parts, &read));
        let mut bytes = file.to_vec();
        let mut records = Vec::new();
        let added = patch(
            &mut Text::Change(&mut bytes[text..text + text_size]),
            address,
            &mut gaps,
            slot,
            wanted,
            &mut sites::next,
            &mut |done| records.extend(Record::of(&done, address)),
        )
        .map_err(|refused| match refused {
            Refused::Unknown(at) => Failed::Unknown(address + at as u64),
            Refused::Bound(at) => Failed::Bound(address + at as u64),
            Refused::Gaps => Failed::Gaps,
            Refused::Far => Failed::Unfit(Unfit::NotElf),
            Refused::Nothing => Failed::Nothing,
        })?;
        let mut footer = Footer {
            magic: MAGIC,
            version: VERSION,
            build_id_size: id.len() as u32,
            build_id: [0; BUILD_ID_MAX],
            elf_size: file.len() as u64,
            text_address: address,
            text_size: parts.text.size,
            text_offset: parts.text_offset,
            data_address: parts.data.address,
            data_end: parts.data.end(),
            slot,
            slot_before,
            jump: address + added.jump as u64,
            records: records.len() as u32,
            patched: records.iter().filter(|record| record.is_patched()).count() as u32,
            digest: [0; 32],
            stubs: added.stubs.map(|(start, size)| Stub {
                address: if size == 0 { 0 } else { address as u32 + start },
                size,
            }),
            changed: changed_pages(&parts, original, &bytes[text..text + text_size])?,
            checksum: 0,
        };
        footer.build_id[..id.len()].copy_from_slice(id);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend_from_slice(records.as_bytes());
        footer.digest.copy_from_slice(digest(&SHA256, &bytes).as_ref());
        footer.checksum = checksum(&footer.as_bytes()[..FOOTER - 8]);
        bytes.extend_from_slice(footer.as_bytes());
        Ok(Self { bytes, footer, records })
    }

    /// Reads one whole, with its digest.
    pub fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        let (before, last) = bytes.split_last_chunk::<FOOTER>().ok_or(Damaged::Short)?;
        let footer = Footer::read(last)?;
        if digest(&SHA256, before).as_ref() != footer.digest {
            return Err(Damaged::Digest);
        }
        let elf_end = footer.elf_size.checked_next_multiple_of(8).ok_or(Damaged::Contents)?;
        let records = before.get(elf_end as usize..).ok_or(Damaged::Contents)?;
        let records = <[Record]>::ref_from_bytes_with_elems(records, footer.records as usize)
            .map_err(|_| Damaged::Contents)?
            .to_vec();
        Ok(Self { bytes: bytes.to_vec(), footer, records })
    }

    /// How many system calls of each kind there are.
    pub fn counts(&self) -> [usize; KINDS.len()] {
        let mut counts = [0; KINDS.len()];
        for record in &self.records {
            if let Some(count) = counts.get_mut(record.kind as usize) {
                *count += 1;
            }
        }
        counts
    }
}

/// Which pages of a text differ.
fn changed_pages(parts: &Parts, before: &[u8], after: &[u8]) -> Result<[u8; CHANGED], Failed> {
    let mut changed = [0; CHANGED];
    let first = parts.text.address % PAGE;
    for (at, _) in before.iter().zip(after).enumerate().filter(|(_, (old, new))| old != new) {
        let page = (first as usize + at) / PAGE as usize;
        *changed.get_mut(page / 8).ok_or(Unfit::Large)? |= 1 << (page % 8);
    }
    Ok(changed)
}

/// The build-id of a shared object's bytes; the first ones, with its notes, will do.
pub fn build_id_of(file: &[u8]) -> Result<Vec<u8>, Failed> {
    let elf = File::begins(file)?;
    Ok(build_id(elf.programs, |address, size| elf.read(address, size))?.to_vec())
}
