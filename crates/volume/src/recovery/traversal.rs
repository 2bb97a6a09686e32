//! The work of one thread of a mark: visits directories, buckets and inodes, and notes faults.
//!
//! Every fault says what mends it (see `fault.rs`). Where a damaged structure can be told from what
//! stands around it (an identity line from its name and its commit line, `..` from the tree), the
//! visit goes on as if it were mended: so a second look, after the mending, finds nothing new.

use crate::cache::Target;
use crate::data::map::MapItem;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, COMMIT_CHECKSUMMED, Commit, EXTENT_BLOCKS, FLAG_KEEP, IDENTITY, Identity, SIZE_MAX,
    XATTR_WORD,
};
use crate::namespace::bucket::{Cell, Dir};
use crate::namespace::directory::NODE;
use crate::namespace::dirwalk::DirItem;
use crate::recovery::fault::{Action, EntryAt, FsckFault, LostData, Remedy};
use crate::recovery::mark::{Depth, Found, Shared};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vfs::{Kind, Node};

/// Buckets of a work item: about a thousand names.
const BATCH: usize = 32;
/// Blocks that are read at a time to see whether they can be.
const PROBE: u64 = 4;

/// A directory that was found: its place in the tree, and what is counted in it.
pub(crate) struct Place {
    inode: Inode,
    identity: Identity,
    commit: Option<Commit>,
    parent: Option<Arc<Place>>,
    name: Box<[u8]>,
    subdirectories: AtomicU32,
    /// A part of it cannot be read: what is counted is not all.
    broken: AtomicBool,
}

/// What remains to be visited.
pub(crate) enum Work {
    Directory(Arc<Place>),
    Buckets(Arc<Place>, Vec<(u64, Cell)>),
}

/// A name of an inode that has, or should have, other than one.
pub(crate) struct NameSeen {
    pub(crate) inode: Inode,
    identity: Identity,
    /// This name was the first to lead to the inode.
    first: bool,
    parent: Arc<Place>,
    name: Box<[u8]>,
    at: EntryAt,
}

/// Where in the tree something was found: made into a path when there is a fault.
#[derive(Clone, Copy)]
struct Location<'a> {
    parent: Option<&'a Arc<Place>>,
    name: &'a [u8],
    at: Option<EntryAt>,
    /// An inode that no name leads to.
    nameless: Option<Inode>,
}

impl Place {
    /// The path of `name` in this directory.
    fn path(&self, name: &[u8]) -> String {
        let mut parts = vec![name, &self.name];
        let mut at = self;
        while let Some(parent) = &at.parent {
            parts.push(&parent.name);
            at = parent;
        }
        let mut path = String::new();
        for part in parts.iter().rev().filter(|part| !part.is_empty()) {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(part));
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// The fault of a directory that counts its subdirectories wrongly; all of it has been visited.
    pub(crate) fn judge(&self) -> Option<FsckFault> {
        let count = self.subdirectories.load(Ordering::Relaxed);
        let said = self.commit?.aux;
        if self.broken.load(Ordering::Relaxed) || said == count {
            return None;
        }
        Some(FsckFault {
            code: "subdirectory-count",
            place: self.path(b""),
            meaning: format!("it counts {said} subdirectories and holds {count}"),
            remedy: Remedy::Repair,
            action: Action::Subdirectories { inode: self.inode, count },
        })
    }
}

impl NameSeen {
    /// The fault of an inode whose names, all of these, are not as many as it says.
    pub(crate) fn judge(seen: &[Self]) -> Option<FsckFault> {
        // The smallest path, whichever thread came first.
        let place = seen.iter().map(|name| name.parent.path(&name.name)).min()?;
        let any = seen.first()?;
        // An inode that says one, and was met by one name only, is not told.
        let names = seen.len() as u32 + u32::from(seen.iter().all(|name| !name.first));
        let said = any.identity.nlink;
        if names == said {
            return None;
        }
        let directory = any.identity.kind() == Some(Kind::Directory);
        let second = seen.iter().find(|name| !name.first).filter(|_| directory);
        let (remedy, action) = match second {
            Some(second) => (Remedy::Salvage, Action::Entry { at: second.at }),
            None => (Remedy::Repair, Action::Names { inode: any.inode, names }),
        };
        let meaning = format!("inode {} counts {said} names and has {names}", any.inode.0);
        Some(FsckFault { code: "link-count", place, meaning, remedy, action })
    }
}

impl Location<'_> {
    fn text(&self) -> String {
        match (self.parent, self.nameless) {
            (Some(parent), _) => parent.path(self.name),
            (None, Some(inode)) => format!("inode {} (open, without a name)", inode.0),
            (None, None) => "/".to_owned(),
        }
    }

