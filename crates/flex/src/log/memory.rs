//! A log's file, opened, and in memory: of a kernel file system, or of a volume.

use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use pmem::{OpenOptions, Purpose, Region};
use robust::bytes::{self, Hold, Kind as Lock};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::format::HEAD_BYTES;
use crate::opener::Opener;
use crate::volumes::{Answer, Mapping, Names, OpenFile, Range};
use crate::{Error, Result};

/// Where a log's path leads: a directory of a volume, or the kernel.
pub type In<'n> = Option<&'n dyn Names>;

/// An open file.
pub enum Opened {
    Kernel(OwnedFd),
    Volume(Arc<dyn OpenFile>),
}

impl Opened {
    /// Opens what a path leads to.
    pub fn open(names: In<'_>, path: &Path, flags: OFlags, mode: u32) -> Answer<Self> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(match names {
            Some(names) => Self::Volume(names.open(path, flags.bits() as i32, mode)?),
            None => Self::Kernel(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?),
        })
    }

    /// Its size. Errors: `Damaged`, it cannot be a log.
    pub fn look(&self) -> Result<u64> {
        let size = match self {
            Self::Kernel(file) => rustix::fs::fstat(file).map(|stat| {
                let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                regular.then_some(stat.st_size as u64)
            }),
            Self::Volume(file) => file.size(),
        };
        match size.map_err(|errno| Error::refused("look at the log", errno))? {
            None => Err(Error::Damaged("it is no file, and so no log".to_owned())),
            Some(size) if size < HEAD_BYTES => {
                Err(Error::Damaged(format!("it has {size} bytes, and is no log")))
            }
            Some(size) => Ok(size),
        }
    }

    /// Takes the right to write. `false`: another opening has it.
    pub fn lock(&self) -> Answer<bool> {
        match self {
            Self::Kernel(file) => {
                bytes::try_take(file.as_raw_fd(), Lock::Description, Hold::Alone, 0)
            }
            Self::Volume(file) => match file.lock_range(Range::Alone, 0, 1) {
                Err(Errno::AGAIN) => Ok(false),
                done => done.map(|()| true),
            },
        }
    }

    /// Makes it `size` bytes long, durably, with blocks for all of them: else a store would find
    /// the file system full.
    pub fn allocate(&self, size: u64) -> Result<()> {
        let allocated = match self {
            Self::Kernel(file) => {
                let none = FallocateFlags::empty();
                match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, none, 0, size)) {
                    Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(file, size),
                    done => done,
                }
            }
            Self::Volume(file) => file.allocate(size),
        };
        allocated.map_err(|errno| Error::refused("get space for the log", errno))?;
        let synced = match self {
            Self::Kernel(file) => rustix::fs::fsync(file),
            Self::Volume(file) => file.sync(),
        };
        synced.map_err(|errno| Error::refused("make the log's file durable", errno))
    }

    /// Maps all of it. `page`: also where it is of the page cache.
    pub fn map(self, path: &Path, write: bool, page: bool) -> Result<Memory> {
        let file = match self {
            Self::Kernel(file) => {
                let purpose = Purpose::File;
                let options =
                    OpenOptions { write, allow_page: page, purpose, ..OpenOptions::default() };
                return Ok(Memory::of(Region::adopt(file, path, &options)?));
            }
            Self::Volume(file) => file,
        };
        let size = file.size().map_err(|errno| Error::refused("look at the log", errno))?;
        let size = size.unwrap_or(0);
        let mapping = Mapping::new(&*file, size, write)?;
        mapping.cover(&*file, size)?;
        Ok(Memory(Backing::Volume(mapping, file)))
    }
}

/// A log's memory.
pub struct Memory(Backing);

enum Backing {
    Kernel(Region),
    Volume(Mapping, Arc<dyn OpenFile>),
}

impl Deref for Memory {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        match &self.0 {
            Backing::Kernel(region) => region,
            Backing::Volume(mapping, _) => mapping.region(),
        }
    }
}

impl Memory {
    /// A region that is the log's own.
    pub fn of(region: Region) -> Self {
        Self(Backing::Kernel(region))
    }

    /// That region again; `None`: it is a volume's.
    pub fn into_region(self) -> Option<Region> {
        match self.0 {
            Backing::Kernel(region) => Some(region),
            Backing::Volume(..) => None,
        }
    }

    /// Whether another opening has the right to write.
    pub fn is_locked(&self) -> Answer<bool> {
        match &self.0 {
            Backing::Kernel(region) => {
                Ok(bytes::holder(region.fd(), Lock::Description, 0, 1)?.is_some())
            }
            Backing::Volume(_, file) => Ok(file.test_range(0, 1)?.is_some()),
        }
    }

    /// Whether the file is still whole: what is cut from a volume's file stays mapped, and is lost.
    #[inline]
    pub fn is_whole(&self) -> bool {
        match &self.0 {
            Backing::Kernel(_) => true,
            Backing::Volume(mapping, file) => {
                file.size().is_ok_and(|size| size >= Some(mapping.region().len()))
            }
        }
    }

    /// Makes durable what a fence alone does not. Errors: `Memory`, that failed, or it is cut.
    #[inline]
    pub fn sync(&self) -> Result<()> {
        let synced = match &self.0 {
            Backing::Kernel(region) => region.sync_file().is_ok(),
            Backing::Volume(_, file) => {
                self.is_whole() && (!file.promise().needs_sync() || file.sync().is_ok())
            }
        };
        if synced { Ok(()) } else { Err(Error::Memory) }
    }

    /// The right to write, which the file's description has, and `opener` took.
    pub fn right_to_write(&self, opener: Opener) -> RightToWrite {
        let held_by = match &self.0 {
            Backing::Kernel(region) => Holder::Descriptor(region.fd()),
            Backing::Volume(_, file) => Holder::File(Arc::clone(file)),
        };
        RightToWrite { opener, held_by }
    }
}

/// The right to write. It is given back by a call, not only by the last close: a process that was
/// forked meanwhile has the description until it executes another program.
pub struct RightToWrite {
    opener: Opener,
    held_by: Holder,
}

enum Holder {
    /// The memory's own: this is dropped before that.
    Descriptor(RawFd),
    File(Arc<dyn OpenFile>),
}

impl RightToWrite {
    /// Whether this process has it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.opener.is_here()
    }
}

impl Drop for RightToWrite {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // What cannot be given back goes with the description.
        match &self.held_by {
            Holder::Descriptor(fd) => {
                let _ = bytes::release(*fd, Lock::Description, 0);
            }
            Holder::File(file) => {
                let _ = file.unlock_range(0, 1);
            }
        }
    }
}
