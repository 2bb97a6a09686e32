//! Who is in a domain. Its first node, number 1, gives out the numbers and knows all; every other
//! one tells it each second that it is there, and hears of the rest.

use crate::control::node_messages::{Member, NODE_TIMEOUT, NodeReply};
use crate::node::uptime::Uptime;
use crate::protocol::NodeId;
use crate::shared_memory::store::{Listed, Standing};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A node, and when it was heard of, by this one's clock.
type Heard = (Member, Duration);

/// A domain's nodes.
#[derive(Default)]
pub struct Members {
    all: Mutex<Vec<Heard>>,
    awake: Uptime,
}

impl Members {
    fn all(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node runs: it would hear others now.
    pub fn look(&self) {
        self.awake.now();
    }

    /// Whether a node was heard of lately.
    fn is_heard(&self, one: &Heard) -> bool {
        self.silence(one) < NODE_TIMEOUT
    }

    /// How long it was silent, while this one would have heard it.
    fn silence(&self, one: &Heard) -> Duration {
        self.awake.now().saturating_sub(one.1)
    }

    /// A node says that it is there: what it is told. One without a number gets the next one; one
    /// that comes back at another address goes on with its number.
    pub fn join(&self, mut member: Member) -> NodeReply {
        let mut all = self.all();
        if member.node != 0 && NodeId::new(member.node).is_none() {
            return NodeReply::Refused { text: format!("{} is no number of a node", member.node) };
        }
        let taken = |one: &&Heard| {
            one.0.address == member.address
                && one.0.node != member.node
                && one.0.standing != Standing::Gone
        };
        if let Some(other) = all.iter().find(taken).filter(|one| self.is_heard(one)) {
            let text = format!(
                "{} is the address of node {}, which is there; give --listen another one",
                member.address, other.0.node
            );
            return NodeReply::Refused { text };
        }
        let removed = |one: &Heard| one.0.node == member.node && one.0.standing == Standing::Gone;
        if member.node != 0 && all.iter().any(removed) {
            let text = format!(
                "node {} was removed from the domain; end it, and give a new one a new --store",
                member.node
            );
            return NodeReply::Refused { text };
        }
        // Its store is the node: a copy of it, or another store with that number, is not.
        let same = |one: &&Heard| one.0.node == member.node && member.node != 0;
        if let Some((known, _)) = all.iter().find(same) {
            let other = known.store != 0 && known.store != member.store;
            let at = (member.starts, member.address == known.address);
            if other || at.0 < known.starts || at == (known.starts, false) && known.store != 0 {
                let text = format!(
                    "node {} is the one at {}, with {}",
                    member.node,
                    known.address,
                    if other { "another store" } else { "this store or a copy of it" },
                );
                return NodeReply::Refused { text };
            }
        }
        if member.node == 0 {
            let next = all.iter().map(|one| one.0.node).max().unwrap_or(0) + 1;
            if NodeId::new(next).is_none() {
                return NodeReply::Refused { text: "a domain has 4095 nodes at most".to_owned() };
            }
            member.node = next;
        }
        let you = member.node;
        // That is not its own to say.
        let known = all.iter().find(|one| one.0.node == you);
        member.standing = known.map_or(Standing::There, |one| one.0.standing);
        Self::put(&mut all, member, self.awake.now());
        drop(all);
        NodeReply::Members { you, all: self.list() }
    }

    fn put(all: &mut Vec<Heard>, member: Member, heard: Duration) {
        match all.iter_mut().find(|one| one.0.node == member.node) {
            Some(one) => *one = (member, heard),
            None => all.push((member, heard)),
        }
        all.sort_by_key(|one| one.0.node);
    }

    /// Where the node is, as was heard lately, that another one says to be somewhere else. It may
    /// have ended there since.
    pub fn elsewhere(&self, member: &Member) -> Option<SocketAddr> {
        let all = self.all();
        let known = all.iter().find(|one| one.0.node == member.node && member.node != 0)?;
        let is_there = self.is_heard(known) && known.0.address != member.address;
        is_there.then_some(known.0.address)
    }

    /// A node is to stand so from now on. One that is removed while it is there keeps nothing for
    /// others, and is the host of nothing.
    pub fn mark(&self, node: u16, standing: Standing) -> NodeReply {
        let mut all = self.all();
        let refused = |text: String| NodeReply::Refused { text };
        let Some((member, heard)) = all.iter_mut().find(|one| one.0.node == node) else {
            return refused(format!("the domain has no node {node}"));
        };
        if member.standing == Standing::Gone && standing != Standing::Gone {
            return refused(format!("node {node} was removed from the domain"));
        }
        if standing == Standing::Gone && node == 1 {
            return refused("node 1 gives out the numbers, and stays".to_owned());
        }
        let has = member.kept > 0 || member.promised > 0;
        let is_heard = self.awake.now().saturating_sub(*heard) < NODE_TIMEOUT;
        if standing == Standing::Gone && has && is_heard {
            let text = format!(
                "node {node} is there, keeps {} pages for others, and is the host of {} pages",
                member.kept, member.promised
            );
            return refused(text);
        }
        member.standing = standing;
        NodeReply::Done
    }

    /// The nodes whose pages are to be fetched, and that are there.
    pub fn draining(&self) -> Vec<NodeId> {
        let all = self.all();
        let drains = |one: &&Heard| one.0.standing == Standing::Drains && self.is_heard(one);
        all.iter().filter(drains).filter_map(|one| NodeId::new(one.0.node)).collect()
    }

    /// The nodes that were removed.
    pub fn gone(&self) -> Vec<NodeId> {
        let all = self.all();
        let gone = all.iter().filter(|one| one.0.standing == Standing::Gone);
        gone.filter_map(|one| NodeId::new(one.0.node)).collect()
    }

    /// The nodes that were not heard of lately, or were removed.
    pub fn silent(&self) -> Vec<NodeId> {
        let all = self.all();
        let silent = |one: &&Heard| one.0.standing == Standing::Gone || !self.is_heard(one);
        all.iter().filter(silent).filter_map(|one| NodeId::new(one.0.node)).collect()
    }

    /// What the first node has told.
    pub fn heard(&self, told: Vec<Member>) {
        let mut all = self.all();
        let now = self.awake.now();
        for member in told {
            let silent = Duration::from_secs(member.silent);
            Self::put(&mut all, member, now.saturating_sub(silent));
        }
    }

    /// A node that was known before this one began.
    pub fn remember(&self, (node, address, standing, store): Listed) {
        let member = Member { standing, store, ..Member::new(node.number(), address) };
        let long_ago = self.awake.now().saturating_sub(NODE_TIMEOUT);
        Self::put(&mut self.all(), member, long_ago);
    }

    /// All of them, with how long each was silent.
    pub fn list(&self) -> Vec<Member> {
        let told = |one: &Heard| Member { silent: self.silence(one).as_secs(), ..one.0.clone() };
        self.all().iter().map(told).collect()
    }

    /// Which lives of nodes are known: a number, and how often it was started.
    pub fn lives(&self) -> Vec<(NodeId, u64)> {
        let all = self.all();
        all.iter().filter_map(|one| Some((NodeId::new(one.0.node)?, one.0.starts))).collect()
    }

    /// Numbers, addresses, standing, stores.
    pub fn addresses(&self) -> Vec<Listed> {
        let all = self.all();
        let listed = |(member, _): &Heard| {
            Some((NodeId::new(member.node)?, member.address, member.standing, member.store))
        };
        all.iter().filter_map(listed).collect()
    }

    /// Pages that the domain's volumes can have: what all nodes may have, also those that are away,
    /// or what they say that they were promised. `None`: a node has not said.
    pub fn pages(&self) -> Option<u64> {
        let all = self.all();
        let sum = |of: fn(&Member) -> u64| {
            all.iter().fold(0_u64, |sum, one| sum.saturating_add(of(&one.0)))
        };
        let is_known = all.iter().all(|one| one.0.capacity > 0);
        is_known.then(|| sum(|one| one.capacity).max(sum(|one| one.promised)))
    }

    /// The nodes besides `here` that were heard of lately.
    pub fn others(&self, here: NodeId) -> Vec<NodeId> {
        let all = self.all();
        let there = |one: &&Heard| {
            one.0.node != here.number() && self.is_heard(one) && one.0.standing != Standing::Gone
        };
        all.iter().filter(there).filter_map(|one| NodeId::new(one.0.node)).collect()
    }

    /// The nodes that can take pages of `here`, in the order of their numbers.
    pub fn holders(&self, here: NodeId) -> Vec<(NodeId, u64)> {
        let all = self.all();
        let takes = |one: &&Heard| {
            one.0.node != here.number()
                && self.is_heard(one)
                && one.0.standing == Standing::There
                && one.0.free() > 0
        };
        let holders = all.iter().filter(takes);
        holders.filter_map(|one| Some((NodeId::new(one.0.node)?, one.0.free()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u16, port: u16) -> Member {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        Member { capacity: 100, used: 40, ..Member::new(node, address) }
    }

    #[test]
    fn numbers_are_given_once_and_kept() {
        let members = Members::default();
        let told = |member| match members.join(member) {
            NodeReply::Members { you, all } => (you, all.len()),
            refused => panic!("{refused:?}"),
        };
        assert_eq!(told(member(0, 1000)), (1, 1));
        assert_eq!(told(member(0, 1001)), (2, 2));
        assert_eq!(told(member(2, 1002)), (2, 2), "it came back elsewhere");
        assert!(matches!(members.join(member(0, 1000)), NodeReply::Refused { .. }), "it is taken");
        let of_store = |store, starts, port| Member { store, starts, ..member(3, port) };
        assert_eq!(told(of_store(7, 10, 1005)), (3, 3));
        assert_eq!(told(of_store(7, 11, 1006)), (3, 3), "it was started again");
        for other in [of_store(8, 12, 1006), of_store(7, 10, 1005), of_store(7, 11, 1007)] {
            assert!(matches!(members.join(other), NodeReply::Refused { .. }), "not this one");
        }
        for number in [4096, u16::MAX] {
            assert!(matches!(members.join(member(number, 1003)), NodeReply::Refused { .. }));
        }
        assert_eq!(told(member(0, 1004)), (4, 4));
        let here = NodeId::new(1).unwrap();
        let holders = [2, 3, 4].map(|number| (NodeId::new(number).unwrap(), 60));
        assert_eq!(members.holders(here), holders);
    }
}
