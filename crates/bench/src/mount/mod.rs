//! `solera bench mount`: a mounted volume beside a passthrough of tmpfs by FUSE, `bindfs`.
//!
//! Both are served by a process of their own, through the same kernel code, from the same kind of
//! memory; what differs is the server. One thread makes system calls on the two in turns of some
//! milliseconds, so that a noisy machine is noisy for both. Bare tmpfs stands beside them to show
//! what FUSE itself costs.
//!
//! The volume's mount lets the kernel cache nothing that preloaded processes may change. `bindfs`
//! is measured under the same rule (`attr_timeout=0,entry_timeout=0,direct_io`), and, as a peer of
//! its own, as it comes: then the kernel answers `stat` and repeated reads by itself, also when the
//! files beneath have changed.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{self, Error};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size::show;
use rustix::mount::UnmountFlags;
use serde_json::{Value, json};
use solera_bench::MountBenchArgs;
use volume::FormatOptions;

use crate::harness::executable;
use crate::harness::mounts;
use crate::harness::statistics::median_and_middle_half;
use crate::harness::stores;
use crate::worker::calls;
use crate::worker::row::Random;

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
/// Entries of the directory that is listed.
const LISTED: u64 = 500;
/// What keeps the kernel from caching.
const UNCACHED: &str = "attr_timeout=0,entry_timeout=0,negative_timeout=0,direct_io";
/// Turns of a row in each round.
const TURNS: u64 = 20;
/// How long a mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);

/// Peers of the table.
const PEERS: usize = 4;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Row {
    Read { bytes: usize, random: bool },
    Write { bytes: usize, random: bool },
    Append,
    OpenClose,
    CreateCloseUnlink,
    Stat,
    MkdirRmdir,
    Rename,
    List,
}

impl Row {
    const ALL: [Self; 15] = [
        Self::Read { bytes: SMALL, random: false },
        Self::Read { bytes: SMALL, random: true },
        Self::Read { bytes: LARGE, random: false },
        Self::Read { bytes: LARGE, random: true },
        Self::Write { bytes: SMALL, random: false },
        Self::Write { bytes: SMALL, random: true },
        Self::Write { bytes: LARGE, random: false },
        Self::Write { bytes: LARGE, random: true },
        Self::Append,
        Self::OpenClose,
        Self::CreateCloseUnlink,
        Self::Stat,
        Self::MkdirRmdir,
        Self::Rename,
        Self::List,
    ];

    fn name(self) -> String {
        let how = |random| if random { "random" } else { "sequential" };
        let size = |bytes| if bytes == SMALL { "4K" } else { "1M" };
        match self {
            Self::Read { bytes, random } => format!("read {} {}", size(bytes), how(random)),
            Self::Write { bytes, random } => format!("overwrite {} {}", size(bytes), how(random)),
            Self::Append => "append 4K".into(),
            Self::OpenClose => "open+close".into(),
            Self::CreateCloseUnlink => "create+close+unlink".into(),
            Self::Stat => "stat".into(),
            Self::MkdirRmdir => "mkdir+rmdir".into(),
            Self::Rename => "rename".into(),
            Self::List => format!("list {LISTED} names"),
        }
    }

    /// Calls in one turn.
    const fn calls(self) -> u64 {
        match self {
            Self::Read { bytes: LARGE, .. } | Self::Write { bytes: LARGE, .. } => 8,
            Self::List => 4,
            _ => 100,
        }
    }
}

/// A directory in which the calls are made.
struct Peer {
    name: &'static str,
    dir: PathBuf,
    large: i32,
    buffer: Vec<u8>,
    times: BTreeMap<Row, Vec<f64>>,
}

impl Peer {
    fn new(name: &'static str, dir: PathBuf, size: u64) -> io::Result<Self> {
        let path = |name: &str| CString::new(dir.join(name).as_os_str().as_bytes());
        let large = calls::open(&path("large")?, libc::O_RDWR | libc::O_CREAT)?;
        let buffer = vec![0x5A; LARGE];
        for start in (0..size).step_by(LARGE) {
            calls::pwrite(large, &buffer, start)?;
        }
        fs::write(dir.join("small"), &buffer[..SMALL])?;
        fs::create_dir(dir.join("many"))?;
        for number in 0..LISTED {
            fs::write(dir.join(format!("many/file-{number}")), b"")?;
        }
        Ok(Self { name, dir, large, buffer, times: BTreeMap::new() })
    }

