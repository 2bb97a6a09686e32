//! Finds the record that serves this process: its own, none, or its parent's, until a forked child
//! has one of its own; and the engine, once it has attached the volume.
//!
//! A process attaches at the first call that reaches for the engine. Until then it has no place in
//! the volume: an image that inherits nothing of it, and a forked child that holds nothing there.
//! (What decides that, see [`crate::processes::init`] and [`crate::processes::fork`].)

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use vfs::Desc;

use crate::entry::hooks;
use crate::entry::lock::Lock;
use crate::entry::process::Process;
use crate::entry::thread::{Inside, here};

/// A page of its own, which the kernel empties in every forked child: a process that finds the
/// addresses there is the one that has this record, and the one that attached. That costs one load.
/// Threads share it.
#[repr(C, align(4096))]
struct Page {
    process: AtomicPtr<Process>,
    engine: AtomicPtr<Attached>,
    rest: [u8; PAGE_BYTES - 2 * size_of::<usize>()],
}

const PAGE_BYTES: usize = 4096;

static PAGE: Page = Page {
    process: AtomicPtr::new(std::ptr::null_mut()),
    engine: AtomicPtr::new(std::ptr::null_mut()),
    rest: [0; PAGE_BYTES - 2 * size_of::<usize>()],
};
/// The kernel empties the page.
static IS_WIPED: AtomicBool = AtomicBool::new(false);

/// This process, or the parent that it has inherited that from, has let go of what it would share
/// with its own parent, and has not attached since.
static IS_APART: AtomicBool = AtomicBool::new(false);

/// Held by a thread that attaches, across a fork, and across an exec of a process that has not.
pub static ATTACHING: Lock<()> = Lock::new(());

/// An engine that has attached.
pub struct Attached(pub &'static dyn vfs::Engine);

/// What is found late, and stays: a newer one takes its place.
pub struct Late<T: 'static>(AtomicPtr<T>);

impl<T> Late<T> {
    /// Nothing was found yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// What was found last.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or published once and never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes what was found.
    pub fn set(&self, found: T) -> &'static T {
        let found: &'static T = Box::leak(Box::new(found));
        self.0.store(std::ptr::from_ref(found).cast_mut(), Ordering::Release);
        found
    }
}

/// The engine. A call that reaches for it attaches the volume, if this process has not, and opens
/// the engine's memory to the calling thread, until that thread leaves (see
/// [`crate::entry::thread`]).
pub struct Engine(Late<Attached>);

impl Engine {
    /// None yet.
    pub const fn new() -> Self {
        Self(Late::new())
    }

    /// This process has attached it, or a place of its own in it.
    pub fn attached(&self, engine: &'static dyn vfs::Engine) {
        let known = self.known().filter(|known| std::ptr::addr_eq(known.0, engine));
        let engine = known.unwrap_or_else(|| self.0.set(Attached(engine)));
        IS_APART.store(false, Ordering::Relaxed);
        PAGE.engine.store(std::ptr::from_ref(engine).cast_mut(), Ordering::Release);
    }

    /// The one that this process has attached, or that it was forked with.
    pub fn known(&self) -> Option<&'static Attached> {
        self.0.get()
    }

    /// Whether this process has a place in the volume.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.known().is_some() && !PAGE.engine.load(Ordering::Acquire).is_null()
    }

    /// The same as by dereference, in a call of a number of ours: the process is attached, for none
    /// holds a description before. So nothing is looked at, nor kept for a call that attaches.
    #[inline]
    #[expect(clippy::unused_self, reason = "there is one engine, which is this one")]
    pub fn of(&self, _held: Desc) -> &dyn vfs::Engine {
        here().open();
        let engine = PAGE.engine.load(Ordering::Acquire);
        debug_assert!(!engine.is_null(), "a description is held by an attached process");
        // SAFETY: what is held is held by a process that has published its engine. (Descriptions
        // are opened, adopted or inherited by an engine that is attached; a child that has
        // inherited one has a place before its first call.)
        unsafe { (*engine).0 }
    }

    /// Attaches the volume, if this process has not.
    pub fn attach(&self) {
        if !self.is_attached() {
            attach();
        }
    }
}

impl Deref for Engine {
    type Target = dyn vfs::Engine;

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: null, or published once and never freed.
        let engine = unsafe { PAGE.engine.load(Ordering::Acquire).as_ref() };
        let engine = engine.unwrap_or_else(attach);
        here().open();
        engine.0
    }
}

/// Attaches the volume of this process, or ends it.
#[cold]
fn attach() -> &'static Attached {
    let _inside = Inside::new();
    if let Some(process) = known() {
        (hooks::get().attach)(process);
    }
    // SAFETY: null, or published once and never freed.
    let engine = unsafe { PAGE.engine.load(Ordering::Acquire).as_ref() };
    engine.unwrap_or_else(|| std::process::abort())
}

/// This process has let go of what it would share with its parent.
pub fn went_apart() {
    IS_APART.store(true, Ordering::Relaxed);
}

/// Whether it has, and has not attached since.
pub fn is_apart() -> bool {
    IS_APART.load(Ordering::Relaxed)
}

/// Whether a child finds the page empty.
pub fn is_wiped() -> bool {
    IS_WIPED.load(Ordering::Relaxed)
}

/// The same address, inherited by forked children.
static KNOWN: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// The process that is making itself known just now.
static ADOPTING: AtomicU32 = AtomicU32::new(0);

/// This process's record, if it has one. (The library's first call of all asks
/// [`crate::start`], which makes one.)
#[inline]
pub fn process() -> Option<&'static Process> {
    attached().or_else(other_process)
}

/// The same, but `None` in a child of a raw system call that has not called since.
#[inline]
pub fn attached() -> Option<&'static Process> {
    // SAFETY: null, or published once and never freed.
    unsafe { PAGE.process.load(Ordering::Acquire).as_ref() }
}

/// The record of this process or of the one that it was forked from.
pub fn known() -> Option<&'static Process> {
    // SAFETY: as above.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// From now on this process is served.
pub fn publish(process: &'static Process) {
    let process = std::ptr::from_ref(process).cast_mut();
    KNOWN.store(process, Ordering::Release);
    PAGE.process.store(process, Ordering::Release);
}

/// None, or another process's.
#[cold]
fn other_process() -> Option<&'static Process> {
    let process = known()?;
    let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
    loop {
        if let Some(process) = attached() {
            return Some(process);
        }
        let other = ADOPTING.load(Ordering::Relaxed);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if other != me && ADOPTING.compare_exchange(other, me, order.0, order.1).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    (hooks::get().adopt)(process);
    Some(process)
}

/// Lets the kernel empty the page in children. On a kernel that cannot, children of a raw system
/// call act as their parent, as in every library that keeps state.
pub fn mark_page() {
    let page = std::ptr::from_ref(&PAGE).cast_mut().cast::<c_void>();
    // SAFETY: a page of this library's own, which holds nothing else.
    let marked =
        unsafe { rustix::mm::madvise(page, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork) };
    IS_WIPED.store(marked.is_ok(), Ordering::Relaxed);
}
