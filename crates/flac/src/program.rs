//! Attaching for programs that know nothing of it (`--attach`): which of their memory a segment may
//! be mapped over, and where that pays.
//!
//! A read may map whole pages that it overwrites, if their memory is as `malloc` or a plain `mmap`
//! gives it: private, anonymous (or attached before), and not marked in any way that a mapping of a
//! file would lose. What is mapped there is asked at each read (`PROCMAP_QUERY`); the marks, which
//! that does not tell, are read from `/proc/self/smaps` once for an address, and again behind every
//! call that may change them ([`marks_changed`]). Reading them costs, so it is done only as often
//! as what is read pays for ([`Debt`]); memory that is new meanwhile is plain, since the calls that
//! mark it would have been seen (those of the C library are, not a program's own instructions).
//!
//! No rule can see who uses a page by its physical address: while something of the process is
//! pinned, or it has a device open, nothing is attached.
//!
//! It pays where the program does not store to what it has read: the kernel copies a page that is
//! stored to, a small page at each fault (2 MiB: 1.3 ms, and 0.1 copied at once). So before a read
//! the kernel is asked what became of the last one: of the same pages, else of the last read of the
//! calling thread of the same length, whose buffer may be gone; then its page faults tell. After a
//! loss 64 reads are copied, after the next 256, and so on.
//!
//! No locks, as in `pages.rs`.

use crate::engine::Reporter;
use crate::kernel::{self, Reason};
use crate::pages::{self, PAGE, Page};
use pmem::UserOut;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Tells which descriptors are not the program's: what they are does not matter.
pub type IsOwn = fn(i32) -> bool;

static IS_OWN: OnceLock<IsOwn> = OnceLock::new();

/// From here on the program's buffers may be attached, by caches that are told to
/// (`Options::attach`). Refused where the kernel cannot say what is mapped where (before Linux
/// 6.11), or leaves a hole where it cannot map (before 6.12).
pub fn begin(is_own: IsOwn) -> Result<(), Errno> {
    if !kernel::is_new_enough() {
        return Err(Errno::NOSYS);
    }
    kernel::begin()?;
    // Once a process.
    let _ = IS_OWN.set(is_own);
    Ok(())
}

/// Whether the kernel can do what [`begin`] asks for, by its number.
#[must_use]
pub fn is_possible() -> bool {
    kernel::is_new_enough()
}

/// Whether [`begin`] has begun.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_OWN.get().is_some()
}

// ---- the program's own calls --------------------------------------------------------------------

/// A call of the program's may have changed how memory is marked: locked, not inherited, and so on.
pub fn marks_changed() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// All memory that is mapped from here on is locked, or no more.
pub fn locks_all(locks: bool) {
    LOCKS_ALL.store(locks, Ordering::Release);
    marks_changed();
}

/// The program makes guard pages.
pub fn guards() {
    GUARDS.store(true, Ordering::Release);
}

static GUARDS: AtomicBool = AtomicBool::new(false);

/// The program gives up what a range holds (`madvise` with `DONTNEED` or `FREE`): zeros, not what
/// the segments hold.
pub fn emptied(start: usize, length: usize) {
    if is_on() {
        pages::emptied(start, length);
    }
}

/// The program does with a range what cannot be done with a mapping of a file: it gets memory of
/// its own, with what it holds. `false`: the kernel refuses it some.
pub fn kept(start: usize, length: usize) -> bool {
    !is_on() || pages::kept(start, length)
}

/// Something else than this cache is to overwrite all of a range. (What is attached there need not
/// be copied first.)
pub fn overwritten(start: usize, length: usize) {
    pages::overwritten(start, length);
}

