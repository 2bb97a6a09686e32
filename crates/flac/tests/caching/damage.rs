//! Whatever is in the index, no byte is served that the file does not have.

use crate::support::{Random, TestDir, open, read, write};
use flac::Count;
use std::os::unix::fs::FileExt;
use vfs::FileSystem;
use volume::Mode;

const LENGTH: usize = 3 << 20;

fn byte_at(at: usize, age: u8) -> u8 {
    (at / 4096 * 7 + at % 251) as u8 ^ age
}

/// Every damage is to a word that decides what is served: of a file that is cached, and of entries
/// that are stale and would be wrong.
#[test]
fn no_damage_to_the_index_shows() {
    // Others at each commit; in the long run all of one sequence.
    let images = if rotation::all() { 10_000 } else { 500 };
    let seed = if rotation::all() { 5 } else { 5 + u64::from(rotation::turn("damage", 4096)) };
    let place = TestDir::new("damage");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let index = std::fs::read_dir(place.eras()).expect("eras").next().expect("one").expect("one");
    let index = std::fs::File::options().read(true).write(true).open(index.path().join("index"));
    let index = index.expect("the index");
    let length = index.metadata().expect("its length").len();
    let names: Vec<Vec<u8>> = (0..4).map(|name| format!("file{name}").into_bytes()).collect();
    let mut ages = [0_u8; 4];
    let mut random = Random(seed);
    let descs: Vec<_> = names.iter().map(|name| open(&cached, name, libc::O_RDWR)).collect();
    let bytes = |age: u8| (0..LENGTH).map(|at| byte_at(at, age)).collect::<Vec<u8>>();
    for desc in &descs {
        write(&*volume, *desc, 0, &bytes(0));
    }
    for image in 0..images {
        let file = random.below(4) as usize;
        // Filled, and sometimes stale.
        for &desc in &descs {
            read(&cached, desc, random.below(LENGTH as u64 - 8192), 8192);
        }
        if image % 8 == 0 {
            ages[file] = ages[file].wrapping_add(1);
            write(&*volume, descs[file], 0, &bytes(ages[file]));
        }
        let damage = places(&index, length, &mut random);
        for &(at, byte) in &damage {
            index.write_all_at(&[byte], at).expect("damaged");
        }
        for (file, &desc) in descs.iter().enumerate() {
            for _ in 0..3 {
                let at = random.below(LENGTH as u64) as usize;
                let found = read(&cached, desc, at as u64, 100);
                let end = (at + 100).min(LENGTH);
                assert!(
                    (at..end).map(|at| byte_at(at, ages[file])).eq(found.iter().copied()),
                    "seed {seed}, image {image}, {damage:?}: file {file} at {at}"
                );
            }
        }
    }
    assert!(place.counted(Count::Hits) > 100, "hardly anything was served: {:?}", place.status());
    for desc in descs {
        cached.close(desc).expect("closed");
    }
}

/// Some bytes of the index, mostly of words that are in use, with other values than they have.
fn places(index: &std::fs::File, length: u64, random: &mut Random) -> Vec<(u64, u8)> {
    let mut found = Vec::new();
    let lines = (length - 4096) / 64;
    while found.len() < 3 {
        // A line that holds something, if one is found soon; the seeds stay: what they key is lost
        // at once, for good.
        let mut line = [0; 64];
        let mut at = 0;
        for _ in 0..200 {
            at = 4096 + random.below(lines) * 64;
            index.read_exact_at(&mut line, at).expect("a line");
            if line != [0; 64] {
                break;
            }
        }
        let byte = random.below(48);
        found.push((at + byte, line[byte as usize] ^ 1 << random.below(8)));
    }
    found
}

/// The word that says which granules are dead is damaged: in each bit of it, or it is lost.
#[test]
fn no_damage_to_what_is_dead_shows() {
    let place = TestDir::new("dead");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let desc = open(&cached, b"file", libc::O_RDWR);
    write(&cached, desc, 0, &vec![0; 2 << 20]);
    let era = std::fs::read_dir(place.eras()).expect("eras").next().expect("one").expect("one");
    let index = std::fs::File::options().read(true).write(true).open(era.path().join("index"));
    let index = index.expect("opened");
    let length = index.metadata().expect("its length").len();
    // Chunks lie behind half as many files.
    let first = 4096 + (length - 4096) / 3;
    for bit in 0..=64 {
        read(&cached, desc, 0, 2 << 20);
        write(&cached, desc, 5 << 16, &vec![bit + 1; 1 << 16]);
        for at in (first..length).step_by(64) {
            let mut dead = [0; 8];
            index.read_exact_at(&mut dead, at + 40).expect("read");
            let word = u64::from_le_bytes(dead);
            let word = 1_u64.checked_shl(bit.into()).map_or(0, |flipped| word ^ flipped);
            if dead != [0; 8] {
                index.write_all_at(&word.to_le_bytes(), at + 40).expect("damaged");
            }
        }
        assert_eq!(read(&cached, desc, (5 << 16) - 1, 3), [0, bit + 1, bit + 1], "bit {bit}");
    }
}

/// An index that lost its end, or is none of ours.
#[test]
fn an_index_that_is_cut_or_foreign_is_not_used() {
    let place = TestDir::new("cut");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let desc = open(&cached, b"file", libc::O_RDWR);
    write(&cached, desc, 0, &vec![7; 100_000]);
    assert_eq!(read(&cached, desc, 0, 100_000), vec![7; 100_000]);
    let era = std::fs::read_dir(place.eras()).expect("eras").next().expect("one").expect("one");
    let index =
        std::fs::File::options().write(true).open(era.path().join("index")).expect("opened");
    index.set_len(4096).expect("cut");
    for at in [0, 5_000, 99_999] {
        assert_eq!(read(&cached, desc, at, 1), [7]);
    }
    write(&cached, desc, 5_000, &[8]);
    assert_eq!(read(&cached, desc, 5_000, 2), [8, 7]);
    index.set_len(0).expect("emptied");
    assert_eq!(read(&cached, desc, 5_000, 2), [8, 7]);
    let options = flac::Options {
        budget: 1 << 20,
        place: Some(place.dir.clone()),
        whose: TestDir::whose(),
        attach: None,
        ahead: None,
        told: |_, _| {},
    };
    let refused = flac::Cached::over(volume.clone() as _, &options).err().expect("refused");
    assert!(refused.contains("damaged"), "{refused}");
    // A directory of somebody else's.
    let mut whose = TestDir::whose();
    whose.owner += 1;
    std::os::unix::fs::chown(place.eras(), Some(4321), None).expect("root");
    let foreign = flac::Options { whose, ..options };
    let refused = flac::Cached::over(volume.clone() as _, &foreign).err().expect("refused");
    assert!(refused.contains("4321"), "{refused}");
}

/// The directory goes while it is used.
#[test]
fn a_directory_that_goes_is_no_failure() {
    let place = TestDir::new("gone");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let desc = open(&cached, b"file", libc::O_RDWR);
    write(&cached, desc, 0, &vec![7; 5 << 20]);
    assert_eq!(read(&cached, desc, 0, 10), [7; 10]);
    std::fs::remove_dir_all(place.eras()).expect("removed");
    for at in [0, 3 << 20, 5 << 20] {
        assert!(read(&cached, desc, at, 1 << 20).iter().all(|&byte| byte == 7));
    }
    write(&cached, desc, 1, &[9]);
    assert_eq!(read(&cached, desc, 0, 3), [7, 9, 7]);
    cached.close(desc).expect("closed");
    drop(cached);
    volume.leave().expect("left");
}
