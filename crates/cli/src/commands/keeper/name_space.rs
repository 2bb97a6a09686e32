//! The name space of mounts: a copy of that of the program that asked, in which the volumes are
//! mounted besides. What is mounted outside later comes in, where mounts are shared; nothing goes
//! out.
//!
//! A prefix at which there is nothing needs a directory, and none is to be made in the user's file
//! system. So a tmpfs *stands in* for the directory above it, in the name space alone: each of that
//! one's entries is mounted in it, or is the same symlink, and the prefix is one more. It cannot be
//! written: what a program made there would be lost.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use console::failure::describe;
use fuse::MountOptions;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags,
};
use rustix::thread::UnshareFlags;

use super::Place;

/// More entries are not mounted one by one.
const ENTRIES_MAX: usize = 4096;

/// The name space of the mounts, as others get it. It lasts while this is open, or a process is in
/// it.
pub struct NameSpace {
    pub names: OwnedFd,
    pub root: OwnedFd,
    /// The directories that others stand in for, each with a NUL behind it.
    pub stand_ins: Vec<u8>,
}

impl NameSpace {
    /// Makes it, and a connection to the kernel for each volume. The error is for people.
    pub fn make(places: &[Place]) -> Result<(Self, Vec<OwnedFd>), String> {
        // A thread enters it, and leaves it by its end.
        let made = std::thread::scope(|scope| scope.spawn(|| make(places)).join());
        made.unwrap_or_else(|_| Err("the thread that mounts has died".to_owned()))
    }
}

fn make(places: &[Place]) -> Result<(NameSpace, Vec<OwnedFd>), String> {
    let failed = |what: &'static str| move |errno| format!("{what}: {}", describe(errno));
    // SAFETY: descriptors stay shared; this thread alone has another working directory.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(failed("a name space of mounts is not to be had"))?;
    let inwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", inwards)
        .map_err(failed("its mounts cannot be kept from others"))?;
    let mut stand_ins = BTreeSet::new();
    for place in places.iter().filter(|place| !place.at.is_dir()) {
        let above = place.at.ancestors().skip(1).find(|above| above.is_dir());
        let above = above.unwrap_or(Path::new("/"));
        if !stand_ins.iter().any(|at: &std::path::PathBuf| at == above) {
            stand_in(above).map_err(|errno| {
                let (at, above) = (place.at.display(), above.display());
                format!(
                    "there is no directory {at}, and nothing can stand in for {above}: {}; make it",
                    describe(errno)
                )
            })?;
            stand_ins.insert(above.to_owned());
        }
        fs::create_dir_all(&place.at).map_err(|error| {
            format!("there can be no directory {}: {error}", place.at.display())
        })?;
    }
    let devices = places.iter().map(|place| {
        let options = MountOptions {
            read_only: place.read_only,
            allow_other: true,
            ..MountOptions::default()
        };
        fuse::mount(&place.volume, &place.at, &options).map(|made| made.device)
    });
    let devices = devices.collect::<Result<Vec<_>, String>>()?;
    for at in &stand_ins {
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount_remount(at, flags, c"")
            .map_err(failed("what stands in for a directory cannot be protected"))?;
    }
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let names = open("/proc/thread-self/ns/mnt", OFlags::RDONLY)
        .map_err(failed("the name space cannot be opened"))?;
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY)
        .map_err(failed("its root directory cannot be opened"))?;
    let texts = stand_ins.iter().flat_map(|at| [at.as_os_str().as_bytes(), b"\0"].concat());
    Ok((NameSpace { names, root, stand_ins: texts.collect() }, devices))
}

/// Mounts a tmpfs that shows what the directory has.
fn stand_in(above: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = rustix::fs::open(above, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&old)?;
    let kind = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&kind)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let new = rustix::mount::fsmount(&kind, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let owner = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    let from_empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&new, c"", CWD, above, from_empty)?;
    rustix::fs::chownat(&new, c"", Some(owner.0), Some(owner.1), AtFlags::EMPTY_PATH)?;
    if above == Path::new("/") {
        // This thread's root is still the directory beneath.
        rustix::process::fchdir(&new)?;
        rustix::process::chroot(".")?;
    }
    rustix::fs::chmod(above, Mode::from_raw_mode(stat.st_mode))?;
    let mut count = 0;
    for entry in Dir::read_from(&old)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        count += 1;
        if count > ENTRIES_MAX {
            return Err(Errno::TOOBIG);
        }
        match show(&old, &new, name) {
            // It was removed meanwhile, or a mount whose server has died.
            Err(Errno::NOENT | Errno::NOTCONN) => {}
            shown => shown?,
        }
    }
    Ok(())
}

/// Shows one entry of a directory in another.
fn show(old: &OwnedFd, new: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let stat = rustix::fs::statat(old, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(old, name, Vec::new())?;
            return rustix::fs::symlinkat(OsStr::from_bytes(target.as_bytes()), new, name);
        }
        FileType::Directory => {
            flags |= OpenTreeFlags::AT_RECURSIVE;
            rustix::fs::mkdirat(new, name, Mode::from_raw_mode(0o700))?;
        }
        _ => {
            let file = FileType::RegularFile;
            rustix::fs::mknodat(new, name, file, Mode::from_raw_mode(0o600), 0)?;
        }
    }
    let tree = rustix::mount::open_tree(old, name, flags)?;
    rustix::mount::move_mount(&tree, c"", new, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
