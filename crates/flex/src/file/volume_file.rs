//! A file of a volume: its engine reads, writes and keeps the length; what is looked at is mapped.
//!
//! PERSIST: a call that has returned is durable, or, where the engine's mode does not promise that
//! and in class `page`, durable after a sync, which a fence makes then. Stores through a view are
//! durable by their write-back and a fence: the blocks under it are the file's since it was mapped.
//!
//! Locks: `appends`, for appends.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pmem::{Class, UserIn, UserOut};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{FileOptions, Length, PAGE_BYTES, opened};
use crate::opener::Opener;
use crate::volumes::{Mapping, Names, OpenFile};
use crate::{Error, Result};

/// An open file of a volume.
pub struct VolumeFile {
    /// Before the file, which it is of.
    mapping: OnceLock<Mapping>,
    file: Arc<dyn OpenFile>,
    opener: Opener,
    options: FileOptions,
    opened: u64,
    /// The length, as this process knows it.
    len: AtomicU64,
    appends: Mutex<()>,
}

/// A call of the engine failed.
fn failed(what: &str, errno: Errno) -> Error {
    if errno == Errno::FAULT { Error::Caller } else { Error::refused(what, errno) }
}

impl VolumeFile {
    /// Opens a file of a volume's directory.
    pub fn open(names: &dyn Names, path: &Path, options: &FileOptions) -> Result<Self> {
        let open = |flags: OFlags| names.open(path, flags.bits() as i32, options.mode);
        // A link that leads nowhere is found to be one by the open that makes nothing.
        let leads_on = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            names.open(path, flags.bits() as i32, 0).is_ok()
        };
        let (file, _) = opened(options, open, leads_on)?;
        let found = file.size().map_err(|errno| Error::refused("read the file's length", errno))?;
        let len = found.ok_or(Error::Invalid("it is no regular file"))?;
        let opener =
            Opener::new().map_err(|errno| Error::refused("get memory for the file", errno))?;
        let size = options.size.max(len).next_multiple_of(PAGE_BYTES);
        Ok(Self {
            mapping: OnceLock::new(),
            file,
            opener,
            options: FileOptions { size, ..*options },
            opened: len,
            len: AtomicU64::new(len),
            appends: Mutex::new(()),
        })
    }

    pub fn class(&self) -> (Class, &str) {
        let promise = self.file.promise();
        (promise.class, &promise.reason)
    }

    pub fn opened(&self) -> Length {
        Length::Exact(self.opened)
    }

    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub fn length(&self) -> Result<u64> {
        self.check()?;
        let size = self.size_now()?;
        self.len.store(size, Ordering::Release);
        Ok(size)
    }

    /// Writes bytes behind the end; gives where they begin.
    pub fn append_from(&self, bytes: &UserIn<'_>) -> Result<u64> {
        self.check_writable()?;
        let _appends = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.check_whole()?;
        self.check_size(at, bytes)?;
        let mut done = 0;
        while done < bytes.len() {
            let rest = bytes.slice(done, bytes.len() - done);
            let appended = self.file.append(&rest).and_then(written);
            let (count, end) = appended.map_err(|errno| failed("append to the file", errno))?;
            self.len.fetch_max(end, Ordering::AcqRel);
            done += count;
            if done == bytes.len() {
                return Ok(end - done as u64);
            }
        }
        Ok(at)
    }

    /// Writes bytes to `offset`.
    pub fn write_at_from(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        self.check_writable()?;
        self.check_whole()?;
        self.write(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        self.check_size(offset, bytes)?;
        let mut done = 0;
        while done < bytes.len() {
            let rest = bytes.slice(done, bytes.len() - done);
            let at = offset + done as u64;
            let wrote = self.file.write(at, &[rest]).and_then(|count| written((count, 0)));
            done += wrote.map_err(|errno| failed("write to the file", errno))?.0;
            self.len.fetch_max(offset + done as u64, Ordering::AcqRel);
        }
        Ok(())
    }

    pub fn write_atomic(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        self.check_writable()?;
        if !self.file.promise().atomic {
            let why = "writes are atomic in mode `strict` only; run the program so";
            return Err(Error::System(why.to_owned(), Errno::NOTSUP));
        }
        self.write_at_from(offset, bytes)?;
        self.fence()
    }

    /// Copies bytes from `offset` on.
    pub fn read_at_to(&self, offset: u64, to: &UserOut<'_>) -> Result<usize> {
        self.check()?;
        if offset > i64::MAX as u64 {
            return Ok(0);
        }
        let count = self.file.read(offset, to).map_err(|errno| match errno {
            Errno::IO => Error::Memory,
            errno => failed("read the file", errno),
        })?;
        let end = offset + count as u64;
        if count < to.len() && end < self.len() {
            self.check_whole()?;
        }
        self.len.fetch_max(end, Ordering::AcqRel);
        Ok(count)
    }

    pub fn view(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.check()?;
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            self.length()?;
        }
        self.check_range(offset, len)?;
        let mapping = self.mapping()?;
        mapping.cover(&*self.file, self.len().min(self.options.size))?;
        let at = mapping.region().base().wrapping_add(offset as usize);
        NonNull::new(at).ok_or(Error::Memory)
    }

    fn mapping(&self) -> Result<&Mapping> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let made = Mapping::new(&*self.file, self.options.size, !self.options.read_only)?;
        // Another thread may have been faster.
        Ok(self.mapping.get_or_init(|| made))
    }

    pub fn offset_of(&self, at: *const u8) -> Result<u64> {
        let base = self.mapping.get().map_or(0, |mapping| mapping.region().base() as usize);
        let offset = (at as usize).wrapping_sub(base) as u64;
        if base == 0 || offset > self.len() {
            return Err(Error::Invalid("the address is not of a view of this file"));
        }
        Ok(offset)
    }

    pub fn flush(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        if let Some(mapping) = self.mapping.get() {
            // The caller's ticket stands for it.
            let _ = mapping.region().flush(offset, len);
        }
        Ok(())
    }

    #[inline]
    pub fn fence(&self) -> Result<()> {
        self.check()?;
        pmem::fence();
        if self.file.promise().needs_sync() { self.sync() } else { Ok(()) }
    }

    #[cold]
    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|errno| Error::refused("make the file durable", errno))
    }

    pub fn sync_len(&self) -> Result<()> {
        self.check_writable()?;
        pmem::fence();
        self.sync()
    }

    pub fn truncate(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        if len > self.options.size {
            return Err(Error::TooLarge { most: self.options.size });
        }
        let before = self.len.swap(len, Ordering::AcqRel);
        self.file.truncate(len).map_err(|errno| {
            self.len.store(before, Ordering::Release);
            Error::refused("set the file's length", errno)
        })
    }

    fn size_now(&self) -> Result<u64> {
        let size = self.file.size();
        let size = size.map_err(|errno| Error::refused("read the file's length", errno))?;
        Ok(size.unwrap_or(0))
    }

    /// The length, which nobody has cut: of this process's own cut both are told.
    fn check_whole(&self) -> Result<u64> {
        loop {
            let (known, size) = (self.len(), self.size_now()?);
            if size >= known {
                return Ok(size);
            }
            if self.len() == known {
                return Err(Error::Truncated { size });
            }
        }
    }

    fn check_size(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        let most = self.options.size;
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > most) { Err(Error::TooLarge { most }) } else { Ok(()) }
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(Error::Invalid("the range does not lie inside the file"));
        }
        Ok(())
    }

    #[inline]
    fn check(&self) -> Result<()> {
        if self.opener.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    #[inline]
    fn check_writable(&self) -> Result<()> {
        self.check()?;
        if self.options.read_only {
            let why = "the file is open for reading only".to_owned();
            return Err(Error::System(why, Errno::BADF));
        }
        Ok(())
    }
}

/// A write of nothing would be tried for ever.
fn written((count, end): (usize, u64)) -> core::result::Result<(usize, u64), Errno> {
    if count == 0 { Err(Errno::NOSPC) } else { Ok((count, end)) }
}
