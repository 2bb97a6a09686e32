//! The process's second engine, for files of a kernel file system below `SOLERA_SPLIT`: its start,
//! its forks, its end.
//!
//! Descriptors and paths are the kernel's own: a call that the volume leaves to the kernel comes
//! here first (see `arms`), and the engine says whether it can serve it from its mappings. Without
//! an engine that question is one load.
//!
//! A forked child begins without an engine: everything was handed over to the kernel before the
//! fork. It starts one of its own when it first opens something or moves data. A child of a raw
//! system call finds the page with the engine's address empty, and the kernel serves it.
//!
//! Locks: none here, and none is held across a fork: a child that finds the heap in use by a thread
//! that it does not have stays without an engine.

use std::ffi::{OsString, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use split::{Engine, Mode, Options};
use vfs::{Errno, variable};

use crate::entry::hooks::Duplicate;
use crate::entry::thread::here;
use crate::entry::{Inside, errno, set_errno};
use crate::processes::init::tell;
pub(crate) use crate::split::arms::{arm, call};
pub use crate::split::serve::*;
use crate::{entry::heap, entry::report, processes::lifecycle};
use crate::{signals::sigaction, signals::signal};

const PAGE_BYTES: usize = 4096;

/// The engine's address on a page of its own, which the kernel empties in forked children.
#[repr(C, align(4096))]
struct Page {
    engine: AtomicPtr<Engine>,
    rest: [u8; PAGE_BYTES - size_of::<AtomicPtr<Engine>>()],
}

static PAGE: Page = Page {
    engine: AtomicPtr::new(std::ptr::null_mut()),
    rest: [0; PAGE_BYTES - size_of::<AtomicPtr<Engine>>()],
};
/// The engine again: in a forked child its parent's, of which only the shared records are looked
/// at.
static KEPT: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());
/// How to start another one in a child.
static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());

/// Stands for an engine that this process starts when it opens something or moves data.
const DUE: *mut Engine = std::ptr::without_provenance_mut(1);

/// The engine, for a thread that is not inside, or passes a call on.
#[inline]
pub fn engine() -> Option<&'static Engine> {
    let engine = PAGE.engine.load(Ordering::Acquire);
    if engine.is_null() { None } else { usable(engine) }
}

/// Whether the calling thread makes a call of the program's.
pub fn calls() -> bool {
    let thread = here();
    !thread.is_inside() || thread.passes.load(Ordering::Relaxed)
}

fn usable(engine: *mut Engine) -> Option<&'static Engine> {
    if engine == DUE || !calls() {
        return None;
    }
    // SAFETY: published once and never freed.
    Some(unsafe { &*engine })
}

/// Whether there is an engine, or one to be started.
#[inline]
pub fn is_here() -> bool {
    !PAGE.engine.load(Ordering::Acquire).is_null()
}

/// The engine, which is started now if it is due.
#[inline]
pub fn started() -> Option<&'static Engine> {
    let engine = PAGE.engine.load(Ordering::Acquire);
    if engine.is_null() {
        return None;
    }
    if engine == DUE {
        start_late();
    }
    usable(PAGE.engine.load(Ordering::Acquire))
}

/// The engine; if it is due it is started now, unless no process has staged anything: then the
/// kernel's answers are right.
#[inline]
pub fn asked() -> Option<&'static Engine> {
    let engine = PAGE.engine.load(Ordering::Acquire);
    if engine == DUE { asked_late() } else { self::engine() }
}

#[cold]
fn asked_late() -> Option<&'static Engine> {
    // SAFETY: published once and never freed.
    let kept = unsafe { KEPT.load(Ordering::Acquire).as_ref() };
    if kept.is_some_and(|kept| inside(|| kept.anything_staged())) { started() } else { None }
}

fn publish(engine: Engine) {
    let engine = Box::into_raw(Box::new(engine));
    KEPT.store(engine, Ordering::Release);
    PAGE.engine.store(engine, Ordering::Release);
    let page = std::ptr::from_ref(&PAGE).cast_mut().cast::<c_void>();
    // SAFETY: a page of this library's own, which holds nothing else.
    let _ = unsafe { rustix::mm::madvise(page, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork) };
}

/// What `passes` is until dropped.
struct Passes(bool);

impl Passes {
    fn set(to: bool) -> Self {
        let passes = &here().passes;
        let before = passes.load(Ordering::Relaxed);
        passes.store(to, Ordering::Relaxed);
        Self(before)
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        here().passes.store(self.0, Ordering::Relaxed);
    }
}

