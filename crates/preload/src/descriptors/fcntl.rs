//! Descriptors copied and controlled: `dup`, `dup2`, `dup3`, `fcntl`, `ioctl`, `flock`, `lockf`.
//!
//! `FD_CLOEXEC` belongs to the number and is the kernel's; status flags, locks and the position
//! belong to the description and are the engine's.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::Ordering;

use rustix::io::{DupFlags, FdFlags};
use vfs::{Desc, Errno, FileSystemExt, Kind, LockKind, LockOwner, OpenFlags, RecordLock, Whence};

use crate::descriptors::owners;
use crate::descriptors::write_hints;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::hooks;
use crate::entry::pointers::Out;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{self, DONE, Served, Stop};

/// A second number for the description of `fd`.
pub fn duplicate(process: &Process, fd: c_int, min: c_int, cloexec: bool) -> Served<c_int> {
    let lock = process.lock();
    let desc = fdtable::ours_held(fd)?;
    let new = fdtable::install(desc, min, cloexec)?;
    fdtable::set_shared(fd);
    fdtable::set_shared(new);
    drop(lock);
    Ok(new)
}

/// `dup2` where the old or the new number is the volume's.
pub fn duplicate_to(process: &Process, old: c_int, new: c_int, flags: DupFlags) -> Served<c_int> {
    if process.is_internal(old) {
        return Err(Stop::Errno(Errno::BADF));
    }
    while flac::descriptors::is_open(new) {
        // The cache's, for a moment.
        std::thread::yield_now();
    }
    let in_the_way = process.is_internal(new);
    let maps = process.lock();
    // From here on neither number is the cached one.
    cached_fd::give_back_held();
    if fdtable::get(old).is_none() && fdtable::get(new).is_none() && !in_the_way {
        // Another thread may have it reserved.
        fdtable::flag_changes(new);
        cached_fd::announce();
        return Err(Stop::Kernel);
    }
    if new < 0 || new as usize >= fdtable::NUMBERS_MAX {
        return Err(Stop::Errno(Errno::BADF));
    }
    let source = fdtable::get(old);
    let from = fdtable::borrow_checked(old)?;
    // SAFETY: never dropped: the number is the program's.
    let mut to = std::mem::ManuallyDrop::new(unsafe {
        <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(new)
    });
    let mut duplicate =
        || (hooks::get().replace)(old, new, &mut || rustix::io::dup3(from, &mut to, flags));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if limit.is_some_and(|limit| new as u64 >= limit) {
        return Err(Stop::Errno(Errno::BADF));
    }
    // A thread that uses the number meanwhile meets what it stood for or what it will: so the table
    // changes before the kernel's number if the new file is ours, and after it otherwise.
    let replaced = if source.is_some() && !in_the_way {
        let before = fdtable::duplicate(old, new);
        duplicate().inspect_err(|_| fdtable::restore(new, before))?;
        fdtable::description_of(before)
    } else {
        if in_the_way {
            rustix::io::fcntl_getfd(from)?;
            process.make_way(new, &mut duplicate)?;
        } else {
            duplicate()?;
        }
        let replaced = fdtable::clear(new).map(|(desc, _)| desc);
        if source.is_some() {
            fdtable::duplicate(old, new);
        }
        replaced
    };
    let replaced = replaced.map(|desc| (desc, !fdtable::holds(desc) && !maps.holds(desc)));
    drop(maps);
    if replaced.is_some() {
        entry::number_replaced();
    }
    if let Some((desc, last)) = replaced {
        // As in the kernel, errors of the silent close are lost.
        let _ = process.forget(desc, last);
    }
    Ok(new)
}

const FIONREAD: c_ulong = libc::FIONREAD;
const FIONBIO: c_ulong = libc::FIONBIO;
pub const FIOCLEX: c_ulong = libc::FIOCLEX;
pub const FIONCLEX: c_ulong = libc::FIONCLEX;
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;
const FIBMAP: c_ulong = 1;
const FIGETBSZ: c_ulong = 2;
const FS_IOC_GETFLAGS: c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: c_ulong = 0x4008_6602;

