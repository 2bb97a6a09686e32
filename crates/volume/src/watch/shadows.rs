//! The shadows: files and directories of the kernel's beside the volume, on which the watches lie.
//!
//! Below `shadows/` in the directory for carriers:
//!
//! | name | what |
//! |---|---|
//! | `d-NODE` | the shadow of a watched directory: an empty file or directory for each name in it |
//! | `f-NODE` | the shadow of anything else that is watched |
//! | `m-NODE.COUNT` | what `d-NODE` or `f-NODE` is a symlink to, once the node was moved |
//! | `x-THREAD.0` | what comes from, or goes to, where nobody watches |
//!
//! What is repeated here is not what the volume holds: kinds other than a directory are plain empty
//! files. The mode of all is open: who reaches the directory may change the volume.
//!
//! A shadow that does not have what a change wants (its changer died, in the middle) is mended by
//! the change: a name that is to come is removed first, one that is to go is made first. That tells
//! of the change that was not told.

use crate::Result;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::fs::{UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use vfs::{Kind, Node, OpenFlags};

/// The directory of all.
const ALL: &str = "shadows";
const OPEN_TO_ALL: Mode = Mode::from_raw_mode(0o666);
const ENTERED_BY_ALL: Mode = Mode::from_raw_mode(0o777);
/// A list of access that says so, for what is made in a directory: the umask is left out then
/// (`linux/posix_acl_xattr.h`: version 2; owner, group, others: tag, permissions, no number).
const DEFAULT_ACCESS: [u8; 28] = [
    2, 0, 0, 0, // version
    0x01, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF, // owner
    0x04, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF, // group
    0x20, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF, // others
];

/// What happens to a file or a directory that stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Bytes, or names, were read.
    Access,
    /// Bytes, or the size, changed.
    Modify,
    /// Mode, owner, times, number of names, extended attributes changed.
    Attributes,
}

impl Event {
    /// As the kernel calls it.
    pub(crate) const fn bit(self) -> u32 {
        match self {
            Self::Access => libc::IN_ACCESS,
            Self::Modify => libc::IN_MODIFY,
            Self::Attributes => libc::IN_ATTRIB,
        }
    }
}

/// A name in a watched directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: Node,
    pub(crate) name: &'a [u8],
}

impl Place<'_> {
    fn path(&self) -> Path {
        let mut path = numbered(b'd', self.dir);
        path.push(b'/');
        path.extend_from_slice(self.name);
        path
    }
}

/// A path below the directory for carriers.
type Path = SmallVec<[u8; 128]>;

fn numbered(letter: u8, node: Node) -> Path {
    let mut path = Path::new();
    path.extend_from_slice(ALL.as_bytes());
    path.extend_from_slice(&[b'/', letter, b'-']);
    push_number(&mut path, node.ino);
    path.push(b'.');
    push_number(&mut path, node.generation.into());
    path
}

/// In hexadecimal digits: by itself, since this is most of what a change costs here.
fn push_number(path: &mut Path, number: u64) {
    let digits = (64 - (number | 1).leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        path.push(b"0123456789abcdef"[(number >> (digit * 4)) as usize & 15]);
    }
}

/// Where the kernel watches a node.
fn own_path(node: Node, kind: Kind) -> Path {
    numbered(if kind == Kind::Directory { b'd' } else { b'f' }, node)
}

/// The same, for the face.
pub(crate) fn watched_path(node: Node, kind: Kind) -> Vec<u8> {
    own_path(node, kind).to_vec()
}

/// All shadows of a volume: what repeats changes in the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Shadows<'a>(pub(crate) BorrowedFd<'a>);

