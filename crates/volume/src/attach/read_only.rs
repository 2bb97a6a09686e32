//! Attaches a volume that may only be read.
//!
//! A reader changes nothing of the region: it maps it privately, and every volatile word (locks,
//! open descriptions, what an inode's line caches) lies in a *shadow*, a sparse file with the words
//! at the same offsets, in a directory of the reader's user ([`place`]). All readers of a user
//! share it with all that attachments share, so fork, exec, descriptors that are passed on and
//! locks work among them. Readers of different users know nothing of each other.
//!
//! What a crash (or a copy of a volume in use) left open is undone in memory: the first reader
//! recovers its private map, with the free map in the shadow, and puts the pages that this changed
//! into a file beside the shadow; every later reader takes them from it. The region itself then
//! differs, so files are mapped by copies only ([`Volume::is_recovered_view`]).
//!
//! Readers and writers exclude each other: a reader cannot take the locks that keep a writer from
//! moving what is being read. [`REGION_READERS`] is held shared by every reader, [`REGION_WRITERS`]
//! by every writer; each takes its own byte, then looks at the other one.
//!
//! Order of a first reader's attach, under the attach lock of the user's directory: a new shadow;
//! the saved free map's records are copied to it; its header; a slot; what is to be recovered, and
//! the file of what that changed. The last to leave removes both; what readers that were killed
//! leave is replaced by the next first one.

use crate::Result;
use crate::attach::{AttachOptions, TRIES, is_attached, real_path, slow_memory};
use crate::medium::Parts;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    BLOCK, CHUNK_RECORD, HEADER_EPOCH, HEADER_FORMAT, RuntimeLayout, STATE_CLEAN, Superblock,
};
use crate::medium::superblock;
use crate::process::liveness::{
    self, Liveness, Openness, REGION_READERS, REGION_WRITERS, region_held, share_region,
};
use crate::volume::Volume;
use pmem::{Class, Hook, OpenOptions, Region};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where users' directories are: the first that can be used.
const BASES: [&str; 2] = ["/dev/shm", "/tmp"];
/// The shadow's name beside the liveness file.
const SHADOW: &str = "shadow";
/// The name of the file with what a recovery changed: offsets in the region, each with its page.
const RECOVERED: &str = "recovered";
/// Bytes of an entry of it.
const RECOVERED_ENTRY: usize = 8 + BLOCK as usize;

/// How often, once a millisecond, a reader that a beginning writer has kept out looks again.
const REFUSED: u32 = 50;

/// As [`attach`], if no process has the volume attached for writing. `None`: one has. It may have
/// come since this began to look: it waits for readers that came first, and they for nobody.
pub(crate) fn attach_alone(
    path: &Path,
    options: &AttachOptions,
) -> std::result::Result<Option<Arc<Volume>>, VolumeError> {
    for _ in 0..REFUSED {
        if is_attached(path) {
            return Ok(None);
        }
        match attach(path, options) {
            Err(error) if error.kind() == ErrorKind::InUse => {
                std::thread::sleep(Duration::from_millis(1));
            }
            attached => return attached.map(Some),
        }
    }
    attach(path, options).map(Some)
}

