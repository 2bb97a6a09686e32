//! Calls that name something on the volume and that the volume does not serve: refused with a
//! reason in the report, where the kernel would only say that there is no such file.
//!
//! Sockets and watches by path, file handles, glibc's own tree walker `fts` (which opens
//! directories inside itself), and descriptors of ours sent through sockets.

use std::ffi::{c_char, c_int, c_uint, c_void};

use vfs::Errno;

use crate::entry::{Out, Served, Stop, Text, interpose};
use crate::exec::List;
use crate::fdtable;
use crate::paths::{self, Target};
use crate::process::Process;

/// Whether a path leads onto the volume; a path that cannot be walked does if it is the volume's.
fn on_volume(process: &Process, path: &[u8]) -> bool {
    match paths::resolve(process, libc::AT_FDCWD, path, true) {
        Ok(Target::Kernel | Target::Elsewhere(_)) => false,
        Ok(Target::Volume(_) | Target::Descriptor(_)) | Err(_) => true,
    }
}

/// Refuses if `path` is the volume's; else the kernel serves.
fn refuse<T>(process: &Process, path: &[u8], reason: &'static str, errno: Errno) -> Served<T> {
    let ours = !path.is_empty() && on_volume(process, path);
    Err(if ours { Stop::Refused(reason, errno) } else { Stop::Kernel })
}

/// The path of a local socket's address; empty for other addresses and abstract names.
fn socket_path(address: *const libc::sockaddr, len: libc::socklen_t) -> Vec<u8> {
    let start = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let len = len as usize;
    if address.is_null() || len <= start {
        return Vec::new();
    }
    // SAFETY: by the C contract an address of `len` bytes, which begins with its family.
    let bytes = unsafe {
        if c_int::from((*address).sa_family) != libc::AF_UNIX {
            return Vec::new();
        }
        std::slice::from_raw_parts(address.cast::<u8>().add(start), len - start)
    };
    bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Whether a message carries a descriptor of ours.
fn carries_ours(message: *const libc::msghdr) -> bool {
    if message.is_null() {
        return false;
    }
    // SAFETY: by the C contract a message whose control data is as long as it says; the macros stay
    // inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let bytes = ((*header).cmsg_len).saturating_sub(libc::CMSG_LEN(0) as usize);
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let list = Out(libc::CMSG_DATA(header).cast::<[u8; size_of::<c_int>()]>());
                let sent = list.array(bytes / size_of::<c_int>());
                if sent.into_iter().any(|fd| fdtable::get(c_int::from_ne_bytes(fd)).is_some()) {
                    return true;
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    false
}

type Address = *const libc::sockaddr;
type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

fn walk_with_fts(process: &Process, paths: List) -> Served<*mut c_void> {
    for path in paths.texts() {
        refuse::<()>(process, path.bytes()?, "fts", Errno::OPNOTSUPP).or_else(
            |stop| match stop {
                Stop::Kernel => Ok(()),
                stop => Err(stop),
            },
        )?;
    }
    Err(Stop::Kernel)
}

interpose! {
    fn [bind](socket: c_int, address: Address, len: libc::socklen_t) -> c_int = |process, _| {
        let _ = socket;
        refuse(process, &socket_path(address, len), "socket-on-volume", Errno::OPNOTSUPP)
    }
    fn [connect](socket: c_int, address: Address, len: libc::socklen_t) -> c_int = |process, _| {
        let _ = socket;
        refuse(process, &socket_path(address, len), "socket-on-volume", Errno::CONNREFUSED)
    }
    fn [sendmsg](socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize = |_, _| {
        let _ = (socket, flags);
        if carries_ours(message) {
            return Err(Stop::Refused("descriptor-through-socket", Errno::OPNOTSUPP));
        }
        Err(Stop::Kernel)
    }
    fn [inotify_add_watch](fd: c_int, path: Text, mask: c_uint) -> c_int = |process, _| {
        let _ = (fd, mask);
        refuse(process, path.bytes()?, "inotify", Errno::OPNOTSUPP)
    }
    fn [name_to_handle_at](
        dirfd: c_int, path: Text, handle: *mut c_void, mount: Out<c_int>, flags: c_int,
    ) -> c_int = |process, _| {
        let _ = (handle, mount, flags);
        if fdtable::get(dirfd).is_some() {
            return Err(Stop::Refused("file-handle", Errno::OPNOTSUPP));
        }
        refuse(process, path.bytes()?, "file-handle", Errno::OPNOTSUPP)
    }
    fn [fts_open, fts64_open](paths: *const *const c_char, options: c_int, compare: Compare)
    -> *mut c_void = |process, _| {
        let _ = (options, compare);
        walk_with_fts(process, List(paths))
    }
}
