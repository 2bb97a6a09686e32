//! The calls that make, move and remove names: `mkdir`, `rmdir`, `unlink`, `rename`, `link`,
//! `symlink`, `readlink`, `mknod`; those that read directories.
//!
//! A call with two paths of which one is the volume's and the other is not gives `EXDEV`, as
//! between any two file systems: `mv` then copies.

pub(crate) mod calls;
mod cross_device;
mod dir;
mod watches;

use std::ffi::{CString, c_char, c_int, c_uint};

use rustix::fs::CWD;
use vfs::walk::{Found, NAME_BYTES_MAX, PATH_BYTES_MAX};
use vfs::{Errno, Kind, Node};

use crate::entry::fdtable;
use crate::entry::pointers::{Bytes, Text};
use crate::entry::process::Process;
use crate::entry::{DONE, Served, Stop};
use crate::paths::identity;
use crate::paths::links;
use crate::paths::{self, Target};

pub const HERE: c_int = libc::AT_FDCWD;

/// Where a path leads whose last component is meant itself; the kernel serves other paths by
/// `kernel`. `Err(Ok(value))` is its answer.
#[inline(never)]
fn place(
    process: &Process,
    (dirfd, path): (c_int, Text),
    kernel: impl Fn(*const c_char) -> c_int,
) -> Served<Result<Found<'static>, c_int>> {
    match paths::resolve_name(process, dirfd, path.bytes()?)? {
        Target::Volume(found) => Ok(Ok(found)),
        Target::Kernel => Err(Stop::Kernel),
        Target::Elsewhere(path) => Ok(Err(kernel(path.as_ptr()))),
        Target::Descriptor(_) => Err(Stop::Errno(Errno::PERM)),
    }
}

/// Serves a call with one path by `served`.
pub fn one(
    process: &Process,
    at: (c_int, Text),
    kernel: impl Fn(*const c_char) -> c_int,
    served: impl FnOnce(&Found<'_>) -> Result<(), Errno>,
) -> Served<c_int> {
    let mut found = Found::nothing();
    if !paths::plain_name(process, at.0, at.1.bytes()?, false, &mut found) {
        found = match place(process, at, kernel)? {
            Ok(found) => found,
            Err(answer) => return Ok(answer),
        };
    }
    served(&found).map(|()| 0).map_err(Stop::Errno)
}

/// What `mknod` is to make: as the kernel, before it looks at the path.
pub fn kind_of(mode: c_uint) -> Result<Kind, Errno> {
    match mode & libc::S_IFMT {
        0 => Ok(Kind::File),
        libc::S_IFDIR => Err(Errno::PERM),
        libc::S_IFLNK => Err(Errno::INVAL),
        _ => Kind::from_mode(mode).ok_or(Errno::INVAL),
    }
}

/// Why a name was not moved: that there is none counts more than where it would be.
#[cold]
pub fn nameless(from: Text, stop: Stop) -> Stop {
    match (&stop, not_empty(from)) {
        (Stop::Errno(_), Err(errno)) => Stop::Errno(errno),
        _ => stop,
    }
}

/// A text that may not be empty: what a symlink is to say.
pub fn not_empty(text: Text) -> Result<&'static [u8], Errno> {
    let text = text.bytes()?;
    if text.is_empty() { Err(Errno::NOENT) } else { Ok(text) }
}

/// Removes a directory. `.` is none that could be, even where it is the root.
pub fn remove_dir(process: &Process, path: Text, found: &Found<'_>) -> Result<(), Errno> {
    let text = path.bytes()?;
    let end = text.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    if text[..end] == *b"." || text[..end].ends_with(b"/.") {
        return Err(Errno::INVAL);
    }
    process.user(found.dir).remove_dir(found)
}

pub fn make(process: &Process, found: &Found<'_>, mode: c_uint, device: u64) -> Result<(), Errno> {
    if device > u64::from(u32::MAX) {
        // The kernel has 32 bits for it.
        return Err(Errno::INVAL);
    }
    let kind = kind_of(mode)?;
    let device = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { device } else { 0 };
    process.user(found.dir).make(found, kind, mode, device).map(|_| ())
}

/// Takes a name away.
pub fn take_name(process: &Process, found: &Found<'_>) -> Result<(), Errno> {
    process.user(found.dir).unlink(found)?;
    crate::descriptors::sockets::unnamed(process, found);
    Ok(())
}

