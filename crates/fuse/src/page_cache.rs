//! Keeps the kernel's page cache right for files that are mapped (or executed) through the mount.
//!
//! `read` and `write` go past the page cache; a mapping cannot. The kernel fills its pages by reads
//! that belong to no call, and such a file is *watched* from then on: when its times or size move
//! (some preloaded process wrote to it, say) the kernel is told to drop its pages, and reads anew
//! what is still mapped.
//!
//! The clock of times ticks every few milliseconds, so a file that changed a moment ago is taken
//! for one that may change once more within the same tick.
//!
//! Locks: `files`, never while the kernel is told.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vfs::{Attr, FileSystem, FileSystemExt, Node};

use crate::nodes::lock;

/// How often the watched files are looked at.
pub const PERIOD: Duration = Duration::from_millis(10);
/// Longer than a tick of the clock that times are taken from.
const TICK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Watched {
    node: Node,
    seen: (i64, i64, u64),
    /// Until when the same times may hide another change.
    unsure: Option<Instant>,
}

/// What the kernel has pages of.
#[derive(Default)]
pub struct PageCache {
    files: Mutex<HashMap<u64, Watched>>,
}

fn version(attr: &Attr) -> (i64, i64, u64) {
    (attr.mtime, attr.ctime, attr.size)
}

impl PageCache {
    /// The kernel is about to get pages of a node, which is watched from now on; `attr` was read
    /// before them. `true` if it is the only one.
    pub fn watch(&self, number: u64, attr: &Attr) -> bool {
        let mut files = lock(&self.files);
        let first = files.is_empty();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let age = now.tv_sec * 1_000_000_000 + now.tv_nsec - attr.mtime.max(attr.ctime);
        let fresh = u128::try_from(age).is_ok_and(|age| age < TICK.as_nanos());
        let unsure = fresh.then(|| Instant::now() + TICK);
        // The older look stays: a change since then must not be missed.
        files.entry(number).or_insert(Watched { node: attr.node, seen: version(attr), unsure });
        first
    }

    /// The kernel has forgotten a node, and its pages.
    pub fn forget(&self, number: u64) {
        lock(&self.files).remove(&number);
    }

    /// Whether anything is watched.
    pub fn is_empty(&self) -> bool {
        lock(&self.files).is_empty()
    }

    /// Looks at all that is watched; gives the nodes whose pages are to be dropped. They are
    /// watched again when the kernel asks for pages anew.
    pub fn changed(&self, fs: &dyn FileSystem) -> Vec<u64> {
        let all: Vec<(u64, Watched)> =
            lock(&self.files).iter().map(|(&number, &file)| (number, file)).collect();
        let now = Instant::now();
        let mut stale = Vec::new();
        for (number, file) in all {
            let same = fs.attributes(file.node).is_ok_and(|attr| version(&attr) == file.seen);
            match file.unsure {
                _ if !same => stale.push(number),
                // Dropped once more after the tick, even if it looks unchanged.
                Some(until) if now > until => stale.push(number),
                _ => {}
            }
        }
        let mut files = lock(&self.files);
        for number in &stale {
            files.remove(number);
        }
        stale
    }
}
