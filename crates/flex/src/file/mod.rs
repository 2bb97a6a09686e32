//! A file as memory (Xu et al., ASPLOS 2019, section 3.4): read by copies, written by streams,
//! durable by one fence.
//!
//! On a kernel file system it is mapped whole ([`mapped_file`]); on a volume calls go to its
//! engine, and only what is looked at is mapped ([`volume_file`]).
//!
//! PERSIST: bytes are streamed, and durable after a fence *of the same thread* ([`Ticket::wait`],
//! [`File::fence`]): a fence drains the streams of its own thread only. Stores through
//! [`File::view`] are durable after [`File::persist`], whichever thread made them.

mod mapped_file;
mod volume_file;

use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

use pmem::{Class, Region, UserIn, UserOut};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::volumes::Names;
use crate::{Error, Result};
use mapped_file::MappedFile;
use volume_file::VolumeFile;

const PAGE_BYTES: u64 = 4096;
/// So much can be mapped.
const SIZE_MAX: u64 = 64 << 40;

/// Whether a file is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// It must be there.
    Never,
    /// If it is not there.
    Missing,
    /// It must not be there.
    New,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bytes that it may grow to, 64 TiB at most, rounded up to 4 KiB: so much address space is
    /// taken. A file that is longer already does not grow.
    pub size: u64,
    /// Bytes that it grows by, rounded up to 4 KiB: each step costs a few system calls.
    pub step: u64,
    /// For reading only.
    pub read_only: bool,
    /// Whether it is made.
    pub create: Create,
    /// Take a plain file of the page cache, too: each wait is an `fdatasync` there.
    pub page: bool,
    /// The permissions of a file that is made.
    pub mode: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            size: 64 << 30,
            step: 2 << 20,
            read_only: false,
            create: Create::Never,
            page: false,
            mode: 0o600,
        }
    }
}

/// What is known of a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Bytes.
    Exact(u64),
    /// Bytes, of which the last may be zeros that nobody wrote: a writer ended without closing.
    AtMost(u64),
}

/// An open file. All calls may come from any thread.
pub struct File {
    backing: Backing,
}

// Each file is one of them for good, behind a handle.
#[allow(clippy::large_enum_variant)]
enum Backing {
    MappedFile(MappedFile),
    Volume(VolumeFile),
}

/// The same call on either.
macro_rules! on {
    ($file:expr, $it:ident => $call:expr) => {
        match &$file.backing {
            Backing::MappedFile($it) => $call,
            Backing::Volume($it) => $call,
        }
    };
}

/// What a thread has streamed and not waited for. Another thread cannot: a fence is of its own
/// thread's streams.
///
/// ```compile_fail,E0277
/// fn other_thread(file: &flex::File) {
///     let ticket = file.append(b"bytes").unwrap().1;
///     std::thread::scope(|scope| scope.spawn(|| ticket.wait()));
/// }
/// ```
#[must_use = "what is streamed becomes durable by a wait only"]
pub struct Ticket<'f> {
    file: &'f File,
    of_thread: PhantomData<*const ()>,
}

impl Ticket<'_> {
    /// Returns when all that this thread has streamed to the file is durable.
    #[inline]
    pub fn wait(self) -> Result<()> {
        self.file.fence()
    }
}

