//! The nodes of the benchmark, their volumes, and the programs that use them: all in a directory of
//! its own on a tmpfs, which goes at the end.
//!
//! One domain has the volume that is larger than its node. Another one has a single node, which
//! has room for all of its volume; beside that stands a volume on a plain file. In the end there
//! are domains of one to four nodes (`scaling.rs`).

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use console::failure::Failure;
use console::size::show;
use ddmap::Capacity;
use rustix::fs::SeekFrom;
use serde_json::Value;

use super::connection::PAGE;
use crate::harness::executable;
use crate::harness::scratch::touch;

/// The file that is sent away and touched.
pub const FILE: &str = "file";
/// Bytes of a volume beyond its files.
const FIXED_BYTES: u64 = 16 << 20;

/// Which volume a program uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeKind {
    /// The one that is larger than its node; whether pages are brought ahead.
    Large(bool),
    /// The same, without pages brought ahead: bytes of the cache of lines, or none.
    Lines(u64),
    /// The one that its node has room for.
    Fitting,
    /// One on a plain file.
    Plain,
    /// That of a domain of so many nodes, whose host may have one node's part of the file.
    Scaled(u16),
}

/// Whose processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consumer {
    /// The thread of the host that sends pages away.
    Evictor,
    /// All of the nodes that keep them.
    Holders,
}

/// All of it; ended and removed when this is dropped.
pub struct Testbed {
    directory: PathBuf,
    size: u64,
    /// The large domain's first, its host in front.
    nodes: Vec<Child>,
    holders: usize,
    /// Where the file's bytes lie in the region of the large volume.
    extents: Vec<(u64, u64, u64)>,
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::io("prepare the benchmark", error)
}

impl Testbed {
    /// Starts the nodes, makes the volumes.
    pub fn make(place: &Path, size: u64, nodes: u16) -> Result<Self, Failure> {
        let asked = || format!("measure in {}", place.display());
        let real = place.canonicalize().map_err(|error| Failure::io(asked(), &error))?;
        let directory = real.join(format!("solera-bench-ddmap-{}", std::process::id()));
        let mut testbed = Self {
            directory,
            size,
            nodes: Vec::new(),
            holders: usize::from(nodes) - 1,
            extents: Vec::new(),
        };
        // Ten nodes besides, of which each keeps as much as a file's size.
        let scaled = 10 * testbed.fitting_bytes();
        let needed = size + testbed.large_bytes() * 2 + 2 * testbed.fitting_bytes() + scaled;
        let found = rustix::fs::statvfs(&real).map_err(|errno| Failure::outside(asked(), errno))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < needed {
            let found = format!("{} are free, {} needed", show(free), show(needed));
            return Err(Failure::new(asked(), found, "give a smaller --size"));
        }
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        for path in [testbed.directory.clone(), testbed.directory.join("run")] {
            builder.create(path).map_err(|error| failed(&error))?;
        }
        testbed.start(nodes)?;
        Ok(testbed)
    }

    /// Room for a file, and another one of twice the host's bytes.
    fn large_bytes(&self) -> u64 {
        3 * self.size + FIXED_BYTES
    }

    fn fitting_bytes(&self) -> u64 {
        self.size + FIXED_BYTES
    }

    fn start(&mut self, nodes: u16) -> Result<(), Failure> {
        let first = self.node("large", 1, self.size, None)?;
        // What each keeps free is promised to nobody.
        let each = self.large_bytes() / u64::from(nodes - 1) / 9 * 10 + FIXED_BYTES;
        for number in 2..=nodes {
            self.node("large", number, each, Some(&first))?;
        }
        self.node("fitting", 1, self.fitting_bytes() / 9 * 10, None)?;
        let (large, fitting) = (self.large_bytes().to_string(), self.fitting_bytes().to_string());
        self.wait_for_nodes("large", nodes)?;
        self.solera(&["format", "--ddmap", "large/v", "--size", &large])?;
        self.solera(&["format", "--ddmap", "fitting/v", "--size", &fitting])?;
        // Touched, so that its first stores take no memory.
        touch(&self.plain(), self.fitting_bytes()).map_err(|error| failed(&error))?;
        self.solera(&["format", "--force", &self.plain().display().to_string()])?;
        Ok(())
    }

    /// A domain of so many nodes, each with room for a file of the size, and a volume for all of
    /// them.
    pub fn scale(&mut self, nodes: u16) -> Result<(), Failure> {
        let domain = format!("scaled-{nodes}");
        // As for the others. What stays of the volume is with the host.
        let each = self.fitting_bytes() / 9 * 10;
        let first = self.node(&domain, 1, each, None)?;
        for number in 2..=nodes {
            self.node(&domain, number, each, Some(&first))?;
        }
        self.wait_for_nodes(&domain, nodes)?;
        let bytes = (u64::from(nodes) * self.size + FIXED_BYTES).to_string();
        self.solera(&["format", "--ddmap", &format!("{domain}/v"), "--size", &bytes])?;
        Ok(())
    }

