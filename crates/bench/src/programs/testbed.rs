//! The places, and the directory of the run; all of it goes when this is dropped.
//!
//! As root everything lies in memory and in mounts of this process alone: volumes on a tmpfs with
//! huge pages, touched; peers on a tmpfs with small ones, the usual, or in ext4 and XFS in files of
//! a tmpfs. Others have what /dev/shm is, and the directories that they name.

use std::fs;
use std::io;
use std::iter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use console::failure::Failure;
use console::output;
use console::preload::{HOST, LIBRARY, PROFILING, find_library};
use solera_bench::ProgramsBenchArgs;

use super::backend::{Access, Backend, Build};
use crate::harness::executable;
use crate::harness::mounts;
use crate::harness::scratch::{check_room, own_directory, touch};

/// The kinds of peers that have a name.
const TMPFS: &str = "tmpfs";
const NAMED: [&str; 3] = [TMPFS, "ext4", "xfs"];
const NONE: &str = "none";
const SHM: &str = "/dev/shm";
/// Bytes for drivers, what programs read, and sockets.
const WORK_BYTES: u64 = 1 << 30;
const ADVICE: &str = "give --quick, or fewer --modes and --peers";

/// A peer's own directory: what its programs make, and what ageing makes, lie in it.
struct Peer {
    name: String,
    at: PathBuf,
}

pub struct Testbed {
    base: PathBuf,
    mounted: Vec<PathBuf>,
    /// Directories elsewhere, which are removed too.
    elsewhere: Vec<PathBuf>,
    /// What no place has: drivers, scripts, what programs read.
    pub work: PathBuf,
    pub backends: Vec<Backend>,
    /// Peers that were asked for and cannot be had here, and why.
    pub missing: Vec<(String, String)>,
    /// What can be aged, volumes and directories of file systems, and the command that does it.
    pub aged: Vec<(PathBuf, PathBuf)>,
    /// Whether volumes lie on huge pages.
    pub huge: bool,
    /// Whether file calls are profiled: two builds are compared by their times alone.
    pub profiles: bool,
}

impl Testbed {
    /// `bytes`: of each volume and each file system that is made. As root, this has to be called
    /// in a mount namespace of the process's own.
    pub fn make(args: &ProgramsBenchArgs, bytes: u64, own_mounts: bool) -> Result<Self, Failure> {
        let peers = wished(args, own_mounts)?;
        let modes = once(&args.modes);
        let volumes = modes.len() * if args.against.is_some() { 2 } else { 1 };
        let made = peers.iter().filter(|peer| NAMED.contains(&peer.as_str())).count();
        check_room((volumes + made) as u64 * bytes + WORK_BYTES, ADVICE)?;
        let base = own_directory(&std::env::temp_dir()).map_err(failed)?;
        let mut testbed = Self {
            work: base.join("work"),
            base,
            mounted: Vec::new(),
            elsewhere: Vec::new(),
            backends: Vec::new(),
            missing: Vec::new(),
            aged: Vec::new(),
            huge: own_mounts,
            profiles: args.against.is_none(),
        };
        let volumes_at = testbed.memory(own_mounts, bytes, volumes, made).map_err(failed)?;
        for name in ["", "bin", "src", "tmp", "input", "home", "lib"] {
            open_directory(&testbed.work.join(name)).map_err(failed)?;
        }
        let own = testbed.build(&own_command()?, "this", &find_library()?)?;
        let other = args.against.as_deref().map(|dir| testbed.other(dir)).transpose()?;
        for mode in &modes {
            testbed.volume(format!("volume {mode}"), &volumes_at, mode, &own, bytes)?;
            if let Some(other) = &other {
                let name = format!("volume {mode}, against");
                testbed.volume(name, &volumes_at, mode, other, bytes)?;
            }
        }
        testbed.peers(&peers, args, &own, bytes)?;
        if testbed.backends.is_empty() {
            let found = "there is no place: no mode, and no peer that can be had here";
            return Err(Failure::new("measure", found, "see --modes and --peers").code(2));
        }
        Ok(testbed)
    }

