//! The functions of upper rooms that lower ones call, in a table that is set once at the start.
//!
//! Until then each function does nothing, rightly: no file is mapped and no number is ours. Nothing
//! here allocates or takes a lock: signal handlers use it.
//!
//! A call through the table is for rare events; what every call needs is moved down instead.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use os::InternalFd;
use vfs::{Errno, Node};

use crate::entry::process::{Listed, Process};

/// How the kernel makes a number a duplicate of another.
pub type Duplicate<'d> = &'d mut dyn FnMut() -> Result<(), Errno>;

/// The functions of the upper rooms.
pub struct Hooks {
    /// Attaches the volume of a process that has not yet, or ends it.
    pub attach: fn(&'static Process),
    /// What the lists of mounts tell of the volumes, if that is known without attaching them (but
    /// of damage, which is met by whatever attaches).
    pub foretold: fn() -> Option<Vec<Listed>>,
    /// Gives a child of a raw system call a place of its own, or ends it.
    pub adopt: fn(&'static Process),
    /// Gives the page at an address if a mapping lacks it: whether it did. No lock may be held.
    pub supply: fn(usize) -> bool,
    /// A file's size has changed, and something is mapped.
    pub resized: fn(&Process, Node) -> Result<(), Errno>,
    /// Makes what stands behind numbers of ours. Structure lock held.
    pub placeholder: fn(&Process) -> Result<InternalFd, Errno>,
    /// Before a fork or an exec: the second engine hands everything over to the kernel.
    pub hand_over_all: fn(),
    /// In a child of a fork of our own; whether it only executes something.
    pub born: fn(bool),
    /// Before data of a number that is the kernel's is moved by its position.
    pub hand_over: fn(c_int),
    /// Makes the kernel's position and size of a number's file right.
    pub place: fn(c_int),
    /// A number is made a duplicate of another by this function, and one of them is the kernel's.
    pub replace: fn(c_int, c_int, Duplicate<'_>) -> Result<(), Errno>,
}

/// Before anything is set.
static NONE: Hooks = Hooks {
    attach: |_| {},
    foretold: || None,
    adopt: |_| {},
    supply: |_| false,
    resized: |_, _| Ok(()),
    placeholder: |_| Err(Errno::BADF),
    hand_over_all: || {},
    born: |_| {},
    hand_over: |_| {},
    place: |_| {},
    replace: |_, _, kernel| kernel(),
};

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new((&raw const NONE).cast_mut());

/// Sets them all.
pub fn set(hooks: &'static Hooks) {
    HOOKS.store(std::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

/// Those that are set.
#[inline]
pub fn get() -> &'static Hooks {
    // SAFETY: one of the two tables, which are there for ever and never written.
    unsafe { &*HOOKS.load(Ordering::Acquire) }
}
