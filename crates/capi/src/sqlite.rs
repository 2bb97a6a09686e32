//! The VFS of SQLite: `solera_sqlite.h`.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use flex::Error;
use rustix::io::Errno;
use sqlite_vfs::Calls;

use crate::arguments::options;
use crate::return_value::call;

const MISUSE: &str = "the functions of SQLite are NULL";
/// `SQLITE_ERROR`.
const FAILED: c_int = 1;

/// As `solera_sqlite.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_sqlite_attach(given: *const Calls, make_default: c_int) -> c_int {
    call("solera_sqlite_attach", || {
        // SAFETY: the caller's, as the header says; zeros are functions that are NULL.
        let calls = unsafe { options(given)? }.ok_or(Error::Invalid(MISUSE))?;
        // SAFETY: as above.
        unsafe { sqlite_vfs::attach(&calls, make_default != 0) }
            .map_err(|refused| Error::System(refused.why, Errno::NOTSUP))?;
        Ok(0)
    })
}

/// As `solera_sqlite.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_sqlite_load(
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    if table.is_null() {
        return FAILED;
    }
    // SAFETY: the caller's, as the header says.
    catch_unwind(|| unsafe { sqlite_vfs::load(message, table.cast()) }).unwrap_or(FAILED)
}
