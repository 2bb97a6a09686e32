//! The two words of a page: what its node does with it, and where its bytes are.
//!
//! ```text
//! node table:  | state 60..64 | flags 52..60 | version 24..52 | slot 12..24 | life 0..12 |
//!   of a page that is here:                            | came 16..24 | count 12..16 | heat 0..12 |
//! directory:   | state 62..64 | owner 50..62 | other 38..50 | version 10..38 | check 0..10 |
//! ```
//!
//! A word of zeros says that a page was never touched: both tables are sparse files. `owner` of a
//! page that is lost is the node that had it, or 0. `other` is a second node with the page's bytes,
//! or 0: of a page that is with its host, a *spare*, in the version before; of one that is with a
//! holder, a second holder, in the same version.

/// A node of a domain: 1 to 4095.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u16);

impl NodeId {
    /// The node of a number.
    pub fn new(number: u16) -> Option<Self> {
        (1..=0xFFF).contains(&number).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "node {}", self.0)
    }
}

const VERSION_BITS: u32 = 28;

/// Which move of a page brought bytes where they are: 28 bits, which go round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Version(u32);

impl Version {
    /// The version of a number's low bits.
    pub fn new(number: u32) -> Self {
        Self(number & ((1 << VERSION_BITS) - 1))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The one so many moves behind it.
    #[must_use]
    pub fn later(self, moves: u32) -> Self {
        Self::new(self.0.wrapping_add(moves))
    }

    /// The one so many moves before it.
    #[must_use]
    pub fn earlier(self, moves: u32) -> Self {
        Self::new(self.0.wrapping_sub(moves))
    }

    /// Whether it is later than another one, of which it is less than 2^27 moves away: a holder
    /// drops what it has in vain before it takes anything (`reconcile`), so no version of a page is
    /// older than that.
    pub fn is_later_than(self, other: Self) -> bool {
        let distance = Self::new(self.0.wrapping_sub(other.0)).0;
        distance != 0 && distance < 1 << (VERSION_BITS - 1)
    }
}

/// A process of a node: its slot of the node table, and which of the slot's lives it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claimant {
    /// 12 bits.
    pub slot: u16,
    /// Low 12 bits of the slot's generation.
    pub life: u16,
}

/// What a node does with a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// A hole in the page file.
    Absent,
    /// A process brings it here.
    Busy,
    /// The host has its bytes: they are the truth, and may be stored to.
    Owned,
    /// The host's node sends it away: it can be loaded from where it was mapped.
    Leaving,
    /// A holder has its bytes for the host.
    Kept,
    /// Its only bytes are gone.
    Lost,
    /// The host has its bytes, protected in all mappings of all processes. The directory says who
    /// keeps a spare of them, if anybody does.
    Clean,
    /// A holder has its bytes, and knows that the host has them, too: it may drop them.
    Spare,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Absent,
        Self::Busy,
        Self::Owned,
        Self::Leaving,
        Self::Kept,
        Self::Lost,
        Self::Clean,
        Self::Spare,
    ];

    /// Whether the host has the page's bytes, and nobody is at it.
    pub const fn is_here(self) -> bool {
        matches!(self, Self::Owned | Self::Clean)
    }

    /// Whether a holder has them.
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::Spare)
    }
}

/// What else is known of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// It never leaves its host.
    pub const STAYS: Self = Self(1);
    /// A small file's: it goes last.
    pub const SMALL: Self = Self(2);
    /// Somebody waits for its word, which says busy or leaving, to change.
    pub const AWAITED: Self = Self(4);
    /// It was touched, is zeros again, and no node has it: of a page that is absent, or busy until
    /// zeros are here.
    pub const EMPTY: Self = Self(8);
    /// Its node has asked whether anybody wants it: of a page that is here, and nobody has said so
    /// yet.
    pub const ASKED: Self = Self(16);

    /// As a byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// What a byte says.
    pub const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// With these set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of these are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Ticks after which a count is half of what it was.
const COOL: u16 = 256;

/// A page's word in the node table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Word(pub u64);

