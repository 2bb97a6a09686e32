//! Inodes: the identity line, the commit line, and the volatile lines that are the runtime's.
//!
//! Volatile words (valid in the epoch that `ready` names; initialised by whoever takes the lock
//! first in an epoch, `ready` last, so a reader that finds another epoch takes the lock once):
//!
//! | word | what | written by |
//! |---|---|---|
//! | lock | a lock word | whoever takes it |
//! | sequence | odd while the inode changes; never repeats, outlives reuse | lock holder |
//! | size, mtime, ctime | the current ones (the commit line has the durable ones) | lock holder |
//! | opens | open descriptions, who changed them last; bit 63: being freed | anyone, by CAS |
//! | flags | `LIVE_*` | lock holder |
//! | ready | the epoch for which the others are valid | lock holder |
//! | hints | a line of words for writers | lock holder |
//! | copy | the commit line, once it was written in this epoch | lock holder |
//!
//! The commit line itself is stored around the cache: reading it back would wait for the medium.
//!
//! Readers take no lock: `read_steadily`.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

pub(crate) mod commit;
pub(crate) mod in_place;
pub(crate) mod inode_reserve;
pub(crate) mod inode_slots;
pub(crate) mod references;

use crate::Result;
use crate::medium::layout::{
    ATIME, CHUNK_BLOCKS, COMMIT_CHECKSUMMED, COMMIT_WRITTEN, Commit, EXTENT_INODES, IDENTITY,
    INODE, INODE_TAG, Identity, LINE, MOVED, SIZE_MAX, VOLATILE, VOLATILE_LENGTH, XATTR_WORD,
};
use crate::medium::lockword;
use crate::space::Space;
use pmem::{Region, Span, checksum_words};
use robust::owner::Owner;
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use vfs::{Kind, Node};

/// Volatile words, as offsets in the inode.
const LOCK: u64 = VOLATILE;
pub(crate) const SEQUENCE: u64 = LOCK + 8;
const SIZE: u64 = SEQUENCE + 8;
const MTIME: u64 = SIZE + 8;
pub(crate) const CTIME: u64 = MTIME + 8;
pub(crate) const OPENS: u64 = CTIME + 8;
const FLAGS: u64 = OPENS + 8;
pub(crate) const READY: u64 = FLAGS + 8;
const _: () = assert!(READY + 8 == VOLATILE + LINE);

/// The place of one of these words in their line.
pub(crate) const fn index(word: u64) -> usize {
    ((word - VOLATILE) / 8) as usize
}

/// First of the words free for writers' hints (second volatile line); lock holder only.
pub(crate) const HINTS: u64 = VOLATILE + LINE;
/// Hint word: number of data blocks + 1, 0 if unknown.
const HINT_BLOCKS: u64 = 0;
/// Hint word: 0 if there is no copy of the commit line, else the index of its newest slot, plus 1.
pub(crate) const HINT_COPY: u64 = 1;
/// Hint words: the last run written in place: the number left behind it, logical block, block,
/// blocks.
const HINT_RUN: u64 = 2;
/// In the last of those words: the run is part of a 2 MiB leaf.
const RUN_HUGE: u64 = 1 << 63;
/// The copy of the commit line (third volatile line).
pub(crate) const COPY: u64 = HINTS + LINE;
const _: () = assert!(COPY + LINE == VOLATILE + VOLATILE_LENGTH);

