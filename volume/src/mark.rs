//! The mark phase: everything that is reachable from the root directory, verified on the way.
//!
//! What is reachable is allocated, everything else is free: recovery publishes this, fsck compares it
//! with the free map. The walk is iterative, visits each inode once (hard links), and keeps what it finds
//! in memory of this process. It only reads. Whatever fails a check is a [`FsckFault`]; the walk goes on
//! behind it, so what lies behind a damaged word is not marked: a mark with faults must not
//! be published.
//!
//! Nobody changes anything meanwhile: the caller is the first to attach, keeps the gate closed, or
//! works on a private copy.

use crate::bucket::Target;
use crate::chunk::{Bitmap, word_mask};
use crate::dirwalk::DirItem;
use crate::inode::Inode;
use crate::layout::{
    BLOCK, CHUNK_BLOCKS, COMMIT_SUMMED, EXTENT_BLOCKS, EXTENT_INODES, FLAG_KEEP, Identity, SIZE_MAX,
};
use crate::map::MapItem;
use crate::volume::Volume;
use rustix::io::Errno;
use std::collections::HashMap;
use vfs::Kind;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckFault {
    /// What kind of fault: a stable word for scripts.
    pub code: &'static str,
    /// Where: a path, an inode, a block.
    pub place: String,
    /// What it means, in a sentence.
    pub meaning: String,
}

/// What is in use in a chunk.
#[derive(Clone, Default)]
pub(crate) struct ChunkMark {
    pub(crate) bits: Bitmap,
    /// Which groups of eight blocks are inode extents.
    pub(crate) extents: u64,
    /// Whether any block holds metadata.
    pub(crate) metadata: bool,
}

/// A directory that was found: its place in the tree, for messages.
struct Place {
    inode: Inode,
    identity: Identity,
    parent: usize,
    name: Box<[u8]>,
}

/// The names of an inode that has, or should have, other than one.
struct Names {
    found: u32,
    expected: u32,
    place: String,
}

/// Counts of what was found.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) others: u64,
    pub(crate) data_blocks: u64,
    pub(crate) metadata_blocks: u64,
}

/// A mark in progress, then its result.
pub(crate) struct Mark<'v> {
    volume: &'v Volume,
    /// Also check what only a reader of contents would stumble over (targets, attributes).
    thorough: bool,
    pub(crate) chunks: Vec<ChunkMark>,
    /// Slots in use of each inode extent, by the extent's first block.
    pub(crate) slots: HashMap<u64, u64>,
    pub(crate) faults: Vec<FsckFault>,
    /// Files with blocks beyond their end that nobody asked for, or with a size that is newer than
    /// the durable one.
    pub(crate) leftovers: Vec<Inode>,
    /// Files whose newest commit slot is void if their tail is not what it sums.
    pub(crate) summed: Vec<Inode>,
    pub(crate) counts: Counts,
    /// Of the extra roots, those that no name leads to.
    pub(crate) nameless: Vec<Inode>,
    /// Inodes with a name that somebody who died was about to free.
    pub(crate) spared: Vec<Inode>,
    directories: Vec<Place>,
    names: HashMap<u64, Names>,
}

impl<'v> Mark<'v> {
    pub(crate) fn new(volume: &'v Volume, thorough: bool) -> Self {
        Self {
            volume,
            thorough,
            chunks: vec![ChunkMark::default(); volume.chunks() as usize],
            slots: HashMap::new(),
            faults: Vec::new(),
            leftovers: Vec::new(),
            summed: Vec::new(),
            counts: Counts::default(),
            nameless: Vec::new(),
            spared: Vec::new(),
            directories: Vec::new(),
            names: HashMap::new(),
        }
    }

    /// Marks everything reachable from the root directory and from `extra_roots` (inodes without a name
    /// that are open). `progress` hears the number of directories done and known.
    pub(crate) fn run(&mut self, extra_roots: &[Inode], progress: &mut dyn FnMut(u64, u64)) {
        self.visit_root();
        let mut next = self.visit_directories(0, progress);
        // After everything that has a name: some of these may have one.
        for &inode in extra_roots {
            self.visit_nameless(inode);
            next = self.visit_directories(next, progress);
        }
        self.check_names();
    }

