//! `dprintf` and its kin, which glibc writes out inside itself.
//!
//! The variadic forms only make a `va_list` of their registers and stack, as any C function does
//! at its start, and call the form that takes one: the second piece of assembly that lists of
//! arguments of any length need (the first: `variadic`).

use std::ffi::{c_char, c_int, c_void};

use vfs::Errno;

use crate::entry::fdtable::ours;
use crate::entry::{Served, Stop, outside};
use crate::interposed::interpose;

/// A `va_list`: on x86-64 passed as the address of a structure.
pub type Arguments = *mut c_void;

unsafe extern "C" {
    fn backtrace_symbols(frames: *const *mut c_void, count: c_int) -> *mut *mut c_char;
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, arguments: Arguments) -> c_int;
    fn __vasprintf_chk(
        to: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        arguments: Arguments,
    ) -> c_int;
}

/// Formats by `format` and writes the text to a descriptor of ours.
fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> Served<c_int> {
    ours(fd)?;
    outside(|| {
        let mut text = std::ptr::null_mut();
        let len = format(&raw mut text);
        if len < 0 {
            return Err(Stop::Errno(Errno::NOMEM));
        }
        let mut done = 0;
        while done < len {
            // SAFETY: inside the text that was just made.
            let wrote =
                unsafe { libc::write(fd, text.add(done as usize).cast(), (len - done) as usize) };
            if wrote <= 0 {
                break;
            }
            done += wrote as c_int;
        }
        // SAFETY: allocated by the formatting.
        unsafe { libc::free(text.cast()) };
        Ok(if done < len { -1 } else { len })
    })
}

fn print_trace(frames: *const *mut c_void, count: c_int, fd: c_int) -> Served<()> {
    ours(fd)?;
    outside(|| {
        // SAFETY: the program's own frames.
        let lines = unsafe { backtrace_symbols(frames, count) };
        if lines.is_null() {
            return;
        }
        for index in 0..count.max(0) as usize {
            // SAFETY: as many texts as frames.
            unsafe {
                let line = *lines.add(index);
                libc::write(fd, line.cast(), libc::strlen(line));
                libc::write(fd, c"\n".as_ptr().cast(), 1);
            }
        }
        // SAFETY: allocated as one piece.
        unsafe { libc::free(lines.cast()) };
    });
    Ok(())
}

interpose! {
    fn [backtrace_symbols_fd, __backtrace_symbols_fd](
        frames: *const *mut c_void, count: c_int, fd: c_int,
    ) -> () = |_, _| { print_trace(frames, count, fd) }
    fn [vdprintf](fd: c_int, format: *const c_char, arguments: Arguments) -> c_int = |_, _| {
        // SAFETY: the program's own format and arguments.
        print(fd, |to| unsafe { vasprintf(to, format, arguments) })
    }
    fn [__vdprintf_chk](fd: c_int, flag: c_int, format: *const c_char, arguments: Arguments)
    -> c_int = |_, _| {
        // SAFETY: as above.
        print(fd, |to| unsafe { __vasprintf_chk(to, flag, format, arguments) })
    }
}

/// A function with `$named` bytes of named arguments (eight each) before the others; `$list` is
/// the register that passes the list on.
macro_rules! with_list {
    ($name:ident, $named:literal, $list:literal, $target:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 208",
                // The area for registers: 6 of 8 bytes, 8 of 16.
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                "2:",
                // The list: how much of both kinds is used, the stack's part, the area.
                "mov dword ptr [rsp + 176], {named}",
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rbp + 16]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $list, ", [rsp + 176]"),
                "call {target}",
                "leave",
                "ret",
                named = const $named,
                target = sym $target,
            )
        }
    };
}

pub(crate) use with_list;

with_list!(dprintf, 16, "rdx", vdprintf);
with_list!(__dprintf_chk, 24, "rcx", __vdprintf_chk);
