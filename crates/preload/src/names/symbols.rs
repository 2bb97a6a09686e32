//! The exported functions of this room: names made, moved and removed, directories read, temporary
//! names, what glibc finds by reading directories inside itself, and watches.

use std::ffi::{c_char, c_int, c_long, c_uint};

use libc::FILE;
use vfs::{Errno, Kind, Whence};

use crate::descriptors::open::open_at;
use crate::entry::fdtable::ours;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::program_memory;
use crate::entry::{Stop, outside};
use crate::interposed::interpose;
use crate::names::dir::{self, Dir, Entry, Filter, Form, Order};
use crate::names::tree::{self, Glob, GlobError, Visit};
use crate::names::{
    HERE, kind_of, link_at, make, move_name, nameless, not_empty, one, read_link, real_path,
    remove_dir, take_name, temp, two, unlink_at, watches,
};
use crate::paths::flags;
use crate::paths::{self, Target};

// ---- names

interpose! {
    fn [mkdir](path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Directory, mode & 0o1777, 0).map(|_| ())
        })
    }
    fn [mkdirat](dirfd: c_int, path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Directory, mode & 0o1777, 0).map(|_| ())
        })
    }
    fn [mknod](path: Text, mode: c_uint, device: u64) -> c_int = |process, kernel| {
        kind_of(mode)?;
        one(process, (HERE, path), |path| kernel(Text(path), mode, device), |found| {
            make(process, found, mode, device)
        })
    }
    fn [mknodat](dirfd: c_int, path: Text, mode: c_uint, device: u64) -> c_int
    = |process, kernel| {
        kind_of(mode)?;
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), mode, device), |found| {
            make(process, found, mode, device)
        })
    }
    /// What `mknod` was until glibc 2.33. The first argument tells the form of the device number.
    fn [__xmknod](version: c_int, path: Text, mode: c_uint, device: Out<u64>) -> c_int
    = |process, kernel| {
        kind_of(mode)?;
        let number = device.value()?;
        one(process, (HERE, path), |path| kernel(version, Text(path), mode, device), |found| {
            make(process, found, mode, number)
        })
    }
    fn [__xmknodat](version: c_int, dirfd: c_int, path: Text, mode: c_uint, device: Out<u64>)
    -> c_int = |process, kernel| {
        kind_of(mode)?;
        let number = device.value()?;
        let kernel = |path| kernel(version, HERE, Text(path), mode, device);
        one(process, (dirfd, path), kernel, |found| make(process, found, mode, number))
    }
    fn [mkfifo](path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Fifo, mode, 0).map(|_| ())
        })
    }
    fn [mkfifoat](dirfd: c_int, path: Text, mode: c_uint) -> c_int = |process, kernel| {
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), mode), |found| {
            process.user(found.dir).make(found, Kind::Fifo, mode, 0).map(|_| ())
        })
    }
    fn [rmdir](path: Text) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path)), |found| {
            remove_dir(process, path, found)
        })
    }
    fn [unlink](path: Text) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path)), |found| take_name(process, found))
    }
    fn [unlinkat](dirfd: c_int, path: Text, flags: c_int) -> c_int = |process, kernel| {
        flags::UNLINK.check_at(process, (dirfd, path), flags)?;
        one(process, (dirfd, path), |path| kernel(HERE, Text(path), flags), |found| {
            unlink_at(process, path, found, flags)
        })
    }
    fn [remove](path: Text) -> c_int = |process, kernel| {
        one(process, (HERE, path), |path| kernel(Text(path)), |found| {
            let directory = found.attr.is_some_and(|attr| attr.kind == Kind::Directory);
            if directory {
                return process.user(found.dir).remove_dir(found);
            }
            take_name(process, found)
        })
    }
    fn [rename](from: Text, to: Text) -> c_int = |process, kernel| {
        two(process, (HERE, from), (HERE, to), |from, to| kernel(Text(from), Text(to)),
            |from, to| move_name(process, from, to, 0))
            .map_err(|stop| nameless(from, stop))
    }
    fn [renameat](from_dir: c_int, from: Text, to_dir: c_int, to: Text) -> c_int
    = |process, kernel| {
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to));
        two(process, (from_dir, from), (to_dir, to), kernel,
            |from, to| move_name(process, from, to, 0))
            .map_err(|stop| nameless(from, stop))
    }
    fn [renameat2](from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_uint) -> c_int
    = |process, kernel| {
        flags::check_rename(flags)?;
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to), flags);
        two(process, (from_dir, from), (to_dir, to), kernel,
            |from, to| move_name(process, from, to, flags))
            .map_err(|stop| nameless(from, stop))
    }
    fn [link](from: Text, to: Text) -> c_int = |process, kernel| {
        let kernel = |from, to| kernel(Text(from), Text(to));
        link_at(process, (HERE, from), (HERE, to), 0, kernel)
    }
    fn [linkat](from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_int) -> c_int
    = |process, kernel| {
        flags::LINK.check_at(process, (from_dir, from), flags)?;
        let kernel = |from, to| kernel(HERE, Text(from), HERE, Text(to), flags);
        link_at(process, (from_dir, from), (to_dir, to), flags, kernel)
    }
    fn [symlink](target: Text, path: Text) -> c_int = |process, kernel| {
        let bytes = not_empty(target)?;
        one(process, (HERE, path), |path| kernel(target, Text(path)), |found| {
            process.user(found.dir).symlink(found, bytes).map(|_| ())
        })
    }
    fn [symlinkat](target: Text, dirfd: c_int, path: Text) -> c_int = |process, kernel| {
        let bytes = not_empty(target)?;
        one(process, (dirfd, path), |path| kernel(target, HERE, Text(path)), |found| {
            process.user(found.dir).symlink(found, bytes).map(|_| ())
        })
    }
    fn [readlink](path: Text, to: Bytes, len: usize) -> isize = |process, kernel| {
        read_link(process, (HERE, path), to, len, |path| kernel(Text(path), to, len))
    }
    fn [__readlink_chk](path: Text, to: Bytes, len: usize, room: usize) -> isize
    = |process, kernel| {
        read_link(process, (HERE, path), to, len, |path| kernel(Text(path), to, len, room))
    }
    fn [readlinkat](dirfd: c_int, path: Text, to: Bytes, len: usize) -> isize
    = |process, kernel| {
        read_link(process, (dirfd, path), to, len, |path| kernel(HERE, Text(path), to, len))
    }
    fn [__readlinkat_chk](dirfd: c_int, path: Text, to: Bytes, len: usize, room: usize) -> isize
    = |process, kernel| {
        let kernel = |path| kernel(HERE, Text(path), to, len, room);
        read_link(process, (dirfd, path), to, len, kernel)
    }
    fn [realpath](path: Text, to: *mut c_char) -> *mut c_char = |process, kernel| {
        real_path(process, path, to, |path| kernel(Text(path), to))
    }
    fn [__realpath_chk](path: Text, to: *mut c_char, room: usize) -> *mut c_char
    = |process, kernel| {
        real_path(process, path, to, |path| kernel(Text(path), to, room))
    }
    fn [canonicalize_file_name](path: Text) -> *mut c_char = |process, kernel| {
        real_path(process, path, std::ptr::null_mut(), |path| kernel(Text(path)))
    }
}

