//! New processes: `fork` and its kin, `vfork`, `clone`, and children made by raw system calls.
//!
//! A forked child holds every description that its parent held, under a place of its own in the
//! engine, prepared before the fork. One that would hold none gets no place: it takes one at its
//! first call that needs the volume, and most execute something first. A `fork` of the C library's
//! is prepared when its system call arrives (see [`crate::door`]): after all handlers of
//! `pthread_atfork`, with the C library's locks held, so that its locks come first and this
//! library's second, always.
//!
//! `vfork`, and `clone` with memory but not descriptors shared, are served by a fork whose parent
//! waits until the child has executed something or ended, where such a child may not share the
//! memory (see [`crate::lending`]): programs edit descriptors in the child, which would be the
//! parent's table.
//!
//! A child that a raw system call made finds the page with the attachment's address empty
//! (`MADV_WIPEONFORK`, see `init`): its first call gives it a place of its own, or ends it with a
//! message. It never acts as its parent. One that was to share the table of descriptors gets a
//! copy: what the numbers stand for is noted in memory that it does not share.
//!
//! Locks, across the system call, so that the child of a threaded parent finds none of them held by
//! a thread that it does not have: the turn to fork, structure, working directory, the one to
//! attach, signal actions, heap.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use os::interrupt::system_call;
use rustix::pipe::PipeFlags;
use vfs::{Desc, Errno, ForkTicket};

use crate::entry::attachment::{self, ATTACHING};
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::heap;
use crate::entry::hooks;
use crate::entry::lock::{Guard, Lock};
use crate::entry::maptable::Mappings;
use crate::entry::pointers::Out;
use crate::entry::process::{Cwd, Process};
use crate::entry::report;
use crate::entry::thread::here;
use crate::entry::{Inside, Real, Served, Stop, errno, outside, set_errno};
use crate::mappings::mapping;
use crate::paths::credentials;
use crate::processes::lifecycle::{fail_loudly, leave};
use crate::{entry::thread, signals::sigaction, signals::signal};

/// The locks that are held from before a fork until after it, in parent and child.
struct Locks {
    heap: Guard<'static, heap::Heap>,
    attaching: Guard<'static, ()>,
    cwd: Guard<'static, Arc<Cwd>>,
    maps: Guard<'static, Mappings>,
    actions: Guard<'static, sigaction::Actions>,
    turn: Guard<'static, ()>,
}

impl Locks {
    /// Takes all, and prepares the child's place.
    fn take(process: &'static Process) -> Result<(Self, Place), Errno> {
        let turn = TURN.lock();
        let maps = process.lock();
        let cwd = process.cwd.lock();
        let attaching = ATTACHING.lock();
        let place = Place::prepare(process, &Process::held(&maps))?;
        let actions = sigaction::lock();
        let heap = heap::lock();
        Ok((Self { heap, attaching, cwd, maps, actions, turn }, place))
    }

    /// Gives all back.
    fn release(self) {
        self.release_after(|| {});
    }

    /// Gives all back, but the heap before this is done, which allocates.
    fn release_after(self, done: impl FnOnce()) {
        let Self { heap, attaching, cwd, maps, actions, turn } = self;
        drop((heap, actions));
        done();
        drop((attaching, cwd, maps, turn));
    }
}

/// The place that a child will have in the volume.
#[derive(Clone, Copy)]
enum Place {
    /// The parent has none, nor has the child until it needs one.
    None,
    /// The same of a child that holds nothing. It lets go of what it would share with its parent.
    Apart,
    /// It is prepared: the child holds what its parent holds.
    Prepared(ForkTicket),
}

impl Place {
    /// Before the fork.
    fn prepare(process: &Process, held: &[Desc]) -> Result<Self, Errno> {
        if !process.fs.is_attached() {
            return Ok(Self::None);
        }
        if held.is_empty() && may_be_apart(process, &*process.fs) {
            return Ok(Self::Apart);
        }
        Ok(Self::Prepared(process.fs.fork_prepare(held)?))
    }

