//! A process with one thread, alone on its volume, works by plain instructions
//! (`src/process/exclusive.rs`): the same stores in the same order, and nobody comes in the middle
//! of a call.

use crate::common::{Place, actor, get, new_file, put, role};
use pmem::{Hook, Region, UserIn};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::{
    Attached, Desc, EntryName, FileSystem, FileSystemExt, IoOffset, LockKind, LockOwner, Locks,
    OpenFlags, RecordLock, Removes, RenameFlags, Synced,
};
use volume::{
    AttachOptions, FormatOptions, FsckOptions, Mode, Volume, attach, attach_region, format_region,
    fsck,
};

/// As if glibc said it.
static ONE: AtomicU8 = AtomicU8::new(1);

/// What a process does to the region, in order.
#[derive(Default)]
struct Told(Mutex<Vec<(char, u64)>>);

impl Told {
    fn tell(&self, what: char, off: u64) {
        self.0.lock().expect("told").push((what, off));
    }
}

impl Hook for Told {
    fn store(&self, off: u64, _: &[u8], _: bool, _: &'static Location<'static>) {
        self.tell('s', off);
    }

    fn flush(&self, off: u64, _: &'static Location<'static>) {
        self.tell('f', off);
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.tell('|', 0);
    }

    fn shared(&self, off: u64) {
        self.tell('w', off);
    }
}

fn open(volume: &Volume, name: &str, flags: i32) -> Desc {
    let node = volume.lookup(volume.root(), name.as_bytes()).expect("found");
    volume.open(node.into(), OpenFlags(flags), None).expect("opened")
}

/// One of each kind of call.
fn work(volume: &Volume) {
    let root = volume.root();
    put(volume, "a", &[1; 9000]);
    let desc = open(volume, "a", libc::O_RDWR);
    for length in [64, 128, 4096, 5000] {
        volume
            .write(desc, &[UserIn::new(&vec![2; length])], IoOffset::offset(9000))
            .expect("written");
        volume
            .write(desc, &[UserIn::new(&vec![3; length])], IoOffset::offset(10))
            .expect("written over");
        volume
            .write(desc, &[UserIn::new(&vec![4; length])], IoOffset::POSITION)
            .expect("written on");
    }
    volume.sync(Synced::File(desc)).expect("synced");
    let lock = RecordLock { start: 0, end: 99, kind: LockKind::Write, pid: 1 };
    volume.record_lock(desc, LockOwner::Process, &lock, true).expect("locked");
    let free = RecordLock { kind: LockKind::Unlock, ..lock };
    volume.record_lock(desc, LockOwner::Process, &free, false).expect("unlocked");
    volume.allocate(desc, 0, 0, 1 << 20).expect("allocated");
    volume.close(desc).expect("closed");
    for round in 0..40 {
        let (name, other) = (format!("n{round}"), format!("m{round}"));
        volume.create(root, name.as_bytes(), &new_file()).expect("created");
        let no_flags = RenameFlags::default();
        volume
            .rename(
                &EntryName::new(root, name.as_bytes()),
                &EntryName::new(root, other.as_bytes()),
                no_flags,
            )
            .expect("renamed");
        if round % 3 == 0 {
            volume
                .remove(&EntryName::new(root, other.as_bytes()), Removes::Name)
                .expect("unlinked");
        }
    }
    volume
        .rename(&EntryName::new(root, b"m1"), &EntryName::new(root, b"m2"), RenameFlags::default())
        .expect("renamed over");
    let node = volume.lookup(root, b"a").expect("found");
    volume.truncate(node, 100).expect("cut");
    volume.set_xattr(node, b"user.x", b"y", 0).expect("set");
}

fn told(image: &[u8], mode: Mode, alone: bool) -> Vec<(char, u64)> {
    let told = Arc::new(Told::default());
    let region = Region::in_memory(image, Some(told.clone()));
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = attach_region(region, &options).expect("attached");
    if alone {
        volume.may_run_exclusively(&ONE);
    }
    told.0.lock().expect("told").clear();
    work(&volume);
    std::mem::take(&mut *told.0.lock().expect("told"))
}

