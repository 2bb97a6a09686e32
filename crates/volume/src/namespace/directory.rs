//! Directories: extendible hashing in a tree of nodes, after the keys of `medium/dirhash.rs`.
//!
//! The inode's root word is empty, or names a bucket, or a node of 512 words that the next nine
//! bits of the key index. A bucket of local depth `l` stands in `2^(9-l)` equal consecutive words
//! of its node; where a bucket of depth 9 overflows, a child node takes its place. A word's kind is
//! the bucket's local depth, or [`NODE`]; its check is keyed by the [`Cell`] it covers.
//!
//! Invariants: a word changes in place only alone; where more than one word changes, the node is
//! copied aside and the one word that points to it is stored. So every step below is one 8-byte
//! store, and splitting and pruning never change which entries exist.
//!
//! Locks: changes need the directory's inode lock and a working operation; reads run under its
//! sequence number (`read_steadily`) or its lock.

use crate::Result;
use crate::cache::Caches;
use crate::cache::{EntryPlace, Target};
use crate::inject::{Bug, injected};
use crate::inode::Inode;
use crate::medium::dirhash::{EXTRA_BITS, EXTRAS, KEY_BITS, checked, hash_of_key, unchecked};
use crate::medium::layout::{BLOCK, ROOT_WORD};
use crate::medium::map_word::Word;
use crate::namespace::Names;
use crate::namespace::bucket::{
    Bucket, Cell, Dir, Entry, Listing, SortedKeys, clear_dead, occupancy_at, slots_of,
};
use crate::txn::locked_inodes::Store;
use crate::txn::op::Op;
use rustix::io::Errno;
use smallvec::SmallVec;

/// The kind of a word that names a node.
pub(crate) const NODE: u8 = 15;
/// Key bits that a node consumes.
pub(crate) const NODE_BITS: u32 = 9;
/// Words of a node.
pub(crate) const NODE_WORDS: usize = 1 << NODE_BITS;
/// Levels of nodes: a bucket at the very bottom covers four keys, whose entries always fit.
pub(crate) const LEVELS_MAX: usize = (KEY_BITS / NODE_BITS) as usize;

/// All keys.
pub(super) const ALL: Cell = Cell { lo: 0, depth: 0 };

/// A word of a directory, decoded.
pub(crate) struct DirWord {
    pub(crate) block: u64,
    pub(crate) kind: u8,
    pub(crate) cell: Cell,
}

/// Where a key belongs.
pub(crate) struct Place {
    /// Blocks of the nodes passed, from the root down.
    nodes: SmallVec<[u64; 3]>,
    /// Block of the bucket, 0 if there is none.
    pub(crate) bucket: u64,
    /// What the bucket covers; without one: what the single empty word covers.
    pub(crate) cell: Cell,
}

/// An entry that was looked for, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'v> {
    pub(crate) slot: usize,
    pub(crate) key: u64,
    pub(crate) target: Target,
    pub(crate) bucket: Bucket<'v>,
    cell: Cell,
    /// The occupancy bits of its slots.
    mask: u64,
}

impl Hit<'_> {
    /// The occupancy bits of its slots.
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }
}

/// What a search found.
pub(crate) struct Search<'v> {
    pub(crate) hit: Option<Hit<'v>>,
    /// A key with the name's hash that no entry has; `None` if all are taken.
    pub(crate) vacant: Option<u64>,
    /// The bucket to which that key belongs, if there is one and all keys of the name belong there.
    pub(crate) bucket: Option<Bucket<'v>>,
}

/// Where all keys of a hash belong.
enum Only<'v> {
    Bucket(Bucket<'v>, Cell),
    /// The directory has no bucket.
    Nothing,
    /// To several buckets, or to one that is still to come.
    Unknown,
}

/// The occupancy bits that an entry of this name takes in slot 0.
fn mask_of(name: &[u8]) -> u64 {
    (1 << slots_of(name.len())) - 1
}

