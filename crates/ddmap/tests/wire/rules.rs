//! Who breaks the rules is closed, with a reason: a side driven by hand against a real one.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, KeptPage, PAGES, Request};
use crate::protocol::{NodeId, Version};
use crate::wire::frame::{self, AnswerFrame, HEADER, Header, Kind, VERSION};
use crate::wire::link::{Link, LinkError, TRIES};
use crate::wire::server::{Peer, Refusal, Server, Service};
use crate::wire::{Bound, Hello, Wire, is_private};

const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;
const PING: Request = Request::Ping;
const PONG: Answer = Answer::Pong { capacity: 10, used: 3 };

/// A node that has every page.
struct Node {
    reasons: Mutex<Vec<String>>,
    /// Who asks for claims is met here twice: ahead of the answer, and until it may come.
    gate: Barrier,
}

impl Default for Node {
    fn default() -> Self {
        Self { reasons: Mutex::default(), gate: Barrier::new(2) }
    }
}

impl Node {
    fn wait_for_reason(&self) -> String {
        loop {
            if let Some(reason) = self.reasons.lock().unwrap().pop() {
                return reason;
            }
            std::thread::yield_now();
        }
    }
}

impl Service for Node {
    fn hello(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.term == 13 {
            return Err(Refusal { errno: 13, text: "term 13 is none of ours".into() });
        }
        Ok(())
    }

    fn serve(&self, _peer: &Peer, request: Request) -> Answer {
        match request {
            Request::Fetch { pages, .. } => Answer::Fetched {
                found: vec![true; pages.len()],
                bytes: pages.iter().flat_map(|(page, _)| vec![*page as u8; PAGE]).collect(),
            },
            Request::Store { pages, .. }
            | Request::Tables { pages, .. }
            | Request::Keep { pages } => Answer::Stored(vec![Stored::Kept; pages.len()]),
            // No answer to that.
            Request::Release { .. } => Answer::Fetched { found: vec![true], bytes: vec![] },
            Request::Claims { .. } => {
                self.gate.wait();
                self.gate.wait();
                Answer::Claims { claims: vec![], next: None }
            }
            Request::Lines { .. } => Answer::Lined(None),
            Request::Ping => PONG,
            Request::Control { text } => Answer::Control { text },
        }
    }

    fn bad(&self, peer: &Peer, reason: &str) {
        self.reasons.lock().unwrap().push(format!("{peer}: {reason}"));
    }
}

fn hello(session: u32) -> Hello {
    Hello { node: NodeId::new(2).unwrap(), process: 1, session, volume: [9; 16], term: 4, store: 0 }
}

fn bound() -> Bound {
    hello(7).bound(VERSION)
}

fn server(threads: usize) -> (Server, Arc<Node>) {
    let node = Arc::new(Node::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (Server::start(listener, Wire::Plain, threads, node.clone()).unwrap(), node)
}

fn fetch(pages: std::ops::Range<u64>) -> Request {
    let pages = pages.map(|page| (page, Version::new(5))).collect();
    Request::Fetch { pages, releases: vec![] }
}

fn request(bound: &Bound, id: u64, request: &Request) -> Vec<u8> {
    let mut head = Vec::new();
    let bytes = frame::encode_request(&mut head, bound, id, request).unwrap();
    [&head, bytes].concat()
}

fn answer(bound: &Bound, id: u64, asked: &Request, answer: &Answer) -> Vec<u8> {
    let asked = match asked {
        Request::Fetch { pages, .. } => pages.as_slice(),
        _ => &[],
    };
    let mut head = Vec::new();
    let bytes = frame::encode_answer(&mut head, bound, id, asked, answer).unwrap();
    [&head, bytes].concat()
}

/// The next frame, and what it answers. `None`: the other side has closed.
fn read(stream: &mut UnixStream) -> Option<(Header, Option<Answer>)> {
    let mut bytes = vec![0; HEADER];
    match stream.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) => {
            let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(closed.contains(&error.kind()), "{error}");
            return None;
        }
    }
    let header = Header::parse(&bytes, None).unwrap();
    let mut body = vec![0; header.body()];
    stream.read_exact(&mut body).unwrap();
    let answer = AnswerFrame::parse(&header, &body, &[]).unwrap().answer();
    Some((header, answer))
}

/// A connection to a server, driven by hand.
fn stranger(server: &Server) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.adopt(OwnedFd::from(theirs));
    ours
}

