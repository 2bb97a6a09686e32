//! The on-medium format and the runtime's layout: every structure, size and offset in one place.
//!
//! `docs/format.md` draws what stands here. Everything is little-endian; offsets are derived from
//! the previous one, never typed twice; reserved bytes are zero. Structures are read by value
//! (copied in by guarded loads, checked, then used); nothing here points into the region.
//!
//! ```text
//! | superblock A | superblock B | state | lanes | runtime (volatile) | pool of 2 MiB chunks ... |
//! ```

use pmem::counters;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a block, the unit of allocation.
pub const BLOCK: u64 = 4096;
/// Bytes in a chunk: one huge page.
pub const CHUNK: u64 = 2 << 20;
/// Blocks in a chunk.
pub const CHUNK_BLOCKS: u64 = CHUNK / BLOCK;
/// Bytes in a cache line, the unit of flushing.
pub const LINE: u64 = 64;
/// Bytes of an inode on the medium, its volatile lines included.
pub const INODE: u64 = 512;
/// Inodes in an inode extent, the header slot included.
pub const EXTENT_INODES: u64 = 64;
/// Bytes of an inode extent; it is aligned to its size.
pub const INODE_EXTENT: u64 = INODE * EXTENT_INODES;
/// Blocks of an inode extent: one byte of a chunk's bitmap.
pub const EXTENT_BLOCKS: u64 = INODE_EXTENT / BLOCK;
/// Largest file size in bytes.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Smallest volume in bytes.
pub const VOLUME_MIN: u64 = 8 * CHUNK;
/// How many times its size at format a volume can grow to (its chunk records are reserved then).
pub const GROWTH_FACTOR: u64 = 16;

/// Address space kept for growth at most.
pub(crate) const RESERVE_MAX: u64 = 16 << 40;

/// "SOLERA" and the two bytes of the format's family.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SOLERA\x00\x01");
/// Changes when old code must not touch the volume at all.
pub const VERSION: u32 = 5;
/// Features that old code may ignore.
pub const COMPAT_KNOWN: u32 = 0;
/// Features without which a volume must not be attached.
pub const INCOMPAT_KNOWN: u32 = INCOMPAT_ABSENT;
/// Pages of the region may lie elsewhere: it is attached with a pager.
pub const INCOMPAT_ABSENT: u32 = 1;
/// Features without which a volume may only be read.
pub const RO_COMPAT_KNOWN: u32 = 0;

/// Offset of the first superblock; the second follows it.
pub const SUPERBLOCK_A: u64 = 0;
/// Offset of the second superblock.
pub const SUPERBLOCK_B: u64 = SUPERBLOCK_A + BLOCK;
/// Offset of the state block.
pub const STATE: u64 = SUPERBLOCK_B + BLOCK;
/// Offset of the first lane.
pub const LANES: u64 = STATE + BLOCK;

/// The superblock: what the volume is. Written at format and grow only.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Superblock {
    pub magic: u64,
    pub version: u32,
    /// crc32c of the structure with this field 0.
    pub crc: u32,
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
    /// The newer of two valid copies counts.
    pub sequence: u32,
    pub uuid: [u8; 16],
    /// UTF-8, zero-padded.
    pub label: [u8; 64],
    /// Bytes of the region that the volume uses.
    pub size: u64,
    /// Number of lanes, and of operation records.
    pub lanes: u32,
    /// Number of allocation groups.
    pub groups: u32,
    /// Offset and length of the runtime range, bytes. A build uses as much of it as it needs
    /// ([`RuntimeLayout::length`]); it needs no more than there is.
    pub runtime: u64,
    pub runtime_length: u64,
    /// Offset of the first chunk of the pool, bytes.
    pub pool: u64,
    /// Chunks in the pool now.
    pub chunks: u64,
    /// Chunks for which the runtime has records (limit of `grow`).
    pub chunks_max: u64,
    /// Inode number of the root directory.
    pub root: u64,
    /// Key of the directories' hash.
    pub hash_key: [u64; 2],
    /// When the volume was made, ns since the epoch.
    pub created: u64,
    /// Root's generation.
    pub root_generation: u32,
    /// Entries of the runtime's tables of descriptions and of record locks, each.
    pub tables: u32,
}