    /// Mounts what volumes and peers lie in, if it may; where volumes are to lie.
    fn memory(
        &mut self,
        own_mounts: bool,
        bytes: u64,
        volumes: usize,
        made: usize,
    ) -> io::Result<PathBuf> {
        if !own_mounts {
            let shm = named(Path::new(SHM), "volumes")?;
            self.elsewhere.push(shm.clone());
            return Ok(shm);
        }
        // Images of file systems lie in the first.
        mounts::tmpfs(&self.base, made as u64 * bytes + WORK_BYTES, false)?;
        self.mounted.push(self.base.clone());
        let huge = self.base.join("volumes");
        fs::create_dir(&huge)?;
        mounts::tmpfs(&huge, volumes as u64 * bytes + (64 << 20), true)?;
        self.mounted.push(huge.clone());
        Ok(huge)
    }

    /// A build, with copies of its libraries that every user may load.
    fn build(&self, command: &Path, name: &str, library: &Path) -> Result<Build, Failure> {
        let copy = self.work.join("lib").join(name);
        open_directory(&copy).map_err(failed)?;
        // A build of before may have none that profiles, and no host.
        let beside = [PROFILING, HOST].map(|name| (library.with_file_name(name), name));
        let beside = beside.into_iter().filter(|(from, _)| from.exists());
        for (from, name) in iter::once((library.to_owned(), LIBRARY)).chain(beside) {
            let to = copy.join(name);
            fs::copy(from, &to).map_err(failed)?;
            fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        }
        Ok(Build { command: command.to_owned(), library: copy.join(LIBRARY) })
    }

