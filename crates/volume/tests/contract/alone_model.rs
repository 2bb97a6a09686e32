//! Exclusive running (`process/exclusive.rs`) as a model with store buffers, in all its states.
//!
//! The barrier between a call and a newcomer is the kernel's (`membarrier`), which a checker of the
//! code cannot make. So the protocol stands here once more, an access a step. The first process may
//! work alone, and makes calls; two others come, work, and leave. What a process stores by a plain
//! store waits in its buffer, whence it reaches the memory at any time, in order; a locked
//! instruction and the newcomer's barrier drain it. A call that works alone adds to a word by a
//! load and a store, every other one by a locked instruction. The first process may die anywhere.
//!
//! It must hold that nobody else works while one works alone, up to its last store, and that no
//! addition is lost. Each [`Mistake`] is caught.
//!
//! Not modelled: the sleep of a newcomer to whom the kernel refuses the barrier, and the threads of
//! a process that leaves while they are inside calls, which time keeps apart.

use stateright::{Checker, Model, Property};

/// What is left out, or done in another order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A newcomer looks at once at who works alone.
    NoBarrier,
    /// A newcomer looks first, then says that it has come.
    LookFirst,
    /// The header's word is the same each time.
    NoCount,
    /// A call says that it is through before its last store.
    IdleFirst,
    /// Who leaves does not look at which slots are in use.
    NobodyCounted,
}

/// The first process's word.
const IDLE: u8 = 1;
const WORKING: u8 = 2;
/// The header's word: whether it is shared, and how often that began.
const SHARED: u8 = 1;
const BEGUN: u8 = 2;
/// Calls of the first process.
const CALLS: u8 = 4;

/// Words in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Alone,
    Data,
}

/// Where the first process is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// Before a call.
    Rest,
    /// It has said that it works.
    Said,
    /// It works alone.
    Alone,
    /// It has loaded the data's word.
    Loaded(u8),
    /// It has stored it (or, by mistake, said that it is through).
    Stored(u8),
    /// It is shared.
    Among,
    /// It looks around: what it found in the header's word, and which slot comes next.
    Looks(u8, u8),
    Dead,
}

/// Where a newcomer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Comes {
    Outside,
    Slot,
    Said,
    Barrier,
    Works,
    Through,
    /// It has freed its slot.
    Freed,
    /// What it found in the header's word, the slot that it looks at next, and how many are in use.
    Counts(u8, u8, u8),
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    first: At,
    /// What the first process has stored and nobody else sees.
    buffer: Vec<(Word, u8)>,
    /// What it found at its last look around, if nobody else was there.
    found: u8,
    calls: u8,
    others: [Comes; 2],
    alone: u8,
    shared: u8,
    data: u8,
    /// Additions that are made.
    added: u8,
}

impl State {
    fn drain(&mut self) {
        while !self.buffer.is_empty() {
            self.leave_buffer();
        }
    }

    fn leave_buffer(&mut self) {
        match self.buffer.remove(0) {
            (Word::Alone, value) => self.alone = value,
            (Word::Data, value) => self.data = value,
        }
    }

    /// Whether a slot is in use: the first process's is 0.
    fn is_used(&self, slot: u8) -> bool {
        match slot.checked_sub(1) {
            None => true,
            Some(other) => !matches!(
                self.others[usize::from(other)],
                Comes::Outside | Comes::Freed | Comes::Counts(..) | Comes::Gone
            ),
        }
    }

    /// An addition by a locked instruction.
    fn add(&mut self) {
        self.data += 1;
        self.added += 1;
    }

    /// Whether the first process works alone, or what it did so is not seen by all.
    fn works_alone(&self) -> bool {
        matches!(self.first, At::Alone | At::Loaded(_) | At::Stored(_))
            || self.buffer.iter().any(|(word, _)| *word == Word::Data)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    First,
    LooksAround,
    Dies,
    Buffer,
    Other(usize),
    /// It leaves without a look at who is there.
    LeavesSo(usize),
}

struct Protocol(Mistake);

impl Protocol {
    /// The next access of the first process; `None`: none.
    fn first(&self, state: &mut State) -> Option<()> {
        state.first = match state.first {
            At::Rest if state.calls < CALLS => {
                state.buffer.push((Word::Alone, WORKING));
                At::Said
            }
            At::Said if state.shared & SHARED == 0 => At::Alone,
            At::Said => {
                state.buffer.push((Word::Alone, IDLE));
                At::Among
            }
            At::Alone => {
                let stored = state.buffer.iter().rev().find(|(word, _)| *word == Word::Data);
                At::Loaded(stored.map_or(state.data, |(_, value)| *value))
            }
            At::Loaded(data) => {
                let store =
                    [(Word::Data, data + 1), (Word::Alone, IDLE)][usize::from(self.idle_first())];
                state.buffer.push(store);
                At::Stored(data)
            }
            At::Stored(data) => {
                let store =
                    [(Word::Alone, IDLE), (Word::Data, data + 1)][usize::from(self.idle_first())];
                state.buffer.push(store);
                state.added += 1;
                state.calls += 1;
                At::Rest
            }
            At::Among => {
                state.drain();
                state.add();
                state.calls += 1;
                At::Rest
            }
            At::Looks(found, slot @ 1..=2) if !state.is_used(slot) => At::Looks(found, slot + 1),
            At::Looks(_, 1..=2) => {
                state.found = 0;
                At::Rest
            }
            At::Looks(found, _) => {
                if state.found == found {
                    state.drain();
                    if state.shared == found {
                        state.shared &= !SHARED;
                    }
                }
                state.found = found;
                At::Rest
            }
            At::Rest | At::Dead => return None,
        };
        Some(())
    }

