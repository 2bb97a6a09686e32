//! Loads of a region that is slowed (`region/slow.rs`).

use crate::region::Region;
use emulation::Way;
use memory::faults::user_memory::{self, Fault, UserOut};
use memory::instructions::copy;
use memory::instructions::dispatch::Dispatch;

impl Region {
    /// [`Region::read`].
    #[cold]
    #[inline(never)]
    pub(crate) fn read_slowly(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.slowly(Way::Read, off, to.len() as u64, |from, done, len| {
            let to = &mut to[done..done + len];
            // SAFETY: `to` is valid for its length; the source is guarded.
            unsafe { copy::load_words(to.as_mut_ptr(), from, len) }.map_err(|_| Fault::Region)
        })
    }

    /// [`Region::read_to`], by the instructions of `dispatch`, of no more than `to` has.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_to_slowly(
        &self,
        off: u64,
        to: &UserOut<'_>,
        len: usize,
        dispatch: Dispatch,
    ) -> Result<(), Fault> {
        self.slowly(Way::Read, off, len as u64, |from, done, len| {
            // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
            unsafe { copy::copy(dispatch, to.start().wrapping_add(done), from, len) }
                .map_err(user_memory::region_to_caller)
        })
    }
}
