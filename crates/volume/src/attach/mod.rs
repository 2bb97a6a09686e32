//! Coming and going: attach, detach, and attachments that cross an exec.
//!
//! Order of a *first* attach (no process holds a slot's byte), under the attach lock:
//!
//! 1. a torn superblock copy is repaired; the state block says the next epoch, dirty. Before that
//!    fence nothing is changed; after it every volatile word of an earlier epoch is void;
//! 2. the runtime's header and operation records are cleared (all else is tagged by epoch);
//! 3. a slot is taken; now this process can run operations;
//! 4. if the volume was clean and its saved free map proves true, that is all. Otherwise the lanes
//!    are undone and the free map is rebuilt from what the root reaches.
//!
//! CRASH: at any point the next first attach starts again at 1: it finds the state dirty.
//!
//! Which attach is first is decided on the region, not in the anchor directory, of which there can
//! be two (the volume was renamed, or has two names): a first attach needs the writers' byte of the
//! region exclusively, and shares it only then. So there is never a second runtime beside one in
//! use. It then notes in the runtime which anchor directory it uses (`anchor.rs`), so that
//! processes find it by any name of the region.
//!
//! A later attach finds the runtime of this epoch, takes a slot, and recovers the slots of the
//! dead. The last detach saves the free map and then says clean.

pub(crate) mod anchor;
mod eras;
pub(crate) mod format;
pub(crate) mod inspection;
pub(crate) mod offline_check;
mod opening;
pub(crate) mod output_file;
pub mod pager;
mod read_only;
pub(crate) mod remove;
pub(crate) mod resume;
pub(crate) mod slow_memory;
pub(crate) mod snapshot;
mod snapshot_passes;
pub(crate) mod upgrade;
pub(crate) mod view;

use crate::Mode;
use crate::attach::anchor::Anchor;
use crate::inject::{Bug, injected};
use crate::medium::Parts;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    HEADER_EPOCH, HEADER_FORMAT, HEADER_FREE, HEADER_SHARED, HEADER_SIZE, OP_RECORD,
    RUNTIME_HEADER, RuntimeLayout, STATE_CLEAN, STATE_DIRTY, STATE_REPAIR, Superblock,
};
use crate::medium::runtime::Runtime;
use crate::medium::superblock;
use crate::process::liveness::{
    self, AttachGuard, Liveness, Openness, REGION_READERS, REGION_WRITERS, leave_region,
    own_region, region_held, share_region, stays_read,
};
use crate::process::{SLOT_LIVE, SlotState};
use crate::recovery::Recovery;
use crate::space::backing_store;
use crate::volume::Volume;
use crate::watch;
use pmem::{Class, Hook, Pager, Region};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often an anchor directory that vanishes while it is being opened is tried again.
pub(crate) const TRIES: u32 = 8;
/// How often, once a millisecond, an attach looks again at a region whose holder it does not know.
const LOOKS: u32 = 5_000;

/// How often of these an anchor directory that is not seen is looked for.
const UNSEEN: u32 = 50;

/// How a volume is to be attached.
#[derive(Clone, Default)]
pub struct AttachOptions {
    /// What this process's writes promise for a power cut.
    pub mode: Mode,
    /// Change nothing: every modifying call gives `EROFS`.
    pub read_only: bool,
    /// Take this class whatever is detected; `page` must be asked for so.
    pub class: Option<Class>,
    /// Hears of everything that this process stores: for tests that count, trace, or die.
    pub hook: Option<Arc<dyn Hook>>,
    /// Brings pages of the region that are absent.
    pub pager: Option<Arc<dyn Pager>>,
    /// What a crash left is recovered by this thread alone: in a process where the C library may
    /// not be asked for another one, as inside its own `malloc`.
    pub alone: bool,
}

impl std::fmt::Debug for AttachOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AttachOptions")
            .field("mode", &self.mode)
            .field("read_only", &self.read_only)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// Attaches the volume in a region that no other process sees: for tests and the crash explorer.
