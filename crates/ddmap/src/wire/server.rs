//! The answering side: many connections, at most [`THREADS`] threads.
//!
//! Each connection belongs to one thread, which receives a request, has it served, and sends the
//! answer whole. The first thread also accepts. A thread that has served a request polls for a
//! while before it blocks, so that a busy asker wakes nobody.
//!
//! # Invariants
//!
//! 1. A connection's first frame is a hello. What follows is of its volume, term and session, and
//!    numbered without gap; anything else closes the connection, with a reason.
//! 2. While an answer does not go out, no request of its connection is taken.
//! 3. No request of an earlier session is served once a later one was welcomed (`sessions`).
//!
//! Locks: `sessions`, `inbox`; neither is taken under the other.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, sockopt};

use super::buffer::Buffer;
use super::channel::{self, Channel};
use super::frame::{self, Header, Kind, VERSION};
use super::sessions::{Sessions, Standing};
use super::{Bad, Bound, Hello, SPIN_NS, Wire, now_ns, timespec};
use crate::protocol::Version;
use crate::protocol::messages::{Answer, Request};

/// Threads, at most.
pub const THREADS: usize = 2;
/// Connections, at most.
pub const CONNECTIONS: usize = 4096;
/// How long a connection may take to say hello, in ns.
const HELLO_NS: u64 = 10_000_000_000;
/// While a thread polls, it looks at all connections that often, of its looks.
const LOOKS: u32 = 8;
/// How often a thread looks whether that is over, in ns.
const TICK_NS: u64 = 1_000_000_000;

const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// Why a service refuses a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// An errno value.
    pub errno: u16,
    /// What was found, and what to do.
    pub text: String,
}

/// Who is at the other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Where it is. `None`: the connection was handed over.
    pub address: Option<SocketAddr>,
    /// Who it says it is. `None`: it has not said hello.
    pub hello: Option<Hello>,
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hello) = &self.hello {
            write!(out, "{}, process {}", hello.node, hello.process)?;
        } else {
            write!(out, "a stranger")?;
        }
        match self.address {
            Some(address) => write!(out, " at {address}"),
            None => write!(out, " on this machine"),
        }
    }
}

/// What answers requests. Called by several threads at once.
pub trait Service: Send + Sync {
    /// Whether a peer may ask anything.
    fn hello(&self, hello: &Hello) -> Result<(), Refusal>;

    /// Answers a request. It must not wait for another request of any peer.
    fn serve(&self, peer: &Peer, request: Request) -> Answer;

    /// A connection is closed for this reason.
    fn bad(&self, peer: &Peer, reason: &str);
}

/// Answers connections until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    #[cfg(test)]
    address: SocketAddr,
}

struct Shared {
    service: Arc<dyn Service>,
    wire: Wire,
    sessions: Mutex<Sessions>,
    workers: Vec<Mailbox>,
    /// The next connection's number; its remainder says whose it is.
    next: AtomicU64,
    open: AtomicUsize,
    stop: AtomicBool,
}

/// How a thread is reached.
struct Mailbox {
    epoll: OwnedFd,
    wake: OwnedFd,
    inbox: Mutex<Vec<Message>>,
}

enum Message {
    Open {
        number: u64,
        channel: Box<dyn Channel>,
        address: Option<SocketAddr>,
    },
    /// Its session has ended.
    Close {
        number: u64,
    },
}

