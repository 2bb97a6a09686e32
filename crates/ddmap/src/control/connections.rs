//! The connections of a process to holders: made when they are wanted first, kept for the next
//! request.
//!
//! On an idle connection pages may be *coming* that nobody has wanted yet: those that a stream
//! wants next were asked for when the last ones had come, so that the holder works while the
//! program does. The answer stays in the socket until a fetch wants those pages in those versions.
//! It is no claim: a thread that brings a page claims it, and looks at its version, behind that.
//!
//! Locks: `idle`, to take a connection and to give it back; `listed`, for a moment; none while a
//! request is under way.

use crate::control::interruption;
use crate::control::node_messages::{self, NodeReply};
use crate::control::transport::{Carrier, Fetch, GivenUp, Unreached};
use crate::protocol::messages::{Answer, KeptPage, Request};
use crate::protocol::{NodeId, PAGE, Version};
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::store::{Listed, Standing, Store};
use crate::wire::link::{Link, LinkError};
use crate::wire::{Hello, Wire};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait looks that often whether a signal has come.
const LOOK: Duration = Duration::from_millis(10);
/// A holder that does not answer a connection in that time is not there.
const CONNECT: Duration = Duration::from_secs(2);
/// Idle connections, of which others than those over which pages are coming are made without end.
const COMING_MAX: usize = 8;

/// Connections to holders for one volume.
pub struct Links {
    store: Store,
    /// The nodes as the store listed them last: a program that has become another user, or has got
    /// another root, cannot look there any more.
    listed: ForkLock<Vec<Listed>>,
    hello: Hello,
    /// Its process and session, which a child has of its own.
    own: ForkLock<(u64, u32)>,
    /// Pages of the region: a holder that has none of them yet is told.
    pages: u64,
    wire: Wire,
    /// Whether an answer is polled for before a thread blocks.
    polls: bool,
    idle: ForkLock<Vec<Idle>>,
    /// Pages that came, or were coming, in vain; and whether a holder may not have heard what it is
    /// to drop.
    in_vain: AtomicU64,
    is_untold: AtomicBool,
}

/// A connection that nobody uses.
struct Idle {
    node: NodeId,
    link: Link,
    coming: Option<Coming>,
}

impl Idle {
    /// Those that are coming.
    fn pages(&self) -> &[(u64, Version)] {
        self.coming.as_ref().map_or(&[], |coming| &coming.pages)
    }
}

/// What was asked for, and is coming.
struct Coming {
    pages: Vec<(u64, Version)>,
    /// The request says what is to be dropped, too.
    releases: bool,
}

impl Links {
    /// Of a process that says so of itself, and finds the nodes in its node's store.
    pub fn new(store: Store, hello: Hello, pages: u64, wire: Wire) -> Self {
        let own = ForkLock::new((hello.process, hello.session));
        let listed = ForkLock::new(store.members());
        let (idle, in_vain, is_untold) = (ForkLock::new(Vec::new()), 0.into(), false.into());
        Self { store, listed, hello, own, pages, wire, polls: true, idle, in_vain, is_untold }
    }

    /// The same of a side for which nobody waits: its processor is worth more than its time.
    #[must_use]
    pub fn blocking(self) -> Self {
        Self { polls: false, ..self }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock()
    }

    /// Where a node is reached, and which store it has: another one under its number is not it.
    fn address(&self, node: NodeId) -> Result<(SocketAddr, u64), Unreached> {
        self.learn();
        match self.listed.lock().iter().find(|member| member.0 == node) {
            Some((_, _, Standing::Gone, _)) => Err(Unreached::Gone),
            Some((_, address, _, store)) => Ok((*address, *store)),
            None => Err(Unreached::Silent),
        }
    }

    /// The round trip to a node, in us, as TCP measures it, if a connection to it is idle.
    pub fn rtt_us(&self, to: NodeId) -> Option<u32> {
        self.idle().iter().find(|one| one.node == to)?.link.rtt_us()
    }

    fn connect(&self, node: NodeId, end: Instant) -> Result<Link, Unreached> {
        let end = end.min(Instant::now() + CONNECT);
        let (address, store) = self.address(node)?;
        let (process, session) = *self.own.lock();
        let hello = Hello { process, session, store, ..self.hello };
        let goes_on = || interruption::interrupted().is_none();
        let link = Link::connect_while(
            address,
            end.saturating_duration_since(Instant::now()),
            &hello,
            &self.wire,
            &goes_on,
        );
        let mut link = link.map_err(|_| Unreached::Silent)?;
        if !self.polls {
            link.block();
        }
        let text = node_messages::text(&node_messages::NodeRequest::Hold {
            pages: self.pages,
            node: node.number(),
        });
        match Self::ask_over(&mut link, &Request::Control { text }, end) {
            Ok(Answer::Control { text }) if node_messages::parse(&text) == Ok(NodeReply::Done) => {
                Ok(link)
            }
            _ => Err(Unreached::Silent),
        }
    }

