//! Fifos and device nodes on the volume: opened as the kernel's own.
//!
//! A fifo's data is the kernel's: a real fifo in the anchor directory, named by the node's inode
//! and generation, made when the node is opened first and removed with the node's last name. A
//! device node is made there for the moment of opening it, or, where that is not permitted, found
//! among the usual ones in `/dev`. Permissions are the node's alone: every attached process has the
//! directory open, whatever user it has become since, so what lies there is open to all. So each
//! file there is checked to be what its name says. The fifos of a mounted volume are the mount's.
//!
//! Opening may wait for the other side: no locks, and handlers of signals run as the program's own.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use os::InternalFd;
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags};
use vfs::{Attr, Errno, Kind, Node, OpenFlags};

use crate::descriptors::handover;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::paths;
use crate::paths::mount;
use crate::runtime::environment;

/// Devices that every system has under these names.
const USUAL: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Flags of `open` that concern the name or its owner.
const FOR_NAMES: c_int =
    libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_TRUNC | libc::O_NOATIME;

/// Whether a node's data is not the volume's.
pub const fn is_special(kind: Kind) -> bool {
    !matches!(kind, Kind::File | Kind::Directory | Kind::Symlink)
}

/// How the names of the kernel's fifos begin.
const FIFO: &str = "fifo-";

fn fifo_name(node: Node) -> String {
    format!("{FIFO}{}.{}", node.number(), node.generation)
}

/// Opens a fifo or a device; gives the kernel's number. `path`: where it lies in the mount.
pub fn open(process: &Process, attr: &Attr, path: Option<&[u8]>, flags: c_int) -> Served<c_int> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Stop::Errno(Errno::EXIST));
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(Stop::Errno(Errno::NOTDIR));
    }
    process.user(attr.node).may_open(attr, OpenFlags(flags))?;
    // The name exists and was found, and its permissions were checked.
    let flags = flags & !FOR_NAMES;
    match attr.kind {
        Kind::Fifo => match path {
            Some(path) if mount::leads_to(process, path, attr.node) => {
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
    let dir = dir.as_fd().as_raw_fd();
    cached_fd::give_back();
    let arguments = [dir as usize, name.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: a text that lives until the call is done.
    let fd = outside(|| unsafe { os::interrupt::system_call(libc::SYS_openat, arguments) })?;
    Ok(fd as c_int)
}

fn open_fifo(process: &Process, node: Node, flags: c_int) -> Served<c_int> {
    let (name, anchor) = (fifo_name(node), &process.volume_of(node).anchor);
    let there = rustix::fs::statat(anchor, &name, AtFlags::SYMLINK_NOFOLLOW);
    match there.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Fifo) => {}
        // Only a fifo may have that name.
        Ok(_) => return Err(Stop::Errno(Errno::IO)),
        Err(Errno::NOENT) => make_fifo(anchor, &name)?,
        Err(errno) => return Err(Stop::Errno(errno)),
    }
    let fd = open_real(anchor, &name, flags | libc::O_NOFOLLOW)?;
    let opened = rustix::fs::fstat(fdtable::borrow(fd));
    if opened.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo) {
        tell(process);
        return Ok(fd);
    }
    crate::entry::syscall::kernel(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
    Err(Stop::Errno(Errno::IO))
}

/// Whether a fifo of a volume may be open here: this process has opened one, or one before it.
static ARE_OPEN: AtomicBool = AtomicBool::new(false);

/// Tells the programs that this one starts that numbers may be fifos of a volume.
const VARIABLE: &str = "SOLERA_FIFOS";

#[inline]
pub fn are_open() -> bool {
    ARE_OPEN.load(Ordering::Relaxed)
}

/// At the start of a program.
pub fn begin() {
    ARE_OPEN.store(environment::value(VARIABLE.as_bytes()).is_some(), Ordering::Relaxed);
}

fn tell(process: &Process) {
    if !ARE_OPEN.swap(true, Ordering::Relaxed) {
        process.show(format!("{VARIABLE}=1").as_bytes());
    }
}

/// The node whose fifo a number of the kernel's is: its attributes are the volume's. `None`: it is
/// no fifo of a volume, or one whose last name is gone.
pub fn node_of(process: &Process, fd: c_int) -> Option<Node> {
    if !are_open() {
        return None;
    }
    let opened = rustix::fs::fstat(fdtable::borrow_checked(fd).ok()?).ok()?;
    if FileType::from_raw_mode(opened.st_mode) != FileType::Fifo {
        return None;
    }
    let link = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).ok()?;
    let name = link.to_str().ok()?.rsplit('/').next()?;
    let node = handover::node(name.strip_prefix(FIFO)?)?;
    let member = process.volumes().position(|volume| {
        let there = rustix::fs::statat(&volume.anchor, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino))
    })?;
    Some(node.of_member(member))
}

/// Makes the kernel's fifo, open to all whatever the umask: the node's own mode was checked. It
/// gets its name after its mode, so that no process finds it closed.
fn make_fifo(anchor: &InternalFd, name: &str) -> Result<(), Errno> {
    let shared = Mode::from_raw_mode(0o666);
    let new = format!("{name}-{}", rustix::thread::gettid().as_raw_nonzero());
    // Left by a process that died here.
    let _ = rustix::fs::unlinkat(anchor, &new, AtFlags::empty());
    rustix::fs::mknodat(anchor, &new, FileType::Fifo, shared, 0)?;
    let made = rustix::fs::chmodat(anchor, &new, shared, AtFlags::empty()).and_then(|()| {
        let (from, to) = (anchor, anchor);
        rustix::fs::renameat_with(from, &new, to, name, RenameFlags::NOREPLACE)
    });
    if made.is_err() {
        rustix::fs::unlinkat(anchor, &new, AtFlags::empty())?;
    }
    // Another process may have been faster.
    if made == Err(Errno::EXIST) { Ok(()) } else { made }
}

fn open_device(process: &Process, attr: &Attr, flags: c_int) -> Served<c_int> {
    let anchor = &process.volume_of(attr.node).anchor;
    let name =
        format!("device-{}.{}", rustix::process::getpid().as_raw_nonzero(), attr.node.number());
    let block = attr.kind == Kind::BlockDevice;
    let kind = if block { FileType::BlockDevice } else { FileType::CharacterDevice };
    let mode = Mode::from_raw_mode(0o600);
    let opened = match rustix::fs::mknodat(anchor, &name, kind, mode, attr.rdev) {
        Ok(()) => {
            let opened = open_real(anchor, &name, flags | libc::O_NOFOLLOW);
            rustix::fs::unlinkat(anchor, &name, AtFlags::empty())?;
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
    report::about(attr.node.member());
    Err(Stop::Refused("device-on-volume", Errno::ACCESS))
}

/// A fifo's last name goes: the kernel's fifo loses its own. A process that has it open goes on.
pub fn unnamed(process: &Process, node: Node) {
    let anchor = &process.volume_of(node).anchor;
    let _ = rustix::fs::unlinkat(anchor, fifo_name(node), AtFlags::empty());
}
