//! Attributes: what `stat` tells, and changes, each one transaction over the identity line, the
//! commit line and the access time.

use crate::Result;
use crate::inode::{Inode, LIVE_PRIVILEGED, live_privileged};
use crate::medium::layout::Identity;
use crate::medium::layout::{ATIME, DIRECT};
use crate::namespace::Names;
use crate::txn::locked_inodes::Store;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Attr, Kind, Node, SetAttr};

/// Blocks that are counted anew for each `stat`; more are remembered.
const COUNTED_MAX: u64 = DIRECT;

/// The bits of a mode that can be changed.
const PERMISSIONS: u32 = 0o7777;

impl Names {
    /// What `stat` tells.
    pub(crate) fn attributes(&self, node: Node) -> Result<Attr> {
        let mut attr = Attr::NONE;
        self.attributes_to(node, &mut attr).map(|()| attr)
    }

    /// The same, written to `attr`.
    #[inline]
    pub(crate) fn attributes_to(&self, node: Node, attr: &mut Attr) -> Result<()> {
        if self.cached_attributes(node, attr) {
            attr.atime = self.access_time(Inode(node.ino))?;
            return Ok(());
        }
        self.read_attributes(node, attr)
    }

    /// Blocks that an inode holds (`st_blocks`): of a directory its nodes and buckets.
    pub(crate) fn blocks_of(&self, inode: Inode, identity: &Identity) -> Result<u64> {
        match self.known_blocks(inode)? {
            Some(count) => Ok(count),
            None if identity.kind() == Some(Kind::Directory) => {
                self.directory_blocks(inode, identity)
            }
            None => self.count_blocks(inode, identity),
        }
    }

    /// Moves the count of a directory's blocks; lock holder only, after the change.
    pub(crate) fn adjust_directory(
        &self,
        inode: Inode,
        identity: &Identity,
        delta: i64,
    ) -> Result<()> {
        self.move_count(inode, delta, || self.directory_blocks(inode, identity))
    }

    /// Leaves the count of blocks for the next call that asks; under the lock, since the inode may
    /// be going.
    fn remember_blocks(&self, node: Node) -> Result<()> {
        let mut op = self.begin_any()?;
        op.lock(&[self.inode_of(node)?])?;
        let (inode, identity) = self.identity_of(node)?;
        self.move_count(inode, 0, || self.blocks_of(inode, &identity))?;
        op.end()
    }

    /// The same, as they are now.
    fn read_attributes(&self, node: Node, attr: &mut Attr) -> Result<()> {
        let (mut counted, mut flags) = (false, 0);
        let before = self.sequence_of(node);
        // Written where they are wanted: a copy would wait for the stores of their parts.
        self.read_steadily(node, |inode, identity| {
            let kind = identity.kind().ok_or(Errno::IO)?;
            counted = self.known_blocks(inode)?.is_none();
            flags = identity.flags;
            let current = self.current(inode)?;
            let nlink = match kind {
                Kind::Directory if identity.nlink > 0 => {
                    2 + self.commit_line(inode, identity.generation)?.0.aux
                }
                _ => identity.nlink,
            };
            *attr = Attr {
                node,
                kind,
                mode: identity.mode & 0o7777,
                nlink,
                uid: identity.uid,
                gid: identity.gid,
                rdev: libc::makedev(identity.rdev_major, identity.rdev_minor),
                size: current.size,
                blocks: self.blocks_of(inode, identity)? * 8,
                atime: self.access_time(inode)?,
                mtime: current.mtime,
                ctime: current.ctime,
                btime: identity.btime,
            };
            Ok(())
        })?;
        if counted && attr.blocks > COUNTED_MAX * 8 {
            // What was read stands, even if the inode is gone by now.
            self.remember_blocks(node).or_else(|errno| match errno {
                Errno::STALE => Ok(()),
                other => Err(other),
            })?;
        }
        self.remember_attributes(attr, flags, before);
        Ok(())
    }

    /// Changes mode, owner, group and times in one atomic step; the change time moves with them.
    pub(crate) fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        if *change == SetAttr::default() {
            return self.read_steadily(node, |_, _| Ok(()));
        }
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        if op.work_beside_records()? {
            // Its own record is void by the next one, if there is to be one.
            op.void_locked_redos(held.is_file() && change.atime.is_none())?;
            held = self.held(node)?;
        }
        held.touch();
        let identity = &mut held.identity;
        if let Some(mode) = change.mode {
            identity.mode = identity.mode & !PERMISSIONS | mode & PERMISSIONS;
            held.current.flags |= live_privileged(identity.mode);
        }
        identity.uid = change.uid.unwrap_or(identity.uid);
        identity.gid = change.gid.unwrap_or(identity.gid);
        if let Some(time) = change.mtime {
            held.commit.mtime = time;
            held.current.mtime = time;
        }
        let mut words: SmallVec<[Store; 1]> = SmallVec::new();
        if let Some(time) = change.atime {
            words.push(Store { at: held.inode.at(ATIME), value: time as u64 });
        }
        self.commit_held(&mut op, &[&held], &words, &[])?;
        op.end()
    }

    // ---- set-id bits and capabilities of files that are written to ------------------------------

    /// Whether a file may have such, by a look.
    #[inline]
    pub(crate) fn may_be_privileged(&self, node: Node) -> Result<bool> {
        let live = self.live_lines(Inode(node.ino))?;
        Ok(live.flags()? & LIVE_PRIVILEGED != 0 || !live.is_ready(self.epoch)?)
    }

    /// Whether a regular file is marked as one that has such.
    pub(crate) fn is_privileged(&self, node: Node) -> Result<bool> {
        let (inode, identity) = self.identity_of(node)?;
        let privileged = self.current(inode)?.flags & LIVE_PRIVILEGED != 0;
        Ok(privileged && identity.kind() == Some(Kind::File))
    }

    /// Takes the flag from a file that has no such bits and attributes (any more).
    pub(crate) fn look_at_privileges(&self, node: Node) -> Result<()> {
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        op.work()?;
        if live_privileged(held.identity.mode) == 0 && !self.has_capabilities(&held) {
            held.current.flags &= !LIVE_PRIVILEGED;
            self.set_current(held.inode, &held.current)?;
        }
        op.end()
    }
}
