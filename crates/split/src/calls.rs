//! The program's calls, as the engine serves them: what its numbers stand for, and its data.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::{UserIn, UserOut};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::descriptors::{self, AT_KERNEL, Description, Slot};
use crate::engine::{Engine, FILES_MAX, locked};
use crate::file::{File, length_in};
use crate::grow::WriteOutcome;
use crate::hidden_directory::HOME_NAME;
use crate::log::Log;
use crate::records::Word;
use crate::{Mode, Result, recovery, streams, sys};

/// A description in use. If it is closed meanwhile, the last call that uses it finishes it.
struct HeldDescription<'a> {
    engine: &'a Engine,
    description: ManuallyDrop<Arc<Description>>,
}

impl Deref for HeldDescription<'_> {
    type Target = Arc<Description>;

    fn deref(&self) -> &Self::Target {
        &self.description
    }
}

impl Drop for HeldDescription<'_> {
    fn drop(&mut self) {
        // SAFETY: taken here only.
        let description = unsafe { ManuallyDrop::take(&mut self.description) };
        // The call that closed it has said that all is well, as the kernel does.
        let _ = self.engine.drop_description(description);
    }
}

/// A description's position; the kernel is asked if only it knows.
fn known_position(fd: RawFd, position: &mut u64) -> Option<u64> {
    if *position == AT_KERNEL {
        *position = rustix::fs::tell(sys::borrow(fd).ok()?).ok()?;
    }
    Some(*position)
}

/// What a number stands for, as [`Slot`].
enum Resolved<'a> {
    Unknown,
    Plain,
    Fresh(usize),
    Served(HeldDescription<'a>),
}

impl Engine {
    // ---- descriptors

