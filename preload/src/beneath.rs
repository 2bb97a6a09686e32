//! The second engine: files of a kernel file system below `SOLERA_SPLIT`, in their own place.
//!
//! Here descriptors are the kernel's own and paths are nobody's concern: a call that the volume leaves
//! to the kernel comes here first (see `beneath_calls`), and the engine says whether it can serve it
//! from its mappings. Without an engine that question is one load.
//!
//! A forked child starts without: everything was handed over to the kernel before the fork, and it
//! starts an engine of its own when it first opens something. A child that was made behind our back
//! finds the page with the engine's address empty, and is the kernel's.
//!
//! Locks: none here but, across a fork, those of `sigaction` and `heap`.

use std::cell::UnsafeCell;
use std::ffi::{OsString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use split::{Engine, HOME_NAME, Mode, Options};
use vfs::{Errno, UserIn, UserOut};

pub(crate) use crate::beneath_calls::call;
use crate::entry::{Answer, Inside, Served, Stop, fail, set_errno};
use crate::lock::Guard;
use crate::pointers::{Bytes, Out, Text};
use crate::thread::here;
use crate::{fdtable, heap, lifecycle, report, rw, sigaction, signal, syscall};

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
/// How to start another one in a child.
static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());
/// This process may start one when it opens something.
static DUE: AtomicBool = AtomicBool::new(false);

/// The engine, for a thread that is not inside.
#[inline]
fn engine() -> Option<&'static Engine> {
    let engine = PAGE.engine.load(Ordering::Acquire);
    if engine.is_null() || here().is_inside() {
        return None;
    }
    // SAFETY: published once and never freed.
    Some(unsafe { &*engine })
}

fn publish(engine: Engine) {
    let engine = Box::into_raw(Box::new(engine));
    PAGE.engine.store(engine, Ordering::Release);
    let page = std::ptr::from_ref(&PAGE).cast_mut().cast::<c_void>();
    // SAFETY: a page of this library's own, which holds nothing else.
    let _ = unsafe { rustix::mm::madvise(page, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork) };
}

/// Runs `body` inside.
fn inside<T>(body: impl FnOnce() -> T) -> T {
    let _inside = Inside::new();
    body()
}

fn count_fallback(reason: &'static str) {
    report::fell_back("(split)", reason);
}

// ---- the beginning and the end

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn options(directory: OsString) -> Result<Options, String> {
    let mode: Mode = match std::env::var("SOLERA_MODE") {
        Ok(mode) => mode.parse()?,
        Err(_) => Mode::Posix,
    };
    let mut options = Options::new(&PathBuf::from(directory), mode);
    options.emulate = std::env::var_os("SOLERA_EMULATE").is_some();
    if let Some(bytes) = number("SOLERA_SPLIT_WINDOW") {
        options.window_bytes = bytes;
    }
    if let Some(bytes) = number("SOLERA_SPLIT_STAGING") {
        options.staging_bytes = bytes;
    }
    if let Some(count) = number("SOLERA_SPLIT_STAGING_FILES") {
        options.staging_files = count as usize;
    }
    if let Some(bytes) = number("SOLERA_SPLIT_LOG") {
        options.log_bytes = bytes;
    }
    if let Some(calls) = number("SOLERA_SPLIT_PATIENCE") {
        options.patience = calls as usize;
    }
    options.check()?;
    Ok(options)
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
                register();
                Ok(())
            }
            Err(Errno::OPNOTSUPP) => Err("this file system does not map with MAP_SYNC: use --mode \
                                          posix, or --emulate"
                .to_owned()),
            // What the kernel does is posix, without staging.
            Err(errno) if kept.mode == Mode::Posix => {
                report::fell_back("(split)", "no-hidden-directory");
                let _ = errno;
                Ok(())
            }
            Err(errno) => Err(format!("{}: {errno}", kept.directory.display())),
        }
    });
    if let Err(message) = started {
        let line = format!("solera: {message}\n");
        // There is nobody else to tell.
        let _ = rustix::io::write(fdtable::borrow(2), line.as_bytes());
        lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
    }
}

