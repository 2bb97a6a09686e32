//! The extent cache: runs of files that this process read, so that most reads neither walk a map
//! nor check an identity.
//!
//! An entry is a run of an open description's file, wholly below its end, as it was under a
//! sequence number of the inode. It is right exactly as long as the description's state word and
//! that number have not moved (numbers never repeat in an epoch: [`crate::inode`]), so nothing is
//! ever invalidated. (Of a file that was only changed in place since it still is right, too:
//! [`Caches::read_changed`].) A read that it serves copies under the number, as all reads do, and
//! writes no memory that another thread reads, but for the position of a `read`.
//!
//! The table is direct-mapped, shared by the threads of the process. An entry is guarded by a
//! version, odd while it is filled; a read that finds it odd goes by the map.
//!
//! The access time of an unchanged file can only become due by age: each thread reads by the map
//! now and then, which looks.
//!
//! Locks: none. Persistence: none.

use crate::cache::Caches;
use crate::cache::mix;
use crate::inode::in_place::{Blocks, Numbers};
use crate::inode::references::Opened;
use crate::inode::references::is_generation;
use crate::inode::{Inode, Run};
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS};
use pmem::{APART, Pager};
use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use vfs::{Desc, Node, UserOut};

/// Runs that are remembered: one each 2 MiB at most.
const ENTRIES: usize = 1024;
/// One of so many reads of a thread goes by the map.
const SERVES: u32 = 256;
/// Longest read that is served: what is copied under one sequence number.
const LONGEST: usize = 64 << 10;
/// Blocks that a reader in order looks ahead.
const AHEAD: u64 = 32;
/// Words of an entry beside its version.
const WORDS: usize = 7;

/// One remembered run.
#[derive(Clone, Copy)]
struct Memory {
    /// The instance of the volume and the description's index.
    head: u64,
    /// The description's state word.
    state: u64,
    ino: u64,
    sequence: u64,
    /// Bytes of the file.
    from: u64,
    to: u64,
    /// Where the first of them lies in the region.
    place: u64,
}

/// A cache line.
#[repr(align(64))]
struct Entry {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Entry {
    const fn new() -> Self {
        Self { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// What it holds, if no thread changes it meanwhile.
    #[inline]
    fn get(&self) -> Option<Memory> {
        let version = self.version.load(Ordering::Acquire);
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        let (head, state, ino, sequence) = (word(0), word(1), word(2), word(3));
        let (from, to, place) = (word(4), word(5), word(6));
        fence(Ordering::Acquire);
        let steady = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        steady.then_some(Memory { head, state, ino, sequence, from, to, place })
    }

    fn put(&self, memory: &Memory) {
        let version = self.version.load(Ordering::Relaxed);
        let taken = version & 1 == 0
            && self
                .version
                .compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return;
        }
        let Memory { head, state, ino, sequence, from, to, place } = *memory;
        for (to, from) in self.words.iter().zip([head, state, ino, sequence, from, to, place]) {
            to.store(from, Ordering::Release);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];

/// Reads elsewhere whose lines are all asked for beforehand: a shorter one waits for a line or two
/// anyway.
const FAR: std::ops::RangeInclusive<usize> = 512..=8 << 10;

/// Set in the head of an entry whose pages may be away, of a pager that loads from there: the copy
/// looks for that ([`pmem::Region::read_apart`]).
const AWAY: u64 = 1 << 31;

/// What a thread knows of its own reads; zero in a new thread.
#[repr(C)]
struct Reader {
    /// Those that may still be served from the table.
    left: Cell<u32>,
    /// Where the last one ended in the region.
    end: Cell<u64>,
}

const READER: usize = size_of::<Reader>();

// In the static TLS block, where it is found without a call: that would cost each read the
// registers in which it keeps what it knows.
global_asm!(
    ".pushsection .tbss.solera_reader,\"awT\",@nobits",
    ".balign 16",
    ".globl solera_reader",
    ".hidden solera_reader",
    ".type solera_reader, @object",
    ".size solera_reader, {bytes}",
    "solera_reader:",
    ".zero {bytes}",
    ".popsection",
    bytes = const READER,
);

/// Gives the calling thread's.
#[inline]
fn with_reader<T>(with: impl FnOnce(&Reader) -> T) -> T {
    let at: *const Reader;
    // SAFETY: the thread pointer (which points at itself) plus the distance that the dynamic linker
    // put into the table. The reference ends with this call, which stays in this thread.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + solera_reader@GOTTPOFF]",
            at = out(reg) at,
            options(nostack, readonly),
        );
        with(&*at)
    }
}

/// Where the run is remembered in which a byte of a description's file lies.
#[inline]
fn entry(desc: Desc, offset: u64) -> &'static Entry {
    let hash = mix(&[u64::from(desc.index()), offset / CHUNK]);
    &TABLE[(hash >> 32) as usize % ENTRIES]
}

/// Counts a read of `place..end` of the region: `None` now and then; else whether it goes on where
/// the last one ended.
#[inline]
fn may_be_served(place: u64, end: u64) -> Option<bool> {
    with_reader(|reader| match reader.left.get() {
        0 => {
            reader.left.set(SERVES);
            None
        }
        some => {
            reader.left.set(some - 1);
            Some(reader.end.replace(end) == place)
        }
    })
}

/// What a read of one piece found, under the sequence number that did not move.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) sequence: u64,
    pub(crate) size: u64,
    /// Its first block, and the run that begins there.
    pub(crate) logical: u64,
    pub(crate) run: Run,
}

