//! Reads: of what is cached, of what is not, and of the same bytes elsewhere.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::size::show;
use emulation::SlowMemory;
use flac::CHUNK;
use vfs::{Desc, FileSystem, IoOffset, UserOut};

use super::rows::{Buffer, Peer, Rows, median_ns};
use super::worker::Bench;
use super::{LONGEST_BYTES, testbed};
use crate::harness::bound::Bound;
use crate::worker::row::Random;

/// What `statfs` says of ext2 to ext4.
const EXT4_MAGIC: i64 = 0xEF53;
/// Bytes of short reads that are timed together.
const SLICE_BYTES: usize = 256 << 10;
/// Calls of a round, at most.
const CALLS: u64 = 4096;

/// Where bytes are read from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Engine(&'a dyn FileSystem, Desc),
    File(&'a File),
    Memory(&'a [u8]),
    /// A file, none of whose pages is cached, on memory that is slowed.
    Uncached(&'a File, &'a SlowMemory),
}

impl Source<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Engine(fs, desc) => {
                let wanted = into.len();
                let read = fs.read(*desc, &mut [UserOut::new(into)], IoOffset::offset(at));
                match read.map_err(|errno| Failure::errno("read on the volume", errno))? {
                    read if read == wanted => Ok(()),
                    read => Err(Failure::new("read on the volume", format!("{read} bytes"), "")),
                }
            }
            Self::File(file) => pread(file, at, into),
            Self::Memory(bytes) => {
                into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
                Ok(())
            }
            Self::Uncached(file, slow) => {
                let moving = slow.read(at, into.len() as u64);
                pread(file, at, into)?;
                moving.wait();
                Ok(())
            }
        }
    }
}

fn pread(file: &File, at: u64, into: &mut [u8]) -> Result<(), Failure> {
    file.read_exact_at(into, at).map_err(|error| Failure::io("read a copy of the file", &error))
}

/// The reads of a round.
#[derive(Clone)]
pub struct Reads {
    bytes: usize,
    at: Vec<u64>,
    /// Whether the bytes are looked at.
    summed: bool,
}

impl Reads {
    /// All of a file, in order, as far as the calls of a round go.
    pub fn in_order(size: u64, bytes: u64, summed: bool) -> Self {
        let at = (0..size / bytes).take(CALLS as usize).map(|call| call * bytes).collect();
        Self { bytes: bytes as usize, at, summed }
    }

    fn random(size: u64, bytes: u64) -> Self {
        let (mut random, places) = (Random::new(), size / bytes);
        let at = (0..places.min(CALLS)).map(|_| random.below(places) * bytes).collect();
        Self { bytes: bytes as usize, at, summed: false }
    }

    /// Nanoseconds of a read.
    pub fn time(&self, source: Source<'_>, buffer: &mut [u8]) -> Result<f64, Failure> {
        let into = &mut buffer[..self.bytes];
        let slice = (SLICE_BYTES / self.bytes).max(1);
        median_ns(&self.at, slice, |at| self.read(source, at, into))
    }

    /// The same, with a store to all of what was read, in the time.
    pub fn time_changing(&self, source: Source<'_>, buffer: &mut [u8]) -> Result<f64, Failure> {
        let into = &mut buffer[..self.bytes];
        median_ns(&self.at, 1, |at| {
            source.read(at, into)?;
            into.fill(at as u8);
            Ok(())
        })
    }

    /// Where they read.
    pub fn places(&self) -> &[u64] {
        &self.at
    }

    /// One of them; the bytes are looked at if those of all are.
    pub fn read(&self, source: Source<'_>, at: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        let into = &mut buffer[..self.bytes];
        source.read(at, into)?;
        if self.summed {
            black_box(sum(into));
        }
        Ok(())
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter();
    words.fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

/// Copies of the file outside the volume.
pub struct Copies {
    memory: Buffer,
    pub files: Vec<(&'static str, File)>,
    ext4: Option<File>,
}

impl Copies {
    /// Makes them of the file's bytes. Their names are gone at once.
    pub fn make(directory: &Path, contents: &[u8], rows: &mut Rows) -> Result<Self, Failure> {
        let mut memory = Buffer::new(contents.len());
        memory.bytes().copy_from_slice(contents);
        let mut files = vec![("tmpfs, 4 KiB pages", copy(directory, contents)?)];
        let huge = testbed::memory(directory);
        if flac::has_huge_pages(&huge) {
            files.push(("tmpfs, 2 MiB pages", copy(&huge, contents)?));
        }
        let ext4 = ext4_directory().map(|directory| copy(&directory, contents)).transpose()?;
        if ext4.is_none() {
            rows.skip("ext4: neither the working nor the temporary directory lies there".into());
        }
        Ok(Self { memory, files, ext4 })
    }

    fn peers(&mut self, at_most: Bound, reads: &Reads) -> Vec<Peer<'_>> {
        let reads = || reads.clone();
        let memory: &[u8] = self.memory.bytes();
        let mut peers = vec![peer("DRAM", at_most, reads(), Source::Memory(memory))];
        for (name, file) in &self.files {
            peers.push(peer(name, Bound::Shown, reads(), Source::File(file)));
        }
        if let Some(file) = &self.ext4 {
            peers.push(peer("ext4", Bound::Shown, reads(), Source::File(file)));
        }
        peers
    }
}

fn copy(directory: &Path, contents: &[u8]) -> Result<File, Failure> {
    let path = directory.join(format!("solera-bench-flac-{}", std::process::id()));
    let make = || {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        file.write_all_at(contents, 0)?;
        // Pages that are to be written cannot be dropped.
        file.sync_data()?;
        Ok(file)
    };
    make().map_err(|error| Failure::io(format!("write {}", path.display()), &error))
}

fn ext4_directory() -> Option<PathBuf> {
    let is_ext4 =
        |path: &PathBuf| rustix::fs::statfs(path).is_ok_and(|found| found.f_type == EXT4_MAGIC);
    [Some(std::env::temp_dir()), std::env::current_dir().ok()].into_iter().flatten().find(is_ext4)
}

pub fn peer<'a>(name: &str, at_most: Bound, reads: Reads, source: Source<'a>) -> Peer<'a> {
    Peer::new(name, at_most, Box::new(move |buffer| reads.time(source, buffer)))
}

