//! `--cache` as a user meets it: what one program read the next one finds; programs with and
//! without it see the same; a cache that cannot be had is no failure.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::group::Group;
use crate::support::{
    Mounted, Ran, TestDir, can_change_user, can_mount, command, create_cache, solera,
};

const MIB: u64 = 1 << 20;

/// `solera run` of a program with a cache in the place.
fn cached(place: &TestDir, volume: &str) -> Command {
    let dir = place.path("cache");
    let _ = fs::create_dir(&dir);
    let mut command = command();
    let place = ["--cache-dir", dir.to_str().expect("UTF-8")];
    command.args(["run", "--volume", volume, "--at", "/cached", "--cache", "64M"]);
    command.args(place).arg("--");
    command
}

/// A program with a cache in a directory, and what was reported of it.
fn reported((volume, dir): (&str, &str), line: &[&str]) -> Ran {
    let run = ["run", "--report", "--volume", volume, "--at", "/cached", "--cache", "64M"];
    solera([&run[..], &["--cache-dir", dir, "--"], line].concat())
}

fn status(place: &TestDir, volume: &str) -> serde_json::Value {
    let dir = place.text("cache");
    solera(["cache", "status", "--json", "--cache-dir", &dir, volume]).json()
}

fn count(status: &serde_json::Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_else(|| panic!("{name} in {status}"))
}

#[test]
fn what_one_program_read_the_next_one_finds() {
    let place = TestDir::new();
    let volume = place.volume("128M");
    let file = place.path("file");
    fs::write(&file, "line\n".repeat(1 << 20)).expect("written");
    solera(["cp", file.to_str().expect("UTF-8"), &format!("{volume}:/file")]).ok();
    let grep = || {
        let found = Ran::of(cached(&place, &volume).args(["grep", "-c", "line", "/cached/file"]));
        assert_eq!(found.ok(), "1048576\n");
        status(&place, &volume)
    };
    let first = grep();
    // All of it, and in granules of 64 KiB, once.
    let length = fs::metadata(&file).expect("it is there").len();
    assert_eq!(count(&first, "bytes_filled"), length);
    // Reads that the cache serves are counted with the others.
    let counted = || {
        let look = solera(["top", "--once", "--json", "--interval", "0.1", &volume]).json();
        count(&look["counts"], "read_bytes")
    };
    let before = counted();
    let second = grep();
    assert_eq!(counted() - before, length);
    assert_eq!(count(&second, "bytes_filled"), length);
    assert_eq!(count(&second, "misses"), count(&first, "misses"));
    assert!(count(&second, "hits") >= count(&first, "hits") + length / (96 << 10));
    assert!(count(&second, "used_bytes") >= length);
    // For measurements.
    let dir = place.text("cache");
    let dropped = solera(["cache", "drop", "--cache-dir", &dir, &volume]).ok();
    assert!(dropped.starts_with("3 segments"), "{dropped}");
    assert_eq!(count(&status(&place, &volume), "used_bytes"), 0);
    assert_eq!(count(&grep(), "bytes_filled"), 2 * length);
    // The command attaches the volume to find the file, which ends the era; it says what it did.
    solera(["cache", "drop", "--file", "/file", "--cache-dir", &dir, &volume]).ok();
    let text = solera(["cache", "status", "--cache-dir", &dir, &volume]).ok();
    assert!(text.contains("hits") && text.contains("64.00 MiB"), "{text}");
    solera(["cache", "destroy", "--cache-dir", &dir, &volume]).ok();
    let gone = solera(["cache", "status", "--cache-dir", &dir, &volume]);
    gone.refused(1, &["there is no cache"]);
}

