//! stdio over the volume: `fopen`, `freopen`, `fdopen`, the three standard streams, `perror`.
//!
//! glibc reads and writes *inside* its `FILE`s, where nothing can be interposed. So streams on the
//! volume are `fopencookie` streams, real `FILE`s whose functions are `read`, `write`, `lseek` and
//! `close` of this library on the stream's descriptor *number*. `fileno` works because `_fileno` is
//! set in the structure: the first fields of glibc's `FILE` have had fixed places since 1999, as
//! the macros of old programs access them.
//!
//! When descriptor 0, 1 or 2 becomes ours (at start, or by `dup2`), the variable `stdin`, `stdout`
//! or `stderr` is pointed to such a stream, with the buffering and the unwritten bytes of the old
//! one. It stays there: its functions go by the number, whatever that stands for later.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::FILE;
use vfs::Errno;

use crate::descriptors::open::open_at;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::fdtable::ours;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Real, Served, Stop, outside};
use crate::paths::{self, Target};

/// The beginning of glibc's `struct _IO_FILE` on 64-bit machines.
#[repr(C)]
struct Head {
    flags: c_int,
    read: [*mut u8; 3],
    write_base: *mut u8,
    write_ptr: *mut u8,
    write_end: *mut u8,
    others: [*mut u8; 5],
    markers: *mut c_void,
    chain: *mut c_void,
    fileno: c_int,
    flags2: c_int,
    old_offset: i64,
    column: u64,
    lock: *mut c_void,
    offset: i64,
    rest: [u64; 8],
    vtable: usize,
}
const _: () = assert!(std::mem::offset_of!(Head, fileno) == 112);
const _: () = assert!(std::mem::offset_of!(Head, offset) == 144);
const _: () = assert!(std::mem::offset_of!(Head, vtable) == 216);

const UNBUFFERED: c_int = 0x2;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const LINE_BUFFERED: c_int = 0x200;
const WRITING: c_int = 0x800;
const APPENDING: c_int = 0x1000;

#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize) -> isize,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize) -> isize,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

// The cookie is the number. These run outside: the calls are the interposed ones.
unsafe extern "C-unwind" fn cookie_read(cookie: *mut c_void, to: *mut c_void, len: usize) -> isize {
    // SAFETY: stdio's own buffer.
    unsafe { libc::read(cookie as c_int, to, len) }
}
unsafe extern "C-unwind" fn cookie_write(
    cookie: *mut c_void,
    from: *const c_void,
    len: usize,
) -> isize {
    let mut done = 0;
    while done < len {
        // SAFETY: inside stdio's own buffer.
        let wrote = unsafe { libc::write(cookie as c_int, from.byte_add(done), len - done) };
        if wrote <= 0 {
            break;
        }
        done += wrote as usize;
    }
    done as isize
}
unsafe extern "C-unwind" fn cookie_seek(
    cookie: *mut c_void,
    offset: *mut i64,
    whence: c_int,
) -> c_int {
    // SAFETY: stdio's own variable.
    unsafe {
        let at = libc::lseek(cookie as c_int, *offset, whence);
        if at < 0 {
            return -1;
        }
        *offset = at;
    }
    0
}
unsafe extern "C-unwind" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: the number is the stream's.
    unsafe { libc::close(cookie as c_int) }
}

/// The table of functions of glibc's cookie streams: tells ours from ordinary ones.
static COOKIE_VTABLE: AtomicUsize = AtomicUsize::new(0);
/// `stdin`, `stdout`, `stderr` have been replaced.
static REPLACED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// The standard streams stay as they are.
static LEFT: AtomicBool = AtomicBool::new(false);

/// In a child that only prepares an exec, as between `vfork` and `exec`: it writes no streams, and
/// must not use glibc's heap, which another thread may have been changing at the fork.
pub fn leave_streams() {
    LEFT.store(true, Ordering::Relaxed);
}

fn head(stream: *mut FILE) -> *mut Head {
    stream.cast()
}

/// Longest text that `perror` puts before its message.
const MESSAGE_MAX: usize = 1 << 20;

/// What a mode such as `"r+"` means: the flags of `open`, and the mode without decorations.
struct Parsed {
    flags: c_int,
    plain: &'static CStr,
}

fn parse(mode: Text) -> Result<Parsed, Errno> {
    let mode = mode.bytes()?;
    let plus = mode.iter().take_while(|&&byte| byte != b',').any(|&byte| byte == b'+');
    let access = if plus { libc::O_RDWR } else { libc::O_WRONLY };
    let (mut flags, plain) = match (mode.first(), plus) {
        (Some(b'r'), false) => (libc::O_RDONLY, c"r"),
        (Some(b'r'), true) => (libc::O_RDWR, c"r+"),
        (Some(b'w'), _) => {
            (access | libc::O_CREAT | libc::O_TRUNC, if plus { c"w+" } else { c"w" })
        }
        (Some(b'a'), _) => {
            (access | libc::O_CREAT | libc::O_APPEND, if plus { c"a+" } else { c"a" })
        }
        _ => return Err(Errno::INVAL),
    };
    for byte in mode.iter().take_while(|&&byte| byte != b',') {
        match byte {
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            _ => {}
        }
    }
    Ok(Parsed { flags, plain })
}

