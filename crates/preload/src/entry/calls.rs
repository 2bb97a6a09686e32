//! The calls of this room: those that name something on the volume and that the volume does not
//! serve, and limits.
//!
//! What is not served is refused with a reason in the report, where the kernel would only say that
//! there is no such file: file handles, mounts, swap, accounting and quotas. What lies on a volume
//! that is mounted can be mounted once more elsewhere, and be unmounted; nothing is mounted *onto*
//! it, since this library would not see it.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use vfs::Errno;

use crate::dispatch;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::limit;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::interposed::bodies;
use crate::mappings::{cache_segments, calls as mappings};
use crate::paths;
use crate::paths::links;

/// `PR_SET_SECCOMP`: reads, writes and the end only.
const STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;

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

bodies! {
    fn name_to_handle_at(
        dirfd: c_int, path: Text, handle: *mut c_void, mount: Out<c_int>, flags: c_int,
    ) -> c_int = |process, _| {
        let _ = (handle, mount, flags);
        if let Some(desc) = fdtable::get(dirfd) {
            report::about(desc.member());
            return Err(Stop::Refused("file-handle", Errno::OPNOTSUPP));
        }
        refuse(process, path.bytes()?, "file-handle", Errno::OPNOTSUPP)
    }
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int = |_, _| {
        let _ = (handle, flags);
        report::about(fdtable::get(mount).ok_or(Stop::Kernel)?.member());
        Err(Stop::Refused("file-handle", Errno::OPNOTSUPP))
    }
    fn mount(
        source: Text, target: Text, kind: Text, flags: c_ulong, data: *const c_void,
    ) -> c_int = |process, _| {
        let _ = (kind, data);
        if flags & (libc::MS_BIND | libc::MS_MOVE) != 0 {
            refuse_unless_mounted::<()>(process, source.bytes()?, Errno::PERM)
                .or_else(|stop| if let Stop::Kernel = stop { Ok(()) } else { Err(stop) })?;
        }
        refuse(process, target.bytes()?, "mount", Errno::PERM)
    }
    fn umount2(path: Text, flags: c_int) -> c_int = |process, _| {
        let _ = flags;
        refuse_unless_mounted(process, path.bytes()?, Errno::INVAL)
    }
    fn pivot_root(new: Text, old: Text) -> c_int = |process, _| {
        refuse::<c_int>(process, new.bytes()?, "mount", Errno::INVAL).or_else(|stop| match stop {
            Stop::Kernel => refuse(process, old.bytes()?, "mount", Errno::INVAL),
            stop => Err(stop),
        })
    }
    fn open_tree(dirfd: c_int, path: Text, flags: c_uint) -> c_int = |process, _| {
        let _ = flags;
        let of = if path.0.is_null() { b"" } else { path.bytes()? };
        let seen = paths::volume_at(process, of, true).filter(|_| fdtable::get(dirfd).is_none());
        if seen.is_some_and(|seen| seen.mounted) {
            return Err(Stop::Kernel);
        }
        refuse_at(process, (dirfd, path), "mount", Errno::PERM)
    }
    fn fspick(dirfd: c_int, path: Text, flags: c_uint) -> c_int = |process, _| {
        let _ = flags;
        refuse_at(process, (dirfd, path), "mount", Errno::INVAL)
    }
    fn move_mount(from: c_int, path: Text, to: c_int, place: Text, flags: c_uint) -> c_int
    = |process, _| {
        let _ = flags;
        let first = refuse_at::<c_int>(process, (from, path), "mount", Errno::INVAL);
        match first {
            Err(Stop::Kernel) => refuse_at(process, (to, place), "mount", Errno::INVAL),
            refused => refused,
        }
    }
    fn mount_setattr(
        dirfd: c_int, path: Text, flags: c_uint, attributes: *mut c_void, size: usize,
    ) -> c_int = |process, _| {
        let _ = (flags, attributes, size);
        refuse_at(process, (dirfd, path), "mount", Errno::INVAL)
    }
    fn swapon(path: Text, flags: c_int) -> c_int = |process, _| {
        let _ = flags;
        refuse(process, path.bytes()?, "swap", Errno::INVAL)
    }
    fn swapoff(path: Text) -> c_int = |process, _| {
        refuse(process, path.bytes()?, "swap", Errno::INVAL)
    }
    fn acct(path: Text) -> c_int = |process, _| {
        refuse_at(process, (libc::AT_FDCWD, path), "accounting", Errno::INVAL)
    }
    fn quotactl(command: c_int, device: Text, id: c_int, address: *mut c_void) -> c_int
    = |process, _| {
        let _ = (command, id, address);
        refuse_at(process, (libc::AT_FDCWD, device), "quota", Errno::NOTBLK)
    }
    fn pkey_mprotect(at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int
    = |process, kernel| {
        if !process.lock().touches(at as usize, (at as usize).saturating_add(len)) {
            let call = || cache_segments::marking(|| kernel(at, len, prot, key));
            return Ok(cache_segments::protected((at as usize, len), prot, call));
        }
        if key == -1 {
            return Ok(outside(|| mappings::mprotect(at, len, prot)));
        }
        Err(Stop::Refused("protection-key", Errno::INVAL))
    }
}

// ---- limits

fn changed(resource: c_int, result: c_int) -> c_int {
    if resource == libc::RLIMIT_FSIZE as c_int && result == 0 {
        limit::learn();
    }
    result
}

bodies! {
    fn setrlimit(resource: c_int, limit: *const c_void) -> c_int = |_, kernel| {
        // Numbers beyond the limit are no longer free.
        let _until_it_ends = cached_fd::Closes::new();
        Ok(changed(resource, kernel(resource, limit)))
    }
    fn prlimit64(pid: c_int, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int
    = |_, kernel| {
        let _until_it_ends = cached_fd::Closes::new();
        Ok(changed(resource, kernel(pid, resource, new, old)))
    }
    /// From now on the process may not be allowed to `close`, nor what flac's thread does.
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int = |_, _| {
        let _ = (a, b, c, d);
        if option == dispatch::PR_SET_SYSCALL_USER_DISPATCH {
            return Err(Stop::Refused("own-system-call-dispatch", Errno::INVAL));
        }
        if option == libc::PR_SET_SECCOMP {
            dispatch::before_filter(a == STRICT);
            links::before_filter();
            flac::program::stop();
        }
        Err(Stop::Kernel)
    }
    fn seccomp(operation: c_uint, flags: c_uint, arguments: *const c_void) -> c_int = |_, _| {
        let _ = (flags, arguments);
        if operation != libc::SECCOMP_GET_ACTION_AVAIL {
            dispatch::before_filter(operation == libc::SECCOMP_SET_MODE_STRICT);
            links::before_filter();
            flac::program::stop();
        }
        Err(Stop::Kernel)
    }
}
