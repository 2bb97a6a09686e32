//! Who carries a process's requests to holders.

use crate::protocol::messages::{Answer, KeptPage, Request};
use crate::protocol::{NodeId, Version};
use std::time::Duration;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreached {
    /// The holder could not be asked, or has not answered: what it has done is not known.
    Silent,
    /// The domain has no such node any more: nobody will answer.
    Gone,
}

/// Pages that are asked of a holder.
#[derive(Clone, Debug, Default)]
pub struct Fetch {
    /// Those that are wanted, in these versions.
    pub pages: Vec<(u64, Version)>,
    /// Those that it is to drop, or to know for spares.
    pub releases: Vec<KeptPage>,
    /// Those that will be wanted next, as far as is known: nobody waits for them.
    pub next: Vec<(u64, Version)>,
}

/// What was asked for in vain, or may not have been heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GivenUp {
    /// Pages that nobody has wanted in the end.
    pub pages: u64,
    /// A holder may not have been told what to drop.
    pub is_untold: bool,
}

/// Carries requests.
pub trait Carrier: Send + Sync {
    /// This process is a forked child: its parent's connections are not its own. It says so of
    /// itself from now on, as this slot and life.
    fn forked(&self, slot: u16, life: u32);

    /// What it may not be able to look for later it looks for now: where nodes are.
    fn learn(&self) {}

    /// Asks a node, and waits for its answer, at most `patience`, and not beyond a signal whose
    /// turn it is.
    fn ask(&self, to: NodeId, request: &Request, patience: Duration) -> Result<Answer, Unreached>;

    /// The same of pages. A carrier may ask for those that are wanted next, too, and keep what
    /// comes of them: a version's bytes never change, so a later fetch need not ask for it.
    fn fetch(&self, to: NodeId, fetch: Fetch, patience: Duration) -> Result<Answer, Unreached> {
        let Fetch { pages, releases, .. } = fetch;
        self.ask(to, &Request::Fetch { pages, releases }, patience)
    }

    /// What it has given up since that was asked last; `all`: it gives up what it has kept.
    fn given_up(&self, all: bool) -> GivenUp {
        let _ = all;
        GivenUp::default()
    }
}