#[test]
fn alone_the_same_words_change_in_the_same_order() {
    // Records and hints belong to CPUs.
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &cpus).expect("a CPU");
    // One volume for all: where names lie depends on its key.
    let mut image = vec![0; 64 << 20];
    let region = Region::in_memory(&image, None);
    format_region(&region, &FormatOptions::default()).expect("format");
    region.read(0, &mut image).expect("its bytes");
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        // What a call does to times depends on whether the clock has ticked since the one before.
        let same = (0..100).any(|_| is_same(&image, mode));
        assert!(same, "{mode}");
    }
}

/// Whether the calls do the same alone as among others.
fn is_same(image: &[u8], mode: Mode) -> bool {
    let (among, mut alone) = (told(image, mode, false), told(image, mode, true));
    // The word that says so is stored first, and last, in each call.
    let word = alone.first().expect("a store").1;
    let all = alone.len();
    alone.retain(|&(_, off)| off != word);
    assert!(all - alone.len() > 200, "{mode}: {} calls worked alone", (all - alone.len()) / 2);
    alone == among
}

/// Stops a thread for as long as it is told to, at one point of its call.
#[derive(Default)]
struct Stop {
    /// The point; 0: none.
    at: AtomicU64,
    count: AtomicU64,
    stopped: AtomicBool,
    go_on: AtomicBool,
}

