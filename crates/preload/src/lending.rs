//! Children that share their parent's memory until they execute something: `vfork`, and what the C
//! library spawns by (`posix_spawn`, `system`, `popen`).
//!
//! Where nothing of the volume would be open after an exec, such a child is made as it was asked
//! for. It costs no copy of page tables, and its parent no fault for each page that it goes on to
//! use. It runs with its parent's record, and its parent waits in the kernel. So what it does must
//! be right in memory that is not its own:
//!
//! - The parent has taken all locks as for a fork; the child finds them held for it. It allocates
//!   from an arena, and gives nothing back. So wherever it dies, nothing is half done. The parent
//!   puts its record back, and its frames, on which the child has come back.
//! - Calls on descriptors, signals and memory are the kernel's. An exec of a program outside is
//!   made here. Neither waits for anything.
//! - For all else it *parts*: it makes a process that goes on in its place with a copy of the
//!   memory, as a fork's child, and ends. The new process is its parent's child as it was
//!   (`CLONE_PARENT`); the parent waits for it as for a vfork's child that was forked.
//!
//! The child tells nothing by its end (its exit signal is 0) until it has executed something: the
//! kernel makes that SIGCHLD then. So one that parts leaves nothing to the program, which may wait
//! in other threads for any child. For one that ends without an exec a stand-in ends in the same
//! way (`Ended`), and is the program's child.
//!
//! Order of persistence: none, such a child never reaches the volume.

use std::arch::{asm, naked_asm};
use std::ffi::{c_int, c_long};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use ddmap::Pagers;
use door::entry::{Call, Verdict};
use os::interrupt::system_call;
use vfs::Errno;

use crate::descriptors::handover;
use crate::descriptors::open::{self, in_runs};
use crate::dispatch;
use crate::entry::heap::Arena;
use crate::entry::pending_signals::{self, OWN_MASK, bit};
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{has_one_thread, here};
use crate::entry::{Inside, Stop, attachment, cached_fd, errno, fdtable};
use crate::host::lent::Lent;
use crate::paths;
use crate::processes::exec::{self, List};
use crate::processes::{fork, init};
use crate::runtime::{guest, relocation};
use crate::signals::sigmask::{self, Mask};
use crate::signals::{sigaction, signal};
use crate::split::engine;

/// How far below the program's stack this library's frames may begin.
const FRAMES_MAX: usize = 64 << 10;
/// How far below [`make`]'s own.
const FRAMES_BEYOND: usize = 16 << 10;
/// The flags that such a child may be asked for with.
const KNOWN: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | CLEARS_HANDLERS;
const CLEARS_HANDLERS: u64 = 1 << 32;
/// The part of them that is its exit signal, which is given besides.
const SIGNAL: u64 = 0xff;

/// What a child has of its parent.
struct Lending {
    process: &'static Process,
    /// The variables that a new image gets.
    own: Vec<Vec<u8>>,
    home: u32,
    /// The parent's stack pointer, where it has made the call.
    at: usize,
    /// Whether a relative path that does not wind is outside.
    is_outside: bool,
    /// Whether the process has one thread, which waits.
    is_alone: bool,
    /// Whether it has closed or marked numbers of the volume, which the table of numbers, its
    /// parent's, still has.
    has_closed: bool,
    /// The ends of a pipe: the one that the parent reads, and the one that closes when the process
    /// that goes on in the child's place executes something or ends. The parent has the second only
    /// while all is held: no other child gets it.
    ends: Option<(OwnedFd, Option<OwnedFd>)>,
    arena: Arena,
    /// Who goes on in its place; 0: nobody.
    parted: AtomicI32,
    /// What that one may say in the parent's frame.
    frame: Option<Lent>,
}

