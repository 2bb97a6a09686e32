//! The *cached number*: the one that the program closed last, kept for its next `open` of the
//! volume.
//!
//! A number of ours is made by one system call and given back by another, which is a third of what
//! `open` and `close` take. So `close` may keep it: for the program it is closed, the kernel still
//! has the placeholder, and the next `open` takes it.
//!
//! POSIX gives every call the lowest free number. So every other call that makes a number, looks at
//! numbers or hands them on gives the cached one back first ([`give_back`]): where the kernel
//! serves them, those of which the table says so ([`calls::Numbers`]), `dup` and its kin, `exec`,
//! system calls by number. One that is called inside glibc gets a number one higher, no worse. A
//! call that is given the cached number gives it back too ([`crate::entry::fdtable::get`]), and the
//! kernel says `EBADF`: calls that look the number up, and those that only pass it on
//! ([`Numbers::Takes`]).
//!
//! Lock: the cached number, the bound and the table's slots change only under the structure lock,
//! which a fork takes too. [`GIVEN`] changes without it.
//!
//! Invariants. At most one number is cached, above the standard ones. The kernel has all numbers
//! below the *bound* open, so if the cached number is below it, it is the lowest that is free to
//! the program. Only the kernel's choice of the lowest number moves the bound up; whatever closes a
//! number moves it down *before* the kernel closes. What closes numbers inside glibc (`fclose`)
//! sets it to 0 ([`Closes`]).
//!
//! With several threads, each of these could come between another's steps:
//!
//! - *A close that the kernel serves* comes after the bound has gone down. An `open` of another
//!   thread that gets a higher number meanwhile does not move the bound past it: the closed number
//!   is no longer [`GIVEN`].
//! - *A number that glibc opens and closes inside itself* (`getaddrinfo`) is closed unseen. It was
//!   never given to the program, so the bound does not move past it either. (With one thread
//!   nothing is under way inside glibc while the program opens: the bound need not stop.)
//! - *A call that makes a number in the kernel* has given the cached one back when another thread
//!   closes one, which is cached. The call's number was the lowest before that close: from then on
//!   the kernel's numbers only become more, since a thread that closes another one gives the cached
//!   one back first.
//! - *Two threads close the same number*, which is the program's mistake: the one that comes late
//!   finds it cached and gets `EBADF`. If it found a number of the kernel's, its close may hit what
//!   is there by then; also `dup2` puts a file where a number may be cached by then, an exec hands
//!   on what is open. While such a call is under way ([`announce`]) no number is cached, and none
//!   that is opened then is ever cached.
//! - *The cached number is given back* under the lock, and the others see it until the kernel has
//!   closed it, so that they wait: nobody gets the next number, or closes it once more.
//! - *A fork* finds nothing half done. A signal's handler comes before or after, as everywhere.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use calls::Numbers;

use crate::entry::attachment;
use crate::entry::fdtable::{self, NUMBERS_MAX};
use crate::entry::thread::{self, Inside, here};

/// What changes under the lock, in one line.
#[repr(align(64))]
struct State {
    /// The cached number.
    cached: AtomicI32,
    /// The bound: the kernel has all numbers below open.
    taken: AtomicI32,
    /// Calls under way in which the kernel closes, replaces or hands on numbers. Goes up under the
    /// lock, and down without it.
    ending: AtomicU32,
}

static STATE: State =
    State { cached: AtomicI32::new(NONE), taken: AtomicI32::new(0), ending: AtomicU32::new(0) };
const NONE: c_int = -1;

/// Numbers below have meanings of their own.
const FIRST: c_int = 3;

/// The numbers that the program got by calls of this library, or had when it began its second
/// thread, and has not closed since. A bit too few keeps numbers from being cached; one too many
/// counts a number that glibc uses inside itself.
static GIVEN: [AtomicU64; NUMBERS_MAX / 64] = [const { AtomicU64::new(0) }; NUMBERS_MAX / 64];
/// No bit beyond this number was ever set.
static HIGHEST_GIVEN: AtomicI32 = AtomicI32::new(-1);

/// Keeps a number of ours that the program closes; `false`: it must be closed. Lock held.
#[inline]
pub fn keep(fd: c_int) -> bool {
    let cached = STATE.cached.load(Ordering::Relaxed);
    if fd < FIRST || fd >= STATE.taken.load(Ordering::Relaxed) || !is_quiet() {
        return false;
    }
    if cached != NONE {
        if cached < fd {
            return false;
        }
        // The higher one is the lowest no longer.
        return_number();
    }
    STATE.cached.store(fd, Ordering::Release);
    true
}