/// One of the two slots of the state line; the newer valid one counts.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Default,
)]
#[repr(C)]
pub struct State {
    /// Number of first attaches so far: what was volatile under another epoch is void.
    pub epoch: u32,
    /// `STATE_*`.
    pub clean: u32,
    /// crc32c of the saved free map (the runtime's chunk records), if clean.
    pub free_map_crc: u32,
    pub reserved: [u32; 3],
    pub sequence: u32,
    /// crc32c of the slot with this field 0.
    pub crc: u32,
}

/// The volume is in use, or was not left in order.
pub const STATE_DIRTY: u32 = 0;
/// The last one to detach left the volume in order.
pub const STATE_CLEAN: u32 = 1;
/// A repair is under way, or did not come to its end.
pub const STATE_REPAIR: u32 = 2;

/// Tag of an inode in use (the low 16 bits of its first word).
pub const INODE_TAG: u16 = 0x4E49;

/// The identity line of an inode: what changes rarely, and only in transactions.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Default,
)]
#[repr(C)]
pub struct Identity {
    /// [`INODE_TAG`], or 0 in an inode that was never used.
    pub tag: u16,
    /// `FLAG_*`.
    pub flags: u16,
    /// crc32c, seeded with the inode number, of the line with this field 0.
    pub crc: u32,
    pub generation: u32,
    /// Kind and permissions, as `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of names; a directory's is 1 (its subdirectories are counted in the commit line).
    pub nlink: u32,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub parent_generation: u32,
    /// The parent directory of a directory (`..`), else 0.
    pub parent: u64,
    pub btime: i64,
    /// Change time, where the commit line does not say [`COMMIT_WRITTEN`].
    pub ctime: i64,
}

/// Identity flag: blocks beyond the end were asked for (`KEEP_SIZE`) and stay.
pub const FLAG_KEEP: u16 = 1;
/// Identity flag: made by `O_TMPFILE` and may still be linked.
pub const FLAG_LINKABLE: u16 = 2;
/// Identity flag: a file shall lie in whole chunks, or those made in a directory shall
/// (`alignment.rs`).
pub const FLAG_ALIGNED: u16 = 4;

/// One of the two slots of an inode's commit line; the newer valid one counts.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Default,
)]
#[repr(C)]
pub struct Commit {
    /// Bytes; of a directory: number of entries.
    pub size: u64,
    pub mtime: i64,
    /// Of a directory: number of subdirectories. Of a symlink: crc32c of the target. Of a file
    /// whose slot is [`COMMIT_CHECKSUMMED`]: crc32c of its tail. Else 0.
    pub aux: u32,
    /// `COMMIT_*`.
    pub flags: u32,
    pub sequence: u32,
    /// crc32c, seeded with inode number and generation, of the slot with this field 0.
    pub crc: u32,
}

/// Commit flag: the contents changed last, so the change time is `mtime`.
pub const COMMIT_WRITTEN: u32 = 1;
/// Commit flag of a file: the slot was stored together with the bytes that it tells of. They are
/// the last ones below the size, as many as the flags' upper half says, and their sum is `aux`: if
/// recovery finds other bytes there, this slot never happened.
pub const COMMIT_CHECKSUMMED: u32 = 2;
/// Where the flags hold the number of checksummed bytes.
pub const CHECKSUMMED_SHIFT: u32 = 16;
/// Most bytes of a tail that is checksummed.
pub const CHECKSUMMED_MAX: u64 = 4096;

/// Offsets inside an inode.
pub const IDENTITY: u64 = 0;
/// The commit line: two [`Commit`] slots.
pub const COMMIT: u64 = IDENTITY + LINE;
/// The map words.
pub const WORDS: u64 = COMMIT + LINE;
/// Number of direct map words; a symlink of up to `DIRECT * 8` bytes lies in them.
pub const DIRECT: u64 = 12;
/// Offset of the radix tree's root word.
pub const ROOT_WORD: u64 = WORDS + DIRECT * 8;
/// Offset of the extended attributes' word.
pub const XATTR_WORD: u64 = ROOT_WORD + 8;
/// Offset of the access time (ns; lazy, unchecked: any value is harmless).
pub const ATIME: u64 = XATTR_WORD + 8;
/// Offset of the change time of the last rename that touched nothing else of the inode: it counts
/// if it is later than what identity and commit line tell.
pub const MOVED: u64 = ATIME + 8;
/// The volatile lines (see `inode/mod.rs`): they belong to the runtime, and mean nothing in another
/// epoch.
pub const VOLATILE: u64 = WORDS + 128;
/// Bytes of the volatile lines.
pub const VOLATILE_LENGTH: u64 = 192;

