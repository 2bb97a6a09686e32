//! Errors of whole volumes (format, attach, grow, check): what was asked, what was found, what to
//! do.
//!
//! Calls of the contract give plain `errno` values; these errors are for a person at a terminal.

use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};

/// What kind of thing went wrong, for programs that decide by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The file cannot be opened or mapped.
    Region,
    /// The file lies on an ordinary disk, and class `page` was not asked for.
    OrdinaryDisk,
    /// It was not left in order, and must not be recovered by who asks.
    Unclean,
    /// There is no superblock.
    NotAVolume,
    /// Made by another version of the format, or with features this build does not know.
    Unsupported,
    /// The region is shorter than the volume in it.
    Truncated,
    /// A checksum is wrong, or the structures contradict each other.
    Damaged,
    /// Something is there already that must not be overwritten.
    Exists,
    /// Others use the volume in a way that excludes this call.
    InUse,
    /// The request makes no sense as it stands.
    Invalid,
    /// A system call failed.
    System,
}

/// An error of a whole volume.
#[derive(Debug)]
pub struct VolumeError {
    path: PathBuf,
    kind: ErrorKind,
    errno: Errno,
    asked: &'static str,
    found: String,
    advice: String,
}

impl VolumeError {
    /// `asked` completes "cannot ...", such as "attach".
    pub(crate) fn new(
        kind: ErrorKind,
        asked: &'static str,
        path: &Path,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let errno = match kind {
            ErrorKind::Region | ErrorKind::System | ErrorKind::Damaged | ErrorKind::Unclean => {
                Errno::IO
            }
            ErrorKind::NotAVolume | ErrorKind::Invalid | ErrorKind::Truncated => Errno::INVAL,
            ErrorKind::Unsupported | ErrorKind::OrdinaryDisk => Errno::OPNOTSUPP,
            ErrorKind::Exists => Errno::EXIST,
            ErrorKind::InUse => Errno::BUSY,
        };
        Self {
            path: path.to_owned(),
            kind,
            errno,
            asked,
            found: found.into(),
            advice: advice.into(),
        }
    }

    /// From a region that could not be opened.
    pub(crate) fn region(asked: &'static str, path: &Path, error: &pmem::OpenError) -> Self {
        let kind = if error.needs_class() { ErrorKind::OrdinaryDisk } else { ErrorKind::Region };
        let made = Self::new(kind, asked, path, error.found(), error.advice()).with(error.errno());
        if error.errno() == Errno::ISDIR { made.or_of_mount() } else { made }
    }

    /// From a system call; `what` says which step.
    pub(crate) fn system(asked: &'static str, path: &Path, what: &str, errno: Errno) -> Self {
        let errno = pmem::or_no_memory(errno);
        let advice = match errno {
            Errno::ACCESS | Errno::PERM => "ask its owner, or change its mode",
            Errno::ROFS => "use it where its directory can be written, or attach it read-only",
            Errno::NOSPC => "make room there",
            Errno::IO => "check the volume with `solera fsck`",
            _ => "check the path and the system's limits",
        };
        Self::new(
            ErrorKind::System,
            asked,
            path,
            format!("{what}: {}", os::describe(errno)),
            advice,
        )
        .with(errno)
    }

    /// With a closer error number than the kind's own.
    pub(crate) fn with(mut self, errno: Errno) -> Self {
        self.errno = errno;
        self
    }

    /// With better advice.
    pub(crate) fn advise(mut self, advice: &str) -> Self {
        advice.clone_into(&mut self.advice);
        self
    }

    /// Of a path that lies on a mounted volume: whose file was meant, perhaps.
    pub(crate) fn or_of_mount(mut self) -> Self {
        let mounts = vfs::mounts::list().unwrap_or_default();
        let Ok(real) = os::real_path(&self.path) else { return self };
        let Some(mount) = vfs::mounts::around(&mounts, &real) else { return self };
        let (volume, at) = (mount.volume.display(), mount.at.display());
        self.found = if mount.at == real {
            format!("it is a directory, and {volume} is mounted there")
        } else {
            format!("it lies on the volume {volume}, which is mounted at {at}")
        };
        self.advice = format!("name the volume's file: {volume}");
        self
    }

    /// The volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The verb of what was asked.
    pub fn asked(&self) -> &'static str {
        self.asked
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error number nearest to it, for faces that can hand out only a number.
    pub fn errno(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cannot {} {}: {}", self.asked, self.path.display(), self.found)?;
        if self.advice.is_empty() { Ok(()) } else { write!(out, "; {}", self.advice) }
    }
}

impl std::error::Error for VolumeError {}
