//! The recording backend: every store, flush and fence of a region, with its caller.
//!
//! The crash explorer replays a trace into every state a power cut could leave. One mutex orders
//! the events of all threads; a trace is for tests, never for production.

use crate::region::hook::Hook;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thing that happened to a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were stored.
    Store {
        /// Where in the region.
        off: u64,
        /// What.
        bytes: Vec<u8>,
        /// Non-temporal: in flight without a flush.
        streamed: bool,
        /// The call site of the store.
        at: &'static Location<'static>,
    },
    /// A line was flushed.
    Flush {
        /// Offset of the line's first byte.
        line: u64,
        /// The call site of the flush.
        at: &'static Location<'static>,
    },
    /// Everything in flight became durable.
    Fence {
        /// The call site of the fence.
        at: &'static Location<'static>,
    },
    /// A remark of the test, such as the end of an operation.
    Mark(String),
}

/// A growing list of [`Event`]s.
#[derive(Debug, Default)]
pub struct Trace {
    events: Mutex<Vec<Event>>,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new() -> Arc<Trace> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events so far; the trace starts anew.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock())
    }

    /// A copy of the events so far.
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// Adds a remark.
    pub fn mark(&self, text: impl Into<String>) {
        self.lock().push(Event::Mark(text.into()));
    }
}

impl Hook for Trace {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.lock().push(Event::Store { off, bytes: bytes.to_vec(), streamed, at });
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        self.lock().push(Event::Flush { line: off, at });
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.lock().push(Event::Fence { at });
    }
}
