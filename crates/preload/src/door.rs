//! The door: the system calls of the C library arrive here by their numbers (see the crate `door`),
//! whichever function makes them, and are served by the bodies that the table names.
//!
//! A call arrives with the C library's locks held, perhaps, in a signal handler, perhaps: nothing
//! here enters the C library, and `errno` stays as it is. A call is passed on if
//!
//! - its thread is inside: it is this library's own;
//! - it was looked at already: an exported function has found that it is the kernel's, and has the
//!   C library make it ([`thread::PassesNext`]);
//! - it concerns the volume only by a descriptor, and that is the kernel's;
//! - without a volume, a child makes it that shares its parent's memory until it executes
//!   something.
//!
//! Processes. A call that makes a thread is passed on: its site makes it, for the thread goes on at
//! the site on another stack. A fork is prepared here, and so is a child that shares the memory of
//! its parent, which waits: it shares it indeed, or gets a copy (see [`lends`]).

use std::arch::global_asm;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int, c_long};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use door::arm::{self, Armed, Loaded, Refusal};
use door::entry::{Call, Form, Verdict};
use once_cell::race::OnceBox;
use vfs::Errno;

use crate::by_number::{Route, route};
use crate::descriptors::special_files;
use crate::dispatch;
use crate::entry::attachment;
use crate::entry::cached_fd;
use crate::entry::cancel;
use crate::entry::fdtable;
use crate::entry::pending_signals;
use crate::entry::pointers::Out;
use crate::entry::report;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{self, OwnCode, Thread, has_one_thread, here};
use crate::entry::{Inside, errno, set_errno};
use crate::host::lent::{self, Lent};
use crate::lending;
use crate::mappings::page_faults;
use crate::paths::standins;
use crate::processes::{fork, init, lifecycle};
use crate::runtime::code::{code_of, headers_of};
use crate::runtime::{environment, guest, objects, relocation};
use crate::signals::signal;
use crate::split::engine;
use crate::start;

/// What became of a call that arrived.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// The entry is to make it.
    Passed,
    /// It has made this child, which goes on with a stack of its own, if that is not 0.
    Child(usize),
    /// It was served with this answer, or failed with `errno`.
    Value(c_long),
}

/// Answers what arrives before the library has begun: variables of a thread do not last yet.
unsafe extern "C-unwind" fn arrived_early(call: &mut Call) -> Verdict {
    // SAFETY: the entry's own call.
    if has_one_thread() || start::has_begun() { unsafe { arrived(call) } } else { Verdict::Pass }
}

/// Answers what arrives. What is passed on at once takes no register that would have to be saved.
unsafe extern "C-unwind" fn arrived(call: &mut Call) -> Verdict {
    let thread = here();
    if thread.is_inside() {
        let is_watched = route(call.number()).is_watched();
        return if is_watched { begins_own(call) } else { Verdict::Pass };
    }
    // The entry looks once more: a signal may come after this.
    call.again = thread.looked();
    if thread.is_marked() { arrived_marked(call) } else { decide(call) }
}

/// The same, of a thread that is marked.
#[cold]
fn arrived_marked(call: &mut Call) -> Verdict {
    let _own = OwnCode::new();
    look_at_marks(here(), call).unwrap_or_else(|| decide(call))
}

/// Whether the kernel or the table's body answers.
#[inline]
fn decide(call: &mut Call) -> Verdict {
    let route = route(call.number());
    if route.is_of_descriptor() && is_kernels(call.arguments()[0] as c_int) {
        return Verdict::Pass;
    }
    serve(call, route)
}

/// What the table says, whose body may pass it on.
#[inline(never)]
fn serve(call: &mut Call, route: &Route) -> Verdict {
    let _own = OwnCode::new();
    let failed = errno();
    if route.is_watched()
        && let Some(verdict) = look(call)
    {
        set_errno(failed);
        return verdict;
    }
    let answer = if standins::has_copies() && is_of_linker(call.return_address()) {
        standins::serve_linker(|| route.serve(call.number(), call.arguments()))
    } else {
        route.serve(call.number(), call.arguments())
    };
    let verdict = match answer {
        None => Verdict::Pass,
        Some(-1) if is_no_point(call) => serve_again(call, route),
        Some(answer) => {
            call.result = if answer == -1 { -(errno() as isize) } else { answer as isize };
            Verdict::Served
        }
    };
    set_errno(failed);
    verdict
}