pub fn attach_region(region: Region, options: &AttachOptions) -> Result<Arc<Volume>, VolumeError> {
    let path = region.path().unwrap_or(Path::new("(memory)")).to_owned();
    let found = superblock::read(&region, &path, "attach")?;
    let attempt =
        Attempt { path: &path, options, read_only: options.read_only, purpose: Purpose::Use };
    let mut region = region;
    if let Some(pager) = &options.pager {
        region.set_pager(Arc::clone(pager));
    }
    attempt.first(Arc::new(region), &found, Liveness::private()).map(Arc::new)
}

/// Attaches the volume at `path`, beside all processes that have. Read-only this changes nothing:
/// what a crash left open is undone in a view of the process's own.
pub fn attach(path: &Path, options: &AttachOptions) -> Result<Arc<Volume>, VolumeError> {
    attach_for(path, options, Purpose::Use).or_else(|error| match error.kind() {
        ErrorKind::Unclean => read_only::attach(path, options),
        _ => Err(error),
    })
}

/// As [`attach`], as far as that is permitted: a user that may not write it reads it.
pub fn attach_permitted(path: &Path, options: &AttachOptions) -> Result<Arc<Volume>, VolumeError> {
    attach(path, options).or_else(|error| match error.errno() {
        errno if no_permission(errno) && !options.read_only => {
            attach(path, &AttachOptions { read_only: true, ..options.clone() })
        }
        _ => Err(error),
    })
}

/// Attaches the volume read-only, for a check: its region may have lost its end.
pub(crate) fn attach_to_check(path: &Path) -> Result<Arc<Volume>, VolumeError> {
    let options = AttachOptions { read_only: true, ..AttachOptions::default() };
    attach_for(path, &options, Purpose::Check)
}

/// Attaches it as the only one, without recovering it: the free map is the saved one, or empty.
pub(crate) fn attach_to_repair(path: &Path) -> Result<Arc<Volume>, VolumeError> {
    attach_for(path, &AttachOptions::default(), Purpose::Repair)
}

/// The purpose of an attach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Use,
    /// The region may be shorter than the volume: what is missing will be told.
    Check,
    /// Exclusive, and nothing is recovered.
    Repair,
}

fn attach_for(
    path: &Path,
    options: &AttachOptions,
    purpose: Purpose,
) -> Result<Arc<Volume>, VolumeError> {
    let model = slow_memory::model("attach", path)?;
    let mut open = opening::options(path, options.class, model);
    let region = match Region::open(path, &open) {
        Err(error) if options.read_only && no_permission(error.errno()) => {
            return read_only::attach(path, options);
        }
        Err(error) if options.read_only && error.needs_class() => {
            // A reader disturbs no process; beside writers, it reads what they see.
            if purpose == Purpose::Use
                && let Some(volume) = read_only::attach_alone(path, options)?
            {
                return Ok(volume);
            }
            open.allow_page = true;
            Region::open(path, &open)
        }
        result => result,
    };
    let mut region = region.map_err(|error| VolumeError::region("attach", path, &error))?;
    if let Some(hook) = &options.hook {
        region.set_hook(Arc::clone(hook));
    }
    pager::give(&mut region, options.pager.as_ref(), path, "attach")?;
    let region = Arc::new(region);
    let path = &real_path(region.fd(), path);
    let attempt = Attempt { path, options, read_only: options.read_only, purpose };
    let first_look = attempt.superblock(&region)?;
    pager::check(first_look.superblock.incompat, &region, path, "attach")?;
    let unknown = superblock::read_only_features(&first_look.superblock);
    if unknown != 0 {
        return read_past(unknown, path, options);
    }
    let system = |what: &str, errno| VolumeError::system("attach", path, what, errno);
    let directory = liveness::anchor_path(region.fd(), path, &first_look.superblock.uuid())
        .map_err(|errno| system("its kind", errno))?;
    let (beside, mut directory, mut unseen) = (directory.clone(), directory, 0);
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if region_held(region.fd(), REGION_WRITERS).map_err(|errno| system("its locks", errno))? {
            match Anchor::find(&region, &first_look.superblock, &beside) {
                Anchor::At(found) => directory = found,
                Anchor::Elsewhere(noted) if unseen == UNSEEN => {
                    return Err(anchor::elsewhere("attach", path, &beside, &noted));
                }
                // A first one has not noted it yet.
                Anchor::Elsewhere(_) => {
                    unseen += 1;
                    continue;
                }
            }
        } else {
            directory.clone_from(&beside);
        }
        let liveness =
            Liveness::open("attach", path, &directory, Openness::of_region(region.fd()))?;
        let guard = match liveness.lock_attach() {
            Ok(guard) => guard,
            Err(Errno::STALE) => continue,
            Err(errno) => return Err(system("the lock of its anchor directory", errno)),
        };
        // The lock is not held in between: a dead process's child may need it to take its slot.
        if let Some(others) = attempt.share(&region, &liveness)? {
            let (volume, stays) = attempt.locked(&region, liveness, others, &guard)?;
            drop(guard); // One that may not stay leaves, which takes the lock.
            stays?;
            volume.slow_down(model);
            return Ok(Arc::new(volume));
        }
    }
    Err(liveness::gone("attach", path, &directory))
}

