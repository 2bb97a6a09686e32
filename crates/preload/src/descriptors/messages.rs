//! Messages of sockets: `sendmsg`, `recvmsg` and their kin. Descriptors of ours that a message
//! carries travel in hand-over form (`handover.rs`), names are the program's own (`sockets.rs`).
//!
//! A copy of the message is sent, whose control data names descriptors made for it. They are closed
//! when the call returns: from then on the message itself keeps the descriptions. A descriptor that
//! arrives in hand-over form becomes a number of ours; a process without this library just holds
//! it, and may pass it on.
//!
//! The calls may wait: handlers of signals that arrive meanwhile run as the program's own. No locks
//! are held across the system call.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{cmsghdr, mmsghdr, msghdr};
use vfs::Errno;

use crate::descriptors::handover::{self, Received};
use crate::descriptors::sockets::{self, Real};
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::Process;
use crate::entry::{Served, Stop, outside};

/// Longest control data that the kernel takes (its `optmem_max` is far below by default).
const CONTROL_BYTES_MAX: usize = 1 << 20;

/// A descriptor's number, which may stand anywhere.
type Number = [u8; size_of::<c_int>()];

/// Calls `each` for every descriptor number in a message's control data.
///
/// # Safety
///
/// `message` points to a message whose control data may be read up to its length.
unsafe fn each_number(message: *const msghdr, each: &mut dyn FnMut(*mut Number)) {
    // SAFETY: by the contract; the macros stay inside the control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let end = (*message).msg_control as usize + (*message).msg_controllen;
            let room = end.saturating_sub(libc::CMSG_DATA(header) as usize);
            let bytes = ((*header).cmsg_len).saturating_sub(libc::CMSG_LEN(0) as usize).min(room);
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let list = libc::CMSG_DATA(header).cast::<Number>();
                (0..bytes / size_of::<Number>()).for_each(|index| each(list.add(index)));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// A message as the kernel shall see it, and what must live as long.
pub struct Outgoing {
    pub message: msghdr,
    /// Control data (moving the vector does not move it), address, descriptors.
    _kept: (Vec<u64>, Option<Box<Real>>, Vec<OwnedFd>),
}

/// The message to send instead of the program's; `None`: it may go as it is.
pub fn outgoing(process: &Process, message: &msghdr) -> Result<Option<Outgoing>, Stop> {
    let address = sockets::destination(process, message.msg_name.cast(), message.msg_namelen)?;
    let address = address.map(Box::new);
    let mut handed = Vec::new();
    let mut control = Vec::new();
    let mut own = *message;
    if !own.msg_control.is_null() && (1..=CONTROL_BYTES_MAX).contains(&own.msg_controllen) {
        control = copied(message)?;
        own.msg_control = control.as_mut_ptr().cast();
        let mut result = Ok(());
        let mut hand_over = |at: *mut Number| {
            // SAFETY: inside the copy.
            let fd = c_int::from_ne_bytes(unsafe { at.read() });
            let Some(desc) = fdtable::get(fd) else { return };
            match handover::form(process, desc) {
                Ok(form) => {
                    // SAFETY: as above.
                    unsafe { at.write(form.as_raw_fd().to_ne_bytes()) };
                    handed.push(form);
                }
                Err(errno) => result = Err(errno),
            }
        };
        // SAFETY: a copy of our own.
        unsafe { each_number(&raw const own, &mut hand_over) };
        result?;
    }
    if handed.is_empty() {
        own.msg_control = message.msg_control;
        if address.is_none() {
            return Ok(None);
        }
    }
    if let Some(real) = &address {
        let (name, len) = real.parts();
        (own.msg_name, own.msg_namelen) = (name.cast_mut().cast(), len);
    }
    Ok(Some(Outgoing { message: own, _kept: (control, address, handed) }))
}

/// The headers of a list of messages; a bad address is the kernel's to refuse.
pub fn listed(list: *mut mmsghdr, count: c_uint) -> Result<Vec<mmsghdr>, Stop> {
    let count = (count as usize).min(libc::UIO_MAXIOV as usize);
    Out(list).array(count).map_err(|_| Stop::Kernel)
}

/// A copy of a message's control data, aligned for its headers.
fn copied(message: &msghdr) -> Result<Vec<u64>, Errno> {
    let mut bytes = vec![0_u8; message.msg_controllen.next_multiple_of(size_of::<u64>())];
    let source = Bytes(message.msg_control).source(message.msg_controllen);
    source.read(&mut bytes[..message.msg_controllen])?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|&word| u64::from_ne_bytes(word)).collect())
}

/// Takes in an arrived message: descriptors in hand-over form become ours, the sender's address the
/// program's own name. `room`: for the name, as the program had said.
pub fn arrived(process: &Process, message: *mut msghdr, room: libc::socklen_t) {
    // SAFETY: the kernel has just filled it in.
    unsafe {
        if (*message).msg_controllen >= size_of::<cmsghdr>() {
            each_number(message, &mut |at| {
                let fd = c_int::from_ne_bytes(at.read());
                cached_fd::given(fd);
                if let Received::Named(name) = handover::look(process, fd) {
                    handover::adopt(process, fd, name);
                }
            });
        }
        if !(*message).msg_name.is_null() {
            let len = Out(&raw mut (*message).msg_namelen);
            sockets::show(process, (*message).msg_name.cast(), len, Some(room));
        }
    }
}

/// Sends many messages: those that need it are replaced by copies.
pub fn send_many(
    process: &Process,
    list: *mut mmsghdr,
    count: c_uint,
    kernel: impl Fn(*mut mmsghdr) -> c_int,
) -> Served<c_int> {
    let many = listed(list, count)?;
    let mut own = Vec::with_capacity(many.len());
    let mut copies = Vec::new();
    for one in &many {
        let mut one = *one;
        if let Some(copy) = outgoing(process, &one.msg_hdr)? {
            one.msg_hdr = copy.message;
            copies.push(copy);
        }
        own.push(one);
    }
    if copies.is_empty() {
        return Err(Stop::Kernel);
    }
    let sent = outside(|| kernel(own.as_mut_ptr()));
    for (index, one) in own.iter().enumerate().take(usize::try_from(sent).unwrap_or(0)) {
        Out(list.wrapping_add(index)).put(mmsghdr { msg_hdr: many[index].msg_hdr, ..*one })?;
    }
    Ok(sent)
}
