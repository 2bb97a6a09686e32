//! Ordinary files as targets: what commands write that was not named as a volume.
//!
//! A slip on a command line (`solera cp FILE V` for `V:/`) must not cost a volume. So whatever
//! writes a file opens it here: a volume (also a damaged one, by either copy of its superblock),
//! what an anchor directory holds, block devices and dax devices are refused; all but a volume in
//! use and anchors are written if they were named as such. What is there is looked at by the
//! descriptor that is written later, and cut to nothing only then.
//!
//! Locks: a volume that is overwritten by name keeps the writers' byte of its region exclusively
//! until the descriptor is closed: no process attaches it meanwhile.

use crate::medium::layout::{MAGIC, SUPERBLOCK_A, SUPERBLOCK_B};
use crate::process::liveness::{HANDING, REGION_READERS, REGION_WRITERS, own_region, region_held};
use rustix::fs::{FileType, Mode, OFlags, Stat, StatFs, fstat};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why something is not written as an ordinary file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// It holds a volume.
    Volume,
    /// A process has attached it, or is looking at it.
    InUse,
    /// It is, or would be, part of an anchor directory.
    Anchor,
    /// It is a block device.
    BlockDevice,
    /// It is a dax device.
    DaxDevice,
    /// It is a fifo: writing to it would wait until a process reads, for ever perhaps.
    Fifo,
    /// A system call failed.
    System(Errno),
}

impl fmt::Display for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Volume => "it is a volume, not an ordinary file",
            Self::InUse => "it is a volume in use",
            Self::Anchor => "it lies in a volume's anchor directory",
            Self::BlockDevice => "it is a block device",
            Self::DaxDevice => "it is a dax device",
            Self::Fifo => "it is a fifo, and writing would wait until somebody reads it",
            Self::System(errno) => return out.write_str(&os::describe(*errno)),
        })
    }
}

impl From<Errno> for Kept {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Makes or empties an ordinary file and opens it for writing; a new one gets the permissions
/// `mode` less the umask. `by_name`: volumes that are not in use and devices may be written too.
pub fn create_ordinary(path: &Path, mode: u32, by_name: bool) -> Result<OwnedFd, Kept> {
    check_ordinary(path, by_name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    // A fifo that has come to lie there meanwhile is not waited for.
    let file = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(mode))?;
    check_file(&file, by_name)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    if is_regular(&fstat(&file)?) {
        rustix::fs::ftruncate(&file, 0)?;
    }
    Ok(file)
}

/// Whether [`create_ordinary`] would refuse what is at `path` now. Nothing is opened for writing.
pub fn check_ordinary(path: &Path, by_name: bool) -> Result<(), Kept> {
    if is_in_anchor(path) {
        return Err(Kept::Anchor);
    }
    match rustix::fs::stat(path) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
        Ok(stat) if is_regular(&stat) => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(file) => check_file(&file, by_name),
                // The open for writing checks again.
                Err(Errno::ACCESS) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        }
        Ok(stat) => check_other(&stat, rustix::fs::statfs(path).ok(), by_name),
    }
}

/// Whether an open file is one that may be written as an ordinary file.
pub fn is_ordinary(file: &OwnedFd) -> bool {
    check_file(file, false).is_ok()
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// What the kernel calls the file system of pipes without a name.
const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// Whether this is a fifo with a name: its opening waits for the other side. A pipe without one
/// (`/dev/stdout`, `>(...)` of a shell) has its other side already.
pub fn is_fifo(stat: &Stat, system: Option<StatFs>) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
        && system.is_none_or(|system| system.f_type != PIPEFS_MAGIC)
}

fn check_other(stat: &Stat, system: Option<StatFs>, by_name: bool) -> Result<(), Kept> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo if is_fifo(stat, system) => Err(Kept::Fifo),
        _ if by_name => Ok(()),
        FileType::BlockDevice => Err(Kept::BlockDevice),
        FileType::CharacterDevice => {
            let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            let sizes = ["size", "align"].map(|name| {
                rustix::fs::stat(format!("/sys/dev/char/{major}:{minor}/{name}")).is_ok()
            });
            if sizes == [true, true] { Err(Kept::DaxDevice) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// The same of an open file. One that is a volume and may be written is kept for the caller
/// exclusively.
fn check_file(file: &OwnedFd, by_name: bool) -> Result<(), Kept> {
    let stat = fstat(file)?;
    if !is_regular(&stat) {
        return check_other(&stat, rustix::fs::fstatfs(file).ok(), by_name);
    }
    if is_held(file)? {
        return Err(Kept::InUse);
    }
    if !holds_volume(file)? {
        return Ok(());
    }
    if !by_name {
        return Err(Kept::Volume);
    }
    match own_region(file.as_raw_fd(), REGION_WRITERS) {
        // One that is open for reading only is only looked at.
        Ok(true) | Err(Errno::BADF) => Ok(()),
        Ok(false) => Err(Kept::InUse),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether any process has the volume in this file attached, or looks at it.
pub(crate) fn is_held(file: &OwnedFd) -> Result<bool, Errno> {
    let held = |at| match region_held(file.as_raw_fd(), at) {
        // A file system without locks cannot hold a volume in use.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => Ok(false),
        held => held,
    };
    Ok(held(REGION_WRITERS)? || held(REGION_READERS)?)
}

/// Whether the magic number stands at either place, valid or not. A file that cannot be read is no
/// volume of the caller's.
pub(crate) fn holds_volume(file: &OwnedFd) -> Result<bool, Errno> {
    // The descriptor may be for writing only.
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = match rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => return Ok(false),
        opened => opened?,
    };
    for at in [SUPERBLOCK_A, SUPERBLOCK_B] {
        let mut word = [0; 8];
        if rustix::io::pread(&file, &mut word[..], at)? == 8 && u64::from_le_bytes(word) == MAGIC {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether `path` is in a volume's anchor directory, would be if it were made, or is one.
pub fn is_in_anchor(path: &Path) -> bool {
    real(path).is_some_and(|real| real.ancestors().any(is_anchor))
}

/// The path without symlinks, of what is there or would be made.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = os::real_path(path) {
        return Some(real);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = os::real_path(parent.unwrap_or(Path::new("."))).ok()?;
    Some(parent.join(path.file_name()?))
}

/// Whether a directory is one that holds a liveness file.
pub(crate) fn is_anchor(directory: &Path) -> bool {
    let kind = |name: &str| {
        let stat = rustix::fs::lstat(directory.join(name)).ok()?;
        Some((FileType::from_raw_mode(stat.st_mode), stat.st_size))
    };
    kind("live") == Some((FileType::RegularFile, 0))
        && kind(HANDING).is_some_and(|(kind, _)| kind == FileType::Directory)
}
