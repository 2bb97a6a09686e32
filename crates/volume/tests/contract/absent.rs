//! Pages that are away: a call that meets one holds nothing while it is brought, and does then what
//! it would have done.
//!
//! An attachment has a pager, which takes pages away by `mprotect`; a second one of the volume,
//! which has them all, stands for another process. While a page is on its way the second one does
//! all kinds of calls: it would wait for ever for what the first one held.

use crate::common::{Place, child, get, new_file, put, role};
use pmem::{Access, Hint, Pager};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use vfs::{
    Attached, Desc, EntryName, FileSystem, Fill, IoOffset, LockKind, LockOwner, Locks, Mapped,
    Maps, Node, Open, OpenFlags, RecordLock, Removes, Synced, UserIn, UserOut,
};
use volume::{AttachOptions, Mode, Volume, attach, fsck};

const PAGE: u64 = 4096;
/// A call that takes so long waits for what is held.
const HANGS: Duration = Duration::from_mins(1);

type Others = Box<dyn Fn() + Send + Sync>;

/// Brings pages, after others have done what they want; counts all that it hears.
#[derive(Default)]
struct Away {
    address: AtomicUsize,
    pages: Mutex<BTreeSet<u64>>,
    /// What others do while a page is brought.
    others: Mutex<Option<Others>>,
    refuses: AtomicBool,
    /// Pages whose bytes are gone.
    lost: Mutex<BTreeSet<u64>>,
    /// A signal comes while a page is waited for.
    interrupted: AtomicBool,
    faults: AtomicU64,
    begun: AtomicU64,
    barriers: AtomicU64,
    ready: Mutex<Vec<(u64, u64)>>,
    hints: Mutex<BTreeMap<u64, Hint>>,
    discarded: AtomicU64,
    /// Bytes of a step; 0: any number.
    step: AtomicU64,
    pins: Mutex<BTreeSet<u64>>,
    /// Pages that were pinned, ever.
    pinned: AtomicU64,
    /// A call is to give up when it has begun anew so often; 0: never.
    most: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Away {
    fn protect(&self, page: u64, prot: i32) {
        let at = self.address.load(Ordering::SeqCst) + page as usize;
        // SAFETY: a page of the region's mapping, which only guarded copies access.
        let done = unsafe { libc::mprotect(at as *mut libc::c_void, PAGE as usize, prot) };
        assert_eq!(done, 0, "mprotect");
    }

    fn take(&self, pages: impl Iterator<Item = u64>) {
        for page in pages {
            self.protect(page, libc::PROT_NONE);
            lock(&self.pages).insert(page);
        }
    }

    /// They are on their way: loads find them, stores do not.
    fn begin_to_take(&self, pages: impl Iterator<Item = u64>) {
        for page in pages {
            self.protect(page, libc::PROT_READ);
            lock(&self.pages).insert(page);
        }
    }

    fn bring(&self, page: u64) {
        if lock(&self.pages).remove(&page) {
            self.protect(page, libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    fn bring_all(&self) {
        let all: Vec<u64> = lock(&self.pages).iter().copied().collect();
        for page in all {
            self.bring(page);
        }
    }

    fn hint(&self, at: u64) -> Option<Hint> {
        lock(&self.hints).range(..=at).next_back().map(|(_, hint)| *hint)
    }
}

impl Pager for Away {
    fn mapped(&self, address: usize, _length: u64) {
        self.address.store(address, Ordering::SeqCst);
    }

    fn forked(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn fault(&self, page: u64, _access: Access) -> Result<(), Errno> {
        self.faults.fetch_add(1, Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) || lock(&self.lost).contains(&page) {
            return Err(Errno::IO);
        }
        if self.interrupted.load(Ordering::SeqCst) {
            return Err(Errno::INTR);
        }
        if let Some(others) = &*lock(&self.others) {
            let begun = Instant::now();
            thread::scope(|scope| {
                let running = scope.spawn(others);
                while !running.is_finished() {
                    // A process that waits for ever for its own lock is not joined.
                    if begun.elapsed() > HANGS {
                        eprintln!("somebody waits for what is held while page {page:#x} comes");
                        std::process::abort();
                    }
                    thread::sleep(Duration::from_micros(100));
                }
            });
        }
        self.bring(page);
        Ok(())
    }

    fn is_lost(&self, page: u64) -> bool {
        lock(&self.lost).contains(&page)
    }

    fn renew(&self, page: u64) -> bool {
        lock(&self.lost).remove(&page)
    }

    fn ready(&self, ranges: &[(u64, u64)], _access: Access) {
        lock(&self.ready).extend(ranges);
    }

    fn advise(&self, (at, _length): (u64, u64), hint: Hint) {
        lock(&self.hints).insert(at, hint);
    }

    fn discard(&self, (at, length): (u64, u64)) {
        lock(&self.lost).retain(|page| !(at..at + length).contains(page));
        self.discarded.fetch_add(length, Ordering::SeqCst);
    }

    fn provide(&self, _: (u64, u64)) -> Result<(), Errno> {
        Ok(())
    }

    fn next_data(&self, from: u64) -> u64 {
        from
    }

    fn next_hole(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn pin(&self, (at, length): (u64, u64)) -> Option<u64> {
        self.pinned.fetch_add(length.div_ceil(PAGE), Ordering::SeqCst);
        lock(&self.pins).insert(at).then_some(at)
    }

    fn unpin(&self, pin: u64) {
        assert!(lock(&self.pins).remove(&pin), "{pin} is not pinned");
    }

    fn at_once(&self) -> u64 {
        Some(self.step.load(Ordering::SeqCst)).filter(|step| *step > 0).unwrap_or(u64::MAX)
    }

    fn begins_anew(&self, times: u32) -> Result<(), Errno> {
        let most = self.most.load(Ordering::SeqCst);
        if most > 0 && u64::from(times) >= most { Err(Errno::NOMEM) } else { Ok(()) }
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn barrier(&self) -> Result<(), Errno> {
        self.barriers.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A volume with a pager, and the same without.
struct Two {
    away: Arc<Away>,
    here: Arc<Volume>,
    other: Arc<Volume>,
    place: Place,
}

impl Two {
    fn new(name: &str, mode: Mode) -> Self {
        let place = Place::formatted(name);
        let away = Arc::new(Away::default());
        let pager: Arc<dyn Pager> = away.clone();
        let options = AttachOptions { mode, pager: Some(pager), ..AttachOptions::default() };
        let here = attach(place.path(), &options).expect("attached");
        let other = place.attach();
        Self { away, here, other, place }
    }

    fn open(&self, node: Node) -> Desc {
        self.here.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened")
    }

    /// Both leave, and the volume is sound.
    fn end(self) {
        self.here.detach().expect("detached");
        self.other.detach().expect("detached");
        let report = fsck(self.place.path(), &volume::FsckOptions::default(), &mut |_, _| {});
        assert_eq!(report.expect("checked").faults, []);
    }

    fn pages(&self, node: Node) -> Vec<u64> {
        pages_of(&self.here, node)
    }

    /// Does a call while all pages of a file are away; gives how many were brought for it.
    fn without<T>(&self, node: Node, call: impl FnOnce(&Volume) -> Result<T, Errno>) -> (T, u64) {
        self.away.take(self.pages(node).into_iter());
        let before = self.away.faults.load(Ordering::SeqCst);
        let done = call(&self.here).expect("what it does with its pages there");
        let brought = self.away.faults.load(Ordering::SeqCst) - before;
        self.away.bring_all();
        (done, brought)
    }
}

/// The pages of a file's bytes.
fn pages_of(volume: &Volume, node: Node) -> Vec<u64> {
    let extents = volume.extents(node).expect("where it lies");
    let pages = extents.iter().flat_map(|extent| {
        (0..extent.length / PAGE).map(move |page| extent.region_offset + page * PAGE)
    });
    pages.collect()
}

/// What another process does, on other files, in the same directory, and on the very file.
fn everything(volume: &Volume, file: Node) {
    let root = volume.root();
    put(volume, "beside", &[3; 9000]);
    assert_eq!(get(volume, "beside"), Ok(vec![3; 9000]));
    volume.link(file, root, b"another").expect("linked");
    volume.remove(&EntryName::new(root, b"another"), Removes::Name).expect("removed");
    volume.remove(&EntryName::new(root, b"beside"), Removes::Name).expect("removed");
    let desc = volume.open(file.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    let mut byte = [0];
    volume.read(desc, &mut [UserOut::new(&mut byte)], IoOffset::offset(0)).expect("read");
    // The same byte, by a write that takes the lock.
    volume.write(desc, &[UserIn::new(&byte)], IoOffset::offset(0)).expect("written");
    let lock = |kind| RecordLock { kind, start: 0, end: 9, pid: 0 };
    volume.record_lock(desc, LockOwner::Process, &lock(LockKind::Write), false).expect("locked");
    volume.record_lock(desc, LockOwner::Process, &lock(LockKind::Unlock), false).expect("unlocked");
    volume.sync(Synced::File(desc)).expect("synced");
    volume.close(desc).expect("closed");
}

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 512) as u8 ^ seed).collect()
}

/// All calls that access a file's bytes, in each mode, while others go on; and the file is what it
/// is where all pages are there.
#[test]
fn nobody_waits_for_who_waits_for_a_page() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let two = Two::new(&format!("absent-{mode:?}"), mode);
        let file = put(&two.here, "file", &bytes(1, 3 * 4096 + 100));
        let (other, node) = (Arc::clone(&two.other), file);
        *lock(&two.away.others) = Some(Box::new(move || everything(&other, node)));
        let desc = two.open(file);
        let mut model = bytes(1, 3 * 4096 + 100);

        let mut read = vec![0; model.len()];
        let (count, brought) = two.without(file, |volume| {
            volume.read(desc, &mut [UserOut::new(&mut read)], IoOffset::offset(0))
        });
        assert_eq!((count, &read), (model.len(), &model));
        assert_eq!(brought, 4, "each page once");

        for (at, length) in [(5, 10), (4000, 200), (4096, 4096), (0, 9000), (12_300, 88)] {
            let new = bytes(at as u8 ^ 0x55, length);
            two.without(file, |volume| {
                volume.write(desc, &[UserIn::new(&new)], IoOffset::offset(at as u64))
            });
            model[at..at + length].copy_from_slice(&new);
            assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} {at}+{length}");
        }
        // At the position, by two buffers, and at the end.
        let half = [7; 50];
        let parts = [UserIn::new(&half), UserIn::new(&half)];
        two.without(file, |volume| volume.write(desc, &parts, IoOffset::POSITION));
        model[..100].fill(7);
        two.without(file, |volume| {
            volume.write(desc, &[UserIn::new(&[8; 300])], IoOffset::offset(model.len() as u64))
        });
        model.extend([8; 300]);
        assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} appended");

        for size in [9001, 4097, 20_000] {
            two.without(file, |volume| volume.truncate(file, size));
            model.resize(size as usize, 0);
            assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} cut to {size}");
        }
        let zero = libc::FALLOC_FL_ZERO_RANGE as u32;
        two.without(file, |volume| volume.allocate(desc, zero, 100, 5000));
        model[100..5100].fill(0);
        assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} zeroed");

        let target = two.here.create(two.here.root(), b"target", &new_file()).expect("created");
        let to = two.open(target);
        let copy = |volume: &Volume| volume.copy_range(desc, 0, to, 0, 4097);
        assert_eq!(two.without(file, copy).0, 4097);
        assert_eq!(get(&two.other, "target").as_deref(), Ok(&model[..4097]), "{mode:?} copied");
        two.without(target, |volume| volume.relink(to, 0, desc, 8192, 4097));
        let copied = model[..4097].to_vec();
        model[8192..8192 + 4097].copy_from_slice(&copied);
        assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} relinked");

        // From here on the file is mapped, and written in place.
        let whole = (0, 5 * PAGE);
        two.without(file, |volume| volume.map(desc, whole, Mapped::Write, Fill::All));
        two.without(file, |volume| {
            volume.write(desc, &[UserIn::new(&[9; 4200])], IoOffset::offset(4000))
        });
        model[4000..8200].fill(9);
        assert_eq!(get(&two.other, "file").as_ref(), Ok(&model), "{mode:?} mapped, written");
        // What is away was flushed before it went: a sync asks for none of it.
        let ((), brought) = two.without(file, |volume| volume.sync(Synced::File(desc)));
        assert_eq!(brought, 0);
        let cut = OpenFlags(libc::O_RDWR | libc::O_TRUNC);
        let (empty, _) = two.without(file, |volume| volume.open(Open::Node(file, None), cut, None));
        assert_eq!(get(&two.other, "file"), Ok(Vec::new()));

        for desc in [desc, to, empty] {
            two.here.close(desc).expect("closed");
        }
        assert!(two.away.faults.load(Ordering::SeqCst) > 20);
        *lock(&two.away.others) = None;
        two.end();
    }
}

