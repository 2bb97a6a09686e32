//! Zeros and flushes of a region whose pages may lie elsewhere.

use crate::persistence::tokens::InFlight;
use crate::region::Region;
use crate::region::source::PAGE;
use memory::faults::user_memory::Fault;
use memory::instructions::copy::LINE;
use std::panic::Location;

impl Region {
    /// [`Region::stream_zero`] of a region with a pager: pages that hold zeros are not touched, for
    /// each would take room.
    #[cold]
    #[inline(never)]
    pub(crate) fn zero_but_void(
        &self,
        off: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.range(off, len)?;
        let is_void = |page: u64| self.pager().is_some_and(|pager| pager.is_void(page));
        let (mut from, end) = (off, off + len);
        while from < end {
            // Pages that are alike.
            let (first, mut to) = (from - from % PAGE, from - from % PAGE + PAGE);
            let skipped = is_void(first);
            while to < end && is_void(to) == skipped {
                to += PAGE;
            }
            let to = to.min(end);
            if !skipped {
                let _ = self.zero_all(from, to - from, at)?;
            }
            from = to;
        }
        Ok(InFlight::new(self))
    }

    /// [`Region::flush`] of a region with a pager. Its file is one of a tmpfs, since no other has
    /// page faults in user space: there a line is as durable in the cache as in memory. To flush it
    /// would map the page, and say that it is wanted. So only who watches hears of it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_flush(&self, off: u64, len: u64, at: &'static Location<'static>) {
        let (Some(hook), Some(pager)) = (self.hook(), self.pager()) else { return };
        let end = off.saturating_add(len).min(self.len());
        let lines = (off - off % LINE..end).step_by(LINE as usize);
        for line in lines.filter(|line| !pager.is_away(line - line % PAGE)) {
            hook.flush(line, at);
        }
    }
}