    /// In the parent, or where no child was made.
    fn in_parent(self, process: &Process, child: Option<u32>) {
        if let Self::Prepared(ticket) = self {
            process.fs.fork_parent(ticket, child);
        }
    }

    /// In the child.
    fn in_child(self, process: &Process) -> Result<(), Errno> {
        let Some(known) = process.fs.known() else { return Ok(()) };
        match self {
            Self::None => return Ok(()),
            Self::Apart => {
                go_apart(known.0);
                return Ok(());
            }
            Self::Prepared(ticket) => {
                here().open();
                known.0.fork_child(ticket)?;
            }
        }
        process.fs.attached(known.0);
        Ok(())
    }
}

/// In a child that holds nothing.
fn go_apart(engine: &dyn vfs::Engine) {
    engine.fork_apart();
    attachment::went_apart();
}

/// Whether a child that holds no description needs no place at once.
fn may_be_apart(process: &Process, engine: &dyn vfs::Engine) -> bool {
    attachment::is_wiped()
        && process.program.get().is_none()
        && !ddmap::Pagers::any()
        && engine.may_fork_apart()
}

/// The holder of this is the one thread that forks.
static TURN: Lock<()> = Lock::new(());

/// A fork that is under way.
struct ForkState {
    locks: Locks,
    place: Place,
    inside: Inside,
}

/// Filled while a fork is under way.
struct ForkSlot(UnsafeCell<Option<ForkState>>);
// SAFETY: used only by the thread that has the turn to fork, or its image in the child.
unsafe impl Sync for ForkSlot {}
static HELD: ForkSlot = ForkSlot(UnsafeCell::new(None));

impl ForkSlot {
    fn fill(&self, state: ForkState) {
        // SAFETY: this thread has the turn to fork.
        unsafe { *self.0.get() = Some(state) };
    }

    fn empty(&self) -> Option<ForkState> {
        // SAFETY: this thread had the turn to fork, or is its image in the child.
        unsafe { (*self.0.get()).take() }
    }
}

/// The pipe whose end tells the parent of a `vfork` to go on; -1: this process was not made so.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// In the child: its place, and its locks.
fn in_child() {
    let Some(process) = attachment::known() else { return };
    let Some(ForkState { locks, place, inside }) = HELD.empty() else { return };
    if ddmap::Pagers::any()
        && let Err(errno) = mapping::keep_paged(&locks.maps)
    {
        fail_loudly("a forked process cannot keep the places of its mappings", errno);
    }
    if let Err(errno) = place.in_child(process) {
        fail_loudly("a forked process cannot attach the volume", errno);
    }
    attachment::publish(process);
    new_process(process);
    locks.release();
    if ddmap::Pagers::any()
        && let Err(errno) = mapping::renew_paged(process)
    {
        fail_loudly("a forked process cannot map the pages that lie elsewhere", errno);
    }
    drop(inside);
}

/// What a child starts anew with.
fn new_process(process: &Process) {
    thread::forked();
    cached_fd::forked();
    signal::forked();
    if let Some(&program) = process.program.get() {
        // If the table of locks is full, the file can be written to.
        let _ = process.fs.execute(None, Some(program));
    }
    process.record_locks.store(false, Ordering::Relaxed);
    report::reset();
    let told = TOLD.swap(-1, Ordering::Relaxed);
    if told >= 0 {
        // A child of a vfork's child: only the end of the vfork's child counts.
        process.set_spare(-1);
        fdtable::close_number(told);
    }
}

