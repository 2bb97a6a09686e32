//! The protection key: stray loads and stores of a program's into the volume's memory, from every
//! place where its code runs, fault and change nothing; pointers into it are bad arguments.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};

/// The cases of `guard.c` that end by SIGSEGV.
const FATAL: [&str; 18] = [
    "store",
    "load",
    "copy_to",
    "copy_from",
    "set",
    "thread",
    "old_thread",
    "handler",
    "handler_in_call",
    "callback",
    "after_jump",
    "filter",
    "compare",
    "glob_error",
    "end",
    "cancel",
    "image",
    "wide_rights",
];

/// Those that end in order.
const ORDERLY: [&str; 6] =
    ["child", "own_handler", "errors_kept", "small_stack", "arguments", "mapped"];

struct Guarded {
    place: TestDir,
    program: PathBuf,
    /// What is preloaded besides, and initialised first.
    early: Option<PathBuf>,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Guarded {
    fn new(name: &str) -> Self {
        let place = TestDir::new(&format!("guard-{name}"));
        let program = place.0.join("guard");
        compile("guard.c", &program, &["-O1"]);
        format(&place.volume());
        Self { place, program, early: None, variables: Vec::new() }
    }

    fn add_early(&mut self, options: &[&str]) {
        let early = self.place.0.join("early.so");
        compile("early.c", &early, &[&["-shared", "-fPIC"], options].concat());
        self.early = Some(early);
    }

    fn run(&self, case: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600", "env"]);
        let mut variable = std::ffi::OsString::from("LD_PRELOAD=");
        variable.push(library());
        command.arg(variable);
        if let Some(early) = &self.early {
            // A child attaches at its first call that needs the volume: what is preloaded besides
            // is initialised by then. The shell ends as the child does.
            let script = "LD_PRELOAD=$0 \"$@\"; code=$?
                          [ $code -lt 128 ] || kill -$((code - 128)) $$; exit $code";
            command.args(["sh", "-c", script]).arg(early);
        }
        command.arg(&self.program).arg(PREFIX).arg(case);
        command.env("SOLERA_VOLUME", self.place.volume()).env("SOLERA_AT", PREFIX);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.output().expect("the program runs")
    }

    fn volume(&self) -> PathBuf {
        self.place.volume()
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What the dead left is cleaned up, and the check finds nothing.
fn check_unharmed(volume: &Path, case: &str) {
    assert_eq!(volume::detach_dead(volume).expect(case), Vec::<u32>::new(), "{case}");
    check_left_in_order(volume);
}

/// Whether this machine has no keys, and so nothing to test.
fn without_keys() -> bool {
    let why = pmem::key::available().err();
    if let Some(why) = why {
        eprintln!("not tested: {why}");
    }
    why.is_some()
}

#[test]
fn a_stray_access_ends_the_program_and_changes_nothing() {
    if without_keys() {
        return;
    }
    let mut guarded = Guarded::new("fatal");
    guarded.add_early(&[]);
    for case in FATAL {
        let output = guarded.run(case);
        let (said, errors) = texts(&output);
        // `timeout` ends as what it ran.
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{case}: {said} {errors}");
        assert!(!said.contains("ended"), "{case}: {said}");
        let kind = if matches!(case, "load" | "copy_from") { "load from" } else { "store to" };
        let volume = guarded.volume();
        for part in [
            format!("solera: stray {kind} address 0x"),
            format!("of the volume {}", volume.display()),
            "the volume is unharmed".to_owned(),
            "--no-guard".to_owned(),
        ] {
            assert!(errors.contains(&part), "{case} does not say \"{part}\": {errors}");
        }
        if !matches!(case, "copy_to" | "copy_from" | "set") {
            // By whose code; those three are the C library's.
            let code = format!("({}+0x", guarded.program.display());
            assert!(errors.contains(&code), "{case} does not say \"{code}\": {errors}");
            let offset = "offset 0x3039 ";
            assert!(errors.contains(offset), "{case} does not say \"{offset}\": {errors}");
        }
        check_unharmed(&volume, case);
    }
}

#[test]
fn what_is_no_stray_access_goes_on() {
    if without_keys() {
        return;
    }
    let guarded = Guarded::new("orderly");
    for case in ORDERLY {
        let output = guarded.run(case);
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "{case}: {said} {errors}");
        assert_eq!(said, format!("{case}\nended\n"));
        check_unharmed(&guarded.volume(), case);
    }
}

#[test]
fn a_program_without_the_key_reaches_the_volume() {
    let mut guarded = Guarded::new("off");
    guarded.variables.push(("SOLERA_GUARD", "off".into()));
    let output = guarded.run("open_to_all");
    let (said, errors) = texts(&output);
    assert!(output.status.success() && errors.is_empty(), "{said} {errors}");
    check_left_in_order(&guarded.volume());
}

#[test]
fn without_a_key_to_be_had_the_report_says_so() {
    if without_keys() {
        return;
    }
    let mut guarded = Guarded::new("taken");
    guarded.add_early(&["-DTAKE_KEYS"]);
    let report = guarded.place.0.join("report");
    guarded.variables.push(("SOLERA_REPORT", report.clone()));
    let output = guarded.run("open_to_all");
    let (said, errors) = texts(&output);
    assert!(output.status.success() && errors.is_empty(), "{said} {errors}");
    let said = std::fs::read_to_string(&report).expect("a report");
    assert_eq!(said, "1 no-protection-key (attach) fell-back\n");
    check_left_in_order(&guarded.volume());
}
