//! Two calls at once: one thread is stopped somewhere inside its call while another thread makes
//! one.
//!
//! Whatever power cut follows, the volume holds what it held before, or the effect of one call, or
//! of both, in an order that explains the calls' results; a call that has returned has its effect.
//! A fence counts for its own thread's stores only. In modes that promise less, only calls that
//! move no data. Where the second call needs a lock of the first, the first goes on after a moment.

use crate::campaign::{Filter, Images, Job, Share, Stop, Tell, is_long, settings, work};
use crate::comparison::{compare, exactly};
use crate::engine::Engine;
use crate::exploration::Report;
use crate::image::{Image, Setting, Told};
use crate::model::Model;
use crate::oracle::{check_volume, exercise, free_space, moves_data};
use crate::pairs::{self, Named};
use crate::recovery::Recovery;
use crate::states::{Limits, State, Tracker};
use crate::workload::{Action, Outcome, System};
use pmem::Hook;
use pmem::trace::Event;
use std::cell::Cell;
use std::collections::HashSet;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use volume::Mode;

/// So long the first thread waits inside its call for the second to return.
const WAIT: Duration = Duration::from_millis(15);
/// Places inside the first call at which it is held up.
const PLACES: u64 = 3;
/// Slots of the first thread; those of the second come behind them.
const SLOTS_EACH: usize = 4;

thread_local! {
    static THREAD: Cell<Option<u8>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    threads: Vec<u8>,
    /// Events of the first thread's call so far.
    count: u64,
    paused: bool,
    returned: [bool; 2],
}

/// Records with threads, and holds up the first one.
struct Referee {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// The event of the first thread's call at which it is held up.
    pause_at: u64,
}

