//! Why a wait for a page ends before the page has come: a signal's turn has come, or the thread is
//! to end.

use os::interrupt;
use rustix::io::Errno;
use std::cell::Cell;

/// What ends a thread's waits for pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruptible {
    /// What ends any wait of a call: who waits begins anew, or fails.
    AsCalls,
    /// A signal: one of this set that is pending, though it is blocked meanwhile, or one that
    /// cannot be blocked. The program's own code has touched the page: the instruction runs again
    /// behind the handler. It is no place at which a thread is cancelled.
    AtSignals(u64),
    /// Nothing: the page is needed in the midst of a call, by a copy or by the kernel, which would
    /// take one that is not there for a bad address.
    Never,
}

thread_local! {
    static ENDS: Cell<Interruptible> = const { Cell::new(Interruptible::AsCalls) };
}

/// From here on this ends this thread's waits: what did before.
pub fn end_at(ends: Interruptible) -> Interruptible {
    ENDS.replace(ends)
}

/// Whether, and by what, this thread's wait ends now.
pub fn interrupted() -> Option<Errno> {
    match ENDS.get() {
        Interruptible::AsCalls => interrupt::reason(),
        Interruptible::AtSignals(set) if is_pending(set) => Some(Errno::INTR),
        Interruptible::AtSignals(_) => interrupt::reason().filter(|why| *why == Errno::INTR),
        Interruptible::Never => None,
    }
}

/// Whether a signal of a set is pending.
fn is_pending(set: u64) -> bool {
    let mut pending = 0_u64;
    let arguments = [(&raw mut pending) as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: a mask of our own.
    let asked =
        set != 0 && unsafe { interrupt::system_call(libc::SYS_rt_sigpending, arguments) }.is_ok();
    asked && pending & set != 0
}
