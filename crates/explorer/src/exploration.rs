//! The explorer's core: runs a case, takes the states that a power cut could leave, recovers and
//! judges each.

use crate::campaign::Share;
use crate::cases::Case;
use crate::engine::Engine;
use crate::image::{Image, Pinned, Recorder, Setting, Told, Volatile, Window, volatile_overlay};
use crate::model::Model;
use crate::oracle::{Call, check_volume, exercise, free_space, remove_all, remove_all_backwards};
use crate::recovery::Recovery;
use crate::states::{Limits, Overlay, State, Tracker, mix};
use crate::workload::{Action, System};
use pmem::trace::Event;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use volume::Volume;

/// What was explored and what was wrong.
#[derive(Default, Debug)]
#[allow(missing_docs)]
pub struct Report {
    pub workloads: u64,
    pub calls: u64,
    pub states: u64,
    pub distinct: u64,
    pub nested: u64,
    pub failures: Vec<String>,
    /// Where the last failure was, if it was in a state: what a search for a shorter workload
    /// needs.
    pub broken: Option<Broken>,
}

/// The call and the state of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Broken {
    pub call: usize,
    pub state: u64,
}

impl Report {
    /// Both.
    pub fn add(&mut self, other: Report) {
        self.workloads += other.workloads;
        self.calls += other.calls;
        self.states += other.states;
        self.distinct += other.distinct;
        self.nested += other.nested;
        self.failures.extend(other.failures);
        self.broken = other.broken.or(self.broken);
    }

    /// A report of one failure outside any state.
    #[must_use]
    pub fn failed(text: String) -> Self {
        Self { workloads: 1, failures: vec![text], ..Self::default() }
    }
}

/// A traced run of a case.
struct Run<'c> {
    events: Vec<Event>,
    /// The model before the first call and after each, with nothing open.
    models: Vec<Model>,
    calls: Vec<&'c Action>,
    /// Volatile lines at each mark: before the first call, after it, before the second, ...
    live: Vec<Overlay>,
    /// When it ended.
    ended: vfs::Nanos,
}

/// What is done with a recovered volume once its contents are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    No,
    /// It is used, and emptied.
    AndEmpty,
    /// The same, each directory's last entry going first.
    AndEmptyBackwards,
}

/// Which states of a case to judge.
pub struct Selection<'s> {
    /// Identity of the case: what a failure prints.
    pub id: &'s str,
    /// Draws states.
    pub seed: u64,
    /// Only the state of this number.
    pub only: Option<u64>,
    /// How many states.
    pub limits: Limits,
    /// One recovered volume in so many is also used and emptied.
    pub use_one_in: u64,
    /// The calls may find the volume full.
    pub may_fill: bool,
    /// Each call is made on another processor than the one before, so by another lane.
    pub by_turns: bool,
}

impl<'s> Selection<'s> {
    /// All states within `limits`, drawn by this commit, each volume used.
    #[must_use]
    pub fn all(id: &'s str, limits: Limits) -> Self {
        let seed = Share::Drawn.seed(id);
        Self { id, seed, only: None, limits, use_one_in: 1, may_fill: false, by_turns: false }
    }
}

