//! A process dies inside a call (the *victim*), another one goes on (the *survivor*), and then
//! power fails.
//!
//! Two attachments of one volume stand for two processes. A thread of the victim stops for ever at
//! a store, a flush, a fence or a change of a shared word inside its call; its attachment is
//! abandoned, so that the survivor finds it dead, like a killed process. The survivor makes some
//! calls, mostly on the victim's files. Both are in one trace: no fence of the victim makes durable
//! what it had in flight. At every point from then on power fails.
//!
//! What must be found: the victim's call done or not done, as the survivor's calls have found it;
//! all calls of the survivor that returned; the one in flight before or after. At the end the
//! survivor looks at everything: what it has seen must be found after any power cut.
//!
//! Identities: `mode/class/deaths/CALL@POINT:SEED`. The seed draws the survivor's calls.

use crate::campaign::{Filter, Images, Job, Share, Stop, Tell, is_long, settings, work};
use crate::comparison::{FileRule, compare, exactly};
use crate::engine::Engine;
use crate::exploration::{Report, seed_of};
use crate::image::{Image, Pinned, Placed, Setting, Told, Volatile, volatile_overlay};
use crate::model::Model;
use crate::oracle::{Call, check_volume, exercise, free_space, prefix, remove_all};
use crate::pairs::{self, Named};
use crate::random::{Random, moves_unsynced};
use crate::recovery::Recovery;
use crate::states::{LINE, Limits, Overlay, State, Tracker};
use crate::workload::{Action, Outcome, SLOTS, System};
use pmem::trace::Event;
use pmem::{Class, Hook};
use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use volume::{AttachOptions, Mode, Volume};

/// Places at which each call is ended, at most.
const PLACES: u64 = 10;
/// The victim's slots come behind the survivor's, in the model.
const SLOTS_EACH: usize = 4;
/// A call that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Of the judged volumes one in so many is used, and emptied.
const USED_ONE_IN: u64 = 8;

thread_local! {
    /// Which process this thread stands for.
    static PROCESS: Cell<u8> = const { Cell::new(SURVIVOR) };
}
const SURVIVOR: u8 = 0;
const VICTIM: u8 = 1;

/// How the victim's call ended.
enum Ending {
    Returned(Outcome),
    /// Before this.
    Died(String),
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    threads: Vec<u8>,
    volatile: BTreeSet<u64>,
    /// How many events the victim's call has had, and after how many it dies; 0: not yet.
    count: u64,
    at: u64,
    ending: Option<Ending>,
}

/// Records what both do, and ends one of them.
#[derive(Default)]
struct Witness {
    inner: Mutex<Inner>,
    ended: Condvar,
}

impl Witness {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let mut inner = self.lock();
        inner.events.push(event);
        inner.threads.push(PROCESS.get());
    }

    /// Called before each event: the thread that is to die ends here, and nothing on its stack is
    /// ever cleaned up.
    fn step(&self, what: &dyn Fn() -> String) {
        if PROCESS.get() != VICTIM {
            return;
        }
        let mut inner = self.lock();
        inner.count += u64::from(inner.at != 0);
        if inner.at == 0 || inner.count != inner.at {
            return;
        }
        inner.ending = Some(Ending::Died(what()));
        self.ended.notify_all();
        drop(inner);
        end_thread();
    }

    fn wait(&self) -> Told<Ending> {
        let waits = |inner: &mut Inner| inner.ending.is_none();
        let (mut inner, _) = self
            .ended
            .wait_timeout_while(self.lock(), PATIENCE, waits)
            .unwrap_or_else(PoisonError::into_inner);
        inner.at = 0;
        inner.ending.take().ok_or_else(|| "the call of the one that dies hangs".into())
    }
}

