//! What is no volume, or a damaged one: each time a clear error, the right exit code, nothing lost.
//!
//! Deeper damage (a bit in every structure) is the engine's own test; here it is what people meet.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::process::{Command, Stdio};

use crate::support::{
    Mounted, TestDir, as_user, can_change_user, can_mount, command, shell, solera,
};

/// Every command that takes a volume, and the code with which it refuses.
fn refuse_all(volume: &str, at: &str, words: &[&str]) {
    for command in ["info", "df", "ls", "trim", "detach"] {
        solera([command, volume]).refused(1, words);
    }
    solera(["cat", &format!("{volume}:/x")]).refused(1, words);
    solera(["cp", "/etc/hostname", &format!("{volume}:/x")]).refused(1, words);
    solera(["grow", "--size", "+64M", volume]).refused(1, words);
    solera(["run", "--volume", volume, "--at", at, "--", "true"]).refused(125, words);
}

/// Where the superblock's copies and fields lie: `docs/format.md`.
const COPIES: [u64; 2] = [0, 4096];
const SUPERBLOCK_BYTES: usize = 208;
const VERSION: usize = 8;
const CHECKSUM: usize = 12;
const INCOMPATIBLE: usize = 20;
const READ_ONLY_COMPATIBLE: usize = 24;

/// Changes a field of both copies, with a right checksum.
fn set_field(volume: &str, field: usize, value: u32) {
    let file = OpenOptions::new().read(true).write(true).open(volume).expect("it opens");
    for copy in COPIES {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, copy).expect("it is read");
        bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
        bytes[CHECKSUM..CHECKSUM + 4].fill(0);
        // The checksum is seeded with the structure's place in the first copy.
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&[0; 8]), &bytes);
        bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&bytes, copy).expect("it is written");
    }
}

fn damage(volume: &str, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(volume).expect("it opens");
    file.write_all_at(bytes, offset).expect("it is written");
}

/// A volume with a file in it.
fn with_a_file(place: &TestDir) -> String {
    let volume = place.volume("64M");
    fs::write(place.path("source"), "kept\n").expect("written");
    solera(["cp", &place.text("source"), &format!("{volume}:/file")]).ok();
    volume
}

#[test]
fn no_volume() {
    let place = TestDir::new();
    refuse_all(&place.text("missing"), &place.prefix(), &["missing"]);
}

#[test]
fn a_directory() {
    let place = TestDir::new();
    fs::create_dir(place.path("dir")).expect("made");
    refuse_all(&place.text("dir"), &place.prefix(), &["dir"]);
    solera(["format", "--force", &place.text("dir")]).refused(1, &["dir"]);
}

#[test]
fn not_a_volume() {
    let place = TestDir::new();
    fs::write(place.path("empty"), "").expect("written");
    refuse_all(&place.text("empty"), &place.prefix(), &["empty"]);
    fs::write(place.path("zeros"), vec![0; 32 << 20]).expect("written");
    refuse_all(&place.text("zeros"), &place.prefix(), &["zeros", "format"]);
    fs::write(place.path("noise"), vec![0xE5; 32 << 20]).expect("written");
    refuse_all(&place.text("noise"), &place.prefix(), &["noise"]);
}

#[test]
fn a_version_of_the_future() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    set_field(&volume, VERSION, 77);
    refuse_all(&volume, &place.prefix(), &["version", "77"]);
}

#[test]
fn unknown_features() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    set_field(&volume, INCOMPATIBLE, 0x8000);
    refuse_all(&volume, &place.prefix(), &["feature"]);
    solera(["fsck", &volume]).refused(8, &["feature"]);
    set_field(&volume, INCOMPATIBLE, 0);
    // Read-only features: it may be looked at.
    set_field(&volume, READ_ONLY_COMPATIBLE, 0x8000);
    assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
    solera(["cp", "/etc/hostname", &format!("{volume}:/x")]).ended_with(1);
    set_field(&volume, READ_ONLY_COMPATIBLE, 0);
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_region_that_lost_its_end() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let file = OpenOptions::new().write(true).open(&volume).expect("it opens");
    file.set_len(40 << 20).expect("it is cut");
    refuse_all(&volume, &place.prefix(), &["v.pm"]);
    let checked = solera(["fsck", "--repair", &volume]).ended_with(4);
    assert!(checked.out.contains("region-truncated"), "{}", checked.out);
    file.set_len(64 << 20).expect("it is extended");
    drop(file);
    assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
}