/// From here on nothing is attached: the program may forbid itself the calls that it takes.
pub fn stop() {
    STOPPED.store(true, Ordering::Release);
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether the kernel is not to be asked any more.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// Whether a segment is mapped somewhere in a range.
#[must_use]
pub fn holds(start: usize, length: usize) -> bool {
    is_on() && pages::holds(start, length)
}

/// Whether any of the program's pages was ever attached.
#[inline]
#[must_use]
pub fn was_attached() -> bool {
    pages::was_attached()
}

/// The mappings of a range of memory, in order, and how they are protected, if it is private, or
/// attached, and protected alike throughout.
#[must_use]
pub fn pieces(start: usize, length: usize) -> Option<(Vec<(usize, usize)>, ProtFlags)> {
    let end = start.checked_add(length)?;
    if !kernel::answers() {
        return Some((pages::noted(start, end), ProtFlags::READ | ProtFlags::WRITE));
    }
    let (mut pieces, mut at) = (Vec::new(), start);
    let mut prot = None;
    while at < end {
        let there = kernel::mapping_from(at)?;
        let is_segment = pages::is_segment(&there, pages::at(at));
        let is_private = there.is_anonymous() && !there.is_shared() || is_segment;
        if there.start > at || !is_private || *prot.get_or_insert(there.prot()) != there.prot() {
            return None;
        }
        pieces.push((at, there.end.min(end)));
        at = there.end;
    }
    Some((pieces, prot?))
}

/// The program has moved such a piece.
pub fn moved(from: usize, to: usize, length: usize) {
    pages::moved(from, to, length);
}

/// In a forked child.
pub(crate) fn forked() {
    kernel::forked();
}

// ---- which memory -------------------------------------------------------------------------------

/// Goes up when marks may have changed: what was checked before does not count.
static GENERATION: AtomicU64 = AtomicU64::new(1);
static LOCKS_ALL: AtomicBool = AtomicBool::new(false);
/// The generation in which all memory was looked at, and what spoke against any.
static CHECKED: AtomicU64 = AtomicU64::new(0);
static ALL: AtomicU64 = AtomicU64::new(PLAIN);

/// What a page's word `checked` says: the generation, and in its lowest byte that it is plain, or
/// else a [`Reason`].
const CODE: u32 = 8;
const PLAIN: u64 = 1;

/// Pages of one mapping that are noted at once, at most: 16 GiB.
const NOTED_MAX: usize = 1 << 13;

/// What was checked of a page; `None`: nothing that counts.
fn checked(page: Page) -> Option<Result<(), Reason>> {
    let word = page.checked().load(Ordering::Acquire);
    if word >> CODE != GENERATION.load(Ordering::Acquire) {
        return None;
    }
    match word & ((1 << CODE) - 1) {
        PLAIN => Some(Ok(())),
        code => Reason::of_code(code).map(Err),
    }
}

/// Whether a range is known to have no marks.
#[must_use]
pub fn is_unmarked(start: usize, length: usize) -> bool {
    let is_seen = || CHECKED.load(Ordering::Acquire) == GENERATION.load(Ordering::Acquire);
    if !is_seen() && check_all(start).is_err() {
        return false;
    }
    // Memory that is new since is as all is.
    let all = ALL.load(Ordering::Acquire) == PLAIN && is_seen();
    let mut pages = (start / PAGE * PAGE..start.saturating_add(length)).step_by(PAGE);
    pages.all(|at| pages::at(at).and_then(checked).map_or(all, |known| known.is_ok()))
}

/// Reads are credited with their bytes, a look at all marks is charged by its time: twice as many
/// bytes as are to be attached to win it (2 MiB: 43 us, so 48 bytes a ns). A process's first looks
/// are never charged more than it has: it learns of its marks also where a look takes long.
struct Debt {
    bytes: AtomicI64,
    looks: AtomicI64,
}

static DEBT: Debt = Debt { bytes: AtomicI64::new(-Debt::CREDIT), looks: AtomicI64::new(0) };

impl Debt {
    /// What a process has at its start, and at most.
    const CREDIT: i64 = 1 << 30;
    const BYTES_PER_NS: i64 = 2 * 48;
    const FIRST: i64 = 8;

    fn pay(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        if before < -Self::CREDIT {
            self.bytes.store(-Self::CREDIT, Ordering::Relaxed);
        }
    }

    fn is_paid(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) <= 0
    }

    fn charge(&self, since: i64) {
        let is_first = self.looks.fetch_add(1, Ordering::Relaxed) < Self::FIRST;
        let most = if is_first { Self::CREDIT / Self::FIRST } else { i64::MAX };
        let bytes = (now() - since).saturating_mul(Self::BYTES_PER_NS);
        self.bytes.fetch_add(bytes.min(most), Ordering::Relaxed);
    }
}

