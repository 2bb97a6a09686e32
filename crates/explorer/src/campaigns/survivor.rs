//! A process dies inside a call, another one recovers it and goes on, and *then* power fails.
//!
//! Two processes on one volume, never at work at the same time: the *victim* tells each of its
//! stores, flushes and fences before it makes them, and dies at one of them; the *survivor* records
//! its own behind them. The results of its calls depend on what the victim stored: a power cut at
//! any later point must leave both. What the victim left half flushed is lost, unless the survivor
//! flushes it again. Mode `strict`, class `cache-line`.

use crate::campaign::{Share, is_long};
use crate::cases::{self, Case, Start};
use crate::engine::Engine;
use crate::exploration::{Report, Use, check_recovered};
use crate::image::{Image, Setting, Told};
use crate::model::Model;
use crate::oracle::Call;
use crate::states::{Limits, State, Tracker, mix};
use crate::workload::{Action, System, short};
use pmem::trace::Event;
use pmem::{Class, Hook};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::panic::Location;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{Attached, Kind};
use volume::{AttachOptions, Mode, Volume};

const SETTING: Setting = Setting { mode: Mode::Strict, class: Class::CacheLine };

/// In the victim's environment: the numbers of start, case and point, and the region's path.
const VICTIM: &str = "SOLERA_TEST_VICTIM";

/// Of the cases, and of all points, one in so many.
const ONE_IN: u32 = 4;

/// What the victim tells, each with two numbers and bytes.
const STORE: u8 = b's';
const STREAM: u8 = b'n';
const FLUSH: u8 = b'f';
const FENCE: u8 = b'e';
/// It begins the calls in which it is to die.
const BEGIN: u8 = b'b';
/// A call has returned.
const RETURNED: u8 = b'r';
/// It lives to the end: so many points.
const POINTS: u8 = b'p';

// ---- the victim ---------------------------------------------------------------------------------

/// Tells what happens, and ends the process before one point.
struct Teller {
    armed: AtomicU64,
    count: AtomicU64,
    out: Mutex<File>,
}

impl Teller {
    fn tell(&self, what: u8, number: u64, bytes: &[u8]) {
        let mut text = vec![what];
        text.extend(number.to_le_bytes());
        text.extend((bytes.len() as u64).to_le_bytes());
        text.extend(bytes);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&text).expect("somebody listens");
    }

    fn step(&self) {
        let at = self.armed.load(Ordering::Relaxed);
        if at != 0 && self.count.fetch_add(1, Ordering::Relaxed) + 1 == at {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }
}

impl Hook for Teller {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, _: &'static Location<'static>) {
        self.step();
        self.tell(if streamed { STREAM } else { STORE }, off, bytes);
    }

    fn flush(&self, off: u64, _: &'static Location<'static>) {
        self.step();
        self.tell(FLUSH, off, &[]);
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.step();
        self.tell(FENCE, 0, &[]);
    }

    fn shared(&self, _: u64) {
        self.step();
    }
}

/// Whether this process is to be a victim.
#[must_use]
pub fn is_victim() -> bool {
    std::env::var_os(VICTIM).is_some()
}

/// The victim's life. It tells what it does on its standard input, which is a pipe.
pub fn die() -> Told<()> {
    let life = std::env::var(VICTIM).map_err(told)?;
    let (numbers, path) = life.split_once('/').ok_or("usage")?;
    let path = Path::new("/").join(path);
    let numbers: Vec<usize> = numbers.split(' ').filter_map(|text| text.parse().ok()).collect();
    let [start, case, point] = numbers[..] else { return Err("usage".into()) };
    let starts = cases::all();
    let case = &starts[start].1[case];
    let (armed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let out = std::io::stdin().as_fd().try_clone_to_owned().map_err(told)?;
    let teller = Arc::new(Teller { armed, count, out: Mutex::new(File::from(out)) });
    let options = AttachOptions {
        mode: SETTING.mode,
        class: Some(SETTING.class),
        hook: Some(teller.clone()),
        ..AttachOptions::default()
    };
    let mut engine = Engine::new(volume::attach(&path, &options).map_err(told)?);
    let memory = std::fs::OpenOptions::new().write(true).open(&path).map_err(told)?;
    engine.store_through(memory, teller.clone());
    for action in &case.before {
        let _ = engine.apply(action);
    }
    teller.tell(BEGIN, 0, &[]);
    teller.armed.store(point as u64, Ordering::Relaxed);
    for action in &case.calls {
        let _ = engine.apply(action);
        teller.tell(RETURNED, 0, &[]);
    }
    teller.armed.store(0, Ordering::Relaxed);
    teller.tell(POINTS, teller.count.load(Ordering::Relaxed), &[]);
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL).map_err(told)
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The process that dies: in the test of this name, by the numbers of a start and of its case.
struct Victim<'t> {
    test: &'t str,
    start: usize,
    case: usize,
}

