//! The passes of a copy (see [`crate::attach::snapshot`]) over everything that is in use.
//!
//! A pass over the *files* comes first: a file that has not changed since the last pass keeps that
//! pass's notes, without a look at its map; the data of the others is copied, and noted if the file
//! stood still meanwhile. Then comes the *rest*: metadata, and the data of files that did not stand
//! still; the last pass does only this, while nothing changes. From the second pass on only blocks
//! that differ are written.
//!
//! Threads share a pass by chunks of the pool. No locks but one around the results.

use crate::Result;
use crate::attach::snapshot::Copy;
use crate::data::map::MapItem;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, EXTENT_BLOCKS, EXTENT_INODES, Identity};
use crate::recovery::mark::all_threads;
use crate::recovery::reachability::Reached;
use crate::space::chunk::{Bitmap, Mask, free_runs};
use crate::space::free_map::bits_of;
use crate::volume::Volume;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use vfs::Kind;

/// Chunks that a thread takes at a time.
const STRIDE: u64 = 16;

/// A file as it was when its data was copied.
#[derive(Clone, Copy)]
struct Seen {
    inode: Inode,
    /// What moves with every change; `None` before the first in this epoch.
    sequence: Option<u64>,
    /// Its blocks: this many of its chunk's runs, after those of the files before it.
    runs: usize,
}

/// The files with an inode in one chunk.
#[derive(Default)]
struct ChunkFiles {
    seen: Vec<Seen>,
    /// Blocks {first, count}.
    runs: Vec<(u64, u64)>,
}

/// What the passes so far have copied.
#[derive(Default)]
pub(crate) struct Passes {
    /// By chunk.
    files: Vec<ChunkFiles>,
}

/// What one pass did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Bytes in use.
    pub(crate) used: u64,
    /// Bytes that were looked at.
    pub(crate) read: u64,
    /// Bytes that were written.
    pub(crate) written: u64,
}

/// How a pass treats blocks that may differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The copy is empty.
    Write,
    /// Most of it is there already.
    Compare,
    /// The same, and nothing changes meanwhile.
    Last,
}

impl Passes {
    /// Goes over the volume once. `progress` hears bytes.
    pub(crate) fn run(
        &mut self,
        volume: &Volume,
        copy: &Copy,
        how: How,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Done> {
        let chunks = volume.chunks();
        self.files.resize_with(chunks as usize, ChunkFiles::default);
        let (same, told) = (Reached::new(chunks), AtomicU64::new(0));
        let mut tell = || progress(told.load(Ordering::Relaxed));
        let (known, backed) = (&self.files, volume.backed());
        let files = share(chunks, &mut tell, |chunk| {
            if !backed.has(chunk) {
                return Ok(ChunkFiles::default());
            }
            let files = FilesPass { volume, copy, how, same: &same, told: &told };
            files.chunk(chunk, &known[chunk as usize])
        })?;
        let rest = share(chunks, &mut tell, |chunk| {
            if !backed.has(chunk) {
                return Ok(Done::default());
            }
            let done = copy_rest(volume, copy, how, chunk, &same)?;
            told.fetch_add(done.read, Ordering::Relaxed);
            Ok(done)
        })?;
        for (chunk, files) in files {
            self.files[chunk as usize] = files;
        }
        let mut sum = Done::default();
        for (_, done) in rest {
            sum.used += done.used;
            sum.read += done.read;
            sum.written += done.written;
        }
        Ok(sum)
    }
}

/// Does `work` for each chunk, in several threads; gives the results.
fn share<T: Send>(
    chunks: u64,
    tell: &mut dyn FnMut(),
    work: impl Fn(u64) -> Result<T> + Sync,
) -> Result<Vec<(u64, T)>> {
    let (next, results) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let run = |tell: &mut dyn FnMut()| -> Result<()> {
        loop {
            let first = next.fetch_add(STRIDE, Ordering::Relaxed);
            if first >= chunks {
                return Ok(());
            }
            for chunk in first..chunks.min(first + STRIDE) {
                let result = work(chunk)?;
                results.lock().unwrap_or_else(PoisonError::into_inner).push((chunk, result));
            }
            tell();
        }
    };
    let run = &run;
    std::thread::scope(|scope| {
        let helpers = (all_threads() as u64).min(chunks.div_ceil(STRIDE));
        // Where no thread can be had, this one does it all.
        let threads: Vec<_> = (1..helpers)
            .map_while(|_| {
                std::thread::Builder::new().spawn_scoped(scope, move || run(&mut || {})).ok()
            })
            .collect();
        let own = run(tell);
        threads.into_iter().fold(own, |result, thread| {
            let joined = thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
            result.and(joined)
        })
    })?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A pass over the files.
struct FilesPass<'p> {
    volume: &'p Volume,
    copy: &'p Copy,
    how: How,
    same: &'p Reached,
    told: &'p AtomicU64,
}

impl FilesPass<'_> {
    /// Those with an inode in a chunk.
    fn chunk(&self, chunk: u64, known: &ChunkFiles) -> Result<ChunkFiles> {
        let mut files = ChunkFiles::default();
        let (mut old, mut behind) = (known.seen.iter().peekable(), 0);
        for inode in inodes_of_chunk(self.volume, chunk)? {
            while let Some(gone) = old.next_if(|seen| seen.inode.0 < inode.0) {
                behind += gone.runs;
            }
            let seen = old.next_if(|seen| seen.inode == inode).copied();
            let runs = seen.map_or(&[][..], |seen| &known.runs[behind..behind + seen.runs]);
            behind += runs.len();
            match seen {
                Some(seen) if self.volume.change_count(inode) == Ok(seen.sequence) => {
                    files.add(seen.inode, seen.sequence, runs);
                }
                // While nothing changes, all the rest can be compared in one go.
                _ if self.how == How::Last => {}
                _ => self.file(inode, &mut files)?,
            }
        }
        for &(block, blocks) in &files.runs {
            self.same.mark_blocks(self.volume, block, blocks, false);
        }
        Ok(files)
    }

