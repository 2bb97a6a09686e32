//! Which pages a thread wants next, by the pages at which its touches had to wait (dissertation,
//! 6.4.4, "Prefetching"; the vote is Leap's, Maruf and Chowdhury 2020).
//!
//! The last 32 of these touches *vote*: each step from one to the next is a ballot, and a step that
//! more than half of them have is the trend. Only touches that lie near the newest one vote, in
//! circles that grow: so two streams that a thread reads in turns do not outvote each other. A
//! trend makes a *stream*, which is followed for as long as the thread does: the touch that meets
//! the page behind a window says that the window was used, and doubles the next one. So the page
//! behind a window is its mark, and costs no trap of its own. A stream that ends leaves a window
//! unused, which halves the windows of those that begin.
//!
//! No clock, no socket, no thread, no heap: a thread has one of these beside its signal handler.

/// Touches that vote, at most.
const VOTERS: usize = 32;
/// Equal steps that make a trend, at least: with fewer, touches at random would have trends.
const VOTES: usize = 3;
/// Streams that a thread has at once.
const STREAMS: usize = 8;
/// Pages of the first window of a stream, and of the largest one.
const FIRST: u64 = 2;
pub(crate) const LARGEST: u64 = 64;
/// Pages around a touch in which others vote with it.
const CIRCLES: [u64; 5] = [8, 64, 512, 4096, u64::MAX];
/// A window of so many pages has grown with its stream: what that wants next is known.
const KNOWN: u64 = 16;
/// So many windows further on a touch is of the stream still: what lay between was there already.
const SKIPPED: u64 = 4;

/// How pages are brought ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrefetchMode {
    /// By the vote.
    #[default]
    Auto,
    /// Behind two touches in order.
    Seq,
    /// Behind three touches at equal distances.
    Stride,
    /// Not at all.
    Off,
}

impl PrefetchMode {
    /// The one of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "seq" => Self::Seq,
            "stride" => Self::Stride,
            "off" => Self::Off,
            _ => return None,
        })
    }
}

/// Pages that are wanted next: so many, at this distance from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The distance: negative where a thread goes backward.
    pub step: i64,
    /// How many.
    pub pages: u64,
}

impl Plan {
    /// They, behind the page that was touched, as far as a region of `end` pages has them.
    pub fn behind(self, page: u64, end: u64) -> impl Iterator<Item = u64> {
        let at = move |number: u64| page.checked_add_signed(self.step.checked_mul(number as i64)?);
        (1..=self.pages).map_while(at).take_while(move |page| *page < end)
    }
}

/// What a thread reads at a step.
#[derive(Clone, Copy)]
struct Stream {
    /// Where it was seen last.
    last: u64,
    step: i64,
    /// Pages behind `last` that were brought; 0: there is no stream.
    window: u64,
    /// When it was seen last.
    seen: u64,
    /// Pages of its last window that came.
    came: u64,
}

const NONE: Stream = Stream { last: 0, step: 0, window: 0, seen: 0, came: 0 };

/// The touches of a thread.
#[derive(Clone)]
pub struct Touches {
    /// First and last page of each touch: a call touches several.
    voters: [(u64, u64); VOTERS],
    /// How many there were ever.
    count: u64,
    streams: [Stream; STREAMS],
    /// Pages that came, of windows that were used and of others, since that was asked.
    outcome: (u64, u64),
    /// What windows grow to.
    limit: u64,
}

impl Default for Touches {
    fn default() -> Self {
        Self::new()
    }
}

