//! The system's SQLite, loaded at run time, and solera's VFS in it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use libsqlite3_sys::{
    SQLITE_DONE, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_READWRITE, SQLITE_OPEN_URI, SQLITE_ROW,
    sqlite3, sqlite3_stmt, sqlite3_vfs,
};

use crate::harness::executable;

const LIBRARY: &CStr = c"libsqlite3.so.0";
const EXTENSION: &str = "solera_vfs.so";

/// A result with a sentence.
pub type Result<T> = std::result::Result<T, String>;

type Callback =
    unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Find = unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs;
type Register = unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int;
type DatabaseCall = unsafe extern "C" fn(*mut sqlite3) -> c_int;
type StatementCall = unsafe extern "C" fn(*mut sqlite3_stmt) -> c_int;
type Prepare = unsafe extern "C" fn(
    *mut sqlite3,
    *const c_char,
    c_int,
    *mut *mut sqlite3_stmt,
    *mut *const c_char,
) -> c_int;
type Exec = unsafe extern "C" fn(
    *mut sqlite3,
    *const c_char,
    Option<Callback>,
    *mut c_void,
    *mut *mut c_char,
) -> c_int;
type Load =
    unsafe extern "C" fn(*mut sqlite3, *const c_char, *const c_char, *mut *mut c_char) -> c_int;

/// A library that is loaded, and never unloaded.
struct Loaded(*mut c_void);

impl Loaded {
    /// Loads it.
    ///
    /// # Safety
    ///
    /// What it does when it is loaded is sound.
    unsafe fn open(name: &CStr) -> Result<Self> {
        // SAFETY: a string, and the caller's promise.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() { Err(Self::error()) } else { Ok(Self(library)) }
    }

