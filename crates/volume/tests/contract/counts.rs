//! What processes have called is counted exactly, is asked without attaching, and stays when they
//! die.

use crate::common::{Place, child, get, new_file, put, role};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use vfs::{
    Attached, FileSystem, FileSystemExt, IoOffset, Kind, LockKind, LockOwner, Locks, OpenFlags,
    RecordLock, Synced, UserIn, UserOut,
};
use volume::{Activity, Counts, Life, activity};

fn look(place: &Place) -> Activity {
    activity(place.path()).expect("looked at")
}

fn total(place: &Place) -> Counts {
    look(place).counts.expect("it has counters")
}

/// What this process has called since it attached.
fn own(place: &Place) -> Counts {
    let all = look(place).processes;
    let own = all.iter().find(|one| one.attached.pid == std::process::id());
    own.expect("it is attached").counts.expect("it has counters")
}

/// Ten writes of 100 bytes, and ten reads of them, of a file that is opened once and synced twice.
fn work(volume: &volume::Volume, name: &str) {
    let node = volume.create(volume.root(), name.as_bytes(), &new_file()).expect("made");
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    for at in 0..10 {
        let written = volume.write(desc, &[UserIn::new(&[7; 100])], IoOffset::offset(at * 100));
        assert_eq!(written, Ok(100));
    }
    let mut bytes = [0; 100];
    for at in 0..10 {
        let read = volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(at * 100));
        assert_eq!(read, Ok(100));
    }
    volume.sync(Synced::File(desc)).expect("synced");
    volume.sync(Synced::Data(desc)).expect("synced");
    volume.close(desc).expect("closed");
}

/// What [`work`] calls: besides, it makes a name.
const WORK: Counts = Counts {
    reads: 10,
    bytes_read: 1000,
    writes: 10,
    bytes_written: 1000,
    opens: 1,
    names: 1,
    syncs: 2,
    lock_waits: 0,
};

#[test]
fn calls_are_counted_exactly_and_stay_when_their_process_has_gone() {
    if role("counted") {
        let volume = Place::of_parent().attach();
        work(&volume, "child");
        std::thread::sleep(Duration::from_mins(1));
        return;
    }
    let place = Place::formatted("counted");
    assert_eq!(total(&place), Counts::default());
    let volume = place.attach();
    let before = own(&place);
    work(&volume, "a");
    assert_eq!(own(&place).since(before), WORK);
    // Calls that fail read and write nothing.
    let root = volume.open(volume.root().into(), OpenFlags(libc::O_RDONLY), None).expect("opened");
    assert!(volume.read(root, &mut [UserOut::new(&mut [0])], IoOffset::offset(0)).is_err());
    assert_eq!(own(&place).since(before).plus(Counts::default()).reads, 10);
    volume.close(root).expect("closed");
    // Another process, which dies: its calls stay, and its death is told.
    let before = total(&place);
    let name = "calls_are_counted_exactly_and_stay_when_their_process_has_gone";
    let mut other = child(name, "counted", &place);
    let begun = Instant::now();
    while total(&place).since(before).syncs < 2 {
        assert!(begun.elapsed() < Duration::from_mins(1), "it works");
        std::thread::sleep(Duration::from_millis(2));
    }
    let seen = look(&place);
    let one =
        seen.processes.iter().find(|one| one.attached.pid == other.id()).expect("it is there");
    assert_eq!((one.life, one.counts), (Life::Lives, Some(WORK)));
    assert_eq!((seen.deaths, seen.last_deaths.len()), (0, 0));
    other.kill().expect("killed");
    other.wait().expect("waited");
    let seen = look(&place);
    let one =
        seen.processes.iter().find(|one| one.attached.pid == other.id()).expect("it is there");
    assert_eq!(one.life, Life::Dead);
    volume::detach_dead(place.path()).expect("recovered");
    let seen = look(&place);
    assert_eq!(seen.processes.len(), 1, "{:?}", seen.processes);
    assert_eq!(seen.deaths, 1);
    assert_eq!(seen.last_deaths[0].pid, other.id());
    assert_eq!(seen.last_deaths[0].found_by, std::process::id());
    assert_eq!(total(&place).since(before), WORK);
    // The next one in its slot begins with nothing.
    let second = place.attach();
    let seen = look(&place);
    let newest = seen.processes.iter().max_by_key(|one| one.attached.since).expect("it is there");
    assert_eq!(newest.counts, Some(Counts::default()), "{:?}", seen.processes);
    drop(second);
    drop(volume);
    // The sum outlives the last process, and the next first one.
    assert_eq!(total(&place).since(before), WORK);
    drop(place.attach());
    let sum = total(&place);
    assert_eq!(sum.since(before).writes, 10);
}