    /// Visits the directories found so far, from number `next` on, and those found in them.
    fn visit_directories(&mut self, next: usize, progress: &mut dyn FnMut(u64, u64)) -> usize {
        let mut next = next;
        while next < self.directories.len() {
            self.visit_directory(next);
            next += 1;
            progress(next as u64, self.directories.len() as u64);
        }
        next
    }

    // ---- messages ----------------------------------------------------------------------------------

    fn fault(&mut self, code: &'static str, place: String, meaning: impl Into<String>) {
        self.faults.push(FsckFault { code, place, meaning: meaning.into() });
    }

    /// The path of `name` in a directory.
    fn path(&self, directory: usize, name: &[u8]) -> String {
        let mut parts = vec![name];
        let mut at = directory;
        while at != 0 {
            parts.push(&self.directories[at].name);
            at = self.directories[at].parent;
        }
        let mut path = String::new();
        for part in parts.iter().rev().filter(|part| !part.is_empty()) {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(part));
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    // ---- marking -----------------------------------------------------------------------------------

    /// Marks blocks; `false`, and a fault, if they are not in the pool or have been marked already.
    fn mark_blocks(
        &mut self,
        block: u64,
        blocks: u64,
        metadata: bool,
        place: &dyn Fn(&Self) -> String,
    ) -> bool {
        if !self.volume.in_pool(block, blocks) {
            let meaning = format!("block {block} lies outside the pool");
            self.fault("block-out-of-range", place(self), meaning);
            return false;
        }
        let mut twice = false;
        let (mut at, end) = (block, block + blocks);
        while at < end {
            let (chunk, index) = self.volume.chunk_of(at);
            let count = (end - at).min(CHUNK_BLOCKS - index);
            let mark = &mut self.chunks[chunk as usize];
            mark.metadata |= metadata;
            for word in index / 64..=(index + count - 1) / 64 {
                let mask = word_mask(word, index, count);
                twice |= mark.bits[word as usize] & mask != 0;
                mark.bits[word as usize] |= mask;
            }
            at += count;
        }
        let count =
            if metadata { &mut self.counts.metadata_blocks } else { &mut self.counts.data_blocks };
        *count += blocks;
        if twice {
            let meaning = match blocks {
                1 => format!("block {block} belongs to something else as well"),
                _ => {
                    format!("some of {blocks} blocks from {block} on belong to something else too")
                }
            };
            self.fault("block-claimed-twice", place(self), meaning);
        }
        !twice
    }

    /// Marks an inode and its extent; gives whether this was its first visit.
    fn mark_inode(&mut self, inode: Inode, place: &dyn Fn(&Self) -> String) -> bool {
        let block = inode.0 / EXTENT_INODES * EXTENT_BLOCKS;
        let (chunk, first) = self.volume.chunk_of(block);
        let extent = 1 << (first / EXTENT_BLOCKS);
        if self.chunks[chunk as usize].extents & extent == 0 {
            self.chunks[chunk as usize].extents |= extent;
            self.mark_blocks(block, EXTENT_BLOCKS, true, place);
        }
        let slots = self.slots.entry(block).or_insert(1);
        let bit = 1 << (inode.0 % EXTENT_INODES);
        let is_first = *slots & bit == 0;
        *slots |= bit;
        is_first
    }

    // ---- visiting ----------------------------------------------------------------------------------

    fn visit_root(&mut self) {
        let superblock = self.volume.superblock;
        let place = |_: &Self| "/".to_owned();
        let found = self.volume.inode(superblock.root);
        let Ok((inode, identity)) =
            found.and_then(|inode| Ok((inode, self.volume.identity(inode)?)))
        else {
            self.fault("inode-identity", "/".into(), "the root directory's inode is damaged");
            return;
        };
        self.mark_inode(inode, &place);
        let right = identity.kind() == Some(Kind::Directory)
            && identity.generation == superblock.root_generation
            && identity.nlink == 1;
        if !right {
            self.fault("root", "/".into(), "the root directory's inode is that of something else");
            return;
        }
        self.visit_inode(inode, &identity, 0, b"");
    }

    fn visit_nameless(&mut self, inode: Inode) {
        let place = |_: &Self| format!("inode {} (open, without a name)", inode.0);
        let Ok(identity) = self.volume.identity(inode) else {
            let place = place(self);
            return self.fault("inode-identity", place, "the inode is damaged");
        };
        if !self.mark_inode(inode, &place) {
            return;
        }
        self.nameless.push(inode);
        self.visit_contents(inode, &identity, &place);
        if identity.kind() == Some(Kind::Directory) {
            let name = b"(a removed directory)".as_slice().into();
            self.counts.directories += 1;
            self.directories.push(Place { inode, identity, parent: 0, name });
        }
    }

    fn visit_entry(&mut self, directory: usize, name: &[u8], target: Target) {
        let place = |mark: &Self| mark.path(directory, name);
        let Ok(inode) = self.volume.inode(target.node.ino) else {
            let meaning = format!("the name leads to {}, which is no inode", target.node.ino);
            let place = place(self);
            return self.fault("entry-inode", place, meaning);
        };
        let Ok(identity) = self.volume.identity(inode) else {
            self.mark_inode(inode, &place);
            let meaning = format!("the identity line of inode {} is damaged or free", inode.0);
            let place = place(self);
            return self.fault("inode-identity", place, meaning);
        };
        if identity.generation != target.node.generation {
            let meaning = format!("the name means a former use of inode {}", inode.0);
            let place = place(self);
            return self.fault("entry-generation", place, meaning);
        }
        if identity.kind() != Some(target.kind) {
            let place = place(self);
            self.fault("entry-kind", place, "the entry and its inode differ in kind");
        }
        let first = self.mark_inode(inode, &place);
        if !first || identity.nlink != 1 {
            let text = if first { place(self) } else { String::new() };
            let before = u32::from(!first);
            let names = self.names.entry(inode.0).or_insert_with(|| Names {
                found: before,
                expected: identity.nlink,
                place: text,
            });
            names.found += 1;
            if names.place.is_empty() {
                let text = self.path(directory, name);
                if let Some(names) = self.names.get_mut(&inode.0) {
                    names.place = text;
                }
            }
        }
        if first {
            if self.volume.is_closed_for_good(inode) {
                self.spared.push(inode);
            }
            self.visit_inode(inode, &identity, directory, name);
        }
    }

    /// Visits an inode for the first time.
    fn visit_inode(&mut self, inode: Inode, identity: &Identity, directory: usize, name: &[u8]) {
        let place = |mark: &Self| mark.path(directory, name);
        match identity.kind() {
            Some(Kind::Directory) => {
                let parent = self.directories.get(directory).map(|place| &place.identity);
                let parent = parent.unwrap_or(identity).generation;
                let parent_ino = self.directories.get(directory).map_or(inode, |place| place.inode);
                if identity.parent != parent_ino.0 || identity.parent_generation != parent {
                    let meaning = format!("its \"..\" leads to inode {}", identity.parent);
                    let place = place(self);
                    self.fault("directory-parent", place, meaning);
                }
                self.counts.directories += 1;
                self.directories.push(Place {
                    inode,
                    identity: *identity,
                    parent: directory,
                    name: name.into(),
                });
            }
            Some(Kind::File) => self.counts.files += 1,
            _ => self.counts.others += 1,
        }
        self.visit_contents(inode, identity, &place);
    }

    /// The commit line, the map and the attributes of an inode.
    fn visit_contents(
        &mut self,
        inode: Inode,
        identity: &Identity,
        place: &dyn Fn(&Self) -> String,
    ) {
        let Ok((commit, _)) = self.volume.commit_line(inode, identity.generation) else {
            let meaning = format!("the commit line of inode {} is damaged", inode.0);
            let place = place(self);
            return self.fault("inode-commit", place, meaning);
        };
        let is_file = identity.kind() == Some(Kind::File);
        if is_file && commit.flags & COMMIT_SUMMED != 0 {
            self.summed.push(inode);
        }
        if is_file && commit.size > SIZE_MAX {
            let place = place(self);
            self.fault("file-size", place, format!("its size is {} bytes", commit.size));
        }
        let end = commit.size.div_ceil(BLOCK);
        let mut beyond = false;
        let volume = self.volume;
        let walked = volume.walk_map(inode, identity, &mut |item| {
            let marked = match item {
                MapItem::Node { block } | MapItem::Xattr { block } => {
                    self.mark_blocks(block, 1, true, place)
                }
                MapItem::Data { block, blocks, logical, .. } => {
                    beyond |= is_file && logical + blocks > end;
                    self.mark_blocks(block, blocks, false, place)
                }
                MapItem::Damaged { at, logical } => {
                    let meaning = format!(
                        "the map word at offset {at} (from block {logical} of the file) is damaged"
                    );
                    let place = place(self);
                    self.fault("map-word", place, meaning);
                    true
                }
            };
            // What belongs to two owners may lead in circles: not any further.
            if marked { Ok(()) } else { Err(Errno::IO) }
        });
        if walked.is_err() && self.faults.is_empty() {
            let place = place(self);
            self.fault("unreadable", place, "its map cannot be read");
        }
        let lazy = self.volume.lazy_size(inode, identity.generation);
        if beyond && identity.flags & FLAG_KEEP == 0 || lazy.is_ok_and(|lazy| lazy.is_some()) {
            self.leftovers.push(inode);
        }
        if self.thorough {
            self.check_contents(inode, identity, place);
        }
    }

    /// What only its readers would notice: a symlink's target, the attributes' block.
    fn check_contents(
        &mut self,
        inode: Inode,
        identity: &Identity,
        place: &dyn Fn(&Self) -> String,
    ) {
        let symlink = identity.kind() == Some(Kind::Symlink);
        if symlink && self.volume.read_target(inode, identity, &mut []).is_err() {
            let place = place(self);
            self.fault("symlink-target", place, "the target fails its checksum");
        }
        if self.volume.packed_xattrs(inode, identity).is_err() {
            let place = place(self);
            self.fault("xattr-block", place, "the extended attributes fail their checksum");
        }
    }

    fn visit_directory(&mut self, index: usize) {
        let (inode, identity) = (self.directories[index].inode, self.directories[index].identity);
        let place = |mark: &Self| mark.path(index, b"");
        let mut subdirectories = 0u32;
        let volume = self.volume;
        let walked = volume.walk_directory(inode, &identity, &mut |item| {
            match item {
                DirItem::Block(block) => {
                    if !self.mark_blocks(block, 1, true, &place) {
                        return Err(Errno::IO);
                    }
                }
                DirItem::Entry { name, target } => {
                    subdirectories += u32::from(target.kind == Kind::Directory);
                    self.visit_entry(index, name, target);
                }
                DirItem::Damaged { at, what } => {
                    let place = place(self);
                    self.fault("directory", place, format!("{what} at offset {at} is damaged"));
                }
            }
            Ok(())
        });
        if walked.is_err() && self.faults.is_empty() {
            let place = place(self);
            self.fault("unreadable", place, "the directory cannot be read");
        }
        let Ok((commit, _)) = volume.commit_line(inode, identity.generation) else { return };
        if walked.is_ok() && commit.aux != subdirectories {
            let place = place(self);
            let meaning =
                format!("it counts {} subdirectories and holds {subdirectories}", commit.aux);
            self.fault("subdirectory-count", place, meaning);
        }
    }

    fn check_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        for (ino, names) in names {
            if names.found != names.expected {
                let meaning =
                    format!("inode {ino} counts {} names and has {}", names.expected, names.found);
                self.fault("link-count", names.place, meaning);
            }
        }
    }
}

/// The blocks of a bitmap that are set in `bits` and not in `other`, as runs {first, length}.
pub(crate) fn difference(bits: &Bitmap, other: &Bitmap) -> Vec<(u64, u64)> {
    let mut clear = Bitmap::default();
    for (word, value) in clear.iter_mut().enumerate() {
        *value = !(bits[word] & !other[word]);
    }
    let runs: Vec<(u64, u64)> = crate::chunk::free_runs(&clear).collect();
    debug_assert!(runs.iter().all(|run| run.0 + run.1 <= CHUNK_BLOCKS));
    runs
}
