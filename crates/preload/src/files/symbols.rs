//! The exported functions of this room: bytes in and out, questions about files, attributes, what
//! glibc and the kernel do in the background.
//!
//! Before the kernel serves a call that moves many bytes, missing pages of mappings in the
//! program's buffers are supplied (`mappings::page_faults`).

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::sigevent;
use rustix::pipe::SpliceFlags;
use vfs::{Attr, Desc, Errno, FileSystemExt, IoOffset, Kind, Synced, Whence};

use crate::entry::cancel::Point;
use crate::entry::fdtable::{self, ours};
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::process::Process;
use crate::entry::{
    DONE, Inside, Stop, TRANSFER_BYTES_MAX, cached_fd, errno, limit, outside, syscall,
};
use crate::files::aio::{self, Block, Request};
use crate::files::attrs::{
    self, at_descriptor, at_path, from_micros, from_seconds, mode, owner, times,
};
use crate::files::rw::{
    self, Vector, offset_of, read_one, read_one_at, read_vectors, write_vectors,
};
use crate::files::stat::{self, may, stat_descriptor, stat_path};
use crate::files::{kernel_aio, splice};
use crate::interposed::{interpose, serve};
use crate::mappings::page_faults::{self, ready_all, ready_all_for};
use crate::mappings::read_estimate::Source;
use crate::mappings::{advice, cache_segments};
use crate::paths::flags;

// ---- bytes in and out

/// As [`ours`]; else makes the pages ready for the kernel, which reads `len` bytes into them.
#[inline]
fn ours_or_filled(fd: c_int, memory: Bytes, len: usize, at: Option<i64>) -> Result<Desc, Stop> {
    let found = ours(fd);
    if found.is_err() {
        page_faults::ready_for(Source::read(fd, at), memory.0, len)?;
        cache_segments::read_into(fd, memory.0, len, at);
    }
    found
}

/// The same of a call that writes from there.
#[inline]
fn ours_or_ready(fd: c_int, memory: Bytes, len: usize) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| page_faults::ready(memory.0, len))
}

/// The same of a vectored call.
#[inline]
fn ours_or_all_ready(fd: c_int, list: Out<Vector>, count: c_int) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| ready_all(list, count))
}

/// As [`ours_or_filled`], of a vectored call.
#[inline]
fn ours_or_all_filled(
    fd: c_int,
    list: Out<Vector>,
    count: c_int,
    from: Source,
) -> Result<Desc, Stop> {
    let found = ours(fd);
    if found.is_err() {
        ready_all_for(from, list, count)?;
    }
    found
}

