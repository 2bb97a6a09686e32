//! A volume that this library attaches itself, once for all places of the process.
//!
//! It is left when the last place, file and log of it is closed, and at the process's exit.
//!
//! A forked child has nothing of it but views: the region's description, which says by a lock that
//! its process lives, would live on in the child, by its descriptor and by each mapping of it. So
//! the child closes that descriptor, the region is not mapped in it, and views are mapped by
//! another description.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use pmem::{Class, UserIn, UserOut};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use vfs::cred::Cred;
use vfs::walk::{Found, Place as Walked, Tree, Walk};
use vfs::{
    Attr, Desc, FileSystem, Fill, IoOffset, Kind, LockKind, LockOwner, Locks, Mapped, Maps, Node,
    Open, OpenFlags, Opened, RecordLock, Synced, User, Whence, mounts,
};
use volume::{AttachOptions, ErrorKind, Volume};

use super::{Answer, Names, OpenFile, Promise, Range, Seen, is_unlike, preload_engine};
use crate::opener::Opener;
use crate::{Error, Result};

const PAGE_BYTES: usize = 4096;
/// The longest path, with its end.
const PATH_BYTES: usize = 4096;

/// The directory of a volume that `path` leads to: the root if it is a volume's file or device, a
/// directory of it where it is mounted for writing. `None`: it leads to neither.
pub fn find(path: &Path, page: bool) -> Result<Option<Arc<dyn Names>>> {
    let stat =
        rustix::fs::stat(path).map_err(|errno| Error::refused("see what the place is", errno))?;
    let (volume, inside, mount) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let found = mounted(path)?.filter(|(mount, _)| !mount.read_only);
            let Some((mount, inside)) = found else { return Ok(None) };
            let shown =
                mount.file().map(|file| preload_engine::of_file(file, &inside)).transpose()?;
            if let Some(shown) = shown.flatten() {
                return Ok(Some(shown));
            }
            (mount.volume.clone(), inside, Some(mount))
        }
        FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice => {
            (path.to_owned(), PathBuf::new(), None)
        }
        _ => return Ok(None),
    };
    let held = Held::of(&volume, page)?;
    if let Some(serves) = mount.and_then(|mount| mount.serves())
        && serves != held.volume.volume_identity()
    {
        let why = "the mount serves another volume than the one at its path by now; unmount it and \
                   mount it anew";
        return Err(Error::System(why.to_owned(), Errno::STALE));
    }
    let base = held.directory(&inside).map_err(|errno| Error::refused("open the place", errno))?;
    Ok(Some(Arc::new(Attached { held, base })))
}

/// The root of a volume that the caller has attached, and leaves. It cannot be mapped.
pub fn of_volume(volume: Arc<Volume>) -> Result<Arc<dyn Names>> {
    let held = Held::over(volume, None, (0, 0))?;
    let base = held.volume.root();
    Ok(Arc::new(Attached { held: Arc::new(held), base }))
}

/// The mount of a volume that a directory lies in, and its path there.
pub fn mounted(path: &Path) -> Result<Option<(mounts::Mount, PathBuf)>> {
    let stat =
        rustix::fs::stat(path).map_err(|errno| Error::refused("see what the place is", errno))?;
    let device = stat.st_dev;
    let system = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::refused("find the place's mount", errno)
    };
    let all = mounts::list().map_err(system)?;
    if !all.iter().any(|mount| mount.device == device) {
        return Ok(None);
    }
    let path = std::fs::canonicalize(path).map_err(system)?;
    let mount = mounts::around(&all, &path).filter(|mount| mount.device == device);
    Ok(mount.and_then(|mount| {
        let inside = path.strip_prefix(&mount.at).ok()?.to_owned();
        Some((mount, inside))
    }))
}

/// An attachment of this process's.
struct Held {
    volume: Arc<Volume>,
    /// A description of the region that has no locks; `None`: it was attached by another.
    views: Option<OwnedFd>,
    opener: Opener,
    tree: Tree,
    /// A user that no permission binds.
    unbound: Cred,
    promise: Promise,
    /// Device and inode number of its file.
    file: (u64, u64),
}

/// All of them: each once.
static HELD: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

