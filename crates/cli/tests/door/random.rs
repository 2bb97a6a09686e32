//! Seeded choices, the same in every run.

/// xorshift64*: enough to choose by.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut made = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Neighbours begin alike.
        for _ in 0..8 {
            made.below(2);
        }
        made
    }

    /// A number from `0..limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// One of these.
    pub fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