/// Gives a name to another file; the one that had it may lose its last name.
pub fn move_name(
    process: &Process,
    from: &Found<'_>,
    to: &Found<'_>,
    flags: c_uint,
) -> Result<(), Errno> {
    if from.dir.member() != to.dir.member() {
        // As the kernel: before it looks at what is there.
        return Err(Errno::XDEV);
    }
    let there = from.attr.is_some() && to.attr.is_some();
    if flags == libc::RENAME_NOREPLACE && from.slash && there {
        // That it is there counts more than that a file is no directory.
        return Err(Errno::EXIST);
    }
    process.user(from.dir).rename(from, to, flags)?;
    let node = |found: &Found<'_>| found.attr.map(|attr| attr.node);
    if flags & libc::RENAME_EXCHANGE == 0 && node(from) != node(to) {
        crate::descriptors::sockets::unnamed(process, to);
    }
    Ok(())
}

pub fn unlink_at(
    process: &Process,
    path: Text,
    found: &Found<'_>,
    flags: c_int,
) -> Result<(), Errno> {
    if flags & libc::AT_REMOVEDIR != 0 {
        return remove_dir(process, path, found);
    }
    take_name(process, found)
}

/// Serves a call with two paths by `served`; by `kernel` if neither is the volume's.
pub fn two(
    process: &Process,
    from: (c_int, Text),
    to: (c_int, Text),
    kernel: impl Fn(*const c_char, *const c_char) -> c_int,
    served: impl FnOnce(&Found<'_>, &Found<'_>) -> Result<(), Errno>,
) -> Served<c_int> {
    let (mut source, mut target) = (Found::nothing(), Found::nothing());
    if is_plain(process, from, &mut source) && is_plain(process, to, &mut target) {
        served(&source, &target)?;
        return DONE;
    }
    two_further(process, from, to, kernel, served)
}

/// Whether a path is plain: then what it leads to is written to `found`.
#[inline]
fn is_plain(process: &Process, (dirfd, path): (c_int, Text), found: &mut Found<'static>) -> bool {
    path.bytes().is_ok_and(|text| paths::plain_name(process, dirfd, text, false, found))
}

/// As [`two`], whatever the paths are.
#[inline(never)]
fn two_further(
    process: &Process,
    from: (c_int, Text),
    to: (c_int, Text),
    kernel: impl Fn(*const c_char, *const c_char) -> c_int,
    served: impl FnOnce(&Found<'_>, &Found<'_>) -> Result<(), Errno>,
) -> Served<c_int> {
    let mut source = paths::resolve_name(process, from.0, from.1.bytes()?)?;
    let to_text = match (to.1.bytes(), &source) {
        // The kernel says what is wrong with the first one.
        (Err(_), Target::Kernel) => return Err(Stop::Kernel),
        (text, _) => text?,
    };
    let mut target = paths::resolve_name(process, to.0, to_text);
    // What is to be moved comes before a name that is too long.
    if let (Target::Volume(found), Err(Errno::NAMETOOLONG)) = (&source, &target)
        && found.attr.is_none()
        && to_text.rsplit(|&byte| byte == b'/').next().is_some_and(|n| n.len() > NAME_BYTES_MAX)
    {
        return Err(Stop::Errno(Errno::NOENT));
    }
    // A path that the kernel does not find may lead to a volume by its symlinks.
    match (&source, &target) {
        (Target::Kernel, Ok(Target::Volume(_))) => source = behind_links(process, from)?,
        (Target::Volume(_), Ok(Target::Kernel)) => target = behind_links(process, to),
        _ => {}
    }
    match (&source, &target) {
        (Target::Kernel, Ok(Target::Kernel)) => Err(Stop::Kernel),
        (Target::Volume(source), Ok(Target::Volume(target))) => {
            served(source, target)?;
            DONE
        }
        (Target::Kernel | Target::Elsewhere(_), Ok(Target::Kernel | Target::Elsewhere(_))) => {
            let source = kernel_name(from, &source)?;
            let target = kernel_name(to, &target?)?;
            Ok(kernel(source.as_ptr(), target.as_ptr()))
        }
        (source, _) => {
            // As the kernel: it finds both directories before it compares them, and looks at no
            // name.
            cross_device::check_directory(from, source)?;
            cross_device::check_directory(to, &target?)?;
            Err(Stop::Errno(Errno::XDEV))
        }
    }
}

/// Where a path of the kernel's leads, by its symlinks too.
fn behind_links(process: &Process, (dirfd, path): (c_int, Text)) -> Result<Target<'static>, Errno> {
    let path = path.bytes()?;
    links::walked(|| paths::resolve_name(process, dirfd, path))
}

/// A path for the kernel that does not depend on the directory descriptor it came with.
fn kernel_name(at: (c_int, Text), target: &Target<'_>) -> Result<CString, Errno> {
    let text = at.1.bytes()?;
    match target {
        Target::Elsewhere(path) => Ok(path.clone()),
        _ if at.0 == HERE || text.first() == Some(&b'/') => paths::c_text(text),
        _ => {
            let link = format!("/proc/self/fd/{}", at.0);
            let mut path = rustix::fs::readlinkat(CWD, link, Vec::new())?.into_bytes();
            path.push(b'/');
            path.extend_from_slice(text);
            paths::c_text(&path)
        }
    }
}

