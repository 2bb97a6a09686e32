//! The contract, as a cache over an engine keeps it: reads and writes go by the cache, everything
//! else is the engine's.
//!
//! A write at an offset, or to the end, is followed: what it touched, in granules, is cached no
//! more, and the rest of the file stays. Every other change makes the next reader forget the file,
//! as does a change that a process without the cache makes.

use crate::cache::{Cache, wanted};
use crate::descriptors;
use crate::directory::{Refusal, VolumeId};
use crate::inject::{Point, reach};
use crate::kernel;
use crate::pages;
use crate::program;
use crate::readahead::Spawn;
use pmem::Region;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use vfs::versions::Versions;
use vfs::{
    Attached, Attr, Beyond, Changing, Desc, DirEntry, Engine, EntryName, FileRef, FileSystem, Fill,
    ForkTicket, FsStat, IoOffset, Kind, LockKind, LockOwner, Locks, Mapped, Maps, NewNode, Node,
    Open, OpenFlags, Piece, RecordLock, Removes, RenameFlags, Result, SetAttr, Synced, UserIn,
    UserOut, Wait, WalkOutput, Whence,
};

/// An engine over which a cache may lie.
pub trait Underlying: Engine + Versions {}

impl<E: Engine + Versions> Underlying for E {}

/// What a process wants of a cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that segments may take.
    pub budget: u64,
    /// The directory in which it lies; `None`: where `solera cache create` has made one, else in
    /// `/dev/shm`.
    pub place: Option<PathBuf>,
    /// Which volume it is for.
    pub whose: VolumeId,
    /// Reads of so many bytes and more may be attached, whatever memory of the program's they go
    /// to; `None`: only to explicit buffers. Nothing comes of it without [`program::begin`].
    pub attach: Option<u64>,
    /// Begins a thread that fills ahead of readers in order; `None`: a miss is filled when it is
    /// read.
    pub ahead: Option<Spawn>,
    /// Is told whenever a read is not served, or copied although it might be attached, or a file is
    /// found changed, and why.
    pub told: Reporter,
}

