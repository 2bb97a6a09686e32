//! Calls that go on when pages of the region have come that were absent (`space/paging.rs`).
//!
//! A call that fails for one has changed nothing. What it holds is given back before the pager is
//! asked: locks by the call itself, the right to work alone, and a position, here.

use crate::Result;
use crate::data::file::{CALL_MAX, expect_file};
use crate::data::map::Map;
use crate::data::plan::Position;
use crate::inode::references::Opened;
use crate::medium::layout::BLOCK;
use crate::space::paging::Places;
use crate::volume::Volume;
use pmem::{Access, Pager, UserIn};
use rustix::io::Errno;
use vfs::{Desc, IoOffset, Node, Synced};

impl Volume {
    /// Where a call goes that accesses `range` of a file so.
    fn places_for(&self, node: Node, range: (u64, u64), access: Access) -> Places {
        let all = self.places_of(node, range);
        let (whole, parts) = match access {
            Access::Whole => self.whole_places_of(node, range),
            Access::Load | Access::Store => Default::default(),
        };
        Places { all, whole, parts }
    }

    /// Blocks in a row that `[offset, offset + length)` of a file covers, up to the file's end, and
    /// those that it covers in part.
    fn whole_places_of(
        &self,
        node: Node,
        (offset, length): (u64, u64),
    ) -> (Vec<(u64, u64)>, Vec<u64>) {
        let found = self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let size = self.current(inode)?.size;
            let map = Map::new(self, inode, identity);
            let end = offset.saturating_add(length);
            let last = if end < size { end / BLOCK } else { size.div_ceil(BLOCK) };
            let (mut whole, mut parts, mut at) = (Vec::new(), Vec::new(), offset.div_ceil(BLOCK));
            let edges = [offset, end.min(size)].into_iter().filter(|edge| *edge < size);
            for edge in edges.filter(|edge| edge % BLOCK != 0) {
                let run = map.run(edge / BLOCK, 1)?;
                parts.extend(run.is_written().then_some(run.block * BLOCK));
            }
            while at < last {
                let run = map.run(at, last - at)?;
                if run.is_written() {
                    whole.push((run.block * BLOCK, run.blocks.min(last - at) * BLOCK));
                }
                at += run.blocks;
            }
            Ok((whole, parts))
        });
        found.unwrap_or_default()
    }

    /// Does again what accesses a file's bytes and has failed with `EIO`, with nothing held, when
    /// pages that were absent have come (`space/paging.rs`); until it fails otherwise, or is done.
    /// `range` of the file `node` is where it goes.
    #[cold]
    #[inline(never)]
    pub(super) fn again<T>(
        &self,
        access: Access,
        range: impl Fn() -> Result<(Node, (u64, u64))>,
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let places = || {
            let found = range();
            found.map_or_else(
                |_| Places::default(),
                |(node, range)| self.places_for(node, range, access),
            )
        };
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
        (node, access): (Node, Access),
        range: impl Fn() -> (u64, u64),
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut times = 0;
        loop {
            let done = call();
            let Err(Errno::IO) = done else { return done };
            let _waiting = self.stay_idle();
            let places = || self.places_for(node, range(), access);
            self.has_come(Errno::IO, access, &mut times, places)?;
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
            Ok(self.paged_idle((opened.node, stores(opened.flags.appends())), range, write)?.0)
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
        at: IoOffset,
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

/// How a write accesses the range that it names: one that appends goes elsewhere.
pub(super) fn stores(appends: bool) -> Access {
    if appends { Access::Store } else { Access::Whole }
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
