//! Local sockets named on the volume: `bind`, `connect`, `sendto`, and the calls that tell a name.
//!
//! The volume keeps a node of kind socket; the kernel's own socket lies in the anchor directory,
//! named by the node's inode and generation, so it follows renames and hard links. The program is
//! told the name that it gave, as far as this process knows it. Permissions are the node's alone
//! (see [`crate::descriptors::special_files`]). A socket that a crash leaves there is replaced when
//! its name is used again. On a mounted volume the kernel does all this by the mount.
//!
//! Locks: `NAMES` only while the structure lock is held, which `fork` takes: a child never finds it
//! held by a thread that it does not have.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use libc::{sockaddr, sockaddr_un, socklen_t};
use rustix::fs::{AtFlags, FileType, Mode};
use vfs::cred::WRITE;
use vfs::walk::{Found, Last};
use vfs::{EntryName, Errno, Kind, Node, Removes};

use crate::descriptors::special_files;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::{Process, VolumeView};
use crate::entry::{Served, Stop, outside};
use crate::paths::{self, Target};

pub type Address = *const sockaddr;

/// Names in the anchor directory, and what the program called them.
static NAMES: Mutex<Vec<(Node, Vec<u8>)>> = Mutex::new(Vec::new());

const PATH_OFFSET: usize = std::mem::offset_of!(sockaddr_un, sun_path);

/// An address for the kernel.
pub struct Real {
    address: sockaddr_un,
    len: socklen_t,
}

impl Real {
    /// That of a path.
    pub fn new(path: &[u8]) -> Result<Self, Errno> {
        // SAFETY: all zeros is a value of this plain structure.
        let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
        if path.len() >= address.sun_path.len() {
            return Err(Errno::NAMETOOLONG);
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = from.cast_signed();
        }
        Ok(Self { address, len: (PATH_OFFSET + path.len() + 1) as socklen_t })
    }

    /// The address of the kernel's socket behind a node.
    fn of(process: &Process, node: Node) -> Result<Self, Errno> {
        let directory = directory(process.volume_of(node));
        Self::new([&directory, name(node).as_bytes()].concat().as_slice())
    }

    /// As the calls take it.
    pub fn parts(&self) -> (Address, socklen_t) {
        ((&raw const self.address).cast(), self.len)
    }
}

/// The anchor directory, by a path short enough for any volume.
fn directory(seen: &VolumeView) -> Vec<u8> {
    format!("/proc/self/fd/{}/", seen.anchor.as_raw_fd()).into_bytes()
}

fn name(node: Node) -> String {
    format!("socket-{}.{}", node.number(), node.generation)
}

/// The path of a local socket's address; `None` for other addresses and abstract names.
pub fn path_of(address: Address, len: socklen_t) -> Option<Vec<u8>> {
    let len = len as usize;
    if address.is_null() || len <= PATH_OFFSET {
        return None;
    }
    let family = Out(address.cast_mut().cast::<libc::sa_family_t>()).value().ok()?;
    if c_int::from(family) != libc::AF_UNIX {
        return None;
    }
    let bytes = &mut [0; size_of::<sockaddr_un>() - PATH_OFFSET][..];
    let bytes = &mut bytes[..(len - PATH_OFFSET).min(size_of::<sockaddr_un>() - PATH_OFFSET)];
    let start = Bytes(address.cast_mut().cast::<u8>().wrapping_add(PATH_OFFSET).cast());
    start.source(bytes.len()).read(bytes).ok()?;
    let path = bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
    (!path.is_empty()).then_some(path)
}

fn remember(process: &Process, node: Node, path: Option<Vec<u8>>) {
    let _structure = process.lock();
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.retain(|(known, _)| *known != node);
    names.extend(path.map(|path| (node, path)));
}

