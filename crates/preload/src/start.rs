//! Starts what the environment asks for, at the first call or before the program's own code runs: a
//! volume (`processes::init`), the engine over a kernel file system (`split`), both, or nothing.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors::placeholder;
use crate::dispatch;
use crate::door;
use crate::entry::Inside;
use crate::entry::attachment;
use crate::entry::hooks::{self, Hooks};
use crate::entry::process::Process;
use crate::mappings::{mapping, page_faults};
use crate::processes::{fork, init};
use crate::runtime::relocation;
use crate::split::engine;

/// What lower rooms ask of upper ones.
static HOOKS: Hooks = Hooks {
    attach: init::attach_late,
    foretold: init::foretold,
    adopt,
    supply: page_faults::supply,
    resized: mapping::resized,
    placeholder: placeholder::placeholder,
    hand_over_all: engine::before_own_fork,
    born,
    hand_over: engine::before_own_transfer,
    place: engine::before_own_look,
    replace: engine::replaced_by_own,
};

/// In a child of a system call of the program's own, at its first call.
fn adopt(process: &'static Process) {
    fork::adopt(process);
    dispatch::arm_thread();
}

/// In a child that was prepared.
fn born(is_vfork: bool) {
    engine::in_own_child(is_vfork);
    dispatch::arm_thread();
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// Whether it was begun.
#[inline]
pub fn has_begun() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Run by the dynamic linker before the program's constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    process();
    // The dynamic linker has made its last call.
    let _inside = Inside::new();
    dispatch::go_on();
}

/// This process's attachment, if it has one; begins what is to begin.
#[inline]
pub fn process() -> Option<&'static Process> {
    attachment::attached().or_else(other_process)
}

/// No attachment yet, none at all, or another process's.
#[cold]
fn other_process() -> Option<&'static Process> {
    if attachment::known().is_some() {
        return attachment::process();
    }
    if STARTED.load(Ordering::Relaxed) { None } else { start() }
}

#[cold]
fn start() -> Option<&'static Process> {
    if STARTED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let _inside = Inside::new();
    hooks::set(&HOOKS);
    door::open();
    door::begun();
    let volume = std::env::var_os("SOLERA_VOLUME");
    let process = volume.and_then(|volume| init::begin(volume.as_bytes()));
    // Behind the volume: what it has to do before a fork and at the end comes first then.
    if !init::is_bypassed() {
        engine::start();
    }
    relocation::give_up();
    process
}
