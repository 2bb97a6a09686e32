//! A library with a site of every shape, armed in this process, beside the same one unarmed: what
//! registers, flags and stack are behind each, served and passed on, at every alignment.

use std::arch::{asm, global_asm};
use std::ffi::{CStr, CString, c_void};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use door::arm::{self, Loaded, Way};
use door::elf::ProgramHeader;
use door::entry::{Call, Form, Verdict, answer_by, entry, go_to_site};
use door::image::Image;

use crate::libraries;

// probe(function, registers, stack): the registers are rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp,
// r12 to r15, rsp: in and out.
global_asm!(
    ".text",
    "solera_door_probe:",
    ".cfi_startproc",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rsi",
    "mov rcx, rdx",
    "mov r11, rdi",
    "mov [rcx - 8], rsp",
    "mov rsp, rcx",
    "sub rsp, 8",
    "mov rax, [rsi]",
    "mov rdi, [rsi + 8]",
    "mov rdx, [rsi + 24]",
    "mov r10, [rsi + 32]",
    "mov r8, [rsi + 40]",
    "mov r9, [rsi + 48]",
    "mov rbx, [rsi + 56]",
    "mov rbp, [rsi + 64]",
    "mov r12, [rsi + 72]",
    "mov r13, [rsi + 80]",
    "mov r14, [rsi + 88]",
    "mov r15, [rsi + 96]",
    "mov rsi, [rsi + 16]",
    "call r11",
    "mov rcx, rsp",
    "mov r11, [rsp]",
    "mov r11, [r11]",
    "mov [r11], rax",
    "mov [r11 + 8], rdi",
    "mov [r11 + 16], rsi",
    "mov [r11 + 24], rdx",
    "mov [r11 + 32], r10",
    "mov [r11 + 40], r8",
    "mov [r11 + 48], r9",
    "mov [r11 + 56], rbx",
    "mov [r11 + 64], rbp",
    "mov [r11 + 72], r12",
    "mov [r11 + 80], r13",
    "mov [r11 + 88], r14",
    "mov [r11 + 96], r15",
    "mov [r11 + 104], rcx",
    "mov rsp, [rsp]",
    "pop rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    fn solera_door_probe(function: usize, registers: *mut [u64; 14], stack: *mut u8);
}

/// What the handler does, and what it was asked.
struct Script {
    serve: Option<isize>,
    /// How often the entry is to ask once more before it makes a call that is passed on.
    again: u32,
    asked: Vec<(u32, [usize; 6], Form, usize)>,
}

static SCRIPT: Mutex<Script> = Mutex::new(Script { serve: None, again: 0, asked: Vec::new() });

unsafe extern "C-unwind" fn handler(call: &mut Call) -> Verdict {
    let mut script = SCRIPT.lock().unwrap();
    script.asked.push((call.number(), *call.arguments(), call.form(), call.stack()));
    if let Some(result) = script.serve {
        call.result = result;
        return Verdict::Served;
    }
    AGAIN.store(script.again, Ordering::Relaxed);
    script.again = script.again.saturating_sub(1);
    call.again = &raw const AGAIN;
    Verdict::Pass
}

/// The word at which the entry looks.
static AGAIN: AtomicU32 = AtomicU32::new(0);

/// A library that is loaded: its handle and base.
pub struct Library {
    handle: *mut c_void,
    pub base: usize,
}

impl Library {
    pub fn load(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        // SAFETY: a handle begins with a link_map, of which the first word is the base.
        Self { handle, base: unsafe { *handle.cast::<usize>() } }
    }

    pub fn function(&self, name: &CStr) -> usize {
        // SAFETY: a handle that is open.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address as usize
    }

    pub fn headers(&self) -> &'static [ProgramHeader] {
        // SAFETY: the ELF header is at the base, the program headers at the offset it says.
        unsafe {
            let offset = *((self.base + 32) as *const u64) as usize;
            let count = *((self.base + 56) as *const u16) as usize;
            std::slice::from_raw_parts((self.base + offset) as *const ProgramHeader, count)
        }
    }
}

/// Makes the library with a site of every shape.
pub fn forms(path: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/door/forms.c");
    libraries::link(&source, path, &[]);
}

/// The registers behind a call of a function with these before it, on a stack of an alignment.
fn probe(function: usize, registers: [u64; 14], skew: usize) -> [u64; 14] {
    probe_by(solera_door_probe, function, registers, skew)
}