impl Hook for Witness {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.step(&|| format!("the store at {at}"));
        self.push(Event::Store { off, bytes: bytes.to_vec(), streamed, at });
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        self.step(&|| format!("the flush at {at}"));
        self.push(Event::Flush { line: off, at });
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.step(&|| format!("the fence at {at}"));
        self.push(Event::Fence { at });
    }

    fn shared(&self, off: u64) {
        self.step(&|| format!("a change of the shared word at {off:#x}"));
        self.lock().volatile.insert(off / LINE * LINE);
    }
}

/// What the survivor did, and what may be found: for each of the two endings of the victim's call,
/// unless a result has contradicted it.
struct Step {
    action: Action,
    before: [Option<Model>; 2],
    after: [Option<Model>; 2],
}

/// Both lives, traced.
struct Lives {
    events: Vec<Event>,
    threads: Vec<u8>,
    /// Where the survivor's calls begin in them.
    first: usize,
    steps: Vec<Step>,
    live: Vec<Overlay>,
    /// Where the victim died, or that it ended after its call.
    death: String,
    /// What it did in its call, as far as it came.
    count: u64,
}

/// A volume with two attachments.
struct Pair<'l> {
    image: &'l Image,
    setting: Setting,
    placed: Placed,
    witness: Arc<Witness>,
    model: Model,
    survivor: Engine,
    volume: Arc<Volume>,
    lives: Lives,
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn bare(model: &Model) -> Model {
    let mut model = model.clone();
    model.close_all();
    model
}

impl<'l> Pair<'l> {
    fn new(image: &'l Image, setting: Setting) -> Told<Self> {
        let placed = image.placed()?;
        let witness = Arc::new(Witness::default());
        let volume = attached(&placed, setting, witness.clone())?;
        let survivor = engine_of(&volume, &placed, &witness)?;
        let mut model = image.model.clone();
        // The image was detached orderly: every size in it is durable.
        model.apply(&Action::SyncAll).map_err(told)?;
        let (death, count) = (String::new(), 0);
        let lives = Lives {
            events: Vec::new(),
            threads: Vec::new(),
            first: 0,
            steps: Vec::new(),
            live: Vec::new(),
            death,
            count,
        };
        Ok(Self { image, setting, placed, witness, model, survivor, volume, lives })
    }

    /// Both open their files.
    fn open(&mut self, victim: &mut Engine) -> Told<()> {
        for action in pairs::opened() {
            self.survivor.apply(&action).map_err(told)?;
            PROCESS.set(VICTIM);
            let opened = victim.apply(&action);
            PROCESS.set(SURVIVOR);
            opened.map_err(told)?;
            self.model.apply(&action).map_err(told)?;
            self.model.apply(&action.shifted(SLOTS_EACH)).map_err(told)?;
        }
        Ok(())
    }

    /// The victim makes its call and dies in it, or behind it. Gives the models of both endings.
    fn die(&mut self, call: &Action, point: u64) -> Told<[Option<Model>; 2]> {
        let volume = attached(&self.placed, self.setting, self.witness.clone())?;
        let mut victim = engine_of(&volume, &self.placed, &self.witness)?;
        self.open(&mut victim)?;
        self.witness.lock().at = point;
        let (witness, its_call) = (Arc::clone(&self.witness), call.clone());
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        let call_it = move || {
            PROCESS.set(VICTIM);
            let outcome = victim.apply(&its_call);
            drop(victim);
            witness.lock().ending = Some(Ending::Returned(outcome));
            witness.ended.notify_all();
        };
        thread.spawn(call_it).map_err(told)?;
        let ending = self.witness.wait()?;
        self.lives.count = self.witness.lock().count;
        volume.forsake().map_err(told)?;
        let mut models = [self.model.clone(), self.model.clone()];
        let expected = models[1].apply(&call.shifted(SLOTS_EACH));
        for slot in SLOTS_EACH..SLOTS {
            for model in &mut models {
                let _ = model.apply(&Action::Close { slot });
            }
        }
        match ending {
            Ending::Returned(outcome) if outcome == expected => {
                self.lives.death = "after its call".into();
                let [_, after] = models;
                Ok([None, Some(after)])
            }
            Ending::Returned(outcome) => {
                Err(format!("{call:?} gives {outcome:?}, not {expected:?}"))
            }
            Ending::Died(at) => {
                self.lives.death = format!("before {at}");
                let_go(&volume);
                if self.setting.mode != Mode::Strict {
                    let [mut before, mut after] = models;
                    let was = before.clone();
                    before.tear(&after);
                    after.tear(&was);
                    models = [before, after];
                }
                Ok(models.map(Some))
            }
        }
    }

