//! Runs every site of a patched file once, in children of its own, with a handler that serves
//! nothing but a number: what the handler is asked, and what registers, flags and stack are behind
//! the site, is compared with the file that is not patched.
//!
//! The text is copied into private memory that may be written and executed; behind the instructions
//! that are run stands a jump back. No system call of a site is made.

use std::arch::global_asm;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use os::interrupt::system_call;

use crate::elf::PAGE;
use crate::entry::{Call, Form, Verdict, answer_by, entry};
use crate::image::{COMPUTED, Image, Record};

/// What was found at one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The address of its `syscall`.
    pub address: u64,
    /// What.
    pub fault: Fault,
}

/// What can be wrong at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The handler was not asked, or more than once.
    NotAsked,
    /// It was asked for another number.
    Number,
    /// It was given other arguments.
    Arguments,
    /// Another result, or other registers, are behind the site.
    Registers,
    /// Other flags are.
    Flags,
    /// The stack has changed.
    Stack,
    /// It was killed by this signal.
    Killed(i32),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let address = self.address;
        match self.fault {
            Fault::NotAsked => {
                write!(f, "the site at {address:#x} does not reach the handler once")
            }
            Fault::Number => write!(f, "the site at {address:#x} asks for another number"),
            Fault::Arguments => write!(f, "the site at {address:#x} gives other arguments"),
            Fault::Registers => write!(f, "behind the site at {address:#x} registers differ"),
            Fault::Flags => write!(f, "behind the site at {address:#x} flags differ"),
            Fault::Stack => write!(f, "the site at {address:#x} changes the stack"),
            Fault::Killed(signal) => {
                write!(f, "the site at {address:#x} is ended by signal {signal}")
            }
        }
    }
}

/// rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15, rsp, the flags.
type Registers = [u64; 17];
const RAX: usize = 0;
const RCX: usize = 2;
const R11: usize = 10;
const RSP: usize = 15;
const FLAGS: usize = 16;
/// rdi, rsi, rdx, r10, r8, r9.
const ARGUMENTS: [usize; 6] = [5, 4, 3, 9, 7, 8];

global_asm!(
    ".pushsection .bss.solera_door_check,\"aw\",@nobits",
    ".balign 8",
    "solera_door_check_back:",
    ".skip 16",
    "solera_door_check_to:",
    ".skip 8",
    ".popsection",
    ".pushsection .text.solera_door_check,\"ax\",@progbits",
    ".balign 16",
    // (where to, registers)
    "solera_door_check_run:",
    ".cfi_startproc",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + solera_door_check_back], rsp",
    "mov [rip + solera_door_check_back + 8], rsi",
    "mov [rip + solera_door_check_to], rdi",
    "mov rsp, [rsi + 120]",
    // X may store them.
    "pxor xmm0, xmm0",
    "pxor xmm1, xmm1",
    "pxor xmm2, xmm2",
    "pxor xmm3, xmm3",
    "pxor xmm4, xmm4",
    "pxor xmm5, xmm5",
    "pxor xmm6, xmm6",
    "pxor xmm7, xmm7",
    "pxor xmm8, xmm8",
    "pxor xmm9, xmm9",
    "pxor xmm10, xmm10",
    "pxor xmm11, xmm11",
    "pxor xmm12, xmm12",
    "pxor xmm13, xmm13",
    "pxor xmm14, xmm14",
    "pxor xmm15, xmm15",
    "mov rax, [rsi]",
    "mov rbx, [rsi + 8]",
    "mov rcx, [rsi + 16]",
    "mov rdx, [rsi + 24]",
    "mov rdi, [rsi + 40]",
    "mov rbp, [rsi + 48]",
    "mov r8, [rsi + 56]",
    "mov r9, [rsi + 64]",
    "mov r10, [rsi + 72]",
    "mov r11, [rsi + 80]",
    "mov r12, [rsi + 88]",
    "mov r13, [rsi + 96]",
    "mov r14, [rsi + 104]",
    "mov r15, [rsi + 112]",
    "mov rsi, [rsi + 32]",
    "jmp [rip + solera_door_check_to]",
    "solera_door_check_return:",
    // The red zone is left alone: the flags are pushed on the checker's own stack.
    "xchg rsp, [rip + solera_door_check_back]",
    "pushfq",
    "push rsi",
    "mov rsi, [rip + solera_door_check_back + 8]",
    "mov [rsi], rax",
    "mov [rsi + 8], rbx",
    "mov [rsi + 16], rcx",
    "mov [rsi + 24], rdx",
    "mov [rsi + 40], rdi",
    "mov [rsi + 48], rbp",
    "mov [rsi + 56], r8",
    "mov [rsi + 64], r9",
    "mov [rsi + 72], r10",
    "mov [rsi + 80], r11",
    "mov [rsi + 88], r12",
    "mov [rsi + 96], r13",
    "mov [rsi + 104], r14",
    "mov [rsi + 112], r15",
    "mov rax, [rip + solera_door_check_back]",
    "mov [rsi + 120], rax",
    "pop rax",
    "mov [rsi + 32], rax",
    "pop rax",
    "mov [rsi + 128], rax",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

