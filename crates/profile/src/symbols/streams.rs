//! Streams. What glibc's own streams read and write is not seen: that happens inside glibc. The
//! streams of a volume's files call back into the preload library, and those calls are seen here:
//! as reads and writes of the stream's descriptor, which they are.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::FILE;
use record::Kind;

use crate::descriptors;
use crate::next_symbol::keeping_errno;
use crate::symbols::timed;
use crate::timing::{closed, on, opened};

type Text = *const c_char;
type Read = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize) -> isize;
type Write = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize) -> isize;
type Seek = unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int;
type Close = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// `cookie_io_functions_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: Option<Read>,
    write: Option<Write>,
    seek: Option<Seek>,
    close: Option<Close>,
}

/// The preload library's four, which are the same for all of its streams.
static THEIRS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn theirs(number: usize) -> usize {
    THEIRS[number].load(Ordering::Acquire)
}

// The cookie is the number.
unsafe extern "C-unwind" fn read(cookie: *mut c_void, to: *mut c_void, len: usize) -> isize {
    // SAFETY: the function that was to be called, with its arguments.
    let call = || unsafe { std::mem::transmute::<usize, Read>(theirs(0))(cookie, to, len) };
    on(Kind::Read, cookie as c_int, call)
}
unsafe extern "C-unwind" fn write(cookie: *mut c_void, from: *const c_void, len: usize) -> isize {
    // SAFETY: as above.
    let call = || unsafe { std::mem::transmute::<usize, Write>(theirs(1))(cookie, from, len) };
    on(Kind::Write, cookie as c_int, call)
}
unsafe extern "C-unwind" fn seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: as above.
    let call = || unsafe { std::mem::transmute::<usize, Seek>(theirs(2))(cookie, offset, whence) };
    on(Kind::Lseek, cookie as c_int, call)
}
unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: as above.
    let call = || unsafe { std::mem::transmute::<usize, Close>(theirs(3))(cookie) };
    closed(Kind::Close, cookie as c_int, call)
}

/// Which file an address is part of.
fn object(address: usize) -> *mut c_void {
    // SAFETY: fills the structure, or says that it did not.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(address as *const c_void, &raw mut found) != 0;
        if known { found.dli_fbase } else { std::ptr::null_mut() }
    }
}

/// The functions of a new stream: those here, if the stream is the preload library's.
fn timed_functions(given: Functions) -> Functions {
    let (Some(r), Some(w), Some(s), Some(c)) = (given.read, given.write, given.seek, given.close)
    else {
        return given;
    };
    let addresses = [r as usize, w as usize, s as usize, c as usize];
    if addresses[0] != theirs(0) {
        // SAFETY: a name.
        let own = keeping_errno(|| unsafe {
            libc::dlsym(libc::RTLD_DEFAULT, vfs::preloaded::SYMBOL.as_ptr())
        });
        if own.is_null() || object(own as usize) != object(addresses[0]) {
            return given;
        }
        for (word, address) in THEIRS.iter().zip(addresses) {
            word.store(address, Ordering::Release);
        }
    }
    Functions { read: Some(read), write: Some(write), seek: Some(seek), close: Some(close) }
}

/// The descriptor of a stream; -1: it has none.
fn number(stream: *mut FILE) -> c_int {
    // SAFETY: the program's stream.
    keeping_errno(|| unsafe { libc::fileno(stream) })
}

type FopenCookie = unsafe extern "C-unwind" fn(*mut c_void, Text, Functions) -> *mut FILE;

// SAFETY: the symbol stands for the C library's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopencookie(
    cookie: *mut c_void,
    mode: Text,
    functions: Functions,
) -> *mut FILE {
    static NEXT: crate::next_symbol::Next = crate::next_symbol::Next::new("fopencookie\0");
    // SAFETY: the next function of this name.
    let next = unsafe { std::mem::transmute::<usize, FopenCookie>(NEXT.address()) };
    // SAFETY: the caller's arguments.
    unsafe { next(cookie, mode, timed_functions(functions)) }
}

timed! {
    fn [fopen, fopen64, _IO_fopen](path: Text, mode: Text) -> *mut FILE
    = |next| opened(Kind::Fopen, (libc::AT_FDCWD, path), number, next);
    fn [freopen, freopen64](path: Text, mode: Text, old: *mut FILE) -> *mut FILE = |next| {
        let before = number(old);
        if path.is_null() {
            return on(Kind::Fopen, before, next);
        }
        descriptors::take(before);
        opened(Kind::Fopen, (libc::AT_FDCWD, path), number, next)
    };
    fn [fclose, _IO_fclose](stream: *mut FILE) -> c_int = |next| {
        let fd = number(stream);
        if theirs(3) != 0 && descriptors::get(fd).server() == record::By::Volume {
            // Its functions are called from there.
            return on(Kind::Fclose, fd, next);
        }
        closed(Kind::Fclose, fd, next)
    };
}
