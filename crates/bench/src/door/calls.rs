//! What a worker of `bench door` measures: one call again and again, by one way.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use crate::worker::calls;

/// A call, on a file of the worker's place or of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read,
    Pread,
    Write,
    Pwrite,
    Lseek,
    /// As the C library makes it: `newfstatat` with an empty path from 2.33 on.
    Fstat,
    /// By its number.
    FstatByNumber,
    Stat,
    Access,
    OpenClose,
    Fputc,
    Fgetc,
    Getline,
}

impl Call {
    pub const ALL: [Self; 13] = [
        Self::Read,
        Self::Pread,
        Self::Write,
        Self::Pwrite,
        Self::Lseek,
        Self::Fstat,
        Self::FstatByNumber,
        Self::Stat,
        Self::Access,
        Self::OpenClose,
        Self::Fputc,
        Self::Fgetc,
        Self::Getline,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Pread => "pread",
            Self::Write => "write",
            Self::Pwrite => "pwrite",
            Self::Lseek => "lseek",
            Self::Fstat => "fstat",
            Self::FstatByNumber => "syscall(SYS_fstat)",
            Self::Stat => "stat",
            Self::Access => "access",
            Self::OpenClose => "open+close",
            Self::Fputc => "fputc",
            Self::Fgetc => "fgetc",
            Self::Getline => "getline",
        }
    }

    /// Calls in a turn.
    const fn calls(self) -> u32 {
        match self {
            Self::Fputc | Self::Fgetc => 100_000,
            Self::Write | Self::Pwrite | Self::Stat | Self::Access | Self::OpenClose => 2_000,
            _ => 10_000,
        }
    }
}

/// Which function is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// The first of its name: under `solera run` that is the library's, if it exports one.
    First,
    /// The C library's own.
    Own,
}

/// On which file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Here,
    /// The kernel's, also for the worker that has a volume.
    Outside,
}

/// One turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub call: Call,
    pub function: Function,
    pub place: Place,
}

impl Turn {
    /// The line that asks for it.
    pub fn line(self) -> String {
        let function = if self.function == Function::First { "first" } else { "own" };
        let place = if self.place == Place::Here { "here" } else { "outside" };
        format!("{function} {place} {}", self.call.name())
    }

    /// What a line asks for.
    pub fn of_line(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let function = match words.next()? {
            "first" => Function::First,
            "own" => Function::Own,
            _ => return None,
        };
        let place = match words.next()? {
            "here" => Place::Here,
            "outside" => Place::Outside,
            _ => return None,
        };
        let name = words.next()?;
        let call = Call::ALL.into_iter().find(|call| call.name() == name)?;
        Some(Self { call, function, place })
    }
}

/// Bytes of a file that is read: more than any turn reads.
const FILE_BYTES: usize = 1 << 20;
/// Bytes of its lines.
const LINE_BYTES: usize = 32;

/// Functions of the C library, by address.
struct Functions {
    read: unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize,
    pread: unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize,
    write: unsafe extern "C" fn(c_int, *const c_void, usize) -> isize,
    pwrite: unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize,
    lseek: unsafe extern "C" fn(c_int, i64, c_int) -> i64,
    fstat: unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int,
    access: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    open: unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int,
    close: unsafe extern "C" fn(c_int) -> c_int,
    syscall: unsafe extern "C" fn(c_long, ...) -> c_long,
}

/// The address of a function.
///
/// # Safety
///
/// The function of this name has this type.
unsafe fn find<T: Copy>(handle: *mut c_void, name: &CStr) -> Result<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: a handle of the dynamic linker's, and a text.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(Error::other(format!("there is no {}", name.to_string_lossy())));
    }
    // SAFETY: as the caller says; as long as an address.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

impl Functions {
    /// As `handle` has them; an error where the C library is too old for one.
    fn of(handle: *mut c_void) -> Result<Self> {
        // SAFETY: the C library's functions of these names, which have these signatures.
        unsafe {
            Ok(Self {
                read: find(handle, c"read")?,
                pread: find(handle, c"pread64")?,
                write: find(handle, c"write")?,
                pwrite: find(handle, c"pwrite64")?,
                lseek: find(handle, c"lseek64")?,
                fstat: find(handle, c"fstat64")?,
                stat: find(handle, c"stat64")?,
                access: find(handle, c"access")?,
                open: find(handle, c"open64")?,
                close: find(handle, c"close")?,
                syscall: find(handle, c"syscall")?,
            })
        }
    }
}

/// A file that is read, and one that is written.
struct Files {
    path: CString,
    read: c_int,
    written: c_int,
    written_path: CString,
}

impl Files {
    /// Makes them in a directory; `name` is this worker's.
    fn make(directory: &Path, name: &str) -> Result<Self> {
        let path = |kind: &str| {
            CString::new(directory.join(format!("{name}-{kind}")).as_os_str().as_bytes())
        };
        let (path, written_path) = (path("read")?, path("written")?);
        let read = calls::open(&path, libc::O_RDWR | libc::O_CREAT)?;
        let line = [&[b'a'; LINE_BYTES - 1][..], b"\n"].concat();
        calls::pwrite(read, &line.repeat(FILE_BYTES / LINE_BYTES), 0)?;
        let written = calls::open(&written_path, libc::O_RDWR | libc::O_CREAT)?;
        calls::pwrite(written, &vec![0; FILE_BYTES], 0)?;
        Ok(Self { path, read, written, written_path })
    }
}

