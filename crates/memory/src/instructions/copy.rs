//! Guarded access to memory that may vanish: single words, small copies, bulk copies, flushes.
//!
//! Nothing here knows regions or offsets. Each routine says which side of a copy faulted; the
//! callers know whose side that is (`faults/user_memory.rs`). All functions
//! are `unsafe` for one reason only: a pointer that *is* mapped is really read or written.
//! Unmapped, protected and vanished memory is an error, not undefined behaviour.

#![expect(clippy::missing_safety_doc, reason = "it is the same for all, said above")]

use crate::instructions::copy_asm::{self, LOAD_FAULT};
use crate::instructions::copy_words::{store_line, store_line_words};
use crate::instructions::dispatch::{CopyKind, Dispatch, FlushKind};
use crate::instructions::exception_table::{self, guarded};
use crate::instructions::string::is_slow_string;
use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::hint::cold_path;

/// The size of a cache line: the unit of flushing.
pub const LINE: u64 = 64;

/// Which side of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is read.
    Source,
    /// What is written.
    Target,
}

/// How stores reach the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the cache: other processors see them in order.
    Cached,
    /// Around it, by non-temporal stores: a fence orders them.
    Streamed,
}

/// From this length on the bulk routines beat `copy_small`; they need at least 64 bytes.
const BULK: usize = 256;

/// From this length on the string instruction beats vectors on memory that is not cached, where the
/// CPU has a fast one (measured: 64 KiB uncached in 2.4 us instead of 2.9).
const STRING: usize = 4096;

#[inline]
fn outcome(code: u32) -> Result<(), Side> {
    match code {
        0 => Ok(()),
        LOAD_FAULT => Err(Side::Source),
        _ => Err(Side::Target),
    }
}

/// What a fault gives, which is rare: the code that goes on is laid out, and inlined, as if there
/// were none.
#[inline]
pub fn lost<T>() -> Option<T> {
    cold_path();
    None
}

/// Where a fault lands, out of the way of what goes on: it says so and comes back.
macro_rules! landing {
    () => {
        ".pushsection .text.unlikely,\"ax\",@progbits\n4: mov {fault:e}, 1\njmp 3b\n.popsection"
    };
}

/// Where a load's fault lands: its address is 0 then, so one that goes on has nothing to say.
macro_rules! landing_of_load {
    () => {
        ".pushsection .text.unlikely,\"ax\",@progbits\n4: mov {from:e}, 0\njmp 3b\n.popsection"
    };
}

pub(crate) use {landing, landing_of_load};

/// An atomic (acquire) load of an aligned word; `None` if it faulted.
#[inline]
pub unsafe fn load64(from: *const u8) -> Option<u64> {
    let value: u64;
    let left: *const u8;
    // SAFETY: the load is guarded; it has no effect but on its two output registers.
    unsafe {
        asm!(
            "2: mov {value}, qword ptr [{from}]",
            "3:",
            landing_of_load!(),
            guarded!("2b", "3b", "4b"),
            from = inout(reg) from => left,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    if left.is_null() { lost() } else { Some(value) }
}

/// A release store of an aligned word; false if it faulted.
#[inline]
pub unsafe fn store64(to: *mut u8, value: u64) -> bool {
    // SAFETY: the store is guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "2: mov qword ptr [{to}], {value}",
            "3:",
            guarded!("2b", "3b", "{lost}"),
            to = in(reg) to,
            value = in(reg) value,
            lost = label { return lost::<()>().is_some() },
            options(nostack, preserves_flags),
        );
    }
    true
}

/// Compare and swap of an aligned word: the value found; `None` if it faulted.
#[inline]
pub unsafe fn cas64(at: *mut u8, old: u64, new: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2: lock cmpxchg qword ptr [{at}], {new}",
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            at = in(reg) at,
            new = in(reg) new,
            fault = out(reg) fault,
            inout("rax") old => found,
            options(nostack),
        );
    }
    if fault == 0 { Some(found) } else { lost() }
}

/// Fetch and add (wrapping) of an aligned word; `None` if it faulted.
#[inline]
pub unsafe fn add64(at: *mut u8, delta: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2: lock xadd qword ptr [{at}], {value}",
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            at = in(reg) at,
            value = inout(reg) delta => found,
            fault = out(reg) fault,
            options(nostack),
        );
    }
    if fault == 0 { Some(found) } else { lost() }
}

