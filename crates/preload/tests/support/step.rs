//! Counts what a program executes between two marks, one instruction at a time.
//!
//! The program says `int3` with the name of an operation in `rax` where it begins, and `int3` once
//! more where it ends. Between the marks its thread is single-stepped; all other threads go on, so
//! they should sleep. What is counted is what the CPU would do on any day: no time is taken, and
//! the kernel's clock page, whose loops depend on when they run, does not count.
//!
//! Addresses are the same in every run, and the program stays on one CPU at a time.
#![allow(dead_code)] // Each test uses its part.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};

const LINE: u64 = 64;
/// `si_code` of a trap by `int3`.
const BY_INT3: c_int = 0x80;

/// What one operation executed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub instructions: u64,
    /// Read-modify-writes that lock their line.
    pub locked: u64,
    /// `sfence` and `mfence`.
    pub fences: u64,
    /// Lines written back: `clwb`, `clflushopt`, `clflush`.
    pub flushed: u64,
    /// Lines stored around the cache, whole or in part, one after the other.
    pub streamed: u64,
    pub system_calls: u64,
}

/// One operation of one thread.
#[derive(Default)]
pub struct Sample {
    pub name: String,
    pub thread: i32,
    pub counts: Counts,
    /// All lines that it stored to.
    pub written: BTreeSet<u64>,
    /// The addresses of its instructions, in order.
    pub path: Vec<u64>,
    /// Those of them that stored something.
    pub stores: Vec<u64>,
}

/// A mapped range of the program.
#[derive(Clone, Debug)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub name: String,
}

/// What a program did.
pub struct Followed {
    pub samples: Vec<Sample>,
    /// Its mappings when its last operation began.
    pub maps: Vec<Range>,
}

/// What is known of an instruction.
#[derive(Clone, Copy)]
struct Known {
    instruction: Instruction,
    repeats: bool,
    locks: bool,
}

struct Thread {
    sample: Sample,
    last: u64,
    /// The last line that was streamed to.
    streamed: u64,
}

struct Follower {
    memory: File,
    process: i32,
    code: HashMap<u64, Known>,
    facts: InstructionInfoFactory,
    threads: HashMap<i32, Thread>,
    clock: std::ops::Range<u64>,
    followed: Followed,
}

fn trace(request: u32, thread: i32, data: usize) {
    // SAFETY: no memory of this process is written by the requests that come here.
    let result = unsafe { libc::ptrace(request, thread, 0, data) };
    assert!(result >= 0, "ptrace {request}: {}", std::io::Error::last_os_error());
}

fn registers(thread: i32) -> libc::user_regs_struct {
    // SAFETY: zeros are a value, and the kernel fills exactly this structure.
    unsafe {
        let mut regs: libc::user_regs_struct = std::mem::zeroed();
        let at = (&raw mut regs).cast::<c_void>();
        assert!(libc::ptrace(libc::PTRACE_GETREGS, thread, 0, at) >= 0, "registers");
        regs
    }
}

/// Whether a thread stopped at an `int3`.
fn at_mark(thread: i32) -> bool {
    // SAFETY: as above.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let at = (&raw mut info).cast::<c_void>();
        libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, at) >= 0 && info.si_code == BY_INT3
    }
}

fn value(regs: &libc::user_regs_struct, register: Register) -> Option<u64> {
    Some(match register.full_register() {
        Register::RAX => regs.rax,
        Register::RBX => regs.rbx,
        Register::RCX => regs.rcx,
        Register::RDX => regs.rdx,
        Register::RSI => regs.rsi,
        Register::RDI => regs.rdi,
        Register::RBP => regs.rbp,
        Register::RSP => regs.rsp,
        Register::R8 => regs.r8,
        Register::R9 => regs.r9,
        Register::R10 => regs.r10,
        Register::R11 => regs.r11,
        Register::R12 => regs.r12,
        Register::R13 => regs.r13,
        Register::R14 => regs.r14,
        Register::R15 => regs.r15,
        Register::RIP => regs.rip,
        Register::FS => regs.fs_base,
        Register::GS => regs.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}

fn maps(process: i32) -> Vec<Range> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("its maps");
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let offset = hex(words.nth(1)?)?;
        let name = words.nth(2).unwrap_or("").to_owned();
        Some(Range { start: hex(start)?, end: hex(end)?, offset, name })
    };
    text.lines().filter_map(range).collect()
}

