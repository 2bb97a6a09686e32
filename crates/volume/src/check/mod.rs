//! Checks, repairs and describes a volume.

#[cfg(test)]
mod damage_tests;
pub(crate) mod extents;
pub(crate) mod fsck;
#[cfg(test)]
mod fsck_tests;
pub(crate) mod info;
#[cfg(test)]
mod media_tests;
pub(crate) mod processes;
pub(crate) mod repair;
mod repair_actions;
#[cfg(test)]
mod repair_tests;

use crate::recovery::Recoveries;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Recovery, and checks.
pub struct Checks {
    /// Shared with the calls of a waiter that has found a dead process
    /// ([`crate::medium::Recover`]).
    recoveries: Arc<Recoveries>,
    /// A repair of the volume did not come to its end.
    pub(crate) unrepaired: AtomicBool,
}

impl Deref for Checks {
    type Target = Recoveries;

    #[inline]
    fn deref(&self) -> &Recoveries {
        &self.recoveries
    }
}

impl Checks {
    pub(crate) fn new(recoveries: Arc<Recoveries>) -> Self {
        Self { recoveries, unrepaired: AtomicBool::new(false) }
    }
}
