//! Campaigns of sequences: random ones by their seeds, pairs and triples of a reduced set of calls.
//! A failure is told by the shortest sequence that still shows it.
//!
//! Identities: `mode/class/random/SEED`, or `.../SEED:0,4,9` for some of its calls, of which only
//! the last is explored.

use crate::campaign::{Filter, Images, Job, Share, Stop, Tell, is_long, work};
use crate::cases::Case;
use crate::exploration::{Report, Selection, explore};
use crate::image::{Image, Setting};
use crate::pairs;
use crate::random::{sequence, starts};
use crate::states::Limits;
use crate::workload::Action;
use pmem::Class;
use std::time::{Duration, Instant};
use volume::Mode;

/// A search for a shorter sequence ends after that.
const SHRINK_TIME: Duration = Duration::from_secs(40);

/// Calls of a seed's sequence.
fn length_of(seed: u64) -> usize {
    14 + (seed * 7 % 29) as usize
}

/// The setting of a seed: mostly that in which most is promised.
fn setting_of(seed: u64) -> Setting {
    let (mode, class) = match seed % 9 {
        0..=2 => (Mode::Strict, Class::CacheLine),
        3 | 4 => (Mode::Posix, Class::CacheLine),
        5 | 6 => (Mode::Sync, Class::CacheLine),
        7 => (Mode::Strict, Class::Byte),
        _ if seed.is_multiple_of(2) => (Mode::Posix, Class::Byte),
        _ => (Mode::Sync, Class::Byte),
    };
    Setting { mode, class }
}

fn group_of(setting: Setting, family: &str) -> String {
    format!("{}/{}/{family}/", setting.mode, setting.class)
}

/// Explores the share of the sequences of these seeds, until `stop`; if `SOLERA_EXPLORE` names one,
/// that instead.
pub fn run(seeds: impl Iterator<Item = u64> + Send, share: Share, stop: Stop) -> Report {
    let filter = &Filter::from_environment();
    let images = &Images::new(starts());
    if filter.is_set() {
        return asked(images, filter, stop);
    }
    // A search for any failure needs no shorter one.
    let shrinks = !stop.at_failure;
    let seeds = seeds.map(|seed| {
        let setting = setting_of(seed);
        (seed, setting, format!("{}{seed}", group_of(setting, "random")))
    });
    let taken = seeds.filter(|(_, _, id)| share.takes(filter, id));
    let jobs = taken.map(|(seed, setting, id)| {
        let work = {
            let id = id.clone();
            move |tell: &Tell<'_>| {
                one(images, setting, (&id, share.seed(&id)), seed, shrinks.then_some(tell))
            }
        };
        Job { id, work: Box::new(work) }
    });
    work(jobs, stop)
}

/// Explores the random sequence, or those of its calls, that this identity names.
#[must_use]
pub fn replayed(id: &str) -> Report {
    asked(&Images::new(starts()), &Filter::of(id), Stop::default())
}

fn asked(images: &Images, filter: &Filter, stop: Stop) -> Report {
    let asked = crate::campaign::settings().into_iter().find_map(|setting| {
        let rest = filter.below(&group_of(setting, "random"))?;
        Some((setting, rest.to_owned()))
    });
    let Some((setting, rest)) = asked else { return Report::default() };
    let id = format!("{}{rest}", group_of(setting, "random"));
    let job = Job {
        id: id.clone(),
        work: Box::new(move |_| replay(images, setting, &id, &rest, filter.state)),
    };
    work(std::iter::once(job), stop)
}

/// Explores the second call of all pairs and the last of so many triples; in modes that promise
/// less, and on machines of class `byte`, those whose calls move data. Then pairs that begin with a
/// journaled call, the second one on another processor: it meets another lane's record.
#[must_use]
pub fn run_sets(triples: usize) -> Report {
    let sets = pairs::pairs().into_iter().map(Vec::from);
    let sets = sets.chain(pairs::triples(1, triples).into_iter().map(Vec::from));
    explore_sets(sets.map(|set| (set, "sets")).chain(turns()))
}

/// Such pairs.
fn turns() -> impl Iterator<Item = (Vec<usize>, &'static str)> + Send {
    let calls = pairs::calls();
    let turns = pairs::pairs().into_iter().filter(move |set| pairs::is_journaled(calls[set[0]].0));
    turns.map(|set| (Vec::from(set), "turns"))
}

