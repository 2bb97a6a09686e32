//! Programs that no dynamic linker starts, or that have another C library, are run by a program of
//! ours (see [`crate::host`]): what it is told by the image before it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;

use rustix::fs::{Access, Mode, OFlags};
use vfs::executable;

use crate::entry::cancel;
use crate::entry::fdtable;
use crate::entry::process::Process;
use crate::entry::thread::here;
use crate::paths;
use crate::runtime::guest;

/// The host's name, which lies beside this library.
const HOST: &[u8] = b"solera-host";
/// The guest's open file, and by which name its process knows it.
pub const VARIABLE: &str = executable::GUEST;
/// The name that it was executed by.
pub const CALLED: &str = executable::GUEST_CALLED;

/// Set: its starter traces it from its first instruction on.
pub const TRACED: &str = "SOLERA_GUEST_TRACED";

/// A guest that this process is to become.
pub struct Guest {
    pub program: OwnedFd,
    /// The file's path.
    pub file: CString,
    /// The path that was executed.
    pub called: CString,
}

impl Guest {
    /// For messages.
    pub fn shown(&self) -> String {
        self.called.to_string_lossy().into_owned()
    }
}

fn text(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(OsStringExt::into_vec)
}

/// What the image before this one has told: a descriptor's number, and the file's path.
fn said() -> Option<(i32, Vec<u8>)> {
    let said = text(VARIABLE)?;
    let colon = said.iter().position(|&byte| byte == b':')?;
    let number = std::str::from_utf8(&said[..colon]).ok()?.parse().ok()?;
    Some((number, said[colon + 1..].to_vec()))
}

/// The guest that this process is to become. `None`: nobody has told of one.
pub fn told() -> Option<Guest> {
    let (number, file) = said()?;
    rustix::io::fcntl_getfd(fdtable::borrow_checked(number).ok()?).ok()?;
    // SAFETY: the descriptor that was left open for this.
    let program = unsafe { OwnedFd::from_raw_fd(number) };
    let file = CString::new(file).ok()?;
    let called = text(CALLED).and_then(|called| CString::new(called).ok());
    Some(Guest { program, called: called.unwrap_or_else(|| file.clone()), file })
}

/// The file of the guest that this process is, or is to become.
pub fn file() -> Option<Vec<u8>> {
    said().map(|(_, file)| file)
}

/// Whether the image before this one has asked to be traced.
pub fn is_traced() -> bool {
    text(TRACED).is_some()
}

/// Whether a host can serve such a program: its calls arrive here, and it may have a thread pointer
/// of its own.
pub fn is_possible() -> bool {
    guest::is_possible() && cancel::sees_outside()
}

/// The host's path, if this process can reach it.
pub fn path(process: &Process) -> Option<CString> {
    let library = &*process.library;
    let folder = library.iter().rposition(|&byte| byte == b'/')? + 1;
    let path = CString::new([&library[..folder], HOST].concat()).ok()?;
    rustix::fs::access(&path, Access::EXEC_OK).is_ok().then_some(path)
}

/// What the host is told: variables, and the open file, which it inherits.
pub struct Handing {
    pub variables: Vec<CString>,
    _program: OwnedFd,
}

/// Has a host run an open file. `file`: its path, where the kernel does not know it.
pub fn hand_over(
    program: BorrowedFd<'_>,
    file: Option<&[u8]>,
    called: &CStr,
) -> Result<Handing, vfs::Errno> {
    // Not closed at the exec.
    let program = rustix::io::dup(program)?;
    let link = || {
        let link = format!("/proc/self/fd/{}", program.as_raw_fd());
        rustix::fs::readlink(link, Vec::new()).map(CString::into_bytes)
    };
    let file = file.map_or_else(link, |file| Ok(file.to_vec()))?;
    let number = program.as_raw_fd().to_string();
    let said = [VARIABLE.as_bytes(), b"=", number.as_bytes(), b":", &file].concat();
    let called = [CALLED.as_bytes(), b"=", called.to_bytes()].concat();
    let mut variables = vec![paths::c_text(&said)?, paths::c_text(&called)?];
    // The host stops when the guest is mapped.
    if here().guest.is_traced.swap(false, Ordering::Relaxed) {
        variables.push(paths::c_text(&[TRACED.as_bytes(), b"=1"].concat())?);
    }
    Ok(Handing { variables, _program: program })
}

/// Opens a kernel's program.
pub fn open(at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, vfs::Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}
