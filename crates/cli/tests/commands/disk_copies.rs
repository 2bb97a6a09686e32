//! A copy of a volume on an ordinary disk: `ls`, `cp` out of it and `run` were refused, and the
//! message advised what then failed. It is read without a switch, also one that was copied while it
//! was in use; what writes asks for `--class page`, and says the whole line to type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{TestDir, can_mount, cleanup, command, shell, solera};

/// A directory on an ordinary disk, if the build directory lies on one; gone with the test.
struct DiskDir(PathBuf);

impl DiskDir {
    fn new(name: &str) -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = target.join(format!("disk-{}-{name}", std::process::id()));
        cleanup::goes_at_the_end(&dir);
        fs::create_dir_all(&dir).unwrap();
        let disk = Self(dir);
        fs::write(disk.0.join("probe"), [0; 4096]).unwrap();
        if pmem::needs_class(&disk.0.join("probe")) {
            return Some(disk);
        }
        eprintln!("{} is no ordinary disk: nothing tested", disk.0.display());
        None
    }

    fn text(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for DiskDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Three copies: by `snapshot`, by `cp` after an orderly end, and of a volume whose user was
/// killed.
fn copies(place: &TestDir, disk: &DiskDir) -> Vec<String> {
    let (volume, at) = (place.volume("64M"), place.prefix());
    let line = format!("mkdir {at}/d; seq 3000 > {at}/d/file; ln -s d/file {at}/link");
    shell(&volume, &at, &line).ok();
    solera(["snapshot", &volume, &disk.text("snapshot.pm")]).ok();
    fs::copy(&volume, disk.text("clean.pm")).unwrap();
    let line = format!(
        "exec 3> {at}/unlinked; head -c 1M /dev/zero >&3; rm {at}/unlinked; \
         echo last >> {at}/d/file; kill -9 $$"
    );
    shell(&volume, &at, &line).ended_with(1009);
    fs::copy(&volume, disk.text("dirty.pm")).unwrap();
    ["snapshot.pm", "clean.pm", "dirty.pm"].map(|name| disk.text(name)).to_vec()
}

fn content(path: &str) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn a_copy_is_read_without_a_switch_and_not_changed() {
    let place = TestDir::new();
    let Some(disk) = DiskDir::new("read") else { return };
    for copy in copies(&place, &disk) {
        let before = content(&copy);
        let lines = if copy.ends_with("dirty.pm") { 3001 } else { 3000 };
        assert_eq!(solera(["ls", &copy]).ok(), "d\nlink\n", "{copy}");
        let text = solera(["cat", &format!("{copy}:/link")]).ok();
        assert_eq!(text.lines().count(), lines);
        solera(["cp", "-r", &format!("{copy}:/d"), &place.text("out")]).ok();
        assert_eq!(fs::read_to_string(place.path("out/file")).unwrap(), text);
        fs::remove_dir_all(place.path("out")).unwrap();
        for command in ["fsck", "info", "df"] {
            solera([command, &copy]).ok();
        }
        solera(["map", &format!("{copy}:/d/file")]).ok();
        solera(["info", "--picture", &place.text("v.svg"), &copy]).ok();
        solera(["defrag", "--dry-run", &copy]).ok();
        solera(["snapshot", "--force", &copy, &place.text("again.pm")]).ok();
        assert_eq!(solera(["ls", &place.text("again.pm")]).ok(), "d\nlink\n");
        // Several programs, which hand descriptors to each other, map the file, and may not write.
        let at = place.prefix();
        let line = format!(
            "{{ read -r first; (tail -n 1); }} < {at}/link; cat {at}/d/* | wc -l; \
             grep -c 7 {at}/d/file; cd {at}/d && ls; touch {at}/new || echo refused; \
             python3 -c 'import mmap; f = open(\"{at}/d/file\", \"rb\"); \
             print(len(mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE)[:]))'"
        );
        let line =
            ["run", "--read-only", "--volume", &copy, "--at", &at, "--", "bash", "-c", &line];
        let ran = solera(line);
        let last = if lines == 3001 { "last" } else { "3000" };
        let said = format!("{last}\n{lines}\n{}\nfile\nrefused\n{}\n", 813, text.len());
        assert_eq!(ran.out, said, "{copy}: {}", ran.err);
        assert!(ran.err.contains("Read-only file system"), "{}", ran.err);
        assert!(content(&copy) == before, "{copy} was changed by reading it");
    }
}

#[test]
fn writing_asks_for_the_class_and_says_the_whole_line() {
    let place = TestDir::new();
    let Some(disk) = DiskDir::new("write") else { return };
    let copy = &copies(&place, &disk)[0];
    let before = content(copy);
    fs::write(place.path("new"), "new\n").unwrap();
    let (new, to, at) = (place.text("new"), format!("{copy}:/"), place.prefix());
    fs::create_dir(place.path("mnt")).unwrap();
    let mnt = place.text("mnt");
    let run = ["run", "--volume", copy, "--at", &at, "--", "sh", "-c", "echo 'a b'"];
    let lines: [(i32, &[&str]); 7] = [
        (1, &["cp", &new, &to]),
        (1, &["trim", copy]),
        (1, &["detach", copy]),
        (1, &["grow", "--size", "+2M", copy]),
        (1, &["defrag", copy]),
        (1, &["mount", copy, &mnt]),
        (125, &run),
    ];
    for (code, line) in lines {
        if line[0] == "mount" && !can_mount() {
            continue;
        }
        let refused = solera(line).ended_with(code);
        let said = refused.err.trim_end().rsplit_once(": solera ").map(|(_, rest)| rest.to_owned());
        let said = said.unwrap_or_else(|| panic!("no line in: {}", refused.err));
        assert!(said.starts_with(&format!("{} --class page ", line[0])), "{said}");
        assert!(content(copy) == before, "{line:?} changed it");
        // As it was said, by a shell.
        let typed = format!("{} {said}", env!("CARGO_BIN_EXE_solera"));
        let ran = std::process::Command::new("sh").args(["-c", &typed]).output().unwrap();
        assert!(ran.status.success(), "{typed}: {}", String::from_utf8_lossy(&ran.stderr));
        if line[0] == "mount" {
            solera(["umount", &mnt]).ok();
        }
        fs::write(copy, &before).unwrap();
    }
    // A repair that finds nothing to do changes nothing; one that does, asks.
    solera(["fsck", "--repair", copy]).ok();
    assert!(content(copy) == before);
    let damaged = disk.text("clean.pm");
    let mut bytes = content(&damaged);
    bytes[..64].fill(0xFF);
    fs::write(&damaged, &bytes).unwrap();
    let line = format!("solera fsck --class page --repair {damaged}");
    solera(["fsck", "--repair", &damaged]).refused(8, &[&line]);
    assert!(content(&damaged) == bytes);
    solera(["fsck", "--class", "page", "--repair", &damaged]).ended_with(1);
    // What was made there says how it is used; that line works, too.
    let made = disk.text("made.pm");
    let refused = solera(["format", "--size", "64M", &made]).ended_with(1);
    let line = format!("solera format --class page --size 64M {made}");
    assert!(refused.err.contains(&line), "{}", refused.err);
    let said = solera(["format", "--class", "page", "--size", "64M", &made]).ok();
    let next = format!("Next: solera run --class page --volume {made} --at /pm -- PROGRAM");
    assert!(said.contains(&next), "{said}");
    let line = format!("echo x > {at}/file; cat {at}/file");
    let run = ["run", "--class", "page", "--volume", &made, "--at", &at, "--", "sh", "-c", &line];
    assert_eq!(solera(run).ok(), "x\n");
    // Beside a process that writes, it is read as that process sees it.
    let mut writer = command()
        .args(["run", "--class", "page", "--volume", &made, "--at", &at, "--", "sh", "-c"])
        .arg(format!("echo y > {at}/second; read line; true"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while !solera(["ls", &made]).ok().contains("second") {
        std::thread::yield_now();
    }
    solera(["fsck", &made]).ok();
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    assert_eq!(solera(["cat", &format!("{made}:/second")]).ok(), "y\n");
}

/// A reader that has just seen that nobody has the volume, and reads it then: a writer that came in
/// between kept it out (`EACCES`).
#[test]
fn a_writer_may_begin_beside_a_reader_that_begins() {
    let place = TestDir::new();
    let Some(disk) = DiskDir::new("begins") else { return };
    let (volume, at, log) = (disk.text("v.pm"), place.prefix(), place.text("log"));
    solera(["format", "--class", "page", "--size", "64M", &volume]).ok();
    let reader = |inject: &[&str]| {
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-qq", "-o", &log, "-e", "trace=fcntl"]).args(inject);
        strace.args([env!("CARGO_BIN_EXE_solera"), "ls", &volume]);
        strace.stdout(Stdio::piped()).stderr(Stdio::piped());
        strace
    };
    let said = reader(&[]).output();
    let Ok(traced) = fs::read_to_string(&log) else {
        eprintln!("strace cannot be had: nothing tested");
        return;
    };
    assert!(said.unwrap().status.success());
    // The lock of those that write it: looked at first, then beside its own.
    let looks = traced.lines().position(|line| line.contains("l_start=4611686018427387904"));
    let looks = looks.expect("it looks for a writer") + 1;
    let inject = format!("inject=fcntl:delay_exit=1500000:when={looks}");
    fs::remove_file(&log).unwrap();
    let begun = Instant::now();
    let begins = reader(&["-e", &inject]).spawn().unwrap();
    while fs::read_to_string(&log).unwrap_or_default().lines().count() < looks {
        assert!(begun.elapsed() < Duration::from_mins(1), "it does not look");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut writer = command()
        .args(["run", "--class", "page", "--volume", &volume, "--at", &at, "--", "sh", "-c"])
        .arg(format!("echo x > {at}/file; read line; true"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let reads = begins.wait_with_output().unwrap();
    assert!(reads.status.success(), "{}", String::from_utf8_lossy(&reads.stderr));
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
}

/// Files that change in all ways, until the process is killed. It is when it has done some of that.
const WORK: &str = r"
import os, random, sys
os.chdir(sys.argv[1]); random.seed(int(sys.argv[2])); os.mkdir('d'); done = 0
while True:
    done += 1
    if done == 300: print('ready', flush=True)
    name, kind = 'd/%d' % random.randrange(40), random.randrange(6)
    try:
        if kind == 0: open(name, 'wb').write(os.urandom(random.randrange(60000)))
        elif kind == 1: open(name, 'ab').write(os.urandom(random.randrange(9000)))
        elif kind == 2:
            with open(name, 'r+b', buffering=0) as file:
                file.seek(random.randrange(max(1, os.stat(name).st_size)))
                file.write(os.urandom(random.randrange(1, 20000)))
        elif kind == 3: os.rename(name, 'd/%d' % random.randrange(40))
        elif kind == 4: os.unlink(name)
        else: os.truncate(name, random.randrange(50000))
    except FileNotFoundError: pass
";

#[test]
fn what_is_recovered_in_memory_is_what_is_recovered_in_place() {
    let place = TestDir::new();
    let at = place.prefix();
    fs::write(place.path("work"), WORK).unwrap();
    for (seed, mode) in ["strict", "sync", "posix", "strict"].into_iter().enumerate() {
        let _ = fs::remove_file(place.path("v.pm"));
        let volume = place.volume("64M");
        let mut child = command()
            .args(["run", "--mode", mode, "--volume", &volume, "--at", &at, "--", "python3"])
            .args([&place.text("work"), &at, &seed.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        child.kill().unwrap();
        child.wait().unwrap();
        let before = content(&volume);
        let all = format!("cd {at}/d && sha256sum * && stat -c '%n %s %Y' *");
        let read = ["run", "--read-only", "--volume", &volume, "--at", &at, "--", "sh", "-c", &all];
        let read = solera(read).ok();
        assert!(content(&volume) == before, "a reader changed it");
        assert_eq!(read, shell(&volume, &at, &all).ok(), "{mode}, seed {seed}");
        solera(["fsck", &volume]).ok();
    }
}

#[test]
fn a_copy_is_mounted_read_only_without_a_switch() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let Some(disk) = DiskDir::new("mount") else { return };
    let mnt = place.text("mnt");
    fs::create_dir(&mnt).unwrap();
    for copy in copies(&place, &disk) {
        let before = content(&copy);
        solera(["mount", "-o", "ro", &copy, &mnt]).ok();
        let lines = fs::read_to_string(format!("{mnt}/link")).unwrap().lines().count();
        assert_eq!(lines, if copy.ends_with("dirty.pm") { 3001 } else { 3000 });
        solera(["umount", &mnt]).ok();
        assert!(content(&copy) == before, "{copy} was changed");
    }
}

/// What was to be typed had an option that the command does not know.
#[test]
fn a_command_without_the_option_is_told_the_variable() {
    let Some(disk) = DiskDir::new("variable") else { return };
    let place = disk.text("");
    for line in [
        &["bench", "compaction", "--seconds", "1", "--place", &place][..],
        &["bench", "recovery", "--place", &place],
    ] {
        let said = format!(": SOLERA_CLASS=page solera {}", line.join(" "));
        solera(line).refused(1, &["ordinary disk", &said]);
    }
}