impl Caches {
    fn entry_head(&self, desc: Desc) -> u64 {
        u64::from(self.instance.number()) << 32 | u64::from(desc.index())
    }

    /// Serves a read of remembered bytes; `None`: the map tells.
    #[inline]
    pub(crate) fn read_again(&self, desc: Desc, offset: u64, out: &UserOut<'_>) -> Option<usize> {
        let known = entry(desc, offset).get()?;
        self.serve::<false>(desc, offset, out, known)
    }

    /// The same of bytes that may be away.
    #[cold]
    #[inline(never)]
    fn read_away_again(&self, desc: Desc, offset: u64, out: &UserOut<'_>) -> Option<usize> {
        // Looked at anew: the caller's stays in registers.
        self.serve::<true>(desc, offset, out, entry(desc, offset).get()?)
    }

    /// Serves a read of what an entry of this description remembers.
    #[expect(clippy::inline_always, reason = "what is remembered stays in registers")]
    #[inline(always)]
    fn serve<const MAY_BE_AWAY: bool>(
        &self,
        desc: Desc,
        offset: u64,
        out: &UserOut<'_>,
        known: Memory,
    ) -> Option<usize> {
        let (length, inode) = (out.len(), Inode(known.ino));
        let head = self.entry_head(desc) | if MAY_BE_AWAY { AWAY } else { 0 };
        let holds = known.head == head
            && known.from <= offset
            && offset < known.to
            && length as u64 <= known.to - offset
            && length <= LONGEST;
        if !holds || !self.is_calm() {
            return if MAY_BE_AWAY { None } else { self.read_away_again(desc, offset, out) };
        }
        let place = known.place + (offset - known.from);
        let far = !may_be_served(place, place + length as u64)? && FAR.contains(&length);
        let apart = MAY_BE_AWAY && length <= APART;
        if far && !apart {
            // A sequential read's lines are on their way already.
            self.region.prefetch_all(place, length);
        }
        let is_same =
            known.state == self.state_word(desc).ok()? && is_generation(known.state, desc);
        if !is_same || self.sequence(inode).ok()? != known.sequence {
            return None;
        }
        if apart {
            self.region.read_apart(place, out, length).ok()?;
        } else if far {
            self.region.read_near(place, out, length).ok()?;
        } else {
            self.region.read_to(place, out, length).ok()?;
        }
        (self.sequence(inode).ok()? == known.sequence).then_some(length)
    }

