//! This process's attachment to the volume, or to several, with what a kernel keeps for a process:
//! the working directory, the umask, the identity.
//!
//! Locks, in this order: `structure` (descriptor slots and mappings change only under it), then
//! `cwd`. Neither is held while the engine may wait for another process, except in `fork`, which
//! takes both so that the child gets them whole.

use std::ffi::CString;
use std::fmt::Write as _;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use os::InternalFd;
use rustix::fs::Mode;
use vfs::cred::Cred;
use vfs::walk::{Tree, Walk};
use vfs::{Desc, Errno, FileRef, FileSystemExt, Node, User};

use crate::entry::attachment::{self, Engine, Late};
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::hooks;
use crate::entry::lock::{Guard, Lock};
use crate::entry::maptable::{Mappings, any};
use crate::entry::report;

/// Where relative paths start.
pub struct Cwd {
    /// The directory on the volume; `None`: the kernel's working directory.
    pub node: Option<Node>,
    /// Its absolute path when it was entered.
    pub path: Vec<u8>,
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

/// A volume, and how this process sees it.
pub struct VolumeView {
    /// Where it appears.
    pub prefix: Vec<u8>,
    /// Its file, as the program was told.
    pub source: Vec<u8>,
    /// What is known of it once it is attached, by this process or its parent.
    pub seen: Late<Seen>,
}

/// What is known of a volume that is attached.
pub struct Seen {
    /// Its tree, and where that appears.
    pub tree: Tree,
    /// The anchor directory, at a high number.
    pub anchor: Arc<InternalFd>,
    /// `st_dev`.
    pub device: u64,
    /// The prefix is a mount of the volume.
    pub mounted: bool,
    /// What other libraries of the process are told.
    pub texts: Texts,
}

/// What other libraries of the process are told of a volume (`vfs::preloaded`).
pub struct Texts {
    /// Where it appears.
    pub prefix: CString,
    /// The class of its memory.
    pub class: CString,
    /// Why it has that.
    pub reason: CString,
    /// A call that has returned is durable.
    pub durable: bool,
    /// A write is atomic.
    pub atomic: bool,
    /// Device and inode number of its file.
    pub file: (u64, u64),
}

/// What the lists of mounts tell of a volume that the kernel does not list.
pub struct Listed {
    /// Its file.
    pub source: Vec<u8>,
    /// Where it appears.
    pub prefix: Vec<u8>,
    /// `st_dev`.
    pub device: u64,
    /// Nothing on it can be changed.
    pub read_only: bool,
}

impl Deref for VolumeView {
    type Target = Seen;

    /// Attaches it, if nobody has.
    #[inline]
    fn deref(&self) -> &Seen {
        self.seen.get().unwrap_or_else(|| self.attach())
    }
}

impl Deref for Seen {
    type Target = Tree;

    #[inline]
    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl VolumeView {
    /// One that is not attached yet.
    pub fn new(source: Vec<u8>, prefix: Vec<u8>) -> Self {
        Self { prefix, source, seen: Late::new() }
    }

    #[cold]
    fn attach(&self) -> &'static Seen {
        if let Some(process) = attachment::known() {
            process.fs.attach();
        }
        self.seen.get().unwrap_or_else(|| std::process::abort())
    }
}

impl Seen {
    /// What is seen of the file system of `root`. `mount`: the device number of the mount that the
    /// prefix is.
    pub fn new(
        fs: &dyn vfs::Engine,
        prefix: Vec<u8>,
        anchor: Arc<InternalFd>,
        mount: Option<u64>,
        texts: Texts,
    ) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&anchor)?;
        if stat.st_mode & 0o777 != volume::HANDING_MODE {
            // An earlier build may have made it with another mode. Another user's is changed by its
            // owner.
            let _ = rustix::fs::fchmod(&anchor, Mode::from_raw_mode(volume::HANDING_MODE));
        }
        let device = mount.map_or_else(|| fs.statistics().map(|stat| stat.device), Ok)?;
        let tree = Tree { root: fs.root(), prefix };
        Ok(Self { tree, anchor, device, mounted: mount.is_some(), texts })
    }
}

