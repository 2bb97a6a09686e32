//! The hidden directory of an engine: staging files, the shared records, and which processes live.
//!
//! `DIR/.solera-split`, mode 0700, made by the first process of the engine and owned by its user;
//! processes of other users find it closed and leave everything to the kernel. In it:
//!
//! - `records`: the shared table (see `records`);
//! - `alive`: byte `n` is write-locked (a POSIX lock: it goes with the process) by the process that
//!   has slot `n`. Nothing else opens this file, as any close of it would drop the lock;
//! - `stage.S.N`: staging file `N` of slot `S`;
//! - `log.S`, `data.S`: the operation log of slot `S` and the bytes that it speaks of.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use robust::bytes::{self, Hold, Kind};
use rustix::fs::{Dir, FlockOperation, Mode as FileMode, OFlags};
use rustix::io::Errno;

use crate::internal_descriptors::HiddenFd;
use crate::records::{self, Records};
use crate::relink::Backend;
use crate::{Mode, Result, sys};

/// The directory's name.
pub const HOME_NAME: &str = ".solera-split";

/// `f_type` of a tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
thread_local! {
    /// Not 0: this thread runs in a process apart.
    static HELPER: Cell<u64> = const { Cell::new(0) };
}
/// No slot.
const NONE: u32 = u32::MAX;

/// Whether the file system of a directory maps with `MAP_SYNC`; tried with a file without a name.
pub fn maps_directly(directory: &Path) -> Result<bool> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory, flags, FileMode::from_raw_mode(0o600)) {
        Ok(file) => file,
        // Where nothing can be made, nothing is staged.
        Err(Errno::OPNOTSUPP | Errno::ROFS | Errno::ACCESS) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    rustix::fs::ftruncate(&file, 4096)?;
    Ok(window::Window::map(file.as_fd(), 0, 4096, true, true).is_ok())
}

/// The hidden directory, open.
pub struct Home {
    /// The directory whose files are served: absolute, without symlinks and final slash.
    pub prefix: PathBuf,
    /// Its file system.
    pub device: u64,
    /// The file system maps with `MAP_SYNC`.
    pub direct: bool,
    /// The boot of the kernel, as a number.
    pub boot: u64,
    /// Reading a hole through a mapping allocates (tmpfs).
    pub fills_holes: bool,
    /// What writes promise.
    pub mode: Mode,
    /// How relinks are to be made, if that can be had; `None`: as best they can.
    pub relink: Option<Backend>,
    /// The shared records.
    pub records: Records,
    directory: HiddenFd,
    alive: HiddenFd,
    slot: AtomicU32,
}

fn open_in(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, FileMode::from_raw_mode(0o600))
}

impl Home {
    /// Opens the hidden directory of `prefix`, making it if `create`.
    pub fn open(prefix: &Path, mode: Mode, create: bool) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = prefix.join(HOME_NAME);
        if create {
            match rustix::fs::mkdir(&path, FileMode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        let directory = rustix::fs::open(&path, flags, FileMode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            // Another user's: what lies in it could not be trusted.
            return Err(Errno::ACCESS);
        }
        let table = open_in(&directory, "records", OFlags::CREATE)?;
        let alive = open_in(&directory, "alive", OFlags::CREATE)?;
        let records = Records::open(table, &path.join("records"))?;
        let home = Self {
            prefix: prefix.to_path_buf(),
            device: stat.st_dev,
            direct: records.is_direct(),
            boot: sys::boot()?,
            fills_holes: rustix::fs::fstatfs(&directory)?.f_type == TMPFS_MAGIC,
            mode,
            relink: None,
            records,
            directory: HiddenFd::new(directory),
            alive: HiddenFd::new(alive),
            slot: AtomicU32::new(NONE),
        };
        if !home.direct {
            home.forget_other_boots()?;
        }
        Ok(home)
    }

    /// After a power cut the table and the staging files are whatever the kernel had written back
    /// by then, and what was synced is in the files: nothing here is to be moved there.
    fn forget_other_boots(&self) -> Result<()> {
        let boot = self.boot;
        if self.records.boot() == boot {
            return Ok(());
        }
        self.lock_directory()?;
        let forgotten = self.forget_before(boot);
        rustix::fs::flock(&self.directory, FlockOperation::Unlock)?;
        forgotten
    }

    /// Locks the directory, however long that takes and whatever signals come.
    pub fn lock_directory(&self) -> Result<()> {
        rustix::io::retry_on_intr(|| {
            rustix::fs::flock(&self.directory, FlockOperation::LockExclusive)
        })
    }

    /// Unlocks it: the lock is the description's, and stays if a process apart is killed that took
    /// it.
    pub fn unlock_directory(&self) {
        // Its descriptor is open.
        let _ = rustix::fs::flock(&self.directory, FlockOperation::Unlock);
    }

    /// As [`Home::forget_other_boots`]; the directory is locked.
    fn forget_before(&self, boot: u64) -> Result<()> {
        // Another may have been at it before. A process on another machine is not of another boot.
        let lives = |slot| self.records.slot_state(slot) != 0 && self.is_alive(slot);
        if self.records.boot() == boot || (0..self.records.slots()).any(lives) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        let left = ["stage.", "log.", "data."];
        for name in names.iter().filter(|name| left.iter().any(|kind| name.starts_with(kind))) {
            self.remove_file(name);
        }
        self.records.begin_anew(boot);
        Ok(())
    }

    /// Opens a file of the hidden directory.
    pub fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        open_in(&self.directory, name, flags)
    }

