//! What file calls take through the kernel here: measured on tmpfs, which is the least that a
//! kernel file system takes, by one thread, with warm memory.
//!
//! Some rounds of all kinds; of each kind the middle one counts. Calls that move bytes are measured
//! by size: appended for `write`, overwritten for `pwrite`. A program's calls of other sizes lie on
//! the line between the two nearest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use record::{Kind, SIZES};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags,
    SeekFrom, Timespec, Timestamps, UTIME_NOW, Uid,
};
use rustix::io::Result;

/// How long it is measured.
const TIME: Duration = Duration::from_millis(50);
/// At most so many rounds.
const ROUNDS_MAX: usize = 25;
/// Names of a round.
const NAMES: usize = 32;
/// Calls of a size in a round.
const TIMES: usize = 8;
/// The sizes, in bytes.
const MEASURED: [usize; 7] = [1, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The file that is written and read.
const FILE_BYTES: usize = TIMES << 20;

/// What is measured: a kind, by bytes where it moves some.
type Point = (Kind, usize);

/// Nanoseconds of one call.
#[derive(Default)]
pub struct Costs {
    /// Where it was measured; `None`: nowhere.
    pub place: Option<String>,
    points: BTreeMap<Point, f64>,
}

/// Times of several rounds.
type Rounds = BTreeMap<Point, Vec<f64>>;

impl Costs {
    /// Measures. Without a tmpfs that this user may write to nothing is known.
    pub fn measured() -> Self {
        let Some((place, directory)) = on_tmpfs() else { return Self::default() };
        let mut rounds = Rounds::new();
        let begun = Instant::now();
        let mut done = 0;
        while done < ROUNDS_MAX && (done < 3 || begun.elapsed() < TIME) {
            if round(&directory, &mut rounds).is_err() {
                break;
            }
            done += 1;
        }
        // What is left of it lies in memory until the machine starts anew, and hurts nobody.
        let _ = fs::remove_dir_all(&directory);
        let points = rounds.into_iter().map(|(point, mut times)| {
            times.sort_by(f64::total_cmp);
            (point, times[times.len() / 2])
        });
        Self { place: Some(place), points: points.collect() }
    }

    /// What so many calls would take, of which so many of each class of size moved so many bytes.
    pub fn of(&self, kind: Kind, count: u64, sizes: &[(u64, u64); SIZES]) -> Option<u64> {
        let kind = like(kind);
        let least = self.points.get(&(kind, 0)).or_else(|| self.points.get(&(kind, 1)))?;
        if !self.points.contains_key(&(kind, MEASURED[1])) {
            return Some((least * count as f64) as u64);
        }
        let moved: u64 = sizes.iter().map(|size| size.0).sum();
        let rest = count.saturating_sub(moved) as f64 * least;
        let of_class = |&(count, bytes): &(u64, u64)| {
            if count == 0 { 0.0 } else { count as f64 * self.at(kind, bytes as f64 / count as f64) }
        };
        Some((rest + sizes.iter().map(of_class).sum::<f64>()) as u64)
    }

    /// One call that moves so many bytes.
    fn at(&self, kind: Kind, bytes: f64) -> f64 {
        let points =
            || MEASURED.iter().filter_map(|&size| Some((size, *self.points.get(&(kind, size))?)));
        let below = points().rfind(|point| point.0 as f64 <= bytes);
        let above = points().find(|point| point.0 as f64 > bytes);
        match (below, above) {
            (Some((from, low)), Some((to, high))) => {
                low + (high - low) * (bytes - from as f64) / (to - from) as f64
            }
            (Some((size, time)), None) => time * bytes / size as f64,
            (None, Some((_, time))) => time,
            (None, None) => 0.0,
        }
    }
}

/// The kind whose time another one takes.
fn like(kind: Kind) -> Kind {
    match kind {
        Kind::Readv => Kind::Read,
        Kind::Preadv => Kind::Pread,
        Kind::Writev => Kind::Write,
        Kind::Pwritev => Kind::Pwrite,
        Kind::Fopen => Kind::Open,
        Kind::Fclose | Kind::Closedir => Kind::Close,
        kind => kind,
    }
}

/// A new directory on a tmpfs, and the name of that.
fn on_tmpfs() -> Option<(String, PathBuf)> {
    /// `TMPFS_MAGIC`.
    const TMPFS: u64 = 0x0102_1994;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = [Some(PathBuf::from("/dev/shm")), runtime, Some(std::env::temp_dir())];
    places.into_iter().flatten().find_map(|place| {
        let found = rustix::fs::statfs(&place).ok()?;
        let directory = place.join(format!("solera-costs.{}", std::process::id()));
        let is_tmpfs = found.f_type as u64 == TMPFS && fs::create_dir(&directory).is_ok();
        is_tmpfs.then(|| (place.display().to_string(), directory))
    })
}

/// Makes calls, of which the time of one is noted.
fn note(
    rounds: &mut Rounds,
    point: Point,
    count: usize,
    mut call: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    for number in 0..count {
        call(number)?;
    }
    let time = begun.elapsed().as_nanos() as f64 / count as f64;
    rounds.entry(point).or_default().push(time);
    Ok(())
}

/// All kinds once.
fn round(directory: &Path, rounds: &mut Rounds) -> Result<()> {
    let names: Vec<PathBuf> = (0..NAMES).map(|number| directory.join(number.to_string())).collect();
    of_names(directory, &names, rounds)?;
    let path = directory.join("data");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
    of_bytes(&file, rounds)?;
    of_file(&file, &path, rounds)?;
    drop(file);
    rustix::fs::unlink(&path)
}

fn of_names(directory: &Path, names: &[PathBuf], rounds: &mut Rounds) -> Result<()> {
    use rustix::fs::{access, chmodat, chownat, linkat, mkdir, mknodat, open, readlink, rename};
    use rustix::fs::{rmdir, stat, statfs, symlink, unlink, utimensat};
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let other: Vec<PathBuf> = names.iter().map(|name| name.with_extension("x")).collect();
    let of = |kind| (kind, 0);
    for name in names {
        open(name, flags | OFlags::CREATE, mode)?;
    }
    let mut open_ones = Vec::with_capacity(NAMES);
    note(rounds, of(Kind::Open), NAMES, |n| {
        open(&names[n], flags, mode).map(|fd| open_ones.push(fd))
    })?;
    note(rounds, of(Kind::Close), NAMES, |_| {
        drop(open_ones.pop());
        Ok(())
    })?;
    note(rounds, of(Kind::Stat), NAMES, |n| stat(&names[n]).map(drop))?;
    note(rounds, of(Kind::Access), NAMES, |n| access(&names[n], Access::READ_OK))?;
    note(rounds, of(Kind::Statfs), NAMES, |n| statfs(&names[n]).map(drop))?;
    note(rounds, of(Kind::Chmod), NAMES, |n| chmodat(CWD, &names[n], mode, AtFlags::empty()))?;
    let no = (None::<Uid>, None::<Gid>);
    note(rounds, of(Kind::Chown), NAMES, |n| {
        chownat(CWD, &names[n], no.0, no.1, AtFlags::empty())
    })?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let now = Timestamps { last_access: now, last_modification: now };
    note(rounds, of(Kind::Utimes), NAMES, |n| utimensat(CWD, &names[n], &now, AtFlags::empty()))?;
    note(rounds, of(Kind::Rename), NAMES, |n| rename(&names[n], &other[n]))?;
    note(rounds, of(Kind::Link), NAMES, |n| {
        linkat(CWD, &other[n], CWD, &names[n], AtFlags::empty())
    })?;
    note(rounds, of(Kind::Opendir), TIMES, |_| {
        open(directory, OFlags::RDONLY | OFlags::DIRECTORY, mode).map(drop)
    })?;
    let stream = open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, mode)?;
    let mut entries = Dir::read_from(&stream)?;
    note(rounds, of(Kind::Readdir), 2 * NAMES, |_| entries.read().transpose().map(drop))?;
    note(rounds, of(Kind::Unlink), NAMES, |n| unlink(&other[n]))?;
    for name in names {
        unlink(name)?;
    }
    note(rounds, of(Kind::Symlink), NAMES, |n| symlink("target", &names[n]))?;
    note(rounds, of(Kind::Readlink), NAMES, |n| readlink(&names[n], Vec::new()).map(drop))?;
    for name in names {
        unlink(name)?;
    }
    note(rounds, of(Kind::Mkdir), NAMES, |n| mkdir(&names[n], Mode::RWXU))?;
    note(rounds, of(Kind::Rmdir), NAMES, |n| rmdir(&names[n]))?;
    note(rounds, of(Kind::Mknod), NAMES, |n| mknodat(CWD, &names[n], FileType::Fifo, mode, 0))?;
    for name in names {
        unlink(name)?;
    }
    Ok(())
}