/// Once more, and apart: else what a call asks for would be kept for it.
#[cold]
fn serve_again(call: &mut Call, route: &Route) -> Verdict {
    serve(call, route)
}

/// A call that arrived otherwise: whether it is served. Own code runs, outside.
pub fn answer(call: &mut Call) -> bool {
    // SAFETY: as the entry's own call.
    unsafe { arrived(call) == Verdict::Served }
}

/// A call of the library's own: it may begin a thread. Where a guest runs, the C library installs a
/// handler then, of a signal that is the guest's.
#[cold]
fn begins_own(call: &mut Call) -> Verdict {
    let is_action = call.number() == libc::SYS_rt_sigaction as u32;
    if is_action && guest::is_here() && cancel::is_of_library(call.arguments()[0]) {
        call.result = 0;
        return Verdict::Served;
    }
    let flags = flags_of(call.number().into(), call.arguments()).map_or(0, |(flags, _)| flags);
    if flags & CLONE_VM != 0 {
        thread::second_thread_begins();
    }
    Verdict::Pass
}

/// What becomes of the call of a thread that is marked; `None`: it is served as others.
#[cold]
fn look_at_marks(thread: &Thread, call: &mut Call) -> Option<Verdict> {
    if thread.is_lent() {
        thread.passes_next.store(false, Ordering::Relaxed);
        return lending::arrived(call);
    }
    if cancel::end_if_due() {
        thread.ends_first.store(0, Ordering::Relaxed);
        if is_point(call) {
            call.result = -(libc::EINTR as isize);
            return Some(Verdict::Served);
        }
    }
    if thread.passes_next.load(Ordering::Relaxed) {
        thread.passes_next.store(false, Ordering::Relaxed);
        return Some(Verdict::Pass);
    }
    let lent_by = thread.lent_by.load(Ordering::Relaxed);
    if lent_by == 0 {
        return None;
    }
    if rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned() != lent_by {
        return Some(Verdict::Pass);
    }
    thread.lent_by.store(0, Ordering::Relaxed);
    None
}

/// Whether a call comes from the place where the C library makes those that are cancellation points
/// (2.41). The other sites in place make threads and processes.
fn is_point(call: &Call) -> bool {
    let makes = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork];
    call.form() == Form::InPlace && !makes.contains(&call.number().into())
}

/// Whether a call gives `EINTR` for a cancellation where there is no cancellation point: it is made
/// again.
#[cold]
fn is_no_point(call: &Call) -> bool {
    let thread = here();
    let is_told = thread.ends_first.load(Ordering::Relaxed) == cancel::TELLS;
    if is_told && errno() == libc::EINTR && !is_point(call) {
        thread.ends_first.store(0, Ordering::Relaxed);
        return true;
    }
    false
}

/// Whether a call is the kernel's for sure, which concerns the volume only if it is given a
/// descriptor of it: the number is not ours, and nothing of ours lies in the program's memory that
/// the kernel could miss.
#[inline]
pub fn is_kernels(fd: c_int) -> bool {
    fdtable::is_kernels(fd)
        && attachment::attached().is_some()
        && !engine::is_here()
        && page_faults::kernel_finds_all()
        && !special_files::are_open()
}

/// The same of a call by its number.
pub fn is_kernels_by_number(number: c_long, given: &Arguments) -> bool {
    !here().is_marked()
        && u32::try_from(number).is_ok_and(|number| route(number).is_of_descriptor())
        && is_kernels(given[0] as c_int)
}

/// Looks at a call that makes or begins a thread or a process, installs a handler, or is a
/// sign of the dynamic linker's. `None`: it is served as others.
#[cold]
fn look(call: &mut Call) -> Option<Verdict> {
    let (number, given) = (c_long::from(call.number()), call.arguments());
    let outcome = match number {
        libc::SYS_mprotect => {
            if is_of_linker(call.return_address()) {
                // It closes an object that it has relocated.
                let _inside = Inside::new();
                arm_further();
            }
            return None;
        }
        libc::SYS_rt_sigaction
            if cancel::is_of_library(given[0]) && given[1] != 0 && !guest::is_here() =>
        {
            Outcome::Value(cancel::installed(given))
        }
        libc::SYS_rt_sigaction => return None,
        // A thread or a forked process begins.
        libc::SYS_set_robust_list => {
            dispatch::arm_thread();
            Outcome::Passed
        }
        // Behind all that the program and the C library do at the end.
        libc::SYS_exit_group => {
            lent::leave();
            // No handler runs between the last call that is served and the kernel's.
            if attachment::attached().is_some() || engine::is_here() {
                pending_signals::block_for_end();
            }
            engine::leave();
            if let Some(process) = attachment::attached() {
                let _inside = Inside::new();
                lifecycle::leave_at_end(process);
            }
            Outcome::Passed
        }
        _ => makes(number, given, call.stack()),
    };
    Some(match outcome {
        Outcome::Passed => Verdict::Pass,
        Outcome::Child(stack) => {
            if stack != 0 {
                call.go_on_at(stack);
            }
            call.result = 0;
            Verdict::Served
        }
        Outcome::Value(value) => {
            call.result = if value == -1 { -(errno() as isize) } else { value as isize };
            Verdict::Served
        }
    })
}

