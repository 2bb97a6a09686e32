//! Streams: bytes that go around the cache. Whole lines go at once, what stands before and behind
//! them in parts.
//!
//! Where nothing has to be durable ([`Policy::Plain`]) they are copies through the cache, but for
//! long ones, which stand between two fences: so they are ordered as plain stores are.
//!
//! [`Policy::Plain`]: crate::Policy::Plain

use crate::persistence::locality::Locality;
use crate::persistence::tokens::InFlight;
use crate::region::Region;
use memory::faults::user_memory::{self, Fault, UserIn};
use memory::instructions::copy::{self, LINE, Route};
use std::panic::Location;

/// Makes stores by a route that are ordered as plain ones are: streams by themselves are not, with
/// those before and behind them.
#[inline]
pub(crate) fn in_order<T>(route: Route, store: impl FnOnce() -> T) -> T {
    if route == Route::Cached {
        return store();
    }
    copy::store_fence();
    let stored = store();
    copy::store_fence();
    stored
}

impl Region {
    /// Stores bytes around the cache. Streamed stores are *not* ordered with later ones: a fence
    /// must come before anything tells another thread, by memory, that they are there.
    #[track_caller]
    #[inline]
    pub fn stream(&self, off: u64, from: &[u8]) -> Result<InFlight<'_>, Fault> {
        // The source is Rust's own memory: only the region can fault.
        self.stream_at(off, from.as_ptr(), from.len(), Locality::Near, Location::caller())
            .map_err(|_| Fault::Region)
    }

    /// Copies inside the region, around the cache; the ranges do not overlap.
    #[track_caller]
    pub fn copy(&self, from: u64, to: u64, len: u64) -> Result<InFlight<'_>, Fault> {
        let at = Location::caller();
        let Some(source) = self.quick(from, len) else {
            return self.copy_slowly(from, to, len, at);
        };
        if self.hook().is_some() {
            let mut bytes = vec![0; len as usize];
            self.read(from, &mut bytes)?;
            return self.stream_at(to, bytes.as_ptr(), bytes.len(), Locality::Near, at);
        }
        self.stream_at(to, source, len as usize, Locality::Near, at).map_err(|_| Fault::Region)
    }

    /// The three parts of `off..off + len`: up to a line, whole lines, the rest.
    fn parts(off: u64, len: usize) -> (usize, usize, usize) {
        let head = ((off.next_multiple_of(LINE) - off) as usize).min(len);
        let tail = (len - head) % LINE as usize;
        (head, len - head - tail, tail)
    }

    /// Streams from any memory; with a hook, `from` must be memory that cannot fault.
    pub(crate) fn stream_at(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        let Some(to) = self.quick(off, len as u64) else {
            return self.stream_slowly(off, from, len, locality, at);
        };
        self.stream_to(to, off, from, len, locality, at)?;
        Ok(InFlight::new(self))
    }

    /// As [`Region::stream_to`], through the cache: each aligned word whole.
    fn store_cached(
        &self,
        to: *mut u8,
        off: u64,
        from: *const u8,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if let Some(hook) = self.hook() {
            // SAFETY: with a hook the source is a live slice (see `stream_at`).
            hook.store(off, unsafe { std::slice::from_raw_parts(from, len) }, false, at);
        }
        // SAFETY: `to` is mapped for `len` bytes; both sides are guarded.
        unsafe { copy::store_bytes(self.dispatch().copy, to, from, len) }
            .map_err(user_memory::caller_to_region)
    }

    /// The same, where `to` is known: the address of `off`.
    #[expect(clippy::inline_always, reason = "one of few calls, and the others are rare")]
    #[inline(always)]
    pub(crate) fn stream_to(
        &self,
        to: *mut u8,
        off: u64,
        from: *const u8,
        len: usize,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if self.is_plain() {
            return self.stream_plainly(to, off, from, len, locality, at);
        }
        self.stream_by(Route::Streamed, to, off, from, len, at)
    }

    /// The same where nothing has to be durable.
    #[inline(never)]
    fn stream_plainly(
        &self,
        to: *mut u8,
        off: u64,
        from: *const u8,
        len: usize,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        let route = locality.route(len);
        in_order(route, || self.stream_by(route, to, off, from, len, at))
    }

    /// The same by a route.
    #[expect(clippy::inline_always, reason = "one of few calls, and the others are rare")]
    #[inline(always)]
    pub(crate) fn stream_by(
        &self,
        route: Route,
        to: *mut u8,
        off: u64,
        from: *const u8,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        match route {
            Route::Cached => self.store_cached(to, off, from, len, at),
            Route::Streamed => self.stream_parts_to(to, off, from, len, at),
        }
    }

    #[expect(clippy::inline_always, reason = "one of few calls, and the others are rare")]
    #[inline(always)]
    fn stream_parts_to(
        &self,
        to: *mut u8,
        off: u64,
        from: *const u8,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        let (head, body, tail) = Region::parts(off, len);
        self.store_edge(off, from, head, at)?;
        if body > 0 {
            let from = from.wrapping_add(head);
            if let Some(hook) = self.hook() {
                // SAFETY: with a hook the source is a live slice, as said above.
                let bytes = unsafe { std::slice::from_raw_parts(from, body) };
                hook.store(off + head as u64, bytes, true, at);
            }
            let to = to.wrapping_add(head);
            // SAFETY: `to` is mapped for all parts, aligned behind the head; both sides are
            // guarded.
            unsafe { copy::store_lines(self.dispatch().copy, Route::Streamed, to, from, body) }
                .map_err(user_memory::caller_to_region)?;
        }
        let done = head + body;
        self.store_edge(off + done as u64, from.wrapping_add(done), tail, at)
    }

    /// Stores less than a line: whole words around the cache, anything else through it and flushed.
    fn store_edge(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        let to = self.range(off, len as u64)?;
        let words = off.is_multiple_of(8) && len.is_multiple_of(8);
        if let Some(hook) = self.hook() {
            // SAFETY: with a hook the source is a live slice (see `stream_at`).
            hook.store(off, unsafe { std::slice::from_raw_parts(from, len) }, words, at);
        }
        // SAFETY: `to` is mapped for `len` bytes; both sides are guarded.
        unsafe {
            if words {
                copy::stream_words(to, from, len).map_err(user_memory::caller_to_region)
            } else {
                copy::store_words(to, from, len).map_err(user_memory::caller_to_region)?;
                #[cfg(feature = "inject")]
                if crate::inject::loses_edges() {
                    return Ok(());
                }
                self.flush_edge(off, len as u64, at);
                Ok(())
            }
        }
    }

    /// Zeroes bytes around the cache. What a pager knows to be zeros stays as it is.
    #[track_caller]
    pub fn stream_zero(&self, off: u64, len: u64) -> Result<InFlight<'_>, Fault> {
        let at = Location::caller();
        if self.pager().is_some() {
            return self.zero_but_void(off, len, at);
        }
        self.zero_all(off, len, at)
    }

    /// The same of all of them.
    #[inline]
    pub(crate) fn zero_all(
        &self,
        off: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        let Some(to) = self.quick(off, len) else {
            return self.zero_slowly(off, len, at);
        };
        self.zero_at(to, off, len as usize, at)?;
        Ok(InFlight::new(self))
    }

    /// The same, where `to` is known.
    #[inline]
    pub(crate) fn zero_at(
        &self,
        to: *mut u8,
        off: u64,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if !self.is_plain() {
            return self.zero_by(Route::Streamed, to, off, len, at);
        }
        let route = Locality::Near.route(len);
        in_order(route, || self.zero_by(route, to, off, len, at))
    }

    #[inline]
    fn zero_by(
        &self,
        route: Route,
        to: *mut u8,
        off: u64,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        static ZEROES: [u8; LINE as usize] = [0; LINE as usize];
        let (head, body, tail) = Region::parts(off, len);
        self.store_edge(off, ZEROES.as_ptr(), head, at)?;
        if body > 0 {
            if let Some(hook) = self.hook() {
                hook.store(off + head as u64, &vec![0; body], route == Route::Streamed, at);
            }
            // SAFETY: `to` is mapped for all parts and aligned behind the head.
            unsafe { copy::zero_lines(self.dispatch().copy, route, to.wrapping_add(head), body) }
                .map_err(|_| Fault::Region)?;
        }
        self.store_edge(off + (head + body) as u64, ZEROES.as_ptr(), tail, at)
    }

    /// Stores the caller's bytes around the cache; where nothing has to be durable, as `locality`
    /// has it. On [`Fault::Caller`] a part may be stored.
    #[track_caller]
    #[expect(clippy::inline_always, reason = "its words stay in registers")]
    #[inline(always)]
    pub fn stream_from(
        &self,
        off: u64,
        from: &UserIn<'_>,
        locality: Locality,
    ) -> Result<InFlight<'_>, Fault> {
        let (start, len) = (from.start(), from.len());
        user_memory::check(start, len)?;
        if (off | len as u64).is_multiple_of(LINE) && self.hook().is_none() {
            let Some(to) = self.quick(off, len as u64) else {
                return self.stream_slowly(off, start, len, locality, Location::caller());
            };
            if self.is_plain() {
                self.stream_plainly(to, off, start, len, locality, Location::caller())?;
            } else {
                let (copy, route) = (self.dispatch().copy, Route::Streamed);
                // SAFETY: `to` is mapped for these lines; both sides are guarded.
                unsafe { copy::store_lines(copy, route, to, start, len) }
                    .map_err(user_memory::caller_to_region)?;
            }
        } else {
            self.stream_parts(off, from, locality, Location::caller())?;
        }
        Ok(InFlight::new(self))
    }

    /// The same of what begins or ends anywhere.
    fn stream_parts(
        &self,
        off: u64,
        from: &UserIn<'_>,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<(), Fault> {
        if self.hook().is_some() {
            let mut bytes = vec![0; from.len()];
            from.read(&mut bytes)?;
            return self.stream_at(off, bytes.as_ptr(), bytes.len(), locality, at).map(drop);
        }
        self.stream_at(off, from.start(), from.len(), locality, at).map(drop)
    }
}
