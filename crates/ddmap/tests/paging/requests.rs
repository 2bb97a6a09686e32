//! Pages that a stream wants next are asked for before they are touched; what is coming is used in
//! the version in which it was asked for, and in no other one.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::control::connections::Links;
use crate::control::node_messages::{self, NodeReply};
use crate::control::transport::{Carrier, Fetch, GivenUp, Unreached};
use crate::protocol::messages::{Answer, KeptPage, Request};
use crate::protocol::{NodeId, PAGE, Version};
use crate::shared_memory::store::{Standing, Store};
use crate::tests::support::dir::TestDir;
use crate::wire::server::{Peer, Refusal, Server, Service};
use crate::wire::{Hello, Wire};

const LONG: Duration = Duration::from_secs(30);

/// A holder that has every page in every version, but for some; and remembers what it was asked.
#[derive(Default)]
struct Holder {
    fetched: Mutex<Vec<Vec<(u64, Version)>>>,
    released: Mutex<Vec<KeptPage>>,
    lacks: Mutex<Vec<u64>>,
}

/// What a page has in a version.
fn byte(page: u64, version: Version) -> u8 {
    (page as u8).wrapping_mul(16) ^ version.number() as u8
}

impl Service for Holder {
    fn hello(&self, _: &Hello) -> Result<(), Refusal> {
        Ok(())
    }

    fn serve(&self, _: &Peer, request: Request) -> Answer {
        match request {
            Request::Fetch { pages, releases } => {
                self.released.lock().unwrap().extend(releases);
                let lacks = self.lacks.lock().unwrap();
                let found: Vec<bool> = pages.iter().map(|one| !lacks.contains(&one.0)).collect();
                let there = pages.iter().zip(&found).filter(|one| *one.1).map(|one| one.0);
                let bytes = there.flat_map(|one| [byte(one.0, one.1); PAGE as usize]).collect();
                if !pages.is_empty() {
                    self.fetched.lock().unwrap().push(pages);
                }
                Answer::Fetched { found, bytes }
            }
            Request::Release { pages } => {
                let count = pages.len() as u32;
                self.released.lock().unwrap().extend(pages);
                Answer::Released(count)
            }
            Request::Ping => Answer::Pong { capacity: 1, used: 0 },
            _ => Answer::Control { text: node_messages::text(&NodeReply::Done) },
        }
    }

    fn bad(&self, _: &Peer, reason: &str) {
        panic!("{reason}");
    }
}

struct World {
    holder: Arc<Holder>,
    server: Option<Server>,
    links: Links,
    to: NodeId,
    store: Store,
    _folder: TestDir,
}

impl World {
    fn new() -> Self {
        let folder = TestDir::new();
        let (holder, to) = (Arc::new(Holder::default()), NodeId::new(2).unwrap());
        let store = Store::create(&folder.at("store")).unwrap();
        let hello = Hello {
            volume: [7; 16],
            node: NodeId::new(1).unwrap(),
            process: 3,
            session: 1,
            term: 1,
            store: 0,
        };
        let links = Links::new(store.clone(), hello, 1 << 20, Wire::Plain);
        let mut world = Self { holder, server: None, links, to, store, _folder: folder };
        world.start();
        world
    }

    fn start(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Arc::clone(&self.holder) as Arc<dyn Service>;
        let server = Server::start(listener, Wire::Plain, 1, service).unwrap();
        self.store.set_members(&[(self.to, server.address(), Standing::There, 0)]).unwrap();
        self.server = Some(server);
    }

    /// Pages in this version, and what is to come next.
    fn fetch(
        &self,
        version: u32,
        pages: &[u64],
        next: &[u64],
    ) -> Result<Vec<Option<u8>>, Unreached> {
        self.fetch_and_release(version, pages, next, &[])
    }

    fn fetch_and_release(
        &self,
        version: u32,
        pages: &[u64],
        next: &[u64],
        releases: &[u64],
    ) -> Result<Vec<Option<u8>>, Unreached> {
        let of = |pages: &[u64]| {
            pages.iter().map(|page| (*page, Version::new(version))).collect::<Vec<_>>()
        };
        let kept = |pages: &[u64]| {
            of(pages).into_iter().map(|(page, version)| KeptPage::new(page, version)).collect()
        };
        let fetch = Fetch { pages: of(pages), releases: kept(releases), next: of(next) };
        let Answer::Fetched { found, bytes } = self.links.fetch(self.to, fetch, LONG)? else {
            panic!("another answer")
        };
        let mut each = bytes.chunks_exact(PAGE as usize);
        let mut one = |found: bool| found.then(|| each.next().unwrap());
        let got = found.into_iter().map(|found| {
            one(found).map(|bytes| {
                assert!(bytes.iter().all(|other| *other == bytes[0]));
                bytes[0]
            })
        });
        Ok(got.collect())
    }

    fn of(version: u32, pages: &[u64]) -> Vec<Option<u8>> {
        pages.iter().map(|page| Some(byte(*page, Version::new(version)))).collect()
    }

