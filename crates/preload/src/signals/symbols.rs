//! The exported functions of this room: actions, masks, and waits with a mask or for signals.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigaction as Action, siginfo_t, timespec};

use crate::entry::pointers::Out;
use crate::entry::thread::here;
use crate::entry::{Stop, cached_fd, outside};
use crate::interposed::interpose;
use crate::signals::sigaction;
use crate::signals::sigmask::{self, Mask, Start, change_old, change_one, with_blocked, with_mask};

// ---- actions

interpose! {
    fn [sigaction, __sigaction](signal: c_int, new: Out<Action>, old: Out<Action>) -> c_int
    = |_, _| {
        sigaction::exchange(signal, new, old)
    }
    fn [signal, bsd_signal, ssignal](signal: c_int, handler: usize) -> usize = |_, _| {
        sigaction::set_handler(signal, handler)
    }
    fn [sysv_signal, __sysv_signal](signal: c_int, handler: usize) -> usize = |_, _| {
        sigaction::set_once(signal, handler)
    }
    fn [siginterrupt](signal: c_int, interrupt: c_int) -> c_int = |_, _| {
        sigaction::set_interrupting(signal, interrupt != 0)
    }
    fn [sigset](signal: c_int, handler: usize) -> usize = |_, _| {
        sigaction::set_or_hold(signal, handler)
    }
    fn [sigignore](signal: c_int) -> c_int = |_, _| {
        sigaction::ignore(signal)
    }
}

// ---- threads and masks

/// A call on the volume needs more of the stack than a call of the kernel: so much is added to a
/// stack that the C library makes and that may be too small.
const ROOM: usize = 48 << 10;
/// From so many bytes on there is enough.
const ENOUGH: usize = 64 << 10;

/// The attributes of a new thread with a larger stack than the program has asked for. `None`: that
/// one will do, or the program has made it itself.
fn with_room(attributes: *const libc::pthread_attr_t) -> Option<libc::pthread_attr_t> {
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the program's own attributes; a copy of them that changes in one word, and lives no
    // longer.
    unsafe {
        let given = attributes.as_ref()?;
        libc::pthread_attr_getstack(given, &raw mut start, &raw mut bytes);
        // Of one that the C library is to make it knows the size alone.
        let is_made = (start as usize).wrapping_add(bytes) != 0;
        if is_made || !(1..ENOUGH).contains(&bytes) {
            return None;
        }
        let mut roomy = *given;
        (libc::pthread_attr_setstacksize(&raw mut roomy, bytes + ROOM) == 0).then_some(roomy)
    }
}

interpose! {
    fn [pthread_create](
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: Start,
        argument: *mut c_void,
    ) -> c_int = |_, kernel| {
        cached_fd::before_thread();
        let roomy = with_room(attributes);
        let attributes = roomy.as_ref().map_or(attributes, std::ptr::from_ref);
        if !here().blocks_bus.load(Ordering::Relaxed) {
            if roomy.is_none() {
                return Err(Stop::Kernel);
            }
            return Ok(outside(|| kernel(thread, attributes, start, argument)));
        }
        Ok(sigmask::born_blocked(start, argument, |begin, born| {
            kernel(thread, attributes, begin, born)
        }))
    }
    fn [sigblock](mask: c_int) -> c_int = |_, _| {
        Ok(change_old(libc::SIG_BLOCK, mask))
    }
    fn [sigsetmask](mask: c_int) -> c_int = |_, _| {
        Ok(change_old(libc::SIG_SETMASK, mask))
    }
    fn [siggetmask]() -> c_int = |_, _| {
        Ok(change_old(libc::SIG_BLOCK, 0))
    }
    fn [sighold](signal: c_int) -> c_int = |_, _| {
        change_one(libc::SIG_BLOCK, signal)
    }
    fn [sigrelse](signal: c_int) -> c_int = |_, _| {
        change_one(libc::SIG_UNBLOCK, signal)
    }
    fn [sigpending](set: Out<Mask>) -> c_int = |_, kernel| {
        with_blocked(|| kernel(set))
    }
    fn [sigwait](set: Out<Mask>, signal: *mut c_int) -> c_int = |_, kernel| {
        with_blocked(|| kernel(set, signal))
    }
    fn [sigwaitinfo](set: Out<Mask>, info: *mut siginfo_t) -> c_int = |_, kernel| {
        with_blocked(|| kernel(set, info))
    }
    fn [sigtimedwait](set: Out<Mask>, info: *mut siginfo_t, time: *const timespec) -> c_int
    = |_, kernel| {
        with_blocked(|| kernel(set, info, time))
    }
    fn [sigsuspend](mask: Out<Mask>) -> c_int = |_, kernel| {
        with_mask(mask, kernel)
    }
    fn [ppoll](list: *mut pollfd, count: nfds_t, time: *const timespec, mask: Out<Mask>) -> c_int
    = |_, kernel| {
        cached_fd::give_back();
        with_mask(mask, |mask| kernel(list, count, time, mask))
    }
    fn [__ppoll_chk](
        list: *mut pollfd, count: nfds_t, time: *const timespec, mask: Out<Mask>, room: usize,
    ) -> c_int = |_, kernel| {
        cached_fd::give_back();
        with_mask(mask, |mask| kernel(list, count, time, mask, room))
    }
    fn [pselect](
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set,
        time: *const timespec, mask: Out<Mask>,
    ) -> c_int = |_, kernel| {
        cached_fd::give_back();
        with_mask(mask, |mask| kernel(count, reads, writes, others, time, mask))
    }
    fn [epoll_pwait](
        poll: c_int, events: *mut epoll_event, count: c_int, time: c_int, mask: Out<Mask>,
    ) -> c_int = |_, kernel| {
        with_mask(mask, |mask| kernel(poll, events, count, time, mask))
    }
    fn [epoll_pwait2](
        poll: c_int, events: *mut epoll_event, count: c_int, time: *const timespec,
        mask: Out<Mask>,
    ) -> c_int = |_, kernel| {
        with_mask(mask, |mask| kernel(poll, events, count, time, mask))
    }
    fn [sigprocmask](how: c_int, new: Out<Mask>, old: Out<Mask>) -> c_int = |_, kernel| {
        sigmask::change(how, new, old, |new, old| kernel(how, new, old), 0)
    }
    fn [pthread_sigmask](how: c_int, new: Out<Mask>, old: Out<Mask>) -> c_int = |_, kernel| {
        // Gives its error as its value.
        sigmask::change(how, new, old, |new, old| kernel(how, new, old), 0)
    }
}
