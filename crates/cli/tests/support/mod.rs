//! What the tests of the command share: directories in memory, and ways to run `solera`.

// Each test binary uses a part of this.
#![allow(dead_code)]

pub mod cleanup;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A directory in memory that goes when the test ends.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new() -> Self {
        let number = cleanup::next_number().to_string();
        let dir = cleanup::program_directory().join(number);
        fs::create_dir(&dir).expect("/dev/shm takes a directory");
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("our own names are UTF-8").to_owned()
    }

    /// A path at which nothing is, for `--at`.
    pub fn prefix(&self) -> String {
        self.text("prefix")
    }

    /// A new volume.
    pub fn volume(&self, size: &str) -> String {
        let path = self.text("v.pm");
        solera(["format", "--size", size, &path]).ok();
        path
    }

    /// The command, with its library beside it, where every user may run it: a clone may lie below
    /// a directory that is closed to others.
    pub fn for_everyone(&self) -> String {
        let own = built("solera");
        let directory = self.path("for-everyone");
        let _ = fs::create_dir(&directory);
        for name in ["solera", LIBRARY] {
            copy_program(own.with_file_name(name), directory.join(name));
            open_to_all(&directory.join(name));
        }
        open_to_all(&directory);
        open_to_all(&self.0);
        self.text("for-everyone/solera")
    }
}

/// The library that is preloaded.
pub const LIBRARY: &str = "libsolera_preload.so";

/// Copies a program that is executed, by a process of its own: a child that another test starts
/// meanwhile inherits what this one has open for writing, and it could not be executed (`ETXTBSY`).
pub fn copy_program(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(copied.success(), "cp: {copied}");
}

/// Every user may read it, and enter or run it.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

impl Drop for TestDir {
    fn drop(&mut self) {
        cleanup::unmount_below(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command did.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
    what: String,
}

impl Ran {
    pub fn new(what: String, output: &Output) -> Self {
        let status = output.status;
        Self {
            code: status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0)),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            what,
        }
    }

    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        Self::new(what, &command.output().expect("it starts"))
    }

    /// It ended with 0; gives what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        self.ended_with(0).out
    }

    /// It printed JSON.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        let begin: String = self.out.chars().take(4000).flat_map(readable).collect();
        assert_eq!(self.code, code, "{}\nstderr: {}\nstdout: {begin}", self.what, self.err);
        self
    }

    /// It failed with this code, and said why in one or two lines that contain these words.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        let ran = self.ended_with(code);
        let first = ran.err.lines().next().unwrap_or_default();
        assert!(first.starts_with("solera: "), "{}\nstderr: {}", ran.what, ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{}: `{word}` is not in: {}", ran.what, ran.err);
        }
        assert!(ran.err.lines().count() <= 3, "{}: too long: {}", ran.what, ran.err);
        assert!(!ran.err.contains("panicked"), "{}: {}", ran.what, ran.err);
    }
}

/// A character as a log may hold it: what a command printed can be a file's bytes.
fn readable(one: char) -> impl Iterator<Item = char> {
    let as_it_is = one == '\n' || !(one.is_control() || one == char::REPLACEMENT_CHARACTER);
    let escaped = (!as_it_is).then(|| one.escape_default());
    as_it_is.then_some(one).into_iter().chain(escaped.into_iter().flatten())
}

/// What is built with this test program: one directory up.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test's path");
    own.parent().and_then(Path::parent).expect("the build's directory").join(name)
}

/// The command itself.
pub fn command() -> Command {
    let program = built("solera");
    let library = program.with_file_name(LIBRARY);
    assert!(library.exists(), "{} is missing: cargo build it first", library.display());
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env_remove("LD_PRELOAD");
    command
}

/// Makes a volume's cache of huge pages, in a directory that it gives; the test destroys it.
pub fn create_cache(volume: &str) -> String {
    let made = solera(["cache", "create", volume]).ok().trim_end().to_owned();
    cleanup::goes_at_the_end(Path::new(&made).parent().expect("below the volume's directory"));
    made
}

/// Whether this test may become another user; says so if not.
pub fn can_change_user() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("only root can become another user: nothing tested");
    }
    root
}

/// A command as another user, in these groups (a list with commas) besides the one of its number.
pub fn as_user(id: u32, groups: &str, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    let groups =
        if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    command
        .args([format!("--reuid={id}"), format!("--regid={id}"), groups, program.to_owned()])
        .stdin(Stdio::null());
    command
}

/// Runs `solera` with these arguments.
pub fn solera<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(arguments: I) -> Ran {
    let mut command = command();
    command.args(arguments);
    Ran::of(&mut command)
}