/// The cell of the word at which `key` leaves the `level`-th node (0: the root word).
fn word_cell(key: u64, level: usize) -> Cell {
    Cell::of(key, level as u32 * NODE_BITS)
}

/// Index in the node below `level` words, the root word included, at which `key` goes on.
pub(super) fn word_index(key: u64, level: usize) -> usize {
    let below = KEY_BITS - level as u32 * NODE_BITS;
    (key >> below) as usize & (NODE_WORDS - 1)
}

/// The cell of a word of that kind; `EIO` if no such word can stand there.
fn cell_of_kind(key: u64, level: usize, kind: u8) -> Result<Cell> {
    match (level, kind) {
        (_, NODE) if level < LEVELS_MAX => Ok(word_cell(key, level)),
        (0, 0) => Ok(word_cell(key, 0)),
        (1.., 1..=9) => Ok(Cell::of(key, (level as u32 - 1) * NODE_BITS + u32::from(kind))),
        _ => Err(Errno::IO),
    }
}

impl Place {
    /// Offset of the pointer that leads `key` out of `level` nodes: the root word, or a node's
    /// word.
    fn pointer(&self, dir: Dir, key: u64, level: usize) -> u64 {
        match level.checked_sub(1) {
            None => dir.inode.at(ROOT_WORD),
            Some(node) => self.nodes[node] * BLOCK + word_index(key, level) as u64 * 8,
        }
    }

    /// The store that lets the pointer behind `level` nodes name another node.
    fn pointer_store(&self, dir: Dir, key: u64, level: usize, node: u64) -> Store {
        let value = dir.seal(word_cell(key, level), node, NODE);
        Store { at: self.pointer(dir, key, level), value }
    }
}

impl Names {
    /// Decodes the word that `key` meets behind `level` nodes, and gives the cell it covers.
    #[inline]
    pub(crate) fn open_dir_word(
        &self,
        dir: Dir,
        raw: u64,
        key: u64,
        level: usize,
    ) -> Result<Option<DirWord>> {
        if raw == 0 {
            return Ok(None);
        }
        let cell = cell_of_kind(key, level, Word::kind_of(raw))?;
        let word = self.open_word(raw, dir.key(cell))?;
        Ok(word.map(|word| DirWord { block: word.block, kind: word.kind, cell }))
    }

    /// Finds the bucket to which `key` belongs.
    pub(crate) fn locate(&self, dir: Dir, key: u64) -> Result<Place> {
        let mut place = Place { nodes: SmallVec::new(), bucket: 0, cell: ALL };
        loop {
            let level = place.nodes.len();
            let raw = self.region.load64(place.pointer(dir, key, level))?;
            match self.open_dir_word(dir, raw, key, level)? {
                None => place.cell = word_cell(key, level),
                Some(word) if word.kind == NODE => {
                    place.nodes.push(word.block);
                    continue;
                }
                Some(word) => (place.bucket, place.cell) = (word.block, word.cell),
            }
            return Ok(place);
        }
    }

