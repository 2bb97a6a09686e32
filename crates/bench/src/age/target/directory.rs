//! A directory of a mounted file system as a [`Target`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::runs::{Run, kernel};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs, syncfs};
use rustix::io::Errno;

use super::{PLACE, Target, occupied};

/// A directory in which everything happens.
pub struct Directory {
    place: PathBuf,
    handle: File,
    directories: Vec<String>,
    /// Directories of the files by number.
    files: HashMap<u64, u16>,
}

impl Directory {
    /// Makes the place in a directory.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let place = path.join(PLACE);
        let asked = || format!("age {}", path.display());
        match std::fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(occupied(path));
            }
            made => made.map_err(|error| Failure::io(asked(), &error))?,
        }
        let handle = File::open(&place).map_err(|error| Failure::io(asked(), &error))?;
        Ok(Self { place, handle, directories: Vec::new(), files: HashMap::new() })
    }

    fn path(&self, number: u64, dir: u16) -> PathBuf {
        self.place.join(&self.directories[usize::from(dir)]).join(format!("f{number}"))
    }

    fn found(&self, number: u64) -> Result<PathBuf, Errno> {
        let dir = self.files.get(&number).ok_or(Errno::NOENT)?;
        Ok(self.path(number, *dir))
    }
}

impl Target for Directory {
    fn capacity(&self) -> Result<u64, Errno> {
        let stat = fstatvfs(&self.handle)?;
        Ok(stat.f_blocks * stat.f_frsize)
    }

    fn available(&self) -> Result<u64, Errno> {
        let stat = fstatvfs(&self.handle)?;
        let all = rustix::process::geteuid().is_root();
        Ok(if all { stat.f_bfree } else { stat.f_bavail } * stat.f_frsize)
    }

    fn make_directories(&mut self, paths: &[String]) -> Result<(), Errno> {
        for path in paths {
            std::fs::create_dir(self.place.join(path)).map_err(|error| errno(&error))?;
        }
        self.directories = paths.to_vec();
        Ok(())
    }

    fn create(&mut self, number: u64, dir: u16, size: u64) -> Result<(), Errno> {
        let path = self.path(number, dir);
        let file = File::create_new(&path).map_err(|error| errno(&error))?;
        if size > 0
            && let Err(errno) = fallocate(&file, FallocateFlags::empty(), 0, size)
        {
            std::fs::remove_file(&path).map_err(|error| self::errno(&error))?;
            return Err(errno);
        }
        self.files.insert(number, dir);
        Ok(())
    }

    fn write(&mut self, number: u64, offset: Option<u64>, data: &[u8]) -> Result<(), Errno> {
        let file = File::options().write(true).open(self.found(number)?);
        let file = file.map_err(|error| errno(&error))?;
        let offset = match offset {
            Some(offset) => offset,
            None => file.metadata().map_err(|error| errno(&error))?.len(),
        };
        file.write_all_at(data, offset).map_err(|error| errno(&error))
    }

    fn remove(&mut self, number: u64) -> Result<(), Errno> {
        let path = self.found(number)?;
        self.files.remove(&number);
        std::fs::remove_file(path).map_err(|error| errno(&error))
    }

    fn write_journal(&mut self) -> Result<(), Errno> {
        syncfs(&self.handle)
    }

    fn free_space(&self) -> Result<Option<Vec<Run>>, Errno> {
        syncfs(&self.handle)?;
        kernel::free_space(&self.handle)
    }

    fn extents(&self, number: u64) -> Result<Option<Vec<Run>>, Errno> {
        let file = File::open(self.found(number)?).map_err(|error| errno(&error))?;
        kernel::extents(&file)
    }

    fn failure(&self, asked: &str, errno: Errno) -> Failure {
        Failure::outside(asked, errno)
    }

    fn moved_bytes(&self) -> u64 {
        0
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