interpose! {
    fn [read, __read, __read_nocancel](fd: c_int, to: Bytes, len: usize) -> isize
    = |process, _| {
        read_one(process, ours_or_filled(fd, to, len, None)?, to, len)
    }
    fn [__read_chk](fd: c_int, to: Bytes, len: usize, room: usize) -> isize = |process, _| {
        let desc = ours_or_filled(fd, to, len, None)?;
        check_room(len, room);
        read_one(process, desc, to, len)
    }
    fn [pread, pread64, __pread64, __pread64_nocancel, __libc_pread](
        fd: c_int, to: Bytes, len: usize, at: i64,
    ) -> isize = |process, _| {
        read_one_at(process, ours_or_filled(fd, to, len, Some(at))?, to, len, at)
    }
    fn [__pread_chk, __pread64_chk](fd: c_int, to: Bytes, len: usize, at: i64, room: usize) -> isize
    = |process, _| {
        let desc = ours_or_filled(fd, to, len, Some(at))?;
        check_room(len, room);
        read_one_at(process, desc, to, len, at)
    }
    fn [write, __write, __write_nocancel](fd: c_int, from: Bytes, len: usize) -> isize
    = |process, _| {
        let desc = ours_or_ready(fd, from, len)?;
        let first = |errno| rw::first_of(process, desc, true, errno);
        let from = from.check(len).map_err(first)?;
        let room = limit::room(process, desc, None, len.min(TRANSFER_BYTES_MAX))?;
        let written = process.fs.write(desc, &[from.source(room)], IoOffset::POSITION);
        Ok(written.map_err(|errno| rw::why_not(process, (desc, None), len, errno))? as isize)
    }
    fn [pwrite, pwrite64, __pwrite64, __libc_pwrite](
        fd: c_int, from: Bytes, len: usize, at: i64,
    ) -> isize = |process, _| {
        let desc = ours_or_ready(fd, from, len)?;
        let memory = from.check(len);
        // Neither it nor the end may lie beyond the largest offset that there is.
        if memory.is_err() || (at | at.wrapping_add(len as i64)) < 0 {
            let errno = memory.err().unwrap_or(Errno::INVAL);
            let first = || rw::first_of(process, desc, true, errno);
            return Err(Stop::Errno(if at < 0 { Errno::INVAL } else { first() }));
        }
        let at = at.cast_unsigned();
        let room = limit::room(process, desc, Some(at), len.min(TRANSFER_BYTES_MAX))?;
        let written = process.fs.write(desc, &[from.source(room)], IoOffset::offset(at));
        Ok(written.map_err(|errno| rw::why_not(process, (desc, Some(at)), len, errno))? as isize)
    }
    fn [readv](fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        let from = Source::read(fd, None);
        read_vectors(process, ours_or_all_filled(fd, list, count, from)?, list, count, -1, 0)
    }
    fn [writev](fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, -1, 0)
    }
    fn [preadv, preadv64](fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_filled(fd, list, count, Source::read(fd, Some(at)))?;
        offset_of(at)?;
        read_vectors(process, desc, list, count, at, 0)
    }
    fn [pwritev, pwritev64](fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_ready(fd, list, count)?;
        offset_of(at)?;
        write_vectors(process, desc, list, count, at, 0)
    }
    fn [preadv2, preadv64v2](fd: c_int, list: Out<Vector>, count: c_int, at: i64, flags: c_int)
    -> isize = |process, _| {
        let place = rw::place_of(at)?;
        let desc = ours_or_all_filled(fd, list, count, Source::flagged(fd, place, flags))?;
        read_vectors(process, desc, list, count, at, flags)
    }
    fn [pwritev2, pwritev64v2](fd: c_int, list: Out<Vector>, count: c_int, at: i64, flags: c_int)
    -> isize = |process, _| {
        rw::place_of(at)?;
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, at, flags)
    }
    fn [lseek, lseek64, llseek, __lseek](fd: c_int, offset: i64, whence: c_int) -> i64
    = |process, _| {
        let desc = ours(fd)?;
        let whence = match whence {
            libc::SEEK_SET => Whence::Set,
            libc::SEEK_CUR => Whence::Current,
            libc::SEEK_END => Whence::End,
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => {
                let open = rw::opened_as(process, fd);
                return Err(Stop::Errno(open.err().unwrap_or(Errno::INVAL)));
            }
        };
        let place = process.fs.seek(desc, offset, whence);
        // The kernel's sum is negative then.
        let wrapped = |errno| if errno == Errno::OVERFLOW { Errno::INVAL } else { errno };
        Ok(place.map_err(wrapped)? as i64)
    }
    fn [sendfile, sendfile64](out: c_int, from: c_int, offset: Out<i64>, len: usize) -> isize
    = |process, _| {
        if fdtable::get(out).is_none() && fdtable::get(from).is_none() {
            return Err(Stop::Kernel);
        }
        rw::check_sendfile(process, (from, offset), out, len)
            .map_err(|errno| rw::untold(offset, errno.into()))?;
        if len == 0 {
            return Ok(offset.get()?.map_or(Ok(0), |at| offset.put(at).map(|()| 0))?);
        }
        match fdtable::get(from) {
            // To a pipe it is a splice: once something was moved it does not wait for room.
            Some(file) if splice::is_pipe(out) => {
                splice::to_pipe(process, (file, offset), out, len, SpliceFlags::empty())
            }
            _ => rw::transfer(process, (from, offset), out, len),
        }
        .map_err(|stop| rw::untold(offset, stop))
    }
    fn [copy_file_range](
        from: c_int, from_at: Out<i64>, to: c_int, to_at: Out<i64>, len: usize, flags: c_uint,
    ) -> isize = |process, _| {
        let ends = (fdtable::get(from), fdtable::get(to));
        if ends != (None, None) {
            rw::check_copy(process, (from, from_at), (to, to_at), (len, flags))?;
        }
        match ends {
            (None, None) => Err(Stop::Kernel),
            (Some(source), Some(target)) => {
                rw::copy_range(process, (source, from_at), (target, to_at), len)
            }
            _ => Err(Stop::Errno(rw::copy_across(process, from, to)?)),
        }
    }
    fn [readahead](fd: c_int, offset: i64, len: usize) -> isize = |process, _| {
        let _ = offset;
        let (node, flags) = process.fs.describe(ours(fd)?)?;
        match process.fs.attributes(node)?.kind {
            _ if !flags.reads() => Err(Stop::Errno(Errno::BADF)),
            Kind::File if isize::try_from(len).is_ok() => Ok(0),
            _ => Err(Stop::Errno(Errno::INVAL)),
        }
    }
    fn [posix_fadvise, posix_fadvise64](fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int
    = |process, _| {
        let desc = ours(fd)?;
        let (_, flags) = process.fs.describe(desc)?;
        // Gives its error as its value.
        if flags.path_only() {
            return Ok(libc::EBADF);
        }
        if advice == libc::POSIX_FADV_WILLNEED {
            advice::wanted(process, desc, offset, len);
        }
        Ok(if (0..=5).contains(&advice) && len >= 0 { 0 } else { libc::EINVAL })
    }
    fn [fsync](fd: c_int) -> c_int = |process, _| {
        process.fs.sync(Synced::File(ours(fd)?))?;
        Ok(0)
    }
    fn [fdatasync](fd: c_int) -> c_int = |process, _| {
        process.fs.sync(Synced::Data(ours(fd)?))?;
        Ok(0)
    }
    fn [sync_file_range](fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int = |process, _| {
        let desc = ours(fd)?;
        if process.fs.describe(desc)?.1.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        flags::SYNC_RANGE.check(flags.cast_signed())?;
        if offset < 0 || len < 0 || offset.checked_add(len).is_none() {
            return Err(Stop::Errno(Errno::INVAL));
        }
        process.fs.sync(Synced::Data(desc))?;
        Ok(0)
    }
    fn [syncfs](fd: c_int) -> c_int = |process, _| {
        if process.fs.describe(ours(fd)?)?.1.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        process.fs.sync(Synced::All)?;
        Ok(0)
    }
    fn [sync]() -> () = |process, kernel| {
        process.fs.sync(Synced::All)?;
        kernel();
        Ok(())
    }
}

/// `_FORTIFY_SOURCE`: a length beyond the buffer's size ends the program, as in glibc.
fn check_room(len: usize, room: usize) {
    if len > room {
        std::process::abort();
    }
}

// ---- pipes

interpose! {
    fn [splice](
        from: c_int, from_at: Out<i64>, to: c_int, to_at: Out<i64>, len: usize, flags: c_uint,
    ) -> isize = |process, _| {
        let (source, target) = (fdtable::get(from), fdtable::get(to));
        if source.is_none() && target.is_none() {
            return Err(Stop::Kernel);
        }
        if len == 0 {
            return Ok(0);
        }
        flags::SPLICE.check(flags.cast_signed())?;
        splice::check(process, (from, from_at), (to, to_at), len)?;
        let flags = SpliceFlags::from_bits_retain(flags);
        match (source, target) {
            (Some(file), None) => splice::to_pipe(process, (file, from_at), to, len, flags),
            (None, Some(file)) => splice::from_pipe(process, from, (file, to_at), len, flags),
            _ => Err(Stop::Errno(Errno::INVAL)),
        }
    }
    fn [tee](from: c_int, to: c_int, len: usize, flags: c_uint) -> isize = |process, _| {
        if fdtable::get(from).is_none() && fdtable::get(to).is_none() {
            return Err(Stop::Kernel);
        }
        flags::SPLICE.check(flags.cast_signed())?;
        if len == 0 {
            return Ok(0);
        }
        let ends = (rw::opened_as(process, from)?, rw::opened_as(process, to)?);
        let allowed = ends.0.reads() && ends.1.writes();
        Err(Stop::Errno(if allowed { Errno::INVAL } else { Errno::BADF }))
    }
}

// ---- questions

type Stat = libc::stat;

const HERE: c_int = libc::AT_FDCWD;

const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

interpose! {
    fn [stat, stat64](path: Text, out: Out<Stat>) -> c_int = |process, kernel| {
        stat_path(process, |path| kernel(Text(path), out), (HERE, path, 0), out)
    }
    fn [lstat, lstat64](path: Text, out: Out<Stat>) -> c_int = |process, kernel| {
        stat_path(process, |path| kernel(Text(path), out), (HERE, path, NOFOLLOW), out)
    }
    fn [fstat, fstat64, __fstat64](fd: c_int, out: Out<Stat>) -> c_int = |process, _| {
        stat_descriptor(process, fd, out)
    }
    fn [fstatat, fstatat64](dirfd: c_int, path: Text, out: Out<Stat>, flags: c_int) -> c_int
    = |process, kernel| {
        flags::STAT.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), out, flags);
        stat_path(process, kernel, (dirfd, path, flags), out)
    }
    fn [__xstat, __xstat64](version: c_int, path: Text, out: Out<Stat>) -> c_int
    = |process, kernel| {
        stat_path(process, |path| kernel(version, Text(path), out), (HERE, path, 0), out)
    }
    fn [__lxstat, __lxstat64](version: c_int, path: Text, out: Out<Stat>) -> c_int
    = |process, kernel| {
        stat_path(process, |path| kernel(version, Text(path), out), (HERE, path, NOFOLLOW), out)
    }
    fn [__fxstat, __fxstat64](version: c_int, fd: c_int, out: Out<Stat>) -> c_int = |process, _| {
        let _ = version;
        stat_descriptor(process, fd, out)
    }
    fn [__fxstatat, __fxstatat64](
        version: c_int, dirfd: c_int, path: Text, out: Out<Stat>, flags: c_int,
    ) -> c_int = |process, kernel| {
        flags::STAT.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(version, HERE, Text(path), out, flags);
        stat_path(process, kernel, (dirfd, path, flags), out)
    }
    fn [statx](dirfd: c_int, path: Text, flags: c_int, mask: c_uint, out: Out<libc::statx>)
    -> c_int = |process, kernel| {
        flags::check_statx(process, (dirfd, path), flags, mask)?;
        let mut attr = Attr::NONE;
        if let Some(path) = stat::ask(process, (dirfd, path, flags), &mut attr)? {
            return Ok(kernel(HERE, Text(path.as_ptr()), flags, mask, out));
        }
        out.put(stat::statx_of(process, &attr, mask))?;
        Ok(0)
    }
    fn [access](path: Text, mode: c_int) -> c_int = |process, kernel| {
        may(process, |path| kernel(Text(path), mode), (HERE, path, 0), mode)
    }
    fn [faccessat](dirfd: c_int, path: Text, mode: c_int, flags: c_int) -> c_int
    = |process, kernel| {
        flags::ACCESS.check_at(process, (dirfd, path), flags)?;
        if path.0.is_null() {
            return Err(Stop::Kernel);
        }
        let kernel = |path| kernel(HERE, Text(path), mode, flags);
        may(process, kernel, (dirfd, path, flags), mode)
    }
    fn [euidaccess, eaccess](path: Text, mode: c_int) -> c_int = |process, kernel| {
        may(process, |path| kernel(Text(path), mode), (HERE, path, libc::AT_EACCESS), mode)
    }
    fn [statfs, statfs64, __statfs](path: Text, out: Out<libc::statfs>) -> c_int
    = |process, kernel| {
        let mut attr = Attr::NONE;
        if let Some(path) = stat::ask(process, (HERE, path, 0), &mut attr)? {
            return Ok(kernel(Text(path.as_ptr()), out));
        }
        out.put(stat::statfs_of(process, attr.node.into())?)?;
        Ok(0)
    }
    fn [fstatfs, fstatfs64](fd: c_int, out: Out<libc::statfs>) -> c_int = |process, _| {
        out.put(stat::statfs_of(process, ours(fd)?.into())?)?;
        Ok(0)
    }
    fn [statvfs, statvfs64](path: Text, out: Out<libc::statvfs>) -> c_int = |process, kernel| {
        let mut attr = Attr::NONE;
        if let Some(path) = stat::ask(process, (HERE, path, 0), &mut attr)? {
            return Ok(kernel(Text(path.as_ptr()), out));
        }
        out.put(stat::statvfs_of(process, attr.node.into())?)?;
        Ok(0)
    }
    fn [fstatvfs, fstatvfs64](fd: c_int, out: Out<libc::statvfs>) -> c_int = |process, _| {
        out.put(stat::statvfs_of(process, ours(fd)?.into())?)?;
        Ok(0)
    }
    fn [pathconf](path: Text, name: c_int) -> c_long = |process, kernel| {
        match stat::ask(process, (HERE, path, 0), &mut { Attr::NONE })? {
            None => stat::limit(name),
            Some(path) => Ok(kernel(Text(path.as_ptr()), name)),
        }
    }
    fn [fpathconf](fd: c_int, name: c_int) -> c_long = |_, _| {
        ours(fd)?;
        stat::limit(name)
    }
}

