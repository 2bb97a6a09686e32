//! Whole blocks that lie by themselves: a strict overwrite replaces one, instead of storing its
//! bytes twice.
//!
//! As `WineFS` copies on write what is no aligned extent: half of the stores, one fence, nothing
//! allocated. The bytes go to the block that the operation record keeps (`block_reserve.rs`), whose
//! place the old one takes; the lane's record tells of the word that shall lead to it (`redo.rs`).
//! Only where neither neighbour in the file is the block's neighbour in the pool: so no file comes
//! further apart than it is, and what may become a huge page stays where it is.
//!
//! Where a block lies, and whether by itself, is looked for in one walk of the map (`plan.rs`).

use crate::Result;
use crate::data::bytes::{Bytes, Part};
use crate::data::map::{KIND_LEAF, key_of};
use crate::data::write::{Request, Writing};
use crate::inject::{Bug, forged, injected};
use crate::medium::layout::BLOCK;
use crate::medium::map_word::Word;
use crate::txn::acquire::Locked;
use crate::txn::redo::{Replacement, recorded};

impl Writing<'_> {
    /// Puts `spare`, with the new bytes, in place of a block, which the record keeps from here on.
    #[inline(never)]
    pub(super) fn replace<B: Bytes>(
        &mut self,
        request: &Request<'_, B>,
        word: u64,
        spare: u64,
    ) -> Result<()> {
        let Locked { engine, owner, record, seen: [seen] } = self.locked;
        let (region, lane) = (&engine.region, u64::from(owner.op()));
        let generation = request.generation;
        // What a sum, or another lane's record, tells of the old block counts beside it no more.
        let needs_slot = self.announces_line;
        let slot = needs_slot.then(|| self.store_slot_beside(generation)).transpose()?;
        let key = key_of(seen.inode, generation, request.offset / BLOCK);
        let leads = Word { block: spare, kind: KIND_LEAF, unwritten: false }.sealed(key);
        let new = Replacement { word, leads, block: spare };
        let which = (seen.inode, generation, seen.live);
        let part = Part::near(0, spare * BLOCK, BLOCK as usize);
        let stored = request.bytes.stream_checksummed(region, part, 0).and_then(|(stored, sum)| {
            let told = engine.store_replacement(&record, lane, which, &new, sum)?;
            Ok(told.and_any(stored))
        });
        engine.note_owner(seen.inode.0, spare, 1)?;
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                let _ = region.fence();
                engine.void_redo(lane)?;
                // Memory that is lost is not tried again: it stays in use until the next sweep.
                if !engine.stays_lost(spare) {
                    record.keep_block(spare)?;
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
        self.mark_dirty(generation)?;
        let _ = region.commit64(word, leads, &durable)?;
        record.tell_word(word)?;
        record.keep_block(request.places.at / BLOCK)
    }
}