/// The one attachment of this process.
pub struct Process {
    /// The engine.
    pub fs: Engine,
    /// The volume: the first of several.
    first: VolumeView,
    /// The others; the engine is [`vfs::composite::Several`] then.
    others: Vec<VolumeView>,
    /// The descriptor numbers that the program must not touch.
    internal: Late<Vec<AtomicI32>>,
    /// The variables that a new image needs, as they stand in the environment: `NAME=value`.
    environment: Vec<Vec<u8>>,
    /// Those of volumes that only the new image sees.
    shown: Late<Vec<Vec<u8>>>,
    /// This library's file.
    pub library: Vec<u8>,
    /// The file on the volume that this image is executed from.
    pub program: Late<Node>,
    /// Its path then, if that is a text.
    pub program_path: Late<String>,
    /// File that the report goes to.
    pub report: Option<Vec<u8>>,
    /// Guards changes of the descriptor table; holds the mappings.
    pub structure: Lock<Mappings>,
    /// The working directory.
    pub cwd: Lock<Arc<Cwd>>,
    cwd_node: SharedNode,
    /// The memory node + 1 that the image before this one was at home on; 0: it did not say.
    pub home: AtomicU32,
    /// The umask: the kernel tells it only by changing it.
    pub umask: AtomicU32,
    /// This process has set a record lock on the volume since it exists.
    pub record_locks: AtomicBool,
    /// One more number of that kind, for a while; -1: none.
    spare: AtomicI32,
    cred: AtomicPtr<Cred>,
}

impl Process {
    /// One that has attached nothing yet. `views`: the volumes, in the order of the engine's
    /// members; `library`: this library's file; `cred`: what user the process is.
    pub fn new(
        (first, others): (VolumeView, Vec<VolumeView>),
        library: Vec<u8>,
        environment: Vec<Vec<u8>>,
        report: Option<Vec<u8>>,
        cred: &'static Cred,
    ) -> Self {
        let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::umask(umask);
        let path = rustix::process::getcwd(Vec::new())
            .map_or_else(|_| Vec::new(), std::ffi::CString::into_bytes);
        Self {
            fs: Engine::new(),
            first,
            others,
            internal: Late::new(),
            environment,
            shown: Late::new(),
            library,
            program: Late::new(),
            program_path: Late::new(),
            report,
            structure: Lock::new(Mappings::default()),
            cwd: Lock::new(Arc::new(Cwd { node: None, path })),
            cwd_node: SharedNode::default(),
            home: AtomicU32::new(0),
            umask: AtomicU32::new(umask.as_raw_mode()),
            record_locks: AtomicBool::new(false),
            spare: AtomicI32::new(-1),
            cred: AtomicPtr::new(std::ptr::from_ref(cred).cast_mut()),
        }
    }

    /// Its volumes are attached: the engine, what is seen of each volume, and the engine's own
    /// descriptors.
    pub fn attached(&self, fs: Arc<dyn vfs::Engine>, seen: Vec<Seen>, engine: &[i32]) {
        let anchors = seen.iter().map(|seen| seen.anchor.as_raw_fd());
        let internal = anchors.chain(engine.iter().copied()).map(AtomicI32::new).collect();
        self.internal.set(internal);
        for (view, seen) in self.volumes().zip(seen) {
            view.seen.set(seen);
        }
        // SAFETY: what stands behind this count of an `Arc` is never given back: the attachment
        // lasts as long as the process.
        self.fs.attached(unsafe { &*Arc::into_raw(fs) });
    }

    fn internal(&self) -> &[AtomicI32] {
        self.internal.get().map_or(&[], Vec::as_slice)
    }

    /// The variables that a new image needs.
    pub fn environment(&self) -> Vec<Vec<u8>> {
        let shown = self.shown.get().into_iter().flatten();
        self.environment.iter().chain(shown).cloned().collect()
    }

    /// Adds a variable for the new image.
    pub fn show(&self, variable: &[u8]) {
        // One at a time. What was shown before stays: a child may be reading it.
        let _lock = self.lock();
        let shown = self.shown.get().into_iter().flatten().cloned();
        self.shown.set(shown.chain([variable.to_vec()]).collect());
    }

