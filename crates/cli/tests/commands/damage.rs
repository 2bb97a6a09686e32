//! One flipped bit, anywhere but in file data: what is read is right, or the error says so.
//!
//! Data carries no checksum, everything else does. So after any single flip `solera fsck` either
//! finds it or it was nothing (reserved or volatile bytes), and a copy out of the volume either
//! fails or is the same tree. Nothing may panic, hang or make up names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{TestDir, solera};

const SIZE: u64 = 64 << 20;
/// All file data, so that it can be told from structures.
const DATA: u8 = 0x44;
const LINE: usize = 64;
const PAGE: usize = 4096;
const FLIPS: u64 = 120;
/// In `make test-long`.
const FLIPS_LONG: u64 = 3000;

/// The pages of a region that are not empty.
struct Image(Vec<(u64, Vec<u8>)>);

impl Image {
    fn of(path: &str) -> Self {
        let file = File::open(path).expect("it opens");
        let mut pages = Vec::new();
        for offset in (0..SIZE).step_by(PAGE) {
            let mut page = vec![0; PAGE];
            file.read_exact_at(&mut page, offset).expect("it is read");
            if page.iter().any(|&byte| byte != 0) {
                pages.push((offset, page));
            }
        }
        Self(pages)
    }

    fn restore(&self, path: &str) {
        let file = File::options().write(true).open(path).expect("it opens");
        file.set_len(0).expect("it is emptied");
        file.set_len(SIZE).expect("it is extended");
        for (offset, page) in &self.0 {
            file.write_all_at(page, *offset).expect("it is written");
        }
    }

    /// Offsets of all lines that hold something which is not file data.
    fn lines(&self) -> Vec<u64> {
        let lines = self.0.iter().flat_map(|(offset, page)| {
            page.chunks(LINE).zip(0_u64..).filter_map(move |(line, index)| {
                let blank = line.iter().all(|&byte| byte == 0);
                let data =
                    line.contains(&DATA) && line.iter().all(|&byte| byte == 0 || byte == DATA);
                (!blank && !data).then_some(offset + index * LINE as u64)
            })
        });
        lines.collect()
    }
}

/// Paths with their contents, or what stands for them.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next).expect("it is listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(dir).expect("below").to_string_lossy().into_owned();
            let meta = path.symlink_metadata().expect("it is there");
            let content = if meta.is_dir() {
                dirs.push(path);
                b"/".to_vec()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a link").to_string_lossy().into_owned().into_bytes()
            } else {
                fs::read(&path).expect("it is read")
            };
            found.insert(name, content);
        }
    }
    found
}

/// Files of all sizes and kinds: inline and long symlinks, a directory that has split, map nodes.
fn make_tree(place: &TestDir) {
    let dir = place.path("tree");
    fs::create_dir_all(dir.join("many")).expect("made");
    for number in 0..200_usize {
        let name = format!("file-{number}-{}", "n".repeat(number % 90));
        fs::write(dir.join("many").join(name), vec![DATA; number * 37]).expect("written");
    }
    fs::write(dir.join("large"), vec![DATA; 3 << 20]).expect("written");
    let sparse = File::create(dir.join("sparse")).expect("made");
    sparse.write_all_at(&[DATA; 5000], 40 << 20).expect("written");
    std::os::unix::fs::symlink("many/target", dir.join("short")).expect("linked");
    std::os::unix::fs::symlink("long/".repeat(60), dir.join("long")).expect("linked");
}

#[test]
fn one_flipped_bit_is_found_or_harmless() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    make_tree(&place);
    solera(["cp", "-r", &place.text("tree"), &format!("{volume}:/")]).ok();
    let wanted = tree(&place.path("tree"));
    let image = Image::of(&volume);
    let lines = image.lines();
    let (mut harmless, mut found) = (0, 0);
    let mut draw = 0x2545_F491_4F6C_DD1D_u64;
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    for _ in 0..if long { FLIPS_LONG } else { FLIPS } {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        let line = lines[(draw % lines.len() as u64) as usize];
        let (byte, bit) = (line + (draw >> 20) % LINE as u64, (draw >> 30) % 8);
        image.restore(&volume);
        flip(&volume, byte, bit);
        let what = format!("bit {bit} of byte {byte:#x}");

        let checked = solera(["fsck", &volume]);
        assert!(checked.code <= 8 && !checked.err.contains("panicked"), "{what}: {}", checked.err);
        let out = place.path("out");
        let copied = solera(["cp", "-r", &format!("{volume}:/tree"), &place.text("out")]);
        assert!(copied.code <= 1 && !copied.err.contains("panicked"), "{what}: {}", copied.err);
        if copied.code == 0 {
            assert!(tree(&out) == wanted, "{what}: the copy differs, fsck: {}", checked.out);
            harmless += 1;
        } else {
            assert_ne!(checked.code, 0, "{what}: fsck finds nothing, but: {}", copied.err);
            found += 1;
        }
        if out.exists() {
            fs::remove_dir_all(&out).expect("removed");
        }
    }
    assert!(
        harmless > 0 && found > 0,
        "{harmless} harmless, {found} found: the test tests nothing"
    );
}

fn flip(volume: &str, offset: u64, bit: u64) {
    let file = File::options().read(true).write(true).open(volume).expect("it opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("it is read");
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).expect("it is written");
}
