//! One interface to the kernel's file systems and to volumes, so that `ls`, `cat` and `cp` are
//! written once. Paths are bytes; errors are errno values; no permission is checked beyond the
//! kernel's own (a user that may open the region may read and change all in it).

mod kernel;
mod volume;

use console::failure::Failure;
use rustix::io::Errno;
use vfs::{Kind, Nanos};

pub use kernel::KernelTree;
pub use volume::VolumeTree;

/// A file system: its device number, and 0; a volume: its region's device and inode number.
pub type Home = (u64, u64);

/// What the commands need to know about an object.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    pub kind: Kind,
    /// The lower 12 bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    /// Tells file systems apart. A volume is one, by whatever name, and so is a mount of it.
    pub home: Home,
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes that lie on the medium.
    pub allocated: u64,
    pub atime: Nanos,
    pub mtime: Nanos,
}

/// A tree of files.
pub trait Tree {
    /// A call on it has failed: why, and what to do about it here.
    fn failure(&self, asked: String, errno: Errno) -> Failure;
    /// A path of it in messages, as it is typed.
    fn name(&self, path: &[u8]) -> String;
    /// What `path` is; a symlink in its last component is followed if `follow`.
    fn meta(&self, path: &[u8], follow: bool) -> Result<Meta, Errno>;
    /// The names in a directory, without `.` and `..`, in byte order.
    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno>;
    /// A symlink's target.
    fn link_target(&self, path: &[u8]) -> Result<Vec<u8>, Errno>;
    /// Makes a directory that its owner may fill.
    fn make_dir(&self, path: &[u8]) -> Result<(), Errno>;
    /// Makes a symlink.
    fn make_symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Errno>;
    /// Makes a fifo, socket or device node like `meta`.
    fn make_node(&self, path: &[u8], meta: &Meta) -> Result<(), Errno>;
    /// Opens a regular file for reading.
    fn open(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Errno>;
    /// Makes or empties a regular file that its owner may write, and opens it. Nothing is lost if
    /// it is refused.
    fn create(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Failure>;
    /// Refuses what must not be made at `path`, whatever it is.
    fn admits(&self, _path: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
    /// Gives what was copied the permissions and times of `meta`.
    fn finish(&self, path: &[u8], meta: &Meta) -> Result<(), Errno>;
}

/// An open file.
pub trait Open {
    /// Reads at `offset`; gives the number of bytes, 0 at the end.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno>;
    /// Writes all of `data` at `offset`.
    fn write_all_at(&self, offset: u64, data: &[u8]) -> Result<(), Errno>;
    /// The first run of data at or after `offset`: its start and end; `None` if only holes follow.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Errno>;
    /// Sets the size, and makes everything durable.
    fn close_at(&self, size: u64) -> Result<(), Errno>;
}
