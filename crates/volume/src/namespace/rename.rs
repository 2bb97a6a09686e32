//! Renames: one word, or one transaction over all entries, directories and inodes concerned.
//!
//! Where old and new name lie in one bucket that has room, a new entry is put aside, and the
//! bucket's occupancy word is the commit, for all names at once (`change.rs`): without waiting for
//! a lock if the new name leads nowhere, both take one slot, and no other name has their hashes
//! ([`Names::rename_at_once`]: one look at the bucket for both). Else: where the new name exists,
//! its entry is changed in place (so a rename over a file needs no room, even on a full volume); if
//! not, a new entry is put aside and its word published. The old entry's occupancy word goes in the
//! same transaction; or it leads to a whiteout from then on: a new inode, which nothing reaches
//! before.
//!
//! Lock order: the volume-wide rename lock if a directory changes its parent, so that nobody else
//! moves one meanwhile and the check that none lands inside itself holds; then the inodes.

use crate::Result;
use crate::cache::{Asked, EntryPlace, Target};
use crate::inject::{Bug, injected};
use crate::inode::{CTIME, Inode, LIVE_DIRTY, index};
use crate::medium::dirhash::checked;
use crate::medium::layout::{MOVED, SLOT_NAME};
use crate::medium::name::{check_name, own_name};
use crate::medium::now;
use crate::namespace::Names;
use crate::namespace::bucket::{Dir, occupancy_at, slot_at, slot_words, slots_of};
use crate::namespace::change::{LINES, Named, Step, fence_unless, gone};
use crate::namespace::directory::{Hit, Search};
use crate::namespace::{LINKS_MAX, RETRIES, check_asked};
use crate::txn::acquire::Locked;
use crate::txn::locked_inodes::{Held, SlotStore, Store};
use crate::txn::op::Op;
use crate::txn::release::Freed;
use pmem::{Durable, InFlight};
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Kind, NewNode, Node, RenameFlags};

/// What was asked for, and what the names meant before the locks.
struct Request<'a> {
    from_dir: Node,
    from: &'a [u8],
    to_dir: Node,
    to: &'a [u8],
    exchange: bool,
    /// User and group of the whiteout that is left.
    whiteout: Option<(u32, u32)>,
    source: Target,
    target: Option<Target>,
}

/// The locked inodes, each once.
#[derive(Default)]
struct LockedInodes(SmallVec<[Held; 4]>);

impl LockedInodes {
    fn add(&mut self, held: Held) {
        if self.0.iter().all(|one| one.inode != held.inode) {
            self.0.push(held);
        }
    }

    fn all(&self) -> SmallVec<[&Held; 4]> {
        self.0.iter().collect()
    }

    fn get(&mut self, node: Node) -> Result<&mut Held> {
        self.0.iter_mut().find(|one| one.inode == Inode(node.ino)).ok_or(Errno::IO)
    }
}

/// What was found under the locks.
struct Found<'v> {
    locked: LockedInodes,
    from_at: Dir,
    to_at: Dir,
    source_hit: Hit<'v>,
    target_search: Search<'v>,
}

impl Request<'_> {
    fn source_is_dir(&self) -> bool {
        self.source.kind == Kind::Directory
    }

    fn target_is_dir(&self) -> bool {
        self.target.is_some_and(|target| target.kind == Kind::Directory)
    }

    /// Whether a directory changes its parent.
    fn moves_directory(&self) -> bool {
        let any = self.source_is_dir() || self.exchange && self.target_is_dir();
        any && self.from_dir != self.to_dir
    }

    /// Checks what the kinds allow.
    fn check_kinds(&self) -> Result<()> {
        match (self.target, self.source_is_dir(), self.target_is_dir()) {
            (Some(_), true, false) if !self.exchange => Err(Errno::NOTDIR),
            (Some(_), false, true) if !self.exchange => Err(Errno::ISDIR),
            (None, ..) if self.exchange => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }
}

