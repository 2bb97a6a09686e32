//! Campaigns: many workloads, on all processors.
//!
//! Identities read `mode/class/family/workload#state`. `SOLERA_EXPLORE=prefix` explores only what
//! begins so (with `#state`: only that state of that workload), and so replays a failure.

use crate::cases::{self, Case, Start};
use crate::exploration::{Report, Selection, explore, seed_of};
use crate::image::{Image, Setting, Told};
use crate::states::Limits;
use pmem::Class;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use volume::Mode;

/// A case that takes longer hangs: most take less than a second, on a machine that is busy some
/// minutes.
const PATIENCE: Duration = Duration::from_mins(20);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Failures told; the rest is counted.
const TOLD: usize = 12;

/// All settings: modes times classes.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let modes = [Mode::Strict, Mode::Sync, Mode::Posix];
    let classes = [Class::CacheLine, Class::Byte];
    classes.iter().flat_map(|&class| modes.map(|mode| Setting { mode, class })).collect()
}

/// Whether the tests shall take their time.
#[must_use]
pub fn is_long() -> bool {
    rotation::all()
}

/// Of the workloads of a campaign one in so many runs.
pub const ONE_IN: u32 = 4;

/// How much of a campaign is explored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// What this commit draws.
    Drawn,
    /// All workloads, the same at each commit.
    All,
}

impl Share {
    /// A number for what is drawn of a workload.
    #[must_use]
    pub fn seed(self, id: &str) -> u64 {
        if self == Self::All || is_long() {
            return seed_of(id);
        }
        seed_of(&format!("{} {id}", rotation::seed()))
    }

    /// Whether this workload is in it, or is asked for by its name.
    #[must_use]
    pub fn takes(self, filter: &Filter, id: &str) -> bool {
        let is_in = || self == Self::All || filter.is_set() || rotation::chosen(id, ONE_IN);
        filter.takes(id) && is_in()
    }
}

/// What `SOLERA_EXPLORE` asks for.
#[derive(Clone)]
pub struct Filter {
    prefix: String,
    /// Only this state.
    pub state: Option<u64>,
}

impl Filter {
    /// Everything, if the variable is not set.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::of(&std::env::var("SOLERA_EXPLORE").unwrap_or_default())
    }

    /// What this text asks for.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match text.split_once('#') {
            Some((prefix, state)) => Self { prefix: prefix.into(), state: state.parse().ok() },
            None => Self { prefix: text.into(), state: None },
        }
    }

    /// Whether something is asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Whether this workload is to be explored.
    #[must_use]
    pub fn takes(&self, id: &str) -> bool {
        if self.state.is_some() { id == self.prefix } else { id.starts_with(&self.prefix) }
    }

    /// Whether workloads that begin so may be.
    #[must_use]
    pub fn takes_some(&self, group: &str) -> bool {
        group.starts_with(&self.prefix) || self.prefix.starts_with(group)
    }

    /// The rest of the identity asked for, if it begins so.
    #[must_use]
    pub fn below(&self, group: &str) -> Option<&str> {
        self.prefix.strip_prefix(group).filter(|rest| !rest.is_empty())
    }
}

/// Images made when they are first needed.
pub struct Images {
    starts: Vec<Start>,
    /// `None`: as [`Image::new`] makes them.
    size: Option<u64>,
    made: Vec<OnceLock<Told<Image>>>,
}

impl Images {
    /// Of these starts.
    #[must_use]
    pub fn new(starts: Vec<Start>) -> Self {
        let made = starts.iter().map(|_| OnceLock::new()).collect();
        Self { starts, size: None, made }
    }

    /// As [`Images::new`], on volumes of this size, as [`Image::sized`] makes them.
    #[must_use]
    pub fn sized(starts: Vec<Start>, size: u64) -> Self {
        let made = starts.iter().map(|_| OnceLock::new()).collect();
        Self { starts, size: Some(size), made }
    }

    /// The image of a start.
    pub fn image(&self, start: usize) -> Result<&Image, String> {
        let image = self.made[start].get_or_init(|| match self.size {
            Some(size) => Image::sized(&self.starts[start], size),
            None => Image::new(&self.starts[start]),
        });
        image.as_ref().map_err(|text| format!("start {}: {text}", self.starts[start].name))
    }
}

/// Tells what a worker is about to do.
pub type Tell<'t> = dyn Fn(&str) + 't;

/// A piece of work for one processor.
pub struct Job<'j> {
    /// What it is.
    pub id: String,
    /// Does it.
    pub work: Box<dyn FnOnce(&Tell<'_>) -> Report + Send + 'j>,
}

/// When to stop before the jobs end.
#[derive(Clone, Copy, Default)]
pub struct Stop {
    /// No job begins later; the time before the campaign's own turn does not count.
    pub after: Option<Duration>,
    /// No job begins after a failure.
    pub at_failure: bool,
    /// Lines of progress on the standard error output.
    pub progress: bool,
}

/// What each worker does at present, for the thread that looks for hangs.
struct Watch {
    doing: Mutex<Vec<Option<(String, Instant)>>>,
}

