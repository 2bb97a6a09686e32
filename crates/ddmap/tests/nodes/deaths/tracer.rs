//! A thread of another process that is run by single instructions. A *point* is an instruction
//! before which a death makes a difference to others: a locked one (words and rooms change by
//! such), a flush, a fence, a system call. So the thread is stopped before each step of a move.
//!
//! A step takes 3 to 20 us. So behind a system call, or a signal, so many steps are taken; then it
//! runs at full speed to the next one: in between it computes sums and copies.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Of an instruction that is come to again and again, so many times are points: of a loop that
/// waits, or a batch.
const TIMES: u32 = 3;

/// Steps behind a system call.
const STEPS: u32 = 3000;
/// So long it is traced: one that waits for good is ended, and so the wait for it.
const LATE: Duration = Duration::from_mins(10);
/// What marks a stop at a system call.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// The thread, stopped.
pub struct Traced {
    process: i32,
    thread: i32,
    memory: File,
    /// What an address has: whether it is a point, and how often it was come to.
    known: HashMap<u64, (Kind, u32)>,
    signal: i32,
    /// Steps that are left until it runs at full speed.
    left: u32,
    /// It is within a system call.
    in_call: bool,
    /// Where this thread could run before: it is on one processor with the other, since each step
    /// hands over from one to the other and back.
    before: CpuSet,
    /// Who ends it when it is late; until this is gone.
    _guard: Sender<()>,
}

