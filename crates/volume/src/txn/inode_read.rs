//! Looks at an inode that takes no lock, or takes it: to initialise the volatile lines at their
//! first use in an epoch, and where the inode changes all the time.
//!
//! Locks: the inode's, for a moment; so an operation that holds it does not come here.

use crate::Result;
use crate::inode::in_place::{Blocks, Numbers};
use crate::inode::references::{Maker, OPENS_COUNT, OPENS_DEAD};
use crate::inode::{Current, Inode, LIVE_DAMAGED, Live, READY, SEQUENCE, index};
use crate::medium::layout::Identity;
use crate::txn::Operations;
use rustix::io::Errno;
use vfs::Node;

/// Retries of a lock-free read before it takes the lock.
const RETRIES: u32 = 8;

impl Operations {
    fn ensure_used(&self, inode: Inode) -> Result<()> {
        if self.is_ready(inode)? {
            return Ok(());
        }
        let mut op = self.begin_any()?;
        op.lock(&[inode])?;
        op.end()
    }

    /// What is current about the inode. `EIO` if it was damaged when it was first used.
    pub(crate) fn current(&self, inode: Inode) -> Result<Current> {
        self.current_and_sequence(inode).map(|found| found.0)
    }

    /// The same, with the sequence number.
    #[inline]
    pub(crate) fn current_and_sequence(&self, inode: Inode) -> Result<(Current, u64)> {
        let mut words = self.live_line(inode)?.words()?;
        if words[index(READY)] != u64::from(self.epoch) {
            self.ensure_used(inode)?;
            words = self.live_line(inode)?.words()?;
        }
        let [_, sequence, size, mtime, ctime, _, flags, _] = words;
        if flags & LIVE_DAMAGED != 0 {
            return Err(Errno::IO);
        }
        let (mtime, ctime) = (mtime as i64, ctime as i64);
        Ok((Current { size, mtime, ctime, flags }, sequence))
    }

    /// Runs `read` under a sequence number that did not move: what it saw belongs together. After
    /// some retries it takes the lock. An error counts only if nothing moved. `ESTALE` if the node
    /// is another object by now.
    pub(crate) fn read_steadily<T>(
        &self,
        node: Node,
        mut read: impl FnMut(Inode, &Identity) -> Result<T>,
    ) -> Result<T> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        self.ensure_used(inode)?;
        let line = self.live_line(inode)?;
        for _ in 0..RETRIES {
            let before = line.load(index(SEQUENCE))?;
            if before & 1 == 0 {
                let result = self.identity_of(node).and_then(|(_, id)| read(inode, &id));
                if line.load(index(SEQUENCE))? == before {
                    return result;
                }
            }
            std::hint::spin_loop();
        }
        self.read_locked(node, inode, read)
    }

    #[cold]
    fn read_locked<T>(
        &self,
        node: Node,
        inode: Inode,
        mut read: impl FnMut(Inode, &Identity) -> Result<T>,
    ) -> Result<T> {
        let mut op = self.begin_any()?;
        op.lock(&[inode])?;
        let result = self.identity_of(node).and_then(|(_, id)| read(inode, &id));
        op.end()?;
        result
    }

    /// As [`Operations::read_steadily`], of so many bytes from an offset of a file, its size and
    /// its map: changes in place of other blocks than those are no matter.
    pub(crate) fn read_beside<T>(
        &self,
        node: Node,
        (offset, length): (u64, u64),
        mut read: impl FnMut(Inode, &Identity) -> Result<T>,
    ) -> Result<T> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        self.ensure_used(inode)?;
        let (live, blocks) = (self.live_lines(inode)?, Blocks::of(offset, length));
        for _ in 0..RETRIES {
            let before = live.sequence()?;
            let known = before & !1;
            let now = Numbers { known, before, behind: before };
            if before == known || live.has_passed(now, blocks)? {
                let result = self.identity_of(node).and_then(|(_, id)| read(inode, &id));
                let behind = live.sequence()?;
                if behind == known || live.has_passed(Numbers { behind, ..now }, blocks)? {
                    return result;
                }
            }
            std::hint::spin_loop();
        }
        self.read_locked(node, inode, read)
    }

    /// Adds the reference of the description that `maker` names; `ESTALE` if the inode is being
    /// freed.
    #[inline]
    pub(crate) fn add_open(&self, (inode, live): (Inode, &Live<'_>), maker: Maker) -> Result<()> {
        if !live.is_ready(self.epoch)? {
            self.ensure_used(inode)?;
        }
        self.change_opens(live, maker, false).map(drop)
    }

    /// The description that changed the references last.
    pub(crate) fn last_maker(&self, inode: Inode) -> Result<Maker> {
        self.ensure_used(inode)?;
        Ok(Maker::of_word(self.opens_word(inode)?))
    }

    /// References now.
    pub(crate) fn opens(&self, inode: Inode) -> Result<u64> {
        self.ensure_used(inode)?;
        Ok(self.opens_word(inode)? & OPENS_COUNT)
    }

    /// Whether the inode is closed for opens for good.
    pub(crate) fn is_freed(&self, inode: Inode) -> Result<bool> {
        self.ensure_used(inode)?;
        Ok(self.opens_word(inode)? & OPENS_DEAD != 0)
    }
}
