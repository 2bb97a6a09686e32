//! Where the entry of a name lies in its directory, or would be put, as it is remembered beside
//! what the name means (`cache/names.rs`). What it tells is right for as long as the directory's
//! names are and no bucket is split, merged, or left ([`crate::cache::Asked::known_at`]).
//!
//! Locks: none. Persistence: none.

/// Where an entry of one slot lies, or the name of one that is to come belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryPlace {
    /// The bucket's block; 0: the directory has none.
    pub(crate) bucket: u64,
    /// How many bits of a key lead to the bucket.
    pub(crate) depth: u32,
    /// The entry's key; of a name that leads nowhere: one that no entry has.
    pub(crate) key: u64,
    /// The entry's slot; of a name that leads nowhere: any.
    pub(crate) slot: usize,
}

/// Bits of a key, and of a block's number.
const LOW_BITS: u32 = 56;
const LOW: u64 = (1 << LOW_BITS) - 1;
/// Of the second word: the place is known.
const KNOWN: u64 = 1 << 63;

impl EntryPlace {
    /// The words that an entry of the cache keeps; zeros where the place is not known.
    #[inline]
    pub(super) fn words(place: Option<Self>) -> [u64; 2] {
        place.map_or([0; 2], |Self { bucket, depth, key, slot }| {
            [key | (slot as u64) << LOW_BITS, bucket | u64::from(depth) << LOW_BITS | KNOWN]
        })
    }

    #[inline]
    pub(super) fn of_words([first, second]: [u64; 2]) -> Option<Self> {
        (second & KNOWN != 0).then_some(Self {
            bucket: second & LOW,
            depth: ((second & !KNOWN) >> LOW_BITS) as u32,
            key: first & LOW,
            slot: (first >> LOW_BITS) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_was_kept() {
        let place = EntryPlace { bucket: LOW >> 1, depth: 54, key: LOW, slot: 55 };
        assert_eq!(EntryPlace::of_words(EntryPlace::words(Some(place))), Some(place));
        let none = EntryPlace { bucket: 0, depth: 0, key: 16, slot: 0 };
        assert_eq!(EntryPlace::of_words(EntryPlace::words(Some(none))), Some(none));
        assert_eq!(EntryPlace::of_words(EntryPlace::words(None)), None);
    }
}
