//! The index that processes share: which chunks of which files lie in which segments.
//!
//! *A file is right at one version.* Its line has a *base*, a number that stands for "since then
//! nothing was forgotten", and one word that says at which version pages of this base are right
//! ([`Hashes::right`]). A read compares it with the engine's version, before and behind. Whoever
//! finds another version forgets the file: a new base, and all entries of the old one are dead.
//!
//! *Who changes a file through the cache* makes the granules dead that it touched, then moves that
//! word from the version before its change to the one behind. If anybody else changed the file
//! meanwhile, the word is not moved, and the next reader forgets the file.
//!
//! *A dead granule* stays dead in its segment, whatever is filled: somebody who began to fill it
//! before the change may store to it still. Who asks for it makes a new segment. So to overwrite
//! what is cached costs two words of the index, and no call of the kernel; the bytes stay in the
//! budget, until the chunk gets its new segment or the old one makes way. A claim is taken away
//! instead. So is the entry of a segment that may be attached: its memory is to go with the last
//! mapping.
//!
//! *Who fills a segment* has claimed the chunk's line with the segment's number before it looks at
//! the version and reads; behind that it turns the claim into the entry, by compare-and-swap. So a
//! writer that takes the claim away meanwhile wins. Both put a full fence between their store and
//! their look: one of the two sees the other. A dead one's claim is replaced by the next one's.
//!
//! Segments are never used again, nor are their numbers: what somebody still copies out of one that
//! was evicted is what it was, or is gone, and then the line says so.
//!
//! *A segment that somebody attaches* is mapped privately for as long as he likes, and must not
//! change. It was filled by one copy before it was published ([`WHOLE`]), and its entry says that
//! it may be attached ([`ATTACHED`]) before anybody maps it. Whoever takes an entry away does so by
//! compare-and-swap, so he knows whether that bit was set: such a segment he unlinks, and does not
//! empty it. Who finds the entry gone when he would set the bit maps nothing.
//!
//! No locks; a process may die between any two steps. Nothing here is persistent.

use crate::inject::{Bug, Point, injected, reach};
use crate::layout::{
    ALL, ATTACHED, CARRIED, CHUNK, CHUNK_BASE, CHUNK_CHECK, CHUNK_DEAD, CHUNK_ENTRY,
    CHUNK_GRANULES, CHUNK_KEY, CHUNK_WAYS, CLAIMED, ENDED, Entry, FILE_BASE, FILE_GENERATION,
    FILE_INO, FILE_KEY, FILE_RIGHT, FILE_WAYS, GRANULE, HEADER_BOOT, HEADER_BUDGET, HEADER_CHUNKS,
    HEADER_COUNTERS, HEADER_FILES, HEADER_FORMAT, HEADER_HAND, HEADER_MAGIC, HEADER_NEXT,
    HEADER_SEEDS, HEADER_STATE, HEADER_USED, Hashes, LINE, LIVE, Layout, MAGIC, PUBLISHED, STRIPE,
    STRIPES, USED, WHOLE,
};
use pmem::{Fault, Region};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use vfs::Node;
use vfs::versions::is_as_found;

/// What is counted, by its place in a line of counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Reads that were served.
    Hits,
    /// Reads for which something was filled first.
    Misses,
    /// Files that were found changed by somebody else.
    Stale,
    /// Bytes that went to readers.
    BytesCopied,
    /// Bytes that were read from the engine.
    BytesFilled,
    /// Segments that made way.
    Evictions,
    /// Reads that the engine served, for want of room.
    Full,
    /// Reads that the engine served: the file may be changed through a mapping, or is changing.
    Written,
    /// Bytes that readers got by a mapping.
    BytesAttached,
    /// Bytes of small pages of these to which programs have stored, as far as it was seen.
    BytesChanged,
}

/// All of them, with their names.
pub const COUNTS: [(Count, &str); 10] = [
    (Count::Hits, "hits"),
    (Count::Misses, "misses"),
    (Count::Stale, "stale"),
    (Count::BytesCopied, "bytes_copied"),
    (Count::BytesFilled, "bytes_filled"),
    (Count::Evictions, "evictions"),
    (Count::Full, "full"),
    (Count::Written, "written_mapping"),
    (Count::BytesAttached, "bytes_attached"),
    (Count::BytesChanged, "bytes_changed"),
];
const _: () = assert!(COUNTS.len() as u64 * 8 <= STRIPE);

