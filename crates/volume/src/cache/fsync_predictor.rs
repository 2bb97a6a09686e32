//! Which files a thread makes durable behind each of its writes: a guess of what it will do next.
//!
//! In mode `posix` the end of a file that grows is committed by `fsync`, by an operation of its
//! own. Where the file has not changed since this thread's last `fsync` of it, the next one is
//! likely to come behind the next append; so that append commits at once, as in the other modes, by
//! the fence that it waits for anyway, and the `fsync` finds by a look that nothing is left to do.
//! A file that is not synced behind an append is not in the table any more: its number has moved
//! on.
//!
//! Nothing depends on what stands here but the way: an entry is a sequence number (of a volume,
//! none is that of two inodes, and none comes twice in an epoch; those of several volumes of a
//! process can be mistaken for each other), and a wrong guess commits earlier, or later, than it
//! might.
//!
//! Locks: none. Persistence: none.

use crate::cache::Caches;
use crate::inode::{Inode, LIVE_DIRTY};
use crate::{Mode, Result};
use std::cell::Cell;

/// Files of a thread that are remembered at most.
const ENTRIES: usize = 16;

thread_local! {
    static SYNCED: [Cell<u64>; ENTRIES] = const { [const { Cell::new(0) }; ENTRIES] };
}

/// The place of an inode's entry.
const fn place(inode: Inode) -> usize {
    (inode.0 ^ inode.0 >> 4) as usize % ENTRIES
}

impl Caches {
    /// This thread has made an inode durable as it was under an even sequence number.
    #[inline]
    pub(crate) fn note_synced(&self, inode: Inode, sequence: u64) {
        if self.mode == Mode::Posix {
            SYNCED.with(|synced| synced[place(inode)].set(sequence));
        }
    }

    /// As [`Files::note_synced`], as it is now.
    pub(crate) fn note_synced_now(&self, inode: Inode) -> Result<()> {
        self.note_synced(inode, self.sequence(inode)?);
        Ok(())
    }
}

/// Whether a size that grows is committed at once, by who holds the lock of an inode that had this
/// sequence number, even or odd by now, and these flags.
#[inline]
pub(crate) fn commits_at_once(mode: Mode, inode: Inode, sequence: u64, flags: u64) -> bool {
    mode != Mode::Posix
        || flags & LIVE_DIRTY == 0
            && SYNCED.with(|synced| synced[place(inode)].get() == sequence & !1)
}

#[cfg(test)]
mod tests {
    use crate::Mode;
    use crate::data::plan::Position;
    use crate::inode::{Inode, LIVE_DIRTY};
    use crate::testing::{file, root, volume};
    use pmem::UserIn;
    use vfs::FileSystem;

    #[test]
    fn an_append_behind_a_sync_commits_and_one_behind_an_append_does_not() {
        let volume = volume(Mode::Posix, 16);
        let node = FileSystem::create(&*volume, root(&volume), b"log", &file()).unwrap();
        let mut size = 0;
        // Into fresh blocks, into the last one, over its end.
        for length in [4096, 4096, 100, 64, 9000, 1, 300_000, 64] {
            let append = |bytes: &[u8]| {
                volume.write_file(node, Position::End, &[UserIn::new(bytes)]).unwrap();
                volume.current(Inode(node.ino)).unwrap()
            };
            let durable = || {
                let commit = volume.commit_line(Inode(node.ino), node.generation).unwrap().0;
                commit.size
            };
            volume.sync_file(node).unwrap();
            assert_eq!(durable(), size);
            size += length;
            let current = append(&vec![7; length as usize]);
            assert_eq!((current.size, current.flags & LIVE_DIRTY), (size, 0), "{length}");
            assert_eq!(durable(), size, "{length}");
            let lazy = append(&vec![8; length as usize]);
            assert_ne!(lazy.flags & LIVE_DIRTY, 0, "{length}");
            assert_eq!(durable(), size, "{length}");
            size += length;
        }
    }
}
