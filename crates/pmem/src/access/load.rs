//! Loads of a region: words, lines, bytes.

use crate::region::Region;
use memory::faults::user_memory::{self, Fault, UserOut};
use memory::instructions::copy::{self, LINE};

impl Region {
    /// Loads the aligned word at `off` (acquire, never torn).
    #[inline]
    pub fn load64(&self, off: u64) -> Result<u64, Fault> {
        let at = self.word(off)?;
        // SAFETY: `at` is a word of the mapping.
        unsafe { copy::load64(at) }.ok_or(Fault::Region)
    }

    /// Copies bytes out; what others store meanwhile may be seen in part, but no aligned 8-byte
    /// word inside is torn.
    #[inline]
    pub fn read(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        // Mostly the length is known when this is compiled, and one line.
        if to.len() > LINE as usize {
            return self.read_long(off, to);
        }
        let from = self.range(off, to.len() as u64)?;
        // SAFETY: `to` is valid for its length; the source is guarded.
        let copied = unsafe {
            if to.len() == LINE as usize && off.is_multiple_of(8) {
                copy::copy64(to.as_mut_ptr(), from)
            } else {
                copy::load_words(to.as_mut_ptr(), from, to.len())
            }
        };
        copied.map_err(|_| Fault::Region)
    }

    /// The same of more than a line.
    #[inline(never)]
    fn read_long(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        let Some(from) = self.quick(off, to.len() as u64) else {
            return self.read_slowly(off, to);
        };
        // SAFETY: `to` is valid for its length; the source is guarded.
        unsafe { copy::load_words(to.as_mut_ptr(), from, to.len()) }.map_err(|_| Fault::Region)
    }

    /// Copies `len` bytes out to the caller, in the fastest way (words may be torn);
    /// [`Fault::Caller`] also if `to` is shorter.
    #[inline]
    pub fn read_to(&self, off: u64, to: &UserOut<'_>, len: usize) -> Result<(), Fault> {
        if len > to.len() {
            return Err(Fault::Caller);
        }
        user_memory::check(to.start(), len)?;
        let Some(from) = self.quick(off, len as u64) else {
            return self.read_to_slowly(off, to, len, self.dispatch);
        };
        // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
        let copied = unsafe { copy::copy(self.dispatch, to.start(), from, len) };
        copied.map_err(user_memory::region_to_caller)
    }
}
