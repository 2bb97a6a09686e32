//! The beginning: attaches the volume before the program's own code runs, or takes over what the
//! image before this one had.
//!
//! The environment says all (`solera run` sets it): `SOLERA_VOLUME`, `SOLERA_AT`, `SOLERA_MODE`,
//! `SOLERA_READ_ONLY`, `SOLERA_MOUNTED`, `SOLERA_REPORT`, `SOLERA_STRICT_SUPPORT`, `SOLERA_GUARD`,
//! `SOLERA_KERNEL_AIO`, `SOLERA_BYPASS`, and after an exec `SOLERA_RESUME` and its kin. Without
//! `SOLERA_VOLUME` nothing is served, nor in a program that is named in `SOLERA_BYPASS`. If the
//! volume cannot be attached, the program does not run: message, exit code 125.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use pmem::InternalFd;
use rustix::fs::{Mode, OFlags};
use vfs::variable;
use volume::{AttachOptions, Volume};

use crate::descriptors::fdtable;
use crate::descriptors::handover;
use crate::entry::Inside;
use crate::entry::limit;
use crate::entry::report;
use crate::entry::thread;
use crate::files::rings;
use crate::paths::credentials;
use crate::paths::cwd;
use crate::paths::mounted;
use crate::processes::fork;
use crate::processes::lifecycle;
use crate::processes::process::Process;
use crate::signals::signal;
use crate::split::beneath;

/// A page of its own, which the kernel empties in every forked child: what finds the address
/// there is the process that attached, at no cost but that of the load. Threads share it.
#[repr(C, align(4096))]
struct Page {
    process: AtomicPtr<Process>,
    rest: [u8; PAGE_BYTES - size_of::<AtomicPtr<Process>>()],
}

const PAGE_BYTES: usize = 4096;

static PAGE: Page = Page {
    process: AtomicPtr::new(std::ptr::null_mut()),
    rest: [0; PAGE_BYTES - size_of::<AtomicPtr<Process>>()],
};
/// The same address, inherited by forked children.
static KNOWN: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// The process that is making itself known just now.
static ADOPTING: AtomicU32 = AtomicU32::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Run by the dynamic linker before the program's constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    process();
}

/// This process's attachment, if it has one.
#[inline]
pub fn process() -> Option<&'static Process> {
    attached().or_else(other_process)
}

/// The same, but `None` in a child that was made behind our back and has not called since.
#[inline]
pub fn attached() -> Option<&'static Process> {
    // SAFETY: null, or published once and never freed.
    unsafe { PAGE.process.load(Ordering::Acquire).as_ref() }
}

/// What serves this process: 1 a volume, 2 the engine over a kernel file system, 0 nothing. `solera
/// run` looks it up by its name: a program is served once.
#[unsafe(no_mangle)]
pub extern "C" fn solera_serves() -> c_int {
    match process() {
        Some(_) => 1,
        None if beneath::is_here() => 2,
        None => 0,
    }
}

/// The attachment of this process or of the one that it was forked from.
pub fn known() -> Option<&'static Process> {
    // SAFETY: as above.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// From now on this process is served.
pub fn publish(process: &'static Process) {
    let process = std::ptr::from_ref(process).cast_mut();
    KNOWN.store(process, Ordering::Release);
    PAGE.process.store(process, Ordering::Release);
}

/// No attachment yet, none at all, or another process's.
#[cold]
fn other_process() -> Option<&'static Process> {
    let Some(process) = known() else {
        return if STARTED.load(Ordering::Relaxed) { None } else { start() };
    };
    let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
    loop {
        if let Some(process) = attached() {
            return Some(process);
        }
        let other = ADOPTING.load(Ordering::Relaxed);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if other != me && ADOPTING.compare_exchange(other, me, order.0, order.1).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    fork::adopt(process);
    Some(process)
}

/// Lets the kernel empty the page in children. An old kernel does not: there such children act as
/// their parent, as they do in every library that keeps state.
fn mark_page() {
    let page = std::ptr::from_ref(&PAGE).cast_mut().cast::<c_void>();
    // SAFETY: a page of this library's own, which holds nothing else.
    let _ = unsafe { rustix::mm::madvise(page, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork) };
}

