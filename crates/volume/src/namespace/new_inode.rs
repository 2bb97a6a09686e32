//! New inodes, and the targets of symlinks.
//!
//! A symlink's target of up to 96 bytes lies where a file has its direct map words; a longer one in
//! one metadata block that the first of those words names. Its checksum is in the commit line.

use crate::Result;
use crate::cache::Target;
use crate::inode::Inode;
use crate::medium::layout::{
    ATIME, BLOCK, COMMIT_WRITTEN, Commit, DIRECT, FLAG_ALIGNED, Identity, LINE, VOLATILE, WORDS,
};
use crate::medium::map_word::{Key, Word};
use crate::medium::now;
use crate::namespace::Names;
use crate::txn::locked_inodes::Held;
use crate::txn::op::Op;
use crate::txn::record::Record;
use pmem::InFlight;
use rustix::io::Errno;
use vfs::{Kind, NewNode, Node};
use zerocopy::IntoBytes;

/// Longest target inside the inode.
pub(super) const INLINE_MAX: usize = (DIRECT * 8) as usize;
/// Longest target.
const TARGET_MAX: usize = BLOCK as usize - 1;

impl Names {
    /// A generation: not 0, and unlikely to have been this inode's before. `count` is no other's in
    /// this epoch.
    pub(crate) fn generation(&self, count: u64) -> u32 {
        ((count as u32).wrapping_add(1) ^ self.epoch.wrapping_mul(0x9E37_79B9)).max(1)
    }

    /// Copies a symlink's target to `out`, up to its length; gives the target's whole length.
    pub(crate) fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        self.read_steadily(node, |inode, identity| self.read_target(inode, identity, out))
    }

    /// As [`Names::read_link`], for a caller that has seen to it that the inode does not change.
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
pub(crate) fn inherited(kind: Kind, parent: u16) -> u16 {
    if kind == Kind::File { parent & FLAG_ALIGNED } else { 0 }
}

