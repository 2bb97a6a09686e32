//! A process that is traced: run to its breakpoints, or by single instructions, each of which is
//! known by its bytes. So what is killed uses the very library that others use.
//!
//! A *point* is an instruction before which a death makes a difference to others: a store into the
//! volume's mapping (lock words are taken and released by such, too), a flush, a fence, a system
//! call. All calls on one tracee come from the thread that started it, as `ptrace` wants.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use libc::{c_int, c_long, c_ulong, pid_t, user_regs_struct};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Of an instruction that repeats, one repetition in so many is a point.
const REPETITIONS: u64 = 509;
/// System calls on the way to the volume before which a death makes a difference.
const CALLS_THAT_COUNT: [c_long; 3] = [libc::SYS_fcntl, libc::SYS_mkdir, libc::SYS_mkdirat];

/// What the point is that an instruction makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A store into the volume's mapping.
    Store,
    /// The same by a locked instruction: most are locks, taken or released.
    Locked,
    Flush,
    Fence,
    /// A system call.
    Call,
}

/// What happened to the tracee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It came to a breakpoint of its own.
    Mark,
    /// The point that was asked for is next.
    Point(Kind),
    /// It is another program now.
    Executed,
    /// It has a child, or a thread, which is traced too and has not begun yet.
    Child(pid_t),
    /// It ended.
    Ended,
    /// It entered a system call, or left one.
    Call(c_long),
}

/// Why it stopped, as the kernel says.
enum Stop {
    Step,
    Break,
    Executed,
    Child(pid_t),
    Call,
    Signal(c_int),
    Ended,
}

#[derive(Clone)]
enum Known {
    Nothing,
    Flush,
    Fence,
    Call,
    Break,
    /// Where it stores is seen when it runs.
    Writes(Box<Instruction>),
}

/// A part of a file that an instruction touches through a mapping.
pub struct Touched {
    pub file: PathBuf,
    pub offset: u64,
    pub length: usize,
    /// Around the cache.
    pub streamed: bool,
}

pub struct Tracee {
    pub pid: pid_t,
    /// The volume, or a directory of which all files count.
    volume: PathBuf,
    /// Where it is mapped.
    mapped: Vec<(u64, u64)>,
    known: HashMap<u64, Known>,
    factory: InstructionInfoFactory,
    /// How often it came to each instruction that may be a point, since [`Tracee::count_anew`].
    hits: HashMap<u64, u64>,
    /// The instruction before, and how often that has been repeated.
    last: (u64, u64),
    /// A signal to be delivered when it goes on.
    signal: c_int,
    /// Its next trap may be one of its own. Else the kernel need not be asked: of a million steps
    /// each call counts.
    may_break: bool,
    ended: bool,
}

/// This thread and a tracee on one processor, as long as this lives: each step hands over to the
/// tracee and back, which costs several times as much between two.
pub struct OneProcessor {
    before: CpuSet,
    tracee: pid_t,
}

impl OneProcessor {
    pub fn new(tracee: &Tracee) -> io::Result<Self> {
        let one = Self { before: sched_getaffinity(None)?, tracee: tracee.pid };
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        one.place(&here);
        Ok(one)
    }

    fn place(&self, processors: &CpuSet) {
        for whom in [None, Pid::from_raw(self.tracee)] {
            // One that has ended has no place.
            let _ = sched_setaffinity(whom, processors);
        }
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        self.place(&self.before);
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Tracee {
    /// Starts the command, stopped at its first instruction. Should this process end, it ends too.
    pub fn start(command: &mut Command, volume: &Path) -> io::Result<(Self, Child)> {
        // SAFETY: between fork and exec two system calls are made and nothing is allocated. Without
        // random addresses one run is like the other.
        unsafe {
            command.pre_exec(|| {
                check(libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong).into())?;
                check(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0)).map(drop)
            });
        }
        let child = command.spawn()?;
        let mut tracee = Self::of(child.id() as pid_t, volume);
        match tracee.wait()? {
            Stop::Step | Stop::Break | Stop::Signal(libc::SIGTRAP) => {}
            _ => return Err(io::Error::other("it did not stop at its first instruction")),
        }
        tracee.signal = 0;
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE;
        tracee.ask(libc::PTRACE_SETOPTIONS, 0, options as usize)?;
        Ok((tracee, child))
    }

