//! The `volume` engine: a persistent-memory file system in user space, shared by many processes.
//!
//! After `WineFS` (Kadekodi, dissertation, chapter 5): aligned 2 MiB chunks that survive ageing, metadata
//! contained in chunks of its own, fine-grained undo journals, atomic synchronous operations. Every
//! process maps the volume and works on it directly; there is no server. `docs/design.md` argues the
//! architecture, `docs/format.md` draws the medium.

mod align;
mod alloc;
#[cfg(test)]
mod alloc_tests;
mod alone;
mod anchor;
mod attach;
mod attributes;
mod beneath;
mod brief;
mod brief_names;
mod brief_rename;
mod bucket;
mod cache;
mod chunk;
mod close;
mod commit;
mod compact;
#[cfg(test)]
mod damage_tests;
mod death;
mod description;
mod directory;
#[cfg(test)]
mod directory_tests;
mod dirhash;
mod dirwalk;
mod edit;
mod error;
mod execution;
mod extents;
mod fallocate;
mod fault;
mod file;
mod file_read;
#[cfg(test)]
mod file_tests;
mod file_write;
mod filesystem;
mod format;
mod free_map;
mod fsck;
#[cfg(test)]
mod fsck_tests;
mod fullness;
mod grow;
mod habit;
mod held;
mod holders;
mod in_flight;
mod in_place;
mod info;
#[cfg(not(feature = "inject"))]
mod inject;
#[cfg(feature = "inject")]
pub mod inject;
mod inode;
mod inode_slots;
mod journal;
mod layout;
mod liveness;
mod lock_table;
mod lockword;
mod map;
mod mapping;
mod mark;
#[cfg(test)]
mod media_tests;
mod mend;
mod namespace;
#[cfg(test)]
mod namespace_tests;
mod new_inode;
mod numa;
mod op;
mod ordinary;
mod owners;
mod passes;
mod path;
mod position;
mod prefix;
mod process;
mod reached;
mod reading;
mod recall;
mod record_lock;
mod recovery;
mod redo;
#[cfg(test)]
mod redo_tests;
mod relink;
mod remove;
mod rename;
mod repair;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod replace_tests;
mod reserve;
mod resume;
mod rewrite;
mod runtime;
mod snapshot;
mod summed;
#[cfg(test)]
mod summed_tests;
mod superblock;
#[cfg(test)]
mod testing;
mod trim;
mod truncate;
mod view;
mod visit;
mod volume;
mod word;
mod xattr;

pub use attach::{
    AttachOptions, attach, attach_permitted, attach_region, detach_dead, detach_dead_telling,
};
pub use error::{ErrorKind, VolumeError};
pub use extents::{ChunkUse, Extent};
pub use fault::{FsckFault, Remedy};
pub use format::format;
pub use fsck::{FsckOptions, FsckReport, fsck};
pub use info::{Info, RuntimeUse, info};
pub use layout::{BLOCK, CHUNK};
pub use liveness::HANDING_MODE;
pub use numa::{Numa, NumaUse};
pub use ordinary::{Kept, check_ordinary, create_ordinary, is_in_anchor, is_ordinary};
pub use process::Attached;
pub use recovery::Recovery;
pub use remove::{Removed, remove};
pub use repair::{RepairOptions, RepairReport, repair};
pub use resume::resume;
pub use snapshot::{SnapshotOptions, SnapshotReport, snapshot};
pub use superblock::{FormatOptions, format_region};
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
            other => Err(format!("mode \"{other}\": posix, sync or strict is needed")),
        }
    }
}
