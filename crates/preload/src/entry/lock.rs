//! The locks that a fork holds, and how the forking thread gives way to a thread that needs one.
//!
//! The child of a threaded parent must find none of these locks held by a thread that it does not
//! have, so a fork takes them all. But glibc's `fork` takes the C library's own locks (malloc's,
//! that of the streams' list) *after* all handlers of `pthread_atfork`, ours too. A thread whose
//! signal handler has interrupted malloc and calls into the volume may then wait for a lock of ours
//! that the forking thread holds, while that one waits for malloc's, for ever.
//!
//! So a thread that waits in vain asks the forking thread, by a signal, to give way. That thread's
//! handler (`fork::give_way`) acts only if it has interrupted a wait for some other lock: then the
//! child does not exist yet, since nothing waits between the system call and our handler after it.
//! It releases all locks, lets other threads have them, takes them again, and prepares the child
//! anew. The locks are held by the forking thread itself whenever the system call is made: the
//! child's copy of what they guard is whole.
//!
//! Asking interrupts the system call itself, which the kernel then starts anew: so each time the
//! thread waits twice as long before it asks. The signal is SIGBUS, whose handler is always ours,
//! and a fork keeps it deliverable. It cannot come late: the forking thread leaves only when no
//! thread is asking it, and takes what has been sent.
//!
//! Nothing here allocates: the heap's lock is one of them. They are taken inside only.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use os::interrupt::system_call;
use rustix::thread::{Timespec, futex};

use crate::entry::pending_signals;
use crate::entry::thread;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep on it.
const AWAITED: u32 = 2;

/// How often a lock is looked at before sleeping.
const LOOKS: u32 = 100;
/// Longest sleep while no thread is known to fork, ms.
const SLEEP_MS: u32 = 100;
/// Time after which the forking thread is asked first, ms.
const PATIENCE_MS: u32 = 1;
/// How often a thread that gives way checks whether the others are done, and how long it sleeps in
/// between, ns.
const TURNS: u32 = 20;
const TURN_NS: i64 = 50_000;

/// The forking thread's id, with the bits below; 0: there is none.
static FORKER: AtomicU32 = AtomicU32::new(0);
/// A thread is sending it the signal.
const ASKING: u32 = 1 << 31;
/// The signal was sent.
const ASKED: u32 = 1 << 30;
const THREAD: u32 = ASKED - 1;

/// How long to wait until it is asked (again), ms.
static PATIENCE: AtomicU32 = AtomicU32::new(PATIENCE_MS);
/// Threads that wait for some lock.
static WAITING: AtomicU32 = AtomicU32::new(0);

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
        WAITING.fetch_add(1, Ordering::Relaxed);
        for _ in 0..LOOKS {
            if self.state.load(Ordering::Relaxed) == FREE {
                break;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(AWAITED, Ordering::AcqRel) != FREE {
            let forks = FORKER.load(Ordering::Relaxed) != 0;
            let sleep = if forks { PATIENCE.load(Ordering::Relaxed) } else { SLEEP_MS };
            let limit = Timespec {
                tv_sec: i64::from(sleep / 1000),
                tv_nsec: i64::from(sleep % 1000) * 1_000_000,
            };
            let flags = futex::Flags::PRIVATE;
            let slept = futex::wait(&self.state, flags, AWAITED, Some(&limit));
            if slept == Err(rustix::io::Errno::TIMEDOUT) {
                ask();
            }
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
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
        if thread::has_one_thread() {
            // No thread waits.
            self.0.state.store(FREE, Ordering::Release);
        } else if self.0.state.swap(FREE, Ordering::AcqRel) == AWAITED {
            // A word of our own, which is never unmapped.
            let _ = futex::wake(&self.0.state, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Asks the forking thread to give way, unless another thread is asking.
#[cold]
fn ask() {
    let forker = FORKER.load(Ordering::Relaxed);
    if forker == 0 || forker & ASKING != 0 {
        return;
    }
    let asking = forker | ASKING | ASKED;
    if FORKER.compare_exchange(forker, asking, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        pending_signals::send_nudge(forker & THREAD);
        let patience = PATIENCE.load(Ordering::Relaxed);
        PATIENCE.store(patience.saturating_mul(2), Ordering::Relaxed);
        FORKER.fetch_and(!ASKING, Ordering::AcqRel);
    }
}

/// The holder of this is the one thread that forks.
static TURN: Lock<()> = Lock::new(());

/// The right to fork. From here on the calling thread can be asked to give way.
pub struct ForkPermit(#[allow(dead_code)] Guard<'static, ()>); // Held, not looked at.

impl ForkPermit {
    /// Waits for it.
    pub fn take() -> Self {
        let turn = TURN.lock();
        PATIENCE.store(PATIENCE_MS, Ordering::Relaxed);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        FORKER.store(thread.cast_unsigned(), Ordering::Release);
        Self(turn)
    }
}

impl Drop for ForkPermit {
    fn drop(&mut self) {
        let mut forker = FORKER.load(Ordering::Relaxed);
        loop {
            if forker & ASKING != 0 {
                std::thread::yield_now();
                forker = FORKER.load(Ordering::Relaxed);
                continue;
            }
            match FORKER.compare_exchange(forker, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => forker = found,
            }
        }
        if forker & ASKED != 0 {
            // The signal that was sent comes at the end of this call at the latest.
            // SAFETY: takes nothing.
            let _ = unsafe { system_call(libc::SYS_sched_yield, [0; 6]) };
        }
    }
}

/// Whether the calling thread has the right to fork.
pub fn has_turn() -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    FORKER.load(Ordering::Relaxed) & THREAD == thread.cast_unsigned()
}

/// For a thread that has given way: sleeps until the others are done, or have had time.
pub fn let_others() {
    for _ in 0..TURNS {
        if WAITING.load(Ordering::Relaxed) == 0 {
            return;
        }
        let time = Timespec { tv_sec: 0, tv_nsec: TURN_NS };
        // A signal may end it early.
        let _ = rustix::thread::nanosleep(&time);
    }
}

/// Whether no thread is in a fork: in a child of a raw system call.
pub fn no_thread_forks() -> bool {
    TURN.try_lock().is_some()
}

/// In a new process: it has no other thread.
pub fn forked() {
    FORKER.store(0, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
}
