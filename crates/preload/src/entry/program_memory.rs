//! Memory of the program's own heap, for what the program frees: by the functions that stand behind
//! this library's, the C library's or another allocator's.
//!
//! They take locks of their own: only functions of the C library that give such memory call them.

use std::ffi::c_void;

use crate::entry::Real;

/// That many bytes; NULL: there are none.
pub fn allocate(bytes: usize) -> *mut c_void {
    static REAL: Real = Real::new("malloc\0");
    type Function = unsafe extern "C" fn(usize) -> *mut c_void;
    // SAFETY: the program's function of this name.
    unsafe { std::mem::transmute::<usize, Function>(REAL.address())(bytes) }
}
