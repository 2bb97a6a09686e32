//! What the tests of the preload library share: a place of their own, C programs compiled and run
//! on a kernel file system and, preloaded, on a volume.
#![allow(dead_code)] // Each test uses its part.

pub mod mounted;
pub mod sweeper;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where the volume appears to the programs.
pub const PREFIX: &str = "/solera-test";
/// How the names of all directories of these tests begin.
const DIRECTORIES: &str = "solera-preload";
/// Longest that a program may take.
const SECONDS_MAX: &str = "600";

/// Seeded, for choices: not 0.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One of all of `what`, by rotation; all in long tests.
pub fn one_of<'a, T>(what: &str, all: &'a [T]) -> &'a [T] {
    if rotation::all() {
        return all;
    }
    let at = rotation::turn(what, all.len() as u32) as usize;
    &all[at..=at]
}

/// A directory of this test's own, removed at its end.
pub struct TestDir(pub PathBuf);

impl TestDir {
    /// A directory of its own, also where two tests of one process give it one name.
    pub fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let base = std::env::var_os("SOLERA_TEST_DIR")
            .map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        sweeper::start(&base, DIRECTORIES);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let place = base.join(format!("{DIRECTORIES}-{process}-{number}-{name}"));
        std::fs::create_dir_all(place.join("reference")).expect("a directory for the test");
        Self(place)
    }

    pub fn volume(&self) -> PathBuf {
        self.0.join("v.pm")
    }

    /// A copy of the library that every user may read: a clone may lie below a directory that is
    /// closed to others.
    pub fn library_for_everyone(&self) -> PathBuf {
        let copy = self.0.join("libsolera_preload.so");
        std::fs::copy(library(), &copy).expect("a copy of the library");
        for path in [&copy, &self.0] {
            let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, rights).expect("its mode");
        }
        copy
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The library under test: beside this binary, or one directory up.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this binary's path");
    let beside = own.parent().expect("its directory");
    [beside.to_path_buf(), beside.join("..")]
        .iter()
        .map(|place| place.join("libsolera_preload.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok())
        .expect("libsolera_preload.so is built before its tests")
}

/// Compiles a C program of these tests, or copies what was compiled of the same text before: one
/// lies below `target/tmp` for each text, compiler and options.
pub fn compile(source: &str, to: &Path, options: &[&str]) {
    // One that names a directory of this test's own is of no use to others.
    if options.iter().any(|option| option.starts_with('/')) {
        return compile_now(source, to, options);
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload-c");
    std::fs::create_dir_all(&kept).expect("a directory below target");
    let program = kept.join(format!("{source}-{:016x}", text_hash(source, options)));
    if !program.exists() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let new = kept.join(format!("new-{}-{number}", std::process::id()));
        compile_now(source, &new, options);
        // One that is there already stays: another test may be copying it.
        let named = std::fs::hard_link(&new, &program);
        assert!(named.is_ok() || program.exists(), "its name: {named:?}");
        std::fs::remove_file(&new).expect("removed");
    }
    // By a process of its own: a child that another test starts would have the copy open for
    // writing, and it could not be executed.
    let status = Command::new("cp").args([&program, to]).status().expect("cp");
    assert!(status.success(), "cp {} {}", program.display(), to.display());
}

/// What a program of these tests is compiled of, and by what.
fn text_hash(source: &str, options: &[&str]) -> u64 {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = Command::new("cc").arg("--version").output().expect("a C compiler").stdout;
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let files = std::fs::read_dir(directory).expect("the C programs");
        let mut headers: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
        headers.sort();
        for header in headers {
            all.extend(std::fs::read(header).expect("a header"));
        }
        all
    });
    let own = std::fs::read(source_path(source)).expect("a C program");
    let mut hasher = DefaultHasher::new();
    (all, own, options).hash(&mut hasher);
    hasher.finish()
}

fn source_path(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source)
}

fn compile_now(source: &str, to: &Path, options: &[&str]) {
    let status = Command::new("cc")
        .args(["-std=gnu17", "-w", "-D_GNU_SOURCE", "-pthread"])
        .args(options)
        .arg("-o")
        .args([to, &source_path(source)])
        .status()
        .expect("a C compiler, cc");
    assert!(status.success(), "cc could not compile {source}");
}

pub fn format(volume: &Path) {
    let options = volume::FormatOptions { size: Some(256 << 20), ..Default::default() };
    volume::format(volume, &options).expect("format");
}

pub fn run(program: &Path, directory: &Path, volume: Option<&Path>) -> Output {
    run_with(&library(), program, directory, volume)
}

/// The same, with this copy of the library.
pub fn run_with(library: &Path, program: &Path, directory: &Path, volume: Option<&Path>) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", SECONDS_MAX, "env"]);
    if let Some(volume) = volume {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(library);
        let mut place = std::ffi::OsString::from("SOLERA_VOLUME=");
        place.push(volume);
        command.arg(place).arg(format!("SOLERA_AT={PREFIX}")).arg(preload);
    }
    command.arg(program).arg(directory).output().expect("the program runs")
}