    fn volatile(&self) -> Told<Overlay> {
        let inner = self.witness.lock();
        let line = |&line: &u64| {
            let mut bytes = [0; LINE as usize];
            self.placed.file.read_exact_at(&mut bytes, line).map(|()| (line, bytes))
        };
        inner.volatile.iter().map(line).collect::<Result<_, _>>().map_err(told)
    }

    /// The survivor makes a call; `models` that it contradicts are dropped.
    fn go_on(&mut self, action: &Action, models: &mut [Option<Model>; 2]) -> Told<()> {
        if models.iter().flatten().any(|model| moves_torn(model, action)) {
            return Ok(());
        }
        let before = models.each_ref().map(|model| model.as_ref().map(bare));
        self.lives.live.push(self.volatile()?);
        self.witness.push(Event::Mark("begin".into()));
        let found = self.survivor.apply(action);
        self.witness.push(Event::Mark("end".into()));
        self.lives.live.push(self.volatile()?);
        let mut expected = Vec::new();
        for model in &mut *models {
            if let Some(outcome) = model.as_mut().map(|model| model.apply(action))
                && outcome != found
            {
                expected.push(outcome);
                *model = None;
            }
        }
        if models.iter().all(Option::is_none) {
            return Err(format!("{action:?} gives {found:?}, not one of {expected:?}"));
        }
        let after = models.each_ref().map(|model| model.as_ref().map(bare));
        self.lives.steps.push(Step { action: action.clone(), before, after });
        Ok(())
    }

    /// The survivor looks at everything: one model is left.
    fn look(&mut self, models: &mut [Option<Model>; 2]) -> Told<()> {
        let mut texts = Vec::new();
        for model in &mut *models {
            let Some(one) = model else { continue };
            if let Err(text) = compare(&self.survivor, &bare(one), &exactly) {
                texts.push(text);
                *model = None;
            }
        }
        if models.iter().all(Option::is_none) {
            return Err(format!("what the second one sees: {}", texts.join("; ")));
        }
        check_volume(&self.volume)?;
        self.go_on(&Action::Stat { path: String::new() }, models)
    }

    /// The survivor closes and removes everything: nothing of the victim takes any room.
    fn clean_up(mut self) -> Told<Lives> {
        let events = {
            let mut inner = self.witness.lock();
            (std::mem::take(&mut inner.events), std::mem::take(&mut inner.threads))
        };
        (self.lives.events, self.lives.threads) = events;
        self.survivor.close_all().map_err(told)?;
        remove_all(&self.survivor)?;
        // An attach finds deaths that no process has waited for.
        drop(attached(&self.placed, self.setting, self.witness.clone())?);
        emptied(self.image, &self.volume)?;
        check_volume(&self.volume)?;
        Ok(self.lives)
    }
}

