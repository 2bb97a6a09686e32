//! The door: system calls that the C library makes inside its own functions (streams, directories,
//! `glob`, `dlopen`) arrive here by their numbers (see the crate `door`), and are served as those
//! that a program makes by `syscall`.
//!
//! A call arrives with the C library's locks held, perhaps, in a signal handler, perhaps: nothing
//! here enters the C library but where the kernel is to serve the call, and `errno` stays as it is.
//! A call is passed on if
//!
//! - its thread is inside: it is this library's own;
//! - it was looked at already: an exported function has found that it is the kernel's, and has the
//!   C library make it ([`thread::PassesNext`]);
//! - a child of `vfork` makes it, which shares its parent's memory until it executes something.
//!
//! Processes. A call that makes a thread is passed on: its site makes it, for the thread goes on at
//! the site on another stack. So is one whose child shares the memory of its parent, which waits:
//! the child gets a copy (see [`lends`]), and takes a place of its own when it first calls, as
//! after a raw system call. A fork that no function of this library has prepared is prepared here.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{CString, c_long};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use door::arm::{self, Armed, Loaded, Refusal};
use door::elf::ProgramHeader;
use door::entry::{Call, Verdict};
use vfs::variable;

use crate::by_number::serve_number;
use crate::entry::attachment;
use crate::entry::cancel;
use crate::entry::fdtable;
use crate::entry::pointers::Out;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{has_one_thread, here};
use crate::entry::{Answer, Inside, Served, calls_arrive, errno, let_calls_arrive, set_errno};
use crate::interposed::serve;
use crate::mappings::page_faults;
use crate::processes::{fork, init, lifecycle};
use crate::runtime::{environment, objects};
use crate::split::engine;
use crate::start;

/// What became of a call that arrived.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// The entry is to make it.
    Passed,
    /// The same, with this first argument.
    Changed(usize),
    /// It was served with this answer, or failed with `errno`.
    Value(c_long),
}

impl Answer for Outcome {
    const FAILED: Self = Self::Value(-1);
}

/// Answers what arrives.
unsafe extern "C" fn arrived(call: &mut Call) -> Verdict {
    let thread = here();
    if thread.is_inside() {
        return Verdict::Pass;
    }
    // The entry looks once more: a signal may come after this.
    call.again = &raw const thread.ends_first;
    if thread.ends_first.load(Ordering::Relaxed) != 0 {
        cancel::end_first();
    }
    if thread.passes_next.swap(false, Ordering::Relaxed) {
        return Verdict::Pass;
    }
    // Before the C library has begun, variables of a thread do not last.
    if !start::has_begun() && !has_one_thread() {
        return Verdict::Pass;
    }
    let lent_by = thread.lent_by.load(Ordering::Relaxed);
    if lent_by != 0 {
        if rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned() != lent_by {
            return Verdict::Pass;
        }
        thread.lent_by.store(0, Ordering::Relaxed);
    }
    if call.number() == SYS_MPROTECT && is_of_linker(call.return_address()) {
        // It closes an object that it has relocated.
        let _inside = Inside::new();
        arm_further();
    }
    if is_kernels(c_long::from(call.number()), call.arguments()) {
        return Verdict::Pass;
    }
    let failed = errno();
    let before = thread.arrived_at.swap(std::ptr::from_ref(call) as usize, Ordering::Relaxed);
    let outcome = answer(c_long::from(call.number()), call.arguments());
    let thread = here();
    thread.arrived_at.store(before, Ordering::Relaxed);
    let verdict = match outcome {
        Outcome::Passed => Verdict::Pass,
        Outcome::Changed(first) => {
            call.change_first(first);
            Verdict::Pass
        }
        Outcome::Value(-1) => {
            call.result = -(errno() as isize);
            Verdict::Served
        }
        Outcome::Value(value) => {
            call.result = value as isize;
            Verdict::Served
        }
    };
    if verdict == Verdict::Served {
        // Its next cancellation point ends a thread that was cancelled meanwhile.
        thread.ends_first.store(0, Ordering::Relaxed);
    }
    set_errno(failed);
    verdict
}

