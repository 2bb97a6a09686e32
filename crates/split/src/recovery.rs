//! What dead processes left: found by the next process that starts, and by `solera recover`.
//!
//! For a slot whose process is dead: its log is replayed (lengths of runs, overwrites that may have
//! been under way), then every run of its is relinked into its file, then its files go, then its
//! slot is free. Each step may be repeated: the process that recovers may die too. While one is at
//! it no other process of the engine starts: it would see what is about to change.
//!
//! A file is found by the path that it had, and by its inode number below the directory if another
//! lies there now. If it is gone, so are its staged bytes. Inode number and time of birth together
//! tell a reused inode. What cannot be done, or is damaged, stays as it is, is told of, and hinders
//! nothing else.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode as FileMode, OFlags};
use rustix::io::Errno;

use crate::hidden_directory::{HOME_NAME, Home};
use crate::log::{self, Redo};
use crate::records::{Owner, Word};
use crate::{Mode, Result, drain, staging, sys};

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
    /// Runs and overwrites whose file is gone, or the end of it where they began.
    pub gone: u64,
}

/// Something that stays as it was, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file concerned: the engine's or the program's.
    pub what: PathBuf,
    /// Why.
    pub errno: Errno,
}

impl Refusal {
    /// Why, in words.
    #[must_use]
    pub fn why(&self) -> String {
        match self.errno {
            Errno::UCLEAN => "it is damaged".to_owned(),
            Errno::PROTO => "another version of solera wrote it".to_owned(),
            errno => os::describe(errno),
        }
    }

    /// What can be done about it.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self.errno {
            Errno::UCLEAN => Some(
                "it was not used, and stays as it is: bring it back from a copy; removing \
                 .solera-split gives up all that is left in it",
            ),
            Errno::PROTO => Some("recover with that version"),
            Errno::ACCESS | Errno::PERM => Some("run as the owner, or change the permissions"),
            Errno::NOSPC | Errno::DQUOT => Some("make room, and run this again"),
            _ => None,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.what.display(), self.why())
    }
}

/// Not all could be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// What could.
    pub recovered: Recovered,
    /// What could not.
    pub refused: Vec<Refusal>,
}

impl std::fmt::Display for Incomplete {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.refused.iter().map(ToString::to_string).collect();
        write!(out, "{}", all.join("; "))
    }
}

impl std::error::Error for Incomplete {}

/// Hears of what is done so far, and of how many bytes there were.
pub type ProgressReport<'a> = dyn FnMut(&Recovered, u64) + 'a;

/// What is done, and what is refused.
#[derive(Default)]
struct RecoveryRun<'a> {
    done: Recovered,
    refused: Vec<Refusal>,
    /// How often something was: several records may be refused for the same reason.
    refusals: u64,
    /// Hears of each file that was put in order.
    told: Option<&'a mut ProgressReport<'a>>,
    /// Bytes that were staged by all processes when this began.
    staged: u64,
}

impl RecoveryRun<'_> {
    fn refuse(&mut self, what: PathBuf, errno: Errno) {
        let refusal = Refusal { what, errno };
        self.refusals += 1;
        if !self.refused.contains(&refusal) {
            self.refused.push(refusal);
        }
    }

    fn tell(&mut self) {
        if let Some(told) = &mut self.told {
            told(&self.done, self.staged);
        }
    }

    fn end(self) -> std::result::Result<Recovered, Incomplete> {
        let Self { done: recovered, mut refused, .. } = self;
        // What can be solved without a loss is said first.
        refused.sort_by_key(|refusal| refusal.errno == Errno::UCLEAN);
        if refused.is_empty() { Ok(recovered) } else { Err(Incomplete { recovered, refused }) }
    }
}

fn in_home(home: &Home, name: &str) -> PathBuf {
    home.prefix.join(HOME_NAME).join(name)
}

/// Recovers what dead processes left in `directory`. Nothing, if no engine ever ran there.
pub fn recover(directory: &Path) -> std::result::Result<Recovered, Incomplete> {
    recover_reporting(directory, &mut |_, _| {})
}

