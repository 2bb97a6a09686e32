//! Moves staged bytes to their place in the file, in the ways that a kernel offers, best first.
//!
//! - **Exchange** (`XFS_IOC_EXCHANGE_RANGE` to the end of both files): atomic, size included, and
//!   no block-aligned byte is copied. The staging file is cut at the append's end first, as the
//!   file gets its size, and the staged bytes lie at the offset where they belong, as the two
//!   *sizes* are swapped. What belongs in a block that the file has in part is copied there before:
//!   a block that other processes may be writing to is never exchanged. Both descriptors are the
//!   engine's own: read-write and not `O_APPEND`.
//! - **Clone** (`FICLONERANGE` of whole blocks, the rest of the last one copied; then the source is
//!   punched): not on file systems that map with `MAP_SYNC`, where cloning files that are mapped
//!   and written, and then unlinking them, stops the kernel (`BUG`; Linux 6.1 to 6.12). There it is
//!   exchange or copy.
//! - **Copy**: always.
//!
//! Which one works is found by trying, once for a hidden directory, and noted in the records. The
//! best that works is not the fastest everywhere: where the page cache stands before a medium an
//! exchange or a clone waits until the staged pages are written back, block by block as they were
//! stored, and a copy in long pieces is dirty memory only. So `posix` copies there, and moves
//! blocks where the file system maps its medium (DAX), or where that is asked for
//! ([`Home::relink`]).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use window::Window;

use crate::hidden_directory::Home;
use crate::{Result, sys};

/// The unit in which blocks move.
pub const BLOCK: u64 = 4096;

/// A part of an append is looked for behind other processes' appends only if it is as long; a
/// shorter match may be chance.
const PART_MIN: u64 = 64;
/// So much of a file is read at once.
const PIECE: u64 = 1 << 20;

/// How staged bytes get to their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `XFS_IOC_EXCHANGE_RANGE`.
    Exchange = 1,
    /// `FICLONERANGE` and punch.
    Clone = 2,
    /// `pwrite`.
    Copy = 3,
}

impl Backend {
    /// Whether a relink that copied so many bytes changed the file more than once.
    pub fn has_parts(self, copied: u64) -> bool {
        self != Self::Copy && copied > 0
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            Self::Exchange => "exchange",
            Self::Clone => "clone",
            Self::Copy => "copy",
        })
    }
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        let all = [Self::Exchange, Self::Clone, Self::Copy];
        let known = all.into_iter().find(|backend| backend.to_string() == word);
        known.ok_or_else(|| format!("{word} is not one of exchange, clone, copy"))
    }
}

/// The backend that a home's relinks go by: what is asked for, or else the best, if the file system
/// has it.
pub fn backend(home: &Home) -> Backend {
    let best = best(home);
    match home.relink {
        Some(Backend::Clone) if home.direct => Backend::Copy,
        Some(wanted) if wanted as u64 >= best as u64 => wanted,
        _ => best,
    }
}

/// The best one of a home's file system.
fn best(home: &Home) -> Backend {
    match home.records.backend() {
        1 => Backend::Exchange,
        2 => Backend::Clone,
        3 => Backend::Copy,
        _ => {
            let found = probe(home).unwrap_or(Backend::Copy);
            home.records.set_backend(found as u64);
            found
        }
    }
}

fn probe_file(home: &Home, name: &str, blocks: usize, byte: u8) -> Result<OwnedFd> {
    let name = format!("{name}.{}", rustix::process::getpid().as_raw_nonzero());
    let file = home.open_file(&name, OFlags::CREATE | OFlags::EXCL)?;
    home.remove_file(&name);
    rustix::io::pwrite(&file, &vec![byte; blocks * BLOCK as usize], 0)?;
    Ok(file)
}

fn probe(home: &Home) -> Result<Backend> {
    let (from, to) = (probe_file(home, "probe1", 2, 1)?, probe_file(home, "probe2", 1, 2)?);
    // No process has it mapped: what stops some kernels cannot happen here.
    if sys::exchange_to_end(&from, BLOCK, &to, BLOCK).is_ok() {
        let mut byte = [0];
        let moved = rustix::io::pread(&to, &mut byte, BLOCK)? == 1 && byte == [1];
        if moved && rustix::fs::fstat(&from)?.st_size as u64 == BLOCK {
            return Ok(Backend::Exchange);
        }
    }
    if !home.direct && sys::clone_range(&from, 0, &to, BLOCK, BLOCK).is_ok() {
        return Ok(Backend::Clone);
    }
    Ok(Backend::Copy)
}

/// Staged bytes on their way.
pub struct Move<'a, F: AsFd, T: AsFd> {
    /// The staging file, and its mapping if this process has one.
    pub staging: &'a F,
    /// See above; with it the file offset where it begins.
    pub window: Option<(&'a Window, u64)>,
    /// Where they lie in it.
    pub at: u64,
    /// The file.
    pub target: &'a T,
    /// Where they belong.
    pub base: u64,
    /// How many.
    pub length: u64,
    /// They belong at the end, wherever that is by then.
    pub appends: bool,
}