    fn of(pid: pid_t, volume: &Path) -> Self {
        Self {
            pid,
            volume: volume.to_owned(),
            mapped: Vec::new(),
            known: HashMap::new(),
            factory: InstructionInfoFactory::new(),
            hits: HashMap::new(),
            last: (0, 0),
            signal: 0,
            may_break: true,
            ended: false,
        }
    }

    /// A child or thread of a tracee, from its beginning on.
    pub fn child(&self, pid: pid_t) -> io::Result<Self> {
        let mut child = Self::of(pid, &self.volume);
        if let Stop::Ended = child.wait()? {
            return Err(io::Error::other("the child ended before it began"));
        }
        child.signal = 0;
        child.look_at_maps()?;
        Ok(child)
    }

    fn ask(&self, request: libc::c_uint, address: usize, data: usize) -> io::Result<c_long> {
        // SAFETY: requests that take and give numbers, not addresses of this process.
        check(unsafe { libc::ptrace(request, self.pid, address, data) })
    }

    fn wait(&mut self) -> io::Result<Stop> {
        let mut status = 0;
        // SAFETY: `status` lives.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        check(waited.into())?;
        if !libc::WIFSTOPPED(status) {
            self.ended = true;
            return Ok(Stop::Ended);
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        Ok(match (signal, event) {
            (_, libc::PTRACE_EVENT_EXEC) => Stop::Executed,
            (_, libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE) => {
                Stop::Child(self.message()?)
            }
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            (libc::SIGTRAP, 0) if self.may_break && self.is_breakpoint()? => Stop::Break,
            (libc::SIGTRAP, 0) => Stop::Step,
            (signal, _) => Stop::Signal(signal),
        })
    }

    fn message(&self) -> io::Result<pid_t> {
        let mut message: libc::c_ulong = 0;
        let to = std::ptr::from_mut(&mut message);
        // SAFETY: the kernel writes one long to `message`.
        check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, self.pid, 0, to) })?;
        Ok(message as pid_t)
    }

    fn is_breakpoint(&self) -> io::Result<bool> {
        /// `si_code` of a trap by `int3`.
        const SI_KERNEL: c_int = 0x80;
        // SAFETY: all zeros is a siginfo; the kernel writes one there.
        let info = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            check(libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0, &raw mut info))?;
            info
        };
        Ok(info.si_code == SI_KERNEL)
    }

    pub fn registers(&self) -> io::Result<user_regs_struct> {
        // SAFETY: all zeros are registers; the kernel writes them there.
        unsafe {
            let mut registers: user_regs_struct = std::mem::zeroed();
            check(libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers))?;
            Ok(registers)
        }
    }

    // ---- running --------------------------------------------------------------------------------

    /// Lets it go on in one way, to its next event; steps are no events.
    fn go(&mut self, request: libc::c_uint) -> io::Result<Option<Event>> {
        let signal = std::mem::take(&mut self.signal);
        if let Err(error) = self.ask(request, 0, signal as usize) {
            // Killed by another process meanwhile.
            return if error.raw_os_error() == Some(libc::ESRCH) {
                self.wait()?;
                Ok(Some(Event::Ended))
            } else {
                Err(error)
            };
        }
        Ok(match self.wait()? {
            Stop::Step => None,
            Stop::Break => Some(Event::Mark),
            Stop::Executed => {
                self.known.clear();
                self.mapped.clear();
                Some(Event::Executed)
            }
            Stop::Child(pid) => Some(Event::Child(pid)),
            Stop::Call => Some(Event::Call(self.registers()?.orig_rax as c_long)),
            Stop::Ended => Some(Event::Ended),
            Stop::Signal(signal) => {
                self.signal = signal;
                None
            }
        })
    }

    /// Runs at full speed to its next event.
    pub fn run(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.go(libc::PTRACE_CONT)? {
                if event == Event::Mark {
                    self.look_at_maps()?;
                }
                return Ok(event);
            }
        }
    }

    /// Runs to the next system call that counts, or until the volume is mapped: then `None`.
    pub fn run_by_calls(&mut self) -> io::Result<Option<Event>> {
        loop {
            match self.go(libc::PTRACE_SYSCALL)? {
                Some(Event::Call(number)) => {
                    let enters = self.registers()?.rax as i64 == -i64::from(libc::ENOSYS);
                    if enters && CALLS_THAT_COUNT.contains(&number) {
                        return Ok(Some(Event::Call(number)));
                    }
                    if !enters && number == libc::SYS_mmap {
                        self.look_at_maps()?;
                        if !self.mapped.is_empty() {
                            return Ok(None);
                        }
                    }
                }
                Some(event) => return Ok(Some(event)),
                None => {}
            }
        }
    }

    /// From now on it is counted how often each instruction is come to.
    pub fn count_anew(&mut self) {
        self.hits.clear();
        self.last = (0, 0);
    }

    /// Where it stands: the instruction, how often it has come to it, and how often that has been
    /// repeated since.
    pub fn place(&self) -> (u64, u64, u64) {
        let (address, repetition) = self.last;
        (address, self.hits.get(&address).copied().unwrap_or(0), repetition)
    }

    /// Steps to the next point: it has not happened yet. `past`: over the one where it stands.
    pub fn step_to_point(&mut self, past: bool) -> io::Result<Event> {
        let mut past = past;
        loop {
            let registers = self.registers()?;
            if !past && let Some(kind) = self.point(&registers)? {
                return Ok(Event::Point(kind));
            }
            past = false;
            let event = if self.repeats_elsewhere(&registers) {
                self.pass(&registers)?
            } else {
                self.step(&registers)?
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Whether the next instruction repeats itself often, and stores to no memory that counts.
    fn repeats_elsewhere(&mut self, registers: &user_regs_struct) -> bool {
        /// Stepping through fewer is no slower.
        const FEW: u64 = 16;
        let Some(Known::Writes(instruction)) = self.known.get(&registers.rip) else { return false };
        if !instruction.has_rep_prefix() || registers.rcx <= FEW {
            return false;
        }
        let instruction = instruction.clone();
        !self.stores(&instruction, registers)
    }

    /// Runs to the instruction behind the next one, which repeats itself and goes nowhere else:
    /// half of all steps would be its repetitions. By a debug register, which is this thread's
    /// alone.
    fn pass(&mut self, registers: &user_regs_struct) -> io::Result<Option<Event>> {
        let register = |number: usize| {
            std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<c_ulong>()
        };
        let Some(Known::Writes(instruction)) = self.known.get(&registers.rip) else {
            return Err(io::Error::other("not an instruction that repeats itself"));
        };
        let behind = registers.rip + instruction.len() as u64;
        self.ask(libc::PTRACE_POKEUSER, register(0), behind as usize)?;
        self.ask(libc::PTRACE_POKEUSER, register(7), 1)?;
        self.may_break = false;
        let event = self.go(libc::PTRACE_CONT);
        self.may_break = true;
        let event = event?;
        if event.is_none() {
            self.ask(libc::PTRACE_POKEUSER, register(7), 0)?;
            let at = self.registers()?.rip;
            if at != behind && at != registers.rip {
                return Err(io::Error::other("it does not stop behind what repeats itself"));
            }
        }
        Ok(event)
    }

    fn step(&mut self, registers: &user_regs_struct) -> io::Result<Option<Event>> {
        let known = self.known.get(&registers.rip);
        let maps = matches!(known, Some(Known::Call))
            && matches!(registers.rax as c_long, libc::SYS_mmap | libc::SYS_mremap);
        self.may_break = matches!(known, None | Some(Known::Break));
        let event = self.go(libc::PTRACE_SINGLESTEP);
        self.may_break = true;
        let event = event?;
        if maps && event.is_none() {
            self.look_at_maps()?;
        }
        Ok(event.filter(|event| !matches!(event, Event::Call(_))))
    }

    /// Runs until it comes to the instruction there for the `hit`th time, and has repeated it so
    /// often; [`Event::Mark`] then, unless something else happens before. Children are told to
    /// `child`, without the breakpoint.
    pub fn run_to(
        &mut self,
        (address, hit, repetition): (u64, u64, u64),
        child: &mut dyn FnMut(Tracee) -> io::Result<()>,
    ) -> io::Result<Option<Event>> {
        let word = self.text(address)?;
        let broken = word & !0xFF | 0xCC;
        for left in (0..hit).rev() {
            self.poke(address, broken)?;
            let event = loop {
                match self.run()? {
                    Event::Child(pid) => {
                        let started = self.child(pid)?;
                        started.poke(address, word)?;
                        child(started)?;
                    }
                    event => break event,
                }
            };
            if event == Event::Ended || event == Event::Executed {
                return Ok(Some(event));
            }
            self.poke(address, word)?;
            let mut registers = self.registers()?;
            if registers.rip != address + 1 {
                return Ok(Some(event));
            }
            registers.rip = address;
            self.set_registers(&registers)?;
            if left > 0 {
                // One that repeats is left behind.
                while self.registers()?.rip == address {
                    if let Some(event) = self.step(&registers)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
        for _ in 0..repetition {
            let registers = self.registers()?;
            if registers.rip != address {
                break;
            }
            if let Some(event) = self.step(&registers)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Lets it run, while others are looked at; [`Tracee::collect`] says what became of it.
    pub fn let_go(&mut self) -> io::Result<()> {
        let signal = std::mem::take(&mut self.signal);
        self.ask(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Waits until one that was let go comes to a breakpoint (`true`) or ends.
    pub fn collect(&mut self) -> io::Result<bool> {
        loop {
            match self.wait()? {
                Stop::Break => return Ok(true),
                Stop::Ended => return Ok(false),
                Stop::Signal(signal) => self.signal = signal,
                _ => {}
            }
            self.let_go()?;
        }
    }

    /// Goes on until it ends, whatever it meets.
    pub fn wait_for_end(&mut self) -> io::Result<()> {
        while !self.ended {
            match self.wait()? {
                Stop::Ended => {}
                Stop::Signal(signal) => {
                    self.signal = signal;
                    self.let_go()?;
                }
                _ => self.let_go()?,
            }
        }
        Ok(())
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<()> {
        // SAFETY: a child of this process that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while !self.ended {
            self.wait()?;
        }
        Ok(())
    }

    /// Lets it go, untraced; `signal`: what it meets first.
    pub fn release(mut self, signal: c_int) -> io::Result<pid_t> {
        self.ask(libc::PTRACE_DETACH, 0, signal as usize)?;
        self.ended = true;
        Ok(self.pid)
    }

    // ---- what an instruction does ---------------------------------------------------------------

    fn look_at_maps(&mut self) -> io::Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let name = self.volume.to_string_lossy();
        let ours = maps.lines().filter(|line| line.contains(&*name));
        let range = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
        };
        self.mapped = ours.filter_map(range).collect();
        Ok(())
    }

    fn is_mapped(&self, at: u64) -> bool {
        self.mapped.iter().any(|&(from, to)| (from..to).contains(&at))
    }

    /// Whether the next instruction is a point.
    fn point(&mut self, registers: &user_regs_struct) -> io::Result<Option<Kind>> {
        let at = registers.rip;
        let known = if let Some(known) = self.known.get(&at) {
            known.clone()
        } else {
            let known = self.decode(at)?;
            self.known.insert(at, known.clone());
            known
        };
        let repeats = matches!(&known, Known::Writes(instruction) if instruction.has_rep_prefix());
        if repeats && self.last.0 == at {
            self.last.1 += 1;
        } else {
            self.last = (at, 0);
            if !matches!(known, Known::Nothing) {
                *self.hits.entry(at).or_default() += 1;
            }
        }
        Ok(match known {
            Known::Nothing | Known::Break => None,
            Known::Flush => Some(Kind::Flush),
            Known::Fence => Some(Kind::Fence),
            Known::Call => Some(Kind::Call),
            Known::Writes(instruction) => {
                let counts =
                    self.last.1.is_multiple_of(REPETITIONS) && self.stores(&instruction, registers);
                let locked =
                    instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
                counts.then_some(if locked { Kind::Locked } else { Kind::Store })
            }
        })
    }

    /// One word of its memory.
    fn text(&self, at: u64) -> io::Result<u64> {
        // SAFETY: reads one word of the tracee, which fails if there is none; errno tells.
        let word = unsafe {
            *libc::__errno_location() = 0;
            libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid, at as usize, 0)
        };
        let error = io::Error::last_os_error();
        if word == -1 && error.raw_os_error() != Some(0) { Err(error) } else { Ok(word as u64) }
    }

    fn poke(&self, at: u64, word: u64) -> io::Result<()> {
        self.ask(libc::PTRACE_POKETEXT, at as usize, word as usize).map(drop)
    }

    fn set_registers(&self, registers: &user_regs_struct) -> io::Result<()> {
        let from = std::ptr::from_ref(registers);
        // SAFETY: the kernel reads the registers from there.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, from) }).map(drop)
    }

    fn decode(&mut self, at: u64) -> io::Result<Known> {
        let mut bytes = [0_u8; 16];
        bytes[..8].copy_from_slice(&self.text(at)?.to_le_bytes());
        // At the end of a mapping there may be no more.
        let rest = self.text(at + 8).unwrap_or(0);
        bytes[8..].copy_from_slice(&rest.to_le_bytes());
        let instruction = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
        Ok(match instruction.mnemonic() {
            Mnemonic::Sfence | Mnemonic::Mfence => Known::Fence,
            Mnemonic::Clwb | Mnemonic::Clflush | Mnemonic::Clflushopt => Known::Flush,
            Mnemonic::Syscall => Known::Call,
            Mnemonic::Int3 => Known::Break,
            _ if instruction.code() == Code::INVALID => {
                return Err(io::Error::other("an instruction that is none"));
            }
            _ => {
                let info = self.factory.info(&instruction);
                let writes = info.used_memory().iter().any(|memory| is_write(memory.access()));
                if writes { Known::Writes(Box::new(instruction)) } else { Known::Nothing }
            }
        })
    }

    /// Executes the instruction where it stands, which is not one that maps.
    pub fn step_over(&mut self) -> io::Result<()> {
        let registers = self.registers()?;
        match self.step(&registers)? {
            None => Ok(()),
            Some(event) => Err(io::Error::other(format!("{event:?}"))),
        }
    }

    /// What the next instruction stores to, or flushes, of the files that count.
    pub fn touched(&mut self) -> io::Result<Vec<Touched>> {
        use Mnemonic::{
            Movdir64b, Movntdq, Movnti, Movntpd, Movntps, Vmovntdq, Vmovntpd, Vmovntps,
        };
        let registers = self.registers()?;
        let mut bytes = [0_u8; 16];
        bytes[..8].copy_from_slice(&self.text(registers.rip)?.to_le_bytes());
        bytes[8..].copy_from_slice(&self.text(registers.rip + 8).unwrap_or(0).to_le_bytes());
        let decoded = Decoder::with_ip(64, &bytes, registers.rip, DecoderOptions::NONE).decode();
        let flushes =
            matches!(decoded.mnemonic(), Mnemonic::Clwb | Mnemonic::Clflush | Mnemonic::Clflushopt);
        let streamed = matches!(
            decoded.mnemonic(),
            Movdir64b | Movntdq | Movnti | Movntpd | Movntps | Vmovntdq | Vmovntpd | Vmovntps
        );
        let info = self.factory.info(&decoded);
        let ranges: Vec<(u64, usize)> = info
            .used_memory()
            .iter()
            .filter(|memory| flushes || is_write(memory.access()))
            .filter_map(|memory| {
                let at = memory.virtual_address(0, |register, _, _| value(register, &registers))?;
                Some((at, memory.memory_size().size().max(1)))
            })
            .collect();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let file_at = |address: u64| {
            maps.lines().find_map(|line| {
                let mut words = line.split_whitespace();
                let (from, to) = words.next()?.split_once('-')?;
                let hex = |word: &str| u64::from_str_radix(word, 16).ok();
                let (from, to, offset) = (hex(from)?, hex(to)?, hex(words.nth(1)?)?);
                let name = words.nth(2)?;
                (from..to)
                    .contains(&address)
                    .then(|| (PathBuf::from(name), address - from + offset))
            })
        };
        let touched = ranges.into_iter().filter_map(|(address, length)| {
            let (file, offset) = file_at(address)?;
            file.starts_with(&self.volume).then_some(Touched { file, offset, length, streamed })
        });
        Ok(touched.collect())
    }

    /// Whether it stores into the volume's mapping.
    fn stores(&mut self, instruction: &Instruction, registers: &user_regs_struct) -> bool {
        let info = self.factory.info(instruction);
        let addresses: Vec<u64> = info
            .used_memory()
            .iter()
            .filter(|memory| is_write(memory.access()))
            .filter_map(|memory| {
                memory.virtual_address(0, |register, _, _| value(register, registers))
            })
            .collect();
        addresses.into_iter().any(|address| self.is_mapped(address))
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.ended {
            // It ends with this process at the latest.
            let _ = self.kill();
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | ReadWrite | CondWrite | ReadCondWrite)
}

/// What a register holds, of those that addresses are made of.
fn value(register: Register, registers: &user_regs_struct) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::RIP => registers.rip,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    };
    Some(if register.size() == 4 { full & 0xFFFF_FFFF } else { full })
}