impl Names {
    /// Renames, replaces or exchanges (`renameat2`).
    /// `found`: what the names led to a moment ago.
    pub(crate) fn rename_known(
        &self,
        (from_dir, from): (Node, &[u8]),
        (to_dir, to): (Node, &[u8]),
        flags: RenameFlags,
        found: Option<(Target, Option<Target>)>,
    ) -> Result<()> {
        let mut found = found;
        if from_dir == to_dir && flags.bits & !libc::RENAME_NOREPLACE == 0 {
            if found.is_none() {
                check_name(from).and(check_name(to))?;
                found = Some(self.meaning_of(from_dir, from, to_dir, to)?);
            }
            if let Some((source, None)) = found
                && self
                    .tries(from_dir, |seen| self.rename_at_once(from_dir, from, to, source, seen))?
            {
                return Ok(());
            }
        }
        self.rename_waiting((from_dir, from), (to_dir, to), flags, found)
    }

    /// Gives what `from` leads to (`source`, as was found a moment ago) the name `to`, which led
    /// nowhere, if nothing is to be waited for or allocated. `false`: nothing has been done.
    /// (`seen`: the directory's number, as in `txn/looks.rs`.)
    #[inline(never)]
    pub(super) fn rename_at_once(
        &self,
        dir: Node,
        from: &[u8],
        to: &[u8],
        source: Target,
        seen: &mut u64,
    ) -> Result<bool> {
        if from.len().max(to.len()) > SLOT_NAME || injected(Bug::RenameDropsFirst) {
            return Ok(false);
        }
        self.check_writable()?;
        let Some(from) = self.ask_for(dir, from) else { return Ok(false) };
        let Some(to) = self.ask_for(dir, to) else { return Ok(false) };
        check_asked(&from)?;
        check_asked(&to)?;
        let Some((parent, _)) = self.see_directory(dir, seen) else { return Ok(false) };
        let Some((child, (kind, ..))) = self.see(source.node) else { return Ok(false) };
        if kind != source.kind
            || child.flags & LIVE_DIRTY != 0
            || child.seen.inode == parent.seen.inode
        {
            return Ok(false);
        }
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let now_at = parent.seen.sequence;
        let slots = match (from.known_at(now_at), to.known_at(now_at)) {
            (Some((Some(known), old)), Some((None, new))) if known == source => {
                self.entry_and_slot_at(old, new)
            }
            _ => {
                let hashes = [self.name_hash(from.name()), self.name_hash(to.name())];
                let entry = |key| slot_words(key, from.padded(), from.name().len(), source);
                self.entry_and_new_slot(at, hashes, entry)
            }
        };
        let Ok(Some((old, new))) = slots else { return Ok(false) };
        let (own, inodes) = (self.record_here()?, [parent.seen, child.seen]);
        let Some(named) = self.try_names(own, inodes, parent.flags)? else { return Ok(false) };
        let step = Step { dir, asked: Some(&to), time: now() };
        let (old, new, in_use) = (old.place, new.place, old.occupancy);
        let left = (in_use | 1 << new.slot) & !(1 << old.slot);
        let word = Store { at: occupancy_at(new.bucket), value: checked(left) };
        let places = Some((old, new));
        let done = named.rename(&step, (Some(&from), source), (word, places), |moved| {
            let place = (new.bucket, new.slot, new.key);
            let entry = self.store_entry(place, (to.padded(), to.name().len()), source)?;
            Ok(fence_unless(entry.and(moved), Bug::NameBeforeInode))
        });
        match done {
            Ok(_) => named.locked.end(LINES, Freed::default()).map(|()| true),
            Err(errno) => named.locked.fail(LINES).and(Err(errno)),
        }
    }

