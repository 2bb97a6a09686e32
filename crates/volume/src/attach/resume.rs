//! An attachment that crosses an exec: the old image describes it in a token, keeps the descriptors
//! open on which its locks lie, and the new image takes over the same slot, descriptions and locks.
//!
//! CRASH: a process that ends between the two is dead like any other; so are operations of the old
//! image's threads, which the new one recovers first.

use crate::Mode;
use crate::attach::{opening, pager, read_only, real_path, slow_memory};
use crate::medium::Parts;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{HEADER_EPOCH, HEADER_FORMAT, RuntimeLayout};
use crate::medium::superblock;
use crate::process::liveness::{self, Liveness, REGION_READERS, REGION_WRITERS, share_region};
use crate::process::{SLOT_LIVE, SlotState};
use crate::volume::Volume;
use emulation::Model;
use pmem::{Class, Region};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Volume {
    /// What happened to the name of the volume's file since it was attached, for people: the file
    /// was removed under it, or another one put in its place.
    pub fn lost_name(&self) -> Option<String> {
        let path = self.region.path()?;
        // SAFETY: the region's descriptor is open as long as the region.
        let own = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(self.region.fd()) }).ok()?;
        let what = match rustix::fs::stat(path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino) => return None,
            Ok(stat) => format!("replaced by another file (of {} bytes)", stat.st_size),
            Err(Errno::NOENT) => "removed".to_owned(),
            Err(_) => return None,
        };
        Some(format!(
            "the file of the volume {} ({} bytes) was {what} while in use: this program goes on \
             with the old one, which is gone when the last program ends; copy out what is needed, \
             then start anew",
            path.display(),
            self.region.len()
        ))
    }

    /// Makes the attachment survive an exec; gives the token for [`resume`].
    pub(crate) fn prepare_exec(&self) -> Result<String, Errno> {
        let path = self.region.path().map(|path| real_path(self.region.fd(), path));
        let path = path.ok_or(Errno::OPNOTSUPP)?;
        let path = path.to_str().ok_or(Errno::INVAL)?;
        // SAFETY: the region's descriptor is open as long as the region.
        let file = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(self.region.fd()) })?;
        self.liveness.survive_exec(self.map_descriptors(), true)?;
        Ok(format!(
            "5:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{}:{path}",
            self.liveness.descriptor(),
            self.liveness.lent_anchor(),
            self.region.fd(),
            self.shadow_descriptor(),
            self.slot(),
            self.slot_generation(),
            self.epoch,
            self.mode,
            u8::from(self.is_read_only()),
            u8::from(self.has_locked.load(Ordering::Relaxed)),
            self.region.class(),
            file.st_dev,
            file.st_ino,
            self.region.len(),
            self.local.openings.survive_exec(),
        ))
    }

    /// The exec failed: as before.
    pub(crate) fn undo_exec(&self) {
        // Setting a flag of an open descriptor cannot fail.
        let _ = self.liveness.survive_exec(self.map_descriptors(), false);
        self.local.openings.undo_exec();
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
    /// The region's device and inode number.
    file: (u64, u64),
    /// Its bytes.
    length: u64,
    /// What keeps watched files open for the kernel.
    openings: &'a str,
    path: &'a Path,
}

impl<'a> Token<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(17, ':');
        if parts.next()? != "5" {
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
            file: (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?),
            length: parts.next()?.parse().ok()?,
            openings: parts.next()?,
            path: Path::new(parts.next()?),
        })
    }
}

/// A descriptor of the old image, if it is still there and of this file (`None`: any).
fn inherited(number: RawFd, file: Option<(u64, u64)>) -> Option<OwnedFd> {
    // SAFETY: used for calls that fail if the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(u32::try_from(number).ok()? as RawFd) };
    let found = rustix::fs::fstat(borrowed).ok()?;
    let same = file.is_none_or(|file| file == (found.st_dev, found.st_ino));
    if !same || rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).is_err() {
        return None;
    }
    // SAFETY: the old image kept it open for this one, and nothing else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The maps of the region and of what is volatile, and the byte of the region that is held.
