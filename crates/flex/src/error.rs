//! Why a call of the library failed: what was asked, what was found, what to do.

use std::fmt;

use pmem::{Fault, OpenError};
use rustix::io::Errno;

/// A value, or why there is none.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a call failed. Whatever it was, nothing has changed, unless the variant says otherwise.
#[derive(Debug)]
pub enum Error {
    /// `ENOSPC`: the record, with what has to come before it, needs so many bytes, and so many are
    /// free.
    Full {
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
    },
    /// `EMSGSIZE`: a record may be so long.
    TooLong {
        /// Bytes.
        most: u64,
    },
    /// `EMSGSIZE`: the record has so many bytes, and the buffer has room for fewer.
    NoRoom {
        /// Bytes.
        needed: u64,
    },
    /// `EINVAL`: the call makes no sense, for this reason.
    Invalid(&'static str),
    /// `ESTALE`: what was at this position is trimmed; this is the oldest that is left.
    Lapped {
        /// A position.
        oldest: u64,
    },
    /// `ESTALE`: the process was forked, and the file or log is its parent's.
    Forked,
    /// `EBUSY`: this process writes to it; 0: one that is not visible from here.
    Busy {
        /// A process id.
        process: u32,
    },
    /// `EUCLEAN`: the file is no log, or is damaged, for this reason.
    Damaged(String),
    /// `EFAULT`: the caller's memory is bad. An append to a log has left a hole, which readers
    /// skip; a write to a file may have stored a part.
    Caller,
    /// `EIO`: the memory is bad, or a log's file was cut: it is not written to any more.
    Memory,
    /// `ETRUNCATED` (`ENODATA`): another process has cut the file to so many bytes.
    Truncated {
        /// Bytes.
        size: u64,
    },
    /// `EFBIG`: the file was opened to grow to so many bytes.
    TooLarge {
        /// Bytes.
        most: u64,
    },
    /// What the kernel refused: an opening, space, a write to the medium.
    System(String, Errno),
}

impl Error {
    /// The kernel refused to do this.
    pub(crate) fn refused(what: &str, errno: Errno) -> Self {
        Self::System(format!("cannot {what}: {}", os::describe(errno)), errno)
    }

    /// The error number that comes nearest.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Full { .. } => Errno::NOSPC,
            Self::TooLong { .. } | Self::NoRoom { .. } => Errno::MSGSIZE,
            Self::Invalid(_) => Errno::INVAL,
            Self::Lapped { .. } | Self::Forked => Errno::STALE,
            Self::Busy { .. } => Errno::BUSY,
            Self::Damaged(_) => Errno::UCLEAN,
            Self::Caller => Errno::FAULT,
            Self::Memory => Errno::IO,
            Self::Truncated { .. } => Errno::NODATA,
            Self::TooLarge { .. } => Errno::FBIG,
            Self::System(_, errno) => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { needed, free } => {
                write!(out, "the record needs {needed} bytes and {free} are free; trim the log")
            }
            Self::TooLong { most } => {
                write!(out, "the record is longer than a quarter of the log; at most {most} bytes")
            }
            Self::NoRoom { needed } => {
                write!(out, "the buffer is too short; the record has {needed} bytes")
            }
            Self::Invalid(why) => out.write_str(why),
            Self::Lapped { oldest } => {
                write!(out, "the position is trimmed; the oldest that is left is {oldest}")
            }
            Self::Forked => out.write_str("it is the parent's of this process; open it once more"),
            Self::Busy { process: 0 } => {
                out.write_str("another process writes to the log; open it read-only, or wait")
            }
            Self::Busy { process } => {
                write!(out, "process {process} writes to the log; open it read-only, or wait")
            }
            Self::Caller => out.write_str("the caller's memory cannot be accessed"),
            Self::Memory => out.write_str(
                "the memory cannot be accessed: it is damaged, or the file was cut; of a log see \
                 `solera log check`",
            ),
            Self::Truncated { size } => {
                write!(out, "another process has cut the file to {size} bytes; open it once more")
            }
            Self::TooLarge { most } => {
                write!(out, "the file may grow to {most} bytes; open it with a larger `size`")
            }
            Self::Damaged(why) | Self::System(why, _) => out.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Caller => Self::Caller,
            Fault::Region => Self::Memory,
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        if error.needs_class() {
            let why = "it lies on an ordinary disk, where each wait is for the medium; ask for \
                       that by name (`page`, `SOLERA_PAGE`), or take another place";
            return Self::System(why.to_owned(), error.errno());
        }
        Self::System(format!("{}; {}", error.found(), error.advice()), error.errno())
    }
}