/// Ends this thread, as a death ends a process: nothing on its stack is ever cleaned up.
pub(crate) fn end_thread() {
    // SAFETY: ends this thread alone. Its stack stays mapped, and what lies there stays as it is.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Gives back what a thread that was ended has of a volume, which nobody else has besides the
/// caller: else each death would keep three files open.
pub(crate) fn let_go(volume: &Arc<Volume>) {
    while Arc::strong_count(volume) > 1 {
        // SAFETY: a count on the stack of the thread that has ended, which no other code gives
        // back; nobody else has the volume.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(volume)) };
    }
}

/// The volume is empty, and all its room is free.
pub(crate) fn emptied(image: &Image, volume: &Volume) -> Told<()> {
    match free_space(volume)?.abs_diff(image.free_when_empty) {
        0 => Ok(()),
        lost => Err(format!("emptied, {lost} bytes are not free, or free that never were")),
    }
}

pub(crate) fn attached(
    placed: &Placed,
    setting: Setting,
    hook: Arc<dyn Hook>,
) -> Told<Arc<Volume>> {
    let options = AttachOptions {
        mode: setting.mode,
        class: Some(setting.class),
        hook: Some(hook),
        ..AttachOptions::default()
    };
    volume::attach(&placed.path, &options).map_err(told)
}

fn engine_of(volume: &Arc<Volume>, placed: &Placed, witness: &Arc<Witness>) -> Told<Engine> {
    let mut engine = Engine::new(volume.clone());
    engine.store_through(placed.file.try_clone().map_err(told)?, witness.clone());
    Ok(engine)
}

/// Bytes that are not certain are not moved: the model does not follow them.
fn moves_torn(model: &Model, action: &Action) -> bool {
    moves_unsynced(model, action)
        || matches!(action, Action::CopyRange { from, .. } if model.is_unsynced(*from))
}

/// One death: the call, the point in it, and what the other process does.
struct Death<'d> {
    setting: Setting,
    call: &'d Named,
    point: u64,
    seed: u64,
    share: Share,
}

