//! The block map of a file: which block holds which 4 KiB of it.
//!
//! Twelve direct words in the inode, then a radix tree of 512-word nodes shaped like a page table.
//! A word that *covers* `c` levels stands for 512^c blocks: 0 is a leaf of one block, 1 a node of
//! leaves or a whole 2 MiB chunk, more a node. The root covers what its kind says.
//!
//! Invariants:
//!
//! - every word's check is verified, and its block found inside the pool, before it is followed;
//! - a node's kind equals the level at which it is found, so a walk always ends;
//! - for one logical block, a direct word and a word of the tree never both exist.
//!
//! Reading needs either the inode's lock or its steady sequence number (`read_steadily`).
//! Nothing here stores; `edit.rs` does.

use crate::Result;
use crate::data::Files;
use crate::inode::Inode;
use crate::inode::Run;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, DIRECT, Identity, ROOT_WORD, WORDS, XATTR_WORD};
use crate::medium::map_word::{Key, Word};
use crate::txn::op::Op;
use rustix::io::Errno;
use std::ops::Range;
use vfs::Kind;
use zerocopy::IntoBytes;

/// Kind of a word: one block of data. Kinds 1 to [`LEVEL_MAX`] are nodes of that level.
pub(crate) const KIND_LEAF: u8 = 0;
/// Kind of a word: a whole chunk of data.
pub(crate) const KIND_HUGE: u8 = 15;
/// Highest level of a node: it covers 2^54 blocks, more than the largest file has.
pub(crate) const LEVEL_MAX: u32 = 6;
/// Words of a node.
pub(crate) const FAN: usize = 512;

/// Position of the extended attributes' word: no logical block has it.
pub(crate) const XATTR_POSITION: u64 = u64::MAX;

/// Blocks that a word of this cover stands for.
pub(crate) const fn span(cover: u32) -> u64 {
    1 << (9 * cover)
}

/// Where one block of a file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPlace {
    pub(crate) block: u64,
    /// Part of a 2 MiB leaf.
    pub(crate) huge: bool,
    /// Offset of its word, if neither neighbour in the file is its neighbour in the pool.
    pub(crate) lone_word: Option<u64>,
}

/// What a walk over a map meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapItem {
    /// A node of the tree.
    Node { block: u64 },
    /// Data blocks.
    Data { block: u64, blocks: u64, logical: u64, unwritten: bool },
    /// The block of extended attributes.
    Xattr { block: u64 },
    /// A word at region offset `at` that cannot be right, or whose node cannot be read; what it
    /// covers is unknown.
    Damaged { at: u64, logical: u64 },
}

/// Visitor of [`Files::walk_map`].
pub(crate) type Visit<'a> = &'a mut dyn FnMut(MapItem) -> Result<()>;

/// The check key of a word of a map at this position.
pub(crate) fn key_of(inode: Inode, generation: u32, position: u64) -> Key {
    Key { ino: inode.0, generation, position }
}

/// The map of one inode.
#[derive(Clone, Copy)]
pub(crate) struct Map<'v> {
    pub(crate) files: &'v Files,
    pub(crate) inode: Inode,
    pub(crate) generation: u32,
}

impl<'v> Map<'v> {
    pub(crate) fn new(files: &'v Files, inode: Inode, identity: &Identity) -> Self {
        Self { files, inode, generation: identity.generation }
    }

    pub(crate) fn key(&self, position: u64) -> Key {
        key_of(self.inode, self.generation, position)
    }

    /// Offset of a direct word.
    pub(crate) fn direct_at(&self, logical: u64) -> u64 {
        self.inode.at(WORDS + logical * 8)
    }

    /// Offset of the root word.
    pub(crate) fn root_at(&self) -> u64 {
        self.inode.at(ROOT_WORD)
    }

    pub(crate) fn load(&self, at: u64) -> Result<u64> {
        Ok(self.files.region.load64(at)?)
    }

