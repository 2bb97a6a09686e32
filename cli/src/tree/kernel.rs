//! The kernel's side of [`Tree`].

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::{self, Errno};
use vfs::{Kind, Nanos};

use super::{Meta, Open, Tree};

/// What every process sees.
pub struct KernelTree;

impl Tree for KernelTree {
    fn is_volume(&self) -> bool {
        false
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
            device: stat.st_dev,
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
        Ok(Box::new(KernelFile(file)))
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        Ok(Box::new(KernelFile(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)))
    }

    fn finish(&self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
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

struct KernelFile(OwnedFd);

impl Open for KernelFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        io::retry_on_intr(|| io::pread(&self.0, &mut *out, offset))
    }

    fn write_all_at(&self, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        while !data.is_empty() {
            let written = io::retry_on_intr(|| io::pwrite(&self.0, data, offset))?;
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
        match fs::seek(&self.0, SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some((start, fs::seek(&self.0, SeekFrom::Hole(start))?))),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn close_at(&self, size: u64) -> Result<(), Errno> {
        fs::ftruncate(&self.0, size)
    }
}

fn nanos(seconds: i64, nanoseconds: u64) -> Nanos {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as i64)
}

fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: time.div_euclid(1_000_000_000), tv_nsec: time.rem_euclid(1_000_000_000) }
}
