//! Programs that wait for volumes, in a node's memory: in the queues of volumes of which it is the
//! host, and those of its own machine (`protocol/handover.rs` has the rules).
//!
//! Locks: `queues` and `wants`, neither with the other.

use crate::control::processes;
use crate::control::status::{AskStatus, UserStatus, WaitStatus, Waits};
use crate::protocol::{Asked, Queue, Ticket};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A process that has let go of a volume executes a program within that, and so does one that an
/// earlier life of the node has let in: until then a node gives no turns.
const EXECUTES: Duration = Duration::from_secs(2);
/// Of processes that have a volume, and of those that wait, so many are told.
pub const TOLD_MAX: usize = 16;

/// A volume's queue, and what the programs in it hear.
#[derive(Default)]
pub struct Line {
    /// Whose turn it is.
    pub queue: Queue,
    /// The processes that have it, as was seen last.
    pub users: Option<Vec<UserStatus>>,
    /// Programs that wait in vain, and why, until they hear of it.
    pub refused: Vec<(Ticket, String)>,
    /// Moves that have failed.
    pub failures: u32,
    /// None is tried before.
    pub not_before: Option<Instant>,
}

/// What a program of this machine waits for.
pub struct Want {
    volume: String,
    hold: u64,
    since: Instant,
    /// When a node last said something of it.
    pub heard: Instant,
    /// What for.
    pub waits: Waits,
}

/// Those that wait.
pub struct Handovers {
    begun: Instant,
    /// The number of the last ticket.
    numbers: AtomicU64,
    queues: Mutex<BTreeMap<String, Line>>,
    wants: Mutex<BTreeMap<u64, Want>>,
    /// Programs that do not want a volume any more of which another node is the host.
    withdrawn: Mutex<Vec<(String, u64, u16)>>,
    /// Processes that have let go of a volume, and when.
    executing: Mutex<Vec<(String, i32, Instant)>>,
    turns: Mutex<Option<Thread>>,
    asks: Mutex<Option<Thread>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(thread: &Mutex<Option<Thread>>) {
    if let Some(thread) = &*lock(thread) {
        thread.unpark();
    }
}

impl Handovers {
    /// Nobody waits.
    pub fn new() -> Self {
        let (queues, wants, withdrawn, executing) = Default::default();
        let (turns, asks) = Default::default();
        // A ticket of an earlier life of this node is none of this.
        let mut number = [0; 8];
        let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
        let numbers = AtomicU64::new(u64::from_ne_bytes(number));
        Self { begun: Instant::now(), numbers, queues, wants, withdrawn, executing, turns, asks }
    }

    /// A number for a ticket.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// A program asks for a volume of which this node, `here`, is the host. `None`: it is let in.
    pub fn ask(&self, volume: &str, here: u16, asked: Asked) -> Option<Waits> {
        let mut queues = lock(&self.queues);
        let line = queues.entry(volume.to_owned()).or_default();
        let refused = line.refused.iter().position(|one| one.0 == asked.ticket);
        let mut waits = Waits { host: here, users: line.users.clone(), ..Waits::default() };
        if let Some(at) = refused {
            waits.ended = Some(line.refused.swap_remove(at).1);
            return Some(waits);
        }
        match line.queue.ask(here, asked, self.now()) {
            Ok(()) => return None,
            Err(Some(before)) => waits.before = before as u64,
            Err(None) => waits.ended = Some("too many programs wait for it".to_owned()),
        }
        if let Some(ticket) = line.queue.moving() {
            waits.note = format!("node {here} moves it to node {}", ticket.node);
        }
        drop(queues);
        wake(&self.turns);
        Some(waits)
    }

    /// A program of this machine waits: what its ticket says.
    pub fn wants(&self, number: u64, volume: &str, hold: u64, here: u16) -> Asked {
        let mut wants = lock(&self.wants);
        let begins = || Want {
            volume: volume.to_owned(),
            hold,
            since: Instant::now(),
            heard: Instant::now(),
            waits: Waits::default(),
        };
        let is_new = !wants.contains_key(&number);
        let want = wants.entry(number).or_insert_with(begins);
        let asked = want.asked(here, number);
        drop(wants);
        if is_new {
            wake(&self.asks);
        }
        asked
    }