/// The processor time of the calling thread, ns.
fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Reads the marks of all memory, and notes them at its pages.
fn check_all(wanted: usize) -> Result<(), Reason> {
    let generation = GENERATION.load(Ordering::Acquire);
    if !DEBT.is_paid() {
        let is_seen = CHECKED.load(Ordering::Acquire) == generation;
        return if is_seen { Ok(()) } else { Err(Reason::Unchecked) };
    }
    let since = now();
    let failed = |_| Reason::Kernel;
    let is_own = IS_OWN.get().ok_or(Reason::Kernel)?;
    let all = kernel::process_wide(*is_own).map_err(failed)?;
    let all = all.or_else(|| LOCKS_ALL.load(Ordering::Acquire).then_some(Reason::Locked));
    let mut last_end = 0;
    kernel::each_mapping(&mut |start, end, reason| {
        if end - start < PAGE && pages::at(start).is_none() && pages::at(end).is_none() {
            // Nobody reads pages into it.
            return;
        }
        let reason =
            all.or(reason).or_else(|| kernel::has_policy(start).then_some(Reason::MemoryPolicy));
        let code = reason.map_or(PLAIN, |reason| reason as u64);
        let (mut first, last) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        if (first..last).contains(&wanted) {
            first = first.max(wanted.saturating_sub(NOTED_MAX / 2 * PAGE));
        }
        for at in (first..last).step_by(PAGE).take(NOTED_MAX) {
            let Some(page) = pages::make(at) else { return };
            // Of several mappings in a page the one that is marked counts.
            let is_told = at < last_end && matches!(checked(page), Some(Err(_)));
            if !is_told {
                page.checked().store(generation << CODE | code, Ordering::Release);
            }
        }
        last_end = last;
    })
    .map_err(failed)?;
    CHECKED.store(generation, Ordering::Release);
    ALL.store(all.map_or(PLAIN, |reason| reason as u64), Ordering::Release);
    DEBT.charge(since);
    Ok(())
}

/// Which pages of a range a segment may be mapped over: those before the end that it gives; and
/// what speaks against the next one.
fn check((first, last): (usize, usize)) -> (usize, Option<Reason>) {
    let mut at = first;
    let here = &raw const at as usize;
    while at < last {
        let refused = |reason| (at / PAGE * PAGE, Some(reason));
        let Some(there) = kernel::mapping_from(at).filter(|there| there.start <= at) else {
            return refused(Reason::Kernel);
        };
        if there.is_shared() {
            return refused(Reason::SharedMapping);
        }
        if there.page_size != pages::SMALL_PAGE as u64 {
            return refused(Reason::HugeMapping);
        }
        if (there.start..there.end).contains(&here) {
            return refused(Reason::Stack);
        }
        if !there.is_plain() {
            // If it cannot be written the read fails.
            return refused(Reason::Executable);
        }
        if !there.is_anonymous() && !pages::is_segment(&there, pages::at(at)) {
            return refused(Reason::FileMapping);
        }
        at = there.end;
    }
    let (mut end, mut guard) = (last, None);
    if GUARDS.load(Ordering::Acquire) {
        match kernel::guard(first, last) {
            Ok(None) => {}
            Ok(Some(at)) => (end, guard) = (at / PAGE * PAGE, Some(Reason::Executable)),
            Err(_) => return (first, Some(Reason::Kernel)),
        }
    }
    for at in (first..end).step_by(PAGE) {
        let known = || pages::at(at).and_then(checked);
        let known = known().unwrap_or_else(|| {
            check_all(at)?;
            let all = || Reason::of_code(ALL.load(Ordering::Acquire)).map_or(Ok(()), Err);
            known().unwrap_or_else(all)
        });
        if let Err(reason) = known {
            return (at, Some(reason));
        }
    }
    (end, guard)
}

// ---- where it pays ------------------------------------------------------------------------------

/// After a loss so many reads are copied, after the next one four times as many.
const COPIED: u32 = 64;
const LEVEL_MAX: u32 = 5;

/// What a page, or a length, has lost: reads that are to be copied, and how often it lost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Losses {
    left: u32,
    level: u32,
}

impl Losses {
    const LEVEL: u32 = 20;

    /// In the bits that a page has for it.
    fn word(self) -> u32 {
        self.level << Self::LEVEL | self.left
    }

