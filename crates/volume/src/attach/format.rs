//! Makes a volume in a new file, or over what is there.
//!
//! Order: the file gets its owner, then its memory is reserved if that is asked for; then the
//! volume is written, and attached once: if that fails, so does the format. Until
//! it is written the region's byte of writers keeps other processes away.
//!
//! CRASH: before the superblock is durable there is no volume, or the one of before.

use crate::attach::output_file::{Kept, is_in_anchor};
use crate::attach::pager;
use crate::attach::{AttachOptions, attach, is_attached};
use crate::inode::Inode;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    BLOCK, CHUNK, COMMIT, Commit, DATA_AREA_MAX, EXTENT_INODES, GROUPS_MAX, GROWTH_FACTOR,
    IDENTITY, INCOMPAT_ABSENT, INODE, INODE_EXTENT, Identity, LANE, LANES, MAGIC, RUNTIME_SLACK,
    RuntimeLayout, STATE, STATE_DIRTY, SUPERBLOCK_A, SUPERBLOCK_B, Superblock, VERSION, VOLUME_MIN,
    checksum,
};
use crate::medium::superblock::{self, random, write_copy, write_state};
use crate::medium::{Medium, now};
use crate::process::liveness::{REGION_READERS, REGION_WRITERS, own_region, region_held};
use crate::space::backing_store;
use crate::txn::journal::{header_word, lane_offset};
use pmem::{OpenOptions, Region};
use rustix::fs::{FileType, Gid, Uid};
use rustix::io::Errno;
use std::path::Path;
use zerocopy::IntoBytes;

/// How a volume is to be made.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Bytes; `None`: as long as the file or device is.
    pub size: Option<u64>,
    /// Allocation groups; `None`: by the number of CPUs.
    pub groups: Option<u32>,
    /// A name for people, up to 64 bytes of UTF-8.
    pub label: String,
    /// Overwrite a volume, or whatever else is there.
    pub force: bool,
    /// Give all of the file its memory now: `ENOSPC`, and no volume, if there is not as much.
    pub reserve: bool,
    /// Permissions of a file that is made.
    pub permissions: u32,
    /// Whose the file and the root directory are to be; `None`: the caller's.
    pub owner: Option<u32>,
    /// Whose group's; `None`: the caller's.
    pub group: Option<u32>,
    /// Take this class whatever is detected; `page` must be asked for so.
    pub class: Option<pmem::Class>,
    /// Draw identity, hash key and generation from this number: the same volume again, for tests.
    pub seed: Option<u64>,
    /// Bytes that the runtime range has beyond its need; `None`: as this release makes it. Builds
    /// before 0.2 left none: for tests of what converts their volumes.
    pub runtime_slack: Option<u64>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            size: None,
            groups: None,
            label: String::new(),
            force: false,
            reserve: false,
            permissions: 0o600,
            owner: None,
            group: None,
            class: None,
            seed: None,
            runtime_slack: None,
        }
    }
}