impl Word {
    /// A word that nobody is at.
    pub fn new(state: State, flags: Flags, version: Version) -> Self {
        let state = State::ALL.iter().position(|one| *one == state).unwrap_or_default() as u64;
        Self(state << 60 | u64::from(flags.0) << 52 | u64::from(version.0) << 24)
    }

    /// The same, of a claimant that is at it.
    #[must_use]
    pub fn claimed(self, claimant: Claimant) -> Self {
        let (slot, life) = (u64::from(claimant.slot & 0xFFF), u64::from(claimant.life & 0xFFF));
        Self(self.0 & !0xFF_FFFF | slot << 12 | life)
    }

    /// The same in another state, of nobody. A page of zeros is one as long as none are here.
    #[must_use]
    pub fn turned(self, state: State, version: Version) -> Self {
        let is_hole = matches!(state, State::Absent | State::Busy);
        let not = if is_hole { Flags::default() } else { Flags::EMPTY };
        Self::new(state, self.flags().without(not), version)
    }

    /// The same as it replaces another one: its own flag says whether the page is empty; all other
    /// flags stay as they were, but that nobody waits any more, and nobody has asked.
    #[must_use]
    pub fn behind(self, found: Self) -> Self {
        let empty = if self.flags().has(Flags::EMPTY) { Flags::EMPTY } else { Flags::default() };
        let over = Flags::AWAITED.with(Flags::EMPTY).with(Flags::ASKED);
        self.flagged(found.flags().without(over).with(empty))
    }

    /// The same of a page that is zeros, in this version, and that no node has: so it is not taken
    /// for a lost one if the directory is lost.
    #[must_use]
    pub fn emptied(self, version: Version) -> Self {
        Self::new(State::Absent, self.flags().with(Flags::EMPTY), version)
    }

    /// The same with other flags.
    #[must_use]
    pub fn flagged(self, flags: Flags) -> Self {
        Self(self.0 & !(0xFF << 52) | u64::from(flags.0) << 52)
    }

    /// What its node does with the page. Of a word that no build writes: lost.
    pub fn state(self) -> State {
        State::ALL.get((self.0 >> 60) as usize).copied().unwrap_or(State::Lost)
    }

    /// What else is known.
    pub fn flags(self) -> Flags {
        Flags((self.0 >> 52) as u8)
    }

    /// The version of the bytes that are here, or are being sent.
    pub fn version(self) -> Version {
        Version::new((self.0 >> 24) as u32)
    }

    /// Who is at it, if it is busy or leaving.
    pub fn claimant(self) -> Claimant {
        Claimant { slot: (self.0 >> 12 & 0xFFF) as u16, life: (self.0 & 0xFFF) as u16 }
    }

    /// What [`Word::count`] is at most.
    pub const COUNT_MAX: u8 = 15;

    /// When it was wanted last, if it is here, as far as that was seen: in ticks of the node.
    pub fn heat(self) -> u16 {
        (self.0 & 0xFFF) as u16
    }

    /// How often it was wanted since it came, if it is here.
    pub fn count(self) -> u8 {
        (self.0 >> 12 & 0xF) as u8
    }

    /// Ticks since it was wanted last. None, if that was behind `now`: time goes on while somebody
    /// looks at many pages.
    pub fn age(self, now: u16) -> u16 {
        let age = now.wrapping_sub(self.heat()) & 0xFFF;
        if age >= 0xF00 { 0 } else { age }
    }

    /// 16 ticks each, since it came.
    pub fn came_before(self, now: u16) -> u8 {
        let age = ((now >> 4) as u8).wrapping_sub((self.0 >> 16) as u8);
        if age >= 0xF0 { 0 } else { age }
    }

    /// Its count, halved for each time that as many pages came as the node has room for.
    pub fn cooled(self, now: u16) -> u8 {
        self.count() >> (self.age(now) / COOL).min(4)
    }

    /// The same of a page that has come now.
    #[must_use]
    pub fn arrived(self, now: u16) -> Self {
        Self(self.0 & !0xFF_FFFF | u64::from(now >> 4 & 0xFF) << 16 | u64::from(now & 0xFFF))
    }

