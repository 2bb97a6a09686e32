//! Whether a domain's nodes have the room that its volumes were promised: in pages, of what nodes
//! say of themselves.
//!
//! A node has at home as much of its own volumes as it has room for, and others have the rest:
//! once, or twice. Two copies lie with two nodes, and neither is the volume's host. So of nodes
//! with room for 1, 10 and 1 pages the first can have one page twice: however much there is, it is
//! no more than all have but the largest.

use crate::control::node_messages::{Member, NODE_TIMEOUT};
use crate::protocol::PAGE;
use crate::shared_memory::store::Standing;

impl Member {
    /// Whether the node was heard of lately, and is of the domain.
    pub fn is_there(&self) -> bool {
        self.silent < NODE_TIMEOUT.as_secs() && self.standing != Standing::Gone
    }

    /// Pages of it that are for volumes: what it may have, but for what it keeps free. One that
    /// gives its pages up takes none of others: it has only what its own volumes were promised.
    pub fn for_volumes(&self) -> u64 {
        let pages = self.capacity.saturating_sub(self.reserve);
        match self.standing {
            _ if !self.is_there() => 0,
            Standing::Drains => pages.min(self.promised),
            Standing::There | Standing::Gone => pages,
        }
    }

    /// Pages that are promised once more, since two other nodes are to have them.
    pub fn second(&self) -> u64 {
        self.away().1
    }

    /// What its own volumes leave of that.
    fn left(&self) -> u64 {
        self.for_volumes().saturating_sub(self.promised)
    }

    /// Pages of its volumes for which it has no room: that lie elsewhere once, and twice.
    fn away(&self) -> (u64, u64) {
        let away = self.promised.saturating_sub(self.for_volumes());
        let twice = away.min(self.promised_twice);
        (away - twice, twice)
    }
}

/// The room that a host's volumes of two copies have, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// On the host.
    pub here: u64,
    /// On the other nodes, for pages that lie on two of them.
    pub pairs: u64,
    /// How many other nodes take pages.
    pub holders: usize,
}

impl Room {
    /// Of a node that is the host, beside what was promised.
    pub fn of(members: &[Member], host: u16) -> Self {
        let others = || members.iter().filter(|one| one.node != host);
        let lefts = || others().map(Member::left);
        let (all, largest) = (lefts().sum::<u64>(), lefts().max().unwrap_or(0));
        let once: u64 = members.iter().map(|one| one.away().0).sum();
        let twice: u64 = members.iter().map(|one| one.away().1).sum();
        let both = all.saturating_sub(once + 2 * twice) / 2;
        let apart = (all - largest).saturating_sub(twice);
        let takes = |one: &&Member| one.is_there() && one.standing == Standing::There;
        Self {
            here: members.iter().filter(|one| one.node == host).map(Member::left).sum(),
            pairs: both.min(apart),
            holders: others().filter(takes).count(),
        }
    }

    /// Pages that a volume of two copies can have.
    pub fn twice(self) -> u64 {
        self.here + self.pairs
    }

    /// What is said where so many pages are too many.
    pub fn text(self, pages: u64) -> String {
        // Pages, to tenths of a MiB.
        let bytes = |pages: u64| {
            let tenths = (pages * PAGE * 10) >> 20;
            format!("{}.{} MiB", tenths / 10, tenths % 10)
        };
        match self.holders {
            0 => "no other node takes pages, and two are to keep each".to_owned(),
            1 => "one other node takes pages, and two are to keep each".to_owned(),
            holders => format!(
                "{} are to have two copies; the host has room for {}, and the {holders} other \
                 nodes for {} twice",
                bytes(pages),
                bytes(self.here),
                bytes(self.pairs)
            ),
        }
    }
}

/// Pages that cannot lie with two nodes, of those that were promised to. 0: all can.
pub fn not_twice(members: &[Member]) -> u64 {
    let all: u64 = members.iter().map(Member::left).sum();
    let once: u64 = members.iter().map(|one| one.away().0).sum();
    let twice: u64 = members.iter().map(|one| one.away().1).sum();
    let both = all.saturating_sub(once) / 2;
    // A host has nothing left where it has pages away.
    let largest = members.iter().map(Member::left).max().unwrap_or(0);
    twice.saturating_sub(both.min(all - largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(capacities: &[u64]) -> Vec<Member> {
        let node = |(at, capacity): (usize, &u64)| {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], at as u16 + 1));
            Member { capacity: *capacity, ..Member::new(at as u16 + 1, address) }
        };
        capacities.iter().enumerate().map(node).collect()
    }

    #[test]
    fn pairs_lie_with_two_nodes_besides_the_host() {
        for (capacities, here, pairs, holders) in [
            (&[1, 10, 1][..], 1, 1, 2),
            (&[10, 1, 1], 10, 1, 2),
            (&[4, 4, 4, 4], 4, 6, 3),
            (&[0, 3, 4], 0, 3, 2),
            (&[5, 9], 5, 0, 1),
            (&[5], 5, 0, 0),
        ] {
            let room = Room::of(&nodes(capacities), 1);
            assert_eq!(room, Room { here, pairs, holders }, "{capacities:?}");
        }
        assert_eq!(Room::of(&nodes(&[1, 10, 1]), 2), Room { here: 10, pairs: 1, holders: 2 });
    }

    #[test]
    fn what_was_promised_has_its_room_first() {
        let mut all = nodes(&[4, 10, 10]);
        (all[0].promised, all[0].promised_twice) = (9, 9);
        // 5 pages lie with both others, each of which has as many left.
        assert_eq!(Room::of(&all, 1), Room { here: 0, pairs: 5, holders: 2 });
        assert_eq!(not_twice(&all), 0);
        all[2].standing = Standing::Drains;
        assert_eq!(Room::of(&all, 1), Room { here: 0, pairs: 0, holders: 1 });
        assert_eq!(not_twice(&all), 5);
        // One copy of each has room.
        all[0].promised_twice = 0;
        assert_eq!(not_twice(&all), 0);
        all[1].silent = 100;
        assert_eq!(Room::of(&all, 1).holders, 0);
    }

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let room = Room::of(&nodes(&[256, 2560, 256]), 1);
        assert_eq!(
            room.text(1024),
            "4.0 MiB are to have two copies; the host has room for 1.0 MiB, and the 2 other nodes \
             for 1.0 MiB twice"
        );
        assert!(Room::of(&nodes(&[256, 256]), 1).text(1).starts_with("one other node"));
    }
}
