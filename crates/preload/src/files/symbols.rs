//! The exported functions of this room: limits of names and files, which the C library would guess
//! from the kind of file system; asynchronous I/O, for which it has threads with small stacks; and
//! those of libraries that begin the kernel's asynchronous calls, by system calls of their own.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::sigevent;
use vfs::Attr;

use crate::entry::fdtable::ours;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::{Inside, Stop, cached_fd, errno, outside, syscall};
use crate::files::aio::{self, Block, Request};
use crate::files::kernel_aio;
use crate::files::stat;
use crate::interposed::{again, interpose, serve};
use crate::split::engine;

const HERE: c_int = libc::AT_FDCWD;

interpose! {
    fn [aio_read, aio_read64](request: Request) -> c_int = |_, _| {
        aio::submit(request, aio::read)
    }
    fn [aio_write, aio_write64](request: Request) -> c_int = |_, _| {
        aio::submit(request, aio::write)
    }
    fn [aio_fsync, aio_fsync64](how: c_int, request: Request) -> c_int = |process, _| {
        aio::synchronise(process, how, request)
    }
    fn [lio_listio, lio_listio64](
        mode: c_int, requests: Out<Request>, count: c_int, event: Out<sigevent>,
    ) -> c_int = |_, kernel| {
        aio::list(mode, requests, count, event, &|mut theirs: Vec<*mut Block>| {
            let count = theirs.len() as c_int;
            outside(|| kernel(mode, Out(theirs.as_mut_ptr().cast()), count, event))
        })
    }
}

interpose! {
    fn [pathconf](path: Text, name: c_int) -> c_long = |process, kernel| {
        match stat::ask(process, (HERE, path, 0), &mut { Attr::NONE })? {
            None => stat::limit(name),
            Some(path) => Ok(kernel(Text(path.as_ptr()), name)),
        }
    }
    fn [fpathconf](fd: c_int, name: c_int) -> c_long = |_, _| {
        ours(fd)?;
        stat::limit(name)
    }
}

// ---- the kernel's asynchronous calls

/// A function of a library that gives errors as negative numbers.
fn begin(function: &'static str, kernel: impl Fn() -> c_int) -> c_int {
    let answer = || match kernel_aio::begun(function) {
        Stop::Kernel => Err(Stop::Kernel),
        _ => Ok(-libc::ENOSYS),
    };
    let declined = |_: &'static Process| answer();
    // The other engine's files would be read and written past what it has staged.
    let kernel = || {
        cached_fd::give_back();
        engine::ring_instead(answer, &kernel)
    };
    serve(function, declined, kernel, again)
}

/// Makes the system call as those libraries do.
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