    /// A function of it, or of a library that came with it.
    ///
    /// # Safety
    ///
    /// `F` is the type of that function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: a loaded library, and a string.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if at.is_null() {
            return Err(Self::error());
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { std::mem::transmute_copy(&at) })
    }

    /// Why the call before has failed.
    fn error() -> String {
        // SAFETY: the text stays until this thread's next call.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the loader does not say why".to_owned();
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Functions of SQLite's, by their names without `sqlite3_`. The library is never unloaded.
pub struct Sqlite {
    libversion: unsafe extern "C" fn() -> *const c_char,
    libversion_number: unsafe extern "C" fn() -> c_int,
    open_v2: unsafe extern "C" fn(*const c_char, *mut *mut sqlite3, c_int, *const c_char) -> c_int,
    close: DatabaseCall,
    exec: Exec,
    errmsg: unsafe extern "C" fn(*mut sqlite3) -> *const c_char,
    prepare_v2: Prepare,
    step: StatementCall,
    reset: StatementCall,
    finalize: StatementCall,
    mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    vfs_find: Find,
    vfs_register: Register,
    /// `enable_load_extension` and `load_extension`, which an SQLite may lack.
    loading: Option<(unsafe extern "C" fn(*mut sqlite3, c_int) -> c_int, Load)>,
}

/// `struct solera_sqlite_calls`.
#[repr(C)]
struct Calls {
    size: usize,
    libversion_number: unsafe extern "C" fn() -> c_int,
    vfs_find: Find,
    vfs_register: Register,
    mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
}

impl Sqlite {
    /// Loads it.
    pub fn load() -> std::result::Result<&'static Self, Failure> {
        let failed = |error: String| {
            let advice = "it is Debian's package libsqlite3-0: apt-get install libsqlite3-0";
            Failure::new("load SQLite", error, advice)
        };
        // SAFETY: SQLite's library does nothing when it is loaded.
        let library = unsafe { Loaded::open(LIBRARY) }.map_err(failed)?;
        /// A function, of the field's type.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field has the type of sqlite3.h.
                unsafe { library.function($name) }.map_err(failed)?
            };
        }
        let loading = || {
            // SAFETY: as above.
            unsafe {
                let enable = library.function(c"sqlite3_enable_load_extension").ok()?;
                Some((enable, library.function(c"sqlite3_load_extension").ok()?))
            }
        };
        Ok(Box::leak(Box::new(Self {
            libversion: function!(c"sqlite3_libversion"),
            libversion_number: function!(c"sqlite3_libversion_number"),
            open_v2: function!(c"sqlite3_open_v2"),
            close: function!(c"sqlite3_close"),
            exec: function!(c"sqlite3_exec"),
            errmsg: function!(c"sqlite3_errmsg"),
            prepare_v2: function!(c"sqlite3_prepare_v2"),
            step: function!(c"sqlite3_step"),
            reset: function!(c"sqlite3_reset"),
            finalize: function!(c"sqlite3_finalize"),
            mprintf: function!(c"sqlite3_mprintf"),
            vfs_find: function!(c"sqlite3_vfs_find"),
            vfs_register: function!(c"sqlite3_vfs_register"),
            loading: loading(),
        })))
    }

    /// Its version, for people.
    pub fn version(&self) -> String {
        // SAFETY: a string that stays.
        unsafe { CStr::from_ptr((self.libversion)()) }.to_string_lossy().into_owned()
    }

    /// The VFS `unix`.
    pub fn unix(&self) -> Result<*mut sqlite3_vfs> {
        // SAFETY: a string.
        let vfs = unsafe { (self.vfs_find)(c"unix".as_ptr()) };
        if vfs.is_null() { Err("this SQLite has no VFS named unix".to_owned()) } else { Ok(vfs) }
    }

    /// Makes a VFS known.
    pub fn register(&self, vfs: &'static mut sqlite3_vfs) -> Result<()> {
        // SAFETY: it stays for ever.
        let code = unsafe { (self.vfs_register)(vfs, 0) };
        if code == SQLITE_OK { Ok(()) } else { Err(format!("SQLite's error {code}")) }
    }

    /// Loads solera's VFS, as a program would.
    pub fn load_vfs(&'static self, extension: &Path) -> Result<()> {
        match self.loading {
            Some((enable, load)) => self.load_extension(extension, enable, load),
            None => self.attach(extension),
        }
    }

    fn load_extension(
        &'static self,
        extension: &Path,
        enable: unsafe extern "C" fn(*mut sqlite3, c_int) -> c_int,
        load: Load,
    ) -> Result<()> {
        let database = Database::open(self, ":memory:".as_ref(), None)?;
        let path = CString::new(extension.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let null = std::ptr::null_mut();
        // SAFETY: an open database, and strings. SQLite keeps its own message too.
        let loaded = unsafe {
            enable(database.raw, 1) == SQLITE_OK
                && load(database.raw, path.as_ptr(), null, null.cast()) == SQLITE_OK
        };
        if loaded { Ok(()) } else { Err(database.message()) }
    }

    /// For an SQLite that loads no extensions.
    fn attach(&self, extension: &Path) -> Result<()> {
        type Attach = unsafe extern "C" fn(*const Calls, c_int) -> c_int;
        let calls = Calls {
            size: size_of::<Calls>(),
            libversion_number: self.libversion_number,
            vfs_find: self.vfs_find,
            vfs_register: self.vfs_register,
            mprintf: self.mprintf,
        };
        let path = CString::new(extension.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the library does nothing when it is loaded; the function has the type of
        // solera_sqlite.h, and this SQLite stays.
        let code = unsafe {
            let attach: Attach = Loaded::open(&path)?.function(c"solera_sqlite_attach")?;
            attach(&raw const calls, 0)
        };
        if code == 0 { Ok(()) } else { Err("solera's VFS refuses this SQLite".to_owned()) }
    }
}

/// The loadable extension: beside this program, or in `../lib` from it.
pub fn find_extension() -> std::result::Result<PathBuf, Failure> {
    let own = executable::own()
        .map_err(|error| Failure::new("find this program", error, "is /proc mounted?"))?;
    let directory = own.parent().unwrap_or(&own);
    let places = [directory.join(EXTENSION), directory.join("../lib").join(EXTENSION)];
    places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        Failure::new(
            format!("find SQLite's extension {EXTENSION}"),
            format!("it is not at {} nor at {}", places[0].display(), places[1].display()),
            "build it (make build), or install solera (make install)",
        )
    })
}