/// A lane: a page, a header line, the entries of one transaction, and the record of an overwrite.
pub const LANE: u64 = BLOCK;
/// Entries of a lane.
pub const LANE_ENTRIES: u64 = LANE / LINE - 1 - REDO_SLOTS;
/// A lane's [`Redo`] records, which are written in turns.
pub const REDO_SLOTS: u64 = 2;
/// Offset in a lane of the first of them.
pub const LANE_REDO: u64 = LANE - REDO_SLOTS * LINE;
/// Bytes that the record of an overwrite holds itself.
pub const REDO_BYTES: usize = 24;
/// Blocks besides the first that it names otherwise.
pub const REDO_BLOCKS: usize = REDO_BYTES / 4;

/// What a lane says of an overwrite: new bytes that recovery stores once more (`redo.rs`).
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Default,
)]
#[repr(C)]
pub struct Redo {
    /// crc32c, seeded with the lane's number, of the record with this field 0.
    pub crc: u32,
    /// Of the inode's newest commit slot: beside any other the record is void.
    pub sequence: u32,
    pub ino: u64,
    pub generation: u32,
    /// Bytes; [`REDO_REPLACES`] beside them: they lie in a block already. Or those of the first
    /// part of a list, with [`REDO_LISTED`].
    pub length: u32,
    /// Where they go: offset in the region. Or the offset of the word that leads to their block, or
    /// of the list.
    pub target: u64,
    /// crc32c of the bytes.
    pub sum: u32,
    /// Of the two records of a lane the one that is ahead is the later.
    pub number: u32,
    /// The block, u64, and that word. Or the bytes, if they are that few. Else they lie in the
    /// lane's data area, and here stand the numbers of the blocks in which they go on behind the
    /// end of the target's block, u32 each; a first number of 0: all lie right behind.
    pub bytes: [u8; REDO_BYTES],
}
const _: () = assert!(size_of::<Redo>() as u64 == LINE);
/// In the length of a [`Redo`]: a word changes, not bytes.
pub const REDO_REPLACES: u32 = 1 << 31;
/// In the length of a [`Redo`]: what changes is listed elsewhere ([`Listed`]).
pub const REDO_LISTED: u32 = 1 << 30;
/// In the length of a [`Redo`]: the inode's next commit slot is among what is listed, and the
/// record counts beside that one, too.
pub const REDO_MOVES: u32 = 1 << 29;
/// In the length of a [`Redo`]: the number itself.
pub const REDO_LENGTH: u32 = REDO_MOVES - 1;

/// What changes by a record that lists it (`change_list.rs`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Listed {
    /// Where it changes: offset in the region.
    pub target: u64,
    /// Where the new bytes lie: offset in the region. Or what a word becomes.
    pub source: u64,
    /// Bytes; beside them [`LISTED_WORD`], [`LISTED_ZEROS`] or [`LISTED_MORE`].
    pub length: u32,
    /// crc32c of the bytes at the source.
    pub sum: u32,
}
/// In the length of a [`Listed`]: one word becomes the source.
pub const LISTED_WORD: u32 = 1 << 31;
/// In the length of a [`Listed`]: the bytes become zeros.
pub const LISTED_ZEROS: u32 = 1 << 30;
/// In the length of a [`Listed`], the last of its part: the list goes on at the source.
pub const LISTED_MORE: u32 = 1 << 29;
/// Bytes of a [`Listed`] at most.
pub const LISTED_MAX: u64 = 1 << 28;

/// Bytes of an undo image in an entry.
pub const ENTRY_BYTES: usize = 48;

