//! Processes are killed before each step of a move, on real nodes, tables and page files, while
//! others store to the pages: no store that was flushed may be lost.
//!
//! | process | what it does |
//! |---|---|
//! | this one | is the holder; kills; reads all pages behind each death |
//! | host | the volume's host, whose evictor sends pages away; or is killed as it does |
//! | storers | two threads that store to all pages, each finding its store before |
//! | bringer | touches a page that the holder has, and is killed as it brings it |
//!
//! Another thread of the bringer stores to the page as soon as it is mapped.
//!
//! What was flushed is in a ledger outside of the region. A death comes before an instruction of
//! the thread that moves a page which others could tell from the one before it: `tracer.rs`. With
//! `SOLERA_TEST_LONG` before each of them, else before some, which are others at each commit
//! (`rotation`). Mistakes are put back, which are to be found: of one kind of process at a commit.

mod ledger;
mod tracer;

use crate::control::preferences::{Policy, Preferences};
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::{Location, Mistake, State};
use crate::shared_memory::counters::Count;
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::process::program;
use crate::tests::support::running::{PAGE, Running, region_of};
use ledger::{BESIDE, BRINGS, Ledger, PAGES, Word, check_all, stamp_all, store_next};
use pmem::{Pager, Region};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracer::Traced;

/// Whether a process came to the point at which it was to die, and how many points it has passed;
/// or what was wrong behind its death.
type Death = Result<(bool, u64), String>;

/// What is waited for comes within that time, or never.
const LATE: Duration = Duration::from_mins(5);
/// So long others go on while the one that is to be killed stands at its point.
const MEANWHILE: Duration = Duration::from_millis(2);
/// Between two stores of a thread: the processors are for those that move pages.
const PACE: Duration = Duration::from_micros(30);
/// Bytes from which on the C library copies by instructions that repeat themselves.
const NEVER: u64 = 1 << 30;
/// The page that a process was to bring has come by its own request.
const BROUGHT: u64 = 1;
/// Pages that come while calls are counted, and calls for each, at most.
const MOVED: u64 = 1000;
const CALLS: u64 = 16;
/// Deaths of a move, where not all are tried.
const SOME: u64 = 10;
/// Moves that are tried for a point, which one of few pages does not come to.
const TRIES: u64 = 5;

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LATE, "{what}: it does not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Another process, which is this program once more: it is killed with this.
struct Role(Child);

impl Role {
    fn start(folder: &TestDir, role: &str, mistake: Option<Mistake>, more: &str) -> Self {
        let mut command = program(module_path!(), "role");
        command.env("CUT_SHORT_ROLE", role).env("CUT_SHORT_FOLDER", folder.at(""));
        command.env("CUT_SHORT_MORE", more).stdout(Stdio::null());
        // An instruction that repeats itself takes a step for each byte.
        let never =
            ["movsb", "stosb"].map(|what| format!("glibc.cpu.x86_rep_{what}_threshold={NEVER}"));
        command.env("GLIBC_TUNABLES", never.join(":"));
        if let Some(mistake) = mistake {
            command.env("CUT_SHORT_MISTAKE", format!("{mistake:?}"));
        }
        // SAFETY: a system call without memory. Should this process end, so does the child.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        Self(command.spawn().unwrap())
    }

    fn process(&self) -> i32 {
        self.0.id() as i32
    }

    /// The number of its thread of a name.
    fn thread(&self, name: &str) -> i32 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process())).unwrap();
        let is = |path: &Path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let found = tasks.flatten().map(|task| task.path()).find(|path| is(path)).unwrap();
        found.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn region_in(folder: &Path) -> PathBuf {
    folder.join("host").join("volumes").join("v").join("region")
}

/// All processes but the one that is killed as it brings a page.
struct World {
    storers: Role,
    host: Role,
    holder: Running,
    region: Region,
    pager: Arc<RegionPager>,
    ledger: Ledger,
    mistake: Option<Mistake>,
    folder: TestDir,
}

