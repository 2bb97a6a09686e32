//! Changes the sites of a text, in a file's bytes or in memory. The text is only looked at first:
//! whether everything that is wanted can be patched is known before a byte is changed. Nothing here
//! allocates, enters the C library or panics.

use crate::elf::Between;
use crate::instructions::{Stack, decode, padding};
use crate::sites::{self, Comparison, Found, Shape, Site};

/// Behind a call: the number is in eax.
pub const IN_EAX: [u8; 2] = [0x66, 0x90];
/// Behind a call: the number is in eax, the flags are those of [`Comparison::Narrow001`].
pub const NARROW_001: [u8; 2] = [0x89, 0xc9];
/// The same of [`Comparison::Narrow000`].
pub const NARROW_000: [u8; 2] = [0x8b, 0xc9];
/// The same of [`Comparison::Wide001`].
pub const WIDE_001: [u8; 3] = [0x0f, 0x1f, 0x00];
/// The same of [`Comparison::Wide000`].
pub const WIDE_000: [u8; 3] = [0x0f, 0x1f, 0x01];
/// `mov $nr,%cl`: the number is nr.
pub const LOW: u8 = 0xb1;
/// `mov $nr,%ch`: the number is 256 + nr.
pub const HIGH: u8 = 0xb5;

const CALL: u8 = 0xe8;
const RETURN: u8 = 0xc3;
const NOP: u8 = 0x90;
const CALL_LENGTH: usize = 5;
/// `jmp *slot(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];
const JUMP_LENGTH: usize = 6;
/// The bytes of the longest stub: nine that are displaced, and the jump.
const STUB_MAX: usize = 24;

/// Why a text is refused. Positions are bytes from the start of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What may be a `syscall` has a shape that is not known.
    Unknown(usize),
    /// The instructions before a `syscall` cannot be done elsewhere.
    Bound(usize),
    /// There are not enough gaps between functions for the stubs.
    Gaps,
    /// A distance that has more than 31 bits.
    Far,
    /// No system call is made here.
    Nothing,
}

/// How many gaps are remembered.
const GAPS: usize = 192;

/// Padding between functions: start, as bytes from the start of the text, and length.
#[derive(Clone, Copy)]
pub struct Gaps {
    gaps: [(u32, u32); GAPS],
    count: usize,
}

impl Gaps {
    /// The gaps of a text that starts at `address` that are padding throughout.
    pub fn find(text: &[u8], address: u64, between: Between) -> Self {
        let mut found = Self { gaps: [(0, 0); GAPS], count: 0 };
        for part in between {
            if found.count == GAPS {
                break;
            }
            let Some(start) = part.address.checked_sub(address) else { continue };
            let Some(bytes) = text.get(start as usize..(start + part.size) as usize) else {
                continue;
            };
            // What is long may be data: padding ends at the next multiple of 64.
            if bytes.len() >= JUMP_LENGTH && bytes.len() < 64 && is_padding(bytes) {
                found.gaps[found.count] = (start as u32, bytes.len() as u32);
                found.count += 1;
            }
        }
        found
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes the shortest gap that has so many bytes, from a multiple of `align` on.
    pub fn take(&mut self, bytes: usize, address: u64, align: u64) -> Option<usize> {
        let mut best: Option<(usize, u32, u32)> = None;
        for (index, &(start, length)) in self.gaps[..self.count].iter().enumerate() {
            let skipped = ((address + u64::from(start)).wrapping_neg() % align) as u32;
            if skipped + bytes as u32 <= length && best.is_none_or(|(_, _, least)| length < least) {
                best = Some((index, start + skipped, length));
            }
        }
        let (index, start, _) = best?;
        self.count -= 1;
        self.gaps[index] = self.gaps[self.count];
        Some(start as usize)
    }
}

fn is_padding(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match padding(bytes) {
            0 => return false,
            length => bytes = &bytes[length..],
        }
    }
    true
}

