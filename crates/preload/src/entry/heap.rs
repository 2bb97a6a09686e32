//! The library's own heap: nothing of it comes from the program's malloc.
//!
//! Its lock is the last one taken before a fork and the first given back after it (see `fork`):
//! nothing is allocated in between. It is taken inside only: no handler of the program's finds it
//! held by the thread that it interrupted.
//!
//! A child that shares its parent's memory allocates from an [`Arena`] of its own, and gives
//! nothing back: wherever it dies, the heap is as its parent left it.

use std::alloc::{GlobalAlloc, Layout};

use std::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::Dlmalloc;
use os::interrupt::system_call;
use vfs::Errno;

use crate::entry::lock::{Guard, Lock};
use crate::entry::thread::{Inside, Thread, here};

/// What the allocator of this heap is.
pub type Heap = Dlmalloc<Pages>;

static HEAP: Lock<Heap> = Lock::new(Dlmalloc::new_with_allocator(Pages));

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// Where the heap has its memory from: the kernel, by system calls of its own.
pub struct Pages;

const PAGE: usize = 4096;

// SAFETY: pages that nothing else has, which are given back whole or from their end.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        // SAFETY: new pages, where the kernel finds room.
        let made = unsafe { system_call(libc::SYS_mmap, [0, size, access, kind, usize::MAX, 0]) };
        made.map_or((std::ptr::null_mut(), 0, 0), |at| (at as *mut u8, size, 0))
    }

    fn remap(&self, at: *mut u8, size: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { libc::MREMAP_MAYMOVE as usize } else { 0 };
        // SAFETY: pages of this heap; if they move, the caller goes on with the new ones.
        let made = unsafe { system_call(libc::SYS_mremap, [at as usize, size, new, flags, 0, 0]) };
        made.map_or(std::ptr::null_mut(), |at| at as *mut u8)
    }

    fn free_part(&self, at: *mut u8, size: usize, new: usize) -> bool {
        self.free(at.wrapping_add(new), size - new)
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: pages of this heap that it uses no more.
        unsafe { system_call(libc::SYS_munmap, [at as usize, size, 0, 0, 0, 0]) }.is_ok()
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// Keeps all other threads out of the heap, and this one.
pub fn lock() -> Guard<'static, Heap> {
    HEAP.lock()
}

/// Whether no thread is in it: in a child of a raw system call, a thread that the child does not
/// have may be in it for ever.
pub fn is_free() -> bool {
    HEAP.try_lock().is_some()
}

/// Memory from which a child that shares its parent's allocates. The process keeps one for the next
/// child; what the last one has used is overwritten, so that nobody goes on with it unseen.
pub struct Arena {
    start: usize,
    used: usize,
}

/// The one that is kept; 0: none.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// One that was used further than this is given back to the kernel.
const KEPT_MAX: usize = 64 << 10;
/// No address, and no text.
const GONE: u8 = 0xa5;

/// More than an image's arguments and variables may have, twice. What is not touched costs nothing.
const ARENA_BYTES: usize = 32 << 20;

impl Arena {
    /// The kernel's error.
    pub fn new() -> Result<Self, Errno> {
        let kept = KEPT.swap(0, Ordering::Acquire);
        if kept != 0 {
            return Ok(Self { start: kept, used: 0 });
        }
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
        // SAFETY: new pages, where the kernel finds room.
        unsafe { system_call(libc::SYS_mmap, [0, ARENA_BYTES, access, kind, usize::MAX, 0]) }
            .map(|start| Self { start, used: 0 })
    }

    /// From here on the thread allocates there, from its beginning on: what it allocated before is
    /// no longer used.
    pub fn begin(&self, thread: &Thread) {
        thread.arena[0].store(self.start, Ordering::Relaxed);
        thread.arena[1].store(self.start + ARENA_BYTES, Ordering::Relaxed);
    }

    /// The child is gone that has allocated there, by this record.
    pub fn end(&mut self, thread: &Thread) {
        self.used = thread.arena[0].load(Ordering::Relaxed).saturating_sub(self.start);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.used <= KEPT_MAX {
            // SAFETY: pages that nothing uses any more.
            unsafe { (self.start as *mut u8).write_bytes(GONE, self.used) };
            let (order, other) = (Ordering::AcqRel, Ordering::Relaxed);
            if KEPT.compare_exchange(0, self.start, order, other).is_ok() {
                return;
            }
        }
        // SAFETY: as above.
        let _ = unsafe { system_call(libc::SYS_munmap, [self.start, ARENA_BYTES, 0, 0, 0, 0]) };
    }
}

/// Memory of the thread's arena; `None`: it has none.
#[inline]
fn in_arena(layout: Layout) -> Option<*mut u8> {
    let thread = here();
    if thread.arena[1].load(Ordering::Relaxed) == 0 { None } else { Some(bump(thread, layout)) }
}

#[cold]
fn bump(thread: &Thread, layout: Layout) -> *mut u8 {
    let [next, end] = [0, 1].map(|at: usize| thread.arena[at].load(Ordering::Relaxed));
    let at = next.next_multiple_of(layout.align());
    if layout.size() > end.saturating_sub(at) {
        return std::ptr::null_mut();
    }
    thread.arena[0].store(at + layout.size(), Ordering::Relaxed);
    at as *mut u8
}

// SAFETY: as `Dlmalloc`, which is used by one thread at a time; of an arena, which is one thread's,
// each piece is given once until it begins again.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(at) = in_arena(layout) {
            return at;
        }
        let _inside = Inside::new();
        // SAFETY: the caller's contract, here and below.
        unsafe { lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if here().is_lent() {
            return;
        }
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().free(at, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(at) = in_arena(layout) {
            // SAFETY: what was just given, which may have been used before.
            unsafe { at.write_bytes(0, if at.is_null() { 0 } else { layout.size() }) };
            return at;
        }
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract: the alignment is a valid one, and the size.
        let larger = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let Some(new) = in_arena(larger) {
            if !new.is_null() {
                // SAFETY: two pieces that do not overlap, each at least so long.
                unsafe { new.copy_from_nonoverlapping(at, layout.size().min(size)) };
            }
            return new;
        }
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().realloc(at, layout.size(), layout.align(), size) }
    }
}
