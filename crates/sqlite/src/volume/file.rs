//! A file on a volume: read and written by the calls of the volume's engine, locked as SQLite's
//! `unix` locks it.
//!
//! Each connection has its own opening of a database, and the locks are of that opening: they
//! exclude the connections of this process and of others alike.
//!
//! Nothing here panics or locks. SQLite calls the methods of a file by one thread at a time.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use flex::volumes::{Answer, Names, OpenFile, Range, Seen};
use libsqlite3_sys as sys;
use libsqlite3_sys::{
    SQLITE_BUSY, SQLITE_IOERR, SQLITE_LOCK_NONE, SQLITE_LOCK_RESERVED, SQLITE_LOCK_SHARED,
    SQLITE_NOTFOUND, SQLITE_OK, sqlite3_file, sqlite3_io_methods,
};
use pmem::{UserIn, UserOut};
use rustix::io::Errno;

use super::names;
use super::shared::Shared;
use crate::calls::Sqlite;

/// The lock bytes of a database.
const PENDING: u64 = 0x4000_0000;
const RESERVED: u64 = PENDING + 1;
const READERS: u64 = PENDING + 2;
const READERS_BYTES: u64 = 510;
/// Between `RESERVED` and `EXCLUSIVE`: no new readers come.
const LOCK_PENDING: c_int = 3;
const SECTOR_BYTES: c_int = 4096;
/// A log has a head in front of each page.
const HEAD_BYTES: usize = 24;
const MODE: u32 = 0o644;
const PRIVATE_MODE: u32 = 0o600;

/// An open file, as SQLite has it.
#[repr(C)]
struct File {
    base: sqlite3_file,
    open: *mut Open,
}

const _: () = assert!(size_of::<File>() <= crate::directory::FILE_BYTES);

/// What is open.
struct Open {
    /// Before the file beside which it is.
    shared: Option<Shared>,
    file: Arc<dyn OpenFile>,
    names: Arc<dyn Names>,
    path: PathBuf,
    sqlite: Sqlite,
    lock: c_int,
    last: i32,
    /// Bytes by which it grows; 0: as it comes.
    chunk: u64,
    is_log: bool,
    /// Where the last write ended, if nothing was read or cut since.
    end: Option<i64>,
    /// The head of a log's frame that is to be written with the frame's page, and where.
    head: Option<(i64, [u8; HEAD_BYTES])>,
    keeps_log: bool,
    is_powersafe: bool,
}

