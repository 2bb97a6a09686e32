//! Looks at a volume without attaching it: for `info` and `fsck`.
//!
//! The region is mapped privately (copy-on-write): nothing that is undone, rebuilt or initialised
//! here reaches it. While no process has attached the volume, the look keeps first attachments away
//! by the same lock as a read-only attachment. While one has, a look is good for single words only
//! (counters, slots): a check must attach then.
//!
//! Locks: the region's reader byte, shared, for as long as the view lives.

use crate::attach::{AttachOptions, attach, pager};
use crate::medium::Parts;
use crate::medium::error::VolumeError;
use crate::medium::layout::{STATE_CLEAN, State};
use crate::medium::superblock::{self, Found};
use crate::process::liveness::{
    Liveness, REGION_READERS, REGION_WRITERS, region_held, share_region,
};
use crate::volume::Volume;
use crate::{Mode, Result};
use pmem::Region;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A private view of a volume.
pub(crate) struct View {
    pub(crate) volume: Volume,
    /// The superblock as found, and which copy of it is wrong.
    pub(crate) found: Found,
    /// The newer valid slot of the state line.
    pub(crate) state: Result<State>,
    /// A process has attached the volume: the region changes.
    pub(crate) in_use: bool,
}

impl View {
    /// Looks at the volume at `path`; `asked` is the verb of error messages.
    pub(crate) fn open(asked: &'static str, path: &Path) -> std::result::Result<Self, VolumeError> {
        Self::open_as(asked, path, |region| superblock::read(region, path, asked))
    }

    /// As [`View::open`], of a volume whose region may have lost its end.
    pub(crate) fn open_to_check(path: &Path) -> std::result::Result<Self, VolumeError> {
        Self::open_as("check", path, |region| superblock::read_to_check(region, path))
    }

    fn open_as(
        asked: &'static str,
        path: &Path,
        read: impl FnOnce(&Region) -> std::result::Result<Found, VolumeError>,
    ) -> std::result::Result<Self, VolumeError> {
        let system = |what: &str, errno| VolumeError::system(asked, path, what, errno);
        if pager::is_paged(path, asked)? {
            // All that stays is here behind an attach, and a look reads nothing else. One that is
            // damaged is looked at as it is.
            if let Ok(volume) = attach(path, &AttachOptions::default()) {
                volume.leave().map_err(|errno| system("leaving it", errno))?;
            }
        }
        let region = pmem::open_to_read(path).and_then(Region::private_view);
        let region = region.map_err(|error| VolumeError::region(asked, path, &error))?;
        let locks = |errno| system("its locks", errno);
        share_region(region.fd(), REGION_READERS).map_err(locks)?;
        let in_use = region_held(region.fd(), REGION_WRITERS).map_err(locks)?;
        let found = read(&region)?;
        let view = Self::of_region(Arc::new(region), found, in_use);
        view.volume.looks_only.store(true, Ordering::Relaxed);
        Ok(view)
    }

    /// Looks at a region that is private already.
    pub(crate) fn of_region(region: Arc<Region>, found: Found, in_use: bool) -> Self {
        let state = superblock::read_state(&region).map(|(state, _)| state);
        let epoch = state.map_or(1, |state| state.epoch.wrapping_add(u32::from(!in_use)).max(1));
        let volume = Volume::assemble(
            Parts {
                volatile: Arc::clone(&region),
                region,
                superblock: found.superblock,
                epoch,
                mode: Mode::Strict,
                read_only: true,
            },
            Liveness::private(),
        );
        Self { volume, found, state, in_use }
    }

    /// Whether the last one to detach left the volume in order.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.is_ok_and(|state| state.clean == STATE_CLEAN)
    }

    /// Undoes, in this view, what a crash left open; gives the lanes that are damaged.
    pub(crate) fn undo_lanes(&self) -> Vec<u64> {
        let lanes = 0..u64::from(self.volume.superblock.lanes);
        lanes.filter(|lane| matches!(self.volume.replay_lane(*lane), Err(Errno::IO))).collect()
    }
}
