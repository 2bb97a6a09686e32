//! Files.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use flex::{Create, Error, File, FileOptions, Length, Result};

use crate::arguments::{offset, options, out, path, sink, source};
use crate::handles::Handles;
use crate::place::{place, too_many};
use crate::return_value::call;

const CREATE: c_uint = 1;
const EXCLUSIVE: c_uint = 2;
const READONLY: c_uint = 4;

/// `struct solera_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    struct_size: usize,
    size: u64,
    step: u64,
    flags: c_uint,
    mode: libc::mode_t,
}

/// `solera_ticket`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ticket {
    thread: u64,
    file: u64,
}

static FILES: Handles<File> = Handles::new(2);

fn file(handle: usize) -> Result<&'static File> {
    FILES.get(handle).ok_or(Error::Invalid("the file is NULL, closed, or no file"))
}

/// A number of this thread, which no other has ever had.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Writes a ticket of this thread, unless `to` is NULL.
///
/// # Safety
///
/// NULL, or room for a ticket.
unsafe fn hand_out(handle: usize, to: *mut Ticket) {
    // SAFETY: the caller's promise.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = Ticket { thread: this_thread(), file: handle as u64 };
    }
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_open(
    at: usize,
    name: *const c_char,
    given: *const Options,
    to: *mut usize,
) -> c_int {
    call("solera_open", || {
        // SAFETY: the caller's, as the header says.
        let (name, given, to) = unsafe { (path(name)?, options(given)?, out(to)?) };
        let mut wanted = FileOptions::default();
        if let Some(given) = given {
            if given.flags & !(CREATE | EXCLUSIVE | READONLY) != 0 {
                return Err(Error::Invalid("a flag is unknown"));
            }
            let or = |given: u64, default: u64| if given == 0 { default } else { given };
            wanted.size = or(given.size, wanted.size);
            wanted.step = or(given.step, wanted.step);
            wanted.mode = or(given.mode.into(), wanted.mode.into()) as u32;
            wanted.read_only = given.flags & READONLY != 0;
            wanted.create = match given.flags & (CREATE | EXCLUSIVE) {
                CREATE => Create::Missing,
                0 => Create::Never,
                EXCLUSIVE => {
                    return Err(Error::Invalid("SOLERA_EXCLUSIVE is for SOLERA_CREATE only"));
                }
                _ => Create::New,
            };
        }
        let file = place(at)?.file(name, &wanted)?;
        *to = FILES.add(file).map_err(too_many)?;
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_close(handle: usize) -> c_int {
    call("solera_close", || {
        file(handle)?;
        FILES.take(handle).map_or(Ok(()), |file| file.close())?;
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_length(handle: usize) -> i64 {
    call("solera_length", || Ok(file(handle)?.length()? as i64))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_length_is_exact(handle: usize) -> c_int {
    call("solera_length_is_exact", || {
        let file = file(handle)?;
        file.length()?;
        Ok(c_int::from(matches!(file.opened(), Length::Exact(_))))
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_append(
    handle: usize,
    bytes: *const u8,
    count: usize,
    ticket: *mut Ticket,
) -> isize {
    call("solera_append", || {
        // SAFETY: the caller's, as the header says.
        let bytes = unsafe { source(bytes, count)? };
        let (_, streamed) = file(handle)?.append_from(&bytes)?;
        drop(streamed);
        // SAFETY: as above.
        unsafe { hand_out(handle, ticket) };
        Ok(count as isize)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_pwrite(
    handle: usize,
    bytes: *const u8,
    count: usize,
    at: i64,
    ticket: *mut Ticket,
) -> isize {
    call("solera_pwrite", || {
        // SAFETY: the caller's, as the header says.
        let bytes = unsafe { source(bytes, count)? };
        drop(file(handle)?.write_at_from(offset(at)?, &bytes)?);
        // SAFETY: as above.
        unsafe { hand_out(handle, ticket) };
        Ok(count as isize)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_pwrite_atomic(
    handle: usize,
    bytes: *const u8,
    count: usize,
    at: i64,
) -> isize {
    call("solera_pwrite_atomic", || {
        // SAFETY: the caller's, as the header says.
        let bytes = unsafe { source(bytes, count)? };
        file(handle)?.write_atomic_from(offset(at)?, &bytes)?;
        Ok(count as isize)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_pread(handle: usize, to: *mut u8, count: usize, at: i64) -> isize {
    call("solera_pread", || {
        // SAFETY: the caller's, as the header says.
        let to = unsafe { sink(to, count)? };
        file(handle)?.read_at_to(offset(at)?, &to).map(|read| read as isize)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_view(handle: usize, at: i64, count: usize) -> *mut c_void {
    call("solera_view", || {
        Ok(file(handle)?.view(offset(at)?, count as u64)?.as_ptr().cast::<c_void>())
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_persist(handle: usize, at: *const u8, count: usize) -> c_int {
    call("solera_persist", || {
        let file = file(handle)?;
        file.persist(file.offset_of(at)?, count as u64).map(|()| 0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_flush(handle: usize, at: *const u8, count: usize) -> c_int {
    call("solera_flush", || {
        let file = file(handle)?;
        drop(file.flush(file.offset_of(at)?, count as u64)?);
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_wait(handle: usize, ticket: Ticket) -> c_int {
    call("solera_wait", || {
        let file = file(handle)?;
        if ticket.file != handle as u64 {
            return Err(Error::Invalid("the ticket is of another file"));
        }
        if ticket.thread != this_thread() {
            let why = "the ticket is another thread's: a fence is of its own thread's streams only";
            return Err(Error::Invalid(why));
        }
        file.fence().map(|()| 0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_sync_len(handle: usize) -> c_int {
    call("solera_sync_len", || file(handle)?.sync_len().map(|()| 0))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_truncate(handle: usize, length: i64) -> c_int {
    call("solera_truncate", || file(handle)?.truncate(offset(length)?).map(|()| 0))
}
