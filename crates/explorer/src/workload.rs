//! Actions on a file system, with small parameters, and their results.
//!
//! An action names files by path (`a/b`, the root is empty) and open files by slot, so that the
//! same list runs on the volume, on the model and on a kernel file system. Results are reduced to
//! what all of them must agree on: times, inode numbers, block counts and cookies are left out.

use rustix::io::Errno;
use vfs::{Kind, Whence};

/// Something to do. Offsets and lengths are bytes; `tag` names the bytes written (see
/// [`crate::content::fill`]); `slot` is the caller's number for an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    Create {
        path: String,
        kind: Kind,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    Temporary {
        dir: String,
        slot: usize,
        exclusive: bool,
    },
    Link {
        from: String,
        to: String,
    },
    LinkOpen {
        slot: usize,
        to: String,
    },
    Unlink {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    SetOwner {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        path: String,
        atime: i64,
        mtime: i64,
    },
    SetXattr {
        path: String,
        name: String,
        tag: u32,
        length: u64,
        flags: u32,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    GetXattr {
        path: String,
        name: String,
        room: usize,
    },
    ListXattr {
        path: String,
    },
    Stat {
        path: String,
    },
    ReadLink {
        path: String,
    },
    ReadDir {
        path: String,
    },
    Open {
        path: String,
        slot: usize,
        flags: i32,
    },
    Close {
        slot: usize,
    },
    StatOpen {
        slot: usize,
    },
    Write {
        slot: usize,
        tag: u32,
        length: u64,
    },
    WriteAt {
        slot: usize,
        tag: u32,
        offset: u64,
        length: u64,
    },
    /// The same from several buffers, of nearly equal length, by one call.
    WriteParts {
        slot: usize,
        tag: u32,
        offset: u64,
        length: u64,
        parts: usize,
    },
    Read {
        slot: usize,
        length: u64,
    },
    ReadAt {
        slot: usize,
        offset: u64,
        length: u64,
    },
    Seek {
        slot: usize,
        offset: i64,
        whence: Whence,
    },
    Truncate {
        path: String,
        size: u64,
    },
    TruncateOpen {
        slot: usize,
        size: u64,
    },
    Allocate {
        slot: usize,
        mode: u32,
        offset: u64,
        length: u64,
    },
    CopyRange {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Relink {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Map {
        slot: usize,
        offset: u64,
        length: u64,
    },
    /// A shared mapping of the range, and a store into it.
    StoreMapped {
        slot: usize,
        tag: u32,
        offset: u64,
        length: u64,
    },
    Sync {
        slot: usize,
        data_only: bool,
    },
    SyncAll,
    /// What is left in almost empty chunks moves into holes of fuller ones.
    Compact,
    /// A scattered file's bytes move into whole chunks and fewer runs (`solera defrag`).
    Rewrite {
        path: String,
    },
}

impl Action {
    /// The same on slots that are numbered so much higher: of another process, in one model.
    #[must_use]
    pub fn shifted(&self, by: usize) -> Self {
        let mut action = self.clone();
        match &mut action {
            Self::Temporary { slot, .. }
            | Self::LinkOpen { slot, .. }
            | Self::Open { slot, .. }
            | Self::Close { slot }
            | Self::StatOpen { slot }
            | Self::Write { slot, .. }
            | Self::WriteAt { slot, .. }
            | Self::WriteParts { slot, .. }
            | Self::Read { slot, .. }
            | Self::ReadAt { slot, .. }
            | Self::Seek { slot, .. }
            | Self::TruncateOpen { slot, .. }
            | Self::Allocate { slot, .. }
            | Self::Map { slot, .. }
            | Self::StoreMapped { slot, .. }
            | Self::Sync { slot, .. } => *slot += by,
            Self::CopyRange { from, to, .. } | Self::Relink { from, to, .. } => {
                *from += by;
                *to += by;
            }
            _ => {}
        }
        action
    }
}

/// What a successful action tells.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    Done,
    Count(u64),
    Bytes(Vec<u8>),
    Stat(Stat),
    /// Sorted by name; without `.` and `..`.
    Entries(Vec<(Vec<u8>, u8)>),
    /// Sorted.
    Names(Vec<Vec<u8>>),
}

impl std::fmt::Debug for Value {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => out.write_str("done"),
            Self::Count(count) => write!(out, "{count}"),
            Self::Bytes(bytes) => {
                let head = &bytes[..bytes.len().min(16)];
                let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
                write!(out, "{} bytes {head:02x?}.. (sum {sum})", bytes.len())
            }
            Self::Stat(stat) => write!(out, "{stat:?}"),
            Self::Entries(entries) => {
                let mut list = out.debug_list();
                for (name, kind) in entries {
                    list.entry(&format!("{}:{kind}", String::from_utf8_lossy(name)));
                }
                list.finish()
            }
            Self::Names(names) => {
                let names = names.iter().map(|name| String::from_utf8_lossy(name));
                out.debug_list().entries(names).finish()
            }
        }
    }
}

