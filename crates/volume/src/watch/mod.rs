//! Watches: how programs are told by `inotify` of what happens on a volume.
//!
//! The kernel tells of what happens in the kernel. So something that is watched has a *shadow*
//! there ([`shadows`]), on which the watch lies; a process that changes what is watched repeats the
//! change on the shadow, and the kernel makes the event: with its masks, its order, its limits, in
//! its own descriptor. A table says what is watched ([`table`]), and a word of the runtime's header
//! ([`HEADER_WATCHES`]) how much: while nothing is, a call looks at that word alone.
//!
//! A change of names is made and repeated under one lock of all processes: so events come in the
//! order of the changes. What happens to a file (a write, a change of its attributes) is repeated
//! behind it, without the lock.
//!
//! A call that changes names looks at the bit before, and once more after that: a watch that began
//! in between is told under the lock, of what it may have seen already. The watch's own call lists
//! the directory after it has set the bit, and system calls later: it sees what such a call has
//! changed, or is told.
//!
//! CRASH: a process that dies between a change and its repetition leaves that untold; the next
//! change of the same name mends the shadow. A watch ends with its process: who gives the process's
//! slot back, or recovers it, drops its hold, and the next one under the lock removes what nobody
//! holds. All of this is void with the epoch.
//!
//! What nobody tells: stores through mappings (as on Linux), what is executed, and what is done to
//! an open file that has lost its last name in a watched directory.
//!
//! Locks: that of watches ([`HEADER_WATCH_LOCK`]) comes before all others of the volume. A recovery
//! may run under any, and does not take it.

pub(crate) mod openings;
pub(crate) mod shadows;
pub(crate) mod table;

use crate::Result;
use crate::inode::Inode;
use crate::medium::layout::{HEADER_SIZE, HEADER_WATCH_LOCK, HEADER_WATCHES, SIZE_WATCHED};
use crate::medium::lockword;
use crate::open::Opens;
use os::InternalFd;
use robust::owner::Owner;
use rustix::fs::{Mode, OFlags};
use shadows::{Event, Place, Shadows};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use table::Table;
use vfs::{Attr, Desc, DirEntry, Kind, Node, OpenFlags, SetAttr};

/// Events of an open file description.
const OPENINGS: u32 = libc::IN_OPEN | libc::IN_CLOSE;

/// The directory for carriers, in which the shadows are: lent, or opened for a moment.
pub(crate) enum Beside<'a> {
    /// Lent.
    Lent(&'a InternalFd),
    /// Opened here.
    Opened(OwnedFd),
}

impl AsFd for Beside<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Lent(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl<'a> Beside<'a> {
    /// That of a volume; `None`: it has none that this process reaches.
    pub(crate) fn of(engine: &'a Opens) -> Option<Self> {
        if let Some(lent) = engine.liveness.lent() {
            return Some(Self::Lent(lent));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(engine.liveness.handing()?, flags, Mode::empty());
        opened.ok().map(Self::Opened)
    }
}

/// How much is watched.
pub(crate) fn count(engine: &Opens) -> u64 {
    engine.rt.header::<HEADER_WATCHES>().unwrap_or(0)
}

/// So much is from here on: calls see whether there is any. Lock of watches held.
fn set_count(engine: &Opens, count: u64) -> Result<()> {
    engine.rt.store(HEADER_WATCHES, count)?;
    if count == 0 {
        engine.rt.and(HEADER_SIZE, !SIZE_WATCHED)?;
    } else {
        engine.rt.or(HEADER_SIZE, SIZE_WATCHED)?;
    }
    Ok(())
}

/// While it lives, no other process or thread changes what is watched.
pub(crate) struct WatchGuard<'a> {
    engine: &'a Opens,
    owner: Owner,
}

impl<'a> WatchGuard<'a> {
    fn new(engine: &'a Opens) -> Result<Self> {
        let (owner, words) = (engine.own(), engine.rt.span::<1>(HEADER_WATCH_LOCK)?);
        lockword::acquire_word(engine, &words, 0, owner)?;
        Ok(Self { engine, owner })
    }
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        let (map, base) = self.engine.rt.place();
        // If the runtime has vanished, nobody waits for it.
        let _ = lockword::release(self.engine, map, base + HEADER_WATCH_LOCK, self.owner);
    }
}