    /// Serves a read of what an entry of this description remembers, of a file that has only been
    /// changed in place since ([`crate::inode::in_place`]): the caller sees to the access time.
    #[inline(never)]
    pub(crate) fn read_changed(
        &self,
        desc: Desc,
        opened: &Opened,
        offset: u64,
        out: &UserOut<'_>,
    ) -> Option<usize> {
        let (known, length) = (entry(desc, offset).get()?, out.len());
        let holds = known.head == self.entry_head(desc)
            && known.state == opened.state
            && known.from <= offset
            && offset < known.to
            && length as u64 <= known.to - offset
            && length <= LONGEST;
        if !holds || !self.is_calm() {
            return None;
        }
        let live = self.live_lines(Inode(known.ino)).ok()?;
        let before = live.sequence().ok()?;
        if before == known.sequence {
            // Its turn to go by the map.
            return None;
        }
        let (place, blocks) =
            (known.place + (offset - known.from), Blocks::of(offset, length as u64));
        let numbers = Numbers { known: known.sequence, before, behind: before };
        let far = FAR.contains(&length);
        if far {
            self.region.prefetch_all(place, length);
        }
        if !live.has_passed(numbers, blocks).ok()? {
            return None;
        }
        if far {
            self.region.read_near(place, out, length).ok()?;
        } else {
            self.region.read_to(place, out, length).ok()?;
        }
        let numbers = Numbers { behind: live.sequence().ok()?, ..numbers };
        live.has_passed(numbers, blocks).ok()?.then_some(length)
    }

    /// Reads a few bytes of a run that was seen, of which pages may be away, and stay there.
    /// `None`: they lie beyond the run, something has moved, or a page is to come.
    #[cold]
    pub(crate) fn read_away(
        &self,
        node: Node,
        offset: u64,
        sink: &UserOut<'_>,
        seen: &Seen,
    ) -> Option<u64> {
        self.region.pager().filter(|pager| pager.loads_apart())?;
        let Seen { sequence, size, logical, run } = *seen;
        let (start, end) = (logical * BLOCK, ((logical + run.blocks) * BLOCK).min(size));
        let length = (sink.len() as u64).min(size.checked_sub(offset)?);
        let inside = run.is_written() && start <= offset && offset + length <= end;
        if !inside || length > APART as u64 {
            return None;
        }
        // A copy between files reads while it works alone.
        let waiting = self.stay_idle();
        let at = run.block * BLOCK + (offset - start);
        let read = self.region.read_apart(at, sink, length as usize);
        drop(waiting);
        read.ok()?;
        // Numbers never repeat, so it is the inode that was seen.
        (self.sequence(Inode(node.ino)).ok()? == sequence).then_some(length)
    }

    /// Nothing is due beside the call itself: no dead process waits for recovery, and this is
    /// attached.
    #[inline]
    fn is_calm(&self) -> bool {
        self.standing.is_calm()
    }

    /// How far a read at `offset` should look: further than it goes, if it follows the last one.
    pub(crate) fn blocks_ahead(&self, desc: Desc, offset: u64) -> u64 {
        let before = entry(desc, offset.saturating_sub(1)).get();
        let follows = before.is_some_and(|known| {
            known.head & !AWAY == self.entry_head(desc) && known.to / BLOCK == offset / BLOCK
        });
        if follows { AHEAD } else { 0 }
    }

    /// Remembers what a read of an open description found.
    pub(crate) fn remember_extent(&self, desc: Desc, opened: &Opened, seen: &Seen) {
        let Seen { sequence, size, mut logical, mut run } = *seen;
        if run.huge {
            // All of it.
            let before = logical % CHUNK_BLOCKS;
            logical -= before;
            run.block -= before;
            run.blocks = CHUNK_BLOCKS;
        }
        let chunk = logical - logical % CHUNK_BLOCKS;
        let end = (logical + run.blocks).min(chunk + CHUNK_BLOCKS);
        let (from, to) = (logical * BLOCK, (end * BLOCK).min(size));
        let away = if self.region.pager().is_some_and(Pager::loads_apart) { AWAY } else { 0 };
        if !run.is_written() || sequence & 1 != 0 || to <= from {
            return;
        }
        entry(desc, from).put(&Memory {
            head: self.entry_head(desc) | away,
            state: opened.state,
            ino: opened.node.ino,
            sequence,
            from,
            to,
            place: run.block * BLOCK,
        });
    }
}
