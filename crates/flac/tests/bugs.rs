//! Faults are put back, one at a time, each at the one moment at which it shows: with the fault the
//! wrong bytes are read, without it, at the same moment, the right ones.

#[path = "caching/support.rs"]
mod support;

use flac::buffers::{self, PAGE};
use flac::inject::{Bug, Point, at_points, set_bug};
use flac::{Cached, Count};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use support::{TestDir, open, read, write};
use vfs::{Desc, FileSystem, IoOffset, UserOut};
use volume::{Mode, Volume};

const CHUNK: u64 = 2 << 20;
const GRANULE: u64 = 64 << 10;
const FILE: &[u8] = b"file";

/// Two with the cache and one without, each with the file open.
struct Three {
    place: TestDir,
    one: Cached,
    two: Cached,
    plain: Arc<Volume>,
    descs: [Desc; 3],
}

impl Three {
    /// The file holds 1 in two chunks, and nothing is cached.
    fn new(name: &str) -> Rc<Self> {
        Self::over(TestDir::new(name))
    }

    fn over(place: TestDir) -> Rc<Self> {
        let [one, two, plain]: [Arc<Volume>; 3] =
            std::array::from_fn(|_| place.attach(Mode::Strict));
        let (one, two) = (place.cached(&one, 64 << 20), place.cached(&two, 64 << 20));
        let all: [&dyn FileSystem; 3] = [&one, &two, &*plain];
        let descs = all.map(|fs| open(fs, FILE, libc::O_RDWR));
        let three = Self { place, one, two, plain, descs };
        three.write(2, 0, &vec![1; 2 * CHUNK as usize]);
        Rc::new(three)
    }

    fn user(&self, who: usize) -> &dyn FileSystem {
        [&self.one as &dyn FileSystem, &self.two, &*self.plain][who]
    }

    fn write(&self, who: usize, at: u64, bytes: &[u8]) {
        write(self.user(who), self.descs[who], at, bytes);
    }

    /// The byte of the file at each of these places, as one read of all between them sees it.
    fn read(&self, who: usize, places: [u64; 2]) -> [u8; 2] {
        let [first, last] = places;
        let bytes = read(self.user(who), self.descs[who], first, (last - first + 1) as usize);
        [bytes[0], bytes[(last - first) as usize]]
    }
}

/// Does `act` at the first time that the thread comes by a point.
fn once(at: Point, act: impl FnOnce() + 'static) {
    let mut act = Some(act);
    at_points(Some(Box::new(move |point| {
        if point == at
            && let Some(act) = act.take()
        {
            act();
        }
    })));
}

/// What `scenario` reads without a fault, and with it.
fn shows<T: PartialEq + std::fmt::Debug>(bug: Bug, right: &T, scenario: impl Fn(&str) -> T) {
    set_bug(Bug::None);
    assert_eq!(scenario(&format!("{bug:?}-without")), *right);
    set_bug(bug);
    let found = scenario(&format!("{bug:?}-with"));
    set_bug(Bug::None);
    at_points(None);
    assert_ne!(found, *right, "{bug:?} does not show");
}

/// A slow fill overwrites a granule with newer bytes, behind the back of a read that has begun to
/// copy it beside an older one.
#[test]
fn a_read_without_its_second_comparison() {
    shows(Bug::NoSecondComparison, &[2, 2], |name| {
        let three = Three::new(name);
        // One granule is there, so that the others are added to its segment.
        three.read(0, [3 * GRANULE, 3 * GRANULE]);
        let (filling, begun) = channel();
        let (go, went) = channel();
        let place = TestDir { dir: three.place.dir.clone(), cache: three.place.cache.clone() };
        let filler = std::thread::spawn(move || {
            let place = std::mem::ManuallyDrop::new(place);
            let volume = place.attach(Mode::Strict);
            let cached = place.cached(&volume, 64 << 20);
            let desc = open(&cached, FILE, libc::O_RDONLY);
            // Once: behind that it notices, and begins anew.
            let mut points = vec![Point::BehindFill, Point::BeforeFill];
            at_points(Some(Box::new(move |point| {
                if points.last() == Some(&point) {
                    points.pop();
                    filling.send(()).expect("somebody listens");
                    went.recv().expect("somebody says so");
                }
            })));
            read(&cached, desc, 0, 1);
        });
        begun.recv().expect("it fills");
        let (other, goes) = (Rc::clone(&three), go.clone());
        // Both granules are found as they were; then they change, and the slow one goes on.
        once(Point::BeforeCopy, move || {
            other.write(2, 0, &vec![2; 2 * GRANULE as usize]);
            goes.send(()).expect("it waits");
            begun.recv().expect("it has filled");
        });
        let found = three.read(1, [0, 2 * GRANULE - 1]);
        go.send(()).expect("it waits");
        filler.join().expect("no panic");
        found
    });
}