/// A program with the cache lives while others, without, change what it reads: beside it, and
/// through the mount. It changes things itself, in all ways that a shell has.
#[test]
fn programs_with_and_without_it_see_the_same() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("128M");
    let (program, other) = (include_str!("cache.py"), include_str!("cache_other.py"));
    let own = place.text("cache-of-the-mount");
    fs::create_dir(&own).expect("a directory");
    let mounted = Mounted::again(&place, volume.clone(), &["--cache", "32M", "--cache-dir", &own]);
    let pipes = place.text("");
    let fifos = ["in0", "out0", "in1", "out1"].map(|name| place.text(name));
    assert!(Command::new("mkfifo").args(&fifos).status().expect("mkfifo").success());
    let line = |number: usize| format!("exec \"$@\" <{pipes}in{number} >{pipes}out{number}");
    let solera = env!("CARGO_BIN_EXE_solera");
    let beside = ["run", "--volume", &volume, "--at", "/other", "--"];
    let python = ["python3", "-c", other];
    let mut beside = Command::new("sh")
        .args(["-c", &line(0), "sh", solera])
        .args(beside)
        .args(python)
        .arg("/other")
        .spawn()
        .expect("started");
    let mut mount = Command::new("sh")
        .args(["-c", &line(1), "sh"])
        .args(python)
        .arg(&mounted.at)
        .spawn()
        .expect("started");
    let said = Ran::of(cached(&place, &volume).args([
        "python3",
        "-c",
        program,
        &pipes,
        &mounted.at,
        "/cached",
    ]));
    let ended = [&mut beside, &mut mount].map(|other| {
        if said.code != 0 {
            // It waits for lines.
            let _ = other.kill();
        }
        other.wait().expect("it ends").success()
    });
    let said = said.ok();
    assert_eq!(ended, [true; 2]);
    assert!(said.contains("done"), "{said}");
    let found = status(&place, &volume);
    assert!(count(&found, "hits") > 100, "{found}");
    mounted.end();
}

/// Out of reach, full, somebody else's: the volume serves, and the report says why.
#[test]
fn a_cache_that_cannot_be_had_is_no_failure() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    Ran::of(cached(&place, &volume).args(["sh", "-c", "echo told > /cached/file"])).ok();
    let dir = place.text("cache");
    let report = |line: &str| {
        let ran = reported((&volume, &dir), &["sh", "-c", line]);
        assert_eq!(ran.out, "told\n", "{}", ran.err);
        ran.ended_with(0).err
    };
    assert!(!report("cat /cached/file").contains("cache:"));
    // A directory that others may write to is not trusted.
    let status = Command::new("sh").args(["-c", "chmod 777 \"$1\"/*", "sh", &dir]).status();
    assert!(status.expect("chmod").success());
    let told = report("cat /cached/file");
    assert!(told.contains("cache:unreachable"), "{told}");
    let status = Command::new("sh").args(["-c", "rm -r \"$1\"/*", "sh", &dir]).status();
    assert!(status.expect("rm").success());
    // It goes while the program reads.
    let line = format!("cat /cached/file >/dev/null; rm -r {dir}/*; cat /cached/file");
    report(&line);
    // A limit of the program's files is not met by those of the cache: neither its index's, nor a
    // segment's.
    let status = Command::new("sh").args(["-c", "rm -rf \"$1\"/*", "sh", &dir]).status();
    assert!(status.expect("rm").success());
    for _ in 0..2 {
        let solera = env!("CARGO_BIN_EXE_solera");
        let ran = Ran::of(
            Command::new("sh")
                .args(["-c", "ulimit -f 8; exec \"$@\"", "sh", solera, "run", "--volume", &volume])
                .args(["--at", "/cached", "--cache", "64M", "--cache-dir", &dir])
                .args(["--", "cat", "/cached/file"]),
        );
        assert_eq!(ran.ok(), "told\n");
        // Now there is an index, made without a limit.
        assert!(report("cat /cached/file").contains("solera: the cache lies"));
    }
    let missing = place.text("missing");
    solera([
        "run",
        "--volume",
        &volume,
        "--at",
        "/cached",
        "--cache",
        "64M",
        "--cache-dir",
        &missing,
        "--",
        "true",
    ])
    .refused(125, &["missing", "No such file"]);
    solera(["run", "--cache", "much", "--volume", &volume, "--at", "/cached", "--", "true"])
        .ended_with(125);
}

