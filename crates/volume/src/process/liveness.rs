//! Who is alive: kernel locks on the bytes of a liveness file, a byte a process slot.
//!
//! The file lies in the *anchor directory* beside the volume (`NAME.solera/`; for a device under
//! `/run/solera/UUID/`). It holds no data. A process holds a POSIX lock on its slot's byte, which
//! the kernel drops with the process, whatever ends it, and which neither fork nor dup copies.
//! Rules that follow from what POSIX locks are:
//!
//! - closing *any* descriptor of the file drops all locks of the process: so a process opens it
//!   once ([`FILES`]), and closes it under the registry's lock, when nothing of it is attached;
//! - one's own byte always reads as free: so slots of this process are remembered here, not asked
//!   for;
//! - a second copy of this code in the process (the preload library's in `solera` itself, say) asks
//!   as another owner of locks before it takes a slot for free or its process for dead, and never
//!   closes the file: that would end the first one's locks. A library is refused as a second one
//!   ([`work_beside_another`]), and its descriptor stays open;
//! - threads do not exclude each other: where they must, there is a mutex besides.
//!
//! One byte more ([`ATTACH_BYTE`]) serialises attach and detach. On the region itself lie OFD
//! locks: [`REGION_WRITERS`] is held shared by every attachment (by a first one alone, for a
//! moment), so that no second runtime can come up when the anchor directory was deleted; it is
//! taken before a slot and given back after it. [`REGION_READERS`] is held by private read-only
//! attachments.

use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::PROCESS_SLOTS;
use os::InternalFd;
use robust::bytes::{self, Hold, Kind};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Byte of the liveness file that a process holds while it attaches or detaches.
const ATTACH_BYTE: i64 = 4096;
/// First of the bytes, one a slot, that a recoverer holds beside the slot's byte, and as long: so a
/// slot whose byte is held is told from one whose process is alive.
const RECOVERY_BYTES: i64 = 8192;
/// Byte of the region, far beyond any data, that attachments hold shared.
pub(crate) const REGION_WRITERS: i64 = 1 << 62;
/// Byte of the region that private read-only attachments hold shared.
pub(crate) const REGION_READERS: i64 = REGION_WRITERS + 1;

/// Name of the directory in the anchor directory in which carriers lie (`carriers.rs`), and where a
/// face keeps what the kernel keeps for it.
pub(crate) const HANDING: &str = "open";
/// Who has a descriptor of it may use it, whoever he has become; there is no other way in.
pub const HANDING_MODE: u32 = 0o777;

/// The liveness files this process has open.
static FILES: Mutex<Vec<Arc<LiveFile>>> = Mutex::new(Vec::new());

/// Those that were refused because another copy of this code in this process has them in use.
static REFUSED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// See [`work_beside_another`].
static BESIDE: AtomicBool = AtomicBool::new(false);

/// From here on this copy of the engine attaches volumes, too, that another copy in this process
/// has attached: for a command that ends soon, in a program that has all its files by the other.
pub fn work_beside_another() {
    BESIDE.store(true, Ordering::Relaxed);
}

struct LiveFile {
    fd: InternalFd,
    device: u64,
    ino: u64,
    directory: PathBuf,
    /// Where carriers lie: in the anchor directory, which not every user may enter. A process that
    /// has a descriptor of this part uses it as any user, after `setuid` too.
    handing: PathBuf,
    /// The process to which `own` belongs: a forked child starts with none.
    pid: AtomicU32,
    /// Slots of this process.
    own: [AtomicU64; (PROCESS_SLOTS / 64) as usize],
    /// A descriptor of the anchor directory that somebody lent.
    anchor: OnceLock<Arc<InternalFd>>,
}

/// This process's view of who is alive on a volume.
pub(crate) struct Liveness {
    /// `None`: a private region, which has no other process.
    file: Option<Arc<LiveFile>>,
}

/// Excludes the threads of one process. It holds the process's id: another one's (a forked child
/// sees its parent's) counts as free, so no child waits for a thread that it does not have.
#[derive(Default)]
pub(crate) struct ThreadLock(AtomicU32);

