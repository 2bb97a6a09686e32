//! The asker's side of a connection: one request, its answer, no thread.
//!
//! A caller that may have to give up (a signal is pending) sends with [`Link::send`] and waits
//! with [`Link::poll_answer`], as long as it likes at a time. Whoever sends anew before the answer
//! is there has given it up: it is dropped when it comes.
//!
//! Nothing is allocated for a request but what the answer is put in; and nothing at all by those
//! who look at it where it lies ([`Link::poll_frame`]).
//!
//! # Invariants
//!
//! 1. Answers come in the order of the requests, each once. Any other one closes the link.
//! 2. A link that is closed says why, each time.
//! 3. A page that arrived damaged leaves the link open: it is asked for again, [`TRIES`] times in
//!    all; then the link itself is taken for broken.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use os::interrupt::system_call;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

use super::buffer::Buffer;
use super::channel::{self, Channel};
use super::frame::{self, AnswerFrame, Header, Kind};
use super::{Bad, Bound, Hello, SPIN_NS, Wire, now_ns};
use crate::protocol::Version;
use crate::protocol::messages::{Answer, Request};

/// How often a request is sent whose pages arrive damaged.
pub const TRIES: u32 = 3;

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkError {
    /// The link is closed, for this reason.
    Closed(String),
    /// A page arrived damaged. The link is open: the request may be sent again.
    Damaged {
        /// Its number.
        page: u64,
    },
    /// Nothing came in time. The link is open; what comes late is dropped by the next request.
    Late,
    /// The request is beyond a frame's limits. Nothing was sent.
    TooMuch(Bad),
}

