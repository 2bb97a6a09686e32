//! The pages of this process's address space into which segments are mapped, each of 2 MiB: a table
//! of what is known of each, and the calls that map.
//!
//! A page is of an explicit *buffer* (`buffers.rs`), or of memory of a program that knows nothing
//! of the cache (`program.rs`). It is *attached* if a segment is mapped there privately, from a
//! small page on and up to one.
//!
//! Of buffers the table is exact: they are of whole pages, and nobody but this module maps anything
//! into them. Of other memory it is a hint: the C library unmaps, and maps anew, what a program
//! frees and allocates, and nobody is told. So before anything is mapped over such a page, or left
//! as it is, the kernel is asked what is there ([`Page::is_mapped`]). Only two calls that read into
//! the same bytes at once may make the table wrong about a buffer: what they leave there is either
//! one's, and a wrong state costs time, not bytes.
//!
//! A read maps nothing but what it overwrites: other threads may use the rest of a page. So what a
//! copy overwrites at the beginning or the end of a buffer's attached page gets memory of its own;
//! the rest keeps its bytes and the program's stores, and is what is attached of the page from then
//! on. Memory that is no buffer's loses nothing before a copy, which may fail or be short.
//!
//! No locks, and no memory of the heap behind the first use of 16 GiB of addresses: a signal's
//! handler may read. A forked child has the same mappings, and the same table.

use crate::kernel::{self, Mapping};
use crate::layout::CHUNK;
use crate::program;
use pmem::UserOut;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a page of the table: those of a chunk.
pub const PAGE: usize = CHUNK as usize;
/// Bytes of the kernel's small pages.
pub(crate) const SMALL_PAGE: usize = 4096;
/// Pages that may be attached in a process: the kernel allows 65,530 mappings in all, and one that
/// is overwritten in parts has three.
pub const ATTACHED_MAX: usize = 16_384;
/// A part of an attached page that is overwritten gets its own memory first if it is so long: else
/// its few small pages are copied by the kernel, each at its fault (32 KiB: 16.8 us so, and 18.0
/// with a mapping first; 64 KiB: 35 and 27; 2 MiB without a small page: 978 and 628).
const PART_MIN: usize = 64 << 10;

/// Pages of a leaf, and leaves: together the addresses of a process.
const LEAF: usize = 1 << 13;
const LEAVES: usize = 1 << 13;
const _: () = assert!(LEAF * LEAVES * PAGE == 1 << 47);

/// A page's state. Of an attached one it has the first small page that is attached, the one behind
/// the last, and the *mark* of its segment; of others what `program.rs` remembers of it.
const BUFFER: u64 = 1;
const ATTACHED: u64 = 2;
/// It was attached, and its mapping is still there: all its pages are the program's own.
const LEFT: u64 = 4;
const FROM: u32 = 8;
const TO: u32 = 20;
const MARK: u32 = 32;
/// The bits of a page that is attached nowhere: of `program.rs`.
const REMEMBERED: u32 = 8;

/// What is known of a page.
struct Slot {
    state: AtomicU64,
    /// As `program.rs` found its memory.
    checked: AtomicU64,
}

type Leaf = [Slot; LEAF];

static TABLE: [AtomicPtr<Leaf>; LEAVES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES];
/// Pages with a mapping of a segment, of all kinds.
static ATTACHED_PAGES: AtomicUsize = AtomicUsize::new(0);
/// Some page that is no buffer's was attached.
static WAS_ATTACHED: AtomicBool = AtomicBool::new(false);

/// The state of a page whose bytes from `from` to `to` are attached.
fn attached_state(old: u64, from: usize, to: usize, mark: u32) -> u64 {
    let part = ((from / SMALL_PAGE) as u64) << FROM | ((to / SMALL_PAGE) as u64) << TO;
    u64::from(mark) << MARK | part | old & BUFFER | ATTACHED
}

