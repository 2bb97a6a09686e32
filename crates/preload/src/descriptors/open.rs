//! Numbers opened and closed: `open`, `openat`, `creat`, their aliases, `close`, `close_range`,
//! `closefrom`.
//!
//! Locks: the structure lock, for the slot only.

use std::ffi::{c_char, c_int, c_uint};

use vfs::walk::Found;
use vfs::{Attr, Errno, FileSystemExt, Kind, OpenFlags, Opened};

use crate::descriptors::special_files;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::paths::identity;
use crate::paths::standins;
use crate::paths::{self, Plain, Target};

/// Flags with which `open` does more than find what is there and open it.
const MORE: c_int =
    libc::O_CREAT | libc::O_TRUNC | libc::O_PATH | libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Opens `path`; `kernel` opens what is not the volume's, by directory and path.
pub fn open_at(
    process: &Process,
    kernel: impl Fn(c_int, *const c_char) -> c_int,
    dirfd: c_int,
    path: Text,
    flags: c_int,
    mode: c_uint,
) -> Served<c_int> {
    let taken = taken(flags);
    let flags = taken.unwrap_or(flags);
    // As the kernel: flags come before the path.
    let first = |errno| taken.err().unwrap_or(errno);
    let text = path.bytes().map_err(first)?;
    let exclusive = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
    let mut attr = Attr::NONE;
    let is_simple = taken.is_ok() && flags & MORE == 0;
    let plain = is_simple.then(|| paths::plain(process, dirfd, text, &mut attr));
    if plain == Some(Plain::Kernel) {
        return identity::open(process, text, flags);
    }
    if plain == Some(Plain::Attributes) && matches!(attr.kind, Kind::File | Kind::Directory) {
        if let Some(copy) = standins::loaded_copy(attr.node) {
            return Ok(kernel(libc::AT_FDCWD, copy.as_ptr()));
        }
        match process.user(attr.node).open_node(&attr, flags, None) {
            // Removed meanwhile: the name may lead to another by now.
            Err(Errno::STALE) => {}
            opened => return Ok(process.install(opened?, 0, flags & libc::O_CLOEXEC != 0)?),
        }
    }
    // Made where it stays: it is long.
    let mut target = Target::Volume(Found::nothing());
    let is_plain = match &mut target {
        Target::Volume(found) => paths::plain_name(process, dirfd, text, follow, found),
        _ => false,
    };
    if !is_plain {
        let resolved = if flags & libc::O_CREAT != 0 && text.ends_with(b"/") {
            // A name that is to be made is not followed. (It cannot be: a directory is meant.)
            paths::resolve_name(process, dirfd, text)
        } else {
            paths::resolve(process, dirfd, text, follow)
        };
        match resolved {
            Err(errno) => return Err(Stop::Errno(first(errno))),
            Ok(Target::Kernel) => return identity::open(process, text, flags),
            Ok(Target::Elsewhere(path)) => {
                cached_fd::give_back();
                return Ok(kernel(libc::AT_FDCWD, path.as_ptr()));
            }
            Ok(found) => target = found,
        }
    }
    taken?;
    if let Target::Volume(found) = &target
        && let Some(copy) = found.attr.and_then(|attr| standins::loaded_copy(attr.node))
    {
        return Ok(kernel(libc::AT_FDCWD, copy.as_ptr()));
    }
    match open_found(process, &target, flags, mode)? {
        Ok(fd) => Ok(fd),
        Err(path) => {
            cached_fd::give_back();
            Ok(kernel(libc::AT_FDCWD, paths::c_text(&path)?.as_ptr()))
        }
    }
}

/// Opens what a path led to; `Err(path)`: it is the kernel's.
pub fn open_found(
    process: &Process,
    target: &Target<'_>,
    flags: c_int,
    mode: c_uint,
) -> Served<Result<c_int, Vec<u8>>> {
    if let Some(attr) = special_target(process, target)?
        && flags & libc::O_PATH == 0
    {
        let path = match target {
            Target::Volume(found) if process.volume_of(found.dir).mounted => {
                paths::name_of(process, found).ok()
            }
            _ => None,
        };
        return special_files::open(process, &attr, path.as_deref(), flags).map(Ok);
    }
    // As in the kernel, without a number nothing is made or emptied.
    let number = match flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE) {
        0 | libc::O_DIRECTORY => None,
        _ => Some(process.reserve(flags & libc::O_CLOEXEC != 0)?),
    };
    let opened = open_target(process, target, flags, mode);
    match (opened, number) {
        (Ok(Opened::Here(desc)), Some(fd)) => {
            process.install_at(desc, fd);
            Ok(Ok(fd))
        }
        (Ok(Opened::Here(desc)), None) => {
            Ok(Ok(process.install(desc, 0, flags & libc::O_CLOEXEC != 0)?))
        }
        (Ok(Opened::Outside(path)), number) => {
            number.inspect(|&fd| process.unreserve(fd));
            Ok(Err(path))
        }
        (Err(stop), number) => {
            number.inspect(|&fd| process.unreserve(fd));
            Err(stop)
        }
    }
}

