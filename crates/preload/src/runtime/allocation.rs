//! What `std` allocates past the library's own heap (`std::alloc::System`: a thread's handle, the
//! lines of a panic's message): from the same heap, with the size before it.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_void};

use crate::runtime::hidden;

/// What stands before it, and how it is aligned.
const HEAD: usize = 16;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(HEAD)?, HEAD).ok()
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let Some(layout) = layout(bytes) else { return std::ptr::null_mut() };
    // SAFETY: of more than no bytes; the head is inside.
    unsafe {
        let head = alloc(layout);
        if head.is_null() {
            return std::ptr::null_mut();
        }
        head.cast::<c_void>().cast::<usize>().write(bytes);
        head.add(HEAD).cast()
    }
}

extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: of `malloc`, whose size stands before it.
    unsafe {
        let head = memory.sub(HEAD);
        if let Some(layout) = layout(head.cast::<usize>().read()) {
            dealloc(head.cast(), layout);
        }
    }
}

extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    let larger = malloc(bytes);
    if !memory.is_null() && !larger.is_null() {
        // SAFETY: of `malloc`, whose size stands before it.
        unsafe {
            let before = memory.sub(HEAD).cast::<usize>().read();
            larger.cast::<u8>().copy_from_nonoverlapping(memory.cast(), before.min(bytes));
        }
        free(memory);
    }
    larger
}

extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(each) else { return std::ptr::null_mut() };
    let memory = malloc(bytes);
    if !memory.is_null() {
        // SAFETY: of that size.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
    }
    memory
}

/// Nothing of `std` is aligned to more.
extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if align > HEAD {
        return libc::ENOMEM;
    }
    let memory = malloc(bytes);
    if memory.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's variable.
    unsafe { to.write(memory) };
    0
}

hidden! {
    "malloc" => malloc,
    "free" => free,
    "realloc" => realloc,
    "calloc" => calloc,
    "posix_memalign" => posix_memalign,
}