    /// The volume that the program was given first, if not alone.
    #[inline]
    pub fn first(&self) -> &VolumeView {
        &self.first
    }

    /// All volumes, in the order of the engine's members.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeView> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Those beside the first.
    #[inline]
    pub fn others(&self) -> &[VolumeView] {
        &self.others
    }

    /// The volume that a node is on, or that what is open is on.
    #[inline]
    pub fn volume_of(&self, of: impl Into<FileRef>) -> &VolumeView {
        let number = of.into().member();
        if number == 0 { &self.first } else { self.other(number) }
    }

    #[cold]
    fn other(&self, number: usize) -> &VolumeView {
        self.others.get(number - 1).unwrap_or(&self.first)
    }

    /// The structure lock.
    pub fn lock(&self) -> Guard<'_, Mappings> {
        self.structure.lock()
    }

    /// The same, if no other thread has it.
    pub fn try_lock(&self) -> Option<Guard<'_, Mappings>> {
        self.structure.try_lock()
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

    /// The surroundings of a walk from a node.
    #[inline]
    pub fn walk(&self, from: Node) -> Walk<'_> {
        self.walk_in(self.volume_of(from))
    }

    /// The same on a volume.
    #[inline]
    pub fn walk_in<'p>(&'p self, seen: &'p VolumeView) -> Walk<'p> {
        Walk { fs: &*self.fs, tree: &seen.tree, cred: self.cred() }
    }

    /// The checked operations, on the volume of a node.
    #[inline]
    pub fn user(&self, on: Node) -> User<'_> {
        User { walk: self.walk(on), umask: self.umask.load(Ordering::Relaxed) }
    }

    /// Whether a number is one of our own, which the program must not touch.
    pub fn is_internal(&self, fd: i32) -> bool {
        fdtable::is_hidden(fd)
            || fd >= 0 && self.spare.load(Ordering::Relaxed) == fd
            || flac::descriptors::is_open(fd)
            || os::is_internal_number(fd)
    }

    /// All of those.
    pub fn internal_numbers(&self) -> impl Iterator<Item = i32> {
        let spare = self.spare.load(Ordering::Relaxed);
        let internal = self.internal().iter().map(|fd| fd.load(Ordering::Relaxed));
        internal
            .chain((spare >= 0).then_some(spare))
            .chain(flac::descriptors::open())
            .chain(os::internal_numbers())
    }

    /// The program wants an internal number: moves ours away and lets `replace` put the program's
    /// there. Structure lock held: no thread maps through the old number meanwhile.
    pub fn make_way(
        &self,
        number: i32,
        replace: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let anchors = self.volumes().map(|seen| &*seen.anchor);
        let mut own = anchors.chain(fdtable::placeholder());
        let new = match own.find(|own| own.as_raw_fd() == number) {
            Some(own) => {
                own.vacate()?;
                replace()?;
                own.as_raw_fd()
            }
            None => self.fs.vacate(number, replace)?,
        };
        fdtable::hide(new);
        fdtable::show(number);
        for internal in self.internal() {
            // The structure lock keeps several changes apart.
            if internal.load(Ordering::Relaxed) == number {
                internal.store(new, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether there is such a one.
    pub fn has_spare(&self) -> bool {
        self.spare.load(Ordering::Relaxed) >= 0
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
            Ok(fd) => Ok(fd),
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

    /// Closes a number of ours. `false`: it is not ours; it is left to the kernel, and that is
    /// announced.
    pub fn close(&self, fd: i32) -> Result<bool, Errno> {
        let maps = self.lock();
        let Some((desc, last)) = fdtable::close(fd) else {
            fdtable::closed_by_kernel(fd)?;
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
        cached_fd::range_taken_back(first, last);
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
            let mut used = String::new();
            for (count, what) in ddmap::Pagers::take_counts() {
                // Writing to a string cannot fail.
                let _ = writeln!(used, "{count} {what} (touch) resource");
            }
            let all: Vec<&[u8]> = self.volumes().map(|seen| &*seen.prefix).collect();
            report::write(path, if all.len() > 1 { &all } else { &[] }, &used);
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
