//! Explicit buffers: memory of which the program says that it is for reading files into, and that
//! nothing pins its pages. A read may map segments into them instead of copying.
//!
//! The table has a state for each 2 MiB of the address space, its *page*: no buffer's, a buffer's
//! own memory, or *attached*: a private mapping of a segment, from a small page on and up to one. A
//! buffer is of whole pages, and nobody but this module maps anything into it, so the table is
//! exact. Only two calls that read into the same bytes at once may make it wrong: what they leave
//! there is either one's, and a wrong state costs time, not bytes.
//!
//! A read maps nothing but what it overwrites: other threads may use the rest of a page. So what a
//! copy overwrites at the beginning or the end of an attached page gets memory of its own; the rest
//! keeps its bytes and the program's stores, and is what is attached of the page from then on.
//!
//! No locks, and no memory of the heap behind the first use of 16 GiB of addresses: a signal's
//! handler may read. A forked child has the same mappings, and the same table.

use crate::layout::CHUNK;
use pmem::UserOut;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Bytes of a page of the table: those of a chunk.
pub const PAGE: usize = CHUNK as usize;
/// Bytes of the kernel's small pages.
const SMALL_PAGE: usize = 4096;
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

/// States of a page; 0: it is no buffer's. An attached one's has the first small page that is
/// attached, and the one behind the last.
const OWN: u32 = 1;
const ATTACHED: u32 = 2;
const FROM: u32 = 8;
const TO: u32 = 20;

type Leaf = [AtomicU32; LEAF];

/// The state of a page whose bytes from `from` to `to` are attached.
fn attached_state(from: usize, to: usize) -> u32 {
    ((from / SMALL_PAGE) as u32) << FROM | ((to / SMALL_PAGE) as u32) << TO | ATTACHED
}

/// Which bytes of a page are attached, by its state.
fn attached_bytes(state: u32) -> Option<(usize, usize)> {
    let bytes = |shift: u32| (state >> shift & 0xFFF) as usize * SMALL_PAGE;
    (state & ATTACHED != 0).then(|| (bytes(FROM), bytes(TO)))
}

static TABLE: [AtomicPtr<Leaf>; LEAVES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES];
/// Pages of buffers, and those of them that are attached.
static PAGES: AtomicUsize = AtomicUsize::new(0);
static ATTACHED_PAGES: AtomicUsize = AtomicUsize::new(0);
/// The kernel cannot say how large a page is.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// A whole page of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    start: usize,
    state: &'static AtomicU32,
}

/// The state of the page at an address.
fn state(address: usize) -> Option<&'static AtomicU32> {
    let page = address / PAGE;
    let leaf = TABLE.get(page / LEAF)?.load(Ordering::Acquire);
    // SAFETY: a leaf that is in the table stays.
    unsafe { leaf.as_ref() }.map(|leaf| &leaf[page % LEAF])
}

