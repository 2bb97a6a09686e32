//! A thread that fills ahead of readers in order: what it fills is right, whatever changes
//! meanwhile; it ends with the cache, and is not in a forked child.

use crate::support::{TestDir, open, write};
use flac::{CHUNK, Cached, Count, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfs::{Desc, FileSystem, IoOffset, UserOut};
use volume::{Mode, Volume};

static THREADS: AtomicU64 = AtomicU64::new(0);

/// Threads are counted for the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(run: Box<dyn FnOnce() + Send>) -> bool {
    let body = move || {
        THREADS.fetch_add(1, Ordering::SeqCst);
        run();
        THREADS.fetch_sub(1, Ordering::SeqCst);
    };
    std::thread::Builder::new().spawn(body).is_ok()
}

fn ahead(place: &TestDir, volume: &Arc<Volume>, budget: u64) -> Cached {
    let options = Options {
        budget,
        place: Some(place.cache.clone()),
        whose: TestDir::whose(),
        attach: None,
        ahead: Some(spawn),
        told: |_, _| {},
    };
    Cached::over(Arc::clone(volume) as _, &options).expect("a cache")
}

fn read(fs: &dyn FileSystem, desc: Desc, at: u64, into: &mut [u8]) {
    let length = into.len();
    assert_eq!(fs.read(desc, &mut [UserOut::new(into)], IoOffset::offset(at)), Ok(length));
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_mins(2), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_next_chunks_are_there_when_they_are_read() {
    let _alone = alone();
    let place = TestDir::new("ahead");
    let volume = place.attach(Mode::Strict);
    let cached = ahead(&place, &volume, 64 << 20);
    let file = open(&cached, b"file", libc::O_RDWR);
    for chunk in 0..8_u8 {
        write(&cached, file, u64::from(chunk) * CHUNK, &vec![chunk; CHUNK as usize]);
    }
    let mut piece = vec![0; 1 << 20];
    // One read is in no order.
    read(&cached, file, 0, &mut piece);
    assert_eq!((THREADS.load(Ordering::SeqCst), place.counted(Count::BytesFilled)), (0, 1 << 20));
    read(&cached, file, 1 << 20, &mut piece);
    until("four chunks ahead", || place.counted(Count::BytesFilled) == 5 * CHUNK);
    let misses = place.counted(Count::Misses);
    for at in 2..16 {
        read(&cached, file, at << 20, &mut piece);
        assert!(piece.iter().all(|byte| u64::from(*byte) == at / 2), "at {at} MiB");
        until("it is ahead", || place.counted(Count::BytesFilled) >= CHUNK * (at / 2 + 2).min(8));
    }
    // Each byte was read once, and none waited for.
    assert_eq!(
        (place.counted(Count::BytesFilled), place.counted(Count::Misses)),
        (16 << 20, misses)
    );
    // It ends when nobody has asked for a while.
    assert!(THREADS.load(Ordering::SeqCst) <= 1);
    drop(cached);
    until("the thread ends", || THREADS.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_reader_behind_it_sees_no_byte_from_before_a_change() {
    let _alone = alone();
    let place = TestDir::new("ahead-changed");
    let volume = place.attach(Mode::Strict);
    let cached = ahead(&place, &volume, 12 << 20);
    let file = open(&cached, b"file", libc::O_RDWR);
    for chunk in 0..8 {
        write(&cached, file, chunk * CHUNK, &vec![0; CHUNK as usize]);
    }
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let written: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (stop, rounds, written, cached) = (&stop, &rounds, &written, &cached);
            scope.spawn(move || {
                let mut piece = vec![0; 1 << 19];
                while !stop.load(Ordering::SeqCst) {
                    for at in (0..8 * CHUNK).step_by(piece.len()) {
                        let before = written[(at / CHUNK) as usize].load(Ordering::SeqCst);
                        read(cached, file, at, &mut piece);
                        let after = written[(at / CHUNK) as usize].load(Ordering::SeqCst) + 1;
                        let right = (before..=after).map(|number| number as u8);
                        let right: Vec<u8> = right.collect();
                        assert!(right.contains(&piece[9]), "{reader}: {} not {right:?}", piece[9]);
                    }
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut number = 0;
        let enough = if rotation::all() { 60 } else { 20 };
        // On a busy machine changes follow each other faster than pages come: then more rounds.
        let has_enough = |rounds: u64| {
            rounds >= enough && place.counted(Count::Hits) > 100 || rounds >= 50 * enough
        };
        while !has_enough(rounds.load(Ordering::SeqCst)) {
            number += 1;
            for chunk in 0..8 {
                write(&cached, file, chunk * CHUNK, &vec![number as u8; CHUNK as usize]);
                written[chunk as usize].store(number, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(place.counted(Count::Hits) > 100);
}
