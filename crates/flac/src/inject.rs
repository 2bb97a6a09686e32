//! Faults that are put back one at a time, and points at which a test does something in between:
//! with the feature `inject` only, to show that the tests find what they are there for.

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Bug {
    /// No fault.
    #[cfg(feature = "inject")]
    None,
    /// A read does not compare the version behind its copies.
    NoSecondComparison,
    /// A write moves the file's word although somebody else wrote meanwhile.
    WordMovedAnyway,
    /// A write moves the file's word, then drops entries.
    DroppedAfterWord,
    /// A write makes only granules dead that are there.
    AbsentLeft,
    /// A segment is published before it is filled.
    PublishedEarly,
    /// A chunk is claimed when its bytes have been read.
    ClaimedLate,
    /// The check of an entry is not asked for.
    CheckIgnored,
    /// Any era that ended in order is taken over.
    EraSkipped,
    /// A process that fills a segment sets the length that it needs, by one that it saw before.
    CutShort,
    /// A segment has the number of its line, as the one before it had.
    NumberUsedAgain,
    /// A chunk's new bytes go to the segment that holds its old ones.
    WrittenTwice,
}

/// Where something can happen in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// A read has found all of a part, and is about to copy it.
    BeforeCopy,
    /// A fill has looked at the version, and is about to read.
    BeforeFill,
    /// A fill has read, and found that the version is the same.
    BehindFill,
    /// A write has asked for the version, and is about to write.
    BeforeWrite,
    /// A write has done the first of its two changes to the index.
    WithinChange,
}

#[cfg(feature = "inject")]
mod built {
    use super::{Bug, Point};
    use std::cell::RefCell;

    type Act = Box<dyn FnMut(Point)>;

    thread_local! {
        static BUG: RefCell<Bug> = const { RefCell::new(Bug::None) };
        static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// This thread has a fault from here on.
    pub fn set_bug(bug: Bug) {
        BUG.set(bug);
    }

    /// Whether this thread has it.
    pub(crate) fn injected(bug: Bug) -> bool {
        BUG.with_borrow(|set| *set == bug)
    }

    /// This thread does that at each point from here on; not within it.
    pub fn at_points(act: Option<Act>) {
        ACT.set(act);
    }

    pub(crate) fn reach(point: Point) {
        let act = ACT.take();
        if let Some(mut act) = act {
            act(point);
            ACT.set(Some(act));
        }
    }
}

#[cfg(feature = "inject")]
pub use built::{at_points, set_bug};
#[cfg(feature = "inject")]
pub(crate) use built::{injected, reach};

#[cfg(not(feature = "inject"))]
pub(crate) const fn injected(_: Bug) -> bool {
    false
}

#[cfg(not(feature = "inject"))]
pub(crate) const fn reach(_: Point) {}
