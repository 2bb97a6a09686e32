//! A volume that the preload library shows to this process: by the C library's calls, which it
//! serves without a system call.

use std::ffi::{CStr, CString, c_int};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmem::{Class, Policy, UserIn, UserOut};
use rustix::io::Errno;
use vfs::preloaded::{Preloaded, SYMBOL, Told, VERSION};

use super::{Answer, Names, OpenFile, Promise, Range, Seen, is_unlike};
use crate::{Error, Result};

/// The preload library's table, if this process has one.
pub fn table() -> Result<Option<&'static Preloaded>> {
    // SAFETY: a lookup by name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the function of that name is this one, in all versions; its table begins with the
    // version, and stays.
    let table = unsafe {
        let get: extern "C" fn() -> *const Preloaded = transmute(found);
        &*get()
    };
    // SAFETY: as above.
    let version = unsafe { CStr::from_ptr(table.version) };
    if version == VERSION {
        return Ok(Some(table));
    }
    let (theirs, own) = (version.to_string_lossy(), VERSION.to_string_lossy());
    let why = format!(
        "the program runs under `solera run` of version {theirs}, and this library has version \
         {own}; install both of one version"
    );
    Err(Error::System(why, Errno::NOEXEC))
}

/// The directory of a shown volume that `path` leads to; `None`: it leads to none.
pub fn find(path: &Path) -> Result<Option<Arc<dyn Names>>> {
    let Some(table) = table()? else { return Ok(None) };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = open(path, flags, 0).map_err(|errno| Error::refused("open the place", errno))?;
    let mut told = Told::NOTHING;
    // SAFETY: there is room for what is told.
    if unsafe { (table.of_descriptor)(opened.0, &raw mut told) } != 0 {
        let base = std::fs::canonicalize(path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::refused("find the place's path", errno)
        })?;
        if stat(&opened)?.st_mode & libc::S_IFMT != libc::S_IFDIR {
            let why = "the place is no directory".to_owned();
            return Err(Error::System(why, Errno::NOTDIR));
        }
        return Ok(Some(Arc::new(PreloadVolume { base, promise: Arc::new(promise(&told)?) })));
    }
    let stat = stat(&opened)?;
    of_file((stat.st_dev, stat.st_ino), Path::new(""))
}

/// A directory of the volume whose file or device has these numbers, if that is shown.
pub fn of_file((device, ino): (u64, u64), inside: &Path) -> Result<Option<Arc<dyn Names>>> {
    let Some(table) = table()? else { return Ok(None) };
    let mut told = Told::NOTHING;
    // SAFETY: there is room for what is told.
    if unsafe { (table.of_volume)(device, ino, &raw mut told) } == 0 {
        return Ok(None);
    }
    // SAFETY: what is told is text that stays.
    let prefix = unsafe { CStr::from_ptr(told.prefix) };
    let base = Path::new(std::ffi::OsStr::from_bytes(prefix.to_bytes())).join(inside);
    Ok(Some(Arc::new(PreloadVolume { base, promise: Arc::new(promise(&told)?) })))
}

fn promise(told: &Told) -> Result<Promise> {
    // SAFETY: what is told are texts that stay.
    let (class, reason) = unsafe { (CStr::from_ptr(told.class), CStr::from_ptr(told.reason)) };
    let class: Class = class.to_string_lossy().parse().map_err(|_| {
        Error::System("the preload library names no class of memory".to_owned(), Errno::PROTO)
    })?;
    let reason = reason.to_string_lossy().into_owned();
    // The library tells no policy: flushes that nobody needs are right, too.
    Ok(Promise {
        class,
        reason,
        policy: Policy::Flushed,
        durable: told.durable,
        atomic: told.atomic,
    })
}

fn stat(opened: &Descriptor) -> Result<libc::stat> {
    opened.stat().map_err(|errno| Error::refused("see what the place is", errno))
}

/// A directory below where a volume appears.
struct PreloadVolume {
    base: PathBuf,
    promise: Arc<Promise>,
}

/// What the C library says of its last call.
fn errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// What a call of the C library gave; made again where a signal ended it.
fn again(mut call: impl FnMut() -> isize) -> Answer<usize> {
    loop {
        let given = call();
        match usize::try_from(given) {
            Ok(given) => return Ok(given),
            Err(_) if errno() == Errno::INTR => {}
            Err(_) => return Err(errno()),
        }
    }
}