/// Makes a volume at `path`: a new file, or an existing file or device that holds nothing yet (or
/// anything, with `force`; never a volume in use).
pub fn format(path: &Path, options: &FormatOptions) -> Result<(), VolumeError> {
    let exists = rustix::fs::stat(path).is_ok();
    let open = OpenOptions { write: true, force_class: options.class, ..OpenOptions::default() };
    let fail = |error| VolumeError::region("format", path, &error);
    if is_in_anchor(path) {
        let found = Kept::Anchor.to_string();
        return Err(VolumeError::new(ErrorKind::Invalid, "format", path, found, "choose another"));
    }
    if let Some(size) = options.size {
        // Before anything is made or cut.
        plan(size, path, options)?;
    }
    if !exists {
        let Some(size) = options.size else {
            let found = "it does not exist, and no size is given";
            let advice = "give a --size";
            return Err(VolumeError::new(ErrorKind::Invalid, "format", path, found, advice));
        };
        let region =
            Region::create_with(path, size, options.permissions, true, &open).map_err(fail)?;
        let made = give(path, options)
            .and_then(|()| reserve(path, &region, options))
            .and_then(|()| format_region(&region, options))
            .and_then(|()| attach_new(path, options));
        return made.inspect_err(|_| {
            // The file is this call's own and useless; it stays if it cannot be removed.
            let _ = rustix::fs::unlink(path);
        });
    }
    let found = rustix::fs::stat(path).ok();
    let before = found.map_or(0, |stat| stat.st_size as u64);
    let is_device = found.is_some_and(|stat| stat.st_rdev != 0);
    // What is there is this call's alone until the new volume is written.
    let kept = if before == 0 && !is_device {
        if is_attached(path) {
            return Err(format_in_use(path));
        }
        None
    } else {
        let mut region = Region::open(path, &open).map_err(fail)?;
        pager::give(&mut region, None, path, "format")?;
        check_overwrite(path, &region, options)?;
        Some(region)
    };
    // Before anything is written or cut.
    give(path, options)?;
    let region = match options.size {
        Some(size) => Region::create_with(path, size, options.permissions, false, &open),
        None => Region::open(path, &open),
    };
    let mut region = region.map_err(fail)?;
    pager::give(&mut region, None, path, "format")?;
    reserve(path, &region, options).inspect_err(|_| {
        // As long as it was.
        let _ = region.cut(before);
    })?;
    format_region(&region, options)?;
    drop(region);
    drop(kept);
    attach_new(path, options)
}

/// Gives all of the region's file its memory, if that is asked for.
fn reserve(path: &Path, region: &Region, options: &FormatOptions) -> Result<(), VolumeError> {
    if !options.reserve {
        return Ok(());
    }
    region.provide(0, region.len()).map_err(|errno| {
        let what = format!("reserving {} bytes for it", region.len());
        let error = VolumeError::system("format", path, &what, errno);
        match errno {
            Errno::NOSPC => error.advise("give a smaller --size, or make room there"),
            _ => error.advise("its file system cannot reserve memory: leave --reserve out"),
        }
    })
}

/// Gives the file its owner. A device's node is left to the administrator.
fn give(path: &Path, options: &FormatOptions) -> Result<(), VolumeError> {
    let system = |errno| VolumeError::system("format", path, "giving it away", errno);
    let stat = rustix::fs::stat(path).map_err(system)?;
    let of_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let (owner, group) = (options.owner.map(Uid::from_raw), options.group.map(Gid::from_raw));
    if !of_file || owner.is_none() && group.is_none() {
        return Ok(());
    }
    rustix::fs::chown(path, owner, group).map_err(|errno| match errno {
        Errno::PERM => {
            let found = "only root can give it to another user, or to a group of others";
            let advice = "run this as root, or without --owner";
            VolumeError::new(ErrorKind::Invalid, "format", path, found, advice).with(errno)
        }
        errno => system(errno),
    })
}

/// Refuses to overwrite what a user may still want.
fn check_overwrite(
    path: &Path,
    region: &Region,
    options: &FormatOptions,
) -> Result<(), VolumeError> {
    let system = |errno| VolumeError::system("format", path, "looking at what is there", errno);
    let held = |at| region_held(region.fd(), at).map_err(system);
    let alone = own_region(region.fd(), REGION_WRITERS).map_err(system)?;
    if !alone || held(REGION_READERS)? {
        return Err(format_in_use(path));
    }
    if options.force {
        return Ok(());
    }
    let found = if superblock::looks_like_volume(region) {
        "it holds a volume already"
    } else if superblock::is_blank(region) {
        return Ok(());
    } else {
        "it holds other data, or a volume that was damaged"
    };
    let advice = "choose another place, or say --force to destroy what is there";
    Err(VolumeError::new(ErrorKind::Exists, "format", path, found, advice))
}

fn format_in_use(path: &Path) -> VolumeError {
    let found = "it is a volume in use";
    let advice = "end the programs that use it (`solera detach` lists them)";
    VolumeError::new(ErrorKind::InUse, "format", path, found, advice)
}

