//! `solera run --attach`: reads of programs that know nothing of the cache are mapped where that
//! can be done, and copied, with the reason, where it cannot; what the program sees is the same.

use std::path::Path;
use std::process::Command;

use crate::support::{Ran, TestDir, can_mount, command, compiled, create_cache, solera};

/// A volume with a cache of huge pages, and the program.
struct Stage {
    place: TestDir,
    volume: String,
    program: String,
}

impl Stage {
    fn new(size: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let place = TestDir::new();
        let volume = place.volume(size);
        create_cache(&volume);
        let program = compiled("cli/tests/run/attach.c", &[]);
        Some(Self { place, volume, program })
    }

    fn run(&self, options: &[&str]) -> Command {
        let mut command = command();
        let at = self.place.prefix();
        command.args(["run", "--volume", &self.volume, "--at", &at, "--attach"]);
        command.args(["--report", "--json", "--report-file", &self.place.text("report")]);
        command.args(options);
        command
    }

    /// Runs a case, and gives what `--report` says: reasons with their bytes.
    fn case(&self, options: &[&str], case: &[&str]) -> Vec<(String, u64)> {
        let mut command = self.run(options);
        command.args(["--", &self.program, case[0], &self.place.prefix()]).args(&case[1..]);
        // A ring is refused while a volume is attached, unless it is asked for.
        command.env("SOLERA_KERNEL_AIO", "allow");
        let ran = Ran::of(&mut command);
        assert!(ran.out.ends_with("right\n"), "{case:?}: {} {}", ran.out, ran.err);
        self.report()
    }

    fn report(&self) -> Vec<(String, u64)> {
        let report = std::fs::read(self.place.path("report")).expect("a report");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        let rows = report["calls"].as_array().expect("rows").iter();
        rows.map(|row| {
            let reason = row["reason"].as_str().expect("a reason").to_owned();
            (reason, row["bytes"].as_u64().expect("bytes"))
        })
        .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = solera(["cache", "destroy", &self.volume]);
    }
}

const CACHE: [&str; 2] = ["--cache", "256M"];

#[test]
fn whole_congruent_pages_are_mapped() {
    let Some(stage) = Stage::new("256M") else { return };
    stage.case(&CACHE, &["counts"]);
    let status = solera(["cache", "status", "--json", &stage.volume]).json();
    assert!(status["bytes_attached"].as_u64().is_some_and(|bytes| bytes > 256 << 20), "{status}");
}

#[test]
fn a_buffer_keeps_what_it_got() {
    let Some(stage) = Stage::new("256M") else { return };
    stage.case(&["--cache", "48M"], &["keeps"]);
}

#[test]
fn buffers_come_and_go_unseen() {
    let Some(stage) = Stage::new("256M") else { return };
    stage.case(&CACHE, &["comes-and-goes"]);
    stage.case(&CACHE, &["calls"]);
    stage.case(&CACHE, &["copies"]);
    stage.case(&CACHE, &["failures"]);
    stage.case(&CACHE, &["marked"]);
    stage.case(&CACHE, &["marked-elsewhere"]);
    stage.case(&CACHE, &["strict"]);
    stage.case(&CACHE, &["sandboxed"]);
    stage.case(&CACHE, &["faults-served"]);
    stage.case(&["--cache", "32M", "--miss", "ahead"], &["beside"]);
    let mut command = stage.run(&CACHE);
    command.args(["--", &stage.program, "chrooted", &stage.place.prefix()]);
    let ran = Ran::of(&mut command);
    let root = |entry: &std::fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("attached-root-")
    };
    let made = std::fs::read_dir("/dev/shm").expect("it is there").flatten().filter(root);
    made.for_each(|entry| std::fs::remove_dir(entry.path()).expect("it is empty"));
    assert!(ran.out.contains("right") && !ran.out.contains("attach.c:"), "{} {}", ran.out, ran.err);
    stage.case(&CACHE, &["threads"]);
}

/// The kernel does not know one of the requests, or does not say how old it is.
#[test]
fn before_linux_6_12_all_is_copied() {
    let Some(stage) = Stage::new("256M") else { return };
    for request in ["c0686611", "c0606610", "0"] {
        let options = stage.run(&CACHE);
        let mut command = Command::new(&stage.program);
        command.env_remove("LD_PRELOAD").args(["older", request]).arg(options.get_program());
        command.args(options.get_args());
        command.args(["--", &stage.program, "small-pages", &stage.place.prefix()]);
        let ran = Ran::of(&mut command);
        assert!(ran.out.ends_with("right\n"), "{request}: {} {}", ran.out, ran.err);
        let told = stage.report();
        assert!(told.iter().any(|(reason, _)| reason == "attach:kernel"), "{request}: {told:?}");
    }
}

