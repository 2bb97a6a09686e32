//! Deaths that are not one process's inside one call: on the way to the volume and from it, between
//! fork and exec, beside a thread that ends the process, of everybody at once, at random moments,
//! in the middle of another death's recovery; and one that only looks like a death.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::survivors::{Order, WORKERS, World};
use crate::tracer::Kind;
use crate::walk::{Point, Walk};
use crate::{Random, one_of, some_of, start, text, victim, watch};

/// No case: nothing is looked at but what all have.
const NONE: usize = 0xFFFF;
/// How long a process is stopped.
const STOPPED: Duration = Duration::from_secs(5);

pub fn number(world: &World, case: &str) -> usize {
    world.cases().iter().position(|other| other == case).expect("a case")
}

/// Dies at some points of a way that begins anew each time; gives how many points there are.
fn die_on_the_way(
    world: &mut World,
    what: &str,
    some: usize,
    begin: &dyn Fn(&World) -> Result<Walk, String>,
) -> usize {
    let name = world.mode;
    world.build().expect("a directory");
    let mut walk = begin(world).expect("a process");
    let points = walk.points().expect("its points");
    walk.kill().expect("its end");
    world.judge(NONE).expect("all is well though nobody has died in a call");
    for chosen in some_of(what, points.len(), some) {
        let mut at = || -> Result<(), String> {
            world.build()?;
            world.go()?;
            let mut walk = begin(world)?;
            walk.reach_point(&points[chosen]).map_err(text)?;
            walk.kill().map_err(text)?;
            world.go_on()?;
            world.judge(NONE).map(drop)
        };
        at().unwrap_or_else(|error| panic!("{name}: {chosen} {:?}: {error}", points[chosen]));
    }
    points.len()
}

fn tell(what: &str, world: &World, points: usize) {
    eprintln!(
        "{what}: {} deaths (of {points} points), others went on after at most {} ms",
        world.deaths,
        world.pause_max.as_millis()
    );
}

/// Between the first instruction of a process and its last, with nothing done in between.
#[test]
fn while_attaching_and_detaching() {
    let mut world = World::new("attach", "strict");
    let points = die_on_the_way(&mut world, "attach", 10, &|world| start(world, &["attach"]));
    tell("attaching and detaching", &world, points);
    world.end().expect("the survivors end in order");
}

/// The child dies: between fork and exec, between exec and attach, and after; its parent's call
/// returns.
#[test]
fn a_child_on_its_way() {
    let mut world = World::new("child", "strict");
    let mut points = 0;
    for &case in one_of("child", &["fork_", "vfork_", "spawn"]) {
        points += die_on_the_way(&mut world, case, 16, &|world| {
            let mut walk = victim(world, "die", case)?;
            walk.follow_child();
            walk.reach_child().map_err(text)?;
            Ok(walk)
        });
    }
    tell("children", &world, points);
    world.end().expect("the survivors end in order");
}

/// A thread is in the middle of a call when another one ends the process or executes a program.
#[test]
fn beside_a_thread_that_ends_the_process() {
    let mut world = World::new("beside", "strict");
    let case = "append_long";
    let mut points = Vec::new();
    for how in ["exit", "exit_at_once", "exec"] {
        let begin = |world: &World| -> Result<Walk, String> {
            let mut walk = start(world, &["beside", how, case])?;
            walk.reach_mark().map_err(text)?;
            walk.follow_child();
            walk.reach_child().map_err(text)?;
            walk.reach_mark().map_err(text)?;
            Ok(walk)
        };
        if points.is_empty() {
            world.build().expect("a directory");
            let mut walk = begin(&world).expect("a process");
            points = walk.points().expect("its points");
            walk.end_beside().expect("its end");
            world.judge(NONE).expect("all is well");
        }
        for chosen in some_of(&format!("beside/{how}"), points.len(), 3) {
            let mut at = || -> Result<(), String> {
                world.build()?;
                let mut walk = begin(&world)?;
                world.go()?;
                walk.reach_point(&points[chosen]).map_err(text)?;
                walk.end_beside().map_err(text)?;
                world.go_on()?;
                let case = number(&world, case);
                world.judge(case).map(drop)
            };
            at().unwrap_or_else(|error| panic!("{how}: {chosen} {:?}: {error}", points[chosen]));
        }
    }
    tell("threads", &world, points.len());
    world.end().expect("the survivors end in order");
}