/// Opens a file of a volume.
///
/// # Safety
///
/// As SQLite calls `xOpen`, for a VFS whose `szOsFile` has room for it.
pub unsafe fn open(
    sqlite: Sqlite,
    (names, path): (Arc<dyn Names>, PathBuf),
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let opened = open_file(&*names, &path, flags);
    // SAFETY: SQLite's memory for a file, and its word.
    unsafe {
        (*file).pMethods = std::ptr::null();
        if flags & sys::SQLITE_OPEN_MAIN_DB != 0 {
            names::opened(&names);
        }
        let (opened, flags) = match opened {
            Ok(opened) => opened,
            Err((code, errno)) => {
                let why = format!("cannot open {} on its volume: {errno}", path.display());
                return sqlite.logs(code, &why);
            }
        };
        let open = Open {
            shared: None,
            file: opened,
            names,
            path,
            sqlite,
            lock: SQLITE_LOCK_NONE,
            last: 0,
            chunk: 0,
            is_log: flags & sys::SQLITE_OPEN_WAL != 0,
            end: None,
            head: None,
            keeps_log: false,
            is_powersafe: true,
        };
        file.cast::<File>().write(File {
            base: sqlite3_file { pMethods: &raw const METHODS },
            open: Box::into_raw(Box::new(open)),
        });
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    SQLITE_OK
}

type Opened = (Arc<dyn OpenFile>, c_int);

/// Opens by SQLite's flags; gives those that came of it.
fn open_file(names: &dyn Names, path: &Path, flags: c_int) -> Result<Opened, (c_int, Errno)> {
    let has = |flag| flags & flag != 0;
    let is_made = has(sys::SQLITE_OPEN_CREATE);
    let mut how = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    how |= if has(sys::SQLITE_OPEN_READWRITE) { libc::O_RDWR } else { libc::O_RDONLY };
    how |= if is_made { libc::O_CREAT } else { 0 };
    how |= if is_made && has(sys::SQLITE_OPEN_EXCLUSIVE) { libc::O_EXCL } else { 0 };
    let removed = has(sys::SQLITE_OPEN_DELETEONCLOSE);
    let opened = match beside(names, path, flags) {
        Some(database) => names.open_like(path, how, &database),
        None => names.open(path, how, if removed { PRIVATE_MODE } else { MODE }),
    };
    let (file, flags) = match opened {
        Ok(file) => (file, flags),
        Err(errno) => {
            let is_journal = has(sys::SQLITE_OPEN_MAIN_JOURNAL)
                || has(sys::SQLITE_OPEN_WAL)
                || has(sys::SQLITE_OPEN_SUPER_JOURNAL);
            if is_made && is_journal && errno == Errno::ACCESS && names.look(path).is_err() {
                return Err((sys::SQLITE_READONLY_DIRECTORY, errno));
            }
            if errno == Errno::ISDIR || !has(sys::SQLITE_OPEN_READWRITE) {
                return Err((sys::SQLITE_CANTOPEN, errno));
            }
            // To be read at least.
            let how = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_RDONLY;
            let file = names.open(path, how, 0).map_err(|_| (sys::SQLITE_CANTOPEN, errno))?;
            let writes = sys::SQLITE_OPEN_READWRITE | sys::SQLITE_OPEN_CREATE;
            (file, flags & !writes | sys::SQLITE_OPEN_READONLY)
        }
    };
    if !matches!(file.size(), Ok(Some(_))) {
        return Err((sys::SQLITE_CANTOPEN, Errno::ISDIR));
    }
    if removed {
        // It goes with its last opening.
        names.unlink(path).map_err(|errno| (sys::SQLITE_CANTOPEN, errno))?;
    }
    Ok((file, flags))
}

/// The database that a journal or log is of, whose permissions it has.
fn beside(names: &dyn Names, path: &Path, flags: c_int) -> Option<Seen> {
    if flags & (sys::SQLITE_OPEN_MAIN_JOURNAL | sys::SQLITE_OPEN_WAL) == 0 {
        return None;
    }
    let name = path.to_str()?;
    names.look(Path::new(&name[..name.rfind('-')?])).ok()
}

/// What is open.
///
/// # Safety
///
/// A file that [`open`] has opened, and that SQLite has not closed; one thread at a time.
#[inline]
unsafe fn ours<'f>(file: *mut sqlite3_file) -> &'f mut Open {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*file.cast::<File>()).open }
}

impl Open {
    /// The code that stands for a failed call.
    #[cold]
    fn failed(&mut self, errno: Errno, code: c_int) -> c_int {
        self.last = errno.raw_os_error();
        match errno {
            Errno::NOSPC | Errno::DQUOT if code == sys::SQLITE_IOERR_WRITE => sys::SQLITE_FULL,
            Errno::IO | Errno::NXIO | Errno::RANGE if code == sys::SQLITE_IOERR_READ => {
                sys::SQLITE_IOERR_CORRUPTFS
            }
            _ => code,
        }
    }

    fn done(&mut self, done: Answer<()>, code: c_int) -> c_int {
        match done {
            Ok(()) => SQLITE_OK,
            Err(errno) => self.failed(errno, code),
        }
    }

    /// What a lock gives.
    fn locked(&mut self, done: Answer<()>, code: c_int) -> c_int {
        match done {
            Ok(()) => SQLITE_OK,
            Err(
                Errno::AGAIN
                | Errno::ACCESS
                | Errno::BUSY
                | Errno::INTR
                | Errno::NOLCK
                | Errno::TIMEDOUT,
            ) => SQLITE_BUSY,
            Err(Errno::PERM) => sys::SQLITE_PERM,
            Err(errno) => self.failed(errno, code),
        }
    }