/// One that was welcomed. The next request has number 2.
fn guest(server: &Server) -> UnixStream {
    let mut stream = stranger(server);
    let mut head = Vec::new();
    frame::encode_hello(&mut head, VERSION, 1, &hello(7));
    stream.write_all(&head).unwrap();
    assert_eq!(read(&mut stream).unwrap().0.kind(), Kind::Welcome);
    stream
}

/// A link, welcomed, whose other side is driven by hand. Its next request has number 2.
fn link() -> (Link, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut head = Vec::new();
    frame::encode_welcome(&mut head, &bound(), 1);
    theirs.write_all(&head).unwrap();
    (Link::from_fd(OwnedFd::from(ours), &hello(7), LONG).unwrap(), theirs)
}

#[test]
fn a_server_closes_who_breaks_the_rules_and_serves_the_others() {
    let (server, node) = server(1);
    let mut beside = guest(&server);
    let bound = bound();
    let right = request(&bound, 2, &PING);
    let pong = answer(&bound, 2, &PING, &PONG);
    let term = request(&Bound { term: 3, ..bound }, 2, &PING);
    let session = request(&Bound { session: 6, ..bound }, 2, &PING);
    let volume = request(&Bound { volume: [8; 16], ..bound }, 2, &PING);
    let version = request(&Bound { version: VERSION + 1, ..bound }, 2, &PING);
    let again = [right.clone(), right.clone()].concat();
    let gap = request(&bound, 3, &PING);
    let mut greeting = Vec::new();
    frame::encode_hello(&mut greeting, VERSION, 2, &hello(7));
    let mut long = right.clone();
    long[44..48].copy_from_slice(&u32::MAX.to_le_bytes());
    let sum = crc32c::crc32c(&long[..60]);
    long[60..].copy_from_slice(&sum.to_le_bytes());
    for (what, bytes, answers) in [
        ("of term 3", term, 0),
        ("of session 6", session, 0),
        ("of volume 0808", volume, 0),
        ("version 4", version, 0),
        ("came already", again, 1),
        ("3, 2 is next", gap, 0),
        ("Hello has no place", greeting, 0),
        ("Pong has no place", pong, 0),
        // Nothing follows the header: it is refused by what it says.
        ("4294967295 bytes is beyond", long, 0),
        ("does not match its sum", [&right[..32], &[0xFF; 32]].concat(), 0),
        ("does not begin with", b"GET / HTTP/1.1\r\n".to_vec(), 0),
    ] {
        let what = if what.starts_with("does not begin") { "begins with" } else { what };
        let mut stream = guest(&server);
        stream.write_all(&bytes).unwrap();
        for _ in 0..answers {
            assert_eq!(read(&mut stream).unwrap().1, Some(PONG));
        }
        assert!(read(&mut stream).is_none(), "{what}");
        let reason = node.wait_for_reason();
        assert!(reason.starts_with("node 2, process 1 on this machine: "), "{reason}");
        assert!(reason.contains(what), "{what}: {reason}");
    }
    beside.write_all(&right).unwrap();
    assert_eq!(read(&mut beside).unwrap().1, Some(PONG));
}

#[test]
fn a_server_sees_a_request_that_breaks_off_and_one_without_a_hello() {
    let (server, node) = server(2);
    let whole = request(&bound(), 2, &fetch(0..2));
    for length in [1, HEADER - 1, HEADER, whole.len() - 1] {
        let mut stream = guest(&server);
        stream.write_all(&whole[..length]).unwrap();
        drop(stream);
        assert!(node.wait_for_reason().contains("in the middle of a frame"));
    }
    let mut stream = stranger(&server);
    stream.write_all(&request(&bound(), 1, &PING)).unwrap();
    assert!(read(&mut stream).is_none());
    assert_eq!(
        node.wait_for_reason(),
        "a stranger on this machine: a frame Ping has no place here"
    );
    drop(guest(&server));
    let mut last = guest(&server);
    last.write_all(&request(&bound(), 2, &PING)).unwrap();
    assert_eq!(read(&mut last).unwrap().1, Some(PONG));
    assert!(node.reasons.lock().unwrap().is_empty(), "an orderly end is none");
}

#[test]
fn a_request_may_come_byte_by_byte_or_several_at_once() {
    let (server, _) = server(1);
    let mut stream = guest(&server);
    for byte in request(&bound(), 2, &fetch(0..3)) {
        stream.write_all(&[byte]).unwrap();
    }
    let mut bytes = vec![0; HEADER + 3 * (frame::ENTRY + PAGE)];
    stream.read_exact(&mut bytes).unwrap();
    let many: Vec<u8> = (3..40).flat_map(|id| request(&bound(), id, &PING)).collect();
    stream.write_all(&many).unwrap();
    for id in 3..40 {
        let (header, answer) = read(&mut stream).unwrap();
        assert_eq!((header.id(), answer), (id, Some(PONG)));
    }
}

