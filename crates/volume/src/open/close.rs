//! What is left to do when a file is synced, closed for the last time, or goes for good.
//!
//! Lazy state: times move in the volatile lines only, in posix mode the size too; `fsync` and the
//! last close commit them. Blocks attached ahead of the end are cut off at the last close, unless
//! `fallocate` asked for them. Bytes and words are durable before any of this runs, so committing
//! is one slot and a fence. Locks: the inode's.

use crate::data::edit::Sizing;
use crate::data::file::File;
use crate::inject::{Bug, injected};
use crate::inode::{
    Current, Inode, LIVE_BEYOND, LIVE_DAMAGED, LIVE_DIRTY, LIVE_MAPPED, LIVE_SCATTERED,
    LIVE_STORED, LIVE_WRITTEN, Live, SEQUENCE, index,
};
use crate::medium::layout::{COMMIT, COMMIT_WRITTEN, FLAG_KEEP};
use crate::open::Opens;
use crate::txn::op::Op;
use crate::{Mode, Result};
use rustix::io::Errno;
use vfs::{Kind, Node, OpenFlags};

/// What waits for a last close.
const LAZY: u64 = LIVE_DIRTY | LIVE_BEYOND | LIVE_MAPPED | LIVE_SCATTERED;

/// What a sync promises besides data and size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing: `fdatasync`.
    Data,
    /// Times: `fsync`.
    Times,
}

impl Opens {
    /// Makes what was written durable, sizes and times included. Everything but files is durable
    /// anyway.
    pub(crate) fn sync_file(&self, node: Node) -> Result<()> {
        self.sync_range(node, 0, u64::MAX)
    }

    /// What is to be done behind a write through a description with these flags.
    #[inline]
    pub(crate) fn write_through(&self, node: Node, flags: OpenFlags) -> Result<()> {
        // In the other modes what was written is durable already.
        let wanted = flags.0 & libc::O_DSYNC != 0;
        if wanted && self.mode == Mode::Posix { self.sync_file(node) } else { Ok(()) }
    }

    /// As [`Opens::sync_file`], but of the stores through mappings only those to `[from, to)`.
    pub(crate) fn sync_range(&self, node: Node, from: u64, to: u64) -> Result<()> {
        if !self.region.needs_sync()
            && let Some(sequence) = self.without(node, LIVE_DIRTY | LIVE_STORED)?
        {
            self.note_synced(Inode(node.ino), sequence);
            return Ok(());
        }
        // The clock of times stands still for milliseconds: often only the mark is new.
        if self.is_durable(node, Promise::Times) == Ok(true) {
            return Ok(());
        }
        // Steadily: the identity line may be changing.
        let (inode, kind) = self.read_steadily(node, |inode, id| Ok((inode, id.kind())))?;
        let file = kind == Some(Kind::File) && !self.is_read_only();
        if file && self.current(inode)?.flags & (LIVE_DIRTY | LIVE_STORED) != 0 {
            let _exclusive = self.exclusive();
            let mut op = self.begin()?;
            let file = self.work_on(&mut op, node)?;
            if file.current.flags & LIVE_STORED != 0 {
                self.flush_stores(&mut op, &file, from, to)?;
            }
            if file.current.flags & LIVE_DIRTY != 0 {
                let Sizing { inode, generation, commit } = file.sizing(&file.current);
                op.announce_line(inode.at(COMMIT))?;
                // PERSIST: the call that moved the size fenced bytes and words below it; so the
                // slot, and what was stored through mappings, go in any order. The fence is the
                // end's.
                let stored = self.store_slot(inode, generation, commit)?;
                op.pend(stored);
                let _ = op.fence();
                self.publish_current(&file, file.current, true, 0)?;
            }
            op.end()?;
            self.note_synced_now(inode)?;
        }
        self.region.sync_file().map_err(|_| Errno::IO)
    }

    /// Whether, by a look, what a sync promises is so already: of `fdatasync` nothing but times may
    /// be newer than the commit line, of `fsync` nothing. `false` says nothing.
    pub(crate) fn is_durable(&self, node: Node, promise: Promise) -> Result<bool> {
        let inode = self.inode(node.ino)?;
        let live = self.live_lines(inode)?;
        let Some((current, sequence)) = live.current(self.epoch)? else { return Ok(false) };
        if self.region.needs_sync() || current.flags & (LIVE_STORED | LIVE_DAMAGED) != 0 {
            return Ok(false);
        }
        let lazy = current.flags & LIVE_DIRTY != 0 && {
            let commit = self.commit_line(inode, node.generation)?.0;
            let written = (commit.flags & COMMIT_WRITTEN != 0, current.flags & LIVE_WRITTEN != 0);
            let times = commit.mtime == current.mtime && written.0 == written.1;
            commit.size != current.size || promise == Promise::Times && !times
        };
        let durable = !lazy
            && self.is_still(inode, node.generation).is_ok()
            && self.sequence(inode)? == sequence;
        if durable {
            self.note_synced(inode, sequence);
        }
        Ok(durable)
    }

