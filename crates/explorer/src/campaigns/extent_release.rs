//! A file loses its last name, and its inodes' extent its last inode, while another process has
//! announced the inode's lock, or is about to: it has found the name. One process dies there.
//!
//! Two attachments of one volume stand for processes. The *finder* is held up before some event of
//! its call. The *remover* takes the name away meanwhile. Then the finder goes on. It dies there,
//! or at any later event; or the remover dies at any event of its call.
//!
//! What must be found, by a third one: no fault, and with all names gone no room missing. No power
//! cut: what this is about is volatile. (A thread that stands for a process cannot die while it
//! recovers another: what it holds then is its process's. `crates/preload/tests/deaths` has such
//! deaths.)
//!
//! Identities: `mode/class/announced/CALL`.

use crate::campaign::{Filter, Images, Job, Stop, Tell, is_long, settings, work};
use crate::cases::Start;
use crate::deaths::{attached, emptied, end_thread, let_go};
use crate::engine::Engine;
use crate::exploration::{Report, seed_of};
use crate::image::{Image, Pinned, Placed, Setting, Told};
use crate::oracle::{check_volume, remove_all};
use crate::pairs::Named;
use crate::workload::short::{dir, file, link, rename, truncate, unlink};
use crate::workload::{Action, System};
use pmem::Hook;
use std::cell::Cell;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use volume::Volume;

/// So long the remover may take: one that takes longer waits for a lock of the finder.
const WAIT: Duration = Duration::from_millis(30);
/// A call that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Inodes that an extent has room for.
const EXTENT: u64 = 63;
/// Of the remover's events one in so many is its last, each time others.
const ONE_IN: u64 = 8;
/// The finder is held up before one in so many of its events.
const ONE_IN_HELD: u32 = 4;

