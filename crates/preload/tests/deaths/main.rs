//! A process dies inside a call, at each store, flush, fence, lock and system call of it, while
//! three others work on the same directory and the same files. All of them use the preload library
//! as it is installed; the one that dies is traced, run to the call, then by single instructions.
//!
//! What must hold then: the others go on; the call in flight has happened or has not (in the modes
//! `sync` and `posix` its data may be torn), every call that returned has, in every process and
//! every mode; `solera fsck` finds nothing while they go on; and when everything is removed, all
//! space, inodes, descriptions, locks, operations and process slots are free.
//!
//! By default an eighth of the cases dies in each of the three modes, at some points of each, in
//! memory whose stores are plain or in memory that is flushed (`SOLERA_CLASS`): which, the rotation
//! says (crate `rotation`). With `SOLERA_TEST_LONG` each case dies in every mode and in both
//! classes, at all points. `SOLERA_DEATH=NAME` or `NAME@POINT` chooses a case, or one point of it,
//! in every mode.

mod children;
mod power_cuts;
mod regressions;
mod scenarios;
mod split_engine;
#[path = "../support/mod.rs"]
mod support;
mod survivors;
mod tracer;
mod walk;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::{Random, one_of};
use survivors::{CLASSES, World};
use walk::{Point, Walk};

/// A trial that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(100);
/// Points of each case that are tried by default.
const POINTS: usize = 2;
/// By default one case in so many dies in a mode: finding its points takes longest.
const PARTS: u32 = 8;

#[allow(clippy::needless_pass_by_value)] // Given to `map_err`.
fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// A process of the C program, stopped at its first instruction.
fn start(world: &World, arguments: &[&str]) -> Result<Walk, String> {
    watch(world.mode, arguments);
    Walk::start(&mut world.command(arguments), &world.place.volume()).map_err(text)
}

/// A victim, before its call.
fn victim(world: &World, how: &str, case: &str) -> Result<Walk, String> {
    let mut walk = start(world, &[how, case])?;
    if walk.reach_mark().map_err(text)? { Ok(walk) } else { Err("it ended before its call".into()) }
}

/// Ends everything with a message if no victim is started for a long time: something hangs.
fn watch(mode: &str, arguments: &[&str]) {
    static DOING: Mutex<Option<(String, Instant)>> = Mutex::new(None);
    let mut doing = DOING.lock().expect("nobody panics with it");
    let begun = doing.is_none();
    *doing = Some((format!("{mode} {}", arguments.join(" ")), Instant::now()));
    if !begun {
        return;
    }
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let doing = DOING.lock().expect("nobody panics with it");
            if let Some((what, since)) = &*doing
                && since.elapsed() > PATIENCE
            {
                eprintln!("since {} s: {what}", PATIENCE.as_secs());
                std::process::abort();
            }
        }
    });
}

/// The points of a case: it goes through its call once, while no other process works, and is killed
/// then.
fn points_of(world: &mut World, case: (usize, &str)) -> Result<Vec<Point>, String> {
    world.build()?;
    let mut walk = victim(world, "die", case.1)?;
    let points = walk.points().map_err(text)?;
    walk.kill().map_err(text)?;
    world.deaths += 1;
    check_returned(&world.judge(case.0)?)?;
    Ok(points)
}

fn check_returned(state: &str) -> Result<(), String> {
    let happened = ["after", "either"].contains(&state);
    if happened { Ok(()) } else { Err(format!("it had returned, and is {state}")) }
}

/// One death, at a point or (`None`) after the call, while others work.
fn trial(world: &mut World, case: (usize, &str), point: Option<&Point>) -> Result<(), String> {
    world.build()?;
    let mut walk = victim(world, "die", case.1)?;
    world.go()?;
    let returned = match point {
        Some(point) => !walk.reach_point(point).map_err(text)?,
        None => walk.reach_mark().map_err(text).map(|_| true)?,
    };
    walk.kill().map_err(text)?;
    world.go_on()?;
    let state = world.judge(case.0)?;
    if returned { check_returned(&state) } else { Ok(()) }
}