/// An open database.
pub struct Database {
    sqlite: &'static Sqlite,
    raw: *mut sqlite3,
}

impl Database {
    /// Opens or makes one, by its path or URI; `vfs`: if not by the default VFS.
    pub fn open(sqlite: &'static Sqlite, name: &Path, vfs: Option<&CStr>) -> Result<Self> {
        let text = CString::new(name.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
        let mut database = Self { sqlite, raw: std::ptr::null_mut() };
        let vfs = vfs.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: strings, and a place for the handle, which is made even if this fails.
        let code = unsafe { (sqlite.open_v2)(text.as_ptr(), &raw mut database.raw, flags, vfs) };
        if code == SQLITE_OK {
            return Ok(database);
        }
        Err(format!("{}: {}", name.display(), database.message()))
    }

    fn message(&self) -> String {
        // SAFETY: a handle of SQLite's, or null; the string stays until the next call.
        unsafe { CStr::from_ptr((self.sqlite.errmsg)(self.raw)) }.to_string_lossy().into_owned()
    }

    /// Executes statements; gives the first value of the last row, if there is any.
    pub fn execute(&self, text: &str) -> Result<String> {
        let sql = CString::new(text).map_err(|error| error.to_string())?;
        let mut value = String::new();
        let (to, null) = (&raw mut value, std::ptr::null_mut());
        // SAFETY: an open database and a string; `keep` gets the value that it writes to.
        let code =
            unsafe { (self.sqlite.exec)(self.raw, sql.as_ptr(), Some(keep), to.cast(), null) };
        if code == SQLITE_OK { Ok(value) } else { Err(format!("{text}: {}", self.message())) }
    }

    /// Sets the journal mode: SQLite goes on with another one where a VFS does not have it.
    pub fn set_journal(&self, mode: &str) -> Result<()> {
        match self.execute(&format!("pragma journal_mode={mode}"))? {
            set if set == mode => Ok(()),
            set => Err(format!("journal_mode={mode} is not to be had: it stays {set}")),
        }
    }

    /// Prepares a statement.
    pub fn prepare(self, text: &str) -> Result<Statement> {
        let sql = CString::new(text).map_err(|error| error.to_string())?;
        let mut statement = Statement { raw: std::ptr::null_mut(), database: self };
        let Self { sqlite, raw } = statement.database;
        // SAFETY: an open database, a string, and a place for the handle.
        let code = unsafe {
            let rest = std::ptr::null_mut();
            (sqlite.prepare_v2)(raw, sql.as_ptr(), -1, &raw mut statement.raw, rest)
        };
        if code == SQLITE_OK {
            return Ok(statement);
        }
        Err(format!("{text}: {}", statement.database.message()))
    }
}

/// A row of what is executed.
unsafe extern "C" fn keep(
    to: *mut c_void,
    count: c_int,
    values: *mut *mut c_char,
    _: *mut *mut c_char,
) -> c_int {
    // SAFETY: SQLite's call, with so many strings or nulls; `execute` lent the value.
    unsafe {
        if count > 0 && !(*values).is_null() {
            *to.cast::<String>() = CStr::from_ptr(*values).to_string_lossy().into_owned();
        }
    }
    0
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: its statement is gone; a null is allowed.
        unsafe { (self.sqlite.close)(self.raw) };
    }
}

/// A prepared statement, with its database.
pub struct Statement {
    raw: *mut sqlite3_stmt,
    database: Database,
}

impl Statement {
    /// Runs it to its end; it may be run again.
    pub fn run(&mut self) -> Result<()> {
        let sqlite = self.database.sqlite;
        loop {
            // SAFETY: a prepared statement.
            match unsafe { (sqlite.step)(self.raw) } {
                SQLITE_ROW => {}
                SQLITE_DONE => break,
                _ => return Err(self.database.message()),
            }
        }
        // SAFETY: as above.
        unsafe { (sqlite.reset)(self.raw) };
        Ok(())
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: it is not used any more; the database closes after this. A null is allowed.
        unsafe { (self.database.sqlite.finalize)(self.raw) };
    }
}
