//! The kernel's own asynchronous calls: refused while a volume is attached, the kernel's otherwise.

use std::path::Path;
use std::process::Command;

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, run, text};

/// What the program says on the volume, with these variables.
fn preloaded(place: &TestDir, directory: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(place.0.join("rings"));
    command.arg(directory).env("SOLERA_AT", PREFIX).env("LD_PRELOAD", library());
    command.env("SOLERA_VOLUME", place.volume()).envs(variables.iter().copied());
    text(&command.output().expect("the program runs"))
}

fn answers(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with(['S', 'i'])).collect()
}

#[test]
fn rings_are_refused_while_a_volume_is_attached() {
    let place = TestDir::new("rings");
    compile("rings.c", &place.0.join("rings"), &["-O1"]);
    format(&place.volume());
    let report = place.0.join("report");
    let report_path = report.to_str().expect("a path of text");
    // They are no reason to end a strict program either: it has its own way without them.
    let variables = [("SOLERA_REPORT", report_path), ("SOLERA_STRICT_SUPPORT", "1")];
    let said = preloaded(&place, Path::new(PREFIX), &variables);
    let refused = answers(&said);
    assert_eq!(refused.len(), 10, "{said}");
    assert!(refused.iter().all(|line| line.ends_with(" ENOSYS")), "{said}");
    let report = std::fs::read_to_string(&report).expect("a report");
    for line in [
        "4 kernel-aio io_setup ENOSYS",
        "2 kernel-aio io_queue_init ENOSYS",
        "2 kernel-aio io_uring_setup ENOSYS",
        "1 kernel-aio io_uring_queue_init ENOSYS",
        "1 kernel-aio io_uring_queue_init_params ENOSYS",
    ] {
        assert!(report.lines().any(|told| told == line), "{line}: {report}");
    }
    check_left_in_order(&place.volume());
}

#[test]
fn rings_are_the_kernels_if_asked_for_or_without_a_volume() {
    let place = TestDir::new("rings-allowed");
    compile("rings.c", &place.0.join("rings"), &["-O1"]);
    format(&place.volume());
    let directory = place.0.join("reference");
    let expected = text(&run(&place.0.join("rings"), &directory, None));
    let report = place.0.join("report");
    let report_path = report.to_str().expect("a path of text");
    // Without the guard: on a machine without protection keys it would be reported too.
    let allowed =
        [("SOLERA_KERNEL_AIO", "allow"), ("SOLERA_REPORT", report_path), ("SOLERA_GUARD", "off")];
    assert_eq!(preloaded(&place, Path::new(PREFIX), &allowed), expected);
    assert!(!report.exists(), "nothing was refused");
    assert_eq!(preloaded(&place, &directory, &[("SOLERA_BYPASS", "rings")]), expected);
}