/// A process whose first thread has ended lives as long as the others of the program's, and no
/// longer: the thread that fills ahead ends, too.
#[test]
fn a_process_without_its_first_thread_ends() {
    let Some(stage) = Stage::new("256M") else { return };
    let run = stage.run(&["--cache", "32M", "--miss", "ahead"]);
    let mut command = Command::new("timeout");
    command.env_remove("LD_PRELOAD").args(["-k", "1", "600"]).arg(run.get_program());
    command.args(run.get_args());
    let ran = Ran::of(command.args(["--", &stage.program, "without-first", &stage.place.prefix()]));
    assert_eq!(ran.ok(), "right\n");
}

#[test]
fn what_is_attached_outlives_its_cache() {
    let Some(stage) = Stage::new("256M") else { return };
    let destroy = format!("{} cache destroy {}", env!("CARGO_BIN_EXE_solera"), stage.volume);
    let mut command = stage.run(&CACHE);
    command.args(["--", &stage.program, "unmounted", &stage.place.prefix(), &destroy]);
    let ran = Ran::of(&mut command);
    assert!(ran.out.ends_with("right\n"), "{} {}", ran.out, ran.err);
}

/// Where files may not be executed, memory into which they are mapped may.
#[test]
fn attached_memory_is_made_executable_on_a_tmpfs_that_forbids_it() {
    let Some(stage) = Stage::new("256M") else { return };
    let dir = stage.place.text("noexec");
    std::fs::create_dir(&dir).expect("a directory");
    let mount = ["-t", "tmpfs", "-o", "huge=within_size,noexec,mode=700", "none", &dir];
    assert!(Command::new("mount").args(mount).status().expect("mount").success());
    let mut command = stage.run(&[&CACHE[..], &["--cache-dir", &dir]].concat());
    let ran = Ran::of(command.args(["--", &stage.program, "calls", &stage.place.prefix()]));
    assert!(Command::new("umount").args(["-l", &dir]).status().expect("umount").success());
    assert!(ran.out.ends_with("right\n"), "{} {}", ran.out, ran.err);
}

/// The allocators that programs preload, with blocks at multiples of 2 MiB and elsewhere.
#[test]
fn blocks_of_every_allocator_are_what_they_were() {
    let Some(stage) = Stage::new("256M") else { return };
    let rounds = if std::env::var_os("SOLERA_TEST_LONG").is_some() { "600" } else { "20" };
    let all = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"];
    for allocator in [None].into_iter().chain(all.map(Some)) {
        let library = allocator.map(|name| format!("/usr/lib/x86_64-linux-gnu/{name}"));
        if let Some(library) = library.as_ref().filter(|library| !Path::new(library).exists()) {
            println!("skipped: there is no {library} (scripts/setup.sh --tests)");
            continue;
        }
        for align in [&[][..], &["--align"]] {
            let mut command = stage.run(&[&CACHE[..], align].concat());
            command.args(["--", &stage.program, "blocks", &stage.place.prefix(), rounds]);
            if let Some(library) = &library {
                command.env("LD_PRELOAD", library);
            }
            let ran = Ran::of(&mut command);
            assert!(ran.out.ends_with("right\n"), "{library:?} {align:?}: {} {}", ran.out, ran.err);
        }
    }
    let status = solera(["cache", "status", "--json", &stage.volume]).json();
    assert!(status["bytes_attached"].as_u64().is_some_and(|bytes| bytes > 1 << 28), "{status}");
}

#[test]
fn every_reason_for_a_copy_is_told() {
    let Some(stage) = Stage::new("256M") else { return };
    let reasons = [
        "short",
        "incongruent",
        "shared-mapping",
        "file-mapping",
        "executable",
        "stack",
        "locked",
        "not-inherited",
        "not-dumped",
        "memory-policy",
        "protection-key",
        "userfaultfd",
        "huge-mapping",
        "device",
        "rewritten",
        "unchecked",
        "kernel",
    ];
    for reason in reasons {
        let mut command = stage.run(&CACHE);
        command.args(["--", &stage.program, reason, &stage.place.prefix()]);
        let ran = Ran::of(&mut command);
        assert!(ran.out.ends_with("right\n"), "{reason}: {} {}", ran.out, ran.err);
        if let Some(what) = ran.out.strip_suffix("\nright\n") {
            eprintln!("skipped: {reason}: {what}");
            continue;
        }
        let told = stage.report();
        let name = format!("attach:{reason}");
        let bytes = told.iter().find(|(told, _)| *told == name).map(|(_, bytes)| *bytes);
        assert!(bytes.is_some_and(|bytes| bytes >= 2 << 20), "{reason}: {told:?}");
    }
    // The cache's own pages.
    let dir = stage.place.text("");
    let told = stage.case(&["--cache", "256M", "--cache-dir", &dir], &["small-pages"]);
    assert!(told.contains(&("attach:small-pages".into(), 8 << 20)), "{told:?}");
    // Only longer reads.
    let told = stage.case(&[&CACHE[..], &["--attach-min", "16M"]].concat(), &["small-pages"]);
    assert!(told.contains(&("attach:short".into(), 8 << 20)), "{told:?}");
}

