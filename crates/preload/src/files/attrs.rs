//! The calls that change attributes: modes, owners, times, sizes, extended attributes,
//! preallocation.

use std::ffi::{c_char, c_int, c_uint};

use vfs::cred::{Capability, READ, WRITE};
use vfs::{Attr, Errno, FileSystemExt, Kind, Nanos, SetAttr};

use crate::entry::fdtable::ours;
use crate::entry::limit;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::process::Process;
use crate::entry::{DONE, Served, Stop};
use crate::files::rw::offset_of;
use crate::files::stat::{self, attr_of_descriptor};
use crate::paths::flags;
use crate::paths::{self, Target};

const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const SECOND: i64 = 1_000_000_000;

/// Serves a call that changes what exists at a path, by `served`.
pub fn at_path<T>(
    process: &Process,
    (dirfd, path, flags): (c_int, Text, c_int),
    kernel: impl Fn(*const c_char) -> T,
    served: impl FnOnce(&Attr) -> Served<T>,
) -> Served<T> {
    let text = path.bytes()?;
    if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        return served(&attr_of_descriptor(process, dirfd)?);
    }
    match paths::resolve(process, dirfd, text, flags & NOFOLLOW == 0)? {
        Target::Elsewhere(path) => Ok(kernel(path.as_ptr())),
        target => served(&paths::existing(process, &target)?),
    }
}

pub fn at_descriptor<T>(
    process: &Process,
    fd: c_int,
    served: impl FnOnce(&Attr) -> Served<T>,
) -> Served<T> {
    let desc = match ours(fd) {
        Ok(desc) => desc,
        Err(stop) => return served(&stat::attr_of_fifo(process, fd, stop)?),
    };
    let (node, flags) = process.fs.describe(desc)?;
    if flags.path_only() {
        return Err(Stop::Errno(Errno::BADF));
    }
    served(&process.fs.attributes(node)?)
}

/// As [`at_descriptor`], of a call on extended attributes. Since Linux 6.13 these take `AT_FDCWD`
/// for the working directory, which the kernel does not know here: it is `EBADF`, as before.
pub fn at_number<T>(
    process: &Process,
    fd: c_int,
    served: impl FnOnce(&Attr) -> Served<T>,
) -> Served<T> {
    if fd == libc::AT_FDCWD && process.cwd().node.is_some() {
        return Err(Stop::Errno(Errno::BADF));
    }
    at_descriptor(process, fd, served)
}

pub fn mode(process: &Process, attr: &Attr, mode: c_uint) -> Served<c_int> {
    if attr.kind == Kind::Symlink {
        return Err(Stop::Errno(Errno::OPNOTSUPP));
    }
    process.user(attr.node).change_mode(attr.node, mode)?;
    DONE
}

pub fn owner(process: &Process, attr: &Attr, uid: u32, gid: u32) -> Served<c_int> {
    let given = |id| (id != u32::MAX).then_some(id);
    process.user(attr.node).change_owner(attr.node, given(uid), given(gid))?;
    DONE
}

fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec * SECOND + time.tv_nsec
}

/// The two times of `utimensat` and whether both mean the present.
fn times_of(given: Option<[libc::timespec; 2]>) -> Result<(SetAttr, bool), Errno> {
    let Some(times) = given else {
        let now = Some(now());
        return Ok((SetAttr { atime: now, mtime: now, ..SetAttr::default() }, true));
    };
    let mut values = [None; 2];
    for (value, time) in values.iter_mut().zip(&times) {
        *value = match time.tv_nsec {
            libc::UTIME_NOW => Some(now()),
            libc::UTIME_OMIT => None,
            nanos if (0..SECOND).contains(&nanos) => {
                // Beyond the years that 64-bit nanoseconds reach, the nearest that they do.
                Some(time.tv_sec.saturating_mul(SECOND).saturating_add(nanos))
            }
            _ => return Err(Errno::INVAL),
        };
    }
    let both_now = times.iter().all(|time| time.tv_nsec == libc::UTIME_NOW);
    Ok((SetAttr { atime: values[0], mtime: values[1], ..SetAttr::default() }, both_now))
}

/// Whether neither time is to change.
pub fn keeps_times(given: Option<[libc::timespec; 2]>) -> bool {
    given.is_some_and(|times| times.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT))
}

pub fn times(process: &Process, attr: &Attr, given: Option<[libc::timespec; 2]>) -> Served<c_int> {
    let (change, now) = times_of(given)?;
    if change.atime.is_some() || change.mtime.is_some() {
        process.user(attr.node).change_times(attr.node, &change, now)?;
    }
    DONE
}

/// Microseconds as nanoseconds.
pub fn from_micros(given: Out<[libc::timeval; 2]>) -> Result<Option<[libc::timespec; 2]>, Errno> {
    let Some(times) = given.get()? else {
        return Ok(None);
    };
    if times.iter().any(|time| !(0..1_000_000).contains(&time.tv_usec)) {
        return Err(Errno::INVAL);
    }
    Ok(Some(times.map(|time| libc::timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 })))
}

pub fn from_seconds(given: Out<libc::utimbuf>) -> Result<Option<[libc::timespec; 2]>, Errno> {
    let seconds = given.get()?.map(|times| [times.actime, times.modtime]);
    Ok(seconds.map(|both| both.map(|tv_sec| libc::timespec { tv_sec, tv_nsec: 0 })))
}

