//! The kernel's side of [`Tree`].

use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use console::command_line;
use console::failure::Failure;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::{self, Errno};
use vfs::mounts::{self, Mount};
use vfs::{Kind, Nanos};
use volume::Kept;

use super::{Home, Meta, Open, Tree};
use crate::location::display;

/// The kernel's tree, which every process sees.
pub struct KernelTree {
    /// Mounts of volumes, and what they serve, once that was asked.
    mounts: Vec<(Mount, OnceCell<Home>)>,
    /// Volumes and devices may be written over.
    overwrite_volumes: bool,
}

impl KernelTree {
    /// With `overwrite_volumes`, volumes that are not in use and devices are targets like any
    /// other.
    pub fn new(overwrite_volumes: bool) -> Self {
        // Without the list two faces of one file are not told to be one.
        let listed = mounts::list().unwrap_or_default().into_iter();
        Self { mounts: listed.map(|mount| (mount, OnceCell::new())).collect(), overwrite_volumes }
    }

    fn home(&self, device: u64) -> Home {
        let found = self.mounts.iter().find(|(mount, _)| mount.device == device);
        found.map_or((device, 0), |(mount, home)| {
            *home.get_or_init(|| mount.file().unwrap_or((device, 0)))
        })
    }
}

impl Tree for KernelTree {
    fn failure(&self, asked: String, errno: Errno) -> Failure {
        Failure::outside(asked, errno)
    }

    fn name(&self, path: &[u8]) -> String {
        display(path)
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Meta, Errno> {
        let stat = if follow { fs::stat(path) } else { fs::lstat(path) }?;
        Ok(Meta {
            kind: Kind::from_mode(stat.st_mode).ok_or(Errno::OPNOTSUPP)?,
            mode: stat.st_mode & 0o7777,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev,
            home: self.home(stat.st_dev),
            ino: stat.st_ino,
            size: stat.st_size as u64,
            allocated: stat.st_blocks as u64 * 512,
            atime: nanos(stat.st_atime, stat.st_atime_nsec),
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        })
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(fs::open(path, flags, Mode::empty())?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn link_target(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        Ok(fs::readlink(path, Vec::new())?.into_bytes())
    }

    fn make_dir(&self, path: &[u8]) -> Result<(), Errno> {
        fs::mkdir(path, Mode::RWXU)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        fs::symlink(target, path)
    }

    fn make_node(&self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(meta.kind.mode_bits());
        fs::mknodat(CWD, path, kind, Mode::from_raw_mode(meta.mode), meta.rdev)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Errno> {
        let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Box::new(KernelFile::new(file)))
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Failure> {
        let local = Path::new(OsStr::from_bytes(path));
        let file = match volume::create_ordinary(local, 0o600, self.overwrite_volumes) {
            // As cp: the reader gets the bytes, and is waited for. A signal ends the wait.
            Err(Kept::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                fs::open(path, flags, Mode::empty()).map_err(Kept::System)
            }
            file => file,
        };
        file.map_or_else(
            |kept| Err(refused(path, kept)),
            |file| Ok(Box::new(KernelFile::new(file)) as _),
        )
    }

    fn admits(&self, path: &[u8]) -> Result<(), Failure> {
        if volume::is_in_anchor(Path::new(OsStr::from_bytes(path))) {
            return Err(refused(path, Kept::Anchor));
        }
        Ok(())
    }

    fn finish(&self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        let there = self.meta(path, meta.kind != Kind::Symlink)?;
        if there.kind != meta.kind {
            // A device or a fifo that a file was written to stays as it is.
            return Ok(());
        }
        if meta.kind != Kind::Symlink {
            fs::chmod(path, Mode::from_raw_mode(meta.mode))?;
        }
        let times = Timestamps {
            last_access: timespec(meta.atime),
            last_modification: timespec(meta.mtime),
        };
        fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

struct KernelFile {
    file: OwnedFd,
    /// What has no places, a pipe or a terminal: how many bytes have gone into it.
    written: Option<Cell<u64>>,
}

/// What holes are written as where there are none.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl KernelFile {
    fn new(file: OwnedFd) -> Self {
        let has_places = fs::seek(&file, SeekFrom::Current(0)) != Err(Errno::SPIPE);
        Self { file, written: (!has_places).then(|| Cell::new(0)) }
    }

    /// Writes at the end of what has no places.
    fn append(&self, written: &Cell<u64>, mut data: &[u8]) -> Result<(), Errno> {
        while !data.is_empty() {
            let length = io::retry_on_intr(|| io::write(&self.file, data))?;
            data = &data[length..];
            written.set(written.get() + length as u64);
        }
        Ok(())
    }

    /// The same up to an offset.
    fn append_zeros(&self, written: &Cell<u64>, end: u64) -> Result<(), Errno> {
        while written.get() < end {
            let length = (end - written.get()).min(ZEROS.len() as u64) as usize;
            self.append(written, &ZEROS[..length])?;
        }
        Ok(())
    }
}

impl Open for KernelFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        io::retry_on_intr(|| io::pread(&self.file, &mut *out, offset))
    }

    fn write_all_at(&self, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        if let Some(written) = &self.written {
            self.append_zeros(written, offset)?;
            return self.append(written, data);
        }
        while !data.is_empty() {
            let written = io::retry_on_intr(|| io::pwrite(&self.file, data, offset))?;
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
        match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some((start, fs::seek(&self.file, SeekFrom::Hole(start))?))),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn close_at(&self, size: u64) -> Result<(), Errno> {
        if let Some(written) = &self.written {
            return self.append_zeros(written, size);
        }
        match fs::ftruncate(&self.file, size) {
            // A device has the size it has.
            Err(Errno::INVAL) if !is_file(&self.file)? => Ok(()),
            cut => cut,
        }
    }
}

fn is_file(file: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fs::fstat(file)?.st_mode) == FileType::RegularFile)
}

/// Why nothing is written there, and what the user may have meant.
fn refused(path: &[u8], kept: Kept) -> Failure {
    let name = display(path);
    let asked = format!("write {name}");
    match kept {
        Kept::System(errno) => Failure::outside(asked, errno),
        Kept::Volume => {
            let advice = format!(
                "for a file on it say {name}:/; to destroy the volume: {}",
                command_line::with_option(&["--overwrite-volume"])
            );
            Failure::new(asked, kept, &advice)
        }
        Kept::BlockDevice | Kept::DaxDevice => {
            let advice =
                format!("to write over it: {}", command_line::with_option(&["--overwrite-volume"]));
            Failure::new(asked, kept, &advice)
        }
        Kept::InUse => {
            let advice = format!("for a file on it say {name}:/");
            Failure::new(asked, kept, &advice)
        }
        Kept::Anchor | Kept::Fifo => Failure::new(asked, kept, "choose another place"),
    }
}

fn nanos(seconds: i64, nanoseconds: u64) -> Nanos {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as i64)
}

fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: time.div_euclid(1_000_000_000), tv_nsec: time.rem_euclid(1_000_000_000) }
}
