//! A directory of a kernel file system, as a [`System`]: the reference for the contract.

use crate::content::fill;
use crate::engine::split_names;
use crate::workload::{Action, Outcome, SLOTS, Stat, System, Value};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::fs::{SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use vfs::{Kind, Whence};

/// A directory and the files open in it.
pub struct Kernel {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

impl Kernel {
    /// Uses the (empty) directory `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), slots: Default::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    fn fd(&self, slot: usize) -> rustix::io::Result<BorrowedFd<'_>> {
        self.slots[slot].as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    fn create(&self, path: &str, kind: Kind, mode: u32) -> Outcome {
        let (at, mode) = (self.path(path), Mode::from_raw_mode(mode));
        match kind {
            Kind::Directory => rustix::fs::mkdir(&at, mode)?,
            Kind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                drop(rustix::fs::open(&at, flags, mode)?);
            }
            _ => {
                let kind = FileType::from_raw_mode(kind.mode_bits());
                rustix::fs::mknodat(rustix::fs::CWD, &at, kind, mode, 0)?;
            }
        }
        Ok(Value::Done)
    }

    fn get_xattr(&self, path: &str, name: &str, room: usize) -> Outcome {
        let mut value = vec![0; if room == 0 { 65536 } else { room }];
        let length = rustix::fs::lgetxattr(self.path(path), name, &mut value[..])?;
        if room == 0 {
            return Ok(Value::Count(length as u64));
        }
        value.truncate(length);
        Ok(Value::Bytes(value))
    }

    fn entries(&self, path: &str) -> Outcome {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let dir = rustix::fs::open(self.path(path), flags, Mode::empty());
        let dir = dir.map_err(|errno| if errno == Errno::LOOP { Errno::NOTDIR } else { errno })?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = (entry.file_type().as_raw_mode() >> 12) as u8;
                entries.push((name.to_vec(), kind));
            }
        }
        entries.sort();
        Ok(Value::Entries(entries))
    }

    fn read(&self, slot: usize, at: Option<u64>, length: u64) -> Outcome {
        let mut bytes = vec![0; length as usize];
        let done = match at {
            Some(offset) => rustix::io::pread(self.fd(slot)?, &mut bytes[..], offset)?,
            None => rustix::io::read(self.fd(slot)?, &mut bytes[..])?,
        };
        bytes.truncate(done);
        Ok(Value::Bytes(bytes))
    }

    fn write(&self, slot: usize, at: Option<u64>, tag: u32, length: u64) -> Outcome {
        let bytes = fill(tag, length);
        let done = match at {
            Some(offset) => rustix::io::pwrite(self.fd(slot)?, &bytes, offset)?,
            None => rustix::io::write(self.fd(slot)?, &bytes)?,
        };
        Ok(Value::Count(done as u64))
    }

    fn seek(&self, slot: usize, offset: i64, whence: Whence) -> Outcome {
        let fd = self.fd(slot)?;
        let from = match whence {
            Whence::Set if offset < 0 => return Err(Errno::INVAL),
            Whence::Set => SeekFrom::Start(offset as u64),
            Whence::Current => SeekFrom::Current(offset),
            Whence::End => SeekFrom::End(offset),
            // Where data lies is the file system's own choice: see the engine's side.
            Whence::Data | Whence::Hole => {
                if offset < 0 || offset >= rustix::fs::fstat(fd)?.st_size {
                    return Err(Errno::NXIO);
                }
                rustix::fs::seek(fd, SeekFrom::Start(offset as u64))?;
                return Ok(Value::Count(0));
            }
        };
        rustix::fs::seek(fd, from).map(Value::Count)
    }

    fn truncate(&self, path: &str, size: u64) -> Outcome {
        // Opened without following: links and fifos cannot be truncated through the contract
        // either.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match rustix::fs::open(self.path(path), flags, Mode::empty()) {
            Ok(fd) => rustix::fs::ftruncate(&fd, size).map(|()| Value::Done),
            Err(Errno::LOOP | Errno::NXIO) => Err(Errno::INVAL),
            Err(errno) => Err(errno),
        }
    }
}

fn told(stat: &rustix::fs::Stat) -> Value {
    let kind = (stat.st_mode & libc::S_IFMT) >> 12;
    let sized = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFLNK);
    Value::Stat(Stat {
        kind: kind as u8,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink as u32,
        size: if sized { stat.st_size as u64 } else { 0 },
    })
}

