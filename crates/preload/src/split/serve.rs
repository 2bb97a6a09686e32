//! The calls on files of the second engine: each asks the engine, and else the kernel.

use std::ffi::{c_int, c_uint};

use split::{Engine, HOME_NAME};
use vfs::{Errno, UserIn, UserOut};

use crate::entry::attachment;
use crate::entry::fdtable;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::{Answer, Served, Stop, fail};
use crate::files::rw;
use crate::split::engine::{asked, calls, engine, inside, inside_with, is_here, started};

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
    let Some(engine) = started() else { return kernel() };
    let served = inside(|| if engine.leaves_first(fd) { Err(()) } else { Ok(body(engine)) });
    match served {
        Ok(Some(result)) => answer(result.map(|bytes| bytes as isize)),
        Ok(None) => around(fd, writes, kernel),
        Err(()) => kernel(),
    }
}

/// Lets the kernel serve a call on `fd`: outside, unless it is a file of ours.
pub fn around<T: Answer>(fd: c_int, writes: bool, kernel: impl FnOnce() -> T) -> T {
    let Some(engine) = asked() else { return kernel() };
    if Engine::is_internal(fd) {
        return fail(Errno::BADF);
    }
    if inside(|| engine.serves(fd)) {
        return inside_with(kernel, |kernel| engine.around(fd, writes, kernel));
    }
    inside(|| engine.before_kernel(fd));
    let value = kernel();
    if writes {
        inside(|| engine.kernel_wrote(fd, true));
    }
    value
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
    let Some(engine) = asked() else { return kernel() };
    match inside(|| engine.seek(fd, offset, whence)) {
        Some(result) => answer(result.map(|at| at as i64)),
        None => around(fd, false, kernel),
    }
}

/// `fsync` and its kin: what is staged goes to its place first.
pub fn sync(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if let Some(engine) = asked()
        && let Err(errno) = inside(|| engine.sync(fd))
    {
        return fail(errno);
    }
    kernel()
}

/// Before the program unlocks: the next holder must see what was written.
pub fn drain(fd: c_int) {
    if let Some(engine) = asked() {
        // What cannot be drained stays staged, and is tried again.
        let _ = inside(|| engine.sync(fd));
    }
}

/// `truncate`.
pub fn truncate(path: Text, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = asked() else { return kernel() };
    let found = inside(|| {
        let path = path.bytes().ok()?;
        let found = rustix::fs::stat(path).ok()?;
        engine.drain_path(&found, path);
        Some(found)
    });
    let result = kernel();
    if let Some(found) = found {
        inside(|| engine.changed(&found));
    }
    result
}

/// A call that removes a name, or gives it to another file.
#[inline]
pub fn removed(directory: c_int, path: Text, kernel: impl FnOnce() -> c_int) -> c_int {
    let Some(engine) = engine().filter(|engine| engine.may_rest_anywhere()) else {
        return kernel();
    };
    let found = inside(|| {
        let path = path.bytes().ok().filter(|path| engine.may_rest(path))?;
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(fdtable::borrow_directory(directory), path, flags).ok()
    });
    let result = kernel();
    if result == 0
        && let Some(found) = found
    {
        inside(|| engine.removed(&found));
    }
    result
}

/// A call that gives the file `from` another name; `follows`: or the one that this leads to.
#[inline]
pub fn named(from: Text, follows: bool, to: Text, kernel: impl FnOnce() -> c_int) -> c_int {
    let result = kernel();
    if result == 0
        && let Some(engine) = engine()
        && engine.may_rest_anywhere()
    {
        inside(|| {
            if let (Ok(from), Ok(to)) = (from.bytes(), to.bytes()) {
                engine.named((!follows).then_some(from), to);
            }
        });
    }
    result
}

// ---- descriptors

