//! Whose turn it is, in all states of small domains: programs ask on three nodes, are let in,
//! fork, execute, end and die in any order, and the volume moves, stopped at each of its steps; a
//! host's node may die, and its queue with it.

use crate::protocol::{Asked, LATE, Mistake, Queue, Ticket, Use, make};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Asks,
    /// It was let in, and its command has not become the program yet.
    Inside,
    /// It has not attached the volume yet: it was let in, forked or executed.
    Starts,
    Has,
    Over,
    /// It died as it waited, and nobody said so.
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Program {
    node: u16,
    state: State,
    since: u64,
    hold: u64,
    /// A host has heard of it.
    is_heard: bool,
}

/// How far a move is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Move {
    None,
    /// The host has looked which ticket is next, and has done nothing yet.
    Seen(Ticket),
    /// Nobody is let in.
    Closing(Ticket),
    /// The old host has decided, and has the queue.
    Going(u16),
}

/// What may happen still.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Left {
    /// Programs that begin: node, hold.
    begins: Vec<(u16, u64)>,
    forks: u32,
    execs: u32,
    deaths: u32,
    restarts: u32,
    ticks: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    host: u16,
    queue: Queue,
    step: Move,
    programs: Vec<Program>,
    now: u64,
    left: Left,
    /// A host's node has died: programs may wait that it had heard of.
    is_anew: bool,
    moves: u32,
    wrong: Option<String>,
}

/// Time goes by so many ms at once.
const TICK: u64 = LATE / 2;

impl World {
    fn new(has: u16, left: Left) -> Self {
        let program = |state| Program { node: 1, state, since: 0, hold: 0, is_heard: true };
        Self {
            host: 1,
            queue: Queue::default(),
            step: Move::None,
            programs: (0..has).map(|_| program(State::Has)).collect(),
            now: 0,
            left,
            is_anew: false,
            moves: 0,
            wrong: None,
        }
    }

    fn is_hosted(&self) -> bool {
        !matches!(self.step, Move::Going(_))
    }

    fn used(&self) -> Use {
        let of = |state| self.programs.iter().filter(|one| one.state == state).count();
        Use { attached: of(State::Has), starting: of(State::Starts) }
    }

    fn set(&self, at: usize, state: State) -> Self {
        let mut next = self.clone();
        next.programs[at].state = state;
        next
    }

    fn begins(&self) -> Self {
        let mut next = self.clone();
        let (node, hold) = next.left.begins.remove(0);
        let since = self.now;
        next.programs.push(Program { node, state: State::Asks, since, hold, is_heard: false });
        next
    }

    /// A program's node asks the host.
    fn asks(&self, at: usize) -> Self {
        let mut next = self.clone();
        let Program { node, since, hold, .. } = self.programs[at];
        let ticket = Ticket { node, number: at as u64 };
        let asked = Asked { ticket, waited: self.now - since, hold };
        let told = next.queue.ask(self.host, asked, self.now);
        next.programs[at].is_heard = true;
        if told.is_err() {
            return next;
        }
        next.programs[at].state = State::Inside;
        let is_passed = |one: &&Program| {
            one.state == State::Asks
                && one.node != node
                && one.is_heard
                && one.since < since
                && self.now - one.since >= hold
        };
        if let Some(passed) = self.programs.iter().find(is_passed).filter(|_| !self.is_anew) {
            next.wrong = Some(format!("{passed:?} is passed by program {at}"));
        }
        next
    }

    fn forks(&self, at: usize) -> Self {
        let mut next = self.clone();
        next.left.forks -= 1;
        next.programs.push(Program { state: State::Starts, ..self.programs[at] });
        next
    }

    fn executes(&self, at: usize) -> Self {
        let mut next = self.set(at, State::Starts);
        next.left.execs -= 1;
        next
    }

    fn attaches(&self, at: usize) -> Self {
        let mut next = self.set(at, State::Has);
        if !self.is_hosted() || self.host != self.programs[at].node {
            next.wrong = Some(format!("the volume has gone as program {at} starts"));
        }
        next
    }