/// Makes a child that shares the memory: 0 in the child. `None`: it is to be made otherwise.
pub fn make(process: &'static Process, (flags, exit): (u64, u64), at: usize) -> Option<Made> {
    let frame = 0_usize;
    let below = at.checked_sub((&raw const frame) as usize).filter(|below| *below < FRAMES_MAX)?;
    let asked = flags & !(KNOWN | SIGNAL) == 0 && exit == libc::SIGCHLD as u64;
    if !asked || !may_lend(process) {
        return None;
    }
    // A child that is killed on the way would leave half of it to its parent.
    relocation::finish();
    cached_fd::give_back();
    let lending = Box::into_raw(Box::new(Lending {
        process,
        own: process.environment(),
        home: handover::home(process),
        at,
        is_outside: is_directory_outside(process),
        is_alone: has_one_thread(),
        has_closed: false,
        ends: None,
        arena: Arena::new().ok()?,
        parted: AtomicI32::new(0),
        frame: None,
    }));
    let mut frames: Vec<u8> = Vec::with_capacity(below + FRAMES_BEYOND);
    let at = frames.as_mut_ptr();
    // None finds the parent with the child's record, nor is kept there.
    let mask = pending_signals::set_mask(u64::MAX);
    let made = fork::shared(process, || {
        // SAFETY: of above. Where this comes back in the parent, the child is gone.
        let lending = unsafe { &mut *lending };
        let made = lending.lend(mask, flags, at);
        let parted = lending.parted.load(Ordering::Acquire);
        (made, u32::try_from(parted).ok().filter(|parted| *parted != 0))
    });
    if made == Some(Some(Ok(0))) {
        // All of this is the parent's.
        std::mem::forget(frames);
        return Some(Ok(0));
    }
    // SAFETY: of above; the child is gone.
    let lending = unsafe { Box::from_raw(lending) };
    pending_signals::set_mask(mask);
    Some(made??.map(|pid| lending.settle(pid)))
}

/// A child, or why there is none.
pub type Made = Result<c_int, Errno>;

/// Whether a child of this process that executes something begins with nothing of the volume.
fn may_lend(process: &Process) -> bool {
    if here().is_inside() {
        return false;
    }
    let _inside = Inside::new();
    !guest::is_here()
        && !engine::is_here()
        && !Pagers::any()
        && attachment::is_wiped()
        && process.program.get().is_none()
        && !sigaction::ignores_own()
        && (!process.fs.is_attached() || process.fs.may_fork_apart())
        && init::can_begin_late(process)
}

/// Whether what lies below the working directory is outside.
fn is_directory_outside(process: &Process) -> bool {
    let cwd = process.cwd();
    let below = |prefix: &[u8]| {
        prefix.strip_prefix(&*cwd.path).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    let odd = [&b"/"[..], b"/proc", b"/dev"].iter().any(|odd| cwd.path == *odd)
        || cwd.path.starts_with(b"/proc/")
        || cwd.path.starts_with(b"/dev/");
    cwd.node.is_none() && !odd && !process.volumes().any(|seen| below(&seen.prefix))
}

impl Lending {
    /// The child, and its parent once the child is gone. Everything is held. `None`: it is to be
    /// made otherwise.
    fn lend(&mut self, mask: u64, flags: u64, frames: *mut u8) -> Option<Made> {
        if self.process.has_spare() {
            return None;
        }
        let (read, end) = fork::high_pipe().ok()?;
        self.process.set_spare(end.as_raw_fd());
        let number = read.as_raw_fd();
        self.ends = Some((read, Some(end)));
        let thread = here();
        let saved = thread.save();
        let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        thread.lent_by.store(id, Ordering::Relaxed);
        thread.lending.store(std::ptr::from_mut(self) as usize, Ordering::Relaxed);
        self.arena.begin(thread);
        // SAFETY: the frames from here to the caller's stack pointer, and room for them.
        let pid = unsafe { solera_lend(frames, self.at, libc::SYS_clone) };
        if pid == 0 {
            // The C library may have blocked all: the faults that our own code serves arrive.
            pending_signals::set_mask(mask & !(OWN_MASK | bit(libc::SIGSEGV)));
            signal::forked();
            // In the program's place: its parent's locks are not this one's to leave.
            thread.leave_all();
            raw(libc::SYS_close, [number as usize, 0, 0]);
            if flags & CLEARS_HANDLERS != 0 {
                sigaction::clear_in_kernel();
            }
            dispatch::arm_thread();
            return Some(Ok(0));
        }
        self.arena.end(thread);
        thread.restore(&saved);
        self.process.set_spare(-1);
        if let Some((_, end)) = &mut self.ends {
            *end = None;
        }
        Some(if pid < 0 { Err(Errno::from_raw_os_error(-pid as i32)) } else { Ok(pid as c_int) })
    }
}

/// `clone` of a child that shares the memory, on the caller's stack, whose frames up to `top` are
/// put aside, and put back when the parent goes on: the child comes back on them.
///
/// # Safety
///
/// There is room for the frames. The child comes back no further than to `top`, and ends, or
/// executes something.
#[unsafe(naked)]
unsafe extern "C" fn solera_lend(frames: *mut u8, top: usize, number: c_long) -> isize {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "mov r12, rdi",
        "mov r13, rsi",
        "mov rax, rdx",
        "sub r13, rsp",
        "mov rsi, rsp",
        "mov rcx, r13",
        "cld",
        "rep movsb",
        "mov edi, {flags}",
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "syscall",
        "test rax, rax",
        "jle 2f",
        "mov rsi, r12",
        "mov rdi, rsp",
        "mov rcx, r13",
        "rep movsb",
        "2:",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        flags = const libc::CLONE_VM | libc::CLONE_VFORK,
    )
}

