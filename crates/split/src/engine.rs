//! One process's engine: which files it serves, and all that the process does as a whole.
//!
//! Calls come with the program's descriptor numbers. Each gives an answer, or `None`: the kernel is
//! to serve it, and then [`Engine::around`] brings engine and kernel to one view before and after.
//!
//! Locks, in this order: a description's position; `files`; a file's state; a shared record;
//! `pool`; `resting` (after `files`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pmem::{Fault, UserIn};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use window::Window;

use crate::descriptors::{self, Slot};
use crate::file::{File, State};
use crate::grow::Run;
use crate::hidden_directory::Home;
use crate::log::{self, Log, LoggedOverwrite};
use crate::page_heat::{HeatEpoch, PageHeat};
use crate::records::Word;
use crate::relink::{self, Backend};
use crate::staging::Staging;
use crate::worker::Worker;
use crate::{Mode, Result, internal_descriptors, recovery, sys};

/// So many files keep their windows after their last close.
const RESTING_MAX: usize = 256;

/// So many words of bits tell which names they may have.
const NAME_WORDS: usize = 512;

/// Files that are served at once; more are the kernel's.
pub(crate) const FILES_MAX: usize = 16_384;
/// Bytes of memory that a file may take, with its path, its description, its place in tables.
const FILE_BYTES: usize = 1024;
/// And a window, with its place among the others.
const WINDOW_BYTES: usize = 256;
/// And what the kernel takes to map it: a page of the page table for each 2 MiB.
const TABLE_BYTES: usize = 4096;
/// And numbers of descriptors, and what is there once.
const TABLES_BYTES: usize = 8 << 20;

/// A quarter of the mappings that the kernel allows a process by default.
const WINDOWS_MAX: usize = 16_384;

/// How an engine is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory whose files are served.
    pub directory: PathBuf,
    /// What a write promises.
    pub mode: Mode,
    /// `sync` and `strict` also where a power cut would break them.
    pub emulate: bool,
    /// Bytes of a window: a power of two, 2 MiB to 512 MiB.
    pub window_bytes: u64,
    /// Largest size of a staging file.
    pub staging_bytes: u64,
    /// Staging files that are kept ready.
    pub staging_files: usize,
    /// Calls that move data before a descriptor is served (posix mode).
    pub patience: usize,
    /// Bytes of the operation log.
    pub log_bytes: u64,
    /// Windows of all files together; beyond, the coldest go.
    pub windows: usize,
    /// Which of the engine's techniques are used.
    pub technique: Technique,
    /// How staged bytes are moved, where that can be had; `None`: the fastest way there.
    pub relink: Option<Backend>,
}

/// Techniques to leave out, to measure what each is worth (figure 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// Reads and overwrites through windows; appends are the kernel's.
    Split,
    /// Appends are staged, and copied to their place.
    Staging,
    /// And relinked, where that can be had.
    Relink,
}

impl std::str::FromStr for Technique {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        match word {
            "split" => Ok(Self::Split),
            "staging" => Ok(Self::Staging),
            "relink" => Ok(Self::Relink),
            _ => Err(format!("{word} is not one of split, staging, relink")),
        }
    }
}

impl Options {
    /// The defaults for a directory.
    pub fn new(directory: &Path, mode: Mode) -> Self {
        Self {
            directory: directory.to_path_buf(),
            mode,
            emulate: false,
            window_bytes: 2 << 20,
            staging_bytes: 160 << 20,
            staging_files: 10,
            patience: 2,
            log_bytes: 128 << 20,
            windows: WINDOWS_MAX,
            technique: Technique::Relink,
            relink: None,
        }
    }

    /// How relinks are to be made on a file system that maps `direct`ly or not (see `relink`).
    fn wanted_relink(&self, direct: bool) -> Option<Backend> {
        if self.technique != Technique::Relink {
            return Some(Backend::Copy);
        }
        let waits = self.mode == Mode::Posix && self.patience > 0 && !direct;
        self.relink.or(waits.then_some(Backend::Copy))
    }

    /// Whether they make sense together; the message says what does not.
    pub fn check(&self) -> std::result::Result<(), String> {
        let (least, most) = (2_u64 << 20, 512_u64 << 20);
        if !self.window_bytes.is_power_of_two() || !(least..=most).contains(&self.window_bytes) {
            return Err("a window is a power of two from 2 MiB to 512 MiB".to_owned());
        }
        if self.staging_bytes < 1 << 20 || !self.staging_bytes.is_multiple_of(relink::BLOCK) {
            return Err("a staging file is 1 MiB or larger, in blocks of 4 KiB".to_owned());
        }
        if self.windows == 0 {
            return Err("without a window nothing is served".to_owned());
        }
        if self.log_bytes < 4096 || !self.log_bytes.is_multiple_of(64) {
            return Err("the operation log is 4 KiB or larger, in entries of 64 bytes".to_owned());
        }
        Ok(())
    }
}

