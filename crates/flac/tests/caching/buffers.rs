//! Reads into explicit buffers: whole pages are mapped, not copied; what a buffer has got it keeps,
//! whatever becomes of the file and of the cache.

use crate::support::{OnPanic, Random, TestDir, open, write};
use flac::buffers::{self, PAGE};
use flac::{Cached, Count, drop_all};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{Desc, FileSystem, IoOffset, UserOut};
use volume::{Mode, Volume};

/// Faults and attached pages are counted for the process: each test has one of its own, one at a
/// time. Gives whether this is it; else it was run there. If the kernel ran out of huge pages
/// meanwhile, its memory is compacted, and the test is run again.
fn alone(test: &str) -> bool {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os("SOLERA_TEST_ALONE").is_some() {
        return true;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("this program");
    let test = format!("buffers::{test}");
    for attempt in 1.. {
        let without = fallbacks();
        let output = std::process::Command::new(&program)
            .args(["--exact", &test, "--nocapture"])
            .env("SOLERA_TEST_ALONE", "1")
            .output()
            .expect("this program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            assert!(said.contains("1 passed"), "{test}: {said}");
            let skipped = said.lines().filter(|line| line.starts_with("skipped"));
            skipped.for_each(|line| println!("{line}"));
            break;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(attempt < 4 && fallbacks() > without, "{said}{errors}");
        // It needs root, as huge pages on a tmpfs do.
        let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
    }
    false
}

/// How often the kernel has given small pages where huge ones were asked for.
fn fallbacks() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").expect("counters");
    let fallbacks = counters.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        (name.starts_with("thp_") && name.contains("fallback"))
            .then(|| count.parse::<u64>().ok())?
    });
    fallbacks.sum()
}

/// Memory of whole pages, noted as a buffer.
struct Buffer {
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        let length = length.next_multiple_of(PAGE);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping.
        let all = unsafe { rustix::mm::mmap_anonymous(null, length + PAGE, prot, flags) };
        let start = (all.expect("mapped") as usize).next_multiple_of(PAGE);
        // SAFETY: all of it lies in that mapping, which stays (the rest of it is never unmapped).
        unsafe {
            rustix::mm::madvise(start as _, length, Advice::LinuxHugepage).expect("advised");
            assert!(buffers::add(start, length));
        }
        Self { start, length }
    }

    /// Reads as into any memory.
    fn read(&self, fs: &dyn FileSystem, desc: Desc, offset: u64, at: usize, length: usize) {
        assert!(at + length <= self.length);
        // SAFETY: in the buffer, to which nothing refers.
        let mut out = [unsafe { UserOut::from_raw((self.start + at) as *mut u8, length) }];
        assert_eq!(fs.read(desc, &mut out, IoOffset::offset(offset)), Ok(length));
    }

    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.length);
        // SAFETY: in the buffer; a test has one thread, and looks no longer than it stores nothing.
        unsafe { std::slice::from_raw_parts((self.start + at) as *const u8, length) }
    }

    fn fill(&self, at: usize, length: usize, byte: u8) {
        assert!(at + length <= self.length);
        // SAFETY: in the buffer, to which nothing refers.
        unsafe { std::ptr::write_bytes((self.start + at) as *mut u8, byte, length) };
    }

    /// The files that are mapped into it.
    fn mapped(&self) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let lies_in = |line: &&str| {
            let start = line.split('-').next().expect("an address");
            let start = usize::from_str_radix(start, 16).expect("hexadecimal");
            (self.start..self.start + self.length).contains(&start)
        };
        let lines = maps.lines().filter(lies_in);
        lines.filter(|line| line.contains("solera")).map(str::to_owned).collect()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        buffers::remove(self.start, self.length);
        // SAFETY: the buffer's, to which nothing refers.
        unsafe { rustix::mm::munmap(self.start as _, self.length).expect("unmapped") };
    }
}

/// The byte at a place of a file.
fn byte_at(at: u64, age: u8) -> u8 {
    (at / 4093 % 251) as u8 ^ age
}

fn is_right(bytes: &[u8], from: u64, age: u8) -> bool {
    bytes.iter().zip(from..).all(|(byte, at)| *byte == byte_at(at, age))
}

/// Bytes of a file, as most tests need, and of a long one.
const LENGTH: u64 = 18 << 20;
const LONG: u64 = 66 << 20;

