//! The program that touches pages: it runs under `solera run`, takes a line of JSON for each thing
//! to do, and answers with one.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output;
use ddmap::{Capacity, Uffd};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::connection::{PAGE, rest};
use super::mapping::{Mapping, word};
use crate::worker::row::Random;

/// Does what it is told until its input ends.
pub fn run() -> Outcome {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::io("hear what to measure", &error))?;
        let said = serde_json::from_str(&line).unwrap_or_default();
        let answer = work(&said).map_err(|error| Failure::new(format!("do {line}"), error, ""))?;
        output::emit(format!("{answer}\n").as_bytes())?;
    }
    Ok(0)
}

fn work(said: &Value) -> io::Result<Value> {
    let text = |key: &str| Path::new(said[key].as_str().unwrap_or_default());
    let number = |key: &str| said[key].as_u64().unwrap_or_default() as usize;
    let (file, count) = (text("file"), number("count"));
    let pause = Duration::from_micros(number("pause_us") as u64);
    Ok(match said["do"].as_str().unwrap_or_default() {
        "fill" => fill(file, number("bytes"))?,
        "store" => store(file, number("bytes"), text("room"))?,
        "remove" => {
            std::fs::remove_file(file)?;
            json!({})
        }
        "touch" => {
            let pages = said["pages"].as_array().map_or(&[][..], Vec::as_slice);
            let pages = pages.iter().filter_map(|page| page.as_u64().map(|page| page as usize));
            json!({ "ns": touches(&opened(file)?.1, pages, pause)? })
        }
        "trapped" => {
            let stores = said["stores"].as_bool().unwrap_or_default();
            json!({ "ns": trapped(file, stores, count, pause)? })
        }
        "in order" => in_order(file)?,
        "traps" => traps(file)?,
        "mapped" => json!({ "ns": opened(file)?.1.at_random(count) }),
        "read" => calls(file, count, |file, at, page| file.read_exact_at(page, at))?,
        "values" => values(file, count)?,
        "zipf" => zipf(file, count)?,
        "at random" => at_random(file, count, number("threads"))?,
        "overwrite" => calls(file, count, |file, at, page| file.write_all_at(page, at))?,
        "append" => append(file, count)?,
        other => return Err(io::Error::other(format!("`{other}` is nothing to do"))),
    })
}

fn opened(file: &Path) -> io::Result<(File, Mapping)> {
    let file = File::options().read(true).write(true).open(file)?;
    let bytes = file.metadata()?.len() as usize;
    let map = Mapping::of(&file, bytes)?;
    Ok((file, map))
}

/// Makes a file by calls, of what its pages are to have.
pub fn fill(path: &Path, bytes: usize) -> io::Result<Value> {
    let mut file = File::create(path)?;
    for page in 0..bytes / PAGE {
        let words = (0..PAGE as u64 / 8).map(|number| word(page) + number);
        let content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        file.write_all(&content)?;
    }
    Ok(json!({}))
}

/// Stores to each page of a new file in order: nanoseconds, and how many pages found the node full.
fn store(path: &Path, bytes: usize, room: &Path) -> io::Result<Value> {
    let room = Capacity::open(room).map_err(io::Error::other)?;
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    // SAFETY: it takes a descriptor and numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) } {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    let map = Mapping::of(&file, bytes)?;
    let (begun, mut waited) = (Instant::now(), 0);
    for page in 0..map.pages() {
        waited += u64::from(room.used() >= room.capacity());
        map.fill(page);
    }
    Ok(json!({ "ns": begun.elapsed().as_nanos() as u64, "waited": waited }))
}

/// Loads a word of each of these pages of a file that `fill` has made: nanoseconds of each.
pub fn touches(
    map: &Mapping,
    pages: impl Iterator<Item = usize>,
    pause: Duration,
) -> io::Result<Vec<u64>> {
    let mut times = Vec::new();
    for page in pages {
        let mut found = 0;
        times.push(timed(pause, || found = map.load(page * PAGE)));
        if found != word(page) {
            return Err(io::Error::other(format!("page {page} has {found:#x}")));
        }
    }
    Ok(times)
}

/// Nanoseconds of something, a while after what was before.
fn timed(pause: Duration, work: impl FnOnce()) -> u64 {
    rest(pause);
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as u64
}

/// Touches so many pages that are here through a new mapping, at random: loads of what is not
/// mapped there, or stores to what is mapped and protected. Nanoseconds of each.
fn trapped(path: &Path, stores: bool, count: usize, pause: Duration) -> io::Result<Vec<u64>> {
    let (_file, map) = opened(path)?;
    let pages = shuffled(map.pages()).into_iter().take(count);
    if !stores {
        return touches(&map, pages, pause);
    }
    let pages: Vec<usize> = pages.collect();
    for page in &pages {
        map.store(page * PAGE + 8, 1);
    }
    let own = own_userfaultfd()?;
    for page in &pages {
        own.protect(map.address() + page * PAGE, PAGE as u64, false)?;
    }
    Ok(pages.iter().map(|page| timed(pause, || map.store(page * PAGE + 8, 2))).collect())
}

/// What this process's touches are caught by, as the node has it, which protects pages that leave.
fn own_userfaultfd() -> io::Result<Uffd> {
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(number) = number else { continue };
        // SAFETY: it is only copied; if it is closed meanwhile, that is refused.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 0);
        if let Some(found) = copy.ok().and_then(|copy| Uffd::of_other_if(copy).ok()) {
            return Ok(found);
        }
    }
    Err(io::Error::other("this process has no userfaultfd"))
}

