//! Signal stacks that are too small (`sigaltstack`).
//!
//! SIGBUS and SIGSEGV come to this library first, and it uses the program's signal stack: for the
//! kernel's frame, which with wide vectors is larger than the 2,048 bytes that a stack must have,
//! and for what it does until it has left for a stack of its own (`mappings::page_faults`). A
//! program on a kernel file system gets by with such a stack as long as no signal comes; here one
//! comes where it touches a hole of a mapped file. And a handler that opens a file does not need
//! the stack for it that this library does. So where a stack has no room for the frame and for us,
//! the kernel gets a larger one of ours in its place. The program is told its own.
//!
//! There is a fixed number of these stacks; one whose thread has ended is used again. Beyond them,
//! a thread has the stack that it asked for. No locks: a place is taken by compare-and-swap.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::stack_t;
use os::interrupt::system_call;
use rustix::mm::{MapFlags, ProtFlags};
use vfs::Errno;

use crate::entry::pending_signals::NO_STACK;
use crate::entry::pointers::Out;
use crate::entry::thread::here;
use crate::entry::{DONE, Served, Stop};
use crate::runtime::guest;

/// Bytes of a stack of ours.
const BYTES: usize = 64 << 10;
/// What this library needs below the kernel's frame, for the call that needs most of it.
const ROOM: usize = 24 << 10;
/// The kernel tells the size of the largest frame (Linux 5.14).
const AT_MINSIGSTKSZ: libc::c_ulong = 51;
/// The least that the kernel takes.
const LEAST: usize = libc::MINSIGSTKSZ;
/// The flags of a stack that is used: each alone, or none.
const USED: [c_int; 4] = [0, libc::SS_ONSTACK, AUTODISARM, libc::SS_ONSTACK | AUTODISARM];
/// The stack is switched off while a handler runs on it.
pub const AUTODISARM: c_int = c_int::MIN;

/// A stack of ours. What the program was to have is written by the thread that has it.
struct StackSlot {
    /// The thread, and its process: a forked child leaves its parent's places alone.
    thread: AtomicU32,
    process: AtomicU32,
    /// Its memory; 0: not made yet.
    start: AtomicUsize,
    /// The stack that the program gave.
    given: AtomicUsize,
    given_bytes: AtomicUsize,
}

static PLACES: [StackSlot; 512] = [const {
    StackSlot {
        thread: AtomicU32::new(0),
        process: AtomicU32::new(0),
        start: AtomicUsize::new(0),
        given: AtomicUsize::new(0),
        given_bytes: AtomicUsize::new(0),
    }
}; 512];

/// The size from which on a program's stack will do.
fn enough() -> usize {
    // SAFETY: asks for a number: the largest frame; 0: the kernel does not say.
    let frame = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    frame.max(LEAST) + ROOM
}

fn own() -> (u32, u32) {
    let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get().cast_unsigned();
    (number(rustix::thread::gettid()), number(rustix::process::getpid()))
}

/// The place whose memory begins at an address.
fn at(start: usize) -> Option<&'static StackSlot> {
    PLACES.iter().find(|place| start != 0 && place.start.load(Ordering::Acquire) == start)
}

/// A place for the calling thread: the one that it has, or one that nobody has any more.
fn take() -> Option<&'static StackSlot> {
    let (thread, process) = own();
    let is_own = |place: &&StackSlot| {
        place.thread.load(Ordering::Relaxed) == thread
            && place.process.load(Ordering::Relaxed) == process
    };
    let free = |place: &&StackSlot| {
        let owner = place.thread.load(Ordering::Relaxed);
        let taken = owner != 0
            && (place.process.load(Ordering::Relaxed) != process || is_alive(process, owner));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        !taken && place.thread.compare_exchange(owner, thread, order.0, order.1).is_ok()
    };
    let place = PLACES.iter().find(is_own).or_else(|| PLACES.iter().find(free))?;
    place.process.store(process, Ordering::Relaxed);
    if place.start.load(Ordering::Relaxed) == 0 {
        let (prot, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
        );
        // SAFETY: a new mapping.
        let made = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), BYTES, prot, flags) };
        let Ok(made) = made else {
            place.thread.store(0, Ordering::Release);
            return None;
        };
        place.start.store(made as usize, Ordering::Release);
    }
    Some(place)
}

