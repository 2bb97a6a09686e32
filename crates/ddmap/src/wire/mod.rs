//! How messages go over sockets.
//!
//! | file | what it answers |
//! |---|---|
//! | [`frame`] | what a message is as bytes |
//! | [`link`] | how a request is sent and its answer waited for |
//! | [`server`] | how many connections are answered by few threads |
//! | [`sessions`] | which life of a peer counts |
//! | [`key`], [`tls`] | who may talk at all |
//!
//! All system calls that move bytes are made directly (`rustix`), never by libc: a link lives in
//! the preload library, too, which interposes libc. Sockets are used without blocking, whatever
//! their own flags say.

mod buffer;
mod channel;
pub mod frame;
pub mod key;
pub mod link;
pub mod server;
pub mod sessions;
pub mod tls;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use crate::protocol::NodeId;
use channel::{Channel, Plain};
use frame::Kind;
use os::InternalFd;

/// How long a side polls before it blocks, in ns: waking an idle virtual CPU costs 20 to 30 us.
const SPIN_NS: u64 = 50_000;

/// The volume of a connection between nodes that is of no volume.
pub const NO_VOLUME: [u8; 16] = [0; 16];

/// What a connection is bound to: the frames of both sides say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The protocol's version, which both sides speak.
    pub version: u16,
    /// The volume's UUID.
    pub volume: [u8; 16],
    /// Its term.
    pub term: u32,
    /// The life of the side that connected.
    pub session: u32,
}

/// Who connects, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The node.
    pub node: NodeId,
    /// Which of its processes: any number that stays the same over the process's lives.
    pub process: u64,
    /// Which of the process's lives: larger than those before.
    pub session: u32,
    /// The volume's UUID.
    pub volume: [u8; 16],
    /// Its term.
    pub term: u32,
    /// The store of the node that is meant. 0: whichever is at the address.
    pub store: u64,
}

impl Hello {
    /// What its connection is bound to, in a version of the protocol.
    pub fn bound(&self, version: u16) -> Bound {
        Bound { version, volume: self.volume, term: self.term, session: self.session }
    }
}

/// Why a frame is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bad {
    /// It ends before it should.
    Ends,
    /// It does not begin as frames do.
    Magic([u8; 4]),
    /// The header was changed on its way.
    HeaderSum,
    /// The other side speaks a version that this one does not, or not the one agreed upon.
    Version {
        /// Of the frame.
        theirs: u16,
        /// Of this side, or agreed upon.
        ours: u16,
    },
    /// A kind that this build does not know.
    Kind(u8),
    /// More than a frame of this kind may have, or not as much as its entries ask for.
    Length {
        /// Of the frame.
        kind: Kind,
        /// Entries.
        count: u32,
        /// Bytes behind the header.
        body: u32,
    },
    /// The body was changed on its way.
    BodySum(Kind),
    /// This page was changed on its way. All else is right: it can be asked for again.
    PageSum {
        /// Its number.
        page: u64,
    },
    /// A field has a value that nobody sends.
    Field(&'static str),
    /// Another volume than the connection's.
    Volume {
        /// Of the frame.
        theirs: [u8; 16],
        /// Of the connection.
        ours: [u8; 16],
    },
    /// Another term.
    Term {
        /// Of the frame.
        theirs: u32,
        /// Of the connection.
        ours: u32,
    },
    /// Another session.
    Session {
        /// Of the frame.
        theirs: u32,
        /// Of the connection.
        ours: u32,
    },
    /// The peer has begun a later session meanwhile.
    Older {
        /// Of the connection.
        session: u32,
    },
    /// A request that came already, or an answer that nobody asked for.
    Id {
        /// Of the frame.
        found: u64,
        /// The one expected.
        wanted: u64,
    },
    /// A kind that has no place here.
    Unexpected(Kind),
}