fn explore_sets(sets: impl Iterator<Item = (Vec<usize>, &'static str)> + Send) -> Report {
    let filter = &Filter::from_environment();
    let images = &Images::new(vec![pairs::start()]);
    let (calls, data) = (&pairs::calls(), pairs::data_calls().len());
    let jobs = sets.flat_map(move |(set, family)| {
        let moves = set.iter().all(|&call| call < data);
        let wanted = move |setting: &Setting| {
            let strict = setting.mode == Mode::Strict && setting.class == Class::CacheLine;
            strict || moves && (family == "sets" || is_long())
        };
        crate::campaign::settings().into_iter().filter(wanted).filter_map(move |setting| {
            let names: Vec<&str> = set.iter().map(|&call| calls[call].0).collect();
            let id = format!("{}{}", group_of(setting, family), names.join("+"));
            let actions = set.iter().map(|&call| calls[call].1.clone()).collect();
            let work = {
                let id = id.clone();
                let by_turns = family == "turns";
                move |_: &Tell<'_>| one_set(images, setting, &id, actions, (filter.state, by_turns))
            };
            Share::Drawn.takes(filter, &id).then(|| Job { id, work: Box::new(work) })
        })
    });
    work(jobs, Stop::default())
}

fn one_set(
    images: &Images,
    setting: Setting,
    id: &str,
    actions: Vec<Action>,
    (only, by_turns): (Option<u64>, bool),
) -> Report {
    let image = match images.image(0) {
        Ok(image) => image,
        Err(text) => return Report::failed(text),
    };
    let all: Vec<Action> = pairs::opened().into_iter().chain(actions).collect();
    let all: Vec<&Action> = all.iter().collect();
    let selection = Selection { only, by_turns, ..Selection::all(id, set_limits()) };
    let mut report = last_call(image, setting, &all, &selection);
    if let (Some(text), Some(broken)) = (report.failures.last_mut(), report.broken) {
        text.push_str("\n  ");
        text.push_str(&again(&format!("{id}#{}", broken.state)));
    }
    report
}

/// Each call by itself is explored in full: after another call, by default some states are.
fn set_limits() -> Limits {
    if is_long() { Limits::FULL } else { Limits { one_in: 5, ..Limits::FULL } }
}

fn thin() -> Limits {
    if is_long() { Limits { one_in: 2, ..Limits::THIN } } else { Limits::THIN }
}

fn one(
    images: &Images,
    setting: Setting,
    (id, states): (&str, u64),
    seed: u64,
    shrinks: Option<&Tell<'_>>,
) -> Report {
    let (start, actions) = sequence(seed, length_of(seed));
    let image = match images.image(start) {
        Ok(image) => image,
        Err(text) => return Report::failed(text),
    };
    let case = Case { name: String::new(), before: Vec::new(), calls: actions };
    let all = Selection::all(id, thin());
    let selection = Selection { seed: states, use_one_in: 8, may_fill: true, ..all };
    let mut report = explore(image, &case, setting, &selection);
    if let (Some(tell), false) = (shrinks, report.failures.is_empty()) {
        tell(&format!("shrinking {id}"));
        let end = report.broken.map_or(case.calls.len(), |broken| broken.call + 1);
        let shorter = shrink(image, setting, id, &case.calls[..end]);
        let told = report.failures.pop().unwrap_or_default();
        report.failures.push(shorter.unwrap_or_else(|| {
            format!("{told}\n{}", workload(&case.calls[..end], report.broken, id))
        }));
    }
    report
}

/// Explores some calls of a sequence, or all.
fn replay(images: &Images, setting: Setting, id: &str, rest: &str, state: Option<u64>) -> Report {
    let (seed, kept) = match rest.split_once(':') {
        Some((seed, kept)) => (seed, Some(kept)),
        None => (rest, None),
    };
    let Ok(seed) = seed.parse() else { return Report::failed(format!("{id}: no seed")) };
    let (start, actions) = sequence(seed, length_of(seed));
    let image = match images.image(start) {
        Ok(image) => image,
        Err(text) => return Report::failed(text),
    };
    let Some(kept) = kept else {
        let case = Case { name: String::new(), before: Vec::new(), calls: actions };
        let all = Selection::all(id, thin());
        let selection = Selection { only: state, use_one_in: 8, may_fill: true, ..all };
        return explore(image, &case, setting, &selection);
    };
    let kept: Option<Vec<usize>> = kept.split(',').map(|index| index.parse().ok()).collect();
    let Some(kept) = kept else { return Report::failed(format!("{id}: no list of calls")) };
    let actions: Vec<&Action> = kept.iter().filter_map(|&index| actions.get(index)).collect();
    last_call(
        image,
        setting,
        &actions,
        &Selection { only: state, ..Selection::all(id, Limits::FULL) },
    )
}

/// Explores the last of some calls.
fn last_call(
    image: &Image,
    setting: Setting,
    actions: &[&Action],
    selection: &Selection<'_>,
) -> Report {
    let Some((last, before)) = actions.split_last() else { return Report::default() };
    let before = before.iter().map(|&action| action.clone()).collect();
    let case = Case { name: String::new(), before, calls: vec![(*last).clone()] };
    explore(image, &case, setting, &Selection { may_fill: true, ..*selection })
}

/// Looks for fewer calls that fail as well; gives the failure told by them, if they fail by
/// themselves.
fn shrink(image: &Image, setting: Setting, id: &str, actions: &[Action]) -> Option<String> {
    let begun = Instant::now();
    let fails = |kept: &[usize]| -> Option<(String, String)> {
        let list: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let id = format!("{id}:{}", list.join(","));
        let chosen: Vec<&Action> = kept.iter().map(|&index| &actions[index]).collect();
        let mut report = last_call(image, setting, &chosen, &Selection::all(&id, Limits::FULL));
        let text = report.failures.pop()?;
        let id = report.broken.map_or(id.clone(), |broken| format!("{id}#{}", broken.state));
        Some((text, id))
    };
    let mut kept: Vec<usize> = (0..actions.len()).collect();
    let mut told = fails(&kept)?;
    let mut size = kept.len().div_ceil(2);
    while size > 0 && begun.elapsed() < SHRINK_TIME {
        let mut from = 0;
        let mut shorter = false;
        while from + 1 < kept.len() && begun.elapsed() < SHRINK_TIME {
            let to = (from + size).min(kept.len() - 1);
            let rest = [&kept[..from], &kept[to..]].concat();
            if let Some(text) = fails(&rest) {
                (kept, told, shorter) = (rest, text, true);
            } else {
                from = to;
            }
        }
        if !shorter || size > 1 {
            size /= 2;
        }
    }
    let chosen: Vec<Action> = kept.iter().map(|&index| actions[index].clone()).collect();
    Some(format!("{}\n{}", told.0, workload(&chosen, None, &told.1)))
}

/// The calls, and how to see the failure again.
fn workload(actions: &[Action], broken: Option<crate::exploration::Broken>, id: &str) -> String {
    let calls: Vec<String> = actions.iter().map(|action| format!("\n    {action:?}")).collect();
    let state = broken.map_or(String::new(), |broken| format!("#{}", broken.state));
    format!("  workload:{}\n  {}", calls.concat(), again(&format!("{id}{state}")))
}

/// The command that explores one state again.
#[must_use]
pub fn again(id: &str) -> String {
    let drawn = if is_long() {
        "SOLERA_TEST_LONG=1".into()
    } else {
        format!("SOLERA_ROTATION={}", rotation::seed())
    };
    format!(
        "replay: {drawn} SOLERA_EXPLORE='{id}' cargo test --release -p solera-explorer --features \
         inject --test crash campaigns"
    )
}

/// Explores every call of a workload on a start of the random sequences, in full, in all modes and
/// classes.
#[must_use]
pub fn workload_on(start: &str, actions: &[Action]) -> Report {
    let mut report = Report::default();
    let Some(start) = starts().into_iter().find(|one| one.name == start) else {
        return Report::failed(format!("no start {start}"));
    };
    let image = match Image::new(&start) {
        Ok(image) => image,
        Err(text) => return Report::failed(text),
    };
    let case = Case { name: String::new(), before: Vec::new(), calls: actions.to_vec() };
    for setting in crate::campaign::settings() {
        let id = group_of(setting, start.name);
        report.add(explore(&image, &case, setting, &Selection::all(&id, Limits::FULL)));
    }
    report
}
