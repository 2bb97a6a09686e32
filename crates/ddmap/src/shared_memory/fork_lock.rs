//! A lock that a forked child can do away with: another thread of its parent may have held it when
//! the child was forked, and is not there to give it back.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value under a lock.
pub(crate) struct ForkLock<T>(AtomicPtr<Mutex<T>>);

impl<T> ForkLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(Mutex::new(value)))))
    }

    /// The lock itself.
    pub(crate) fn get(&self) -> &Mutex<T> {
        // SAFETY: a box, which is leaked when there is another one, and freed by `drop` alone.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: there is this value from now on. What was there is dropped, if nobody
    /// held it; else it is left as it was.
    pub(crate) fn renew(&self, value: T) {
        if let Ok(mut old) = self.get().try_lock() {
            *old = value;
            return;
        }
        self.0.store(Box::into_raw(Box::new(Mutex::new(value))), Ordering::Release);
    }
}

impl<T> Drop for ForkLock<T> {
    fn drop(&mut self) {
        // SAFETY: made by a box, and nobody looks at it any more.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_nobody_gives_back_is_done_away_with() {
        let renewed = ForkLock::new(1);
        let held = renewed.lock();
        renewed.renew(2);
        assert_eq!((*held, *renewed.lock()), (1, 2));
        renewed.renew(3);
        assert_eq!(*renewed.lock(), 3);
    }
}