// ---- directories

interpose! {
    fn [opendir](path: Text) -> Dir = |process, kernel| {
        let elsewhere = std::cell::Cell::new(None);
        let open = |_, path| {
            elsewhere.set(Some(kernel(Text(path))));
            0
        };
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = open_at(process, open, libc::AT_FDCWD, path, flags, 0)?;
        Ok(elsewhere.get().unwrap_or_else(|| dir::stream(fd, 0)))
    }
    fn [fdopendir](fd: c_int) -> Dir = |process, _| {
        dir::adopt(process, fd)
    }
    fn [readdir, readdir64](dir: Dir) -> *mut Entry = |process, _| {
        let stream = dir.ours()?;
        Ok(stream.next(process)?.unwrap_or(std::ptr::null_mut()))
    }
    fn [readdir_r, readdir64_r](dir: Dir, to: Bytes, result: Out<*mut Entry>) -> c_int
    = |process, _| {
        let stream = dir.ours()?;
        // Gives its error as its value.
        match stream.next(process) {
            Err(errno) => return Ok(errno.raw_os_error()),
            Ok(None) => result.put(std::ptr::null_mut())?,
            Ok(Some(entry)) => {
                // SAFETY: `next` gives a whole entry, whose length stands in it.
                let bytes = unsafe {
                    std::slice::from_raw_parts(entry.cast::<u8>(), usize::from((*entry).d_reclen))
                };
                to.put(bytes)?;
                result.put(to.0.cast())?;
            }
        }
        Ok(0)
    }
    fn [closedir](dir: Dir) -> c_int = |process, _| {
        dir::close(process, dir)
    }
    fn [rewinddir](dir: Dir) -> () = |_, _| {
        dir.ours()?.seek(0);
        Ok(())
    }
    fn [telldir](dir: Dir) -> c_long = |_, _| {
        Ok(dir.ours()?.told)
    }
    fn [seekdir](dir: Dir, position: c_long) -> () = |_, _| {
        dir.ours()?.seek(position);
        Ok(())
    }
    fn [dirfd](dir: Dir) -> c_int = |_, _| {
        Ok(dir.ours()?.fd)
    }
    fn [getdents64](fd: c_int, to: Bytes, len: usize) -> isize = |process, _| {
        Ok(dir::read_entries(process, ours(fd)?, (to, len), Form::Wide)?)
    }
    fn [getdirentries, getdirentries64](fd: c_int, to: Bytes, len: usize, start: Out<i64>)
    -> isize = |process, _| {
        let desc = ours(fd)?;
        let position = process.fs.seek(desc, 0, Whence::Current)?;
        let bytes = dir::read_entries(process, desc, (to, len), Form::Wide)?;
        start.put(position as i64)?;
        Ok(bytes)
    }
    fn [scandir, scandir64](path: Text, list: Out<*mut *mut Entry>, filter: Filter, order: Order)
    -> c_int = |process, kernel| {
        let kernel = |path| kernel(Text(path), list, filter, order);
        dir::scan(process, (libc::AT_FDCWD, path), kernel, list, filter, order)
    }
    fn [scandirat, scandirat64](
        dirfd: c_int, path: Text, list: Out<*mut *mut Entry>, filter: Filter, order: Order,
    ) -> c_int = |process, kernel| {
        let kernel = |path| kernel(libc::AT_FDCWD, Text(path), list, filter, order);
        dir::scan(process, (dirfd, path), kernel, list, filter, order)
    }
}

