//! What a process does with a cache: reads that it serves, what it fills, changes that it follows.
//!
//! A read asks the engine for the file's version, the index for the file and for each chunk, copies
//! out of segments, and asks for the version again. If that moved, the read is done again; what it
//! overwrote had not been told to anybody. Whatever is wrong with the cache (it is full, damaged,
//! out of reach), the engine serves.
//!
//! A miss copies once from the medium, straight into the segment: the whole chunk into a new one if
//! all of it is asked for, so that the kernel takes one huge page for it; else the granules that
//! are missing. Several processes may add to one segment at once, so none makes its file shorter.
//!
//! Where a whole chunk is read into a whole page of an explicit buffer ([`buffers`]), or of memory
//! of the program's that is fit for it ([`program`]), its segment is mapped there instead of being
//! copied, if it was filled by one copy and has a page of 2 MiB.
//!
//! Locks: those of [`Segments`].

use crate::buffers;
use crate::descriptors::TemporaryFd;
use crate::directory::{self, Directory, Refusal};
use crate::engine::{Options, Reporter};
use crate::index::{Count, Found, Gone, Index, Known, bytes_of, granules_of};
use crate::inject::{Bug, Point, injected, reach};
use crate::kernel::{self, Reason};
use crate::layout::{ALL, ATTACHED, CHUNK, GRANULE, HUGE, SMALL, WHOLE};
use crate::pages::{self, Page};
use crate::program::{self, Plan};
use crate::readahead::{FillRequest, Readahead};
use crate::segments::{self, Segments};
use os::InternalFd;
use pmem::{Fault, UserOut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vfs::versions::{Version, Versions};
use vfs::{Desc, Node};

/// Bytes that a read is served; the kernel gives no more at once either.
const READ_MAX: u64 = 0x7FFF_F000;
/// How often a read is done again before the engine does it.
const TRIES: u32 = 3;
/// A change of more bytes makes the file forgotten.
const CHANGED_MAX: u64 = 64 * CHUNK;
/// So many evictions are followed by a look at what deaths have left.
const EVICTIONS: u32 = 1024;

/// A cache in use.
pub(crate) struct Cache {
    directory: Directory,
    index: Index,
    segments: Segments,
    budget: u64,
    /// Reads of the program's that may be attached, by their bytes.
    attach: Option<u64>,
    /// Fills ahead of readers, if that is asked for.
    pub(crate) ahead: Option<Readahead>,
    told: Reporter,
    evictions: AtomicU32,
    /// Nothing can be filled any more: the directory is out of reach, say.
    full: AtomicBool,
}

/// A part of a read, within a chunk.
struct Part<'a> {
    desc: Desc,
    version: &'a Version,
    known: &'a Known,
    chunk: u64,
    from: u64,
    to: u64,
    /// What it goes to is congruent to it modulo the length of a chunk, and maybe attached.
    aligned: bool,
}

/// A read that was served.
pub(crate) struct Read {
    pub(crate) bytes: usize,
    /// The thread that fills ahead is to be begun.
    pub(crate) begins: bool,
}

/// What a read did.
#[derive(Default)]
struct Done {
    bytes: u64,
    /// So many of them by mappings.
    attached: u64,
    /// Something had to be filled.
    filled: bool,
}

impl Part<'_> {
    /// Bytes that the chunk has by the file's size.
    fn length(&self) -> u64 {
        CHUNK.min(self.version.size - self.chunk * CHUNK)
    }

    fn granules(&self) -> u32 {
        granules_of(self.from, self.to)
    }

    /// Where the last of these granules ends in the segment.
    fn end_of(&self, granules: u32) -> u64 {
        let end = u64::from(u32::BITS - granules.leading_zeros()) * GRANULE;
        end.min(self.length())
    }
}

/// Why a part is not served.
pub(crate) enum Unserved {
    /// The file has changed meanwhile.
    Moved,
    /// There is no room, or the cache is out of reach.
    Full,
    /// The engine is to say what is wrong: the caller's memory, say.
    Engine,
}

