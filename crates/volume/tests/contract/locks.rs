//! Record locks and `flock`: who excludes whom, how ranges split and merge, who waits and who dies.
//!
//! Two attachments of one process have different slots, so they stand for two processes.

use crate::common::{Place, child, put, role};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vfs::{
    Desc, FileSystem, FileSystemExt, LockKind, LockOwner, Locks, Node, OpenFlags, RecordLock,
};
use volume::Volume;

const PROCESS: LockOwner = LockOwner::Process;
const DESCRIPTION: LockOwner = LockOwner::Description;

fn lock(kind: LockKind, start: u64, end: u64) -> RecordLock {
    RecordLock { kind, start, end, pid: 0 }
}

fn read(start: u64, end: u64) -> RecordLock {
    lock(LockKind::Read, start, end)
}

fn write(start: u64, end: u64) -> RecordLock {
    lock(LockKind::Write, start, end)
}

fn unlock(start: u64, end: u64) -> RecordLock {
    lock(LockKind::Unlock, start, end)
}

/// A process as the tests see it.
struct Party {
    volume: Arc<Volume>,
    desc: Desc,
}

impl Party {
    fn new(place: &Place, node: Node) -> Self {
        let volume = place.attach();
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        Self { volume, desc }
    }

    fn set(&self, lock: &RecordLock) -> Result<(), Errno> {
        self.volume.record_lock(self.desc, PROCESS, lock, false)
    }

    fn wait(&self, lock: &RecordLock) -> Result<(), Errno> {
        self.volume.record_lock(self.desc, PROCESS, lock, true)
    }

    fn test(&self, lock: &RecordLock) -> Option<RecordLock> {
        self.volume.test_lock(self.desc, PROCESS, lock).expect("tested")
    }

    fn flock(&self, kind: LockKind) -> Result<(), Errno> {
        self.volume.flock(self.desc, kind, false)
    }
}

fn two(name: &str) -> (Place, Node, Party, Party) {
    let place = Place::formatted(name);
    let node = put(&place.attach(), "file", b"contents");
    let (a, b) = (Party::new(&place, node), Party::new(&place, node));
    (place, node, a, b)
}

#[test]
fn readers_share_and_writers_exclude() {
    let (_place, node, a, b) = two("exclude");
    assert_eq!(a.set(&read(0, 9)), Ok(()));
    assert_eq!(b.set(&read(5, 14)), Ok(()));
    assert_eq!(b.set(&write(5, 14)), Err(Errno::AGAIN));
    assert_eq!(b.set(&write(10, 14)), Ok(()));
    assert_eq!(a.set(&read(14, 20)), Err(Errno::AGAIN));
    let found = a.test(&write(0, u64::MAX)).expect("refused");
    assert_eq!((found.start, found.end, found.kind), (5, 9, LockKind::Read));
    assert_eq!(found.pid, std::process::id() as i32);
    assert_eq!(b.set(&unlock(0, u64::MAX)), Ok(()));
    assert_eq!(a.set(&write(0, u64::MAX)), Ok(()));
    assert_eq!(a.test(&write(0, u64::MAX)), None, "one's own lock refuses nothing");
    // Any close drops the process's locks; the face says so.
    a.volume.release_locks(node.into()).expect("released");
    assert_eq!(b.set(&write(0, u64::MAX)), Ok(()));
}

#[test]
fn a_lock_needs_a_description_open_for_it() {
    let (_place, node, a, _b) = two("access");
    let reader = a.volume.open(node.into(), OpenFlags(libc::O_RDONLY), None).expect("opened");
    let writer = a.volume.open(node.into(), OpenFlags(libc::O_WRONLY), None).expect("opened");
    let set = |desc, lock| a.volume.record_lock(desc, PROCESS, &lock, false);
    assert_eq!(set(reader, write(0, 0)), Err(Errno::BADF));
    assert_eq!(set(writer, read(0, 0)), Err(Errno::BADF));
    assert_eq!(set(reader, read(0, 0)), Ok(()));
    assert_eq!(set(writer, write(5, 2)), Err(Errno::INVAL));
}

/// Locks of three parties, byte by byte: 0 none, 1 read, 2 write.
struct Model([[u8; 64]; 3]);

impl Model {
    fn refuses(&self, party: usize, lock: &RecordLock) -> bool {
        let wanted = u8::from(lock.kind == LockKind::Write) + 1;
        lock.kind != LockKind::Unlock
            && (lock.start..=lock.end).any(|byte| {
                (0..3).any(|other| {
                    let held = self.0[other][byte as usize];
                    other != party && held != 0 && held + wanted > 2
                })
            })
    }

