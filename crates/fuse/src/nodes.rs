//! The nodes that the kernel knows. The kernel names them by numbers, counts how often it was told
//! each, and says when it has forgotten them.
//!
//! A node's number is its inode number (the root's is 1, as the protocol has it), with the
//! generation beside it, so that a number which stands for another object by now is refused.
//!
//! The kernel keeps a file that it knows usable when its last name goes; the engine keeps what is
//! open. So a process that takes a name through the mount *holds* the node until the kernel forgets
//! it. An open handle does that as well: then the hold begins when the last one is released, and a
//! file that is open has one place in the engine's table. A file that another process unlinks is
//! gone for the kernel too, but not at once: a node is held for a moment after its lookup, since
//! the call that it was for follows.
//!
//! Locks: a shard's; `recent`'s. Neither with the other, and no call of the engine's under them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use vfs::{Desc, Errno, FileSystem, Node, OpenFlags, Result};

use crate::abi::ROOT;

const SHARDS: usize = 16;
/// How long a node is held after a lookup, and how many at most.
const RECENT_TIME: Duration = Duration::from_millis(50);
const RECENT_MAX: usize = 64;
/// How long a call that lacks space, or asks for it, waits for the kernel to forget nodes.
pub const PATIENCE_FOR_SPACE: Duration = Duration::from_secs(3);
pub const PATIENCE_TO_TELL: Duration = Duration::from_millis(200);
/// Time between two looks whether the kernel has forgotten nodes.
const HOLDS_STEP: Duration = Duration::from_millis(1);

struct Known {
    node: Node,
    lookups: u64,
    hold: Option<Desc>,
    /// Open handles, which keep the node too.
    handles: u64,
    /// Its last name is gone, and a handle keeps it.
    nameless: bool,
}

/// What was looked up just now.
struct Recent {
    since: Instant,
    node: Node,
    desc: Desc,
}

/// What the kernel knows.
pub struct Nodes {
    root: Node,
    shards: [Mutex<HashMap<u64, Known>>; SHARDS],
    recent: Mutex<VecDeque<Recent>>,
    /// Nodes without a name that are held until the kernel forgets them.
    held: AtomicUsize,
    /// How many of those a wait found in use: no other wait is for them.
    in_use: AtomicUsize,
}

