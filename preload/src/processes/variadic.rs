//! `execl`, `execlp`, `execle`: C functions with a list of arguments of any length, which Rust
//! cannot define. Each turns its registers and stack into the array that `execv` and its kin take.
//!
//! The only assembly outside `pmem`: by the x86-64 calling convention, after the return address is
//! taken off, pushing the five argument registers in reverse before the stack's arguments makes
//! them one contiguous array. The functions come back only if exec failed.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

macro_rules! from_list {
    ($name:ident, $target:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            naked_asm!(
                "pop r10",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rbp",
                "mov rbp, rsp",
                "push r10",
                "and rsp, -16",
                "call {target}",
                "mov r10, [rbp - 8]",
                "mov rsp, rbp",
                "pop rbp",
                "add rsp, 40",
                "push r10",
                "ret",
                target = sym $target,
            )
        }
    };
}

unsafe extern "C" fn with_list(path: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: a NULL-terminated array, made above.
    unsafe { libc::execv(path, list) }
}

unsafe extern "C" fn with_search(file: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { libc::execvp(file, list) }
}

/// The environment stands after the list's NULL.
unsafe extern "C" fn with_environment(path: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: a NULL-terminated array and one more argument, by the contract of `execle`.
    unsafe {
        let mut end = list;
        while !(*end).is_null() {
            end = end.add(1);
        }
        libc::execve(path, list, (*end.add(1)).cast())
    }
}

from_list!(execl, with_list);
from_list!(execlp, with_search);
from_list!(execle, with_environment);
