//! Directory buckets: 4 KiB that hold up to 56 slots of entries.
//!
//! ```text
//! line 0: occupancy word | magic, crc | owner       lines 1..8: 56 hash words      then 56 slots
//! ```
//!
//! An entry takes one slot, or up to five consecutive ones for a long name; the hash word of its
//! first slot is its key, those of its further slots are the checked 0. **Only the occupancy word
//! says what exists**: adding or dropping entries is one store of it, and whatever lies in slots
//! that it does not name is meaningless.
//!
//! A bucket is found under a [`Cell`], a range of keys. Entries outside that range are dead
//! leftovers of a split that a crash kept from clearing them.
//!
//! Persistence order: slots and hash words first, a fence, then the occupancy word. So a slot may
//! only be written when the *durable* occupancy word does not name it ([`clear_dead`]).
//!
//! Locks: the directory's inode lock for every change; readers run under its sequence number.

use crate::Result;
use crate::cache::Padded;
use crate::cache::Target;
use crate::inode::Inode;
use crate::medium::dirhash::{EXTRA_BITS, EXTRAS, KEY_BITS, KEY_MASK, checked, unchecked};
use crate::medium::layout::{
    BLOCK, BUCKET_HASHES, BUCKET_MAGIC, BUCKET_OCCUPANCY, BUCKET_SLOT, BUCKET_SLOTS, BucketHeader,
    Identity, LINE, NAME_MAX, SLOT, SLOT_NAME, Slot, checksum,
};
use crate::medium::map_word::{Key, Word};
use crate::medium::subword::padded;
use crate::namespace::Names;
use crate::txn::op::Op;
use pmem::{InFlight, checksum_words};
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Kind, Node};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes before the name in an entry.
const ENTRY_HEAD: usize = SLOT as usize - SLOT_NAME;
/// Slots of the longest name.
const ENTRY_SLOTS_MAX: usize = slots_of(NAME_MAX);
/// Bytes of the longest entry.
const ENTRY_MAX: usize = ENTRY_SLOTS_MAX * SLOT as usize;
/// Bytes of header and hash words.
const HEAD: usize = BUCKET_SLOT as usize;
/// Words of a line.
const LINE_WORDS: usize = LINE as usize / 8;
/// All slots of an occupancy word.
const ALL_SLOTS: u64 = (1 << BUCKET_SLOTS) - 1;

/// Slots that an entry with a name of `length` bytes takes.
pub(crate) const fn slots_of(length: usize) -> usize {
    (ENTRY_HEAD + length).div_ceil(SLOT as usize)
}

/// A directory, as its buckets and nodes know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dir {
    pub(crate) inode: Inode,
    pub(crate) generation: u32,
}

impl Dir {
    /// An inode as a directory: `ENOTDIR`.
    pub(crate) fn of(inode: Inode, identity: &Identity) -> Result<Self> {
        match identity.kind() {
            Some(Kind::Directory) => Ok(Self { inode, generation: identity.generation }),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn node(self) -> Node {
        Node { ino: self.inode.0, generation: self.generation }
    }

    /// The check key of the directory's word that covers `cell`.
    pub(crate) fn key(self, cell: Cell) -> Key {
        let position = cell.lo << 8 | u64::from(cell.depth);
        Key { ino: self.inode.0, generation: self.generation, position }
    }

    /// The word that covers `cell` and names this block.
    pub(crate) fn seal(self, cell: Cell, block: u64, kind: u8) -> u64 {
        Word { block, kind, unwritten: false }.sealed(self.key(cell))
    }
}

/// A range of keys: those that share their upper `depth` bits with `lo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) lo: u64,
    pub(crate) depth: u32,
}

impl Cell {
    /// The cell of `depth` bits that holds `key`.
    pub(crate) fn of(key: u64, depth: u32) -> Self {
        let below = KEY_BITS - depth;
        Self { lo: key >> below << below, depth }
    }

