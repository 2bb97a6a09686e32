//! What the deaths have found: one test a bug, with its story.

use crate::scenarios::number;
use crate::survivors::{Order, World};
use crate::walk::Walk;
use crate::{quarter, start, text, victim};
use vfs::{Attached, FileSystem, FileSystemExt, OpenFlags};

/// `open` with `O_TMPFILE` made the inode, claimed a description that named it, and died before the
/// description was counted at the inode. The sweep spared the inode because a description named it;
/// then the description was found to be uncounted and freed, and the inode was not. It was lost
/// until the next sweep.
#[test]
fn a_nameless_file_whose_maker_dies() {
    let mut world = World::new("nameless", "strict");
    let case = (number(&world, "nameless_made"), "nameless_made");
    let points = crate::points_of(&mut world, case).expect("its points");
    for (chosen, point) in quarter("nameless", &points) {
        crate::trial(&mut world, case, Some(point))
            .unwrap_or_else(|error| panic!("{chosen} {point:?}: {error}"));
    }
    world.end().expect("the survivors end in order");
}

/// The recoverer of a process gave up its hold of a description with a `flock`, and died before the
/// description was dropped. A process that then asked for the lock looked for dead holders, found
/// no holder at all, and waited for ever: no process looked for the two dead.
#[test]
fn a_flock_that_nobody_holds_any_more() {
    // The recoverer's way is walked by single instructions, all of it.
    if !rotation::chosen("regressions/flock", 2) {
        return;
    }
    let mut world = World::new("flock", "strict");
    let die = |world: &World| -> Result<Walk, String> {
        let mut walk = victim(world, "die", "lock_record")?;
        walk.kill().map_err(text)?;
        start(world, &["attach"])
    };
    world.build().expect("a directory");
    let mut walk = die(&world).expect("a death");
    let points = walk.points().expect("its points");
    walk.kill().expect("its end");
    world.judge(0xFFFF).expect("all is well");
    for (chosen, point) in quarter("flock", &points) {
        let mut at = || -> Result<(), String> {
            world.build()?;
            let mut walk = die(&world)?;
            walk.reach_point(point).map_err(text)?;
            walk.kill().map_err(text)?;
            world.deaths += 1;
            world.judge(0xFFFF).map(drop)
        };
        at().unwrap_or_else(|error| panic!("{chosen} {point:?}: {error}"));
    }
    world.end().expect("the survivors end in order");
}

/// A process that met a dead one inside a call released the locks that stood in its way, and kept
/// the rest of the recovery for its next call, holding the dead one's slot. It made no other call,
/// and processes that wanted a `flock` of the dead waited for it.
#[test]
fn a_recoverer_that_does_nothing_behind_it() {
    let mut world = World::new("idle", "strict");
    let case = (number(&world, "overwrite_shared_blocks"), "overwrite_shared_blocks");
    let points = crate::points_of(&mut world, case).expect("its points");
    world.build().expect("a directory");
    let mut idle = victim(&world, "bare", "overwrite_blocks").expect("who recovers");
    let mut dying = victim(&world, "die", case.1).expect("who dies");
    dying.reach_point(&points[points.len() / 2]).expect("inside its call");
    dying.kill().expect("its death");
    idle.reach_mark().expect("its call returns");
    world.look(case.0).expect("no lock is left");
    idle.kill().expect("its end");
    world.order(0..3, Order::Work).expect("they work");
    world.go_on().expect("they go on");
    world.judge(case.0).expect("all is well");
    world.end().expect("the survivors end in order");
}

/// A process ended in order while a message of its own carried the last descriptor of a nameless
/// file. The online check, which is a reader, met the file, dropped its description but could free
/// nothing, and told the file as a fault.
#[test]
fn a_check_meets_what_was_in_flight() {
    let mut world = World::new("flight", "strict");
    let case = (number(&world, "exit_at_once"), "exit_at_once");
    world.build().expect("a directory");
    let mut walk = victim(&world, "die", case.1).expect("who ends");
    assert!(!walk.reach_mark().expect("its end"), "it does not return");
    walk.kill().expect("its end");
    world.judge(case.0).expect("the check finds nothing");
    world.end().expect("the survivors end in order");
}

/// `unlink` of a last name closed the inode to opens, and died before the name was gone. A process
/// that had the volume attached checked it: waiting for quiet it recovered the dead one's call, but
/// left the sweep that belongs to it to the next death. Until then `open` said that there was no
/// such file, and `stat` that there was.
#[test]
fn a_check_that_meets_a_dead_unlink() {
    let mut world = World::new("unlink", "strict");
    let case = (number(&world, "unlink_last"), "unlink_last");
    let points = crate::points_of(&mut world, case).expect("its points");
    let options = volume::AttachOptions::default();
    let volume = volume::attach(&world.place.volume(), &options).expect("attached");
    for (chosen, point) in quarter("unlink", &points) {
        let mut at = || -> Result<(), String> {
            world.build()?;
            let mut walk = victim(&world, "die", case.1)?;
            walk.reach_point(point).map_err(text)?;
            walk.kill().map_err(text)?;
            let report = volume.check(&volume::FsckOptions::default()).map_err(told)?;
            if !report.faults.is_empty() {
                return Err(format!("{:?}", report.faults));
            }
            let directory = volume.lookup(volume.root(), b"t").map_err(told)?;
            if let Ok(node) = volume.lookup(directory, b"v") {
                let opened =
                    volume.open(node.into(), OpenFlags(libc::O_RDONLY), None).map_err(told)?;
                volume.close(opened).map_err(told)?;
            }
            world.order(0..1, Order::Clean)
        };
        at().unwrap_or_else(|error| panic!("{chosen} {point:?}: {error}"));
    }
    volume.detach().expect("detached");
    world.end().expect("the survivors end in order");
}

/// The words of a lock were stored at once, in no order: a process that died in between left a lock
/// whose holder was the entry's former owner. That one lived, so the lock was never dropped.
#[test]
fn a_lock_of_which_half_is_written() {
    let mut world = World::new("half", "strict");
    let case = (number(&world, "lock_record"), "lock_record");
    let points = crate::points_of(&mut world, case).expect("its points");
    world.build().expect("a directory");
    for (chosen, point) in quarter("half", &points) {
        let mut at = || -> Result<(), String> {
            // Another one each time has had all of the file, and asks for all of it afterwards.
            let (before, after) = (chosen % 3, (chosen + 1) % 3);
            world.order(before..before + 1, Order::Look(0xFFFF))?;
            let mut walk = victim(&world, "die", case.1)?;
            walk.reach_point(point).map_err(text)?;
            walk.kill().map_err(text)?;
            world.order(after..after + 1, Order::Look(0xFFFF))
        };
        at().unwrap_or_else(|error| panic!("{chosen} {point:?}: {error}"));
    }
    world.judge(0xFFFF).expect("all is well");
    world.end().expect("the survivors end in order");
}

fn told(errno: vfs::Errno) -> String {
    format!("{errno:?}")
}
