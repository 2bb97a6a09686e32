//! The exported functions of this room: streams, wide characters, formats, loading of libraries,
//! and composed functions.
//!
//! The variadic forms only make a `va_list` of their registers and stack, as any C function does
//! at its start, and call the form that takes one: the second piece of assembly that lists of
//! arguments of any length need (the first: `execl` and its kin).

use std::arch::naked_asm;
use std::ffi::{CString, c_char, c_int, c_void};

use libc::{FILE, termios, wchar_t, winsize};
use vfs::FileSystemExt;

use crate::door;
use crate::entry::fdtable::ours;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::{Inside, Real, Stop, outside, report};
use crate::glibc::composed::{self, Record};
use crate::glibc::format::{self, Arguments};
use crate::glibc::loader;
use crate::glibc::stdio::{open_number, open_stream, print_error, reopen};
use crate::glibc::wide::{self, BYTES_MAX, Wide, bytes_of, get_line, put_all};
use crate::interposed::interpose;
use crate::paths::mount;

unsafe extern "C" {
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, arguments: Arguments) -> c_int;
    fn __vasprintf_chk(
        to: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        arguments: Arguments,
    ) -> c_int;
}

// ---- streams

interpose! {
    fn [fopen, fopen64, _IO_fopen](path: Text, mode: Text) -> *mut FILE = |process, kernel| {
        open_stream(process, path, mode, |path| kernel(path, mode))
    }
    fn [fdopen, _IO_fdopen](fd: c_int, mode: Text) -> *mut FILE = |process, _| {
        open_number(process, fd, mode)
    }
    fn [freopen, freopen64](path: Text, mode: Text, old: *mut FILE) -> *mut FILE
    = |process, kernel| {
        reopen(process, path, mode, old, |path| kernel(path, mode, old))
    }
    /// glibc prints through a duplicate of descriptor 2 that it opens inside itself.
    fn [perror](text: Text) -> () = |_, _| {
        print_error(text)
    }
}

// ---- formats