/// Attaches the new volume once: a format whose volume cannot be attached has failed.
fn attach_new(path: &Path, options: &FormatOptions) -> Result<(), VolumeError> {
    let attach_options = AttachOptions { class: options.class, ..AttachOptions::default() };
    let volume = attach(path, &attach_options)?;
    volume
        .leave()
        .map_err(|errno| VolumeError::system("format", path, "leaving the new volume", errno))
}

/// What both copies say in a copy of the volume as it is now, with a UUID of its own unless `keep`.
pub(crate) fn of_copy(ground: &Medium, keep: bool) -> Result<Superblock, Errno> {
    let mut copy = ground.superblock;
    (copy.size, copy.chunks) = (ground.size(), ground.chunks());
    if !keep {
        let words = identity_words(None)?;
        copy.uuid = uuid_of([words[0], words[1]]);
    }
    // All that it has is in one file.
    copy.incompat &= !INCOMPAT_ABSENT;
    Ok(copy.sealed())
}

/// A random UUID (version 4) of these words.
fn uuid_of(words: [u64; 2]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(words.as_bytes());
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// Words by which a volume differs from any other; the same again for the same seed.
fn identity_words(seed: Option<u64>) -> Result<[u64; 5], Errno> {
    let mut words = [0; 5];
    match seed {
        None => random(words.as_mut_bytes())?,
        Some(seed) => {
            for (word, index) in words.iter_mut().zip(0_u64..) {
                let draw = |half: u64| checksum(seed, &(index * 2 + half).to_le_bytes());
                *word = u64::from(draw(0)) << 32 | u64::from(draw(1));
            }
        }
    }
    Ok(words)
}

/// Bytes of a volume from which on the lanes' data areas are made room for: a chunk at most, of 64.
/// Smaller ones have it anyway.
const WORTH_DATA_AREAS: u64 = 128 << 20;

/// Plans the layout of a volume in a region of `size` bytes.
///
/// Errors say what is wrong with the request; nothing has been touched.
fn plan(size: u64, path: &Path, options: &FormatOptions) -> Result<Superblock, VolumeError> {
    let invalid = |found: String, advice: &str| {
        Err(VolumeError::new(ErrorKind::Invalid, "format", path, found, advice))
    };
    if size < VOLUME_MIN {
        let found = format!("{size} bytes are too few; a volume needs {VOLUME_MIN}");
        return invalid(found, "give a larger --size");
    }
    if options.label.len() > 64 || options.label.contains('\0') {
        return invalid("the label is longer than 64 bytes".into(), "choose a shorter one");
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let lanes = (size / (4 << 20)).clamp(16, (2 * cpus).clamp(64, 512));
    let tables = (size / (256 << 10)).clamp(1024, 65536);
    let chunks_max = (size / CHUNK).saturating_mul(GROWTH_FACTOR);
    let runtime = LANES + lanes * LANE;
    let runtime_length = RuntimeLayout::new(lanes, tables, chunks_max).length
        + options.runtime_slack.unwrap_or(RUNTIME_SLACK);
    // The lanes' data areas share what is left before the pool, and get a chunk where it is little.
    let data_areas = if size >= WORTH_DATA_AREAS { lanes * DATA_AREA_MAX } else { 0 };
    let pool = (runtime + runtime_length + data_areas).next_multiple_of(CHUNK);
    let chunks = size.saturating_sub(pool) / CHUNK;
    if chunks < 2 {
        return invalid(format!("{size} bytes leave no room for data"), "give a larger --size");
    }
    let most = GROUPS_MAX.min(chunks);
    let groups = u64::from(options.groups.unwrap_or((cpus.min(chunks / 8)).clamp(1, most) as u32));
    if groups == 0 || groups > most {
        return invalid(format!("{groups} groups: 1 to {most} are possible"), "choose others");
    }
    let fail = |errno| VolumeError::system("format", path, "asking for random bytes", errno);
    let words = identity_words(options.seed).map_err(fail)?;
    let uuid = uuid_of([words[0], words[1]]);
    let mut label = [0; 64];
    label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    Ok(Superblock {
        magic: MAGIC,
        version: VERSION,
        crc: 0,
        compat: 0,
        incompat: 0,
        ro_compat: 0,
        sequence: 1,
        uuid,
        label,
        size: pool + chunks * CHUNK,
        lanes: lanes as u32,
        groups: groups as u32,
        runtime,
        runtime_length,
        pool,
        chunks,
        chunks_max,
        root: pool / INODE + 1,
        hash_key: [words[2], words[3]],
        created: now() as u64,
        root_generation: words[4] as u32 | 1,
        tables: tables as u32,
    })
}

/// Bytes that a new volume of `size` bytes uses for itself: what stands in front of its pool, and
/// its first chunk of metadata.
pub fn own_bytes(size: u64, options: &FormatOptions) -> Result<u64, VolumeError> {
    Ok(plan(size, Path::new("(a new volume)"), options)?.pool + CHUNK)
}

/// Makes a volume of the whole region; what was there is lost.
pub fn format_region(region: &Region, options: &FormatOptions) -> Result<(), VolumeError> {
    let path = region.path().unwrap_or(Path::new("(memory)"));
    let mut superblock = plan(region.len(), path, options)?;
    if region.pager().is_some() {
        superblock.incompat |= INCOMPAT_ABSENT;
    }
    write_volume(region, &superblock, options)
        .map_err(|errno| VolumeError::system("format", path, "writing the volume", errno))
}

fn write_volume(
    region: &Region,
    superblock: &Superblock,
    options: &FormatOptions,
) -> Result<(), Errno> {
    // PERSIST: an old volume is no volume any more before the first of its structures is
    // overwritten.
    backing_store::provide_fixed(region, superblock)?;
    let gone =
        region.stream_zero(SUPERBLOCK_A, BLOCK)?.and(region.stream_zero(SUPERBLOCK_B, BLOCK)?);
    let _ = gone.fence();
    // State, lanes and runtime: no word of another life may look like one of this. What has no
    // memory yet is zero, and much of a large volume's runtime needs none until it is used.
    let mut pending = region.stream_zero(superblock.pool, INODE_EXTENT)?;
    let mut at = region.next_data(STATE);
    while at < superblock.pool {
        let end = region.next_hole_before(at, superblock.pool);
        pending = pending.and(region.stream_zero(at, end - at)?);
        at = region.next_data(end);
    }
    for lane in 0..u64::from(superblock.lanes) {
        let word = header_word(lane, 1);
        pending = pending.and(region.store64(lane_offset(lane), word)?.flush());
    }
    pending = pending.and(write_root(region, superblock, options)?);
    let _ = pending.fence();
    write_state(region, 0, STATE_DIRTY, 0)?;
    // PERSIST: everything a superblock promises is durable before the first one is.
    write_copy(region, SUPERBLOCK_B, superblock)?;
    write_copy(region, SUPERBLOCK_A, superblock)?;
    region.sync_file().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The root directory: the first inode of the first extent, empty.
fn write_root<'r>(
    region: &'r Region,
    superblock: &Superblock,
    options: &FormatOptions,
) -> Result<pmem::InFlight<'r>, Errno> {
    let root = Inode(superblock.root);
    debug_assert!(!root.0.is_multiple_of(EXTENT_INODES));
    let time = superblock.created as i64;
    let identity = Identity {
        generation: superblock.root_generation,
        mode: libc::S_IFDIR | 0o755,
        uid: options.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: options.group.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        nlink: 1,
        parent: root.0,
        parent_generation: superblock.root_generation,
        btime: time,
        ctime: time,
        ..Identity::default()
    };
    let commit = Commit { mtime: time, sequence: 1, ..Commit::default() };
    let commit = commit.sealed(root, superblock.root_generation);
    let line = region.write(root.at(IDENTITY), identity.sealed(root).as_bytes())?;
    Ok(line.join(region.write(root.at(COMMIT), commit.as_bytes())?).flush())
}
