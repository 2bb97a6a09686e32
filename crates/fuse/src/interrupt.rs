//! Ending a wait inside the engine from another thread.
//!
//! The engine's waits end when the *watched word* of their thread says so (`os::interrupt`). A
//! thread that waits for a lock enters here and gets a word; a thread that wants it to end sets the
//! word and sends the thread a signal, whose handler takes it out of the system call in which it
//! may sleep.
//!
//! No locks but that of the spare words; words are never freed, since a late signal may look at
//! one.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

use crate::nodes::lock;
use os::interrupt::Watched;

/// The signal that says "look at your word". Ignored by default, so a late one does no harm.
const SIGNAL: c_int = libc::SIGURG;
const URGENT: u32 = 1;

/// A thread that waits, or could.
pub struct Waiter {
    word: AtomicU32,
    thread: AtomicU32,
}

static SPARE: Mutex<Vec<&'static Waiter>> = Mutex::new(Vec::new());
static START: Once = Once::new();
static NOBODY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static OWN: Cell<Option<&'static Waiter>> = const { Cell::new(None) };
}

fn watched() -> Watched {
    let word = OWN.get().map_or(&NOBODY, |waiter| &waiter.word);
    Watched { word, urgent: URGENT, idle: 0 }
}

extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own context, in its handler.
    unsafe { os::interrupt::redirect(context) };
}

fn start() {
    os::interrupt::watch(watched);
    // SAFETY: a zeroed structure is a valid empty action; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
    }
}

/// From now on this thread's waits can be ended.
pub fn enter() -> &'static Waiter {
    START.call_once(start);
    let spare = lock(&SPARE).pop();
    let waiter = spare.unwrap_or_else(|| {
        Box::leak(Box::new(Waiter { word: AtomicU32::new(0), thread: AtomicU32::new(0) }))
    });
    waiter.word.store(0, Ordering::Relaxed);
    waiter.thread.store(own_thread(), Ordering::Release);
    OWN.set(Some(waiter));
    waiter
}

/// The wait is over.
pub fn leave(waiter: &'static Waiter) {
    OWN.set(None);
    waiter.thread.store(0, Ordering::Release);
    lock(&SPARE).push(waiter);
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

impl Waiter {
    /// Ends the wait that this thread is in, or is about to begin.
    pub fn interrupt(&self) {
        self.word.store(URGENT, Ordering::Release);
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            let process = rustix::process::getpid().as_raw_nonzero().get();
            // SAFETY: a signal whose handler is installed, to a thread of this process; it may have
            // ended (ESRCH), which is as well.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
        }
    }
}