    /// Removes one.
    pub fn remove_file(&self, name: &str) {
        // A file that stays is recovered as a dead process's.
        let _ = self.has_removed(name);
    }

    /// Removes one; whether it is not there any more.
    pub fn has_removed(&self, name: &str) -> bool {
        let removed = rustix::fs::unlinkat(&self.directory, name, rustix::fs::AtFlags::empty());
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }

    /// The directory's descriptor.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// This process's slot.
    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Takes a free slot for this process.
    pub fn take_slot(&self) -> Result<()> {
        for slot in 0..self.records.slots() {
            if self.records.slot_state(slot) == 0 && self.hold(slot)? {
                if self.records.claim_slot(slot) {
                    self.slot.store(slot, Ordering::Relaxed);
                    return Ok(());
                }
                self.let_go(slot);
            }
        }
        Err(Errno::USERS)
    }

    /// Takes the slot of a dead process, whose byte this one holds.
    pub fn be_in(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// It could not be recovered: it stays the dead one's.
    pub fn be_nowhere(&self) {
        let slot = self.slot.swap(NONE, Ordering::Relaxed);
        if slot != NONE {
            self.let_go(slot);
        }
    }

    /// Gives it back: nothing of this process's is left in the records.
    pub fn leave_slot(&self) {
        let slot = self.slot.swap(NONE, Ordering::Relaxed);
        if slot != NONE {
            self.records.free_slot(slot);
            self.let_go(slot);
        }
    }

    /// Whether the process that has `slot` lives.
    pub fn is_alive(&self, slot: u32) -> bool {
        let alive = self.alive.as_fd().as_raw_fd();
        slot == self.slot()
            || !matches!(bytes::holder(alive, Kind::Process, slot.into(), 1), Ok(None))
    }

    /// Holds the byte of a slot whose process is dead, to recover it; `false`: it lives, or another
    /// process is at it.
    pub fn hold_dead(&self, slot: u32) -> Result<bool> {
        if slot == self.slot() { Ok(false) } else { self.hold(slot) }
    }

    fn hold(&self, slot: u32) -> Result<bool> {
        bytes::try_take(self.alive.as_fd().as_raw_fd(), Kind::Process, Hold::Alone, slot.into())
    }

    /// Lets a slot's byte go.
    pub fn let_go(&self, slot: u32) {
        // Unlocking a byte of an open file cannot fail.
        let _ = bytes::release(self.alive.as_fd().as_raw_fd(), Kind::Process, slot.into());
    }

    /// The dead one's slot is free.
    pub fn release_dead(&self, slot: u32) {
        self.records.free_slot(slot);
        self.let_go(slot);
    }

    /// Whether returned writes must be made durable at once.
    pub fn durable(&self) -> bool {
        self.mode != Mode::Posix
    }

    /// Flags of a run that begins.
    ///
    /// CRASH: in posix mode the file's length was not made durable. A power cut may take it back
    /// and leave the record, whose bytes would then have zeros before them that no process wrote.
    pub fn flags(&self) -> u64 {
        if self.direct && !self.durable() { records::of_boot(self.boot) } else { 0 }
    }

    /// Frees a record, before what its staging file holds changes. Locked.
    pub fn free(&self, record: usize) {
        self.records.free(record);
        if self.durable() || self.direct {
            // PERSIST: else a power cut would bring the record back, with other bytes behind it.
            self.records.persist(record);
        }
    }

    /// Claims a free record for a file, locked.
    pub fn claim(&self, ino: u64) -> Option<(usize, RecordGuard<'_>)> {
        let record = self.records.claim(ino, u64::from(self.slot()) + 1)?;
        Some((record, RecordGuard { home: self, record }))
    }

    /// Runs `body` in a process apart (see [`sys::apart`]). If it is killed meanwhile, its locks
    /// are released: the record says how far it was.
    pub fn apart<T, F: FnOnce() -> T>(&self, body: F) -> Result<T> {
        // It shares this thread's locals: the thread's number tells it from other threads' helpers.
        let tag = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()) << 32;
        HELPER.set(tag);
        let done = sys::apart(body);
        let name = self.lock_name();
        HELPER.set(0);
        if done.is_err() {
            self.records.unlock_all_of(name);
        }
        done
    }

