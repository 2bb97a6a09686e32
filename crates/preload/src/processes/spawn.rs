//! `posix_spawn`, `posix_spawnp`, `popen`, `pclose`, `system`: glibc forks and executes inside
//! itself, so all of it is done here, with our `fork` and `exec`.
//!
//! The child tells an error through a close-on-exec pipe at high numbers, out of the way of the
//! file actions. Those are read from glibc's own structure, unchanged since 2.29.

use std::ffi::{CStr, c_char, c_int, c_short};
use std::os::fd::AsRawFd;

use libc::{FILE, posix_spawnattr_t, sigset_t};
use rustix::pipe::PipeFlags;
use vfs::Errno;

use crate::entry::cached_fd;
use crate::entry::lock::{Guard, Lock};
use crate::entry::pending_signals;
use crate::entry::pointers::Out;
use crate::entry::process::Process;
use crate::entry::{Real, Served, Stop, errno, outside};
use crate::glibc::stdio;
use crate::processes::exec::{self, List};
use crate::processes::fork::{self, ChildReport};
use crate::processes::lifecycle::{self, exit_now};
use crate::signals::signal;

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

pub type Attributes = *const posix_spawnattr_t;

/// In the child: one file action by the interposed calls. Gives 0 or an error number.
fn act(action: &Action) -> c_int {
    // SAFETY: the calls that the program asked for, with its arguments.
    let result = unsafe {
        match action.tag {
            CLOSE => {
                // Closing what is not open is no error.
                libc::close(action.first);
                0
            }
            DUP2 if action.first == action.second => {
                let flags = libc::fcntl(action.first, libc::F_GETFD);
                if flags < 0 {
                    flags
                } else {
                    libc::fcntl(action.first, libc::F_SETFD, flags & !libc::FD_CLOEXEC)
                }
            }
            DUP2 => libc::dup2(action.first, action.second),
            OPEN => {
                let new = libc::open(action.path, action.flags, action.mode);
                if new >= 0 && new != action.first {
                    let moved = libc::dup2(new, action.first);
                    libc::close(new);
                    moved
                } else {
                    new
                }
            }
            // The union's text stands in the place of the first two numbers.
            CHDIR => {
                libc::chdir((&raw const action.first).cast::<*const c_char>().read_unaligned())
            }
            FCHDIR => libc::fchdir(action.first),
            CLOSE_FROM => {
                libc::close_range(action.first as u32, u32::MAX, 0);
                0
            }
            TERMINAL => libc::tcsetpgrp(action.first, libc::getpgrp()),
            _ => return libc::EINVAL,
        }
    };
    if result < 0 { errno() } else { 0 }
}