/// Volatile flag: some process has mapped the file since its first open; blocks stay where they
/// are.
pub(crate) const LIVE_MAPPED: u64 = 1;
/// Volatile flag: the current size or times are newer than the commit line.
pub(crate) const LIVE_DIRTY: u64 = 2;
/// Volatile flag: blocks may lie beyond the end (trim at last close).
pub(crate) const LIVE_BEYOND: u64 = 4;
/// Volatile flag: `ctime` was moved by a write, not by an attribute change.
pub(crate) const LIVE_WRITTEN: u64 = 8;
/// Volatile flag: some process may have stored to the file through a mapping since its first open.
pub(crate) const LIVE_STORED: u64 = 32;
/// Volatile flag: the newest commit slot may be a checksummed one (see `torn_append.rs`).
pub(crate) const LIVE_CHECKSUMMED: u64 = 64;
/// Volatile flag: the lane whose number stands from [`LIVE_LANE`] on may hold a record that
/// recovery would act on (see `redo.rs`).
pub(crate) const LIVE_REDO: u64 = 256;
/// Where the flags hold that lane's number: 16 bits.
pub(crate) const LIVE_LANE: u32 = 16;
/// Volatile flag: blocks were added to a file that shall lie in whole chunks.
pub(crate) const LIVE_SCATTERED: u64 = 128;
/// Volatile flag: identity or commit line was damaged when these lines were initialised.
pub(crate) const LIVE_DAMAGED: u64 = 16;
/// Volatile flag: a file that may have set-id bits or capabilities, which writers may take from it.
pub(crate) const LIVE_PRIVILEGED: u64 = 512;
/// The flags; above them, of a dirty inode, the mark of the commit slot beside which it is dirty.
pub(crate) const LIVE_MASK: u64 = 0xFFFF_FFFF;

/// An inode number (byte offset / 512), known to lie in the pool and not to be an extent's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Inode(pub(crate) u64);

/// Consecutive logical blocks that are alike: a hole, or consecutive blocks of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first block; 0 for a hole.
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    /// Allocated, reads as zeros.
    pub(crate) unwritten: bool,
    /// Part of a 2 MiB leaf.
    pub(crate) huge: bool,
}

impl Run {
    pub(crate) fn hole(blocks: u64) -> Self {
        Self { block: 0, blocks, unwritten: false, huge: false }
    }

    pub(crate) fn is_hole(&self) -> bool {
        self.block == 0
    }

    /// Allocated and filled.
    pub(crate) fn is_written(&self) -> bool {
        self.block != 0 && !self.unwritten
    }
}

/// All volatile lines of an inode, checked once.
#[derive(Clone, Copy)]
pub(crate) struct Live<'v>(pub(crate) Span<'v, { (VOLATILE_LENGTH / 8) as usize }>);

