//! This process's attachment to the volume, with what a kernel keeps for a process: the working
//! directory, the umask, the identity.
//!
//! Locks, in this order: `structure` (descriptor slots and mappings change only under it), then
//! `cwd`. Neither is held while the engine may wait for another process, except in `fork`, which
//! takes both so that the child gets them whole.

use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use pmem::InternalFd;
use rustix::fs::Mode;
use vfs::cred::Cred;
use vfs::walk::Walk;
use vfs::{Desc, Errno, Node, User};

use crate::entry::cached;
use crate::entry::fdtable;
use crate::entry::hooks;
use crate::entry::lock::{Guard, Lock};
use crate::entry::maptable::{Mappings, any};
use crate::entry::report;
use crate::entry::thread::here;

/// Where relative paths start.
pub struct Cwd {
    /// The directory on the volume; `None`: the kernel's working directory.
    pub node: Option<Node>,
    /// Its absolute path when it was entered.
    pub path: Vec<u8>,
}

/// The engine. A call that reaches for it opens its memory to the calling thread, until that thread
/// leaves (see [`crate::entry::thread`]).
pub struct Engine(&'static dyn vfs::Engine);

impl Deref for Engine {
    type Target = dyn vfs::Engine;

    #[inline]
    fn deref(&self) -> &Self::Target {
        here().open();
        self.0
    }
}

/// A node that is read often and changed seldom, under a lock. The version is odd while it changes.
#[derive(Default)]
struct SharedNode {
    version: AtomicU64,
    /// 0: none.
    ino: AtomicU64,
    generation: AtomicU32,
}

impl SharedNode {
    #[inline]
    fn get(&self) -> Option<Node> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let ino = self.ino.load(Ordering::Relaxed);
            let generation = self.generation.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if version & 1 == 0 && self.version.load(Ordering::Relaxed) == version {
                return (ino != 0).then_some(Node { ino, generation });
            }
            std::hint::spin_loop();
        }
    }

    /// The caller holds the lock.
    fn set(&self, node: Option<Node>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.ino.store(node.map_or(0, |node| node.ino), Ordering::Release);
        self.generation.store(node.map_or(0, |node| node.generation), Ordering::Release);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// The one attachment of this process.
pub struct Process {
    /// The engine.
    pub fs: Engine,
    /// The volume's root.
    pub root: Node,
    /// Where the volume's root appears: absolute, normal, without a final slash.
    pub prefix: Vec<u8>,
    /// The anchor directory, at a high number.
    pub anchor: Arc<InternalFd>,
    /// Its device and inode number.
    pub anchor_identity: (u64, u64),
    /// The descriptor numbers that the program must not touch.
    internal: Vec<AtomicI32>,
    /// `st_dev`.
    pub device: u64,
    /// The prefix is a mount of the volume.
    pub mounted: bool,
    /// The variables that a new image needs, as they stand in the environment: `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// This library's file.
    pub library: Vec<u8>,
    /// The file on the volume that this image is executed from.
    pub program: Option<Node>,
    /// File that the report goes to.
    pub report: Option<Vec<u8>>,
    /// Guards changes of the descriptor table; holds the mappings.
    pub structure: Lock<Mappings>,
    /// The working directory.
    pub cwd: Lock<Arc<Cwd>>,
    cwd_node: SharedNode,
    /// The umask: the kernel tells it only by changing it.
    pub umask: AtomicU32,
    /// This process has set a record lock on the volume since it exists.
    pub record_locks: AtomicBool,
    /// One more number of that kind, for a while; -1: none.
    spare: AtomicI32,
    cred: AtomicPtr<Cred>,
}

impl Process {
    /// Puts the parts together. `engine`: the engine's own descriptors; `cred`: what user the
    /// process is.
    pub fn new(
        fs: Arc<dyn vfs::Engine>,
        prefix: Vec<u8>,
        anchor: Arc<InternalFd>,
        engine: &[i32],
        environment: Vec<Vec<u8>>,
        report: Option<Vec<u8>>,
        cred: &'static Cred,
    ) -> Result<Self, Errno> {
        let device = fs.stat_fs()?.device;
        let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::umask(umask);
        let path = rustix::process::getcwd(Vec::new())
            .map_or_else(|_| Vec::new(), std::ffi::CString::into_bytes);
        let stat = rustix::fs::fstat(&anchor)?;
        if stat.st_mode & 0o777 != volume::HANDING_MODE {
            // An earlier build may have made it with another mode. Another user's is changed by its
            // owner.
            let _ = rustix::fs::fchmod(&anchor, Mode::from_raw_mode(volume::HANDING_MODE));
        }
        let internal = [&[anchor.as_raw_fd()], engine].concat();
        let internal = internal.into_iter().map(AtomicI32::new).collect();
        // SAFETY: what stands behind this count of an `Arc` is never given back: the attachment
        // lasts as long as the process.
        let fs: &'static dyn vfs::Engine = unsafe { &*Arc::into_raw(fs) };
        Ok(Self {
            fs: Engine(fs),
            root: fs.root(),
            prefix,
            anchor,
            anchor_identity: (stat.st_dev, stat.st_ino),
            internal,
            device,
            mounted: false,
            environment,
            library: Vec::new(),
            program: None,
            report,
            structure: Lock::new(Mappings::default()),
            cwd: Lock::new(Arc::new(Cwd { node: None, path })),
            cwd_node: SharedNode::default(),
            umask: AtomicU32::new(umask.as_raw_mode()),
            record_locks: AtomicBool::new(false),
            spare: AtomicI32::new(-1),
            cred: AtomicPtr::new(std::ptr::from_ref(cred).cast_mut()),
        })
    }

    /// The structure lock.
    pub fn lock(&self) -> Guard<'_, Mappings> {
        self.structure.lock()
    }

    /// Where relative paths start now.
    pub fn cwd(&self) -> Arc<Cwd> {
        Arc::clone(&self.cwd.lock())
    }

    /// The directory of the volume where relative paths start, if it is one: without a lock, and
    /// without a store that other threads would wait for.
    #[inline]
    pub fn cwd_node(&self) -> Option<Node> {
        self.cwd_node.get()
    }

    /// Changes where relative paths start.
    pub fn set_cwd(&self, cwd: Cwd) {
        let mut held = self.cwd.lock();
        self.cwd_node.set(cwd.node);
        *held = Arc::new(cwd);
    }

    /// The calling thread's identity for the volume's permissions.
    pub fn cred(&self) -> &'static Cred {
        // SAFETY: never null, and all that is published lives for ever.
        unsafe { &*self.cred.load(Ordering::Acquire) }
    }

    /// The identity is another one from here on.
    pub fn set_cred(&self, cred: &'static Cred) {
        self.cred.store(std::ptr::from_ref(cred).cast_mut(), Ordering::Release);
    }

    /// The walk's surroundings.
    pub fn walk(&self) -> Walk<'_> {
        Walk { fs: &*self.fs, cred: self.cred(), prefix: &self.prefix }
    }

    /// The checked operations.
    pub fn user(&self) -> User<'_> {
        User { walk: self.walk(), umask: self.umask.load(Ordering::Relaxed) }
    }

    /// Whether a number is one of our own, which the program must not touch.
    pub fn is_internal(&self, fd: i32) -> bool {
        fdtable::is_hidden(fd) || fd >= 0 && self.spare.load(Ordering::Relaxed) == fd
    }

    /// All of those.
    pub fn internal_numbers(&self) -> impl Iterator<Item = i32> {
        let spare = self.spare.load(Ordering::Relaxed);
        let internal = self.internal.iter().map(|fd| fd.load(Ordering::Relaxed));
        internal.chain((spare >= 0).then_some(spare))
    }

    /// The program wants an internal number: moves ours away and lets `replace` put the program's
    /// there. Structure lock held: no thread maps through the old number meanwhile.
    pub fn make_way(
        &self,
        number: i32,
        replace: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let new = if number == self.anchor.as_raw_fd() {
            self.anchor.vacate()?;
            fdtable::set_placeholder(self.anchor.as_raw_fd());
            replace()?;
            self.anchor.as_raw_fd()
        } else {
            self.fs.vacate(number, replace)?
        };
        fdtable::hide(new);
        for internal in &self.internal {
            // The structure lock keeps several changes apart.
            if internal.load(Ordering::Relaxed) == number {
                internal.store(new, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Protects one number more from the program; -1: no longer.
    pub fn set_spare(&self, fd: i32) {
        self.spare.store(fd, Ordering::Relaxed);
    }

    /// Gives `desc` the lowest free number from `min` on; drops it if there is none.
    pub fn install(&self, desc: Desc, min: i32, cloexec: bool) -> Result<i32, Errno> {
        let lock = self.lock();
        let installed = fdtable::install(desc, min, cloexec);
        drop(lock);
        match installed {
            Ok(fd) => {
                hooks::number_taken(fd);
                Ok(fd)
            }
            Err(errno) => {
                self.fs.close(desc)?;
                Err(errno)
            }
        }
    }

    /// Gives `desc` a number that was reserved for it.
    pub fn install_at(&self, desc: Desc, fd: i32) {
        let lock = self.lock();
        fdtable::set_reserved(fd, desc);
        drop(lock);
        hooks::number_taken(fd);
    }

    /// Takes the lowest free number, which stands for nothing yet.
    pub fn reserve(&self, cloexec: bool) -> Result<i32, Errno> {
        let _lock = self.lock();
        fdtable::reserve(0, cloexec)
    }

    /// Gives a reserved number back.
    pub fn unreserve(&self, fd: i32) {
        let _lock = self.lock();
        fdtable::release(fd);
    }

    /// Closes a number of ours. `false`: it is not ours.
    pub fn close(&self, fd: i32) -> Result<bool, Errno> {
        self.close_or(fd, || {})
    }

    /// The same; `not_ours` is called with the structure lock held.
    #[inline]
    pub fn close_or(&self, fd: i32, not_ours: impl FnOnce()) -> Result<bool, Errno> {
        let maps = self.lock();
        let Some((desc, last)) = fdtable::close(fd) else {
            fdtable::closed_by_kernel(fd)?;
            not_ours();
            return Ok(false);
        };
        let drop_now = last && !maps.holds(desc);
        drop(maps);
        self.forget(desc, drop_now)?;
        Ok(true)
    }

    /// Takes the numbers of ours in this range out of the table: the kernel will close them. Gives
    /// their descriptions, and whether each was the last hold, to be forgotten then.
    pub fn clear(&self, first: u32, last: u32) -> Vec<(Desc, bool)> {
        let maps = self.lock();
        cached::range_taken_back(first, last);
        let ours: Vec<i32> = fdtable::all().map(|(fd, _)| fd).collect();
        let ours = ours.into_iter().filter(|&fd| (first..=last).contains(&fd.cast_unsigned()));
        let cleared = ours.filter_map(fdtable::clear);
        cleared.map(|(desc, last)| (desc, last && !maps.holds(desc))).collect()
    }

    /// What any close does: record locks of the process on that file go, and with the last number
    /// (and mapping) the hold on the description.
    pub fn forget(&self, desc: Desc, last: bool) -> Result<(), Errno> {
        if self.record_locks.load(Ordering::Relaxed) {
            self.fs.release_locks(desc.into())?;
        }
        if last { self.fs.close(desc) } else { Ok(()) }
    }

    /// The file's size has changed: mappings of this process lose the pages beyond the end.
    pub fn resized(&self, node: Node) -> Result<(), Errno> {
        if any() { (hooks::get().resized)(self, node) } else { Ok(()) }
    }

    /// As [`Process::resized`], of the file behind `desc`.
    pub fn resized_by(&self, desc: Desc) -> Result<(), Errno> {
        self.resized(self.fs.describe(desc)?.0)
    }

    /// Appends what was not served to the report's file, if one is wanted, and starts anew.
    pub fn write_report(&self) {
        if let Some(path) = &self.report {
            report::write(path);
            report::reset();
        }
    }

    /// Every description that this process holds, once each. Structure lock held.
    pub fn held(maps: &Mappings) -> Vec<Desc> {
        let numbers = fdtable::all().map(|(_, desc)| desc);
        let mut held: Vec<Desc> = numbers.chain(maps.descriptions()).collect();
        held.sort_unstable();
        held.dedup();
        held
    }
}