/// In the child: the attributes. Gives 0 or an error number.
fn apply(attributes: Attributes) -> c_int {
    if attributes.is_null() {
        return 0;
    }
    // SAFETY: the program's initialised attributes, read by glibc's functions.
    unsafe {
        let mut flags: c_short = 0;
        libc::posix_spawnattr_getflags(attributes, &raw mut flags);
        let flags = c_int::from(flags);
        let has = |bit: c_int| flags & bit != 0;
        if has(libc::POSIX_SPAWN_SETSIGDEF) {
            let mut set: sigset_t = std::mem::zeroed();
            libc::posix_spawnattr_getsigdefault(attributes, &raw mut set);
            for signal in 1..=libc::SIGRTMAX() {
                if libc::sigismember(&raw const set, signal) == 1 {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
        let mut result = 0;
        if has(c_int::from(libc::POSIX_SPAWN_SETSID)) {
            result |= c_int::from(libc::setsid() < 0);
        }
        if has(libc::POSIX_SPAWN_SETPGROUP) {
            let mut group = 0;
            libc::posix_spawnattr_getpgroup(attributes, &raw mut group);
            result |= c_int::from(libc::setpgid(0, group) != 0);
        }
        if has(libc::POSIX_SPAWN_RESETIDS) {
            result |= c_int::from(libc::setegid(libc::getgid()) != 0);
            result |= c_int::from(libc::seteuid(libc::getuid()) != 0);
        }
        if has(libc::POSIX_SPAWN_SETSCHEDULER) || has(libc::POSIX_SPAWN_SETSCHEDPARAM) {
            let mut parameter: libc::sched_param = std::mem::zeroed();
            let mut policy = libc::sched_getscheduler(0);
            libc::posix_spawnattr_getschedparam(attributes, &raw mut parameter);
            if has(libc::POSIX_SPAWN_SETSCHEDULER) {
                libc::posix_spawnattr_getschedpolicy(attributes, &raw mut policy);
            }
            let set = libc::sched_setscheduler(0, policy, &raw const parameter);
            result |= c_int::from(set != 0);
        }
        if has(libc::POSIX_SPAWN_SETSIGMASK) {
            let mut set: sigset_t = std::mem::zeroed();
            libc::posix_spawnattr_getsigmask(attributes, &raw mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        }
        if result == 0 { 0 } else { errno() }
    }
}

/// Forks and executes. Gives the child's process id.
fn spawn(
    process: &Process,
    program: Program,
    actions: &[Action],
    attributes: Attributes,
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
fn child(process: &Process, program: Program, actions: &[Action], attributes: Attributes) -> c_int {
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
    process: &Process,
    pid: Out<c_int>,
    program: Program,
    (actions, attributes): (*const Actions, Attributes),
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

/// A stream of `popen`, its number, and the process behind it.
pub struct Child {
    stream: usize,
    fd: c_int,
    pid: c_int,
}

/// All of them.
pub type Children = Vec<Child>;

static CHILDREN: Lock<Children> = Lock::new(Vec::new());

/// The streams of `popen`, kept as they are until dropped.
pub fn children() -> Guard<'static, Children> {
    CHILDREN.lock()
}

/// Whether no thread uses them.
pub fn children_are_free() -> bool {
    CHILDREN.try_lock().is_some()
}

impl Action {
    fn new(tag: c_int, first: c_int, second: c_int) -> Self {
        Self { tag, padding: 0, first, second, path: std::ptr::null(), flags: 0, mode: 0 }
    }
}

/// `pidfd_spawn` (glibc 2.39) tells the child by a descriptor.
pub fn by_descriptor(
    process: &Process,
    pidfd: Out<c_int>,
    program: Program,
    given: (*const Actions, Attributes),
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

pub fn open_pipe(process: &Process, command: *const c_char, mode: &[u8]) -> Served<*mut FILE> {
    let reads = match mode.first() {
        Some(b'r') => true,
        Some(b'w') => false,
        _ => return Err(Stop::Errno(Errno::INVAL)),
    };
    cached_fd::give_back();
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (ours, theirs, number) = if reads { (read, write, 1) } else { (write, read, 0) };
    // A command inherits no other command's pipe: that one would never see its end.
    let mut actions: Vec<Action> =
        children().iter().map(|child| Action::new(CLOSE, child.fd, 0)).collect();
    actions.push(Action::new(DUP2, theirs.as_raw_fd(), number));
    let arguments = lifecycle::shell(command);
    let program = Program {
        file: b"/bin/sh",
        search: false,
        arguments: List(arguments.as_ptr()),
        environment: List::environment(),
    };
    let pid = spawn(process, program, &actions, std::ptr::null())?;
    if !mode.contains(&b'e') {
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::empty())?;
    }
    let fd = std::os::fd::IntoRawFd::into_raw_fd(ours);
    let plain: &CStr = if reads { c"r" } else { c"w" };
    let stream = stdio::ordinary(fd, plain);
    children().push(Child { stream: stream as usize, fd, pid });
    Ok(stream)
}

/// The C library's: a thread may be cancelled in here.
fn wait_outside(pid: c_int, status: *mut c_int) -> c_int {
    static REAL: Real = Real::new("waitpid\0");
    type Function = unsafe extern "C-unwind" fn(c_int, *mut c_int, c_int) -> c_int;
    let real = REAL.address();
    // SAFETY: the C library's function of this name; handlers of the program's may run meanwhile.
    outside(|| unsafe { std::mem::transmute::<usize, Function>(real)(pid, status, 0) })
}

fn wait_for(pid: c_int) -> Result<c_int, Errno> {
    let mut status = 0;
    loop {
        if wait_outside(pid, &raw mut status) >= 0 {
            return Ok(status);
        }
        if errno() != libc::EINTR {
            return Err(Errno::from_raw_os_error(errno()));
        }
    }
}

/// `pclose`.
pub fn close_pipe(stream: *mut FILE) -> Served<c_int> {
    let mut children = children();
    let Some(at) = children.iter().position(|child| child.stream == stream as usize) else {
        return Err(Stop::Kernel);
    };
    let Child { pid, .. } = children.swap_remove(at);
    drop(children);
    // SAFETY: the program gave the stream up.
    outside(|| unsafe { libc::fclose(stream) });
    Ok(wait_for(pid)?)
}

/// `system`: the parent ignores interrupts and keeps SIGCHLD back until the command has ended.
pub fn command(process: &Process, text: *const c_char) -> Served<c_int> {
    if text.is_null() {
        return Ok(1);
    }
    // SAFETY: signal calls on structures of our own, restored below. The mask and the actions are
    // the program's only outside.
    let (before, attributes, interrupt, quit) = outside(|| unsafe {
        let mut before: sigset_t = std::mem::zeroed();
        let mut block: sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut block, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const block, &raw mut before);
        let mut ignore: libc::sigaction = std::mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        let mut interrupt: libc::sigaction = std::mem::zeroed();
        let mut quit: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGINT, &raw const ignore, &raw mut interrupt);
        libc::sigaction(libc::SIGQUIT, &raw const ignore, &raw mut quit);
        let mut attributes: posix_spawnattr_t = std::mem::zeroed();
        libc::posix_spawnattr_init(&raw mut attributes);
        let mut default: sigset_t = std::mem::zeroed();
        for (signal, old) in [(libc::SIGINT, &interrupt), (libc::SIGQUIT, &quit)] {
            if old.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&raw mut default, signal);
            }
        }
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const default);
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const before);
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        libc::posix_spawnattr_setflags(&raw mut attributes, flags as c_short);
        (before, attributes, interrupt, quit)
    });
    let arguments = lifecycle::shell(text);
    let program = Program {
        file: b"/bin/sh",
        search: false,
        arguments: List(arguments.as_ptr()),
        environment: List::environment(),
    };
    let spawned = spawn(process, program, &[], &raw const attributes);
    let status = match spawned {
        Ok(pid) => wait_for(pid),
        // As if the shell had said that it could not run.
        Err(_) => Ok(127 << 8),
    };
    // SAFETY: puts back what was there.
    outside(|| unsafe {
        libc::sigaction(libc::SIGINT, &raw const interrupt, std::ptr::null_mut());
        libc::sigaction(libc::SIGQUIT, &raw const quit, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    });
    Ok(status?)
}
