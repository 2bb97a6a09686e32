//! Appends: bytes beyond the end go to a staging file, and the shared record says so.
//!
//! An append copies its bytes behind the run's, then moves the record's length, under the record's
//! lock: another process that would miss the bytes relinks them under the same lock, and the owner
//! finds out by the run's name. A process that dies in between leaves a length that counts whole
//! appends only.
//!
//! PERSIST: in `sync` and `strict` the bytes are streamed and fenced before the length moves, and
//! the length is one durable store of 8 bytes: an append is there whole or not at all.

use std::sync::atomic::Ordering;

use pmem::{Fault, UserIn, UserOut};
use rustix::io::Errno;

use crate::Result;
use crate::drain::SMALL_MAX;
use crate::engine::Engine;
use crate::file::{Durable, File, KernelReason, State, length_in};
use crate::records::{APPENDING, DRAINING, OFFSETS, Owner, Staged, Word};
use crate::relink::{BLOCK, Backend};
use crate::staging::Staging;
use crate::sys;

/// Where a relink copies, a run is drained at this length: its bytes are still in the cache, and an
/// append with its share of the relink costs no more than the kernel's append.
pub const RUN_COPIED: u64 = 512 << 10;
/// There the kernel does an append of this length or more: copying it twice gains nothing.
const LONG: usize = 32 << 10;

/// Staged bytes of a file.
pub struct Run {
    /// Its shared record.
    pub record: usize,
    /// Its name.
    pub owner: Owner,
    /// The file offset of its first byte.
    pub base: u64,
    /// Its length.
    pub length: u64,
    /// Where it lies in the staging file.
    pub at: u64,
    /// How many appends it is made of.
    pub calls: u64,
    /// It is drained at this length.
    pub limit: u64,
    /// The staging file.
    pub staging: Staging,
}

impl Run {
    /// Copies staged bytes out, from the file offset `offset` on.
    pub fn read(&self, offset: u64, to: &UserOut<'_>) -> std::result::Result<(), Fault> {
        let at = self.staging.position(self.at + offset - self.base);
        self.staging.window.read_to(at, to, to.len())
    }
}

/// How a write ended.
pub enum WriteOutcome {
    /// All of it is staged or in place; the file offset of its first byte.
    Done(u64),
    /// What was staged there is at its place now: it is an overwrite.
    Drained,
    /// The kernel has written so many bytes; where it appended, at the end that it found.
    ByKernel(usize),
    /// The kernel is to do it.
    Kernel,
}

impl State {
    /// Whether the kernel appends here: it is as fast, and a kill tears nothing that is promised.
    ///
    /// It writes page by page and looks for a kill in between: an append that is not staged is
    /// whole or not there only in one page. `posix` mode promises no more than that, and relinks of
    /// short runs are slow.
    fn is_left_to_kernel(
        &self,
        cx: &Engine,
        (offset, len): (Option<u64>, usize),
        streams: bool,
    ) -> bool {
        if self.direct || streams || !cx.stages() {
            return cx.may_be_direct();
        }
        let page = offset.unwrap_or(self.size) % BLOCK + len as u64 <= BLOCK;
        self.direct_in_page && (page || cx.leaves())
    }

    /// Why it is.
    fn why_by_kernel(&self, streams: bool) -> KernelReason {
        if self.direct {
            KernelReason::Mapped
        } else if streams {
            KernelReason::Streams
        } else {
            KernelReason::ShortRuns
        }
    }

    /// Makes the length durable at which a run is about to begin, if that is not known to be done.
    ///
    /// CRASH: a process in posix mode, or past the engine, may have appended what is lost in a
    /// power cut: what is staged behind it would come back with zeros before it.
    fn make_end_durable(&mut self, stat: &rustix::fs::Stat) -> bool {
        let known = stat.st_size == 0 || self.durable == Some(Durable::of(stat));
        known || self.own.as_ref().is_some_and(|own| rustix::fs::fdatasync(own).is_ok())
    }
}

