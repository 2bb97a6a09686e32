//! A volume comes: what its new host answers to the old one, and does when it has come
//! (`shared_memory/migration.rs`).

use super::service::{Answering, refused};
use crate::control::node_messages::{self, NodeReply};
use crate::control::registry::Registry;
use crate::protocol::holder::Stored;
use crate::protocol::messages::Answer;
use crate::protocol::{Asked, PAGE, Version};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::migration::{Arrival, Moved};
use crate::shared_memory::store::VolumeAbout;
use crate::wire::Hello;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Volumes on their way here.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Whose tables are being sent.
    coming: Mutex<Vec<Arrival>>,
    /// Those that this node is to take over: which attempts; and the thread that does it.
    wanted: Mutex<(Vec<u64>, Option<Thread>)>,
    /// Pages that are to be with this node, and are being brought, of volumes that have come.
    missing: Mutex<BTreeMap<String, u64>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no(text: impl Into<String>) -> NodeReply {
    NodeReply::Refused { text: text.into() }
}

impl Answering {
    /// The volume of this number, if this node is its host, and its name.
    pub fn host_of(&self, uuid: &[u8; 16]) -> Option<(String, VolumeAbout)> {
        let about = |name: String| Some((name.clone(), self.store.volume_about(&name).ok()??));
        self.store.volumes().into_iter().filter_map(about).find(|one| one.1.uuid == *uuid)
    }

    /// Whether this node is the host of a volume.
    pub(super) fn tell_where(&self, uuid: &[u8; 16], name: Option<&str>) -> NodeReply {
        let is_host = match name {
            Some(name) => matches!(self.store.volume_about(name), Ok(Some(_))),
            // It may be again.
            None => self.host_of(uuid).is_some() || self.store.may_come_back(uuid).is_some(),
        };
        if is_host { NodeReply::Done } else { no("another node's, or nobody's") }
    }

    /// Whether an attempt to move a volume from here is under way, or was decided.
    pub(super) fn tell_attempt(&self, attempt: u64) -> NodeReply {
        if self.store.knows_attempt(attempt) {
            NodeReply::Done
        } else {
            no("there is no such attempt")
        }
    }

    /// A volume is about to come.
    pub(super) fn arrive(&self, hello: &Hello, mut moved: Moved) -> NodeReply {
        moved.node = hello.node.number();
        let fits = moved.uuid == hello.volume && moved.term == hello.term.wrapping_add(1);
        if !fits || Registry::check_name("volume", &moved.name).is_err() {
            return no("what is said of the volume is not what the connection says");
        }
        match self.store.receive(&moved) {
            Ok(arrival) => {
                let mut coming = lock(&self.arrivals.coming);
                coming.retain(|one| one.moved.uuid != moved.uuid);
                coming.push(arrival);
                NodeReply::Done
            }
            Err(error) => no(error.to_string()),
        }
    }

    /// Pages of its tables.
    pub(super) fn put_tables(
        &self,
        hello: &Hello,
        pages: &[(u64, Version)],
        bytes: &[u8],
    ) -> Answer {
        let coming = lock(&self.arrivals.coming);
        let found = coming
            .iter()
            .find(|one| one.moved.uuid == hello.volume && one.moved.node == hello.node.number());
        let Some(arrival) = found else {
            return refused(Errno::NOENT, "no such volume is about to come here");
        };
        for ((number, _), page) in pages.iter().zip(bytes.chunks_exact(PAGE as usize)) {
            if let Err(error) = arrival.put(*number, page) {
                return refused(Errno::IO, format!("a page of its tables: {error}"));
            }
        }
        Answer::Stored(vec![Stored::Kept; pages.len()])
    }

    /// The old host has decided that this node is the host; those wait for the volume.
    pub(super) fn to_take_over(&self, uuid: &[u8; 16], attempt: u64, queue: &[Asked]) -> NodeReply {
        if let Some((name, _)) = self.host_of(uuid) {
            let missing = lock(&self.arrivals.missing).get(&name).copied().unwrap_or(0);
            return NodeReply::Took { missing };
        }
        let arriving = self.store.arriving();
        let Some(moved) = arriving.iter().find(|one| one.attempt == attempt) else {
            return no(format!("{} knows nothing of this volume", self.here));
        };
        self.handovers.arrives(&moved.name, self.here.number(), queue);
        let mut wanted = lock(&self.arrivals.wanted);
        if !wanted.0.contains(&attempt) {
            wanted.0.push(attempt);
        }
        drop(wanted);
        self.wake();
        NodeReply::Later
    }

    /// Wakes the thread that takes volumes over.
    pub fn wake(&self) {
        if let Some(thread) = &lock(&self.arrivals.wanted).1 {
            thread.unpark();
        }
    }

    /// So many pages of a volume that has come are to be here, and are not.
    pub fn set_missing(&self, name: &str, pages: u64) {
        lock(&self.arrivals.missing).insert(name.to_owned(), pages);
    }

    /// The calling thread takes volumes over from here on.
    pub fn take_over_here(&self) {
        lock(&self.arrivals.wanted).1 = Some(std::thread::current());
    }

    /// Takes the volumes over that were decided upon: their names.
    pub fn take_over(&self) -> Vec<String> {
        let wanted = std::mem::take(&mut lock(&self.arrivals.wanted).0);
        let arriving = self.store.arriving().into_iter();
        let mut names = Vec::new();
        for moved in arriving.filter(|moved| wanted.contains(&moved.attempt)) {
            lock(&self.arrivals.coming).retain(|one| one.moved.uuid != moved.uuid);
            // Nobody asks for what is kept: the old host sends nothing any more, and the new one is
            // this node.
            self.let_go(&moved.uuid);
            // It is not known how many until it has come.
            self.set_missing(&moved.name, 1);
            match self.store.take_over(&moved, self.here) {
                Ok(()) => names.push(moved.name),
                // The old host asks again.
                Err(error) => eprintln!("solera: node: {error}"),
            }
        }
        names
    }

    /// Serves nothing more of what is kept of a region. A request that is being served ends.
    pub(super) fn let_go(&self, uuid: &[u8; 16]) {
        let mut kept = self.kept().remove(uuid);
        while kept.as_mut().is_some_and(|kept| Arc::get_mut(kept).is_none()) {
            std::thread::yield_now();
        }
    }

    /// What is here of a volume that has gone is kept from here on.
    pub fn keep_gone(&self, moved: &Moved) -> Result<(), DomainError> {
        self.store.keep_gone(moved)?;
        let opened = self.hold(&moved.uuid, (moved.node, moved.term), moved.pages);
        opened.map(drop).map_err(|found| {
            DomainError::new(format!("keep the pages of {}", moved.name), found, "")
        })
    }

    /// Drops volumes that were about to come, and do not: `is_known` says whether the old host has
    /// their attempts still, if it answers.
    pub fn drop_arrivals(&self, is_known: impl Fn(&Moved) -> Option<bool>) {
        for moved in self.store.arriving() {
            if is_known(&moved) == Some(false) {
                lock(&self.arrivals.coming).retain(|one| one.moved.attempt != moved.attempt);
                self.store.refuse(&moved);
            }
        }
    }
}

/// What is said as an answer.
pub(super) fn told(told: &NodeReply) -> Answer {
    Answer::Control { text: node_messages::text(told) }
}
