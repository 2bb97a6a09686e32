//! A volume as one process sees it: the rooms, one upon the other.
//!
//! Each room has a type. It owns the type of the room below and derefs to it, down to
//! [`Ground`](crate::ground::Ground), so a room calls its own methods and those of all rooms below
//! as its own. It has no way to a room above: the compiler refuses what goes upwards. What must go
//! up all the same goes as a value that is returned, or by [`Recover`].
//!
//! The rooms from `txn` on have no types yet: their methods are those of [`Volume`], and what they
//! know of this process is in [`Local`].

use crate::Result;
use crate::ground::{Ground, Parts, Recover};
use crate::inode::Inodes;
use crate::namespace::attributes::PrivilegedChange;
use crate::open::description::{HINTS, Hint};
use crate::process::Processes;
use crate::process::liveness::Liveness;
use crate::recovery::Recovery;
use crate::space::Space;
use robust::owner::Owner;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

/// A volume, attached by this process. Detached when dropped.
pub struct Volume {
    /// Shared with [`Recover`]'s calls alone.
    rooms: Arc<Rooms>,
    /// It is a loan for the recovery of a dead process: it detaches nothing when it is dropped.
    pub(crate) is_lent: bool,
}

/// All rooms.
pub struct Rooms {
    inodes: Inodes,
    /// What only this process knows.
    pub(crate) local: Local,
}

impl Deref for Volume {
    type Target = Rooms;

    #[inline]
    fn deref(&self) -> &Rooms {
        &self.rooms
    }
}

impl Deref for Rooms {
    type Target = Inodes;

    #[inline]
    fn deref(&self) -> &Inodes {
        &self.inodes
    }
}

impl Recover for Rooms {
    fn recover_if_dead(self: Arc<Self>, owner: Owner) -> Result<()> {
        Volume { rooms: self, is_lent: true }.recover_owner_if_dead(owner)
    }
}

impl Volume {
    /// Puts the parts together; the slot is still to be taken.
    pub(crate) fn assemble(parts: Parts, liveness: Liveness) -> Self {
        let rooms = Arc::new_cyclic(|rooms: &Weak<Rooms>| {
            let ground = Ground::new(parts, rooms.clone());
            let processes = Processes::new(ground, liveness);
            let space = Space::new(processes);
            let inodes = Inodes::new(space);
            Rooms { inodes, local: Local::default() }
        });
        Self { rooms, is_lent: false }
    }
}

/// What a process knows of its own attachment; a forked child inherits a copy.
#[derive(Default)]
pub(crate) struct Local {
    /// The name of this attachment among the process's.
    pub(crate) instance: crate::cache::Instance,
    /// It has set record locks of its own, so closing may have to drop some.
    pub(crate) has_locked: AtomicBool,
    /// Where it looks for a free description first, by CPU.
    pub(crate) next_description: [Hint; HINTS],
    /// An operation of it has changed something.
    pub(crate) worked: AtomicBool,
    /// The number + 1 at which the old image left a descriptor of the anchor directory; else 0.
    pub(crate) anchor: AtomicU32,
    /// The saved free map's crc + 1, if this process found it true; else 0.
    pub(crate) saved: AtomicU64,
    /// Data blocks that it has moved to empty chunks.
    pub(crate) moved_blocks: AtomicU64,
    /// How many of a million freed blocks may be moved, + 1; 0: as `compact.rs` has it.
    pub(crate) may_move: AtomicU64,
    /// Blocks that it has moved to make files whole (`rewrite.rs`).
    pub(crate) rewritten_blocks: AtomicU64,
    /// A thread of it is moving blocks.
    pub(crate) moving: AtomicBool,
    /// Where it looks for a free record lock first.
    pub(crate) next_lock: AtomicU32,
    /// A repair of the volume did not come to its end.
    pub(crate) unrepaired: AtomicBool,
    /// What is done before it changes the contents of a file with set-id bits or capabilities.
    pub(crate) privileged_change: OnceLock<PrivilegedChange>,
    /// It only reads, and what a crash left open was undone in memory.
    pub(crate) recovered_view: AtomicBool,
    /// What it recovered when it attached.
    pub(crate) recovery: OnceLock<Recovery>,
}