fn is_of_linker(address: usize) -> bool {
    let [start, end] = [0, 1].map(|at: usize| LINKER[at].load(Ordering::Relaxed));
    (start..end).contains(&address)
}

pub const CLONE_VM: u64 = libc::CLONE_VM as u64;

/// Flags and stack of a call that makes a thread or a process; `None`: it makes none, or its
/// structure cannot be read.
pub fn flags_of(number: c_long, given: &Arguments) -> Option<(u64, usize)> {
    match number {
        libc::SYS_clone => Some((given[0] as u64, given[1])),
        // The structure's words: flags first, the stack and its size at the end.
        libc::SYS_clone3 => {
            let words = Out(given[0] as *mut [u64; 7]).value().ok()?;
            Some((words[0], words[5].wrapping_add(words[6]) as usize))
        }
        libc::SYS_vfork => Some((CLONE_VM | libc::CLONE_VFORK as u64, 0)),
        libc::SYS_fork => Some((0, 0)),
        _ => None,
    }
}

/// What such a child tells its parent by at its end.
fn exit_signal_of(number: c_long, given: &Arguments) -> Option<u64> {
    match number {
        libc::SYS_clone => Some(given[0] as u64 & 0xff),
        libc::SYS_clone3 => Some(Out(given[0] as *mut [u64; 5]).value().ok()?[4]),
        _ => Some(libc::SIGCHLD as u64),
    }
}

/// A call that makes a thread or a process.
fn makes(number: c_long, given: &Arguments, at: usize) -> Outcome {
    let Some((flags, stack)) = flags_of(number, given) else { return Outcome::Passed };
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    if has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        return lends(number, given, stack, at);
    }
    if has(libc::CLONE_VM) {
        cached_fd::before_thread();
        thread::second_thread_begins();
        return Outcome::Passed;
    }
    if (stack != 0 || has(libc::CLONE_FS)) && !guest::is_here() {
        engine::before_own_fork();
        fork::before_number(number, given[0]);
        return Outcome::Passed;
    }
    let Some(process) = attachment::process() else {
        if !engine::is_here() {
            return Outcome::Passed;
        }
        return alone(number, given, stack, false);
    };
    let _inside = Inside::new();
    // What numbers stand for is noted in memory that the child does not share: it gets a copy of a
    // table that it was to share.
    let mut words = [0; CLONE_WORDS];
    let (own_number, own_given) = if stack == 0 {
        (number, *given)
    } else {
        // The child comes back from here, on a copy of this stack.
        match apart(number, given, 0, &mut words) {
            Ok(apart) => apart,
            Err(errno) => return Outcome::Value(-c_long::from(errno.raw_os_error())),
        }
    };
    let own = || {
        let pid = syscall::kernel(own_number, own_given) as i32;
        if pid == 0 && has(libc::CLONE_FILES) {
            syscall::kernel(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0]);
        }
        pid
    };
    match fork::arrived(process, own) {
        Ok(0) if stack != 0 => Outcome::Child(stack),
        Ok(pid) => Outcome::Value(pid.into()),
        Err(error) => {
            lifecycle::wait_if_ending();
            set_errno(error.raw_os_error());
            Outcome::Value(-1)
        }
    }
}

