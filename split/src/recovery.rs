//! What dead processes left: found by the next process that starts, and by `solera recover`.
//!
//! For a slot whose process is dead: its log is replayed (lengths of runs, overwrites that may have
//! been under way), then every run of its is relinked into its file, then its files go, then its slot
//! is free. Each step may be repeated: whoever recovers may die too.
//!
//! A file is found by the path that it had, and by its inode number below the directory if another
//! lies there now. If it is gone, so are its staged bytes. Inode number and time of birth together
//! tell a reused inode.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;

use crate::home::{HOME_NAME, Home};
use crate::log::{self, Redo};
use crate::records::Word;
use crate::{Mode, Result, settle, sys};

/// How a file is opened into which staged bytes are moved.
pub const OPENING: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

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
    let mut all = take_slot(&home)?;
    let recovered = recover_dead(&home);
    home.leave_slot();
    let rest = recovered?;
    all.processes += rest.processes;
    all.entries += rest.entries;
    all.runs += rest.runs;
    all.bytes += rest.bytes;
    all.gone += rest.gone;
    Ok(all)
}

/// Takes a slot: a free one, or that of a dead process, which is recovered by it.
pub fn take_slot(home: &Home) -> Result<Recovered> {
    let mut all = Recovered::default();
    let Err(none) = home.take_slot() else { return Ok(all) };
    for slot in 0..home.records.slots() {
        if home.hold_dead(slot)? {
            home.be_in(slot);
            match recover_slot(home, slot, &mut all) {
                Ok(()) => {
                    home.records.succeed_in_slot(slot);
                    all.processes += 1;
                    return Ok(all);
                }
                Err(_) => home.be_nowhere(),
            }
        }
    }
    Err(none)
}

/// Recovers all slots whose processes are dead; the first error, if one of them cannot be.
pub fn recover_dead(home: &Home) -> Result<Recovered> {
    let mut all = Recovered::default();
    let mut kept = None;
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
            Ok(()) => {
                home.release_dead(slot);
                all.processes += 1;
            }
            Err(errno) => {
                // Everything is there for the next try: `ENOSPC` may pass.
                home.let_go(slot);
                kept = kept.or(Some(errno));
            }
        }
    }
    kept.map_or(Ok(all), Err)
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
    let (dead, me) = (u64::from(slot) + 1, u64::from(home.slot()) + 1);
    for record in records.all().collect::<Vec<_>>() {
        // Unless another has taken it over.
        if records.try_lock(record, dead, me).is_ok() {
            if records.get(record, Word::Owner) == 0 {
                // Claimed, and never filled in.
                home.free(record);
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
                    Some(_) => home.free(record),
                    None => {
                        all.gone += 1;
                        home.free(record);
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

/// Opens a file for reading and writing; one of this process's user that has no such right gets it
/// for as long as that takes.
fn open_owned(path: &Path) -> Result<OwnedFd> {
    let denied = match rustix::fs::open(path, OPENING | OFlags::NOFOLLOW, FileMode::empty()) {
        Err(errno @ Errno::ACCESS) => errno,
        opened => return opened,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, FileMode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(denied);
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mode = FileMode::from_raw_mode(stat.st_mode);
    rustix::fs::chmod(&link, mode | FileMode::RUSR | FileMode::WUSR)?;
    let opened = rustix::fs::open(&link, OPENING, FileMode::empty());
    rustix::fs::chmod(&link, mode)?;
    opened
}

/// Opens the file of an inode number: by the path that it had, or wherever it lies by now.
fn find_file(home: &Home, ino: u64, birth: u64, path: &[u8]) -> Result<Option<OwnedFd>> {
    let is_it = |file: &OwnedFd| {
        rustix::fs::fstat(file)
            .is_ok_and(|stat| stat.st_ino == ino && stat.st_dev == home.device && stat.st_nlink > 0)
            && (birth == 0 || sys::birth(file) == birth)
    };
    let hint = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    if hint.starts_with(&home.prefix)
        && let Ok(stat) = rustix::fs::lstat(&hint)
        && stat.st_ino == ino
        && let Ok(file) = open_owned(&hint)
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
                let file = open_owned(&path)?;
                if is_it(&file) {
                    return Ok(Some(file));
                }
            }
        }
    }
    Ok(None)
}

/// Fetches what another process has staged for a file that is open for reading and writing.
pub fn fetch_into(home: &Home, ino: u64, file: impl AsFd) -> Result<()> {
    let Some(record) = home.records.find(ino) else { return Ok(()) };
    let guard = home.lock(record);
    let fetched = settle::fetch(home, record, ino, file);
    drop(guard);
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use std::time::{Duration, Instant};

    /// As many entries as the paper's longest replay, in the long run; else fewer.
    #[test]
    fn a_long_log_is_replayed() {
        let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
        let entries = if long { 2_000_000 } else { 20_000 };
        let base = std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into());
        let directory = Path::new(&base).join(format!("solera-replay-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let home = Home::open(&directory, Mode::Strict, true).expect("a home");
        home.take_slot().expect("a slot");
        let log = Log::create(&home, 128 << 20).expect("a log");
        // Of a file that is gone.
        let (record, guard) = home.claim(u64::MAX).expect("a record");
        let owner = home.records.new_owner(home.slot(), 0);
        home.records.set(record, Word::Owner, owner.0);
        drop(guard);
        for length in 1..=entries {
            log.note_append(record, owner, length).expect("there is room");
        }
        drop((log, home));
        let begun = Instant::now();
        let recovered = recover(&directory);
        let took = begun.elapsed();
        std::fs::remove_dir_all(&directory).expect("the directory");
        let wanted = Recovered { processes: 1, entries, gone: 1, ..Recovered::default() };
        assert_eq!(recovered, Ok(wanted));
        eprintln!("{entries} entries replayed in {took:?}");
        assert!(took < Duration::from_secs(if long { 6 } else { 60 }), "{took:?}");
    }
}
