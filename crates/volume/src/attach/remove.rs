//! Removes a volume: its file, the anchor directory beside it, and the one that a rename of the
//! file has left beside its old name.
//!
//! Locks: the writers' byte of the region, exclusive, until the file's name is gone: no process
//! attaches meanwhile.

use crate::attach::anchor;
use crate::attach::output_file::{holds_volume, is_anchor};
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::superblock;
use crate::process::liveness::{
    REGION_READERS, REGION_WRITERS, any_slot_held, own_region, region_held,
};
use pmem::Region;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What is left of a volume that was removed.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Other names of its file.
    pub names_left: u64,
    /// The anchor directory, where it could not be removed, and why.
    pub anchor_left: Option<(PathBuf, String)>,
}

/// Removes the volume in the file `path`. One in use is refused, and so is what is no volume.
pub fn remove(path: &Path) -> Result<Removed, VolumeError> {
    let system = |what: &str, errno| VolumeError::system("remove", path, what, errno);
    let names = check_kind(path)?;
    let (file, may_lock) = open(path).map_err(|errno| system("opening it", errno))?;
    if !holds_volume(&file).map_err(|errno| system("reading it", errno))? {
        let found = "it holds no Solera volume";
        return Err(VolumeError::new(ErrorKind::NotAVolume, "remove", path, found, "`rm` it"));
    }
    let held = |at| region_held(file.as_raw_fd(), at).map_err(|errno| system("its locks", errno));
    let alone = !may_lock
        || own_region(file.as_raw_fd(), REGION_WRITERS).map_err(|e| system("locking it", e))?;
    if !alone || held(REGION_WRITERS)? || held(REGION_READERS)? {
        let found = "it is in use";
        let advice = "end the programs that use it (`solera detach` lists them)";
        return Err(VolumeError::new(ErrorKind::InUse, "remove", path, found, advice));
    }
    let elsewhere = if names == 1 { elsewhere(&file, path) } else { None };
    rustix::fs::unlink(path).map_err(|errno| system("removing its name", errno))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".solera");
    let anchors = [Some(PathBuf::from(beside)), elsewhere];
    let left = |anchor: PathBuf| {
        let errno = remove_anchor(&anchor).err()?;
        Some((anchor, os::describe(errno)))
    };
    let anchor_left = anchors.into_iter().flatten().filter_map(left).collect::<Vec<_>>().pop();
    Ok(Removed { names_left: names - 1, anchor_left })
}

/// The anchor directory beside the name that the file had when it was last attached, if that name
/// is gone. Of a volume that is damaged, none.
fn elsewhere(file: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let region = Region::reading(file.try_clone().ok()?, path).ok()?;
    let found = superblock::read(&region, path, "remove").ok()?;
    anchor::left_by(&region, &found.superblock)
}

/// Gives the number of the file's names.
fn check_kind(path: &Path) -> Result<u64, VolumeError> {
    let refuse = |kind, found: String, advice: &str| {
        Err(VolumeError::new(kind, "remove", path, found, advice))
    };
    let stat = rustix::fs::lstat(path)
        .map_err(|errno| VolumeError::system("remove", path, "looking at it", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat.st_nlink),
        FileType::Symlink => {
            let found = match os::real_path(path) {
                Ok(real) => format!("it is a symbolic link to {}", real.display()),
                Err(_) => "it is a symbolic link that leads nowhere".to_owned(),
            };
            refuse(ErrorKind::Invalid, found, "give that name; a link is removed by `rm`")
        }
        FileType::CharacterDevice | FileType::BlockDevice => {
            let advice = "`solera format --force` makes a new volume on it";
            refuse(ErrorKind::Invalid, "it is a device".to_owned(), advice)
        }
        _ => refuse(ErrorKind::NotAVolume, "it is no file".to_owned(), "name a volume's file"),
    }
}

/// Opens it as far as permitted: a user that may remove a file may lack the right to write it.
fn open(path: &Path) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags | OFlags::RDWR, Mode::empty()) {
        Ok(file) => Ok((file, true)),
        Err(Errno::ACCESS | Errno::PERM | Errno::TXTBSY) => {
            Ok((rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty())?, false))
        }
        Err(errno) => Err(errno),
    }
}

/// Removes what an anchor directory holds, and it. Whatever else lies in it stays, and it too.
fn remove_anchor(anchor: &Path) -> Result<(), Errno> {
    if !is_anchor(anchor) {
        return Ok(());
    }
    if any_slot_held(&anchor.join("live"))? {
        // Another volume's by now, which had this name before.
        return Err(Errno::BUSY);
    }
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    os::remove_all(&anchor.join(crate::process::liveness::HANDING)).map_err(errno)?;
    for entry in os::names_in(anchor).map_err(errno)? {
        let entry = anchor.join(entry);
        let Ok(stat) = rustix::fs::lstat(&entry) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let own = matches!(kind, FileType::Fifo | FileType::Socket)
            || kind == FileType::RegularFile && stat.st_size == 0;
        if own {
            rustix::fs::unlink(&entry)?;
        }
    }
    rustix::fs::rmdir(anchor)
}
