//! Where files and logs lie: a directory, or a volume, and what a fence promises there.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use pmem::{Class, OpenOptions, Purpose, Region};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::volumes::{self, Names};
use crate::{Checked, Error, File, FileOptions, Follower, Log, LogOptions, Result};

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A directory whose files are used as memory, or a directory of a volume.
pub struct Place {
    path: PathBuf,
    backing: Backing,
}

enum Backing {
    Directory { directory: OwnedFd, class: Class, reason: String },
    Volume(Arc<dyn Names>),
}

impl Place {
    /// Opens a directory, or the root of a volume by its file or device. A directory may be one of
    /// a mounted volume, or of one that the program sees by `solera run`. `page`: also where files
    /// are of the page cache and each wait is for the medium. Errors: `EOPNOTSUPP` without it;
    /// `ENOTDIR`; what the volume says.
    pub fn open(path: &Path, page: bool) -> Result<Self> {
        if let Some(names) = volumes::find(path, page)? {
            let promise = names.promise();
            check_class(promise.class, &promise.reason, page)?;
            return Ok(Self { path: PathBuf::new(), backing: Backing::Volume(names) });
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| Error::refused("open the place", errno))?;
        let stat = rustix::fs::fstat(&directory)
            .map_err(|errno| Error::refused("see what the place is", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let why = "the place is neither a directory nor a volume".to_owned();
            return Err(Error::System(why, Errno::NOTDIR));
        }
        let (class, reason) = class_in(&directory, path)?;
        check_class(class, &reason, page)?;
        // Whatever the program's directory is later.
        let path = std::fs::canonicalize(path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::refused("find the place's path", errno)
        })?;
        Ok(Self { path, backing: Backing::Directory { directory, class, reason } })
    }

    /// The directory at a path if it is a volume's: as [`Place::open`], and nothing is tried out on
    /// a kernel file system. Class `page` is taken.
    pub fn of_volume(path: &Path) -> Result<Option<Self>> {
        let names = volumes::find(path, true)?;
        Ok(names.map(|names| Self { path: PathBuf::new(), backing: Backing::Volume(names) }))
    }

    /// What a fence promises here, and why.
    pub fn class(&self) -> (Class, &str) {
        match &self.backing {
            Backing::Directory { class, reason, .. } => (*class, reason),
            Backing::Volume(names) => (names.promise().class, &names.promise().reason),
        }
    }

    /// Opens a file of the place.
    pub fn file(&self, path: &Path, options: &FileOptions) -> Result<File> {
        let (path, options) =
            (self.within(path)?, FileOptions { page: self.is_page(), ..*options });
        match &self.backing {
            Backing::Directory { .. } => File::open(&path, &options),
            Backing::Volume(names) => File::open_on(&**names, &path, &options),
        }
    }

    /// Opens a log of the place for writing.
    pub fn log(&self, path: &Path, options: &LogOptions) -> Result<Log> {
        let options = LogOptions { page: self.is_page(), ..*options };
        Log::open_in(self.names(), &self.within(path)?, &options)
    }

    /// Opens a log of the place for reading, while another process may write to it.
    pub fn follow(&self, path: &Path) -> Result<Follower> {
        Follower::open_in(self.names(), &self.within(path)?)
    }

    /// What is in a log of the place, as [`crate::check`].
    pub fn check(&self, path: &Path) -> Result<Checked> {
        crate::log::walk_in(self.names(), &self.within(path)?, |_, _| ())
    }

    /// As [`Place::check`]; tells position and bytes of each record besides.
    pub fn walk(&self, path: &Path, each: impl FnMut(u64, &[u8])) -> Result<Checked> {
        crate::log::walk_in(self.names(), &self.within(path)?, each)
    }

    fn names(&self) -> Option<&dyn Names> {
        match &self.backing {
            Backing::Directory { .. } => None,
            Backing::Volume(names) => Some(&**names),
        }
    }

    /// Returns when all that this thread has streamed or flushed to files of the place is durable.
    /// In class `page`, and where a volume's calls are not durable at return, that is `syncfs`, of
    /// all that the file system holds.
    pub fn fence(&self) -> Result<()> {
        pmem::fence();
        let synced = match &self.backing {
            Backing::Directory { directory, class: Class::Page, .. } => {
                rustix::io::retry_on_intr(|| rustix::fs::syncfs(directory))
            }
            Backing::Volume(names) if names.promise().needs_sync() => names.sync(),
            Backing::Directory { .. } | Backing::Volume(_) => Ok(()),
        };
        synced.map_err(|errno| Error::refused("write the files to their medium", errno))
    }

    fn is_page(&self) -> bool {
        self.class().0 == Class::Page
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

/// Class `page` is taken by name only.
fn check_class(class: Class, reason: &str, page: bool) -> Result<()> {
    if class != Class::Page || page {
        return Ok(());
    }
    let why = format!(
        "{reason}: each wait is for the medium; ask for that by name (`page`, `SOLERA_PAGE`), or \
         take another place"
    );
    Err(Error::System(why, Errno::OPNOTSUPP))
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
