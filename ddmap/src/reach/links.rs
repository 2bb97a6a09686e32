//! The connections of a process to holders: made when they are wanted first, kept for the next
//! request.
//!
//! Locks: `idle`, to take a connection and to give it back; none while a request is under way.

use crate::ground::renewed::Renewed;
use crate::ground::store::{Standing, Store};
use crate::protocol::NodeId;
use crate::protocol::messages::{Answer, Request};
use crate::reach::carrier::{Carrier, Unreached};
use crate::reach::control::{self, Told};
use crate::reach::waiting;
use crate::wire::link::{Link, LinkError};
use crate::wire::{Hello, Wire};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A wait looks that often whether a signal has come.
const LOOK: Duration = Duration::from_millis(10);
/// A holder that does not answer a connection in that time is not there.
const CONNECT: Duration = Duration::from_secs(2);

/// Connections to holders for one volume.
pub struct Links {
    store: Store,
    hello: Hello,
    /// Its process and session, which a child has of its own.
    own: Renewed<(u64, u32)>,
    /// Pages of the region: a holder that has none of them yet is told.
    pages: u64,
    wire: Wire,
    /// Whether an answer is polled for before a thread blocks.
    polls: bool,
    idle: Renewed<Vec<(NodeId, Link)>>,
}

impl Links {
    /// Of a process that says so of itself, and finds the nodes in its node's store.
    pub fn new(store: Store, hello: Hello, pages: u64, wire: Wire) -> Self {
        let own = Renewed::new((hello.process, hello.session));
        Self { store, hello, own, pages, wire, polls: true, idle: Renewed::new(Vec::new()) }
    }

    /// The same of a side for which nobody waits: its processor is worth more than its time.
    #[must_use]
    pub fn blocking(self) -> Self {
        Self { polls: false, ..self }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(NodeId, Link)>> {
        self.idle.lock()
    }

    fn address(&self, node: NodeId) -> Result<SocketAddr, Unreached> {
        let found = self.store.members().into_iter().find(|member| member.0 == node);
        match found {
            Some((_, _, Standing::Gone)) => Err(Unreached::Gone),
            Some((_, address, _)) => Ok(address),
            None => Err(Unreached::Silent),
        }
    }

    /// The round trip to a node, in us, as TCP measures it, if a connection to it is idle.
    pub fn rtt_us(&self, to: NodeId) -> Option<u32> {
        self.idle().iter().find(|one| one.0 == to)?.1.rtt_us()
    }

    fn connect(&self, node: NodeId) -> Result<Link, Unreached> {
        let address = self.address(node)?;
        let (process, session) = *self.own.lock();
        let hello = Hello { process, session, ..self.hello };
        let goes_on = || waiting::interrupted().is_none();
        let link = Link::connect_while(address, CONNECT, &hello, &self.wire, &goes_on);
        let mut link = link.map_err(|_| Unreached::Silent)?;
        if !self.polls {
            link.block();
        }
        let text = control::text(&control::Ask::Hold { pages: self.pages, node: node.number() });
        match Self::ask_over(&mut link, &Request::Control { text }, Instant::now() + CONNECT) {
            Ok(Answer::Control { text }) if control::parse(&text) == Ok(Told::Done) => Ok(link),
            _ => Err(Unreached::Silent),
        }
    }

    /// Asks over a connection. A connection whose answer was not waited for is closed: nobody
    /// could tell its answer from the next one's.
    fn ask_over(link: &mut Link, request: &Request, end: Instant) -> Result<Answer, LinkError> {
        let left = || end.saturating_duration_since(Instant::now());
        link.send(request, left())?;
        loop {
            match link.poll_answer(LOOK.min(left())) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if left().is_zero() || waiting::interrupted().is_some() => {
                    return Err(LinkError::Late);
                }
                Ok(None) => {}
                Err(LinkError::Damaged { .. }) => link.send(request, left())?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Carrier for Links {
    fn forked(&self, slot: u16, life: u32) {
        self.idle.renew(Vec::new());
        self.own.renew((u64::from(slot), life));
    }

    fn ask(&self, to: NodeId, request: &Request, patience: Duration) -> Result<Answer, Unreached> {
        let end = Instant::now() + patience;
        let found = {
            let mut idle = self.idle();
            idle.iter().position(|one| one.0 == to).map(|at| idle.swap_remove(at).1)
        };
        let was_idle = found.is_some();
        let mut link = found.map_or_else(|| self.connect(to), Ok)?;
        let mut outcome = Self::ask_over(&mut link, request, end);
        if was_idle && matches!(outcome, Err(LinkError::Closed(_))) {
            // The holder was started anew meanwhile, say: once more, by a new connection. What it
            // may have done by the first request it does not do twice, for versions tell.
            link = self.connect(to)?;
            outcome = Self::ask_over(&mut link, request, end);
        }
        let answer = outcome.map_err(|_| Unreached::Silent)?;
        self.idle().push((to, link));
        Ok(answer)
    }
}