    /// The sequence number under which, by a look, a node has none of these volatile flags; `None`
    /// says nothing.
    fn without(&self, node: Node, flags: u64) -> Result<Option<u64>> {
        let inode = self.inode(node.ino)?;
        let at = (inode, &self.live_lines(inode)?);
        Ok(self.looked_at(at, node.generation, flags)?.map(|(sequence, _)| sequence))
    }

    /// Whether, by a look, the inode is of this generation and has a name, and nothing of it waits
    /// for its last close; `false` says nothing.
    #[inline]
    pub(crate) fn is_at_rest(&self, at: (Inode, &Live<'_>), generation: u32) -> Result<bool> {
        Ok(self.looked_at(at, generation, LAZY)?.is_some_and(|(_, names)| names != 0))
    }

    /// As [`Opens::without`], with the number of the node's names.
    #[inline]
    fn looked_at(
        &self,
        (inode, live): (Inode, &Live<'_>),
        generation: u32,
        flags: u64,
    ) -> Result<Option<(u64, u32)>> {
        let sequence = live.0.load(index(SEQUENCE))?;
        let lacks = sequence & 1 == 0
            && live.is_ready(self.epoch)?
            && live.flags()? & (flags | LIVE_DAMAGED) == 0;
        if !lacks {
            return Ok(None);
        }
        let names = self.names_of(inode, generation)?;
        // A change begun since may have cleared a flag before what that says is durable.
        let same = live.0.load(index(SEQUENCE))? == sequence;
        Ok(names.filter(|_| same).map(|names| (sequence, names)))
    }

    /// The last description of a file that still has a name is closed: commits what is lazy, cuts
    /// off what was attached ahead, forgets that it was mapped. `ESTALE` if it has been unlinked,
    /// and so freed, by another process meanwhile.
    pub(crate) fn last_close(&self, node: Node) -> Result<()> {
        let waits = self.read_steadily(node, |inode, identity| {
            let file = identity.kind() == Some(Kind::File);
            Ok(file && self.current(inode)?.flags & LAZY != 0)
        })?;
        if !waits || self.is_read_only() {
            return Ok(());
        }
        let mut op = self.begin()?;
        let file = self.work_on(&mut op, node)?;
        if self.opens(file.inode)? > 0 {
            // Another process or thread opened it meanwhile, and will close it.
            return op.end();
        }
        let keep = file.identity.flags & FLAG_KEEP != 0;
        let cuts = file.current.flags & (LIVE_BEYOND | LIVE_MAPPED) != 0 && !keep;
        self.commit_lazy(&mut op, &file, cuts)?;
        op.end()?;
        if file.current.flags & (LIVE_MAPPED | LIVE_SCATTERED) != 0 {
            self.due.note_closed(node.ino);
        }
        Ok(())
    }

    /// Commits a size that is newer than the durable one and cuts off what lies beyond the end, as
    /// recovery finds them when every process has died.
    pub(crate) fn recover_end(&self, inode: Inode) -> Result<()> {
        let identity = self.identity(inode)?;
        // Before the lock: its first holder in this epoch begins with the durable size.
        let lazy = self.left_size(inode, identity.generation)?;
        let mut op = self.begin()?;
        let mut file =
            self.work_on(&mut op, Node { ino: inode.0, generation: identity.generation })?;
        if let Some((size, mtime)) = lazy {
            let flags = file.current.flags | LIVE_DIRTY | LIVE_WRITTEN;
            file.current = Current { size, mtime, ctime: mtime, flags };
        }
        if injected(Bug::RecoveryTouchesTimes) {
            file.current.mtime = crate::medium::now();
            file.current.flags |= LIVE_DIRTY;
        }
        self.commit_lazy(&mut op, &file, identity.flags & FLAG_KEEP == 0)?;
        op.end()
    }
}

impl Opens {
    /// Commits size and times, and cuts off what lies beyond the end if `cuts`.
    fn commit_lazy<'v>(&'v self, op: &mut Op<'v>, file: &File<'v>, cuts: bool) -> Result<()> {
        let mut delta = 0;
        let mut current = file.current;
        let cut = if cuts { Some(self.plan_cut(op, file, current.size)?) } else { None };
        if current.flags & LIVE_DIRTY != 0 {
            self.publish_size(op, &file.sizing(&current))?;
        }
        if let Some(cut) = cut {
            // PERSIST: as in `truncate.rs`: behind a durable size, before the fence of [`Op::end`].
            op.keep_allocated();
            self.store_loose(op, &cut)?;
            delta = cut.delta;
        }
        if current.flags & LIVE_STORED != 0 {
            self.flush_stores(op, file, 0, current.size)?;
        }
        current.flags &= !(LIVE_BEYOND | LIVE_MAPPED | LIVE_SCATTERED | LIVE_STORED);
        self.publish_current(file, current, true, delta)
    }
}