/// What the index says about a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Its line, as an offset.
    pub(crate) line: u64,
    pub(crate) entry: Entry,
    /// Granules that are there, and not dead.
    pub(crate) there: u32,
    pub(crate) dead: u32,
}

/// A chunk's line that this thread has claimed for a new segment.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) line: u64,
    pub(crate) number: u64,
    key: u64,
}

/// A file that is right at a version, with its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    line: u64,
    pub(crate) base: u64,
    right: u64,
    /// What its line says is from the era before.
    carried: bool,
}

/// A segment, as the index names it, or names it no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone {
    pub(crate) number: u64,
    /// Its bytes of the budget.
    pub(crate) bytes: u64,
    /// Somebody may have it attached: it must stay what it is.
    pub(crate) attached: bool,
}

pub(crate) struct Index {
    region: Region,
    layout: Layout,
    pub(crate) hashes: Hashes,
}

/// Bytes of the header's words that an empty index has.
const EMPTY: usize = HEADER_NEXT as usize + 8;

type Result<T> = std::result::Result<T, Fault>;

thread_local! {
    /// The counters of this thread.
    static OWN_STRIPE: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Bytes of the budget that granules take.
pub(crate) fn bytes_of(there: u32) -> u64 {
    u64::from(there.count_ones()) * GRANULE
}

impl Index {
    /// The first bytes of an empty one, in a file of the layout's length; the others are 0.
    pub(crate) fn empty(layout: Layout, seeds: [u64; 2], boot: u64) -> [u8; EMPTY] {
        let [first, second] = seeds;
        let mut bytes = [0; EMPTY];
        for (at, word) in [
            (HEADER_FORMAT, crate::layout::FORMAT),
            (HEADER_FILES, layout.files),
            (HEADER_CHUNKS, layout.chunks),
            (HEADER_BOOT, boot),
            (HEADER_STATE, LIVE),
            (HEADER_SEEDS, first),
            (HEADER_SEEDS + 8, second),
            (HEADER_NEXT, 1),
            (HEADER_MAGIC, MAGIC),
        ] {
            let at = at as usize;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// One that somebody made, in this boot. `None`: it is none of ours.
    pub(crate) fn open(region: Region, era: u64, boot: u64) -> Option<Self> {
        let word = |at| region.shared_load(at).ok();
        let ours = word(HEADER_MAGIC)? == MAGIC
            && word(HEADER_FORMAT)? == crate::layout::FORMAT
            && word(HEADER_BOOT)? == boot;
        let layout = Layout::of_words(word(HEADER_FILES)?, word(HEADER_CHUNKS)?)?;
        let seeds = [word(HEADER_SEEDS)?, word(HEADER_SEEDS + 8)?];
        let good = ours && region.len() == layout.length();
        good.then_some(Self { region, layout, hashes: Hashes { seeds, era } })
    }

    /// The region, for its protection key.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.region.shared_load(at)
    }

    fn cas(&self, at: u64, old: u64, new: u64) -> Result<bool> {
        Ok(self.region.shared_cas(at, old, new)?.is_ok())
    }

    /// A number that was never given out.
    fn next(&self) -> Result<u64> {
        // Far below what an entry has room for.
        self.region.shared_add(HEADER_NEXT, 1)
    }

    /// One for a claim of a line.
    fn number_for(&self, line: u64, old: Entry) -> Result<u64> {
        if injected(Bug::NumberUsedAgain) {
            return Ok(line / LINE);
        }
        if injected(Bug::WrittenTwice) && old.number() != 0 {
            return Ok(old.number());
        }
        self.next()
    }

    // ---- eras ----------------------------------------------------------------------------------

    /// Whether the era of this index ended in order; if so, another one begins with it.
    pub(crate) fn take_over(&self) -> Result<bool> {
        self.cas(HEADER_STATE, ENDED, LIVE)
    }

    /// The era ends: what is right now, by `number`, will be known as carried; the rest is
    /// forgotten. Nobody else uses the index.
    pub(crate) fn end(&self, number: impl Fn(Node) -> Option<u64>) -> Result<()> {
        for file in 0..self.layout.files {
            let line = Layout::file_line(file);
            let key = self.load(line + FILE_KEY)?;
            if key == 0 {
                continue;
            }
            let (ino, generation) =
                (self.load(line + FILE_INO)?, self.load(line + FILE_GENERATION)?);
            let node = Node { ino, generation: generation as u32 };
            let (base, right) = (self.load(line + FILE_BASE)?, self.load(line + FILE_RIGHT)?);
            let stands = self.hashes.file(node) == key
                && number(node).is_some_and(|number| self.says(right, number, base));
            let word = if stands { self.hashes.right(CARRIED, base) } else { 0 };
            self.region.shared_store(line + FILE_RIGHT, word)?;
        }
        self.region.shared_store(HEADER_STATE, ENDED)
    }

    /// Whether a file's word says that pages of a base are right at this version.
    fn says(&self, right: u64, number: u64, base: u64) -> bool {
        right == self.hashes.right(number, base) || self.carries(right, number, base)
    }

    /// The same, as the era before left it.
    fn carries(&self, right: u64, number: u64, base: u64) -> bool {
        is_as_found(number) && right == self.hashes.right(CARRIED, base)
    }

    // ---- files ---------------------------------------------------------------------------------

    /// The line of a file; `None`: it has none.
    #[inline]
    fn file_line(&self, key: u64) -> Result<Option<u64>> {
        let bucket = self.layout.file_bucket(key);
        for way in 0..FILE_WAYS {
            let line = bucket + way * LINE;
            if self.load(line + FILE_KEY)? == key {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    /// What is known of a file at this version; `None`: nothing.
    #[expect(clippy::inline_always, reason = "what it gives stays in registers: in each read")]
    #[inline(always)]
    pub(crate) fn known(&self, node: Node, number: u64) -> Result<Option<Known>> {
        let key = self.hashes.file(node);
        let Some(line) = self.file_line(key)? else { return Ok(None) };
        let (base, right) = (self.load(line + FILE_BASE)?, self.load(line + FILE_RIGHT)?);
        let carried = right != self.hashes.right(number, base);
        if carried && !self.carries(right, number, base) {
            return Ok(None);
        }
        // The line may be another file's by now: its words go with the base, not with the key.
        let stands = self.load(line + FILE_KEY)? == key;
        Ok(stands.then_some(Known { line, base, right, carried }))
    }

    /// Forgets what was known of a file, and makes it known at this version, with nothing in it.
    /// `None`: somebody else does so. And whether it was known at another version.
    pub(crate) fn begin(&self, node: Node, number: u64) -> Result<(Option<Known>, bool)> {
        let key = self.hashes.file(node);
        let line = match self.file_line(key)? {
            Some(line) => line,
            None => match self.new_file_line(key)? {
                Some(line) => line,
                None => return Ok((None, false)),
            },
        };
        let before = self.load(line + FILE_RIGHT)?;
        let stale = before & 1 != 0;
        if stale {
            self.count(Count::Stale, 1);
        }
        let base = self.next()?;
        self.region.shared_store(line + FILE_INO, node.ino)?;
        self.region.shared_store(line + FILE_GENERATION, u64::from(node.generation))?;
        self.region.shared_store(line + FILE_BASE, base)?;
        // If somebody else does the same, base and word may be of two: then neither is right.
        let right = self.hashes.right(number, base);
        let made = self.cas(line + FILE_RIGHT, before, right)?;
        Ok((made.then_some(Known { line, base, right, carried: false }), stale))
    }

    /// A line for a file that has none, maybe another file's.
    fn new_file_line(&self, key: u64) -> Result<Option<u64>> {
        let bucket = self.layout.file_bucket(key);
        for way in 0..FILE_WAYS {
            let line = bucket + way * LINE;
            match self.region.shared_cas(line + FILE_KEY, 0, key)? {
                Ok(_) => return Ok(Some(line)),
                Err(found) if found == key => return Ok(Some(line)),
                Err(_) => {}
            }
        }
        // Any will do; which one depends on the key, and on how far numbers are.
        let way = (key ^ self.load(HEADER_NEXT)?) % FILE_WAYS;
        let line = bucket + way * LINE;
        let (old, right) = (self.load(line + FILE_KEY)?, self.load(line + FILE_RIGHT)?);
        self.cas(line + FILE_RIGHT, right, 0)?;
        Ok(self.cas(line + FILE_KEY, old, key)?.then_some(line))
    }

    /// Makes a carried file one of this era, so that it goes on from there.
    #[inline]
    pub(crate) fn settle(&self, known: Known, number: u64) -> Result<Option<Known>> {
        if !known.carried {
            return Ok(Some(known));
        }
        let right = self.hashes.right(number, known.base);
        let settled = self.cas(known.line + FILE_RIGHT, known.right, right)?;
        Ok(settled.then_some(Known { right, carried: false, ..known }))
    }

    /// What is known of a file at the version before a change, which has been made. `None`: the
    /// index needs not hear of it.
    #[inline]
    pub(crate) fn known_before(&self, node: Node, number: u64) -> Result<Option<Known>> {
        // Behind the change, before any look: who fills does it the other way round.
        fence(Ordering::SeqCst);
        self.known(node, number)
    }

    /// A change of this process moved a file from the version at which it was known
    /// ([`Self::known_before`]) to `after`, and touched these bytes only (from, to): the rest of it
    /// stays right. Gives the segments that are gone to `gone`.
    pub(crate) fn changed(
        &self,
        (node, known): (Node, Known),
        after: u64,
        (from, to): (u64, u64),
        gone: &mut dyn FnMut(Gone),
    ) -> Result<()> {
        let right = self.hashes.right(after, known.base);
        if injected(Bug::DroppedAfterWord) {
            self.cas(known.line + FILE_RIGHT, known.right, right)?;
            reach(Point::WithinChange);
        }
        for chunk in from / CHUNK..=(to - 1) / CHUNK {
            let start = chunk * CHUNK;
            let granules = granules_of(from.max(start) - start, to.min(start + CHUNK) - start);
            self.kill(self.hashes.chunk(node, chunk), granules, gone)?;
        }
        reach(Point::WithinChange);
        self.cas(known.line + FILE_RIGHT, known.right, right)?;
        Ok(())
    }

    // ---- chunks --------------------------------------------------------------------------------

    /// The entry of a chunk, of a base.
    pub(crate) fn find(&self, key: u64, base: u64) -> Result<Option<Found>> {
        let bucket = self.layout.chunk_bucket(key);
        for way in 0..CHUNK_WAYS {
            let line = bucket + way * LINE;
            let span = self.region.span::<8>(line)?;
            if span.load((CHUNK_KEY / 8) as usize)? != key {
                continue;
            }
            let [entry, _, found, granules] = span.four(0)?;
            let entry = Entry(entry);
            if found != base || !entry.is_published() {
                continue;
            }
            let number = entry.number();
            let check = span.load((CHUNK_CHECK / 8) as usize)?;
            let dead = span.load((CHUNK_DEAD / 8) as usize)?;
            if check == self.hashes.entry(key, base, number) || injected(Bug::CheckIgnored) {
                let dead = self.hashes.dead_of(key, number, dead);
                let there = self.hashes.there(key, number, granules) & !dead;
                return Ok(Some(Found { line, entry, there, dead }));
            }
        }
        Ok(None)
    }

    /// Whether the line still names the segment.
    #[inline]
    pub(crate) fn names(&self, line: u64, number: u64) -> Result<bool> {
        let entry = Entry(self.load(line + CHUNK_ENTRY)?);
        Ok(entry.is_published() && entry.number() == number)
    }

    /// Says that the segment was used.
    #[inline]
    pub(crate) fn use_again(&self, found: &Found) -> Result<()> {
        if found.entry.0 & USED == 0 {
            // If it fails, somebody else did, or it is gone.
            self.cas(found.line + CHUNK_ENTRY, found.entry.0, found.entry.0 | USED)?;
        }
        Ok(())
    }

    /// Sets bits of a segment's entry. `false`: it is gone.
    pub(crate) fn mark(&self, found: &Found, bits: u64) -> Result<bool> {
        loop {
            let entry = Entry(self.load(found.line + CHUNK_ENTRY)?);
            if !entry.is_published() || entry.number() != found.entry.number() {
                return Ok(false);
            }
            let marked = entry.0 | bits;
            if marked == entry.0 || self.cas(found.line + CHUNK_ENTRY, entry.0, marked)? {
                return Ok(true);
            }
        }
    }

    /// Claims a line for a chunk. What stood there is gone, if anything did.
    pub(crate) fn claim(
        &self,
        key: u64,
        base: u64,
        gone: &mut dyn FnMut(Gone),
    ) -> Result<Option<Claim>> {
        let bucket = self.layout.chunk_bucket(key);
        let mut best: Option<(u8, u64, u64)> = None;
        for way in 0..CHUNK_WAYS {
            let line = bucket + way * LINE;
            let (entry, found) = (self.load(line + CHUNK_ENTRY)?, self.load(line + CHUNK_KEY)?);
            let rank = match Entry(entry) {
                // The same chunk's, of another base, or of one that died: only one may stand.
                _ if entry != 0 && found == key => 0,
                _ if entry == 0 => 1,
                entry if entry.is_claimed() => 4,
                entry if entry.0 & USED == 0 => 2,
                _ => 3,
            };
            // Among equals those that are passed over are spread by the key.
            let rank = rank * 2 + u8::from(way != key % CHUNK_WAYS);
            if best.is_none_or(|(other, ..)| rank < other) {
                best = Some((rank, line, entry));
            }
        }
        let Some((_, line, old)) = best else { return Ok(None) };
        let number = self.number_for(line, Entry(old))?;
        let new = Entry::new(number, CLAIMED);
        let loses = self.losses(line, old)?;
        if !self.cas(line + CHUNK_ENTRY, old, new.0)? {
            return Ok(None);
        }
        if !injected(Bug::WrittenTwice) {
            gone(loses);
        }
        self.region.shared_store(line + CHUNK_GRANULES, 0)?;
        self.region.shared_store(line + CHUNK_KEY, key)?;
        self.region.shared_store(line + CHUNK_BASE, base)?;
        self.region.shared_store(line + CHUNK_CHECK, self.hashes.entry(key, base, number))?;
        self.region.shared_store(line + CHUNK_DEAD, self.hashes.dead(key, number, 0))?;
        // Before the look at the version: who changes the file does it the other way round.
        fence(Ordering::SeqCst);
        Ok(Some(Claim { line, number, key }))
    }

    /// What goes with the entry of a line.
    fn losses(&self, line: u64, entry: u64) -> Result<Gone> {
        let (entry, key) = (Entry(entry), self.load(line + CHUNK_KEY)?);
        let word = self.load(line + CHUNK_GRANULES)?;
        let (number, attached) = (entry.number(), entry.has(ATTACHED));
        Ok(Gone { number, bytes: bytes_of(self.hashes.there(key, number, word)), attached })
    }

    /// Turns a claim into the entry: these granules are there; all of a chunk of full length
    /// (`whole`). Gives the entry. `None`: somebody took the claim away.
    pub(crate) fn publish(&self, claim: &Claim, there: u32, whole: bool) -> Result<Option<Entry>> {
        let word = self.hashes.granules(claim.key, claim.number, there);
        let old = self.load(claim.line + CHUNK_GRANULES)?;
        // Not over what another one's claim of this line has put there.
        if old != 0 || !self.cas(claim.line + CHUNK_GRANULES, 0, word)? {
            return Ok(None);
        }
        let claimed = Entry::new(claim.number, CLAIMED);
        let whole = if whole { WHOLE } else { 0 };
        let entry = Entry::new(claim.number, PUBLISHED | USED | whole);
        Ok(self.cas(claim.line + CHUNK_ENTRY, claimed.0, entry.0)?.then_some(entry))
    }

    /// Takes again what was given up: a fault.
    pub(crate) fn claim_late(&self, claim: &Claim) -> Result<()> {
        self.cas(claim.line + CHUNK_ENTRY, 0, Entry::new(claim.number, CLAIMED).0)?;
        Ok(())
    }

    /// Gives a claim back.
    pub(crate) fn give_up(&self, claim: &Claim) -> Result<()> {
        self.cas(claim.line + CHUNK_ENTRY, Entry::new(claim.number, CLAIMED).0, 0)?;
        Ok(())
    }

    /// More granules of a segment are there. `false`: it is gone.
    pub(crate) fn add(&self, found: &Found, key: u64, more: u32) -> Result<bool> {
        let number = found.entry.number();
        loop {
            let word = self.load(found.line + CHUNK_GRANULES)?;
            let there = self.hashes.there(key, number, word);
            if there == 0 || !self.names(found.line, number)? {
                return Ok(false);
            }
            let new = self.hashes.granules(key, number, there | more);
            if self.cas(found.line + CHUNK_GRANULES, word, new)? {
                return Ok(true);
            }
        }
    }

    /// Makes granules of a chunk dead.
    fn kill(&self, key: u64, granules: u32, gone: &mut dyn FnMut(Gone)) -> Result<()> {
        let bucket = self.layout.chunk_bucket(key);
        for way in 0..CHUNK_WAYS {
            let line = bucket + way * LINE;
            if self.load(line + CHUNK_KEY)? == key {
                self.kill_in(line, (key, granules), gone)?;
            }
        }
        Ok(())
    }

    /// The same, in a line.
    fn kill_in(
        &self,
        line: u64,
        (key, granules): (u64, u32),
        gone: &mut dyn FnMut(Gone),
    ) -> Result<()> {
        loop {
            let entry = Entry(self.load(line + CHUNK_ENTRY)?);
            if entry.0 == 0 {
                return Ok(());
            }
            if !entry.is_published() || entry.has(ATTACHED) {
                return self.clear(line, gone);
            }
            // A process that claims the line from here on looks at the version behind that, and
            // does not fill what was there before the change. So whose word is found, or replaced,
            // does not matter.
            let word = self.load(line + CHUNK_DEAD)?;
            let before = self.hashes.dead_of(key, entry.number(), word);
            // Also those that are not there: they may just be filled.
            let mut dead = before | granules;
            if injected(Bug::AbsentLeft) {
                let there = self.load(line + CHUNK_GRANULES)?;
                dead &= before | self.hashes.there(key, entry.number(), there);
            }
            if dead == before {
                return Ok(());
            }
            let new = self.hashes.dead(key, entry.number(), dead);
            if self.cas(line + CHUNK_DEAD, word, new)? {
                if dead == ALL {
                    // It is to make way first. If it fails, somebody else changed it.
                    self.cas(line + CHUNK_ENTRY, entry.0, entry.0 & !USED)?;
                }
                return Ok(());
            }
        }
    }

    /// Takes away what stands in a line, whatever it is by then.
    fn clear(&self, line: u64, gone: &mut dyn FnMut(Gone)) -> Result<()> {
        loop {
            let entry = self.load(line + CHUNK_ENTRY)?;
            if entry == 0 {
                return Ok(());
            }
            let loses = self.losses(line, entry)?;
            if self.cas(line + CHUNK_ENTRY, entry, 0)? {
                gone(loses);
                return Ok(());
            }
        }
    }

    /// Takes away what is there of a file: the entries of its base.
    pub(crate) fn clear_file(&self, node: Node, gone: &mut dyn FnMut(Gone)) -> Result<()> {
        let Some(file) = self.file_line(self.hashes.file(node))? else { return Ok(()) };
        let base = self.load(file + FILE_BASE)?;
        for chunk in 0..self.layout.chunks {
            let line = self.layout.chunk_line(chunk);
            if self.load(line + CHUNK_BASE)? == base {
                self.clear(line, gone)?;
            }
        }
        Ok(())
    }

    /// Takes all away (`solera cache drop`).
    pub(crate) fn clear_all(&self, gone: &mut dyn FnMut(Gone)) -> Result<()> {
        (0..self.layout.chunks)
            .try_for_each(|chunk| self.clear(self.layout.chunk_line(chunk), gone))
    }

    // ---- budget --------------------------------------------------------------------------------

    /// Bytes of the segments that have a name.
    pub(crate) fn used(&self) -> Result<u64> {
        self.load(HEADER_USED)
    }

    /// Counts bytes of a segment that is to be filled.
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        self.region.shared_add(HEADER_USED, bytes).map(drop)
    }

    /// Counts bytes of a segment that is gone.
    pub(crate) fn give_back(&self, bytes: u64) -> Result<()> {
        loop {
            let used = self.load(HEADER_USED)?;
            if self.cas(HEADER_USED, used, used.saturating_sub(bytes))? {
                return Ok(());
            }
        }
    }

    /// Evicts one segment: first in, first out, with a second chance. `false`: there is none.
    pub(crate) fn evict(&self, gone: &mut dyn FnMut(Gone)) -> Result<bool> {
        for _ in 0..self.layout.chunks * 2 {
            let hand = self.region.shared_add(HEADER_HAND, 1)? % self.layout.chunks;
            let line = self.layout.chunk_line(hand);
            let entry = self.load(line + CHUNK_ENTRY)?;
            if !Entry(entry).is_published() {
                continue;
            }
            if entry & USED != 0 {
                self.cas(line + CHUNK_ENTRY, entry, entry & !USED)?;
                continue;
            }
            let loses = self.losses(line, entry)?;
            if self.cas(line + CHUNK_ENTRY, entry, 0)? {
                self.count(Count::Evictions, 1);
                gone(loses);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The segments that are named, with their bytes.
    pub(crate) fn named(&self) -> Result<Vec<Gone>> {
        let mut named = Vec::new();
        for chunk in 0..self.layout.chunks {
            let line = self.layout.chunk_line(chunk);
            let entry = self.load(line + CHUNK_ENTRY)?;
            if entry != 0 {
                named.push(self.losses(line, entry)?);
            }
        }
        Ok(named)
    }

    /// Takes claims away whose segments are so old that their processes must have died.
    pub(crate) fn drop_claims(&self, is_dead: impl Fn(u64) -> bool) -> Result<()> {
        for chunk in 0..self.layout.chunks {
            let line = self.layout.chunk_line(chunk);
            let entry = self.load(line + CHUNK_ENTRY)?;
            if Entry(entry).is_claimed() && is_dead(Entry(entry).number()) {
                self.cas(line + CHUNK_ENTRY, entry, 0)?;
            }
        }
        Ok(())
    }

    /// Sets right what deaths have left in the count of bytes, if nobody moved it meanwhile.
    pub(crate) fn correct(&self, before: u64, used: u64) -> Result<()> {
        self.cas(HEADER_USED, before, used).map(drop)
    }

    // ---- counters ------------------------------------------------------------------------------

    /// Counts; what cannot be counted is not.
    #[inline]
    pub(crate) fn count(&self, what: Count, by: u64) {
        let at = HEADER_COUNTERS + stripe() * STRIPE + what as u64 * 8;
        let _ = self.region.shared_add(at, by);
    }

    /// What was counted.
    pub(crate) fn counted(&self, what: Count) -> Result<u64> {
        (0..STRIPES).try_fold(0, |sum: u64, stripe| {
            let at = HEADER_COUNTERS + stripe * STRIPE + what as u64 * 8;
            Ok(sum.wrapping_add(self.load(at)?))
        })
    }

    /// Says with which budget this process works.
    pub(crate) fn set_budget(&self, budget: u64) -> Result<()> {
        self.region.shared_store(HEADER_BUDGET, budget)
    }

    /// What the last one said.
    pub(crate) fn budget(&self) -> Result<u64> {
        self.load(HEADER_BUDGET)
    }
}

/// The counters that this thread uses.
fn stripe() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    OWN_STRIPE.with(|stripe| {
        if stripe.get() == u64::MAX {
            // Not the same for the first threads of all processes.
            let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
            stripe.set((process + THREADS.fetch_add(1, Ordering::Relaxed)) % STRIPES);
        }
        stripe.get()
    })
}

/// The granules that a range of a chunk lies in.
pub(crate) fn granules_of(from: u64, to: u64) -> u32 {
    let (first, last) = (from / GRANULE, (to - 1) / GRANULE);
    let count = (last - first + 1) as u32;
    let ones = if count >= u32::BITS { ALL } else { (1 << count) - 1 };
    ones << first
}