impl Referee {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let mut inner = self.lock();
        inner.events.push(event);
        inner.threads.push(THREAD.get().unwrap_or(0));
        if THREAD.get() != Some(0) {
            return;
        }
        inner.count += 1;
        if inner.count == self.pause_at {
            inner.paused = true;
            self.changed.notify_all();
            let waits = |inner: &mut Inner| !inner.returned[1];
            let held = self.changed.wait_timeout_while(inner, WAIT, waits);
            drop(held.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn returned(&self, thread: u8) {
        let mut inner = self.lock();
        inner.events.push(Event::Mark(thread.to_string()));
        inner.threads.push(thread);
        inner.returned[usize::from(thread)] = true;
        self.changed.notify_all();
    }
}

impl Hook for Referee {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.push(Event::Store { off, bytes: bytes.to_vec(), streamed, at });
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        self.push(Event::Flush { line: off, at });
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.push(Event::Fence { at });
    }
}

/// Two calls that were made at once.
struct Race {
    setting: Setting,
    events: Vec<Event>,
    threads: Vec<u8>,
    first: usize,
    /// The models that may be found: which calls they hold, and the model.
    outcomes: Vec<([bool; 2], Model)>,
    count: u64,
}

/// The calls that are paired: on contents, sizes, names and attributes of the same few files.
fn calls() -> Vec<Named> {
    let wanted = [
        "append",
        "write-blocks",
        "truncate-down",
        "punch",
        "insert",
        "relink",
        "create",
        "create-beside",
        "mkdir",
        "link",
        "unlink",
        "unlink-closed",
        "rename",
        "rename-over",
        "rename-dir",
        "exchange",
        "whiteout",
        "xattr",
    ];
    pairs::calls().into_iter().filter(|(name, _)| wanted.contains(name)).collect()
}

/// Calls that meet one which moves the bytes of their files: compaction, rewriting.
fn beside_moving() -> Vec<Named> {
    let wanted = ["append", "write-blocks", "truncate-down", "punch", "relink", "unlink-closed"];
    let more = pairs::calls().into_iter().filter(|(name, _)| wanted.contains(name));
    pairs::moving_calls().into_iter().chain(more).collect()
}

/// All ordered pairs: the number of the start, and both calls.
fn races() -> Vec<(usize, [Named; 2])> {
    let (calls, beside) = (calls(), beside_moving());
    let moving = pairs::moving_calls().len();
    let ordered = |all: &[Named]| -> Vec<(usize, [Named; 2])> {
        let numbers = (0..all.len()).flat_map(|one| (0..all.len()).map(move |two| (one, two)));
        let both = |one: usize, two: usize| [all[one].clone(), all[two].clone()];
        numbers.map(|(one, two)| (one.min(two), both(one, two))).collect()
    };
    let plain = ordered(&calls).into_iter().map(|(_, both)| (0, both));
    let moved = ordered(&beside).into_iter().filter(|(least, _)| *least < moving);
    plain.chain(moved.map(|(_, both)| (1, both))).collect()
}

/// Explores the share of all ordered pairs.
#[must_use]
pub fn run(share: Share, stop: Stop) -> Report {
    let filter = &Filter::from_environment();
    let images = &Images::new(vec![pairs::start(), pairs::start_in_pieces()]);
    let races = &races();
    let jobs = settings().into_iter().flat_map(move |setting| {
        races.iter().filter_map(move |(start, [one, two])| {
            let both = [&one.1, &two.1];
            let id = format!("{}/{}/race/{}|{}", setting.mode, setting.class, one.0, two.0);
            let work = {
                let id = id.clone();
                move |_: &Tell<'_>| pair(images, *start, setting, (&id, share.seed(&id)), both)
            };
            let exact = setting.mode == Mode::Strict || !both.iter().any(|call| moves_data(call));
            let is_in = share.takes(filter, &id);
            let wanted = exact && is_in;
            wanted.then(|| Job { id, work: Box::new(work) })
        })
    });
    work(jobs, stop)
}

fn pair(
    images: &Images,
    start: usize,
    setting: Setting,
    (id, seed): (&str, u64),
    calls: [&Action; 2],
) -> Report {
    let mut report = Report { workloads: 1, ..Report::default() };
    let attempt = || -> Told<()> {
        let image = images.image(start)?;
        let events = race(image, setting, calls, u64::MAX)?.count;
        for place in 1..=PLACES {
            let race = race(image, setting, calls, events * place / (PLACES + 1) + 1)?;
            report.calls += 2;
            explore(image, &race, seed, &mut report)?;
        }
        Ok(())
    };
    let mut attempt = attempt;
    if let Err(text) = attempt() {
        let again = crate::sequences::again(id);
        report.failures.push(format!("{id}: {text}\n  {calls:?}\n  {again}"));
    }
    report
}

fn race(image: &Image, setting: Setting, calls: [&Action; 2], pause_at: u64) -> Told<Race> {
    let referee = Arc::new(Referee { inner: Mutex::default(), changed: Condvar::new(), pause_at });
    let mut region = image.region(setting)?;
    region.set_hook(referee.clone());
    let volume = image.attach_shared(region, setting)?;
    let mut engines = [Engine::new(volume.clone()), Engine::new(volume.clone())];
    let mut model = image.model.clone();
    for action in pairs::opened() {
        engines.iter_mut().try_for_each(|engine| engine.apply(&action).map(drop)).map_err(told)?;
        model.apply(&action).map_err(told)?;
        model.apply(&action.shifted(SLOTS_EACH)).map_err(told)?;
    }
    let first = referee.lock().events.len();
    let [one, two] = &mut engines;
    let (begun, referee_ref) = (pause_at != u64::MAX, &referee);
    let given: [Outcome; 2] = std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            THREAD.set(Some(0));
            let outcome = one.apply(calls[0]);
            referee_ref.returned(0);
            outcome
        });
        let second = scope.spawn(move || {
            THREAD.set(Some(1));
            let waits = |inner: &mut Inner| !(inner.returned[0] || begun && inner.paused);
            drop(referee_ref.changed.wait_while(referee_ref.lock(), waits));
            let outcome = two.apply(calls[1]);
            referee_ref.returned(1);
            outcome
        });
        [first, second].map(|thread| thread.join().expect("a call does not panic"))
    });
    let inner = std::mem::take(&mut *referee.lock());
    drop(engines);
    drop(volume);
    let end = inner.events.iter().rposition(|event| matches!(event, Event::Mark(_)));
    let end = end.map_or(0, |end| end + 1);
    Ok(Race {
        setting,
        events: inner.events[..end].to_vec(),
        threads: inner.threads,
        first,
        outcomes: outcomes(&model, calls, &given)?,
        count: inner.count,
    })
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What may be found: the effect of one call, or of both in an order that explains their results.
fn outcomes(
    model: &Model,
    calls: [&Action; 2],
    given: &[Outcome; 2],
) -> Told<Vec<([bool; 2], Model)>> {
    let bare = |model: &Model| {
        let mut model = model.clone();
        model.close_all();
        model
    };
    let actions = [calls[0].clone(), calls[1].shifted(SLOTS_EACH)];
    let mut all = vec![([false, false], bare(model))];
    let mut orders = 0;
    for [first, second] in [[0, 1], [1, 0]] {
        let mut model = model.clone();
        let one = model.apply(&actions[first]);
        let between = bare(&model);
        let two = model.apply(&actions[second]);
        if one == given[first] && two == given[second] {
            orders += 1;
            let mut alone = [false, false];
            alone[first] = true;
            all.push((alone, between));
            all.push(([true, true], bare(&model)));
        }
    }
    if orders == 0 {
        return Err(format!("no order of the calls gives {given:?}"));
    }
    Ok(all)
}

