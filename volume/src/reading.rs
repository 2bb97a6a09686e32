//! Attaching a volume that may only be read.
//!
//! A reader changes nothing of the region: he maps it privately, and every volatile word (locks, open
//! descriptions, what an inode's line caches) lies in a *shadow*, a sparse file with the words at the
//! same offsets, in a directory of the reader's user ([`place`]). All readers of a user share it with all
//! that attachments share, so fork, exec, descriptors that are passed on and locks work among them. Readers
//! of different users know nothing of each other.
//!
//! Nobody reads beside writers: a reader cannot take the locks that keep a writer from moving what is
//! being read. [`REGION_READERS`] is held shared by every reader, [`REGION_WRITERS`] by every writer;
//! each takes its own byte, then looks at the other one. So what is read is a volume that was left in
//! order and lies still; one that was not is refused, for recovering it needs to write.
//!
//! Order of a first reader's attach, under the attach lock of the user's directory: a new shadow; the
//! saved free map's records are copied to it; its header; a slot. The last to leave removes it; what
//! readers that were killed leave is replaced by the next first one.

use crate::Result;
use crate::attach::{AttachOptions, TRIES, real_path};
use crate::error::{ErrorKind, VolumeError};
use crate::layout::{
    CHUNK_RECORD, HEADER_EPOCH, HEADER_FORMAT, RuntimeLayout, STATE_CLEAN, Superblock,
};
use crate::liveness::{
    self, Liveness, Openness, REGION_READERS, REGION_WRITERS, region_held, share_region,
};
use crate::superblock;
use crate::volume::{Parts, Volume};
use pmem::{Class, OpenOptions, Region};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where users' directories are: the first that can be used.
const BASES: [&str; 2] = ["/dev/shm", "/tmp"];
/// The shadow's name beside the liveness file.
const SHADOW: &str = "shadow";

/// Attaches the volume at `path` to read it. `EACCES` while it is attached for writing.
pub(crate) fn attach(
    path: &Path,
    options: &AttachOptions,
) -> std::result::Result<Arc<Volume>, VolumeError> {
    let system = |what: &str, errno| VolumeError::system("attach", path, what, errno);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| system("opening it for reading", errno))?;
    let path = &real_path(fd.as_raw_fd(), path);
    let region =
        Region::reading(fd, path).map_err(|error| VolumeError::region("attach", path, &error))?;
    share_region(region.fd(), REGION_READERS).map_err(|errno| system("locking it", errno))?;
    if region_held(region.fd(), REGION_WRITERS).map_err(|errno| system("its locks", errno))? {
        let found = "other processes use it and may write to it: a process that may only read cannot \
                     read beside them";
        let advice = "wait until they have ended, or ask root to mount it (`solera mount`): every user \
                      reads a mount";
        return Err(
            VolumeError::new(ErrorKind::InUse, "attach", path, found, advice).with(Errno::ACCESS)
        );
    }
    let superblock = superblock::read(&region, path, "attach")?.superblock;
    let region = Arc::new(region);
    let directory =
        place(region.fd()).map_err(|errno| system("a directory for what is volatile", errno))?;
    for _ in 0..TRIES {
        let liveness = match Liveness::open("attach", path, &directory, Ok(Openness::own())) {
            // The last one who left took it away meanwhile.
            Err(error) if error.errno() == Errno::NOENT => continue,
            opened => opened?,
        };
        let guard = match liveness.lock_attach() {
            Ok(guard) => guard,
            Err(Errno::STALE) => continue,
            Err(errno) => return Err(system("the lock of its anchor directory", errno)),
        };
        let others = liveness.anyone_but(None).map_err(|errno| system("its locks", errno))?;
        let reader = Reader { path, options, superblock, shadow: directory.join(SHADOW) };
        let attached = if others.is_some() {
            reader.join(region, liveness)
        } else {
            reader.first(region, liveness)
        };
        drop(guard);
        return attached.map(Arc::new);
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

/// Makes a directory that nobody else can enter, if it is not there. `EPERM` if what is there is another
/// thing or somebody else's.
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

/// One call of [`attach`].
struct Reader<'a> {
    path: &'a Path,
    options: &'a AttachOptions,
    superblock: Superblock,
    shadow: PathBuf,
}