#[test]
fn a_page_that_arrives_damaged_at_a_server_is_asked_for_again() {
    let (server, node) = server(1);
    let mut stream = guest(&server);
    let pages = vec![(17, Version::new(5)), (18, Version::new(6))];
    let store = Request::Store { pages, bytes: vec![3; 2 * PAGE] };
    let mut bytes = request(&bound(), 2, &store);
    *bytes.last_mut().unwrap() ^= 1;
    stream.write_all(&bytes).unwrap();
    let (header, _) = read(&mut stream).unwrap();
    assert_eq!((header.kind(), header.id()), (Kind::Again, 2));
    stream.write_all(&request(&bound(), 3, &PING)).unwrap();
    assert_eq!(read(&mut stream).unwrap().1, Some(PONG));
    assert!(node.reasons.lock().unwrap().is_empty());
}

#[test]
fn neighbouring_versions_talk_and_others_are_refused_by_name() {
    let (server, node) = server(1);
    let mut head = Vec::new();
    let mut stream = stranger(&server);
    frame::encode_hello(&mut head, VERSION + 1, 1, &hello(7));
    stream.write_all(&head).unwrap();
    let (header, _) = read(&mut stream).unwrap();
    assert_eq!((header.kind(), header.version()), (Kind::Welcome, VERSION));
    stream.write_all(&request(&bound(), 2, &PING)).unwrap();
    assert_eq!(read(&mut stream).unwrap().1, Some(PONG));

    for version in [0, VERSION + 2] {
        let mut stream = stranger(&server);
        frame::encode_hello(&mut head, version, 1, &hello(7));
        stream.write_all(&head).unwrap();
        let Some((header, Some(Answer::Refused { text, .. }))) = read(&mut stream) else {
            panic!("no refusal")
        };
        assert_eq!(header.version(), VERSION);
        assert!(text.contains(&format!("speaks version {version} of")), "{text}");
        assert!(read(&mut stream).is_none());
        assert!(node.wait_for_reason().contains("only neighbouring versions talk"));
    }

    // A node must not welcome in a version that this one does not speak.
    for version in [VERSION + 1, VERSION + 2] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        frame::encode_welcome(&mut head, &hello(7).bound(version), 1);
        theirs.write_all(&head).unwrap();
        let error = Link::from_fd(OwnedFd::from(ours), &hello(7), LONG).err().unwrap();
        assert!(error.to_string().contains(&format!("speaks version {version} of")), "{error}");
    }
}

#[test]
fn a_refused_hello_says_why() {
    let (server, node) = server(1);
    let refused = Hello { term: 13, ..hello(7) };
    let error = Link::connect(server.address(), LONG, &refused, &Wire::Plain).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("term 13 is none of ours"), "{error}");
    assert!(node.wait_for_reason().contains("term 13 is none of ours"));
}

#[test]
fn a_later_session_closes_the_earlier_ones_connections() {
    for threads in 1..=2 {
        let (server, node) = server(threads);
        let connect =
            |session| Link::connect(server.address(), LONG, &hello(session), &Wire::Plain);
        let (mut first, mut second) = (connect(7).unwrap(), connect(7).unwrap());
        assert_eq!(first.ask(&PING, LONG), Ok(PONG));
        assert_eq!(second.ask(&PING, LONG), Ok(PONG));
        let mut later = connect(8).unwrap();
        for old in [&mut first, &mut second] {
            // It asks nothing, and is closed all the same.
            assert!(matches!(old.poll_answer(LONG), Err(LinkError::Closed(_))));
            assert!(node.wait_for_reason().contains("session 7 has ended"));
        }
        assert_eq!(later.ask(&PING, LONG), Ok(PONG));
        let error = connect(7).err().unwrap().to_string();
        assert!(error.contains("has begun session 8 already"), "{error}");
        assert_eq!(later.ask(&PING, LONG), Ok(PONG));
    }
}

