//! The library's record of each thread: how deep it is inside, and what waits until it leaves.
//!
//! A thread is *inside* while its depth is not 0: our code runs, may hold locks, and its own calls
//! go to the kernel. The program's code (a signal handler, a callback, the end of a cancelled
//! thread) never runs while its thread is inside: the room of signals keeps signals back,
//! [`crate::entry::cancel`] keeps asynchronous cancellation back, and the end of the outermost
//! [`Inside`] lets both happen.
//!
//! The engine's memory is closed to the thread (see [`pmem::key`]), except from a call's first use
//! of the engine until the thread leaves: so a call that the kernel serves costs nothing. Opening
//! sets the rights as needed, whatever the program did to them; its other rights stay. Handlers run
//! with the key closed, whatever they interrupt, and the kernel gives the interrupted code its
//! rights back.
//!
//! The record lies in the thread's static TLS block, at the same distance from the thread pointer
//! in all threads, so that it is found in two loads and without `__tls_get_addr`; it is zero in
//! a new thread.
//!
//! Invariants: `depth` changes only in its own thread, and a signal handler leaves it as it found
//! it (or never comes back, to a place where it is 0). `flags` changes by atomic operations: also
//! by handlers, and `CANCELLED` by other threads. A thread that leaves sets `depth` to 0 *before*
//! looking at `flags`: a signal before that is kept back and seen, one after it runs its handler at
//! once. `closed` is not 0 only while `depth` is not 0, and exactly while the memory is open.

use ddmap::Pagers;
use std::arch::{asm, global_asm};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

use vfs::cred::Cred;

use crate::entry::cancel;
use crate::entry::pending_signals::{self, FAULTS, OWN, PendingSignal};
use crate::runtime::{guest, relocation};

/// A signal was kept back, and all but the faults are blocked until it is given.
pub const PENDING: u32 = 1;
/// A fault's signal that was sent, not raised by a fault, was kept back.
pub const SENT: u32 = 2;
/// The thread's cancellation type is asynchronous.
pub const ASYNCHRONOUS: u32 = 4;
/// The thread was cancelled.
pub const CANCELLED: u32 = 8;