/// A volume with a file, and a cache over it.
struct Stage {
    place: TestDir,
    volume: Arc<Volume>,
    cached: Cached,
    desc: Desc,
    length: u64,
}

impl Stage {
    fn new(name: &str) -> Option<Self> {
        Some(Self::over(TestDir::huge(name)?, LENGTH))
    }

    /// With a long file.
    fn long(name: &str) -> Option<Self> {
        Some(Self::over(TestDir::huge(name)?, LONG))
    }

    fn over(place: TestDir, length: u64) -> Self {
        let volume = place.attach(Mode::Strict);
        let cached = place.cached(&volume, 96 << 20);
        let desc = open(&cached, b"file", libc::O_RDWR);
        let stage = Self { place, volume, cached, desc, length };
        stage.fill(0);
        stage
    }

    /// Writes the whole file.
    fn fill(&self, age: u8) {
        let bytes: Vec<u8> = (0..self.length).map(|at| byte_at(at, age)).collect();
        // The volume has no room for both.
        for (number, piece) in bytes.chunks(2 * MIB).enumerate() {
            write(&*self.volume, self.desc, (number * 2 * MIB) as u64, piece);
        }
    }

    fn read(&self, buffer: &Buffer, offset: u64, at: usize, length: usize) {
        buffer.read(&self.cached, self.desc, offset, at, length);
    }

    fn attached(&self) -> u64 {
        self.place.counted(Count::BytesAttached)
    }

    fn copied(&self) -> u64 {
        self.place.counted(Count::BytesCopied)
    }

    /// Bytes that the mount's files take, in MiB: the index takes a few small pages.
    fn taken(&self) -> u64 {
        let found = rustix::fs::statfs(&self.place.cache).expect("a file system");
        ((found.f_blocks - found.f_bfree) * found.f_bsize as u64) >> 20
    }
}

fn faults() -> i64 {
    // SAFETY: any bytes make one, and there is room for it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt + usage.ru_majflt
    }
}

const MIB: usize = 1 << 20;

/// Line 9: a mapping for each segment; only the rest is copied.
#[test]
fn whole_pages_are_mapped_and_the_rest_is_copied() {
    if !alone("whole_pages_are_mapped_and_the_rest_is_copied") {
        return;
    }
    let Some(stage) = Stage::long("whole") else { return };
    let buffer = Buffer::new(64 * MIB + PAGE);
    for length in [2 * MIB, 64 * MIB] {
        for shift in [0, 1, 511, 4095, 4096_usize] {
            buffers::detach(buffer.start, buffer.length);
            // The first time it is filled, then it is there.
            for _ in 0..2 {
                let before = (stage.attached(), stage.copied());
                let name = format!("{length} bytes from {shift} on");
                stage.read(&buffer, shift as u64, shift, length);
                let whole = if shift == 0 { length / PAGE } else { length / PAGE - 1 };
                let bytes = (whole * PAGE) as u64;
                assert_eq!(stage.attached() - before.0, bytes, "{name}");
                assert_eq!(stage.copied() - before.1, length as u64 - bytes, "{name}");
                assert_eq!(buffer.mapped().len(), whole, "{name}");
                assert_eq!(buffers::attached(), whole, "{name}");
                assert!(is_right(buffer.bytes(shift, length), shift as u64, 0), "{name}");
            }
        }
    }
    // Not congruent: copied.
    let before = stage.attached();
    stage.read(&buffer, 0, 4096, 64 * MIB);
    assert!(is_right(buffer.bytes(4096, 64 * MIB), 0, 0));
    stage.read(&buffer, 4096, 0, 64 * MIB);
    assert!(is_right(buffer.bytes(0, 64 * MIB), 4096, 0));
    assert_eq!(stage.attached(), before);
    // By several pieces.
    let pieces = [(0, MIB), (MIB, MIB), (2 * MIB, 4 * MIB), (6 * MIB, 100)];
    let mut out = pieces.map(|(at, length)| {
        // SAFETY: in the buffer, to which nothing refers.
        unsafe { UserOut::from_raw((buffer.start + at) as *mut u8, length) }
    });
    let read = stage.cached.read(stage.desc, &mut out, IoOffset::offset(0));
    assert_eq!(read, Ok(6 * MIB + 100));
    assert_eq!(stage.attached() - before, 4 << 20);
    assert!(is_right(buffer.bytes(0, 6 * MIB + 100), 0, 0));
}