impl ThreadLock {
    /// Waits for the other threads. Its own thread must not hold it.
    pub(crate) fn lock(&self) -> ThreadGuard<'_> {
        let me = own_pid();
        loop {
            let found = self.0.load(Ordering::Relaxed);
            let order = (Ordering::Acquire, Ordering::Relaxed);
            if found != me && self.0.compare_exchange(found, me, order.0, order.1).is_ok() {
                return ThreadGuard(self);
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Ends what a guard that was forgotten began.
    pub(crate) fn unlock(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// While it lives, the other threads of the process wait.
pub(crate) struct ThreadGuard<'a>(&'a ThreadLock);

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Held while a thread attaches or detaches.
static ATTACHING: ThreadLock = ThreadLock(AtomicU32::new(0));
/// Held while a thread takes or gives back bytes of slots together with what the slots say.
static SLOTS: ThreadLock = ThreadLock(AtomicU32::new(0));

/// While it lives, no other process or thread attaches or detaches.
pub(crate) struct AttachGuard {
    file: Option<Arc<LiveFile>>,
    _threads: ThreadGuard<'static>,
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Unlocking a byte of an open file cannot fail.
            let _ = bytes::release(file.fd.as_raw_fd(), Kind::Process, ATTACH_BYTE);
        }
    }
}

/// Keeps the other threads away from slots and their bytes; nothing is waited for under it.
pub(crate) fn lock_slots() -> ThreadGuard<'static> {
    SLOTS.lock()
}

/// Takes a byte for this process alone. `false`: another process holds it.
fn take(fd: RawFd, at: i64) -> Result<bool, Errno> {
    bytes::try_take(fd, Kind::Process, Hold::Alone, at)
}

/// Holds a byte of the region shared, as long as the region's descriptor is open.
pub(crate) fn share_region(fd: RawFd, at: i64) -> Result<(), Errno> {
    bytes::take(fd, Kind::Description, Hold::Shared, at)
}

/// Holds a byte of the region alone, until it is shared or given back. `false`: another open
/// description holds it.
pub(crate) fn own_region(fd: RawFd, at: i64) -> Result<bool, Errno> {
    bytes::try_take(fd, Kind::Description, Hold::Alone, at)
}