/// As [`recover`], telling how far it is.
pub fn recover_reporting<'a>(
    directory: &Path,
    told: &'a mut ProgressReport<'a>,
) -> std::result::Result<Recovered, Incomplete> {
    let mut work = RecoveryRun { told: Some(told), ..RecoveryRun::default() };
    let found = os::real_path(directory);
    let directory = match found.map_err(|error| Errno::from_io_error(&error)) {
        Ok(directory) if directory.is_dir() => directory,
        Ok(file) => {
            work.refuse(file, Errno::NOTDIR);
            return work.end();
        }
        Err(errno) => {
            work.refuse(directory.to_path_buf(), errno.unwrap_or(Errno::IO));
            return work.end();
        }
    };
    let home = match Home::open(&directory, Mode::Posix, false) {
        Ok(home) => home,
        Err(Errno::NOENT) => return work.end(),
        Err(errno) => {
            let table = matches!(errno, Errno::UCLEAN | Errno::PROTO);
            let at = directory.join(HOME_NAME);
            work.refuse(if table { at.join("records") } else { at }, errno);
            return work.end();
        }
    };
    // Before a slot is taken: it might be one of these.
    if let Err(errno) = mark_forgotten(&home) {
        work.refuse(directory.join(HOME_NAME), errno);
    }
    if let Err(errno) = take_slot_working(&home, &mut work) {
        work.refuse(in_home(&home, "records"), errno);
        return work.end();
    }
    let lengths = home.records.all().map(|record| home.records.get(record, Word::Length));
    work.staged = lengths.fold(0, u64::saturating_add);
    recover_dead_working(&home, &mut work);
    home.leave_slot();
    work.end()
}

/// A free slot that has files or records was not freed in order: it is a dead process's.
fn mark_forgotten(home: &Home) -> Result<()> {
    let mut slots = BTreeSet::new();
    for entry in Dir::read_from(home.directory())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('.');
        if let (Some("stage" | "log" | "data"), Some(slot)) = (parts.next(), parts.next()) {
            slots.extend(slot.parse::<u32>());
        }
    }
    for record in home.records.all() {
        match home.records.get(record, Word::Owner) {
            0 => {}
            owner => drop(slots.insert(Owner(owner).slot())),
        }
    }
    for slot in slots.into_iter().filter(|&slot| slot < home.records.slots()) {
        if home.hold_dead(slot)? {
            if home.records.slot_state(slot) == 0 {
                // Some process's, which it stays if something of it is refused.
                home.records.succeed_in_slot(slot);
            }
            home.let_go(slot);
        }
    }
    Ok(())
}

/// Unlocks the records that this process's slot holds: no thread of it has locked one yet.
fn forget_own_locks(home: &Home) {
    home.records.unlock_where(|holder| holder == home.slot());
}

/// CRASH: a lock is not made durable, but a line is while it is locked: a power cut may bring back
/// locks of processes that have left.
fn forget_locks_of_none(home: &Home) {
    let free = |slot| slot < home.records.slots() && home.records.slot_state(slot) == 0;
    // Held until all are unlocked: no process takes such a slot meanwhile.
    let mut held = BTreeSet::new();
    home.records.unlock_where(|slot| {
        held.contains(&slot) || free(slot) && home.hold_dead(slot) == Ok(true) && held.insert(slot)
    });
    for slot in held {
        home.let_go(slot);
    }
}

/// Takes a slot: a free one, or that of a dead process, which is recovered by it.
pub fn take_slot(home: &Home) -> Result<()> {
    take_slot_working(home, &mut RecoveryRun::default())
}

fn take_slot_working(home: &Home, work: &mut RecoveryRun<'_>) -> Result<()> {
    let Err(none) = home.take_slot() else {
        forget_own_locks(home);
        return Ok(());
    };
    for slot in 0..home.records.slots() {
        if hold(home, slot)? {
            home.be_in(slot);
            forget_own_locks(home);
            if recover_slot(home, slot, work) {
                home.records.succeed_in_slot(slot);
                work.done.processes += 1;
                return Ok(());
            }
            give_up(home, slot);
            home.be_nowhere();
        }
    }
    Err(none)
}

/// Recovers all slots whose processes are dead; the first error, if one of them cannot be.
pub fn recover_dead(home: &Home) -> Result<()> {
    let mut work = RecoveryRun::default();
    recover_dead_working(home, &mut work);
    work.refused.first().map_or(Ok(()), |refusal| Err(refusal.errno))
}

