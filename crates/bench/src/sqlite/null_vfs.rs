//! A VFS of SQLite that does nothing but keep files in memory of the process, without a system
//! call: what is left is SQLite's own work.
//!
//! For one thread, and one connection to a database at a time: every lock is granted.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{Ordering, fence};

use libsqlite3_sys::{
    SQLITE_CANTOPEN, SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_IOERR_SHORT_READ, SQLITE_NOTFOUND,
    SQLITE_OK, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
};

use super::library::{Result, Sqlite};

/// Its name.
pub const NAME: &CStr = c"nothing";
/// Bytes of a new file that are touched before they are needed.
const TOUCHED_BYTES: usize = 16 << 20;
const SECTOR_BYTES: c_int = 4096;

/// A file. It stays when it is deleted, empty.
struct Memory {
    name: CString,
    bytes: Vec<u8>,
    /// The regions of a write-ahead log's index.
    shared: Vec<Box<[u64]>>,
}

/// An open one.
#[repr(C)]
struct Open {
    base: sqlite3_file,
    memory: *mut Memory,
}

/// All files of a VFS.
type Files = Vec<*mut Memory>;

/// Makes it known.
pub fn register(sqlite: &Sqlite) -> Result<()> {
    let files: *mut Files = Box::into_raw(Box::default());
    let unix = sqlite.unix()?;
    // SAFETY: a VFS of SQLite's, which stays.
    let unix = unsafe { *unix };
    // Time and randomness are those of unix.
    let vfs = sqlite3_vfs {
        szOsFile: size_of::<Open>() as c_int,
        pNext: std::ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: files.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        ..unix
    };
    sqlite.register(Box::leak(Box::new(vfs)))
}

/// The file of a name, if there is one.
///
/// # Safety
///
/// A VFS that [`register`] made, and a string. No other reference to the file is in use.
unsafe fn find<'a>(vfs: *mut sqlite3_vfs, name: *const c_char) -> Option<&'a mut Memory> {
    // SAFETY: the caller's promise; files stay for ever.
    unsafe {
        let files = &*(*vfs).pAppData.cast::<Files>();
        let name = CStr::from_ptr(name);
        files.iter().map(|file| &mut **file).find(|file| file.name.as_c_str() == name)
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's call, with room for an open file.
    unsafe {
        // Temporary files have no name. No row needs one.
        if name.is_null() {
            (*file).pMethods = std::ptr::null();
            return SQLITE_CANTOPEN;
        }
        let memory = match find(vfs, name) {
            Some(memory) => memory,
            None => make(&mut *(*vfs).pAppData.cast::<Files>(), CStr::from_ptr(name)),
        };
        *file.cast::<Open>() = Open { base: sqlite3_file { pMethods: &raw const METHODS }, memory };
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    SQLITE_OK
}

fn make<'a>(files: &mut Files, name: &CStr) -> &'a mut Memory {
    let mut bytes = vec![1; TOUCHED_BYTES];
    bytes.clear();
    let memory = Box::leak(Box::new(Memory { name: name.to_owned(), bytes, shared: Vec::new() }));
    files.push(memory);
    memory
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, _: c_int) -> c_int {
    // SAFETY: SQLite's call.
    if let Some(memory) = unsafe { find(vfs, name) } {
        memory.bytes.clear();
    }
    SQLITE_OK
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's call.
    unsafe { *result = find(vfs, name).is_some_and(|file| !file.bytes.is_empty()).into() };
    SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    to: *mut c_char,
) -> c_int {
    // SAFETY: SQLite's call, with room for so many bytes.
    unsafe {
        let count = CStr::from_ptr(name).count_bytes() + 1;
        if count > bytes as usize {
            return SQLITE_CANTOPEN;
        }
        name.copy_to_nonoverlapping(to, count);
    }
    SQLITE_OK
}

/// What is open.
///
/// # Safety
///
/// SQLite calls a method of an open file, and this is the only reference meanwhile.
unsafe fn memory<'a>(file: *mut sqlite3_file) -> &'a mut Memory {
    // SAFETY: `open` wrote it; files stay for ever.
    unsafe { &mut *(*file.cast::<Open>()).memory }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite's call, with room for so many bytes.
    let (memory, to) =
        unsafe { (memory(file), slice::from_raw_parts_mut(to.cast::<u8>(), amount as usize)) };
    let there = memory.bytes.get(at as usize..).unwrap_or_default();
    let count = there.len().min(to.len());
    let (read, rest) = to.split_at_mut(count);
    read.copy_from_slice(&there[..count]);
    rest.fill(0);
    if rest.is_empty() { SQLITE_OK } else { SQLITE_IOERR_SHORT_READ }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite's call, with so many bytes.
    let (memory, from) =
        unsafe { (memory(file), slice::from_raw_parts(from.cast::<u8>(), amount as usize)) };
    let (start, end) = (at as usize, at as usize + from.len());
    if memory.bytes.len() < end {
        memory.bytes.resize(end, 0);
    }
    memory.bytes[start..end].copy_from_slice(from);
    SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's call.
    unsafe { memory(file) }.bytes.resize(size as usize, 0);
    SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite's call.
    unsafe { *size = memory(file).bytes.len() as i64 };
    SQLITE_OK
}

unsafe extern "C" fn close(_: *mut sqlite3_file) -> c_int {
    SQLITE_OK
}

/// Syncs, locks and unlocks.
unsafe extern "C" fn granted(_: *mut sqlite3_file, _: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn reserved(_: *mut sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: SQLite's call.
    unsafe { *result = 0 };
    SQLITE_OK
}

unsafe extern "C" fn control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    SECTOR_BYTES
}

unsafe extern "C" fn characteristics(_: *mut sqlite3_file) -> c_int {
    SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    bytes: c_int,
    _: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's call.
    unsafe {
        let shared = &mut memory(file).shared;
        while shared.len() <= region as usize {
            shared.push(vec![0; bytes as usize / size_of::<u64>()].into());
        }
        *to = shared[region as usize].as_mut_ptr().cast();
    }
    SQLITE_OK
}

unsafe extern "C" fn shm_lock(_: *mut sqlite3_file, _: c_int, _: c_int, _: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    if delete != 0 {
        // SAFETY: SQLite's call; it uses the regions no more.
        unsafe { memory(file) }.shared.clear();
    }
    SQLITE_OK
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(granted),
    xFileSize: Some(file_size),
    xLock: Some(granted),
    xUnlock: Some(granted),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