    fn idle_first(&self) -> bool {
        self.0 == Mistake::IdleFirst
    }

    /// The next step of a newcomer; `None`: none, or it waits.
    fn other(&self, state: &mut State, other: usize) -> Option<()> {
        let looks_first = self.0 == Mistake::LookFirst;
        let may_go_on = state.alone != WORKING || state.first == At::Dead;
        let next = match state.others[other] {
            Comes::Outside => Comes::Slot,
            Comes::Slot if looks_first && !may_go_on => return None,
            Comes::Slot if looks_first => Comes::Said,
            Comes::Slot => {
                self.say(state);
                Comes::Said
            }
            Comes::Said => {
                if self.0 != Mistake::NoBarrier {
                    state.drain();
                }
                Comes::Barrier
            }
            Comes::Barrier if looks_first => {
                self.say(state);
                Comes::Works
            }
            Comes::Barrier if !may_go_on => return None,
            Comes::Barrier => Comes::Works,
            Comes::Works => {
                state.add();
                Comes::Through
            }
            Comes::Through => Comes::Freed,
            Comes::Freed if state.shared & SHARED == 0 => Comes::Gone,
            Comes::Freed => Comes::Counts(state.shared, 0, 0),
            Comes::Counts(found, slot @ 0..=2, used) => {
                let counts = state.is_used(slot) && self.0 != Mistake::NobodyCounted;
                Comes::Counts(found, slot + 1, used + u8::from(counts))
            }
            Comes::Counts(found, _, used) => {
                if used <= 1 && state.shared == found {
                    state.shared &= !SHARED;
                }
                Comes::Gone
            }
            Comes::Gone => return None,
        };
        state.others[other] = next;
        Some(())
    }

    fn say(&self, state: &mut State) {
        let begun = if self.0 == Mistake::NoCount { 0 } else { BEGUN };
        state.shared = state.shared.wrapping_add(begun) | SHARED;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            first: At::Rest,
            buffer: Vec::new(),
            found: 0,
            calls: 0,
            others: [Comes::Outside; 2],
            alone: IDLE,
            shared: 0,
            data: 0,
            added: 0,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend([Step::First, Step::Other(0), Step::Other(1)]);
        steps.extend((!state.buffer.is_empty()).then_some(Step::Buffer));
        steps.extend((state.first != At::Dead).then_some(Step::Dies));
        steps.extend((state.first == At::Rest && state.calls > 0).then_some(Step::LooksAround));
        let freed = (0..2).filter(|other| state.others[*other] == Comes::Freed);
        steps.extend(freed.map(Step::LeavesSo));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::First => self.first(&mut state)?,
            Step::LooksAround if state.shared & SHARED == 0 => return None,
            Step::LooksAround => state.first = At::Looks(state.shared, 1),
            Step::Dies => {
                // What it was adding counts if it is stored.
                state.drain();
                state.added = state.data;
                state.first = At::Dead;
            }
            Step::Buffer => state.leave_buffer(),
            Step::Other(other) => self.other(&mut state, other)?,
            Step::LeavesSo(other) => state.others[other] = Comes::Gone,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody works beside one that works alone", |_, state: &State| {
                !(state.others.contains(&Comes::Works) && state.works_alone())
            }),
            Property::always("no addition is lost", |_, state: &State| {
                let rests = matches!(state.first, At::Rest | At::Dead) && state.buffer.is_empty();
                !rests || state.data == state.added
            }),
            Property::sometimes("a call works alone again", |_, state: &State| {
                state.first == At::Alone && state.others.contains(&Comes::Gone)
            }),
            Property::sometimes("all come, work and leave", |_, state: &State| {
                state.others == [Comes::Gone; 2] && state.calls == CALLS
            }),
        ]
    }
}

/// What does not hold; the number of states.
fn check(mistake: Mistake) -> (Vec<&'static str>, usize) {
    let checker = Protocol(mistake).checker().spawn_bfs().join();
    let names = ["nobody works beside one that works alone", "no addition is lost"];
    let broken = names.into_iter().filter(|name| checker.discovery(name).is_some()).collect();
    if mistake == Mistake::None {
        checker.assert_properties();
    }
    (broken, checker.unique_state_count())
}

#[test]
fn who_works_alone_is_alone() {
    let (broken, states) = check(Mistake::None);
    assert!(broken.is_empty() && states > 10_000, "{broken:?} in {states} states");
    println!("{states} states");
}

#[test]
fn each_mistake_is_caught() {
    let mistakes = [
        Mistake::NoBarrier,
        Mistake::LookFirst,
        Mistake::NoCount,
        Mistake::IdleFirst,
        Mistake::NobodyCounted,
    ];
    for mistake in mistakes {
        assert!(!check(mistake).0.is_empty(), "{mistake:?}");
    }
}
