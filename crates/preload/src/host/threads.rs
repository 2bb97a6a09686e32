//! The guest's threads. Each is a thread of the host's, so that the C library and this one have
//! theirs: it goes on with the registers, the stack and the thread pointer that the guest's call
//! has given. When it ends, what the kernel would do for the guest is done here: its robust mutexes
//! are marked, its word is cleared and the waiter woken, in this order.
//!
//! The first thread is the process's own, whose end is the kernel's to see to.

use std::ffi::c_long;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::thread::futex;
use vfs::Errno;

use crate::dispatch;
use crate::door;
use crate::entry::pending_signals::{OWN_MASK, set_mask, set_stack};
use crate::entry::pointers::Out;
use crate::entry::report;
use crate::entry::syscall::{self, Arguments};
use crate::entry::thread::{OwnCode, TRAP_STACK_BYTES, here};
use crate::entry::{Inside, cached_fd, thread};
use crate::host::memory;
use crate::runtime::guest::{self, Registers};
use crate::signals::altstack;

/// The stack of the host's thread, on which it begins and ends.
const STACK_BYTES: usize = 128 << 10;
const GUARD: usize = 4096;
/// The other stacks of the thread, from below: the standing signal stack, the stack on which calls
/// are served, each behind a page that nothing may touch.
const STACKS_BYTES: usize = GUARD + guest::SIGNAL_BYTES + GUARD + TRAP_STACK_BYTES;

/// The calling thread's other stacks, which are in use until dropped.
///
/// SIGSYS is never blocked, and the guest's stack may be somebody else's already where the thread
/// makes its last call (Go frees it before), or too small for a signal's frame. So the kernel has a
/// signal stack in each thread: the guest's, or the standing one.
///
/// They lie apart from the host's: to be told where that lies, the C library wants memory of its
/// own allocator, which begins with 128 MiB of addresses for each thread.
struct Stacks(usize);

impl Stacks {
    /// `None`: there is no memory. The guest then has no signal stack but its own.
    fn new() -> Option<Self> {
        let mut spare = SPARE.iter().map(|place| place.swap(0, Ordering::Acquire));
        let lowest = spare.find(|spare| *spare != 0).or_else(Self::made)?;
        let stacks = Self(lowest);
        let standing = lowest + GUARD;
        here().guest.signals.store(standing, Ordering::Relaxed);
        altstack::stand(standing);
        dispatch::has_stack(standing + guest::SIGNAL_BYTES + GUARD);
        Some(stacks)
    }

    fn made() -> Option<usize> {
        let (access, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
        );
        // SAFETY: a new mapping, two pages of which are given away.
        unsafe {
            let made = mmap_anonymous(std::ptr::null_mut(), STACKS_BYTES, access, flags).ok()?;
            for guard in [made, made.byte_add(GUARD + guest::SIGNAL_BYTES)] {
                let _ = mprotect(guard, GUARD, MprotectFlags::empty());
            }
            Some(made as usize)
        }
    }
}

/// Stacks of threads that have ended, with the pages that they have got: a page fault costs more
/// than the rest of a thread's begin. 0: none.
static SPARE: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

impl Drop for Stacks {
    fn drop(&mut self) {
        dispatch::has_no_stack();
        let (order, other) = (Ordering::Release, Ordering::Relaxed);
        if SPARE.iter().any(|place| place.compare_exchange(0, self.0, order, other).is_ok()) {
            return;
        }
        // SAFETY: the mapping of `new`, which nothing stands on: the thread ends.
        let _ = unsafe { munmap(self.0 as *mut _, STACKS_BYTES) };
    }
}

/// Whether the calling thread is the process's first.
pub fn is_first() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero();
    own == rustix::process::getpid().as_raw_nonzero()
}

/// What a new thread begins with.
struct Birth {
    registers: Registers,
    pointer: usize,
    /// The word that is cleared at its end.
    clears: usize,
    /// The words that its number is put into before it runs, for itself and for its parent; 0:
    /// none.
    for_child: usize,
    for_parent: usize,
    told: AtomicU32,
    mask: u64,
    blocks: u64,
    /// Its number, once it has begun.
    number: AtomicU32,
}

/// Whether the parent's word has the number.
const UNTOLD: u32 = 0;
const BEING_TOLD: u32 = 1;
const AWAITED: u32 = 2;
const TOLD: u32 = 3;