/// A stream of the C library's, closed when it is dropped.
struct Stream(*mut libc::FILE);

impl Stream {
    fn open(path: &CStr, mode: &CStr) -> Result<Self> {
        // SAFETY: two texts.
        let file = unsafe { libc::fopen(path.as_ptr(), mode.as_ptr()) };
        if file.is_null() { Err(Error::last_os_error()) } else { Ok(Self(file)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is open. What it failed to write is nobody's.
        unsafe { libc::fclose(self.0) };
    }
}

/// A line of `getline`'s memory.
struct Line {
    bytes: *mut c_char,
    room: usize,
}

impl Drop for Line {
    fn drop(&mut self) {
        // SAFETY: NULL, or `getline`'s memory.
        unsafe { libc::free(self.bytes.cast()) };
    }
}

/// All that a worker calls.
pub struct Calls {
    first: Functions,
    own: Functions,
    here: Files,
    outside: Files,
}

impl Calls {
    pub fn make(place: &Path, outside: &Path) -> Result<Self> {
        // SAFETY: a text; it is loaded, and stays so.
        let handle =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return Err(Error::other("the C library is not libc.so.6"));
        }
        let name = std::process::id().to_string();
        Ok(Self {
            first: Functions::of(libc::RTLD_DEFAULT)?,
            own: Functions::of(handle)?,
            here: Files::make(place, &name)?,
            outside: Files::make(outside, &format!("{name}-outside"))?,
        })
    }

    /// Nanoseconds of a call.
    pub fn time(&self, turn: Turn) -> Result<f64> {
        let by = if turn.function == Function::First { &self.first } else { &self.own };
        let files = if turn.place == Place::Here { &self.here } else { &self.outside };
        let calls = turn.call.calls();
        let mut bytes = [0_u8; 8];
        let buffer = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: all zeros is one.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        let status = &raw mut status;
        let path = files.path.as_ptr();
        calls::rewind(files.read)?;
        calls::rewind(files.written)?;
        // SAFETY: open descriptors, memory of this function's for what is read and written, texts.
        unsafe {
            match turn.call {
                Call::Read => repeated(calls, || (by.read)(files.read, buffer, 1) == 1),
                Call::Pread => repeated(calls, || (by.pread)(files.read, buffer, 1, 64) == 1),
                Call::Write => repeated(calls, || (by.write)(files.written, buffer, 1) == 1),
                Call::Pwrite => repeated(calls, || (by.pwrite)(files.written, buffer, 1, 64) == 1),
                Call::Lseek => repeated(calls, || (by.lseek)(files.read, 64, libc::SEEK_SET) == 64),
                Call::Fstat => repeated(calls, || (by.fstat)(files.read, status) == 0),
                Call::FstatByNumber => {
                    repeated(calls, || (by.syscall)(libc::SYS_fstat, files.read, status) == 0)
                }
                Call::Stat => repeated(calls, || (by.stat)(path, status) == 0),
                Call::Access => repeated(calls, || (by.access)(path, libc::F_OK) == 0),
                Call::OpenClose => {
                    repeated(calls, || (by.close)((by.open)(path, libc::O_RDONLY)) == 0)
                }
                Call::Fputc => {
                    let stream = Stream::open(&files.written_path, c"r+")?;
                    repeated(calls, || libc::fputc(0, stream.0) == 0)
                }
                Call::Fgetc => {
                    let stream = Stream::open(&files.path, c"r")?;
                    repeated(calls, || libc::fgetc(stream.0) >= 0)
                }
                Call::Getline => {
                    let stream = Stream::open(&files.path, c"r")?;
                    let mut line = Line { bytes: std::ptr::null_mut(), room: 0 };
                    repeated(calls, || {
                        libc::getline(&raw mut line.bytes, &raw mut line.room, stream.0)
                            == LINE_BYTES as isize
                    })
                }
            }
        }
    }
}

/// Nanoseconds of a call that is made so often, after an untimed eighth.
fn repeated(calls: u32, mut call: impl FnMut() -> bool) -> Result<f64> {
    let mut worked = true;
    (0..calls / 8).for_each(|_| worked &= call());
    let begun = Instant::now();
    (0..calls).for_each(|_| worked &= call());
    let took = begun.elapsed();
    if worked { Ok(took.as_nanos() as f64 / f64::from(calls)) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{Call, Function, Place, Turn};

    #[test]
    fn a_turn_is_what_its_line_says() {
        for call in Call::ALL {
            for function in [Function::First, Function::Own] {
                for place in [Place::Here, Place::Outside] {
                    let turn = Turn { call, function, place };
                    assert_eq!(Turn::of_line(&turn.line()), Some(turn));
                }
            }
        }
        assert_eq!(Turn::of_line("first here reads"), None);
        assert_eq!(Turn::of_line("first there read"), None);
    }
}
