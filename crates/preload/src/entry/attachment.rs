//! Finds the attachment that serves this process: its own, none, or its parent's, until a forked
//! child has a place of its own.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::entry::hooks;
use crate::entry::process::Process;

/// A page of its own, which the kernel empties in every forked child: a process that finds the
/// address there is the one that attached. That costs one load. Threads share it.
#[repr(C, align(4096))]
struct Page {
    process: AtomicPtr<Process>,
    rest: [u8; PAGE_BYTES - size_of::<AtomicPtr<Process>>()],
}

const PAGE_BYTES: usize = 4096;

static PAGE: Page = Page {
    process: AtomicPtr::new(std::ptr::null_mut()),
    rest: [0; PAGE_BYTES - size_of::<AtomicPtr<Process>>()],
};
/// The same address, inherited by forked children.
static KNOWN: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// The process that is making itself known just now.
static ADOPTING: AtomicU32 = AtomicU32::new(0);

/// This process's attachment, if it has one. (The library's first call of all asks
/// [`crate::start`], which makes one.)
#[inline]
pub fn process() -> Option<&'static Process> {
    attached().or_else(other_process)
}

/// The same, but `None` in a child of a raw system call that has not called since.
#[inline]
pub fn attached() -> Option<&'static Process> {
    // SAFETY: null, or published once and never freed.
    unsafe { PAGE.process.load(Ordering::Acquire).as_ref() }
}

/// The attachment of this process or of the one that it was forked from.
pub fn known() -> Option<&'static Process> {
    // SAFETY: as above.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// From now on this process is served.
pub fn publish(process: &'static Process) {
    let process = std::ptr::from_ref(process).cast_mut();
    KNOWN.store(process, Ordering::Release);
    PAGE.process.store(process, Ordering::Release);
}

/// None, or another process's.
#[cold]
fn other_process() -> Option<&'static Process> {
    let process = known()?;
    let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
    loop {
        if let Some(process) = attached() {
            return Some(process);
        }
        let other = ADOPTING.load(Ordering::Relaxed);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if other != me && ADOPTING.compare_exchange(other, me, order.0, order.1).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    (hooks::get().adopt)(process);
    Some(process)
}

/// Lets the kernel empty the page in children. On a kernel that cannot, children of a raw system
/// call act as their parent, as in every library that keeps state.
pub fn mark_page() {
    let page = std::ptr::from_ref(&PAGE).cast_mut().cast::<c_void>();
    // SAFETY: a page of this library's own, which holds nothing else.
    let _ = unsafe { rustix::mm::madvise(page, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork) };
}
