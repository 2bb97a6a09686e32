//! The calls of this room: actions, masks, waits with a mask or for signals, signal stacks.

use std::ffi::c_int;

use libc::{epoll_event, fd_set, pollfd, siginfo_t, timespec};

use crate::entry::cached_fd;
use crate::entry::pointers::Out;
use crate::interposed::bodies;
use crate::signals::altstack;
use crate::signals::sigaction::{self, KernelAction};
use crate::signals::sigmask::{self, Mask, WithSize, with_blocked, with_mask, with_sized};

bodies! {
    fn rt_sigaction(
        signal: c_int, new: Out<KernelAction>, old: Out<KernelAction>, size: usize,
    ) -> c_int = |_, _| {
        sigaction::exchange(signal, new, old, size)
    }
    fn rt_sigprocmask(how: c_int, new: Out<Mask>, old: Out<Mask>, size: usize) -> c_int
    = |_, kernel| {
        sigmask::change(how, new, old, size, |new, old| kernel(how, new, old, size))
    }
    fn rt_sigpending(set: Out<Mask>, size: usize) -> c_int = |_, kernel| {
        with_blocked(|| kernel(set, size))
    }
    fn rt_sigtimedwait(
        set: Out<Mask>, info: *mut siginfo_t, time: *const timespec, size: usize,
    ) -> c_int = |_, kernel| {
        with_blocked(|| kernel(set, info, time, size))
    }
    fn rt_sigsuspend(mask: Out<Mask>, size: usize) -> c_int = |_, kernel| {
        with_mask(mask, size, |mask| kernel(mask, size))
    }
    fn ppoll(
        list: *mut pollfd, count: usize, time: *mut timespec, mask: Out<Mask>, size: usize,
    ) -> c_int = |_, kernel| {
        cached_fd::give_back();
        with_mask(mask, size, |mask| kernel(list, count, time, mask, size))
    }
    fn pselect6(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set,
        time: *mut timespec, mask: Out<WithSize>,
    ) -> c_int = |_, kernel| {
        cached_fd::give_back();
        with_sized(mask, |mask| kernel(count, reads, writes, others, time, mask))
    }
    fn epoll_pwait(
        poll: c_int, events: *mut epoll_event, count: c_int, time: c_int, mask: Out<Mask>,
        size: usize,
    ) -> c_int = |_, kernel| {
        with_mask(mask, size, |mask| kernel(poll, events, count, time, mask, size))
    }
    fn epoll_pwait2(
        poll: c_int, events: *mut epoll_event, count: c_int, time: *const timespec,
        mask: Out<Mask>, size: usize,
    ) -> c_int = |_, kernel| {
        with_mask(mask, size, |mask| kernel(poll, events, count, time, mask, size))
    }
    fn sigaltstack(new: Out<libc::stack_t>, old: Out<libc::stack_t>) -> c_int = |_, _| {
        altstack::exchange(new, old)
    }
}
