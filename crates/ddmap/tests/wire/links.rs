//! Links and servers that talk to each other: what is asked is answered, and who breaks the rules
//! is closed, with a reason.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::protocol::NodeId;
use crate::protocol::Version;
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, CLAIMS, KeptPage, Lines, PAGES, Request};
use crate::tests::support::dir::TestDir;
use crate::wire::frame::{self, ENTRY, HEADER, VERSION};
use crate::wire::key::Key;
use crate::wire::link::Link;
use crate::wire::server::{Peer, Refusal, Server, Service};
use crate::wire::tls::Tls;
use crate::wire::{Hello, Wire};

const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(30);

/// A holder in memory.
#[derive(Default)]
struct Holder {
    pages: Mutex<HashMap<u64, (Version, Vec<u8>)>>,
    reasons: Mutex<Vec<String>>,
}

impl Holder {
    /// The next reason for which a connection was closed.
    fn wait_for_reason(&self) -> String {
        loop {
            if let Some(reason) = self.reasons.lock().unwrap().pop() {
                return reason;
            }
            std::thread::yield_now();
        }
    }
}

impl Service for Holder {
    fn hello(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.term == 13 {
            return Err(Refusal { errno: 13, text: "term 13 is none of ours".into() });
        }
        Ok(())
    }

    fn serve(&self, _peer: &Peer, request: Request) -> Answer {
        let mut kept = self.pages.lock().unwrap();
        match request {
            Request::Fetch { pages, releases } => {
                for KeptPage { page, .. } in &releases {
                    kept.remove(page);
                }
                let mut bytes = Vec::new();
                let mut found = Vec::new();
                for (page, version) in &pages {
                    let here = kept.get(page).filter(|(kept, _)| kept == version);
                    found.push(here.is_some());
                    if let Some((_, page)) = here {
                        bytes.extend_from_slice(page);
                    }
                }
                Answer::Fetched { found, bytes }
            }
            Request::Store { pages, bytes } => {
                for ((page, version), bytes) in pages.iter().zip(bytes.chunks(PAGE)) {
                    kept.insert(*page, (*version, bytes.to_vec()));
                }
                Answer::Stored(vec![Stored::Kept; pages.len()])
            }
            Request::Tables { pages, .. } | Request::Keep { pages } => {
                Answer::Stored(vec![Stored::Kept; pages.len()])
            }
            Request::Release { pages } => {
                let dropped = pages.iter().filter(|one| kept.remove(&one.page).is_some()).count();
                Answer::Released(dropped as u32)
            }
            Request::Claims { from } => {
                let mut claims: Vec<_> = kept
                    .iter()
                    .filter(|(page, _)| **page >= from)
                    .map(|(page, (version, _))| KeptPage::new(*page, *version))
                    .collect();
                claims.sort_unstable_by_key(|claim| claim.page);
                claims.truncate(CLAIMS);
                Answer::Claims { claims, next: None }
            }
            Request::Lines { lines, version } => {
                let found = kept.get(&lines.page()).filter(|kept| kept.0 == version);
                Answer::Lined(found.map(|kept| kept.1[lines.range()].to_vec()))
            }
            Request::Ping => Answer::Pong { capacity: 1000, used: kept.len() as u64 },
            Request::Control { text } => Answer::Control { text },
        }
    }

    fn bad(&self, peer: &Peer, reason: &str) {
        self.reasons.lock().unwrap().push(format!("{peer}: {reason}"));
    }
}

fn hello(process: u64, session: u32) -> Hello {
    Hello { node: NodeId::new(2).unwrap(), process, session, volume: [9; 16], term: 4, store: 0 }
}

