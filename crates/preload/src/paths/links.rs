//! Symlinks of the kernel's file systems that lead to the volume.
//!
//! A path that does not name the prefix is the kernel's, which follows its own symlinks; where one
//! leads into the prefix, it finds nothing there. So a call whose path was left to the kernel, and
//! which then fails with `ENOENT`, is made once more ([`crate::entry::serve`]): this time the path
//! is walked here, link by link, to see whether it reaches the volume; but first the kernel is
//! asked whether it meets a link at all. A call that succeeds pays nothing for this. A path that a
//! symlink on the volume leads out of it is walked at once: that is rare, and the kernel's answer
//! to it ends the call.
//!
//! Locks: none.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use vfs::Node;
use vfs::walk::LINKS_MAX;

use crate::entry::process::Process;
use crate::entry::thread::{has_one_thread, here};
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

/// Runs `call` with its paths walked.
pub fn walked<T>(call: impl FnOnce() -> T) -> T {
    here().links.store(WALKED, Ordering::Relaxed);
    let value = call();
    begin();
    value
}

/// A path of the call is left to the kernel, whatever it leads to, unless this is the second time.
#[inline]
pub fn is_left() -> bool {
    let links = &here().links;
    let is_left = links.load(Ordering::Relaxed) != WALKED;
    if is_left {
        links.store(LEFT, Ordering::Relaxed);
    }
    is_left
}

/// A path that is the kernel's by its text: where it leads below a volume's prefix, and its root,
/// if this is the second time and it leads there. `whole` gives the absolute path.
#[inline]
pub fn leave(
    process: &Process,
    whole: impl FnOnce() -> Option<Vec<u8>>,
    follow: bool,
) -> Option<(Node, Vec<u8>)> {
    if is_left() { None } else { through(process, whole()?, follow) }
}

/// The process has a filter of system calls, which may know fewer than this library.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// It is about to set one.
pub fn before_filter() {
    IS_FILTERED.store(true, Ordering::Relaxed);
}

/// Whether the kernel finds nothing at an absolute path, and met no symlink on the way there.
///
/// One call instead of one for each name. The kernel takes a number for the time of it, which no
/// other thread must miss.
fn meets_no_link(path: &[u8]) -> bool {
    if !has_one_thread() || IS_FILTERED.load(Ordering::Relaxed) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    let found = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve);
    found.err() == Some(Errno::NOENT)
}

/// Follows an absolute path's symlinks until the rest lies below a prefix.
#[cold]
pub fn through(process: &Process, path: Vec<u8>, follow: bool) -> Option<(Node, Vec<u8>)> {
    if meets_no_link(&path) {
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