/// Attaches the volume at `path` to read it. `EACCES` while it is attached for writing.
pub(crate) fn attach(
    path: &Path,
    options: &AttachOptions,
) -> std::result::Result<Arc<Volume>, VolumeError> {
    let system = |what: &str, errno| VolumeError::system("attach", path, what, errno);
    let model = slow_memory::model("attach", path)?;
    let fd =
        pmem::open_to_read(path).map_err(|error| VolumeError::region("attach", path, &error))?;
    let path = &real_path(fd.as_raw_fd(), path);
    let region =
        Region::reading(fd, path).map_err(|error| VolumeError::region("attach", path, &error))?;
    share_region(region.fd(), REGION_READERS).map_err(|errno| system("locking it", errno))?;
    if region_held(region.fd(), REGION_WRITERS).map_err(|errno| system("its locks", errno))? {
        let found = "other processes use it and may write to it: a process that may only read \
                     cannot read beside them";
        let advice = "wait until they have ended, or ask root to mount it (`solera mount`): every \
                      user reads a mount";
        return Err(
            VolumeError::new(ErrorKind::InUse, "attach", path, found, advice).with(Errno::ACCESS)
        );
    }
    let superblock = superblock::read(&region, path, "attach")?.superblock;
    let changed = Arc::new(Changed::default());
    let mut region = region;
    if superblock::read_state(&region).is_ok_and(|(state, _)| state.clean != STATE_CLEAN) {
        region.set_hook(Arc::clone(&changed) as Arc<dyn Hook>);
    }
    let region = Arc::new(region);
    let directory =
        place(region.fd()).map_err(|errno| system("a directory for what is volatile", errno))?;
    for _ in 0..TRIES {
        let liveness = match Liveness::open("attach", path, &directory, Ok(Openness::own())) {
            // The last reader to leave took it away meanwhile.
            Err(error) if error.errno() == Errno::NOENT => continue,
            opened => opened?,
        };
        let guard = match liveness.lock_attach() {
            Ok(guard) => guard,
            Err(Errno::STALE) => continue,
            Err(errno) => return Err(system("the lock of its anchor directory", errno)),
        };
        let others = liveness.anyone_but(None).map_err(|errno| system("its locks", errno))?;
        let shadow = directory.join(SHADOW);
        let recovered = directory.join(RECOVERED);
        let reader = Reader { path, options, superblock, shadow, recovered, changed };
        let attached = if others.is_some() {
            reader.join(region, liveness)
        } else {
            reader.first(region, liveness)
        };
        drop(guard);
        return attached.inspect(|volume| volume.slow_down(model)).map(Arc::new);
    }
    Err(liveness::gone("attach", path, &directory))
}

/// The directory of this user's readers of a region, for them alone.
fn place(region: RawFd) -> Result<PathBuf> {
    // SAFETY: the region's descriptor is open as long as the region.
    let region = fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(region) })?;
    let uid = rustix::process::geteuid().as_raw();
    let mut refused = Errno::NOENT;
    for base in BASES {
        let own = Path::new(base).join(format!("solera-{uid}"));
        match own_directory(&own, uid) {
            Ok(()) => return Ok(own.join(format!("{:x}-{:x}", region.st_dev, region.st_ino))),
            Err(errno) => refused = errno,
        }
    }
    Err(refused)
}

/// Makes a directory that no other user can enter, if it is not there. `EPERM` if something else is
/// there, or another user's.
fn own_directory(path: &Path, uid: u32) -> Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stat = fstat(rustix::fs::open(path, flags, Mode::empty())?)?;
    if stat.st_uid == uid && stat.st_mode & 0o777 == 0o700 { Ok(()) } else { Err(Errno::PERM) }
}

/// How a shadow is mapped: without huge pages, for it is touched here and there.
fn shadow_options() -> OpenOptions {
    OpenOptions { write: true, force_class: Some(Class::Page), ..OpenOptions::default() }
}

/// A shadow whose descriptor survived an exec.
pub(crate) fn adopt_shadow(fd: OwnedFd) -> std::result::Result<Region, pmem::OpenError> {
    Region::adopt(fd, Path::new("(a reader's shadow)"), &shadow_options())
}

/// The pages of the region that a recovery stores to.
#[derive(Default)]
struct Changed {
    recording: AtomicBool,
    pages: Mutex<BTreeSet<u64>>,
}

impl Changed {
    fn pages(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Changed {
    fn store(&self, off: u64, bytes: &[u8], _: bool, _: &'static Location<'static>) {
        if self.recording.load(Ordering::Relaxed) && !bytes.is_empty() {
            let last = off + bytes.len() as u64 - 1;
            self.pages().extend(off / BLOCK..=last / BLOCK);
        }
    }

    fn flush(&self, _: u64, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {}

    fn shared(&self, off: u64) {
        if self.recording.load(Ordering::Relaxed) {
            self.pages().insert(off / BLOCK);
        }
    }
}

/// Puts into a reader's map what the first reader's recovery changed. `false`: there was nothing to
/// recover.
pub(crate) fn take_recovered(region: &Region, directory: &Path) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory.join(RECOVERED), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        opened => opened?,
    };
    let (mut entry, mut at) = (vec![0; RECOVERED_ENTRY], 0);
    while rustix::io::pread(&file, &mut entry, at)? == RECOVERED_ENTRY {
        let (offset, page) = entry.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().map_err(|_| Errno::IO)?);
        // Private memory: nothing is to be made durable.
        let _ = region.write(offset, page)?.flush().fence();
        at += RECOVERED_ENTRY as u64;
    }
    Ok(true)
}

