//! Mutations: each call site of a flush or a fence is left out in turn, and some crash must show
//! it.
//!
//! A survey says which single calls (`cases.rs`) reach a site; those are explored first, without
//! the site. Sites that they do not show are looked for in lives of volumes, deaths, random
//! sequences and pairs of calls at once, for a limited time. Only with the feature `inject`.

use crate::campaign::{Job, Share, Stop, Tell, settings, work};
use crate::cases::{self, Case, Start};
use crate::exploration::{Report, Selection, explore, sites_of_calls};
use crate::image::{Image, Setting, Told};
use crate::states::Limits;
use crate::{concurrent, deaths, lifecycle, sequences};
use pmem::inject::{Does, Site, leave_out, reached};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of the settings those in which flushes and fences count: all modes of class `cache-line`.
const SETTINGS: usize = 3;
/// For the survey: recovery runs at the ends of each step, and no more.
const ENDS: Limits = Limits { pairs: 0, power_set: 0, samples: 0, prefixes: 1, one_in: u64::MAX };

/// A single call in a setting.
#[derive(Clone, Copy)]
struct Place {
    setting: Setting,
    start: usize,
    case: usize,
}

/// All single calls, and which sites they reach.
pub struct Survey {
    starts: Vec<(Start, Vec<Case>)>,
    images: Vec<Told<Image>>,
    by_site: BTreeMap<Site, Vec<Place>>,
}

fn id_of(starts: &[(Start, Vec<Case>)], place: &Place) -> String {
    let (start, cases) = &starts[place.start];
    let Setting { mode, class } = place.setting;
    format!("{mode}/{class}/{}/{}", start.name, cases[place.case].name)
}

impl Survey {
    /// Runs each single call once.
    #[must_use]
    pub fn take() -> Self {
        let starts = cases::all();
        let images: Vec<_> = starts.iter().map(|(start, _)| Image::new(start)).collect();
        let places: Vec<Place> = settings()[..SETTINGS]
            .iter()
            .flat_map(|&setting| {
                let numbered = starts.iter().enumerate();
                numbered.flat_map(move |(start, (_, cases))| {
                    (0..cases.len()).map(move |case| Place { setting, start, case })
                })
            })
            .collect();
        let found: Mutex<BTreeMap<Site, Vec<(bool, Place)>>> = Mutex::default();
        let jobs = places.iter().map(|place| {
            let (starts, images, found) = (&starts, &images, &found);
            let id = id_of(starts, place);
            let work = {
                let id = id.clone();
                move |_: &Tell<'_>| {
                    let case = &starts[place.start].1[place.case];
                    let image = &images[place.start];
                    let (sites, report) = reached(|| explore_at(image, case, place, &id, ENDS));
                    let selection = Selection::all(&id, ENDS);
                    let own = image.as_ref().map_or(Vec::new(), |image| {
                        sites_of_calls(image, case, place.setting, &selection)
                    });
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    for site in sites {
                        let elsewhere = !own.contains(&site.at);
                        found.entry(site).or_default().push((elsewhere, *place));
                    }
                    report
                }
            };
            Job { id, work: Box::new(work) }
        });
        let report = work(jobs, Stop::default());
        assert!(report.failures.is_empty(), "nothing is left out yet: {:?}", report.failures);
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let by_site = found.into_iter().map(|(site, mut places)| {
            places.sort_by_key(|&(elsewhere, _)| elsewhere);
            (site, places.into_iter().map(|(_, place)| place).collect())
        });
        Self { starts, images, by_site: by_site.collect() }
    }

    /// The sites that were reached.
    pub fn sites(&self) -> BTreeSet<Site> {
        self.by_site.keys().copied().collect()
    }

    /// Leaves a site out and explores, at most so long; what showed it.
    #[must_use]
    pub fn hunt(&self, site: Site, longest: Duration) -> Option<String> {
        leave_out(Some(site));
        let begun = Instant::now();
        let until = |most: Duration| Stop {
            after: Some(most.saturating_sub(begun.elapsed())),
            at_failure: true,
            progress: false,
        };
        let families: [&dyn Fn() -> Report; 6] = [
            &|| lifecycle::run(settings()[..SETTINGS].to_vec(), Share::All, until(longest)),
            // Recovery is reached by each crash: what it leaves out would take all the time here.
            &|| self.singles(site, until(longest / 2)),
            &|| deaths::everywhere("write-over"),
            &|| deaths::run(Share::All, until(longest)),
            &|| sequences::run(1..=60, Share::All, until(longest)),
            &|| concurrent::run(Share::All, until(longest)),
        ];
        let shown = families.iter().find_map(|family| family().failures.into_iter().next());
        leave_out(None);
        shown
    }

    fn singles(&self, site: Site, stop: Stop) -> Report {
        let places = self.by_site.get(&site).map_or(&[][..], Vec::as_slice);
        let jobs = places.iter().map(|place| {
            let id = id_of(&self.starts, place);
            let work = {
                let id = id.clone();
                move |_: &Tell<'_>| {
                    let case = &self.starts[place.start].1[place.case];
                    explore_at(&self.images[place.start], case, place, &id, Limits::FULL)
                }
            };
            Job { id, work: Box::new(work) }
        });
        work(jobs, stop)
    }
}

fn explore_at(image: &Told<Image>, case: &Case, place: &Place, id: &str, limits: Limits) -> Report {
    match image {
        Ok(image) => explore(image, case, place.setting, &Selection::all(id, limits)),
        Err(text) => Report::failed(format!("{id}: {text}")),
    }
}

/// The sites by names that outlive a change elsewhere in their file: file, function, what it does
/// there, and which of several of its kind in that function.
pub fn names(root: &Path, sites: &BTreeSet<Site>) -> BTreeMap<Site, String> {
    let mut count: BTreeMap<String, u32> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for site in sites {
        let file = site.at.file();
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let before: Vec<&str> = source.lines().take(site.at.line() as usize).collect();
        let function = before.iter().rev().find_map(|line| function_in(line)).unwrap_or("?");
        let does = match site.does {
            Does::Flush => "flush",
            Does::Fence => "fence",
        };
        let name = format!("{file} {function} {does}");
        let number = count.entry(name.clone()).or_default();
        *number += 1;
        names.insert(*site, format!("{name} {number}"));
    }
    names
}

/// The function that a line of source begins, if it does.
fn function_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.split_once("fn ") {
        Some((before, rest)) if before.split_whitespace().all(is_qualifier) => rest,
        _ => return None,
    };
    rest.split(['(', '<']).next().filter(|name| !name.is_empty())
}

fn is_qualifier(word: &str) -> bool {
    word.starts_with("pub") || ["const", "unsafe", "in", "crate)", "super)"].contains(&word)
}