    /// Writes all parts to `at`.
    #[inline]
    fn write(&mut self, mut at: i64, parts: &[UserIn<'_>]) -> c_int {
        let whole: usize = parts.iter().map(UserIn::len).sum();
        let mut done = match self.file.write(at as u64, parts) {
            Ok(wrote) if wrote == whole => return SQLITE_OK,
            Ok(wrote) => wrote,
            Err(errno) => return self.failed(errno, sys::SQLITE_IOERR_WRITE),
        };
        // In part: what is left goes part by part.
        for part in parts {
            let mut from = done.min(part.len());
            done -= from;
            while from < part.len() {
                let rest = part.slice(from, part.len() - from);
                match self.file.write(at as u64 + from as u64, &[rest]) {
                    Ok(0) => return sys::SQLITE_FULL,
                    Ok(wrote) => from += wrote,
                    Err(errno) => return self.failed(errno, sys::SQLITE_IOERR_WRITE),
                }
            }
            at += part.len() as i64;
        }
        SQLITE_OK
    }

    /// Ends what is left to do before any other call than the write that was awaited.
    #[inline]
    fn settle(&mut self) -> c_int {
        match self.head.take() {
            Some((at, head)) => self.write(at, &[UserIn::new(&head)]),
            None => SQLITE_OK,
        }
    }

    fn take(&mut self, level: c_int) -> c_int {
        const FAILED: c_int = sys::SQLITE_IOERR_LOCK;
        if level <= self.lock {
            return SQLITE_OK;
        }
        if level == SQLITE_LOCK_SHARED {
            // Who waits for readers to go has this byte.
            let done = self.file.lock_range(Range::Shared, PENDING, 1);
            let code = self.locked(done, FAILED);
            if code != SQLITE_OK {
                return code;
            }
            let readers = self.file.lock_range(Range::Shared, READERS, READERS_BYTES);
            let pending = self.file.unlock_range(PENDING, 1);
            let code = self.locked(readers, FAILED);
            if code != SQLITE_OK {
                return code;
            }
            if let Err(errno) = pending {
                let _ = self.file.unlock_range(READERS, READERS_BYTES);
                return self.failed(errno, sys::SQLITE_IOERR_UNLOCK);
            }
        } else if level == SQLITE_LOCK_RESERVED {
            let done = self.file.lock_range(Range::Alone, RESERVED, 1);
            let code = self.locked(done, FAILED);
            if code != SQLITE_OK {
                return code;
            }
        } else {
            if self.lock == SQLITE_LOCK_RESERVED {
                let done = self.file.lock_range(Range::Alone, PENDING, 1);
                let code = self.locked(done, FAILED);
                if code != SQLITE_OK {
                    return code;
                }
                self.lock = LOCK_PENDING;
            }
            let done = self.file.lock_range(Range::Alone, READERS, READERS_BYTES);
            let code = self.locked(done, FAILED);
            if code != SQLITE_OK {
                return code;
            }
        }
        self.lock = level;
        SQLITE_OK
    }

    fn give_back(&mut self, level: c_int) -> c_int {
        if self.lock <= level {
            return SQLITE_OK;
        }
        let done = if level == SQLITE_LOCK_NONE {
            self.file.unlock_range(0, 0)
        } else {
            let readers = self.file.lock_range(Range::Shared, READERS, READERS_BYTES);
            if let Err(errno) = readers {
                return self.failed(errno, sys::SQLITE_IOERR_RDLOCK);
            }
            self.file.unlock_range(PENDING, 2)
        };
        self.lock = level;
        self.done(done, sys::SQLITE_IOERR_UNLOCK)
    }

    fn is_reserved(&mut self) -> Result<bool, c_int> {
        if self.lock > SQLITE_LOCK_SHARED {
            return Ok(true);
        }
        let held = self.file.test_range(RESERVED, 1);
        held.map(|held| held.is_some())
            .map_err(|errno| self.failed(errno, sys::SQLITE_IOERR_CHECKRESERVEDLOCK))
    }

    /// Room for a file that will be so large.
    fn hint(&mut self, size: u64) -> c_int {
        if self.chunk == 0 {
            return SQLITE_OK;
        }
        let to = size.next_multiple_of(self.chunk);
        match self.file.size() {
            Ok(Some(now)) if now >= to => SQLITE_OK,
            Ok(_) => {
                let done = self.file.allocate(to);
                self.done(done, sys::SQLITE_IOERR_WRITE)
            }
            Err(errno) => self.failed(errno, sys::SQLITE_IOERR_FSTAT),
        }
    }

    fn has_moved(&self) -> bool {
        let identity = |seen: Answer<Seen>| seen.ok().map(|seen| seen.identity);
        identity(self.names.look(&self.path)) != identity(self.file.look())
    }

    fn shared(&mut self) -> Result<&mut Shared, c_int> {
        if self.shared.is_none() {
            let seen = self.file.look().map_err(|_| sys::SQLITE_IOERR_FSTAT)?;
            self.shared = Some(Shared::open(&*self.names, &self.path, &seen)?);
        }
        self.shared.as_mut().ok_or(SQLITE_IOERR)
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite's open file, which nobody uses any more.
    unsafe {
        let mut ours = Box::from_raw((*file.cast::<File>()).open);
        (*file).pMethods = std::ptr::null();
        ours.settle()
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's open file, and its buffer of so many bytes.
    let (ours, sink) = unsafe { (ours(file), UserOut::from_raw(to.cast(), count as usize)) };
    let code = ours.settle();
    ours.end = None;
    if code != SQLITE_OK {
        return code;
    }
    let (mut done, count) = (0, count as usize);
    while done < count {
        match ours.file.read(offset as u64 + done as u64, &sink.slice(done, count - done)) {
            Ok(0) => {
                // SAFETY: the rest of SQLite's buffer.
                unsafe { to.cast::<u8>().add(done).write_bytes(0, count - done) };
                ours.last = 0;
                return sys::SQLITE_IOERR_SHORT_READ;
            }
            Ok(read) => done += read,
            Err(errno) => return ours.failed(errno, sys::SQLITE_IOERR_READ),
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's open file, and its buffer of so many bytes.
    let (ours, source) = unsafe { (ours(file), UserIn::from_raw(from.cast(), count as usize)) };
    let end = offset + i64::from(count);
    // SQLite writes a frame's head, and at once its page: that is one write. It appends if
    // nothing was read since the last one. (What it writes anew, it has read before.)
    if ours.is_log && ours.end == Some(offset) && ours.head.is_none() && source.len() == HEAD_BYTES
    {
        let mut head = [0; HEAD_BYTES];
        // SAFETY: SQLite's buffer has so many bytes.
        unsafe { head.as_mut_ptr().copy_from_nonoverlapping(from.cast(), HEAD_BYTES) };
        (ours.head, ours.end) = (Some((offset, head)), Some(end));
        return SQLITE_OK;
    }
    let code = match ours.head.take() {
        Some((at, head)) if ours.end == Some(offset) => {
            ours.write(at, &[UserIn::new(&head), source])
        }
        Some((at, head)) => match ours.write(at, &[UserIn::new(&head)]) {
            SQLITE_OK => ours.write(offset, &[source]),
            code => code,
        },
        None => ours.write(offset, &[source]),
    };
    ours.end = (code == SQLITE_OK).then_some(end);
    code
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    let size =
        if ours.chunk > 0 { (size as u64).next_multiple_of(ours.chunk) } else { size as u64 };
    let done = ours.file.truncate(size);
    ours.done(done, sys::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    let code = ours.settle();
    // PERSIST: as the head of the room says.
    if code != SQLITE_OK || !ours.file.promise().needs_sync() {
        return code;
    }
    let done = ours.file.sync();
    ours.done(done, sys::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    let code = ours.settle();
    if code != SQLITE_OK {
        return code;
    }
    match ours.file.size() {
        Ok(found) => {
            // SAFETY: SQLite's word.
            unsafe { *size = found.unwrap_or(0) as i64 };
            SQLITE_OK
        }
        Err(errno) => ours.failed(errno, sys::SQLITE_IOERR_FSTAT),
    }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    unsafe { ours(file) }.take(level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    unsafe { ours(file) }.give_back(level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, is_held: *mut c_int) -> c_int {
    // SAFETY: SQLite's open file.
    let held = unsafe { ours(file) }.is_reserved();
    // SAFETY: SQLite's word.
    unsafe { *is_held = c_int::from(held == Ok(true)) };
    held.err().unwrap_or(SQLITE_OK)
}

/// Sets a switch, or asks for it where the program's word is negative.
///
/// # Safety
///
/// The program's word.
unsafe fn switch(value: &mut bool, word: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if *word < 0 {
            *word = c_int::from(*value);
        } else {
            *value = *word != 0;
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    let word = argument.cast::<c_int>();
    // SAFETY: the argument is what SQLite says of each operation.
    unsafe {
        match operation {
            sys::SQLITE_FCNTL_LOCKSTATE => *word = ours.lock,
            sys::SQLITE_FCNTL_LAST_ERRNO => *word = ours.last,
            sys::SQLITE_FCNTL_CHUNK_SIZE => ours.chunk = u64::try_from(*word).unwrap_or(0),
            sys::SQLITE_FCNTL_SIZE_HINT => {
                return ours.hint(u64::try_from(*argument.cast::<i64>()).unwrap_or(0));
            }
            sys::SQLITE_FCNTL_PERSIST_WAL => return switch(&mut ours.keeps_log, word),
            sys::SQLITE_FCNTL_POWERSAFE_OVERWRITE => {
                return switch(&mut ours.is_powersafe, word);
            }
            sys::SQLITE_FCNTL_VFSNAME => {
                *argument.cast::<*mut c_char>() = (ours.sqlite.mprintf)(c"solera".as_ptr());
            }
            sys::SQLITE_FCNTL_HAS_MOVED => *word = c_int::from(ours.has_moved()),
            // A database is overwritten in place by all: none is mapped.
            sys::SQLITE_FCNTL_MMAP_SIZE => *argument.cast::<i64>() = 0,
            _ => return SQLITE_NOTFOUND,
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    SECTOR_BYTES
}

/// An appending write is one step of the engine's, data before size; where calls are durable at
/// their return they are durable in their order.
unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    let mut has = if ours.is_powersafe { sys::SQLITE_IOCAP_POWERSAFE_OVERWRITE } else { 0 };
    if !ours.file.promise().needs_sync() {
        has |= sys::SQLITE_IOCAP_SAFE_APPEND | sys::SQLITE_IOCAP_SEQUENTIAL;
    }
    has
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    bytes: c_int,
    extends: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's open file.
    let shared = unsafe { ours(file) }.shared();
    let (code, at) = match shared {
        Ok(shared) => shared.map(region, bytes, extends != 0),
        Err(code) => (code, std::ptr::null_mut()),
    };
    // SAFETY: SQLite's word.
    unsafe { *to = at.cast() };
    code
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: SQLite's open file.
    match &unsafe { ours(file) }.shared {
        Some(shared) => shared.lock(first, count, flags),
        None => sys::SQLITE_IOERR_SHMLOCK,
    }
}

unsafe extern "C" fn shm_barrier(_file: *mut sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, deletes: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    if let Some(shared) = ours.shared.take()
        && deletes != 0
    {
        shared.delete(&*ours.names);
    }
    SQLITE_OK
}

unsafe extern "C" fn fetch(
    _file: *mut sqlite3_file,
    _offset: i64,
    _count: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's word.
    unsafe { *to = std::ptr::null_mut() };
    SQLITE_OK
}

unsafe extern "C" fn unfetch(_file: *mut sqlite3_file, _offset: i64, _at: *mut c_void) -> c_int {
    SQLITE_OK
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};
