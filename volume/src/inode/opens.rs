//! Who has an inode open: the word of its references, and the state words of the descriptions that
//! hold them (`open/description.rs` has the descriptions).

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::inode::Inodes;
use crate::inode::{Inode, OPENS, OPENS_BITS, OPENS_COUNT, OPENS_DEAD, index};
use rustix::io::Errno;
use vfs::Desc;

/// Description word: where it is in its life.
pub(crate) const STATE: u64 = 0;

/// Where a description is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Phase {
    Free = 0,
    Claimed = 1,
    Open = 2,
    Dropping = 3,
    Dropped = 4,
}

/// A description's state word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DescState {
    pub(crate) phase: Phase,
    /// Who claimed it, or who drops it.
    pub(crate) slot: u32,
    /// 20 bits.
    pub(crate) generation: u32,
}

/// The bits of a state word that hold the slot.
pub(crate) const SLOT_BITS: u64 = 0x1FF << 3;

impl DescState {
    pub(crate) fn of_word(word: u64, epoch: u32) -> Self {
        if (word >> 32) as u32 != epoch {
            return Self { phase: Phase::Free, slot: 0, generation: 0 };
        }
        let phase = match word & 7 {
            1 => Phase::Claimed,
            2 => Phase::Open,
            3 => Phase::Dropping,
            4 => Phase::Dropped,
            _ => Phase::Free,
        };
        Self { phase, slot: (word >> 3 & 0x1FF) as u32, generation: (word >> 12 & 0xF_FFFF) as u32 }
    }

    pub(crate) fn word(self, epoch: u32) -> u64 {
        u64::from(epoch) << 32
            | u64::from(self.generation) << 12
            | u64::from(self.slot) << 3
            | self.phase as u64
    }
}

/// Who changed an inode's `opens` word last: index + 1 (20 bits), generation (20 bits), and whether
/// it took (0) or gave back (1) a reference. 0: nobody that still matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Maker(pub(crate) u64);

impl Maker {
    pub(crate) fn new(desc: Desc, drops: bool) -> Self {
        let index = u64::from(desc.index + 1) & 0xF_FFFF;
        Self(u64::from(drops) << 40 | u64::from(desc.generation & 0xF_FFFF) << 20 | index)
    }

    fn desc(self) -> Option<(Desc, bool)> {
        let index = (self.0 & 0xF_FFFF) as u32;
        let generation = (self.0 >> 20 & 0xF_FFFF) as u32;
        (index != 0).then(|| (Desc { index: index - 1, generation }, self.0 >> 40 & 1 != 0))
    }
}

impl Inodes {
    pub(crate) fn desc_state(&self, index: u32) -> Result<DescState> {
        let word = self.rt.load(self.rt.description(index) + STATE)?;
        Ok(DescState::of_word(word, self.epoch))
    }

    /// Moves a description's state; `false` if it was another by then.
    pub(crate) fn turn_desc(&self, index: u32, from: DescState, to: DescState) -> Result<bool> {
        let at = self.rt.description(index) + STATE;
        let word = self.rt.load(at)?;
        if DescState::of_word(word, self.epoch) != from {
            return Ok(false);
        }
        Ok(self.rt.cas(at, word, to.word(self.epoch))?.is_ok())
    }

    /// The state word of a description that was open once.
    #[inline(always)]
    pub(crate) fn state_word(&self, desc: Desc) -> Result<u64> {
        Ok(self.rt.load(self.rt.description(desc.index) + STATE)?)
    }

    /// Moves the description that an `opens` word names to the phase that this implies; before that
    /// word is changed.
    #[inline]
    pub(crate) fn confirm(&self, maker: Maker) -> Result<()> {
        let Some((desc, drops)) = maker.desc() else { return Ok(()) };
        if u64::from(desc.index) >= self.rt.layout.description_count {
            return Ok(());
        }
        let (phase, next) =
            if drops { (Phase::Dropping, Phase::Dropped) } else { (Phase::Claimed, Phase::Open) };
        // Whatever slot's it is: mostly it says so itself already.
        let unsaid = DescState { phase, slot: 0, generation: desc.generation };
        if self.state_word(desc)? & !SLOT_BITS != unsaid.word(self.epoch) {
            return Ok(());
        }
        let state = self.desc_state(desc.index)?;
        if state.phase == phase && state.generation == desc.generation {
            self.turn_desc(desc.index, state, DescState { phase: next, ..state })?;
        }
        Ok(())
    }

    /// Drops the reference of the description that `maker` names; gives the number left.
    pub(crate) fn drop_open(&self, inode: Inode, maker: Maker) -> Result<u64> {
        self.change_opens(inode, maker, OPENS_COUNT)
    }

    /// Adds to the number of references, in the name of the description that `maker` names; gives
    /// the new one. `ESTALE` if the inode is being freed.
    pub(crate) fn change_opens(&self, inode: Inode, maker: Maker, delta: u64) -> Result<u64> {
        let line = self.live_line(inode)?;
        let mut opens = line.load(index(OPENS))?;
        loop {
            if opens & OPENS_DEAD != 0 {
                return Err(Errno::STALE);
            }
            // The last change's description must say so itself before its name is overwritten.
            self.confirm(Maker((opens & !OPENS_DEAD) >> OPENS_BITS))?;
            let count = opens.wrapping_add(delta) & OPENS_COUNT;
            let next = maker.0 << OPENS_BITS | count;
            match line.cas(index(OPENS), opens, next)? {
                Ok(_) => return Ok(count),
                Err(found) => opens = found,
            }
        }
    }

    /// The references, [`OPENS_COUNT`] of them, their last maker, and whether there are no more.
    pub(crate) fn opens_word(&self, inode: Inode) -> Result<u64> {
        self.live(inode, OPENS)
    }

    /// If nobody has the inode open, closes it for opens for good and gives `true`: the caller, who
    /// is working on it, frees it.
    pub(crate) fn close_for_good(&self, inode: Inode) -> Result<bool> {
        let mut opens = self.live(inode, OPENS)?;
        loop {
            if opens & (OPENS_DEAD | OPENS_COUNT) != 0 {
                return Ok(false);
            }
            self.confirm(Maker(opens >> OPENS_BITS))?;
            match self.volatile_map().shared_cas(inode.at(OPENS), opens, OPENS_DEAD)? {
                Ok(_) => return Ok(true),
                Err(found) => opens = found,
            }
        }
    }

    /// The object stays after all: it may be opened again. Lock holder only.
    pub(crate) fn allow_opens(&self, inode: Inode) -> Result<()> {
        self.set_live(inode, OPENS, 0)
    }

    /// Whether the inode is closed for opens for good, by a look only: `false` if its volatile
    /// lines are not of this epoch.
    pub(crate) fn is_closed_for_good(&self, inode: Inode) -> bool {
        self.is_ready(inode).is_ok_and(|ready| ready)
            && self.live(inode, OPENS).is_ok_and(|opens| opens & OPENS_DEAD != 0)
    }
}
