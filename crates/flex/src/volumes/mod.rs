//! Volumes as places: their files and names, by the face that this process has of them. For
//! libraries that keep files of their own on volumes; [`crate::File`] and [`crate::Log`] do so.
//!
//! A process has *one* engine for a volume, since its liveness is a lock of the process's that any
//! close of that file drops. Under `solera run` that is the preload library's, which serves the C
//! library's calls ([`preload_engine`]); else it is this library's own ([`own_engine`]).

mod mapping;
mod own_engine;
mod preload_engine;

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmem::{Class, Policy, UserIn, UserOut};
use rustix::io::Errno;

use crate::{Error, Result};
pub use mapping::Mapping;
pub(crate) use preload_engine::table as preloaded;

/// What calls on a volume's files give.
pub type Answer<T> = core::result::Result<T, Errno>;

/// What a volume promises to this process.
#[derive(Clone, Debug)]
pub struct Promise {
    /// What a fence promises on its memory.
    pub class: Class,
    /// Why.
    pub reason: String,
    /// What stores of it need to be durable.
    pub policy: Policy,
    /// A call that has returned is durable.
    pub durable: bool,
    /// A write is atomic.
    pub atomic: bool,
}

impl Promise {
    /// Whether a fence is not enough.
    pub fn needs_sync(&self) -> bool {
        !self.durable || self.class == Class::Page
    }
}

/// What is seen of a file.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Tells it from the volume's other files, also from those that are gone.
    pub identity: (u64, u64),
    /// A regular file, not a directory or what else.
    pub is_file: bool,
    /// Bytes.
    pub size: u64,
    /// The lower 12 bits: permissions, set-id, sticky.
    pub mode: u32,
    /// Its user and group.
    pub owner: (u32, u32),
}

/// Whether an empty file has not the permissions and owner of another.
fn is_unlike(own: &Seen, like: &Seen) -> bool {
    own.size == 0 && (own.mode & 0o777 != like.mode & 0o777 || own.owner != like.owner)
}

/// A lock on a range of bytes, of one opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// Others may have it shared, too.
    Shared,
    /// Nobody else has any.
    Alone,
}

/// A directory of a volume. Paths are relative, without `..`.
pub trait Names: Send + Sync {
    /// What its volume promises.
    fn promise(&self) -> &Promise;

    /// Opens a file with `O_*` flags; makes it with the permissions of `like`, whatever the umask,
    /// and, where the user may give files away, with its owner.
    fn open_like(&self, path: &Path, flags: c_int, like: &Seen) -> Answer<Arc<dyn OpenFile>>;

    /// Where the C library's calls find this directory; `None`: nowhere.
    fn shown_at(&self) -> Option<&Path>;

    /// Whether the process is the one that found this, not a child of it.
    fn is_here(&self) -> bool;

    /// What is at a path; symlinks are followed. Permissions need not be asked. `ENOENT`.
    fn look(&self, path: &Path) -> Answer<Seen>;

    /// Whether the calling thread's user may read and write what is at a path. `ENOENT`.
    fn may_write(&self, path: &Path) -> Answer<bool>;

    /// Where a symlink leads to. `EINVAL`: it is none.
    fn read_link(&self, path: &Path) -> Answer<PathBuf>;

    /// Opens a file with `O_*` flags; makes it with the permissions `mode`.
    fn open(&self, path: &Path, flags: c_int, mode: u32) -> Answer<Arc<dyn OpenFile>>;

    /// Gives a file one name more. `EEXIST`.
    fn link(&self, path: &Path, new: &Path) -> Answer<()>;

    /// Takes a name away.
    fn unlink(&self, path: &Path) -> Answer<()>;

    /// Makes everything on the volume durable.
    fn sync(&self) -> Answer<()>;
}

/// An open file of a volume; the last owner closes it.
pub trait OpenFile: Send + Sync {
    /// What its volume promises.
    fn promise(&self) -> &Promise;

    /// What is seen of it.
    fn look(&self) -> Answer<Seen>;

    /// Its size; `None`: it is no regular file. `EISDIR`.
    fn size(&self) -> Answer<Option<u64>>;

    /// Reads; fewer bytes only at the end.
    fn read(&self, at: u64, to: &UserOut<'_>) -> Answer<usize>;

    /// Writes all parts, one behind the other, as one write.
    fn write(&self, at: u64, parts: &[UserIn<'_>]) -> Answer<usize>;

    /// Writes behind the end, wherever other processes have moved it; gives the bytes written, and
    /// where they end. By one thread at a time.
    fn append(&self, from: &UserIn<'_>) -> Answer<(usize, u64)>;

    /// Sets the size.
    fn truncate(&self, size: u64) -> Answer<()>;

    /// Makes it `size` bytes long, with space for all of them.
    fn allocate(&self, size: u64) -> Answer<()>;

    /// Makes everything durable.
    fn sync(&self) -> Answer<()>;

    /// Locks `len` bytes from `at` on for this opening, in place of what it has there. At once:
    /// `EAGAIN`, another has them.
    fn lock_range(&self, lock: Range, at: u64, len: u64) -> Answer<()>;

    /// Gives back what this opening has locked of `len` bytes from `at` on; 0: of all.
    fn unlock_range(&self, at: u64, len: u64) -> Answer<()>;

    /// A lock of another's that excludes [`Range::Alone`] there.
    fn test_range(&self, at: u64, len: u64) -> Answer<Option<Range>>;

    /// Maps `len` bytes from `from` on, whole pages inside the file, at `at`. `ENODEV`: its memory
    /// cannot be mapped by pages.
    ///
    /// # Safety
    ///
    /// The addresses are the caller's, and nothing uses what is mapped there.
    unsafe fn map(&self, at: *mut u8, from: u64, len: u64, write: bool) -> Answer<()>;
}

/// The volume's directory that `path` leads to. `None`: it leads to none of a volume. `page`: also
/// where a volume lies on an ordinary disk.
pub fn find(path: &Path, page: bool) -> Result<Option<Arc<dyn Names>>> {
    match preload_engine::find(path)? {
        Some(shown) => Ok(Some(shown)),
        None => own_engine::find(path, page),
    }
}

/// The root of a volume that the caller has attached, and leaves: for tests. It cannot be mapped.
pub fn of_volume(volume: Arc<volume::Volume>) -> Result<Arc<dyn Names>> {
    own_engine::of_volume(volume)
}

/// The volume that a directory is mounted of, and where the directory lies in it. `None`: it lies
/// in no mount of a volume, or in one that is read-only, or whose volume is no longer at its path.
pub fn mounted(directory: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let found = own_engine::mounted(directory)?;
    let found = found
        .filter(|(mount, _)| !mount.read_only && !mount.has_lost_its_file(mount.serves().as_ref()));
    Ok(found.map(|(mount, inside)| (mount.volume, inside)))
}

/// Why a volume's file could not be mapped.
pub(crate) fn not_mapped(errno: Errno) -> Error {
    if errno == Errno::NODEV {
        let why = "the volume's memory cannot be mapped by pages of 4 KiB";
        return Error::System(why.to_owned(), errno);
    }
    Error::refused("map the file", errno)
}
