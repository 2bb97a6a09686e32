//! Changing a block map: from a list of changes to the words that must be stored.
//!
//! [`Files::plan_edit`] turns changes of logical ranges into stores of words *in place*; nothing
//! that can be reached is touched yet. New nodes are written aside in full. When many words change,
//! whole nodes are copied aside, up to the inode's own words, so that what remains in place always
//! fits a lane.
//!
//! Persistence order, three ways to store the planned words:
//!
//! 1. [`Files::store_loose`]: each word by itself, in any order. For words wholly beyond the end
//!    (what lies there means nothing) and, after a fence, where every subset of the words is a
//!    correct outcome.
//! 2. [`Files::publish_edits`] with a single word and no size: one lone store, after a fence.
//! 3. [`Files::publish_edits`] otherwise: all words, with the commit slot, in one undo transaction.

use crate::Result;
use crate::data::Files;
use crate::data::map::{FAN, KIND_HUGE, KIND_LEAF, LEVEL_MAX, Map, MapItem, span};
use crate::inject::{Bug, injected};
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, COMMIT, Commit, DIRECT, LINE};
use crate::medium::map_word::Word;
use crate::txn::op::Op;
use pmem::{Dirty, Durable, FenceBatch, InFlight, Region};
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

/// Words changed in place at most; more, and nodes are copied aside.
const IN_PLACE_MAX: u64 = 40;

/// What a range of logical blocks shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Nothing.
    Hole,
    /// Consecutive blocks of the pool from `block` on.
    Leaf { block: u64, unwritten: bool },
    /// What it is, marked (un)written; holes stay.
    Mark { unwritten: bool },
}

/// A change of a range of logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) logical: u64,
    pub(crate) blocks: u64,
    pub(crate) to: Target,
    /// Whether the data blocks found there are freed (else they live on elsewhere).
    pub(crate) frees: bool,
}

impl Change {
    fn end(&self) -> u64 {
        self.logical + self.blocks
    }

    fn covers(&self, from: u64, blocks: u64) -> bool {
        self.logical <= from && self.end() >= from.saturating_add(blocks)
    }

    /// About how many words the change touches: those of the chunks that it covers in part, and for
    /// whole ones a word each, if one word can say it.
    fn words(&self) -> u64 {
        let (from, to) = (self.logical.next_multiple_of(CHUNK_BLOCKS), self.end());
        let whole = (to / CHUNK_BLOCKS).saturating_sub(from / CHUNK_BLOCKS);
        if to <= from || whole == 0 {
            return self.blocks;
        }
        let whole_words = match self.to {
            Target::Hole => 1,
            Target::Leaf { block, .. }
                if (block + from - self.logical).is_multiple_of(CHUNK_BLOCKS) =>
            {
                whole
            }
            _ => whole * CHUNK_BLOCKS,
        };
        from - self.logical + whole_words + to % CHUNK_BLOCKS
    }

    /// The block for `logical`, if the change puts one there.
    fn leaf(&self, logical: u64) -> Option<Word> {
        match self.to {
            Target::Leaf { block, unwritten } => {
                let block = block + (logical - self.logical);
                Some(Word { block, kind: KIND_LEAF, unwritten })
            }
            _ => None,
        }
    }
}

/// Changes in ascending order that do not overlap.
pub(crate) type Changes = SmallVec<[Change; 4]>;

/// The stores of a planned edit.
#[derive(Default, Debug)]
pub(crate) struct Words {
    /// Offset and new word.
    pub(crate) stores: SmallVec<[(u64, u64); 8]>,
    /// New nodes were written: they must be durable before a word that leads to them is stored.
    pub(crate) fresh: bool,
    /// By how much the number of data blocks changes.
    pub(crate) delta: i64,
}

/// A new durable size, with its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    pub(crate) inode: Inode,
    pub(crate) generation: u32,
    pub(crate) commit: Commit,
}

/// A plan in the making.
struct Editor<'o, 'v> {
    op: &'o mut Op<'v>,
    map: Map<'v>,
    /// Copy nodes aside instead of changing their words.
    aside: bool,
    words: &'o mut Words,
}

