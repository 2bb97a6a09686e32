//! The contract, as a volume keeps it: each call delegated to the module whose subject it is.
//!
//! What every call has in common stands here: it is refused when this process has detached, and it
//! first finishes the recoveries that this process has begun (`death.rs`). What belongs to
//! descriptions stands here too: positions, access modes, and what `O_SYNC` asks for.

mod attachment;
mod maps;
mod opening;
mod paging;
mod watched;

use crate::Result;
use crate::cache::Target;
use crate::data::fallocate::check_request;
use crate::data::plan::{Plan, Position};
use crate::inode::references::Opened;
use crate::inode::references::not_open;
use crate::medium::call_counters::{BYTES_READ, BYTES_WRITTEN, NAMES, READS, SYNCS, WRITES};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, HEADER_SIZE, SIZE_WATCHED};
use crate::namespace::{Names, alignment};
use crate::open::Opens;
use crate::open::close::Promise;
use crate::recovery::Recoveries;
use crate::txn::acquire::Anchor;
use crate::volume::Volume;
use crate::watch::Named;
use crate::watch::shadows::Event;
use pmem::Access;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use vfs::{
    Attr, Desc, DirEntry, EntryName, FileRef, FileSystem, FsStat, IoOffset, Kind, LockKind,
    LockOwner, Locks, NewNode, Node, NodeOrDesc, Open, OpenFlags, RecordLock, Removes, RenameFlags,
    SetAttr, Synced, UserIn, UserOut, WalkOutput, Whence,
};

/// An offset that a file may have.
#[inline]
fn offset_of(offset: u64) -> Result<u64> {
    if offset > i64::MAX as u64 { Err(Errno::INVAL) } else { Ok(offset) }
}

/// What the caller has found.
fn target((node, kind): (Node, Kind)) -> Target {
    Target { node, kind }
}

impl Volume {
    /// What every call begins with.
    #[inline]
    fn call(&self) -> Result<&Recoveries> {
        let engine = self.engine();
        if engine.standing.is_calm() && engine.has_size(engine.calm_size()) {
            return Ok(engine);
        }
        self.call_anyway()
    }

    /// The engine in which calls are served: what is looked at once, not at each step.
    #[inline]
    fn engine(&self) -> &Recoveries {
        self
    }

    /// The same, where something has to be done first.
    #[cold]
    fn call_anyway(&self) -> Result<&Recoveries> {
        if !self.standing.is_attached(Ordering::Relaxed) {
            return Err(Errno::BADF);
        }
        if self.standing.remains() {
            self.finish_recoveries()?;
        }
        let word = self.rt.load(HEADER_SIZE)?;
        if word & !SIZE_WATCHED != self.size() {
            self.refresh_size()?;
        }
        let kept_open = !self.local.openings.is_empty();
        self.standing.set_watched(word & SIZE_WATCHED != 0 || kept_open);
        if let Some(pager) = self.region.pager() {
            pager.begin();
        }
        Ok(self.engine())
    }

    /// What every call does that changes something: alone, where nobody else can be.
    #[inline]
    fn change<T>(&self, change: impl FnOnce(&Recoveries) -> Result<T>) -> Result<T> {
        Self::change_in(self.call()?, change)
    }

    #[inline]
    fn change_in<T>(
        engine: &Recoveries,
        change: impl FnOnce(&Recoveries) -> Result<T>,
    ) -> Result<T> {
        let _exclusive = engine.exclusive();
        let done = change(engine)?;
        engine.keep_up();
        Ok(done)
    }

    /// As [`Volume::call`], of names and attributes.
    #[inline]
    fn names(&self) -> Result<&Recoveries> {
        let engine = self.call()?;
        engine.counters.one::<NAMES>();
        Ok(engine)
    }

    /// As [`Volume::change`], of names and attributes.
    #[inline]
    fn change_names<T>(&self, change: impl FnOnce(&Recoveries) -> Result<T>) -> Result<T> {
        Self::change_in(self.names()?, change)
    }