/// All processes die at the same moment; the next ones find what was acknowledged.
#[test]
fn all_at_once() {
    let mut total = 0;
    for mode in ["strict", "sync", "posix"] {
        let mut world = World::new(&format!("all-{mode}"), mode);
        let cases = ["append_long", "rename_over", "overwrite_shared_blocks", "unlink_open", "map"];
        for case in cases {
            let what = format!("all/{mode}/{case}");
            if !rotation::chosen(&what, 4) {
                continue;
            }
            let numbered = (number(&world, case), case);
            let points = crate::points_of(&mut world, numbered).expect("its points");
            for chosen in some_of(&what, points.len(), 3) {
                let mut at = || -> Result<(), String> {
                    world.build()?;
                    let mut walk = victim(&world, "die", case)?;
                    world.go()?;
                    walk.reach_point(&points[chosen]).map_err(text)?;
                    world.kill_all()?;
                    walk.kill().map_err(text)?;
                    world.all(Order::Work)?;
                    world.go_on()?;
                    let case = number(&world, case);
                    world.judge(case).map(drop)
                };
                at().unwrap_or_else(|error| panic!("{mode}: {case}@{chosen}: {error}"));
                total += 1;
            }
        }
        world.end().expect("the survivors end in order");
    }
    eprintln!("all at once: {total} times");
}

/// One of the three dies wherever it is, again and again, and another takes its place.
#[test]
fn at_random_moments() {
    let mut random = Random(0x0BAD_5EED);
    for mode in ["strict", "posix"] {
        let mut world = World::new(&format!("random-{mode}"), mode);
        world.build().expect("a directory");
        world.go().expect("they work");
        for death in 0..if rotation::all() { 200 } else { 12 } {
            watch(mode, &["at a random moment"]);
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            let who = random.below(WORKERS as u64) as usize;
            let mut die = || -> Result<(), String> {
                world.kill(who)?;
                world.replace(who);
                world.go_on()
            };
            die().unwrap_or_else(|error| panic!("{mode}: death {death}, of {who}: {error}"));
        }
        world.judge(NONE).expect("all is well");
        tell(&format!("{mode}: at random moments"), &world, 0);
        world.end().expect("the survivors end in order");
    }
}

/// The middle point of those at which something is done to what all share.
fn in_the_middle(points: &[Point]) -> &Point {
    let locked = points.iter().position(|point| point.kind == Kind::Locked).unwrap_or(0);
    &points[locked + (points.len() - locked) / 2]
}

/// A process that recovers one that died in its call dies at that: the next one recovers both.
#[test]
fn while_recovering_a_death() {
    let mut world = World::new("recovery", "strict");
    let mut count = 0;
    let cases = ["append_long", "rename_directory", "create_splits", "unlink_last", "collapse"];
    // Of each the recoverer's way is walked by single instructions, all of it.
    for &case in one_of("recovery", &cases) {
        let case = (number(&world, case), case);
        let points = crate::points_of(&mut world, case).expect("its points");
        let point = in_the_middle(&points);
        let die = |world: &World| -> Result<(), String> {
            let mut walk = victim(world, "die", case.1)?;
            walk.reach_point(point).map_err(text)?;
            walk.kill().map_err(text)
        };
        world.build().expect("a directory");
        die(&world).expect("a death");
        let mut walk = start(&world, &["attach"]).expect("who recovers it");
        let steps = walk.points().expect("its points");
        walk.kill().expect("its end");
        world.judge(case.0).expect("the first death is mended");
        count += steps.len();
        for chosen in some_of(&format!("recovery/{}", case.1), steps.len(), 8) {
            let mut at = || -> Result<(), String> {
                world.build()?;
                die(&world)?;
                let mut walk = start(&world, &["attach"])?;
                walk.reach_point(&steps[chosen]).map_err(text)?;
                walk.kill().map_err(text)?;
                world.all(Order::Work)?;
                world.go_on()?;
                world.judge(case.0).map(drop)
            };
            at().unwrap_or_else(|error| {
                panic!("{}: {chosen} {:?}: {error}", case.1, steps[chosen])
            });
        }
    }
    tell("deaths while recovering a death", &world, count);
    world.end().expect("the survivors end in order");
}

