//! Calls on what may be watched: how they tell of what they change (`watch/`).

use crate::Result;
use crate::volume::Volume;
use crate::watch::shadows::Event;
use crate::watch::table::Table;
use crate::watch::{self, Beside, Named, Watching};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use vfs::{Desc, EntryName, FileSystem, Kind, Node, Open, OpenFlags, RenameFlags};

/// A name in a directory.
type InDirectory<'n> = (Node, &'n [u8]);

impl Volume {
    /// Whether this process has seen that something on this volume is watched. Each call sees it
    /// when it begins.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.standing.is_watched()
    }

    /// The table of what is watched.
    fn watched(&self, beside: &Beside<'_>) -> Option<&Table> {
        if let Some(table) = self.local.watched.get() {
            return Some(table);
        }
        let table = Table::open(beside.as_fd(), self.epoch).ok()??;
        let _ = self.local.watched.set(table);
        self.local.watched.get()
    }

    /// What is watched, if this process can tell it.
    fn with_watching<T>(&self, act: impl FnOnce(&Watching<'_>) -> T) -> Option<T> {
        let beside = Beside::of(self)?;
        let table = self.watched(&beside)?;
        Some(act(&Watching::new(self, table, &beside)))
    }

    /// Tells of what has happened to a file, which needs no lock.
    #[inline]
    pub(super) fn tell(&self, tell: impl FnOnce(&Watching<'_>)) {
        if self.is_watched() {
            self.tell_now(tell);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_now(&self, tell: impl FnOnce(&Watching<'_>)) {
        self.with_watching(tell);
    }

    /// Tells that bytes of an open file were changed.
    #[inline]
    pub(super) fn tell_of_bytes(&self, desc: Desc, bytes: u64) {
        if bytes > 0 {
            self.tell(|watching| watching.happened_behind(desc, Event::Modify));
        }
    }

    /// Changes names while nothing is watched; a watch may begin meanwhile.
    #[inline]
    pub(super) fn unwatched<T>(
        &self,
        names: [Option<InDirectory<'_>>; 2],
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let done = act()?;
        if self.has_watches() {
            self.settle(names);
        }
        Ok(done)
    }

    #[cold]
    #[inline(never)]
    fn settle(&self, names: [Option<InDirectory<'_>>; 2]) {
        self.with_watching(|watching| {
            if let Ok(_guard) = watching.lock() {
                names.iter().flatten().for_each(|&(dir, name)| watching.settle(dir, name));
            }
        });
    }

    /// Makes a name, and tells of it under the lock of watches.
    #[inline]
    pub(super) fn telling_of<T>(
        &self,
        (dir, name): InDirectory<'_>,
        act: impl FnOnce() -> Result<T>,
        tell: impl FnOnce(&Watching<'_>, &T),
    ) -> Result<T> {
        if self.is_watched() {
            return self.told(dir, act, tell);
        }
        self.unwatched([Some((dir, name)), None], act)
    }

    #[cold]
    #[inline(never)]
    fn told<T>(
        &self,
        dir: Node,
        act: impl FnOnce() -> Result<T>,
        tell: impl FnOnce(&Watching<'_>, &T),
    ) -> Result<T> {
        let Some(beside) = Beside::of(self) else { return act() };
        let Some(table) = self.watched(&beside) else { return act() };
        let watching = Watching::new(self, table, &beside);
        if !watching.is_watched(dir) {
            return act();
        }
        let _guard = watching.lock()?;
        let done = act()?;
        tell(&watching, &done);
        Ok(done)
    }

    /// The same of a name for something that had one.
    #[inline]
    pub(super) fn telling(
        &self,
        at: InDirectory<'_>,
        act: impl FnOnce() -> Result<()>,
        tell: impl FnOnce(&Watching<'_>),
    ) -> Result<()> {
        if !self.is_watched() {
            return self.unwatched([Some(at), None], act);
        }
        let Some(beside) = Beside::of(self) else { return act() };
        let Some(table) = self.watched(&beside) else { return act() };
        let watching = Watching::new(self, table, &beside);
        let _guard = watching.lock()?;
        act()?;
        tell(&watching);
        Ok(())
    }

    /// Takes a name away where something is watched.
    #[cold]
    #[inline(never)]
    pub(super) fn remove_watched(
        &self,
        at: &EntryName<'_>,
        remove: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(beside) = Beside::of(self) else { return remove() };
        let Some(table) = self.watched(&beside) else { return remove() };
        let watching = Watching::new(self, table, &beside);
        let meaning = || watching.meaning(at.dir, at.name);
        let concerns = watching.is_watched(at.dir)
            || meaning().is_some_and(|named| watching.is_watched(named.node));
        if !concerns {
            return remove();
        }
        let _guard = watching.lock()?;
        let gone = meaning();
        remove()?;
        if let Some(gone) = gone {
            watching.removed(at.dir, at.name, gone);
        }
        Ok(())
    }

    /// Moves a name where something is watched.
    #[cold]
    #[inline(never)]
    pub(super) fn rename_watched(
        &self,
        from: InDirectory<'_>,
        to: InDirectory<'_>,
        flags: RenameFlags,
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(beside) = Beside::of(self) else { return rename() };
        let Some(table) = self.watched(&beside) else { return rename() };
        let watching = Watching::new(self, table, &beside);
        let meaning = |at: InDirectory<'_>| watching.meaning(at.0, at.1);
        let is_watched = |at| meaning(at).is_some_and(|named| watching.is_watched(named.node));
        let concerns = watching.is_watched(from.0)
            || watching.is_watched(to.0)
            || is_watched(from)
            || is_watched(to);
        if !concerns {
            return rename();
        }
        let _guard = watching.lock()?;
        let (moved, target) = (meaning(from), meaning(to));
        rename()?;
        let same = moved.map(|named| named.node) == target.map(|named| named.node);
        // Two names of one file: nothing happens.
        if let (Some(moved), false) = (moved, same) {
            watching.renamed(from, to, moved, target, flags.bits);
        }
        Ok(())
    }

    /// Opens where something is watched.
    #[cold]
    #[inline(never)]
    pub(super) fn open_watched(
        &self,
        what: Open<'_>,
        flags: OpenFlags,
        place: Option<Node>,
    ) -> Result<Desc> {
        let open = || self.open_unwatched(what, flags, place);
        let mut made = false;
        let desc = match what {
            Open::New(at, new) => self.told(at.dir, open, |watching, &desc| {
                made = true;
                if let Ok((node, _)) = self.describe(desc) {
                    let named = Named { node, kind: new.kind };
                    let opened = watching.created_open(at.dir, at.name, named, flags);
                    self.local.openings.add(desc, [opened, None]);
                }
            })?,
            _ => open()?,
        };
        let tell = |watching: &Watching<'_>| watching.opened(desc, flags, made);
        if let Some(opened) = self.with_watching(tell) {
            self.local.openings.add(desc, opened);
        }
        Ok(desc)
    }

    /// Closes where something is watched, or was.
    #[cold]
    #[inline(never)]
    pub(super) fn close_watched(&self, desc: Desc) -> Result<()> {
        let was = self.engine().opened(desc);
        self.change(|engine| engine.close_description(desc))?;
        let openings = &self.local.openings;
        let was_seen = !openings.is_empty() && openings.close(desc);
        if let Ok(was) = was
            && self.local.watched.get().is_none_or(|table| table.may_concern_close(was.node))
            && self.engine().opened(desc).is_err()
        {
            let gone = Named { node: was.node, kind: was.kind };
            self.with_watching(|watching| {
                if !was_seen {
                    watching.closed_unseen(gone, was.flags);
                }
                if watching.is_watched(gone.node)
                    && let Ok(_guard) = watching.lock()
                {
                    watching.end_if_gone(gone);
                }
            });
        }
        Ok(())
    }

    /// Opened while a watch has begun.
    #[cold]
    #[inline(never)]
    pub(super) fn opened_late(&self, desc: Desc, what: Open<'_>, flags: OpenFlags) {
        let made = if let Open::New(at, _) = what { Some((at.dir, at.name)) } else { None };
        self.settle([made, None]);
        if let Some(opened) = self.with_watching(|watching| watching.opened(desc, flags, false)) {
            self.local.openings.add(desc, opened);
        }
    }

    /// Tells that bytes of an open file were read.
    #[inline]
    pub(super) fn tell_of_read(&self, desc: Desc, bytes: usize) {
        if bytes > 0 {
            self.tell(|watching| watching.happened_behind(desc, Event::Access));
        }
    }

    /// Begins a watch: gives where the kernel is to watch, below the directory for carriers.
    pub(super) fn begin_watch(&self, node: Node, mask: u32) -> Result<Vec<u8>> {
        let engine = self.call()?;
        if engine.is_reader() {
            // It does not see what others change.
            return Err(Errno::OPNOTSUPP);
        }
        let beside = Beside::of(engine).ok_or(Errno::OPNOTSUPP)?;
        let _guard = watch::lock(engine)?;
        let attr = engine.attributes(node)?;
        if attr.kind == Kind::Directory && attr.nlink == 0 {
            return Err(Errno::NOENT);
        }
        let made = watch::begin_epoch(engine, &beside)?;
        let _ = self.local.watched.set(made);
        let table = self.local.watched.get().ok_or(Errno::NOMEM)?;
        let watching = Watching::new(engine, table, &beside);
        watching.sweep();
        self.local.watches.store(true, Ordering::Relaxed);
        watching.begin(&attr, mask)
    }

    /// This process's table, if it has begun watches and some are left.
    fn own_watches(&self) -> Option<&Table> {
        if !self.local.watches.load(Ordering::Relaxed) || watch::count(self) == 0 {
            return None;
        }
        self.watched(&Beside::of(self)?)
    }

    /// Before a child with this slot: it goes on with this process's watches.
    pub(super) fn share_watches(&self, child: u32) {
        if let Some(table) = self.own_watches() {
            // A child that is not noted ends a watch no later than its parent.
            let _ = watch::share(self, table, child);
        }
    }

    /// Nobody else is attached, and the dead hold nothing any more.
    pub(crate) fn sweep_watches(&self) {
        if watch::count(self) != 0 {
            self.with_watching(|watching| watching.lock().map(drop));
        }
    }

    /// This process leaves.
    pub(crate) fn end_watches(&self) {
        if let Some(table) = self.own_watches() {
            // What cannot be removed now is removed when somebody changes it.
            let _ = watch::leave(self, table);
        }
    }
}