/// Reads of what is cached.
pub fn hits(bench: &Bench, copies: &mut Copies, rows: &mut Rows) -> Result<(), Failure> {
    let size = bench.size;
    let against_dram = Bound::Times(1.1);
    let all = [
        ("hit, 2 MiB, summed", CHUNK, true, against_dram),
        ("hit, 2 MiB, untouched", CHUNK, false, Bound::Shown),
        ("hit, whole file, summed", size, true, Bound::Shown),
    ];
    for (name, bytes, summed, at_most) in all {
        let reads = Reads::in_order(size, bytes, summed);
        let mut peers = copies.peers(at_most, &reads);
        peers.push(peer("volume", Bound::Shown, reads.clone(), bench.engine()));
        let cached = bench.cached();
        rows.measure(name, Box::new(move |buffer| reads.time(cached, buffer)), peers)?;
    }
    let at_most = match rows.model.to_string().as_str() {
        "dram" => Bound::Times(1.3),
        "optane" | "cxl-ssd" => Bound::Times(0.6),
        _ => Bound::Shown,
    };
    let reads = Reads::random(size, 4096);
    let mut peers = vec![peer("volume", at_most, reads.clone(), bench.engine())];
    peers.extend(copies.peers(Bound::Shown, &reads));
    let cached = bench.cached();
    rows.measure("hit, 4 KiB, random", Box::new(move |into| reads.time(cached, into)), peers)
}

/// Reads of 2 MiB that find nothing in the cache.
pub fn misses(bench: &Bench, copies: &Copies, rows: &mut Rows) -> Result<(), Failure> {
    let at_most = match rows.model.to_string().as_str() {
        "dram" => Bound::Times(1.5),
        "cxl-ssd" => Bound::Times(1.1),
        _ => Bound::Shown,
    };
    let reads = Reads::in_order(bench.size, CHUNK, false);
    let mut peers = vec![peer("volume", at_most, reads.clone(), bench.engine())];
    let slow = SlowMemory::new(rows.model);
    if let Some(file) = &copies.ext4 {
        let (reads, source) = (reads.clone(), Source::Uncached(file, &slow));
        let work = move |buffer: &mut [u8]| {
            // Of this file alone: other programs keep what they have.
            rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|errno| Failure::errno("drop a file's pages", errno))?;
            reads.time(source, buffer)
        };
        peers.push(Peer::new("ext4, not cached", Bound::Shown, Box::new(work)));
    }
    let work = |buffer: &mut [u8]| {
        bench.forget()?;
        reads.time(bench.cached(), buffer)
    };
    rows.measure("miss, 2 MiB", Box::new(work), peers)?;
    let reads = Reads::in_order(bench.size, CHUNK, true);
    let work = |source: Source<'_>, buffer: &mut [u8]| {
        bench.forget()?;
        reads.time(source, buffer)
    };
    let own = Box::new(|buffer: &mut [u8]| work(bench.ahead(), buffer));
    let sync = Box::new(|buffer: &mut [u8]| work(bench.cached(), buffer));
    let peer = Peer::new("not ahead", Bound::Shown, sync);
    rows.measure("miss, 2 MiB, summed, filled ahead", own, vec![peer])
}

/// What a program sees of a file that is cached: reads of several lengths, in order and not.
pub fn patterns(bench: &Bench, copies: &Copies, rows: &mut Rows) -> Result<(), Failure> {
    for bytes in [4 << 10, 64 << 10, 1 << 20, LONGEST_BYTES] {
        let orders = [
            ("in order", Reads::in_order(bench.size, bytes, false)),
            ("random", Reads::random(bench.size, bytes)),
        ];
        for (order, reads) in orders {
            let name = format!("read {}, {order}", show(bytes).replace(".00", ""));
            let mut peers = vec![peer("volume", Bound::Shown, reads.clone(), bench.engine())];
            for (name, file) in &copies.files {
                peers.push(peer(name, Bound::Shown, reads.clone(), Source::File(file)));
            }
            let cached = bench.cached();
            rows.measure(&name, Box::new(move |buffer| reads.time(cached, buffer)), peers)?;
        }
    }
    Ok(())
}
