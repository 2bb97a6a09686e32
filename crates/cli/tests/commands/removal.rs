//! A volume as a whole: removed with its anchor directory, and copied without a trace of copies
//! that were killed. Users removed volumes by `rm`, also ones in use, and anchors stayed; a killed
//! `snapshot` left half a copy under a name of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::support::{TestDir, command, solera};

fn names(place: &TestDir) -> Vec<String> {
    let entries = fs::read_dir(place.path(".")).unwrap().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_goes_with_its_anchor() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    // A fifo lies in the anchor directory.
    let line = format!("mkfifo {at}/fifo; cat {at}/fifo & echo x > {at}/fifo; wait");
    crate::support::shell(&volume, &at, &line).ok();
    assert_eq!(solera(["rm", "--json", &volume]).json()[0]["removed"], volume.as_str());
    assert_eq!(names(&place), [""; 0]);
}

/// The anchor directory stays beside the name at which the file was last attached: `mv` knows
/// nothing of it, and `solera rm` looked beside the new name only.
#[test]
fn a_renamed_volume_goes_with_the_anchor_of_its_old_name() {
    let place = TestDir::new();
    let first = place.volume("64M");
    let (second, copy) = (place.text("second.pm"), place.text("copy.pm"));
    fs::copy(&first, &copy).unwrap();
    // What a copy says of an anchor is true of another volume.
    solera(["rm", &copy]).ok();
    assert_eq!(names(&place), ["v.pm", "v.pm.solera"]);
    fs::rename(&first, &second).unwrap();
    solera(["rm", &second]).ok();
    assert_eq!(names(&place), [""; 0]);
}

/// Messages are for people: what the kernel said is in words, without the number that the standard
/// library appends to them.
#[test]
fn no_message_has_the_number_of_an_error() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let large = place.text("large.pm");
    let no_room = solera(["format", "--size", "1T", "--reserve", &large]).ended_with(1);
    let no_directory = solera(["format", "--size", "64M", "/proc/none.pm"]).ended_with(1);
    for said in [&no_room.err, &no_directory.err] {
        assert!(said.starts_with("solera: cannot format") && !said.contains("os error"), "{said}");
    }
    assert!(no_room.err.contains("No space left on device"), "{}", no_room.err);
    if !rustix::process::geteuid().is_root() {
        println!("setpriv needs root: nothing tested");
        return;
    }
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([&place.for_everyone(), "rm", &volume])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Permission denied") && !said.contains("os error"), "{said}");
    assert!(fs::exists(&volume).unwrap());
}

#[test]
fn what_is_in_use_or_no_volume_stays() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    fs::write(place.path("file"), "text").unwrap();
    fs::create_dir(place.path("dir")).unwrap();
    symlink(&volume, place.path("link")).unwrap();
    solera(["rm", &place.text("file")]).refused(1, &["no Solera volume"]);
    solera(["rm", &place.text("dir")]).refused(1, &["no file"]);
    solera(["rm", &place.text("missing")]).refused(1, &["missing"]);
    solera(["rm", &place.text("link")]).refused(1, &["symbolic link", &volume]);
    solera(["rm", "/dev/null"]).refused(1, &["it is a device"]);
    let mut user = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c"])
        .arg(format!("echo > {at}/ready; read line; cat {at}/ready"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while !solera(["ls", &volume]).ok().contains("ready") {
        std::thread::yield_now();
    }
    solera(["rm", &volume]).refused(1, &["in use", "solera detach"]);
    drop(user.stdin.take());
    assert!(user.wait().unwrap().success());
    // The rest goes, also when one stays; another name keeps the volume.
    fs::hard_link(&volume, place.path("second.pm")).unwrap();
    let some = solera(["rm", &place.text("file"), &volume]).ended_with(1);
    assert!(some.err.contains("1 other names"), "{}", some.err);
    assert_eq!(names(&place), ["dir", "file", "link", "second.pm"]);
    solera(["fsck", &place.text("second.pm")]).ok();
}

/// Copies that are killed at any moment leave nothing, and the target as it was.
#[test]
fn a_killed_snapshot_leaves_nothing() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("256M"), place.prefix());
    crate::support::shell(
        &volume,
        &at,
        &format!("head -c 150M /dev/zero | tr '\\0' x > {at}/large"),
    )
    .ok();
    fs::write(place.path("target"), "before").unwrap();
    let before = names(&place);
    for signal in ["KILL", "INT", "TERM"] {
        for options in [["--force", "target"].as_slice(), &["new"]] {
            let (target, options) = options.split_last().unwrap();
            let mut copy = command()
                .arg("snapshot")
                .args(options)
                .args([&volume, &place.text(target)])
                .spawn()
                .unwrap();
            // Some of them have begun, some have not.
            std::thread::sleep(std::time::Duration::from_millis(15));
            let kill = std::process::Command::new("kill")
                .args([&format!("-{signal}"), &copy.id().to_string()])
                .status();
            let ended = copy.wait().unwrap();
            assert!(kill.is_ok());
            if ended.success() {
                // It was faster.
                let _ = fs::remove_file(place.path("new"));
                fs::write(place.path("target"), "before").unwrap();
            }
            assert_eq!(names(&place), before, "{signal} {options:?}");
            assert_eq!(fs::read(place.path("target")).unwrap(), b"before");
        }
    }
    // What an older one has left goes with the next copy to that target; nothing else does.
    for name in ["new.123.partial", "new.x.partial", "other.123.partial"] {
        fs::write(place.path(name), "half").unwrap();
    }
    solera(["snapshot", &volume, &place.text("new")]).ok();
    assert!(!place.path("new.123.partial").exists());
    assert!(place.path("new.x.partial").exists() && place.path("other.123.partial").exists());
    solera(["snapshot", &volume, &place.text("new")]).refused(1, &["it exists"]);
    solera(["snapshot", "--force", &volume, &place.text("new")]).ok();
    solera(["fsck", &place.text("new")]).ok();
}
