//! A slip on a command line that named a volume as an ordinary file (`solera cp FILE V`, the `:/`
//! forgotten) ended with 0 and destroyed the volume, also one in use. Whatever writes a file
//! refuses volumes, what anchor directories hold, and block devices, by whatever name, before it
//! has changed a byte of them.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Mounted, TestDir, can_mount, command, shell, solera};

/// A volume with a file in it, and what a check of it says.
fn with_a_file(place: &TestDir) -> String {
    let volume = place.volume("64M");
    fs::write(place.path("source"), "kept\n").unwrap();
    solera(["cp", &place.text("source"), &format!("{volume}:/file")]).ok();
    volume
}

#[track_caller]
fn still_whole(volume: &str) {
    assert_eq!(fs::metadata(volume).unwrap().len(), 64 << 20);
    solera(["fsck", volume]).ok();
    assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
}

/// All command lines that would write `target`, a volume or a part of one, as an ordinary file.
fn lines(place: &TestDir, volume: &str, target: &str) -> Vec<(i32, Vec<String>)> {
    let text = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let on_volume = format!("{volume}:/file");
    let source = place.text("source");
    vec![
        (1, text(&["cp", &source, target])),
        (1, text(&["cp", &on_volume, target])),
        (1, text(&["info", "--picture", target, volume])),
        (1, text(&["age", "--picture", target, volume])),
        (1, text(&["age", "--write-trace", target, volume])),
        (
            125,
            text(&["run", "--volume", volume, "--at", &place.prefix(), "--report-file", target])
                .into_iter()
                .chain(text(&["--", "touch", &place.text("ran")]))
                .collect(),
        ),
    ]
}

#[test]
fn a_volume_is_no_ordinary_target_by_any_name() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    symlink(&volume, place.path("link")).unwrap();
    fs::hard_link(&volume, place.path("hard")).unwrap();
    for name in ["v.pm", "link", "hard"] {
        for (code, line) in lines(&place, &volume, &place.text(name)) {
            solera(&line).refused(code, &[name, "it is a volume"]);
        }
    }
    assert!(!place.path("ran").exists(), "the program ran before the report was refused");
    still_whole(&volume);
}

/// The library itself appends its report to a file that the environment names.
#[test]
fn a_report_is_not_appended_to_a_volume() {
    let place = TestDir::new();
    let (volume, at) = (with_a_file(&place), place.prefix());
    // A call that is refused: F_NOTIFY.
    let script = format!(
        "import ctypes, os; ctypes.CDLL(None).fcntl(os.open('{at}', os.O_RDONLY), 1026, 1)"
    );
    let library = Path::new(env!("CARGO_BIN_EXE_solera")).with_file_name("libsolera_preload.so");
    let run = |report: &str| {
        let status = Command::new("python3")
            .args(["-c", &script])
            .env("LD_PRELOAD", &library)
            .env("SOLERA_VOLUME", &volume)
            .env("SOLERA_AT", &at)
            .env("SOLERA_REPORT", report)
            .status();
        assert!(status.unwrap().success());
    };
    let report = place.text("report");
    run(&report);
    assert!(fs::metadata(&report).unwrap().len() > 0, "the program has nothing to report");
    run(&volume);
    still_whole(&volume);
}

#[test]
fn a_directory_with_a_volume_in_it_is_copied_into_with_care() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    fs::create_dir_all(place.path("tree/deep")).unwrap();
    fs::write(place.path("tree/v.pm"), "not a volume").unwrap();
    fs::write(place.path("tree/deep/other"), "other").unwrap();
    // A file of the volume's name into the directory where it is; a tree over another one.
    solera(["cp", &place.text("tree/v.pm"), &place.text(".")]).refused(1, &["v.pm", "a volume"]);
    fs::create_dir(place.path("over")).unwrap();
    fs::create_dir(place.path("over/tree")).unwrap();
    fs::rename(&volume, place.path("over/tree/v.pm")).unwrap();
    solera(["cp", "-r", &place.text("tree"), &place.text("over")]).refused(1, &["a volume"]);
    assert_eq!(fs::read(place.path("over/tree/deep/other")).unwrap(), b"other");
    still_whole(&place.text("over/tree/v.pm"));
}