/// What nobody can mean was taken: no bytes at all, more than the machine has, a directory on a
/// disk.
#[test]
fn a_cache_that_cannot_be_meant_is_refused() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mounted = place.text("mounted");
    fs::create_dir(&mounted).expect("a directory");
    let cases = [
        (&["--cache", "0"][..], ["keep a cache of 0 B", "2.00 MiB"]),
        (&["--cache", "1K"], ["1.00 KiB", "without --cache there is no cache"]),
        (&["--cache", "90T"], ["90.00 TiB", "this machine has"]),
        (&["--cache", "16M", "--cache-dir", "/proc"], ["/proc", "on a tmpfs"]),
    ];
    for (options, words) in cases {
        let run = [&["run"], options, &["--volume", &volume, "--at", &at, "--", "true"]].concat();
        solera(run).refused(125, &words);
        let mount = [&["mount"], options, &[&volume[..], &mounted]].concat();
        solera(mount).refused(1, &words);
    }
    assert_eq!(solera(["info", "--json", &volume]).json()["attached"], serde_json::json!([]));
}

/// `--attach` did nothing where the cache has small pages, and only the report told.
#[test]
fn a_wish_that_the_pages_do_not_grant_is_told_of() {
    let place = TestDir::new();
    let (volume, dir) = (place.volume("64M"), place.text("cache"));
    fs::create_dir(&dir).expect("a directory");
    let run =
        ["run", "--volume", &volume, "--at", "/cached", "--cache", "16M", "--cache-dir", &dir];
    for (wish, told) in [(&["--attach"][..], true), (&[], false)] {
        let ran = solera([&run[..], wish, &["--", "true"]].concat()).ended_with(0);
        assert_eq!(ran.err.contains("--attach does nothing here"), told, "{}", ran.err);
    }
}

/// The cache of a volume that is gone could not be named any more, and kept its memory.
#[test]
fn caches_of_volumes_that_are_gone_are_found_and_removed() {
    let place = TestDir::new();
    let (volume, dir) = (place.volume("64M"), place.text("cache"));
    let line = "seq 100000 > /cached/file; cat /cached/file > /dev/null";
    Ran::of(cached(&place, &volume).args(["sh", "-c", line])).ok();
    let list = || solera(["cache", "list", "--json", "--cache-dir", &dir]).json();
    let found = list();
    let uuid = found[0]["uuid"].as_str().expect("one cache").to_owned();
    assert!(count(&found[0], "used_bytes") > 0, "{found}");
    fs::remove_file(&volume).expect("it is gone");
    let _ = fs::remove_dir_all(format!("{volume}.solera"));
    let on = ["--cache-dir", &dir];
    solera([&["cache", "destroy"], &on[..], &[&volume]].concat())
        .refused(1, &["no such volume", "solera cache list", "--uuid"]);
    for wrong in ["../..", "1", ""] {
        solera([&["cache", "destroy"], &on[..], &["--uuid", wrong]].concat()).ended_with(2);
    }
    let by = [&on[..], &["--uuid", &uuid]].concat();
    let told = solera([&["cache", "status", "--json"], &by[..]].concat()).json();
    assert_eq!(told["used_bytes"], found[0]["used_bytes"]);
    let text = solera(["cache", "list", "--cache-dir", &dir]).ok();
    assert!(text.starts_with(&uuid) && text.contains(&dir), "{text}");
    let dropped = solera([&["cache", "drop"], &by[..]].concat()).ok();
    assert_eq!(dropped, "1 segments dropped\n");
    solera([&["cache", "destroy"], &by[..]].concat()).ok();
    assert_eq!(list(), serde_json::json!([]));
    solera([&["cache", "destroy"], &by[..]].concat()).refused(1, &[&uuid, "there is no cache"]);
    assert_eq!(fs::read_dir(&dir).expect("the directory").count(), 0);
}