/// In a child, before it opens something: an engine of its own.
#[cold]
fn start_late() {
    if here().is_inside() || !DUE.swap(false, Ordering::AcqRel) {
        return;
    }
    // SAFETY: published once and never freed.
    let Some(options) = (unsafe { OPTIONS.load(Ordering::Acquire).as_ref() }) else { return };
    inside(|| match Engine::start(options.clone(), count_fallback) {
        Ok(engine) => publish(engine),
        Err(_) => report::fell_back("(split)", "no-engine-in-child"),
    });
}

unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        object: *mut c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
    fn __register_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        object: *mut c_void,
    ) -> c_int;
    fn fileno(stream: *mut libc::FILE) -> c_int;
}

extern "C" fn at_exit(_: *mut c_void) {
    leave();
}

fn register() {
    let null = std::ptr::null_mut();
    // SAFETY: functions of this library, which is never unloaded.
    unsafe {
        __cxa_atexit(at_exit, null, null);
        __cxa_at_quick_exit(at_exit, null);
        __register_atfork(Some(before_fork), Some(after_fork), Some(in_child), null);
    }
}

/// Everything goes to its place; from here on the kernel serves all.
pub fn leave() {
    let Some(engine) = engine() else { return };
    inside(|| {
        engine.hand_over_all();
        PAGE.engine.store(std::ptr::null_mut(), Ordering::Release);
        engine.leave();
        if let Some(path) = std::env::var_os("SOLERA_REPORT") {
            engine_report(engine);
            report::write(&path.into_vec());
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
        (usage.windows as u64, "windows-most".to_owned()),
        (usage.logged, "log-entries".to_owned()),
        (usage.checkpoints, "log-checkpoints".to_owned()),
        (usage.memory, "bytes-of-memory-most".to_owned()),
    ];
    let text: String =
        lines.iter().map(|(count, what)| format!("{count} {what} (split) resource\n")).collect();
    let flags = rustix::fs::OFlags::WRONLY
        | rustix::fs::OFlags::APPEND
        | rustix::fs::OFlags::CREATE
        | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::from_raw_mode(0o600)) {
        // A report that cannot be written has nowhere to say so.
        let _ = rustix::io::write(&file, text.as_bytes());
    }
}

// ---- forks

/// What is held across a fork.
struct Held {
    heap: Guard<'static, dlmalloc::Dlmalloc>,
    actions: Guard<'static, sigaction::Actions>,
    inside: Inside,
}

struct Place(UnsafeCell<Option<Held>>);
// SAFETY: used only by the thread that forks, which holds both locks, and by its image.
unsafe impl Sync for Place {}
static HELD: Place = Place(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let Some(engine) = engine() else { return };
    let inside = Inside::new();
    engine.hand_over_all();
    let actions = sigaction::lock();
    let heap = heap::lock();
    // SAFETY: this thread holds the locks.
    unsafe { *HELD.0.get() = Some(Held { heap, actions, inside }) };
}

fn release() -> bool {
    // SAFETY: only the thread that filled it, or its image in the child, comes here after it.
    let held = unsafe { (*HELD.0.get()).take() };
    let Some(Held { heap, actions, inside }) = held else { return false };
    drop(heap);
    drop(actions);
    drop(inside);
    true
}

extern "C" fn after_fork() {
    if engine().is_some() || here().is_inside() {
        release();
    }
}

extern "C" fn in_child() {
    PAGE.engine.store(std::ptr::null_mut(), Ordering::Release);
    if release() {
        inside(Engine::forget_inherited);
        report::reset();
        DUE.store(true, Ordering::Release);
    }
}

/// As [`crate::fork`] does: programs edit descriptors in the child, which would be the parent's table.
pub fn vfork(kernel: impl FnOnce() -> c_int) -> c_int {
    if engine().is_none() {
        return kernel();
    }
    // SAFETY: the program forks.
    unsafe { libc::fork() }
}

/// `daemon`, which forks and moves the three standard numbers by itself.
pub fn daemon(kernel: impl FnOnce() -> c_int) -> c_int {
    if let Some(engine) = engine() {
        inside(|| (0..3).for_each(|fd| engine.unknown(fd)));
    }
    kernel()
}

// ---- calls that may be served

#[inline]
fn answer<T: Answer>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| fail(errno))
}

