//! Makes a volume in a new file, or over what is there.
//!
//! Order: the file gets its owner, then its memory is reserved if that is asked for; then the
//! volume is written (`superblock.rs`), and attached once: if that fails, so does the format. Until
//! it is written the region's byte of writers keeps other processes away.
//!
//! CRASH: before the superblock is durable there is no volume, or the one of before.

use crate::attach::ordinary::{Kept, is_in_anchor};
use crate::attach::superblock::{self, FormatOptions, format_region};
use crate::attach::{AttachOptions, attach, is_attached};
use crate::ground::error::{ErrorKind, VolumeError};
use crate::process::liveness::{REGION_READERS, REGION_WRITERS, own_region, region_held};
use pmem::{OpenOptions, Region};
use rustix::fs::{FileType, Gid, Uid};
use rustix::io::Errno;
use std::path::Path;

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
        superblock::plan(size, path, options)?;
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
        let region = Region::open(path, &open).map_err(fail)?;
        check_overwrite(path, &region, options)?;
        Some(region)
    };
    // Before anything is written or cut.
    give(path, options)?;
    let region = match options.size {
        Some(size) => Region::create_with(path, size, options.permissions, false, &open),
        None => Region::open(path, &open),
    };
    let region = region.map_err(fail)?;
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
