//! What a node answers to other nodes, and to their programs.
//!
//! Locks: `kept`, to find what is kept of a region; it is made under it.

use crate::control::node_messages::{self, Member, NodeReply, NodeRequest};
use crate::control::status::KeptStatus;
use crate::control::turns::Handovers;
use crate::membership::leadership::Leadership;
use crate::membership::members::Members;
use crate::membership::saying::say_to;
use crate::node::arrivals::{Arrivals, told};
use crate::node::held_region::HeldRegion;
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{NodeId, TERM};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::store::{Standing, Store};
use crate::shared_memory::table::Table;
use crate::wire::server::{Peer, Refusal, Service};
use crate::wire::{Hello, NO_VOLUME, Wire};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most pages that a region can have: 16 TiB.
const PAGES_MAX: u64 = 1 << 32;
/// The most regions of which a node keeps pages: each is mapped whole.
const KEPT_MAX: usize = 256;
/// A region may have so many pages in any case.
const PAGES_MIN: u64 = 1 << 16;
/// And so many times what the nodes have: a volume may be as large as nodes allow that have joined
/// just now, of which this one hears a second later.
const UNHEARD: u64 = 4;
/// And the most pages of all of them: half of a process's addresses.
const MAPPED_MAX: u64 = 1 << 34;

/// The answering side of a node.
pub struct Answering {
    domain: String,
    about: Member,
    wire: Wire,
    pub(super) store: Store,
    pub(super) here: NodeId,
    room: Arc<Capacity>,
    members: Arc<Members>,
    leadership: Arc<Leadership>,
    kept: Mutex<BTreeMap<[u8; 16], Arc<HeldRegion>>>,
    pub(super) arrivals: Arrivals,
    pub(super) handovers: Handovers,
}

pub(super) fn refused(errno: Errno, text: impl Into<String>) -> Answer {
    Answer::Refused { errno: errno.raw_os_error() as u16, text: text.into() }
}

impl Answering {
    /// Of a node, with what it kept before.
    pub fn new(
        (domain, wire): (String, Wire),
        store: Store,
        (here, about): (NodeId, Member),
        room: Arc<Capacity>,
        (members, leadership): (Arc<Members>, Arc<Leadership>),
    ) -> Self {
        let (kept, arrivals) = (Mutex::default(), Arrivals::default());
        let handovers = Handovers::new();
        Self {
            domain,
            about,
            wire,
            store,
            here,
            room,
            members,
            leadership,
            kept,
            arrivals,
            handovers,
        }
    }

    /// A node says that it is there. Its store may be a copy of that of one that is there, too:
    /// then that one answers where it was heard of.
    fn join(&self, member: Member) -> NodeReply {
        // The one that asks waits for twice as long as this takes.
        let is_other = |at: &SocketAddr| {
            let who = (&NodeRequest::Who, &self.wire);
            let told = say_to(super::BEAT / 2, (*at, 0), &self.about, who);
            matches!(told, Ok(NodeReply::Members { you, .. }) if you == member.node)
        };
        match self.members.elsewhere(&member).filter(is_other) {
            Some(at) => NodeReply::Refused {
                text: format!(
                    "node {} is at {at}, and answers there; this store is a copy of its, or it is \
                     about to end: give a node a --store of its own",
                    member.node
                ),
            },
            None => self.admit(member),
        }
    }

    fn admit(&self, member: Member) -> NodeReply {
        if let Some(refused) = self.members.refuses(&member) {
            return refused;
        }
        match self.leadership.admit(member) {
            Ok(you) => {
                let (all, terms) = (self.members.list(), self.leadership.terms());
                NodeReply::Members { you, all, terms }
            }
            // A later reign has begun.
            Err(_) if !self.leadership.is_here() => self.leadership.led(),
            Err(text) => NodeReply::Refused { text },
        }
    }