/// What an engine has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// How staged bytes are moved.
    pub backend: Option<Backend>,
    /// Most windows at once.
    pub windows: usize,
    /// All that were mapped.
    pub windows_made: u64,
    /// Files relinked.
    pub relinks: u64,
    /// Bytes that these moved.
    pub relinked: u64,
    /// Of them copied.
    pub copied: u64,
    /// How long relinks took, in nanoseconds.
    pub relinking: u64,
    /// Entries written to the operation log.
    pub logged: u64,
    /// Checkpoints of the log.
    pub checkpoints: u64,
    /// Bytes of memory for its own state, where that grows with use.
    pub memory: u64,
}

/// One process's engine.
pub struct Engine {
    pub(crate) options: Options,
    pub(crate) home: Home,
    pub(crate) files: Mutex<HashMap<u64, Arc<File>>>,
    pool: Mutex<Vec<Staging>>,
    worker: Arc<Worker>,
    /// Made when it is first needed.
    warmth: OnceLock<PageHeat>,
    /// Runs of this process.
    runs: AtomicU64,
    /// Inode numbers of unused files that keep their windows, the longest unused first.
    resting: Mutex<VecDeque<u64>>,
    /// Bits by their names.
    resting_names: Box<[AtomicU64; NAME_WORDS]>,
    /// One of them is set.
    resting_named: AtomicBool,
    pub(crate) log: Option<Log>,
    staging_number: AtomicU32,
    pub(crate) old_times: AtomicU64,
    windows: AtomicUsize,
    windows_most: AtomicUsize,
    pub(crate) files_most: AtomicUsize,
    windows_made: AtomicU64,
    relinks: AtomicU64,
    relinked: AtomicU64,
    copied: AtomicU64,
    /// Nanoseconds.
    relinking: AtomicU64,
    limited: AtomicBool,
    /// The process has set record locks.
    pub(crate) locks: AtomicBool,
    /// Inode numbers of files that it has set them on by descriptors that are not served.
    pub(crate) locked: Mutex<HashSet<u64>>,
    /// The process is leaving: nothing is staged any more.
    left: AtomicBool,
    /// Held while a dead process's overwrite is finished: for the kernel all threads are one.
    finishing: Mutex<()>,
    /// Inode numbers of files that the program has mapped, perhaps by another number than is
    /// served, and perhaps it still has.
    pub(crate) mapped: Mutex<HashSet<u64>>,
    fell_back: fn(&'static str),
}

// This holds however much is open and mapped.
const _: () = assert!(
    WINDOWS_MAX * (WINDOW_BYTES + TABLE_BYTES) + FILES_MAX * FILE_BYTES + TABLES_BYTES
        < 100_000_000
);
const _: () = assert!(size_of::<File>() + 256 + 300 <= FILE_BYTES && size_of::<Window>() < 128);

/// The value behind a lock, also if a thread that held it panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last part of a path, to be found among [`NAME_WORDS`]: which word, and its bit there.
fn name_bit(path: &[u8]) -> (usize, u64) {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash >> 48) as usize % NAME_WORDS, 1 << (hash >> 58))
}

/// Whether the size of files is limited.
fn limits_files() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