/// Adds to word number `WORD` of a line by one plain instruction; nothing happens if it faults.
#[expect(clippy::inline_always, reason = "an instruction")]
#[inline(always)]
pub unsafe fn count64<const WORD: usize>(line: *mut u8, number: u64) {
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "2: add qword ptr [{line} + 8 * {word}], {number}",
            "3:",
            guarded!("2b", "3b", "3b"),
            line = in(reg) line,
            number = in(reg) number,
            word = const WORD,
            options(nostack),
        );
    }
}

/// As [`count64`], of one.
#[expect(clippy::inline_always, reason = "an instruction")]
#[inline(always)]
pub unsafe fn count_one<const WORD: usize>(line: *mut u8) {
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "2: add qword ptr [{line} + 8 * {word}], 1",
            "3:",
            guarded!("2b", "3b", "3b"),
            line = in(reg) line,
            word = const WORD,
            options(nostack),
        );
    }
}

/// Atomic exchange of an aligned word; `None` if it faulted.
#[inline]
pub unsafe fn swap64(at: *mut u8, value: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2: xchg qword ptr [{at}], {value}",
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            at = in(reg) at,
            value = inout(reg) value => found,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    if fault == 0 { Some(found) } else { lost() }
}

/// Reads one byte, to bring its page in.
#[inline]
pub(crate) unsafe fn touch_read(at: *const u8) -> bool {
    let fault: u32;
    // SAFETY: the load is guarded and its value is dropped.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: movzx {value:e}, byte ptr [{at}]",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            at = in(reg) at,
            value = out(reg) _,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    fault == 0
}

/// Makes a write fault on one byte without changing it, whatever thread writes it meanwhile.
pub(crate) unsafe fn touch_write(at: *mut u8) -> bool {
    let fault: u32;
    // SAFETY: guarded; an atomic OR with 0 changes nothing.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: lock or byte ptr [{at}], 0",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            at = in(reg) at,
            fault = out(reg) fault,
            options(nostack),
        );
    }
    fault == 0
}

/// A copy of exactly one line's worth of bytes, inlined: what metadata readers do all day.
#[inline]
pub unsafe fn copy64(to: *mut u8, from: *const u8) -> Result<(), Side> {
    let fault: u32;
    // SAFETY: guarded; the caller vouches for 64 bytes of target.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "mov {fault:e}, 2",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            to = in(reg) to,
            from = in(reg) from,
            fault = out(reg) fault,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    outcome(fault)
}

/// Stores a whole line, `to` aligned to it, and sends it on its way: directly where the CPU can,
/// else by words and a flush. False if it faulted.
#[inline]
pub unsafe fn set_off_line(dispatch: Dispatch, to: *mut u8, from: &[u8; LINE as usize]) -> bool {
    // SAFETY: the caller vouches for the target; the CPU has what its dispatch names.
    unsafe {
        if dispatch.direct_line && dispatch.flush != FlushKind::None {
            store_line(to, from)
        } else {
            store_line_words(to, from) && flush_line(dispatch.flush, to)
        }
    }
}

/// A cached copy of any length and alignment.
#[inline]
pub unsafe fn copy(
    dispatch: Dispatch,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routines are guarded.
    let code = unsafe {
        if len < BULK {
            copy_asm::copy_small(to, from, len)
        } else if len >= STRING && dispatch.string_copy && !is_slow_string(to, from) {
            copy_asm::copy_string(to, from, len)
        } else {
            match dispatch.copy {
                CopyKind::Avx512 => copy_asm::copy_avx512(to, from, len),
                CopyKind::Avx2 => copy_asm::copy_avx2(to, from, len),
                CopyKind::Sse2 => copy_asm::copy_sse2(to, from, len),
            }
        }
    };
    match outcome(code) {
        Err(Side::Target) => Err(blamed(from, len)),
        copied => copied,
    }
}

/// Which side of a copy has faulted, where the routine believes that it was the target: what loads
/// and stores by one instruction loads once more to find out, and the source may be back by then (a
/// file that is cut and made longer).
#[cold]
fn blamed(from: *const u8, len: usize) -> Side {
    let from = from as usize;
    if (from..from + len).contains(&exception_table::last_fault()) {
        Side::Source
    } else {
        Side::Target
    }
}