#[cold]
fn start() -> Option<&'static Process> {
    if STARTED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let _inside = Inside::new();
    let Some(volume) = std::env::var_os("SOLERA_VOLUME") else {
        if !is_bypassed() {
            beneath::start();
        }
        return None;
    };
    if is_bypassed() {
        step_aside(volume.as_bytes());
        return None;
    }
    let attached = obey_variables().and_then(|()| {
        signal::start();
        limit::learn();
        attach(volume.as_bytes())
    });
    match attached {
        Ok(process) => {
            let process: &'static Process = Box::leak(Box::new(process));
            inherit(process);
            mark_page();
            publish(process);
            fork::register();
            let null = std::ptr::null_mut();
            // SAFETY: registered before `main`'s own runtime registers anything, so they run last.
            unsafe {
                __cxa_atexit(lifecycle::at_exit, null, null);
                __cxa_at_quick_exit(lifecycle::at_quick_exit, null);
            }
            Some(process)
        }
        Err(message) => {
            tell(&message);
            lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
        }
    }
}

/// What is asked for besides a volume. A value that nobody knows is refused.
fn obey_variables() -> Result<(), String> {
    if std::env::var_os("SOLERA_STRICT_SUPPORT").is_some_and(|value| !value.is_empty()) {
        report::be_strict();
    }
    if variable::is("SOLERA_KERNEL_AIO", "allow", &[])? {
        rings::allow();
    }
    volume::check_simulated()
}

unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        object: *mut c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
}

/// Whether this program is named in `SOLERA_BYPASS`: by what it was called as, or by its
/// executable, whole if the name has a slash.
fn is_bypassed() -> bool {
    let Some(names) = std::env::var_os("SOLERA_BYPASS") else { return false };
    let Ok(path) = std::fs::read_link("/proc/self/exe") else { return false };
    let called = std::env::args_os().next().unwrap_or_default();
    let base =
        |path: &OsStr| path.as_bytes().rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
    let known = [Some(path.as_os_str().as_bytes().to_vec()), base(path.as_os_str()), base(&called)];
    names
        .as_bytes()
        .split(|&byte| byte == b':')
        .any(|name| known.iter().flatten().any(|own| own == name))
}