/// Makes a call that the volume passes on to the kernel, from inside: with other arguments, or as
/// a part of what it does. The engine serves it as if the program had made it.
#[inline]
pub fn passing<T>(call: impl FnOnce() -> T) -> T {
    if !is_here() || !here().is_inside() {
        return call();
    }
    let _passes = Passes::set(true);
    call()
}

/// Runs `body` inside; `errno` is left as it was: waiting for a lock changes it.
pub fn inside<T>(body: impl FnOnce() -> T) -> T {
    let _inside = Inside::new();
    let _passes = Passes::set(false);
    let before = errno();
    let value = body();
    set_errno(before);
    value
}

/// Runs `body` inside, with `kernel` to be called in it, whose `errno` is the program's.
pub fn inside_with<T, K>(
    kernel: impl FnOnce() -> K,
    body: impl FnOnce(&mut dyn FnMut() -> K) -> T,
) -> T {
    let mut told = errno();
    let mut kernel = Some(kernel);
    let value = inside(|| {
        body(&mut || {
            // Called once: an engine serves one call.
            let kernel = kernel.take().unwrap_or_else(|| unreachable!("called twice"));
            set_errno(told);
            let result = kernel();
            told = errno();
            result
        })
    });
    set_errno(told);
    value
}

fn count_fallback(reason: &'static str) {
    report::fell_back("(split)", reason);
}

// ---- the beginning and the end

fn options(directory: OsString) -> Result<Options, String> {
    // Beside a volume, whose mode is the other.
    let own = variable::parsed("SOLERA_SPLIT_MODE")?;
    let mode = match own {
        Some(mode) => mode,
        None => variable::parsed("SOLERA_MODE")?.unwrap_or(Mode::Posix),
    };
    let mut options = Options::new(&PathBuf::from(directory), mode);
    options.emulate = std::env::var_os("SOLERA_EMULATE").is_some();
    if let Some(bytes) = variable::number("SOLERA_SPLIT_WINDOW")? {
        options.window_bytes = bytes;
    }
    if let Some(bytes) = variable::number("SOLERA_SPLIT_STAGING")? {
        options.staging_bytes = bytes;
    }
    if let Some(count) = variable::number("SOLERA_SPLIT_STAGING_FILES")? {
        options.staging_files = count as usize;
    }
    if let Some(bytes) = variable::number("SOLERA_SPLIT_LOG")? {
        options.log_bytes = bytes;
    }
    if let Some(calls) = variable::number("SOLERA_SPLIT_PATIENCE")? {
        options.patience = calls as usize;
    }
    if let Some(count) = variable::number("SOLERA_SPLIT_WINDOWS")? {
        options.windows = count as usize;
    }
    if let Some(technique) = variable::parsed("SOLERA_SPLIT_TECHNIQUE")? {
        options.technique = technique;
    }
    options.relink = variable::parsed("SOLERA_SPLIT_RELINK")?;
    options.check()?;
    Ok(options)
}

/// There is no engine, and the report is to say so.
static WITHOUT: AtomicBool = AtomicBool::new(false);

fn stay_without(reason: &'static str) {
    report::fell_back("(split)", reason);
    WITHOUT.store(true, Ordering::Relaxed);
}

/// Starts the engine if the environment asks for it. Inside.
pub fn start() {
    let Some(directory) = std::env::var_os("SOLERA_SPLIT") else { return };
    let started = options(directory).and_then(|options| {
        signal::start();
        let kept = options.clone();
        match Engine::start(options, count_fallback) {
            Ok(engine) => {
                OPTIONS.store(Box::into_raw(Box::new(kept)), Ordering::Release);
                publish(engine);
                Ok(())
            }
            Err(Errno::OPNOTSUPP) => {
                Err("this file system does not map with MAP_SYNC: use --mode \
                                          posix, or --emulate"
                    .to_owned())
            }
            Err(Errno::FBIG) => {
                stay_without("file-size-limit");
                Ok(())
            }
            // The kernel alone keeps what `posix` mode promises.
            Err(errno) if kept.mode == Mode::Posix => {
                let _ = errno;
                stay_without("no-hidden-directory");
                Ok(())
            }
            Err(errno) => Err(format!("{}: {errno}", kept.directory.display())),
        }
    });
    if let Err(message) = started {
        tell(&message);
        lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
    }
}

/// In a child, before it opens something: an engine of its own.
#[cold]
fn start_late() {
    let null = std::ptr::null_mut();
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if !calls() || PAGE.engine.compare_exchange(DUE, null, order.0, order.1).is_err() {
        return;
    }
    // SAFETY: published once and never freed.
    let Some(options) = (unsafe { OPTIONS.load(Ordering::Acquire).as_ref() }) else { return };
    inside(|| match Engine::start(options.clone(), count_fallback) {
        Ok(engine) => publish(engine),
        Err(_) => report::fell_back("(split)", "no-engine-in-child"),
    });
}