fn recover_dead_working(home: &Home, work: &mut RecoveryRun<'_>) {
    let slots = |home: &Home| {
        let used = |&slot: &u32| slot != home.slot() && home.records.slot_state(slot) != 0;
        (0..home.records.slots()).filter(used).collect::<Vec<_>>()
    };
    for slot in slots(home) {
        match hold(home, slot) {
            Ok(false) => {}
            Ok(true) if recover_slot(home, slot, work) => {
                home.release_dead(slot);
                work.done.processes += 1;
            }
            Ok(true) => {
                // Everything is there for the next try: `ENOSPC` may pass.
                give_up(home, slot);
            }
            Err(errno) => work.refuse(in_home(home, "alive"), errno),
        }
    }
    // CRASH: the count of records is not among what is made durable. A process that starts
    // meanwhile changes it.
    let before = home.records.count();
    if work.done.processes > 0 && slots(home).is_empty() {
        home.records.count_anew(before);
        forget_locks_of_none(home);
    }
}

/// Whether a slot is one of a dead process, also if another one recovers it just now.
pub fn is_left(home: &Home, slot: u32) -> bool {
    home.records.slot_state(slot) != 0 && (home.records.is_recovering(slot) || !home.is_alive(slot))
}

/// Before this process writes to a file that a dead one, of `slot`, was overwriting: that comes
/// first. What cannot be recovered now is tried again.
pub fn finish(home: &Home, slot: u32) {
    if is_left(home, slot) && hold(home, slot) == Ok(true) {
        if recover_slot(home, slot, &mut RecoveryRun::default()) {
            home.release_dead(slot);
        } else {
            give_up(home, slot);
        }
    }
}

/// A slot that was held stays as it is. No process sees its byte held without a mark: that would
/// look as if its process lived.
fn give_up(home: &Home, slot: u32) {
    let locked = rustix::fs::flock(home.directory(), FlockOperation::LockExclusive).is_ok();
    home.records.set_recovering(slot, false);
    home.let_go(slot);
    if locked {
        // Its descriptor is open.
        let _ = rustix::fs::flock(home.directory(), FlockOperation::Unlock);
    }
}

/// Holds the byte of a slot whose process is dead, and says so; waits while another recovers it.
/// `false`: there is nothing to recover (any more).
fn hold(home: &Home, slot: u32) -> Result<bool> {
    let records = &home.records;
    while records.slot_state(slot) != 0 {
        // A process that finds the byte held looks for the mark under the same lock.
        home.lock_directory()?;
        let held = home.hold_dead(slot);
        if held == Ok(true) && records.slot_state(slot) != 0 {
            records.set_recovering(slot, true);
        }
        let marked = records.is_recovering(slot);
        rustix::fs::flock(home.directory(), FlockOperation::Unlock)?;
        match held? {
            true if marked => return Ok(true),
            // Another has been at it before.
            true => home.let_go(slot),
            false if marked => {
                let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 500_000 };
                // An interrupted pause is a shorter one.
                let _ = rustix::thread::nanosleep(&pause);
            }
            false => return Ok(false),
        }
    }
    Ok(false)
}

/// Recovers a slot; `false`: something of it is refused, and its files stay.
fn recover_slot(home: &Home, slot: u32, work: &mut RecoveryRun<'_>) -> bool {
    let before = work.refusals;
    replay_log(home, slot, work);
    // What the log says of lengths comes first.
    if work.refusals > before {
        return false;
    }
    home.records.clear_marks(slot);
    for record in home.records.all().collect::<Vec<_>>() {
        if let Err((what, errno)) = recover_record(home, slot, record, work) {
            work.refuse(what, errno);
        }
    }
    if work.refusals > before {
        return false;
    }
    let removed = remove_files(home, slot);
    if let Err(errno) = removed {
        work.refuse(home.prefix.join(HOME_NAME), errno);
    }
    removed.is_ok()
}