impl Engine {
    /// Starts the engine of this process: finds or makes the hidden directory, recovers what dead
    /// processes left in it, takes a slot. `fell_back` hears why something went to the kernel.
    /// `EOPNOTSUPP`: the mode promises more than this file system can keep.
    pub fn start(options: Options, fell_back: fn(&'static str)) -> Result<Self> {
        if limits_files() {
            // The engine's own files would be limited too.
            return Err(Errno::FBIG);
        }
        let directory = rustix::fs::open(
            &options.directory,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let prefix = rustix::fs::readlink(link, Vec::new())?;
        let prefix = PathBuf::from(std::ffi::OsStr::from_bytes(prefix.as_bytes()));
        let mut home = Home::open(&prefix, options.mode, true)?;
        home.relink = options.wanted_relink(home.direct);
        if home.durable() && !home.direct && !options.emulate {
            return Err(Errno::OPNOTSUPP);
        }
        recovery::take_slot(&home)?;
        if recovery::recover_dead(&home).is_err() {
            // What cannot be recovered now is kept for a later start.
            fell_back("not-recovered");
        }
        let log = (options.mode == Mode::Strict)
            .then(|| Log::create(&home, options.log_bytes))
            .transpose()?;
        Ok(Self {
            options,
            home,
            files: Mutex::new(HashMap::new()),
            pool: Mutex::new(Vec::new()),
            worker: Arc::new(Worker::default()),
            warmth: OnceLock::new(),
            runs: AtomicU64::new(0),
            resting: Mutex::new(VecDeque::new()),
            resting_names: Box::new([const { AtomicU64::new(0) }; NAME_WORDS]),
            resting_named: AtomicBool::new(false),
            log,
            staging_number: AtomicU32::new(0),
            old_times: AtomicU64::new(0),
            windows: AtomicUsize::new(0),
            windows_most: AtomicUsize::new(0),
            files_most: AtomicUsize::new(0),
            windows_made: AtomicU64::new(1),
            relinks: AtomicU64::new(0),
            relinked: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            relinking: AtomicU64::new(0),
            limited: AtomicBool::new(limits_files()),
            locks: AtomicBool::new(false),
            locked: Mutex::new(HashSet::new()),
            left: AtomicBool::new(false),
            finishing: Mutex::new(()),
            mapped: Mutex::new(HashSet::new()),
            fell_back,
        })
    }

    /// In a forked child, before it starts an engine of its own: forgets all that it inherited. Its
    /// parent had handed everything over.
    pub fn forget_inherited() {
        descriptors::forget_all();
        internal_descriptors::close_all();
    }

    /// How it was started.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The hidden directory.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether the program must leave a number alone.
    pub fn is_internal(fd: RawFd) -> bool {
        internal_descriptors::is_internal(fd)
    }

    /// Those numbers.
    pub fn internal_numbers() -> impl Iterator<Item = RawFd> {
        internal_descriptors::all()
    }

    // ---- for the files

    /// Bytes of a window.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.options.window_bytes
    }

    /// How staged bytes are moved here.
    pub fn backend(&self) -> Backend {
        relink::backend(&self.home)
    }

    pub(crate) fn window_made(&self) {
        self.windows_made.fetch_add(1, Ordering::Relaxed);
        let now = self.windows.fetch_add(1, Ordering::Relaxed) + 1;
        self.windows_most.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn windows_gone(&self, count: usize) {
        self.windows.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn windows_are_many(&self) -> bool {
        self.windows.load(Ordering::Relaxed) >= self.options.windows
    }

    /// How many windows were ever mapped: the clock by which they cool.
    #[inline]
    pub(crate) fn windows_made(&self) -> u64 {
        self.windows_made.load(Ordering::Relaxed)
    }

    /// Drops the coldest eighth of all windows. No file's state is held.
    pub(crate) fn cool(&self) {
        let files: Vec<_> = locked(&self.files).values().cloned().collect();
        let mut uses: Vec<u64> =
            files.iter().flat_map(|file| file.look().uses().collect::<Vec<_>>()).collect();
        if uses.is_empty() {
            return;
        }
        let eighth = uses.len() / 8;
        let (_, &mut time, _) = uses.select_nth_unstable(eighth);
        for file in files {
            file.change().cool(self, time);
        }
    }

    /// Whether appends are staged at all.
    pub(crate) fn stages(&self) -> bool {
        self.options.technique != Technique::Split && !self.left.load(Ordering::Relaxed)
    }

    /// Stores bytes as the mode and the medium ask for.
    #[inline]
    pub(crate) fn put(
        &self,
        window: &Window,
        at: usize,
        from: &UserIn<'_>,
    ) -> std::result::Result<(), Fault> {
        if self.streams() { window.stream(at, from) } else { window.write(at, from) }
    }

    /// Whether stores go around the cache, to be durable after a fence.
    pub(crate) fn streams(&self) -> bool {
        self.home.durable() || self.home.direct
    }

    /// Whether writes may be served: a limit on file sizes is the kernel's to enforce.
    pub(crate) fn may_write(&self) -> bool {
        !self.limited.load(Ordering::Relaxed)
    }

    /// A limit of the process has changed.
    pub fn limits_changed(&self) {
        let limited = limits_files();
        if limited {
            // What cannot be drained now stays staged, and is tried again.
            let _ = self.drain_all();
        }
        self.limited.store(limited, Ordering::Relaxed);
    }

    /// Whether the engine adapts to a file's appends; without patience all are staged.
    pub(crate) fn adapts(&self) -> bool {
        self.options.patience > 0
    }

    /// Whether an overwrite is better left to the kernel: a store to its clean pages would fault.
    pub(crate) fn is_cold(&self, file: &File, offset: u64, len: u64) -> bool {
        if self.home.fills_holes || !self.leaves() {
            return false;
        }
        let warmth = self.warmth.get_or_init(PageHeat::new);
        let since = HeatEpoch::now(file.syncs.load(Ordering::Relaxed));
        let pages = offset / relink::BLOCK..=(offset + len - 1) / relink::BLOCK;
        // All of them are counted.
        pages.filter(|&page| !warmth.touch(file.ino, page, since)).count() > 0
    }

    /// Whether a relink copies what is in the page cache as before: there a run is drained early.
    pub(crate) fn drains_early(&self) -> bool {
        !self.home.direct && self.backend() == Backend::Copy
    }

    /// Whether the kernel does long appends, as `posix` mode allows: where they would be copied
    /// twice.
    pub(crate) fn leaves_long(&self) -> bool {
        self.leaves() && self.backend() == Backend::Copy
    }

    /// Whether the kernel's writes are as good: `posix` promises what the kernel does.
    pub(crate) fn leaves(&self) -> bool {
        self.adapts() && self.options.mode == Mode::Posix && !self.home.direct
    }

    /// Whether small appends may go to the kernel: where it makes them as durable as promised.
    pub(crate) fn may_be_direct(&self) -> bool {
        !(self.home.durable() && self.home.direct)
    }

    #[allow(clippy::unused_self)] // A question to the engine.
    pub(crate) fn appends(&self, fd: RawFd) -> bool {
        sys::borrow(fd)
            .and_then(rustix::fs::fcntl_getfl)
            .is_ok_and(|flags| flags.contains(OFlags::APPEND))
    }

    pub(crate) fn fell_back(&self, reason: &'static str) {
        (self.fell_back)(reason);
    }

    pub(crate) fn relinked(&self, length: u64, copied: u64, took: Duration) {
        self.relinks.fetch_add(1, Ordering::Relaxed);
        self.relinked.fetch_add(length, Ordering::Relaxed);
        self.copied.fetch_add(copied, Ordering::Relaxed);
        self.relinking.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn times_aged(&self) {
        self.old_times.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the process has set record locks on a file by a descriptor that is not served.
    pub(crate) fn is_locked_elsewhere(&self, ino: u64) -> bool {
        self.locks.load(Ordering::Relaxed) && locked(&self.locked).contains(&ino)
    }

    /// A run of this process has begun; or (`false`) it is over.
    pub(crate) fn count_run(&self, begun: bool) {
        if begun {
            self.runs.fetch_add(1, Ordering::Relaxed);
        } else {
            self.runs.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether this process has staged anything.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed) > 0
    }

    /// Whether anything is staged by other processes: a hint.
    pub(crate) fn others_staged(&self) -> bool {
        self.home.records.count() > self.runs.load(Ordering::Relaxed)
    }

    /// Keeps an unused file with its windows, unless it is one too many.
    pub(crate) fn let_rest(&self, files: &mut HashMap<u64, Arc<File>>, file: &File) {
        let mut resting = locked(&self.resting);
        if resting.back() != Some(&file.ino) {
            resting.retain(|&ino| ino != file.ino);
            resting.push_back(file.ino);
        }
        while resting.len() > RESTING_MAX
            && let Some(oldest) = resting.pop_front()
        {
            self.forget_resting(files, oldest);
        }
    }

    fn forget_resting(&self, files: &mut HashMap<u64, Arc<File>>, ino: u64) {
        if files.get(&ino).is_some_and(|file| file.users.load(Ordering::Acquire) == 0)
            && let Some(file) = files.remove(&ino)
        {
            file.unmap(self);
        }
    }

    /// A file that may rest here has this name, among others.
    pub(crate) fn may_rest_as(&self, path: &[u8]) {
        let (word, bit) = name_bit(path);
        if self.resting_names[word].load(Ordering::Relaxed) & bit == 0 {
            self.resting_names[word].fetch_or(bit, Ordering::Relaxed);
            self.resting_named.store(true, Ordering::Relaxed);
        }
    }

    /// The file `from` (`None`: some file) has the name `to` by now.
    pub fn named(&self, from: Option<&[u8]>, to: &[u8]) {
        if self.resting_named.load(Ordering::Relaxed) && from.is_none_or(|from| self.may_rest(from))
        {
            self.may_rest_as(to);
        }
    }

    /// Whether any file may rest here.
    #[inline]
    pub fn may_rest_anywhere(&self) -> bool {
        self.resting_named.load(Ordering::Relaxed)
    }

    /// Whether a file that has this name may rest here: a hint.
    #[inline]
    pub fn may_rest(&self, path: &[u8]) -> bool {
        self.resting_named.load(Ordering::Relaxed) && {
            let (word, bit) = name_bit(path);
            self.resting_names[word].load(Ordering::Relaxed) & bit != 0
        }
    }

    /// The name of a file was removed: what is mapped of it goes with its last one.
    pub fn removed(&self, stat: &rustix::fs::Stat) {
        if stat.st_dev == self.home.device {
            let mut files = locked(&self.files);
            if let Some(file) = files.get(&stat.st_ino) {
                // If it is in use: it goes with its last close.
                file.lost_name.store(true, Ordering::Relaxed);
            }
            self.forget_resting(&mut files, stat.st_ino);
        }
    }

    /// Whether any process has staged anything: a hint.
    pub fn anything_staged(&self) -> bool {
        self.home.records.count() > 0
    }

    /// Whether stores through windows have left times as they were.
    #[inline]
    pub fn has_old_times(&self) -> bool {
        self.old_times.load(Ordering::Relaxed) != 0
    }

    /// Whether any process may have staged anything for a file that lies on `device`.
    #[inline]
    pub fn may_have_staged(&self, device: u64, ino: u64) -> bool {
        device == self.home.device
            && self.anything_staged()
            && self.home.records.find(ino).is_some()
    }

    /// Whether the kernel moves data of a fresh number, and nothing is staged that it could miss,
    /// nor is any overwrite of a dead process to be finished: as the first calls of a descriptor in
    /// `posix` mode.
    #[inline]
    pub fn leaves_first(&self, fd: RawFd) -> bool {
        let Some(calls) = descriptors::fresh(fd) else { return false };
        if calls >= self.options.patience
            || self.options.mode != Mode::Posix
            || self.home.records.any_overwriting(self.home.slot())
        {
            return false;
        }
        let mut next = Slot::Fresh(calls + 1);
        if self.anything_staged() {
            let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat) else { return false };
            if !self.may_be_ours(&stat) {
                next = Slot::Plain;
            } else if self.home.records.find(stat.st_ino).is_some() {
                return false;
            }
        }
        // If another thread came first the number may be served by now.
        descriptors::replace_fresh(fd, calls, next).is_ok()
    }

    /// A staging file that is not in use.
    pub(crate) fn take_staging(&self) -> Result<Staging> {
        if let Some(staging) = locked(&self.pool).pop() {
            return Ok(staging);
        }
        let number = self.staging_number.fetch_add(1, Ordering::Relaxed);
        let worker = Arc::clone(&self.worker);
        Staging::create(&self.home, number, self.options.staging_bytes, worker)
    }

    /// It is not in use any more.
    pub(crate) fn give_staging(&self, mut staging: Staging) {
        let mut pool = locked(&self.pool);
        if pool.len() < self.options.staging_files && staging.trim().is_ok() {
            pool.push(staging);
        } else {
            drop(pool);
            staging.remove(&self.home);
        }
    }

    /// The length of a run has grown: says so in its record, as durably as the mode asks for.
    pub(crate) fn publish(&self, run: &Run) {
        let records = &self.home.records;
        match &self.log {
            Some(log) => {
                pmem::fence();
                // PERSIST: the entry is the append's commit; the record follows it in memory only.
                let logged = log.append(run);
                records.set(run.record, Word::Length, run.length);
                if logged.is_err() {
                    records.persist_length(run.record, run.length);
                }
            }
            None if self.home.durable() => {
                pmem::fence();
                records.persist_length(run.record, run.length);
            }
            None => {
                if self.home.direct {
                    // PERSIST: a power cut may keep the length, and then it keeps the bytes.
                    pmem::fence();
                }
                records.set(run.record, Word::Length, run.length);
            }
        }
    }

    /// Before this process writes to a file: finishes a dead process's overwrite of it, which would
    /// else be done later, over what is written now.
    #[inline]
    pub(crate) fn finish_overwrites(&self, ino: u64) {
        for slot in self.home.records.overwriting(ino, self.home.slot()) {
            self.finish_if_dead(slot);
        }
    }

    /// Whether it is a regular file of the file system that is served.
    pub(crate) fn may_be_ours(&self, stat: &rustix::fs::Stat) -> bool {
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        regular && stat.st_dev == self.home.device
    }

    /// As [`Engine::finish_overwrites`], for a number that the kernel serves.
    pub(crate) fn finish_overwrites_of(&self, fd: RawFd) {
        if self.home.records.any_overwriting(self.home.slot())
            && let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat)
            && self.may_be_ours(&stat)
        {
            self.finish_overwrites(stat.st_ino);
        }
    }

    #[cold]
    fn finish_if_dead(&self, slot: u32) {
        if !recovery::is_left(&self.home, slot) {
            return;
        }
        let _one = locked(&self.finishing);
        // A process apart closes nothing on which this one has record locks.
        if self.home.apart(|| recovery::finish(&self.home, slot)).is_err() {
            self.home.unlock_directory();
        }
    }

    /// Strict: brings an overwrite into the log.
    pub(crate) fn log_overwrite(
        &self,
        state: &State,
        file: &File,
        offset: u64,
        from: &[UserIn<'_>],
    ) -> std::result::Result<Option<LoggedOverwrite<'_>>, Fault> {
        match (&self.log, &state.own) {
            (Some(log), Some(_)) => {
                let logged = log.overwrite(&self.home, file, offset, from)?;
                if logged.is_none() {
                    // In place, as `sync` does it: durable, not atomic.
                    self.fell_back("log-full");
                }
                Ok(logged)
            }
            _ => Ok(None),
        }
    }

    // ---- the process

    /// Before a fork, an exec or a passing of descriptors: all of them are handed over.
    pub fn hand_over_all(&self) {
        descriptors::all().for_each(|fd| self.hand_over(fd));
        self.renew_times();
    }

    /// Everything staged goes to its place (`sync`).
    pub fn drain_all(&self) -> Result<()> {
        let files: Vec<_> = locked(&self.files).values().cloned().collect();
        let mut all = Ok(());
        for file in files {
            all = all.and(file.drain(self));
        }
        self.renew_times();
        all
    }

    /// Before the process leaves, while its other threads go on: nothing is staged any more, so
    /// that what they write next, past the engine, comes behind what they wrote before.
    pub fn stop(&self) {
        self.left.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let files: Vec<_> = locked(&self.files).values().cloned().collect();
        for file in files {
            // What cannot be drained now stays staged. A run that begins now has the file locked.
            let _ = file.stop(self);
        }
    }

    /// A number was adopted just now: the leaving thread hands it over, or this one does.
    pub(crate) fn adopted(&self, fd: RawFd) {
        fence(Ordering::SeqCst);
        if self.left.load(Ordering::Relaxed) {
            self.hand_over(fd);
        }
    }

    /// Leaves in order. What other threads have begun to overwrite is whole.
    pub fn leave(&self) {
        let _gate = self.log.as_ref().map(Log::close);
        if self.drain_all().is_ok() {
            let mut pool = locked(&self.pool);
            let stay = pool.drain(..).map(|it| it.remove(&self.home)).filter(|gone| !gone).count();
            let removed = (self.log.is_none() || log::remove(&self.home)) && stay == 0;
            // CRASH: files of a free slot would be the next process's. Where they stay, on a file
            // system that was shut down, this process is dead, and they are recovered.
            if removed {
                self.home.leave_slot();
            }
        }
    }

    /// Bytes of its own state at most so far, by what it kept, rounded up.
    fn memory(&self) -> u64 {
        let windows = self.windows_most.load(Ordering::Relaxed) * (WINDOW_BYTES + TABLE_BYTES);
        let files = self.files_most.load(Ordering::Relaxed) * FILE_BYTES;
        (windows + files + TABLES_BYTES) as u64
    }

    /// What it has used so far.
    pub fn usage(&self) -> Usage {
        let (logged, checkpoints) = self.log.as_ref().map_or((0, 0), Log::usage);
        let backend = match self.home.records.backend() {
            0 => None,
            _ => Some(self.backend()),
        };
        Usage {
            backend,
            windows: self.windows_most.load(Ordering::Relaxed),
            windows_made: self.windows_made() - 1,
            relinks: self.relinks.load(Ordering::Relaxed),
            relinked: self.relinked.load(Ordering::Relaxed),
            copied: self.copied.load(Ordering::Relaxed),
            relinking: self.relinking.load(Ordering::Relaxed),
            logged,
            checkpoints,
            memory: self.memory(),
        }
    }
}
