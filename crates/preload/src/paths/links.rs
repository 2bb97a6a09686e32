//! Symlinks of the kernel's file systems that lead to the volume.
//!
//! A path that does not name the prefix is the kernel's, which follows its own symlinks; where one
//! leads into the prefix, it finds nothing there. So a call whose path was left to the kernel, and
//! which then fails with `ENOENT`, is made once more ([`crate::entry::serve`]): this time the path
//! is walked here, link by link, to see whether it reaches the volume. A call that succeeds pays
//! nothing for this. A path that a symlink on the volume leads out of it is walked at once: that is
//! rare, and the kernel's answer to it ends the call.
//!
//! Locks: none.

use std::sync::atomic::Ordering;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use vfs::Node;
use vfs::walk::LINKS_MAX;

use crate::entry::process::Process;
use crate::entry::thread::here;
use crate::paths;

/// No path was left to the kernel.
const NONE: u8 = 0;
/// The call's path was left to the kernel.
const LEFT: u8 = 1;
/// The call is made once more, with its paths walked.
const WALKED: u8 = 2;

/// A call begins.
#[inline]
pub fn begin() {
    here().links.store(NONE, Ordering::Relaxed);
}

/// Whether a path of the call was left to the kernel.
#[inline]
pub fn was_left() -> bool {
    here().links.load(Ordering::Relaxed) == LEFT
}

/// Whether the call is made once more, with its paths walked.
#[inline]
pub fn is_walked() -> bool {
    here().links.load(Ordering::Relaxed) == WALKED
}

/// Runs `call` with its paths walked.
pub fn walked<T>(call: impl FnOnce() -> T) -> T {
    here().links.store(WALKED, Ordering::Relaxed);
    let value = call();
    begin();
    value
}

/// A path that is the kernel's by its text: where it leads below a volume's prefix, and its root,
/// if this is the second time and it leads there. `whole` gives the absolute path.
#[inline]
pub fn leave(
    process: &Process,
    whole: impl FnOnce() -> Option<Vec<u8>>,
    follow: bool,
) -> Option<(Node, Vec<u8>)> {
    if is_walked() {
        return through(process, whole()?, follow);
    }
    here().links.store(LEFT, Ordering::Relaxed);
    None
}

/// Whether the kernel meets a symlink on an absolute path, or may: a kernel or sandbox that cannot
/// be asked does not say.
fn may_meet_link(path: &[u8], follow: bool) -> bool {
    let last = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | last;
    let found = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    matches!(found, Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::MFILE))
}

/// Follows an absolute path's symlinks until the rest lies below a prefix. Most paths that are not
/// found have none: that takes one system call, not one for each name.
#[cold]
pub fn through(process: &Process, path: Vec<u8>, follow: bool) -> Option<(Node, Vec<u8>)> {
    if !may_meet_link(&path, follow) {
        return None;
    }
    let mut pending = path;
    let mut done: Vec<u8> = Vec::new();
    let mut links = 0;
    loop {
        let from = pending.iter().position(|&byte| byte != b'/')?;
        let length = pending[from..].iter().take_while(|&&byte| byte != b'/').count();
        let name = pending[from..from + length].to_vec();
        let rest = pending.split_off(from + length);
        pending = rest;
        match &name[..] {
            b"." => continue,
            b".." => {
                let cut = done.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                done.truncate(cut);
                continue;
            }
            _ => {}
        }
        if pending.is_empty() && !follow {
            return None;
        }
        let parent = done.len();
        done.push(b'/');
        done.extend_from_slice(&name);
        let target = match rustix::fs::readlinkat(CWD, &done[..], Vec::new()) {
            Ok(target) => target.into_bytes(),
            // Not a link.
            Err(Errno::INVAL) => continue,
            Err(_) => return None,
        };
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        done.truncate(if target.first() == Some(&b'/') { 0 } else { parent });
        pending = [b"/", &target[..], &pending[..]].concat();
        let whole = [&done[..], &pending[..]].concat();
        if let Some((root, rest)) = paths::strip(process, &whole) {
            return Some((root, rest.to_vec()));
        }
    }
}
