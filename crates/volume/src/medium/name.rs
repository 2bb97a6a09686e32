//! Names as callers give them.
//!
//! Locks: none. Persistence: none.

use crate::Result;
use crate::medium::layout::NAME_MAX;
use rustix::io::Errno;
use smallvec::SmallVec;

/// Checks a name that is to be made or removed.
#[inline]
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Errno::NOENT),
        _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
        b"." | b".." => Err(Errno::INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// A legal name that is ours.
pub(crate) type OwnName = SmallVec<[u8; 256]>;

/// A name that is about to be stored, or taken away. The caller's text may be changed by another of
/// its threads while we read it again and again: what is hashed, compared and stored has to be one
/// name.
#[inline]
pub(crate) fn own_name(name: &[u8]) -> Result<OwnName> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let own = OwnName::from_slice(name);
    check_name(&own)?;
    Ok(own)
}
