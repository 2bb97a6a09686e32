//! Children that share their parent's memory until they execute something: `posix_spawn`, `system`,
//! `popen` and `wordexp` of the C library itself, past the functions that this library exports.
//! They open, move numbers and change their directory on the volume, and are killed there, at each
//! point from their birth to their exec. The parent must be unharmed, and no lock be left.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};
use crate::tracer::{Event, Kind, OneProcessor, Tracee};
use crate::{one_of, some_of, text, watch};

/// Points of each way that are tried by default.
const POINTS: usize = 12;
/// The ways, as `children.c` names them: the first, and one of the others by rotation.
const WAYS: [(char, &str); 5] = [
    ('p', "posix_spawn"),
    ('q', "posix_spawn outside"),
    ('s', "system"),
    ('o', "popen"),
    ('w', "wordexp"),
];

/// An instruction to die at: what it does, where (see [`Tracee::place`]), and whether the child
/// that shares its parent's memory has made another one by then, which goes on in its place.
type Point = (Kind, (u64, u64, u64), bool);

/// The process whose children are killed.
struct Parent {
    tracee: Tracee,
    input: ChildStdin,
}

impl Parent {
    /// Before it has made any; with a thread that works `beside`.
    fn start(program: &Path, volume: &Path, (open, beside): (&str, bool)) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args([PREFIX, open]).env("SOLERA_VOLUME", volume).env("SOLERA_AT", PREFIX);
        command.env("LD_PRELOAD", library()).stdin(Stdio::piped());
        let (tracee, mut child) = Tracee::start(&mut command, volume).map_err(text)?;
        let input = child.stdin.take().ok_or("no input")?;
        let mut parent = Self { tracee, input };
        parent.is_right()?;
        if beside {
            parent.input.write_all(b"t").map_err(text)?;
            parent.is_right()?;
        }
        Ok(parent)
    }

    /// Lets it run to its mark, with all that it starts. It says that it is unharmed.
    fn is_right(&mut self) -> Result<(), String> {
        loop {
            match self.tracee.run().map_err(text)? {
                Event::Mark => break,
                Event::Child(pid) => {
                    let child = self.tracee.child(pid).map_err(text)?;
                    child.release(0).map_err(text)?;
                }
                Event::Ended => return Err("the parent has ended".into()),
                _ => {}
            }
        }
        let at = self.tracee.registers().map_err(text)?.rax;
        let memory = File::open(format!("/proc/{}/mem", self.tracee.pid)).map_err(text)?;
        let mut bytes = [0; 400];
        let length = memory.read_at(&mut bytes, at).map_err(text)?;
        let end = bytes[..length].iter().position(|&byte| byte == 0).unwrap_or(length);
        let told = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if told == "right" { Ok(()) } else { Err(format!("the parent says: {told}")) }
    }

    /// It makes a child. It waits then, as it would.
    fn make(&mut self, way: char) -> Result<Tracee, String> {
        self.input.write_all(&[way as u8]).map_err(text)?;
        loop {
            match self.tracee.run().map_err(text)? {
                Event::Child(pid) => return self.tracee.child(pid).map_err(text),
                Event::Ended | Event::Mark => return Err("the parent makes no child".into()),
                _ => {}
            }
        }
    }

    /// The points of a child, which goes its way to its exec.
    fn points(&mut self, way: char) -> Result<Vec<Point>, String> {
        let mut child = self.make(way)?;
        let together = OneProcessor::new(&child).map_err(text)?;
        let (mut points, mut has_parted) = (Vec::new(), false);
        loop {
            match child.step_to_point(!points.is_empty()).map_err(text)? {
                Event::Point(kind) => points.push((kind, child.place(), has_parted)),
                Event::Executed => break,
                Event::Child(pid) if !has_parted => {
                    has_parted = true;
                    let next = self.tracee.child(pid).map_err(text)?;
                    std::mem::replace(&mut child, next).release(0).map_err(text)?;
                }
                event => return Err(format!("the child: {event:?}")),
            }
        }
        drop(together);
        child.release(0).map_err(text)?;
        self.is_right()?;
        Ok(points)
    }

    /// A child goes its way.
    fn see_off(&mut self, way: char) -> Result<(), String> {
        self.make(way)?.release(0).map_err(text)?;
        self.is_right()
    }

    /// A child is killed at a point; `false`: it did not come there.
    fn lose(&mut self, way: char, point: &Point) -> Result<bool, String> {
        let &(_, place, has_parted) = point;
        let mut memory = OpenOptions::new();
        let memory = memory
            .read(true)
            .write(true)
            .open(format!("/proc/{}/mem", self.tracee.pid))
            .map_err(text)?;
        let mut before = [0];
        memory.read_exact_at(&mut before, place.0).map_err(text)?;
        let mut child = self.make(way)?;
        if has_parted {
            let pid = loop {
                match child.run().map_err(text)? {
                    Event::Child(pid) => break pid,
                    Event::Ended => return Err("the child has ended before it parted".into()),
                    _ => {}
                }
            };
            let next = self.tracee.child(pid).map_err(text)?;
            std::mem::replace(&mut child, next).release(0).map_err(text)?;
        }
        let mut next = None;
        let mut parts = |started| {
            next = Some(started);
            Ok(())
        };
        let event = child.run_to(place, &mut parts).map_err(text)?;
        let died = event.is_none();
        if !died && !has_parted {
            // The breakpoint that it shares with its parent.
            memory.write_all_at(&before, place.0).map_err(text)?;
        }
        if let Some(next) = next {
            next.release(0).map_err(text)?;
        }
        match event {
            None => child.kill().map_err(text)?,
            // It took another way, past that instruction.
            Some(Event::Executed) => child.release(0).map(drop).map_err(text)?,
            Some(Event::Ended) => {}
            Some(event) => return Err(format!("the child: {event:?}")),
        }
        self.is_right()?;
        Ok(died)
    }

    fn end(mut self) -> Result<(), String> {
        self.input.write_all(b"e").map_err(text)?;
        let event = self.tracee.run().map_err(text)?;
        if event == Event::Ended { Ok(()) } else { Err(format!("{event:?}")) }
    }
}

