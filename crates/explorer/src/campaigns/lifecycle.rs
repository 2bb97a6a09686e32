//! Crashes during operations on whole volumes: attaching, detaching, growing, trimming, formatting,
//! upgrading.
//!
//! Identities: `mode/class/life/EVENT`. An attach or a detach changes nothing; a volume that is
//! growing has its old size or the new one; one that is being formatted is the old volume, an empty
//! one, or none; one that is being upgraded holds what it held, in the old length of its runtime or
//! in the new one.

use crate::campaign::{Filter, Images, Job, Share, Stop, Tell, work};
use crate::engine::Engine;
use crate::exploration::{Report, Use, check_recovered};
use crate::image::{
    Image, Pinned, Recorder, Setting, Told, VOLUME_SIZE, Volatile, Window, volatile_overlay,
};
use crate::model::Model;
use crate::oracle::{Call, check_volume, exercise, free_space};
use crate::recovery::Recovery;
use crate::states::{Limits, Overlay, State, Tracker};
use crate::workload::short::{close, file, open, unlink, write_at};
use crate::workload::{Action, System};
use pmem::trace::Event;
use std::collections::HashSet;
use std::sync::Arc;
use volume::{FormatOptions, Volume, format_region, upgrade_region};

/// Bytes of the volume that grows.
const SMALL_SIZE: u64 = 18 << 20;

/// What is done to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Attach,
    Detach,
    Grow,
    Trim,
    Format,
    Recover,
    Undo,
    Upgrade,
}

/// A traced life: its events from the mark `begin` on are explored.
struct Lived {
    events: Vec<Event>,
    /// Volatile lines towards its end.
    live: Overlay,
    /// What the volume held before, and holds after.
    model: Model,
}

