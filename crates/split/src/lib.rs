//! The second engine: files of a kernel file system, served in user space as SplitFS does it.
//!
//! Files, names and permissions are the kernel's; every descriptor is a real one of the real file.
//! What is served here is data: reads and overwrites are copies to and from mapped windows of the
//! file, appends go to *staging files* and are *relinked* into the file at `fsync`, at the last
//! `close`, and before another process could miss them. The design: `docs/engines.md`, "split".
//!
//! | file | subject |
//! |---|---|
//! | `engine`, `calls` | one process's engine: start, fork, exit; the program's calls |
//! | `descriptors` | what this process knows of its descriptors |
//! | `file`, `grow`, `drain` | an open file: windows and size; appends; relinking |
//! | `staging`, `worker` | staging files; the thread that makes their space ready |
//! | `warmth` | which overwrites are stores |
//! | `relink` | the ways to move staged bytes, probed |
//! | `home`, `records` | the hidden directory, and the shared records in it |
//! | `log` | the operation log (strict) |
//! | `recovery` | what dead processes left |
//! | `internal` | descriptors of the engine's own |
//! | `sys` | system calls that no library wraps |

mod calls;
mod descriptors;
mod drain;
mod engine;
mod file;
mod grow;
mod hidden_directory;
mod internal_descriptors;
mod log;
mod page_heat;
mod records;
mod recovery;
mod relink;
mod staging;
mod streams;
mod sys;
#[cfg(test)]
mod testing;
mod worker;

pub use engine::{Engine, Options, Technique, Usage};
pub use hidden_directory::{HOME_NAME, maps_directly};
pub use recovery::{Incomplete, ProgressReport, Recovered, Refusal, recover, recover_reporting};
pub use relink::Backend;

/// An `errno` or a value.
pub type Result<T> = core::result::Result<T, rustix::io::Errno>;

/// What a write promises (table 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Overwrites are in place, appends durable at `fsync`, atomically.
    Posix,
    /// Durable at return.
    Sync,
    /// Durable at return, and atomic.
    Strict,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> core::result::Result<Self, String> {
        match word {
            "posix" => Ok(Self::Posix),
            "sync" => Ok(Self::Sync),
            "strict" => Ok(Self::Strict),
            _ => Err(format!("{word} is not one of posix, sync, strict")),
        }
    }
}
