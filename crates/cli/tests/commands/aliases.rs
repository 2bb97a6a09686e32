//! One volume by two names: a hard link, a symlink, a bind-mounted file, a new name after `mv`.
//! Commands by the second name waited 5 s and then blamed the anchor directory, which they looked
//! for beside that name. The region says where its anchor is; a process that cannot see that is
//! refused at once, and told the other name.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use crate::support::{Mounted, TestDir, can_mount, command, shell, solera};

/// A shell that uses the volume until it is told to end.
struct User(Child);

impl User {
    fn start(volume: &str, at: &str) -> Self {
        let line = format!(
            "echo kept > {at}/file; echo r; while read -r line; do eval \"$line\"; echo; done"
        );
        let mut child = command()
            .args(["run", "--volume", volume, "--at", at, "--", "sh", "-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "r\n");
        Self(child)
    }

    /// Lets the shell do something, and gives its first line.
    fn does(&mut self, line: &str) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut out = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        let (mut first, mut rest) = (String::new(), String::new());
        out.read_line(&mut first).unwrap();
        while first != "\n" && rest != "\n" {
            rest.clear();
            out.read_line(&mut rest).unwrap();
        }
        first
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Every command that takes a volume works by this name, beside its user.
#[track_caller]
fn all_work(place: &TestDir, name: &str) {
    assert!(solera(["ls", name]).ok().contains("file"));
    assert_eq!(solera(["cat", &format!("{name}:/file")]).ok(), "kept\n");
    solera(["fsck", name]).ok();
    assert_eq!(solera(["info", "--json", name]).json()["attached"].as_array().unwrap().len(), 1);
    solera(["df", name]).ok();
    assert!(solera(["detach", name]).ended_with(1).out.contains("still attached"));
    solera(["snapshot", "--force", name, &place.text("copy.pm")]).ok();
    solera(["trim", name]).ok();
    let at = place.text("second");
    assert_eq!(shell(name, &at, &format!("cat {at}/file; echo x > {at}/new")).ok(), "kept\n");
}

#[test]
fn a_volume_in_use_is_reached_by_any_name() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    fs::create_dir(place.path("dir")).unwrap();
    let (hard, link) = (place.text("dir/hard.pm"), place.text("link.pm"));
    fs::hard_link(&volume, &hard).unwrap();
    symlink(&volume, &link).unwrap();
    let mut user = User::start(&volume, &at);
    for name in [&hard, &link, &place.text("dir/../v.pm")] {
        all_work(&place, name);
    }
    // Nothing was made beside the second name.
    assert!(!place.path("dir/hard.pm.solera").exists());
    // By a name that is given up while it is in use.
    let moved = place.text("dir/moved.pm");
    fs::rename(&volume, &moved).unwrap();
    all_work(&place, &moved);
    // What its user starts goes on, too.
    assert_eq!(user.does(&format!("cat {at}/file")), "kept\n");
    assert_eq!(user.does(&format!("(sed s/k/K/ {at}/file | cat)")), "Kept\n");
    user.end();
    solera(["detach", &moved]).ok();
    solera(["fsck", &hard]).ok();
}

#[test]
fn a_mount_is_found_by_any_name_of_its_volume() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    fs::write(mounted.path("file"), "kept\n").unwrap();
    let (hard, file) = (place.text("hard.pm"), mounted.path("file"));
    fs::hard_link(&mounted.volume, &hard).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(solera(["run", "--volume", &hard, "--", "cat", file]).ok(), "kept\n");
    let line = ["run", "--volume", &hard, "--at", &mounted.at, "--", "cat", file];
    assert_eq!(solera(line).ok(), "kept\n");
    assert_eq!(solera(["cat", &format!("{hard}:/file")]).ok(), "kept\n");
    // Read only, whatever face the program has.
    let line = format!("echo x > {file}");
    let refused = solera(["run", "--read-only", "--volume", &hard, "--", "sh", "-c", &line]);
    assert!(refused.ended_with(2).err.contains("Read-only file system"));
    solera(["umount", &hard]).ok();
    solera(["fsck", &mounted.volume]).ok();
}

#[test]
fn a_new_volume_of_the_old_name_does_not_take_the_anchor_of_the_one_that_was_moved() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut user = User::start(&volume, &at);
    fs::rename(&volume, place.path("moved.pm")).unwrap();
    let words = ["anchor directory", "another volume in use", &user.0.id().to_string()];
    solera(["format", "--size", "64M", &volume]).refused(1, &words);
    assert_eq!(user.does(&format!("cat {at}/file")), "kept\n");
    user.end();
    solera(["format", "--size", "64M", &volume]).ok();
    solera(["fsck", &place.text("moved.pm")]).ok();
}

