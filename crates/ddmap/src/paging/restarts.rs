//! Calls of the engine that begin anew since a page was absent.
//!
//! Such a call gives back all that it has taken, its fresh pages, too, so it needs room for all of
//! them at once. One that needs more than is kept free would begin anew for ever. So where a call
//! lacks room again and again, it has more made each time: it takes that, which makes the node send
//! pages away, and gives it back when the call goes on.
//!
//! What needs more than may be here goes in steps of a part of it ([`RegionPager::call_most`]).
//! What is no step, and too much, or never gets its pages at once since others take them, gives up
//! when it has waited for as long as a touch would, and more pages have come for it than a step
//! has: `ENOMEM`, as of a write to a kernel's file system that gets no page for it.
//!
//! CRASH: what it has taken is counted anew, as behind any death (`shared_memory/share.rs`).

use crate::control::interruption;
use crate::paging::pager::RegionPager;
use crate::protocol::PAGE;
use crate::wire::now_ns;
use rustix::io::Errno;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Of what may be here, a call has so many quarters made free, at most.
const QUARTERS: u64 = 3;
/// And so much of it a step of a call may want: it may store everything twice, beside what was
/// there.
const STEP_PART: u64 = 4;
/// But so many pages, where others have nearly all of the room.
const STEP_LEAST: u64 = 64;

thread_local! {
    /// For how many pages room was made last for this thread's call; since when it begins anew.
    static CALL: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Whether this thread's call lacks room again and again.
pub(super) fn lacks_room() -> bool {
    CALL.get().0 > 0
}

impl RegionPager {
    /// Pages of the volume that may be here besides those that stay, if others' do not leave.
    fn may_be_here(&self) -> u64 {
        let (room, share) = (&self.ground().room, self.ground().table.share());
        let taken = room.used().saturating_sub(share.pages()) + share.stays();
        self.ground().capacity().min(room.capacity().saturating_sub(taken))
    }

    /// Pages that a step of a call may want.
    fn call_most(&self) -> u64 {
        (self.may_be_here() / STEP_PART).max(STEP_LEAST)
    }

    /// The same in bytes.
    pub(super) fn step_bytes(&self) -> u64 {
        self.call_most() * PAGE
    }

    /// A call begins anew, as it has so many times before. It is told when it is to give up.
    pub(super) fn call_begins_anew(&self, times: u32) -> Result<(), Errno> {
        if times == 0 {
            CALL.set((0, now_ns()));
            return Ok(());
        }
        // A page has come each time: those that it reads, and those that it stores to.
        let has_waited = now_ns().saturating_sub(CALL.get().1) > self.patience().as_nanos() as u64;
        if has_waited && u64::from(times) > 2 * self.call_most() {
            return Err(Errno::NOMEM);
        }
        Ok(())
    }

    /// A call has lacked room for a fresh page, which has come: it finds room for more.
    pub(super) fn make_room_for_more(&self) -> Result<(), Errno> {
        let (before, since) = CALL.get();
        let wanted = (before * 2).min(self.may_be_here() * QUARTERS / 4).max(1);
        let mut taken = 0;
        let made = self.take_rooms(wanted, &mut taken);
        self.ground().give_room(taken);
        CALL.set((wanted, since));
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
            if let Some(errno) = interruption::interrupted() {
                return Err(errno);
            }
            if begun.elapsed() > self.patience() {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }
}