    fn dies(&self, at: usize) -> Self {
        let mut next = self.set(at, State::Dead);
        next.left.deaths -= 1;
        next
    }

    /// Time goes by, in which programs that are there ask again.
    fn ticks(&self) -> Self {
        let mut next = self.clone();
        next.now += TICK;
        for at in 0..next.programs.len() {
            if next.programs[at].state == State::Asks
                && next.programs[at].is_heard
                && next.is_hosted()
            {
                next = next.asks(at);
            }
        }
        if next.is_hosted() {
            next.queue.expire(next.now);
        }
        next
    }

    fn restarts(&self) -> Self {
        let mut next = self.clone();
        next.left.restarts -= 1;
        next.is_anew = true;
        next.queue = Queue::default();
        if self.is_hosted() {
            next.step = Move::None;
        }
        // A node that begins gives no turns until those have become programs that were let in.
        for program in next.programs.iter_mut().filter(|one| one.state == State::Inside) {
            program.state = State::Starts;
        }
        next
    }

    /// The host's node does its next step.
    fn goes_on(&self) -> Option<Self> {
        let mut next = self.clone();
        match &self.step {
            Move::None => {
                next.step = Move::Seen(self.queue.next(self.host, self.used())?);
            }
            Move::Seen(ticket) => {
                let is_wanted = self.programs[ticket.number as usize].state == State::Asks;
                if !is_wanted {
                    next.queue.withdraw(*ticket);
                }
                let moves = is_wanted && next.queue.moves(*ticket);
                next.step = if moves { Move::Closing(*ticket) } else { Move::None };
            }
            Move::Closing(ticket) => {
                next.step = Move::None;
                if next.queue.decide(self.used()) {
                    next.step = Move::Going(ticket.node);
                    next.moves = 3.min(self.moves + 1);
                    let has = |state| matches!(state, State::Inside | State::Has | State::Starts);
                    if self.programs.iter().any(|one| has(one.state)) {
                        next.wrong = Some("it moves, and a program has it".to_owned());
                    }
                }
            }
            Move::Going(to) => {
                let known = |number| self.programs[number as usize].state == State::Asks;
                next.queue = Queue::arrived(&self.queue.all(self.now), *to, known, self.now);
                (next.host, next.step) = (*to, Move::None);
            }
        }
        Some(next)
    }

    /// All that may happen next.
    fn next(&self) -> Vec<Self> {
        let mut all: Vec<Self> = self.goes_on().into_iter().collect();
        if !self.left.begins.is_empty() {
            all.push(self.begins());
        }
        if self.left.ticks > 0 {
            let mut next = self.ticks();
            next.left.ticks -= 1;
            all.push(next);
        }
        if self.left.restarts > 0 {
            all.push(self.restarts());
        }
        for (at, program) in self.programs.iter().enumerate() {
            match program.state {
                State::Asks => {
                    if self.is_hosted() {
                        all.push(self.asks(at));
                    }
                    if self.left.deaths > 0 {
                        all.push(self.dies(at));
                    }
                }
                State::Inside => all.push(self.becomes(at)),
                State::Starts => all.push(self.attaches(at)),
                State::Has => {
                    all.push(self.set(at, State::Over));
                    if self.left.forks > 0 {
                        all.push(self.forks(at));
                    }
                    if self.left.execs > 0 {
                        all.push(self.executes(at));
                    }
                }
                State::Over | State::Dead => {}
            }
        }
        all
    }

    /// A command that was let in becomes the program.
    fn becomes(&self, at: usize) -> Self {
        let mut next = self.set(at, State::Starts);
        next.queue.left(at as u64);
        next
    }