    /// What removes this name.
    fn removal(&self) -> (Remedy, Action) {
        self.at.map_or((Remedy::None, Action::None), |at| (Remedy::Salvage, Action::Entry { at }))
    }
}

/// One thread's visit.
pub(crate) struct Visit<'s, 'v> {
    shared: &'s Shared<'v>,
    waiting: Vec<Work>,
    pub(crate) found: Found,
}

impl<'s, 'v> Visit<'s, 'v> {
    pub(crate) fn new(shared: &'s Shared<'v>) -> Self {
        Self { shared, waiting: Vec::new(), found: Found::default() }
    }

    /// The next item of those that this thread keeps for itself.
    pub(crate) fn next(&mut self) -> Option<Work> {
        self.waiting.pop()
    }

    fn push(&mut self, work: Work) {
        self.shared.know_another();
        if self.shared.is_hungry() {
            self.shared.offer(work);
        } else {
            self.waiting.push(work);
        }
    }

    pub(crate) fn perform(&mut self, work: Work) {
        match work {
            Work::Directory(place) => self.directory(&place),
            Work::Buckets(place, buckets) => self.buckets(&place, &buckets),
        }
    }

    fn fault(
        &mut self,
        code: &'static str,
        location: &Location<'_>,
        meaning: impl Into<String>,
        (remedy, action): (Remedy, Action),
    ) {
        let (place, meaning) = (location.text(), meaning.into());
        self.found.faults.push(FsckFault { code, place, meaning, remedy, action });
    }

    /// Marks blocks; `false`, and a fault, if they are not in the pool or have been marked already.
    fn mark_blocks(
        &mut self,
        block: u64,
        blocks: u64,
        metadata: bool,
        location: &Location<'_>,
    ) -> bool {
        let nothing = (Remedy::None, Action::None);
        if !self.shared.volume.in_pool(block, blocks) {
            let meaning = format!("block {block} lies outside the pool");
            self.fault("block-out-of-range", location, meaning, nothing);
            return false;
        }
        let fresh = self.shared.reached.mark_blocks(self.shared.volume, block, blocks, metadata);
        let counts = &mut self.found.counts;
        *(if metadata { &mut counts.metadata_blocks } else { &mut counts.data_blocks }) += blocks;
        if !fresh {
            let meaning = match blocks {
                1 => format!("block {block} belongs to something else as well"),
                _ => {
                    format!("some of {blocks} blocks from {block} on belong to something else too")
                }
            };
            self.fault("block-claimed-twice", location, meaning, nothing);
        }
        fresh
    }

    /// Marks an inode and its extent; gives whether this was its first visit.
    fn mark_inode(&mut self, inode: Inode, location: &Location<'_>) -> bool {
        if let Some(block) = self.shared.reached.mark_extent(self.shared.volume, inode) {
            self.mark_blocks(block, EXTENT_BLOCKS, true, location);
        }
        self.shared.reached.mark_inode(self.shared.volume, inode)
    }

    // ---- inodes
    // -------------------------------------------------------------------------------------

