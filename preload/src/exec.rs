//! `exec` in all its forms. The new image gets this library, the volume's variables, the descriptors
//! in hand-over form and the working directory, whatever environment the program passes.
//!
//! A file on the volume cannot be executed by the kernel: a script is run by its interpreter, a binary
//! through a copy in memory.
//!
//! No locks are held across the system call.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use vfs::cred::EXECUTE;
use vfs::{Attr, Errno, Kind, UserOut};

use crate::entry::{Served, Stop, Text, interpose, outside};
use crate::fdtable;
use crate::handover;
use crate::paths::{self, Target};
use crate::process::Process;
use crate::report;

/// A NULL-terminated list of strings of the program's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct List(pub *const *const c_char);

impl List {
    /// Its texts; none for NULL.
    pub fn texts(self) -> Vec<Text> {
        let mut texts = Vec::new();
        if self.0.is_null() {
            return texts;
        }
        loop {
            // SAFETY: by the C contract it ends with NULL.
            let text = Text(unsafe { *self.0.add(texts.len()) });
            if text.0.is_null() {
                return texts;
            }
            texts.push(text);
        }
    }

    /// The program's environment.
    pub fn environment() -> Self {
        // SAFETY: glibc's variable.
        Self(unsafe { environ }.cast_const().cast())
    }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// What to give to the kernel.
struct Image {
    path: CString,
    /// A copy of a binary of the volume, to be executed instead of the path.
    memory: Option<std::os::fd::OwnedFd>,
    /// Interpreter and its argument, to stand before the script's path.
    before: Vec<CString>,
}

/// Longest first line of a script that is looked at, as the kernel's.
const SCRIPT_LINE_MAX: usize = 256;

fn read_at(process: &Process, attr: &Attr, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
    let desc = process.fs.open(attr.node, vfs::OpenFlags(libc::O_RDONLY))?;
    let result = process.fs.read_at(desc, offset, &mut [UserOut::new(to)]);
    process.fs.close(desc)?;
    result
}

/// Prepares a file of the volume for execution.
fn load(process: &Process, attr: &Attr, path: &[u8]) -> Result<Image, Errno> {
    if attr.kind != Kind::File {
        return Err(Errno::ACCESS);
    }
    process.cred().check(attr, EXECUTE)?;
    let mut first = [0; SCRIPT_LINE_MAX];
    let length = read_at(process, attr, 0, &mut first)?;
    let path = paths::c_text(path)?;
    if let Some(line) = first[..length].strip_prefix(b"#!") {
        let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
        let line = line[..end].trim_ascii();
        let cut = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (interpreter, argument) = (&line[..cut], line[cut..].trim_ascii());
        if interpreter.is_empty() {
            return Err(Errno::NOEXEC);
        }
        let mut before = vec![paths::c_text(interpreter)?];
        if !argument.is_empty() {
            before.push(paths::c_text(argument)?);
        }
        return Ok(Image { path, memory: None, before });
    }
    if !first[..length].starts_with(b"\x7fELF") {
        return Err(Errno::NOEXEC);
    }
    report::count("execve", "binary-copied-to-memory");
    let name = path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let memory = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let got = read_at(process, attr, at, &mut buffer)?;
        if got == 0 {
            return Ok(Image { path, memory: Some(memory), before: Vec::new() });
        }
        let mut done = 0;
        while done < got {
            done += rustix::io::write(&memory, &buffer[done..got])?;
        }
        at += got as u64;
    }
}

/// The environment of the new image: the program's, with our variables put back.
fn environment(process: &Process, given: List, token: &str) -> Result<Vec<CString>, Errno> {
    let mut variables = Vec::new();
    let mut preload = process.library.clone();
    for text in given.texts() {
        let variable = text.bytes()?;
        if let Some(value) = variable.strip_prefix(b"LD_PRELOAD=") {
            for library in value.split(|&byte| byte == b':' || byte == b' ') {
                if !library.is_empty() && library != process.library {
                    preload.push(b':');
                    preload.extend_from_slice(library);
                }
            }
        } else if !variable.starts_with(b"SOLERA_") {
            variables.push(paths::c_text(variable)?);
        }
    }
    variables.push(paths::c_text(&[b"LD_PRELOAD=", preload.as_slice()].concat())?);
    for variable in process.environment.iter().chain(&handover::variables(process, token)) {
        variables.push(paths::c_text(variable)?);
    }
    Ok(variables)
}

/// Ends with NULL, as C wants it.
fn pointers(texts: impl IntoIterator<Item = *const c_char>) -> Vec<*const c_char> {
    texts.into_iter().chain([std::ptr::null()]).collect()
}