    pub(crate) fn holds(self, key: u64) -> bool {
        Self::of(key, self.depth).lo == self.lo
    }

    /// The last key.
    pub(crate) fn last(self) -> u64 {
        self.lo | ((1 << (KEY_BITS - self.depth)) - 1)
    }

    /// The first key behind the cell, if there is one.
    pub(crate) fn next(self) -> Option<u64> {
        let next = self.last() + 1;
        (next >> KEY_BITS == 0).then_some(next)
    }

    /// The lower and the upper half.
    pub(crate) fn halves(self) -> [Self; 2] {
        let depth = self.depth + 1;
        let upper = self.lo | 1 << (KEY_BITS - depth);
        [Self { lo: self.lo, depth }, Self { lo: upper, depth }]
    }
}

/// An entry by value, checked.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) slot: usize,
    pub(crate) key: u64,
    pub(crate) target: Target,
    length: usize,
    bytes: [u8; ENTRY_MAX],
}

impl Entry {
    /// An entry to be stored.
    pub(crate) fn new(key: u64, name: &[u8], target: Target) -> Self {
        let mut entry = Self { slot: 0, key, target, length: name.len(), bytes: [0; ENTRY_MAX] };
        entry.bytes[ENTRY_HEAD..ENTRY_HEAD + name.len()].copy_from_slice(name);
        entry.seal();
        entry
    }

    /// The entry with another target: the bytes of its first slot, for a change in place.
    pub(crate) fn retargeted(mut self, target: Target) -> [u8; SLOT as usize] {
        self.target = target;
        self.seal();
        let mut slot = [0; SLOT as usize];
        slot.copy_from_slice(&self.bytes[..SLOT as usize]);
        slot
    }

    fn seal(&mut self) {
        let mut slot = Slot {
            crc: 0,
            name_length: self.length as u8,
            slots: self.slots() as u8,
            kind: self.target.kind.d_type(),
            reserved: 0,
            ino: self.target.node.ino,
            generation: self.target.node.generation,
            name: [0; SLOT_NAME],
        };
        slot.name.copy_from_slice(&self.bytes[ENTRY_HEAD..SLOT as usize]);
        self.bytes[..SLOT as usize].copy_from_slice(slot.as_bytes());
        slot.crc = checksum(checked(self.key), &self.bytes[..self.used()]);
        self.bytes[..SLOT as usize].copy_from_slice(slot.as_bytes());
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes[ENTRY_HEAD..ENTRY_HEAD + self.length]
    }

    pub(crate) fn slots(&self) -> usize {
        slots_of(self.length)
    }

    /// The occupancy bits of its slots.
    pub(crate) fn mask(&self) -> u64 {
        mask(self.slot, self.slots())
    }

    /// Bytes that its checksum covers.
    fn used(&self) -> usize {
        (ENTRY_HEAD + self.length).max(SLOT as usize)
    }
}

/// Entries of a bucket as a directory tells them, checked: the names stand one behind the other.
#[derive(Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<Listed>,
}

struct Listed {
    key: u64,
    target: Target,
    /// Where its name ends.
    end: usize,
}

impl Listing {
    /// Room for as many entries.
    pub(crate) fn with_room(entries: usize) -> Self {
        let names = Vec::with_capacity(entries * SLOT_NAME);
        Self { names, entries: Vec::with_capacity(entries) }
    }

    fn push(&mut self, key: u64, name: &[u8], target: Target) {
        self.names.extend_from_slice(name);
        self.entries.push(Listed { key, target, end: self.names.len() });
    }

    /// Key, name and target of each, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8], Target)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let name = &self.names[start..entry.end];
            start = entry.end;
            (entry.key, name, entry.target)
        })
    }
}

fn mask(slot: usize, slots: usize) -> u64 {
    ((1 << slots) - 1) << slot
}

