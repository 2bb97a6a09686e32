//! `solera recover` where all is not well: damaged, cut and missing files, those of another
//! version, no rights, several at once; files that were renamed, and inode numbers that serve
//! again.
//!
//! Nothing that was staged is put anywhere but where it belongs: what is damaged is refused, with
//! the reason, and stays for another try.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Ran, TestDir, command, compiled, solera};

/// Starts `recovery.c` below `directory`, and kills it when all its calls have returned.
fn leave(directory: &Path, mode: &str) {
    kill(begin(directory, mode));
}

fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

/// Starts `recovery.c` below `directory`; all its calls have returned.
fn begin(directory: &Path, mode: &str) -> Child {
    let program = compiled("cli/tests/commands/recovery.c", &[]);
    std::fs::create_dir_all(directory).expect("a directory");
    let mut child = command()
        .args(["run", "--mode", mode, "--emulate", "--split"])
        .args([directory, Path::new("--"), Path::new(&program), directory])
        .env("SOLERA_SPLIT_PATIENCE", "0")
        .env("SOLERA_SPLIT_LOG", "65536")
        .stdout(Stdio::piped())
        .spawn()
        .expect("solera starts");
    let output = child.stdout.as_mut().expect("its output");
    output.read_exact(&mut [0]).expect("the program says that it is done");
    child
}

/// A directory in which a process was killed that had staged something.
struct Left {
    directory: PathBuf,
    /// What the file holds by now.
    short: Vec<u8>,
    hidden: BTreeMap<String, Vec<u8>>,
    _place: TestDir,
}

/// All that the program wrote, in bytes.
const WHOLE: u64 = 7500;

impl Left {
    fn new(mode: &str) -> Self {
        let place = TestDir::new();
        let directory = place.path("files");
        leave(&directory, mode);
        let short = std::fs::read(directory.join("killed")).expect("the file");
        let mut hidden = BTreeMap::new();
        for entry in std::fs::read_dir(directory.join(split::HOME_NAME)).expect("what is hidden") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            // The bytes of large sparse ones are few.
            let (file, mut bytes) = (std::fs::File::open(entry.path()), Vec::new());
            file.expect("a file").take(1 << 20).read_to_end(&mut bytes).expect("its bytes");
            hidden.insert(name, bytes);
        }
        Self { directory, short, hidden, _place: place }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.directory.join(split::HOME_NAME).join(name)
    }

    fn named(&self, start: &str) -> String {
        let found = self.hidden.keys().find(|name| name.starts_with(start));
        found.unwrap_or_else(|| panic!("there is no {start} in {:?}", self.hidden.keys())).clone()
    }

    /// As it was when the process had been killed.
    fn restore(&self) {
        for (name, bytes) in &self.hidden {
            let mut options = std::fs::File::options();
            let options = options.write(true).create(true).truncate(false);
            let file = options.open(self.of(name)).expect("a file");
            file.set_len(0).expect("emptied");
            let length = if name.starts_with("data.") { 128 << 20 } else { bytes.len() as u64 };
            file.set_len(length).expect("its length");
            file.write_all_at(bytes, 0).expect("its bytes");
        }
        let file = std::fs::File::options().write(true).open(self.directory.join("killed"));
        let file = file.expect("the program's file");
        file.set_len(self.short.len() as u64).expect("its length");
        file.write_all_at(&self.short, 0).expect("its bytes");
    }

    /// Panics unless each byte of the file is one that was written there; gives its length.
    fn is_right(&self, told: &str) -> u64 {
        let bytes = std::fs::read(self.directory.join("killed")).expect("the file");
        assert!(bytes.len() >= self.short.len(), "{told}: it was cut");
        assert_eq!(bytes.len() % 100, 0, "{told}: appends are whole");
        for (at, record) in bytes.chunks_exact(100).enumerate() {
            let number: usize = std::str::from_utf8(&record[..99])
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_else(|| panic!("{told}: record {at} is {record:?}"));
            let right = number == at || at == 0 && number % 3 == 2;
            assert!(right && record[99] == b'\n', "{told}: record {at} says {number}");
        }
        bytes.len() as u64
    }

    /// From what was left all can be recovered.
    fn all_comes_back(&self) {
        self.restore();
        split::recover(&self.directory).expect("what was not damaged");
        assert_eq!(self.is_right("restored"), WHOLE);
    }
}

