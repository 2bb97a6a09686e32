//! Watches of what lies on a volume: nobody is told of changes there, so each is refused.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::Errno;

use crate::entry::fdtable;
use crate::entry::pointers::Bytes;
use crate::entry::process::{Process, VolumeView};
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::files::calls;
use crate::paths;

/// Some watch was refused.
static WATCH_REFUSED: AtomicBool = AtomicBool::new(false);

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