/// Frees the lock if a process that is gone held it.
pub(crate) fn free_lock(engine: &Opens, slot: u32, generation: u32) -> Result<()> {
    let (owner, (map, base)) = (Owner::of_process(slot, generation), engine.rt.place());
    if Owner::of_word(engine.rt.load(HEADER_WATCH_LOCK)?, engine.epoch) == Some(owner) {
        lockword::release(engine, map, base + HEADER_WATCH_LOCK, owner)?;
    }
    Ok(())
}

/// What is watched, and where.
pub(crate) struct Watching<'a> {
    engine: &'a Opens,
    table: &'a Table,
    shadows: Shadows<'a>,
}

/// A name that comes, goes or moves, with what it means.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) node: Node,
    pub(crate) kind: Kind,
}

impl Named {
    fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

impl<'a> Watching<'a> {
    pub(crate) fn new(engine: &'a Opens, table: &'a Table, beside: &'a Beside<'_>) -> Self {
        Self { engine, table, shadows: Shadows(beside.as_fd()) }
    }

    /// Keeps other changes of what is watched away.
    pub(crate) fn lock(&self) -> Result<WatchGuard<'a>> {
        let guard = WatchGuard::new(self.engine)?;
        self.sweep();
        Ok(guard)
    }

    /// Removes what nobody holds any more. Lock held.
    pub(crate) fn sweep(&self) {
        let left = self.table.left();
        if !left.is_empty() && left.len() as u64 == count(self.engine) {
            let _ = set_count(self.engine, 0);
            let _ = self.table.forget_all().and_then(|()| self.shadows.begin());
            return;
        }
        for node in left {
            let kind = self.engine.attributes(node).map_or(Kind::File, |attr| attr.kind);
            self.end(Named { node, kind });
        }
    }

    /// Whether a node is watched.
    pub(crate) fn is_watched(&self, node: Node) -> bool {
        self.table.find(node).is_some()
    }