#[test]
fn a_damaged_volume_and_one_in_use_are_kept_too() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let file = fs::File::options().write(true).open(&volume).unwrap();
    for copy in [0, 4096] {
        file.write_all_at(&[0xFF; 64], copy).unwrap();
        solera(["cp", "/etc/hostname", &volume]).refused(1, &["it is a volume"]);
        assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
    }
    // In use nothing helps, whatever it looks like.
    let at = place.prefix();
    let line = format!("echo here > {at}/ready; read line; cat {at}/file");
    let mut user = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while !solera(["ls", &volume]).ok().contains("ready") {
        std::thread::yield_now();
    }
    for (code, line) in lines(&place, &volume, &volume) {
        solera(&line).refused(code, &["it is a volume in use"]);
    }
    solera(["cp", "--overwrite-volume", "/etc/hostname", &volume]).refused(1, &["in use"]);
    solera(["snapshot", "--force", &with_name(&place, "w.pm"), &volume]).refused(1, &["in use"]);
    solera(["format", "--force", &volume]).refused(1, &["in use"]);
    drop(user.stdin.take());
    assert_eq!(user.wait_with_output().unwrap().stdout, b"kept\n");
    still_whole(&volume);
}

fn with_name(place: &TestDir, name: &str) -> String {
    let path = place.text(name);
    solera(["format", "--size", "64M", &path]).ok();
    path
}

#[test]
fn by_name_a_volume_that_nobody_uses_may_be_overwritten() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    // The message says the whole line.
    let refused = solera(["cp", "/etc/hostname", &volume]).ended_with(1);
    let line = format!("solera cp --overwrite-volume /etc/hostname {volume}");
    assert!(refused.err.contains(&line), "{}", refused.err);
    assert!(refused.err.contains(&format!("{volume}:/")), "{}", refused.err);
    solera(["cp", "--overwrite-volume", "/etc/hostname", &volume]).ok();
    assert_eq!(fs::read(&volume).unwrap(), fs::read("/etc/hostname").unwrap());
}

#[test]
fn what_an_anchor_directory_holds_is_nobodys_target() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let live = format!("{volume}.solera/live");
    symlink(&live, place.path("link")).unwrap();
    let before = fs::metadata(&live).unwrap().ino();
    let new = format!("{volume}.solera/new");
    for target in [&live, &new, &place.text("link")] {
        for (code, line) in lines(&place, &volume, target) {
            solera(&line).refused(code, &["anchor directory"]);
        }
        solera(["format", "--size", "64M", target]).refused(1, &["anchor directory"]);
        solera(["snapshot", "--force", &volume, target]).refused(1, &["anchor directory"]);
    }
    let anchor = format!("{volume}.solera");
    let open = format!("{anchor}/open");
    fs::create_dir(place.path("tree")).unwrap();
    symlink("x", place.path("tree/y")).unwrap();
    for dir in [&anchor, &open] {
        solera(["cp", "-r", &place.text("tree"), dir]).refused(1, &["anchor directory"]);
        solera(["mount", &volume, dir]).refused(1, &["anchor directory"]);
        solera(["age", dir]).refused(1, &["anchor directory"]);
        solera(["run", "--split", dir, "--", "true"]).refused(125, &["anchor directory"]);
    }
    assert_eq!(fs::metadata(&live).unwrap().ino(), before);
    assert_eq!(fs::read_dir(&anchor).unwrap().count(), 2);
    still_whole(&volume);
}

#[test]
fn a_block_device_is_written_only_by_name() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root is needed: nothing tested");
        return;
    }
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let node = place.text("disk");
    // A major number that no driver has: what opens it fails, what looks first refuses it.
    let made = Command::new("mknod").args([&node, "b", "240", "77"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("no device node can be made: nothing tested");
        return;
    }
    for (code, line) in lines(&place, &volume, &node) {
        solera(&line).refused(code, &["it is a block device"]);
    }
    // A file copied to a character device leaves that as it is.
    let mode = |path: &str| fs::metadata(path).unwrap().mode();
    let before = mode("/dev/null");
    solera(["cp", &format!("{volume}:/file"), "/dev/null"]).ok();
    assert_eq!(mode("/dev/null"), before);
}

#[test]
fn nothing_is_copied_onto_itself() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let same = |from: &str, to: &str| solera(["cp", from, to]).refused(1, &["the same file"]);
    let source = place.text("source");
    fs::hard_link(&source, place.path("second")).unwrap();
    symlink(&source, place.path("link")).unwrap();
    for other in ["source", "second", "link"] {
        same(&source, &place.text(other));
        same(&place.text(other), &source);
    }
    // By two names of the volume.
    symlink(&volume, place.path("v2.pm")).unwrap();
    same(&format!("{volume}:/file"), &format!("{}:/file", place.text("v2.pm")));
    same(&format!("{}:/file", place.text("./v.pm")), &format!("{volume}:/file"));
    // Inside a tree: names of one file on both sides.
    fs::create_dir_all(place.path("a/d")).unwrap();
    fs::create_dir_all(place.path("b/a/d")).unwrap();
    fs::write(place.path("a/d/f"), "shared").unwrap();
    fs::hard_link(place.path("a/d/f"), place.path("b/a/d/f")).unwrap();
    solera(["cp", "-r", &place.text("a"), &place.text("b")]).refused(1, &["the same file"]);
    assert_eq!(fs::read(place.path("a/d/f")).unwrap(), b"shared");
    // A directory to below itself, also by another name of it.
    symlink(place.path("a"), place.path("again")).unwrap();
    for to in ["a/d", "again/d", "a"] {
        solera(["cp", "-r", &place.text("a"), &place.text(to)]).refused(1, &["lie inside"]);
    }
    still_whole(&volume);
}

