//! What a person orders: a node gives its pages up, or is removed from the domain; a volume is
//! removed.
//!
//! The first node says how nodes stand, and all hear of it with the next beat. A host brings the
//! pages home that a draining node keeps; from there they leave for others as any page does.

use super::jobs::Answers;
use super::{BEAT, Shared, say};
use crate::control::local_socket::LocalReply;
use crate::control::node_messages::{NodeReply, NodeRequest};
use crate::membership::saying::say_to;
use crate::paging::attachment::pager_of;
use crate::paging::pager::PagerOptions;
use crate::protocol::messages::PAGES;
use crate::protocol::{NodeId, PAGE};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::Standing;
use crate::shared_memory::view::REGION;
use pmem::{Access, OpenOptions, Pager, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A node that is to be first has asked the others by then.
const STANDS: Duration = Duration::from_secs(4);

fn answer(told: Result<NodeReply, DomainError>) -> LocalReply {
    match told {
        Ok(NodeReply::Done) => LocalReply::Done,
        Ok(NodeReply::Refused { text }) => LocalReply::Refused { text },
        Ok(_) => LocalReply::Refused { text: "the first node answers something else".to_owned() },
        Err(error) => LocalReply::Refused { text: error.to_string() },
    }
}

impl Shared {
    /// A node is to stand so: the first one is told, or the one that is first by now.
    pub(super) fn mark(&self, node: u16, standing: Standing) -> LocalReply {
        let mut told = Ok(self.answering.mark(node, standing));
        for _ in 0..2 {
            let Ok(NodeReply::Led { address: Some(first), .. }) = &told else { break };
            let ask = NodeRequest::Mark { node, standing };
            told = say(*first, &self.about, None, &ask, &self.wire);
        }
        answer(told)
    }

    /// A node is to be the domain's first: it is asked to.
    pub(super) fn make_first(&self, to: u16, force: bool) -> LocalReply {
        let refused = |text: String| LocalReply::Refused { text };
        if to == self.about.node {
            return match self.leadership.stand(force) {
                Ok(()) => LocalReply::Done,
                Err(text) => refused(text),
            };
        }
        let all = self.members.addresses().into_iter();
        let Some((_, address, standing, store)) = all.into_iter().find(|one| one.0.number() == to)
        else {
            return refused(format!("the domain has no node {to}"));
        };
        if standing == Standing::Gone {
            return refused(format!("node {to} was removed from the domain"));
        }
        let ask = NodeRequest::BeFirst { domain: self.domain.clone(), node: to, force };
        let told = say_to(STANDS, (address, store), &self.about, (&ask, &self.wire));
        answer(told.map_err(|unsaid| unsaid.error))
    }

    /// A volume of this node's is removed, unless a program has it.
    pub(super) fn remove(&self, volume: &str) -> LocalReply {
        let removed = self.hosts.find(volume).and_then(|hosted| {
            let ground = hosted.evictor.ground();
            let table = &ground.table;
            let attached = table.processes().into_iter();
            let others = attached.filter(|one| *one != table.me() && !table.is_dead(*one)).count();
            if others > 0 {
                let found = format!("{others} processes have it attached");
                return Err(DomainError::new(format!("remove {volume}"), found, "end them"));
            }
            // What is on its way to a holder arrives before that is told to drop it.
            hosted.close();
            self.store.discard_volume(volume).inspect_err(|_| hosted.open())?;
            self.hosts.forget(volume);
            Ok(())
        });
        match removed {
            Ok(()) => LocalReply::Removed { waits_for: self.finish_removals() },
            Err(error) => LocalReply::Refused { text: error.to_string() },
        }
    }

    /// Has all nodes drop what they keep of volumes that were removed, and removes what is left of
    /// them here: gives the nodes that do not answer, which are asked again later.
    pub(super) fn finish_removals(&self) -> Vec<u16> {
        let mut silent = Vec::new();
        for (folder, about) in self.store.discarded() {
            let volume = Some((about.uuid, about.term));
            let before = silent.len();
            for (node, address, standing, _) in self.members.addresses() {
                if node == self.here() || standing == Standing::Gone {
                    continue;
                }
                let told = say(address, &self.about, volume, &NodeRequest::Drop, &self.wire);
                if !matches!(told, Ok(NodeReply::Done)) {
                    silent.push(node.number());
                }
            }
            if silent.len() == before {
                // What cannot be removed is tried again.
                let _ = os::remove_all(&folder);
                self.uncounted.store(true, Ordering::Relaxed);
            }
        }
        silent.sort_unstable();
        silent.dedup();
        silent
    }

    /// The thread that brings the pages of draining nodes home, and does what takes a while.
    pub(super) fn drain(&self) {
        self.answering.take_over_here();
        let mut answers = Answers::new();
        while !self.over.load(Ordering::Relaxed) {
            self.do_orders();
            self.take_arrivals();
            let is_awaited = self.finish_moves(&mut answers);
            let mut draining = self.members.draining();
            draining.retain(|node| *node != self.here());
            for hosted in self.hosts.known() {
                // What a third node has comes home, and leaves for two.
                let pages = hosted.copies.take_equal().into_iter();
                let moved = self.bring(hosted.name(), pages, (BEAT, &|| true), |_| {});
                if let Err(error) = moved {
                    eprintln!("solera: node: {error}");
                }
            }
            for name in self.store.volumes() {
                if !draining.is_empty()
                    && let Err(error) = self.bring_home(&name, &draining)
                {
                    eprintln!("solera: node: {error}");
                }
            }
            Self::rest(is_awaited);
        }
    }

    fn bring_home(&self, name: &str, draining: &[NodeId]) -> Result<(), DomainError> {
        let hosted = self.hosts.find(name)?;
        let ground = hosted.evictor.ground();
        let is_there = |page: &u64| {
            let holders =
                ground.place(*page).map_or([None; 2], |place| place.holders(ground.here()));
            holders.into_iter().flatten().any(|holder| draining.contains(&holder))
        };
        let pages = ground.table.touched().filter(is_there);
        // What somebody orders does not wait for a node that does not answer.
        let goes_on = || !self.orders.are_waiting();
        self.bring(name, pages, (BEAT, &goes_on), |_| {})
    }

    /// Brings pages of a volume of this node's, as long as `goes_on` says so, and waits so long for
    /// each; `tell` hears how many it has tried.
    pub(super) fn bring(
        &self,
        name: &str,
        pages: impl Iterator<Item = u64>,
        (patience, goes_on): (Duration, &dyn Fn() -> bool),
        tell: impl Fn(u64),
    ) -> Result<(), DomainError> {
        let (mut pages, mut done) = (pages.peekable(), 0);
        if pages.peek().is_none() {
            return Ok(());
        }
        let asked = format!("fetch the pages of {name}");
        let path = self.store.volume(name).join(REGION);
        let Some(pager) = pager_of(&path, PagerOptions { patience, ..PagerOptions::default() })?
        else {
            return Ok(());
        };
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let mut region =
            Region::open(&path, &options).map_err(|error| DomainError::new(&asked, error, ""))?;
        region.set_pager(Arc::clone(&pager) as Arc<dyn Pager>);
        while !self.over.load(Ordering::Relaxed) {
            let batch: Vec<u64> = pages.by_ref().take(PAGES).collect();
            if batch.is_empty() {
                break;
            }
            let ranges: Vec<_> = batch.iter().map(|page| (page * PAGE, PAGE)).collect();
            // To be stored to: the node that gives it keeps no spare.
            pager.ready(&ranges, Access::Store);
            done += batch.len() as u64;
            for page in batch {
                if !goes_on() {
                    return Ok(());
                }
                // One that cannot be had now is tried again in the next round.
                let _ = pager.fault(page * PAGE, Access::Store);
            }
            tell(done);
        }
        Ok(())
    }
}
