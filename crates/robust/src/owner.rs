//! Owner words: how a word names the operation that holds it.
//!
//! ```text
//! | epoch 32..64 | waiters 31 | generation 19..31 | slot 10..19 | operation + 1 0..10 |
//! ```
//!
//! A word of another epoch counts as free. The waiters' bit is set while a thread sleeps on the
//! word.

/// Identifies an operation of a thread of a process: operation + 1 (10 bits), the process's slot (9
/// bits), the slot's generation (12 bits). Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(pub u32);

/// Set in a lock word while a thread sleeps on it.
pub const WAITERS: u64 = 1 << 31;

/// The operation of an owner that is a process as such, outside operations.
pub const NO_OPERATION: u32 = 1022;

/// The free word of an epoch.
#[inline]
pub const fn free_word(epoch: u32) -> u64 {
    (epoch as u64) << 32
}

impl Owner {
    /// Operation `op` of the process that has `slot` in this generation.
    #[inline]
    pub fn new(op: u32, slot: u32, generation: u32) -> Self {
        debug_assert!(op < 1023 && slot < 512);
        Self((generation & 0xFFF) << 19 | slot << 10 | (op + 1))
    }

    /// A process, outside operations.
    #[inline]
    pub fn of_process(slot: u32, generation: u32) -> Self {
        Self::new(NO_OPERATION, slot, generation)
    }

    /// The owner in a lock word, `None` if it is free or of another epoch.
    #[inline]
    pub fn of_word(word: u64, epoch: u32) -> Option<Self> {
        let owner = (word & !WAITERS) as u32;
        ((word >> 32) as u32 == epoch && owner != 0).then_some(Self(owner))
    }

    /// The word that names it.
    #[inline]
    pub fn word(self, epoch: u32) -> u64 {
        free_word(epoch) | u64::from(self.0)
    }

    /// The operation.
    #[inline]
    pub fn op(self) -> u32 {
        (self.0 & 0x3FF) - 1
    }

    /// The process's slot.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0 >> 10 & 0x1FF
    }

    /// Low 12 bits of the slot's generation.
    #[inline]
    pub fn generation(self) -> u32 {
        self.0 >> 19 & 0xFFF
    }

    /// Whether this is a slot's generation, as far as an owner's bits go.
    #[inline]
    pub fn is_of(self, generation: u32) -> bool {
        generation & 0xFFF == self.generation()
    }
}
