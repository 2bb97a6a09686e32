//! The rows of the table: which call, how many bytes, how often in one timed run.

/// One kind of call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Row {
    ReadSequential,
    ReadRandom,
    OverwriteSequential,
    OverwriteRandom,
    Append4K,
    Append128,
    Append64,
    OpenClose,
    CreateCloseUnlink,
    Stat,
    RecordLock,
    /// One byte of /dev/zero: what the library adds to calls that are not its own.
    ForeignRead,
}

/// The bytes of a read, an overwrite and a large append.
pub const BLOCK_BYTES: usize = 4096;

/// The working set is a multiple of this.
pub const SIZE_MIN: u64 = 2 << 20;

impl Row {
    pub const ALL: [Self; 12] = [
        Self::ReadSequential,
        Self::ReadRandom,
        Self::OverwriteSequential,
        Self::OverwriteRandom,
        Self::Append4K,
        Self::Append128,
        Self::Append64,
        Self::OpenClose,
        Self::CreateCloseUnlink,
        Self::Stat,
        Self::RecordLock,
        Self::ForeignRead,
    ];

    /// What people read, and what the worker is told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadSequential => "read 4K sequential",
            Self::ReadRandom => "read 4K random",
            Self::OverwriteSequential => "overwrite 4K sequential",
            Self::OverwriteRandom => "overwrite 4K random",
            Self::Append4K => "append 4K",
            Self::Append128 => "append 128 B",
            Self::Append64 => "append 64 B",
            Self::OpenClose => "open+close",
            Self::CreateCloseUnlink => "create+close+unlink",
            Self::Stat => "stat",
            Self::RecordLock => "record lock + unlock",
            Self::ForeignRead => "read 1 B of /dev/zero",
        }
    }

    /// The row of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.name() == name)
    }

    /// Bytes that one call moves; 0 for calls that move none, which have no limit of the memory's.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Append128 => 128,
            Self::Append64 => 64,
            Self::OpenClose
            | Self::CreateCloseUnlink
            | Self::Stat
            | Self::RecordLock
            | Self::ForeignRead => 0,
            _ => BLOCK_BYTES,
        }
    }

    /// Calls in one timed run over a working set of `size` bytes: tens of milliseconds.
    pub const fn calls(self, size: u64) -> u64 {
        match self {
            Self::OpenClose => 50_000,
            Self::CreateCloseUnlink => 20_000,
            Self::Stat => 100_000,
            Self::RecordLock => 200_000,
            Self::ForeignRead => 500_000,
            Self::Append128 | Self::Append64 => 65_536,
            _ => size / BLOCK_BYTES as u64,
        }
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
        Row::Append128 | Row::Append64 => call * row.bytes() as u64 % size,
        _ => call % blocks * BLOCK_BYTES as u64,
    }
}
