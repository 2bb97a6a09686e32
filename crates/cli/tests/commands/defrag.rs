//! `solera defrag`: what it makes whole, what it leaves alone, and what it says about that.

use crate::support::{Mounted, TestDir, can_mount, shell, solera};
use std::fs;

/// Writes two files of 5 MiB in turns of 64 KiB, their second pieces first.
const IN_TURNS: &str = r#"
    cd "$AT" && mkdir -p d/e
    for n in $(seq 79 -1 0); do
        for f in d/one d/e/two; do
            head -c 65536 /dev/urandom | dd of=$f bs=65536 seek=$n conv=notrunc status=none
        done
    done
    sha256sum d/one d/e/two"#;

/// A volume with two scattered files, and what `sha256sum` says of them.
fn scattered(place: &TestDir) -> (String, String) {
    let volume = place.volume("128M");
    let sums = shell(&volume, &place.prefix(), &IN_TURNS.replace("$AT", &place.prefix())).ok();
    (volume, sums)
}

fn sums(place: &TestDir, volume: &str) -> String {
    shell(volume, &place.prefix(), &format!("cd {} && sha256sum d/one d/e/two", place.prefix()))
        .ok()
}

#[test]
fn files_below_a_directory_become_whole() {
    let place = TestDir::new();
    let (volume, before) = scattered(&place);
    let huge = |path: &str| {
        solera(["map", "--json", &format!("{volume}:{path}")]).json()["huge_bytes"].as_u64()
    };
    assert!(huge("/d/one") < Some(4 << 20), "it lies scattered");
    let told = solera(["defrag", "--dry-run", "--json", &volume]).json();
    assert_eq!((told["files"].as_u64(), told["moved_bytes"].as_u64()), (Some(2), Some(0)));
    assert!(huge("/d/one") < Some(4 << 20), "a dry run moves nothing");
    let told = solera(["defrag", "--json", &format!("{volume}:/d/e")]).json();
    assert_eq!((told["files"].as_u64(), huge("/d/e/two")), (Some(1), Some(4 << 20)));
    assert!(huge("/d/one") < Some(4 << 20), "it is not below that directory");
    let told = solera(["defrag", "--json", &format!("{volume}:/d")]).json();
    assert_eq!(told["files_rewritten"], 1);
    assert_eq!(told["huge_bytes_after"], 8 << 20);
    assert_eq!(huge("/d/one"), Some(4 << 20));
    let again = solera(["defrag", &volume]).ok();
    assert!(again.starts_with("0 files rewritten, 0 B moved; of 4 whole 2 MiB in 2 files, 4 "));
    assert_eq!(sums(&place, &volume), before);
    solera(["fsck", &volume]).ok();
    solera(["defrag", &format!("{volume}:/none")]).refused(1, &["No such file"]);
}

/// Maps the empty file of `sys.argv[1]`, writes it back to front, runs the rest of its arguments.
const MAPPED: &str = "\
import mmap, os, subprocess, sys
f = open(sys.argv[1], 'w+b')
f.truncate(4 << 20)
m = mmap.mmap(f.fileno(), 4 << 20, access=mmap.ACCESS_COPY)
for n in range(63, -1, -1): os.pwrite(f.fileno(), bytes([n + 1]) * 65536, n * 65536)
print(subprocess.run(sys.argv[2:], capture_output=True, text=True))";

#[test]
fn a_mapped_file_stays_where_it_is_until_it_is_closed() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("128M"), place.prefix());
    let (inside, outside) = (format!("{at}/f"), format!("{volume}:/f"));
    let run = ["run", "--volume", &volume, "--at", &at, "--", "python3", "-c", MAPPED, &inside];
    let defrag = [env!("CARGO_BIN_EXE_solera"), "defrag", "--json", &outside];
    let told = solera(run.iter().chain(&defrag)).ok();
    assert!(told.contains("returncode=1") && told.contains("a program has mapped it"), "{told}");
    let map = solera(["map", "--json", &outside]).json();
    assert_eq!(map["huge_bytes"], 4 << 20, "its last close made it whole: {map}");
    let sum = format!(
        "for n in $(seq 64); do head -c 65536 /dev/zero | tr '\\0' \"\\\\$(printf %o $n)\"; done | \
         cmp - {inside}"
    );
    shell(&volume, &at, &sum).ok();
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_mount_names_files_too() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "128M", &[]);
    for n in (0..40).rev() {
        use std::os::unix::fs::FileExt;
        let mut options = fs::File::options();
        options.create(true).write(true).truncate(false);
        let file = options.open(mounted.path("f")).expect("it is made");
        file.write_all_at(&vec![n as u8 + 1; 65536], n * 65536).expect("it is written");
    }
    let told = solera(["defrag", "--json", mounted.path("f").to_str().expect("UTF-8")]).json();
    assert_eq!(told["huge_bytes_after"], 2 << 20, "{told}");
    let bytes = fs::read(mounted.path("f")).expect("it is read");
    assert!(bytes.chunks(65536).zip(1..).all(|(piece, n): (_, u8)| piece.iter().all(|&b| b == n)));
    mounted.end();
}

