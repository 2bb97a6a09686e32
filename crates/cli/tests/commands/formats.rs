//! Volumes that earlier releases made, as `tests/formats/keep` kept them: this build reads them,
//! recovers them, works on them, and converts them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ran, TestDir, shell, solera};

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/formats");
const STREAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/stream.py");

/// A kept volume, and the text of what it holds.
struct Kept {
    place: TestDir,
    volume: String,
    held: String,
}

/// The names of all that are kept, with and without a program that was killed.
fn kept(was_killed: bool) -> Vec<String> {
    let entries = fs::read_dir(KEPT).expect("volumes are kept").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter_map(|name| name.strip_suffix(".xz").map(str::to_owned));
    let mut names: Vec<_> = names.filter(|name| name.strip_suffix(".txt").is_none()).collect();
    names.retain(|name| name.ends_with("-killed") == was_killed);
    names.sort();
    assert!(!names.is_empty(), "{KEPT}: nothing is kept");
    names
}

impl Kept {
    fn of(name: &str) -> Self {
        let place = TestDir::new();
        let volume = place.text("v.pm");
        let packed = format!("{KEPT}/{name}.xz");
        let keep = Path::new(KEPT).join("keep");
        Ran::of(Command::new(&keep).args(["unpack", &packed, &volume])).ok();
        let text = place.text("held");
        let told = format!("{KEPT}/{}.txt.xz", name.trim_end_matches("-killed"));
        Ran::of(Command::new(keep).args(["unpack", &told, &text])).ok();
        let held = fs::read_to_string(text).expect("what it holds");
        Self { place, volume, held }
    }

    fn run(&self, line: &str) -> String {
        shell(&self.volume, &self.place.prefix(), line).ok()
    }

    /// What it held is there still, object by object; what was being worked on is whole.
    fn is_whole(&self) {
        let at = self.place.prefix();
        let told = self.run(&format!("python3 {STREAM} tell {at}"));
        // Beside it, what was worked on when the program was killed.
        let own = |line: &&str| !line.starts_with("[b'./worked") && !line.starts_with("[b'.',");
        let (held, told) = (self.held.lines().filter(own), told.lines().filter(own));
        let mut told: Vec<_> = told.collect();
        told.retain(|line| !line.starts_with("[b'./used"));
        let held: Vec<_> = held.collect();
        for (held, told) in held.iter().zip(&told) {
            assert_eq!(held, told);
        }
        assert_eq!(held.len(), told.len());
        solera(["fsck", "--read-data", &self.volume]).ok();
    }

    fn judge(&self) {
        let at = self.place.prefix();
        assert_eq!(self.run(&format!("python3 {KEPT}/objects.py judge {at}")), "whole\n");
    }

    /// Names and data of all kinds come and go.
    fn is_used(&self) {
        let at = self.place.prefix();
        self.run(&format!(
            "seq 700000 > {at}/used && cp {at}/used {at}/used.2 && cmp {at}/used {at}/used.2 && \
             mkdir {at}/used.d && for i in $(seq 300); do echo $i > {at}/used.d/$i; done && \
             dd if={at}/used.2 of={at}/used bs=4k seek=3 conv=notrunc status=none && \
             mv {at}/used.d/7 {at}/used.d/8 && rm -r {at}/used.d && truncate -s 5 {at}/used && \
             rm {at}/used {at}/used.2"
        ));
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.volume).expect("the volume")
    }
}

#[test]
fn volumes_of_earlier_releases_are_read_and_used() {
    for name in kept(false) {
        println!("{name}");
        let kept = Kept::of(&name);
        let before = kept.bytes();
        solera(["info", &kept.volume]).ok();
        assert!(before == kept.bytes(), "a look changes nothing");
        kept.is_whole();
        kept.is_used();
        kept.is_whole();
    }
}

#[test]
fn what_programs_of_earlier_releases_left_in_disorder_is_recovered() {
    for name in kept(true) {
        println!("{name}");
        let kept = Kept::of(&name);
        let told = solera(["detach", "--json", &kept.volume]).json();
        assert!(told["recovery"].is_object(), "it had been left in order: {told}");
        kept.judge();
        kept.is_whole();
        kept.is_used();
    }
}

#[test]
fn volumes_of_earlier_releases_are_converted() {
    for name in kept(false).into_iter().chain(kept(true)) {
        println!("{name}");
        let kept = Kept::of(&name);
        let before = kept.bytes();
        let told = solera(["upgrade", "--dry-run", "--json", &kept.volume]).json();
        assert!(before == kept.bytes(), "a dry run changes nothing");
        let done = solera(["upgrade", "--json", &kept.volume]).json();
        assert_eq!(done["runtime_range_bytes"], told["runtime_range_bytes"]);
        assert_eq!(done["changed"], !told["up_to_date"].as_bool().expect("it says so"));
        let again = solera(["upgrade", "--json", &kept.volume]).json();
        assert_eq!((&again["changed"], &again["up_to_date"]), (&false.into(), &true.into()));
        if name.ends_with("-killed") {
            kept.judge();
        }
        kept.is_whole();
        kept.is_used();
        kept.is_whole();
    }
}