/// Takes a reason, and the bytes that it concerns: `cache:stale`, `cache:written-mapping`,
/// `cache:full`, `cache:unreachable`, and of bytes that are copied `attach:short` and its kin.
pub type Reporter = fn(&'static str, u64);

/// An engine with a cache over it.
pub struct Cached {
    under: Arc<dyn Underlying>,
    cache: Arc<Cache>,
}

impl Cached {
    /// Lays the volume's cache over its engine. Refused in a sentence; the engine serves without.
    pub fn over(
        under: Arc<dyn Underlying>,
        options: &Options,
    ) -> std::result::Result<Self, Refusal> {
        let cache = Arc::new(Cache::open(&*under, options)?);
        let ending = Arc::clone(&cache);
        under.at_end(Box::new(move |engine| ending.end(engine)));
        Ok(Self { under, cache })
    }

    /// Descriptors of this process that belong to the cache: no other code may close them.
    #[must_use]
    pub fn internal_descriptors(&self) -> Vec<i32> {
        let index = self.cache.index().region().fd();
        let own = self.cache.descriptors().into_iter().chain(kernel::descriptors());
        own.map(AsRawFd::as_raw_fd).chain([index]).collect()
    }

    /// The index, to be laid under the protection key.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.cache.index().region()
    }

    /// The engine is to read into these buffers: what it overwrites is not attached any more. What
    /// lies behind the end of the file is not overwritten.
    fn before_copy(&self, desc: Desc, out: &[UserOut<'_>], at: IoOffset) {
        if pages::attached() == 0 {
            return;
        }
        if !self.under.describe(desc).is_ok_and(|(_, flags)| flags.reads()) {
            return;
        }
        let mut attr = Attr::NONE;
        let from = at.given().map_or_else(|| self.under.position(desc), Ok);
        let (Ok(from), Ok(())) = (from, self.under.attr(desc.into(), &mut attr)) else { return };
        let mut left = attr.size.saturating_sub(from);
        for buffer in out {
            let length = left.min(buffer.len() as u64);
            pages::before_copy(&buffer.slice(0, length as usize));
            left -= length;
        }
    }

    fn read_at(&self, desc: Desc, offset: u64, out: &[UserOut<'_>]) -> Option<usize> {
        let read = self.cache.read(&*self.under, desc, offset, out)?;
        if read.begins {
            self.begin_ahead();
        }
        Some(read.bytes)
    }

    /// Begins the thread that fills ahead of readers.
    #[cold]
    fn begin_ahead(&self) {
        let (cache, under) = (Arc::clone(&self.cache), Arc::clone(&self.under));
        let Some(ahead) = &self.cache.ahead else { return };
        let run = move || {
            let Some(ahead) = &cache.ahead else { return };
            ahead.serve(|wanted, goes_on| {
                let flags = OpenFlags(libc::O_RDONLY);
                // What fails is filled by the process that reads it.
                if let Ok(desc) = under.open(wanted.node.into(), flags, None) {
                    let _ = cache.fill_ahead(&*under, (desc, wanted), goes_on);
                    let _ = under.close(desc);
                }
            });
        };
        if !(ahead.spawn)(Box::new(run)) {
            ahead.failed();
        }
    }

    /// Ends it: it works with the engine.
    fn end_ahead(&self) {
        if let Some(ahead) = &self.cache.ahead {
            ahead.end();
        }
    }

    /// Reads at the position, which is moved only if nobody else has moved it meanwhile.
    fn read_on(&self, desc: Desc, out: &[UserOut<'_>]) -> Result<Option<usize>> {
        loop {
            let from = self.under.position(desc)?;
            let Some(read) = self.read_at(desc, from, out) else { return Ok(None) };
            if self.under.advance(desc, from, from + read as u64)? {
                return Ok(Some(read));
            }
        }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.end_ahead();
    }
}

impl FileSystem for Cached {
    fn root(&self) -> Node {
        self.under.root()
    }

    fn stat_fs(&self, of: FileRef) -> Result<FsStat> {
        self.under.stat_fs(of)
    }

    fn find(&self, from: FileRef, names: &[u8], attr: &mut Attr) -> bool {
        self.under.find(from, names, attr)
    }

    fn walk(&self, dir: Node, names: &[u8], want: WalkOutput<'_>) -> Result<usize> {
        self.under.walk(dir, names, want)
    }

    fn attr(&self, of: FileRef, attr: &mut Attr) -> Result<()> {
        self.under.attr(of, attr)
    }

    fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        self.under.set_attr(node, change)
    }

    fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        self.under.read_link(node, out)
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        self.under.create(dir, name, new)
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.under.link(node, dir, name)
    }

    fn remove(&self, at: &EntryName<'_>, what: Removes) -> Result<()> {
        self.under.remove(at, what)
    }

    fn rename(&self, from: &EntryName<'_>, to: &EntryName<'_>, flags: RenameFlags) -> Result<()> {
        self.under.rename(from, to, flags)
    }

    fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.under.read_dir(dir, cookie, each)
    }

    fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.under.get_xattr(node, name, out)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.under.set_xattr(node, name, value, flags)
    }

    fn list_xattr(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        self.under.list_xattr(node, out)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.under.remove_xattr(node, name)
    }

    fn open(&self, what: Open<'_>, flags: OpenFlags, place: Option<Node>) -> Result<Desc> {
        self.under.open(what, flags, place)
    }

    fn close(&self, desc: Desc) -> Result<()> {
        self.under.close(desc)
    }

    fn place(&self, desc: Desc) -> Result<Node> {
        self.under.place(desc)
    }

    fn describe(&self, desc: Desc) -> Result<(Node, OpenFlags)> {
        self.under.describe(desc)
    }

    fn set_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()> {
        self.under.set_flags(desc, flags)
    }

    fn read(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize> {
        let read = match at.given() {
            Some(offset) => self.read_at(desc, offset, out),
            None => self.read_on(desc, out)?,
        };
        if let Some(read) = read {
            self.under.served(read);
            return Ok(read);
        }
        self.before_copy(desc, out, at);
        let _copying = program::Copying::new(wanted(out), self.cache.attaches());
        self.under.read(desc, out, at)
    }

    fn write(&self, desc: Desc, data: &[UserIn<'_>], at: IoOffset) -> Result<usize> {
        let Some(offset) = at.given() else {
            // Where it goes is known to the engine alone.
            return self.under.write(desc, data, at);
        };
        let before = self.under.version(desc);
        reach(Point::BeforeWrite);
        let written = self.under.write(desc, data, at)?;
        if let Ok(before) = before
            && written > 0
        {
            let from = if before.appends { before.size } else { offset };
            self.cache.wrote(&*self.under, desc, &before, (from, from + written as u64));
        }
        Ok(written)
    }

    fn seek(&self, desc: Desc, offset: i64, whence: Whence) -> Result<u64> {
        self.under.seek(desc, offset, whence)
    }

    fn on_privileged_change(&self, act: fn(&dyn FileSystem, Node) -> Result<()>) {
        self.under.on_privileged_change(act);
    }

    fn sync(&self, what: Synced) -> Result<()> {
        self.under.sync(what)
    }

    fn truncate(&self, node: Node, size: u64) -> Result<()> {
        self.under.truncate(node, size)
    }

    fn allocate(&self, desc: Desc, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.under.allocate(desc, mode, offset, length)
    }

    fn copy_range(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.under.copy_range(from, from_offset, to, to_offset, length)
    }

    fn relink(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        self.under.relink(from, from_offset, to, to_offset, length)
    }

    fn watch(&self, node: Node, mask: u32) -> Result<Vec<u8>> {
        self.under.watch(node, mask)
    }

    fn is_written(&self, node: Node) -> Result<bool> {
        self.under.is_written(node)
    }

    fn is_executed(&self, node: Node) -> Result<bool> {
        self.under.is_executed(node)
    }
}

impl Maps for Cached {
    fn map(&self, desc: Desc, range: (u64, u64), mapped: Mapped, fill: Fill) -> Result<Vec<Piece>> {
        self.under.map(desc, range, mapped, fill)
    }

    fn region_descriptor(&self, of: FileRef) -> (i32, Changing) {
        self.under.region_descriptor(of)
    }

    fn region_address(&self, of: FileRef) -> usize {
        self.under.region_address(of)
    }

    fn can_map(&self, of: FileRef) -> (usize, bool) {
        self.under.can_map(of)
    }

    fn vacate(&self, number: i32, replace: &mut dyn FnMut() -> Result<()>) -> Result<i32> {
        let mut own = self.cache.descriptors().into_iter().chain(kernel::descriptors());
        if let Some(fd) = own.find(|fd| fd.as_raw_fd() == number) {
            fd.vacate()?;
            replace()?;
            return Ok(fd.as_raw_fd());
        }
        let region = self.region();
        if region.fd() == number {
            region.vacate_fd()?;
            replace()?;
            return Ok(region.fd());
        }
        self.under.vacate(number, replace)
    }
}

impl Locks for Cached {
    fn record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
        wait: bool,
    ) -> Result<()> {
        self.under.record_lock(desc, owner, lock, wait)
    }

    fn test_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>> {
        self.under.test_lock(desc, owner, lock)
    }

    fn release_locks(&self, of: FileRef) -> Result<()> {
        self.under.release_locks(of)
    }

    fn flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()> {
        self.under.flock(desc, kind, wait)
    }

    fn waits(&self) -> Result<Vec<Wait>> {
        self.under.waits()
    }

    fn look_beyond(&self, beyond: Beyond) {
        self.under.look_beyond(beyond);
    }
}