impl fmt::Display for Bad {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends => write!(out, "the connection ended in the middle of a frame"),
            Self::Magic(found) => write!(
                out,
                "a frame begins with {found:02x?}, not with {:02x?}: no solera node is there, or \
                 one side uses TLS and the other does not (--wire)",
                frame::MAGIC
            ),
            Self::HeaderSum => write!(out, "a frame's header does not match its sum"),
            Self::Version { theirs, ours } => write!(
                out,
                "the other side speaks version {theirs} of the protocol, this one {ours}: only \
                 neighbouring versions talk; update the older node"
            ),
            Self::Kind(found) => write!(out, "a frame is of kind {found}, which is unknown here"),
            Self::Length { kind, count, body } => write!(
                out,
                "a frame {kind:?} with {count} entries and {body} bytes is beyond its limits"
            ),
            Self::BodySum(kind) => write!(out, "the entries of a frame {kind:?} fail their sum"),
            Self::PageSum { page } => write!(out, "the bytes of page {page} fail their sum"),
            Self::Field(what) => write!(out, "a frame is wrong in {what}"),
            Self::Volume { theirs, ours } => {
                write!(out, "a frame is of volume {}, its connection of {}", Hex(theirs), Hex(ours))
            }
            Self::Term { theirs, ours } => {
                write!(out, "a frame is of term {theirs}, its connection of term {ours}")
            }
            Self::Session { theirs, ours } => {
                write!(out, "a frame is of session {theirs}, its connection of session {ours}")
            }
            Self::Older { session } => write!(
                out,
                "session {session} has ended: the same process of that node began a later one"
            ),
            Self::Id { found, wanted } => write!(
                out,
                "a frame has number {found}, {wanted} is next: it came already, or nobody asked"
            ),
            Self::Unexpected(kind) => write!(out, "a frame {kind:?} has no place here"),
        }
    }
}

impl std::error::Error for Bad {}

struct Hex<'a>(&'a [u8; 16]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// What goes over the network.
#[derive(Clone, Debug)]
pub enum Wire {
    /// Frames as they are: between private addresses only.
    Plain,
    /// Frames in TLS 1.3, among those who have the domain's key.
    Tls(tls::Tls),
}

impl Wire {
    /// Whether this address may be talked to in this way.
    pub fn check_address(&self, address: IpAddr) -> io::Result<()> {
        match self {
            Self::Plain if !is_private(address) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "--wire plain is for private networks, and {address} is no private address: \
                     give a private one, or use --wire tls"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The way in which the holder of a key file's text talks; without one: plain.
    pub fn of_key(text: Option<&str>) -> io::Result<Self> {
        let tls = |text| key::Key::of_text(text).and_then(|key| tls::Tls::new(&key));
        text.map_or(Ok(Self::Plain), |text| tls(text).map(Self::Tls))
    }

    /// The key file's text.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Plain => None,
            Self::Tls(tls) => Some(tls.text()),
        }
    }

    /// The end of the side that connected.
    fn asker(&self, fd: OwnedFd) -> io::Result<Box<dyn Channel>> {
        match self {
            // Out of the way of a program in which this is a library.
            Self::Plain => Ok(Box::new(Plain(InternalFd::new(fd)))),
            Self::Tls(tls) => Ok(Box::new(tls.asker(fd)?)),
        }
    }

    /// The end of the side that listens.
    fn answerer(&self, fd: OwnedFd) -> io::Result<Box<dyn Channel>> {
        match self {
            Self::Plain => Ok(Box::new(Plain(InternalFd::in_place(fd)))),
            Self::Tls(tls) => Ok(Box::new(tls.answerer(fd)?)),
        }
    }
}

/// Whether an address is no public one: of this machine, of a private network, or of the link.
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(mapped) => is_private(IpAddr::V4(mapped)),
            None => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local(),
        },
    }
}

/// The monotonic clock, in ns.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// So many ns as the kernel takes them.
fn timespec(ns: u64) -> rustix::time::Timespec {
    rustix::time::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}
