//! A file of a kernel file system, as memory: without a system call but where it grows.
//!
//! Address space for the largest size is taken at once, so nothing ever moves. While it is open for
//! writing the file is longer than its contents, by zeros, up to a step; a close and
//! [`MappedFile::sync_len`] cut it to its length.
//!
//! PERSIST: bytes are streamed, and durable after a fence of the same thread; in class `page` that
//! is `fdatasync`.
//!
//! CRASH: of what is not yet durable any part may be there. The length is at most that of the file,
//! and what lies behind the last [`MappedFile::sync_len`] may be zeros ([`Length::AtMost`]).
//!
//! Locks: `size`, for what makes the file longer or shorter; writes inside it take none.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::{Class, Fault, Locality, OpenOptions, Policy, Purpose, Region, UserIn, UserOut};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode};
use rustix::io::Errno;

use super::{FileOptions, Length, PAGE_BYTES, opened};
use crate::opener::Opener;
use crate::{Error, Result};

/// An open file of a kernel file system.
pub struct MappedFile {
    region: Region,
    opener: Opener,
    options: FileOptions,
    opened: Length,
    /// Bytes of the program's.
    len: AtomicU64,
    /// Bytes of the file, as this process made it: `len` or more.
    size: Mutex<u64>,
    /// A write to the medium has failed.
    unsynced: AtomicBool,
}

impl MappedFile {
    /// As [`super::File::open`].
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self> {
        let mode = Mode::from_raw_mode(options.mode);
        let open = |flags| rustix::fs::open(path, flags, mode);
        let (file, is_new) = opened(options, open, || leads_on(path))?;
        Self::of(file, path, options).inspect_err(|_| {
            if is_new {
                // It is this call's own, and empty. What cannot be removed stays.
                let _ = rustix::fs::unlink(path);
            }
        })
    }

    fn of(file: OwnedFd, path: &Path, options: &FileOptions) -> Result<Self> {
        let writes = !options.read_only;
        let stat = rustix::fs::fstat(&file)
            .map_err(|errno| Error::refused("read the file's length", errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Error::refused("use it as a file", Errno::ISDIR)),
            _ => return Err(Error::Invalid("it is no regular file")),
        }
        let step = options.step.max(1).next_multiple_of(PAGE_BYTES);
        let size = options.size.max(stat.st_size as u64).next_multiple_of(PAGE_BYTES);
        let region = OpenOptions {
            write: writes,
            allow_page: options.page,
            reserve: size - stat.st_size as u64,
            purpose: Purpose::Growing,
            ..OpenOptions::default()
        };
        let region = Region::adopt(file, path, &region)?;
        let len = region.len();
        let opened = if ends_in_zero(&region, len)? { Length::AtMost } else { Length::Exact };
        Self::over(region, FileOptions { size, step, ..*options }, opened(len), len)
    }

    /// An empty file in a region that nobody else has, and that holds zeros: for tests.
    pub fn create_on(region: Region) -> Result<Self> {
        let options = FileOptions { size: region.len(), ..FileOptions::default() };
        Self::over(region, options, Length::Exact(0), 0)
    }

    fn over(region: Region, options: FileOptions, opened: Length, len: u64) -> Result<Self> {
        let opener =
            Opener::new().map_err(|errno| Error::refused("get memory for the file", errno))?;
        let size = Mutex::new(region.len());
        let (len, unsynced) = (AtomicU64::new(len), AtomicBool::new(false));
        Ok(Self { region, opener, options, opened, len, size, unsynced })
    }

    /// What a fence promises here, and why.
    pub fn class(&self) -> (Class, &str) {
        (self.region.class(), self.region.class_reason())
    }

    /// The length that was found when it was opened.
    pub fn opened(&self) -> Length {
        self.opened
    }

    /// The length, in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The length now, also of what another process appends to. Errors: `Forked`.
    pub fn length(&self) -> Result<u64> {
        self.check()?;
        self.look_again()?;
        Ok(self.len())
    }

    // ---- writing

    /// Streams bytes behind the end; gives where they begin.
    pub fn append_from(&self, bytes: &UserIn<'_>) -> Result<u64> {
        self.check_writable()?;
        let mut size = self.lock_size();
        let at = self.len();
        self.store(&mut size, at, bytes)?;
        Ok(at)
    }

    /// Streams bytes to `offset`.
    pub fn write_at_from(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        self.check_writable()?;
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.len() {
            return self.store(&mut self.lock_size(), offset, bytes);
        }
        match self.region.stream_from(offset, bytes, Locality::Near) {
            Ok(_) => Ok(()),
            // This process may have cut it, and made it longer since: not behind the lock.
            Err(Fault::Region) => {
                let mut size = self.lock_whole()?;
                self.store(&mut size, offset, bytes)
            }
            Err(fault) => Err(self.failed(fault, end)),
        }
    }

