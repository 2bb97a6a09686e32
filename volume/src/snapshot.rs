//! A copy of a volume at one moment, while programs go on with it.
//!
//! Two passes. The first copies the data of all files while everybody works, and notes each file's
//! sequence number, which moves with every change. The second closes the gate: no call is under way, so
//! the volume is as after a crash between two calls; what those two moments have in common is not
//! copied again. The pause grows with the number of files and with what has changed, not with the data.
//! A file that is mapped can change without a call: it counts as changed.
//!
//! The copy holds the blocks that are in use, superblocks, state and lanes, but no runtime: it is attached
//! as after the death of every process, by recovery. So every call that had returned is in it, in every
//! mode, and none by half. (Stores of a program into its own mapping are in it as far as they had come.)
//!
//! CRASH: the copy gets its name when it is whole and synced.
//!
//! Locks: the gate, during the second pass.

use crate::Result;
use crate::attach::{AttachOptions, attach};
use crate::chunk::{Bitmap, Mask, free_runs};
use crate::error::{ErrorKind, VolumeError};
use crate::free_map::bits_of;
use crate::inode::Inode;
use crate::layout::{BLOCK, CHUNK_BLOCKS, EXTENT_BLOCKS, EXTENT_INODES, Identity};
use crate::liveness::{REGION_READERS, REGION_WRITERS, region_held};
use crate::map::MapItem;
use crate::reached::Reached;
use crate::volume::Volume;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vfs::Kind;

/// Bytes that are copied at a time.
const PIECE: u64 = 4 << 20;

/// How to make a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotOptions {
    /// Replace a file that is there.
    pub force: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotReport {
    /// Bytes of the copy that are in use.
    pub bytes: u64,
    /// Bytes that were copied during the pause.
    pub bytes_in_pause: u64,
    /// For how long changes by all programs had to wait.
    pub pause: Duration,
    /// All of it.
    pub elapsed: Duration,
    /// The file system shared the blocks instead of copying them.
    pub shared: bool,
}

/// What a file was when it was copied: generation, and sequence number if it had one.
type Seen = (u32, Option<u64>);