impl File {
    /// Writes at `offset`, or at the end if `append`: a range that [`File::overwrite`] left.
    pub fn grow(
        &self,
        cx: &Engine,
        fd: i32,
        offset: Option<u64>,
        from: &[UserIn<'_>],
    ) -> Result<WriteOutcome> {
        let len = length_in(from);
        let mut state = self.change();
        self.check_run(cx, &mut state);
        if len >= LONG && cx.leaves_long() {
            self.leaves(cx, KernelReason::LongAppends);
            self.drain_locked(cx, &mut state, false)?;
            return self.by_kernel(cx, &mut state, fd, offset, from);
        }
        if state.run.is_none() {
            let streams = cx.has_stream(self.ino);
            if state.is_left_to_kernel(cx, (offset, len), streams) {
                self.leaves(cx, state.why_by_kernel(streams));
                return self.by_kernel(cx, &mut state, fd, offset, from);
            }
            self.refresh_locked(cx, &mut state, fd)?;
        }
        let offset = offset.unwrap_or(state.size);
        if state.run.is_none() && (offset != state.size || !self.begin(cx, &mut state, fd, len)) {
            return Ok(WriteOutcome::Kernel);
        }
        let end = offset.checked_add(len as u64).ok_or(Errno::FBIG)?;
        let State { run, size, .. } = &mut *state;
        let Some(run) = run else { return Ok(WriteOutcome::Kernel) };
        if offset < run.base || offset > run.base + run.length {
            return Ok(WriteOutcome::Kernel);
        }
        if cx.log.is_some() && offset < run.base + run.length {
            // Bytes that were staged are changed atomically where they belong, by the log.
            self.drain_locked(cx, &mut state, true)?;
            return Ok(WriteOutcome::Drained);
        }
        let at = run.at + (offset - run.base);
        let guard = cx.home().lock(run.record);
        let records = &cx.home().records;
        if records.get(run.record, Word::Owner) != run.owner.0 {
            drop(guard);
            self.check_run(cx, &mut state);
            return Ok(WriteOutcome::Kernel);
        }
        // Under the lock: a relink goes by how long the staging file is.
        if records.get(run.record, Word::Flags) & DRAINING != 0
            || run.staging.reach(at + len as u64).is_err()
        {
            // Half in its place, full, or no space: all goes to its place, and the kernel tells the
            // rest.
            drop(guard);
            self.drain_locked(cx, &mut state, cx.home().durable())?;
            return Ok(WriteOutcome::Kernel);
        }
        let position = run.staging.position(at);
        let mut done = 0;
        for piece in from {
            match cx.put(&run.staging.window, position + done, piece) {
                Ok(()) => done += piece.len(),
                // The kernel says what is wrong, or does it.
                Err(_) => return Ok(WriteOutcome::Kernel),
            }
        }
        run.length = run.length.max(end - run.base);
        run.calls += 1;
        cx.publish(run);
        drop(guard);
        *size = run.base + run.length;
        if run.length >= run.limit {
            self.drain_early(cx, &mut state);
        }
        Ok(WriteOutcome::Done(offset))
    }

    /// Relinks a run that is long enough. What cannot be drained now stays staged, and is tried
    /// again.
    fn drain_early(&self, cx: &Engine, state: &mut State) {
        if self.drain_locked(cx, state, cx.home().durable()).is_err()
            && let Some(run) = &mut state.run
        {
            run.limit = run.limit.saturating_mul(2);
        }
    }

    /// Lets the kernel write, by one system call on the program's own descriptor; there is no run.
    fn by_kernel(
        &self,
        cx: &Engine,
        state: &mut State,
        fd: i32,
        offset: Option<u64>,
        from: &[UserIn<'_>],
    ) -> Result<WriteOutcome> {
        let [piece] = from else { return Ok(WriteOutcome::Kernel) };
        self.fetch_others(cx, state, fd)?;
        let wrote = sys::write_number(fd, piece, offset)?;
        // A guess if other processes append, too: the kernel is asked where it matters.
        let end = offset.unwrap_or(state.size) + wrote as u64;
        state.size = state.size.max(end);
        Ok(WriteOutcome::ByKernel(wrote))
    }

    /// Begins a run at the end. `false`: not here, not now.
    fn begin(&self, cx: &Engine, state: &mut State, fd: i32, len: usize) -> bool {
        let far = state.size.saturating_add(cx.options.staging_bytes) >= OFFSETS;
        let kernels = state.direct || cx.has_stream(self.ino) || !cx.stages();
        if far || kernels || self.own(cx, state, fd).is_none() {
            return false;
        }
        // The end of the file as the kernel knows it, just now.
        let Ok(stat) = self.stat(fd) else { return false };
        if stat.st_size as u64 != state.size {
            return false;
        }
        let home = cx.home();
        if home.durable() && home.direct && !state.make_end_durable(&stat) {
            return false;
        }
        let Some((record, guard)) = home.claim(self.ino) else { return false };
        let made = cx.take_staging().and_then(|mut staging| {
            // Short runs are copied.
            let copies = state.direct_in_page || state.small >= SMALL_MAX;
            let backend = if copies { Backend::Copy } else { cx.backend() };
            let begun = staging.begin(home, state.size, backend);
            match begun.and_then(|at| staging.reach(at + len as u64).map(|()| at)) {
                Ok(at) => Ok((at, staging)),
                Err(errno) => {
                    // Else its name would stay.
                    cx.give_staging(staging);
                    Err(errno)
                }
            }
        });
        let Ok((at, staging)) = made else {
            home.free(record);
            cx.fell_back("no-staging");
            return false;
        };
        let owner = home.records.new_owner(home.slot(), staging.number);
        let flags = home.flags() | if cx.appends(fd) { APPENDING } else { 0 };
        let (base, birth) = (state.size, self.birth);
        let staged = Staged { owner, base, length: 0, at, birth, flags };
        home.records.fill(record, self.ino, &staged, &self.path);
        if home.durable() || home.direct {
            home.records.persist(record);
        }
        drop(guard);
        let limit = if cx.drains_early() { RUN_COPIED } else { u64::MAX };
        state.run =
            Some(Run { record, owner, base: state.size, length: 0, at, calls: 0, limit, staging });
        self.has_run.store(true, Ordering::Release);
        cx.count_run(true);
        true
    }
}