/// Makes, by `real`, a child that shares the memory of this process until it executes something.
/// All locks are held, and a place is prepared, as for a fork; the child takes nothing. `real` also
/// gives the process that goes on in the child's place, if there is one. `None`: the child would
/// hand something of the volume on, or there is no place.
pub fn shared<T>(process: &'static Process, real: impl FnOnce() -> (T, Option<u32>)) -> Option<T> {
    let inside = Inside::new();
    let (locks, place) = Locks::take(process).ok()?;
    if hands_on() {
        locks.release_after(|| place.in_parent(process, None));
        return None;
    }
    HELD.fill(ForkState { locks, place, inside });
    let (made, parted) = real();
    if here().is_lent() {
        return Some(made);
    }
    if let Some(ForkState { locks, place, inside }) = HELD.empty() {
        locks.release_after(|| place.in_parent(process, parted));
        drop(inside);
    }
    Some(made)
}

/// Whether a number of ours would be open behind an exec. Structure lock held.
fn hands_on() -> bool {
    let is_kept = |fd| {
        let flags = rustix::io::fcntl_getfd(fdtable::borrow(fd));
        flags.is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
    };
    fdtable::all().any(|(fd, _)| is_kept(fd))
}

/// In a child that such a child has made: it has memory of its own, and goes on in its place.
/// `told`: the end of a pipe by which who waits for it learns of its exec or its end.
pub fn goes_on_apart(process: &'static Process, told: c_int) {
    in_child();
    TOLD.store(told, Ordering::Relaxed);
    process.set_spare(told);
    (hooks::get().born)(false);
}

/// A fork by `real`, which runs no handlers. The child must not use glibc's heap if the parent has
/// threads; it tells the second engine that it is born.
pub fn without_handlers(
    process: &'static Process,
    real: impl FnOnce() -> c_int,
) -> Result<c_int, Errno> {
    (hooks::get().hand_over_all)();
    let inside = Inside::new();
    let (locks, place) = Locks::take(process)
        // All places of the volume are taken: what the kernel says where it has none.
        .map_err(|errno| if errno == Errno::USERS { Errno::AGAIN } else { errno })?;
    HELD.fill(ForkState { locks, place, inside });
    let pid = real();
    let failed = errno();
    if pid == 0 {
        in_child();
        return Ok(0);
    }
    if let Some(ForkState { locks, place, inside }) = HELD.empty() {
        // Before another thread forks: the child may have ended, and its slot be that thread's.
        locks.release_after(|| place.in_parent(process, u32::try_from(pid).ok()));
        drop(inside);
    }
    if pid < 0 { Err(Errno::from_raw_os_error(failed.max(1))) } else { Ok(pid) }
}

/// A fork by `real`: the system call.
pub fn arrived(process: &'static Process, real: impl FnOnce() -> c_int) -> Result<c_int, Errno> {
    let pid = without_handlers(process, real)?;
    if pid == 0 {
        (hooks::get().born)(false);
    }
    Ok(pid)
}

/// A descriptor at a high number, out of the program's way.
fn high(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let start = limit.unwrap_or(1024).min(1024).saturating_sub(200) as c_int;
    rustix::io::fcntl_dupfd_cloexec(fd, start)
}

/// A pipe that ends with an exec, at high numbers.
pub fn high_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((high(&read)?, high(&write)?))
}

/// A `vfork` by `real`, a fork, whose parent waits until the child has executed something or ended:
/// 0 in the child. It runs no handlers.
pub fn vfork_by(process: &'static Process, real: impl FnOnce() -> c_int) -> Result<c_int, Errno> {
    let mut ends = Err(Errno::AGAIN);
    let pid = without_handlers(process, || {
        ends = high_pipe().map(|(read, write)| (read, Some(write)));
        match &mut ends {
            Ok((_, write)) => {
                let pid = real();
                if pid != 0 {
                    // While no other child is made, which would have it, too.
                    *write = None;
                }
                pid
            }
            Err(errno) => {
                set_errno(errno.raw_os_error());
                -1
            }
        }
    })?;
    let (read, write) = ends?;
    if let Some(write) = write {
        (hooks::get().born)(false);
        drop(read);
        process.set_spare(write.as_raw_fd());
        // Open until the child executes something or ends.
        TOLD.store(write.into_raw_fd(), Ordering::Relaxed);
        return Ok(0);
    }
    let _ = rustix::io::retry_on_intr(|| rustix::io::read(read.as_fd(), &mut [0; 1]));
    Ok(pid)
}

