//! Streams of the caller's bytes: whole lines at once, anything else in parts.

use crate::copy::{self, LINE};
use crate::persist::InFlight;
use crate::region::Region;
use crate::user::{self, Fault, UserIn};
use std::panic::Location;

impl Region {
    /// Stores the caller's bytes around the cache. On [`Fault::Caller`] a part may be stored.
    #[track_caller]
    #[expect(clippy::inline_always, reason = "its words stay in registers")]
    #[inline(always)]
    pub fn stream_from(&self, off: u64, from: &UserIn<'_>) -> Result<InFlight<'_>, Fault> {
        let (start, len) = (from.start(), from.len());
        user::check(start, len)?;
        if (off | len as u64).is_multiple_of(LINE) && self.hook().is_none() {
            let to = self.range(off, len as u64)?;
            // SAFETY: `to` is mapped for these lines; both sides are guarded.
            unsafe { copy::stream_lines(self.dispatch().copy, to, start, len) }
                .map_err(user::caller_to_region)?;
        } else {
            self.stream_parts(off, from, Location::caller())?;
        }
        Ok(InFlight::new(self))
    }

    /// The same of what begins or ends anywhere.
    fn stream_parts(
        &self,
        off: u64,
        from: &UserIn<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if self.hook().is_some() {
            let mut bytes = vec![0; from.len()];
            from.read(&mut bytes)?;
            return self.stream_at(off, bytes.as_ptr(), bytes.len(), at).map(drop);
        }
        self.stream_at(off, from.start(), from.len(), at).map(drop)
    }
}
