//! How a process of this machine reaches its node: packets over a socket in the store.
//!
//! A process that attaches a volume says so, and hands over its userfaultfd and the list of its
//! mappings. The socket stays open: its end tells the node that the process has gone, and the
//! process that the node has, to which it hands them over anew when there is one again.

use crate::control::node_messages;
use crate::control::preferences::Preferences;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{Standing, Store};
use os::InternalFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes of a packet, at most.
const PACKET: usize = node_messages::TEXT_MAX;
/// Descriptors of a packet, at most.
const DESCRIPTORS: usize = 2;

/// What a process says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalRequest {
    /// It has this volume attached, as this slot and life of the node table. With two descriptors.
    Attached {
        /// The volume's name.
        volume: String,
        /// Its slot.
        slot: u16,
        /// Low 12 bits of its life.
        life: u16,
        /// How pages are to leave.
        #[serde(default)]
        wish: Preferences,
        /// The layout of the node table that it knows.
        #[serde(default)]
        layout: u64,
    },
    /// A node is to stand so in the domain.
    Mark {
        /// Its number.
        node: u16,
        /// How it is to stand.
        standing: Standing,
    },
    /// A node is to be the domain's first.
    First {
        /// Its number.
        to: u16,
        /// Also without a majority.
        force: bool,
    },
    /// The program that says so is to use a volume: it asks again until it may, and is let in as
    /// long as the connection stands.
    Want {
        /// Its name.
        volume: String,
        /// It goes ahead of programs of other nodes that have waited for less than so many ms.
        hold: u64,
    },
    /// A volume of this node's is to be removed.
    Remove {
        /// Its name.
        volume: String,
    },
    /// A volume of this node's is to get another host.
    Move {
        /// Its name.
        volume: String,
        /// That node.
        to: u16,
    },
    /// A volume of this node's is to have so many pages.
    Grow {
        /// Its name.
        volume: String,
        /// Pages of the region.
        pages: u64,
    },
    /// What has become of the order that concerns this volume.
    Ordered {
        /// Its name.
        volume: String,
    },
    /// Which node is the host of a volume?
    Where {
        /// Its name.
        volume: String,
    },
    /// It wants to know how nodes talk.
    Wire,
    /// It wants to know how the domain is.
    Status,
}

/// What the node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalReply {
    /// It is done.
    Done,
    /// The volume is another's still, or others wait for it.
    Waits(crate::control::status::Waits),
    /// The volume is removed. These nodes have not dropped its pages yet: they are told when they
    /// answer.
    Removed {
        /// Their numbers.
        waits_for: Vec<u16>,
    },
    /// By TLS with this key, or plain. Only processes of the node's user reach the socket, and they
    /// could read the key's file, too.
    Wire {
        /// What the key file has.
        key: Option<String>,
    },
    /// How far an order is. `None`: there was none since the node began.
    Ordered(Option<JobProgress>),
    /// The host of a volume, and where it is reached. `None`: no node that answers is.
    Host(Option<(u16, std::net::SocketAddr)>),
    /// How the domain is.
    Status(crate::control::status::Status),
    /// It was refused.
    Refused {
        /// What was found, and what to do.
        text: String,
    },
}

/// How far an order is that takes a while.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobProgress {
    /// What is being done.
    pub what: String,
    /// So much of it is done.
    pub done: u64,
    /// Of so much.
    pub total: u64,
    /// It is over.
    pub over: bool,
    /// It has failed.
    pub failed: Option<DomainError>,
}

/// A socket of packets to the node, or to a process.
#[derive(Debug)]
pub struct Local(InternalFd);

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Where processes reach the node of a store.
pub fn listen(store: &Store) -> Result<OwnedFd, DomainError> {
    let path = store.socket();
    let failed =
        |errno: Errno| DomainError::io("listen for programs", path.display(), &errno.into());
    match rustix::fs::unlink(&path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let listener = socket().map_err(failed)?;
    let address = SocketAddrUnix::new(&path).map_err(|errno| {
        let advice = "give a store with a shorter path: a socket's may have 107 bytes";
        DomainError::new("listen for programs", format!("{}: {errno}", path.display()), advice)
    })?;
    rustix::net::bind(&listener, &address).map_err(failed)?;
    rustix::net::listen(&listener, 128).map_err(failed)?;
    Ok(listener)
}

/// The next process.
pub fn accept(listener: impl AsFd) -> Result<Local, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).map(|fd| Local(InternalFd::new(fd)))
}

impl Local {
    /// Reaches the node of a store.
    pub fn connect(store: &Store) -> Result<Self, Errno> {
        let socket = socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(store.socket())?)?;
        Ok(Self(InternalFd::new(socket)))
    }

    /// Sends a packet, with descriptors.
    pub fn send<T: Serialize>(
        &self,
        said: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let text = node_messages::text(said);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(Errno::INVAL);
        }
        let parts = [IoSlice::new(text.as_bytes())];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    /// The next packet, and its descriptors. `None`: the other side has gone.
    pub fn receive<T: for<'a> Deserialize<'a>>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
        let mut text = vec![0; PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut text)];
            rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let text = std::str::from_utf8(&text[..received.bytes]).map_err(|_| Errno::BADMSG)?;
        let said = node_messages::parse(text).map_err(|_| Errno::BADMSG)?;
        Ok(Some((said, descriptors)))
    }

    /// Asks the node, and waits for its answer.
    pub fn ask(
        &self,
        said: &LocalRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<LocalReply, Errno> {
        self.send(said, descriptors)?;
        self.receive()?.map(|answer| answer.0).ok_or(Errno::CONNRESET)
    }

    /// The process at the other end when it connected; 0: it cannot be told.
    pub fn pid(&self) -> i32 {
        let other = rustix::net::sockopt::socket_peercred(&self.0);
        other.map_or(0, |other| other.pid.as_raw_nonzero().get())
    }

    /// An answer that takes longer than this is `EAGAIN`.
    pub fn set_patience(&self, patience: Duration) -> Result<(), Errno> {
        let which = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&self.0, which, Some(patience))
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