impl Shadows<'_> {
    /// Removes all that an epoch before has left, and makes room for this one's.
    pub(crate) fn begin(self) -> Result<()> {
        self.end();
        self.make_open(ALL.as_bytes(), true)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let all = rustix::fs::openat(self.0, ALL, flags, Mode::empty())?;
        // Without them what one user has made another one cannot change where the umask says so.
        let no_flags = rustix::fs::XattrFlags::empty();
        let _ = rustix::fs::fsetxattr(&all, "system.posix_acl_default", &DEFAULT_ACCESS, no_flags);
        Ok(())
    }

    /// Removes all.
    pub(crate) fn end(self) {
        self.clear(ALL.as_bytes());
    }

    /// Makes the shadow of something that is not watched yet.
    pub(crate) fn make_own(self, node: Node, kind: Kind) -> Result<()> {
        let path = own_path(node, kind);
        self.clear(&path);
        self.make_open(&path, kind == Kind::Directory)
    }

    /// The shadow goes: the kernel tells its watches so, and ends them.
    pub(crate) fn remove_own(self, node: Node, kind: Kind) {
        let path = own_path(node, kind);
        if let Ok(target) = rustix::fs::readlinkat(self.0, &*path, Vec::new()) {
            self.clear(&[ALL.as_bytes(), b"/", target.as_bytes()].concat());
        }
        self.clear(&path);
    }

    /// Keeps the shadow of something that is watched, and tells nobody.
    pub(crate) fn hold(self, node: Node, kind: Kind) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(self.0, &*own_path(node, kind), flags, Mode::empty()).ok()
    }

    /// The shadow gets another name, as often as the count says: the kernel tells its watches that
    /// it was moved.
    pub(crate) fn move_own(self, node: Node, kind: Kind, count: u64) {
        let path = own_path(node, kind);
        let other = |count| {
            let mut path = numbered(b'm', node);
            path.push(b'.');
            push_number(&mut path, count);
            path
        };
        let from = if count == 1 { path.clone() } else { other(count - 1) };
        let to = other(count);
        if rustix::fs::renameat(self.0, &*from, self.0, &*to).is_ok() {
            let _ = self.lead(&path, &to[ALL.len() + 1..]);
        }
    }

    /// A name that is there before anybody watches.
    pub(crate) fn stands(self, at: Place<'_>, is_directory: bool) -> Result<()> {
        self.make(&at.path(), is_directory)
    }

    /// Whether a name is there, and is a directory's.
    pub(crate) fn has(self, at: Place<'_>) -> Option<bool> {
        let found = rustix::fs::statat(self.0, &*at.path(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    /// A name has come.
    pub(crate) fn created(self, at: Place<'_>, is_directory: bool) {
        let path = at.path();
        if self.make(&path, is_directory) == Err(Errno::EXIST) {
            self.clear(&path);
            let _ = self.make(&path, is_directory);
        }
    }

    /// A file has come, and is open.
    pub(crate) fn created_open(self, at: Place<'_>, flags: OpenFlags) -> Option<OwnedFd> {
        let path = at.path();
        let access = OFlags::from_bits_retain((flags.0 & libc::O_ACCMODE).cast_unsigned());
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(self.0, &*path, flags, OPEN_TO_ALL);
        match open() {
            Err(Errno::EXIST) => {
                self.clear(&path);
                open().ok()
            }
            opened => opened.ok(),
        }
    }

    /// A name has gone.
    pub(crate) fn removed(self, at: Place<'_>, is_directory: bool) {
        let path = at.path();
        if self.take(&path, is_directory).is_err() {
            self.clear(&path);
            let _ = self.make(&path, is_directory);
            let _ = self.take(&path, is_directory);
        }
    }

    /// A name has been given to another place; `None`: nobody watches there. `target`: whether what
    /// had it was a directory.
    pub(crate) fn moved(
        self,
        (from, to): (Option<Place<'_>>, Option<Place<'_>>),
        is_directory: bool,
        target: Option<bool>,
        bits: u32,
    ) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let aside = numbered(b'x', Node { ino: thread.into(), generation: 0 });
        let path = |place: Option<Place<'_>>| place.map_or_else(|| aside.clone(), |at| at.path());
        let (old, new) = (path(from), path(to));
        let exchanges = bits & libc::RENAME_EXCHANGE != 0;
        self.is_there(&old, is_directory);
        if exchanges {
            self.is_there(&new, target.unwrap_or(false));
        } else if let (Some(_), Some(replaced)) = (to, target)
            && replaced != is_directory
        {
            self.clear(&new);
        }
        let whiteout = if from.is_some() { bits & libc::RENAME_WHITEOUT } else { 0 };
        let flags = RenameFlags::from_bits_retain(bits & libc::RENAME_EXCHANGE | whiteout);
        let done = rustix::fs::renameat_with(self.0, &*old, self.0, &*new, flags);
        if done.is_err() && !exchanges {
            self.clear(&new);
            let _ = rustix::fs::renameat(self.0, &*old, self.0, &*new);
        }
        self.clear(&aside);
    }

    /// Something happens to what a name in a watched directory means.
    pub(crate) fn happens_to_name(self, at: Place<'_>, event: Event) {
        self.happens(&at.path(), event);
    }

    /// Something happens to what is watched itself.
    pub(crate) fn happens_to_own(self, node: Node, kind: Kind, event: Event) {
        self.happens(&own_path(node, kind), event);
    }

    /// A file or directory in a watched one was opened: the kernel tells of the end when the last
    /// copy of this descriptor is closed.
    pub(crate) fn opened(self, at: Place<'_>, flags: OpenFlags) -> Option<OwnedFd> {
        self.open(&at.path(), flags)
    }

    /// The same of what is watched itself.
    pub(crate) fn opened_own(self, node: Node, kind: Kind, flags: OpenFlags) -> Option<OwnedFd> {
        self.open(&own_path(node, kind), flags)
    }

    fn open(self, path: &[u8], flags: OpenFlags) -> Option<OwnedFd> {
        let kept = libc::O_ACCMODE | libc::O_TRUNC;
        let flags = OFlags::from_bits_retain((flags.0 & kept).cast_unsigned());
        rustix::fs::openat(self.0, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    fn happens(self, path: &[u8], event: Event) {
        let [now, same] =
            [UTIME_NOW, UTIME_OMIT].map(|word| Timespec { tv_sec: 0, tv_nsec: word as _ });
        let (last_access, last_modification) = match event {
            Event::Access => (now, same),
            Event::Modify => (same, now),
            Event::Attributes => (now, now),
        };
        let times = Timestamps { last_access, last_modification };
        if rustix::fs::utimensat(self.0, path, &times, AtFlags::empty()) == Err(Errno::PERM)
            && event == Event::Modify
        {
            // Another user's shadow: to set a size it is enough to be allowed to write.
            let all = format!("/proc/self/fd/{}/", self.0.as_raw_fd());
            let _ = os::truncate(&[all.as_bytes(), path].concat(), 0);
        }
    }

    /// Makes an empty file or directory, open to all where the file system knows default lists of
    /// access ([`DEFAULT_ACCESS`]).
    fn make(self, path: &[u8], is_directory: bool) -> Result<()> {
        if is_directory {
            return rustix::fs::mkdirat(self.0, path, ENTERED_BY_ALL);
        }
        rustix::fs::mknodat(self.0, path, FileType::RegularFile, OPEN_TO_ALL, 0)
    }

    /// The same where nobody watches yet: whatever the umask, on any file system.
    fn make_open(self, path: &[u8], is_directory: bool) -> Result<()> {
        self.make(path, is_directory)?;
        let mode = if is_directory { ENTERED_BY_ALL } else { OPEN_TO_ALL };
        rustix::fs::chmodat(self.0, path, mode, AtFlags::empty())
    }

    fn take(self, path: &[u8], is_directory: bool) -> Result<()> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(self.0, path, flags)
    }

    /// Makes what is to be moved, where it is lacking or of another kind.
    fn is_there(self, path: &[u8], is_directory: bool) {
        let found = rustix::fs::statat(self.0, path, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        match found {
            Ok(is) if is == is_directory => {}
            Ok(_) => {
                self.clear(path);
                let _ = self.make(path, is_directory);
            }
            Err(_) => {
                let _ = self.make(path, is_directory);
            }
        }
    }

    /// Makes a symlink, in place of what was there.
    fn lead(self, link: &[u8], target: &[u8]) -> Result<()> {
        match rustix::fs::symlinkat(target, self.0, link) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(self.0, link, AtFlags::empty())?;
                rustix::fs::symlinkat(target, self.0, link)
            }
            made => made,
        }
    }

    /// Removes whatever is at a path, with what is below it.
    fn clear(self, path: &[u8]) {
        match rustix::fs::unlinkat(self.0, path, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            _ => return,
        }
        if rustix::fs::unlinkat(self.0, path, AtFlags::REMOVEDIR) != Err(Errno::NOTEMPTY) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::openat(self.0, path, flags, Mode::empty()) else { return };
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut buffer = Vec::with_capacity(4096);
        let mut entries = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(Ok(entry)) = entries.next() {
            names.push(entry.file_name().to_bytes().to_vec());
        }
        for name in names.iter().filter(|name| ![&b"."[..], b".."].contains(&&name[..])) {
            self.clear(&[path, b"/", name].concat());
        }
        let _ = rustix::fs::unlinkat(self.0, path, AtFlags::REMOVEDIR);
    }
}
