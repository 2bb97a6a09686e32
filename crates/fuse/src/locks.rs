//! Locks that programs take through the mount: record locks (POSIX, and those of open file
//! descriptions) and `flock`. They stand in the volume's own table, so they exclude the locks of
//! preloaded processes, and those exclude them.
//!
//! The kernel names a record lock's owner by a number that means nothing to the engine, and there
//! are as many owners as processes. Each owner that has locks is a *guest* of this process in the
//! engine's table: the same one for all files, so that circles of waiting are found across programs
//! of both faces (`EDEADLK`), and other processes see its process id. Its locks on a file go when
//! it closes the file (`FLUSH`); a description's own locks go with the handle by which they were
//! taken (`RELEASE`).
//!
//! Only processes are in circles, not descriptions, as on Linux. The kernel does not say of which
//! kind an owner is; the system call in which the caller waits does.
//!
//! A wait has a thread of its own. The kernel sends `INTERRUPT` when a signal is to end it; that
//! message may overtake its request. (The kernel restarts the call if it is to be restarted.)
//!
//! Locks: `programs`; `waiting`. Neither with the other, none while the engine is called.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use vfs::{Desc, Errno, Guest, LockKind, LockOwner, Node, RecordLock, Result};

use crate::abi::FileLock;
use crate::interrupt::{self, Waiter};
use crate::nodes::lock;

/// Interruptions of requests that are not waiting (yet), at most.
const EARLY_MAX: usize = 64;
/// How often a thread that has asked is looked at until it sleeps.
const SLEEP_TRIES: u32 = 5000;
const SLEEP_STEP: Duration = Duration::from_millis(1);
/// The kernel's "to the end, wherever it is".
const KERNEL_END: u64 = i64::MAX as u64;

/// The number of a guest that has no locks.
const NO_LOCKS: u16 = 0x3FFF;
/// The bits of a process id.
const PIDS: u32 = 0x3F_FFFF;

/// An owner of record locks.
struct Program {
    /// What the engine knows it by.
    pid: u32,
    number: u16,
    /// The files on which it may have locks, with the handle by which it locked each last.
    files: HashMap<u64, u64>,
    /// Calls that work with it.
    used: u32,
}

impl Program {
    fn owner(&self, is_process: bool) -> LockOwner {
        LockOwner::Guest(Guest { pid: self.pid, number: self.number, is_process })
    }
}

#[derive(Default)]
struct Programs {
    by_owner: HashMap<u64, Program>,
    next: u16,
}

impl Programs {
    /// A number that no other program of the process id has.
    fn free_number(&mut self, pid: u32) -> u16 {
        loop {
            self.next = (self.next + 1) % NO_LOCKS;
            let taken = |program: &Program| (program.pid, program.number) == (pid, self.next);
            if !self.by_owner.values().any(taken) {
                return self.next;
            }
        }
    }
}

#[derive(Default)]
struct Waiting {
    now: HashMap<u64, &'static Waiter>,
    early: VecDeque<u64>,
    ended: bool,
}

/// All of a mount.
#[derive(Default)]
pub struct Locks {
    programs: Mutex<Programs>,
    /// How many there are: most closes have none to look for.
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
    /// Threads that wait.
    threads: AtomicU32,
}

/// One wish for a record lock.
#[derive(Clone, Copy)]
pub struct Wish {
    /// The file.
    pub node: Node,
    /// The description of the handle.
    pub desc: Desc,
    /// The handle that was used.
    pub handle: u64,
    /// The owner, as the kernel names it.
    pub owner: u64,
    /// The thread that asks.
    pub thread: u32,
    /// Range, kind, process.
    pub lock: FileLock,
}

impl Wish {
    /// Shared, exclusive or none. `EINVAL`.
    pub fn kind(&self) -> Result<LockKind> {
        match self.lock.kind as i32 {
            libc::F_RDLCK => Ok(LockKind::Read),
            libc::F_WRLCK => Ok(LockKind::Write),
            libc::F_UNLCK => Ok(LockKind::Unlock),
            _ => Err(Errno::INVAL),
        }
    }

    fn record(&self) -> Result<RecordLock> {
        let kind = self.kind()?;
        let end = if self.lock.end >= KERNEL_END { u64::MAX } else { self.lock.end };
        Ok(RecordLock { kind, start: self.lock.start, end, pid: self.lock.pid as i32 })
    }
}

/// Whether a thread waits in `fcntl` for a lock of its process, not of a description. It is about
/// to sleep until it is answered; what it calls is told only then.
fn waits_for_process(thread: u32) -> bool {
    let mut call = String::new();
    for _ in 0..SLEEP_TRIES {
        call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
        if !call.starts_with("running") {
            break;
        }
        std::thread::sleep(SLEEP_STEP);
    }
    let mut words = call.split(' ');
    let number = words.next().and_then(|word| word.parse().ok());
    let command = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let command = command.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    number == Some(libc::SYS_fcntl) && command == Some(libc::F_SETLKW.into())
}

/// A lock in the kernel's form.
fn told(lock: &RecordLock) -> FileLock {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    let pid = u32::try_from(lock.pid).unwrap_or(0);
    FileLock { start: lock.start, end: lock.end.min(KERNEL_END), kind: kind as u32, pid }
}