    fn watched_place<'n>(&self, dir: Node, name: &'n [u8]) -> Option<Place<'n>> {
        self.is_watched(dir).then_some(Place { dir, name })
    }

    /// What a name means now.
    pub(crate) fn meaning(&self, dir: Node, name: &[u8]) -> Option<Named> {
        let target = self.engine.lookup_target(dir, name).ok()?;
        Some(Named { node: target.node, kind: target.kind })
    }

    // ---- a watch begins -------------------------------------------------------------------------

    /// Makes the shadow of a node, if it has none, and notes that this process asks for these
    /// events. Gives where the kernel is to watch. Lock held.
    pub(crate) fn begin(&self, attr: &Attr, mask: u32) -> Result<Vec<u8>> {
        let (node, kind) = (attr.node, attr.kind);
        let entries = count(self.engine);
        let (entry, is_new) = self.table.add(node)?;
        if is_new {
            set_count(self.engine, entries + 1)?;
        }
        // A shadow whose maker died in the middle has no events yet: it is made anew.
        if entry.mask == 0 {
            self.shadows.make_own(node, kind)?;
            if kind == Kind::Directory {
                self.fill(node)?;
            }
        }
        self.table.ask(entry, mask | libc::IN_IGNORED, self.engine.slot())?;
        Ok(shadows::watched_path(node, kind))
    }

    /// Makes what a directory's shadow has for each name.
    fn fill(&self, dir: Node) -> Result<()> {
        let mut found: Vec<(Vec<u8>, Kind)> = Vec::new();
        self.engine.read_dir(dir, 0, &mut |entry: &DirEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                found.push((entry.name.to_vec(), entry.kind));
            }
            true
        })?;
        for (name, kind) in &found {
            let place = Place { dir, name };
            self.shadows.stands(place, *kind == Kind::Directory)?;
            if let Some(named) = self.meaning(dir, name) {
                self.table.set_name(named.node, dir, name)?;
            }
        }
        Ok(())
    }

    // ---- names change (lock held) ---------------------------------------------------------------

    /// A name was made, for something new or (`linked`) for what had one.
    pub(crate) fn created(&self, dir: Node, name: &[u8], made: Named, linked: bool) {
        if linked {
            self.happened_to_own(made, Event::Attributes);
        }
        if let Some(place) = self.watched_place(dir, name) {
            self.shadows.created(place, made.is_directory());
            self.named(place, made);
        }
    }

    /// The same of a file that was opened with it. Gives what keeps it open for the kernel.
    pub(crate) fn created_open(
        &self,
        dir: Node,
        name: &[u8],
        made: Named,
        flags: OpenFlags,
    ) -> Option<OwnedFd> {
        let place = self.watched_place(dir, name)?;
        let opened = if self.table.is_asked(OPENINGS) {
            self.shadows.created_open(place, flags)
        } else {
            self.shadows.created(place, false);
            None
        };
        self.named(place, made);
        opened
    }

    fn named(&self, place: Place<'_>, named: Named) {
        // Beyond what the table holds nobody is told of what happens to it.
        let _ = self.table.set_name(named.node, place.dir, place.name);
    }

    fn unnamed(&self, place: Place<'_>, named: Named) {
        // If the table has vanished, nobody is told.
        let _ = self.table.clear_name(named.node, place.dir, place.name);
    }

    /// The same, for what had a name.
    pub(crate) fn linked(&self, node: Node, dir: Node, name: &[u8]) {
        if let Ok(attr) = self.engine.attributes(node) {
            self.created(dir, name, Named { node, kind: attr.kind }, true);
        }
    }

    /// A name has changed, and a watch may have begun meanwhile: what it has seen of that is not
    /// known.
    pub(crate) fn settle(&self, dir: Node, name: &[u8]) {
        let Some(place) = self.watched_place(dir, name) else { return };
        match (self.meaning(dir, name), self.shadows.has(place)) {
            (Some(named), None) => self.created(dir, name, named, false),
            (None, Some(is_directory)) => self.shadows.removed(place, is_directory),
            _ => {}
        }
    }

    /// A name was taken away.
    pub(crate) fn removed(&self, dir: Node, name: &[u8], gone: Named) {
        self.loses_name(gone);
        if let Some(place) = self.watched_place(dir, name) {
            self.shadows.removed(place, gone.is_directory());
            self.unnamed(place, gone);
        }
    }

    /// Something has lost a name: its own watches are told so, before those of the directory, as by
    /// the kernel.
    fn loses_name(&self, gone: Named) {
        match self.table.find(gone.node) {
            Some(_) if self.is_gone(gone) => self.end(gone),
            Some(_) => self.happened_to_own(gone, Event::Attributes),
            None => {}
        }
    }

    /// A name was given to something else, which had another one.
    pub(crate) fn renamed(
        &self,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        moved: Named,
        target: Option<Named>,
        bits: u32,
    ) {
        let places = (self.watched_place(from.0, from.1), self.watched_place(to.0, to.1));
        if places.0.is_some() || places.1.is_some() {
            let replaced = target.map(|target| target.is_directory());
            self.shadows.moved(places, moved.is_directory(), replaced, bits);
            for (place, named) in [(places.1, target), (places.0, Some(moved))] {
                if let (Some(place), Some(named)) = (place, named) {
                    self.unnamed(place, named);
                }
            }
            let exchanged = target.filter(|_| bits & libc::RENAME_EXCHANGE != 0);
            for (place, named) in [(places.1, Some(moved)), (places.0, exchanged)] {
                if let (Some(place), Some(named)) = (place, named) {
                    self.named(place, named);
                }
            }
        }
        let exchanges = bits & libc::RENAME_EXCHANGE != 0;
        let replaced = target.filter(|_| !exchanges).and_then(|target| self.is_replaced(target));
        let both = [Some(moved), target.filter(|_| exchanges)];
        for one in both.into_iter().flatten() {
            if let Some(entry) = self.table.find(one.node)
                && self.table.moved(entry).is_ok()
                && let Ok(count) = self.table.moves(entry)
            {
                self.shadows.move_own(one.node, one.kind, count);
            }
        }
        drop(replaced);
    }

    /// Something has lost a name to what was moved there: its own watches are told so. When what is
    /// given back is dropped they are told that it is gone.
    fn is_replaced(&self, target: Named) -> Option<OwnedFd> {
        if !self.is_watched(target.node) || !self.is_gone(target) {
            self.happened_to_own(target, Event::Attributes);
            return None;
        }
        if target.is_directory() {
            self.happened_to_own(target, Event::Attributes);
        }
        // As long as it is held the kernel tells of a name less, not of the end.
        let held = self.shadows.hold(target.node, target.kind);
        self.end(target);
        held
    }

    /// Whether something has no name any more, and is not open either.
    fn is_gone(&self, node: Named) -> bool {
        let is_open = || self.engine.opens(Inode(node.node.ino)).is_ok_and(|opens| opens != 0);
        let attr = self.engine.attributes(node.node);
        attr.map_or(true, |attr| attr.nlink == 0 && (node.is_directory() || !is_open()))
    }

    /// Ends the watches of a file that was open when it lost its last name, and is no more.
    pub(crate) fn end_if_gone(&self, gone: Named) {
        if self.is_watched(gone.node) && self.is_gone(gone) {
            self.end(gone);
        }
    }

    fn end(&self, gone: Named) {
        self.shadows.remove_own(gone.node, gone.kind);
        let _ = self.table.remove(gone.node);
        let left = count(self.engine).saturating_sub(1);
        let _ = set_count(self.engine, left);
        if left == 0 {
            let _ = self.table.forget_all().and_then(|()| self.shadows.begin());
        }
    }

    // ---- what stays where it is -----------------------------------------------------------------

    /// Something happens to a node.
    pub(crate) fn happened(&self, of: Named, event: Event) {
        if self.table.is_asked(event.bit()) {
            self.with_place(of.node, |place| self.shadows.happens_to_name(place, event));
            self.happened_to_own(of, event);
        }
    }

    /// Calls this with a name that a node has in a watched directory.
    fn with_place<T>(&self, node: Node, act: impl FnOnce(Place<'_>) -> T) -> Option<T> {
        let mut name = [0; 256];
        let (dir, length) = self.table.place_of(node, &mut name)?;
        let place = self.watched_place(dir, &name[..length])?;
        Some(act(place))
    }

    /// The same, of a node of which only that is known.
    pub(crate) fn happened_to(&self, node: Node, event: Event) {
        if self.table.is_asked(event.bit())
            && let Ok(attr) = self.engine.attributes(node)
        {
            self.happened(Named { node, kind: attr.kind }, event);
        }
    }

    /// Attributes of a node were set.
    pub(crate) fn attributes_set(&self, node: Node, change: &SetAttr) {
        let event = match (change.atime, change.mtime) {
            (Some(_), None) => Event::Access,
            (None, Some(_)) => Event::Modify,
            _ => Event::Attributes,
        };
        self.happened_to(node, event);
        let more = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        if event != Event::Attributes && more {
            self.happened_to(node, Event::Attributes);
        }
    }

    fn happened_to_own(&self, of: Named, event: Event) {
        if self.table.find(of.node).is_some_and(|entry| entry.mask & event.bit() != 0) {
            self.shadows.happens_to_own(of.node, of.kind, event);
        }
    }

    /// The same behind a description.
    pub(crate) fn happened_behind(&self, desc: Desc, event: Event) {
        if self.table.is_asked(event.bit())
            && let Ok(opened) = self.engine.opened(desc)
        {
            self.happened(Named { node: opened.node, kind: opened.kind }, event);
        }
    }

    /// A description was opened, and emptied if the flags say so: what keeps it open for the
    /// kernel, too; `made`: that is told already.
    pub(crate) fn opened(&self, desc: Desc, flags: OpenFlags, made: bool) -> [Option<OwnedFd>; 2] {
        if flags.path_only() || !self.table.is_asked(OPENINGS | libc::IN_MODIFY) {
            return [None, None];
        }
        let Ok(opened) = self.engine.opened(desc) else { return [None, None] };
        let (node, kind) = (opened.node, opened.kind);
        let keeps = self.table.is_asked(OPENINGS);
        let own = self.table.find(node).map_or(0, |entry| entry.mask);
        let emptied = flags.has(libc::O_TRUNC);
        // Of two shadows both are opened before one is emptied.
        let at_once = keeps && own == 0;
        let flags = if at_once { flags } else { OpenFlags(flags.0 & !libc::O_TRUNC) };
        let open = |place: Place<'_>| self.shadows.opened(place, flags);
        let named = if made || !keeps { None } else { self.with_place(node, open).flatten() };
        let own = (own & OPENINGS != 0).then(|| self.shadows.opened_own(node, kind, flags));
        if emptied && !at_once {
            self.happened(Named { node, kind }, Event::Modify);
        }
        [named, own.flatten()]
    }
}