/// A bucket whose header is checked. Its hash words are read when they are asked for, by the line,
/// and only lines in use: a copy of all of them would cost more than most questions.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'v> {
    volume: &'v Names,
    pub(crate) block: u64,
    /// The slots in use.
    pub(crate) occupancy: u64,
}

impl PartialEq for Bucket<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.block, self.occupancy) == (other.block, other.occupancy)
    }
}

/// First slots of entries and their keys; `EIO` for a damaged hash word.
pub(crate) type Keys = SmallVec<[Result<(usize, u64)>; 8]>;

/// Keys of a bucket, each with its slot in the bits that a key leaves: filled where it stands, as
/// it is long.
#[derive(Default)]
pub(crate) struct SortedKeys(pub(crate) SmallVec<[u64; 64]>);

const SLOT_BITS: u32 = u64::BITS - KEY_BITS;
const _: () = assert!(BUCKET_SLOTS <= 1 << SLOT_BITS);

impl SortedKeys {
    /// Key and slot of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.0.iter().map(|&both| (both >> SLOT_BITS, (both & ((1 << SLOT_BITS) - 1)) as usize))
    }
}

/// Offset of a bucket's occupancy word.
pub(crate) fn occupancy_at(block: u64) -> u64 {
    block * BLOCK + BUCKET_OCCUPANCY
}

/// Offset of a slot's hash word.
pub(crate) fn hash_word_at(block: u64, slot: usize) -> u64 {
    block * BLOCK + BUCKET_HASHES + slot as u64 * 8
}

/// Offset of a slot.
pub(crate) fn slot_at(block: u64, slot: usize) -> u64 {
    block * BLOCK + BUCKET_SLOT + slot as u64 * SLOT
}

