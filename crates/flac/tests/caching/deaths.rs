//! A process dies at any moment of its reads, fills and evictions: the next reader is right, the
//! budget holds, and what the dead left goes.

use crate::support::{Random, TestDir, open, read, write};
use flac::Count;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vfs::FileSystem;
use volume::Mode;

const DIRECTORY: &str = "SOLERA_TEST_FLAC_DIRECTORY";
const LENGTH: u64 = 24 << 20;
const BUDGET: u64 = 8 << 20;

fn value(at: u64) -> u8 {
    (at / 4096 % 251) as u8
}

fn check(fs: &dyn FileSystem, desc: vfs::Desc, random: &mut Random) {
    let length = [100, 4096, 200_000, 2 << 20][random.below(4) as usize];
    let mut at = random.below(LENGTH);
    if random.below(2) == 0 {
        at -= at % (2 << 20);
    }
    let found = read(fs, desc, at, length);
    let end = (at + length as u64).min(LENGTH);
    assert!((at..end).map(value).eq(found.iter().copied()), "{length} bytes at {at}");
}

/// What a child does until it is killed.
fn role() -> bool {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return false };
    let place = std::mem::ManuallyDrop::new(TestDir::at(PathBuf::from(dir)));
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, BUDGET);
    let desc = open(&cached, b"file", libc::O_RDONLY);
    let mut random = Random(u64::from(std::process::id()) | 1);
    loop {
        check(&cached, desc, &mut random);
    }
}

/// A child that dies with the test, however that ends.
struct Dying(Child);

impl Drop for Dying {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn begin(place: &TestDir) -> Dying {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--exact", "--nocapture", "deaths::kills_anywhere_do_no_harm"])
        .env(DIRECTORY, &place.dir)
        .stdout(Stdio::null())
        .spawn();
    Dying(child.expect("started"))
}

#[test]
fn kills_anywhere_do_no_harm() {
    if role() {
        return;
    }
    let place = TestDir::new("deaths");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, BUDGET);
    let desc = open(&cached, b"file", libc::O_RDWR);
    let bytes: Vec<u8> = (0..LENGTH).map(value).collect();
    write(&*volume, desc, 0, &bytes);
    // Other moments at each commit.
    let mut random = Random(77 + u64::from(rotation::turn("kills anywhere", 4096)));
    let mut children = [begin(&place), begin(&place)];
    for _ in 0..if rotation::all() { 200 } else { 16 } {
        std::thread::sleep(Duration::from_micros(20_000 + random.below(30_000)));
        let child = &mut children[random.below(2) as usize];
        assert!(child.0.try_wait().expect("asked").is_none(), "it ended by itself");
        child.0.kill().expect("killed");
        child.0.wait().expect("ended");
        for _ in 0..5 {
            check(&cached, desc, &mut random);
        }
        assert!(on_tmpfs(&place) <= BUDGET + (4 << 20), "{} bytes", on_tmpfs(&place));
        *child = begin(&place);
    }
    drop(children);
    // What the dead were making: so old that nobody is making it any more.
    let era =
        std::fs::read_dir(place.eras()).expect("eras").next().expect("one").expect("one").path();
    let status = Command::new("sh")
        .args(["-c", "touch -d '1 minute ago' \"$1\"/*", "sh"])
        .arg(&era)
        .status();
    assert!(status.expect("touched").success());
    for _ in 0..4_000 {
        check(&cached, desc, &mut random);
    }
    assert!(place.counted(Count::Evictions) > 100 && place.counted(Count::Hits) > 100);
    let files = std::fs::read_dir(&era).expect("the era").count();
    let status = place.status();
    assert_eq!(files, status.segments + 1, "beside the index and {} segments", status.segments);
    assert!(status.used <= BUDGET);
}

/// Bytes of the segments that have a name.
fn on_tmpfs(place: &TestDir) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for era in std::fs::read_dir(place.eras()).expect("eras").flatten() {
        for file in std::fs::read_dir(era.path()).into_iter().flatten().flatten() {
            if file.file_name() != "index" {
                sum += file.metadata().map_or(0, |found| found.blocks() * 512);
            }
        }
    }
    sum
}