    /// Looks for `name`, whose 52 hash bits are `hash`, and for a place to put it.
    pub(crate) fn search(&self, dir: Dir, hash: u64, name: &[u8]) -> Result<Search<'_>> {
        let mask = mask_of(name);
        let mut hit = None;
        let (vacant, bucket) =
            self.search_for(dir, hash, name, |bucket, slot, (key, cell), target| {
                hit = Some(Hit { slot, key, target, bucket, cell, mask: mask << slot });
                Ok(())
            })?;
        let bucket = if let Only::Bucket(bucket, _) = bucket { Some(bucket) } else { None };
        Ok(Search { hit, vacant, bucket })
    }

    /// What `name` leads to, and where its entry lies, or would: if it takes one slot, and all of
    /// its keys belong to one bucket.
    pub(crate) fn find(
        &self,
        dir: Dir,
        hash: u64,
        name: &[u8],
    ) -> Result<(Option<Target>, Option<EntryPlace>)> {
        let mut found = None;
        let place = |block, (key, cell): (u64, Cell), slot| {
            let place = EntryPlace { bucket: block, depth: cell.depth, key, slot };
            (slots_of(name.len()) == 1).then_some(place)
        };
        let (vacant, bucket) = self.search_for(dir, hash, name, |bucket, slot, at, target| {
            found = Some((target, place(bucket.block, at, slot)));
            Ok(())
        })?;
        Ok(match (found, vacant, bucket) {
            (Some((target, place)), ..) => (Some(target), place),
            (None, Some(key), Only::Bucket(bucket, cell)) => {
                (None, place(bucket.block, (key, cell), 0))
            }
            (None, Some(key), Only::Nothing) => (None, place(0, (key, ALL), 0)),
            _ => (None, None),
        })
    }

    /// Calls `found` with the entry of `name`, if there is one; else gives a key for it, and its
    /// bucket.
    #[inline]
    fn search_for<'v>(
        &'v self,
        dir: Dir,
        hash: u64,
        name: &[u8],
        found: impl FnOnce(Bucket<'v>, usize, (u64, Cell), Target) -> Result<()>,
    ) -> Result<(Option<u64>, Only<'v>)> {
        let first = hash << EXTRA_BITS;
        let last = first + (EXTRAS - 1);
        let mut taken = 0_u64;
        let mut key = first;
        loop {
            let place = self.locate(dir, key)?;
            let mut only = if place.cell == ALL { Only::Nothing } else { Only::Unknown };
            if place.bucket != 0 {
                let bucket = self.read_bucket(dir, place.bucket)?;
                only = Only::Unknown;
                if key == first {
                    only = Only::Bucket(bucket, place.cell);
                }
                let mut candidates = bucket.candidates(hash)?;
                while candidates != 0 {
                    let slot = candidates.trailing_zeros() as usize;
                    candidates &= candidates - 1;
                    let key = bucket.key(slot)?;
                    if hash_of_key(key) != hash {
                        // It has just changed: an error that counts only if nothing moved.
                        return Err(Errno::IO);
                    }
                    if !place.cell.holds(key) {
                        continue;
                    }
                    if let Some(target) = bucket.target(slot, name)? {
                        found(bucket, slot, (key, place.cell), target)?;
                        return Ok((None, Only::Unknown));
                    }
                    taken |= 1 << (key - first);
                }
                if !bucket.is_sound()? {
                    return Err(Errno::IO);
                }
            }
            if place.cell.last() >= last {
                let vacant = u64::from(taken.trailing_ones());
                return Ok(((vacant < EXTRAS).then_some(first + vacant), only));
            }
            key = place.cell.last() + 1;
        }
    }

    /// The entries of the cell that holds `key`, and the cell. Those with keys below `key` are left
    /// out.
    pub(crate) fn entries_from(&self, dir: Dir, key: u64) -> Result<(Cell, Listing)> {
        let place = self.locate(dir, key)?;
        if place.bucket == 0 {
            return Ok((place.cell, Listing::default()));
        }
        let bucket = self.read_bucket(dir, place.bucket)?;
        let mut keys = SortedKeys::default();
        bucket.keys_from(key, place.cell, &mut keys)?;
        let mut listing = Listing::with_room(keys.0.len());
        for found in keys.iter() {
            self.list_entry(&bucket, found, &mut listing)?;
        }
        Ok((place.cell, listing))
    }

    /// What the last entry before `key` leads to, if it lies in the same cell.
    pub(crate) fn entry_before(&self, dir: Dir, key: u64) -> Result<Option<Target>> {
        let place = self.locate(dir, key)?;
        if place.bucket == 0 {
            return Ok(None);
        }
        let bucket = self.read_bucket(dir, place.bucket)?;
        let mut last = None;
        for found in bucket.keys()? {
            let (slot, found) = found?;
            if found < key && place.cell.holds(found) {
                last = last.max(Some((found, slot)));
            }
        }
        last.map(|(key, slot)| Ok(self.read_entry_as(&bucket, slot, key)?.target)).transpose()
    }

    /// Whether a directory has no entries.
    pub(crate) fn is_empty_directory(&self, dir: Dir) -> Result<bool> {
        let mut key = 0;
        loop {
            let place = self.locate(dir, key)?;
            if place.bucket != 0 && self.read_bucket(dir, place.bucket)?.live(place.cell)? != 0 {
                return Ok(false);
            }
            match place.cell.next() {
                Some(next) => key = next,
                None => return Ok(true),
            }
        }
    }

    /// Reads a node's words, each decoded and checked; `lo` is the first key that the node covers.
    pub(crate) fn read_node(&self, dir: Dir, block: u64, lo: u64, level: usize) -> Result<Words> {
        let mut bytes = [0; BLOCK as usize];
        self.region.read(block * BLOCK, &mut bytes)?;
        let mut words = Words { dir, lo, level, all: [None; NODE_WORDS] };
        for (index, raw) in bytes.chunks_exact(8).enumerate() {
            let raw = u64::from_le_bytes(raw.try_into().unwrap_or_default());
            let key = words.key_of(index);
            words.all[index] =
                self.open_dir_word(dir, raw, key, level)?.map(|word| (word.block, word.kind));
        }
        Ok(words)
    }
}