#[test]
fn a_torn_superblock_has_a_second_copy() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    for copy in COPIES {
        damage(&volume, copy, &[0xFF; 64]);
        let checked = solera(["fsck", &volume]).ended_with(4);
        assert!(checked.out.contains("superblock"), "{}", checked.out);
        // The next attacher puts it right.
        assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
        solera(["fsck", &volume]).ok();
    }
    for copy in COPIES {
        damage(&volume, copy, &[0xFF; 64]);
    }
    refuse_all(&volume, &place.prefix(), &["v.pm"]);
}

#[test]
fn sizes_that_cannot_be() {
    let place = TestDir::new();
    let volume = place.text("v.pm");
    for size in ["0", "1", "4095", "1M"] {
        solera(["format", "--size", size, &volume]).refused(1, &["v.pm"]);
        assert!(!place.path("v.pm").exists(), "a failed format of {size} leaves a file");
    }
    solera(["format", &volume]).refused(1, &["size"]);
    // Odd sizes are served; what is no whole chunk is not used.
    solera(["format", "--size", "70000001", &volume]).ok();
    let info = solera(["info", "--json", &volume]).json();
    let sum: u64 = ["data_bytes", "hole_bytes", "free_aligned_bytes", "metadata_bytes"]
        .iter()
        .map(|name| info[name].as_u64().expect("a number"))
        .sum();
    assert_eq!(info["size_bytes"], sum);
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_full_volume_can_be_emptied() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let free = || {
        let info = solera(["info", "--json", &volume]).json();
        info["free_bytes"].as_u64().expect("a number")
    };
    shell(&volume, &at, &format!("echo 1 > {at}/small")).ok();
    let before = free();
    let full = shell(&volume, &at, &format!("cat /dev/zero > {at}/large")).ended_with(1);
    assert!(full.err.contains("No space left on device"), "{}", full.err);
    let line = format!("echo 2 | dd of={at}/small conv=notrunc status=none && cat {at}/small");
    assert_eq!(shell(&volume, &at, &line).ok(), "2\n");
    shell(&volume, &at, &format!("truncate -s 4096 {at}/large && rm {at}/large")).ok();
    solera(["fsck", &volume]).ok();
    assert_eq!(free(), before);
}

