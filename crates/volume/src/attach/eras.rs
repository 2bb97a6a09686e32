//! Eras: what a cache over the volume goes by (`vfs::versions`).
//!
//! A version is an inode's sequence number, which never repeats in an epoch. An epoch's number may
//! come again (a volume's file is put back from a copy), so an era has a random name. It lies in
//! the runtime's header, which the last process leaves behind: the first one of the next epoch
//! reads it there, if the volume was left in order, before it clears the runtime. So whoever has a
//! copy of the file has the name of the era that made it what it is, and no other.
//!
//! Locks: none; the header's words are stored while the caller holds the attach byte.

use crate::Result;
use crate::inode::Inodes;
use crate::inode::references::not_open;
use crate::medium::call_counters::{BYTES_READ, READS};
use crate::medium::layout::{HEADER_ERA, HEADER_ERA_BEFORE, HEADER_FORMAT, RuntimeLayout};
use crate::medium::superblock;
use crate::volume::Volume;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use vfs::versions::{AtEnd, Eras, Place, Version, Versions};
use vfs::{Desc, Kind, Node};

impl Volume {
    /// The name of the era that ended in order; 0 if there is none. The caller knows that the
    /// volume was left in order.
    pub(super) fn era_left(&self) -> u64 {
        let word = |at| self.rt.load(at).unwrap_or(0);
        if word(HEADER_FORMAT) == RuntimeLayout::format() { word(HEADER_ERA) } else { 0 }
    }

    /// Names the era that begins.
    pub(super) fn begin_era(&self, before: u64) -> Result<()> {
        let mut name = [0; 8];
        superblock::random(&mut name)?;
        self.rt.store(HEADER_ERA_BEFORE, before)?;
        Ok(self.rt.store(HEADER_ERA, u64::from_le_bytes(name).max(1))?)
    }

    /// The era ends with this process, in order.
    pub(super) fn end_era(&self) {
        let act = self.local.at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = act {
            act(self);
        }
    }

    /// Whose a cache over this volume is: the volume's UUID, and the owner of its file.
    pub fn uuid_and_owner(&self) -> Result<(String, u32)> {
        // SAFETY: the region's descriptor is open as long as the region lives.
        let file = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        Ok((self.superblock.uuid(), rustix::fs::fstat(file)?.st_uid))
    }

    /// As [`Versions::version`] and [`Versions::number`] find it.
    fn number_and_size(&self, node: Node) -> Result<(u64, u64)> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        let found = Inodes::version(self, inode)?;
        // Behind that: the number outlives the object.
        self.is_still(inode, node.generation)?;
        Ok(found)
    }
}

impl Versions for Volume {
    fn eras(&self) -> Option<Eras> {
        if self.is_read_only() {
            return None;
        }
        let word = |at| self.rt.load(at).ok().filter(|&name| name != 0);
        Some(Eras { now: word(HEADER_ERA)?, before: word(HEADER_ERA_BEFORE) })
    }

    fn version(&self, desc: Desc) -> Result<Version> {
        if !self.standing.is_attached(Ordering::Relaxed) {
            return Err(Errno::BADF);
        }
        if self.standing.remains() {
            // A recovery is to be finished first, by a call of the other traits.
            return Err(Errno::BUSY);
        }
        let opened = self.opened(desc)?;
        match opened.kind {
            Kind::File if opened.flags.path_only() => return Err(Errno::BADF),
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let (number, size) = self.number_and_size(opened.node).map_err(not_open)?;
        let (reads, appends) = (opened.flags.reads(), opened.flags.appends());
        Ok(Version { node: opened.node, number, size, reads, appends })
    }

    fn number(&self, node: Node) -> Result<u64> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        if !self.is_ready(inode)? {
            self.is_still(inode, node.generation)?;
            return Ok(0);
        }
        self.number_and_size(node).map(|(number, _)| number)
    }

    fn served(&self, bytes: usize) {
        self.counters.one_and::<READS, BYTES_READ>(bytes as u64);
    }

    fn position(&self, desc: Desc) -> Result<u64> {
        crate::open::Opens::position(self, desc)
    }

    fn advance(&self, desc: Desc, from: u64, to: u64) -> Result<bool> {
        crate::open::Opens::advance(self, desc, from, to)
    }

    fn copy_out(&self, desc: Desc, range: (u64, u64), to: Place<'_>) -> Result<u64> {
        let opened = self.opened_data(desc, false)?;
        crate::data::Files::copy_out(self, opened.node, range, to).map_err(not_open)
    }

    fn at_end(&self, act: AtEnd) {
        *self.local.at_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
    }
}