fn raw(number: c_long, given: [usize; 3]) -> isize {
    let [a, b, c] = given;
    // SAFETY: numbers, and addresses of this library's own.
    let answer = unsafe { system_call(number, [a, b, c, 0, 0, 0]) };
    answer.map_or_else(|errno| -(errno.raw_os_error() as isize), |value| value as isize)
}

// ---- in the parent

impl Lending {
    /// The child is gone: which one the program has.
    fn settle(self, pid: c_int) -> c_int {
        let Self { ends, parted, frame, .. } = self;
        let parted = parted.into_inner();
        let mut child = pid;
        if parted != 0 {
            reap(pid);
            if let Some((read, _)) = ends {
                let _ = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut [0_u8; 1]));
            }
            frame.into_iter().for_each(Lent::take_back);
            child = parted;
        }
        Ended::find(child).and_then(|ended| ended.stand_in(child)).unwrap_or(child)
    }
}

/// Takes away a child that has ended and tells nobody.
fn reap(child: c_int) {
    while raw(libc::SYS_wait4, [child as usize, 0, libc::__WALL as usize])
        == -(libc::EINTR as isize)
    {}
}

/// How a child has ended that has executed nothing.
struct Ended {
    /// Of what it told, or of the signal.
    number: c_int,
    by_signal: bool,
}

impl Ended {
    /// `None`: it has executed something, whatever became of it since. Waits for the end of one
    /// that has not.
    fn find(child: c_int) -> Option<Self> {
        // SAFETY: all zeros is a value of this plain structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // Without an exec it is no child that SIGCHLD tells of.
        let options = (libc::WEXITED | libc::WNOWAIT | libc::__WCLONE) as usize;
        let at = (&raw mut info) as usize;
        let given = [libc::P_PID as usize, child as usize, at, options, 0, 0];
        // SAFETY: a structure of our own.
        let wait = || unsafe { system_call(libc::SYS_waitid, given) };
        rustix::io::retry_on_intr(wait).ok()?;
        // SAFETY: filled in by a wait.
        let number = unsafe { info.si_status() };
        let by_signal = match info.si_code {
            libc::CLD_EXITED => false,
            libc::CLD_KILLED | libc::CLD_DUMPED => true,
            // Who traces it is told of its exec by a stop.
            _ => return None,
        };
        Some(Self { number, by_signal })
    }

    /// A child that has ended in the same way, instead of that one. `None`: there can be none.
    fn stand_in(&self, child: c_int) -> Option<c_int> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid: isize;
        // SAFETY: as `vfork`. The child runs below what is in use of this stack, and ends.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov rdi, r9",
                "call {end}",
                "ud2",
                "2:",
                end = sym end_as,
                inlateout("rax") libc::SYS_clone as isize => pid,
                inlateout("rdi") flags as usize => _,
                inlateout("rsi") 0 => _,
                inlateout("rdx") 0 => _,
                inlateout("r10") 0 => _,
                inlateout("r8") 0 => _,
                inlateout("r9") std::ptr::from_ref(self) => _,
                clobber_abi("C"),
            );
        }
        if pid < 0 {
            return None;
        }
        reap(child);
        Some(pid as c_int)
    }
}

/// Ends a stand-in, which shares the memory.
extern "C" fn end_as(ended: &Ended) -> ! {
    let number = ended.number as usize;
    if ended.by_signal {
        let default = [0_u64; 4];
        let word = size_of::<u64>();
        // SAFETY: structures of our own, which mean no handler and no signal.
        unsafe {
            let action = [number, default.as_ptr() as usize, 0, word, 0, 0];
            let _ = system_call(libc::SYS_rt_sigaction, action);
            let mask = [libc::SIG_SETMASK as usize, default.as_ptr() as usize, 0, word, 0, 0];
            let _ = system_call(libc::SYS_rt_sigprocmask, mask);
        }
        let own = raw(libc::SYS_getpid, [0; 3]) as usize;
        raw(libc::SYS_kill, [own, number, 0]);
    }
    loop {
        raw(libc::SYS_exit_group, [number, 0, 0]);
    }
}