// ---- attributes

type Micros = Out<[libc::timeval; 2]>;

type Times = Out<[libc::timespec; 2]>;

interpose! {
    fn [chmod](path: Text, to: c_uint) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| mode(process, attr, to))
    }
    fn [lchmod](path: Text, to: c_uint) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| mode(process, attr, to))
    }
    fn [fchmod](fd: c_int, to: c_uint) -> c_int = |process, _| {
        at_descriptor(process, fd, |attr| mode(process, attr, to))
    }
    fn [fchmodat](dirfd: c_int, path: Text, to: c_uint, flags: c_int) -> c_int
    = |process, kernel| {
        flags::CHANGE.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), to, flags);
        at_path(process, (dirfd, path, flags), kernel, |attr| mode(process, attr, to))
    }
    fn [chown](path: Text, uid: u32, gid: u32) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), uid, gid);
        at_path(process, (HERE, path, 0), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn [lchown](path: Text, uid: u32, gid: u32) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), uid, gid);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn [fchown](fd: c_int, uid: u32, gid: u32) -> c_int = |process, _| {
        at_descriptor(process, fd, |attr| owner(process, attr, uid, gid))
    }
    fn [fchownat](dirfd: c_int, path: Text, uid: u32, gid: u32, flags: c_int) -> c_int
    = |process, kernel| {
        flags::CHANGE.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), uid, gid, flags);
        at_path(process, (dirfd, path, flags), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn [utime](path: Text, to: Out<libc::utimbuf>) -> c_int = |process, kernel| {
        // As the kernel: before it looks at the path.
        let given = from_seconds(to)?;
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn [utimes](path: Text, to: Micros) -> c_int = |process, kernel| {
        let given = from_micros(to)?;
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn [lutimes](path: Text, to: Micros) -> c_int = |process, kernel| {
        let given = from_micros(to)?;
        let kernel = |path| kernel(Text(path), to);
        let at = (HERE, path, NOFOLLOW);
        at_path(process, at, kernel, |attr| times(process, attr, given))
    }
    fn [futimes](fd: c_int, to: Micros) -> c_int = |process, _| {
        let given = from_micros(to)?;
        at_descriptor(process, fd, |attr| times(process, attr, given))
    }
    fn [futimesat](dirfd: c_int, path: Text, to: Micros) -> c_int = |process, kernel| {
        let given = from_micros(to)?;
        if path.0.is_null() {
            return at_descriptor(process, dirfd, |attr| times(process, attr, given));
        }
        let kernel = |path| kernel(HERE, Text(path), to);
        at_path(process, (dirfd, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn [utimensat](dirfd: c_int, path: Text, to: Times, flags: c_int) -> c_int
    = |process, kernel| {
        if path.0.is_null() {
            // glibc's to refuse: `EINVAL`.
            return Err(Stop::Kernel);
        }
        let given = to.get()?;
        if attrs::keeps_times(given) {
            // As the kernel: it does not look at the path.
            return DONE;
        }
        flags::CHANGE.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), to, flags);
        at_path(process, (dirfd, path, flags), kernel, |attr| times(process, attr, given))
    }
    fn [futimens](fd: c_int, to: Times) -> c_int = |process, _| {
        at_descriptor(process, fd, |attr| times(process, attr, to.get()?))
    }
    fn [truncate, truncate64](path: Text, size: i64) -> c_int = |process, kernel| {
        let length = offset_of(size)?;
        at_path(process, (HERE, path, 0), |path| kernel(Text(path), size), |attr| {
            let size = length;
            limit::check_size(process, attr.node, size)?;
            process.user(attr.node).truncate(attr, size)?;
            process.resized(attr.node)?;
            DONE
        })
    }
    fn [ftruncate, ftruncate64](fd: c_int, size: i64) -> c_int = |process, _| {
        let desc = ours(fd)?;
        let size = offset_of(size)?;
        let (node, flags) = process.fs.describe(desc)?;
        if flags.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        if !flags.writes() || process.fs.attributes(node)?.kind != Kind::File {
            return Err(Stop::Errno(Errno::INVAL));
        }
        limit::check_size(process, node, size)?;
        process.fs.truncate(node, size)?;
        process.resized(node)?;
        DONE
    }
    fn [fallocate, fallocate64](fd: c_int, how: c_int, offset: i64, len: i64) -> c_int
    = |process, _| {
        attrs::allocate(process, fd, how, offset, len)?;
        DONE
    }
    fn [posix_fallocate, posix_fallocate64](fd: c_int, offset: i64, len: i64) -> c_int
    = |process, _| {
        // Gives its error as its value.
        match attrs::allocate(process, fd, 0, offset, len) {
            Ok(()) => DONE,
            Err(Stop::Errno(errno)) => Ok(errno.raw_os_error()),
            Err(stop) => Err(stop),
        }
    }
}

interpose! {
    fn [getxattr](path: Text, name: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name, to, len);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::get(process, attr, given, to, len))
    }
    fn [lgetxattr](path: Text, name: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name, to, len);
        let at = (HERE, path, NOFOLLOW);
        at_path(process, at, kernel, |attr| attrs::get(process, attr, given, to, len))
    }
    fn [fgetxattr](fd: c_int, name: Text, to: Bytes, len: usize) -> isize = |process, _| {
        let given = attrs::name_of(name)?;
        attrs::at_number(process, fd, |attr| attrs::get(process, attr, given, to, len))
    }
    fn [setxattr](path: Text, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, kernel| {
        let given = attrs::checked(name, len, flags)?;
        let kernel = |path| kernel(Text(path), name, from, len, flags);
        let at = (HERE, path, 0);
        at_path(process, at, kernel, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn [lsetxattr](path: Text, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, kernel| {
        let given = attrs::checked(name, len, flags)?;
        let kernel = |path| kernel(Text(path), name, from, len, flags);
        let at = (HERE, path, NOFOLLOW);
        at_path(process, at, kernel, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn [fsetxattr](fd: c_int, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, _| {
        let given = attrs::checked(name, len, flags)?;
        attrs::at_number(process, fd, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn [listxattr](path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let kernel = |path| kernel(Text(path), to, len);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::list(process, attr, to, len))
    }
    fn [llistxattr](path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let kernel = |path| kernel(Text(path), to, len);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| attrs::list(process, attr, to, len))
    }
    fn [flistxattr](fd: c_int, to: Bytes, len: usize) -> isize = |process, _| {
        attrs::at_number(process, fd, |attr| attrs::list(process, attr, to, len))
    }
    fn [removexattr](path: Text, name: Text) -> c_int = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::remove(process, attr, given))
    }
    fn [lremovexattr](path: Text, name: Text) -> c_int = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| attrs::remove(process, attr, given))
    }
    fn [fremovexattr](fd: c_int, name: Text) -> c_int = |process, _| {
        let given = attrs::name_of(name)?;
        attrs::at_number(process, fd, |attr| attrs::remove(process, attr, given))
    }
}

// ---- glibc's asynchronous calls

interpose! {
    fn [aio_read, aio_read64](request: Request) -> c_int = |_, _| {
        aio::submit(request, aio::read)
    }
    fn [aio_write, aio_write64](request: Request) -> c_int = |_, _| {
        aio::submit(request, aio::write)
    }
    fn [aio_fsync, aio_fsync64](how: c_int, request: Request) -> c_int = |process, _| {
        aio::synchronise(process, how, request)
    }
    fn [lio_listio, lio_listio64](
        mode: c_int, requests: Out<Request>, count: c_int, event: Out<sigevent>,
    ) -> c_int = |_, kernel| {
        aio::list(mode, requests, count, event, &|mut theirs: Vec<*mut Block>| {
            let count = theirs.len() as c_int;
            outside(|| kernel(mode, Out(theirs.as_mut_ptr().cast()), count, event))
        })
    }
}

// ---- the kernel's asynchronous calls

/// A function of a library that gives errors as negative numbers.
fn begin(function: &'static str, kernel: impl FnOnce() -> c_int) -> c_int {
    let answer = || match kernel_aio::begun(function) {
        Stop::Kernel => Err(Stop::Kernel),
        _ => Ok(-libc::ENOSYS),
    };
    let declined = |_: &'static Process| answer();
    // The other engine's files would be read and written past what it has staged.
    serve(function, Point::Never, declined, || {
        cached_fd::give_back();
        crate::split::engine::ring_instead(answer, kernel)
    })
}

/// Makes the system call as those libraries do.
fn make(number: c_long, first: usize, second: usize) -> c_int {
    let before = errno();
    let answer = syscall::kernel(number, [first, second, 0, 0, 0, 0]) as c_int;
    let failed = errno();
    crate::entry::set_errno(before);
    if answer < 0 { -failed } else { answer }
}

/// liburing's own function of this name, wherever it is loaded; 0: nowhere.
fn liburing(name: &CStr) -> usize {
    const FILES: [&CStr; 2] = [c"liburing.so.2", c"liburing.so.1"];
    let _inside = Inside::new();
    let found = FILES.iter().find_map(|file| {
        // SAFETY: texts; what is loaded stays, as one reference to it is kept.
        let address = unsafe {
            let handle = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
        };
        (!address.is_null()).then_some(address as usize)
    });
    found.unwrap_or(0)
}

/// Defines functions of liburing; each with its type and the arguments that it passes on.
macro_rules! of_liburing {
    ($(fn $name:ident($($arg:ident : $ty:ty),* $(,)?);)*) => {$(
        // SAFETY: the symbol replaces liburing's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            let name = concat!(stringify!($name), "\0");
            begin(stringify!($name), || {
                let address = CStr::from_bytes_with_nul(name.as_bytes()).map_or(0, liburing);
                if address == 0 {
                    return -libc::ENOSYS;
                }
                // SAFETY: liburing's function of this name, and the program's own arguments.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> c_int>(
                        address,
                    )($($arg),*)
                }
            })
        }
    )*};
}

of_liburing! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void,
        bytes: usize,
    );
}

// SAFETY: the symbol replaces liburing's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    let kernel = || make(libc::SYS_io_uring_setup, entries as usize, parameters as usize);
    begin("io_uring_setup", kernel)
}

// SAFETY: the symbol replaces libaio's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_setup(events: c_int, context: *mut *mut c_char) -> c_int {
    begin("io_setup", || make(libc::SYS_io_setup, events as usize, context as usize))
}

// SAFETY: the symbol replaces libaio's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_queue_init(events: c_int, context: *mut *mut c_char) -> c_int {
    begin("io_queue_init", || {
        if events <= 0 {
            return -libc::EINVAL;
        }
        // SAFETY: the program's own place for the context, which libaio empties so too.
        unsafe { *context = std::ptr::null_mut() };
        make(libc::SYS_io_setup, events as usize, context as usize)
    })
}