    /// How this process says that it holds a record: its slot + 1, and above it the process apart,
    /// if that one holds it.
    fn lock_name(&self) -> u64 {
        (u64::from(self.slot()) + 1) | HELPER.get()
    }

    /// Waits until a record is locked by this process; takes it from a dead one.
    pub fn lock(&self, record: usize) -> RecordGuard<'_> {
        let me = self.lock_name();
        let mut looks = 0_u32;
        loop {
            let holder = match self.records.try_lock(record, 0, me) {
                Ok(()) => return RecordGuard { home: self, record },
                Err(holder) => holder,
            };
            looks += 1;
            if looks < 200 {
                std::hint::spin_loop();
                continue;
            }
            if holder != me
                && holder != 0
                && !self.is_alive((holder as u32).wrapping_sub(1))
                && self.records.try_lock(record, holder, me).is_ok()
            {
                return RecordGuard { home: self, record };
            }
            let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000 };
            // An interrupted pause is a shorter one.
            let _ = rustix::thread::nanosleep(&pause);
        }
    }
}

/// A record is locked.
pub struct RecordGuard<'a> {
    home: &'a Home,
    record: usize,
}

impl Drop for RecordGuard<'_> {
    fn drop(&mut self) {
        self.home.records.unlock(self.record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDir;

    /// The process that fetched staged bytes for this one was killed in the middle: no process
    /// waits for it.
    #[test]
    fn the_locks_of_a_killed_helper_are_let_go() {
        let directory = TestDir::new("apart");
        let home = Home::open(&directory, Mode::Posix, true).expect("a home");
        home.take_slot().expect("a slot");
        let (first, guard) = home.claim(11).expect("a record");
        drop(guard);
        let (own, held) = home.claim(12).expect("another");
        let killed = home.apart(|| {
            std::mem::forget(home.lock(first));
            home.lock_directory().expect("a lock");
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL)
        });
        assert_eq!(killed, Err(Errno::IO));
        // Another process would wait for the directory; here another description does.
        let again = rustix::fs::open(
            directory.join(HOME_NAME),
            OFlags::DIRECTORY | OFlags::RDONLY,
            FileMode::empty(),
        );
        let other = again.expect("the directory");
        let taken = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Err(Errno::WOULDBLOCK), "the lock stays behind");
        home.unlock_directory();
        let taken = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Ok(()));
        // This one is free, and the process's own is not.
        drop(home.lock(first));
        assert!(home.records.try_lock(own, 0, 77).is_err());
        drop(held);
        assert_eq!(home.apart(|| drop(home.lock(own))), Ok(()));
        home.leave_slot();
        drop(home);
    }
}
