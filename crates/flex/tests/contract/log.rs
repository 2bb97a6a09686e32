//! The log's contract, on files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::TestDir;
use flex::{Error, Follower, Log, LogOptions, check};
use pmem::costs::CostCounter;
use pmem::{Region, UserIn};

/// The log of a test's place.
trait HasLog {
    fn log(&self) -> PathBuf;
}

impl HasLog for TestDir {
    fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}

fn options(capacity: u64) -> LogOptions {
    LogOptions { capacity, create: true, page: true, ..LogOptions::default() }
}

/// A record that says what it is, and is checked by its contents.
fn record(thread: usize, number: usize) -> Vec<u8> {
    let len = 16 + (thread * 131 + number * 37) % 500;
    let mut bytes = vec![(thread * 7 + number) as u8; len];
    bytes[..8].copy_from_slice(&(thread as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

fn told(bytes: &[u8]) -> (usize, usize) {
    let word = |at: usize| usize::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    (word(0), word(8))
}

fn all(log: &Follower) -> Vec<Vec<u8>> {
    let (mut position, mut found) = (log.oldest().expect("a head"), Vec::new());
    let mut buffer = vec![0; log.longest()];
    while let Some(record) = log.read(position, &mut buffer).expect("it can be read") {
        found.push(buffer[..record.len].to_vec());
        position = record.next;
    }
    found
}

#[test]
fn records_come_back_in_order_over_many_laps_and_openings() {
    let place = TestDir::new();
    let mut kept = std::collections::VecDeque::new();
    for opening in 0..30 {
        let log = Log::open(&place.log(), &options(8192)).expect("a log");
        for number in 0..40 {
            let bytes = record(opening, number);
            let position = loop {
                match log.append(&bytes) {
                    Ok(position) => break position,
                    Err(Error::Full { needed, free }) => {
                        assert!(needed > free, "{needed} {free}");
                        kept.pop_front();
                        let oldest: Option<&(u64, Vec<u8>)> = kept.front();
                        log.trim(oldest.map_or(log.committed(), |it| it.0)).expect("trimmed");
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            kept.push_back((position, bytes));
        }
        let follower = Follower::open(&place.log()).expect("a follower");
        let found = all(&follower);
        assert!(found.iter().eq(kept.iter().map(|(_, bytes)| bytes)), "opening {opening}");
        let mut position = log.oldest();
        for (own, bytes) in &kept {
            let (record, at) = log.next(position).expect("it can be read").expect("a record");
            // SAFETY: the record is not trimmed meanwhile.
            let there = unsafe { std::slice::from_raw_parts(at.as_ptr(), record.len) };
            assert_eq!((record.position, there), (*own, &bytes[..]));
            position = record.next;
        }
        assert!(log.next(position).expect("the end").is_none());
        let checked = check(&place.log()).expect("a log");
        assert!(!checked.is_damaged() && checked.records == kept.len() as u64, "{checked:?}");
        assert_eq!(checked.writer, Some(std::process::id()));
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let place = TestDir::new();
    let path = place.log();
    assert!(matches!(Log::open(&path, &LogOptions::default()), Err(Error::System(..))));
    assert!(matches!(Log::open(&path, &options(100)), Err(Error::Invalid(_))));
    let log = Log::open(&path, &options(4096)).expect("a log");
    assert!(matches!(log.append(b""), Err(Error::Invalid(_))));
    assert!(matches!(log.append(&[1; 1009]), Err(Error::TooLong { most: 1008 })));
    let first = log.append(&[1; 1000]).expect("there is room");
    assert!(matches!(log.commit(first + 5000), Err(Error::Invalid(_))));
    assert!(matches!(log.trim(first + 8), Err(Error::Invalid(_))));
    while log.append(&[2; 1000]).is_ok() {}
    let before = log.image();
    assert!(matches!(log.append(&[3; 1000]), Err(Error::Full { .. })));
    assert_eq!(before, log.image());
    match Log::open(&path, &options(4096)) {
        Err(Error::Busy { process }) => assert_eq!(process, std::process::id()),
        other => panic!("{:?}", other.err()),
    }
    drop(log);
    // Whatever is behind the end is no record, and a log that is cut is none.
    let bytes = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &bytes[..bytes.len() - 64]).expect("a file");
    assert!(matches!(check(&path), Err(Error::Damaged(_))));
    assert!(matches!(Log::open(&path, &options(4096)), Err(Error::Damaged(_))));
}

#[test]
fn a_record_that_cannot_be_filled_is_skipped() {
    let place = TestDir::new();
    let log = Log::open(&place.log(), &options(8192)).expect("a log");
    log.append(b"one").expect("appended");
    // SAFETY: never read but by guarded copies, which find that it is not there.
    let bad =
        [UserIn::new(b"good"), unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 100) }];
    assert!(matches!(log.append_pieces(&bad), Err(Error::Caller)));
    assert!(matches!(log.put_pieces(&bad), Err(Error::Caller)));
    let last = log.put(b"two").expect("put");
    log.commit(last).expect("committed");
    let follower = Follower::open(&place.log()).expect("a follower");
    assert_eq!(all(&follower), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_payload_is_never_taken_for_a_record() {
    let place = TestDir::new();
    let log = Log::open(&place.log(), &options(4096)).expect("a log");
    log.append(&[7; 1000]).expect("appended");
    // All of the file, with valid records and their keys, as payload at each shift.
    for shift in 0..200 {
        let image = log.image();
        let from = 4096 + shift * 16 % 3000;
        let payload = image[from..from + 1000].to_vec();
        while log.append(&payload).is_err() {
            log.trim(log.committed()).expect("trimmed");
        }
        let opened = Log::open_on(Region::in_memory(log.image(), None)).expect("a log");
        assert_eq!(opened.committed(), log.committed(), "shift {shift}");
    }
}

/// A payload that is a valid record of the next lap, under the key that stands in the file while it
/// is chosen, at the very place where the next lap ends.
#[test]
fn a_payload_made_for_the_next_lap_is_no_record_there() {
    let place = TestDir::new();
    let log = Log::open(&place.log(), &options(4096)).expect("a log");
    let first = log.append(b"brings the key").expect("appended");
    let key = u64::from_le_bytes(log.image()[4096 + 16..][..8].try_into().expect("8 bytes"));
    // Where the second line of the next record lies, in the next lap.
    let made = 4096 + first + 64 + 64;
    let crc = pmem::checksum_after(pmem::checksum_words(key, [made, 8]), b"made up!");
    let mut payload = vec![0; 960];
    payload[48..52].copy_from_slice(&crc.to_le_bytes());
    payload[52..56].copy_from_slice(&8_u32.to_le_bytes());
    payload[56..64].copy_from_slice(&made.to_le_bytes());
    payload[64..72].copy_from_slice(b"made up!");
    log.append(&payload).expect("appended");
    while log.append(&[0; 960]).is_ok() {}
    log.trim(log.committed()).expect("trimmed");
    let mut end = log.committed();
    while end < made {
        // The key record comes first; what follows it ends where the payload's record begins.
        let left = if end <= 4096 { made - 4096 - 64 } else { made - end };
        log.append(&vec![1; left as usize - 16]).expect("appended");
        end = log.committed();
    }
    assert_eq!(end, made);
    let place_of_it = 4096 + (made % 4096) as usize;
    assert_eq!(&log.image()[place_of_it + 16..][..8], b"made up!");
    let opened = Log::open_on(Region::in_memory(log.image(), None)).expect("a log");
    assert_eq!(opened.committed(), made);
}

#[test]
fn threads_append_and_commit_for_each_other() {
    let place = TestDir::new();
    let log = Log::open(&place.log(), &options(16 << 20)).expect("a log");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..3000 {
                    let bytes = record(thread, number);
                    if (thread + number) % 3 == 0 {
                        log.put(&bytes).expect("put");
                    } else {
                        let position = log.append(&bytes).expect("appended");
                        assert!(log.committed() > position);
                    }
                }
                let position = log.put(b"the last 16 bytes").expect("put");
                log.commit(position).expect("committed");
                assert!(log.committed() > position);
            });
        }
    });
    let follower = Follower::open(&place.log()).expect("a follower");
    let (mut next, mut count) = ([0; 4], 0);
    for found in all(&follower).iter().filter(|found| !found.starts_with(b"the last")) {
        let (thread, number) = told(found);
        assert_eq!((number, found), (next[thread], &record(thread, number)));
        next[thread] += 1;
        count += 1;
    }
    assert_eq!(count, 12_000);
}

/// 4 followers read what is written, while it is trimmed under them.
#[test]
fn followers_see_whole_records_in_order_while_they_are_lapped() {
    let place = TestDir::new();
    let log = Log::open(&place.log(), &options(8192)).expect("a log");
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let followers: Vec<_> = (0..4)
            .map(|_| {
                let (path, ended) = (place.log(), &ended);
                scope.spawn(move || {
                    let follower = Follower::open(&path).expect("a follower");
                    let mut buffer = vec![0; follower.longest()];
                    let (mut position, mut last, mut seen, mut lapped) = (0, None, 0, 0);
                    loop {
                        let over = ended.load(Ordering::Acquire) != 0;
                        match follower.read(position, &mut buffer) {
                            Ok(Some(found)) => {
                                let (thread, number) = told(&buffer[..found.len]);
                                assert_eq!(&buffer[..found.len], record(thread, number));
                                assert!(last < Some(number), "{last:?} before {number}");
                                (last, position, seen) = (Some(number), found.next, seen + 1);
                            }
                            Ok(None) if over => return (seen, lapped, last),
                            Ok(None) => std::thread::yield_now(),
                            Err(Error::Lapped { oldest }) => {
                                assert!(oldest > position);
                                (position, lapped) = (oldest, lapped + 1);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for number in 0..30_000 {
            while log.append(&record(1, number)).is_err() {
                log.trim(log.committed()).expect("trimmed");
            }
        }
        ended.store(1, Ordering::Release);
        for follower in followers {
            let (seen, _, last) = follower.join().expect("a follower");
            assert!(seen > 0 && last == Some(29_999), "{seen} {last:?}");
        }
    });
}

#[test]
fn an_append_is_one_fence_and_a_put_none() {
    let region = |image: &[u8], counts| Region::in_memory(image, Some(counts));
    let log = Log::create_on(Region::in_memory(vec![0; 1 << 20], None)).expect("a log");
    let counts = CostCounter::new();
    let log = Log::open_on(region(&log.image(), Arc::clone(&counts) as _)).expect("a log");
    log.append(b"the first brings a key").expect("appended");
    let fences = || counts.fences.load(Ordering::Relaxed);
    let streamed = || counts.streamed_bytes.load(Ordering::Relaxed);
    let before = (fences(), streamed());
    log.append(&[1; 48]).expect("appended");
    assert_eq!((fences() - before.0, streamed() - before.1), (1, 64));
    let before = fences();
    let last = (0..16).map(|_| log.put(&[2; 48]).expect("put")).last().expect("16");
    assert_eq!(fences() - before, 0);
    log.commit(last).expect("committed");
    assert_eq!(fences() - before, 1);
}

/// Any byte that changes, in any log, is refused, or ends what is read; nothing panics.
#[test]
fn damaged_images_are_read_up_to_the_damage() {
    let log = Log::create_on(Region::in_memory(vec![0; 8192], None)).expect("a log");
    let mut records = Vec::new();
    for number in 0..12 {
        records.push(record(2, number));
        log.append(&records[number]).expect("appended");
    }
    let image = log.image();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..10_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut damaged = image.clone();
        damaged[state as usize % 8192] ^= 1 << (state >> 40 & 7);
        let Ok(log) = Log::open_on(Region::in_memory(&damaged, None)) else { continue };
        let (mut position, mut buffer) = (log.oldest(), vec![0; log.longest()]);
        let mut read = 0;
        while let Ok(Some(found)) = log.read(position, &mut buffer) {
            assert_eq!(&buffer[..found.len], records[read]);
            (position, read) = (found.next, read + 1);
        }
        let _ = log.append(b"goes on");
    }
}

/// Killed at any time, a writer leaves all that it said was durable, and the log to the next one.
#[test]
fn a_killed_writer_leaves_what_it_told_of() {
    const CHILD: &str = "SOLERA_FLEX_CHILD";
    if let Some(path) = std::env::var_os(CHILD) {
        let log = Log::open(Path::new(&path), &options(1 << 20)).expect("a log");
        for number in 0.. {
            let result = log.append(&record(3, number));
            if result.is_err() {
                log.trim(log.committed()).expect("trimmed");
                log.append(&record(3, number)).expect("appended");
            }
            println!("{number}");
        }
    }
    let place = TestDir::new();
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "log::a_killed_writer_leaves_what_it_told_of", "--nocapture"])
            .env(CHILD, place.log())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(
            child.stdout.take().expect("its output"),
        ));
        // It has begun.
        while lines.next().is_some_and(|line| line.expect("a line").trim() != "5") {}
        std::thread::sleep(std::time::Duration::from_micros(300 * round));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let whole = |line: std::io::Result<String>| line.ok()?.parse::<usize>().ok();
        let told_last = lines.filter_map(whole).last().unwrap_or(5);
        let log = Log::open(&place.log(), &options(1 << 20)).expect("its lock is gone");
        drop(log);
        let found = all(&Follower::open(&place.log()).expect("a follower"));
        let (_, last) = told(found.last().expect("a record"));
        assert!(last + 1 >= told_last, "{last} is the last one, {told_last} was told of");
    }
}

/// The position that a writer publishes is durable by nobody: after a power cut it is an old one.
#[test]
fn a_reader_that_comes_first_after_a_power_cut_finds_all() {
    /// Where a log's file has it.
    const COMMITTED: u64 = 192;
    for old in 0..=5 {
        let place = TestDir::new();
        let log = Log::open(&place.log(), &options(8192)).expect("a log");
        let mut positions: Vec<u64> =
            (0..5).map(|number| log.append(&record(1, number)).expect("appended")).collect();
        positions.push(log.committed());
        let file = std::fs::OpenOptions::new().write(true).open(place.log()).expect("its file");
        let position = positions[old].to_le_bytes();
        std::os::unix::fs::FileExt::write_all_at(&file, &position, COMMITTED).expect("a word");
        // While a process writes, what it publishes counts.
        assert_eq!(all(&Follower::open(&place.log()).expect("a follower")).len(), old);
        drop(log);
        let follower = Follower::open(&place.log()).expect("a follower");
        let mut expected: Vec<Vec<u8>> = (0..5).map(|number| record(1, number)).collect();
        assert_eq!(all(&follower), expected);
        // And it goes on with the next writer.
        let log = Log::open(&place.log(), &options(8192)).expect("a log");
        log.append(b"one more").expect("appended");
        expected.push(b"one more".to_vec());
        assert_eq!(all(&follower), expected);
    }
}
