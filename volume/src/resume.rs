//! An attachment that crosses an exec: the old image describes it in a token, keeps the descriptors
//! open on which its locks lie, and the new image takes over the same slot, descriptions and locks.
//!
//! CRASH: a process that ends between the two is dead like any other; so are operations of the old
//! image's threads, which the new one recovers first.

use crate::Mode;
use crate::attach::real_path;
use crate::error::{ErrorKind, VolumeError};
use crate::layout::{GROWTH_FACTOR, HEADER_EPOCH, HEADER_FORMAT, RESERVE_MAX, RuntimeLayout};
use crate::liveness::{self, Liveness, REGION_READERS, REGION_WRITERS, share_region};
use crate::process::{SLOT_LIVE, SlotState};
use crate::reading;
use crate::superblock;
use crate::volume::{Parts, Volume};
use pmem::{Class, OpenOptions, Region};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Volume {
    /// Makes the attachment survive an exec; gives the token for [`resume`].
    pub(crate) fn prepare_exec(&self) -> Result<String, Errno> {
        let path = self.region.path().map(|path| real_path(self.region.fd(), path));
        let path = path.ok_or(Errno::OPNOTSUPP)?;
        let path = path.to_str().ok_or(Errno::INVAL)?;
        self.liveness.survive_exec(self.map_descriptors(), true)?;
        Ok(format!(
            "3:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{path}",
            self.liveness.descriptor(),
            self.liveness.lent_anchor(),
            self.region.fd(),
            self.shadow_descriptor(),
            self.slot(),
            self.slot_generation(),
            self.epoch,
            self.mode,
            u8::from(self.read_only),
            u8::from(self.local.has_locked.load(Ordering::Relaxed)),
            self.region.class(),
        ))
    }

    /// The exec failed: as before.
    pub(crate) fn undo_exec(&self) {
        // Setting a flag of an open descriptor cannot fail.
        let _ = self.liveness.survive_exec(self.map_descriptors(), false);
    }

    fn map_descriptors(&self) -> [RawFd; 2] {
        [self.region.fd(), self.shadow_descriptor()]
    }
}

/// A token, taken apart.
struct Token<'a> {
    live: RawFd,
    anchor: RawFd,
    region: RawFd,
    /// A reader's; else -1.
    shadow: RawFd,
    slot: u32,
    generation: u32,
    epoch: u32,
    mode: Mode,
    read_only: bool,
    has_locked: bool,
    class: Class,
    path: &'a Path,
}

impl<'a> Token<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(13, ':');
        if parts.next()? != "3" {
            return None;
        }
        Some(Self {
            live: parts.next()?.parse().ok()?,
            anchor: parts.next()?.parse().ok()?,
            region: parts.next()?.parse().ok()?,
            shadow: parts.next()?.parse().ok()?,
            slot: parts.next()?.parse().ok()?,
            generation: parts.next()?.parse().ok()?,
            epoch: parts.next()?.parse().ok()?,
            mode: parts.next()?.parse().ok()?,
            read_only: parts.next()? == "1",
            has_locked: parts.next()? == "1",
            class: parts.next()?.parse().ok()?,
            path: Path::new(parts.next()?),
        })
    }
}

/// A descriptor of the old image, if it is still there and of the file at `path` (`None`: any).
fn inherited(number: RawFd, path: Option<&Path>) -> Option<OwnedFd> {
    // SAFETY: used for calls that fail if the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(u32::try_from(number).ok()? as RawFd) };
    let found = rustix::fs::fstat(borrowed).ok()?;
    let same = match path.map(rustix::fs::stat) {
        Some(Ok(stat)) => (stat.st_dev, stat.st_ino) == (found.st_dev, found.st_ino),
        // Nobody but the old image put a region at this number.
        Some(Err(errno)) => errno == Errno::ACCESS && found.st_size > 0,
        None => true,
    };
    if !same || rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).is_err() {
        return None;
    }
    // SAFETY: the old image kept it open for this one, and nothing else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The maps of the region and of what is volatile, and the byte of the region that is held.