impl Server {
    /// Answers whoever connects, by so many threads: 1 or 2.
    pub fn start(
        listener: TcpListener,
        wire: Wire,
        threads: usize,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        assert!((1..=THREADS).contains(&threads), "1 or 2 threads");
        let address = listener.local_addr()?;
        wire.check_address(address.ip())?;
        listener.set_nonblocking(true)?;
        let workers = (0..threads).map(|_| Mailbox::new()).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            service,
            wire,
            sessions: Mutex::default(),
            workers,
            next: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let mut server = Self {
            shared,
            threads: Vec::new(),
            #[cfg(test)]
            address,
        };
        let mut listener = Some(OwnedFd::from(listener));
        for index in 0..threads {
            let mut worker = Worker::new(Arc::clone(&server.shared), index, listener.take());
            let name = format!("solera-wire-{index}");
            let thread = std::thread::Builder::new().name(name).spawn(move || worker.run())?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Where it listens.
    #[cfg(test)]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open.
    #[cfg(test)]
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Answers a stream socket that is connected, as it is.
    #[cfg(test)]
    pub fn adopt(&self, fd: OwnedFd) {
        let channel = channel::Plain(os::InternalFd::in_place(fd));
        self.shared.open(Box::new(channel), None);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.workers.iter().for_each(Mailbox::wake);
        for thread in self.threads.drain(..) {
            // A service that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake, inbox: Mutex::default() })
    }

    fn wake(&self) {
        // It fails if it is awake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn post(&self, message: Message) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.wake();
    }
}

impl Shared {
    fn open(&self, channel: Box<dyn Channel>, address: Option<SocketAddr>) {
        let peer = Peer { address, hello: None };
        if self.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.service.bad(&peer, &format!("{CONNECTIONS} connections are open already"));
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.mailbox(number).post(Message::Open { number, channel, address });
    }

    fn mailbox(&self, number: u64) -> &Mailbox {
        &self.workers[(number % self.workers.len() as u64) as usize]
    }

    /// The standing of a peer that has said hello, or why it is refused.
    fn welcome(&self, hello: &Hello, number: u64) -> Result<Standing, Refusal> {
        self.service.hello(hello)?;
        let begun =
            self.sessions.lock().unwrap_or_else(PoisonError::into_inner).begin(hello, number);
        let (standing, older) = begun.map_err(|why| Refusal {
            errno: Errno::STALE.raw_os_error() as u16,
            text: why.to_string(),
        })?;
        for number in older {
            self.mailbox(number).post(Message::Close { number });
        }
        Ok(standing)
    }
}

/// One end of a connection.
struct Connection {
    number: u64,
    channel: Box<dyn Channel>,
    peer: Peer,
    bound: Option<(Bound, Standing)>,
    /// The last request's number.
    last: u64,
    since_ns: u64,
    /// There while bytes are in it.
    buffer: Option<Buffer>,
    /// What the socket has not taken yet.
    unsent: Vec<u8>,
    /// Whether epoll is to tell when it takes more, and not what comes.
    is_stuck: bool,
}

/// What is left to do for a connection.
enum Step {
    /// Nothing until the socket says so.
    Rest,
    /// Perhaps something at once.
    More,
}

/// Why a connection ends. `None`: the peer has ended it between two requests.
struct Ended(Option<String>);

impl From<Bad> for Ended {
    fn from(bad: Bad) -> Self {
        Self(Some(bad.to_string()))
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        // A peer that ends with an answer unread, since it was killed, or wants it no more.
        let has_ended =
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        Self((!has_ended).then(|| error.to_string()))
    }
}

/// What a thread's connections share.
struct Scratch {
    shared: Arc<Shared>,
    spare: Vec<Buffer>,
    head: Vec<u8>,
    asked: Vec<(u64, Version)>,
    /// When a request was served last, and whose.
    served_ns: u64,
    served: u64,
}

struct Worker {
    index: usize,
    listener: Option<OwnedFd>,
    /// Accepting failed: tried again at the next tick.
    is_paused: bool,
    connections: HashMap<u64, Connection>,
    /// Connections that have not said hello.
    strangers: usize,
    ready: Vec<u64>,
    scratch: Scratch,
}

impl Worker {
    fn new(shared: Arc<Shared>, index: usize, listener: Option<OwnedFd>) -> Self {
        let scratch = Scratch {
            shared,
            spare: Vec::new(),
            head: Vec::new(),
            asked: Vec::new(),
            served_ns: 0,
            served: 0,
        };
        Self {
            index,
            is_paused: listener.is_some(),
            listener,
            connections: HashMap::new(),
            strangers: 0,
            ready: Vec::new(),
            scratch,
        }
    }

    fn run(&mut self) {
        let shared = Arc::clone(&self.scratch.shared);
        let mailbox = &shared.workers[self.index];
        let (mut events, mut looks) = (Vec::with_capacity(64), 0_u32);
        self.listen(&mailbox.epoll);
        while !shared.stop.load(Ordering::SeqCst) {
            let now = now_ns();
            let is_polling = now - self.scratch.served_ns < SPIN_NS;
            // Who has asked just now asks again: looked at where that is seen first.
            looks = if is_polling && self.ready.is_empty() { looks + 1 } else { 0 };
            if !looks.is_multiple_of(LOOKS) {
                self.step(self.scratch.served);
                rustix::thread::sched_yield();
                continue;
            }
            let wait = if is_polling || !self.ready.is_empty() {
                Some(timespec(0))
            } else if self.strangers > 0 || self.is_paused {
                Some(timespec(TICK_NS))
            } else {
                None
            };
            events.clear();
            match epoll::wait(&mailbox.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("epoll: {error}"),
            }
            let mut todo = std::mem::take(&mut self.ready);
            if events.is_empty() && todo.is_empty() {
                if is_polling {
                    rustix::thread::sched_yield();
                } else {
                    self.tick(now);
                }
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(&mailbox.epoll),
                    WAKE => self.read_mail(mailbox),
                    number if todo.contains(&number) => {}
                    number => todo.push(number),
                }
            }
            for number in todo {
                self.step(number);
            }
        }
    }

    fn step(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let was_bound = connection.bound.is_some();
        match connection.step(&mut self.scratch) {
            Ok(Step::Rest) => {}
            Ok(Step::More) => self.ready.push(number),
            Err(Ended(reason)) => return self.end(number, reason.as_deref()),
        }
        if !was_bound && connection.bound.is_some() {
            self.strangers -= 1;
        }
    }

    fn end(&mut self, number: u64, reason: Option<&str>) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let shared = &self.scratch.shared;
        match &connection.bound {
            Some((_, standing)) => {
                shared
                    .sessions
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .end(standing, number);
            }
            None => self.strangers -= 1,
        }
        // Both fail if the peer is gone already.
        let _ = epoll::delete(&shared.workers[self.index].epoll, connection.channel.fd());
        let _ = rustix::net::shutdown(connection.channel.fd(), Shutdown::Both);
        shared.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(reason) = reason {
            shared.service.bad(&connection.peer, reason);
        }
    }

    fn tick(&mut self, now: u64) {
        let epoll = &self.scratch.shared.workers[self.index].epoll;
        if self.is_paused {
            let data = epoll::EventData::new_u64(LISTENER);
            let listener = self.listener.as_ref().expect("one that was paused");
            self.is_paused = epoll::add(epoll, listener, data, epoll::EventFlags::IN).is_err();
        }
        let late: Vec<u64> = self
            .connections
            .values()
            .filter(|one| one.bound.is_none() && now.saturating_sub(one.since_ns) > HELLO_NS)
            .map(|one| one.number)
            .collect();
        for number in late {
            self.end(number, Some("it did not say hello in time"));
        }
    }

    fn listen(&mut self, epoll: &OwnedFd) {
        if let Some(listener) = &self.listener {
            let data = epoll::EventData::new_u64(LISTENER);
            self.is_paused = epoll::add(epoll, listener, data, epoll::EventFlags::IN).is_err();
        }
    }

    fn accept(&mut self, epoll: &OwnedFd) {
        let Some(listener) = &self.listener else { return };
        let shared = &self.scratch.shared;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let (fd, address) = match rustix::net::acceptfrom_with(listener, flags) {
                Ok(accepted) => accepted,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    // Of no use until a descriptor or memory is free: not tried at once.
                    let peer = Peer { address: None, hello: None };
                    shared.service.bad(&peer, &format!("accept: {error}"));
                    self.is_paused = epoll::delete(epoll, listener).is_ok();
                    return;
                }
            };
            let address = address.and_then(|address| SocketAddr::try_from(address).ok());
            let channel = address
                .map_or(Ok(()), |address| shared.wire.check_address(address.ip()))
                .and_then(|()| Ok(sockopt::set_tcp_nodelay(&fd, true)?))
                .and_then(|()| shared.wire.answerer(fd));
            match channel {
                Ok(channel) => shared.open(channel, address),
                Err(error) => {
                    shared.service.bad(&Peer { address, hello: None }, &error.to_string());
                }
            }
        }
    }

    fn read_mail(&mut self, mailbox: &Mailbox) {
        // Cleared first: what comes behind wakes again.
        let _ = rustix::io::read(&mailbox.wake, &mut [0; 8]);
        let mail =
            std::mem::take(&mut *mailbox.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for message in mail {
            match message {
                Message::Open { number, channel, address } => {
                    let connection = Connection::new(number, channel, address);
                    let added = epoll::add(
                        &mailbox.epoll,
                        connection.channel.fd(),
                        epoll::EventData::new_u64(number),
                        epoll::EventFlags::IN,
                    );
                    self.connections.insert(number, connection);
                    self.strangers += 1;
                    if let Err(error) = added {
                        self.end(number, Some(&format!("epoll: {error}")));
                    }
                }
                Message::Close { number } => {
                    let standing = self.connections.get(&number).and_then(|one| one.bound.as_ref());
                    if let Some((_, standing)) = standing {
                        let reason = Bad::Older { session: standing.session() }.to_string();
                        self.end(number, Some(&reason));
                    }
                }
            }
        }
    }
}