/// From one page to another one.
fn step(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// The value that more than half of some have (Boyer and Moore's vote, and the count of it).
fn majority(ballots: &[i64]) -> Option<i64> {
    let (mut leader, mut lead) = (0, 0_usize);
    for ballot in ballots {
        if lead == 0 {
            leader = *ballot;
        }
        if leader == *ballot { lead += 1 } else { lead -= 1 }
    }
    let votes = ballots.iter().filter(|ballot| **ballot == leader).count();
    (votes * 2 > ballots.len()).then_some(leader)
}

impl Touches {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            voters: [(0, 0); VOTERS],
            count: 0,
            streams: [NONE; STREAMS],
            outcome: (0, 0),
            limit: LARGEST,
        }
    }

    /// A touch of pages that are elsewhere, from `first` to `last`: what is wanted behind `last`.
    pub fn touched(&mut self, ahead: PrefetchMode, first: u64, last: u64) -> Plan {
        if ahead == PrefetchMode::Off {
            return Plan::default();
        }
        self.count += 1;
        if let Some(plan) = self.follow(first, last) {
            return plan;
        }
        let newest = (self.count - 1) as usize % VOTERS;
        self.voters[newest] = (first, last);
        let trend = match ahead {
            PrefetchMode::Auto => self.vote(),
            PrefetchMode::Seq => {
                self.voters().any(|one| one.1.wrapping_add(1) == first).then_some(1)
            }
            _ => self.equal_steps(),
        };
        // A call that goes on by more than a page repeats its length, too, which is not known.
        let trend = trend.filter(|step| *step != 0 && (first == last || *step == 1));
        trend.map_or(Plan::default(), |step| self.begin(step, last))
    }

    /// So many pages come of what was told last: gives how many of those before were of windows
    /// that were used, and of others, as far as that is known since this was asked last.
    pub fn comes(&mut self, pages: u64) -> (u64, u64) {
        let count = self.count;
        if let Some(stream) =
            self.streams.iter_mut().find(|one| one.window > 0 && one.seen == count)
        {
            stream.came = pages;
        }
        std::mem::take(&mut self.outcome)
    }

    /// The stream of which the newest touch ended at this page, if it has lasted: its step, and its
    /// window.
    pub fn lasting(&self, last: u64) -> Option<Plan> {
        let is_it =
            |one: &&Stream| one.window >= KNOWN && one.seen == self.count && one.last == last;
        let found = self.streams.iter().find(is_it);
        found.map(|one| Plan { step: one.step, pages: one.window })
    }

    /// The stream that a touch goes on with.
    fn follow(&mut self, first: u64, last: u64) -> Option<Plan> {
        let count = self.count;
        let steps_on = |stream: &Stream| {
            let (way, step) = (step(stream.last, first), stream.step);
            let is_on = stream.window > 0 && way.checked_rem(step) == Some(0);
            let steps = if is_on { u64::try_from(way / step).unwrap_or(0) } else { 0 };
            (1..=SKIPPED * (stream.window + 1)).contains(&steps).then_some(steps)
        };
        let found = self.streams.iter_mut().find_map(|one| Some((steps_on(one)?, one)))?;
        let (steps, stream) = found;
        // A page of the window itself is one that has not come, or has left again.
        if steps > stream.window {
            if stream.window >= self.limit {
                self.limit = (self.limit * 2).min(LARGEST);
            }
            stream.window = (stream.window * 2).min(self.limit);
        }
        (stream.last, stream.seen) = (last, count);
        self.outcome.0 += std::mem::take(&mut stream.came);
        Some(Plan { step: stream.step, pages: stream.window })
    }

    /// A stream begins in the place of the one that was not seen for longest.
    fn begin(&mut self, step: i64, last: u64) -> Plan {
        let pages = FIRST.min(self.limit);
        let new = Stream { last, step, window: pages, seen: self.count, came: 0 };
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.seen);
        if let Some(place) = oldest {
            if place.window > 0 {
                // Its last window was brought in vain.
                self.outcome.1 += place.came;
                self.limit = (place.window / 2).max(FIRST);
            }
            *place = new;
        }
        Plan { step, pages }
    }

    /// Touches that may vote, the newest first, without the newest of all.
    fn voters(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let known = self.count.min(VOTERS as u64);
        (2..=known).map(|back| self.voters[(self.count - back) as usize % VOTERS])
    }

    /// The trend around the newest touch.
    fn vote(&self) -> Option<i64> {
        CIRCLES.into_iter().find_map(|circle| self.vote_within(circle))
    }

    fn vote_within(&self, circle: u64) -> Option<i64> {
        let newest = self.voters[(self.count - 1) as usize % VOTERS];
        let mut ballots = [0; VOTERS];
        let (mut count, mut next) = (0, newest);
        for voter in self.voters().filter(|one| one.1.abs_diff(newest.0) <= circle) {
            ballots[count] = step(voter.1, next.0);
            (count, next) = (count + 1, voter);
        }
        // The newest ones first: a trend may have begun just now.
        [4, 8, 16, VOTERS].into_iter().find_map(|asked| {
            let asked = &ballots[..count.min(asked)];
            let found = majority(asked).filter(|step| *step == asked[0])?;
            let votes = asked.iter().filter(|step| **step == found).count();
            (votes >= VOTES).then_some(found)
        })
    }

    /// The step from the touch before the newest one to it, if the one before was as long.
    fn equal_steps(&self) -> Option<i64> {
        let newest = self.voters[(self.count - 1) as usize % VOTERS];
        let mut before = self.voters();
        let (one, two) = (before.next()?, before.next()?);
        let steps = (step(one.1, newest.0), step(two.1, one.0));
        (steps.0 == steps.1).then_some(steps.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What came of a thread's accesses, of which those to pages that are not there yet are seen.
    #[derive(Default, Debug)]
    struct Outcome {
        touched: BTreeSet<u64>,
        here: BTreeSet<u64>,
        touches: u64,
        ahead: u64,
    }

    impl Outcome {
        /// How many of the pages that were brought ahead were used, of 1000.
        fn used(&self) -> u64 {
            (self.touched.len() as u64 - self.touches) * 1000 / self.ahead.max(1)
        }
    }

    #[test]
    fn windows_are_used_or_not_and_each_page_counts_once() {
        let (mut touches, mut sums, mut came) = (Touches::new(), (0, 0), 0);
        // 32 runs of 200 pages, far from each other: the last window of each is in vain.
        for run in 0..32 {
            let mut here = 0;
            for page in 0..200 {
                if page >= here {
                    let at = run * 1_000_000 + page;
                    let plan = touches.touched(PrefetchMode::Auto, at, at);
                    let known = touches.comes(plan.pages);
                    sums = (sums.0 + known.0, sums.1 + known.1);
                    (here, came) = (page + 1 + plan.pages, came + plan.pages);
                }
            }
        }
        let pending: u64 = touches.streams.iter().map(|stream| stream.came).sum();
        assert_eq!(sums.0 + sums.1 + pending, came);
        assert!(sums.0 > 1000 && sums.1 > 24 * 16 && pending > 0, "{sums:?}, {pending}");
    }

    fn run(ahead: PrefetchMode, pages: u64, accesses: impl Iterator<Item = u64>) -> Outcome {
        let (mut touches, mut outcome) = (Touches::new(), Outcome::default());
        for page in accesses {
            outcome.touched.insert(page);
            if outcome.here.insert(page) {
                outcome.touches += 1;
                let plan = touches.touched(ahead, page, page);
                let wanted = plan.behind(page, pages);
                outcome.ahead += wanted.filter(|page| outcome.here.insert(*page)).count() as u64;
            }
        }
        outcome
    }

    /// A fixed sequence in no order (xorshift64).
    fn random(pages: u64) -> impl Iterator<Item = u64> {
        let mut state = 88_172_645_463_325_252_u64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % pages
        })
    }

    #[test]
    fn pages_in_order_are_touched_once_a_window() {
        let pages = 1 << 18;
        for (ahead, touches) in [
            (PrefetchMode::Auto, 4045),
            (PrefetchMode::Seq, 4044),
            (PrefetchMode::Stride, 4045),
            (PrefetchMode::Off, pages),
        ] {
            let outcome = run(ahead, pages, 0..pages);
            assert!(outcome.touches <= touches, "{ahead:?}: {}", outcome.touches);
            assert_eq!(outcome.here.len() as u64, pages);
        }
        let backward = run(PrefetchMode::Auto, pages, (0..pages).rev());
        assert!(backward.touches <= 4045, "{}", backward.touches);
    }

    #[test]
    fn a_stride_is_found_and_by_seq_it_is_not() {
        let pages = 1 << 16;
        let outcome = run(PrefetchMode::Auto, pages, (0..pages).step_by(3));
        assert!(outcome.used() >= 990, "{} of 1000 used", outcome.used());
        assert!(outcome.touches < 400, "{}", outcome.touches);
        let outcome = run(PrefetchMode::Seq, pages, (0..pages).step_by(3));
        assert_eq!(outcome.ahead, 0);
    }

    #[test]
    fn streams_in_turns_are_found_whatever_lies_between_them() {
        let pages = 1 << 16;
        for between in [51, 201, 1001, 30_001] {
            let turns = (0..4000).flat_map(|page| [page * 2, page * 2 + between]);
            let outcome = run(PrefetchMode::Auto, pages, turns);
            assert!(outcome.used() >= 900, "{between}: {} of 1000", outcome.used());
            let touched = outcome.touched.len() as u64;
            assert!(outcome.touches < touched / 4, "{between}: {} touches", outcome.touches);
        }
        // One forward by 2, one backward, and another program's noise.
        let noise = random(pages).step_by(2);
        let turns = (0..8192).zip(noise).flat_map(|(page, noise)| {
            [page * 2 + 1000, 60_000 - page].into_iter().chain((page % 4 == 0).then_some(noise))
        });
        let outcome = run(PrefetchMode::Auto, pages, turns);
        assert!(outcome.ahead > 12_000, "{}", outcome.ahead);
        assert!(outcome.used() >= 900, "{} of 1000", outcome.used());
    }

    #[test]
    fn nothing_is_brought_ahead_of_touches_at_random() {
        for pages in [1 << 11, 1 << 14, 1 << 20] {
            let (mut touches, count) = (Touches::new(), 50_000);
            let ahead = |page| touches.touched(PrefetchMode::Auto, page, page).pages;
            let ahead: u64 = random(pages).take(count).map(ahead).sum();
            assert!(ahead * 50 < count as u64, "{pages}: {ahead} ahead of {count}");
        }
    }

    #[test]
    fn what_is_not_used_makes_windows_small() {
        let mut touches = Touches::new();
        // Runs of 64 pages, far from each other, each of which leaves a window unused.
        let mut largest = Vec::new();
        for run in 0..32 {
            let (mut here, mut window) = (0, 0);
            for page in 0..64 {
                if page >= here {
                    let at = run * 1_000_000 + page;
                    let plan = touches.touched(PrefetchMode::Auto, at, at);
                    here = page + 1 + plan.pages;
                    window = plan.pages.max(window);
                }
            }
            largest.push(window);
        }
        assert_eq!(largest[..STREAMS], [32; STREAMS], "none has ended yet, as far as is known");
        assert!(largest[STREAMS..].iter().all(|window| *window <= 32), "{largest:?}");
        assert!(touches.limit < LARGEST);
    }

    #[test]
    fn calls_in_order_are_a_stream_and_calls_at_a_distance_are_none() {
        let (mut touches, mut plan) = (Touches::new(), Plan::default());
        for call in 0..4 {
            plan = touches.touched(PrefetchMode::Auto, call * 4, call * 4 + 3);
        }
        assert_eq!(plan, Plan { step: 1, pages: 2 });
        assert_eq!(plan.behind(15, 17).collect::<Vec<_>>(), [16]);
        let mut touches = Touches::new();
        for call in 0..8 {
            assert_eq!(touches.touched(PrefetchMode::Auto, call * 100, call * 100 + 3).pages, 0);
        }
    }

    #[test]
    fn a_plan_ends_with_the_region() {
        let plan = Plan { step: -3, pages: 64 };
        assert_eq!(plan.behind(7, 100).collect::<Vec<_>>(), [4, 1]);
        let plan = Plan { step: i64::MAX, pages: 64 };
        assert_eq!(plan.behind(7, u64::MAX).count(), 1);
    }
}
