//! The pages of a request: those that a thread has touched, and those that it wants next.
//!
//! A thread's touches are counted in a variable of the thread, which takes neither the heap nor a
//! lock: a signal handler looks at it. A touch in a program's own handler, that interrupts this,
//! counts nothing.

use crate::paging::prefetch::{Plan, PrefetchMode, Touches};
use crate::protocol::messages::PAGES;
use crate::protocol::{Fault, NodeId, State, Version};
use crate::shared_memory::counters::Count;
use crate::shared_memory::view::SharedRegion;
use std::cell::RefCell;

thread_local! {
    static TOUCHES: RefCell<Touches> = const { RefCell::new(Touches::new()) };
}

/// A page that a holder is asked for.
pub(super) struct Wanted {
    pub owner: NodeId,
    pub version: Version,
    pub fault: Fault<usize>,
    /// Somebody has touched it.
    pub is_first: bool,
}

/// Pages of different regions lie so far from each other, for a thread that touches both.
pub(super) fn apart(ground: &SharedRegion) -> u64 {
    (std::ptr::from_ref(ground) as u64) << 36
}

/// What a thread is likely to want behind pages that it has touched, or that come ahead, in this
/// order: where a stream goes on that has lasted. They are at this node.
pub(super) fn next(ground: &SharedRegion, owner: NodeId, pages: &[u64]) -> Vec<(u64, Version)> {
    let (apart, end) = (apart(ground), ground.table.pages());
    let lasting_behind = |page: &u64| {
        let lasting =
            |all: &RefCell<Touches>| all.try_borrow().ok()?.lasting(apart.wrapping_add(*page));
        TOUCHES.with(lasting)
    };
    let (Some(now), Some(last)) = (pages.iter().find_map(lasting_behind), pages.last()) else {
        return Vec::new();
    };
    // A window of which only a part has room is followed by such a part: the rest would come in
    // vain.
    let most = if pages.len() as u64 > now.pages { PAGES } else { pages.len() };
    let plan = Plan { pages: most as u64, ..now };
    let held = |page: u64| {
        let (of, version) = ground.giver(page)?;
        (of == owner && is_absent(ground, page)).then_some((page, version))
    };
    plan.behind(*last, end).filter_map(held).collect()
}

fn is_absent(ground: &SharedRegion, page: u64) -> bool {
    ground.table.word(page).state() == State::Absent
}

/// Pages that are wanted, in this order, and behind them those that the thread wants next. They are
/// at the node where the last of the others is: nobody waits for a node that does not answer since
/// it has what was not asked for.
pub fn with_those_ahead(
    ground: &SharedRegion,
    ahead: PrefetchMode,
    mut pages: Vec<u64>,
) -> Vec<u64> {
    let owner_of =
        |page: u64| ground.giver(page).filter(|_| is_absent(ground, page)).map(|of| of.0);
    let (Some(first), Some(last)) = (pages.first().copied(), pages.last().copied()) else {
        return pages;
    };
    let Some(owner) = owner_of(last) else { return pages };
    let apart = apart(ground);
    let place = |page: u64| apart.wrapping_add(page);
    let of_thread = |act: &mut dyn FnMut(&mut Touches)| {
        TOUCHES.with(|touches| touches.try_borrow_mut().map(|mut all| act(&mut all)).ok());
    };
    let mut plan = Plan::default();
    of_thread(&mut |all| plan = all.touched(ahead, place(first), place(last)));
    // What is not asked for has nobody wait for room.
    let room = ground.free().saturating_sub(pages.len() as u64);
    let most = room.min(PAGES.saturating_sub(pages.len()) as u64) as usize;
    let behind = plan.behind(last, ground.table.pages());
    let asked = pages.len();
    pages.extend(behind.filter(|page| owner_of(*page) == Some(owner)).take(most));
    of_thread(&mut |all| {
        let (used, wasted) = all.comes((pages.len() - asked) as u64);
        ground.count(Count::AheadUsed, used);
        ground.count(Count::AheadWasted, wasted);
    });
    pages
}
