//! What carries frames: a socket as it is, or with TLS over it (`tls`).
//!
//! Nothing blocks: what cannot go on says [`io::ErrorKind::WouldBlock`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use os::InternalFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::timespec;

/// One end of a connection.
pub(super) trait Channel: Send {
    /// The socket, to wait for.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Some bytes that have come; 0: no more will.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Takes some of the bytes, in this order, to send them: how many.
    fn send(&mut self, parts: [&[u8]; 2]) -> io::Result<usize>;

    /// Sends what was taken; whether all of it is sent.
    fn flush(&mut self) -> io::Result<bool>;

    /// Whether bytes have come that the socket has no more.
    fn is_holding(&self) -> bool;
}

/// A socket as it is.
pub(super) struct Plain(pub(super) InternalFd);

impl Channel for Plain {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(receive(self.0.as_fd(), into)?)
    }

    fn send(&mut self, parts: [&[u8]; 2]) -> io::Result<usize> {
        Ok(send(self.0.as_fd(), &parts.map(io::IoSlice::new))?)
    }

    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn is_holding(&self) -> bool {
        false
    }
}

/// Receives what there is.
pub(super) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| recv(fd, &mut *into, RecvFlags::DONTWAIT)).map(|(_, bytes)| bytes)
}

/// Sends what the socket takes, without SIGPIPE.
pub(super) fn send(fd: BorrowedFd<'_>, parts: &[io::IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(fd, parts, &mut SendAncillaryBuffer::default(), flags))
}

/// Waits until the socket is ready, so many ns at most. `false`: a signal came.
pub(super) fn wait(fd: BorrowedFd<'_>, flags: PollFlags, ns: u64) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timespec(ns))) {
        Ok(_) => Ok(true),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether nothing is wrong but that one must wait.
pub(super) fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
