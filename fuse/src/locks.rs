//! Locks that programs take through the mount: record locks (POSIX, and those of open file
//! descriptions) and `flock`. They stand in the volume's own table, so they exclude the locks of
//! preloaded processes, and those exclude them.
//!
//! The kernel names a record lock's owner by a number that means nothing to the engine, and there
//! are as many owners as processes. Each owner of locks on a file gets a *stand-in*: a description of
//! that file whose own locks are the owner's. It is closed, and its locks with it, when the owner
//! closes the file (`FLUSH`), or when the handle goes by which it locked (`RELEASE`: descriptions'
//! own locks).
//!
//! Processes (not descriptions) that wait for each other in a circle are told (`EDEADLK`), as the kernel
//! tells them of its own locks: who begins to wait looks along the owners that wait already. The
//! kernel does not say whose a lock is to be; the system call in which the caller waits does.
//!
//! A wait has a thread of its own. The kernel says by `INTERRUPT` that a signal wants it to end; that
//! message may overtake the request that it is about.
//!
//! Locks: `blocked`, then `owners`; `waiting` by itself. None while the engine waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use vfs::{Desc, Errno, FileSystem, LockKind, LockOwner, Node, OpenFlags, RecordLock, Result};

use crate::abi::FileLock;
use crate::interrupt::{self, Waiter};
use crate::nodes::lock;

/// Interruptions of requests that are not waiting (yet), at most.
const EARLY_MAX: usize = 64;
/// Longest circle of owners that is found, as on Linux.
const HOPS: u32 = 10;
/// The kernel's "to the end, wherever it is".
const KERNEL_END: u64 = i64::MAX as u64;

/// An owner of record locks on a file, as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Owner {
    number: u64,
    ino: u64,
}

struct StandIn {
    desc: Desc,
    /// The handle by which it locked last.
    handle: u64,
    /// The process that locked last.
    pid: u32,
    /// Calls that work with it: it is not closed under them.
    used: u32,
    /// To be closed by the last of them.
    closing: bool,
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
    owners: Mutex<HashMap<Owner, StandIn>>,
    /// How many there are: most closes have none to look for.
    count: AtomicUsize,
    /// Wishes of processes that wait.
    blocked: Mutex<Vec<Wish>>,
    waiting: Mutex<Waiting>,
    /// Threads that wait.
    threads: AtomicU32,
}

/// One wish for a record lock.
#[derive(Clone, Copy)]
pub struct Wish {
    /// The file.
    pub node: Node,
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

    fn key(&self) -> Owner {
        Owner { number: self.owner, ino: self.node.ino }
    }
}

/// Whether a thread waits in `fcntl` for a lock of its process, not of a description.
fn waits_for_process(thread: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let mut words = call.split(' ');
    let number = words.next().and_then(|word| word.parse().ok());
    let command = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let command = command.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    number == Some(libc::SYS_fcntl) && command == Some(libc::F_SETLKW.into())
}