/// Why a file of another volume cannot have this name. As in the kernel, a name that is there or
/// cannot be a file's comes first, then a volume that can only be read.
fn between(process: &Process, found: &Found<'_>) -> Errno {
    let read_only = || process.fs.stat_fs(found.dir.into()).is_ok_and(|stat| stat.read_only);
    match (found.attr, found.slash) {
        (Some(_), _) => Errno::EXIST,
        (None, true) => Errno::NOENT,
        (None, false) if read_only() => Errno::ROFS,
        (None, false) => Errno::XDEV,
    }
}

pub fn link_at(
    process: &Process,
    from: (c_int, Text),
    to: (c_int, Text),
    flags: c_int,
    kernel: impl Fn(*const c_char, *const c_char) -> c_int,
) -> Served<c_int> {
    let text = from.1.bytes()?;
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    let nameless = text.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
    let source = if nameless && fdtable::get(from.0).is_some() {
        Target::Descriptor(from.0)
    } else {
        paths::resolve(process, from.0, text, follow)?
    };
    let node: Node = match &source {
        // A descriptor's link in /proc leads to the file itself when it is followed.
        Target::Volume(_) | Target::Descriptor(_) => paths::existing(process, &source)?.node,
        source => {
            let text = match (to.1.bytes(), source) {
                // The kernel says what is wrong with the first one.
                (Err(_), Target::Kernel) => return Err(Stop::Kernel),
                (text, _) => text?,
            };
            let target = paths::resolve_name(process, to.0, text);
            if let Ok(Target::Kernel | Target::Elsewhere(_)) = target {
                return two(process, from, to, kernel, |_, _| Err(Errno::XDEV));
            }
            cross_device::check_there(from, source, flags)?;
            return match target? {
                Target::Volume(found) => Err(Stop::Errno(between(process, &found))),
                _ => Err(Stop::Errno(Errno::EXIST)),
            };
        }
    };
    match paths::resolve_name(process, to.0, to.1.bytes()?)? {
        Target::Volume(found) if found.dir.member() != node.member() => {
            return Err(Stop::Errno(between(process, &found)));
        }
        Target::Volume(found) => process.user(found.dir).link(node, &found)?,
        Target::Descriptor(_) => return Err(Stop::Errno(Errno::EXIST)),
        target => return Err(Stop::Errno(cross_device::why_no_name(to, &target)?)),
    }
    DONE
}

pub fn read_link(
    process: &Process,
    (dirfd, path): (c_int, Text),
    to: Bytes,
    len: usize,
    kernel: impl Fn(*const c_char) -> isize,
) -> Served<isize> {
    // The kernel has an `int` for it, and looks at it first.
    let room = len as c_int;
    if room <= 0 {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let text = path.bytes()?;
    let cwd = paths::working_directory_link(process, text) == Some(b"");
    let target = if text.is_empty() && fdtable::get(dirfd).is_some() {
        Target::Descriptor(dirfd)
    } else if let Some((fd, [])) = paths::descriptor_link(text) {
        Target::Descriptor(fd)
    } else {
        paths::resolve(process, dirfd, text, false)?
    };
    let mut buffer = vec![0; PATH_BYTES_MAX];
    let name;
    let bytes = match &target {
        Target::Kernel if let Some((whole, _)) = paths::program_link(process, text) => {
            let is_there = paths::resolve(process, HERE, text, true)?;
            let gone = if matches!(is_there, Target::Kernel) { " (deleted)" } else { "" };
            name = [whole, gone].concat().into_bytes();
            &name[..]
        }
        _ if cwd => {
            name = identity::working_directory(process)?;
            &name[..]
        }
        Target::Kernel => return Err(Stop::Kernel),
        Target::Elsewhere(path) => return Ok(kernel(path.as_ptr())),
        Target::Descriptor(fd) if !text.is_empty() => {
            let desc = fdtable::get(*fd).ok_or(Errno::BADF)?;
            name = identity::path_of_descriptor(process, desc)?;
            &name[..]
        }
        _ => {
            let attr = paths::existing(process, &target)?;
            let node = attr.node;
            if text.is_empty() && attr.kind != Kind::Symlink {
                return Err(Stop::Errno(Errno::NOENT));
            }
            let whole = process.fs.read_link(node, &mut buffer)?;
            &buffer[..whole.min(PATH_BYTES_MAX)]
        }
    };
    let len = bytes.len().min(room as usize);
    to.put(&bytes[..len])?;
    Ok(len as isize)
}