fn replay_log(home: &Home, slot: u32, work: &mut RecoveryRun<'_>) {
    let records = &home.records;
    let (mut gone, mut failed) = (0, None);
    let entries = log::replay(home, slot, &mut |redo| match redo {
        Redo::Append { record, owner, length } => {
            let is_it = || records.get(record, Word::Owner) == owner;
            if records.holds(record) && is_it() && records.get(record, Word::Length) < length {
                // Another may be fetching it, and free the record.
                let guard = home.lock(record);
                if is_it() && records.get(record, Word::Length) < length {
                    records.persist_length(record, length);
                }
                drop(guard);
            }
            Ok(())
        }
        Redo::Overwrite { ino, birth, path, offset, bytes } => {
            match find_file(home, ino, birth, &path) {
                Ok(Some(file)) => put_all(&file, offset, &bytes),
                Ok(None) => {
                    gone += 1;
                    Ok(())
                }
                Err((what, errno)) => {
                    failed = Some(what);
                    Err(errno)
                }
            }
        }
    });
    work.done.gone += gone;
    match entries {
        Ok(entries) => work.done.entries += entries,
        Err(errno) => {
            let log = || in_home(home, &log::names(slot)[0]);
            work.refuse(failed.unwrap_or_else(log), errno);
        }
    }
}

/// What could not be, and why.
type Failure = (PathBuf, Errno);

/// Puts what a record says of a dead process's run in its place.
fn recover_record(
    home: &Home,
    slot: u32,
    record: usize,
    work: &mut RecoveryRun<'_>,
) -> std::result::Result<(), Failure> {
    let records = &home.records;
    let (dead, me) = (u64::from(slot) + 1, u64::from(home.slot()) + 1);
    // Unless another has taken it over.
    if records.try_lock(record, dead, me).is_ok() {
        records.unlock(record);
    }
    let ino = records.get(record, Word::Key);
    let guard = home.lock(record);
    if records.get(record, Word::Owner) == 0 {
        // Claimed and never filled in, or half freed; the process that did so is dead.
        home.free(record);
        return Ok(());
    }
    let table = || in_home(home, &format!("records, record {record}"));
    let staged = match records.staged(record, ino) {
        Ok(Some(staged)) if staged.owner.slot() == slot => staged,
        Ok(_) => return Ok(()),
        // Where its name is right it concerns only the slot that it names.
        Err(_) if records.is_of_other(record, slot) => return Ok(()),
        Err(errno) => return Err((table(), errno)),
    };
    if staged.length == 0 {
        home.free(record);
        return Ok(());
    }
    let path = records.path(record);
    let Some(file) = find_file(home, ino, staged.birth, &path)? else {
        work.done.gone += 1;
        home.free(record);
        return Ok(());
    };
    let staging = staging::name(staged.owner.slot(), staged.owner.staging());
    let place = |errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            (if path.is_empty() { table() } else { path_of(&path) }, errno)
        }
        errno => (in_home(home, &staging), errno),
    };
    let lost = drain::has_lost_its_base(home, &staged, &file).map_err(place)?;
    drain::fetch(home, record, ino, &file).map_err(place)?;
    drop(guard);
    if lost {
        work.done.gone += 1;
        return Ok(());
    }
    rustix::fs::fsync(&file).map_err(place)?;
    work.done.runs += 1;
    work.done.bytes += staged.length;
    work.tell();
    Ok(())
}

fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(path))
}

