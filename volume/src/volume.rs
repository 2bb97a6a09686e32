//! A volume as one process sees it: the rooms, one upon the other.
//!
//! Each room has a type. It owns the type of the room below and derefs to it, down to
//! [`Ground`](crate::ground::Ground), so a room calls its own methods and those of all rooms below
//! as its own. It has no way to a room above: the compiler refuses what goes upwards. What must go
//! up all the same goes as a value that is returned, or by [`Recover`].

use crate::Result;
use crate::ground::runtime::Owner;
use crate::ground::{Ground, Parts, Recover};
use crate::process::Local;
use crate::process::alone::Words;
use crate::process::liveness::Liveness;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

pub(crate) use crate::ground::now;

/// A volume, attached by this process. Detached when dropped.
pub struct Volume {
    rooms: Arc<Rooms>,
    /// Only for the recovery of a dead process: another one is the attachment.
    pub(crate) is_lent: bool,
}

/// All rooms.
pub struct Rooms {
    ground: Ground,
    pub(crate) liveness: Liveness,
    /// What `alone.rs` looks at.
    pub(crate) words: Option<Words>,
    /// This process's slot; changes in a forked child.
    slot: AtomicU32,
    slot_generation: AtomicU32,
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
    type Target = Ground;

    #[inline]
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Recover for Rooms {
    fn recover_if_dead(self: Arc<Self>, owner: Owner) -> Result<()> {
        Volume { rooms: self, is_lent: true }.bury_if_dead(owner)
    }
}

impl Volume {
    /// Puts the parts together; the slot is still to be taken.
    pub(crate) fn assemble(parts: Parts, liveness: Liveness) -> Self {
        let rooms = Arc::new_cyclic(|rooms: &Weak<Rooms>| {
            let ground = Ground::new(parts, rooms.clone());
            Rooms {
                words: Words::new(&ground.rt),
                ground,
                liveness,
                slot: AtomicU32::new(u32::MAX),
                slot_generation: AtomicU32::new(0),
                local: Local::default(),
            }
        });
        Self { rooms, is_lent: false }
    }
}

impl Rooms {
    /// This process's slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// The slot's generation.
    pub(crate) fn slot_generation(&self) -> u32 {
        self.slot_generation.load(Ordering::Relaxed)
    }

    /// A forked child has its own slot.
    pub(crate) fn set_slot(&self, slot: u32, generation: u32) {
        self.slot.store(slot, Ordering::Relaxed);
        self.slot_generation.store(generation, Ordering::Relaxed);
    }
}
