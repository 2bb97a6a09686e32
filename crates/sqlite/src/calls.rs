//! How SQLite is reached: by pointers to its functions, from its table for loadable extensions or
//! from a program that has SQLite linked.

use std::ffi::{c_char, c_int};
use std::fmt;

use libsqlite3_sys::{SQLITE_ERROR, SQLITE_MISUSE, sqlite3_api_routines, sqlite3_vfs};

/// The oldest SQLite that is taken: 3.40.
pub const OLDEST: c_int = 3_040_000;

/// `struct solera_sqlite_calls`: functions of one copy of SQLite.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Bytes of this structure as the program knows it.
    pub size: usize,
    /// `sqlite3_libversion_number`.
    pub libversion_number: Option<unsafe extern "C" fn() -> c_int>,
    /// `sqlite3_vfs_find`.
    pub vfs_find: Option<unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs>,
    /// `sqlite3_vfs_register`.
    pub vfs_register: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int>,
    /// `sqlite3_mprintf`.
    pub mprintf: Option<unsafe extern "C" fn(*const c_char, ...) -> *mut c_char>,
    /// `sqlite3_log`. Without it nothing is logged.
    pub log: Option<Log>,
}

type Log = unsafe extern "C" fn(c_int, *const c_char, ...);

/// Why the VFS is not there.
#[derive(Debug)]
pub struct Refused {
    /// An error code of SQLite's.
    pub code: c_int,
    /// A sentence for a person.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.why)
    }
}

/// The functions, all of them there.
#[derive(Clone, Copy)]
pub(crate) struct Sqlite {
    pub find: unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs,
    pub register: unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int,
    pub mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    pub log: Option<Log>,
}

impl Sqlite {
    /// Tells the program's error log, and gives the code.
    #[cold]
    pub fn logs(self, code: c_int, why: &str) -> c_int {
        if let Some(log) = self.log {
            // SAFETY: SQLite's function; a string of so many bytes.
            unsafe { log(code, c"solera: %.*s".as_ptr(), why.len() as c_int, why.as_ptr()) };
        }
        code
    }
}

impl Calls {
    /// What SQLite hands to a loadable extension.
    ///
    /// # Safety
    ///
    /// A table of SQLite 3.40 or newer, or one that says in its function that it is older.
    pub(crate) unsafe fn of_table(table: *const sqlite3_api_routines) -> Self {
        // SAFETY: the caller's promise. These fields are older than loadable extensions that can
        // stay loaded, and no version has moved them.
        unsafe {
            Self {
                size: size_of::<Self>(),
                libversion_number: (*table).libversion_number,
                vfs_find: (*table).vfs_find,
                vfs_register: (*table).vfs_register,
                mprintf: (*table).mprintf,
                log: (*table).log,
            }
        }
    }

    /// All of them, of an SQLite that is new enough.
    ///
    /// # Safety
    ///
    /// The pointers lead to the functions of their names.
    pub(crate) unsafe fn checked(&self) -> Result<Sqlite, Refused> {
        let (Some(version), Some(find), Some(register), Some(mprintf)) =
            (self.libversion_number, self.vfs_find, self.vfs_register, self.mprintf)
        else {
            let why = "a function of SQLite's is NULL in what was handed to solera".to_owned();
            return Err(Refused { code: SQLITE_MISUSE, why });
        };
        // SAFETY: the caller's promise.
        let version = unsafe { version() };
        if version < OLDEST {
            let (major, minor) = (version / 1_000_000, version / 1_000 % 1_000);
            let why = format!(
                "solera's VFS needs SQLite 3.40 or newer, and this is SQLite {major}.{minor}: \
                 use a newer one, or the VFS unix"
            );
            return Err(Refused { code: SQLITE_ERROR, why });
        }
        Ok(Sqlite { find, register, mprintf, log: self.log })
    }
}