/// Calls the function with the registers, on the stack.
type Prober = unsafe extern "C" fn(usize, *mut [u64; 14], *mut u8);

/// As `solera_door_probe`, with a trap behind each instruction.
unsafe extern "C" fn trapping_probe(function: usize, registers: *mut [u64; 14], stack: *mut u8) {
    // SAFETY: the trap flag, for which there is a handler; and as the caller says.
    unsafe {
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        solera_door_probe(function, registers, stack);
        asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
    }
}

fn probe_by(by: Prober, function: usize, registers: [u64; 14], skew: usize) -> [u64; 14] {
    let mut stack = vec![0x5a_u8; 64 << 10];
    let middle = (stack.as_mut_ptr() as usize + (48 << 10)) / 64 * 64 - skew;
    let above = stack[(50 << 10)..].to_vec();
    let mut registers = registers;
    // SAFETY: the stack has 48 KiB below, the function keeps the ABI of system calls.
    unsafe { by(function, &raw mut registers, middle as *mut u8) };
    assert_eq!(registers[13], middle as u64 - 8, "rsp");
    assert!(stack[(50 << 10)..] == above, "the stack above");
    registers
}

const SHAPES: [(&CStr, Form, Option<u32>); 10] = [
    (c"constant", Form::Constant, Some(4)),
    (c"constant_high", Form::Constant, Some(262)),
    (c"constant_moved", Form::Constant, Some(5)),
    (c"wide001", Form::Compared, None),
    (c"wide000", Form::Compared, None),
    (c"narrow001", Form::Compared, None),
    (c"narrow000", Form::Compared, None),
    (c"displaced_short", Form::Register, None),
    (c"displaced_long", Form::Register, None),
    (c"in_place", Form::InPlace, Some(435)),
];

fn expected(name: &CStr, result: isize) -> isize {
    let fails = match name.to_str().unwrap() {
        "wide001" => result as u64 >= -4095_i64 as u64,
        "wide000" => result as u64 > -4096_i64 as u64,
        "narrow001" => result as u32 >= -4095_i32 as u32,
        "narrow000" => result as u32 > -4096_i32 as u32,
        _ => return result,
    };
    if fails { 2 } else { 1 }
}

#[test]
fn a_site_finds_what_it_would_behind_the_kernel() {
    let folder = libraries::Scratch::new("entry");
    let paths = ["plain.so", "armed.so", "memory.so", "copied.so"].map(|name| folder.0.join(name));
    for path in &paths {
        forms(path);
    }
    let [plain, armed, memory, copied] = paths.each_ref().map(|path| Library::load(path));
    let image = Image::make(&std::fs::read(&paths[1]).unwrap(), &door::wanted).unwrap();
    let patched = folder.0.join("patched");
    std::fs::write(&patched, &image.bytes).unwrap();
    answer_by(handler);
    let file = std::fs::File::open(&patched).unwrap();
    let loaded = Loaded { base: armed.base, headers: armed.headers() };
    // SAFETY: nobody calls the library yet, as below.
    let done = unsafe { arm::by_file(&loaded, file.as_raw_fd()) }.unwrap();
    assert_eq!(done.way, Way::Mapped);
    // SAFETY: as above.
    let again = unsafe { arm::by_file(&loaded, file.as_raw_fd()) };
    assert_eq!(again, Err(arm::Refusal::Armed));
    let loaded = Loaded { base: memory.base, headers: memory.headers() };
    // SAFETY: as above.
    let done = unsafe { arm::in_memory(&loaded, &door::wanted) }.unwrap();
    assert_eq!(done.way, Way::InMemory);
    let loaded = Loaded { base: copied.base, headers: copied.headers() };
    // SAFETY: as above.
    let done = unsafe { arm::by_file(&loaded, file.as_raw_fd()) }.unwrap();
    assert_eq!(done.slot, copied.base + image.footer.slot as usize);

    for (name, form, number) in SHAPES {
        for skew in 0..16 {
            for library in [&armed, &memory, &copied] {
                compare(&plain, library, name, form, number, skew);
            }
        }
    }
    // The handler is asked until the word is 0, and then the call is made.
    let mut script = SCRIPT.lock().unwrap();
    (script.serve, script.again) = (None, 2);
    script.asked.clear();
    drop(script);
    let mut registers = [0; 14];
    registers[1] = u64::MAX;
    let passed = probe(armed.function(c"constant_high"), registers, 0);
    assert_eq!(SCRIPT.lock().unwrap().asked.len(), 3);
    assert_eq!(passed[0] as isize, -isize::try_from(libc::EFAULT).unwrap());
    // What is not wanted does not come by.
    SCRIPT.lock().unwrap().asked.clear();
    let own = probe(armed.function(c"unwanted"), [0; 14], 0);
    assert_eq!(own[0], u64::from(std::process::id()));
    assert!(SCRIPT.lock().unwrap().asked.is_empty());
    goes_on_at_its_site(armed.function(c"in_place"), armed.function(c"constant"));
    let places = entry();
    assert!(places.start < places.looked && places.looked < places.call);
    assert!(places.call + 2 == places.called);
    assert!(places.called < places.end);
}