impl Bucket<'_> {
    pub(crate) fn hash_at(&self, slot: usize) -> u64 {
        hash_word_at(self.block, slot)
    }

    /// Calls `each` with the occupied slots and their hash words, ascending.
    #[inline]
    fn each_word(&self, mut each: impl FnMut(usize, u64) -> Result<()>) -> Result<()> {
        for first in (0..BUCKET_SLOTS).step_by(LINE_WORDS) {
            let mut used = self.occupancy >> first & 0xFF;
            if used == 0 {
                continue;
            }
            let mut words = [0_u64; LINE_WORDS];
            self.volume.region.read(self.hash_at(first), words.as_mut_bytes())?;
            while used != 0 {
                let index = used.trailing_zeros() as usize;
                used &= used - 1;
                each(first + index, words[index])?;
            }
        }
        Ok(())
    }

    /// The first slots of all entries with their keys, those of dead leftovers too.
    pub(crate) fn keys(&self) -> Result<Keys> {
        let mut keys = Keys::new();
        self.each_word(|slot, word| {
            match unchecked(word) {
                Ok(0) => {}
                found => keys.push(found.map(|key| (slot, key))),
            }
            Ok(())
        })?;
        Ok(keys)
    }

    /// Adds the keys of `cell` from `key` on to `keys`, sorted, each with its slot. `EIO` for a
    /// damaged hash word.
    pub(crate) fn keys_from(&self, key: u64, cell: Cell, keys: &mut SortedKeys) -> Result<()> {
        self.each_word(|slot, word| {
            let found = unchecked(word)?;
            if found != 0 && found >= key && cell.holds(found) {
                keys.0.push(found << SLOT_BITS | slot as u64);
            }
            Ok(())
        })?;
        keys.0.sort_unstable();
        Ok(())
    }

    /// The slots of the entries whose keys lie in `cell`.
    pub(crate) fn live(&self, cell: Cell) -> Result<u64> {
        let mut live = 0;
        let mut alive = false;
        let mut next = usize::MAX;
        self.each_word(|slot, word| {
            match unchecked(word)? {
                0 if slot != next => return Err(Errno::IO),
                0 => {}
                key => alive = cell.holds(key),
            }
            live |= u64::from(alive) << slot;
            next = slot + 1;
            Ok(())
        })?;
        Ok(live)
    }

    /// The first of `slots` consecutive free slots.
    #[inline]
    pub(crate) fn free_slots(&self, slots: usize) -> Option<usize> {
        let mut starts = !self.occupancy & ALL_SLOTS;
        for _ in 1..slots {
            starts &= starts >> 1;
        }
        (starts != 0).then(|| starts.trailing_zeros() as usize)
    }

    /// The first slots of the entries with these 52 hash bits.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64) -> Result<u64> {
        let (wanted, bits) = (hash << EXTRA_BITS, KEY_MASK & !(EXTRAS - 1));
        let mut found = 0;
        for first in (0..BUCKET_SLOTS).step_by(LINE_WORDS) {
            let used = self.occupancy >> first & 0xFF;
            if used == 0 {
                continue;
            }
            let mut words = [0_u64; LINE_WORDS];
            self.volume.region.read(self.hash_at(first), words.as_mut_bytes())?;
            // A line is asked as a whole, free slots too: hardly ever is there one.
            if words.iter().any(|word| (word ^ wanted) & bits == 0) {
                for (index, word) in words.iter().enumerate() {
                    found |= u64::from((word ^ wanted) & bits == 0) << (first + index);
                }
            }
        }
        Ok(found & self.occupancy)
    }

    /// The slots whose hash words have either of two hashes; `EIO` if a hash word in use is not
    /// sound.
    #[inline]
    pub(crate) fn candidates_of(&self, hashes: [u64; 2]) -> Result<(u64, u64)> {
        let bits = KEY_MASK & !(EXTRAS - 1);
        let [one, other] = hashes.map(|hash| hash << EXTRA_BITS);
        let (mut found, mut others) = (0, 0);
        for first in (0..BUCKET_SLOTS).step_by(LINE_WORDS) {
            let mut used = self.occupancy >> first & 0xFF;
            if used == 0 {
                continue;
            }
            let words = self.volume.region.span::<LINE_WORDS>(self.hash_at(first))?.words()?;
            while used != 0 {
                let index = used.trailing_zeros() as usize;
                used &= used - 1;
                let word = words[index];
                if checked(word & KEY_MASK) != word {
                    return Err(Errno::IO);
                }
                if (word ^ one) & bits == 0 {
                    found |= 1 << (first + index);
                }
                if (word ^ other) & bits == 0 {
                    others |= 1 << (first + index);
                }
            }
        }
        Ok((found, others))
    }

    /// Whether all hash words in use are sound: who does not find his name and finds that they are
    /// not must say `EIO`, never "no such name".
    pub(crate) fn is_sound(&self) -> Result<bool> {
        let mut damage = 0;
        self.each_word(|_, word| {
            damage |= checked(word & KEY_MASK) ^ word;
            Ok(())
        })?;
        Ok(damage == 0)
    }

    /// Whether entries are left in `cell` when those in the slots `gone` go.
    pub(crate) fn keeps(&self, cell: Cell, gone: u64) -> Result<bool> {
        let mut rest = self.occupancy & !gone;
        while rest != 0 {
            let key = self.key(rest.trailing_zeros() as usize)?;
            if key != 0 && cell.holds(key) {
                return Ok(true);
            }
            rest &= rest - 1;
        }
        Ok(false)
    }

    /// The key in a slot that is known to be in use; 0 for a further slot of an entry.
    pub(crate) fn key(&self, slot: usize) -> Result<u64> {
        unchecked(self.volume.region.load64(self.hash_at(slot))?)
    }

    /// Whether the slot holds these words.
    #[inline]
    pub(crate) fn holds(&self, slot: usize, words: &[u64; LINE_WORDS]) -> Result<bool> {
        let line = self.volume.region.span::<LINE_WORDS>(slot_at(self.block, slot))?;
        Ok(line.words()? == *words)
    }

    /// What the entry whose first slot is `slot` leads to, if `name` is its name. `EIO` if the
    /// entry is damaged.
    pub(crate) fn target(&self, slot: usize, name: &[u8]) -> Result<Option<Target>> {
        if slots_of(name.len()) > 1 {
            let entry = self.volume.read_entry(self, slot)?;
            return Ok((entry.name() == name).then_some(entry.target));
        }
        let mut words = [0_u64; LINE_WORDS];
        self.volume.region.read(slot_at(self.block, slot), words.as_mut_bytes())?;
        let found: Slot = zerocopy::transmute!(words);
        let length = usize::from(found.name_length);
        if found.slots != 1 || length > SLOT_NAME {
            // Another one with the same hash, or damage.
            return self.volume.read_entry(self, slot).map(|_| None);
        }
        // The crc counts as 0.
        words[0] &= !u64::from(u32::MAX);
        let kind = Kind::from_mode(u32::from(found.kind) << 12).ok_or(Errno::IO)?;
        if length == 0 || checksum_words(checked(self.key(slot)?), words) != found.crc {
            return Err(Errno::IO);
        }
        let node = Node { ino: found.ino, generation: found.generation };
        Ok((found.name[..length] == *name).then_some(Target { node, kind }))
    }
}

