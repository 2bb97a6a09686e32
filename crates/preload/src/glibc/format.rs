//! `dprintf` and its kin: glibc would write the text inside itself.

use std::ffi::{c_char, c_int, c_void};

use vfs::Errno;

use crate::entry::fdtable::ours;
use crate::entry::program_memory;
use crate::entry::{Served, Stop, outside};

/// A `va_list`: on x86-64 passed as the address of a structure.
pub type Arguments = *mut c_void;

unsafe extern "C" {
    fn backtrace_symbols(frames: *const *mut c_void, count: c_int) -> *mut *mut c_char;
}

/// Formats by `format` and writes the text to a descriptor of ours.
pub fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> Served<c_int> {
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
        unsafe { program_memory::free(text.cast()) };
        Ok(if done < len { -1 } else { len })
    })
}

pub fn print_trace(frames: *const *mut c_void, count: c_int, fd: c_int) -> Served<()> {
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
        unsafe { program_memory::free(lines.cast()) };
    });
    Ok(())
}