/// As [`copy`], of memory that is near or on its way: by vectors, whatever the length.
#[inline]
pub unsafe fn copy_near(
    dispatch: Dispatch,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    // SAFETY: as the caller vouches.
    unsafe { copy(Dispatch { string_copy: false, ..dispatch }, to, from, len) }
}

/// A cached copy that stores each aligned 8-byte word of the target once and whole.
#[inline]
pub unsafe fn store_words(to: *mut u8, from: *const u8, len: usize) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routine is guarded.
    outcome(unsafe { copy_asm::store_words(to, from, len) })
}

/// A cached copy that loads each aligned 8-byte word of the source once and whole, so that a word
/// that others store meanwhile is never torn.
#[inline]
pub unsafe fn load_words(to: *mut u8, from: *const u8, len: usize) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routines are guarded.
    outcome(unsafe {
        if len < BULK && (from as usize | len).is_multiple_of(8) {
            // Its steps start and end at words here.
            copy_asm::copy_small(to, from, len)
        } else {
            copy_asm::load_words(to, from, len)
        }
    })
}

/// A non-temporal copy of whole words: `to` is word-aligned, `len` a multiple of 8. A partial line
/// costs 100 ns with its fence, where a cached store and a flush cost 160.
#[inline]
pub unsafe fn stream_words(to: *mut u8, from: *const u8, len: usize) -> Result<(), Side> {
    debug_assert!((to as u64).is_multiple_of(8) && len.is_multiple_of(8));
    // SAFETY: the caller vouches for the target; the routine is guarded.
    outcome(unsafe { copy_asm::stream_words(to, from, len) })
}

/// A copy of any length through the cache that stores each aligned 8-byte word of the target whole:
/// by vectors, never by the string instruction, whose stores have no order.
#[inline]
pub unsafe fn store_bytes(
    kind: CopyKind,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routines are guarded.
    outcome(unsafe {
        if len < BULK {
            copy_asm::store_words(to, from, len)
        } else {
            match kind {
                CopyKind::Avx512 => copy_asm::copy_avx512(to, from, len),
                CopyKind::Avx2 => copy_asm::copy_avx2(to, from, len),
                CopyKind::Sse2 => copy_asm::copy_sse2(to, from, len),
            }
        }
    })
}

/// A copy of whole lines: `to` is line-aligned, `len` a multiple of a line.
#[expect(clippy::inline_always, reason = "one of three calls")]
#[inline(always)]
pub unsafe fn store_lines(
    kind: CopyKind,
    route: Route,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    debug_assert!((to as u64).is_multiple_of(LINE) && (len as u64).is_multiple_of(LINE));
    if route == Route::Cached {
        // SAFETY: as the caller vouches.
        return unsafe { store_bytes(kind, to, from, len) };
    }
    // SAFETY: the caller vouches for the target; the routines are guarded.
    let code = unsafe {
        match kind {
            CopyKind::Avx512 => copy_asm::stream_avx512(to, from, len),
            CopyKind::Avx2 => copy_asm::stream_avx2(to, from, len),
            CopyKind::Sse2 => copy_asm::stream_sse2(to, from, len),
        }
    };
    outcome(code)
}

/// What a summing routine gives: the state of the crc32c behind the bytes.
#[inline]
fn summed(result: u64) -> Result<u32, Side> {
    outcome(result as u32).map(|()| (result >> 32) as u32)
}

/// A copy of whole words, summed on the way: gives the state of the crc32c behind them. `to` and
/// `len` are as of [`stream_words`]. The CPU must have SSE 4.2.
#[inline]
pub unsafe fn copy_words_summed(
    route: Route,
    to: *mut u8,
    from: *const u8,
    len: usize,
    state: u32,
) -> Result<u32, Side> {
    debug_assert!((to as u64).is_multiple_of(8) && len.is_multiple_of(8));
    // SAFETY: the caller vouches for the target; both sides are guarded.
    summed(unsafe {
        match route {
            Route::Streamed => copy_asm::stream_words_summed(to, from, len, state),
            Route::Cached => copy_asm::copy_words_summed(to, from, len, state),
        }
    })
}