/// Whether this process has that thread.
fn is_alive(process: u32, thread: u32) -> bool {
    let arguments = [process as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: numbers; no signal is sent.
    let asked = unsafe { system_call(libc::SYS_tgkill, arguments) };
    asked != Err(Errno::SRCH)
}

/// Asks the kernel.
fn change(new: Option<&stack_t>) -> Result<stack_t, Errno> {
    // SAFETY: all zeros is a value of this plain structure, which the kernel fills in.
    let mut before: stack_t = unsafe { std::mem::zeroed() };
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as usize);
    let arguments = [new, (&raw mut before) as usize, 0, 0, 0, 0];
    // SAFETY: structures of our own. The stack is the program's, or one that only this thread has.
    unsafe { system_call(libc::SYS_sigaltstack, arguments)? };
    Ok(before)
}

/// The calling thread, of a guest's, has a standing stack from here on, which the kernel has while
/// the guest has none.
pub fn stand(start: usize) {
    let _ = change(Some(&standing(start)));
}

fn standing(start: usize) -> stack_t {
    stack_t { ss_sp: start as *mut _, ss_flags: 0, ss_size: guest::SIGNAL_BYTES }
}

/// `sigaltstack`. A handler that runs on one of our stacks is told of that one: Go's runtime looks
/// whether the stack that it is on is its own, or the one that the kernel has.
pub fn exchange(new: Out<stack_t>, old: Out<stack_t>) -> Served<c_int> {
    let mut wanted = new.get()?;
    let small = |stack: &stack_t| {
        USED.contains(&stack.ss_flags) && (LEAST..enough()).contains(&stack.ss_size)
    };
    let mut given = None;
    // Of a thread of a guest's: the standing stack is as large as ours.
    let guest = &here().guest;
    let stands = guest.signals.load(Ordering::Relaxed);
    let [known, known_bytes] = guest.asked.each_ref().map(|word| word.load(Ordering::Relaxed));
    let mut asked = None;
    if stands != 0
        && let Some(stack) = &mut wanted
    {
        asked = Some([0, 0]);
        if stack.ss_flags == libc::SS_DISABLE {
            *stack = standing(stands);
        } else if small(stack) {
            asked = Some([stack.ss_sp as usize, stack.ss_size]);
            *stack = stack_t { ss_flags: stack.ss_flags, ..standing(stands) };
        }
    }
    if let Some(stack) = &mut wanted
        && small(stack)
        && let Some(place) = take()
    {
        given = Some((place, stack.ss_sp as usize, stack.ss_size));
        stack.ss_sp = place.start.load(Ordering::Relaxed) as *mut _;
        stack.ss_size = BYTES;
    }
    let mut before = change(wanted.as_ref()).map_err(Stop::Errno)?;
    let is_on_it = before.ss_flags & libc::SS_ONSTACK != 0;
    if stands != 0 && before.ss_sp as usize == stands {
        if known_bytes == 0 {
            before = NO_STACK;
        } else if !is_on_it {
            (before.ss_sp, before.ss_size) = (known as *mut _, known_bytes);
        }
    }
    if let Some(asked) = asked {
        for (word, asked) in guest.asked.iter().zip(asked) {
            word.store(asked, Ordering::Relaxed);
        }
    }
    if !is_on_it && let Some(place) = at(before.ss_sp as usize) {
        before.ss_sp = place.given.load(Ordering::Relaxed) as *mut _;
        before.ss_size = place.given_bytes.load(Ordering::Relaxed);
    }
    if let Some((place, start, bytes)) = given {
        place.given.store(start, Ordering::Relaxed);
        place.given_bytes.store(bytes, Ordering::Relaxed);
    }
    if !old.is_null() {
        old.put(before)?;
    }
    DONE
}