/// A node's words by value.
pub(crate) struct Words {
    dir: Dir,
    lo: u64,
    /// Nodes passed, this one included.
    level: usize,
    /// Block and kind.
    all: [Option<(u64, u8)>; NODE_WORDS],
}

/// What a node amounts to.
enum Summary {
    Empty,
    /// One bucket covers all of it.
    Whole(u64),
    Mixed,
}

impl Words {
    fn key_of(&self, index: usize) -> u64 {
        self.lo | (index as u64) << (KEY_BITS - self.level as u32 * NODE_BITS)
    }

    /// Puts a bucket, or nothing, into the words of `cell`.
    fn set(&mut self, cell: Cell, bucket: Option<u64>) {
        let kind = cell.depth - (self.level as u32 - 1) * NODE_BITS;
        let first = word_index(cell.lo, self.level);
        let value = bucket.map(|block| (block, kind as u8));
        self.all[first..first + (NODE_WORDS >> kind)].fill(value);
    }

    /// The largest cell around `key` without any word in it, less than the whole node.
    fn empty_cell(&self, key: u64) -> Cell {
        let index = word_index(key, self.level);
        let mut kind = NODE_BITS;
        while kind > 1 {
            let size = NODE_WORDS >> (kind - 1);
            let first = index / size * size;
            if self.all[first..first + size].iter().any(Option::is_some) {
                break;
            }
            kind -= 1;
        }
        Cell::of(key, (self.level as u32 - 1) * NODE_BITS + kind)
    }

    /// Lets each bucket whose neighbour is empty cover both. Gives the buckets that grew, with the
    /// cells they had.
    fn merge(&mut self) -> SmallVec<[(u64, Cell); 4]> {
        let mut grown = SmallVec::new();
        for kind in (1..=NODE_BITS as u8).rev() {
            let size = NODE_WORDS >> kind;
            for first in (0..NODE_WORDS).step_by(2 * size) {
                let empty = |from: usize| self.all[from..from + size].iter().all(Option::is_none);
                let bucket = |from: usize| match self.all[from] {
                    Some((block, found)) if found == kind => Some(block),
                    _ => None,
                };
                let pair = [(first, first + size), (first + size, first)];
                let lonely = pair.into_iter().find_map(|(at, other)| {
                    if empty(other) { bucket(at).map(|block| (at, block)) } else { None }
                });
                if let Some((at, block)) = lonely {
                    let depth = (self.level as u32 - 1) * NODE_BITS + u32::from(kind);
                    grown.push((block, Cell::of(self.key_of(at), depth)));
                    self.all[first..first + 2 * size].fill(Some((block, kind - 1)));
                }
            }
        }
        grown
    }

