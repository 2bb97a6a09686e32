//! Open file descriptions: the table, shared by all processes, of what is open.
//!
//! | word | what | written by |
//! |---|---|---|
//! | state | epoch, generation, slot, phase | see below, by compare-and-swap |
//! | ino; generation and kind | the node | its claimer |
//! | flags | `O_*` | any holder |
//! | position | bit 63: a write is in flight | any process, by compare-and-swap; lock's holder |
//! | lock | a lock word of a process: writes move the position one after another | writers |
//! | handed | epoch and generation when it was handed over last (`inflight.rs`) | a holder |
//! | place | inode of the directory in which it was found: a hint | its opener |
//! | holders (`holders.rs`) | a bit a process slot | that process; its parent; a recoverer |
//!
//! Phases: free -> claimed -> open -> dropping -> dropped -> free. The reference in the inode's
//! `opens` word is taken in *claimed* and given back in *dropping*. The `opens` word names the
//! description that changed it last and how (a [`Maker`]); a process that changes it again first
//! moves that description to its next phase (`inode/references.rs`). So whatever process dies
//! where: a description is counted exactly if its phase says so or the inode's word names it. (The
//! process that drops it goes from *dropping* to *free*; only its recoverer, if it dies, needs to
//! tell
//! *dropped* from *dropping*.)
//!
//! The first process that sees a description without holders drops it, unless it is in flight
//! (`inflight.rs`). The recoverer of a dead process takes back its holds.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::inode::Inode;
use crate::inode::references::Opened;
use crate::inode::references::{DescState, Maker, Phase, SLOT_BITS, STATE};
use crate::medium::current_cpu;
use crate::medium::layout::HEADER_DESCRIPTIONS;
use crate::open::Opens;
use pmem::Span;
use rustix::io::Errno;
use std::hint::cold_path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use vfs::{Desc, Kind, NewNode, Node, OpenFlags};

const INO: u64 = 8;
const NODE: u64 = 16;
const FLAGS: u64 = 24;
pub(crate) const POSITION: u64 = 32;
pub(crate) const LOCK: u64 = 40;
/// Behind the word of `inflight.rs`.
const PLACE: u64 = 56;

/// An entry's two lines.
pub(crate) type Lines<'v> = Span<'v, 16>;

/// The place of one of these words in their lines.
pub(crate) const fn index(word: u64) -> usize {
    (word / 8) as usize
}

/// The access mode and what `open` decided for good.
const KEPT_FLAGS: i32 = !(libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT);
/// Flags that only `open` itself uses.
const OPEN_ONLY: i32 =
    libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;

const _: () = assert!(STATE == 0 && INO == 8 && NODE == 16 && FLAGS == 24);

/// Whether a state word of this epoch is that of an open description.
pub(crate) fn is_open(state: u64) -> bool {
    state & 7 == Phase::Open as u64
}

/// Whether such an open truncates.
#[inline]
pub(crate) fn truncates(kind: Kind, flags: OpenFlags) -> bool {
    kind == Kind::File && flags.has(libc::O_TRUNC) && !flags.path_only()
}

/// A hint of a CPU's, in a line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Hint(AtomicU32);

/// Such hints; more CPUs share them.
pub(crate) const HINTS: usize = 16;
/// Descriptions from the first choice of one process to the next one's.
const DESCRIPTIONS: u32 = 64;

impl Opens {
    /// Where this CPU looks for a free description first, as the distance from what is given beside
    /// it. So two that open and close files do not pass the same entries to each other.
    #[inline]
    fn description_hint(&self) -> (&AtomicU32, u32) {
        let cpu = current_cpu() as usize % HINTS;
        let first = self.slot() * DESCRIPTIONS + cpu as u32 * (DESCRIPTIONS / HINTS as u32);
        (&self.next_description[cpu].0, first)
    }

    /// How many descriptions there are, in whatever phase.
    pub(crate) fn descriptions_in_use(&self) -> Result<u64> {
        let mut count = 0;
        for index in 0..self.descriptions_used()? {
            count += u64::from(self.desc_state(index)?.phase != Phase::Free);
        }
        Ok(count)
    }

    pub(crate) fn descriptions_used(&self) -> Result<u32> {
        Ok(self.rt.load(HEADER_DESCRIPTIONS)?.min(self.rt.layout.description_count) as u32)
    }