/// A call that makes a child which shares its parent's memory until it executes something. If it
/// cannot be lent that memory (see [`lending`]), it gets a copy, so that what it does to numbers
/// and its directory is not done to its parent, which waits all the same (see [`fork::vfork_by`]).
/// The copy is of this stack, too: the child goes on here, and with the stack that it was given
/// behind the call. Without a volume numbers and directories are the kernel's: it serves such a
/// child.
fn lends(number: c_long, given: &Arguments, stack: usize, at: usize) -> Outcome {
    let Some(process) = attachment::process() else {
        if guest::is_here() {
            return lends_alone(number, given, stack, at);
        }
        engine::before_own_fork();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        here().lent_by.store(own.cast_unsigned(), Ordering::Relaxed);
        return Outcome::Passed;
    };
    if let Some(asked) = flags_of(number, given).zip(exit_signal_of(number, given))
        && let Some(made) = lending::make(process, (asked.0.0, asked.1), at)
    {
        return match made {
            Ok(0) => Outcome::Child(stack),
            Ok(pid) => Outcome::Value(pid.into()),
            Err(errno) => {
                set_errno(errno.raw_os_error());
                Outcome::Value(-1)
            }
        };
    }
    // The C library has blocked all signals.
    let mask = signal::admit_faults();
    let inside = Inside::new();
    let mut words = [0; CLONE_WORDS];
    let lent = Lent::new(at);
    // Read before the library's own heap is locked for the fork.
    let made = apart(number, given, 0, &mut words).and_then(|(number, given)| {
        fork::vfork_by(process, || syscall::kernel(number, given) as i32)
    });
    let outcome = match made {
        Ok(0) => {
            lent.into_iter().for_each(Lent::give);
            Outcome::Child(stack)
        }
        Ok(pid) => {
            lent.into_iter().for_each(Lent::take_back);
            Outcome::Value(pid.into())
        }
        Err(error) => {
            set_errno(error.raw_os_error());
            Outcome::Value(-1)
        }
    };
    if !matches!(outcome, Outcome::Child(_)) {
        pending_signals::set_mask(mask);
    }
    drop(inside);
    outcome
}

/// Makes a child of a process that has the second engine alone. The child gets a copy of the
/// memory. `waits`: its parent waits until it executes something or ends.
fn alone(number: c_long, given: &Arguments, stack: usize, waits: bool) -> Outcome {
    let mut words = [0; CLONE_WORDS];
    let made = if stack == 0 && !waits {
        Ok((number, *given))
    } else {
        // The parent waits all the same.
        apart(number, given, if waits { libc::CLONE_VFORK as u64 } else { 0 }, &mut words)
    };
    let Ok((number, given)) = made else {
        return Outcome::Value(-c_long::from(libc::EFAULT));
    };
    engine::before_own_fork();
    let pid = syscall::kernel(number, given);
    if pid != 0 {
        return Outcome::Value(pid);
    }
    engine::in_own_child(waits);
    dispatch::arm_thread();
    Outcome::Child(stack)
}

/// As [`lends`], of a guest in such a process, whose child may have a stack of its own.
fn lends_alone(number: c_long, given: &Arguments, stack: usize, at: usize) -> Outcome {
    let inside = Inside::new();
    let lent = Lent::new(at);
    let outcome = alone(number, given, stack, true);
    match outcome {
        Outcome::Child(_) => lent.into_iter().for_each(Lent::give),
        _ => lent.into_iter().for_each(Lent::take_back),
    }
    drop(inside);
    outcome
}

/// The same call without what is shared, and without a stack of its own; the structure of `clone3`
/// is put into `words`. `kept`: flags that it has all the same. `EFAULT`.
fn apart(
    number: c_long,
    given: &Arguments,
    kept: u64,
    words: &mut [u64; CLONE_WORDS],
) -> Result<(c_long, Arguments), Errno> {
    const APART: u64 = !(CLONE_VM | libc::CLONE_VFORK as u64);
    let [flags, _, a, b, c, d] = *given;
    match number {
        libc::SYS_clone => Ok((number, [(flags as u64 & APART | kept) as usize, 0, a, b, c, d])),
        libc::SYS_clone3 => {
            let count = (given[1] / size_of::<u64>()).min(CLONE_WORDS);
            let read = Out(given[0] as *mut u64).array(count)?;
            words[..count].copy_from_slice(&read);
            words[0] = words[0] & APART | kept;
            // Stack and its size.
            [words[5], words[6]] = [0, 0];
            let at = words.as_ptr() as usize;
            Ok((number, [at, count * size_of::<u64>(), 0, 0, 0, 0]))
        }
        _ => Ok((libc::SYS_clone, [libc::SIGCHLD as usize | kept as usize, 0, 0, 0, 0, 0])),
    }
}

/// As many as the structure of `clone3` has, and those of later kernels.
pub const CLONE_WORDS: usize = 16;

