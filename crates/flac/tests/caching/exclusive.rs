//! A process with the cache works alone as often as one without, and others who come end that as
//! often (`crates/volume/src/process/exclusive.rs`): counted word by word, and coming by coming.

use crate::support::{Random, TestDir, open, read, write};
use flac::Cached;
use pmem::{Hook, Region};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::FileSystem;
use volume::{AttachOptions, FormatOptions, Mode, Volume, attach_region, format_region};

/// As if glibc said it: the process has one thread.
static ONE: AtomicU8 = AtomicU8::new(1);

/// Counts the shared words that calls change, and those of them that change alone.
#[derive(Default)]
struct Words {
    volume: OnceLock<Weak<Volume>>,
    counts: AtomicBool,
    all: AtomicU64,
    alone: AtomicU64,
}

impl Words {
    fn count(&self, while_it_is: impl FnOnce()) {
        self.counts.store(true, Ordering::Relaxed);
        while_it_is();
        self.counts.store(false, Ordering::Relaxed);
    }
}

impl Hook for Words {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {}

    fn flush(&self, _: u64, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {}

    fn shared(&self, _: u64) {
        let volume = self.volume.get().and_then(Weak::upgrade);
        if let Some(volume) = volume
            && self.counts.load(Ordering::Relaxed)
        {
            self.all.fetch_add(1, Ordering::Relaxed);
            self.alone.fetch_add(u64::from(volume.runs_exclusively()), Ordering::Relaxed);
        }
    }
}

/// Changes of files, which are counted, and reads, which the cache serves, in between. Gives the
/// words that changed, and those that changed alone.
fn words(place: &TestDir, image: &[u8], mode: Mode, with_cache: bool) -> [u64; 2] {
    let words = Arc::new(Words::default());
    let region = Region::in_memory(image, Some(words.clone()));
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = attach_region(region, &options).expect("attached");
    words.volume.set(Arc::downgrade(&volume)).expect("once");
    volume.may_run_exclusively(&ONE);
    let cached = with_cache.then(|| place.cached(&volume, 16 << 20));
    let fs: &dyn FileSystem = cached.as_ref().map_or(&*volume, |cached| cached as _);
    let desc = open(fs, b"file", libc::O_RDWR);
    let mut random = Random(5);
    for round in 0..300 {
        let (at, length) = (random.below(4 << 20), random.below(20_000) as usize + 1);
        words.count(|| match round % 8 {
            6 => fs.truncate(fs.describe(desc).expect("described").0, at).expect("cut"),
            7 => fs.allocate(desc, 0, at, length as u64).expect("allocated"),
            _ => write(fs, desc, at, &vec![round as u8; length]),
        });
        for _ in 0..3 {
            read(fs, desc, random.below(4 << 20), length);
        }
    }
    [words.all.load(Ordering::Relaxed), words.alone.load(Ordering::Relaxed)]
}

#[test]
fn as_many_words_change_alone() {
    let place = TestDir::new("words");
    // Records and hints belong to CPUs.
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &cpus).expect("a CPU");
    let mut image = vec![0; 64 << 20];
    let region = Region::in_memory(&image, None);
    format_region(&region, &FormatOptions::default()).expect("format");
    region.read(0, &mut image).expect("its bytes");
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let [without, with] = [false, true].map(|cache| words(&place, &image, mode, cache));
        assert_eq!(with, without, "{mode}: words, and those alone");
        let [all, alone] = with;
        assert!(alone > 1_000 && alone > all / 2, "{mode}: {alone} of {all} words");
    }
    assert!(place.counted(flac::Count::BytesFilled) > 0);
}

/// What a process sees of others who come and go while it works: how often it had to stop working
/// alone, and whether it works alone again.
fn comings(name: &str, with_cache: bool) -> Vec<(u64, bool)> {
    let place = TestDir::new(name);
    let volume = place.attach(Mode::Strict);
    volume.may_run_exclusively(&ONE);
    let cached: Option<Cached> = with_cache.then(|| place.cached(&volume, 16 << 20));
    let fs: &dyn FileSystem = cached.as_ref().map_or(&*volume, |cached| cached as _);
    let desc = open(fs, b"file", libc::O_RDWR);
    let (mut random, mut seen) = (Random(6), Vec::new());
    let mut work = |seen: &mut Vec<(u64, bool)>| {
        for _ in 0..20 {
            let (at, length) = (random.below(4 << 20), random.below(20_000) as usize + 1);
            write(fs, desc, at, &vec![1; length]);
            read(fs, desc, random.below(4 << 20), length);
        }
        seen.push(volume.times_shared().expect("a count"));
    };
    for round in 0..20 {
        work(&mut seen);
        let other = place.attach(Mode::Strict);
        let other_cached = (with_cache && round % 2 == 0).then(|| place.cached(&other, 16 << 20));
        work(&mut seen);
        let other_fs: &dyn FileSystem = other_cached.as_ref().map_or(&*other, |cached| cached as _);
        let desc = open(other_fs, b"file", libc::O_RDWR);
        write(other_fs, desc, 0, &[2; 10_000]);
        read(other_fs, desc, 0, 20_000);
        other_fs.close(desc).expect("closed");
        drop(other_cached);
        other.leave().expect("left");
    }
    work(&mut seen);
    seen
}

#[test]
fn others_who_come_are_met_as_often() {
    let [without, with] = [("without", false), ("with", true)].map(|(name, c)| comings(name, c));
    assert_eq!(with, without, "times it stopped working alone, and whether it does, at each step");
    let (times, shared) = *with.last().expect("steps");
    assert!(times >= 20 && !shared, "{times} {shared}");
}
