//! A thread's identity for the volume's permissions: its ids for files, its groups, its effective
//! capabilities, as the kernel has them.
//!
//! The kernel keeps all that for each thread. glibc's functions (`setuid` and its kin) change it
//! for all threads; `setfsuid`, `setfsgid`, `capset` and system calls by number change the calling
//! one. So a process has one identity, asked for at its start and whenever it may have changed,
//! until one of several threads changes its own: from then on each thread asks for its own, once
//! after each change of the process's or of its own.
//!
//! Each identity found is kept for good, once: there are few, and a thread may use one for long.
//! The list only grows at its head, by compare-and-swap: no lock that `fork` could copy.
//!
//! In a user namespace that the process has entered, the kernel gives it other numbers than the
//! volume's, and its capabilities hold for those: it keeps its old identity, without capabilities.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use vfs::cred::Cred;
use vfs::walk::{Tree, Walk};
use vfs::{FileSystem, Node, User};

use crate::entry::process::Process;
use crate::entry::syscall;
use crate::entry::thread::{has_one_thread, here};
use crate::entry::{errno, set_errno};

/// The identity of a process whose threads differ.
static OF_THREADS: Cred = Cred::of_threads(own);

/// How often an identity may have changed, + 1.
static CHANGES: AtomicU32 = AtomicU32::new(1);

/// A thread has set ids for files alone: they may differ from the effective ones.
static FOR_FILES: AtomicBool = AtomicBool::new(false);

/// The process has entered another user namespace.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// An identity that a thread has, or had.
struct SharedCred {
    cred: Cred,
    next: *mut SharedCred,
}

static KNOWN: AtomicPtr<SharedCred> = AtomicPtr::new(std::ptr::null_mut());

/// The one that is kept for an identity.
fn kept(cred: Cred) -> &'static Cred {
    let mut looked_at = std::ptr::null_mut();
    let mut new = Box::new(SharedCred { cred, next: std::ptr::null_mut() });
    loop {
        let head = KNOWN.load(Ordering::Acquire);
        let mut at = head;
        while at != looked_at {
            // SAFETY: what is in the list stays there, and is not changed.
            let known = unsafe { &*at };
            if known.cred.is_same(&new.cred) {
                return &known.cred;
            }
            at = known.next;
        }
        (looked_at, new.next) = (head, head);
        let added = Box::into_raw(new);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        match KNOWN.compare_exchange(head, added, order.0, order.1) {
            // SAFETY: as above.
            Ok(_) => return unsafe { &(*added).cred },
            // SAFETY: no other thread has seen it.
            Err(_) => new = unsafe { Box::from_raw(added) },
        }
    }
}

/// The calling thread's capabilities: the effective ones, and those that it may make effective.
pub fn capabilities() -> (u64, u64) {
    /// Of two words of 32 bits for each set.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    // Effective, permitted, inheritable; the low halves first.
    let mut sets = [[0_u32; 3]; 2];
    let before = errno();
    let given = [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    let asked = syscall::kernel(libc::SYS_capget, given);
    set_errno(before);
    if asked != 0 {
        // A sandbox forbids the question.
        let all = if rustix::process::geteuid().is_root() { u64::MAX } else { 0 };
        return (all, all);
    }
    let whole = |set: usize| u64::from(sets[1][set]) << 32 | u64::from(sets[0][set]);
    (whole(0), whole(1))
}

/// Its supplementary groups.
fn groups() -> Vec<u32> {
    let mut few = [0_u32; 64];
    let before = errno();
    let given = [few.len(), few.as_mut_ptr() as usize, 0, 0, 0, 0];
    let count = usize::try_from(syscall::kernel(libc::SYS_getgroups, given));
    set_errno(before);
    if let Some(groups) = count.ok().and_then(|count| few.get(..count)) {
        return groups.to_vec();
    }
    let many = rustix::process::getgroups().unwrap_or_default();
    many.iter().map(|gid| gid.as_raw()).collect()
}

/// The process's identity is that of its real user and group, too.
static IS_REAL: AtomicBool = AtomicBool::new(false);

/// Asks the kernel for the process's identity, which the calling thread has.
pub fn learn() -> &'static Cred {
    let cred = learn_own();
    let (uid, gid) = real_ids();
    IS_REAL.store(acts_as(cred, uid, gid), Ordering::Relaxed);
    cred
}

fn real_ids() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// Whether `access` by these ids asks of the same identity. A privileged user 0 is bound by no
/// group.
fn acts_as(cred: &Cred, uid: u32, gid: u32) -> bool {
    uid == 0 && cred.privileged() || cred.is_simply(uid, gid)
}

/// Asks the kernel for the calling thread's identity.
fn learn_own() -> &'static Cred {
    let (mut uid, mut gid) =
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if FOR_FILES.load(Ordering::Relaxed) {
        // Setting impossible ids makes the kernel tell the present ones.
        let none = [u32::MAX as usize, 0, 0, 0, 0, 0];
        uid = syscall::kernel(libc::SYS_setfsuid, none) as u32;
        gid = syscall::kernel(libc::SYS_setfsgid, none) as u32;
    }
    kept(Cred::new(uid, gid, groups(), capabilities().0))
}

