//! Carriers: what the kernel holds for descriptions that leave their process, in a message, by an
//! exec, in a program that does not know the volume.
//!
//! A carrier is an inode of one description's own in the part of the anchor directory that
//! everybody shares, called by the name that the engine gave the description. A descriptor of it
//! holds a shared OFD lock on its first byte, which goes with the last copy of that descriptor,
//! wherever it is: as long as the byte is held, the description is in flight.
//!
//! A program may reach a carrier by a system call of its own, as if it were the file. So a carrier
//! is what the call cannot work on. A file's is a directory, empty and for reading only: a read of
//! it fails. A directory's is an empty file: no name is found or made below it. What does succeed
//! (`flock`, `fchmod`) concerns this one inode, which nobody else's description has, and which goes
//! with the description. The first process to attach removes those that a crash has left.

use crate::process::liveness::Liveness;
use robust::bytes::{self, Hold, Kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the names of carriers begin with.
const PREFIX: &str = "carrier-";
/// The byte that is held.
const BYTE: i64 = 0;
/// Every attached process looks at all carriers, whatever user it is.
const READABLE: Mode = Mode::from_raw_mode(0o555);

const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

fn file_name(name: u64) -> String {
    format!("{PREFIX}{name:016x}")
}

/// The description's name in that of its carrier.
fn name_in(file: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(file.strip_prefix(PREFIX.as_bytes())?).ok()?;
    u64::from_str_radix(digits, 16).ok().filter(|&name| file_name(name).as_bytes() == file)
}

/// A new descriptor of the carrier of the description with this name; `anchor`: [`Volume::anchor`].
/// Then the caller sees whether the description is still there, and else says [`dismiss`].
///
/// [`Volume::anchor`]: crate::Volume::anchor
pub fn carry(anchor: impl AsFd, name: u64, is_directory: bool) -> Result<OwnedFd, Errno> {
    let (anchor, file) = (anchor.as_fd(), file_name(name));
    match make(anchor, &file, is_directory) {
        // Whatever the umask.
        Ok(()) => rustix::fs::chmodat(anchor, &file, READABLE, AtFlags::empty())?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let carrier = open(anchor, &file)?;
    bytes::take(carrier.as_raw_fd(), bytes::Kind::Description, Hold::Shared, BYTE)?;
    Ok(carrier)
}

fn make(anchor: BorrowedFd<'_>, file: &str, is_directory: bool) -> Result<(), Errno> {
    let plain = || rustix::fs::mknodat(anchor, file, FileType::RegularFile, READABLE, 0);
    if is_directory {
        return plain();
    }
    match rustix::fs::mkdirat(anchor, file, READABLE) {
        // A full file system may still have room for an empty file.
        Err(Errno::NOSPC | Errno::DQUOT | Errno::MLINK) => plain(),
        made => made,
    }
}

fn open(anchor: BorrowedFd<'_>, file: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(anchor, file, FLAGS, Mode::empty()) {
        // A program has changed the mode, of what it took for its file.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(anchor, file, READABLE, AtFlags::empty())?;
            rustix::fs::openat(anchor, file, FLAGS, Mode::empty())
        }
        opened => opened,
    }
}

