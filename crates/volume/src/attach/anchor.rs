//! Finds the anchor directory of a volume in use: the region itself says which it is.
//!
//! All processes that attach must agree on the anchor directory, but a region can have several
//! names: hard links, a file that is bind-mounted into a container, a new name after `mv`. So the
//! first one to attach notes in the runtime's header where its anchor is: the path, and device and
//! inode number of the liveness file. A process that attaches while the region is held takes that
//! directory: the one beside the name that it was given, if it is the same one, or the one noted.
//! If it reaches neither, it is refused at once.
//!
//! The note is void with the runtime (it is zeroed with it), and is read only while a process holds
//! the region's writers' byte; `remove.rs` reads it under that byte, too, to find what a file that
//! was renamed has left beside its old name. A path that is too long is not noted: then an attach
//! by another name fails after a while, as where the anchor directory was removed.

use crate::Result;
use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::{
    HEADER_ANCHOR, HEADER_ANCHOR_BYTES, HEADER_EPOCH, HEADER_FORMAT, RuntimeLayout, Superblock,
};
use crate::medium::superblock;
use crate::process::liveness;
use crate::volume::Volume;
use pmem::Region;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Words of the note before the path: its length, device and inode number of the liveness file.
const LENGTH: u64 = HEADER_ANCHOR;
const DEVICE: u64 = LENGTH + 8;
const INO: u64 = DEVICE + 8;
const PATH: u64 = INO + 8;
/// Bytes of the path at most.
const PATH_BYTES: usize = (HEADER_ANCHOR + HEADER_ANCHOR_BYTES - PATH) as usize;

/// What the region says of its anchor directory.
struct Noted {
    directory: PathBuf,
    device: u64,
    ino: u64,
}

impl Noted {
    fn read(region: &Region, superblock: &Superblock) -> Option<Self> {
        let word = |at| region.shared_load(superblock.runtime + at).ok();
        let (state, _) = superblock::read_state(region).ok()?;
        let in_force = word(HEADER_FORMAT)? == RuntimeLayout::format()
            && word(HEADER_EPOCH)? == u64::from(state.epoch);
        let length = word(LENGTH)? as usize;
        if !in_force || length == 0 || length > PATH_BYTES {
            return None;
        }
        let mut path = vec![0; length];
        region.read(superblock.runtime + PATH, &mut path).ok()?;
        let directory = PathBuf::from(OsStr::from_bytes(&path));
        Some(Self { directory, device: word(DEVICE)?, ino: word(INO)? })
    }

    /// Whether this directory is it. A process that may not look is told so when it opens it.
    fn is(&self, directory: &Path) -> bool {
        match rustix::fs::stat(directory.join("live")) {
            Ok(stat) => (stat.st_dev, stat.st_ino) == (self.device, self.ino),
            Err(errno) => errno == Errno::ACCESS,
        }
    }
}

/// Where the anchor directory of a held region is.
pub(crate) enum Anchor {
    At(PathBuf),
    /// It is not reached from here.
    Elsewhere(PathBuf),
}

impl Anchor {
    /// `beside` is where it would be if no process held the region.
    pub(crate) fn find(region: &Region, superblock: &Superblock, beside: &Path) -> Self {
        match Noted::read(region, superblock) {
            None => Self::At(beside.to_owned()),
            Some(noted) if noted.is(beside) => Self::At(beside.to_owned()),
            Some(noted) if noted.is(&noted.directory) => Self::At(noted.directory),
            Some(noted) => Self::Elsewhere(noted.directory),
        }
    }
}

/// The anchor directory that the region of a volume that nobody uses names, if its liveness file is
/// still the one noted, and no file has the name that it belongs to: a copy of a volume has the
/// note of the original.
pub(crate) fn left_by(region: &Region, superblock: &Superblock) -> Option<PathBuf> {
    let noted = Noted::read(region, superblock)?;
    let live = rustix::fs::lstat(noted.directory.join("live")).ok()?;
    let bytes = noted.directory.as_os_str().as_bytes().strip_suffix(b".solera")?;
    let owner = rustix::fs::lstat(Path::new(OsStr::from_bytes(bytes)));
    let is_left = (live.st_dev, live.st_ino) == (noted.device, noted.ino)
        && owner.err() == Some(Errno::NOENT);
    is_left.then_some(noted.directory)
}

/// The volume at `path` is in use with an anchor that is not reached from here.
pub(crate) fn elsewhere(
    asked: &'static str,
    path: &Path,
    beside: &Path,
    noted: &Path,
) -> VolumeError {
    if noted == beside {
        return liveness::gone(asked, path, noted);
    }
    let bytes = noted.as_os_str().as_bytes();
    let other =
        bytes.strip_suffix(b".solera").map_or(noted, |name| Path::new(OsStr::from_bytes(name)));
    let found = format!(
        "it is in use by another name, {}, whose anchor directory {} is not to be seen from here",
        other.display(),
        noted.display()
    );
    let advice = format!(
        "use it by that name, or let that directory be seen at {} too (in a container: mount it \
         there)",
        beside.display()
    );
    VolumeError::new(ErrorKind::InUse, asked, path, found, advice)
}

impl Volume {
    /// Notes where the anchor directory is; the runtime has just been cleared, and no process has
    /// joined yet.
    pub(crate) fn note_anchor(&self) -> Result<()> {
        let Some((directory, device, ino)) = self.liveness.whereabouts() else { return Ok(()) };
        let path = directory.as_os_str().as_bytes();
        if path.len() > PATH_BYTES {
            return Ok(());
        }
        let mut padded = path.to_vec();
        padded.resize(path.len().next_multiple_of(8), 0);
        self.rt.write(PATH, &padded)?;
        self.rt.store(DEVICE, device)?;
        self.rt.store(INO, ino)?;
        Ok(self.rt.store(LENGTH, path.len() as u64)?)
    }
}
