//! Asynchronous I/O: `aio_read`, `aio_write`, `aio_fsync`, `lio_listio`. glibc's threads for it
//! have the smallest stacks that there are, too small for the engine.
//!
//! A request on the volume is done when it is submitted, which takes no longer than handing it to
//! a thread; then its caller is notified as asked. Its result stands in the control block where
//! glibc's `aio_error`, `aio_return`, `aio_suspend` and `aio_cancel` find it: done.

use std::ffi::{c_int, c_void};

use libc::{sigevent, sigval};
use vfs::Errno;

use crate::entry::fdtable;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::Process;
use crate::entry::syscall;
use crate::entry::{DONE, Served, Stop, errno, outside};
use crate::files::calls;

/// glibc's `struct aiocb`.
#[repr(C)]
pub struct Block {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    len: usize,
    event: sigevent,
    private: [usize; 2],
    error: c_int,
    result: isize,
    offset: i64,
}
const _: () = assert!(std::mem::offset_of!(Block, error) == 112);
const _: () = assert!(std::mem::offset_of!(Block, offset) == 128);

/// `AIO_PRIO_DELTA_MAX`.
const PRIORITY_MAX: c_int = 20;
/// `SI_ASYNCIO`.
const FROM_AIO: c_int = -4;

/// A control block of the program's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Request(*mut Block);

impl Request {
    /// Its block, if its descriptor is ours.
    fn ours(self) -> Result<&'static mut Block, Stop> {
        // SAFETY: by the C contract a block that lives until the request has ended.
        let block = unsafe { self.0.as_mut() }.ok_or(Errno::FAULT)?;
        if fdtable::get(block.fd).is_some() { Ok(block) } else { Err(Stop::Kernel) }
    }
}

/// glibc's form of `SIGEV_THREAD`: a function and attributes in place of the padding.
#[repr(C)]
struct ThreadEvent {
    value: sigval,
    signo: c_int,
    notify: c_int,
    function: Option<unsafe extern "C" fn(sigval)>,
    attributes: *const libc::pthread_attr_t,
}

struct Call(unsafe extern "C" fn(sigval), sigval);

extern "C" fn run_call(call: *mut c_void) -> *mut c_void {
    // SAFETY: made by `notify` for this thread alone.
    let call = unsafe { Box::from_raw(call.cast::<Call>()) };
    let Call(function, value) = *call;
    // SAFETY: the program's own function with its own argument.
    unsafe { function(value) };
    std::ptr::null_mut()
}

/// `siginfo_t` of a signal that reports asynchronous I/O.
#[repr(C)]
struct CompletionInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: c_int,
    uid: u32,
    value: sigval,
    rest: [usize; 12],
}
const _: () = assert!(size_of::<CompletionInfo>() == size_of::<libc::siginfo_t>());

/// Tells the program that what it asked for is done.
fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            let told = CompletionInfo {
                signo: event.sigev_signo,
                errno: 0,
                code: FROM_AIO,
                padding: 0,
                pid,
                uid: rustix::process::getuid().as_raw(),
                value: event.sigev_value,
                rest: [0; 12],
            };
            let told = (&raw const told) as usize;
            let signo = event.sigev_signo as usize;
            let number = libc::SYS_rt_sigqueueinfo;
            syscall::kernel(number, [pid as usize, signo, told, 0, 0, 0]);
        }
        libc::SIGEV_THREAD => {
            // SAFETY: glibc's layout of the same structure.
            let event = unsafe { &*std::ptr::from_ref(event).cast::<ThreadEvent>() };
            let Some(function) = event.function else { return };
            let call = Box::into_raw(Box::new(Call(function, event.value)));
            // SAFETY: the program's attributes or none; the thread owns the call.
            outside(|| unsafe {
                let mut thread = 0;
                let made =
                    libc::pthread_create(&raw mut thread, event.attributes, run_call, call.cast());
                if made == 0 {
                    libc::pthread_detach(thread);
                } else {
                    drop(Box::from_raw(call));
                }
            });
        }
        _ => {}
    }
}

/// Does what the block says, by the calls that the program could have made.
fn perform(block: &mut Block, operation: impl FnOnce(&Block) -> isize) {
    let result = outside(|| operation(block));
    block.error = if result < 0 { errno() } else { 0 };
    block.result = result;
}

pub fn read(block: &Block) -> isize {
    calls::pread64(block.fd, Bytes(block.buffer), block.len, block.offset)
}

pub fn write(block: &Block) -> isize {
    calls::pwrite64(block.fd, Bytes(block.buffer), block.len, block.offset)
}

/// Serves one request and notifies.
pub fn submit(request: Request, operation: impl FnOnce(&Block) -> isize) -> Served<c_int> {
    let block = request.ours()?;
    if !(0..=PRIORITY_MAX).contains(&block.priority) {
        (block.error, block.result) = (libc::EINVAL, -1);
        return Err(Stop::Errno(Errno::INVAL));
    }
    perform(block, operation);
    notify(&block.event);
    DONE
}

pub fn synchronise(process: &Process, how: c_int, request: Request) -> Served<c_int> {
    let block = request.ours()?;
    if how != libc::O_SYNC && how != libc::O_DSYNC {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let desc = fdtable::get(block.fd).ok_or(Errno::BADF)?;
    if !process.fs.describe(desc)?.1.writes() {
        return Err(Stop::Errno(Errno::BADF));
    }
    perform(block, |block| calls::fsync(block.fd) as isize);
    notify(&block.event);
    DONE
}

/// Gives glibc the rest of a list: the requests on other descriptors.
type Rest<'a> = &'a dyn Fn(Vec<*mut Block>) -> c_int;

pub fn list(
    mode: c_int,
    requests: Out<Request>,
    count: c_int,
    event: Out<sigevent>,
    rest: Rest,
) -> Served<c_int> {
    if mode != libc::LIO_WAIT && mode != libc::LIO_NOWAIT || count < 0 {
        return Err(Stop::Kernel);
    }
    let (mut theirs, mut failed, mut found) = (Vec::new(), false, false);
    for request in requests.array(count as usize)? {
        match request.ours() {
            Ok(block) => {
                found = true;
                match block.operation {
                    libc::LIO_READ => submit(request, read)?,
                    libc::LIO_WRITE => submit(request, write)?,
                    _ => continue,
                };
                failed |= block.error != 0;
            }
            // NULL entries are passed over.
            Err(_) if request.0.is_null() => {}
            Err(_) => theirs.push(request.0),
        }
    }
    if !found {
        return Err(Stop::Kernel);
    }
    if !theirs.is_empty() {
        let answer = rest(theirs);
        return if answer == 0 && failed { Err(Stop::Errno(Errno::IO)) } else { Ok(answer) };
    }
    if mode == libc::LIO_NOWAIT {
        if let Some(event) = event.get()? {
            notify(&event);
        }
        return DONE;
    }
    if failed { Err(Stop::Errno(Errno::IO)) } else { DONE }
}