    /// What comes of it where no more begins, nobody dies, and all go on; programs that have the
    /// volume end, or do not: who waits for ever?
    fn waits_for_ever(&self, ends: bool) -> Option<String> {
        let mut world = self.clone();
        for _ in 0..30 {
            for at in 0..world.programs.len() {
                world = match world.programs[at].state {
                    State::Asks if world.is_hosted() => world.asks(at),
                    State::Inside => world.becomes(at),
                    State::Starts => world.attaches(at),
                    State::Has if ends => world.set(at, State::Over),
                    _ => world,
                };
            }
            world = world.goes_on().unwrap_or(world).ticks();
        }
        let waits = |one: &&Program| one.state == State::Asks;
        let is_elsewhere = |one: &Program| one.node != world.host && one.state == State::Asks;
        if !ends && world.programs.iter().any(is_elsewhere) {
            // It waits for what does not end, and newcomers behind it.
            return None;
        }
        world.programs.iter().find(waits).map(|one| format!("{one:?} waits for ever"))
    }
}

/// The states of a world that are looked at in the short run, and with a mistake.
const STATES: usize = 150_000;

struct Checked {
    states: usize,
    /// Most moves of the volume, of three.
    moves: u32,
    wrong: Option<String>,
}

fn check(world: World, most: usize) -> Checked {
    let mark = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let (mut seen, mut open) = (HashSet::from([mark(&world)]), vec![world]);
    let (mut moves, mut wrong) = (0, None);
    while let Some(world) = open.pop().filter(|_| seen.len() < most) {
        moves = moves.max(world.moves);
        let forever = || [true, false].into_iter().find_map(|ends| world.waits_for_ever(ends));
        wrong = world.wrong.clone().or_else(forever);
        if wrong.is_some() {
            break;
        }
        open.extend(world.next().into_iter().filter(|next| seen.insert(mark(next))));
    }
    Checked { states: seen.len(), moves, wrong }
}

fn worlds() -> Vec<(&'static str, World)> {
    let of =
        |begins: &[(u16, u64)], ticks| Left { begins: begins.to_vec(), ticks, ..Left::default() };
    vec![
        ("one asks elsewhere", World::new(1, Left { forks: 1, execs: 1, ..of(&[(2, 0)], 1) })),
        ("two nodes ask", World::new(1, of(&[(2, 0), (3, 0)], 1))),
        ("newcomers on the host", World::new(1, of(&[(2, 0), (1, TICK), (1, 0)], 2))),
        ("it goes on, and comes home", World::new(0, of(&[(2, 0), (3, 0), (1, 0), (2, 0)], 0))),
        ("newcomers where it comes", World::new(0, of(&[(2, 0), (3, 0), (2, TICK)], 2))),
        ("who waits dies", World::new(1, Left { deaths: 1, ..of(&[(2, 0), (1, 0), (3, 0)], 2) })),
        ("a host's node dies", World::new(1, Left { restarts: 1, ..of(&[(2, 0), (3, 0)], 1) })),
    ]
}

/// All states with `SOLERA_TEST_LONG`, else the first ones.
#[test]
fn a_volume_changes_hands_in_all_states() {
    for (name, world) in worlds() {
        let most = if rotation::all() { usize::MAX } else { STATES };
        let Checked { states, moves, wrong } = check(world, most);
        println!("{name}: {states} states, {moves} moves");
        assert_eq!(wrong, None, "{name}");
        assert!(moves > 0 || states >= STATES, "{name}: it never moves");
    }
}

#[test]
fn each_mistake_with_turns_is_caught() {
    let mistakes = [
        Mistake::StartingUncounted,
        Mistake::InsideUncounted,
        Mistake::LetInWhileMoving,
        Mistake::LookedEarly,
        Mistake::QueueLeftBehind,
        Mistake::WaitBeginsAnew,
        Mistake::HoldUnbounded,
        Mistake::DeadAskerStays,
    ];
    for mistake in mistakes {
        make(Some(mistake));
        let caught = worlds().into_iter().find_map(|(name, world)| {
            let checked = check(world, STATES);
            checked.wrong.map(|wrong| format!("{:7} states of {name}: {wrong}", checked.states))
        });
        make(None);
        println!("{mistake:?}: {}", caught.as_deref().unwrap_or("nobody"));
        assert!(caught.is_some(), "{mistake:?} is caught by nobody");
    }
}
