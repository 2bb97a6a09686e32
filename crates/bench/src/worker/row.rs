//! The rows of the table: which call, how many bytes, how often in one timed run.

/// One kind of call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Row {
    ReadSequential,
    ReadRandom,
    Read64K,
    Read2M,
    OverwriteSequential,
    OverwriteRandom,
    /// In a file whose blocks are scattered.
    OverwriteScattered,
    Append4K,
    /// And `fsync`.
    AppendSync,
    Append128,
    Append64,
    OpenClose,
    CreateCloseUnlink,
    Rename,
    Stat,
    /// Of a file eight directories down.
    StatDeep,
    /// `readdir` of a large directory and `stat` of each name; a call is one name.
    List,
    RecordLock,
    /// One byte of /dev/zero: what the library adds to calls that are not its own.
    ForeignRead,
    /// Of files that stay open.
    Open,
    /// Of files that are open.
    Close,
    /// Of files of 16 KiB.
    Unlink,
    /// Sequential; and `fsync` after every tenth.
    OverwriteSync10,
    /// And `fsync` after every tenth.
    AppendSync10,
    /// After every hundredth.
    AppendSync100,
    /// After every thousandth.
    AppendSync1000,
}

/// The bytes of a read, an overwrite and a large append.
pub const BLOCK_BYTES: usize = 4096;

/// The longest read.
pub const LONGEST_BYTES: usize = 2 << 20;

/// Names in the directory that is listed.
pub const LISTED: u64 = 100_000;

/// Files that are open at once, or unlinked in one run.
pub const FILES: u64 = 800;
/// The most calls of a run in which `fsync` follows often, where there is a medium: it takes its
/// time.
const SYNCED: u64 = 2000;
/// The largest size of the file whose blocks are scattered.
const SCATTERED_BYTES: u64 = 16 << 20;

/// The working set is a multiple of this.
pub const SIZE_MIN: u64 = 2 << 20;

/// Size of the file whose blocks are scattered, of a working set of `size` bytes: between two of
/// them there is always a hole. (Of files that grow in turns a volume makes whole chunks.)
pub const fn scattered_bytes(size: u64) -> u64 {
    if size < SCATTERED_BYTES { size } else { SCATTERED_BYTES }
}

impl Row {
    pub const ALL: [Self; 19] = [
        Self::ReadSequential,
        Self::ReadRandom,
        Self::Read64K,
        Self::Read2M,
        Self::OverwriteSequential,
        Self::OverwriteRandom,
        Self::OverwriteScattered,
        Self::Append4K,
        Self::AppendSync,
        Self::Append128,
        Self::Append64,
        Self::OpenClose,
        Self::CreateCloseUnlink,
        Self::Rename,
        Self::Stat,
        Self::StatDeep,
        Self::List,
        Self::RecordLock,
        Self::ForeignRead,
    ];

    /// Rows that only `bench split` measures.
    pub const SPLIT: [Self; 7] = [
        Self::Open,
        Self::Close,
        Self::Unlink,
        Self::OverwriteSync10,
        Self::AppendSync10,
        Self::AppendSync100,
        Self::AppendSync1000,
    ];

    /// What people read, and what the worker is told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadSequential => "read 4K sequential",
            Self::ReadRandom => "read 4K random",
            Self::Read64K => "read 64K sequential",
            Self::Read2M => "read 2M sequential",
            Self::OverwriteSequential => "overwrite 4K sequential",
            Self::OverwriteRandom => "overwrite 4K random",
            Self::OverwriteScattered => "overwrite 4K scattered",
            Self::Append4K => "append 4K",
            Self::AppendSync => "append 4K, fsync",
            Self::Append128 => "append 128 B",
            Self::Append64 => "append 64 B",
            Self::OpenClose => "open+close",
            Self::CreateCloseUnlink => "create+close+unlink",
            Self::Rename => "rename",
            Self::Stat => "stat",
            Self::StatDeep => "stat 8 deep",
            Self::List => "readdir+stat of 100,000 names, a name",
            Self::RecordLock => "record lock + unlock",
            Self::ForeignRead => "read 1 B of /dev/zero",
            Self::Open => "open",
            Self::Close => "close",
            Self::Unlink => "unlink",
            Self::OverwriteSync10 => "overwrite 4K, fsync every 10",
            Self::AppendSync10 => "append 4K, fsync every 10",
            Self::AppendSync100 => "append 4K, fsync every 100",
            Self::AppendSync1000 => "append 4K, fsync every 1000",
        }
    }

    /// The row of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::SPLIT).find(|row| row.name() == name)
    }

    /// Whether it writes at the end of a new file.
    pub const fn appends(self) -> bool {
        matches!(
            self,
            Self::Append4K
                | Self::AppendSync
                | Self::Append128
                | Self::Append64
                | Self::AppendSync10
                | Self::AppendSync100
                | Self::AppendSync1000
        )
    }

    /// After how many calls `fsync` follows; 0: never.
    pub const fn syncs_every(self) -> u64 {
        match self {
            Self::AppendSync => 1,
            Self::OverwriteSync10 | Self::AppendSync10 => 10,
            Self::AppendSync100 => 100,
            Self::AppendSync1000 => 1000,
            _ => 0,
        }
    }

    /// Bytes that one call moves; 0 for calls that move none, which have no limit of the memory's.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Append128 => 128,
            Self::Append64 => 64,
            Self::Read64K => 64 << 10,
            Self::Read2M => 2 << 20,
            Self::OpenClose
            | Self::CreateCloseUnlink
            | Self::Rename
            | Self::Stat
            | Self::StatDeep
            | Self::List
            | Self::RecordLock
            | Self::ForeignRead
            | Self::Open
            | Self::Close
            | Self::Unlink => 0,
            _ => BLOCK_BYTES,
        }
    }

    /// Calls in one timed run over a working set of `size` bytes: tens of milliseconds.
    pub const fn calls(self, size: u64) -> u64 {
        match self {
            Self::OpenClose => 50_000,
            Self::CreateCloseUnlink | Self::Rename => 20_000,
            Self::Stat | Self::StatDeep => 100_000,
            Self::List => LISTED,
            Self::Read64K => size / (64 << 10),
            Self::Read2M => size / (2 << 20),
            Self::OverwriteScattered => SCATTERED_BYTES / BLOCK_BYTES as u64,
            Self::RecordLock => 200_000,
            Self::ForeignRead => 500_000,
            Self::Append128 | Self::Append64 => 65_536,
            Self::Open | Self::Close | Self::Unlink => FILES,
            _ => size / BLOCK_BYTES as u64,
        }
    }

    /// The same where `fsync` may have to wait for a medium.
    pub const fn calls_beneath(self, size: u64) -> u64 {
        let all = self.calls(size);
        if all > SYNCED && matches!(self.syncs_every(), 1..=10) { SYNCED } else { all }
    }
}

/// A fixed sequence that visits blocks in no order a prefetcher knows (xorshift64).
pub struct Random(u64);

impl Random {
    pub const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Offset of the call with this number within a working set of `size` bytes.
pub const fn offset(row: Row, call: u64, random: &mut Random, size: u64) -> u64 {
    let blocks = size / BLOCK_BYTES as u64;
    match row {
        Row::ReadRandom | Row::OverwriteRandom => random.below(blocks) * BLOCK_BYTES as u64,
        Row::Append128 | Row::Append64 | Row::Read64K | Row::Read2M => {
            call * row.bytes() as u64 % size
        }
        Row::OverwriteScattered => call * 2 * BLOCK_BYTES as u64 % scattered_bytes(size),
        _ => call % blocks * BLOCK_BYTES as u64,
    }
}