// ---- in the child

/// What becomes of a call of the child's.
enum Step {
    Pass,
    Answer(isize),
    /// Not in memory that is not its own.
    Part,
}

/// Answers a call of a child that shares its parent's memory; `None`: it has parted, and its call
/// is one of a process of its own.
pub fn arrived(call: &mut Call) -> Option<Verdict> {
    let at = here().lending.load(Ordering::Relaxed) as *mut Lending;
    // SAFETY: it lives until the child is gone, and is used by nobody else meanwhile.
    let lending = unsafe { &mut *at };
    let number = c_long::from(call.number());
    let answer = match lending.step(number, call.arguments()) {
        Step::Pass => return Some(Verdict::Pass),
        Step::Answer(answer) => answer,
        Step::Part => match lending.part() {
            Ok(()) => return None,
            Err(errno) => -(errno.raw_os_error() as isize),
        },
    };
    call.result = answer;
    Some(Verdict::Served)
}

impl Lending {
    fn step(&mut self, number: c_long, given: &Arguments) -> Step {
        let [first, second, third, ..] = *given;
        match number {
            libc::SYS_execve => self.execute(first, (second, third)),
            libc::SYS_rt_sigaction => act(given),
            libc::SYS_close if self.process.is_internal(first as c_int) => {
                Step::Answer(-(libc::EBADF as isize))
            }
            libc::SYS_dup2 | libc::SYS_dup3 if !self.is_kernels(second) => Step::Part,
            libc::SYS_fcntl if !copies_or_flags(second as c_int) => Step::Part,
            // It may get a number that the table has for the volume's.
            libc::SYS_dup | libc::SYS_fcntl if self.has_closed => Step::Part,
            libc::SYS_close
            | libc::SYS_dup
            | libc::SYS_dup2
            | libc::SYS_dup3
            | libc::SYS_fcntl
            | libc::SYS_write => {
                if self.is_kernels(first) {
                    Step::Pass
                } else {
                    Step::Part
                }
            }
            libc::SYS_close_range => self.close_range(first as u32, second as u32, third as u32),
            libc::SYS_open => self.open(first, given, number),
            libc::SYS_openat if first as c_int == libc::AT_FDCWD => {
                self.open(second, given, number)
            }
            libc::SYS_mmap if given[3] as c_int & libc::MAP_ANONYMOUS != 0 => Step::Pass,
            libc::SYS_rt_sigprocmask => Step::mask(given),
            libc::SYS_exit
            | libc::SYS_exit_group
            | libc::SYS_rt_sigreturn
            | libc::SYS_futex
            | libc::SYS_brk
            | libc::SYS_munmap
            | libc::SYS_mremap
            | libc::SYS_mprotect
            | libc::SYS_madvise
            | libc::SYS_getuid
            | libc::SYS_geteuid
            | libc::SYS_getgid
            | libc::SYS_getegid => Step::Pass,
            _ => Step::Part,
        }
    }

    /// Whether a number is the kernel's for the program.
    fn is_kernels(&self, fd: usize) -> bool {
        let fd = fd as c_int;
        fdtable::is_kernels(fd) && !self.process.is_internal(fd)
    }

    /// Whether a path is outside by its text.
    fn is_outside(&self, path: &[u8]) -> bool {
        match path {
            b"/dev/null" | b"/dev/zero" | b"/dev/tty" => true,
            [b'/', ..] => paths::is_elsewhere(self.process, path),
            [b'.', b'/', rest @ ..] => self.is_outside_below(rest),
            _ => self.is_outside_below(path),
        }
    }

    fn is_outside_below(&self, path: &[u8]) -> bool {
        self.is_outside && !matches!(path, [] | [b'.' | b'/', ..]) && !paths::is_winding(path)
    }

    /// A file outside. It may wait to be opened, and nobody may wait for what is held meanwhile.
    fn open(&self, path: usize, given: &Arguments, number: c_long) -> Step {
        let Ok(path) = Text(path as *const _).bytes() else { return Step::Part };
        if !self.is_alone || self.has_closed || !self.is_outside(path) {
            return Step::Part;
        }
        // SAFETY: the program's own call.
        match unsafe { system_call(number, *given) } {
            Ok(fd) => Step::Answer(fd as isize),
            // A symlink may lead to the volume.
            Err(Errno::NOENT) => Step::Part,
            Err(errno) => Step::Answer(-(errno.raw_os_error() as isize)),
        }
    }

