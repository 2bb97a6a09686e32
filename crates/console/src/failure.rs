//! Why a command failed: what was asked, what was found, what to do about it, and the exit code.

use std::fmt;

use ddmap::DomainError;
use rustix::io::Errno;
use vfs::mounts::Mount;
use volume::{ErrorKind, Volume, VolumeError};

use crate::command_line;

/// Why a volume has no room though its own space is not used up.
pub const NO_ROOM_BENEATH: &str = "the file system beneath the volume has no memory left for it";

/// What a command gives: its exit code, or a failure.
pub type Outcome = Result<u8, Failure>;

/// A failure that ends the command. It is printed once, in `main`.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// A failure with all three parts. `advice` may be empty where nothing can be advised; `found`
    /// may be an error of the standard library, which appends its number.
    pub fn new(asked: impl fmt::Display, found: impl fmt::Display, advice: &str) -> Self {
        let mut text = format!("cannot {asked}: {}", without_numbers(&found.to_string()));
        if !advice.is_empty() {
            text.push_str("; ");
            text.push_str(advice);
        }
        Self { text, code: 1 }
    }

    /// The volume lies on an ordinary disk, and no option accepts that.
    pub fn ordinary_disk(asked: impl fmt::Display) -> Self {
        let found =
            "it lies on an ordinary disk: a power cut may tear what is written (class page)";
        let line = command_line::with_option(&["--class", "page"]);
        Self::new(asked, found, &format!("to write there all the same: {line}"))
    }

    /// A mount serves another volume than its path leads to by now. `otherwise`: what else can be
    /// done.
    pub fn replaced(asked: impl fmt::Display, mount: &Mount, otherwise: &str) -> Self {
        let (volume, at) = (mount.volume.display(), mount.at.display());
        let found = format!(
            "the mount at {at} still serves the volume that was at {volume} before: another file \
             is there now"
        );
        let advice = format!(
            "copy from {at} what is needed, `solera umount {at}` and mount anew; {otherwise}"
        );
        Self::new(asked, found, &advice)
    }

    /// No room on a volume, whose own space is not what is used up.
    pub fn no_room_beneath(asked: impl fmt::Display) -> Self {
        let advice = "make room there (`solera info` shows it); growing the volume does not help";
        let found = format!("{}: {NO_ROOM_BENEATH}", describe(Errno::NOSPC));
        Self::new(asked, found, advice)
    }

    /// A failure that another process has put into words.
    pub fn told(text: &str) -> Self {
        Self { text: text.to_owned(), code: 1 }
    }

    /// The same failure with another exit code than 1.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    /// A call on a volume failed.
    pub fn errno(asked: impl fmt::Display, errno: Errno) -> Self {
        let errno = pmem::or_no_memory(errno);
        if errno == Errno::IO
            && let Some(node) = ddmap::Pagers::take_lost()
        {
            let advice = "see how much of which file is: `solera fsck --read-data`";
            return Self::new(asked, format!("it is lost with node {node}"), advice);
        }
        let advice = match errno {
            Errno::NOSPC => "make room (`solera df` shows it), or `solera grow` the volume",
            Errno::IO => "check the volume with `solera fsck`",
            _ => return Self::outside(asked, errno),
        };
        Self::new(asked, describe(errno), advice)
    }

    /// As [`Failure::errno`], of an attached volume: says which space is used up.
    pub fn on_volume(asked: impl fmt::Display, errno: Errno, volume: &Volume) -> Self {
        match pmem::or_no_memory(errno) {
            Errno::NOSPC if lacks_memory(volume) => Self::no_room_beneath(asked),
            errno => Self::errno(asked, errno),
        }
    }

    /// A system call failed on something that no volume can help: standard output, a file of the
    /// kernel's.
    pub fn outside(asked: impl fmt::Display, errno: Errno) -> Self {
        let advice = match errno {
            Errno::NOSPC => "make room there",
            Errno::ACCESS | Errno::PERM => "run as the owner, or change the permissions",
            _ => "",
        };
        Self::new(asked, describe(errno), advice)
    }

    /// The same, from an error of the standard library.
    pub fn io(asked: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::outside(asked, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<DomainError> for Failure {
    fn from(error: DomainError) -> Self {
        Self::new(error.asked, error.found, &error.advice)
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        if error.kind() != ErrorKind::OrdinaryDisk {
            return Self { text: error.to_string(), code: 1 };
        }
        Self::ordinary_disk(format!("{} {}", error.asked(), error.path().display()))
    }
}

/// Whether a volume that has no room lacks memory beneath, rather than space of its own.
pub fn lacks_memory(volume: &Volume) -> bool {
    // `false` if that cannot be found out.
    volume.info().is_ok_and(|info| info.missing_bytes > 0 && info.available_bytes < info.free_bytes)
}

/// The same text without "(os error N)".
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// The text of an errno without Rust's "(os error N)".
pub fn describe(errno: Errno) -> String {
    os::describe(errno)
}