/// A copy of whole lines, a multiple of 256 bytes, folded on the way: gives the state of the crc32c
/// behind them. See [`copy_asm::stream_folded_avx512`]; `kind` is not [`CopyKind::Sse2`].
#[inline]
pub unsafe fn copy_folded(
    kind: CopyKind,
    route: Route,
    to: *mut u8,
    from: *const u8,
    len: usize,
    state: u32,
    powers: *const u64,
) -> Result<u32, Side> {
    debug_assert!((to as u64).is_multiple_of(LINE) && len > 0 && len.is_multiple_of(256));
    // SAFETY: the caller vouches for the target and the powers; both sides are guarded.
    summed(unsafe {
        match (kind, route) {
            (CopyKind::Avx512, Route::Streamed) => {
                copy_asm::stream_folded_avx512(to, from, len, state, powers)
            }
            (CopyKind::Avx512, Route::Cached) => {
                copy_asm::copy_folded_avx512(to, from, len, state, powers)
            }
            (_, Route::Streamed) => copy_asm::stream_folded_avx2(to, from, len, state, powers),
            (_, Route::Cached) => copy_asm::copy_folded_avx2(to, from, len, state, powers),
        }
    })
}

/// Zeroes over whole lines: `to` is line-aligned, `len` a multiple of a line.
#[inline]
pub unsafe fn zero_lines(
    kind: CopyKind,
    route: Route,
    to: *mut u8,
    len: usize,
) -> Result<(), Side> {
    debug_assert!((to as u64).is_multiple_of(LINE) && (len as u64).is_multiple_of(LINE));
    let none = std::ptr::null();
    // SAFETY: the caller vouches for the target; the routines are guarded.
    let code = unsafe {
        match (kind, route) {
            (CopyKind::Avx512, Route::Streamed) => copy_asm::zero_avx512(to, none, len),
            (CopyKind::Avx2, Route::Streamed) => copy_asm::zero_avx2(to, none, len),
            (CopyKind::Sse2, Route::Streamed) => copy_asm::zero_sse2(to, none, len),
            (CopyKind::Avx512, Route::Cached) => copy_asm::clear_avx512(to, none, len),
            (CopyKind::Avx2, Route::Cached) => copy_asm::clear_avx2(to, none, len),
            (CopyKind::Sse2, Route::Cached) => copy_asm::clear_sse2(to, none, len),
        }
    };
    outcome(code)
}

macro_rules! flush_line {
    ($instruction:literal, $line:expr) => {{
        let fault: u32;
        // SAFETY: a flush changes no content; a vanished page is guarded.
        unsafe {
            asm!(
                "mov {fault:e}, 0",
                concat!("2: ", $instruction, " byte ptr [{line}]"),
                "3:",
                landing!(),
                guarded!("2b", "3b", "4b"),
                line = in(reg) $line,
                fault = out(reg) fault,
                options(nostack, preserves_flags),
            );
        }
        fault == 0
    }};
}

/// Writes one line back to memory; false if its page has vanished.
#[inline]
pub fn flush_line(kind: FlushKind, line: *const u8) -> bool {
    match kind {
        FlushKind::Clwb => flush_line!("clwb", line),
        FlushKind::Clflushopt => flush_line!("clflushopt", line),
        FlushKind::Clflush => flush_line!("clflush", line),
        FlushKind::None => true,
    }
}

