//! Copies a volume as it is at one moment, while programs go on with it.
//!
//! There are several passes (`snapshot_passes.rs`). All but the last run while all programs work:
//! they copy everything that is in use, and note of each file the sequence number under which its
//! data was copied. The last one closes the gate: no call is under way, so the volume is as after a
//! crash between two calls. The data of a file whose number has not moved is not looked at again;
//! metadata is compared with the copy, and written where it differs. So the pause grows with the
//! number of files (a number each, and the comparison of their metadata), with the data of files
//! that changed during the pass before, and with the size of those that are mapped, which can
//! change without a call; not with the data.
//!
//! The copy holds the blocks that are in use, superblocks, state and lanes, but no runtime: it is
//! attached as after the death of every process, by recovery. So every call that had returned is in
//! it, in every mode, and none by half. (Stores of a program into its own mapping are in it as far
//! as they had come.)
//!
//! It is another volume: it gets a UUID of its own, from which `st_dev` and a device's anchor come,
//! so both can be attached on one machine. It keeps the key by which names are hashed.
//!
//! CRASH: the copy gets its name when it is whole and synced. Before that it has none, where the
//! file system allows that: however the copying ends, nothing is left. Elsewhere, and for the
//! moment in which it takes the place of another file, it is called `TARGET.PID.partial`; the next
//! copy to the same target removes those of killed processes.
//!
//! Locks: the gate, during the second pass.

use crate::Result;
use crate::attach::format::of_copy;
use crate::attach::output_file::{Kept, is_held, is_in_anchor};
use crate::attach::snapshot_passes::{How, Passes};
use crate::attach::{AttachOptions, attach};
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, SUPERBLOCK_A, SUPERBLOCK_B};
use crate::process::liveness::{REGION_WRITERS, own_region};
use crate::volume::Volume;
use pmem::{Access, UserOut};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Bytes that are copied at a time.
const PIECE: u64 = 4 << 20;
/// Bytes that are compared at a time.
const COMPARED: usize = 64 << 10;
/// Bytes that are brought together.
const AHEAD: u64 = 256 << 10;
/// What ends the name of a copy that is not whole yet.
const PARTIAL: &str = ".partial";
/// Passes at most between the first and the last, to bring in what changed during the one before.
const CATCH_UPS: u32 = 3;
/// A pass of this length leaves little to the next.
const SHORT_ENOUGH: Duration = Duration::from_millis(300);

thread_local! {
    /// A piece of the volume, and of the copy.
    static PIECES: RefCell<Vec<u8>> = RefCell::new(vec![0; 2 * COMPARED]);
}

/// How to make a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotOptions {
    /// Replace a file that is there.
    pub force: bool,
    /// The copy is the same volume, not another one: it has the same UUID, and its files the same
    /// device number.
    pub keep_uuid: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotReport {
    /// Bytes of the copy that are in use.
    pub bytes: u64,
    /// Bytes that were looked at during the pause.
    pub bytes_in_pause: u64,
    /// Bytes that had to be written then.
    pub bytes_changed: u64,
    /// For how long changes by all programs had to wait.
    pub pause: Duration,
    /// All of it.
    pub elapsed: Duration,
    /// The file system shared the blocks instead of copying them.
    pub shared: bool,
}

