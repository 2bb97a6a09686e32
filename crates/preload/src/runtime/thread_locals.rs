//! Variables of a thread: `__tls_get_addr` and what `std` registers for a thread's end.
//!
//! This library is loaded with the program, so that its variables lie in the static block of each
//! thread, at one distance from the thread pointer. The dynamic linker's function would look at
//! its tables, and may allocate; this one adds two numbers.
//!
//! What a thread leaves behind at its end stays: the only such variable is `std`'s handle of a
//! thread that calls `std::thread::current`. This library's own have nothing to give back.

use std::arch::global_asm;
use std::ffi::{c_int, c_uint, c_void};

use crate::runtime::hidden;

// The argument points at the module's number and the variable's distance in its block. The block
// begins where `solera_thread` is, less its own distance.
global_asm!(
    ".pushsection .text.solera_runtime,\"ax\",@progbits",
    ".globl __tls_get_addr",
    ".hidden __tls_get_addr",
    ".type __tls_get_addr, @function",
    "__tls_get_addr:",
    "movq %fs:0, %rax",
    "addq solera_thread@GOTTPOFF(%rip), %rax",
    "xorl %ecx, %ecx",
    "leaq solera_thread@DTPOFF(%rcx), %rcx",
    "subq %rcx, %rax",
    "addq 8(%rdi), %rax",
    "retq",
    ".size __tls_get_addr, . - __tls_get_addr",
    // A thread's name in the C library is its pointer.
    ".globl pthread_self",
    ".hidden pthread_self",
    ".type pthread_self, @function",
    "pthread_self:",
    "movq %fs:0x10, %rax",
    "retq",
    ".size pthread_self, . - pthread_self",
    ".popsection",
    options(att_syntax),
);

extern "C" fn at_thread_exit(
    function: *mut c_void,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    let _ = (function, object, library);
    0
}

/// `std` would be told of a thread's end by a key: it gets one that tells nothing.
extern "C" fn key_create(key: *mut c_uint, destructor: *mut c_void) -> c_int {
    let _ = destructor;
    // SAFETY: the caller's variable.
    unsafe { key.write(1) };
    0
}

extern "C" fn key_changed(key: c_uint, value: *const c_void) -> c_int {
    let _ = (key, value);
    0
}

hidden! {
    "__cxa_thread_atexit_impl" => at_thread_exit,
    "pthread_key_create" => key_create,
    "pthread_key_delete" => key_changed,
    "pthread_setspecific" => key_changed,
}
