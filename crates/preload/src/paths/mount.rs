//! A volume that is also mounted at the prefix, served to the kernel by another process.
//!
//! `solera run` says (`SOLERA_MOUNTED`) that the prefix is a mount of the volume. Then a call that
//! slips past this library reaches the same files, and the kernel does what it can do better: the
//! working directory is a directory of the mount, programs are executed from where they lie, fifos
//! and sockets are the mount's, and a program that cannot be preloaded gets descriptors of the
//! mount ([`give`]). All else is served here as always, faster than by the mount. `st_dev` is the
//! mount's. A shared library is loaded from a mount wherever that is.
//!
//! The mount may be forbidden to this process, or its server may die: then all is done as without a
//! mount.

use std::ffi::{CString, OsStr, c_int};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom, StatVfsMountFlags};
use rustix::io::DupFlags;
use vfs::mounts::{Identity, Mount};
use vfs::walk::Place;
use vfs::{Desc, Errno, FileSystemExt, Kind, Node, Whence, mounts};
use volume::Volume;

use crate::entry::process::Process;
use crate::paths::Target;

/// Environment variable: set if the prefix is a mount of the volume; of another than the first,
/// with its number behind. Its value is what the mount says that it serves, or `1` if it does not
/// say.
pub const VARIABLE: &str = "SOLERA_MOUNTED";

/// What of a description's flags the mount's descriptor gets.
const PASSED: c_int = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_PATH;

/// Refuses a volume other than the one that the mount served when `solera run` looked: another file
/// has its path now. Compares only what was read already. `told`: the variable.
pub fn check(volume: &Volume, told: Option<&str>) -> Result<(), String> {
    match told.and_then(Identity::parse) {
        Some(served) if served != volume.volume_identity() => {
            Err("the mount serves another volume than the one at this path: that was replaced \
                 since it was mounted; unmount it and mount it anew"
                .to_owned())
        }
        _ => Ok(()),
    }
}

/// The mount's device number, if the volume is mounted at the prefix, as it was `told`. `lost`: the
/// volume, if its path leads to it no more; then the mount is asked whether it serves the same.
pub fn device(
    (volume, prefix, told): (&[u8], &[u8], Option<&str>),
    lost: Option<&Volume>,
) -> Option<u64> {
    told.filter(|value| !value.is_empty())?;
    let mount = mounts::at(Path::new(OsStr::from_bytes(prefix))).ok()??;
    if let (Some(own), Some(served)) = (lost, lost.and_then(|_| mount.serves()))
        && own.volume_identity() != served
    {
        return None;
    }
    (mount.volume.as_os_str().as_bytes() == volume).then_some(mount.device)
}

/// Whether the kernel finds this node at a path, in the mount.
pub fn leads_to(process: &Process, path: &[u8], node: Node) -> bool {
    let seen = process.volume_of(node);
    seen.mounted
        && rustix::fs::stat(path)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (seen.device, node.number()))
}

/// A path by which the kernel finds this file and maps it as a program: `path` itself, in the mount
/// at the prefix, or one in another mount of the volume. `None`: there is none, or programs may not
/// be executed there.
pub fn executable_path(process: &Process, path: &[u8], node: Node) -> Option<CString> {
    let executes = |path: &CString| {
        let mount = rustix::fs::statvfs(path);
        mount.is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOEXEC))
    };
    if leads_to(process, path, node) {
        return CString::new(path).ok().filter(executes);
    }
    let seen = process.volume_of(node);
    let serves =
        |mount: &Mount| mount.serves().is_some_and(|served| served.file == seen.texts.file);
    let mount = mounts::list().ok()?.into_iter().rev().find(serves)?;
    let target = crate::paths::resolve(process, libc::AT_FDCWD, path, true).ok()?;
    let Target::Volume(found) = target else { return None };
    let name = crate::paths::name_of(process, &found).ok()?;
    let below = name.strip_prefix(seen.prefix.as_slice())?;
    let there = CString::new([mount.at.as_os_str().as_bytes(), below].concat()).ok()?;
    let stat = rustix::fs::stat(&there).ok()?;
    let is_it = (stat.st_dev, stat.st_ino) == (mount.device, node.number());
    Some(there).filter(|there| is_it && executes(there))
}

/// The node of the kernel's working directory, whose path this is, if it lies in a mount.
pub fn working_directory(process: &Process, path: &[u8]) -> Option<Node> {
    let (root, rest) = crate::paths::strip(process, path)?;
    if !process.volume_of(root).mounted {
        return None;
    }
    match process.walk(root).walk(root, rest, true).ok()? {
        Place::Inside(found) => {
            let node = found.attr.filter(|attr| attr.kind == Kind::Directory)?.node;
            leads_to(process, b".", node).then_some(node)
        }
        Place::Outside(_) => None,
    }
}

/// Makes a directory of the mount the kernel's working directory; `false`: it failed.
pub fn enter(process: &Process, node: Node) -> bool {
    process.volume_of(node).mounted
        && crate::paths::directory_path(process, node)
            .and_then(rustix::process::chdir)
            .is_ok_and(|()| leads_to(process, b".", node))
}

/// Puts a descriptor of the mount at the prefix in place of a number of ours, for a program that
/// cannot be preloaded. It stands for the same open file description.
pub fn give(process: &Process, fd: c_int, desc: Desc) -> Result<(), Errno> {
    let seen = process.volume_of(desc);
    let prefix = CString::new(seen.prefix.as_slice()).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&prefix, flags, Mode::empty())?;
    give_of(process, (fd, desc), root.as_fd(), seen.device)
}

/// The same of another mount of the volume, whose root directory and device number these are.
pub fn give_of(
    process: &Process,
    (fd, desc): (c_int, Desc),
    root: BorrowedFd<'_>,
    device: u64,
) -> Result<(), Errno> {
    let (name, _) = process.fs.hand_over(desc)?;
    let (node, flags) = process.fs.describe(desc)?;
    let path = CString::new(mounts::description_name(name)).map_err(|_| Errno::INVAL)?;
    let wanted = flags.0 & PASSED | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let wanted = OFlags::from_bits_retain(wanted as u32);
    let own = rustix::fs::openat(root, &path, wanted, Mode::empty())?;
    let stat = rustix::fs::fstat(&own)?;
    if (stat.st_dev, stat.st_ino) != (device, node.number()) {
        return Err(Errno::STALE);
    }
    if process.fs.attributes(node)?.kind == Kind::File && !flags.path_only() {
        let position = process.fs.seek(desc, 0, Whence::Current)?;
        rustix::fs::seek(&own, SeekFrom::Start(position))?;
    }
    os::put_at(&own, fd, DupFlags::empty())
}
