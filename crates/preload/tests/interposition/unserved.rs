//! System calls by code outside the C library that cannot be served: the report says whose they
//! are, and why none are seen where the kernel does not tell of them.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, text};

struct Caller {
    directory: TestDir,
    program: PathBuf,
    report: PathBuf,
    is_static: bool,
}

impl Caller {
    fn new(name: &str, options: &[&str]) -> Self {
        let directory = TestDir::new(name);
        // Blanks in its name are told, too.
        let (program, report) = (directory.0.join("makes calls"), directory.0.join("report"));
        compile("unserved.c", &program, options);
        format(&directory.volume());
        Self { directory, program, report, is_static: options.contains(&"-static") }
    }

    /// Runs the program; `filtered`: the kernel gives this error to each call that switches
    /// dispatch on.
    fn run(&self, filtered: Option<i32>, arguments: &[&str]) -> Output {
        let mut command = Command::new("env");
        if let Some(error) = filtered {
            command.arg(&self.program).args(["filtered", &error.to_string(), "env"]);
        }
        let (volume, report, library) = (self.directory.volume(), &self.report, library());
        command
            .arg(format!("SOLERA_VOLUME={}", volume.display()))
            .arg(format!("SOLERA_AT={PREFIX}"))
            .arg(format!("SOLERA_REPORT={}", report.display()))
            // Else it is reported on a machine without protection keys.
            .arg("SOLERA_GUARD=off")
            .arg(format!("LD_PRELOAD={}", library.display()));
        if self.is_static {
            // The dynamic linker preloads nothing into it.
            command.arg("env");
        }
        command.arg(&self.program).args(arguments);
        command.output().expect("the program runs")
    }

    fn lines(&self) -> Vec<String> {
        let report = std::fs::read_to_string(&self.report).unwrap_or_default();
        let mut lines: Vec<String> = report.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// A raw `io_uring_setup` stood in the report as any other: nobody could tell which library of the
/// program had made it.
#[test]
fn the_report_names_the_code_that_makes_a_call() {
    let caller = Caller::new("callers", &["-O1"]);
    let other = caller.directory.0.join("lib other.so");
    compile("unserved.c", &other, &["-O1", "-shared", "-fPIC", "-DOF_LIBRARY"]);
    let (program, other) = (&caller.program, other.to_str().expect("a path of text"));
    let said = text(&caller.run(None, &["calls", PREFIX, other]));
    let refused = "program -38\nprogram -38\nrun time -38\n32 bits -38\nlibc -38\nlibrary -38\n";
    assert_eq!(said, refused);
    let escaped = |path: &str| path.replace(' ', "\\040");
    let program = escaped(program.to_str().expect("a path of text"));
    let mut expected = vec![
        format!("2 kernel-aio io_uring_setup ENOSYS by={program}"),
        "1 kernel-aio io_uring_setup ENOSYS by=[anonymous]".to_owned(),
        format!("1 system-call-of-32-bit int-0x80 ENOSYS by={program}"),
        // By the C library's own function.
        "1 kernel-aio io_uring_setup ENOSYS".to_owned(),
        format!("1 kernel-aio io_uring_setup ENOSYS by={}", escaped(other)),
    ];
    expected.sort();
    assert_eq!(caller.lines(), expected);
    check_left_in_order(&caller.directory.volume());
}

/// The same of a static program, which a host runs: it is the program's file that is named.
#[test]
fn the_report_names_a_static_program() {
    let caller = Caller::new("static-caller", &["-O1", "-static"]);
    text(&caller.run(None, &["calls", PREFIX, ""]));
    let program = caller.program.to_str().expect("a path of text").replace(' ', "\\040");
    let told = format!("3 kernel-aio io_uring_setup ENOSYS by={program}");
    let lines = caller.lines();
    assert!(lines.contains(&told), "{told}: {lines:?}");
    let told = "1 kernel-aio io_uring_setup ENOSYS by=[anonymous]";
    assert!(lines.iter().any(|line| line == told), "{told}: {lines:?}");
}

/// A kernel before 5.11 does not know the `prctl` (`EINVAL`), one in user code may know nothing of
/// it (`ENOSYS`), a sandbox forbids it (`EPERM`): said once, and the C library's calls are served
/// in all threads and children.
#[test]
fn without_dispatch_the_c_library_is_served() {
    for error in [libc::EINVAL, libc::EPERM, libc::ENOSYS] {
        let caller = Caller::new(&format!("undispatched-{error}"), &["-O1"]);
        let said = text(&caller.run(Some(error), &["seen", PREFIX]));
        for (number, line) in said.lines().enumerate() {
            let answer = if number % 2 == 0 { "libc 0" } else { "own -2" };
            assert!(line.ends_with(answer), "{error}: {said}");
        }
        assert_eq!(said.lines().count(), 8, "{said}");
        assert_eq!(caller.lines(), ["1 no-system-call-dispatch prctl fell-back"], "{error}");
        check_left_in_order(&caller.directory.volume());
    }
}

/// A program that no C library's door serves needs it: it is refused as before there were hosts.
#[test]
fn without_dispatch_a_static_program_does_not_run() {
    let caller = Caller::new("undispatched-static", &["-O1", "-static"]);
    let output = caller.run(Some(libc::EPERM), &["seen", PREFIX]);
    assert_eq!(output.status.code(), Some(126));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it is statically linked, so it cannot use the volume"), "{said}");
}

/// A program sets a filter itself, which may end a process that asks for more: threads that begin
/// after it are left alone, those before it are served.
#[test]
fn threads_behind_a_filter_are_told() {
    let caller = Caller::new("behind", &["-O1"]);
    let said = text(&caller.run(None, &["behind", PREFIX]));
    let thread = "thread: libc 0\nthread: own -2\n".repeat(3);
    let expected = format!("main: libc 0\nmain: own 0\n{thread}run time -38\nprogram -38\n");
    assert_eq!(said, expected);
    let program = caller.program.to_str().expect("a path of text").replace(' ', "\\040");
    let expected = [
        format!("1 kernel-aio io_uring_setup ENOSYS by={program}"),
        // The kernel's list of mappings is not asked for behind a filter.
        "1 kernel-aio io_uring_setup ENOSYS by=[unknown]".to_owned(),
        "3 no-system-call-dispatch-behind-a-filter clone fell-back".to_owned(),
    ];
    assert_eq!(caller.lines(), expected);
}