    fn summary(&self) -> Summary {
        match self.all[0] {
            Some((block, 0)) => Summary::Whole(block),
            None if self.all.iter().all(Option::is_none) => Summary::Empty,
            _ => Summary::Mixed,
        }
    }

    fn sealed(&self, index: usize) -> u64 {
        let Some((block, kind)) = self.all[index] else { return 0 };
        let key = self.key_of(index);
        let depth = if kind == NODE { NODE_BITS } else { u32::from(kind) };
        let cell = Cell::of(key, (self.level as u32 - 1) * NODE_BITS + depth);
        self.dir.seal(cell, block, kind)
    }

    fn image(&self) -> [u8; BLOCK as usize] {
        let mut image = [0; BLOCK as usize];
        for (index, bytes) in image.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.sealed(index).to_le_bytes());
        }
        image
    }
}

impl Names {
    /// Takes one metadata block for names or attributes: half of the reserve is left to what does
    /// without more of them (overwrites, truncation).
    pub(crate) fn metadata_block<'v>(&'v self, op: &mut Op<'v>) -> Result<u64> {
        if self.free_blocks()? <= self.reserve() / 2 {
            return Err(Errno::NOSPC);
        }
        let extents = self.allocate_metadata(op, 1)?;
        extents.first().map(|&(block, _)| block).ok_or(Errno::NOSPC)
    }

    /// Writes a node aside.
    fn write_node<'v>(&'v self, op: &mut Op<'v>, words: &Words) -> Result<u64> {
        let block = self.metadata_block(op)?;
        let stored = self.region.stream(block * BLOCK, &words.image())?;
        op.pend(stored);
        Ok(block)
    }

    /// Makes room for `slots` consecutive slots in the bucket of `key`, by splitting as often as
    /// needed, and gives the bucket; `None`: there is none yet. `known` is the bucket if a search
    /// under the same lock has found it. Steps are durable one by one: call it before anything else
    /// is allocated or changed. `ENOSPC`.
    pub(crate) fn make_room<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        key: u64,
        slots: usize,
        known: Option<Bucket<'v>>,
    ) -> Result<Option<Bucket<'v>>> {
        if known.is_some_and(|bucket| bucket.free_slots(slots).is_some()) {
            return Ok(known);
        }
        loop {
            let place = self.locate(dir, key)?;
            if place.bucket == 0 {
                return Ok(None);
            }
            let bucket = self.read_bucket(dir, place.bucket)?;
            let bucket = clear_dead(op, bucket, place.cell)?;
            if bucket.free_slots(slots).is_some() {
                return Ok(Some(bucket));
            }
            self.split(op, dir, key, &place, bucket)?;
        }
    }

    /// Splits a bucket: its upper half moves to a new one, unless a half is empty.
    fn split<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        key: u64,
        place: &Place,
        bucket: Bucket<'v>,
    ) -> Result<()> {
        let [lower, upper] = place.cell.halves();
        let mut moved = Vec::new();
        for found in bucket.keys()? {
            let (slot, found) = found?;
            if upper.holds(found) {
                moved.push(self.read_entry(&bucket, slot)?);
            }
        }
        let stays = bucket.live(lower)?;
        let (low, high) = match (stays, moved.is_empty()) {
            (_, true) => (Some(bucket.block), None),
            (0, false) => (None, Some(bucket.block)),
            (_, false) => {
                let new = self.metadata_block(op)?;
                self.write_bucket(op, dir, new, &moved)?;
                (Some(bucket.block), Some(new))
            }
        };
        let level = place.nodes.len();
        let full = place.cell.depth == level as u32 * NODE_BITS;
        let mut words = if full {
            if level == LEVELS_MAX {
                return Err(Errno::NOSPC);
            }
            Words { dir, lo: place.cell.lo, level: level + 1, all: [None; NODE_WORDS] }
        } else {
            let old = place.nodes[level - 1];
            op.free_later(old, 1);
            self.read_node(dir, old, word_cell(key, level - 1).lo, level)?
        };
        words.set(lower, low);
        words.set(upper, high);
        let node = self.write_node(op, &words)?;
        let store = place.pointer_store(dir, key, words.level - 1, node);
        // PERSIST: the new bucket and the new node before the word that makes them count.
        // CRASH: before the word, the old node and the old bucket stand as they were; after it, the
        // old bucket's moved entries are dead by their keys.
        let durable = op.fence_unless(Bug::SplitBeforeBucket);
        op.commit_word(store.at, store.value, &durable)?;
        op.finish_step();
        let new_bucket = i64::from(low.is_some() && high.is_some());
        op.reshaped.push((dir.node(), new_bucket + i64::from(full)));
        self.count_reshaped(op)?;
        let cell = if low == Some(bucket.block) { lower } else { upper };
        clear_dead(op, bucket, cell).map(drop)
    }

    /// Puts an entry aside, into free slots of the `bucket` that [`Names::make_room`] gave, under
    /// the same lock, or into a new one; the store that is returned makes it exist.
    pub(crate) fn insertion<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        key: u64,
        bucket: Option<Bucket<'v>>,
        name: &[u8],
        target: Target,
    ) -> Result<Store> {
        if let Some(bucket) = bucket {
            let slot = bucket.free_slots(slots_of(name.len())).ok_or(Errno::NOSPC)?;
            let mask = self.write_name(op, bucket.block, slot, (key, name), target)?;
            let value = checked(bucket.occupancy | mask);
            return Ok(Store { at: occupancy_at(bucket.block), value });
        }
        let place = self.locate(dir, key)?;
        let block = self.metadata_block(op)?;
        self.write_bucket(op, dir, block, &[Entry::new(key, name, target)])?;
        op.reshaped.push((dir.node(), 1));
        let level = place.nodes.len();
        let Some(&node) = place.nodes.last() else {
            let value = dir.seal(place.cell, block, 0);
            return Ok(Store { at: dir.inode.at(ROOT_WORD), value });
        };
        let mut words = self.read_node(dir, node, word_cell(key, level - 1).lo, level)?;
        let cell = words.empty_cell(key);
        words.set(cell, Some(block));
        if cell.depth == level as u32 * NODE_BITS {
            let value = words.sealed(word_index(key, level));
            return Ok(Store { at: place.pointer(dir, key, level), value });
        }
        let copy = self.write_node(op, &words)?;
        op.free_later(node, 1);
        Ok(place.pointer_store(dir, key, level - 1, copy))
    }

    /// The store that takes an entry away; if its bucket would be empty, the one that takes the
    /// bucket away. `with` is an insertion into the same directory that happens together with it:
    /// if both concern the same word, the store is for both, and replaces it.
    pub(crate) fn removal<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        hit: &Hit<'_>,
        with: Option<Store>,
    ) -> Result<Store> {
        let at = occupancy_at(hit.bucket.block);
        let before = match with {
            Some(store) if store.at == at => unchecked(store.value)?,
            // Where something is damaged nothing is taken away: it could not be put back.
            _ if !hit.bucket.is_sound()? => return Err(Errno::IO),
            // Dead leftovers stay until there is need of their slots, or nothing else is there.
            _ if hit.bucket.keeps(hit.cell, hit.mask)? => hit.bucket.occupancy,
            _ => 0,
        };
        let left = before & !hit.mask;
        if left == 0 && with.is_none() {
            match self.take_out(op, dir, hit.key) {
                // The empty bucket stays where it is: no room, or its neighbour is damaged.
                Err(Errno::NOSPC | Errno::IO) => {}
                taken => return taken,
            }
        }
        Ok(Store { at, value: checked(left) })
    }

    /// Takes the bucket of `key` out of the tree if it has become empty. Which entries exist does
    /// not change; when there is no room for it, it is left undone.
    pub(crate) fn prune<'v>(&'v self, op: &mut Op<'v>, dir: Dir, key: u64) -> Result<()> {
        let place = self.locate(dir, key)?;
        if place.bucket == 0 || self.read_bucket(dir, place.bucket)?.live(place.cell)? != 0 {
            return Ok(());
        }
        let store = self.take_out(op, dir, key)?;
        // PERSIST: a node copied aside before the word that makes it count.
        let durable = op.fence();
        op.commit_word(store.at, store.value, &durable)?;
        self.count_reshaped(op)
    }

    /// The store that takes the bucket of `key` out of the tree, whatever it holds, and lets its
    /// neighbour cover its keys. A node may have been copied aside for it.
    fn take_out<'v>(&'v self, op: &mut Op<'v>, dir: Dir, key: u64) -> Result<Store> {
        let place = self.locate(dir, key)?;
        let mut given_up: SmallVec<[u64; 4]> = SmallVec::from_slice(&[place.bucket]);
        let mut gone = 1;
        let mut replacement = None;
        let mut cell = place.cell;
        let mut level = place.nodes.len();
        let store = loop {
            if level == 0 {
                let value = replacement.map_or(0, |block| dir.seal(ALL, block, 0));
                break Store { at: dir.inode.at(ROOT_WORD), value };
            }
            let node = place.nodes[level - 1];
            let mut words = self.read_node(dir, node, word_cell(key, level - 1).lo, level)?;
            words.set(cell, replacement);
            for (block, cell) in words.merge() {
                let bucket = self.read_bucket(dir, block)?;
                if !injected(Bug::LeftoversRevived) {
                    clear_dead(op, bucket, cell)?;
                }
            }
            replacement = match words.summary() {
                Summary::Empty => None,
                Summary::Whole(block) => Some(block),
                Summary::Mixed => {
                    break self.replace_node(op, key, &place, &words, &mut given_up)?;
                }
            };
            given_up.push(node);
            gone += 1;
            level -= 1;
            cell = word_cell(key, level);
        };
        op.reshaped.push((dir.node(), -gone));
        for block in given_up {
            op.free_later(block, 1);
        }
        Ok(store)
    }

    /// The directories that a commit has reshaped have that many blocks more, or fewer, from now
    /// on.
    pub(crate) fn count_reshaped(&self, op: &mut Op<'_>) -> Result<()> {
        for (dir, delta) in op.reshaped.drain(..) {
            if delta != 0 {
                op.has_reshaped = true;
                let inode = Inode(dir.ino);
                let identity = self.identity(inode)?;
                self.adjust_directory(inode, &identity, delta)?;
                Caches::forget_attributes(dir);
            }
        }
        Ok(())
    }

    /// The store that gives a node other words: in place if only one differs, else by a copy.
    fn replace_node<'v>(
        &'v self,
        op: &mut Op<'v>,
        key: u64,
        place: &Place,
        words: &Words,
        given_up: &mut SmallVec<[u64; 4]>,
    ) -> Result<Store> {
        let (dir, level) = (words.dir, words.level);
        let node = place.nodes[level - 1];
        let mut differing = SmallVec::<[Store; 2]>::new();
        for index in 0..NODE_WORDS {
            let at = node * BLOCK + index as u64 * 8;
            let value = words.sealed(index);
            if self.region.load64(at)? != value {
                differing.push(Store { at, value });
            }
            if differing.len() == 2 {
                let copy = self.write_node(op, words)?;
                given_up.push(node);
                return Ok(place.pointer_store(dir, key, level - 1, copy));
            }
        }
        differing.first().copied().ok_or(Errno::IO)
    }
}
