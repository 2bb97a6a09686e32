//! The VFS itself: what SQLite asks of it that is of no open file. All of it is the parent's, but
//! the opening of files, and names that lie on volumes.
//!
//! Each copy of SQLite in the process has a VFS of its own, which stays for ever.
//!
//! Locks: `ATTACHED`, under which nothing of SQLite's is called: its functions initialize SQLite,
//! and a program may have said that [`attach`] is called then.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use libsqlite3_sys::{
    SQLITE_CANTOPEN, SQLITE_ERROR, SQLITE_IOERR, SQLITE_IOERR_ACCESS, SQLITE_IOERR_DELETE,
    SQLITE_OK, SQLITE_OK_LOAD_PERMANENTLY, sqlite3_api_routines, sqlite3_file, sqlite3_syscall_ptr,
    sqlite3_vfs,
};

use crate::calls::{Calls, Refused, Sqlite};
use crate::directory;
use crate::volume::{self, FileName, FullName};

const NAME: &CStr = c"solera";
const PARENT: &CStr = c"unix";

/// The VFS of a copy of SQLite.
struct Attached {
    /// SQLite's, and read and written by SQLite.
    vfs: sqlite3_vfs,
    parent: *mut sqlite3_vfs,
    sqlite: Sqlite,
}

/// The addresses of all of them.
static ATTACHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Makes the VFS `solera` known to a copy of SQLite; again, where it is known. As default: for
/// opens of databases that name no VFS.
///
/// # Safety
///
/// The pointers lead to the functions of their names, of one copy of SQLite that is never unloaded.
pub unsafe fn attach(calls: &Calls, make_default: bool) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    let sqlite = unsafe { calls.checked() }?;
    // SAFETY: as above. It initializes SQLite.
    let parent = unsafe { (sqlite.find)(PARENT.as_ptr()) };
    if parent.is_null() {
        let why = "this SQLite has no VFS named unix, which solera's stands on".to_owned();
        return Err(Refused { code: SQLITE_ERROR, why });
    }
    let attached = of(sqlite, parent);
    // SAFETY: the VFS stays for ever; as above.
    unsafe {
        let vfs = &raw mut (*attached).vfs;
        // What is default stays default.
        let is_default = (sqlite.find)(std::ptr::null()) == vfs;
        let code = (sqlite.register)(vfs, c_int::from(make_default || is_default));
        if code == SQLITE_OK {
            return Ok(());
        }
        Err(Refused { code, why: format!("SQLite does not take solera's VFS: error {code}") })
    }
}

/// The VFS of a copy of SQLite, which is made if there is none.
fn of(sqlite: Sqlite, parent: *mut sqlite3_vfs) -> *mut Attached {
    let mut all = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
    for &known in all.iter() {
        let known = known as *mut Attached;
        // SAFETY: it stays for ever, and this field never changes.
        if unsafe { (*known).parent } == parent {
            return known;
        }
    }
    // SAFETY: a VFS of SQLite's, which has these fields since version 1.
    let (version, file_bytes, path_bytes) =
        unsafe { ((*parent).iVersion, (*parent).szOsFile, (*parent).mxPathname) };
    let vfs = sqlite3_vfs {
        iVersion: version.clamp(1, 3),
        szOsFile: directory::FILE_BYTES as c_int + file_bytes,
        mxPathname: path_bytes,
        zName: NAME.as_ptr(),
        ..METHODS
    };
    let attached = Box::into_raw(Box::new(Attached { vfs, parent, sqlite }));
    // SAFETY: nobody else knows it yet.
    unsafe { (*attached).vfs.pAppData = attached.cast() };
    all.push(attached as usize);
    attached
}

/// What the entry of the loadable extension does. Gives what it returns to SQLite.
///
/// # Safety
///
/// As SQLite calls the entry of an extension.
pub unsafe fn load(message: *mut *mut c_char, table: *const sqlite3_api_routines) -> c_int {
    // SAFETY: the caller's promise.
    let calls = unsafe { Calls::of_table(table) };
    // SAFETY: the caller's promise; an SQLite that has loaded an extension for good stays.
    let refused = match unsafe { attach(&calls, false) } {
        Ok(()) => return SQLITE_OK_LOAD_PERMANENTLY,
        Err(refused) => refused,
    };
    let (why, bytes) = (refused.why.as_ptr(), refused.why.len() as c_int);
    if let Some(mprintf) = calls.mprintf
        && !message.is_null()
    {
        // SAFETY: SQLite's word; a string of so many bytes.
        unsafe { *message = mprintf(c"%.*s".as_ptr(), bytes, why) };
    }
    refused.code
}