/// Serves by `body`, or lets the kernel do it with both views brought together.
#[inline]
fn moved(
    fd: c_int,
    writes: bool,
    body: impl FnOnce(&'static Engine) -> Option<Result<usize, Errno>>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let Some(engine) = engine() else { return kernel() };
    match inside(|| body(engine)) {
        Some(result) => answer(result.map(|bytes| bytes as isize)),
        None => around(fd, writes, kernel),
    }
}

/// Lets the kernel serve a call on `fd`: outside, unless it is a file of ours.
pub fn around<T>(fd: c_int, writes: bool, kernel: impl FnOnce() -> T) -> T {
    let Some(engine) = engine() else { return kernel() };
    if inside(|| engine.serves(fd)) {
        return inside(|| engine.around(fd, writes, kernel));
    }
    inside(|| engine.before_kernel(fd));
    let value = kernel();
    if writes {
        inside(|| engine.kernel_wrote(fd, true));
    }
    value
}

/// The same for a second number of the call, maybe inside already.
pub fn around_inner<T>(fd: c_int, writes: bool, kernel: impl FnOnce() -> T) -> T {
    let engine = PAGE.engine.load(Ordering::Acquire);
    // SAFETY: published once and never freed.
    match unsafe { engine.as_ref() } {
        Some(engine) => inside(|| engine.around(fd, writes, kernel)),
        None => kernel(),
    }
}

/// `read`, `pread`.
#[inline]
pub fn read(
    fd: c_int,
    to: Bytes,
    len: usize,
    at: Option<i64>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let body = |engine: &'static Engine| {
        let at = place(at)?;
        let to = to.check(len).ok()?;
        engine.read(fd, at, &[to.sink(len.min(crate::entry::TRANSFER_BYTES_MAX))])
    };
    moved(fd, false, body, kernel)
}

/// `write`, `pwrite`.
#[inline]
pub fn write(
    fd: c_int,
    from: Bytes,
    len: usize,
    at: Option<i64>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let body = |engine: &'static Engine| {
        let at = place(at)?;
        let from = from.check(len).ok()?;
        engine.write(fd, at, &[from.source(len.min(crate::entry::TRANSFER_BYTES_MAX))])
    };
    moved(fd, true, body, kernel)
}

/// An offset that the kernel would take; `None`: it says what is wrong with it.
#[allow(clippy::option_option)] // Given or not, valid or not.
fn place(at: Option<i64>) -> Option<Option<u64>> {
    match at {
        None => Some(None),
        Some(at) => u64::try_from(at).ok().filter(|&at| at < 1 << 42).map(Some),
    }
}

/// `readv`, `preadv`.
pub fn read_vectors(
    fd: c_int,
    list: Out<libc::iovec>,
    count: c_int,
    at: Option<i64>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let body = |engine: &'static Engine| {
        let at = place(at)?;
        let pieces = rw::vectors(list, count).ok()?;
        let sinks: Vec<UserOut<'_>> =
            pieces.iter().map(|piece| Bytes(piece.iov_base).sink(piece.iov_len)).collect();
        engine.read(fd, at, &sinks)
    };
    moved(fd, false, body, kernel)
}

/// `writev`, `pwritev`.
pub fn write_vectors(
    fd: c_int,
    list: Out<libc::iovec>,
    count: c_int,
    at: Option<i64>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let body = |engine: &'static Engine| {
        let at = place(at)?;
        let pieces = rw::vectors(list, count).ok()?;
        let sources: Vec<UserIn<'_>> =
            pieces.iter().map(|piece| Bytes(piece.iov_base).source(piece.iov_len)).collect();
        engine.write(fd, at, &sources)
    };
    moved(fd, true, body, kernel)
}

/// `lseek`.
pub fn seek(fd: c_int, offset: i64, whence: c_int, kernel: impl FnOnce() -> i64) -> i64 {
    let Some(engine) = engine() else { return kernel() };
    match inside(|| engine.seek(fd, offset, whence)) {
        Some(result) => answer(result.map(|at| at as i64)),
        None => around(fd, false, kernel),
    }
}