/// Whether `fallocate` has such a way, on any file system: some keep the size, some must.
const fn is_way(how: c_int) -> bool {
    let keeps = how & libc::FALLOC_FL_KEEP_SIZE != 0;
    match how & !libc::FALLOC_FL_KEEP_SIZE {
        0 | libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_UNSHARE_RANGE => true,
        libc::FALLOC_FL_PUNCH_HOLE => keeps,
        libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE => !keeps,
        _ => false,
    }
}

pub fn allocate(process: &Process, fd: c_int, how: c_int, offset: i64, len: i64) -> Served<()> {
    let desc = ours(fd)?;
    let (node, flags) = process.fs.describe(desc)?;
    if flags.path_only() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let (offset, len) = (offset_of(offset)?, offset_of(len)?);
    if len == 0 {
        return Err(Stop::Errno(Errno::INVAL));
    }
    if !is_way(how) {
        return Err(Stop::Errno(Errno::OPNOTSUPP));
    }
    if !flags.writes() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let beyond = offset.saturating_add(len) > i64::MAX as u64;
    if beyond && process.fs.attributes(node)?.kind == Kind::File {
        return Err(Stop::Errno(Errno::FBIG));
    }
    // As tmpfs, which asks before it looks whether the size is to be kept.
    if how & !libc::FALLOC_FL_KEEP_SIZE == 0 && process.fs.attributes(node)?.kind == Kind::File {
        limit::check_size(process, node, offset.saturating_add(len))?;
    }
    process.fs.allocate(desc, how as u32, offset, len)?;
    process.resized(node)?;
    Ok(())
}

// ---- extended attributes

/// Longest name and value, as the kernel's.
const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: usize = 65536;

/// The name-space rules of the kernel: which user may touch an attribute of that name on that node.
fn check_xattr(process: &Process, attr: &Attr, name: &[u8], want: u32) -> Result<(), Errno> {
    let cred = process.cred();
    let class_alone = matches!(name, b"user." | b"trusted." | b"security.");
    let whole = || if class_alone { Err(Errno::INVAL) } else { Ok(()) };
    let hidden =
        if want == READ { Errno::NODATA } else { process.user(attr.node).denied(Errno::PERM) };
    if name.starts_with(b"user.") {
        if !matches!(attr.kind, Kind::File | Kind::Directory) {
            return Err(hidden);
        }
        let sticky = attr.kind == Kind::Directory && attr.mode & libc::S_ISVTX != 0;
        if want != READ && sticky && !cred.owns(attr) {
            return Err(hidden);
        }
        let denied =
            |errno| if want == READ { errno } else { process.user(attr.node).denied(errno) };
        return cred.check(attr, want).map_err(denied).and_then(|()| whole());
    }
    let administers = cred.can(Capability::Administer);
    if name.starts_with(b"trusted.") {
        return if administers { whole() } else { Err(hidden) };
    }
    if name == vfs::FILE_CAPABILITIES {
        let sets = want == READ || cred.can(Capability::SetFileCapabilities);
        return if sets { Ok(()) } else { Err(Errno::PERM) };
    }
    if name.starts_with(b"security.") {
        return if want == READ || administers { whole() } else { Err(Errno::PERM) };
    }
    // Among others system.posix_acl_*: access control lists are not kept.
    Err(Errno::OPNOTSUPP)
}

/// The name of an attribute: as the kernel, before the file is looked for.
pub fn name_of(name: Text) -> Result<&'static [u8], Errno> {
    let name = name.within(XATTR_NAME_MAX, Errno::RANGE)?;
    if name.is_empty() { Err(Errno::RANGE) } else { Ok(name) }
}

/// As [`name_of`], of an attribute that is to be set.
pub fn checked(name: Text, len: usize, flags: c_int) -> Result<&'static [u8], Errno> {
    flags::SET_ATTRIBUTE.check(flags)?;
    let name = name_of(name)?;
    if len > XATTR_SIZE_MAX { Err(Errno::TOOBIG) } else { Ok(name) }
}

/// Why an attribute was not set: that its value cannot be read comes first.
#[cold]
pub fn first_of(stop: Stop, from: Bytes, len: usize) -> Stop {
    match (&stop, from.source(len).read(&mut vec![0; len])) {
        (Stop::Errno(_), Err(fault)) => Stop::Errno(fault.into()),
        _ => stop,
    }
}

pub fn get(process: &Process, attr: &Attr, name: &[u8], to: Bytes, len: usize) -> Served<isize> {
    check_xattr(process, attr, name, READ)?;
    let mut value = vec![0; len.min(XATTR_SIZE_MAX)];
    let whole = process.fs.get_xattr(attr.node, name, &mut value)?;
    if len > 0 {
        to.put(&value[..whole])?;
    }
    Ok(whole as isize)
}

pub fn set(
    process: &Process,
    attr: &Attr,
    name: &[u8],
    (from, len): (Bytes, usize),
    flags: c_int,
) -> Served<c_int> {
    check_xattr(process, attr, name, WRITE)?;
    let mut value = vec![0; len];
    from.source(len).read(&mut value).map_err(Errno::from)?;
    process.fs.set_xattr(attr.node, name, &value, flags as u32)?;
    DONE
}

pub fn list(process: &Process, attr: &Attr, to: Bytes, len: usize) -> Served<isize> {
    let mut names = vec![0; len.min(XATTR_SIZE_MAX)];
    let whole = process.fs.list_xattr(attr.node, &mut names)?;
    if len > 0 {
        to.put(&names[..whole])?;
    }
    Ok(whole as isize)
}

pub fn remove(process: &Process, attr: &Attr, name: &[u8]) -> Served<c_int> {
    check_xattr(process, attr, name, WRITE)?;
    process.fs.remove_xattr(attr.node, name)?;
    DONE
}