impl Locks {
    /// Sets or clears a record lock. `wait`: waits for it.
    pub fn set(&self, fs: &dyn vfs::Locks, wish: &Wish, wait: bool) -> Result<()> {
        let record = wish.record()?;
        let locks = record.kind != LockKind::Unlock;
        if !locks && self.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let is_process = wait && waits_for_process(wish.thread);
        let Some(owner) = self.begin_use(wish, locks, is_process) else { return Ok(()) };
        let result = fs.record_lock(wish.desc, owner, &record, wait);
        self.end_use(wish, locks && result.is_ok());
        result
    }

    /// The owner as the engine knows it. `None`: it has no locks, and wants none (`locks`).
    fn begin_use(&self, wish: &Wish, locks: bool, is_process: bool) -> Option<LockOwner> {
        let mut programs = lock(&self.programs);
        if locks && !programs.by_owner.contains_key(&wish.owner) {
            let pid = wish.lock.pid & PIDS;
            let number = programs.free_number(pid);
            let program = Program { pid, number, files: HashMap::new(), used: 0 };
            programs.by_owner.insert(wish.owner, program);
            self.count.store(programs.by_owner.len(), Ordering::Relaxed);
        }
        let program = programs.by_owner.get_mut(&wish.owner)?;
        program.used += 1;
        if locks {
            program.files.insert(wish.node.ino, wish.handle);
        }
        Some(program.owner(is_process))
    }

    /// `locked`: it has a lock now, also if it closed the file in another thread meanwhile.
    fn end_use(&self, wish: &Wish, locked: bool) {
        let mut programs = lock(&self.programs);
        let Some(program) = programs.by_owner.get_mut(&wish.owner) else { return };
        program.used -= 1;
        if locked {
            program.files.insert(wish.node.ino, wish.handle);
        }
        self.forget_idle(&mut programs);
    }

    fn forget_idle(&self, programs: &mut Programs) {
        programs.by_owner.retain(|_, program| program.used > 0 || !program.files.is_empty());
        self.count.store(programs.by_owner.len(), Ordering::Relaxed);
    }

    /// The first lock that would refuse the wish, if there is one.
    pub fn test(&self, fs: &dyn vfs::Locks, wish: &Wish) -> Result<FileLock> {
        let record = wish.record()?;
        let stranger = Guest { pid: 0, number: NO_LOCKS, is_process: false };
        let programs = lock(&self.programs);
        let known = programs.by_owner.get(&wish.owner).map(|program| program.owner(false));
        drop(programs);
        let owner = known.unwrap_or(LockOwner::Guest(stranger));
        let found = fs.test_lock(wish.desc, owner, &record)?;
        Ok(found.map_or(FileLock { kind: libc::F_UNLCK as u32, ..wish.lock }, |lock| told(&lock)))
    }

    /// An owner closes a file: all its record locks on it go.
    pub fn flush(&self, fs: &dyn vfs::Locks, (ino, desc): (u64, Desc), owner: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.drop_where(fs, desc, |number, of, _| number == owner && of == ino);
        }
    }

    /// A handle is about to go: so are the locks of its description.
    pub fn release(&self, fs: &dyn vfs::Locks, desc: Desc, handle: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.drop_where(fs, desc, |_, _, by| by == handle);
        }
    }

    /// Drops the locks that `of` says (owner, file, handle), all on the file of a description.
    fn drop_where(&self, fs: &dyn vfs::Locks, desc: Desc, of: impl Fn(u64, u64, u64) -> bool) {
        let mut programs = lock(&self.programs);
        let mut dropped = Vec::new();
        for (&owner, program) in &mut programs.by_owner {
            let before = program.files.len();
            program.files.retain(|&ino, &mut handle| !of(owner, ino, handle));
            if program.files.len() < before {
                dropped.push(program.owner(false));
            }
        }
        self.forget_idle(&mut programs);
        drop(programs);
        let all = RecordLock { kind: LockKind::Unlock, start: 0, end: u64::MAX, pid: 0 };
        for owner in dropped {
            // What cannot be unlocked is dropped when this process ends.
            let _ = fs.record_lock(desc, owner, &all, false);
        }
    }

    // ---- waiting --------------------------------------------------------------------------------

    /// Runs `wait`, which may wait in the engine, as request `unique`: an interruption ends it.
    pub fn waiting(&self, unique: u64, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        let waiter = interrupt::enter();
        let mut waiting = lock(&self.waiting);
        let early = waiting.early.iter().position(|&other| other == unique);
        if let Some(at) = early {
            waiting.early.remove(at);
        }
        if early.is_some() || waiting.ended {
            drop(waiting);
            interrupt::leave(waiter);
            return Err(Errno::INTR);
        }
        waiting.now.insert(unique, waiter);
        drop(waiting);
        let result = wait();
        lock(&self.waiting).now.remove(&unique);
        interrupt::leave(waiter);
        result
    }

    /// A thread that waits begins, or ends.
    pub fn count_thread(&self, begins: bool) {
        let change = if begins { 1 } else { u32::MAX };
        self.threads.fetch_add(change, Ordering::AcqRel);
    }

    /// A signal wants a request to end.
    pub fn interrupt(&self, unique: u64) {
        let mut waiting = lock(&self.waiting);
        if let Some(waiter) = waiting.now.get(&unique) {
            waiter.interrupt();
            return;
        }
        if waiting.early.len() == EARLY_MAX {
            waiting.early.pop_front();
        }
        waiting.early.push_back(unique);
    }

    /// The mount is gone: ends all waits. Returns when all have ended.
    pub fn end(&self) {
        while self.threads.load(Ordering::Acquire) > 0 {
            let mut waiting = lock(&self.waiting);
            waiting.ended = true;
            for waiter in waiting.now.values() {
                waiter.interrupt();
            }
            drop(waiting);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
