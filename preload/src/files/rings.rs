//! The kernel's own asynchronous calls, `io_uring` and `io_submit`: they work on the kernel's
//! descriptors, past this library, so on one of ours they would fail for ever, or find a directory.
//!
//! While a volume is attached, or with the engine over a kernel file system, what would begin them
//! says that the kernel does not have them (`ENOSYS`), and counts it: programs then read and write
//! by threads of their own, as they do on an old kernel or in a container. That is no error of the
//! program's, so `SOLERA_STRICT_SUPPORT` does not end it. With `SOLERA_KERNEL_AIO=allow` they are
//! the kernel's: for a program that uses them for sockets, or for files outside only.
//!
//! liburing and libaio make their system calls themselves: their functions are interposed by name.
//! Those are looked for where they are loaded, not behind this library: a plug-in's libraries are
//! in no scope of ours.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::Errno;

use crate::entry::cancel::Point;
use crate::entry::parked;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall;
use crate::entry::{Inside, Stop, errno};
use crate::interposed::serve;

const REASON: &str = "kernel-aio";

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// From now on they are the kernel's.
pub fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

/// Why `function` does not begin anything: `ENOSYS`, unless the kernel is to serve it.
pub fn begun(function: &'static str) -> Stop {
    if ALLOWED.load(Ordering::Relaxed) {
        return Stop::Kernel;
    }
    report::declined(function, REASON, Errno::NOSYS);
    Stop::Errno(Errno::NOSYS)
}

/// A function of a library that gives errors as negative numbers.
fn begin(function: &'static str, kernel: impl FnOnce() -> c_int) -> c_int {
    let answer = || match begun(function) {
        Stop::Kernel => Err(Stop::Kernel),
        _ => Ok(-libc::ENOSYS),
    };
    let declined = |_: &'static Process| answer();
    // The other engine's files would be read and written past what it has staged.
    serve(function, Point::Never, declined, || {
        parked::give_back();
        crate::split::beneath::ring_instead(answer, kernel)
    })
}

/// The system call, as those libraries make it.
fn make(number: c_long, first: usize, second: usize) -> c_int {
    let before = errno();
    let answer = syscall::kernel(number, [first, second, 0, 0, 0, 0]) as c_int;
    let failed = errno();
    crate::entry::set_errno(before);
    if answer < 0 { -failed } else { answer }
}

/// liburing's own function of this name, wherever it is loaded; 0: nowhere.
fn liburing(name: &CStr) -> usize {
    const FILES: [&CStr; 2] = [c"liburing.so.2", c"liburing.so.1"];
    let _inside = Inside::new();
    let found = FILES.iter().find_map(|file| {
        // SAFETY: texts; what is loaded stays, as one reference to it is kept.
        let address = unsafe {
            let handle = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
        };
        (!address.is_null()).then_some(address as usize)
    });
    found.unwrap_or(0)
}

/// Defines functions of liburing; each with its type and the arguments that it passes on.
macro_rules! of_liburing {
    ($(fn $name:ident($($arg:ident : $ty:ty),* $(,)?);)*) => {$(
        // SAFETY: the symbol replaces liburing's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            let name = concat!(stringify!($name), "\0");
            begin(stringify!($name), || {
                let address = CStr::from_bytes_with_nul(name.as_bytes()).map_or(0, liburing);
                if address == 0 {
                    return -libc::ENOSYS;
                }
                // SAFETY: liburing's function of this name, and the program's own arguments.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> c_int>(
                        address,
                    )($($arg),*)
                }
            })
        }
    )*};
}

of_liburing! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void,
        bytes: usize,
    );
}

// SAFETY: the symbol replaces liburing's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    let kernel = || make(libc::SYS_io_uring_setup, entries as usize, parameters as usize);
    begin("io_uring_setup", kernel)
}

// SAFETY: the symbol replaces libaio's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_setup(events: c_int, context: *mut *mut c_char) -> c_int {
    begin("io_setup", || make(libc::SYS_io_setup, events as usize, context as usize))
}

// SAFETY: the symbol replaces libaio's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_queue_init(events: c_int, context: *mut *mut c_char) -> c_int {
    begin("io_queue_init", || {
        if events <= 0 {
            return -libc::EINVAL;
        }
        // SAFETY: the program's own place for the context, which libaio empties so too.
        unsafe { *context = std::ptr::null_mut() };
        make(libc::SYS_io_setup, events as usize, context as usize)
    })
}