#[test]
fn a_process_of_another_build_is_named() {
    const RUNTIME: u64 = 128;
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut holder = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c"])
        .arg(format!("echo > {at}/ready; read line; echo bye > {at}/last"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    while !solera(["ls", &volume]).ok().contains("ready") {
        assert!(holder.try_wait().expect("it can be asked").is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The runtime begins with a number that differs between builds whose structures differ.
    let file = OpenOptions::new().read(true).write(true).open(&volume).expect("it opens");
    let word = |at| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).expect("it is read");
        u64::from_le_bytes(bytes)
    };
    let runtime = word(RUNTIME);
    let format = word(runtime);
    damage(&volume, runtime, &(format ^ 1).to_le_bytes());
    let pid = holder.id().to_string();
    for command in ["ls", "trim", "detach"] {
        solera([command, &volume]).refused(1, &["another build", &pid]);
    }
    let run = ["run", "--volume", &volume, "--at", &at, "--", "true"];
    solera(run).refused(125, &["another build", &pid]);
    // Once it has ended the volume is anybody's.
    holder.stdin.take().expect("a pipe").write_all(b"go on\n").expect("it is told");
    assert!(holder.wait().expect("it ends").success());
    assert_eq!(solera(["ls", &volume]).ok(), "last\nready\n");
    solera(["fsck", &volume]).ok();
}

#[test]
fn names_that_are_too_long() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    shell(&volume, &at, &format!("echo > {at}/{longest}")).ok();
    let failed = shell(&volume, &at, &format!("echo > {at}/{longer}")).ended_with(2);
    assert!(failed.err.contains("File name too long"), "{}", failed.err);
    assert_eq!(solera(["ls", &volume]).ok(), format!("{longest}\n"));
}

#[test]
fn a_region_that_may_not_be_read() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    // Root may read everything.
    if !can_change_user() {
        return;
    }
    fs::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let mut command = as_user(65534, "", &place.for_everyone());
    let ran = command.args(["info", &volume]).output().expect("setpriv runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.starts_with("solera: ") && said.to_lowercase().contains("permission"), "{said}");
}

/// A pipe that was copied became an empty fifo on the volume, and what came through it was lost; a
/// mistyped option of `run` was taken for the program.
#[test]
fn what_cannot_be_meant_is_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let fifo = place.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let (fifo, to) = (place.text("fifo"), format!("{volume}:/new"));
    let refused = solera(["cp", &fifo, &to]).ended_with(1);
    assert!(
        refused.err.contains("this is a pipe") && refused.err.contains("-r"),
        "{}",
        refused.err
    );
    assert_eq!(solera(["ls", &volume]).ok(), "");
    solera(["cp", "-r", &fifo, &to]).ok();
    assert_eq!(solera(["ls", &volume]).ok(), "new\n");
    let at = place.prefix();
    let line = ["run", "--volume", &volume, "--at", &at, "--moed", "sync", "--", "true"];
    let refused = solera(line).ended_with(125);
    assert!(refused.err.contains("no option of `solera run`"), "{}", refused.err);
    let full = solera(["info", "--picture", "/dev/full", &volume]).ended_with(1);
    assert!(!full.err.contains("grow"), "{}", full.err);
}