impl Held {
    /// The attachment of the volume at `path`, made if there is none.
    fn of(path: &Path, page: bool) -> Result<Arc<Self>> {
        let mut all = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|held| held.strong_count() > 0);
        let stat = rustix::fs::stat(path)
            .map_err(|errno| Error::refused("find the volume's file", errno))?;
        let file = (stat.st_dev, stat.st_ino);
        let mut there = all.iter().filter_map(Weak::upgrade);
        // A child's own attachment is another than its parent's.
        if let Some(held) = there.find(|held| held.file == file && held.opener.is_here()) {
            return Ok(held);
        }
        let held = Arc::new(Self::attach(path, file, page)?);
        all.push(Arc::downgrade(&held));
        Ok(held)
    }

    fn attach(path: &Path, file: (u64, u64), page: bool) -> Result<Self> {
        at_fork_and_exit();
        let options = AttachOptions::default();
        let attached = volume::attach_permitted(path, &options).or_else(|error| {
            if error.kind() != ErrorKind::OrdinaryDisk || !page {
                return Err(error);
            }
            let class = Some(Class::Page);
            volume::attach_permitted(path, &AttachOptions { class, ..options.clone() })
        });
        let volume = attached.map_err(|error| match error.kind() {
            ErrorKind::NotAVolume => not_a_volume(),
            // It is executed, say.
            ErrorKind::Region if is_no_volume(path) => not_a_volume(),
            ErrorKind::OrdinaryDisk => {
                let why = "the volume lies on an ordinary disk, where each wait is for the medium; \
                           ask for that by name (`page`, `SOLERA_PAGE`), or take another place";
                Error::System(why.to_owned(), Errno::OPNOTSUPP)
            }
            _ => Error::System(error.to_string(), error.errno()),
        })?;
        let region = volume.region_descriptor(volume.root().into()).0;
        note_region(region);
        let views = volume.keep_from_children().and_then(|()| again_open(region));
        let views = views.map_err(|errno| Error::refused("use the volume's memory", errno))?;
        Self::over(volume, Some(views), file)
    }

    fn over(volume: Arc<Volume>, views: Option<OwnedFd>, file: (u64, u64)) -> Result<Self> {
        let opener =
            Opener::new().map_err(|errno| Error::refused("get memory for the volume", errno))?;
        volume.on_privileged_change(before_write);
        let tree = Tree { root: volume.root(), prefix: Vec::new() };
        let (class, reason) = volume.class();
        let (reason, policy) = (reason.to_owned(), volume.policy());
        let promise = Promise { class, reason, policy, durable: true, atomic: true };
        let unbound = Cred::root();
        Ok(Self { volume, views, opener, tree, unbound, promise, file })
    }

    /// Acts as the calling thread's user, and makes nothing.
    fn act<T>(&self, work: impl FnOnce(User<'_>) -> Answer<T>) -> Answer<T> {
        self.make(0, work)
    }

    /// Acts so, and makes files with permissions that `umask` takes from.
    fn make<T>(&self, umask: u32, work: impl FnOnce(User<'_>) -> Answer<T>) -> Answer<T> {
        if !self.opener.is_here() {
            return Err(Errno::STALE);
        }
        let cred = Cred::of_this_thread();
        let walk = Walk { fs: &*self.volume, tree: &self.tree, cred: &cred };
        work(User { walk, umask })
    }

    /// The directory at a path from the root.
    fn directory(&self, inside: &Path) -> Answer<Node> {
        self.act(|user| {
            let attr = found(&user, self.volume.root(), inside, true)?.existing()?;
            if attr.kind == Kind::Directory { Ok(attr.node) } else { Err(Errno::NOTDIR) }
        })
    }

    fn leave(&self) {
        if self.opener.is_here() && self.views.is_some() {
            forget_region(self.volume.region_descriptor(self.volume.root().into()).0);
            // Where that fails, the next one to attach cleans up.
            let _ = self.volume.leave();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Another description of what a descriptor is open for, for as much as it may be mapped for.
fn again_open(fd: c_int) -> Answer<OwnedFd> {
    let link = format!("/proc/self/fd/{fd}");
    let open = |flags| rustix::fs::open(&link, flags | OFlags::CLOEXEC, Mode::empty());
    match open(OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => open(OFlags::RDONLY),
        opened => opened,
    }
}

fn not_a_volume() -> Error {
    Error::System("the place is neither a directory nor a volume".to_owned(), Errno::NOTDIR)
}

fn is_no_volume(path: &Path) -> bool {
    volume::info(path).is_err_and(|error| error.kind() == ErrorKind::NotAVolume)
}

/// What a path leads to from a directory.
fn found<'p>(user: &User<'_>, from: Node, path: &'p Path, follow: bool) -> Answer<Found<'p>> {
    let path = path.as_os_str().as_bytes();
    let path = if path.is_empty() { b".".as_slice() } else { path };
    if path.len() >= PATH_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    match user.walk.walk(from, path, follow)? {
        Walked::Inside(found) => Ok(found),
        // Without a prefix nothing lies outside.
        Walked::Outside(_) => Err(Errno::XDEV),
    }
}

/// The set-id bits and the capabilities of a file go when its contents are changed.
fn before_write(fs: &dyn FileSystem, node: Node) -> Answer<()> {
    let cred = Cred::of_this_thread();
    let tree = Tree { root: fs.root(), prefix: Vec::new() };
    User { walk: Walk { fs, tree: &tree, cred: &cred }, umask: 0 }.before_write(node)
}

/// The process's umask, which only the kernel knows: asking for it by `umask` changes it for other
/// threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

// ---- fork and exit

/// The descriptors of the attached regions; 0: none.
static REGIONS: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

fn note_region(fd: c_int) {
    exchange_region(0, fd);
}

fn forget_region(fd: c_int) {
    exchange_region(fd, 0);
}

fn exchange_region(from: c_int, to: c_int) {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    // More volumes than that are left by a child's end, or by its exec.
    let _ = REGIONS.iter().any(|one| one.compare_exchange(from, to, order.0, order.1).is_ok());
}

fn at_fork_and_exit() {
    unsafe extern "C" {
        fn pthread_atfork(
            before: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions that stay: the library is never unloaded. Without them a child holds on
        // to the parent's region until it executes something, and an exit is a death, which the
        // next one to attach cleans up.
        let _ = unsafe { (pthread_atfork(None, None, Some(in_child)), libc::atexit(at_exit)) };
    });
}

/// Puts other descriptions in place of the regions', whose locks say that the parent lives. The
/// numbers stay taken: nothing else gets one that a destructor here would close.
extern "C" fn in_child() {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(other) = rustix::fs::open(c"/", flags, Mode::empty()) else { return };
    for region in &REGIONS {
        let fd = region.swap(0, Ordering::Relaxed);
        if fd > 0 {
            let arguments =
                [other.as_raw_fd() as usize, fd as usize, OFlags::CLOEXEC.bits() as usize];
            let [from, to, flags] = arguments;
            // SAFETY: plain numbers; the region's descriptor is this library's own.
            let _ =
                unsafe { os::interrupt::system_call(libc::SYS_dup3, [from, to, flags, 0, 0, 0]) };
        }
    }
}

extern "C" fn at_exit() {
    // A thread that attaches at this moment has it for the rest of the process.
    let Ok(all) = HELD.try_lock() else { return };
    let held: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    for held in held {
        held.leave();
    }
}

// ---- files

/// A directory of an attached volume.
struct Attached {
    held: Arc<Held>,
    base: Node,
}

impl Attached {
    fn open_masked(
        &self,
        path: &Path,
        flags: c_int,
        mode: u32,
        umask: u32,
    ) -> Answer<Arc<EngineFile>> {
        let follow = flags & (libc::O_NOFOLLOW | libc::O_EXCL) == 0;
        let desc = self.held.make(umask, |user| {
            let at = found(&user, self.base, path, follow)?;
            match user.open(&at, flags, mode)? {
                Opened::Here(desc) => Ok(desc),
                Opened::Outside(_) => Err(Errno::XDEV),
            }
        })?;
        Ok(Arc::new(EngineFile { held: Arc::clone(&self.held), desc, appends: Mutex::new(None) }))
    }
}

impl Names for Attached {
    fn promise(&self) -> &Promise {
        &self.held.promise
    }

    fn open(&self, path: &Path, flags: c_int, mode: u32) -> Answer<Arc<dyn OpenFile>> {
        let umask = if flags & libc::O_CREAT == 0 { 0 } else { umask() };
        self.open_masked(path, flags, mode, umask).map(|file| file as _)
    }

    fn open_like(&self, path: &Path, flags: c_int, like: &Seen) -> Answer<Arc<dyn OpenFile>> {
        let file = self.open_masked(path, flags, like.mode & 0o777, 0)?;
        if flags & libc::O_CREAT != 0 && is_unlike(&file.look()?, like) {
            let (node, _) = self.held.volume.describe(file.desc)?;
            let (uid, gid) = like.owner;
            // Only the superuser gives files away.
            let _ = self.held.act(|user| {
                user.change_mode(node, like.mode & 0o777)?;
                user.change_owner(node, Some(uid), Some(gid))
            });
        }
        Ok(file)
    }

    fn shown_at(&self) -> Option<&Path> {
        None
    }

    fn is_here(&self) -> bool {
        self.held.opener.is_here()
    }

    fn look(&self, path: &Path) -> Answer<Seen> {
        if !self.is_here() {
            return Err(Errno::STALE);
        }
        // Who the user is takes five system calls, and SQLite looks for a file several times in a
        // transaction.
        let held = &*self.held;
        let walk = Walk { fs: &*held.volume, tree: &held.tree, cred: &held.unbound };
        Ok(seen(&found(&User { walk, umask: 0 }, self.base, path, true)?.existing()?))
    }

    fn may_write(&self, path: &Path) -> Answer<bool> {
        let volume = &self.held.volume;
        self.held.act(|user| {
            let attr = found(&user, self.base, path, true)?.existing()?;
            match user.may_open(&attr, OpenFlags(libc::O_RDWR)) {
                Ok(()) => Ok(!volume.stat_fs(volume.root().into())?.read_only),
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
                Err(errno) => Err(errno),
            }
        })
    }

    fn read_link(&self, path: &Path) -> Answer<PathBuf> {
        self.held.act(|user| {
            let node = found(&user, self.base, path, false)?.existing()?.node;
            let mut target = vec![0; PATH_BYTES];
            let len = self.held.volume.read_link(node, &mut target)?;
            target.truncate(len);
            Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
        })
    }

    fn link(&self, path: &Path, new: &Path) -> Answer<()> {
        self.held.act(|user| {
            let node = found(&user, self.base, path, false)?.existing()?.node;
            user.link(node, &found(&user, self.base, new, false)?)
        })
    }

    fn unlink(&self, path: &Path) -> Answer<()> {
        self.held.act(|user| user.unlink(&found(&user, self.base, path, false)?))
    }

    fn sync(&self) -> Answer<()> {
        self.held.volume.sync(Synced::All)
    }
}

struct EngineFile {
    held: Arc<Held>,
    desc: Desc,
    /// One more description, whose writes go behind the end.
    appends: Mutex<Option<Desc>>,
}

impl EngineFile {
    fn volume(&self) -> Answer<&Volume> {
        if self.held.opener.is_here() { Ok(&self.held.volume) } else { Err(Errno::STALE) }
    }
}

fn seen(attr: &Attr) -> Seen {
    Seen {
        identity: (attr.node.ino, attr.node.generation.into()),
        is_file: attr.kind == Kind::File,
        size: attr.size,
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
    }
}

/// A lock of `len` bytes from `start` on; 0: of all behind it.
fn range(kind: LockKind, start: u64, len: u64) -> RecordLock {
    let end = if len == 0 { u64::MAX } else { start + len - 1 };
    RecordLock { kind, start, end, pid: 0 }
}

/// Makes a call again that a signal ended.
fn again<T>(mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    loop {
        match call() {
            Err(Errno::INTR | vfs::INTERRUPTED | vfs::BEGIN_ANEW) => {}
            given => return given,
        }
    }
}

impl OpenFile for EngineFile {
    fn promise(&self) -> &Promise {
        &self.held.promise
    }

    fn look(&self) -> Answer<Seen> {
        let mut attr = Attr::NONE;
        self.volume()?.attr(self.desc.into(), &mut attr)?;
        Ok(seen(&attr))
    }

    fn size(&self) -> Answer<Option<u64>> {
        let mut attr = Attr::NONE;
        self.volume()?.attr(self.desc.into(), &mut attr)?;
        match attr.kind {
            Kind::Directory => Err(Errno::ISDIR),
            kind => Ok((kind == Kind::File).then_some(attr.size)),
        }
    }

    fn read(&self, at: u64, to: &UserOut<'_>) -> Answer<usize> {
        let volume = self.volume()?;
        again(|| volume.read(self.desc, &mut [to.slice(0, to.len())], IoOffset::offset(at)))
    }

    fn write(&self, at: u64, parts: &[UserIn<'_>]) -> Answer<usize> {
        let volume = self.volume()?;
        again(|| volume.write(self.desc, parts, IoOffset::offset(at)))
    }

    fn append(&self, from: &UserIn<'_>) -> Answer<(usize, u64)> {
        let volume = self.volume()?;
        let mut appends = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        let desc = if let Some(desc) = *appends {
            desc
        } else {
            let (node, flags) = volume.describe(self.desc)?;
            let flags = OpenFlags(flags.0 | libc::O_APPEND);
            *appends.insert(volume.open(Open::Node(node, Some(Kind::File)), flags, None)?)
        };
        let count = again(|| volume.write(desc, &[from.slice(0, from.len())], IoOffset::POSITION))?;
        Ok((count, volume.seek(desc, 0, Whence::Current)?))
    }

    fn truncate(&self, size: u64) -> Answer<()> {
        let volume = self.volume()?;
        let (node, _) = volume.describe(self.desc)?;
        again(|| volume.truncate(node, size))
    }

    fn allocate(&self, size: u64) -> Answer<()> {
        let volume = self.volume()?;
        again(|| volume.allocate(self.desc, 0, 0, size))
    }

    fn sync(&self) -> Answer<()> {
        let volume = self.volume()?;
        again(|| volume.sync(Synced::File(self.desc)))
    }

    fn lock_range(&self, lock: Range, at: u64, len: u64) -> Answer<()> {
        let kind = if lock == Range::Alone { LockKind::Write } else { LockKind::Read };
        let (owner, lock) = (LockOwner::Description, range(kind, at, len));
        self.volume()?.record_lock(self.desc, owner, &lock, false)
    }

    fn unlock_range(&self, at: u64, len: u64) -> Answer<()> {
        let (owner, lock) = (LockOwner::Description, range(LockKind::Unlock, at, len));
        self.volume()?.record_lock(self.desc, owner, &lock, false)
    }

    fn test_range(&self, at: u64, len: u64) -> Answer<Option<Range>> {
        let (owner, lock) = (LockOwner::Description, range(LockKind::Write, at, len));
        let held = self.volume()?.test_lock(self.desc, owner, &lock)?;
        Ok(held.map(|held| match held.kind {
            LockKind::Read => Range::Shared,
            _ => Range::Alone,
        }))
    }

    unsafe fn map(&self, at: *mut u8, from: u64, len: u64, write: bool) -> Answer<()> {
        let volume = self.volume()?;
        if volume.can_map(self.desc.into()).0 != PAGE_BYTES {
            return Err(Errno::NODEV);
        }
        let (mapped, prot) = if write {
            (Mapped::Write, libc::PROT_READ | libc::PROT_WRITE)
        } else {
            (Mapped::Read, libc::PROT_READ)
        };
        let range = (from, len);
        let pieces = match again(|| volume.map(self.desc, range, mapped, Fill::All)) {
            // Nothing can be filled where nothing can be changed.
            Err(Errno::ROFS) => again(|| volume.map(self.desc, range, mapped, Fill::None))?,
            pieces => pieces?,
        };
        let region = self.held.views.as_ref().ok_or(Errno::NODEV)?.as_raw_fd();
        for piece in pieces {
            let at = at.wrapping_add((piece.file_offset - from) as usize);
            let (flags, fd, place) = match piece.region_offset {
                Some(place) => (libc::MAP_SHARED, region, place as i64),
                None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            };
            let (flags, len) = (flags | libc::MAP_FIXED, piece.length as usize);
            // SAFETY: the caller's promise; a piece lies inside the range.
            let mapped = unsafe { libc::mmap(at.cast(), len, prot, flags, fd, place) };
            if mapped == libc::MAP_FAILED {
                let error = std::io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        Ok(())
    }
}

impl Drop for EngineFile {
    fn drop(&mut self) {
        let Ok(volume) = self.volume() else { return };
        let appends = *self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        for desc in appends.into_iter().chain([self.desc]) {
            // What any close does. Neither fails where the description is there.
            let _ = volume.release_locks(desc.into());
            let _ = volume.close(desc);
        }
    }
}