/// What [`Value::Stat`] tells: the part of `stat` that every file system must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stat {
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// 0 for anything but files and symlinks.
    pub size: u64,
}

/// What an action gave.
pub type Outcome = Result<Value, Errno>;

/// Something actions can be applied to.
pub trait System {
    /// Actions on names; `None` for any other, here and below.
    fn change_name(&mut self, action: &Action) -> Option<Outcome>;
    /// Actions on attributes.
    fn change_attributes(&mut self, action: &Action) -> Option<Outcome>;
    /// Actions that change nothing.
    fn look(&mut self, action: &Action) -> Option<Outcome>;
    /// All the rest.
    fn change_content(&mut self, action: &Action) -> Outcome;

    /// Does it.
    fn apply(&mut self, action: &Action) -> Outcome {
        if let Some(outcome) = self.change_name(action) {
            return outcome;
        }
        if let Some(outcome) = self.change_attributes(action) {
            return outcome;
        }
        if let Some(outcome) = self.look(action) {
            return outcome;
        }
        self.change_content(action)
    }
}

/// Open-file slots that a system must provide.
pub const SLOTS: usize = 8;

/// A path's directory and last name; `None` for the root itself.
#[must_use]
pub fn split_path(path: &str) -> Option<(&str, &str)> {
    if path.is_empty() {
        return None;
    }
    Some(path.rsplit_once('/').unwrap_or(("", path)))
}

/// The components of a path.
pub fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Short ways to write actions down.
pub mod short {
    use super::Action;
    use vfs::Kind;

    /// Makes an empty file.
    pub fn file(path: &str) -> Action {
        Action::Create { path: path.into(), kind: Kind::File, mode: 0o644 }
    }

    /// Makes a directory.
    pub fn dir(path: &str) -> Action {
        Action::Create { path: path.into(), kind: Kind::Directory, mode: 0o755 }
    }

    /// Makes a symbolic link.
    pub fn symlink(path: &str, target: &str) -> Action {
        Action::Symlink { path: path.into(), target: target.into() }
    }

    /// Opens for reading and writing.
    pub fn open(path: &str, slot: usize) -> Action {
        Action::Open { path: path.into(), slot, flags: libc::O_RDWR }
    }

    /// Opens for appending.
    pub fn open_append(path: &str, slot: usize) -> Action {
        Action::Open { path: path.into(), slot, flags: libc::O_RDWR | libc::O_APPEND }
    }

    /// Closes.
    pub fn close(slot: usize) -> Action {
        Action::Close { slot }
    }

    /// Writes at an offset.
    pub fn write_at(slot: usize, tag: u32, offset: u64, length: u64) -> Action {
        Action::WriteAt { slot, tag, offset, length }
    }

    /// Writes at an offset from so many buffers.
    pub fn write_parts(slot: usize, tag: u32, offset: u64, length: u64, parts: usize) -> Action {
        Action::WriteParts { slot, tag, offset, length, parts }
    }

    /// Takes a name away.
    pub fn unlink(path: &str) -> Action {
        Action::Unlink { path: path.into() }
    }

    /// Gives another name.
    pub fn link(from: &str, to: &str) -> Action {
        Action::Link { from: from.into(), to: to.into() }
    }

    /// Renames without flags.
    pub fn rename(from: &str, to: &str) -> Action {
        Action::Rename { from: from.into(), to: to.into(), flags: 0 }
    }

    /// Sets an extended attribute, new or not.
    pub fn xattr(path: &str, name: &str, tag: u32, length: u64) -> Action {
        Action::SetXattr { path: path.into(), name: name.into(), tag, length, flags: 0 }
    }

    /// Sets the size.
    pub fn truncate(path: &str, size: u64) -> Action {
        Action::Truncate { path: path.into(), size }
    }

    /// Makes a scattered file whole.
    pub fn rewrite(path: &str) -> Action {
        Action::Rewrite { path: path.into() }
    }

    /// `fallocate`.
    pub fn allocate(slot: usize, mode: i32, offset: u64, length: u64) -> Action {
        Action::Allocate { slot, mode: mode as u32, offset, length }
    }
}
