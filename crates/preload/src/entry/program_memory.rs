//! Memory of the program's own heap, for what the program frees: by the functions that stand behind
//! this library's, the C library's or another allocator's.
//!
//! They take locks of their own: only functions of the C library that give such memory call them.

use std::ffi::{CStr, c_char, c_void};

use crate::entry::Real;

/// That many bytes; NULL: there are none.
pub fn allocate(bytes: usize) -> *mut c_void {
    static REAL: Real = Real::new("malloc\0");
    type Function = unsafe extern "C" fn(usize) -> *mut c_void;
    // SAFETY: the program's function of this name.
    unsafe { std::mem::transmute::<usize, Function>(REAL.address())(bytes) }
}

/// Gives such memory back.
///
/// # Safety
///
/// [`allocate`] gave it, or a function of the C library's, and nobody uses it any more.
pub unsafe fn free(memory: *mut c_void) {
    static REAL: Real = Real::new("free\0");
    type Function = unsafe extern "C" fn(*mut c_void);
    // SAFETY: as above; the caller's contract.
    unsafe { std::mem::transmute::<usize, Function>(REAL.address())(memory) }
}

/// A copy of a text; NULL: there is no memory.
pub fn copy_of(text: &CStr) -> *mut c_char {
    let bytes = text.to_bytes_with_nul();
    let copy = allocate(bytes.len()).cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: made to that size.
        unsafe { copy.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    copy
}
