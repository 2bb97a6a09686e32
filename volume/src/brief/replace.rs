//! Whole blocks that lie by themselves: a strict overwrite replaces one, instead of storing its
//! bytes twice.
//!
//! As `WineFS` copies on write what is no aligned extent: half of the stores, one fence, nothing
//! allocated. The bytes go to the block that the operation record keeps (`reserve.rs`), whose place
//! the old one takes; the lane's record tells of the word that shall lead to it (`redo.rs`). Only
//! where neither neighbour in the file is the block's neighbour in the pool: so no file comes
//! further apart than it is, and what may become a huge page stays where it is.
//!
//! Where a block lies is looked for before the first lock, in one walk of the map.

use super::{Brief, Plan, Write};
use crate::data::map::{KIND_LEAF, Map, Run};
use crate::ground::layout::BLOCK;
use crate::ground::word::Word;
use crate::inject::{Bug, forged, injected};
use crate::inode::Inode;
use crate::txn::redo::{Replacement, recorded};
use crate::volume::Volume;
use crate::{Mode, Result};
use vfs::Node;

/// Of [`Plan::sought`]: the block was looked for.
const SOUGHT: u64 = 1;
/// It is part of a 2 MiB leaf.
const IN_LEAF: u64 = 2;
/// The offset of its word, if it may be replaced.
pub(super) const WORD: u64 = !3;

impl Volume {
    /// Looks for the one block that a write goes to. What cannot be found, or is nonsense because
    /// the map changes, is looked for under the lock.
    pub(super) fn seek(&self, node: Node, length: u64, plan: &mut Plan) {
        let map = Map { volume: self, inode: Inode(node.ino), generation: node.generation };
        let Ok(Some(spot)) = map.spot(plan.offset / BLOCK) else { return };
        let place = spot.block * BLOCK + plan.offset % BLOCK;
        let word = spot.alone.filter(|_| length == BLOCK && self.mode == Mode::Strict);
        plan.place = Some(place);
        plan.sought = word.unwrap_or(0) | SOUGHT | if spot.huge { IN_LEAF } else { 0 };
        if self.mode == Mode::Strict && word.is_none() {
            self.region.prefetch(place);
            self.region.prefetch(place + (length - 1));
        }
    }
}

impl Brief<'_> {
    /// Notes where a block was found, for the next writer; not of one that is about to be replaced.
    #[cold]
    pub(super) fn note_run(&self, offset: u64, place: u64, sought: u64) -> Result<()> {
        if sought & WORD != 0 {
            return Ok(());
        }
        let huge = sought & IN_LEAF != 0;
        let run = Run { block: place / BLOCK, blocks: 1, unwritten: false, huge };
        self.live.set_run(offset / BLOCK, run)
    }

    /// Puts `spare`, with the new bytes, in place of a block, which the record keeps from here on.
    #[inline(never)]
    pub(super) fn replace(&mut self, write: &Write<'_, '_>, word: u64, spare: u64) -> Result<()> {
        let (volume, inode, generation) = (self.volume, self.inode, write.generation);
        let (region, lane) = (&volume.region, u64::from(self.owner.op()));
        // What a sum, or another lane's record, tells of the old block counts beside it no more.
        let slot = self.store_slot_beside(generation)?;
        let key = Map { volume, inode, generation }.key(write.offset / BLOCK);
        let leads = Word { block: spare, kind: KIND_LEAF, unwritten: false }.sealed(key);
        let new = Replacement { word, leads, block: spare };
        let which = (inode, generation, self.live);
        let stored = volume.store_replacement(&self.record, lane, which, &new, write.from);
        volume.note_owner(inode, spare, 1)?;
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                let _ = region.fence();
                volume.void_redo(lane)?;
                // Memory that is lost is not tried again: it stays in use until the next sweep.
                if !volume.is_lost_block(spare) {
                    self.record.keep_block(spare)?;
                }
                return Err(error);
            }
        };
        // PERSIST: the bytes and the record, and the slot, before the word.
        // CRASH: without the record the old block counts, and the other one is nobody's.
        let durable =
            if injected(Bug::ChangeBeforeRedo) { forged() } else { stored.and_any(slot).fence() };
        // From here on the record counts, until a fence behind the word's flush.
        self.current.flags = recorded(self.current.flags, lane);
        self.replaced = true;
        self.move_on(0);
        self.settle(generation)?;
        let _ = region.commit64(word, leads, &durable)?;
        self.record.tell_word(word)?;
        self.record.keep_block(write.places.at / BLOCK)
    }
}
