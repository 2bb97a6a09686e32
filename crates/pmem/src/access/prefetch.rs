//! Reads memory that is in no cache: prefetches all lines first, then copies them.
//!
//! Persistence: nothing is stored. Locks: none.

use crate::region::Region;
use memory::faults::user_memory::{self, Fault, UserOut};
use memory::instructions::copy::{self, LINE};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

impl Region {
    /// Asks for all lines of a range to be brought near: a hint, which changes nothing and never
    /// faults.
    #[inline]
    pub fn prefetch_all(&self, off: u64, len: usize) {
        if let Ok(at) = self.range(off, len as u64) {
            // SAFETY: any address may be asked for.
            let ask = |line: usize| unsafe {
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast_const().cast());
            };
            let (lines, four) = (len.div_ceil(LINE as usize), 4 * LINE as usize);
            for first in (0..lines / 4).map(|at| at * four) {
                (0..4).for_each(|line| ask(first + line * LINE as usize));
            }
            (lines / 4 * 4..lines).for_each(|line| ask(line * LINE as usize));
        }
    }

    /// As [`Region::read_to`], of a range that [`Region::prefetch_all`] asked for.
    #[inline]
    pub fn read_near(&self, off: u64, to: &UserOut<'_>, len: usize) -> Result<(), Fault> {
        if len > to.len() {
            return Err(Fault::Caller);
        }
        user_memory::check(to.start(), len)?;
        let Some(from) = self.quick(off, len as u64) else {
            return self.read_to_slowly(off, to, len, self.dispatch());
        };
        // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
        let copied = unsafe { copy::copy_near(self.dispatch(), to.start(), from, len) };
        copied.map_err(user_memory::region_to_caller)
    }
}