/// The parent of a VFS of ours.
///
/// # Safety
///
/// SQLite calls a method of such a VFS.
unsafe fn parent(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: it was made by `of`.
    unsafe { (*(*vfs).pAppData.cast::<Attached>()).parent }
}

/// The copy of SQLite that calls a method of such a VFS.
///
/// # Safety
///
/// As [`parent`].
unsafe fn sqlite(vfs: *mut sqlite3_vfs) -> Sqlite {
    // SAFETY: the caller's promise.
    unsafe { (*(*vfs).pAppData.cast::<Attached>()).sqlite }
}

/// A method of the parent's, by its name; what stands behind is given if it has none.
macro_rules! of_parent {
    ($vfs:expr, $method:ident($($argument:expr),*), $missing:expr) => {{
        // SAFETY: SQLite calls a method of this VFS, with the arguments that the parent's takes.
        unsafe {
            let parent = parent($vfs);
            match (*parent).$method {
                Some(method) => method(parent, $($argument),*),
                None => $missing,
            }
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's call; the VFS was made by `of`, with room for each kind of file.
    unsafe {
        let sqlite = sqlite(vfs);
        let place = match place(name) {
            Ok(place) => place,
            Err(error) => {
                (*file).pMethods = std::ptr::null();
                return sqlite.logs(SQLITE_CANTOPEN, &error.to_string());
            }
        };
        let name = match place {
            FileName::Local => name,
            // The parent keeps it for as long as the file is open. So a database comes here only
            // by a super-journal's name, which another process wrote.
            FileName::Shown(path) => path.into_raw(),
            FileName::Volume(names, path) => {
                return volume::open(sqlite, (names, path), file, flags, out_flags);
            }
        };
        directory::open(sqlite, parent(vfs), name, file, flags, out_flags)
    }
}

/// Where a name leads to.
///
/// # Safety
///
/// NULL, or a string of SQLite's.
unsafe fn place(name: *const c_char) -> flex::Result<FileName> {
    if name.is_null() {
        return Ok(FileName::Local);
    }
    // SAFETY: the caller's promise.
    volume::file_name(unsafe { CStr::from_ptr(name) }.to_bytes())
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite's call.
    match unsafe { place(name) } {
        Ok(FileName::Local) => of_parent!(vfs, xDelete(name, sync), SQLITE_IOERR),
        Ok(FileName::Shown(path)) => of_parent!(vfs, xDelete(path.as_ptr(), sync), SQLITE_IOERR),
        Ok(FileName::Volume(names, path)) => volume::delete(&*names, &path, sync != 0),
        // SAFETY: as above.
        Err(error) => unsafe { sqlite(vfs) }.logs(SQLITE_IOERR_DELETE, &error.to_string()),
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's call.
    match unsafe { place(name) } {
        Ok(FileName::Local) => of_parent!(vfs, xAccess(name, flags, result), SQLITE_IOERR),
        Ok(FileName::Shown(path)) => {
            of_parent!(vfs, xAccess(path.as_ptr(), flags, result), SQLITE_IOERR)
        }
        Ok(FileName::Volume(names, path)) => {
            let is_so = volume::access(&*names, &path, flags);
            // SAFETY: SQLite's word.
            unsafe { *result = c_int::from(is_so) };
            SQLITE_OK
        }
        // What cannot be looked for must not be taken for gone.
        // SAFETY: as above.
        Err(error) => unsafe { sqlite(vfs) }.logs(SQLITE_IOERR_ACCESS, &error.to_string()),
    }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    to: *mut c_char,
) -> c_int {
    // SAFETY: SQLite's pager gives a name with its parameters behind.
    let found = unsafe { volume::full_name(name) };
    let found = match found {
        Ok(None) => {
            let code = of_parent!(vfs, xFullPathname(name, bytes, to), SQLITE_IOERR);
            // SAFETY: SQLite's memory, which has a string then.
            if code & 0xff != SQLITE_OK || unsafe { !volume::may_be_mounted(to) } {
                return code;
            }
            // SAFETY: as above.
            match volume::of_mount(unsafe { CStr::from_ptr(to) }.to_bytes()) {
                Ok(None) => return code,
                found => found,
            }
        }
        found => found,
    };
    let full = match found {
        Ok(Some(FullName::Volume(name))) => name,
        Ok(Some(FullName::Shown(path))) => {
            return of_parent!(vfs, xFullPathname(path.as_ptr(), bytes, to), SQLITE_IOERR);
        }
        Ok(None) => return SQLITE_CANTOPEN,
        Err(error) => {
            // SAFETY: SQLite's call.
            return unsafe { sqlite(vfs) }.logs(SQLITE_CANTOPEN, &error.to_string());
        }
    };
    let full = full.as_bytes_with_nul();
    if full.len() > bytes as usize {
        return SQLITE_CANTOPEN;
    }
    // SAFETY: SQLite's memory has room for so many bytes.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(full.as_ptr(), full.len()) };
    SQLITE_OK
}

unsafe extern "C" fn dl_open(vfs: *mut sqlite3_vfs, name: *const c_char) -> *mut c_void {
    of_parent!(vfs, xDlOpen(name), std::ptr::null_mut())
}

unsafe extern "C" fn dl_error(vfs: *mut sqlite3_vfs, bytes: c_int, to: *mut c_char) {
    of_parent!(vfs, xDlError(bytes, to), ());
}

type Symbol = unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn dl_sym(
    vfs: *mut sqlite3_vfs,
    library: *mut c_void,
    name: *const c_char,
) -> Option<Symbol> {
    of_parent!(vfs, xDlSym(library, name), None)
}

unsafe extern "C" fn dl_close(vfs: *mut sqlite3_vfs, library: *mut c_void) {
    of_parent!(vfs, xDlClose(library), ());
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, bytes: c_int, to: *mut c_char) -> c_int {
    of_parent!(vfs, xRandomness(bytes, to), 0)
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    of_parent!(vfs, xSleep(microseconds), 0)
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, to: *mut f64) -> c_int {
    of_parent!(vfs, xCurrentTime(to), SQLITE_ERROR)
}

unsafe extern "C" fn last_error(vfs: *mut sqlite3_vfs, bytes: c_int, to: *mut c_char) -> c_int {
    of_parent!(vfs, xGetLastError(bytes, to), 0)
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, to: *mut i64) -> c_int {
    of_parent!(vfs, xCurrentTimeInt64(to), SQLITE_ERROR)
}

unsafe extern "C" fn set_system_call(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    call: sqlite3_syscall_ptr,
) -> c_int {
    of_parent!(vfs, xSetSystemCall(name, call), SQLITE_ERROR)
}

unsafe extern "C" fn system_call(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
) -> sqlite3_syscall_ptr {
    of_parent!(vfs, xGetSystemCall(name), None)
}

unsafe extern "C" fn next_system_call(vfs: *mut sqlite3_vfs, name: *const c_char) -> *const c_char {
    of_parent!(vfs, xNextSystemCall(name), std::ptr::null())
}

/// The methods, of no VFS yet.
const METHODS: sqlite3_vfs = sqlite3_vfs {
    iVersion: 0,
    szOsFile: 0,
    mxPathname: 0,
    pNext: std::ptr::null_mut(),
    zName: std::ptr::null(),
    pAppData: std::ptr::null_mut(),
    xOpen: Some(open),
    xDelete: Some(delete),
    xAccess: Some(access),
    xFullPathname: Some(full_pathname),
    xDlOpen: Some(dl_open),
    xDlError: Some(dl_error),
    xDlSym: Some(dl_sym),
    xDlClose: Some(dl_close),
    xRandomness: Some(randomness),
    xSleep: Some(sleep),
    xCurrentTime: Some(current_time),
    xGetLastError: Some(last_error),
    xCurrentTimeInt64: Some(current_time_int64),
    xSetSystemCall: Some(set_system_call),
    xGetSystemCall: Some(system_call),
    xNextSystemCall: Some(next_system_call),
};