/// Copies the volume at `path` into the file `target`. `progress` hears bytes done and to do.
pub fn snapshot(
    path: &Path,
    target: &Path,
    options: SnapshotOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SnapshotReport, VolumeError> {
    check_target(path, target, options)?;
    let volume = attach_to_copy(path)?;
    let report = volume.snapshot(target, options, progress);
    volume.leave().map_err(|errno| VolumeError::system("copy", path, "leaving it", errno))?;
    report
}

/// Attaches the volume as far as that is permitted: a copy only reads.
fn attach_to_copy(path: &Path) -> std::result::Result<Arc<Volume>, VolumeError> {
    attach(path, &AttachOptions::default()).or_else(|error| match error.errno() {
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::OPNOTSUPP => {
            attach(path, &AttachOptions { read_only: true, ..AttachOptions::default() })
        }
        _ => Err(error),
    })
}

/// Refuses to replace what a user may still want.
fn check_target(
    path: &Path,
    target: &Path,
    options: SnapshotOptions,
) -> std::result::Result<(), VolumeError> {
    let refuse = |kind, found: &str, advice: &str| {
        Err(VolumeError::new(kind, "make the copy", target, found, advice))
    };
    if is_in_anchor(target) {
        return refuse(ErrorKind::Invalid, &Kept::Anchor.to_string(), "choose another place");
    }
    let Ok(there) = rustix::fs::stat(target) else { return Ok(()) };
    if rustix::fs::stat(path).is_ok_and(|s| (s.st_dev, s.st_ino) == (there.st_dev, there.st_ino)) {
        return refuse(ErrorKind::Invalid, "it is the volume itself", "choose another name");
    }
    if rustix::fs::FileType::from_raw_mode(there.st_mode) != rustix::fs::FileType::RegularFile {
        return refuse(
            ErrorKind::Exists,
            "it exists, and is not a regular file",
            "choose another name",
        );
    }
    if !options.force {
        return refuse(ErrorKind::Exists, "it exists", "choose another name, or say --force");
    }
    let file = rustix::fs::open(target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    if file.is_ok_and(|file| is_held(&file) == Ok(true)) {
        let advice = "end the programs that use it (`solera detach` lists them)";
        return refuse(ErrorKind::InUse, "it is a volume in use", advice);
    }
    Ok(())
}

/// The file that the copy is made in: it has no name, or one of its own, until it is whole.
pub(crate) struct Copy {
    file: OwnedFd,
    name: Option<PathBuf>,
}

/// The name of a copy to `target` that is not whole yet.
fn partial_name(target: &Path) -> PathBuf {
    let mut name = target.to_owned().into_os_string();
    name.push(format!(".{}{PARTIAL}", std::process::id()));
    PathBuf::from(name)
}

/// Removes what copies to `target` that were killed have left: a living one has its file locked.
fn remove_partials(target: &Path) {
    let Some(target_name) = target.file_name() else { return };
    let directory = directory_of(target);
    for name in os::names_in(directory).unwrap_or_default() {
        let path = directory.join(&name);
        let pid = name
            .as_bytes()
            .strip_prefix(target_name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|rest| rest.strip_suffix(PARTIAL.as_bytes()));
        if !pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit)) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // A file that cannot be removed stays; it does no harm.
            let _ = rustix::fs::unlink(&path);
        }
    }
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Copy {
    fn make(volume: &Volume, target: &Path) -> Result<Self> {
        remove_partials(target);
        let mode = permissions(volume);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let copy = match rustix::fs::open(directory_of(target), flags | OFlags::TMPFILE, mode) {
            Ok(file) => Self { file, name: None },
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR | Errno::NOENT) => {
                let name = partial_name(target);
                let flags = flags | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
                let file = rustix::fs::open(&name, flags, mode)?;
                Self { file, name: Some(name) }
            }
            Err(errno) => return Err(errno),
        };
        // Where there are no such locks, what is left is left.
        let _ = rustix::fs::flock(&copy.file, FlockOperation::NonBlockingLockExclusive);
        copy.fit(volume)?;
        Ok(copy)
    }

    /// Makes it as long as the volume is.
    fn fit(&self, volume: &Volume) -> Result<()> {
        rustix::fs::ftruncate(&self.file, volume.size())
    }

    /// Writes those pieces of a range that differ from what is there; gives their bytes.
    pub(crate) fn bring(&self, volume: &Volume, at: u64, length: u64) -> Result<u64> {
        PIECES.with_borrow_mut(|pieces| {
            let (ours, theirs) = pieces.split_at_mut(COMPARED);
            let (mut at, end, mut written) = (at, at + length, 0);
            while at < end {
                let take = COMPARED.min((end - at) as usize);
                let (ours, theirs) = (&mut ours[..take], &mut theirs[..take]);
                volume
                    .with_absent(|| Ok(volume.region.read_to(at, &UserOut::new(ours), take)?))?;
                // What is too short, or cannot be read, is written anew.
                let there = rustix::io::pread(&self.file, &mut *theirs, at);
                if there != Ok(take) || ours != theirs {
                    self.write(volume, at, take as u64)?;
                    written += take as u64;
                }
                at += take as u64;
            }
            Ok(written)
        })
    }

    /// Writes bytes of the region to where they lie in it.
    pub(crate) fn write(&self, volume: &Volume, at: u64, length: u64) -> Result<()> {
        if at + length > volume.region.len() {
            return Err(Errno::IO);
        }
        let (mut at, end) = (at, at + length);
        while at < end {
            let from = volume.region.base().wrapping_add(at as usize);
            let take = (end - at).min(PIECE) as usize;
            // SAFETY: the kernel reads mapped memory of the region and looks after its faults
            // itself.
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
                    // Memory that the kernel cannot read: a hole, or lost.
                    Errno::FAULT => at += self.write_page(volume, at, end)?,
                    errno => return Err(errno),
                },
            }
        }
        Ok(())
    }

    /// Writes what lies in the page at `at`, or in its part before `end`, by way of our own memory;
    /// gives how many bytes.
    fn write_page(&self, volume: &Volume, at: u64, end: u64) -> Result<u64> {
        let mut page = [0; BLOCK as usize];
        let part = &mut page[..(end - at).min(BLOCK - at % BLOCK) as usize];
        if let Some(pager) = volume.region.pager().filter(|_| !volume.region.is_hole(at)) {
            // Absent, and so is what follows, say: by one message.
            pager.ready(&[(at, AHEAD.min(end - at))], Access::Load);
            volume.with_absent(|| Ok(volume.region.read(at, part)?))?;
        } else if volume.region.pager().is_some() {
            part.fill(0);
        } else if volume.region.read(at, part).is_err() {
            // A hole holds zeros.
            if !volume.region.is_hole(at) {
                return Err(Errno::IO);
            }
            part.fill(0);
        }
        match rustix::io::pwrite(&self.file, &*part, at)? {
            0 => Err(Errno::NOSPC),
            wrote => Ok(wrote as u64),
        }
    }

    /// Writes what the copy is: as large as it was at its moment, and another volume.
    fn identify(&self, volume: &Volume, options: SnapshotOptions) -> Result<()> {
        let superblock = of_copy(volume, options.keep_uuid)?;
        for at in [SUPERBLOCK_A, SUPERBLOCK_B] {
            if rustix::io::pwrite(&self.file, superblock.as_bytes(), at)?
                != size_of_val(&superblock)
            {
                return Err(Errno::NOSPC);
            }
        }
        Ok(())
    }

    /// Gives the whole copy its name. `EBUSY`: what is there has become a volume in use.
    fn finish(mut self, target: &Path, options: SnapshotOptions) -> Result<()> {
        rustix::fs::fsync(&self.file)?;
        if !options.force {
            return self.link(target);
        }
        if self.name.is_none() {
            let name = partial_name(target);
            self.link(&name)?;
            self.name = Some(name);
        }
        let Some(name) = &self.name else { return Err(Errno::NOENT) };
        // Until the other file has lost the name no process attaches it.
        let _kept = keep_unused(target)?;
        rustix::fs::rename(name, target)?;
        self.name = None;
        Ok(())
    }

    /// Gives it a name that nothing has.
    fn link(&mut self, target: &Path) -> Result<()> {
        let here = rustix::fs::CWD;
        let Some(name) = &self.name else {
            let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return rustix::fs::linkat(here, link, here, target, AtFlags::SYMLINK_FOLLOW);
        };
        match rustix::fs::renameat_with(here, name, here, target, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::link(name, target)?;
                rustix::fs::unlink(name)?;
            }
            renamed => renamed?,
        }
        self.name = None;
        Ok(())
    }
}

