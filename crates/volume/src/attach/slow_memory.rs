//! A volume in memory that is to seem slower than it is: `SOLERA_MEMORY` names the model.
//!
//! The model is known before anything is attached, so that a value that is none changes nothing.
//! The region is slowed once it is attached: its runtime is this build's then, and has the words by
//! which all processes share the bandwidth. What an attach itself reads and recovers takes no
//! longer. A reader, who changes nothing of the region, shares with the threads of its process.
//!
//! Locks: none.

use crate::medium::error::{ErrorKind, VolumeError};
use crate::medium::layout::HEADER_BUSY;
use crate::volume::Volume;
use emulation::Model;
use std::path::Path;
use vfs::variable;

/// What the environment asks for; `asked` is the verb of the error.
pub(crate) fn model(asked: &'static str, path: &Path) -> Result<Model, VolumeError> {
    let model = variable::parsed::<Model>("SOLERA_MEMORY").map_err(|wrong| {
        let (found, advice) = wrong.rsplit_once("; ").unwrap_or((&wrong, "unset it"));
        VolumeError::new(ErrorKind::Invalid, asked, path, found, advice)
    })?;
    Ok(model.unwrap_or(Model::DRAM))
}

impl Volume {
    /// From here on copies take as long as `model` says.
    pub(crate) fn slow_down(&self, model: Model) {
        let busy = Some(self.superblock.runtime + HEADER_BUSY);
        // A region that has lost its end has no such words.
        let slowed = self.region.slow_down(model, busy);
        let slowed = slowed.or_else(|_| self.region.slow_down(model, None));
        debug_assert!(slowed.is_ok(), "words of the process's own are there");
    }
}