/// Attaches a volume with features that this build does not know, to read it as it lies.
fn read_past(
    features: u32,
    path: &Path,
    options: &AttachOptions,
) -> Result<Arc<Volume>, VolumeError> {
    if options.read_only {
        return read_only::attach(path, options);
    }
    let found = format!("it has features ({features:#x}) that this build can only read past");
    let advice = "attach it read-only, or use a newer release";
    Err(VolumeError::new(ErrorKind::Unsupported, "attach", path, found, advice))
}

/// Recovers what dead processes left on the volume at `path`; gives the processes that have it
/// attached. If none has, it is left in order.
pub fn detach_dead(path: &Path) -> Result<Vec<u32>, VolumeError> {
    detach_dead_telling(path).map(|(pids, _)| pids)
}

/// As [`detach_dead`]; also what had to be recovered, if this was the first to come after an
/// unclean end.
pub fn detach_dead_telling(path: &Path) -> Result<(Vec<u32>, Option<Recovery>), VolumeError> {
    let volume = attach(path, &AttachOptions::default())?;
    let recovery = volume.recovery();
    let system = |what: &str, errno| VolumeError::system("detach", path, what, errno);
    let attached = volume.attached().map_err(|errno| system("its process slots", errno))?;
    let others = attached.iter().filter(|other| other.slot != volume.slot());
    let pids = others.map(|other| other.pid).collect();
    volume.leave().map_err(|errno| system("leaving it", errno))?;
    Ok((pids, recovery))
}

/// Whether a process has the volume attached for writing.
pub(crate) fn is_attached(path: &Path) -> bool {
    // A fifo is not waited for.
    let flags =
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .is_ok_and(|file| region_held(file.as_raw_fd(), REGION_WRITERS) == Ok(true))
}

pub(crate) fn no_permission(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::ROFS)
}

/// The path without symlinks, as the kernel sees it; all processes must agree on the anchor.
pub(crate) fn real_path(fd: RawFd, path: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let link = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new());
    if let Ok(found) = link {
        let found = PathBuf::from(std::ffi::OsString::from_vec(found.into_bytes()));
        if found.is_absolute() && rustix::fs::stat(&found).is_ok() {
            return found;
        }
    }
    if path.is_absolute() {
        return path.to_owned();
    }
    let cwd = rustix::process::getcwd(Vec::new()).map(std::ffi::CString::into_bytes);
    PathBuf::from(std::ffi::OsString::from_vec(cwd.unwrap_or_default())).join(path)
}

/// One call of attach.
struct Attempt<'a> {
    path: &'a Path,
    options: &'a AttachOptions,
    read_only: bool,
    purpose: Purpose,
}

