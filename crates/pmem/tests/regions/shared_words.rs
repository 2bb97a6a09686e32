//! Volatile words that processes share: atomic, never traced, usable as locks.

use crate::directory::TestDir;
use pmem::trace::Trace;
use pmem::{Hook, Region};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[test]
fn each_operation_gives_the_value_before() {
    let trace = Trace::new();
    let region = Region::in_memory([0; 4096], Some(trace.clone()));
    region.shared_store(8, 0b1100).unwrap();
    assert_eq!(region.shared_or(8, 0b0011), Ok(0b1100));
    assert_eq!(region.shared_and(8, 0b0110), Ok(0b1111));
    assert_eq!(region.shared_add(8, u64::MAX), Ok(0b0110));
    assert_eq!(region.shared_swap(8, 40), Ok(0b0101));
    assert_eq!(region.shared_cas(8, 40, 41), Ok(Ok(40)));
    assert_eq!(region.shared_cas(8, 40, 42), Ok(Err(41)));
    assert_eq!(region.shared_load(8), Ok(41));
    region.shared_write(100, &[7; 300]).unwrap();
    region.shared_zero(101, 298).unwrap();
    let mut bytes = [1; 300];
    region.shared_read(100, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[299]), (7, 7));
    assert!(bytes[1..299].iter().all(|byte| *byte == 0));
    assert!(trace.take().is_empty(), "volatile words are not persistent stores");
}

/// Counts the points at which a test could kill the process.
#[derive(Default)]
struct Points(AtomicU64);

impl Hook for Points {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {}
    fn flush(&self, _: u64, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {}
    fn shared(&self, _: u64) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_hook_hears_of_every_change_and_of_no_load() {
    let points = Arc::new(Points::default());
    let region = Region::in_memory([0; 4096], Some(points.clone()));
    region.shared_store(0, 1).unwrap();
    region.shared_add(0, 1).unwrap();
    region.shared_load(0).unwrap();
    let _ = region.shared_cas(0, 9, 1).unwrap();
    region.shared_write(0, &[1; 64]).unwrap();
    assert_eq!(points.0.load(Relaxed), 4);
}

#[test]
fn additions_of_many_threads_are_all_there() {
    let region = Region::anonymous(4096).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    region.shared_add(64, 3).unwrap();
                }
            });
        }
    });
    assert_eq!(region.shared_load(64), Ok(4 * 20_000 * 3));
}

/// Checked words are read by the line or the block while others store them: half of an old word and
/// half of a new one would look like damage.
#[test]
fn no_word_is_torn_whatever_the_readers_alignment() {
    const LEN: usize = 4096 + 64;
    let region = Region::anonymous(8192).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (0..=255u8).cycle() {
                for word in 0..LEN as u64 / 8 {
                    let value = u64::from_ne_bytes([byte; 8]);
                    let _ = region.store64(word * 8, value).unwrap();
                }
                if done.load(Relaxed) {
                    break;
                }
            }
        });
        let mut buffer = vec![0u8; LEN + 64];
        let torn = (0..1_000_000).find(|round| {
            let len = [64, 72, 100, 200, 256, 300, 513, 4096][round % 8];
            let (shift, off) = (round / 8 % 17, round / 136 % 5 * 3);
            let target = &mut buffer[shift..shift + len];
            region.read(off as u64, target).unwrap();
            let mut words = target[off.next_multiple_of(8) - off..].chunks_exact(8);
            words.any(|word| word.iter().any(|byte| *byte != word[0]))
        });
        done.store(true, Relaxed);
        assert_eq!(torn, None, "the round that saw a torn word");
    });
}

#[test]
fn a_futex_wakes_its_sleeper_and_times_out_without() {
    let region = Region::anonymous(4096).unwrap();
    let start = Instant::now();
    assert!(!region.futex_wait(16, 0, Some(Duration::from_millis(20))));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert!(region.futex_wait(16, 1, None), "another value: look again at once");
    assert!(!region.futex_wait(17, 0, None), "no aligned word");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while region.shared_load(16).unwrap() == 0 {
                assert!(region.futex_wait(16, 0, Some(Duration::from_mins(2))));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        region.shared_store(16, 1).unwrap();
        region.futex_wake(16, u32::MAX);
    });
}

/// Two mappings of one file, as two processes have them.
#[test]
fn what_one_mapping_stores_the_other_loads() {
    let directory = TestDir::in_memory("shared");
    let path = directory.file("region");
    let one = Region::create(path.as_ref(), 1 << 20, 0o600, true).unwrap();
    let options = pmem::OpenOptions { write: true, ..Default::default() };
    let two = Region::open(path.as_ref(), &options).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while two.shared_load(0).unwrap() == 0 {
                two.futex_wait(0, 0, Some(Duration::from_mins(2)));
            }
            two.shared_add(0, 1).unwrap();
        });
        one.shared_store(0, 1).unwrap();
        one.futex_wake(0, 1);
    });
    assert_eq!(one.shared_load(0), Ok(2));
}