/// Copies the volume at `path` into the file `target`. `progress` hears bytes done and to do.
pub fn snapshot(
    path: &Path,
    target: &Path,
    options: SnapshotOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SnapshotReport, VolumeError> {
    check_target(path, target, options)?;
    let volume = attach(path, &AttachOptions::default())?;
    let report = volume.snapshot(target, options, progress);
    volume.leave().map_err(|errno| VolumeError::system("copy", path, "leaving it", errno))?;
    report
}

/// Refuses to replace what somebody may still want.
fn check_target(
    path: &Path,
    target: &Path,
    options: SnapshotOptions,
) -> std::result::Result<(), VolumeError> {
    let refuse = |kind, found: &str, advice: &str| {
        Err(VolumeError::new(kind, "make the copy", target, found, advice))
    };
    let Ok(there) = rustix::fs::stat(target) else { return Ok(()) };
    if rustix::fs::stat(path).is_ok_and(|s| (s.st_dev, s.st_ino) == (there.st_dev, there.st_ino)) {
        return refuse(ErrorKind::Invalid, "it is the volume itself", "choose another name");
    }
    if rustix::fs::FileType::from_raw_mode(there.st_mode) != rustix::fs::FileType::RegularFile {
        return refuse(
            ErrorKind::Exists,
            "it is there, and no regular file",
            "choose another name",
        );
    }
    if !options.force {
        return refuse(ErrorKind::Exists, "it exists", "choose another name, or say --force");
    }
    let file = rustix::fs::open(target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let held = file.is_ok_and(|file| {
        let held = |at| region_held(file.as_raw_fd(), at) == Ok(true);
        held(REGION_WRITERS) || held(REGION_READERS)
    });
    if held {
        let advice = "end the programs that use it (`solera detach` lists them)";
        return refuse(ErrorKind::InUse, "it is a volume in use", advice);
    }
    Ok(())
}

/// The file that the copy is made in: it has a name of its own until it is whole.
struct Copy {
    file: OwnedFd,
    name: PathBuf,
    done: bool,
}

impl Copy {
    fn make(volume: &Volume, target: &Path) -> Result<Self> {
        let mut name = target.to_owned().into_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let name = PathBuf::from(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mode = permissions(volume);
        let file = rustix::fs::open(&name, flags | OFlags::NOFOLLOW, mode)?;
        let copy = Self { file, name, done: false };
        rustix::fs::ftruncate(&copy.file, volume.size())?;
        Ok(copy)
    }

    /// Writes bytes of the region to where they lie in it.
    fn write(&self, volume: &Volume, at: u64, length: u64) -> Result<()> {
        if at + length > volume.region.len() {
            return Err(Errno::IO);
        }
        let (mut at, end) = (at, at + length);
        while at < end {
            let from = volume.region.base().wrapping_add(at as usize);
            let take = (end - at).min(PIECE) as usize;
            // SAFETY: the kernel reads mapped memory of the region and looks after its faults itself.
            let wrote = unsafe {
                libc::pwrite(self.file.as_raw_fd(), from.cast(), take, at as libc::off_t)
            };
            match wrote {
                count if count > 0 => at += count as u64,
                0 => return Err(Errno::NOSPC),
                _ => match Errno::from_raw_os_error(
                    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
                ) {
                    Errno::INTR => {}
                    // Memory that cannot be read.
                    Errno::FAULT => return Err(Errno::IO),
                    errno => return Err(errno),
                },
            }
        }
        Ok(())
    }

    /// Gives the whole copy its name.
    fn finish(mut self, target: &Path, options: SnapshotOptions) -> Result<()> {
        rustix::fs::fsync(&self.file)?;
        if options.force {
            rustix::fs::rename(&self.name, target)?;
        } else {
            let here = rustix::fs::CWD;
            match rustix::fs::renameat_with(here, &self.name, here, target, RenameFlags::NOREPLACE)
            {
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::link(&self.name, target)?;
                    rustix::fs::unlink(&self.name)?;
                }
                renamed => renamed?,
            }
        }
        self.done = true;
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.done {
            // Half a copy is of no use; that it cannot be removed would be no news.
            let _ = rustix::fs::unlink(&self.name);
        }
    }
}

/// Who may do what with the volume may do it with the copy.
fn permissions(volume: &Volume) -> Mode {
    // SAFETY: the region, and with it its descriptor, lives as long as the volume.
    let file = unsafe { BorrowedFd::borrow_raw(volume.region.fd()) };
    let mode = rustix::fs::fstat(file).map_or(0o600, |stat| stat.st_mode);
    Mode::from_raw_mode(mode & 0o777)
}

impl Volume {
    /// Copies the volume into the file `target`, while this and other processes go on with it.
    pub fn snapshot(
        &self,
        target: &Path,
        options: SnapshotOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<SnapshotReport, VolumeError> {
        let begun = Instant::now();
        let fail = |what: &str, errno| VolumeError::system("make the copy", target, what, errno);
        let copy = Copy::make(self, target).map_err(|errno| fail("creating it", errno))?;
        let mut report = self.copy_shared(&copy).map_err(|errno| fail("sharing blocks", errno))?;
        if !report.shared {
            report = self.copy_used(&copy, progress).map_err(|errno| match errno {
                Errno::TIMEDOUT => fail("waiting for a process that was stopped in a call", errno),
                errno => fail("copying", errno),
            })?;
        }
        copy.finish(target, options).map_err(|errno| fail("naming it", errno))?;
        report.elapsed = begun.elapsed();
        Ok(report)
    }

    /// Lets the file system share all blocks, if it can.
    fn copy_shared(&self, copy: &Copy) -> Result<SnapshotReport> {
        let mut report = SnapshotReport::default();
        // SAFETY: the region, and with it its descriptor, lives as long as the volume.
        let file = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        // Whether it can is found out while everybody works.
        if rustix::fs::ioctl_ficlone(&copy.file, file).is_err() {
            return Ok(report);
        }
        let begun = Instant::now();
        report.shared =
            self.in_quiet(|_| Ok(rustix::fs::ioctl_ficlone(&copy.file, file).is_ok()))?;
        report.pause = begun.elapsed();
        if report.shared {
            rustix::fs::ftruncate(&copy.file, self.size())?;
            report.bytes = self.size() - self.free_blocks()? * BLOCK;
        }
        Ok(report)
    }

    fn copy_used(&self, copy: &Copy, progress: &mut dyn FnMut(u64, u64)) -> Result<SnapshotReport> {
        let mut report = SnapshotReport::default();
        let seen = self.copy_files(copy, progress)?;
        let begun = Instant::now();
        self.in_quiet(|_| self.copy_rest(copy, &seen, &mut report))?;
        report.pause = begun.elapsed();
        Ok(report)
    }

    /// The first pass: copies the data of files that nobody changes meanwhile.
    fn copy_files(
        &self,
        copy: &Copy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<HashMap<u64, Seen>> {
        let total = (self.chunks() * CHUNK_BLOCKS).saturating_sub(self.free_blocks()?) * BLOCK;
        let mut seen = HashMap::new();
        let mut done = 0;
        for chunk in 0..self.chunks() {
            for inode in self.inodes_of_chunk(chunk)? {
                let Some((identity, before)) = self.look_at(inode) else { continue };
                let runs = self.data_of(inode, &identity);
                for &(block, blocks) in &runs {
                    copy.write(self, block * BLOCK, blocks * BLOCK)?;
                    done += blocks * BLOCK;
                }
                if self.look_at(inode).is_some_and(|(_, after)| after == before) {
                    seen.insert(inode.0, before);
                }
                progress(done.min(total), total);
            }
        }
        Ok(seen)
    }

    /// The second pass, while nothing changes: everything in use that the first one did not copy as it
    /// is now.
    fn copy_rest(
        &self,
        copy: &Copy,
        seen: &HashMap<u64, Seen>,
        report: &mut SnapshotReport,
    ) -> Result<()> {
        let same = Reached::new(self.chunks());
        for chunk in 0..self.chunks() {
            for inode in self.inodes_of_chunk(chunk)? {
                let Some(before) = seen.get(&inode.0) else { continue };
                let Some((identity, now)) = self.look_at(inode) else { continue };
                if now == *before {
                    for (block, blocks) in self.data_of(inode, &identity) {
                        same.mark_blocks(self, block, blocks, false);
                    }
                }
            }
        }
        let fixed = self.superblock.runtime;
        copy.write(self, 0, fixed)?;
        report.bytes = fixed;
        report.bytes_in_pause = fixed;
        for chunk in 0..self.chunks() {
            let (used, same) = (self.bitmap(chunk)?, same.bits(chunk));
            report.bytes += runs_of(&used).map(|run| run.1 * BLOCK).sum::<u64>();
            let rest: Bitmap = std::array::from_fn(|word| used[word] & !same[word]);
            for (first, count) in runs_of(&rest) {
                let block = self.chunk_start(chunk) + first;
                copy.write(self, block * BLOCK, count * BLOCK)?;
                report.bytes_in_pause += count * BLOCK;
            }
        }
        Ok(())
    }

    /// The inodes of a chunk that the free map says are in use.
    fn inodes_of_chunk(&self, chunk: u64) -> Result<Vec<Inode>> {
        let mut inodes = Vec::new();
        for index in bits_of(self.mask(chunk, Mask::Extents)?) {
            let block = self.chunk_start(chunk) + index * EXTENT_BLOCKS;
            let first = block / EXTENT_BLOCKS * EXTENT_INODES;
            let slots = self.extent_slots(chunk, index)?;
            inodes.extend(bits_of(slots & !1).map(|slot| Inode(first + slot)));
        }
        Ok(inodes)
    }

    /// A file's identity and what tells whether it has changed; `None` while it is changing, or if it
    /// can change without a call.
    fn look_at(&self, inode: Inode) -> Option<(Identity, Seen)> {
        let sequence = self.change_count(inode).ok()?;
        let identity = self.identity(inode).ok()?;
        let file = identity.kind() == Some(Kind::File);
        (file && self.change_count(inode) == Ok(sequence))
            .then_some((identity, (identity.generation, sequence)))
    }

    /// The blocks that hold a file's data, as far as its map can be read.
    fn data_of(&self, inode: Inode, identity: &Identity) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        // What moves meanwhile is noticed by the sequence number; what is damaged is copied with the
        // rest.
        let _ = self.walk_map(inode, identity, &mut |item| {
            if let MapItem::Data { block, blocks, unwritten: false, .. } = item {
                runs.push((block, blocks));
            }
            Ok(())
        });
        runs
    }
}

/// The runs of set bits {first, length}.
fn runs_of(bits: &Bitmap) -> impl Iterator<Item = (u64, u64)> {
    let clear: Bitmap = std::array::from_fn(|word| !bits[word]);
    let runs: Vec<_> = free_runs(&clear).collect();
    runs.into_iter()
}