/// The server's thread is kept busy while a later session says hello and the earlier one asks, so
/// that it finds both at once, in this order.
#[test]
fn a_request_of_an_earlier_session_is_not_served_while_its_connection_still_stands() {
    let (server, node) = server(1);
    let mut later = stranger(&server);
    let mut earlier = guest(&server);
    let mut busy = stranger(&server);
    let mut head = Vec::new();
    frame::encode_hello(&mut head, VERSION, 1, &Hello { process: 2, ..hello(7) });
    busy.write_all(&head).unwrap();
    assert_eq!(read(&mut busy).unwrap().0.kind(), Kind::Welcome);
    busy.write_all(&request(&bound(), 2, &Request::Claims { from: 0 })).unwrap();
    node.gate.wait();
    frame::encode_hello(&mut head, VERSION, 1, &hello(8));
    later.write_all(&head).unwrap();
    earlier.write_all(&request(&bound(), 2, &PING)).unwrap();
    node.gate.wait();
    assert_eq!(read(&mut later).unwrap().0.kind(), Kind::Welcome);
    assert!(read(&mut earlier).is_none());
    assert!(node.wait_for_reason().contains("session 7 has ended"));
}

#[test]
fn an_answer_that_does_not_fit_the_request_becomes_a_refusal() {
    let (server, _) = server(1);
    let mut link = Link::connect(server.address(), LONG, &hello(7), &Wire::Plain).unwrap();
    let release = Request::Release { pages: vec![KeptPage::new(1, Version::new(1))] };
    let Ok(Answer::Refused { errno: 5, text }) = link.ask(&release, LONG) else { panic!() };
    assert!(text.contains("does not fit the request"), "{text}");
    assert_eq!(link.ask(&PING, LONG), Ok(PONG));
}

