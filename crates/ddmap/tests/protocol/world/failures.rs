//! What fails, and how it comes back.
//!
//! A program that dies loses what it owes; its names count until it is buried, its claims stay. A
//! node that dies leaves its eviction where it stands. A restarted host has its memory, and counts
//! its rooms anew. A holder's process dies at any access to its memory, and comes back with that;
//! or with none, or with what it had some time ago: then those versions are *gone*.

use super::run::World;
use super::threads::{Doing, Thread, node_of};
use crate::protocol::messages::KeptPage;
use crate::protocol::{State, holder};
use crate::tests::protocol::memory::{Desk, Flaw, HolderMemory};

impl World {
    /// Something may fail.
    pub fn fail(&mut self) {
        let rates = self.config.rates.clone();
        if self.draw.once_in(rates.program_dies) {
            let slot = 1 + self.draw.index(self.config.programs);
            self.kill(slot);
        }
        if self.draw.once_in(rates.node_dies) {
            self.kill(0);
        }
        if self.draw.once_in(rates.host_restarts) {
            self.restart_host();
        }
        if self.draw.once_in(rates.holder_dies) {
            let holder = self.draw.index(self.holders.len());
            // It dies at an access: now, or at one of the next that it makes.
            self.holders[holder].lives_for = self.draw.below(8) as u32;
        }
        if self.draw.once_in(rates.memory_lost) {
            let holder = self.draw.index(self.holders.len());
            self.lose_memory(holder);
            let living = self.holders.iter().filter(|holder| !holder.forgotten).count();
            if holder > 0 && living > 2 && self.draw.once_in(2) {
                self.forget(holder);
            }
        }
        if self.draw.once_in(rates.link_lost) && !self.links.all.is_empty() {
            let at = self.draw.index(self.links.all.len());
            self.tell(|| format!("connection {at} is lost"));
            self.links.all[at].lose(&mut self.draw, self.now);
        }
        if self.draw.once_in(rates.partition) {
            let holder = self.draw.index(self.holders.len());
            let until = self.now + self.draw.between(50, 800);
            let which = self.draw.below(3);
            for direction in 0..2 {
                if which != direction {
                    self.links.cut[holder][direction as usize] = until;
                }
            }
        }
        if self.draw.once_in(rates.stop) {
            let slot = self.draw.index(1 + self.config.programs);
            self.stopped_until[slot] = self.now + self.draw.between(20, 600);
        }
        self.fail_below();
        for slot in 0..=self.config.programs {
            let stopped = self.stopped_until[slot] > self.now;
            let process = &mut self.host.borrow_mut().processes[slot];
            process.stopped = process.alive && stopped;
        }
    }

    /// A word of the directory is damaged, memory is used up; both for a while.
    fn fail_below(&mut self) {
        if self.draw.once_in(self.config.rates.damage) {
            let page = self.draw.below(self.config.pages as u64);
            self.host.borrow_mut().damaged.insert(page);
        }
        if self.draw.once_in(self.config.rates.tight) {
            let at = self.draw.index(2 * self.holders.len());
            match self.holders.get(at) {
                Some(holder) => holder.memory.borrow_mut().tight = true,
                None => self.host.borrow_mut().tight = true,
            }
        }
        if self.draw.once_in(100) {
            let mut host = self.host.borrow_mut();
            host.damaged.pop_first();
            host.tight = false;
            self.holders.iter().for_each(|holder| holder.memory.borrow_mut().tight = false);
        }
    }

    /// A process of the host dies.
    pub fn kill(&mut self, slot: usize) {
        if !self.host.borrow().processes[slot].alive {
            return;
        }
        self.tell(|| format!("{slot} dies"));
        self.counts.deaths += 1;
        let working = |thread: &&Thread| !matches!(thread.doing, Doing::Rest | Doing::Access);
        let mut leaks = self.threads[slot].iter().filter(working).count() as i32;
        if slot == 0 {
            let evicted = self.node.evicting.iter().flatten().map(|one| one.pages);
            leaks += evicted.sum::<u32>() as i32;
            self.node = super::node::Node::default();
        }
        let life = self.host.borrow().processes[slot].life;
        let before = self.host.borrow().leaked;
        self.host.borrow_mut().die(slot);
        if self.host.borrow().leaked > before + leaks {
            self.wrong(format!("{slot} had more than {leaks} rooms in hand when it died"));
        }
        self.threads[slot].fill(Thread::new());
        self.owed[slot].clear();
        for link in &mut self.links.all {
            if link.slot == slot && link.life == life {
                link.lose(&mut self.draw, self.now);
                link.back.clear();
                (link.left, link.learnt_at) = (true, None);
            }
        }
        self.reconcile_all();
    }