#[test]
fn a_mount_and_its_volume_are_one() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    fs::write(mounted.path("file"), "kept\n").unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    let direct = |name: &str| format!("{}:/{name}", mounted.volume);
    let by_mount = |name: &str| mounted.path(name).to_str().unwrap().to_owned();
    solera(["cp", &direct("file"), &by_mount("file")]).refused(1, &["the same file"]);
    solera(["cp", &by_mount("file"), &direct("file")]).refused(1, &["the same file"]);
    let below = direct("dir/below");
    solera(["cp", "-r", &by_mount("dir"), &below]).refused(1, &["lie inside"]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"kept\n");
    mounted.end();
}

/// A volume whose file was cut while a shell used it: `bash: fork: Input/output error` was all that
/// was said.
#[test]
fn a_region_that_is_cut_short_in_use_is_named() {
    let place = TestDir::new();
    let (volume, at) = (with_a_file(&place), place.prefix());
    let line = format!("cat {at}/file; truncate -s 3 {volume}; cat {at}/file; cat {at}/file");
    let cut = shell(&volume, &at, &line);
    assert!(cut.out.starts_with("kept\n"), "{}", cut.out);
    let said = format!("{volume} was cut from {} to 3 bytes while in use", 64 << 20);
    let told = cut.err.lines().filter(|line| line.contains(&said)).count();
    assert!(told >= 1 && cut.err.contains("truncate --size 67108864"), "{}", cut.err);
    assert!(cut.err.lines().next().unwrap_or_default().contains(&said), "{}", cut.err);
}

/// Programs of a shell whose volume was replaced would have gone over to the new file, one by one.
#[test]
fn a_region_that_is_replaced_in_use_is_named_and_served_to_the_end() {
    let place = TestDir::new();
    let (volume, at) = (with_a_file(&place), place.prefix());
    let other = with_name(&place, "other.pm");
    let line = format!("mv {other} {volume}; cat {at}/file; rm {volume}; cat {at}/file");
    let ran = shell(&volume, &at, &line);
    assert_eq!(ran.out, "kept\nkept\n", "{}", ran.err);
    assert!(ran.err.contains("was replaced by another file"), "{}", ran.err);
    assert!(ran.err.contains("was removed while in use"), "{}", ran.err);
}

/// `solera cp FILE V:name`, the slash forgotten, made a local file of that name and ended with 0.
#[test]
fn a_forgotten_slash_is_told() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let (source, there) = (place.text("source"), format!("{volume}:file"));
    let words = ["v.pm is a volume", "did you mean", "v.pm:/file?"];
    solera(["cp", &source, &there]).refused(1, &words);
    solera(["cp", &there, &place.text("out")]).refused(1, &words);
    for command in ["ls", "cat", "map", "defrag"] {
        solera([command, &there]).refused(1, &words);
    }
    solera(["numa", "get", &there]).refused(1, &words);
    assert!(!Path::new(&there).exists() && !place.path("out").exists());
    solera(["cp", &source, &format!("{volume}:a:b")]).refused(1, &["v.pm:/a:b?"]);
    // Local names with a colon: in front of it is no volume; it is there already; it begins with
    // `./`.
    for name in ["no:file", "source:file"] {
        solera(["cp", &source, &place.text(name)]).ok();
        assert_eq!(fs::read(place.path(name)).unwrap(), b"kept\n");
    }
    let here = |arguments: &[&str]| {
        let status = command().args(arguments).current_dir(place.path(".")).status();
        status.unwrap().success()
    };
    assert!(!here(&["cp", "source", "v.pm:file"]));
    assert!(here(&["cp", "source", "./v.pm:file"]));
    solera(["cp", "/etc/hostname", &there]).ok();
    assert_eq!(fs::read(&there).unwrap(), fs::read("/etc/hostname").unwrap());
    still_whole(&volume);
}
