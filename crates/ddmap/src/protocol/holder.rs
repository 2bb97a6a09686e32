//! What a holder does with the pages that it keeps for a host: it stores, gives and drops them as
//! it is told, and goes by versions alone. It asks nobody, and decides nothing, but when to drop a
//! *spare*: that it was told to be one says that its host has the page in a later version, whose
//! bytes these are until they are stored to there. What it was not told of may be the only copy,
//! also if it has given it: it may have been asked for ahead, and never wanted.
//!
//! CRASH: a page that is being stored or dropped is *busy*. If the node dies, the host has no
//! answer yet: it has the page itself, or does not want this one any more. So [`restart`] drops
//! what is busy. What was a spare, and is the page from here on, changes by one word.

use super::inject::{Mistake, made};
use super::messages::KeptPage;
use super::{Flags, Installed, State, Version, Word};

/// What a holder works on. Any access may fail; then nothing more is done.
pub trait Keeper {
    /// A page's bytes.
    type Bytes;
    /// Why an access failed.
    type Error;

    /// A page's word.
    fn word(&self, page: u64) -> Result<Word, Self::Error>;

    /// Replaces a page's word, if it is `from` still.
    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Self::Error>;

    /// Takes room for one page of this node's capacity; `false`: there is none.
    fn take_room(&self) -> Result<bool, Self::Error>;

    /// Gives it back.
    fn give_room(&self) -> Result<(), Self::Error>;

    /// Puts bytes into a hole of the page file.
    fn put(&self, page: u64, bytes: &Self::Bytes) -> Result<Installed, Self::Error>;

    /// The page's bytes. `None`: the page file has none there, which nobody but somebody behind the
    /// node's back can have done. What cannot be read now is an error.
    fn get(&self, page: u64) -> Result<Option<Self::Bytes>, Self::Error>;

    /// Makes pages in a row holes.
    fn punch(&self, page: u64, pages: u64) -> Result<(), Self::Error>;

    /// Nobody was at the page, and its bytes were not there: somebody has changed the page file.
    fn has_gone(&self, _page: u64) {}
}

/// What came of storing a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stored {
    /// It is kept.
    Kept,
    /// This node has no room for it.
    Full,
    /// It is older than what is kept, or somebody is at it.
    Refused,
}

/// Keeps a page in this version from now on.
pub fn store<K: Keeper>(
    keeper: &K,
    page: u64,
    version: Version,
    bytes: &K::Bytes,
) -> Result<Stored, K::Error> {
    let word = keeper.word(page)?;
    let kept = Word::new(State::Kept, Flags::default(), version);
    let had = match word.state() {
        State::Kept if word.version() == version => return Ok(Stored::Kept),
        State::Spare if word.version() == version => {
            let turned = keeper.turn(page, word, kept)?;
            return Ok(if turned { Stored::Kept } else { Stored::Refused });
        }
        State::Kept | State::Spare => {
            if !version.is_later_than(word.version()) && !made(Mistake::OlderStored) {
                return Ok(Stored::Refused);
            }
            true
        }
        State::Absent => false,
        _ => return Ok(Stored::Refused),
    };
    if !had && !keeper.take_room()? {
        return Ok(Stored::Full);
    }
    let busy = Word::new(State::Busy, Flags::default(), version);
    if !keeper.turn(page, word, busy)? {
        if !had {
            keeper.give_room()?;
        }
        return Ok(Stored::Refused);
    }
    if had {
        keeper.punch(page, 1)?;
    }
    if made(Mistake::KeptEarly) {
        keeper.turn(page, busy, kept)?;
    }
    match keeper.put(page, bytes)? {
        Installed::Whole => {
            keeper.turn(page, busy, kept)?;
            Ok(Stored::Kept)
        }
        Installed::NoRoom | Installed::Exists => {
            keeper.punch(page, 1)?;
            keeper.turn(page, busy, Word(0))?;
            keeper.give_room()?;
            Ok(Stored::Full)
        }
    }
}

/// Keeps a page in this version from now on, if it has the bytes: they are those of the version two
/// earlier. Who asks once more finds it done.
pub fn keep<K: Keeper>(keeper: &K, page: u64, version: Version) -> Result<Stored, K::Error> {
    let word = keeper.word(page)?;
    let is_done = word.state() == State::Kept && word.version() == version;
    let has = word.version() == version.earlier(2) || made(Mistake::AnyVersionKept);
    let kept = Word::new(State::Kept, Flags::default(), version);
    let keeps = is_done || word.state().is_kept() && has && keeper.turn(page, word, kept)?;
    Ok(if keeps { Stored::Kept } else { Stored::Refused })
}

/// The bytes of a page, if it is kept in just this version. One whose bytes have gone is kept no
/// more.
pub fn fetch<K: Keeper>(
    keeper: &K,
    page: u64,
    version: Version,
) -> Result<Option<K::Bytes>, K::Error> {
    let word = keeper.word(page)?;
    let right = word.version() == version || made(Mistake::AnyVersionGiven);
    if !word.state().is_kept() || !right {
        return Ok(None);
    }
    let Some(bytes) = keeper.get(page)? else {
        drop_gone(keeper, page, word)?;
        return Ok(None);
    };
    if made(Mistake::NotLookedAgain) {
        return Ok(Some(bytes));
    }
    // Dropped meanwhile: a second answer to what was asked twice.
    Ok((keeper.word(page)? == word).then_some(bytes))
}