impl Live<'_> {
    /// Replaces the lock word, if it is `free`.
    #[inline(always)]
    pub(crate) fn swap_lock(&self, free: u64, word: u64) -> Result<bool> {
        Ok(self.0.cas(index(LOCK), free, word)?.is_ok())
    }

    /// Frees the lock if `owner` holds it: as [`lockword::release_quickly`].
    #[inline(always)]
    pub(crate) fn unlock(&self, inodes: &Inodes, owner: Owner) -> Result<()> {
        lockword::release_word_quickly(inodes, &self.0, index(LOCK), owner)
    }

    /// The flags.
    #[inline]
    pub(crate) fn flags(&self) -> Result<u64> {
        Ok(self.0.load(index(FLAGS))?)
    }

    /// Whether these lines are valid in this epoch.
    #[inline]
    pub(crate) fn is_ready(&self, epoch: u32) -> Result<bool> {
        Ok(self.0.load(index(READY))? == u64::from(epoch))
    }

    /// Makes the sequence number odd (1) or even (0), ever forward; gives the flags. Lock holder
    /// only.
    #[inline]
    pub(crate) fn turn(&self, parity: u64) -> Result<u64> {
        let now = self.0.load(index(SEQUENCE))?;
        if now & 1 != parity {
            self.0.store(index(SEQUENCE), now + 1)?;
        }
        self.flags()
    }

    #[inline]
    pub(crate) fn sequence(&self) -> Result<u64> {
        Ok(self.0.load(index(SEQUENCE))?)
    }

    /// Makes the sequence number even, but not the one that it would have had: what was entered
    /// under that is void. Lock holder only.
    #[cold]
    pub(crate) fn skip_number(&self) -> Result<()> {
        let now = self.0.load(index(SEQUENCE))?;
        Ok(self.0.store(index(SEQUENCE), (now | 1) + 3)?)
    }

    #[inline(always)]
    pub(crate) fn set_sequence(&self, sequence: u64) -> Result<()> {
        Ok(self.0.store(index(SEQUENCE), sequence)?)
    }

    /// What is current, and the sequence number, if these lines are valid in this epoch and it is
    /// even.
    #[inline(always)]
    pub(crate) fn current(&self, epoch: u32) -> Result<Option<(Current, u64)>> {
        let [_, sequence, size, mtime, ctime, _, flags, ready] = self.0.eight(0)?;
        let current = Current { size, mtime: mtime as i64, ctime: ctime as i64, flags };
        let valid = ready == u64::from(epoch) && sequence & 1 == 0;
        Ok(valid.then_some((current, sequence)))
    }

    /// What is current; lock holder only.
    pub(crate) fn now(&self) -> Result<Current> {
        let [_, _, size, mtime, ctime, _, flags, _] = self.0.eight(0)?;
        Ok(Current { size, mtime: mtime as i64, ctime: ctime as i64, flags })
    }

    /// As [`Inodes::set_current`].
    #[inline(always)]
    pub(crate) fn set_current(&self, current: &Current) -> Result<()> {
        Ok(self.0.store_each([
            (index(MTIME), current.mtime as u64),
            (index(CTIME), current.ctime as u64),
            (index(FLAGS), current.flags),
            (index(SIZE), current.size),
        ])?)
    }

    /// The run that the last write in place used, its first logical block, and the sequence number
    /// for which that is right: if that is the one that was loaded before, and is the one under the
    /// lock. Any words otherwise.
    #[inline(always)]
    pub(crate) fn run(&self) -> Result<(u64, u64, Run)> {
        let at = index(HINTS + HINT_RUN * 8);
        let (sequence, logical) = (self.0.load(at)?, self.0.load(at + 1)?);
        let (block, length) = (self.0.load(at + 2)?, self.0.load(at + 3)?);
        let huge = length & RUN_HUGE != 0;
        Ok((sequence, logical, Run { block, blocks: length & !RUN_HUGE, unwritten: false, huge }))
    }

    /// Notes the written run that begins at block `logical`, all of its 2 MiB leaf if it is part of
    /// one. The lock holder is working, and changes the map no more.
    pub(crate) fn set_run(&self, mut logical: u64, mut run: Run) -> Result<()> {
        let at = index(HINTS + HINT_RUN * 8);
        let mut huge = 0;
        if run.huge {
            let before = logical % CHUNK_BLOCKS;
            (logical, run.block, run.blocks) = (logical - before, run.block - before, CHUNK_BLOCKS);
            huge = RUN_HUGE;
        }
        // What the number will be when the lock is free.
        self.0.store(at, (self.0.load(index(SEQUENCE))? | 1) + 1)?;
        self.0.store(at + 1, logical)?;
        self.0.store(at + 2, run.block)?;
        Ok(self.0.store(at + 3, run.blocks | huge)?)
    }

    /// Keeps a copy of the commit line, whose newest slot is number `newest`.
    #[inline]
    pub(crate) fn set_copy(&self, line: &[u8; LINE as usize], newest: usize) -> Result<()> {
        self.0.store_eight(index(COPY), &zerocopy::transmute!(*line))?;
        Ok(self.0.store(index(HINTS + HINT_COPY * 8), newest as u64 + 1)?)
    }

    /// The run that was noted for the number `from` holds for `to` too.
    #[inline(always)]
    pub(crate) fn keep_run(&self, from: u64, to: u64) -> Result<()> {
        let at = index(HINTS + HINT_RUN * 8);
        if self.0.load(at)? == from {
            self.0.store(at, to)?;
        }
        Ok(())
    }
}

/// What is current about an inode, from its volatile line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Current {
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) flags: u64,
}

impl Current {
    /// Some process has mapped it: its blocks stay where they are.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        self.flags & LIVE_MAPPED != 0
    }
}

impl Inode {
    pub(crate) fn offset(self) -> u64 {
        self.0 * INODE
    }

    pub(crate) fn at(self, field: u64) -> u64 {
        self.offset() + field
    }