impl Files {
    /// Plans `changes` of a map so that they fit a transaction. What they replace is noted for
    /// [`Op::free_later`]; new nodes are on their way. `ENOSPC` if there is no room for nodes.
    pub(crate) fn plan_edit<'v>(
        &'v self,
        op: &mut Op<'v>,
        map: Map<'v>,
        changes: &[Change],
    ) -> Result<Words> {
        let mut words = Words::default();
        self.plan_into(op, map, changes, true, &mut words)?;
        Ok(words)
    }

    /// As [`Files::plan_edit`], for [`Files::store_loose`]: words stay in place, however many they
    /// are.
    pub(crate) fn plan_loose<'v>(
        &'v self,
        op: &mut Op<'v>,
        map: Map<'v>,
        changes: &[Change],
    ) -> Result<Words> {
        let mut words = Words::default();
        self.plan_into(op, map, changes, false, &mut words)?;
        Ok(words)
    }

    /// As [`Files::plan_edit`], or [`Files::plan_loose`] if not `at_once`, into `words`, which have
    /// none yet: a plan has hundreds of bytes, and is not handed about.
    pub(crate) fn plan_into<'v>(
        &'v self,
        op: &mut Op<'v>,
        map: Map<'v>,
        changes: &[Change],
        at_once: bool,
        words: &mut Words,
    ) -> Result<()> {
        debug_assert!(changes.windows(2).all(|pair| pair[0].end() <= pair[1].logical));
        for change in changes {
            if let Target::Leaf { block, .. } = change.to {
                self.note_owner(map.inode.0, block, change.blocks)?;
            }
        }
        let aside = at_once && changes.iter().map(Change::words).sum::<u64>() > IN_PLACE_MAX;
        let mut editor = Editor { op, map, aside, words };
        let mut tree = Changes::new();
        editor.direct(changes, &mut tree)?;
        editor.tree(&tree)?;
        words.stores.sort_unstable_by_key(|store| store.0);
        Ok(())
    }

    /// Stores planned words one by one, flushed and pended: any subset of them must be right.
    pub(crate) fn store_loose<'v>(&'v self, op: &mut Op<'v>, words: &Words) -> Result<()> {
        if words.fresh {
            // PERSIST: a node must never be reachable before its words are durable, wherever it
            // hangs: recovery walks what lies beyond the end too.
            let _ = op.fence_unless(Bug::WordBeforeNode);
        }
        for line in words.stores.chunk_by(|one, two| one.0 / LINE == two.0 / LINE) {
            op.announce_line(line[0].0)?;
            let pending = store_line(&self.region, line)?;
            op.pend(pending);
        }
        Ok(())
    }

    /// Stores planned words inside a sealed transaction.
    pub(crate) fn store_words<'v>(
        &'v self,
        words: &Words,
        sealed: &Durable<'_>,
    ) -> Result<FenceBatch<'v>> {
        // The witness is what makes these stores right: every word's old value is durable.
        let _ = sealed;
        let region = &self.region;
        let mut flight = FenceBatch::default();
        for line in words.stores.chunk_by(|one, two| one.0 / LINE == two.0 / LINE) {
            flight.add(store_line(region, line)?);
        }
        Ok(flight)
    }

    /// Makes the planned words and the new sizes happen at once, whatever happens. Durable on
    /// return.
    pub(crate) fn publish_edits<'v>(
        &'v self,
        op: &mut Op<'v>,
        edits: &[&Words],
        sizes: &[Sizing],
    ) -> Result<()> {
        let count: usize = edits.iter().map(|words| words.stores.len()).sum();
        match (count, sizes) {
            (0, []) => {
                let _ = op.fence();
                Ok(())
            }
            (1, []) => {
                // PERSIST: what the word leads to is durable before the word.
                let durable = op.fence_unless(Bug::WordsBeforeBytes);
                let mut stores = edits.iter().flat_map(|words| words.stores.iter());
                stores.try_for_each(|&(at, word)| op.commit_word(at, word, &durable).map(drop))
            }
            (0, [size]) => self.publish_size(op, size),
            _ if injected(Bug::WordsOneByOne) => {
                let _ = op.fence();
                edits.iter().try_for_each(|words| self.store_loose(op, words))?;
                sizes.iter().try_for_each(|size| self.publish_size(op, size))
            }
            _ => {
                for words in edits {
                    undo_words(op, words)?;
                }
                for size in sizes {
                    op.undo_commit(size.inode, size.generation)?;
                }
                let sealed = op.seal();
                let mut flight = FenceBatch::default();
                for words in edits {
                    flight.add(self.store_words(words, &sealed)?);
                }
                for size in sizes {
                    flight.add(self.store_size(size, &sealed)?);
                }
                op.commit(flight)
            }
        }
    }

    /// Makes a new size durable by a lone commit slot, after everything pended.
    pub(crate) fn publish_size<'v>(&'v self, op: &mut Op<'v>, size: &Sizing) -> Result<()> {
        // PERSIST: every byte below the new size, and every word that leads to one, is durable
        // before the size. CRASH: before the slot is durable the old size stands and the rest lies
        // beyond the end.
        let durable = op.fence_unless(Bug::SizeBeforeData);
        op.announce_line(size.inode.at(COMMIT))?;
        let pending = self.store_size(size, &durable)?;
        let _ = pending.fence();
        Ok(())
    }

    pub(crate) fn store_size<'v>(
        &'v self,
        size: &Sizing,
        after: &Durable<'_>,
    ) -> Result<InFlight<'v>> {
        self.store_commit(size.inode, size.generation, size.commit, after)
    }
}