impl Connection {
    fn new(number: u64, channel: Box<dyn Channel>, address: Option<SocketAddr>) -> Self {
        Self {
            number,
            channel,
            peer: Peer { address, hello: None },
            bound: None,
            last: 0,
            since_ns: now_ns(),
            buffer: None,
            unsent: Vec::new(),
            is_stuck: false,
        }
    }

    /// Takes what has come, and serves one request at most.
    fn step(&mut self, scratch: &mut Scratch) -> Result<Step, Ended> {
        if !self.send_rest(scratch)? {
            return Ok(Step::Rest);
        }
        let mut buffer =
            self.buffer.take().or_else(|| scratch.spare.pop()).unwrap_or_else(Buffer::new);
        let outcome = self.take_one(&mut buffer, scratch);
        let is_empty = buffer.is_empty();
        if is_empty {
            scratch.spare.push(buffer);
            scratch.spare.truncate(1);
        } else {
            self.buffer = Some(buffer);
        }
        let served = outcome?;
        let more = self.channel.is_holding() || (served && !is_empty);
        self.send_rest(scratch)?;
        Ok(if more && !self.is_stuck { Step::More } else { Step::Rest })
    }

    /// Whether a request was served.
    fn take_one(&mut self, buffer: &mut Buffer, scratch: &mut Scratch) -> Result<bool, Ended> {
        let agreed = self.bound.as_ref().map(|(bound, _)| bound.version);
        for is_last in [false, true] {
            if let Some(header) = self.header(buffer, agreed, scratch)?
                && let Some(body) = buffer.take(&header)
            {
                self.last = header.id();
                self.answer(&header, buffer.body(body), scratch)?;
                return Ok(true);
            }
            if is_last {
                break;
            }
            match self.channel.receive(buffer.room()) {
                Ok(0) if buffer.is_empty() => return Err(Ended(None)),
                Ok(0) => return Err(Bad::Ends.into()),
                Ok(bytes) => buffer.came(bytes),
                Err(error) if channel::would_block(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The next frame's header, if it may come here; before its body is there.
    fn header(
        &mut self,
        buffer: &Buffer,
        agreed: Option<u16>,
        scratch: &mut Scratch,
    ) -> Result<Option<Header>, Ended> {
        let header = match buffer.header(agreed) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(bad @ Bad::Version { .. }) if agreed.is_none() => {
                let bound = Bound { version: VERSION, volume: [0; 16], term: 0, session: 0 };
                let errno = Errno::PROTONOSUPPORT.raw_os_error() as u16;
                self.refuse(&bound, errno, bad.to_string(), scratch)?;
                return Err(bad.into());
            }
            Err(bad) => return Err(bad.into()),
        };
        let is_right = match &self.bound {
            Some((bound, _)) => {
                header.check(bound)?;
                header.kind().is_request() && header.kind() != Kind::Hello
            }
            None => header.kind() == Kind::Hello,
        };
        if !is_right {
            return Err(Bad::Unexpected(header.kind()).into());
        }
        if header.id() != self.last + 1 {
            return Err(Bad::Id { found: header.id(), wanted: self.last + 1 }.into());
        }
        Ok(Some(header))
    }

    fn answer(&mut self, header: &Header, body: &[u8], scratch: &mut Scratch) -> Result<(), Ended> {
        let id = header.id();
        let Some((bound, standing)) = &self.bound else {
            return self.greet(header, body, scratch);
        };
        let bound = *bound;
        let mut request = match frame::decode_request(header, body) {
            Ok(request) => request,
            Err(Bad::PageSum { page }) => {
                frame::encode_again(&mut scratch.head, &bound, id, page);
                return self.send(&[], scratch);
            }
            Err(bad) => return Err(bad.into()),
        };
        request.names(&mut scratch.asked);
        let behind = request.take_behind();
        let answer = {
            let Some(_entered) = standing.enter() else {
                return Err(Bad::Older { session: standing.session() }.into());
            };
            scratch.shared.service.serve(&self.peer, request)
        };
        let Scratch { head, asked, .. } = scratch;
        match frame::encode_answer(head, &bound, id, asked, &answer) {
            Ok(bytes) => self.send(bytes, scratch)?,
            Err(bad) => {
                let text = format!("the node's own answer does not fit the request: {bad}");
                let errno = Errno::IO.raw_os_error() as u16;
                self.refuse(&bound, errno, text, scratch)?;
            }
        }
        // Nobody waits for it. CRASH: the asker has its answer, and this node has what it should
        // have dropped: who compares claims finds it, as if the message had not come.
        if let (Some(behind), Some((_, standing))) = (behind, &self.bound)
            && let Some(_entered) = standing.enter()
        {
            // An asker that polls on this very processor gets it first.
            rustix::thread::sched_yield();
            scratch.shared.service.serve(&self.peer, behind);
        }
        (scratch.served_ns, scratch.served) = (now_ns(), self.number);
        Ok(())
    }

    fn greet(&mut self, header: &Header, body: &[u8], scratch: &mut Scratch) -> Result<(), Ended> {
        let hello = frame::decode_hello(header, body)?;
        let bound = hello.bound(header.version().min(VERSION));
        self.peer.hello = Some(hello);
        match scratch.shared.welcome(&hello, self.number) {
            Ok(standing) => {
                self.bound = Some((bound, standing));
                frame::encode_welcome(&mut scratch.head, &bound, header.id());
                self.send(&[], scratch)
            }
            Err(Refusal { errno, text }) => {
                self.refuse(&bound, errno, text.clone(), scratch)?;
                Err(Ended(Some(text)))
            }
        }
    }

    fn refuse(
        &mut self,
        bound: &Bound,
        errno: u16,
        text: String,
        scratch: &mut Scratch,
    ) -> Result<(), Ended> {
        let refused = Answer::Refused { errno, text };
        let id = self.last.max(1);
        frame::encode_answer(&mut scratch.head, bound, id, &[], &refused)?;
        self.send(&[], scratch)
    }

    /// Sends the frame that the scratch's head and these bytes are, in one call if it fits.
    fn send(&mut self, bytes: &[u8], scratch: &Scratch) -> Result<(), Ended> {
        assert!(self.unsent.is_empty(), "an answer at a time");
        let head = &scratch.head;
        let sent = match self.channel.send([head, bytes]) {
            Ok(sent) => sent,
            Err(error) if channel::would_block(&error) => 0,
            Err(error) => return Err(error.into()),
        };
        self.unsent.extend_from_slice(&head[sent.min(head.len())..]);
        self.unsent.extend_from_slice(&bytes[sent.saturating_sub(head.len())..]);
        Ok(())
    }

    /// Sends what the socket did not take before. Whether it is all gone.
    fn send_rest(&mut self, scratch: &Scratch) -> Result<bool, Ended> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.channel.send([&self.unsent[sent..], &[]]) {
                Ok(bytes) => sent += bytes,
                Err(error) if channel::would_block(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.drain(..sent);
        let is_gone = self.unsent.is_empty() && self.channel.flush()?;
        if is_gone == self.is_stuck {
            let flags = if is_gone { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            let data = epoll::EventData::new_u64(self.number);
            let epoll = &scratch.shared.mailbox(self.number).epoll;
            epoll::modify(epoll, self.channel.fd().as_fd(), data, flags)
                .map_err(io::Error::from)?;
            self.is_stuck = !is_gone;
        }
        Ok(is_gone)
    }
}