/// A pager that takes 100 ms for each page: another process goes on meanwhile. Prints how long its
/// calls took at most, beside that and before (`--nocapture`).
#[test]
fn others_go_on_while_a_pager_sleeps() {
    const ROUNDS: u64 = 20_000;
    let place = if role("others") { Place::of_parent() } else { Place::formatted("absent-sleeps") };
    let told = place.path().with_extension("told");
    if role("others") {
        return work_beside(&place.attach(), &told);
    }
    let away = Arc::new(Away::default());
    let options = AttachOptions { pager: Some(away.clone()), ..AttachOptions::default() };
    let here = attach(place.path(), &options).expect("attached");
    let file = put(&here, "file", &bytes(4, 4 * 4096));
    let desc = here.open(file.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    let mut child = child("others_go_on_while_a_pager_sleeps", "others", &place);
    let said = told.clone();
    let rounds = move || std::fs::metadata(&said).map_or(0, |told| told.len() / 8);
    let begun = Instant::now();
    while rounds() < ROUNDS {
        assert!(begun.elapsed() < HANGS, "the other process does not begin");
        thread::sleep(Duration::from_millis(1));
    }
    let alone = rounds();
    *lock(&away.others) = Some(Box::new({
        let rounds = rounds.clone();
        move || {
            let before = rounds();
            thread::sleep(Duration::from_millis(100));
            while rounds() == before {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }));
    for round in 0..10 {
        away.take(pages_of(&here, file).into_iter());
        let at = IoOffset::offset(round * 100 + 50);
        here.write(desc, &[UserIn::new(&[5; 5000])], at).expect("written");
        away.bring_all();
        let mut some = [0; 5000];
        away.take(pages_of(&here, file).into_iter());
        here.read(desc, &mut [UserOut::new(&mut some)], at).expect("read");
        assert_eq!(some, [5; 5000]);
        away.bring_all();
    }
    *lock(&away.others) = None;
    std::fs::write(told.with_extension("stop"), b"").expect("told to stop");
    assert!(child.wait().expect("ended").success());
    let words = std::fs::read(&told).expect("what it told");
    let told_of = |words: &[u8]| {
        let ns = words.chunks_exact(8).map(|ns| u64::from_le_bytes(ns.try_into().unwrap()));
        let mut us: Vec<u64> = ns.map(|ns| ns / 1000).collect();
        us.sort_unstable();
        let at = |share: usize| us.get(us.len() * share / 1000).or(us.last()).copied();
        format!("{} rounds, {:?} us, {:?} of 99.9 %", us.len(), at(1000), at(999))
    };
    let (before, beside) = words.split_at(alone as usize * 8);
    let faults = away.faults.load(Ordering::SeqCst);
    assert!(faults >= 10 && !beside.is_empty());
    println!("{faults} pages at 100 ms each; longest call of another process:");
    println!("beside that {}; before {}", told_of(beside), told_of(before));
    for path in [&told, &told.with_extension("stop")] {
        std::fs::remove_file(path).expect("removed");
    }
    here.close(desc).expect("closed");
}

/// Works on files of its own, and tells of each round how long its longest call took, in ns.
fn work_beside(volume: &Volume, told: &Path) {
    let mut tells = File::create(told).expect("a file of the test's");
    let stop = told.with_extension("stop");
    for round in 0_u64.. {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        let mut done = |what: Result<usize, Errno>| {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            what.expect("a call")
        };
        let (root, name) = (volume.root(), format!("own-{round}"));
        let node = volume.create(root, name.as_bytes(), &new_file()).expect("created");
        done(Ok(0));
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        done(Ok(0));
        done(volume.write(desc, &[UserIn::new(&[6; 9000])], IoOffset::offset(0)));
        done(volume.write(desc, &[UserIn::new(&[7; 900])], IoOffset::offset(100)));
        done(volume.read(desc, &mut [UserOut::new(&mut [0; 9000])], IoOffset::offset(0)));
        done(volume.truncate(node, 100).map(|()| 0));
        done(volume.close(desc).map(|()| 0));
        done(volume.remove(&EntryName::new(root, name.as_bytes()), Removes::Name).map(|()| 0));
        let ns = u64::try_from(longest.as_nanos()).expect("short");
        tells.write_all(&ns.to_le_bytes()).expect("told");
        if stop.exists() {
            return;
        }
    }
}

/// While it waits for a page, a process that works alone lets others in.
#[test]
fn a_process_alone_lets_others_in_while_a_page_comes() {
    static SINGLE: AtomicU8 = AtomicU8::new(1);
    let place = Place::formatted("absent-alone");
    let away = Arc::new(Away::default());
    let options = AttachOptions { pager: Some(away.clone()), ..AttachOptions::default() };
    let here = attach(place.path(), &options).expect("attached");
    let file = put(&here, "file", &bytes(2, 9000));
    here.may_run_exclusively(&SINGLE);
    let path = place.path().to_owned();
    *lock(&away.others) = Some(Box::new(move || {
        let other = attach(&path, &AttachOptions::default()).expect("attached");
        everything(&other, file);
        other.detach().expect("detached");
    }));
    let desc = here.open(file.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    let extents = here.extents(file).expect("where it lies");
    away.take(extents.iter().map(|extent| extent.region_offset));
    assert_eq!(here.write(desc, &[UserIn::new(b"new")], IoOffset::offset(1)), Ok(3));
    let faults = away.faults.load(Ordering::SeqCst);
    assert!(faults > 0);
    // Which reads while it works alone.
    away.take(pages_of(&here, file).into_iter());
    assert_eq!(here.copy_range(desc, 0, desc, 9000, 100), Ok(100));
    assert!(away.faults.load(Ordering::SeqCst) > faults);
    away.bring_all();
    *lock(&away.others) = None;
    assert_eq!(get(&here, "file").expect("read")[..5], *b"\x02new\x02");
    here.close(desc).expect("closed");
}

/// A page that cannot be brought is `EIO`, and nothing else is: what the call would have changed is
/// what it was, and the volume is sound.
#[test]
fn a_page_that_is_refused_is_an_error_of_its_call_only() {
    let two = Two::new("absent-refused", Mode::Strict);
    let model = bytes(3, 20_000);
    let file = put(&two.here, "file", &model);
    let desc = two.open(file);
    two.away.refuses.store(true, Ordering::SeqCst);
    two.away.take(two.pages(file).into_iter());
    let mut byte = [0; 10];
    let mut out = [UserOut::new(&mut byte)];
    assert_eq!(two.here.read(desc, &mut out, IoOffset::offset(0)), Err(Errno::IO));
    let write = |at| two.here.write(desc, &[UserIn::new(&[1; 100])], IoOffset::offset(at));
    assert_eq!(write(4090), Err(Errno::IO));
    let zero = libc::FALLOC_FL_ZERO_RANGE as u32;
    assert_eq!(two.here.allocate(desc, zero, 100, 50), Err(Errno::IO));
    put(&two.here, "beside", b"as ever");
    assert_eq!(get(&two.other, "file").as_ref(), Ok(&model));
    two.away.refuses.store(false, Ordering::SeqCst);
    assert_eq!(write(4090), Ok(100));
    two.here.close(desc).expect("closed");
    two.end();
}

/// What the pager is told: which memory stays, which files are small, what is nobody's, when calls
/// begin, and where they go.
#[test]
fn a_pager_is_told_of_the_region() {
    let two = Two::new("absent-told", Mode::Strict);
    let away = &two.away;
    assert_eq!(away.hint(0), Some(Hint::Stays), "what lies in front of the pool");
    let begun = away.begun.load(Ordering::SeqCst);
    let small = put(&two.here, "small", &vec![1; 60_000]);
    let large = put(&two.here, "large", &vec![2; 70_000]);
    assert!(away.begun.load(Ordering::SeqCst) >= begun + 6);
    for page in two.pages(small) {
        assert_eq!(away.hint(page), Some(Hint::Small), "{page:#x}");
    }
    for page in two.pages(large) {
        assert_eq!(away.hint(page), Some(Hint::Large), "{page:#x}");
    }
    // It grows out of it.
    let desc = two.open(small);
    let more = [3; 10_000];
    assert_eq!(two.here.write(desc, &[UserIn::new(&more)], IoOffset::offset(60_000)), Ok(10_000));
    for page in two.pages(small) {
        assert_eq!(away.hint(page), Some(Hint::Large), "{page:#x}");
    }
    let chunks: Vec<Hint> = lock(&away.hints).values().copied().collect();
    assert!(chunks.iter().filter(|hint| **hint == Hint::Stays).count() > 1, "metadata stays");

    // One request for all of a read.
    let pages = two.pages(small);
    away.take(pages.iter().copied());
    let mut all = vec![0; 70_000];
    let read = two.here.read(desc, &mut [UserOut::new(&mut all)], IoOffset::offset(0));
    assert_eq!(read, Ok(70_000));
    let ready = lock(&away.ready);
    assert_eq!(ready.first().map(|range| range.0), pages.first().copied());
    drop(ready);

    let barriers = away.barriers.load(Ordering::SeqCst);
    two.here.sync(Synced::File(desc)).expect("synced");
    assert_eq!(away.barriers.load(Ordering::SeqCst), barriers + 1);
    two.here.close(desc).expect("closed");
    let discarded = away.discarded.load(Ordering::SeqCst);
    two.here.remove(&EntryName::new(two.here.root(), b"large"), Removes::Name).expect("removed");
    assert!(away.discarded.load(Ordering::SeqCst) >= discarded + 70_000 / PAGE * PAGE);
}

/// What can have three pages at once does all of a write of eleven, in steps; and says how much
/// that was where one cannot be done.
#[test]
fn a_write_goes_in_steps_of_what_may_be_here() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let two = Two::new(&format!("absent-steps-{mode:?}"), mode);
        let mut model = bytes(1, 11 * 4096 + 5);
        let file = put(&two.here, "file", &model);
        two.away.step.store(3 * PAGE, Ordering::SeqCst);
        let desc = two.open(file);
        let seek = |to| two.here.seek(desc, to, vfs::Whence::Set).expect("a position");
        for (number, (at, by_two)) in [(0, false), (50, true), (4096, false)].iter().enumerate() {
            let new = bytes(number as u8 + 9, 11 * 4096 - 5000);
            let (one, rest) = new.split_at(if *by_two { 7000 } else { 0 });
            let parts = [UserIn::new(one), UserIn::new(rest)];
            let parts = if *by_two { &parts[..] } else { &parts[1..] };
            seek(*at);
            let place = if number == 1 { IoOffset::offset(*at as u64) } else { IoOffset::POSITION };
            let (wrote, _) = two.without(file, |volume| volume.write(desc, parts, place));
            assert_eq!(wrote, new.len(), "{mode:?} at {at}");
            model[*at as usize..][..new.len()].copy_from_slice(&new);
            assert!(get(&two.other, "file").as_ref() == Ok(&model), "{mode:?} at {at}");
            if place == IoOffset::POSITION {
                let now = two.here.seek(desc, 0, vfs::Whence::Current);
                assert_eq!(now, Ok(*at as u64 + new.len() as u64));
            }
        }
        two.here.map(desc, (0, PAGE), Mapped::Write, Fill::None).expect("mapped");
        let zero = libc::FALLOC_FL_ZERO_RANGE as u32;
        two.without(file, |volume| volume.allocate(desc, zero, 10, 10 * 4096));
        model[10..10 + 10 * 4096].fill(0);
        assert!(get(&two.other, "file").as_ref() == Ok(&model), "{mode:?} zeroed");
        // From its second page on there is no more to be had.
        let faults = two.away.faults.load(Ordering::SeqCst);
        two.away.most.store(1, Ordering::SeqCst);
        two.away.take(two.pages(file).into_iter().skip(4));
        let new = bytes(77, model.len());
        let wrote =
            two.here.write(desc, &[UserIn::new(&new)], IoOffset::offset(0)).expect("a part");
        assert_eq!(wrote, 3 * 4096, "{mode:?}: one step");
        let none = two.here.write(desc, &[UserIn::new(&new)], IoOffset::offset(5 * PAGE));
        assert_eq!(none, Err(Errno::NOMEM), "{mode:?}");
        assert!(two.away.faults.load(Ordering::SeqCst) > faults);
        two.away.bring_all();
        model[..wrote].copy_from_slice(&new[..wrote]);
        // Behind that a step has failed that is not atomic in all modes.
        let sure = if mode == Mode::Strict { model.len() } else { wrote };
        let found = get(&two.other, "file").expect("read");
        assert!(found[..sure] == model[..sure], "{mode:?} in part");
        two.here.close(desc).expect("closed");
        two.end();
    }
}

/// What is lost is fresh for a write of all of it, in place or elsewhere; one of a part is refused,
/// and changes nothing.
#[test]
fn a_lost_page_is_fresh_for_a_write_of_all_of_it() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        for mapped in [false, true] {
            let two = Two::new(&format!("absent-lost-{mode:?}-{mapped}"), mode);
            let mut model = bytes(1, 20 * 4096 + 77);
            let file = put(&two.here, "file", &model);
            let desc = two.open(file);
            if mapped {
                two.here.map(desc, (0, PAGE), Mapped::Write, Fill::None).expect("mapped");
            }
            let pages = two.pages(file);
            let lose = |at: &[usize]| {
                let pages: Vec<u64> = at.iter().map(|at| pages[*at]).collect();
                two.away.take(pages.iter().copied());
                lock(&two.away.lost).extend(pages);
            };
            let write = |new: &[u8], at: u64| {
                two.here.write(desc, &[UserIn::new(new)], IoOffset::offset(at))
            };
            lose(&[3, 4, 7, 20]);
            for (at, length) in [(3 * PAGE + 1, 10), (2 * PAGE, PAGE + 1), (20 * PAGE, 76)] {
                let refused = write(&bytes(7, length as usize), at);
                assert_eq!(refused, Err(Errno::IO), "{mode:?} {mapped}: {length} at {at}");
            }
            assert_eq!(lock(&two.away.lost).len(), 4, "{mode:?} {mapped}: nothing is given up");
            let new = bytes(8, 9 * 4096);
            assert_eq!(write(&new, 2 * PAGE), Ok(new.len()), "{mode:?} {mapped}");
            // Up to the end of the file.
            assert_eq!(write(&new[..77], 20 * PAGE), Ok(77), "{mode:?} {mapped}");
            model[2 * 4096..11 * 4096].copy_from_slice(&new);
            model[20 * 4096..].copy_from_slice(&new[..77]);
            two.away.bring_all();
            let found = get(&two.other, "file");
            assert!(found.as_ref() == Ok(&model), "{mode:?} {mapped}");
            two.here.close(desc).expect("closed");
            two.end();
        }
    }
}

