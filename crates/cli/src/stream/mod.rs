//! The stream of `solera export`: a tree of a volume as a tar archive of POSIX.1-2001 (pax), which
//! any tar can list and unpack, with an end that can be checked.
//!
//! ```text
//!   for each object   x header   path, linkpath (where ustar has no room); mtime, atime to the
//!                                nanosecond; SCHILY.xattr.*; GNU.sparse.* (version 1.0) of a
//!                                file with holes; SOLERA.kind=socket
//!                     header     kind, permissions, owner, device, size; of a second name of a
//!                                file its first one
//!                     data       of a file with holes: its map, then what is not a hole
//!   at the end        g header   SOLERA.objects: how many; SOLERA.sha256: of all bytes before
//!                     two blocks of zeros
//! ```
//!
//! The top comes first, as `./`; a directory comes before what is in it; names are in byte order. A
//! stream without its end is torn.

mod read;
mod write;

use rustix::io::Errno;
use vfs::{FileSystem, Kind, Nanos, Node};
use volume::Volume;

pub use read::import;
pub use write::export;

/// The unit of an archive, in bytes.
const BLOCK: usize = 512;
/// Bytes read or written at a time.
const PIECE: usize = 1 << 20;

const PATH: &str = "path";
const LINK_PATH: &str = "linkpath";
const MTIME: &str = "mtime";
const ATIME: &str = "atime";
/// Before the name of an extended attribute.
const XATTR: &str = "SCHILY.xattr.";
const SPARSE_MAJOR: &str = "GNU.sparse.major";
const SPARSE_MINOR: &str = "GNU.sparse.minor";
const SPARSE_NAME: &str = "GNU.sparse.name";
const SPARSE_SIZE: &str = "GNU.sparse.realsize";
/// What tar has no kind for.
const KIND: &str = "SOLERA.kind";
const SOCKET: &[u8] = b"socket";
/// Of the end.
const OBJECTS: &str = "SOLERA.objects";
const SHA256: &str = "SOLERA.sha256";

/// What went through a stream.
#[derive(Default)]
pub struct StreamTotals {
    pub files: u64,
    pub directories: u64,
    /// Further names of files.
    pub links: u64,
    /// Symlinks, fifos, sockets and device nodes.
    pub others: u64,
    /// Of files, holes apart.
    pub bytes: u64,
    /// SHA-256 of all before the end, in hexadecimal digits.
    pub sha256: String,
}

impl StreamTotals {
    fn add(&mut self, kind: Kind) {
        *match kind {
            Kind::File => &mut self.files,
            Kind::Directory => &mut self.directories,
            _ => &mut self.others,
        } += 1;
    }

    fn objects(&self) -> u64 {
        self.files + self.directories + self.links + self.others
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "files": self.files,
            "directories": self.directories,
            "links": self.links,
            "others": self.others,
            "bytes": self.bytes,
            "sha256": self.sha256,
        })
    }
}

/// Why a stream ended too early.
pub enum StreamError {
    /// The stream itself: it could not be written, or it could not be read.
    Stream(std::io::Error),
    /// It is not what `export` writes, or not all of it.
    Wrong(String),
    /// A call on the volume failed, of an object of this path.
    Volume(Vec<u8>, Errno),
}

/// A call on the volume failed while a stream was read from it.
#[derive(Debug)]
struct VolumeErrno(Errno);

impl std::fmt::Display for VolumeErrno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for VolumeErrno {}

impl From<std::io::Error> for StreamError {
    fn from(error: std::io::Error) -> Self {
        let within = error.get_ref().and_then(|error| error.downcast_ref());
        if let Some(VolumeErrno(errno)) = within {
            return Self::Volume(Vec::new(), *errno);
        }
        // What is no error of the system's is one of the archive.
        match error.raw_os_error() {
            None if error.kind() != std::io::ErrorKind::WriteZero => Self::Wrong(error.to_string()),
            _ => Self::Stream(error),
        }
    }
}

type Result<T> = std::result::Result<T, StreamError>;

/// An error of a call on an object.
fn of(path: &[u8]) -> impl Fn(Errno) -> StreamError + '_ {
    move |errno| StreamError::Volume(path.to_vec(), errno)
}

/// All extended attributes of an object.
fn xattrs_of(volume: &Volume, node: Node) -> rustix::io::Result<Pairs> {
    let mut names = vec![0; volume.list_xattr(node, &mut [])?];
    let length = volume.list_xattr(node, &mut names)?;
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; volume.get_xattr(node, name, &mut [])?];
        let length = volume.get_xattr(node, name, &mut value)?;
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// Names with their values: of extended headers, and extended attributes.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const SECOND: i128 = 1_000_000_000;

/// A time as pax has it: seconds, with a fraction.
fn decimal(time: Nanos) -> String {
    let sign = if time < 0 { "-" } else { "" };
    let all = i128::from(time).abs();
    let (seconds, nanos) = (all / SECOND, all % SECOND);
    if nanos == 0 { format!("{sign}{seconds}") } else { format!("{sign}{seconds}.{nanos:09}") }
}

/// The time of such a text; `None` if it is none.
fn of_decimal(text: &[u8]) -> Option<Nanos> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || fraction.len() > 9 || !is_digits(seconds) || !is_digits(fraction) {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = seconds.parse::<u64>().ok()?;
    Nanos::try_from(sign * (i128::from(seconds) * SECOND + nanos)).ok()
}

/// The digits of a digest.
fn hexadecimal(digest: &ring::digest::Digest) -> String {
    use std::fmt::Write;
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Into a string nothing fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::{decimal, of_decimal};

    #[test]
    fn times_are_told_and_read() {
        for time in [0, 1, -1, 999_999_999, -1_000_000_001, 1_700_000_000_123_456_789, i64::MIN] {
            assert_eq!(of_decimal(decimal(time).as_bytes()), Some(time), "{}", decimal(time));
        }
        assert_eq!(of_decimal(b"12.5"), Some(12_500_000_000));
        for wrong in ["", "-", ".5", "1.0000000001", "1e3", " 1", "1.-5", "99999999999999999999"] {
            assert_eq!(of_decimal(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
