//! Descriptors: numbers, flags and limits as on a kernel file system, and descriptors sent through
//! sockets, also through a process without the library and past the deaths of all concerned.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{
    PREFIX, TestDir, check_left_in_order, compile, format, library, run, same, text,
};
use vfs::FileSystemExt;

#[test]
fn messages() {
    same("messages");
}

/// The parts of `passing.c`, started one by one.
struct Passing {
    place: TestDir,
    program: PathBuf,
    free: u64,
}

impl Passing {
    fn new(name: &str) -> Self {
        let place = TestDir::new(name);
        let program = place.0.join("passing");
        compile("passing.c", &program, &["-O1"]);
        format(&place.volume());
        let mut passing = Self { place, program, free: 0 };
        // The root's directory block and the like are there from now on.
        let (write, read) = Passing::pair();
        assert!(passing.send(write, "0").wait().expect("waited").success());
        drop(read);
        passing.free = Self::free_blocks_when_received(&passing.attached());
        passing
    }

    fn attached(&self) -> Arc<volume::Volume> {
        let options = volume::AttachOptions::default();
        volume::attach(&self.place.volume(), &options).expect("attached")
    }

    fn free_blocks(&self) -> u64 {
        self.attached().statistics().expect("statistics").blocks_free
    }

    /// What is free when no message keeps a descriptor any more. A child that another test is
    /// starting has copies of this process's sockets until it executes its program: a message goes
    /// when that has let go, too.
    fn free_blocks_when_received(volume: &volume::Volume) -> u64 {
        let start = Instant::now();
        while volume.anything_in_flight() {
            assert!(start.elapsed() < Duration::from_mins(1), "still in flight");
            std::thread::sleep(Duration::from_millis(1));
        }
        volume.statistics().expect("statistics").blocks_free
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let (one, two) = UnixStream::pair().expect("a pair of sockets");
        (one.into(), two.into())
    }

    fn preloaded(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("SOLERA_VOLUME", self.place.volume());
        command.env("SOLERA_AT", PREFIX).env("LD_PRELOAD", library());
        command
    }

    /// `end`: 0 returns, 9 kills itself.
    fn send(&self, to: OwnedFd, end: &str) -> Child {
        let mut command = self.preloaded();
        command.args(["send", &format!("{PREFIX}/sent"), end]).stdin(Stdio::null());
        command.stdout(to).spawn().expect("a sender")
    }

    /// A process without the library.
    fn pass(&self, from: OwnedFd, to: impl Into<Stdio>, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.env_remove("LD_PRELOAD").arg("pass").args(arguments);
        command.stdin(from).stdout(to).spawn().expect("a middleman")
    }