fn maps(token: &Token<'_>, model: Model) -> Result<([Arc<Region>; 2], i64), VolumeError> {
    let path = token.path;
    let fail = |error| VolumeError::region("take over", path, &error);
    if token.shadow >= 0 {
        let gone = |what| VolumeError::system("take over", path, what, Errno::BADF);
        let region =
            inherited(token.region, Some(token.file)).ok_or_else(|| gone("its descriptor"))?;
        let shadow = inherited(token.shadow, None).ok_or_else(|| gone("its shadow"))?;
        let region = Region::reading(region, path).map_err(fail)?;
        let shadow = read_only::adopt_shadow(shadow).map_err(fail)?;
        return Ok(([Arc::new(region), Arc::new(shadow)], REGION_READERS));
    }
    let open = opening::options(path, Some(token.class), model);
    let region = match inherited(token.region, Some(token.file)) {
        Some(fd) => Region::adopt(fd, path, &open),
        None => Region::open(path, &open),
    };
    let mut region = region.map_err(fail)?;
    pager::give(&mut region, None, path, "take over")?;
    let region = Arc::new(region);
    Ok(([Arc::clone(&region), region], REGION_WRITERS))
}

/// The anchor directory: where the liveness file is, whatever the region is called by now.
fn anchor(token: &Token<'_>, region: &Region, uuid: &str) -> Result<PathBuf, Errno> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", token.live), Vec::new());
    let file = link.map(|link| PathBuf::from(OsString::from_vec(link.into_bytes())));
    match file.as_deref().map(Path::parent) {
        Ok(Some(directory)) if directory.is_absolute() => Ok(directory.to_owned()),
        _ if token.shadow >= 0 => Err(Errno::STALE),
        _ => liveness::anchor_path(region.fd(), token.path, uuid),
    }
}

/// Refuses a region that has lost its end since the old image looked at it.
fn check_length(token: &Token<'_>) -> Result<(), VolumeError> {
    // SAFETY: used for a call that fails if the number is not open.
    let Ok(found) = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(token.region.max(0)) })
    else {
        return Ok(());
    };
    let (before, now) = (token.length, found.st_size as u64);
    if (found.st_dev, found.st_ino) != token.file || found.st_rdev != 0 || now >= before {
        return Ok(());
    }
    let path = token.path;
    let found = format!("its file was cut from {before} to {now} bytes while in use");
    let advice = format!(
        "end the programs that use it, then `truncate --size {before} {0}` and `solera fsck \
         --salvage {0}`, or restore it from a copy",
        path.display()
    );
    Err(VolumeError::new(ErrorKind::Truncated, "take over", path, found, advice))
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
    let model = slow_memory::model("take over", path)?;
    check_length(&token)?;
    let ([region, volatile], byte) = maps(&token, model)?;
    let superblock = superblock::read(&region, path, "take over")?.superblock;
    let directory =
        anchor(&token, &region, &superblock.uuid()).map_err(|errno| system("its kind", errno))?;
    let recovered = token.shadow >= 0
        && read_only::take_recovered(&region, &directory)
            .map_err(|errno| system("what was recovered in memory", errno))?;
    let liveness = Liveness::inherit(token.live, &directory, token.slot)
        .map_err(|errno| system("the inherited liveness descriptor", errno))?;
    share_region(region.fd(), byte).map_err(|errno| system("locking it", errno))?;
    let volume = Volume::assemble(
        Parts {
            region,
            volatile,
            superblock,
            epoch: token.epoch,
            mode: token.mode,
            read_only: token.read_only,
        },
        liveness,
    );
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
    volume.local.recovered_view.store(recovered, Ordering::Relaxed);
    volume.set_slot(token.slot, token.generation);
    volume.local.anchor.store((token.anchor + 1).max(0) as u32, Ordering::Relaxed);
    volume.has_locked.store(token.has_locked, Ordering::Relaxed);
    // Threads of the old image ended inside their calls.
    volume.set_leaving();
    volume.begin_idle().map_err(|errno| system("its slot", errno))?;
    volume.recover_own_operations().map_err(|errno| system("recovering its calls", errno))?;
    volume.set_attached();
    volume.slow_down(model);
    volume.local.openings.take_over(token.openings);
    volume.local.watches.store(volume.has_watches(), Ordering::Relaxed);
    Ok(Arc::new(volume))
}