    /// The same, that came when another word says so, and was wanted as that one says.
    #[must_use]
    pub fn known_as(self, other: Self) -> Self {
        Self(self.0 & !0xFF_FFFF | other.0 & 0xFF_FFFF)
    }

    /// Whether it says when its page came.
    pub fn is_known(self) -> bool {
        self.0 & 0xFF_FFFF != 0
    }

    /// The same of a page that is wanted now.
    #[must_use]
    pub fn wanted(self, now: u16) -> Self {
        let count = (self.cooled(now) + 1).min(Self::COUNT_MAX);
        let wanted = Self(self.0 & !0xFFFF | u64::from(count) << 12 | u64::from(now & 0xFFF));
        wanted.flagged(self.flags().without(Flags::ASKED))
    }

    /// The same of a page about which its node asks.
    #[must_use]
    pub fn asked(self) -> Self {
        self.flagged(self.flags().with(Flags::ASKED))
    }
}

/// Where a page's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Location {
    /// Nowhere: they are zeros.
    Void(Version),
    /// A node has them; and the other node of [the word](self), if there is one.
    Held(NodeId, Version, Option<NodeId>),
    /// All nodes that had them have lost them: one of these, if that is known.
    Lost(Option<NodeId>, Version),
}

/// A word of the directory that no build has written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DamagedPlace(pub u64);

impl std::fmt::Display for DamagedPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the directory's word {:#018x} does not match its check", self.0)
    }
}

impl Location {
    /// The version of the bytes.
    pub fn version(self) -> Version {
        match self {
            Self::Void(version) | Self::Held(_, version, _) | Self::Lost(_, version) => version,
        }
    }

    /// The nodes that have the page's bytes in its version, if they are away from `here`: one or
    /// two.
    pub fn holders(self, here: NodeId) -> [Option<NodeId>; 2] {
        match self {
            Self::Held(owner, _, other) if owner != here => [Some(owner), other],
            _ => [None; 2],
        }
    }

    /// The same in the order in which they are asked for it: one that is known to be silent last.
    pub fn givers(self, here: NodeId, is_silent: impl Fn(NodeId) -> bool) -> [Option<NodeId>; 2] {
        match self.holders(here) {
            [Some(one), Some(other)] if is_silent(one) && !is_silent(other) => {
                [Some(other), Some(one)]
            }
            holders => holders,
        }
    }

    /// Whether a node is one of them.
    pub fn is_held_by(self, node: NodeId, here: NodeId) -> bool {
        self.holders(here).contains(&Some(node))
    }

    /// The same with no other node.
    #[must_use]
    pub fn alone(self) -> Self {
        match self {
            Self::Held(owner, version, _) => Self::Held(owner, version, None),
            other => other,
        }
    }

    /// The directory's word of a page.
    pub fn word(self, page: u64) -> u64 {
        let (state, owner, other) = match self {
            Self::Void(Version(0)) => return 0,
            Self::Void(_) => (0, None, None),
            Self::Held(owner, _, other) => (1, Some(owner), other),
            Self::Lost(owner, _) => (2, owner, None),
        };
        let [owner, other] = [owner, other].map(|node| node.map_or(0, |node| u64::from(node.0)));
        let word = state << 62 | owner << 50 | other << 38 | u64::from(self.version().0) << 10;
        word | check(word, page)
    }

    /// What a directory's word says of a page.
    pub fn of_word(word: u64, page: u64) -> Result<Self, DamagedPlace> {
        if word == 0 {
            return Ok(Self::Void(Version(0)));
        }
        let version = Version::new((word >> 10) as u32);
        let [owner, other] = [50, 38].map(|at| NodeId::new((word >> at & 0xFFF) as u16));
        let place = match (word >> 62, owner) {
            (0, None) => Self::Void(version),
            (1, Some(owner)) => Self::Held(owner, version, other),
            (2, owner) => Self::Lost(owner, version),
            _ => return Err(DamagedPlace(word)),
        };
        if place.word(page) == word { Ok(place) } else { Err(DamagedPlace(word)) }
    }
}