/// Explores the share of it, in these settings.
#[must_use]
pub fn run(settings: Vec<Setting>, share: Share, stop: Stop) -> Report {
    let filter = &Filter::from_environment();
    let starts = || vec![crate::pairs::start()];
    let (images, small) =
        (&Images::sized(starts(), VOLUME_SIZE), &Images::sized(starts(), SMALL_SIZE));
    let lives = [
        Life::Attach,
        Life::Detach,
        Life::Grow,
        Life::Trim,
        Life::Format,
        Life::Recover,
        Life::Undo,
        Life::Upgrade,
    ];
    let jobs = settings.into_iter().flat_map(move |setting| {
        lives.into_iter().filter_map(move |life| {
            let id = format!("{}/{}/life/{life:?}", setting.mode, setting.class).to_lowercase();
            let images = if life == Life::Grow { small } else { images };
            let work = {
                let id = id.clone();
                move |_: &Tell<'_>| match images
                    .image(0)
                    .and_then(|image| one(image, setting, life, &id))
                {
                    Ok(report) => report,
                    Err(text) => Report::failed(format!("{id}: {text}")),
                }
            };
            let is_in = share.takes(filter, &id);
            is_in.then(|| Job { id, work: Box::new(work) })
        })
    });
    work(jobs, stop)
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Some calls after which the free map is another one.
fn some_calls(engine: &mut Engine, model: &mut Model) -> Told<()> {
    let calls = [
        file("new"),
        open("new", 0),
        write_at(0, 90, 0, 30_000),
        close(0),
        unlink("b"),
        open("a", 1),
        write_at(1, 91, 100, 5000),
        close(1),
    ];
    for call in calls {
        let (expected, found) = (model.apply(&call), engine.apply(&call));
        if expected != found {
            return Err(format!("{call:?} gives {found:?}, not {expected:?}"));
        }
    }
    Ok(())
}

fn live_through(image: &Image, setting: Setting, life: Life) -> Told<Lived> {
    let recorder = Arc::new(Recorder::default());
    let mut region = image.region(setting)?;
    region.set_hook(recorder.clone());
    let window = Window::of(&region);
    let mut model = image.model.clone();
    if life == Life::Format {
        recorder.trace.mark("begin");
        let options = FormatOptions { groups: Some(1), seed: Some(2), ..FormatOptions::default() };
        format_region(&region, &options).map_err(told)?;
        recorder.trace.mark("end");
        return Ok(Lived { events: recorder.trace.take(), live: Overlay::new(), model });
    }
    if life == Life::Attach {
        recorder.trace.mark("begin");
    }
    let volume = image.attach(region, setting)?;
    if life == Life::Attach {
        recorder.trace.mark("end");
        let live = window.volatile_lines(&recorder).map_err(told)?;
        return Ok(Lived { events: recorder.trace.take(), live, model });
    }
    let mut engine = Engine::new(volume.clone());
    some_calls(&mut engine, &mut model)?;
    drop(engine);
    let live = window.volatile_lines(&recorder).map_err(told)?;
    recorder.trace.mark("begin");
    match life {
        Life::Grow => volume.grow(VOLUME_SIZE).map_err(told)?,
        _ => drop(Arc::try_unwrap(volume).map_err(|_| "the volume is in use")?),
    }
    recorder.trace.mark("end");
    Ok(Lived { events: recorder.trace.take(), live, model })
}

fn one(image: &Image, setting: Setting, life: Life, id: &str) -> Told<Report> {
    if life == Life::Trim {
        return trim(image, setting);
    }
    if life == Life::Recover {
        return recover(image, setting, id);
    }
    if life == Life::Undo {
        return undo(image, setting, id);
    }
    if life == Life::Upgrade {
        return upgrade(setting, id);
    }
    let lived = live_through(image, setting, life)?;
    let mut report = Report { workloads: 1, calls: 1, ..Report::default() };
    let first = begin_of(&lived.events)?;
    let mut tracker = Tracker::new(&image.base, &lived.events, setting.class);
    tracker.skip(first);
    let limits = if life == Life::Format { Limits::THIN } else { Limits::SPARSE };
    let mut seen = HashSet::new();
    tracker.explore(first, &limits, 1, &mut |state, marks| {
        report.states += 1;
        let kinds = [Volatile::Before, Volatile::Live, Volatile::Garbage];
        let fresh = seen.insert((state.hash(), report.states % 3, marks));
        if !fresh {
            return true;
        }
        report.distinct += 1;
        let kind = kinds[(report.states % 3) as usize];
        let how = (kind, report.distinct);
        match judge(image, setting, life, &lived, state, how, marks > 1) {
            Ok(nested) => report.nested += nested,
            Err(text) => {
                let (name, lost) = (&state.name, state.lost().join(", "));
                let again = crate::sequences::again(id);
                report.failures.push(format!(
                    "{id}: {text}\n  state {name} ({kind:?} volatile)\n  lost stores: {lost}\n  \
                     {again}"
                ));
            }
        }
        report.failures.is_empty()
    });
    Ok(report)
}

fn judge(
    image: &Image,
    setting: Setting,
    life: Life,
    lived: &Lived,
    state: &State<'_>,
    (kind, number): (Volatile, u64),
    ended: bool,
) -> Told<u64> {
    let mut overlay = volatile_overlay(kind, &lived.live);
    overlay.extend(state.overlay());
    if life == Life::Format {
        let attached = image.attach(image.crashed(setting, &overlay)?, setting);
        return judge_formatted(image, setting, attached, ended).map(|()| 0);
    }
    let (recovery, volume) = Recovery::of(image, setting, overlay, number)?;
    let size = volume.info().map_err(told)?.size_bytes;
    if life == Life::Grow && ended && size <= SMALL_SIZE {
        return Err(format!("it has {size} bytes after it has grown"));
    }
    unchanged(image, setting, &volume, &lived.model, life != Life::Grow)?;
    drop(volume);
    recovery.crash_again(&|volume| unchanged(image, setting, volume, &lived.model, false))
}

/// The volume holds the model, and can be used; `emptied`: its free space when empty is the
/// image's.
fn unchanged(
    image: &Image,
    setting: Setting,
    volume: &Arc<Volume>,
    model: &Model,
    emptied: bool,
) -> Told<()> {
    let (action, mode, latest) = (&Action::SyncAll, setting.mode, vfs::Nanos::MAX);
    let call = Call { before: model, after: model, action, mode, latest };
    if emptied {
        return check_recovered(image, volume, &call, true, Use::AndEmpty);
    }
    let mut engine = Engine::new(volume.clone());
    call.check(&engine, true)?;
    check_volume(volume)?;
    free_space(volume)?;
    exercise(&mut engine)?;
    check_volume(volume)
}

fn judge_formatted(
    image: &Image,
    setting: Setting,
    attached: Told<Arc<Volume>>,
    ended: bool,
) -> Told<()> {
    let volume = match attached {
        Ok(volume) => volume,
        Err(text) if ended || text.contains("recovery finds") => return Err(text),
        Err(_) => return Ok(()),
    };
    let empty = unchanged(image, setting, &volume, &Model::default(), false);
    if empty.is_ok() || ended {
        return empty;
    }
    unchanged(image, setting, &volume, &image.model, false)
        .map_err(|text| format!("neither the old volume ({text}) nor a new one"))
}

/// Recovery redoes what a crash left recorded; then another lane changes the same bytes, by a
/// record of its own: the first record's must not come back.
fn recover(image: &Image, setting: Setting, id: &str) -> Told<Report> {
    let mut model = image.model.clone();
    let (file, region) = image.copied()?;
    let volume = image.attach(region, setting)?;
    let mut engine = Engine::new(volume.clone());
    let mut go = |engine: &mut Engine, calls: &[Action]| {
        for call in calls {
            let (expected, found) = (model.apply(call), engine.apply(call));
            if expected != found {
                return Err(format!("{call:?} gives {found:?}, not {expected:?}"));
            }
        }
        let mut left = model.clone();
        left.close_all();
        Ok(left)
    };
    let pinned = Pinned::to(0);
    go(&mut engine, &[open("a", 0), write_at(0, 92, 100, 300)])?;
    drop(pinned);
    let crashed = image.with_image(file)?;
    let _pinned = Pinned::to(1);
    let recorder = Arc::new(Recorder::default());
    let mut region = crashed.region(setting)?;
    region.set_hook(recorder.clone());
    let mut engine = Engine::new(image.attach(region, setting)?);
    engine.apply(&open("a", 0)).map_err(told)?;
    let last = write_at(0, 94, 5000, 300);
    let before = go(&mut engine, &[write_at(0, 93, 100, 300)])?;
    recorder.trace.mark("begin");
    let after = go(&mut engine, std::slice::from_ref(&last))?;
    recorder.trace.mark("end");
    let events = recorder.trace.take();
    let first = begin_of(&events)?;
    let mut tracker = Tracker::new(&crashed.base, &events, setting.class);
    tracker.skip(first);
    let (mode, latest) = (setting.mode, vfs::Nanos::MAX);
    let call = Call { before: &before, after: &after, action: &last, mode, latest };
    Ok(last_call(&crashed, setting, id, (tracker, first), &call))
}

/// Recovery undoes a transaction; then another thread changes what that covered: it must not be
/// undone again.
fn undo(image: &Image, setting: Setting, id: &str) -> Told<Report> {
    // Undone once more, it would come behind what the other lane has recorded.
    let pinned = Pinned::to(1);
    let set = |mode| Action::SetMode { path: "d".into(), mode };
    let recorder = Arc::new(Recorder::default());
    let mut region = image.region(setting)?;
    region.set_hook(recorder.clone());
    let mut engine = Engine::new(image.attach(region, setting)?);
    recorder.trace.mark("begin");
    engine.apply(&set(0o711)).map_err(told)?;
    let events = recorder.trace.take();
    let first = begin_of(&events)?;
    let mut tracker = Tracker::new(&image.base, &events, setting.class);
    tracker.skip(first);
    // The last crash that leaves a transaction, and all that it had changed.
    let mut left = None;
    let ends = Limits { pairs: 0, power_set: 0, samples: 0, prefixes: 1, one_in: 1 };
    tracker.explore(first, &ends, 1, &mut |state, _| {
        let undone = || -> Told<bool> {
            let volume = image.attach(image.crashed(setting, &state.overlay())?, setting)?;
            Ok(volume.recovery().is_some_and(|recovery| recovery.undone > 0))
        };
        if undone() == Ok(true) {
            left = Some(state.overlay());
        }
        true
    });
    let overlay = left.ok_or("no crash leaves a transaction")?;
    drop(pinned);
    let _pinned = Pinned::to(0);
    let mut region = image.crashed(setting, &overlay)?;
    region.set_hook(recorder.clone());
    let mut engine = Engine::new(image.attach(region, setting)?);
    // One thread recovers, another one goes on: no fence of it is for what the first has in flight.
    let mut events = recorder.trace.take();
    let mut threads = vec![0; events.len()];
    let mut model = image.model.clone();
    let calls = [set(0o700), file("new")];
    let mut models = Vec::new();
    for call in &calls {
        recorder.trace.mark("begin");
        let (expected, found) = (model.apply(call), engine.apply(call));
        if expected != found {
            return Err(format!("{call:?} gives {found:?}, not {expected:?}"));
        }
        models.push(model.clone());
    }
    recorder.trace.mark("end");
    events.extend(recorder.trace.take());
    threads.resize(events.len(), 1);
    let is_last = |event: &Event| matches!(event, Event::Mark(text) if text == "begin");
    let first = events.iter().rposition(is_last).ok_or("it never began")?;
    let mut tracker = Tracker::new(&image.base, &events, setting.class);
    tracker.of_threads(&threads);
    tracker.start_with(&overlay);
    tracker.skip(first);
    let (mode, latest) = (setting.mode, vfs::Nanos::MAX);
    let call = Call { before: &models[0], after: &models[1], action: &calls[1], mode, latest };
    Ok(last_call(image, setting, id, (tracker, first), &call))
}

fn begin_of(events: &[Event]) -> Told<usize> {
    let is_begin = |event: &Event| matches!(event, Event::Mark(text) if text == "begin");
    Ok(events.iter().position(is_begin).ok_or("it never began")?)
}

/// Judges what a crash leaves in the last call of a life, or behind it.
fn last_call(
    image: &Image,
    setting: Setting,
    id: &str,
    (mut tracker, first): (Tracker<'_>, usize),
    call: &Call<'_>,
) -> Report {
    let mut report = Report { workloads: 1, calls: 1, ..Report::default() };
    tracker.explore(first, &Limits::SPARSE, 1, &mut |state, marks| {
        report.states += 1;
        report.distinct += 1;
        let judged = || {
            let overlay = state.overlay();
            let (_, volume) = Recovery::of(image, setting, overlay, report.states)?;
            check_recovered(image, &volume, call, marks > 1, Use::AndEmpty)
        };
        if let Err(text) = judged() {
            let (name, lost) = (&state.name, state.lost().join(", "));
            let again = crate::sequences::again(id);
            report
                .failures
                .push(format!("{id}: {text}\n  state {name}\n  lost stores: {lost}\n  {again}"));
        }
        report.failures.is_empty()
    });
    report
}

/// Converts a volume of an earlier build, with a crash anywhere.
fn upgrade(setting: Setting, id: &str) -> Told<Report> {
    let image = Image::of_earlier(&crate::pairs::start())?;
    let (file, region) = image.copied()?;
    let volume = image.attach(region, setting)?;
    let mut model = image.model.clone();
    some_calls(&mut Engine::new(volume.clone()), &mut model)?;
    model.close_all();
    volume.void_records().map_err(told)?;
    drop(Arc::try_unwrap(volume).map_err(|_| "the volume is in use")?);
    let left = image.with_image(file)?;
    let recorder = Arc::new(Recorder::default());
    let mut region = left.region(setting)?;
    region.set_hook(recorder.clone());
    recorder.trace.mark("begin");
    let done = upgrade_region(&region).map_err(told)?;
    recorder.trace.mark("end");
    if done.is_none_or(|done| done.is_nothing()) {
        return Err(format!("{done:?}: there was nothing to convert"));
    }
    let events = recorder.trace.take();
    let first = begin_of(&events)?;
    let mut tracker = Tracker::new(&left.base, &events, setting.class);
    tracker.skip(first);
    let mut report = Report { workloads: 1, calls: 1, ..Report::default() };
    tracker.explore(first, &Limits::SPARSE, 1, &mut |state, marks| {
        report.states += 1;
        report.distinct += 1;
        let judged = || {
            let again = upgrade_region(&left.crashed(setting, &state.overlay())?).map_err(told)?;
            if marks > 1 && again.is_none_or(|again| !again.is_nothing()) {
                return Err(format!("{again:?} behind the conversion"));
            }
            let (recovery, volume) = Recovery::of(&left, setting, state.overlay(), report.states)?;
            unchanged(&left, setting, &volume, &model, true)?;
            drop(volume);
            recovery.crash_again(&|volume| unchanged(&left, setting, volume, &model, false))
        };
        match judged() {
            Ok(nested) => report.nested += nested,
            Err(text) => {
                let (name, lost) = (&state.name, state.lost().join(", "));
                let again = crate::sequences::again(id);
                report.failures.push(format!(
                    "{id}: {text}\n  state {name}\n  lost stores: {lost}\n  {again}"
                ));
            }
        }
        report.failures.is_empty()
    });
    Ok(report)
}

/// Trims a volume, crashes, and recovers what its file holds then.
fn trim(image: &Image, setting: Setting) -> Told<Report> {
    let (file, region) = image.copied()?;
    let volume = image.attach(region, setting)?;
    let mut model = image.model.clone();
    some_calls(&mut Engine::new(volume.clone()), &mut model)?;
    volume.trim().map_err(told)?;
    let crashed = image.with_image(file)?;
    let recovered = crashed.attach(crashed.region(setting)?, setting)?;
    unchanged(&crashed, setting, &recovered, &model, true)?;
    Ok(Report { workloads: 1, calls: 1, states: 1, distinct: 1, ..Report::default() })
}
