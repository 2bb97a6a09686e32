//! Guarded loads and stores of a few words at once: lines, halves of lines, a `struct stat`.
//!
//! Word by word, in ascending order: a wider load of words that were stored one by one, a moment
//! ago, waits until they have left the CPU. As in `copy.rs`, all functions are `unsafe` for one
//! reason only: a pointer that *is* mapped is really read or written.

#![expect(clippy::missing_safety_doc, reason = "it is the same for all, said above")]

use crate::instructions::copy::{LINE, landing, landing_of_load, lost};
use crate::instructions::exception_table::guarded;
use std::arch::asm;

/// The eight words of a line, each loaded whole, in ascending order; `None` if it faulted. One by
/// one: a load of several waits until those that were stored one by one, a moment ago, have left
/// the CPU.
#[inline]
pub unsafe fn load_line(from: *const u8) -> Option<[u64; 8]> {
    // SAFETY: the sources are guarded.
    let ([a, b, c, d], [e, f, g, h]) =
        unsafe { (load_four(from)?, load_four(from.wrapping_add(LINE as usize / 2))?) };
    Some([a, b, c, d, e, f, g, h])
}

/// Four words, each loaded whole, in ascending order; `None` if one faulted.
#[inline]
pub unsafe fn load_four(from: *const u8) -> Option<[u64; 4]> {
    let (a, b, c, d): (u64, u64, u64, u64);
    let left: *const u8;
    // SAFETY: the loads are guarded; they have no effect but on their output registers.
    unsafe {
        asm!(
            "2: mov {a}, qword ptr [{from}]",
            "mov {b}, qword ptr [{from} + 8]",
            "mov {c}, qword ptr [{from} + 16]",
            "mov {d}, qword ptr [{from} + 24]",
            "3:",
            landing_of_load!(),
            guarded!("2b", "3b", "4b"),
            from = inout(reg) from => left,
            a = out(reg) a,
            b = out(reg) b,
            c = out(reg) c,
            d = out(reg) d,
            options(nostack, preserves_flags),
        );
    }
    if left.is_null() { lost() } else { Some([a, b, c, d]) }
}

/// Release stores of four words, each whole, in ascending order; `false` if one faulted.
#[inline]
pub unsafe fn store_four(to: *mut u8, [a, b, c, d]: [u64; 4]) -> bool {
    // SAFETY: the stores are guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "2: mov qword ptr [{to}], {a}",
            "mov qword ptr [{to} + 8], {b}",
            "mov qword ptr [{to} + 16], {c}",
            "mov qword ptr [{to} + 24], {d}",
            "3:",
            guarded!("2b", "3b", "{lost}"),
            to = in(reg) to,
            a = in(reg) a,
            b = in(reg) b,
            c = in(reg) c,
            d = in(reg) d,
            lost = label { return lost::<()>().is_some() },
            options(nostack, preserves_flags),
        );
    }
    true
}

/// A copy of eighteen words (a `struct stat`), each loaded and stored whole: words that were stored
/// just before come from the CPU's store buffer so, and not by wider loads. `false` if the target
/// faulted.
#[inline]
pub(crate) unsafe fn copy_stat(to: *mut u8, from: &[u64; 18]) -> bool {
    macro_rules! words {
        ($($at:literal)*) => { concat!($(
            "mov {word}, qword ptr [{from} + ", $at, "]\n",
            "mov qword ptr [{to} + ", $at, "], {word}\n",
        )*) };
    }
    let fault: u32;
    // SAFETY: the stores are guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2:",
            words!(0 8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128 136),
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            to = in(reg) to,
            from = in(reg) from,
            word = out(reg) _,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    fault == 0
}

/// A direct store of a whole line, `to` aligned to it: around the cache, all of it or nothing.
#[inline]
pub(crate) unsafe fn store_line(to: *mut u8, from: &[u8; LINE as usize]) -> bool {
    let fault: u32;
    // SAFETY: the store is guarded; the caller vouches for the target and that the CPU has the
    // instruction.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2: movdir64b {to}, [{from}]",
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            to = in(reg) to,
            from = in(reg) from,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    fault == 0
}

/// Stores the eight words of a line, each whole, in ascending order; false if it faulted. They are
/// loaded by words too: those that were made just before need not have reached the cache.
#[inline]
pub(crate) unsafe fn store_line_words(to: *mut u8, from: &[u8; LINE as usize]) -> bool {
    let fault: u32;
    // SAFETY: the stores are guarded; the caller vouches for the target.
    unsafe {
        asm!(
            "mov {fault:e}, 0",
            "2:",
            "mov {word}, [{from}]",
            "mov [{to}], {word}",
            "mov {word}, [{from} + 8]",
            "mov [{to} + 8], {word}",
            "mov {word}, [{from} + 16]",
            "mov [{to} + 16], {word}",
            "mov {word}, [{from} + 24]",
            "mov [{to} + 24], {word}",
            "mov {word}, [{from} + 32]",
            "mov [{to} + 32], {word}",
            "mov {word}, [{from} + 40]",
            "mov [{to} + 40], {word}",
            "mov {word}, [{from} + 48]",
            "mov [{to} + 48], {word}",
            "mov {word}, [{from} + 56]",
            "mov [{to} + 56], {word}",
            "3:",
            landing!(),
            guarded!("2b", "3b", "4b"),
            to = in(reg) to,
            from = in(reg) from,
            word = out(reg) _,
            fault = out(reg) fault,
            options(nostack, preserves_flags),
        );
    }
    fault == 0
}