fn maps(token: &Token<'_>) -> Result<([Arc<Region>; 2], i64), VolumeError> {
    let path = token.path;
    let fail = |error| VolumeError::region("take over", path, &error);
    if token.shadow >= 0 {
        let gone = |what| VolumeError::system("take over", path, what, Errno::BADF);
        let region = inherited(token.region, Some(path)).ok_or_else(|| gone("its descriptor"))?;
        let shadow = inherited(token.shadow, None).ok_or_else(|| gone("its shadow"))?;
        let region = Region::reading(region, path).map_err(fail)?;
        let shadow = reading::adopt_shadow(shadow).map_err(fail)?;
        return Ok(([Arc::new(region), Arc::new(shadow)], REGION_READERS));
    }
    let reserve = rustix::fs::stat(path)
        .map_or(0, |stat| (stat.st_size as u64).saturating_mul(GROWTH_FACTOR - 1).min(RESERVE_MAX));
    let class = Some(token.class);
    let open = OpenOptions { write: true, force_class: class, reserve, ..OpenOptions::default() };
    let region = match inherited(token.region, Some(path)) {
        Some(fd) => Region::adopt(fd, path, &open),
        None => Region::open(path, &open),
    };
    let region = Arc::new(region.map_err(fail)?);
    Ok(([Arc::clone(&region), region], REGION_WRITERS))
}

/// The anchor directory: a reader's is where his liveness file is.
fn anchor(token: &Token<'_>, region: &Region, uuid: &str) -> Result<PathBuf, Errno> {
    if token.shadow < 0 {
        return liveness::anchor_path(region.fd(), token.path, uuid);
    }
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", token.live), Vec::new())?;
    let file = PathBuf::from(OsString::from_vec(link.into_bytes()));
    file.parent().map(Path::to_owned).ok_or(Errno::STALE)
}

/// Takes over, in a new program image, the attachment that the old one prepared with
/// `exec_prepare`: same slot, same descriptions, same locks.
pub fn resume(token: &str) -> Result<Arc<Volume>, VolumeError> {
    let stale = |path: &Path, found: &str| {
        let advice = "start the program anew with `solera run`";
        VolumeError::new(ErrorKind::Invalid, "take over", path, found, advice)
    };
    let Some(token) = Token::parse(token) else {
        return Err(stale(Path::new("an attachment"), "the token is not one"));
    };
    let path = token.path;
    let system = |what: &str, errno| VolumeError::system("take over", path, what, errno);
    let ([region, volatile], byte) = maps(&token)?;
    let superblock = superblock::read(&region, path, "take over")?.superblock;
    let directory =
        anchor(&token, &region, &superblock.uuid()).map_err(|errno| system("its kind", errno))?;
    let liveness = Liveness::inherit(token.live, &directory, token.slot)
        .map_err(|errno| system("the inherited liveness descriptor", errno))?;
    share_region(region.fd(), byte).map_err(|errno| system("locking it", errno))?;
    let volume = Volume::assemble(Parts {
        region,
        volatile,
        superblock,
        epoch: token.epoch,
        mode: token.mode,
        read_only: token.read_only,
        liveness,
    });
    let word = |at| volume.rt.load(at).map_err(|fault| system("its runtime", fault.into()));
    if word(HEADER_FORMAT)? != RuntimeLayout::format()
        || word(HEADER_EPOCH)? != u64::from(token.epoch)
    {
        return Err(stale(path, "the volume's runtime is another one by now"));
    }
    let mine = SlotState { state: SLOT_LIVE, generation: token.generation };
    if volume.slot_state(token.slot).map_err(|errno| system("its slot", errno))? != mine {
        return Err(stale(path, "the slot of the old image was given up"));
    }
    volume.set_slot(token.slot, token.generation);
    volume.local.anchor.store((token.anchor + 1).max(0) as u32, Ordering::Relaxed);
    volume.local.has_locked.store(token.has_locked, Ordering::Relaxed);
    // Threads of the old image ended inside their calls.
    volume.set_leaving();
    volume.begin_idle().map_err(|errno| system("its slot", errno))?;
    volume.bury_own_operations().map_err(|errno| system("recovering its calls", errno))?;
    volume.set_attached();
    Ok(Arc::new(volume))
}