/// The cached number, for an open of ours that wants it with this flag. Lock held.
#[inline]
pub fn take(cloexec: bool) -> Option<c_int> {
    let fd = STATE.cached.load(Ordering::Relaxed);
    if fd == NONE {
        return None;
    }
    if !fdtable::uncache(fd, cloexec) {
        return_number();
        return None;
    }
    STATE.cached.store(NONE, Ordering::Relaxed);
    Some(fd)
}

/// No call is under way in which the kernel closes or replaces a number. While the lock is held
/// none begins. (Acquire: what such a call has closed is closed.)
#[inline]
pub fn is_quiet() -> bool {
    STATE.ending.load(Ordering::Acquire) == 0
}

/// The kernel chose `fd`, which is [`given`], as the lowest free number, and it was quiet before.
/// Lock held.
#[inline]
pub fn lowest_was(fd: c_int) {
    let mut taken = fd + 1;
    if !thread::has_one_thread() {
        let before = STATE.taken.load(Ordering::Relaxed);
        taken = first_not_given(before.min(fd), taken);
    }
    STATE.taken.store(taken, Ordering::Relaxed);
}

/// The first number from here on that was not given to the program, or `end`.
fn first_not_given(from: c_int, end: c_int) -> c_int {
    let mut at = from;
    while at < end {
        let word = GIVEN[at as usize / 64].load(Ordering::Relaxed) >> (at % 64);
        let ones = word.trailing_ones() as c_int;
        at += ones;
        if at % 64 != 0 || ones == 0 {
            break;
        }
    }
    at.min(end)
}

/// The program gets this number. (Others, as `EBADF` would be: nothing.)
#[inline]
pub fn given(fd: c_int) {
    let Some(word) = word_of(fd) else { return };
    if word.load(Ordering::Relaxed) & bit(fd) == 0 {
        give(fd, word);
    }
}

/// Where it says whether `fd` is the program's.
#[inline]
fn word_of(fd: c_int) -> Option<&'static AtomicU64> {
    GIVEN.get(fd.cast_unsigned() as usize / 64)
}

#[cold]
fn give(fd: c_int, word: &AtomicU64) {
    change(word, word.load(Ordering::Relaxed) | bit(fd), || {
        word.fetch_or(bit(fd), Ordering::Relaxed);
    });
    if HIGHEST_GIVEN.load(Ordering::Relaxed) < fd {
        HIGHEST_GIVEN.fetch_max(fd, Ordering::Relaxed);
    }
}

/// Stores `to` if there is no other thread, else does it by a locked instruction.
#[inline]
fn change(word: &AtomicU64, to: u64, locked: impl FnOnce()) {
    if thread::has_one_thread() { word.store(to, Ordering::Relaxed) } else { locked() }
}

const fn bit(fd: c_int) -> u64 {
    1 << (fd % 64)
}

/// Before the program begins a thread. What a process with one thread has open from 0 on is all the
/// program's: what it inherited, and what was made in a way that this library does not see.
pub fn before_thread() {
    give_back();
    if !thread::has_one_thread() {
        return;
    }
    let mut fd = first_not_given(0, LOOKED_AT_MAX);
    while fd < LOOKED_AT_MAX && rustix::io::fcntl_getfd(fdtable::borrow(fd)).is_ok() {
        given(fd);
        fd = first_not_given(fd, LOOKED_AT_MAX);
    }
}

/// Numbers beyond are not asked for.
const LOOKED_AT_MAX: c_int = 1024;

/// `fd` is the program's no longer, and will be closed.
pub fn taken_back(fd: c_int) {
    let Some(word) = word_of(fd) else { return };
    if word.load(Ordering::Relaxed) & bit(fd) != 0 {
        change(word, word.load(Ordering::Relaxed) & !bit(fd), || {
            word.fetch_and(!bit(fd), Ordering::Relaxed);
        });
    }
}

/// As [`taken_back`], of all numbers of a range.
pub fn range_taken_back(first: u32, last: u32) {
    let highest = HIGHEST_GIVEN.load(Ordering::Relaxed);
    let last = last.min(u32::try_from(highest).unwrap_or(0));
    (first..=last).for_each(|fd| taken_back(fd as c_int));
}

/// The kernel is about to close `fd`. Lock held.
#[inline]
pub fn closes(fd: c_int) {
    lower(fd);
    let cached = STATE.cached.load(Ordering::Relaxed);
    if cached != NONE && (fd <= cached || !thread::has_one_thread()) {
        return_number();
    }
}

#[inline]
fn lower(fd: c_int) {
    taken_back(fd);
    if (0..STATE.taken.load(Ordering::Relaxed)).contains(&fd) {
        STATE.taken.store(fd, Ordering::Relaxed);
    }
}

/// Gives the cached number back to the kernel. Lock held.
#[inline]
pub fn give_back_held() {
    if STATE.cached.load(Ordering::Relaxed) != NONE {
        return_number();
    }
}