/// One that is in use is converted by nobody, and stays as it is.
#[test]
fn a_volume_in_use_is_not_converted() {
    let name = kept(false).remove(0);
    let kept = Kept::of(&name);
    let (at, volume) = (kept.place.prefix(), &kept.volume);
    let solera_path = env!("CARGO_BIN_EXE_solera");
    let line = format!("exec 5<{at}/chunks; {solera_path} upgrade {volume} 2>&1; echo $?");
    let said = kept.run(&line);
    let up_to_date = said.contains("as this release makes volumes");
    assert!(up_to_date || said.contains("in use") || said.contains("others have it"), "{said}");
    kept.is_whole();
}

/// Where the superblocks are, and in them the features that a build must know: to attach it at all,
/// to write it.
const SUPERBLOCKS: [u64; 2] = [0, 4096];
const BYTES: usize = 208;
const CRC: usize = 12;
const COMPAT: usize = 16;
const INCOMPAT: usize = 20;
const RO_COMPAT: usize = 24;
const VERSION: usize = 8;

/// The logs of the explicit library that are kept.
#[test]
fn logs_of_earlier_releases_are_read_and_written() {
    let kept = fs::read_dir(format!("{KEPT}/logs")).expect("logs are kept").flatten();
    let kept: Vec<_> = kept.map(|entry| entry.path()).collect();
    assert!(!kept.is_empty(), "{KEPT}: no log is kept");
    for packed in kept {
        let place = TestDir::new();
        let log = place.text("log");
        let mut unpack = Command::new(Path::new(KEPT).join("keep"));
        Ran::of(unpack.arg("unpack").arg(&packed).arg(&log)).ok();
        let whole = |count: usize| {
            let said = solera(["log", "check", &log]).ok();
            assert!(said.contains(&format!("{count} records, whole")), "{packed:?}: {said}");
        };
        whole(50);
        // As `keep` made them, from the record behind the one that it trimmed at.
        let dump = solera(["log", "dump", &log]).ok();
        let mut lines = dump.lines().zip(750_usize..).map(|(line, number)| {
            let text = format!("record {number} ").repeat(number % 20 + 1);
            line.split_once(' ').and_then(|(_, rest)| rest.split_once(' ')).map(|(_, rest)| rest)
                == Some(text.as_str())
        });
        assert!(lines.all(|is_its| is_its), "{packed:?}: {dump}");
        let options = flex::LogOptions { page: true, ..flex::LogOptions::default() };
        let writer = flex::Log::open(Path::new(&log), &options).expect("it is opened");
        writer.append(b"of this build").expect("appended");
        drop(writer);
        whole(51);
    }
}

/// Sets a number in both superblocks, and their checksums.
fn set(volume: &str, field: usize, value: u32) {
    let file = fs::OpenOptions::new().read(true).write(true).open(volume).expect("it opens");
    for at in SUPERBLOCKS {
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, at).expect("a superblock");
        bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
        bytes[CRC..CRC + 4].fill(0);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 8]), &bytes);
        bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&bytes, at).expect("written");
    }
}

/// As with ext4: what is unknown is ignored, read only, or refused, by the mask that it stands in.
#[test]
fn features_of_later_releases_are_ignored_read_past_or_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    shell(&volume, &at, &format!("echo kept > {at}/file")).ok();
    let reads = |text: &str| assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), text);
    let writes = || shell(&volume, &at, &format!("echo more >> {at}/file"));
    set(&volume, COMPAT, 1 << 31);
    reads("kept\n");
    writes().ok();
    set(&volume, COMPAT, 0);
    set(&volume, RO_COMPAT, 1 << 31);
    let before = fs::read(&volume).expect("the volume");
    reads("kept\nmore\n");
    solera(["fsck", &volume]).ok();
    let options = ["run", "--read-only", "--volume", &volume, "--at", &at, "--", "cat"];
    let mut cat = crate::support::command();
    assert_eq!(Ran::of(cat.args(options).arg(format!("{at}/file"))).ok(), "kept\nmore\n");
    for changes in [vec!["upgrade"], vec!["trim"], vec!["grow", "--size", "+2M"]] {
        let words: Vec<&str> = changes.into_iter().chain([volume.as_str()]).collect();
        assert_eq!(solera(&words[..]).code, 1, "{words:?}");
    }
    assert!(before == fs::read(&volume).expect("the volume"), "nothing has changed it");
    set(&volume, RO_COMPAT, 0);
    for (field, value) in [(INCOMPAT, 1 << 31), (VERSION, 6)] {
        let before = fs::read(&volume).expect("the volume");
        set(&volume, field, value);
        let refused = solera(["cat", &format!("{volume}:/file")]);
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains("release"), "{}", refused.err);
        fs::write(&volume, before).expect("written");
    }
    reads("kept\nmore\n");
}

/// The page of a superblock as this build writes it.
#[test]
fn a_superblock_is_where_the_test_takes_it_to_be() {
    let place = TestDir::new();
    let volume = PathBuf::from(place.volume("64M"));
    let before = fs::read(&volume).expect("the volume");
    set(volume.to_str().expect("UTF-8"), COMPAT, 0);
    assert!(before == fs::read(&volume).expect("the volume"), "the checksum is the same");
}