fn of_bytes(file: &impl std::os::fd::AsFd, rounds: &mut Rounds) -> Result<()> {
    use rustix::io::{pread, pwrite, read, write};
    let mut buffer = vec![0x5a_u8; MEASURED[MEASURED.len() - 1]];
    for size in MEASURED {
        rustix::fs::ftruncate(file, 0)?;
        rustix::fs::seek(file, SeekFrom::Start(0))?;
        note(rounds, (Kind::Write, size), TIMES, |_| write(file, &buffer[..size]).map(drop))?;
    }
    for size in MEASURED {
        let at = |n: usize| (n * size) as u64;
        note(rounds, (Kind::Pwrite, size), TIMES, |n| {
            pwrite(file, &buffer[..size], at(n)).map(drop)
        })?;
        rustix::fs::seek(file, SeekFrom::Start(0))?;
        note(rounds, (Kind::Read, size), TIMES, |_| read(file, &mut buffer[..size]).map(drop))?;
        note(rounds, (Kind::Pread, size), TIMES, |n| {
            pread(file, &mut buffer[..size], at(n)).map(drop)
        })?;
    }
    Ok(())
}

fn of_file(file: &std::os::fd::OwnedFd, path: &Path, rounds: &mut Rounds) -> Result<()> {
    use rustix::fs::{fallocate, fdatasync, flock, fstat, fsync, ftruncate, getxattr, listxattr};
    use rustix::fs::{seek, setxattr};
    let of = |kind| (kind, 0);
    let length = FILE_BYTES as u64;
    note(rounds, of(Kind::Fstat), NAMES, |_| fstat(file).map(drop))?;
    note(rounds, of(Kind::Lseek), NAMES, |_| seek(file, SeekFrom::Start(0)).map(drop))?;
    note(rounds, of(Kind::Fsync), NAMES, |_| fsync(file))?;
    note(rounds, of(Kind::Fdatasync), NAMES, |_| fdatasync(file))?;
    note(rounds, of(Kind::Ftruncate), NAMES, |_| ftruncate(file, length))?;
    note(rounds, of(Kind::Fallocate), TIMES, |_| {
        fallocate(file, FallocateFlags::KEEP_SIZE, 0, 4096)
    })?;
    note(rounds, of(Kind::Lock), NAMES, |n| {
        let how = [FlockOperation::LockExclusive, FlockOperation::Unlock];
        flock(file, how[n % 2])
    })?;
    note(rounds, of(Kind::Fcntl), NAMES, |_| rustix::fs::fcntl_getfl(file).map(drop))?;
    let mut copies = Vec::with_capacity(NAMES);
    note(rounds, of(Kind::Dup), NAMES, |_| rustix::io::dup(file).map(|fd| copies.push(fd)))?;
    drop(copies);
    // Not every tmpfs has them.
    let flags = rustix::fs::XattrFlags::empty();
    let _ = note(rounds, of(Kind::Setxattr), TIMES, |_| setxattr(path, "user.x", b"value", flags));
    let mut room = [0_u8; 64];
    let _ =
        note(rounds, of(Kind::Getxattr), TIMES, |_| getxattr(path, "user.x", &mut room).map(drop));
    let _ = note(rounds, of(Kind::Listxattr), TIMES, |_| listxattr(path, &mut room).map(drop));
    Ok(())
}