/// Whether a call by a number is the kernel's for sure: the number is not ours, and nothing of ours
/// lies in the program's memory that the kernel could miss.
#[inline]
fn is_kernels(number: c_long, given: &Arguments) -> bool {
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_lseek
            | libc::SYS_fstat
            | libc::SYS_getdents64
    ) && attachment::attached().is_some()
        && !engine::is_here()
        && fdtable::is_kernels(given[0] as i32)
        && page_faults::kernel_finds_all()
}

const SYS_MPROTECT: u32 = libc::SYS_mprotect as u32;

fn is_of_linker(address: usize) -> bool {
    let [start, end] = [0, 1].map(|at: usize| LINKER[at].load(Ordering::Relaxed));
    (start..end).contains(&address)
}

fn answer(number: c_long, given: &Arguments) -> Outcome {
    match number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            makes(number, given)
        }
        libc::SYS_rt_sigaction if given[0] == cancel::SIGCANCEL && given[1] != 0 => {
            Outcome::Value(cancel::installed(given))
        }
        // Behind all that the program and the C library do at the end.
        libc::SYS_exit_group => {
            engine::leave();
            if let Some(process) = attachment::attached() {
                let _inside = Inside::new();
                lifecycle::leave(process);
            }
            Outcome::Passed
        }
        // By the exported function, which asks whom the call concerns, and else has the C library
        // make it.
        _ => syscall::by_function(number, *given)
            .map_or_else(|| without_function(number, given), Outcome::Value),
    }
}

fn without_function(number: c_long, given: &Arguments) -> Outcome {
    if attachment::known().is_none() && engine::is_here() {
        return to_kernel(number, given);
    }
    serve(
        "(C library)",
        calls::Point::Never,
        |process| serve_arrived(process, number, given),
        || to_kernel(number, given),
    )
}

/// A call that the volume leaves to the kernel: the second engine may serve it.
fn to_kernel(number: c_long, given: &Arguments) -> Outcome {
    let outcome = Cell::new(Outcome::Passed);
    if engine::is_here() {
        let kernel = || {
            outcome.set(Outcome::Passed);
            0
        };
        outcome.set(Outcome::Value(0));
        let value = engine::by_number(number, *given, kernel);
        if outcome.get() != Outcome::Passed {
            return Outcome::Value(value);
        }
    }
    if number == libc::SYS_openat2 {
        // If the kernel does not find the path, it is walked (see `links`).
        outcome.set(Outcome::Value(syscall::kernel(number, *given)));
    }
    outcome.get()
}

fn serve_arrived(process: &Process, number: c_long, given: &Arguments) -> Served<Outcome> {
    serve_number(process, number, given, || syscall::kernel(number, *given)).map(Outcome::Value)
}

/// A call that makes a thread or a process.
fn makes(number: c_long, given: &Arguments) -> Outcome {
    let (flags, stack) = match number {
        libc::SYS_clone => (given[0] as u64, given[1]),
        // The structure's words: flags first, the stack sixth.
        libc::SYS_clone3 => match Out(given[0] as *mut [u64; 6]).value() {
            Ok(words) => (words[0], words[5] as usize),
            Err(_) => return Outcome::Passed,
        },
        libc::SYS_vfork => ((libc::CLONE_VM | libc::CLONE_VFORK) as u64, 0),
        _ => (0, 0),
    };
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    if has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        return lends(number, given);
    }
    if has(libc::CLONE_VM) {
        crate::entry::thread::second_thread_begins();
        crate::entry::cached_fd::before_thread();
        return Outcome::Passed;
    }
    let process = attachment::process().filter(|_| stack == 0 && !has(libc::CLONE_FS));
    let Some(process) = process else {
        engine::before_own_fork();
        return Outcome::Passed;
    };
    let _inside = Inside::new();
    // What numbers stand for is noted in memory that the child does not share: it gets a copy of a
    // table that it was to share.
    let own = || {
        let pid = syscall::kernel(number, *given) as i32;
        if pid == 0 && has(libc::CLONE_FILES) {
            syscall::kernel(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0]);
        }
        pid
    };
    match fork::arrived(process, own) {
        Ok(pid) => Outcome::Value(pid.into()),
        Err(error) => {
            set_errno(error.raw_os_error());
            Outcome::Value(-1)
        }
    }
}