    /// Decodes a word found where `cover` is due; `EIO` if it is damaged, of another level or names
    /// blocks outside the pool.
    pub(crate) fn open(&self, position: u64, cover: u32, stored: u64) -> Result<Option<Word>> {
        let Some(word) = Word::open(stored, self.key(position))? else { return Ok(None) };
        let huge = word.kind == KIND_HUGE && cover == 1 && word.block.is_multiple_of(CHUNK_BLOCKS);
        let right = huge || u32::from(word.kind) == cover && (cover == 0 || !word.unwritten);
        let blocks = if huge { CHUNK_BLOCKS } else { 1 };
        if right && self.files.in_pool(word.block, blocks) {
            Ok(Some(word))
        } else {
            Err(Errno::IO)
        }
    }

    /// The root word and the levels that it covers (1 if there is none).
    pub(crate) fn root(&self) -> Result<(u64, u32)> {
        let stored = self.load(self.root_at())?;
        let cover = match Word::open(stored, self.key(0))? {
            None => 1,
            Some(word) if word.kind == KIND_HUGE => 1,
            Some(word) if (1..=LEVEL_MAX).contains(&u32::from(word.kind)) => u32::from(word.kind),
            Some(_) => return Err(Errno::IO),
        };
        Ok((stored, cover))
    }

    /// What stands from `logical` on: a run of at least 1 and at most `max` blocks (`max` > 0).
    /// Runs end at a node's end at the latest, holes too.
    pub(crate) fn run(&self, logical: u64, max: u64) -> Result<Run> {
        if logical >= DIRECT {
            return self.tree_run(logical, max);
        }
        let stored = self.load(self.direct_at(logical))?;
        if let Some(word) = self.open(logical, 0, stored)? {
            let max = max.min(DIRECT - logical);
            return self.leaf_run(word, logical, max, self.direct_at(logical));
        }
        let mut next = logical + 1;
        while next < DIRECT && next - logical < max && self.load(self.direct_at(next))? == 0 {
            next += 1;
        }
        let free = if next == DIRECT { u64::MAX } else { next - logical };
        self.tree_run(logical, max.min(free))
    }

    /// Where block `logical` lies, if it is written.
    pub(crate) fn locate(&self, logical: u64) -> Result<Option<BlockPlace>> {
        if logical < DIRECT {
            let at = self.direct_at(logical);
            let stored = self.load(at)?;
            if stored != 0 {
                return self.locate_by_word(stored, logical, at, logical..DIRECT);
            }
        }
        let (mut stored, mut cover) = self.root()?;
        let mut position = 0;
        if stored == 0 || logical >= span(cover) {
            return Ok(None);
        }
        while let Some(word) = self.open(position, cover, stored)? {
            if word.kind == KIND_HUGE {
                let block = word.block + (logical - position);
                return Ok((!word.unwritten).then_some(BlockPlace {
                    block,
                    huge: true,
                    lone_word: None,
                }));
            }
            cover -= 1;
            let index = logical / span(cover) % FAN as u64;
            let at = word.block * BLOCK + index * 8;
            stored = self.load(at)?;
            position = logical / span(cover) * span(cover);
            if cover == 0 {
                return self.locate_by_word(stored, logical, at, index..FAN as u64);
            }
        }
        Ok(None)
    }

    /// The same of the word of one block, which is found at offset `at`, the first of these words
    /// of its node.
    fn locate_by_word(
        &self,
        stored: u64,
        logical: u64,
        at: u64,
        rest: Range<u64>,
    ) -> Result<Option<BlockPlace>> {
        let Some(Word { block, unwritten: false, .. }) = self.open(logical, 0, stored)? else {
            return Ok(None);
        };
        // A neighbour that is damaged is met by whoever wants it.
        let before = rest.start > 0 && Word::block_of(self.load(at - 8)?) + 1 == block;
        let behind = rest.end - rest.start > 1 && Word::block_of(self.load(at + 8)?) == block + 1;
        Ok(Some(BlockPlace { block, huge: false, lone_word: (!before && !behind).then_some(at) }))
    }

