//! A volume as one process sees it: the layers, one upon the other.
//!
//! Each layer has a type. It owns the type of the layer below and derefs to it, down to [`Medium`],
//! so a layer calls its own methods and those of all layers below as its own. It has no way to a
//! layer above: the compiler refuses what goes upwards. What must go up all the same goes as a
//! value that is returned, as a hint that upkeep is due (`space/upkeep_hints.rs`), or by
//! [`Recover`](crate::medium::Recover).

use crate::Result;
use crate::cache::Caches;
use crate::check::Checks;
use crate::data::Files;
use crate::inode::Inodes;
use crate::medium::{Medium, Parts};
use crate::namespace::Names;
use crate::open::Opens;
use crate::process::Processes;
use crate::process::liveness::Liveness;
use crate::recovery::{Recoveries, Recovery};
use crate::space::Space;
use crate::txn::Operations;
use crate::upkeep::Upkeep;
use crate::watch::openings::Openings;
use crate::watch::table::Table;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use vfs::versions::AtEnd;
use vfs::{FileSystem, Node};

/// A volume, attached by this process. Detached when dropped.
pub struct Volume {
    checks: Checks,
    /// What only this process knows.
    pub(crate) local: Local,
}

impl Deref for Volume {
    type Target = Checks;

    #[inline]
    fn deref(&self) -> &Checks {
        &self.checks
    }
}

impl Volume {
    /// Puts the parts together; the slot is still to be taken.
    pub(crate) fn assemble(parts: Parts, liveness: Liveness) -> Self {
        let recoveries = Arc::new_cyclic(|recoveries: &Weak<Recoveries>| {
            let ground = Medium::new(parts, recoveries.clone());
            let processes = Processes::new(ground, liveness);
            let inodes = Inodes::new(Space::new(processes));
            let files = Files::new(Caches::new(Operations::new(inodes)));
            Recoveries::new(Upkeep::new(Opens::new(Names::new(files))))
        });
        Self { checks: Checks::new(recoveries), local: Local::default() }
    }
}

/// What a face does before a file's contents change (see [`FileSystem::on_privileged_change`]).
pub(crate) type PrivilegedChange = fn(&dyn FileSystem, Node) -> Result<()>;

/// What a process knows of its own attachment; a forked child inherits a copy.
#[derive(Default)]
pub(crate) struct Local {
    /// The number + 1 at which the old image left a descriptor of the anchor directory; else 0.
    pub(crate) anchor: AtomicU32,
    /// The saved free map's crc + 1, if this process found it true; else 0.
    pub(crate) saved: AtomicU64,
    /// What is done before it changes the contents of a file with set-id bits or capabilities.
    pub(crate) privileged_change: OnceLock<PrivilegedChange>,
    /// It only reads, and what a crash left open was undone in memory.
    pub(crate) recovered_view: AtomicBool,
    /// What is done when it ends the era.
    pub(crate) at_end: Mutex<Option<AtEnd>>,
    /// What it recovered when it attached.
    pub(crate) recovery: OnceLock<Recovery>,
    /// The table of what is watched, once this process has needed it.
    pub(crate) watched: OnceLock<Table>,
    /// This process, or one that it is the child or the next image of, has begun a watch.
    pub(crate) watches: AtomicBool,
    /// What keeps watched files open for the kernel, too.
    pub(crate) openings: Openings,
}
