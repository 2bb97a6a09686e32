//! Wide characters on streams of the volume. glibc's cookie streams know bytes only, so a character
//! is converted here, one at a time, by the program's locale; the stream's own buffer holds bytes.
//!
//! The state of a conversion does not outlive a character: the encodings that Linux uses have none.
//! Formatted reading (`fwscanf`) is not served.

use std::ffi::{c_int, c_void};

use libc::{FILE, wchar_t};
use vfs::Errno;

use crate::entry::pointers::Out;
use crate::entry::{Served, Stop, outside, set_errno};
use crate::glibc::format::Arguments;
use crate::glibc::stdio;

/// `wint_t`, and its value for the end and for errors.
pub type Wide = u32;
pub const END: Wide = Wide::MAX;

/// More bytes than any encoding needs for a character.
pub const BYTES_MAX: usize = 16;

type State = u64;

unsafe extern "C" {
    fn mbrtowc(to: *mut wchar_t, from: *const u8, len: usize, state: *mut State) -> usize;
    fn wcrtomb(to: *mut u8, from: wchar_t, state: *mut State) -> usize;
    fn vswprintf(
        to: *mut wchar_t,
        len: usize,
        format: *const wchar_t,
        arguments: Arguments,
    ) -> c_int;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
}

/// The standard input, as the program has it.
pub fn input() -> *mut FILE {
    // SAFETY: a variable of glibc's.
    unsafe { (&raw const stdin).read() }
}

/// The standard output.
pub fn output() -> *mut FILE {
    // SAFETY: as above.
    unsafe { (&raw const stdout).read() }
}

/// Only streams of ours are served.
pub fn ours(stream: *mut FILE) -> Result<(), Stop> {
    if stdio::is_of_volume(stream) { Ok(()) } else { Err(Stop::Kernel) }
}

fn bad_sequence() -> Wide {
    set_errno(libc::EILSEQ);
    END
}

/// The next character. Runs outside.
pub fn get(stream: *mut FILE) -> Wide {
    let mut bytes = [0; BYTES_MAX];
    for len in 1..=BYTES_MAX {
        // SAFETY: a stream of the program's.
        let byte = unsafe { libc::fgetc(stream) };
        if byte < 0 {
            // In the middle of a character it is no character.
            return if len > 1 { bad_sequence() } else { END };
        }
        bytes[len - 1] = byte as u8;
        let (mut wide, mut state) = (0, 0);
        // SAFETY: bytes and variables of ours.
        match unsafe { mbrtowc(&raw mut wide, bytes.as_ptr(), len, &raw mut state) } as isize {
            -1 => return bad_sequence(),
            -2 => {}
            _ => return wide as Wide,
        }
    }
    bad_sequence()
}

/// The bytes of a character: how many, or an error.
pub fn bytes_of(wide: wchar_t, bytes: &mut [u8; BYTES_MAX]) -> Result<usize, Errno> {
    let mut state = 0;
    // SAFETY: room for the longest.
    let len = unsafe { wcrtomb(bytes.as_mut_ptr(), wide, &raw mut state) };
    if len > BYTES_MAX { Err(Errno::ILSEQ) } else { Ok(len) }
}

pub fn put(stream: *mut FILE, wide: wchar_t) -> Result<Wide, Errno> {
    let mut bytes = [0; BYTES_MAX];
    let len = bytes_of(wide, &mut bytes)?;
    // SAFETY: a stream of the program's, bytes of ours.
    let written = outside(|| unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, len, stream) });
    Ok(if written == len { wide as Wide } else { END })
}

/// As [`put`], for what gives a status.
pub fn put_all(stream: *mut FILE, text: impl Iterator<Item = wchar_t>) -> Result<bool, Errno> {
    for wide in text {
        if put(stream, wide)? == END {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn get_line(stream: *mut FILE, to: *mut wchar_t, room: c_int) -> Served<*mut wchar_t> {
    let mut count = 0;
    while count + 1 < room {
        let wide = outside(|| get(stream));
        if wide == END {
            break;
        }
        Out(to.wrapping_add(count as usize)).put(wide as wchar_t)?;
        count += 1;
        if wide == Wide::from(b'\n') {
            break;
        }
    }
    if count == 0 {
        return Ok(std::ptr::null_mut());
    }
    Out(to.wrapping_add(count as usize)).put(0)?;
    Ok(to)
}

pub fn print(stream: *mut FILE, format: *const wchar_t, arguments: Arguments) -> Served<c_int> {
    let mut text: Vec<wchar_t> = vec![0; 256];
    loop {
        // A `va_list` is used up by formatting: each try gets a copy.
        let mut copy = Out(arguments.cast::<[u64; 3]>()).value()?;
        let list: *mut c_void = (&raw mut copy).cast();
        // SAFETY: the program's format and arguments, room of ours.
        let len = unsafe { vswprintf(text.as_mut_ptr(), text.len(), format, list) };
        if let Ok(len) = usize::try_from(len) {
            let whole = put_all(stream, text[..len].iter().copied())?;
            return Ok(if whole { len as c_int } else { -1 });
        }
        if text.len() >= TEXT_MAX {
            return Ok(-1);
        }
        text.resize(text.len() * 8, 0);
    }
}

/// Longest formatted text, in characters.
const TEXT_MAX: usize = 1 << 23;