/// Waits until everything this thread streamed or flushed has reached the persistence domain, and
/// orders it before every later store.
#[inline]
pub fn store_fence() {
    // SAFETY: `sfence` has no operands and no effect but on ordering.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Asks for the lines of a range of memory, whatever lies there, to be brought near: a hint, which
/// changes nothing and never faults.
#[inline]
pub fn prefetch(start: *const u8, len: usize) {
    for line in (0..len).step_by(LINE as usize) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::handler::install_fault_handler;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    type Routine = unsafe extern "C" fn(*mut u8, *const u8, usize) -> u32;

    /// A routine with its demands: the shortest length, and the unit of target offset and length.
    struct Case {
        name: &'static str,
        routine: Routine,
        shortest: usize,
        unit: usize,
    }

    fn cases() -> Vec<Case> {
        let case = |name, routine: Routine, shortest, unit| Case { name, routine, shortest, unit };
        let mut cases = vec![
            case("small", copy_asm::copy_small, 0, 1),
            case("store words", copy_asm::store_words, 0, 1),
            case("load words", copy_asm::load_words, 0, 1),
            case("string", copy_asm::copy_string, 0, 1),
            case("stream words", copy_asm::stream_words, 0, 8),
            case("copy sse2", copy_asm::copy_sse2, 64, 1),
            case("stream sse2", copy_asm::stream_sse2, 0, 64),
        ];
        if CopyKind::Avx2.available() {
            cases.push(case("copy avx2", copy_asm::copy_avx2, 64, 1));
            cases.push(case("stream avx2", copy_asm::stream_avx2, 0, 64));
        }
        if CopyKind::Avx512.available() {
            cases.push(case("copy avx512", copy_asm::copy_avx512, 64, 1));
            cases.push(case("stream avx512", copy_asm::stream_avx512, 0, 64));
        }
        cases
    }

    const LENGTHS_BIG: [usize; 14] =
        [255, 256, 257, 319, 320, 511, 512, 1000, 1024, 4095, 4096, 4097, 8256, 70_016];

    fn lengths(case: &Case) -> impl Iterator<Item = usize> {
        let all = (0..=200).chain(LENGTHS_BIG);
        let (shortest, unit) = (case.shortest, case.unit);
        all.filter(move |len| *len >= shortest && len.is_multiple_of(unit))
    }

    /// A page-aligned mapping whose last page cannot be touched.
    struct Fenced {
        base: *mut u8,
        pages: usize,
    }

    impl Fenced {
        const PAGE: usize = 4096;

        fn new(pages: usize) -> Fenced {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            let null = std::ptr::null_mut();
            let len = (pages + 1) * Self::PAGE;
            // SAFETY: a fresh mapping, then the protection of its last page.
            let base = unsafe { mmap_anonymous(null, len, prot, MapFlags::PRIVATE) }.unwrap();
            let base = base.cast::<u8>();
            let end = base.wrapping_add(pages * Self::PAGE).cast();
            // SAFETY: as above.
            unsafe { mprotect(end, Self::PAGE, MprotectFlags::empty()) }.unwrap();
            Fenced { base, pages }
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: mapped readable and writable up to the last page.
            unsafe { std::slice::from_raw_parts_mut(self.base, self.pages * Self::PAGE) }
        }
    }

    impl Drop for Fenced {
        fn drop(&mut self) {
            // SAFETY: the mapping made in `new`.
            unsafe { munmap(self.base.cast(), (self.pages + 1) * Self::PAGE) }.unwrap();
        }
    }

    fn pattern(bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (index * 31 + (index >> 8) * 7 + 1) as u8;
        }
    }

    /// One copy, compared with `copy_from_slice`, bytes around the target included.
    fn check(case: &Case, to: &mut Fenced, from: &mut Fenced, at: (usize, usize), len: usize) {
        let (target, source) = at;
        let expected = from.bytes()[source..source + len].to_vec();
        let around = 64.max(target);
        let to = &mut to.bytes()[..target + len + around];
        to.fill(0xee);
        // SAFETY: both ranges lie inside their mappings.
        let code = unsafe {
            (case.routine)(to.as_mut_ptr().add(target), from.bytes().as_ptr().add(source), len)
        };
        let what = format!("{}: target {target}, source {source}, len {len}", case.name);
        assert_eq!(code, 0, "{what}");
        assert!(to[target..target + len] == expected[..], "{what}");
        let outside = to[..target].iter().chain(&to[target + len..]);
        assert!(outside.copied().all(|byte| byte == 0xee), "{what}: wrote outside");
    }

    #[test]
    fn every_routine_copies_every_length_at_every_alignment() {
        let (mut to, mut from) = (Fenced::new(20), Fenced::new(20));
        pattern(from.bytes());
        for case in cases() {
            for len in lengths(&case) {
                for shift in 0..64 {
                    let target = 64 + if case.unit == 1 { shift } else { 0 };
                    check(&case, &mut to, &mut from, (target, (shift * 11 + len) % 64), len);
                    check(&case, &mut to, &mut from, (64, shift), len);
                }
            }
        }
    }

    /// The ends of both sides lie against memory that cannot be touched: nothing reads ahead.
    #[test]
    fn no_routine_touches_a_byte_beyond_the_end() {
        install_fault_handler();
        let (mut to, mut from) = (Fenced::new(20), Fenced::new(20));
        let end = to.bytes().len();
        for case in cases() {
            for len in lengths(&case) {
                // SAFETY: both ranges end where their mappings end.
                let code = unsafe {
                    let (to, from) = (to.bytes().as_mut_ptr(), from.bytes().as_ptr());
                    (case.routine)(to.add(end - len), from.add(end - len), len)
                };
                assert_eq!(code, 0, "{} of {len}", case.name);
            }
        }
    }

    /// Either side runs into memory that cannot be touched, at every distance.
    #[test]
    fn a_fault_names_its_side() {
        install_fault_handler();
        let (mut to, mut from) = (Fenced::new(20), Fenced::new(20));
        let end = to.bytes().len();
        for case in cases() {
            for len in lengths(&case).filter(|len| *len > 0) {
                for within in (0..len.min(300)).step_by(case.unit) {
                    // SAFETY: the guarded copy stops at the protected page.
                    let (source, target) = unsafe {
                        let (to, from) = (to.bytes().as_mut_ptr(), from.bytes().as_ptr());
                        (
                            (case.routine)(to, from.add(end - within), len),
                            (case.routine)(to.add(end - within), from, len),
                        )
                    };
                    let what = format!("{} of {len}, {within} bytes in", case.name);
                    assert_eq!((source, target), (LOAD_FAULT, 2), "{what}");
                }
            }
        }
    }

    /// What loads once more to find out is deceived if the source is back by then.
    #[test]
    fn the_address_of_a_fault_tells_its_side() {
        install_fault_handler();
        let (mut to, mut from) = (Fenced::new(2), Fenced::new(2));
        let end = to.bytes().len();
        for len in [64, Fenced::PAGE] {
            // SAFETY: the guarded copies stop at the protected pages, where nothing else lies.
            unsafe {
                let (to, from) = (to.bytes().as_mut_ptr(), from.bytes().as_ptr());
                copy_asm::copy_string(to, from.add(end), len);
                assert_eq!(blamed(from.add(end), len), Side::Source);
                copy_asm::copy_string(to.add(end), from, len);
                assert_eq!(blamed(from, len), Side::Target);
            }
        }
    }

    #[test]
    fn zeroes_reach_exactly_the_lines_asked_for() {
        install_fault_handler();
        let mut to = Fenced::new(2);
        let end = to.bytes().len();
        let kinds = [CopyKind::Avx512, CopyKind::Avx2, CopyKind::Sse2].into_iter();
        let ways = kinds.flat_map(|kind| [(kind, Route::Streamed), (kind, Route::Cached)]);
        for (kind, route) in ways {
            for lines in [0, 1, 2, 3, 5, 64].into_iter().filter(|_| kind.available()) {
                to.bytes().fill(0xee);
                // SAFETY: inside the mapping.
                let zeroed = unsafe { zero_lines(kind, route, to.base.add(64), lines * 64) };
                assert_eq!(zeroed, Ok(()));
                let (zero, rest) = to.bytes()[64..].split_at(lines * 64);
                assert!(zero.iter().all(|byte| *byte == 0), "{kind} {lines}");
                assert!(rest.iter().all(|byte| *byte == 0xee), "{kind} {lines}");
                // SAFETY: the guarded stores stop at the protected page.
                let beyond = unsafe { zero_lines(kind, route, to.base.add(end - 64), 128) };
                assert_eq!(beyond, Err(Side::Target), "{kind}");
            }
        }
    }

    #[test]
    fn one_line_is_copied_or_its_fault_attributed() {
        install_fault_handler();
        let (mut to, mut from) = (Fenced::new(1), Fenced::new(1));
        pattern(from.bytes());
        let end = to.bytes().len();
        for shift in 0..64 {
            // SAFETY: inside the mappings, or stopped by the guard.
            unsafe {
                assert_eq!(copy64(to.base, from.base.add(shift)), Ok(()));
                assert_eq!(to.bytes()[..64], from.bytes()[shift..shift + 64]);
                let short = end - shift;
                assert_eq!(copy64(to.base, from.base.add(short)), Err(Side::Source));
                assert_eq!(copy64(to.base.add(short), from.base), Err(Side::Target));
            }
        }
    }

    #[test]
    fn every_flush_works_and_survives_a_missing_page() {
        install_fault_handler();
        let mut page = Fenced::new(1);
        let beyond = page.bytes().as_ptr_range().end;
        for kind in [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush] {
            if kind.available() {
                assert!(flush_line(kind, page.base), "{kind}");
                assert!(!flush_line(kind, beyond), "{kind}");
            }
        }
        store_fence();
    }
}