    pub(crate) fn lock_offset(self) -> u64 {
        self.at(LOCK)
    }
}

/// The bits of a mode by which a file is executed in another's name.
pub(crate) const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// The flag that says that a mode is that of a file with set-id bits.
pub(crate) fn live_privileged(mode: u32) -> u64 {
    let file = mode & libc::S_IFMT == libc::S_IFREG;
    if file && mode & SET_ID != 0 { LIVE_PRIVILEGED } else { 0 }
}

/// The lane that live flags with [`LIVE_REDO`] name.
pub(crate) fn lane_of(flags: u64) -> u64 {
    flags >> LIVE_LANE & 0xFFFF
}

/// The flag that says that a commit slot is checksummed.
fn live_checksummed(commit: &Commit) -> u64 {
    if commit.flags & COMMIT_CHECKSUMMED != 0 { LIVE_CHECKSUMMED } else { 0 }
}

/// What a commit slot is called in the flags of an inode that is dirty beside it.
fn dirty_mark(commit: &Commit, generation: u32) -> u64 {
    u64::from(commit.sequence ^ generation.wrapping_mul(0x9E37_79B9)) << 32
}

impl Identity {
    pub(crate) fn sealed(mut self, inode: Inode) -> Self {
        self.tag = INODE_TAG;
        self.crc = self.checksum(inode);
        self
    }

    fn checksum(&self, inode: Inode) -> u32 {
        let mut words: [u64; 8] = zerocopy::transmute!(*self);
        // Tag and flags stay, the crc counts as 0.
        words[0] &= LOW_HALF;
        checksum_words(inode.0, words)
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::from_mode(self.mode)
    }
}

/// The half of a word beside a crc.
pub(crate) const LOW_HALF: u64 = u32::MAX as u64;
const _: () = assert!(std::mem::offset_of!(Identity, crc) == 4);
/// Words that [`Inodes::names_of`] knows the places of.
const _: () = assert!(
    std::mem::offset_of!(Identity, tag) == 0
        && std::mem::offset_of!(Identity, generation) == 8
        && std::mem::offset_of!(Identity, nlink) == 24
);

/// The space, and the inodes in it.
pub struct Inodes {
    space: Space,
    /// The chunk where this process found room for an inode last, and one: a hint; or 0.
    inode_chunk: AtomicU64,
}

impl Deref for Inodes {
    type Target = Space;

    #[inline]
    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Inodes {
    pub(crate) fn new(space: Space) -> Self {
        Self { space, inode_chunk: AtomicU64::new(0) }
    }

    /// The inode of a number that came from outside (a dentry, a caller): `EIO` if it cannot be
    /// one.
    #[inline(always)]
    pub(crate) fn inode(&self, ino: u64) -> Result<Inode> {
        let reaches = || ino < u64::MAX / INODE && self.reaches((ino + 1) * INODE);
        let inside = ino >= self.pool() / INODE && (ino < self.size() / INODE || reaches());
        if inside && !ino.is_multiple_of(EXTENT_INODES) { Ok(Inode(ino)) } else { Err(Errno::IO) }
    }

    /// Reads and checks the identity line. `EIO` if it is damaged or free.
    pub(crate) fn identity(&self, inode: Inode) -> Result<Identity> {
        Self::checked_identity(inode, self.identity_words(inode)?)
    }

    /// The identity of a node: `ESTALE` if the inode is another object by now.
    pub(crate) fn identity_of(&self, node: Node) -> Result<(Inode, Identity)> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        let words = self.identity_words(inode)?;
        if words[0] == 0 {
            return Err(Errno::STALE);
        }
        let identity = Self::checked_identity(inode, words)?;
        if identity.generation == node.generation {
            Ok((inode, identity))
        } else {
            Err(Errno::STALE)
        }
    }

    /// What an inode is by now: `ESTALE` if it is free, `EIO` if it is damaged.
    pub(crate) fn node_in(&self, inode: Inode) -> Result<Node> {
        let words = self.identity_words(inode)?;
        if words[0] == 0 {
            return Err(Errno::STALE);
        }
        let generation = Self::checked_identity(inode, words)?.generation;
        Ok(Node { ino: inode.0, generation })
    }

