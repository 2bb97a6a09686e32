//! What programs of both faces, preloaded and not, keep each other from: locks, and writing to what
//! is executed.

use crate::face::{Face, both, program};
use crate::support::{Mounted, TestDir, can_mount, solera};
use rustix::process::{Pid, Signal, kill_process};

/// A circle of waits is reported, whichever process closes it; others are told which one has a
/// lock; a wait goes on after a signal; a killed mount's locks go.
#[test]
fn locks_know_each_other() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("locks");
    let mounted = Mounted::new(&place, "64M", &[]);
    let [mut preloaded, mut plain] = both(&program, &mounted.at);
    let (first, second) = (&mut preloaded, &mut plain);
    for _ in 0..20 {
        assert_eq!((first.count("lock 0"), second.count("lock 1")), (0, 0));
        assert_eq!(second.count("owner 0"), first.pid());
        assert_eq!(first.count("owner 1"), second.pid());
        // Each has what the other wants.
        first.ask("lock 1");
        second.ask("lock 0");
        let (one, other) = (first.number(), second.number());
        let circle = -i64::from(libc::EDEADLK);
        assert!((one, other) == (circle, 0) || (one, other) == (0, circle), "{one} {other}");
        for file in ["unlock 0", "unlock 1"] {
            assert_eq!((first.count(file), second.count(file)), (0, 0));
        }
    }
    for turn in [[0, 1], [1, 0]] {
        let faces = [&mut *first, &mut *second];
        let [holder, waiter] = turn;
        assert_eq!(faces[holder].count("lock 0"), 0);
        assert_eq!(faces[waiter].count("alarms"), 0);
        faces[waiter].ask("lock 0");
        for _ in 0..20 {
            faces[waiter].sign();
        }
        assert_eq!(faces[holder].count("unlock 0"), 0);
        assert_eq!((faces[waiter].number(), faces[waiter].count("unlock 0")), (0, 0));
    }
    // What the server of the mount held for others is theirs no more when it has died.
    assert_eq!(second.count("lock 1"), 0);
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&mounted.at, "solera.process", &mut value[..]).unwrap();
    let server = std::str::from_utf8(&value[..length]).unwrap();
    let server = Pid::from_raw(server.parse().unwrap()).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    assert_eq!(first.count("lock 1"), 0);
    preloaded.end();
    // Its files are gone.
    let _ = plain.stop();
    let volume = mounted.volume.clone();
    drop(mounted);
    solera(["fsck", &volume]).ok();
}

/// A file that runs is not written to, and one that is written to does not run, by whatever faces.
#[test]
fn what_runs_is_not_written_to() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("locks");
    let mounted = Mounted::new(&place, "64M", &[]);
    for name in ["2", "3"] {
        crate::support::copy_program("/bin/sleep", mounted.path(name));
    }
    let mut faces = both(&program, &mounted.at);
    let busy = -i64::from(libc::ETXTBSY);
    // Through the mount the kernel tells the server of a close and of an end when it gets to it.
    let until = |face: &mut Face, line: &str, good: fn(i64) -> bool| {
        let begun = std::time::Instant::now();
        loop {
            let said = face.count(line);
            if good(said) || begun.elapsed().as_secs() > 60 {
                return said;
            }
        }
    };
    for (runs, writes) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let what = format!("face {runs} runs, face {writes} writes");
        for _ in 0..5 {
            assert!(until(&mut faces[runs], "run 2", |said| said > 0) > 0, "{what}");
            assert_eq!(faces[writes].count("write 2"), busy, "{what}");
            assert_eq!(faces[writes].count("truncate 2"), busy, "{what}");
            assert_eq!(faces[writes].count("write 3"), 0, "{what}: another file");
            assert_eq!(faces[writes].count("close"), 0);
            assert_eq!(faces[runs].count("end"), 0);
            let again = until(&mut faces[writes], "write 2", |said| said == 0);
            assert_eq!(again, 0, "{what}: it has ended");
            assert_eq!(faces[runs].count("run 2"), busy, "{what}: it is written to");
            assert!(until(&mut faces[runs], "run 3", |said| said > 0) > 0, "{what}: another file");
            assert_eq!(faces[runs].count("end"), 0);
            assert_eq!(faces[writes].count("close"), 0);
        }
    }
    faces.into_iter().for_each(Face::end);
    mounted.end();
}

/// A program that is to be left alone inherits what one that cannot be preloaded does.
#[test]
fn bypassed_programs_inherit_descriptors() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let script = "set -e; cd $1; printf 'one\\ntwo\\n' > in
        { echo a; cat; echo c; } < in > out; cat < out
        { read x; echo -$x; cat; } < in >> out; tail -n 2 out
        exec 7< in; (sh -c 'cat <&7 | wc -l'); cat out - < in | tail -n 1
        sh -c 'cd /; cat' < in; readlink /proc/self/exe > link; test -s link";
    let run = ["run", "--bypass", "cat", "--", "bash", "-c", script, "sh", &mounted.at];
    assert_eq!(solera(run).ok(), "a\none\ntwo\nc\n-one\ntwo\n2\ntwo\none\ntwo\n");
    mounted.end();
}