/// Requests to a loop device that name the file behind it: by its number, and in a structure that
/// begins with it.
const LOOP_SET_FD: u32 = 0x4c00;
const LOOP_CHANGE_FD: u32 = 0x4c06;
const LOOP_CONFIGURE: u32 = 0x4c0a;

/// What is ours of that which `request` puts behind a device of the kernel's, which would find an
/// empty file there.
pub fn behind_loop_device(fd: c_int, request: u32, argument: *mut c_void) -> Option<Desc> {
    let number = match request {
        LOOP_SET_FD | LOOP_CHANGE_FD => argument as c_int,
        LOOP_CONFIGURE => Out(argument.cast::<c_int>()).value().ok()?,
        _ => return None,
    };
    if fdtable::get(fd).is_some() { None } else { fdtable::get(number) }
}

/// `ioctl`, as a file system in memory answers it.
pub fn device_control(
    process: &Process,
    desc: Desc,
    request: c_ulong,
    argument: *mut c_void,
) -> Served<c_int> {
    let number = Out(argument.cast::<c_int>());
    let (node, flags) = process.fs.describe(desc)?;
    if flags.path_only() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let attr = process.fs.attributes(node)?;
    match (request, attr.kind) {
        (FIONBIO, _) => {
            let bit = libc::O_NONBLOCK;
            let flags = if number.value()? != 0 { flags.0 | bit } else { flags.0 & !bit };
            process.fs.set_flags(desc, OpenFlags(flags))?;
        }
        (FIONREAD, Kind::File) => {
            let at = process.fs.seek(desc, 0, Whence::Current)?;
            number.put((attr.size as i64 - at as i64) as c_int)?;
        }
        (FIBMAP, Kind::File) => {
            number.value()?;
            return Err(Stop::Errno(Errno::INVAL));
        }
        (FIGETBSZ, _) => number.put(process.fs.stat_fs(desc.into())?.block_size as c_int)?,
        (FS_IOC_GETFLAGS, _) => number.put(0)?,
        (FS_IOC_SETFLAGS, _) if number.value()? != 0 => {
            return Err(Stop::Errno(Errno::OPNOTSUPP));
        }
        (FS_IOC_SETFLAGS, _) => {}
        (FICLONE | FICLONERANGE, _) => return Err(Stop::Errno(Errno::OPNOTSUPP)),
        _ => return Err(Stop::Errno(Errno::NOTTY)),
    }
    DONE
}

/// Whether two numbers stand for one description.
const F_DUPFD_QUERY: c_int = 1027;
/// The seals that there are: sealing, shrinking, growing, writing, writing later, mode bits.
const SEALS: c_int = 0x3f;

/// The status flags that `F_SETFL` changes.
const CHANGEABLE: c_int =
    libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT | libc::O_ASYNC;
/// Flags that only say how to open.
const TRANSIENT: c_int =
    libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;
/// What 64-bit kernels always show.
const LARGEFILE: c_int = 0o100_000;

/// Seals: a file has the one that forbids others, as a file of tmpfs.
fn seals(process: &Process, desc: Desc, command: c_int, argument: c_int) -> Served<c_int> {
    let (node, flags) = process.fs.describe(desc)?;
    if command == libc::F_ADD_SEALS && !flags.writes() {
        return Err(Stop::Errno(Errno::PERM));
    }
    if process.fs.attributes(node)?.kind != Kind::File {
        return Err(Stop::Errno(Errno::INVAL));
    }
    match command {
        libc::F_GET_SEALS => Ok(libc::F_SEAL_SEAL),
        _ if argument & !SEALS != 0 => Err(Stop::Errno(Errno::INVAL)),
        _ => Err(Stop::Errno(Errno::PERM)),
    }
}