/// A stream over the number `fd`.
pub fn stream(fd: c_int, mode: &CStr) -> Result<*mut FILE, Errno> {
    let functions = Functions {
        read: cookie_read,
        write: cookie_write,
        seek: cookie_seek,
        close: cookie_close,
    };
    // SAFETY: functions of the demanded types, a cookie that they understand.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode.as_ptr(), functions) };
    if stream.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: a new stream of glibc's, whose layout is asserted above.
    unsafe {
        (*head(stream)).fileno = fd;
        COOKIE_VTABLE.store((*head(stream)).vtable, Ordering::Relaxed);
    }
    Ok(stream)
}

fn is_cookie(stream: *mut FILE) -> bool {
    // SAFETY: a stream of the program's.
    let vtable = unsafe { (*head(stream)).vtable };
    vtable == COOKIE_VTABLE.load(Ordering::Relaxed)
}

/// Whether a stream is one that this library made.
pub fn is_of_volume(stream: *mut FILE) -> bool {
    // SAFETY: a stream of the program's; its own cookie streams have no number.
    !stream.is_null() && is_cookie(stream) && unsafe { (*head(stream)).fileno } >= 0
}

/// A stream's number; negative: none.
pub fn number_of(stream: *mut FILE) -> c_int {
    // SAFETY: a stream of the program's.
    if stream.is_null() { -1 } else { unsafe { (*head(stream)).fileno } }
}

/// A standard number has become ours: its stream must go through us.
pub fn standard_taken(fd: c_int) {
    if !LEFT.load(Ordering::Relaxed) && !REPLACED[fd as usize].load(Ordering::Relaxed) {
        replace(fd);
    }
}

fn replace(fd: c_int) {
    let variable = match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    };
    // SAFETY: glibc's variables; a program that redirects its standard streams while other threads
    // print to them has no defined output without us either.
    unsafe {
        let old = *variable;
        if old.is_null() || (*head(old)).fileno != fd {
            return;
        }
        let Ok(new) = stream(fd, if fd == 0 { c"r" } else { c"w" }) else {
            return;
        };
        let flags = (*head(old)).flags;
        let null = std::ptr::null_mut();
        if fd == 2 || flags & UNBUFFERED != 0 {
            libc::setvbuf(new, null, libc::_IONBF, 0);
        } else if flags & LINE_BUFFERED != 0 {
            libc::setvbuf(new, null, libc::_IOLBF, 0);
        }
        let unwritten = (*head(old)).write_ptr as usize - (*head(old)).write_base as usize;
        if fd != 0 && flags & WRITING != 0 && unwritten > 0 {
            outside(|| libc::fwrite((*head(old)).write_base.cast(), 1, unwritten, new));
            (*head(old)).write_ptr = (*head(old)).write_base;
        }
        *variable = new;
    }
    REPLACED[fd as usize].store(true, Ordering::Relaxed);
}

pub fn open_stream(
    process: &Process,
    path: Text,
    mode: Text,
    kernel: impl Fn(Text) -> *mut FILE,
) -> Served<*mut FILE> {
    let parsed = parse(mode)?;
    let elsewhere = std::cell::Cell::new(None);
    let open = |_, path| {
        elsewhere.set(Some(kernel(Text(path))));
        0
    };
    let fd = open_at(process, open, libc::AT_FDCWD, path, parsed.flags, 0o666)?;
    if let Some(answer) = elsewhere.get() {
        return Ok(answer);
    }
    // `ftell` on a stream that only appends counts from the end at once.
    if parsed.plain == c"a"
        && let Some(desc) = fdtable::get(fd)
    {
        process.fs.seek(desc, 0, vfs::Whence::End)?;
    }
    match stream(fd, parsed.plain) {
        Ok(stream) => Ok(stream),
        Err(errno) => {
            process.close(fd)?;
            Err(Stop::Errno(errno))
        }
    }
}