    /// Visits the root directory's inode.
    pub(crate) fn root(&mut self) {
        let superblock = self.shared.volume.superblock;
        let location = Location { parent: None, name: b"", at: None, nameless: None };
        let inode = Inode(superblock.root);
        let identity = self.shared.volume.identity(inode).unwrap_or_else(|_| {
            let identity = Identity {
                generation: superblock.root_generation,
                mode: libc::S_IFDIR | 0o755,
                nlink: 1,
                parent: inode.0,
                parent_generation: superblock.root_generation,
                btime: superblock.created as i64,
                ctime: superblock.created as i64,
                ..Identity::default()
            };
            let action = (Remedy::Repair, Action::Identity { inode, identity });
            let meaning = "the root directory's inode is damaged: owner and permissions are lost";
            self.fault("inode-identity", &location, meaning, action);
            identity
        });
        self.mark_inode(inode, &location);
        let right = identity.kind() == Some(Kind::Directory)
            && identity.generation == superblock.root_generation
            && identity.nlink == 1;
        if right {
            self.inode(inode, &identity, &location);
        } else {
            let meaning = "the root directory's inode is that of something else";
            self.fault("root", &location, meaning, (Remedy::None, Action::None));
        }
    }

    /// Visits an inode without a name; `false` if it has one after all, or is damaged.
    pub(crate) fn nameless(&mut self, inode: Inode) -> bool {
        let location = Location { parent: None, name: b"", at: None, nameless: Some(inode) };
        let Ok(identity) = self.shared.volume.identity(inode) else {
            let meaning = "the inode is damaged";
            self.fault("inode-identity", &location, meaning, (Remedy::None, Action::None));
            return false;
        };
        if !self.mark_inode(inode, &location) {
            return false;
        }
        let commit = self.contents(inode, &identity, &location);
        if identity.kind() == Some(Kind::Directory) {
            self.found.counts.directories += 1;
            let name = format!("(inode {}, without a name)", inode.0);
            self.keep_directory(inode, identity, commit, None, name.as_bytes());
        }
        true
    }

    fn keep_directory(
        &mut self,
        inode: Inode,
        identity: Identity,
        commit: Option<Commit>,
        parent: Option<&Arc<Place>>,
        name: &[u8],
    ) {
        let place = Arc::new(Place {
            inode,
            identity,
            commit,
            parent: parent.cloned(),
            name: name.into(),
            subdirectories: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        });
        self.found.directories.push(Arc::clone(&place));
        self.push(Work::Directory(place));
    }

    /// The identity line to which a name leads; a damaged one as far as it can be told.
    fn target(
        &mut self,
        inode: Inode,
        target: Target,
        location: &Location<'_>,
    ) -> Option<Identity> {
        let volume = self.shared.volume;
        let generation = target.node.generation;
        if let Ok(identity) = volume.identity(inode) {
            if identity.generation != generation {
                let meaning = format!(
                    "the name leads to an earlier file of inode {}, which is gone",
                    inode.0
                );
                self.fault("entry-generation", location, meaning, location.removal());
                return None;
            }
            if let (true, Some(kind), Some(at)) =
                (identity.kind() != Some(target.kind), identity.kind(), location.at)
            {
                let action = (Remedy::Repair, Action::Kind { at, kind });
                self.fault(
                    "entry-kind",
                    location,
                    "the entry and its inode differ in kind",
                    action,
                );
            }
            return Some(identity);
        }
        // Before anything else: the slot stays in use.
        self.mark_inode(inode, location);
        let Some((identity, parent)) = location.parent.and_then(|parent| {
            let (commit, _) = volume.commit_line(inode, generation).ok()?;
            Some((rebuilt_identity(target, &commit, parent)?, parent))
        }) else {
            let free = volume.region.load64(inode.at(IDENTITY)) == Ok(0);
            let meaning = format!(
                "the identity line of inode {} is {}",
                inode.0,
                if free { "free" } else { "damaged, and so is what it could be restored from" }
            );
            self.fault("inode-identity", location, meaning, location.removal());
            return None;
        };
        let meaning = format!(
            "the identity line of inode {} is damaged: owner and permissions are lost (a repair \
             gives it to user {}, and to that user alone)",
            inode.0, parent.identity.uid
        );
        let action = (Remedy::Repair, Action::Identity { inode, identity });
        self.fault("inode-identity", location, meaning, action);
        Some(identity)
    }