fn explore(image: &Image, race: &Race, seed: u64, report: &mut Report) -> Told<()> {
    let mut tracker = Tracker::new(&image.base, &race.events, race.setting.class);
    tracker.of_threads(&race.threads);
    tracker.skip(race.first);
    let returns: Vec<usize> = race.events[race.first..]
        .iter()
        .filter_map(|event| match event {
            Event::Mark(thread) => thread.parse().ok(),
            _ => None,
        })
        .collect();
    let (mut seen, mut wrong) = (HashSet::new(), None);
    let limits = Limits { one_in: if is_long() { 2 } else { 5 }, ..Limits::SPARSE };
    tracker.explore(race.first, &limits, seed ^ race.count, &mut |state, marks| {
        report.states += 1;
        if !seen.insert((state.hash(), marks)) {
            return true;
        }
        report.distinct += 1;
        let used = report.distinct.is_multiple_of(6);
        match judge(image, race, state, &returns[..marks], (used, report.distinct)) {
            Ok(nested) => report.nested += nested,
            Err(text) => wrong = Some(text),
        }
        wrong.is_none()
    });
    wrong.map_or(Ok(()), Err)
}

fn judge(
    image: &Image,
    race: &Race,
    state: &State<'_>,
    returned: &[usize],
    (used, number): (bool, u64),
) -> Told<u64> {
    let setting = race.setting;
    let (recovery, volume) = Recovery::of(image, setting, state.overlay(), number)?;
    let mut engine = Engine::new(volume.clone());
    race.holds(&engine, returned).map_err(|texts| {
        let (name, lost) = (&state.name, state.lost().join(", "));
        format!("{texts}\n  returned {returned:?}, state {name}\n  lost stores: {lost}")
    })?;
    check_volume(&volume)?;
    free_space(&volume)?;
    if used {
        exercise(&mut engine)?;
    }
    drop(engine);
    drop(volume);
    recovery.crash_again(&|volume| race.holds(&Engine::new(volume.clone()), returned))
}

impl Race {
    /// The volume holds one of the outcomes with the effect of all returned calls.
    fn holds(&self, engine: &Engine, returned: &[usize]) -> Told<()> {
        let mut texts = Vec::new();
        let legal = self.outcomes.iter().filter(|(held, _)| returned.iter().all(|&one| held[one]));
        for (held, model) in legal {
            match compare(engine, model, &exactly) {
                Ok(()) => return Ok(()),
                Err(text) => texts.push(format!("not {held:?}: {text}")),
            }
        }
        Err(texts.join("; "))
    }
}
