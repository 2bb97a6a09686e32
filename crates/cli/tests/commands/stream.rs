//! `solera export` and `solera import`: all of a tree comes back, and a stream that is not whole
//! leaves nothing behind.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Ran, TestDir, cleanup, command, shell, solera};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/stream.py");

/// A further volume.
fn another(place: &TestDir, name: &str) -> String {
    let path = place.text(name);
    solera(["format", "--size", "256M", &path]).ok();
    path
}

/// A directory on a disk, which has extended attributes in every kernel.
struct DiskDir(PathBuf);

impl DiskDir {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        cleanup::goes_at_the_end(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for DiskDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn make(place: &TestDir, volume: &str) {
    let at = place.prefix();
    shell(volume, &at, &format!("python3 {SCRIPT} make {at}")).ok();
}

fn tell(place: &TestDir, volume: &str) -> String {
    let at = place.prefix();
    shell(volume, &at, &format!("python3 {SCRIPT} tell {at}")).ok()
}

#[track_caller]
fn are_same(before: &str, after: &str) {
    for (before, after) in before.lines().zip(after.lines()) {
        assert_eq!(before, after);
    }
    assert_eq!(before.lines().count(), after.lines().count());
}

fn import(volume: &str, stream: &[u8]) -> Ran {
    let name = format!("{volume}.stream");
    fs::write(&name, stream).unwrap();
    solera(["import", "--input", &name, volume])
}

fn has_nothing(volume: &str) {
    assert_eq!(solera(["ls", volume]).ok(), "");
    assert_eq!(solera(["fsck", volume]).ended_with(0).err, "");
}

#[test]
fn all_of_a_tree_comes_back() {
    let place = TestDir::new();
    let (from, to) = (place.volume("256M"), another(&place, "to.pm"));
    make(&place, &from);
    let before = tell(&place, &from);
    let stream = place.text("stream.tar");
    let out = solera(["export", "--json", "--output", &stream, &from]).json();
    let back = solera(["import", "--json", "--input", &stream, &to]).json();
    assert_eq!(out, back);
    let lines = before.lines().count() as u64;
    let [files, directories, links, others] =
        ["files", "directories", "links", "others"].map(|name| out[name].as_u64().unwrap());
    assert_eq!(files + directories + links + others, lines, "{out}");
    assert_eq!(links, 3);
    are_same(&before, &tell(&place, &to));
    // The same tree is the same stream.
    let again = place.text("again.tar");
    assert_eq!(solera(["export", "--json", "--output", &again, &to]).json(), out);
    assert!(fs::read(&stream).unwrap() == fs::read(&again).unwrap());
    // Less than the holes.
    assert!(fs::metadata(&stream).unwrap().len() < 8 << 20);
    solera(["fsck", &to]).ok();
}

/// What tar makes of the stream, on a file system of the kernel's.
#[test]
fn any_tar_unpacks_a_stream() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: owners and devices need root");
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("256M");
    make(&place, &volume);
    // tar makes a fifo of a socket.
    let at = place.prefix();
    shell(&volume, &at, &format!("rm {at}/socket")).ok();
    let stream = place.text("stream.tar");
    solera(["export", "-o", &stream, &volume]).ok();
    let out = DiskDir::new("unpacked");
    let options = ["--xattrs", "--xattrs-include=*", "-xpf"];
    let unpacked = Command::new("tar").arg("-C").arg(&out.0).args(options).arg(&stream).output();
    let unpacked = unpacked.unwrap();
    let said = String::from_utf8_lossy(&unpacked.stderr);
    assert!(unpacked.status.success(), "{said}");
    // tar gives no time of access back.
    let told = |text: &str| -> Vec<String> {
        let rest = |line: &str| {
            let fields = line.split(", ").enumerate().filter(|(at, _)| *at != 8);
            fields.map(|(_, field)| field).collect::<Vec<_>>().join(", ")
        };
        text.lines().map(rest).collect()
    };
    let there = Ran::of(Command::new("python3").args([SCRIPT, "tell"]).arg(&out.0)).ok();
    for (here, there) in told(&tell(&place, &volume)).iter().zip(told(&there)) {
        assert_eq!(*here, there);
    }
}

#[test]
fn what_is_not_whole_leaves_nothing() {
    let place = TestDir::new();
    let (from, to) = (place.volume("64M"), another(&place, "to.pm"));
    let at = place.prefix();
    let line = format!(
        "mkdir {at}/d; seq 3000 > {at}/d/f; ln {at}/d/f {at}/l; truncate -s 9M {at}/h; \
                        printf x | dd of={at}/h bs=1 seek=5M conv=notrunc status=none"
    );
    shell(&from, &at, &line).ok();
    let stream = place.text("stream.tar");
    solera(["export", "-o", &stream, &from]).ok();
    let whole = fs::read(&stream).unwrap();
    let end = whole.len() - 1024;
    // Cut at each block, and within. One that lacked the last zeros, or some of them, was taken:
    // who had sent it was told by nobody that it had not sent all.
    let cuts = (0..whole.len()).step_by(512).flat_map(|at| [at, at + 100, at + 511]);
    for length in cuts {
        let torn = "it ends before its end: a part is missing";
        import(&to, &whole[..length]).refused(1, &["import", torn, "nothing of it was kept"]);
    }
    has_nothing(&to);
    // A bit that is wrong anywhere.
    for at in (0..whole.len()).step_by(511) {
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        import(&to, &wrong).ended_with(1);
    }
    has_nothing(&to);
    // Two streams are none.
    let twice = [&whole[..end], &whole].concat();
    import(&to, &twice).refused(1, &["something follows the end"]);
    has_nothing(&to);
    // An end that lacks what it is to say: the message had a gap in its place.
    for (name, lacks) in [("SOLERA.objects", "how many objects"), ("SOLERA.sha256", "the sum")] {
        let at = whole.windows(name.len()).rposition(|found| found == name.as_bytes()).unwrap();
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        let told = format!("the end in it does not say {lacks}");
        import(&to, &wrong).refused(1, &[&told, "nothing of it was kept"]);
    }
    let fewer = [&whole[..1024], &whole[end - 1024..]].concat();
    import(&to, &fewer).refused(1, &["0 objects came, 5 had left"]);
    has_nothing(&to);
    // What fills the blocks of a tape is no part of it.
    import(&to, &[&whole[..], &[0; 9000]].concat()).ok();
    assert_eq!(solera(["ls", &to]).ok(), "d\nh\nl\n");
}

#[test]
fn a_stream_that_would_replace_something_is_refused() {
    let place = TestDir::new();
    let (from, to) = (place.volume("64M"), another(&place, "to.pm"));
    let at = place.prefix();
    shell(&from, &at, &format!("mkdir {at}/d; echo new > {at}/a; echo new > {at}/d/b")).ok();
    shell(&to, &at, &format!("echo old > {at}/a; mkdir {at}/other; chmod 700 {at}/other")).ok();
    let stream = place.text("stream.tar");
    solera(["export", "-o", &stream, &from]).ok();
    let refused = ["\"a\" is there already", "nothing was changed"];
    solera(["import", "-i", &stream, &to]).refused(1, &refused);
    assert_eq!(solera(["ls", &to]).ok(), "a\nother\n");
    assert_eq!(solera(["cat", &format!("{to}:/a")]).ok(), "old\n");
    // Into a directory; the one of a part.
    solera(["import", "-i", &stream, &format!("{to}:/other")]).ok();
    assert_eq!(solera(["ls", &format!("{to}:/other")]).ok(), "a\nd\n");
    let part = place.text("part.tar");
    solera(["export", "-o", &part, &format!("{from}:/d")]).ok();
    solera(["import", "-i", &part, &to]).ok();
    assert_eq!(solera(["ls", &to]).ok(), "a\nb\nother\n");
    // What there is stays as it was.
    solera(["export", "-o", &part, &from]).refused(1, &["is there already", "name another file"]);
    solera(["export", "-o", &place.text("new"), &format!("{from}:/a")])
        .refused(1, &["no directory"]);
    solera(["import", "-i", &stream, &format!("{to}:/b")]).refused(1, &["no directory"]);
    solera(["import", "-i", &place.text("none"), &to]).refused(1, &["No such file"]);
    solera(["export", "-o", &place.text("no/where"), &from]).refused(1, &["No such file"]);
}

#[test]
fn archives_of_others_are_refused() {
    let place = TestDir::new();
    let to = place.volume("64M");
    fs::write(place.path("file"), "x").unwrap();
    for format in ["pax", "gnu", "ustar"] {
        let made = Command::new("tar")
            .args(["-C", &place.text("."), "--format", format, "-cf", "-", "./file"])
            .output()
            .unwrap();
        assert!(made.status.success());
        import(&to, &made.stdout).refused(1, &["nothing of it was kept", "is unpacked by tar"]);
        has_nothing(&to);
    }
    import(&to, b"no archive at all").ended_with(1);
    import(&to, &[b'x'; 4096]).ended_with(1);
    has_nothing(&to);
}

/// Killed in the middle: the next one removes what it had made, and one beside it is refused.
#[test]
fn an_import_that_is_killed_stands_in_nobodys_way() {
    let place = TestDir::new();
    let (from, to) = (place.volume("64M"), another(&place, "to.pm"));
    let at = place.prefix();
    shell(&from, &at, &format!("for n in $(seq 200); do echo $n > {at}/$n; done")).ok();
    let stream = place.text("stream.tar");
    solera(["export", "-o", &stream, &from]).ok();
    let whole = fs::read(&stream).unwrap();
    let mut import = command().args(["import", &to]).stdin(Stdio::piped()).spawn().unwrap();
    let half = &whole[..whole.len() / 2];
    import.stdin.as_mut().unwrap().write_all(half).unwrap();
    let staged = format!("{to}:/.solera-import");
    while solera(["ls", &staged]).out.lines().count() <= 50 {
        std::thread::sleep(Duration::from_millis(10));
    }
    solera(["import", "-i", &stream, &to]).refused(1, &["another import", "under way"]);
    import.kill().unwrap();
    import.wait().unwrap();
    assert_eq!(solera(["ls", &to]).ok(), ".solera-import\n");
    solera(["import", "-i", &stream, &to]).ok();
    assert_eq!(solera(["ls", &to]).ok().lines().count(), 200);
    solera(["fsck", &to]).ok();
}

#[test]
fn a_stream_goes_from_one_to_the_other() {
    let place = TestDir::new();
    let (from, to) = (place.volume("256M"), another(&place, "to.pm"));
    make(&place, &from);
    let mut out = command().args(["export", &from]).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = out.stdout.take().unwrap();
    Ran::of(command().args(["import", &to]).stdin(stdout)).ok();
    assert!(out.wait().unwrap().success());
    are_same(&tell(&place, &from), &tell(&place, &to));
}