/// One that programs had made, and then one with huge pages: `destroy` had to be said twice, and
/// nobody told.
#[test]
fn both_caches_of_a_volume_go_at_once() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let line = "seq 100000 > /cached/file; cat /cached/file > /dev/null";
    let run = ["run", "--volume", &volume, "--at", "/cached", "--cache", "32M", "--"];
    solera([&run[..], &["sh", "-c", line]].concat()).ended_with(0);
    let first = solera(["cache", "status", "--json", &volume]).json();
    let first = first["place"].as_str().expect("a place").to_owned();
    let made = &*create_cache(&volume);
    solera([&run[..], &["sh", "-c", line]].concat()).ok();
    let both = solera(["cache", "status", "--json", &volume]).json();
    assert_eq!((&both["place"], &both["other_places"][0]), (&made.into(), &first.clone().into()));
    let text = solera(["cache", "status", &volume]).ok();
    assert!(text.contains(&first) && text.contains("not used any more"), "{text}");
    assert!(Path::new(made).is_dir() && Path::new(&first).is_dir());
    solera(["cache", "destroy", &volume]).ok();
    assert!(!Path::new(made).exists() && !Path::new(&first).exists());
    solera(["cache", "destroy", &volume]).refused(1, &["there is no cache"]);
}

/// A program that gives its rights away, moves to where the cache is not, or forbids itself the
/// calls by which it is reached. Some files it has read before, others not.
#[test]
fn a_program_that_gives_its_rights_away_goes_on() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let empty = place.text("empty");
    fs::create_dir(&empty).expect("a directory");
    fs::create_dir(place.path("cache")).expect("a directory");
    // What it does, and whether the cache can be filled then: its directory stays open.
    let ways = [
        ("setuid", false),
        ("chroot", true),
        ("chroot setuid", false),
        ("forbid-1", false),  // EPERM
        ("forbid-38", false), // ENOSYS
        ("chroot forbid-13 setuid", false),
        ("seteuid", false),
    ];
    let dir = place.text("cache");
    for (number, (way, fills)) in ways.into_iter().enumerate() {
        // Files of its own: nothing is there.
        let names = format!("/cached/{number}-");
        let program = include_str!("cache_kept_out.py");
        let ran = reported((&volume, &dir), &["python3", "-c", program, &names, &empty, way]);
        assert_eq!((ran.code, &*ran.out), (0, "right\n"), "{way}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{way}: {}", ran.err);
        // Only a process that gets its rights back can write a report at its end.
        let told = ran.err.contains("cache:unreachable");
        assert_eq!(told, way == "seteuid", "{way}: {}", ran.err);
        let found = status(&place, &volume);
        assert_eq!(count(&found, "full") == 0, fills, "{way}: {found}");
        // The next one makes one anew, with counters of its own.
        solera(["cache", "destroy", "--cache-dir", &dir, &volume]).ok();
    }
}

/// The cache makes no thread: it would end for good that a process alone works by plain
/// instructions (`crates/flac/tests/caching/exclusive.rs` counts them).
#[test]
fn a_program_with_the_cache_keeps_one_thread() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let lines = "
import ctypes, os
single = ctypes.c_char.in_dll(ctypes.CDLL(None), '__libc_single_threaded')
file = os.open('/cached/file', os.O_RDWR | os.O_CREAT)
for number in range(40):
    os.pwrite(file, bytes([number + 1]) * 100000, number * 500000)
    for other in range(number + 1):
        assert os.pread(file, 2 << 20, other * 500000)[:100000] == bytes([other + 1]) * 100000
threads = len(os.listdir('/proc/self/task'))
print(threads, single.value[0])
";
    let ran = Ran::of(cached(&place, &volume).args(["python3", "-c", lines]));
    assert_eq!(ran.ok(), "1 1\n");
    assert!(count(&status(&place, &volume), "hits") > 100);
}