/// A text: to be looked at, or to be changed.
pub enum Text<'a> {
    /// Only what would be done is found.
    Look(&'a [u8]),
    /// It is changed.
    Change(&'a mut [u8]),
}

impl Text<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Look(bytes) => bytes,
            Self::Change(bytes) => bytes,
        }
    }

    fn write(&mut self, at: usize, new: &[u8]) -> Result<(), Refused> {
        match self {
            Self::Look(bytes) => bytes.get(at..at + new.len()).map(|_| ()),
            Self::Change(bytes) => {
                bytes.get_mut(at..at + new.len()).map(|old| old.copy_from_slice(new))
            }
        }
        .ok_or(Refused::Far)
    }
}

/// How many stubs a text may have.
pub const STUBS: usize = 32;

/// What was put into padding, where the library has no unwinding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// `jmp *slot(%rip)`, the one jump to the entry: bytes from the start of the text.
    pub jump: usize,
    /// The stubs: start, bytes from the start of the text, and bytes; 0 bytes of those that are
    /// not.
    pub stubs: [(u32, u32); STUBS],
}

/// Where the one jump to the entry stands, and what it goes by.
struct Common {
    jump: usize,
    slot: u64,
}

/// What was done at one `0f 05`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Where it stands: bytes from the start of the text.
    pub at: usize,
    /// What it is.
    pub found: Found,
    /// The stub that was made for it: start and bytes; none of 0 bytes.
    pub stub: (usize, usize),
}

/// Where each `0f 05` stands that a text was found to have: it is searched once.
pub struct Places {
    at: [u32; PLACES],
    /// How many were noted: more than there is room for if the text has more.
    noted: usize,
    told: usize,
}

/// How many are remembered: glibc 2.36 has 529.
const PLACES: usize = 1024;

impl Default for Places {
    /// None yet.
    fn default() -> Self {
        Self { at: [0; PLACES], noted: 0, told: 0 }
    }
}

impl Places {
    /// The next one, in the order of the text.
    pub fn note(&mut self, at: usize) {
        if let Some(place) = self.at.get_mut(self.noted) {
            *place = at as u32;
        }
        self.noted += 1;
    }

    /// The first that was noted at or behind `from`, as [`sites::next`]; behind the last for which
    /// there was room the text is searched.
    pub fn next(&mut self, text: &[u8], from: usize) -> Option<usize> {
        while let Some(at) = self.at[..self.noted.min(PLACES)].get(self.told) {
            self.told += 1;
            if *at as usize >= from {
                return Some(*at as usize);
            }
        }
        if self.noted > PLACES { sites::next(text, from) } else { None }
    }
}

/// Patches a text that starts at `address`; `slot` is the address of eight bytes for the entry's.
/// `next` finds each `0f 05` at or behind a place ([`sites::next`], or [`Places::next`]), and
/// `visit` is told of it. The text is refused, and may have been changed in part, where something
/// wanted cannot be patched: so look first.
pub fn patch(
    text: &mut Text,
    address: u64,
    gaps: &mut Gaps,
    slot: u64,
    wanted: &dyn Fn(u32) -> bool,
    next: &mut dyn FnMut(&[u8], usize) -> Option<usize>,
    visit: &mut dyn FnMut(Done),
) -> Result<Added, Refused> {
    let jump = gaps.take(JUMP_LENGTH, address, 1).ok_or(Refused::Gaps)?;
    let common = Common { jump, slot };
    let mut added = Added { jump, ..Added::default() };
    let mut stubs = added.stubs.iter_mut();
    text.write(jump, &indirect(address, jump, slot)?)?;
    let mut behind = 0;
    let mut at = 0;
    let mut sites = 0;
    while let Some(here) = next(text.bytes(), at) {
        let found = sites::look(text.bytes(), behind, here, wanted);
        at = here + 2;
        let mut stub = (0, 0);
        match found {
            Found::Unknown => return Err(Refused::Unknown(here)),
            Found::Site(site) => {
                stub = change(text, address, gaps, &common, &site)?;
                if stub.1 != 0 {
                    *stubs.next().ok_or(Refused::Gaps)? = (stub.0 as u32, stub.1 as u32);
                }
                behind = site.end;
                at = site.end;
                sites += 1;
            }
            Found::Left(_) => behind = at,
            Found::Operand => {}
        }
        visit(Done { at: here, found, stub });
    }
    if sites == 0 { Err(Refused::Nothing) } else { Ok(added) }
}

