//! What unit tests share: volumes in memory, something in them, repeatable randomness.

use crate::Mode;
use crate::attach::format::{FormatOptions, format_region, own_bytes};
use crate::attach::{AttachOptions, attach_region};
use crate::check::fsck::compare;
use crate::data::plan::Position;
use crate::medium::layout::{BLOCK, CHUNK};
use crate::recovery::mark::{Depth, Mark};
use crate::txn::acquire::Anchor;
use crate::volume::Volume;
use pmem::{Region, UserIn};
use std::sync::Arc;
use vfs::{Kind, NewNode, Node, OpenFlags};

/// A formatted region in private memory, for a pool of `chunks` chunks (at least 7).
pub(crate) fn region(chunks: u64, groups: u32) -> Region {
    let options = FormatOptions { groups: Some(groups), ..FormatOptions::default() };
    let metadata = CHUNK;
    let before_pool = own_bytes((chunks + 1) * CHUNK, &options).unwrap() - metadata;
    let region = Region::zeros(before_pool + chunks * CHUNK, None);
    format_region(&region, &options).unwrap();
    region
}

/// An attached volume in private memory with a pool of `chunks` chunks.
pub(crate) fn volume(mode: Mode, chunks: u64) -> Arc<Volume> {
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = attach_region(region(chunks, 2), &options).unwrap();
    assert_eq!(volume.chunks(), chunks);
    volume
}

/// A copy of the region as it is now: what a crash leaves if all caches were written back.
pub(crate) fn image(volume: &Volume) -> Region {
    copied(&volume.region)
}

/// A copy of a region: of the pages that hold more than zeros, most of a small volume's hold none.
pub(crate) fn copied(region: &Region) -> Region {
    let copy = Region::zeros(region.len(), None);
    for (at, page) in written(region) {
        let _ = copy.write(at, &page).unwrap();
    }
    copy
}

/// The pages that hold more than zeros, and where they lie.
pub(crate) fn written(region: &Region) -> impl Iterator<Item = (u64, [u8; BLOCK as usize])> {
    (0..region.len()).step_by(BLOCK as usize).filter_map(|at| {
        let mut page = [0; BLOCK as usize];
        region.read(at, &mut page).unwrap();
        (page != [0; BLOCK as usize]).then_some((at, page))
    })
}

/// The root directory.
pub(crate) fn root(volume: &Volume) -> Node {
    let superblock = volume.superblock;
    Node { ino: superblock.root, generation: superblock.root_generation }
}

/// An empty volume and its root.
pub(crate) fn fresh() -> (Arc<Volume>, Node) {
    let volume = volume(Mode::Strict, 16);
    let root = root(&volume);
    (volume, root)
}

/// How many faults a check of the volume in use finds.
pub(crate) fn faults(volume: &Volume) -> usize {
    let found = volume.in_quiet(|roots| {
        let mut mark = Mark::new(volume, Depth::Thorough, 2);
        mark.run(roots, &mut |_, _| {});
        compare(volume, &mut mark)?;
        Ok(mark.found.faults.len())
    });
    found.unwrap()
}

/// A node to be made.
pub(crate) fn new_node(kind: Kind, mode: u32) -> NewNode<'static> {
    NewNode { kind, mode, uid: 1000, gid: 1000, rdev: 0, target: b"" }
}

/// A file to be made.
pub(crate) fn file() -> NewNode<'static> {
    new_node(Kind::File, 0o644)
}

/// A directory to be made.
pub(crate) fn directory() -> NewNode<'static> {
    new_node(Kind::Directory, 0o755)
}

/// A small generator (xorshift64*): the same seed gives the same run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// A number below `limit` (> 0).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// This thread moves to no other CPU, and so to no other operation record.
pub(crate) fn stay_on_one_cpu() {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &cpus).expect("a CPU");
}

/// Writes without waiting, as planned; `false`: it is no simple write.
pub(crate) fn simply(volume: &Volume, node: Node, position: Position, bytes: &[u8]) -> bool {
    let desc = vfs::FileSystem::open(volume, node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    let opened = volume.opened(desc).unwrap();
    // It stays open: a last close does more than a write.
    let anchor = Anchor::Open(desc, opened.state);
    volume.write_at_once(node, anchor, position, &UserIn::new(bytes)).unwrap().is_some()
}