#[test]
fn a_link_closes_at_what_nobody_asked_for() {
    let asked = fetch(17..18);
    let here = Answer::Fetched { found: vec![true], bytes: vec![3; PAGE] };
    let bound = bound();
    let frame = |bound: &Bound, id| answer(bound, id, &asked, &here);
    let mut welcome = Vec::new();
    frame::encode_welcome(&mut welcome, &bound, 2);
    for (what, bytes) in [
        ("number 3, 2 is next", frame(&bound, 3)),
        ("number 1, 2 is next", frame(&bound, 1)),
        ("of term 3", frame(&Bound { term: 3, ..bound }, 2)),
        ("of volume 0808", frame(&Bound { volume: [8; 16], ..bound }, 2)),
        ("of session 6", frame(&Bound { session: 6, ..bound }, 2)),
        ("version 2", frame(&Bound { version: 2, ..bound }, 2)),
        ("not those asked for", answer(&bound, 2, &fetch(18..19), &here)),
        ("Ping has no place", request(&bound, 2, &PING)),
        ("Welcome has no place", welcome),
        ("Pong has no place", answer(&bound, 2, &PING, &PONG)),
        ("Released has no place", answer(&bound, 2, &PING, &Answer::Released(1))),
        ("begins with", b"HTTP/1.1 400 Bad Request".to_vec()),
    ] {
        let (mut link, mut theirs) = link();
        link.send(&asked, LONG).unwrap();
        theirs.write_all(&bytes).unwrap();
        let error = link.poll_answer(LONG).unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert_eq!(link.ask(&PING, LONG).unwrap_err(), error, "it says why each time");
        assert!(error.to_string().contains(link.closed().unwrap()));
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn a_link_closes_at_a_second_answer_and_at_an_end() {
    let pong = answer(&bound(), 2, &PING, &PONG);
    let (mut link, mut theirs) = self::link();
    link.send(&PING, LONG).unwrap();
    theirs.write_all(&[pong.clone(), pong.clone()].concat()).unwrap();
    assert_eq!(link.poll_answer(LONG), Ok(Some(PONG)));
    let error = link.poll_answer(NOW).unwrap_err();
    assert!(error.to_string().contains("nobody asked"), "{error}");

    let (mut link, mut theirs) = self::link();
    link.send(&PING, LONG).unwrap();
    theirs.write_all(&pong[..70]).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let error = link.poll_answer(LONG).unwrap_err();
    assert!(error.to_string().contains("in the middle of an answer"), "{error}");
}

#[test]
fn a_page_that_arrives_damaged_is_asked_for_again_three_times_in_all() {
    let asked = fetch(17..19);
    let here = Answer::Fetched { found: vec![true; 2], bytes: vec![3; 2 * PAGE] };
    for damaged in 0..=TRIES {
        let (mut link, mut theirs) = link();
        for attempt in 0..TRIES {
            let mut bytes = answer(&bound(), 2 + u64::from(attempt), &asked, &here);
            if attempt < damaged {
                *bytes.last_mut().unwrap() ^= 1;
            }
            theirs.write_all(&bytes).unwrap();
            if attempt >= damaged {
                break;
            }
        }
        match link.ask(&asked, LONG) {
            Ok(found) => {
                assert!(damaged < TRIES);
                assert_eq!(found, here);
            }
            Err(error) => {
                assert_eq!(damaged, TRIES, "{error}");
                let text = "page 18 arrived damaged 3 times; check the network";
                assert_eq!(error, LinkError::Closed(text.into()));
            }
        }
    }
}

#[test]
fn a_page_that_came_at_last_is_no_debt() {
    let asked = fetch(17..18);
    let here = Answer::Fetched { found: vec![true], bytes: vec![3; PAGE] };
    let (mut link, mut theirs) = link();
    for id in 2..20 {
        let mut bytes = answer(&bound(), id, &asked, &here);
        if id % 2 == 0 {
            *bytes.last_mut().unwrap() ^= 1;
        }
        theirs.write_all(&bytes).unwrap();
    }
    for _ in 0..9 {
        assert_eq!(link.ask(&asked, LONG), Ok(here.clone()));
    }
}

#[test]
fn an_answer_that_was_given_up_is_dropped() {
    let (mut link, mut theirs) = link();
    let silent = Duration::from_millis(1);
    assert_eq!(link.ask(&fetch(1..3), silent), Err(LinkError::Late));
    assert_eq!(link.ask(&fetch(3..4), silent), Err(LinkError::Late));
    link.send(&PING, LONG).unwrap();
    let found = |count| Answer::Fetched { found: vec![true; count], bytes: vec![3; count * PAGE] };
    theirs.write_all(&answer(&bound(), 2, &fetch(1..3), &found(2))).unwrap();
    assert_eq!(link.poll_answer(NOW), Ok(None));
    theirs.write_all(&answer(&bound(), 3, &fetch(3..4), &found(1))).unwrap();
    theirs.write_all(&answer(&bound(), 4, &PING, &PONG)).unwrap();
    assert_eq!(link.poll_answer(LONG), Ok(Some(PONG)));
}

#[test]
fn sockets_that_take_little_delay_and_lose_nothing() {
    let (server, _) = server(2);
    let (ours, theirs) = UnixStream::pair().unwrap();
    for end in [&ours, &theirs] {
        rustix::net::sockopt::set_socket_send_buffer_size(end, 4096).unwrap();
    }
    server.adopt(OwnedFd::from(theirs));
    let mut link = Link::from_fd(OwnedFd::from(ours), &hello(7), LONG).unwrap();
    let pages: Vec<_> = (0..PAGES as u64).map(|page| (page, Version::new(5))).collect();
    let store = Request::Store { pages, bytes: vec![3; PAGES * PAGE] };
    // Both sides have more to send than the sockets take.
    for _ in 0..8 {
        link.send(&fetch(0..PAGES as u64), LONG).unwrap();
        link.send(&store, LONG).unwrap();
    }
    let stored = Answer::Stored(vec![Stored::Kept; PAGES]);
    loop {
        if let Some(found) = link.poll_answer(LONG).unwrap() {
            assert_eq!(found, stored);
            break;
        }
    }
    assert_eq!(link.ask(&PING, LONG), Ok(PONG));
}

#[test]
fn few_threads_answer_many_connections() {
    let (server, _) = server(2);
    let mut links: Vec<_> = (0..200)
        .map(|_| Link::connect(server.address(), LONG, &hello(7), &Wire::Plain).unwrap())
        .collect();
    for _ in 0..3 {
        for link in &mut links {
            link.send(&fetch(1..3), LONG).unwrap();
        }
        for link in &mut links {
            assert!(link.poll_answer(LONG).unwrap().is_some());
        }
    }
    assert_eq!(server.connections(), 200);
}

#[test]
fn plain_frames_go_to_private_addresses_only() {
    let private = [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.7.7",
        "169.254.1.1",
        "::1",
        "fe80::1",
        "fd12::1",
        "::ffff:10.0.0.1",
    ];
    let public = [
        "8.8.8.8",
        "172.32.0.1",
        "172.15.0.1",
        "192.169.0.1",
        "0.0.0.0",
        "11.0.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "::",
        "2001:db8::1",
        "ff02::1",
        "::ffff:8.8.8.8",
    ];
    for address in private {
        assert!(is_private(address.parse().unwrap()), "{address}");
    }
    for address in public {
        let ip: IpAddr = address.parse().unwrap();
        assert!(!is_private(ip), "{address}");
        let there = SocketAddr::new(ip, 9);
        let error = Link::connect(there, LONG, &hello(7), &Wire::Plain).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("--wire tls"), "{error}");
    }
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(Server::start(everywhere, Wire::Plain, 1, Arc::new(Node::default())).is_err());
}