impl File {
    /// Opens the file at `path` of a kernel file system; one of a volume is opened by its
    /// [`crate::Place`]. Errors: what the file system says.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self> {
        Ok(Self { backing: Backing::MappedFile(MappedFile::open(path, options)?) })
    }

    /// Opens a file of a volume.
    pub(crate) fn open_on(names: &dyn Names, path: &Path, options: &FileOptions) -> Result<Self> {
        Ok(Self { backing: Backing::Volume(VolumeFile::open(names, path, options)?) })
    }

    /// An empty file in a region that nobody else has, and that holds zeros: for tests.
    pub fn create_on(region: Region) -> Result<Self> {
        Ok(Self { backing: Backing::MappedFile(MappedFile::create_on(region)?) })
    }

    /// What a fence promises here, and why.
    pub fn class(&self) -> (Class, &str) {
        on!(self, it => it.class())
    }

    /// The length that was found when it was opened. On a volume it is exact.
    pub fn opened(&self) -> Length {
        on!(self, it => it.opened())
    }

    /// The length, in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        on!(self, it => it.len())
    }

    /// The length now, also of what another process appends to. Errors: `Forked`.
    pub fn length(&self) -> Result<u64> {
        on!(self, it => it.length())
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn ticket(&self) -> Ticket<'_> {
        Ticket { file: self, of_thread: PhantomData }
    }

    // ---- writing

    /// Streams bytes behind the end; gives where they begin. Errors: `TooLarge`, `Truncated`, no
    /// space: then nothing is appended.
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, Ticket<'_>)> {
        self.append_from(&UserIn::new(bytes))
    }

    /// As [`File::append`], of any memory: `Caller` if it cannot be read.
    pub fn append_from(&self, bytes: &UserIn<'_>) -> Result<(u64, Ticket<'_>)> {
        Ok((on!(self, it => it.append_from(bytes))?, self.ticket()))
    }

    /// Streams bytes to `offset`; what lies between the end and there is zeros. *Not atomic*: a
    /// crash, or an error, may leave a part. Errors: as [`File::append`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<Ticket<'_>> {
        self.write_at_from(offset, &UserIn::new(bytes))
    }

    /// As [`File::write_at`], of any memory: `Caller` if it cannot be read.
    pub fn write_at_from(&self, offset: u64, bytes: &UserIn<'_>) -> Result<Ticket<'_>> {
        on!(self, it => it.write_at_from(offset, bytes))?;
        Ok(self.ticket())
    }

    /// Writes bytes to `offset`, all or none, also at a crash; durable at return. Errors: as
    /// [`File::append`]; `ENOTSUP`: not on a volume, or the program is run in another mode than
    /// `strict`.
    pub fn write_atomic(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_atomic_from(offset, &UserIn::new(bytes))
    }

    /// As [`File::write_atomic`], of any memory: `Caller` if it cannot be read.
    pub fn write_atomic_from(&self, offset: u64, bytes: &UserIn<'_>) -> Result<()> {
        match &self.backing {
            Backing::Volume(file) => file.write_atomic(offset, bytes),
            Backing::MappedFile(file) => {
                file.check_writable()?;
                let why = "files of directories have no atomic writes; use a log, or a volume";
                Err(Error::System(why.to_owned(), Errno::NOTSUP))
            }
        }
    }

    // ---- reading

    /// Copies bytes from `offset` on; gives how many: fewer at the end. Errors: `Truncated`,
    /// `Memory`.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.read_at_to(offset, &UserOut::new(to))
    }

    /// As [`File::read_at`], to any memory: `Caller` if it cannot be written.
    pub fn read_at_to(&self, offset: u64, to: &UserOut<'_>) -> Result<usize> {
        on!(self, it => it.read_at_to(offset, to))
    }

    // ---- the memory itself

    /// Where bytes lie: they stay there while the file is open. A load where another process has
    /// cut the file is a `SIGBUS`, as of any mapping. Errors: `Invalid` beyond the end.
    pub fn view(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        on!(self, it => it.view(offset, len))
    }

    /// The offset of an address that [`File::view`] gave. Errors: `Invalid`.
    pub fn offset_of(&self, at: *const u8) -> Result<u64> {
        on!(self, it => it.offset_of(at))
    }

    /// Returns when what any thread has stored there before is durable.
    pub fn persist(&self, offset: u64, len: u64) -> Result<()> {
        self.flush(offset, len)?.wait()
    }

    /// Starts writing back what any thread has stored there before.
    pub fn flush(&self, offset: u64, len: u64) -> Result<Ticket<'_>> {
        on!(self, it => it.flush(offset, len))?;
        Ok(self.ticket())
    }

    // ---- durability and length

    /// Returns when all that this thread has streamed or flushed is durable.
    #[inline]
    pub fn fence(&self) -> Result<()> {
        on!(self, it => it.fence())
    }

    /// Makes the file's length exact, and durable, with all that this thread has streamed.
    pub fn sync_len(&self) -> Result<()> {
        on!(self, it => it.sync_len())
    }

    /// Makes the file `len` bytes long. What it grows by is zeros. Durable after
    /// [`File::sync_len`]. What other threads write behind the new end meanwhile is lost, or not.
    pub fn truncate(&self, len: u64) -> Result<()> {
        on!(self, it => it.truncate(len))
    }

    /// Closes it, as a drop does, and tells whether its length could be set.
    pub fn close(self) -> Result<()> {
        match &self.backing {
            Backing::MappedFile(file) => file.end(),
            Backing::Volume(_) => Ok(()),
        }
    }
}

/// Opens a file as `options` say, by `open`; also whether it was made. `leads_on`: the name is a
/// symbolic link.
fn opened<F>(
    options: &FileOptions,
    open: impl Fn(OFlags) -> core::result::Result<F, Errno>,
    leads_on: impl Fn() -> bool,
) -> Result<(F, bool)> {
    if options.size > SIZE_MAX || options.step > SIZE_MAX {
        return Err(Error::Invalid("a file grows to 64 TiB at most"));
    }
    if options.read_only && options.create != Create::Never {
        return Err(Error::Invalid("a file that is only read is not made"));
    }
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let (file, is_new) = loop {
        if options.create != Create::Never {
            match open(flags | OFlags::CREATE | OFlags::EXCL) {
                Err(Errno::EXIST) if options.create == Create::Missing => {}
                made => break (made, true),
            }
        }
        match open(flags) {
            // It was removed in between.
            Err(Errno::NOENT) if options.create == Create::Missing && !leads_on() => {}
            found => break (found, false),
        }
    };
    file.map(|file| (file, is_new)).map_err(|errno| Error::refused("open the file", errno))
}