/// Overwrites what of a range the file still has, for good.
fn put_all(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<()> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    // It may have been cut since.
    let length = bytes.len().min(size.saturating_sub(offset) as usize);
    let mut done = 0;
    while done < length {
        match rustix::io::pwrite(file, &bytes[done..length], offset + done as u64) {
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
    // It may have died between making one of these and removing its name.
    let pid = home.records.slot_process(slot);
    let probes = [format!("probe1.{pid}"), format!("probe2.{pid}")];
    let mut names = Vec::new();
    for entry in Dir::read_from(home.directory())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(&staging) || logs.contains(&name) || probes.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        home.remove_file(&name);
    }
    if home.direct {
        // PERSIST: a power cut would bring them back, beside those of the slot's
        // next owner.
        rustix::fs::fsync(home.directory())?;
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

/// Opens the file of an inode number: by the path that it had, or wherever it lies by now. Where
/// not everything can be looked at it is not said to be gone.
fn find_file(
    home: &Home,
    ino: u64,
    birth: u64,
    path: &[u8],
) -> std::result::Result<Option<OwnedFd>, Failure> {
    let is_it = |file: &OwnedFd| {
        rustix::fs::fstat(file)
            .is_ok_and(|stat| stat.st_ino == ino && stat.st_dev == home.device && stat.st_nlink > 0)
            && (birth == 0 || sys::birth(file) == birth)
    };
    let hint = path_of(path);
    if hint.starts_with(&home.prefix)
        && let Ok(stat) = rustix::fs::lstat(&hint)
        && stat.st_ino == ino
        && let Ok(file) = open_owned(&hint)
        && is_it(&file)
    {
        return Ok(Some(file));
    }
    let mut directories = vec![home.prefix.clone()];
    let mut unseen = None;
    while let Some(directory) = directories.pop() {
        match search(home, &directory, ino, &mut directories) {
            Ok(found) => {
                for path in found {
                    let file = open_owned(&path).map_err(|errno| (path, errno))?;
                    if is_it(&file) {
                        return Ok(Some(file));
                    }
                }
            }
            // Removed meanwhile.
            Err(Errno::NOENT) => {}
            // `lost+found`, say: this user has put nothing there.
            Err(Errno::ACCESS) if is_of_another_user(&directory) => {}
            Err(errno) => unseen = unseen.or(Some((directory, errno))),
        }
    }
    unseen.map_or(Ok(None), Err)
}

fn is_of_another_user(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| stat.st_uid != rustix::process::geteuid().as_raw())
}

/// Files of a directory that have an inode number; its directories are added to `directories`.
fn search(
    home: &Home,
    directory: &Path,
    ino: u64,
    directories: &mut Vec<PathBuf>,
) -> Result<Vec<PathBuf>> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::open(directory, flags, FileMode::empty())?;
    let mut found = Vec::new();
    if rustix::fs::fstat(&opened)?.st_dev != home.device {
        return Ok(found);
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
            found.push(path);
        }
    }
    Ok(found)
}

