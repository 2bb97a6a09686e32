//! `solera-host`: the program that the dynamic linker starts, with `libsolera_preload.so`, where a
//! program is to run that no dynamic linker starts, or that has another C library. It hands over to
//! that library at once, which maps the program and enters it (see `host` there). Nobody starts it
//! by hand.

#![no_main]

use std::ffi::{c_char, c_int};

/// The exit code of a program that cannot be executed.
const EXIT_NOT_RUNNABLE: c_int = 126;

type Start = extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;

/// Called by the C library. The name is C's.
#[unsafe(no_mangle)]
pub extern "C" fn main(
    count: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: a text.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"solera_guest_start".as_ptr()) };
    if found.is_null() {
        eprintln!("solera-host: libsolera_preload.so is not loaded; run programs by `solera run`");
        return EXIT_NOT_RUNNABLE;
    }
    // SAFETY: the library's function of this name.
    let start = unsafe { std::mem::transmute::<*mut libc::c_void, Start>(found) };
    start(count, arguments, variables)
}