/// The library has begun.
pub fn begun() {
    if ARMED[0].load(Ordering::Relaxed) != 0 {
        door::entry::answer_by(arrived);
    }
}

/// What came of it, once it was tried: nothing, or why not.
static OPENED: OnceBox<Result<(), String>> = OnceBox::new();

/// Arms the C library, if something is to be served. A program that cannot be armed does not run.
pub fn open() {
    // SAFETY: a word that the dynamic linker has filled in.
    std::hint::black_box(unsafe { solera_door_opened });
    if let Err(why) = OPENED.get_or_init(|| Box::new(try_to_open())) {
        init::tell(why);
        lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
    }
}

fn try_to_open() -> Result<(), String> {
    if !init::is_asked() || init::is_bypassed() {
        return Ok(());
    }
    arm_library().map_err(|why| format!("the C library of this program cannot be patched: {why}"))
}

// The dynamic linker asks a resolver for the value of this word when it relocates this library,
// before it runs any code of the program's: constructors, `.preinit_array`, resolvers of what was
// loaded before.
global_asm!(
    ".pushsection .text.solera_door_resolver,\"ax\",@progbits",
    ".type solera_door_resolver, @gnu_indirect_function",
    "solera_door_resolver:",
    "sub rsp, 8",
    "call solera_relocate_early",
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
    if init::may_begin_late() {
        relocation::put_off();
    } else {
        relocation::apply_now();
    }
    // Else the constructor does it.
    if environment::is_readable() {
        OPENED.get_or_init(|| Box::new(try_to_open()));
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
    door::entry::answer_by(arrived_early);
    door::entry::leave_by(cancel::served);
    let armed = arm(library.base())?;
    cancel::arrives_from(&armed);
    dispatch::begin(&armed);
    ARMED[0].store(library.base(), Ordering::Relaxed);
    Ok(())
}

/// Arms the dynamic linker, before it is asked to load something, if the C library is armed.
pub fn arm_linker() {
    static TRIED: OnceLock<()> = OnceLock::new();
    if ARMED[0].load(Ordering::Relaxed) == 0 {
        return;
    }
    TRIED.get_or_init(|| {
        let found = objects::linker().map(objects::Object::base);
        let armed = found.ok_or(Refusal::Unfit(door::elf::Unfit::Text)).and_then(|base| {
            let loaded = Loaded { base, headers: headers_of(base) };
            // SAFETY: the dynamic linker. In memory: a debugger's breakpoints in it stay. Another
            // thread that is in one of its system calls loads something, too, and is behind this
            // one.
            unsafe { arm::in_memory(&loaded, &door::wanted) }
        });
        match armed {
            Ok(linker) => {
                LINKER[0].store(linker.text.0, Ordering::Relaxed);
                LINKER[1].store(linker.text.0 + linker.text.1, Ordering::Relaxed);
            }
            Err(_) => report::fell_back("dlopen", "dynamic-linker-not-patched"),
        }
    });
}

/// A call comes from that address, past the door: of the dynamic linker, which the C library has
/// asked by itself to load something.
pub fn arm_linker_at(address: usize) {
    static CODE: OnceLock<Range<usize>> = OnceLock::new();
    let code = CODE.get_or_init(|| {
        let linker = objects::linker().map(objects::Object::base);
        linker.and_then(|base| code_of(base, headers_of(base))).unwrap_or(0..0)
    });
    if code.contains(&address) {
        let _inside = Inside::new();
        arm_linker();
    }
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
            match arm(base) {
                Ok(armed) => cancel::arrives_from(&armed),
                Err(_) => report::fell_back("dlmopen", "c-library-not-patched"),
            }
        }
    }
}

/// Arms what is loaded there.
fn arm(base: usize) -> Result<Armed, Refusal> {
    let loaded = Loaded { base, headers: headers_of(base) };
    let own = rustix::process::geteuid().as_raw();
    // SAFETY: an object whose code no other thread executes yet.
    unsafe { door::cache::arm(&loaded, folders(), own) }
}

/// Where patched files may lie. The last is asked for when the others have none.
fn folders() -> impl Iterator<Item = Cow<'static, CStr>> {
    let home = std::iter::once_with(|| {
        let home = environment::value(b"HOME")?.to_bytes();
        let path = [home, b"/", door::cache::USER.as_bytes()].concat();
        CString::new(path).ok().map(Cow::Owned)
    });
    [door::cache::PACKAGE, door::cache::SYSTEM].map(Cow::Borrowed).into_iter().chain(home.flatten())
}
