//! Files of kernel file systems: the parent's file, and a window on it where that pays.
//!
//! The parent's file lies behind ours in the memory that SQLite gives. A database and its
//! write-ahead log have a window once they were accessed some times; a journal has none, for it is
//! made and removed with each transaction, and written by appending.
//!
//! Which files are stored to: in volatile memory both, since a sync of them does nothing there.
//! In durable memory only the log. A sync of the database is left to the kernel, which then writes
//! back all pages that were stored to by a mapping, and makes each of them fault again.
//!
//! PERSIST: a sync of the log is left out in durable memory if this file was synced by the parent,
//! nothing of it went by the parent since, and the log is exactly as long as then. What another
//! process wrote and did not sync is then inside blocks that were durable already. If it cut and
//! lengthened the log meanwhile, the mapping lost its pages, and the kernel has made the new blocks
//! durable before the first store to one of them (`MAP_SYNC`).
//!
//! A store changes no time of a file, and tells no watcher. So one write of a database between two
//! syncs or unlocks, and the one with which a log begins anew, go by the parent: what looks for
//! changed files finds them.
//!
//! Nothing here panics, allocates or locks, but the opening and closing of a window.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use libsqlite3_sys::{
    SQLITE_FCNTL_HAS_MOVED, SQLITE_FCNTL_VFSNAME, SQLITE_IOERR, SQLITE_OK, SQLITE_OPEN_MAIN_DB,
    SQLITE_OPEN_READWRITE, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
};
use pmem::{Class, UserIn, UserOut};

use crate::calls::Sqlite;
use crate::window::{self, Inode, Window};

/// Accesses by the parent before a window is opened: it costs as much as a hundred saved calls, and
/// much more where the processors are busy, for it needs a thread.
const ACCESSES: u32 = 64;

/// What the environment says instead: tests want a window at once.
fn accesses() -> u32 {
    static SAID: OnceLock<u32> = OnceLock::new();
    let said = || std::env::var("SOLERA_SQLITE_AFTER").ok().and_then(|said| said.parse().ok());
    *SAID.get_or_init(|| said().unwrap_or(ACCESSES))
}

/// An open file, as SQLite has it.
#[repr(C)]
pub struct File {
    base: sqlite3_file,
    sqlite: Sqlite,
    /// The path, which SQLite keeps until the file is closed.
    name: *const c_char,
    window: Option<Arc<Window>>,
    /// What is to have a window, but has none yet.
    inode: Option<Inode>,
    /// Reads and writes that come before it.
    accesses: u32,
    is_writable: bool,
    /// Stores go by the window, too.
    stores: bool,
    is_log: bool,
    /// A write has gone by the parent since the last sync or unlock.
    is_stamped: bool,
    /// Something went by the parent since its last sync.
    is_behind: bool,
    /// The length that the parent's last sync made durable.
    synced: Option<i64>,
}

/// Bytes of ours before the parent's.
pub const FILE_BYTES: usize = size_of::<File>();
const _: () = assert!(FILE_BYTES.is_multiple_of(8));

/// The parent's file behind ours, and its methods.
///
/// # Safety
///
/// A file that [`open`] has opened.
#[inline]
unsafe fn parent(file: *mut sqlite3_file) -> (*mut sqlite3_file, &'static sqlite3_io_methods) {
    // SAFETY: the memory is so large; the methods of an open file of the parent's are its statics.
    unsafe {
        let behind = file.byte_add(FILE_BYTES);
        (behind, &*(*behind).pMethods)
    }
}

/// The whole of a file of ours.
///
/// # Safety
///
/// As [`parent`]; SQLite calls the methods of a file by one thread at a time.
#[inline]
unsafe fn ours<'f>(file: *mut sqlite3_file) -> &'f mut File {
    // SAFETY: the caller's promise.
    unsafe { &mut *file.cast::<File>() }
}

