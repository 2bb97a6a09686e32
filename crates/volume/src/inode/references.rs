//! Who has an inode open: the word of its references, and the state words of the descriptions that
//! hold them (`open/description.rs` has the descriptions).
//!
//! ```text
//! | being freed 63 | description that changed it last ([`Maker`]) 20..61 | references 0..20 |
//! ```
//!
//! Before the word changes, the description that it names is moved to the phase that this implies
//! ([`confirm`]). So whatever process dies where, a description is counted exactly if its phase
//! says so or the word names it. `open/counts_tests.rs` has a model checker go over this code.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::inode::{Inode, Inodes, Live, OPENS, index};
use robust::word::{SpanWord, Word};
use rustix::io::Errno;
use std::hint::cold_path;
use vfs::{Desc, Kind, Node, OpenFlags};

/// The inode is being freed: no more opens.
pub(crate) const OPENS_DEAD: u64 = 1 << 63;
/// The number of references; above it the [`Maker`] of the last change.
pub(crate) const OPENS_COUNT: u64 = (1 << OPENS_BITS) - 1;
const OPENS_BITS: u32 = 20;

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
    /// The process that claimed it, or that drops it.
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

/// The description that changed an inode's `opens` word last: index + 1 (20 bits), generation (20
/// bits), and whether it took (0) or gave back (1) a reference. 0: none that still matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Maker(u64);

impl Maker {
    pub(crate) fn new(desc: Desc, drops: bool) -> Self {
        let index = u64::from(desc.index() + 1) & 0xF_FFFF;
        Self(u64::from(drops) << 40 | u64::from(desc.generation() & 0xF_FFFF) << 20 | index)
    }

    /// The one that a word names.
    pub(crate) fn of_word(opens: u64) -> Self {
        Self((opens & !OPENS_DEAD) >> OPENS_BITS)
    }

    /// The description, and whether it gave its reference back.
    pub(crate) fn desc(self) -> Option<(Desc, bool)> {
        let index = (self.0 & 0xF_FFFF) as u32;
        let generation = (self.0 >> 20 & 0xF_FFFF) as u32;
        (index != 0).then(|| (Desc::new(index - 1, generation), self.0 >> 40 & 1 != 0))
    }
}

/// Adds the reference of the description that `maker` names, or gives it back (`drops`); gives the
/// number then. `None`: the inode is being freed. `confirm` moves a description to its next phase.
#[inline(always)]
pub(crate) fn change<W: Word, E: From<W::Error>>(
    opens: W,
    maker: Maker,
    drops: bool,
    confirm: impl Fn(Maker) -> Result<(), E>,
) -> Result<Option<u64>, E> {
    let delta = if drops { OPENS_COUNT } else { 1 };
    let mut found = opens.load()?;
    loop {
        if found & OPENS_DEAD != 0 {
            return Ok(None);
        }
        // The last change's description must say so itself before its name is overwritten.
        confirm(Maker::of_word(found))?;
        let count = found.wrapping_add(delta) & OPENS_COUNT;
        match opens.cas(found, maker.0 << OPENS_BITS | count)? {
            Ok(_) => return Ok(Some(count)),
            Err(other) => found = other,
        }
    }
}

/// Closes the inode for opens for good, unless it is open: then it gives `false`.
#[inline]
pub(crate) fn close_for_good<W: Word, E: From<W::Error>>(
    opens: W,
    confirm: impl Fn(Maker) -> Result<(), E>,
) -> Result<bool, E> {
    let mut found = opens.load()?;
    loop {
        if found & (OPENS_DEAD | OPENS_COUNT) != 0 {
            return Ok(false);
        }
        confirm(Maker::of_word(found))?;
        match opens.cas(found, OPENS_DEAD)? {
            Ok(_) => return Ok(true),
            Err(other) => found = other,
        }
    }
}

