//! Descriptions in flight: kept by descriptors that the kernel carries (an `SCM_RIGHTS` message, a
//! program without the library, an exec), while perhaps no process slot holds them.
//!
//! The kernel counts these references: a process that hands a description over marks it here, then
//! makes its *carrier* (`process/carriers.rs`) and a descriptor of that, which travels. What the
//! descriptor holds goes with the last reference to it, wherever it is: closed, in a message that
//! is never received, in a process that is killed. Invariants:
//!
//! - a marked description whose carrier is held is not dropped when its last slot lets go: it is an
//!   *orphan* until a process adopts it or the carrier is free. A process that drops it says so,
//!   then looks at the carrier once more; one that hands it over holds the carrier, then looks at
//!   the description once more. Who drops it removes the carrier;
//! - the header says whether there may be orphans; those whose carrier is free are dropped at the
//!   next attach or detach, or by a call that asks for statistics or lacks descriptions or space;
//! - while a carrier is held the runtime stays: the last process to leave does not say clean, and
//!   the next one joins this epoch, as if that carrier were a process.
//!
//! Locks: none of its own; dropping takes inode locks, so the caller holds none.

use crate::Result;
use crate::medium::layout::HEADER_ORPHANS;
use crate::open::Opens;
use pmem::Span;
use rustix::io::Errno;
use std::hint::cold_path;
use vfs::{Desc, Kind};

/// Word of a description's entry: [`Opens::mark`] of what was handed over last.
const HANDED: u64 = 48;

/// Bits of a description's generation in its name; the epoch's low bits stand above them.
const GENERATION_BITS: u32 = 20;

impl Opens {
    fn mark(&self, desc: Desc) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(desc.generation())
    }

    fn name(&self, desc: Desc) -> u64 {
        let low = desc.generation() | self.epoch << GENERATION_BITS;
        (u64::from(desc.index()) + 1) << 32 | u64::from(low)
    }

    /// Says that a description may leave; gives its name, and the kind of what it is of: by its
    /// entry, since the inode's lock may be held by a thread that runs no more.
    pub(crate) fn hand_over_description(&self, desc: Desc) -> Result<(u64, Kind)> {
        let kind = self.opened(desc)?.kind;
        self.rt.store(self.rt.description(desc.index()) + HANDED, self.mark(desc))?;
        Ok((self.name(desc), kind))
    }

    /// Takes hold of a description by its name.
    pub(crate) fn adopt_name(&self, name: u64) -> Result<Desc> {
        let index = (name >> 32) as u32;
        let generation = name as u32 & ((1 << GENERATION_BITS) - 1);
        let desc = Desc::new(index.checked_sub(1).ok_or(Errno::BADF)?, generation);
        // A name of another epoch: all that was open then is closed.
        if self.name(desc) != name {
            return Err(Errno::BADF);
        }
        self.adopt_description(desc)?;
        Ok(desc)
    }

    /// Whether an entry says that it was handed over once: if not, it is not in flight.
    #[inline]
    pub(crate) fn was_handed<const WORDS: usize>(
        &self,
        desc: Desc,
        entry: &Span<'_, WORDS>,
    ) -> Result<bool> {
        Ok(entry.load((HANDED / 8) as usize)? == self.mark(desc))
    }

    /// Whether a description may be on its way somewhere.
    pub(crate) fn is_in_flight(&self, desc: Desc) -> Result<bool> {
        let handed = self.rt.load(self.rt.description(desc.index()) + HANDED)?;
        if handed != self.mark(desc) {
            return Ok(false);
        }
        Ok(self.liveness.is_carried(self.name(desc)))
    }

    /// Whether any description may be.
    pub(crate) fn is_any_in_flight(&self) -> Result<bool> {
        for index in 0..self.descriptions_used()? {
            let mark = self.rt.load(self.rt.description(index) + HANDED)?;
            let is_now = (mark >> 32) as u32 == self.epoch;
            if is_now && self.is_in_flight(Desc::new(index, mark as u32))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A description is dropped: nothing may carry it any more.
    #[cold]
    pub(crate) fn dismiss_carrier(&self, desc: Desc) -> Result<()> {
        self.liveness.dismiss(self.name(desc));
        Ok(self.rt.store(self.rt.description(desc.index()) + HANDED, 0)?)
    }

    /// A description without holders stays because it is in flight.
    pub(crate) fn note_orphan(&self) -> Result<()> {
        Ok(self.rt.store(HEADER_ORPHANS, u64::from(self.epoch))?)
    }

    /// Whether there may be orphans.
    pub(crate) fn has_orphans(&self) -> Result<bool> {
        Ok(self.rt.load(HEADER_ORPHANS)? == u64::from(self.epoch))
    }

    /// Drops the orphans that no process can receive any more. The caller holds no lock.
    #[cold]
    pub(crate) fn drop_orphans(&self) -> Result<()> {
        // Before looking: a process that leaves one meanwhile says so again, and so does this.
        self.rt.store(HEADER_ORPHANS, 0)?;
        self.drop_all_unheld()
    }

    /// Runs `call` again if it lacked something that dropping orphans may have freed.
    #[inline]
    pub(crate) fn with_orphans_dropped<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        match call() {
            Ok(done) => Ok(done),
            Err(errno) => {
                cold_path();
                let lacked = matches!(errno, Errno::NOSPC | Errno::NFILE);
                if !lacked || !self.has_orphans()? {
                    return Err(errno);
                }
                self.drop_orphans()?;
                call()
            }
        }
    }
}
