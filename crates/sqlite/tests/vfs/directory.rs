//! A directory of a test's own, with the libraries in it, and the programs that it runs there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// The VFS of ours and the one that it is compared with.
pub const BOTH: [&str; 2] = ["unix", "solera"];

/// Gone with the test.
pub struct TestDir(pub PathBuf);

/// Whether a command is there; says that a test is skipped if not.
pub fn is_there(command: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {command}")]).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    if !is_there {
        println!("skipped: there is no {command} (scripts/setup.sh --tests)");
    }
    is_there
}

/// How often something is done: more in the long run.
pub fn times(short: usize, long: usize) -> usize {
    if rotation::all() { long } else { short }
}

/// What a command said; it must end well.
pub fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&stderr));
    said
}

impl TestDir {
    pub fn new() -> Self {
        let base = std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into());
        Self::below(Path::new(&base))
    }

    /// The same, for programs that have SQLite linked; says that a test is skipped without.
    pub fn for_programs() -> Option<Self> {
        if Path::new("/usr/include/sqlite3.h").exists() {
            return Some(Self::new());
        }
        println!("skipped: there is no libsqlite3-dev (scripts/setup.sh --tests)");
        None
    }

    /// In a directory that may be none of memory.
    pub fn below(base: &Path) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = Self(base.join(format!("solera-sqlite-{}-{number}", std::process::id())));
        std::fs::create_dir_all(&place.0).expect("a directory");
        crate::library::show_in(&place.0);
        place
    }

    /// The path of a file there.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A command that works there.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.0).env("LD_LIBRARY_PATH", &self.0).stdin(Stdio::null());
        // A window at once, unless a test says otherwise.
        command.env("SOLERA_SQLITE_AFTER", "0");
        command
    }

    /// SQLite's shell, with the VFS loaded, on the database that `uri` names.
    pub fn shell(&self, uri: &str, script: &str) -> Command {
        let mut command = self.command("sqlite3");
        command.args(["-batch", ":memory:", ".load ./solera_vfs", &format!(".open {uri}"), script]);
        command
    }

    /// Compiles a program of tests/c; warnings are errors.
    pub fn compile(&self, name: &str) -> PathBuf {
        let program = self.0.join(name);
        said(
            Command::new("cc")
                .args(["-std=gnu99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"])
                .arg(format!("-I{CRATE}/../capi/include"))
                .args(["-o".as_ref(), program.as_os_str()])
                .arg(format!("{CRATE}/tests/c/{name}.c"))
                .arg(format!("-L{}", self.0.display()))
                .args(["-lsolera", "-lsqlite3", "-ldl"]),
        );
        program
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
