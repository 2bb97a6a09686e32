//! `solera metrics`: what a monitor asks about volumes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output;
use exposition::{ListenError, ScrapeServer, Text};
use rustix::event::{self, Timespec};
use rustix::io::Errno;
use volume::{Activity, Counts, Info, RuntimeUse, VolumeError};

use crate::commands::node::end;

/// Tell a monitor about volumes: space, processes, open files, locks, calls.
///
/// The text is Prometheus's (exposition format 0.0.4). Looking at a volume attaches nothing, and
/// nobody waits for it. A volume that cannot be read has `solera_volume_up` 0. What the nodes of a
/// domain tell is `solera node --metrics`.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0; 1 if a volume could not be read, where the text is printed or written once. With
--listen and --every it runs until a signal ends it.

Examples:
  solera metrics /dev/shm/v.pm                         printed, once
  solera metrics --listen 127.0.0.1:9471 /mnt/dax/*.pm
  solera metrics --textfile /var/lib/prometheus/node-exporter/solera.prom --every 15 v.pm")]
pub struct MetricsArgs {
    /// Answer `GET /metrics` at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "textfile")]
    pub listen: Option<SocketAddr>,
    /// Write a file, in one step: a program that reads it never sees a part.
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
    /// Write the file again after so many seconds, from 1 on [default: once].
    #[arg(long, value_name = "SECONDS", requires = "textfile",
          value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub every: Option<u64>,
    /// The volumes' files or devices, or `DOMAIN/VOLUME`.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<PathBuf>,
}

/// A signal is noticed that late at most.
const TICK: Duration = Duration::from_millis(200);

/// Tells once, or whenever it is asked, until a signal ends it.
pub fn run(args: &MetricsArgs) -> Outcome {
    let volumes = &args.volumes;
    match (args.listen, &args.textfile) {
        (Some(address), _) => serve(volumes, address),
        (None, Some(file)) => keep(volumes, file, args.every.map(Duration::from_secs)),
        (None, None) => {
            let looked = look(volumes);
            output::emit(text(&looked).as_bytes())?;
            Ok(u8::from(complain(&looked)))
        }
    }
}

/// A volume, as it is named, and what it says of itself.
type Readings = Vec<(String, Result<Activity, VolumeError>)>;

fn look(volumes: &[PathBuf]) -> Readings {
    let look = |path: &PathBuf| (path.to_string_lossy().into_owned(), volume::activity(path));
    volumes.iter().map(look).collect()
}

/// Says which volumes cannot be read; whether there are any.
fn complain(looked: &Readings) -> bool {
    let wrong = looked.iter().filter_map(|(_, found)| found.as_ref().err());
    wrong.map(output::tell).count() > 0
}

/// Answers monitors.
fn serve(volumes: &[PathBuf], address: SocketAddr) -> Outcome {
    let over = end()?;
    let mut scrapes =
        ScrapeServer::listen(address, "--listen").map_err(|ListenError { found, advice }| {
            Failure::new(format!("give metrics at {address}"), found, &advice)
        })?;
    complain(&look(volumes));
    let at = scrapes.address().unwrap_or(address);
    output::emit(format!("metrics at http://{at}/metrics\n").as_bytes())?;
    while !over.load(Ordering::Relaxed) {
        let mut waited: Vec<_> = scrapes.waited().collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        match event::poll(&mut waited, Some(&tick)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::outside("wait for monitors", errno)),
        }
        drop(waited);
        scrapes.step(|| text(&look(volumes)));
    }
    Ok(0)
}

/// Writes a file, once or again and again.
fn keep(volumes: &[PathBuf], file: &Path, every: Option<Duration>) -> Outcome {
    let over = end()?;
    loop {
        let looked = look(volumes);
        replace(file, &text(&looked))
            .map_err(|error| Failure::io(format!("write {}", file.display()), &error))?;
        let wrong = complain(&looked);
        let Some(every) = every else { return Ok(u8::from(wrong)) };
        if !rests(every, &over) {
            return Ok(0);
        }
    }
}

/// Waits; whether nobody has ended this meanwhile.
fn rests(time: Duration, over: &AtomicBool) -> bool {
    let begun = Instant::now();
    while !over.load(Ordering::Relaxed) {
        match time.checked_sub(begun.elapsed()) {
            Some(left) => std::thread::sleep(left.min(TICK)),
            None => return true,
        }
    }
    false
}

/// Puts a whole file in the place of the one before: a program that reads it never sees a part.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, file));
    written.inspect_err(|_| {
        // The failure counts.
        let _ = fs::remove_file(&beside);
    })
}

/// What is told of a volume: a name, its help, and its value where there is one.
type Gauge = (&'static str, &'static str, fn(&Info) -> Option<u64>);

/// Nothing is used where nobody has attached it.
fn of_use(info: &Info, what: fn(&RuntimeUse) -> u64) -> u64 {
    info.runtime.as_ref().map_or(0, what)
}

const GAUGES: [Gauge; 17] = [
    ("size_bytes", "Bytes of the volume: data, metadata, holes and free aligned together.", |of| {
        Some(of.size_bytes)
    }),
    ("size_max_bytes", "Bytes to which it can grow.", |of| Some(of.size_max_bytes)),
    ("data_bytes", "In use for file contents.", |of| Some(of.data_bytes)),
    ("metadata_bytes", "In use for everything else.", |of| Some(of.metadata_bytes)),
    ("hole_bytes", "Free, in chunks of 2 MiB that are partly in use.", |of| Some(of.hole_bytes)),
    ("free_aligned_bytes", "Free, in whole chunks: what becomes huge pages.", |of| {
        Some(of.free_aligned_bytes)
    }),
    ("free_bytes", "Holes and whole chunks together.", |of| Some(of.free_bytes)),
    ("available_bytes", "Of the free bytes those that the file system beneath has.", |of| {
        Some(of.available_bytes)
    }),
    ("allocated_bytes", "Memory that the volume's file has.", |of| Some(of.allocated_bytes)),
    ("missing_bytes", "What the file system beneath lacks, if all were wanted now.", |of| {
        Some(of.missing_bytes)
    }),
    ("beneath_free_bytes", "What the file system beneath has left, if it has a limit.", |of| {
        of.beneath_free_bytes
    }),
    ("inodes", "Files, directories and all other objects.", |of| Some(of.inodes_used)),
    ("clean", "1: left in order, and not attached since.", |of| Some(of.clean.into())),
    ("processes", "Processes that have attached it.", |of| Some(of.attached.len() as u64)),
    ("open_files", "Open file descriptions.", |of| Some(of_use(of, |used| used.open_files))),
    ("file_locks", "Record locks and flock locks, held or waited for.", |of| {
        Some(of_use(of, |used| used.file_locks))
    }),
    ("calls", "Calls under way that change something.", |of| Some(of_use(of, |used| used.calls))),
];

/// What is counted: a name, its help, and the values with the kinds that they have, if any.
type Counter = (&'static str, &'static str, &'static [(Option<&'static str>, fn(&Counts) -> u64)]);

const COUNTERS: [Counter; 4] = [
    (
        "calls_total",
        "Calls of programs that the volume has served.",
        &[
            (Some("read"), |of| of.reads),
            (Some("write"), |of| of.writes),
            (Some("open"), |of| of.opens),
            (Some("name"), |of| of.names),
            (Some("sync"), |of| of.syncs),
        ],
    ),
    ("read_bytes_total", "What reads gave.", &[(None, |of| of.bytes_read)]),
    ("written_bytes_total", "What writes took.", &[(None, |of| of.bytes_written)]),
    (
        "lock_waits_total",
        "Waits for a lock of another thread or process.",
        &[(None, |of| of.lock_waits)],
    ),
];

/// A volume that was read.
type Reading<'l> = (&'l str, &'l Activity);

fn counters(text: &mut Text, read: &[Reading<'_>]) {
    for (counter, help, values) in COUNTERS {
        text.family(counter, "counter", help);
        for (name, found) in read {
            // A volume without room for them has none.
            let Some(counts) = &found.counts else { continue };
            for (kind, value) in values {
                let kind = kind.map(|kind| ("kind", kind));
                let labels: Vec<_> = [("volume", *name)].into_iter().chain(kind).collect();
                text.sample(counter, &labels, value(counts));
            }
        }
    }
    text.family("deaths_total", "counter", "Processes that were found dead.");
    for (name, found) in read {
        text.sample("deaths_total", &[("volume", name)], found.deaths);
    }
}

fn text(looked: &Readings) -> String {
    let mut text = Text::new("solera_volume_");
    let read = looked.iter().filter_map(|(name, found)| Some((&**name, found.as_ref().ok()?)));
    let read: Vec<Reading<'_>> = read.collect();
    text.family("up", "gauge", "Whether the volume could be read.");
    for (name, found) in looked {
        text.sample("up", &[("volume", name)], u8::from(found.is_ok()));
    }
    text.family("info", "gauge", "1; the labels say what the volume is.");
    for (name, Activity { info, .. }) in &read {
        let version = info.version.to_string();
        let labels = [
            ("volume", *name),
            ("label", &*info.label),
            ("uuid", &*info.uuid),
            ("class", &*info.class),
            ("version", &*version),
        ];
        text.sample("info", &labels, 1);
    }
    for (gauge, help, value) in GAUGES {
        text.family(gauge, "gauge", help);
        for (name, found) in &read {
            if let Some(value) = value(&found.info) {
                text.sample(gauge, &[("volume", name)], value);
            }
        }
    }
    counters(&mut text, &read);
    text.finish()
}
