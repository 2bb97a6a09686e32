//! The thread that makes staging space ready before it is needed.
//!
//! A run that has become long asks for its next step (blocks allocated, pages present) while the
//! last one is being filled. The thread starts with the first such wish and ends when there was
//! none for a while: a program that stages little never has it, and one whose other threads have
//! ended does not wait for it. It takes no signal, allocates nothing, and holds nothing but the
//! lock of its slot.
//!
//! What it works on is numbers and addresses: the thread that gives a staging file away, cuts it or
//! maps it anew calls [`Worker::collect`] first, which waits for a step that is under way.
//!
//! A forked child has a new engine, and with it a worker without a thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{staging, sys};

/// So long it waits for another wish.
const PATIENCE: Duration = Duration::from_millis(200);
const STACK_BYTES: usize = 128 << 10;

/// A step that is wished for.
#[derive(Clone, Copy)]
pub struct Step {
    /// Which staging file: its descriptor.
    pub fd: i32,
    /// From this file offset.
    pub start: u64,
    /// So many bytes.
    pub length: u64,
    /// Where they are mapped.
    pub address: usize,
}

#[derive(Default)]
struct Slot {
    /// Wished for.
    wish: Option<Step>,
    /// Made ready.
    ready: Option<Step>,
    runs: bool,
    /// The thread cannot be started: that is not tried at each append.
    refused: bool,
}

/// See the head.
#[derive(Default)]
pub struct Worker {
    slot: Mutex<Slot>,
    wished: Condvar,
}

impl Worker {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a step. `false`: it is busy with another one, or there can be no thread.
    pub fn wish(self: &Arc<Self>, step: Step) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else { return false };
        if slot.refused || slot.wish.is_some() || slot.ready.is_some() {
            return false;
        }
        if !slot.runs {
            let worker = Arc::clone(self);
            let before = sys::block_signals();
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            slot.runs = thread.spawn(move || worker.run()).is_ok();
            sys::set_signals(before);
        }
        slot.refused = !slot.runs;
        if slot.refused {
            return false;
        }
        slot.wish = Some(step);
        self.wished.notify_one();
        true
    }

    /// Takes back what was wished for on `fd`: gives the step, if it was made ready.
    pub fn collect(&self, fd: i32) -> Option<Step> {
        let mut slot = self.slot();
        slot.wish.take_if(|step| step.fd == fd);
        slot.ready.take_if(|step| step.fd == fd)
    }

    fn run(&self) {
        let mut slot = self.slot();
        loop {
            if let Some(step) = slot.wish.take() {
                if make_ready(&step) {
                    slot.ready = Some(step);
                }
                continue;
            }
            let waited = self.wished.wait_timeout(slot, PATIENCE);
            let (kept, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            slot = kept;
            if timeout.timed_out() && slot.wish.is_none() {
                slot.runs = false;
                return;
            }
        }
    }
}

/// Does what the owner would do. `false`: the owner tries again, and gets the error.
fn make_ready(step: &Step) -> bool {
    let Ok(fd) = sys::borrow(step.fd) else { return false };
    if staging::allocate(fd, step.start, step.length).is_err() {
        return false;
    }
    let advice = rustix::mm::Advice::LinuxPopulateWrite;
    // SAFETY: a part of the staging file's mapping, which stays until the step is collected;
    // populating changes no content. It is a hint.
    let _ = unsafe {
        let start = std::ptr::with_exposed_provenance_mut(step.address);
        rustix::mm::madvise(start, step.length as usize, advice)
    };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::{AsFd, AsRawFd};
    use window::Window;

    /// What was wished for is there, and when nothing is wished for the thread ends.
    #[test]
    fn a_step_is_made_ready_and_the_thread_ends() {
        let file = rustix::fs::memfd_create("staging", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&file, 1 << 20).expect("its size");
        let window = Window::map(file.as_fd(), 0, 1 << 20, true, false).expect("map");
        let worker = Arc::new(Worker::default());
        let address = window.address(0, 1 << 20).expect("inside");
        let step = Step { fd: file.as_raw_fd(), start: 0, length: 1 << 20, address };
        assert!(worker.wish(step));
        let found = loop {
            // Taken back before the thread came to it: wished for again.
            if let Some(found) = worker.collect(step.fd) {
                break found;
            }
            worker.wish(step);
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((found.start, found.length), (0, 1 << 20));
        let stat = rustix::fs::fstat(&file).expect("stat");
        assert_eq!((stat.st_size, stat.st_blocks), (1 << 20, 2048));
        // However long that takes; the last thing that it lets go is the worker.
        while Arc::strong_count(&worker) > 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!worker.slot().runs, "it says that it ended");
    }
}