    /// The dead are buried, and others take their slots; holders start again.
    pub fn come_back(&mut self, often: u64) {
        for slot in 0..=self.config.programs {
            if !self.host.borrow().processes[slot].alive && self.draw.once_in(often) {
                let buried = std::mem::replace(&mut self.buried[slot], true);
                self.host.borrow_mut().processes[slot].bury();
                if self.draw.once_in(2) {
                    self.host.borrow_mut().recover_rooms();
                }
                if buried {
                    self.tell(|| format!("{slot} starts"));
                    self.host.borrow_mut().processes[slot].rise();
                    self.buried[slot] = false;
                    self.node.to_settle = (0..self.config.pages as u64).collect();
                }
            }
        }
        for holder in 0..self.holders.len() {
            let there = &self.holders[holder];
            if !there.alive && !there.forgotten && self.draw.once_in(often) {
                self.start_holder(holder);
            }
        }
    }

    /// All processes of the host die, and its memory stays.
    fn restart_host(&mut self) {
        (0..=self.config.programs).for_each(|slot| self.kill(slot));
        let mut host = self.host.borrow_mut();
        host.taken = match host.flaw {
            Some(Flaw::ClaimsUncounted) => host.in_file(),
            _ => host.rightly_taken(),
        };
        host.leaked = 0;
    }

    /// An access of a holder's has failed: it dies, or has no answer to what it was at.
    pub fn fail_holder(&mut self, holder: usize, links: [Option<usize>; 2]) {
        if self.draw.once_in(2) {
            self.kill_holder(holder);
        } else {
            self.holders[holder].lives_for = u32::MAX;
            for link in links.into_iter().flatten() {
                self.links.all[link].lose(&mut self.draw, self.now);
            }
        }
    }

    /// A holder's process dies.
    pub fn kill_holder(&mut self, holder: usize) {
        self.tell(|| format!("holder {holder} dies"));
        self.counts.holder_deaths += 1;
        self.holders[holder].alive = false;
        for link in self.links.all.iter_mut().filter(|link| link.holder == holder) {
            link.lose(&mut self.draw, self.now);
            link.out.clear();
        }
    }

    fn start_holder(&mut self, at: usize) {
        let dies = !self.calm && self.draw.once_in(4);
        let holder = &mut self.holders[at];
        let desk = Desk::new(&holder.memory);
        if dies {
            desk.lives_for.set(self.draw.below(6) as u32);
        }
        let leaves_busy = self.host.borrow().flaw == Some(Flaw::BusyLeft);
        if !leaves_busy && holder::restart(&desk, 0..self.config.pages as u64).is_err() {
            return;
        }
        let mut memory = holder.memory.borrow_mut();
        let has = memory.words.iter().filter(|word| word.state() != State::Absent).count();
        memory.taken = has as u32;
        drop(memory);
        (holder.alive, holder.lives_for) = (true, u32::MAX);
        holder.sessions.clear();
        self.tell(|| format!("holder {at} starts"));
    }

    /// A holder that is dead is removed from the domain.
    fn forget(&mut self, holder: usize) {
        self.tell(|| format!("holder {holder} is removed"));
        self.counts.forgotten += 1;
        self.holders[holder].forgotten = true;
        self.to_reconcile[holder] = false;
        self.host.borrow_mut().forgotten.insert(node_of(holder).number());
    }

    /// A holder dies, and what it has is gone, or is what it had some time ago.
    fn lose_memory(&mut self, holder: usize) {
        self.kill_holder(holder);
        let capacity = self.holders[holder].memory.borrow().capacity;
        let empty = HolderMemory::new(self.config.pages, capacity);
        let copy = self.holders[holder].copy.take();
        let now = copy.filter(|_| self.draw.once_in(2)).unwrap_or(empty);
        let before = self.holders[holder].memory.replace(now);
        for KeptPage { page, version, .. } in before.claims() {
            let has = self.holders[holder].memory.borrow().kept(page);
            if has.is_none_or(|(now, _)| now != version) {
                let lost = (node_of(holder).number(), page, version.number());
                self.host.borrow_mut().gone.insert(lost);
            }
        }
        self.tell(|| format!("holder {holder} has lost its memory"));
    }
}
