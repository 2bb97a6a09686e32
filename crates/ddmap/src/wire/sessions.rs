//! Which life of a peer counts: a process that died may have requests under way, and whoever comes
//! after it with its number must not be overtaken by them.
//!
//! INVARIANT: once [`Sessions::begin`] has returned, no request of an earlier session of the same
//! peer is served, or is being served. For a request is *entered* first, then the newest session
//! is looked at; who begins one stores it first, then waits until nobody is entered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Hello;

/// Peers that are remembered, at most.
pub const PEERS: usize = 1 << 16;

/// A process of a node, in all its lives, and the volume that it works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Who {
    volume: [u8; 16],
    node: u16,
    process: u64,
}

/// What all connections of a peer share.
#[derive(Default, Debug)]
struct Newest {
    /// The volume's term in the upper half: a host that comes back has other lives.
    session: AtomicU64,
    entered: AtomicU32,
}

#[derive(Default)]
struct Peer {
    newest: Arc<Newest>,
    /// Connections of the newest session.
    open: Vec<u64>,
}

/// The newest session of each peer, and its connections.
#[derive(Default)]
pub struct Sessions {
    peers: HashMap<Who, Peer>,
}

/// A connection's place among its peer's.
#[derive(Debug)]
pub struct Standing {
    who: Who,
    session: u64,
    newest: Arc<Newest>,
}

/// While it lives, no later session of the peer begins to be served.
#[derive(Debug)]
pub struct Entered<'a>(&'a Newest);

/// Why a session is not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBegun {
    /// A later one is known.
    Older {
        /// That one.
        newest: u32,
    },
    /// Too many peers.
    TooMany,
}

impl std::fmt::Display for NotBegun {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Older { newest } => write!(
                out,
                "this process of that node has begun session {newest} already: a late packet, or \
                 two processes take themselves for the same one"
            ),
            Self::TooMany => write!(
                out,
                "{PEERS} processes have connected to this node since it began; start it anew"
            ),
        }
    }
}

impl Sessions {
    /// A connection begins a session, or joins it. Returned: its standing, and the connections of
    /// earlier sessions, which are to be closed.
    pub fn begin(
        &mut self,
        hello: &Hello,
        connection: u64,
    ) -> Result<(Standing, Vec<u64>), NotBegun> {
        let who = Who { volume: hello.volume, node: hello.node.number(), process: hello.process };
        if !self.peers.contains_key(&who) && self.peers.len() >= PEERS {
            return Err(NotBegun::TooMany);
        }
        let peer = self.peers.entry(who).or_default();
        let newest = peer.newest.session.load(Ordering::SeqCst);
        let session = u64::from(hello.term) << 32 | u64::from(hello.session);
        if session < newest {
            return Err(NotBegun::Older { newest: newest as u32 });
        }
        let mut older = Vec::new();
        if session > newest {
            peer.newest.session.store(session, Ordering::SeqCst);
            while peer.newest.entered.load(Ordering::SeqCst) > 0 {
                rustix::thread::sched_yield();
            }
            older = std::mem::take(&mut peer.open);
        }
        peer.open.push(connection);
        let newest = Arc::clone(&peer.newest);
        Ok((Standing { who, session, newest }, older))
    }

    /// A connection has ended.
    pub fn end(&mut self, standing: &Standing, connection: u64) {
        if let Some(peer) = self.peers.get_mut(&standing.who) {
            peer.open.retain(|open| *open != connection);
        }
    }
}

impl Standing {
    /// A request of the connection may be served while what is returned lives. `None`: a later
    /// session has begun.
    pub fn enter(&self) -> Option<Entered<'_>> {
        self.newest.entered.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(&self.newest);
        (self.newest.session.load(Ordering::SeqCst) == self.session).then_some(entered)
    }

    /// Which session it is of.
    pub fn session(&self) -> u32 {
        self.session as u32
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.entered.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NodeId;

    fn hello(process: u64, session: u32) -> Hello {
        let node = NodeId::new(3).unwrap();
        Hello { node, process, session, volume: [7; 16], term: 1, store: 0 }
    }

    #[test]
    fn a_later_session_ends_the_earlier_one_of_the_same_peer_only() {
        let mut sessions = Sessions::default();
        let (first, closed) = sessions.begin(&hello(1, 5), 10).unwrap();
        assert!(closed.is_empty());
        let (beside, closed) = sessions.begin(&hello(1, 5), 11).unwrap();
        assert!(closed.is_empty());
        let (other, closed) = sessions.begin(&hello(2, 1), 12).unwrap();
        assert!(closed.is_empty());
        assert!(first.enter().is_some() && beside.enter().is_some() && other.enter().is_some());

        let (later, closed) = sessions.begin(&hello(1, 6), 13).unwrap();
        assert_eq!(closed, [10, 11]);
        assert!(first.enter().is_none() && beside.enter().is_none());
        assert!(later.enter().is_some() && other.enter().is_some());
        let refused = sessions.begin(&hello(1, 5), 14).unwrap_err();
        assert_eq!(refused, NotBegun::Older { newest: 6 });
    }

    /// A host that has moved away and come back counts its lives anew.
    #[test]
    fn a_later_term_begins_anew() {
        let mut sessions = Sessions::default();
        let (first, _) = sessions.begin(&hello(1, 5), 1).unwrap();
        let anew = Hello { term: 2, ..hello(1, 1) };
        assert_eq!(sessions.begin(&anew, 2).unwrap().1, [1]);
        assert!(first.enter().is_none());
        assert!(sessions.begin(&hello(1, 6), 3).is_err(), "of the earlier term");
    }

    #[test]
    fn the_same_process_of_another_volume_or_node_is_another_peer() {
        let mut sessions = Sessions::default();
        let (first, _) = sessions.begin(&hello(1, 5), 1).unwrap();
        let elsewhere = Hello { volume: [8; 16], ..hello(1, 9) };
        assert!(sessions.begin(&elsewhere, 2).unwrap().1.is_empty());
        let beside = Hello { node: NodeId::new(4).unwrap(), ..hello(1, 9) };
        assert!(sessions.begin(&beside, 3).unwrap().1.is_empty());
        assert!(first.enter().is_some());
    }

    #[test]
    fn a_connection_that_ended_is_not_closed_again() {
        let mut sessions = Sessions::default();
        let (first, _) = sessions.begin(&hello(1, 5), 1).unwrap();
        sessions.end(&first, 1);
        assert!(sessions.begin(&hello(1, 6), 2).unwrap().1.is_empty());
        let late = sessions.begin(&hello(1, 5), 3).unwrap_err();
        assert_eq!(late, NotBegun::Older { newest: 6 });
    }

    #[test]
    fn a_later_session_waits_for_what_is_being_served() {
        let mut sessions = Sessions::default();
        let (first, _) = sessions.begin(&hello(1, 5), 1).unwrap();
        let entered = first.enter().unwrap();
        let begun = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sessions.begin(&hello(1, 6), 2).unwrap();
                begun.store(true, Ordering::SeqCst);
            });
            // Its number stands before it is begun.
            while first.enter().is_some() {
                std::thread::yield_now();
            }
            assert!(!begun.load(Ordering::SeqCst), "begun while a request was served");
            drop(entered);
        });
        assert!(begun.load(Ordering::SeqCst));
    }
}
