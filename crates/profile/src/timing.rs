//! A call around which the time is taken, and what is counted of it.
//!
//! What a call takes is what passes in it, less what passes in calls that are made inside it: a
//! handler's, a stream's, those of a callback. So the times of all calls add up.

use std::arch::x86_64::_rdtsc;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use record::{
    Area, BYS, By, HOLDERS, Holder, Kind, add, class_of_size, class_of_time, count, longest,
};

use crate::descriptors::{self, Known};
use crate::next_symbol::errno;
use crate::paths;
use crate::process::{self, ThreadRecord, here, map};

/// How a C function of this type says that it failed, and what it moved.
pub trait Answer: Copy {
    /// -1 or NULL.
    fn has_failed(self) -> bool;

    /// Bytes, if it is a number of them.
    fn bytes(self) -> u64 {
        0
    }
}

impl Answer for c_int {
    #[inline]
    fn has_failed(self) -> bool {
        self == -1
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Answer for $number {
            #[inline]
            fn has_failed(self) -> bool {
                self == -1
            }

            #[inline]
            fn bytes(self) -> u64 {
                self.max(0) as u64
            }
        }
    )*};
}

numbers! { i64 isize }

impl Answer for () {
    fn has_failed(self) -> bool {
        false
    }
}

impl<T> Answer for *mut T {
    #[inline]
    fn has_failed(self) -> bool {
        self.is_null()
    }
}

/// An error as a value: `posix_fallocate` and its kin.
#[derive(Clone, Copy)]
pub struct Error(pub c_int);

impl Answer for Error {
    fn has_failed(self) -> bool {
        self.0 != 0
    }
}

/// An entry of a directory: NULL says that there is none more.
#[derive(Clone, Copy)]
pub struct Entry(pub *mut c_void);

impl Answer for Entry {
    fn has_failed(self) -> bool {
        false
    }
}

/// The processor's counter.
#[inline]
fn now() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// A call has begun.
struct TimedCall {
    here: &'static ThreadRecord,
    /// What was made inside the call around this one.
    outer: u64,
    at: u64,
}

/// A call has ended.
struct Span {
    here: &'static ThreadRecord,
    begun: u64,
    whole: u64,
    own: u64,
}

#[inline]
fn begin() -> TimedCall {
    // SAFETY: the call is over before its thread is.
    let here = unsafe { here() };
    TimedCall { here, outer: here.inner.replace(0), at: now() }
}

impl TimedCall {
    #[inline]
    fn end(self) -> Span {
        let whole = now().saturating_sub(self.at);
        let own = whole.saturating_sub(self.here.inner.get());
        self.here.inner.set(self.outer + whole);
        Span { here: self.here, begun: self.at, whole, own }
    }
}

/// What is told of a call.
struct Outcome {
    kind: Kind,
    /// A number of [`By`].
    by: usize,
    failed: bool,
    bytes: u64,
    /// The number of its file; `None`: it is on a path.
    file: Option<u32>,
}

impl Span {
    /// In each function by itself, so that what its kind decides is decided before.
    #[expect(clippy::inline_always, reason = "half the instructions of a call")]
    #[inline(always)]
    fn count(&self, done: &Outcome) {
        let Some(area) = self.here.area() else { return };
        let calls = &area.calls[done.kind as usize];
        add(&calls.by[done.by % BYS], 1);
        add(&calls.ticks, self.own);
        count(&calls.times[class_of_time(self.own)]);
        longest(&calls.longest, self.own);
        if done.failed {
            add(&calls.failed, 1);
        } else if done.kind.moves() {
            let size = &calls.sizes[class_of_size(done.bytes)];
            add(&size.count, 1);
            add(&size.bytes, done.bytes);
        }
        if let Some((whose, waited)) = self.here.waited() {
            note_waits(area, done.kind, whose, waited);
        }
        if let Some(number) = done.file {
            let file = &area.files[number as usize % record::FILES];
            add(&file.calls, 1);
            add(&file.ticks, self.own);
            longest(&file.longest, self.own);
            file.by.store(done.by as u64, Ordering::Relaxed);
            if done.bytes > 0 {
                add(if done.kind.reads() { &file.read } else { &file.written }, done.bytes);
            }
        }
        if process::traces() {
            self.note(area, done);
        }
    }

    /// Puts the call into the ring.
    #[cold]
    fn note(&self, area: &'static Area, done: &Outcome) {
        let Some(map) = map() else { return };
        let number = area.events.load(Ordering::Relaxed);
        // A handler that interrupts this has a place of its own.
        add(&area.events, 1);
        let event = map.event(area, number);
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        put(&event.begun, self.begun);
        put(&event.ticks, self.whole);
        put(&event.bytes, done.bytes);
        let [process, thread] = self.here.who();
        event.who[0].store(process, Ordering::Relaxed);
        event.who[1].store(thread, Ordering::Relaxed);
        event.file.store(done.file.unwrap_or(0), Ordering::Relaxed);
        let what = done.kind as u32 | (done.by as u32) << 16;
        event.what.store(what, Ordering::Relaxed);
    }
}