    fn receive(&self, from: OwnedFd) {
        let mut command = self.preloaded();
        let output = command.arg("receive").stdin(from).output().expect("a receiver");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "tail 8388608 0 13\n", "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// All is over: the space is back and the check finds nothing.
    fn over(&self) {
        let free = Self::free_blocks_when_received(&self.attached());
        assert_eq!(free, self.free, "the sent file's space");
        check_left_in_order(&self.place.volume());
    }
}

/// From one process to another by way of a third without the library; meanwhile another process has
/// the volume attached, or none.
#[test]
fn a_descriptor_passes_through_a_process_without_the_library() {
    for (name, watched) in [("passed-alone", false), ("passed-watched", true)] {
        let passing = Passing::new(name);
        let witness = watched.then(|| passing.attached());
        let (first, second) = Passing::pair();
        let (third, fourth) = Passing::pair();
        assert!(passing.send(first, "0").wait().expect("waited").success());
        assert!(passing.pass(second, third, &["-", "0"]).wait().expect("waited").success());
        assert!(passing.free_blocks() + 2048 <= passing.free, "it is in flight");
        passing.receive(fourth);
        drop(witness);
        passing.over();
    }
}

/// The sender is killed when the message is under way.
#[test]
fn a_descriptor_outlives_the_sender_that_is_killed() {
    let passing = Passing::new("sender-killed");
    let (first, second) = Passing::pair();
    assert!(!passing.send(first, "9").wait().expect("waited").success());
    passing.receive(second);
    passing.over();
}

/// The middleman is killed with the descriptor in its hands, or passes it to no one.
#[test]
fn what_nobody_receives_is_given_back() {
    for (name, end) in [("holder-killed", "9"), ("holder-ended", "0")] {
        let passing = Passing::new(name);
        let witness = passing.attached();
        let (first, second) = Passing::pair();
        assert!(passing.send(first, "0").wait().expect("waited").success());
        let used = witness.statistics().expect("statistics").blocks_free;
        assert!(used + 2048 <= passing.free, "the message keeps the file");
        let (third, fourth) = Passing::pair();
        passing.pass(second, third, &["-", end]).wait().expect("waited");
        drop(fourth);
        let free = Passing::free_blocks_when_received(&witness);
        assert_eq!(free, passing.free, "a process that stays gets the space back");
        drop(witness);
        passing.over();
    }
    // With no other process at all.
    let passing = Passing::new("never-received");
    let (first, second) = Passing::pair();
    assert!(!passing.send(first, "9").wait().expect("waited").success());
    drop(second);
    passing.over();
}

/// A process without the library that starts one with it: the descriptor is inherited.
#[test]
fn a_descriptor_is_inherited_by_way_of_a_process_without_the_library() {
    let passing = Passing::new("inherited");
    let (first, second) = Passing::pair();
    assert!(passing.send(first, "0").wait().expect("waited").success());
    let volume = format!("SOLERA_VOLUME={}", passing.place.volume().display());
    let preload = format!("LD_PRELOAD={}", library().display());
    let at = format!("SOLERA_AT={PREFIX}");
    let reader = ["-", "1", "/usr/bin/env", &volume, &at, &preload, "head", "-c", "4"];
    let child = passing.pass(second, Stdio::piped(), &reader);
    let output = child.wait_with_output().expect("waited");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tail");
    passing.over();
}

/// The number that was closed last is kept for the next open, and no program can tell.
#[test]
fn parked() {
    same("parked");
}

/// The program's own numbers, up to the limit; ours get out of the way.
#[test]
fn numbers() {
    same("numbers");
}

/// A forked child could not open the volume's file again beyond the limit, and its end let go of
/// its parent's hold of it: whatever was executed after that was refused.
#[test]
fn a_limit_below_what_is_open() {
    same("lowered");
}

/// Flags, commands, readiness.
#[test]
fn control() {
    same("control");
}

/// Names in `/proc` and `/dev`, files without names, `AT_EMPTY_PATH`.
#[test]
fn links() {
    same("links");
}

/// Fifos and device nodes on the volume.
#[test]
fn fifos() {
    same("fifos");
}

/// A name that was given to a file left the kernel's fifo or socket behind it in the anchor
/// directory.
#[test]
fn nodes_go_with_their_last_names() {
    let place = TestDir::new("nodes");
    let program = place.0.join("nodes");
    compile("nodes.c", &program, &["-O1"]);
    format(&place.volume());
    let expected = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    assert_eq!(found, expected);
    let left: Vec<String> = anchored(&place);
    assert!(left.iter().all(|name| !name.starts_with(['f', 's'])), "{left:?}");
    check_left_in_order(&place.volume());
}

/// The names in the anchor directory.
fn anchored(place: &TestDir) -> Vec<String> {
    let directory = place.0.join("v.pm.solera/open");
    let entries = std::fs::read_dir(directory).expect("the anchor directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
}

/// Threads that use a number while another one closes and reopens it for other files.
#[test]
fn reused() {
    same("reused");
}

/// The number that was closed last, for every call that takes one.
#[test]
fn closed() {
    same("closed");
}

/// Threads that open, copy and close numbers at once.
#[test]
fn numbers_at_once() {
    same("numbers_at_once");
}

/// Programs make system calls without the C library (Rust's `rustix`, `cap-std`, Bun). Behind every
/// number was once the directory that all processes of a volume share: a file that such a call made
/// below an open directory lay *there*, a lock of one file locked all, and a mode that was taken
/// away locked everybody out until somebody gave it back by hand. What slips past fails now, or
/// harms nobody; what is left to the next images of the program too.
#[test]
fn what_slips_past_the_library_harms_nobody() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestDir::new("slipped");
    let program = place.0.join("slipped");
    compile("slipped.c", &program, &["-O1"]);
    format(&place.volume());
    for _ in 0..2 {
        let said = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
        assert_eq!(said, "over\n");
    }
    assert_eq!(anchored(&place), Vec::<String>::new());
    let shared = std::fs::metadata(place.0.join("v.pm.solera/open")).expect("it is there");
    assert_eq!(shared.permissions().mode() & 0o7777, 0o777);
    check_left_in_order(&place.volume());
}