/// Which of the entry's instructions a trap is to act at, how many came, and at how many it did.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static MET: AtomicUsize = AtomicUsize::new(0);
static GONE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passes.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize;
    if (entry().start..entry().end).contains(&address)
        && MET.fetch_add(1, Ordering::Relaxed) == WANTED.load(Ordering::Relaxed)
        // SAFETY: as above.
        && unsafe { go_to_site(context) }
    {
        GONE.fetch_add(1, Ordering::Relaxed);
    }
}

/// From each instruction on the way back to a site that makes its call itself a signal's handler
/// may put the thread at its `syscall`; from no other one.
fn goes_on_at_its_site(in_place: usize, constant: usize) {
    // SAFETY: a handler of this test's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    let mut script = SCRIPT.lock().unwrap();
    (script.serve, script.again) = (None, 0);
    drop(script);
    // Arguments of `clone3`, and of `stat`, that are refused.
    let mut registers: [u64; 14] = std::array::from_fn(|at| 0x1234_5678_9abc_0000 + at as u64);
    registers[2] = 88;
    for (function, least) in [(in_place, 14), (constant, 0)] {
        let expected = probe(function, registers, 0);
        GONE.store(0, Ordering::Relaxed);
        for wanted in 0.. {
            WANTED.store(wanted, Ordering::Relaxed);
            MET.store(0, Ordering::Relaxed);
            let found = probe_by(trapping_probe, function, registers, 0);
            assert_eq!(found, expected, "instruction {wanted} of the entry");
            if MET.load(Ordering::Relaxed) <= wanted {
                break;
            }
        }
        let gone = GONE.load(Ordering::Relaxed);
        assert!(gone >= least && (least > 0 || gone == 0), "{gone} of {least}");
    }
}

fn compare(
    plain: &Library,
    armed: &Library,
    name: &CStr,
    form: Form,
    number: Option<u32>,
    skew: usize,
) {
    let bad = 0x1234_5678_9abc_0000_u64;
    // The number of `close` where it is in rsi or r8; a descriptor and pointers that are wrong.
    let mut registers: [u64; 14] = std::array::from_fn(|at| bad + at as u64);
    registers[1] = u64::MAX;
    registers[2] = 3;
    registers[5] = 3;
    SCRIPT.lock().unwrap().serve = None;
    SCRIPT.lock().unwrap().asked.clear();
    let own = probe(plain.function(name), registers, skew);
    assert!(SCRIPT.lock().unwrap().asked.is_empty());
    let mut passed = probe(armed.function(name), registers, skew);
    let asked = SCRIPT.lock().unwrap().asked.pop().unwrap();
    if name == c"constant_moved" {
        // An address of the library's own.
        for register in [5, 6] {
            passed[register] = passed[register] - armed.base as u64 + plain.base as u64;
        }
    }
    assert_eq!(own[..13], passed[..13], "{name:?} passed on, {skew}");
    assert_eq!(asked.0, number.unwrap_or(3), "{name:?}");
    assert_eq!(asked.2, form, "{name:?}");
    if name != c"constant_moved" {
        let arguments: [u64; 6] = registers[1..7].try_into().unwrap();
        assert_eq!(asked.1.map(|word| word as u64), arguments, "{name:?}");
    }
    let odd = [0, 1, -1, -2, -4095, -4096, -4097, isize::MIN, isize::MAX, 0xffff_f000, 0xffff_f001];
    for result in odd {
        SCRIPT.lock().unwrap().serve = Some(result);
        let served = probe(armed.function(name), registers, skew);
        assert_eq!(
            served[0] as isize,
            expected(name, result),
            "{name:?} served {result:#x}, {skew}"
        );
        let kept = if name == c"constant_moved" { 7..13 } else { 1..13 };
        assert_eq!(served[kept.clone()], registers[kept], "{name:?} served");
    }
}