    /// Takes a connection over which these pages are coming; else one over which nothing is. If
    /// there are many of others, one of them gives up what is coming.
    fn take(&self, to: NodeId, wanted: &[(u64, Version)]) -> Option<Idle> {
        let mut idle = self.idle();
        let is_of = |one: &Idle| one.node == to;
        let coming = |one: &Idle, page| one.pages().contains(page);
        let at = idle
            .iter()
            .position(|one| is_of(one) && wanted.iter().any(|page| coming(one, page)))
            .or_else(|| idle.iter().position(|one| is_of(one) && one.pages().is_empty()))
            .or_else(|| idle.iter().position(is_of).filter(|_| idle.len() >= COMING_MAX))?;
        Some(idle.swap_remove(at))
    }

    /// Asks over a connection. A connection whose answer was not waited for is closed: nobody
    /// could tell its answer from the next one's.
    fn ask_over(link: &mut Link, request: &Request, end: Instant) -> Result<Answer, LinkError> {
        let left = || end.saturating_duration_since(Instant::now());
        link.send(request, left())?;
        loop {
            match Self::answer(link, end) {
                Err(LinkError::Damaged { .. }) => link.send(request, left())?,
                answered => return answered,
            }
        }
    }

    /// Waits for the answer to what was sent.
    fn answer(link: &mut Link, end: Instant) -> Result<Answer, LinkError> {
        let left = || end.saturating_duration_since(Instant::now());
        loop {
            match link.poll_answer(LOOK.min(left()))? {
                Some(answer) => return Ok(answer),
                None if left().is_zero() || interruption::interrupted().is_some() => {
                    return Err(LinkError::Late);
                }
                None => {}
            }
        }
    }

    /// Asks over a connection that was idle, or was not there.
    fn ask_by(
        &self,
        (to, idle): (NodeId, Option<Link>),
        request: &Request,
        end: Instant,
    ) -> Result<(Link, Answer), Unreached> {
        let was_idle = idle.is_some();
        let mut link = idle.map_or_else(|| self.connect(to, end), Ok)?;
        let mut outcome = Self::ask_over(&mut link, request, end);
        // What was sent over it before may not have been heard.
        self.is_untold.fetch_or(was_idle && outcome.is_err(), Ordering::Relaxed);
        if was_idle && matches!(outcome, Err(LinkError::Closed(_))) {
            // The holder was started anew meanwhile, say: once more, by a new connection. What it
            // may have done by the first request it does not do twice, for versions tell.
            link = self.connect(to, end)?;
            outcome = Self::ask_over(&mut link, request, end);
        }
        Ok((link, outcome.map_err(|_| Unreached::Silent)?))
    }

    /// Nobody waits any more for what is coming.
    fn give_up(&self, coming: &Coming) {
        self.in_vain.fetch_add(coming.pages.len() as u64, Ordering::Relaxed);
    }

    /// What has come, if it is what was asked for. `None`: the connection is as good as new, or has
    /// ended.
    fn came(
        &self,
        link: &mut Link,
        coming: Coming,
        end: Instant,
    ) -> Result<Option<Came>, Unreached> {
        let untold = || self.is_untold.fetch_or(coming.releases, Ordering::Relaxed);
        match Self::answer(link, end) {
            Ok(Answer::Fetched { found, bytes }) => {
                let here = coming.pages.into_iter().zip(found).filter(|one| one.1).map(|one| one.0);
                Ok(Some(Came { pages: here.collect(), bytes }))
            }
            Err(LinkError::Late) => {
                untold();
                Err(Unreached::Silent)
            }
            _ => {
                untold();
                self.give_up(&coming);
                Ok(None)
            }
        }
    }

    /// Asks for pages that nobody waits for, and puts the connection back.
    fn leave(&self, node: NodeId, mut link: Link, releases: Vec<KeptPage>, fetch: Fetch) {
        let (pages, releases_any) = (fetch.next, !releases.is_empty());
        if pages.is_empty() && !releases_any {
            return self.idle().push(Idle { node, link, coming: None });
        }
        let request = Request::Fetch { pages, releases };
        let sent = link.send(&request, LOOK);
        let Request::Fetch { pages, .. } = request else { return };
        match sent {
            Ok(()) => {
                let coming = Some(Coming { pages, releases: releases_any });
                self.idle().push(Idle { node, link, coming });
            }
            Err(_) => _ = self.is_untold.fetch_or(releases_any, Ordering::Relaxed),
        }
    }
}

/// Pages that have come ahead.
struct Came {
    pages: Vec<(u64, Version)>,
    bytes: Vec<u8>,
}