/// A method of the parent's, by its name; what stands behind is given if it has none.
macro_rules! of_parent {
    ($file:expr, $method:ident($($argument:expr),*), $missing:expr) => {{
        // SAFETY: SQLite's open file, and the arguments that SQLite gave.
        unsafe {
            let (behind, methods) = parent($file);
            match methods.$method {
                Some(method) => method(behind, $($argument),*),
                None => $missing,
            }
        }
    }};
}

/// Opens a file by the parent.
///
/// # Safety
///
/// As SQLite calls `xOpen`, for a VFS whose `szOsFile` has room for both files.
pub unsafe fn open(
    sqlite: Sqlite,
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let fresh = File {
        base: sqlite3_file { pMethods: std::ptr::null() },
        sqlite,
        name,
        window: None,
        inode: None,
        accesses: accesses(),
        is_writable: false,
        stores: false,
        is_log: flags & SQLITE_OPEN_WAL != 0,
        is_stamped: false,
        is_behind: true,
        synced: None,
    };
    let has_window = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL) != 0 && !name.is_null();
    // SAFETY: a path of SQLite's ends in a zero.
    let path = has_window.then(|| unsafe { CStr::from_ptr(name) });
    let before = path.and_then(window::inode_at);
    let mut opened = flags;
    // SAFETY: SQLite's memory for a file, to which nothing was written yet, as large as both.
    let (behind, code) = unsafe {
        file.cast::<File>().write(fresh);
        let behind = file.byte_add(FILE_BYTES);
        (*behind).pMethods = std::ptr::null();
        let open = (*vfs).xOpen;
        (behind, open.map_or(SQLITE_IOERR, |open| open(vfs, name, behind, flags, &raw mut opened)))
    };
    // SAFETY: the parent has opened its file, or has left it without methods; SQLite's word.
    unsafe {
        if !out_flags.is_null() {
            *out_flags = opened;
        }
        let Some(methods) = (*behind).pMethods.as_ref() else { return code };
        if code != SQLITE_OK {
            methods.xClose.map(|close| close(behind));
            return code;
        }
        let version = methods.iVersion.clamp(1, 3);
        (*file).pMethods = &raw const METHODS[version as usize - 1];
    }
    // The file was there before: then it is the one that the parent has open. Else the parent has
    // made it.
    let inode = path.and_then(window::inode_at);
    let is_it = before.is_none_or(|before| inode == Some(before)) && !has_moved(file);
    // SAFETY: the file that was made above.
    let ours = unsafe { ours(file) };
    ours.is_writable = opened & SQLITE_OPEN_READWRITE != 0;
    ours.inode = inode.filter(|_| is_it);
    let shared = ours.inode.and_then(|inode| Window::shared(inode, ours.is_writable));
    if shared.is_some() {
        ours.has(shared);
    }
    SQLITE_OK
}

impl File {
    /// What it does from here on by a window, if there is one.
    fn has(&mut self, window: Option<Arc<Window>>) {
        self.inode = None;
        self.stores = window.as_ref().is_some_and(|window| {
            window.is_direct() && (window.class() == Class::Volatile || self.is_log)
        });
        self.window = window;
    }

    /// An access is to come: of a file that has many, a window pays.
    #[inline]
    fn comes(&mut self) {
        if self.inode.is_some() {
            match self.accesses.checked_sub(1) {
                Some(left) => self.accesses = left,
                None => self.opens_window(),
            }
        }
    }

    #[cold]
    fn opens_window(&mut self) {
        let (name, inode, is_writable) = (self.name, self.inode, self.is_writable);
        // What panics there has opened no window.
        let found = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: a path of SQLite's, which it keeps.
            Window::of(unsafe { CStr::from_ptr(name) }, inode?, is_writable)
        }));
        self.has(found.ok().flatten());
    }
}

