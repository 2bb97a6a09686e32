//! Converts a volume that an earlier build made into what this build would make.
//!
//! What a volume of this version may lack is room: its runtime range has the length that its build
//! needed. It gets the length that a new volume has, of the space before the pool that is spare:
//! the lanes' data areas share what is left, so they get shorter, and move.
//!
//! Order: the volume is attached as by any program, which recovers it; the lanes' records become
//! void, since what they tell of lies in the data areas; it is left in order. Then, with the
//! region's byte of writers alone, and only if it is still in order: what is added is filled with
//! zeros, then the superblock, B and A, says so.
//!
//! CRASH: before the superblock is durable the volume is as it was, with data areas that no record
//! names; after it, it is converted. In between the newer whole copy counts.
//!
//! Locks: the attach lock while the records become void; then the region's byte.

use crate::attach::view::View;
use crate::attach::{AttachOptions, attach, pager};
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    BLOCK, LANE_REDO, LINE, REDO_SLOTS, RUNTIME_SLACK, RuntimeLayout, STATE_CLEAN, Superblock,
};
use crate::medium::superblock;
use crate::process::liveness::{REGION_WRITERS, own_region, stays_read};
use crate::txn::journal::lane_offset;
use crate::volume::Volume;
use pmem::{OpenOptions, Region};
use rustix::io::Errno;
use std::path::Path;

/// What [`upgrade`] does, or would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Upgrade {
    /// The length of the runtime range, and the one that it gets; bytes.
    pub runtime_range: Option<(u64, u64)>,
}

impl Upgrade {
    /// What such a volume lacks.
    fn of(superblock: &Superblock) -> Self {
        let (has, wants) =
            (superblock.runtime_length, RuntimeLayout::of(superblock).length + RUNTIME_SLACK);
        // The least data area is a block a lane, if there was one.
        let spare = superblock.pool - superblock.runtime;
        let kept = if spare - has >= u64::from(superblock.lanes) * BLOCK { BLOCK } else { 0 };
        let most = (spare - u64::from(superblock.lanes) * kept) / BLOCK * BLOCK;
        let gets = wants.min(most);
        Self { runtime_range: (has < gets).then_some((has, gets)) }
    }

    /// Whether the volume is as this build would make it.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Times that it is tried again when others attach the volume meanwhile.
const TRIES: usize = 5;

/// Tells what the volume at `path` lacks, without changing it.
pub fn upgradable(path: &Path) -> Result<Upgrade, VolumeError> {
    let superblock = View::open("upgrade", path)?.found.superblock;
    let unknown = superblock::read_only_features(&superblock);
    if unknown != 0 {
        let found = format!("it has features ({unknown:#x}) that this build does not know");
        let (kind, advice) = (ErrorKind::Unsupported, "use a newer release");
        return Err(VolumeError::new(kind, "upgrade", path, found, advice));
    }
    Ok(Upgrade::of(&superblock))
}

/// Converts the volume at `path`, which no process may have attached; tells what was done.
pub fn upgrade(path: &Path) -> Result<Upgrade, VolumeError> {
    let locks = |errno| system(path, "its locks", errno);
    for _ in 0..TRIES {
        if upgradable(path)?.is_nothing() {
            return Ok(Upgrade::default());
        }
        void_records(path)?;
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let region = Region::open(path, &options);
        let mut region = region.map_err(|error| VolumeError::region("upgrade", path, &error))?;
        pager::give(&mut region, None, path, "upgrade")?;
        if !own_region(region.fd(), REGION_WRITERS).map_err(locks)?
            || stays_read(region.fd()).map_err(locks)?
        {
            return Err(in_use(path));
        }
        if let Some(done) = upgrade_region(&region)? {
            return Ok(done);
        }
    }
    Err(in_use(path))
}

fn in_use(path: &Path) -> VolumeError {
    let advice = "end the programs that use it (`solera detach` lists them)";
    VolumeError::new(ErrorKind::InUse, "upgrade", path, "others have it attached", advice)
}

fn system(path: &Path, what: &str, errno: Errno) -> VolumeError {
    VolumeError::system("upgrade", path, what, errno)
}

/// Recovers the volume, and leaves it in order, with no record that counts.
fn void_records(path: &Path) -> Result<(), VolumeError> {
    let volume = attach(path, &AttachOptions::default())?;
    let failed = |errno| system(path, "making its records void", errno);
    let guard = volume.liveness.lock_attach().map_err(failed)?;
    if !volume.is_alone().map_err(failed)? {
        return Err(in_use(path));
    }
    volume.void_records().map_err(failed)?;
    drop(guard);
    volume.leave().map_err(|errno| system(path, "leaving it", errno))
}

impl Volume {
    /// Makes the records of all lanes void, of a volume that this process has for itself.
    pub fn void_records(&self) -> Result<(), Errno> {
        (0..u64::from(self.superblock.lanes)).try_for_each(|lane| self.void_redo(lane))
    }
}

/// Converts the volume of a region that nobody has attached. `None`: it was not left in order, or
/// has records.
pub fn upgrade_region(region: &Region) -> Result<Option<Upgrade>, VolumeError> {
    let path = region.path().unwrap_or(Path::new("(memory)"));
    let found = superblock::read(region, path, "upgrade")?;
    let upgrade = Upgrade::of(&found.superblock);
    let failed = |errno| system(path, "writing it", errno);
    let Some(lengths) = upgrade.runtime_range else { return Ok(Some(upgrade)) };
    let state = superblock::read_state(region).map_err(failed)?.0;
    if state.clean != STATE_CLEAN || has_records(region, &found.superblock).map_err(failed)? {
        return Ok(None);
    }
    lengthen(region, found.superblock, lengths).map_err(failed)?;
    Ok(Some(upgrade))
}

/// Whether any lane has a record, of whatever worth.
fn has_records(region: &Region, superblock: &Superblock) -> Result<bool, Errno> {
    let mut any = false;
    for lane in 0..u64::from(superblock.lanes) {
        let mut records = [0; (REDO_SLOTS * LINE) as usize];
        region.read(lane_offset(lane) + LANE_REDO, &mut records)?;
        any |= records.iter().any(|&byte| byte != 0);
    }
    Ok(any)
}

fn lengthen(region: &Region, superblock: Superblock, (has, gets): (u64, u64)) -> Result<(), Errno> {
    // PERSIST: zeros before the superblock says that they are the runtime's.
    let _ = region.stream_zero(superblock.runtime + has, gets - has)?.fence();
    let longer = Superblock { runtime_length: gets, ..superblock };
    superblock::replace(region, longer).map(|_| ())
}