impl fmt::Display for LinkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) => write!(out, "the link is closed: {reason}"),
            Self::Damaged { page } => write!(out, "page {page} arrived damaged"),
            Self::Late => write!(out, "no answer came in time"),
            Self::TooMuch(bad) => write!(out, "the request was not sent: {bad}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// A wait for a connection looks that often whether it is to go on.
const LOOK_NS: u64 = 10_000_000;

/// A connection to a holder.
pub struct Link {
    channel: Box<dyn Channel>,
    bound: Bound,
    /// The protocol's version, once both sides have found out.
    agreed: Option<u16>,
    /// The next request's number, and that of the oldest one that is unanswered.
    next: u64,
    oldest: u64,
    /// The newest request's kind, and its pages.
    kind: Kind,
    asked: Vec<(u64, Version)>,
    head: Vec<u8>,
    received: Buffer,
    damaged: u32,
    closed: Option<String>,
    /// How long it polls for an answer before it blocks.
    spin_ns: u64,
}

impl Link {
    /// Connects to a node, and says hello. `timeout` is for all of it.
    pub fn connect(
        address: SocketAddr,
        timeout: Duration,
        hello: &Hello,
        wire: &Wire,
    ) -> io::Result<Self> {
        Self::connect_while(address, timeout, hello, wire, &|| true)
    }

    /// The same, as long as `goes_on` says so, which is asked every 10 ms.
    pub fn connect_while(
        address: SocketAddr,
        timeout: Duration,
        hello: &Hello,
        wire: &Wire,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        wire.check_address(address.ip())?;
        let end = deadline(timeout);
        let fd = connected(address, end, goes_on).map_err(|error| {
            let kind = error.kind();
            io::Error::new(kind, format!("connect to {address}: {error}; is a node up there?"))
        })?;
        let channel = wire.asker(fd)?;
        Self::greeted(channel, hello, end, goes_on)
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    }

    /// Says hello over a stream socket that is connected.
    #[cfg(test)]
    pub fn from_fd(fd: OwnedFd, hello: &Hello, timeout: Duration) -> io::Result<Self> {
        let channel = channel::Plain(os::InternalFd::new(fd));
        Self::greeted(Box::new(channel), hello, deadline(timeout), &|| true)
    }

    fn new(channel: Box<dyn Channel>, bound: Bound, next: u64) -> Self {
        Self {
            channel,
            bound,
            agreed: None,
            next,
            oldest: next,
            kind: Kind::Hello,
            asked: Vec::new(),
            head: Vec::new(),
            received: Buffer::new(),
            damaged: 0,
            closed: None,
            spin_ns: SPIN_NS,
        }
    }

    fn greeted(
        channel: Box<dyn Channel>,
        hello: &Hello,
        end: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let mut link = Self::new(channel, hello.bound(frame::VERSION), 1);
        frame::encode_hello(&mut link.head, frame::VERSION, link.next, hello);
        let mut outcome = link.push(&[], end).map(|()| None);
        while matches!(outcome, Ok(None)) && now_ns() < end && goes_on() {
            outcome = link.arrive(end.min(now_ns() + LOOK_NS));
        }
        let (header, body) = match outcome {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                let text = "the node did not answer the hello in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()));
            }
        };
        let frame = AnswerFrame::parse(&header, link.received.body(body), &[]).map_err(invalid)?;
        match (frame.kind(), frame.answer()) {
            (Kind::Welcome, _) => {
                let theirs = header.version();
                if theirs > frame::VERSION {
                    return Err(invalid(Bad::Version { theirs, ours: frame::VERSION }));
                }
                link.bound.version = theirs;
                link.agreed = Some(theirs);
                header.check(&link.bound).map_err(invalid)?;
                Ok(link)
            }
            (_, Some(Answer::Refused { errno, text })) => {
                let kind = io::Error::from_raw_os_error(i32::from(errno)).kind();
                Err(io::Error::new(kind, format!("the node refused the connection: {text}")))
            }
            (kind, _) => Err(invalid(Bad::Unexpected(kind))),
        }
    }

    /// From here on it blocks at once where an answer is not there: nobody waits for this side.
    pub fn block(&mut self) {
        self.spin_ns = 0;
    }

    /// The round trip in us, as TCP measures it. `None`: the socket is none of TCP.
    pub fn rtt_us(&self) -> Option<u32> {
        // SAFETY: a structure of numbers.
        let mut about: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let fd = self.channel.fd().as_raw_fd() as usize;
        let [level, name] = [libc::IPPROTO_TCP as usize, libc::TCP_INFO as usize];
        let (to, length) = ((&raw mut about) as usize, (&raw mut length) as usize);
        // SAFETY: the kernel writes as much as there is room for, and says how much.
        let told = unsafe { system_call(libc::SYS_getsockopt, [fd, level, name, to, length, 0]) };
        told.is_ok().then_some(about.tcpi_rtt)
    }

    /// Why it is closed, if it is.
    #[cfg(test)]
    pub fn closed(&self) -> Option<&str> {
        self.closed.as_deref()
    }

    /// Sends a request and waits for its answer. A page that arrives damaged is asked for again.
    pub fn ask(&mut self, request: &Request, patience: Duration) -> Result<Answer, LinkError> {
        let end = deadline(patience);
        loop {
            self.send(request, left(end))?;
            let answer = loop {
                match self.poll_answer(left(end)) {
                    Ok(None) if now_ns() < end => {}
                    other => break other,
                }
            };
            match answer {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(LinkError::Late),
                Err(LinkError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request. An answer that is still under way is given up. If the socket does not take
    /// the request within `patience`, the link is closed.
    pub fn send(&mut self, request: &Request, patience: Duration) -> Result<(), LinkError> {
        self.check_open()?;
        let bytes = frame::encode_request(&mut self.head, &self.bound, self.next, request)
            .map_err(LinkError::TooMuch)?;
        self.kind = Kind::of_request(request);
        request.names(&mut self.asked);
        self.push(bytes, deadline(patience))
    }

    /// The answer to the last request, if it comes within `wait`, or before a signal. `None`: not
    /// yet.
    pub fn poll_answer(&mut self, wait: Duration) -> Result<Option<Answer>, LinkError> {
        Ok(self.poll_frame(wait)?.and_then(|frame| frame.answer()))
    }

    /// The same as it lies in the link's buffer: its pages need not be copied.
    pub fn poll_frame(&mut self, wait: Duration) -> Result<Option<AnswerFrame<'_>>, LinkError> {
        self.check_open()?;
        let Some((header, body)) = self.arrive(deadline(wait))? else {
            return Ok(None);
        };
        // Looked at twice: what is returned borrows the link, what closes it must not.
        let bad = match AnswerFrame::parse(&header, self.received.body(body.clone()), &self.asked) {
            Ok(frame) => match frame.kind() {
                kind if !kind.answers(self.kind) => Some(Bad::Unexpected(kind)),
                Kind::Again => Some(Bad::PageSum { page: frame.page() }),
                _ => None,
            },
            Err(bad) => Some(bad),
        };
        match bad {
            None => {
                self.damaged = 0;
                Ok(Some(AnswerFrame::of_checked(&header, self.received.body(body))))
            }
            Some(Bad::PageSum { page }) => Err(self.damage(page)),
            Some(bad) => Err(self.close(bad.to_string())),
        }
    }

    fn damage(&mut self, page: u64) -> LinkError {
        self.damaged += 1;
        if self.damaged < TRIES {
            return LinkError::Damaged { page };
        }
        self.close(format!("page {page} arrived damaged {TRIES} times; check the network"))
    }

    /// Sends the frame that `head` and these bytes are.
    fn push(&mut self, bytes: &[u8], end: u64) -> Result<(), LinkError> {
        self.next += 1;
        let mut sent = 0;
        let total = self.head.len() + bytes.len();
        loop {
            let head = &self.head[sent.min(self.head.len())..];
            let rest = &bytes[sent.saturating_sub(self.head.len())..];
            let outcome = if sent < total {
                self.channel.send([head, rest])
            } else {
                match self.channel.flush() {
                    Ok(true) => return Ok(()),
                    Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(error) => Err(error),
                }
            };
            match outcome {
                Ok(bytes) => sent += bytes,
                Err(error) if channel::would_block(&error) => self.wait_to_send(end)?,
                Err(error) => return Err(self.close(error.to_string())),
            }
        }
    }

    /// Waits until the socket takes more. Meanwhile answers that were given up are dropped: the
    /// other side may be waiting for that.
    fn wait_to_send(&mut self, end: u64) -> Result<(), LinkError> {
        let now = now_ns();
        if now >= end {
            let late = "the socket did not take a request in time; the other side may hang";
            return Err(self.close(late.into()));
        }
        let flags = PollFlags::IN | PollFlags::OUT;
        if let Err(error) = channel::wait(self.channel.fd(), flags, end - now) {
            return Err(self.close(error.to_string()));
        }
        match self.arrive(0)? {
            None => Ok(()),
            Some((header, _)) => {
                Err(self.close(Bad::Id { found: header.id(), wanted: self.oldest }.to_string()))
            }
        }
    }

    /// The frame that answers the newest request, if it comes until then.
    fn arrive(&mut self, end: u64) -> Result<Option<(Header, Range<usize>)>, LinkError> {
        let mut spin_end = None;
        loop {
            match self.take() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(bad) => return Err(self.close(bad.to_string())),
            }
            match self.channel.receive(self.received.room()) {
                Ok(0) => return Err(self.close_ended()),
                Ok(bytes) => {
                    self.received.came(bytes);
                    continue;
                }
                Err(error) if channel::would_block(&error) => {}
                Err(error) => return Err(self.close(error.to_string())),
            }
            let now = now_ns();
            if now >= end {
                return Ok(None);
            }
            if now < *spin_end.get_or_insert(now + self.spin_ns) {
                rustix::thread::sched_yield();
                continue;
            }
            let unsent = !self.channel.flush().unwrap_or(true);
            let flags = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            match channel::wait(self.channel.fd(), flags, end - now) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(self.close(error.to_string())),
            }
        }
    }

    /// Takes whole frames from what has arrived, up to the newest request's answer.
    fn take(&mut self) -> Result<Option<(Header, Range<usize>)>, Bad> {
        while let Some(header) = self.received.header(self.agreed)? {
            if self.agreed.is_some() {
                header.check(&self.bound)?;
            }
            if header.kind().is_request() {
                return Err(Bad::Unexpected(header.kind()));
            }
            if self.oldest == self.next || header.id() != self.oldest {
                return Err(Bad::Id { found: header.id(), wanted: self.oldest });
            }
            let Some(body) = self.received.take(&header) else { return Ok(None) };
            self.oldest += 1;
            if self.oldest == self.next {
                return Ok(Some((header, body)));
            }
        }
        Ok(None)
    }

    fn check_open(&self) -> Result<(), LinkError> {
        match &self.closed {
            Some(reason) => Err(LinkError::Closed(reason.clone())),
            None => Ok(()),
        }
    }

    fn close_ended(&mut self) -> LinkError {
        let partly = if self.agreed.is_none() {
            " ahead of its hello; it has reported why (another --wire, or another key file)"
        } else if self.received.is_empty() {
            ""
        } else {
            " in the middle of an answer"
        };
        self.close(format!("the other side has ended the connection{partly}"))
    }

    fn close(&mut self, reason: String) -> LinkError {
        // Of a socket that is no more connected: nothing is left to do.
        let _ = rustix::net::shutdown(self.channel.fd(), Shutdown::Both);
        self.closed = Some(reason.clone());
        LinkError::Closed(reason)
    }
}

fn invalid(bad: Bad) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, bad)
}

fn deadline(wait: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

fn left(end: u64) -> Duration {
    Duration::from_nanos(end.saturating_sub(now_ns()))
}

/// A TCP connection without delay of small frames.
fn connected(address: SocketAddr, end: u64, goes_on: &dyn Fn() -> bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) => return Ok(fd),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    loop {
        let now = now_ns();
        if now >= end || !goes_on() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        channel::wait(fd.as_fd(), PollFlags::OUT, (end - now).min(LOOK_NS))?;
        sockopt::socket_error(&fd)??;
        if rustix::net::getpeername(&fd).is_ok() {
            return Ok(fd);
        }
    }
}