#[test]
fn a_word_that_is_moved_over_another_change() {
    shows(Bug::WordMovedAnyway, &[2, 3], |name| {
        let three = Three::new(name);
        three.read(0, [0, 2 * CHUNK - 1]);
        let other = Rc::clone(&three);
        once(Point::BeforeWrite, move || other.write(2, 2 * CHUNK - 1, &[3]));
        three.write(0, 0, &[2]);
        three.read(1, [0, 2 * CHUNK - 1])
    });
}

#[test]
fn an_entry_that_goes_behind_the_word() {
    shows(Bug::DroppedAfterWord, &[2, 1], |name| {
        let three = Three::new(name);
        three.read(0, [0, CHUNK]);
        let (other, found) = (Rc::clone(&three), Rc::new(std::cell::Cell::new([0, 0])));
        let seen = Rc::clone(&found);
        once(Point::WithinChange, move || seen.set(other.read(1, [0, CHUNK])));
        three.write(0, 0, &[2]);
        found.get()
    });
}

#[test]
fn a_segment_that_is_published_empty() {
    shows(Bug::PublishedEarly, &[1, 1], |name| {
        let three = Three::new(name);
        let (other, found) = (Rc::clone(&three), Rc::new(std::cell::Cell::new([0, 0])));
        let seen = Rc::clone(&found);
        once(Point::BeforeFill, move || {
            // As long as it will be: an empty file is noticed.
            for era in std::fs::read_dir(other.place.eras()).expect("eras").flatten() {
                for file in std::fs::read_dir(era.path()).expect("an era").flatten() {
                    if file.file_name() != "index" {
                        let file = std::fs::File::options().write(true).open(file.path());
                        file.expect("opened").set_len(CHUNK).expect("longer");
                    }
                }
            }
            seen.set(other.read(1, [0, 1000]));
        });
        three.read(0, [0, 1000]);
        found.get()
    });
}

#[test]
fn a_chunk_that_is_claimed_when_it_was_read() {
    shows(Bug::ClaimedLate, &[2, 1], |name| {
        let three = Three::new(name);
        // The file is known.
        three.read(0, [CHUNK, CHUNK]);
        let other = Rc::clone(&three);
        once(Point::BehindFill, move || other.write(1, 0, &[2]));
        three.read(0, [0, 1]);
        three.read(1, [0, 1])
    });
}

/// A granule changes when it was read, before it is added to its chunk's segment.
#[test]
fn a_granule_that_is_added_behind_a_change() {
    shows(Bug::AbsentLeft, &[2, 1], |name| {
        let three = Three::new(name);
        three.read(0, [3 * GRANULE, 3 * GRANULE]);
        let other = Rc::clone(&three);
        once(Point::BehindFill, move || other.write(1, 0, &[2]));
        three.read(0, [0, 1]);
        three.read(1, [0, 1])
    });
}

/// A stale entry that is damaged so that it seems to be of the base that counts.
#[test]
fn an_entry_whose_check_is_not_asked_for() {
    shows(Bug::CheckIgnored, &[2, 2], |name| {
        let three = Three::new(name);
        three.read(0, [0, 1]);
        three.write(2, 0, &vec![2; 2 * CHUNK as usize]);
        three.read(0, [CHUNK, CHUNK]);
        let era = std::fs::read_dir(three.place.eras()).expect("eras").next().expect("one");
        let index = era.expect("one").path().join("index");
        let index = std::fs::File::options().read(true).write(true).open(index).expect("opened");
        confuse(&index);
        three.read(1, [0, 1])
    });
}

/// Gives two lines of chunks the base of the newer one.
fn confuse(index: &std::fs::File) {
    let length = index.metadata().expect("its length").len();
    let mut lines = Vec::new();
    // Chunks lie behind half as many files.
    let first = 4096 + (length - 4096) / 3;
    for at in (first..length).step_by(64) {
        let mut line = [0; 64];
        index.read_exact_at(&mut line, at).expect("a line");
        if line[0] & 3 == 2 {
            lines.push((at, line));
        }
    }
    let [(one, a), (two, b)] = lines[..] else { panic!("{} lines", lines.len()) };
    let base = |line: &[u8; 64]| u64::from_le_bytes(line[16..24].try_into().expect("8 bytes"));
    let newest = base(&a).max(base(&b)).to_le_bytes();
    for at in [one, two] {
        index.write_all_at(&newest, at + 16).expect("damaged");
    }
}