/// Where to send or connect to: the kernel's socket behind `address`; `None`: not ours.
pub fn destination(
    process: &Process,
    address: Address,
    len: socklen_t,
) -> Result<Option<Real>, Stop> {
    let Some(path) = path_of(address, len) else { return Ok(None) };
    let attr = match paths::resolve(process, libc::AT_FDCWD, &path, true)? {
        Target::Kernel => return Ok(None),
        Target::Elsewhere(path) => return Ok(Some(Real::new(path.as_bytes())?)),
        // The kernel finds it by the mount.
        Target::Volume(found) if process.volume_of(found.dir).mounted => return Ok(None),
        target => paths::existing(process, &target)?,
    };
    process.cred().check(&attr, WRITE)?;
    if attr.kind != Kind::Socket {
        return Err(Stop::Errno(Errno::CONNREFUSED));
    }
    remember(process, attr.node, Some(path));
    // A node without a socket, after a reboot: as one whose server has ended.
    let anchor = &process.volume_of(attr.node).anchor;
    let found = rustix::fs::statat(anchor, name(attr.node), AtFlags::SYMLINK_NOFOLLOW);
    let found = found.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if found != Ok(FileType::Socket) {
        return Err(Stop::Errno(Errno::CONNREFUSED));
    }
    Ok(Some(Real::of(process, attr.node)?))
}

/// Makes the node at `found`, then binds by `kernel`.
pub fn bind_at(
    process: &Process,
    found: &Found<'_>,
    path: &[u8],
    kernel: impl Fn(&Real) -> c_int,
) -> Served<c_int> {
    let node = match process.user(found.dir).make(found, Kind::Socket, 0o777, 0) {
        Err(Errno::EXIST) => return Err(Stop::Errno(Errno::ADDRINUSE)),
        node => node?,
    };
    let anchor = &process.volume_of(node).anchor;
    let _ = rustix::fs::unlinkat(anchor, name(node), AtFlags::empty());
    let real = Real::of(process, node)?;
    let result = kernel(&real);
    if result == 0 {
        // Open to all, whatever the umask: the node's own mode is checked.
        let all = Mode::from_raw_mode(0o777);
        rustix::fs::chmodat(anchor, name(node), all, AtFlags::empty())?;
        remember(process, node, Some(path.to_vec()));
    } else if let Last::Name(name) = &found.last {
        let errno = crate::entry::errno();
        process.fs.remove(&EntryName::new(found.dir, name.as_bytes()), Removes::Name)?;
        crate::entry::set_errno(errno);
    }
    Ok(result)
}

/// A node's last name goes: the kernel's socket or fifo loses its own.
pub fn unnamed(process: &Process, found: &Found<'_>) {
    if let Some(attr) = found.attr
        && attr.nlink <= 1
    {
        match attr.kind {
            Kind::Socket => {}
            Kind::Fifo => return special_files::unnamed(process, attr.node),
            _ => return,
        }
        let anchor = &process.volume_of(attr.node).anchor;
        let _ = rustix::fs::unlinkat(anchor, name(attr.node), AtFlags::empty());
        remember(process, attr.node, None);
    }
}

/// Puts the program's own name in place of one in the anchor directory. `room`: what the program
/// had said before the call.
pub fn show(
    process: &Process,
    address: *mut sockaddr,
    len: Out<socklen_t>,
    room: Option<socklen_t>,
) {
    let (Some(room), Ok(told)) = (room, len.value()) else { return };
    let Some(path) = path_of(address, told.min(room)) else { return };
    let of = |(number, seen): (usize, &VolumeView)| {
        Some((number, path.strip_prefix(directory(seen).as_slice())?.to_vec()))
    };
    let Some((number, tail)) = process.volumes().enumerate().find_map(of) else { return };
    let shown = {
        let _structure = process.lock();
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |node: Node| node.member() == number && name(node).as_bytes() == tail;
        let known = names.iter().find(|(node, _)| is_it(*node));
        known.map(|(_, path)| path.clone())
    };
    let Some(mut shown) = shown else { return };
    shown.push(0);
    let fits = shown.len().min(room as usize - PATH_OFFSET);
    let to = Bytes(address.cast::<u8>().wrapping_add(PATH_OFFSET).cast::<c_void>());
    if to.put(&shown[..fits]).is_ok() {
        let _ = len.put((PATH_OFFSET + shown.len()) as socklen_t);
    }
}

/// A call that tells an address: the kernel's answer, with the program's own names. It may wait:
/// handlers of signals that arrive meanwhile run as the program's own.
pub fn told(
    process: &Process,
    (address, len): (*mut sockaddr, Out<socklen_t>),
    kernel: impl FnOnce() -> isize,
) -> Served<isize> {
    if address.is_null() || len.is_null() {
        return Err(Stop::Kernel);
    }
    let room = len.value().ok();
    let result = outside(kernel);
    if result >= 0 {
        show(process, address, len, room);
    }
    Ok(result)
}