/// Everything goes to its place; from here on the kernel serves all.
pub fn leave() {
    let Some(engine) = engine() else {
        if WITHOUT.swap(false, Ordering::Relaxed)
            && let Some(path) = std::env::var_os("SOLERA_REPORT")
        {
            inside(|| report::write(&path.into_vec(), &[], ""));
        }
        return;
    };
    inside(|| {
        engine.stop();
        engine.hand_over_all();
        PAGE.engine.store(std::ptr::null_mut(), Ordering::Release);
        engine.leave();
        if let Some(path) = std::env::var_os("SOLERA_REPORT") {
            engine_report(engine);
            report::write(&path.into_vec(), &[], "");
            report::reset();
        }
    });
}

/// What the engine has used, as lines of the report.
fn engine_report(engine: &Engine) {
    let usage = engine.usage();
    let Some(path) = std::env::var_os("SOLERA_REPORT") else { return };
    let backend = usage.backend.map_or_else(|| "none".to_owned(), |backend| backend.to_string());
    let lines = [
        (usage.relinks, format!("relinks-by-{backend}")),
        (usage.relinked, "bytes-relinked".to_owned()),
        (usage.copied, "bytes-copied-by-relinks".to_owned()),
        (usage.relinking, "nanoseconds-in-relinks".to_owned()),
        (usage.windows as u64, "windows-most".to_owned()),
        (usage.windows_made, "windows-made".to_owned()),
        (usage.logged, "log-entries".to_owned()),
        (usage.checkpoints, "log-checkpoints".to_owned()),
        (usage.memory, "bytes-of-memory-most".to_owned()),
    ];
    let text: Vec<String> =
        lines.iter().map(|(count, what)| format!("{count} {what} (split) resource\n")).collect();
    let text = text.concat();
    let flags = rustix::fs::OFlags::WRONLY
        | rustix::fs::OFlags::APPEND
        | rustix::fs::OFlags::CREATE
        | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::from_raw_mode(0o600)) {
        // There is no place to report that the report cannot be written.
        let _ = rustix::io::write(&file, text.as_bytes());
    }
}

// ---- forks

/// Before the volume forks by itself, or executes something.
pub fn before_own_fork() {
    passing(hand_over_all);
}

/// In a child of such a fork; `executes`: it does nothing else, and stays without.
pub fn in_own_child(executes: bool) {
    if executes {
        PAGE.engine.store(std::ptr::null_mut(), Ordering::Release);
        inside(Engine::forget_inherited);
    } else {
        in_child();
    }
}

/// Before the volume moves data of a number that is the kernel's.
pub fn before_own_transfer(fd: c_int) {
    passing(|| hand_over(&[fd]));
}

/// Before the volume looks at the size and the position of a number that is the kernel's.
pub fn before_own_look(fd: c_int) {
    passing(|| place_kernel(fd));
}

/// `dup2` by the volume, where one of the two is its own: `kernel` makes it.
pub fn replaced_by_own(old: c_int, new: c_int, kernel: Duplicate<'_>) -> Result<(), Errno> {
    let Some(engine) = passing(engine) else { return kernel() };
    if Engine::is_internal(old) {
        return Err(Errno::BADF);
    }
    if Engine::is_internal(new) {
        return Err(Errno::BUSY);
    }
    inside(|| {
        let mut result = Ok(());
        engine.replace(old, new, || {
            result = kernel();
            if result.is_ok() { new } else { -1 }
        });
        result
    })
}

/// In a child: nothing of the parent's engine is used any more.
fn in_child() {
    PAGE.engine.store(std::ptr::null_mut(), Ordering::Release);
    if OPTIONS.load(Ordering::Acquire).is_null() {
        return;
    }
    inside(Engine::forget_inherited);
    // A thread that this process does not have may be in the heap for ever: then it stays without.
    if heap::is_free() && sigaction::is_free() {
        report::reset();
        PAGE.engine.store(DUE, Ordering::Release);
    }
}

/// Limits have changed: those on the size of files are the kernel's to enforce.
pub fn limited(kernel: impl FnOnce() -> c_int) -> c_int {
    // What was written before a limit is not subject to it.
    drain_all();
    let result = kernel();
    if let Some(engine) = engine() {
        inside(|| engine.limits_changed());
    }
    result
}

/// Everything is handed over to the kernel.
pub fn hand_over_all() {
    if let Some(engine) = engine() {
        inside(|| engine.hand_over_all());
    }
}

/// `sync`.
pub fn drain_all() {
    if let Some(engine) = engine() {
        // As above.
        let _ = inside(|| engine.drain_all());
    }
}
