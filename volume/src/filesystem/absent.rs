//! Calls that go on when pages of the region have come that were absent (`space/absent.rs`).
//!
//! A call that fails for one has changed nothing. What it holds is given back before the pager is
//! asked: locks by the call itself, the right to work alone, and a position, here.

use crate::Result;
use crate::volume::Volume;
use pmem::{Access, Pager};
use rustix::io::Errno;
use vfs::{Desc, Node, Synced, Where};

impl Volume {
    /// Does again what accesses a file's bytes and has failed with `EIO`, with nothing held, when
    /// pages that were absent have come (`space/absent.rs`); until it fails otherwise, or is done.
    /// `range` of the file `node` is where it goes.
    #[cold]
    #[inline(never)]
    pub(super) fn again<T>(
        &self,
        access: Access,
        range: impl Fn() -> Result<(Node, (u64, u64))>,
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let places =
            || range().map_or_else(|_| Vec::new(), |found| self.places_of(found.0, found.1));
        while self.has_come(Errno::IO, access, places) {
            match call() {
                Err(Errno::IO) => {}
                done => return done,
            }
        }
        Err(Errno::IO)
    }

    /// Changes `range` of a file, with nothing held but the right to work alone, which others get
    /// while pages come.
    #[cold]
    pub(super) fn paged_idle<T>(
        &self,
        node: Node,
        range: impl Fn() -> (u64, u64),
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        loop {
            let done = call();
            let Err(Errno::IO) = done else { return done };
            let _waiting = self.stay_idle();
            if !self.has_come(Errno::IO, Access::Store, || self.places_of(node, range())) {
                return done;
            }
        }
    }

    /// As [`Volume::again`], from the first time on.
    pub(super) fn paged<T>(
        &self,
        access: Access,
        range: impl Fn() -> Result<(Node, (u64, u64))>,
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match call() {
            Err(Errno::IO) => self.again(access, range, call),
            done => done,
        }
    }

    /// The bytes that a call on an open description accesses.
    pub(super) fn range_of(
        &self,
        desc: Desc,
        at: Where,
        length: usize,
    ) -> Result<(Node, (u64, u64))> {
        let node = self.opened(desc)?.node;
        let offset = at.given().map_or_else(|| self.position(desc), Ok)?;
        Ok((node, (offset, length as u64)))
    }

    /// Makes durable what is asked for, here and where the pager promises it.
    #[cold]
    pub(super) fn sync_beyond(&self, what: Synced) -> Result<()> {
        self.sync_here(what)?;
        self.region.pager().map_or(Ok(()), Pager::barrier)
    }
}
