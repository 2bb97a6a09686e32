//! Streams that are summed on the way: bytes go around the cache, and their crc32c comes back.
//!
//! The caller's memory is read once: the bytes summed are the bytes stored, whatever other threads
//! do to it meanwhile. Long streams are folded in vector registers (as in "Fast CRC Computation for
//! Generic Polynomials Using PCLMULQDQ", Intel 2009), which costs nothing beside stores that wait
//! for the memory. Short ones of whole words go through registers; all others, and all on CPUs that
//! cannot fold, through a private copy.
//!
//! Persistence order: as [`Region::stream`]. Locks: none.

use crate::persistence::locality::Locality;
use crate::persistence::stream::in_order;
use crate::persistence::tokens::InFlight;
use crate::region::Region;
use emulation::Way;
use memory::faults::user_memory::{self, Fault, UserIn};
use memory::instructions::checksum::checksum_after;
use memory::instructions::copy::{self, LINE, Route};
use std::panic::Location;

/// Bytes that are folded at a time.
const FOLDED: usize = 256;
/// Bytes that have a small private copy.
const FEW: usize = 256;
/// Bytes of a private copy.
const PIECE: usize = 1024;

/// x to the power of `exponent` modulo the polynomial of crc32c, the highest coefficient in bit 0.
const fn power(exponent: u32) -> u64 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let (mut value, mut left) = (1_u32 << 31, exponent);
    while left > 0 {
        value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
        left -= 1;
    }
    (value as u64) << 1
}

/// By what the two words of 128 bits are multiplied to stand `bits` bits further on.
const fn powers(bits: u32) -> [u64; 2] {
    if bits == 0 { [0; 2] } else { [power(bits + 32), power(bits - 32)] }
}

/// What `copy_asm::stream_folded_avx512` multiplies by, in lines: 2048 bits;
/// each 128 of 2048 bits to the last of them.
#[repr(align(64))]
struct Powers([[[u64; 2]; 4]; 5]);

static POWERS: Powers = {
    let mut all = [[[0; 2]; 4]; 5];
    all[0] = [powers(2048); 4];
    let mut lane = 0;
    while lane < 16 {
        all[1 + lane / 4][lane % 4] = powers(128 * (15 - lane as u32));
        lane += 1;
    }
    Powers(all)
};

impl Region {
    /// As [`Region::stream_from`]; gives the crc32c of the bytes besides.
    #[track_caller]
    #[inline]
    pub fn stream_checksummed(
        &self,
        off: u64,
        from: &UserIn<'_>,
        locality: Locality,
    ) -> Result<(InFlight<'_>, u32), Fault> {
        self.stream_checksummed_on(off, from, 0, locality)
    }

    /// As [`Region::stream_checksummed`] of bytes that follow others, whose sum is `crc`.
    #[track_caller]
    #[inline]
    pub fn stream_checksummed_on(
        &self,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        locality: Locality,
    ) -> Result<(InFlight<'_>, u32), Fault> {
        let len = from.len();
        user_memory::check(from.start(), len)?;
        let at = Location::caller();
        let crc = if self.is_plain() {
            self.sum_plainly(off, from, crc, locality, at)?
        } else {
            self.sum_by(Route::Streamed, off, from, crc, at)?
        };
        Ok((InFlight::new(self), crc))
    }

    #[expect(clippy::inline_always, reason = "the route is known then")]
    #[inline(always)]
    fn sum_by(
        &self,
        route: Route,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        let len = from.len();
        if off.is_multiple_of(8) && len.is_multiple_of(8) && self.folds() {
            self.stream_words(route, off, from.start(), len, crc)
        } else {
            self.stream_in_parts(route, off, from, crc, at)
        }
    }

    /// The same where nothing has to be durable.
    #[inline(never)]
    fn sum_plainly(
        &self,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        locality: Locality,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        let route = locality.route(from.len());
        in_order(route, || self.sum_by(route, off, from, crc, at))
    }

    /// Whether streams are summed in registers here.
    #[inline]
    fn folds(&self) -> bool {
        self.dispatch().folded_sum && self.hook().is_none()
    }

    /// Streams and sums whole words: lines 256 bytes at a time, what stands before and behind them
    /// by words.
    fn stream_words(
        &self,
        route: Route,
        off: u64,
        from: *const u8,
        len: usize,
        crc: u32,
    ) -> Result<u32, Fault> {
        if self.quick(off, len as u64).is_none() {
            return self.stream_words_slowly(route, off, from, len, crc);
        }
        self.stream_words_at(route, off, from, len, crc)
    }

    #[cold]
    #[inline(never)]
    fn stream_words_slowly(
        &self,
        route: Route,
        off: u64,
        from: *const u8,
        len: usize,
        crc: u32,
    ) -> Result<u32, Fault> {
        self.sum_slowly(off, len, crc, |done, len, crc| {
            self.stream_words_at(route, off + done as u64, from.wrapping_add(done), len, crc)
        })
    }