/// Checks what is to be made.
pub(super) fn check_new(new: &NewNode<'_>) -> Result<()> {
    match (new.kind, new.target.len()) {
        (Kind::Symlink, 0) => Err(Errno::NOENT),
        (Kind::Symlink, length) if length > TARGET_MAX => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}

/// Whether all of a new node has room in its inode.
pub(super) fn is_inline(new: &NewNode<'_>) -> bool {
    new.kind != Kind::Symlink || new.target.len() <= INLINE_MAX
}

/// An inode that is made: what will be stored into its lines.
pub(super) struct NewInode<'a> {
    inode: Inode,
    kind: Kind,
    identity: Identity,
    commit: Commit,
    /// The sequence number that it begins with; no other inode's in this epoch.
    number: u64,
    /// A symlink's target, and the block that holds it, or 0.
    link: (&'a [u8], u64),
}

impl<'a> NewInode<'a> {
    /// An inode that nothing reaches yet, with numbers of this record's. Flags, names and parent
    /// are those of `like`.
    #[expect(clippy::inline_always, reason = "what is made is long, and made where it stays")]
    #[inline(always)]
    pub(super) fn new(
        volume: &Names,
        record: &Record<'_>,
        inode: Inode,
        new: &NewNode<'a>,
        time: i64,
        like: Identity,
    ) -> Result<Self> {
        let generation = volume.generation(record.generation(volume)?);
        let number = record.sequence(volume)? << 32;
        let identity = Identity {
            generation,
            mode: new.kind.mode_bits() | new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            rdev_major: libc::major(new.rdev),
            rdev_minor: libc::minor(new.rdev),
            btime: time,
            ctime: time,
            ..like
        };
        let mut commit =
            Commit { mtime: time, flags: COMMIT_WRITTEN, sequence: 1, ..Commit::default() };
        if new.kind == Kind::Symlink {
            commit.size = new.target.len() as u64;
            commit.aux = crc32c::crc32c(new.target);
        }
        let (identity, commit) = (identity.sealed(inode), commit.sealed(inode, generation));
        Ok(Self { inode, kind: new.kind, identity, commit, number, link: (new.target, 0) })
    }

    /// What a name of it leads to.
    #[inline]
    pub(super) fn target(&self) -> Target {
        let node = Node { ino: self.inode.0, generation: self.identity.generation };
        Target { node, kind: self.kind }
    }

    /// When it is made.
    pub(super) fn time(&self) -> i64 {
        self.commit.mtime
    }

    /// Stores its lines: in flight. Nobody can reach it.
    #[inline]
    pub(super) fn store<'v>(&self, volume: &'v Names) -> Result<InFlight<'v>> {
        let &Self { inode, identity, commit, number, .. } = self;
        let time = commit.mtime.cast_unsigned();
        // First what is volatile: its atomic instructions would wait for what is in flight.
        if self.kind == Kind::File {
            volume.enter_new_file(inode.0, &identity, number);
        }
        let slots: [u64; LINE_WORDS] = zerocopy::transmute!([commit, Commit::default()]);
        volume.store_new_live(inode, number, (commit.size, time, identity.mode), &slots)?;
        let mut image = [0_u64; VOLATILE as usize / 8];
        image[..LINE_WORDS].copy_from_slice(&zerocopy::transmute!(identity) as &[u64; LINE_WORDS]);
        image[LINE_WORDS..2 * LINE_WORDS].copy_from_slice(&slots);
        image[ATIME as usize / 8] = time;
        if self.kind == Kind::Symlink {
            self.put_target(&mut image[WORDS as usize / 8..]);
        }
        Ok(volume.region.stream(inode.offset(), image.as_bytes())?)
    }

    /// Puts a symlink's target into the inode's `words`, or the word that names its block.
    fn put_target(&self, words: &mut [u64]) {
        let (target, block) = self.link;
        if block == 0 {
            words.as_mut_bytes()[..target.len()].copy_from_slice(target);
        } else {
            let word = Word { block, kind: 0, unwritten: false };
            words[0] = word.sealed(target_key(self.inode, self.identity.generation));
        }
    }
}

/// Words of a line.
const LINE_WORDS: usize = (LINE / 8) as usize;

impl Names {
    /// Takes an inode for a node that will get a name in `parent`.
    pub(super) fn new_inode<'v, 'a>(
        &'v self,
        op: &mut Op<'v>,
        new: &NewNode<'a>,
        parent: &Held,
    ) -> Result<NewInode<'a>> {
        let flags = inherited(new.kind, parent.identity.flags);
        let mut like = Identity { nlink: 1, flags, ..Identity::default() };
        if new.kind == Kind::Directory {
            like.parent = parent.inode.0;
            like.parent_generation = parent.identity.generation;
        }
        self.take_inode(op, new, like)
    }

    /// Takes and fills an inode without a name (`O_TMPFILE`), with these `FLAG_*`.
    /// The operation must open it before it ends: what nobody reaches or holds open is swept away.
    pub(crate) fn new_unnamed_inode<'v>(
        &'v self,
        op: &mut Op<'v>,
        new: &NewNode<'_>,
        flags: u16,
    ) -> Result<Node> {
        let made = self.take_inode(op, new, Identity { flags, ..Identity::default() })?;
        op.pend(made.store(self)?);
        // PERSIST: the inode before anything is written to the file.
        op.fence();
        Ok(made.target().node)
    }

    fn take_inode<'v, 'a>(
        &'v self,
        op: &mut Op<'v>,
        new: &NewNode<'a>,
        like: Identity,
    ) -> Result<NewInode<'a>> {
        check_new(new)?;
        let inode = self.allocate_inode(op)?;
        let mut made = NewInode::new(self, &op.record, inode, new, now(), like)?;
        if !is_inline(new) {
            made.link.1 = self.metadata_block(op)?;
            let stored = self.region.stream(made.link.1 * BLOCK, new.target)?;
            op.pend(stored);
        }
        Ok(made)
    }
}