/// Fetches what another process has staged for a file that is open for reading and writing.
pub fn fetch_into(home: &Home, ino: u64, file: impl AsFd) -> Result<()> {
    let Some(record) = home.records.find(ino) else { return Ok(()) };
    let guard = home.lock(record);
    let fetched = drain::fetch(home, record, ino, file);
    drop(guard);
    fetched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::records::{DRAINING, Staged};
    use crate::testing::TestDir;
    use std::time::{Duration, Instant};

    /// A file of 3000 bytes, and behind `base` 100 staged ones, in posix mode on a medium that
    /// keeps them; `cut`: the power failed since. What recovery makes of that, and of the file.
    fn staged_behind(base: u64, cut: bool) -> (Recovered, Vec<u8>) {
        let directory = TestDir::new(&format!("base-{base}-{cut}"));
        let name = directory.join("f");
        std::fs::write(&name, [1; 3000]).expect("a file");
        let mut home = Home::open(&directory, Mode::Posix, true).expect("a home");
        home.take_slot().expect("a slot");
        let bytes = std::fs::File::open(&name).expect("the file");
        let (ino, birth) =
            (rustix::fs::fstat(&bytes).expect("its number").st_ino, sys::birth(&bytes));
        let at = base % 4096;
        let staging = home.open_file(&staging::name(home.slot(), 0), OFlags::CREATE);
        rustix::io::pwrite(staging.expect("a staging file"), &[2; 100], at).expect("its bytes");
        home.direct = true;
        home.boot ^= u64::from(cut) << 4;
        let (record, guard) = home.claim(ino).expect("a record");
        let owner = home.records.new_owner(home.slot(), 0);
        let flags = home.flags();
        assert_ne!(flags, 0, "the run says when it began");
        let staged = Staged { owner, base, length: 100, at, birth, flags };
        home.records.fill(record, ino, &staged, name.as_os_str().as_bytes());
        drop(guard);
        drop(home);
        let recovered = recover(&directory).expect("recovery");
        let found = std::fs::read(&name).expect("the file");
        (recovered, found)
    }

    /// In posix mode a power cut may take back the length at which staged bytes begin: then they
    /// are gone, too, for no zeros may come before them. A process that was only killed has lost
    /// nothing.
    #[test]
    fn nothing_comes_back_behind_a_length_that_was_lost() {
        let processes = Recovered { processes: 1, ..Recovered::default() };
        let gone = Recovered { gone: 1, ..processes };
        let moved = Recovered { runs: 1, bytes: 100, ..processes };
        let whole = [[1; 3000].as_slice(), &[2; 100]].concat();
        assert_eq!(staged_behind(5000, true), (gone, vec![1; 3000]));
        assert_eq!(staged_behind(3000, true), (moved, whole.clone()));
        assert_eq!(staged_behind(3000, false), (moved, whole));
        // Another process has cut the file.
        let (recovered, found) = staged_behind(5000, false);
        assert_eq!((recovered, found.len()), (moved, 5100));
    }

    /// What recovery makes of a file of two blocks and a half whose last 6000 bytes were being
    /// exchanged, and whose staging file is `there` bytes long: the bytes that it finds at the end.
    fn half_exchanged(there: u64) -> std::result::Result<Vec<u8>, Errno> {
        let directory = TestDir::new(&format!("exchanged-{there}"));
        let name = directory.join("f");
        std::fs::write(&name, [1; 10_000]).expect("a file");
        let home = Home::open(&directory, Mode::Sync, true).expect("a home");
        home.take_slot().expect("a slot");
        let bytes = std::fs::File::open(&name).expect("the file");
        let (ino, birth) =
            (rustix::fs::fstat(&bytes).expect("its number").st_ino, sys::birth(&bytes));
        let staging = home.open_file(&staging::name(home.slot(), 0), OFlags::CREATE);
        rustix::fs::ftruncate(staging.expect("a staging file"), there).expect("its size");
        let (record, guard) = home.claim(ino).expect("a record");
        let owner = home.records.new_owner(home.slot(), 0);
        let flags = home.flags() | DRAINING;
        let staged = Staged { owner, base: 4000, length: 6000, at: 4000, birth, flags };
        home.records.fill(record, ino, &staged, name.as_os_str().as_bytes());
        drop(guard);
        drop(home);
        let recovered = recover(&directory);
        let found = std::fs::read(&name).expect("the file");
        recovered.map_err(|incomplete| incomplete.refused[0].errno)?;
        assert_eq!(found[..4000], [1; 4000]);
        Ok(found[4000..].to_vec())
    }

    /// An exchange that the kernel's log recovery finished leaves the staging file with the size
    /// that the file had when the log broke off; what was exchanged is not moved again.
    #[test]
    fn an_exchange_that_the_kernel_finished_is_done() {
        assert_eq!(half_exchanged(4096), Ok(vec![1; 6000]), "in one piece");
        assert_eq!(half_exchanged(8192), Ok(vec![1; 6000]), "of two pieces one was in the log");
        assert_eq!(half_exchanged(10_000), Ok(vec![0; 6000]), "not begun: the staged bytes come");
        assert_eq!(half_exchanged(4000), Err(Errno::UCLEAN), "no exchange cuts it there");
    }

    /// As many entries as the paper's longest replay, in the long run; else fewer.
    #[test]
    fn a_long_log_is_replayed() {
        let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
        let entries = if long { 2_000_000 } else { 20_000 };
        let directory = TestDir::new("replay");
        let home = Home::open(&directory, Mode::Strict, true).expect("a home");
        home.take_slot().expect("a slot");
        let log = Log::create(&home, 128 << 20).expect("a log");
        // Of a file that is gone.
        let (record, guard) = home.claim(u64::MAX).expect("a record");
        let owner = home.records.new_owner(home.slot(), 0);
        let staged = Staged { owner, base: 0, length: 0, at: 0, birth: 0, flags: 0 };
        home.records.fill(record, u64::MAX, &staged, b"");
        drop(guard);
        for length in 1..=entries {
            log.note_append(record, owner, length).expect("there is room");
        }
        drop((log, home));
        let begun = Instant::now();
        let recovered = recover(&directory);
        let took = begun.elapsed();
        let wanted = Recovered { processes: 1, entries, gone: 1, ..Recovered::default() };
        assert_eq!(recovered, Ok(wanted));
        eprintln!("{entries} entries replayed in {took:?}");
        assert!(took < Duration::from_secs(if long { 6 } else { 60 }), "{took:?}");
    }
}