/// What was found if its data is not the volume's.
fn special_target(process: &Process, target: &Target<'_>) -> Served<Option<Attr>> {
    let attr = match target {
        Target::Volume(found) if found.slash => None,
        Target::Volume(found) => found.attr,
        target => Some(paths::existing(process, target)?),
    };
    Ok(attr.filter(|attr| special_files::is_special(attr.kind)))
}

/// Opens what a path led to.
fn open_target(
    process: &Process,
    target: &Target<'_>,
    flags: c_int,
    mode: c_uint,
) -> Served<Opened> {
    let opened = match target {
        Target::Kernel | Target::Elsewhere(_) => return Err(Stop::Kernel),
        Target::Descriptor(fd) => {
            let desc = fdtable::get(*fd).ok_or(Errno::BADF)?;
            let attr = process.fs.attributes(process.fs.describe(desc)?.0)?;
            if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
                return Err(Stop::Errno(Errno::EXIST));
            }
            let place = process.fs.place(desc).ok();
            Opened::Here(process.user(attr.node).open_node(&attr, flags, place)?)
        }
        Target::Volume(found) => process.user(found.dir).open(found, flags, mode)?,
    };
    if flags & libc::O_TRUNC != 0
        && let Opened::Here(desc) = opened
    {
        // The file is open and empty, also if mapped pages cannot be taken away.
        let _ = process.resized_by(desc);
    }
    Ok(opened)
}

/// The flags as the kernel takes them: `O_PATH` leaves only what says how the path is walked, a
/// directory is never made, and a file without a name is made to be written.
pub const fn taken(flags: c_int) -> Result<c_int, Errno> {
    const WALK: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    const NAMELESS: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;
    const MADE: c_int = libc::O_DIRECTORY | libc::O_CREAT;
    if flags & libc::O_PATH != 0 {
        return Ok(flags & WALK);
    }
    let nameless = flags & NAMELESS != 0;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if flags & MADE == MADE || nameless && !(writes && flags & libc::O_DIRECTORY != 0) {
        return Err(Errno::INVAL);
    }
    Ok(flags)
}

/// A mode is passed only where a file may be made.
pub const fn mode_of(flags: c_int, mode: c_uint) -> c_uint {
    if OpenFlags(flags).has(libc::O_CREAT) || OpenFlags(flags).has(libc::O_TMPFILE) {
        mode
    } else {
        0
    }
}

/// Closes (or marks close-on-exec) a range of numbers: ours by the table, the internal ones never,
/// the others by `kernel` in the runs between them.
pub fn close_numbers(
    process: &Process,
    first: c_uint,
    last: c_uint,
    flags: c_int,
    kernel: &dyn Fn(c_uint, c_uint, c_int) -> c_int,
) -> c_int {
    let _until_it_ends = cached_fd::Closes::new();
    flags_change(process, first, last);
    let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    // The kernel closes ours too: once, since another thread may get a number that is closed.
    let cleared = if closes { process.clear(first, last) } else { Vec::new() };
    let result = in_runs(process, first, last, &|first, last| kernel(first, last, flags));
    if !closes {
        // Of those that other threads have opened meanwhile.
        flags_change(process, first, last);
    }
    for (desc, last) in cleared {
        // close_range tells of no errors of single numbers.
        let _ = process.forget(desc, last);
    }
    result
}

/// Forgets the numbers of ours that the kernel has closed, or marked, at somebody else's call.
pub fn forget_closed(process: &Process) {
    flags_change(process, 0, c_uint::MAX);
    let closed = |fd| rustix::io::fcntl_getfd(fdtable::borrow(fd)).is_err();
    let closed: Vec<c_int> = fdtable::all().map(|(fd, _)| fd).filter(|&fd| closed(fd)).collect();
    for fd in closed {
        for (desc, last) in process.clear(fd as c_uint, fd as c_uint) {
            let _ = process.forget(desc, last);
        }
    }
}

fn flags_change(process: &Process, first: c_uint, last: c_uint) {
    let _lock = process.lock();
    fdtable::flags_change(first, last);
}

/// Calls `kernel` for the runs between the internal numbers.
pub fn in_runs(
    process: &Process,
    first: c_uint,
    last: c_uint,
    kernel: &dyn Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut spared: Vec<c_uint> = process.internal_numbers().map(|fd| fd as c_uint).collect();
    spared.sort_unstable();
    let mut from = first;
    for fd in spared.into_iter().filter(|fd| (first..=last).contains(fd)) {
        if fd > from {
            let result = kernel(from, fd - 1);
            if result != 0 {
                return result;
            }
        }
        from = fd + 1;
    }
    if from <= last { kernel(from, last) } else { 0 }
}
