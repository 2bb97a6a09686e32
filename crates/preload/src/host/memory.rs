//! The guest's `brk`, and a stack that its thread gives back before it ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::entry::Inside;
use crate::entry::lock::Lock;
use crate::entry::syscall::Arguments;
use crate::entry::thread::here;
use crate::runtime::guest::Registers;

const PAGE: usize = 4096;

/// Where the memory behind the image begins, and where it ends.
static HEAP: Lock<[usize; 2]> = Lock::new([0; 2]);

/// The image ends there.
pub fn begin(end: usize) {
    let start = end.next_multiple_of(PAGE);
    *HEAP.lock() = [start; 2];
}

/// `brk`: moves the end, if the memory is free; gives where it is.
pub fn brk(asked: usize) -> usize {
    let _inside = Inside::new();
    let mut heap = HEAP.lock();
    let [start, end] = *heap;
    let (mapped, wanted) = (end.next_multiple_of(PAGE), asked.next_multiple_of(PAGE));
    if asked < start || wanted < asked {
        return end;
    }
    let changed = match wanted.checked_sub(mapped) {
        Some(0) => true,
        Some(more) => {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: nothing else is there, or it fails.
            let made = unsafe { mmap_anonymous(mapped as *mut _, more, access, flags) };
            made.is_ok_and(|at| at as usize == mapped)
        }
        // SAFETY: what was mapped here, and is given back.
        None => unsafe { munmap(wanted as *mut _, mapped - wanted) }.is_ok(),
    };
    if changed {
        heap[1] = asked;
    }
    heap[1]
}

/// `munmap` of the stack that the thread stands on: it ends next, by a call that the kernel could
/// not tell us of without a stack. So it keeps it until then. `None`: it is of something else.
pub fn unmap(given: &Arguments, registers: &Registers) -> Option<isize> {
    let stack = registers[libc::REG_RSP as usize] as usize;
    let thread = here();
    let is_own = (given[0]..given[0].saturating_add(given[1])).contains(&stack);
    if !is_own || super::threads::is_first() {
        return None;
    }
    for (place, value) in thread.guest.left.iter().zip([given[0], given[1]]) {
        place.store(value, Ordering::Relaxed);
    }
    Some(0)
}

/// The thread ends, on another stack.
pub fn give_back(left: &[AtomicUsize; 2]) {
    let [at, bytes] = [0, 1].map(|index: usize| left[index].load(Ordering::Relaxed));
    if at != 0 {
        // SAFETY: as the guest has asked.
        let _ = unsafe { munmap(at as *mut _, bytes) };
    }
}
