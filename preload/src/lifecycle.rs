//! The process itself: `fork`, `vfork`, `daemon`, leaving, and changes of identity and umask.
//!
//! `vfork` is served by `fork`: programs edit descriptors in the child, which would be the parent's
//! table. A forked child holds every description that its parent held, under a place of its own in
//! the engine, prepared before the fork.
//!
//! Locks: `fork` takes the structure lock and the working directory's across the system call, so
//! that the child of a threaded parent never finds them held by a thread that it does not have.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use vfs::Errno;

use crate::entry::{Inside, Real, Served, Stop, interpose, outside};
use crate::handover;
use crate::pointers::Text;
use crate::process::Process;
use crate::report;
use crate::stdio;

/// Forks; 0 in the child.
pub fn fork_process(process: &Process) -> Result<c_int, Errno> {
    static REAL: Real = Real::new("fork\0");
    let maps = process.lock();
    let cwd = process.cwd.write().unwrap_or_else(PoisonError::into_inner);
    let held = Process::held(&maps);
    let ticket = process.fs.fork_prepare(&held)?;
    let real = REAL.address();
    // SAFETY: glibc's `fork`, with its handlers.
    let pid = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn() -> c_int>(real)() };
    let errno = Errno::from_raw_os_error(crate::entry::errno().max(1));
    if pid == 0 {
        if process.fs.fork_child(ticket).is_err() {
            // Without a place on the volume nothing that the child does would be right.
            exit_now(EXIT_WITHOUT_VOLUME);
        }
        process.record_locks.store(false, Ordering::Relaxed);
        report::reset();
    } else {
        process.fs.fork_parent(ticket, u32::try_from(pid).ok());
    }
    drop(cwd);
    drop(maps);
    if pid < 0 { Err(errno) } else { Ok(pid) }
}

/// The exit code that says that the program could not run on the volume.
pub const EXIT_WITHOUT_VOLUME: c_int = 125;

/// Ends the process at once.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: does not come back.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    std::process::abort()
}

/// Leaves the volume in order: the report, then every hold.
pub fn leave(process: &Process) {
    process.write_report();
    handover::close_handed(process);
    // A detach that fails is a death: whoever comes next cleans up.
    let _ = process.fs.detach();
}

/// Runs after all exit handlers of the program, since it was registered before any of them.
pub extern "C" fn at_exit(_: *mut std::ffi::c_void) {
    if let Some(process) = crate::init::process() {
        stdio::flush_all();
        let _inside = Inside::new();
        leave(process);
    }
}

interpose! {
    fn [fork, _Fork]() -> c_int = |process, _| {
        Ok(fork_process(process)?)
    }
    fn [_exit, _Exit](code: c_int) -> () = |process, _| {
        let _ = code;
        leave(process);
        Err(Stop::Kernel)
    }
    /// glibc's forks inside itself.
    fn [daemon](keep_directory: c_int, keep_streams: c_int) -> c_int = |process, _| {
        if fork_process(process)? != 0 {
            leave(process);
            exit_now(0);
        }
        rustix::process::setsid()?;
        outside(|| {
            // SAFETY: calls with constant arguments, as the program would make them.
            unsafe {
                if keep_directory == 0 {
                    libc::chdir(c"/".as_ptr());
                }
                if keep_streams == 0 {
                    let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                    for fd in 0..3 {
                        libc::dup2(null, fd);
                    }
                    if null > 2 {
                        libc::close(null);
                    }
                }
            }
        });
        Ok(0)
    }
    fn [umask](mask: c_uint) -> c_uint = |process, kernel| {
        let before = kernel(mask);
        process.umask.store(mask & 0o777, Ordering::Relaxed);
        Ok(before)
    }
    fn [setuid](uid: c_uint) -> c_int = |process, kernel| { identified(process, kernel(uid)) }
    fn [setgid](gid: c_uint) -> c_int = |process, kernel| { identified(process, kernel(gid)) }
    fn [seteuid](uid: c_uint) -> c_int = |process, kernel| { identified(process, kernel(uid)) }
    fn [setegid](gid: c_uint) -> c_int = |process, kernel| { identified(process, kernel(gid)) }
    fn [setreuid](real: c_uint, effective: c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(real, effective))
    }
    fn [setregid](real: c_uint, effective: c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(real, effective))
    }
    fn [setresuid](real: c_uint, effective: c_uint, saved: c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(real, effective, saved))
    }
    fn [setresgid](real: c_uint, effective: c_uint, saved: c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(real, effective, saved))
    }
    fn [setgroups](count: usize, list: *const c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(count, list))
    }
    fn [initgroups](user: Text, gid: c_uint) -> c_int = |process, kernel| {
        identified(process, kernel(user, gid))
    }
}

/// Never glibc's: its child would return through this library's frame, which is the parent's.
// SAFETY: the symbol replaces glibc's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> c_int {
    // SAFETY: the interposed one.
    unsafe { libc::fork() }
}

impl crate::entry::Answer for u32 {
    const FAILED: Self = u32::MAX;
}

#[allow(clippy::unnecessary_wraps)] // What the bodies of interposed functions give.
fn identified(process: &Process, result: c_int) -> Served<c_int> {
    process.refresh_cred();
    Ok(result)
}

/// A shell command as an argument list.
pub fn shell(command: *const c_char) -> [*const c_char; 4] {
    [c"sh".as_ptr(), c"-c".as_ptr(), command, std::ptr::null()]
}