/// Whether the path leads to another file than the parent has open, as far as the parent knows.
fn has_moved(file: *mut sqlite3_file) -> bool {
    let mut moved: c_int = 0;
    let at = (&raw mut moved).cast();
    of_parent!(file, xFileControl(SQLITE_FCNTL_HAS_MOVED, at), SQLITE_OK) == SQLITE_OK && moved != 0
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let code = of_parent!(file, xClose(), SQLITE_OK);
    // SAFETY: SQLite's open file, which nobody uses any more.
    drop(unsafe { ours(file) }.window.take());
    code
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    ours.comes();
    let Some(window) = &ours.window else {
        return of_parent!(file, xRead(to, count, offset), SQLITE_IOERR);
    };
    // SAFETY: SQLite's buffer has so many bytes.
    let sink = unsafe { UserOut::from_raw(to.cast(), count as usize) };
    if window.read(offset as u64, &sink) {
        return SQLITE_OK;
    }
    let code = of_parent!(file, xRead(to, count, offset), SQLITE_IOERR);
    if code == SQLITE_OK {
        window.reaches((offset + i64::from(count)) as u64);
    }
    code
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    ours.comes();
    let window = ours.window.as_ref();
    let shows = if ours.is_log { offset != 0 } else { ours.is_stamped };
    if ours.stores
        && shows
        && let Some(window) = window
    {
        // SAFETY: SQLite's buffer has so many bytes.
        let source = unsafe { UserIn::from_raw(from.cast(), count as usize) };
        if window.write(offset as u64, &source) {
            return SQLITE_OK;
        }
    }
    (ours.is_behind, ours.is_stamped) = (true, true);
    let code = of_parent!(file, xWrite(from, count, offset), SQLITE_IOERR);
    if let Some(window) = window
        && code == SQLITE_OK
    {
        window.reaches((offset + i64::from(count)) as u64);
    }
    code
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    ours.is_behind = true;
    let code = of_parent!(file, xTruncate(size), SQLITE_IOERR);
    if let Some(window) = &ours.window
        && code == SQLITE_OK
    {
        window.ends_at(size as u64);
    }
    code
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    let ours = unsafe { ours(file) };
    ours.is_stamped = false;
    match &ours.window {
        // The kernel does nothing either.
        Some(window) if window.is_direct() && window.class() == Class::Volatile => {
            return SQLITE_OK;
        }
        Some(_) if ours.stores => {}
        _ => return of_parent!(file, xSync(flags), SQLITE_IOERR),
    }
    let mut size: i64 = -1;
    let at = &raw mut size;
    let is_known = of_parent!(file, xFileSize(at), SQLITE_IOERR) == SQLITE_OK;
    let size = is_known.then_some(size);
    // PERSIST: as the head of this file says.
    if !ours.is_behind && size.is_some() && size == ours.synced {
        return SQLITE_OK;
    }
    let code = of_parent!(file, xSync(flags), SQLITE_IOERR);
    if code == SQLITE_OK {
        (ours.is_behind, ours.synced) = (false, size);
    }
    code
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    let code = of_parent!(file, xFileSize(size), SQLITE_IOERR);
    // SAFETY: SQLite's open file, and its word, which the parent has written.
    unsafe {
        if let Some(window) = &ours(file).window
            && code == SQLITE_OK
        {
            window.ends_at(*size as u64);
        }
    }
    code
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    of_parent!(file, xLock(level), SQLITE_IOERR)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's open file.
    unsafe { ours(file) }.is_stamped = false;
    of_parent!(file, xUnlock(level), SQLITE_IOERR)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, is_held: *mut c_int) -> c_int {
    of_parent!(file, xCheckReservedLock(is_held), SQLITE_IOERR)
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    let code = of_parent!(file, xFileControl(operation, argument), SQLITE_IOERR);
    if operation == SQLITE_FCNTL_VFSNAME && code == SQLITE_OK {
        // SAFETY: then the argument is a string of SQLite's memory, which `%z` frees.
        unsafe {
            let name = argument.cast::<*mut c_char>();
            *name = (ours(file).sqlite.mprintf)(c"solera/%z".as_ptr(), *name);
        }
    }
    code
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    of_parent!(file, xSectorSize(), 4096)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    of_parent!(file, xDeviceCharacteristics(), 0)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    bytes: c_int,
    extends: c_int,
    to: *mut *mut c_void,
) -> c_int {
    of_parent!(file, xShmMap(page, bytes, extends, to), SQLITE_IOERR)
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    of_parent!(file, xShmLock(first, count, flags), SQLITE_IOERR)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    of_parent!(file, xShmBarrier(), ());
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, deletes: c_int) -> c_int {
    of_parent!(file, xShmUnmap(deletes), SQLITE_OK)
}