    fn entry(&mut self, parent: &Arc<Place>, name: &[u8], target: Target, at: EntryAt) {
        let location = Location { parent: Some(parent), name, at: Some(at), nameless: None };
        let Ok(inode) = self.shared.volume.inode(target.node.ino) else {
            let meaning = format!("the name leads to {}, which is no inode", target.node.ino);
            return self.fault("entry-inode", &location, meaning, location.removal());
        };
        let damaged = self.found.faults.len();
        let Some(identity) = self.target(inode, target, &location) else { return };
        let rebuilt = self.found.faults[damaged..].iter().any(|f| f.code == "inode-identity");
        // A damaged one was marked before it was known what it is.
        let first = self.mark_inode(inode, &location) || rebuilt;
        if (!first || identity.nlink != 1) && !rebuilt {
            let (parent, name) = (Arc::clone(parent), name.into());
            self.found.names.push(NameSeen { inode, identity, first, parent, name, at });
        }
        if first {
            if self.shared.volume.is_closed_for_good(inode) {
                self.found.spared.push(inode);
            }
            self.inode(inode, &identity, &location);
        }
    }

    /// Visits an inode for the first time.
    fn inode(&mut self, inode: Inode, identity: &Identity, location: &Location<'_>) {
        let commit = self.contents(inode, identity, location);
        match identity.kind() {
            Some(Kind::Directory) => {
                let found = location.parent.map_or((inode, identity.generation), |parent| {
                    (parent.inode, parent.identity.generation)
                });
                if (identity.parent, identity.parent_generation) != (found.0.0, found.1) {
                    let meaning = format!("its \"..\" leads to inode {}", identity.parent);
                    let parent = Node { ino: found.0.0, generation: found.1 };
                    let action = (Remedy::Repair, Action::Parent { inode, parent });
                    self.fault("directory-parent", location, meaning, action);
                }
                self.found.counts.directories += 1;
                self.keep_directory(inode, *identity, commit, location.parent, location.name);
            }
            Some(Kind::File) => self.found.counts.files += 1,
            _ => self.found.counts.others += 1,
        }
    }

    /// The commit line, the map and the attributes of an inode; gives the commit slot that counts.
    fn contents(
        &mut self,
        inode: Inode,
        identity: &Identity,
        location: &Location<'_>,
    ) -> Option<Commit> {
        let volume = self.shared.volume;
        let commit = volume.commit_line(inode, identity.generation).ok().map(|found| found.0);
        let is_file = identity.kind() == Some(Kind::File);
        if commit.is_none() {
            let meaning = format!("the commit line of inode {} is damaged", inode.0);
            let remedy = match identity.kind() {
                Some(Kind::File | Kind::Symlink) => Remedy::Salvage,
                _ => Remedy::Repair,
            };
            self.fault(
                "inode-commit",
                location,
                meaning,
                (remedy, Action::Commit { inode, at: location.at }),
            );
        }
        if is_file && commit.is_some_and(|commit| commit.flags & COMMIT_CHECKSUMMED != 0) {
            self.found.checksummed.push(inode);
        }
        let size = commit.map_or(SIZE_MAX, |commit| commit.size);
        if is_file && size > SIZE_MAX {
            let meaning = format!("its size is {size} bytes");
            self.fault("file-size", location, meaning, (Remedy::None, Action::None));
        }
        let beyond = self.map(inode, identity, size.div_ceil(BLOCK), location);
        let lazy = volume.left_size(inode, identity.generation);
        let leftover = beyond && is_file && identity.flags & FLAG_KEEP == 0;
        if leftover || lazy.is_ok_and(|lazy| lazy.is_some()) {
            self.found.leftovers.push(inode);
        }
        if self.shared.depth >= Depth::Thorough && commit.is_some() {
            self.check_contents(inode, identity, location);
        }
        commit
    }