/// The calling thread's, where threads differ.
fn own() -> &'static Cred {
    let (thread, changes) = (here(), CHANGES.load(Ordering::Acquire));
    let known = thread.cred.load(Ordering::Relaxed);
    if thread.cred_changes.load(Ordering::Relaxed) == changes {
        // SAFETY: not null beside a number that is not 0; what is kept stays.
        return unsafe { &*known };
    }
    let cred = learn_own();
    thread.cred.store(std::ptr::from_ref(cred).cast_mut(), Ordering::Relaxed);
    thread.cred_changes.store(changes, Ordering::Relaxed);
    cred
}

/// The real user, with what user 0 may do, for `access`; `None`: the thread acts as that anyway.
#[inline]
pub fn real(process: &Process) -> Option<&'static Cred> {
    let cred = process.cred();
    if IS_REAL.load(Ordering::Relaxed) && !cred.is_of_threads() { None } else { other(cred) }
}

#[cold]
fn other(cred: &Cred) -> Option<&'static Cred> {
    let (uid, gid) = real_ids();
    if acts_as(cred, uid, gid) || ELSEWHERE.load(Ordering::Relaxed) {
        return None;
    }
    Some(kept(cred.with(uid, gid, if uid == 0 { capabilities().1 } else { 0 })))
}

/// Runs `act` as another one.
#[cold]
pub fn acting_as<T>(process: &Process, other: &'static Cred, act: impl FnOnce() -> T) -> T {
    let (before, thread) = (process.cred(), here());
    thread.cred.store(std::ptr::from_ref(other).cast_mut(), Ordering::Relaxed);
    thread.cred_changes.store(CHANGES.load(Ordering::Acquire), Ordering::Relaxed);
    // Other threads ask meanwhile for identities of their own.
    process.set_cred(&OF_THREADS);
    let result = act();
    thread.cred_changes.store(0, Ordering::Relaxed);
    if has_one_thread() {
        process.set_cred(before);
    }
    result
}

/// The identity of all threads may have changed.
pub fn changed(process: &Process) {
    if ELSEWHERE.load(Ordering::Relaxed) {
        return;
    }
    // Not 0, which no thread has asked at.
    if CHANGES.fetch_add(1, Ordering::AcqRel) == u32::MAX {
        CHANGES.store(1, Ordering::Release);
    }
    if !process.cred().is_of_threads() {
        process.set_cred(learn());
    }
}

/// The identity of the calling thread may have changed.
pub fn changed_here(process: &Process) {
    if ELSEWHERE.load(Ordering::Relaxed) {
        return;
    }
    here().cred_changes.store(0, Ordering::Relaxed);
    if !has_one_thread() {
        process.set_cred(&OF_THREADS);
    } else if !process.cred().is_of_threads() {
        process.set_cred(learn());
    }
}

/// Makes a call that may enter another user namespace.
pub fn moved(process: &Process, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let before = process.cred();
    let (uid, gid) = (before.uid(), before.gid());
    let result = call();
    if result == 0 && flags & libc::CLONE_NEWUSER != 0 {
        ELSEWHERE.store(true, Ordering::Relaxed);
        process.set_cred(kept(before.with(uid, gid, 0)));
    }
    result
}

/// A child has been cloned into another user namespace.
pub fn cloned_elsewhere(process: &Process) {
    moved(process, libc::CLONE_NEWUSER, || 0);
}

/// A system call that changes the calling thread's identity.
pub fn by_number(process: &Process, number: c_long, given: [usize; 6]) -> c_long {
    if matches!(number, libc::SYS_setfsuid | libc::SYS_setfsgid) {
        FOR_FILES.store(true, Ordering::Relaxed);
    }
    let answer = syscall::kernel(number, given);
    changed_here(process);
    answer
}

/// The kinds of the namespaces that `setns` enters, as far as they matter here.
pub fn entered_by(fd: c_int, kinds: c_int) -> c_int {
    /// Tells the kind of a namespace.
    const NS_GET_NSTYPE: usize = 0xb703;
    if kinds != 0 {
        return kinds;
    }
    let before = errno();
    let kind = syscall::kernel(libc::SYS_ioctl, [fd as usize, NS_GET_NSTYPE, 0, 0, 0, 0]);
    set_errno(before);
    kind as c_int & libc::CLONE_NEWUSER
}

/// What the engine asks before this process writes to a file with set-id bits or capabilities.
pub fn before_write(fs: &dyn FileSystem, node: Node) -> vfs::Result<()> {
    let Some(process) = crate::entry::attachment::process() else { return Ok(()) };
    // The node is named as that engine names it, which may be one of several.
    let tree = Tree { root: fs.root(), prefix: Vec::new() };
    let walk = Walk { fs, tree: &tree, cred: process.cred() };
    User { walk, umask: 0 }.before_write(node)
}