/// Seeded.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Damages some bytes where there are any; says how.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    let near = used[random.below(used.len())];
    match random.below(5) {
        0 => {
            let bit = random.below(8);
            bytes[near] ^= 1 << bit;
            format!("bit {bit} of byte {near} is flipped")
        }
        1 => {
            let end = (near + 1 + random.below(16)).min(bytes.len());
            bytes[near..end].fill(0);
            format!("zeros in {near}..{end}")
        }
        2 => {
            let end = (near + 1 + random.below(300)).min(bytes.len());
            bytes[near..end].fill_with(|| random.below(256) as u8);
            format!("noise in {near}..{end}")
        }
        3 => {
            bytes.truncate(near);
            format!("cut at {near}")
        }
        _ => {
            let from = used[random.below(used.len())] & !7;
            let (to, length) = (near & !7, 8.min(bytes.len() - (near & !7)));
            let word: Vec<u8> = bytes[from..(from + length).min(bytes.len())].to_vec();
            bytes[to..to + word.len()].copy_from_slice(&word);
            format!("the word at {from} stands at {to} too")
        }
    }
}

/// Whatever happened to the engine's files: no panic, no wrong byte in the program's.
#[test]
fn damage_is_refused_or_harmless() {
    let rounds = if std::env::var_os("SOLERA_TEST_LONG").is_some() { 2000 } else { 150 };
    let mut random = Random(0xA076_1D64_78BD_642F);
    for mode in ["posix", "strict"] {
        let left = Left::new(mode);
        left.all_comes_back();
        let (mut refused, mut lost) = (0, 0);
        let names: Vec<&String> = left
            .hidden
            .keys()
            .filter(|name| !name.starts_with("stage") && *name != "alive")
            .collect();
        for round in 0..rounds {
            left.restore();
            let name = names[random.below(names.len())];
            let mut bytes = left.hidden[name].clone();
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let how = damage(&mut bytes, &mut random);
            let told = format!("{mode}, {round}: {name}: {how}");
            std::fs::write(left.of(name), &bytes).expect("the damage");
            match split::recover(&left.directory) {
                Ok(_) => {
                    let length = left.is_right(&told);
                    // The number of the boot says that the power failed since, and without its
                    // owner or its key a record has no owner.
                    lost += u64::from(length < WHOLE);
                }
                Err(incomplete) => {
                    refused += 1;
                    assert!(!incomplete.to_string().is_empty());
                    left.is_right(&told);
                    // What was staged is still there.
                    let staged = left.of(&left.named("stage."));
                    assert!(staged.exists() || left.is_right(&told) == WHOLE, "{told}");
                }
            }
            // And again: it comes to the same, and to an end.
            let _ = split::recover(&left.directory);
            left.is_right(&told);
        }
        eprintln!("{mode}: {rounds} damages: {refused} refused, {lost} lost what was staged");
        assert!(refused > 3, "{mode}: only {refused} of {rounds} were refused");
        assert!(lost < rounds as u64 / 3, "{mode}: {lost} of {rounds} lost what was staged");
        left.all_comes_back();
    }
}