    /// Marks what a map holds; gives whether some of it lies behind block `end` of the file.
    fn map(
        &mut self,
        inode: Inode,
        identity: &Identity,
        end: u64,
        location: &Location<'_>,
    ) -> bool {
        let before = self.found.faults.len();
        let (mut beyond, mut lost) = (false, Vec::new());
        let volume = self.shared.volume;
        let walked = volume.walk_map(inode, identity, &mut |item| {
            let marked = match item {
                MapItem::Node { block } | MapItem::Xattr { block } => {
                    self.mark_blocks(block, 1, true, location)
                }
                MapItem::Data { block, blocks, logical, unwritten } => {
                    beyond |= logical + blocks > end;
                    let marked = self.mark_blocks(block, blocks, false, location);
                    if marked && !unwritten {
                        self.probe(block, blocks, logical, &mut lost);
                    }
                    marked
                }
                MapItem::Damaged { at, logical } => {
                    let meaning = format!(
                        "the map word at offset {at} (from block {logical} of the file) is damaged"
                    );
                    self.fault(
                        "map-word",
                        location,
                        meaning,
                        (Remedy::Salvage, Action::Clear { at }),
                    );
                    true
                }
            };
            // A block with two owners may lead in circles: the visit ends here.
            if marked { Ok(()) } else { Err(Errno::IO) }
        });
        if walked.is_err() && self.found.faults.len() == before {
            let meaning = "its map cannot be read";
            self.fault("unreadable", location, meaning, (Remedy::None, Action::None));
        }
        self.tell_lost(&lost, location);
        beyond
    }

    /// Looks whether the memory of a file's blocks is there: what lies beyond the region's end is
    /// not; the rest is read only if asked for. `lost` gets those that are not: block and number in
    /// the file.
    fn probe(&self, block: u64, blocks: u64, logical: u64, lost: &mut Vec<(u64, u64)>) {
        let volume = self.shared.volume;
        let region = &volume.region;
        let length = region.len();
        if self.shared.depth < Depth::Data && (block + blocks) * BLOCK <= length {
            let is_lost = |at: &u64| volume.has_lost(block + at, 1);
            if self.shared.depth == Depth::Known && volume.has_lost(block, blocks) {
                lost.extend((0..blocks).filter(is_lost).map(|at| (block + at, logical + at)));
            }
            return;
        }
        let mut buffer = [0_u8; (PROBE * BLOCK) as usize];
        let mut at = 0;
        while at < blocks {
            let take = (blocks - at).min(PROBE);
            let readable = |from: u64, count: u64, buffer: &mut [u8]| {
                let bytes = &mut buffer[..(count * BLOCK) as usize];
                let at = (block + from) * BLOCK;
                let read = volume.with_absent(|| Ok(region.read(at, bytes)?));
                read.is_ok() || count == 1 && region.is_hole(at)
            };
            if !readable(at, take, &mut buffer) {
                let missing = (at..at + take).filter(|one| !readable(*one, 1, &mut buffer));
                lost.extend(missing.map(|at| (block + at, logical + at)));
            }
            at += take;
        }
    }

    /// Notes the blocks of a file whose memory is not there.
    fn tell_lost(&mut self, lost: &[(u64, u64)], location: &Location<'_>) {
        let Some(first) = lost.iter().map(|one| one.1).min() else { return };
        let count = lost.len();
        let meaning = format!(
            "the memory of {count} of its blocks cannot be read, the first is block {first} of the \
             file; restore the file from a copy, or overwrite it"
        );
        self.fault("media", location, meaning, (Remedy::None, Action::None));
        let runs = lost.chunk_by(|one, next| one.0 + 1 == next.0);
        let runs = runs.map(|run| (run[0].0 * BLOCK, run.len() as u64 * BLOCK)).collect();
        let place = self.found.faults.last().map(|fault| fault.place.clone()).unwrap_or_default();
        self.found.lost.push(LostData { place, runs, first: first * BLOCK });
    }

    /// Contents that only readers would notice: a symlink's target, the attributes' block.
    fn check_contents(&mut self, inode: Inode, identity: &Identity, location: &Location<'_>) {
        let volume = self.shared.volume;
        let symlink = identity.kind() == Some(Kind::Symlink);
        let target = || volume.with_absent(|| volume.read_target(inode, identity, &mut []));
        if symlink && target().is_err() {
            let meaning = "the target fails its checksum";
            self.fault("symlink-target", location, meaning, location.removal());
        }
        let named = volume.xattr_block(inode, identity);
        if named.is_ok_and(|block| block.is_some())
            && volume.with_absent(|| volume.packed_xattrs(inode, identity)).is_err()
        {
            let action = (Remedy::Salvage, Action::Clear { at: inode.at(XATTR_WORD) });
            let meaning = "the extended attributes fail their checksum";
            self.fault("xattr-block", location, meaning, action);
        }
    }