pub fn control(
    process: &Process,
    desc: Desc,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> Served<c_int> {
    let lock = Out(argument as *mut libc::flock);
    if let libc::F_SETLK | libc::F_SETLKW = command {
        // By far the most frequent command: the descriptor is checked only if it fails.
        let set = set_lock(process, desc, lock, command == libc::F_SETLKW);
        let path_only = set.is_err() && process.fs.describe(desc)?.1.path_only();
        return if path_only { Err(Stop::Errno(Errno::BADF)) } else { set };
    }
    match command {
        libc::F_GETFD
        | libc::F_SETFD
        | libc::F_DUPFD
        | libc::F_DUPFD_CLOEXEC
        | libc::F_GETFL
        | F_DUPFD_QUERY => {}
        _ if process.fs.describe(desc)?.1.path_only() => return Err(Stop::Errno(Errno::BADF)),
        _ => {}
    }
    match command {
        libc::F_GETFD => {
            let flags = rustix::io::fcntl_getfd(fdtable::borrow(fd))?;
            Ok(flags.bits() as c_int)
        }
        libc::F_SETFD => {
            let flags = FdFlags::from_bits_truncate(argument as u32);
            fdtable::flag_changes(fd);
            rustix::io::fcntl_setfd(fdtable::borrow(fd), flags)?;
            DONE
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            if argument as c_int as usize >= fdtable::NUMBERS_MAX {
                return Err(Stop::Errno(Errno::INVAL));
            }
            duplicate(process, fd, argument as c_int, command == libc::F_DUPFD_CLOEXEC)
        }
        libc::F_GETFL => {
            let (_, flags) = process.fs.describe(desc)?;
            let shown = if flags.path_only() { 0 } else { LARGEFILE };
            Ok(flags.0 & !TRANSIENT | shown)
        }
        libc::F_SETFL => {
            let (node, flags) = process.fs.describe(desc)?;
            let added = argument as c_int & !flags.0;
            if added & libc::O_NOATIME != 0 && !process.cred().owns(&process.fs.attributes(node)?) {
                return Err(Stop::Errno(Errno::PERM));
            }
            let flags = flags.0 & !CHANGEABLE | argument as c_int & CHANGEABLE;
            process.fs.set_flags(desc, OpenFlags(flags))?;
            DONE
        }
        libc::F_GETLK => test_lock(process, desc, LockOwner::Process, lock),
        libc::F_OFD_GETLK => test_lock(process, desc, LockOwner::Description, lock),
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            let lock = read_lock(lock)?;
            let wait = command == libc::F_OFD_SETLKW;
            if lock.l_pid != 0 {
                return Err(Stop::Errno(why_not(process, desc, &lock)?));
            }
            record_lock(process, desc, LockOwner::Description, &lock, wait)
        }
        libc::F_SETPIPE_SZ | libc::F_GETPIPE_SZ => Err(Stop::Errno(Errno::BADF)),
        libc::F_GET_SEALS | libc::F_ADD_SEALS => seals(process, desc, command, argument as c_int),
        libc::F_GETLEASE => Ok(libc::F_UNLCK),
        // There is none to be given back.
        libc::F_SETLEASE if argument as c_int == libc::F_UNLCK => Err(Stop::Errno(Errno::AGAIN)),
        F_DUPFD_QUERY => same_description(desc, argument as c_int),
        write_hints::F_GET_RW_HINT | write_hints::F_SET_RW_HINT => {
            write_hints::control(process, desc, command, Out(argument as *mut u64))
        }
        _ => {
            if let Some(value) = owners::control(desc, command, argument)? {
                return Ok(value);
            }
            report::about(desc.member());
            Err(Stop::Refused("fcntl-command", Errno::INVAL))
        }
    }
}

/// `F_DUPFD_QUERY`.
fn same_description(desc: Desc, other: c_int) -> Served<c_int> {
    if let Some(other) = fdtable::get(other) {
        return Ok(c_int::from(other == desc));
    }
    rustix::io::fcntl_getfd(fdtable::borrow_checked(other)?)?;
    Ok(0)
}