/// Keeps processes from attaching what is at `target`, if it is a file that may be written.
fn keep_unused(target: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(target, flags, Mode::empty()) else { return Ok(None) };
    if is_held(&file)? || own_region(file.as_raw_fd(), REGION_WRITERS) == Ok(false) {
        return Err(Errno::BUSY);
    }
    Ok(Some(file))
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Half a copy is of no use; it stays if it cannot be removed.
            let _ = rustix::fs::unlink(name);
        }
    }
}

/// A user's rights on the copy are those on the volume.
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
        copy.identify(self, options).map_err(|errno| fail("writing what it is", errno))?;
        copy.finish(target, options).map_err(|errno| match errno {
            Errno::BUSY => fail("replacing what is there, which is a volume in use by now", errno),
            errno => fail("naming it", errno),
        })?;
        report.elapsed = begun.elapsed();
        Ok(report)
    }

    /// Lets the file system share all blocks, if it can.
    fn copy_shared(&self, copy: &Copy) -> Result<SnapshotReport> {
        let mut report = SnapshotReport::default();
        // SAFETY: the region, and with it its descriptor, lives as long as the volume.
        let file = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        // Whether it can is found out while all programs work.
        // (Of absent pages it would share holes.)
        if self.region.pager().is_some() || rustix::fs::ioctl_ficlone(&copy.file, file).is_err() {
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
        let mut passes = Passes::default();
        let used = (self.chunks() * CHUNK_BLOCKS).saturating_sub(self.free_blocks()?) * BLOCK;
        let mut tell = |done: u64| progress(done.min(used), used);
        passes.run(self, copy, How::Write, &mut tell)?;
        for _ in 0..CATCH_UPS {
            let begun = Instant::now();
            passes.run(self, copy, How::Compare, &mut |_| {})?;
            if begun.elapsed() < SHORT_ENOUGH {
                break;
            }
        }
        let fixed = self.superblock.runtime;
        let begun = Instant::now();
        let last = self.in_quiet(|_| {
            copy.fit(self)?;
            copy.write(self, 0, fixed)?;
            passes.run(self, copy, How::Last, &mut |_| {})
        })?;
        Ok(SnapshotReport {
            bytes: last.used + fixed,
            bytes_in_pause: last.read + fixed,
            bytes_changed: last.written,
            pause: begun.elapsed(),
            ..SnapshotReport::default()
        })
    }
}
