//! A campaign: all cases in all settings, on all processors.
//!
//! Identities read `mode/class/start/case#state`. `SOLERA_EXPLORE=prefix` explores only what begins
//! so (`#state` included: only that state), and so replays a failure.

use crate::cases::{self, Case, Start};
use crate::explore::{Report, Selection, explore};
use crate::lab::{Lab, Setting};
use crate::states::Limits;
use pmem::Class;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use volume::Mode;

/// A call that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);
/// Failures told; the rest is counted.
const TOLD: usize = 12;

/// All settings: modes times classes.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let modes = [Mode::Strict, Mode::Sync, Mode::Posix];
    let classes = [Class::CacheLine, Class::Byte];
    classes.iter().flat_map(|&class| modes.map(|mode| Setting { mode, class })).collect()
}

/// What `SOLERA_EXPLORE` asks for.
struct Filter {
    prefix: String,
    state: Option<u64>,
}

impl Filter {
    fn from_environment() -> Self {
        let text = std::env::var("SOLERA_EXPLORE").unwrap_or_default();
        match text.split_once('#') {
            Some((prefix, state)) => Self { prefix: prefix.into(), state: state.parse().ok() },
            None => Self { prefix: text, state: None },
        }
    }

    fn takes_case(&self, id: &str) -> bool {
        if self.state.is_some() { id == self.prefix } else { id.starts_with(&self.prefix) }
    }

    fn takes_some(&self, group: &str) -> bool {
        group.starts_with(&self.prefix) || self.prefix.starts_with(group)
    }
}

/// What each worker does at present, for the watchman.
struct Watch {
    doing: Mutex<Vec<Option<(String, Instant)>>>,
}

impl Watch {
    fn set(&self, worker: usize, what: Option<String>) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing[worker] = what.map(|what| (what, Instant::now()));
    }

    /// Waits until all workers are done; ends the process if one hangs.
    fn keep(&self, left: &AtomicUsize) {
        while left.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_millis(100));
            let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
            for (what, since) in doing.iter().flatten() {
                if since.elapsed() > PATIENCE {
                    eprintln!("{what} hangs");
                    std::process::abort();
                }
            }
        }
    }
}

/// Explores the cases that `wanted` takes (by mode, class, start and case), in all settings.
pub fn run(wanted: &(dyn Fn(Setting, &Start, &Case) -> bool + Sync)) -> Report {
    let filter = Filter::from_environment();
    let settings = settings();
    let starts = cases::all();
    let jobs: Vec<(&Setting, &(Start, Vec<Case>))> = settings
        .iter()
        .flat_map(|setting| starts.iter().map(move |start| (setting, start)))
        .collect();
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let (next, left) = (AtomicUsize::new(0), AtomicUsize::new(workers));
    let watch = Watch { doing: Mutex::new(vec![None; workers]) };
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, left, watch, total) = (&next, &left, &watch, &total);
            let (jobs, filter) = (&jobs, &filter);
            scope.spawn(move || {
                while let Some((setting, (start, cases))) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let wanted = |case: &&Case| wanted(**setting, start, case);
                    let cases: Vec<&Case> = cases.iter().filter(wanted).collect();
                    let tell = |what: Option<String>| watch.set(worker, what);
                    let report = job(**setting, start, &cases, filter, &tell);
                    total.lock().unwrap_or_else(PoisonError::into_inner).add(report);
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        watch.keep(&left);
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn job(
    setting: Setting,
    start: &Start,
    cases: &[&Case],
    filter: &Filter,
    tell: &dyn Fn(Option<String>),
) -> Report {
    let mut report = Report::default();
    let group = format!("{}/{}/{}/", setting.mode, setting.class, start.name);
    if cases.is_empty() || !filter.takes_some(&group) {
        return report;
    }
    tell(Some(group.clone()));
    let lab = match Lab::new(start) {
        Ok(lab) => lab,
        Err(text) => {
            report.failures.push(format!("{group}: {text}"));
            return report;
        }
    };
    for case in cases {
        let id = format!("{group}{}", case.name);
        if filter.takes_case(&id) {
            tell(Some(id.clone()));
            let limits = limits(start, case);
            let selection = Selection { id: &id, only: filter.state, limits };
            report.add(explore(&lab, case, setting, &selection));
        }
    }
    tell(None);
    report
}

/// All modes are explored in full; long lists of calls and the slowest starts sparsely (unless
/// `SOLERA_TEST_LONG` is set: then everything in full).
fn limits(start: &Start, case: &Case) -> Limits {
    if std::env::var_os("SOLERA_TEST_LONG").is_some() {
        return Limits::FULL;
    }
    // Of the slow start, with its 2 MiB to compare, what only a whole chunk can do is explored in full.
    let slow = start.full || start.name == "leaf" && !case.name.contains("leaf");
    if case.calls.len() < 10 && !slow { Limits::FULL } else { Limits::SPARSE }
}

/// What a test prints: the figures and the failures.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = format!(
        "{} calls, {} states ({} distinct), {} crashes inside a recovery, {} failures",
        report.calls,
        report.states,
        report.distinct,
        report.nested,
        report.failures.len()
    );
    for failure in report.failures.iter().take(TOLD) {
        text.push_str("\n\n");
        text.push_str(failure);
    }
    text
}