impl System for Kernel {
    fn change_name(&mut self, action: &Action) -> Option<Outcome> {
        let result = match action {
            Action::Create { path, kind, mode } => return Some(self.create(path, *kind, *mode)),
            Action::Symlink { path, target } => rustix::fs::symlink(target, self.path(path)),
            Action::Temporary { dir, slot, exclusive } => {
                let exclusive = if *exclusive { OFlags::EXCL } else { OFlags::empty() };
                let flags = OFlags::TMPFILE | OFlags::RDWR | exclusive;
                let fd = rustix::fs::open(self.path(dir), flags, Mode::from_raw_mode(0o600));
                fd.map(|fd| self.slots[*slot] = Some(fd))
            }
            Action::Link { from, to } => rustix::fs::link(self.path(from), self.path(to)),
            Action::LinkOpen { slot, to } => self.fd(*slot).and_then(|fd| {
                let to = self.path(to);
                rustix::fs::linkat(fd, "", rustix::fs::CWD, to, AtFlags::EMPTY_PATH)
            }),
            Action::Unlink { path } => rustix::fs::unlink(self.path(path)),
            Action::RemoveDir { path } => rustix::fs::rmdir(self.path(path)),
            Action::Rename { from, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                let (from, to) = (self.path(from), self.path(to));
                rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)
            }
            _ => return None,
        };
        Some(result.map(|()| Value::Done))
    }

    fn change_attributes(&mut self, action: &Action) -> Option<Outcome> {
        let here = rustix::fs::CWD;
        let result = match action {
            Action::SetMode { path, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::chmodat(here, self.path(path), mode, AtFlags::empty())
            }
            Action::SetOwner { path, uid, gid } => {
                let owner = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(here, self.path(path), owner.0, owner.1, flags)
            }
            Action::SetTimes { path, atime, mtime } => {
                let time = |nanos: &i64| Timespec {
                    tv_sec: nanos.div_euclid(1_000_000_000),
                    tv_nsec: nanos.rem_euclid(1_000_000_000),
                };
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                rustix::fs::utimensat(here, self.path(path), &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Action::SetXattr { path, name, tag, length, flags } => {
                let flags = XattrFlags::from_bits_retain(*flags);
                let value = fill(*tag, *length);
                rustix::fs::lsetxattr(self.path(path), name.as_str(), &value, flags)
            }
            Action::RemoveXattr { path, name } => {
                rustix::fs::lremovexattr(self.path(path), name.as_str())
            }
            Action::GetXattr { path, name, room } => {
                return Some(self.get_xattr(path, name, *room));
            }
            Action::ListXattr { path } => {
                let mut list = vec![0; 65536];
                let length = rustix::fs::llistxattr(self.path(path), &mut list[..]);
                return Some(length.map(|length| Value::Names(split_names(&list[..length]))));
            }
            _ => return None,
        };
        Some(result.map(|()| Value::Done))
    }

    fn look(&mut self, action: &Action) -> Option<Outcome> {
        Some(match action {
            Action::Stat { path } => rustix::fs::lstat(self.path(path)).map(|stat| told(&stat)),
            Action::StatOpen { slot } => {
                self.fd(*slot).and_then(rustix::fs::fstat).map(|stat| told(&stat))
            }
            Action::ReadLink { path } => rustix::fs::readlink(self.path(path), Vec::new())
                .map(|target| Value::Bytes(target.into_bytes())),
            Action::ReadDir { path } => self.entries(path),
            _ => return None,
        })
    }

    fn change_content(&mut self, action: &Action) -> Outcome {
        match *action {
            Action::Open { ref path, slot, flags } => {
                let flags = OFlags::from_bits_retain(flags as u32) | OFlags::NOFOLLOW;
                let fd = rustix::fs::open(self.path(path), flags, Mode::empty())?;
                self.slots[slot] = Some(fd);
                Ok(Value::Done)
            }
            Action::Close { slot } => {
                self.slots[slot].take().map(|_| Value::Done).ok_or(Errno::BADF)
            }
            Action::Write { slot, tag, length } => self.write(slot, None, tag, length),
            Action::WriteAt { slot, tag, offset, length }
            | Action::WriteParts { slot, tag, offset, length, .. } => {
                self.write(slot, Some(offset), tag, length)
            }
            Action::Read { slot, length } => self.read(slot, None, length),
            Action::ReadAt { slot, offset, length } => self.read(slot, Some(offset), length),
            Action::Seek { slot, offset, whence } => self.seek(slot, offset, whence),
            Action::Truncate { ref path, size } => self.truncate(path, size),
            Action::TruncateOpen { slot, size } => {
                rustix::fs::ftruncate(self.fd(slot)?, size).map(|()| Value::Done)
            }
            Action::Allocate { slot, mode, offset, length } => {
                let mode = FallocateFlags::from_bits_retain(mode);
                rustix::fs::fallocate(self.fd(slot)?, mode, offset, length).map(|()| Value::Done)
            }
            Action::CopyRange { from, mut from_offset, to, mut to_offset, length } => {
                let (from, to) = (self.fd(from)?, self.fd(to)?);
                let offsets = (Some(&mut from_offset), Some(&mut to_offset));
                let length = length as usize;
                let done = rustix::fs::copy_file_range(from, offsets.0, to, offsets.1, length)?;
                Ok(Value::Count(done as u64))
            }
            Action::Sync { slot, .. } => rustix::fs::fsync(self.fd(slot)?).map(|()| Value::Done),
            Action::SyncAll | Action::Map { .. } => Ok(Value::Done),
            _ => Err(Errno::NOSYS),
        }
    }
}