    /// Makes a stream in parts by `stream`, which gets how far a part is from the start, its length
    /// and the sum before it.
    #[cold]
    fn sum_slowly(
        &self,
        off: u64,
        len: usize,
        mut crc: u32,
        stream: impl Fn(usize, usize, u32) -> Result<u32, Fault>,
    ) -> Result<u32, Fault> {
        self.slowly(Way::Write, off, len as u64, |_, done, len| {
            crc = stream(done, len, crc)?;
            Ok(())
        })?;
        Ok(crc)
    }

    /// The same inside the region.
    #[expect(clippy::inline_always, reason = "one of two calls, and the other is rare")]
    #[inline(always)]
    fn stream_words_at(
        &self,
        route: Route,
        off: u64,
        from: *const u8,
        len: usize,
        crc: u32,
    ) -> Result<u32, Fault> {
        let head = (off.next_multiple_of(LINE) - off) as usize;
        let head = if len >= head + FOLDED { head } else { len };
        let lines = (len - head) / FOLDED * FOLDED;
        let mut crc = if head > 0 { self.stream_few(route, off, from, head, crc)? } else { crc };
        if lines > 0 {
            let from = from.wrapping_add(head);
            crc = self.stream_folded(route, off + head as u64, from, lines, crc)?;
        }
        let done = head + lines;
        if done < len {
            crc = self.stream_few(
                route,
                off + done as u64,
                from.wrapping_add(done),
                len - done,
                crc,
            )?;
        }
        Ok(crc)
    }

    /// Streams and sums what begins or ends anywhere.
    fn stream_in_parts(
        &self,
        route: Route,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        match self.quick(off, from.len() as u64) {
            Some(to) if from.len() <= FEW => {
                self.stream_copied::<FEW>(route, to, off, from, crc, at)
            }
            Some(to) => self.stream_parts_at(route, to, off, from, crc, at),
            None => self.stream_in_parts_slowly(route, off, from, crc, at),
        }
    }

    #[cold]
    #[inline(never)]
    fn stream_in_parts_slowly(
        &self,
        route: Route,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        self.sum_slowly(off, from.len(), crc, |done, len, crc| {
            let off = off + done as u64;
            self.stream_parts_at(route, self.range(off, 0)?, off, &from.slice(done, len), crc, at)
        })
    }

    /// The same inside the region, `start` being the address of `off`.
    fn stream_parts_at(
        &self,
        route: Route,
        start: *mut u8,
        off: u64,
        from: &UserIn<'_>,
        mut crc: u32,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        let (folds, mut done) = (self.folds(), 0);
        while done < from.len() {
            let (to, rest) = (off + done as u64, from.len() - done);
            let head = (to.next_multiple_of(LINE) - to) as usize;
            if folds && head == 0 && rest >= FOLDED {
                let take = rest - rest % FOLDED;
                crc = self.stream_folded(route, to, from.start().wrapping_add(done), take, crc)?;
                done += take;
                continue;
            }
            let take = if folds && rest >= head + FOLDED { head } else { rest.min(PIECE) };
            let part = from.slice(done, take);
            let place = start.wrapping_add(done);
            crc = if take <= FOLDED {
                self.stream_copied::<FOLDED>(route, place, to, &part, crc, at)?
            } else {
                self.stream_copied::<PIECE>(route, place, to, &part, crc, at)?
            };
            done += take;
        }
        Ok(crc)
    }

    /// Streams at most `MOST` bytes by way of a private copy, `to` being the address of `off`.
    #[inline]
    fn stream_copied<const MOST: usize>(
        &self,
        route: Route,
        to: *mut u8,
        off: u64,
        from: &UserIn<'_>,
        crc: u32,
        at: &'static Location<'static>,
    ) -> Result<u32, Fault> {
        let mut bytes = [0; MOST];
        let bytes = &mut bytes[..from.len()];
        from.read(bytes)?;
        // First on their way, then summed: that is done while they go.
        let stored = self.stream_by(route, to, off, bytes.as_ptr(), bytes.len(), at);
        stored.map_err(|_| Fault::Region)?;
        Ok(checksum_after(crc, bytes))
    }

    /// Streams words and goes on from `crc` by them.
    #[inline]
    fn stream_few(
        &self,
        route: Route,
        off: u64,
        from: *const u8,
        len: usize,
        crc: u32,
    ) -> Result<u32, Fault> {
        let to = self.range(off, len as u64)?;
        // SAFETY: `to` is mapped for `len` bytes, and a word; both sides are guarded. The CPU
        // folds, so it has crc32c.
        let state = unsafe { copy::copy_words_summed(route, to, from, len, !crc) };
        state.map(|state| !state).map_err(user_memory::caller_to_region)
    }

