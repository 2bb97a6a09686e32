//! `solera run`: the report of a program and all that it starts, strictness, bypassed programs.

mod support;

use std::fs;

use support::{Place, Ran, solera};

/// Four processes make the volume their root, which it does not serve. One program is executed from
/// the volume, which is a detour.
const SCRIPT: &str = "cd $0 && cp /bin/cat . && ./cat /dev/null; PATH=$PATH:/usr/sbin; \
                      { chroot .; chroot .; chroot .; } 2>/dev/null; \
                      sh -c 'chroot .' 2>/dev/null; exit 3";

fn run(place: &Place, volume: &str, options: &[&str], script: &str) -> Ran {
    let at = place.prefix();
    let head = ["run", "--volume", volume, "--at", &at];
    let program = ["--", "sh", "-c", script, &at];
    solera(head.iter().chain(options).chain(&program))
}

#[test]
fn the_report_counts_over_all_processes() {
    let place = Place::new();
    let volume = place.volume("64M");
    let told = run(&place, &volume, &["--report"], SCRIPT).ended_with(3).err;
    let row = |reason: &str| {
        let line = told.lines().find(|line| line.contains(reason));
        line.unwrap_or_else(|| panic!("{reason}: {told}")).to_owned()
    };
    let root = row("chroot-onto-volume");
    assert!(root.contains("refused: EPERM") && root.ends_with(" 4"), "{told}");
    let copied = row("binary-copied-to-memory");
    assert!(copied.contains("served by a detour") && copied.ends_with(" 1"), "{told}");
}

#[test]
fn the_report_is_cut_to_the_most_frequent_and_written_as_json() {
    let place = Place::new();
    let volume = place.volume("64M");
    let file = place.text("report");
    // Without the guard: on a machine without protection keys it would be reported too.
    let options = ["--no-guard", "--report=1", "--json", "--report-file", &file];
    let ran = run(&place, &volume, &options, SCRIPT).ended_with(3);
    assert_eq!(ran.err, "", "the report is in the file");
    let text = fs::read_to_string(&file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["refused_calls"], &report["detour_calls"]), (&4.into(), &1.into()));
    assert_eq!(report["calls"].as_array().map(Vec::len), Some(1), "{text}");
    let first = &report["calls"][0];
    assert_eq!((&first["error"], &first["calls"]), (&"EPERM".into(), &4.into()), "{text}");
    run(&place, &volume, &["--report=many"], "true").ended_with(125);
}

#[test]
fn a_strict_program_is_ended_where_it_is_not_served() {
    let place = Place::new();
    let volume = place.volume("64M");
    let served = "cd $0 && echo x > f && cp f g && mv g h && cat h && rm f h";
    assert_eq!(run(&place, &volume, &["--strict-support"], served).ok(), "x\n");
    let ran = run(&place, &volume, &["--strict-support"], "cd $0 && /usr/sbin/chroot .; echo $?");
    assert_eq!(ran.out, format!("{}\n", 128 + libc::SIGABRT), "{}", ran.err);
    assert!(ran.err.contains("solera: chroot is not served"), "{}", ran.err);
    assert!(ran.err.contains("chroot-onto-volume, EPERM"), "{}", ran.err);
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_bypassed_program_does_not_see_the_volume() {
    let place = Place::new();
    let volume = place.volume("64M");
    let script = "echo x > $0/f; cat $0/f || env cat $0/f || echo hidden";
    let twice = run(&place, &volume, &["--bypass", "other", "--bypass", "cat"], script);
    assert_eq!(twice.ok(), "hidden\n");
    let ran = run(&place, &volume, &["--bypass", "env"], "env cat $0/f; cat $0/f");
    assert_eq!(ran.ok(), "x\nx\n", "what a bypassed program starts sees it");
    let wrong = run(&place, &volume, &["--bypass", "a:b"], "true");
    wrong.refused(125, &["a:b", "colon"]);
}

/// How appended bytes are to be moved is told to the library; what is none of the ways is refused.
#[test]
fn the_way_of_relinks_is_passed_on() {
    let place = Place::new();
    let directory = place.text("files");
    fs::create_dir(&directory).expect("a directory");
    let told = |options: &[&str]| {
        let program = ["--", "sh", "-c", "echo ${SOLERA_SPLIT_RELINK-none}"];
        solera(["run", "--split", &directory].iter().chain(options).chain(&program))
    };
    for way in ["exchange", "clone", "copy"] {
        assert_eq!(told(&["--relink", way]).ok(), format!("{way}\n"));
    }
    assert_eq!(told(&[]).ok(), "none\n");
    let wrong = told(&["--relink", "move"]).ended_with(125).err;
    assert!(wrong.contains("'move'") && wrong.contains("exchange, clone, copy"), "{wrong}");
    let alone = solera(["run", "--relink", "copy", "--", "true"]).ended_with(125).err;
    assert!(alone.contains("--split <DIR>"), "{alone}");
}

/// The kernel tells which key a mapping lies under.
#[test]
fn the_volume_lies_under_a_protection_key_unless_it_is_not_wanted() {
    let place = Place::new();
    let volume = place.volume("64M");
    let script = format!(
        "awk -v file={volume} 'index($0, file) {{ r = 1 }} \
         r && /^ProtectionKey:/ {{ print $2; exit }}' /proc/self/smaps"
    );
    let json = solera(["info", "--json", &volume]).json();
    let guarded = pmem::key::available().is_ok();
    assert_eq!(json["protection_key"], serde_json::Value::Bool(guarded));
    let key = run(&place, &volume, &[], &script).ok();
    // A kernel without keys prints no such line.
    assert_eq!(!matches!(key.trim(), "" | "0"), guarded, "{key}");
    let without = run(&place, &volume, &["--no-guard"], &script).ok();
    assert!(matches!(without.trim(), "" | "0"), "{without}");
}
