//! Where files and logs lie: a directory, and what a fence promises there.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use pmem::{Class, OpenOptions, Purpose, Region};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, File, FileOptions, Follower, Log, LogOptions, Result};

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A directory whose files are used as memory.
pub struct Place {
    path: PathBuf,
    directory: OwnedFd,
    class: Class,
    reason: String,
}

impl Place {
    /// Opens a directory. `page`: also where files are of the page cache and each wait is for the
    /// medium. Errors: `EOPNOTSUPP` without it; `ENOTDIR`.
    pub fn open(path: &Path, page: bool) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            let served = std::env::var_os("SOLERA_VOLUME").is_some();
            match Error::refused("open the place", errno) {
                Error::System(why, errno) if served => Error::System(
                    format!(
                        "{why}; what lies on a volume `flex` does not see yet: take a directory"
                    ),
                    errno,
                ),
                error => error,
            }
        })?;
        let stat = rustix::fs::fstat(&directory)
            .map_err(|errno| Error::refused("see what the place is", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let why = "the place is no directory; `flex` works on files of directories, not yet \
                       on volumes";
            return Err(Error::System(why.to_owned(), Errno::NOTDIR));
        }
        let (class, reason) = class_in(&directory, path)?;
        if class == Class::Page && !page {
            let why = format!(
                "{reason}: each wait is for the medium; ask for that by name (`page`, \
                               `SOLERA_PAGE`), or take another place"
            );
            return Err(Error::System(why, Errno::OPNOTSUPP));
        }
        // Whatever the program's directory is later.
        let path = std::fs::canonicalize(path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::refused("find the place's path", errno)
        })?;
        Ok(Self { path, directory, class, reason })
    }

    /// What a fence promises here, and why.
    pub fn class(&self) -> (Class, &str) {
        (self.class, &self.reason)
    }

    /// Opens a file of the place.
    pub fn file(&self, path: &Path, options: &FileOptions) -> Result<File> {
        File::open(&self.within(path)?, &FileOptions { page: self.is_page(), ..*options })
    }

    /// Opens a log of the place for writing.
    pub fn log(&self, path: &Path, options: &LogOptions) -> Result<Log> {
        Log::open(&self.within(path)?, &LogOptions { page: self.is_page(), ..*options })
    }

    /// Opens a log of the place for reading, while another process may write to it.
    pub fn follow(&self, path: &Path) -> Result<Follower> {
        Follower::open(&self.within(path)?)
    }

    /// Returns when all that this thread has streamed or flushed to files of the place is durable.
    /// In class `page` that is `syncfs`, of all that the file system holds.
    pub fn fence(&self) -> Result<()> {
        pmem::fence();
        if !self.is_page() {
            return Ok(());
        }
        rustix::io::retry_on_intr(|| rustix::fs::syncfs(&self.directory))
            .map_err(|errno| Error::refused("write the files to their medium", errno))
    }

    fn is_page(&self) -> bool {
        self.class == Class::Page
    }

    /// A path of the place, whose root it is.
    fn within(&self, path: &Path) -> Result<PathBuf> {
        let mut within = self.path.clone();
        for part in path.components() {
            match part {
                Component::Normal(name) => within.push(name),
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(Error::Invalid("a path of a place does not leave it by `..`"));
                }
            }
        }
        Ok(within)
    }
}

/// The class that files of a directory have: a file without a name tells.
fn class_in(directory: &OwnedFd, path: &Path) -> Result<(Class, String)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, ".", flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => file,
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC | Errno::DQUOT)) => {
            return Err(Error::refused("make a file of the place to see its class", errno));
        }
        // Not for this process, or not of this kind.
        Err(_) => {
            let system = rustix::fs::fstatfs(directory);
            return Ok(if system.is_ok_and(|system| system.f_type == TMPFS_MAGIC) {
                (Class::Volatile, "tmpfs: memory that a reboot empties".to_owned())
            } else {
                (Class::Page, "no file can be made there to find out more".to_owned())
            });
        }
    };
    // A page that is there: some file systems map nothing else synchronously.
    let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096);
    let options = OpenOptions {
        write: true,
        allow_page: true,
        purpose: Purpose::Growing,
        ..OpenOptions::default()
    };
    let region = Region::adopt(file, path, &options)?;
    Ok((region.class(), region.class_reason().to_owned()))
}