/// Two fill the same segment. The one found it short, the other made it longer and filled it, and
/// the first one cut it: what lay there was gone, and zeros were read as soon as somebody filled
/// more. (So it was: programs that read one file at once found zeros.)
#[test]
fn a_segment_that_is_cut_by_who_fills_it() {
    shows(Bug::CutShort, &[1, 1], |name| {
        let three = Three::new(name);
        three.read(0, [0, 0]);
        let other = Rc::clone(&three);
        once(Point::BeforeFill, move || {
            other.read(1, [20 * GRANULE, 20 * GRANULE]);
        });
        three.read(0, [GRANULE, GRANULE]);
        three.read(0, [31 * GRANULE, 31 * GRANULE]);
        three.read(1, [20 * GRANULE, 21 * GRANULE - 1])
    });
}

/// A read has found its segment; that goes, and another chunk gets the line, and the number with
/// it.
#[test]
fn a_segment_whose_number_is_used_again() {
    shows(Bug::NumberUsedAgain, &[1, 1], |name| {
        /// So many chunks that one of them gets any line (there are 1,024).
        const OTHERS: u64 = 12_000;
        let three = Three::new(name);
        let (node, _) = three.plain.describe(three.descs[2]).expect("described");
        three.plain.truncate(node, (2 + OTHERS) * CHUNK).expect("holes behind");
        // By the other one: a process that has it mapped notices that it was emptied.
        three.read(1, [0, 1000]);
        let era = std::fs::read_dir(three.place.eras()).expect("eras").next().expect("one");
        let era = era.expect("one").path();
        let files = std::fs::read_dir(&era).expect("an era").flatten();
        let mut segments = files.map(|file| file.path()).filter(|path| !path.ends_with("index"));
        let segment = segments.next().expect("one was filled");
        let other = Rc::clone(&three);
        once(Point::BeforeCopy, move || {
            let place = Some(&*other.place.cache);
            assert_eq!(flac::drop_file(&TestDir::whose(), place, node), Ok(1));
            let mut others = 2..2 + OTHERS;
            while !segment.exists()
                && let Some(chunk) = others.next()
            {
                other.read(1, [chunk * CHUNK, chunk * CHUNK]);
            }
        });
        three.read(0, [0, 1000])
    });
}

/// What was read into a buffer stays what it was, although the segment is mapped there.
#[test]
fn a_segment_that_is_written_twice() {
    let Some(place) = TestDir::huge("probe") else { return };
    drop(place);
    shows(Bug::WrittenTwice, &[1, 2], |name| {
        let place = TestDir::huge(name).expect("it could be had");
        let three = Three::over(place);
        let buffer = buffer();
        // SAFETY: the buffer's, to which nothing refers.
        let mut out = [unsafe { UserOut::from_raw(buffer, CHUNK as usize) }];
        let read = three.one.read(three.descs[0], &mut out, IoOffset::offset(0));
        assert_eq!(read, Ok(CHUNK as usize));
        assert_eq!(three.place.counted(Count::BytesAttached), CHUNK);
        three.write(2, 0, &vec![2; CHUNK as usize]);
        let [newer, _] = three.read(1, [0, CHUNK - 1]);
        // SAFETY: in the buffer. It is never unmapped.
        [unsafe { buffer.read_volatile() }, newer]
    });
}

/// A page of memory, noted as a buffer.
fn buffer() -> *mut u8 {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (prot, null) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: a fresh mapping, of which nobody else knows.
    unsafe {
        let all = mmap_anonymous(null, 2 * PAGE, prot, MapFlags::PRIVATE).expect("mapped");
        let start = (all as usize).next_multiple_of(PAGE);
        madvise(start as _, PAGE, Advice::LinuxHugepage).expect("advised");
        assert!(buffers::add(start, PAGE));
        start as *mut u8
    }
}

/// A file changes in an era without the cache; the one before that ended in order.
#[test]
fn an_era_that_is_skipped() {
    shows(Bug::EraSkipped, &2, |name| {
        let place = TestDir::new(name);
        let write_all = |value| {
            let volume = place.attach(Mode::Strict);
            let desc = open(&*volume, FILE, libc::O_RDWR);
            write(&*volume, desc, 0, &[value; 100]);
            volume.close(desc).expect("closed");
            volume.leave().expect("left");
        };
        let read_one = || {
            let volume = place.attach(Mode::Strict);
            let cached = place.cached(&volume, 64 << 20);
            let desc = open(&cached, FILE, libc::O_RDONLY);
            let found = read(&cached, desc, 50, 1)[0];
            cached.close(desc).expect("closed");
            drop(cached);
            volume.leave().expect("left");
            found
        };
        write_all(1);
        assert_eq!(read_one(), 1);
        write_all(2);
        read_one()
    });
}