// ---- children made by raw system calls ----------------------------------------------------------

/// Some child of a system call by number was to share the table of descriptors.
static SHARES: AtomicBool = AtomicBool::new(false);

/// Before a system call by number: a child that it makes learns whether it shares the table.
pub fn before_number(number: c_long, first: usize) {
    let flags = match number {
        libc::SYS_clone => first as u64,
        libc::SYS_clone3 => Out(first as *mut u64).value().unwrap_or(0),
        _ => return,
    };
    if flags & (libc::CLONE_FILES | libc::CLONE_VM) as u64 == libc::CLONE_FILES as u64 {
        SHARES.store(true, Ordering::Relaxed);
    }
}

/// The first call of a process that inherited this library's state by a raw system call: takes a
/// place of its own for it, and hold of its parent's descriptions as far as they are still there.
#[cold]
pub fn adopt(process: &'static Process) {
    let inside = Inside::new();
    if SHARES.load(Ordering::Relaxed) {
        // The kernel's locks by which a process is known to be alive belong to the table, too.
        let flags = [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0];
        // SAFETY: a number. Without a table to share nothing happens.
        let _ = unsafe { system_call(libc::SYS_unshare, flags) };
    }
    // The C library blocks all signals where it makes such a child.
    signal::admit_faults();
    let free = heap::is_free() && sigaction::is_free() && TURN.try_lock().is_some();
    if !free || process.cwd.try_lock().is_none() || ATTACHING.try_lock().is_none() {
        fail_loudly("another thread of the parent was inside a call", Errno::AGAIN);
    }
    let Some(maps) = process.structure.try_lock() else {
        fail_loudly("another thread of the parent was inside a call", Errno::AGAIN);
    };
    if ddmap::Pagers::any()
        && let Err(errno) = mapping::keep_paged(&maps)
    {
        fail_loudly("a process cannot keep the places of its mappings", errno);
    }
    let mut held = Process::held(&maps);
    if let Err(errno) = join(process, &mut held) {
        fail_loudly("a process made by a raw system call cannot attach the volume", errno);
    }
    let lost = fdtable::all().filter(|(_, desc)| !held.contains(desc));
    for (fd, _) in lost.collect::<Vec<_>>() {
        // Its number stays taken, by a placeholder that serves nothing.
        fdtable::clear(fd);
    }
    drop(maps);
    new_process(process);
    attachment::publish(process);
    if ddmap::Pagers::any()
        && let Err(errno) = mapping::renew_paged(process)
    {
        fail_loudly("a process made by a raw system call cannot map what lies elsewhere", errno);
    }
    drop(inside);
}

/// Takes a place in the volume, where the parent may have had one, and hold of what is still there.
fn join(process: &Process, held: &mut Vec<Desc>) -> Result<(), Errno> {
    let Some(known) = process.fs.known() else { return Ok(()) };
    if attachment::is_apart() {
        return Ok(());
    }
    here().open();
    if held.is_empty() && may_be_apart(process, known.0) {
        go_apart(known.0);
        return Ok(());
    }
    known.0.fork_unprepared(held)?;
    process.fs.attached(known.0);
    Ok(())
}

// ---- clone --------------------------------------------------------------------------------------

pub type Main = unsafe extern "C" fn(*mut c_void) -> c_int;