/// Who keeps signals back is told to let them in and to make the call again: no error of a disk.
#[test]
fn a_signal_ends_a_wait_and_the_call_begins_anew() {
    let two = Two::new("absent-signal", Mode::Strict);
    let file = put(&two.here, "file", &bytes(1, 9000));
    let desc = two.open(file);
    two.away.take(two.pages(file).into_iter());
    two.away.interrupted.store(true, Ordering::SeqCst);
    let new = [UserIn::new(&[7; 5000])];
    for place in [IoOffset::offset(10), IoOffset::POSITION] {
        assert_eq!(two.here.write(desc, &new, place), Err(vfs::BEGIN_ANEW));
        let read = two.here.read(desc, &mut [UserOut::new(&mut [0; 5000])], place);
        assert_eq!(read, Err(vfs::BEGIN_ANEW));
    }
    assert_eq!(two.here.truncate(file, 12_000), Err(vfs::BEGIN_ANEW));
    two.away.interrupted.store(false, Ordering::SeqCst);
    two.away.bring_all();
    assert!(get(&two.other, "file") == Ok(bytes(1, 9000)), "nothing has happened");
    two.here.close(desc).expect("closed");
    two.end();
}

/// A strict write to a mapped file goes in place, by a record of bytes that wait in blocks. A page
/// that is found on its way behind the record would leave the call half done, and blocks in use.
#[test]
fn what_changes_in_place_is_here_and_stays_before_a_record_tells_of_it() {
    let two = Two::new("absent-record", Mode::Strict);
    let mut model = bytes(1, 40 * 4096);
    let file = put(&two.here, "file", &model);
    let desc = two.open(file);
    two.here.map(desc, (0, 40 * PAGE), Mapped::Write, Fill::None).expect("mapped");
    let free = || two.here.stat_fs(two.here.root().into()).expect("how full").blocks_free;
    let before = free();
    for round in 0..20 {
        let new = bytes(round + 3, 30 * 4096);
        let at = 4096 + 100 * u64::from(round);
        two.away.begin_to_take(two.pages(file).into_iter().skip(usize::from(round)).step_by(5));
        let wrote = two.here.write(desc, &[UserIn::new(&new)], IoOffset::offset(at));
        assert_eq!(wrote, Ok(new.len()));
        two.away.bring_all();
        model[at as usize..][..new.len()].copy_from_slice(&new);
        assert!(get(&two.other, "file").as_ref() == Ok(&model), "round {round}");
    }
    assert_eq!(free(), before, "no block is in use that was not");
    assert!(two.away.pinned.load(Ordering::SeqCst) >= 20 * 30);
    assert!(lock(&two.away.pins).is_empty(), "all may leave again");
    two.here.close(desc).expect("closed");
    two.end();
}