/// A call that makes a child which shares its parent's memory until it executes something: it gets
/// a copy of the memory, so that what it does to numbers and its directory is not done to its
/// parent, which waits all the same. Such a child of `vfork` shares it, and the kernel serves it.
fn lends(number: c_long, given: &Arguments) -> Outcome {
    engine::before_own_fork();
    let shared = u64::from(libc::CLONE_VM.cast_unsigned());
    match number {
        // Without a volume numbers and directories are the kernel's.
        _ if attachment::known().is_none() => {}
        libc::SYS_clone => return Outcome::Changed((given[0] as u64 & !shared) as usize),
        libc::SYS_clone3 => {
            let flags = Out(given[0] as *mut u64);
            // The C library's own structure, of this one call.
            if let Ok(before) = flags.value()
                && flags.put(before & !shared).is_ok()
            {
                return Outcome::Passed;
            }
        }
        _ => {}
    }
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    here().lent_by.store(own.cast_unsigned(), Ordering::Relaxed);
    Outcome::Passed
}

/// What came of it, once it was tried: nothing, or why not.
static OPENED: OnceLock<Result<(), String>> = OnceLock::new();

/// Arms the C library, if that is asked for (`SOLERA_DOOR`). A program that cannot be armed does
/// not run.
pub fn open() {
    // SAFETY: a word that the dynamic linker has filled in.
    std::hint::black_box(unsafe { solera_door_opened });
    if let Err(why) = OPENED.get_or_init(try_to_open) {
        init::tell(why);
        lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
    }
}

fn try_to_open() -> Result<(), String> {
    if !init::is_asked()
        || init::is_bypassed()
        || variable::is("SOLERA_DOOR", "symbols", &["auto"])?
    {
        return Ok(());
    }
    arm_library().map_err(|why| {
        format!("the C library of this program cannot be patched: {why}; use `--door symbols`")
    })
}

// The dynamic linker asks a resolver for the value of this word when it relocates this library,
// before it runs any code of the program's: constructors, `.preinit_array`, resolvers of what was
// loaded before.
global_asm!(
    ".pushsection .text.solera_door_resolver,\"ax\",@progbits",
    ".type solera_door_resolver, @gnu_indirect_function",
    "solera_door_resolver:",
    "sub rsp, 8",
    "call {opens}",
    "add rsp, 8",
    "ret",
    ".size solera_door_resolver, . - solera_door_resolver",
    ".popsection",
    ".pushsection .data.rel.ro.solera_door_opened,\"aw\",@progbits",
    ".balign 8",
    ".globl solera_door_opened",
    ".hidden solera_door_opened",
    ".type solera_door_opened, @object",
    "solera_door_opened:",
    ".quad solera_door_resolver",
    ".size solera_door_opened, 8",
    ".popsection",
    opens = sym opens,
);

unsafe extern "C" {
    static solera_door_opened: usize;
}

extern "C" fn opens() -> usize {
    let _inside = Inside::new();
    // Else the constructor does it.
    if environment::is_readable() {
        OPENED.get_or_init(try_to_open);
    }
    opens as *const () as usize
}

/// The C libraries that are armed: of each name space (`dlmopen`) one.
static ARMED: [AtomicUsize; SPACES] = [const { AtomicUsize::new(0) }; SPACES];
/// As many as the C library knows.
const SPACES: usize = 16;

