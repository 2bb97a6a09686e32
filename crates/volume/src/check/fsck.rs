//! The check: compares what a volume says about itself with what can be reached from its root.
//!
//! Nothing is ever written. A volume that no process has attached is checked in a private view:
//! after an unclean end the lanes are undone there first, as recovery would, since a transaction in
//! the middle is no fault.
//!
//! A volume in use is checked by one more attachment, with the gate closed: all changes by all
//! processes wait meanwhile (reading goes on), for about as long as a mark of all files takes. What
//! looks wrong is looked at again, each time after dead processes were recovered and the others
//! went on for a while: only what is still wrong then is a fault. Work between two calls (a last
//! close about to free a file, a process that has just died) differs from look to look.
//!
//! Two parts: the mark (every structure on the way from the root, see `mark.rs`), and the
//! comparison of what was marked with the free map. Behind a damaged structure nothing is marked;
//! then blocks that seem to leak prove nothing, and are not reported.

use crate::Result;
use crate::check::Checks;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, EXTENT_BLOCKS, EXTENT_INODES, INODE, STATE, SUPERBLOCK_A, State, checksum,
};
use crate::medium::superblock::Found;
use crate::recovery::fault::{Action, FsckFault, LostData, Remedy};
use crate::recovery::mark::{Counts, Depth, Mark, all_threads};
use crate::space::chunk::{Bitmap, Mask, count_free};
use crate::space::free_map::bits_of;
use pmem::BackingSpace;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Looks at a volume in use before something counts as a fault.
const LOOKS: usize = 3;
/// The time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(40);

/// How to check.
#[derive(Clone, Debug)]
pub struct FsckOptions {
    /// Faults to report at most; the rest is only counted.
    pub faults_max: usize,
    /// Read all contents of all files, to find memory that cannot be read.
    pub read_data: bool,
    /// Read none, and name the files of which a pager knows that something is lost.
    pub known_lost: bool,
}

impl Default for FsckOptions {
    fn default() -> Self {
        Self { faults_max: 1000, read_data: false, known_lost: false }
    }
}

