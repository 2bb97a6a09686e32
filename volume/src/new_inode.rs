//! New inodes, and the targets of symlinks.
//!
//! A symlink's target of up to 96 bytes lies where a file has its direct map words; a longer one in
//! one metadata block that the first of those words names. Its checksum is in the commit line.

use crate::Result;
use crate::ground::layout::{
    ATIME, BLOCK, COMMIT, COMMIT_WRITTEN, Commit, DIRECT, FLAG_ALIGNED, Identity, LINE, VOLATILE,
    WORDS,
};
use crate::ground::word::{Key, Word};
use crate::inode::Inode;
use crate::txn::held::Held;
use crate::txn::op::Op;
use crate::volume::{Volume, now};
use rustix::io::Errno;
use vfs::{Attr, Kind, NewNode, Node};
use zerocopy::IntoBytes;

/// Longest target inside the inode.
const INLINE_MAX: usize = (DIRECT * 8) as usize;
/// Longest target.
const TARGET_MAX: usize = BLOCK as usize - 1;

impl Volume {
    /// A generation: not 0, and unlikely to have been this inode's before. `count` is no other's in
    /// this epoch.
    pub(crate) fn generation(&self, count: u64) -> u32 {
        ((count as u32).wrapping_add(1) ^ self.epoch.wrapping_mul(0x9E37_79B9)).max(1)
    }

    /// Remembers the attributes of a new, empty file.
    fn enter_new(&self, inode: Inode, identity: &Identity) -> Result<()> {
        let attr = Attr {
            node: Node { ino: inode.0, generation: identity.generation },
            kind: Kind::File,
            mode: identity.mode & 0o7777,
            nlink: identity.nlink,
            uid: identity.uid,
            gid: identity.gid,
            rdev: libc::makedev(identity.rdev_major, identity.rdev_minor),
            size: 0,
            blocks: 0,
            atime: 0,
            mtime: identity.ctime,
            ctime: identity.ctime,
            btime: identity.btime,
        };
        self.enter_attributes(&attr, self.sequence(inode)?);
        Ok(())
    }

    /// Copies a symlink's target to `out`, up to its length; gives the target's whole length.
    pub(crate) fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        self.read_steadily(node, |inode, identity| self.read_target(inode, identity, out))
    }

    /// As [`Volume::read_link`], for a caller that has seen to it that the inode does not change.
    pub(crate) fn read_target(
        &self,
        inode: Inode,
        identity: &Identity,
        out: &mut [u8],
    ) -> Result<usize> {
        if identity.kind() != Some(Kind::Symlink) {
            return Err(Errno::INVAL);
        }
        let (commit, _) = self.commit_line(inode, identity.generation)?;
        let length = commit.size as usize;
        if length == 0 || length > TARGET_MAX {
            return Err(Errno::IO);
        }
        let mut target = [0; TARGET_MAX];
        let at = match self.symlink_block(inode, identity)? {
            Some(block) => block * BLOCK,
            None => inode.at(WORDS),
        };
        self.region.read(at, &mut target[..length])?;
        if crc32c::crc32c(&target[..length]) != commit.aux {
            return Err(Errno::IO);
        }
        let copied = length.min(out.len());
        out[..copied].copy_from_slice(&target[..copied]);
        Ok(length)
    }

    /// The block of a symlink's long target; `None` if the target is in the inode.
    fn symlink_block(&self, inode: Inode, identity: &Identity) -> Result<Option<u64>> {
        let (commit, _) = self.commit_line(inode, identity.generation)?;
        if commit.size <= INLINE_MAX as u64 {
            return Ok(None);
        }
        let stored = self.region.load64(inode.at(WORDS))?;
        let word = self.open_word(stored, target_key(inode, identity.generation))?;
        word.map(|word| Some(word.block)).ok_or(Errno::IO)
    }
}

/// The check key of the word that names a long target's block: as that of a file's first block.
fn target_key(inode: Inode, generation: u32) -> Key {
    Key { ino: inode.0, generation, position: 0 }
}

