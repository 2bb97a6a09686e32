//! Numbers from a seed, and what a seed's world is like.

/// A generator of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        let mut draw = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5EED);
        draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An index of a list of `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number of this range, both ends included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Once in so many times; never, if that is 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times != 0 && self.below(times) == 0
    }
}

/// Once in how many ticks something fails: 0 is never.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    pub program_dies: u64,
    pub node_dies: u64,
    pub host_restarts: u64,
    pub holder_dies: u64,
    pub memory_lost: u64,
    pub link_lost: u64,
    pub partition: u64,
    pub stop: u64,
    /// Of steps of a thread that waits for an answer: it waits no longer.
    pub timeout: u64,
    /// Of answers: their sum is wrong.
    pub torn: u64,
    /// A word of the directory is damaged, or mended.
    pub damage: u64,
    /// The memory beneath a page file is used up, or is not any more.
    pub tight: u64,
}

/// What a world is like.
#[derive(Clone, Debug)]
pub struct Config {
    pub pages: usize,
    pub holders: usize,
    pub programs: usize,
    pub threads: usize,
    pub capacity: u32,
    pub holder_capacity: u32,
    pub first_version: u32,
    /// How many holders are to have a page that is away: 1 or 2.
    pub copies: usize,
    /// The longest usual delay of a frame, in ticks.
    pub delay: u64,
    /// Of stores: once in so many, zeros are stored.
    pub zeros: u64,
    /// The kernel stores to pages, for programs; nobody gives them up then.
    pub calls: bool,
    /// Of idle steps of the node: it evicts, though there is room.
    pub evicts: u64,
    pub rates: Rates,
}

impl Config {
    pub fn new(draw: &mut Draw) -> Self {
        let pages = draw.between(1, 6);
        let mut rate = |of, low, high| if draw.once_in(of) { draw.between(low, high) } else { 0 };
        let rates = Rates {
            program_dies: rate(2, 60, 3_000),
            node_dies: rate(2, 60, 3_000),
            host_restarts: rate(3, 600, 8_000),
            holder_dies: rate(2, 60, 3_000),
            memory_lost: rate(3, 2_000, 30_000),
            link_lost: rate(2, 20, 400),
            partition: rate(3, 200, 2_000),
            stop: rate(2, 40, 400),
            timeout: rate(2, 20, 200),
            torn: rate(2, 4, 30),
            damage: rate(4, 300, 3_000),
            tight: rate(4, 300, 3_000),
        };
        let most = if draw.once_in(2) { 3 } else { 15 };
        Self {
            pages: pages as usize,
            holders: draw.between(2, most) as usize,
            programs: draw.between(2, 4) as usize,
            threads: draw.between(1, 3) as usize,
            capacity: draw.between(1, pages) as u32,
            holder_capacity: draw.between(1, 4) as u32,
            copies: if draw.once_in(2) { 2 } else { 1 },
            first_version: (draw.below(2) * ((1 << 28) - draw.between(1, 40))) as u32,
            delay: draw.between(1, 60),
            zeros: draw.between(2, 20),
            calls: draw.once_in(3),
            evicts: draw.between(1, 20),
            rates,
        }
    }
}
