//! The library's own heap: nothing of it comes from the program's malloc.
//!
//! Its lock is the last one taken before a fork and the first given back after it (see `fork`):
//! nothing is allocated in between. It is taken inside only: no handler of the program's finds it
//! held by the thread that it interrupted.

use std::alloc::{GlobalAlloc, Layout};

use dlmalloc::Dlmalloc;

use crate::entry::lock::{Guard, Lock};
use crate::entry::thread::Inside;

static HEAP: Lock<Dlmalloc> = Lock::new(Dlmalloc::new());

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// Keeps all other threads out of the heap, and this one.
pub fn lock() -> Guard<'static, Dlmalloc> {
    HEAP.lock()
}

/// Whether no thread is in it: in a child of a raw system call, a thread that the child does not
/// have may be in it for ever.
pub fn is_free() -> bool {
    HEAP.try_lock().is_some()
}

// SAFETY: as `Dlmalloc`, which is used by one thread at a time.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _inside = Inside::new();
        // SAFETY: the caller's contract, here and below.
        unsafe { lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().free(at, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _inside = Inside::new();
        // SAFETY: as above.
        unsafe { lock().realloc(at, layout.size(), layout.align(), size) }
    }
}