/// `fsync` and its kin: what is staged goes to its place first.
pub fn sync(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if let Some(engine) = engine()
        && let Err(errno) = inside(|| engine.sync(fd))
    {
        return fail(errno);
    }
    kernel()
}

/// Before the program unlocks: who locks next must see what was written.
pub fn settle(fd: c_int) {
    if let Some(engine) = engine() {
        // What cannot be settled stays staged, and is tried again.
        let _ = inside(|| engine.sync(fd));
    }
}

/// `sync`.
pub fn settle_all() {
    if let Some(engine) = engine() {
        // As above.
        let _ = inside(|| engine.settle_all());
    }
}

/// `truncate`.
pub fn truncate(path: Text, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    let found = inside(|| {
        let found = rustix::fs::stat(path.bytes().ok()?).ok()?;
        engine.settle_path(&found);
        Some(found)
    });
    let result = kernel();
    if let Some(found) = found {
        inside(|| engine.changed(&found));
    }
    result
}

// ---- descriptors

/// A call that opens something.
#[inline]
pub fn opened(flags: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if DUE.load(Ordering::Relaxed) {
        start_late();
    }
    let fd = kernel();
    if fd >= 0
        && let Some(engine) = engine()
    {
        inside(|| engine.opened(fd, flags));
    }
    fd
}

/// `close`.
#[inline]
pub fn close(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    if Engine::is_internal(fd) {
        return fail(Errno::BADF);
    }
    let settled = inside(|| engine.close(fd));
    let result = kernel();
    match settled {
        Err(errno) if result == 0 => fail(errno),
        _ => result,
    }
}

/// `close_range`: the engine's own numbers stay.
pub fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    kernel: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let Some(engine) = engine() else { return kernel(first, last) };
    if first > last || flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
        return kernel(first, last);
    }
    let end = last.min(c_int::MAX as c_uint) as c_int;
    inside(|| engine.close_all(first as c_int, end));
    let own: Vec<c_uint> = inside(|| Engine::internal_numbers().map(|fd| fd as c_uint).collect());
    let mut from = first;
    for fd in own.into_iter().filter(|fd| (first..=last).contains(fd)) {
        if fd > from {
            let result = kernel(from, fd - 1);
            if result != 0 {
                return result;
            }
        }
        from = fd + 1;
    }
    if from <= last { kernel(from, last) } else { 0 }
}

/// `closefrom`.
pub fn close_from(first: c_int, kernel: impl FnOnce()) {
    if engine().is_none() {
        return kernel();
    }
    close_range(first.max(0) as c_uint, c_uint::MAX, 0, |from, to| {
        let arguments = [from as usize, to as usize, 0, 0, 0, 0];
        syscall::kernel(libc::SYS_close_range, arguments) as c_int
    });
}

/// `dup`, `F_DUPFD`.
pub fn duplicated(old: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    if Engine::is_internal(old) {
        return fail(Errno::BADF);
    }
    inside(|| engine.duplicates(old));
    let new = kernel();
    if new >= 0 {
        inside(|| engine.duplicated(old, new));
    }
    new
}

/// `dup2`, `dup3`.
pub fn replaced(old: c_int, new: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if engine().is_some() && Engine::is_internal(new) {
        return fail(Errno::BADF);
    }
    duplicated(old, kernel)
}

/// `fcntl`.
pub fn control(
    fd: c_int,
    command: c_int,
    argument: usize,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, kernel),
        libc::F_SETFL => {
            let result = kernel();
            if result == 0 {
                inside(|| engine.flags_changed(fd));
            }
            result
        }
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            let lock = inside(|| Out(argument as *mut libc::flock).value());
            if lock.is_ok_and(|lock| c_int::from(lock.l_type) == libc::F_UNLCK) {
                settle(fd);
            }
            kernel()
        }
        _ => kernel(),
    }
}

/// The kernel's positions of these numbers count from here on.
pub fn hand_over(numbers: &[c_int]) {
    if let Some(engine) = engine() {
        inside(|| {
            for &fd in numbers {
                engine.hand_over(fd);
                engine.before_kernel(fd);
            }
        });
    }
}

