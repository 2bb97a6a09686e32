//! `solera bench compaction`: a reader beside compaction and rewriting, and what they cost it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::io::Errno;
use serde_json::{Value, json};
use solera_bench::CompactionBenchArgs;
use vfs::{
    Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, NewNode, Node, OpenFlags, Removes,
    UserIn, UserOut,
};
use volume::{AttachOptions, BLOCK, FormatOptions, Volume};

use crate::harness::scratch::ScratchVolume;

/// Bytes of the volume, and of the file that is read.
const SIZE: u64 = 512 << 20;
const READ: u64 = 128 << 20;
/// Chunks that are filled and left to compaction in a round.
const CHUNKS: u64 = 48;
/// Blocks of a chunk that go, and blocks that stay and are worth moving.
const GOING: u64 = 400;
const STAYING: u64 = 100;
/// Files that are rewritten, and blocks of each.
const SCATTERED: u64 = 8;
const BLOCKS: u64 = 1024;

/// What goes on beside the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    Nothing,
    /// Files come and go; so many of a million freed blocks may be moved.
    Churn(u32),
    /// Files are rewritten: others than the reader's, or its own.
    Others,
    Own,
}

const ROWS: [(&str, Disturbance); 5] = [
    ("nothing", Disturbance::Nothing),
    ("files that come and go, no compaction", Disturbance::Churn(0)),
    ("files that come and go, with compaction", Disturbance::Churn(1_000_000 / 16)),
    ("other files are rewritten", Disturbance::Others),
    ("the files that it reads are rewritten", Disturbance::Own),
];

/// Times, nanoseconds.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn push(&mut self, since: Instant) {
        self.0.push(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }

    /// What so many of a thousand are below; `None` if there are none.
    fn part(&self, thousandths: usize) -> Option<f64> {
        let at = (self.0.len() * thousandths / 1000).min(self.0.len().checked_sub(1)?);
        Some(f64::from(self.0[at]) / 1000.0)
    }

    fn to_json(&self) -> Value {
        json!({
            "count": self.0.len(),
            "p50_us": self.part(500),
            "p99_us": self.part(990),
            "p999_us": self.part(999),
            "max_us": self.part(1000),
        })
    }

    fn cells(&self) -> Vec<String> {
        let show = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |t| format!("{t:.1}"));
        [500, 990, 999, 1000].map(|part| show(self.part(part))).to_vec()
    }
}

/// What a row found.
struct RowResult {
    reads: Latencies,
    /// Deletions: the calls that compact.
    deletions: Latencies,
    moved: u64,
    took: Duration,
}

/// Measures all rows and prints the table.
pub fn run(args: &CompactionBenchArgs) -> Outcome {
    let made = ScratchVolume(args.place.join(format!("solera-bench-{}.pm", std::process::id())));
    volume::format(&made.0, &FormatOptions { size: Some(SIZE), ..FormatOptions::default() })?;
    let mut rows = Vec::new();
    for (name, beside) in ROWS {
        let failed = |errno| Failure::errno(format!("measure beside \"{name}\""), errno);
        let found = measure(&made.0, beside, Duration::from_secs(args.seconds))?;
        rows.push((name, found.map_err(failed)?));
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(|(name, found)| found.to_json(name)).collect();
        output::emit_json(&json!({ "seconds": args.seconds, "rows": rows }))?;
    } else {
        let head =
            ["beside", "reads: p50", "p99", "p99.9", "max", "deletions: p50", "p99", "p99.9"];
        let head = [&head[..], &["max us", "moved MiB/s"]].concat();
        let rows: Vec<Vec<String>> = rows.iter().map(|(name, found)| found.cells(name)).collect();
        output::emit(output::table(&head, &rows).as_bytes())?;
    }
    Ok(0)
}

impl RowResult {
    fn moved_each_second(&self) -> f64 {
        self.moved as f64 / self.took.as_secs_f64()
    }

    fn to_json(&self, name: &str) -> Value {
        json!({
            "beside": name,
            "reads": self.reads.to_json(),
            "deletions": self.deletions.to_json(),
            "moved_bytes_per_second": self.moved_each_second(),
        })
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let mut cells = vec![name.to_owned()];
        cells.extend(self.reads.cells());
        cells.extend(self.deletions.cells());
        cells.push(format!("{:.0}", self.moved_each_second() / f64::from(1 << 20)));
        cells
    }
}

/// One row, on an attachment and in a directory of its own.
fn measure(
    path: &Path,
    beside: Disturbance,
    time: Duration,
) -> Result<Result<RowResult, Errno>, Failure> {
    let volume = volume::attach(path, &AttachOptions::default())?;
    let measured = Bench::new(&volume).and_then(|mut bench| bench.measure(beside, time));
    let left = volume.leave();
    Ok(measured.and_then(|found| left.map(|()| found)))
}

struct Bench<'v> {
    volume: &'v Volume,
    random: Pcg64,
    /// The file that is read, and those that are rewritten.
    large: Node,
    scattered: Vec<Node>,
}

impl<'v> Bench<'v> {
    fn new(volume: &'v Volume) -> Result<Self, Errno> {
        let (root, random) = (volume.root(), Pcg64::seed_from_u64(1));
        let large = found_or_made(volume, root, "large")?;
        let names = (0..SCATTERED).map(|number| format!("scattered-{number}"));
        let scattered: Result<_, _> =
            names.map(|name| found_or_made(volume, root, &name)).collect();
        let bench = Self { volume, random, large, scattered: scattered? };
        if volume.attributes(large)?.size == 0 {
            bench.with(large, |desc| {
                let piece = vec![0x5A; 1 << 20];
                (0..READ >> 20).try_for_each(|_| {
                    volume.write(desc, &[UserIn::new(&piece)], IoOffset::POSITION).map(drop)
                })
            })?;
        }
        Ok(bench)
    }