/// `jmp *slot(%rip)` at a place of the text.
fn indirect(address: u64, at: usize, slot: u64) -> Result<[u8; JUMP_LENGTH], Refused> {
    let from = address + (at + JUMP_LENGTH) as u64;
    let [a, b, c, d] = distance(from as i64, slot as i64)?;
    Ok([JUMP[0], JUMP[1], a, b, c, d])
}

fn call(from: usize, to: usize) -> Result<[u8; CALL_LENGTH], Refused> {
    let [a, b, c, d] = distance((from + CALL_LENGTH) as i64, to as i64)?;
    Ok([CALL, a, b, c, d])
}

fn distance(from: i64, to: i64) -> Result<[u8; 4], Refused> {
    i32::try_from(to - from).map(i32::to_le_bytes).map_err(|_| Refused::Far)
}

/// Bytes that are put together before they are written.
struct Bytes<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Bytes<N> {
    fn new() -> Self {
        Self { bytes: [NOP; N], length: 0 }
    }

    fn push(&mut self, new: &[u8]) -> Result<(), Refused> {
        let end = self.length + new.len();
        self.bytes.get_mut(self.length..end).ok_or(Refused::Far)?.copy_from_slice(new);
        self.length = end;
        Ok(())
    }
}

/// Changes one site, and gives its stub.
fn change(
    text: &mut Text,
    address: u64,
    gaps: &mut Gaps,
    common: &Common,
    site: &Site,
) -> Result<(usize, usize), Refused> {
    const WINDOW_MAX: usize = 264;
    let mut window = Bytes::<WINDOW_MAX>::new();
    let mut stub = (0, 0);
    let number =
        site.number.map_or([0; 2], |number| [if number < 256 { LOW } else { HIGH }, number as u8]);
    match site.shape {
        Shape::Constant => {
            let moved = text.bytes().get(site.start + 5..site.syscall).ok_or(Refused::Far)?;
            push_moved(&mut window, moved, site.syscall)?;
            window.push(&call(site.start + window.length, common.jump)?)?;
            window.push(&number)?;
        }
        Shape::Compared(comparison) => {
            window.push(&call(site.start, common.jump)?)?;
            window.push(match comparison {
                Comparison::Wide001 => &WIDE_001,
                Comparison::Wide000 => &WIDE_000,
                Comparison::Narrow001 => &NARROW_001,
                Comparison::Narrow000 => &NARROW_000,
            })?;
        }
        Shape::Displaced => {
            let displaced = text.bytes().get(site.start..site.syscall).ok_or(Refused::Far)?;
            let whole = site.end - site.start >= CALL_LENGTH + 2;
            let body = displaced_body(displaced, site.syscall)?;
            stub = make_stub(text, address, gaps, common, &body, whole)?;
            window.push(&call(site.start, stub.0)?)?;
            if whole {
                window.push(&IN_EAX)?;
            }
            // Nops fill the rest.
            window.length = site.end - site.start;
        }
        Shape::InPlace { moved } => {
            let from = site.syscall - moved;
            let lead = text.bytes().get(site.start..from).ok_or(Refused::Far)?;
            let body = displaced_body(lead, site.syscall)?;
            let moved = text.bytes().get(from..site.syscall).ok_or(Refused::Far)?;
            push_moved(&mut window, moved, site.syscall)?;
            stub = make_stub(text, address, gaps, common, &body, true)?;
            window.push(&call(site.start + window.length, stub.0)?)?;
            window.push(&sites::SYSCALL)?;
        }
    }
    if window.length != site.end - site.start {
        return Err(Refused::Bound(site.syscall));
    }
    text.write(site.start, &window.bytes[..window.length])?;
    Ok(stub)
}