/// Runs a program and follows its operations. It must end well.
pub fn follow(command: &mut Command) -> Followed {
    let prepare = || {
        // SAFETY: system calls without memory.
        let ready = unsafe {
            libc::personality(libc::ADDR_NO_RANDOMIZE as u64) >= 0
                && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) >= 0
        };
        if ready { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    #[expect(clippy::zombie_processes, reason = "its end is waited for below, with its threads'")]
    // SAFETY: async-signal-safe calls only.
    let child = unsafe { command.pre_exec(prepare) }.spawn().expect("the program starts");
    let process = child.id() as i32;
    let mut status = 0;
    // SAFETY: waits for the stop of the exec.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) }, process);
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
    trace(libc::PTRACE_SETOPTIONS, process, options as usize);
    trace(libc::PTRACE_CONT, process, 0);
    let memory = File::open(format!("/proc/{process}/mem")).expect("its memory");
    let followed = Followed { samples: Vec::new(), maps: Vec::new() };
    let mut follower = Follower {
        memory,
        process,
        code: HashMap::new(),
        facts: InstructionInfoFactory::new(),
        threads: HashMap::new(),
        clock: 0..0,
        followed,
    };
    follower.run();
    follower.followed
}

impl Follower {
    fn run(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: fills `status`. Other threads' children are not ours.
            let thread =
                unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            assert!(thread > 0, "the program is gone");
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if thread == self.process {
                    assert_eq!(status, 0, "the program failed");
                    return;
                }
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            if status >> 16 == libc::PTRACE_EVENT_EXEC {
                self.memory = File::open(format!("/proc/{thread}/mem")).expect("its memory");
            }
            let stepping = self.threads.contains_key(&thread);
            let ours = status >> 16 != 0 || signal == libc::SIGSTOP;
            if !ours && signal == libc::SIGTRAP && at_mark(thread) {
                self.mark(thread);
            } else if !ours && signal == libc::SIGTRAP && stepping {
                self.step(thread);
            } else {
                let pass = if ours { 0 } else { signal as usize };
                let how = if stepping { libc::PTRACE_SINGLESTEP } else { libc::PTRACE_CONT };
                trace(how, thread, pass);
            }
        }
    }

    /// An operation begins or ends.
    fn mark(&mut self, thread: i32) {
        if let Some(done) = self.threads.remove(&thread) {
            self.followed.samples.push(done.sample);
            trace(libc::PTRACE_CONT, thread, 0);
            return;
        }
        let name = self.text(registers(thread).rax);
        self.followed.maps = maps(thread);
        let clock = self.followed.maps.iter().find(|range| range.name == "[vdso]");
        self.clock = clock.map_or(0..0, |range| range.start..range.end);
        let sample = Sample { name, thread, ..Sample::default() };
        self.threads.insert(thread, Thread { sample, last: 0, streamed: 0 });
        self.step(thread);
    }

    fn text(&self, at: u64) -> String {
        let mut bytes = [0; 64];
        self.memory.read_at(&mut bytes, at).expect("the operation's name");
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Takes down the instruction that comes next, and lets it run.
    fn step(&mut self, thread: i32) {
        let regs = registers(thread);
        if !self.clock.contains(&regs.rip) {
            self.count(thread, &regs);
        }
        trace(libc::PTRACE_SINGLESTEP, thread, 0);
    }

    fn known(&mut self, at: u64) -> Known {
        let memory = &self.memory;
        *self.code.entry(at).or_insert_with(|| {
            let mut bytes = [0; 16];
            let length = memory.read_at(&mut bytes, at).expect("its code");
            let mut decoder = Decoder::with_ip(64, &bytes[..length], at, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let exchange = instruction.mnemonic() == Mnemonic::Xchg
                && (0..2).any(|op| instruction.op_kind(op) == iced_x86::OpKind::Memory);
            Known {
                instruction,
                repeats: instruction.has_rep_prefix() || instruction.has_repne_prefix(),
                locks: instruction.has_lock_prefix() || exchange,
            }
        })
    }

    fn count(&mut self, thread: i32, regs: &libc::user_regs_struct) {
        let known = self.known(regs.rip);
        if known.instruction.code() == Code::Int3 {
            return;
        }
        let facts = self.facts.info(&known.instruction);
        let running = self.threads.get_mut(&thread).expect("a thread that is followed");
        let again = known.repeats && running.last == regs.rip;
        running.last = regs.rip;
        let sample = &mut running.sample;
        let counts = &mut sample.counts;
        if !again {
            counts.instructions += 1;
            counts.locked += u64::from(known.locks);
            sample.path.push(regs.rip);
        }
        let streams = match known.instruction.mnemonic() {
            Mnemonic::Sfence | Mnemonic::Mfence => {
                counts.fences += 1;
                // What comes after a fence is another write to the medium.
                running.streamed = 0;
                false
            }
            Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush => {
                counts.flushed += 1;
                return;
            }
            Mnemonic::Syscall => {
                counts.system_calls += 1;
                false
            }
            Mnemonic::Movdir64b | Mnemonic::Movnti | Mnemonic::Movntdq | Mnemonic::Vmovntdq => true,
            _ => false,
        };
        let mut stores = false;
        for used in facts.used_memory() {
            let writes = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            let at = used.virtual_address(0, |register, _, _| value(regs, register));
            stores |= writes;
            if let (true, Some(at)) = (writes, at) {
                let end = at + used.memory_size().size().max(1) as u64;
                for line in (at / LINE..end.div_ceil(LINE)).map(|line| line * LINE) {
                    sample.written.insert(line);
                    if streams && running.streamed != line {
                        running.streamed = line;
                        counts.streamed += 1;
                    }
                }
            }
        }
        if stores && !again {
            sample.stores.push(regs.rip);
        }
    }
}