// ---- temporary names

interpose! {
    /// In the default directory, which may be the volume.
    fn [tmpfile, tmpfile64]() -> *mut FILE = |process, _| {
        if !temp::directory_is_ours(process, temp::DEFAULT.to_bytes()) {
            return Err(Stop::Kernel);
        }
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL;
        let path = Text(temp::DEFAULT.as_ptr());
        let fd = open_at(process, |_, _| -1, libc::AT_FDCWD, path, flags, 0o600)?;
        Ok(crate::glibc::stdio::stream(fd, c"w+")?)
    }
    fn [tempnam](directory: Text, prefix: Text) -> *mut c_char = |process, _| {
        let directory = temp::chosen(directory).bytes()?;
        if !temp::directory_is_ours(process, directory) {
            return Err(Stop::Kernel);
        }
        temp::free_name(process, directory, prefix.bytes().unwrap_or(b"file"))
    }
    fn [tmpnam, tmpnam_r](to: *mut c_char) -> *mut c_char = |process, _| {
        if to.is_null() || !temp::directory_is_ours(process, temp::DEFAULT.to_bytes()) {
            return Err(Stop::Kernel);
        }
        let name = temp::free_name(process, temp::DEFAULT.to_bytes(), b"file")?;
        // SAFETY: the program's buffer holds L_tmpnam (20) bytes, and the name has 15.
        unsafe {
            libc::strcpy(to, name);
            program_memory::free(name.cast());
        }
        Ok(to)
    }
    fn [mkstemp, mkstemp64](template: *mut c_char) -> c_int = |process, _| {
        temp::make_file(process, template, 0, 0)
    }
    fn [mkostemp, mkostemp64](template: *mut c_char, flags: c_int) -> c_int = |process, _| {
        temp::make_file(process, template, 0, flags)
    }
    fn [mkstemps, mkstemps64](template: *mut c_char, suffix: c_int) -> c_int = |process, _| {
        temp::make_file(process, template, suffix, 0)
    }
    fn [mkostemps, mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
    = |process, _| {
        temp::make_file(process, template, suffix, flags)
    }
    fn [mkdtemp](template: *mut c_char) -> *mut c_char = |process, _| {
        temp::try_names(process, template, 0, |path| {
            match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, false)? {
                Target::Volume(found) => {
                    process.user(found.dir).make(&found, Kind::Directory, 0o700, 0)?;
                    Ok(template)
                }
                _ => Err(Stop::Errno(Errno::NOENT)),
            }
        })
    }
    fn [mktemp, __mktemp](template: *mut c_char) -> *mut c_char = |process, _| {
        temp::try_names(process, template, 0, |path| temp::is_free(process, template, path))
    }
}

// ---- trees

interpose! {
    /// glibc's glob reads directories inside itself, unless it is given functions for that: ours.
    fn [glob, glob64](pattern: Text, flags: c_int, error: GlobError, out: Out<Glob>) -> c_int
    = |_, kernel| {
        let mut given = match out.value() {
            Ok(given) if flags & tree::ALTDIRFUNC == 0 => given,
            _ => return Err(Stop::Kernel),
        };
        given.read_by_ours();
        out.put(given)?;
        let answer = outside(|| kernel(pattern, flags | tree::ALTDIRFUNC, error, out));
        if let Ok(mut filled) = out.value() {
            filled.flags &= !tree::ALTDIRFUNC;
            out.put(filled)?;
        }
        Ok(answer)
    }
}

interpose! {
    fn [nftw, nftw64](path: Text, visit: Option<Visit>, depth: c_int, flags: c_int) -> c_int
    = |_, _| {
        let _ = depth;
        tree::tree(path, visit, flags, false)
    }
    fn [ftw, ftw64](path: Text, visit: Option<Visit>, depth: c_int) -> c_int = |_, _| {
        let _ = depth;
        tree::tree(path, visit, 0, true)
    }
}

// ---- watches

interpose! {
    fn [inotify_add_watch](fd: c_int, path: Text, mask: c_uint) -> c_int = |process, _| {
        let _ = fd;
        let path = path.bytes()?;
        let seen = paths::volume_at(process, path, mask & libc::IN_DONT_FOLLOW == 0);
        watches::refuse(seen.ok_or(Stop::Kernel)?, path, "inotify")
    }
    fn [fanotify_mark](fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: Text) -> c_int
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
