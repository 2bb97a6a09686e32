//! What lies where in the file `index` of a cache: header, table of files, table of chunks.
//!
//! ```text
//! 0      header: a page; counters in its second half, for each group of threads
//! 4096   files:  a line each   [ key | base | right | ino | generation ]
//! ...    chunks: a line each   [ entry | key | base | granules | check | dead ]
//! ```
//!
//! Both tables are hashed by *key*, 64 bits of a keyed hash; a key has a *bucket* of a few lines.
//!
//! Every word that decides whether bytes are served carries a check, so a damaged index makes
//! misses: `right` is a keyed hash of the version and the base; `check` is over entry, key and
//! base; `granules` and `dead` have their own.

use pmem::checksum_words;
use vfs::Node;

/// First word of the file.
pub(crate) const MAGIC: u64 = 0x0001_4341_4C46_4C53;
/// Header words.
pub(crate) const HEADER_MAGIC: u64 = 0;
/// Sizes below, as one number.
pub(crate) const HEADER_FORMAT: u64 = 8;
/// Lines of the table of files.
pub(crate) const HEADER_FILES: u64 = 16;
/// Lines of the table of chunks.
pub(crate) const HEADER_CHUNKS: u64 = 24;
/// The boot in which it was made: what a power cut left is not used.
pub(crate) const HEADER_BOOT: u64 = 32;
/// [`LIVE`] or [`ENDED`].
pub(crate) const HEADER_STATE: u64 = 40;
/// Two words that key the hashes.
pub(crate) const HEADER_SEEDS: u64 = 48;
/// Source of segment numbers and bases: no number is used twice.
pub(crate) const HEADER_NEXT: u64 = 64;
/// Bytes of the segments that have a name.
pub(crate) const HEADER_USED: u64 = 128;
/// Where eviction goes on.
pub(crate) const HEADER_HAND: u64 = 192;
/// The budget that the process that came last was given, in bytes: for `status`.
pub(crate) const HEADER_BUDGET: u64 = 256;
/// Counters: groups of two lines each.
pub(crate) const HEADER_COUNTERS: u64 = 2048;
/// Groups of counters.
pub(crate) const STRIPES: u64 = 16;
/// Bytes of a group.
pub(crate) const STRIPE: u64 = 2 * LINE;
/// Bytes of the header.
pub(crate) const HEADER: u64 = 4096;
const _: () = assert!(HEADER_COUNTERS + STRIPES * STRIPE == HEADER);

/// State of an index that processes work with.
pub(crate) const LIVE: u64 = 1;
/// The era ended in order; what is right says [`CARRIED`].
pub(crate) const ENDED: u64 = 2;

/// Bytes of a line of either table.
pub(crate) const LINE: u64 = 64;
/// Lines of a bucket of files.
pub(crate) const FILE_WAYS: u64 = 4;
/// Lines of a bucket of chunks.
pub(crate) const CHUNK_WAYS: u64 = 8;

/// Words of a file's line.
pub(crate) const FILE_KEY: u64 = 0;
pub(crate) const FILE_BASE: u64 = 8;
pub(crate) const FILE_RIGHT: u64 = 16;
pub(crate) const FILE_INO: u64 = 24;
pub(crate) const FILE_GENERATION: u64 = 32;

/// Words of a chunk's line.
pub(crate) const CHUNK_ENTRY: u64 = 0;
pub(crate) const CHUNK_KEY: u64 = 8;
pub(crate) const CHUNK_BASE: u64 = 16;
pub(crate) const CHUNK_GRANULES: u64 = 24;
pub(crate) const CHUNK_CHECK: u64 = 32;
pub(crate) const CHUNK_DEAD: u64 = 40;

/// Bytes of a chunk, and of its segment: an aligned piece of a file.
pub const CHUNK: u64 = 2 << 20;
/// Bytes of a granule: what a short miss fills.
pub const GRANULE: u64 = 64 << 10;
/// All granules of a chunk.
pub(crate) const ALL: u32 = u32::MAX;
const _: () = assert!(CHUNK / GRANULE == u32::BITS as u64);

/// States of an entry, its lowest bits; 0: nothing.
pub(crate) const CLAIMED: u64 = 1;
pub(crate) const PUBLISHED: u64 = 2;
const STATE: u64 = 3;
/// Entry bit: used since eviction passed by.
pub(crate) const USED: u64 = 4;
/// Entry bit: all of the chunk was put into the segment by one copy, and it gets no more.
pub(crate) const WHOLE: u64 = 8;
/// Entry bit: a process may have the segment attached. It is never emptied, only unlinked. Set
/// while the entry is published, before the first one maps it; it goes with the entry.
pub(crate) const ATTACHED: u64 = 16;
/// Entry bits: what the kernel said when it was asked whether the segment has a page of 2 MiB.
pub(crate) const HUGE: u64 = 32;
pub(crate) const SMALL: u64 = 64;
/// Where the segment's number stands in an entry.
const NUMBER: u32 = 8;

/// The version of a file that was right at the end of an era and not asked for since.
pub(crate) const CARRIED: u64 = 1;