/// The same where the recoverer waits for a lock of the dead one, in a call of its own.
#[test]
fn while_recovering_a_death_inside_a_call() {
    let mut world = World::new("waiting", "strict");
    let first = (number(&world, "overwrite_shared_blocks"), "overwrite_shared_blocks");
    let second = (number(&world, "overwrite_blocks"), "overwrite_blocks");
    let points = crate::points_of(&mut world, first).expect("its points");
    let point = in_the_middle(&points);
    let both = |world: &mut World| -> Result<Walk, String> {
        world.build()?;
        let waiting = victim(world, "bare", second.1)?;
        let mut dying = victim(world, "die", first.1)?;
        dying.reach_point(point).map_err(text)?;
        dying.kill().map_err(text)?;
        Ok(waiting)
    };
    let mut walk = both(&mut world).expect("a death");
    let steps = walk.points().expect("its points");
    walk.kill().expect("its end");
    world.look(second.0).expect("the call of the one that waited");
    world.judge(first.0).expect("the first death is mended");
    for chosen in some_of("waiting", steps.len(), 6) {
        let mut at = || -> Result<(), String> {
            let mut walk = both(&mut world)?;
            walk.reach_point(&steps[chosen]).map_err(text)?;
            walk.kill().map_err(text)?;
            world.all(Order::Work)?;
            world.go_on()?;
            world.look(second.0)?;
            world.judge(first.0).map(drop)
        };
        at().unwrap_or_else(|error| panic!("{chosen} {:?}: {error}", steps[chosen]));
    }
    tell("deaths of who waits for a dead one's lock", &world, steps.len());
    world.end().expect("the survivors end in order");
}

/// A process that is stopped in the middle of a call, with locks, is not dead: the others wait, it
/// goes on, and so do they.
#[test]
fn one_that_is_stopped_is_not_dead() {
    let mut world = World::new("stopped", "strict");
    let case = (number(&world, "overwrite_shared_blocks"), "overwrite_shared_blocks");
    let points = crate::points_of(&mut world, case).expect("its points");
    watch(world.mode, &["a stop"]);
    let (mut output, pid) = loop {
        let mut output = None;
        let mut command = world.command(&["die", case.1]);
        command.stdout(Stdio::piped());
        world.build().expect("a directory");
        let mut walk =
            Walk::start_telling(&mut command, &world.place.volume(), &mut output).expect("it");
        walk.reach_mark().expect("before its call");
        world.go().expect("they work");
        if walk.reach_point(in_the_middle(&points)).expect("its way") {
            break (output.expect("its output"), walk.stop().expect("a stop"));
        }
        // It met one of the others, and took another way.
        walk.kill().expect("its end");
        world.go_on().expect("they go on");
        world.judge(case.0).expect("all is well");
    };
    // Each comes to the lock sooner or later; who took it from the one that holds it would go on.
    let is_quiet = |world: &World, time| {
        let before = world.progress();
        std::thread::sleep(time);
        world.progress() == before
    };
    let begun = Instant::now();
    let mut waits = false;
    while !waits && begun.elapsed() < Duration::from_mins(2) {
        waits = is_quiet(&world, STOPPED / 20) && is_quiet(&world, STOPPED);
    }
    assert!(waits, "they wait for who holds the lock");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it goes on");
    let mut said = [0; 8];
    output.read_exact(&mut said).expect("its call returns");
    assert_eq!(&said, b"returned");
    world.go_on().expect("they go on");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("its end");
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).expect("its end");
    assert_eq!(world.judge(case.0).expect("all is well"), "after");
    world.end().expect("the survivors end in order");
}
