//! Where a program runs: in a directory of tmpfs, which is what it is compared with, and on each
//! face of the project.
//!
//! All directories have names of one length, and a run's own directory has one name on all faces,
//! so that nothing differs by the length of a path. In what a program says the path is masked.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Mounted, Ran, TestDir, built, can_mount};

/// A mode of `solera run`.
pub type Mode = &'static str;

pub const MODES: [Mode; 3] = ["posix", "sync", "strict"];

/// A place where programs run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Face {
    /// The kernel's own: what is expected.
    Tmpfs,
    Volume(Mode),
    Split(Mode),
    Mount,
}

impl fmt::Display for Face {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Tmpfs => write!(to, "tmpfs"),
            Self::Volume(mode) => write!(to, "volume, {mode}"),
            Self::Split(mode) => write!(to, "split, {mode}"),
            Self::Mount => write!(to, "mount"),
        }
    }
}

impl Face {
    /// Whether the program's calls come by the door: on a mount it is the kernel's.
    pub fn has_door(self) -> bool {
        matches!(self, Self::Volume(_) | Self::Split(_))
    }
}

/// tmpfs and one face, in directories of a test's own.
pub struct Faces {
    pub face: Face,
    dir: TestDir,
    volume: String,
    _mounted: Option<Mounted>,
}

impl Faces {
    /// `None`, and it says so, where this face cannot be had.
    pub fn new(face: Face) -> Option<Self> {
        if face == Face::Mount && !can_mount() {
            return None;
        }
        let dir = TestDir::new();
        for name in ["tmp", "spl"] {
            std::fs::create_dir(dir.path(name)).expect("a directory in memory");
        }
        let volume =
            if matches!(face, Face::Volume(_)) { dir.volume("256M") } else { String::new() };
        let mounted = (face == Face::Mount).then(|| Mounted::new(&dir, "256M", &[]));
        Some(Self { face, dir, volume, _mounted: mounted })
    }

    /// Where programs on that face find their files.
    pub fn root(&self, face: Face) -> String {
        self.dir.text(match face {
            Face::Tmpfs => "tmp",
            Face::Volume(_) => "vol",
            Face::Split(_) => "spl",
            Face::Mount => "mnt",
        })
    }

    /// A file of the test's own, which all faces see, on none of them.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path(name)
    }

    /// A name for a directory of one run.
    pub fn next_name() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("w{:06}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The command line that runs `line` on a face, for 60 s at most.
    pub fn command(&self, face: Face, line: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600"]).env_remove("LD_PRELOAD").env("LC_ALL", "C.UTF-8");
        command.stdin(std::process::Stdio::null());
        if face.has_door() {
            command.arg(built("solera")).arg("run");
        }
        match face {
            Face::Tmpfs | Face::Mount => {}
            Face::Volume(mode) => {
                command.args(["--volume", &self.volume, "--at", &self.root(face)]);
                command.args(["--mode", mode, "--"]);
            }
            Face::Split(mode) => {
                command.args(["--split", &self.root(face), "--mode", mode]);
                command.args((mode != "posix").then_some("--emulate")).arg("--");
            }
        }
        command.args(line);
        command
    }

    /// Runs `line` on a face, and gives what it said on its standard output and how it ended.
    pub fn run(&self, face: Face, line: &[&str]) -> String {
        self.masked(face, &Ran::of(&mut self.command(face, line)))
    }

    /// What a run said, without what differs in any two.
    pub fn masked(&self, face: Face, ran: &Ran) -> String {
        let mut text = ran.out.replace(&self.root(face), "ROOT");
        if ran.code != 0 {
            text.push_str("exit code ");
            text.push_str(&ran.code.to_string());
            text.push('\n');
        }
        text
    }
}