#[cold]
fn return_number() {
    let fd = STATE.cached.load(Ordering::Relaxed);
    lower(fd);
    fdtable::restore(fd, 0);
    fdtable::close_number(fd);
    // Release: a thread that finds none finds it closed.
    STATE.cached.store(NONE, Ordering::Release);
}

/// Gives the cached number back to the kernel. Lock not held.
#[inline]
pub fn give_back() {
    if STATE.cached.load(Ordering::Acquire) != NONE {
        locked(give_back_held);
    }
}

/// The number that an argument is, if it may be one.
#[inline]
pub const fn number<T: Copy>(argument: &T) -> c_int {
    if size_of::<T>() != size_of::<c_int>() {
        return NONE;
    }
    // SAFETY: of that size; integers and pointers are all that functions take.
    unsafe { std::mem::transmute_copy(argument) }
}

/// Calls this with the lock held, if the process is attached.
#[cold]
fn locked(call: impl FnOnce()) {
    // A handler of the program's might never come back.
    let _inside = Inside::new();
    if let Some(process) = attachment::process() {
        let _lock = process.lock();
        call();
    }
}

/// As [`give_back`], and the bound begins anew.
fn forget() {
    locked(|| {
        STATE.taken.store(0, Ordering::Relaxed);
        give_back_held();
    });
}

/// The calling thread is about to let the kernel close, replace or hand on numbers, until
/// [`Announced`] ends. Lock held.
pub fn announce() {
    let own = &here().announced;
    own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    if thread::has_one_thread() {
        STATE.ending.store(STATE.ending.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    } else {
        STATE.ending.fetch_add(1, Ordering::Relaxed);
    }
}

fn ended() {
    let own = &here().announced;
    own.store(own.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    // Release: what was closed is closed.
    if thread::has_one_thread() {
        STATE.ending.store(STATE.ending.load(Ordering::Relaxed) - 1, Ordering::Release);
    } else {
        STATE.ending.fetch_sub(1, Ordering::Release);
    }
}

/// While the kernel serves a call that is announced ([`is_announced`]). They do
/// so whenever they leave it to the kernel; a handler that comes in between ends what is its own.
pub struct Announced {
    /// A call that this library makes itself was not announced.
    is: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl Announced {
    #[inline]
    pub fn new() -> Self {
        let thread = here();
        let is = !thread.is_inside() && thread.announced.load(Ordering::Relaxed) != 0;
        Self { is, _of_this_thread: PhantomData }
    }
}

impl Drop for Announced {
    #[inline]
    fn drop(&mut self) {
        if self.is {
            ended();
        }
    }
}

/// In a new process: the other threads' calls are not under way here.
pub fn forked() {
    STATE.ending.store(here().announced.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// While something closes numbers past this library, or hands on what is open.
pub struct Closes {
    /// Not in a process with one thread: what a callback of the program closes may be cached.
    announced: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl Closes {
    pub fn new() -> Self {
        let mut announced = false;
        locked(|| {
            STATE.taken.store(0, Ordering::Relaxed);
            give_back_held();
            announced = !thread::has_one_thread();
            if announced {
                announce();
            }
        });
        Self { announced, _of_this_thread: PhantomData }
    }
}

impl Drop for Closes {
    fn drop(&mut self) {
        if self.announced {
            ended();
        } else {
            // Handlers and callbacks may have moved the bound meanwhile.
            forget();
        }
    }
}

/// Before a system call by number that this library does not serve.
pub fn before_call(row: Option<&calls::Row>) {
    // Of a number without a row nothing is known.
    let numbers = row.map_or(Numbers::Makes, |row| row.numbers);
    if !matches!(numbers, Numbers::Unchanged) || row.is_some_and(calls::Row::has_descriptor) {
        give_back();
    }
    if matches!(numbers, Numbers::Thread) {
        thread::second_thread_begins();
    }
}

/// Whether a call makes a number, begins a thread, or looks at numbers: the cached one is given
/// back where the kernel serves it.
#[inline]
pub const fn is_maker(numbers: Numbers) -> bool {
    matches!(numbers, Numbers::Makes | Numbers::Thread | Numbers::Looks) || is_giver(numbers)
}

/// Whether the kernel closes or replaces the number that it is given, which is announced.
#[inline]
pub const fn is_announced(numbers: Numbers) -> bool {
    matches!(numbers, Numbers::Closes | Numbers::Replaces)
}

/// Whether it hands a number to the kernel and does not ask whose it is.
#[inline]
pub const fn is_taker(numbers: Numbers) -> bool {
    matches!(numbers, Numbers::Takes)
}

/// Whether its answer is a number that the program gets.
#[inline]
pub const fn is_giver(numbers: Numbers) -> bool {
    matches!(numbers, Numbers::Gives | Numbers::Replaces)
}
