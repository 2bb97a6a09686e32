//! Why a wait for a page ends before the page has come: a signal's turn has come, or the thread is
//! to end.

use pmem::interrupt;
use rustix::io::Errno;
use std::cell::Cell;

thread_local! {
    /// Signals that end a wait if they are pending, though they are blocked meanwhile.
    static DELIVERABLE: Cell<u64> = const { Cell::new(0) };
}

/// From here on these signals end this thread's waits, though they are blocked: which ones did
/// before.
pub fn end_at(deliverable: u64) -> u64 {
    DELIVERABLE.replace(deliverable)
}

/// Whether, and by what, this thread's wait ends now.
pub fn interrupted() -> Option<Errno> {
    let deliverable = DELIVERABLE.get();
    if deliverable != 0 {
        let mut pending = 0_u64;
        let arguments = [(&raw mut pending) as usize, size_of::<u64>(), 0, 0, 0, 0];
        // SAFETY: a mask of our own.
        let asked = unsafe { interrupt::system_call(libc::SYS_rt_sigpending, arguments) };
        if asked.is_ok() && pending & deliverable != 0 {
            return Some(Errno::INTR);
        }
    }
    interrupt::reason()
}