/// The same, made if it is not there. `None`: there are no such addresses.
fn make_state(address: usize) -> Option<&'static AtomicU32> {
    let slot = TABLE.get(address / PAGE / LEAF)?;
    if slot.load(Ordering::Acquire).is_null() {
        let leaf: Box<[AtomicU32]> = (0..LEAF).map(|_| AtomicU32::new(0)).collect();
        let made: *mut Leaf = Box::into_raw(leaf).cast();
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if slot.compare_exchange(std::ptr::null_mut(), made, order.0, order.1).is_err() {
            // SAFETY: made above, of as many states, and nobody has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
    state(address)
}

fn is_whole(start: usize, length: usize) -> bool {
    start.is_multiple_of(PAGE) && length.is_multiple_of(PAGE) && start.checked_add(length).is_some()
}

/// A buffer is there: `length` bytes from `start` on, both multiples of [`PAGE`]. `false`: it
/// cannot be noted, and stays memory like any other.
///
/// # Safety
///
/// They are private anonymous memory of the caller's, to read and write; until [`remove`] nobody
/// maps anything else there, nor changes how it is mapped.
pub unsafe fn add(start: usize, length: usize) -> bool {
    if start == 0 || !is_whole(start, length) {
        return false;
    }
    for page in (start..start + length).step_by(PAGE) {
        let Some(state) = make_state(page) else {
            remove(start, page - start);
            return false;
        };
        if state.swap(OWN, Ordering::AcqRel) == 0 {
            PAGES.fetch_add(1, Ordering::AcqRel);
        }
    }
    true
}

/// A buffer goes: its owner unmaps it behind this.
pub fn remove(start: usize, length: usize) {
    for page in pages(start, length) {
        match page.state.swap(0, Ordering::AcqRel) {
            0 => continue,
            OWN => {}
            _ => _ = ATTACHED_PAGES.fetch_sub(1, Ordering::AcqRel),
        }
        PAGES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Gives a buffer memory of its own where it is attached: what it held there is lost. `false`: the
/// kernel refuses it some.
pub fn detach(start: usize, length: usize) -> bool {
    own_pages(start, length)
}

/// Gives a buffer memory of its own where it is attached, with the bytes that it has. No other
/// thread may store to it meanwhile. `false`: the kernel refuses it some.
pub fn keep(start: usize, length: usize) -> bool {
    pages(start, length).filter(Page::is_attached).all(Page::keep)
}

/// Pages that are attached in this process.
#[must_use]
pub fn attached() -> usize {
    ATTACHED_PAGES.load(Ordering::Relaxed)
}

/// Whether there are buffers at all.
#[inline]
pub(crate) fn any() -> bool {
    PAGES.load(Ordering::Relaxed) != 0
}

/// The page of a buffer that a sink is, whole.
pub(crate) fn page(sink: &UserOut<'_>) -> Option<Page> {
    let start = sink.start() as usize;
    if sink.len() != PAGE || !start.is_multiple_of(PAGE) {
        return None;
    }
    pages(start, PAGE).next()
}

/// The pages of buffers that lie in a range, whole.
fn pages(start: usize, length: usize) -> impl Iterator<Item = Page> {
    let (from, to) = (start.next_multiple_of(PAGE), start.saturating_add(length));
    (from..to).step_by(PAGE).filter(move |from| to - from >= PAGE).filter_map(|start| {
        let state = state(start)?;
        (state.load(Ordering::Acquire) != 0).then_some(Page { start, state })
    })
}

/// A copy over a range follows, of all of it. Attached pages would be copied by the kernel first,
/// a small page at each fault: what they hold there goes.
pub(crate) fn before_copy(sink: &UserOut<'_>) {
    if attached() == 0 || sink.is_empty() {
        return;
    }
    let (start, end) = (sink.start() as usize, (sink.start() as usize).saturating_add(sink.len()));
    let (first, last) = (start / PAGE * PAGE, (end - 1) / PAGE * PAGE);
    before_part(first, start, end.min(first.saturating_add(PAGE)));
    if last != first {
        before_part(last, last, end);
    }
    // What fails is copied by the kernel.
    own_pages(start, sink.len());
}

/// The same of a part of a page. In the middle of what is attached it is left alone: a page has
/// three mappings at most.
fn before_part(start: usize, from: usize, to: usize) {
    let Some(state) = state(start) else { return };
    let page = Page { start, state };
    // Small pages that are overwritten whole.
    let (from, to) = (from.next_multiple_of(SMALL_PAGE) - start, (to - start) / SMALL_PAGE);
    let to = to * SMALL_PAGE;
    let Some((first, last)) = attached_bytes(state.load(Ordering::Acquire)) else { return };
    let (map_from, map_to) = (from.max(first), to.min(last));
    let is_long = map_to >= map_from + PART_MIN && to - from < PAGE;
    if !is_long || map_from != first && map_to != last {
        return;
    }
    let (at, length) = (start + map_from, map_to - map_from);
    if map_own(at, length) {
        // SAFETY: just mapped, and to be overwritten by the caller. It is a hint.
        let _ = unsafe { rustix::mm::madvise(at as _, length, Advice::LinuxPopulateWrite) };
        page.shrink(map_from, map_to);
    }
}

/// Gives the attached ones of the whole pages of a range memory of their own, each run at once.
fn own_pages(start: usize, length: usize) -> bool {
    let mut run: Option<(usize, usize)> = None;
    let mut all = true;
    for page in pages(start, length).filter(Page::is_attached) {
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
        pages(from, to - from).for_each(Page::is_own);
    }
    mapped
}

/// Maps fresh memory over a part of a buffer.
fn map_own(start: usize, length: usize) -> bool {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: the range is of a buffer, in which this module alone maps (`add`).
    let mapped = unsafe { rustix::mm::mmap_anonymous(start as _, length, prot, flags) };
    if mapped.is_ok() {
        // SAFETY: just mapped. It is a hint.
        let _ = unsafe { rustix::mm::madvise(start as _, length, Advice::LinuxHugepage) };
    }
    mapped.is_ok()
}

impl Page {
    fn is_attached(&self) -> bool {
        self.state.load(Ordering::Acquire) & ATTACHED != 0
    }

    /// Notes that it has memory of its own.
    fn is_own(self) {
        if self.state.swap(OWN, Ordering::AcqRel) & ATTACHED != 0 {
            ATTACHED_PAGES.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that a part at either end of what is attached has memory of its own.
    fn shrink(self, from: usize, to: usize) {
        let mut state = self.state.load(Ordering::Acquire);
        while let Some((first, last)) = attached_bytes(state) {
            let first = if from <= first { first.max(to) } else { first };
            let last = if to >= last { last.min(from) } else { last };
            if first >= last {
                return self.is_own();
            }
            let (new, order) = (attached_state(first, last), Ordering::AcqRel);
            match self.state.compare_exchange(state, new, order, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// Maps a segment over it, privately; the segment is never changed again. `false`: it has its
    /// own memory, to be copied into.
    pub(crate) fn attach(self, segment: BorrowedFd<'_>) -> bool {
        if !self.count() {
            return false;
        }
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the page is of a buffer, in which this module alone maps (`add`).
        let mapped = unsafe { rustix::mm::mmap(self.start as _, PAGE, prot, flags, segment, 0) };
        if mapped.is_err() {
            // Older kernels unmap what was there before they fail.
            map_own(self.start, PAGE);
            self.is_own();
        }
        mapped.is_ok()
    }

    /// Notes that all of it is attached. `false`: too many are.
    fn count(self) -> bool {
        if ATTACHED_PAGES.fetch_add(1, Ordering::AcqRel) >= ATTACHED_MAX && !self.is_attached() {
            ATTACHED_PAGES.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if self.state.swap(attached_state(0, PAGE), Ordering::AcqRel) & ATTACHED != 0 {
            // It was counted.
            ATTACHED_PAGES.fetch_sub(1, Ordering::AcqRel);
        }
        true
    }

    /// Whether the page that is attached is one of 2 MiB in the memory too. `None`: the kernel
    /// cannot say (before Linux 6.7), or does not.
    pub(crate) fn is_huge(self) -> Option<bool> {
        if UNTOLD.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the first small page of the mapping; nothing is changed.
        unsafe { rustix::mm::madvise(self.start as _, SMALL_PAGE, Advice::LinuxPopulateRead) }
            .ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let scanned = rustix::fs::open(c"/proc/self/pagemap", flags, Mode::empty())
            .and_then(|pagemap| scan(&pagemap, self.start));
        // A number for the descriptor may be had another time.
        if scanned.is_err_and(|errno| errno != Errno::MFILE && errno != Errno::NFILE) {
            UNTOLD.store(true, Ordering::Relaxed);
        }
        scanned.ok()
    }

    /// Gives it memory of its own with the bytes that it has.
    fn keep(self) -> bool {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // Twice, so that an aligned page is in it.
        // SAFETY: fresh mappings at an address of the kernel's choice.
        let room = unsafe { rustix::mm::mmap_anonymous(null, 2 * PAGE, prot, MapFlags::PRIVATE) };
        let Ok(room) = room else { return false };
        let copy = (room as usize).next_multiple_of(PAGE);
        let flags = rustix::mm::MremapFlags::MAYMOVE;
        // SAFETY: the copy lies in the room, which nobody else knows; the page is mapped to be
        // read, and the kernel moves the one over the other.
        let moved = unsafe {
            let _ = rustix::mm::madvise(copy as _, PAGE, Advice::LinuxHugepage);
            std::ptr::copy_nonoverlapping(self.start as *const u8, copy as *mut u8, PAGE);
            rustix::mm::mremap_fixed(copy as _, PAGE, PAGE, flags, self.start as _)
        };
        for (from, to) in [(room as usize, copy), (copy + PAGE, room as usize + 2 * PAGE)] {
            if from < to {
                // SAFETY: what is left of the room.
                let _ = unsafe { rustix::mm::munmap(from as _, to - from) };
            }
        }
        match moved {
            Ok(_) => self.is_own(),
            // SAFETY: the copy was not moved.
            Err(_) => _ = unsafe { rustix::mm::munmap(copy as _, PAGE) },
        }
        moved.is_ok()
    }
}

/// The kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}
const _: () = assert!(size_of::<ScanArguments>() == 96);

/// `PAGE_IS_HUGE`: mapped by one entry, of 2 MiB.
const IS_HUGE: u64 = 1 << 6;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<ScanArguments>(b'f', 16);

fn scan(pagemap: &std::os::fd::OwnedFd, start: usize) -> rustix::io::Result<bool> {
    let (start, end) = (start as u64, (start + PAGE) as u64);
    let mut region = PageRegion::default();
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        start,
        end,
        regions: &raw mut region as u64,
        region_count: 1,
        all_of: IS_HUGE,
        told: IS_HUGE,
        ..ScanArguments::default()
    };
    // SAFETY: the request takes this structure, and there is room for one region.
    unsafe {
        rustix::ioctl::ioctl(
            pagemap,
            rustix::ioctl::Updater::<PAGEMAP_SCAN, ScanArguments>::new(&mut arguments),
        )?;
    }
    // SAFETY: the kernel may have written to it.
    let region = unsafe { std::ptr::read_volatile(&raw const region) };
    Ok((region.start, region.end) == (start, end))
}
