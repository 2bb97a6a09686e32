//! Extended attributes: one metadata block a node, replaced as a whole. (One is a bit of the
//! identity: `alignment.rs`.)
//!
//! The inode's word names a block {header, packed entries {name length u8, value length u16, name,
//! value}}. A change builds a new block aside and swaps the word in a transaction with the change
//! time; the old block is freed after it. Readers check the block's checksum.

use crate::Result;
use crate::data::map::XATTR_POSITION;
use crate::inject::{Bug, injected};
use crate::inode::{Inode, LIVE_PRIVILEGED};
use crate::medium::layout::{
    BLOCK, FLAG_ALIGNED, Identity, XATTR_MAGIC, XATTR_WORD, XattrHeader, checksum,
};
use crate::medium::map_word::{Key, Word};
use crate::namespace::Names;
use crate::namespace::alignment;
use crate::txn::locked_inodes::Held;
use crate::txn::locked_inodes::Store;
use crate::txn::op::Op;
use rustix::io::Errno;
use vfs::{FILE_CAPABILITIES, Kind, Node};
use zerocopy::{FromBytes, IntoBytes};

const HEADER: usize = size_of::<XattrHeader>();
/// Bytes of entries that fit.
const ROOM: usize = BLOCK as usize - HEADER;
/// Bytes of an entry before its name.
const ENTRY_HEAD: usize = 3;
/// Longest name and value, as on Linux.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65536;

/// One attribute.
struct Attribute<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

/// Splits packed entries; an entry that does not fit its place is `EIO`.
fn attributes(mut packed: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>>> {
    std::iter::from_fn(move || {
        if packed.is_empty() {
            return None;
        }
        let split = || -> Option<(Attribute<'_>, &[u8])> {
            let (head, rest) = packed.split_at_checked(ENTRY_HEAD)?;
            let (name, rest) = rest.split_at_checked(usize::from(head[0]))?;
            let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
            let (value, rest) = rest.split_at_checked(length)?;
            Some((Attribute { name, value }, rest))
        };
        let found = split();
        packed = found.as_ref().map_or(&[][..], |&(_, rest)| rest);
        Some(found.map(|(attribute, _)| attribute).ok_or(Errno::IO))
    })
}

fn push(packed: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    packed.push(name.len() as u8);
    packed.extend_from_slice(&(value.len() as u16).to_le_bytes());
    packed.extend_from_slice(name);
    packed.extend_from_slice(value);
}

/// Checks a name, and whether nodes of that kind may carry it.
fn check_name(name: &[u8], kind: Option<Kind>) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE);
    }
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if !prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len()) {
        return Err(Errno::OPNOTSUPP);
    }
    if name.starts_with(b"user.") && !matches!(kind, Some(Kind::File | Kind::Directory)) {
        return Err(Errno::PERM);
    }
    Ok(())
}

impl Names {
    /// The block of an inode's attributes, if it has any.
    pub(crate) fn xattr_block(&self, inode: Inode, identity: &Identity) -> Result<Option<u64>> {
        let stored = self.region.load64(inode.at(XATTR_WORD))?;
        let word = self.open_word(stored, word_key(inode, identity))?;
        Ok(word.map(|word| word.block))
    }

    /// An inode's packed attributes, checked.
    pub(crate) fn packed_xattrs(&self, inode: Inode, identity: &Identity) -> Result<Vec<u8>> {
        let Some(block) = self.xattr_block(inode, identity)? else { return Ok(Vec::new()) };
        let mut bytes = [0; BLOCK as usize];
        self.region.read(block * BLOCK, &mut bytes)?;
        let (head, rest) = bytes.split_at(HEADER);
        let head = XattrHeader::read_from_bytes(head).map_err(|_| Errno::IO)?;
        let packed = rest.get(..head.length as usize).ok_or(Errno::IO)?;
        if head == header(inode, identity, packed) { Ok(packed.to_vec()) } else { Err(Errno::IO) }
    }

