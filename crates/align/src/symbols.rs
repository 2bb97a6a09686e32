//! The exported functions. Each has the C library's signature and its promises; what this library
//! does not know how to do better goes on to the next definition, arguments as they are.

use std::ffi::{c_int, c_void};

use crate::blocks::{self, HUGE};
use crate::next_symbol;

/// An aligned block, or what the next function gives.
macro_rules! aligned_or {
    ($size:expr, $next:expr) => {{
        let block = blocks::aligned($size);
        if !block.is_null() {
            return block;
        }
        // SAFETY: the caller's promise.
        unsafe { $next }
    }};
}

/// Whether a block of this size and alignment is to lie at a multiple of 2 MiB: what asks for more,
/// or for what is no alignment, goes on.
fn wants(alignment: usize, size: usize) -> bool {
    size >= HUGE && alignment < HUGE && alignment.is_power_of_two()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if size < HUGE {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::malloc(size) };
    }
    aligned_or!(size, next_symbol::malloc(size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    if let Some(size) = count.checked_mul(each)
        && size >= HUGE
    {
        let block = blocks::aligned(size);
        if !block.is_null() {
            // SAFETY: a new block.
            unsafe { blocks::clear(block, size) };
            return block;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { next_symbol::calloc(count, each) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    if size < HUGE {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::realloc(old, size) };
    }
    if old.is_null() {
        return aligned_or!(size, next_symbol::realloc(old, size));
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::resize(old, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, each: usize) -> *mut c_void {
    if let Some(size) = count.checked_mul(each)
        && size >= HUGE
        && next_symbol::fits()
    {
        let block = if old.is_null() {
            blocks::aligned(size)
        } else {
            // SAFETY: the caller's promise.
            unsafe { blocks::resize(old, size) }
        };
        if !block.is_null() {
            return block;
        }
    }
    // SAFETY: the caller's promise; the old block is as it was.
    unsafe { next_symbol::reallocarray(old, count, each) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    if !wants(alignment, size) {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::memalign(alignment, size) };
    }
    aligned_or!(size, next_symbol::memalign(alignment, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    if !wants(alignment, size) {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::aligned_alloc(alignment, size) };
    }
    aligned_or!(size, next_symbol::aligned_alloc(alignment, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    // Less than a pointer's is an error here.
    if wants(alignment, size) && alignment >= size_of::<*mut c_void>() {
        let block = blocks::aligned(size);
        if !block.is_null() {
            // SAFETY: the caller has room for it.
            unsafe { to.write(block) };
            return 0;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { next_symbol::posix_memalign(to, alignment, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    if size < HUGE {
        // SAFETY: the caller's promise.
        return unsafe { next_symbol::valloc(size) };
    }
    aligned_or!(size, next_symbol::valloc(size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(blocks::PAGE) {
        Some(whole) if size >= HUGE => aligned_or!(whole, next_symbol::pvalloc(size)),
        // SAFETY: the caller's promise.
        _ => unsafe { next_symbol::pvalloc(size) },
    }
}