/// Records the old values of planned words in the lane.
fn undo_words(op: &mut Op<'_>, words: &Words) -> Result<()> {
    let mut rest = &words.stores[..];
    while let [(at, _), ..] = *rest {
        let same = |index: usize, store: &(u64, u64)| store.0 == at + index as u64 * 8;
        let run = rest.iter().enumerate().take_while(|(index, store)| same(*index, store));
        let count = run.count();
        op.undo(at, count as u64 * 8)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Stores words of one line, and flushes it once.
fn store_line<'r>(region: &'r Region, line: &[(u64, u64)]) -> Result<Option<InFlight<'r>>> {
    let mut dirty = None::<Dirty<'r>>;
    for &(at, word) in line {
        let stored = region.store64(at, word)?;
        dirty = Some(match dirty {
            Some(before) => before.join(stored),
            None => stored,
        });
    }
    if injected(Bug::WordsNotFlushed) {
        return Ok(None);
    }
    Ok(dirty.map(Dirty::flush))
}

impl Editor<'_, '_> {
    /// Applies changes to the direct words; those that are left go to the tree.
    fn direct(&mut self, changes: &[Change], tree: &mut Changes) -> Result<()> {
        for change in changes {
            if change.logical >= DIRECT {
                tree.push(*change);
                continue;
            }
            // The whole first chunk is the tree's affair.
            let whole = change.covers(0, CHUNK_BLOCKS)
                && match change.leaf(0) {
                    Some(word) => word.block.is_multiple_of(CHUNK_BLOCKS),
                    None => self.no_direct()?,
                };
            for logical in change.logical..change.end().min(DIRECT) {
                self.direct_word(change, logical, whole, tree)?;
            }
            let from = if whole { 0 } else { DIRECT };
            if change.end() > from {
                let to = match change.to {
                    Target::Leaf { block, unwritten } => {
                        Target::Leaf { block: block + (from - change.logical.min(from)), unwritten }
                    }
                    other => other,
                };
                let logical = from.max(change.logical);
                tree.push(Change { logical, blocks: change.end() - logical, to, ..*change });
            }
        }
        Ok(())
    }

    /// Whether all direct words are empty.
    fn no_direct(&self) -> Result<bool> {
        let mut words = [0_u64; DIRECT as usize];
        self.op.engine.region.read(self.map.direct_at(0), words.as_mut_bytes())?;
        Ok(words.iter().all(|&word| word == 0))
    }

    /// One block among the first: its direct word changes, or the tree's if that is the one in use.
    fn direct_word(
        &mut self,
        change: &Change,
        logical: u64,
        whole: bool,
        tree: &mut Changes,
    ) -> Result<()> {
        let at = self.map.direct_at(logical);
        let stored = self.map.load(at)?;
        if whole {
            let hole = Change { to: Target::Hole, ..*change };
            return self.put(at, stored, |editor| editor.leaf(stored, logical, &hole));
        }
        if stored == 0 && !self.map.tree_run(logical, 1)?.is_hole() {
            let to = match change.leaf(logical) {
                Some(word) => Target::Leaf { block: word.block, unwritten: word.unwritten },
                None => change.to,
            };
            tree.push(Change { logical, blocks: 1, to, frees: change.frees });
            return Ok(());
        }
        self.put(at, stored, |editor| editor.leaf(stored, logical, change))
    }

    fn put(
        &mut self,
        at: u64,
        stored: u64,
        make: impl FnOnce(&mut Self) -> Result<u64>,
    ) -> Result<()> {
        let new = make(self)?;
        if new != stored {
            self.words.stores.push((at, new));
        }
        Ok(())
    }