impl Watch {
    fn set(&self, worker: usize, what: Option<String>) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing[worker] = what.map(|what| (what, Instant::now()));
    }

    /// Waits until all workers are done; ends the process if one hangs.
    fn keep(&self, left: &AtomicUsize, total: &Mutex<Report>, progress: bool) {
        let (begun, mut told) = (Instant::now(), Instant::now());
        while left.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
            for (what, since) in doing.iter().flatten() {
                if since.elapsed() > PATIENCE {
                    // Past the harness, which would keep it.
                    let _ = writeln!(std::io::stderr(), "{what} hangs");
                    std::process::abort();
                }
            }
            if progress && told.elapsed() > PROGRESS {
                told = Instant::now();
                let total = total.lock().unwrap_or_else(PoisonError::into_inner);
                eprintln!("{:>6} s: {}", begun.elapsed().as_secs(), figures(&total));
            }
        }
    }
}

/// Does the jobs, one on each processor at a time. Campaigns of one process wait for each other.
pub fn work<'j>(jobs: impl Iterator<Item = Job<'j>> + Send, stop: Stop) -> Report {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let left = AtomicUsize::new(workers);
    let watch = Watch { doing: Mutex::new(vec![None; workers]) };
    let total = Mutex::new(Report::default());
    let jobs = Mutex::new(jobs.fuse());
    let next = || {
        let late = stop.after.is_some_and(|after| begun.elapsed() >= after);
        let failed = || !total.lock().unwrap_or_else(PoisonError::into_inner).failures.is_empty();
        if late || stop.at_failure && failed() {
            return None;
        }
        jobs.lock().unwrap_or_else(PoisonError::into_inner).next()
    };
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, left, watch, total) = (&next, &left, &watch, &total);
            scope.spawn(move || {
                os::set_processors(workers);
                while let Some(job) = next() {
                    watch.set(worker, Some(job.id));
                    let report = (job.work)(&|what| watch.set(worker, Some(what.to_owned())));
                    total.lock().unwrap_or_else(PoisonError::into_inner).add(report);
                    watch.set(worker, None);
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        watch.keep(&left, &total, stop.progress);
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A start of single calls, and its image while somebody needs it.
struct Singles<'c> {
    start: &'c Start,
    image: OnceLock<Told<Image>>,
}

/// Explores the single calls that `wanted` takes (by mode, class, start and case), in all settings.
pub fn run(
    wanted: &(dyn Fn(Setting, &Start, &Case) -> bool + Sync),
    share: Share,
    stop: Stop,
) -> Report {
    let filter = &Filter::from_environment();
    let starts = &cases::all();
    let jobs = starts.iter().flat_map(|(start, cases)| {
        let singles = Arc::new(Singles { start, image: OnceLock::new() });
        settings().into_iter().filter_map(move |setting| {
            let group = format!("{}/{}/{}/", setting.mode, setting.class, start.name);
            // An overwrite's size matters in mode `strict` only; the long run tries all modes.
            let takes = is_long() || setting.mode == Mode::Strict;
            let runs = |case: &&Case| {
                let id = format!("{group}{}", case.name);
                let differs = takes || !case.name.starts_with("sized-");
                let is_in = share.takes(filter, &id);
                differs && wanted(setting, start, case) && is_in
            };
            let cases: Vec<&Case> = cases.iter().filter(runs).collect();
            if cases.is_empty() {
                return None;
            }
            let (singles, id) = (Arc::clone(&singles), group.clone());
            let work = move |tell: &Tell<'_>| {
                singles.explore(setting, &cases, &group, (filter, share), tell)
            };
            Some(Job { id, work: Box::new(work) })
        })
    });
    work(jobs, stop)
}

impl Singles<'_> {
    fn explore(
        &self,
        setting: Setting,
        cases: &[&Case],
        group: &str,
        (filter, share): (&Filter, Share),
        tell: &Tell<'_>,
    ) -> Report {
        let image = match self.image.get_or_init(|| Image::new(self.start)) {
            Ok(image) => image,
            Err(text) => return Report::failed(format!("{group}: {text}")),
        };
        let mut report = Report::default();
        for case in cases {
            let id = format!("{group}{}", case.name);
            tell(&id);
            let limits = limits(setting, self.start, case, share);
            let seed = share.seed(&id);
            let selection = Selection { only: filter.state, seed, ..Selection::all(&id, limits) };
            report.add(explore(image, case, setting, &selection));
        }
        report
    }
}

/// Of what is drawn, mode `strict` of class `cache-line` is explored in full, of the others a
/// quarter of the states; long lists of calls and the slowest starts sparsely (unless
/// `SOLERA_TEST_LONG` is set: then everything in full).
fn limits(setting: Setting, start: &Start, case: &Case, share: Share) -> Limits {
    if is_long() {
        return Limits::FULL;
    }
    // Of the slow start, with its 2 MiB to compare, what only a whole chunk can do is explored in
    // full.
    let large = ["leaf", "scattered"].contains(&start.name);
    let slow = start.full || large && !case.name.contains("leaf");
    if case.calls.len() >= 10 || slow {
        return Limits::SPARSE;
    }
    let strictest = setting.mode == Mode::Strict && setting.class == Class::CacheLine;
    let all = strictest || share == Share::All;
    Limits { one_in: if all { 1 } else { 4 }, ..Limits::FULL }
}

/// The figures of a report, in one line.
#[must_use]
pub fn figures(report: &Report) -> String {
    format!(
        "{} workloads, {} calls, {} states ({} distinct), {} crashes inside a recovery, {} \
         failures",
        report.workloads,
        report.calls,
        report.states,
        report.distinct,
        report.nested,
        report.failures.len()
    )
}

/// What a test prints: the figures and the failures.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = figures(report);
    for failure in report.failures.iter().take(TOLD) {
        text.push_str("\n\n");
        text.push_str(failure);
    }
    text
}