/// An entry of a lane.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The lane's transaction number (low half): an entry of another one is void.
    pub transaction: u32,
    /// crc32c, seeded with the lane's number, of the entry with this field 0.
    pub crc: u32,
    /// Offset in the region, bytes (48 bits), and in the upper 16 bits the number of image bytes.
    pub target: u64,
    /// The old bytes.
    pub image: [u8; ENTRY_BYTES],
}

/// Bytes of a lane's data area at most, in which it keeps new bytes that are too many for a record.
pub const DATA_AREA_MAX: u64 = 4 * BLOCK;

/// Slots of a directory bucket.
pub const BUCKET_SLOTS: usize = 56;
/// Bytes of a slot.
pub const SLOT: u64 = 64;
/// Offset of the occupancy word in a bucket.
pub const BUCKET_OCCUPANCY: u64 = 0;
/// Offset of the hash words in a bucket.
pub const BUCKET_HASHES: u64 = LINE;
/// Offset of the slots in a bucket.
pub const BUCKET_SLOT: u64 = BUCKET_HASHES + BUCKET_SLOTS as u64 * 8;
/// Name bytes in an entry's first slot.
pub const SLOT_NAME: usize = 44;

/// The first line of a bucket.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BucketHeader {
    /// 56 occupancy bits, 8-bit check.
    pub occupancy: u64,
    pub magic: u32,
    /// crc32c of the line without the occupancy word and with this field 0.
    pub crc: u32,
    /// The directory.
    pub owner: u64,
    pub owner_generation: u32,
    pub reserved: [u32; 9],
}

/// The first slot of a directory entry.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// crc32c, seeded with the entry's hash word, of this slot with this field 0, then of the
    /// continuation slots' bytes that are in use.
    pub crc: u32,
    pub name_length: u8,
    /// Slots the entry takes, consecutive.
    pub slots: u8,
    /// `d_type`.
    pub kind: u8,
    pub reserved: u8,
    pub ino: u64,
    /// Of the inode.
    pub generation: u32,
    pub name: [u8; SLOT_NAME],
}

/// Magic of a bucket.
pub const BUCKET_MAGIC: u32 = 0x544B_4342;
/// Magic of a block of extended attributes.
pub const XATTR_MAGIC: u32 = 0x5254_4158;

/// The head of a block of extended attributes; packed entries {name length u8, value length u16,
/// name, value} follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct XattrHeader {
    pub magic: u32,
    /// crc32c of the header with this field 0, then of `length` bytes.
    pub crc: u32,
    pub owner: u64,
    pub owner_generation: u32,
    /// Bytes of the entries.
    pub length: u32,
}

const _: () = {
    assert!(size_of::<Superblock>() <= BLOCK as usize);
    assert!(size_of::<State>() == 32);
    assert!(size_of::<Identity>() == LINE as usize);
    assert!(size_of::<Commit>() == 32);
    assert!(size_of::<Entry>() == LINE as usize);
    assert!(size_of::<BucketHeader>() == LINE as usize);
    assert!(size_of::<Slot>() == SLOT as usize);
    assert!(BUCKET_SLOT + BUCKET_SLOTS as u64 * SLOT == BLOCK);
    assert!(VOLATILE == 0x100 && VOLATILE + VOLATILE_LENGTH <= INODE);
    assert!(MOVED + 8 == VOLATILE);
    assert!(EXTENT_BLOCKS == 8);
};

// ---- the runtime (layout of the range; who owns a word is said where it is used) ----------------