impl Attempt<'_> {
    fn superblock(&self, region: &Region) -> Result<superblock::Found, VolumeError> {
        if self.purpose == Purpose::Check {
            superblock::read_to_check(region, self.path)
        } else {
            superblock::read(region, self.path, "attach")
        }
    }

    fn system(&self, what: &str, errno: Errno) -> VolumeError {
        VolumeError::system("attach", self.path, what, errno)
    }

    fn fail(&self, kind: ErrorKind, found: impl Into<String>, advice: &str) -> VolumeError {
        VolumeError::new(kind, "attach", self.path, found, advice)
    }

    /// Under the attach lock, with the region's byte; and whether all is here that must stay.
    fn locked(
        &self,
        region: &Arc<Region>,
        liveness: Liveness,
        others: bool,
        _guard: &AttachGuard,
    ) -> Result<(Volume, Result<(), VolumeError>), VolumeError> {
        let found = self.superblock(region)?;
        let joins = others || left_in_flight(region, &found.superblock, &liveness);
        let volume = if joins && self.purpose == Purpose::Repair {
            let advice = "end the programs that use it (`solera detach` lists them)";
            return Err(self.fail(ErrorKind::InUse, "others have it attached", advice));
        } else if joins {
            self.join(Arc::clone(region), found.superblock, liveness)?
        } else {
            self.first(Arc::clone(region), &found, liveness)?
        };
        let stays = volume.say_what_stays();
        Ok((volume, stays.map_err(|errno| self.system("which memory stays", errno))))
    }

    /// Shares the writers' byte of the region; says whether there are others to join. `None`: a
    /// process without a slot in this anchor directory holds it. That is a dying one (the kernel
    /// drops the slot's lock first) or a child that has not got its slot yet, both for a moment; or
    /// one that uses another anchor directory.
    ///
    /// The first one takes the byte exclusively, then looks at the readers', as they do the other
    /// way round: one of the two sees the other.
    fn share(&self, region: &Region, liveness: &Liveness) -> Result<Option<bool>, VolumeError> {
        let locks = |errno| self.system("its locks", errno);
        let alone = || liveness.anyone_but(None).map(|other| other.is_none()).map_err(locks);
        let share = || match share_region(region.fd(), REGION_WRITERS) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.system("locking it", errno)),
        };
        let held = || region_held(region.fd(), REGION_WRITERS).map_err(locks);
        let mut strangers = 0;
        for _ in 0..TRIES {
            if !alone()? {
                // A process with a slot holds the region, and releases it after the slot.
                if !held()? && !alone()? && !held()? {
                    strangers += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                if !share()? {
                    return Ok(None);
                }
                // Had the last of them ended before, another runtime could be in force by now. From
                // here on none can come up.
                if !alone()? {
                    return Ok(Some(true));
                }
                leave_region(region.fd(), REGION_WRITERS).map_err(locks)?;
                return Ok(None);
            }
            if stays_read(region.fd()).map_err(locks)? {
                break;
            }
            if !own_region(region.fd(), REGION_WRITERS).map_err(|e| self.system("locking it", e))? {
                return Ok(None);
            }
            if !region_held(region.fd(), REGION_READERS).map_err(locks)? {
                return Ok(share()?.then_some(false));
            }
            leave_region(region.fd(), REGION_WRITERS).map_err(locks)?;
        }
        if strangers == TRIES {
            return Err(self.another_volumes_anchor(liveness));
        }
        let found =
            "processes that may only read it are using it, and it must not change beneath them";
        Err(self.fail(ErrorKind::InUse, found, "wait until they have ended"))
    }

    /// The volume that had this name before is in use, with the anchor directory of this name.
    fn another_volumes_anchor(&self, liveness: &Liveness) -> VolumeError {
        let others = liveness.others().unwrap_or_default();
        let pids: Vec<_> = others.iter().map(|(_, pid)| pid.to_string()).collect();
        let found = format!(
            "its anchor directory {} is that of another volume in use, which was moved or replaced \
             (process {})",
            liveness.directory().unwrap_or(Path::new("")).display(),
            if pids.is_empty() { "unknown".to_owned() } else { pids.join(", ") }
        );
        let advice = "end the programs that use that one, or give this one another name";
        self.fail(ErrorKind::InUse, found, advice)
    }

    fn first(
        &self,
        region: Arc<Region>,
        found: &superblock::Found,
        liveness: Liveness,
    ) -> Result<Volume, VolumeError> {
        let state = superblock::read_state(&region).map(|(state, _)| state);
        let clean = state.is_ok_and(|state| state.clean == STATE_CLEAN);
        if self.read_only && !clean {
            let advice = "attach it for writing once, which recovers it, or run `solera fsck`";
            return Err(self.fail(ErrorKind::Unclean, "it was not left in order", advice));
        }
        let epoch = if let Ok(state) = state {
            state.epoch.wrapping_add(1).max(1)
        } else {
            // Both slots are damaged: any number that was hardly used before will do.
            let mut bytes = [0; 4];
            superblock::random(&mut bytes).map_err(|e| self.system("random bytes", e))?;
            u32::from_le_bytes(bytes) | 1 << 30
        };
        let volume = Volume::assemble(
            Parts {
                volatile: Arc::clone(&region),
                region,
                superblock: found.superblock,
                epoch,
                mode: self.options.mode,
                read_only: self.read_only,
            },
            liveness,
        );
        // A repair that did not end is still to be done, also after other attaches.
        let unrepaired = state.is_ok_and(|state| state.clean == STATE_REPAIR);
        let dirty = if unrepaired { STATE_REPAIR } else { STATE_DIRTY };
        volume.unrepaired.store(unrepaired, Ordering::Relaxed);
        // What stays may be absent all the same: a host died that was bringing it, or a move. Each
        // step may be done again, and holds nothing that others wait for.
        let step = |act: &dyn Fn() -> Result<(), Errno>, what: &str| {
            volume.with_absent(act).map_err(|errno| self.system(what, errno))
        };
        // Where there is no memory for them, calls that need them say so.
        let _ = backing_store::provide_fixed(&volume.region, &volume.superblock);
        step(&|| superblock::repair(&volume.region, found), "repairing its superblock")?;
        if clean {
            // CRASH: still clean; the next attach repairs what is left of this.
            step(&|| volume.repair_lanes(), "repairing its lanes")?;
        }
        if !injected(Bug::NeverDirty) {
            let mark = || superblock::write_state(&volume.region, epoch, dirty, 0);
            step(&mark, "marking it in use")?;
        }
        let before = if clean { volume.era_left() } else { 0 };
        step(&|| volume.clear_runtime(), "clearing its runtime")?;
        step(&|| volume.begin_era(before), "clearing its runtime")?;
        step(&|| volume.note_anchor(), "noting its anchor directory")?;
        if !clean {
            volume.liveness.clear_carriers();
            watch::clear_left(&volume);
        }
        step(&|| volume.enter(), "taking a process slot")?;
        let crc = state.map_or(0, |state| state.free_map_crc);
        // One that cannot be read is built anew, as one that is not what was saved.
        let saved = clean && volume.load_free_map(crc) == Ok(true);
        if self.purpose == Purpose::Repair {
            if !saved {
                let forget = || volume.forget_kept().and_then(|()| volume.forget_free_map());
                step(&forget, "its free map")?;
            }
        } else if unrepaired {
            step(&|| volume.mark_damaged(), "its runtime")?;
        } else if saved {
            volume.local.saved.store(u64::from(crc) + 1, Ordering::Relaxed);
        } else {
            step(&|| volume.recover_all(self.options.alone), "recovering it")?;
        }
        volume.set_attached();
        Ok(volume)
    }

    fn join(
        &self,
        region: Arc<Region>,
        superblock: Superblock,
        liveness: Liveness,
    ) -> Result<Volume, VolumeError> {
        let state = superblock::read_state(&region);
        let (state, _) = state.map_err(|errno| self.system("its state", errno))?;
        let epoch = state.epoch;
        let parts = Parts {
            volatile: Arc::clone(&region),
            region,
            superblock,
            epoch,
            mode: self.options.mode,
            read_only: self.read_only,
        };
        let volume = Volume::assemble(parts, liveness);
        let word =
            |at| volume.rt.load(at).map_err(|fault| self.system("its runtime", fault.into()));
        let same_build = word(HEADER_FORMAT)? == RuntimeLayout::format();
        if !same_build || word(HEADER_EPOCH)? != u64::from(epoch) || state.clean == STATE_CLEAN {
            let others = volume.liveness.others().unwrap_or_default();
            let pids: Vec<_> = others.iter().map(|(_, pid)| pid.to_string()).collect();
            let found = format!(
                "processes of another build of Solera use it (process {})",
                if pids.is_empty() { "unknown".to_owned() } else { pids.join(", ") }
            );
            let advice = "let them end (their detach leaves the volume in order), then try again";
            return Err(self.fail(ErrorKind::InUse, found, advice));
        }
        let step = |act: &dyn Fn() -> Result<(), Errno>, what: &str| {
            volume.with_absent(act).map_err(|errno| self.system(what, errno))
        };
        step(&|| volume.share_epoch(), "its runtime")?;
        step(&|| volume.enter(), "taking a process slot")?;
        step(&|| volume.join_others(), "waiting for another process's call")?;
        volume
            .recover_the_dead()
            .map_err(|errno| self.system("recovering dead processes", errno))?;
        volume.set_attached();
        if volume.has_orphans().is_ok_and(|any| any) {
            let what = "closing what no process holds any more";
            volume.drop_orphans().map_err(|errno| self.system(what, errno))?;
        }
        Ok(volume)
    }
}