// ---- the survivor -------------------------------------------------------------------------------

/// Records what one process or another does, with its number.
#[derive(Default)]
struct Record {
    events: Mutex<Vec<(Event, u8)>>,
}

impl Record {
    const SURVIVOR: u8 = 0;
    const VICTIM: u8 = 1;

    fn push(&self, event: Event, process: u8) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push((event, process));
    }

    fn mark(&self, text: &str) {
        self.push(Event::Mark(text.to_owned()), Self::SURVIVOR);
    }
}

impl Hook for Record {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.push(Event::Store { off, bytes: bytes.to_vec(), streamed, at }, Self::SURVIVOR);
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        self.push(Event::Flush { line: off, at }, Self::SURVIVOR);
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.push(Event::Fence { at }, Self::SURVIVOR);
    }
}

/// What a victim told besides its stores.
#[derive(Default)]
struct Life {
    returned: usize,
    points: Option<u64>,
}

/// Lets a victim die, and hears what it tells.
fn let_die(record: &Record, place: &Path, victim: &Victim<'_>, point: u64) -> Told<Life> {
    let (mut pipe, its_end) = std::io::pipe().map_err(told)?;
    let Victim { test, start, case } = victim;
    let mut child = Command::new(std::env::current_exe().map_err(told)?)
        .args(["--exact", test, "--nocapture"])
        .env(VICTIM, format!("{start} {case} {point}{}", place.display()))
        .stdin(its_end)
        .stdout(Stdio::null())
        .spawn()
        .map_err(told)?;
    let mut output = Vec::new();
    pipe.read_to_end(&mut output).map_err(told)?;
    let status = child.wait().map_err(told)?;
    if std::os::unix::process::ExitStatusExt::signal(&status) != Some(9) {
        return Err(format!("the victim ended otherwise: {status}"));
    }
    let at = Location::caller();
    let mut life = Life::default();
    let mut rest = output.as_slice();
    while rest.len() >= 17 {
        let word = |from: usize| {
            let bytes: [u8; 8] = rest[from..from + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let (what, off, length) = (rest[0], word(1), word(9) as usize);
        let Some(bytes) = rest.get(17..17 + length) else { break };
        let event = match what {
            STORE | STREAM => {
                Event::Store { off, bytes: bytes.to_vec(), streamed: what == STREAM, at }
            }
            FLUSH => Event::Flush { line: off, at },
            FENCE => Event::Fence { at },
            RETURNED => {
                life.returned += 1;
                Event::Mark("returned".into())
            }
            POINTS => {
                life.points = Some(off);
                Event::Mark("points".into())
            }
            _ => Event::Mark("begin".into()),
        };
        if !matches!(event, Event::Mark(_)) {
            record.push(event, Record::VICTIM);
        }
        rest = &rest[17 + length..];
    }
    Ok(life)
}

/// The survivor's calls: on every file that the case knows, and on others.
fn afterwards(start: &Start, case: &Case) -> Vec<Action> {
    let mut paths = BTreeSet::new();
    for action in start.build.iter().chain(&case.before).chain(&case.calls) {
        match action {
            Action::Create { path, kind: Kind::File, .. } => _ = paths.insert(path.clone()),
            Action::Rename { to, .. } | Action::Link { to, .. } => _ = paths.insert(to.clone()),
            _ => {}
        }
    }
    let mut actions = vec![short::file("zz-after"), short::rename("zz-after", "zz-then")];
    for (index, path) in paths.iter().rev().take(3).enumerate() {
        let tag = 0x5000 + index as u32 * 8;
        actions.extend([
            short::open(path, 6),
            short::write_at(6, tag, 100, 300),
            short::write_at(6, tag + 1, 6000, 9000),
            short::close(6),
        ]);
    }
    if let Some(path) = paths.iter().next() {
        actions.push(short::rename(path, "zz-moved"));
    }
    actions.push(short::unlink("zz-then"));
    actions
}

/// A death and what came after it.
struct Story {
    events: Vec<Event>,
    threads: Vec<u8>,
    /// The events from here on are explored.
    first: usize,
    /// Before the call in which the victim died, after it (as the survivor saw it), and after each
    /// of the survivor's.
    models: Vec<Model>,
    calls: Vec<Action>,
    points: Option<u64>,
}

fn bare(model: &Model) -> Model {
    let mut model = model.clone();
    model.close_all();
    model
}

/// What the survivor sees of the call in flight: before or after. Whether a sync was made cannot be
/// seen: what was stored through a mapping before it may be lost.
fn seen(volume: &Arc<Volume>, before: &Model, after: &Model, action: &Action) -> Told<Model> {
    let engine = Engine::new(volume.clone());
    let latest = vfs::Nanos::MAX;
    let call = |after| Call { before, after, action, mode: SETTING.mode, latest };
    let is_sync = matches!(action, Action::Sync { .. } | Action::SyncAll);
    if !is_sync && call(after).check(&engine, true).is_ok() {
        return Ok(after.clone());
    }
    call(after).check(&engine, false)?;
    Ok(before.clone())
}

fn live(image: &Image, start: &Start, case: &Case, victim: &Victim<'_>, point: u64) -> Told<Story> {
    let place = image.placed()?;
    let record = Arc::new(Record::default());
    let attach = || {
        let options = AttachOptions {
            mode: SETTING.mode,
            class: Some(SETTING.class),
            hook: Some(record.clone()),
            ..AttachOptions::default()
        };
        volume::attach(&place.path, &options).map_err(told)
    };
    let first_volume = attach()?;
    let life = let_die(&record, &place.path, victim, point)?;
    let mut model = image.model.clone();
    model.apply(&Action::SyncAll).map_err(told)?;
    for action in case.before.iter().chain(&case.calls[..life.returned]) {
        let _ = model.apply(action);
    }
    let before = bare(&model);
    let action = case.calls.get(life.returned).cloned().unwrap_or(Action::SyncAll);
    let _ = model.apply(&action);
    let after = bare(&model);
    let first = record.events.lock().unwrap_or_else(PoisonError::into_inner).len();
    record.mark("begin");
    // Finds the death: a check of a volume in use recovers dead processes.
    first_volume.check(&volume::FsckOptions::default()).map_err(told)?;
    let found = seen(&first_volume, &before, &after, &action)?;
    record.mark("end");
    let (mut models, mut calls) = (vec![before, found.clone()], vec![action]);
    let (mut engine, mut model) = (Engine::new(first_volume.clone()), found);
    for action in afterwards(start, case) {
        record.mark("begin");
        let (expected, found) = (model.apply(&action), engine.apply(&action));
        if expected != found {
            return Err(format!("the survivor's {action:?} gives {found:?}, not {expected:?}"));
        }
        record.mark("end");
        models.push(bare(&model));
        calls.push(action);
    }
    let recorded =
        std::mem::take(&mut *record.events.lock().unwrap_or_else(PoisonError::into_inner));
    drop(engine);
    first_volume.detach().map_err(told)?;
    let (events, threads) = recorded.into_iter().unzip();
    Ok(Story { events, threads, first, models, calls, points: life.points })
}

// ---- the power cut ------------------------------------------------------------------------------

fn explore(image: &Image, story: &Story, seed: u64, report: &mut Report) -> Told<()> {
    let mut tracker = Tracker::new(&image.base, &story.events, SETTING.class);
    tracker.of_threads(&story.threads);
    tracker.skip(story.first);
    let limits = Limits { one_in: 4, ..Limits::SPARSE };
    let (mut seen, mut wrong) = (HashSet::new(), None);
    tracker.explore(story.first, &limits, seed, &mut |state, marks| {
        report.states += 1;
        if !seen.insert((state.hash(), marks)) {
            return true;
        }
        report.distinct += 1;
        let used = if report.distinct.is_multiple_of(8) { Use::AndEmpty } else { Use::No };
        wrong = judge(image, story, state, marks, used).err();
        wrong.is_none()
    });
    wrong.map_or(Ok(()), Err)
}

fn judge(image: &Image, story: &Story, state: &State<'_>, marks: usize, used: Use) -> Told<()> {
    let index = marks.saturating_sub(1) / 2;
    let call = Call {
        before: &story.models[index],
        after: &story.models[index + 1],
        action: &story.calls[index],
        mode: SETTING.mode,
        latest: vfs::Nanos::MAX,
    };
    let returned = marks > 0 && marks.is_multiple_of(2);
    let attempt = || -> Told<()> {
        let volume = image.attach(image.crashed(SETTING, &state.overlay())?, SETTING)?;
        check_recovered(image, &volume, &call, returned, used)
    };
    attempt().map_err(|text| {
        let when = if returned { "after" } else { "during" };
        let lost = state.lost().join(", ");
        format!("{text}\n  {when} {:?}, state {}\n  lost: {lost}", call.action, state.name)
    })
}

/// Some of so many points: more of them late in the call, where it commits.
fn late_ones(points: u64, seed: u64) -> Vec<u64> {
    let parts = [(0, points * 3 / 5), (points * 3 / 5, points * 9 / 10), (points * 9 / 10, points)];
    let one_of = |(from, to): (u64, u64)| 1 + from + mix(seed ^ to) % (to - from).max(1);
    let mut chosen: Vec<u64> = parts.map(one_of).to_vec();
    chosen.retain(|&point| point <= points);
    chosen.dedup();
    chosen
}

/// Deaths of one case, and the power cuts after them: at some points, or at all.
fn one_case(image: &Image, start: &Start, case: &Case, victim: &Victim<'_>, all: bool) -> Report {
    let mut report = Report { workloads: 1, ..Report::default() };
    let id = format!("{}/{}", start.name, case.name);
    let name_seed = Share::Drawn.seed(&format!("survivor/{id}"));
    let die_at = |point: u64, report: &mut Report| -> Option<u64> {
        report.calls += 1;
        let story = live(image, start, case, victim, point);
        let seed = mix(point ^ name_seed);
        let explored = story.and_then(|story| {
            explore(image, &story, seed, report)?;
            Ok(story.points)
        });
        explored.unwrap_or_else(|text| {
            report.failures.push(format!("{id}@{point}: {text}"));
            None
        })
    };
    let Some(points) = die_at(u64::MAX, &mut report) else { return report };
    // Of all points, too, each commit dies at its share.
    let is_in = |point: &u64| rotation::chosen(&format!("survivor/{id}@{point}"), ONE_IN);
    let chosen: Vec<u64> =
        if all { (1..=points).filter(is_in).collect() } else { late_ones(points, name_seed) };
    for point in chosen {
        if report.failures.is_empty() {
            let _ = die_at(point, &mut report);
        }
    }
    report
}

/// At all points, also in short runs, together: an append is settled, and then overwritten by a
/// record that the victim stores and does not fence. The survivor, which does that again, has to
/// make the settled slot durable first.
const ALWAYS: [&str; 3] = ["small/second-descriptor", "small/lazy-over-end", "small/lazy-rewrite"];

/// All cases whose name begins with `filter`: by default a selection, another one at each commit,
/// at three points of each. A victim runs the test of this name.
#[must_use]
pub fn run(filter: &str, test: &str) -> Report {
    let (mut report, long) = (Report::default(), is_long());
    for (start_index, (start, all)) in cases::all().iter().enumerate() {
        let strict = ["names", "direct", "tree", "two", "bucket-full"].contains(&start.name);
        let has_always = ALWAYS.iter().any(|id| id.split('/').next() == Some(start.name));
        if start.full || !(strict || long || has_always) {
            continue;
        }
        let mut image = None;
        for (case_index, case) in all.iter().enumerate() {
            let id = format!("{}/{}", start.name, case.name);
            let always = ALWAYS.contains(&&*id);
            let chosen = strict && rotation::chosen(&format!("survivor/{id}"), ONE_IN);
            let wanted = long || !filter.is_empty() || always || chosen;
            if !id.starts_with(filter) || !wanted || case.calls.len() > 10 {
                continue;
            }
            let image = match image.get_or_insert_with(|| Image::new(start)) {
                Ok(image) => image,
                Err(text) => return Report::failed(format!("{}: {text}", start.name)),
            };
            let victim = Victim { test, start: start_index, case: case_index };
            report.add(one_case(image, start, case, &victim, long || always));
        }
    }
    report
}