/// Locks, also if a holder panicked: its map is whole all the same.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Nodes {
    /// Knows the root alone.
    pub fn new(root: Node) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::new()));
        Self {
            root,
            shards,
            recent: Mutex::new(VecDeque::new()),
            held: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
        }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Known>> {
        lock(&self.shards[((number >> 3) ^ number) as usize % SHARDS])
    }

    /// The kernel's number of a node.
    pub fn number(&self, node: Node) -> u64 {
        if node.ino == self.root.ino { ROOT } else { node.ino }
    }

    /// The node of a number. `ESTALE` if the kernel was never told it.
    pub fn node(&self, number: u64) -> Result<Node> {
        if number == ROOT {
            return Ok(self.root);
        }
        self.shard(number).get(&number).map(|known| known.node).ok_or(Errno::STALE)
    }

    /// The kernel is being told of a node once more; gives its number.
    pub fn tell(&self, node: Node) -> u64 {
        let number = self.number(node);
        if number != ROOT {
            let mut shard = self.shard(number);
            let known = shard.entry(number).or_insert(Known {
                node,
                lookups: 0,
                hold: None,
                handles: 0,
                nameless: false,
            });
            // If the number stands for another object by now, the kernel drops the older one.
            known.node = node;
            known.lookups += 1;
        }
        number
    }

    /// The kernel has forgotten `lookups` of a node's; gives the hold that ends with the last one,
    /// to be closed by [`Nodes::let_go`].
    pub fn forget(&self, number: u64, lookups: u64) -> Option<Desc> {
        let mut shard = self.shard(number);
        let known = shard.get_mut(&number)?;
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return None;
        }
        shard.remove(&number)?.hold
    }

    /// Ends a hold.
    pub fn let_go(&self, fs: &dyn FileSystem, desc: Desc) {
        // What cannot be closed is dropped when this process ends.
        let _ = fs.close(desc);
        let left = self.held.fetch_sub(1, Ordering::AcqRel) - 1;
        self.in_use.fetch_min(left, Ordering::AcqRel);
    }

    /// For a call that lacks space: ends all holds of a moment, and waits for those that the kernel
    /// is about to forget (it reports a `close` after that has returned). A hold that is left after
    /// `patience` is in use.
    pub fn end_holds(&self, fs: &dyn FileSystem, patience: Duration) {
        self.drop_recent(fs, true);
        let begun = Instant::now();
        let mut calm = false;
        loop {
            let held = self.held.load(Ordering::Acquire);
            let in_use = self.in_use.fetch_min(held, Ordering::AcqRel).min(held);
            // Looks twice: another thread may be releasing a handle just now.
            if held == in_use && (calm || held == 0 && begun.elapsed() < HOLDS_STEP) {
                return;
            }
            calm = held == in_use;
            if begun.elapsed() > patience {
                if patience == PATIENCE_FOR_SPACE {
                    self.in_use.store(held, Ordering::Release);
                }
                return;
            }
            std::thread::sleep(HOLDS_STEP);
        }
    }

    /// A handle of a node has been opened.
    pub fn opened(&self, number: u64) {
        if let Some(known) = self.shard(number).get_mut(&number) {
            known.handles += 1;
        }
    }

    /// A handle is being closed; gives whether it is the last one of a node without a name, which
    /// is to be held in its stead.
    pub fn released(&self, number: u64) -> bool {
        let mut shard = self.shard(number);
        let Some(known) = shard.get_mut(&number) else { return false };
        known.handles = known.handles.saturating_sub(1);
        known.handles == 0 && known.nameless && known.hold.is_none()
    }

    /// Whether a handle keeps a node that has lost its last name: it need not be held before that
    /// is [`released`](Self::released).
    pub fn keeps_handle(&self, node: Node) -> bool {
        match self.shard(node.ino).get_mut(&node.ino) {
            Some(known) if known.node == node && known.handles > 0 => {
                known.nameless = true;
                true
            }
            _ => false,
        }
    }

    /// Keeps a description until the kernel forgets the node; gives it back if the kernel does not
    /// know the node, or if it is held already.
    pub fn hold(&self, node: Node, desc: Desc) -> Option<Desc> {
        match self.shard(node.ino).get_mut(&node.ino) {
            Some(known) if known.node == node && known.hold.is_none() => {
                known.hold = Some(desc);
                self.held.fetch_add(1, Ordering::AcqRel);
                None
            }
            _ => Some(desc),
        }
    }

    /// Holds what was looked up just now for a moment; gives whether it is the only one. A full
    /// table of descriptions holds nothing. `ESTALE`: it is gone already.
    pub fn hold_recent(&self, fs: &dyn FileSystem, node: Node) -> Result<bool> {
        let since = Instant::now();
        let mut recent = lock(&self.recent);
        if let Some(at) = recent.iter().position(|held| held.node == node)
            && let Some(held) = recent.remove(at)
        {
            recent.push_back(Recent { since, ..held });
            return Ok(false);
        }
        drop(recent);
        let desc = match fs.open(node.into(), OpenFlags(libc::O_PATH), None) {
            Ok(desc) => desc,
            Err(Errno::STALE) => return Err(Errno::STALE),
            Err(_) => return Ok(false),
        };
        let mut recent = lock(&self.recent);
        let first = recent.is_empty();
        recent.push_back(Recent { since, node, desc });
        let oldest = if recent.len() > RECENT_MAX { recent.pop_front() } else { None };
        drop(recent);
        if let Some(Recent { desc, .. }) = oldest {
            // What cannot be closed is dropped when this process ends.
            let _ = fs.close(desc);
        }
        Ok(first)
    }

    /// Ends the holds whose moment is over; `all`: every one. Gives whether any is left.
    pub fn drop_recent(&self, fs: &dyn FileSystem, all: bool) -> bool {
        loop {
            let mut recent = lock(&self.recent);
            let over = |since: Instant| all || since.elapsed() > RECENT_TIME;
            match recent.front() {
                None => return false,
                Some(held) if !over(held.since) => return true,
                Some(_) => {}
            }
            let oldest = recent.pop_front();
            drop(recent);
            if let Some(Recent { desc, .. }) = oldest {
                let _ = fs.close(desc);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ino: u64, generation: u32) -> Node {
        Node { ino, generation }
    }

    #[test]
    fn a_node_is_known_until_all_that_was_told_is_forgotten() {
        let nodes = Nodes::new(node(77, 1));
        assert_eq!(nodes.tell(node(77, 1)), ROOT);
        assert_eq!(nodes.node(ROOT), Ok(node(77, 1)));
        let number = nodes.tell(node(5, 2));
        nodes.tell(node(5, 2));
        let desc = Desc::new(1, 1);
        assert_eq!(nodes.hold(node(5, 1), desc), Some(desc), "another object of that number");
        assert_eq!(nodes.hold(node(5, 2), desc), None);
        assert_eq!(nodes.forget(number, 1), None);
        assert_eq!(nodes.node(number), Ok(node(5, 2)));
        assert_eq!(nodes.forget(number, 1), Some(desc));
        assert_eq!(nodes.node(number), Err(Errno::STALE));
        assert_eq!(nodes.hold(node(5, 2), desc), Some(desc));
    }

    #[test]
    fn the_last_handle_of_a_nameless_node_leaves_a_hold() {
        let nodes = Nodes::new(node(77, 1));
        let number = nodes.tell(node(5, 2));
        assert!(!nodes.keeps_handle(node(5, 2)), "none is open");
        nodes.opened(number);
        nodes.opened(number);
        assert!(!nodes.keeps_handle(node(5, 1)), "another object of that number");
        assert!(nodes.keeps_handle(node(5, 2)));
        assert!(!nodes.released(number), "one is left");
        assert!(nodes.released(number));
        let desc = Desc::new(1, 1);
        assert_eq!(nodes.hold(node(5, 2), desc), None);
        nodes.opened(number);
        assert!(!nodes.released(number), "it is held already");
        assert_eq!(nodes.forget(number, 1), Some(desc));
        assert!(!nodes.released(number), "it is forgotten");
    }
}
