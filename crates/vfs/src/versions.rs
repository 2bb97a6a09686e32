//! What a cache over an engine goes by: numbers that tell whether a file is still the same.
//!
//! A *version* is a number that moves with each change of a file's bytes or size, by two at least
//! with each call that changes it, and never repeats for one file within an *era*. An era ends when
//! the last process leaves the file system. Who keeps something over its end asks
//! [`Versions::eras`]: an era that ended in order is known by its name, and nothing changed between
//! it and the one that names it as the one before.

use crate::{Desc, Node, Result};
use std::os::fd::BorrowedFd;

/// A file as a call found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Which file.
    pub node: Node,
    /// Even; see the head of this file.
    pub number: u64,
    /// Its size then, in bytes.
    pub size: u64,
    /// The description may be read.
    pub reads: bool,
    /// What is written through the description goes to the end.
    pub appends: bool,
}

/// Whether a file has not changed since its first use in the era: its version is as that left it.
#[must_use]
pub const fn is_as_found(number: u64) -> bool {
    number.trailing_zeros() >= u32::BITS
}

/// The names of eras: random, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eras {
    /// This one.
    pub now: u64,
    /// The one before, if it ended in order.
    pub before: Option<u64>,
}

/// A file of the kernel's, and a place in it.
pub type Place<'f> = (BorrowedFd<'f>, u64);

/// What is done at the end of an era, with the engine whose it is.
pub type AtEnd = Box<dyn FnOnce(&dyn Versions) + Send>;

/// An engine over which a cache may lie.
pub trait Versions: Send + Sync {
    /// The eras. `None`: nothing can be kept (the files are only read, say).
    fn eras(&self) -> Option<Eras>;

    /// The version of an open regular file. `EBUSY`: it is being changed, or may be changed through
    /// a mapping. `EISDIR`, `EINVAL`: it is none.
    fn version(&self, desc: Desc) -> Result<Version>;

    /// The number of a file, whether it is open or not; 0 if it was not used in this era. `EBUSY`
    /// as above; `ESTALE`: it is gone.
    fn number(&self, node: Node) -> Result<u64>;

    /// A description's position. A write that is moving it is waited for.
    fn position(&self, desc: Desc) -> Result<u64>;

    /// Moves a position from `from` on; `false`: somebody else has moved it.
    fn advance(&self, desc: Desc, from: u64, to: u64) -> Result<bool>;

    /// Copies a range of a file (offset, length) into a file of the kernel's, in one go; holes stay
    /// holes there. Gives the bytes that there were, up to the end. What is changed meanwhile may
    /// be copied in part: versions tell.
    fn copy_out(&self, desc: Desc, range: (u64, u64), to: Place<'_>) -> Result<u64>;

    /// A read of so many bytes was served by the cache: it is counted with those of the engine.
    fn served(&self, bytes: usize);

    /// `act` runs at the end of the era if this process ends it in order: nobody else is there, and
    /// nothing changes any more.
    fn at_end(&self, act: AtEnd);
}