impl World {
    fn new(mistake: Option<Mistake>) -> Self {
        let folder = TestDir::new();
        let ledger = Ledger::create(&folder.at("ledger"));
        let holder = Running::start(&folder.at("holder"), 4 << 20, None);
        let host = Self::start_host(&folder, &ledger, &holder, mistake);
        let store = Store::at(folder.at("host"));
        let path = store.create_volume("v", PAGES * PAGE, 1).unwrap();
        let (region, pager) = region_of(&path.join("region"), patient());
        stamp_all(&region);
        let storers = Role::start(&folder, "storers", mistake, "");
        let world = Self { storers, host, holder, region, pager, ledger, mistake, folder };
        until("all pages are stored to", || world.ledger.get(Word::Second) > PAGES);
        world
    }

    fn start_host(
        folder: &TestDir,
        ledger: &Ledger,
        holder: &Running,
        mistake: Option<Mistake>,
    ) -> Role {
        let before = ledger.get(Word::Nodes);
        let mut host = Role::start(folder, "host", mistake, &holder.address.to_string());
        until("the host's node", || {
            assert!(host.0.try_wait().unwrap().is_none(), "the host's node does not start");
            ledger.get(Word::Nodes) > before
        });
        host
    }

    /// What a storer has found that is wrong.
    fn wrong(&self) -> Option<String> {
        (self.ledger.get(Word::Wrong) > 0).then(|| {
            std::fs::read_to_string(self.folder.at("wrong")).unwrap_or_else(|_| "nothing".into())
        })
    }

    /// All pages are what was flushed: to the storers, within a round of theirs, and to a reader.
    fn check(&mut self) -> Result<(), String> {
        let words = [Word::First, Word::Second];
        let before = words.map(|word| self.ledger.get(word));
        until("another round", || {
            // One that finds something wrong ends, behind its word.
            let has_ended = self.storers.0.try_wait().unwrap().is_some();
            assert!(!has_ended || self.wrong().is_some(), "the storers have ended");
            let gone_on = words.iter().zip(before).all(|(word, seen)| {
                // The one that it is at it has begun before.
                self.ledger.get(*word) > seen + PAGES
            });
            gone_on || self.wrong().is_some()
        });
        self.wrong().map_or(Ok(()), Err)?;
        check_all(&self.ledger, &self.region)?;
        self.wrong().map_or(Ok(()), Err)
    }

    /// A process brings a page, and is killed before this point of its way: `false`, if it has
    /// brought the page before. How many points it has passed.
    fn kill_bringer(&mut self, point: u64) -> Death {
        for word in [Word::Thread, Word::Go, Word::Done] {
            self.ledger.set(word, 0);
        }
        let role = Role::start(&self.folder, "bringer", self.mistake, "");
        until("a process that brings a page", || self.ledger.get(Word::Thread) > 0);
        let thread = self.ledger.get(Word::Thread) as i32;
        let mut traced = Traced::seize(role.process(), thread).unwrap();
        self.ledger.set(Word::Go, 1);
        let passed = go_to(&mut traced, point, || self.ledger.get(Word::Done) > 0);
        std::thread::sleep(MEANWHILE);
        traced.kill();
        drop(role);
        self.ledger.set(Word::Page, 0);
        let done = self.ledger.get(Word::Done);
        // It may have come by a request that another had made before: then nobody brought it.
        let passed = if done == 0 || done == BROUGHT { passed } else { 0 };
        self.check().map(|()| (passed >= point, passed))
    }

    fn some_leave(&self) -> bool {
        let table = &self.pager.ground().table;
        (0..PAGES).any(|page| table.word(page).state() == State::Leaving)
    }

