//! One thread of a traced program, brought to any instruction of a call, while its others wait.
//!
//! The program says what it does at marks: `int3`, with the address of a text in `rax`. All calls
//! come from the thread that started it, as `ptrace` wants.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long the others are given while the thread is kept where it is: it may hold what they want.
const COURTESY: Duration = Duration::from_millis(200);
/// How long a thread sleeps in the kernel until it is said to wait there.
const NAP: Duration = Duration::from_millis(1);
/// `si_code` of a trap by `int3`.
const BY_INT3: c_int = 0x80;

/// The addresses of the instructions of a call, in order.
#[derive(Default)]
pub struct Way {
    pub addresses: Vec<u64>,
    /// For each, one up to it from which it is stepped to.
    starts: Vec<Start>,
}

/// An instruction that is run to: the first ones of a way, or one whose address is met so often.
#[derive(Clone, Copy)]
struct Start {
    at: usize,
    times: usize,
}

/// To stop once more takes as long as so many steps.
const STOP_STEPS: usize = 2;

impl Way {
    pub fn new(addresses: Vec<u64>) -> Self {
        let mut met = HashMap::new();
        let mut start = Start { at: 0, times: 0 };
        let mut before = None;
        let each = addresses.iter().enumerate();
        let starts = each.map(|(at, &address)| {
            // One that repeats itself is stepped through, but met once.
            if before.replace(address) != Some(address) {
                let times = met.entry(address).or_insert(0);
                *times += 1;
                // Which of the two takes less, for this one and all behind it.
                if *times * STOP_STEPS + start.at < start.times * STOP_STEPS + at {
                    start = Start { at, times: *times };
                }
            }
            start
        });
        let starts = starts.collect();
        Self { addresses, starts }
    }
}

/// What a thread stopped for.
#[derive(Debug)]
pub enum Stop {
    Mark(String),
    Trap,
    Signal(c_int),
    Other,
    /// The whole program, if it is the first thread.
    Ended(c_int),
}

/// Where the thread was brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    Instruction,
    /// It waits in the kernel.
    Waits,
    /// Its call was over before that.
    Returned,
}

pub struct Program {
    input: Option<ChildStdin>,
    main: c_int,
    memory: File,
    /// The thread that is stepped.
    pub thread: c_int,
    /// It is stopped.
    held: bool,
    /// Other threads go on while this one is in a system call, which may have begun them.
    pub follows_threads: bool,
    /// Another thread that stands at a mark.
    marked: Option<(c_int, String)>,
    /// Where its instructions were, from the mark on.
    pub path: Vec<u64>,
    /// Where this thread ran before: with all of the program it keeps to one processor, since each
    /// step hands over to the other and back, which costs several times as much between two.
    before: CpuSet,
}

fn ask(request: u32, thread: c_int, data: usize) -> Result<(), String> {
    // SAFETY: no memory of this process is written by the requests that come here.
    let result = unsafe { libc::ptrace(request, thread, 0, data) };
    if result >= 0 {
        return Ok(());
    }
    Err(format!("ptrace {request}: {}", std::io::Error::last_os_error()))
}

fn registers(thread: c_int) -> Result<libc::user_regs_struct, String> {
    // SAFETY: zeros are a value, and the kernel fills exactly this structure.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let at = (&raw mut registers).cast::<c_void>();
        if libc::ptrace(libc::PTRACE_GETREGS, thread, 0, at) < 0 {
            return Err(format!("no registers: {}", std::io::Error::last_os_error()));
        }
        Ok(registers)
    }
}

/// What a stepped thread has put aside of its flags (`pushf`) says that it is stepped; it is not
/// any more.
fn steps_no_more(thread: c_int) -> Result<(), String> {
    const TRAP_FLAG: u64 = 1 << 8;
    let mut registers = registers(thread)?;
    if registers.eflags & TRAP_FLAG == 0 {
        return Ok(());
    }
    registers.eflags &= !TRAP_FLAG;
    // SAFETY: the kernel reads exactly this structure.
    let set = unsafe {
        let at = (&raw mut registers).cast::<c_void>();
        libc::ptrace(libc::PTRACE_SETREGS, thread, 0, at)
    };
    if set < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(()) }
}

fn at_mark(thread: c_int) -> bool {
    // SAFETY: as above.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let at = (&raw mut info).cast::<c_void>();
        libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, at) >= 0 && info.si_code == BY_INT3
    }
}