impl Stop {
    fn step(&self) {
        let at = self.at.load(Ordering::SeqCst);
        if at == 0 || self.count.fetch_add(1, Ordering::SeqCst) + 1 != at {
            return;
        }
        self.stopped.store(true, Ordering::SeqCst);
        while !self.go_on.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Hook for Stop {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {
        self.step();
    }

    fn flush(&self, _: u64, _: &'static Location<'static>) {
        self.step();
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.step();
    }

    fn shared(&self, _: u64) {
        self.step();
    }
}

/// A volume whose only process stops at the given point of a call; `None` if the call has fewer.
fn stopped(place: &Place, at: u64, call: fn(&Volume)) -> (Arc<Volume>, Option<Arc<Stop>>) {
    let stop = Arc::new(Stop::default());
    let options = AttachOptions { hook: Some(stop.clone()), ..AttachOptions::default() };
    let volume = attach(place.path(), &options).expect("attached");
    volume.may_run_exclusively(&ONE);
    put(&volume, "before", b"one");
    stop.at.store(at, Ordering::SeqCst);
    let (its, ended) = (Arc::clone(&volume), Arc::new(AtomicBool::new(false)));
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        call(&its);
        // Also where the other thread has forsaken it meanwhile.
        end.store(true, Ordering::SeqCst);
    });
    while !ended.load(Ordering::SeqCst) {
        if stop.stopped.load(Ordering::SeqCst) {
            return (volume, Some(stop));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    stop.at.store(0, Ordering::SeqCst);
    (volume, None)
}

#[test]
fn a_newcomer_waits_for_the_call_under_way() {
    let place = Place::formatted("alone-newcomer");
    let (volume, stop) = stopped(&place, 9, |volume| _ = put(volume, "during", b"two"));
    let stop = stop.expect("a call of more than nine steps");
    assert!(volume.runs_exclusively());
    std::thread::scope(|scope| {
        let newcomer = scope.spawn(|| place.attach());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!newcomer.is_finished(), "in the middle of a call that works alone");
        stop.go_on.store(true, Ordering::SeqCst);
        let newcomer = newcomer.join().expect("attached");
        put(&newcomer, "after", b"three");
        // It goes on in its own time, and the file is there before its bytes.
        while !get(&volume, "during").is_ok_and(|bytes| bytes == b"two") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(get(&newcomer, "during").expect("read"), b"two");
        assert_eq!(get(&volume, "after").expect("read"), b"three");
    });
}

#[test]
fn a_call_that_dies_alone_is_recovered_by_a_newcomer_as_any_other() {
    let calls: [fn(&Volume); 3] = [
        |volume| _ = put(volume, "during", b"two"),
        |volume| {
            let flags = RenameFlags::default();
            volume
                .rename(
                    &EntryName::new(volume.root(), b"before"),
                    &EntryName::new(volume.root(), b"then"),
                    flags,
                )
                .expect("renamed");
        },
        |volume| {
            let desc = open(volume, "before", libc::O_WRONLY | libc::O_APPEND);
            volume.write(desc, &[UserIn::new(b" two")], IoOffset::POSITION).expect("written");
        },
    ];
    let started = Instant::now();
    for (index, call) in calls.into_iter().enumerate() {
        for at in (1..).step_by(3) {
            let place = Place::of_size(&format!("alone-death-{index}-{at}"), 32 << 20);
            let (volume, stop) = stopped(&place, at, call);
            if stop.is_none() {
                break;
            }
            let newcomer = std::thread::scope(|scope| {
                let newcomer = scope.spawn(|| place.attach());
                // It has a slot, and waits for the call; or the call had not begun to work alone.
                while volume.info().expect("told").runtime.expect("in use").processes < 2
                    && !newcomer.is_finished()
                {
                    std::thread::sleep(Duration::from_micros(100));
                }
                volume.forsake().expect("dead");
                newcomer.join().expect("attached")
            });
            let what = format!("call {index} before its step {at}");
            match index {
                0 => {
                    if let Ok(bytes) = get(&newcomer, "during") {
                        assert!(bytes.is_empty() || bytes == b"two", "{what}: {bytes:?}");
                    }
                }
                1 => {
                    let found = [get(&newcomer, "before").is_ok(), get(&newcomer, "then").is_ok()];
                    assert!(found[0] != found[1], "{what}: {found:?}");
                }
                _ => {
                    let bytes = get(&newcomer, "before").expect("read");
                    assert!(bytes == b"one" || bytes == b"one two", "{what}: {bytes:?}");
                }
            }
            put(&newcomer, "after", b"three");
            let report =
                fsck(place.path(), &FsckOptions::default(), &mut |_, _| {}).expect("checked");
            assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
            // The thread that has stopped stays where it is, and with it the dead one's memory.
            std::mem::forget(volume);
        }
    }
    assert!(started.elapsed() < Duration::from_mins(5));
}

#[test]
fn who_waits_for_a_lock_lets_others_in() {
    let place = Place::formatted("alone-waits");
    let volume = place.attach();
    volume.may_run_exclusively(&ONE);
    put(&volume, "f", b"x");
    let [first, second] = [(); 2].map(|()| open(&volume, "f", libc::O_RDWR));
    volume.flock(first, LockKind::Write, false).expect("locked");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| volume.flock(second, LockKind::Write, true));
        std::thread::sleep(Duration::from_millis(200));
        let (tell, told) = std::sync::mpsc::channel();
        let place = &place;
        scope.spawn(move || tell.send(place.attach()));
        // While it is there the two threads of this process, which says it has one, do not work
        // alone.
        let other = told.recv_timeout(Duration::from_mins(2));
        volume.flock(first, LockKind::Unlock, false).expect("unlocked");
        waits.join().expect("no panic").expect("locked in the end");
        assert!(other.is_ok(), "a wait for a lock keeps nobody out");
    });
}

