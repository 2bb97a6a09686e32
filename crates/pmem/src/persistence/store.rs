//! Stores, flushes and fences of a region.
//!
//! Persistence order: a store is [`Dirty`]; a line that is set off is [`InFlight`] at once. The
//! hook hears of an access before it happens.

use crate::persistence::tokens::{Dirty, Durable, InFlight};
use crate::region::source::{Class, PAGE};
use crate::region::{Region, pages};
use memory::faults::user_memory::Fault;
use memory::instructions::copy::{self, LINE};
use memory::instructions::dispatch::FlushKind;
use rustix::mm::MsyncFlags;
use std::hint::cold_path;
use std::io;
use std::panic::Location;
use std::sync::atomic::Ordering;

impl Region {
    /// Stores the aligned word at `off` (release) by one instruction.
    #[track_caller]
    #[inline]
    pub fn store64(&self, off: u64, value: u64) -> Result<Dirty<'_>, Fault> {
        let at = self.word(off)?;
        if let Some(hook) = &self.hook {
            hook.store(off, &value.to_le_bytes(), false, Location::caller());
        }
        // SAFETY: `at` is a word of the mapping.
        if unsafe { copy::store64(at, value) } {
            Ok(Dirty::new(self, off, 8))
        } else {
            Err(Fault::Region)
        }
    }

    /// Stores bytes through the cache, in ascending order, each aligned 8-byte word at once.
    #[track_caller]
    #[inline]
    pub fn write(&self, off: u64, from: &[u8]) -> Result<Dirty<'_>, Fault> {
        self.write_at(off, from, Location::caller())?;
        Ok(Dirty::new(self, off, from.len() as u64))
    }

    #[inline]
    pub(crate) fn write_at(
        &self,
        off: u64,
        from: &[u8],
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        let to = self.range(off, from.len() as u64)?;
        if let Some(hook) = &self.hook {
            hook.store(off, from, false, at);
        }
        // SAFETY: `to` is mapped for `from.len()` bytes.
        unsafe { copy::store_words(to, from.as_ptr(), from.len()) }.map_err(|_| Fault::Region)
    }

    /// Flushes the lines of a range, whichever thread stored them: recovery makes a dead process's
    /// stores durable before it builds on them. Lines outside the region or on vanished pages are
    /// skipped.
    #[track_caller]
    pub fn flush(&self, off: u64, len: u64) -> InFlight<'_> {
        let at = Location::caller();
        if self.pager().is_none() {
            self.flush_at(off, len, at);
        } else {
            self.note_flush(off, len, at);
        }
        InFlight::new(self)
    }

    /// Stores a word that publishes what `after` proves durable.
    #[track_caller]
    #[inline]
    pub fn commit64(&self, off: u64, value: u64, after: &Durable<'_>) -> Result<Dirty<'_>, Fault> {
        let _ = after;
        self.store64(off, value)
    }

    /// Stores bytes (a commit line) that publish what `after` proves durable.
    #[track_caller]
    #[inline]
    pub fn commit_write(
        &self,
        off: u64,
        from: &[u8],
        after: &Durable<'_>,
    ) -> Result<Dirty<'_>, Fault> {
        let _ = after;
        self.write(off, from)
    }

    /// Stores a whole line that publishes what `after` proves durable, and starts its way to
    /// memory: by one direct store where the CPU has it (116 ns with its fence, not 210; the line
    /// is uncached then); else word by word.
    #[track_caller]
    #[inline]
    pub fn commit_line(
        &self,
        off: u64,
        line: &[u8; LINE as usize],
        after: &Durable<'_>,
    ) -> Result<InFlight<'_>, Fault> {
        let _ = after;
        self.write_line(off, line)
    }

    /// As [`Region::commit_line`], for a line that publishes nothing by itself.
    #[track_caller]
    #[inline]
    pub fn write_line(&self, off: u64, line: &[u8; LINE as usize]) -> Result<InFlight<'_>, Fault> {
        if !off.is_multiple_of(LINE) {
            return Err(Fault::Region);
        }
        let Some(to) = self.quick(off, LINE) else {
            return self.write_line_slowly(off, line, Location::caller());
        };
        if self.hook.is_some() {
            // Word by word: code that is right with that is right with one store.
            return Ok(self.write(off, line)?.flush());
        }
        // SAFETY: `to` is a line of the mapping.
        let stored = unsafe { copy::set_off_line(self.dispatch, to, line) };
        if stored { Ok(InFlight::new(self)) } else { Err(Fault::Region) }
    }

    #[inline]
    pub(crate) fn flush_at(&self, off: u64, len: u64, at: &'static Location<'static>) {
        #[cfg(feature = "inject")]
        if crate::inject::passes(crate::inject::Does::Flush, at) {
            return;
        }
        let end = off.saturating_add(len).min(self.quick.load(Ordering::Acquire));
        if self.dispatch.flush == FlushKind::None {
            return;
        }
        if off >= end {
            cold_path();
            return self.flush_slowly(off, len, at);
        }
        self.flush_lines(off - off % LINE, end, at);
    }

    /// Flushes the lines of a store that pays for itself.
    pub(crate) fn flush_edge(&self, off: u64, len: u64, at: &'static Location<'static>) {
        #[cfg(feature = "inject")]
        if crate::inject::passes(crate::inject::Does::Flush, at) {
            return;
        }
        if self.dispatch.flush != FlushKind::None {
            self.flush_lines(off - off % LINE, off + len, at);
        }
    }

    /// Flushes the lines from `line` on, up to `end` in the region.
    #[inline]
    pub(crate) fn flush_lines(&self, mut line: u64, end: u64, at: &'static Location<'static>) {
        while line < end {
            if let Some(hook) = &self.hook {
                hook.flush(line, at);
            }
            let address = self.base.wrapping_add(line as usize);
            line = if copy::flush_line(self.dispatch.flush, address) {
                line + LINE
            } else {
                (line + 1).next_multiple_of(PAGE)
            };
        }
    }

    #[inline]
    pub(crate) fn fence_at(&self, at: &'static Location<'static>) {
        if self.is_plain() {
            return;
        }
        #[cfg(feature = "inject")]
        if crate::inject::passes(crate::inject::Does::Fence, at) {
            return;
        }
        if let Some(hook) = &self.hook {
            hook.fence(at);
        }
        copy::store_fence();
    }

    /// Whether [`Region::sync_file`] has anything to do.
    #[inline]
    pub fn needs_sync(&self) -> bool {
        self.class() == Class::Page
    }

    /// Writes the page cache of a plain file to its disk; nothing to do for any other class.
    pub fn sync_file(&self) -> io::Result<()> {
        if self.class() == Class::Page && self.fd.is_some() {
            let all = pages(self.len());
            // SAFETY: the mapping of this region; msync changes no content.
            unsafe { rustix::mm::msync(self.base.cast(), all, MsyncFlags::SYNC)? };
        }
        Ok(())
    }
}