/// Changes with the meaning of anything in the runtime; the sizes below are mixed in by
/// [`RuntimeLayout::format`].
pub const RUNTIME_VERSION: u64 = 18;
/// Bytes that a new volume's runtime range has beyond what a build needs: room for what builds do
/// without where it is missing ([`COUNTERS_LENGTH`]), and for what later builds keep there. It is 1
/// KiB for each process slot, of which there are most; half of it is used.
pub const RUNTIME_SLACK: u64 = PROCESS_SLOTS << 10;
/// Bytes of the runtime's header.
pub const RUNTIME_HEADER: u64 = BLOCK;
/// Header word: [`RuntimeLayout::format`].
pub const HEADER_FORMAT: u64 = 0;
/// Header word: the epoch for which the runtime is valid.
pub const HEADER_EPOCH: u64 = 8;
/// Header word: the epoch in which damage was found, after which nothing is changed any more.
pub const HEADER_DAMAGED: u64 = 16;
/// Header word: the epoch, while a sweep is due that some recoverer has begun.
pub const HEADER_SWEEP: u64 = 24;
/// Header word: bytes of the volume; attachments that find it larger than they know map the rest.
pub const HEADER_SIZE: u64 = 32;
/// Bit of [`HEADER_SIZE`]: something is watched (`watch/`). Calls compare the whole word with the
/// size that they know: so one look tells of both.
pub const SIZE_WATCHED: u64 = 1;
/// Header word: the epoch, while there may be descriptions in flight that nobody holds.
pub const HEADER_ORPHANS: u64 = 40;
/// The epoch, if more than the process that began it was, or is about to be, attached in it.
pub const HEADER_SHARED: u64 = 48;
/// Header word: bit 0: more than one process slot may be in use; above it, how often that began
/// (`exclusive.rs`).
pub const HEADER_SHARED_RUNNING: u64 = 56;
/// Header word: the gate (an owner word; see `txn/acquire.rs`).
pub const HEADER_GATE: u64 = 64;
/// Header word: how many directories and files are watched (`watch/`).
pub const HEADER_WATCHES: u64 = 72;
/// Header word: the lock of what is watched (a lock word of processes).
pub const HEADER_WATCH_LOCK: u64 = 80;
/// Header word: the lock for renames of directories across directories (a lock word).
pub const HEADER_RENAME: u64 = 128;
/// Header word: source of inode generations.
pub const HEADER_GENERATION: u64 = 192;
/// Header word: source of fresh sequence numbers.
pub const HEADER_SEQUENCE: u64 = 256;
/// Header word: descriptions from here on were never used in this epoch; grows.
pub const HEADER_DESCRIPTIONS: u64 = 320;
/// Header word: record locks from here on were never used in this epoch; grows.
pub const HEADER_LOCKS: u64 = 384;
/// Header word: how often memory of free chunks was given back to the file system beneath.
pub const HEADER_TRIMS: u64 = 448;
/// Header word: the name of this epoch's era (`attach/eras.rs`).
pub const HEADER_ERA: u64 = 456;
/// Header word: the name of the era before, if it ended in order; else 0.
pub const HEADER_ERA_BEFORE: u64 = 464;
/// Header words: until when reads, and writes, keep emulated slow memory busy (ticks of the
/// time-stamp counter; any value is harmless). Other builds leave them alone.
pub const HEADER_BUSY: u64 = HEADER_ANCHOR - 16;
/// Header words: where the anchor directory is (`anchor.rs`).
pub const HEADER_ANCHOR: u64 = 512;
/// Bytes of them.
pub const HEADER_ANCHOR_BYTES: u64 = HEADER_FREE - HEADER_ANCHOR;
/// Header words: free blocks of each group (a hint, a line each).
pub const HEADER_FREE: u64 = 1024;
/// Largest number of groups.
pub const GROUPS_MAX: u64 = (RUNTIME_HEADER - HEADER_FREE) / LINE;
/// Bytes of a process slot.
pub const PROCESS_SLOT: u64 = 256;
/// Process slots: processes attached at once.
pub const PROCESS_SLOTS: u64 = 512;
/// Bytes of an operation record.
pub const OP_RECORD: u64 = 320;
/// Bytes of an open file description's entry: a line of state, a line of holders (a bit a process
/// slot).
pub const DESCRIPTION: u64 = 64 + PROCESS_SLOTS / 8;
/// Bytes of a record-lock entry.
pub const LOCK_RECORD: u64 = 64;
/// Bytes of a chunk record: the bitmap line and the attributes' line.
pub const CHUNK_RECORD: u64 = 128;
/// Bytes of a process slot's counters for one group of its threads.
pub const COUNTERS: u64 = LINE;
/// Slots whose counters lie together: in a page for each group of threads.
pub const COUNTERS_TOGETHER: u64 = counters::APART / COUNTERS;
/// Bytes of all counters. They lie in what a new volume's range has beyond
/// [`RuntimeLayout::length`].
pub const COUNTERS_LENGTH: u64 = PROCESS_SLOTS * COUNTERS * counters::GROUPS;
const _: () = assert!(COUNTERS_LENGTH <= RUNTIME_SLACK);
const _: () = assert!(PROCESS_SLOTS.is_multiple_of(COUNTERS_TOGETHER) && counters::APART == BLOCK);
/// Bytes of the owners of a chunk's blocks.
pub const OWNER_TABLE: u64 = CHUNK_BLOCKS * 4;

