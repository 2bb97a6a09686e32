//! Guarded access to memory that may vanish: single words, small copies, bulk copies, flushes.
//!
//! Nothing here knows regions or offsets. Each routine says which side of a copy faulted; the
//! callers in `region.rs` and `user.rs` know whose side that is. All functions are `unsafe` for one
//! reason only: a pointer that *is* mapped is really read or written. Unmapped, protected and
//! vanished memory is an error, not undefined behaviour.

use crate::copy_asm::{self, LOAD_FAULT};
use crate::cpu::{CopyKind, FlushKind};
use crate::guard::guarded;
use std::arch::asm;

/// The size of a cache line: the unit of flushing.
pub(crate) const LINE: u64 = 64;

/// Which side of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Target,
}

/// From this length on the bulk routines beat `copy_small`; they need at least 64 bytes.
const BULK: usize = 256;

fn outcome(code: u32) -> Result<(), Side> {
    match code {
        0 => Ok(()),
        LOAD_FAULT => Err(Side::Source),
        _ => Err(Side::Target),
    }
}

/// An atomic (acquire) load of an aligned word; `None` if it faulted.
#[inline]
pub(crate) unsafe fn load64(from: *const u8) -> Option<u64> {
    let (value, fault): (u64, u32);
    // SAFETY: the load is guarded; it has no effect but on its two output registers.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: mov {value}, qword ptr [{from}]",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            from = in(reg) from,
            value = out(reg) value,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    if fault == 0 { Some(value) } else { None }
}

/// A release store of an aligned word; false if it faulted.
#[inline]
pub(crate) unsafe fn store64(to: *mut u8, value: u64) -> bool {
    let fault: u32;
    // SAFETY: the store is guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: mov qword ptr [{to}], {value}",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            to = in(reg) to,
            value = in(reg) value,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    fault == 0
}

/// Compare and swap of an aligned word: the value found; `None` if it faulted.
#[inline]
pub(crate) unsafe fn cas64(at: *mut u8, old: u64, new: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: lock cmpxchg qword ptr [{at}], {new}",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            at = in(reg) at,
            new = in(reg) new,
            fault = out(reg) fault,
            inout("rax") old => found,
            options(nostack),
        );
    }
    if fault == 0 { Some(found) } else { None }
}

/// Fetch and add (wrapping) of an aligned word; `None` if it faulted.
#[inline]
pub(crate) unsafe fn add64(at: *mut u8, delta: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: lock xadd qword ptr [{at}], {value}",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            at = in(reg) at,
            value = inout(reg) delta => found,
            fault = out(reg) fault,
            options(nostack),
        );
    }
    if fault == 0 { Some(found) } else { None }
}

/// Atomic exchange of an aligned word; `None` if it faulted.
#[inline]
pub(crate) unsafe fn swap64(at: *mut u8, value: u64) -> Option<u64> {
    let (found, fault): (u64, u32);
    // SAFETY: guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 1",
            "2: xchg qword ptr [{at}], {value}",
            "mov {fault:e}, 0",
            "3:",
            guarded!("2b", "3b", "3b"),
            at = in(reg) at,
            value = inout(reg) value => found,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    if fault == 0 { Some(found) } else { None }
}

/// Reads one byte, to bring its page in.
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

/// Makes a write fault on one byte without changing it, whoever else writes it meanwhile.
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
pub(crate) unsafe fn copy64(to: *mut u8, from: *const u8) -> Result<(), Side> {
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

/// A cached copy of any length and alignment.
#[inline]
pub(crate) unsafe fn copy(
    kind: CopyKind,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routines are guarded.
    let code = unsafe {
        if len < BULK {
            copy_asm::copy_small(to, from, len)
        } else {
            match kind {
                CopyKind::Avx512 => copy_asm::copy_avx512(to, from, len),
                CopyKind::Avx2 => copy_asm::copy_avx2(to, from, len),
                CopyKind::Sse2 => copy_asm::copy_sse2(to, from, len),
            }
        }
    };
    outcome(code)
}

/// A cached copy that stores each aligned 8-byte word of the target once and whole.
#[inline]
pub(crate) unsafe fn store_words(to: *mut u8, from: *const u8, len: usize) -> Result<(), Side> {
    // SAFETY: the caller vouches for the target; the routine is guarded.
    outcome(unsafe { copy_asm::store_words(to, from, len) })
}

/// A non-temporal copy of whole lines: `to` is line-aligned, `len` a multiple of a line.
pub(crate) unsafe fn stream_lines(
    kind: CopyKind,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Side> {
    debug_assert!((to as u64).is_multiple_of(LINE) && (len as u64).is_multiple_of(LINE));
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

/// Non-temporal zeroes over whole lines: `to` is line-aligned, `len` a multiple of a line.
pub(crate) unsafe fn zero_lines(kind: CopyKind, to: *mut u8, len: usize) -> Result<(), Side> {
    debug_assert!((to as u64).is_multiple_of(LINE) && (len as u64).is_multiple_of(LINE));
    let none = std::ptr::null();
    // SAFETY: the caller vouches for the target; the routines are guarded.
    let code = unsafe {
        match kind {
            CopyKind::Avx512 => copy_asm::zero_avx512(to, none, len),
            CopyKind::Avx2 => copy_asm::zero_avx2(to, none, len),
            CopyKind::Sse2 => copy_asm::zero_sse2(to, none, len),
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
                "mov {fault:e}, 1",
                concat!("2: ", $instruction, " byte ptr [{line}]"),
                "mov {fault:e}, 0",
                "3:",
                guarded!("2b", "3b", "3b"),
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
pub(crate) fn flush_line(kind: FlushKind, line: *const u8) -> bool {
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
pub(crate) fn store_fence() {
    // SAFETY: `sfence` has no operands and no effect but on ordering.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
