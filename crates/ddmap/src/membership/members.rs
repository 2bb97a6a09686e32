//! Who is in a domain. Its first node (`leadership.rs`) gives out the numbers and knows all; every
//! other one tells it each second that it is there, and hears of the rest.
//!
//! # Invariants
//!
//! 1. A number belongs to one store: another store under it is never taken for that node,
//!    whichever node says so.
//! 2. A node that was removed stays so, whatever is heard later.

use crate::control::node_messages::{Member, NODE_TIMEOUT, NodeReply};
use crate::membership::uptime::Uptime;
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

    /// Why a node cannot be one of the domain. `None`: it can, if it has a number or gets one.
    pub fn refuses(&self, member: &Member) -> Option<NodeReply> {
        self.check(&self.all(), member).err().map(|text| NodeReply::Refused { text })
    }

    /// Each refusal says what was found.
    fn check(&self, all: &[Heard], member: &Member) -> Result<(), String> {
        if member.node != 0 && NodeId::new(member.node).is_none() {
            return Err(format!("{} is no number of a node", member.node));
        }
        let taken = |one: &&Heard| {
            one.0.address == member.address
                && one.0.node != member.node
                && one.0.standing != Standing::Gone
        };
        if let Some(other) = all.iter().find(taken).filter(|one| self.is_heard(one)) {
            return Err(format!(
                "{} is the address of node {}, which is there; give --listen another one",
                member.address, other.0.node
            ));
        }
        let removed = |one: &Heard| one.0.node == member.node && one.0.standing == Standing::Gone;
        if member.node != 0 && all.iter().any(removed) {
            return Err(format!(
                "node {} was removed from the domain; end it, and give a new one a new --store",
                member.node
            ));
        }
        // Its store is the node: a copy of it, or another store with that number, is not.
        let same = |one: &&Heard| one.0.node == member.node && member.node != 0;
        if let Some((known, _)) = all.iter().find(same) {
            let other = known.store != 0 && known.store != member.store;
            let at = (member.starts, member.address == known.address);
            if other || at.0 < known.starts || at == (known.starts, false) && known.store != 0 {
                return Err(format!(
                    "node {} is the one at {}, with {}",
                    member.node,
                    known.address,
                    if other { "another store" } else { "this store or a copy of it" },
                ));
            }
        }
        Ok(())
    }

    /// The greatest number of a node.
    pub fn greatest(&self) -> u16 {
        self.all().iter().map(|one| one.0.node).max().unwrap_or(0)
    }

    /// The number of the node that has a store.
    pub fn of_store(&self, store: u64) -> Option<u16> {
        let all = self.all();
        all.iter().find(|one| one.0.store == store && store != 0).map(|one| one.0.node)
    }

    /// The nodes that are asked which one is first: all that were not removed.
    pub fn voters(&self) -> Vec<u16> {
        let all = self.all();
        let of = all.iter().filter(|one| one.0.standing != Standing::Gone);
        of.map(|one| one.0.node).collect()
    }

    /// A node that has a number says that it is there. One that comes back at another address goes
    /// on with its number. Each refusal says what was found.
    pub fn join(&self, mut member: Member) -> Result<(), String> {
        let mut all = self.all();
        self.check(&all, &member)?;
        let you = member.node;
        // That is not its own to say.
        let known = all.iter().find(|one| one.0.node == you);
        member.standing = known.map_or(Standing::There, |one| one.0.standing);
        Self::put(&mut all, member, self.awake.now());
        Ok(())
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
    /// others, and is the host of nothing; it is not the domain's `first`.
    pub fn mark(&self, node: u16, standing: Standing, first: u16) -> NodeReply {
        let mut all = self.all();
        let refused = |text: String| NodeReply::Refused { text };
        let Some((member, heard)) = all.iter_mut().find(|one| one.0.node == node) else {
            return refused(format!("the domain has no node {node}"));
        };
        if member.standing == Standing::Gone && standing != Standing::Gone {
            return refused(format!("node {node} was removed from the domain"));
        }
        if standing == Standing::Gone && node == first {
            return refused(format!("node {node} gives out the numbers, and stays"));
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

    /// What the first node has told. `false`: it says of a number that it is another store's.
    pub fn heard(&self, told: Vec<Member>) -> bool {
        self.take(told, |_, told| Some(told))
    }

    /// What a node has told that agrees to this one's being first: what is newer, and how nodes
    /// stand of which either knows that they give their pages up. `false`: as of [`Self::heard`].
    pub fn merge(&self, told: Vec<Member>) -> bool {
        self.take(told, |known, told| {
            let standing = known.0.standing.max(told.standing);
            let is_newer = told.silent < self.silence(known).as_secs();
            let newer = if is_newer { told } else { known.0.clone() };
            (is_newer || standing != known.0.standing).then_some(Member { standing, ..newer })
        })
    }

    fn take(&self, told: Vec<Member>, of: impl Fn(&Heard, Member) -> Option<Member>) -> bool {
        let mut all = self.all();
        let (now, mut agree) = (self.awake.now(), true);
        for member in told {
            let known = all.iter().find(|one| one.0.node == member.node);
            let mut heard = now.saturating_sub(Duration::from_secs(member.silent));
            let mut member = Some(member);
            if let Some(known) = known {
                let told = member
                    .take()
                    .filter(|told| [0, told.store].contains(&known.0.store) || told.store == 0);
                agree &= told.is_some();
                let store = known.0.store;
                let is_gone = known.0.standing == Standing::Gone;
                heard = heard.max(known.1);
                member = told.and_then(|told| of(known, told)).map(|told| Member {
                    standing: if is_gone { Standing::Gone } else { told.standing },
                    store: if told.store == 0 { store } else { told.store },
                    ..told
                });
            }
            if let Some(member) = member {
                Self::put(&mut all, member, heard);
            }
        }
        agree
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
    fn numbers_are_kept() {
        let members = Members::default();
        let joins = |member| members.join(member).is_ok();
        assert!(joins(member(1, 1000)) && joins(member(2, 1001)));
        assert!(joins(member(2, 1002)), "it came back elsewhere");
        assert!(members.refuses(&member(0, 1000)).is_some(), "it is taken");
        let of_store = |store, starts, port| Member { store, starts, ..member(3, port) };
        assert!(joins(of_store(7, 10, 1005)));
        assert!(joins(of_store(7, 11, 1006)), "it was started again");
        for other in [of_store(8, 12, 1006), of_store(7, 10, 1005), of_store(7, 11, 1007)] {
            assert!(!joins(other), "not this one");
        }
        for number in [4096, u16::MAX] {
            assert!(!joins(member(number, 1003)));
        }
        assert!(members.refuses(&member(0, 1004)).is_none());
        assert!(joins(member(4, 1004)));
        assert_eq!((members.greatest(), members.of_store(7)), (4, Some(3)));
        let here = NodeId::new(1).unwrap();
        let holders = [2, 3, 4].map(|number| (NodeId::new(number).unwrap(), 60));
        assert_eq!(members.holders(here), holders);
    }

    /// A first that has not heard of a removal, or has given a number to another store, changes
    /// neither.
    #[test]
    fn what_was_removed_stays_so_and_a_number_is_one_stores() {
        let members = Members::default();
        let with = |store, standing, node| Member { standing, store, ..member(node, 1000 + node) };
        for node in 1..=3 {
            members.join(with(u64::from(node), Standing::There, node)).unwrap();
        }
        assert_eq!(members.mark(3, Standing::Gone, 1), NodeReply::Done);
        assert!(matches!(members.mark(2, Standing::Gone, 2), NodeReply::Refused { .. }));
        let of = |number: u16| members.list().into_iter().find(|one| one.node == number).unwrap();
        assert!(members.heard(vec![with(3, Standing::There, 3)]));
        assert_eq!(of(3).standing, Standing::Gone);
        assert!(members.heard(vec![with(2, Standing::Drains, 2)]));
        assert!(members.heard(vec![with(2, Standing::There, 2)]), "that was taken back");
        assert!(
            !members.heard(vec![Member { address: of(1).address, ..with(9, Standing::There, 2) }])
        );
        assert_eq!((of(2).store, of(2).address), (2, member(2, 1002).address));
        assert!(members.merge(vec![with(2, Standing::Drains, 2), with(5, Standing::There, 5)]));
        assert!(members.merge(vec![with(2, Standing::There, 2)]));
        assert_eq!((of(2).standing, of(5).store), (Standing::Drains, 5));
        assert_eq!(members.voters(), [1, 2, 5]);
    }
}