#[test]
fn threads_lose_next_to_nothing() {
    const THREADS: u64 = 8;
    const CALLS: u64 = 20_000;
    let place = Place::formatted("threads");
    let volume = place.attach();
    let node = put(&volume, "a", &[7; 4096]);
    let before = own(&place);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let desc =
                    volume.open(node.into(), OpenFlags(libc::O_RDONLY), None).expect("opened");
                let mut bytes = [0; 64];
                for _ in 0..CALLS {
                    let read =
                        volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(0));
                    assert_eq!(read, Ok(64));
                }
                volume.close(desc).expect("closed");
            });
        }
    });
    let counts = own(&place).since(before);
    assert!(counts.reads <= THREADS * CALLS, "{counts:?}");
    assert!(counts.reads > THREADS * CALLS * 9 / 10, "{counts:?}");
}

#[test]
fn what_a_process_holds_is_told() {
    let place = Place::formatted("holds");
    let volume = place.attach();
    let (node, mode) = (put(&volume, "a", b"x"), OpenFlags(libc::O_RDWR));
    let open = || volume.open(node.into(), mode, None).expect("opened");
    let (first, second) = (open(), open());
    let lock = RecordLock { kind: LockKind::Write, start: 0, end: 9, pid: 0 };
    volume.record_lock(first, LockOwner::Process, &lock, false).expect("locked");
    volume.flock(second, LockKind::Read, false).expect("locked");
    let seen = look(&place);
    let [one] = seen.processes[..] else { panic!("{:?}", seen.processes) };
    assert_eq!((one.open_files, one.file_locks, one.file_locks_awaited), (2, 2, 0));
    assert_eq!((one.calls, one.locks_held, one.locks_awaited), (0, 0, 0));
    assert_eq!((one.mode, one.read_only), (volume::Mode::Strict, false));
    // A second thread waits for the `flock` lock: counted when it begins to, and seen.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| volume.flock(first, LockKind::Write, true));
        let begun = Instant::now();
        while look(&place).processes[0].file_locks_awaited == 0 {
            assert!(begun.elapsed() < Duration::from_mins(1), "it waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(own(&place).lock_waits > 0);
        volume.flock(second, LockKind::Unlock, false).expect("unlocked");
        waiter.join().expect("it ends").expect("locked");
    });
    assert_eq!(look(&place).processes[0].file_locks_awaited, 0);
    // The two may have met at the word of the table, too.
    assert!((1..=3).contains(&own(&place).lock_waits), "{}", own(&place).lock_waits);
    volume.close(first).expect("closed");
    volume.close(second).expect("closed");
    assert_eq!(volume.attributes(volume.root()).expect("there").kind, Kind::Directory);
    volume.detach().expect("detached");
    let seen = look(&place);
    assert!(seen.processes.is_empty());
    let size = seen.info.size_bytes - 2 * volume::CHUNK;
    assert!(seen.chunks.len() as u64 * volume::CHUNK >= size, "all of the pool");
}

/// A volume of a build that gave its runtime range no slack has no room for counters.
#[test]
fn a_volume_without_room_for_counters_has_none() {
    let place = Place::formatted("no-room");
    let file = std::fs::File::options().read(true).write(true).open(place.path()).expect("opened");
    let mut block = [0; 208];
    file.read_exact_at(&mut block, 0).expect("read");
    let length = u64::from_le_bytes(block[136..144].try_into().expect("a word")) - (512 << 10);
    block[136..144].copy_from_slice(&length.to_le_bytes());
    block[12..16].fill(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 8]), &block);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&block, 0).expect("written");
    file.write_all_at(&block, 4096).expect("written");
    let volume = place.attach();
    work(&volume, "a");
    assert_eq!(get(&volume, "a").expect("read"), [7; 1000]);
    let seen = look(&place);
    assert_eq!((seen.counts, seen.processes.len()), (None, 1));
    assert_eq!(seen.processes[0].counts, None);
}