    /// Copies a file's data, and notes it if it stood still.
    fn file(&self, inode: Inode, files: &mut ChunkFiles) -> Result<()> {
        // It is changing, or can change without a call: it belongs to the rest.
        let Ok(before) = self.volume.change_count(inode) else { return Ok(()) };
        let Ok(identity) = self.volume.identity(inode) else { return Ok(()) };
        if identity.kind() != Some(Kind::File) {
            return Ok(());
        }
        let mut all = Vec::new();
        for Run { block, blocks, unwritten } in data_of(self.volume, inode, &identity) {
            // The contents of an unwritten block are never read.
            if !unwritten {
                self.copy.write(self.volume, block * BLOCK, blocks * BLOCK)?;
                self.told.fetch_add(blocks * BLOCK, Ordering::Relaxed);
            }
            all.push((block, blocks));
        }
        if self.volume.change_count(inode) == Ok(before) {
            files.add(inode, before, &all);
        }
        Ok(())
    }
}

impl ChunkFiles {
    fn add(&mut self, inode: Inode, sequence: Option<u64>, runs: &[(u64, u64)]) {
        self.seen.push(Seen { inode, sequence, runs: runs.len() });
        self.runs.extend_from_slice(runs);
    }
}

/// Copies what is in use in a chunk and not known to be the same.
fn copy_rest(volume: &Volume, copy: &Copy, how: How, chunk: u64, same: &Reached) -> Result<Done> {
    let mut done = Done::default();
    let (used, same) = (volume.bitmap(chunk)?, same.bits(chunk));
    done.used = runs_of(&used).map(|run| run.1 * BLOCK).sum();
    let rest: Bitmap = std::array::from_fn(|word| used[word] & !same[word]);
    for (first, count) in runs_of(&rest) {
        let (at, length) = ((volume.chunk_start(chunk) + first) * BLOCK, count * BLOCK);
        done.read += length;
        done.written += match how {
            How::Write => copy.write(volume, at, length).map(|()| length)?,
            How::Compare | How::Last => copy.bring(volume, at, length)?,
        };
    }
    Ok(done)
}

/// The inodes of a chunk that the free map says are in use, in ascending order.
fn inodes_of_chunk(volume: &Volume, chunk: u64) -> Result<Vec<Inode>> {
    let mut inodes = Vec::new();
    for index in bits_of(volume.mask(chunk, Mask::Extents)?) {
        let block = volume.chunk_start(chunk) + index * EXTENT_BLOCKS;
        let first = block / EXTENT_BLOCKS * EXTENT_INODES;
        let slots = volume.extent_slots(chunk, index)?;
        inodes.extend(bits_of(slots & !1).map(|slot| Inode(first + slot)));
    }
    Ok(inodes)
}

/// Blocks of a file that follow each other.
struct Run {
    block: u64,
    blocks: u64,
    unwritten: bool,
}

/// The blocks that hold a file's data, as far as its map can be read.
fn data_of(volume: &Volume, inode: Inode, identity: &Identity) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // The sequence number tells of changes meanwhile; damaged parts are copied with the rest.
    let _ = volume.walk_map(inode, identity, &mut |item| {
        if let MapItem::Data { block, blocks, unwritten, .. } = item {
            match runs.last_mut() {
                Some(last) if last.block + last.blocks == block && last.unwritten == unwritten => {
                    last.blocks += blocks;
                }
                _ => runs.push(Run { block, blocks, unwritten }),
            }
        }
        Ok(())
    });
    runs
}

/// The runs of set bits {first, length}.
fn runs_of(bits: &Bitmap) -> impl Iterator<Item = (u64, u64)> {
    let clear: Bitmap = std::array::from_fn(|word| !bits[word]);
    let runs: Vec<_> = free_runs(&clear).collect();
    runs.into_iter()
}