/// One thread's record.
#[repr(C, align(64))]
pub struct Thread {
    /// How many [`Inside`] there are.
    pub depth: AtomicU32,
    /// What waits, of the constants above.
    pub flags: AtomicU32,
    /// The signal mask before `PENDING` was set.
    pub mask: AtomicU64,
    /// The signals that the program has blocked and the kernel has not (see
    /// [`crate::signals::sigmask`]).
    pub blocks: AtomicU64,
    /// Whether the kernel would restart a call that the kept signal interrupts.
    pub restarts: AtomicBool,
    /// Not 0: our own code runs, inside or not (see [`OwnCode`]).
    pub own: AtomicU8,
    /// What became of the paths of the call that the thread makes (see [`crate::paths::links`]).
    pub links: AtomicU8,
    /// The volume that what is reported next concerns, from 1 on; 0: not known (see
    /// [`crate::entry::report`]).
    pub about: AtomicU8,
    /// Where the code outside the C library stands whose call is served; 0: it is none of these
    /// (see [`crate::dispatch`]).
    pub caller: AtomicUsize,
    /// It is inside, and makes a call of the program's that the second engine may serve (see
    /// [`crate::split::engine::passing`]).
    pub passes: AtomicBool,
    /// The next system call of the C library's is passed on: it was looked at already (see
    /// [`crate::door`]).
    pub passes_next: AtomicBool,
    /// The thread that waits until a child which shares its memory executes something, whose record
    /// this is; 0: none.
    pub lent_by: AtomicU32,
    /// What such a child has of a parent that is served (see [`crate::lending`]); 0: the
    /// parent's own calls, or there is none.
    pub lending: AtomicUsize,
    /// Where such a child allocates from, and up to where (see [`crate::entry::heap`]); 0: from the
    /// heap.
    pub arena: [AtomicUsize; 2],
    /// Not 0: the thread was cancelled where its call arrived, before the kernel was asked to serve
    /// it; it may end before that (see [`crate::entry::cancel`]).
    pub ends_first: AtomicU32,
    /// What the kernel looks at where a system call is made outside the C library (see
    /// [`crate::dispatch`]): [`PASSES`] while our own code runs, else [`TRAPS`]. The entry of the
    /// door finds it behind the word before ([`door::entry::Call::again`]).
    pub selector: AtomicU8,
    /// The stack on which calls from outside the C library are served (see [`crate::dispatch`]); 0:
    /// there was none yet.
    pub trap_stack: AtomicUsize,
    /// The signal stack of a handler that runs on it, or ran, while the kernel has it switched off
    /// (`SS_AUTODISARM`): address and bytes.
    pub disarmed: [AtomicUsize; 2],
    /// While the engine's memory is open to the thread: what closes it; else 0.
    pub closed: AtomicU32,
    /// How many calls of it let the kernel close or replace numbers (see
    /// [`crate::entry::cached_fd`]).
    pub announced: AtomicU32,
    /// How many replaced numbers it has looked at (see `entry`).
    pub replaced: AtomicU32,
    /// Its identity, where threads differ, and at how many changes it asked for it; 0: not yet (see
    /// [`crate::paths::credentials`]).
    pub cred: AtomicPtr<Cred>,
    pub cred_changes: AtomicU32,
    /// Where a program without the C library runs: what is its own.
    pub guest: guest::Context,
    /// The kept signal, while `PENDING`.
    pub kept: UnsafeCell<PendingSignal>,
    /// The kept signals of faults' numbers, while `SENT`; number 0: none.
    pub sent: UnsafeCell<[PendingSignal; FAULTS.len()]>,
    /// Those that were sent while the program has them blocked, in the order of
    /// [`crate::entry::pending_signals::OWN`]; number 0: none.
    pub held: UnsafeCell<[PendingSignal; OWN.len()]>,
}

const _: () = assert!(offset_of!(Thread, selector) == offset_of!(Thread, ends_first) + 4);

/// Bytes of the stack on which a thread's calls from outside are served: handlers of the program's
/// may run on it, while a call waits, and interrupt each other.
pub const TRAP_STACK_BYTES: usize = 1 << 20;
/// What a function may use below its stack pointer.
pub const RED_ZONE: usize = 128;

/// The kernel serves system calls of any code.
pub const PASSES: u8 = 0;
/// The kernel sends SIGSYS where code outside the C library makes a system call.
pub const TRAPS: u8 = 1;

/// Of a record.
pub const BYTES: usize = size_of::<Thread>();

global_asm!(
    ".pushsection .tbss.solera_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl solera_thread",
    ".hidden solera_thread",
    ".type solera_thread, @object",
    ".size solera_thread, {bytes}",
    "solera_thread:",
    ".zero {bytes}",
    ".popsection",
    bytes = const BYTES,
);

/// The calling thread's record.
#[inline]
pub fn here() -> &'static Thread {
    let at: *const Thread;
    // SAFETY: the thread pointer (which points at itself) plus the distance that the dynamic linker
    // put into the table. Not `pure`: code may go on in another thread after a callback.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + solera_thread@GOTTPOFF]",
            at = out(reg) at,
            options(nostack, readonly),
        );
        &*at
    }
}

/// The record of another thread, whose `pthread_t` is its thread pointer.
///
/// # Safety
///
/// The thread exists.
pub unsafe fn of(thread: libc::pthread_t) -> &'static Thread {
    // SAFETY: asks for a number.
    let own = unsafe { libc::pthread_self() } as usize;
    let distance = (std::ptr::from_ref(here()) as usize).wrapping_sub(own);
    // SAFETY: static TLS lies at the same distance in every thread.
    unsafe { &*((thread as usize).wrapping_add(distance) as *const Thread) }
}