    /// Reads an attribute.
    pub(crate) fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.read_steadily(node, |inode, identity| {
            match check_name(name, identity.kind()) {
                Err(Errno::PERM) => return Err(Errno::NODATA),
                checked => checked?,
            }
            if name == alignment::NAME {
                let aligned = identity.flags & FLAG_ALIGNED != 0;
                return if aligned { deliver(alignment::VALUE, out) } else { Err(Errno::NODATA) };
            }
            let packed = self.packed_xattrs(inode, identity)?;
            for attribute in attributes(&packed) {
                let attribute = attribute?;
                if attribute.name == name {
                    return deliver(attribute.value, out);
                }
            }
            Err(Errno::NODATA)
        })
    }

    /// The names, each with a NUL behind it.
    pub(crate) fn list_xattr(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        self.read_steadily(node, |inode, identity| {
            let packed = self.packed_xattrs(inode, identity)?;
            let mut names = Vec::new();
            if identity.flags & FLAG_ALIGNED != 0 {
                names.extend_from_slice(alignment::NAME);
                names.push(0);
            }
            for attribute in attributes(&packed) {
                names.extend_from_slice(attribute?.name);
                names.push(0);
            }
            deliver(&names, out)
        })
    }

    /// Sets an attribute.
    pub(crate) fn set_xattr(
        &self,
        node: Node,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        const CREATE: u32 = libc::XATTR_CREATE as u32;
        const REPLACE: u32 = libc::XATTR_REPLACE as u32;
        if flags & !(CREATE | REPLACE) != 0 {
            return Err(Errno::INVAL);
        }
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        let allowed = |found| match (found, flags) {
            (true, flags) if flags & CREATE != 0 => Err(Errno::EXIST),
            (false, flags) if flags & REPLACE != 0 => Err(Errno::NODATA),
            _ => Ok(()),
        };
        if name == alignment::NAME {
            alignment::check_value(value)?;
            return self.change_alignment(node, |found| allowed(found).map(|()| true));
        }
        self.change_xattrs(node, name, |found| allowed(found).map(|()| Some(value)))
    }

    /// Removes an attribute.
    pub(crate) fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        if name == alignment::NAME {
            let gone = |found| if found { Ok(false) } else { Err(Errno::NODATA) };
            return self.change_alignment(node, gone);
        }
        self.change_xattrs(node, name, |found| if found { Ok(None) } else { Err(Errno::NODATA) })
    }

    /// Gives an attribute the value that `decide` says, told whether it exists: `None` removes it.
    fn change_xattrs<'a>(
        &self,
        node: Node,
        name: &[u8],
        decide: impl FnOnce(bool) -> Result<Option<&'a [u8]>>,
    ) -> Result<()> {
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        check_name(name, held.identity.kind())?;
        let old = self.packed_xattrs(held.inode, &held.identity)?;
        let mut packed = Vec::with_capacity(old.len());
        let mut found = false;
        for attribute in attributes(&old) {
            let attribute = attribute?;
            if attribute.name == name {
                found = true;
            } else {
                push(&mut packed, attribute.name, attribute.value);
            }
        }
        if let Some(value) = decide(found)? {
            if packed.len() + ENTRY_HEAD + name.len() + value.len() > ROOM {
                return Err(Errno::NOSPC);
            }
            push(&mut packed, name, value);
        }
        if name == FILE_CAPABILITIES {
            held.current.flags |= LIVE_PRIVILEGED;
        }
        op.work()?;
        self.replace_xattrs(&mut op, &mut held, &packed)?;
        op.end()
    }

    /// Whether a file has capabilities.
    pub(crate) fn has_capabilities(&self, held: &Held) -> bool {
        let packed = self.packed_xattrs(held.inode, &held.identity).unwrap_or_default();
        attributes(&packed).flatten().any(|found| found.name == FILE_CAPABILITIES)
    }
}

fn word_key(inode: Inode, identity: &Identity) -> Key {
    Key { ino: inode.0, generation: identity.generation, position: XATTR_POSITION }
}

fn header(inode: Inode, identity: &Identity, packed: &[u8]) -> XattrHeader {
    let mut header = XattrHeader {
        magic: XATTR_MAGIC,
        crc: 0,
        owner: inode.0,
        owner_generation: identity.generation,
        length: packed.len() as u32,
    };
    header.crc = crc32c::crc32c_append(checksum(0, header.as_bytes()), packed);
    header
}

/// Copies an answer out: `ERANGE` if there is room for some of it only; without room, only its
/// length.
fn deliver(answer: &[u8], out: &mut [u8]) -> Result<usize> {
    if !out.is_empty() {
        out.get_mut(..answer.len()).ok_or(Errno::RANGE)?.copy_from_slice(answer);
    }
    Ok(answer.len())
}

impl Names {
    /// Replaces all attributes of a locked inode.
    fn replace_xattrs<'v>(&'v self, op: &mut Op<'v>, held: &mut Held, packed: &[u8]) -> Result<()> {
        if let Some(block) = self.xattr_block(held.inode, &held.identity)? {
            op.free_later(block, 1);
        }
        let mut value = 0;
        let mut late = None;
        if !packed.is_empty() {
            let block = self.metadata_block(op)?;
            let mut image = header(held.inode, &held.identity, packed).as_bytes().to_vec();
            image.extend_from_slice(packed);
            if injected(Bug::AttributesAfterWord) {
                late = Some((block, image));
            } else {
                let stored = self.region.stream(block * BLOCK, &image)?;
                op.pend(stored);
            }
            let word = Word { block, kind: 0, unwritten: false };
            value = word.sealed(word_key(held.inode, &held.identity));
        }
        held.touch();
        let store = Store { at: held.inode.at(XATTR_WORD), value };
        self.commit_held(op, &[held], &[store], &[])?;
        if let Some((block, image)) = late {
            let stored = self.region.stream(block * BLOCK, &image)?;
            op.pend(stored);
        }
        Ok(())
    }
}
