//! Nodes that did not answer a process in the time that they have: of two that have a page the
//! other one is asked first, for a while. What the machine's node knows is in the store
//! ([`Capacity::is_silent`](super::capacity::Capacity::is_silent)).
//!
//! A word that two threads store to at once says what one of them has found.

use crate::protocol::NodeId;
use crate::wire::now_ns;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longer than until the machine's node knows of one that is gone.
const LEFT_ALONE_MS: u64 = 10_000;
const NODES: usize = 8;

/// Nodes that were silent lately, as many as fit: a word each, `| until, ms 12..64 | node 0..12 |`.
#[derive(Default)]
pub struct Silence([AtomicU64; NODES]);

impl Silence {
    fn place(&self, node: NodeId) -> &AtomicU64 {
        &self.0[usize::from(node.number()) % NODES]
    }

    /// A node has answered, or has not.
    pub fn heard(&self, node: NodeId, has_answered: bool) {
        let (place, number) = (self.place(node), u64::from(node.number()));
        if !has_answered {
            let until = now_ns() / 1_000_000 + LEFT_ALONE_MS;
            place.store(until << 12 | number, Ordering::Relaxed);
        } else if place.load(Ordering::Relaxed) & 0xFFF == number {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a node did not answer lately.
    pub fn is_silent(&self, node: NodeId) -> bool {
        let found = self.place(node).load(Ordering::Relaxed);
        found & 0xFFF == u64::from(node.number()) && now_ns() / 1_000_000 < found >> 12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_until_it_answers() {
        let silence = Silence::default();
        let [one, same_place, other] = [3, 11, 4].map(|number| NodeId::new(number).unwrap());
        silence.heard(one, true);
        silence.heard(one, false);
        assert_eq!(
            [one, same_place, other].map(|node| silence.is_silent(node)),
            [true, false, false]
        );
        silence.heard(same_place, true);
        assert!(silence.is_silent(one));
        silence.heard(one, true);
        assert!(!silence.is_silent(one));
    }
}
