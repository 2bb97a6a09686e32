//! Which calls the volume did not serve, and why: counted here, written at exit to the file named
//! by `SOLERA_REPORT`, one line `count reason function` each.
//!
//! Lock-free: a fixed table of entries that are claimed by compare-and-swap. Beyond its size the
//! rest is counted together.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

const ENTRIES: usize = 64;

type Key = (&'static str, &'static str);

struct Entry {
    key: AtomicPtr<Key>,
    count: AtomicU64,
}

static TABLE: [Entry; ENTRIES] =
    [const { Entry { key: AtomicPtr::new(std::ptr::null_mut()), count: AtomicU64::new(0) } };
        ENTRIES];
static OVERFLOW: AtomicU64 = AtomicU64::new(0);

/// Counts one call of `function` that was refused or left to the kernel for `reason`.
pub fn count(function: &'static str, reason: &'static str) {
    for entry in &TABLE {
        let mut key = entry.key.load(Ordering::Acquire);
        if key.is_null() {
            let new = Box::into_raw(Box::new((function, reason)));
            let null = std::ptr::null_mut();
            key = match entry.key.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(theirs) => {
                    // SAFETY: made above and not published.
                    drop(unsafe { Box::from_raw(new) });
                    theirs
                }
            };
        }
        // SAFETY: published keys live for ever.
        if unsafe { *key } == (function, reason) {
            entry.count.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    OVERFLOW.fetch_add(1, Ordering::Relaxed);
}

/// A forked child reports what it did itself.
pub fn reset() {
    for entry in &TABLE {
        entry.count.store(0, Ordering::Relaxed);
    }
    OVERFLOW.store(0, Ordering::Relaxed);
}

/// Appends the lines to `path` in one write.
pub fn write(path: &[u8]) {
    let mut lines = Vec::new();
    for entry in &TABLE {
        let (key, count) = (entry.key.load(Ordering::Acquire), entry.count.load(Ordering::Relaxed));
        if !key.is_null() && count > 0 {
            // SAFETY: published keys live for ever.
            let (function, reason) = unsafe { *key };
            lines.push(format!("{count} {reason} {function}\n"));
        }
    }
    let rest = OVERFLOW.load(Ordering::Relaxed);
    if rest > 0 {
        lines.push(format!("{rest} other (any)\n"));
    }
    if lines.is_empty() {
        return;
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        // A report that cannot be written has nowhere to say so.
        let _ = rustix::io::write(&file, lines.concat().as_bytes());
    }
}
