//! Calls of the engine that begin anew since there was no room for a fresh page.
//!
//! Such a call gives back all that it has taken, its fresh pages, too, so it needs room for all of
//! them at once. One that needs more than is kept free would begin anew for ever. So where a thread
//! lacks room again and again, it has more made each time: it takes that, which makes the node send
//! pages away, and gives it back when the call goes on.
//!
//! CRASH: what it has taken is counted anew, as behind any death (`ground/share.rs`).

use crate::program::pager::RegionPager;
use crate::reach::waiting;
use crate::wire::now_ns;
use rustix::io::Errno;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// What is lacked so soon after room was made is lacked again.
const SOON_NS: u64 = 5_000_000;
/// Room for so many pages is made, at most: a call may fill 2 MiB, and some besides.
const MOST: u64 = 768;
/// Of what may be here, at most so many quarters.
const QUARTERS: u64 = 3;

thread_local! {
    /// For how many pages this thread had room made last, and when.
    static LAST: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Whether this thread lacks room again and again.
pub(super) fn begins_anew() -> bool {
    let (pages, at) = LAST.get();
    pages > 0 && now_ns().saturating_sub(at) < SOON_NS
}

impl RegionPager {
    /// A call has lacked room for a fresh page, which has come: it finds room for more.
    pub(super) fn make_room_for_more(&self) -> Result<(), Errno> {
        let most = MOST.min(self.ground().capacity() * QUARTERS / 4);
        let wanted = if begins_anew() { (LAST.get().0 * 2).min(most) } else { 1 };
        let mut taken = 0;
        let made = self.take_rooms(wanted, &mut taken);
        self.ground().give_room(taken);
        LAST.set((wanted, now_ns()));
        made
    }

    fn take_rooms(&self, wanted: u64, taken: &mut u64) -> Result<(), Errno> {
        let (ground, begun) = (self.ground(), Instant::now());
        while *taken < wanted {
            let seen = ground.room.left();
            if ground.take_room() {
                *taken += 1;
                continue;
            }
            self.meet_new_node();
            ground.room.wait(seen, Duration::from_millis(10));
            if let Some(errno) = waiting::interrupted() {
                return Err(errno);
            }
            if begun.elapsed() > self.patience() {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }
}