/// One call of [`attach`].
struct Reader<'a> {
    path: &'a Path,
    options: &'a AttachOptions,
    superblock: Superblock,
    shadow: PathBuf,
    recovered: PathBuf,
    changed: Arc<Changed>,
}

impl Reader<'_> {
    fn fail(&self, kind: ErrorKind, found: &str, advice: &str) -> VolumeError {
        VolumeError::new(kind, "attach", self.path, found, advice)
    }

    fn no_free_map(&self) -> VolumeError {
        let found = "its saved free map is damaged, and a user that only reads cannot mend that";
        let advice =
            "a user that may write to it must attach it once (`solera ls` it), or `solera fsck` it";
        self.fail(ErrorKind::Damaged, found, advice)
    }

    fn step<T>(&self, result: Result<T>, what: &str) -> std::result::Result<T, VolumeError> {
        result.map_err(|errno| VolumeError::system("attach", self.path, what, errno))
    }

    fn assemble(&self, maps: [Arc<Region>; 2], epoch: u32, liveness: Liveness) -> Volume {
        let [region, volatile] = maps;
        Volume::assemble(
            Parts {
                region,
                volatile,
                superblock: self.superblock,
                epoch,
                mode: self.options.mode,
                read_only: true,
            },
            liveness,
        )
    }

    fn first(
        &self,
        region: Arc<Region>,
        liveness: Liveness,
    ) -> std::result::Result<Volume, VolumeError> {
        let (state, _) = self.step(superblock::read_state(&region), "its state")?;
        for old in [&self.shadow, &self.recovered] {
            match rustix::fs::unlink(old) {
                Ok(()) | Err(Errno::NOENT) => {}
                removed => self.step(removed, "removing an old shadow of it")?,
            }
        }
        let size = region.len();
        let shadow = Region::create_with(&self.shadow, size, 0o600, true, &shadow_options())
            .map_err(|error| VolumeError::region("attach", self.path, &error))?;
        self.step(self.copy_free_map(&region, &shadow), "copying its free map")?;
        // Not an earlier reader's: a descriptor of that may still be on its way to another process.
        let mut epoch = [0; 4];
        self.step(superblock::random(&mut epoch), "random bytes")?;
        let epoch = u32::from_le_bytes(epoch) | 1;
        let volume = self.assemble([region, Arc::new(shadow)], epoch, liveness);
        self.step(volume.clear_runtime(), "its runtime")?;
        self.step(volume.enter(), "taking a process slot")?;
        if state.clean != STATE_CLEAN {
            self.recover(&volume)?;
        } else if volume.load_free_map(state.free_map_crc) != Ok(true) {
            return Err(self.no_free_map());
        }
        volume.set_attached();
        Ok(volume)
    }

    /// Undoes in this process's map what a crash left open, and keeps for the others what that
    /// changed.
    fn recover(&self, volume: &Volume) -> std::result::Result<(), VolumeError> {
        self.changed.recording.store(true, Ordering::Relaxed);
        volume.set_read_only(false);
        let recovered = volume.recover(self.options.alone);
        volume.set_read_only(true);
        self.changed.recording.store(false, Ordering::Relaxed);
        match recovered {
            // Damaged parts give errors, as for a writer.
            Err(Errno::IO) => self.step(volume.mark_damaged(), "its runtime")?,
            recovered => {
                self.step(recovered, "recovering it in memory")?;
            }
        }
        volume.local.recovered_view.store(true, Ordering::Relaxed);
        self.step(self.keep_recovered(volume), "keeping what was recovered in memory")
    }

    fn keep_recovered(&self, volume: &Volume) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.recovered, flags, Mode::RUSR | Mode::WUSR)?;
        let mut entry = vec![0; RECOVERED_ENTRY];
        for (&page, at) in self.changed.pages().iter().zip((0..).step_by(RECOVERED_ENTRY)) {
            let offset = page * BLOCK;
            entry[..8].copy_from_slice(&offset.to_le_bytes());
            volume.region.read(offset, &mut entry[8..])?;
            if rustix::io::pwrite(&file, &entry, at)? != entry.len() {
                return Err(Errno::NOSPC);
            }
        }
        Ok(())
    }

    /// Copies the records of the chunks: the part of a runtime that is there before its epoch.
    fn copy_free_map(&self, region: &Region, shadow: &Region) -> Result<()> {
        let chunks = (self.superblock.size - self.superblock.pool) / crate::medium::layout::CHUNK;
        let at = self.superblock.runtime + RuntimeLayout::of(&self.superblock).chunks;
        let end = at + chunks * CHUNK_RECORD;
        let mut from = region.next_data(at);
        while from < end {
            let to = region.next_hole_before(from, end);
            let mut records = vec![0; (to - from) as usize];
            region.read(from, &mut records)?;
            shadow.shared_write(from, &records)?;
            from = region.next_data(to);
        }
        Ok(())
    }

    fn join(
        &self,
        region: Arc<Region>,
        liveness: Liveness,
    ) -> std::result::Result<Volume, VolumeError> {
        let recovered =
            self.recovered.parent().map_or(Ok(false), |own| take_recovered(&region, own));
        let recovered = self.step(recovered, "what was recovered in memory")?;
        let shadow = Region::open(&self.shadow, &shadow_options())
            .map_err(|error| VolumeError::region("attach", self.path, &error))?;
        let at = self.superblock.runtime;
        let word =
            |word| self.step(shadow.shared_load(at + word).map_err(Errno::from), "its runtime");
        let epoch = word(HEADER_EPOCH)? as u32;
        if word(HEADER_FORMAT)? != RuntimeLayout::format() || epoch == 0 {
            let found = "readers of another build of Solera use it";
            return Err(self.fail(ErrorKind::InUse, found, "let them end, then try again"));
        }
        let volume = self.assemble([region, Arc::new(shadow)], epoch, liveness);
        volume.local.recovered_view.store(recovered, Ordering::Relaxed);
        self.step(volume.share_epoch(), "its runtime")?;
        self.step(volume.enter(), "taking a process slot")?;
        self.step(volume.join_others(), "waiting for a call of another")?;
        self.step(volume.recover_the_dead(), "recovering dead processes")?;
        volume.set_attached();
        if volume.has_orphans().is_ok_and(|any| any) {
            self.step(volume.drop_orphans(), "dropping what is in flight no more")?;
        }
        Ok(volume)
    }
}

