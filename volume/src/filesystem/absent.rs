//! Calls that go on when pages of the region have come that were absent (`space/absent.rs`).
//!
//! A call that fails for one has changed nothing. What it holds is given back before the pager is
//! asked: locks by the call itself, the right to work alone, and a position, here.

use crate::Result;
use crate::data::file::CALL_MAX;
use crate::data::plan::Position;
use crate::inode::opens::Opened;
use crate::volume::Volume;
use pmem::{Access, Pager, UserIn};
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
        let mut times = 0;
        loop {
            self.has_come(Errno::IO, access, &mut times, places)?;
            match call() {
                Err(Errno::IO) => {}
                done => return done,
            }
        }
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
        let mut times = 0;
        loop {
            let done = call();
            let Err(Errno::IO) = done else { return done };
            let _waiting = self.stay_idle();
            let places = || self.places_of(node, range());
            self.has_come(Errno::IO, Access::Store, &mut times, places)?;
        }
    }

    /// Goes on with a write that has written `done` bytes, as many as one step may
    /// (`Space::at_once`), until all are written, or no more can be: how many are. `write` writes
    /// buffers behind so many bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn write_on(
        &self,
        data: &[UserIn<'_>],
        mut done: usize,
        mut write: impl FnMut(usize, &[UserIn<'_>]) -> Result<usize>,
    ) -> usize {
        let all = data.iter().map(|part| part.len() as u64).sum::<u64>().min(CALL_MAX) as usize;
        while self.region.pager().is_some() && 0 < done && done < all {
            match write(done, &behind(data, done)) {
                Ok(written) if written > 0 => done += written,
                _ => break,
            }
        }
        done
    }

    /// The same of a write at an offset, or at the end.
    #[cold]
    #[inline(never)]
    pub(super) fn write_rest(
        &self,
        opened: &Opened,
        offset: u64,
        data: &[UserIn<'_>],
        done: usize,
    ) -> usize {
        self.write_on(data, done, |done, rest| {
            let offset = offset + done as u64;
            let place = if opened.flags.appends() { Position::End } else { Position::At(offset) };
            let range = || (offset, rest.iter().map(|part| part.len() as u64).sum());
            let write = || self.write_waiting(opened, place, rest);
            Ok(self.paged_idle(opened.node, range, write)?.0)
        })
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

/// The buffers behind their first `skipped` bytes.
fn behind<'a>(data: &[UserIn<'a>], mut skipped: usize) -> Vec<UserIn<'a>> {
    let rest = data.iter().map(|part| {
        let here = skipped.min(part.len());
        skipped -= here;
        part.slice(here, part.len() - here)
    });
    rest.filter(|part| !part.is_empty()).collect()
}