/// A number for everything that is drawn for a case.
pub(crate) fn seed_of(id: &str) -> u64 {
    id.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> vfs::Nanos {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_nanos() as vfs::Nanos
}

fn bare(model: &Model) -> Model {
    let mut model = model.clone();
    model.close_all();
    model
}

/// Whether the volume's answer is the model's. A full volume may answer so: then the call changed
/// nothing, and is not made on the model.
fn both(engine: &mut Engine, model: &mut Model, action: &Action, may_fill: bool) -> Told<()> {
    let found = engine.apply(action);
    if may_fill && found == Err(rustix::io::Errno::NOSPC) {
        return Ok(());
    }
    let expected = model.apply(action);
    if found == expected {
        Ok(())
    } else {
        Err(format!("{action:?} gives {found:?}, not {expected:?}"))
    }
}

/// Attaches, does what comes before, then the calls, under a trace.
fn run<'c>(
    image: &Image,
    case: &'c Case,
    setting: Setting,
    selection: &Selection<'_>,
) -> Told<Run<'c>> {
    let may_fill = image.full || selection.may_fill;
    // The lane and the group of a call are its processor's: the same ones again for the same case.
    let _pinned = Pinned::to(seed_of(selection.id) as usize);
    let recorder = Arc::new(Recorder::default());
    let mut region = image.region(setting)?;
    region.set_hook(recorder.clone());
    let window = Window::of(&region);
    let volume = image.attach(region, setting)?;
    let mut engine = Engine::new(volume);
    let mut model = image.model.clone();
    // The image was detached orderly: every size in it is durable.
    model.apply(&Action::SyncAll).map_err(|errno| format!("{errno:?}"))?;
    let poker = Arc::clone(&recorder);
    engine.set_poke(Box::new(move |off, bytes| {
        window.poke(&poker, off, bytes).expect("memory that is mapped can be stored to");
    }));
    for action in &case.before {
        both(&mut engine, &mut model, action, may_fill)?;
    }
    let mut models = vec![bare(&model)];
    let mut calls = Vec::new();
    let mut live = Vec::new();
    let volatile = || window.volatile_lines(&recorder).map_err(|error| error.to_string());
    for (number, action) in case.calls.iter().enumerate() {
        let turn = seed_of(selection.id) as usize + 1 + number;
        let _elsewhere = selection.by_turns.then(|| Pinned::to(turn));
        live.push(volatile()?);
        recorder.trace.mark("begin");
        both(&mut engine, &mut model, action, may_fill)?;
        recorder.trace.mark("end");
        live.push(volatile()?);
        models.push(bare(&model));
        calls.push(action);
    }
    // The orderly detach is not part of the crash.
    let events = recorder.trace.take();
    let ended = now();
    drop(engine);
    Ok(Run { events, models, calls, live, ended })
}

/// Explores one case; failures are told in the report.
pub fn explore(image: &Image, case: &Case, setting: Setting, selection: &Selection<'_>) -> Report {
    let attempt =
        std::panic::catch_unwind(AssertUnwindSafe(|| run(image, case, setting, selection)));
    let run = match attempt {
        Ok(Ok(run)) => run,
        Ok(Err(text)) => return Report::failed(format!("{}: {text}", selection.id)),
        Err(_) => return Report::failed(format!("{}: the call panicked", selection.id)),
    };
    let mut report = Report { workloads: 1, ..Report::default() };
    report.calls = run.calls.len() as u64;
    let is_begin = |event: &Event| matches!(event, Event::Mark(text) if text == "begin");
    let Some(first) = run.events.iter().position(is_begin) else { return report };
    let mut tracker = Tracker::new(&image.base, &run.events, setting.class);
    tracker.skip(first);
    let mut seen = HashSet::new();
    tracker.explore(first, &selection.limits, selection.seed, &mut |state, marks| {
        let number = report.states;
        report.states += 1;
        if !seen.insert((state.hash(), marks)) || selection.only.is_some_and(|only| only != number)
        {
            return true;
        }
        report.distinct += 1;
        let judged = std::panic::catch_unwind(AssertUnwindSafe(|| {
            judge(image, &run, setting, state, (marks, number, selection.use_one_in))
        }));
        let text = match judged {
            Ok(Ok(nested)) => {
                report.nested += nested;
                return true;
            }
            Ok(Err(text)) => text,
            Err(_) => "recovery or use panicked".into(),
        };
        report.broken = Some(Broken { call: marks.saturating_sub(1) / 2, state: number });
        report.failures.push(describe(selection.id, number, &run, state, marks, &text));
        false
    });
    report
}