/// Ten bits of the sum of a directory's word, and of whose it is.
fn check(word: u64, page: u64) -> u64 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&word.to_le_bytes()), &page.to_le_bytes());
    u64::from(sum & 0x3FF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places() -> impl Strategy<Value = Location> {
        let version = (0_u32..1 << 28).prop_map(Version::new);
        let nodes = (1_u16..4096, 0_u16..4096);
        (0..4, nodes, version).prop_map(|(kind, (owner, other), version)| match kind {
            0 => Location::Void(version),
            1 => Location::Held(NodeId::new(owner).unwrap(), version, NodeId::new(other)),
            2 => Location::Lost(None, version),
            _ => Location::Lost(NodeId::new(owner), version),
        })
    }

    proptest! {
        #[test]
        fn a_place_is_what_its_word_says(place in places(), page in 0_u64..1 << 40) {
            prop_assert_eq!(Location::of_word(place.word(page), page), Ok(place));
        }

        #[test]
        fn a_flipped_bit_is_seen_nearly_always(place in places(), page in 0_u64..1 << 40) {
            let word = place.word(page);
            let unseen = (0..64)
                .filter(|bit| Location::of_word(word ^ 1 << bit, page) == Ok(place))
                .count();
            prop_assert_eq!(unseen, 0);
        }

        #[test]
        fn a_word_keeps_its_parts(state in 0_usize..8, flags in 0_u8..16, version in 0_u32..1 << 28,
                                  slot in 0_u16..4096, life in 0_u16..4096) {
            let (flags, version) = (Flags(flags), Version::new(version));
            let word = Word::new(State::ALL[state], flags, version);
            let claimed = word.claimed(Claimant { slot, life });
            prop_assert_eq!(claimed.claimant(), Claimant { slot, life });
            prop_assert_eq!((claimed.state(), claimed.flags(), claimed.version()),
                            (State::ALL[state], flags, version));
            prop_assert_eq!(claimed.turned(State::Owned, version.later(1)).claimant(),
                            Claimant { slot: 0, life: 0 });
            let empty = claimed.emptied(version.later(1));
            prop_assert_eq!((empty.state(), empty.version()), (State::Absent, version.later(1)));
            prop_assert_eq!(empty.flags(), flags.with(Flags::EMPTY));
            prop_assert!(empty.turned(State::Busy, version).flags().has(Flags::EMPTY));
            prop_assert!(!empty.turned(State::Owned, version).flags().has(Flags::EMPTY));
            prop_assert_eq!(empty.behind(word).flags().without(Flags::EMPTY),
                            word.flags().without(Flags::AWAITED.with(Flags::EMPTY)));
        }
    }

    #[test]
    fn an_owned_word_says_when_it_came_and_how_often_it_was_wanted() {
        let word = Word::new(State::Owned, Flags::SMALL, Version::new(7));
        let came = word.arrived(4090);
        assert_eq!((came.age(4095), came.age(3), came.count()), (5, 9, 0));
        assert_eq!((came.age(4089), came.came_before(4000)), (0, 0), "it has come meanwhile");
        let wanted = (0..40).fold(came, |word, _| word.wanted(10));
        assert_eq!((wanted.age(10), wanted.count()), (0, Word::COUNT_MAX));
        assert_eq!((wanted.came_before(10), came.came_before((4090 + 6 + 256) & 0xFFF)), (1, 17));
        assert_eq!((wanted.cooled(10 + COOL), wanted.cooled(10 + 2 * COOL)), (7, 3));
        assert_eq!(wanted.wanted(10 + COOL).count(), 8);
        assert_eq!(wanted.0 >> 24, word.0 >> 24, "all else is as it was");
    }

    #[test]
    fn versions_go_round() {
        let last = Version::new(u32::MAX);
        assert_eq!(last.later(1), Version::new(0));
        assert!(last.later(1).is_later_than(last));
        assert!(!last.is_later_than(last.later(1)));
        assert!(!last.is_later_than(last));
    }

    #[test]
    fn a_word_of_zeros_was_never_touched() {
        assert_eq!(Word(0).state(), State::Absent);
        assert_eq!(Location::of_word(0, 7), Ok(Location::Void(Version::new(0))));
    }
}