/// As a container sees a file that is mounted into it: without the directory beside it.
#[test]
fn where_the_anchor_is_not_to_be_seen_the_other_name_is_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root is needed: nothing tested");
        return;
    }
    let place = TestDir::new();
    fs::create_dir(place.path("host")).unwrap();
    let (volume, at) = (place.text("host/v.pm"), place.prefix());
    solera(["format", "--size", "64M", &volume]).ok();
    let user = User::start(&volume, &at);
    let inside = place.text("inside.pm");
    fs::write(&inside, "").unwrap();
    let contained = |more: &str, arguments: &[&str]| {
        let script = r#"
set -e; inside=$1; host=$2; more=$3; shift 3
mount --bind "$host/v.pm" "$inside"
eval "$more"
mount -t tmpfs none "$host"
exec "$@""#;
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh", &inside, &place.text("host"), more])
            .arg(env!("CARGO_BIN_EXE_solera"))
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout.as_slice(), &output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let run = ["run", "--volume", &inside, "--at", &at, "--", "true"];
    for (code, line) in [
        (1, ["ls", &inside].as_slice()),
        (1, &["detach", &inside]),
        (1, &["snapshot", &inside, &place.text("copy.pm")]),
        (8, &["fsck", &inside]),
        (125, &run),
    ] {
        let (ended, said) = contained("", line);
        assert_eq!(ended, Some(code), "{line:?}: {said}");
        assert!(said.contains("in use by another name") && said.contains(&volume), "{said}");
    }
    assert_eq!(contained("", &["df", &inside]).0, Some(0));
    // The anchor beside the second name is the anchor.
    let bound = format!("mkdir {inside}.solera; mount --bind {volume}.solera {inside}.solera");
    for line in [["ls", &inside].as_slice(), &["fsck", &inside], &run] {
        let (ended, said) = contained(&bound, line);
        let _ = fs::remove_dir(format!("{inside}.solera"));
        assert_eq!(ended, Some(0), "{line:?}: {said}");
    }
    user.end();
    solera(["fsck", &volume]).ok();
}

/// A message that named `/x` alone spoke of no volume; `cp` has two.
#[test]
fn messages_name_the_volume_with_the_path() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let missing = format!("{volume}:/none/x");
    for command in ["ls", "cat", "map", "numa get"] {
        let line: Vec<&str> = command.split(' ').chain([&*missing]).collect();
        solera(line).refused(1, &[&format!(" {missing}: No such file")]);
    }
    solera(["numa", "set", "--none", &missing]).refused(1, &[&missing]);
    solera(["cp", &missing, &place.text("to")]).refused(1, &[&missing, &place.text("to")]);
    solera(["cp", "/etc/hostname", &missing]).refused(1, &[&missing]);
    let root = format!("{volume}:/");
    solera(["cp", "-r", &root, &format!("{volume}:/in")]).refused(1, &[&root]);
    solera(["cp", &root, &place.text("to")]).refused(1, &[&root, "-r"]);
    let many = ["cp", "/etc/hostname", "/etc/passwd", &missing];
    solera(many).refused(1, &[&missing, "no directory"]);
}

/// Above a volume's root there is nothing: `..` is the root, as in the kernel.
#[test]
fn the_root_is_its_own_parent() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let line =
        format!("cd {at} && mkdir dir && echo x > dir/file && ln -s ../dir up && ln -s ../up loop");
    crate::support::shell(&volume, &at, &line).ok();
    for path in ["/..", "/../..", "/dir/../..", "/../dir/..", "/../up/../"] {
        assert_eq!(solera(["ls", &format!("{volume}:{path}")]).ok(), "dir\nloop\nup\n", "{path}");
    }
    for path in ["/../dir/file", "/dir/../../dir/file", "/up/file", "/loop/file"] {
        assert_eq!(solera(["cat", &format!("{volume}:{path}")]).ok(), "x\n", "{path}");
    }
    solera(["cp", &format!("{volume}:/../dir/file"), &format!("{volume}:/../new")]).ok();
    assert_eq!(solera(["cat", &format!("{volume}:/new")]).ok(), "x\n");
}
