//! Calls that name something on the volume and that the volume does not serve: refused with a
//! reason in the report, where the kernel would only say that there is no such file.
//!
//! File handles, mounts, swap, accounting and quotas, glibc's own tree walker
//! `fts` (which opens directories inside itself). What lies on a volume that is mounted can be
//! mounted once more elsewhere, and be unmounted; nothing is mounted *onto* it, since this library
//! would not see it.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use vfs::Errno;

use crate::entry::fdtable;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::interposed::interpose;
use crate::mappings::cache_segments;
use crate::paths;
use crate::processes::exec::List;

/// Refuses if `path` is a volume's; else the kernel serves.
fn refuse<T>(process: &Process, path: &[u8], reason: &'static str, errno: Errno) -> Served<T> {
    let seen = paths::volume_at(process, path, true).ok_or(Stop::Kernel)?;
    report::about(seen.root.member());
    Err(Stop::Refused(reason, errno))
}

/// As [`refuse`], of a call that the kernel serves on a mount.
fn refuse_unless_mounted<T>(process: &Process, path: &[u8], errno: Errno) -> Served<T> {
    match paths::volume_at(process, path, true) {
        Some(seen) if !seen.mounted => {
            report::about(seen.root.member());
            Err(Stop::Refused("mount", errno))
        }
        _ => Err(Stop::Kernel),
    }
}

/// As [`refuse`], for a path that may be NULL or relative to a directory of ours.
fn refuse_at<T>(
    process: &Process,
    (dirfd, path): (c_int, Text),
    reason: &'static str,
    errno: Errno,
) -> Served<T> {
    let path = if path.0.is_null() { b"" } else { path.bytes()? };
    if path.first() != Some(&b'/')
        && let Some(desc) = fdtable::get(dirfd)
    {
        report::about(desc.member());
        return Err(Stop::Refused(reason, errno));
    }
    refuse(process, path, reason, errno)
}

type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

fn walk_with_fts(process: &Process, paths: List) -> Served<*mut c_void> {
    for path in paths.texts()? {
        refuse::<()>(process, path.bytes()?, "fts", Errno::OPNOTSUPP).or_else(
            |stop| match stop {
                Stop::Kernel => Ok(()),
                stop => Err(stop),
            },
        )?;
    }
    Err(Stop::Kernel)
}

interpose! {
    fn [name_to_handle_at](
        dirfd: c_int, path: Text, handle: *mut c_void, mount: Out<c_int>, flags: c_int,
    ) -> c_int = |process, _| {
        let _ = (handle, mount, flags);
        if let Some(desc) = fdtable::get(dirfd) {
            report::about(desc.member());
            return Err(Stop::Refused("file-handle", Errno::OPNOTSUPP));
        }
        refuse(process, path.bytes()?, "file-handle", Errno::OPNOTSUPP)
    }
    fn [open_by_handle_at](mount: c_int, handle: *mut c_void, flags: c_int) -> c_int = |_, _| {
        let _ = (handle, flags);
        report::about(fdtable::get(mount).ok_or(Stop::Kernel)?.member());
        Err(Stop::Refused("file-handle", Errno::OPNOTSUPP))
    }
    fn [mount](
        source: Text, target: Text, kind: Text, flags: c_ulong, data: *const c_void,
    ) -> c_int = |process, _| {
        let _ = (kind, data);
        if flags & (libc::MS_BIND | libc::MS_MOVE) != 0 {
            refuse_unless_mounted::<()>(process, source.bytes()?, Errno::PERM)
                .or_else(|stop| if let Stop::Kernel = stop { Ok(()) } else { Err(stop) })?;
        }
        refuse(process, target.bytes()?, "mount", Errno::PERM)
    }
    fn [umount](path: Text) -> c_int = |process, _| {
        refuse_unless_mounted(process, path.bytes()?, Errno::INVAL)
    }
    fn [umount2](path: Text, flags: c_int) -> c_int = |process, _| {
        let _ = flags;
        refuse_unless_mounted(process, path.bytes()?, Errno::INVAL)
    }
    fn [pivot_root](new: Text, old: Text) -> c_int = |process, _| {
        refuse::<c_int>(process, new.bytes()?, "mount", Errno::INVAL).or_else(|stop| match stop {
            Stop::Kernel => refuse(process, old.bytes()?, "mount", Errno::INVAL),
            stop => Err(stop),
        })
    }
    fn [open_tree](dirfd: c_int, path: Text, flags: c_uint) -> c_int = |process, _| {
        let _ = flags;
        let of = if path.0.is_null() { b"" } else { path.bytes()? };
        let seen = paths::volume_at(process, of, true).filter(|_| fdtable::get(dirfd).is_none());
        if seen.is_some_and(|seen| seen.mounted) {
            return Err(Stop::Kernel);
        }
        refuse_at(process, (dirfd, path), "mount", Errno::PERM)
    }
    fn [fspick](dirfd: c_int, path: Text, flags: c_uint) -> c_int = |process, _| {
        let _ = flags;
        refuse_at(process, (dirfd, path), "mount", Errno::INVAL)
    }
    fn [move_mount](from: c_int, path: Text, to: c_int, place: Text, flags: c_uint) -> c_int
    = |process, _| {
        let _ = flags;
        let first = refuse_at::<c_int>(process, (from, path), "mount", Errno::INVAL);
        match first {
            Err(Stop::Kernel) => refuse_at(process, (to, place), "mount", Errno::INVAL),
            refused => refused,
        }
    }
    fn [mount_setattr](
        dirfd: c_int, path: Text, flags: c_uint, attributes: *mut c_void, size: usize,
    ) -> c_int = |process, _| {
        let _ = (flags, attributes, size);
        refuse_at(process, (dirfd, path), "mount", Errno::INVAL)
    }
    fn [swapon](path: Text, flags: c_int) -> c_int = |process, _| {
        let _ = flags;
        refuse(process, path.bytes()?, "swap", Errno::INVAL)
    }
    fn [swapoff](path: Text) -> c_int = |process, _| {
        refuse(process, path.bytes()?, "swap", Errno::INVAL)
    }
    fn [acct](path: Text) -> c_int = |process, _| {
        refuse_at(process, (libc::AT_FDCWD, path), "accounting", Errno::INVAL)
    }
    fn [quotactl](command: c_int, device: Text, id: c_int, address: *mut c_void) -> c_int
    = |process, _| {
        let _ = (command, id, address);
        refuse_at(process, (libc::AT_FDCWD, device), "quota", Errno::NOTBLK)
    }
    /// The name is used later, inside glibc.
    fn [utmpname, utmpxname](path: Text) -> c_int = |process, _| {
        refuse(process, path.bytes()?, "utmp-file", Errno::OPNOTSUPP)
    }
    fn [pkey_mprotect](at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int
    = |process, kernel| {
        if !process.lock().touches(at as usize, (at as usize).saturating_add(len)) {
            let call = || cache_segments::marking(|| kernel(at, len, prot, key));
            return Ok(cache_segments::protected((at as usize, len), prot, call));
        }
        if key == -1 {
            // SAFETY: the program's own pages, as it asked.
            return Ok(outside(|| unsafe { libc::mprotect(at, len, prot) }));
        }
        Err(Stop::Refused("protection-key", Errno::INVAL))
    }
    fn [fts_open, fts64_open](paths: *const *const c_char, options: c_int, compare: Compare)
    -> *mut c_void = |process, _| {
        let _ = (options, compare);
        walk_with_fts(process, List(paths))
    }
}