    /// The host's node is killed before this point of its evictor's way through a batch: `false`,
    /// if the batch had left before.
    fn kill_host(&mut self, point: u64) -> Death {
        let left = || self.pager.ground().room.left();
        let mut traced = Traced::seize(self.host.process(), self.host.thread("evictor")).unwrap();
        // What it does before it has claimed pages is of no interest. A storer that has found
        // something wrong brings no more pages: then none leaves, either.
        let is_over = |left: bool| left || self.ledger.get(Word::Wrong) > 0;
        while !is_over(self.some_leave()) {
            traced.run_to_point(|| false).unwrap();
        }
        traced.count_anew();
        let before = left();
        let passed = go_to(&mut traced, point, || is_over(left() > before));
        std::thread::sleep(MEANWHILE);
        traced.kill();
        // Its store is locked until it has ended.
        self.host.0.wait().unwrap();
        self.host = Self::start_host(&self.folder, &self.ledger, &self.holder, self.mistake);
        self.check().map(|()| (passed >= point, passed))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ledger.set(Word::Over, 1);
    }
}

/// Steps to a point: how many it has come to.
fn go_to(traced: &mut Traced, point: u64, over: impl Fn() -> bool) -> u64 {
    let mut passed = 0;
    while passed < point && traced.run_to_point(&over).unwrap() {
        passed += 1;
    }
    passed
}

/// Kills before each of the points, or some of them: how many deaths there were, or what was
/// wrong behind one. The last ones come first: they are those of a page that is moving.
fn die_everywhere(mut kill: impl FnMut(u64) -> Death, all: bool) -> Result<u64, String> {
    // A batch may have few pages, or none, when little has to leave.
    let mut points = 0;
    for _ in 0..5 {
        if points <= 20 {
            points = kill(u64::MAX)?.1.max(points);
        }
    }
    assert!(points > 20, "a move has more points than {points}");
    let mut kill_at = |point| {
        let mut most = 0;
        for _ in 0..TRIES {
            let (within, passed) =
                kill(point).map_err(|wrong| format!("point {point}: {wrong}"))?;
            assert!(within || passed < point);
            most = passed.max(most);
            // Not one of a batch that is short, or of none: its end says nothing of the others'.
            if within || most > point / 2 {
                return Ok((within, most));
            }
        }
        Ok::<_, String>((false, most))
    };
    let step = if all { 1 } else { points.div_ceil(SOME) };
    let begin = u64::from(rotation::turn("deaths/points", 1 << 20)) % step;
    let (mut deaths, mut point) = (0, points + points / 8 - begin.min(points / 8));
    while point > 0 {
        let (within, passed) = kill_at(point)?;
        deaths += u64::from(within);
        // One move has more points than another; this one had so many.
        let last = if all { point } else { point.min(passed + 1) };
        point = last.saturating_sub(step);
    }
    println!("{deaths} deaths, at each {step} of {points} points");
    Ok(deaths)
}

/// Fewer deaths inside a move, with so many points, show nothing.
fn least() -> u64 {
    if rotation::all() { 5 } else { SOME / 4 }
}

#[test]
fn a_process_that_dies_as_it_brings_a_page_loses_no_store() {
    let mut world = World::new(None);
    let deaths = die_everywhere(|point| world.kill_bringer(point), rotation::all()).unwrap();
    assert!(deaths > least(), "{deaths}");
}

#[test]
fn a_node_that_dies_as_it_sends_pages_loses_no_store() {
    let mut world = World::new(None);
    let deaths = die_everywhere(|point| world.kill_host(point), rotation::all()).unwrap();
    assert!(deaths > least(), "{deaths}");
}

/// A mistake is found. Where its point is differs from one move to the next: so all are gone
/// through more than once.
fn is_found(mistake: Mistake, kill: fn(&mut World, u64) -> Death) {
    let mut world = World::new(Some(mistake));
    let mut passes = (0..4).map(|_| die_everywhere(|point| kill(&mut world, point), true));
    let found = passes.find_map(Result::err);
    println!("{mistake:?}: {found:?}");
    assert!(found.is_some(), "{mistake:?} is not found");
}