impl Birth {
    /// Puts the number where the parent wants it. Whoever comes first does, the parent or the
    /// thread, and neither goes on before that: the word may be the one that is cleared when the
    /// thread ends, and the parent does not wait until the thread gets a CPU.
    fn tell(&self, number: u32) {
        let (both, one) = (Ordering::AcqRel, Ordering::Acquire);
        if self.told.compare_exchange(UNTOLD, BEING_TOLD, both, one).is_ok() {
            if self.for_parent != 0 {
                // As in the kernel: the thread is there even where this fails.
                let _ = Out(self.for_parent as *mut u32).put(number);
            }
            if self.told.swap(TOLD, both) == AWAITED {
                let _ = futex::wake(&self.told, futex::Flags::PRIVATE, 1);
            }
            return;
        }
        while self.told.load(one) != TOLD {
            let _ = self.told.compare_exchange(BEING_TOLD, AWAITED, both, one);
            let _ = futex::wait(&self.told, futex::Flags::PRIVATE, AWAITED, None);
        }
    }
}

/// A call that makes a thread. `None`: it makes a process, as those of other programs.
pub fn clone(number: c_long, given: &Arguments, registers: &Registers) -> Option<isize> {
    let (flags, stack) = door::flags_of(number, given)?;
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    if !has(libc::CLONE_VM) || has(libc::CLONE_VFORK) {
        return None;
    }
    if !has(libc::CLONE_THREAD) || !has(libc::CLONE_SIGHAND) || stack == 0 {
        report::refused("clone", "process-that-shares-memory", Errno::NOSYS);
        return Some(-(libc::ENOSYS as isize));
    }
    // Flags, where the child's number is put for the parent and for the child, thread pointer.
    let words = if number == libc::SYS_clone3 {
        let Ok(words) = Out(given[0] as *mut [u64; 8]).value() else {
            return Some(-(libc::EFAULT as isize));
        };
        [words[3], words[2], words[7]].map(|word| word as usize)
    } else {
        [given[2], given[3], given[4]]
    };
    Some(match begin(registers, stack, flags, words) {
        Ok(number) => number as isize,
        Err(errno) => -(errno.raw_os_error() as isize),
    })
}

fn begin(
    registers: &Registers,
    stack: usize,
    flags: u64,
    [for_parent, for_child, pointer]: [usize; 3],
) -> Result<u32, Errno> {
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    let thread = here();
    let mut registers = *registers;
    registers[libc::REG_RAX as usize] = 0;
    registers[libc::REG_RSP as usize] = stack as i64;
    let _inside = Inside::new();
    cached_fd::before_thread();
    thread::second_thread_begins();
    // The new thread begins with everything blocked, until it is the guest's.
    let found = set_mask(!OWN_MASK);
    // A signal that was kept back since has blocked all others.
    let is_pending = thread.flags.load(Ordering::Relaxed) & thread::PENDING != 0;
    let mask = if is_pending { thread.mask.load(Ordering::Relaxed) } else { found };
    let of_parent = thread.guest.pointer.load(Ordering::Relaxed);
    let birth = Arc::new(Birth {
        registers,
        pointer: if has(libc::CLONE_SETTLS) { pointer } else { of_parent },
        clears: if has(libc::CLONE_CHILD_CLEARTID) { for_child } else { 0 },
        for_child: if has(libc::CLONE_CHILD_SETTID) { for_child } else { 0 },
        for_parent: if has(libc::CLONE_PARENT_SETTID) { for_parent } else { 0 },
        told: AtomicU32::new(UNTOLD),
        mask,
        blocks: thread.blocks.load(Ordering::Relaxed),
        number: AtomicU32::new(0),
    });
    let its = Arc::clone(&birth);
    let made = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || live(its));
    let number = made.map(|thread| {
        let number = number_of(&thread).unwrap_or_else(|| birth.number.load(Ordering::Acquire));
        birth.tell(number);
        number
    });
    set_mask(found);
    let number = number
        .map_err(|error| error.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error))?;
    Ok(number)
}

/// The number of a thread that may not have run yet, as the C library got it from the kernel: the
/// clock of its processor time is named by it. `None`: it has ended, so it had begun.
fn number_of(thread: &JoinHandle<()>) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: a thread that is neither joined nor detached; a place for the answer.
    let failed = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) };
    // All bits but the lowest three are the number's, turned.
    let number = !(clock >> 3);
    (failed == 0 && number > 0).then_some(number.cast_unsigned())
}

