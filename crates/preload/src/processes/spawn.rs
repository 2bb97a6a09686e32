//! `posix_spawn` and its kin: the child of glibc's shares its parent's memory, by which it tells an
//! error. So all of it is done here, with our fork and exec. (`system`, `popen` and `wordexp` have
//! the C library spawn inside itself: such a child gets a copy of the memory, see
//! [`crate::door`].)
//!
//! The child tells an error through a close-on-exec pipe at high numbers, out of the way of the
//! file actions. Those and the attributes are read from glibc's own structures, unchanged since
//! 2.29.

use std::ffi::{c_char, c_int, c_short, c_uint};

use libc::sigset_t;
use vfs::Errno;

use crate::descriptors::calls;
use crate::entry::cached_fd;
use crate::entry::pending_signals;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::{Served, errno, outside};
use crate::paths::calls as directories;
use crate::processes::exec::{self, List};
use crate::processes::fork::{self, ChildReport};
use crate::processes::lifecycle::{self, exit_now};
use crate::signals::{sigaction, signal};

/// glibc's `posix_spawn_file_actions_t`.
#[repr(C)]
pub struct Actions {
    allocated: c_int,
    used: c_int,
    list: *const Action,
}

/// glibc's `struct __spawn_action`: a tag and a union of the arguments.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    tag: c_int,
    padding: c_int,
    first: c_int,
    /// The second number, or padding.
    second: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
}
const _: () = assert!(std::mem::offset_of!(Action, first) == 8 && size_of::<Action>() == 32);

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSE_FROM: c_int = 5;
const TERMINAL: c_int = 6;

/// What to execute.
#[derive(Clone, Copy)]
pub struct Program {
    pub file: &'static [u8],
    pub search: bool,
    pub arguments: List,
    pub environment: List,
}

/// The beginning of glibc's `posix_spawnattr_t`.
#[repr(C)]
pub struct Attributes {
    flags: c_short,
    group: c_int,
    default: sigset_t,
    mask: sigset_t,
    parameter: libc::sched_param,
    policy: c_int,
}
const _: () = assert!(std::mem::offset_of!(Attributes, policy) == 268);
const _: () = assert!(size_of::<Attributes>() <= size_of::<libc::posix_spawnattr_t>());

/// In the child: one file action, as the program would do it. Gives 0 or an error number.
fn act(action: &Action) -> c_int {
    let (first, second) = (action.first, action.second);
    let result = match action.tag {
        CLOSE => {
            // Closing what is not open is no error.
            calls::close(first);
            0
        }
        DUP2 if first == second => {
            let flags = calls::fcntl(first, libc::F_GETFD, 0);
            let kept = flags & !libc::FD_CLOEXEC;
            if flags < 0 { flags } else { calls::fcntl(first, libc::F_SETFD, kept as usize) }
        }
        DUP2 => calls::dup2(first, second),
        OPEN => {
            let new = calls::open(Text(action.path), action.flags, action.mode);
            if new >= 0 && new != first {
                let moved = calls::dup2(new, first);
                calls::close(new);
                moved
            } else {
                new
            }
        }
        CHDIR => {
            // SAFETY: the union's text stands in the place of the first two numbers.
            let path = unsafe { (&raw const action.first).cast::<Text>().read_unaligned() };
            directories::chdir(path)
        }
        FCHDIR => directories::fchdir(first),
        CLOSE_FROM => {
            calls::close_range(first as c_uint, c_uint::MAX, 0);
            0
        }
        // SAFETY: numbers.
        TERMINAL => unsafe { libc::tcsetpgrp(first, libc::getpgrp()) },
        _ => return libc::EINVAL,
    };
    if result < 0 { errno() } else { 0 }
}