    fn tree(&mut self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let (stored, own) = self.map.root()?;
        let leaves = changes.iter().filter(|change| matches!(change.to, Target::Leaf { .. }));
        let end = leaves.map(Change::end).max().unwrap_or(0);
        let mut cover = own;
        while cover < LEVEL_MAX && span(cover) < end {
            cover += 1;
        }
        let at = self.map.root_at();
        self.put(at, stored, |editor| editor.subtree(stored, own, cover, 0, changes))
    }

    /// One block: what its word becomes.
    fn leaf(&mut self, stored: u64, logical: u64, change: &Change) -> Result<u64> {
        let old = self.map.open(logical, 0, stored)?;
        if let (Target::Mark { unwritten }, Some(word)) = (change.to, old) {
            return Ok(Word { unwritten, ..word }.sealed(self.map.key(logical)));
        }
        let new = change.leaf(logical);
        if let Some(word) = old {
            if change.frees && new.is_none_or(|new| new.block != word.block) {
                self.op.free_later(word.block, 1);
            }
            self.words.delta -= 1;
        }
        self.words.delta += i64::from(new.is_some());
        Ok(new.map_or(0, |word| word.sealed(self.map.key(logical))))
    }

    /// What the word for `[base, base + span(cover))` becomes. It is `stored` now, which covers
    /// `own` levels: fewer than `cover` only while the tree grows.
    fn subtree(
        &mut self,
        stored: u64,
        own: u32,
        cover: u32,
        base: u64,
        changes: &[Change],
    ) -> Result<u64> {
        let first = changes.partition_point(|change| change.end() <= base);
        let last = changes.partition_point(|change| change.logical < base + span(cover));
        let changes = &changes[first..last.max(first)];
        let Some(change) = changes.first() else {
            if own == cover {
                return Ok(stored);
            }
            return self.children(stored, own, cover, base, changes);
        };
        if cover == 0 {
            return self.leaf(stored, base, change);
        }
        if change.covers(base, span(cover))
            && let Some(word) = self.whole(stored, own, cover, base, change)?
        {
            return Ok(word);
        }
        let grows = changes.iter().any(|change| matches!(change.to, Target::Leaf { .. }));
        if stored == 0 && !grows {
            return Ok(0);
        }
        self.children(stored, own, cover, base, changes)
    }

    /// A change of a whole subtree, where that is one word.
    fn whole(
        &mut self,
        stored: u64,
        own: u32,
        cover: u32,
        base: u64,
        change: &Change,
    ) -> Result<Option<u64>> {
        match change.to {
            Target::Hole => {
                self.drop_subtree(stored, own, base, change.frees)?;
                Ok(Some(0))
            }
            Target::Leaf { unwritten, .. } if cover == 1 => {
                let Some(leaf) = change.leaf(base) else { return Ok(None) };
                if !leaf.block.is_multiple_of(CHUNK_BLOCKS) {
                    return Ok(None);
                }
                self.drop_subtree(stored, own, base, change.frees)?;
                self.words.delta += CHUNK_BLOCKS as i64;
                let word = Word { block: leaf.block, kind: KIND_HUGE, unwritten };
                Ok(Some(word.sealed(self.map.key(base))))
            }
            Target::Mark { unwritten } if cover == 1 && own == 1 => {
                let word = self.map.open(base, 1, stored)?;
                Ok(word
                    .filter(|word| word.kind == KIND_HUGE)
                    .map(|word| Word { unwritten, ..word }.sealed(self.map.key(base))))
            }
            _ => Ok(None),
        }
    }

    /// Everything under a word goes: its nodes are freed, and its data if `frees`.
    fn drop_subtree(&mut self, stored: u64, own: u32, base: u64, frees: bool) -> Result<()> {
        let (map, op, delta) = (self.map, &mut *self.op, &mut self.words.delta);
        map.walk_word(stored, map.root_at(), base, own, &mut |item| {
            match item {
                MapItem::Node { block } => op.free_later(block, 1),
                MapItem::Data { block, blocks, .. } => {
                    *delta -= blocks as i64;
                    if frees {
                        op.free_later(block, blocks);
                    }
                }
                MapItem::Xattr { .. } => {}
                MapItem::Damaged { .. } => return Err(Errno::IO),
            }
            Ok(())
        })
    }