/// A thread's whole life, on its own stack.
fn live(birth: Arc<Birth>) {
    let own = OwnCode::new();
    let thread = here();
    let number = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    birth.number.store(number, Ordering::Release);
    if birth.for_child != 0 {
        let _ = Out(birth.for_child as *mut u32).put(number);
    }
    birth.tell(number);
    thread.blocks.store(birth.blocks, Ordering::Relaxed);
    thread.guest.pointer.store(birth.pointer, Ordering::Relaxed);
    thread.guest.clears.store(birth.clears, Ordering::Relaxed);
    let stacks = Stacks::new();
    let (registers, mask) = (birth.registers, birth.mask);
    drop(birth);
    thread.guest.has_begun.store(true, Ordering::Relaxed);
    set_mask(mask);
    drop(own);
    // SAFETY: the guest's registers behind its call; comes back by `exit`.
    unsafe { guest::enter(&registers) };
    drop(stacks);
}

/// `exit`: the thread is over. `None`: it is the first, which the kernel ends.
pub fn exit() -> Option<isize> {
    if is_first() {
        return None;
    }
    std::mem::forget(OwnCode::new());
    set_mask(!OWN_MASK);
    let context = &here().guest;
    context.signals.store(0, Ordering::Relaxed);
    set_stack(None);
    let number = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let robust = context.robust.swap(0, Ordering::Relaxed);
    if robust != 0 {
        // The list lies in memory that is given back, perhaps.
        let none = [0, size_of::<RobustHead>(), 0, 0, 0, 0];
        syscall::kernel(libc::SYS_set_robust_list, none);
        mark_robust(robust, number);
    }
    memory::give_back(&context.left);
    let clears = context.clears.swap(0, Ordering::Relaxed);
    if clears != 0 && Out(clears as *mut u32).put(0).is_ok() {
        // The kernel wakes one of another process, too.
        let wake = libc::FUTEX_WAKE as usize;
        syscall::kernel(libc::SYS_futex, [clears, wake, 1, 0, 0, 0]);
    }
    // SAFETY: `live` is on this thread's own stack. Of the guards that are left behind one says
    // that own code runs, which stays so until the end.
    unsafe { guest::leave() }
}

/// `set_tid_address`. `None`: of the first thread, whose end the kernel sees.
pub fn clears_at_end(word: usize) -> Option<isize> {
    if is_first() {
        return None;
    }
    here().guest.clears.store(word, Ordering::Relaxed);
    Some(rustix::thread::gettid().as_raw_nonzero().get() as isize)
}

/// The kernel's structure: the list's head, the distance from an entry to its word, an entry that
/// is not in the list yet.
type RobustHead = [usize; 3];

/// `set_robust_list`.
pub fn robust_list(given: &Arguments) -> Result<usize, Errno> {
    if given[1] != size_of::<RobustHead>() {
        return Err(Errno::INVAL);
    }
    // The kernel's, which looks at it when the process is killed, ends or executes something. The
    // host's C library has no such mutexes.
    syscall::kernel(libc::SYS_set_robust_list, *given);
    if !is_first() {
        here().guest.robust.store(given[0], Ordering::Relaxed);
    }
    Ok(0)
}

/// Most entries of a list that the kernel looks at.
const ROBUST_MAX: usize = 2048;
const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// Marks the robust mutexes of a thread that ends, as the kernel does.
fn mark_robust(head: usize, number: u32) {
    let Ok([first, distance, pending]) = Out(head as *mut RobustHead).value() else { return };
    let (mut at, mut count) = (first, 0);
    // The lowest bit marks one with priorities, whose waiters the kernel knows.
    while at & !1 != head && count < ROBUST_MAX {
        let next = Out((at & !1) as *mut usize).value();
        if at != pending {
            mark((at & !1).wrapping_add(distance), number, false);
        }
        let Ok(next) = next else { return };
        (at, count) = (next, count + 1);
    }
    if pending & !1 != 0 {
        mark((pending & !1).wrapping_add(distance), number, true);
    }
}

fn mark(word: usize, number: u32, is_pending: bool) {
    let Ok(found) = Out(word as *mut u32).value() else { return };
    if !word.is_multiple_of(size_of::<u32>()) {
        return;
    }
    let wake = || {
        syscall::kernel(libc::SYS_futex, [word, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]);
    };
    if is_pending && found == 0 {
        // It was unlocked, and the waiter not yet woken.
        return wake();
    }
    // SAFETY: a word of the guest's that was readable, and is a mutex of its own: writable.
    let shared = unsafe { AtomicU32::from_ptr(word as *mut u32) };
    let died = |value: u32| {
        (value & FUTEX_TID_MASK == number).then_some(value & FUTEX_WAITERS | FUTEX_OWNER_DIED)
    };
    let order = Ordering::AcqRel;
    if let Ok(before) = shared.fetch_update(order, Ordering::Acquire, died)
        && before & FUTEX_WAITERS != 0
    {
        wake();
    }
}