    /// Streams bytes that may end behind the end of the file.
    fn store(&self, size: &mut u64, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        self.make_room(size, end)?;
        if let Err(fault) = self.region.stream_from(offset, bytes, Locality::Near) {
            // What lies behind the length is zeros.
            let from = self.len().max(offset);
            if from < end && fault == Fault::Caller {
                self.region.stream_zero(from, end - from)?.fence();
            }
            return Err(self.failed(fault, end));
        }
        self.len.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the file `end` bytes long or longer, with memory for all of it: else a store would
    /// find the file system full.
    fn make_room(&self, size: &mut u64, end: u64) -> Result<()> {
        if end <= *size {
            return Ok(());
        }
        let most = self.options.size;
        if end > most {
            return Err(Error::TooLarge { most });
        }
        let there = self.size_now()?;
        if there < *size {
            return Err(Error::Truncated { size: there });
        }
        let step = self.options.step;
        let mut to = end.div_ceil(step).saturating_mul(step).min(most);
        let longer = self.lengthen(*size, to).or_else(|_| {
            // A part may have been had. Perhaps what is needed now fits.
            let _ = self.region.cut(*size);
            to = end.next_multiple_of(PAGE_BYTES);
            self.lengthen(*size, to)
        });
        longer.map_err(|errno| {
            let _ = self.region.cut(*size);
            Error::refused("get space for the file", errno)
        })?;
        self.region.grown(to).map_err(|errno| Error::refused("map the file's new end", errno))?;
        match self.region.class() {
            Class::Page => {}
            class => {
                // All at once: a fault for each page would cost more. Where it fails they come so.
                let _ = self.region.populate(*size, to - *size);
                if class != Class::Volatile {
                    // PERSIST: the length, which a page that is there already does not bring.
                    self.sync_data()?;
                }
            }
        }
        *size = to;
        Ok(())
    }

    fn lengthen(&self, from: u64, to: u64) -> core::result::Result<(), Errno> {
        let (file, none) = (self.file().map_err(|_| Errno::NOSPC)?, FallocateFlags::empty());
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, none, from, to - from)) {
            Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(file, to),
            done => done,
        }
    }

    // ---- reading

    /// Copies bytes from `offset` on.
    pub fn read_at_to(&self, offset: u64, to: &UserOut<'_>) -> Result<usize> {
        self.check()?;
        if offset.saturating_add(to.len() as u64) > self.len() {
            self.look_again()?;
        }
        let failed = |(fault, end)| self.failed(fault, end);
        match self.read_what_is_there(offset, to) {
            // As for a write: nobody here cuts it meanwhile.
            Err((Fault::Region, _)) => {
                let _size = self.lock_whole()?;
                self.read_what_is_there(offset, to).map_err(failed)
            }
            read => read.map_err(failed),
        }
    }

    /// Gives, of a fault, also where the bytes asked for end.
    #[inline]
    fn read_what_is_there(
        &self,
        offset: u64,
        to: &UserOut<'_>,
    ) -> core::result::Result<usize, (Fault, u64)> {
        let count = (to.len() as u64).min(self.len().saturating_sub(offset));
        if count > 0 {
            let read = self.region.read_to(offset, to, count as usize);
            read.map_err(|fault| (fault, offset + count))?;
        }
        Ok(count as usize)
    }

    /// A reader's file may have grown.
    fn look_again(&self) -> Result<()> {
        if self.options.read_only { self.look_at_length() } else { Ok(()) }
    }

    #[cold]
    fn look_at_length(&self) -> Result<()> {
        let mut size = self.lock_size();
        *size = self.size_now()?.min(self.options.size);
        self.region
            .grown(*size)
            .map_err(|errno| Error::refused("map the file's new end", errno))?;
        self.len.store(*size, Ordering::Release);
        Ok(())
    }

    // ---- the memory itself

    /// Where bytes lie: they stay there while the file is open. A load where another process has
    /// cut the file is a `SIGBUS`, as of any mapping. Errors: `Invalid` beyond the end.
    pub fn view(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.check()?;
        if offset.saturating_add(len) > self.len() {
            self.look_again()?;
        }
        self.check_range(offset, len)?;
        let at = self.region.base().wrapping_add(offset as usize);
        NonNull::new(at).ok_or(Error::Memory)
    }

    /// The offset of an address that [`super::File::view`] gave. Errors: `Invalid`.
    pub fn offset_of(&self, at: *const u8) -> Result<u64> {
        let offset = (at as usize).wrapping_sub(self.region.base() as usize) as u64;
        self.check_range(offset, 0).map(|()| offset)
    }

    /// Starts writing back what any thread has stored there before.
    pub fn flush(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        // The caller's ticket stands for it.
        let _ = self.region.flush(offset, len);
        Ok(())
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(Error::Invalid("the range does not lie inside the file"));
        }
        Ok(())
    }

    // ---- durability and length

    /// Returns when all that this thread has streamed or flushed is durable.
    #[inline]
    pub fn fence(&self) -> Result<()> {
        self.check()?;
        self.region.fence();
        if self.region.policy() == Policy::Plain {
            // ORDER: the program may have stored around the cache itself.
            pmem::fence();
        }
        if self.region.needs_sync() { self.sync_data() } else { Ok(()) }
    }

    /// What fails once is not there, whatever the next call says: the kernel tells of it once.
    #[cold]
    fn sync_data(&self) -> Result<()> {
        let file = self.file()?;
        let synced = rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file));
        self.remember(synced).map_err(|errno| Error::refused("write the file to its medium", errno))
    }

    fn remember(&self, synced: core::result::Result<(), Errno>) -> core::result::Result<(), Errno> {
        if synced.is_err() {
            self.unsynced.store(true, Ordering::Relaxed);
        }
        if self.unsynced.load(Ordering::Relaxed) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Makes the file's length exact, and durable, with all that this thread has streamed.
    pub fn sync_len(&self) -> Result<()> {
        self.check_writable()?;
        let mut size = self.lock_size();
        self.region.fence();
        self.cut(&mut size)?;
        let file = self.file()?;
        let synced = rustix::io::retry_on_intr(|| rustix::fs::fsync(file));
        self.remember(synced)
            .map_err(|errno| Error::refused("write the file's length to its medium", errno))
    }

    /// Makes the file `len` bytes long. What it grows by is zeros. Durable after
    /// [`super::File::sync_len`]. What other threads write behind the new end meanwhile is lost, or
    /// not.
    pub fn truncate(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        let mut size = self.lock_size();
        if len > self.len() {
            self.make_room(&mut size, len)?;
            self.len.store(len, Ordering::Release);
            return Ok(());
        }
        let before = self.len.swap(len, Ordering::AcqRel);
        self.cut(&mut size).inspect_err(|_| self.len.store(before, Ordering::Release))
    }

    /// Cuts the file to its length.
    fn cut(&self, size: &mut u64) -> Result<()> {
        let len = self.len();
        if len != *size {
            rustix::io::retry_on_intr(|| self.region.cut(len))
                .map_err(|errno| Error::refused("cut the file to its length", errno))?;
            *size = len;
        }
        Ok(())
    }

    /// As a drop does it; tells whether its length could be set.
    pub fn end(&self) -> Result<()> {
        if !self.opener.is_here() || self.options.read_only {
            return Ok(());
        }
        self.cut(&mut self.lock_size())
    }

    // ---- what all of them need

    #[inline]
    fn check(&self) -> Result<()> {
        if self.opener.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check()?;
        if self.options.read_only {
            let why = "the file is open for reading only".to_owned();
            return Err(Error::System(why, Errno::BADF));
        }
        Ok(())
    }

    fn lock_size(&self) -> MutexGuard<'_, u64> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same of a file that nobody else has cut. Errors: `Truncated`.
    #[cold]
    fn lock_whole(&self) -> Result<MutexGuard<'_, u64>> {
        let (size, there) = (self.lock_size(), self.size_now()?);
        if there < *size { Err(Error::Truncated { size: there }) } else { Ok(size) }
    }

    fn file(&self) -> Result<BorrowedFd<'_>> {
        let fd = self.region.fd();
        if fd < 0 {
            return Err(Error::refused("find a file of this memory", Errno::BADF));
        }
        // SAFETY: the region's own descriptor, which is open as long as the region lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The length of the file for everybody.
    fn size_now(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(self.file()?);
        stat.map(|stat| stat.st_size as u64)
            .map_err(|errno| Error::refused("read the file's length", errno))
    }

    /// What an access that ends at `end` met.
    #[cold]
    fn failed(&self, fault: Fault, end: u64) -> Error {
        match self.size_now() {
            Ok(size) if fault == Fault::Region && size < end => Error::Truncated { size },
            _ => Error::from(fault),
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // `close` tells of an error; a drop cannot.
        let _ = self.end();
    }
}

/// Whether a path is a symbolic link, wherever it leads.
fn leads_on(path: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Whether a file may have been left by a writer that did not close it: it fills whole pages, and
/// ends in a zero.
fn ends_in_zero(region: &Region, len: u64) -> Result<bool> {
    if len == 0 || !len.is_multiple_of(PAGE_BYTES) {
        return Ok(false);
    }
    let mut last = [0];
    region.read(len - 1, &mut last)?;
    Ok(last == [0])
}