    /// Closes, or marks, all but what is this library's own.
    fn close_range(&mut self, first: u32, last: u32, flags: u32) -> Step {
        if first > last || flags & !libc::CLOSE_RANGE_CLOEXEC != 0 {
            return Step::Part;
        }
        self.has_closed |= fdtable::all().any(|(fd, _)| (first..=last).contains(&(fd as u32)));
        let close = |first: u32, last: u32| {
            raw(libc::SYS_close_range, [first as usize, last as usize, flags as usize]) as c_int
        };
        Step::Answer(in_runs(self.process, first, last, &close) as isize)
    }

    /// Executes a program outside.
    fn execute(&self, path: usize, (arguments, environment): (usize, usize)) -> Step {
        let Ok(path) = Text(path as *const _).bytes() else { return Step::Part };
        if !self.is_outside(path) {
            return Step::Part;
        }
        loop {
            let inside = Inside::new();
            // What an exec before has left there is no longer used.
            self.arena.begin(here());
            let lists = (List(arguments as *const _), List(environment as *const _));
            let failed = exec::lent(self.process, (&self.own, self.home), path, lists);
            drop(inside);
            match failed {
                // A signal that was kept back.
                Some(Errno::INTR) => {}
                Some(Errno::NOENT) if !is_absent(path) => return Step::Part,
                Some(errno) => return Step::Answer(-(errno.raw_os_error() as isize)),
                None => return Step::Part,
            }
        }
    }

    /// Makes a process that goes on in this one's place, which ends: comes back there alone.
    fn part(&mut self) -> Result<(), Errno> {
        self.frame = Lent::new(self.at);
        let end = self.ends.as_ref().and_then(|(_, end)| end.as_ref());
        let told = end.map_or(-1, AsRawFd::as_raw_fd);
        // The parent's, whose image is left by it.
        std::mem::forget(Inside::new());
        // The kernel tells the parent before the new process runs: no death comes between.
        let flags = (libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID) as usize;
        let pid = raw(libc::SYS_clone, [flags, 0, self.parted.as_ptr() as usize]);
        let thread = here();
        if pid == 0 {
            // The arena is a copy, too: what is there stays.
            thread.arena[1].store(0, Ordering::Relaxed);
            thread.lending.store(0, Ordering::Relaxed);
            thread.lent_by.store(0, Ordering::Relaxed);
            fork::goes_on_apart(self.process, told);
            if self.has_closed {
                open::forget_closed(self.process);
            }
            self.frame.take().into_iter().for_each(Lent::give);
            return Ok(());
        }
        if pid > 0 {
            loop {
                raw(libc::SYS_exit_group, [0; 3]);
            }
        }
        thread.depth.store(0, Ordering::Relaxed);
        self.frame = None;
        Err(Errno::from_raw_os_error(-pid as i32))
    }
}

impl Step {
    /// A change of the mask: of the child's, and of the record, which is put back.
    fn mask(given: &Arguments) -> Self {
        let [how, new, old, size, ..] = *given;
        let _inside = Inside::new();
        let kernel = |new: Out<Mask>, old: Out<Mask>| {
            let given = [how, new.0 as usize, old.0 as usize, size, 0, 0];
            syscall::waiting(libc::SYS_rt_sigprocmask, given) as c_int
        };
        match sigmask::change(how as c_int, Out(new as *mut _), Out(old as *mut _), size, kernel) {
            Ok(0) => Self::Answer(0),
            Ok(_) => Self::Answer(-(errno() as isize)),
            Err(Stop::Errno(errno)) => Self::Answer(-(errno.raw_os_error() as isize)),
            Err(_) => Self::Pass,
        }
    }
}

/// An action. Those that this library needs stay its own: an exec makes them the default.
fn act(given: &Arguments) -> Step {
    let [signal, new, old, ..] = *given;
    let is_own = [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS].contains(&(signal as c_int));
    if !is_own || new == 0 {
        return Step::Pass;
    }
    match Out(new as *mut usize).value() {
        Ok(libc::SIG_DFL) if old == 0 => Step::Answer(0),
        _ => Step::Part,
    }
}

/// Whether a command of `fcntl` copies a number, or is about flags.
fn copies_or_flags(command: c_int) -> bool {
    const COMMANDS: [c_int; 6] = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ];
    COMMANDS.contains(&command)
}

/// Whether a path leads nowhere without a symlink on its way.
fn is_absent(path: &[u8]) -> bool {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    let _inside = Inside::new();
    let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve).err() == Some(Errno::NOENT)
}