    fn other(&self, dir: &Path) -> Result<Build, Failure> {
        let asked = format!("measure against {}", dir.display());
        let dir = dir.canonicalize().map_err(|error| Failure::io(&asked, &error))?;
        let command = dir.join("solera");
        let libraries = [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)];
        let library = libraries.iter().find(|library| library.exists());
        let (true, Some(library)) = (command.is_file(), library) else {
            let found = format!("there is no solera, or no {LIBRARY} beside it or in ../lib");
            let advice = "give the directory of a build: target/release of another revision";
            return Err(Failure::new(asked, found, advice).code(2));
        };
        self.build(&command, "other", library)
    }

    fn volume(
        &mut self,
        name: String,
        volumes_at: &Path,
        mode: &str,
        build: &Build,
        bytes: u64,
    ) -> Result<(), Failure> {
        let region = volumes_at.join(format!("{}.pm", name.replace(", ", "-").replace(' ', "-")));
        touch(&region, bytes)
            .map_err(|error| Failure::new(format!("make {}", region.display()), error, ADVICE))?;
        // Servers run as other users.
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(&region, open).map_err(failed)?;
        // Each build makes its own: another one's format may be another.
        let asked = format!("format {} by {}", region.display(), build.command.display());
        let mut format = Command::new(&build.command);
        let done = format.args(["format", "--force"]).arg(&region).output();
        let done = done.map_err(|error| Failure::io(&asked, &error))?;
        if !done.status.success() {
            return Err(Failure::new(asked, String::from_utf8_lossy(&done.stderr).trim(), ""));
        }
        self.aged.push((build.command.clone(), region.clone()));
        self.backends.push(Backend::volume(name, region, mode, build));
        Ok(())
    }

    fn peers(
        &mut self,
        names: &[String],
        args: &ProgramsBenchArgs,
        own: &Build,
        bytes: u64,
    ) -> Result<(), Failure> {
        let mut found = Vec::new();
        for name in names {
            match self.peer(name, bytes)? {
                Ok(peer) => found.push(peer),
                Err(why) => {
                    output::tell(format!("without {name}: {why}"));
                    self.missing.push((name.clone(), why));
                }
            }
        }
        let first: Vec<&str> = found.iter().take(1).map(|peer| peer.name.as_str()).collect();
        let split: Vec<&str> = match args.split.as_slice() {
            [] => first,
            names => names.iter().map(String::as_str).filter(|name| *name != NONE).collect(),
        };
        if let Some(wrong) = split.iter().find(|name| !names.iter().any(|peer| peer == *name)) {
            let found = "it is none of the --peers";
            return Err(Failure::new(format!("measure --split {wrong}"), found, "").code(2));
        }
        for peer in found.iter().filter(|peer| split.contains(&peer.name.as_str())) {
            let access = Access::Split { build: own.clone() };
            self.backend(format!("split {}", peer.name), access, peer.at.join("split"))?;
        }
        for peer in found {
            let access = Access::Kernel { build: own.clone() };
            self.backend(peer.name.clone(), access, peer.at.join("kernel"))?;
            let aged = peer.at.join("aged");
            fs::create_dir(&aged).map_err(failed)?;
            self.aged.push((own.command.clone(), aged));
        }
        Ok(())
    }

    fn backend(&mut self, name: String, access: Access, directory: PathBuf) -> Result<(), Failure> {
        fs::create_dir(&directory).map_err(failed)?;
        self.backends.push(Backend { name, access, directory });
        Ok(())
    }

    /// A peer, or why it cannot be had.
    fn peer(&mut self, name: &str, bytes: u64) -> Result<Result<Peer, String>, Failure> {
        let owned = |at: PathBuf| Ok(Ok(Peer { name: name.to_owned(), at }));
        if !NAMED.contains(&name) {
            let asked = format!("measure in {name}");
            let made = Path::new(name).canonicalize().and_then(|dir| named(&dir, "peer"));
            let at = made.map_err(|error| Failure::io(asked, &error))?;
            self.elsewhere.push(at.clone());
            return owned(at);
        }
        if !self.huge {
            if name != TMPFS {
                return Ok(Err("it is made and mounted by root only".to_owned()));
            }
            let at = named(Path::new(SHM), name).map_err(failed)?;
            self.elsewhere.push(at.clone());
            return owned(at);
        }
        let at = self.base.join(name);
        if name == TMPFS {
            fs::create_dir(&at).map_err(failed)?;
            mounts::tmpfs(&at, bytes, false).map_err(failed)?;
        } else {
            let image = self.base.join(format!("{name}.image"));
            if !mounts::image(name, &image, &at, bytes).map_err(failed)? {
                let package = if name == "xfs" { "xfsprogs" } else { "e2fsprogs" };
                return Ok(Err(format!(
                    "it cannot be made and mounted here (mkfs.{name} is in {package})"
                )));
            }
        }
        self.mounted.push(at.clone());
        owned(at)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for dir in &self.elsewhere {
            // What cannot be removed stays.
            let _ = fs::remove_dir_all(dir);
        }
        for point in self.mounted.iter().rev() {
            mounts::unmount(point);
        }
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// A new directory of this run in a place that others use, too.
fn named(parent: &Path, what: &str) -> io::Result<PathBuf> {
    let at = parent.join(format!("solera-bench-{}-{what}", std::process::id()));
    fs::create_dir(&at)?;
    Ok(at)
}

/// What is said, each once.
fn once(said: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in said.iter().filter(|word| *word != NONE) {
        if !found.contains(word) {
            found.push(word.clone());
        }
    }
    found
}

/// A directory through which other users go: servers run as those.
fn open_directory(at: &Path) -> io::Result<()> {
    fs::create_dir(at)?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o755))
}

fn failed(error: io::Error) -> Failure {
    Failure::new("make a place for the benchmark", error, ADVICE)
}

fn own_command() -> Result<PathBuf, Failure> {
    executable::solera()
        .map_err(|error| Failure::new("find this program", error, "is /proc mounted?"))
}

/// The peers that are asked for, each once.
fn wished(args: &ProgramsBenchArgs, own_mounts: bool) -> Result<Vec<String>, Failure> {
    let all: Vec<String> = NAMED.iter().map(|name| (*name).to_owned()).collect();
    let peers = match (args.peers.as_slice(), &args.against, own_mounts) {
        ([], Some(_), _) => Vec::new(),
        ([], None, true) => all,
        ([], None, false) => vec![TMPFS.to_owned()],
        (given, _, _) => once(given),
    };
    match peers.iter().find(|peer| !NAMED.contains(&peer.as_str()) && !peer.contains('/')) {
        None => Ok(peers),
        Some(wrong) => {
            let found = "a peer is tmpfs, ext4, xfs, none, or a directory";
            let advice = format!("a directory has a slash in its name: ./{wrong}");
            Err(Failure::new(format!("measure beside {wrong}"), found, &advice).code(2))
        }
    }
}