/// Whether the last process left descriptions in flight (and no machine went down since, which
/// would have taken their locks): this build's runtime is still in force.
fn left_in_flight(region: &Arc<Region>, superblock: &Superblock, liveness: &Liveness) -> bool {
    let Ok((state, _)) = superblock::read_state(region) else { return false };
    let layout = RuntimeLayout::of(superblock);
    let runtime = Runtime::new(Arc::clone(region), superblock.runtime, layout);
    let says = |at, value| runtime.load(at) == Ok(value);
    state.clean == 0
        && says(HEADER_FORMAT, RuntimeLayout::format())
        && says(HEADER_EPOCH, u64::from(state.epoch))
        && liveness.is_any_carried()
}

impl Volume {
    /// Clears what is not tagged by epoch, and says for which epoch and build the runtime is. The
    /// counters of the free map stay: they are saved with it.
    pub(crate) fn clear_runtime(&self) -> Result<(), Errno> {
        let (map, base) = self.rt.place();
        let left = self.rt.load(HEADER_FORMAT)?;
        if left != 0 && left != RuntimeLayout::format() {
            self.clear_strange_runtime()?;
        }
        map.shared_zero(base, HEADER_FREE)?;
        map.shared_zero(base + self.rt.layout.ops, self.rt.layout.op_count * OP_RECORD)?;
        self.rt.store(HEADER_SIZE, self.size())?;
        self.rt.store(HEADER_EPOCH, u64::from(self.epoch))?;
        Ok(self.rt.store(HEADER_FORMAT, RuntimeLayout::format())?)
    }

