//! Keys of directory entries, and the checked words of buckets.
//!
//! A name's *key* has 56 bits: 52 of a keyed hash, and a 4-bit disambiguator that makes it unique
//! in its directory. The keyed hash keeps an adversary from filling one bucket on purpose. Keys are
//! at least 16, so they serve as `read_dir` positions beside those of `.` and `..`.
//!
//! Hash words and occupancy words hold 56 bits and, above them, an 8-bit check, because they change
//! by one store and no block checksum can cover them. Any single flipped bit is found: the check is
//! the upper byte of a product with [`MIX`], none of whose eight-bit windows is all zeros or all
//! ones.

use crate::Result;
use crate::medium::Medium;
use crate::medium::map_word::MIX;
use rustix::io::Errno;
use siphasher::sip::SipHasher13;

/// Bits of a key, and of what a checked word holds.
pub(crate) const KEY_BITS: u32 = 56;
pub(crate) const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// Bits of the disambiguator, the lowest of a key.
pub(crate) const EXTRA_BITS: u32 = 4;
/// Disambiguators: names of one directory whose 52 hash bits may be equal.
pub(crate) const EXTRAS: u64 = 1 << EXTRA_BITS;
/// Makes the check of 0 differ from 0: a zeroed word is no valid one.
const CHECK_OF_ZERO: u64 = 0xA5;

/// The word that holds `value` (56 bits).
#[inline]
pub(crate) fn checked(value: u64) -> u64 {
    debug_assert!(value <= KEY_MASK);
    value | (value.wrapping_mul(MIX) >> KEY_BITS ^ CHECK_OF_ZERO) << KEY_BITS
}

/// What a checked word holds; `EIO` if its check fails.
#[inline]
pub(crate) fn unchecked(word: u64) -> Result<u64> {
    let value = word & KEY_MASK;
    if checked(value) == word { Ok(value) } else { Err(Errno::IO) }
}

/// The 52 hash bits of a key.
pub(crate) fn hash_of_key(key: u64) -> u64 {
    (key & KEY_MASK) >> EXTRA_BITS
}

impl Medium {
    /// The 52 hash bits of a name; never 0.
    #[inline]
    pub(crate) fn name_hash(&self, name: &[u8]) -> u64 {
        let [k0, k1] = self.superblock.hash_key;
        let hash = SipHasher13::new_with_keys(k0, k1).hash(name);
        (hash >> (64 - KEY_BITS + EXTRA_BITS)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        for value in [0, 1, 0x10, 0xFF_FFFF_FFFF_FFFF, 0x12_3456_789A_BCDE, 1 << 55] {
            let word = checked(value);
            assert_eq!(unchecked(word), Ok(value));
            for bit in 0..64 {
                assert_eq!(unchecked(word ^ 1 << bit), Err(Errno::IO), "{value:x} bit {bit}");
            }
        }
        assert_eq!(unchecked(0), Err(Errno::IO));
    }
}
