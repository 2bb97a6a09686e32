//! The working directory: `chdir`, `fchdir`, `getcwd` and its kin; `chroot` is refused.
//!
//! While the working directory is on a mounted volume, the kernel's is the same. Else the kernel's
//! is a *removed* directory, and so are those above it: a relative path that slips past us finds
//! nothing and creates nothing, nor by `..`.

use std::ffi::{CString, c_char, c_int, c_long};
use std::os::fd::OwnedFd;

use os::InternalFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use vfs::cred::EXECUTE;
use vfs::{Attr, Errno, Node};

use crate::entry::pointers::Bytes;
use crate::entry::process::{Cwd, Process};
use crate::entry::program_memory;
use crate::entry::{DONE, Served, Stop};
use crate::paths;
use crate::paths::mount;

/// Directories above the working directory that are removed, too.
const ABOVE: usize = 8;

/// Enters a directory of the volume.
pub fn enter(process: &Process, attr: &Attr) -> Served<c_int> {
    paths::require_directory(attr)?;
    process.cred().check(attr, EXECUTE)?;
    let is_kernels = |node| process.volume_of(node).mounted;
    if !mount::enter(process, attr.node)
        && (is_kernels(attr.node) || process.cwd().node.is_none_or(is_kernels))
    {
        leave_kernel_directory(process)?;
    }
    process.set_cwd(Cwd { node: Some(attr.node), path: Vec::new() });
    DONE
}

/// Puts the kernel's working directory where nothing is.
fn leave_kernel_directory(process: &Process) -> Result<(), Errno> {
    let anchor = &process.first().anchor;
    match void_directory(anchor) {
        Ok(directory) => rustix::process::fchdir(&directory),
        // No room for a directory: relative paths that slip find only the few files there.
        Err(_) => rustix::process::fchdir(anchor),
    }
}

/// A directory that is no more, below others that are no more.
fn void_directory(anchor: &InternalFd) -> Result<OwnedFd, Errno> {
    let mut path = unique_name();
    let mut made = Vec::with_capacity(ABOVE + 1);
    let result = loop {
        if let Err(errno) = rustix::fs::mkdirat(anchor, &path, Mode::RWXU) {
            break Err(errno);
        }
        made.push(path.len());
        if made.len() > ABOVE {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            break rustix::fs::openat(anchor, &path, flags, Mode::empty());
        }
        path.push_str("/v");
    };
    for &length in made.iter().rev() {
        rustix::fs::unlinkat(anchor, &path[..length], AtFlags::REMOVEDIR)?;
    }
    result
}

/// A name in the anchor directory that no other process takes, in other containers neither.
fn unique_name() -> String {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let process = rustix::process::getpid().as_raw_nonzero();
    format!("void-{process}-{}{:09}", time.tv_sec, time.tv_nsec)
}

/// The kernel's working directory has changed, or is in use again.
pub fn entered_kernel_directory(process: &Process) {
    let path = rustix::process::getcwd(Vec::new());
    let path = path.map_or_else(|_| Vec::new(), CString::into_bytes);
    let node = mount::working_directory(process, &path);
    process.set_cwd(Cwd { node, path });
}

/// The working directory's path, as the program asks for it: of any length, since glibc goes
/// upwards itself where the kernel gives up.
fn current(process: &Process) -> Served<CString> {
    let node: Node = process.cwd().node.ok_or(Stop::Kernel)?;
    Ok(paths::c_text(&process.walk(node).path_of(node)?)?)
}

/// `getcwd` by number: into a buffer of `len` bytes; gives the bytes with the NUL.
pub fn by_number(process: &Process, to: Bytes, len: usize) -> Served<c_long> {
    let path = current(process)?;
    let bytes = path.as_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        return Err(Stop::Errno(Errno::NAMETOOLONG));
    }
    if bytes.len() > len {
        return Err(Stop::Errno(Errno::RANGE));
    }
    to.put(bytes)?;
    Ok(bytes.len() as c_long)
}

/// `getcwd` of the C library: into a buffer of `len` bytes, or into memory of the program's heap. A
/// path of any length: where the kernel gives up, the C library goes upwards, and finds no volume
/// in the directory where it seems to lie.
pub fn get(process: &Process, to: *mut c_char, len: usize) -> Served<*mut c_char> {
    let path = current(process)?;
    let need = path.as_bytes_with_nul().len();
    let room = if to.is_null() && len == 0 { need } else { len };
    if room == 0 {
        return Err(Stop::Errno(Errno::INVAL));
    }
    if room < need {
        return Err(Stop::Errno(Errno::RANGE));
    }
    let memory = if to.is_null() { program_memory::allocate(room).cast() } else { to };
    if memory.is_null() {
        return Err(Stop::Errno(Errno::NOMEM));
    }
    Bytes(memory.cast()).put(path.as_bytes_with_nul())?;
    Ok(memory)
}