    fn path(&self, name: &str) -> io::Result<CString> {
        Ok(CString::new(self.dir.join(name).as_os_str().as_bytes())?)
    }

    /// Nanoseconds of a call.
    fn measure(&mut self, row: Row, turn: u64, size: u64) -> io::Result<f64> {
        let (small, new, other) = (self.path("small")?, self.path("new")?, self.path("other")?);
        let appended = match row {
            Row::Append => calls::open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND)?,
            _ => -1,
        };
        let mut random = Random::new();
        let first = turn * row.calls();
        for _ in 0..first {
            random.below(2);
        }
        let begun = Instant::now();
        for call in first..first + row.calls() {
            match row {
                Row::Read { bytes, random: wild } => {
                    let at = place(call, bytes, wild.then_some(&mut random), size);
                    calls::pread(self.large, &mut self.buffer[..bytes], at)?;
                }
                Row::Write { bytes, random: wild } => {
                    let at = place(call, bytes, wild.then_some(&mut random), size);
                    calls::pwrite(self.large, &self.buffer[..bytes], at)?;
                }
                Row::Append => calls::write(appended, &self.buffer[..SMALL])?,
                Row::OpenClose => calls::close(calls::open(&small, libc::O_RDWR)?)?,
                Row::CreateCloseUnlink => {
                    calls::close(calls::open(&new, libc::O_RDWR | libc::O_CREAT)?)?;
                    calls::unlink(&new)?;
                }
                Row::Stat => drop(calls::stat(&small)?),
                Row::MkdirRmdir => {
                    fs::create_dir(self.dir.join("new"))?;
                    fs::remove_dir(self.dir.join("new"))?;
                }
                Row::Rename => {
                    let (from, to) =
                        if call % 2 == 0 { (&small, &other) } else { (&other, &small) };
                    rename(from, to)?;
                }
                Row::List => {
                    let names = fs::read_dir(self.dir.join("many"))?.count();
                    if names as u64 != LISTED {
                        return Err(Error::other(format!("{names} names are listed")));
                    }
                }
            }
        }
        let took = begun.elapsed();
        if row == Row::Append {
            calls::close(appended)?;
            calls::unlink(&new)?;
        }
        Ok(took.as_nanos() as f64 / row.calls() as f64)
    }
}

fn rename(from: &CString, to: &CString) -> io::Result<()> {
    fs::rename(
        Path::new(std::ffi::OsStr::from_bytes(from.as_bytes())),
        Path::new(std::ffi::OsStr::from_bytes(to.as_bytes())),
    )
}

fn place(call: u64, bytes: usize, random: Option<&mut Random>, size: u64) -> u64 {
    let blocks = size / bytes as u64;
    random.map_or(call % blocks, |random| random.below(blocks)) * bytes as u64
}

/// The directories, and the processes that serve them; gone when it is dropped.
struct Testbed {
    dir: PathBuf,
    servers: Vec<Child>,
    mounts: Vec<PathBuf>,
}

impl Testbed {
    fn make(args: &MountBenchArgs) -> Result<Self, Failure> {
        let fail = |error: Error| Failure::new("make a place for the benchmark", error, "");
        mounts::own_namespace()
            .map_err(|error| Failure::new("measure mounts", error, "this needs root"))?;
        let dir = PathBuf::from(format!("/dev/shm/solera-bench-{}", std::process::id()));
        let mut testbed = Self { dir: dir.clone(), servers: Vec::new(), mounts: Vec::new() };
        for name in ["", "mnt", "bare", "passed", "bind", "passed-cached", "cached"] {
            fs::create_dir(dir.join(name)).map_err(fail)?;
        }
        let size = args.size * 2 + (256 << 20);
        let region = dir.join("v.pm");
        volume::format(&region, &FormatOptions { size: Some(size), ..FormatOptions::default() })?;
        let mut mount = Command::new(executable::solera().map_err(fail)?);
        mount.args(["mount", "-f", "--mode", &args.mode]).arg(&region).arg(dir.join("mnt"));
        testbed.serve("the volume", mount, &dir.join("mnt"))?;
        for (options, from, to) in [(UNCACHED, "passed", "bind"), ("rw", "passed-cached", "cached")]
        {
            let mut bindfs = Command::new("bindfs");
            bindfs.args(["-f", "-o", options]).arg(dir.join(from)).arg(dir.join(to));
            testbed.serve("bindfs", bindfs, &dir.join(to))?;
        }
        Ok(testbed)
    }

