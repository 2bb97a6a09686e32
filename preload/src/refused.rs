//! Calls that name something on the volume and that the volume does not serve: refused with a
//! reason in the report, where the kernel would only say that there is no such file.
//!
//! Watches by path, file handles, glibc's own tree walker `fts` (which opens
//! directories inside itself).

use std::ffi::{c_char, c_int, c_uint, c_void};

use vfs::Errno;

use crate::entry::{Served, Stop, interpose};
use crate::exec::List;
use crate::fdtable;
use crate::paths::{self, Target};
use crate::pointers::{Out, Text};
use crate::process::Process;

/// Whether a path leads onto the volume; a path that cannot be walked does if it is the volume's.
fn on_volume(process: &Process, path: &[u8]) -> bool {
    match paths::resolve(process, libc::AT_FDCWD, path, true) {
        Ok(Target::Kernel | Target::Elsewhere(_)) => false,
        Ok(Target::Volume(_) | Target::Descriptor(_)) | Err(_) => true,
    }
}

/// Refuses if `path` is the volume's; else the kernel serves.
fn refuse<T>(process: &Process, path: &[u8], reason: &'static str, errno: Errno) -> Served<T> {
    let ours = !path.is_empty() && on_volume(process, path);
    Err(if ours { Stop::Refused(reason, errno) } else { Stop::Kernel })
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
    fn [inotify_add_watch](fd: c_int, path: Text, mask: c_uint) -> c_int = |process, _| {
        let _ = (fd, mask);
        refuse(process, path.bytes()?, "inotify", Errno::OPNOTSUPP)
    }
    fn [name_to_handle_at](
        dirfd: c_int, path: Text, handle: *mut c_void, mount: Out<c_int>, flags: c_int,
    ) -> c_int = |process, _| {
        let _ = (handle, mount, flags);
        if fdtable::get(dirfd).is_some() {
            return Err(Stop::Refused("file-handle", Errno::OPNOTSUPP));
        }
        refuse(process, path.bytes()?, "file-handle", Errno::OPNOTSUPP)
    }
    fn [fts_open, fts64_open](paths: *const *const c_char, options: c_int, compare: Compare)
    -> *mut c_void = |process, _| {
        let _ = (options, compare);
        walk_with_fts(process, List(paths))
    }
}
