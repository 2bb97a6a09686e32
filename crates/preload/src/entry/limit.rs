//! `RLIMIT_FSIZE`: how large a file this process may make. A call that would write beyond it writes
//! up to it; from there on, or if a size is asked for, it gets `EFBIG` and SIGXFSZ.
//!
//! The kernel tells the limit only by a system call, so it is remembered: read at the start, and
//! whenever this process changes it. (One that another process changes by `prlimit` is not seen.)

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Resource;
use vfs::{Desc, Errno, FileSystemExt, Kind, Node, Whence};

use crate::entry::process::Process;
use crate::entry::syscall;
use crate::entry::{Served, Stop};

/// No limit.
const NONE: u64 = u64::MAX;

static LIMIT: AtomicU64 = AtomicU64::new(NONE);

/// Asks the kernel.
pub fn learn() {
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    LIMIT.store(limit.unwrap_or(NONE), Ordering::Relaxed);
}

/// How many of `len` bytes may be written at `at`, or where `desc` stands.
#[inline]
pub fn room(process: &Process, desc: Desc, at: Option<u64>, len: usize) -> Served<usize> {
    match LIMIT.load(Ordering::Relaxed) {
        NONE => Ok(len),
        limit => room_below(process, desc, at, len, limit),
    }
}

#[cold]
fn room_below(
    process: &Process,
    desc: Desc,
    at: Option<u64>,
    len: usize,
    limit: u64,
) -> Served<usize> {
    let (node, flags) = process.fs.describe(desc)?;
    let attr = process.fs.attributes(node)?;
    if len == 0 || !flags.writes() || attr.kind != Kind::File {
        return Ok(len);
    }
    let at = match at {
        _ if flags.has(libc::O_APPEND) => attr.size,
        Some(at) => at,
        None => process.fs.seek(desc, 0, Whence::Current)?,
    };
    if at >= limit {
        return Err(exceeded());
    }
    Ok(len.min(usize::try_from(limit - at).unwrap_or(usize::MAX)))
}

/// Whether a file may get that size.
pub fn check_size(process: &Process, node: Node, size: u64) -> Served<()> {
    let limit = LIMIT.load(Ordering::Relaxed);
    if size <= limit || size <= process.fs.attributes(node)?.size {
        return Ok(());
    }
    Err(exceeded())
}

/// Sends the thread the signal, as the kernel would.
fn exceeded() -> Stop {
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    // A signal that cannot be sent is none.
    syscall::kernel(libc::SYS_tgkill, [process, thread, libc::SIGXFSZ as usize, 0, 0, 0]);
    Stop::Errno(Errno::FBIG)
}