impl FsckOptions {
    pub(crate) fn depth(&self) -> Depth {
        match (self.read_data, self.known_lost) {
            (true, _) => Depth::Data,
            (false, true) => Depth::Known,
            (false, false) => Depth::Thorough,
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// What is wrong; empty on a sound volume.
    pub faults: Vec<FsckFault>,
    /// What of files cannot be read: each has a fault, too.
    pub lost: Vec<LostData>,
    /// Faults found but not listed.
    pub faults_omitted: u64,
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symlinks and special files.
    pub others: u64,
    /// Bytes of file data that are reachable.
    pub data_bytes: u64,
    /// Bytes of metadata that are reachable.
    pub metadata_bytes: u64,
    /// Of a volume in use: the longest time for which changes had to wait.
    pub pause: Option<Duration>,
    /// How long the check took.
    pub elapsed: Duration,
    /// Bytes of the volume that the file system beneath could not supply, if all were wanted now.
    /// No fault: what needs them gets `ENOSPC`.
    pub missing_bytes: u64,
    /// Bytes that it has left; `None` where there is no such limit.
    pub beneath_free_bytes: Option<u64>,
}

/// What one look found.
pub(crate) struct Look {
    pub(crate) faults: Vec<FsckFault>,
    pub(crate) lost: Vec<LostData>,
    pub(crate) counts: Counts,
    pub(crate) pause: Option<Duration>,
    /// What lies beneath, and the volume's size.
    pub(crate) beneath: Option<(BackingSpace, u64)>,
}

impl FsckReport {
    pub(crate) fn new(look: Look, options: &FsckOptions, begun: Instant) -> Self {
        let Look { mut faults, lost, counts, pause, .. } = look;
        let omitted = faults.len().saturating_sub(options.faults_max);
        faults.truncate(options.faults_max);
        Self {
            faults,
            lost,
            faults_omitted: omitted as u64,
            files: counts.files,
            directories: counts.directories,
            others: counts.others,
            data_bytes: counts.data_blocks * crate::BLOCK,
            metadata_bytes: counts.metadata_blocks * crate::BLOCK,
            pause,
            elapsed: begun.elapsed(),
            missing_bytes: look.beneath.map_or(0, |(found, size)| found.missing(size)),
            beneath_free_bytes: look.beneath.and_then(|(found, _)| found.free),
        }
    }
}

impl Checks {
    /// Checks the volume while this process has it attached; all changes by all processes wait
    /// meanwhile.
    pub fn check(&self, options: &FsckOptions) -> Result<FsckReport> {
        let begun = Instant::now();
        let look = self.check_in_use(options.depth(), &mut |_, _| {})?;
        Ok(FsckReport::new(look, options, begun))
    }

    /// Looks until nothing is wrong, or what is wrong stays so.
    pub(crate) fn check_in_use(
        &self,
        depth: Depth,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Look> {
        let mut look = self.look_in_use(depth, progress)?;
        for _ in 1..LOOKS {
            if look.faults.is_empty() {
                break;
            }
            if !self.is_read_only() {
                self.recover_the_dead()?;
            }
            // Threads of one process need less time.
            let alone = self.is_alone()?;
            std::thread::sleep(if alone { BETWEEN_LOOKS / 40 } else { BETWEEN_LOOKS });
            let again = self.look_in_use(depth, progress)?;
            let pause = look.pause.max(again.pause);
            let mut faults = again.faults;
            faults.retain(|fault| look.faults.contains(fault));
            look = Look { faults, counts: again.counts, pause, ..again };
        }
        Ok(look)
    }

    fn look_in_use(&self, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> Result<Look> {
        let mut faults = self.check_superblocks()?;
        let begun = Instant::now();
        let (found, lost, counts) = self.in_quiet(|extra_roots| {
            let mut mark = Mark::new(self, depth, all_threads());
            mark.run(extra_roots, progress);
            // After damage was found at attach there is no free map to compare with.
            if !self.damaged()? {
                compare(self, &mut mark)?;
            }
            Ok((mark.found.faults, mark.found.lost, mark.found.counts))
        })?;
        let pause = Some(begun.elapsed());
        faults.extend(found);
        let beneath = self.beneath().map(|found| (found, self.size()));
        Ok(Look { faults, lost, counts, pause, beneath })
    }

    /// The superblocks of a volume in use, which no process changes meanwhile.
    fn check_superblocks(&self) -> Result<Vec<FsckFault>> {
        let _guard = self.liveness.lock_attach()?;
        let path = self.region.path().unwrap_or(Path::new("(memory)"));
        let found = crate::medium::superblock::read_to_check(&self.region, path);
        let found = found.map_err(|error| error.errno())?;
        Ok(stale_copy(&found).into_iter().chain(short_region(self)).collect())
    }
}

pub(crate) fn stale_copy(found: &Found) -> Option<FsckFault> {
    let place = if found.stale? == SUPERBLOCK_A { "superblock A" } else { "superblock B" };
    let meaning = "this copy is damaged or behind; the next attach for writing repairs it";
    Some(FsckFault::repaired_by_attach("superblock-copy", place.into(), meaning))
}

/// The fault of a region that ends before the volume does.
pub(crate) fn short_region(volume: &Checks) -> Option<FsckFault> {
    let (has, wants) = (volume.region.len(), volume.size());
    (has < wants).then(|| FsckFault {
        code: "region-truncated",
        place: "the region".into(),
        meaning: format!(
            "the volume has {wants} bytes, its file or device only {has}: what lies behind cannot \
             be read"
        ),
        remedy: Remedy::None,
        action: Action::None,
    })
}

pub(crate) fn damaged_slot(bytes: &[u8]) -> bool {
    let Ok(state) = State::read_from_bytes(bytes) else { return true };
    let crc = checksum(STATE, State { crc: 0, ..state }.as_bytes());
    bytes.iter().any(|byte| *byte != 0) && crc != state.crc
}

/// Marks the blocks and inodes that operation records keep, their extents, and those that are left:
/// in use as the free map tells.
fn mark_kept(volume: &Checks, mark: &Mark<'_>) -> Result<()> {
    let reached = mark.reached();
    for block in volume.kept_singles()? {
        reached.mark_blocks(volume, block, 1, false);
    }
    volume.each_kept(|header, inodes| {
        if let Some(block) = reached.mark_extent(volume, Inode(header)) {
            reached.mark_blocks(volume, block, EXTENT_BLOCKS, true);
        }
        for ino in inodes {
            reached.mark_inode(volume, Inode(ino));
        }
    })
}

/// Compares what was marked with the free map.
pub(crate) fn compare(volume: &Checks, mark: &mut Mark<'_>) -> Result<()> {
    let complete = mark.found.faults.iter().all(leaves_nothing_out);
    mark_kept(volume, mark)?;
    let mut faults = Vec::new();
    let (mut free, backed) = (0, volume.backed());
    for chunk in 0..volume.chunks() {
        let there = backed.has(chunk);
        let bits = if there { volume.bitmap(chunk)? } else { Bitmap::default() };
        free += count_free(&bits);
        let marked = mark.reached().bits(chunk);
        let start = volume.chunk_start(chunk);
        let missing = ("block-not-allocated", "in use, but free in the free map");
        tell(&mut faults, start, &difference(&marked, &bits), missing);
        if complete {
            let (lost, leaked) = readable(volume, start, &difference(&bits, &marked));
            tell(&mut faults, start, &leaked, LEAKED);
            for fault in lost {
                faults.push(fault);
            }
        }
        compare_inodes(volume, mark, (chunk, there), complete, &mut faults)?;
    }
    if volume.free_blocks()? != free {
        let meaning = format!("{} blocks are counted as free, {free} are", volume.free_blocks()?);
        let place = "the free map".into();
        faults.push(FsckFault::repaired_by_attach("free-count", place, meaning));
    }
    mark.found.faults.append(&mut faults);
    Ok(())
}

const LEAKED: (&str, &str) = ("block-leaked", "allocated, but not reachable from anywhere");

/// Takes the blocks that cannot be read out of these runs: they are kept out of use on purpose.
fn readable(volume: &Checks, start: u64, runs: &[(u64, u64)]) -> (Vec<FsckFault>, Vec<(u64, u64)>) {
    let (mut lost, mut sound) = (Vec::new(), Vec::<(u64, u64)>::new());
    for block in runs.iter().flat_map(|&(first, count)| first..first + count) {
        if volume.is_lost_block(start + block) {
            lost.push(FsckFault {
                code: "media",
                place: format!("block {}", start + block),
                meaning: "its memory cannot be read; it is kept out of use".into(),
                remedy: Remedy::None,
                action: Action::None,
            });
            continue;
        }
        match sound.last_mut() {
            Some(run) if run.0 + run.1 == block => run.1 += 1,
            _ => sound.push((block, 1)),
        }
    }
    (lost, sound)
}

/// Whether everything that is in use has been marked in spite of this fault.
pub(crate) fn leaves_nothing_out(fault: &FsckFault) -> bool {
    const HARMLESS: [&str; 13] = [
        "superblock-copy",
        "lane-header",
        "state",
        "state-slot",
        "link-count",
        "subdirectory-count",
        "directory-parent",
        "entry-kind",
        "media",
        "symlink-target",
        "xattr-block",
        "region-truncated",
        "repair-unfinished",
    ];
    HARMLESS.contains(&fault.code)
        || fault.code == "inode-identity" && fault.remedy == Remedy::Repair
}

fn tell(
    faults: &mut Vec<FsckFault>,
    start: u64,
    runs: &[(u64, u64)],
    (code, meaning): (&'static str, &str),
) {
    for &(first, count) in runs {
        let block = start + first;
        let place = match count {
            1 => format!("block {block}"),
            _ => format!("blocks {block} to {}", block + count - 1),
        };
        faults.push(FsckFault::repaired_by_attach(code, place, meaning));
    }
}

/// Compares the inodes of a chunk's extents.
fn compare_inodes(
    volume: &Checks,
    mark: &Mark<'_>,
    (chunk, there): (u64, bool),
    complete: bool,
    faults: &mut Vec<FsckFault>,
) -> Result<()> {
    let mapped = if there { volume.mask(chunk, Mask::Extents)? } else { 0 };
    for index in bits_of(mark.reached().extents(chunk) | mapped) {
        let block = volume.chunk_start(chunk) + index * EXTENT_BLOCKS;
        let first = block / EXTENT_BLOCKS * EXTENT_INODES;
        let reached = mark.reached().slots(chunk, index);
        let is_extent = mapped >> index & 1 != 0;
        // A header that cannot be read tells nothing.
        let slots = volume.extent_slots(chunk, index);
        let allocated = if is_extent { slots.unwrap_or(reached) } else { 0 };
        let place = |slot| format!("inode {}", first + slot);
        for slot in bits_of(reached & !allocated) {
            let meaning = "in use, but free in the free map";
            let fault = FsckFault::repaired_by_attach("inode-not-allocated", place(slot), meaning);
            faults.push(fault);
        }
        for slot in bits_of(allocated & !reached & !1).take_while(|_| complete) {
            if volume.is_lost_block(block + slot * INODE / BLOCK) {
                continue;
            }
            let meaning = "allocated, but not reachable from anywhere";
            faults.push(FsckFault::repaired_by_attach("inode-leaked", place(slot), meaning));
        }
    }
    Ok(())
}

/// The blocks of a bitmap that are set in `bits` and not in `other`, as runs {first, length}.
fn difference(bits: &Bitmap, other: &Bitmap) -> Vec<(u64, u64)> {
    let mut clear = Bitmap::default();
    for (word, value) in clear.iter_mut().enumerate() {
        *value = !(bits[word] & !other[word]);
    }
    crate::space::chunk::free_runs(&clear).collect()
}