impl Death<'_> {
    fn id(&self) -> String {
        let Self { setting, call, point, seed, .. } = self;
        format!("{}{}@{point}:{seed}", group(*setting), call.0)
    }

    /// The survivor's calls.
    fn calls(&self) -> Vec<Action> {
        let mut random = Random::new(self.seed ^ seed_of(self.call.0));
        let all = [pairs::data_calls(), pairs::name_calls()];
        let own = usize::from(all[1].iter().any(|(name, _)| *name == self.call.0));
        let mut calls = Vec::new();
        for _ in 0..2 {
            let which = if random.one_in(3) { 1 - own } else { own };
            let number = random.below(all[which].len() as u64) as usize;
            calls.push(all[which][number].1.clone());
        }
        if random.one_in(2) {
            calls.push(Action::Sync { slot: 0, data_only: false });
        }
        calls
    }

    fn live(&self, image: &Image, calls: &[Action]) -> Told<Lives> {
        // The lane and the group of a call are its processor's: the same ones again for the same
        // death.
        let _pinned = Pinned::to(seed_of(self.call.0) as usize);
        let mut pair = Pair::new(image, self.setting)?;
        let lived = self.live_through(&mut pair, calls);
        let told = |text| format!("{text}\n  {:?} died {}", self.call.1, pair.lives.death);
        lived.map_err(told)?;
        pair.clean_up()
    }

    fn live_through(&self, pair: &mut Pair<'_>, calls: &[Action]) -> Told<()> {
        let mut models = pair.die(&self.call.1, self.point)?;
        pair.lives.first = pair.witness.lock().events.len();
        if self.seed.is_multiple_of(3) {
            // Now and then a third process attaches, and finds the victim dead at once.
            let before = models.each_ref().map(|model| model.as_ref().map(bare));
            pair.lives.live.push(pair.volatile()?);
            pair.witness.push(Event::Mark("begin".into()));
            drop(attached(&pair.placed, self.setting, pair.witness.clone())?);
            pair.witness.push(Event::Mark("end".into()));
            pair.lives.live.push(pair.volatile()?);
            let after = before.clone();
            pair.lives.steps.push(Step { action: Action::SyncAll, before, after });
        }
        for action in calls {
            pair.go_on(action, &mut models)?;
        }
        pair.look(&mut models)
    }

    /// Explores what power cuts leave; gives how far the victim had come.
    fn explore(&self, image: &Image, calls: &[Action], report: &mut Report) -> Result<u64, String> {
        let lives = self.live(image, calls)?;
        report.calls += 1 + lives.steps.len() as u64;
        let mut tracker = Tracker::new(&image.base, &lives.events, self.setting.class);
        tracker.of_threads(&lives.threads);
        tracker.skip(lives.first);
        let (mut seen, mut wrong) = (HashSet::new(), None);
        let seed = self.share.seed(&self.id());
        let limits =
            if is_long() { Limits::SPARSE } else { Limits { one_in: 3, ..Limits::SPARSE } };
        tracker.explore(lives.first, &limits, seed, &mut |state, marks| {
            report.states += 1;
            if marks == 0 || !seen.insert((state.hash(), marks)) {
                return true;
            }
            report.distinct += 1;
            match self.judge(image, &lives, state, (marks, report.distinct)) {
                Ok(nested) => report.nested += nested,
                Err(text) => wrong = Some(text),
            }
            wrong.is_none()
        });
        wrong.map_or(Ok(lives.count), Err)
    }

    fn judge(
        &self,
        image: &Image,
        lives: &Lives,
        state: &State<'_>,
        (marks, number): (usize, u64),
    ) -> Told<u64> {
        let kinds = [Volatile::Before, Volatile::Live, Volatile::Garbage];
        let kind = kinds[(number % 3) as usize];
        let mut overlay = volatile_overlay(kind, &lives.live[marks - 1]);
        overlay.extend(state.overlay());
        let step = &lives.steps[(marks - 1) / 2];
        let returned = marks.is_multiple_of(2);
        let checked = || -> Told<u64> {
            let (recovery, volume) = Recovery::of(image, self.setting, overlay, number)?;
            let mut engine = Engine::new(volume.clone());
            self.holds(step, &engine, returned)?;
            check_volume(&volume)?;
            free_space(&volume)?;
            if number.is_multiple_of(USED_ONE_IN) {
                exercise(&mut engine)?;
                remove_all(&engine)?;
                emptied(image, &volume)?;
            }
            drop(engine);
            drop(volume);
            recovery.crash_again(&|volume| self.holds(step, &Engine::new(volume.clone()), returned))
        };
        checked().map_err(|text| {
            let when = if returned { "after" } else { "during" };
            let lost = state.lost().join(", ");
            let (action, name, death) = (&step.action, &state.name, &lives.death);
            format!(
                "{text}\n  {:?} died {death}\n  then a crash {when} {action:?}\n  state {name} \
                 ({kind:?} volatile)\n  lost stores: {lost}",
                self.call.1
            )
        })
    }

    /// The volume holds one of the two endings of the victim's call.
    fn holds(&self, step: &Step, engine: &Engine, returned: bool) -> Told<()> {
        let mut texts = Vec::new();
        let rule: &FileRule<'_> = if self.setting.mode == Mode::Posix { &prefix } else { &exactly };
        for (before, after) in step.before.iter().zip(&step.after) {
            let found = match (before, after) {
                (Some(before), Some(after)) => {
                    let (action, mode) = (&step.action, self.setting.mode);
                    let latest = vfs::Nanos::MAX;
                    Call { before, after, action, mode, latest }.check(engine, returned)
                }
                (Some(before), None) if !returned => compare(engine, before, rule),
                _ => continue,
            };
            match found {
                Ok(()) => return Ok(()),
                Err(text) => texts.push(text),
            }
        }
        Err(texts.join("; or "))
    }

    /// The failure as it shows with the fewest calls.
    fn tell(&self, image: &Image, text: String) -> String {
        let calls = self.calls();
        let mut told = (text, calls.clone());
        let shorter = [vec![], vec![calls[0].clone()], vec![calls[1].clone()]];
        for fewer in shorter {
            if let Err(text) = self.explore(image, &fewer, &mut Report::default()) {
                told = (text, fewer);
                break;
            }
        }
        let (text, calls) = told;
        let calls: Vec<String> = calls.iter().map(|action| format!("\n    {action:?}")).collect();
        let again = crate::sequences::again(&self.id());
        format!("{}: {text}\n  the other one's calls:{}\n  {again}", self.id(), calls.concat())
    }

    fn report(&self, image: &Image) -> (Report, u64) {
        let mut report = Report { workloads: 1, ..Report::default() };
        let calls = self.calls();
        match self.explore(image, &calls, &mut report) {
            Ok(count) => (report, count),
            Err(text) => {
                report.failures.push(self.tell(image, text));
                (report, 0)
            }
        }
    }
}

