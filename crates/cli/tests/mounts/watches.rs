//! A program that watches is told of what others do: preloaded programs, those that use a mount,
//! commands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Mounted, TestDir, can_mount, command, compiled, solera};

#[test]
fn a_watch_is_told_of_what_comes_by_other_faces() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    fs::create_dir(mounted.path("here")).unwrap();
    let program = compiled("cli/tests/mounts/watcher.c", &[]);
    let (volume, at) = (place.text("v.pm"), "/watched");
    let mut watcher = command()
        .args(["run", "--volume", &volume, "--at", at, "--", &program, "/watched/here", "end"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    fs::write(mounted.path("here/mounted"), "x").unwrap();
    fs::rename(mounted.path("here/mounted"), mounted.path("here/moved")).unwrap();
    let line = format!("echo x > {at}/here/run; rm {at}/here/moved");
    solera(["run", "--volume", &volume, "--at", at, "--", "sh", "-c", &line]).ok();
    fs::write(place.path("source"), "y").unwrap();
    solera(["cp", &place.text("source"), &format!("{volume}:/here/copied")]).ok();
    fs::create_dir(mounted.path("here/end")).unwrap();
    let told: Vec<String> = lines.collect();
    assert!(watcher.wait().unwrap().success());
    assert_eq!(
        told,
        [
            "create mounted",
            "close_write mounted",
            "moved_from mounted",
            "moved_to moved",
            "create run",
            "close_write run",
            "delete moved",
            "create copied",
            "close_write copied",
            "create end",
        ]
    );
    mounted.end();
}
