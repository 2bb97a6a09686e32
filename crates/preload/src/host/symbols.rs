//! What the host calls.

use std::ffi::{c_char, c_int};

/// Called by the host's `main`, with what it was given: becomes the guest. Gives an exit code if
/// there is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn solera_guest_start(
    count: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { super::start(count, arguments, variables) }
}