/// The addresses of the dynamic linker's code, if it is armed, too.
static LINKER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// A function that only the C library has.
const OF_LIBRARY: &[u8] = b"gnu_get_libc_version";

fn arm_library() -> Result<(), Refusal> {
    let library = objects::loaded().find(|object| object.function(OF_LIBRARY).is_some());
    let library = library.ok_or(Refusal::Unfit(door::elf::Unfit::Text))?;
    door::entry::answer_by(arrived);
    arm(library.base())?;
    ARMED[0].store(library.base(), Ordering::Relaxed);
    let_calls_arrive();
    Ok(())
}

/// Arms the dynamic linker, before it is asked to load something: whether its own calls arrive.
/// Where they do not, libraries on a volume are loaded as copies.
pub fn arm_linker() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    *TRIED.get_or_init(|| {
        let found = objects::linker().filter(|_| calls_arrive());
        let Some(base) = found.map(objects::Object::base) else { return false };
        let loaded = Loaded { base, headers: headers_of(base) };
        // SAFETY: the dynamic linker. In memory: a debugger's breakpoints in it stay. Another
        // thread that is in one of its system calls loads something, too, and is behind this one.
        let Ok(linker) = (unsafe { arm::in_memory(&loaded, &door::wanted) }) else { return false };
        LINKER[0].store(linker.text.0, Ordering::Relaxed);
        LINKER[1].store(linker.text.0 + linker.text.1, Ordering::Relaxed);
        true
    })
}

/// The dynamic linker has relocated an object: if it is another C library, in a name space of its
/// own, that one is armed before any code of that name space runs.
#[cold]
fn arm_further() {
    for object in objects::loaded_anywhere() {
        let base = object.base();
        let is_known = ARMED.iter().any(|armed| armed.load(Ordering::Relaxed) == base);
        if is_known || object.function(OF_LIBRARY).is_none() {
            continue;
        }
        let free = ARMED.iter().find(|armed| armed.load(Ordering::Relaxed) == 0);
        if let Some(free) = free {
            free.store(base, Ordering::Relaxed);
            if arm(base).is_err() {
                report::fell_back("dlmopen", "c-library-not-patched");
            }
        }
    }
}

/// Arms what is loaded there.
fn arm(base: usize) -> Result<Armed, Refusal> {
    let loaded = Loaded { base, headers: headers_of(base) };
    let read = |address: u64, size: usize| {
        // SAFETY: what the program headers of a loaded object name is mapped.
        Some(unsafe { std::slice::from_raw_parts((base + address as usize) as *const u8, size) })
    };
    let build = door::elf::build_id(loaded.headers, &read)?;
    let own = rustix::process::geteuid().as_raw();
    for folder in folders() {
        let Ok(file) = door::cache::open(&folder, build, own) else { continue };
        // SAFETY: an object whose code no other thread executes yet; a file that was believed.
        let armed = unsafe { arm::by_file(&loaded, file) };
        syscall::kernel(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
        match armed {
            Err(Refusal::Damaged(_) | Refusal::OtherBuild | Refusal::OtherLayout) => {}
            armed => return armed,
        }
    }
    // SAFETY: as above.
    unsafe { arm::in_memory(&loaded, &door::wanted) }
}

/// The program headers of what is loaded there.
fn headers_of(base: usize) -> &'static [ProgramHeader] {
    // SAFETY: an object begins with its header, which says where the others are: in its first
    // pages.
    unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let first = (base + header.e_phoff as usize) as *const ProgramHeader;
        std::slice::from_raw_parts(first, usize::from(header.e_phnum))
    }
}

/// Where patched files may lie.
fn folders() -> impl Iterator<Item = CString> {
    let home = environment::value(b"HOME")
        .map(|home| [home.to_bytes(), b"/", door::cache::USER.as_bytes()].concat());
    let fixed = [door::cache::PACKAGE, door::cache::SYSTEM].map(|path| path.as_bytes().to_vec());
    fixed.into_iter().chain(home).filter_map(|path| CString::new(path).ok())
}
