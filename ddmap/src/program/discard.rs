//! Pages that nobody wants any more.

use crate::ground::view::View;
use crate::program::hands::Fingers;
use crate::program::pager::RegionPager;
use crate::protocol::{Flags, Host, Place, State, Word};

/// Pages that are made holes by one call, at most: they are busy that long.
const RUN: usize = 64;

impl RegionPager {
    /// Makes pages holes, wherever they are; zeros are there from now on. Pages that somebody is at
    /// stay as they are; so do those that must stay, which an operation may need again where it
    /// cannot wait for room.
    pub(super) fn drop_pages(&self, first: u64, pages: u64) {
        let view = View::new(&self.ground, Fingers::new(self, 0, None));
        let table = &self.ground.table;
        let mut run: Vec<(u64, Word, Word)> = Vec::new();
        for page in first..(first + pages).min(table.pages()) {
            if run.len() == RUN || run.last().is_some_and(|last| last.0 + 1 != page) {
                self.drop_run(&mut run);
            }
            let word = table.word(page);
            let is_idle = matches!(word.state(), State::Owned | State::Absent);
            if !is_idle || word.0 == 0 || word.flags().has(Flags::STAYS) {
                continue;
            }
            let busy = word.turned(State::Busy, word.version()).claimed(table.me());
            if !table.turn(page, word, busy) {
                continue;
            }
            let mut after = if word.state() == State::Owned {
                word.turned(State::Absent, word.version())
            } else {
                word
            };
            if let Ok(Place::Held(owner, version)) = self.ground.place(page) {
                after = word.emptied(version.later(1));
                view.set_place(page, Place::Void(version.later(1)));
                if owner != self.ground.here() {
                    self.owe(page, Some((owner, version)));
                }
            }
            if word.state() == State::Owned {
                run.push((page, busy, after));
            } else {
                table.turn(page, busy, after);
            }
        }
        self.drop_run(&mut run);
    }

    /// Makes claimed pages in a row holes: each with its claim, and its word behind that.
    fn drop_run(&self, run: &mut Vec<(u64, Word, Word)>) {
        let Some(first) = run.first().map(|one| one.0) else { return };
        self.ground.punch(first, run.len() as u64);
        self.ground.give_room(run.len() as u64);
        for (page, busy, after) in run.drain(..) {
            self.ground.table.turn(page, busy, after);
        }
    }
}