/// Drops a page that was found without bytes under this word. It may have been dropped, and stored
/// again, when it was looked at.
fn drop_gone<K: Keeper>(keeper: &K, page: u64, word: Word) -> Result<(), K::Error> {
    let busy = Word::new(State::Busy, Flags::default(), word.version());
    if !keeper.turn(page, word, busy)? {
        return Ok(());
    }
    let found = keeper.get(page);
    let gone = matches!(found, Ok(None));
    if gone {
        keeper.has_gone(page);
    }
    keeper.turn(page, busy, if gone { Word(0) } else { word })?;
    if gone { keeper.give_room() } else { found.map(drop) }
}

/// Drops pages that are kept in these versions or earlier ones, and takes those for spares that are
/// said to be. How many it has dropped.
pub fn release<K: Keeper>(keeper: &K, pages: &[KeptPage]) -> Result<u32, K::Error> {
    let mut dropped = Vec::with_capacity(pages.len());
    for KeptPage { page, version, is_spare } in pages.iter().copied() {
        let word = keeper.word(page)?;
        if is_spare {
            if word.state() == State::Kept && word.version() == version {
                // What has changed meanwhile is none.
                keeper.turn(page, word, Word::new(State::Spare, Flags::default(), version))?;
            }
            continue;
        }
        let newer = word.version().is_later_than(version) && !made(Mistake::NewerReleased);
        if word.state().is_kept() && !newer {
            dropped.push((page, word));
        }
    }
    drop_all(keeper, dropped)
}

/// Drops pages, if they are spares: how many were.
pub fn drop_spares<K: Keeper>(
    keeper: &K,
    pages: impl IntoIterator<Item = u64>,
) -> Result<u32, K::Error> {
    let mut spares = Vec::new();
    for page in pages {
        let word = keeper.word(page)?;
        let early = word.state() == State::Kept && made(Mistake::DroppedUntold);
        if word.state() == State::Spare || early {
            spares.push((page, word));
        }
    }
    drop_all(keeper, spares)
}

/// Drops pages that are kept by these words still: how many.
fn drop_all<K: Keeper>(keeper: &K, pages: Vec<(u64, Word)>) -> Result<u32, K::Error> {
    let mut busy = Vec::with_capacity(pages.len());
    for (page, word) in pages {
        let claimed = Word::new(State::Busy, Flags::default(), word.version());
        if keeper.turn(page, word, claimed)? {
            busy.push((page, claimed));
        }
    }
    // A call of the kernel's costs more than the page.
    for run in busy.chunk_by(|one, next| one.0 + 1 == next.0) {
        keeper.punch(run[0].0, run.len() as u64)?;
        for (page, claimed) in run {
            keeper.turn(*page, *claimed, Word(0))?;
            keeper.give_room()?;
        }
    }
    Ok(busy.len() as u32)
}

/// At a node's start: what it was at when it died is dropped. Its room is counted anew by the
/// caller.
pub fn restart<K: Keeper>(
    keeper: &K,
    pages: impl IntoIterator<Item = u64>,
) -> Result<(), K::Error> {
    for page in pages {
        let word = keeper.word(page)?;
        if word.state() == State::Busy {
            keeper.punch(page, 1)?;
            keeper.turn(page, word, Word(0))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// One page, whose bytes are not there.
    struct Empty {
        word: Cell<Word>,
        /// It is dropped between the look at its word and the read.
        is_dropped: bool,
        gone: RefCell<Vec<u64>>,
    }

    impl Keeper for Empty {
        type Bytes = ();
        type Error = ();

        fn word(&self, _page: u64) -> Result<Word, ()> {
            Ok(self.word.get())
        }

        fn turn(&self, _page: u64, from: Word, to: Word) -> Result<bool, ()> {
            let is_from = self.word.get() == from;
            if is_from {
                self.word.set(to);
            }
            Ok(is_from)
        }

        fn take_room(&self) -> Result<bool, ()> {
            Ok(true)
        }

        fn give_room(&self) -> Result<(), ()> {
            Ok(())
        }

        fn put(&self, _page: u64, _bytes: &()) -> Result<Installed, ()> {
            Ok(Installed::Whole)
        }

        fn get(&self, _page: u64) -> Result<Option<()>, ()> {
            if self.is_dropped {
                self.word.set(Word(0));
            }
            Ok(None)
        }

        fn punch(&self, _page: u64, _pages: u64) -> Result<(), ()> {
            Ok(())
        }

        fn has_gone(&self, page: u64) {
            self.gone.borrow_mut().push(page);
        }
    }

    /// A node said that its page file was changed when a page had been dropped as it was read.
    #[test]
    fn a_page_that_is_dropped_as_it_is_read_has_not_gone() {
        let kept = Word::new(State::Kept, Flags::default(), Version::new(1));
        for is_dropped in [true, false] {
            let word = Cell::new(kept);
            let keeper = Empty { word, is_dropped, gone: RefCell::default() };
            assert_eq!(fetch(&keeper, 7, Version::new(1)), Ok(None));
            assert_eq!(keeper.word.get(), Word(0));
            let gone = if is_dropped { vec![] } else { vec![7] };
            assert_eq!(keeper.gone.into_inner(), gone);
        }
    }
}