impl Program {
    /// Starts it, at the same addresses each time.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let prepare = || {
            // SAFETY: system calls without memory.
            let ready = unsafe {
                libc::personality(libc::ADDR_NO_RANDOMIZE as u64) >= 0
                    && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) >= 0
            };
            if ready { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        let before = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).map_err(|error| error.to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: async-signal-safe calls only.
        let mut child = unsafe { command.pre_exec(prepare) }.spawn().map_err(|e| e.to_string())?;
        let main = child.id() as c_int;
        let mut status = 0;
        // SAFETY: waits for the stop of the exec.
        unsafe { libc::waitpid(main, &raw mut status, libc::__WALL) };
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
        ask(libc::PTRACE_SETOPTIONS, main, options as usize)?;
        let memory = File::open(format!("/proc/{main}/mem")).map_err(|e| e.to_string())?;
        let input = child.stdin.take();
        ask(libc::PTRACE_CONT, main, 0)?;
        Ok(Self {
            input,
            main,
            memory,
            thread: 0,
            held: false,
            follows_threads: false,
            marked: None,
            path: Vec::new(),
            before,
        })
    }

    /// Where this file is mapped.
    pub fn mapped(&self, file: &str) -> Vec<Range<u64>> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.main));
        let range = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let hex = |word| u64::from_str_radix(word, 16).ok();
            Some(hex(from)?..hex(to)?)
        };
        let maps = maps.unwrap_or_default();
        maps.lines().filter(|line| line.ends_with(file)).filter_map(range).collect()
    }

    /// Goes on with the thread that the one that is held makes, which has not begun yet.
    pub fn follow_new(&mut self) -> Result<(), String> {
        let known = [self.main, self.thread];
        self.let_go()?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let Some((found, stop)) = self.look(-1, libc::WNOHANG)? else {
                std::thread::sleep(Duration::from_micros(10));
                continue;
            };
            let signal = match stop {
                Stop::Other if !known.contains(&found) => {
                    (self.thread, self.held) = (found, true);
                    return Ok(());
                }
                Stop::Mark(text) => return Err(text),
                // One of before.
                Stop::Ended(_) => continue,
                Stop::Signal(signal) => signal,
                _ => 0,
            };
            ask(libc::PTRACE_CONT, found, signal as usize)?;
        }
        Err(self.hang("before a thread"))
    }

    /// Sends the thread a signal, which it finds before its next instruction.
    pub fn signal(&self, signal: c_int) -> Result<(), String> {
        // SAFETY: no memory is given.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, self.main, self.thread, signal) };
        if sent == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
    }

    /// Gives a command.
    pub fn tell(&mut self, command: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("no input")?;
        input.write_all(command.as_bytes()).map_err(|error| error.to_string())
    }

    fn text(&self, at: u64) -> String {
        let mut bytes = [0; 400];
        let length = self.memory.read_at(&mut bytes, at).unwrap_or(0);
        let end = bytes[..length].iter().position(|&byte| byte == 0).unwrap_or(length);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Whether this thread, or (-1) any, has stopped.
    fn look(&self, thread: c_int, flags: c_int) -> Result<Option<(c_int, Stop)>, String> {
        let mut status = 0;
        let flags = flags | libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: fills `status`. Other threads' children are not ours.
        let found = unsafe { libc::waitpid(thread, &raw mut status, flags) };
        if found == 0 {
            return Ok(None);
        }
        if found < 0 {
            return Err("the program is gone".into());
        }
        let stop = if !libc::WIFSTOPPED(status) {
            Stop::Ended(status)
        } else if status >> 16 != 0 || libc::WSTOPSIG(status) == libc::SIGSTOP {
            Stop::Other
        } else if libc::WSTOPSIG(status) == libc::SIGTRAP {
            if at_mark(found) { Stop::Mark(self.text(registers(found)?.rax)) } else { Stop::Trap }
        } else {
            Stop::Signal(libc::WSTOPSIG(status))
        };
        Ok(Some((found, stop)))
    }

    /// Lets all but a thread that is held run, until one comes to a mark that `ends`; it stays
    /// there. `None`: not so long.
    fn run(
        &mut self,
        patience: Duration,
        mut ends: impl FnMut(c_int, &str) -> bool,
    ) -> Result<Option<(c_int, String)>, String> {
        let begun = Instant::now();
        let mut marked = self.marked.take();
        loop {
            let met = marked.take().map(|(found, text)| (found, Stop::Mark(text)));
            let met = met.map_or_else(|| self.look(-1, libc::WNOHANG), |met| Ok(Some(met)));
            let Some((found, stop)) = met? else {
                if begun.elapsed() > patience {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_micros(10));
                continue;
            };
            let signal = match stop {
                Stop::Mark(text) if ends(found, &text) => return Ok(Some((found, text))),
                Stop::Ended(status) if found == self.main => {
                    return Err(format!("the program ended, status {status:#x}"));
                }
                Stop::Ended(_) => continue,
                Stop::Signal(signal) => signal,
                Stop::Trap => {
                    steps_no_more(found)?;
                    0
                }
                _ => 0,
            };
            ask(libc::PTRACE_CONT, found, signal as usize)?;
        }
    }

    /// Runs until the thread comes to the mark before its call, which it does by this command.
    pub fn begin(&mut self, command: &str) -> Result<(), String> {
        self.tell(command)?;
        let Some((thread, text)) =
            self.run(PATIENCE, |_, text| text == "victim" || text.starts_with("outcome"))?
        else {
            return Err(self.hang("before the call"));
        };
        if text != "victim" {
            return Err(text);
        }
        (self.thread, self.held) = (thread, true);
        self.path.clear();
        // One that it has not come to last time.
        self.break_at(None)
    }

    /// Brings the thread to the instruction of this number of its way, as it was last: it runs to
    /// one shortly before, by one of the processor's breakpoints, which no child inherits.
    pub fn go_to(&mut self, number: usize, way: &Way) -> Result<Reached, String> {
        let start = way.starts.get(number).copied().unwrap_or(Start { at: 0, times: 0 });
        if start.times == 0 || self.break_at(way.addresses.get(start.at).copied()).is_err() {
            return self.step_to(number);
        }
        for _ in 0..start.times {
            ask(libc::PTRACE_CONT, self.thread, 0)?;
            match self.look_into_call(libc::PTRACE_CONT)? {
                None => {
                    self.held = false;
                    return Ok(Reached::Waits);
                }
                Some(Stop::Trap) => {}
                Some(stop) => return self.is_behind(&stop),
            }
        }
        self.break_at(None)?;
        self.step_to(number - start.at)
    }

    /// Has the thread stop before it executes what stands at this address.
    fn break_at(&self, address: Option<u64>) -> Result<(), String> {
        const REGISTERS: usize = std::mem::offset_of!(libc::user, u_debugreg);
        let poke = |register: usize, value: u64| {
            let at = REGISTERS + register * size_of::<u64>();
            // SAFETY: no memory of this process is written.
            let result = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.thread, at, value) };
            if result < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(()) }
        };
        poke(7, 0)?;
        let Some(address) = address else { return Ok(()) };
        poke(0, address)?;
        // The first one, in this thread, of an instruction.
        poke(7, 1)
    }

    /// Where the thread is held.
    pub fn address(&self) -> Option<u64> {
        let registers = self.held.then(|| registers(self.thread).ok())??;
        Some(registers.rip)
    }

    /// Brings the thread so many instructions further.
    pub fn step_to(&mut self, number: usize) -> Result<Reached, String> {
        for _ in 0..number {
            let at = registers(self.thread)?.rip;
            self.path.push(at);
            let mut code = [0; 2];
            let length = self.memory.read_at(&mut code, at).unwrap_or(0);
            ask(libc::PTRACE_SINGLESTEP, self.thread, 0)?;
            let stop = if length == 2 && code == [0x0f, 0x05] {
                self.look_into_call(libc::PTRACE_SINGLESTEP)?
            } else {
                self.look(self.thread, 0)?.map(|(_, stop)| stop)
            };
            match stop {
                None => {
                    self.held = false;
                    return Ok(Reached::Waits);
                }
                Some(Stop::Trap) => {}
                Some(stop) => return self.is_behind(&stop),
            }
        }
        Ok(Reached::Instruction)
    }

    /// Its call is over: it is at its mark, or has ended.
    fn is_behind(&mut self, stop: &Stop) -> Result<Reached, String> {
        match stop {
            Stop::Mark(_) => Ok(Reached::Returned),
            Stop::Ended(_) if self.thread != self.main => {
                self.held = false;
                Ok(Reached::Returned)
            }
            stop => Err(format!("while it is stepped: {stop:?}")),
        }
    }

    /// The thread is in a system call. `None`: it waits in there. Where the kernel tells the
    /// library of the call instead (SIGSYS), it goes on into the handler in this way.
    fn look_into_call(&mut self, way: u32) -> Result<Option<Stop>, String> {
        let mut asleep: Option<Instant> = None;
        loop {
            let whom = if self.follows_threads { -1 } else { self.thread };
            match self.look(whom, libc::WNOHANG)? {
                Some((found, stop)) if found == self.thread => match stop {
                    Stop::Signal(libc::SIGSYS) => ask(way, found, libc::SIGSYS as usize)?,
                    // It has made a thread.
                    Stop::Other => ask(way, found, 0)?,
                    stop => return Ok(Some(stop)),
                },
                Some((found, stop)) => match stop {
                    // It has seen the end of this one before we have.
                    Stop::Mark(text) => {
                        self.marked = Some((found, text));
                        return Ok(Some(Stop::Ended(0)));
                    }
                    Stop::Signal(signal) => ask(libc::PTRACE_CONT, found, signal as usize)?,
                    Stop::Ended(_) => {}
                    _ => ask(libc::PTRACE_CONT, found, 0)?,
                },
                None => {}
            }
            if !self.sleeps(self.thread) {
                asleep = None;
                std::thread::yield_now();
            } else if asleep.get_or_insert_with(Instant::now).elapsed() > NAP {
                return Ok(None);
            } else {
                std::thread::sleep(NAP / 4);
            }
        }
    }

    fn sleeps(&self, thread: c_int) -> bool {
        let path = format!("/proc/{}/task/{thread}/stat", self.main);
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// Lets the thread run on, if it is held.
    fn let_go(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.held) {
            ask(libc::PTRACE_CONT, self.thread, 0)?;
        }
        Ok(())
    }

    /// Has the first thread act on the one that is stepped, and mark this, while that one stays
    /// where it is, unless it holds what the first one wants, or is itself waited for.
    pub fn act(&mut self, command: &str, mark: &str, is_waited_for: bool) -> Result<(), String> {
        let main = self.main;
        self.tell(command)?;
        let patience = if is_waited_for { 10 * NAP } else { COURTESY };
        let mut done = self.run(patience, |thread, text| thread == main && text == mark)?;
        if done.is_none() {
            self.let_go()?;
            done = self.run(PATIENCE, |thread, text| thread == main && text == mark)?;
        }
        if done.is_none() {
            return Err(self.hang(mark));
        }
        ask(libc::PTRACE_CONT, main, 0)
    }

    /// Has the first thread do something while the one that is stepped stays where it is.
    pub fn act_beside(&mut self, command: &str, mark: &str) -> Result<(), String> {
        let main = self.main;
        self.tell(command)?;
        let Some((_, text)) = self.run(PATIENCE, |thread, _| thread == main)? else {
            return Err(self.hang(mark));
        };
        ask(libc::PTRACE_CONT, main, 0)?;
        if text == mark { Ok(()) } else { Err(text) }
    }

    /// Lets the thread run until it waits, or its call is over, where it is held.
    pub fn settle(&mut self) -> Result<(), String> {
        self.let_go()?;
        let begun = Instant::now();
        let thread = self.thread;
        while begun.elapsed() < PATIENCE {
            if self.run(2 * NAP, |found, text| found == thread && text == "returned")?.is_some() {
                self.held = true;
                return Ok(());
            }
            if self.sleeps(thread) {
                return Ok(());
            }
        }
        Err(self.hang("settling"))
    }

    /// Lets all run, until the first thread tells what became of the other.
    pub fn outcome(&mut self) -> Result<String, String> {
        self.let_go()?;
        let main = self.main;
        let told = self.run(PATIENCE, |_, text| text.starts_with("outcome"))?;
        let Some((_, text)) = told else { return Err(self.hang("after it")) };
        ask(libc::PTRACE_CONT, main, 0)?;
        Ok(text)
    }

    /// Where all its threads are.
    fn hang(&self, what: &str) -> String {
        let mut told = format!("hangs {what}:");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.main));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |name: &str| {
                let text = std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
                text.trim().to_owned()
            };
            let name = task.file_name();
            let words = [" ", &name.to_string_lossy(), " in [", &read("syscall"), "] "];
            told.extend(words);
            told.push_str(&read("wchan"));
        }
        told
    }

    /// It ends in order.
    pub fn end(mut self) -> Result<(), String> {
        // The end of its input.
        drop(self.input.take());
        let main = self.main;
        loop {
            let mut status = 0;
            let flags = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: fills `status`.
            let found = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            if found < 0 {
                return Err("the program is gone".into());
            }
            if libc::WIFSTOPPED(status) {
                let stopped = libc::WSTOPSIG(status);
                let is_own = status >> 16 != 0 || [libc::SIGTRAP, libc::SIGSTOP].contains(&stopped);
                if stopped == libc::SIGTRAP {
                    steps_no_more(found)?;
                }
                let signal = if is_own { 0 } else { stopped };
                ask(libc::PTRACE_CONT, found, signal as usize)?;
            } else if found == main {
                return if status == 0 { Ok(()) } else { Err(format!("status {status:#x}")) };
            }
        }
    }

    /// Kills it.
    pub fn kill(self) {
        // SAFETY: a child of this process that has not been waited for; then all of its threads.
        unsafe {
            if libc::kill(self.main, libc::SIGKILL) < 0 {
                // It has ended, and was waited for.
                return;
            }
            let mut status = 0;
            let flags = libc::__WALL | libc::__WNOTHREAD;
            loop {
                let found = libc::waitpid(-1, &raw mut status, flags);
                if found < 0 || found == self.main && !libc::WIFSTOPPED(status) {
                    break;
                }
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Places where this thread was.
        let _ = sched_setaffinity(None, &self.before);
    }
}
