//! Descriptors of shadows that stand for open descriptions: the kernel tells `IN_OPEN` when one is
//! opened and `IN_CLOSE_WRITE` or `IN_CLOSE_NOWRITE` when the last copy of it is closed, in any
//! process. So a forked child has them, too, and they cross an exec with the descriptions.

use crate::process::liveness::ThreadLock;
use os::InternalFd;
use rustix::io::FdFlags;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use vfs::Desc;

/// Those of this process.
#[derive(Default)]
pub(crate) struct Openings {
    /// How many descriptions have some.
    count: AtomicUsize,
    /// Held while the list changes, and while a child comes.
    lock: ThreadLock,
    /// A fork holds it.
    forks: AtomicBool,
    list: Mutex<Vec<(Desc, InternalFd)>>,
}

impl Openings {
    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn changed<T>(&self, change: impl FnOnce(&mut Vec<(Desc, InternalFd)>) -> T) -> T {
        let _guard = self.lock.lock();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let done = change(&mut list);
        self.count.store(list.len(), Ordering::Relaxed);
        done
    }

    /// A description was opened.
    pub(crate) fn add(&self, desc: Desc, opened: [Option<OwnedFd>; 2]) {
        let opened = opened.map(|fd| fd.map(InternalFd::new));
        if opened.iter().any(Option::is_some) {
            self.changed(|list| list.extend(opened.into_iter().flatten().map(|fd| (desc, fd))));
        }
    }

    /// This process has dropped its hold; whether it had some.
    pub(crate) fn close(&self, desc: Desc) -> bool {
        let of = |(of, _): &mut (Desc, _)| *of == desc;
        let closed: Vec<_> = self.changed(|list| list.extract_if(.., of).collect());
        !closed.is_empty()
    }

    /// Before a fork: the child finds nothing half done.
    pub(crate) fn hold(&self) {
        if !self.is_empty() {
            std::mem::forget(self.lock.lock());
            self.forks.store(true, Ordering::Relaxed);
        }
    }

    /// Behind it, in the parent.
    pub(crate) fn let_go(&self) {
        if self.forks.swap(false, Ordering::Relaxed) {
            self.lock.unlock();
        }
    }

    /// Before an exec: they stay open. Gives what the new image is told.
    pub(crate) fn survive_exec(&self) -> String {
        let mut told = String::new();
        if self.is_empty() {
            return told;
        }
        self.changed(|list| {
            for (desc, fd) in list.iter() {
                if rustix::io::fcntl_setfd(fd, FdFlags::empty()).is_ok() {
                    // Writing to a string cannot fail.
                    let (index, generation) = (desc.index(), desc.generation());
                    let _ = write!(told, "{index}.{generation}.{},", fd.as_raw_fd());
                }
            }
        });
        told
    }

    /// It failed.
    pub(crate) fn undo_exec(&self) {
        if !self.is_empty() {
            self.changed(|list| {
                for (_, fd) in list.iter() {
                    // Setting a flag of an open descriptor cannot fail.
                    let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
                }
            });
        }
    }

    /// In the new image: takes them over.
    pub(crate) fn take_over(&self, told: &str) {
        let parse = |one: &str| -> Option<(Desc, InternalFd)> {
            let mut words = one.split('.');
            let desc = Desc::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let number: u32 = words.next()?.parse().ok()?;
            let number = i32::try_from(number).ok()?;
            // SAFETY: used for a call that fails if the number is not open.
            let open = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(open, FdFlags::CLOEXEC).ok()?;
            // SAFETY: the old image kept it open for this one, and nothing else knows of it.
            Some((desc, InternalFd::in_place(unsafe { OwnedFd::from_raw_fd(number) })))
        };
        let taken: Vec<_> = told.split(',').filter_map(parse).collect();
        if !taken.is_empty() {
            self.changed(|list| list.extend(taken));
        }
    }
}