    fn of_word(word: u32) -> Self {
        Self { left: word & ((1 << Self::LEVEL) - 1), level: word >> Self::LEVEL }
    }

    fn again(self) -> Self {
        Self { left: COPIED << (2 * self.level), level: (self.level + 1).min(LEVEL_MAX) }
    }
}
const _: () = assert!(COPIED << (2 * LEVEL_MAX) < 1 << Losses::LEVEL && LEVEL_MAX < 16);

/// The last read of a length that a thread had attached.
#[derive(Clone, Copy)]
struct Past {
    length: usize,
    /// Where it was attached; nowhere: an empty range.
    range: (usize, usize),
    /// As [`others_faults`] by then; `None`: not asked, since it was the same range again.
    faults: Option<u64>,
    losses: Losses,
}

const NONE: Past =
    Past { length: 0, range: (0, 0), faults: None, losses: Losses { left: 0, level: 0 } };
/// Lengths that a thread remembers.
const LENGTHS: usize = 4;

thread_local! {
    static PAST: [Cell<Past>; LENGTHS] = const { [const { Cell::new(NONE) }; LENGTHS] };
}

/// Does this with what the thread remembers of a length; a new one takes the place of the one that
/// was not used for the longest time.
fn with_past<T>(length: usize, act: impl FnOnce(&mut Past) -> T) -> T {
    PAST.with(|all| {
        let at = all.iter().position(|past| past.get().length == length).unwrap_or(LENGTHS - 1);
        let mut past = all[at].get();
        if past.length != length {
            past = Past { length, ..NONE };
        }
        // To the front.
        for at in (0..at).rev() {
            all[at + 1].set(all[at].get());
        }
        let done = act(&mut past);
        all[0].set(past);
        done
    })
}

/// Page faults of the process in its reads.
static READS_FAULTS: AtomicU64 = AtomicU64::new(0);

/// Page faults of the process, but for those of its reads.
fn others_faults() -> u64 {
    kernel::faults(libc::RUSAGE_SELF).saturating_sub(READS_FAULTS.load(Ordering::Relaxed))
}

/// The faults of shorter copies are not counted: to ask costs 0.4 us.
const COUNTED: u64 = 512 << 10;

/// Counts the faults of a copy to the program, until it ends: into new memory it makes as many as
/// stores of the program's.
pub(crate) struct Copying(Option<u64>);

impl Copying {
    #[inline]
    pub(crate) fn new(bytes: u64, attaches: bool) -> Self {
        let counts = attaches && bytes >= COUNTED && !is_stopped();
        Self(counts.then(|| kernel::faults(libc::RUSAGE_THREAD)))
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let made = kernel::faults(libc::RUSAGE_THREAD).saturating_sub(before);
            READS_FAULTS.fetch_add(made, Ordering::Relaxed);
        }
    }
}

/// Bytes of what was attached in a range to whose pages the program has stored; `None`: it is
/// attached no more.
fn changed((start, end): (usize, usize)) -> Option<usize> {
    let mut seen = None;
    let mut at = start;
    while at < end {
        if !pages::at(at).is_some_and(|page| page.is_whole() && page.is_mapped()) {
            at += PAGE;
            continue;
        }
        let from = at;
        // The scan costs less than to ask about each.
        while at < end && pages::at(at).is_some_and(|page| page.is_whole()) {
            at += PAGE;
        }
        seen = Some(seen.unwrap_or(0) + kernel::changed(from, at - from)?);
    }
    seen
}

