//! Superblocks and the state line: what the volume is, and whether it was left in order.
//!
//! Two copies of the superblock; the newer valid one counts. A change (grow) writes B, then A, each
//! durable before the next, so one copy is whole at any time; a torn copy is repaired at the next
//! attach for writing. Format writes both last: a torn format is no volume.
//!
//! The state line holds two [`State`] slots that alternate like an inode's commit line. It says
//! dirty before the first change of an epoch and clean after the last orderly detach.

use crate::inject::{Bug, injected};
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    BLOCK, CHUNK, COMPAT_KNOWN, GROUPS_MAX, INCOMPAT_KNOWN, LANE, LANES, LINE, MAGIC,
    RO_COMPAT_KNOWN, RuntimeLayout, STATE, SUPERBLOCK_A, SUPERBLOCK_B, State, Superblock, VERSION,
    checksum,
};
use pmem::{Access, Region};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

const _: () = assert!(COMPAT_KNOWN == 0, "unknown compat bits are ignored: nothing to check");

/// Both copies as they were found.
pub(crate) struct Found {
    /// The one that counts.
    pub(crate) superblock: Superblock,
    /// Offsets of copies that are torn or behind.
    pub(crate) stale: Option<u64>,
}

impl Superblock {
    pub(crate) fn sealed(mut self) -> Self {
        self.crc = 0;
        self.crc = checksum(0, self.as_bytes());
        self
    }

    /// The label as text.
    pub(crate) fn label(&self) -> String {
        let end = self.label.iter().position(|&byte| byte == 0).unwrap_or(self.label.len());
        String::from_utf8_lossy(&self.label[..end]).into_owned()
    }

    /// What `st_dev` says: the same in every process, hardly another file system's.
    pub(crate) fn device(&self) -> u64 {
        let [a, b, c, ..] = self.uuid;
        libc::makedev(0x500 | u32::from(a), u32::from(b) << 8 | u32::from(c))
    }

    /// The UUID in its usual notation.
    pub(crate) fn uuid(&self) -> String {
        let hex = format!("{:032x}", u128::from_be_bytes(self.uuid));
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }

    /// Whether the numbers fit each other; they are checksummed, so this guards against faulty
    /// builds, not against bad memory.
    fn consistent(&self) -> bool {
        let pool_bytes = self.chunks.checked_mul(CHUNK).and_then(|n| n.checked_add(self.pool));
        self.lanes > 0
            && self.lanes < 1000
            && (1..=GROUPS_MAX).contains(&u64::from(self.groups))
            && self.runtime == LANES + u64::from(self.lanes) * LANE
            && self.runtime.checked_add(self.runtime_length).is_some_and(|end| end <= self.pool)
            && self.pool.is_multiple_of(CHUNK)
            && self.chunks > 0
            && self.chunks <= self.chunks_max
            && pool_bytes == Some(self.size)
    }
}

/// Reads one copy: `None` if it is no valid superblock of any version.
fn read_copy(region: &Region, at: u64) -> Result<Option<Superblock>, Errno> {
    let mut bytes = [0; size_of::<Superblock>()];
    if region.len() < at + BLOCK {
        return Ok(None);
    }
    while let Err(fault) = region.read(at, &mut bytes) {
        // It stays, but of a volume that is about to arrive here.
        let page = region.pager().and_then(|pager| Some((pager, region.absent_page()?)));
        if page.is_none_or(|(pager, page)| pager.fault(page, Access::Load).is_err()) {
            return Err(fault.into());
        }
    }
    let found = Superblock::read_from_bytes(&bytes).map_err(|_| Errno::IO)?;
    Ok((found.magic == MAGIC && found.sealed().crc == found.crc).then_some(found))
}

/// Whether the magic number stands at either place, valid or not.
pub(crate) fn looks_like_volume(region: &Region) -> bool {
    [SUPERBLOCK_A, SUPERBLOCK_B].iter().any(|&at| region.load64(at) == Ok(MAGIC))
}

/// Reads and checks both copies. `asked` is the verb of the error message.
pub(crate) fn read(
    region: &Region,
    path: &Path,
    asked: &'static str,
) -> Result<Found, VolumeError> {
    let found = read_copies(region, path, asked)?;
    if found.superblock.size > region.len() {
        let (size, length) = (found.superblock.size, region.len());
        let text = format!("the volume has {size} bytes, its region only {length}");
        let advice = "put the missing end back (`truncate --size`), or see with `solera fsck` what \
                      is lost";
        return Err(VolumeError::new(ErrorKind::Truncated, asked, path, text, advice));
    }
    Ok(found)
}