/// Where the arrays of the runtime lie, as offsets in the runtime range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RuntimeLayout {
    pub processes: u64,
    pub ops: u64,
    pub op_count: u64,
    pub descriptions: u64,
    pub description_count: u64,
    pub locks: u64,
    pub lock_count: u64,
    pub chunks: u64,
    pub chunk_count: u64,
    /// The index of `fullness.rs`.
    pub fullness: u64,
    /// The tables of `owners.rs`, [`OWNER_TABLE`] bytes each.
    pub owners: u64,
    pub owner_tables: u64,
    /// The counters of the process slots, where the range has room for them.
    pub counters: Option<u64>,
    /// Bytes that all this needs: the range has as many, or more.
    pub length: u64,
}

/// Classes of chunks in the index of `fullness.rs`.
pub(crate) const CLASSES: u64 = 2 * CHUNK_BLOCKS.ilog2() as u64 + 2;

/// Words of a class for so many chunks: the bitmap, then its summary; whole lines.
pub(crate) const fn class_words(chunks: u64) -> u64 {
    let words = chunks.div_ceil(64);
    (words + words.div_ceil(64)).next_multiple_of(8)
}

impl RuntimeLayout {
    /// The layout of a volume.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let (lanes, tables) = (u64::from(superblock.lanes), u64::from(superblock.tables));
        let layout = Self::new(lanes, tables, superblock.chunks_max);
        let counters = superblock.runtime_length >= layout.length + COUNTERS_LENGTH;
        Self { counters: counters.then_some(layout.length), ..layout }
    }

    /// The layout for a volume of `lanes` lanes, `tables` descriptions and locks, `chunks_max`
    /// chunks, in a range that is no longer than needed.
    pub const fn new(lanes: u64, tables: u64, chunks_max: u64) -> Self {
        let processes = RUNTIME_HEADER;
        let ops = processes + PROCESS_SLOTS * PROCESS_SLOT;
        let descriptions = ops + lanes * OP_RECORD;
        let locks = descriptions + tables * DESCRIPTION;
        let chunks = locks + tables * LOCK_RECORD;
        let chunks = chunks.next_multiple_of(BLOCK);
        let fullness = chunks + chunks_max * CHUNK_RECORD;
        let classes = CLASSES * class_words(chunks_max) * 8;
        let owners = (fullness + classes).next_multiple_of(BLOCK);
        let owner_tables = chunks_max.div_ceil(GROWTH_FACTOR);
        let length = (owners + owner_tables * OWNER_TABLE).next_multiple_of(BLOCK);
        Self {
            processes,
            ops,
            op_count: lanes,
            descriptions,
            description_count: tables,
            locks,
            lock_count: tables,
            chunks,
            chunk_count: chunks_max,
            fullness,
            owners,
            owner_tables,
            counters: None,
            length,
        }
    }

    /// The runtime's format number: builds whose structures differ refuse each other, and who comes
    /// first clears what one of another number has left.
    pub const fn format() -> u64 {
        let sizes = PROCESS_SLOT << 48 ^ OP_RECORD << 40 ^ DESCRIPTION << 28 ^ LOCK_RECORD << 20;
        RUNTIME_VERSION << 56 ^ sizes ^ CHUNK_RECORD << 8 ^ VOLATILE_LENGTH
    }
}

/// crc32c of a structure that has been given with its crc field 0.
#[inline]
pub fn checksum(seed: u64, bytes: &[u8]) -> u32 {
    pmem::checksum(seed, bytes)
}
