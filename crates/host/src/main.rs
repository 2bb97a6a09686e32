//! `solera-host`: the program that the dynamic linker starts, with `libsolera_preload.so`, where a
//! program is to run that no dynamic linker starts, or that has another C library. It hands over to
//! that library at once, which maps the program and enters it (see `host` there). Nobody starts it
//! by hand.

#![no_main]

use std::arch::global_asm;
use std::ffi::{c_char, c_int};

/// The exit code of a program that cannot be executed.
const EXIT_NOT_RUNNABLE: c_int = 126;

type Start = extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;

// Nothing unwinds here. What Rust's runtime calls for that would make the dynamic linker load
// `libgcc_s.so.1` at each start, which takes half a millisecond in a virtual machine.
global_asm!(
    ".pushsection .text.solera_unwind,\"ax\",@progbits",
    ".irp name, RaiseException, Resume, DeleteException, Backtrace, GetIP, GetIPInfo, \
     GetLanguageSpecificData, GetRegionStart, GetTextRelBase, GetDataRelBase, SetGR, SetIP",
    ".globl _Unwind_\\name",
    ".hidden _Unwind_\\name",
    "_Unwind_\\name:",
    ".endr",
    "ud2",
    ".popsection",
);

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