    /// Another build's words mean something else, and may look like tags of this epoch: all of the
    /// range is zeroed, before the header says whose it is. What has no memory is zero.
    fn clear_strange_runtime(&self) -> Result<(), Errno> {
        let (map, base) = self.rt.place();
        let end = base + self.superblock.runtime_length;
        let mut at = map.next_data(base + RUNTIME_HEADER);
        while at < end {
            let piece = map.next_hole_before(at, end);
            map.shared_zero(at, piece - at)?;
            at = map.next_data(piece);
        }
        Ok(())
    }

    /// Takes a process slot.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        self.set_leaving();
        let (slot, generation) = self.take_process_slot()?;
        self.set_slot(slot, generation);
        self.begin_idle()
    }

    /// In a forked child: until a slot is taken nothing of the attachment is this process's.
    pub(crate) fn forget_parent(&self) {
        self.volatile_map().set_alone(false);
        self.standing.detach();
        self.standing.set_remains(false);
        self.finishing.store(false, Ordering::Relaxed);
        self.expects.store(false, Ordering::Relaxed);
        self.has_locked.store(false, Ordering::Relaxed);
        self.set_slot(u32::MAX, 0);
    }

    /// In a forked child for which no slot was prepared: takes one, beside other attached
    /// processes.
    pub(crate) fn rejoin(&self) -> Result<(), Errno> {
        let _guard = self.liveness.lock_attach()?;
        let here = self.liveness.anyone_but(None)?.is_some();
        if !here || self.rt.load(HEADER_EPOCH)? != u64::from(self.epoch) {
            return Err(Errno::STALE);
        }
        self.separate_region();
        self.share_epoch()?;
        self.enter()?;
        self.join_others()?;
        // As each one that comes: where children get killed, nobody else may.
        self.recover_the_dead()?;
        self.note_home()?;
        self.set_attached();
        Ok(())
    }

    /// The volume was not left in order: undoes all lanes and rebuilds the free map. Damage makes
    /// this a read-only attachment; nothing is freed then.
    fn recover_all(&self, alone: bool) -> Result<(), Errno> {
        let mut done = self.recover(alone);
        // The end of a file that was just written may be absent, or what a dead process was
        // bringing. Nothing is held, and each step of a recovery may be done again.
        while let Some(page) = done.as_ref().err().and_then(|error| self.absent_at(*error)) {
            self.bring(page)?;
            done = self.recover(alone);
        }
        match done.map_err(pmem::or_no_memory) {
            Err(Errno::IO) => self.mark_damaged(),
            Err(errno) => Err(errno),
            Ok(done) => {
                // The first and only recovery of this attachment.
                let _ = self.local.recovery.set(done);
                Ok(())
            }
        }
    }

    /// What this attachment had to recover, if the volume was not left in order.
    pub fn recovery(&self) -> Option<Recovery> {
        self.local.recovery.get().copied()
    }

    /// Where carriers lie: a directory that all attached processes agree on.
    pub fn anchor(&self) -> Option<&Path> {
        self.liveness.handing()
    }

    /// The descriptor of it that the old image had lent, if this one took over.
    pub fn inherited_anchor(&self) -> Option<OwnedFd> {
        let fd = self.local.anchor.swap(0, Ordering::Relaxed).checked_sub(1)? as RawFd;
        // SAFETY: the old image kept it open for this one, and nothing else knows of it; if it is
        // not open any more, the call fails.
        let number = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(number, rustix::io::FdFlags::CLOEXEC).ok()?;
        // SAFETY: as above.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Lends the attachment a descriptor of the anchor directory, which stays open as long.
    pub fn lend_anchor(&self, fd: Arc<os::InternalFd>) {
        self.liveness.lend_anchor(fd);
    }

    /// Whether any description is held by descriptors that the kernel carries.
    pub fn anything_in_flight(&self) -> bool {
        self.is_any_in_flight().unwrap_or(true)
    }

    /// Descriptors of this process that belong to the attachment: no other code may close them.
    pub fn internal_descriptors(&self) -> Vec<RawFd> {
        let own = [self.region.fd(), self.liveness.descriptor(), self.shadow_descriptor()];
        own.into_iter().filter(|&fd| fd >= 0).collect()
    }

    /// Detaches: drops every hold of this process. The last one to leave saves the free map and
    /// says clean. `EBUSY` if a thread is still inside a call: then the attachment ends with the
    /// process. No other thread is inside a call: a process that remains as the only one runs
    /// exclusively again at once.
    pub fn leave(&self) -> Result<(), Errno> {
        self.leave_as(true)
    }

    /// As [`Volume::leave`]; `quiet`: no other thread is inside a call. One that is, between
    /// operations, may go on for a moment after the slot was given back: a process that looks at
    /// the slots then (to leave, or to recover a dead one) may find none in use while it does.
    pub(crate) fn leave_as(&self, quiet: bool) -> Result<(), Errno> {
        // The process first: one that shares this one's memory must not end its attachment.
        if !self.is_own_process() {
            return Ok(());
        }
        self.wait_for_children()?;
        if !self.standing.detach() {
            return Ok(());
        }
        self.set_leaving();
        self.wait_for_own_operations()?;
        self.drop_all_holds()?;
        self.end_watches();
        if self.has_orphans()? {
            self.drop_orphans()?;
        }
        let guard = self.liveness.lock_attach();
        let last = self.liveness.anyone_but(Some(self.slot()))?.is_none();
        if last && guard.is_ok() && self.is_reader() {
            self.drop_shadow();
        } else if last && guard.is_ok() {
            self.recover_the_dead()?;
            self.sweep_watches();
            self.refresh_size()?;
            // What the dead held may have become an orphan.
            if self.has_orphans()? {
                self.drop_orphans()?;
            }
            // What is in flight needs this epoch: the next one joins it. An orphan whose byte
            // became free after the last look is not dropped: then the next one recovers.
            if !self.has_orphans()?
                && self.is_alone()?
                && !self.damaged()?
                && !self.sweep_demanded()?
            {
                let crc = if let Some(crc) = self.still_saved()? {
                    crc
                } else {
                    self.return_kept()?;
                    self.save_free_map()?
                };
                self.region
                    .sync_file()
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                self.end_era();
                superblock::write_state(&self.region, self.epoch, STATE_CLEAN, crc)?;
            }
        }
        let mine = SlotState { state: SLOT_LIVE, generation: self.slot_generation() };
        let slots = liveness::lock_slots();
        self.free_slot(self.slot(), mine)?;
        if quiet {
            self.stop_sharing()?;
        }
        self.liveness.release(self.slot())?;
        drop(slots);
        if self.anchor().is_some() {
            leave_region(self.region.fd(), self.region_byte())?;
        }
        self.set_slot(u32::MAX, 0);
        Ok(())
    }

    /// The crc of the free map that this process found at its first attach, if nothing has changed
    /// since: no other process came, and this one had nothing to do.
    fn still_saved(&self) -> Result<Option<u32>, Errno> {
        let shared = self.rt.load(HEADER_SHARED)? == u64::from(self.epoch);
        let saved = self.local.saved.load(Ordering::Relaxed);
        if shared || self.worked.load(Ordering::Relaxed) || saved == 0 {
            return Ok(None);
        }
        Ok(Some((saved - 1) as u32))
    }

    /// Waits a little until no thread of this process is inside an operation.
    fn wait_for_own_operations(&self) -> Result<(), Errno> {
        for _ in 0..1000 {
            let mut busy = self.holds_gate()?;
            for index in 0..self.rt.layout.op_count as u32 {
                let owner = self.operation_owner(index)?;
                busy |= owner.is_some_and(|owner| {
                    owner.slot() == self.slot()
                        && owner.generation() == self.slot_generation() & 0xFFF
                });
            }
            if !busy {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(Errno::BUSY)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.is_own_process() {
            return;
        }
        if !self.standing.is_attached(Ordering::Relaxed) && self.slot() != u32::MAX {
            // Attached in part, or detached: the slot, if it is still this process's, is not used
            // now.
            let _ = self.liveness.release(self.slot());
        }
        // Whatever stands in the way now, the next one to attach finds this process gone.
        let _ = self.leave();
    }
}