fn c_path(path: &Path) -> Answer<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

fn open(path: &Path, flags: c_int, mode: u32) -> Answer<Descriptor> {
    let path = c_path(path)?;
    // SAFETY: a path that stays during the call.
    again(|| unsafe { libc::open(path.as_ptr(), flags, mode) } as isize)
        .map(|fd| Descriptor(fd as c_int))
}

/// A number of the C library's, closed by it.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: its own number.
        unsafe { libc::close(self.0) };
    }
}

impl Descriptor {
    fn stat(&self) -> Answer<libc::stat> {
        // SAFETY: all bytes of it may be 0, and there is room for it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            again(|| libc::fstat(self.0, &raw mut stat) as isize)?;
            Ok(stat)
        }
    }

    /// Sets or asks for a lock of the description on `len` bytes from `at` on; 0: on all behind it.
    fn lock(&self, command: c_int, kind: c_int, at: u64, len: u64) -> Answer<libc::flock> {
        // SAFETY: all bytes of it may be 0; the command takes such a structure.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, at as i64, len as i64);
            again(|| libc::fcntl(self.0, command, &raw mut lock) as isize)?;
            Ok(lock)
        }
    }
}

impl Names for PreloadVolume {
    fn promise(&self) -> &Promise {
        &self.promise
    }

    fn open(&self, path: &Path, flags: c_int, mode: u32) -> Answer<Arc<dyn OpenFile>> {
        let descriptor = open(&self.base.join(path), flags | libc::O_CLOEXEC, mode)?;
        Ok(Arc::new(PreloadFile { descriptor, promise: Arc::clone(&self.promise) }))
    }

    fn open_like(&self, path: &Path, flags: c_int, like: &Seen) -> Answer<Arc<dyn OpenFile>> {
        let mode = like.mode & 0o777;
        let descriptor = open(&self.base.join(path), flags | libc::O_CLOEXEC, mode)?;
        if flags & libc::O_CREAT != 0 {
            let own = descriptor.stat()?;
            if is_unlike(&seen(&own), like) {
                let (uid, gid) = like.owner;
                // SAFETY: plain numbers. Only the superuser gives files away.
                unsafe {
                    libc::fchmod(descriptor.0, mode);
                    libc::fchown(descriptor.0, uid, gid);
                }
            }
        }
        Ok(Arc::new(PreloadFile { descriptor, promise: Arc::clone(&self.promise) }))
    }

    fn shown_at(&self) -> Option<&Path> {
        Some(&self.base)
    }

    fn is_here(&self) -> bool {
        // The preload library serves a child, too.
        true
    }