/// The call sites of flushes and fences that the calls themselves reach, recovery and use apart.
#[cfg(feature = "inject")]
#[must_use]
pub fn sites_of_calls(
    image: &Image,
    case: &Case,
    setting: Setting,
    selection: &Selection<'_>,
) -> Vec<&'static std::panic::Location<'static>> {
    let Ok(run) = run(image, case, setting, selection) else { return Vec::new() };
    let is_begin = |event: &Event| matches!(event, Event::Mark(text) if text == "begin");
    let calls = run.events.iter().skip_while(|event| !is_begin(event));
    let site = |event: &Event| match event {
        Event::Flush { at, .. } | Event::Fence { at } => Some(*at),
        _ => None,
    };
    calls.filter_map(site).collect()
}

fn describe(
    id: &str,
    number: u64,
    run: &Run<'_>,
    state: &State<'_>,
    marks: usize,
    text: &str,
) -> String {
    let call = run.calls[marks.saturating_sub(1) / 2];
    let lost = state.lost();
    let when = if marks % 2 == 1 { "during" } else { "after" };
    format!(
        "{id}#{number}: {text}\n  crash {when} {call:?}\n  state {}\n  lost stores: {}",
        state.name,
        lost.join(", ")
    )
}

/// The call in flight or just returned after so many marks, and whether it has returned. Between
/// calls nothing is in flight.
fn call_at<'r>(run: &'r Run<'_>, setting: Setting, marks: usize) -> (Call<'r>, bool) {
    let index = marks.saturating_sub(1) / 2;
    let call = Call {
        before: &run.models[index],
        after: &run.models[index + 1],
        action: run.calls[index],
        mode: setting.mode,
        latest: run.ended,
    };
    (call, marks > 0 && marks.is_multiple_of(2))
}

/// Recovers the state, compares, uses and empties the volume; crashes again inside some recoveries.
/// Gives the number of those second crashes.
fn judge(
    image: &Image,
    run: &Run<'_>,
    setting: Setting,
    state: &State<'_>,
    (marks, number, use_one_in): (usize, u64, u64),
) -> Told<u64> {
    let kinds = [Volatile::Before, Volatile::Live, Volatile::Garbage];
    // While a call runs, volatile words may say what they said when it began: what they say later
    // is stored behind fences that this state may not have passed.
    let live = &run.live[marks.saturating_sub(1)];
    let mut overlay = volatile_overlay(kinds[(number % 3) as usize], live);
    overlay.extend(state.overlay());
    let (call, returned) = call_at(run, setting, marks);
    let used = match (number.is_multiple_of(use_one_in), number / use_one_in % 2) {
        (false, _) => Use::No,
        (true, 0) => Use::AndEmpty,
        (true, _) => Use::AndEmptyBackwards,
    };
    let (recovery, volume) = Recovery::of(image, setting, overlay, number)?;
    check_recovered(image, &volume, &call, returned, used)?;
    drop(volume);
    recovery.crash_again(&|volume| call.check(&Engine::new(volume.clone()), returned))
}

pub(crate) fn check_recovered(
    image: &Image,
    volume: &Arc<Volume>,
    call: &Call<'_>,
    returned: bool,
    used: Use,
) -> Told<()> {
    let mut engine = Engine::new(volume.clone());
    engine.latest = call.latest;
    call.check(&engine, returned)?;
    engine.latest = vfs::Nanos::MAX;
    check_volume(volume)?;
    let free = free_space(volume)?;
    if used == Use::No {
        return Ok(());
    }
    if !image.full {
        exercise(&mut engine)?;
        let left = free_space(volume)?;
        if left != free {
            return Err(format!("using it has changed the free space from {free} to {left}"));
        }
        call.check(&engine, returned).map_err(|text| format!("after using it: {text}"))?;
    }
    match used {
        Use::AndEmptyBackwards => remove_all_backwards(&engine)?,
        _ => remove_all(&engine)?,
    }
    check_volume(volume).map_err(|text| format!("emptied: {text}"))?;
    let left = free_space(volume)?;
    if left != image.free_when_empty {
        let lost = image.free_when_empty.abs_diff(left);
        return Err(format!("emptied, {lost} bytes are not free, or free that never were"));
    }
    exercise(&mut engine)
}
