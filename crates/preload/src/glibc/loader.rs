//! Libraries and message catalogues on the volume: `dlopen`, `dlmopen`, `catopen`. The dynamic
//! linker and the C library open and map such files inside themselves. Where a mount of the volume
//! is, the linker loads a library from there, and finds what that needs beside it (`$ORIGIN`).
//! Elsewhere it gets a copy in memory, named through `/proc/self/fd`.
//!
//! The copy of a library stays open under its number, hidden from the program, for as long as the
//! process lives: the linker tells libraries apart by name, so the same file gets the same name
//! each time and no other file ever does.
//!
//! `dlopen` looks at its caller (`$ORIGIN`, the name space of the caller), so for other files it
//! jumps on to glibc's with the program's own return address.
//!
//! Locks: `COPIES` only under the structure lock, which `fork` takes: a child never finds it held
//! by a thread that it does not have. Both are held over the copying, not over the loading.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use vfs::cred::READ;
use vfs::{Attr, Kind, Node};

use crate::entry::fdtable;
use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::files::rw::copy_to_memory;
use crate::paths::{self, Target};

/// A library that has been copied, as it was then, and the number of its copy.
struct Copied {
    node: Node,
    size: u64,
    mtime: i64,
    number: c_int,
}

impl Copied {
    fn is_of(&self, attr: &Attr) -> bool {
        (self.node, self.size, self.mtime) == (attr.node, attr.size, attr.mtime)
    }
}

static COPIES: Mutex<Vec<Copied>> = Mutex::new(Vec::new());

/// Numbers of copies start here: out of the program's way.
const NUMBERS_FROM: c_int = 1000;

/// The regular file of the volume at `path`, if the process may read it.
pub fn readable(process: &Process, path: &[u8]) -> Option<Attr> {
    let target = paths::resolve(process, libc::AT_FDCWD, path, true).ok()?;
    if matches!(target, Target::Kernel | Target::Elsewhere(_)) {
        return None;
    }
    let attr = paths::existing(process, &target).ok()?;
    let allowed = process.cred().check(&attr, READ).is_ok();
    (attr.kind == Kind::File && allowed).then_some(attr)
}

/// Whether a library was copied: then the linker knows it by that name.
pub fn is_copied(process: &Process, attr: &Attr) -> bool {
    let _structure = process.lock();
    let copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.iter().any(|copy| copy.is_of(attr))
}

/// The number of the copy of a library; copies it if it is new or has changed.
pub fn copy_of(process: &Process, attr: &Attr, path: &[u8]) -> Option<c_int> {
    let _structure = process.lock();
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copy) = copies.iter().find(|copy| copy.is_of(attr)) {
        return Some(copy.number);
    }
    let memory = copy_to_memory(process, attr, path).ok()?;
    let mut high: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&memory, NUMBERS_FROM).ok()?;
    // A program may have closed an older copy (`closefrom`), whose name is still the linker's.
    while copies.iter().any(|copy| copy.number == high.as_raw_fd()) {
        high = rustix::io::fcntl_dupfd_cloexec(&memory, high.as_raw_fd() + 1).ok()?;
    }
    let number = high.into_raw_fd();
    fdtable::hide(number);
    copies.push(Copied { node: attr.node, size: attr.size, mtime: attr.mtime, number });
    Some(number)
}

pub fn name(number: c_int) -> Option<CString> {
    CString::new(format!("/proc/self/fd/{number}")).ok()
}

/// `nl_catd`'s failure is -1.
pub fn open_catalogue(
    process: &Process,
    path: &[u8],
    kernel: impl Fn(*const c_char) -> isize,
) -> Served<isize> {
    if !path.contains(&b'/') {
        return Err(Stop::Kernel);
    }
    let Some(attr) = readable(process, path) else { return Err(Stop::Kernel) };
    // It is read or mapped whole: the copy need not stay.
    let memory = copy_to_memory(process, &attr, path)?;
    let copy = name(memory.as_raw_fd()).ok_or(Stop::Kernel)?;
    Ok(kernel(copy.as_ptr()))
}