/// A tmpfs of its own, with huge pages.
#[test]
fn root_makes_one_with_huge_pages() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let made = create_cache(&volume);
    let at = made.trim_end();
    assert!(at.starts_with("/run/solera/") && Path::new(at).is_dir(), "{made}");
    assert!(solera(["cache", "create", &volume]).ok().contains("there already"));
    let file = place.path("file");
    fs::write(&file, vec![7; 9 << 20]).expect("written");
    solera(["cp", file.to_str().expect("UTF-8"), &format!("{volume}:/file")]).ok();
    let run = ["run", "--volume", &volume, "--at", "/cached", "--cache", "32M", "--"];
    // Little of each chunk takes little, at its end too.
    let few = "for i in 0 1023 1535 2047; do dd if=/cached/file of=/dev/null bs=4k count=1 skip=$i \
               status=none; done";
    // The kernel's khugepaged may make a huge page of them at any time: it does not each time.
    let takes = (0..5).map(|_| {
        solera([&run[..], &["sh", "-c", few]].concat()).ok();
        let taken = Tmpfs::of(at).taken();
        solera(["cache", "drop", &volume]).ok();
        taken
    });
    let large = takes.take_while(|&taken| taken >= MIB).count() as u64;
    assert!(large < 5, "more than 1 MiB each time");
    let ran = solera([&run[..], &["cmp", "/cached/file", file.to_str().expect("UTF-8")]].concat());
    // No line about small pages.
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let found = solera(["cache", "status", "--json", &volume]).json();
    assert_eq!(found["page_bytes"], 2 << 20);
    assert_eq!(count(&found, "bytes_filled"), (9 << 20) + (large + 1) * 4 * (64 << 10));
    solera(["cache", "destroy", &volume]).ok();
    assert!(!Path::new(at).exists());
}

/// What lies in the cache counts as memory of the group that has read it. The volume's own is
/// somebody else's.
#[test]
fn a_control_group_with_room_for_its_cache_loses_nobody() {
    if !can_change_user() {
        return;
    }
    let Some(group) = Group::new(256 * MIB) else { return };
    let place = TestDir::new();
    let (volume, dir) = (place.path("v.pm"), place.text("cache"));
    let volume = volume.to_str().expect("UTF-8");
    solera(["format", "--reserve", "--size", "640M", volume]).ok();
    let file = place.path("file");
    let words = (0..48 * MIB).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fs::write(&file, words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()).expect("written");
    let file = file.to_str().expect("UTF-8");
    solera(["cp", file, &format!("{volume}:/file")]).ok();
    let tmpfs = Tmpfs::new(&dir);
    let lines = format!(
        "{} && exec \"$0\" run --volume {volume} --at /cached --cache 128M --cache-dir {dir} -- \
         sh -ec 'cd /cached; for i in 1 2 3; do \
         dd if=file of=copy bs=300k count=200 status=none & \
         cmp file {file}; dd if=file of=/dev/null bs=2M status=none; \
         wait; cmp -n 61440000 copy file; done'",
        group.entry()
    );
    let mut command = Command::new("sh");
    let solera_itself = env!("CARGO_BIN_EXE_solera");
    command.args(["-c", &lines, solera_itself]).stderr(Stdio::piped());
    let mut ran = command.spawn().expect("it starts");
    let mut most = 0;
    let ended = loop {
        most = most.max(tmpfs.taken());
        if let Some(status) = ran.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    let said = std::io::read_to_string(ran.stderr.take().expect("a pipe")).expect("text");
    // No line about small pages either.
    assert_eq!((ended.code(), group.killed(), &*said), (Some(0), 0, ""));
    // Besides the budget: the index, and what those that evict are about to fill.
    assert!((100..=128 + 8).contains(&(most / MIB)), "{most} bytes");
    let found = self::status(&place, volume);
    assert!(count(&found, "evictions") > 100, "{found}");
}

/// A tmpfs; if it is the test's own, until that ends.
struct Tmpfs {
    at: String,
    own: bool,
}

impl Tmpfs {
    fn new(at: &str) -> Self {
        fs::create_dir(at).expect("a directory");
        let options = ["-t", "tmpfs", "-o", "huge=within_size,mode=700", "tmpfs", at];
        let mounted = Command::new("mount").args(options).status();
        assert!(mounted.expect("mount").success());
        Self { at: at.to_owned(), own: true }
    }

    /// One that is there.
    fn of(at: &str) -> Self {
        Self { at: at.to_owned(), own: false }
    }

    /// Bytes that its files take.
    fn taken(&self) -> u64 {
        let found = rustix::fs::statvfs(&*self.at).expect("statistics");
        (found.f_blocks - found.f_bfree) * found.f_frsize
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if self.own {
            let _ = Command::new("umount").args(["-l", &self.at]).status();
        }
    }
}
