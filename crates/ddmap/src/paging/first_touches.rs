//! First touches in order: a file that grows, or memory that is filled for the first time. Each
//! takes a signal, which costs more than the page. So a thread that touches fresh pages in order
//! finds the next ones there, twice as many each time.
//!
//! What is not touched in the end is zeros, takes no message to leave, and goes before what is
//! used. A thread's touches are in a variable of the thread: a signal handler looks at it.

use crate::paging::request_pages;
use crate::protocol::{Flags, Location, State, Word};
use crate::shared_memory::view::SharedRegion;
use std::cell::Cell;

/// Pages that are there ahead, at most: their faults lie on the stack of a signal handler.
pub(super) const MOST: usize = 16;
/// And of the pages for which the node has room, that part.
const ROOM_PART: u64 = 16;

thread_local! {
    /// Where the next first touch is if it is in order, and how many pages to bring then.
    static NEXT: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// How many pages are to be there behind a page that was touched first just now.
pub(super) fn ahead(ground: &SharedRegion, page: u64) -> usize {
    let place = request_pages::apart(ground).wrapping_add(page);
    let (next, most) = NEXT.get();
    let room = (ground.free() / ROOM_PART).min(ground.table.pages() - page - 1) as usize;
    let (ahead, later) =
        if place == next { (most.min(room), (most * 2).min(MOST)) } else { (0, 1) };
    NEXT.set((place.wrapping_add(ahead as u64 + 1), later));
    ahead
}

/// Whether a page that was in this state when it was touched may have others brought behind it. Not
/// one that stays: the next one there may be another process's to take, which does not wait for who
/// is at it, as what stays is never away.
pub(super) fn begins_at(word: Word) -> bool {
    word.state() == State::Absent && !word.flags().has(Flags::STAYS)
}

/// Whether a page is zeros that no node has, and nobody is at it.
pub(super) fn is_void(ground: &SharedRegion, page: u64) -> bool {
    ground.table.word(page).state() == State::Absent
        && matches!(ground.place(page), Ok(Location::Void(_)))
}

/// Whether a page may be brought behind another one that was touched first.
pub(super) fn is_fresh(ground: &SharedRegion, page: u64) -> bool {
    begins_at(ground.table.word(page)) && is_void(ground, page)
}

/// A fresh page that a thread touches, and those that are to be there behind it.
pub(super) fn with_those_ahead(ground: &SharedRegion, page: u64) -> Vec<u64> {
    let behind = (page + 1..).take(ahead(ground, page));
    std::iter::once(page).chain(behind.take_while(|page| is_fresh(ground, *page))).collect()
}
