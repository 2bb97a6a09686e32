//! What the kernel has behind the numbers of ours: a sealed memory file, opened for neither reading
//! nor writing. So a call that slips past the library fails: the kernel refuses bytes, mappings and
//! locks (`EBADF`, `EACCES`) and finds no name below it (`ENOTDIR`). A poll
//! finds it ready, as it finds a file. A call that changes the file itself (`fchmod`) concerns the
//! numbers of this program alone.

use std::os::fd::{AsRawFd, OwnedFd};

use os::InternalFd;
use rustix::fs::{IFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{Resource, Rlimit};
use vfs::Errno;

use crate::entry::process::Process;

/// What its links in `/proc` are called by.
const NAME: &str = "solera-void";
/// `O_ACCMODE`: for neither reading nor writing.
const NEITHER: OFlags = OFlags::from_bits_retain(libc::O_ACCMODE.cast_unsigned());

/// What stands behind numbers of ours, at a high number.
pub fn placeholder(process: &Process) -> Result<InternalFd, Errno> {
    // Where `/proc` or such files are not to be had.
    let nameless = |_| nameless_file(&process.first().anchor);
    let file = within_numbers(sealed_memory).or_else(nameless)?;
    Ok(InternalFd::new(file))
}

/// Whether a descriptor is what stands behind the numbers of some process, by the text of its link.
pub fn is_placeholder(link: &[u8]) -> bool {
    link == format!("/memfd:{NAME} (deleted)").as_bytes()
}

/// Makes a call of ours; where it lacks a number, once more with the limit of numbers raised to its
/// maximum: the kernel would need none.
pub fn within_numbers<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match call() {
        Err(Errno::MFILE) => {}
        called => return called,
    }
    let before = rustix::process::getrlimit(Resource::Nofile);
    let more = Rlimit { current: before.maximum, maximum: before.maximum };
    rustix::process::setrlimit(Resource::Nofile, more)?;
    let result = call();
    rustix::process::setrlimit(Resource::Nofile, before)?;
    result
}

fn sealed_memory() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags)?,
        made => made?,
    };
    let link = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let file = rustix::fs::open(link, NEITHER | OFlags::CLOEXEC, Mode::empty())?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // Only root opens it once more, by its link, or could give it attributes: not where it may be
    // made immutable (Linux 6.6).
    rustix::fs::fchmod(&memory, Mode::empty())?;
    let _ = rustix::fs::ioctl_setflags(&memory, IFlags::IMMUTABLE);
    Ok(file)
}

fn nameless_file(anchor: &InternalFd) -> Result<OwnedFd, Errno> {
    let flags = NEITHER | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(anchor, ".", flags, Mode::empty())
}