    /// As [`Names::rename_known`], whatever it takes.
    pub(super) fn rename_waiting(
        &self,
        (from_dir, from): (Node, &[u8]),
        (to_dir, to): (Node, &[u8]),
        flags: RenameFlags,
        found: Option<(Target, Option<Target>)>,
    ) -> Result<()> {
        let exchange = flags.bits & libc::RENAME_EXCHANGE != 0;
        let noreplace = flags.bits & libc::RENAME_NOREPLACE != 0;
        let whiteout = (flags.bits & libc::RENAME_WHITEOUT != 0).then_some(flags.owner);
        let known = libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
        if flags.bits & !known != 0 || exchange && flags.bits != libc::RENAME_EXCHANGE {
            return Err(Errno::INVAL);
        }
        let mut found = found;
        let (from, to) = (&*own_name(from)?, &*own_name(to)?);
        for _ in 0..RETRIES {
            let (source, target) = match found.take() {
                Some(found) => found,
                None => self.meaning_of(from_dir, from, to_dir, to)?,
            };
            if noreplace && target.is_some() {
                return Err(Errno::EXIST);
            }
            let request =
                Request { from_dir, from, to_dir, to, exchange, whiteout, source, target };
            self.check_kinds(&request)?;
            if target.is_some_and(|target| target.node == source.node) {
                // Two names, or one that has just become the other: then there is nothing to
                // rename.
                if self.lookup_target(from_dir, from).map_err(gone)? == source {
                    return Ok(());
                }
                continue;
            }
            if self.try_rename(&request)? {
                return Ok(());
            }
        }
        Err(Errno::IO)
    }

    /// What both names lead to.
    fn meaning_of(
        &self,
        from_dir: Node,
        from: &[u8],
        to_dir: Node,
        to: &[u8],
    ) -> Result<(Target, Option<Target>)> {
        let source = self.lookup_target(from_dir, from).map_err(gone)?;
        match self.lookup_target(to_dir, to).map_err(gone) {
            Err(Errno::NOENT) => Ok((source, None)),
            target => Ok((source, Some(target?))),
        }
    }

    /// Checks what the kinds allow; as on Linux, that a place lies inside what is moved counts
    /// first.
    fn check_kinds(&self, request: &Request<'_>) -> Result<()> {
        let checked = request.check_kinds();
        match (checked, request.target) {
            (Err(Errno::NOTDIR), _) => {
                self.check_outside(request.to_dir, request.source.node).and(checked)
            }
            (Err(Errno::ISDIR), Some(target)) => {
                match self.check_outside(request.from_dir, target.node) {
                    Err(Errno::INVAL) => Err(Errno::NOTEMPTY),
                    _ => checked,
                }
            }
            _ => checked,
        }
    }

    /// Renames unless a name means something else under the locks: then `false`.
    fn try_rename(&self, request: &Request<'_>) -> Result<bool> {
        let mut op = self.begin()?;
        if request.moves_directory() {
            op.lock_rename()?;
            if request.source_is_dir() {
                self.check_outside(request.to_dir, request.source.node)?;
            }
            if let Some(target) = request.target.filter(|_| request.exchange) {
                self.check_outside(request.from_dir, target.node)?;
            }
        }
        let mut inodes: SmallVec<[Inode; 4]> = SmallVec::new();
        inodes.push(self.inode_of(request.from_dir)?);
        inodes.push(self.inode_of(request.to_dir)?);
        inodes.push(self.inode(request.source.node.ino)?);
        if let Some(target) = request.target {
            inodes.push(self.inode(target.node.ino)?);
        }
        if !op.lock_found(&inodes)? {
            return Ok(false);
        }
        let Some(found) = self.find_for_rename(request)? else { return Ok(false) };
        op.work()?;
        match (request.target, request.exchange) {
            (Some(target), true) => self.exchange(&mut op, request, target, found)?,
            (target, _) => self.move_name(&mut op, request, target, found)?,
        }
        op.end()?;
        Ok(true)
    }