    fn set(&mut self, party: usize, lock: &RecordLock) {
        let value = match lock.kind {
            LockKind::Unlock => 0,
            LockKind::Read => 1,
            LockKind::Write => 2,
        };
        self.0[party][lock.start as usize..=lock.end as usize].fill(value);
    }
}

#[test]
fn ranges_split_and_merge_as_in_a_model() {
    let place = Place::formatted("model");
    let node = put(&place.attach(), "file", b"contents");
    let parties: Vec<_> = (0..3).map(|_| Party::new(&place, node)).collect();
    let mut model = Model([[0; 64]; 3]);
    let mut draw = crate::common::random(7);
    for step in 0..20_000 {
        let party = draw(3) as usize;
        let (x, y) = (draw(64), draw(64));
        let kind = [LockKind::Unlock, LockKind::Unlock, LockKind::Read, LockKind::Write];
        let wanted = lock(kind[draw(4) as usize], x.min(y), x.max(y));
        let refused = model.refuses(party, &wanted);
        if draw(4) == 0 && wanted.kind != LockKind::Unlock {
            assert_eq!(parties[party].test(&wanted).is_some(), refused, "step {step}: {wanted:?}");
            continue;
        }
        let result = parties[party].set(&wanted);
        assert_eq!(result, if refused { Err(Errno::AGAIN) } else { Ok(()) }, "step {step}");
        if !refused {
            model.set(party, &wanted);
        }
    }
}

#[test]
fn description_locks_exclude_process_locks_and_end_with_the_description() {
    let (_place, node, a, b) = two("ofd");
    let ofd = |party: &Party, lock| party.volume.record_lock(party.desc, DESCRIPTION, &lock, false);
    assert_eq!(ofd(&a, write(0, 9)), Ok(()));
    assert_eq!(a.set(&write(0, 9)), Err(Errno::AGAIN), "even of the same process");
    assert_eq!(b.set(&read(9, 12)), Err(Errno::AGAIN));
    assert_eq!(b.test(&read(9, 12)).map(|found| found.pid), Some(-1));
    a.volume.release_locks(node.into()).expect("released");
    assert_eq!(b.set(&read(9, 12)), Err(Errno::AGAIN), "a close does not drop it");
    a.volume.close(a.desc).expect("closed");
    assert_eq!(b.set(&read(9, 12)), Ok(()));
}

#[test]
fn flock_is_a_world_of_its_own() {
    let (_place, _node, a, b) = two("flock");
    assert_eq!(a.flock(LockKind::Read), Ok(()));
    assert_eq!(b.flock(LockKind::Read), Ok(()));
    assert_eq!(b.flock(LockKind::Write), Err(Errno::AGAIN));
    // As on Linux, the conversion that failed has lost what there was.
    assert_eq!(a.flock(LockKind::Write), Ok(()));
    assert_eq!(b.flock(LockKind::Read), Err(Errno::AGAIN));
    assert_eq!(b.set(&write(0, u64::MAX)), Ok(()), "record locks do not see it");
    assert_eq!(a.flock(LockKind::Unlock), Ok(()));
    assert_eq!(b.flock(LockKind::Write), Ok(()));
}

#[test]
fn who_waits_goes_on_when_the_lock_is_free() {
    let (_place, _node, a, b) = two("wait");
    assert_eq!(a.set(&write(0, 9)), Ok(()));
    let released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert_eq!(b.wait(&write(5, 14)), Ok(()));
            assert!(released.load(Ordering::SeqCst), "it waited");
        });
        std::thread::sleep(Duration::from_millis(50));
        released.store(true, Ordering::SeqCst);
        assert_eq!(a.set(&unlock(0, 9)), Ok(()));
        waiter.join().expect("joined");
    });
    assert_eq!(a.set(&read(14, 14)), Err(Errno::AGAIN));
}

#[test]
fn a_circle_of_waiters_is_a_deadlock() {
    let (_place, _node, a, b) = two("deadlock");
    assert_eq!(a.set(&write(0, 0)), Ok(()));
    assert_eq!(b.set(&write(1, 1)), Ok(()));
    // The one that asks last is refused: it makes room for the other.
    let asks = |who: &Party, wanted, own| {
        let got = who.wait(&write(wanted, wanted));
        if got == Err(Errno::DEADLK) {
            assert_eq!(who.set(&unlock(own, own)), Ok(()));
        }
        got
    };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| asks(&a, 1, 0));
        std::thread::sleep(Duration::from_millis(30));
        let got = [asks(&b, 0, 1), waiter.join().expect("joined")];
        let refused = got.iter().filter(|got| **got == Err(Errno::DEADLK)).count();
        assert!(refused == 1 && got.contains(&Ok(())), "{got:?}");
    });
}