    /// Says how a node stands from now on: the store has it, too, before it is said to be done. The
    /// first does, if no later one is known to those that are there.
    pub fn mark(&self, node: u16, standing: Standing) -> NodeReply {
        if self.leadership.is_here() {
            self.leadership.look_around();
        }
        if !self.leadership.is_here() {
            return self.leadership.led();
        }
        let told = self.members.mark(node, standing, self.here.number());
        match self.store.set_members(&self.members.addresses()) {
            Err(error) if told == NodeReply::Done => NodeReply::Refused { text: error.to_string() },
            _ => told,
        }
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Arc<HeldRegion>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens all that is kept. What cannot be opened is said, and left alone.
    pub fn open_all(&self) -> Vec<String> {
        let open = |uuid: &[u8; 16]| self.hold(uuid, (0, TERM), 0).err();
        self.store.all_kept().iter().filter_map(open).collect()
    }

    /// What is kept of a region; of one of which nothing is kept yet, with so many pages.
    pub(super) fn hold(
        &self,
        uuid: &[u8; 16],
        host: (u16, u32),
        pages: u64,
    ) -> Result<Arc<HeldRegion>, String> {
        let mut kept = self.kept();
        let folder = self.store.kept(uuid);
        if let Some(found) = kept.get(uuid) {
            if pages <= found.pages() {
                return Ok(Arc::clone(found));
            }
        } else if self.host_of(uuid).is_some() {
            return Err(format!("{} is the host of this volume", self.here));
        }
        if kept.len() == KEPT_MAX && pages > 0 && !kept.contains_key(uuid) {
            return Err(format!("pages of {KEPT_MAX} regions are kept here, and no more can be"));
        }
        // What is there already has its addresses, or had them in its last life.
        if kept.contains_key(uuid) || !Table::is_made(&folder) {
            let others = kept.iter().filter(|one| one.0 != uuid).map(|one| one.1.pages()).sum();
            self.check_pages(pages, others)?;
        }
        if kept.contains_key(uuid) {
            // The volume has grown since.
            HeldRegion::grow(&folder, pages)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let made = HeldRegion::open(&folder, host, pages, Arc::clone(&self.room))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let made = Arc::new(made);
        kept.insert(*uuid, Arc::clone(&made));
        Ok(made)
    }

    /// Refuses a region of so many pages, beside the pages of others, that no volumes of the domain
    /// can have, or that there are no addresses for.
    fn check_pages(&self, pages: u64, others: u64) -> Result<(), String> {
        let known = self.members.pages().unwrap_or(PAGES_MAX);
        let most = known.saturating_mul(UNHEARD).clamp(PAGES_MIN, PAGES_MAX);
        if pages > most {
            return Err(format!(
                "a region of {pages} pages is none of this domain's, whose nodes have {known}"
            ));
        }
        // Volumes that were removed may be kept still.
        if others.saturating_add(pages) > most.saturating_mul(2).min(MAPPED_MAX) {
            return Err(format!(
                "{others} pages of other regions are mapped here, and {pages} more are beyond what \
                 the volumes of this domain can have"
            ));
        }
        Ok(())
    }

    /// Drops all that is kept of a region that was removed.
    fn drop_kept(&self, uuid: &[u8; 16]) {
        let dropped = self.kept().remove(uuid);
        if let Some(dropped) = dropped {
            dropped.drop_all();
            // What is left of it is opened at the next start, and keeps nothing.
            let _ = os::remove_all(&self.store.kept(uuid));
        }
    }

    /// Drops what is kept for hosts that were removed from the domain, if no other node says that
    /// it is the host.
    pub fn drop_for(&self, gone: &[NodeId], is_hosted: impl Fn([u8; 16]) -> bool) {
        let of = |(uuid, kept): (&[u8; 16], &Arc<HeldRegion>)| {
            kept.host().is_some_and(|host| gone.contains(&host)).then_some(*uuid)
        };
        let orphans: Vec<_> = self.kept().iter().filter_map(of).collect();
        let may_stay =
            |uuid: &[u8; 16]| self.store.may_come_back(uuid).is_some() || is_hosted(*uuid);
        for uuid in orphans.into_iter().filter(|uuid| !may_stay(uuid)) {
            self.drop_kept(&uuid);
        }
    }

    /// Drops so many spares, if there are as many: how many it did.
    pub fn drop_spares(&self, wanted: u64) -> u64 {
        let all: Vec<_> = self.kept().values().cloned().collect();
        all.iter().fold(0, |done, kept| done + kept.drop_spares(wanted - done))
    }

    /// How many there are.
    pub fn spares(&self) -> u64 {
        self.kept().values().map(|kept| kept.spares()).sum()
    }

    /// Pages that are kept, by region, spares too.
    pub fn status(&self) -> Vec<KeptStatus> {
        let status = |(uuid, kept): (&[u8; 16], &Arc<HeldRegion>)| KeptStatus {
            uuid: format!("{:032x}", u128::from_be_bytes(*uuid)),
            pages: kept.pages_in_file(),
        };
        self.kept().iter().map(status).collect()
    }

    fn not_meant(&self, node: u16) -> String {
        format!("node {node} is meant, and this is {}", self.here)
    }

    fn control(&self, hello: &Hello, text: &str) -> Answer {
        match node_messages::parse(text) {
            Err(found) => refused(Errno::INVAL, found),
            Ok(
                NodeRequest::Join { domain, .. }
                | NodeRequest::Lead { domain }
                | NodeRequest::BeFirst { domain, .. }
                | NodeRequest::Agree { domain, .. }
                | NodeRequest::Note { domain, .. },
            ) if domain != self.domain => {
                let text = format!("that is a node of {}, not of {domain}", self.domain);
                told(&NodeReply::Refused { text })
            }
            Ok(NodeRequest::Join { member, .. }) if self.leadership.is_here() => {
                told(&self.join(member))
            }
            Ok(NodeRequest::Join { .. } | NodeRequest::Lead { .. }) => told(&self.leadership.led()),
            Ok(NodeRequest::BeFirst { node, .. }) if node != self.here.number() => {
                told(&NodeReply::Refused { text: self.not_meant(node) })
            }
            Ok(NodeRequest::BeFirst { force, .. }) => told(&match self.leadership.stand(force) {
                Ok(()) => NodeReply::Done,
                Err(text) => NodeReply::Refused { text },
            }),
            Ok(NodeRequest::Agree { reign, .. }) => told(&self.leadership.agree(reign)),
            Ok(NodeRequest::Note { reign, numbers, all, .. }) => {
                told(&self.leadership.note(reign, numbers, all))
            }
            Ok(NodeRequest::Who) => {
                let (you, all) = (self.here.number(), vec![self.about.clone()]);
                told(&NodeReply::Members { you, all, terms: self.leadership.terms() })
            }
            Ok(NodeRequest::Mark { node, standing }) => told(&self.mark(node, standing)),
            Ok(NodeRequest::Drop) => {
                let kept = self.kept().get(&hello.volume).cloned();
                match kept.map_or(Ok(()), |kept| kept.hears(hello.node, hello.term)) {
                    Ok(()) => {
                        self.drop_kept(&hello.volume);
                        told(&NodeReply::Done)
                    }
                    // Another node's: nothing is kept for this one.
                    Err(_) => told(&NodeReply::Done),
                }
            }
            Ok(NodeRequest::Hold { .. }) if hello.volume == NO_VOLUME => {
                refused(Errno::INVAL, "a connection without a volume keeps nothing")
            }
            Ok(NodeRequest::Hold { node, .. }) if node != self.here.number() => {
                told(&NodeReply::Refused { text: self.not_meant(node) })
            }
            Ok(NodeRequest::Hold { pages, .. }) => {
                let held = self.hold(&hello.volume, (hello.node.number(), hello.term), pages);
                match held.and_then(|kept| kept.hears(hello.node, hello.term)) {
                    Ok(()) => {
                        // From a volume's new host: it is.
                        self.store.close_way_back(&hello.volume);
                        told(&NodeReply::Done)
                    }
                    Err(text) => told(&NodeReply::Refused { text }),
                }
            }
            Ok(NodeRequest::Where { name }) => {
                told(&self.tell_where(&hello.volume, name.as_deref()))
            }
            Ok(NodeRequest::Arrive(moved)) => told(&self.arrive(hello, moved)),
            Ok(NodeRequest::TakeOver { attempt, queue }) => {
                told(&self.to_take_over(&hello.volume, attempt, &queue))
            }
            Ok(
                said @ (NodeRequest::Want { .. }
                | NodeRequest::Unwant { .. }
                | NodeRequest::Wanted { .. }),
            ) => told(&self.hears_of_turns(hello.node.number(), said)),
            Ok(NodeRequest::Attempt { attempt }) => told(&self.tell_attempt(attempt)),
        }
    }
}

impl Service for Answering {
    fn hello(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.volume != NO_VOLUME && hello.node == self.here {
            let text = format!("{} asks itself for pages; two nodes have one number?", self.here);
            return Err(Refusal { errno: Errno::INVAL.raw_os_error() as u16, text });
        }
        if hello.store != 0 && hello.store != self.about.store {
            let text = format!("another store is meant, which was {} before", self.here);
            return Err(Refusal { errno: Errno::STALE.raw_os_error() as u16, text });
        }
        Ok(())
    }

    fn serve(&self, peer: &Peer, request: Request) -> Answer {
        let Some(hello) = &peer.hello else { return refused(Errno::PERM, "no hello was said") };
        match &request {
            Request::Control { text } => self.control(hello, text),
            Request::Ping => {
                let used = self.room.used().saturating_sub(self.spares());
                Answer::Pong { capacity: self.room.capacity(), used }
            }
            Request::Tables { pages, bytes } => self.put_tables(hello, pages, bytes),
            _ => {
                let kept = self.kept().get(&hello.volume).cloned();
                match kept.map(|kept| (kept.hears(hello.node, hello.term), kept)) {
                    Some((Ok(()), kept)) => kept.serve(&request),
                    Some((Err(text), _)) => refused(Errno::STALE, text),
                    None => refused(Errno::NOENT, "nothing is kept of this volume here"),
                }
            }
        }
    }

    fn bad(&self, peer: &Peer, reason: &str) {
        eprintln!("solera: node: the connection of {peer} is closed: {reason}");
    }
}
