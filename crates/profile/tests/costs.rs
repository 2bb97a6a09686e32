//! What a profile costs a call: instructions beyond those of the same call without it, counted one
//! by one in the program of the preload library's figures (`crates/preload/tests/c/costs.c`).
//!
//! It needs `libsolera_preload.so` beside this library: `cargo build --release -p solera-preload`.

#[path = "../../preload/tests/support/step.rs"]
mod step;
#[path = "../../preload/tests/support/sweeper.rs"]
mod sweeper;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use record::Map;
use step::{Counts, follow};

/// Instructions that a call on a descriptor may take more.
const MOST: u64 = 180;
/// Operations of one call on a descriptor.
const CALLS: [&str; 6] =
    ["append 4K", "append 4K, grown", "append 64 B", "read 4K", "pread 64 B", "lseek"];

/// A directory that goes when the test ends.
struct TestDir(PathBuf);

impl TestDir {
    fn new() -> Self {
        sweeper::start(Path::new("/dev/shm"), "solera-profile");
        let place = PathBuf::from(format!("/dev/shm/solera-profile-{}-0", std::process::id()));
        std::fs::create_dir(&place).expect("/dev/shm takes a directory");
        Self(place)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A library that was built, beside this binary or one directory up.
fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this binary's path");
    let beside = own.parent().expect("its directory");
    let places = [beside.to_path_buf(), beside.join("..")];
    let built = places.iter().map(|place| place.join(name)).filter(|path| path.exists());
    let newest = built.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    newest.unwrap_or_else(|| panic!("{name} is missing: build it first"))
}

/// The program, compiled.
fn program(place: &TestDir) -> PathBuf {
    let to = place.0.join("costs");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/c/costs.c");
    let status = Command::new("cc")
        .args(["-std=gnu17", "-w", "-D_GNU_SOURCE", "-pthread", "-O1", "-o"])
        .args([&to, &source])
        .status()
        .expect("a C compiler, cc");
    assert!(status.success(), "cc could not compile it");
    to
}

/// What the operations execute: of the runs of each the one in the middle.
fn measure(place: &TestDir, program: &Path, libraries: &[&Path], file: Option<&str>) -> Figures {
    let volume = place.0.join(if file.is_some() { "profiled.pm" } else { "plain.pm" });
    let options = volume::FormatOptions { size: Some(256 << 20), ..Default::default() };
    volume::format(&volume, &options).expect("format");
    let libraries: Vec<&str> = libraries.iter().filter_map(|path| path.to_str()).collect();
    let mut command = Command::new(program);
    command
        .args(["/dev/shm/solera-profiled-volume", "large", "appends"])
        .env_clear()
        .env("SOLERA_VOLUME", &volume)
        .env("SOLERA_AT", "/dev/shm/solera-profiled-volume")
        .env("SOLERA_MODE", "strict")
        .env("LD_PRELOAD", libraries.join(":"))
        .envs(file.map(|file| ("SOLERA_PROFILE", file)));
    let mut rows: BTreeMap<String, Vec<Counts>> = BTreeMap::new();
    for sample in follow(&mut command).samples {
        rows.entry(sample.name).or_default().push(sample.counts);
    }
    let middle = |mut row: Vec<Counts>| {
        row.sort_by_key(|counts| counts.instructions);
        row[row.len() / 2]
    };
    rows.into_iter().map(|(name, row)| (name, middle(row))).collect()
}

type Figures = BTreeMap<String, Counts>;

#[test]
fn a_profile_takes_few_instructions_of_a_call() {
    if cfg!(debug_assertions) {
        println!("the figures are those of the release profile");
        return;
    }
    let place = TestDir::new();
    let program = program(&place);
    let (profile, preload) = (library("libsolera_profile.so"), library("libsolera_preload.so"));
    let file =
        rustix::fs::memfd_create("profile", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, record::bytes(0) as u64).expect("its length");
    let map = Map::begin(&file, 0).expect("it is mapped");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let without = measure(&place, &program, &[&preload], None);
    let with = measure(&place, &program, &[&profile, &preload], Some(&path));
    for name in CALLS {
        println!(
            "{name}: {} instructions, {} with",
            without[name].instructions, with[name].instructions
        );
    }
    for name in CALLS {
        let (plain, profiled) = (without[name], with[name]);
        assert!(profiled.instructions <= plain.instructions + MOST, "{name}: {profiled:?}");
        let rest = |counts: Counts| (counts.locked, counts.fences, counts.system_calls);
        assert_eq!(rest(profiled), rest(plain), "{name}: locks, fences, system calls");
    }
    // It did count.
    let calls = &map.area(0).expect("an area").calls[record::Kind::Write as usize];
    assert!(calls.by[1].load(std::sync::atomic::Ordering::Relaxed) > 100, "writes of the volume");
}