impl<F: AsFd, T: AsFd> Move<'_, F, T> {
    /// Moves them; gives how many bytes were copied.
    pub fn run(&self, backend: Backend) -> Result<u64> {
        let (aligned, same) = (self.at % BLOCK == self.base % BLOCK, self.at == self.base);
        match backend {
            Backend::Exchange if same => self.exchange(),
            // Other processes may append where it puts its blocks.
            Backend::Clone if aligned && !self.appends => self.clone_blocks(),
            _ => self.put(0, self.length),
        }
    }

    /// Copies `length` staged bytes from the `start`th on; those before them are there.
    /// Other processes may append meanwhile, also past the engine: the kernel's append overwrites
    /// nothing of theirs.
    pub fn put(&self, start: u64, length: u64) -> Result<u64> {
        if !self.appends {
            return self.copy(start, length);
        }
        let append = |_, address, length| sys::append_mapped(self.target, address, length);
        self.each(self.at + start, length, append)
    }

    /// How many bytes of an interrupted append are in the file: all, up to the end of one of its
    /// pages, or none.
    ///
    /// CRASH: the kernel stops at a page's edge if it is to kill the writer. The part is told from
    /// what other processes appended before it by its content; one of fewer than [`PART_MIN`] bytes
    /// behind theirs is taken for theirs: it stays, and the whole comes behind it.
    pub fn found(&self) -> Result<u64> {
        let size = rustix::fs::fstat(self.target)?.st_size as u64;
        let behind = size.saturating_sub(self.base);
        let staged = read_range(self.staging, self.at, self.length)?;
        let first = read_range(self.target, self.base, behind.min(self.length))?;
        if staged.starts_with(&first) {
            return Ok(first.len() as u64);
        }
        drop(first);
        let mut search = Search::new(&staged);
        let mut at = self.base;
        while at < size {
            let bytes = read_range(self.target, at, (size - at).min(PIECE))?;
            if bytes.is_empty() {
                break;
            }
            if search.go_on(&bytes) {
                return Ok(self.length);
            }
            at += bytes.len() as u64;
        }
        let part = search.matched as u64;
        let counts = at.is_multiple_of(BLOCK) && part >= PART_MIN;
        Ok(if counts { part } else { 0 })
    }

    /// The caller has seen that the file ends at `base`.
    fn exchange(&self) -> Result<u64> {
        let head = head(self.base, self.length);
        let rest = self.length - head;
        if head > 0 {
            self.put(0, head)?;
        }
        if rest == 0 {
            return Ok(head);
        }
        let (from, to) = (self.at + head, self.base + head);
        if self.appends && rustix::fs::fstat(self.target)?.st_size as u64 != to {
            return self.put(head, rest).map(|rest| head + rest);
        }
        rustix::fs::ftruncate(self.staging, self.at + self.length)?;
        let exchange = |()| sys::exchange_to_end(self.staging, from, self.target, to);
        match self.keep_blocks_behind_end().and_then(exchange) {
            Err(_) if self.appends => return self.put(head, rest).map(|rest| head + rest),
            exchanged => exchanged?,
        }
        let size = rustix::fs::fstat(self.staging)?.st_size as u64;
        if self.appends && size > from {
            // Processes past the engine have appended in between: their bytes came away.
            let append = |_, address, length| sys::append_mapped(self.target, address, length);
            self.each(from, size - from, append)?;
        }
        Ok(head)
    }

    /// Lets the kernel keep what the target has behind its end, as `fallocate` does for good.
    ///
    /// CRASH: the log recovery of XFS finishes an exchange that broke off, but in memory the target
    /// keeps the size that it had then. When its inode is dropped, all behind that is freed, which
    /// are staged bytes, and the file reads as zeros there (Linux 6.18; by all signs 6.12). The
    /// mark comes before the exchange in the log.
    fn keep_blocks_behind_end(&self) -> Result<()> {
        // A block that it has, if it has any.
        let at = self.base.saturating_sub(1);
        match rustix::fs::fallocate(self.target, FallocateFlags::KEEP_SIZE, at, 1) {
            Err(Errno::INTR) => self.keep_blocks_behind_end(),
            kept => kept,
        }
    }

    fn clone_blocks(&self) -> Result<u64> {
        let head = head(self.base, self.length);
        let body = (self.length - head) & !(BLOCK - 1);
        let tail = self.length - head - body;
        if head > 0 {
            self.copy(0, head)?;
        }
        if body > 0 {
            let (from, to) = (self.at + head, self.base + head);
            sys::clone_range(self.staging, from, self.target, to, body)?;
        }
        if tail > 0 {
            self.copy(head + body, tail)?;
        }
        Ok(head + tail)
    }

    /// Copies `length` staged bytes from the `start`th on.
    fn copy(&self, start: u64, length: u64) -> Result<u64> {
        let (from, to) = (self.at + start, self.base + start);
        self.each(from, length, |done, address, length| {
            sys::write_mapped(self.target, address, length, to + done)
        })
    }

    /// Lets `write` have the addresses of staged bytes, after how many were done.
    fn each(
        &self,
        from: u64,
        length: u64,
        write: impl Fn(u64, usize, usize) -> Result<usize>,
    ) -> Result<u64> {
        let mut done = 0;
        let mut buffer = Vec::new();
        while done < length {
            let (from, left) = (from + done, (length - done) as usize);
            let address = self
                .window
                .and_then(|(window, origin)| window.address((from - origin) as usize, left).ok());
            let wrote = if let Some(address) = address {
                write(done, address, left)
            } else {
                buffer.resize(left.min(1 << 18), 0);
                let got = rustix::io::pread(self.staging, &mut buffer[..], from)?;
                if got == 0 {
                    return Err(Errno::IO);
                }
                write(done, buffer.as_ptr() as usize, got)
            };
            match wrote {
                Ok(0) => return Err(Errno::IO),
                Ok(wrote) => done += wrote as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(length)
    }
}

/// A part of a file.
fn read_range(file: impl AsFd, at: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[done..], at + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Looks for bytes in a file that is read piece by piece, in linear time whatever repeats (Knuth,
/// Morris and Pratt).
struct Search<'a> {
    wanted: &'a [u8],
    /// How long the longest proper end of each of its beginnings is that is one of them, too.
    repeats: Vec<u32>,
    /// So many of its first bytes are the last ones that were read.
    matched: usize,
}

impl<'a> Search<'a> {
    /// Not of more than 4 GiB: such a run is not found, and comes again.
    fn new(wanted: &'a [u8]) -> Self {
        let wanted = if wanted.len() > u32::MAX as usize { &[] } else { wanted };
        let mut search = Self { wanted, repeats: Vec::with_capacity(wanted.len()), matched: 0 };
        for (at, &byte) in wanted.iter().enumerate() {
            if at > 0 {
                search.step(byte);
            }
            search.repeats.push(search.matched as u32);
        }
        search.matched = 0;
        search
    }

    fn step(&mut self, byte: u8) {
        while self.matched > 0 && self.wanted[self.matched] != byte {
            self.matched = self.repeats[self.matched - 1] as usize;
        }
        self.matched += usize::from(self.wanted[self.matched] == byte);
    }

    /// Reads on; whether all of it was found.
    fn go_on(&mut self, bytes: &[u8]) -> bool {
        !self.wanted.is_empty()
            && bytes.iter().any(|&byte| {
                self.step(byte);
                self.matched == self.wanted.len()
            })
    }
}

/// How many of `length` bytes from `base` on come before the next block.
pub fn head(base: u64, length: u64) -> u64 {
    ((BLOCK - base % BLOCK) % BLOCK).min(length)
}

/// After a clone: gives the staging file's share of the blocks back.
pub fn punch(staging: impl AsFd, at: u64, length: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // What stays shared costs a copy when it is written next, nothing else.
    let _ = rustix::fs::fallocate(staging, flags, at, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that ends in `tail` behind what others may have appended, and a run of `staged` bytes
    /// that began at its start: how much of that is there.
    fn found(tail: &[u8], staged: &[u8]) -> u64 {
        let base = crate::testing::base();
        let open = |bytes: &[u8]| {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let file = std::fs::File::from(rustix::fs::open(&base, flags, mode).expect("a file"));
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).expect("its bytes");
            file
        };
        let (staging, target) = (open(staged), open(tail));
        let length = staged.len() as u64;
        let (staging, target) = (&staging, &target);
        let moving = Move { staging, window: None, at: 0, target, base: 0, length, appends: true };
        moving.found().expect("a look")
    }

    /// What is there of an interrupted append is found whatever others have put before it, also
    /// where everything is alike: a look at each start would take hours here.
    #[test]
    fn what_is_there_of_an_append_is_found() {
        let run: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 / 13) as u8 | 1).collect();
        assert_eq!(found(&[], &run), 0);
        assert_eq!(found(&run, &run), 10_000);
        assert_eq!(found(&run[..4096], &run), 4096);
        let behind =
            |before: usize, part: usize| found(&[&vec![0; before], &run[..part]].concat(), &run);
        assert_eq!(behind(100, 10_000), 10_000, "all of it, at no page's edge");
        assert_eq!(behind(96, 4000), 4000, "up to a page's edge");
        assert_eq!(behind(96, 4001), 0, "no page's edge: the kernel does not stop there");
        assert_eq!(behind(4096 - 64, 64), 64);
        assert_eq!(behind(4096 - 63, 63), 0, "alike by chance");
        assert_eq!(behind(4095, 1), 0, "alike by chance");
        let (zeros, long) = (vec![0; 8 << 20], 4 << 20);
        assert_eq!(found(&zeros, &zeros[..long]), long as u64);
        let mut staged = zeros[..long].to_vec();
        staged[long - 1] = 1;
        let mut tail = zeros.clone();
        tail[0] = 1;
        assert_eq!(found(&tail, &staged), long as u64 - 1);
    }
}