    fn serve(&mut self, name: &str, mut command: Command, at: &Path) -> Result<(), Failure> {
        let asked = format!("serve {name}");
        let before = rustix::fs::stat(at).map(|stat| stat.st_dev);
        let child = command.stdin(Stdio::null()).spawn().map_err(|error| {
            Failure::new(&asked, error, "install bindfs (`apt install bindfs`)")
        })?;
        self.servers.push(child);
        self.mounts.push(at.to_owned());
        let begun = Instant::now();
        while rustix::fs::stat(at).map(|stat| stat.st_dev) == before {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(asked, "it is not mounted after 10 s", "see above"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for at in &self.mounts {
            // What is still in use goes with this process's mount name space.
            let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
        for server in &mut self.servers {
            // It ends by itself when its mount is gone.
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Measures all rows and prints the table.
pub fn run(args: &MountBenchArgs) -> Outcome {
    let testbed = Testbed::make(args)?;
    let failed = |error: Error| Failure::new("measure", error, "");
    let make = |name, dir: &str| Peer::new(name, testbed.dir.join(dir), args.size).map_err(failed);
    let mut peers = [
        make("solera", "mnt")?,
        make("bindfs", "bind")?,
        make("bindfs cached", "cached")?,
        make("tmpfs", "bare")?,
    ];
    let mut progress = Progress::new("measuring");
    let total = u64::from(args.repeat + 1) * Row::ALL.len() as u64;
    // Round 0 warms up; it does not count.
    for round in 0..=args.repeat {
        for (index, row) in Row::ALL.into_iter().enumerate() {
            for (turn, peer) in (0..TURNS).flat_map(|turn| (0..PEERS).map(move |peer| (turn, peer)))
            {
                let peer = &mut peers[peer];
                let time = peer.measure(row, turn, args.size).map_err(|error| {
                    Failure::new(format!("measure {}, {}", peer.name, row.name()), error, "")
                })?;
                if round > 0 {
                    peer.times.entry(row).or_default().push(time);
                }
            }
            progress.update(u64::from(round) * Row::ALL.len() as u64 + index as u64 + 1, total);
        }
    }
    drop(progress);
    if args.json {
        output::emit_json(&to_json(args, &peers))?;
    } else {
        output::emit(to_text(args, &peers).as_bytes())?;
    }
    for peer in &peers {
        // The mounts can go only then.
        calls::close(peer.large).map_err(failed)?;
    }
    Ok(0)
}

/// The time of the mount over bindfs's.
fn ratio(peers: &[Peer; PEERS], row: Row) -> f64 {
    let median = |peer: &Peer| median_and_middle_half(&peer.times[&row]).0;
    median(&peers[0]) / median(&peers[1])
}

fn to_json(args: &MountBenchArgs, peers: &[Peer; PEERS]) -> Value {
    let rows: Vec<Value> = Row::ALL
        .into_iter()
        .map(|row| {
            let times: serde_json::Map<String, Value> = peers
                .iter()
                .map(|peer| {
                    let (ns, spread) = median_and_middle_half(&peer.times[&row]);
                    (peer.name.to_owned(), json!({ "ns": ns, "spread_percent": spread }))
                })
                .collect();
            json!({ "row": row.name(), "peers": times, "ratio": ratio(peers, row) })
        })
        .collect();
    json!({ "mode": args.mode, "size_bytes": args.size, "repeat": args.repeat, "rows": rows })
}

fn to_text(args: &MountBenchArgs, peers: &[Peer; PEERS]) -> String {
    let head =
        ["ns a call (spread)", "solera mount", "bindfs", "bindfs cached", "tmpfs", "x bindfs"];
    let rows: Vec<Vec<String>> = Row::ALL
        .into_iter()
        .map(|row| {
            let mut line = vec![row.name()];
            for peer in peers {
                let (ns, spread) = median_and_middle_half(&peer.times[&row]);
                line.push(format!("{ns:.0} ({spread:.0} %)"));
            }
            line.push(format!("{:.2}", ratio(peers, row)));
            line
        })
        .collect();
    format!(
        "{}\nmode {}, working set {}, median of {} turns, spread of the middle half; x: time of \
         the mount over bindfs's, below 1 is faster\nbindfs: with {UNCACHED}, as the volume's \
         mount; \"cached\": as it comes, when the kernel's answers may be old\n{}\n",
        output::table(&head, &rows),
        args.mode,
        show(args.size),
        u64::from(args.repeat) * TURNS,
        stores::line()
    )
}