/// Each of two holds a lock; one waits for the other's, which that gives up before it waits for the
/// first one's: nobody is in a circle, though the waiter may not have run yet.
#[test]
fn a_lock_that_was_given_closes_no_circle() {
    let (_place, _node, a, b) = two("given");
    for round in 0..300 {
        assert_eq!(a.set(&write(0, 0)), Ok(()));
        assert_eq!(b.set(&write(1, 1)), Ok(()));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let got = b.wait(&write(0, 0));
                assert_eq!(b.set(&unlock(0, 1)), Ok(()));
                got
            });
            std::thread::sleep(Duration::from_micros(300));
            assert_eq!(a.set(&unlock(0, 0)), Ok(()));
            let got = [a.wait(&write(1, 1)), waiter.join().expect("joined")];
            assert_eq!(got, [Ok(()), Ok(())], "round {round}");
        });
        assert_eq!(a.set(&unlock(0, 1)), Ok(()));
    }
}

/// While one looks for its circle over other volumes the lock that it waits for is given up: what
/// it saw there closes none.
#[test]
fn a_lock_that_is_given_up_meanwhile_closes_no_wider_circle() {
    let (_place, _node, a, b) = two("wider");
    assert_eq!(a.set(&write(0, 0)), Ok(()));
    let (holder, looks) = (Arc::new(a), Arc::new(AtomicUsize::new(0)));
    let (other, seen) = (Arc::clone(&holder), Arc::clone(&looks));
    b.volume.look_beyond(Arc::new(move |own: &[vfs::Wait]| {
        if seen.fetch_add(1, Ordering::SeqCst) > 0 {
            return !own.is_empty();
        }
        // The holder waits elsewhere by now, for the one that looks.
        assert_eq!(other.set(&unlock(0, 0)), Ok(()));
        true
    }));
    assert_eq!(b.wait(&write(0, 0)), Ok(()));
    assert_eq!(looks.load(Ordering::SeqCst), 2, "it was looked at twice");
}

/// How many threads wait for a lock of another's, as each process is told to have some.
fn waiting(place: &Place) -> Vec<u64> {
    let seen = volume::activity(place.path()).expect("looked at");
    seen.processes.iter().map(|one| one.file_locks_awaited).collect()
}

/// Waits until they wait for so many.
fn until_waiting(place: &Place, awaited: &[u64]) {
    let begun = Instant::now();
    while waiting(place) != awaited {
        assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", waiting(place));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A description is in no circle, as on Linux: whose locks it has is not for a process to say. Who
/// waits for one is told all the same.
#[test]
fn descriptions_are_waited_for_and_in_no_circle() {
    let (place, _node, a, b) = two("no-circle");
    assert_eq!(a.set(&write(0, 0)), Ok(()));
    let of_b = |lock: &RecordLock, wait| b.volume.record_lock(b.desc, DESCRIPTION, lock, wait);
    assert_eq!(of_b(&write(1, 1), false), Ok(()));
    until_waiting(&place, &[0, 0]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| a.wait(&write(1, 1)));
        until_waiting(&place, &[1, 0]);
        let second = scope.spawn(|| b.wait(&write(0, 0)));
        let third = scope.spawn(|| of_b(&write(0, 0), true));
        until_waiting(&place, &[1, 2]);
        assert_eq!(of_b(&unlock(1, 1), false), Ok(()));
        assert_eq!(first.join().expect("joined"), Ok(()));
        assert_eq!(a.set(&unlock(0, 0)), Ok(()));
        // One of the two has it, for which the other waits.
        until_waiting(&place, &[0, 1]);
        assert_eq!((b.set(&unlock(0, 0)), of_b(&unlock(0, 0), false)), (Ok(()), Ok(())));
        let got = [second, third].map(|waiter| waiter.join().expect("joined"));
        assert_eq!(got, [Ok(()), Ok(())]);
    });
    until_waiting(&place, &[0, 0]);
}

/// Who is killed while it waits is not told to wait, nor is its place in the table lost.
#[test]
fn a_killed_waiter_waits_no_more() {
    if role("flock-waiter") {
        let volume = Place::of_parent().attach();
        let node = volume.lookup(volume.root(), b"file").expect("found");
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        let _ = volume.flock(desc, LockKind::Read, true);
        return;
    }
    let (place, _node, a, _b) = two("killed-waiter");
    assert_eq!(a.flock(LockKind::Write), Ok(()));
    let used = || {
        let info = volume::info(place.path()).expect("looked at");
        info.runtime.expect("it is in use").file_locks
    };
    let before = used();
    let mut waiter = child("a_killed_waiter_waits_no_more", "flock-waiter", &place);
    until_waiting(&place, &[0, 0, 1]);
    assert_eq!(used(), before + 1);
    waiter.kill().expect("killed");
    waiter.wait().expect("waited");
    drop(place.attach());
    assert_eq!((waiting(&place), used()), (vec![0, 0], before));
}

