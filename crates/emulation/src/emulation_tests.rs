//! The arithmetic of slow memory, by a clock of two ticks in a nanosecond that the tests set.

use super::*;
use std::time::{Duration, Instant};

const RATE: u64 = 2 << FRACTION;
/// Any moment.
const NOW: u64 = 1 << 40;

fn memory(model: &str) -> SlowMemory {
    SlowMemory::at_rate(model.parse().unwrap(), RATE)
}

/// Ticks from `now` on until the transfer's end, and the latency, in ns.
fn took_ns(moving: &Transfer, now: u64) -> (u64, u64) {
    (moving.moved.wrapping_sub(now) / 2, moving.latency / 2)
}

#[test]
fn a_copy_takes_its_bytes_and_a_latency() {
    for (model, way, expected) in [
        ("cxl-ssd", Way::Read, (1 << 20, 2_000)),
        ("cxl-ssd", Way::Write, (2 << 20, 2_000)),
        ("cxl", Way::Read, ((4 << 20) / 20, 250)),
        ("100/4,300/8", Way::Read, (1 << 20, 100)),
        ("100/4,300/8", Way::Write, (1 << 19, 300)),
        ("dram", Way::Read, (0, 0)),
    ] {
        let moving = memory(model).begin_at(NOW, way, 0, 4 << 20);
        let (transfer, latency) = took_ns(&moving, NOW);
        assert!(expected.0 - transfer <= 1, "{model}: {transfer}, not {}", expected.0);
        assert_eq!(latency, expected.1, "{model}");
    }
    let none = memory("cxl").begin_at(NOW, Way::Read, 0, 0);
    assert_eq!(took_ns(&none, NOW), (0, 0), "no bytes, no copy");
}

#[test]
fn a_copy_in_sequence_begins_where_the_last_one_ended() {
    let optane = memory("optane");
    let latency = |way, place, bytes| optane.begin_at(NOW, way, place, bytes).latency / 2;
    assert_eq!(latency(Way::Read, 1 << 20, 4096), 305);
    assert_eq!(latency(Way::Read, (1 << 20) + 4096, 100), 169);
    assert_eq!(latency(Way::Write, 0, 4096), 90, "a direction of its own");
    assert_eq!(latency(Way::Read, (1 << 20) + 4196, 100), 169);
    assert_eq!(latency(Way::Read, (1 << 20) + 4196, 100), 305, "the same once more");
    std::thread::scope(|threads| {
        let other = threads.spawn(|| latency(Way::Read, (1 << 20) + 4296, 100));
        assert_eq!(other.join().unwrap(), 305, "another thread's");
    });
    assert_eq!(latency(Way::Read, (1 << 20) + 4296, 100), 169);
}

#[test]
fn whole_lines_of_256_bytes_move_and_none_twice_in_sequence() {
    for (place, bytes, random, in_sequence) in [
        (0, 1, 1, 1),
        (0, 256, 1, 1),
        (255, 1, 1, 0),
        (255, 2, 2, 1),
        (64, 64, 1, 0),
        (64, 448, 2, 1),
        (256, 4096, 16, 16),
        (300, 4096, 17, 16),
        (u64::MAX - 1, u64::MAX, 1 << 56, (1 << 56) - 1),
    ] {
        assert_eq!(lines(place, bytes, false), random, "{bytes} at {place}");
        assert_eq!(lines(place, bytes, true), in_sequence, "{bytes} at {place} in sequence");
    }
}

/// Two callers by turns, each as fast as it can: each gets half.
#[test]
fn callers_share_the_bandwidth() {
    let memory = memory("0/1,0/1");
    let (mut one, mut other) = (NOW, NOW);
    for turn in 1..=8 {
        one = memory.begin_at(one, Way::Read, turn << 32, 512).moved;
        other = memory.begin_at(other, Way::Read, turn << 34, 512).moved;
        assert_eq!((one - NOW) / 2, (2 * turn - 1) * 512);
        assert_eq!((other - NOW) / 2, 2 * turn * 512);
    }
    let written = memory.begin_at(NOW, Way::Write, 0, 512);
    assert_eq!(took_ns(&written, NOW).0, 512, "writes have a bandwidth of their own");
    // The medium rested: no time is saved up.
    let later = other + 1_000_000;
    let after = memory.begin_at(later, Way::Read, 0, 512);
    assert_eq!(took_ns(&after, later).0, 512);
}

#[test]
fn a_busy_word_may_hold_anything() {
    let second = 2_000_000_000;
    for now in [0, 1, NOW, u64::MAX - 5, u64::MAX] {
        for (ahead, waits) in [
            (0, 0),
            (100, 100),
            (second, second),
            (second + 1, 0),
            (1 << 63, 0),
            (100_u64.wrapping_neg(), 0),
            (second.wrapping_neg(), 0),
            (u64::MAX, 0),
        ] {
            let memory = memory("0/1,0/1");
            memory.own[0].store(now.wrapping_add(ahead), Ordering::Relaxed);
            let moving = memory.begin_at(now, Way::Read, 0, 512);
            let took = moving.moved.wrapping_sub(now);
            assert_eq!(took, waits + 1024, "{ahead} ahead of {now}");
            assert_eq!(memory.own[0].load(Ordering::Relaxed), moving.moved, "it is right again");
        }
    }
}

/// Two processes that map the same words share the bandwidth; each may have measured another rate.
#[test]
fn words_in_a_region_are_shared() {
    let region: [AtomicU64; 16] = [const { AtomicU64::new(u64::MAX) }; 16];
    let words = region[8].as_ptr().cast();
    let word = |at: usize| region[at].load(Ordering::Relaxed);
    // SAFETY: words that live as long, and nothing else stores them.
    let attached = || unsafe { SlowMemory::shared("0/1,0/0.5".parse().unwrap(), words) };
    let (one, other) = (attached(), attached());
    for memory in [&one, &other, &one] {
        let _ = memory.begin_at(NOW, Way::Read, 0, 1 << 20);
    }
    let reads = one.ways[0].transfer(1 << 20);
    assert_eq!(word(8), NOW + 3 * reads);
    assert_eq!(word(9), u64::MAX, "nothing was written yet");
    let _ = other.begin_at(NOW, Way::Write, 0, 1 << 20);
    assert_eq!(word(9), NOW + other.ways[1].transfer(1 << 20));
    assert_eq!(word(7), u64::MAX);
    assert_eq!(word(10), u64::MAX);
}

#[test]
fn parts_are_one_copy_with_one_latency() {
    let memory = SlowMemory::new("1000000/1000,0/1".parse().unwrap());
    let (start, mut copied) = (Instant::now(), Vec::new());
    let parts = [(0, 100), (100, 200), (300, 5)];
    let done: Result<(), ()> = memory.in_parts(Way::Read, 0, parts.into_iter(), |done, bytes| {
        copied.push((done, bytes));
        Ok(())
    });
    assert_eq!(done, Ok(()));
    assert!(start.elapsed() >= Duration::from_micros(990));
    assert_eq!(copied, parts);
    let failed = memory.in_parts(Way::Read, 0, parts.into_iter(), |done, _| {
        if done == 100 { Err(done) } else { Ok(()) }
    });
    assert_eq!(failed, Err(100));
}

#[test]
fn a_peer_is_slowed_by_the_same_function() {
    let memory = SlowMemory::new("cxl-ssd".parse().unwrap());
    let start = Instant::now();
    let moving = memory.read(0, 4 << 20);
    moving.wait();
    assert!(start.elapsed() >= Duration::from_micros(1_040), "4 MiB take 1049 us");
    assert_eq!(memory.model().to_string(), "cxl-ssd");
}