    /// What was asked for since this was called last: page numbers.
    fn asked(&self) -> Vec<Vec<u64>> {
        let all = std::mem::take(&mut *self.holder.fetched.lock().unwrap());
        all.into_iter().map(|one| one.into_iter().map(|page| page.0).collect()).collect()
    }
}

#[test]
fn what_is_coming_is_not_asked_for_again() {
    let world = World::new();
    assert_eq!(world.fetch(1, &[1, 2], &[3, 4]), Ok(World::of(1, &[1, 2])));
    assert_eq!(world.fetch(1, &[3, 4], &[5, 6]), Ok(World::of(1, &[3, 4])));
    assert_eq!(world.fetch(1, &[6, 5], &[]), Ok(World::of(1, &[6, 5])), "in the order of this one");
    assert_eq!(world.asked(), [vec![1, 2], vec![3, 4], vec![5, 6]]);
    assert_eq!(world.links.given_up(false), GivenUp::default());
    assert_eq!(world.server.as_ref().unwrap().connections(), 1);
}

#[test]
fn what_is_wanted_besides_is_asked_for_and_what_is_not_was_in_vain() {
    let world = World::new();
    world.fetch(1, &[1], &[2, 3, 4]).unwrap();
    assert_eq!(world.fetch(1, &[9, 3, 8], &[]), Ok(World::of(1, &[9, 3, 8])));
    assert_eq!(world.asked(), [vec![1], vec![2, 3, 4], vec![9, 8]]);
    assert_eq!(world.links.given_up(false).pages, 2);
    // Another stream has a connection of its own, and the first one's goes on.
    world.fetch(1, &[20], &[21]).unwrap();
    world.fetch(1, &[30], &[31]).unwrap();
    assert_eq!(world.fetch(1, &[21], &[]), Ok(World::of(1, &[21])));
    assert_eq!(world.fetch(1, &[31], &[]), Ok(World::of(1, &[31])));
    assert_eq!(world.asked(), [[20], [21], [30], [31]]);
    assert_eq!(world.links.given_up(true), GivenUp::default());
}

#[test]
fn bytes_of_another_version_are_never_given() {
    let world = World::new();
    world.fetch(1, &[1], &[2, 3]).unwrap();
    // It came, was changed, and left since.
    assert_eq!(world.fetch(3, &[2, 3], &[]), Ok(World::of(3, &[2, 3])));
    // One that was not there when it was asked for ahead is asked for once more.
    world.fetch(3, &[2], &[4, 5]).unwrap();
    world.holder.lacks.lock().unwrap().push(6);
    world.fetch(3, &[4, 5], &[6, 7]).unwrap();
    world.links.ask(world.to, &Request::Ping, LONG).unwrap();
    world.holder.lacks.lock().unwrap().clear();
    assert_eq!(world.fetch(3, &[6, 7], &[]), Ok(World::of(3, &[6, 7])));
    world.holder.lacks.lock().unwrap().push(8);
    assert_eq!(world.fetch(3, &[8], &[]), Ok(vec![None]));
}

#[test]
fn a_holder_that_is_started_anew_is_asked_anew() {
    let mut world = World::new();
    assert_eq!(world.fetch_and_release(1, &[1], &[2, 3], &[]), Ok(World::of(1, &[1])));
    assert_eq!(world.fetch_and_release(1, &[2, 3], &[4, 5], &[1]), Ok(World::of(1, &[2, 3])));
    world.server = None;
    world.start();
    world.asked();
    assert_eq!(world.fetch(1, &[4, 5], &[]), Ok(World::of(1, &[4, 5])));
    let given = world.links.given_up(false);
    let heard = world.holder.released.lock().unwrap().len();
    // What was to be dropped was heard, or it is said that it may not have been.
    assert!(given.is_untold || heard == 1, "{given:?}, {heard}");
}

#[test]
fn releases_go_with_what_is_asked_for_next_and_are_heard_at_the_end() {
    let world = World::new();
    world.fetch(1, &[1], &[2]).unwrap();
    world.fetch_and_release(1, &[2], &[3], &[1]).unwrap();
    world.fetch_and_release(1, &[3], &[], &[2]).unwrap();
    world.links.ask(world.to, &Request::Ping, LONG).unwrap();
    world.links.given_up(true);
    let heard: Vec<u64> =
        world.holder.released.lock().unwrap().iter().map(|one| one.page).collect();
    assert_eq!(heard, [1, 2]);
}

#[test]
fn more_than_some_connections_are_not_kept_for_what_is_coming() {
    let world = World::new();
    for stream in 0..20 {
        world.fetch(1, &[stream * 100], &[stream * 100 + 1]).unwrap();
    }
    let connections = world.server.as_ref().unwrap().connections();
    assert!(connections <= 8, "{connections}");
    assert_eq!(world.links.given_up(false).pages as usize, 20 - connections);
    world.links.given_up(true);
}