    /// Streams whole lines and goes on from `crc` by them.
    #[inline]
    fn stream_folded(
        &self,
        route: Route,
        off: u64,
        from: *const u8,
        len: usize,
        crc: u32,
    ) -> Result<u32, Fault> {
        let (to, kind) = (self.range(off, len as u64)?, self.dispatch().copy);
        let powers = POWERS.0.as_ptr().cast();
        // SAFETY: `to` is mapped for `len` bytes, a multiple of what is folded, and a line's start;
        // both sides are guarded. The CPU has the instructions, and crc32c with them.
        let state = unsafe { copy::copy_folded(kind, route, to, from, len, !crc, powers) };
        state.map(|state| !state).map_err(user_memory::caller_to_region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::instructions::dispatch::Dispatch;

    #[test]
    fn a_checksummed_stream_stores_what_it_sums() {
        let source: Vec<u8> = (0..20_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        let file = Region::anonymous(1 << 16).unwrap();
        let traced = Region::in_memory(vec![0; 1 << 16], None);
        let cold = Locality::Cold;
        let ways =
            [(&file, Locality::Near, "file"), (&file, cold, "cold"), (&traced, cold, "private")];
        for (region, locality, name) in ways {
            for length in [1, 24, 63, 64, 255, 256, 257, 512, 1023, 1025, 4095, 4096, 4120, 16_384]
            {
                for off in [0_u64, 8, 24, 61, 64, 4096, 4100] {
                    for skip in [0, 1, 13] {
                        let bytes = &source[skip..skip + length];
                        let (stored, crc) =
                            region.stream_checksummed(off, &UserIn::new(bytes), locality).unwrap();
                        let _ = stored.fence();
                        let what = format!("{name}: {length} at {off} from {skip}");
                        assert_eq!(crc, crc32c::crc32c(bytes), "{what}");
                        let mut found = vec![0; length];
                        region.read(off, &mut found).unwrap();
                        assert_eq!(found, bytes, "{what}");
                        let (first, rest) = bytes.split_at(length / 3);
                        let (_, crc) =
                            region.stream_checksummed(off, &UserIn::new(first), locality).unwrap();
                        let rest = region
                            .stream_checksummed_on(off, &UserIn::new(rest), crc, locality)
                            .unwrap();
                        assert_eq!(rest.1, crc32c::crc32c(bytes), "{what}, in two parts");
                    }
                }
            }
        }
    }

    /// Whatever widths the CPU has, not only the one that is chosen.
    #[test]
    fn folds_of_each_width_are_the_same_sum() {
        let source: Vec<u8> = (0..8192_u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        let mut target = vec![0_u64; 1024 + 8];
        let start = target.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(64));
        for kind in ["avx512", "avx2"] {
            let Ok(dispatch) = Dispatch::choose(None, Some(kind)) else { continue };
            for route in
                [Route::Cached, Route::Streamed].into_iter().filter(|_| dispatch.folded_sum)
            {
                for (skip, length) in [(0, 256), (1, 512), (13, 4096), (0, 7936)] {
                    let bytes = &source[skip..skip + length];
                    let powers = POWERS.0.as_ptr().cast();
                    // SAFETY: room for so many bytes, from a line's start on; the CPU can do it.
                    let state = unsafe {
                        let from = bytes.as_ptr();
                        copy::copy_folded(dispatch.copy, route, start, from, length, !7, powers)
                    };
                    copy::store_fence();
                    // SAFETY: as above.
                    let found = unsafe { std::slice::from_raw_parts(start, length) };
                    assert!(found == bytes, "{kind} {route:?} {length}");
                    let sum = crc32c::crc32c_append(7, bytes);
                    assert_eq!(state.map(|state| !state), Ok(sum), "{kind} {route:?} {length}");
                }
            }
        }
    }

    #[test]
    fn a_fault_says_whose_it_is() {
        let region = Region::anonymous(1 << 16).unwrap();
        // SAFETY: an address that is not mapped.
        let nowhere = unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 4096) };
        assert_eq!(
            region.stream_checksummed(0, &nowhere, Locality::Near).unwrap_err(),
            Fault::Caller
        );
        let bytes = vec![1; 4096];
        let beyond =
            region.stream_checksummed((1 << 16) - 64, &UserIn::new(&bytes), Locality::Near);
        assert_eq!(beyond.unwrap_err(), Fault::Region);
    }

    #[test]
    fn a_fault_of_few_words_says_whose_it_is() {
        let region = Region::anonymous(1 << 16).unwrap();
        // SAFETY: an address that is not mapped.
        let nowhere = unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 40) };
        for off in [0, 8, 56, 64] {
            assert_eq!(
                region.stream_checksummed(off, &nowhere, Locality::Cold).unwrap_err(),
                Fault::Caller
            );
        }
        let beyond =
            region.stream_checksummed((1 << 16) - 32, &UserIn::new(&[1; 40]), Locality::Near);
        assert_eq!(beyond.unwrap_err(), Fault::Region);
    }
}