unsafe extern "C" fn fetch(
    file: *mut sqlite3_file,
    offset: i64,
    count: c_int,
    to: *mut *mut c_void,
) -> c_int {
    of_parent!(file, xFetch(offset, count, to), SQLITE_IOERR)
}

unsafe extern "C" fn unfetch(file: *mut sqlite3_file, offset: i64, at: *mut c_void) -> c_int {
    of_parent!(file, xUnfetch(offset, at), SQLITE_OK)
}

/// As many methods as a parent's file of version 1, 2 and 3 has.
static METHODS: [sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];

const fn methods(version: c_int) -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: version,
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
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File as Kernel;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A parent over a file of the kernel's that counts what it is asked for.
    #[repr(C)]
    struct Behind {
        base: sqlite3_file,
        file: Option<Kernel>,
        writes: usize,
        syncs: usize,
    }

    /// SQLite's memory for a file: ours, and the parent's behind it.
    #[repr(C)]
    struct Memory {
        ours: std::mem::MaybeUninit<File>,
        behind: Behind,
    }

    unsafe fn behind<'f>(file: *mut sqlite3_file) -> &'f mut Behind {
        // SAFETY: the tests' own.
        unsafe { &mut *file.cast::<Behind>() }
    }

    unsafe extern "C" fn parent_write(
        file: *mut sqlite3_file,
        from: *const c_void,
        count: c_int,
        offset: i64,
    ) -> c_int {
        // SAFETY: the tests' own.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count as usize) };
        // SAFETY: as above.
        let behind = unsafe { behind(file) };
        behind.writes += 1;
        let done = behind.file.as_ref().expect("open").write_all_at(bytes, offset as u64);
        if done.is_ok() { SQLITE_OK } else { SQLITE_IOERR }
    }

    unsafe extern "C" fn parent_sync(file: *mut sqlite3_file, _: c_int) -> c_int {
        // SAFETY: the tests' own.
        unsafe { behind(file) }.syncs += 1;
        SQLITE_OK
    }

    unsafe extern "C" fn parent_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
        // SAFETY: the tests' own.
        let file = unsafe { behind(file) }.file.as_ref().expect("open");
        // SAFETY: as above.
        unsafe { *size = file.metadata().expect("its length").len() as i64 };
        SQLITE_OK
    }

    static PARENT: sqlite3_io_methods = sqlite3_io_methods {
        xWrite: Some(parent_write),
        xSync: Some(parent_sync),
        xFileSize: Some(parent_size),
        xFileControl: None,
        ..methods(1)
    };

    type Printf = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;

    unsafe extern "C" fn find_none(_: *const c_char) -> *mut sqlite3_vfs {
        std::ptr::null_mut()
    }

    unsafe extern "C" fn register_none(_: *mut sqlite3_vfs, _: c_int) -> c_int {
        SQLITE_OK
    }

    /// A file of eight pages, open as SQLite has it, in memory that is taken for `class`.
    struct Opened {
        memory: Box<Memory>,
        other: Kernel,
        path: String,
    }

    impl Opened {
        fn new(name: &str, class: Class, is_log: bool) -> Self {
            let path = format!("/dev/shm/solera-file-{name}-{}", std::process::id());
            std::fs::write(&path, vec![1; 8 * 4096]).expect("a file");
            let open = || Kernel::options().read(true).write(true).open(&path).expect("it");
            let window = Window::taken_for(&CString::new(path.as_str()).expect("a path"), class);
            let printf = libc::printf as *const ();
            // SAFETY: a function, which is never called.
            let mprintf = unsafe { std::mem::transmute::<*const (), Printf>(printf) };
            let sqlite = Sqlite { find: find_none, register: register_none, mprintf, log: None };
            let ours = File {
                base: sqlite3_file { pMethods: &raw const METHODS[0] },
                sqlite,
                name: std::ptr::null(),
                window: Some(window),
                inode: None,
                accesses: 0,
                is_writable: true,
                stores: class == Class::Volatile || is_log,
                is_log,
                is_stamped: false,
                is_behind: true,
                synced: None,
            };
            let base = sqlite3_file { pMethods: &raw const PARENT };
            let behind = Behind { base, file: Some(open()), writes: 0, syncs: 0 };
            let memory = Box::new(Memory { ours: std::mem::MaybeUninit::new(ours), behind });
            Self { memory, other: open(), path }
        }

        fn file(&mut self) -> *mut sqlite3_file {
            (&raw mut *self.memory).cast()
        }

        /// Writes; whether that was a call of the parent's.
        fn writes(&mut self, offset: i64, bytes: &[u8]) -> bool {
            let before = self.memory.behind.writes;
            let (from, count) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            // SAFETY: an open file, and these bytes.
            assert_eq!(unsafe { write(self.file(), from, count, offset) }, SQLITE_OK);
            let mut there = vec![0; bytes.len()];
            self.other.read_exact_at(&mut there, offset as u64).expect("what was written");
            assert_eq!(there, bytes);
            self.memory.behind.writes > before
        }

        /// Syncs; whether that was a call of the parent's.
        fn syncs(&mut self) -> bool {
            let before = self.memory.behind.syncs;
            // SAFETY: an open file.
            assert_eq!(unsafe { sync(self.file(), 0) }, SQLITE_OK);
            self.memory.behind.syncs > before
        }
    }

    impl Drop for Opened {
        fn drop(&mut self) {
            // SAFETY: it was written when this was made.
            unsafe { self.memory.ours.assume_init_drop() };
            let _ = std::fs::remove_file(&self.path);
        }
    }

    #[test]
    fn a_log_is_synced_once_for_what_it_grew_by() {
        assert_eq!(std::mem::offset_of!(Memory, behind), FILE_BYTES);
        for class in [Class::Byte, Class::CacheLine] {
            let mut log = Opened::new(&format!("log-{class}"), class, true);
            assert!(!log.writes(4096, b"frame"));
            assert!(log.syncs(), "nobody knows what was there before");
            assert!(!log.writes(5000, &[7; 5000]) && !log.syncs());
            assert!(log.writes(8 * 4096 - 3, b"behind the end"), "that is the parent's");
            assert!(log.syncs());
            assert!(!log.writes(77, &[8; 3]) && !log.syncs());
            assert!(log.writes(0, b"begins anew") && log.syncs());
            // Another process has appended, and synced nothing.
            log.other.write_all_at(b"frames", 9 * 4096).expect("append");
            assert!(!log.writes(4096, b"frame") && log.syncs() && !log.syncs());
            log.other.set_len(6 * 4096).expect("cut");
            assert!(log.writes(4096, b"frame") && log.syncs() && !log.syncs());
            let mut size = 0;
            // SAFETY: an open file, and a word.
            let asked = unsafe { file_size(log.file(), &raw mut size) };
            assert_eq!((asked, size), (SQLITE_OK, 6 * 4096));
            log.other.set_len(7 * 4096).expect("longer again, and a hole");
            assert!(!log.writes(4096, b"frame") && log.syncs() && !log.syncs());
        }
    }

    #[test]
    fn a_durable_database_is_the_kernels_to_write() {
        let mut database = Opened::new("durable", Class::CacheLine, false);
        for _ in 0..3 {
            assert!(database.writes(4096, b"page") && database.syncs());
        }
    }

    #[test]
    fn in_volatile_memory_a_sync_is_nothing_and_the_first_write_is_the_parents() {
        for is_log in [false, true] {
            let name = if is_log { "volatile-log" } else { "volatile" };
            let mut file = Opened::new(name, Class::Volatile, is_log);
            for _ in 0..3 {
                assert_eq!(file.writes(4096, b"first"), !is_log);
                assert!(!file.writes(8192, b"second") && !file.writes(4099, b"third"));
                assert!(!file.syncs());
            }
        }
    }
}