    fn hold(&self, description: Arc<Description>) -> HeldDescription<'_> {
        HeldDescription { engine: self, description: ManuallyDrop::new(description) }
    }

    #[inline]
    fn look(&self, fd: RawFd) -> Resolved<'_> {
        match descriptors::get(fd) {
            Slot::Unknown => Resolved::Unknown,
            Slot::Plain => Resolved::Plain,
            Slot::Fresh(calls) => Resolved::Fresh(calls),
            Slot::Served(description) => Resolved::Served(self.hold(description)),
        }
    }

    /// What is served for `fd`, which is about to move data; `None`: the kernel serves it.
    #[inline]
    fn served(&self, fd: RawFd) -> Option<HeldDescription<'_>> {
        match self.look(fd) {
            Resolved::Served(description) => Some(description),
            Resolved::Plain => None,
            Resolved::Unknown => {
                self.drain_number(fd);
                None
            }
            Resolved::Fresh(calls) => {
                let eager = self.home.mode != Mode::Posix || self.has_staged(fd);
                if calls < self.options.patience && !eager {
                    let next = Slot::Fresh(calls + 1);
                    // If another thread came first the number may be served by now.
                    let ours = descriptors::replace_fresh(fd, calls, next).is_ok();
                    return if ours { None } else { self.served(fd) };
                }
                self.adopt(fd, calls)
            }
        }
    }

    /// Takes a fresh descriptor over, if its file is one of ours.
    fn adopt(&self, fd: RawFd, calls: usize) -> Option<HeldDescription<'_>> {
        if streams::is_standard(fd) {
            let _ = descriptors::replace_fresh(fd, calls, Slot::Unknown);
            return None;
        }
        let position = rustix::fs::tell(sys::borrow(fd).ok()?);
        let Some((file, flags)) = position.ok().and_then(|_| self.file_of(fd)) else {
            // Another name of a served file is not served, but its reader must not miss staged
            // bytes.
            let stat = sys::borrow(fd).and_then(rustix::fs::fstat);
            let foreign = stat.is_ok_and(|stat| !self.may_be_ours(&stat));
            let slot = if foreign { Slot::Plain } else { Slot::Unknown };
            let _ = descriptors::replace_fresh(fd, calls, slot);
            return None;
        };
        let position = position.ok()?;
        let access = flags & OFlags::RWMODE;
        let description = Arc::new(Description::new(
            file,
            matches!(access, OFlags::RDONLY | OFlags::RDWR),
            matches!(access, OFlags::WRONLY | OFlags::RDWR),
            flags.contains(OFlags::APPEND),
            position,
        ));
        let held = self.hold(Arc::clone(&description));
        match descriptors::replace_fresh(fd, calls, Slot::Served(description)) {
            Ok(()) => {
                self.adopted(fd);
                Some(held)
            }
            // Another thread came first.
            Err(own) => {
                drop(own);
                match self.look(fd) {
                    Resolved::Served(theirs) => Some(theirs),
                    _ => None,
                }
            }
        }
    }

    /// The file behind a number, if it is a regular one below the directory that can be served.
    fn file_of(&self, fd: RawFd) -> Option<(Arc<File>, OFlags)> {
        let number = fd;
        let fd = sys::borrow(fd).ok()?;
        let stat = rustix::fs::fstat(fd).ok()?;
        if !self.may_be_ours(&stat) || sys::has_set_id_bits(&stat) {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(fd).ok()?;
        if flags.intersects(OFlags::PATH | OFlags::DIRECT | OFlags::DSYNC) {
            return None;
        }
        if let Some(file) = self.wakes(stat.st_ino, stat.st_size as u64) {
            return Some((file, flags));
        }
        let link = format!("/proc/self/fd/{number}");
        let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
        let rest = path.strip_prefix(self.home.prefix.as_os_str().as_bytes())?;
        let rest = if self.home.prefix == Path::new("/") { &path[..] } else { rest };
        let inside = rest.strip_prefix(b"/")?;
        if inside.split(|&byte| byte == b'/').next() == Some(HOME_NAME.as_bytes()) {
            return None;
        }
        let birth = sys::birth(fd);
        let mut files = locked(&self.files);
        let file = match files.get(&stat.st_ino) {
            Some(file) if file.birth == birth => {
                if file.users.load(Ordering::Acquire) == 0 {
                    file.wake(self, stat.st_size as u64);
                }
                Arc::clone(file)
            }
            None if files.len() >= FILES_MAX => {
                self.fell_back("many-files");
                return None;
            }
            // None, or that of a file that is gone and not yet forgotten by all.
            _ => {
                // Said already now: it may be given another name before it is mapped.
                self.may_rest_as(&path);
                let mut file = File::new(&stat, birth, path);
                file.leave_appends(locked(&self.mapped).contains(&stat.st_ino));
                let file = Arc::new(file);
                files.insert(stat.st_ino, Arc::clone(&file));
                self.files_most.fetch_max(files.len(), Ordering::Relaxed);
                file
            }
        };
        // For the description that is about to be made: so no thread forgets the file before.
        file.users.fetch_add(1, Ordering::AcqRel);
        drop(files);
        Some((file, flags))
    }

    /// Whether anything is staged for the file behind a number that is not served yet.
    fn has_staged(&self, fd: RawFd) -> bool {
        self.anything_staged()
            && sys::borrow(fd).and_then(rustix::fs::fstat).is_ok_and(|stat| {
                stat.st_dev == self.home.device && self.home.records.find(stat.st_ino).is_some()
            })
    }

    /// A file that this process knows and has mapped, so no other has its inode number. A resting
    /// file gets the size it has now.
    fn wakes(&self, ino: u64, size: u64) -> Option<Arc<File>> {
        let files = locked(&self.files);
        let file = files.get(&ino)?;
        if file.windows() == 0 {
            return None;
        }
        if file.users.load(Ordering::Acquire) == 0 {
            file.wake(self, size);
        }
        file.users.fetch_add(1, Ordering::AcqRel);
        Some(Arc::clone(file))
    }

    /// A file that this process knows.
    fn known(&self, ino: u64) -> Option<Arc<File>> {
        locked(&self.files).get(&ino).cloned()
    }

    /// Whether `fd` is a file that is served.
    pub fn serves(&self, fd: RawFd) -> bool {
        matches!(self.look(fd), Resolved::Served(_))
    }

    /// Before the kernel moves data of a number that is not served.
    pub fn before_kernel(&self, fd: RawFd) {
        if !matches!(self.look(fd), Resolved::Plain) {
            self.finish_overwrites_of(fd);
            self.drain_number(fd);
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
    pub(crate) fn drain_number(&self, fd: RawFd) {
        if !self.anything_staged() {
            return;
        }
        let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat) else { return };
        if self.may_be_ours(&stat) {
            self.drain_inode(stat.st_ino, fd);
        } else {
            descriptors::unknown_is_plain(fd);
        }
    }

    fn drain_inode(&self, ino: u64, fd: RawFd) {
        if let Some(file) = self.known(ino) {
            // What cannot be drained now stays staged, and is tried again.
            let _ = file.be_direct_in_page(self);
            let _ = file.fetch(self, fd);
        } else if self.home.records.find(ino).is_some() {
            self.fetch_unserved(ino, format!("/proc/self/fd/{fd}").as_bytes());
        }
    }

    /// Whether this process has set record locks on a file, which any close of it would drop.
    fn has_locks(&self, ino: u64) -> bool {
        self.locks.load(Ordering::Relaxed)
            && (locked(&self.locked).contains(&ino)
                || self.known(ino).is_some_and(|file| file.is_locked()))
    }

    /// Fetches what other processes have staged for a file that this one does not serve.
    fn fetch_unserved(&self, ino: u64, path: &[u8]) {
        let fetch = || self.fetch_opened(ino, path);
        // What cannot be fetched now stays staged, and is tried again.
        let _ = if self.has_locks(ino) { self.home.apart(fetch).flatten() } else { fetch() };
    }

    /// As above, whatever locks that drops.
    pub fn fetch_opened(&self, ino: u64, path: &[u8]) -> Result<()> {
        let file = rustix::fs::open(path, recovery::OPENING, rustix::fs::Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if self.may_be_ours(&stat) && stat.st_ino == ino {
            recovery::fetch_into(&self.home, ino, &file)?;
        }
        Ok(())
    }

    /// A call of the program has opened `fd` with `flags`.
    pub fn opened(&self, fd: RawFd, flags: i32) {
        self.release(fd, Slot::Fresh(0));
        streams::forget(fd);
        if flags & libc::O_TRUNC != 0 && self.anything_staged() {
            self.truncated(fd);
        } else if self.others_staged()
            && flags & libc::O_PATH == 0
            && self.has_staged(fd)
            && let Some(description) = self.adopt(fd, 0)
        {
            // Otherwise the first read that reaches the end tries again.
            let _ = description.file.refresh(self, fd);
        }
        if flags & libc::O_TRUNC != 0
            && !locked(&self.files).is_empty()
            && let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat)
            && self.may_be_ours(&stat)
            && let Some(file) = self.known(stat.st_ino)
        {
            let _ = file.refresh(self, fd);
        }
    }

    /// A file was emptied by its opening: what was staged for it is void.
    fn truncated(&self, fd: RawFd) {
        let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat) else { return };
        if stat.st_dev != self.home.device {
            return;
        }
        if let Some(record) = self.home.records.find(stat.st_ino) {
            let guard = self.home.lock(record);
            if self.home.records.get(record, Word::Key) == stat.st_ino {
                self.home.free(record);
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

    pub(crate) fn release(&self, fd: RawFd, slot: Slot) {
        if let Some(description) = descriptors::set(fd, slot) {
            // The call that replaced the number has no way to tell of an error.
            let _ = self.drop_description(description);
        }
    }

    /// Before `new` becomes a duplicate of `old`: whether it may become one that is served.
    pub fn duplicates(&self, old: RawFd) {
        if let Resolved::Fresh(calls) = self.look(old) {
            drop(self.adopt(old, calls));
        }
    }

    /// Lets the kernel make `new` a duplicate of `old`, in one step for all threads that use `new`.
    pub fn replace(&self, old: RawFd, new: RawFd, kernel: impl FnOnce() -> i32) -> i32 {
        self.duplicates(old);
        let streams = streams::may_work_on(new);
        if streams {
            self.hand_over(old);
        }
        let before = self.look(new);
        let position = match &before {
            _ if streams => None,
            Resolved::Served(description) => Some(description.position()),
            _ => None,
        };
        let result = kernel();
        if result >= 0 {
            self.duplicated(old, new);
        }
        drop(position);
        result
    }

    /// Before the kernel closes `fd`.
    pub fn close(&self, fd: RawFd) -> Result<()> {
        let Resolved::Served(description) = self.look(fd) else {
            self.release(fd, Slot::Unknown);
            return Ok(());
        };
        // Also if another thread is just using it: a call that comes after the close sees all.
        let drained = description.file.drain(self);
        // The thread that holds the position may be acting on the number.
        let position = description.position();
        let closed = descriptors::set(fd, Slot::Unknown);
        drop(position);
        match closed {
            Some(closed) => drained.and(self.drop_description(closed)),
            None => drained,
        }
    }

    fn drop_description(&self, description: Arc<Description>) -> Result<()> {
        let Some(last) = Arc::into_inner(description) else { return Ok(()) };
        let file = last.file;
        let drained = file.drain(self);
        let mut files = locked(&self.files);
        if file.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return drained;
        }
        file.renew_times_by_own();
        let known = files.get(&file.ino).is_some_and(|known| Arc::ptr_eq(known, &file));
        if drained.is_ok() && known {
            if file.rest(self) {
                self.let_rest(&mut files, &file);
                return drained;
            }
            files.remove(&file.ino);
        }
        drop(files);
        if drained.is_ok() {
            file.unmap(self);
        }
        drained
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
        if description.is_handed() || !descriptors::stands_for(fd, &description) {
            return None;
        }
        let result = file.read(self, fd, known_position(fd, &mut position)?, out)?;
        if let Ok(bytes) = result {
            *position += bytes as u64;
        }
        Some(result)
    }

    /// `write`, or `pwrite` with `at`.
    pub fn write(&self, fd: RawFd, at: Option<u64>, from: &[UserIn<'_>]) -> Option<Result<usize>> {
        let description = self.served(fd)?;
        let len = length_in(from);
        if !description.writes || description.is_handed() || len == 0 || !self.may_write() {
            return None;
        }
        self.finish_overwrites(description.file.ino);
        let appends = description.appends.load(Ordering::Relaxed);
        // The kernel's append moves the kernel's position, which a `pwrite` must not.
        let mut position = (at.is_none() || appends).then(|| description.position());
        if description.is_handed() || !descriptors::stands_for(fd, &description) {
            return None;
        }
        let place = match &mut position {
            Some(_) if appends && at.is_none() => None,
            Some(position) => Some(known_position(fd, position)?).filter(|_| !appends),
            None => at,
        };
        let result = {
            let _gate = self.log.as_ref().map(Log::enter);
            self.put_at(&description.file, fd, place, from)
        };
        if let Some(log) = &self.log
            && log.is_filling()
        {
            log.checkpoint(|| self.drain_all());
        }
        let result = result?;
        Some(result.map(|(start, len)| {
            if at.is_none()
                && let Some(position) = &mut position
            {
                **position = start.map_or(AT_KERNEL, |start| start + len as u64);
            }
            len
        }))
    }

    /// Writes all at `place`, or at the end; gives where that was (`None`: only the kernel knows),
    /// and how many bytes: all, unless the kernel did it.
    fn put_at(
        &self,
        file: &File,
        fd: RawFd,
        place: Option<u64>,
        from: &[UserIn<'_>],
    ) -> Option<Result<(Option<u64>, usize)>> {
        let len = length_in(from);
        for _ in 0..2 {
            if let Some(place) = place {
                match file.overwrite(self, fd, place, from) {
                    Ok(true) => return Some(Ok((Some(place), len))),
                    // The number stands for another file by now.
                    Ok(false) | Err(Errno::BADF) => {}
                    Err(errno) => return Some(Err(errno)),
                }
            }
            match file.grow(self, fd, place, from) {
                Ok(WriteOutcome::Done(start)) => return Some(Ok((Some(start), len))),
                Ok(WriteOutcome::ByKernel(wrote)) => return Some(Ok((place, wrote))),
                Ok(WriteOutcome::Drained) => {}
                Ok(WriteOutcome::Kernel) | Err(Errno::BADF) => return None,
                Err(errno) => return Some(Err(errno)),
            }
        }
        None
    }

    /// `lseek` to a place that needs no kernel; `None`: it does.
    pub fn seek(&self, fd: RawFd, offset: i64, whence: i32) -> Option<Result<u64>> {
        let ends = whence != libc::SEEK_SET && whence != libc::SEEK_CUR;
        let description = match self.look(fd) {
            Resolved::Served(description) => description,
            Resolved::Fresh(calls) if ends && self.has_staged(fd) => self.adopt(fd, calls)?,
            _ => {
                if ends {
                    self.drain_number(fd);
                }
                return None;
            }
        };
        if description.is_handed() {
            return None;
        }
        let mut position = description.position();
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => known_position(fd, &mut position)? as i64,
            libc::SEEK_END => {
                description.file.refresh(self, fd).ok()?;
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
            // What is too large for a position is negative to the kernel.
            _ => Err(Errno::INVAL),
        };
        // The kernel knows the largest offset of its file system.
        if result.is_ok_and(|to| to > i64::MAX as u64 >> 20) { None } else { Some(result) }
    }

    /// Lets the kernel serve a call on `fd`: before it everything staged is in its place and the
    /// kernel's position is the description's; after it the description's is the kernel's.
    pub fn around<T>(&self, fd: RawFd, writes: bool, kernel: impl FnOnce() -> T) -> T {
        self.finish_overwrites_of(fd);
        let Resolved::Served(description) = self.look(fd) else {
            self.drain_number(fd);
            let result = kernel();
            self.kernel_wrote(fd, writes);
            return result;
        };
        let file = &description.file;
        // What cannot be drained stays staged; the kernel's answer tells what it can.
        let _ = file.drain(self);
        let _ = file.fetch(self, fd);
        if description.is_handed() {
            let result = kernel();
            self.kernel_wrote(fd, writes);
            let _ = file.refresh(self, fd);
            return result;
        }
        let mut position = description.position();
        if !descriptors::stands_for(fd, &description) {
            // Replaced meanwhile: the call is the new one's, as if it had come later.
            drop(position);
            return kernel();
        }
        let number = sys::borrow(fd).ok();
        if let Some(number) = number
            && *position != AT_KERNEL
        {
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
            // A file without data to be made durable refuses.
            let _ = rustix::fs::fdatasync(fd);
        }
    }

    /// Before the kernel reckons from the position or from the end of `fd`.
    pub fn place_kernel(&self, fd: RawFd) {
        let Resolved::Served(description) = self.look(fd) else {
            self.drain_number(fd);
            return;
        };
        // What cannot be drained stays staged, and is tried again.
        let _ = description.file.drain(self);
        let _ = description.file.fetch(self, fd);
        let position = description.position();
        if !description.is_handed()
            && descriptors::stands_for(fd, &description)
            && *position != AT_KERNEL
            && let Ok(fd) = sys::borrow(fd)
        {
            let _ = rustix::fs::seek(fd, SeekFrom::Start(*position));
        }
    }

    /// Before the kernel's `fsync` of `fd`.
    pub fn sync(&self, fd: RawFd) -> Result<()> {
        if let Resolved::Served(description) = self.look(fd) {
            description.file.drain_as(self, true)?;
            description.file.synced();
        } else {
            self.drain_number(fd);
        }
        Ok(())
    }

    /// Before the kernel changes the file behind a path.
    pub fn drain_path(&self, stat: &rustix::fs::Stat, path: &[u8]) {
        if stat.st_dev != self.home.device || !self.anything_staged() {
            return;
        }
        if let Some(file) = self.known(stat.st_ino) {
            // What cannot be drained now stays staged, and is tried again.
            let _ = file.drain(self);
        }
        if self.home.records.find(stat.st_ino).is_some() {
            self.fetch_unserved(stat.st_ino, path);
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
        self.anything_staged() || self.has_old_times()
    }

    /// What this process has staged for a file goes to its place; whether there was anything.
    pub fn drain_own(&self, ino: u64) -> bool {
        self.has_runs()
            && self.known(ino).is_some_and(|file| {
                // What cannot be drained now stays staged, and is tried again.
                file.has_run.load(Ordering::Acquire) && file.drain(self).is_ok()
            })
    }

    /// The size of a file with what is staged for it; `None`: the kernel's `size` is right.
    pub fn size_of(&self, ino: u64, size: u64) -> Option<u64> {
        if self.has_runs()
            && let Some(file) = self.known(ino)
            && file.has_run.load(Ordering::Acquire)
        {
            return Some(file.size());
        }
        let records = &self.home.records;
        let record = records.find(ino)?;
        let staged = records.staged(record, ino).ok().flatten()?;
        let born = match self.known(ino).filter(|file| file.keeps_number()) {
            Some(file) => file.birth == staged.birth,
            None => self.is_born(record, ino, staged.birth),
        };
        (staged.base == size && born).then_some(staged.base + staged.length)
    }

    /// Whether a record's file has its inode number still, as far as its path tells.
    fn is_born(&self, record: usize, ino: u64, birth: u64) -> bool {
        // Closing it would drop the process's record locks.
        if self.has_locks(ino) {
            return true;
        }
        // Nor is another file opened that may lie there now.
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = self.home.records.path(record);
        let Ok(found) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else {
            return true;
        };
        let same = rustix::fs::fstat(&found)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.home.device, ino));
        !same || birth == 0 || sys::may_have_birth(&found, birth)
    }

    /// Sets the times of files that were written through windows.
    pub fn renew_times(&self) {
        if self.has_old_times() && self.old_times.swap(0, Ordering::Relaxed) != 0 {
            let files: Vec<_> = locked(&self.files).values().cloned().collect();
            for file in files {
                file.renew_times_by_own();
            }
        }
    }

    /// The program maps the file: what any descriptor appends to it must be in its pages.
    pub fn mapped(&self, fd: RawFd) {
        if matches!(self.look(fd), Resolved::Plain) {
            return;
        }
        let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat) else { return };
        if !self.may_be_ours(&stat) {
            return;
        }
        // First: a file that is not known yet is found there when it becomes so.
        locked(&self.mapped).insert(stat.st_ino);
        if let Some(file) = self.known(stat.st_ino) {
            // What cannot be drained now stays staged, and is tried again.
            let _ = file.be_direct(self);
        }
        self.drain_number(fd);
    }

    /// Before the process locks a part of the file behind `fd` by record.
    pub fn before_lock(&self, fd: RawFd) {
        self.locks.store(true, Ordering::Relaxed);
        let held = match self.look(fd) {
            Resolved::Served(held) => Some(held),
            Resolved::Fresh(calls) => self.adopt(fd, calls),
            Resolved::Unknown | Resolved::Plain => None,
        };
        if let Some(description) = held {
            description.file.before_lock(self, fd);
        } else if let Ok(stat) = sys::borrow(fd).and_then(rustix::fs::fstat) {
            locked(&self.locked).insert(stat.st_ino);
            if let Some(file) = self.known(stat.st_ino) {
                // No thread is between looking for the lock and closing what it opened.
                drop(file.change());
            }
        }
    }

    /// Status flags of `fd` have changed.
    pub fn flags_changed(&self, fd: RawFd) {
        if let Resolved::Served(description) = self.look(fd)
            && let Ok(flags) = sys::borrow(fd).and_then(rustix::fs::fcntl_getfl)
        {
            // A run begun by appends stays one.
            let _ = description.file.drain(self);
            description.appends.store(flags.contains(OFlags::APPEND), Ordering::Relaxed);
            if flags.contains(OFlags::DIRECT) {
                self.hand_over(fd);
            }
        }
    }

    /// The kernel's position of `fd` counts from now on.
    pub fn hand_over(&self, fd: RawFd) {
        match self.look(fd) {
            Resolved::Served(description) => {
                let _ = description.file.drain(self);
                let position = description.position();
                if !description.is_handed() && descriptors::stands_for(fd, &description) {
                    if let Ok(fd) = sys::borrow(fd)
                        && *position != AT_KERNEL
                    {
                        let _ = rustix::fs::seek(fd, SeekFrom::Start(*position));
                    }
                    description.hand();
                }
            }
            Resolved::Fresh(calls) => {
                if descriptors::replace_fresh(fd, calls, Slot::Unknown).is_err() {
                    self.hand_over(fd);
                }
            }
            Resolved::Unknown | Resolved::Plain => {}
        }
    }
}