/// The absolute byte range of a C lock.
#[inline]
pub fn range(process: &Process, desc: Desc, lock: &libc::flock) -> Result<RecordLock, Errno> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => process.fs.seek(desc, 0, Whence::Current)?,
        libc::SEEK_END => {
            let (node, _) = process.fs.describe(desc)?;
            process.fs.attributes(node)?.size
        }
        _ => return Err(Errno::INVAL),
    };
    let start = (base as i64).checked_add(lock.l_start).ok_or(Errno::OVERFLOW)?;
    // A negative length lies before the start.
    let (start, end) = match lock.l_len {
        0 => (start, None),
        len if len > 0 => (start, Some(start.checked_add(len - 1).ok_or(Errno::OVERFLOW)?)),
        len => (start.checked_add(len).ok_or(Errno::INVAL)?, Some(start - 1)),
    };
    let start = u64::try_from(start).map_err(|_| Errno::INVAL)?;
    // The largest offset stands for the end, wherever it is.
    let end = end.filter(|&end| end != i64::MAX).map_or(u64::MAX, |end| end as u64);
    let kind = match c_int::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::INVAL),
    };
    Ok(RecordLock { kind, start, end, pid: 0 })
}

/// The kernel's error for a description's lock that names a process.
fn why_not(process: &Process, desc: Desc, lock: &libc::flock) -> Result<Errno, Errno> {
    let wanted = range(process, desc, lock)?;
    let (_, flags) = process.fs.describe(desc)?;
    let allowed = match wanted.kind {
        LockKind::Read => flags.reads(),
        LockKind::Write => flags.writes(),
        LockKind::Unlock => !flags.path_only(),
    };
    Ok(if allowed { Errno::INVAL } else { Errno::BADF })
}

#[inline]
pub fn record_lock(
    process: &Process,
    desc: Desc,
    owner: LockOwner,
    lock: &libc::flock,
    wait: bool,
) -> Served<c_int> {
    let wanted = range(process, desc, lock)?;
    if owner == LockOwner::Process {
        process.record_locks.store(true, Ordering::Relaxed);
    }
    process.fs.record_lock(desc, owner, &wanted, wait)?;
    DONE
}

const _: () = assert!(size_of::<libc::flock>() == size_of::<[u64; 4]>());

/// The program's lock: by words, which stay in registers. A copy of what was stored by other sizes
/// waits for these stores.
#[inline]
fn read_lock(lock: Out<libc::flock>) -> Result<libc::flock, Errno> {
    let [kinds, start, length, pid] = Out(lock.0.cast::<[u64; 4]>()).value()?;
    Ok(libc::flock {
        l_type: kinds as i16,
        l_whence: (kinds >> 16) as i16,
        l_start: start as i64,
        l_len: length as i64,
        l_pid: pid as i32,
    })
}

fn set_lock(process: &Process, desc: Desc, lock: Out<libc::flock>, wait: bool) -> Served<c_int> {
    record_lock(process, desc, LockOwner::Process, &read_lock(lock)?, wait)
}

fn test_lock(
    process: &Process,
    desc: Desc,
    owner: LockOwner,
    out: Out<libc::flock>,
) -> Served<c_int> {
    let mut lock = read_lock(out)?;
    let process_own = owner == LockOwner::Process;
    // Only a description's own locks may be asked for with `F_UNLCK`.
    if process_own && c_int::from(lock.l_type) == libc::F_UNLCK {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let wanted = range(process, desc, &lock)?;
    if !process_own && lock.l_pid != 0 {
        return Err(Stop::Errno(Errno::INVAL));
    }
    match process.fs.test_lock(desc, owner, &wanted)? {
        None => lock.l_type = libc::F_UNLCK as i16,
        Some(held) => {
            let write = held.kind == LockKind::Write;
            lock.l_type = if write { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
            lock.l_whence = libc::SEEK_SET as i16;
            lock.l_start = held.start as i64;
            lock.l_len = if held.end == u64::MAX { 0 } else { (held.end - held.start) as i64 + 1 };
            lock.l_pid = held.pid;
        }
    }
    out.put(lock)?;
    DONE
}