    /// Extends a leaf found at offset `at` over the words behind it, up to `max` blocks.
    fn leaf_run(&self, first: Word, logical: u64, max: u64, at: u64) -> Result<Run> {
        let mut blocks = 1;
        while blocks < max {
            let stored = self.load(at + blocks * 8)?;
            // A damaged neighbour is met by the run that starts at it.
            match self.open(logical + blocks, 0, stored) {
                Ok(Some(word))
                    if word.block == first.block + blocks && word.unwritten == first.unwritten =>
                {
                    blocks += 1;
                }
                _ => break,
            }
        }
        Ok(Run { block: first.block, blocks, unwritten: first.unwritten, huge: false })
    }

    pub(crate) fn tree_run(&self, logical: u64, max: u64) -> Result<Run> {
        let (mut stored, mut cover) = self.root()?;
        let mut position = 0;
        if stored == 0 || logical >= span(cover) {
            return Ok(Run::hole(max));
        }
        loop {
            let Some(word) = self.open(position, cover, stored)? else {
                return Err(Errno::IO);
            };
            if word.kind == KIND_HUGE {
                let skip = logical - position;
                let blocks = max.min(CHUNK_BLOCKS - skip);
                let block = word.block + skip;
                return Ok(Run { block, blocks, unwritten: word.unwritten, huge: true });
            }
            cover -= 1;
            let index = logical / span(cover) % FAN as u64;
            let at = word.block * BLOCK + index * 8;
            stored = self.load(at)?;
            position = logical / span(cover) * span(cover);
            let rest = FAN as u64 - index;
            if stored == 0 {
                let blocks = self.zero_words(at, rest, (max + logical - position) / span(cover))?;
                let end = position + blocks * span(cover);
                return Ok(Run::hole(max.min(end - logical)));
            }
            if cover == 0 {
                let word = self.open(position, 0, stored)?.ok_or(Errno::IO)?;
                return self.leaf_run(word, logical, max.min(rest), at);
            }
        }
    }

    /// Counts the empty words from `at` on (the first is known to be), up to `rest`, no more than
    /// are `wanted` plus one.
    fn zero_words(&self, at: u64, rest: u64, wanted: u64) -> Result<u64> {
        let mut count = 1;
        while count < rest && count <= wanted && self.load(at + count * 8)? == 0 {
            count += 1;
        }
        Ok(count)
    }

    /// Reads a node's words.
    pub(crate) fn node(&self, block: u64) -> Result<[u64; FAN]> {
        let mut words = [0; FAN];
        self.files.region.read(block * BLOCK, words.as_mut_bytes())?;
        Ok(words)
    }

    /// Visits everything under a word; damage is told and passed over.
    pub(crate) fn walk_word(
        &self,
        stored: u64,
        at: u64,
        position: u64,
        cover: u32,
        visit: Visit<'_>,
    ) -> Result<()> {
        let word = match self.open(position, cover, stored) {
            Ok(None) => return Ok(()),
            Ok(Some(word)) => word,
            Err(_) => return visit(MapItem::Damaged { at, logical: position }),
        };
        let Word { block, kind, unwritten } = word;
        if kind == KIND_HUGE || kind == KIND_LEAF {
            let blocks = span(cover);
            return visit(MapItem::Data { block, blocks, logical: position, unwritten });
        }
        visit(MapItem::Node { block })?;
        let Ok(words) = self.node(block) else {
            return visit(MapItem::Damaged { at, logical: position });
        };
        self.walk_words(&words, block * BLOCK, position, cover - 1, visit)
    }

