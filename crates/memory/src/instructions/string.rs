//! Where the processor's string instruction is slow.

/// Bytes that the target lies behind the source, modulo a page: on AMD's Zen 3 `rep movsb` takes 30
/// times as long as elsewhere (1,430 ns for a cached page instead of 48) from 1 to 31, and 3 times
/// up to 63. A long buffer of glibc's `malloc` lies there, 16 bytes behind a page's start.
const SLOW: std::ops::Range<usize> = 1..64;

/// Whether the string instruction is slow from here to there.
#[inline]
pub(super) fn is_slow_string(to: *const u8, from: *const u8) -> bool {
    SLOW.contains(&((to as usize).wrapping_sub(from as usize) % 4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_slow_a_little_further_into_a_page() {
        let at = |offset: usize| std::ptr::without_provenance::<u8>(offset);
        for (to, from, slow) in [
            (16, 0, true),
            (4096 + 16, 8192, true),
            (5, 4096 * 7 + 4, true),
            (0, 4095, true),
            (0, 0, false),
            (64, 0, false),
            (0, 16, false),
            (2048, 0, false),
        ] {
            assert_eq!(is_slow_string(at(to), at(from)), slow, "{to} {from}");
        }
    }
}