/// What was staged is gone, or a part of it: nothing is made of the rest.
#[test]
fn a_cut_or_missing_staging_file_is_refused() {
    let left = Left::new("sync");
    let staging = left.of(&left.named("stage."));
    let length = |bytes: u64| {
        let file = std::fs::File::options().write(true).open(&staging).expect("it");
        file.set_len(bytes).expect("its length");
    };
    left.restore();
    for bytes in [0, 100, 4096] {
        length(bytes);
        let refused = split::recover(&left.directory).expect_err("it is cut").to_string();
        assert!(refused.contains("stage.") && refused.contains("damaged"), "{refused}");
        assert_eq!(left.is_right("cut"), left.short.len() as u64);
        if bytes == 4096 {
            break;
        }
    }
    std::fs::remove_file(&staging).expect("it can be removed");
    let refused = split::recover(&left.directory).expect_err("it is gone").to_string();
    assert!(refused.contains("stage.") && refused.contains("No such file"), "{refused}");
    assert_eq!(left.is_right("gone"), left.short.len() as u64);
    left.restore();
    split::recover(&left.directory).expect("all is there");
    assert_eq!(left.is_right("restored"), WHOLE);
}

fn recover(words: &[&str], directory: &Path) -> Ran {
    let directory = directory.to_str().expect("our own names are UTF-8");
    solera(["recover"].iter().chain(words).chain(&[directory]))
}

/// Files of another version stay as they are, and the command says so.
#[test]
fn another_version_is_refused() {
    let left = Left::new("strict");
    for name in ["records".to_owned(), left.named("log.")] {
        left.restore();
        let file = std::fs::File::options().write(true).open(left.of(&name)).expect("it");
        file.write_all_at(&[99], 6).expect("its version");
        recover(&[], &left.directory).refused(1, &[&name, "another version"]);
        assert_eq!(left.is_right(&name), left.short.len() as u64);
        let json = recover(&["--json"], &left.directory).ended_with(1).out;
        assert!(json.contains("\"refused\"") && json.contains(&name), "{json}");
        file.write_all_at(&left.hidden[&name][6..7], 6).expect("its version");
        recover(&["--json"], &left.directory).json();
        assert_eq!(left.is_right(&name), WHOLE);
    }
}

/// What the command says of places where nothing is to be done.
#[test]
fn places_without_anything_are_told_of() {
    let place = TestDir::new();
    let empty = place.path("empty");
    std::fs::create_dir(&empty).expect("a directory");
    recover(&[], &empty).ok();
    assert!(!empty.join(split::HOME_NAME).exists(), "looking made something");
    let file = place.path("file");
    std::fs::write(&file, "x").expect("a file");
    recover(&[], &file).refused(1, &["Not a directory"]);
    recover(&[], &place.path("none")).refused(1, &["No such file"]);
    let help = recover(&["--help"], &empty).ok();
    assert!(help.contains("Exit code") && help.contains("--json"), "{help}");
}

fn set_rights(path: &Path, mode: u32) {
    let rights = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, rights).expect("rights");
}

/// Runs `body` as the user that owns `directory`, bound by its rights.
fn as_owner(directory: &Path, body: impl FnOnce() + Send) {
    let owner = || {
        // SAFETY: no pointers; the call, by its number, changes this thread only.
        unsafe {
            if libc::geteuid() == 0 {
                let mut all = Command::new("chown");
                let all = all.args(["-R", "65534:65534"]).arg(directory);
                assert!(all.status().expect("chown").success());
                assert_eq!(libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534), 0);
            }
        }
        body();
    };
    std::thread::scope(|scope| scope.spawn(owner).join().expect("a thread"));
}

/// Of two whose files lie where this process may not look neither is given up.
#[test]
fn two_refused_for_one_reason_are_both_kept() {
    let place = TestDir::new();
    let directory = place.path("files");
    let inner = directory.join("inner");
    std::fs::create_dir_all(&inner).expect("a directory");
    let both = ["first", "second"].map(|name| {
        let child = begin(&directory, "sync");
        std::fs::rename(directory.join("killed"), inner.join(name)).expect("moved");
        child
    });
    both.into_iter().for_each(kill);
    set_rights(&inner, 0);
    as_owner(&directory, || {
        let refused = split::recover(&directory).expect_err("they may be in there").to_string();
        assert!(refused.contains("inner") && refused.contains("Permission"), "{refused}");
        set_rights(&inner, 0o700);
        let recovered = split::recover(&directory).expect("they are in there");
        assert_eq!((recovered.processes, recovered.runs, recovered.gone), (2, 2, 0));
    });
    for name in ["first", "second"] {
        let length = std::fs::metadata(inner.join(name)).expect("it").len();
        assert_eq!(length, WHOLE, "{name}");
    }
}