/// `solera run` of a shell command line on a volume.
pub fn shell(volume: &str, at: &str, line: &str) -> Ran {
    solera(["run", "--volume", volume, "--at", at, "--", "sh", "-c", line])
}

/// A volume of a test's directory, mounted at a directory of it until the test ends.
pub struct Mounted {
    /// The volume.
    pub volume: String,
    /// The directory.
    pub at: String,
}

impl Mounted {
    /// Mounts a new volume.
    pub fn new(dir: &TestDir, size: &str, options: &[&str]) -> Self {
        let volume = dir.volume(size);
        Self::again(dir, volume, options)
    }

    /// Mounts a volume that is there.
    pub fn again(dir: &TestDir, volume: String, options: &[&str]) -> Self {
        let at = dir.text("mnt");
        let _ = fs::create_dir(&at);
        let line = [&["mount"], options, &[&volume, &at]].concat();
        solera(line).ok();
        Self { volume, at }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.at).join(name)
    }

    /// Unmounts. A child that another test is starting has copies of this process's descriptors
    /// until it executes its program: the mount is in use for that long.
    #[track_caller]
    pub fn unmount(&self) {
        let begun = Instant::now();
        loop {
            let ran = solera(["umount", &self.at]);
            if !ran.err.contains("it is in use") || begun.elapsed() > Duration::from_mins(1) {
                ran.ok();
                return;
            }
        }
    }

    /// Unmounts, and checks the volume.
    #[track_caller]
    pub fn end(self) {
        self.unmount();
        // Another test's mount name space may have a copy of the mount for a moment.
        let begun = Instant::now();
        let mut detached = solera(["detach", &self.volume]);
        while detached.code != 0 && begun.elapsed() < Duration::from_mins(1) {
            std::thread::sleep(Duration::from_millis(50));
            detached = solera(["detach", &self.volume]);
        }
        detached.ok();
        solera(["fsck", &self.volume]).ok();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It is there no more if the test went well.
        let _ = solera(["umount", "--lazy", &self.at]);
    }
}

/// Runs a shell's lines in a mount name space of their own, as root. That has copies of the mounts
/// of other tests, whose processes would not end before it does: away with them, but for the one at
/// `kept`.
pub fn with_own_mounts(kept: &str, lines: &str) -> Output {
    let script = format!(
        "findmnt -rn -t fuse.solera -o TARGET | grep -vxF '{kept}' | xargs -r -n 1 umount -l; \
         {lines}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).output().expect("unshare starts")
}

/// Whether this test may mount; says so if not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !root || !device {
        eprintln!("root and /dev/fuse are needed: nothing tested");
    }
    root && device
}

/// A file of the repository, by its name below `crates/`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// What is made once for all tests of this program, by name; each waits for its own only.
pub fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    type Made = HashMap<String, Arc<OnceLock<PathBuf>>>;
    static MADE: LazyLock<Mutex<Made>> = LazyLock::new(Mutex::default);
    let made =
        MADE.lock().expect("nobody panics with it").entry(name.to_owned()).or_default().clone();
    let path = made.get_or_init(|| {
        let dir = cleanup::program_directory().join(format!("once-{}", cleanup::next_number()));
        fs::create_dir(&dir).expect("/dev/shm takes a directory");
        open_to_all(&dir);
        make(&dir);
        dir
    });
    path.clone()
}

/// The program of a C file (its name below `crates/`), compiled with these options once for all
/// tests of this program; it has the file's name.
pub fn compiled(name: &str, options: &[&str]) -> String {
    let source = source(name);
    let program = source.file_stem().expect("a name");
    let dir = once(&format!("{name} {options:?}"), |dir| {
        compile(&source, &dir.join(program), options);
    });
    dir.join(program).to_str().expect("our own names are UTF-8").to_owned()
}

/// The directory with the explicit library and SQLite's extension, linked once.
pub fn linked_library() -> String {
    let dir = once("libsolera", |dir| {
        let archive = built("libsolera.a");
        Ran::of(Command::new(source("capi/link.sh")).arg(archive).arg(dir)).ok();
    });
    dir.to_str().expect("our own names are UTF-8").to_owned()
}

/// Compiles a C program of these tests, or of the preload library's tests.
pub fn compile(source: &Path, to: &Path, options: &[&str]) {
    let status = Command::new("cc")
        .args(["-std=gnu17", "-w", "-D_GNU_SOURCE", "-pthread", "-O1"])
        .args(options)
        .arg("-o")
        .args([to, source])
        .status()
        .expect("a C compiler, cc");
    assert!(status.success(), "cc could not compile {}", source.display());
}