impl Reader<'_> {
    fn fail(&self, kind: ErrorKind, found: &str, advice: &str) -> VolumeError {
        VolumeError::new(kind, "attach", self.path, found, advice)
    }

    fn unclean(&self) -> VolumeError {
        let found = "it was not left in order, and has to be recovered first by a user that may write to it";
        let advice = "ask its owner to attach it once: `solera ls` does";
        self.fail(ErrorKind::Damaged, found, advice)
    }

    fn step<T>(&self, result: Result<T>, what: &str) -> std::result::Result<T, VolumeError> {
        result.map_err(|errno| VolumeError::system("attach", self.path, what, errno))
    }

    fn assemble(&self, maps: [Arc<Region>; 2], epoch: u32, liveness: Liveness) -> Volume {
        let [region, volatile] = maps;
        Volume::assemble(Parts {
            region,
            volatile,
            superblock: self.superblock,
            epoch,
            mode: self.options.mode,
            read_only: true,
            liveness,
        })
    }

    fn first(
        &self,
        region: Arc<Region>,
        liveness: Liveness,
    ) -> std::result::Result<Volume, VolumeError> {
        let (state, _) = self.step(superblock::read_state(&region), "its state")?;
        if state.clean != STATE_CLEAN {
            return Err(self.unclean());
        }
        match rustix::fs::unlink(&self.shadow) {
            Ok(()) | Err(Errno::NOENT) => {}
            removed => self.step(removed, "removing an old shadow of it")?,
        }
        let size = region.len();
        let shadow = Region::create_with(&self.shadow, size, 0o600, true, &shadow_options())
            .map_err(|error| VolumeError::region("attach", self.path, &error))?;
        self.step(self.copy_free_map(&region, &shadow), "copying its free map")?;
        // Not an earlier reader's: a descriptor of his may still be on its way to somebody.
        let mut epoch = [0; 4];
        self.step(superblock::random(&mut epoch), "random bytes")?;
        let epoch = u32::from_le_bytes(epoch) | 1;
        let volume = self.assemble([region, Arc::new(shadow)], epoch, liveness);
        self.step(volume.clear_runtime(), "its runtime")?;
        self.step(volume.enter(), "taking a process slot")?;
        if volume.load_free_map(state.free_map_crc) != Ok(true) {
            return Err(self.unclean());
        }
        volume.set_attached();
        Ok(volume)
    }

    /// Copies the records of the chunks, which is what of a runtime is there before its epoch.
    fn copy_free_map(&self, region: &Region, shadow: &Region) -> Result<()> {
        let chunks = (self.superblock.size - self.superblock.pool) / crate::layout::CHUNK;
        let at = self.superblock.runtime + Volume::runtime_layout(&self.superblock).chunks;
        let mut records = vec![0; (chunks * CHUNK_RECORD) as usize];
        region.read(at, &mut records)?;
        Ok(shadow.shared_write(at, &records)?)
    }

    fn join(
        &self,
        region: Arc<Region>,
        liveness: Liveness,
    ) -> std::result::Result<Volume, VolumeError> {
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
        self.step(volume.share_epoch(), "its runtime")?;
        self.step(volume.enter(), "taking a process slot")?;
        self.step(volume.join_others(), "waiting for a call of another")?;
        self.step(volume.bury_the_dead(), "recovering dead processes")?;
        volume.set_attached();
        if volume.has_orphans().is_ok_and(|any| any) {
            self.step(volume.drop_orphans(), "dropping what is in flight no more")?;
        }
        Ok(volume)
    }
}

impl Volume {
    /// Whether it is attached as this file has it.
    pub(crate) fn is_reader(&self) -> bool {
        !std::ptr::eq(self.volatile_map(), &raw const *self.region)
    }

    /// The byte of the region that this attachment holds.
    pub(crate) fn region_byte(&self) -> i64 {
        if self.is_reader() { REGION_READERS } else { REGION_WRITERS }
    }

    /// A forked child's hold of it becomes its own.
    pub(crate) fn separate_region(&self) {
        liveness::separate_region(self.region.fd(), self.region_byte());
    }

    /// The shadow's descriptor; -1 if there is none.
    pub(crate) fn shadow_descriptor(&self) -> RawFd {
        if self.is_reader() { self.volatile_map().fd() } else { -1 }
    }

    /// The last reader goes, under the attach lock: whoever waits for that finds the directory gone, and
    /// makes another one. It goes at once, by a rename: nobody puts something into a half of it.
    pub(crate) fn drop_shadow(&self) {
        let Some(directory) = self.liveness.directory() else { return };
        let mut gone = directory.as_os_str().to_owned();
        gone.push(format!(".{}", liveness::own_pid()));
        let gone = std::path::PathBuf::from(gone);
        // What stays, the next first reader takes or replaces.
        if rustix::fs::rename(directory, &gone).is_ok() {
            let _ = rustix::fs::unlink(gone.join(SHADOW));
            let _ = rustix::fs::unlink(gone.join("live"));
            let _ = rustix::fs::rmdir(gone.join(liveness::HANDING));
            let _ = rustix::fs::rmdir(gone);
        }
    }
}
