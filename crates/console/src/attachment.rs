//! How a command attaches a volume: with a word that it goes on, where that takes long, and the
//! pages of a domain's volume within reach.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use ddmap::{PagerOptions, pager_of};
use pmem::Pager;
use rustix::io::Errno;
use volume::{AttachOptions, Volume, VolumeError};

use crate::output;

/// An attached volume; detached when it is dropped.
pub struct AttachedVolume(Arc<Volume>);

impl AttachedVolume {
    /// Attaches for reading and writing.
    pub fn attach(path: &Path) -> Result<Self, VolumeError> {
        Self::with(path, &AttachOptions::default())
    }

    /// Attaches for reading: normally where the region may be written, and read-only where it may
    /// not, or where the volume has features that only allow reading.
    pub fn attach_to_read(path: &Path) -> Result<Self, VolumeError> {
        Self::attach(path).or_else(|error| match error.errno() {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::OPNOTSUPP => {
                let options = AttachOptions { read_only: true, ..AttachOptions::default() };
                Self::with(path, &options)
            }
            _ => Err(error),
        })
    }

    /// A volume that was not left in order is recovered first, which takes a while if it has many
    /// files.
    fn with(path: &Path, options: &AttachOptions) -> Result<Self, VolumeError> {
        output::busy("attaching", || volume::attach(path, options)).map(Self)
    }
}

impl Deref for AttachedVolume {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

impl Drop for AttachedVolume {
    fn drop(&mut self) {
        // What detach cannot do now, the next attacher does.
        let _ = self.0.leave();
    }
}

/// From here on what this process attaches finds the pages that lie elsewhere.
pub fn find_pagers() {
    volume::find_pagers_by(pager);
}

fn pager(path: &Path) -> Result<Option<Arc<dyn Pager>>, String> {
    let found = pager_of(path, PagerOptions::default()).map_err(|error| error.to_string())?;
    Ok(found.map(|pager| pager as Arc<dyn Pager>))
}