/// A call that opens something.
#[inline]
pub fn opened(flags: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let fd = kernel();
    if fd >= 0
        && let Some(engine) = started()
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
    let drained = inside(|| engine.close(fd));
    let result = kernel();
    match drained {
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
    // It closes nothing, or refuses the flags.
    if first > last || flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) != 0 {
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
    let Some(engine) = engine() else { return kernel() };
    if Engine::is_internal(old) {
        return fail(Errno::BADF);
    }
    if Engine::is_internal(new) {
        return fail(Errno::BUSY);
    }
    inside_with(kernel, |kernel| engine.replace(old, new, kernel))
}

/// `fcntl`.
pub fn control(
    fd: c_int,
    command: c_int,
    argument: usize,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    // What is locked must be known before it is used.
    let locks = matches!(
        command,
        libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
            | libc::F_OFD_GETLK
    );
    let Some(engine) = (if locks { started() } else { engine() }) else { return kernel() };
    if Engine::is_internal(fd) {
        return fail(Errno::BADF);
    }
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
                drain(fd);
            } else if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
                before_lock(fd);
            }
            placed(fd, lock);
            kernel()
        }
        libc::F_GETLK | libc::F_OFD_GETLK => {
            placed(fd, inside(|| Out(argument as *mut libc::flock).value()));
            kernel()
        }
        _ => kernel(),
    }
}

/// Before a lock that may begin at the position or at the end.
fn placed(fd: c_int, lock: Result<libc::flock, Errno>) {
    if lock.is_ok_and(|lock| c_int::from(lock.l_whence) != libc::SEEK_SET) {
        place_kernel(fd);
    }
}

/// Makes the kernel's position and size of a file right for the next call.
pub fn place_kernel(fd: c_int) {
    if let Some(engine) = asked() {
        inside(|| engine.place_kernel(fd));
    }
}