/// What is in use when nobody is attached.
fn in_use(volume: &Path) -> (u64, u64) {
    let info = volume::info(volume).expect("info");
    (info.free_bytes, info.inodes_used)
}

#[test]
fn children_that_share_memory_die_anywhere() {
    die_anywhere("children", ("kept", false));
}

/// The same of children that get a copy of the memory: what they execute inherits something.
#[test]
fn children_that_hand_something_on_die_anywhere() {
    die_anywhere("inherited", ("inherited", false));
}

/// The same, of a process with a thread that works on the volume meanwhile.
#[test]
fn children_of_a_process_with_threads_die_anywhere() {
    for &open in one_of("threaded", &["kept", "inherited"]) {
        die_anywhere("threaded", (open, true));
    }
}

fn die_anywhere(test: &str, how: (&str, bool)) {
    let place = TestDir::new(test);
    let program = place.0.join("children");
    compile("children.c", &program, &["-O1", "-g"]);
    format(&place.volume());
    let mut wrong = Vec::new();
    let mut deaths = 0;
    let start = || {
        watch("children", &["start"]);
        Parent::start(&program, &place.volume(), how).expect("a parent")
    };
    start().end().expect("it ends in order");
    let before = in_use(&place.volume());
    for &(way, name) in WAYS[..1].iter().chain(one_of(test, &WAYS[1..])) {
        let mut parent = start();
        // The first one goes a way of its own.
        let points = match parent.see_off(way).and_then(|()| parent.points(way)) {
            Ok(points) => points,
            Err(error) => {
                wrong.push(format!("{name}, alone: {error}"));
                continue;
            }
        };
        let calls = points.iter().filter(|(kind, ..)| *kind == Kind::Call).count();
        eprintln!("{name}: {} points, {calls} of them system calls", points.len());
        for at in some_of(&format!("{test}/{name}"), points.len(), POINTS) {
            watch("children", &[name, &at.to_string()]);
            match parent.lose(way, &points[at]) {
                Ok(died) => deaths += u32::from(died),
                Err(error) => {
                    wrong.push(format!("{name}, at {at} ({:?}): {error}", points[at]));
                    parent = start();
                }
            }
        }
        parent.end().expect("it ends in order");
    }
    eprintln!("{deaths} children died");
    assert!(wrong.is_empty(), "{wrong:#?}");
    check_left_in_order(&place.volume());
    assert_eq!(in_use(&place.volume()), before, "something leaked");
}
