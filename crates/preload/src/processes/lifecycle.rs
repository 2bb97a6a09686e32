//! The process itself: leaving, `daemon`, and changes of the umask.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use vfs::Errno;

use crate::descriptors::handover;
use crate::entry::attachment;
use crate::entry::fdtable;
use crate::entry::pending_signals;
use crate::entry::process::Process;
use crate::entry::report;

/// The exit code that says that the program could not run on the volume.
pub const EXIT_WITHOUT_VOLUME: c_int = 125;

/// Ends the process at once.
pub fn exit_now(code: c_int) -> ! {
    crate::entry::syscall::kernel(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]);
    std::process::abort()
}

/// Says why the process cannot go on, and ends it. Allocates nothing: the heap may be in use.
pub fn fail_loudly(what: &str, errno: Errno) -> ! {
    let error = errno.raw_os_error();
    let digits = [error / 100 % 10, error / 10 % 10, error % 10].map(|digit| b'0' + digit as u8);
    for part in [b"solera: ", what.as_bytes(), b": error ", digits.as_slice(), b"\n"] {
        // There is no other place to report to.
        let _ = rustix::io::write(fdtable::borrow(2), part);
    }
    exit_now(EXIT_WITHOUT_VOLUME)
}

/// Counts one call of `function` that was refused for `reason` with `errno`; if the caller of
/// `solera run` has asked for that, the process ends.
#[cold]
pub fn refused(function: &'static str, reason: &'static str, errno: Errno) {
    report::refused(function, reason, errno);
    if report::is_strict() {
        let line = format!(
            "solera: {function} is not served ({reason}, {}): the program was ended, as \
             --strict-support asks\n",
            report::name_of(errno),
        );
        // There is no other place to report to.
        let _ = rustix::io::write(fdtable::borrow(2), line.as_bytes());
        if let Some(process) = attachment::process() {
            leave(process);
        }
        std::process::abort();
    }
}

/// The process that leaves, since it ends; 0: none. A child that was made meanwhile is another one.
static ENDING: AtomicU32 = AtomicU32::new(0);

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Leaves the volume; the kernel ends the process next. Until then other threads go on: they see no
/// call fail for this.
pub fn leave_at_end(process: &Process) {
    ENDING.store(own_pid(), Ordering::SeqCst);
    leave(process);
}

/// A call of this thread has failed: if that may be since the process ends, it does not come back.
/// No locks are held, nor is the thread inside.
#[cold]
pub fn wait_if_ending() {
    let ending = ENDING.load(Ordering::SeqCst);
    if ending == 0 || ending != own_pid() {
        return;
    }
    pending_signals::set_mask(u64::MAX);
    loop {
        crate::entry::syscall::kernel(libc::SYS_pause, [0; 6]);
    }
}

/// Leaves the volume in order: the report, then every hold.
pub fn leave(process: &Process) {
    process.write_report();
    // A child that was made by a system call of the program's own may have called nothing since.
    if !process.fs.is_attached() {
        return;
    }
    handover::close_handed(process);
    // A detach that fails is a death: the next attacher cleans up.
    let _ = process.fs.detach();
}