    #[inline]
    fn identity_words(&self, inode: Inode) -> Result<[u64; 8]> {
        Ok(self.region.span(inode.at(IDENTITY))?.words()?)
    }

    #[inline]
    fn checked_identity(inode: Inode, words: [u64; 8]) -> Result<Identity> {
        let identity: Identity = zerocopy::transmute!(words);
        let good = identity.tag == INODE_TAG && identity.checksum(inode) == identity.crc;
        if good && identity.kind().is_some() { Ok(identity) } else { Err(Errno::IO) }
    }

    /// Whether the inode is still the object of this generation: for who has just taken a
    /// reference, which keeps it so. `ESTALE` if not. (Neither word changes as long as the object
    /// lives.)
    pub(crate) fn is_still(&self, inode: Inode, generation: u32) -> Result<()> {
        if self.names_of(inode, generation)?.is_some() { Ok(()) } else { Err(Errno::STALE) }
    }

    /// How many names the object of this generation has; `None` if the inode is another by now.
    #[inline]
    pub(crate) fn names_of(&self, inode: Inode, generation: u32) -> Result<Option<u32>> {
        let [first, second, _, fourth] = self.region.span::<8>(inode.at(IDENTITY))?.four(0)?;
        let same = first as u16 == INODE_TAG && second as u32 == generation;
        Ok(same.then_some(fourth as u32))
    }

    /// The access time.
    pub(crate) fn access_time(&self, inode: Inode) -> Result<i64> {
        Ok(self.region.load64(inode.at(ATIME))? as i64)
    }