/// Ends a process that is traced for too long.
fn guard(process: i32) -> Sender<()> {
    let (guarded, over) = channel();
    std::thread::spawn(move || {
        if over.recv_timeout(LATE) == Err(RecvTimeoutError::Timeout) {
            println!("process {process} has not come to its next point in {LATE:?}: it is killed");
            // SAFETY: a child of this process that was not waited for; its number is its own.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    });
    guarded
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Point,
    Call,
}

/// What an instruction is, by its first bytes.
fn kind_of(bytes: &[u8]) -> Kind {
    let is_prefix = |byte: &u8| matches!(byte, 0x66 | 0xF2 | 0xF3 | 0xF0 | 0x2E | 0x3E | 0x64);
    let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
    let locked = bytes[..prefixes].contains(&0xF0);
    let rest = &bytes[prefixes..];
    let rex = rest.first().is_some_and(|byte| (0x40..0x50).contains(byte));
    match rest[usize::from(rex)..] {
        _ if locked => Kind::Point,
        // An exchange with memory locks it.
        [0x86 | 0x87, of, ..] if of < 0xC0 => Kind::Point,
        // Fences of stores and of all, and flushes.
        [0x0F, 0xAE, of, ..] if matches!(of >> 3 & 7, 6 | 7) => Kind::Point,
        [0x0F, 0x05, ..] => Kind::Call,
        _ => Kind::None,
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Traced {
    /// Stops a thread of a process that is a child of this one.
    pub fn seize(process: i32, thread: i32) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{process}/mem"))?;
        let (known, before) = (HashMap::new(), sched_getaffinity(None)?);
        let (signal, left, in_call) = (0, STEPS, false);
        let mut traced = Self {
            process,
            thread,
            memory,
            known,
            signal,
            left,
            in_call,
            before,
            _guard: guard(process),
        };
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        traced.ask(libc::PTRACE_SEIZE, 0, options as usize)?;
        traced.ask(libc::PTRACE_INTERRUPT, 0, 0)?;
        traced.wait()?;
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here)?;
        sched_setaffinity(Pid::from_raw(thread), &here)?;
        Ok(traced)
    }

    fn ask(&self, request: libc::c_uint, address: usize, data: usize) -> io::Result<i64> {
        // SAFETY: requests that take and give numbers, not addresses of this process.
        check(unsafe { libc::ptrace(request, self.thread, address, data) })
    }

    /// Waits until it has stopped: whether it is at a system call.
    fn wait(&mut self) -> io::Result<bool> {
        let mut status = 0;
        // SAFETY: `status` lives.
        check(unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) }.into())?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other(format!("the thread has ended: {status:#x}")));
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_own = event != 0 || matches!(signal, libc::SIGTRAP | AT_CALL);
        self.signal = if is_own { 0 } else { signal };
        Ok(event == 0 && signal == AT_CALL)
    }

    fn register(&self, offset: usize) -> io::Result<u64> {
        // SAFETY: the C library gives the word as the result, and an error in `errno`.
        let value = unsafe {
            *libc::__errno_location() = 0;
            libc::ptrace(libc::PTRACE_PEEKUSER, self.thread, offset, 0)
        };
        let errno = io::Error::last_os_error();
        if value == -1 && errno.raw_os_error() != Some(0) { Err(errno) } else { Ok(value as u64) }
    }

    /// What it is before, and whether that is a point.
    fn is_at_point(&mut self) -> io::Result<(Kind, bool)> {
        let at = self.register(offset_of!(libc::user_regs_struct, rip))?;
        // Within a call the instruction is behind it.
        let at = if self.in_call { at - 2 } else { at };
        if !self.known.contains_key(&at) {
            let mut bytes = [0; 16];
            let read = self.memory.read_at(&mut bytes, at)?;
            self.known.insert(at, (kind_of(&bytes[..read]), 0));
        }
        let Some((kind, times)) = self.known.get_mut(&at) else { return Ok((Kind::None, false)) };
        if *kind == Kind::None {
            return Ok((Kind::None, false));
        }
        *times += 1;
        let (kind, times) = (*kind, *times);
        let registers = offset_of!(libc::user_regs_struct, rax);
        let number =
            if self.in_call { offset_of!(libc::user_regs_struct, orig_rax) } else { registers };
        let waits = kind == Kind::Call && self.register(number)? == libc::SYS_sched_yield as u64;
        Ok((kind, times <= TIMES && !waits))
    }

    /// Goes to its next point, which it has not passed: `false`, if it is `over` before.
    pub fn run_to_point(&mut self, over: impl Fn() -> bool) -> io::Result<bool> {
        while !over() {
            let steps = self.left > 0 && !self.in_call;
            let how = if steps { libc::PTRACE_SINGLESTEP } else { libc::PTRACE_SYSCALL };
            self.ask(how, 0, self.signal as usize)?;
            let at_call = self.wait()?;
            self.in_call ^= at_call;
            self.left -= u32::from(steps);
            if self.signal != 0 || at_call && !self.in_call {
                self.left = STEPS;
            } else if self.in_call || steps {
                let (kind, counts) = self.is_at_point()?;
                if kind == Kind::Call {
                    self.left = STEPS;
                }
                if counts {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Lets it run until it is `over`: how often it has made each system call.
    pub fn count_calls(&mut self, over: impl Fn() -> bool) -> io::Result<BTreeMap<i64, u64>> {
        let mut calls = BTreeMap::new();
        // It may be in one now, of which the end is seen.
        while !over() || self.in_call {
            self.ask(libc::PTRACE_SYSCALL, 0, self.signal as usize)?;
            if self.wait()? {
                self.in_call ^= true;
                if self.in_call {
                    let number = self.register(offset_of!(libc::user_regs_struct, orig_rax))?;
                    *calls.entry(number as i64).or_default() += 1;
                }
            }
        }
        Ok(calls)
    }

    /// What it has passed does not count from here on.
    pub fn count_anew(&mut self) {
        self.known.values_mut().for_each(|known| known.1 = 0);
    }

    /// Ends its process where it stands.
    pub fn kill(self) {
        // SAFETY: a child of this process that was not waited for; its number is its own.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.thread, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Its process goes on, if it was not killed: else it is gone.
        let _ = self.ask(libc::PTRACE_DETACH, 0, 0);
        // As it was; it is a matter of time alone.
        let _ = sched_setaffinity(None, &self.before);
        let _ = sched_setaffinity(Pid::from_raw(self.thread), &self.before);
    }
}