interpose! {
    fn [backtrace_symbols_fd, __backtrace_symbols_fd](
        frames: *const *mut c_void, count: c_int, fd: c_int,
    ) -> () = |_, _| { format::print_trace(frames, count, fd) }
    fn [vdprintf](fd: c_int, format: *const c_char, arguments: Arguments) -> c_int = |_, _| {
        // SAFETY: the program's own format and arguments.
        format::print(fd, |to| unsafe { vasprintf(to, format, arguments) })
    }
    fn [__vdprintf_chk](fd: c_int, flag: c_int, format: *const c_char, arguments: Arguments)
    -> c_int = |_, _| {
        // SAFETY: as above.
        format::print(fd, |to| unsafe { __vasprintf_chk(to, flag, format, arguments) })
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

with_list!(dprintf, 16, "rdx", vdprintf);

with_list!(__dprintf_chk, 24, "rcx", __vdprintf_chk);

// ---- wide characters

interpose! {
    fn [fgetwc, fgetwc_unlocked, getwc, getwc_unlocked](stream: *mut FILE) -> Wide = |_, _| {
        wide::ours(stream)?;
        Ok(outside(|| wide::get(stream)))
    }
    fn [getwchar, getwchar_unlocked]() -> Wide = |_, _| {
        let stream = wide::input();
        wide::ours(stream)?;
        Ok(outside(|| wide::get(stream)))
    }
    fn [fgetws, fgetws_unlocked](to: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t
    = |_, _| {
        wide::ours(stream)?;
        get_line(stream, to, room)
    }
    fn [__fgetws_chk, __fgetws_unlocked_chk](
        to: *mut wchar_t, size: usize, room: c_int, stream: *mut FILE,
    ) -> *mut wchar_t = |_, _| {
        wide::ours(stream)?;
        if room as usize > size {
            std::process::abort();
        }
        get_line(stream, to, room)
    }
    fn [fputwc, fputwc_unlocked, putwc, putwc_unlocked](wide: wchar_t, stream: *mut FILE) -> Wide
    = |_, _| {
        wide::ours(stream)?;
        Ok(wide::put(stream, wide)?)
    }
    fn [putwchar, putwchar_unlocked](wide: wchar_t) -> Wide = |_, _| {
        let stream = wide::output();
        wide::ours(stream)?;
        Ok(wide::put(stream, wide)?)
    }
    fn [fputws, fputws_unlocked](text: *const wchar_t, stream: *mut FILE) -> c_int = |_, _| {
        wide::ours(stream)?;
        let mut wide = Vec::new();
        while let character @ 1.. = Out(text.wrapping_add(wide.len()).cast_mut()).value()? {
            wide.push(character);
        }
        Ok(if put_all(stream, wide.into_iter())? { 1 } else { -1 })
    }
    fn [ungetwc](wide: Wide, stream: *mut FILE) -> Wide = |_, _| {
        wide::ours(stream)?;
        if wide == wide::END {
            return Ok(wide::END);
        }
        let mut bytes = [0; BYTES_MAX];
        let len = bytes_of(wide as wchar_t, &mut bytes)?;
        for byte in bytes[..len].iter().rev() {
            // SAFETY: a stream of the program's.
            if outside(|| unsafe { libc::ungetc(c_int::from(*byte), stream) }) < 0 {
                return Ok(wide::END);
            }
        }
        Ok(wide)
    }
    /// A stream of the volume takes both kinds.
    fn [fwide](stream: *mut FILE, mode: c_int) -> c_int = |_, _| {
        wide::ours(stream)?;
        Ok(mode.signum())
    }
    fn [vfwprintf](stream: *mut FILE, format: *const wchar_t, arguments: Arguments) -> c_int
    = |_, _| {
        wide::ours(stream)?;
        wide::print(stream, format, arguments)
    }
    fn [__vfwprintf_chk](
        stream: *mut FILE, flag: c_int, format: *const wchar_t, arguments: Arguments,
    ) -> c_int = |_, _| {
        let _ = flag;
        wide::ours(stream)?;
        wide::print(stream, format, arguments)
    }
    fn [vwprintf](format: *const wchar_t, arguments: Arguments) -> c_int = |_, _| {
        let stream = wide::output();
        wide::ours(stream)?;
        wide::print(stream, format, arguments)
    }
    fn [__vwprintf_chk](flag: c_int, format: *const wchar_t, arguments: Arguments) -> c_int
    = |_, _| {
        let _ = flag;
        let stream = wide::output();
        wide::ours(stream)?;
        wide::print(stream, format, arguments)
    }
}

with_list!(fwprintf, 16, "rdx", vfwprintf);

with_list!(__fwprintf_chk, 24, "rcx", __vfwprintf_chk);

with_list!(wprintf, 8, "rsi", vwprintf);

with_list!(__wprintf_chk, 16, "rdx", __vwprintf_chk);

// ---- libraries and catalogues

/// The name to load instead of `path`; `None`: the path is not the volume's, or a mount's as well,
/// or nothing there can be loaded, which glibc says best.
fn instead(path: *const c_char) -> Option<CString> {
    // A linker whose calls arrive opens what is on the volume itself.
    if Inside::already() || door::arm_linker() {
        return None;
    }
    let process = crate::start::process()?;
    let _inside = Inside::new();
    let path = Text(path).bytes().ok()?;
    // Names without a slash are searched for by the linker, in places of its own.
    if !path.contains(&b'/') {
        return None;
    }
    let attr = loader::readable(process, path)?;
    if !loader::is_copied(process, &attr)
        && let Some(there) = mount::executable_path(process, path, attr.node)
    {
        return (there.as_bytes() != path).then_some(there);
    }
    let number = loader::copy_of(process, &attr, path)?;
    report::about(attr.node.member());
    report::fell_back("dlopen", "library-copied-to-memory");
    loader::name(number)
}

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

type OpenIn = unsafe extern "C" fn(i64, *const c_char, c_int) -> *mut c_void;

unsafe extern "C" fn open_copy(path: *const c_char, flags: c_int) -> *mut c_void {
    static REAL: Real = Real::new("dlopen\0");
    let Some(copy) = instead(path) else { return std::ptr::null_mut() };
    // SAFETY: glibc's `dlopen`; the constructors of the library are the program's own code.
    let handle = outside(|| unsafe {
        std::mem::transmute::<usize, Open>(REAL.address())(copy.as_ptr(), flags)
    });
    if handle.is_null() { FAILED as *mut c_void } else { handle }
}

unsafe extern "C" fn open_copy_in(space: i64, path: *const c_char, flags: c_int) -> *mut c_void {
    static REAL: Real = Real::new("dlmopen\0");
    let Some(copy) = instead(path) else { return std::ptr::null_mut() };
    // SAFETY: as above.
    let handle = outside(|| unsafe {
        std::mem::transmute::<usize, OpenIn>(REAL.address())(space, copy.as_ptr(), flags)
    });
    if handle.is_null() { FAILED as *mut c_void } else { handle }
}

/// What the two functions above give when the library is ours and could not be loaded: no handle.
const FAILED: usize = 1;

unsafe extern "C" fn real_open() -> usize {
    static REAL: Real = Real::new("dlopen\0");
    REAL.address()
}

unsafe extern "C" fn real_open_in() -> usize {
    static REAL: Real = Real::new("dlmopen\0");
    REAL.address()
}

/// Calls `$serve` with the same arguments; if that says that the path is not ours, jumps to the
/// function whose address `$real` gives, with arguments and return address as they were.
macro_rules! or_jump {
    ($name:ident, $serve:path, $real:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> *mut c_void {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {serve}",
                "test rax, rax",
                "jnz 2f",
                "call {real}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                "2:",
                "add rsp, 24",
                // The mark of failure becomes NULL.
                "xor ecx, ecx",
                "cmp rax, {failed}",
                "cmove rax, rcx",
                "ret",
                serve = sym $serve,
                real = sym $real,
                failed = const FAILED,
            )
        }
    };
}

or_jump!(dlopen, open_copy, real_open);

or_jump!(dlmopen, open_copy_in, real_open_in);

interpose! {
    fn [catopen](path: Text, flags: c_int) -> isize = |process, kernel| {
        loader::open_catalogue(process, path.bytes()?, |path| outside(|| kernel(Text(path), flags)))
    }
}

// ---- functions made of others

interpose! {
    fn [ftok](path: Text, project: c_int) -> c_int = |process, _| {
        if !composed::is_ours(process, path)? {
            return Err(Stop::Kernel);
        }
        // SAFETY: all zeros is a value of this plain structure; then `stat` fills it.
        let (answer, stat) = outside(|| unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::stat(path.0, &raw mut stat), stat)
        });
        if answer < 0 {
            return Ok(-1);
        }
        let (ino, device) = (stat.st_ino as c_int & 0xffff, stat.st_dev as c_int & 0xff);
        Ok(ino | device << 16 | (project & 0xff) << 24)
    }
    fn [isfdtype](fd: c_int, kind: c_int) -> c_int = |process, _| {
        let (node, _) = process.fs.describe(ours(fd)?)?;
        Ok(c_int::from(process.fs.attributes(node)?.kind.mode_bits() as c_int == kind))
    }
    fn [eventfd_read](fd: c_int, value: Bytes) -> c_int = |_, _| {
        ours(fd)?;
        // SAFETY: eight bytes of the program's, by the function's contract.
        Ok(if outside(|| unsafe { libc::read(fd, value.0, 8) }) == 8 { 0 } else { -1 })
    }
    fn [eventfd_write](fd: c_int, value: u64) -> c_int = |_, _| {
        ours(fd)?;
        let from = (&raw const value).cast();
        // SAFETY: the argument's own bytes.
        Ok(if outside(|| unsafe { libc::write(fd, from, 8) }) == 8 { 0 } else { -1 })
    }
    /// glibc's `dup2` would leave our table as it was.
    fn [login_tty](fd: c_int) -> c_int = |_, _| {
        Ok(outside(|| composed::take_terminal(fd)))
    }
    fn [forkpty](
        master: Out<c_int>, name: *mut c_char, modes: *const termios, size: *const winsize,
    ) -> c_int = |_, _| {
        outside(|| composed::fork_on_terminal(master, name, (modes, size)))
    }
    fn [updwtmp, updwtmpx](file: Text, record: Record) -> () = |process, _| {
        if !composed::is_ours(process, file)? {
            return Err(Stop::Kernel);
        }
        outside(|| composed::log_login(file, record));
        Ok(())
    }
}