    /// The volatile lines.
    #[inline]
    pub(crate) fn live_lines(&self, inode: Inode) -> Result<Live<'_>> {
        Ok(Live(self.volatile_map().span(inode.at(VOLATILE))?))
    }

    /// The first volatile line.
    #[inline]
    pub(crate) fn live_line(&self, inode: Inode) -> Result<Span<'_, 8>> {
        Ok(self.volatile_map().span(inode.at(VOLATILE))?)
    }

    #[inline]
    pub(crate) fn live(&self, inode: Inode, word: u64) -> Result<u64> {
        Ok(self.volatile_map().shared_load(inode.at(word))?)
    }

    fn set_live(&self, inode: Inode, word: u64, value: u64) -> Result<()> {
        Ok(self.volatile_map().shared_store(inode.at(word), value)?)
    }

    /// Whether the volatile lines are initialised for this epoch.
    pub(crate) fn is_ready(&self, inode: Inode) -> Result<bool> {
        Ok(self.live(inode, READY)? == u64::from(self.epoch))
    }

    /// Initialises the volatile lines for this epoch; the caller has just taken the lock.
    /// `number`: see [`Inodes::initialise_live`].
    pub(crate) fn first_use(&self, inode: Inode, number: u64) -> Result<()> {
        let identity = self.identity(inode);
        let found = identity.and_then(|id| Ok((id, self.commit_line(inode, id.generation)?.0)));
        let moved = self.region.load64(inode.at(MOVED))? as i64;
        self.initialise_live(inode, number, found.as_ref().ok(), moved)?;
        if self.region.load64(inode.at(XATTR_WORD))? != 0 {
            // Capabilities may be among them.
            self.set_live(inode, FLAGS, self.live(inode, FLAGS)? | LIVE_PRIVILEGED)?;
        }
        Ok(())
    }

    /// As [`Inodes::first_use`], of an inode whose lines are known; `None` if they are damaged. It
    /// was renamed last, without more, at the time `moved`. `number` is no other inode's in this
    /// epoch.
    fn initialise_live(
        &self,
        inode: Inode,
        number: u64,
        found: Option<&(Identity, Commit)>,
        moved: i64,
    ) -> Result<()> {
        let live = self.live_lines(inode)?;
        live.set_sequence(number << 32)?;
        live.0.store(index(OPENS), 0)?;
        live.0.store_eight(index(HINTS), &[0; 8])?;
        let current = match found {
            Some((identity, commit)) => {
                let written = commit.flags & COMMIT_WRITTEN != 0;
                let flags = if written { LIVE_WRITTEN } else { 0 };
                let told = if written { commit.mtime } else { identity.ctime };
                Current {
                    size: commit.size,
                    mtime: commit.mtime,
                    ctime: told.max(moved),
                    flags: flags | live_checksummed(commit) | live_privileged(identity.mode),
                }
            }
            None => Current { size: 0, mtime: 0, ctime: 0, flags: LIVE_DAMAGED },
        };
        live.set_current(&current)?;
        Ok(live.0.store(index(READY), u64::from(self.epoch))?)
    }

    /// Stores the volatile lines of a new inode, beside whose commit line (`slots`) nothing is
    /// newer: unlocked, never seen. Nobody can reach it yet.
    #[inline]
    pub(crate) fn store_new_live(
        &self,
        inode: Inode,
        number: u64,
        (size, time, mode): (u64, u64, u32),
        slots: &[u64; (LINE / 8) as usize],
    ) -> Result<()> {
        let live = self.live_lines(inode)?;
        let mut hints = [0; (LINE / 8) as usize];
        hints[HINT_COPY as usize] = 1;
        live.0.store_eight(index(HINTS), &hints)?;
        live.0.store_eight(index(COPY), slots)?;
        let (free, ready) = (u64::from(self.epoch) << 32, u64::from(self.epoch));
        let flags = LIVE_WRITTEN | live_privileged(mode);
        // What says that the others are valid comes last.
        Ok(live.0.store_eight(0, &[free, number, size, time, time, 0, flags, ready])?)
    }

    /// Publishes what is current; lock holder only. Size last: bytes below it are there.
    pub(crate) fn set_current(&self, inode: Inode, current: &Current) -> Result<()> {
        self.live_lines(inode)?.set_current(current)
    }

    /// How many blocks an inode has, if somebody has left that: [`Inodes::move_count`].
    pub(crate) fn known_blocks(&self, inode: Inode) -> Result<Option<u64>> {
        Ok(self.hint(inode, HINT_BLOCKS)?.checked_sub(1))
    }

    /// Moves the number of blocks that is left for the next call that asks; `count` counts them as
    /// they are, if none is left. Lock holder only, after the change.
    pub(crate) fn move_count(
        &self,
        inode: Inode,
        delta: i64,
        count: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let blocks = match self.known_blocks(inode)? {
            Some(blocks) => blocks.saturating_add_signed(delta),
            None => count()?,
        };
        self.set_hint(inode, HINT_BLOCKS, blocks + 1)
    }

    /// A hint word of the writers (0 to 7); lock holder only.
    pub(crate) fn hint(&self, inode: Inode, index: u64) -> Result<u64> {
        debug_assert!(index < LINE / 8);
        self.live(inode, HINTS + index * 8)
    }

    /// Sets a hint word; lock holder only.
    pub(crate) fn set_hint(&self, inode: Inode, index: u64, value: u64) -> Result<()> {
        debug_assert!(index < LINE / 8);
        self.set_live(inode, HINTS + index * 8, value)
    }

    /// The sequence number; of an inode that was not used in this epoch, any.
    pub(crate) fn sequence(&self, inode: Inode) -> Result<u64> {
        self.live(inode, SEQUENCE)
    }

    /// As [`Inodes::sequence`], of a node that a caller named; odd if there is no such inode.
    pub(crate) fn sequence_of(&self, node: Node) -> u64 {
        self.inode(node.ino).and_then(|inode| self.sequence(inode)).unwrap_or(1)
    }

    /// The flags of an inode whose size or times are newer than its commit line. They name the
    /// commit slot that is the newest now: once there is a newer one, these size and times are
    /// void.
    ///
    /// The mark shares a line with the size and is stored before it, and lines persist in program
    /// order: so even after a crash a size beside a valid mark is one that was current, and all its
    /// bytes are durable: they were fenced before. That is how what returned survives the death of
    /// *every* process. (A model of power cuts must not pair these lines as they were after a call
    /// with stores that a fence inside the call had yet to make durable.)
    pub(crate) fn dirty_flags(&self, inode: Inode, generation: u32, flags: u64) -> Result<u64> {
        let (commit, _) = self.commit_line(inode, generation)?;
        Ok(flags & LIVE_MASK | LIVE_DIRTY | dirty_mark(&commit, generation))
    }

    /// What moves with every change of the inode: its sequence number, `None` before its first use
    /// in this epoch. `EBUSY` while it changes, or while some process may change it through a
    /// mapping.
    pub(crate) fn change_count(&self, inode: Inode) -> Result<Option<u64>> {
        if !self.is_ready(inode)? {
            return Ok(None);
        }
        let sequence = self.live(inode, SEQUENCE)?;
        if sequence & 1 != 0 || self.live(inode, FLAGS)? & LIVE_MAPPED != 0 {
            return Err(Errno::BUSY);
        }
        Ok(Some(sequence))
    }

    /// The sequence number and the size of an inode that nothing changes but calls. `EBUSY` while
    /// it changes, while some process may store to it through a mapping, and before its first use
    /// in this epoch.
    pub(crate) fn version(&self, inode: Inode) -> Result<(u64, u64)> {
        let live = self.live_lines(inode)?;
        let (current, sequence) = live.current(self.epoch)?.ok_or(Errno::BUSY)?;
        let steady = current.flags & (LIVE_STORED | LIVE_DAMAGED) == 0;
        if !steady || live.sequence()? != sequence {
            return Err(Errno::BUSY);
        }
        Ok((sequence, current.size))
    }

    /// The size and modification time that are newer than the commit line, if there are any.
    pub(crate) fn lazy_size(&self, inode: Inode, generation: u32) -> Result<Option<(u64, i64)>> {
        self.lazy_size_in(self.volatile_map(), inode, generation)
    }

    /// The same, as another epoch left them: in the region itself, also for a reader, whose own
    /// volatile lines lie elsewhere.
    pub(crate) fn left_size(&self, inode: Inode, generation: u32) -> Result<Option<(u64, i64)>> {
        self.lazy_size_in(&self.region, inode, generation)
    }

    fn lazy_size_in(
        &self,
        map: &Region,
        inode: Inode,
        generation: u32,
    ) -> Result<Option<(u64, i64)>> {
        let (commit, _) = self.commit_line(inode, generation)?;
        let word = |word| map.shared_load(inode.at(word));
        let (flags, size) = (word(FLAGS)?, word(SIZE)?);
        let dirty = dirty_mark(&commit, generation) | LIVE_DIRTY;
        let valid =
            flags & (!LIVE_MASK | LIVE_DIRTY) == dirty && (commit.size..=SIZE_MAX).contains(&size);
        Ok(if valid { Some((size, word(MTIME)? as i64)) } else { None })
    }

    /// The lock's owner died inside an operation, now undone or done: readers may go on. If it had
    /// committed a size or times, those count; else what was current before.
    pub(crate) fn after_owner_died(&self, inode: Inode) -> Result<()> {
        let mut flags = self.live(inode, FLAGS)? | LIVE_BEYOND | LIVE_PRIVILEGED;
        self.forget_commit(inode)?;
        if let Ok(identity) = self.identity(inode)
            && let Ok((commit, _)) = self.commit_line(inode, identity.generation)
        {
            flags |= live_checksummed(&commit);
            if self.lazy_size(inode, identity.generation)?.is_none() {
                self.set_live(inode, SIZE, commit.size)?;
                self.set_live(inode, MTIME, commit.mtime as u64)?;
                flags &= LIVE_MASK & !LIVE_DIRTY;
            }
        }
        self.set_live(inode, FLAGS, flags)?;
        for word in 0..LINE / 8 {
            self.set_live(inode, HINTS + word * 8, 0)?;
        }
        // Not the number that the dead one would have left: a child that was forked meanwhile may
        // have what was entered for that (`namespace/change.rs`).
        self.live_lines(inode)?.skip_number()
    }
}