unsafe extern "C" {
    fn solera_door_check_run(address: usize, registers: *mut Registers);
    static solera_door_check_return: [u8; 0];
}

/// What the child saw: number and arguments of the last call, how many there were.
static ASKED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// The result that is served; [`PASS`] for none.
static RESULT: AtomicI64 = AtomicI64::new(PASS);
const PASS: i64 = i64::MIN;

unsafe extern "C-unwind" fn fake(call: &mut Call) -> Verdict {
    ASKED[7].fetch_add(1, Ordering::Relaxed);
    ASKED[6].store(u64::from(call.number()), Ordering::Relaxed);
    for (asked, argument) in ASKED.iter().zip(call.arguments()) {
        asked.store(*argument as u64, Ordering::Relaxed);
    }
    let result = RESULT.load(Ordering::Relaxed);
    // What is passed on is made by the site itself: a jump back is put in its place, now that the
    // entry has read what stands there. Nothing else is passed on.
    if result == PASS && call.form() == Form::InPlace {
        let back = jump_back();
        // SAFETY: the child's own text; `run_site` puts the bytes back.
        unsafe {
            let to = call.return_address() as *mut u8;
            std::ptr::copy_nonoverlapping(back.as_ptr(), to, BACK);
        }
        return Verdict::Pass;
    }
    call.result = result as isize;
    Verdict::Served
}

/// Bytes of the jump back.
const BACK: usize = 14;

/// `jmp *0(%rip)`, and where to.
fn jump_back() -> [u8; BACK] {
    let mut back = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let address = (&raw const solera_door_check_return).addr();
    back[6..].copy_from_slice(&address.to_ne_bytes());
    back
}

/// What a child tells its parent.
#[repr(C)]
struct Progress {
    site: AtomicU64,
    fault: AtomicU64,
}

/// The faults that a child finds, by the number that it tells.
const FAULTS: [Fault; 6] = [
    Fault::NotAsked,
    Fault::Number,
    Fault::Arguments,
    Fault::Registers,
    Fault::Flags,
    Fault::Stack,
];

/// How many sites there were, and what is wrong with some.
pub type Checked = (usize, Vec<Wrong>);

/// Runs every site of a patched file once; `original` is the file that it was made of. The process
/// should have one thread: it forks. An error is that of a child, or of memory that it may write
/// and execute, and of 3.4 GiB of addresses that it touches some pages of.
pub fn check(original: &[u8], image: &Image) -> std::io::Result<Checked> {
    let sites: Vec<&Record> = image.records.iter().filter(|one| one.is_patched()).collect();
    let mut wrong = Vec::new();
    let page = Map::new(None, PAGE as usize, libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: a page of zeros, which both processes reach by atomics.
    let progress = unsafe { &*(page.start as *const Progress) };
    let mut next = 0;
    while next < sites.len() {
        progress.site.store(next as u64, Ordering::Relaxed);
        progress.fault.store(0, Ordering::Relaxed);
        // SAFETY: the child runs `child` alone, and ends without returning.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(std::io::Error::last_os_error()),
            0 => {
                let code = child(original, image, &sites[next..], progress)
                    .map_or_else(|error| error.raw_os_error().unwrap_or(libc::ENOMEM), |()| 0);
                // SAFETY: it ends.
                unsafe { libc::_exit(code) };
            }
            _ => {}
        }
        let mut status = 0;
        // SAFETY: one's own child.
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let at = progress.site.load(Ordering::Relaxed) as usize;
        let fault = progress.fault.load(Ordering::Relaxed) as usize;
        if libc::WIFSIGNALED(status) {
            let fault = Fault::Killed(libc::WTERMSIG(status));
            wrong.push(Wrong { address: u64::from(sites[at].address), fault });
        } else if fault > 0 {
            wrong.push(Wrong { address: u64::from(sites[at].address), fault: FAULTS[fault - 1] });
        } else if libc::WEXITSTATUS(status) != 0 {
            return Err(std::io::Error::from_raw_os_error(libc::WEXITSTATUS(status)));
        }
        next = at + 1;
    }
    Ok((sites.len(), wrong))
}

