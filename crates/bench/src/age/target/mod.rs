//! The interface to the file system that is aged: a volume, or a directory of any mounted file
//! system.

mod directory;
mod volume;

use std::path::Path;

use console::failure::Failure;
use console::runs::Run;
use rustix::io::Errno;

pub use self::directory::Directory;
pub use self::volume::OnVolume;

/// The directory of the target in which all of it happens.
pub const PLACE: &str = "aged";

/// A file system under the ager. Files are known by their numbers; all lie in [`PLACE`].
pub trait Target {
    /// Bytes in all.
    fn capacity(&self) -> Result<u64, Errno>;
    /// Bytes that files may still take.
    fn available(&self) -> Result<u64, Errno>;
    /// Makes the directories, given behind their parents.
    fn make_directories(&mut self, paths: &[String]) -> Result<(), Errno>;
    /// Makes a file with blocks for `size` bytes. If they are not to be had there is no file
    /// afterwards.
    fn create(&mut self, number: u64, dir: u16, size: u64) -> Result<(), Errno>;
    /// Writes `data` at `offset`, or at the end.
    fn write(&mut self, number: u64, offset: Option<u64>, data: &[u8]) -> Result<(), Errno>;
    /// Removes a file.
    fn remove(&mut self, number: u64) -> Result<(), Errno>;
    /// Writes the journal, until which kernel file systems hold freed bytes back.
    fn write_journal(&mut self) -> Result<(), Errno>;
    /// The free space, in the order of the medium; `None` where the file system does not tell.
    fn free_space(&self) -> Result<Option<Vec<Run>>, Errno>;
    /// Where the bytes of a file lie; `None` where the file system does not tell.
    fn extents(&self, number: u64) -> Result<Option<Vec<Run>>, Errno>;
    /// A call has failed: why, and what to do about it here.
    fn failure(&self, asked: &str, errno: Errno) -> Failure;
    /// Bytes that were moved to keep whole chunks whole, besides those of the files themselves.
    fn moved_bytes(&self) -> u64;
}

/// Opens what `path` is: a directory, or a volume's file or device.
/// `compaction`: see [`volume::Volume::set_compaction`].
pub fn open(path: &Path, compaction: Option<u32>) -> Result<Box<dyn Target>, Failure> {
    if path.is_dir() {
        Ok(Box::new(Directory::open(path)?))
    } else {
        Ok(Box::new(OnVolume::open(path, compaction)?))
    }
}

/// The refusal of a target that holds an `aged` already.
fn occupied(path: &Path) -> Failure {
    let asked = format!("age {}", path.display());
    let found = format!("it has an entry \"{PLACE}\" already");
    Failure::new(asked, found, "remove it: ageing begins with an empty directory of that name")
}
