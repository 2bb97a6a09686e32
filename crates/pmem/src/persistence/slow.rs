//! Stores of a region that is slowed (`region/slow.rs`).

use crate::persistence::locality::Locality;
use crate::persistence::tokens::InFlight;
use crate::region::Region;
use emulation::Way;
use memory::faults::user_memory::Fault;
use memory::instructions::copy::{self, LINE};
use std::panic::Location;

impl Region {
    /// [`Region::stream_at`].
    #[cold]
    #[inline(never)]
    pub(crate) fn stream_slowly(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.slowly(Way::Write, off, len as u64, |to, done, len| {
            self.stream_to(to, off + done as u64, from.wrapping_add(done), len, locality, at)
        })?;
        Ok(InFlight::new(self))
    }

    /// [`Region::stream_zero`].
    #[cold]
    #[inline(never)]
    pub(crate) fn zero_slowly(
        &self,
        off: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.slowly(Way::Write, off, len, |to, done, len| {
            self.zero_at(to, off + done as u64, len, at)
        })?;
        Ok(InFlight::new(self))
    }

    /// [`Region::copy`]: it is read while it is written.
    #[cold]
    #[inline(never)]
    pub(crate) fn copy_slowly(
        &self,
        from: u64,
        to: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        let source = self.range(from, len)?;
        let read = self.slow.get().map(|slow| slow.read(source as u64, len));
        let copied = if self.hook().is_some() {
            let mut bytes = vec![0; len as usize];
            self.shared_read(from, &mut bytes)?;
            self.stream_at(to, bytes.as_ptr(), bytes.len(), Locality::Near, at)
        } else {
            self.stream_at(to, source, len as usize, Locality::Near, at)
        };
        if let Some(read) = read {
            read.wait();
        }
        copied.map_err(|_| Fault::Region)
    }

    /// [`Region::write_line`], of a line's offset.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_line_slowly(
        &self,
        off: u64,
        line: &[u8; LINE as usize],
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.range(off, LINE)?;
        if self.hook().is_some() {
            self.write_at(off, line, at)?;
            self.flush_at(off, LINE, at);
            return Ok(InFlight::new(self));
        }
        self.slowly(Way::Write, off, LINE, |to, _, _| {
            // SAFETY: `to` is a line of the mapping.
            let stored = unsafe { copy::set_off_line(self.dispatch(), to, line) };
            if stored { Ok(()) } else { Err(Fault::Region) }
        })?;
        Ok(InFlight::new(self))
    }

    /// Flushes the lines of a range that is not reached quickly, if it has any.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush_slowly(&self, off: u64, len: u64, at: &'static Location<'static>) {
        let end = off.saturating_add(len).min(self.len());
        if off >= end {
            return;
        }
        let first = off - off % LINE;
        let flushed = self.slowly(Way::Write, first, end - first, |_, done, len| {
            let line = first + done as u64;
            self.flush_lines(line, line + len as u64, at);
            Ok(())
        });
        debug_assert!(flushed.is_ok(), "the range is inside, and no flush fails");
    }
}

#[cfg(test)]
#[path = "slow_tests.rs"]
mod tests;