/// Executes; comes back only with the error.
fn run(process: &Process, image: &Image, arguments: List, given: List) -> Errno {
    let token = match process.fs.exec_prepare() {
        Ok(token) => token,
        Err(errno) => return errno,
    };
    let prepared = handover::prepare(process).and_then(|()| environment(process, given, &token));
    let errno = match prepared {
        Err(errno) => errno,
        Ok(variables) => {
            let environment = pointers(variables.iter().map(|text| text.as_ptr()));
            let own = arguments.texts();
            let script: &[CString] = match image.before.as_slice() {
                [] => &[],
                _ => std::slice::from_ref(&image.path),
            };
            let leading = image.before.iter().chain(script).map(|text| text.as_ptr());
            let skipped = usize::from(!image.before.is_empty());
            let rest = own.iter().skip(skipped).map(|text| text.0);
            let arguments = pointers(leading.chain(rest));
            let path = image.before.first().unwrap_or(&image.path);
            let memory = image.memory.as_ref().map(AsFd::as_fd);
            // What this image counted would end with it.
            process.write_report();
            execute(memory, path, &arguments, &environment)
        }
    };
    process.fs.exec_failed();
    errno
}

fn execute(
    memory: Option<BorrowedFd<'_>>,
    path: &CString,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> Errno {
    // SAFETY: NULL-terminated lists of texts that live until the call.
    unsafe {
        match memory {
            Some(memory) => libc::syscall(
                libc::SYS_execveat,
                memory.as_raw_fd(),
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            ),
            None => libc::syscall(
                libc::SYS_execve,
                path.as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
            ),
        };
    }
    Errno::from_raw_os_error(crate::entry::errno())
}

/// `execve`; comes back only with the error.
pub fn exec(process: &Process, path: &[u8], arguments: List, environment: List) -> Errno {
    let image = match paths::resolve(process, libc::AT_FDCWD, path, true) {
        Err(errno) => Err(errno),
        Ok(Target::Kernel) => {
            paths::c_text(path).map(|path| Image { path, memory: None, before: Vec::new() })
        }
        Ok(Target::Elsewhere(path)) => Ok(Image { path, memory: None, before: Vec::new() }),
        Ok(target) => match paths::existing(process, &target) {
            Ok(attr) => load(process, &attr, path),
            Err(Stop::Errno(errno) | Stop::Refused(_, errno)) => Err(errno),
            Err(Stop::Kernel) => Err(Errno::NOENT),
        },
    };
    match image {
        Ok(image) => run(process, &image, arguments, environment),
        Err(errno) => errno,
    }
}

/// `execvpe`: along `PATH` unless the name has a slash; a file of no known format is a shell script.
pub fn exec_search(process: &Process, file: &[u8], arguments: List, environment: List) -> Errno {
    if file.is_empty() {
        return Errno::NOENT;
    }
    if file.contains(&b'/') {
        return exec_or_shell(process, file, arguments, environment);
    }
    // SAFETY: a text of the environment, copied at once.
    let path = Text(unsafe { libc::getenv(c"PATH".as_ptr()) });
    let path = path.optional().unwrap_or(b"/bin:/usr/bin").to_vec();
    let mut denied = false;
    for directory in path.split(|&byte| byte == b':') {
        let mut whole = directory.to_vec();
        if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(file);
        // Much cheaper than preparing for an exec that fails.
        let absent = outside(|| {
            let Ok(text) = paths::c_text(&whole) else { return true };
            // SAFETY: a text.
            unsafe { libc::access(text.as_ptr(), libc::F_OK) != 0 }
        });
        if absent {
            denied |= crate::entry::errno() == libc::EACCES;
            continue;
        }
        match exec_or_shell(process, &whole, arguments, environment) {
            Errno::ACCESS => denied = true,
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {}
            errno => return errno,
        }
    }
    if denied { Errno::ACCESS } else { Errno::NOENT }
}

fn exec_or_shell(process: &Process, path: &[u8], arguments: List, environment: List) -> Errno {
    let errno = exec(process, path, arguments, environment);
    if errno != Errno::NOEXEC {
        return errno;
    }
    let Ok(script) = paths::c_text(path) else { return errno };
    let rest = arguments.texts();
    let shell = [c"/bin/sh".as_ptr(), script.as_ptr()];
    let all = pointers(shell.into_iter().chain(rest.iter().skip(1).map(|text| text.0)));
    exec(process, b"/bin/sh", List(all.as_ptr()), environment)
}

fn failed(errno: Errno) -> Served<c_int> {
    Err(Stop::Errno(errno))
}

interpose! {
    fn [execve](path: Text, arguments: List, environment: List) -> c_int = |process, _| {
        failed(exec(process, path.bytes()?, arguments, environment))
    }
    fn [execv](path: Text, arguments: List) -> c_int = |process, _| {
        failed(exec(process, path.bytes()?, arguments, List::environment()))
    }
    fn [execvp](file: Text, arguments: List) -> c_int = |process, _| {
        failed(exec_search(process, file.bytes()?, arguments, List::environment()))
    }
    fn [execvpe](file: Text, arguments: List, environment: List) -> c_int = |process, _| {
        failed(exec_search(process, file.bytes()?, arguments, environment))
    }
    fn [fexecve](fd: c_int, arguments: List, environment: List) -> c_int = |process, _| {
        let image = match fdtable::get(fd) {
            Some(desc) => {
                let attr = process.fs.attr(process.fs.describe(desc)?.0)?;
                load(process, &attr, format!("/dev/fd/{fd}").as_bytes())?
            }
            None => Image {
                path: paths::c_text(format!("/proc/self/fd/{fd}").as_bytes())?,
                memory: None,
                before: Vec::new(),
            },
        };
        failed(run(process, &image, arguments, environment))
    }
}