    fn look(&self, path: &Path) -> Answer<Seen> {
        let path = c_path(&self.base.join(path))?;
        // SAFETY: all bytes of it may be 0, there is room for it, and the path stays.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            again(|| libc::stat(path.as_ptr(), &raw mut stat) as isize)?;
            Ok(seen(&stat))
        }
    }

    fn may_write(&self, path: &Path) -> Answer<bool> {
        let path = c_path(&self.base.join(path))?;
        // SAFETY: a path that stays during the call.
        match again(|| unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) } as isize) {
            Ok(_) => Ok(true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn read_link(&self, path: &Path) -> Answer<PathBuf> {
        std::fs::read_link(self.base.join(path))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn link(&self, path: &Path, new: &Path) -> Answer<()> {
        let (path, new) = (c_path(&self.base.join(path))?, c_path(&self.base.join(new))?);
        // SAFETY: paths that stay during the call.
        again(|| unsafe { libc::link(path.as_ptr(), new.as_ptr()) } as isize).map(drop)
    }

    fn unlink(&self, path: &Path) -> Answer<()> {
        let path = c_path(&self.base.join(path))?;
        // SAFETY: as above.
        again(|| unsafe { libc::unlink(path.as_ptr()) } as isize).map(drop)
    }

    fn sync(&self) -> Answer<()> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let directory = open(&self.base, flags, 0)?;
        // SAFETY: plain numbers.
        again(|| unsafe { libc::syncfs(directory.0) } as isize).map(drop)
    }
}

fn seen(stat: &libc::stat) -> Seen {
    Seen {
        identity: (stat.st_dev, stat.st_ino),
        is_file: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
        size: stat.st_size as u64,
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
    }
}

struct PreloadFile {
    descriptor: Descriptor,
    promise: Arc<Promise>,
}

impl OpenFile for PreloadFile {
    fn promise(&self) -> &Promise {
        &self.promise
    }

    fn look(&self) -> Answer<Seen> {
        self.descriptor.stat().map(|stat| seen(&stat))
    }

    fn size(&self) -> Answer<Option<u64>> {
        let stat = self.descriptor.stat()?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => Err(Errno::ISDIR),
            kind => Ok((kind == libc::S_IFREG).then_some(stat.st_size as u64)),
        }
    }

    fn read(&self, at: u64, to: &UserOut<'_>) -> Answer<usize> {
        // SAFETY: the caller's memory, which is its to overwrite; the call checks it.
        again(|| unsafe { libc::pread(self.descriptor.0, to.start().cast(), to.len(), at as i64) })
    }

    fn write(&self, at: u64, parts: &[UserIn<'_>]) -> Answer<usize> {
        let part = |from: &UserIn<'_>| libc::iovec {
            iov_base: from.start().cast_mut().cast(),
            iov_len: from.len(),
        };
        if let [from] = parts {
            // SAFETY: the caller's memory; the call checks it.
            return again(|| unsafe {
                libc::pwrite(self.descriptor.0, from.start().cast(), from.len(), at as i64)
            });
        }
        let parts: Vec<_> = parts.iter().map(part).collect();
        let count = parts.len() as c_int;
        // SAFETY: as above.
        again(|| unsafe { libc::pwritev(self.descriptor.0, parts.as_ptr(), count, at as i64) })
    }

    fn append(&self, from: &UserIn<'_>) -> Answer<(usize, u64)> {
        let part = libc::iovec { iov_base: from.start().cast_mut().cast(), iov_len: from.len() };
        let fd = self.descriptor.0;
        // SAFETY: as above. At the position, which the call moves to the end.
        let count =
            again(|| unsafe { libc::pwritev2(fd, &raw const part, 1, -1, libc::RWF_APPEND) })?;
        // SAFETY: plain numbers.
        let end = again(|| unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } as isize)?;
        Ok((count, end as u64))
    }

    fn truncate(&self, size: u64) -> Answer<()> {
        // SAFETY: plain numbers.
        again(|| unsafe { libc::ftruncate(self.descriptor.0, size as i64) } as isize).map(drop)
    }

    fn allocate(&self, size: u64) -> Answer<()> {
        // SAFETY: plain numbers.
        again(|| unsafe { libc::fallocate(self.descriptor.0, 0, 0, size as i64) } as isize)
            .map(drop)
    }

    fn sync(&self) -> Answer<()> {
        // SAFETY: plain numbers.
        again(|| unsafe { libc::fsync(self.descriptor.0) } as isize).map(drop)
    }

    fn lock_range(&self, lock: Range, at: u64, len: u64) -> Answer<()> {
        let kind = if lock == Range::Alone { libc::F_WRLCK } else { libc::F_RDLCK };
        match self.descriptor.lock(libc::F_OFD_SETLK, kind, at, len) {
            Err(Errno::ACCESS) => Err(Errno::AGAIN),
            done => done.map(drop),
        }
    }

    fn unlock_range(&self, at: u64, len: u64) -> Answer<()> {
        self.descriptor.lock(libc::F_OFD_SETLK, libc::F_UNLCK, at, len).map(drop)
    }

    fn test_range(&self, at: u64, len: u64) -> Answer<Option<Range>> {
        let found = self.descriptor.lock(libc::F_OFD_GETLK, libc::F_WRLCK, at, len)?;
        Ok(match c_int::from(found.l_type) {
            libc::F_UNLCK => None,
            libc::F_RDLCK => Some(Range::Shared),
            _ => Some(Range::Alone),
        })
    }

    unsafe fn map(&self, at: *mut u8, from: u64, len: u64, write: bool) -> Answer<()> {
        let prot = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // Populated: what is not there is filled now, and no fault of this library's finds it
        // missing.
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
        // SAFETY: the caller's promise.
        let mapped = unsafe {
            libc::mmap(at.cast(), len as usize, prot, flags, self.descriptor.0, from as i64)
        };
        if mapped == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
    }
}