/// How often a thread has changed mappings.
fn mapping_calls(calls: &BTreeMap<i64, u64>) -> u64 {
    let all = [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap];
    all.iter().filter_map(|call| calls.get(call)).sum()
}

/// Pages come and go, and no mapping is changed for one: that would hold up all threads of a
/// process, and take some calls of the kernel more.
#[test]
fn no_mapping_is_changed_for_a_page_that_moves() {
    let world = World::new(None);
    let moved = || {
        let counted = world.pager.ground().counted_by_all();
        [Count::Fetched, Count::Sent].map(|what| counted.get(what))
    };
    let before = moved();
    let over = || moved()[0] - before[0] >= MOVED;
    let calls_of = |role: &Role, name: &str| {
        let mut traced = Traced::seize(role.process(), role.thread(name)).unwrap();
        traced.count_calls(over).unwrap()
    };
    let (brings, sends) = std::thread::scope(|scope| {
        let brings = scope.spawn(|| calls_of(&world.storers, "storer-1"));
        let sends = calls_of(&world.host, "evictor");
        (brings.join().unwrap(), sends)
    });
    let [fetched, sent] = [0, 1].map(|at| moved()[at] - before[at]);
    for (what, calls, pages) in [("brings", &brings, fetched), ("sends", &sends, sent)] {
        println!("{what} {pages} pages: {calls:?}");
        assert!(pages >= MOVED / 2, "{pages}");
        // How often it looks while it waits, and how long it pauses, are matters of time.
        let waits = |call: &i64| [libc::SYS_sched_yield, libc::SYS_clock_nanosleep].contains(call);
        let all: u64 = calls.iter().filter(|one| !waits(one.0)).map(|one| one.1).sum();
        let changes = mapping_calls(calls);
        assert!(changes * 100 <= pages, "{what}: {changes} mappings changed for {pages} pages");
        assert!(all <= pages * CALLS, "{what}: {all} calls for {pages} pages");
    }
}

#[test]
fn mistakes_of_the_bringer_are_found() {
    if rotation::turn("deaths/mistakes", 2) != 0 && !rotation::all() {
        return;
    }
    is_found(Mistake::PlacedHereEarly, World::kill_bringer);
    if rotation::all() {
        is_found(Mistake::FinishedUndone, World::kill_bringer);
    }
}

#[test]
fn mistakes_of_the_evictor_are_found() {
    if rotation::turn("deaths/mistakes", 2) != 1 && !rotation::all() {
        return;
    }
    is_found(Mistake::SentUnprotected, World::kill_host);
    if rotation::all() {
        is_found(Mistake::HoleBeforePlaced, World::kill_host);
        is_found(Mistake::PlacedEarly, World::kill_host);
    }
}

/// The mistakes that roles make, by their names.
fn make_mistake() {
    let name = std::env::var("CUT_SHORT_MISTAKE").unwrap_or_default();
    let mistakes = [
        Mistake::FinishedUndone,
        Mistake::PlacedHereEarly,
        Mistake::SentUnprotected,
        Mistake::HoleBeforePlaced,
        Mistake::PlacedEarly,
    ];
    let found = mistakes.into_iter().find(|mistake| format!("{mistake:?}") == name);
    found.into_iter().for_each(crate::protocol::make_everywhere);
}

/// Not a test: what other processes do.
#[test]
#[ignore = "it is run by others"]
fn role() {
    let Ok(role) = std::env::var("CUT_SHORT_ROLE") else { return };
    let folder = PathBuf::from(std::env::var_os("CUT_SHORT_FOLDER").unwrap());
    let ledger = Ledger::open(&folder.join("ledger"));
    make_mistake();
    match role.as_str() {
        "host" => host(&folder, &ledger),
        "storers" => storers(&folder, &ledger),
        _ => bringer(&folder, &ledger),
    }
}