/// What [`HEADER_FORMAT`] says.
pub(crate) const FORMAT: u64 = 3 << 48
    | LINE << 40
    | FILE_WAYS << 36
    | CHUNK_WAYS << 32
    | (CHUNK / GRANULE) << 16
    | (GRANULE >> 12);

/// The word in which a segment and the state of its entry stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub(crate) u64);

impl Entry {
    pub(crate) const fn new(number: u64, state: u64) -> Self {
        Self(number << NUMBER | state)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0 >> NUMBER
    }

    pub(crate) const fn is_published(self) -> bool {
        self.0 & STATE == PUBLISHED
    }

    /// Whether a bit is set.
    pub(crate) const fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    pub(crate) const fn is_claimed(self) -> bool {
        self.0 & STATE == CLAIMED
    }
}

/// How large the tables are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) files: u64,
    pub(crate) chunks: u64,
}

impl Layout {
    /// For a budget of so many bytes: a line for each granule of it, within bounds.
    pub(crate) fn of_budget(budget: u64) -> Self {
        let chunks = (budget / GRANULE).next_power_of_two().clamp(1 << 9, 1 << 20);
        Self { files: chunks / 2, chunks }
    }

    /// As a header says; `None`: no layout of ours.
    pub(crate) fn of_words(files: u64, chunks: u64) -> Option<Self> {
        let good = |lines: u64| lines.is_power_of_two() && (1 << 8..=1 << 20).contains(&lines);
        (good(files) && good(chunks)).then_some(Self { files, chunks })
    }

    /// Bytes of the file.
    pub(crate) const fn length(self) -> u64 {
        HEADER + (self.files + self.chunks) * LINE
    }

    /// Where the bucket of a file's key begins.
    pub(crate) const fn file_bucket(self, key: u64) -> u64 {
        HEADER + (key >> 32) % (self.files / FILE_WAYS) * FILE_WAYS * LINE
    }

    /// A file's line by its number.
    pub(crate) const fn file_line(number: u64) -> u64 {
        HEADER + number * LINE
    }

    /// Where the bucket of a chunk's key begins.
    pub(crate) const fn chunk_bucket(self, key: u64) -> u64 {
        let bucket = (key >> 32) % (self.chunks / CHUNK_WAYS);
        self.chunk_line(bucket * CHUNK_WAYS)
    }

    /// A chunk's line by its number.
    pub(crate) const fn chunk_line(self, number: u64) -> u64 {
        HEADER + (self.files + number) * LINE
    }
}

/// The keyed hashes of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashes {
    pub(crate) seeds: [u64; 2],
    /// The era, of which versions are.
    pub(crate) era: u64,
}

/// Multiplies, and folds both halves of the product.
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hashes {
    fn mix(&self, words: [u64; 3]) -> u64 {
        let [first, second] = self.seeds;
        let half = fold(words[0] ^ first, words[1] ^ second | 1);
        fold(half ^ words[2].rotate_left(32), first ^ 0x9E37_79B9_7F4A_7C15 | 1) ^ half
    }

    /// The key of a file; never 0.
    pub(crate) fn file(&self, node: Node) -> u64 {
        self.mix([node.ino, u64::from(node.generation), 1]) | 1
    }

    /// The key of a chunk of it; never 0.
    pub(crate) fn chunk(&self, node: Node, chunk: u64) -> u64 {
        self.mix([node.ino, u64::from(node.generation), chunk << 8 | 2]) | 1
    }

    /// What a file's line says while its pages of this base are right at this version.
    pub(crate) fn right(&self, number: u64, base: u64) -> u64 {
        let era = if number == CARRIED { 0 } else { self.era };
        self.mix([number ^ era, base, 3]) | 1
    }

    /// The check of an entry.
    pub(crate) fn entry(&self, key: u64, base: u64, number: u64) -> u64 {
        u64::from(checksum_words(self.seeds[0], [key, base, number])) | 1 << 32
    }

    /// The word of the granules that are there.
    pub(crate) fn granules(&self, key: u64, number: u64, there: u32) -> u64 {
        let check = checksum_words(self.seeds[1], [key, number, u64::from(there)]);
        u64::from(check) << 32 | u64::from(there)
    }

    /// What such a word says; none if it is no such word.
    pub(crate) fn there(&self, key: u64, number: u64, word: u64) -> u32 {
        let there = word as u32;
        if self.granules(key, number, there) == word { there } else { 0 }
    }

    /// The word of the granules that are dead.
    pub(crate) fn dead(&self, key: u64, number: u64, dead: u32) -> u64 {
        // Not to be taken for a word of granules that are there.
        let check = checksum_words(self.seeds[1], [key, !number, u64::from(dead)]);
        u64::from(check) << 32 | u64::from(dead)
    }

    /// What such a word says; all if it is no such word.
    pub(crate) fn dead_of(&self, key: u64, number: u64, word: u64) -> u32 {
        let dead = word as u32;
        if self.dead(key, number, dead) == word { dead } else { ALL }
    }
}