fn server(wire: Wire, threads: usize) -> (Server, Arc<Holder>) {
    let holder = Arc::new(Holder::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (Server::start(listener, wire, threads, holder.clone()).unwrap(), holder)
}

fn link(server: &Server, wire: &Wire, session: u32) -> Link {
    Link::connect(server.address(), LONG, &hello(1, session), wire).unwrap()
}

fn pages(numbers: std::ops::Range<u64>) -> (Vec<(u64, Version)>, Vec<u8>) {
    let pages: Vec<_> = numbers.map(|page| (page, Version::new(page as u32 + 1))).collect();
    let bytes = pages.iter().flat_map(|(page, _)| vec![*page as u8 ^ 0x5A; PAGE]).collect();
    (pages, bytes)
}

fn kept_of(pages: &[(u64, Version)]) -> Vec<KeptPage> {
    pages.iter().map(|(page, version)| KeptPage::new(*page, *version)).collect()
}

fn talk(link: &mut Link) {
    let (pages, bytes) = pages(0..PAGES as u64);
    let store = Request::Store { pages: pages.clone(), bytes: bytes.clone() };
    assert_eq!(link.ask(&store, LONG), Ok(Answer::Stored(vec![Stored::Kept; PAGES])));
    let all = Request::Fetch { pages: pages.clone(), releases: vec![] };
    let found = vec![true; PAGES];
    assert_eq!(link.ask(&all, LONG), Ok(Answer::Fetched { found, bytes: bytes.clone() }));
    let some = Request::Fetch {
        pages: vec![(99, Version::new(1)), pages[3]],
        releases: kept_of(&pages[5..7]),
    };
    let three = bytes[3 * PAGE..4 * PAGE].to_vec();
    let answer = Answer::Fetched { found: vec![false, true], bytes: three };
    assert_eq!(link.ask(&some, LONG), Ok(answer));
    let release = Request::Release { pages: kept_of(&pages[..4]) };
    assert_eq!(link.ask(&release, LONG), Ok(Answer::Released(4)));
    let (page, version) = pages[7];
    let lines = Lines::of(page * PAGE as u64 + 100, 200).unwrap();
    let asked = |version| Request::Lines { lines, version };
    let found = bytes[7 * PAGE..][64..320].to_vec();
    assert_eq!(link.ask(&asked(version), LONG), Ok(Answer::Lined(Some(found))));
    assert_eq!(link.ask(&asked(version.later(1)), LONG), Ok(Answer::Lined(None)));
    let mut left = pages[4..].to_vec();
    left.retain(|page| *page != pages[5] && *page != pages[6]);
    let claims = Answer::Claims { claims: kept_of(&left), next: None };
    assert_eq!(link.ask(&Request::Claims { from: 2 }, LONG), Ok(claims));
    let pong = Answer::Pong { capacity: 1000, used: left.len() as u64 };
    assert_eq!(link.ask(&Request::Ping, LONG), Ok(pong));
}

#[test]
fn all_requests_are_answered() {
    for threads in 1..=2 {
        let (server, holder) = server(Wire::Plain, threads);
        talk(&mut link(&server, &Wire::Plain, 1));
        drop(server);
        assert_eq!(*holder.reasons.lock().unwrap(), Vec::<String>::new());
    }
}

/// A domain's key, in a folder that goes away.
fn tls() -> Wire {
    let folder = TestDir::new();
    let key = Key::create(&folder.at("key.pem"), "dm").unwrap();
    Wire::Tls(Tls::new(&key).unwrap())
}

#[test]
fn all_requests_are_answered_over_tls() {
    let wire = tls();
    let (server, holder) = server(wire.clone(), 2);
    let mut first = link(&server, &wire, 1);
    let mut second = link(&server, &wire, 1);
    talk(&mut first);
    talk(&mut second);
    drop(server);
    assert_eq!(*holder.reasons.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn another_domains_node_is_refused_on_both_sides() {
    let (server, holder) = server(tls(), 1);
    let connect = |wire: &Wire| {
        let error = Link::connect(server.address(), LONG, &hello(1, 1), wire).err().unwrap();
        (error.to_string(), holder.wait_for_reason())
    };
    let (theirs, ours) = connect(&tls());
    assert!(theirs.contains("give it the domain's key file"), "{theirs}");
    assert!(ours.contains("same key file"), "{ours}");
    let (theirs, ours) = connect(&Wire::Plain);
    assert!(ours.contains("does not speak TLS"), "{ours}");
    assert!(theirs.contains("same --wire") || theirs.contains("--wire"), "{theirs}");
}

/// The round trip of a fetch: `cargo test --release -p solera-ddmap wire::links -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints figures"]
fn round_trips() {
    let (server, _) = server(Wire::Plain, 1);
    figures("plain", &mut link(&server, &Wire::Plain, 1));
    figures_of_blocking();
    let wire = tls();
    let (server, _) = self::server(wire.clone(), 1);
    figures("TLS", &mut link(&server, &wire, 1));
}

/// The same where nobody polls: the asker sits in `read`, and the other side was left to block.
fn figures_of_blocking() {
    let (server, _) = server(Wire::Plain, 1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut head = Vec::new();
    frame::encode_hello(&mut head, VERSION, 1, &hello(1, 1));
    stream.write_all(&head).unwrap();
    stream.read_exact(&mut [0; HEADER]).unwrap();
    let (pages, bytes) = pages(0..1);
    let store = Request::Store { pages: pages.clone(), bytes };
    let fetch = Request::Fetch { pages, releases: vec![] };
    let bound = hello(1, 1).bound(VERSION);
    let mut took = Vec::new();
    for id in 2..2000 {
        let request = if id == 2 { &store } else { &fetch };
        let bytes = frame::encode_request(&mut head, &bound, id, request).unwrap();
        head.extend_from_slice(bytes);
        std::thread::sleep(Duration::from_micros(300));
        let start = Instant::now();
        stream.write_all(&head).unwrap();
        let page = if id == 2 { 0 } else { PAGE };
        stream.read_exact(&mut vec![0; HEADER + ENTRY + page]).unwrap();
        took.push(start.elapsed().as_nanos());
    }
    print("plain, 1 page, both sides blocking", took);
}

fn print(what: &str, mut took: Vec<u128>) {
    took.sort_unstable();
    let of = |share: usize| took[took.len() * share / 1000] / 100;
    let (median, p99) = (of(500), of(990));
    println!("{what}: median {}.{} us, p99 {}.{} us", median / 10, median % 10, p99 / 10, p99 % 10);
}

fn figures(name: &str, link: &mut Link) {
    let (all, bytes) = pages(0..PAGES as u64);
    link.ask(&Request::Store { pages: all.clone(), bytes }, LONG).unwrap();
    let polling = ("polling", Duration::ZERO, 10_000);
    let blocking = ("blocking", Duration::from_micros(300), 2_000);
    for (count, (how, pause, rounds)) in [(1, polling), (1, blocking), (PAGES, polling)] {
        let fetch = Request::Fetch { pages: all[..count].to_vec(), releases: vec![] };
        let mut took = Vec::new();
        for _ in 0..rounds {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let start = Instant::now();
            link.send(&fetch, LONG).unwrap();
            assert!(link.poll_frame(LONG).unwrap().is_some());
            took.push(start.elapsed().as_nanos());
        }
        print(&format!("{name}, {count} pages, asker polling, other side {how}"), took);
    }
}