/// Whether somebody reads the volume as it lies, and goes on doing so for 5 s: most often it is
/// `solera info`, or somebody like it, which is done in a moment.
pub(crate) fn stays_read(fd: RawFd) -> Result<bool, Errno> {
    for _ in 0..5_000 {
        if !region_held(fd, REGION_READERS)? {
            return Ok(false);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    region_held(fd, REGION_READERS)
}

/// Gives a forked child an open description of the region of its own, under the same number, so
/// that its parent's detach does not unlock the byte for it too. Where that is impossible (no
/// `/proc`, no permission any more) they go on sharing one.
pub(crate) fn separate_region(fd: RawFd, at: i64) {
    let Ok(new) = another_description(fd, at) else { return };
    if share_region(new.as_raw_fd(), at).is_ok() {
        // On failure the shared description stays in place.
        let _ = os::put_in_place(&fd, &new);
    }
}

/// Gives a forked child that has no place an open description of the region, under the same number,
/// that holds no byte: its parent may be killed, and the child live long. Where that is impossible
/// they go on sharing one.
pub(crate) fn leave_parents_region(fd: RawFd, at: i64) {
    let _ = another_description(fd, at).and_then(|new| os::put_in_place(&fd, &new));
}

/// Whether this process has the right to open the region again, for reading and writing.
pub(crate) fn may_reopen(fd: RawFd) -> bool {
    let access = Access::READ_OK | Access::WRITE_OK;
    let name = format!("/proc/self/fd/{fd}");
    rustix::fs::accessat(rustix::fs::CWD, name, access, AtFlags::EACCESS).is_ok()
}

/// Another open description of the region, as `at` says for reading alone or for writing, too.
fn another_description(fd: RawFd, at: i64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let access = if at == REGION_READERS { OFlags::RDONLY } else { OFlags::RDWR };
    let name = rustix::path::DecInt::new(fd);
    rustix::fs::openat(&own, name, access | OFlags::CLOEXEC, Mode::empty())
}

/// Gives it back.
pub(crate) fn leave_region(fd: RawFd, at: i64) -> Result<(), Errno> {
    bytes::release(fd, Kind::Description, at)
}

/// Whether any other open description of the region holds the byte.
pub(crate) fn region_held(fd: RawFd, at: i64) -> Result<bool, Errno> {
    Ok(bytes::holder(fd, Kind::Description, at, 1)?.is_some())
}

/// The slots' bytes that this process holds, as another owner of locks sees it through `fd`.
fn held_by_this_process(fd: RawFd) -> Result<Vec<i64>, Errno> {
    let mut held = Vec::new();
    for at in 0..PROCESS_SLOTS as i64 {
        if bytes::holder(fd, Kind::Description, at, 1)? == Some(own_pid()) {
            held.push(at);
        }
    }
    Ok(held)
}

/// Whether any process holds a byte of a liveness file. Not for who has attached something by it:
/// the close of this look would end its locks.
pub(crate) fn any_slot_held(live: &Path) -> Result<bool, Errno> {
    let file = rustix::fs::open(live, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(bytes::holder(file.as_raw_fd(), Kind::Description, 0, ATTACH_BYTE + 1)?.is_some())
}

/// Where the anchor directory of a volume is that nobody has attached.
pub(crate) fn anchor_path(region: RawFd, path: &Path, uuid: &str) -> Result<PathBuf, Errno> {
    // SAFETY: the region's descriptor is open as long as the region.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(region) };
    if FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::CharacterDevice {
        return Ok(Path::new("/run/solera").join(uuid));
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".solera");
    Ok(name.into())
}

/// How open to others the parts of an anchor are to be, and whose.
#[derive(Clone, Copy)]
pub(crate) struct Openness {
    /// Who may read and write (bits of `0o666`).
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Openness {
    /// As open as the region.
    pub(crate) fn of_region(region: RawFd) -> Result<Self, Errno> {
        // SAFETY: the region's descriptor is open as long as the region.
        let stat = fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(region) })?;
        Ok(Self { mode: stat.st_mode & 0o666, uid: stat.st_uid, gid: stat.st_gid })
    }

    /// This process's user's alone.
    pub(crate) fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Self { mode: 0o600, uid: uid.as_raw(), gid: gid.as_raw() }
    }
}

/// Makes the directory and the file in it, as open to others as is said, and opens the file.
fn open_file(directory: &Path, openness: Openness) -> Result<OwnedFd, Errno> {
    let shared = openness.mode;
    // Who may read and write the region may enter; the owner always.
    let enter = [0o600, 0o060, 0o006].iter().filter(|&&both| shared & both == both);
    let bits = enter.fold(0o700, |bits, both| bits | both | (both & 0o444) >> 2);
    let name = directory.join("live");
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // It is made last: most often all is there.
    if let Ok(fd) = rustix::fs::open(&name, flags, Mode::empty()) {
        let found = rustix::fs::lstat(directory)?;
        // Not a symlink that somebody has put there.
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if !is_directory || !is_open_enough(&found, bits, openness) {
            catch_up(&open_directory(directory)?, bits, openness)?;
        }
        catch_up(&fd, bits & 0o666, openness)?;
        return Ok(fd);
    }
    if let Some(parent) = directory.parent()
        && parent == Path::new("/run/solera")
    {
        match rustix::fs::mkdir(parent, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    match rustix::fs::mkdir(directory, Mode::from_raw_mode(bits)) {
        Ok(()) => resemble(&open_directory(directory)?, bits, openness)?,
        // The region's mode may have changed since.
        Err(Errno::EXIST) => catch_up(&open_directory(directory)?, bits, openness)?,
        Err(errno) => return Err(errno),
    }
    let handing = directory.join(HANDING);
    match rustix::fs::mkdir(&handing, Mode::from_raw_mode(0o700)) {
        Ok(()) => resemble(&open_directory(&handing)?, HANDING_MODE, openness)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let mode = Mode::from_raw_mode(bits & 0o666);
    match rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Ok(fd) => {
            resemble(&fd, bits & 0o666, openness)?;
            Ok(fd)
        }
        Err(Errno::EXIST) => {
            let fd = rustix::fs::open(&name, flags, Mode::empty())?;
            catch_up(&fd, bits & 0o666, openness)?;
            Ok(fd)
        }
        Err(errno) => Err(errno),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Gives a part of the anchor its mode, and the region's owner and group as far as may be: only
/// root can give files away, others make them for themselves, and for a group that they are in.
fn resemble(fd: &OwnedFd, mode: u32, whose: Openness) -> Result<(), Errno> {
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
    let owner = rustix::process::Uid::from_raw(whose.uid);
    let group = rustix::process::Gid::from_raw(whose.gid);
    for owner in [Some(owner), None] {
        match rustix::fs::fchown(fd, owner, Some(group)) {
            Err(Errno::PERM) => {}
            result => return result,
        }
    }
    Ok(())
}

/// The same for a part that was there, if it is the caller's (or the region's owner's) and the
/// region is open to others than it was: a volume becomes a group's by its file's mode, and another
/// user's by root.
fn catch_up(fd: &OwnedFd, mode: u32, whose: Openness) -> Result<(), Errno> {
    let found = fstat(fd)?;
    let own = rustix::process::geteuid().as_raw();
    if is_open_enough(&found, mode, whose)
        || found.st_uid != own && (own != 0 || found.st_uid != whose.uid)
    {
        return Ok(());
    }
    resemble(fd, mode, whose)
}

/// Whether there is nothing to catch up with.
fn is_open_enough(found: &Stat, mode: u32, whose: Openness) -> bool {
    (found.st_mode & 0o7777, found.st_gid) == (mode, whose.gid)
        && (found.st_uid == whose.uid || !rustix::process::geteuid().is_root())
}

impl LiveFile {
    fn new(fd: InternalFd, directory: &Path) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self {
            fd,
            device: stat.st_dev,
            ino: stat.st_ino,
            directory: directory.to_owned(),
            handing: directory.join(HANDING),
            pid: AtomicU32::new(own_pid()),
            own: Default::default(),
            anchor: OnceLock::new(),
        })
    }

    /// Whether the anchor's file is still this one. Who may not look any more (after `setuid`) asks
    /// whether the file has a name.
    fn in_place(&self) -> bool {
        match rustix::fs::stat(self.directory.join("live")) {
            Ok(stat) => (stat.st_dev, stat.st_ino) == (self.device, self.ino),
            Err(Errno::ACCESS) => fstat(&self.fd).is_ok_and(|stat| stat.st_nlink > 0),
            Err(_) => false,
        }
    }

    /// Whether another copy of this code in this process holds a slot's byte, as its slot. (What is
    /// held to recover it has another byte, too.)
    fn is_another_copys(&self, slot: u32) -> Result<bool, Errno> {
        let (fd, at) = (self.fd.as_raw_fd(), i64::from(slot));
        Ok(!self.owns(slot)
            && bytes::holder(fd, Kind::Description, at, 1)? == Some(own_pid())
            && bytes::holder(fd, Kind::Description, RECOVERY_BYTES + at, 1)?.is_none())
    }

    fn owns(&self, slot: u32) -> bool {
        self.pid.load(Ordering::Relaxed) == own_pid()
            && self.own[slot as usize / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 != 0
    }

    fn set_own(&self, slot: u32, own: bool) {
        if self.pid.swap(own_pid(), Ordering::Relaxed) != own_pid() {
            self.own.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        let (word, bit) = (&self.own[slot as usize / 64], 1 << (slot % 64));
        if own {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The calling process, asked from the kernel each time: it changes with fork.
pub(crate) fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// The descriptor of a liveness file that was refused before: a close would have ended the other
/// copy's locks.
fn refused(device: u64, ino: u64) -> Option<OwnedFd> {
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let is = |fd: &OwnedFd| fstat(fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, ino));
    let at = refused.iter().position(is)?;
    Some(refused.swap_remove(at))
}

/// Whether this process holds a byte of a liveness file, by whichever copy of this code.
fn is_held_here(fd: &impl AsRawFd) -> Result<bool, Errno> {
    bytes::is_held_by(fd.as_raw_fd(), own_pid(), 0, ATTACH_BYTE + 1)
}

fn files() -> MutexGuard<'static, Vec<Arc<LiveFile>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Liveness {
    /// For a region that no other process sees.
    pub(crate) fn private() -> Self {
        Self { file: None }
    }

    /// Opens (and makes, if need be) the anchor of the volume at `path`.
    pub(crate) fn open(
        asked: &'static str,
        path: &Path,
        directory: &Path,
        openness: Result<Openness, Errno>,
    ) -> Result<Self, VolumeError> {
        let mut files = files();
        if let Some(file) = files.iter().find(|file| file.directory == directory) {
            if file.in_place() {
                return Ok(Self { file: Some(Arc::clone(file)) });
            }
            return Err(gone(asked, path, directory));
        }
        // By another path; a second descriptor of it must never be closed.
        let there = rustix::fs::stat(directory.join("live"));
        let is = |file: &&Arc<LiveFile>| {
            there.is_ok_and(|there| (there.st_dev, there.st_ino) == (file.device, file.ino))
        };
        if let Some(file) = files.iter().find(is) {
            return Ok(Self { file: Some(Arc::clone(file)) });
        }
        let fail = |errno| {
            let what = format!("its anchor directory {}", directory.display());
            let error = VolumeError::system(asked, path, &what, errno);
            if errno != Errno::ACCESS {
                return error;
            }
            error.advise("its owner must use it once after its mode was changed: `solera ls` it")
        };
        let known = there.ok().and_then(|there| refused(there.st_dev, there.st_ino));
        let file =
            known.map_or_else(|| openness.and_then(|openness| open_file(directory, openness)), Ok);
        let file = file.map_err(fail)?;
        let held = is_held_here(&file);
        if held == Ok(true) && BESIDE.load(Ordering::Relaxed) {
            let file = LiveFile::new(InternalFd::in_place(file), directory).map_err(fail)?;
            let file = Arc::new(file);
            files.push(Arc::clone(&file));
            return Ok(Self { file: Some(file) });
        }
        if held != Ok(false) {
            REFUSED.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            let found = "another copy of this library has it attached in this process";
            let advice = "link all parts of the program with one libsolera.so.0, and none with \
                          libsolera.a";
            return Err(held.map_or_else(fail, |_| {
                VolumeError::new(ErrorKind::InUse, asked, path, found.to_owned(), advice)
            }));
        }
        // The low descriptor is closed before this process has any lock on the file.
        let fd = InternalFd::new(file);
        let file = Arc::new(LiveFile::new(fd, directory).map_err(fail)?);
        files.push(Arc::clone(&file));
        Ok(Self { file: Some(file) })
    }

    /// Takes over the descriptor that survived an exec, with the lock on `slot`.
    pub(crate) fn inherit(fd: RawFd, directory: &Path, slot: u32) -> Result<Self, Errno> {
        // SAFETY: the token names a descriptor that exec_prepare kept open for this process and
        // that nothing else in the new image owns; a wrong one fails the comparison below.
        let fd: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        let fd = InternalFd::in_place(fd);
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        let file = Arc::new(LiveFile::new(fd, directory)?);
        if !file.in_place() {
            // Not ours to close.
            std::mem::forget(file);
            return Err(Errno::STALE);
        }
        file.set_own(slot, true);
        files().push(Arc::clone(&file));
        Ok(Self { file: Some(file) })
    }

    /// Waits until no other process or thread attaches or detaches. `ESTALE` if the anchor
    /// directory was removed meanwhile.
    pub(crate) fn lock_attach(&self) -> Result<AttachGuard, Errno> {
        let mut guard = AttachGuard { file: None, _threads: ATTACHING.lock() };
        let Some(file) = &self.file else { return Ok(guard) };
        bytes::wait_for(file.fd.as_raw_fd(), ATTACH_BYTE)?;
        guard.file = Some(Arc::clone(file));
        if file.in_place() { Ok(guard) } else { Err(Errno::STALE) }
    }

    /// Takes a slot's byte as this process's own. `false`: it is, or another process holds it.
    pub(crate) fn hold(&self, slot: u32) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(true) };
        let is_taken = file.owns(slot) || file.is_another_copys(slot)?;
        if is_taken || !take(file.fd.as_raw_fd(), i64::from(slot))? {
            return Ok(false);
        }
        file.set_own(slot, true);
        Ok(true)
    }

    /// Takes a dead process's bytes, to recover it. `false`: somebody holds one of them.
    pub(crate) fn begin_recovery(&self, slot: u32) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(true) };
        if file.is_another_copys(slot)? {
            return Ok(false);
        }
        let (fd, slot) = (file.fd.as_raw_fd(), i64::from(slot));
        if !take(fd, RECOVERY_BYTES + slot)? {
            return Ok(false);
        }
        let held = take(fd, slot);
        if held != Ok(true) {
            bytes::release(fd, Kind::Process, RECOVERY_BYTES + slot)?;
        }
        held
    }

    /// Gives them back.
    pub(crate) fn end_recovery(&self, slot: u32) -> Result<(), Errno> {
        self.release(slot)?;
        let Some(file) = &self.file else { return Ok(()) };
        let at = RECOVERY_BYTES + i64::from(slot);
        bytes::release(file.fd.as_raw_fd(), Kind::Process, at)
    }

    /// Whether another process is about to recover a slot's, or at it.
    pub(crate) fn is_being_recovered(&self, slot: u32) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(false) };
        let at = RECOVERY_BYTES + i64::from(slot);
        Ok(bytes::holder(file.fd.as_raw_fd(), Kind::Process, at, 1)?.is_some())
    }

    /// Gives a slot's byte back.
    pub(crate) fn release(&self, slot: u32) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
        file.set_own(slot, false);
        bytes::release(file.fd.as_raw_fd(), Kind::Process, i64::from(slot))
    }

    /// Whether a process, this one or another, holds the slot's byte.
    pub(crate) fn alive(&self, slot: u32) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(true) };
        let fd = file.fd.as_fd().as_raw_fd();
        Ok(file.owns(slot)
            || bytes::holder(fd, Kind::Process, i64::from(slot), 1)?.is_some()
            || file.is_another_copys(slot)?)
    }

    /// Whether a slot is one of this process's own.
    pub(crate) fn is_own(&self, slot: u32) -> bool {
        self.file.as_ref().is_none_or(|file| file.owns(slot))
    }

    /// Whether any slot but `slot` is held: a process that does, 0 if that is not visible.
    pub(crate) fn anyone_but(&self, slot: Option<u32>) -> Result<Option<u32>, Errno> {
        let Some(file) = &self.file else { return Ok(None) };
        let pid = own_pid();
        let mut own = [0; (PROCESS_SLOTS / 64) as usize];
        if file.pid.load(Ordering::Relaxed) == pid {
            own = std::array::from_fn(|index| file.own[index].load(Ordering::Relaxed));
        }
        if let Some(slot) = slot.filter(|&slot| u64::from(slot) < PROCESS_SLOTS) {
            own[slot as usize / 64] &= !(1 << (slot % 64));
        }
        if own.iter().any(|&word| word != 0) {
            return Ok(Some(pid));
        }
        let (fd, all) = (file.fd.as_raw_fd(), PROCESS_SLOTS as i64);
        if let Some(other) = bytes::holder(fd, Kind::Process, 0, all)? {
            return Ok(Some(other));
        }
        let (before, behind) = slot.map_or((all, all), |slot| (slot.into(), i64::from(slot) + 1));
        let another = bytes::is_held_by(fd, pid, 0, before.min(all))?
            || bytes::is_held_by(fd, pid, behind, all)?;
        Ok(another.then_some(pid))
    }

    /// The process that holds a slot's byte, if it is visible.
    pub(crate) fn holder_of(&self, slot: u32) -> Result<Option<u32>, Errno> {
        let Some(file) = &self.file else { return Ok(None) };
        if file.owns(slot) {
            return Ok(Some(own_pid()));
        }
        let holder = bytes::holder(file.fd.as_raw_fd(), Kind::Description, i64::from(slot), 1)?;
        Ok(holder.filter(|pid| *pid != 0))
    }

    /// Slots and processes of everybody else who is attached, whatever their build.
    pub(crate) fn others(&self) -> Result<Vec<(u32, u32)>, Errno> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for slot in 0..PROCESS_SLOTS as u32 {
            let holder = bytes::holder(file.fd.as_raw_fd(), Kind::Description, i64::from(slot), 1)?;
            if let Some(pid) = holder.filter(|_| !file.owns(slot)) {
                found.push((slot, pid));
            }
        }
        Ok(found)
    }

    /// Lends a descriptor of the anchor directory, which stays open and has no lock itself.
    pub(crate) fn lend_anchor(&self, fd: Arc<InternalFd>) {
        if let Some(file) = &self.file {
            // The first one will do.
            let _ = file.anchor.set(fd);
        }
    }

    /// What `is_so` says of the directory for carriers. Where that cannot be asked it counts as so:
    /// somebody will ask again.
    pub(crate) fn in_handing(&self, is_so: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
        let Some(file) = &self.file else { return false };
        if let Some(lent) = file.anchor.get() {
            return is_so(lent.as_fd());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&file.handing, flags, Mode::empty()) {
            Ok(fd) => is_so(fd.as_fd()),
            // A directory that was removed has nothing in flight that anybody could take.
            Err(Errno::NOENT) => false,
            Err(_) => true,
        }
    }

    /// The directory in it for carriers.
    pub(crate) fn handing(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.handing.as_path())
    }

    /// The descriptor of that which was lent.
    pub(crate) fn lent(&self) -> Option<&InternalFd> {
        self.file.as_ref()?.anchor.get().map(|fd| &**fd)
    }

    /// The descriptor of that which was lent; -1: none.
    pub(crate) fn lent_anchor(&self) -> RawFd {
        self.file.as_ref().and_then(|file| file.anchor.get()).map_or(-1, AsRawFd::as_raw_fd)
    }

    /// The anchor directory, and the liveness file's device and inode number.
    pub(crate) fn whereabouts(&self) -> Option<(&Path, u64, u64)> {
        self.file.as_ref().map(|file| (file.directory.as_path(), file.device, file.ino))
    }

    /// The anchor directory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.directory.as_path())
    }

    /// The liveness file's descriptor, -1 if there is none.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_ref().map_or(-1, |file| file.fd.as_raw_fd())
    }

    /// Moves the liveness file's descriptor to another number; `replace` puts something else at the
    /// old one. Closing it drops every lock of the process, so while that happens the bytes are
    /// held, shared, by an OFD lock on the new one: nobody ever finds one free.
    pub(crate) fn vacate(
        &self,
        replace: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Err(Errno::BADF) };
        let _attaching = ATTACHING.lock();
        let _slots = SLOTS.lock();
        let link = format!("/proc/self/fd/{}", file.fd.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let new = rustix::fs::open(link, flags, Mode::empty())?;
        let mine = held_by_this_process(new.as_raw_fd())?;
        for &at in &mine {
            bytes::take(file.fd.as_raw_fd(), Kind::Process, Hold::Shared, at)?;
            bytes::take(new.as_raw_fd(), Kind::Description, Hold::Shared, at)?;
        }
        // This closes the low number, and so drops the POSIX locks.
        file.fd.replace(InternalFd::new(new));
        let replaced = replace();
        let fd = file.fd.as_raw_fd();
        for &at in &mine {
            bytes::take(fd, Kind::Process, Hold::Shared, at)?;
            bytes::release(fd, Kind::Description, at)?;
            bytes::take(fd, Kind::Process, Hold::Alone, at)?;
        }
        replaced
    }

    /// Whether the descriptor, with its locks, survives an exec, and the maps' with it: a process
    /// that has changed its user could not open those again.
    pub(crate) fn survive_exec(&self, maps: [RawFd; 2], survive: bool) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Err(Errno::OPNOTSUPP) };
        let flags = rustix::io::FdFlags::CLOEXEC;
        let flags = if survive { rustix::io::FdFlags::empty() } else { flags };
        let lent = self.lent_anchor();
        for fd in [maps[0], maps[1], lent].into_iter().filter(|&fd| fd >= 0) {
            // SAFETY: the maps' descriptors, and a lent one, are open as long as the maps.
            rustix::io::fcntl_setfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }, flags)?;
        }
        rustix::io::fcntl_setfd(&file.fd, flags)
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let mut files = files();
        // The registry and this one: nothing of this volume is attached by this process any more.
        // (Guards are gone before their liveness is: only they and this hold it.)
        if Arc::strong_count(&file) == 2 && is_held_here(&file.fd) == Ok(false) {
            files.retain(|other| !Arc::ptr_eq(other, &file));
        }
        drop(file);
    }
}

/// The anchor directory was removed under a live attachment.
pub(crate) fn gone(asked: &'static str, path: &Path, directory: &Path) -> VolumeError {
    let found = format!(
        "it is in use, but its anchor directory {} is not here: it was removed or replaced, or \
         those that use the volume see it in another place, as from a container",
        directory.display()
    );
    let advice = "end them, or give this container the folder that the volume lies in (not the \
                  volume's file alone), then try again";
    VolumeError::new(ErrorKind::InUse, asked, path, found, advice)
}