/// A call has waited for locks, the last one of this process.
#[cold]
fn note_waits(area: &Area, kind: Kind, whose: u32, [count, ticks]: [u64; 2]) {
    let [of_kind, time] = &area.calls[kind as usize].waits;
    add(of_kind, count);
    add(time, ticks);
    let free = |holder: &&Holder| {
        let process = holder.process.load(Ordering::Relaxed);
        process == 0 || process == u64::from(whose)
    };
    let last = HOLDERS - 1;
    let row = area.holders[..last].iter().find(free).filter(|_| whose != 0);
    let row = row.unwrap_or(&area.holders[last]);
    if !std::ptr::eq(row, &raw const area.holders[last]) {
        row.process.store(whose.into(), Ordering::Relaxed);
    }
    add(&row.count, count);
    add(&row.ticks, ticks);
}

/// A call on a descriptor.
#[inline]
pub fn on<T: Answer>(kind: Kind, fd: c_int, call: impl FnOnce() -> T) -> T {
    let known = descriptors::get(fd);
    if known.is_other() {
        return call();
    }
    let begun = begin();
    let answer = call();
    let span = begun.end();
    counted(&span, kind, (fd, known), answer);
    answer
}

/// Counts a call on a descriptor, of which this was known before.
#[expect(clippy::inline_always, reason = "as `count`")]
#[inline(always)]
fn counted<T: Answer>(span: &Span, kind: Kind, (fd, mut known): (c_int, Known), answer: T) {
    let failed = answer.has_failed();
    if known.is_unknown() && !(failed && errno() == libc::EBADF) {
        known = descriptors::met(fd);
        if known.is_other() {
            return;
        }
    }
    let bytes = if kind.moves() { answer.bytes() } else { 0 };
    let file = (!known.is_unknown()).then(|| known.number());
    span.count(&Outcome { kind, by: known.by(), failed, bytes, file });
}

/// A call on a path, relative to a directory.
#[inline]
pub fn at<T: Answer>(kind: Kind, dirfd: c_int, path: *const c_char, call: impl FnOnce() -> T) -> T {
    let begun = begin();
    let answer = call();
    let span = begun.end();
    let failed = answer.has_failed();
    // No bytes are there where the kernel found none.
    let by = if failed && errno() == libc::EFAULT { By::Kernel } else { paths::whose(dirfd, path) };
    span.count(&Outcome { kind, by: by as usize, failed, bytes: 0, file: None });
    answer
}

/// A call on a path relative to the working directory.
#[inline]
pub fn path<T: Answer>(kind: Kind, path: *const c_char, call: impl FnOnce() -> T) -> T {
    at(kind, libc::AT_FDCWD, path, call)
}

/// A call on nothing that has a name.
#[inline]
pub fn all<T: Answer>(kind: Kind, by: By, call: impl FnOnce() -> T) -> T {
    let begun = begin();
    let answer = call();
    let (by, failed) = (by as usize, answer.has_failed());
    begun.end().count(&Outcome { kind, by, failed, bytes: 0, file: None });
    answer
}

/// A call that makes a descriptor of a path; `number`: which one the answer has.
#[inline]
pub fn opened<T: Answer>(
    kind: Kind,
    (dirfd, path): (c_int, *const c_char),
    number: impl FnOnce(T) -> c_int,
    call: impl FnOnce() -> T,
) -> T {
    let begun = begin();
    let answer = call();
    let span = begun.end();
    let failed = answer.has_failed();
    let (by, file) = if failed {
        let fault = errno() == libc::EFAULT;
        let by = if fault { By::Kernel } else { paths::whose(dirfd, path) };
        (by as usize, None)
    } else {
        let known = descriptors::made(number(answer), dirfd, path);
        if known.is_other() {
            return answer;
        }
        (known.by(), Some(known.number()))
    };
    span.count(&Outcome { kind, by, failed, bytes: 0, file });
    answer
}

/// A call that closes a number: from its beginning on another thread may get it.
#[inline]
pub fn closed<T: Answer>(kind: Kind, fd: c_int, call: impl FnOnce() -> T) -> T {
    let mut known = descriptors::take(fd);
    if known.is_unknown() {
        known = descriptors::met(fd);
        descriptors::take(fd);
    }
    if known.is_other() {
        return call();
    }
    let begun = begin();
    let answer = call();
    let (failed, span) = (answer.has_failed(), begun.end());
    let file = (!known.is_unknown()).then(|| known.number());
    span.count(&Outcome { kind, by: known.by(), failed, bytes: 0, file });
    answer
}

/// A call that makes a number stand for what another one does.
#[inline]
pub fn copied(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let known = descriptors::get(fd);
    let begun = begin();
    let answer = call();
    let span = begun.end();
    if answer >= 0 {
        descriptors::set(answer, known);
    }
    if !known.is_other() {
        counted(&span, Kind::Dup, (fd, known), answer);
    }
    answer
}