/// The flags that a new node has from the directory in which it is made.
pub(crate) fn inherited(kind: Kind, parent: &Identity) -> u16 {
    if kind == Kind::File { parent.flags & FLAG_ALIGNED } else { 0 }
}

fn check_new(new: &NewNode<'_>) -> Result<()> {
    match (new.kind, new.target.len()) {
        (Kind::Symlink, 0) => Err(Errno::NOENT),
        (Kind::Symlink, length) if length > TARGET_MAX => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}

impl Op<'_> {
    /// Takes and fills an inode that nothing reaches yet and that will get a name in `parent`. Its
    /// lines are pended: a fence must come before anything leads to it.
    pub(crate) fn new_inode(&mut self, new: &NewNode<'_>, parent: &Held) -> Result<Node> {
        let flags = inherited(new.kind, &parent.identity);
        let mut identity = Identity { nlink: 1, flags, ..Identity::default() };
        if new.kind == Kind::Directory {
            identity.parent = parent.inode.0;
            identity.parent_generation = parent.identity.generation;
        }
        self.fill_inode(new, identity)
    }

    /// Takes and fills an inode without a name (`O_TMPFILE`), with these `FLAG_*`.
    /// The operation must open it before it ends: what nobody reaches or holds open is swept away.
    pub(crate) fn new_unnamed_inode(&mut self, new: &NewNode<'_>, flags: u16) -> Result<Node> {
        let node = self.fill_inode(new, Identity { flags, ..Identity::default() })?;
        // PERSIST: the inode before anything is written to the file.
        self.fence();
        Ok(node)
    }

    fn fill_inode(&mut self, new: &NewNode<'_>, identity: Identity) -> Result<Node> {
        check_new(new)?;
        let volume = self.volume;
        let inode = volume.allocate_inode(self)?;
        let generation = volume.generation(self.record.generation(volume)?);
        let time = now();
        let identity = Identity {
            generation,
            mode: new.kind.mode_bits() | new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            rdev_major: libc::major(new.rdev),
            rdev_minor: libc::minor(new.rdev),
            btime: time,
            ctime: time,
            ..identity
        };
        let mut commit =
            Commit { mtime: time, flags: COMMIT_WRITTEN, sequence: 1, ..Commit::default() };
        let mut image = [0; VOLATILE as usize];
        if new.kind == Kind::Symlink {
            commit.size = new.target.len() as u64;
            commit.aux = crc32c::crc32c(new.target);
            self.store_target(inode, generation, new.target, &mut image[WORDS as usize..])?;
        }
        let identity = identity.sealed(inode);
        image[..LINE as usize].copy_from_slice(identity.as_bytes());
        let commit = commit.sealed(inode, generation);
        image[COMMIT as usize..COMMIT as usize + 32].copy_from_slice(commit.as_bytes());
        image[ATIME as usize..ATIME as usize + 8].copy_from_slice(&time.to_le_bytes());
        // First what is volatile: its atomic instructions would wait for what is in flight.
        let number = self.record.sequence(volume)?;
        volume.prepare_volatile(inode, number, &(identity, commit))?;
        let stored = volume.region.stream(inode.offset(), &image)?;
        self.pend(stored);
        if new.kind == Kind::File {
            volume.enter_new(inode, &identity)?;
        }
        Ok(Node { ino: inode.0, generation })
    }

    /// Puts a symlink's target into the inode's `words`, or into a block that the first of them
    /// names.
    fn store_target(
        &mut self,
        inode: Inode,
        generation: u32,
        target: &[u8],
        words: &mut [u8],
    ) -> Result<()> {
        if target.len() <= INLINE_MAX {
            words[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        let block = self.metadata_block()?;
        let stored = self.volume.region.stream(block * BLOCK, target)?;
        self.pend(stored);
        let word = Word { block, kind: 0, unwritten: false };
        let sealed = word.sealed(target_key(inode, generation));
        words[..8].copy_from_slice(&sealed.to_le_bytes());
        Ok(())
    }
}