/// Pages that are unmapped at the end.
struct Map {
    start: usize,
    size: usize,
}

impl Map {
    fn new(at: Option<usize>, size: usize, kind: i32, protection: i32) -> std::io::Result<Self> {
        let fixed = if at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        let address = at.unwrap_or(0) as *mut libc::c_void;
        // SAFETY: new memory, in the place of nothing.
        let start = unsafe { libc::mmap(address, size, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { start: start as usize, size })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: its own pages.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.size) };
    }
}

/// The registers of a run point into memory of their own: X may read and write there, also at the
/// sum of one and eight times another.
const FIRST: usize = 0x1000_0000;
const APART: usize = 0x1_0000;
const MEMORY: (usize, usize) = (0x0e00_0000, 0xd800_0000);
/// So does the base of thread-local memory, alone and with a register.
const THREAD: usize = 0x2000_0000;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_FS: i32 = 0x1003;

/// Runs the sites, and tells the first that is wrong.
fn child(
    original: &[u8],
    image: &Image,
    sites: &[&Record],
    progress: &Progress,
) -> std::io::Result<()> {
    let size = image.footer.data_end.next_multiple_of(PAGE) as usize;
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let map = Map::new(None, size, libc::MAP_PRIVATE, all)?;
    let some = libc::PROT_READ | libc::PROT_WRITE;
    let memory = Map::new(Some(MEMORY.0), MEMORY.1, libc::MAP_PRIVATE, some)?;
    let text = Text { base: map.start, image, original };
    text.load();
    answer_by(fake);
    let first = progress.site.load(Ordering::Relaxed);
    for (at, site) in sites.iter().enumerate() {
        progress.site.store(first + at as u64, Ordering::Relaxed);
        if let Err(fault) = run_site(&text, site) {
            let number = FAULTS.iter().position(|one| *one == fault).map_or(0, |at| at + 1);
            progress.fault.store(number as u64, Ordering::Relaxed);
            break;
        }
    }
    drop(memory);
    Ok(())
}

/// The patched text in memory that may be written and executed.
struct Text<'a> {
    base: usize,
    image: &'a Image,
    original: &'a [u8],
}

impl Text<'_> {
    fn load(&self) {
        let footer = &self.image.footer;
        let text = self.part(&self.image.bytes, footer.text_address, footer.text_size as usize);
        self.put(footer.text_address, text);
        self.put(footer.slot, &entry().start.to_ne_bytes());
    }

    /// A file's bytes at an address of the text, as far as it goes.
    fn part<'b>(&self, file: &'b [u8], address: u64, size: usize) -> &'b [u8] {
        let footer = &self.image.footer;
        let start = (address - footer.text_address + footer.text_offset) as usize;
        let end = (footer.text_offset + footer.text_size) as usize;
        &file[start..end.min(start + size)]
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        let to = (self.base + address as usize) as *mut u8;
        // SAFETY: within the pages of this text, which its own process alone has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Runs from an address until a jump back.
    fn go(&self, from: u64, registers: &mut Registers) {
        let mut own = 0_usize;
        let thread = |code: i32, address: usize| {
            // SAFETY: asks for and sets the base of thread-local memory, which nothing uses until
            // it is set back.
            unsafe { system_call(libc::SYS_arch_prctl, [code as usize, address, 0, 0, 0, 0]) }
        };
        let _ = thread(ARCH_GET_FS, (&raw mut own).addr());
        let _ = thread(ARCH_SET_FS, THREAD);
        // SAFETY: the child's own text; up to the jump back stand moves, sums and addresses, and
        // the call of the entry.
        unsafe { solera_door_check_run(self.base + from as usize, registers) };
        let _ = thread(ARCH_SET_FS, own);
    }

    /// Runs from one address to another one.
    fn run(&self, from: u64, to: u64, registers: &mut Registers) {
        let before = self.part(&self.image.bytes, to, BACK);
        self.put(to, &jump_back()[..before.len()]);
        self.go(from, registers);
        self.put(to, before);
    }
}

