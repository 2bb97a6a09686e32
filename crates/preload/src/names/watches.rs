//! Watches of what lies on a volume: `inotify` watches what the engine has in the kernel for it.
//!
//! `fanotify`, and `inotify` where the engine tells nobody of changes, is refused.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::cred::READ;
use vfs::{Errno, Kind};

use crate::entry::fdtable;
use crate::entry::pointers::{Bytes, Text};
use crate::entry::process::{Process, VolumeView};
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::files::calls;
use crate::paths::{self, Target};

/// The bits of a mask that the kernel knows.
const KNOWN: u32 = libc::IN_ALL_EVENTS
    | libc::IN_UNMOUNT
    | libc::IN_Q_OVERFLOW
    | libc::IN_IGNORED
    | libc::IN_ONLYDIR
    | libc::IN_DONT_FOLLOW
    | libc::IN_EXCL_UNLINK
    | libc::IN_MASK_CREATE
    | libc::IN_MASK_ADD
    | libc::IN_ISDIR
    | libc::IN_ONESHOT;

/// Some watch was refused.
static WATCH_REFUSED: AtomicBool = AtomicBool::new(false);

/// Adds a watch by `kernel`, which is given the path to watch and the mask.
pub fn add(
    process: &Process,
    (fd, path): (c_int, Text),
    mask: u32,
    kernel: impl Fn(*const c_char, u32) -> c_int,
) -> Served<c_int> {
    if mask != 0
        && mask & !KNOWN == 0
        && let Some(desc) = fdtable::get(fd)
        && process.fs.describe(desc)?.1.path_only()
    {
        return Err(Stop::Errno(Errno::BADF));
    }
    // What the kernel looks at before the path: it says so of one that leads nowhere.
    if kernel(c"".as_ptr(), mask) == -1 {
        let errno = Errno::from_raw_os_error(crate::entry::errno());
        if errno != Errno::NOENT {
            return Err(Stop::Errno(errno));
        }
    }
    let text = path.bytes()?;
    let follow = mask & libc::IN_DONT_FOLLOW == 0;
    let target = match paths::resolve(process, libc::AT_FDCWD, text, follow)? {
        Target::Kernel => return Err(Stop::Kernel),
        Target::Elsewhere(path) => return Ok(kernel(path.as_ptr(), mask)),
        target => target,
    };
    let attr = paths::existing(process, &target)?;
    process.cred().check(&attr, READ)?;
    if mask & libc::IN_ONLYDIR != 0 && attr.kind != Kind::Directory {
        return Err(Stop::Errno(Errno::NOTDIR));
    }
    let seen = process.volume_of(attr.node);
    match process.fs.watch(attr.node, mask & libc::IN_ALL_EVENTS) {
        Err(Errno::OPNOTSUPP) => refuse(seen, text, "inotify"),
        shadow => {
            let anchor = format!("/proc/self/fd/{}/", seen.anchor.as_raw_fd());
            let shadow = [anchor.as_bytes(), &shadow?].concat();
            // The shadow may have a symlink in front. A mask of no event is none for the kernel.
            let followed = match mask & !libc::IN_DONT_FOLLOW {
                0 => libc::IN_EXCL_UNLINK,
                followed => followed,
            };
            Ok(kernel(paths::c_text(&shadow)?.as_ptr(), followed))
        }
    }
}

/// Refuses a watch of `path`, or of a descriptor, on a volume. The first one is told on standard
/// error, too: programs drop the error and wait for ever (Node, where it watches a tree).
pub fn refuse<T>(seen: &VolumeView, path: &[u8], reason: &'static str) -> Served<T> {
    if !WATCH_REFUSED.swap(true, Ordering::Relaxed) {
        let path = String::from_utf8_lossy(path);
        let line = format!(
            "solera: {path}: nobody is told of changes on a volume: what waits for {reason} to \
             tell them waits for ever; let the program poll\n"
        );
        // As the program would write it.
        outside(|| calls::write(2, Bytes(line.as_ptr().cast_mut().cast()), line.len()));
    }
    report::about(seen.root.member());
    Err(Stop::Refused(reason, Errno::OPNOTSUPP))
}

/// The volume that a call by a directory and a path is about, which may be NULL: the directory
/// itself.
pub fn volume_marked<'p>(
    process: &'p Process,
    (dirfd, path): (c_int, &[u8]),
    follow: bool,
) -> Option<&'p VolumeView> {
    match fdtable::get(dirfd) {
        Some(desc) if path.first() != Some(&b'/') => Some(process.volume_of(desc)),
        None if path.is_empty() && dirfd == libc::AT_FDCWD => {
            process.cwd_node().map(|node| process.volume_of(node))
        }
        _ => paths::volume_at(process, path, follow),
    }
}
