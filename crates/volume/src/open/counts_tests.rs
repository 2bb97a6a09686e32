//! Counts of opens by a model checker: what is counted is open, with a death at any access.
//!
//! The way in which a description's state and the inode's word change is the code's
//! ([`opens::change`], [`confirm`]); what an open, a close and a recovery do around that stands
//! here once more, without files.

use crate::inode::references::{self, DescState, Maker, OPENS_COUNT, Phase, confirm};
use crate::words::{Dead, Death, Dies, EPOCH, Life, check_deaths};
use loom::sync::atomic::{AtomicU64, Ordering};
use robust::word::Word;
use std::sync::Arc;
use vfs::Desc;

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The last change's description is not moved before its name is overwritten.
    NothingConfirmed,
    /// A recovery does not ask whose name the inode's word has.
    NobodyAsked,
}

/// One inode, and a description of it for each process.
struct World {
    opens: AtomicU64,
    states: [AtomicU64; 2],
}

struct Process {
    world: Arc<World>,
    slot: u32,
    life: Life,
    mistake: Mistake,
}

impl Dies for Process {
    fn life(&self) -> &Life {
        &self.life
    }

    fn access(&self) -> Result<(), Dead> {
        self.life.step(|| {})
    }
}

impl Process {
    fn new(world: &Arc<World>, slot: u32, death: &Death, mistake: Mistake) -> Self {
        Self { world: Arc::clone(world), slot, life: Life::new(death), mistake }
    }

    fn state(&self, index: u32) -> impl Word<Error = Dead> {
        self.see(&self.world.states[index as usize])
    }

    fn confirm(&self, maker: Maker) -> Result<(), Dead> {
        match maker.desc() {
            Some((desc, drops)) if self.mistake != Mistake::NothingConfirmed => {
                confirm(self.state(desc.index()), EPOCH, desc, drops)
            }
            _ => Ok(()),
        }
    }

    fn change(&self, desc: Desc, drops: bool) -> Result<(), Dead> {
        let opens = self.see(&self.world.opens);
        let left =
            references::change(opens, Maker::new(desc, drops), drops, |maker| self.confirm(maker))?;
        assert!(left.is_some_and(|left| left <= 2), "{left:?} references");
        Ok(())
    }

    fn turn(&self, index: u32, from: DescState, to: DescState) -> Result<bool, Dead> {
        let found = self.state(index).load()?;
        let same = DescState::of_word(found, EPOCH) == from;
        Ok(same && self.state(index).cas(found, to.word(EPOCH))?.is_ok())
    }

    fn says(&self, index: u32, phase: Phase) -> Result<(), Dead> {
        let said = DescState { phase, slot: self.slot, generation: 1 };
        self.state(index).store(said.word(EPOCH))
    }

    /// Opens and closes the file by its description.
    fn opens_and_closes(&self) -> Result<(), Dead> {
        let desc = Desc::new(self.slot, 1);
        self.says(desc.index(), Phase::Claimed)?;
        self.change(desc, false)?;
        self.says(desc.index(), Phase::Open)?;
        self.says(desc.index(), Phase::Dropping)?;
        self.change(desc, true)?;
        self.says(desc.index(), Phase::Free)
    }

    /// Finishes what the dead process 0 has begun.
    fn recovers(&self) -> Result<(), Dead> {
        let desc = Desc::new(0, 1);
        let look = || Ok::<_, Dead>(DescState::of_word(self.state(0).load()?, EPOCH));
        let last = |drops| {
            let word = self.see(&self.world.opens).load()?;
            let asks = self.mistake != Mistake::NobodyAsked;
            if asks && Maker::of_word(word) == Maker::new(desc, drops) {
                confirm(self.state(0), EPOCH, desc, drops)?;
            }
            Ok::<_, Dead>(())
        };
        match look()?.phase {
            Phase::Free | Phase::Open => {}
            Phase::Claimed => {
                last(false)?;
                let state = look()?;
                if state.phase == Phase::Claimed {
                    self.turn(0, state, DescState { phase: Phase::Free, ..state })?;
                }
            }
            Phase::Dropping | Phase::Dropped => last(true)?,
        }
        let state = look()?;
        let phase = if state.phase == Phase::Open { Phase::Dropping } else { state.phase };
        if phase == Phase::Free {
            return Ok(());
        }
        assert!(self.turn(0, state, DescState { phase, slot: self.slot, ..state })?);
        if phase == Phase::Dropping {
            self.change(desc, true)?;
        }
        self.says(0, Phase::Free)
    }
}

/// Two open and close a file; the first may die, and the third recovers it then.
fn two_and_a_recoverer(death: &Death, mistake: Mistake) {
    let word = || AtomicU64::new(0);
    let world = Arc::new(World { opens: word(), states: [word(), word()] });
    let dies = Process::new(&world, 0, death, mistake);
    let recovers = Process::new(&world, 2, &Death::never(), mistake);
    let first = loom::thread::spawn(move || {
        if dies.opens_and_closes().is_err() {
            // From here on it is dead: nobody recovers it before.
            assert_eq!(recovers.recovers(), Ok(()));
        }
    });
    let lives = Process::new(&world, 1, &Death::never(), mistake);
    assert_eq!(lives.opens_and_closes(), Ok(()));
    first.join().unwrap();
    let left = world.opens.load(Ordering::Acquire) & OPENS_COUNT;
    assert_eq!(left, 0, "references are left");
}

#[test]
fn what_is_counted_is_open() {
    let points = check_deaths(|death| move || two_and_a_recoverer(&death, Mistake::None));
    assert!(points > 8, "{points}");
}

#[test]
#[should_panic(expected = "references")]
fn a_change_that_confirms_nothing_is_caught() {
    check_deaths(|death| move || two_and_a_recoverer(&death, Mistake::NothingConfirmed));
}

#[test]
#[should_panic(expected = "references")]
fn a_recovery_that_asks_nobody_is_caught() {
    check_deaths(|death| move || two_and_a_recoverer(&death, Mistake::NobodyAsked));
}