    /// Whether a program of this machine waits.
    pub fn is_wanted(&self, number: u64) -> bool {
        lock(&self.wants).get(&number).is_some_and(|want| want.waits.ended.is_none())
    }

    /// A program does not want a volume any more.
    pub fn withdraw(&self, volume: &str, ticket: Ticket) {
        if let Some(line) = lock(&self.queues).get_mut(volume) {
            line.queue.withdraw(ticket);
            line.refused.retain(|one| one.0 != ticket);
        }
    }

    /// The connection of a program has ended that wanted a volume, and may have been let in.
    pub fn ends(&self, volume: &str, (here, number): (u16, u64), pid: i32) {
        self.executes(volume, pid);
        self.withdraw(volume, Ticket { node: here, number });
        if let Some(line) = lock(&self.queues).get_mut(volume) {
            line.queue.left(number);
        }
        let want = lock(&self.wants).remove(&number);
        if let Some(want) = want.filter(|want| ![0, here].contains(&want.waits.host)) {
            lock(&self.withdrawn).push((want.volume, number, want.waits.host));
            wake(&self.asks);
        }
        wake(&self.turns);
    }

    /// A process has let go of a volume: it has ended, or executes a program.
    pub fn executes(&self, volume: &str, pid: i32) {
        let mut executing = lock(&self.executing);
        executing.retain(|one| one.2.elapsed() < EXECUTES);
        executing.push((volume.to_owned(), pid, Instant::now()));
        drop(executing);
        wake(&self.turns);
    }

    /// Of the processes that have let go of a volume, those that may execute a program.
    pub fn executing(&self, volume: &str) -> Vec<i32> {
        let all = lock(&self.executing).clone();
        let may = |one: &(String, i32, Instant)| {
            one.0 == volume && one.2.elapsed() < EXECUTES && processes::may_execute(one.1)
        };
        all.into_iter().filter(may).map(|one| one.1).collect()
    }

    /// Whether programs that an earlier life of the node has let in may not have become others yet.
    pub fn is_new(&self) -> bool {
        self.begun.elapsed() < EXECUTES
    }

    /// The volumes that have a queue.
    pub fn volumes(&self) -> Vec<String> {
        lock(&self.queues).keys().cloned().collect()
    }

    /// Removes a volume's queue, if it is empty: whether it has. Time goes on.
    pub fn is_over(&self, volume: &str) -> bool {
        let (mut queues, now) = (lock(&self.queues), self.now());
        let Some(line) = queues.get_mut(volume) else { return true };
        line.queue.expire(now);
        let is_over = line.queue.is_empty() && line.refused.is_empty();
        if is_over {
            queues.remove(volume);
        }
        is_over
    }

    /// The calling thread gives turns from here on.
    pub fn gives_turns(&self) {
        *lock(&self.turns) = Some(std::thread::current());
    }

    /// The calling thread asks hosts from here on.
    pub fn asks_hosts(&self) {
        *lock(&self.asks) = Some(std::thread::current());
    }

    /// The programs that do not want a volume any more of which another node is the host: volume,
    /// number, host. Each is told once.
    pub fn take_withdrawn(&self) -> Vec<(String, u64, u16)> {
        std::mem::take(&mut *lock(&self.withdrawn))
    }

    /// The programs of this machine that wait: volume, ticket, and the host that is known.
    pub fn open(&self, here: u16) -> Vec<(String, Asked, u16)> {
        let wants = lock(&self.wants);
        let open = wants.iter().filter(|(_, want)| want.waits.ended.is_none());
        let told = open.map(|(number, want)| {
            (want.volume.clone(), want.asked(here, *number), want.waits.host)
        });
        told.collect()
    }

    /// What a program of this machine waits for.
    pub fn waits(&self, number: u64) -> Waits {
        lock(&self.wants).get(&number).map(|want| want.waits.clone()).unwrap_or_default()
    }

    /// It was let in.
    pub fn is_in(&self, number: u64) {
        lock(&self.wants).remove(&number);
    }

    /// What goes along with a volume.
    pub fn queue_of(&self, volume: &str) -> Vec<Asked> {
        lock(&self.queues).get(volume).map_or_else(Vec::new, |line| line.queue.all(self.now()))
    }

