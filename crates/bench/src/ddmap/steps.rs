//! What is measured in a round, step by step.

use std::fs::{self, File};
use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use console::failure::Failure;
use serde_json::{Value, json};

use super::connection::{Connection, PAGE, Responder};
use super::mapping::Mapping;
use super::rows::{Rows, Target, quantile};
use super::share::{Kind, Share};
use super::testbed::{Consumer, FILE, Program, Testbed, VolumeKind};
use super::{concurrency, fault_thread, traps};
use crate::worker::row::Random;

/// A step of a round.
pub type Step = fn(&mut Bench<'_>, &mut Rows) -> Result<(), Failure>;

/// Those of the volume that is larger than its node.
pub const LARGE: [Step; 9] = [
    polling,
    blocking,
    in_order_without,
    in_order_ahead,
    local_traps,
    traps::measure,
    mapped,
    values,
    concurrency::measure,
];
/// Those of a volume that its node has room for.
pub const LOCAL: [Step; 2] = [calls, attach];

/// What else is stored, so that the file leaves.
const FILLER: &str = "filler";
/// Touches that are not counted: the first ones of a process make connections.
const WARM: usize = 32;
/// How long the other side is left alone until it blocks.
const REST: Duration = Duration::from_micros(300);
/// Loads and stores of a round.
const ACCESSES: usize = 1 << 20;
/// File calls of a round; appends are fewer.
const CALLS: usize = 1 << 14;
const APPENDS: usize = 1 << 10;
/// Values that a round reads, and as many before.
const READ_VALUES: usize = 1 << 16;
/// Starts of a round.
const STARTS: u32 = 5;

/// The rows of touches.
struct TouchRows {
    polls: bool,
    rows: [&'static str; 2],
    round_trip: (&'static str, Target),
    thread: (&'static str, [Target; 2]),
    /// Of touches of a network file system: of the median.
    share: Target,
}

const POLLING: TouchRows = TouchRows {
    polls: true,
    rows: ["touch, both sides poll: p50", "touch, both sides poll: p99"],
    round_trip: ("TCP round trip, both poll", Target::More(10.0)),
    thread: ("thread, both poll", [Target::AtMost(0.8), Target::AtMost(0.6)]),
    share: Target::AtMost(0.25),
};
const BLOCKING: TouchRows = TouchRows {
    polls: false,
    rows: ["touch, the holder blocks: p50", "touch, the holder blocks: p99"],
    round_trip: ("TCP round trip, both block", Target::AtMost(1.4)),
    thread: ("thread, both block", [Target::AtMost(1.0), Target::AtMost(1.0)]),
    share: Target::AtMost(0.7),
};
const SEQUENTIAL: &str = "read in order, pages brought ahead";
const STORED: &str = "store in order, twice the node";

/// What the steps share.
pub struct Bench<'r> {
    /// Network file systems that are measured. They end first: they lie in the testbed's directory.
    shares: Vec<Share>,
    testbed: Testbed,
    /// Bytes of the host's node, and of the file.
    size: u64,
    file: u64,
    remote: &'r Responder,
    /// Asker and other side poll; neither does; the asker does.
    polling: Connection,
    blocking: Connection,
    asker_polls: Connection,
    /// Whether the thread is measured.
    pub by_thread: bool,
    random: Random,
    /// How much of the file was away, of each time that it was sent.
    away: Vec<f64>,
    /// GB/s of reading in order without pages brought ahead, of this round.
    without: f64,
}

fn lost(error: &io::Error) -> Failure {
    Failure::io("talk over a plain connection", error)
}

fn file() -> Value {
    Testbed::at(FILE).display().to_string().into()
}

impl<'r> Bench<'r> {
    /// Makes the files.
    pub fn new(mut testbed: Testbed, remote: &'r Responder, size: u64) -> Result<Self, Failure> {
        // It has room on the host beside what stays there, and what is kept free.
        let bytes = size / 2;
        for on in [VolumeKind::Large(false), VolumeKind::Fitting, VolumeKind::Plain] {
            let fill = json!({ "do": "fill", "file": file(), "bytes": bytes });
            testbed.program(on)?.ask(&fill)?;
        }
        testbed.locate()?;
        let connect = |asker, other| remote.connect(asker, other).map_err(|error| lost(&error));
        Ok(Self {
            shares: Vec::new(),
            testbed,
            size,
            file: bytes,
            remote,
            polling: connect(true, true)?,
            blocking: connect(false, false)?,
            asker_polls: connect(true, false)?,
            by_thread: true,
            random: Random::new(),
            away: Vec::new(),
            without: f64::NAN,
        })
    }

    /// Mounts a network file system, to touch a file of the same size there.
    pub fn mount(&mut self, kind: Kind) -> Result<(), Failure> {
        let share = Share::mount(kind, &self.testbed.beside(kind.word()))?;
        share.fill(self.file)?;
        self.shares.push(share);
        Ok(())
    }

    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Where more nodes can be had.
    pub fn testbed_mut(&mut self) -> &mut Testbed {
        &mut self.testbed
    }

    /// Bytes of the host's node.
    pub fn node_bytes(&self) -> u64 {
        self.size
    }

    /// Bytes of the file that is touched.
    pub fn file_bytes(&self) -> u64 {
        self.file
    }

    /// How much of the file was away when it was touched.
    pub fn away_percent(&self) -> f64 {
        self.away.iter().sum::<f64>() / self.away.len().max(1) as f64
    }

    /// Sends the file away: stores twice the node's bytes, and removes them again, so that touches
    /// find room. Gives the pages of it that are away.
    fn send_away(&mut self, rows: &mut Rows) -> Result<Vec<usize>, Failure> {
        let testbed = &self.testbed;
        let mut program = testbed.program(VolumeKind::Large(false))?;
        let filler = Testbed::at(FILLER);
        let (evicted, used) = (testbed.evicted()?, testbed.used_us(Consumer::Evictor)?);
        let bytes = 2 * self.size;
        let store =
            json!({ "do": "store", "file": filler, "bytes": bytes, "room": testbed.room() });
        let stored = program.ask(&store)?;
        let ns = stored["ns"].as_f64().unwrap_or(f64::NAN);
        let pages = (testbed.evicted()? - evicted).max(1);
        let us = (testbed.used_us(Consumer::Evictor)? - used) / pages as f64;
        rows.add(STORED, "GB/s", bytes as f64 / ns);
        rows.beside(STORED, "memory: a tmpfs file, fresh", Target::Shown, self.tmpfs_store(bytes)?);
        let waited = stored["waited"].as_f64().unwrap_or(f64::NAN);
        rows.add(
            "stores that waited for room, of 1,000",
            "",
            waited * 1000.0 * 4096.0 / bytes as f64,
        );
        rows.add("the evictor's processor, a page", "us", us);
        let send = self.blocking.send_cpu(32).map_err(|error| lost(&error))?;
        let row = "the evictor's processor, a page";
        rows.beside(row, "a send of 64 pages, its answer", Target::More(1.5), send);
        program.ask(&json!({ "do": "remove", "file": filler }))?;
        drop(program);
        self.testbed.wait_for_room(self.size / PAGE as u64 * 3 / 4);
        let away = self.testbed.away()?;
        self.away.push(away.len() as f64 * 100.0 * PAGE as f64 / self.file as f64);
        if away.len() < WARM * 2 {
            let found = format!("{} pages of the file left the host", away.len());
            return Err(Failure::new("send the file away", found, "give a larger --size"));
        }
        Ok(away)
    }

    /// GB/s of the same stores to a new file of the tmpfs.
    fn tmpfs_store(&self, bytes: u64) -> Result<f64, Failure> {
        let failed = |error: io::Error| Failure::io("store to a file beside", &error);
        let path = self.testbed.beside("stored");
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        let file = options.map_err(failed)?;
        fs::remove_file(&path).map_err(failed)?;
        file.set_len(bytes).map_err(failed)?;
        let map = Mapping::of(&file, bytes as usize).map_err(failed)?;
        let begun = Instant::now();
        (0..map.pages()).for_each(|page| map.fill(page));
        Ok(bytes as f64 / begun.elapsed().as_nanos() as f64)
    }

    /// Touches of pages that are away, at random, and the same by peers.
    fn touches(&mut self, kind: &TouchRows, rows: &mut Rows) -> Result<(), Failure> {
        let mut away = self.send_away(rows)?;
        // A page brought ahead would be a hit: none is, since neighbours do not follow.
        for at in (1..away.len()).rev() {
            away.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let (most, pause) = if kind.polls { (2000, Duration::ZERO) } else { (500, REST) };
        away.truncate((away.len() * 3 / 4).min(most + WARM));
        let count = away.len() - WARM;
        let touch = json!({ "do": "touch", "file": file(), "pages": away,
                            "pause_us": pause.as_micros() as u64 });
        let told = self.testbed.program(VolumeKind::Large(false))?.ask(&touch)?;
        let own = middle_and_tail(&mut in_us(&told)[WARM..]);
        for (row, value) in kind.rows.into_iter().zip(own) {
            rows.add(row, "us", value);
        }
        let connection = if kind.polls { &mut self.polling } else { &mut self.blocking };
        let mut times = connection.round_trips(count, pause).map_err(|error| lost(&error))?;
        let (name, target) = kind.round_trip;
        for (row, value) in kind.rows.into_iter().zip(middle_and_tail(&mut times)) {
            rows.beside(row, name, target, value);
        }
        if !kind.polls {
            let times = self.asker_polls.round_trips(count, pause);
            let mut times = times.map_err(|error| lost(&error))?;
            for (row, value) in kind.rows.into_iter().zip(middle_and_tail(&mut times)) {
                rows.beside(row, "TCP round trip, the asker polls", Target::Shown, value);
            }
        }
        if self.by_thread {
            self.thread(kind, (count, pause), rows)?;
        }
        for share in &self.shares {
            let name = share.kind().name();
            let times = share.touches(&away[WARM..], pause);
            let mut times =
                times.map_err(|error| Failure::io(format!("touch a file of {name}"), &error))?;
            let targets = [kind.share, Target::Shown];
            let found = kind.rows.into_iter().zip(targets).zip(middle_and_tail(&mut times));
            for ((row, target), value) in found {
                rows.beside(row, name, target, value);
            }
        }
        Ok(())
    }

    fn thread(
        &mut self,
        kind: &TouchRows,
        (count, pause): (usize, Duration),
        rows: &mut Rows,
    ) -> Result<(), Failure> {
        let connection = if kind.polls { &mut self.polling } else { &mut self.blocking };
        match fault_thread::touches(connection, kind.polls, count, pause) {
            Ok(mut times) => {
                let (name, targets) = kind.thread;
                let found = kind.rows.into_iter().zip(targets).zip(middle_and_tail(&mut times));
                for ((row, target), value) in found {
                    rows.beside(row, name, target, value);
                }
            }
            Err(error) => self.without_thread(&error, rows)?,
        }
        Ok(())
    }

    /// A thread could not serve: it is not measured where that is forbidden.
    pub fn without_thread(&mut self, error: &io::Error, rows: &mut Rows) -> Result<(), Failure> {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(Failure::io("serve faults by a thread", error));
        }
        rows.skip(format!("thread: userfaultfd is forbidden here ({error})"));
        self.by_thread = false;
        Ok(())
    }

    /// GB/s of reading the file in order, counted by what was away.
    fn in_order(&mut self, ahead: bool, rows: &mut Rows) -> Result<f64, Failure> {
        let away = self.send_away(rows)?.len() * PAGE;
        let mut program = self.testbed.program(VolumeKind::Large(ahead))?;
        let ns = program.ns(&json!({ "do": "in order", "file": file() }))?;
        Ok(away as f64 / ns)
    }
}

/// The times that a program has told, in microseconds.
pub fn in_us(told: &Value) -> Vec<f64> {
    let times = told["ns"].as_array().map_or(&[][..], Vec::as_slice);
    times.iter().map(|time| time.as_f64().unwrap_or(f64::NAN) / 1000.0).collect()
}

/// The median, and what one of a hundred exceeds.
pub fn middle_and_tail(times: &mut [f64]) -> [f64; 2] {
    [quantile(times, 500), quantile(times, 990)]
}

fn polling(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    bench.touches(&POLLING, rows)
}

fn blocking(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    bench.touches(&BLOCKING, rows)
}

fn in_order_without(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    bench.without = bench.in_order(false, rows)?;
    Ok(())
}

/// Leaves the file on the host.
fn in_order_ahead(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let ahead = bench.in_order(true, rows)?;
    rows.add(SEQUENTIAL, "GB/s", ahead);
    let plain = bench.remote.connect(false, false);
    let plain = plain.and_then(|mut plain| plain.stream(bench.file as usize));
    rows.beside(SEQUENTIAL, "TCP stream", Target::AtLeast(0.7), plain.map_err(|e| lost(&e))?);
    rows.beside(SEQUENTIAL, "the same, page by page", Target::AtLeast(4.0), bench.without);
    rows.beside(SEQUENTIAL, "memory: a copy", Target::Shown, copy(bench.file as usize));
    Ok(())
}

/// GB/s of a copy in memory that was touched.
fn copy(bytes: usize) -> f64 {
    let (from, mut to) = (vec![0x5A_u8; bytes], vec![1; bytes]);
    let begun = Instant::now();
    to.copy_from_slice(&from);
    std::hint::black_box(&to);
    bytes as f64 / begun.elapsed().as_nanos() as f64
}

/// Values of a file of twice the node's bytes, by calls: with a cache of lines of a fifth of that,
/// and without one.
fn values(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    const ROW: &str = "values of 1 KiB at random, zipf 0.99";
    let (file, bytes) = (Testbed::at("values"), 2 * bench.size);
    let fill = json!({ "do": "fill", "file": file, "bytes": bytes });
    bench.testbed.program(VolumeKind::Large(true))?.ask(&fill)?;
    let read = |lines| {
        let mut program = bench.testbed.program(VolumeKind::Lines(lines))?;
        let ns = program.ns(&json!({ "do": "values", "file": file, "count": READ_VALUES }))?;
        Ok::<_, Failure>(1e6 / ns)
    };
    // In this order: what the first one leaves on the host serves the second one, too.
    let with = read(bytes / 5)?;
    let without = read(0)?;
    rows.add(ROW, "1,000/s", with);
    rows.beside(ROW, "without the cache of lines", Target::AtLeast(2.0), without);
    bench
        .testbed
        .program(VolumeKind::Large(true))?
        .ask(&json!({ "do": "remove", "file": file }))?;
    bench.testbed.wait_for_room(bench.size / PAGE as u64 / 2);
    Ok(())
}

/// A process that has nothing mapped touches pages that are here.
fn local_traps(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let mut program = bench.testbed.program(VolumeKind::Large(false))?;
    let traps = json!({ "do": "traps", "file": file() });
    rows.add("page here, not mapped: new process", "ns", program.ns(&traps)?);
    rows.add("page here, not mapped: second mapping", "ns", program.ns(&traps)?);
    Ok(())
}

/// Memory that is here and mapped, and a file of the tmpfs beside, in one program.
fn mapped(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let path = bench.testbed.beside("mapped");
    let made = File::create(&path).and_then(|file| file.set_len(bench.file / 2));
    made.map_err(|error| Failure::io("make a file beside", &error))?;
    // A small part of the node, so that nothing leaves meanwhile.
    let mut program = bench.testbed.program(VolumeKind::Large(true))?;
    let fill = json!({ "do": "fill", "file": Testbed::at("mapped"), "bytes": bench.file / 2 });
    program.ask(&fill)?;
    let at_random = |file: &std::path::Path, program: &mut Program| {
        program.ns(&json!({ "do": "mapped", "file": file, "count": ACCESSES }))
    };
    let row = "load and store at random, mapped";
    rows.add(row, "ns", at_random(&Testbed::at("mapped"), &mut program)?);
    rows.beside(row, "tmpfs", Target::AtMost(1.0), at_random(&path, &mut program)?);
    program.ask(&json!({ "do": "remove", "file": Testbed::at("mapped") }))?;
    fs::remove_file(&path).map_err(|error| Failure::io("remove a file beside", &error))
}

/// File calls and mapped memory where all is here, beside a volume on a plain file.
fn calls(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let mut programs = [VolumeKind::Fitting, VolumeKind::Plain].map(|on| bench.testbed.program(on));
    for (row, what, count) in [
        ("all here: read 4 KiB", "read", CALLS),
        ("all here: overwrite 4 KiB", "overwrite", CALLS),
        ("all here: append 4 KiB, fsync, new pages", "append", APPENDS),
        ("all here: load and store at random", "mapped", ACCESSES),
    ] {
        let name = if what == "append" { "appended" } else { FILE };
        let work = json!({ "do": what, "file": Testbed::at(name), "count": count });
        for (number, program) in programs.iter_mut().enumerate() {
            let program =
                program.as_mut().map_err(|failure| Failure::told(&failure.to_string()))?;
            // The first time it maps what it touches, and connects.
            program.ns(&work)?;
            if number == 1 && what == "append" {
                // What was appended is free memory now, as of a file that has never had more.
                bench.testbed.trim_plain()?;
            }
            let ns = program.ns(&work)?;
            if number == 0 {
                rows.add(row, "ns", ns);
            } else {
                rows.beside(row, "volume on a plain file", Target::AtMost(1.0 / 0.95), ns);
            }
        }
    }
    Ok(())
}

/// What a program takes that does nothing.
fn attach(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..STARTS {
        for (on, times) in [VolumeKind::Fitting, VolumeKind::Plain].into_iter().zip(&mut times) {
            let mut command = bench.testbed.run(on)?;
            command.arg("true").stdin(Stdio::null()).stdout(Stdio::null());
            let begun = Instant::now();
            let ended = command.status().map_err(|error| Failure::io("run true", &error))?;
            times.push(begun.elapsed().as_nanos() as f64 / 1e6);
            if !ended.success() {
                return Err(Failure::new("run true", ended, "see what it said above"));
            }
        }
    }
    let row = "start of a program: true";
    let [own, plain] = times.each_mut().map(|times| quantile(times, 500));
    rows.add(row, "ms", own);
    rows.beside(row, "volume on a plain file", Target::More(1.0), plain);
    Ok(())
}
