//! Each family of calls, told by a C program that runs twice: on a kernel file system and,
//! preloaded, on a volume. Their outputs, result by result and errno by errno, must be the same.
//! The programs are compiled twice, with and without `_FORTIFY_SOURCE`, which calls other symbols.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the volume appears to the programs.
const PREFIX: &str = "/solera-test";
/// Longest that a program may take.
const SECONDS_MAX: &str = "120";

/// A directory of this test's own, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let base = std::env::var_os("SOLERA_TEST_DIR")
            .map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        let place = base.join(format!("solera-preload-{name}-{}", std::process::id()));
        std::fs::create_dir_all(place.join("reference")).expect("a directory for the test");
        Self(place)
    }

    fn volume(&self) -> PathBuf {
        self.0.join("v.pm")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The library under test: beside this binary, or one directory up.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this binary's path");
    let beside = own.parent().expect("its directory");
    [beside.to_path_buf(), beside.join("..")]
        .iter()
        .map(|place| place.join("libsolera_preload.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok())
        .expect("libsolera_preload.so is built before its tests")
}

fn compile(source: &str, to: &Path, options: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let status = Command::new("cc")
        .args(["-std=gnu17", "-w", "-D_GNU_SOURCE", "-pthread"])
        .args(options)
        .arg("-o")
        .args([to, &path])
        .status()
        .expect("a C compiler, cc");
    assert!(status.success(), "cc could not compile {source}");
}

fn format(volume: &Path) {
    let options = volume::FormatOptions { size: Some(256 << 20), ..Default::default() };
    volume::format(volume, &options).expect("format");
}

fn run(program: &Path, directory: &Path, volume: Option<&Path>) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", SECONDS_MAX, "env"]);
    if let Some(volume) = volume {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(library());
        let mut place = std::ffi::OsString::from("SOLERA_VOLUME=");
        place.push(volume);
        command.arg(place).arg(format!("SOLERA_AT={PREFIX}")).arg(preload);
    }
    command.arg(program).arg(directory).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares the two outputs of one program.
fn same(name: &str) {
    for (variant, options) in
        [("plain", ["-O0", "-g"]), ("fortified", ["-O2", "-D_FORTIFY_SOURCE=2"])]
    {
        let place = Place::new(&format!("{name}-{variant}"));
        let program = place.0.join(name);
        compile(&format!("{name}.c"), &program, &options);
        format(&place.volume());
        let expected = text(&run(&program, &place.0.join("reference"), None));
        let found = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
        assert!(!expected.is_empty(), "{name} says nothing");
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(expected, found, "{name}, {variant}: expected (left), found (right)");
        }
        assert_eq!(expected.lines().count(), found.lines().count(), "{name}, {variant}");
        check_left_in_order(&place.volume());
    }
}

/// The programs detached: nobody is left, and the check finds nothing.
fn check_left_in_order(volume: &Path) {
    let info = volume::info(volume).expect("info");
    assert!(info.attached.is_empty(), "still attached: {:?}", info.attached);
    let options = volume::FsckOptions::default();
    let report = volume::fsck(volume, &options, &mut |_, _| {}).expect("fsck");
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

#[test]
fn files() {
    same("files");
}

#[test]
fn names() {
    same("names");
}

#[test]
fn streams() {
    same("streams");
}

#[test]
fn mapping() {
    same("mapping");
}

#[test]
fn processes() {
    same("processes");
}

#[test]
fn splice() {
    same("splice");
}

#[test]
fn sockets() {
    same("sockets");
}

#[test]
fn threads() {
    same("threads");
}

/// A volume that cannot be attached: the program does not run at all.
#[test]
fn without_a_volume_nothing_runs() {
    let place = Place::new("none");
    let none = place.0.join("none.pm");
    let output = run(Path::new("/bin/touch"), &place.0.join("touched"), Some(&none));
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("solera: "), "says why");
    assert!(!place.0.join("touched").exists());
}

/// What was not served stands in the report, from before an exec too.
#[test]
fn the_report_names_what_was_not_served() {
    let place = Place::new("report");
    format(&place.volume());
    let script = "cp /bin/true program && ./program && mkfifo p && ! cat p 2>/dev/null";
    let report = place.0.join("report");
    let status = Command::new("bash")
        .args(["-c", &format!("cd {PREFIX} && {script}")])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        .env("LD_PRELOAD", library())
        .status()
        .expect("bash runs");
    assert!(status.success());
    let report = std::fs::read_to_string(&report).expect("a report");
    assert!(report.contains("1 binary-copied-to-memory execve"), "{report}");
    assert!(report.contains("fifo-or-device-on-volume open"), "{report}");
}

/// Calls that a volume does not serve: each fails with its error, and is counted.
#[test]
fn what_is_not_served_is_refused() {
    let place = Place::new("refused");
    format(&place.volume());
    let program = place.0.join("refused");
    compile("refused.c", &program, &["-O1"]);
    let report = place.0.join("report");
    let output = Command::new(&program)
        .arg(PREFIX)
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let answers: Vec<&str> = said.lines().filter_map(|line| line.rsplit([' ']).next()).collect();
    let expected = ["EOPNOTSUPP", "EOPNOTSUPP", "0", "EOPNOTSUPP", "1"];
    assert_eq!(answers, expected, "{said}");
    let report = std::fs::read_to_string(&report).expect("a report");
    for reason in ["inotify", "fts", "descriptor-through-socket"] {
        assert!(report.contains(reason), "{reason}: {report}");
    }
}

/// A shell whose children are killed filled all process slots of the runtime with the dead, and
/// could not fork any more.
#[test]
fn killed_children_do_not_use_the_volume_up() {
    let place = Place::new("killed");
    format(&place.volume());
    let script = "for ((i = 0; i < 700; i++)); do (exec 3>f; kill -9 $BASHPID) & wait $!; done \
                  2>/dev/null; echo $i";
    let output = Command::new("bash")
        .args(["-c", &format!("cd {PREFIX} && {script}")])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("bash runs");
    assert_eq!(text(&output), "700\n");
    check_left_in_order(&place.volume());
}
