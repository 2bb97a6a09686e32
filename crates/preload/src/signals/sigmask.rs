//! The signal mask, and the calls that wait with another one or for signals that are blocked.
//! Whatever in the C library changes it, that of a new thread, too, comes here by its number.
//!
//! A program that blocks SIGBUS or SIGSYS means signals that are sent: at a fault with the signal
//! blocked, the kernel ends it. But missing pages of mappings need the one (see
//! [`crate::mappings::page_faults`]), and system calls that are made outside the C library the
//! other (see [`crate::dispatch`]). So the kernel's mask never has them: the thread's record
//! says which of them the program has blocked, the program is told so, and one that is sent
//! meanwhile waits there until it is unblocked. Only while a thread waits for signals, and makes
//! no other call and touches nothing, the kernel has them blocked, too: then it keeps those that
//! are sent, and gives them as it gives others.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::entry::cancel::SIGCANCEL;
use crate::entry::pending_signals::{OWN_MASK, bit};
use crate::entry::pointers::Out;
use crate::entry::thread::here;
use crate::entry::{Served, Stop, outside};
use crate::runtime::{guest, relocation};
use crate::signals::signal;

pub type Mask = u64;

/// A mask with its size, as `pselect6` gives it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WithSize {
    pub mask: Out<Mask>,
    pub size: usize,
}

/// Whether this thread is one that the C library makes for a guest, and not yet the guest's. That
/// library gives it the mask of its maker, but for the signal that cancels it: in the guest it is
/// another library's (a timer's), and would end the process.
fn is_before_guest() -> bool {
    guest::is_here() && !here().guest.has_begun.load(Ordering::Relaxed)
}

/// `rt_sigprocmask`: `kernel` gets what the kernel is to hear of it.
pub fn change(
    how: c_int,
    new: Out<Mask>,
    old: Out<Mask>,
    size: usize,
    kernel: impl FnOnce(Out<Mask>, Out<Mask>) -> c_int,
) -> Served<c_int> {
    if size != size_of::<Mask>() {
        return Err(Stop::Kernel);
    }
    let wanted = new.get()?;
    if how != libc::SIG_UNBLOCK && wanted.is_some_and(|mask| mask & bit(libc::SIGSEGV) != 0) {
        relocation::finish();
    }
    // Unblocking goes through: in a handler of SIGBUS the kernel has blocked it itself.
    let hidden = if how == libc::SIG_UNBLOCK { 0 } else { OWN_MASK };
    let kept = if is_before_guest() { bit(SIGCANCEL as c_int) } else { 0 };
    let given = |mask| if how == libc::SIG_UNBLOCK { mask & !kept } else { mask & !hidden | kept };
    let (mut given, mut found) = (wanted.map_or(0, given), 0);
    let given = if wanted.is_some() { &raw mut given } else { std::ptr::null_mut() };
    let result = outside(|| kernel(Out(given), Out(&raw mut found)));
    if result != 0 {
        return Ok(result);
    }
    let thread = here();
    let before = thread.blocks.load(Ordering::Relaxed);
    let blocks = wanted.map(|wanted| match how {
        libc::SIG_SETMASK => wanted & OWN_MASK,
        libc::SIG_BLOCK => before | wanted & OWN_MASK,
        _ => before & !wanted,
    });
    if let Some(blocks) = blocks {
        thread.blocks.store(blocks, Ordering::Relaxed);
        if before & !blocks != 0 {
            outside(|| signal::give_held(thread));
        }
    }
    // The mask has changed even where this fails.
    if !old.is_null() {
        old.put(found | before)?;
    }
    Ok(0)
}

/// While it lives the kernel has these of ours blocked, with those that were sent.
struct Blocked(Mask);

impl Blocked {
    fn new(signals: Mask) -> Self {
        signal::set_blocked(signals, true);
        let thread = here();
        let before = thread.blocks.fetch_and(!signals, Ordering::Relaxed);
        signal::give_held(thread);
        thread.blocks.store(before, Ordering::Relaxed);
        Self(signals)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        signal::set_blocked(self.0, false);
    }
}

/// A call that asks or waits for signals which are blocked.
pub fn with_blocked<T>(call: impl FnOnce() -> T) -> Served<T> {
    let blocked = here().blocks.load(Ordering::Relaxed);
    if blocked == 0 {
        return Err(Stop::Kernel);
    }
    Ok(outside(|| {
        let _blocked = Blocked::new(blocked);
        call()
    }))
}

/// A call that waits with another mask: `kernel` gets it without the signals of ours.
pub fn with_mask<T>(
    mask: Out<Mask>,
    size: usize,
    kernel: impl FnOnce(Out<Mask>) -> T,
) -> Served<T> {
    if size != size_of::<Mask>() {
        return Err(Stop::Kernel);
    }
    let wanted = mask.get()?.ok_or(Stop::Kernel)?;
    if wanted & bit(libc::SIGSEGV) != 0 {
        relocation::finish();
    }
    let thread = here();
    let (before, during) = (thread.blocks.load(Ordering::Relaxed), wanted & OWN_MASK);
    if before | during == 0 {
        return Err(Stop::Kernel);
    }
    let mut given = wanted & !OWN_MASK;
    let call = || kernel(Out(&raw mut given));
    let result = outside(|| {
        // One that was sent arrives when the wait has begun.
        let admitted = before & !during;
        let _blocked = (admitted != 0).then(|| Blocked::new(admitted));
        let _restored = Restored(before);
        thread.blocks.store(during, Ordering::Relaxed);
        call()
    });
    Ok(result)
}

/// As [`with_mask`], of a mask that comes with its size.
pub fn with_sized<T>(sized: Out<WithSize>, kernel: impl FnOnce(Out<WithSize>) -> T) -> Served<T> {
    let WithSize { mask, size } = sized.get()?.ok_or(Stop::Kernel)?;
    with_mask(mask, size, |mask| {
        let mut sized = WithSize { mask, size };
        kernel(Out(&raw mut sized))
    })
}

/// What of ours is blocked, for when the wait is over.
struct Restored(Mask);

impl Drop for Restored {
    fn drop(&mut self) {
        here().blocks.store(self.0, Ordering::Relaxed);
    }
}
