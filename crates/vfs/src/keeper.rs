//! What a process that executes a program which nothing can be preloaded into, and the keeper that
//! mounts the volumes for it, say to each other (docs/outside-calls.md, "Programs that no library
//! can enter").
//!
//! The keeper answers each connection with one message. Either it begins with [`READY`], and has
//! two descriptors: the name space of mounts in which the volumes are mounted, and the root
//! directory there. Behind `READY` stand the paths of the directories that others stand in for
//! there, each with a NUL behind it. Or it says, for people, why there is no mount. Then the asker
//! closes the connection, as an exec does by itself, or sends a byte: its exec has failed.

use rustix::fs::{Access, access};
use rustix::thread::{CapabilitySet, capabilities};

/// Environment variable: the command that is the keeper, if programs may have one.
pub const COMMAND: &str = "SOLERA_KEEPER";

/// Environment variable: the next program is not executed without a mount, if nothing can be
/// preloaded into it. For the image that is told, not for what that executes.
pub const REQUIRED: &str = "SOLERA_KEEPER_REQUIRED";

/// How a good answer begins. No text for people does.
pub const READY: u8 = 0;

/// Bytes that an answer has at most.
pub const ANSWER_MAX: usize = 64 << 10;

/// Whether this process may have a keeper, and enter its name space.
pub fn is_permitted() -> bool {
    let both = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(both))
        && access("/dev/fuse", Access::READ_OK | Access::WRITE_OK).is_ok()
}