/// A program that is bypassed gives up what the image before it had: the volume is left in order.
/// The numbers that it inherits of ours become the mount's, if there is one; else they stay
/// placeholders, which fail loudly.
fn step_aside(path: &[u8]) {
    let Some(token) = text(handover::RESUME) else {
        forget_handover();
        return;
    };
    let prefix = std::env::var_os("SOLERA_AT").unwrap_or_default();
    if mounted::device(path, prefix.as_bytes(), None).is_some() {
        if let Ok(process) = attach(path) {
            inherit(&process);
            for (fd, desc) in fdtable::all() {
                // A number that the mount does not give stays a placeholder.
                let _ = mounted::give(&process, fd, desc);
            }
            // A detach that fails is a death: the next attacher cleans up.
            let _ = process.fs.detach();
        }
    } else if let Ok(volume) = volume::resume(&token) {
        // As above.
        let _ = volume.leave();
    }
    forget_handover();
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn attach(path: &[u8]) -> Result<Process, String> {
    let prefix = std::env::var_os("SOLERA_AT")
        .map(OsStringExt::into_vec)
        .filter(|prefix| prefix.first() == Some(&b'/') && prefix.len() > 1)
        .ok_or("SOLERA_AT is not an absolute path below /: run programs with `solera run`")?;
    let mode = variable::parsed("SOLERA_MODE")?.unwrap_or_default();
    let numa = variable::parsed("SOLERA_NUMA")?.unwrap_or_default();
    let guarded = !variable::is("SOLERA_GUARD", "off", &["on"])?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    let (volume, is_lost) = take_over_or_attach(&path, mode)?;
    volume.set_numa(numa);
    volume.may_work_alone(thread::single());
    let lost = is_lost.then_some(&*volume);
    let mount = mounted::device(path.as_os_str().as_bytes(), &prefix, lost);
    let anchor = volume.anchor().ok_or("the volume has no anchor directory")?;
    let anchor = volume
        .inherited_anchor()
        .map_or_else(|| open_anchor(anchor), |fd| Ok(Arc::new(InternalFd::in_place(fd))))
        .map_err(|errno| {
            format!("anchor directory {}: {errno}; it must be readable", anchor.display())
        })?;
    let environment = std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .filter(|variable| {
            let passing = [handover::HELD, handover::CWD, handover::RESUME, handover::PROGRAM];
            variable.starts_with(b"SOLERA_")
                && !passing.iter().any(|name| variable.starts_with(name.as_bytes()))
        })
        .collect();
    let report = std::env::var_os("SOLERA_REPORT").map(OsStringExt::into_vec);
    volume.lend_anchor(Arc::clone(&anchor));
    let internal = volume.internal_descriptors();
    let in_flight = volume.anything_in_flight();
    let engine = Arc::clone(&volume);
    let mut process = Process::new(engine, prefix, anchor, &internal, environment, report)
        .map_err(|errno| format!("the volume does not answer: {errno}"))?;
    if guarded && volume.guard().is_err() {
        report::fell_back("(attach)", "no-protection-key");
    }
    process.fs.on_privileged_change(credentials::before_write);
    process.library = library_path();
    process.program =
        text(handover::PROGRAM).and_then(|said| handover::take_program(&process, &said));
    if let Some(device) = mount {
        (process.device, process.mounted) = (device, true);
    }
    IN_FLIGHT.store(in_flight, Ordering::Relaxed);
    Ok(process)
}

/// The attachment of the image before this one, or a new one; and whether the volume's path leads
/// to it no more.
fn take_over_or_attach(path: &Path, mode: volume::Mode) -> Result<(Arc<Volume>, bool), String> {
    match text(handover::RESUME).map(|token| volume::resume(&token)) {
        Some(Ok(volume)) => {
            RESUMED.store(true, Ordering::Relaxed);
            let lost = volume.lost_name();
            if let Some(told) = &lost {
                tell(told);
            }
            return Ok((volume, lost.is_some()));
        }
        Some(Err(error)) if error.kind() == volume::ErrorKind::Truncated => {
            return Err(error.to_string());
        }
        _ => {}
    }
    let read_only = std::env::var_os("SOLERA_READ_ONLY").is_some_and(|set| !set.is_empty());
    let options = AttachOptions { mode, read_only, ..AttachOptions::default() };
    let volume = volume::attach_permitted(path, &options).map_err(|error| error.to_string())?;
    if let Err(found) = mounted::check(&volume) {
        // Where that fails, the next one to attach cleans up.
        let _ = volume.leave();
        return Err(format!("cannot attach {}: {found}", path.display()));
    }
    if let Some(why) = volume.unchangeable().filter(|_| !read_only) {
        // The caller that asked for it knows.
        tell(&format!("{} can only be read, every change gives EROFS: {why}", path.display()));
    }
    Ok((volume, false))
}

/// A line on standard error.
pub fn tell(message: &str) {
    let line = format!("solera: {message}\n");
    // There is nobody else to tell.
    let _ = rustix::io::write(fdtable::borrow(2), line.as_bytes());
}

/// This image took over the one before it.
static RESUMED: AtomicBool = AtomicBool::new(false);

/// Something was in flight at the start: it may have come to this process.
static IN_FLIGHT: AtomicBool = AtomicBool::new(false);

/// Opens the anchor directory at a high number.
fn open_anchor(path: &std::path::Path) -> rustix::io::Result<Arc<InternalFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Arc::new(InternalFd::new(rustix::fs::open(path, flags, Mode::empty())?)))
}

/// The file of this library, as the dynamic linker opened it.
fn library_path() -> Vec<u8> {
    // SAFETY: asks about a function of ours; the answer's text lives as long as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(constructor as *const c_void, &raw mut info);
        if found == 0 || info.dli_fname.is_null() {
            return Vec::new();
        }
        CStr::from_ptr(info.dli_fname).to_bytes().to_vec()
    }
}

fn inherit(process: &Process) {
    fdtable::set_placeholder(std::os::fd::AsRawFd::as_raw_fd(&process.anchor));
    for fd in process.internal_numbers() {
        fdtable::hide(fd);
    }
    let held = text(handover::HELD);
    if held.is_some() || IN_FLIGHT.load(Ordering::Relaxed) {
        let cwd = text(handover::CWD);
        let resumed = RESUMED.load(Ordering::Relaxed);
        // The old image's locks are this one's.
        process.record_locks.store(resumed, Ordering::Relaxed);
        handover::take_over(process, resumed, &held.unwrap_or_default(), cwd.as_deref());
    }
    if process.mounted && process.cwd().node.is_none() {
        cwd::entered_kernel_directory(process);
    }
    forget_handover();
}

/// A child that slips past us (a raw `clone` and `execve`) must not take this image's place.
fn forget_handover() {
    for name in [c"SOLERA_HELD", c"SOLERA_CWD", c"SOLERA_RESUME", c"SOLERA_PROGRAM"] {
        // SAFETY: no other thread runs yet; glibc takes the entry out of the array in place.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
}