/// Appends records of its own to the one file, and says of each that it has returned.
fn append_for(volume: &Volume, name: u64, told: &std::fs::File, mut goes_on: impl FnMut() -> bool) {
    let desc = open(volume, "log", libc::O_WRONLY | libc::O_APPEND);
    let mut count = 0_u64;
    while goes_on() {
        let record = [name.to_le_bytes(), count.to_le_bytes()].concat();
        assert_eq!(volume.write(desc, &[UserIn::new(&record)], IoOffset::POSITION), Ok(16));
        count += 1;
        if count.is_multiple_of(8) {
            // The volume is small, and the test may take long beside others.
            std::thread::sleep(Duration::from_micros(100));
        }
        told.write_all_at(&count.to_le_bytes(), 0).expect("told");
        let own = format!("own-{name}-{}", count % 8);
        if count.is_multiple_of(5) {
            volume.create(volume.root(), own.as_bytes(), &new_file()).expect("created");
            volume
                .remove(&EntryName::new(volume.root(), own.as_bytes()), Removes::Name)
                .expect("unlinked");
        }
    }
    volume.close(desc).expect("closed");
}

const NAME: &str = "SOLERA_TEST_NAME";

fn told_file(place: &Place, name: u64) -> std::path::PathBuf {
    place.path().with_extension(format!("told-{name}"))
}

fn play(place: &Place, alone: bool, goes_on: impl FnMut() -> bool) {
    let name = std::env::var(NAME).expect("a name").parse().expect("a number");
    let told = std::fs::File::create(told_file(place, name)).expect("a file");
    let volume = place.attach();
    if alone {
        volume.may_run_exclusively(&ONE);
    }
    append_for(&volume, name, &told, goes_on);
    volume.detach().expect("detached");
}

/// One process stays, and works alone whenever it can; others come, work, leave, or are killed.
#[test]
fn who_comes_and_goes_loses_nothing() {
    const TEST: &str = "who_comes_and_goes_loses_nothing";
    if role("stays") {
        let place = Place::of_parent();
        let stop = place.path().with_extension("stop");
        return play(&place, true, || !stop.exists());
    }
    if role("comes") {
        let mut left = 40;
        return play(&Place::of_parent(), true, || {
            left -= 1;
            left >= 0
        });
    }
    let place = Place::formatted("alone-turns");
    put(&place.attach(), "log", b"");
    let (mut name, rounds) =
        (0_u64, if std::env::var_os("SOLERA_TEST_LONG").is_some() { 400 } else { 40 });
    let mut start = |role: &str| {
        name += 1;
        actor(TEST, role, &place).env(NAME, name.to_string()).spawn().expect("a child")
    };
    let stop = place.path().with_extension("stop");
    let _ = std::fs::remove_file(&stop);
    let mut stays = start("stays");
    for round in 0..rounds {
        let mut comes = start("comes");
        if round % 3 == 0 {
            std::thread::sleep(Duration::from_millis(5 + round * 7 % 40));
            comes.kill().expect("killed");
        }
        if round % 8 == 7 {
            // In a call that works alone, perhaps while somebody waits for it.
            stays.kill().expect("killed");
            stays.wait().expect("ended");
            stays = start("stays");
        }
        let status = comes.wait().expect("ended");
        assert!(round % 3 == 0 || status.success(), "{status}");
    }
    std::fs::write(&stop, "").expect("told to stop");
    assert!(stays.wait().expect("ended").success());
    std::fs::remove_file(&stop).expect("removed");
    let bytes = get(&place.attach(), "log").expect("read");
    let mut counts = vec![0; name as usize + 1];
    for record in bytes.chunks(16) {
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("whole"));
        assert_eq!(word(8), counts[word(0) as usize], "records of {} in order", word(0));
        counts[word(0) as usize] += 1;
    }
    for name in 1..=name {
        let path = told_file(&place, name);
        let mut count = [0; 8];
        let told = std::fs::read(&path).unwrap_or_default();
        count[..told.len()].copy_from_slice(&told);
        let (told, found) = (u64::from_le_bytes(count), counts[name as usize]);
        assert!(found == told || found == told + 1, "{name}: {found} of {told}");
        let _ = std::fs::remove_file(&path);
    }
    let report = fsck(place.path(), &FsckOptions::default(), &mut |_, _| {}).expect("checked");
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}
