//! What a cache holds, for people and machines; and emptying it.

use crate::directory::{self, Refusal, VolumeId};
use crate::index::{COUNTS, Index};
use crate::segments;
use rustix::fs::AtFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use vfs::Node;

/// What a volume's cache holds.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where it lies.
    pub place: PathBuf,
    /// Where another lies that was made before, and is not used any more.
    pub others: Vec<PathBuf>,
    /// Bytes that the process that came last may use.
    pub budget: u64,
    /// Bytes in use.
    pub used: u64,
    /// Segments.
    pub segments: usize,
    /// What was counted since the cache was made, by name.
    pub counts: Vec<(&'static str, u64)>,
    /// Whether the memory gives pages of 2 MiB.
    pub huge_pages: bool,
}

/// Opens the directories of the caches that are there.
fn open(whose: &VolumeId, asked: Option<&Path>) -> Result<Vec<(PathBuf, OwnedFd)>, Refusal> {
    let places = directory::places(whose, asked)?.into_iter();
    places.map(|place| Ok((place.clone(), directory::open_place(whose, &place)?))).collect()
}

/// A cache, of whichever volume.
#[derive(Clone, Debug)]
pub struct CacheListing {
    /// The volume's UUID.
    pub uuid: String,
    /// Where it lies.
    pub place: PathBuf,
    /// Bytes in use; `None`: it is another user's.
    pub used: Option<u64>,
}

/// All caches that are there, of all volumes, by UUID: in the directory that was asked for, or
/// where caches lie.
#[must_use]
pub fn list(asked: Option<&Path>) -> Vec<CacheListing> {
    let used = |uuid: &str, place: &Path| {
        let owner = rustix::fs::stat(place).ok()?.st_uid;
        let all = directory::open_place(&VolumeId { uuid: uuid.to_owned(), owner }, place).ok()?;
        let indexes = directory::eras(&all, place).into_iter().filter_map(|(_, _, index)| index);
        Some(indexes.filter_map(|index| index.named().ok()).flatten().map(|one| one.bytes).sum())
    };
    let all = directory::everywhere(asked).into_iter();
    all.map(|(uuid, place)| CacheListing { used: used(&uuid, &place), uuid, place }).collect()
}

/// What the cache of a volume holds, whoever uses it.
pub fn status(whose: &VolumeId, asked: Option<&Path>) -> Result<Status, Refusal> {
    let mut open = open(whose, asked)?.into_iter();
    let Some((place, all)) = open.next() else { return Err("there is no cache".to_owned()) };
    let mut status = Status {
        others: open.map(|(place, _)| place).collect(),
        budget: 0,
        used: 0,
        segments: 0,
        counts: COUNTS.iter().map(|(_, name)| (*name, 0)).collect(),
        huge_pages: has_huge_pages(&place),
        place,
    };
    for (_, _, index) in directory::eras(&all, &status.place) {
        let Some(index) = index else { continue };
        let lost = |_| format!("an index in {} is damaged", status.place.display());
        status.budget = status.budget.max(index.budget().map_err(lost)?);
        let named = index.named().map_err(lost)?;
        status.used += named.iter().map(|segment| segment.bytes).sum::<u64>();
        status.segments += named.len();
        for (count, (_, sum)) in COUNTS.iter().zip(&mut status.counts) {
            *sum += index.counted(count.0).unwrap_or(0);
        }
    }
    Ok(status)
}

/// Empties the cache of a volume; whoever uses it goes on. Gives how many segments went.
pub fn drop_all(whose: &VolumeId, asked: Option<&Path>) -> Result<usize, Refusal> {
    let mut gone = 0;
    for (place, all) in open(whose, asked)? {
        for (name, dir, index) in directory::eras(&all, &place) {
            let Some(index) = index else {
                // Nobody can use it.
                directory::remove(&all, &name);
                continue;
            };
            gone += empty(&index, &dir);
        }
    }
    Ok(gone)
}

fn empty(index: &Index, dir: &OwnedFd) -> usize {
    let mut gone = 0;
    // What is damaged makes misses.
    let _ = index.clear_all(&mut |segment| {
        segments::remove(dir.as_fd(), segment);
        let _ = index.give_back(segment.bytes);
        gone += 1;
    });
    gone
}

/// Empties the cache of one file; gives how many segments went.
pub fn drop_file(whose: &VolumeId, asked: Option<&Path>, node: Node) -> Result<usize, Refusal> {
    let mut gone = 0;
    let open = open(whose, asked)?;
    let eras = open.iter().flat_map(|(place, all)| directory::eras(all, place));
    for (_, dir, index) in eras {
        let Some(index) = index else { continue };
        let _ = index.clear_file(node, &mut |segment| {
            segments::remove(dir.as_fd(), segment);
            let _ = index.give_back(segment.bytes);
            gone += 1;
        });
    }
    Ok(gone)
}

/// Removes all that processes have made in one of the [`places`](directory::places) of a volume's
/// caches. Who uses it goes on without.
pub fn destroy(whose: &VolumeId, place: &Path) -> Result<(), Refusal> {
    let all = directory::open_place(whose, place)?;
    for (name, ..) in directory::eras(&all, place) {
        directory::remove(&all, &name);
    }
    let _ = rustix::fs::unlinkat(rustix::fs::CWD, place, AtFlags::REMOVEDIR);
    Ok(())
}

/// Whether a directory's memory gives huge pages: by the options of its mount.
#[must_use]
pub fn has_huge_pages(place: &Path) -> bool {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return false };
    // It may be still to be made.
    let there = place.ancestors().find_map(|place| os::real_path(place).ok());
    let Some(place) = there else { return false };
    let mut best: Option<(usize, bool)> = None;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if let [_, at, "tmpfs", options, ..] = fields[..]
            && place.starts_with(at)
            && best.is_none_or(|(length, _)| at.len() >= length)
        {
            let huge = options
                .split(',')
                .any(|option| matches!(option, "huge=always" | "huge=within_size" | "huge=advise"));
            best = Some((at.len(), huge));
        }
    }
    best.is_some_and(|(_, huge)| huge)
}