fn host(folder: &Path, ledger: &Ledger) {
    let first = std::env::var("CUT_SHORT_MORE").unwrap().parse().unwrap();
    // Half of the pages.
    let _host = Running::start(&folder.join("host"), PAGES * PAGE / 2, Some(first));
    ledger.add(Word::Nodes);
    std::thread::sleep(Duration::MAX);
}

/// A touch waits for a thread that is run by steps as long as that takes.
fn patient() -> PagerOptions {
    PagerOptions { patience: LATE, ..PagerOptions::default() }
}

/// Only what is touched comes; and pages leave in the order in which they came, though they are
/// mapped and wanted: nobody is asked first.
fn alone() -> PagerOptions {
    let wish = Preferences { policy: Some(Policy::Fifo), ..Preferences::default() };
    PagerOptions { ahead: PrefetchMode::Off, wish, ..patient() }
}

/// Says what a store has found that is wrong.
fn is_well(folder: &Path, ledger: &Ledger, stored: Result<bool, String>) -> bool {
    let Err(wrong) = stored else { return true };
    std::fs::write(folder.join("wrong"), wrong).unwrap();
    ledger.set(Word::Wrong, 1);
    false
}

fn storers(folder: &Path, ledger: &Ledger) {
    let (region, pager) = region_of(&region_in(folder), alone());
    let round = |storer: u64, round: u64| {
        for turn in 0..PAGES {
            let page = (turn * 173 + round * 59 + storer * 7) % PAGES;
            pager.begin();
            // One that another process is to bring is left to that until it has begun.
            let is_absent = pager.ground().table.word(page).state() == State::Absent;
            if is_absent && ledger.get(Word::Page) == page + 1 {
                ledger.add(if storer == 0 { Word::First } else { Word::Second });
                continue;
            }
            // One of the two stores to what is here, and is not held up by what is not.
            let stored = store_next(ledger, &region, (storer, page), storer == 1);
            if !is_well(folder, ledger, stored) {
                return false;
            }
            ledger.add(if storer == 0 { Word::First } else { Word::Second });
            std::thread::sleep(PACE);
        }
        ledger.get(Word::Over) == 0
    };
    std::thread::scope(|scope| {
        for storer in 0..2 {
            let thread = std::thread::Builder::new().name(format!("storer-{storer}"));
            let all = move || (0..u64::MAX).all(|number| round(storer, number));
            thread.spawn_scoped(scope, all).unwrap();
        }
    });
}

/// A page that the holder has.
fn away(pager: &RegionPager) -> u64 {
    let from = u64::from(std::process::id()) * 97;
    let ground = pager.ground();
    let is_away = |page: &u64| {
        let Ok(Location::Held(owner, ..)) = ground.place(*page) else { return false };
        owner != ground.here() && ground.table.word(*page).state() == State::Absent
    };
    (from..from + PAGES).map(|number| number % PAGES).find(is_away).unwrap()
}

fn bringer(folder: &Path, ledger: &Ledger) {
    let (region, pager) = region_of(&region_in(folder), alone());
    let page = loop {
        let page = away(&pager);
        ledger.set(Word::Page, page + 1);
        // A storer may have been about to bring it.
        std::thread::sleep(MEANWHILE);
        if pager.ground().table.word(page).state() == State::Absent {
            break page;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while is_well(folder, ledger, store_next(ledger, &region, (BESIDE, page), false)) {
                std::thread::sleep(PACE);
            }
        });
        ledger.set(Word::Thread, rustix::thread::gettid().as_raw_nonzero().get() as u64);
        while ledger.get(Word::Go) == 0 {
            std::thread::sleep(PACE);
        }
        // It is at its end, too, with a store of one that was killed before it that is lost.
        is_well(folder, ledger, store_next(ledger, &region, (BRINGS, page), true));
        let fetched = pager.counted().get(Count::Fetched) > 0;
        ledger.set(Word::Done, if fetched { BROUGHT } else { BROUGHT + 1 });
        std::thread::sleep(Duration::MAX);
    });
}