impl Came {
    fn find(&self, page: (u64, Version)) -> Option<&[u8]> {
        let at = self.pages.iter().position(|one| *one == page)? * PAGE as usize;
        self.bytes.get(at..at + PAGE as usize)
    }

    /// These pages, with others that were asked for besides: `None` if those do not fit.
    fn with(self, pages: &[(u64, Version)], others: Option<Answer>) -> Option<Answer> {
        if self.pages == pages {
            return Some(Answer::Fetched { found: vec![true; pages.len()], bytes: self.bytes });
        }
        let (there, rest) = match others {
            Some(Answer::Fetched { found, bytes }) => (found, bytes),
            Some(other) => return Some(other),
            None => Default::default(),
        };
        let (mut there, mut rest) = (there.into_iter(), rest.chunks_exact(PAGE as usize));
        let (mut found, mut bytes) = (Vec::new(), Vec::with_capacity(pages.len() * PAGE as usize));
        for page in pages {
            let one = match self.find(*page) {
                Some(one) => Some(one),
                None if there.next()? => Some(rest.next()?),
                None => None,
            };
            found.push(one.is_some());
            bytes.extend_from_slice(one.unwrap_or_default());
        }
        Some(Answer::Fetched { found, bytes })
    }
}

impl Carrier for Links {
    fn forked(&self, slot: u16, life: u32) {
        let listed = self.listed.get().try_lock().map(|listed| listed.clone()).unwrap_or_default();
        self.listed.renew(listed);
        self.idle.renew(Vec::new());
        self.own.renew((u64::from(slot), life));
        self.in_vain.store(0, Ordering::Relaxed);
        self.is_untold.store(false, Ordering::Relaxed);
    }

    fn learn(&self) {
        let now = self.store.members();
        if !now.is_empty() {
            *self.listed.lock() = now;
        }
    }

    fn ask(&self, to: NodeId, request: &Request, patience: Duration) -> Result<Answer, Unreached> {
        let fetch = match request {
            Request::Fetch { pages, releases } => {
                let (pages, releases) = (pages.clone(), releases.clone());
                return self.fetch(to, Fetch { pages, releases, next: Vec::new() }, patience);
            }
            _ => Fetch::default(),
        };
        let end = Instant::now() + patience;
        let idle = self.take(to, &[]);
        if let Some(coming) = idle.as_ref().and_then(|idle| idle.coming.as_ref()) {
            self.give_up(coming);
        }
        let (link, answer) = self.ask_by((to, idle.map(|idle| idle.link)), request, end)?;
        self.leave(to, link, Vec::new(), fetch);
        Ok(answer)
    }

    fn fetch(&self, to: NodeId, fetch: Fetch, patience: Duration) -> Result<Answer, Unreached> {
        let end = Instant::now() + patience;
        let (mut link, mut came) = (None, None);
        if let Some(idle) = self.take(to, &fetch.pages) {
            let found = link.insert(idle.link);
            if let Some(coming) = idle.coming {
                came = self.came(found, coming, end)?;
            }
        }
        let is_there = |page: &(u64, Version)| {
            came.as_ref().is_some_and(|came: &Came| came.find(*page).is_some())
        };
        let rest: Vec<_> = fetch.pages.iter().copied().filter(|page| !is_there(page)).collect();
        if let Some(came) = &came {
            let used = fetch.pages.len() - rest.len();
            self.in_vain.fetch_add((came.pages.len() - used) as u64, Ordering::Relaxed);
        }
        let (releases, pages) = (fetch.releases.clone(), fetch.pages.clone());
        let (link, later, others) = match link {
            Some(link) if rest.is_empty() => (link, releases, None),
            link => {
                let request = Request::Fetch { pages: rest, releases };
                let (link, answer) = self.ask_by((to, link), &request, end)?;
                (link, Vec::new(), Some(answer))
            }
        };
        self.leave(to, link, later, fetch);
        match (came, others) {
            (None, Some(answer)) => Ok(answer),
            (came, others) => {
                came.and_then(|came| came.with(&pages, others)).ok_or(Unreached::Silent)
            }
        }
    }

    fn given_up(&self, all: bool) -> GivenUp {
        if all {
            let idle = std::mem::take(&mut *self.idle());
            let end = Instant::now() + LOOK;
            for Idle { mut link, coming, .. } in idle {
                if let Some(coming) = coming {
                    self.give_up(&coming);
                    // A holder that has answered has heard the rest, too.
                    if coming.releases && Self::answer(&mut link, end).is_err() {
                        self.is_untold.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        GivenUp {
            pages: self.in_vain.swap(0, Ordering::Relaxed),
            is_untold: self.is_untold.swap(false, Ordering::Relaxed),
        }
    }
}