    // ---- directories
    // --------------------------------------------------------------------------------

    fn directory(&mut self, place: &Arc<Place>) {
        let dir = Dir { inode: place.inode, generation: place.identity.generation };
        let location = Location { parent: Some(place), name: b"", at: None, nameless: None };
        let before = self.found.faults.len();
        let mut buckets = Vec::new();
        let walked = self.shared.volume.walk_words(dir, &mut |word| {
            match word {
                Ok(word) => {
                    if !self.mark_blocks(word.block, 1, true, &location) {
                        return Err(Errno::IO);
                    }
                    if word.kind != NODE {
                        buckets.push((word.block, word.cell));
                    }
                }
                Err(bad) => {
                    place.broken.store(true, Ordering::Relaxed);
                    let meaning = format!("a word of a directory at offset {} is damaged", bad.at);
                    let action = Action::DirWord { dir, at: bad.at, lo: bad.lo, level: bad.level };
                    self.fault("directory", &location, meaning, (Remedy::Repair, action));
                }
            }
            Ok(())
        });
        if walked.is_err() {
            place.broken.store(true, Ordering::Relaxed);
            if self.found.faults.len() == before {
                let meaning = "the directory cannot be read";
                self.fault("unreadable", &location, meaning, (Remedy::None, Action::None));
            }
        }
        while buckets.len() > BATCH {
            let batch = buckets.split_off(buckets.len() - BATCH);
            self.push(Work::Buckets(Arc::clone(place), batch));
        }
        self.buckets(place, &buckets);
    }

    fn buckets(&mut self, place: &Arc<Place>, buckets: &[(u64, Cell)]) {
        let dir = Dir { inode: place.inode, generation: place.identity.generation };
        for &(block, cell) in buckets {
            let mut subdirectories = 0;
            // The visitor never fails, so neither does the walk.
            let _ = self.shared.volume.walk_bucket(dir, block, cell, &mut |item| {
                match item {
                    DirItem::Entry { name, target, slot } => {
                        subdirectories += u32::from(target.kind == Kind::Directory);
                        self.entry(place, name, target, EntryAt { dir, block, slot });
                    }
                    DirItem::Damaged { at, what } => {
                        place.broken.store(true, Ordering::Relaxed);
                        let location =
                            Location { parent: Some(place), name: b"", at: None, nameless: None };
                        let meaning = format!("{what} at offset {at} is damaged");
                        let action = Action::Bucket { dir, block, cell };
                        self.fault("directory", &location, meaning, (Remedy::Repair, action));
                    }
                }
                Ok(())
            });
            place.subdirectories.fetch_add(subdirectories, Ordering::Relaxed);
        }
    }
}

/// The identity line of what a sound name and a sound commit line tell of; not that of a device,
/// whose numbers are lost. It belongs to the directory's owner, with no rights for others.
fn rebuilt_identity(target: Target, commit: &Commit, parent: &Place) -> Option<Identity> {
    let (format, permissions) = match target.kind {
        Kind::File => (libc::S_IFREG, 0o600),
        Kind::Directory => (libc::S_IFDIR, 0o700),
        Kind::Symlink => (libc::S_IFLNK, 0o777),
        Kind::Fifo => (libc::S_IFIFO, 0o600),
        Kind::Socket => (libc::S_IFSOCK, 0o600),
        _ => return None,
    };
    let directory = target.kind == Kind::Directory;
    Some(Identity {
        generation: target.node.generation,
        mode: format | permissions,
        uid: parent.identity.uid,
        gid: parent.identity.gid,
        nlink: 1,
        parent: if directory { parent.inode.0 } else { 0 },
        parent_generation: if directory { parent.identity.generation } else { 0 },
        btime: commit.mtime,
        ctime: commit.mtime,
        ..Identity::default()
    })
}
