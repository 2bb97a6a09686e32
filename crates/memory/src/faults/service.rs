//! Who serves guarded accesses that fault: what a pager can do where the touch happens.

use crate::instructions::exception_table::expect_faults;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Serves a touch of an address in a signal handler, a store or a load, if that can be done at
/// once. It locks nothing that a thread outside of a handler holds.
pub type FaultService = fn(usize, bool) -> bool;

static TOUCHED: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// From here on a guarded access that faults with SIGBUS is made again if this serves it: so what a
/// pager can do where the touch happens costs the call nothing.
pub fn serve_touches(serve: FaultService) {
    expect_faults();
    TOUCHED.store(serve as *mut (), Ordering::Release);
}

/// Whether a touch was served.
pub fn touched(address: usize, stores: bool) -> bool {
    let serve = TOUCHED.load(Ordering::Acquire);
    if serve.is_null() {
        return false;
    }
    // SAFETY: stored by `serve_touches` only.
    unsafe { std::mem::transmute::<*mut (), FaultService>(serve)(address, stores) }
}