/// Whether the program stores to what it reads into these pages; `stored` grows by the bytes of
/// pages to which it has stored.
fn pays(length: usize, range: (usize, usize), stored: &mut usize) -> bool {
    let first = pages::at(range.0);
    if let Some(page) = first.filter(Page::is_attached) {
        if let Some(bytes) = changed(range) {
            *stored += bytes;
            if bytes > 0 {
                let lost = with_past(length, |past| {
                    past.range = (0, 0);
                    past.losses = past.losses.again();
                    past.losses
                });
                pages::overwritten(range.0, range.1 - range.0);
                page.remember(lost.word());
            }
            return bytes == 0;
        }
    } else if let Some(page) = first {
        let losses = Losses::of_word(page.remembered());
        if losses.left > 0 {
            page.remember(Losses { left: losses.left - 1, ..losses }.word());
            return false;
        }
        if losses.level > 0 {
            return true;
        }
    }
    with_past(length, |past| {
        if past.losses.left > 0 {
            past.losses.left -= 1;
            return false;
        }
        if past.range.0 == past.range.1 {
            return true;
        }
        let lost = changed(past.range).map(|bytes| {
            *stored += bytes;
            bytes > 0
        });
        let lost = lost.unwrap_or_else(|| {
            // It is gone: what was stored to was copied by the kernel, at a fault each.
            let pages = (past.range.1 - past.range.0) / pages::SMALL_PAGE;
            past.faults
                .is_some_and(|before| others_faults().saturating_sub(before) > pages as u64 / 2)
        });
        past.range = (0, 0);
        if lost {
            past.losses = past.losses.again();
        }
        !lost
    })
}

/// What a read may attach of a buffer, and what it has.
#[derive(Default)]
pub(crate) struct Plan {
    length: usize,
    /// The pages that it may.
    range: (usize, usize),
    attached: (usize, usize),
    /// Bytes of pages of earlier reads to which the program was found to have stored.
    pub(crate) stored: usize,
}

impl Plan {
    /// For a read of `length` bytes of a file from `offset` on; what is copied instead is told with
    /// the reason.
    pub(crate) fn new(sink: &UserOut<'_>, offset: u64, (min, told): (u64, Reporter)) -> Self {
        let (start, length) = (sink.start() as usize, sink.len());
        let (first, end) = (start.next_multiple_of(PAGE), (start + length) / PAGE * PAGE);
        let refused = |reason: Reason, bytes: usize| told(reason.name(), bytes as u64);
        if is_stopped() {
            return Self::default();
        }
        if (length as u64) < min {
            refused(Reason::Short, length);
            return Self::default();
        }
        DEBT.pay(length);
        if !(start as u64 ^ offset).is_multiple_of(PAGE as u64) {
            refused(Reason::Incongruent, length);
            return Self::default();
        }
        if first >= end {
            refused(Reason::Short, length);
            return Self::default();
        }
        let mut stored = 0;
        if !pays(length, (first, end), &mut stored) {
            refused(Reason::Rewritten, length);
            return Self { stored, ..Self::default() };
        }
        let (to, reason) = check((first, end));
        if let Some(reason) = reason {
            refused(reason, end - to);
        }
        Self { length, range: (first, to), stored, ..Self::default() }
    }

    /// The page that a sink is, if it may be attached.
    pub(crate) fn page(&self, sink: &UserOut<'_>) -> Option<Page> {
        let start = sink.start() as usize;
        let is = sink.len() == PAGE && start.is_multiple_of(PAGE);
        if !is || !(self.range.0..self.range.1).contains(&start) {
            return None;
        }
        pages::make(start).filter(|page| !page.is_buffer())
    }

    /// A page was attached.
    pub(crate) fn attached(&mut self, start: usize) {
        if self.attached.0 == self.attached.1 {
            self.attached = (start, start);
        }
        self.attached.1 = start + PAGE;
    }

    /// The read is done, as far as this buffer goes.
    pub(crate) fn done(&self) {
        let (from, to) = self.attached;
        if from < to {
            with_past(self.length, |past| {
                past.faults = (past.range != (from, to)).then(others_faults);
                past.range = (from, to);
            });
        }
    }
}

/// What speaks for a copy where too many pages are attached; those that are no more are found out
/// now and then.
pub(crate) fn too_many() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    if ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKED_AT) {
        pages::recount();
    }
}

/// So many refusals are followed by a look at all pages (16,384: 6 ms).
const LOOKED_AT: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_looks_are_affordable_however_long_they_take() {
        let debt = Debt { bytes: AtomicI64::new(-Debt::CREDIT), looks: AtomicI64::new(0) };
        for _ in 0..Debt::FIRST {
            assert!(debt.is_paid());
            debt.charge(now() - 10_000_000_000);
        }
        assert!(debt.is_paid());
        debt.charge(now() - 10_000_000_000);
        assert!(!debt.is_paid());
        debt.pay(20_000_000_000 * 96);
        assert!(debt.is_paid());
    }
}