impl From<Fault> for Unserved {
    fn from(_: Fault) -> Self {
        Self::Full
    }
}

pub(crate) type Served<T> = Result<T, Unserved>;

/// Bytes that a read asks for.
#[inline]
pub(crate) fn wanted(out: &[UserOut<'_>]) -> u64 {
    out.iter().map(|buffer| buffer.len() as u64).sum()
}

impl Cache {
    pub(crate) fn open(engine: &dyn Versions, options: &Options) -> Result<Self, Refusal> {
        let Options { budget, ref place, ref whose, attach, ahead, told } = *options;
        let eras = engine.eras().ok_or("the volume is only read, and keeps no versions")?;
        let place = directory::place(whose, place.as_deref());
        let (directory, index) = directory::open(whose, &place, eras, budget)?;
        let attach = attach.filter(|_| program::is_on());
        if attach.is_some() {
            kernel::add_place(directory.fd.as_fd());
        }
        index.set_budget(budget).map_err(|_| "the cache's index has lost its end")?;
        let (evictions, full) = (AtomicU32::new(0), AtomicBool::new(false));
        let segments = Segments::new();
        let ahead = ahead.map(Readahead::new);
        Ok(Self { directory, index, segments, budget, attach, ahead, told, evictions, full })
    }

    /// Whether reads of the program's may be attached.
    pub(crate) fn attaches(&self) -> bool {
        self.attach.is_some()
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// In a forked child.
    pub(crate) fn forget_windows(&self) {
        self.segments.forget();
        if let Some(ahead) = &self.ahead {
            ahead.forked();
        }
    }

    /// Fills what is wanted, as long as that stays so.
    pub(crate) fn fill_ahead(
        &self,
        engine: &dyn Versions,
        (desc, wanted): (Desc, FillRequest),
        goes_on: &dyn Fn() -> bool,
    ) -> Served<()> {
        let Some(ahead) = &self.ahead else { return Ok(()) };
        for chunk in wanted.first..wanted.end {
            let version = engine.version(desc).map_err(|_| Unserved::Engine)?;
            let is_there = chunk * CHUNK < version.size && version.node == wanted.node;
            // No more than a part of what there is room for: what is read is read again, too.
            let is_much = (wanted.end - wanted.first) * CHUNK > self.budget / 4;
            if !is_there || is_much || !goes_on() {
                break;
            }
            let known = self.known(&version)?;
            let key = self.index.hashes.chunk(version.node, chunk);
            let mut part = Part {
                desc,
                version: &version,
                known: &known,
                chunk,
                from: 0,
                to: 0,
                aligned: false,
            };
            part.to = part.length();
            let found = self.index.find(key, known.base)?;
            if found.is_none_or(|found| part.granules() & !found.there != 0) {
                let mut filled = Ok(());
                ahead.fill(key, || filled = self.fill_new(engine, &part, key).map(drop));
                filled?;
            }
        }
        Ok(())
    }

    /// The era ends with this process, in order.
    pub(crate) fn end(&self, engine: &dyn Versions) {
        // What fails makes the next one begin with nothing.
        let _ = self.index.end(|node: Node| engine.number(node).ok());
    }

    // ---- reads ---------------------------------------------------------------------------------

    /// Reads from `offset` on into the buffers. `None`: the engine is to do it.
    pub(crate) fn read(
        &self,
        engine: &dyn Versions,
        desc: Desc,
        offset: u64,
        out: &[UserOut<'_>],
    ) -> Option<Read> {
        if let [buffer] = out {
            self.segments.ahead(desc, offset, buffer.len());
        }
        for _ in 0..TRIES {
            let version = engine.version(desc);
            let version = match &version {
                Ok(version) => version,
                Err(vfs::Errno::BUSY) => {
                    self.index.count(Count::Written, 1);
                    (self.told)("cache:written-mapping", wanted(out));
                    return None;
                }
                Err(_) => return None,
            };
            if !version.reads || offset >= version.size {
                return None;
            }
            match self.read_at(engine, (desc, version), offset, out) {
                Ok(done)
                    if engine.version(desc).as_ref() == Ok(version)
                        || injected(Bug::NoSecondComparison) =>
                {
                    self.index.count(if done.filled { Count::Misses } else { Count::Hits }, 1);
                    self.index.count(Count::BytesCopied, done.bytes - done.attached);
                    if done.attached != 0 {
                        self.index.count(Count::BytesAttached, done.attached);
                    }
                    let end = offset + done.bytes;
                    let begins =
                        self.ahead.as_ref().is_some_and(|ahead| ahead.read(version, offset, end));
                    return Some(Read { bytes: done.bytes as usize, begins });
                }
                Ok(_) | Err(Unserved::Moved) => {}
                Err(Unserved::Full) => {
                    self.index.count(Count::Full, 1);
                    (self.told)(self.why_full(), wanted(out));
                    return None;
                }
                Err(Unserved::Engine) => return None,
            }
        }
        None
    }

    /// The same at one version.
    fn read_at(
        &self,
        engine: &dyn Versions,
        (desc, version): (Desc, &Version),
        offset: u64,
        out: &[UserOut<'_>],
    ) -> Served<Done> {
        let known = self.known(version)?;
        let end = version.size.min(offset.saturating_add(READ_MAX));
        let mut all = Done::default();
        let mut at = offset;
        for buffer in out {
            let mut done = 0;
            let length = end.saturating_sub(at).min(buffer.len() as u64);
            let mut plan = Plan::default();
            let mut aligned = false;
            if buffers::any() || self.attach.is_some() {
                let whole = buffer.slice(0, length as usize);
                aligned = (buffer.start() as u64 ^ at).is_multiple_of(CHUNK);
                if let Some(min) = self.attach {
                    plan = Plan::new(&whole, at, (min, self.told));
                    if plan.stored > 0 {
                        self.index.count(Count::BytesChanged, plan.stored as u64);
                    }
                }
                if !aligned {
                    // All of it, since its pages are not those of the parts.
                    pages::before_copy(&whole);
                }
            }
            while done < buffer.len() as u64 && at < end {
                let chunk = at / CHUNK;
                let to = end.min(at + buffer.len() as u64 - done).min((chunk + 1) * CHUNK);
                let (from, to) = (at - chunk * CHUNK, to - chunk * CHUNK);
                let part = Part { desc, version, known: &known, chunk, from, to, aligned };
                let sink = buffer.slice(done as usize, (to - from) as usize);
                self.serve(engine, &part, &sink, (&mut plan, &mut all))?;
                done += to - from;
                at += to - from;
            }
            plan.done();
        }
        all.bytes = at - offset;
        Ok(all)
    }

    #[cold]
    fn why_full(&self) -> &'static str {
        if self.full.load(Ordering::Relaxed) { "cache:unreachable" } else { "cache:full" }
    }

    /// What is known of a file; begins anew if that is nothing.
    fn known(&self, version: &Version) -> Served<Known> {
        let (node, number) = (version.node, version.number);
        let known = if let Some(known) = self.index.known(node, number)? {
            self.index.settle(known, number)?
        } else {
            let (known, stale) = self.index.begin(node, number)?;
            if stale {
                (self.told)("cache:stale", 0);
            }
            known
        };
        known.ok_or(Unserved::Moved)
    }

    /// Copies a part of a read to the caller, or attaches it.
    fn serve(
        &self,
        engine: &dyn Versions,
        part: &Part<'_>,
        sink: &UserOut<'_>,
        (plan, all): (&mut Plan, &mut Done),
    ) -> Served<()> {
        let key = self.index.hashes.chunk(part.version.node, part.chunk);
        let mut found = self.index.find(key, part.known.base)?;
        let wanted = part.granules();
        if let Some(ahead) = &self.ahead
            && found.as_ref().is_none_or(|found| wanted & !found.there != 0)
            && ahead.wait_for(key)
        {
            found = self.index.find(key, part.known.base)?;
        }
        let page = part.aligned.then(|| buffers::page(sink).or_else(|| plan.page(sink))).flatten();
        // One that was filled piece by piece is made anew, once, to be attached.
        let stays = || page.is_none() || self.full.load(Ordering::Relaxed);
        let serves =
            |found: &Found| wanted & !found.there == 0 && (found.entry.has(WHOLE) || stays());
        all.filled |= !found.as_ref().is_some_and(serves);
        let found = match found {
            Some(found) if serves(&found) => found,
            Some(found) if page.is_none() => self.fill_more(engine, part, key, found)?,
            _ => self.fill_new(engine, part, key)?,
        };
        self.index.use_again(&found)?;
        reach(Point::BeforeCopy);
        let number = found.entry.number();
        if part.aligned {
            if let Some(page) = page
                && self.attach(&found, page)?
            {
                all.attached += CHUNK;
                plan.attached(page.start);
                return Ok(());
            }
            pages::before_copy(sink);
        }
        let _copying = program::Copying::new(part.to - part.from, self.attach.is_some());
        let place = (part.desc, part.chunk * CHUNK + part.from);
        let copied = self.segments.copy(self.directory.fd.as_fd(), number, place, sink);
        match copied {
            // Behind the copy: an evicted segment is emptied.
            Some(()) if self.index.names(found.line, number)? => Ok(()),
            Some(()) => {
                // Else its memory may stay for the window's sake.
                self.segments.drop(number);
                Err(Unserved::Moved)
            }
            None => Err(Unserved::Engine),
        }
    }

    /// Maps a segment over a page of a buffer. `false`: it is to be copied.
    fn attach(&self, found: &Found, page: Page) -> Served<bool> {
        let copied = |reason: Reason| {
            if !page.is_buffer() {
                (self.told)(reason.name(), CHUNK);
            }
            Ok(false)
        };
        if !found.entry.has(WHOLE) || found.entry.has(SMALL) {
            return copied(Reason::SmallPages);
        }
        // Before it is mapped: from here on nobody empties it.
        let is_first = !found.entry.has(ATTACHED);
        if is_first && !self.index.mark(found, ATTACHED)? {
            return Err(Unserved::Moved);
        }
        let file = segments::open(self.directory.fd.as_fd(), found.entry.number(), false);
        let Ok(file) = file else { return copied(Reason::Kernel) };
        if is_first && segments::keep(file.as_fd()).is_err() {
            return copied(Reason::Kernel);
        }
        if !page.attach(file.as_fd()) {
            let many = pages::attached() >= pages::ATTACHED_MAX;
            if many {
                program::too_many();
            }
            return copied(if many { Reason::TooMany } else { Reason::Kernel });
        }
        if found.entry.has(HUGE) {
            return Ok(true);
        }
        // Asked once. If it is gone meanwhile nobody asks again.
        let is_huge = page.is_huge();
        match is_huge {
            Some(true) => self.index.mark(found, HUGE)?,
            Some(false) => self.index.mark(found, SMALL)?,
            None => false,
        };
        if is_huge == Some(true) {
            return Ok(true);
        }
        page.give_up();
        copied(Reason::SmallPages)
    }

    // ---- misses --------------------------------------------------------------------------------

    /// Whether anything can be filled. Who has forbidden himself calls may not make files.
    fn may_fill(&self) -> bool {
        if program::is_stopped() {
            self.full.store(true, Ordering::Relaxed);
        }
        !self.full.load(Ordering::Relaxed) && directory::may_grow(CHUNK)
    }

    /// Makes a segment for a chunk, with what is asked for.
    fn fill_new(&self, engine: &dyn Versions, part: &Part<'_>, key: u64) -> Served<Found> {
        if !self.may_fill() {
            return Err(Unserved::Full);
        }
        let there = part.granules();
        self.make_room(bytes_of(there))?;
        let gone = &mut |gone| self.lose(gone);
        let Some(claim) = self.index.claim(key, part.known.base, gone)? else {
            self.index.give_back(bytes_of(there))?;
            return Err(Unserved::Moved);
        };
        let dir = self.directory.fd.as_fd();
        let whole = there == ALL && part.length() == CHUNK;
        let file = if injected(Bug::WrittenTwice) {
            let old = segments::open(dir, claim.number, true);
            old.or_else(|_| segments::create(dir, claim.number))
        } else {
            segments::create(dir, claim.number)
        };
        let mut early = None;
        if injected(Bug::PublishedEarly) {
            early = self.index.publish(&claim, there, whole)?;
        }
        if injected(Bug::ClaimedLate) {
            self.index.give_up(&claim)?;
        }
        let filled = file.and_then(|file| {
            // Before the bytes, and while nobody else fills it: so the kernel knows how much there
            // will be.
            let end = part.end_of(there);
            if there != ALL {
                segments::keep_small(file.as_fd(), end);
            }
            rustix::fs::ftruncate(&file, end)?;
            self.fill(engine, part, there, &file)
        });
        if injected(Bug::ClaimedLate) {
            self.index.claim_late(&claim)?;
        }
        let published = match filled {
            Ok(true) if early.is_some() => early,
            Ok(true) => self.index.publish(&claim, there, whole)?,
            _ => None,
        };
        if let Some(entry) = published {
            return Ok(Found { line: claim.line, entry, there, dead: 0 });
        }
        self.index.give_up(&claim)?;
        let bytes = bytes_of(there);
        self.index.give_back(bytes)?;
        segments::remove(dir, Gone { number: claim.number, bytes, attached: false });
        self.after_failure(filled)
    }

    /// Fills what is missing of a segment.
    fn fill_more(
        &self,
        engine: &dyn Versions,
        part: &Part<'_>,
        key: u64,
        found: Found,
    ) -> Served<Found> {
        let whole = part.from == 0 && part.to == part.length();
        let more = part.granules() & !found.there;
        let halfway = !whole || found.there.count_ones() * 2 >= more.count_ones();
        // Whatever the index says, one that may be attached is not written to.
        if !halfway || found.entry.has(WHOLE | ATTACHED) || more & found.dead != 0 {
            // A new one, by one copy.
            return self.fill_new(engine, part, key);
        }
        if !self.may_fill() {
            return Err(Unserved::Full);
        }
        self.make_room(bytes_of(more))?;
        let file = segments::open(self.directory.fd.as_fd(), found.entry.number(), true);
        let filled = file.and_then(|file| {
            segments::keep_small(file.as_fd(), part.end_of(more));
            self.fill(engine, part, more, &file)
        });
        let added = matches!(filled, Ok(true)) && self.index.add(&found, key, more)?;
        if added {
            return Ok(Found { there: found.there | more, ..found });
        }
        self.index.give_back(bytes_of(more))?;
        self.after_failure(filled)
    }

    /// Copies these granules of a chunk into its segment. `false`: the file changed meanwhile.
    fn fill(
        &self,
        engine: &dyn Versions,
        part: &Part<'_>,
        granules: u32,
        file: &TemporaryFd,
    ) -> vfs::Result<bool> {
        let is_same = || engine.version(part.desc) == Ok(*part.version);
        let length = part.length();
        if !is_same() {
            return Ok(false);
        }
        let end = part.end_of(granules);
        let short = |file| Ok::<_, vfs::Errno>((rustix::fs::fstat(file)?.st_size as u64) < end);
        let is_short = injected(Bug::CutShort) && short(file)?;
        reach(Point::BeforeFill);
        if is_short {
            rustix::fs::ftruncate(file, end)?;
        }
        let (mut from, mut left) = (0, granules);
        while left != 0 {
            from += left.trailing_zeros();
            left = granules >> from;
            let run = left.trailing_ones();
            let (start, end) = (u64::from(from) * GRANULE, u64::from(from + run) * GRANULE);
            let range = (part.chunk * CHUNK + start, end.min(length) - start);
            let copied = engine.copy_out(part.desc, range, (file.as_fd(), start))?;
            self.index.count(Count::BytesFilled, copied);
            from += run;
            left = if from < u32::BITS { granules >> from } else { 0 };
        }
        if short(file)? {
            // It ends with a hole. Not by cutting: somebody else may have made it longer by now.
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, flags, end - 1, 1)?;
        }
        let same = is_same();
        reach(Point::BehindFill);
        Ok(same)
    }

    /// What a read does behind a fill that was not made use of.
    fn after_failure<T>(&self, filled: vfs::Result<bool>) -> Served<T> {
        use vfs::Errno;
        match filled {
            Ok(_) | Err(Errno::EXIST) => Err(Unserved::Moved),
            // Another process's memory may go; one's own rights do not come back.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSYS) => {
                self.full.store(true, Ordering::Relaxed);
                Err(Unserved::Full)
            }
            Err(Errno::NOSPC | Errno::NOMEM | Errno::DQUOT) => {
                // The memory has less room than the budget.
                for _ in 0..4 {
                    self.index.evict(&mut |gone| self.lose(gone))?;
                }
                Err(Unserved::Full)
            }
            Err(_) => Err(Unserved::Engine),
        }
    }

    /// Takes bytes of the budget, which others make room for.
    fn make_room(&self, bytes: u64) -> Served<()> {
        if bytes > self.budget {
            return Err(Unserved::Full);
        }
        self.index.take(bytes)?;
        while self.index.used()? > self.budget {
            let evicted = self.index.evict(&mut |gone| self.lose(gone))?;
            let count = self.evictions.fetch_add(1, Ordering::Relaxed);
            if !evicted || count % EVICTIONS == EVICTIONS - 1 {
                self.look_after(bytes)?;
            }
            if !evicted && self.index.used()? > self.budget {
                self.index.give_back(bytes)?;
                return Err(Unserved::Full);
            }
        }
        Ok(())
    }

    /// Finds what dead processes have left: bytes that were counted, segments without a name.
    /// `taken`: what this thread has counted, and not filled yet.
    fn look_after(&self, taken: u64) -> Served<()> {
        let before = self.index.used()?;
        self.index.drop_claims(|number| self.directory.is_old(number))?;
        let named = self.index.named()?;
        let mut numbers: Vec<u64> = named.into_iter().map(|segment| segment.number).collect();
        numbers.sort_unstable();
        if let Some(bytes) = self.directory.sweep(&numbers) {
            self.index.correct(before, bytes + taken)?;
        }
        Ok(())
    }

    /// A segment that the index names no more.
    fn lose(&self, gone: Gone) {
        if gone.number == 0 {
            return;
        }
        self.segments.drop(gone.number);
        segments::remove(self.directory.fd.as_fd(), gone);
        // If the index is gone, so is its count.
        let _ = self.index.give_back(gone.bytes);
    }

    // ---- changes -------------------------------------------------------------------------------

    /// This process has written to a file, which had the version `before`: `range` is what it
    /// wrote. Nothing is to be done for what is not known here: the version tells all others.
    pub(crate) fn wrote(
        &self,
        engine: &dyn Versions,
        desc: Desc,
        before: &Version,
        range: (u64, u64),
    ) {
        let node = before.node;
        let Ok(Some(known)) = self.index.known_before(node, before.number) else { return };
        let Ok(after) = engine.version(desc) else { return };
        // Two for each change: one alone is ours.
        let only = after.node == node && after.number == before.number + 2
            || injected(Bug::WordMovedAnyway);
        let (from, to) = (range.0.min(before.size), range.1);
        if !only || to <= range.0 || to - from > CHANGED_MAX {
            return;
        }
        let gone = &mut |gone| self.lose(gone);
        // What cannot be followed is forgotten by the next reader.
        let _ = self.index.changed((node, known), after.number, (from, to), gone);
    }

    /// Its descriptors, beside that of the mapped index: the directory, and the locked index.
    pub(crate) fn descriptors(&self) -> [&InternalFd; 2] {
        [&self.directory.fd, &self.directory.lock]
    }
}

const _: () = assert!(ALL.count_ones() as u64 * GRANULE == CHUNK);
