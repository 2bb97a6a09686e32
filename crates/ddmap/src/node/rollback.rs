//! A volume comes back to its old host: the new one, which was to take it over, was removed from
//! the domain before it did (`shared_memory/migration.rs`, "The way back").

use super::{Shared, say};
use crate::control::node_messages::{NodeReply, NodeRequest};
use crate::protocol::NodeId;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::migration::Moved;
use crate::shared_memory::store::Standing;
use std::sync::atomic::Ordering;

impl Shared {
    /// How a node stands, if the domain knows it.
    fn standing(&self, node: u16) -> Option<Standing> {
        let all = self.members.addresses().into_iter();
        all.filter(|one| one.0.number() == node).map(|one| one.2).next()
    }

    /// Takes a volume back that has gone. Nobody may have stored to it since: neither its new host
    /// nor a holder that the new host has asked can say otherwise.
    pub(super) fn take_back(&self, moved: &Moved) -> Result<(), DomainError> {
        let (name, node) = (&moved.name, moved.node);
        let asked = format!("take {name} back from node {node}");
        if self.standing(node) != Some(Standing::Gone) {
            let found = format!("node {node} is to be its host, which is decided");
            let advice = way_back(&self.domain, moved, self.about.node);
            return Err(DomainError::new(asked, found, advice));
        }
        self.answering.keep_gone(moved)?;
        if self.store.may_come_back(&moved.uuid).is_none() {
            return Err(DomainError::new(asked, has_had_it(node), from_backup()));
        }
        for holder in self.store.holders_of(moved)? {
            self.check_holder(moved, holder, &asked)?;
        }
        self.answering.let_go(&moved.uuid);
        let taken = self.store.take_back(moved, self.here());
        self.uncounted.store(true, Ordering::Relaxed);
        taken?;
        self.hosts.find(name).map(drop)
    }

    /// Refuses where a holder has heard of the new host as such, or cannot say.
    fn check_holder(&self, moved: &Moved, holder: NodeId, asked: &str) -> Result<(), DomainError> {
        let all = self.members.addresses();
        let found = all.into_iter().find(|one| one.0 == holder && one.2 != Standing::Gone);
        // The pages of a node that was removed are lost with any host.
        let Some((_, address, ..)) = found.filter(|_| holder != self.here()) else { return Ok(()) };
        let volume = Some((moved.uuid, moved.term - 1));
        let ask = NodeRequest::Hold { pages: moved.pages, node: holder.number() };
        match say(address, &self.about, volume, &ask, &self.wire) {
            Ok(NodeReply::Done) => Ok(()),
            Ok(NodeReply::Refused { text }) => {
                self.store.close_way_back(&moved.uuid);
                let found = format!("{} ({holder}: {text})", has_had_it(moved.node));
                Err(DomainError::new(asked, found, from_backup()))
            }
            told => {
                let why = match told {
                    Err(error) => error.found,
                    Ok(_) => "it answers something else".to_owned(),
                };
                let found = format!(
                    "{holder} has pages of it, and does not say whether node {} has had it: {why}",
                    moved.node
                );
                Err(DomainError::new(asked, found, "start that node, then ask again"))
            }
        }
    }
}

fn has_had_it(node: u16) -> String {
    format!("node {node} has been its host, and what it had of the volume is gone with it")
}

fn from_backup() -> &'static str {
    "make the volume anew, from a backup: what nodes have of this one goes by itself"
}

/// What to do about a new host that has not said that it is.
pub(super) fn way_back(domain: &str, moved: &Moved, here: u16) -> String {
    let (name, node) = (&moved.name, moved.node);
    format!(
        "start that node: it takes the volume over by itself; if it will not come back: solera \
         domain forget {domain} {node}, then solera domain move {domain}/{name} --to {here}"
    )
}
