//! Logs and other processes: killed at every fence, and followed by four.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Child, TestDir, alone, in_child};
use flex::{Error, Follower, Log, LogOptions};
use pmem::{Class, Hook, OpenOptions, Purpose, Region};

fn options(capacity: u64) -> LogOptions {
    LogOptions { capacity, create: true, page: true, ..LogOptions::default() }
}

/// A record that says which it is, by each of its bytes.
fn record(number: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; 8 + number * 37 % 300];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> usize {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    assert_eq!(bytes, record(number), "record {number} is whole");
    number
}

/// A word that a child shares.
fn shared_word() -> &'static AtomicU64 {
    // SAFETY: a fresh page, which stays, and holds zeros.
    unsafe {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast()
    }
}

/// Kills its process at a fence.
struct KillAt(AtomicU64);

impl KillAt {
    fn reach_point(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: a signal to this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    }
}

impl Hook for KillAt {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {
        self.reach_point();
    }

    fn flush(&self, _: u64, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {
        self.reach_point();
    }
}

/// Opens the log, as `Log::open` does but for its lock, which is another test's matter.
fn open_hooked(path: &Path, class: Class, kill_at: u64) -> Log {
    let options =
        OpenOptions { write: true, purpose: Purpose::File, allow_page: true, ..Default::default() };
    let mut region = Region::open(path, &options).expect("the log's file");
    region.set_class(class);
    region.set_hook(Arc::new(KillAt(AtomicU64::new(kill_at))));
    Log::open_on(region).expect("a log")
}

/// What a writer does: appends, puts and commits over three laps. Tells how many are durable, and
/// how many it may have trimmed.
fn write(log: &Log, told: &AtomicU64, trimmed: &AtomicU64) {
    for number in 0..40 {
        let bytes = record(number);
        let position = loop {
            let added = if number % 3 == 0 { log.append(&bytes) } else { log.put(&bytes) };
            match added {
                Ok(position) => break position,
                Err(Error::Full { .. }) => {
                    trimmed.store(number as u64, Ordering::Relaxed);
                    log.trim(log.committed()).expect("trimmed");
                }
                Err(error) => panic!("{error}"),
            }
        };
        if number % 3 == 2 {
            log.commit(position).expect("committed");
        }
        if number % 3 != 1 {
            told.store(number as u64 + 1, Ordering::Relaxed);
        }
    }
}

#[test]
fn killed_at_every_store_and_fence_it_leaves_what_it_told_of() {
    if !alone("processes::killed_at_every_store_and_fence_it_leaves_what_it_told_of") {
        return;
    }
    // Whose stores are plain, and flushed ones.
    for (class, least) in [(Class::Volatile, 90), (Class::CacheLine, 120)] {
        killed_at_every_point(class, least);
    }
}

/// There are `least` points, or more.
fn killed_at_every_point(class: Class, least: u64) {
    let place = TestDir::new();
    let path = place.0.join("log");
    let (told, trimmed) = (shared_word(), shared_word());
    for kill_at in 1.. {
        let _ = std::fs::remove_file(&path);
        drop(Log::open(&path, &options(4096)).expect("a log"));
        told.store(0, Ordering::Relaxed);
        trimmed.store(0, Ordering::Relaxed);
        let code = in_child(|| {
            write(&open_hooked(&path, class, kill_at), told, trimmed);
            0
        });
        let told = told.load(Ordering::Relaxed) as usize;
        // The next opener goes on; a reader finds all that was told of, but for what was trimmed.
        let log = Log::open(&path, &options(4096)).expect("its lock is free");
        let follower = Follower::open(&path).expect("a follower");
        let (mut position, mut buffer) = (follower.oldest().expect("a head"), [0; 1024]);
        let mut last = None;
        while let Some(found) = follower.read(position, &mut buffer).expect("it can be read") {
            let number = number_of(&buffer[..found.len]);
            assert!(last.is_none_or(|last| number == last + 1), "{last:?}, then {number}");
            (position, last) = (found.next, Some(number));
        }
        let found = last.map_or(0, |last| last + 1);
        let gone = trimmed.load(Ordering::Relaxed) as usize;
        assert!(
            found >= told || found == 0 && gone >= told,
            "point {kill_at}: {found} found, {told} were told of"
        );
        let own = loop {
            match log.append(b"the next one's") {
                Ok(own) => break own,
                Err(_) => log.trim(log.committed()).expect("trimmed"),
            }
        };
        let read = log.read(own, &mut buffer).expect("it can be read").expect("a record");
        assert_eq!(&buffer[..read.len], b"the next one's");
        if code == 0 {
            assert!(kill_at > least, "{class}: {kill_at} points");
            break;
        }
        assert_eq!(code, 128 + libc::SIGKILL);
    }
}

/// Four processes follow a writer, which goes round its ring many times; where they are lapped they
/// are told of the oldest record.
#[test]
fn four_processes_follow_a_writer_that_laps_them() {
    const RECORDS: usize = 100_000;
    if !alone("processes::four_processes_follow_a_writer_that_laps_them") {
        return;
    }
    let place = TestDir::new();
    let path = place.0.join("log");
    let log = Log::open(&path, &options(64 << 10)).expect("a log");
    let lapped = shared_word();
    let followers: Vec<Child> = (0..4)
        .map(|_| {
            Child::of(|| {
                let follower = Follower::open(&path).expect("a follower");
                let (mut position, mut buffer) = (0, [0; 1024]);
                let mut last = None;
                while last != Some(RECORDS - 1) {
                    match follower.read(position, &mut buffer) {
                        Ok(Some(found)) => {
                            let number = number_of(&buffer[..found.len]);
                            assert!(last.is_none_or(|last| number > last), "in order");
                            (position, last) = (found.next, Some(number));
                        }
                        Ok(None) => std::thread::yield_now(),
                        Err(Error::Lapped { oldest }) => {
                            assert!(oldest > position);
                            position = oldest;
                            lapped.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                0
            })
        })
        .collect();
    for number in 0..RECORDS {
        while let Err(error) = log.append(&record(number)) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            log.trim(log.committed()).expect("trimmed");
        }
    }
    for follower in followers {
        assert_eq!(follower.end(), 0);
    }
    println!("lapped {} times", lapped.load(Ordering::Relaxed));
}