/// The name of the description that `fd` carries, if it is a carrier below `anchor`. `link`: where
/// `/proc/self/fd` says that it leads, which no call on the descriptor changes.
pub fn carried(anchor: impl AsFd, fd: impl AsFd, link: &[u8]) -> Option<u64> {
    let file = link.rsplit(|&byte| byte == b'/').next()?;
    let name = name_in(file)?;
    let there = rustix::fs::statat(anchor, file, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let own = rustix::fs::fstat(fd).ok()?;
    ((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)).then_some(name)
}

/// The description with this name is no more: its carrier goes.
pub fn dismiss(anchor: impl AsFd, name: u64) {
    remove(anchor.as_fd(), &file_name(name));
}

fn remove(anchor: BorrowedFd<'_>, file: &str) {
    // One that is not empty stays until the volume is removed; its name is not used again.
    if rustix::fs::unlinkat(anchor, file, AtFlags::REMOVEDIR) == Err(Errno::NOTDIR) {
        let _ = rustix::fs::unlinkat(anchor, file, AtFlags::empty());
    }
}

/// Whether any descriptor of a carrier is left. Where that cannot be found out it counts as so:
/// somebody will ask again.
fn is_held(anchor: BorrowedFd<'_>, file: &str) -> bool {
    match open(anchor, file) {
        Ok(fd) => !matches!(bytes::holder(fd.as_raw_fd(), Kind::Description, BYTE, 1), Ok(None)),
        Err(errno) => errno != Errno::NOENT,
    }
}

/// Whether `is_it` says so of any carrier.
fn any(anchor: BorrowedFd<'_>, mut is_it: impl FnMut(&str) -> bool) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::openat(anchor, ".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = RawDir::new(&list, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let file = entry.file_name();
        if name_in(file.to_bytes()).is_some() && file.to_str().is_ok_and(&mut is_it) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Liveness {
    /// Whether the description with this name is in flight.
    pub(crate) fn is_carried(&self, name: u64) -> bool {
        self.in_handing(|anchor| is_held(anchor, &file_name(name)))
    }

    /// Whether any description is.
    pub(crate) fn is_any_carried(&self) -> bool {
        self.in_handing(|anchor| any(anchor, |file| is_held(anchor, file)).unwrap_or(true))
    }

    /// See [`dismiss`].
    pub(crate) fn dismiss(&self, name: u64) {
        self.in_handing(|anchor| {
            dismiss(anchor, name);
            false
        });
    }

    /// Removes the carriers that nothing is left of.
    pub(crate) fn clear_carriers(&self) {
        self.in_handing(|anchor| {
            let mut left = Vec::new();
            let _ = any(anchor, |file| {
                left.push(file.to_owned());
                false
            });
            left.iter().filter(|file| !is_held(anchor, file)).for_each(|file| remove(anchor, file));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (std::path::PathBuf, OwnedFd) {
        let path = std::env::temp_dir().join(format!("carriers-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).expect("opened");
        (path, fd)
    }

    fn link(fd: &OwnedFd) -> Vec<u8> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::readlink(path, Vec::new()).expect("its link").into_bytes()
    }

    /// A description is in flight as long as a copy of its own descriptor is open, whatever happens
    /// to another's.
    #[test]
    fn each_description_is_carried_for_itself() {
        let (path, anchor) = place("each");
        let [one, two] = [7 << 32 | 1, 8 << 32 | 1];
        let held = |name| is_held(anchor.as_fd(), &file_name(name));
        let first = carry(&anchor, one, false).expect("carried");
        let second = carry(&anchor, two, true).expect("carried");
        let copy = first.try_clone().expect("a copy");
        assert!(held(one) && held(two) && !held(9 << 32));
        // Both have another's name in no case, also where a program has moved the position.
        rustix::fs::seek(&first, rustix::fs::SeekFrom::Start(two)).expect("moved");
        assert_eq!(carried(&anchor, &first, &link(&first)), Some(one));
        assert_eq!(carried(&anchor, &second, &link(&second)), Some(two));
        assert_eq!(carried(&anchor, &second, &link(&first)), None);
        drop(first);
        assert!(held(one));
        drop(copy);
        assert!(!held(one) && held(two));
        dismiss(&anchor, one);
        dismiss(&anchor, two);
        std::fs::remove_dir(path).expect("nothing is left in it");
    }

    /// What a program does to a carrier as if it were its file: it fails, or nobody else notices.
    #[test]
    fn calls_on_a_carrier_harm_nobody() {
        let (path, anchor) = place("harm");
        let [file, directory] = [1 << 32, 2 << 32];
        let of_file = carry(&anchor, file, false).expect("carried");
        let of_directory = carry(&anchor, directory, true).expect("carried");
        assert_eq!(rustix::io::read(&of_file, &mut [0; 1]), Err(Errno::ISDIR));
        assert_eq!(rustix::io::write(&of_file, b"x"), Err(Errno::BADF));
        let made = rustix::fs::mkdirat(&of_directory, "x", READABLE);
        assert_eq!(made, Err(Errno::NOTDIR));
        assert_eq!(rustix::fs::statat(&of_directory, "..", AtFlags::empty()).err(), made.err());
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&of_file, lock).expect("its own");
        rustix::fs::flock(&of_directory, lock).expect("another's");
        rustix::fs::fchmod(&of_file, Mode::from_raw_mode(0o200)).expect("closed");
        assert!(carry(&anchor, file, false).is_ok() && is_held(anchor.as_fd(), &file_name(file)));
        dismiss(&anchor, file);
        dismiss(&anchor, directory);
        std::fs::remove_dir(path).expect("nothing is left in it");
    }
}
