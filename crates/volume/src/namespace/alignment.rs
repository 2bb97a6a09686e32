//! The wish to lie in whole aligned chunks, as an extended attribute that travels with a file
//! (`WineFS`, section 5.5, "Supporting extended attributes for preserving alignment of files").
//!
//! `user.solera.align` with the value `2M` says that a file shall lie in whole chunks, however its
//! bytes came: it is rewritten (`rewrite.rs`) when the attribute is set, as copying programs do
//! last of all, and behind a last close after blocks were added. A directory that has it passes it
//! on to the regular files that are made in it from then on, not to subdirectories. It is taken
//! away like any attribute.
//!
//! It is no entry among the other attributes but a bit of the inode's identity ([`FLAG_ALIGNED`]):
//! so inheriting costs nothing, and a writer sees it without a search. Locks: the inode's.

use crate::Result;
use crate::medium::layout::FLAG_ALIGNED;
use crate::namespace::Names;
use rustix::io::Errno;
use vfs::{Kind, Node};

/// The attribute's name.
pub(crate) const NAME: &[u8] = b"user.solera.align";
/// Its only value. (To set it, nothing at all says the same.)
pub(crate) const VALUE: &[u8] = b"2M";

/// Whether a value to be set is valid; `EINVAL`.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.is_empty() || value == VALUE { Ok(()) } else { Err(Errno::INVAL) }
}

impl Names {
    /// Sets or takes away the attribute. `decide` is told whether it is there, and says whether it
    /// shall be.
    pub(crate) fn change_alignment(
        &self,
        node: Node,
        decide: impl FnOnce(bool) -> Result<bool>,
    ) -> Result<()> {
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        let kind = held.identity.kind();
        if !matches!(kind, Some(Kind::File | Kind::Directory)) {
            return Err(Errno::PERM);
        }
        let wanted = decide(held.identity.flags & FLAG_ALIGNED != 0)?;
        op.work()?;
        held.touch();
        held.identity.flags &= !FLAG_ALIGNED;
        held.identity.flags |= if wanted { FLAG_ALIGNED } else { 0 };
        self.commit_held(&mut op, &[&held], &[], &[])?;
        op.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::data::plan::Position;
    use crate::medium::layout::{BLOCK, CHUNK};
    use crate::testing::{directory, file, fresh, new_node};
    use vfs::{FileSystem, Open, OpenFlags, UserIn};

    fn names(volume: &Volume, node: Node) -> Vec<u8> {
        let mut list = vec![0; 100];
        let length = volume.list_xattr(node, &mut list).unwrap();
        list.truncate(length);
        list
    }

    fn is_aligned(volume: &Volume, node: Node) -> bool {
        let mut value = [0; 10];
        match volume.get_xattr(node, NAME, &mut value) {
            Ok(length) => {
                assert_eq!(&value[..length], VALUE);
                assert!(names(volume, node).starts_with(b"user.solera.align\0"));
                true
            }
            Err(errno) => {
                assert_eq!((errno, names(volume, node)), (Errno::NODATA, Vec::new()));
                false
            }
        }
    }

    /// Writes two chunks by pieces of 64 KiB, back to front.
    fn fill(volume: &Volume, node: Node) {
        for at in (0..64).rev() {
            let bytes = vec![at as u8; 65536];
            volume.write_file(node, Position::At(at * 65536), &[UserIn::new(&bytes)]).unwrap();
        }
    }

    fn is_whole(volume: &Volume, node: Node) -> bool {
        let extents = volume.extents(node).unwrap();
        let right = |e: &crate::Extent| (e.file_offset | e.region_offset).is_multiple_of(CHUNK);
        extents.iter().all(|extent| right(extent) && extent.length.is_multiple_of(CHUNK))
    }

    #[test]
    fn it_is_set_read_and_taken_away_like_any_other() {
        let (volume, root) = fresh();
        let node = volume.create(root, b"f", &file()).unwrap();
        assert!(!is_aligned(&volume, node));
        let set = |value: &[u8], flags: i32| volume.set_xattr(node, NAME, value, flags as u32);
        assert_eq!(set(b"4K", 0), Err(Errno::INVAL));
        assert_eq!(set(b"2M", libc::XATTR_REPLACE), Err(Errno::NODATA));
        set(b"2M", libc::XATTR_CREATE).unwrap();
        assert!(is_aligned(&volume, node));
        assert_eq!(set(b"2M", libc::XATTR_CREATE), Err(Errno::EXIST));
        set(b"", libc::XATTR_REPLACE).unwrap();
        assert!(is_aligned(&volume, node));
        volume.set_xattr(node, b"user.other", b"x", 0).unwrap();
        assert_eq!(names(&volume, node), b"user.solera.align\0user.other\0");
        volume.remove_xattr(node, b"user.other").unwrap();
        volume.remove_xattr(node, NAME).unwrap();
        assert!(!is_aligned(&volume, node));
        assert_eq!(volume.remove_xattr(node, NAME), Err(Errno::NODATA));
        let fifo = volume.create(root, b"p", &new_node(vfs::Kind::Fifo, 0o600)).unwrap();
        assert_eq!(volume.set_xattr(fifo, NAME, b"2M", 0), Err(Errno::PERM));
        let report = volume.check(&crate::FsckOptions::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    #[test]
    fn files_inherit_it_and_directories_do_not() {
        let (volume, root) = fresh();
        let dir = volume.create(root, b"d", &directory()).unwrap();
        let before = volume.create(dir, b"before", &file()).unwrap();
        volume.set_xattr(dir, NAME, b"2M", 0).unwrap();
        let inside = volume.create(dir, b"f", &file()).unwrap();
        let below = volume.create(dir, b"e", &directory()).unwrap();
        let deeper = volume.create(below, b"f", &file()).unwrap();
        let desc = volume.open(Open::Unnamed(dir, &file()), OpenFlags(libc::O_RDWR), None).unwrap();
        let (unnamed, _) = volume.describe(desc).unwrap();
        let told = [before, dir, inside, below, deeper, unnamed].map(|at| is_aligned(&volume, at));
        assert_eq!(told, [false, true, true, false, false, true]);
        volume.link(unnamed, root, b"named").unwrap();
        volume.close(desc).unwrap();
        assert!(is_aligned(&volume, unnamed), "a new name changes nothing about it");
    }

    #[test]
    fn a_file_becomes_whole_when_it_is_set_and_when_it_is_closed() {
        let (volume, root) = fresh();
        let late = volume.create(root, b"late", &file()).unwrap();
        fill(&volume, late);
        assert!(!is_whole(&volume, late));
        volume.set_xattr(late, NAME, b"2M", 0).unwrap();
        assert!(is_whole(&volume, late));
        let early = volume.create(root, b"early", &file()).unwrap();
        volume.set_xattr(early, NAME, b"2M", 0).unwrap();
        let desc = volume.open(early.into(), OpenFlags(libc::O_RDWR), None).unwrap();
        fill(&volume, early);
        assert!(!is_whole(&volume, early));
        volume.close(desc).unwrap();
        assert!(is_whole(&volume, early));
        assert_eq!(volume.attributes(early).unwrap().blocks * 512, 1024 * BLOCK);
    }
}