    /// Until the host has heard of all.
    fn wait_for_nodes(&self, domain: &str, nodes: u16) -> Result<(), Failure> {
        let begun = std::time::Instant::now();
        while self.status(domain)?["nodes"].as_array().map_or(0, Vec::len) < nodes.into() {
            if begun.elapsed().as_secs() > 20 {
                return Err(Failure::new("start the nodes", "they do not find each other", ""));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    fn node(
        &mut self,
        domain: &str,
        number: u16,
        capacity: u64,
        join: Option<&str>,
    ) -> Result<String, Failure> {
        let store = self.store(domain, number).display().to_string();
        let capacity = capacity.to_string();
        let mut command = self.command()?;
        command.args(["node", "--domain", domain, "--listen", "127.0.0.1:0"]);
        command.args(["--store", &store, "--capacity", &capacity]);
        if let Some(join) = join {
            command.args(["--passive", "--join", join]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (out, mut line) = (child.stdout.take(), String::new());
        self.nodes.push(child);
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line).map_err(|error| failed(&error))?;
        }
        let address = line.split(" at ").nth(1).and_then(|rest| rest.split(',').next());
        address.map(str::to_owned).ok_or_else(|| {
            Failure::new(format!("start node {number}"), "it does not", "see what it said above")
        })
    }

    /// `solera`, where the benchmark's nodes are.
    fn command(&self) -> Result<Command, Failure> {
        self.here(executable::solera())
    }

    /// This program again, as a worker there.
    pub fn worker(&self) -> Result<Command, Failure> {
        let mut command = self.here(executable::own())?;
        command.args(["bench", "ddmap-worker"]);
        Ok(command)
    }

    fn here(&self, program: io::Result<PathBuf>) -> Result<Command, Failure> {
        let mut command = Command::new(program.map_err(|error| failed(&error))?);
        command.env("XDG_RUNTIME_DIR", self.directory.join("run")).env_remove("LD_PRELOAD");
        Ok(command)
    }

    fn solera(&self, line: &[&str]) -> Result<Vec<u8>, Failure> {
        let ran = self.command()?.args(line).stdin(Stdio::null()).output();
        let ran = ran.map_err(|error| failed(&error))?;
        if ran.status.success() {
            return Ok(ran.stdout);
        }
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        Err(Failure::new(format!("run solera {}", line.join(" ")), said, ""))
    }

    fn json(&self, line: &[&str]) -> Result<Value, Failure> {
        let said = self.solera(line)?;
        serde_json::from_slice(&said).map_err(|error| Failure::new("read JSON", error, ""))
    }

    fn store(&self, domain: &str, number: u16) -> PathBuf {
        self.directory.join(format!("{domain}-{number}"))
    }

    fn plain(&self) -> PathBuf {
        self.directory.join("plain.pm")
    }

    /// A file beside all of that, on the tmpfs.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where a program sees its volume: nothing else is there.
    pub fn at(name: &str) -> PathBuf {
        PathBuf::from(format!("/solera-bench-ddmap-{}", std::process::id())).join(name)
    }

    /// The room of the host's node.
    pub fn room(&self) -> PathBuf {
        self.store("large", 1).join(ddmap::Capacity::NAME)
    }

    fn status(&self, domain: &str) -> Result<Value, Failure> {
        self.json(&["domain", "status", "--json", domain])
    }

    /// Pages that the host has sent away.
    pub fn evicted(&self) -> Result<u64, Failure> {
        Ok(self.status("large")?["volumes"][0]["evicted_pages"].as_u64().unwrap_or_default())
    }

    /// Microseconds of processors that a part of the large domain has used.
    pub fn used_us(&self, by: Consumer) -> Result<f64, Failure> {
        let (nodes, thread) = match by {
            Consumer::Evictor => (&self.nodes[..1], Some("evictor")),
            Consumer::Holders => (&self.nodes[1..=self.holders], None),
        };
        let (mut sum, mut found) = (0.0, false);
        for node in nodes {
            let tasks = format!("/proc/{}/task", node.id());
            for task in fs::read_dir(tasks).map_err(|error| failed(&error))?.flatten() {
                let read =
                    |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                if thread.is_some_and(|name| read("comm").trim() != name) {
                    continue;
                }
                let text = read("schedstat");
                let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
                sum += ns.ok_or_else(|| {
                    Failure::new("measure a node", "this kernel has no schedstat", "")
                })?;
                found = true;
            }
        }
        let none = || Failure::new("measure a node", "it has no such thread", "");
        found.then_some(sum / 1000.0).ok_or_else(none)
    }

    /// Waits until the host has room for so many pages, a second at most: bytes of a file that is
    /// gone are given back behind the call.
    pub fn wait_for_room(&self, pages: u64) {
        let Ok(room) = Capacity::open(&self.room()) else { return };
        for _ in 0..100 {
            if room.capacity().saturating_sub(room.used()) >= pages {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Learns where the file's bytes lie.
    pub fn locate(&mut self) -> Result<(), Failure> {
        let map = self.json(&["map", "--json", &format!("large/v:/{FILE}")])?;
        let number = |one: &Value, key: &str| one[key].as_u64().unwrap_or_default();
        let all = map["extents"].as_array().map_or(&[][..], Vec::as_slice);
        self.extents = all
            .iter()
            .map(|one| (number(one, "file_offset"), number(one, "place"), number(one, "length")))
            .collect();
        Ok(())
    }

    /// The pages of the file that are not on the host: holes of the region.
    pub fn away(&self) -> Result<Vec<usize>, Failure> {
        let region = self.store("large", 1).join("volumes/v/region");
        let region = fs::File::open(region).map_err(|error| failed(&error))?;
        let mut away = Vec::new();
        for (offset, place, length) in &self.extents {
            let mut at = *place;
            while at < place + length {
                let data = match rustix::fs::seek(&region, SeekFrom::Data(at)) {
                    Ok(data) => data.min(place + length),
                    Err(rustix::io::Errno::NXIO) => place + length,
                    Err(errno) => return Err(Failure::outside("look at the region", errno)),
                };
                let holes = (at..data).step_by(PAGE);
                let page = |hole: u64| (hole - place + offset) as usize / PAGE;
                away.extend(holes.map(page));
                at = match rustix::fs::seek(&region, SeekFrom::Hole(data)) {
                    Ok(hole) => hole.max(data),
                    Err(_) => place + length,
                };
            }
        }
        Ok(away)
    }

    /// Gives the free memory of the volume on a plain file back.
    pub fn trim_plain(&self) -> Result<(), Failure> {
        self.solera(&["trim", &self.plain().display().to_string()]).map(drop)
    }

    /// `solera run` on a volume, up to the program.
    pub fn run(&self, on: VolumeKind) -> Result<Command, Failure> {
        let mut command = self.command()?;
        command.arg("run");
        match on {
            VolumeKind::Large(ahead) => {
                command.args(["--ddmap", "large/v", "--prefetch"]);
                command.arg(if ahead { "seq" } else { "off" });
            }
            VolumeKind::Lines(bytes) => {
                command.args(["--ddmap", "large/v", "--prefetch", "off", "--line-cache"]);
                command.arg(if bytes == 0 { "off".to_owned() } else { bytes.to_string() });
            }
            VolumeKind::Fitting => _ = command.args(["--ddmap", "fitting/v"]),
            VolumeKind::Plain => _ = command.arg("--volume").arg(self.plain()),
            VolumeKind::Scaled(nodes) => {
                // A twentieth of it is kept free.
                let local = (self.size / 9 * 10).to_string();
                command.args(["--ddmap", &format!("scaled-{nodes}/v"), "--local", &local]);
            }
        }
        command.arg("--at").arg(Self::at("")).arg("--");
        Ok(command)
    }

    /// A program on a volume that does what it is told.
    pub fn program(&self, on: VolumeKind) -> Result<Program, Failure> {
        let own = executable::own().map_err(|error| failed(&error))?;
        let mut command = self.run(on)?;
        command.arg(own).args(["bench", "ddmap-worker", "program"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Program { child, input: Some(input), output: BufReader::new(output) })
            }
            _ => Err(failed(&std::io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may have ended; what it has is not wanted any more.
            let _ = node.kill();
            let _ = node.wait();
        }
        // What cannot be removed stays.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A program on a volume; it ends with this, in order: its volume needs no recovery.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Has it do something.
    pub fn ask(&mut self, said: &Value) -> Result<Value, Failure> {
        let asked = || format!("have a program do `{}`", said["do"].as_str().unwrap_or_default());
        let lost = |error: &std::io::Error| {
            Failure::new(asked(), format!("it has ended ({error})"), "see what it said above")
        };
        if let Some(input) = &mut self.input {
            writeln!(input, "{said}").map_err(|error| lost(&error))?;
        }
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(lost(&std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| Failure::new(asked(), error, "")),
            Err(error) => Err(lost(&error)),
        }
    }

    /// The same, where a number of nanoseconds is answered.
    pub fn ns(&mut self, said: &Value) -> Result<f64, Failure> {
        Ok(self.ask(said)?["ns"].as_f64().unwrap_or(f64::NAN))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The end of its input is its own. It may have ended by itself.
        self.input = None;
        let _ = self.child.wait();
    }
}