fn group(setting: Setting) -> String {
    format!("{}/{}/deaths/", setting.mode, setting.class)
}

/// Explores deaths in the share of the calls of the set, at so many points of each.
#[must_use]
pub fn run(share: Share, stop: Stop) -> Report {
    let filter = &Filter::from_environment();
    let images = &Images::new(vec![pairs::start(), pairs::start_in_pieces()]);
    let calls = pairs::calls().into_iter().map(|call| (0, call));
    // Calls that move what files hold, or replace it, meet those of the second start: it lies in
    // pieces.
    let calls = calls.filter(|(_, call)| call.0 != "rewrite");
    let second = pairs::moving_calls().into_iter().chain(pairs::replacing_calls());
    let calls = calls.chain(second.map(|call| (1, call)));
    let calls = &calls.collect::<Vec<_>>();
    let jobs = settings().into_iter().flat_map(move |setting| {
        calls.iter().filter_map(move |(start, call)| {
            let id = format!("{}{}", group(setting), call.0);
            let wanted = filter.takes_some(&id) && (filter.is_set() || share.takes(filter, &id));
            // Other points, and other calls of the survivor, at each commit.
            let seed = share.seed(&id) % 1000;
            let work = move |tell: &Tell<'_>| {
                images.image(*start).map_or_else(Report::failed, |image| {
                    one_call(image, filter, setting, (call, share), seed, tell)
                })
            };
            wanted.then(|| Job { id, work: Box::new(work) })
        })
    });
    work(jobs, stop)
}

/// Explores a death at every point of one call of the set; mode `strict`, class `cache-line`.
#[must_use]
pub fn everywhere(name: &str) -> Report {
    let images = &Images::new(vec![pairs::start()]);
    let calls = pairs::calls();
    let (Some(call), Ok(image)) = (calls.iter().find(|call| call.0 == name), images.image(0))
    else {
        return Report::failed(format!("{name}: no such call, or no image"));
    };
    let (setting, share) = (settings()[0], Share::Drawn);
    let (mut report, count) =
        Death { setting, call, point: u64::MAX, seed: 1, share }.report(image);
    for point in 1..=count {
        report.add(Death { setting, call, point, seed: point, share }.report(image).0);
    }
    report
}

/// All deaths in one call; in what promises less, and on the other class, fewer.
fn one_call(
    image: &Image,
    filter: &Filter,
    setting: Setting,
    (call, share): (&Named, Share),
    seed: u64,
    tell: &Tell<'_>,
) -> Report {
    let asked = filter.below(&format!("{}{}@", group(setting), call.0));
    if let Some(rest) = asked.filter(|_| filter.is_set()) {
        let (point, seed) = rest.split_once(':').unwrap_or((rest, "0"));
        let (Ok(point), Ok(seed)) = (point.parse(), seed.parse()) else {
            return Report::failed(format!("no such death: {rest}"));
        };
        return Death { setting, call, point, seed, share }.report(image).0;
    }
    let full = setting.mode == Mode::Strict && setting.class == Class::CacheLine;
    let places = match (is_long(), full) {
        (true, _) => u64::MAX,
        (false, true) => PLACES,
        (false, false) => PLACES / 3,
    };
    let behind = Death { setting, call, point: u64::MAX, seed, share };
    tell(&behind.id());
    let (mut report, count) = behind.report(image);
    let stride = count.div_ceil(places).max(1);
    // Another phase for each, so that together they meet every kind of point.
    let first = 1 + seed_of(call.0).wrapping_add(seed) % stride;
    for (number, point) in (first..=count).step_by(stride as usize).enumerate() {
        let death = Death { setting, call, point, seed: seed + number as u64, share };
        tell(&death.id());
        report.add(death.report(image).0);
    }
    report
}
