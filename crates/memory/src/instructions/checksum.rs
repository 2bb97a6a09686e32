//! Checksums of small structures: crc32c with the CPU's own instruction, inlined.
//!
//! Metadata is checked by the line, several lines a call. The loops of the `crc32c` crate are made
//! for long buffers: a line took them 20 ns, and takes this 8.

use std::arch::asm;

/// From this length on the crate's interleaved loop is faster.
const LONG: usize = 512;

/// crc32c of `seed` (as eight little-endian bytes) and then `bytes`.
#[inline]
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u32 {
    if bytes.len() < LONG && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the CPU has the instruction.
        unsafe { short(seed, bytes) }
    } else {
        crc32c::crc32c_append(crc32c::crc32c(&seed.to_le_bytes()), bytes)
    }
}

/// crc32c of `seed` and then `words`, as eight little-endian bytes each.
#[inline]
#[must_use]
pub fn checksum_words<const N: usize>(seed: u64, words: [u64; N]) -> u32 {
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the CPU has the instruction.
        let crc = unsafe { words.iter().fold(step(START, seed), |crc, word| step(crc, *word)) };
        return !(crc as u32);
    }
    let crc = crc32c::crc32c(&seed.to_le_bytes());
    words.iter().fold(crc, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()))
}

/// crc32c of what has `crc` and then `bytes`.
#[inline]
#[must_use]
pub fn checksum_after(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LONG || !std::is_x86_feature_detected!("sse4.2") {
        return crc32c::crc32c_append(crc, bytes);
    }
    // SAFETY: the CPU has the instruction.
    unsafe { !by_steps(u64::from(!crc), bytes) }
}

/// What a checksum begins with, before its final complement.
const START: u64 = u32::MAX as u64;

/// Goes on by a word; the CPU must have SSE 4.2.
#[inline]
unsafe fn step(mut crc: u64, word: u64) -> u64 {
    // SAFETY: registers only; the caller vouches for the instruction.
    unsafe {
        asm!(
            "crc32 {crc}, {word}",
            crc = inout(reg) crc,
            word = in(reg) word,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    crc
}

/// As [`checksum`], by one instruction a word; the CPU must have SSE 4.2.
#[inline]
unsafe fn short(seed: u64, bytes: &[u8]) -> u32 {
    // SAFETY: the caller vouches for the instruction.
    unsafe { !by_steps(step(START, seed), bytes) }
}

/// Goes on from a sum's inner state; the CPU must have SSE 4.2.
#[inline]
unsafe fn by_steps(mut crc: u64, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for &bytes in words {
        // SAFETY: as above.
        crc = unsafe { step(crc, u64::from_le_bytes(bytes)) };
    }
    for &byte in rest {
        // SAFETY: as above.
        unsafe {
            asm!(
                "crc32 {crc:e}, {byte}",
                crc = inout(reg) crc,
                byte = in(reg_byte) byte,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_ones_agree_with_the_definition() {
        let bytes: Vec<u8> = (0..1500_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for length in (0..100).chain([255, 256, LONG - 1, LONG, LONG + 1, 1500]) {
            for seed in [0, 1, 0x1234_5678_9ABC_DEF0] {
                let whole = [&u64::to_le_bytes(seed)[..], &bytes[..length]].concat();
                assert_eq!(checksum(seed, &bytes[..length]), crc32c::crc32c(&whole), "{length}");
            }
        }
        let words = [1, 2, u64::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(checksum_words(7, words), checksum(7, &bytes));
    }
}