/// X, five bytes further down than it stood.
fn push_moved<const N: usize>(
    window: &mut Bytes<N>,
    mut moved: &[u8],
    syscall: usize,
) -> Result<(), Refused> {
    while !moved.is_empty() {
        let one = decode(moved).ok_or(Refused::Bound(syscall))?;
        let start = window.length;
        window.push(&moved[..one.length])?;
        if let Some(at) = one.relative {
            let field = window.bytes.get_mut(start + at..start + at + 4).ok_or(Refused::Far)?;
            let old = i32::from_le_bytes([field[0], field[1], field[2], field[3]]);
            let new = old.checked_add(CALL_LENGTH as i32).ok_or(Refused::Far)?;
            field.copy_from_slice(&new.to_le_bytes());
        }
        moved = &moved[one.length..];
    }
    Ok(())
}

/// X as it is in a stub, which is called: rsp is eight bytes lower.
fn displaced_body(mut displaced: &[u8], syscall: usize) -> Result<Bytes<STUB_MAX>, Refused> {
    let mut body = Bytes::new();
    while !displaced.is_empty() {
        let one = decode(displaced).ok_or(Refused::Bound(syscall))?;
        let start = body.length;
        body.push(&displaced[..one.length])?;
        match one.stack {
            _ if one.relative.is_some() => return Err(Refused::Bound(syscall)),
            None => {}
            Some(Stack::At(at)) if displaced[at] < 0x70 => body.bytes[start + at] += 8,
            Some(_) => return Err(Refused::Bound(syscall)),
        }
        displaced = &displaced[one.length..];
    }
    Ok(body)
}

/// Puts a stub into a gap: the body, then a jump to the entry; or, if its caller has no bytes
/// behind its call, a call of its own and a return.
fn make_stub(
    text: &mut Text,
    address: u64,
    gaps: &mut Gaps,
    common: &Common,
    body: &Bytes<STUB_MAX>,
    jumps: bool,
) -> Result<(usize, usize), Refused> {
    let tail = if jumps { JUMP_LENGTH } else { CALL_LENGTH + IN_EAX.len() + 1 };
    let length = body.length + tail;
    let start = gaps.take(length, address, 1).ok_or(Refused::Gaps)?;
    let mut stub = Bytes::<STUB_MAX>::new();
    stub.push(&body.bytes[..body.length])?;
    if jumps {
        stub.push(&indirect(address, start + body.length, common.slot)?)?;
    } else {
        stub.push(&call(start + body.length, common.jump)?)?;
        stub.push(&IN_EAX)?;
        stub.push(&[RETURN])?;
    }
    text.write(start, &stub.bytes[..stub.length])?;
    Ok((start, stub.length))
}

#[cfg(test)]
mod tests {
    use super::{PLACES, Places, sites};

    #[test]
    fn places_are_those_of_a_search_also_where_there_is_no_room_for_all() {
        let text = [0x90, 0x0f, 0x05].repeat(PLACES + 3);
        let mut places = Places::default();
        let mut searched = Vec::new();
        while let Some(at) = sites::next(&text, searched.last().map_or(0, |last| last + 2)) {
            places.note(at);
            searched.push(at);
        }
        let mut told = Vec::new();
        while let Some(at) = places.next(&text, told.last().map_or(0, |last| last + 2)) {
            told.push(at);
        }
        assert_eq!((told.len(), told), (PLACES + 3, searched));
        let mut places = Places::default();
        for at in [1, 4, 7] {
            places.note(at);
        }
        assert_eq!(places.next(&text, 2), Some(4));
        assert_eq!((places.next(&text, 6), places.next(&text, 9)), (Some(7), None));
    }
}
