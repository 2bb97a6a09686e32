//! Serves a mount: threads read requests from the kernel, each from a descriptor of its own, answer
//! them by calls of the contract (`vfs`), and end when the mount is gone.
//!
//! No request waits for another one, except for a lock that another program holds: such a wait gets
//! a thread of its own (`locks.rs`). One more thread watches what the kernel keeps in its page
//! cache (`page_cache.rs`, `twins.rs`), ends the short holds of `nodes.rs`, and sees to it that
//! enough threads read (`thread_pool.rs`). A file's set-id bits and capabilities go when a request
//! says so (`FUSE_HANDLE_KILLPRIV_V2`): only the kernel knows whether the writer may keep them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::fs::{Mode, OFlags};
use vfs::mounts::Identity;
use vfs::{Engine, Errno, Result};
use zerocopy::IntoBytes;

use crate::abi::{
    self, InitIn, InitOut, InvalidateInodeOut, NOTIFY_INVALIDATE_INODE, OutHeader, init, op,
};
use crate::descriptions::Descriptions;
use crate::executables::Executables;
use crate::invalidations::Invalidations;
use crate::locks::Locks;
use crate::nodes::{Nodes, lock};
use crate::page_cache::{self, PageCache};
use crate::request::{Answer, DATA_MAX, REQUEST_MAX, Request};
use crate::thread_pool::{MEMBERS, Samples, ThreadPool};
use crate::twins::Twins;

/// `FUSE_DEV_IOC_CLONE`: one more descriptor of the same mount.
const CLONE: libc::c_ulong = 0x8004_E500;

/// What the threads share.
pub struct Session {
    /// The file system.
    pub fs: Arc<dyn Engine>,
    /// What the kernel knows.
    pub nodes: Nodes,
    /// Locks through the mount.
    pub locks: Locks,
    /// What is in the kernel's page cache.
    pub page_cache: PageCache,
    /// What the kernel's page cache was given of files that may be mapped for writing.
    pub twins: Twins,
    /// What it is told to drop.
    pub invalidations: Invalidations,
    /// Programs that run from files of the mount.
    pub executables: Executables,
    /// Descriptions of preloaded programs, used through the mount.
    pub descriptions: Descriptions,
    /// What the mount says that it serves.
    pub identity: String,
    device: OwnedFd,
    /// The threads that read requests.
    pub pool: ThreadPool,
    /// Wakes the watching thread.
    watch: (Mutex<bool>, Condvar),
}

/// Agrees with the kernel on abilities and serves it until the mount is gone. `identity`: which
/// volume `fs` is.
pub fn serve(fs: Arc<dyn Engine>, identity: &Identity, device: OwnedFd) -> Result<()> {
    let session = Arc::new(Session {
        nodes: Nodes::new(fs.root()),
        fs,
        locks: Locks::default(),
        page_cache: PageCache::default(),
        twins: Twins::new(),
        invalidations: Invalidations::default(),
        executables: Executables::default(),
        descriptions: Descriptions::default(),
        identity: identity.to_string(),
        device,
        pool: ThreadPool::new(),
        watch: (Mutex::new(false), Condvar::new()),
    });
    session.begin()?;
    let shared = Arc::clone(&session);
    let watcher = thread::spawn(move || shared.watch());
    let mut threads = Vec::new();
    for number in 0..MEMBERS {
        let device = Arc::new(session.clone_device()?);
        let worker = Worker { session: Arc::clone(&session), device, number };
        threads.push(thread::spawn(move || worker.run()));
    }
    for thread in threads {
        // A thread that panicked has ended: the others went on.
        let _ = thread.join();
    }
    session.wake_watcher();
    let _ = watcher.join();
    session.locks.end();
    session.nodes.drop_recent(&*session.fs, true);
    Ok(())
}

impl Session {
    /// Reads and answers the kernel's first request: what each side can do.
    fn begin(&self) -> Result<()> {
        let mut bytes = vec![0; REQUEST_MAX];
        let mut answer = Answer::new();
        loop {
            let length = read(&self.device, &mut bytes)?.ok_or(Errno::NODEV)?;
            let mut request = Request::parse(&bytes[..length])?;
            let unique = request.header.unique;
            if request.header.opcode != op::INIT {
                send(&self.device, answer.message(unique, Err(Errno::IO)));
                continue;
            }
            let asked: InitIn = request.take()?;
            if asked.major != abi::VERSION.0 {
                send(&self.device, answer.message(unique, Err(Errno::PROTO)));
                return Err(Errno::PROTO);
            }
            answer.put(&agreed(&asked))?;
            send(&self.device, answer.message(unique, Ok(())));
            return Ok(());
        }
    }

    fn clone_device(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        let original = self.device.as_raw_fd() as u32;
        // SAFETY: the request reads one number.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), CLONE, &raw const original) };
        if done == 0 {
            return Ok(fd);
        }
        // An old kernel: all threads read from one.
        rustix::io::fcntl_dupfd_cloexec(&self.device, 0)
    }