#[test]
fn pinned_buffers_are_left_alone() {
    let Some(stage) = Stage::new("256M") else { return };
    let told = stage.case(&CACHE, &["ring"]);
    assert!(told.iter().any(|(reason, _)| reason == "attach:pinned"), "{told:?}");
    // What is registered behind the first look nobody can see (docs/flac.md, "Attaching"): the
    // kernel has the old pages then.
    stage.case(&CACHE, &["ring-later"]);
    // Without `--attach`, as with explicit buffers, nothing of it happens.
    let mut command = command();
    command.args(["run", "--volume", &stage.volume, "--at", &stage.place.prefix()]);
    command.args(CACHE).args(["--", &stage.program, "ring-seen", &stage.place.prefix()]);
    command.env("SOLERA_KERNEL_AIO", "allow");
    assert_eq!(Ran::of(&mut command).ok(), "right\n");
}

#[test]
fn who_stores_to_what_it_reads_gets_copies() {
    let Some(stage) = Stage::new("256M") else { return };
    for case in ["rewrites", "rewrites-anew"] {
        let told = stage.case(&CACHE, &[case]);
        let rewritten = told.iter().find(|(reason, _)| reason == "attach:rewritten");
        assert!(rewritten.is_some_and(|(_, bytes)| *bytes > 390 << 22), "{case}: {told:?}");
    }
    // Two trials of four pages in the same buffer; what is unmapped nobody can look at.
    let status = solera(["cache", "status", "--json", &stage.volume]).json();
    assert!(status["bytes_changed"].as_u64().is_some_and(|bytes| bytes >= 8 << 20), "{status}");
}

#[test]
fn so_many_pages_and_no_more() {
    let Some(stage) = Stage::new("256M") else { return };
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let told = stage.case(&CACHE, &["many", if long { "70000" } else { "17500" }]);
    assert!(told.iter().any(|(reason, _)| reason == "attach:too-many"), "{told:?}");
}

/// A program that reads in order, forks, is interrupted, and executes itself.
#[test]
fn misses_are_filled_ahead_by_a_thread_of_their_own() {
    let lines = "
import os, signal, sys, threading, time
name = sys.argv[1] + '/file'
threads = lambda: len(os.listdir('/proc/self/task'))
piece = lambda at: bytes([at % 251]) * (1 << 20)
most = 0
def read(file, pieces):
    global most
    for at in pieces:
        assert os.pread(file, 1 << 20, at << 20) == piece(at), at
        most = max(most, threads())
if len(sys.argv) == 3:
    read(os.open(name, os.O_RDONLY), range(0, 24))
    print('right')
    sys.exit()
with open(name, 'wb') as file:
    for at in range(24): file.write(piece(at))
file = os.open(name, os.O_RDWR)
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(threading.get_native_id()))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
read(file, range(0, 4))
print(most)
child = os.fork()
if child == 0:
    if threads() != 1: os._exit(1)
    read(file, range(4, 10))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
read(file, range(4, 24))
os.pwrite(file, b'new', 5 << 20)
assert os.pread(file, 3, 5 << 20) == b'new'
os.pwrite(file, piece(5)[:3], 5 << 20)
for _ in range(50): time.sleep(0.002)
assert handled and set(handled) == {os.getpid()}
signal.setitimer(signal.ITIMER_REAL, 0)
read(file, range(0, 3))
sys.stdout.flush()
program = open('/proc/self/cmdline').read().split(chr(0))[2]
os.execv(sys.executable, [sys.executable, '-c', program, sys.argv[1], 'again'])
";
    let place = TestDir::new();
    let (volume, at, dir) = (place.volume("256M"), place.prefix(), place.text(""));
    for (miss, threads) in [("ahead", 2), ("sync", 1)] {
        let mut command = command();
        command.args(["run", "--volume", &volume, "--at", &at, "--cache", "16M"]);
        command.args(["--cache-dir", &dir, "--miss", miss, "--", "python3", "-c", lines, &at]);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.out, format!("{threads}\nright\n"), "{}", ran.err);
    }
}
