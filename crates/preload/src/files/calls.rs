//! The calls of this room: bytes in and out, questions about files, attributes, what the kernel
//! would do in the background.
//!
//! Before the kernel serves a call that moves many bytes, missing pages of mappings in the
//! program's buffers are supplied (`mappings::page_faults`).

use std::ffi::{c_int, c_uint, c_void};

use rustix::pipe::SpliceFlags;
use vfs::{Attr, Desc, Errno, FileSystemExt, IoOffset, Kind, Synced, Whence};

use crate::entry::fdtable::{self, ours};
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::{DONE, Stop, TRANSFER_BYTES_MAX, limit};
use crate::files::attrs::{
    self, at_descriptor, at_path, from_micros, from_seconds, mode, owner, times,
};
use crate::files::rw::{
    self, Vector, offset_of, read_one, read_one_at, read_vectors, write_vectors,
};
use crate::files::stat::{self, may, stat_descriptor, stat_path};
use crate::files::{kernel_aio, splice};
use crate::interposed::bodies;
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

bodies! {
    #[exported(read, __read)]
    fn read(fd: c_int, to: Bytes, len: usize) -> isize
    = |process, _| {
        read_one(process, ours_or_filled(fd, to, len, None)?, to, len)
    }
    #[exported(pread, pread64, __pread64)]
    fn pread64(
        fd: c_int, to: Bytes, len: usize, at: i64,
    ) -> isize = |process, _| {
        read_one_at(process, ours_or_filled(fd, to, len, Some(at))?, to, len, at)
    }
    #[exported(write, __write)]
    fn write(fd: c_int, from: Bytes, len: usize) -> isize
    = |process, _| {
        let desc = ours_or_ready(fd, from, len)?;
        let first = |errno| rw::first_of(process, desc, true, errno);
        let from = from.check(len).map_err(first)?;
        let room = limit::room(process, desc, None, len.min(TRANSFER_BYTES_MAX))?;
        let from = [from.source(room)];
        let written = process.fs.of(desc).write(desc, &from, IoOffset::POSITION);
        Ok(written.map_err(|errno| rw::why_not(process, (desc, None), len, errno))? as isize)
    }
    #[exported(pwrite, pwrite64, __pwrite64)]
    fn pwrite64(
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
        let from = [from.source(room)];
        let written = process.fs.of(desc).write(desc, &from, IoOffset::offset(at));
        Ok(written.map_err(|errno| rw::why_not(process, (desc, Some(at)), len, errno))? as isize)
    }
    #[exported(readv)]
    fn readv(fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        let from = Source::read(fd, None);
        read_vectors(process, ours_or_all_filled(fd, list, count, from)?, list, count, -1, 0)
    }
    #[exported(writev)]
    fn writev(fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, -1, 0)
    }
    fn preadv(fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_filled(fd, list, count, Source::read(fd, Some(at)))?;
        offset_of(at)?;
        read_vectors(process, desc, list, count, at, 0)
    }
    fn pwritev(fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_ready(fd, list, count)?;
        offset_of(at)?;
        write_vectors(process, desc, list, count, at, 0)
    }
    fn preadv2(
        fd: c_int, list: Out<Vector>, count: c_int, at: i64, upper: usize, flags: c_int,
    ) -> isize = |process, _| {
        // The offset is in one register; the next is its upper half on other machines.
        let _ = upper;
        let place = rw::place_of(at)?;
        let desc = ours_or_all_filled(fd, list, count, Source::flagged(fd, place, flags))?;
        read_vectors(process, desc, list, count, at, flags)
    }
    fn pwritev2(
        fd: c_int, list: Out<Vector>, count: c_int, at: i64, upper: usize, flags: c_int,
    ) -> isize = |process, _| {
        // The offset is in one register; the next is its upper half on other machines.
        let _ = upper;
        rw::place_of(at)?;
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, at, flags)
    }
    #[exported(lseek, lseek64, __lseek)]
    fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64
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
        let place = process.fs.of(desc).seek(desc, offset, whence);
        // The kernel's sum is negative then.
        let wrapped = |errno| if errno == Errno::OVERFLOW { Errno::INVAL } else { errno };
        Ok(place.map_err(wrapped)? as i64)
    }
    fn sendfile(out: c_int, from: c_int, offset: Out<i64>, len: usize) -> isize
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
    fn copy_file_range(
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
    fn readahead(fd: c_int, offset: i64, len: usize) -> isize = |process, _| {
        let _ = offset;
        let desc = ours(fd)?;
        let (node, flags) = process.fs.describe(desc)?;
        match process.fs.attributes(node)?.kind {
            _ if !flags.reads() => Err(Stop::Errno(Errno::BADF)),
            Kind::File if isize::try_from(len).is_ok() => Ok(0),
            _ => Err(Stop::Errno(Errno::INVAL)),
        }
    }
    fn fadvise64(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int
    = |process, _| {
        let desc = ours(fd)?;
        let (_, flags) = process.fs.describe(desc)?;
        if flags.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        if advice == libc::POSIX_FADV_WILLNEED {
            advice::wanted(process, desc, offset, len);
        }
        if (0..=5).contains(&advice) && len >= 0 { DONE } else { Err(Stop::Errno(Errno::INVAL)) }
    }
    fn fsync(fd: c_int) -> c_int = |process, _| {
        let desc = ours(fd)?;
        process.fs.of(desc).sync(Synced::File(desc))?;
        Ok(0)
    }
    fn fdatasync(fd: c_int) -> c_int = |process, _| {
        let desc = ours(fd)?;
        process.fs.of(desc).sync(Synced::Data(desc))?;
        Ok(0)
    }
    fn sync_file_range(fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int = |process, _| {
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
    fn syncfs(fd: c_int) -> c_int = |process, _| {
        let desc = ours(fd)?;
        if process.fs.describe(desc)?.1.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        process.fs.sync(Synced::All)?;
        Ok(0)
    }
    fn sync() -> c_int = |process, kernel| {
        process.fs.sync(Synced::All)?;
        Ok(kernel())
    }
}

// ---- pipes

bodies! {
    fn splice(
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
    fn tee(from: c_int, to: c_int, len: usize, flags: c_uint) -> isize = |process, _| {
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

bodies! {
    #[exported(stat, stat64)]
    fn stat(path: Text, out: Out<Stat>) -> c_int = |process, kernel| {
        stat_path(process, |path| kernel(Text(path), out), (HERE, path, 0), out)
    }
    fn lstat(path: Text, out: Out<Stat>) -> c_int = |process, kernel| {
        stat_path(process, |path| kernel(Text(path), out), (HERE, path, NOFOLLOW), out)
    }
    #[exported(fstat, fstat64)]
    fn fstat(fd: c_int, out: Out<Stat>) -> c_int = |process, _| {
        stat_descriptor(process, fd, out)
    }
    fn newfstatat(dirfd: c_int, path: Text, out: Out<Stat>, flags: c_int) -> c_int
    = |process, kernel| {
        // What `fstat` of the C library is.
        let is_number = flags == libc::AT_EMPTY_PATH && fdtable::get(dirfd).is_some();
        if is_number && (path.0.is_null() || path.bytes()?.is_empty()) {
            return stat_descriptor(process, dirfd, out);
        }
        flags::STAT.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), out, flags);
        stat_path(process, kernel, (dirfd, path, flags), out)
    }
    fn statx(dirfd: c_int, path: Text, flags: c_int, mask: c_uint, out: Out<libc::statx>)
    -> c_int = |process, kernel| {
        flags::check_statx(process, (dirfd, path), flags, mask)?;
        let mut attr = Attr::NONE;
        if let Some(path) = stat::ask(process, (dirfd, path, flags), &mut attr)? {
            return Ok(kernel(HERE, Text(path.as_ptr()), flags, mask, out));
        }
        out.put(stat::statx_of(process, &attr, mask))?;
        Ok(0)
    }
    fn access(path: Text, mode: c_int) -> c_int = |process, kernel| {
        may(process, |path| kernel(Text(path), mode), (HERE, path, 0), mode)
    }
    fn faccessat(dirfd: c_int, path: Text, mode: c_int) -> c_int = |process, kernel| {
        if path.0.is_null() {
            return Err(Stop::Kernel);
        }
        may(process, |path| kernel(HERE, Text(path), mode), (dirfd, path, 0), mode)
    }
    fn faccessat2(dirfd: c_int, path: Text, mode: c_int, flags: c_int) -> c_int
    = |process, kernel| {
        flags::ACCESS.check_at(process, (dirfd, path), flags)?;
        if path.0.is_null() {
            return Err(Stop::Kernel);
        }
        let kernel = |path| kernel(HERE, Text(path), mode, flags);
        may(process, kernel, (dirfd, path, flags), mode)
    }
    fn statfs(path: Text, out: Out<libc::statfs>) -> c_int
    = |process, kernel| {
        let mut attr = Attr::NONE;
        if let Some(path) = stat::ask(process, (HERE, path, 0), &mut attr)? {
            return Ok(kernel(Text(path.as_ptr()), out));
        }
        out.put(stat::statfs_of(process, attr.node.into())?)?;
        Ok(0)
    }
    fn fstatfs(fd: c_int, out: Out<libc::statfs>) -> c_int = |process, _| {
        out.put(stat::statfs_of(process, ours(fd)?.into())?)?;
        Ok(0)
    }
}

// ---- attributes

type Micros = Out<[libc::timeval; 2]>;

type Times = Out<[libc::timespec; 2]>;

bodies! {
    fn chmod(path: Text, to: c_uint) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| mode(process, attr, to))
    }
    fn fchmod(fd: c_int, to: c_uint) -> c_int = |process, _| {
        at_descriptor(process, fd, |attr| mode(process, attr, to))
    }
    fn fchmodat(dirfd: c_int, path: Text, to: c_uint) -> c_int = |process, kernel| {
        let kernel = |path| kernel(HERE, Text(path), to);
        at_path(process, (dirfd, path, 0), kernel, |attr| mode(process, attr, to))
    }
    fn fchmodat2(dirfd: c_int, path: Text, to: c_uint, flags: c_int) -> c_int
    = |process, kernel| {
        flags::CHANGE.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), to, flags);
        at_path(process, (dirfd, path, flags), kernel, |attr| mode(process, attr, to))
    }
    fn chown(path: Text, uid: u32, gid: u32) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), uid, gid);
        at_path(process, (HERE, path, 0), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn lchown(path: Text, uid: u32, gid: u32) -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), uid, gid);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn fchown(fd: c_int, uid: u32, gid: u32) -> c_int = |process, _| {
        at_descriptor(process, fd, |attr| owner(process, attr, uid, gid))
    }
    fn fchownat(dirfd: c_int, path: Text, uid: u32, gid: u32, flags: c_int) -> c_int
    = |process, kernel| {
        flags::CHANGE.check_at(process, (dirfd, path), flags)?;
        let kernel = |path| kernel(HERE, Text(path), uid, gid, flags);
        at_path(process, (dirfd, path, flags), kernel, |attr| owner(process, attr, uid, gid))
    }
    fn utime(path: Text, to: Out<libc::utimbuf>) -> c_int = |process, kernel| {
        // As the kernel: before it looks at the path.
        let given = from_seconds(to)?;
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn utimes(path: Text, to: Micros) -> c_int = |process, kernel| {
        let given = from_micros(to)?;
        let kernel = |path| kernel(Text(path), to);
        at_path(process, (HERE, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn futimesat(dirfd: c_int, path: Text, to: Micros) -> c_int = |process, kernel| {
        let given = from_micros(to)?;
        if path.0.is_null() {
            return at_descriptor(process, dirfd, |attr| times(process, attr, given));
        }
        let kernel = |path| kernel(HERE, Text(path), to);
        at_path(process, (dirfd, path, 0), kernel, |attr| times(process, attr, given))
    }
    fn utimensat(dirfd: c_int, path: Text, to: Times, flags: c_int) -> c_int
    = |process, kernel| {
        if path.0.is_null() && flags == 0 && dirfd != HERE {
            return at_descriptor(process, dirfd, |attr| times(process, attr, to.get()?));
        }
        if path.0.is_null() {
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
    fn truncate(path: Text, size: i64) -> c_int = |process, kernel| {
        let length = offset_of(size)?;
        at_path(process, (HERE, path, 0), |path| kernel(Text(path), size), |attr| {
            let size = length;
            limit::check_size(process, attr.node, size)?;
            process.user(attr.node).truncate(attr, size)?;
            process.resized(attr.node)?;
            DONE
        })
    }
    fn ftruncate(fd: c_int, size: i64) -> c_int = |process, _| {
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
    fn fallocate(fd: c_int, how: c_int, offset: i64, len: i64) -> c_int
    = |process, _| {
        attrs::allocate(process, fd, how, offset, len)?;
        DONE
    }
}

bodies! {
    fn getxattr(path: Text, name: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name, to, len);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::get(process, attr, given, to, len))
    }
    fn lgetxattr(path: Text, name: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name, to, len);
        let at = (HERE, path, NOFOLLOW);
        at_path(process, at, kernel, |attr| attrs::get(process, attr, given, to, len))
    }
    fn fgetxattr(fd: c_int, name: Text, to: Bytes, len: usize) -> isize = |process, _| {
        let given = attrs::name_of(name)?;
        attrs::at_number(process, fd, |attr| attrs::get(process, attr, given, to, len))
    }
    fn setxattr(path: Text, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, kernel| {
        let given = attrs::checked(name, len, flags)?;
        let kernel = |path| kernel(Text(path), name, from, len, flags);
        let at = (HERE, path, 0);
        at_path(process, at, kernel, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn lsetxattr(path: Text, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, kernel| {
        let given = attrs::checked(name, len, flags)?;
        let kernel = |path| kernel(Text(path), name, from, len, flags);
        let at = (HERE, path, NOFOLLOW);
        at_path(process, at, kernel, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn fsetxattr(fd: c_int, name: Text, from: Bytes, len: usize, flags: c_int) -> c_int
    = |process, _| {
        let given = attrs::checked(name, len, flags)?;
        attrs::at_number(process, fd, |attr| attrs::set(process, attr, given, (from, len), flags))
            .map_err(|stop| attrs::first_of(stop, from, len))
    }
    fn listxattr(path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let kernel = |path| kernel(Text(path), to, len);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::list(process, attr, to, len))
    }
    fn llistxattr(path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        let kernel = |path| kernel(Text(path), to, len);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| attrs::list(process, attr, to, len))
    }
    fn flistxattr(fd: c_int, to: Bytes, len: usize) -> isize = |process, _| {
        attrs::at_number(process, fd, |attr| attrs::list(process, attr, to, len))
    }
    fn removexattr(path: Text, name: Text) -> c_int = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name);
        at_path(process, (HERE, path, 0), kernel, |attr| attrs::remove(process, attr, given))
    }
    fn lremovexattr(path: Text, name: Text) -> c_int = |process, kernel| {
        let given = attrs::name_of(name)?;
        let kernel = |path| kernel(Text(path), name);
        at_path(process, (HERE, path, NOFOLLOW), kernel, |attr| attrs::remove(process, attr, given))
    }
    fn fremovexattr(fd: c_int, name: Text) -> c_int = |process, _| {
        let given = attrs::name_of(name)?;
        attrs::at_number(process, fd, |attr| attrs::remove(process, attr, given))
    }
}

// ---- the kernel's asynchronous calls

bodies! {
    fn io_setup(events: c_uint, context: *mut c_void) -> c_int = |_, _| {
        let _ = (events, context);
        Err(kernel_aio::begun("io_setup"))
    }
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int = |_, _| {
        let _ = (entries, parameters);
        Err(kernel_aio::begun("io_uring_setup"))
    }
}
