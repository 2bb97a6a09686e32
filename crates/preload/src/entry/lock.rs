//! The locks that a fork holds. The child of a threaded parent must find none of them held by a
//! thread that it does not have, so a fork takes them all: behind the C library's own (see
//! [`crate::processes::fork`]).
//!
//! A child that shares its parent's memory finds them all held, for it: it takes none, and so
//! leaves none behind, wherever it dies (see [`crate::lending`]).
//!
//! Nothing here allocates: the heap's lock is one of them. They are taken inside only.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::entry::thread::{self, here};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep on it.
const AWAITED: u32 = 2;

/// How often a lock is looked at before sleeping.
const LOOKS: u32 = 100;
/// A mutex that a fork may hold. A panic while it is held ends the process.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Holds the lock until dropped.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        if here().is_lent() {
            return Some(Guard(self));
        }
        if thread::has_one_thread() {
            // Nothing comes between: signals wait until the thread leaves.
            let free = self.state.load(Ordering::Relaxed) == FREE;
            if free {
                self.state.store(HELD, Ordering::Relaxed);
            }
            return free.then(|| Guard(self));
        }
        // Releases too: a thread that finds it held finds out that its holder forks.
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok().then(|| Guard(self))
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        for _ in 0..LOOKS {
            if self.state.load(Ordering::Relaxed) == FREE {
                break;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(AWAITED, Ordering::AcqRel) != FREE {
            // A word of our own; a signal ends it early.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, AWAITED, None);
        }
        Guard(self)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if here().is_lent() {
            // Its parent's.
        } else if thread::has_one_thread() {
            // No thread waits.
            self.0.state.store(FREE, Ordering::Release);
        } else if self.0.state.swap(FREE, Ordering::AcqRel) == AWAITED {
            // A word of our own, which is never unmapped.
            let _ = futex::wake(&self.0.state, futex::Flags::PRIVATE, 1);
        }
    }
}