/// In the child: the attributes. Gives 0 or an error number.
fn apply(attributes: *const Attributes) -> c_int {
    // SAFETY: the program's initialised attributes in glibc's layout, or NULL.
    let Some(given) = (unsafe { attributes.as_ref() }) else { return 0 };
    let has = |bit: c_int| c_int::from(given.flags) & bit != 0;
    // SAFETY: calls on numbers and on structures of the program's, as it asked for them.
    unsafe {
        if has(libc::POSIX_SPAWN_SETSIGDEF) {
            for signal in 1..=libc::SIGRTMAX() {
                if libc::sigismember(&raw const given.default, signal) == 1 {
                    sigaction::set_default(signal);
                }
            }
        }
        let mut result = 0;
        if has(c_int::from(libc::POSIX_SPAWN_SETSID)) {
            result |= c_int::from(libc::setsid() < 0);
        }
        if has(libc::POSIX_SPAWN_SETPGROUP) {
            result |= c_int::from(libc::setpgid(0, given.group) != 0);
        }
        if has(libc::POSIX_SPAWN_RESETIDS) {
            result |= c_int::from(libc::setegid(libc::getgid()) != 0);
            result |= c_int::from(libc::seteuid(libc::getuid()) != 0);
        }
        if has(libc::POSIX_SPAWN_SETSCHEDULER) || has(libc::POSIX_SPAWN_SETSCHEDPARAM) {
            let is_other = has(libc::POSIX_SPAWN_SETSCHEDULER);
            let policy = if is_other { given.policy } else { libc::sched_getscheduler(0) };
            let set = libc::sched_setscheduler(0, policy, &raw const given.parameter);
            result |= c_int::from(set != 0);
        }
        if has(libc::POSIX_SPAWN_SETSIGMASK) {
            pending_signals::set_mask(sigaction::first_word(&given.mask));
        }
        if result == 0 { 0 } else { errno() }
    }
}

/// Forks and executes. Gives the child's process id.
fn spawn(
    process: &'static Process,
    program: Program,
    actions: &[Action],
    attributes: *const Attributes,
) -> Result<c_int, Errno> {
    // As in glibc: no handler of the program's runs in the child.
    let (mask, programs) = signal::block_all();
    let born = fork::fork_for_spawn(process);
    if !matches!(born, Ok(ChildReport::Child(_))) {
        pending_signals::set_mask(mask);
    }
    match born? {
        ChildReport::Child(end) => {
            signal::leave_program(programs);
            let failed = child(process, program, actions, attributes);
            // The parent may have died: then no process needs the error.
            let _ = rustix::io::write(&end, &failed.to_ne_bytes());
            lifecycle::leave(process);
            exit_now(127);
        }
        ChildReport::Parent(pid, None) => Ok(pid),
        ChildReport::Parent(pid, Some(failed)) => {
            // SAFETY: waits for the child made above; its state does not matter.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Err(Errno::from_raw_os_error(failed.max(1)))
        }
    }
}

/// The child's part; comes back only with an error number.
fn child(
    process: &Process,
    program: Program,
    actions: &[Action],
    attributes: *const Attributes,
) -> c_int {
    let failed = outside(|| apply(attributes));
    if failed != 0 {
        return failed;
    }
    for action in actions {
        let failed = outside(|| act(action));
        if failed != 0 {
            return failed;
        }
    }
    let Program { file, search, arguments, environment } = program;
    if search {
        exec::exec_search(process, file, arguments, environment).raw_os_error()
    } else {
        exec::exec(process, file, arguments, environment).raw_os_error()
    }
}

/// `posix_spawn` gives its error as its value.
pub fn posix(
    process: &'static Process,
    pid: Out<c_int>,
    program: Program,
    (actions, attributes): (*const Actions, *const Attributes),
) -> Served<c_int> {
    let actions: &[Action] = if actions.is_null() {
        &[]
    } else {
        // SAFETY: the program's initialised actions in glibc's layout.
        unsafe {
            match (*actions).used {
                used if used > 0 => std::slice::from_raw_parts((*actions).list, used as usize),
                _ => &[],
            }
        }
    };
    match spawn(process, program, actions, attributes) {
        Ok(child) => {
            if !pid.is_null() {
                pid.put(child)?;
            }
            Ok(0)
        }
        Err(errno) => Ok(errno.raw_os_error()),
    }
}

/// `pidfd_spawn` (glibc 2.39) tells the child by a descriptor.
pub fn by_descriptor(
    process: &'static Process,
    pidfd: Out<c_int>,
    program: Program,
    given: (*const Actions, *const Attributes),
) -> Served<c_int> {
    let mut child = 0;
    let failed = posix(process, Out(&raw mut child), program, given)?;
    if failed != 0 {
        return Ok(failed);
    }
    cached_fd::give_back();
    // No thread has waited for it, so the number is still the child's.
    let number = libc::SYS_pidfd_open;
    let fd = crate::entry::syscall::kernel(number, [child as usize, 0, 0, 0, 0, 0]);
    if fd < 0 {
        return Ok(errno());
    }
    pidfd.put(fd as c_int)?;
    Ok(0)
}
