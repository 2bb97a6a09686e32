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
use crate::glibc::format::{Arguments, with_list};
use crate::glibc::stdio;
use crate::interposed::interpose;

/// `wint_t`, and its value for the end and for errors.
type Wide = u32;
const END: Wide = Wide::MAX;

/// More bytes than any encoding needs for a character.
const BYTES_MAX: usize = 16;

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

fn standard(variable: *const *mut FILE) -> *mut FILE {
    // SAFETY: a variable of glibc's.
    unsafe { variable.read() }
}

/// Only streams of ours are served.
fn ours(stream: *mut FILE) -> Result<(), Stop> {
    if stdio::is_of_volume(stream) { Ok(()) } else { Err(Stop::Kernel) }
}

fn bad_sequence() -> Wide {
    set_errno(libc::EILSEQ);
    END
}

/// The next character. Runs outside.
fn get(stream: *mut FILE) -> Wide {
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
fn bytes_of(wide: wchar_t, bytes: &mut [u8; BYTES_MAX]) -> Result<usize, Errno> {
    let mut state = 0;
    // SAFETY: room for the longest.
    let len = unsafe { wcrtomb(bytes.as_mut_ptr(), wide, &raw mut state) };
    if len > BYTES_MAX { Err(Errno::ILSEQ) } else { Ok(len) }
}

fn put(stream: *mut FILE, wide: wchar_t) -> Result<Wide, Errno> {
    let mut bytes = [0; BYTES_MAX];
    let len = bytes_of(wide, &mut bytes)?;
    // SAFETY: a stream of the program's, bytes of ours.
    let written = outside(|| unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, len, stream) });
    Ok(if written == len { wide as Wide } else { END })
}

/// As [`put`], for what gives a status.
fn put_all(stream: *mut FILE, text: impl Iterator<Item = wchar_t>) -> Result<bool, Errno> {
    for wide in text {
        if put(stream, wide)? == END {
            return Ok(false);
        }
    }
    Ok(true)
}

fn get_line(stream: *mut FILE, to: *mut wchar_t, room: c_int) -> Served<*mut wchar_t> {
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

fn print(stream: *mut FILE, format: *const wchar_t, arguments: Arguments) -> Served<c_int> {
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

interpose! {
    fn [fgetwc, fgetwc_unlocked, getwc, getwc_unlocked](stream: *mut FILE) -> Wide = |_, _| {
        ours(stream)?;
        Ok(outside(|| get(stream)))
    }
    fn [getwchar, getwchar_unlocked]() -> Wide = |_, _| {
        let stream = standard(&raw const stdin);
        ours(stream)?;
        Ok(outside(|| get(stream)))
    }
    fn [fgetws, fgetws_unlocked](to: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t
    = |_, _| {
        ours(stream)?;
        get_line(stream, to, room)
    }
    fn [__fgetws_chk, __fgetws_unlocked_chk](
        to: *mut wchar_t, size: usize, room: c_int, stream: *mut FILE,
    ) -> *mut wchar_t = |_, _| {
        ours(stream)?;
        if room as usize > size {
            std::process::abort();
        }
        get_line(stream, to, room)
    }
    fn [fputwc, fputwc_unlocked, putwc, putwc_unlocked](wide: wchar_t, stream: *mut FILE) -> Wide
    = |_, _| {
        ours(stream)?;
        Ok(put(stream, wide)?)
    }
    fn [putwchar, putwchar_unlocked](wide: wchar_t) -> Wide = |_, _| {
        let stream = standard(&raw const stdout);
        ours(stream)?;
        Ok(put(stream, wide)?)
    }
    fn [fputws, fputws_unlocked](text: *const wchar_t, stream: *mut FILE) -> c_int = |_, _| {
        ours(stream)?;
        let mut wide = Vec::new();
        while let character @ 1.. = Out(text.wrapping_add(wide.len()).cast_mut()).value()? {
            wide.push(character);
        }
        Ok(if put_all(stream, wide.into_iter())? { 1 } else { -1 })
    }
    fn [ungetwc](wide: Wide, stream: *mut FILE) -> Wide = |_, _| {
        ours(stream)?;
        if wide == END {
            return Ok(END);
        }
        let mut bytes = [0; BYTES_MAX];
        let len = bytes_of(wide as wchar_t, &mut bytes)?;
        for byte in bytes[..len].iter().rev() {
            // SAFETY: a stream of the program's.
            if outside(|| unsafe { libc::ungetc(c_int::from(*byte), stream) }) < 0 {
                return Ok(END);
            }
        }
        Ok(wide)
    }
    /// A stream of the volume takes both kinds.
    fn [fwide](stream: *mut FILE, mode: c_int) -> c_int = |_, _| {
        ours(stream)?;
        Ok(mode.signum())
    }
    fn [vfwprintf](stream: *mut FILE, format: *const wchar_t, arguments: Arguments) -> c_int
    = |_, _| {
        ours(stream)?;
        print(stream, format, arguments)
    }
    fn [__vfwprintf_chk](
        stream: *mut FILE, flag: c_int, format: *const wchar_t, arguments: Arguments,
    ) -> c_int = |_, _| {
        let _ = flag;
        ours(stream)?;
        print(stream, format, arguments)
    }
    fn [vwprintf](format: *const wchar_t, arguments: Arguments) -> c_int = |_, _| {
        let stream = standard(&raw const stdout);
        ours(stream)?;
        print(stream, format, arguments)
    }
    fn [__vwprintf_chk](flag: c_int, format: *const wchar_t, arguments: Arguments) -> c_int
    = |_, _| {
        let _ = flag;
        let stream = standard(&raw const stdout);
        ours(stream)?;
        print(stream, format, arguments)
    }
}

with_list!(fwprintf, 16, "rdx", vfwprintf);
with_list!(__fwprintf_chk, 24, "rcx", __vfwprintf_chk);
with_list!(wprintf, 8, "rsi", vwprintf);
with_list!(__wprintf_chk, 16, "rdx", __vwprintf_chk);