/// The end of a file is no whole page.
#[test]
fn the_end_of_a_file_is_copied_and_nothing_behind_it_changes() {
    if !alone("the_end_of_a_file_is_copied_and_nothing_behind_it_changes") {
        return;
    }
    let Some(stage) = Stage::new("end") else { return };
    let (node, _) = stage.volume.describe(stage.desc).expect("described");
    let buffer = Buffer::new(8 * MIB);
    stage.read(&buffer, 0, 0, 8 * MIB);
    for size in [6 * MIB - 1, 4 * MIB + 1] {
        stage.volume.truncate(node, size as u64).expect("truncated");
        for engine in [&stage.cached as &dyn FileSystem, &*stage.volume] {
            // SAFETY: in the buffer, to which nothing refers.
            let mut out = [unsafe { UserOut::from_raw(buffer.start as *mut u8, 8 * MIB) }];
            assert_eq!(engine.read(stage.desc, &mut out, IoOffset::offset(0)), Ok(size));
            assert!(is_right(buffer.bytes(0, 8 * MIB), 0, 0));
            assert_eq!(engine.read(stage.desc, &mut out, IoOffset::offset(size as u64)), Ok(0));
            assert!(is_right(buffer.bytes(0, 8 * MIB), 0, 0));
        }
    }
}

/// Line 9: a segment without a page of 2 MiB is copied, and the kernel is asked once. One that was
/// filled piece by piece has none either, and is made anew for a buffer, once.
#[test]
fn small_pages_are_copied() {
    if !alone("small_pages_are_copied") {
        return;
    }
    let stage = Stage::over(TestDir::new("small"), LENGTH);
    let buffer = Buffer::new(4 * MIB);
    for _ in 0..3 {
        stage.read(&buffer, 0, 0, 4 * MIB);
        assert!(is_right(buffer.bytes(0, 4 * MIB), 0, 0));
        assert_eq!((stage.attached(), buffers::attached()), (0, 0));
    }
    assert_eq!(stage.place.counted(Count::BytesFilled), 4 << 20);
    drop(stage);
    let Some(stage) = Stage::new("pieces") else { return };
    let plain = Buffer::new(2 * MIB);
    for at in (0..2 * MIB).step_by(256 << 10) {
        stage.read(&plain, at as u64, at, 256 << 10);
    }
    for _ in 0..2 {
        stage.read(&buffer, 0, 0, 2 * MIB);
        assert_eq!(stage.place.counted(Count::BytesFilled), 4 << 20);
    }
    assert_eq!(stage.attached(), 4 << 20);
    assert!(is_right(buffer.bytes(0, 2 * MIB), 0, 0));
}

/// What may happen to a file and its cache.
type Happens = fn(&Stage);

/// Line 10: whatever happens to file and cache, touched or not.
#[test]
fn a_buffer_keeps_what_it_has() {
    if !alone("a_buffer_keeps_what_it_has") {
        return;
    }
    let happens: [(&str, Happens); 6] = [
        ("overwritten past the cache", |stage| stage.fill(9)),
        ("overwritten", |stage| {
            for at in (0..16 << 20).step_by(MIB) {
                write(&stage.cached, stage.desc, at, &vec![7; MIB]);
            }
        }),
        ("truncated", |stage| {
            let (node, _) = stage.cached.describe(stage.desc).expect("described");
            stage.cached.truncate(node, 1).expect("truncated");
        }),
        ("evicted", |stage| {
            // All of the budget of this cache is another file's.
            let cached = stage.place.cached(&stage.volume, 8 << 20);
            let other = open(&cached, b"other", libc::O_RDWR);
            write(&cached, other, 0, &vec![3; 16 << 20]);
            crate::support::read(&cached, other, 0, 16 << 20);
            cached.close(other).expect("closed");
            assert!(stage.place.status().used <= 8 << 20);
        }),
        ("dropped", |stage| {
            assert!(drop_all(&TestDir::whose(), Some(&stage.place.cache)).expect("dropped") > 0);
        }),
        ("unlinked", |stage| {
            let root = stage.cached.root();
            let at = vfs::EntryName::new(root, b"file");
            stage.cached.remove(&at, vfs::Removes::Name).expect("unlinked");
            // As a sweep, and an era's end.
            std::fs::remove_dir_all(stage.place.eras()).expect("removed");
        }),
    ];
    // A third of them, by rotation; in the long run all.
    let turn = rotation::turn("a buffer keeps what it has", 3);
    for (number, (name, happen)) in (0..).zip(happens) {
        if !rotation::all() && number % 3 != turn {
            continue;
        }
        let Some(stage) = Stage::new("keeps") else { return };
        let (touched, fresh) = (Buffer::new(8 * MIB), Buffer::new(8 * MIB));
        for buffer in [&touched, &fresh] {
            stage.read(buffer, 0, 0, 8 * MIB);
        }
        assert!(is_right(touched.bytes(0, 8 * MIB), 0, 0), "{name}");
        touched.fill(5, 1, 99);
        assert_eq!(buffers::attached(), 8, "{name}");
        happen(&stage);
        assert_eq!(touched.bytes(5, 1), [99], "{name}");
        assert!(is_right(touched.bytes(6, 8 * MIB - 6), 6, 0), "{name}");
        assert!(is_right(fresh.bytes(0, 8 * MIB), 0, 0), "{name}");
    }
}

