//! What a thread has waited for locks that other threads held, for who asks (`solera run
//! --profile`). All of it stands where a thread waits anyway.

use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A thread's waits, which only it changes.
#[repr(C)]
#[derive(Debug)]
pub struct Waits {
    /// How many.
    pub count: AtomicU64,
    /// What they took, in ticks of the processor's counter.
    pub ticks: AtomicU64,
    /// The process whose thread held the last one; 0: it is not known.
    pub whose: AtomicU32,
    /// When the last one began.
    begun: AtomicU64,
}

static ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HERE: Waits = const {
        Waits {
            count: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            whose: AtomicU32::new(0),
            begun: AtomicU64::new(0),
        }
    };
}

fn now() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// The calling thread's, which are counted from now on. They are there as long as the thread.
pub extern "C" fn of_thread() -> *const Waits {
    ASKED.store(true, Ordering::Relaxed);
    HERE.with(std::ptr::from_ref)
}

/// The calling thread begins to wait.
#[cold]
pub fn begin() {
    if ASKED.load(Ordering::Relaxed) {
        HERE.with(|here| here.begun.store(now(), Ordering::Relaxed));
    }
}

/// It has what it waited for; `whose` says which process had it.
#[cold]
pub fn end(whose: impl FnOnce() -> Option<u32>) {
    end_part(true, whose);
}

/// It has waited for a while, and may go on; only the `first` time of a wait counts as one.
#[cold]
pub fn end_part(first: bool, whose: impl FnOnce() -> Option<u32>) {
    if !ASKED.load(Ordering::Relaxed) {
        return;
    }
    let whose = whose().unwrap_or(0);
    HERE.with(|here| {
        let begun = here.begun.load(Ordering::Relaxed);
        let add = |word: &AtomicU64, more| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        // Asked for only meanwhile: when it began is not known.
        if begun != 0 {
            add(&here.ticks, now().saturating_sub(begun));
        }
        here.whose.store(whose, Ordering::Relaxed);
        add(&here.count, first.into());
    });
}