/// `fdopen`.
pub fn open_number(process: &Process, fd: c_int, mode: Text) -> Served<*mut FILE> {
    let desc = ours(fd)?;
    let parsed = parse(mode)?;
    let (_, flags) = process.fs.describe(desc)?;
    let reads = parsed.flags & libc::O_ACCMODE != libc::O_WRONLY;
    let writes = parsed.flags & libc::O_ACCMODE != libc::O_RDONLY;
    if reads && !flags.reads() || writes && !flags.writes() {
        return Err(Stop::Errno(Errno::INVAL));
    }
    if parsed.flags & libc::O_APPEND != 0 && !flags.appends() {
        process.fs.set_flags(desc, vfs::OpenFlags(flags.0 | libc::O_APPEND))?;
    }
    Ok(stream(fd, parsed.plain)?)
}

/// `perror` onto a file of ours.
pub fn print_error(text: Text) -> Served<()> {
    ours(2)?;
    let number = crate::entry::errno();
    let text = text.within(MESSAGE_MAX, Errno::TOOBIG).unwrap_or_default();
    let mut line = if text.is_empty() { Vec::new() } else { [text, b": "].concat() };
    // SAFETY: gives a text of its own.
    line.extend_from_slice(unsafe { CStr::from_ptr(error_text(number)) }.to_bytes());
    line.push(b'\n');
    outside(|| {
        // SAFETY: the program's own stream and a buffer of ours.
        unsafe { libc::fwrite(line.as_ptr().cast(), 1, line.len(), stderr) }
    });
    Ok(())
}

/// `freopen` where the stream or the path is ours. A stream of ours keeps its number and address;
/// an ordinary one is closed and a new one given.
pub fn reopen(
    process: &Process,
    path: Text,
    mode: Text,
    old: *mut FILE,
    kernel: impl Fn(Text) -> *mut FILE,
) -> Served<*mut FILE> {
    // SAFETY: a stream of the program's.
    let fd = unsafe { (*head(old)).fileno };
    let cookie = is_cookie(old) && fd >= 0;
    if path.0.is_null() {
        if !cookie {
            return Err(Stop::Kernel);
        }
        fdtable::get(fd).inspect(|desc| report::about(desc.member()));
        return Err(Stop::Refused("freopen-mode", Errno::BADF));
    }
    let text = path.bytes()?;
    let target = paths::resolve(process, libc::AT_FDCWD, text, true);
    if !cookie && matches!(target, Ok(Target::Kernel | Target::Elsewhere(_))) {
        return match target {
            Ok(Target::Elsewhere(path)) => {
                let _until_it_ends = cached_fd::Closes::new();
                Ok(kernel(Text(path.as_ptr())))
            }
            _ => Err(Stop::Kernel),
        };
    }
    let parsed = parse(mode)?;
    // SAFETY: calls as the program would make them, on its own stream.
    outside(|| unsafe {
        libc::fflush(old);
        let new = libc::open(path.0, parsed.flags, 0o666);
        if new < 0 {
            let errno = crate::entry::errno();
            libc::fclose(old);
            return Err(Stop::Errno(Errno::from_raw_os_error(errno)));
        }
        if !cookie && !(0..3).contains(&fd) {
            libc::fclose(old);
            return Ok(stream(new, parsed.plain)?);
        }
        let cloexec = parsed.flags & libc::O_CLOEXEC;
        if new != fd {
            libc::dup3(new, fd, cloexec);
            libc::close(new);
        }
        if !cookie {
            // The number is ours now, so the variable was replaced.
            return Ok(match fd {
                0 => stdin,
                1 => stdout,
                _ => stderr,
            });
        }
        __fpurge(old);
        libc::clearerr(old);
        let access = parsed.flags & libc::O_ACCMODE;
        let refused = match access {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if parsed.flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
        let kept = (*head(old)).flags & !(NO_READS | NO_WRITES | APPENDING);
        (*head(old)).flags = kept | refused | appends;
        (*head(old)).offset = -1;
        Ok(old)
    })
}

/// Writes out all streams, and puts the position of the standard input back to what was read from
/// the stream: what glibc does at exit, before the process leaves the volume.
pub fn flush_all() {
    // SAFETY: NULL means all streams for writing; the other is glibc's variable.
    outside(|| unsafe {
        libc::fflush(std::ptr::null_mut());
        if REPLACED[0].load(Ordering::Relaxed) && !stdin.is_null() {
            libc::fflush(stdin);
        }
    });
}

/// For `popen`: an ordinary stream over a pipe's end.
pub fn ordinary(fd: c_int, mode: &CStr) -> *mut FILE {
    // SAFETY: a number of the program's and a mode.
    outside(|| unsafe { libc::fdopen(fd, mode.as_ptr()) })
}

/// The C library's text, in the program's language.
fn error_text(number: c_int) -> *const c_char {
    static REAL: Real = Real::new("strerror\0");
    type Function = unsafe extern "C" fn(c_int) -> *const c_char;
    let real = REAL.address();
    // SAFETY: the C library's function of this name.
    unsafe { std::mem::transmute::<usize, Function>(real)(number) }
}