/// Numbers below this one, in an order that looks like none.
fn shuffled(count: usize) -> Vec<usize> {
    let (mut order, mut random) = ((0..count).collect::<Vec<_>>(), Random::new());
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// Loads all of the file in order, through a new mapping.
fn in_order(path: &Path) -> io::Result<Value> {
    let (_file, map) = opened(path)?;
    let begun = Instant::now();
    for page in 0..map.pages() {
        black_box(map.sum(page));
    }
    Ok(json!({ "ns": begun.elapsed().as_nanos() as u64 }))
}

/// Loads a word of each page through a new mapping, in an order that looks like none: nanoseconds
/// a page.
fn traps(path: &Path) -> io::Result<Value> {
    let (_file, map) = opened(path)?;
    let order = shuffled(map.pages());
    let begun = Instant::now();
    for page in &order {
        black_box(map.load(page * PAGE));
    }
    Ok(json!({ "ns": begun.elapsed().as_nanos() as f64 / order.len() as f64 }))
}

/// Places in an order that looks like none, of which some are wanted far more often than others:
/// zipf 0.99.
struct Zipf {
    sums: Vec<f64>,
    places: Vec<usize>,
    random: Random,
}

impl Zipf {
    fn new(places: usize) -> Self {
        let mut sum = 0.0;
        let add = |rank: u64| {
            sum += (rank as f64).powf(-0.99);
            sum
        };
        let sums = (1..=places as u64).map(add).collect();
        Self { sums, places: shuffled(places), random: Random::new() }
    }

    fn place(&mut self) -> usize {
        let all = self.sums.last().copied().unwrap_or_default();
        let wanted = self.random.below(1 << 50) as f64 / (1_u64 << 50) as f64 * all;
        let rank = self.sums.partition_point(|sum| *sum <= wanted).min(self.places.len() - 1);
        self.places[rank]
    }
}

/// Nanoseconds of each of so many, of which as many do not count ahead of them.
fn behind_as_many(count: usize, mut one: impl FnMut() -> io::Result<()>) -> io::Result<Value> {
    let mut begun = Instant::now();
    for call in 0..2 * count {
        if call == count {
            begun = Instant::now();
        }
        one()?;
    }
    Ok(json!({ "ns": begun.elapsed().as_nanos() as f64 / count as f64 }))
}

/// Reads values of 1 KiB by calls, zipf 0.99, that lie anywhere in the file: nanoseconds a call.
fn values(path: &Path, count: usize) -> io::Result<Value> {
    const VALUE: u64 = 1024;
    let file = File::open(path)?;
    let mut places = Zipf::new((file.metadata()?.len() / VALUE) as usize);
    let mut value = [0; VALUE as usize];
    behind_as_many(count, || file.read_exact_at(&mut value, places.place() as u64 * VALUE))
}

/// Loads a word of pages of a file that `fill` has made, zipf 0.99: nanoseconds a load.
fn zipf(path: &Path, count: usize) -> io::Result<Value> {
    let (_file, map) = opened(path)?;
    let mut places = Zipf::new(map.pages());
    behind_as_many(count, || {
        let page = places.place();
        let found = map.load(page * PAGE);
        if found == word(page) {
            return Ok(());
        }
        Err(io::Error::other(format!("page {page} has {found:#x}")))
    })
}

/// Touches pages at random of a file that `fill` has made, each third one to store, by so many
/// threads: nanoseconds of all, and of the processors that this process has used.
fn at_random(path: &Path, count: usize, threads: usize) -> io::Result<Value> {
    let (_file, map) = opened(path)?;
    let touch = |thread: usize| {
        let (mut random, pages) = (Random::new(), map.pages());
        for _ in 0..count / threads {
            // Threads go the same way, each through pages of its own.
            let page = (random.below(pages as u64) as usize + thread * pages / threads) % pages;
            if random.below(3) == 0 {
                map.store(page * PAGE + 8, page as u64);
            }
            let found = map.load(page * PAGE);
            if found != word(page) {
                return Err(io::Error::other(format!("page {page} has {found:#x}")));
            }
        }
        Ok(())
    };
    let used = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let (begun, before) = (Instant::now(), used());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let touch = &touch;
                    move || touch(thread)
                })
            })
            .collect();
        let lost = |_| Err(io::Error::other("a thread has ended"));
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(lost))
    })?;
    let ns = begun.elapsed().as_nanos() as u64;
    Ok(json!({ "ns": ns, "processor_ns": used() - before }))
}

/// Calls of 4 KiB at random: nanoseconds a call.
fn calls(
    path: &Path,
    count: usize,
    mut call: impl FnMut(&File, u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Value> {
    let file = File::options().read(true).write(true).open(path)?;
    let pages = file.metadata()?.len() / PAGE as u64;
    let (mut random, mut page) = (Random::new(), [0x5A; PAGE]);
    let begun = Instant::now();
    for _ in 0..count {
        call(&file, random.below(pages) * PAGE as u64, &mut page)?;
    }
    Ok(json!({ "ns": begun.elapsed().as_nanos() as f64 / count as f64 }))
}

/// Appends of 4 KiB to a new file, each with `fsync`: nanoseconds of both.
fn append(path: &Path, count: usize) -> io::Result<Value> {
    let mut file = File::create(path)?;
    let begun = Instant::now();
    for _ in 0..count {
        file.write_all(&[0x5A; PAGE])?;
        file.sync_all()?;
    }
    let took = begun.elapsed().as_nanos() as f64 / count as f64;
    drop(file);
    std::fs::remove_file(path)?;
    Ok(json!({ "ns": took }))
}
