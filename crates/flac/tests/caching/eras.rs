//! What a cache keeps over the end of an era, and when it must not.

use crate::support::{TestDir, copy, open, read, write};
use flac::Count;
use vfs::FileSystem;
use volume::Mode;

const LENGTH: usize = 3 << 20;

/// Uses the volume by the cache as a short program does: reads the file whole, and checks it.
/// Gives whether nothing had to be filled.
fn reads_warm(place: &TestDir, value: u8) -> bool {
    let before = if place.eras().exists() { place.counted(Count::BytesFilled) } else { 0 };
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    // An era's counters go with its directory.
    let before = before.min(place.counted(Count::BytesFilled));
    let desc = open(&cached, b"file", libc::O_RDONLY);
    let bytes = read(&cached, desc, 0, LENGTH + 1);
    assert_eq!(bytes.len(), LENGTH);
    assert!(bytes.iter().all(|&byte| byte == value), "other bytes than {value}");
    let warm = place.counted(Count::BytesFilled) == before;
    cached.close(desc).expect("closed");
    drop(cached);
    volume.leave().expect("left");
    warm
}

/// Writes the file, without the cache.
fn set(place: &TestDir, value: u8) {
    let volume = place.attach(Mode::Strict);
    let desc = open(&*volume, b"file", libc::O_RDWR);
    write(&*volume, desc, 0, &vec![value; LENGTH]);
    volume.close(desc).expect("closed");
    volume.leave().expect("left");
}

#[test]
fn it_is_warm_after_an_orderly_end() {
    let place = TestDir::new("warm");
    set(&place, 1);
    assert!(!reads_warm(&place, 1));
    assert!(reads_warm(&place, 1));
    assert!(reads_warm(&place, 1));
    let eras = std::fs::read_dir(place.eras()).expect("a directory").count();
    assert_eq!(eras, 1, "directories of other eras are left");
}

#[test]
fn it_is_cold_after_an_era_without_it() {
    let place = TestDir::new("skipped");
    set(&place, 1);
    assert!(!reads_warm(&place, 1));
    // Whether it changes a file or not.
    place.attach(Mode::Strict).leave().expect("left");
    assert!(!reads_warm(&place, 1));
    assert!(reads_warm(&place, 1));
    set(&place, 2);
    assert!(!reads_warm(&place, 2));
}

/// A file changes in an era that others have begun, before the cache is there again.
#[test]
fn a_change_in_the_next_era_is_seen() {
    let place = TestDir::new("changed");
    set(&place, 1);
    assert!(!reads_warm(&place, 1));
    // The one that begins the era knows the cache, and so takes it over; another one changes.
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let other = place.attach(Mode::Strict);
    let desc = open(&*other, b"file", libc::O_RDWR);
    write(&*other, desc, 0, &[3]);
    let own = open(&cached, b"file", libc::O_RDONLY);
    assert_eq!(read(&cached, own, 0, 2), [3, 1]);
    assert_eq!(read(&cached, own, LENGTH as u64 - 1, 2), [1]);
    for (fs, desc) in [(&*other as &dyn FileSystem, desc), (&cached, own)] {
        fs.close(desc).expect("closed");
    }
    drop(cached);
    other.leave().expect("left");
    volume.leave().expect("left");
    set(&place, 4);
    assert!(!reads_warm(&place, 4));
}

/// A death in between: nothing is known of what it did.
#[test]
fn it_is_cold_after_a_death() {
    let place = TestDir::new("death");
    set(&place, 1);
    assert!(!reads_warm(&place, 1));
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    // As if it had died: the file of the volume as it is now is what a survivor finds.
    let image = place.dir.join("image");
    copy(&place.volume(), &image);
    drop(cached);
    volume.leave().expect("left");
    copy(&image, &place.volume());
    assert!(!reads_warm(&place, 1));
}

/// A volume's file that is put back from a copy: epochs come again, eras do not.
#[test]
fn a_copy_that_is_put_back_is_not_taken_for_what_it_was() {
    let place = TestDir::new("restored");
    set(&place, 1);
    let copied = place.dir.join("copy");
    copy(&place.volume(), &copied);
    assert!(!reads_warm(&place, 1));
    set(&place, 2);
    assert!(!reads_warm(&place, 2));
    // The same number of epochs as when 2 was cached, with other bytes.
    copy(&copied, &place.volume());
    set(&place, 3);
    set(&place, 3);
    assert!(!reads_warm(&place, 3));
    // Both at once, with one directory.
    let twin = TestDir::at(place.dir.join("twin"));
    std::fs::create_dir(&twin.dir).expect("made");
    copy(&place.volume(), &twin.volume());
    set(&twin, 7);
    let volume = twin.attach(Mode::Strict);
    let options = flac::Options {
        budget: 64 << 20,
        place: Some(place.dir.clone()),
        whose: TestDir::whose(),
        attach: None,
        ahead: None,
        told: |_, _| {},
    };
    let cached = flac::Cached::over(volume.clone() as _, &options).expect("a cache");
    let desc = open(&cached, b"file", libc::O_RDONLY);
    assert_eq!(read(&cached, desc, 0, 1), [7]);
    reads_warm(&place, 3);
    assert_eq!(read(&cached, desc, 0, 1), [7]);
    cached.close(desc).expect("closed");
    drop(cached);
    volume.leave().expect("left");
}