    // ---- opening --------------------------------------------------------------------------------

    /// Opens a node of this kind, which never changes. What is to be truncated is not yet
    /// ([`truncates`]).
    pub(crate) fn open_node_as(&self, node: Node, kind: Kind, flags: OpenFlags) -> Result<Desc> {
        match kind {
            Kind::Symlink if !flags.path_only() => return Err(Errno::LOOP),
            Kind::Directory
                if flags.writes() || flags.has(libc::O_CREAT) || flags.has(libc::O_TRUNC) =>
            {
                return Err(Errno::ISDIR);
            }
            Kind::File | Kind::Directory | Kind::Symlink => {}
            // Fifos, sockets and device nodes are kept here, their data is the kernel's affair.
            _ if !flags.path_only() => return Err(Errno::NXIO),
            _ => {}
        }
        let truncate = truncates(kind, flags);
        if flags.writes() || truncate {
            self.check_writable()?;
        }
        let desc = self.open_description(node, kind, flags, None)?;
        // A process that begins to execute it says so, then looks for descriptions: one of the two
        // sees the other.
        let writes = kind == Kind::File && (flags.writes() || truncate);
        if writes && self.is_executed_by_anyone(node)? {
            self.close_description(desc)?;
            return Err(Errno::TXTBSY);
        }
        Ok(desc)
    }