    /// The same of record locks, which make no upkeep due.
    #[inline]
    fn lock<T>(&self, lock: impl FnOnce(&Recoveries) -> Result<T>) -> Result<T> {
        let engine = self.call()?;
        let _exclusive = engine.exclusive();
        lock(engine)
    }

    /// The root directory's node.
    pub(crate) fn root_node(&self) -> Node {
        Node { ino: self.superblock.root, generation: self.superblock.root_generation }
    }

    /// Writes through an open description, waiting for the lock: gives how much, and the offset
    /// behind it.
    #[cold]
    fn write_waiting(
        &self,
        opened: &Opened,
        place: Position,
        data: &[UserIn<'_>],
    ) -> Result<(usize, u64)> {
        if data.iter().any(|part| !part.is_empty()) {
            self.before_change(opened.node)?;
        }
        let engine = self.engine();
        let write = || engine.write_file(opened.node, place, data);
        let done = engine.with_orphans_dropped(write).map_err(not_open)?;
        engine.keep_up();
        Ok(done)
    }

    /// Before this process changes a file's contents, which may have set-id bits or capabilities.
    /// The caller holds no inode's lock.
    #[inline]
    fn before_change(&self, node: Node) -> Result<()> {
        if !self.may_be_privileged(node)? {
            return Ok(());
        }
        self.before_privileged_change(node)
    }

    #[cold]
    fn before_privileged_change(&self, node: Node) -> Result<()> {
        if !self.is_privileged(node)? {
            return Ok(());
        }
        if let Some(act) = self.local.privileged_change.get() {
            act(self, node)?;
        }
        self.look_at_privileges(node)
    }

    /// Reads what was not read there before: apart, so that the other way needs few registers.
    #[inline(never)]
    fn read_further(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize> {
        let engine = self.call()?;
        let opened = engine.opened_data(desc, false)?;
        if let Some(offset) = at.given() {
            let read = engine.read_opened(desc, &opened, offset_of(offset)?, out)?;
            engine.counters.one_and::<READS, BYTES_READ>(read as u64);
            self.tell_of_read(desc, read);
            return Ok(read);
        }
        loop {
            // Optimistic: if somebody else moved the position meanwhile, these bytes are his.
            let position = engine.position(desc)?;
            let read = engine.read_opened(desc, &opened, position, out)?;
            if engine.advance(desc, position, position + read as u64)? {
                engine.counters.one_and::<READS, BYTES_READ>(read as u64);
                self.tell_of_read(desc, read);
                return Ok(read);
            }
        }
    }

    /// Makes durable what is asked for, here.
    #[expect(clippy::inline_always, reason = "a sync of nothing is a few instructions")]
    #[inline(always)]
    pub(super) fn sync_here(&self, what: Synced) -> Result<()> {
        let engine = self.call()?;
        if let Synced::File(desc) | Synced::Data(desc) = what {
            let opened = engine.opened_here(desc)?;
            if opened.flags.path_only() {
                return Err(Errno::BADF);
            }
            let data_only = matches!(what, Synced::Data(_));
            // The size decides which data is reachable, so fdatasync commits it too.
            if data_only && engine.is_durable(opened.node, Promise::Data) == Ok(true) {
                return Ok(());
            }
            return engine.sync_file(opened.node);
        }
        if let Synced::Range { desc, offset, length } = what {
            let node = engine.opened_here(desc)?.node;
            return engine.sync_range(node, offset, offset.saturating_add(length));
        }
        // Metadata is durable at return in every mode; sizes and times of open files may be lazy.
        engine.each_open_file(&mut |node| match engine.sync_file(node) {
            Err(Errno::STALE) => Ok(()),
            result => result,
        })
    }

    /// As [`Volume::write_here`]; it holds the position while it writes, and not while pages come.
    #[inline]
    fn write_here_paged(&self, desc: Desc, data: &[UserIn<'_>]) -> Result<usize> {
        let written = match self.write_here(desc, data, true) {
            Err(Errno::IO) => {
                let length = data.iter().map(UserIn::len).sum();
                let range = move || self.range_of(desc, IoOffset::POSITION, length);
                let access = paging::stores(self.opened(desc)?.flags.appends());
                self.again(access, range, move || self.write_here(desc, data, false))?
            }
            done => done?,
        };
        if self.region.pager().is_none() {
            return Ok(written);
        }
        Ok(self.write_on(data, written, |_, rest| self.write_here_paged(desc, rest)))
    }

    /// Writes at an offset, or at the end.
    #[expect(clippy::inline_always, reason = "the way of a write")]
    #[inline(always)]
    fn write_at(&self, desc: Desc, data: &[UserIn<'_>], offset: u64) -> Result<usize> {
        let engine = self.call()?;
        let opened = engine.opened_data(desc, true)?;
        let offset = offset_of(offset)?;
        let place = if opened.flags.appends() { Position::End } else { Position::At(offset) };
        let _exclusive = engine.exclusive();
        let anchor = Anchor::Open(desc, opened.state);
        if let [only] = data {
            match engine.write_at_once(opened.node, anchor, place, only) {
                Ok(Some(_)) => {
                    engine.write_through(opened.node, opened.flags)?;
                    return Ok(only.len());
                }
                // A page that was absent, or is lost: it is to wait.
                Ok(None) | Err(Errno::IO) => {}
                Err(errno) => return Err(not_open(errno)),
            }
        }
        let range = || (offset, data.iter().map(|part| part.len() as u64).sum());
        let write = || self.write_waiting(&opened, place, data);
        let to = (opened.node, paging::stores(opened.flags.appends()));
        let mut written = self.paged_idle(to, range, write)?.0;
        if self.region.pager().is_some() {
            written = self.write_rest(&opened, offset, data, written);
        }
        engine.write_through(opened.node, opened.flags)?;
        Ok(written)
    }

    /// Writes at the position, or at the end: too much for the frame of a write at an offset.
    /// `at_once`: all of it, if it is simple.
    #[inline(never)]
    fn write_here(&self, desc: Desc, data: &[UserIn<'_>], at_once: bool) -> Result<usize> {
        let engine = self.call()?;
        let opened = engine.opened_data(desc, true)?;
        let _exclusive = engine.exclusive();
        let mut moving = engine.moving(desc)?;
        let appends = opened.flags.appends();
        let place = |position| if appends { Position::End } else { Position::At(position) };
        let mut plan = Plan::default();
        let guess = moving.glance()?;
        if let ([only], Some(guess)) = (data, guess) {
            engine.plan(opened.node, place(guess), only, &mut plan)?;
        }
        let position = moving.begin()?;
        if let [only] = data
            && at_once
        {
            if guess != Some(position) {
                // Somebody else wrote meanwhile, maybe for long.
                plan = engine.plan_anew(opened.node, place(position), only)?;
            }
            let place = place(position);
            let anchor = Anchor::Open(desc, opened.state);
            let written = engine.write_planned(opened.node, anchor, place, only, &plan);
            if let Some(end) = written.map_err(not_open)? {
                moving.set(end);
                drop(moving);
                engine.write_through(opened.node, opened.flags)?;
                return Ok(only.len());
            }
        }
        let (written, end) = self.write_waiting(&opened, place(position), data)?;
        if written > 0 {
            moving.set(end);
        }
        drop(moving);
        engine.write_through(opened.node, opened.flags)?;
        Ok(written)
    }

    #[inline]
    fn place_of_seek(&self, opened: &Opened, now: u64, offset: i64, whence: Whence) -> Result<u64> {
        if opened.flags.path_only() {
            return Err(Errno::BADF);
        }
        let directory = opened.kind == Kind::Directory;
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => now as i64,
            _ if directory => return Err(Errno::INVAL),
            Whence::End => Names::attributes(self, opened.node)?.size as i64,
            Whence::Data | Whence::Hole => {
                let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                return if whence == Whence::Data {
                    self.seek_data(opened.node, from)
                } else {
                    self.seek_hole(opened.node, from)
                };
            }
        };
        let place = base.checked_add(offset).ok_or(Errno::OVERFLOW)?;
        u64::try_from(place).map_err(|_| Errno::INVAL)
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Node {
        self.root_node()
    }

    fn stat_fs(&self, _: FileRef) -> Result<FsStat> {
        self.call()?;
        if self.has_orphans()? {
            self.drop_orphans()?;
        }
        let free = self.free_blocks()? + self.kept_blocks()?;
        let [a, b, c, d, e, f, g, h, ..] = self.superblock.uuid;
        let inodes_free = free / 8 * 63;
        Ok(FsStat {
            device: self.superblock.device(),
            block_size: BLOCK,
            blocks: self.chunks() * CHUNK_BLOCKS,
            blocks_free: free,
            blocks_available: self.can_be_had(free.saturating_sub(self.reserve()) * BLOCK) / BLOCK,
            inodes: self.inodes_used()? + inodes_free,
            inodes_free,
            fsid: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            read_only: self.check_writable().is_err(),
        })
    }

    fn find(&self, from: FileRef, names: &[u8], attr: &mut Attr) -> bool {
        let Ok(engine) = self.names() else { return false };
        match from.which() {
            NodeOrDesc::Node(node) => engine.find_path(node, names, attr),
            // Not among the whole paths: mostly it is one name of many.
            NodeOrDesc::Desc(desc) => engine
                .opened_here(desc)
                .is_ok_and(|opened| engine.walk_path_to(opened.node, names, attr).is_some()),
        }
    }

    fn walk(&self, dir: Node, names: &[u8], want: WalkOutput<'_>) -> Result<usize> {
        let engine = self.names()?;
        match want {
            WalkOutput::Name(node) => *node = Names::lookup(engine, dir, names)?,
            WalkOutput::Directory(node) => match engine.find_prefix(dir, names) {
                Some(found) => *node = found,
                None => return Ok(0),
            },
            WalkOutput::Change(last) => {
                if !engine.walk_path(dir, names, last) {
                    return Ok(0);
                }
            }
        }
        Ok(names.len())
    }

    fn attr(&self, of: FileRef, attr: &mut Attr) -> Result<()> {
        let engine = self.names()?;
        let node = match of.which() {
            NodeOrDesc::Desc(desc) => engine.opened_here(desc)?.node,
            NodeOrDesc::Node(node) => node,
        };
        engine.attributes_to(node, attr)
    }

    fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        self.change_names(|engine| Names::set_attr(engine, node, change))?;
        self.tell(|watching| watching.attributes_set(node, change));
        Ok(())
    }

    fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        Names::read_link(self.names()?, node, out)
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        let create = || {
            self.change_names(|engine| {
                engine.with_orphans_dropped(|| Names::create(engine, dir, name, new))
            })
        };
        self.telling_of((dir, name), create, |watching, &node| {
            watching.created(dir, name, Named { node, kind: new.kind }, false);
        })
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let link = || self.change_names(|engine| Names::link(engine, node, dir, name));
        self.telling((dir, name), link, |watching| watching.linked(node, dir, name))
    }

    fn remove(&self, at: &EntryName<'_>, what: Removes) -> Result<()> {
        let remove = || {
            self.change_names(|engine| match what {
                Removes::Name => engine.unlink_known(at.dir, at.name, at.found.map(target)),
                Removes::Directory => engine.remove_dir(at.dir, at.name),
            })
        };
        if self.is_watched() {
            return self.remove_watched(at, remove);
        }
        self.unwatched([Some((at.dir, at.name)), None], remove)
    }

    fn rename(&self, from: &EntryName<'_>, to: &EntryName<'_>, flags: RenameFlags) -> Result<()> {
        let found = from.found.map(|source| (target(source), to.found.map(target)));
        let (from, to) = ((from.dir, from.name), (to.dir, to.name));
        let rename = || {
            self.change_names(|engine| {
                if flags.bits & libc::RENAME_WHITEOUT == 0 {
                    return engine.rename_known(from, to, flags, found);
                }
                engine.with_orphans_dropped(|| engine.rename_known(from, to, flags, found))
            })
        };
        if self.is_watched() {
            return self.rename_watched(from, to, flags, rename);
        }
        self.unwatched([Some(from), Some(to)], rename)
    }

    fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        Names::read_dir(self.names()?, dir, cookie, each)?;
        self.tell(|watching| {
            let of = Named { node: dir, kind: Kind::Directory };
            watching.happened(of, Event::Access);
        });
        Ok(())
    }

    fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        Names::get_xattr(self.names()?, node, name, out)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.change_names(|engine| {
            Names::set_xattr(engine, node, name, value, flags)?;
            if name == alignment::NAME {
                engine.rewrite_aligned(node);
            }
            Ok(())
        })?;
        self.tell(|watching| watching.happened_to(node, Event::Attributes));
        Ok(())
    }

    fn list_xattr(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        Names::list_xattr(self.names()?, node, out)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.change_names(|engine| Names::remove_xattr(engine, node, name))?;
        self.tell(|watching| watching.happened_to(node, Event::Attributes));
        Ok(())
    }

    fn open(&self, what: Open<'_>, flags: OpenFlags, place: Option<Node>) -> Result<Desc> {
        if self.is_watched() {
            return self.open_watched(what, flags, place);
        }
        let desc = self.open_unwatched(what, flags, place)?;
        if self.is_watched() || matches!(what, Open::New(..)) && self.has_watches() {
            self.opened_late(desc, what, flags);
        }
        Ok(desc)
    }

    fn close(&self, desc: Desc) -> Result<()> {
        if self.is_watched() {
            return self.close_watched(desc);
        }
        self.change(|engine| engine.close_description(desc))
    }

    fn place(&self, desc: Desc) -> Result<Node> {
        self.call()?.noted_directory(desc)
    }

    fn describe(&self, desc: Desc) -> Result<(Node, OpenFlags)> {
        let opened = self.call()?.opened(desc)?;
        Ok((opened.node, opened.flags))
    }

    fn set_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()> {
        self.call()?.change_flags(desc, flags)
    }

    fn read(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize> {
        let engine = self.engine();
        if let [only] = out
            && let Some(from) = at.given().or_else(|| engine.resting_position(desc).ok()?)
            && let Some(read) = engine.read_again(desc, from, only)
            && (at != IoOffset::POSITION
                || engine.advance(desc, from, from + read as u64) == Ok(true))
        {
            engine.counters.one_and::<READS, BYTES_READ>(read as u64);
            return Ok(read);
        }
        self.read_further(desc, out, at)
    }

    fn write(&self, desc: Desc, data: &[UserIn<'_>], at: IoOffset) -> Result<usize> {
        let written = match at.given() {
            Some(offset) => self.write_at(desc, data, offset)?,
            None => self.write_here_paged(desc, data)?,
        };
        self.counters.one_and::<WRITES, BYTES_WRITTEN>(written as u64);
        self.tell_of_bytes(desc, written as u64);
        Ok(written)
    }

    fn seek(&self, desc: Desc, offset: i64, whence: Whence) -> Result<u64> {
        let engine = self.call()?;
        loop {
            let opened = engine.opened_here(desc)?;
            let before = engine.position(desc)?;
            let place = self.place_of_seek(&opened, before, offset, whence)?;
            if engine.advance(desc, before, place)? {
                return Ok(place);
            }
        }
    }

    fn on_privileged_change(&self, act: fn(&dyn FileSystem, Node) -> Result<()>) {
        // The first one stands: there is one face.
        let _ = self.local.privileged_change.set(act);
    }

    fn sync(&self, what: Synced) -> Result<()> {
        self.counters.one::<SYNCS>();
        if self.region.pager().is_some() {
            return self.sync_beyond(what);
        }
        self.sync_here(what)
    }

    fn truncate(&self, node: Node, size: u64) -> Result<()> {
        let end = || Ok((node, (size, BLOCK)));
        self.paged(Access::Store, end, || {
            self.change_names(|engine| {
                self.before_change(node)?;
                engine.truncate_file(node, size)
            })
        })?;
        self.tell(|watching| watching.happened_to(node, Event::Modify));
        Ok(())
    }

    fn allocate(&self, desc: Desc, mode: u32, offset: u64, length: u64) -> Result<()> {
        let mut left = (offset, length);
        loop {
            let (offset, length) = left;
            let range = || self.range_of(desc, IoOffset::offset(offset), length as usize);
            let done = self.paged(Access::Store, range, || {
                let engine = self.call()?;
                engine.opened(desc)?;
                check_request(mode, offset, length)?;
                let opened = engine.opened_data(desc, true)?;
                let _exclusive = engine.exclusive();
                self.before_change(opened.node)?;
                let allocate = || engine.allocate_file(opened.node, mode, offset, length);
                let done = engine.with_orphans_dropped(allocate)?;
                engine.keep_up();
                engine.write_through(opened.node, opened.flags)?;
                Ok(done)
            })?;
            self.tell_of_bytes(desc, done);
            if done >= length {
                return Ok(());
            }
            left = (offset + done, length - done);
        }
    }

    fn copy_range(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let range = || self.range_of(to, IoOffset::offset(to_offset), length as usize);
        let copied = self.paged(Access::Store, range, || {
            let engine = self.call()?;
            // As Linux: what they are counts before how they are open.
            let kinds = [engine.opened(from)?.kind, engine.opened(to)?.kind];
            if kinds.contains(&Kind::Directory) {
                return Err(Errno::ISDIR);
            }
            let source = engine.opened_data(from, false)?;
            let target = engine.opened_data(to, true)?;
            if target.flags.appends() {
                return Err(Errno::BADF);
            }
            let _exclusive = engine.exclusive();
            self.before_change(target.node)?;
            let done =
                engine.copy_file(source.node, from_offset, target.node, to_offset, length)?;
            engine.keep_up();
            engine.write_through(target.node, target.flags)?;
            engine.counters.one_and::<READS, BYTES_READ>(done);
            engine.counters.one_and::<WRITES, BYTES_WRITTEN>(done);
            Ok(done)
        })?;
        if copied > 0 {
            self.tell(|watching| watching.happened_behind(from, Event::Access));
        }
        self.tell_of_bytes(to, copied);
        Ok(copied)
    }

    fn relink(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        let range = || self.range_of(to, IoOffset::offset(to_offset), length as usize);
        self.paged(Access::Store, range, || {
            let engine = self.call()?;
            let source = engine.opened_data(from, true)?;
            let target = engine.opened_data(to, true)?;
            let _exclusive = engine.exclusive();
            self.before_change(source.node)?;
            self.before_change(target.node)?;
            engine.relink_file(source.node, from_offset, target.node, to_offset, length)?;
            engine.keep_up();
            Ok(())
        })?;
        self.tell(|watching| watching.happened_behind(from, Event::Modify));
        self.tell_of_bytes(to, length);
        Ok(())
    }

    fn watch(&self, node: Node, mask: u32) -> Result<Vec<u8>> {
        self.begin_watch(node, mask)
    }

    fn is_written(&self, node: Node) -> Result<bool> {
        Opens::is_written(self.call()?, node)
    }

    fn is_executed(&self, node: Node) -> Result<bool> {
        self.call()?.is_executed_by_anyone(node)
    }
}

impl Locks for Volume {
    fn record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
        wait: bool,
    ) -> Result<()> {
        self.lock(|engine| engine.set_record_lock(desc, owner, lock, wait))
    }

    fn waits(&self) -> Result<Vec<vfs::Wait>> {
        self.engine().waits_of_processes()
    }

    fn look_beyond(&self, beyond: vfs::Beyond) {
        // The first one counts: this volume is a member of one union.
        let _ = self.beyond.set(beyond);
    }

    fn test_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>> {
        self.lock(|engine| engine.test_record_lock(desc, owner, lock))
    }

    fn release_locks(&self, of: FileRef) -> Result<()> {
        // Not as a change: most files have no lock that would have to go.
        let engine = self.call()?;
        let node = match of.which() {
            NodeOrDesc::Node(node) => node,
            NodeOrDesc::Desc(desc) => match engine.opened_here(desc)? {
                opened if opened.flags.path_only() => return Ok(()),
                opened => opened.node,
            },
        };
        engine.release_process_locks(node)
    }

    fn flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()> {
        self.lock(|engine| engine.set_flock(desc, kind, wait))
    }
}