const _: () = assert!(std::mem::offset_of!(Slot, crc) == 0);

/// The words of a [`BucketHeader`].
#[inline]
pub(crate) fn header(dir: Dir, occupancy: u64) -> [u64; LINE_WORDS] {
    let (magic, generation) = (u64::from(BUCKET_MAGIC), u64::from(dir.generation));
    let crc = checksum_words(0, [0, magic, dir.inode.0, generation, 0, 0, 0, 0]);
    [checked(occupancy), magic | u64::from(crc) << 32, dir.inode.0, generation, 0, 0, 0, 0]
}

const _: () = assert!(std::mem::offset_of!(BucketHeader, magic) == 8);
const _: () = assert!(std::mem::offset_of!(BucketHeader, crc) == 12);
const _: () = assert!(std::mem::offset_of!(BucketHeader, owner) == 16);
const _: () = assert!(std::mem::offset_of!(BucketHeader, owner_generation) == 24);

impl Names {
    /// Reads a bucket's header, and checks it and the occupancy word.
    #[inline]
    pub(crate) fn read_bucket(&self, dir: Dir, block: u64) -> Result<Bucket<'_>> {
        let mut head = [0_u64; LINE_WORDS];
        self.region.read(block * BLOCK, head.as_mut_bytes())?;
        let occupancy = unchecked(head[0])?;
        if head != header(dir, occupancy) {
            return Err(Errno::IO);
        }
        Ok(Bucket { volume: self, block, occupancy })
    }

    /// A bucket whose header is not looked at: what its slots hold is told for these ones.
    pub(crate) fn bucket_regardless(&self, block: u64, occupancy: u64) -> Bucket<'_> {
        Bucket { volume: self, block, occupancy: occupancy & ALL_SLOTS }
    }

    /// Stores an entry of one slot, whose name is padded, that nothing names yet: in flight.
    #[inline]
    pub(crate) fn store_entry(
        &self,
        (block, slot, key): (u64, usize, u64),
        (name, length): (&Padded, usize),
        target: Target,
    ) -> Result<InFlight<'_>> {
        let words = slot_words(key, name, length, target);
        let entry = self.region.write_line(slot_at(block, slot), &zerocopy::transmute!(words))?;
        // Through the cache: the next search will read it.
        let word = self.region.store64(hash_word_at(block, slot), checked(key))?;
        Ok(entry.and(word.flush()))
    }

    /// Stores the header of a new bucket with the slots that are in use, of which nothing else
    /// counts: in flight.
    pub(crate) fn store_header(
        &self,
        dir: Dir,
        block: u64,
        occupancy: u64,
    ) -> Result<InFlight<'_>> {
        let header = header(dir, occupancy);
        Ok(self.region.write_line(block * BLOCK, &zerocopy::transmute!(header))?)
    }

    /// Reads the entry whose first slot is `slot`, and checks it.
    pub(crate) fn read_entry(&self, bucket: &Bucket<'_>, slot: usize) -> Result<Entry> {
        self.read_entry_as(bucket, slot, bucket.key(slot)?)
    }

    /// Adds the entry whose first slot is `slot` to a listing.
    pub(crate) fn list_entry(
        &self,
        bucket: &Bucket<'_>,
        (key, slot): (u64, usize),
        listing: &mut Listing,
    ) -> Result<()> {
        let mut words = self.region.span::<LINE_WORDS>(slot_at(bucket.block, slot))?.words()?;
        let head: Slot = zerocopy::transmute!(words);
        let length = usize::from(head.name_length);
        let one_slot = head.slots == 1 && (1..=SLOT_NAME).contains(&length);
        if !one_slot || bucket.occupancy >> slot & 1 == 0 {
            let entry = self.read_entry_as(bucket, slot, key)?;
            listing.push(key, entry.name(), entry.target);
            return Ok(());
        }
        // The crc counts as 0.
        words[0] &= !u64::from(u32::MAX);
        let kind = Kind::from_mode(u32::from(head.kind) << 12).ok_or(Errno::IO)?;
        if checksum_words(checked(key), words) != head.crc {
            return Err(Errno::IO);
        }
        let node = Node { ino: head.ino, generation: head.generation };
        listing.push(key, &head.name[..length], Target { node, kind });
        Ok(())
    }

    /// As [`Names::read_entry`], of an entry that has this key whatever its hash word says.
    pub(crate) fn read_entry_as(
        &self,
        bucket: &Bucket<'_>,
        slot: usize,
        key: u64,
    ) -> Result<Entry> {
        let mut bytes = [0; ENTRY_MAX];
        let at = slot_at(bucket.block, slot);
        self.region.read(at, &mut bytes[..SLOT as usize])?;
        let head = Slot::read_from_bytes(&bytes[..SLOT as usize]).map_err(|_| Errno::IO)?;
        let length = usize::from(head.name_length);
        let slots = slots_of(length);
        let kind = Kind::from_mode(u32::from(head.kind) << 12).ok_or(Errno::IO)?;
        let fits = key != 0 && length > 0 && slot + slots <= BUCKET_SLOTS;
        if !fits || usize::from(head.slots) != slots {
            return Err(Errno::IO);
        }
        if slots > 1 {
            self.region.read(at + SLOT, &mut bytes[SLOT as usize..slots * SLOT as usize])?;
        }
        let node = Node { ino: head.ino, generation: head.generation };
        bytes[..4].fill(0);
        let mut entry = Entry { slot, key, target: Target { node, kind }, length, bytes };
        let whole = mask(slot, slots) & !bucket.occupancy == 0;
        if !whole || checksum(checked(key), &entry.bytes[..entry.used()]) != head.crc {
            return Err(Errno::IO);
        }
        entry.bytes[..4].copy_from_slice(&head.crc.to_le_bytes());
        Ok(entry)
    }
}