/// A lock as the kernel wants to hear of it.
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
    /// Sets or clears a record lock. `wait`: waits for it, as request `unique`.
    pub fn set(&self, fs: &dyn FileSystem, wish: &Wish, wait: bool) -> Result<()> {
        let record = wish.record()?;
        if record.kind == LockKind::Unlock && self.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let desc = self.begin_use(fs, wish)?;
        let set = || fs.record_lock(desc, LockOwner::Description, &record, wait);
        let result = if wait && waits_for_process(wish.thread) {
            self.begin_waiting(fs, wish).and_then(|()| {
                let result = set();
                self.end_waiting(wish);
                result
            })
        } else {
            set()
        };
        self.end_use(fs, wish.key());
        result
    }

    /// Says that a process waits. `EDEADLK`: it would wait for itself, over others.
    fn begin_waiting(&self, fs: &dyn FileSystem, wish: &Wish) -> Result<()> {
        let mut blocked = lock(&self.blocked);
        let mut next = self.refusers(fs, wish);
        for _ in 0..HOPS {
            if next.contains(&wish.owner) {
                return Err(Errno::DEADLK);
            }
            let waiting = blocked.iter().filter(|other| next.contains(&other.owner));
            next = waiting.flat_map(|other| self.refusers(fs, other)).collect();
            if next.is_empty() {
                break;
            }
        }
        blocked.push(*wish);
        Ok(())
    }

    fn end_waiting(&self, wish: &Wish) {
        let mut blocked = lock(&self.blocked);
        let at = blocked.iter().position(|other| other.thread == wish.thread);
        at.map(|at| blocked.swap_remove(at));
    }

    /// The owners of locks through this mount that refuse a wish.
    fn refusers(&self, fs: &dyn FileSystem, wish: &Wish) -> Vec<u64> {
        let Ok(wanted) = wish.record() else { return Vec::new() };
        let asked = RecordLock { kind: LockKind::Unlock, ..wanted };
        let owners = lock(&self.owners);
        let others = owners
            .iter()
            .filter(|(owner, _)| owner.ino == wish.node.ino && owner.number != wish.owner);
        let refuses = |stand_in: &StandIn| {
            let own = fs.test_lock(stand_in.desc, LockOwner::Description, &asked);
            own.ok()
                .flatten()
                .is_some_and(|own| own.kind == LockKind::Write || wanted.kind == LockKind::Write)
        };
        others.filter(|(_, stand_in)| refuses(stand_in)).map(|(owner, _)| owner.number).collect()
    }

    /// The first lock that would refuse the wish, if there is one.
    pub fn test(&self, fs: &dyn FileSystem, wish: &Wish) -> Result<FileLock> {
        let record = wish.record()?;
        let desc = self.begin_use(fs, wish)?;
        let found = fs.test_lock(desc, LockOwner::Description, &record);
        self.end_use(fs, wish.key());
        let Some(mut found) = found? else {
            return Ok(FileLock { kind: libc::F_UNLCK as u32, ..wish.lock });
        };
        if found.pid < 0
            && let Some(pid) = self.pid_of(fs, wish, &found)
        {
            found.pid = pid as i32;
        }
        Ok(told(&found))
    }

    /// Which process has this very lock through the mount.
    fn pid_of(&self, fs: &dyn FileSystem, wish: &Wish, found: &RecordLock) -> Option<u32> {
        let owners = lock(&self.owners);
        let on_file = owners.iter().filter(|(owner, _)| owner.ino == wish.node.ino);
        let asked = RecordLock { kind: LockKind::Unlock, ..*found };
        on_file.into_iter().find_map(|(_, stand_in)| {
            let own = fs.test_lock(stand_in.desc, LockOwner::Description, &asked).ok()??;
            ((own.start, own.end) == (found.start, found.end)).then_some(stand_in.pid)
        })
    }

    /// The owner's stand-in, made if there is none.
    fn begin_use(&self, fs: &dyn FileSystem, wish: &Wish) -> Result<Desc> {
        let mut owners = lock(&self.owners);
        if let Some(stand_in) = owners.get_mut(&wish.key()) {
            stand_in.used += 1;
            (stand_in.handle, stand_in.pid) = (wish.handle, wish.lock.pid);
            stand_in.closing = false;
            return Ok(stand_in.desc);
        }
        let open = |flags| fs.open(wish.node, OpenFlags(flags));
        let desc = match open(libc::O_RDWR) {
            Err(Errno::ROFS) => open(libc::O_RDONLY)?,
            opened => opened?,
        };
        let (handle, pid) = (wish.handle, wish.lock.pid);
        owners.insert(wish.key(), StandIn { desc, handle, pid, used: 1, closing: false });
        self.count.store(owners.len(), Ordering::Relaxed);
        Ok(desc)
    }

    fn end_use(&self, fs: &dyn FileSystem, key: Owner) {
        let mut owners = lock(&self.owners);
        let Some(stand_in) = owners.get_mut(&key) else { return };
        stand_in.used -= 1;
        if stand_in.closing && stand_in.used == 0 {
            let desc = stand_in.desc;
            owners.remove(&key);
            self.count.store(owners.len(), Ordering::Relaxed);
            drop(owners);
            // What cannot be closed is dropped when this process ends.
            let _ = fs.close(desc);
        }
    }

    /// An owner closes a file: all its record locks on it go.
    pub fn flush(&self, fs: &dyn FileSystem, node: Node, owner: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.drop_where(fs, |key, _| key.number == owner && key.ino == node.ino);
        }
    }

    /// A handle is gone: so are the locks of its description.
    pub fn release(&self, fs: &dyn FileSystem, handle: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.drop_where(fs, |_, stand_in| stand_in.handle == handle);
        }
    }

    fn drop_where(&self, fs: &dyn FileSystem, of: impl Fn(&Owner, &StandIn) -> bool) {
        let mut owners = lock(&self.owners);
        let mut closed = Vec::new();
        owners.retain(|key, stand_in| {
            if !of(key, stand_in) {
                return true;
            }
            if stand_in.used > 0 {
                stand_in.closing = true;
                return true;
            }
            closed.push(stand_in.desc);
            false
        });
        self.count.store(owners.len(), Ordering::Relaxed);
        drop(owners);
        for desc in closed {
            let _ = fs.close(desc);
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

    /// The mount is gone: nobody waits any more. Returns when all have ended.
    pub fn end(&self) {
        while self.threads.load(Ordering::Acquire) > 0 {
            let mut waiting = lock(&self.waiting);
            waiting.ended = true;
            for waiter in waiting.now.values() {
                waiter.interrupt();
            }
            drop(waiting);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