impl Volume {
    /// Whether this process sees another state than the region holds: what a crash left open was
    /// undone in memory.
    pub(crate) fn is_recovered_view(&self) -> bool {
        self.local.recovered_view.load(Ordering::Relaxed)
    }

    /// The byte of the region that this attachment holds.
    pub(crate) fn region_byte(&self) -> i64 {
        if self.is_reader() { REGION_READERS } else { REGION_WRITERS }
    }

    /// A forked child's hold of it becomes its own.
    pub(crate) fn separate_region(&self) {
        liveness::separate_region(&self.region, self.region_byte());
    }

    /// A forked child's hold of it is no more.
    pub(crate) fn leave_parents_region(&self) {
        liveness::leave_parents_region(&self.region, self.region_byte());
    }

    /// Whether a forked child could do that.
    pub(crate) fn may_reopen_region(&self) -> bool {
        liveness::may_reopen(self.region.fd())
    }

    /// The shadow's descriptor; -1 if there is none.
    pub(crate) fn shadow_descriptor(&self) -> RawFd {
        if self.is_reader() { self.volatile_map().fd() } else { -1 }
    }

    /// The last reader leaves, under the attach lock: a process that waits for the lock finds the
    /// directory gone, and makes another one. A rename removes it in one step, so that no process
    /// uses a part of it.
    pub(crate) fn drop_shadow(&self) {
        let Some(directory) = self.liveness.directory() else { return };
        let mut gone = directory.as_os_str().to_owned();
        gone.push(format!(".{}", liveness::own_pid()));
        let gone = std::path::PathBuf::from(gone);
        // What stays, the next first reader takes or replaces.
        if rustix::fs::rename(directory, &gone).is_ok() {
            let _ = rustix::fs::unlink(gone.join(SHADOW));
            let _ = rustix::fs::unlink(gone.join(RECOVERED));
            let _ = rustix::fs::unlink(gone.join("live"));
            let _ = os::remove_all(&gone.join(liveness::HANDING));
            let _ = rustix::fs::rmdir(gone);
        }
    }
}