/// Moves a description whose reference is taken (or given back: `drops`) to the phase that says so,
/// whatever slot's it is. Mostly it has moved already.
#[inline(always)]
pub(crate) fn confirm<W: Word>(
    state: W,
    epoch: u32,
    desc: Desc,
    drops: bool,
) -> Result<(), W::Error> {
    let (phase, next) =
        if drops { (Phase::Dropping, Phase::Dropped) } else { (Phase::Claimed, Phase::Open) };
    let word = state.load()?;
    let unsaid = DescState { phase, slot: 0, generation: desc.generation() };
    if word & !SLOT_BITS != unsaid.word(epoch) {
        return Ok(());
    }
    cold_path();
    let said = DescState { phase: next, ..DescState::of_word(word, epoch) };
    // If it is another one by now, another process has moved it.
    state.cas(word, said.word(epoch)).map(drop)
}

/// What is behind a description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) node: Node,
    pub(crate) kind: Kind,
    pub(crate) flags: OpenFlags,
    /// The description's state word.
    pub(crate) state: u64,
}

/// Whether a state word, which must be or have been an open one, is of this generation.
#[inline]
pub(crate) fn is_generation(state: u64, desc: Desc) -> bool {
    (state >> 12 & 0xF_FFFF) as u32 == desc.generation()
}

/// Of a call on an open description: what a file is cannot change, so the description was closed,
/// and opened for another, while its entry was read.
pub(crate) fn not_open(errno: Errno) -> Errno {
    if errno == Errno::STALE { Errno::BADF } else { errno }
}

impl Inodes {
    pub(crate) fn desc_state(&self, index: u32) -> crate::Result<DescState> {
        let word = self.rt.load(self.rt.description(index) + STATE)?;
        Ok(DescState::of_word(word, self.epoch))
    }

    /// Moves a description's state; `false` if it was another by then.
    pub(crate) fn turn_desc(
        &self,
        index: u32,
        from: DescState,
        to: DescState,
    ) -> crate::Result<bool> {
        let at = self.rt.description(index) + STATE;
        let word = self.rt.load(at)?;
        if DescState::of_word(word, self.epoch) != from {
            return Ok(false);
        }
        Ok(self.rt.cas(at, word, to.word(self.epoch))?.is_ok())
    }

    /// The state word of a description that was open once.
    #[inline(always)]
    pub(crate) fn state_word(&self, desc: Desc) -> crate::Result<u64> {
        Ok(self.rt.load(self.rt.description(desc.index()) + STATE)?)
    }

    /// Moves the description that an `opens` word names to the phase that this implies; before that
    /// word is changed.
    #[inline(always)]
    pub(crate) fn confirm(&self, maker: Maker) -> crate::Result<()> {
        let Some((desc, drops)) = maker.desc() else { return Ok(()) };
        if u64::from(desc.index()) >= self.rt.layout.description_count {
            return Ok(());
        }
        let state = self.rt.word(self.rt.description(desc.index()) + STATE);
        Ok(confirm(state, self.epoch, desc, drops)?)
    }

    /// Adds the reference of the description that `maker` names, or gives it back; gives the number
    /// then. `ESTALE` if the inode is being freed.
    #[inline(always)]
    pub(crate) fn change_opens(
        &self,
        live: &Live<'_>,
        maker: Maker,
        drops: bool,
    ) -> crate::Result<u64> {
        let opens = SpanWord(live.0, index(OPENS));
        change(opens, maker, drops, |last| self.confirm(last))?.ok_or(Errno::STALE)
    }

    /// The references, [`OPENS_COUNT`] of them, their last maker, and whether there are no more.
    pub(crate) fn opens_word(&self, inode: Inode) -> crate::Result<u64> {
        self.live(inode, OPENS)
    }

    /// If no description has the inode open, closes it for opens for good and gives `true`: the
    /// caller, which is working on it, frees it.
    #[inline]
    pub(crate) fn close_for_good(&self, live: &Live<'_>) -> crate::Result<bool> {
        close_for_good(SpanWord(live.0, index(OPENS)), |last| self.confirm(last))
    }

    /// The object stays after all: it may be opened again. Lock holder only.
    pub(crate) fn allow_opens(&self, inode: Inode) -> crate::Result<()> {
        self.set_live(inode, OPENS, 0)
    }

    /// Whether the inode is closed for opens for good, by a look only: `false` if its volatile
    /// lines are not of this epoch.
    pub(crate) fn is_closed_for_good(&self, inode: Inode) -> bool {
        self.is_ready(inode).is_ok_and(|ready| ready)
            && self.live(inode, OPENS).is_ok_and(|opens| opens & OPENS_DEAD != 0)
    }
}
