//! The C ABI of `flex` and of the VFS of SQLite: `solera.h` and `solera_sqlite.h` say what each
//! function does. It links as `libsolera.so.0`, with the symbol versions of `solera.map`.
//!
//! The functions check what a C program can get wrong, and call `flex`.

#![allow(clippy::missing_safety_doc, reason = "solera.h says what a caller owes")]

mod arguments;
mod buffer;
mod file;
mod handles;
mod log;
mod place;
mod return_value;
mod sqlite;

use std::ffi::{c_char, c_int, c_void};

/// As `solera.h` says.
#[unsafe(no_mangle)]
pub extern "C" fn solera_error() -> *const c_char {
    return_value::last_error()
}

/// As `solera.h` says.
///
/// # Safety
///
/// The arguments are those of a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_sigbus(
    signal: c_int,
    info: *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { pmem::handle_fault(signal, info.cast(), context) })
}