/// Line 10: stores are the program's own, in a child too; and the child attaches and detaches.
#[test]
fn stores_are_private_to_a_process() {
    if !alone("stores_are_private_to_a_process") {
        return;
    }
    let Some(stage) = Stage::new("private") else { return };
    let (one, two) = (Buffer::new(4 * MIB), Buffer::new(4 * MIB));
    stage.read(&one, 0, 0, 4 * MIB);
    stage.read(&two, 0, 0, 4 * MIB);
    one.fill(0, 4 * MIB, 1);
    assert!(is_right(two.bytes(0, 4 * MIB), 0, 0));
    let segments = stage.place.status().segments;
    let place = &stage.place;
    // SAFETY: the child looks at memory, reads, and ends.
    match unsafe { libc::fork() } {
        0 => {
            let right = std::panic::catch_unwind(|| {
                assert!(one.bytes(0, 4 * MIB).iter().all(|byte| *byte == 1));
                assert!(is_right(two.bytes(0, 4 * MIB), 0, 0));
                two.fill(0, PAGE, 2);
                buffers::detach(one.start, one.length);
                let volume = place.attach(Mode::Strict);
                let cached = place.cached(&volume, 96 << 20);
                let desc = open(&cached, b"file", libc::O_RDONLY);
                let before = buffers::attached();
                one.read(&cached, desc, 2 << 20, 0, 2 * MIB);
                assert_eq!(buffers::attached(), before + 1);
                assert!(is_right(one.bytes(0, 2 * MIB), 2 << 20, 0));
                assert!(two.bytes(0, PAGE).iter().all(|byte| *byte == 2));
                assert!(is_right(two.bytes(PAGE, PAGE), PAGE as u64, 0));
            });
            // SAFETY: nothing of the parent's is ended.
            unsafe { libc::_exit(i32::from(right.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child's checks");
        }
    }
    assert!(one.bytes(0, 4 * MIB).iter().all(|byte| *byte == 1));
    assert!(is_right(two.bytes(0, 4 * MIB), 0, 0));
    assert_eq!(place.status().segments, segments);
}

/// Line 14: a copy over attached pages faults each of its pages once, at most.
#[test]
fn a_copy_over_attached_pages_faults_no_page_twice() {
    if !alone("a_copy_over_attached_pages_faults_no_page_twice") {
        return;
    }
    let Some(stage) = Stage::long("faults") else { return };
    let buffer = Buffer::new(32 * MIB + PAGE);
    let length = 32 * MIB;
    let small = |bytes: usize| (bytes / 4096) as i64;
    // Windows on the segments, which fault too.
    let warm = Buffer::new(36 * MIB);
    stage.read(&warm, 1, 0, 34 * MIB);
    for touched in [false, true] {
        // Another place: all pages are whole, but for the last one's part.
        for (offset, at, most) in [
            (4096, 0, 16 + small(PAGE)),
            (1, 0, 16 + small(PAGE)),
            // The same one, with a head and a tail.
            (4096, 4096, 2 * small(PAGE)),
            (PAGE as u64 - 4096, PAGE - 4096, 2 * small(PAGE)),
            (0, 4096, 16 + 2 * small(PAGE)),
        ] {
            stage.read(&buffer, 0, 0, length + PAGE);
            if touched {
                assert!(is_right(buffer.bytes(0, length), 0, 0));
            }
            let before = faults();
            stage.read(&buffer, offset, at, length);
            let found = faults() - before;
            assert!(found <= most, "{found} faults, {offset} to {at}, touched: {touched}");
            assert!(is_right(buffer.bytes(at, length), offset, 0));
            // What was not overwritten stays.
            assert!(is_right(buffer.bytes(0, at), 0, 0));
            let end = at + length;
            assert!(is_right(buffer.bytes(end, length + PAGE - end), end as u64, 0));
        }
    }
    // The engine's own read, past the cache, through a mapping that is written.
    let before = buffers::attached();
    stage.read(&buffer, 0, 0, length);
    assert!(buffers::attached() > before);
    let mapped = open(&*stage.volume, b"file", libc::O_RDWR);
    let pieces =
        vfs::Maps::map(&*stage.volume, mapped, (0, 4096), vfs::Mapped::Write, vfs::Fill::All);
    drop(pieces.expect("mapped"));
    let before = faults();
    stage.read(&buffer, 0, 0, length);
    assert!(faults() - before <= 64, "{} faults", faults() - before);
    assert!(is_right(buffer.bytes(0, length), 0, 0));
}

/// `keep` makes all of a buffer the program's own, with its bytes; `detach` without; what a buffer
/// held goes with it.
#[test]
fn buffers_are_kept_detached_and_freed() {
    if !alone("buffers_are_kept_detached_and_freed") {
        return;
    }
    let Some(stage) = Stage::new("freed") else { return };
    let empty = stage.taken();
    let buffer = Buffer::new(16 * MIB);
    stage.read(&buffer, 0, 0, 16 * MIB);
    buffer.fill(3 * MIB, 1, 77);
    assert!(buffers::keep(buffer.start, buffer.length));
    assert_eq!((buffers::attached(), buffer.mapped().len()), (0, 0));
    assert_eq!(buffer.bytes(3 * MIB, 1), [77]);
    buffer.fill(3 * MIB, 1, byte_at(3 << 20, 0));
    assert!(is_right(buffer.bytes(0, 16 * MIB), 0, 0));
    let before = faults();
    buffer.fill(0, 16 * MIB, 1);
    assert!(faults() - before <= 8, "{}", faults() - before);
    stage.read(&buffer, 0, 0, 16 * MIB);
    assert_eq!(buffers::attached(), 8);
    assert!(buffers::detach(buffer.start, buffer.length));
    assert_eq!((buffers::attached(), buffer.mapped().len()), (0, 0));
    buffer.fill(0, 16 * MIB, 1);
    stage.read(&buffer, 0, 0, 16 * MIB);
    // Dropped, they are the buffer's memory alone; and go with it.
    drop_all(&TestDir::whose(), Some(&stage.place.cache)).expect("dropped");
    assert_eq!(stage.taken(), empty + 16);
    drop(buffer);
    assert_eq!(stage.taken(), empty);
    assert_eq!(buffers::attached(), 0);
    assert_eq!(stage.place.status().used, 0);
}

/// Others' windows on a segment that is gone do not hold its memory once they are used again.
#[test]
fn a_segment_that_may_be_attached_is_let_go() {
    if !alone("a_segment_that_may_be_attached_is_let_go") {
        return;
    }
    let Some(stage) = Stage::new("let-go") else { return };
    let empty = stage.taken();
    let buffer = Buffer::new(4 * MIB);
    crate::support::read(&stage.cached, stage.desc, 0, 4 * MIB);
    stage.read(&buffer, 0, 0, 4 * MIB);
    drop(buffer);
    // By its writer, who has a window.
    write(&stage.cached, stage.desc, 0, &vec![1; 4 << 20]);
    assert_eq!(stage.taken(), empty);
    stage.fill(0);
}

/// The index is damaged: nothing in it says any more that its segments may be attached. Their files
/// say so, too.
#[test]
fn no_damage_to_the_index_changes_a_buffer() {
    if !alone("no_damage_to_the_index_changes_a_buffer") {
        return;
    }
    let Some(stage) = Stage::new("damaged") else { return };
    let buffer = Buffer::new(8 * MIB);
    stage.read(&buffer, 0, 0, 8 * MIB);
    let era = std::fs::read_dir(stage.place.eras()).expect("eras").next().expect("one");
    let path = era.expect("one").path().join("index");
    let index = std::fs::File::options().read(true).write(true).open(path).expect("the index");
    for at in (4096..index.metadata().expect("its length").len()).step_by(64) {
        let mut byte = [0];
        index.read_exact_at(&mut byte, at).expect("read");
        index.write_all_at(&[byte[0] & 7], at).expect("damaged");
    }
    assert!(drop_all(&TestDir::whose(), Some(&stage.place.cache)).expect("dropped") > 0);
    assert!(is_right(buffer.bytes(0, 8 * MIB), 0, 0));
}

/// No more than 16,384 pages are attached, whatever is read; the rest is copied, and the program
/// can still map.
#[test]
fn only_so_many_pages_are_attached() {
    if !alone("only_so_many_pages_are_attached") {
        return;
    }
    let Some(stage) = Stage::new("many") else { return };
    let each = 2048;
    let all: Vec<Buffer> =
        (0..=buffers::ATTACHED_MAX / each).map(|_| Buffer::new(each * PAGE)).collect();
    for page in 0..buffers::ATTACHED_MAX + 8 {
        stage.read(&all[page / each], 0, page % each * PAGE, PAGE);
    }
    assert_eq!(buffers::attached(), buffers::ATTACHED_MAX);
    let last = &all[buffers::ATTACHED_MAX / each];
    assert!(last.mapped().is_empty() && is_right(last.bytes(7 * PAGE, PAGE), 0, 0));
    // One that is attached may be attached again; a place that is given back may be another's.
    stage.read(&all[0], PAGE as u64, 0, PAGE);
    assert!(is_right(all[0].bytes(0, PAGE), PAGE as u64, 0));
    assert!(buffers::detach(all[0].start, PAGE));
    stage.read(last, 0, 0, PAGE);
    assert_eq!((last.mapped().len(), buffers::attached()), (1, buffers::ATTACHED_MAX));
    drop(all);
    assert_eq!(buffers::attached(), 0);
}

/// What is no buffer's is not attached, and odd ranges are none.
#[test]
fn only_buffers_are_attached() {
    if !alone("only_buffers_are_attached") {
        return;
    }
    let Some(stage) = Stage::new("only") else { return };
    let buffer = Buffer::new(4 * MIB);
    buffers::remove(buffer.start, PAGE);
    for _ in 0..2 {
        stage.read(&buffer, 0, 0, 4 * MIB);
    }
    assert_eq!(stage.attached(), 4 << 20);
    assert!(is_right(buffer.bytes(0, 4 * MIB), 0, 0));
    let (start, length) = (buffer.start, buffer.length);
    for (start, length) in
        [(0, PAGE), (start + 4096, PAGE), (start, 4096), (usize::MAX - PAGE + 1, PAGE)]
    {
        // SAFETY: refused.
        assert!(!unsafe { buffers::add(start, length) }, "{start:x} {length}");
    }
    buffers::remove(start, length);
    buffers::remove(start, length);
    assert!(buffers::detach(start, length) && buffers::keep(start, length));
    assert_eq!(buffers::attached(), 0);
}

const CHUNKS: usize = 8;

/// What a page of a reader's buffer must hold. A read beside a write may give some of both.
#[derive(Clone, Copy)]
enum Held {
    /// It was not looked at yet: words that the file held at some time of the read.
    Between(u64, u64),
    /// What it held then, by a sum.
    Exactly(u64),
}

/// The least word of a page, the greatest, and a sum of all that knows their places.
fn look(bytes: &[u8]) -> (u64, u64, u64) {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    words.enumerate().fold((u64::MAX, 0, 0), |(least, most, sum), (at, word)| {
        let sum = u64::wrapping_add(sum, word.wrapping_mul(at as u64 * 2 + 1));
        (least.min(word), most.max(word), sum)
    })
}

/// Chunks as the writers see them: the last number that was begun to be written, and the last that
/// was written.
#[derive(Default)]
struct Numbers {
    begun: [AtomicU64; CHUNKS],
    written: [AtomicU64; CHUNKS],
    /// Of each reader.
    reads: [AtomicU64; 2],
    ended: AtomicBool,
}

fn write_numbers(fs: &dyn FileSystem, numbers: &Numbers, chunks: std::ops::Range<usize>) {
    let desc = open(fs, b"numbers", libc::O_RDWR);
    let mut random = Random(chunks.start as u64 + 77);
    // At least so often, and until all readers had their turns.
    let read = || numbers.reads.iter().all(|reads| reads.load(Ordering::SeqCst) > 100);
    let goes_on = |number: u64| (number < 400 || !read()) && !numbers.ended.load(Ordering::SeqCst);
    for number in (1..).take_while(|number| goes_on(*number)) {
        let chunk = chunks.start + random.below(chunks.len() as u64) as usize;
        numbers.begun[chunk].store(number, Ordering::SeqCst);
        write(fs, desc, (chunk * PAGE) as u64, &number.to_le_bytes().repeat(PAGE / 8));
        numbers.written[chunk].store(number, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(random.below(4)));
    }
}

/// Reads chunks into pages, and looks at pages that were read before.
fn read_numbers(fs: &dyn FileSystem, numbers: &Numbers, reader: usize) {
    let _ended = OnPanic(&numbers.ended);
    let desc = open(fs, b"numbers", libc::O_RDONLY);
    let buffer = Buffer::new(CHUNKS * PAGE);
    let mut held = [Held::Exactly(0); CHUNKS];
    let mut random = Random(reader as u64 + 21);
    while !numbers.ended.load(Ordering::SeqCst) {
        let page = random.below(CHUNKS as u64) as usize;
        match random.below(3) {
            0 | 1 => {
                let chunk = random.below(CHUNKS as u64) as usize;
                let least = numbers.written[chunk].load(Ordering::SeqCst);
                buffer.read(fs, desc, (chunk * PAGE) as u64, page * PAGE, PAGE);
                held[page] = Held::Between(least, numbers.begun[chunk].load(Ordering::SeqCst));
                numbers.reads[reader].fetch_add(1, Ordering::SeqCst);
            }
            _ if random.below(8) == 0 => {
                buffer.fill(page * PAGE, PAGE, 0xEE);
                held[page] = Held::Exactly(look(buffer.bytes(page * PAGE, PAGE)).2);
            }
            _ => {
                let (low, high, sum) = look(buffer.bytes(page * PAGE, PAGE));
                match held[page] {
                    Held::Exactly(held) => assert_eq!(sum, held, "page {page} has changed"),
                    Held::Between(least, most) => {
                        assert!(low >= least && high <= most, "{low}, {high}: {least} to {most}");
                    }
                }
                held[page] = Held::Exactly(sum);
            }
        }
    }
}

/// Line 10, with writers beside, with the cache and without, hardly any room, and a cache that is
/// dropped now and then.
#[test]
fn buffers_keep_what_they_have_while_others_write() {
    if !alone("buffers_keep_what_they_have_while_others_write") {
        return;
    }
    let Some(place) = TestDir::huge("race") else { return };
    let volumes: [Arc<Volume>; 4] = std::array::from_fn(|_| place.attach(Mode::Strict));
    let cached: Vec<Cached> = volumes[..3].iter().map(|v| place.cached(v, 12 << 20)).collect();
    let desc = open(&cached[0], b"numbers", libc::O_RDWR);
    write(&cached[0], desc, 0, &vec![0; CHUNKS * PAGE]);
    let numbers = Numbers::default();
    let half = CHUNKS / 2;
    std::thread::scope(|scope| {
        let writers = [
            scope.spawn(|| write_numbers(&cached[0], &numbers, 0..half)),
            scope.spawn(|| write_numbers(&*volumes[3], &numbers, half..CHUNKS)),
        ];
        let readers = [
            scope.spawn(|| read_numbers(&cached[1], &numbers, 0)),
            scope.spawn(|| read_numbers(&cached[2], &numbers, 1)),
        ];
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop_all(&TestDir::whose(), Some(&place.cache)).expect("dropped");
        }
        numbers.ended.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.join().expect("no panic");
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
    assert!(place.counted(Count::BytesAttached) > 100 << 20, "{:?}", place.status());
}
