//! Counts the calls that the volume did not serve, with the reasons, and writes them at exit to the
//! file named by `SOLERA_REPORT`, one line `count reason function outcome` each. The outcome is the
//! error that the program got, or `fell-back` for what was served in a roundabout way, with `:` and
//! how many bytes that were, where they are counted. `by=` and a file follow for calls that code
//! outside the C library makes: where that code is from, with `\` and three digits for blanks and
//! the like. Where the program has several volumes, the path follows at which the one is seen that
//! the calls concerned, if that is known.
//!
//! With `SOLERA_STRICT_SUPPORT` the first refused call ends the process: no result is better than
//! one of a program that went another way.
//!
//! Lock-free: a fixed table of entries that are claimed by compare-and-swap. Beyond its size the
//! rest is counted together.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use vfs::Errno;

use crate::entry::thread::here;
use crate::runtime::{code, errors};

const ENTRIES: usize = 64;

/// Function, reason and error (none: it fell back), what [`about`] said, and the file of the code
/// that made the call, if it is known (see [`crate::entry::thread::Thread::caller`]).
type Key = (&'static str, &'static str, Option<Errno>, u8, Option<&'static [u8]>);

struct Entry {
    key: AtomicPtr<Key>,
    count: AtomicU64,
    /// That the calls concerned, where that is counted.
    bytes: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        let key = AtomicPtr::new(std::ptr::null_mut());
        Self { key, count: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }
}

static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];
static OVERFLOW: AtomicU64 = AtomicU64::new(0);
static STRICT: AtomicBool = AtomicBool::new(false);

/// From now on the first refused call ends the process.
pub fn be_strict() {
    STRICT.store(true, Ordering::Relaxed);
}

/// Whether the first refused call ends the process.
pub fn is_strict() -> bool {
    STRICT.load(Ordering::Relaxed)
}

/// What is counted next by this thread concerns the volume of this number.
pub fn about(member: usize) {
    here().about.store(u8::try_from(member + 1).unwrap_or(0), Ordering::Relaxed);
}

/// Counts one call of `function` that was refused for `reason` with `errno`.
pub fn refused(function: &'static str, reason: &'static str, errno: Errno) {
    let _ = count(function, reason, Some(errno));
}

/// Counts one call that was refused so that the program goes another way, as strict ones may.
#[cold]
pub fn declined(function: &'static str, reason: &'static str, errno: Errno) {
    let _ = count(function, reason, Some(errno));
}

/// Counts one call that was served, but in another way than a file system's: slower, by a copy.
#[cold]
pub fn fell_back(function: &'static str, reason: &'static str) {
    let _ = count(function, reason, None);
}

/// The same of so many bytes.
#[cold]
pub fn moved_otherwise(function: &'static str, reason: &'static str, bytes: u64) {
    if let Some(entry) = count(function, reason, None) {
        entry.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn count(
    function: &'static str,
    reason: &'static str,
    error: Option<Errno>,
) -> Option<&'static Entry> {
    let thread = here();
    let caller = thread.caller.load(Ordering::Relaxed);
    let file = (caller != 0).then(|| code::file_at(caller));
    let wanted: Key = (function, reason, error, thread.about.swap(0, Ordering::Relaxed), file);
    for entry in &TABLE {
        let mut key = entry.key.load(Ordering::Acquire);
        if key.is_null() {
            let new = Box::into_raw(Box::new(wanted));
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
        if unsafe { *key } == wanted {
            entry.count.fetch_add(1, Ordering::Relaxed);
            return Some(entry);
        }
    }
    OVERFLOW.fetch_add(1, Ordering::Relaxed);
    None
}

/// `EPERM` and the like.
pub fn name_of(errno: Errno) -> String {
    let number = errno.raw_os_error();
    errors::name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// A forked child reports what it did itself.
pub fn reset() {
    for entry in &TABLE {
        entry.count.store(0, Ordering::Relaxed);
        entry.bytes.store(0, Ordering::Relaxed);
    }
    OVERFLOW.store(0, Ordering::Relaxed);
}

/// A byte of a file's name, as lists of the kernel's have it.
fn written(byte: u8) -> impl Iterator<Item = u8> {
    let is_plain = byte > b' ' && byte != b'\\' && byte != 0x7f;
    let digit = |shift: u8| b'0' + (byte >> shift & 7);
    let all = if is_plain { [byte; 4] } else { [b'\\', digit(6), digit(3), digit(0)] };
    all.into_iter().take(if is_plain { 1 } else { 4 })
}

/// Appends the lines to `path` in one write. `seen`: where each of several volumes is seen; `used`:
/// lines of what was used.
pub fn write(path: &[u8], seen: &[&[u8]], used: &str) {
    let mut lines = used.as_bytes().to_vec();
    for entry in &TABLE {
        let (key, count) = (entry.key.load(Ordering::Acquire), entry.count.load(Ordering::Relaxed));
        if !key.is_null() && count > 0 {
            // SAFETY: published keys live for ever.
            let (function, reason, errno, about, file) = unsafe { *key };
            let bytes = match entry.bytes.load(Ordering::Relaxed) {
                0 => String::new(),
                bytes => format!(":{bytes}"),
            };
            let outcome = errno.map_or_else(|| format!("fell-back{bytes}"), name_of);
            lines.extend_from_slice(format!("{count} {reason} {function} {outcome}").as_bytes());
            if let Some(file) = file {
                lines.extend_from_slice(b" by=");
                lines.extend(file.iter().flat_map(|&byte| written(byte)));
            }
            if let Some(at) = usize::from(about).checked_sub(1).and_then(|number| seen.get(number))
            {
                lines.push(b' ');
                lines.extend_from_slice(at);
            }
            lines.push(b'\n');
        }
    }
    let rest = OVERFLOW.load(Ordering::Relaxed);
    if rest > 0 {
        lines.extend_from_slice(format!("{rest} other (any) (any)\n").as_bytes());
    }
    if lines.is_empty() {
        return;
    }
    // A fifo is not waited for.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600));
    if let Some(file) = file.ok().filter(volume::is_ordinary) {
        // There is no place to report that the report cannot be written.
        let _ = rustix::io::write(&file, &lines);
    }
}