    /// Something is to be watched, or held for a moment, from now on.
    pub fn wake_watcher(&self) {
        *lock(&self.watch.0) = true;
        self.watch.1.notify_one();
    }

    fn watch(&self) {
        let mut looks = Samples::new();
        while !self.pool.has_ended() {
            let busy = self.pool.look(&mut looks);
            let held = self.nodes.drop_recent(&*self.fs, false);
            for number in self.page_cache.changed(&*self.fs) {
                self.invalidate(number, 0, 0);
            }
            for eviction in self.twins.evictions() {
                self.invalidate(eviction.number, eviction.offset, eviction.length);
                self.twins.drop_old(&eviction);
            }
            let mut woken = lock(&self.watch.0);
            if busy || held || !self.page_cache.is_empty() {
                let waited = self.watch.1.wait_timeout(woken, page_cache::PERIOD);
                *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0 = false;
                // A wake-up does not shorten the period of what is watched already.
                continue;
            }
            self.pool.unwatch();
            // Looks once more for requests that began before the watcher said that it sleeps.
            *woken |= self.pool.look(&mut looks);
            while !*woken {
                woken = self.watch.1.wait(woken).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            *woken = false;
        }
    }

    /// Tells the kernel to drop pages of a node, and to write back first what was stored in them.
    /// `length` 0: all from there on.
    fn invalidate(&self, number: u64, offset: u64, length: u64) {
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<InvalidateInodeOut>()) as u32,
            error: NOTIFY_INVALIDATE_INODE,
            unique: 0,
        };
        let body = InvalidateInodeOut { ino: number, off: offset as i64, len: length as i64 };
        let message = [header.as_bytes(), body.as_bytes()].concat();
        self.invalidations.during(number, || send(&self.device, &message));
    }
}

/// The abilities that the kernel offers and this server has.
fn agreed(asked: &InitIn) -> InitOut {
    let wanted = init::ASYNC_READ
        | init::POSIX_LOCKS
        | init::ATOMIC_O_TRUNC
        | init::BIG_WRITES
        | init::FLOCK_LOCKS
        | init::AUTO_INVAL_DATA
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::HANDLE_KILLPRIV_V2
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    let offered = u64::from(asked.flags) | u64::from(asked.flags2) << 32;
    let flags = offered & wanted;
    InitOut {
        major: abi::VERSION.0,
        minor: abi::VERSION.1.min(asked.minor),
        max_readahead: asked.max_readahead,
        flags: flags as u32,
        max_background: 64,
        congestion_threshold: 48,
        max_write: DATA_MAX as u32,
        time_gran: 1,
        max_pages: (DATA_MAX / 4096) as u16,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    }
}

/// Reads a request; `None`: the mount is gone.
fn read(device: &OwnedFd, bytes: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match rustix::io::read(device, &mut *bytes) {
            Ok(length) => return Ok(Some(length)),
            // The second: it was taken away with a request on its way.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            // A request that was taken back while it was being read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends a message. An error means that the request was taken back or the mount is gone: then no
/// program waits for the answer.
pub fn send(device: &OwnedFd, message: &[u8]) {
    let _ = rustix::io::write(device.as_fd(), message);
}

/// One thread's own.
pub struct Worker {
    /// What all share.
    pub session: Arc<Session>,
    /// Answers go where the request came from.
    pub device: Arc<OwnedFd>,
    number: usize,
}

impl Worker {
    fn run(&self) {
        let mut answer = Answer::new();
        let mut bytes = vec![0; REQUEST_MAX];
        let pool = &self.session.pool;
        while pool.wait(self.number) {
            // A thread that cannot read any more may be the only reader: all threads close the
            // device, so the kernel lets no program wait for an answer that does not come.
            let Ok(Some(length)) = read(&self.device, &mut bytes) else {
                pool.end();
                break;
            };
            let Ok(mut request) = Request::parse(&bytes[..length]) else { continue };
            if pool.begin(self.number) {
                self.session.wake_watcher();
            }
            let unique = request.header.unique;
            answer.clear();
            let served =
                catch_unwind(AssertUnwindSafe(|| self.dispatch(&mut request, &mut answer)));
            match served.unwrap_or(Err(Errno::IO)) {
                Ok(false) => {}
                Ok(true) => match answer.written {
                    Some(number) => {
                        let message = answer.message(unique, Ok(()));
                        self.session.invalidations.answer(number, &self.device, message);
                    }
                    None => send(&self.device, answer.message(unique, Ok(()))),
                },
                Err(errno) => {
                    let errno = pmem::or_no_memory(errno);
                    send(&self.device, answer.message(unique, Err(errno)));
                }
            }
            pool.finish(self.number);
        }
    }
}
