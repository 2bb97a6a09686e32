//! Repair: mends what a check has found, as far as that can be done without guessing.
//!
//! It needs the volume for itself, and says so on the medium first: the state line says *repair*,
//! and until the repair is done the volume can only be read, or repaired again. Then, in rounds:
//! mark, mend what may be mended ([`crate::check::repair_actions`]), until nothing is left that can
//! be.
//!
//! Where names were lost, inodes that are whole, that say they have a name, that the saved free map
//! (if there is one) knows, and whose blocks nothing else has, are *orphans*: those of them that no
//! other orphan holds get a name in `/lost+found`. At the end the free map is built from what is
//! reachable.
//!
//! CRASH: at any point the next repair starts again; what was mended stays so. Orphans are looked
//! for again, since the names that led to them may be gone by then.

use crate::Result;
use crate::cache::Target;
use crate::check::Checks;
use crate::check::fsck::{FsckOptions, FsckReport};
use crate::data::map::MapItem;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, CHUNK_BLOCKS, EXTENT_BLOCKS, EXTENT_INODES, IDENTITY, INODE, INODE_EXTENT, INODE_TAG,
    Identity, STATE_DIRTY, STATE_REPAIR,
};
use crate::medium::superblock;
use crate::namespace::bucket::Dir;
use crate::namespace::directory::NODE;
use crate::namespace::dirwalk::DirItem;
use crate::recovery::fault::{Action, FsckFault, Remedy};
use crate::recovery::mark::{Depth, Mark, all_threads};
use crate::recovery::reachability::Reached;
use crate::txn::journal::lane_offset;
use rustix::io::Errno;
use std::collections::HashSet;
use vfs::{Kind, NewNode, Node};

/// Rounds of marking and mending: each mends what the former one uncovered.
const ROUNDS: usize = 12;
/// Where orphans get their names.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// How to repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Give up what cannot be read any more.
    pub salvage: bool,
    /// How to check, before and after.
    pub check: FsckOptions,
}

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What was wrong, and is mended.
    pub mended: Vec<FsckFault>,
    /// Names that were made in `/lost+found`.
    pub orphans: Vec<String>,
    /// What the check afterwards found: if anything, it stands as it was.
    pub after: FsckReport,
}

/// A repair under way.
pub(crate) struct Repair<'v> {
    volume: &'v Checks,
    /// How far to go.
    allowed: Remedy,
    pub(crate) mended: Vec<FsckFault>,
    /// Names were lost: there may be orphans.
    hidden: bool,
}

impl<'v> Repair<'v> {
    /// `mended`: what the attach has put right already.
    pub(crate) fn new(volume: &'v Checks, allowed: Remedy, mended: Vec<FsckFault>) -> Self {
        Self { volume, allowed, mended, hidden: false }
    }

