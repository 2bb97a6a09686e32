//! Logs.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use flex::{Error, Follower, Log, LogOptions, Record, Result};
use pmem::{UserIn, UserOut};
use rustix::io::Errno;

use crate::arguments::{options, out, path, sink, source};
use crate::handles::Handles;
use crate::place::{place, too_many};
use crate::return_value::call;

/// `SOLERA_OLDEST`.
const OLDEST: u64 = u64::MAX;
const PIECE_BYTES: usize = size_of::<libc::iovec>();
/// `IOV_MAX`.
const PIECES_MAX: c_int = 1024;

/// `struct solera_log_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    struct_size: usize,
    capacity: u64,
    readonly: c_int,
    create: c_int,
    mode: libc::mode_t,
}

/// An open log.
enum Opened {
    Writer(Box<Log>),
    Reader(Box<Follower>),
}

static LOGS: Handles<Opened> = Handles::new(3);

fn log(handle: usize) -> Result<&'static Opened> {
    LOGS.get(handle).ok_or(Error::Invalid("the log is NULL, closed, or no log"))
}

fn writer(handle: usize, errno: Errno) -> Result<&'static Log> {
    match log(handle)? {
        Opened::Writer(log) => Ok(log),
        Opened::Reader(_) => {
            let why = "the log is open for reading; only its writer's process does that";
            Err(Error::System(why.to_owned(), errno))
        }
    }
}

impl Opened {
    fn oldest(&self) -> Result<u64> {
        match self {
            Self::Writer(log) => Ok(log.oldest()),
            Self::Reader(log) => log.oldest(),
        }
    }

    fn read(&self, position: u64, to: &UserOut<'_>) -> Result<Option<Record>> {
        match self {
            Self::Writer(log) => log.read_to(position, to),
            Self::Reader(log) => log.read_to(position, to),
        }
    }
}

/// Reads from a position on; moves it behind what was found.
fn from<T>(
    log: &Opened,
    position: &mut u64,
    read: impl Fn(u64) -> Result<Option<(Record, T)>>,
) -> Result<Option<(Record, T)>> {
    let wants_oldest = *position == OLDEST;
    if wants_oldest {
        *position = log.oldest()?;
    }
    let found = loop {
        match read(*position) {
            Err(Error::Lapped { oldest }) => {
                *position = oldest;
                if !wants_oldest {
                    return Err(Error::Lapped { oldest });
                }
            }
            found => break found?,
        }
    };
    if let Some((record, _)) = &found {
        *position = record.next;
    }
    Ok(found)
}

/// Writes a position, unless `to` is NULL.
///
/// # Safety
///
/// NULL, or room for it.
unsafe fn tell(position: u64, to: *mut u64) {
    // SAFETY: the caller's promise.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = position;
    }
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_open(
    at: usize,
    name: *const c_char,
    given: *const Options,
    to: *mut usize,
) -> c_int {
    call("solera_log_open", || {
        // SAFETY: the caller's, as the header says.
        let (name, given, to) = unsafe { (path(name)?, options(given)?, out(to)?) };
        let place = place(at)?;
        let mut wanted = LogOptions::default();
        let mut readonly = false;
        if let Some(given) = given {
            wanted.capacity = if given.capacity == 0 { wanted.capacity } else { given.capacity };
            wanted.mode = if given.mode == 0 { wanted.mode } else { given.mode };
            wanted.create = given.create != 0;
            readonly = given.readonly != 0;
            if readonly && wanted.create {
                return Err(Error::Invalid("a log that is only read is not made"));
            }
        }
        let log = if readonly {
            Opened::Reader(Box::new(place.follow(name)?))
        } else {
            Opened::Writer(Box::new(place.log(name, &wanted)?))
        };
        *to = LOGS.add(log).map_err(too_many)?;
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_log_close(handle: usize) -> c_int {
    call("solera_log_close", || {
        log(handle)?;
        drop(LOGS.take(handle));
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_append(
    handle: usize,
    bytes: *const u8,
    count: usize,
    position: *mut u64,
) -> c_int {
    call("solera_log_append", || {
        // SAFETY: the caller's, as the header says.
        let bytes = unsafe { source(bytes, count)? };
        let at = writer(handle, Errno::BADF)?.append_pieces(&[bytes])?;
        // SAFETY: as above.
        unsafe { tell(at, position) };
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_appendv(
    handle: usize,
    pieces: *const libc::iovec,
    count: c_int,
    position: *mut u64,
) -> c_int {
    call("solera_log_appendv", || {
        if pieces.is_null() || !(1..=PIECES_MAX).contains(&count) {
            return Err(Error::Invalid("a record has 1 to 1024 pieces"));
        }
        // SAFETY: the caller's, as the header says.
        let all = unsafe { source(pieces.cast(), count as usize * PIECE_BYTES)? };
        let sources = (0..count as usize).map(|number| {
            let piece = all.slice(number * PIECE_BYTES, PIECE_BYTES);
            // SAFETY: any bytes make an iovec; the bytes that it names are the caller's.
            unsafe {
                let piece: libc::iovec = piece.value()?;
                source(piece.iov_base.cast(), piece.iov_len)
            }
        });
        let sources: Vec<UserIn<'_>> = sources.collect::<Result<_>>()?;
        let at = writer(handle, Errno::BADF)?.append_pieces(&sources)?;
        // SAFETY: as above.
        unsafe { tell(at, position) };
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_put(
    handle: usize,
    bytes: *const u8,
    count: usize,
    position: *mut u64,
) -> c_int {
    call("solera_log_put", || {
        // SAFETY: the caller's, as the header says.
        let bytes = unsafe { source(bytes, count)? };
        let at = writer(handle, Errno::BADF)?.put_pieces(&[bytes])?;
        // SAFETY: as above.
        unsafe { tell(at, position) };
        Ok(0)
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_log_commit(handle: usize, position: u64) -> c_int {
    call("solera_log_commit", || writer(handle, Errno::BADF)?.commit(position).map(|()| 0))
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_read(
    handle: usize,
    position: *mut u64,
    to: *mut u8,
    count: usize,
) -> isize {
    call("solera_log_read", || {
        // SAFETY: the caller's, as the header says.
        let (position, to) = unsafe { (out(position)?, sink(to, count)?) };
        let log = log(handle)?;
        let found = from(log, position, |at| Ok(log.read(at, &to)?.map(|record| (record, ()))))?;
        Ok(found.map_or(0, |(record, ())| record.len as isize))
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_log_next(
    handle: usize,
    position: *mut u64,
    record: *mut *const c_void,
    count: *mut usize,
) -> c_int {
    call("solera_log_next", || {
        // SAFETY: the caller's, as the header says.
        let (position, to, count) = unsafe { (out(position)?, out(record)?, out(count)?) };
        let log = writer(handle, Errno::PERM)?;
        let found = from(self::log(handle)?, position, |at| log.next(at))?;
        Ok(found.map_or(0, |(record, at): (Record, NonNull<u8>)| {
            *to = at.as_ptr().cast_const().cast();
            *count = record.len;
            1
        }))
    })
}

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_log_trim(handle: usize, position: u64) -> c_int {
    call("solera_log_trim", || writer(handle, Errno::BADF)?.trim(position).map(|()| 0))
}
