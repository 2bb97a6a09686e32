//! Who carries a process's requests to holders.

use crate::protocol::NodeId;
use crate::protocol::messages::{Answer, Request};
use std::time::Duration;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreached {
    /// The holder could not be asked, or has not answered: what it has done is not known.
    Silent,
    /// The domain has no such node any more: nobody will answer.
    Gone,
}

/// Carries requests.
pub trait Carrier: Send + Sync {
    /// This process is a forked child: its parent's connections are not its own. It says so of
    /// itself from now on, as this slot and life.
    fn forked(&self, slot: u16, life: u32);

    /// Asks a node, and waits for its answer, at most `patience`, and not beyond a signal whose
    /// turn it is.
    fn ask(&self, to: NodeId, request: &Request, patience: Duration) -> Result<Answer, Unreached>;
}
