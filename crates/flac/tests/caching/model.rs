//! What is read through the cache is what is there, whoever changes it, and however.
//!
//! Four attachments use the same files: two with the cache, each with a view of its own, and two
//! without. Every read of a random run is compared with a model; then threads write and read at
//! once, and no read may give what was overwritten before it began.

use crate::support::{OnPanic, Random, TestDir, open, read, write};
use flac::{Cached, Count};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::{Desc, FileSystem, IoOffset, Maps, UserIn, UserOut, Whence};
use volume::{Mode, Volume};

const FILES: usize = 3;
const NAMES: [&[u8]; FILES] = [b"one", b"two", b"three"];
/// Longest file.
const LONGEST: u64 = 5 << 20;

/// Everybody's descriptions of a file.
struct User<'a> {
    fs: &'a dyn FileSystem,
    descs: Vec<Desc>,
}

impl<'a> User<'a> {
    fn new(fs: &'a dyn FileSystem) -> Self {
        let descs = NAMES.iter().map(|name| open(fs, name, libc::O_RDWR)).collect();
        Self { fs, descs }
    }
}

fn splice(model: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if model.len() < offset + bytes.len() {
        model.resize(offset + bytes.len(), 0);
    }
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// One random change, by one of the users, in the model too.
fn change(random: &mut Random, user: &User<'_>, models: &mut [Vec<u8>]) {
    let file = random.below(FILES as u64) as usize;
    let (fs, desc) = (user.fs, user.descs[file]);
    let length = [1, 100, 4096, 70_000, 2 << 20][random.below(5) as usize].min(LONGEST);
    let offset = random.below(LONGEST - length);
    let value = random.below(255) as u8 + 1;
    let model = &mut models[file];
    match random.below(12) {
        0..=4 => {
            let bytes = vec![value; length as usize];
            write(fs, desc, offset, &bytes);
            splice(model, offset as usize, &bytes);
        }
        5 => {
            // At the position.
            let at = offset.min(model.len() as u64);
            assert_eq!(fs.seek(desc, at as i64, Whence::Set), Ok(at));
            let bytes = vec![value; length as usize];
            assert_eq!(fs.write(desc, &[UserIn::new(&bytes)], IoOffset::POSITION), Ok(bytes.len()));
            splice(model, at as usize, &bytes);
        }
        6 => {
            // To the end, whatever the offset.
            let appending = open(fs, NAMES[file], libc::O_WRONLY | libc::O_APPEND);
            if model.len() as u64 + length <= LONGEST {
                let bytes = vec![value; length as usize];
                write(fs, appending, 7, &bytes);
                model.extend_from_slice(&bytes);
            }
            fs.close(appending).expect("closed");
        }
        7 => {
            let (node, _) = fs.describe(desc).expect("described");
            fs.truncate(node, offset).expect("truncated");
            model.resize(offset as usize, 0);
        }
        8 => {
            let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
            fs.allocate(desc, mode, offset, length).expect("punched");
            let end = (offset + length).min(model.len() as u64) as usize;
            if (offset as usize) < end {
                model[offset as usize..end].fill(0);
            }
        }
        9 => {
            let other = (file + 1) % FILES;
            let source = models[other].clone();
            let (from, to) = (random.below(1 << 20), random.below(1 << 20));
            let copied = fs.copy_range(user.descs[other], from, desc, to, length).expect("copied");
            let bytes = &source[(from as usize).min(source.len())..];
            assert_eq!(copied, length.min(bytes.len() as u64));
            if copied > 0 {
                splice(&mut models[file], to as usize, &bytes[..copied as usize]);
            }
        }
        10 => {
            let other = (file + 1) % FILES;
            relink(fs, (user.descs[other], other), (desc, file), models);
        }
        _ => {
            // Attributes change the version, not the bytes.
            let (node, _) = fs.describe(desc).expect("described");
            let change = vfs::SetAttr { mode: Some(0o640), ..vfs::SetAttr::default() };
            fs.set_attr(node, &change).expect("changed");
        }
    }
}

/// Moves 64 KiB from the one to the other.
fn relink(
    fs: &dyn FileSystem,
    (from, source): (Desc, usize),
    (to, target): (Desc, usize),
    models: &mut [Vec<u8>],
) {
    const MOVED: usize = 64 << 10;
    if models[source].len() < 2 * MOVED {
        return;
    }
    fs.relink(from, MOVED as u64, to, 0, MOVED as u64).expect("relinked");
    let bytes = models[source][MOVED..2 * MOVED].to_vec();
    models[source][MOVED..2 * MOVED].fill(0);
    splice(&mut models[target], 0, &bytes);
}

/// One random read, which must give what the model has.
fn look(random: &mut Random, user: &User<'_>, models: &[Vec<u8>]) {
    let file = random.below(FILES as u64) as usize;
    let model = &models[file];
    let length = [1, 4096, 65_536, 200_000, 2 << 20][random.below(5) as usize];
    let mut offset = random.below(LONGEST) as usize;
    if random.below(3) == 0 {
        offset -= offset % (2 << 20);
    }
    let expected = &model[offset.min(model.len())..(offset + length).min(model.len())];
    let (fs, desc) = (user.fs, user.descs[file]);
    if random.below(4) == 0 {
        fs.seek(desc, offset as i64, Whence::Set).expect("moved");
        let mut bytes = vec![0xEE; length];
        let (one, two) = bytes.split_at_mut(length / 3);
        let out = &mut [UserOut::new(one), UserOut::new(two)];
        let read = fs.read(desc, out, IoOffset::POSITION).expect("read");
        assert_eq!(fs.seek(desc, 0, Whence::Current), Ok((offset + read) as u64));
        assert!(bytes[..read] == *expected, "file {file}, {length} bytes at {offset}");
    } else {
        let found = read(fs, desc, offset as u64, length);
        assert!(found == expected, "file {file}, {length} bytes at {offset}");
    }
}

fn run(mode: Mode, seed: u64, rounds: u64, budget: u64) {
    let place = TestDir::new(&format!("model-{mode}-{seed}"));
    let volumes: [Arc<Volume>; 4] = std::array::from_fn(|_| place.attach(mode));
    let cached: Vec<Cached> = volumes[..2].iter().map(|v| place.cached(v, budget)).collect();
    let all: Vec<&dyn FileSystem> = cached
        .iter()
        .map(|cached| cached as &dyn FileSystem)
        .chain(volumes[2..].iter().map(|volume| &**volume as &dyn FileSystem))
        .collect();
    let users: Vec<User<'_>> = all.into_iter().map(User::new).collect();
    let mut models = vec![Vec::new(); FILES];
    let mut random = Random(seed);
    for _ in 0..rounds {
        // Mostly one with the cache, which follows its own changes.
        let who = [0, 0, 0, 1, 1, 2, 3][random.below(7) as usize];
        change(&mut random, &users[who], &mut models);
        for _ in 0..random.below(16) {
            let who = random.below(4) as usize;
            look(&mut random, &users[who], &models);
        }
    }
    let hits = place.counted(Count::Hits);
    assert!(hits > rounds / 4, "hardly anything came from the cache: {hits} reads");
    assert!(place.status().used <= budget, "{:?}", place.status());
}

/// One of the three runs, by rotation, shorter, with another seed at each commit; in the long run
/// all of them.
fn run_in_turn(number: u32, mode: Mode, budget: u64) {
    let seed = number + 3 * rotation::turn("the seed of a model", 1024);
    if rotation::all() {
        run(mode, number.into(), 2_000, budget);
    } else if rotation::turn("the model of a cache", 3) == number - 1 {
        run(mode, seed.into(), 800, budget);
    }
}

#[test]
fn reads_are_right_whoever_changes_files() {
    run_in_turn(1, Mode::Strict, 64 << 20);
    run_in_turn(2, Mode::Posix, 64 << 20);
}

/// Segments come and go all the time.
#[test]
fn reads_are_right_with_hardly_any_room() {
    run_in_turn(3, Mode::Strict, 4 << 20);
}

/// Stores through a mapping move no version: nothing is served meanwhile, and nothing that was
/// cached before is served afterwards.
#[test]
fn what_is_mapped_for_writing_is_not_cached() {
    let place = TestDir::new("mapped");
    let (one, two) = (place.attach(Mode::Strict), place.attach(Mode::Strict));
    let cached = place.cached(&one, 64 << 20);
    let desc = open(&cached, b"file", libc::O_RDWR);
    write(&cached, desc, 0, &[1; 8192]);
    for _ in 0..2 {
        assert_eq!(read(&cached, desc, 0, 8192), [1; 8192]);
    }
    assert_eq!((place.counted(Count::Hits), place.counted(Count::Misses)), (1, 1));
    let mapped = open(&*two, b"file", libc::O_RDWR);
    let pieces = two.map(mapped, (0, 4096), vfs::Mapped::Write, vfs::Fill::All).expect("mapped");
    let place_of = pieces[0].region_offset.expect("a place");
    let region = two.region_address(mapped.into());
    // SAFETY: the piece is of the region that the engine has mapped there, and one byte of it.
    unsafe { ((region as u64 + place_of) as *mut u8).write_volatile(9) };
    assert_eq!(read(&cached, desc, 0, 2), [9, 1]);
    assert_eq!(place.counted(Count::Hits), 1);
    two.close(mapped).expect("closed");
    cached.close(desc).expect("closed");
    // The mark of the mapping ends with the last close.
    let desc = open(&cached, b"file", libc::O_RDWR);
    for _ in 0..2 {
        assert_eq!(read(&cached, desc, 0, 2), [9, 1]);
    }
    assert_eq!((place.counted(Count::Hits), place.counted(Count::Misses)), (2, 2));
}

/// Nobody changes the file, and there is hardly any room: threads fill the same segments at once,
/// piece by piece, and holes of the file lie in the middle and at the ends of pieces.
#[test]
fn what_several_fill_at_once_is_what_is_there() {
    const LENGTH: usize = (16 << 20) + 12_345;
    let place = TestDir::new("fill");
    let volumes: [Arc<Volume>; 3] = std::array::from_fn(|_| place.attach(Mode::Strict));
    let mut model = vec![0; LENGTH];
    let desc = open(&*volumes[0], b"file", libc::O_RDWR);
    let (node, _) = volumes[0].describe(desc).expect("described");
    volumes[0].truncate(node, LENGTH as u64).expect("a hole");
    // Other holes at each commit.
    let mut random = Random(21 + u64::from(rotation::turn("what several fill", 64)));
    for piece in (0..LENGTH - 100_000).step_by(100_000) {
        // Two of three.
        if random.below(3) != 0 {
            let bytes = vec![random.below(255) as u8 + 1; random.below(100_000) as usize + 1];
            write(&*volumes[0], desc, piece as u64, &bytes);
            splice(&mut model, piece, &bytes);
        }
    }
    let cached: Vec<Cached> = volumes.iter().map(|v| place.cached(v, 6 << 20)).collect();
    let rounds = if rotation::all() { 1_000 } else { 12 };
    let (together, wrong) = (std::sync::Barrier::new(6), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        // Each from the beginning to the end, in steps of its own, so they are at about one place.
        for (thread, step) in
            [65_536, 100_000, 300_000, 70_000, 131_072, 2 << 20].iter().enumerate()
        {
            let (fs, model) = (&cached[thread % 3], &model);
            let (together, wrong) = (&together, &wrong);
            scope.spawn(move || {
                let desc = open(fs, b"file", libc::O_RDONLY);
                for _ in 0..rounds {
                    together.wait();
                    for at in (0..LENGTH).step_by(*step) {
                        let found = read(fs, desc, at as u64, *step);
                        let expected = &model[at..(at + step).min(LENGTH)];
                        if found != expected {
                            // Not by a panic: the others wait for each other.
                            wrong.lock().expect("no panic").push((*step, at));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "other bytes, length and place: {wrong:?}");
    assert!(place.counted(Count::Hits) > 80 * rounds, "{:?}", place.status());
    assert!(place.counted(Count::Evictions) > 3 * rounds / 2, "{:?}", place.status());
}

/// A write takes away what it touched of a chunk, in all processes, and leaves the rest. What was
/// overwritten whole is the first to make way.
#[test]
fn what_is_overwritten_is_dead_and_the_rest_stays() {
    let place = TestDir::new("overwritten");
    let (one, two) = (place.attach(Mode::Strict), place.attach(Mode::Strict));
    let [one, two] = [&one, &two].map(|volume| place.cached(volume, 4 << 20));
    let length = 2 << 20;
    let [first, second] = [&one, &two].map(|fs| open(fs, b"file", libc::O_RDWR));
    write(&one, first, 0, &vec![1; length]);
    read(&one, first, 0, length);
    read(&two, second, 0, length);
    let counts = || (place.counted(Count::Hits), place.counted(Count::Misses));
    assert_eq!((counts(), place.status().segments), ((1, 1), 1));
    // Over a border of two granules.
    write(&one, first, (1 << 20) - 10, &[2; 20]);
    assert_eq!(read(&two, second, 0, (1 << 20) - (64 << 10)), vec![1; (1 << 20) - (64 << 10)]);
    assert_eq!(read(&one, first, (1 << 20) + (64 << 10), 1000), [1; 1000]);
    assert_eq!(counts(), (3, 1));
    assert_eq!(read(&two, second, (1 << 20) - 11, 22)[..12], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!((counts(), place.status().segments), ((3, 2), 1));
    assert_eq!(read(&one, first, (1 << 20) + 9, 2), [2, 1]);
    assert_eq!(counts(), (4, 2));
    for value in 3..30 {
        read(&one, first, 0, length);
        write(&two, second, 0, &vec![value; length]);
        assert_eq!(read(&one, first, length as u64 - 1, 1), [value]);
        assert!(place.status().used <= 4 << 20, "{:?}", place.status());
    }
    // What is dead makes way first.
    let other = open(&one, b"other", libc::O_RDWR);
    write(&one, other, 0, &vec![9; length]);
    read(&one, other, 0, length);
    write(&one, first, 0, &vec![7; length]);
    let third = open(&one, b"third", libc::O_RDWR);
    write(&one, third, 0, &vec![8; length]);
    for _ in 0..2 {
        for (desc, value) in [(other, 9), (third, 8)] {
            assert_eq!(read(&one, desc, 0, length), vec![value; length]);
        }
    }
    assert_eq!((place.status().segments, place.status().used), (2, 4 << 20));
}

/// Somebody who began to fill a granule before a write may store old bytes to it behind that: so no
/// granule that was dead is filled again, not even in a segment that gets others.
#[test]
fn a_dead_granule_gets_another_segment() {
    let place = TestDir::new("dead-granule");
    let volume = place.attach(Mode::Strict);
    let cached = place.cached(&volume, 64 << 20);
    let desc = open(&cached, b"file", libc::O_RDWR);
    write(&cached, desc, 0, &vec![1; 1 << 20]);
    let segments = || {
        let era = std::fs::read_dir(place.eras()).expect("eras").next().expect("one");
        let files = std::fs::read_dir(era.expect("one").path()).expect("an era").flatten();
        let names = files.map(|file| file.file_name()).filter(|name| name != "index");
        names.collect::<Vec<_>>()
    };
    let granule = 64 << 10;
    read(&cached, desc, 3 * granule, 10);
    let first = segments();
    assert_eq!(first.len(), 1);
    // One that is there, and one that is not.
    for dead in [3, 7] {
        write(&cached, desc, dead * granule, &[2]);
        read(&cached, desc, 5 * granule, 10);
        let before = segments();
        assert_eq!(before.len(), 1);
        assert_eq!(read(&cached, desc, dead * granule, 2), [2, 1]);
        let after = segments();
        assert!(after.len() == 1 && after != before, "{before:?}, {after:?}");
    }
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 96;

/// Writers write blocks whole, with ever higher numbers; a reader notes what was written before it
/// began, and must not find less.
#[test]
fn no_read_gives_what_was_overwritten_before_it_began() {
    let place = TestDir::new("threads");
    let volumes: [Arc<Volume>; 4] = std::array::from_fn(|_| place.attach(Mode::Strict));
    let cached: Vec<Cached> = volumes[..3].iter().map(|v| place.cached(v, 8 << 20)).collect();
    let desc = open(&cached[0], b"file", libc::O_RDWR);
    // Over a border of two chunks.
    let start = (2 << 20) - (BLOCKS * BLOCK / 2) as u64;
    write(&cached[0], desc, start, &vec![0; BLOCKS * BLOCK]);
    let written: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let (ended, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let write_all = |fs: &dyn FileSystem, seed: u64, part: std::ops::Range<usize>| {
        let desc = open(fs, b"file", libc::O_RDWR);
        let mut random = Random(seed);
        // At least so often, and until enough was read.
        let goes_on = |number: u64| {
            let enough = number >= 3_000 && served.load(Ordering::Relaxed) > 1_000;
            !enough && !ended.load(Ordering::SeqCst)
        };
        for number in (1..).take_while(|number| goes_on(*number)) {
            let block = part.start + random.below(part.len() as u64) as usize;
            let bytes = number.to_le_bytes().repeat(BLOCK / 8);
            write(fs, desc, start + (block * BLOCK) as u64, &bytes);
            written[block].store(number, Ordering::SeqCst);
            if number.is_multiple_of(16) {
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
    };
    let read_all = |fs: &dyn FileSystem, seed: u64| {
        let _ended = OnPanic(&ended);
        let desc = open(fs, b"file", libc::O_RDONLY);
        let mut random = Random(seed);
        while !ended.load(Ordering::SeqCst) {
            let block = random.below(BLOCKS as u64) as usize;
            let least = written[block].load(Ordering::SeqCst);
            let found = read(fs, desc, start + (block * BLOCK) as u64, BLOCK);
            let number = u64::from_le_bytes(found[..8].try_into().expect("8 bytes"));
            assert!(found.chunks(8).all(|word| word == &found[..8]), "block {block} is torn");
            assert!(number >= least, "block {block}: {number} after {least}");
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let writers = [
            scope.spawn(|| write_all(&cached[0], 11, 0..BLOCKS / 3)),
            scope.spawn(|| write_all(&cached[1], 12, BLOCKS / 3..2 * BLOCKS / 3)),
            scope.spawn(|| write_all(&*volumes[3], 13, 2 * BLOCKS / 3..BLOCKS)),
        ];
        let readers =
            [scope.spawn(|| read_all(&cached[1], 14)), scope.spawn(|| read_all(&cached[2], 15))];
        let results = writers.map(std::thread::ScopedJoinHandle::join);
        ended.store(true, Ordering::SeqCst);
        for result in results.into_iter().chain(readers.map(std::thread::ScopedJoinHandle::join)) {
            result.expect("no panic");
        }
    });
    assert!(served.load(Ordering::Relaxed) > 1_000);
    assert!(place.counted(Count::Hits) > 0, "{:?}", place.status());
}