    /// Makes a regular file under `name`, and opens it.
    pub(crate) fn create_opened(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Result<Desc> {
        self.with_orphans_dropped(|| {
            // As in the kernel: without a description nothing is made.
            let (claim, lines) = self.claim_description()?;
            // Nobody finds it before the operation ends: nobody can be executing it.
            let open = |node| self.open_claimed((claim, &lines), node, new.kind, flags, Some(dir));
            match self.create_and(dir, name, new, &open) {
                Ok((_, opened)) => opened,
                Err(errno) => {
                    self.free_description(claim, &lines, self.claimed(claim))?;
                    Err(errno)
                }
            }
        })
    }

    /// Makes a description of a node, found in the directory `place`. `ENFILE` if the table is
    /// full, `ESTALE`.
    pub(crate) fn open_description(
        &self,
        node: Node,
        kind: Kind,
        flags: OpenFlags,
        place: Option<Node>,
    ) -> Result<Desc> {
        let (claim, lines) = self.claim_description()?;
        self.open_claimed((claim, &lines), node, kind, flags, place)
    }

    /// The state of an entry that this process has claimed, for what it is about to open.
    #[inline]
    pub(crate) fn claimed(&self, desc: Desc) -> DescState {
        DescState { phase: Phase::Claimed, slot: self.slot(), generation: desc.generation() }
    }

    /// As above, with a claimed entry, which is free again if that fails.
    #[inline]
    pub(crate) fn open_claimed(
        &self,
        (desc, lines): (Desc, &Lines<'_>),
        node: Node,
        kind: Kind,
        flags: OpenFlags,
        place: Option<Node>,
    ) -> Result<Desc> {
        let inode = self.inode(node.ino)?;
        let (claimed, live) = (self.claimed(desc), self.live_lines(inode)?);
        let named = u64::from(node.generation) | u64::from(kind.d_type()) << 32;
        let flags = u64::from((flags.0 & !OPEN_ONLY) as u32);
        let place = place.map_or(0, |dir| dir.ino);
        lines.store_four(index(STATE), [claimed.word(self.epoch), node.ino, named, flags])?;
        lines.store_four(index(POSITION), [0, 0, 0, place])?;
        let counted = self.add_open((inode, &live), Maker::new(desc, false));
        // The inode may have become another object before the reference was there; not after.
        let same = counted.and_then(|()| self.is_still(inode, node.generation));
        // Another process may have confirmed it already: to the same word. None moves it
        // otherwise, since it is held.
        let open = DescState { phase: Phase::Open, ..claimed };
        lines.store(index(STATE), open.word(self.epoch))?;
        match (counted, same) {
            (Ok(()), Ok(())) => Ok(desc),
            (Ok(()), Err(errno)) => {
                self.close_description(desc)?;
                Err(errno)
            }
            (Err(errno), _) => {
                self.free_description(desc, lines, open)?;
                Err(errno)
            }
        }
    }

    pub(crate) fn kind_of(&self, node: Node) -> Result<Kind> {
        if let Some(attr) = self.remembered_attributes(node) {
            return Ok(attr.kind);
        }
        self.read_steadily(node, |_, identity| identity.kind().ok_or(Errno::IO))
    }

    /// Finds a free entry and makes it this process's, which holds it; gives its lines, too.
    pub(crate) fn claim_description(&self) -> Result<(Desc, Lines<'_>)> {
        let count = self.rt.layout.description_count as u32;
        let (hint, first) = self.description_hint();
        let start = hint.load(Ordering::Relaxed).wrapping_add(first);
        let mut at = if start < count { start } else { start % count };
        for _ in 0..count {
            let (index_at, lines) = (at, self.description_lines(at)?);
            at = if at + 1 < count { at + 1 } else { 0 };
            let word = lines.load(index(STATE))?;
            let free = DescState::of_word(word, self.epoch);
            if free.phase != Phase::Free {
                continue;
            }
            let desc = Desc::new(index_at, free.generation % 0xF_FFFF + 1);
            let mine = self.claimed(desc);
            // Before it is claimed, so that a recoverer of this process looks far enough.
            if self.rt.header::<HEADER_DESCRIPTIONS>()? <= u64::from(index_at) {
                self.rt.raise(HEADER_DESCRIPTIONS, u64::from(index_at) + 1)?;
            }
            if lines.cas(index(STATE), word, mine.word(self.epoch))?.is_err() {
                continue;
            }
            // No other process can hold it yet. Bits of another epoch go, and those of processes
            // that hold the entry for a moment, find another description and would take them back.
            Self::clear_holders(&lines)?;
            let (word, bit) = self.own_hold();
            lines.store(word, bit)?;
            if index_at != start {
                hint.store(index_at.wrapping_sub(first), Ordering::Relaxed);
            }
            return Ok((desc, lines));
        }
        Err(Errno::NFILE)
    }

    /// Both lines of an entry.
    #[inline]
    fn description_lines(&self, index: u32) -> Result<Lines<'_>> {
        Ok(self.rt.span(self.rt.description(index))?)
    }

    /// Puts an entry back whose reference is given back (or was never taken): it is in `state` and
    /// this process's to free, so another process moves it only to confirm that.
    #[inline]
    pub(crate) fn free_description(
        &self,
        desc: Desc,
        lines: &Lines<'_>,
        state: DescState,
    ) -> Result<()> {
        Self::clear_holders(lines)?;
        if self.was_handed(desc, lines)? {
            self.dismiss_carrier(desc)?;
        }
        let free = DescState { phase: Phase::Free, ..state };
        lines.store(index(STATE), free.word(self.epoch))?;
        let (hint, first) = self.description_hint();
        hint.store(desc.index().wrapping_sub(first), Ordering::Relaxed);
        Ok(())
    }

    // ---- using ----------------------------------------------------------------------------------

    /// What is behind a description that is open; `EBADF` otherwise.
    pub(crate) fn opened(&self, desc: Desc) -> Result<Opened> {
        self.opened_here(desc)
    }

    /// The same, for calls that are made often.
    #[inline(always)]
    pub(crate) fn opened_here(&self, desc: Desc) -> Result<Opened> {
        if u64::from(desc.index()) >= self.rt.layout.description_count {
            cold_path();
            return Err(Errno::BADF);
        }
        self.opened_in(desc, &self.rt.span::<8>(self.rt.description(desc.index()))?)
    }

    /// The same, with the first line of its entry, or both.
    #[inline(always)]
    fn opened_in<const WORDS: usize>(&self, desc: Desc, lines: &Span<'_, WORDS>) -> Result<Opened> {
        let [state, ino, node, flags] = loop {
            let words = lines.four(index(STATE))?;
            // The others are another description's, or in part, if this one was closed meanwhile.
            if lines.load(index(STATE))? == words[0] {
                break words;
            }
            cold_path();
        };
        // All but the slot must be as it is while it is open.
        let open = DescState { phase: Phase::Open, slot: 0, generation: desc.generation() };
        if state & !SLOT_BITS != open.word(self.epoch) {
            cold_path();
            return Err(Errno::BADF);
        }
        Ok(Opened {
            node: Node { ino, generation: node as u32 },
            kind: Kind::from_mode(((node >> 32) as u32) << 12).ok_or(Errno::IO)?,
            flags: OpenFlags(flags as i32),
            state,
        })
    }

    /// The description of data that may be read or written: `EBADF`, `EISDIR`, `EINVAL`.
    #[inline(always)]
    pub(crate) fn opened_data(&self, desc: Desc, write: bool) -> Result<Opened> {
        let opened = self.opened_here(desc)?;
        let allowed = if write { opened.flags.writes() } else { opened.flags.reads() };
        match opened.kind {
            _ if !allowed => Err(Errno::BADF),
            Kind::File => Ok(opened),
            Kind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Notes the directory in which this process's description was found.
    #[inline]
    pub(crate) fn note_directory(&self, desc: Desc, dir: Node) {
        if u64::from(desc.index()) < self.rt.layout.description_count {
            // A hint: if the runtime has vanished, every other call fails too.
            let _ = self.rt.store(self.rt.description(desc.index()) + PLACE, dir.ino);
        }
    }

    /// The directory that was noted, whatever it is by now.
    pub(crate) fn noted_directory(&self, desc: Desc) -> Result<Node> {
        self.opened(desc)?;
        let ino = self.rt.load(self.rt.description(desc.index()) + PLACE)?;
        if ino == 0 || !self.inode_in_use(ino)? {
            return Err(Errno::NOENT);
        }
        let identity = self.identity(self.inode(ino)?).map_err(|_| Errno::NOENT)?;
        Ok(Node { ino, generation: identity.generation })
    }

    /// `F_SETFL`.
    pub(crate) fn change_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()> {
        let opened = self.opened(desc)?;
        let at = self.rt.description(desc.index()) + FLAGS;
        let flags = opened.flags.0 & KEPT_FLAGS | flags.0 & !KEPT_FLAGS;
        Ok(self.rt.store(at, u64::from(flags as u32))?)
    }

    // ---- closing --------------------------------------------------------------------------------

    /// Takes hold of a description that another process holds too.
    pub(crate) fn adopt_description(&self, desc: Desc) -> Result<()> {
        self.opened(desc)?;
        self.share_description(desc, self.slot())
    }

    /// Lets a process slot hold a description.
    pub(crate) fn share_description(&self, desc: Desc, slot: u32) -> Result<()> {
        let held = self.hold(desc.index(), slot, true)?;
        // Its last other holder may be dropping it; that one says so, then looks for holders.
        if self.opened(desc).is_ok() {
            return Ok(());
        }
        if !held {
            self.hold(desc.index(), slot, false)?;
            // It may be another description by now, whose last holder saw this one's bit.
            self.drop_if_unheld(desc.index())?;
        }
        Err(Errno::BADF)
    }

    /// Drops this process's hold.
    pub(crate) fn close_description(&self, desc: Desc) -> Result<()> {
        if u64::from(desc.index()) >= self.rt.layout.description_count {
            return Err(Errno::BADF);
        }
        let lines = self.description_lines(desc.index())?;
        let opened = self.opened_in(desc, &lines)?;
        if self.is_own(desc, &lines)? {
            let dropping = DescState {
                phase: Phase::Dropping,
                slot: self.slot(),
                generation: desc.generation(),
            };
            let word = dropping.word(self.epoch);
            if lines.cas(index(STATE), opened.state, word)?.is_ok() {
                // Where nobody else can change words, nobody has since.
                if self.rt.is_alone() || self.is_own(desc, &lines)? {
                    return self.finish_dropping((desc, &lines), dropping, opened.node);
                }
                // Another process took hold, or handed it over, in between.
                lines.store(index(STATE), opened.state)?;
            }
        }
        if !self.hold(desc.index(), self.slot(), false)? {
            return Err(Errno::BADF);
        }
        if self.is_held(desc.index())? { Ok(()) } else { self.drop_description(desc) }
    }

    /// Drops a description without holders, unless another process is dropping it already.
    fn drop_description(&self, desc: Desc) -> Result<()> {
        let state = self.desc_state(desc.index())?;
        if state.phase != Phase::Open || state.generation != desc.generation() {
            return Ok(());
        }
        if self.is_in_flight(desc)? {
            return self.note_orphan();
        }
        let dropping = DescState { phase: Phase::Dropping, slot: self.slot(), ..state };
        if !self.turn_desc(desc.index(), state, dropping)? {
            return Ok(());
        }
        if self.is_held(desc.index())? || self.is_in_flight(desc)? {
            // Another process took hold, or handed it over, in between.
            self.turn_desc(desc.index(), dropping, state)?;
            return if self.is_held(desc.index())? { Ok(()) } else { self.drop_description(desc) };
        }
        let lines = self.description_lines(desc.index())?;
        self.finish_dropping((desc, &lines), dropping, self.node_of_entry(desc.index())?)
    }

    /// The rest of a drop, from `state` on: phase dropping (or, after a death, dropped).
    #[inline]
    fn finish_dropping(
        &self,
        (desc, lines): (Desc, &Lines<'_>),
        state: DescState,
        node: Node,
    ) -> Result<()> {
        self.drop_description_locks(desc, node.ino)?;
        let finished = self.give_back(desc, state, node);
        self.free_description(desc, lines, state)?;
        finished
    }

    /// Gives the reference of a description back, unless that has happened, and finishes the inode
    /// if it was the last.
    #[inline]
    fn give_back(&self, desc: Desc, state: DescState, node: Node) -> Result<()> {
        let inode = self.inode(node.ino)?;
        let live = self.live_lines(inode)?;
        let left = if state.phase == Phase::Dropping {
            // It says so itself when the inode's word names another one: `Opens::confirm`.
            self.change_opens(&live, Maker::new(desc, true), true)?
        } else {
            match self.opens(inode) {
                // Freed already.
                Err(Errno::STALE) => return Ok(()),
                left => left?,
            }
        };
        if left != 0 || self.is_at_rest((inode, &live), node.generation)? {
            return Ok(());
        }
        self.finish_inode(node)
    }

    /// The node that an entry names.
    fn node_of_entry(&self, index: u32) -> Result<Node> {
        let at = self.rt.description(index);
        Ok(Node { ino: self.rt.load(at + INO)?, generation: self.rt.load(at + NODE)? as u32 })
    }

    /// The node is not open any more: does what waited for that.
    #[inline(never)]
    fn finish_inode(&self, node: Node) -> Result<()> {
        let nameless = match self.read_steadily(node, |_, identity| Ok(identity.nlink == 0)) {
            // Freed already, by the process that unlinked it.
            Err(Errno::STALE) => return Ok(()),
            found => found?,
        };
        if self.check_writable().is_err() {
            // A reader must not change the medium; if the file has no name, a sweep frees it later.
            return if nameless { self.demand_sweep() } else { Ok(()) };
        }
        let finished = if nameless { self.drop_if_unlinked(node) } else { self.last_close(node) };
        // Another process freed it in between, and has done all that was to do.
        if finished == Err(Errno::STALE) { Ok(()) } else { finished }
    }

    // ---- after a death, and at the end ----------------------------------------------------------

    /// Drops every hold of a slot, and finishes what its process had begun with descriptions. The
    /// slot is dead or this process's own; its process opens and closes nothing meanwhile.
    pub(crate) fn drop_holds_of(&self, slot: u32) -> Result<()> {
        self.finish_opens_and_closes(slot)?;
        for index in 0..self.descriptions_used()? {
            let state = self.desc_state(index)?;
            if state.phase != Phase::Open {
                continue;
            }
            self.hold(index, slot, false)?;
            self.tolerate(self.drop_if_unheld(index))?;
        }
        Ok(())
    }

    /// Drops every open description without holders.
    pub(crate) fn drop_all_unheld(&self) -> Result<()> {
        for index in 0..self.descriptions_used()? {
            self.tolerate(self.drop_if_unheld(index))?;
        }
        Ok(())
    }

    /// Drops an open description without holders. Its last holder died between giving it up and
    /// dropping it, or is about to drop it: then one of the two processes does.
    fn drop_if_unheld(&self, index: u32) -> Result<()> {
        let state = self.desc_state(index)?;
        if state.phase != Phase::Open || self.is_held(index)? {
            return Ok(());
        }
        self.drop_description(Desc::new(index, state.generation))
    }

    /// One file that cannot be finished (it is damaged, or the volume is full) must not keep a
    /// process from being recovered: what it holds is freed by the next sweep.
    fn tolerate(&self, result: Result<()>) -> Result<()> {
        if result.is_err() { self.demand_sweep() } else { Ok(()) }
    }

    /// Finishes the opens and closes that a dead process (or this one's old image) had begun.
    pub(crate) fn finish_opens_and_closes(&self, slot: u32) -> Result<()> {
        for index in 0..self.descriptions_used()? {
            let state = self.desc_state(index)?;
            let desc = Desc::new(index, state.generation);
            match state.phase {
                Phase::Free | Phase::Open => {}
                _ if state.slot != slot => {}
                Phase::Claimed => self.tolerate(self.finish_claim(desc, state))?,
                Phase::Dropping | Phase::Dropped => {
                    self.tolerate(self.take_over_drop(desc, state))?;
                }
            }
        }
        Ok(())
    }

    /// A dead process had claimed the entry: counted or not?
    fn finish_claim(&self, desc: Desc, state: DescState) -> Result<()> {
        let at = self.rt.description(desc.index());
        let (ino, generation) = (self.rt.load(at + INO)?, self.rt.load(at + NODE)? as u32);
        if let Ok(inode) = self.inode(ino)
            && self.last_maker(inode) == Ok(Maker::new(desc, false))
        {
            self.confirm(Maker::new(desc, false))?;
        }
        // No other process can have known it.
        Self::clear_holders(&self.description_lines(desc.index())?)?;
        if self.desc_state(desc.index())?.phase == Phase::Open {
            return self.drop_description(desc);
        }
        let free = DescState { phase: Phase::Free, ..state };
        self.turn_desc(desc.index(), state, free)?;
        // The dead process was making a nameless file, which the sweep spared for this entry.
        let node = Node { ino, generation };
        match self.identity_of(node) {
            Ok((_, identity)) if identity.nlink == 0 => self.drop_if_unlinked(node),
            _ => Ok(()),
        }
    }

    /// A dead process was dropping the entry: it becomes ours to drop.
    fn take_over_drop(&self, desc: Desc, state: DescState) -> Result<()> {
        let ino = self.rt.load(self.rt.description(desc.index()) + INO)?;
        if let Ok(inode) = self.inode(ino)
            && self.last_maker(inode) == Ok(Maker::new(desc, true))
        {
            self.confirm(Maker::new(desc, true))?;
        }
        let state = DescState { phase: self.desc_state(desc.index())?.phase, ..state };
        let mine = DescState { slot: self.slot(), ..state };
        if self.turn_desc(desc.index(), state, mine)? {
            let lines = self.description_lines(desc.index())?;
            self.finish_dropping((desc, &lines), mine, self.node_of_entry(desc.index())?)
        } else {
            Ok(())
        }
    }

    /// Drops every hold of this process.
    pub(crate) fn drop_all_holds(&self) -> Result<()> {
        self.drop_process_locks(self.slot(), self.slot_generation())?;
        self.drop_holds_of(self.slot())
    }

    /// Calls `each` for every file that any process has open.
    pub(crate) fn each_open_file(&self, each: &mut dyn FnMut(Node) -> Result<()>) -> Result<()> {
        for index in 0..self.descriptions_used()? {
            let generation = self.desc_state(index)?.generation;
            if let Ok(opened) = self.opened(Desc::new(index, generation))
                && opened.kind == Kind::File
            {
                each(opened.node)?;
            }
        }
        Ok(())
    }

    /// Inodes without a name that stay as long as a process has them open (or is about to free
    /// them): roots of a sweep besides the root directory.
    pub(crate) fn nameless_roots(&self) -> Result<Vec<Inode>> {
        let mut roots = Vec::new();
        for index in 0..self.descriptions_used()? {
            if self.desc_state(index)?.phase == Phase::Free {
                continue;
            }
            let at = self.rt.description(index);
            let node =
                Node { ino: self.rt.load(at + INO)?, generation: self.rt.load(at + NODE)? as u32 };
            if let Ok((inode, identity)) = self.identity_of(node)
                && identity.nlink == 0
                && !self.is_freed(inode)?
            {
                roots.push(inode);
            }
        }
        roots.sort_unstable_by_key(|inode| inode.0);
        roots.dedup();
        Ok(roots)
    }
}