/// Some of the so many points of `what`, one of each part, by rotation; all in long tests.
fn some_of(what: &str, count: usize, some: usize) -> Vec<usize> {
    if rotation::all() || count <= some {
        return (0..count).collect();
    }
    let chosen = (0..some).map(|part| {
        let (from, to) = (part * count / some, (part + 1) * count / some);
        from + rotation::turn(&format!("{what}/{part}"), (to - from) as u32) as usize
    });
    chosen.collect()
}

/// A quarter of the points of `what`, by rotation, with their numbers; all in long tests.
fn quarter<'a>(
    what: &'a str,
    points: &'a [Point],
) -> impl Iterator<Item = (usize, &'a Point)> + use<'a> {
    points.iter().enumerate().filter(move |(at, _)| rotation::chosen(&format!("{what}/{at}"), 4))
}

/// The points of a case to die at, and (`None`) after the call.
fn selection(what: &str, points: &[Point]) -> Vec<Option<usize>> {
    if let Ok(wanted) = std::env::var("SOLERA_DEATH")
        && let Some((_, point)) = wanted.split_once('@')
    {
        return vec![point.parse().ok()];
    }
    let chosen = some_of(what, points.len(), POINTS);
    chosen.into_iter().map(Some).chain([None]).collect()
}

fn wanted(case: &str) -> bool {
    std::env::var("SOLERA_DEATH").map_or(true, |wanted| wanted.split('@').next() == Some(case))
}

/// Whether the case dies in this mode.
fn has_its_turn(case: &str, mode: &str) -> bool {
    let asked_for = std::env::var_os("SOLERA_DEATH").is_some();
    asked_for || rotation::chosen(&format!("deaths/{mode}/{case}"), PARTS)
}

/// Cases in one mode, in one class by rotation; in long tests in both.
fn deaths_in(mode: &'static str) {
    for class in one_of(&format!("deaths/class/{mode}"), &CLASSES) {
        deaths_of(mode, class);
    }
}

fn deaths_of(mode: &'static str, class: &'static str) {
    let begun = Instant::now();
    let mut world = World::of_class(&format!("{mode}-{class}"), mode, class);
    let mut failures = Vec::new();
    let mut points_all = 0;
    for (number, case) in world.cases().iter().enumerate() {
        if !(wanted(case) && has_its_turn(case, mode)) {
            continue;
        }
        let mut fail = |world: &mut World, what: &str, text: String| {
            eprintln!("{mode}: {case}@{what}: {text}");
            failures.push(format!("{case}@{what}"));
            world.renew();
        };
        let points = match points_of(&mut world, (number, case)) {
            Ok(points) => points,
            Err(text) => {
                fail(&mut world, "alone", text);
                continue;
            }
        };
        points_all += points.len();
        for chosen in selection(&format!("deaths/{mode}/{case}"), &points) {
            let point = chosen.map(|chosen| &points[chosen]);
            if let Err(text) = trial(&mut world, (number, case), point) {
                let what = chosen.map_or("end".to_owned(), |chosen| chosen.to_string());
                fail(&mut world, &what, format!("{text}; {point:?}"));
            }
        }
    }
    eprintln!(
        "{mode}, class {class}: {} deaths (of {points_all} points) in {:.1} s, others went on \
         after at most {} ms",
        world.deaths,
        begun.elapsed().as_secs_f64(),
        world.pause_max.as_millis()
    );
    assert!(failures.is_empty(), "{mode}: {}", failures.join(", "));
    world.end().expect("the survivors end in order");
}

#[test]
fn deaths_in_strict_mode() {
    deaths_in("strict");
}

#[test]
fn deaths_in_sync_mode() {
    deaths_in("sync");
}

#[test]
fn deaths_in_posix_mode() {
    deaths_in("posix");
}
