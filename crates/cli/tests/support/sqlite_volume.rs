//! What the tests of SQLite's VFS share: a volume, the libraries beside it, and ways to use them.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Ran, TestDir, command, linked_library, solera};

pub const CAPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

/// A volume, and the libraries beside it.
pub struct SqliteVolume {
    pub place: TestDir,
    pub library: String,
    pub volume: String,
    pub prefix: String,
}

/// Whether SQLite's shell and header are there; says that a test is skipped if not.
fn has_sqlite() -> bool {
    let shell = Command::new("sqlite3").arg("-version").output().is_ok();
    let has = shell && Path::new("/usr/include/sqlite3.h").exists();
    if !has {
        eprintln!("skipped: sqlite3 and libsqlite3-dev are needed (scripts/setup.sh --tests)");
    }
    has
}

pub fn times(short: usize, long: usize) -> usize {
    if std::env::var_os("SOLERA_TEST_LONG").is_some() { long } else { short }
}

impl SqliteVolume {
    pub fn new() -> Option<Self> {
        if !has_sqlite() {
            return None;
        }
        let place = TestDir::new();
        let library = linked_library();
        let (volume, prefix) = (place.volume("256M"), place.prefix());
        Some(Self { place, library, volume, prefix })
    }

    /// A command that is not run by `solera run`.
    pub fn alone(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.library).env_remove("LD_PRELOAD");
        command
    }

    /// A command that is.
    pub fn run(&self, program: &str) -> Command {
        let mut command = command();
        command.env("LD_LIBRARY_PATH", &self.library);
        command.args(["run", "--volume", &self.volume, "--at", &self.prefix, "--", program]);
        command
    }

    /// SQLite's shell with the VFS, on what a name leads to.
    pub fn shell(&self, name: &str, script: &str) -> String {
        let (load, open) = (format!(".load {}/solera_vfs", self.library), format!(".open {name}"));
        let mut shell = self.alone("sqlite3");
        shell.args(["-bail", "-batch", ":memory:", &load, &open, script]).stdin(Stdio::null());
        Ran::of(&mut shell).ok()
    }

    /// SQLite's own shell, run on the volume.
    pub fn own_shell(&self, file: &str, script: &str) -> String {
        let file = format!("{}/{file}", self.prefix);
        Ran::of(self.run("sqlite3").args(["-bail", "-batch", &file, script])).ok()
    }

    pub fn uri(&self, file: &str) -> String {
        format!("file:/{file}?vfs=solera&volume={}", self.volume)
    }

    /// Nobody has the volume, and it is whole.
    pub fn end(self) {
        let info = solera(["info", "--json", &self.volume]).json();
        assert_eq!(info["attached"].as_array().map(Vec::len), Some(0));
        solera(["fsck", &self.volume]).ok();
    }
}

/// A Python whose SQLite loads extensions.
pub fn python() -> Option<&'static str> {
    let asks = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let can = |python: &&str| {
        Command::new(python).args(["-c", asks]).output().is_ok_and(|ran| ran.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(can);
    if found.is_none() {
        eprintln!("skipped: no Python loads extensions into SQLite");
    }
    found
}
