//! Whose turn it is to use a volume: programs of one node do at a time, its host's.
//!
//! A program that begins, a *newcomer*, asks for the volume, on any node: its *ticket* goes to the
//! host, and stands in the host's queue. On the host it is *let in*, at once if nobody waits that
//! has a better right. When no process has the volume, it moves to the node of the ticket in front,
//! and the queue goes with it. What a process that was let in forks or executes asks nobody.
//!
//! # Invariants
//!
//! 1. A volume moves while no process has it, none is about to have it, and none is inside: the
//!    queue first lets nobody in any more ([`Queue::moves`]); then the host looks which processes
//!    have it ([`Queue::decide`]).
//! 2. Tickets stand in the order in which programs began to wait, wherever they waited.
//! 3. A newcomer on the host goes ahead of those of other nodes while each of them has waited for
//!    less than the newcomer's *hold*. So that many newcomers do not keep a volume for ever.
//! 4. A ticket of which its node says nothing for [`LATE`] is gone; so is one whose node does not
//!    say that it is wanted still, when its turn has come.
//!
//! All of this is in memory: a node that dies has no queue any more, and is told of the tickets
//! again by the nodes whose they are. Nothing here has a clock: times are in ms of the caller's.

use super::inject::{Mistake, made};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A ticket of which nothing was heard for so many ms is gone.
pub const LATE: u64 = 8000;
/// Tickets of a queue, at most.
pub const TICKETS_MAX: usize = 256;

/// A program that asks for a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The node on which it is.
    pub node: u16,
    /// A number of its own.
    pub number: u64,
}

/// A ticket, as nodes tell each other of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Which.
    pub ticket: Ticket,
    /// Since so many ms.
    pub waited: u64,
    /// It goes ahead, on the host, of those that have waited for less: ms.
    pub hold: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Waiting {
    ticket: Ticket,
    /// By this node's clock; it may have been before that began.
    since: i64,
    hold: u64,
    heard: u64,
}

impl Waiting {
    fn waited(&self, now: u64) -> u64 {
        (now as i64 - self.since).max(0) as u64
    }
}

/// Processes that have a volume, besides its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Use {
    /// They have it attached.
    pub attached: usize,
    /// They are about to: were let in, forked or executed by those that had it.
    pub starting: usize,
}

impl Use {
    fn is_none(self) -> bool {
        self.attached == 0 && (self.starting == 0 || made(Mistake::StartingUncounted))
    }
}

/// The queue of a volume on its host.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    waiting: Vec<Waiting>,
    /// Numbers of programs of this node that were let in, and may not have begun to attach.
    inside: BTreeSet<u64>,
    moving: Option<Ticket>,
}

impl Queue {
    /// The one that has come with a volume. Of this node's tickets those stay that are `known`.
    pub fn arrived(all: &[Asked], here: u16, known: impl Fn(u64) -> bool, now: u64) -> Self {
        let mut queue = Self::default();
        let stays = |one: &&Asked| one.ticket.node != here || known(one.ticket.number);
        for one in all.iter().filter(stays).take(TICKETS_MAX) {
            let waited = if made(Mistake::WaitBeginsAnew) { 0 } else { one.waited };
            queue.enter(Asked { waited, ..*one }, now);
        }
        queue
    }

    /// What goes along with the volume.
    pub fn all(&self, now: u64) -> Vec<Asked> {
        let asked = |one: &Waiting| {
            let waited = one.waited(now);
            Asked { ticket: one.ticket, waited, hold: one.hold }
        };
        if made(Mistake::QueueLeftBehind) {
            return Vec::new();
        }
        self.waiting.iter().map(asked).collect()
    }

    /// Puts a ticket where it belongs, or hears that it is wanted still: how many stand before it.
    fn enter(&mut self, asked: Asked, now: u64) -> Option<usize> {
        if let Some(at) = self.waiting.iter().position(|one| one.ticket == asked.ticket) {
            self.waiting[at].heard = now;
            return Some(at);
        }
        if self.waiting.len() == TICKETS_MAX {
            return None;
        }
        let since = now as i64 - asked.waited as i64;
        let at = self.waiting.partition_point(|one| one.since <= since);
        let Asked { ticket, hold, .. } = asked;
        self.waiting.insert(at, Waiting { ticket, since, hold, heard: now });
        Some(at)
    }

    /// A program asks, for the first time or again. `Ok`: it is let in; `Err`: how many wait before
    /// it, or nothing where the queue is full.
    pub fn ask(&mut self, here: u16, asked: Asked, now: u64) -> Result<(), Option<usize>> {
        let number = asked.ticket.number;
        if asked.ticket.node == here && self.inside.contains(&number) {
            return Ok(());
        }
        let at = self.enter(asked, now).ok_or(None)?;
        let goes_ahead = |one: &Waiting| {
            let is_late = one.waited(now) >= self.waiting[at].hold;
            one.ticket.node == here || !is_late || made(Mistake::HoldUnbounded)
        };
        let is_open = self.moving.is_none() || made(Mistake::LetInWhileMoving);
        if asked.ticket.node != here || !is_open || !self.waiting[..at].iter().all(goes_ahead) {
            return Err(Some(at));
        }
        self.waiting.remove(at);
        self.inside.insert(number);
        Ok(())
    }

    /// A program that was let in has ended, or executes what attaches the volume: that is seen
    /// otherwise from here on.
    pub fn left(&mut self, number: u64) {
        self.inside.remove(&number);
    }

    /// A program does not want the volume any more.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.waiting.retain(|one| one.ticket != ticket);
    }

    /// Time goes on.
    pub fn expire(&mut self, now: u64) {
        if !made(Mistake::DeadAskerStays) {
            self.waiting.retain(|one| now.saturating_sub(one.heard) < LATE);
        }
    }

    /// The ticket whose turn it is, if it is another node's.
    pub fn next(&self, here: u16, used: Use) -> Option<Ticket> {
        let front = self.waiting.first().map(|one| one.ticket);
        let is_idle = self.moving.is_none() && self.is_empty_inside() && used.is_none();
        front.filter(|ticket| is_idle && ticket.node != here)
    }

    fn is_empty_inside(&self) -> bool {
        self.inside.is_empty() || made(Mistake::InsideUncounted)
    }

    /// From here on nobody is let in: the volume is about to move to that ticket's node. `false`:
    /// it is not that ticket's turn any more.
    pub fn moves(&mut self, ticket: Ticket) -> bool {
        let is_front = self.waiting.first().is_some_and(|one| one.ticket == ticket);
        let moves = is_front && self.moving.is_none() && self.is_empty_inside();
        if moves {
            self.moving = Some(ticket);
        }
        moves
    }

    /// Whether it does, by what was seen behind [`Queue::moves`].
    pub fn decide(&mut self, used: Use) -> bool {
        if used.is_none() || made(Mistake::LookedEarly) {
            return true;
        }
        self.moving = None;
        false
    }

    /// It stays here. `refused`: the ticket's node cannot have it.
    pub fn stays(&mut self, refused: bool) {
        if let Some(ticket) = self.moving.take().filter(|_| refused) {
            self.withdraw(ticket);
        }
    }

    /// The ticket for which it moves.
    pub fn moving(&self) -> Option<Ticket> {
        self.moving
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.inside.is_empty() && self.moving.is_none()
    }
}
