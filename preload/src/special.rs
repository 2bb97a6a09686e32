//! Fifos and device nodes on the volume: opened as the kernel's own.
//!
//! A fifo's data is the kernel's: a real fifo in the anchor directory, named by the node's inode and
//! generation, made when the node is opened first and removed with the node's last name. A device
//! node is made there for the moment of opening it, or, where that is not permitted, found among
//! the usual ones in `/dev`. Permissions are the node's; the anchor directory's hold as well. The fifos
//! of a mounted volume are the mount's.
//!
//! Opening may wait for the other side: no locks, and handlers of signals run as the program's own.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, FileType, Mode};
use vfs::cred::{READ, WRITE};
use vfs::{Attr, Errno, Kind, Node, OpenFlags};

use crate::entry::{Served, Stop, outside};
use crate::mounted;
use crate::parked;
use crate::paths;
use crate::process::Process;

/// Devices that every system has under these names.
const USUAL: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Whether a node's data is not the volume's.
pub const fn is_special(kind: Kind) -> bool {
    !matches!(kind, Kind::File | Kind::Directory | Kind::Symlink)
}

fn fifo_name(node: Node) -> String {
    format!("fifo-{}.{}", node.ino, node.generation)
}

/// Opens a fifo or a device; gives the kernel's number. `path`: where it lies in the mount.
pub fn open(process: &Process, attr: &Attr, path: Option<&[u8]>, flags: c_int) -> Served<c_int> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Stop::Errno(Errno::EXIST));
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(Stop::Errno(Errno::NOTDIR));
    }
    let open = OpenFlags(flags);
    let reads = if open.reads() { READ } else { 0 };
    let writes = if open.writes() || flags & libc::O_TRUNC != 0 { WRITE } else { 0 };
    process.cred().check(attr, reads | writes)?;
    match attr.kind {
        Kind::Fifo => match path {
            Some(path) if mounted::leads_to(process, path, attr.node) => {
                Ok(open_real(rustix::fs::CWD, path, flags)?)
            }
            _ => open_fifo(process, attr.node, flags),
        },
        Kind::CharDevice | Kind::BlockDevice => open_device(process, attr, flags),
        _ => Err(Stop::Errno(Errno::NXIO)),
    }
}

/// The system call itself, which may wait.
fn open_real(dir: impl AsFd, name: impl AsRef<[u8]>, flags: c_int) -> Result<c_int, Errno> {
    let name = paths::c_text(name.as_ref())?;
    let made = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let dir = dir.as_fd().as_raw_fd();
    parked::give_back();
    let arguments = [dir as usize, name.as_ptr() as usize, (flags & !made) as usize, 0, 0, 0];
    // SAFETY: a text that lives until the call is done.
    let fd = outside(|| unsafe { pmem::interrupt::system_call(libc::SYS_openat, arguments) })?;
    Ok(fd as c_int)
}

fn open_fifo(process: &Process, node: Node, flags: c_int) -> Served<c_int> {
    let name = fifo_name(node);
    let shared = Mode::from_raw_mode(0o666);
    match rustix::fs::mknodat(&process.anchor, &name, FileType::Fifo, shared, 0) {
        // Whatever the umask: the node's own mode has been asked.
        Ok(()) => rustix::fs::chmodat(&process.anchor, &name, shared, AtFlags::empty())?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(Stop::Errno(errno)),
    }
    Ok(open_real(&process.anchor, &name, flags)?)
}

fn open_device(process: &Process, attr: &Attr, flags: c_int) -> Served<c_int> {
    let name = format!("device-{}.{}", rustix::process::getpid().as_raw_nonzero(), attr.node.ino);
    let block = attr.kind == Kind::BlockDevice;
    let kind = if block { FileType::BlockDevice } else { FileType::CharacterDevice };
    let mode = Mode::from_raw_mode(0o600);
    let opened = match rustix::fs::mknodat(&process.anchor, &name, kind, mode, attr.rdev) {
        Ok(()) => {
            let opened = open_real(&process.anchor, &name, flags);
            rustix::fs::unlinkat(&process.anchor, &name, AtFlags::empty())?;
            opened
        }
        Err(errno) => Err(errno),
    };
    match opened {
        Err(Errno::ACCESS | Errno::PERM) => {}
        opened => return Ok(opened?),
    }
    // Not permitted here, or a file system without devices.
    for path in USUAL {
        let same = rustix::fs::stat(path).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == kind && stat.st_rdev == attr.rdev
        });
        if same {
            return Ok(open_real(rustix::fs::CWD, path, flags)?);
        }
    }
    Err(Stop::Refused("device-on-volume", Errno::ACCESS))
}

/// A fifo's last name goes: the kernel's fifo loses its own. Who has it open goes on.
pub fn unnamed(process: &Process, node: Node) {
    let _ = rustix::fs::unlinkat(&process.anchor, fifo_name(node), AtFlags::empty());
}