    /// `EINVAL` if the directory `dir` is `top` or lies in it. The rename lock is held.
    fn check_outside(&self, dir: Node, top: Node) -> Result<()> {
        let mut at = dir;
        loop {
            if at.ino == top.ino {
                return Err(Errno::INVAL);
            }
            let parent = self.stable_parent(at)?;
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
    }

    /// A directory's parent. It changes only under the rename lock, which the caller holds, but the
    /// line it is in may be changing.
    fn stable_parent(&self, dir: Node) -> Result<Node> {
        for _ in 0..RETRIES {
            match self.identity_of(dir) {
                Ok((_, id)) => {
                    return Ok(Node { ino: id.parent, generation: id.parent_generation });
                }
                Err(Errno::STALE) => return Err(Errno::NOENT),
                Err(_) => std::hint::spin_loop(),
            }
        }
        Err(Errno::IO)
    }

    /// Reads everything again under the locks; `None` if a name means something else by now.
    fn find_for_rename(&self, request: &Request<'_>) -> Result<Option<Found<'_>>> {
        let (from_held, from_at) = self.held_directory(request.from_dir)?;
        let (to_held, to_at) = if request.to_dir == request.from_dir {
            (from_held, from_at)
        } else {
            self.held_directory(request.to_dir)?
        };
        let source_hit = self.find_again(from_at, request.from, request.source)?;
        let target_search = self.search(to_at, self.name_hash(request.to), request.to)?;
        let meant = target_search.hit.as_ref().map(|hit| hit.target);
        let Some(source_hit) = source_hit.filter(|_| meant == request.target) else {
            return Ok(None);
        };
        let mut locked = LockedInodes::default();
        locked.add(from_held);
        locked.add(to_held);
        locked.add(self.held_target(request.source)?);
        if let Some(target) = request.target {
            let held = self.held_target(target)?;
            let replaced = held.is_directory() && !request.exchange;
            if replaced && !self.is_empty_directory(Dir::of(held.inode, &held.identity)?)? {
                return Err(Errno::NOTEMPTY);
            }
            locked.add(held);
        }
        let arrives = request.moves_directory() && request.source_is_dir();
        if arrives && !request.target_is_dir() && to_held.commit.aux >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        Ok(Some(Found { locked, from_at, to_at, source_hit, target_search }))
    }
}

/// The change that lets the entry at `hit` lead to another target.
fn retarget(volume: &Names, hit: &Hit<'_>, target: Target) -> Result<SlotStore> {
    let entry = volume.read_entry(&hit.bucket, hit.slot)?;
    Ok((slot_at(hit.bucket.block, hit.slot), entry.retargeted(target)))
}

/// Gives a moved inode its new parent, if it is a directory.
fn set_parent(locked: &mut LockedInodes, moved: Node, parent: Node) -> Result<()> {
    let held = locked.get(moved)?;
    held.touch();
    if held.is_directory() {
        held.identity.parent = parent.ino;
        held.identity.parent_generation = parent.generation;
    }
    Ok(())
}

/// The directories' counts, the links of what is replaced, and the parent of what is moved,
/// after a rename that left this under the old name.
fn count_moved(
    locked: &mut LockedInodes,
    request: &Request<'_>,
    left: Option<Target>,
) -> Result<()> {
    let directories = i32::from(request.source_is_dir());
    let replaced = i32::from(request.target_is_dir());
    let (lost, gained) = (i64::from(left.is_none()), i64::from(request.target.is_none()));
    locked.get(request.from_dir)?.change_entries(-lost, -directories);
    locked.get(request.to_dir)?.change_entries(gained, directories - replaced);
    set_parent(locked, request.source.node, request.to_dir)?;
    if let Some(target) = request.target {
        let held = locked.get(target.node)?;
        let links = held.identity.nlink.saturating_sub(1);
        held.identity.nlink = if held.is_directory() { 0 } else { links };
        held.touch();
    }
    Ok(())
}

impl<'v, const N: usize> Named<'v, N> {
    /// Gives the second inode, `from.1`, the step's name by the word that takes the name `from.0`
    /// away, and the step's name from the third inode, if there is one, which goes with it.
    /// `prepare` stores the new entry and fences. `false`: the third one has been opened, and
    /// nothing has been done.
    ///
    /// Nothing else of the moved inode changes but its change time, which has a word of its own for
    /// this: a crash may forget or foresee it, as it may a directory's times. So a redo record of
    /// it stays right. `places`: where old and new name belong, if all other entries stay.
    #[inline]
    fn rename(
        &self,
        step: &Step<'_>,
        (from, source): (Option<&Asked>, Target),
        (word, places): (Store, Option<(EntryPlace, EntryPlace)>),
        prepare: impl FnOnce(InFlight<'v>) -> Result<Durable<'v>>,
    ) -> Result<bool> {
        let (Locked { seen, .. }, names) = (self.locked, self.names);
        let (child, gone) = (seen[1], seen.get(2));
        if let Some(gone) = gone
            && !names.close_for_good(&gone.live)?
        {
            return Ok(false);
        }
        let done = self.next(step, (-i64::from(gone.is_some()), 0)).and_then(|next| {
            let known = self.enter(from, None, places.map(|(old, _)| old))
                & self.enter(step.asked, Some(source), places.map(|(_, new)| new));
            let takes = source.kind == Kind::Directory;
            self.carry(step, known, (takes, places.is_some()), &next);
            names.carry_moved(source.node, (child.sequence, child.sequence + 2), step.time);
            let time = step.time.cast_unsigned();
            let moved = names.region.store64(child.inode.at(MOVED), time)?;
            // PERSIST: the new entry before the word that makes it count.
            let durable = prepare(moved.flush())?;
            // CRASH: that word takes the old names away too: one of them is there, never both or
            // none.
            self.publish(step, word, &next, Some(&durable))
        });
        match (done, gone) {
            (Err(errno), Some(gone)) => return names.allow_opens(gone.inode).and(Err(errno)),
            (done, None) => done?,
            (Ok(()), Some(gone)) => names.forget_identity(gone.inode)?,
        }
        child.live.0.store(index(CTIME), step.time.cast_unsigned())?;
        child.live.keep_run(child.sequence, child.sequence + 2)?;
        Ok(true)
    }
}

impl Names {
    fn move_name<'v>(
        &'v self,
        op: &mut Op<'v>,
        request: &Request<'_>,
        target: Option<Target>,
        found: Found<'v>,
    ) -> Result<()> {
        let mut found = found;
        if request.whiteout.is_none() && self.move_in_bucket(op, request, target, &mut found)? {
            return Ok(());
        }
        let Found { mut locked, from_at, to_at, mut source_hit, target_search } = found;
        let mut words: SmallVec<[Store; 2]> = SmallVec::new();
        let mut slots: SmallVec<[SlotStore; 2]> = SmallVec::new();
        if let Some(hit) = &target_search.hit {
            slots.push(retarget(self, hit, request.source)?);
        } else {
            let key = target_search.vacant.ok_or(Errno::NOSPC)?;
            let known = target_search.bucket;
            let bucket = self.make_room(op, to_at, key, slots_of(request.to.len()), known)?;
            if known.is_none() || bucket != known {
                // Making room may have moved the old entry to another bucket.
                let again = self.find_again(from_at, request.from, request.source)?;
                source_hit = again.ok_or(Errno::IO)?;
            }
            words.push(self.insertion(op, to_at, key, bucket, request.to, request.source)?);
        }
        let left = self.whiteout(op, request, locked.get(request.from_dir)?)?;
        let removal = if let Some(whiteout) = left {
            slots.push(retarget(self, &source_hit, whiteout)?);
            None
        } else {
            let with = words.first().copied().filter(|_| from_at == to_at);
            let removal = self.removal(op, from_at, &source_hit, with)?;
            words.retain(|word| word.at != removal.at);
            words.push(removal);
            Some(removal)
        };
        if let Some(removal) = removal.filter(|_| injected(Bug::RenameDropsFirst)) {
            let after = op.fence();
            op.commit_word(removal.at, removal.value, &after)?;
        }

        count_moved(&mut locked, request, left)?;
        self.commit_held(op, &locked.all(), &words, &slots)?;
        self.carry_renamed(request, left)?;
        if let Some(target) = target {
            self.drop_if_closed(op, locked.get(target.node)?)?;
        }
        removal.map_or(Ok(()), |word| self.prune_after(op, from_at, &source_hit, word.value))
    }

    /// Makes the whiteout that is asked for.
    fn whiteout<'v>(
        &'v self,
        op: &mut Op<'v>,
        request: &Request<'_>,
        parent: &Held,
    ) -> Result<Option<Target>> {
        let Some((uid, gid)) = request.whiteout else { return Ok(None) };
        let new = NewNode { kind: Kind::CharDevice, mode: 0, uid, gid, rdev: 0, target: b"" };
        let made = self.new_inode(op, &new, parent)?;
        // PERSIST: the commit fences it before the entry leads to it.
        // CRASH: until then nothing reaches the inode, so it is not allocated.
        op.pend(made.store(self)?);
        Ok(Some(made.target()))
    }

    /// Renames within one bucket by a new entry and one store of the occupancy word
    /// ([`Named::rename`]). `false`, and nothing is changed: it is not that simple.
    fn move_in_bucket<'v>(
        &'v self,
        op: &mut Op<'v>,
        request: &Request<'_>,
        target: Option<Target>,
        found: &mut Found<'v>,
    ) -> Result<bool> {
        let Found { locked, from_at, to_at, source_hit, target_search } = found;
        let bucket = source_hit.bucket;
        let (there, key, replaced) = match &target_search.hit {
            Some(hit) => (Some(hit.bucket), Some(hit.key), hit.mask()),
            None => (target_search.bucket, target_search.vacant, 0),
        };
        let one = from_at == to_at && there == Some(bucket);
        let (Some(key), true) = (key, one && !request.target_is_dir()) else { return Ok(false) };
        let Some(slot) = bucket.free_slots(slots_of(request.to.len())) else { return Ok(false) };
        let gone = target.map(|target| locked.get(target.node).copied()).transpose()?;
        if injected(Bug::RenameDropsFirst) || gone.is_some_and(|gone| gone.identity.nlink > 1) {
            return Ok(false);
        }
        let mask = self.write_name(op, bucket.block, slot, (key, request.to), request.source)?;
        let left = (bucket.occupancy | mask) & !(source_hit.mask() | replaced);
        let word = Store { at: occupancy_at(bucket.block), value: checked(left) };
        let dir = request.from_dir;
        let names = [request.from, request.to].map(|name| self.ask_for(dir, name));
        let step = Step { dir, asked: names[1].as_ref(), time: now() };
        let from = (names[0].as_ref(), request.source);
        let moved = locked.get(request.source.node)?;
        op.announced_lines(LINES);
        op.pend_size(moved)?;
        let (parent, child) = (from_at.inode, moved.inode);
        let done = match gone {
            None => {
                let named = self.named(op, [parent, child])?;
                named.rename(&step, from, (word, None), |stored| Ok(op.fence_with(stored)))?
            }
            Some(gone) => {
                let named = self.named(op, [parent, child, gone.inode])?;
                named.rename(&step, from, (word, None), |stored| Ok(op.fence_with(stored)))?
            }
        };
        if done {
            self.published(op)?;
            moved.current.ctime = step.time;
            op.publish_held(&[moved])?;
            self.carry_all(op, &[moved])?;
            if let Some(gone) = gone {
                self.free_forgotten(op, &gone)?;
            }
        }
        Ok(done)
    }