impl Watching<'_> {
    /// The last hold on a description is gone that was open before anybody watched, so that nothing
    /// has kept it open for the kernel: the end is told, with a beginning for those that ask for
    /// one.
    pub(crate) fn closed_unseen(&self, of: Named, flags: OpenFlags) {
        if flags.path_only() || !self.table.is_asked(libc::IN_CLOSE) {
            return;
        }
        let flags = OpenFlags(flags.0 & !libc::O_TRUNC);
        drop(self.with_place(of.node, |place| self.shadows.opened(place, flags)));
        if self.is_watched(of.node) {
            drop(self.shadows.opened_own(of.node, of.kind, flags));
        }
    }
}

/// A process's slot is given back: what it watched is watched no more, but by others. Takes no lock
/// of watches.
pub(crate) fn drop_holds(engine: &Opens, slot: u32) -> Result<()> {
    if count(engine) == 0 {
        return Ok(());
    }
    let Some(beside) = Beside::of(engine) else { return Ok(()) };
    let Some(table) = Table::open(beside.as_fd(), engine.epoch)? else { return Ok(()) };
    table.drop_holds(slot)
}

/// The same of this process, which has held something; and what nobody holds any more goes.
pub(crate) fn leave(engine: &Opens, table: &Table) -> Result<()> {
    table.drop_holds(engine.slot())?;
    let Some(beside) = Beside::of(engine) else { return Ok(()) };
    Watching::new(engine, table, &beside).lock().map(drop)
}

/// A child is about to come, with a slot of its own: it goes on with its parent's watches.
pub(crate) fn share(engine: &Opens, table: &Table, child: u32) -> Result<()> {
    table.all().try_for_each(|(_, entry)| table.share(entry, engine.slot(), child))
}

/// Removes what a crash has left, in an epoch before.
pub(crate) fn clear_left(engine: &Opens) {
    if let Some(beside) = Beside::of(engine)
        && Table::remove_file(beside.as_fd())
    {
        Shadows(beside.as_fd()).end();
    }
}

/// The lock of watches.
pub(crate) fn lock(engine: &Opens) -> Result<WatchGuard<'_>> {
    WatchGuard::new(engine)
}

/// The first watch of an epoch: makes table and room. Lock of watches held.
pub(crate) fn begin_epoch(engine: &Opens, beside: &Beside<'_>) -> Result<Table> {
    if let Some(table) = Table::open(beside.as_fd(), engine.epoch)? {
        return Ok(table);
    }
    Shadows(beside.as_fd()).begin()?;
    Table::create(beside.as_fd(), engine.epoch)
}
