//! The kernel's own asynchronous calls, `io_uring` and `io_submit`: they work on the kernel's
//! descriptors, past this library, so on one of ours they would fail for ever, or find a directory.
//!
//! While a volume is attached, or with the engine over a kernel file system, the calls that would
//! begin them fail as if the kernel did not have them (`ENOSYS`), and are counted: programs then
//! read and write by threads of their own, as they do on an old kernel or in a container. That is
//! no error of the program's, so `SOLERA_STRICT_SUPPORT` does not end it. With
//! `SOLERA_KERNEL_AIO=allow` they are the kernel's: for a program that uses them for sockets, or
//! for files outside only.
//!
//! liburing and libaio make their system calls themselves: their functions are interposed by name.
//! The originals are looked up where they are loaded, not behind this library: a plug-in's
//! libraries are not in our scope.

use std::sync::atomic::{AtomicBool, Ordering};

use vfs::Errno;

use crate::entry::Stop;
use crate::entry::report;

const REASON: &str = "kernel-aio";

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// From now on they are the kernel's.
pub fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

/// Why `function` does not begin anything: `ENOSYS`, unless the kernel is to serve it.
pub fn begun(function: &'static str) -> Stop {
    if ALLOWED.load(Ordering::Relaxed) {
        return Stop::Kernel;
    }
    report::declined(function, REASON, Errno::NOSYS);
    Stop::Errno(Errno::NOSYS)
}