    /// Repairs; `false` if something is left that cannot be mended.
    pub(crate) fn run(
        &mut self,
        orphans: &mut Vec<String>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool> {
        let volume = self.volume;
        self.hidden = volume.repair_was_begun();
        let (epoch, region) = (volume.epoch, &volume.region);
        superblock::write_state(region, epoch, STATE_REPAIR, 0)?;
        if !self.undo_lanes()? {
            if !self.hidden {
                superblock::write_state(region, epoch, STATE_DIRTY, 0)?;
            }
            return Ok(false);
        }
        self.mend_all(progress)?;
        if self.hidden {
            self.name_orphans(orphans)?;
            self.mend_all(progress)?;
        }
        let rebuilt = match volume.rebuild(&[]) {
            Err(Errno::IO) => {
                // What is left is damage as any other; all orphans have their names.
                superblock::write_state(region, epoch, STATE_DIRTY, 0)?;
                return Ok(false);
            }
            rebuilt => rebuilt?,
        };
        volume.recover_ends(&rebuilt)?;
        Ok(true)
    }

    /// Undoes the lanes; `false` if it stays open what a damaged one held.
    fn undo_lanes(&mut self) -> Result<bool> {
        let volume = self.volume;
        let mut all = true;
        for lane in 0..u64::from(volume.superblock.lanes) {
            match volume.replay_lane(lane) {
                Err(Errno::IO) => {}
                undone => {
                    let _ = undone?.1.fence();
                    continue;
                }
            }
            // A page that cannot be read is not mended by being written.
            let readable = volume.region.load64(lane_offset(lane)).is_ok();
            if !readable || self.allowed < Remedy::Salvage && !volume.lane_is_empty(lane)? {
                all = false;
                continue;
            }
            self.mend(FsckFault {
                code: "lane-header",
                place: format!("lane {lane}"),
                meaning: "its transaction number is damaged".into(),
                remedy: self.allowed,
                action: Action::Lane(lane),
            })?;
        }
        Ok(all)
    }

    fn mend(&mut self, fault: FsckFault) -> Result<bool> {
        // Lanes need nothing of what a mark tells.
        self.mend_with(fault, &Reached::new(0))
    }

    fn mend_with(&mut self, fault: FsckFault, reached: &Reached) -> Result<bool> {
        let hides = match fault.action {
            Action::Bucket { .. } | Action::DirWord { .. } => true,
            // A directory that is given up: what it holds is sound, and has no other name.
            Action::Entry { at } => self.volume.leads_to_directory(at),
            _ => false,
        };
        let done = self.volume.mend_or_skip(&fault.action, reached)?;
        if done {
            self.hidden |= hides;
            self.mended.push(fault);
        }
        Ok(done)
    }

    /// Mends until nothing is left that may be.
    fn mend_all(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        for _ in 0..ROUNDS {
            let mut mark = Mark::new(self.volume, Depth::Thorough, all_threads());
            mark.run(&[], progress);
            let faults = std::mem::take(&mut mark.found.faults);
            let mut any = false;
            // One damaged bucket may show in many of its entries.
            let mut done: Vec<Action> = Vec::new();
            let allowed = self.allowed;
            for fault in faults.into_iter().filter(|fault| fault.remedy <= allowed) {
                let bucket = matches!(fault.action, Action::Bucket { .. });
                if bucket && done.contains(&fault.action) {
                    continue;
                }
                if bucket {
                    done.push(fault.action.clone());
                }
                any |= self.mend_with(fault, mark.reached())?;
            }
            if !any {
                break;
            }
        }
        Ok(())
    }

    // ---- orphans
    // --------------------------------------------------------------------------------------

    /// Gives the orphans names in `/lost+found`.
    fn name_orphans(&mut self, names: &mut Vec<String>) -> Result<()> {
        let volume = self.volume;
        let mut mark = Mark::new(volume, Depth::Structure, all_threads());
        mark.run(&[], &mut |_, _| {});
        let orphans = self.orphans(mark.reached())?;
        if orphans.is_empty() {
            return Ok(());
        }
        let mut mark = Mark::new(volume, Depth::Structure, all_threads());
        mark.run(&orphans, &mut |_, _| {});
        // From here on blocks and inodes can be allocated, except those that may still be needed.
        volume.publish_besides(mark.reached())?;
        let root =
            Node { ino: volume.superblock.root, generation: volume.superblock.root_generation };
        let new =
            NewNode { kind: Kind::Directory, mode: 0o700, uid: 0, gid: 0, rdev: 0, target: b"" };
        let directory = match volume.create(root, LOST_AND_FOUND, &new) {
            Err(Errno::EXIST) => volume.lookup_target(root, LOST_AND_FOUND)?.node,
            made => made?,
        };
        for orphan in mark.nameless {
            let name = format!("#{}", orphan.0);
            if volume.adopt(orphan, directory, name.as_bytes())? {
                names.push(format!("/lost+found/{name}"));
            }
        }
        Ok(())
    }

    /// The orphans that no other orphan holds.
    fn orphans(&self, reached: &Reached) -> Result<Vec<Inode>> {
        let volume = self.volume;
        // The saved free map has been loaded if it is true; else it says that nothing is in use.
        let saved = volume.inode_in_use(volume.superblock.root)?;
        let mut found = Vec::new();
        let mut claimed = Reached::new(volume.chunks());
        for first in volume.possible_extents(reached) {
            for inode in (first + 1..first + EXTENT_INODES).map(Inode) {
                let Ok(word) = volume.region.load64(inode.at(IDENTITY)) else { continue };
                if word as u16 != INODE_TAG || saved && !volume.inode_in_use(inode.0)? {
                    continue;
                }
                if let Ok(identity) = volume.identity(inode)
                    && identity.nlink > 0
                    && !reached.has_inode(volume, inode)
                    && volume.claim_all(inode, &identity, reached, &mut claimed)
                {
                    found.push((inode, identity));
                }
            }
        }
        let inodes: HashSet<u64> = found.iter().map(|(inode, _)| inode.0).collect();
        let mut held = HashSet::new();
        for (inode, identity) in &found {
            if identity.kind() == Some(Kind::Directory) {
                for target in volume.targets(*inode, identity)? {
                    if target.node.ino != inode.0 && inodes.contains(&target.node.ino) {
                        held.insert(target.node.ino);
                    }
                }
            }
        }
        let mut roots: Vec<Inode> = found.iter().map(|(inode, _)| *inode).collect();
        // Those that other orphans hold come last: they are reached by then, unless their holders
        // hold each other.
        roots.sort_by_key(|inode| (held.contains(&inode.0), inode.0));
        Ok(roots)
    }
}

impl Checks {
    /// Whether a former repair did not come to its end: told by the attach.
    fn repair_was_begun(&self) -> bool {
        self.unrepaired.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What the entries of a directory lead to.
    fn targets(&self, inode: Inode, identity: &Identity) -> Result<Vec<Target>> {
        let dir = Dir { inode, generation: identity.generation };
        let mut targets = Vec::new();
        let mut buckets = Vec::new();
        self.walk_words(dir, &mut |word| {
            buckets.extend(word.ok().filter(|w| w.kind != NODE).map(|w| (w.block, w.cell)));
            Ok(())
        })?;
        for (block, cell) in buckets {
            self.walk_bucket(dir, block, cell, &mut |item| {
                if let DirItem::Entry { target, .. } = item {
                    targets.push(target);
                }
                Ok(())
            })?;
        }
        Ok(targets)
    }

    /// Claims everything that an unreached inode holds; `false` if some of it is damaged or another
    /// file's: then it is no orphan but the rest of a removed file.
    fn claim_all(
        &self,
        inode: Inode,
        identity: &Identity,
        reached: &Reached,
        claimed: &mut Reached,
    ) -> bool {
        let Ok(_) = self.commit_line(inode, identity.generation) else { return false };
        let mut blocks = Vec::new();
        let mut sound = true;
        let walked = self.walk_map(inode, identity, &mut |item| {
            match item {
                MapItem::Node { block } | MapItem::Xattr { block } => blocks.push((block, 1)),
                MapItem::Data { block, blocks: count, .. } => blocks.push((block, count)),
                MapItem::Damaged { .. } => sound = false,
            }
            Ok(())
        });
        let directory = identity.kind() == Some(Kind::Directory);
        let dir = Dir { inode, generation: identity.generation };
        let listed = !directory
            || self
                .walk_words(dir, &mut |word| {
                    match word {
                        Ok(word) => blocks.push((word.block, 1)),
                        Err(_) => sound = false,
                    }
                    Ok(())
                })
                .is_ok();
        let free = |&(block, count): &(u64, u64)| {
            self.in_pool(block, count) && !reached.has_any(self, block, count)
        };
        sound
            && walked.is_ok()
            && listed
            && blocks.iter().all(free)
            && blocks.iter().all(|&(block, count)| claimed.mark_blocks(self, block, count, false))
    }

    /// First inodes of everything that may be an inode extent: those that were reached, and aligned
    /// groups of eight blocks that nothing has. Holes of the region's file hold none.
    fn possible_extents(&self, reached: &Reached) -> Vec<u64> {
        let mut found = Vec::new();
        let mut data = 0..0;
        for chunk in 0..self.chunks() {
            let (bits, extents) = (reached.bits(chunk), reached.extents(chunk));
            for index in 0..CHUNK_BLOCKS / EXTENT_BLOCKS {
                let used = bits[index as usize / 8] >> (index % 8 * 8) & 0xFF;
                if used != 0 && extents >> index & 1 == 0 {
                    continue;
                }
                let start = (self.chunk_start(chunk) + index * EXTENT_BLOCKS) * BLOCK;
                if start >= data.end {
                    data = self.data_from(start);
                }
                if data.start < start + INODE_EXTENT {
                    found.push(start / INODE);
                }
            }
        }
        found
    }

    /// The first run of bytes from `at` on that the region's file has memory for.
    pub(crate) fn data_from(&self, at: u64) -> std::ops::Range<u64> {
        let start = self.region.next_data(at);
        start..self.region.next_hole(start)
    }
}
