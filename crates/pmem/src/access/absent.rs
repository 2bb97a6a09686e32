//! Reads of pages that lie elsewhere, without moving them.

use crate::region::Region;
use crate::region::pager::{APART, PAGE};
use memory::faults::user_memory::{Fault, UserOut};

impl Region {
    /// As [`Region::read_to`], of at most [`APART`] bytes: what an absent page has is copied from
    /// where it is, if the pager does that. Nothing may be held: it may wait.
    #[cold]
    pub fn read_apart(&self, off: u64, to: &UserOut<'_>, len: usize) -> Result<(), Fault> {
        let Some(pager) = self.pager().filter(|_| len <= APART && len <= to.len()) else {
            return self.read_to(off, to, len);
        };
        let (mut buffer, mut done) = ([0; APART], 0);
        while done < len {
            let at = off + done as u64;
            let take = ((PAGE - at % PAGE) as usize).min(len - done);
            let (part, bytes) = (to.slice(done, take), &mut buffer[..take]);
            if pager.load_apart(at, bytes) {
                part.write(bytes)?;
            } else {
                self.read_to(at, &part, take)?;
            }
            done += take;
        }
        Ok(())
    }
}
