//! What stores of a region need to be durable: flushes and fences, fences alone, or nothing.
//!
//! In memory that a reboot empties nothing survives a power cut, whatever is flushed. Only
//! processes die there, and a death leaves what was stored before it, in the order of the program:
//! each store that an instruction has made is in a cache or on its way to it, and caches are
//! shared. Processes that live see plain stores in the order in which they were made (Intel SDM,
//! volume 3, "Memory Ordering": "Writes to memory are not reordered with other writes"). So plain
//! stores keep every order that flushes and fences keep elsewhere. The exceptions of that rule are
//! streams and string instructions. A stream stands between two fences here
//! (`persistence/stream.rs`); no string instruction stores into a region.
//!
//! A line that `movdir64b` stores at once elsewhere is stored word by word here, in ascending
//! order, as on CPUs without it: readers and recovery never rely on more than whole words.

use crate::region::source::Class;
use std::fmt;

/// What stores of a region need to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Lines are flushed or streamed, and a fence waits for them.
    Flushed,
    /// A fence: the platform flushes caches.
    Fenced,
    /// Nothing: the memory outlives processes only.
    Plain,
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Policy::Flushed => "flushed",
            Policy::Fenced => "fenced",
            Policy::Plain => "plain",
        })
    }
}

impl Policy {
    /// That of a region which was `found` to be of one class, and is taken for `class`. Only memory
    /// that is known to be volatile is spared flushes, whatever is asked for.
    #[must_use]
    pub fn of(found: Class, class: Class) -> Policy {
        match (found, class) {
            (Class::Volatile, Class::Volatile) => Policy::Plain,
            (_, Class::Byte) => Policy::Fenced,
            _ => Policy::Flushed,
        }
    }

    /// In words, for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Policy::Flushed => "lines are flushed or streamed, and fences wait for them",
            Policy::Fenced => "fences without flushes: the platform flushes caches at a power cut",
            Policy::Plain => {
                "plain stores, without flushes and fences: a reboot empties the memory"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_volatile_is_spared_flushes() {
        let all = [Class::Byte, Class::CacheLine, Class::Volatile, Class::Page];
        for found in all {
            for class in all {
                let plain = Policy::of(found, class) == Policy::Plain;
                assert_eq!(plain, (found, class) == (Class::Volatile, Class::Volatile));
                let flushed = Policy::of(found, class) == Policy::Flushed;
                assert_eq!(flushed, !plain && class != Class::Byte, "{found} taken for {class}");
            }
        }
    }
}
