//! The calls of this room: numbers opened and closed, copied and controlled; local
//! sockets and what they carry.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{mmsghdr, msghdr, sockaddr, socklen_t};
use rustix::io::DupFlags;
use vfs::{Errno, LockKind};

use crate::descriptors::handover::{self, Received};
use crate::descriptors::open::{close_numbers, mode_of, open_at};
use crate::descriptors::sockets::{self, Address, Real, told};
use crate::descriptors::{fcntl, messages, openat2};
use crate::entry::fdtable::{self, ours};
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{DONE, Stop, cached_fd, outside};
use crate::interposed::bodies;
use crate::mappings::read_estimate::Source;
use crate::mappings::{cache_segments, page_faults};
use crate::paths::{self, Target};

// ---- numbers opened and closed

bodies! {
    #[exported(open, open64, __open, __open64)]
    fn open(
        path: Text, flags: c_int, mode: c_uint,
    ) -> c_int = |process, kernel| {
        let kernel = |_, path| kernel(Text(path), flags, mode);
        open_at(process, kernel, libc::AT_FDCWD, path, flags, mode_of(flags, mode))
    }
    #[exported(openat, openat64)]
    fn openat(dirfd: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int
    = |process, kernel| {
        let kernel = |dirfd, path| kernel(dirfd, Text(path), flags, mode);
        open_at(process, kernel, dirfd, path, flags, mode_of(flags, mode))
    }
    fn openat2(dirfd: c_int, path: Text, how: *mut [u64; 3], size: usize) -> c_long
    = |process, _| {
        openat2::open(process, (dirfd, path), how, size)
    }
    fn creat(path: Text, mode: c_uint) -> c_int = |process, kernel| {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_at(process, |_, path| kernel(Text(path), mode), libc::AT_FDCWD, path, flags, mode)
    }
    #[exported(close, __close)]
    fn close(fd: c_int) -> c_int = |process, _| {
        if process.is_internal(fd) {
            return Err(Stop::Errno(Errno::BADF));
        }
        if process.close(fd)? { Ok(0) } else { Err(Stop::Kernel) }
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |process, kernel| {
        let known = (libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) as c_int;
        if first > last || flags & !known != 0 {
            return Err(Stop::Errno(Errno::INVAL));
        }
        // Our table belongs to the process, so the kernel's table must not be unshared either.
        let flags = flags & !(libc::CLOSE_RANGE_UNSHARE as c_int);
        Ok(close_numbers(process, first, last, flags, &kernel))
    }
}

// ---- copied and controlled

bodies! {
    fn dup(fd: c_int) -> c_int = |process, _| {
        ours(fd)?;
        fcntl::duplicate(process, fd, 0, false)
    }
    fn dup2(old: c_int, new: c_int) -> c_int = |process, _| {
        if old == new {
            let hidden = process.is_internal(old);
            return Err(if hidden { Stop::Errno(Errno::BADF) } else { left_to_kernel(process) });
        }
        fcntl::duplicate_to(process, old, new, DupFlags::empty())
    }
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = |process, _| {
        if old == new || flags & !libc::O_CLOEXEC != 0 {
            return Err(left_to_kernel(process));
        }
        fcntl::duplicate_to(process, old, new, DupFlags::from_bits_retain(flags as u32))
    }
    fn fcntl(
        fd: c_int, command: c_int, argument: usize,
    ) -> c_int = |process, _| {
        fcntl::control(process, ours(fd)?, fd, command, argument)
    }
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = |process, kernel| {
        if cache_segments::controls(request as u32) && fdtable::get(fd).is_none() {
            return Ok(cache_segments::marking(|| kernel(fd, request, argument)));
        }
        if let Some(desc) = fcntl::behind_loop_device(fd, request as u32, argument) {
            report::about(desc.member());
            return Err(Stop::Refused("loop-device-of-volume", Errno::INVAL));
        }
        let desc = ours(fd)?;
        let request = c_ulong::from(request as u32);
        match request {
            // The flag is the number's: the kernel keeps it.
            fcntl::FIOCLEX | fcntl::FIONCLEX => {
                fdtable::flag_changes(fd);
                Err(Stop::Kernel)
            }
            _ => fcntl::device_control(process, desc, request, argument),
        }
    }
    fn flock(fd: c_int, operation: c_int) -> c_int = |process, _| {
        let desc = ours(fd)?;
        if operation & LOCK_MAND != 0 {
            // Mandatory locks of old: the kernel ignores them.
            return DONE;
        }
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => LockKind::Read,
            libc::LOCK_EX => LockKind::Write,
            libc::LOCK_UN => LockKind::Unlock,
            _ => return Err(Stop::Errno(Errno::INVAL)),
        };
        let (_, flags) = process.fs.describe(desc)?;
        if kind != LockKind::Unlock && !flags.reads() && !flags.writes() {
            return Err(Stop::Errno(Errno::BADF));
        }
        process.fs.flock(desc, kind, operation & libc::LOCK_NB == 0)?;
        DONE
    }
}

const LOCK_MAND: c_int = 32;

/// What functions that announce such a call give.
fn left_to_kernel(process: &Process) -> Stop {
    let _lock = process.lock();
    cached_fd::announce();
    Stop::Kernel
}

// ---- local sockets

/// Makes the buffer's pages ready: all, or as many as there are bytes to be received.
fn ready_to_receive(socket: c_int, to: Bytes, bytes: usize, flags: c_int) -> Result<(), Errno> {
    if flags & WAITS_OTHERWISE == 0 {
        return page_faults::ready_for(Source::receive(socket), to.0, bytes);
    }
    page_faults::ready(to.0, bytes);
    Ok(())
}

type Len = Out<socklen_t>;

/// Makes the pages of an address ready that a call tells: what it has accepted or received by then
/// would be gone with it.
fn ready_for_address(address: *mut sockaddr, len: Len) {
    if page_faults::may_lack() && !len.is_null() {
        page_faults::ready(len.0.cast(), size_of::<socklen_t>());
        page_faults::ready(address.cast(), len.value().unwrap_or(0) as usize);
    }
}

bodies! {
    fn bind(socket: c_int, address: Address, len: socklen_t) -> c_int = |process, kernel| {
        let path = sockets::path_of(address, len).ok_or(Stop::Kernel)?;
        let bind = |real: &Real| kernel(socket, real.parts().0, real.parts().1);
        match paths::resolve_name(process, libc::AT_FDCWD, &path)? {
            Target::Kernel => Err(Stop::Kernel),
            Target::Elsewhere(path) => Ok(bind(&Real::new(path.as_bytes())?)),
            Target::Descriptor(_) => Err(Stop::Errno(Errno::ADDRINUSE)),
            // The socket is the mount's.
            Target::Volume(found) if process.volume_of(found.dir).mounted => Err(Stop::Kernel),
            Target::Volume(found) => sockets::bind_at(process, &found, &path, bind),
        }
    }
    fn connect(socket: c_int, address: Address, len: socklen_t) -> c_int
    = |process, kernel| {
        let real = sockets::destination(process, address, len)?.ok_or(Stop::Kernel)?;
        let (address, len) = real.parts();
        Ok(outside(|| kernel(socket, address, len)))
    }
    fn sendto(
        socket: c_int, from: Bytes, bytes: usize, flags: c_int, address: Address, len: socklen_t,
    ) -> isize = |process, kernel| {
        page_faults::ready(from.0, bytes);
        let real = sockets::destination(process, address, len)?.ok_or(Stop::Kernel)?;
        let (address, len) = real.parts();
        Ok(outside(|| kernel(socket, from, bytes, flags, address, len)))
    }
    fn getsockname(socket: c_int, address: *mut sockaddr, len: Len) -> c_int
    = |process, kernel| {
        Ok(told(process, (address, len), || kernel(socket, address, len) as isize)? as c_int)
    }
    fn getpeername(socket: c_int, address: *mut sockaddr, len: Len) -> c_int
    = |process, kernel| {
        Ok(told(process, (address, len), || kernel(socket, address, len) as isize)? as c_int)
    }
    fn accept(socket: c_int, address: *mut sockaddr, len: Len) -> c_int = |process, kernel| {
        ready_for_address(address, len);
        cached_fd::give_back();
        Ok(told(process, (address, len), || kernel(socket, address, len) as isize)? as c_int)
    }
    fn accept4(socket: c_int, address: *mut sockaddr, len: Len, flags: c_int) -> c_int
    = |process, kernel| {
        ready_for_address(address, len);
        cached_fd::give_back();
        Ok(told(process, (address, len), || kernel(socket, address, len, flags) as isize)? as c_int)
    }
    fn recvfrom(
        socket: c_int, to: Bytes, bytes: usize, flags: c_int, address: *mut sockaddr, len: Len,
    ) -> isize = |process, kernel| {
        ready_to_receive(socket, to, bytes, flags)?;
        ready_for_address(address, len);
        told(process, (address, len), || kernel(socket, to, bytes, flags, address, len))
    }
}

// ---- messages

/// With these flags the first bytes alone do not end the wait: all buffers are made ready.
const WAITS_OTHERWISE: c_int =
    libc::MSG_WAITALL | libc::MSG_DONTWAIT | libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// Makes the pages of all messages' buffers ready: of what is not there, a datagram would be lost.
fn ready_messages(list: *mut mmsghdr, count: c_uint) -> Result<(), Stop> {
    if page_faults::may_lack() {
        page_faults::ready(list.cast(), (count as usize).saturating_mul(size_of::<mmsghdr>()));
        for one in messages::listed(list, count)? {
            page_faults::ready_all(Out(one.msg_hdr.msg_iov), one.msg_hdr.msg_iovlen as c_int);
            ready_beside(&one.msg_hdr);
        }
    }
    Ok(())
}

/// The same of what a message has besides its buffers: an address, and control messages.
fn ready_beside(message: &msghdr) {
    page_faults::ready(message.msg_name, message.msg_namelen as usize);
    page_faults::ready(message.msg_control, message.msg_controllen);
}

bodies! {
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> isize
    = |process, kernel| {
        let given = Out(message.cast_mut()).value().map_err(|_| Stop::Kernel)?;
        page_faults::ready_all(Out(given.msg_iov), given.msg_iovlen as c_int);
        let own = messages::outgoing(process, &given)?.ok_or(Stop::Kernel)?;
        Ok(outside(|| kernel(socket, &raw const own.message, flags)))
    }
    fn sendmmsg(socket: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
    = |process, kernel| {
        ready_messages(list, count)?;
        messages::send_many(process, list, count, |own| kernel(socket, own, count, flags))
    }
    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> isize
    = |process, kernel| {
        let before = Out(message).value().map_err(|_| Stop::Kernel)?;
        let (list, count) = (Out(before.msg_iov), before.msg_iovlen as c_int);
        let is_wrong = !before.msg_name.is_null() && before.msg_namelen.cast_signed() < 0;
        if flags & WAITS_OTHERWISE == 0 && !is_wrong {
            page_faults::ready_all_for(Source::receive(socket), list, count)?;
        } else {
            page_faults::ready_all(list, count);
        }
        page_faults::ready(message.cast(), size_of::<msghdr>());
        ready_beside(&before);
        cached_fd::give_back();
        let got = outside(|| kernel(socket, message, flags));
        if got >= 0 {
            messages::arrived(process, message, before.msg_namelen);
        }
        Ok(got)
    }
    fn recvmmsg(
        socket: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int,
        timeout: *mut libc::timespec,
    ) -> c_int = |process, kernel| {
        ready_messages(list, count)?;
        let before = messages::listed(list, count)?;
        cached_fd::give_back();
        let got = outside(|| kernel(socket, list, count, flags, timeout));
        for (index, one) in before.iter().enumerate().take(usize::try_from(got).unwrap_or(0)) {
            // The header comes first.
            let message = list.wrapping_add(index).cast::<msghdr>();
            messages::arrived(process, message, one.msg_hdr.msg_namelen);
        }
        Ok(got)
    }
    /// A number of another process: in hand-over form it becomes ours, a placeholder names nothing.
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int = |process, kernel| {
        cached_fd::give_back();
        let fd = kernel(pidfd, target, flags);
        if fd < 0 {
            return Ok(fd);
        }
        match handover::look(process, fd) {
            Received::Named(name) => {
                handover::adopt(process, fd, name);
                Ok(fd)
            }
            Received::Foreign => Ok(fd),
            Received::Placeholder => {
                fdtable::close_number(fd);
                Err(Stop::Refused("pidfd-getfd-of-volume", Errno::OPNOTSUPP))
            }
        }
    }
}