/// glibc's `clone`, whose child runs [`cloned`]. The second engine has handed everything over.
pub fn real_clone(
    start: *mut Start,
    (stack, flags): (*mut c_void, c_int),
    (parent_id, tls, child_id): (*mut c_int, *mut c_void, *mut c_int),
) -> c_int {
    static REAL: Real = Real::new("clone\0");
    type Clone = unsafe extern "C" fn(
        Main,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut c_int,
        *mut c_void,
        *mut c_int,
    ) -> c_int;
    // SAFETY: glibc's function of that name and type, with the program's own stack.
    unsafe {
        let real = std::mem::transmute::<usize, Clone>(REAL.address());
        real(cloned, stack, flags, start.cast(), parent_id, tls, child_id)
    }
}

/// What the child of a `clone` runs, on the parent's stack, of which it has a copy.
pub struct Start {
    main: Main,
    argument: *mut c_void,
    told: c_int,
    /// In a user namespace of its own.
    elsewhere: bool,
}

/// A cloned child with memory of its own.
unsafe extern "C" fn cloned(start: *mut c_void) -> c_int {
    in_child();
    // SAFETY: the parent's variable, as `clone` was given it.
    let Start { main, argument, told, elsewhere } = unsafe { std::ptr::read(start.cast()) };
    if let Some(process) = attachment::known().filter(|_| elsewhere) {
        process.fs.attach();
        credentials::cloned_elsewhere(process);
    }
    if let Some(process) = attachment::known().filter(|_| told >= 0) {
        TOLD.store(told, Ordering::Relaxed);
        process.set_spare(told);
    }
    (hooks::get().born)(false);
    // SAFETY: the program's function.
    let code = outside(|| unsafe { main(argument) });
    // glibc ends the process without any handlers.
    if let Some(process) = attachment::process() {
        let _inside = Inside::new();
        leave(process);
    }
    code
}

/// What a `clone` with these flags makes.
enum Kind {
    /// A thread, or as good as one: shares memory and descriptors.
    Thread,
    /// Shares the memory until it executes something.
    Vfork,
    Process,
    /// Shares descriptors, but not the memory that says what they are: it gets a copy.
    Copy,
    /// The same of the working directory; or shares the memory but not the descriptors.
    Odd,
}

fn kind(flags: c_int) -> Kind {
    let has = |flag: c_int| flags & flag != 0;
    match (has(libc::CLONE_VM), has(libc::CLONE_FILES)) {
        (true, true) => Kind::Thread,
        (true, false) if has(libc::CLONE_VFORK) && !has(libc::CLONE_FS) => Kind::Vfork,
        (false, false) if !has(libc::CLONE_FS) => Kind::Process,
        (false, true) if !has(libc::CLONE_FS) => Kind::Copy,
        _ => Kind::Odd,
    }
}

/// `clone` by `own`, which gets its flags and what its child runs.
pub fn clone_by(
    process: &'static Process,
    (main, argument): (Main, *mut c_void),
    (stack, flags): (*mut c_void, c_int),
    own: impl FnOnce(c_int, *mut Start) -> c_int,
) -> Served<c_int> {
    let elsewhere = flags & libc::CLONE_NEWUSER != 0;
    match kind(flags) {
        Kind::Thread => {
            thread::second_thread_begins();
            Err(Stop::Kernel)
        }
        _ if stack.is_null() => Err(Stop::Errno(Errno::INVAL)),
        Kind::Odd => Err(Stop::Refused("clone-shares-half", Errno::INVAL)),
        kind @ (Kind::Process | Kind::Copy) => {
            if let Kind::Copy = kind {
                report::fell_back("clone", "clone-shares-descriptors");
            }
            let mut start = Start { main, argument, told: -1, elsewhere };
            let flags = flags & !libc::CLONE_FILES;
            Ok(without_handlers(process, || own(flags, &raw mut start))?)
        }
        Kind::Vfork => {
            let (read, write) = high_pipe()?;
            let told = write.as_raw_fd();
            let mut start = Start { main, argument, told, elsewhere };
            let flags = flags & !(libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS);
            let pid = without_handlers(process, || own(flags, &raw mut start))?;
            drop(write);
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut [0; 1]));
            Ok(pid)
        }
    }
}