/// `info`, `df` and `fsck` of a directory spoke of limits on memory; a pipe and a block device were
/// empty.
#[test]
fn what_is_no_file_is_named() {
    let place = TestDir::new();
    let said = |path: &str, words: &[&str]| {
        for (command, code) in [("info", 1), ("df", 1), ("ls", 1), ("fsck", 8)] {
            solera([command, path]).refused(code, words);
        }
    };
    fs::create_dir(place.path("dir")).expect("made");
    said(
        &place.text("dir"),
        &["it is a directory", "a volume is a file", "name the volume's file"],
    );
    let pipe = place.text("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    said(&pipe, &["it is a fifo", "a volume is a file"]);
    let socket = place.text("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    said(&socket, &["it is a socket", "a volume is a file"]);
    said("/dev/null", &["it is a device, but not a dax device"]);
    for name in ["/dev/loop0", "/dev/vda", "/dev/sda"] {
        let opens = fs::File::open(name).is_ok();
        if opens && fs::metadata(name).is_ok_and(|meta| meta.file_type().is_block_device()) {
            said(name, &["it is a block device", "DAX"]);
        }
    }
    solera(["info", &place.text("missing")]).refused(1, &["there is no such file"]);
}

/// A user that names the mount means the volume: the message says what to type instead.
#[test]
fn a_mount_in_place_of_its_volume_is_told_from_a_directory() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    fs::create_dir(mounted.path("dir")).expect("made");
    let below = mounted.path("dir").to_str().expect("UTF-8").to_owned();
    let advice = format!("name the volume's file: {}", mounted.volume);
    for (path, how) in [(&mounted.at, "is mounted there"), (&below, "is mounted at")] {
        let words = [how, &mounted.at, &advice];
        for (command, code) in [("info", 1), ("df", 1), ("ls", 1), ("fsck", 8)] {
            solera([command, path]).refused(code, &words);
        }
    }
    fs::write(mounted.path("file"), vec![0xE5; 1 << 20]).expect("written");
    let file = mounted.path("file").to_str().expect("UTF-8").to_owned();
    solera(["info", &file]).refused(1, &["is mounted at", &advice]);
    mounted.end();
}

/// "It is empty; give it a size with `solera format --size`", said `solera format --size 0`.
#[test]
fn format_says_what_its_arguments_lack() {
    let place = TestDir::new();
    let path = place.text("v.pm");
    let least = ["0 bytes are too few", "16777216", "--size"];
    solera(["format", "--size", "0", &path]).refused(1, &least);
    assert!(!place.path("v.pm").exists(), "nothing is made");
    fs::write(&path, "").expect("written");
    solera(["format", "--size", "0", &path]).refused(1, &least);
    solera(["format", &path]).refused(1, &["it is empty", "--size"]);
    solera(["format", "--size", "64M", "--force", &path]).ok();
    let words = ["0 bytes are too few", "16777216"];
    solera(["format", "--size", "0", "--force", &path]).refused(1, &words);
    solera(["fsck", &path]).ok();
    let (directory, path) = (place.text("none"), place.text("none/v.pm"));
    let words = [&*format!("the directory {directory} does not exist"), "mkdir"];
    solera(["format", "--size", "64M", &path]).refused(1, &words);
}

/// A volume whose beginning was lost was called none at all, and `format` advised, which ends it.
#[test]
fn only_where_nothing_is_does_it_advise_to_format() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    damage(&volume, 0, &[0; 8192]);
    let told = |path: &str, words: &[&str]| {
        for (command, code) in [("info", 1), ("ls", 1), ("fsck", 8)] {
            let ran = solera([command, path]);
            assert!(!ran.err.contains("format"), "{}", ran.err);
            ran.refused(code, words);
        }
        let ran = solera(["fsck", "--repair", path]);
        assert!(!ran.err.contains("format"), "{}", ran.err);
        ran.refused(8, words);
    };
    told(&volume, &["no readable superblock", "damaged"]);
    let before = fs::read(&volume).expect("read");
    solera(["format", &volume]).refused(1, &["it holds other data", "--force"]);
    assert!(fs::read(&volume).expect("read") == before, "it stays as it was");
    fs::write(place.path("text"), "some notes\n").expect("written");
    told(&place.text("text"), &["no readable superblock", "something else"]);
    // All zero, with memory and without.
    fs::write(place.path("zeros"), vec![0; 1 << 20]).expect("written");
    fs::File::create(place.path("hole")).expect("made").set_len(1 << 30).expect("its size");
    for name in ["zeros", "hole"] {
        solera(["fsck", &place.text(name)]).refused(8, &["nothing but zeros", "solera format"]);
    }
}

/// Of a volume that was cut within its superblocks, `fsck` said "Input/output error", and to call
/// `fsck`.
#[test]
fn a_volume_of_which_next_to_nothing_is_left_is_told_to_be_cut() {
    let place = TestDir::new();
    let volume = with_a_file(&place);
    let whole = fs::read(&volume).expect("read");
    for length in [4096, 6000, 8192, 10_000, 12_288, 100_000] {
        fs::write(&volume, &whole[..length]).expect("written");
        for how in [&["fsck"][..], &["fsck", "--repair"], &["fsck", "--salvage"]] {
            let ran = solera([how, &[&volume]].concat());
            let said = format!("{}{}", ran.out, ran.err);
            assert!(said.contains("67108864 bytes"), "{length}, {how:?}: {said}");
            assert!(said.contains(&format!("only {length}")), "{length}, {how:?}: {said}");
            assert!(!said.contains("Input/output"), "{length}, {how:?}: {said}");
            assert!([4, 8].contains(&ran.code), "{length}, {how:?}: {}", ran.code);
        }
        assert_eq!(fs::read(&volume).expect("read").len(), length, "it stays as it was");
    }
    for length in [64, 3000] {
        fs::write(&volume, &whole[..length]).expect("written");
        let ran = solera(["fsck", &volume]);
        assert!(!ran.err.contains("format"), "{}", ran.err);
        ran.refused(8, &["superblock"]);
    }
}