/// Not 0 only while the process has one thread, of whichever C library's or raw system call's: the
/// door sees each that begins.
static ONE: AtomicU8 = AtomicU8::new(1);

/// That word.
#[inline]
pub fn single() -> &'static AtomicU8 {
    &ONE
}

/// Whether the process has one thread.
#[inline]
pub fn has_one_thread() -> bool {
    ONE.load(Ordering::Relaxed) != 0
}

/// Before a second thread begins.
pub fn second_thread_begins() {
    relocation::finish();
    ONE.store(0, Ordering::Relaxed);
}

/// In a new process: it has no other thread.
pub fn forked() {
    ONE.store(1, Ordering::Relaxed);
}

impl Thread {
    /// Whether our code runs.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0
    }

    /// Whether something waits that a call of the program's has to look at: a kept signal, a
    /// cancellation.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Whether the next call of the C library's may not be served as others.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.ends_first.load(Ordering::Relaxed)
            | self.lent_by.load(Ordering::Relaxed)
            | u32::from(self.passes_next.load(Ordering::Relaxed))
            != 0
    }

    /// Whether it runs as a child that shares its parent's memory: its parent's locks are held for
    /// it, and nothing that it leaves behind may be its own.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.lending.load(Ordering::Relaxed) != 0
    }

    /// The record as it is, to be put back once a child that it is lent to has gone.
    pub fn save(&self) -> [u8; BYTES] {
        // SAFETY: the thread's own record.
        unsafe { std::ptr::from_ref(self).cast::<[u8; BYTES]>().read() }
    }

    /// Puts a record back, but for what other threads have said meanwhile.
    pub fn restore(&self, saved: &[u8; BYTES]) {
        let told = self.flags.load(Ordering::Relaxed) & CANCELLED;
        // SAFETY: the thread's own record, as it was.
        unsafe {
            std::ptr::from_ref(self).cast_mut().cast::<[u8; BYTES]>().write(*saved);
        }
        self.flags.fetch_or(told, Ordering::Relaxed);
    }

    /// What the entry of the door looks at before it makes a call ([`door::entry::Call::again`]).
    #[inline]
    pub fn looked(&self) -> *const AtomicU32 {
        // With the byte behind it.
        std::ptr::from_ref(self).wrapping_byte_add(offset_of!(Self, ends_first)).cast()
    }

    #[inline]
    fn add_depth(&self, by: u32) {
        self.depth.store(self.depth.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        self.selector.store(PASSES, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Takes `by` from the depth; at 0 closes the engine's memory and does what waits.
    #[inline]
    fn take_depth(&self, by: u32) {
        compiler_fence(Ordering::SeqCst);
        let depth = self.depth.load(Ordering::Relaxed).wrapping_sub(by);
        if depth == 0 {
            self.close();
            self.selector.store(TRAPS ^ self.own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.flags.load(Ordering::Relaxed) != 0 && depth == 0 {
            self.left();
        }
    }

    /// However deep it is inside: it is not.
    pub fn leave_all(&self) {
        self.take_depth(self.depth.load(Ordering::Relaxed));
    }

    /// Opens the engine's memory to the thread, which is inside.
    #[inline]
    pub fn open(&self) {
        debug_assert!(self.is_inside(), "the engine is reached from inside only");
        if self.closed.load(Ordering::Relaxed) == 0 {
            self.closed.store(pmem::key::open(), Ordering::Relaxed);
        }
    }

    /// Closes it; whether it was open.
    #[inline]
    fn close(&self) -> bool {
        let closed = self.closed.load(Ordering::Relaxed);
        if closed == 0 {
            return false;
        }
        pmem::key::close(closed);
        self.closed.store(0, Ordering::Relaxed);
        true
    }

    #[cold]
    fn entering(&self) {
        if self.flags.load(Ordering::Relaxed) & ASYNCHRONOUS != 0 && !self.is_inside() {
            cancel::hold();
        }
    }

    #[cold]
    fn left(&self) {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & (PENDING | SENT) != 0 {
            let _own = OwnCode::new();
            pending_signals::deliver(self);
        }
        if flags & ASYNCHRONOUS != 0 {
            cancel::release();
        }
    }
}

/// This thread is inside until dropped.
pub struct Inside(());

impl Inside {
    /// Enters, or enters once more.
    #[inline]
    pub fn new() -> Self {
        let thread = here();
        if thread.flags.load(Ordering::Relaxed) != 0 {
            thread.entering();
        }
        thread.add_depth(1);
        Self(())
    }

    /// Whether this thread is inside.
    pub fn already() -> bool {
        here().is_inside()
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        here().take_depth(1);
    }
}

/// Until dropped our own code runs, inside or not: its system calls are the kernel's.
pub struct OwnCode {
    own: u8,
    selector: u8,
}

impl OwnCode {
    /// In a call that has arrived, or in what own code calls.
    #[inline]
    pub fn new() -> Self {
        let thread = here();
        let own = thread.own.load(Ordering::Relaxed);
        let passes = own != 0 || thread.is_inside();
        Self { own, selector: if passes { PASSES } else { TRAPS } }.replaced_by(1)
    }

    /// In the handler of a signal, which may have come where a call is made.
    #[inline]
    pub fn interrupting() -> Self {
        Self::found().replaced_by(1)
    }

    /// The program's code runs instead, until dropped.
    #[inline]
    pub fn not() -> Self {
        Self::found().replaced_by(0)
    }

    /// What was found was left: when this is dropped, the program's code runs.
    pub fn leave(&mut self) {
        (self.own, self.selector) = (0, TRAPS);
    }

    /// Own code is left for ever without what dropping this would have done: the program's runs.
    pub fn is_left() {
        let thread = here();
        thread.own.store(0, Ordering::Relaxed);
        thread.selector.store(TRAPS, Ordering::Relaxed);
    }

    #[inline]
    fn found() -> Self {
        let thread = here();
        let (own, selector) = (&thread.own, &thread.selector);
        Self { own: own.load(Ordering::Relaxed), selector: selector.load(Ordering::Relaxed) }
    }

    #[inline]
    fn replaced_by(self, own: u8) -> Self {
        let thread = here();
        thread.own.store(own, Ordering::Relaxed);
        thread.selector.store(TRAPS ^ own, Ordering::Relaxed);
        self
    }
}

impl Drop for OwnCode {
    #[inline]
    fn drop(&mut self) {
        let thread = here();
        thread.own.store(self.own, Ordering::Relaxed);
        thread.selector.store(self.selector, Ordering::Relaxed);
    }
}

/// The program's code runs until dropped.
struct Outside {
    depth: u32,
    open: bool,
}

impl Drop for Outside {
    fn drop(&mut self) {
        let thread = here();
        if self.depth != 0 && thread.flags.load(Ordering::Relaxed) != 0 {
            thread.entering();
        }
        thread.add_depth(self.depth);
        if self.open {
            thread.open();
        }
        if Pagers::any() {
            // What a call held that the kernel has served.
            Pagers::let_go();
        }
    }
}

/// Runs the program's own functions (callbacks), and calls that may wait for something outside, as
/// if called from the program. No lock of ours may be held. They may throw, end the thread, or
/// `longjmp` away: then the thread is not inside.
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    let thread = here();
    let depth = thread.depth.load(Ordering::Relaxed);
    let _outside = Outside { depth, open: thread.closed.load(Ordering::Relaxed) != 0 };
    let _programs = OwnCode::not();
    thread.take_depth(depth);
    call()
}

/// The next system call of the C library's that this thread makes is passed on, until dropped.
pub struct PassesNext(());

impl PassesNext {
    #[inline]
    pub fn new() -> Self {
        here().passes_next.store(true, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for PassesNext {
    #[inline]
    fn drop(&mut self) {
        // A call that fails in the C library makes none.
        here().passes_next.store(false, Ordering::Relaxed);
    }
}
