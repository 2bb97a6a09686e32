//! What dead processes left: found by the next process that starts, and by `solera recover`.
//!
//! For a slot whose process is dead: its log is replayed (lengths of runs, overwrites that may have
//! been under way), then every run of its is relinked into its file, then its files go, then its slot
//! is free. Each step may be repeated: whoever recovers may die too.
//!
//! A file is found by the path that it had, and by its inode number below the directory if another
//! lies there now. If it is gone, so are its staged bytes. Inode number and time of birth together
//! tell a reused inode.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;

use crate::home::{HOME_NAME, Home};
use crate::log::{self, Redo};
use crate::records::Word;
use crate::{Mode, Result, settle, sys};

/// What was recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Dead processes.
    pub processes: u64,
    /// Valid entries of their logs.
    pub entries: u64,
    /// Runs that were relinked.
    pub runs: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Runs and overwrites whose file is gone.
    pub gone: u64,
}

/// Recovers what dead processes left in `directory`. Nothing, if no engine ever ran there.
pub fn recover(directory: &Path) -> Result<Recovered> {
    let directory = std::fs::canonicalize(directory)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let home = match Home::open(&directory, Mode::Posix, false) {
        Ok(home) => home,
        Err(Errno::NOENT) => return Ok(Recovered::default()),
        Err(errno) => return Err(errno),
    };
    home.take_slot()?;
    let recovered = recover_dead(&home);
    home.leave_slot();
    recovered
}

/// Recovers all slots whose processes are dead.
pub fn recover_dead(home: &Home) -> Result<Recovered> {
    let mut all = Recovered::default();
    for slot in 0..home.records.slots() {
        if home.records.slot_state(slot) == 0 || !home.hold_dead(slot)? {
            continue;
        }
        // Another may have been at it before.
        if home.records.slot_state(slot) == 0 {
            home.let_go(slot);
            continue;
        }
        match recover_slot(home, slot, &mut all) {
            Ok(()) => home.release_dead(slot),
            Err(errno) => {
                // Everything is there for the next try: `ENOSPC` may pass.
                home.let_go(slot);
                return Err(errno);
            }
        }
        all.processes += 1;
    }
    Ok(all)
}

fn recover_slot(home: &Home, slot: u32, all: &mut Recovered) -> Result<()> {
    let records = &home.records;
    let mut gone = 0;
    all.entries += log::replay(home, slot, &mut |redo| match redo {
        Redo::Append { record, owner, length } => {
            if records.holds(record)
                && records.get(record, Word::Owner) == owner
                && records.get(record, Word::Length) < length
            {
                records.persist_length(record, length);
            }
            Ok(())
        }
        Redo::Overwrite { ino, birth, path, offset, bytes } => {
            if let Some(file) = find_file(home, ino, birth, &path)? {
                return put_all(&file, offset, &bytes);
            }
            gone += 1;
            Ok(())
        }
    })?;
    all.gone += gone;
    let dead = u64::from(slot) + 1;
    for record in records.all().collect::<Vec<_>>() {
        if records.get(record, Word::Lock) == dead {
            if records.get(record, Word::Owner) == 0 {
                // Claimed, and never filled in.
                records.free(record);
            }
            records.unlock(record);
        }
        let ino = records.get(record, Word::Key);
        let guard = home.lock(record);
        match records.staged(record, ino) {
            Some(staged) if staged.owner.slot() == slot => {
                let path = records.path(record);
                match find_file(home, ino, staged.birth, &path)? {
                    Some(file) if staged.length > 0 => {
                        settle::fetch(home, record, ino, &file)?;
                        rustix::fs::fsync(&file)?;
                        all.runs += 1;
                        all.bytes += staged.length;
                    }
                    Some(_) => records.free(record),
                    None => {
                        all.gone += 1;
                        records.free(record);
                    }
                }
            }
            _ => {}
        }
        drop(guard);
    }
    remove_files(home, slot)
}

fn put_all(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(wrote) => done += wrote,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::fsync(file)
}

/// Removes a slot's staging files and log.
fn remove_files(home: &Home, slot: u32) -> Result<()> {
    let staging = format!("stage.{slot}.");
    let logs = log::names(slot);
    let mut names = Vec::new();
    for entry in Dir::read_from(home.directory())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(&staging) || logs.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        home.remove_file(&name);
    }
    Ok(())
}

/// Opens the file of an inode number: by the path that it had, or wherever it lies by now.
fn find_file(home: &Home, ino: u64, birth: u64, path: &[u8]) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = |path: &Path| rustix::fs::open(path, flags, FileMode::empty());
    let is_it = |file: &OwnedFd| {
        rustix::fs::fstat(file)
            .is_ok_and(|stat| stat.st_ino == ino && stat.st_dev == home.device && stat.st_nlink > 0)
            && (birth == 0 || sys::birth(file) == birth)
    };
    let hint = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    if hint.starts_with(&home.prefix)
        && let Ok(file) = open(&hint)
        && is_it(&file)
    {
        return Ok(Some(file));
    }
    let mut directories = vec![home.prefix.clone()];
    while let Some(directory) = directories.pop() {
        let Ok(opened) = rustix::fs::open(
            &directory,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            FileMode::empty(),
        ) else {
            continue;
        };
        if rustix::fs::fstat(&opened)?.st_dev != home.device {
            continue;
        }
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name == HOME_NAME.as_bytes() {
                continue;
            }
            let path = directory.join(std::ffi::OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    rustix::fs::statat(opened.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
                }
                kind => kind,
            };
            if kind == FileType::Directory {
                directories.push(path);
            } else if entry.ino() == ino && kind == FileType::RegularFile {
                let file = open(&path)?;
                if is_it(&file) {
                    return Ok(Some(file));
                }
            }
        }
    }
    Ok(None)
}

/// Fetches what another process has staged for the file behind a number of the program's.
pub fn fetch_by_number(home: &Home, ino: u64, fd: i32) -> Result<()> {
    let Some(record) = home.records.find(ino) else { return Ok(()) };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/self/fd/{fd}"), flags, FileMode::empty())?;
    let guard = home.lock(record);
    let fetched = settle::fetch(home, record, ino, &file);
    drop(guard);
    fetched
}