/// As [`read`], of a region that may have lost its end.
pub(crate) fn read_to_check(region: &Region, path: &Path) -> Result<Found, VolumeError> {
    read_copies(region, path, "check")
}

fn read_copies(region: &Region, path: &Path, asked: &'static str) -> Result<Found, VolumeError> {
    let fault = |errno| VolumeError::system(asked, path, "reading the superblocks", errno);
    let a = read_copy(region, SUPERBLOCK_A).map_err(fault)?;
    let b = read_copy(region, SUPERBLOCK_B).map_err(fault)?;
    let (superblock, stale) = match (a, b) {
        (Some(a), Some(b)) if a == b => (a, None),
        (Some(a), Some(b)) if b.sequence.wrapping_sub(a.sequence) as i32 > 0 => {
            (b, Some(SUPERBLOCK_A))
        }
        (Some(a), _) => (a, Some(SUPERBLOCK_B)),
        (None, Some(b)) => (b, Some(SUPERBLOCK_A)),
        (None, None) if looks_like_volume(region) => {
            let found = "both copies of its superblock are damaged";
            let advice = "restore it from a copy; the data itself may be whole";
            return Err(VolumeError::new(ErrorKind::Damaged, asked, path, found, advice));
        }
        (None, None) => return Err(no_superblock(region, path, asked)),
    };
    check(&superblock, path, asked)?;
    Ok(Found { superblock, stale })
}

/// The error says whether `format` would lose anything.
fn no_superblock(region: &Region, path: &Path, asked: &'static str) -> VolumeError {
    let error = |found, advice| VolumeError::new(ErrorKind::NotAVolume, asked, path, found, advice);
    if is_blank(region) {
        let found = "it holds no volume, nothing but zeros";
        return error(found, "make a volume in it with `solera format`").or_of_mount();
    }
    let found = "it has no readable superblock: it is something else, or a volume that was cut or \
                 damaged at its beginning";
    error(found, "check the path; if it was a volume, restore it from a copy").or_of_mount()
}

/// Zeros that are read, holes aside, before all is taken for blank: every volume has other bytes
/// before.
const BLANK: u64 = 64 << 20;

/// Whether there is nothing in a region but zeros.
pub(crate) fn is_blank(region: &Region) -> bool {
    let mut bytes = [0; BLOCK as usize];
    let (mut at, mut seen) = (region.next_data(0), 0);
    while at < region.len() && seen < BLANK {
        let length = (region.len() - at).min(BLOCK);
        let piece = &mut bytes[..length as usize];
        if region.read(at, piece).is_err() || piece.iter().any(|&byte| byte != 0) {
            return false;
        }
        seen += length;
        at = region.next_data(at + length);
    }
    true
}

/// Whether this build may attach such a volume.
fn check(superblock: &Superblock, path: &Path, asked: &'static str) -> Result<(), VolumeError> {
    let fail =
        |kind, found: String, advice: &str| Err(VolumeError::new(kind, asked, path, found, advice));
    if superblock.version != VERSION {
        let found = format!(
            "its format has version {}; this build knows version {VERSION}",
            superblock.version
        );
        return fail(ErrorKind::Unsupported, found, "use the release that made it");
    }
    let unknown = superblock.incompat & !INCOMPAT_KNOWN;
    if unknown != 0 {
        let found = format!("it needs features that this build does not know ({unknown:#x})");
        return fail(ErrorKind::Unsupported, found, "use a newer release");
    }
    if !superblock.consistent() {
        let found = "the numbers in its superblock contradict each other".to_owned();
        return fail(ErrorKind::Damaged, found, "check it with `solera fsck`");
    }
    let needed = RuntimeLayout::of(superblock).length;
    if superblock.runtime_length < needed {
        let found = format!(
            "its runtime range has {} bytes; this build needs {needed}",
            superblock.runtime_length
        );
        let advice = "export it with the release that made it (`solera export`), and import that";
        return fail(ErrorKind::Unsupported, found, advice);
    }
    Ok(())
}

/// Features that allow this build to read the volume but not to change it.
pub(crate) fn read_only_features(superblock: &Superblock) -> u32 {
    superblock.ro_compat & !RO_COMPAT_KNOWN
}

