//! Blocks at multiples of 2 MiB: made, cleared, resized.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::next_symbol;

/// The alignment, and the size from which on blocks have it: that of a chunk of a file.
pub const HUGE: usize = 2 << 20;
/// A page.
pub const PAGE: usize = 4096;
/// Above it nothing is aligned: no allocator gives so much, and none has to add to it.
const SIZE_MAX: usize = isize::MAX as usize - HUGE;

thread_local! {
    /// This thread asks the allocator for a block.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// A block at a multiple of 2 MiB, its contents unknown; null if the allocator has none. `errno`
/// stays.
pub fn aligned(size: usize) -> *mut c_void {
    let mut block = std::ptr::null_mut();
    // An allocator whose `posix_memalign` calls `malloc` by its name comes here again.
    if size > SIZE_MAX || !next_symbol::fits() || ASKING.replace(true) {
        return block;
    }
    let errno = next_symbol::errno();
    learn(size);
    // SAFETY: room for the answer.
    if unsafe { next_symbol::posix_memalign(&raw mut block, HUGE, size) } != 0 {
        block = std::ptr::null_mut();
    }
    next_symbol::set_errno(errno);
    ASKING.set(false);
    block
}

/// The largest block that was asked for, as far as glibc may keep such blocks in its heap.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// Up to which size glibc was shown that they come and go.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Lets glibc keep blocks that come and go in its heap, as it would without alignment.
///
/// glibc asks the kernel for each block above a threshold, which it raises to the size of the
/// largest one that was freed. It asks for 2 MiB more where it aligns, and what it frees then
/// counts without them: so its threshold would never reach what it compares with it, and each page
/// of each block would be faulted in anew. So when a size is asked for again, a block of that size
/// and 2 MiB comes and goes. Nobody touches it. (`tests/c/cost.c`, blocks of 2 to 4 MiB written and
/// freed, one after the other: 25 us; without this 400 to 1,150.)
fn learn(size: usize) {
    /// glibc's limit of the threshold, less what it adds to a request.
    const KEPT_MAX: usize = (32 << 20) - HUGE - 4 * PAGE;
    if size > KEPT_MAX || size <= SHOWN.load(Ordering::Relaxed) || !next_symbol::is_glibc() {
        return;
    }
    let largest = LARGEST.fetch_max(size, Ordering::Relaxed);
    if size <= largest {
        SHOWN.fetch_max(largest, Ordering::Relaxed);
        // SAFETY: nobody has the block.
        unsafe { next_symbol::free(next_symbol::malloc(largest + HUGE + 2 * PAGE)) };
    }
}

pub fn is_aligned(block: *mut c_void) -> bool {
    (block as usize).is_multiple_of(HUGE)
}

/// Makes a new aligned block zero. `errno` stays.
///
/// Memory that was used before is filled. To give its pages back to the kernel, and to fault them
/// in anew, takes longer: calloc of 4 MiB that were just freed, with writing them before, takes 68
/// us, that way 2,577 (`tests/c/cost.c zeros`). Memory that was not used yet is given back, which
/// changes nothing in it: calloc of 64 MiB takes 33 us and no memory, filled 32,784 and 64 MiB
/// (`untouched`). So a program that touches little of a large block pays for little, as with the
/// allocator's own `calloc`. What was swapped out is given back as well.
///
/// # Safety
///
/// The block is the caller's, and has this size.
pub unsafe fn clear(block: *mut c_void, size: usize) {
    let errno = next_symbol::errno();
    let mut cleared = 0;
    while cleared < size {
        let length = (size - cleared).min(WINDOW);
        let whole = length & !(PAGE - 1);
        // SAFETY: a part of the block, which begins with a page.
        unsafe {
            let part = block.byte_add(cleared);
            let kept = if is_used(part, whole) || !give_back(part, whole) { 0 } else { whole };
            part.cast::<u8>().add(kept).write_bytes(0, length - kept);
        }
        cleared += length;
    }
    next_symbol::set_errno(errno);
}

/// How much of a block is looked at by one call.
const WINDOW: usize = 8 << 20;

/// Whether most pages of a part are in memory.
///
/// # Safety
///
/// The part is mapped, begins with a page, and is no larger than a window.
unsafe fn is_used(part: *mut c_void, length: usize) -> bool {
    let mut pages = [0_u8; WINDOW / PAGE];
    // SAFETY: a byte for each page.
    let told = unsafe { libc::mincore(part, length, pages.as_mut_ptr()) } == 0;
    told && pages.iter().filter(|&&page| page & 1 != 0).count() > length / PAGE / 2
}

/// Gives pages back to the kernel, which fills them with zeros when they are touched.
///
/// `MADV_DONTNEED` alone would be wrong for any but private memory without a file: a page comes
/// back with what the file has, or, of huge pages of a pool, may stay as it is. `MADV_FREE` refuses
/// all of these, and memory that is locked. So it goes first.
///
/// # Safety
///
/// The pages are the caller's, and what is in them is of no use.
unsafe fn give_back(part: *mut c_void, length: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        libc::madvise(part, length, libc::MADV_FREE) == 0
            && libc::madvise(part, length, libc::MADV_DONTNEED) == 0
    }
}

/// `realloc` of a block to at least 2 MiB. An aligned block stays where it is if it has the room
/// and at most a quarter of it would be left over. Else the allocator resizes it, in place if it
/// can: glibc's moves pages, or takes what is free behind the block (to 64 MiB by small steps: 49
/// ms, by copies 106). The others copy where a block grows, so they are not asked.
///
/// Where the block is not aligned then, its contents move: a growing block gets a quarter more than
/// it needs, so that many small steps do not copy it many times.
///
/// # Safety
///
/// As `realloc`; `old` is not null.
pub unsafe fn resize(old: *mut c_void, size: usize) -> *mut c_void {
    if size > SIZE_MAX || !next_symbol::fits() {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::realloc(old, size) };
    }
    // SAFETY: a block of the allocator's.
    let usable = unsafe { next_symbol::malloc_usable_size(old) };
    let mut from = old;
    let has_room = size <= usable;
    if is_aligned(old) {
        if has_room && usable - size <= usable / 4 {
            return old;
        }
        if has_room || next_symbol::is_glibc() {
            // SAFETY: the caller's promise.
            from = unsafe { next_symbol::realloc(old, size) };
            if from.is_null() || is_aligned(from) {
                return from;
            }
        }
    }
    let mut to = std::ptr::null_mut();
    if !has_room {
        to = aligned(size + size / 4);
    }
    if to.is_null() {
        to = aligned(size);
    }
    if to.is_null() {
        // SAFETY: the caller's promise; a block that was resized already is an answer.
        return if from == old { unsafe { next_symbol::realloc(old, size) } } else { from };
    }
    // SAFETY: two blocks, both at least so large; the old one is used no more.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), size.min(usable));
        next_symbol::free(from);
    }
    to
}