/// A soft limit of numbers below the hard one, as most systems set it: the library's own stand
/// beyond it then.
const SOFT_LIMIT: &str = "--nofile=1024:";

/// Runs a static program, under such a limit: the dynamic linker preloads nothing into it, so one
/// that it does starts it.
pub fn run_hosted(program: &Path, directory: &Path, volume: &Path) -> Output {
    let mut command = limited();
    command.env("SOLERA_VOLUME", volume).env("SOLERA_AT", PREFIX).env("LD_PRELOAD", library());
    command.arg(program).arg(directory).output().expect("the program runs")
}

/// The same without a volume.
fn run_limited(program: &Path, directory: &Path) -> Output {
    limited().arg(program).arg(directory).output().expect("the program runs")
}

fn limited() -> Command {
    let mut command = Command::new("prlimit");
    command.args([SOFT_LIMIT, "timeout", "-k", "5", SECONDS_MAX, "env"]);
    command
}

pub fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Refuses two outputs that differ, and shows where.
#[track_caller]
pub fn assert_same(name: &str, expected: &str, found: &str) {
    assert!(!expected.is_empty(), "{name} says nothing");
    let pairs = expected.lines().zip(found.lines());
    let differ: Vec<_> = pairs.filter(|(one, other)| one != other).take(20).collect();
    assert!(differ.is_empty(), "{name}: expected, found: {differ:#?}");
    assert_eq!(expected.lines().count(), found.lines().count(), "{name}");
}

/// Whether a program can be run here; says so if it cannot.
pub fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Programs that are another thing if they are static, and why.
const NEVER_STATIC: [(&str, &str); 5] = [
    ("answers", "musl's and glibc's `getcwd` beyond PATH_MAX looks for names, of which / has none"),
    ("exits", "`exit` takes away the tables that another thread's `pthread_exit` unwinds by"),
    ("second_libc", "a static program has one name space of libraries"),
    ("lends", "a guest's child gets a copy of the memory that natively it shares until its exec"),
    ("forks", "a child that shares memory for good, which the C library's own calls would begin"),
];

/// Compares the two outputs of one program, compiled in one of three ways, by rotation. The static
/// one is run by a host (`crates/host`).
pub fn same(name: &str) {
    let variants = [
        ("plain", ["-O0", "-g"]),
        ("fortified", ["-O2", "-D_FORTIFY_SOURCE=2"]),
        ("static", ["-O1", "-static"]),
    ];
    let is_one =
        |variant: &str| variant != "static" || NEVER_STATIC.iter().all(|one| one.0 != name);
    let variants: Vec<_> = variants.into_iter().filter(|(variant, _)| is_one(variant)).collect();
    for (variant, options) in one_of(&format!("same/{name}"), &variants) {
        compare(name, variant, options);
    }
}

/// The same of the static one, in each run.
pub fn same_hosted(name: &str) {
    compare(name, "static", &["-O1", "-static"]);
}

fn compare(name: &str, variant: &str, options: &[&str]) {
    let place = TestDir::new(&format!("{name}-{variant}"));
    let program = place.0.join(name);
    compile(&format!("{name}.c"), &program, options);
    format(&place.volume());
    let (reference, is_static) = (place.0.join("reference"), variant == "static");
    let expected =
        if is_static { run_limited(&program, &reference) } else { run(&program, &reference, None) };
    let expected = text(&expected);
    let (volume, directory) = (place.volume(), Path::new(PREFIX));
    let found = if is_static {
        run_hosted(&program, directory, &volume)
    } else {
        run(&program, directory, Some(&volume))
    };
    let found = text(&found);
    assert!(!expected.is_empty(), "{name} says nothing");
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert_eq!(expected, found, "{name}, {variant}: expected (left), found (right)");
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{name}, {variant}");
    check_left_in_order(&place.volume());
}

/// The programs detached: no process is left, and the check finds nothing.
pub fn check_left_in_order(volume: &Path) {
    let attached = || volume::info(volume).expect("info").attached;
    // A daemon may be on its way out: no process waits for it.
    let begun = Instant::now();
    while !attached().is_empty() && begun.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = attached();
    assert!(left.is_empty(), "still attached: {left:?}");
    let options = volume::FsckOptions::default();
    let report = volume::fsck(volume, &options, &mut |_, _| {}).expect("fsck");
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// Every process of the second engine took what it had made in the hidden directory away again.
pub fn only_the_table_is_left(directory: &Path) {
    let home = directory.join(split::HOME_NAME);
    let left: Vec<_> = std::fs::read_dir(&home)
        .expect("the hidden directory")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name != "records" && name != "alive")
        .collect();
    assert!(left.is_empty(), "left in {}: {left:?}", home.display());
}