/// Writes one copy and makes it durable.
pub(crate) fn write_copy(region: &Region, at: u64, superblock: &Superblock) -> Result<(), Errno> {
    // PERSIST: the other copy is valid; this one is whole before anything goes on.
    let _ = region.write(at, superblock.sealed().as_bytes())?.flush().fence();
    Ok(())
}

/// Puts a torn copy right.
pub(crate) fn repair(region: &Region, found: &Found) -> Result<(), Errno> {
    found.stale.map_or(Ok(()), |at| write_copy(region, at, &found.superblock))
}

/// Replaces the superblock: B, then A.
/// CRASH: between the two the newer copy counts if it is whole, else the older; both are volumes.
pub(crate) fn replace(region: &Region, mut superblock: Superblock) -> Result<Superblock, Errno> {
    superblock.sequence = superblock.sequence.wrapping_add(1);
    let superblock = superblock.sealed();
    if injected(Bug::SuperblocksAtOnce) {
        let _ = region.write(SUPERBLOCK_B, superblock.as_bytes())?.flush();
        return write_copy(region, SUPERBLOCK_A, &superblock).map(|()| superblock);
    }
    write_copy(region, SUPERBLOCK_B, &superblock)?;
    write_copy(region, SUPERBLOCK_A, &superblock)?;
    Ok(superblock)
}

// ---- the state line -----------------------------------------------------------------------------

impl State {
    pub(crate) fn sealed(mut self) -> Self {
        self.crc = 0;
        self.crc = checksum(STATE, self.as_bytes());
        self
    }
}

/// Both slots of the state line.
fn slots(region: &Region) -> Result<[State; 2], Errno> {
    let mut bytes = [0; LINE as usize];
    region.read(STATE, &mut bytes)?;
    let slot =
        |at: usize| State::read_from_bytes(&bytes[at * 32..at * 32 + 32]).unwrap_or_default();
    Ok([slot(0), slot(1)])
}

fn is_whole(state: &State) -> bool {
    state.sequence != 0 && state.sealed().crc == state.crc
}

/// The newer valid slot and its index; `EIO` if neither is valid, or if the newest one is damaged
/// (one that was being written still has the sequence before the other one's, which is stored
/// last).
pub(crate) fn read_state(region: &Region) -> Result<(State, u64), Errno> {
    let slots = slots(region)?;
    let good = slots.map(|state| is_whole(&state));
    let at = match good {
        [true, true] => {
            let newer = slots[1].sequence.wrapping_sub(slots[0].sequence) as i32 > 0;
            return Ok(if newer { (slots[1], 1) } else { (slots[0], 0) });
        }
        [false, false] => return Err(Errno::IO),
        [_, second] => usize::from(second),
    };
    let (valid, other) = (slots[at], slots[1 - at]);
    let torn = other.sequence == 0 || other.sequence.wrapping_add(1) == valid.sequence;
    let newer = State { sequence: valid.sequence.wrapping_add(1), ..other };
    if torn && newer.sealed().crc != other.crc { Ok((valid, at as u64)) } else { Err(Errno::IO) }
}

/// The slot that is whole where the other is damaged, and may have been the newer one: recovery
/// proves everything anew. The damaged one is written next, so that both are whole again.
fn last_whole(region: &Region) -> Result<(State, u64), Errno> {
    if let Some(found) = slots(region)?.into_iter().zip(0..).find(|(state, _)| is_whole(state)) {
        return Ok(found);
    }
    // CRASH: as before: no slot is whole.
    let _ = region.write(STATE + 32, State::default().as_bytes())?.flush().fence();
    Ok((State::default(), 1))
}

/// Writes the next state over the older slot, durably.
pub(crate) fn write_state(
    region: &Region,
    epoch: u32,
    clean: u32,
    free_map_crc: u32,
) -> Result<(), Errno> {
    let (newest, at) = match read_state(region) {
        Ok(found) => found,
        Err(_) => last_whole(region)?,
    };
    let state = State {
        epoch,
        clean,
        free_map_crc,
        reserved: [0; 3],
        sequence: newest.sequence.wrapping_add(1).max(1),
        crc: 0,
    }
    .sealed();
    // PERSIST: one line; the other slot stays valid until this one is.
    let _ = region.write(STATE + (1 - at) * 32, state.as_bytes())?.flush().fence();
    Ok(())
}

/// Fills `bytes` with random ones.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(())
}