/// Registers that point into memory, each to its own, and rsp, at an alignment.
fn registers(skew: usize) -> Registers {
    let mut registers: Registers = std::array::from_fn(|at| (FIRST + at * APART) as u64);
    registers[RSP] -= skew as u64;
    registers[FLAGS] = 0;
    registers
}

/// What is on the stack from rsp on, and the 128 bytes below it that a function may use, but for
/// the eight that a call writes.
fn stack(registers: &Registers) -> Vec<u8> {
    let rsp = registers[RSP] as usize;
    // SAFETY: memory of the child's own, below and above the middle of it.
    let bytes = |from: usize, to: usize| unsafe {
        std::slice::from_raw_parts(from as *const u8, to - from)
    };
    [bytes(rsp - 128, rsp - 16), bytes(rsp, rsp + 512)].concat()
}

/// Results that are served: each side of the comparisons.
const RESULTS: [i64; 6] = [0, 7, -1, -4095, -4096, -4097];

fn run_site(text: &Text, site: &Record) -> Result<(), Fault> {
    let [start, syscall, end] = [site.start, site.address, site.end].map(u64::from);
    let size = (end - start) as usize;
    let original = text.part(text.original, start, size);
    let window = text.part(&text.image.bytes, start, size);
    let compared = end > syscall + 2;
    for (at, result) in RESULTS.into_iter().enumerate() {
        let initial = registers(at * 3);
        // As it was: up to the call, then from behind it with the result.
        text.put(start, original);
        let mut called = initial;
        text.run(start, syscall, &mut called);
        let stack_called = stack(&called);
        let mut expected = called;
        expected[RAX] = result as u64;
        if compared {
            text.put(start, original);
            text.run(syscall + 2, end, &mut expected);
        }
        // As it is patched.
        text.put(start, window);
        RESULT.store(result, Ordering::Relaxed);
        ASKED[7].store(0, Ordering::Relaxed);
        let mut served = initial;
        text.run(start, end, &mut served);
        if ASKED[7].load(Ordering::Relaxed) != 1 {
            return Err(Fault::NotAsked);
        }
        let number = ASKED[6].load(Ordering::Relaxed);
        let constant = site.number != COMPUTED && number != u64::from(site.number);
        if number != called[RAX] & u64::from(u32::MAX) || constant {
            return Err(Fault::Number);
        }
        let same = |(asked, at): (&AtomicU64, usize)| asked.load(Ordering::Relaxed) == called[at];
        if !ASKED.iter().zip(ARGUMENTS).all(same) {
            return Err(Fault::Arguments);
        }
        let kept = (RAX..=RSP).filter(|at| ![RCX, R11].contains(at));
        if kept.into_iter().any(|at| served[at] != expected[at]) {
            return Err(Fault::Registers);
        }
        if stack(&served) != stack_called {
            return Err(Fault::Stack);
        }
        // Carry, parity, zero, sign, overflow.
        if compared && (served[FLAGS] ^ expected[FLAGS]) & 0x8c5 != 0 {
            return Err(Fault::Flags);
        }
        if window.ends_with(&crate::sites::SYSCALL) {
            RESULT.store(PASS, Ordering::Relaxed);
            let mut passed = initial;
            text.go(start, &mut passed);
            text.put(syscall, text.part(&text.image.bytes, syscall, BACK));
            let kept = (RAX..=RSP).filter(|at| ![RCX, R11].contains(at));
            if kept.into_iter().any(|at| passed[at] != called[at]) {
                return Err(Fault::Registers);
            }
        }
    }
    Ok(())
}