#[test]
fn names_of_all_kinds_are_taken_or_refused() {
    let place = TestDir::new();
    let (volume, before) = scattered(&place);
    let more = "cd $AT && ln d/one d/again && ln -s d/one link && ln -s loop loop && mkfifo fifo \
                && truncate -s 1G d/sparse && mkdir bad && touch \"bad/$(printf 'a\\377b')\"";
    shell(&volume, &place.prefix(), &more.replace("$AT", &place.prefix())).ok();
    let told = solera(["defrag", "--json", &format!("{volume}:/link")]).json();
    assert_eq!((&told["files"], &told["huge_bytes_after"]), (&1.into(), &(4 << 20).into()));
    let told = solera(["defrag", "--json", &volume]).json();
    let expected = serde_json::json!({
        "dry_run": false,
        // A file with two names counts once; the sparse one has nothing to be moved.
        "files": 4,
        "files_rewritten": 1,
        "huge_bytes_before": 4 << 20,
        "huge_bytes_after": 8 << 20,
        "whole_chunk_bytes": (8 << 20) + (1 << 30),
        "moved_bytes": 5 << 20,
        "left": [],
        "interrupted": false,
    });
    assert_eq!(told, expected);
    solera(["defrag", &format!("{volume}:/fifo")]).refused(1, &["Invalid argument"]);
    solera(["defrag", &format!("{volume}:/loop")]).refused(1, &["symbolic links"]);
    solera(["defrag", &format!("{volume}:/d/one/x")]).refused(1, &["Not a directory"]);
    assert_eq!(sums(&place, &volume), before);
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_full_volume_is_told_and_left_as_it_is() {
    let place = TestDir::new();
    let (volume, before) = scattered(&place);
    let fill = "cd $AT; for size in 1048576 65536 4096; do \
                while head -c $size /dev/zero >> fill 2> /dev/null; do :; done; done; true";
    shell(&volume, &place.prefix(), &fill.replace("$AT", &place.prefix())).ok();
    let told = solera(["defrag", &volume]).ended_with(1).out;
    let words = "no free chunk of 2 MiB is left";
    assert!(told.contains(words), "{told}");
    let told: serde_json::Value =
        serde_json::from_str(&solera(["defrag", "--json", &volume]).ended_with(1).out).unwrap();
    let left = told["left"].as_array().unwrap();
    assert!(!left.is_empty() && left.iter().all(|file| file["reason"] == words), "{told}");
    assert_eq!(sums(&place, &volume), before);
    solera(["fsck", &volume]).ok();
}

/// Whenever the signal comes: what is there stays right, the volume is left in order, and what was
/// not done is done by the next one.
#[test]
fn it_stops_at_a_signal_in_good_order() {
    let place = TestDir::new();
    let (volume, before) = scattered(&place);
    for pause in [0, 2, 5, 10, 20, 40] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_solera"))
            .args(["defrag", "--json", &volume])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let pid = rustix::process::Pid::from_child(&child);
        // It may have ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let mut told = String::new();
        let mut out = child.stdout.take().expect("it is piped");
        std::io::Read::read_to_string(&mut out, &mut told).expect("it tells");
        let status = child.wait().expect("it ends");
        // None: before it had begun to listen.
        if let Some(code) = status.code() {
            let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
            assert_eq!(told["interrupted"], code == 130, "{code}: {told}");
            assert!([0, 130].contains(&code), "{code}");
        }
        assert_eq!(sums(&place, &volume), before);
    }
    assert_eq!(solera(["defrag", "--json", &volume]).json()["huge_bytes_after"], 8 << 20);
    solera(["fsck", &volume]).ok();
}

/// Ends of files of less than 2 MiB, in pieces, for which a full volume has no better place: that
/// was told as chunks that were lacking, with 1, though no huge page could come of it.
#[test]
fn nothing_to_do_on_a_full_volume_is_no_failure() {
    let place = TestDir::new();
    let volume = place.volume("32M");
    let fill = "cd $AT; for n in 1 2 3 4; do for f in a b c; do head -c 65536 /dev/zero >> $f; \
                done; done; for size in 1048576 65536 4096; do \
                while head -c $size /dev/zero >> fill 2> /dev/null; do :; done; done; true";
    shell(&volume, &place.prefix(), &fill.replace("$AT", &place.prefix())).ok();
    let map = solera(["map", "--json", &format!("{volume}:/a")]).json();
    assert!(map["extents"].as_array().unwrap().len() > 1, "it lies in pieces: {map}");
    let told = solera(["defrag", "--json", &format!("{volume}:/a"), &format!("{volume}:/b")]);
    let told = told.json();
    assert_eq!((&told["left"], &told["whole_chunk_bytes"]), (&serde_json::json!([]), &0.into()));
    solera(["fsck", &volume]).ok();
}