/// Everything is handed over to the kernel.
pub fn hand_over_all() {
    if let Some(engine) = engine() {
        inside(|| engine.hand_over_all());
    }
}

/// A message is sent: descriptors may be in it.
pub fn sends(messages: &[*const libc::msghdr]) {
    if let Some(engine) = engine() {
        let carries = |&message: &*const libc::msghdr| {
            Out(message.cast_mut()).value().is_ok_and(|message| message.msg_controllen > 0)
        };
        inside(|| {
            if messages.iter().any(carries) {
                engine.hand_over_all();
            }
        });
    }
}

/// The program maps `fd`.
pub fn mapped(fd: c_int) {
    if let Some(engine) = engine() {
        inside(|| engine.mapped(fd));
    }
}

/// A call of the C library that opens a stream.
pub fn stream(kernel: impl FnOnce() -> *mut libc::FILE) -> *mut libc::FILE {
    let stream = kernel();
    if let Some(engine) = engine()
        && !stream.is_null()
    {
        // SAFETY: a stream that was just opened.
        let fd = unsafe { fileno(stream) };
        inside(|| {
            engine.unknown(fd);
            engine.before_kernel(fd);
        });
    }
    stream
}

/// The C library works on `fd` from here on.
pub fn left_to_stream(fd: c_int) {
    if let Some(engine) = engine() {
        inside(|| engine.left_to_stream(fd));
    }
}

// ---- what is said of files

/// The `stat` family.
#[inline]
pub fn stat(out: Out<libc::stat>, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    if !engine.concerns_paths() {
        return kernel();
    }
    inside(|| engine.renew_times());
    let result = kernel();
    if result == 0 {
        inside(|| {
            if let Ok(mut found) = out.value()
                && found.st_mode & libc::S_IFMT == libc::S_IFREG
                && let Some(size) = engine.size_of(found.st_dev, found.st_ino)
            {
                found.st_size = size as i64;
                // It could be read.
                let _ = out.put(found);
            }
        });
    }
    result
}

/// `statx`.
pub fn statx(out: Out<libc::statx>, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine() else { return kernel() };
    if !engine.concerns_paths() {
        return kernel();
    }
    inside(|| engine.renew_times());
    let result = kernel();
    if result == 0 {
        inside(|| {
            if let Ok(mut found) = out.value()
                && u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFREG
                && let Some(size) = engine.size_of(
                    libc::makedev(found.stx_dev_major, found.stx_dev_minor),
                    found.stx_ino,
                )
            {
                found.stx_size = size;
                // It could be read.
                let _ = out.put(found);
            }
        });
    }
    result
}

/// Before the program sets times.
pub fn renew_times() {
    if let Some(engine) = engine() {
        inside(|| engine.renew_times());
    }
}

/// `readdir`: the hidden directory is not told of.
pub fn next_entry(kernel: impl Fn() -> *mut libc::dirent64) -> *mut libc::dirent64 {
    loop {
        let entry = kernel();
        if entry.is_null() || engine().is_none() {
            return entry;
        }
        // SAFETY: the C library's entry, valid until the next call.
        let name = unsafe { std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()) };
        if name.to_bytes() != HOME_NAME.as_bytes() {
            return entry;
        }
    }
}

// ---- others

/// Serves a call by `body` while there is an engine.
pub fn instead<T: Answer>(
    body: impl FnOnce() -> Served<T>,
    kernel: impl FnOnce() -> T,
) -> T {
    if engine().is_none() {
        return kernel();
    }
    match inside(body) {
        Ok(value) => value,
        Err(Stop::Errno(errno)) => fail(errno),
        Err(_) => kernel(),
    }
}

/// `syscall`: those on descriptors go by their functions.
pub fn by_number(
    number: std::ffi::c_long,
    arguments: [usize; 6],
    kernel: impl FnOnce() -> std::ffi::c_long,
) -> std::ffi::c_long {
    if engine().is_none() {
        return kernel();
    }
    let before = crate::entry::errno();
    match syscall::by_function(number, arguments) {
        Some(value) => value,
        None => {
            set_errno(before);
            kernel()
        }
    }
}