/// The kernel's positions of these numbers count from here on.
pub fn hand_over(numbers: &[c_int]) {
    if let Some(engine) = asked() {
        inside(|| {
            for &fd in numbers {
                engine.hand_over(fd);
                engine.before_kernel(fd);
            }
        });
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
    if let Some(engine) = asked() {
        inside(|| engine.mapped(fd));
    }
}

// ---- what is said of files

/// The `stat` family. What this process has staged for the file goes to its place first: then times
/// and blocks are right, and nothing moves them later.
#[inline]
pub fn stat(out: Out<libc::stat>, kernel: impl Fn() -> c_int) -> c_int {
    let Some(engine) = asked() else { return kernel() };
    if !engine.concerns_paths() {
        return kernel();
    }
    if engine.has_old_times() {
        inside(|| engine.renew_times());
    }
    let mut result = kernel();
    if !engine.anything_staged() {
        return result;
    }
    let staged = || {
        let found = out.value().ok()?;
        let regular = found.st_mode & libc::S_IFMT == libc::S_IFREG;
        (regular && engine.may_have_staged(found.st_dev, found.st_ino)).then_some(found)
    };
    let Some(found) = inside(|| staged().filter(|_| result == 0)) else { return result };
    if inside(|| engine.drain_own(found.st_ino)) {
        result = kernel();
    }
    if result == 0 {
        inside(|| {
            if let Some(mut found) = staged()
                && let Some(size) = engine.size_of(found.st_ino, found.st_size as u64)
            {
                found.st_size = size as i64;
                // It could be read.
                let _ = out.put(found);
            }
        });
    }
    result
}

/// `fstat`: the engine's own numbers are not open, as far as the program can tell.
#[inline]
pub fn stat_number(fd: c_int, out: Out<libc::stat>, kernel: impl Fn() -> c_int) -> c_int {
    if engine().is_some() && Engine::is_internal(fd) {
        return fail(Errno::BADF);
    }
    stat(out, kernel)
}

/// `statx`, as [`stat`].
pub fn statx(out: Out<libc::statx>, kernel: impl Fn() -> c_int) -> c_int {
    let Some(engine) = asked() else { return kernel() };
    if !engine.concerns_paths() {
        return kernel();
    }
    if engine.has_old_times() {
        inside(|| engine.renew_times());
    }
    let mut result = kernel();
    let staged = || {
        let found = out.value().ok()?;
        let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
        let regular = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        (regular && engine.may_have_staged(device, found.stx_ino)).then_some(found)
    };
    let Some(found) = inside(|| staged().filter(|_| result == 0)) else { return result };
    if inside(|| engine.drain_own(found.stx_ino)) {
        result = kernel();
    }
    if result == 0 {
        inside(|| {
            if let Some(mut found) = staged()
                && let Some(size) = engine.size_of(found.stx_ino, found.stx_size)
            {
                found.stx_size = size;
                // It could be read.
                let _ = out.put(found);
            }
        });
    }
    result
}

/// Before the program sets times, or rights: what is written later would change them again.
pub fn drain_changes() {
    if let Some(engine) = asked()
        && engine.concerns_paths()
    {
        // What cannot be drained stays staged, and is tried again.
        let _ = inside(|| engine.drain_all());
    }
}

/// Before `lockf`.
pub fn before_lock(fd: c_int) {
    if let Some(engine) = started() {
        inside(|| engine.before_lock(fd));
    }
}

/// `getdents64`: the same.
pub fn entries(to: Bytes, kernel: impl Fn() -> isize) -> isize {
    loop {
        let told = kernel();
        let (Ok(bytes), Some(_)) = (usize::try_from(told), engine()) else { return told };
        // SAFETY: the kernel has filled so many bytes of the program's buffer.
        let list = unsafe { std::slice::from_raw_parts_mut(to.0.cast::<u8>(), bytes) };
        let left = without_home(list);
        if left > 0 || bytes == 0 {
            return left as isize;
        }
        // Nothing but the hidden one: the next ones, for none would be the end.
    }
}

/// Takes the hidden directory out of a list of `struct dirent64`; gives the bytes that are left.
fn without_home(list: &mut [u8]) -> usize {
    /// Where an entry's length and name stand in it.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let (mut at, mut end) = (0, list.len());
    while at + NAME < end {
        let size = usize::from(u16::from_ne_bytes([list[at + LENGTH], list[at + LENGTH + 1]]));
        if size <= NAME || at + size > end {
            break;
        }
        let name = &list[at + NAME..at + size];
        if name.starts_with(HOME_NAME.as_bytes()) && name.get(HOME_NAME.len()) == Some(&0) {
            list.copy_within(at + size..end, at);
            end -= size;
        } else {
            at += size;
        }
    }
    end
}

// ---- others

/// Serves a call by `body` while there is an engine.
pub fn instead<T: Answer>(body: impl FnOnce() -> Served<T>, kernel: impl FnOnce() -> T) -> T {
    if engine().is_none() {
        return kernel();
    }
    match inside(body) {
        Ok(value) => value,
        Err(Stop::Errno(errno)) => fail(errno),
        Err(_) => kernel(),
    }
}

/// As [`instead`], where no volume is attached: else that has served it.
pub fn alone<T: Answer>(body: impl FnOnce() -> Served<T>, kernel: impl FnOnce() -> T) -> T {
    if attachment::attached().is_some() { kernel() } else { instead(body, kernel) }
}

/// As [`instead`], also where the engine is yet to start, as in a forked child.
pub fn always<T: Answer>(body: impl FnOnce() -> Served<T>, kernel: impl FnOnce() -> T) -> T {
    if !is_here() || !calls() {
        return kernel();
    }
    match inside(body) {
        Ok(value) => value,
        Err(Stop::Errno(errno)) => fail(errno),
        Err(_) => kernel(),
    }
}

/// As [`instead`], also where the engine is yet to start: a ring would work past it.
pub fn ring_instead<T: Answer>(body: impl FnOnce() -> Served<T>, kernel: impl FnOnce() -> T) -> T {
    let _ = started();
    instead(body, kernel)
}