/// Which bytes of a page are attached, by its state.
fn attached_bytes(state: u64) -> Option<(usize, usize)> {
    let bytes = |shift: u32| (state >> shift & 0xFFF) as usize * SMALL_PAGE;
    (state & ATTACHED != 0).then(|| (bytes(FROM), bytes(TO)))
}

/// A whole page.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    pub(crate) start: usize,
    slot: &'static Slot,
}

/// Pages that are attached in this process, as far as is known.
#[must_use]
#[inline]
pub fn attached() -> usize {
    ATTACHED_PAGES.load(Ordering::Relaxed)
}

/// Whether a page that is no buffer's was ever attached.
#[inline]
pub(crate) fn was_attached() -> bool {
    WAS_ATTACHED.load(Ordering::Acquire)
}

/// The page in which an address lies, if anything was ever noted near it.
pub(crate) fn at(address: usize) -> Option<Page> {
    let page = address / PAGE;
    let leaf = TABLE.get(page / LEAF)?.load(Ordering::Acquire);
    // SAFETY: a leaf that is in the table stays.
    let slot = unsafe { leaf.as_ref() }.map(|leaf| &leaf[page % LEAF])?;
    Some(Page { start: page * PAGE, slot })
}

/// The same, to be noted. `None`: there are no such addresses.
pub(crate) fn make(address: usize) -> Option<Page> {
    let slot = TABLE.get(address / PAGE / LEAF)?;
    if slot.load(Ordering::Acquire).is_null() {
        let slots = || Slot { state: AtomicU64::new(0), checked: AtomicU64::new(0) };
        let leaf: Box<[Slot]> = std::iter::repeat_with(slots).take(LEAF).collect();
        let made: *mut Leaf = Box::into_raw(leaf).cast();
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if slot.compare_exchange(std::ptr::null_mut(), made, order.0, order.1).is_err() {
            // SAFETY: made above, of as many slots, and nobody has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
    at(address)
}

/// The pages that lie in a range whole.
pub(crate) fn within(start: usize, length: usize) -> impl Iterator<Item = Page> {
    let (from, to) = (start.next_multiple_of(PAGE), start.saturating_add(length));
    (from..to).step_by(PAGE).filter(move |from| to - from >= PAGE).filter_map(at)
}

/// All pages with a mapping of a segment, as far as is known.
fn all_mapped() -> impl Iterator<Item = Page> {
    let leaves = TABLE.iter().enumerate();
    let there = leaves.filter(|(_, leaf)| !leaf.load(Ordering::Acquire).is_null());
    there
        .flat_map(|(leaf, _)| (0..LEAF).filter_map(move |page| at((leaf * LEAF + page) * PAGE)))
        .filter(|page| is_counted(page.slot.state.load(Ordering::Acquire)))
}

/// Finds out which mappings of segments are there no more.
pub(crate) fn recount() {
    for page in all_mapped() {
        if page.is_attached() {
            page.is_mapped();
        } else if !page.has_mapping() {
            page.leave(page.slot.state.load(Ordering::Acquire) & !(LEFT | (u64::MAX << MARK)));
        }
    }
}

fn is_counted(state: u64) -> bool {
    state & (ATTACHED | LEFT) != 0
}

/// A copy over a range follows. Attached pages would be copied by the kernel first, a small page at
/// each fault.
pub(crate) fn before_copy(sink: &UserOut<'_>) {
    if attached() != 0 {
        overwritten(sink.start() as usize, sink.len());
    }
}

/// The same of a range. What a buffer holds there goes. Other memory keeps it, since nobody knows
/// whether the copy comes to its end: the kernel copies its pages, all at once.
pub(crate) fn overwritten(start: usize, length: usize) {
    if length == 0 || attached() == 0 || program::is_stopped() {
        return;
    }
    let end = start.saturating_add(length);
    for page in (start / PAGE * PAGE..end).step_by(PAGE).filter_map(at) {
        if page.is_buffer() {
            before_part(page, start.max(page.start), end.min(page.start + PAGE));
        } else if page.is_mapped()
            && let Some((first, last)) = page.attached_bytes()
        {
            let (from, to) = (start.max(page.start + first), end.min(page.start + last));
            if from < to {
                let from = from / SMALL_PAGE * SMALL_PAGE;
                populate(from, to.next_multiple_of(SMALL_PAGE) - from);
                page.be_left(0);
            }
        }
    }
    // What fails is copied by the kernel.
    own(start, length);
}

/// A part of a page of a buffer that is overwritten gets memory of its own. In the middle of what
/// is attached it is left alone: a page has three mappings at most.
fn before_part(page: Page, from: usize, to: usize) {
    let start = page.start;
    // Small pages that are overwritten whole.
    let (from, to) = (from.next_multiple_of(SMALL_PAGE) - start, (to - start) / SMALL_PAGE);
    let to = to * SMALL_PAGE;
    let Some((first, last)) = page.attached_bytes() else { return };
    let (map_from, map_to) = (from.max(first), to.min(last));
    let is_long = map_to >= map_from + PART_MIN && to - from < PAGE;
    if !is_long || map_from != first && map_to != last {
        return;
    }
    if map_own(start + map_from, map_to - map_from) {
        populate(start + map_from, map_to - map_from);
        page.shrink(map_from, map_to);
    }
}

/// The bytes of a range are to be zeros, or nobody's: what is attached there is unmapped, in
/// parts too.
pub(crate) fn emptied(start: usize, length: usize) {
    each_piece(start, length, |from, to, there| {
        // A mark that the program has set since would go with the mapping.
        if program::is_unmarked(from, to - from) || !there.prot().contains(ProtFlags::WRITE) {
            return map_own_as(from, to - from, there.prot());
        }
        // SAFETY: private memory to be written, whose bytes the program has given up.
        unsafe { std::ptr::write_bytes(from as *mut u8, 0, to - from) };
        true
    });
}

/// Whether a segment is mapped somewhere in a range.
pub(crate) fn holds(start: usize, length: usize) -> bool {
    let mut held = false;
    each_piece(start, length, |_, _, _| {
        held = true;
        false
    });
    held
}

/// The bytes of a range are to stay as they are, in memory of their own. `false`: the kernel
/// refuses it some.
pub(crate) fn kept(start: usize, length: usize) -> bool {
    each_piece(start, length, |from, to, there| keep(from, to - from, there.prot()))
}

/// Gives each part of a range where a segment is mapped memory of its own, by this, whatever else
/// the program has done there since, and wherever it has moved it. `false`: it failed somewhere.
fn each_piece(
    start: usize,
    length: usize,
    mut each: impl FnMut(usize, usize, &Mapping) -> bool,
) -> bool {
    if !was_attached() || length == 0 {
        return true;
    }
    let end = start.saturating_add(length).saturating_add(SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    let mut from = start / SMALL_PAGE * SMALL_PAGE;
    let mut all = true;
    if !kernel::answers() {
        // As far as is known.
        let pages = (from / PAGE * PAGE..end).step_by(PAGE).filter_map(at);
        for page in pages.filter(|page| page.is_attached() && !page.is_buffer()) {
            let Some((first, last)) = page.attached_bytes() else { continue };
            let (first, last) = ((page.start + first).max(from), (page.start + last).min(end));
            if first < last && each(first, last, &Mapping::PLAIN) {
                page.shrink(first - page.start, last - page.start);
            }
        }
        return true;
    }
    while from < end
        && let Some(there) = kernel::mapping_from(from)
    {
        let (first, last) = (there.start.max(from), there.end.min(end));
        if first < last && is_segment(&there, at(first)) {
            let done = each(first, last, &there);
            all &= done;
            if done {
                let pages = (first / PAGE * PAGE..last).step_by(PAGE).filter_map(at);
                // In the middle it stays noted as attached: more than it is.
                pages.for_each(|page| {
                    let within = |at: usize| at.clamp(page.start, page.start + PAGE) - page.start;
                    page.shrink(within(first), within(last));
                });
            }
        }
        from = there.end;
    }
    all
}

/// A range cut where mappings of segments begin and end, as far as is known, and by pages.
pub(crate) fn noted(start: usize, end: usize) -> Vec<(usize, usize)> {
    let mut cuts = vec![start];
    for page in (start / PAGE * PAGE..end).step_by(PAGE) {
        let part = at(page).and_then(|page| page.attached_bytes()).unwrap_or((0, 0));
        let inside = |cut: &usize| (start + 1..end).contains(cut);
        cuts.extend([page, page + part.0, page + part.1].into_iter().filter(inside));
    }
    cuts.push(end);
    cuts.dedup();
    cuts.windows(2).map(|cut| (cut[0], cut[1])).collect()
}

/// A piece of memory is somewhere else now. What is not moved by whole pages only the kernel knows.
pub(crate) fn moved(from: usize, to: usize, length: usize) {
    let shift = to.wrapping_sub(from);
    for page in within(from, length).filter(|page| page.is_attached() && !page.is_buffer()) {
        let state = page.slot.state.load(Ordering::Acquire);
        page.is_own();
        let place = page.start.wrapping_add(shift);
        if place.is_multiple_of(PAGE)
            && let Some(there) = make(place)
        {
            there.leave(state);
        }
    }
}

/// Whether a mapping is one of a segment; `page`: where it lies.
pub(crate) fn is_segment(there: &Mapping, page: Option<Page>) -> bool {
    let is_noted = |page: &Page| {
        is_counted(page.slot.state.load(Ordering::Acquire)) && page.mark() == there.mark()
    };
    there.is_private_file() && (page.as_ref().is_some_and(is_noted) || kernel::is_segment(there))
}

/// Gives the attached ones of the whole pages of a range of buffers memory of their own, each run
/// at once. `false`: the kernel refuses it some.
pub(crate) fn own(start: usize, length: usize) -> bool {
    let mut run: Option<(usize, usize)> = None;
    let mut all = true;
    let is_attached = |page: &Page| page.is_buffer() && page.is_attached();
    for page in within(start, length).filter(is_attached) {
        run = match run {
            Some((from, to)) if to == page.start => Some((from, to + PAGE)),
            other => {
                all &= other.is_none_or(|(from, to)| own_run(from, to));
                Some((page.start, page.start + PAGE))
            }
        };
    }
    all & run.is_none_or(|(from, to)| own_run(from, to))
}

fn own_run(from: usize, to: usize) -> bool {
    let mapped = map_own(from, to - from);
    if mapped {
        within(from, to - from).for_each(Page::is_own);
    }
    mapped
}

/// Maps fresh memory over a part of a buffer.
fn map_own(start: usize, length: usize) -> bool {
    let mapped = map_own_as(start, length, ProtFlags::READ | ProtFlags::WRITE);
    if mapped {
        // SAFETY: just mapped. It is a hint.
        let _ = unsafe { rustix::mm::madvise(start as _, length, Advice::LinuxHugepage) };
    }
    mapped
}

fn map_own_as(start: usize, length: usize, prot: ProtFlags) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: the range is of a buffer, in which this module alone maps, or a segment is mapped
    // there, and what it holds is to go.
    unsafe { rustix::mm::mmap_anonymous(start as _, length, prot, flags) }.is_ok()
}

/// All pages at once, instead of a fault for each.
fn populate(start: usize, length: usize) {
    // SAFETY: it changes no byte. It is a hint.
    let _ = unsafe { rustix::mm::madvise(start as _, length, Advice::LinuxPopulateWrite) };
}

impl Page {
    pub(crate) fn is_buffer(&self) -> bool {
        self.slot.state.load(Ordering::Acquire) & BUFFER != 0
    }

    /// Whether it is noted as attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.slot.state.load(Ordering::Acquire) & ATTACHED != 0
    }

    /// Whether it is attached, in one piece, to read and write.
    pub(crate) fn is_mapped(&self) -> bool {
        let state = self.slot.state.load(Ordering::Acquire);
        let Some((first, last)) = attached_bytes(state) else { return false };
        if state & BUFFER != 0 {
            return true;
        }
        let (from, end) = (self.start + first, self.start + last);
        // Where the kernel does not say, the table is all that is known.
        let Some(there) = kernel::mapping_from(from) else { return false };
        let is = there.start <= from
            && there.end >= end
            && there.is_plain()
            && is_segment(&there, Some(*self));
        if !is {
            // The program has parts of it in some other way, if any: they are left to it.
            self.is_own();
        }
        is
    }

    pub(crate) fn mark(&self) -> u32 {
        (self.slot.state.load(Ordering::Acquire) >> MARK) as u32
    }

    /// Whether all of it is noted as attached.
    pub(crate) fn is_whole(&self) -> bool {
        self.attached_bytes() == Some((0, PAGE))
    }

    fn attached_bytes(&self) -> Option<(usize, usize)> {
        attached_bytes(self.slot.state.load(Ordering::Acquire))
    }

    /// Notes that it is a buffer's, with memory of its own.
    pub(crate) fn be_buffer(self) {
        self.leave(BUFFER);
    }

    /// Notes that it is nobody's.
    pub(crate) fn be_nobodys(self) {
        self.leave(0);
    }

    /// Notes that it has memory of its own.
    pub(crate) fn is_own(self) {
        let state = self.slot.state.load(Ordering::Acquire);
        if state & ATTACHED != 0 {
            self.leave(state & BUFFER);
        }
    }

    fn leave(self, state: u64) {
        let before = self.slot.state.swap(state, Ordering::AcqRel);
        match (is_counted(before), is_counted(state)) {
            (true, false) => _ = ATTACHED_PAGES.fetch_sub(1, Ordering::AcqRel),
            (false, true) => _ = ATTACHED_PAGES.fetch_add(1, Ordering::AcqRel),
            _ => {}
        }
    }

    /// Nothing of the segment shows any more; what `program.rs` remembers of it.
    fn be_left(self, what: u32) {
        let state = self.slot.state.load(Ordering::Acquire);
        let mapped = if is_counted(state) { LEFT | state & (u64::MAX << MARK) } else { 0 };
        self.leave(mapped | u64::from(what) << REMEMBERED & !(u64::MAX << MARK));
    }

    /// Whether a part of it shows the segment that is noted.
    fn has_mapping(&self) -> bool {
        let (mut from, end, mark) = (self.start, self.start + PAGE, self.mark());
        while from < end
            && let Some(there) = kernel::mapping_from(from)
        {
            if there.start < end && there.is_private_file() && there.mark() == mark {
                return true;
            }
            from = there.end;
        }
        false
    }

    /// What `program.rs` remembers of a page that is not attached, and no buffer's: 24 bits.
    pub(crate) fn remembered(self) -> u32 {
        let state = self.slot.state.load(Ordering::Acquire);
        if state & (BUFFER | ATTACHED) == 0 { (state >> REMEMBERED) as u32 } else { 0 }
    }

    pub(crate) fn remember(self, what: u32) {
        if !self.is_buffer() {
            self.be_left(what);
        }
    }

    pub(crate) fn checked(self) -> &'static AtomicU64 {
        &self.slot.checked
    }

    /// Notes that a part at either end of what is attached has memory of its own.
    fn shrink(self, from: usize, to: usize) {
        let mut state = self.slot.state.load(Ordering::Acquire);
        while let Some((first, last)) = attached_bytes(state) {
            let first = if from <= first { first.max(to) } else { first };
            let last = if to >= last { last.min(from) } else { last };
            if first >= last {
                return self.is_own();
            }
            let new = attached_state(state, first, last, (state >> MARK) as u32);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.slot.state.compare_exchange(state, new, order.0, order.1) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// Maps a segment over it, privately; the segment is never changed again. `false`: it has
    /// memory of its own, to be copied into.
    ///
    /// What is there is the caller's to overwrite: a buffer, or memory that was checked.
    pub(crate) fn attach(self, segment: BorrowedFd<'_>) -> bool {
        let Ok(stat) = rustix::fs::fstat(segment) else { return false };
        if !self.count(kernel::mark(stat.st_dev, stat.st_ino)) {
            return false;
        }
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: as the caller says.
        let mapped = unsafe { rustix::mm::mmap(self.start as _, PAGE, prot, flags, segment, 0) };
        if mapped.is_err() {
            if self.is_buffer() {
                // Older kernels unmap what was there before they fail.
                map_own(self.start, PAGE);
            }
            self.is_own();
        }
        mapped.is_ok()
    }

    /// Takes away what was just attached.
    pub(crate) fn give_up(self) {
        if map_own_as(self.start, PAGE, ProtFlags::READ | ProtFlags::WRITE) {
            self.is_own();
        }
    }

    /// Notes that all of it is attached. `false`: too many are.
    fn count(self, mark: u32) -> bool {
        let state = self.slot.state.load(Ordering::Acquire);
        if attached() >= ATTACHED_MAX && !is_counted(state) {
            return false;
        }
        if state & BUFFER == 0 && !WAS_ATTACHED.load(Ordering::Relaxed) {
            WAS_ATTACHED.store(true, Ordering::Release);
        }
        self.leave(attached_state(state, 0, PAGE, mark));
        true
    }

    /// Whether the page that is attached is one of 2 MiB in the memory too. `None`: the kernel
    /// cannot say (before Linux 6.7), or does not.
    pub(crate) fn is_huge(self) -> Option<bool> {
        // SAFETY: the first small page of the mapping; nothing is changed.
        unsafe { rustix::mm::madvise(self.start as _, SMALL_PAGE, Advice::LinuxPopulateRead) }
            .ok()?;
        kernel::is_huge(self.start, PAGE)
    }

    /// Gives it memory of its own with the bytes that it has.
    pub(crate) fn keep(self) -> bool {
        let kept = keep(self.start, PAGE, ProtFlags::READ | ProtFlags::WRITE);
        if kept {
            self.is_own();
        }
        kept
    }
}

/// Gives a range, of this protection, memory of its own with the bytes that it has, in one step.
fn keep(start: usize, length: usize, as_before: ProtFlags) -> bool {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let null = std::ptr::null_mut();
    // With room for an aligned page.
    let room_length = length + PAGE;
    // SAFETY: fresh mappings at an address of the kernel's choice.
    let room = unsafe { rustix::mm::mmap_anonymous(null, room_length, prot, MapFlags::PRIVATE) };
    let Ok(room) = room else { return false };
    // As far from a multiple of a page as the range.
    let copy = (room as usize).next_multiple_of(PAGE) + start % PAGE;
    let copy = if copy + length > room as usize + room_length { copy - PAGE } else { copy };
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: the copy lies in the room, which nobody else knows; the range is mapped, and may be
    // read from here on; the kernel moves the one over the other.
    let moved = unsafe {
        let _ = rustix::mm::madvise(copy as _, length, Advice::LinuxHugepage);
        rustix::mm::mprotect(start as _, length, MprotectFlags::READ).and_then(|()| {
            std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
            rustix::mm::mremap_fixed(copy as _, length, length, flags, start as _)
        })
    };
    for (from, to) in [(room as usize, copy), (copy + length, room as usize + room_length)] {
        if from < to {
            // SAFETY: what is left of the room.
            let _ = unsafe { rustix::mm::munmap(from as _, to - from) };
        }
    }
    if moved.is_err() {
        // SAFETY: the copy was not moved.
        let _ = unsafe { rustix::mm::munmap(copy as _, length) };
    }
    if moved.is_err() || as_before != prot {
        let as_before = MprotectFlags::from_bits_retain(as_before.bits());
        // SAFETY: as it was.
        let _ = unsafe { rustix::mm::mprotect(start as _, length, as_before) };
    }
    moved.is_ok()
}
