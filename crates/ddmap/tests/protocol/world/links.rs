//! Connections of a host's processes to holders.
//!
//! Frames of one connection arrive in order, those of several in any. A connection that is lost
//! delivers some of what is under way, at any time, or nothing; the asker learns of the loss
//! later. The next one to the same holder is a new session: the holder then refuses frames of the
//! old one. A connection ends with the process of either side. A partition holds up one direction
//! or both.

use super::draw::Draw;
use crate::tests::protocol::memory::{Answer, Request};
use std::collections::VecDeque;

/// What goes to a holder.
#[derive(Clone, Debug)]
pub struct Frame {
    pub id: u64,
    pub thread: usize,
    pub request: Request,
}

/// What comes back.
#[derive(Clone, Debug)]
pub struct Reply {
    pub id: u64,
    pub thread: usize,
    pub answer: Answer,
    /// Its sum is wrong.
    pub torn: bool,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Link {
    pub slot: usize,
    pub life: u16,
    pub holder: usize,
    pub session: u32,
    /// Frames, and when they arrive.
    pub out: VecDeque<(u64, Frame)>,
    pub back: VecDeque<(u64, Reply)>,
    /// What was asked on it, and has no answer.
    pub asked: Vec<Frame>,
    /// It is lost: the asker learns so at this time.
    pub learnt_at: Option<u64>,
    /// The asker does not use it any more.
    pub left: bool,
}

impl Link {
    /// It is lost. What arrives all the same does so in order, and perhaps late.
    pub fn lose(&mut self, draw: &mut Draw, now: u64) {
        if self.learnt_at.is_none() && !self.left {
            self.learnt_at = Some(now + draw.below(200));
        }
        self.out.truncate(draw.index(self.out.len() + 1));
        self.back.truncate(draw.index(self.back.len() + 1));
        if draw.once_in(2)
            && let Some((due, _)) = self.out.front_mut()
        {
            *due += [400, 4_000, LATE][draw.index(3)];
        }
    }

    /// It is lost, and all that is under way comes very late.
    pub fn lose_late(&mut self, now: u64) {
        if self.learnt_at.is_none() && !self.left {
            self.learnt_at = Some(now + 1);
            self.out.iter_mut().for_each(|(due, _)| *due = now + LATE);
        }
    }

    /// Whether nothing is under way, and nothing will be.
    pub fn is_over(&self) -> bool {
        self.left && self.out.is_empty() && self.back.is_empty()
    }
}

/// How long what is very late takes: behind the end of all failures.
const LATE: u64 = 1 << 30;

/// All connections.
#[derive(Clone, Debug, Default)]
pub struct Links {
    pub all: Vec<Link>,
    next_id: u64,
    next_session: u32,
    /// Of each holder: until when frames to it, and answers of it, are held up.
    pub cut: Vec<[u64; 2]>,
}

impl Links {
    /// None yet, to so many holders.
    pub fn new(holders: usize) -> Self {
        Self { cut: vec![[0, 0]; holders], ..Self::default() }
    }

    /// The connection of a process to a holder, if it has one.
    pub fn find(&mut self, slot: usize, life: u16, holder: usize) -> Option<&mut Link> {
        self.all.iter_mut().find(|link| {
            link.slot == slot && link.life == life && link.holder == holder && !link.left
        })
    }

    /// Makes one.
    pub fn connect(&mut self, slot: usize, life: u16, holder: usize) {
        self.next_session += 1;
        self.all.push(Link {
            slot,
            life,
            holder,
            session: self.next_session,
            out: VecDeque::new(),
            back: VecDeque::new(),
            asked: Vec::new(),
            learnt_at: None,
            left: false,
        });
    }

    /// A number for a request.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Connections of which something can arrive now: at the holder, and at the asker.
    pub fn due(&self, now: u64) -> Vec<(usize, bool)> {
        let mut due = Vec::new();
        for (at, link) in self.all.iter().enumerate() {
            let cut = self.cut[link.holder];
            if cut[0] <= now && link.out.front().is_some_and(|(when, _)| *when <= now) {
                due.push((at, true));
            }
            if cut[1] <= now && link.back.front().is_some_and(|(when, _)| *when <= now) {
                due.push((at, false));
            }
        }
        due
    }

    /// What was very late comes: of these connections.
    pub fn hurry(&mut self, now: u64, which: impl Fn(&Link) -> bool) {
        for link in self.all.iter_mut().filter(|link| which(link)) {
            link.out.iter_mut().for_each(|(due, _)| *due = now.min(*due));
        }
    }

    /// Whether something is under way that is not very late.
    pub fn is_quiet(&self, now: u64) -> bool {
        let soon = |due: Option<u64>| due.is_some_and(|due| due < now + LATE / 2);
        !self.all.iter().any(|link| {
            soon(link.out.front().map(|(due, _)| *due))
                || soon(link.back.front().map(|(due, _)| *due))
        })
    }
}
