//! Which node of a domain is its *first*: it gives out numbers, says how nodes stand, and hears
//! that the others are there.
//!
//! A *reign* is a term, and the node that is first in it. Reigns have one order, by the term, then
//! by the node: of two nodes that call themselves first the later reign's is. A node becomes first
//! by a *poll*: all members are asked for a reign that is later than any it has heard of. One that
//! agrees has said before that it has ([`Terms::promised`]), and from then on stores no number of
//! an earlier reign. A number is given when a majority has stored it in its first's reign.
//!
//! # Invariants
//!
//! 1. [`Terms`] are durable before what they say is answered, or acted upon.
//! 2. No number is given to two nodes: a majority that has stored it, and one that agrees to a
//!    later reign, have a node in common, by which the later first hears of the number.
//! 3. That holds while nodes join: the list of members travels with each number that is stored. So
//!    the members that two firsts count differ by one at most, and their majorities meet.
//!
//! A first that was made by force does all but give numbers: it does not know which there are. It
//! asks for a reign of its own first, when one is wanted.

use super::inject::{Mistake, made};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A term, and the node that is first in it. The later one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Reign {
    /// Counted from 1.
    pub term: u32,
    /// The node.
    pub first: u16,
}

impl Reign {
    /// That in which each domain begins.
    pub const BEGIN: Self = Self { term: 1, first: 1 };
}

/// What a node knows of firsts, in its store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The latest reign of which it has heard.
    pub reign: Reign,
    /// The latest reign to which it has agreed: it stores no numbers of an earlier one.
    pub promised: Reign,
    /// No greater number was given, as far as it has heard.
    pub numbers: u16,
    /// This node is first by force: no majority has agreed.
    #[serde(default)]
    pub is_forced: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { reign: Reign::BEGIN, promised: Reign::BEGIN, numbers: 0, is_forced: false }
    }
}

impl Terms {
    /// The reign for which this node, `here`, asks.
    pub fn next(&self, here: u16) -> Reign {
        Reign { term: self.reign.max(self.promised).term + 1, first: here }
    }

    /// A node asks for a reign: whether this one agrees.
    pub fn agree(&mut self, reign: Reign) -> bool {
        let agrees = reign >= self.promised;
        if agrees && !made(Mistake::PromiseForgotten) {
            self.promised = reign;
        }
        agrees
    }

    /// A reign's first tells what numbers there are: whether this node has stored that.
    pub fn note(&mut self, reign: Reign, numbers: u16) -> bool {
        let stores = reign >= self.promised || made(Mistake::EarlierStored);
        if stores {
            self.numbers = self.numbers.max(numbers);
        }
        self.hear(reign);
        stores
    }

    /// Somebody says whose reign it is.
    pub fn hear(&mut self, reign: Reign) {
        self.is_forced &= reign <= self.reign;
        self.reign = self.reign.max(reign);
        self.promised = self.promised.max(reign);
    }

    /// A node that has agreed says what numbers there are.
    pub fn hear_numbers(&mut self, numbers: u16) {
        if !made(Mistake::NumbersUnheard) {
            self.numbers = self.numbers.max(numbers);
        }
    }

    /// This node is first: a poll was carried, or need not be.
    pub fn take(&mut self, reign: Reign, is_carried: bool) {
        self.hear(reign);
        self.is_forced = !is_carried && self.reign == reign && !made(Mistake::ForceSuffices);
    }

    /// Whether this node, `here`, may ask others to store a number: it is first by a majority, and
    /// has agreed to no later one.
    pub fn gives(&self, here: u16) -> bool {
        self.reign.first == here && self.promised == self.reign && !self.is_forced
    }

    /// The number that comes next, where members have numbers up to this one.
    pub fn next_number(&mut self, members: u16) -> u16 {
        self.numbers = self.numbers.max(members) + 1;
        self.numbers
    }
}

/// What members have answered to one question.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Poll {
    voters: BTreeSet<u16>,
    asked: BTreeSet<u16>,
    agreed: BTreeSet<u16>,
}

impl Poll {
    /// Of these members, asked by one of them, which agrees.
    pub fn new(here: u16, voters: impl IntoIterator<Item = u16>) -> Self {
        let own = BTreeSet::from([here]);
        Self { voters: voters.into_iter().collect(), asked: own.clone(), agreed: own }
    }

    /// Who is a member, as is known by now.
    pub fn set_voters(&mut self, voters: impl IntoIterator<Item = u16>) {
        if !made(Mistake::VotersUnheard) {
            self.voters = voters.into_iter().collect();
        }
    }

    /// Those that were not asked yet. They are by now.
    pub fn ask(&mut self) -> Vec<u16> {
        let rest: Vec<u16> = self.voters.difference(&self.asked).copied().collect();
        self.asked.extend(&rest);
        rest
    }

    /// A member has agreed.
    pub fn agrees(&mut self, node: u16) {
        self.agreed.insert(node);
    }

    /// How many members have agreed, and how many there are.
    pub fn counted(&self) -> (usize, usize) {
        (self.voters.intersection(&self.agreed).count(), self.voters.len())
    }

    /// Whether a majority has.
    pub fn is_carried(&self) -> bool {
        let (agreed, all) = self.counted();
        agreed * 2 > all || agreed * 2 == all && made(Mistake::HalfSuffices)
    }
}
