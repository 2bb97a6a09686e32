//! The calls of this room: names made, moved and removed, directories read, and watches.

use std::ffi::{c_int, c_uint};

use vfs::Kind;

use crate::entry::Stop;
use crate::entry::fdtable::ours;
use crate::entry::pointers::{Bytes, Text};
use crate::interposed::bodies;
use crate::names::dir::{self, Form};
use crate::names::{
    HERE, kind_of, link_at, make, move_name, nameless, not_empty, one, read_link, remove_dir,
    take_name, two, unlink_at, watches,
};
use crate::paths::flags;

// ---- names

bodies! {
    fn mkdir(path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Directory, mode & 0o1777, 0).map(|_| ())
        })
    }
    fn mkdirat(dirfd: c_int, path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Directory, mode & 0o1777, 0).map(|_| ())
        })
    }
    fn mknod(path: Text, mode: c_uint, device: c_uint) -> c_int = |process, kernel| {
        kind_of(mode)?;
        one(process, (HERE, path), |path| kernel(Text(path), mode, device), |found| {
            make(process, found, mode, device.into())
        })
    }
    fn mknodat(dirfd: c_int, path: Text, mode: c_uint, device: c_uint) -> c_int
    = |process, kernel| {
        kind_of(mode)?;
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), mode, device), |found| {
            make(process, found, mode, device.into())
        })
    }
    fn rmdir(path: Text) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path)), |found| {
            remove_dir(process, path, found)
        })
    }
    fn unlink(path: Text) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path)), |found| take_name(process, found))
    }
    fn unlinkat(dirfd: c_int, path: Text, flags: c_int) -> c_int = |process, kernel| {
        flags::UNLINK.check_at(process, (dirfd, path), flags)?;
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), flags), |found| {
            unlink_at(process, path, found, flags)
        })
    }
    fn rename(from: Text, to: Text) -> c_int = |process, kernel| {
        two(process, (HERE, from), (HERE, to), |from, to| kernel(Text(from), Text(to)),
            |from, to| move_name(process, from, to, 0))
            .map_err(|stop| nameless(from, stop))
    }
    fn renameat(from_dir: c_int, from: Text, to_dir: c_int, to: Text) -> c_int
    = |process, kernel| {
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to));
        two(process, (from_dir, from), (to_dir, to), kernel,
            |from, to| move_name(process, from, to, 0))
            .map_err(|stop| nameless(from, stop))
    }
    fn renameat2(from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_uint) -> c_int
    = |process, kernel| {
        flags::check_rename(flags)?;
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to), flags);
        two(process, (from_dir, from), (to_dir, to), kernel,
            |from, to| move_name(process, from, to, flags))
            .map_err(|stop| nameless(from, stop))
    }
    fn link(from: Text, to: Text) -> c_int = |process, kernel| {
        let kernel = |from, to| kernel(Text(from), Text(to));
        link_at(process, (HERE, from), (HERE, to), 0, kernel)
    }
    fn linkat(from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_int) -> c_int
    = |process, kernel| {
        flags::LINK.check_at(process, (from_dir, from), flags)?;
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to), flags);
        link_at(process, (from_dir, from), (to_dir, to), flags, kernel)
    }
    fn symlink(target: Text, path: Text) -> c_int = |process, kernel| {
        let bytes = not_empty(target)?;
        one(process, (HERE, path), |path| kernel(target, Text(path)), |found| {
            process.user(found.dir).symlink(found, bytes).map(|_| ())
        })
    }
    fn symlinkat(target: Text, dirfd: c_int, path: Text) -> c_int = |process, kernel| {
        let bytes = not_empty(target)?;
        one(process, (dirfd, path), |path| kernel(target, HERE, Text(path)), |found| {
            process.user(found.dir).symlink(found, bytes).map(|_| ())
        })
    }
    fn readlink(path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        read_link(process, (HERE, path), to, len, |path| kernel(Text(path), to, len))
    }
    fn readlinkat(dirfd: c_int, path: Text, to: Bytes, len: usize) -> isize
    = |process, kernel| {
        read_link(process, (dirfd, path), to, len, |path| kernel(HERE, Text(path), to, len))
    }
}

// ---- directories

bodies! {
    fn getdents64(fd: c_int, to: Bytes, len: c_uint) -> isize = |process, _| {
        Ok(dir::read_entries(process, ours(fd)?, (to, dir::room(len)), Form::Wide)?)
    }
    fn getdents(fd: c_int, to: Bytes, len: c_uint) -> isize = |process, _| {
        Ok(dir::read_entries(process, ours(fd)?, (to, dir::room(len)), Form::Old)?)
    }
}

// ---- watches

bodies! {
    fn inotify_add_watch(fd: c_int, path: Text, mask: c_uint) -> c_int = |process, kernel| {
        watches::add(process, (fd, path), mask, |path, mask| kernel(fd, Text(path), mask))
    }
    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: Text) -> c_int
    = |process, _| {
        let _ = (fd, mask);
        if flags & libc::FAN_MARK_FLUSH != 0 {
            // It concerns all marks, and no path.
            return Err(Stop::Kernel);
        }
        let path = if path.0.is_null() { b"" } else { path.bytes()? };
        let follow = flags & libc::FAN_MARK_DONT_FOLLOW == 0;
        let seen = watches::volume_marked(process, (dirfd, path), follow);
        watches::refuse(seen.ok_or(Stop::Kernel)?, path, "fanotify")
    }
}