    /// Visits everything under consecutive words; neighbouring blocks are told as one item.
    fn walk_words(
        &self,
        words: &[u64],
        at: u64,
        position: u64,
        cover: u32,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut open: Option<(u64, u64, u64, bool)> = None;
        let mut merge = |item: MapItem| -> Result<()> {
            if let MapItem::Data { block, blocks, logical, unwritten } = item {
                if let Some(run) = &mut open
                    && run.0 + run.1 == block
                    && run.2 + run.1 == logical
                    && run.3 == unwritten
                {
                    run.1 += blocks;
                    return Ok(());
                }
                if let Some((block, blocks, logical, unwritten)) = open.take() {
                    visit(MapItem::Data { block, blocks, logical, unwritten })?;
                }
                open = Some((block, blocks, logical, unwritten));
                return Ok(());
            }
            visit(item)
        };
        for (index, &stored) in words.iter().enumerate() {
            if stored != 0 {
                let index = index as u64;
                let position = position + index * span(cover);
                self.walk_word(stored, at + index * 8, position, cover, &mut merge)?;
            }
        }
        match open {
            Some((block, blocks, logical, unwritten)) => {
                visit(MapItem::Data { block, blocks, logical, unwritten })
            }
            None => Ok(()),
        }
    }

    /// Visits the whole map (not the attributes' block).
    pub(crate) fn walk(&self, visit: Visit<'_>) -> Result<()> {
        let mut direct = [0; DIRECT as usize];
        let at = self.direct_at(0);
        if self.files.region.read(at, direct.as_mut_bytes()).is_err() {
            return visit(MapItem::Damaged { at, logical: 0 });
        }
        self.walk_words(&direct, at, 0, 0, visit)?;
        match self.root() {
            Ok((stored, cover)) => self.walk_word(stored, self.root_at(), 0, cover, visit),
            Err(_) => visit(MapItem::Damaged { at: self.root_at(), logical: 0 }),
        }
    }
}

impl Files {
    /// Visits every block that an inode holds, its directory's nodes and buckets excepted: data,
    /// nodes, a long symlink's block, the attributes' block. Damage is told to the visitor, and the
    /// walk goes on.
    pub(crate) fn walk_map(
        &self,
        inode: Inode,
        identity: &Identity,
        visit: Visit<'_>,
    ) -> Result<()> {
        let map = Map::new(self, inode, identity);
        match identity.kind() {
            Some(Kind::File) => map.walk(visit)?,
            Some(Kind::Symlink) => {
                // A target longer than the direct words lies in the block that the first one names.
                let length = self.commit_line(inode, identity.generation).map(|found| found.0.size);
                let at = map.direct_at(0);
                if length.is_ok_and(|length| length > DIRECT * 8) {
                    map.walk_word(map.load(at)?, at, 0, 0, visit)?;
                }
            }
            _ => {}
        }
        let at = inode.at(XATTR_WORD);
        let word = map.load(at).and_then(|stored| self.open_word(stored, map.key(XATTR_POSITION)));
        match word {
            Ok(None) => Ok(()),
            Ok(Some(word)) => visit(MapItem::Xattr { block: word.block }),
            Err(_) => visit(MapItem::Damaged { at, logical: 0 }),
        }
    }

    /// Gives back all blocks of an inode that cannot be reached any more: data, nodes, a symlink's
    /// target, the attributes. What is damaged is left to fsck. A directory's own blocks are not
    /// told here.
    pub(crate) fn free_contents(
        &self,
        op: &mut Op<'_>,
        inode: Inode,
        identity: &Identity,
    ) -> Result<()> {
        self.walk_map(inode, identity, &mut |item| {
            match item {
                MapItem::Node { block } | MapItem::Xattr { block } => op.free_later(block, 1),
                MapItem::Data { block, blocks, .. } => op.free_later(block, blocks),
                MapItem::Damaged { .. } => {}
            }
            Ok(())
        })
    }

    /// Data blocks that a file holds (`st_blocks`; nodes are not counted), or a long symlink.
    pub(crate) fn count_blocks(&self, inode: Inode, identity: &Identity) -> Result<u64> {
        let mut count = 0;
        self.walk_map(inode, identity, &mut |item| {
            if let MapItem::Data { blocks, .. } = item {
                count += blocks;
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Moves the count of a file's blocks; lock holder only, after the change.
    pub(crate) fn adjust_blocks(
        &self,
        inode: Inode,
        identity: &Identity,
        delta: i64,
    ) -> Result<()> {
        self.move_count(inode, delta, || self.count_blocks(inode, identity))
    }
}