/// A file that lies where this process may not look is not gone.
#[test]
fn a_closed_directory_keeps_what_was_staged() {
    let left = Left::new("sync");
    let inner = left.directory.join("inner");
    std::fs::create_dir(&inner).expect("a directory");
    std::fs::rename(left.directory.join("killed"), inner.join("killed")).expect("moved");
    set_rights(&inner, 0);
    as_owner(&left.directory, || {
        let refused = split::recover(&left.directory).expect_err("it may be in there").to_string();
        assert!(refused.contains("inner") && refused.contains("Permission"), "{refused}");
        set_rights(&inner, 0o700);
        let recovered = split::recover(&left.directory).expect("it is in there");
        assert_eq!((recovered.runs, recovered.gone), (1, 0));
    });
    std::fs::rename(inner.join("killed"), left.directory.join("killed")).expect("moved back");
    assert_eq!(left.is_right("found"), WHOLE);
}

/// Of several that recover at once each waits for the other, and all is recovered once.
#[test]
fn several_recover_at_once() {
    for mode in ["posix", "strict"] {
        let left = Left::new(mode);
        for round in 0..8 {
            left.restore();
            let all: Vec<Child> = (0..3)
                .map(|_| {
                    let mut command = command();
                    command.args(["recover", "--json"]).arg(&left.directory);
                    command.stdout(Stdio::piped()).spawn().expect("solera starts")
                })
                .collect();
            let mut runs = 0;
            for child in all {
                let output = child.wait_with_output().expect("it ends");
                assert!(output.status.success(), "{mode}, {round}");
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                runs += usize::from(text.contains("\"files\": 1"));
                // A process that has come to its end sees all of it.
                assert_eq!(left.is_right("together"), WHOLE, "{mode}, {round}: {text}");
            }
            assert_eq!(runs, 1, "{mode}, {round}");
        }
    }
}

/// Staged bytes follow their file to another name, and never go into one that has its number later.
#[test]
fn renamed_and_reused() {
    for mode in ["posix", "sync", "strict"] {
        let left = Left::new(mode);
        let (file, moved) = (left.directory.join("killed"), left.directory.join("deep/er"));
        left.restore();
        std::fs::create_dir(left.directory.join("deep")).expect("a directory");
        std::fs::rename(&file, &moved).expect("renamed");
        std::fs::write(&file, "another one in its place").expect("another");
        let recovered = split::recover(&left.directory).expect("recover");
        assert_eq!((recovered.runs, recovered.gone), (1, 0), "{mode}");
        assert_eq!(std::fs::read(&file).expect("the other"), b"another one in its place");
        std::fs::rename(&moved, &file).expect("renamed back");
        assert_eq!(left.is_right("renamed"), WHOLE, "{mode}");

        // Gone, and others made until one has its number, where the file system reuses numbers.
        left.restore();
        let number = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).expect("it"));
        std::fs::remove_file(&file).expect("removed");
        for other in 0..200 {
            let path = left.directory.join(format!("other-{other}"));
            std::fs::write(&path, "other").expect("another");
            let found = std::fs::metadata(&path).expect("it");
            if std::os::unix::fs::MetadataExt::ino(&found) == number {
                break;
            }
        }
        let recovered = split::recover(&left.directory).expect("recover");
        assert_eq!((recovered.runs, recovered.gone > 0), (0, true), "{mode}: {recovered:?}");
        for entry in std::fs::read_dir(&left.directory).expect("the directory") {
            let path = entry.expect("an entry").path();
            if path.to_string_lossy().contains("other-") {
                assert_eq!(std::fs::read(&path).expect("another"), b"other", "{mode}");
            }
        }
    }
}