    /// Opens a node for the time of `work`.
    fn with(&self, node: Node, work: impl FnOnce(Desc) -> Result<(), Errno>) -> Result<(), Errno> {
        let desc = self.volume.open(node.into(), OpenFlags(libc::O_RDWR), None)?;
        work(desc).and(self.volume.close(desc))
    }

    fn measure(&mut self, beside: Disturbance, time: Duration) -> Result<RowResult, Errno> {
        let (active, over) =
            (AtomicBool::new(beside == Disturbance::Nothing), AtomicBool::new(false));
        let moved = self.volume.moved_bytes();
        let begun = Instant::now();
        let (volume, large, scattered) = (self.volume, self.large, self.scattered.clone());
        let (reads, work) = std::thread::scope(|scope| {
            let (active, over) = (&active, &over);
            let reader = scope.spawn(move || {
                let nodes = if beside == Disturbance::Own { scattered } else { vec![large] };
                read(volume, &nodes, active, over)
            });
            let work = match beside {
                Disturbance::Nothing => {
                    std::thread::sleep(time);
                    Ok(Latencies::default())
                }
                Disturbance::Churn(most) => self.churn(most, time, active),
                Disturbance::Others | Disturbance::Own => self.rewrite(time, active),
            };
            over.store(true, Ordering::Relaxed);
            (reader.join().expect("the reader does not panic"), work)
        });
        let (mut reads, mut deletions) = (reads?, work?);
        reads.0.sort_unstable();
        deletions.0.sort_unstable();
        let moved = self.volume.moved_bytes() - moved;
        Ok(RowResult { reads, deletions, moved, took: begun.elapsed() })
    }

    /// Rounds of it: chunks are filled by two files each, then one of the two goes, so that the
    /// other is left in an almost empty chunk. Gives the times of the deletions.
    fn churn(&self, most: u32, time: Duration, active: &AtomicBool) -> Result<Latencies, Errno> {
        let (volume, root, begun) = (self.volume, self.volume.root(), Instant::now());
        let bytes = vec![0x33; (STAYING * BLOCK) as usize];
        let mut times = Latencies::default();
        volume.set_compaction(most);
        active.store(true, Ordering::Relaxed);
        while begun.elapsed() < time {
            for number in 0..CHUNKS {
                let going = volume.create(root, name("going", number).as_bytes(), &new())?;
                self.with(going, |desc| volume.allocate(desc, 0, 0, GOING * BLOCK))?;
                let staying = volume.create(root, name("staying", number).as_bytes(), &new())?;
                self.with(staying, |desc| {
                    volume.write(desc, &[UserIn::new(&bytes)], IoOffset::POSITION).map(drop)
                })?;
            }
            for number in 0..CHUNKS {
                let name = name("going", number);
                let since = Instant::now();
                volume.remove(&EntryName::new(root, name.as_bytes()), Removes::Name)?;
                times.push(since);
            }
            (0..CHUNKS).try_for_each(|n| {
                volume.remove(&EntryName::new(root, name("staying", n).as_bytes()), Removes::Name)
            })?;
        }
        Ok(times)
    }

    /// Rounds of it: files are written in the order of a shuffle, then, while the reader counts,
    /// rewritten.
    fn rewrite(&mut self, time: Duration, active: &AtomicBool) -> Result<Latencies, Errno> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            for node in self.scattered.clone() {
                self.scatter(node)?;
            }
            active.store(true, Ordering::Relaxed);
            for &node in &self.scattered {
                self.volume.rewrite(node, &mut |_, _| true)?;
            }
            active.store(false, Ordering::Relaxed);
        }
        Ok(Latencies::default())
    }

    fn scatter(&mut self, node: Node) -> Result<(), Errno> {
        self.volume.truncate(node, 0)?;
        let mut order: Vec<u64> = (0..BLOCKS).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.random.next_u64() as usize % (at + 1));
        }
        self.with(node, |desc| {
            let write = |at| {
                self.volume.write(desc, &[UserIn::new(&[7; 4096])], IoOffset::offset(at * BLOCK))
            };
            order.into_iter().try_for_each(|at| write(at).map(drop))
        })
    }
}

/// Reads at random until it is over; gives the times of the reads of whole blocks while `active`.
fn read(
    volume: &Volume,
    nodes: &[Node],
    active: &AtomicBool,
    over: &AtomicBool,
) -> Result<Latencies, Errno> {
    let opened =
        nodes.iter().map(|&node| volume.open(node.into(), OpenFlags(libc::O_RDONLY), None));
    let descs = opened.collect::<Result<Vec<Desc>, _>>()?;
    let (mut times, mut random) = (Latencies::default(), Pcg64::seed_from_u64(2));
    let mut bytes = [0; BLOCK as usize];
    let blocks = if nodes.len() == 1 { READ / BLOCK } else { BLOCKS };
    while !over.load(Ordering::Relaxed) {
        let drawn = random.next_u64();
        let (desc, at) = (descs[drawn as usize % descs.len()], (drawn >> 32) % blocks);
        let since = Instant::now();
        let done =
            volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(at * BLOCK))?;
        if done == bytes.len() && active.load(Ordering::Relaxed) {
            times.push(since);
        }
    }
    descs.into_iter().try_for_each(|desc| volume.close(desc))?;
    Ok(times)
}

fn name(what: &str, number: u64) -> String {
    format!("{what}-{number}")
}

fn found_or_made(volume: &Volume, root: Node, name: &str) -> Result<Node, Errno> {
    match volume.lookup(root, name.as_bytes()) {
        Err(Errno::NOENT) => volume.create(root, name.as_bytes(), &new()),
        found => found,
    }
}

fn new() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" }
}