impl Attached for Cached {
    fn hand_over(&self, desc: Desc) -> Result<(u64, Kind)> {
        self.under.hand_over(desc)
    }

    fn adopt(&self, name: u64) -> Result<Desc> {
        self.under.adopt(name)
    }

    fn execute(&self, before: Option<Node>, now: Option<Node>) -> Result<()> {
        self.under.execute(before, now)
    }

    fn host_execution(&self, node: Node, begins: bool) -> Result<()> {
        self.under.host_execution(node, begins)
    }

    fn fork_prepare(&self, held: &[Desc]) -> Result<ForkTicket> {
        self.under.fork_prepare(held)
    }

    fn fork_parent(&self, ticket: ForkTicket, child: Option<u32>) {
        self.under.fork_parent(ticket, child);
    }

    fn fork_child(&self, ticket: ForkTicket) -> Result<()> {
        self.cache.forget_windows();
        program::forked();
        descriptors::forked();
        self.under.fork_child(ticket)
    }

    fn fork_unprepared(&self, held: &mut Vec<Desc>) -> Result<()> {
        self.cache.forget_windows();
        program::forked();
        descriptors::forked();
        self.under.fork_unprepared(held)
    }

    fn exec_prepare(&self) -> Result<String> {
        self.end_ahead();
        self.under.exec_prepare()
    }

    fn exec_failed(&self) {
        self.under.exec_failed();
    }

    fn detach(&self) -> Result<()> {
        self.end_ahead();
        self.under.detach()
    }
}
