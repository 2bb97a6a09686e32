//! The `volume` engine: a persistent-memory file system in user space, shared by many processes.
//!
//! After `WineFS` (Kadekodi, dissertation, chapter 5): aligned 2 MiB chunks that survive ageing,
//! metadata contained in chunks of its own, fine-grained undo journals, atomic synchronous
//! operations. Every process maps the volume and works on it directly; there is no server.
//! `docs/design.md` argues the architecture, `docs/format.md` draws the medium.
//!
//! From the ground up: `ground`, `process`, `space`, `inode`, `txn`, `cache`, `data`, `namespace`,
//! `open`, `watch`, `upkeep`, `recovery`, `check`, `attach`. A module names its own layer and those
//! below it (`scripts/layers.py`).

mod attach;
mod cache;
mod check;
mod data;
mod filesystem;
#[cfg(not(feature = "inject"))]
mod inject;
#[cfg(feature = "inject")]
pub mod inject;
mod inode;
mod medium;
mod namespace;
mod open;
mod process;
mod recovery;
mod space;
#[cfg(test)]
mod testing;
mod txn;
mod upkeep;
mod volume;
mod watch;
#[cfg(test)]
#[path = "../../robust/src/models/words.rs"]
mod words;

pub use attach::format::{FormatOptions, format, format_region, own_bytes};
pub use attach::inspection::{Activity, activity, device_of, info, uuid_of};
pub use attach::offline_check::{fsck, repair};
pub use attach::output_file::{
    Kept, check_ordinary, create_ordinary, is_fifo, is_in_anchor, is_ordinary,
};
pub use attach::pager::{FindPager, find_pagers_by};
pub use attach::remove::{Removed, remove};
pub use attach::resume::resume;
pub use attach::snapshot::{SnapshotOptions, SnapshotReport, snapshot};
pub use attach::upgrade::{Upgrade, upgradable, upgrade, upgrade_region};
pub use attach::{
    AttachOptions, attach, attach_permitted, attach_region, detach_dead, detach_dead_telling,
};
pub use check::extents::{ChunkUse, Extent};
pub use check::fsck::{FsckOptions, FsckReport};
pub use check::info::{Info, RuntimeUse};
pub use check::processes::{Life, ProcessUse};
pub use check::repair::{RepairOptions, RepairReport};
pub use medium::error::{ErrorKind, VolumeError};
pub use medium::layout::{BLOCK, CHUNK};
pub use process::Attached;
pub use process::carriers::{carried, carry, dismiss};
pub use process::counts::{Counts, Death};
pub use process::liveness::{HANDING_MODE, work_beside_another};
pub use recovery::Recovery;
pub use recovery::fault::{FsckFault, LostData, Remedy};
pub use space::numa::{Numa, NumaUse, check_simulated};
pub use volume::Volume;

/// What calls of the contract return.
pub(crate) type Result<T> = vfs::Result<T>;

/// What a process wants its writes to be worth when power fails. In every mode a call that returned
/// survives the death of any process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Overwrites durable at return, appends at `fsync`; metadata atomic.
    Posix,
    /// Everything durable at return; metadata atomic, data not.
    Sync,
    /// Everything durable at return and every call atomic.
    #[default]
    Strict,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Posix => "posix",
            Self::Sync => "sync",
            Self::Strict => "strict",
        })
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "posix" => Ok(Self::Posix),
            "sync" => Ok(Self::Sync),
            "strict" => Ok(Self::Strict),
            other => Err(format!("{other} is not one of posix, sync, strict")),
        }
    }
}