    /// What has come with one.
    pub fn arrives(&self, volume: &str, here: u16, all: &[Asked]) {
        let numbers: Vec<u64> = lock(&self.wants).keys().copied().collect();
        let known = |number| numbers.contains(&number);
        let queue = Queue::arrived(all, here, known, self.now());
        let mut queues = lock(&self.queues);
        // It is told so again until this node is the host, and lets programs in. What is left of a
        // queue that has gone along with the volume means nothing.
        let is_there = queues.get(volume).is_some_and(|line| line.queue.moving().is_none());
        if !is_there {
            queues.insert(volume.to_owned(), Line { queue, ..Line::default() });
        }
    }

    /// Its new host has the queue. One that has come here since stays.
    pub fn has_gone(&self, volume: &str) {
        let mut queues = lock(&self.queues);
        if queues.get(volume).is_some_and(|line| line.queue.moving().is_some()) {
            queues.remove(volume);
        }
        drop(queues);
        wake(&self.asks);
    }

    /// This node is not the host of a volume, nor about to be.
    pub fn is_elsewhere(&self, volume: &str) {
        lock(&self.queues).remove(volume);
        wake(&self.asks);
    }

    /// The programs that wait for a volume of this node's.
    pub fn waiting(&self, volume: &str) -> Vec<WaitStatus> {
        let status = |one: &Asked| WaitStatus { node: one.ticket.node, seconds: one.waited / 1000 };
        self.queue_of(volume).iter().take(TOLD_MAX).map(status).collect()
    }

    /// The programs of this machine that wait for volumes of other hosts than this.
    pub fn asking(&self, here: u16) -> Vec<AskStatus> {
        let status = |want: &Want| AskStatus {
            volume: want.volume.clone(),
            seconds: want.since.elapsed().as_secs(),
            waits: want.waits.clone(),
        };
        let wants = lock(&self.wants);
        wants.values().filter(|one| one.waits.host != here).take(TOLD_MAX).map(status).collect()
    }

    /// Something is said of a program of this machine.
    pub fn hears(&self, number: u64, change: impl FnOnce(&mut Want)) {
        if let Some(want) = lock(&self.wants).get_mut(&number) {
            change(want);
        }
    }

    /// Looks at a volume's queue, if it has one.
    pub fn line<T>(&self, volume: &str, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.queues).get_mut(volume).map(change)
    }
}

impl Want {
    fn asked(&self, node: u16, number: u64) -> Asked {
        let waited = self.since.elapsed().as_millis() as u64;
        Asked { ticket: Ticket { node, number }, waited, hold: self.hold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Use;

    fn asks(node: u16, number: u64, waited: u64) -> Asked {
        Asked { ticket: Ticket { node, number }, waited, hold: 0 }
    }

    /// The volume comes back before the node has heard that it has gone.
    #[test]
    fn a_queue_that_has_gone_along_means_nothing() {
        let turns = Handovers::new();
        let (first, back) = (asks(2, 7, 50), asks(1, turns.number(), 20));
        assert_eq!(turns.ask("v", 1, first).map(|waits| waits.before), Some(0));
        let moves = |line: &mut Line| {
            let ticket = line.queue.next(1, Use::default());
            assert_eq!(ticket, Some(first.ticket));
            assert!(line.queue.moves(first.ticket) && line.queue.decide(Use::default()));
        };
        turns.line("v", moves).expect("it has a queue");
        let own = turns.wants(back.ticket.number, "v", 0, 1);
        turns.arrives("v", 1, &[back, asks(1, 99, 40), asks(3, 8, 0)]);
        turns.has_gone("v");
        let waiting: Vec<u16> = turns.waiting("v").iter().map(|one| one.node).collect();
        assert_eq!(waiting, [1, 3], "of this node's programs, that which waits still");
        assert_eq!(turns.ask("v", 1, own), None);
        // A program that was let in stays so until its connection ends, however often that is told.
        turns.arrives("v", 1, &[]);
        assert!(turns.line("v", |line| line.queue.next(1, Use::default())) == Some(None));
        turns.ends("v", (1, own.ticket.number), 0);
        let next = turns.line("v", |line| line.queue.next(1, Use::default()));
        assert_eq!(next.flatten().map(|ticket| ticket.node), Some(3));
    }
}