    /// Changes inside a subtree: in the words of its node, or in a new node.
    fn children(
        &mut self,
        stored: u64,
        own: u32,
        cover: u32,
        base: u64,
        changes: &[Change],
    ) -> Result<u64> {
        let child = cover - 1;
        let mut node = None;
        let mut words = [0; FAN];
        let word = self.map.open(base, own, stored)?;
        match word {
            Some(word) if self.stays(own, cover, word, changes) => {
                self.in_place(word.block, cover, base, changes)?;
                return Ok(stored);
            }
            Some(_) if own < cover => words[0] = stored,
            Some(word) if word.kind == KIND_HUGE => self.broken(word, base, &mut words)?,
            Some(word) => {
                words = self.map.node(word.block)?;
                node = Some(word.block);
            }
            None => {}
        }
        let before = words;
        for index in touched(changes, base, cover) {
            let own = if own < cover && index == 0 && word.is_some() { own } else { child };
            let base = base + index as u64 * span(child);
            words[index] = self.subtree(words[index], own, child, base, changes)?;
        }
        if own < cover && words[0] == stored && stored != 0 && own < child {
            // The tree grows by several levels, and nothing changes in what was there.
            words[0] = self.subtree(stored, own, child, base, &[])?;
        }
        if words.iter().all(|&word| word == 0) {
            if let Some(block) = node {
                self.op.free_later(block, 1);
            }
            return Ok(0);
        }
        if let Some(block) = node {
            if !self.aside {
                let at = |index: usize| block * BLOCK + index as u64 * 8;
                let changed = (0..FAN).filter(|&index| words[index] != before[index]);
                self.words.stores.extend(changed.map(|index| (at(index), words[index])));
            }
            if !self.aside || words == before {
                return Ok(stored);
            }
            self.op.free_later(block, 1);
        }
        self.new_node(&words, cover, base)
    }

    /// Whether a node certainly stays what and where it is: only words in it change.
    fn stays(&self, own: u32, cover: u32, word: Word, changes: &[Change]) -> bool {
        let holes = || changes.iter().any(|change| change.to == Target::Hole);
        own == cover && word.kind != KIND_HUGE && !self.aside && !holes()
    }

    /// Changes single words of a node, without a look at the others.
    fn in_place(&mut self, block: u64, cover: u32, base: u64, changes: &[Change]) -> Result<()> {
        let child = cover - 1;
        for index in touched(changes, base, cover) {
            let at = block * BLOCK + index as u64 * 8;
            let stored = self.map.load(at)?;
            let base = base + index as u64 * span(child);
            self.put(at, stored, |editor| editor.subtree(stored, child, child, base, changes))?;
        }
        Ok(())
    }

    /// The words of a 2 MiB leaf broken into blocks, each of which has an owner from now on.
    fn broken(&self, huge: Word, base: u64, words: &mut [u64; FAN]) -> Result<()> {
        for half in [0, CHUNK_BLOCKS / 2] {
            self.op.engine.note_owner(self.map.inode.0, huge.block + half, CHUNK_BLOCKS / 2)?;
        }
        for (index, word) in words.iter_mut().enumerate() {
            let index = index as u64;
            let leaf = Word { block: huge.block + index, kind: KIND_LEAF, ..huge };
            *word = leaf.sealed(self.map.key(base + index));
        }
        Ok(())
    }

    /// Writes a node aside; it is pended.
    fn new_node(&mut self, words: &[u64; FAN], cover: u32, base: u64) -> Result<u64> {
        let engine = self.op.engine;
        let extents = engine.allocate_metadata(self.op, 1)?;
        let block = extents.first().ok_or(Errno::NOSPC)?.0;
        let pending = engine.region.stream(block * BLOCK, words.as_bytes())?;
        self.op.pend(pending);
        self.words.fresh = true;
        let word = Word { block, kind: cover as u8, unwritten: false };
        Ok(word.sealed(self.map.key(base)))
    }
}

/// The slots of a node that the changes touch, ascending, each once.
fn touched(changes: &[Change], base: u64, cover: u32) -> SmallVec<[usize; 16]> {
    let end = base + span(cover);
    let slot = |logical: u64| ((logical - base) / span(cover - 1)) as usize;
    let mut slots = SmallVec::new();
    for change in changes {
        let first = slot(change.logical.max(base));
        let last = slot(change.end().min(end) - 1);
        let from = slots.last().map_or(first, |&last: &usize| first.max(last + 1));
        slots.extend(from..=last);
    }
    slots
}
