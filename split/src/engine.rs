//! One process's engine: which files it serves, and all that the process does as a whole.
//!
//! Calls come with the program's descriptor numbers. Each gives an answer, or `None`: the kernel is
//! to serve it, and then [`Engine::around`] brings engine and kernel to one view before and after.
//!
//! Locks, in this order: a description's position; `files`; a file's state; a shared record; `pool`.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::{Fault, UserIn, UserOut, Window};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::descriptors::{self, Description, Slot};
use crate::file::{File, State, length_in};
use crate::grow::{Grown, Run};
use crate::home::{HOME_NAME, Home};
use crate::log::{self, Log, Logged};
use crate::records::Word;
use crate::relink::{self, Backend};
use crate::staging::Staging;
use crate::{Mode, Result, internal, recovery, sys};

/// Windows of all files together; beyond, the oldest of a file goes before a new one comes.
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
        }
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
    /// Files relinked.
    pub relinks: u64,
    /// Bytes that these moved.
    pub relinked: u64,
    /// Of them copied.
    pub copied: u64,
    /// Entries written to the operation log.
    pub logged: u64,
    /// Checkpoints of the log.
    pub checkpoints: u64,
    /// Bytes of memory for its own state, as far as they grow with use.
    pub memory: u64,
}

/// One process's engine.
pub struct Engine {
    options: Options,
    home: Home,
    files: Mutex<HashMap<u64, Arc<File>>>,
    pool: Mutex<Vec<Staging>>,
    log: Option<Log>,
    staging_number: AtomicU32,
    runs: AtomicU64,
    old_times: AtomicU64,
    windows: AtomicUsize,
    windows_most: AtomicUsize,
    relinks: AtomicU64,
    relinked: AtomicU64,
    copied: AtomicU64,
    fell_back: fn(&'static str),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts the engine of this process: finds or makes the hidden directory, recovers what dead
    /// processes left in it, takes a slot. `fell_back` hears why something went to the kernel.
    /// `EOPNOTSUPP`: the mode promises more than this file system can keep.
    pub fn start(options: Options, fell_back: fn(&'static str)) -> Result<Self> {
        let directory = rustix::fs::open(
            &options.directory,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let prefix = rustix::fs::readlink(link, Vec::new())?;
        let prefix = PathBuf::from(std::ffi::OsStr::from_bytes(prefix.as_bytes()));
        let home = Home::open(&prefix, options.mode, true)?;
        if home.durable() && !home.direct && !options.emulate {
            return Err(Errno::OPNOTSUPP);
        }
        home.take_slot()?;
        recovery::recover_dead(&home)?;
        let log = (options.mode == Mode::Strict)
            .then(|| Log::create(&home, options.log_bytes))
            .transpose()?;
        Ok(Self {
            options,
            home,
            files: Mutex::new(HashMap::new()),
            pool: Mutex::new(Vec::new()),
            log,
            staging_number: AtomicU32::new(0),
            runs: AtomicU64::new(0),
            old_times: AtomicU64::new(0),
            windows: AtomicUsize::new(0),
            windows_most: AtomicUsize::new(0),
            relinks: AtomicU64::new(0),
            relinked: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            fell_back,
        })
    }

    /// In a forked child, before it starts an engine of its own: all that it inherited is forgotten.
    /// Its parent had handed everything over.
    pub fn forget_inherited() {
        descriptors::forget_all();
        internal::close_all();
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
        internal::is_internal(fd)
    }

    /// Those numbers.
    pub fn internal_numbers() -> impl Iterator<Item = RawFd> {
        internal::all()
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
        let now = self.windows.fetch_add(1, Ordering::Relaxed) + 1;
        self.windows_most.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn windows_gone(&self, count: usize) {
        self.windows.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn windows_are_many(&self) -> bool {
        self.windows.load(Ordering::Relaxed) >= WINDOWS_MAX
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

    /// Whether staging makes sense: a limit on file sizes is the kernel's to enforce.
    #[allow(clippy::unused_self)] // A question to the engine.
    pub(crate) fn may_stage(&self) -> bool {
        rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_none()
    }

    /// Whether small appends may go to the kernel: where it makes them as durable as promised.
    pub(crate) fn may_be_direct(&self) -> bool {
        !(self.home.durable() && self.home.direct)
    }

    #[allow(clippy::unused_self)] // A question to the engine.
    pub(crate) fn appends(&self, fd: RawFd) -> bool {
        sys::borrow(fd)
            .and_then(|fd| Ok(rustix::fs::fcntl_getfl(fd)?))
            .is_ok_and(|flags| flags.contains(OFlags::APPEND))
    }

    pub(crate) fn fell_back(&self, reason: &'static str) {
        (self.fell_back)(reason);
    }

    pub(crate) fn run_began(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn run_ended(&self) {
        self.runs.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn relinked(&self, length: u64, copied: u64) {
        self.relinks.fetch_add(1, Ordering::Relaxed);
        self.relinked.fetch_add(length, Ordering::Relaxed);
        self.copied.fetch_add(copied, Ordering::Relaxed);
    }

    pub(crate) fn times_aged(&self) {
        self.old_times.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether other processes have staged anything at all: a hint.
    pub(crate) fn others_stage(&self) -> bool {
        self.home.records.count() > self.runs.load(Ordering::Relaxed)
    }

    /// A staging file that serves nobody.
    pub(crate) fn take_staging(&self) -> Result<Staging> {
        if let Some(staging) = locked(&self.pool).pop() {
            return Ok(staging);
        }
        let number = self.staging_number.fetch_add(1, Ordering::Relaxed);
        Staging::create(&self.home, number, self.options.staging_bytes)
    }

    /// It serves nobody any more.
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
                records.set(run.record, Word::Length, run.length);
            }
        }
    }

    /// Strict: brings an overwrite into the log.
    pub(crate) fn log_overwrite(
        &self,
        state: &State,
        file: &File,
        offset: u64,
        from: &[UserIn<'_>],
    ) -> std::result::Result<Option<Logged<'_>>, Fault> {
        match (&self.log, &state.own) {
            (Some(log), Some(own)) => log.overwrite(file, own, offset, from),
            _ => Ok(None),
        }
    }

    // ---- descriptors

    /// What is served for `fd`, which is about to move data; `None`: the kernel serves it.
    fn served(&self, fd: RawFd) -> Option<Arc<Description>> {
        match descriptors::get(fd) {
            Slot::Served(description) => Some(description),
            Slot::Plain => None,
            Slot::Unknown => {
                self.settle_number(fd);
                None
            }
            Slot::Fresh(calls) => {
                let eager = self.home.mode != Mode::Posix || self.anything_staged();
                if calls < self.options.patience && !eager {
                    descriptors::set(fd, Slot::Fresh(calls + 1));
                    return None;
                }
                self.adopt(fd)
            }
        }
    }

    fn anything_staged(&self) -> bool {
        self.home.records.count() > 0
    }

    /// Takes a fresh descriptor over, if its file is one of ours.
    fn adopt(&self, fd: RawFd) -> Option<Arc<Description>> {
        let Some((file, flags)) = self.file_of(fd) else {
            descriptors::set(fd, Slot::Plain);
            return None;
        };
        let position = rustix::fs::tell(sys::borrow(fd).ok()?).ok()?;
        let access = flags & OFlags::RWMODE;
        let description = Arc::new(Description::new(
            file,
            access != OFlags::WRONLY,
            access != OFlags::RDONLY,
            flags.contains(OFlags::APPEND),
            position,
        ));
        descriptors::set(fd, Slot::Served(Arc::clone(&description)));
        Some(description)
    }

    /// The file behind a number, if it is a regular one below the directory that can be served.
    fn file_of(&self, fd: RawFd) -> Option<(Arc<File>, OFlags)> {
        let number = fd;
        let fd = sys::borrow(fd).ok()?;
        let stat = rustix::fs::fstat(fd).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_dev != self.home.device {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(fd).ok()?;
        if flags.intersects(OFlags::PATH | OFlags::DIRECT | OFlags::DSYNC) {
            return None;
        }
        let link = format!("/proc/self/fd/{number}");
        let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
        let rest = path.strip_prefix(self.home.prefix.as_os_str().as_bytes())?;
        let rest = if self.home.prefix == Path::new("/") { &path[..] } else { rest };
        let inside = rest.strip_prefix(b"/")?;
        if inside.split(|&byte| byte == b'/').next() == Some(HOME_NAME.as_bytes()) {
            return None;
        }
        let mut files = locked(&self.files);
        let file = files.entry(stat.st_ino).or_insert_with(|| {
            Arc::new(File::new(stat.st_ino, path.clone(), stat.st_size as u64))
        });
        Some((Arc::clone(file), flags))
    }

    /// A file that this process knows.
    fn known(&self, ino: u64) -> Option<Arc<File>> {
        locked(&self.files).get(&ino).cloned()
    }

    /// Whether `fd` is a file that is served.
    pub fn serves(&self, fd: RawFd) -> bool {
        let _ = self;
        matches!(descriptors::get(fd), Slot::Served(_))
    }

    /// Before the kernel moves data of a number that is not served.
    pub fn before_kernel(&self, fd: RawFd) {
        if !matches!(descriptors::get(fd), Slot::Plain) {
            self.settle_number(fd);
        }
    }

    /// Before the kernel closes `[first, last]`.
    pub fn close_all(&self, first: RawFd, last: RawFd) {
        for fd in descriptors::all().filter(|fd| (first..=last).contains(fd)) {
            self.release(fd, Slot::Unknown);
        }
    }

    /// Before the kernel does anything with a number of which nothing is known: what is staged for
    /// its file goes to its place, and appends to it go to the kernel from then on.
    fn settle_number(&self, fd: RawFd) {
        if !self.anything_staged() {
            return;
        }
        let Ok(stat) = sys::borrow(fd).and_then(|fd| Ok(rustix::fs::fstat(fd)?)) else { return };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            descriptors::set(fd, Slot::Plain);
        } else if stat.st_dev == self.home.device {
            self.settle_inode(stat.st_ino, Some(fd));
        }
    }

    fn settle_inode(&self, ino: u64, fd: Option<RawFd>) {
        if let Some(file) = self.known(ino) {
            // What cannot be settled now stays staged, and is tried again.
            let _ = file.be_direct(self);
        } else if self.others_stage()
            && self.home.records.find(ino).is_some()
            && let Some(fd) = fd
        {
            let _ = recovery::fetch_by_number(&self.home, ino, fd);
        }
    }

    /// A call of the program has opened `fd` with `flags`.
    pub fn opened(&self, fd: RawFd, flags: i32) {
        drop(descriptors::set(fd, Slot::Fresh(0)));
        if flags & libc::O_TRUNC != 0 && self.anything_staged() {
            self.truncated(fd);
        } else if self.anything_staged() && flags & libc::O_PATH == 0 {
            if let Some(description) = self.adopt(fd) {
                // Otherwise the first read that reaches the end tries again.
                let _ = description.file.refresh(self, fd);
            }
        }
        if flags & libc::O_TRUNC != 0
            && !locked(&self.files).is_empty()
            && let Ok(stat) = sys::borrow(fd).and_then(|fd| Ok(rustix::fs::fstat(fd)?))
            && let Some(file) = self.known(stat.st_ino)
        {
            let _ = file.refresh(self, fd);
        }
    }

    /// A file was emptied by its opening: what was staged for it is void.
    fn truncated(&self, fd: RawFd) {
        let Ok(stat) = sys::borrow(fd).and_then(|fd| Ok(rustix::fs::fstat(fd)?)) else { return };
        if stat.st_dev != self.home.device {
            return;
        }
        if let Some(record) = self.home.records.find(stat.st_ino) {
            let guard = self.home.lock(record);
            if self.home.records.get(record, Word::Key) == stat.st_ino {
                self.home.records.free(record);
            }
            drop(guard);
        }
        if let Some(file) = self.known(stat.st_ino) {
            file.forget_run(self);
        }
    }

    /// A number may stand for anything by now.
    pub fn unknown(&self, fd: RawFd) {
        self.release(fd, Slot::Unknown);
    }

    /// A stream of the C library works on the number by itself.
    pub fn left_to_stream(&self, fd: RawFd) {
        if !matches!(descriptors::get(fd), Slot::Unknown | Slot::Plain) || self.anything_staged() {
            self.hand_over(fd);
            self.settle_number(fd);
            self.release(fd, Slot::Unknown);
        }
    }

    fn release(&self, fd: RawFd, slot: Slot) {
        if let Some(description) = descriptors::set(fd, slot) {
            // Whoever replaced the number has no way to tell of an error.
            let _ = self.drop_description(description);
        }
    }

    /// Before `new` becomes a duplicate of `old`: whether it may become one that is served.
    pub fn duplicates(&self, old: RawFd) {
        if let Slot::Fresh(_) = descriptors::get(old) {
            self.adopt(old);
        }
    }

    /// `new` is a duplicate of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        if old != new {
            let slot = descriptors::get(old);
            self.release(new, slot);
        }
    }

    /// Before the kernel closes `fd`.
    pub fn close(&self, fd: RawFd) -> Result<()> {
        match descriptors::set(fd, Slot::Unknown) {
            Some(description) => self.drop_description(description),
            None => Ok(()),
        }
    }

    fn drop_description(&self, description: Arc<Description>) -> Result<()> {
        let Some(last) = Arc::into_inner(description) else { return Ok(()) };
        let file = last.file;
        if file.users.load(Ordering::Acquire) > 1 {
            file.users.fetch_sub(1, Ordering::AcqRel);
            return Ok(());
        }
        let settled = file.settle(self);
        file.renew_times_by_own();
        let mut files = locked(&self.files);
        if file.users.fetch_sub(1, Ordering::AcqRel) == 1 && settled.is_ok() {
            files.remove(&file.ino);
            drop(files);
            file.unmap(self);
        }
        settled
    }

    // ---- data

    /// `read`, or `pread` with `at`.
    pub fn read(&self, fd: RawFd, at: Option<u64>, out: &[UserOut<'_>]) -> Option<Result<usize>> {
        let description = self.served(fd)?;
        if !description.reads || description.is_handed() {
            return None;
        }
        let file = &description.file;
        if let Some(at) = at {
            return file.read(self, fd, at, out);
        }
        let mut position = description.position();
        if description.is_handed() {
            return None;
        }
        let result = file.read(self, fd, *position, out)?;
        if let Ok(bytes) = result {
            *position += bytes as u64;
        }
        Some(result)
    }

    /// `write`, or `pwrite` with `at`.
    pub fn write(&self, fd: RawFd, at: Option<u64>, from: &[UserIn<'_>]) -> Option<Result<usize>> {
        let description = self.served(fd)?;
        let len = length_in(from);
        if !description.writes || description.is_handed() || len == 0 {
            return None;
        }
        let appends = description.appends.load(Ordering::Relaxed);
        let mut position = at.is_none().then(|| description.position());
        if description.is_handed() {
            return None;
        }
        let place = if appends { None } else { at.or(position.as_deref().copied()) };
        let result = {
            let _gate = self.log.as_ref().map(Log::enter);
            self.put_at(&description.file, fd, place, from)
        };
        if let Some(log) = &self.log
            && log.is_filling()
        {
            log.checkpoint(|| self.settle_all());
        }
        let result = result?;
        Some(result.map(|start| {
            if let Some(position) = &mut position {
                **position = start + len as u64;
            }
            len
        }))
    }

    /// Writes all at `place`, or at the end; gives where that was.
    fn put_at(
        &self,
        file: &File,
        fd: RawFd,
        place: Option<u64>,
        from: &[UserIn<'_>],
    ) -> Option<Result<u64>> {
        if let Some(place) = place {
            match file.overwrite(self, fd, place, from) {
                Ok(true) => return Some(Ok(place)),
                Ok(false) => {}
                Err(errno) => return Some(Err(errno)),
            }
        }
        match file.grow(self, fd, place, from) {
            Ok(Grown::Done(start)) => Some(Ok(start)),
            Ok(Grown::Kernel) => None,
            Err(errno) => Some(Err(errno)),
        }
    }

    /// `lseek` to a place that needs no kernel; `None`: it does.
    pub fn seek(&self, fd: RawFd, offset: i64, whence: i32) -> Option<Result<u64>> {
        let Slot::Served(description) = descriptors::get(fd) else {
            if whence != libc::SEEK_SET && whence != libc::SEEK_CUR {
                self.settle_number(fd);
            }
            return None;
        };
        if description.is_handed() {
            return None;
        }
        let mut position = description.position();
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => *position as i64,
            libc::SEEK_END => {
                if let Err(errno) = description.file.refresh(self, fd) {
                    return Some(Err(errno));
                }
                description.file.size() as i64
            }
            _ => return None,
        };
        if description.is_handed() {
            return None;
        }
        let result = match base.checked_add(offset) {
            Some(to) if to >= 0 => {
                *position = to as u64;
                Ok(to as u64)
            }
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::OVERFLOW),
        };
        // The kernel knows the largest offset of its file system.
        if result.is_ok_and(|to| to > i64::MAX as u64 >> 20) { None } else { Some(result) }
    }

    /// Lets the kernel serve a call on `fd`: before it everything staged is in its place and the
    /// kernel's position is the description's; after it the description's is the kernel's.
    pub fn around<T>(&self, fd: RawFd, writes: bool, kernel: impl FnOnce() -> T) -> T {
        let Slot::Served(description) = descriptors::get(fd) else {
            self.settle_number(fd);
            let result = kernel();
            self.kernel_wrote(fd, writes);
            return result;
        };
        let file = &description.file;
        // What cannot be settled stays staged; the kernel's answer tells what it can.
        let _ = file.settle(self);
        let _ = file.fetch(self, fd);
        if description.is_handed() {
            let result = kernel();
            self.kernel_wrote(fd, writes);
            let _ = file.refresh(self, fd);
            return result;
        }
        let mut position = description.position();
        let number = sys::borrow(fd).ok();
        if let Some(number) = number {
            let _ = rustix::fs::seek(number, SeekFrom::Start(*position));
        }
        let result = kernel();
        if let Some(now) = number.and_then(|number| rustix::fs::tell(number).ok()) {
            *position = now;
        }
        drop(position);
        self.kernel_wrote(fd, writes);
        let _ = file.refresh(self, fd);
        result
    }

    /// The kernel has written: where that must be durable at return, it is made so.
    pub fn kernel_wrote(&self, fd: RawFd, writes: bool) {
        if writes
            && self.home.durable()
            && self.home.direct
            && let Ok(fd) = sys::borrow(fd)
        {
            // What has no data to be made durable says so.
            let _ = rustix::fs::fdatasync(fd);
        }
    }

    /// Before the kernel's `fsync` of `fd`.
    pub fn sync(&self, fd: RawFd) -> Result<()> {
        match descriptors::get(fd) {
            Slot::Served(description) => {
                description.file.settle(self)?;
                description.file.renew_times_by_own();
                Ok(())
            }
            _ => {
                self.settle_number(fd);
                Ok(())
            }
        }
    }

    /// Before the kernel changes the file behind a path.
    pub fn settle_path(&self, stat: &rustix::fs::Stat) {
        if stat.st_dev == self.home.device && self.anything_staged() {
            if let Some(file) = self.known(stat.st_ino) {
                let _ = file.settle(self);
            } else {
                self.settle_inode(stat.st_ino, None);
            }
        }
    }

    /// The kernel has changed the file behind a path: its size is to be asked for.
    pub fn changed(&self, stat: &rustix::fs::Stat) {
        if stat.st_dev == self.home.device
            && let Some(file) = self.known(stat.st_ino)
        {
            file.size_is_stale(self);
        }
    }

    /// Whether path calls must ask: anything is staged, or times are old.
    #[inline]
    pub fn concerns_paths(&self) -> bool {
        self.anything_staged() || self.old_times.load(Ordering::Relaxed) != 0
    }

    /// The size of a file with what is staged for it; `None`: the kernel's is right.
    pub fn size_of(&self, device: u64, ino: u64) -> Option<u64> {
        if device != self.home.device {
            return None;
        }
        if let Some(file) = self.known(ino)
            && file.has_run.load(Ordering::Acquire)
        {
            return Some(file.size());
        }
        let records = &self.home.records;
        let record = records.find(ino)?;
        let end = records.get(record, Word::Base) + records.get(record, Word::Length);
        (records.get(record, Word::Key) == ino).then_some(end)
    }

    /// Sets the times of files that were written through windows.
    pub fn renew_times(&self) {
        if self.old_times.swap(0, Ordering::Relaxed) != 0 {
            let files: Vec<_> = locked(&self.files).values().cloned().collect();
            files.iter().for_each(|file| file.renew_times_by_own());
        }
    }

    // ---- the process

    /// The program maps the file: what is appended to it must be in its pages.
    pub fn mapped(&self, fd: RawFd) {
        if let Slot::Served(description) = descriptors::get(fd) {
            let _ = description.file.be_direct(self);
        } else {
            self.settle_number(fd);
        }
    }

    /// Status flags of `fd` have changed.
    pub fn flags_changed(&self, fd: RawFd) {
        if let Slot::Served(description) = descriptors::get(fd)
            && let Ok(flags) = sys::borrow(fd).and_then(|fd| Ok(rustix::fs::fcntl_getfl(fd)?))
        {
            // A run begun by appends stays one.
            let _ = description.file.settle(self);
            description.appends.store(flags.contains(OFlags::APPEND), Ordering::Relaxed);
            if flags.contains(OFlags::DIRECT) {
                self.hand_over(fd);
            }
        }
    }

    /// The kernel's position of `fd` counts from now on.
    pub fn hand_over(&self, fd: RawFd) {
        match descriptors::get(fd) {
            Slot::Served(description) => {
                let _ = description.file.settle(self);
                let position = description.position();
                if !description.is_handed() {
                    if let Ok(fd) = sys::borrow(fd) {
                        let _ = rustix::fs::seek(fd, SeekFrom::Start(*position));
                    }
                    description.hand();
                }
            }
            Slot::Fresh(_) => drop(descriptors::set(fd, Slot::Unknown)),
            Slot::Unknown | Slot::Plain => {}
        }
    }

    /// Before a fork, an exec or a passing of descriptors: all of them are handed over.
    pub fn hand_over_all(&self) {
        descriptors::all().for_each(|fd| self.hand_over(fd));
        self.renew_times();
    }

    /// Everything staged goes to its place (`sync`).
    pub fn settle_all(&self) -> Result<()> {
        let files: Vec<_> = locked(&self.files).values().cloned().collect();
        let mut all = Ok(());
        for file in files {
            all = all.and(file.settle(self));
        }
        self.renew_times();
        all
    }

    /// Leaves in order.
    pub fn leave(&self) {
        if self.settle_all().is_ok() {
            for staging in locked(&self.pool).drain(..) {
                staging.remove(&self.home);
            }
            if self.log.is_some() {
                log::names(self.home.slot()).iter().for_each(|name| self.home.remove_file(name));
            }
            self.home.leave_slot();
        }
    }

    /// Bytes of its own state: an estimate by what it keeps.
    fn memory(&self) -> u64 {
        let windows = self.windows_most.load(Ordering::Relaxed) * (size_of::<Window>() + 64);
        let files = locked(&self.files).len() * (size_of::<File>() + 512);
        (windows + files + size_of::<Self>()) as u64
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
            relinks: self.relinks.load(Ordering::Relaxed),
            relinked: self.relinked.load(Ordering::Relaxed),
            copied: self.copied.load(Ordering::Relaxed),
            logged,
            checkpoints,
            memory: self.memory(),
        }
    }
}
