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
    /// `ESTALE`: the process was forked, and the log is its parent's.
    Forked,
    /// `EBUSY`: this process writes to it; 0: one that is not visible from here.
    Busy {
        /// A process id.
        process: u32,
    },
    /// `EUCLEAN`: the file is no log, or is damaged, for this reason.
    Damaged(String),
    /// `EFAULT`: the caller's memory is bad. An append has left a hole, which readers skip.
    Caller,
    /// `EIO`: the memory is bad, or the file was cut. The log is not written to any more.
    Memory,
    /// The file cannot be opened, made or mapped.
    Open(String, Errno),
}

impl Error {
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
            Self::Open(_, errno) => *errno,
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
            Self::Forked => {
                out.write_str("the log is the parent's of this process; open it once more")
            }
            Self::Busy { process: 0 } => {
                out.write_str("another process writes to the log; open it read-only, or wait")
            }
            Self::Busy { process } => {
                write!(out, "process {process} writes to the log; open it read-only, or wait")
            }
            Self::Caller => out.write_str("the caller's memory cannot be accessed"),
            Self::Memory => out.write_str(
                "the log's memory cannot be accessed: it is damaged, or its file was cut; see \
                 `solera log check`",
            ),
            Self::Damaged(why) | Self::Open(why, _) => out.write_str(why),
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
            let why = "it lies on an ordinary disk, where each append waits for the medium; ask \
                       for that by name (`LogOptions::page`), or take another place";
            return Self::Open(why.to_owned(), error.errno());
        }
        Self::Open(format!("{}; {}", error.found(), error.advice()), error.errno())
    }
}