#[test]
fn a_killed_holder_lets_go() {
    if role("lock-holder") {
        let volume = Place::of_parent().attach();
        let node = volume.lookup(volume.root(), b"file").expect("found");
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        volume.record_lock(desc, PROCESS, &write(0, 9), false).expect("locked");
        volume.record_lock(desc, DESCRIPTION, &write(20, 29), false).expect("locked");
        volume.flock(desc, LockKind::Write, false).expect("locked");
        put(&volume, "ready", b"");
        std::thread::sleep(Duration::from_mins(1));
        return;
    }
    for waits in [false, true] {
        let (place, _node, a, _b) = two("killed-lock");
        let mut holder = child("a_killed_holder_lets_go", "lock-holder", &place);
        while a.volume.lookup(a.volume.root(), b"ready").is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(a.set(&read(9, 9)), Err(Errno::AGAIN));
        assert_eq!(a.test(&read(9, 9)).map(|found| found.pid), Some(holder.id() as i32));
        assert_eq!(a.flock(LockKind::Read), Err(Errno::AGAIN));
        holder.kill().expect("killed");
        holder.wait().expect("waited");
        let set = |lock| if waits { a.wait(&lock) } else { a.set(&lock) };
        assert_eq!(set(write(20, 29)), Ok(()), "a description's");
        assert_eq!(set(write(0, 9)), Ok(()), "a process's");
        assert_eq!(a.volume.flock(a.desc, LockKind::Write, waits), Ok(()));
    }
}

/// The recoverer of a process holds its slot's byte, as if that were alive: others that asked for
/// its locks meanwhile were told of it, and were refused. They wait until it is recovered.
#[test]
fn a_dead_process_is_not_named_while_it_is_recovered() {
    const RECOVERY_BYTES: i64 = 8192;
    if role("digger") {
        // Stands between the first two instructions of a recovery, and is killed there.
        let live = Place::of_parent().anchor().join("live");
        let live = std::fs::File::options().read(true).write(true).open(live).expect("opened");
        let set = |kind: i32, at: i64| {
            // SAFETY: all zeros is a value of this plain structure.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, at, 1);
            // SAFETY: a lock as the call takes it.
            unsafe {
                libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&live), libc::F_SETLK, &lock) == 0
            }
        };
        for slot in 0..512 {
            let digs = set(libc::F_WRLCK, RECOVERY_BYTES + slot) && set(libc::F_WRLCK, slot);
            assert!(digs || set(libc::F_UNLCK, RECOVERY_BYTES + slot));
        }
        std::fs::write(Place::of_parent().anchor().join("digging"), "").expect("told");
        std::thread::sleep(Duration::from_millis(300));
        return;
    }
    let (place, _node, a, b) = two("being-recovered");
    let mut holder = child("a_killed_holder_lets_go", "lock-holder", &place);
    while a.volume.lookup(a.volume.root(), b"ready").is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    holder.kill().expect("killed");
    holder.wait().expect("waited");
    let name = "a_dead_process_is_not_named_while_it_is_recovered";
    let mut digger = child(name, "digger", &place);
    while !place.anchor().join("digging").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(a.test(&write(0, 9)), None, "a process's");
    assert_eq!(b.set(&write(20, 29)), Ok(()), "a description's");
    digger.wait().expect("waited");
}

#[test]
fn a_full_table_refuses_and_changes_nothing() {
    let (_place, _node, a, b) = two("full");
    let mut count = 0;
    while a.set(&write(count * 2, count * 2)) == Ok(()) {
        count += 1;
    }
    assert!(count >= 900, "{count}");
    assert_eq!(a.set(&write(count * 2, count * 2)), Err(Errno::NOLCK));
    // Splitting needs an entry more; merging needs none.
    assert_eq!(a.set(&write(0, count * 2)), Ok(()));
    assert_eq!(b.set(&read(1, 1)), Err(Errno::AGAIN));
    assert_eq!(a.set(&unlock(1, 1)), Ok(()), "there is room again");
    assert_eq!(b.set(&read(1, 1)), Ok(()));
}

#[test]
fn an_uncontended_lock_is_cheap() {
    let (_place, _node, a, _b) = two("cost");
    let rounds = 200;
    // Of short stretches the quickest: machines under test are busy.
    let stretch = |_| {
        let start = Instant::now();
        for round in 0..rounds {
            assert_eq!(a.set(&write(round % 64, round % 64)), Ok(()));
            assert_eq!(a.set(&unlock(round % 64, round % 64)), Ok(()));
        }
        start.elapsed() / (2 * rounds as u32)
    };
    let each = (0..1000).map(stretch).min().expect("some");
    eprintln!("a lock call: {each:?}");
    assert!(each < Duration::from_micros(5), "{each:?}");
}