thread_local! {
    /// Whether this thread makes the call of its process.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// The number of the event before which a call is held up, or ends; 0: none.
#[derive(Clone, Copy, Default)]
struct Fate {
    held: u64,
    dies: u64,
}

#[derive(Default)]
struct Inner {
    events: u64,
    is_held: bool,
    goes_on: bool,
    ending: Option<Ending>,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Returned,
    Died,
}

/// Counts the events of a call, holds it up, and ends it.
struct Director {
    fate: Fate,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Director {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this is so, or for so long; whether it is.
    fn wait(&self, patience: Duration, is_so: impl Fn(&Inner) -> bool) -> bool {
        let waits = |inner: &mut Inner| !is_so(inner);
        let waited = self.changed.wait_timeout_while(self.lock(), patience, waits);
        is_so(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    fn tell(&self, what: impl FnOnce(&mut Inner)) {
        what(&mut self.lock());
        self.changed.notify_all();
    }

    fn step(&self) {
        if !CALLS.get() {
            return;
        }
        self.tell(|inner| inner.events += 1);
        let number = self.lock().events;
        if number == self.fate.held {
            self.tell(|inner| inner.is_held = true);
            self.wait(PATIENCE, |inner| inner.goes_on);
        }
        if number == self.fate.dies {
            self.tell(|inner| inner.ending = Some(Ending::Died));
            end_thread();
        }
    }
}

impl Hook for Director {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {
        self.step();
    }

    fn flush(&self, _: u64, _: &'static Location<'static>) {
        self.step();
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.step();
    }

    fn shared(&self, _: u64) {
        self.step();
    }
}

/// A process that makes one call.
struct Process {
    director: Arc<Director>,
    volume: Arc<Volume>,
}

impl Process {
    fn new(placed: &Placed, setting: Setting, fate: Fate) -> Told<Self> {
        let director = Director { fate, inner: Mutex::default(), changed: Condvar::new() };
        let director = Arc::new(director);
        Ok(Self { volume: attached(placed, setting, director.clone())?, director })
    }

    /// Makes the call, in a thread of its own, until it is held up or has ended.
    fn begin(&self, call: &Action, patience: Duration) -> Told<bool> {
        let (director, call) = (Arc::clone(&self.director), call.clone());
        let mut engine = Engine::new(self.volume.clone());
        let makes_it = move || {
            CALLS.set(true);
            // The name may be gone.
            let _ = engine.apply(&call);
            CALLS.set(false);
            drop(engine);
            director.tell(|inner| inner.ending = Some(Ending::Returned));
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        thread.spawn(makes_it).map_err(|error| error.to_string())?;
        Ok(self.director.wait(patience, |inner| inner.is_held || inner.ending.is_some()))
    }

    /// Whether the call has returned, or died.
    fn has_ended(&self) -> bool {
        self.director.lock().ending.is_some()
    }

    /// Lets the call come to its end; gives how many events it had.
    fn end(self) -> Told<u64> {
        self.director.tell(|inner| inner.goes_on = true);
        if !self.director.wait(PATIENCE, |inner| inner.ending.is_some()) {
            return Err("a call hangs".into());
        }
        if self.director.lock().ending == Some(Ending::Died) {
            self.volume.forsake().map_err(|errno| errno.to_string())?;
            let_go(&self.volume);
        }
        Ok(self.director.lock().events)
    }
}

/// What happens to whom.
#[derive(Clone, Copy, Default)]
struct Fates {
    finder: Fate,
    remover: Fate,
}

/// How many events each one had; `None`: the remover had to wait for the finder.
#[derive(Clone, Copy, Default)]
struct Events {
    finder: u64,
    remover: Option<u64>,
}

/// A directory, files that fill the first extent of inodes, and the file that is about to go.
fn start() -> Start {
    // The root is an inode, too.
    let others = (2..EXTENT).map(|number| file(&format!("other-{number}")));
    let build = [vec![dir("d")], others.collect(), vec![file("a")]].concat();
    Start { name: "announced", build, full: false }
}

/// The finder's calls, of the file and of the directory.
fn calls() -> Vec<Named> {
    vec![
        ("mode", Action::SetMode { path: "a".into(), mode: 0o400 }),
        ("truncate", truncate("a", 5000)),
        ("link", link("a", "d/n")),
        ("rename", rename("a", "d/n")),
        ("unlink", unlink("a")),
    ]
}

fn meet(image: &Image, setting: Setting, call: &Action, fates: Fates) -> Told<Events> {
    let placed = image.placed()?;
    let process = |fate| Process::new(&placed, setting, fate);
    // The one that stays.
    let volume = process(Fate::default())?.volume;
    let (finder, remover) = (process(fates.finder)?, process(fates.remover)?);
    let mut events = Events::default();
    if !finder.begin(call, PATIENCE)? {
        return Err("the finder hangs".into());
    }
    if remover.begin(&unlink("a"), WAIT)? {
        events.remover = Some(remover.end()?);
        events.finder = finder.end()?;
    } else {
        // It waits for the finder; or it is slow, and may die with a lock that the finder needs.
        finder.director.tell(|inner| inner.goes_on = true);
        let begun = Instant::now();
        while !finder.has_ended() && !remover.has_ended() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if remover.has_ended() {
            remover.end()?;
            events.finder = finder.end()?;
        } else {
            events.finder = finder.end()?;
            remover.end()?;
        }
    }
    // Who attaches finds deaths that no process has waited for.
    drop(process(Fate::default())?);
    check_volume(&volume)?;
    remove_all(&Engine::new(volume.clone()))?;
    emptied(image, &volume)?;
    Ok(events)
}

/// All deaths around one call of the finder.
struct Deaths<'l> {
    image: &'l Image,
    setting: Setting,
    call: &'l Named,
    report: Report,
    tell: &'l Tell<'l>,
}

impl Deaths<'_> {
    /// A failure is told with the places of both calls.
    fn meet(&mut self, fates: Fates, what: &str) -> Option<Events> {
        let what = format!("{}: {what}", id(self.setting, self.call));
        (self.tell)(&what);
        self.report.workloads += 1;
        self.report.calls += 2;
        let met = meet(self.image, self.setting, &self.call.1, fates);
        met.map_err(|text| self.report.failures.push(format!("{what}: {text}"))).ok()
    }

    /// The events at which one of a call with so many dies, by another number each time.
    fn places(events: u64, number: u64) -> impl Iterator<Item = u64> {
        let stride = if is_long() { 1 } else { ONE_IN };
        (1 + number % stride..=events).step_by(stride as usize)
    }

    fn all(&mut self) -> Option<()> {
        let total = self.meet(Fates::default(), "alone")?.finder;
        let id = id(self.setting, self.call);
        // The others at other commits.
        let asked = Filter::from_environment().is_set();
        let is_in = |held: &u64| asked || rotation::chosen(&format!("{id}/{held}"), ONE_IN_HELD);
        for held in (1..=total).filter(is_in) {
            let finder = Fate { held, dies: 0 };
            let fates = Fates { finder, ..Fates::default() };
            let events = self.meet(fates, &format!("held up before {held} of {total}"))?;
            let Some(removed) = events.remover else { continue };
            for dies in held..=events.finder {
                let fates = Fates { finder: Fate { held, dies }, ..fates };
                self.meet(fates, &format!("held up before {held}, dies before {dies}"))?;
            }
            for dies in Self::places(removed, held) {
                let fates = Fates { remover: Fate { held: 0, dies }, ..fates };
                self.meet(fates, &format!("held up before {held}, the other dies before {dies}"))?;
            }
        }
        Some(())
    }
}

fn id(setting: Setting, call: &Named) -> String {
    format!("{}/{}/announced/{}", setting.mode, setting.class, call.0)
}

/// Explores all calls; mode `strict`, class `cache-line`.
#[must_use]
pub fn run(stop: Stop) -> Report {
    let (filter, images, calls) =
        (&Filter::from_environment(), &Images::new(vec![start()]), &calls());
    let setting = settings()[0];
    let jobs = calls.iter().filter(|call| filter.takes(&id(setting, call)));
    let jobs = jobs.map(|call| {
        let work = move |tell: &Tell<'_>| {
            // Which record a call takes, and what that keeps, is its processor's.
            let _pinned = Pinned::to(seed_of(call.0) as usize);
            images.image(0).map_or_else(Report::failed, |image| {
                let mut deaths = Deaths { image, setting, call, report: Report::default(), tell };
                // What was found is in the report.
                let _ = deaths.all();
                deaths.report
            })
        };
        Job { id: id(setting, call), work: Box::new(work) }
    });
    work(jobs, stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_alone_in_its_extent() {
        let image = Image::new(&start()).expect("built");
        let setting = settings()[0];
        let volume = image.attach(image.region(setting).expect("a region"), setting);
        let engine = Engine::new(volume.expect("attached"));
        let extent = |path: &str| engine.resolve(path).expect("found").ino / (EXTENT + 1);
        let others = (2..EXTENT).map(|number| extent(&format!("other-{number}")));
        assert!(others.chain([extent("d")]).all(|other| other != extent("a")));
    }
}