    fn exchange<'v>(
        &'v self,
        op: &mut Op<'v>,
        request: &Request<'_>,
        target: Target,
        found: Found<'_>,
    ) -> Result<()> {
        let Found { mut locked, source_hit, target_search, .. } = found;
        let target_hit = target_search.hit.ok_or(Errno::IO)?;
        let slots =
            [retarget(self, &source_hit, target)?, retarget(self, &target_hit, request.source)?];
        let gained = i32::from(request.source_is_dir()) - i32::from(request.target_is_dir());
        locked.get(request.from_dir)?.change_entries(0, -gained);
        locked.get(request.to_dir)?.change_entries(0, gained);
        set_parent(&mut locked, request.source.node, request.to_dir)?;
        set_parent(&mut locked, target.node, request.from_dir)?;
        self.commit_held(op, &locked.all(), &[], &slots)?;
        self.carry_renamed(request, Some(target))
    }

    /// Notes what the names mean from now on; the old one means `left`.
    fn carry_renamed(&self, request: &Request<'_>, left: Option<Target>) -> Result<()> {
        let changed = [(request.from, left), (request.to, Some(request.source))];
        let takes = request.source_is_dir() || request.target_is_dir();
        if request.from_dir == request.to_dir {
            return self.carry_changed(request.from_dir, &changed, takes);
        }
        self.carry_changed(request.from_dir, &changed[..1], takes)?;
        self.carry_changed(request.to_dir, &changed[1..], takes)
    }
}