/// The words of an entry that takes one slot: as a [`Slot`] has them, without a look at single
/// bytes.
#[inline]
pub(crate) fn slot_words(
    key: u64,
    name: &Padded,
    length: usize,
    target: Target,
) -> [u64; LINE_WORDS] {
    let Target { node, kind } = target;
    let head = (length as u64) << 32 | 1 << 40 | u64::from(kind.d_type()) << 48;
    let joined = |at: usize| name[at] >> 32 | name[at + 1] << 32;
    let first = u64::from(node.generation) | name[0] << 32;
    let mut words = [head, node.ino, first, joined(0), joined(1), joined(2), joined(3), joined(4)];
    words[0] |= u64::from(checksum_words(checked(key), words));
    words
}

const _: () = assert!(std::mem::offset_of!(Slot, name_length) == 4);
const _: () = assert!(std::mem::offset_of!(Slot, slots) == 5);
const _: () = assert!(std::mem::offset_of!(Slot, kind) == 6);
const _: () = assert!(std::mem::offset_of!(Slot, ino) == 8);
const _: () = assert!(std::mem::offset_of!(Slot, generation) == 16);
const _: () = assert!(std::mem::offset_of!(Slot, name) == 20);

impl Names {
    /// Stores the entry of `name` into free slots of a bucket, from `slot` on; nothing names them
    /// yet. Gives their occupancy bits.
    pub(crate) fn write_name<'v>(
        &'v self,
        op: &mut Op<'v>,
        block: u64,
        slot: usize,
        (key, name): (u64, &[u8]),
        target: Target,
    ) -> Result<u64> {
        if slots_of(name.len()) > 1 {
            return self.write_entry(op, block, slot, &Entry::new(key, name, target));
        }
        let padded = padded(name).ok_or(Errno::IO)?;
        let stored = self.store_entry((block, slot, key), (&padded, name.len()), target)?;
        op.pend(stored);
        Ok(mask(slot, 1))
    }

    /// Stores an entry into free slots of a bucket; nothing names them yet. Gives their occupancy
    /// bits.
    fn write_entry<'v>(
        &'v self,
        op: &mut Op<'v>,
        block: u64,
        slot: usize,
        entry: &Entry,
    ) -> Result<u64> {
        let region = &self.region;
        let slots = entry.slots();
        let mut hashes = [0; ENTRY_SLOTS_MAX * 8];
        for index in 0..slots {
            let word = checked(if index == 0 { entry.key } else { 0 });
            hashes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let hash_at = hash_word_at(block, slot);
        let stored = region.stream(hash_at, &hashes[..slots * 8])?;
        op.pend(stored);
        let bytes = &entry.bytes[..slots * SLOT as usize];
        let stored = region.stream(slot_at(block, slot), bytes)?;
        op.pend(stored);
        Ok(mask(slot, slots))
    }

    /// Writes a whole new bucket that holds `entries` (they fit); nothing points to it yet.
    pub(crate) fn write_bucket<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        block: u64,
        entries: &[Entry],
    ) -> Result<()> {
        let mut image = [0; BLOCK as usize];
        let mut slot = 0;
        for entry in entries {
            for index in 0..entry.slots() {
                let word = checked(if index == 0 { entry.key } else { 0 });
                let at = BUCKET_HASHES as usize + (slot + index) * 8;
                image[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            let bytes = &entry.bytes[..entry.slots() * SLOT as usize];
            let at = HEAD + slot * SLOT as usize;
            image[at..at + bytes.len()].copy_from_slice(bytes);
            slot += entry.slots();
        }
        image[..LINE as usize].copy_from_slice(header(dir, mask(0, slot)).as_bytes());
        let used = HEAD + slot * SLOT as usize;
        let stored = self.region.stream(block * BLOCK, &image[..used])?;
        op.pend(stored);
        Ok(())
    }
}

/// Drops dead leftovers from a bucket's occupancy word; gives the bucket as it is then.
pub(crate) fn clear_dead<'v>(
    op: &mut Op<'v>,
    mut bucket: Bucket<'v>,
    cell: Cell,
) -> Result<Bucket<'v>> {
    let live = bucket.live(cell)?;
    if live != bucket.occupancy {
        // PERSIST: durable before anything is stored into the slots that become free, and
        // before the bucket's cell grows (the leftovers would come to life).
        let durable = op.fence();
        op.commit_word(occupancy_at(bucket.block), checked(live), &durable)?;
        bucket.occupancy = live;
    }
    Ok(bucket)
}
