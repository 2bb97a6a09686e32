//! Draining a run: staged bytes go to their place in the file.
//!
//! Their owner drains them at `fsync`, at the last close and before the kernel does anything with
//! the file; so does another process of the engine that opens the file, reads its end or appends to
//! it, and a process that finds the owner dead.
//!
//! CRASH: the record says `DRAINING` from before the first byte moves until after the last. The
//! process that finds it so moves them again. An exchange has happened if the staging file ends
//! before the last staged byte (the two sizes are swapped, and it is never cut there otherwise; see
//! [`exchanged`]); a copy or a clone of the same bytes to the same place changes nothing; an append
//! is looked for behind the end that the file had. What a program past the engine appends in the
//! moment of an exchange comes away with it and is given back at once; if the exchanging process is
//! killed before, it is lost with the staging file.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::engine::Engine;
use crate::file::{Durable, File, State};
use crate::grow::{RUN_COPIED, Run};
use crate::hidden_directory::Home;
use crate::records::{APPENDING, BOOTS, DRAINING, Staged, Word};
use crate::relink::{self, Backend, Move};
use crate::{Result, records, staging, sys};

use window::Window;

/// After so many losses to other processes a file's appends in one page go to the kernel.
const STOLEN_MAX: u32 = 3;
/// Runs shorter than this are small where a relink copies.
const SMALL: u64 = 32 << 10;
/// And these where it moves blocks of the page cache: it waits for their write-back, which takes as
/// long as copying so many bytes.
const SMALL_OF_BLOCKS: u64 = 512 << 10;
/// After so many small runs, appends in one page go to the kernel, or are copied if staged.
pub const SMALL_MAX: u32 = 4;
/// Appends shorter than this are short where the file system is memory itself.
const SHORT: u64 = 1 << 10;

/// Moves the bytes of a record to their place; gives how many were copied, and the backend that did
/// it. The record is locked.
pub fn relink(
    home: &Home,
    record: usize,
    staged: &Staged,
    staging: impl AsFd,
    window: Option<(&Window, u64)>,
    target: impl AsFd,
    copies: bool,
) -> Result<(u64, Backend)> {
    let (records, durable) = (&home.records, home.durable() || home.direct);
    let appends = staged.flags & APPENDING != 0;
    // What other processes append just then would come away with an exchange.
    let copies = copies || appends && records.has_others(home.slot());
    let mut best = if copies { Backend::Copy } else { relink::backend(home) };
    let mut base = staged.base;
    let size = rustix::fs::fstat(&target)?.st_size as u64;
    let there = match window {
        // The run is this process's own.
        Some(_) if staged.flags & DRAINING == 0 => u64::MAX,
        _ => rustix::fs::fstat(&staging)?.st_size as u64,
    };
    if staged.flags & DRAINING != 0 && exchanged(staged, there) {
        return Ok((0, Backend::Exchange));
    }
    if there < staged.at + staged.length {
        // The staging file was cut, and staged bytes with it: the rest is not used.
        return Err(Errno::UCLEAN);
    }
    if size != base {
        // Another process has cut or grown it meanwhile, or a copy was interrupted.
        best = Backend::Copy;
        if staged.flags & (APPENDING | DRAINING) == APPENDING {
            base = size;
            records.set(record, Word::Base, base);
        }
    }
    if best == Backend::Exchange && staged.at != base {
        // Staged to be copied: its staging file keeps its blocks.
        best = Backend::Copy;
    }
    records.set(record, Word::Flags, staged.flags | DRAINING);
    if durable {
        // PERSIST: where the bytes belong, before the file changes; they themselves were streamed,
        // and fenced before the record told of them (see `grow`).
        records.persist(record);
    }
    let (at, length) = (staged.at, staged.length);
    let moving = Move { staging: &staging, window, at, target: &target, base, length, appends };
    if appends && staged.flags & DRAINING != 0 {
        // A part of it may be there, before what other processes have appended.
        let found = moving.found()?;
        return Ok((moving.put(found, length - found)?, Backend::Copy));
    }
    match moving.run(best) {
        // This file, or this file system, cannot do it.
        Err(_) if best != Backend::Copy && !appends => {
            moving.run(Backend::Copy).map(|copied| (copied, Backend::Copy))
        }
        moved => moved.map(|copied| (copied, best)),
    }
}

/// Whether the blocks of a run that is being moved have been exchanged: its staging file, `there`
/// bytes long, ends before the last of them.
///
/// It then ends where the target ended. But where the kernel's log recovery finished the exchange,
/// it ends where the target ended when the log broke off: some of the blocks had been exchanged by
/// then, and the target had grown with them (Linux 6.18).
fn exchanged(staged: &Staged, there: u64) -> bool {
    let whole_from = staged.base + relink::head(staged.base, staged.length);
    staged.at == staged.base && (whole_from..staged.at + staged.length).contains(&there)
}

/// Whether a power cut has taken back a length that was not durable, behind which a run of posix
/// mode began. What was staged there was not synced either, and is gone with it: no zeros come
/// before it.
pub fn has_lost_its_base(home: &Home, staged: &Staged, target: impl AsFd) -> Result<bool> {
    let boot = staged.flags & BOOTS;
    let other = boot != 0 && boot != records::of_boot(home.boot);
    Ok(other && (rustix::fs::fstat(target)?.st_size as u64) < staged.base)
}

/// Fetches what another process, alive or dead, has staged for a file. The record is locked.
pub fn fetch(home: &Home, record: usize, ino: u64, target: impl AsFd) -> Result<()> {
    let Some(staged) = home.records.staged(record, ino)? else {
        let get = |word| home.records.get(record, word);
        if get(Word::Key) == ino && get(Word::Owner) == 0 {
            // Claimed by a process that died before it filled it in.
            home.free(record);
        }
        return Ok(());
    };
    let born = staged.birth == 0 || staged.birth == sys::birth(&target);
    if staged.length > 0 && born && !has_lost_its_base(home, &staged, &target)? {
        let name = staging::name(staged.owner.slot(), staged.owner.staging());
        let file = home.open_file(&name, OFlags::empty())?;
        relink(home, record, &staged, &file, None, &target, false)?;
        if home.direct {
            rustix::fs::fsync(&target)?;
        }
    }
    home.free(record);
    Ok(())
}

impl File {
    /// Whether the run is still this process's; else it is forgotten: its bytes are in the file.
    pub fn check_run(&self, cx: &Engine, state: &mut State) {
        let Some(run) = &state.run else { return };
        let records = &cx.home().records;
        let kept = records.get(run.record, Word::Owner) == run.owner.0;
        if kept && records.get(run.record, Word::Flags) & DRAINING == 0 {
            return;
        }
        // Another process may be moving it.
        drop(cx.home().lock(run.record));
        if records.get(run.record, Word::Owner) == run.owner.0 {
            return;
        }
        if let Some(run) = state.run.take() {
            self.lose_run(cx, state, run);
        }
    }

    /// Another process has moved a run to its place.
    fn lose_run(&self, cx: &Engine, state: &mut State, run: Run) {
        // The other process goes on with what the staging file holds.
        run.staging.remove(cx.home());
        self.has_run.store(false, Ordering::Release);
        cx.count_run(false);
        state.stolen += 1;
        state.direct_in_page |= state.stolen >= STOLEN_MAX && cx.may_be_direct();
    }

    /// Fetches what other processes have staged for this file.
    pub fn fetch_others(&self, cx: &Engine, state: &mut State, fd: i32) -> Result<()> {
        let home = cx.home();
        if state.run.is_some() || !cx.anything_staged() {
            return Ok(());
        }
        let Some(record) = home.records.find(self.ino) else { return Ok(()) };
        let Some(own) = self.own(cx, state, fd) else {
            if state.locked || cx.is_locked_elsewhere(self.ino) {
                // Closing it would drop record locks of this process. What cannot be fetched now
                // stays staged, and is tried again.
                let path = format!("/proc/self/fd/{fd}");
                let _ = home.apart(|| cx.fetch_opened(self.ino, path.as_bytes()));
            }
            return Ok(());
        };
        let guard = home.lock(record);
        let fetched = fetch(home, record, self.ino, own);
        drop(guard);
        fetched
    }

    /// Relinks what this process has staged.
    pub fn drain(&self, cx: &Engine) -> Result<()> {
        self.drain_as(cx, cx.home().durable())
    }

    /// As [`File::drain`], also if a run is just being begun.
    pub fn stop(&self, cx: &Engine) -> Result<()> {
        let mut state = self.change();
        self.check_run(cx, &mut state);
        self.drain_locked(cx, &mut state, cx.home().durable())
    }

    /// Relinks what this process has staged; `durably`: for good, where a power cut is survived.
    pub fn drain_as(&self, cx: &Engine, durably: bool) -> Result<()> {
        if !self.has_run.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.change();
        self.check_run(cx, &mut state);
        self.drain_locked(cx, &mut state, durably)
    }

    /// As [`File::drain_as`]. On an error everything stays as it was.
    pub fn drain_locked(&self, cx: &Engine, state: &mut State, durably: bool) -> Result<()> {
        let Some(mut run) = state.run.take() else { return Ok(()) };
        let Some(own) = &state.own else { return Err(Errno::BADF) };
        let home = cx.home();
        let guard = home.lock(run.record);
        let mut backend = Backend::Copy;
        let staged = match home.records.staged(run.record, self.ino) {
            Ok(staged) => staged,
            Err(errno) => {
                drop(guard);
                state.run = Some(run);
                return Err(errno);
            }
        };
        let Some(staged) = staged.filter(|staged| staged.owner == run.owner) else {
            // Another process has moved it since it was looked at, and the record may be used
            // again. No name of a run is used twice, so this is no other run of this process.
            drop(guard);
            let size = rustix::fs::fstat(own).map(|stat| stat.st_size as u64);
            self.lose_run(cx, state, run);
            state.durable = None;
            state.size = size?;
            return Ok(());
        };
        if run.length > 0 {
            // In posix mode the length is kept here and in the record alike.
            let window = Some((&run.staging.window, run.staging.origin()));
            // A close does not wait for the medium, as moving blocks would.
            let copies = !durably && cx.adapts() && !home.direct;
            let staging = &run.staging.fd;
            let begun = Instant::now();
            let relinked = relink(home, run.record, &staged, staging, window, own, copies);
            // PERSIST: the file's new size, before the record that could do it again is gone.
            //
            // CRASH: bytes copied to the rest of a block and blocks exchanged behind them are two
            // changes of the kernel's log. A power cut could leave the first alone, a part of an
            // append. The record unites them until both are durable, also where no call waits.
            let relinked = match relinked {
                Ok((copied, by)) if home.direct && (durably || by.has_parts(copied)) => {
                    rustix::fs::fsync(own).and(relinked)
                }
                relinked => relinked,
            };
            match relinked {
                Ok((copied, by)) => {
                    backend = by;
                    cx.relinked(run.length, copied, begun.elapsed());
                }
                Err(errno) => {
                    // It stays `DRAINING`: a part may be at its place already.
                    run.base = home.records.get(run.record, Word::Base);
                    drop(guard);
                    state.run = Some(run);
                    return Err(errno);
                }
            }
        }
        // CRASH: a process that finds the record relinks again, so the bytes stay until it is
        // freed.
        home.free(run.record);
        drop(guard);
        run.staging.ended(backend, run.at, run.length);
        self.has_run.store(false, Ordering::Release);
        cx.count_run(false);
        if run.length < small(cx, backend, &run) {
            state.small += 1;
            state.direct_in_page |= state.small >= SMALL_MAX && cx.may_be_direct();
        } else {
            state.small = 0;
        }
        let stat = rustix::fs::fstat(own)?;
        state.size = stat.st_size as u64;
        // What other processes have appended since may not be.
        let all = durably && state.size == run.base + run.length;
        state.durable = all.then(|| Durable::of(&stat));
        cx.give_staging(run.staging);
        Ok(())
    }

    /// Its record is void: the file was emptied.
    pub fn forget_run(&self, cx: &Engine) {
        let mut state = self.change();
        self.check_run(cx, &mut state);
    }

    /// From now on appends go to the kernel: the file is mapped.
    pub fn be_direct(&self, cx: &Engine) -> Result<()> {
        let mut state = self.change();
        state.direct = true;
        self.check_run(cx, &mut state);
        self.drain_locked(cx, &mut state, cx.home().durable())
    }

    /// From now on appends in one page do: a process uses the file past the engine.
    pub fn be_direct_in_page(&self, cx: &Engine) -> Result<()> {
        let mut state = self.change();
        self.check_run(cx, &mut state);
        self.drain_locked(cx, &mut state, cx.home().durable())?;
        state.direct_in_page |= cx.may_be_direct();
        Ok(())
    }

    /// Sets the times that stores through windows did not, through the engine's own descriptor.
    pub fn renew_times_by_own(&self) {
        if self.times_are_old.load(Ordering::Relaxed)
            && self.times_are_old.swap(false, Ordering::Relaxed)
            && let Some(own) = &self.change().own
        {
            renew(own);
        }
    }
}

/// Runs that are shorter are small.
fn small(cx: &Engine, backend: Backend, run: &Run) -> u64 {
    match backend {
        // Only short appends cost more in the kernel than what is copied twice costs here.
        Backend::Copy if cx.home().fills_holes && run.length >= run.calls * SHORT => RUN_COPIED,
        Backend::Copy => SMALL,
        _ if !cx.adapts() => 0,
        _ if cx.home().direct => SMALL,
        _ => SMALL_OF_BLOCKS,
    }
}

fn renew(fd: impl AsFd) {
    let special = |nanos| rustix::fs::Timespec { tv_sec: 0, tv_nsec: nanos };
    let times = rustix::fs::Timestamps {
        last_access: special(rustix::fs::UTIME_OMIT),
        last_modification: special(rustix::fs::UTIME_NOW),
    };
    // Times that cannot be set stay as they are.
    let _ = rustix::fs::futimens(fd, &times);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Options, locked};
    use crate::testing::TestDir;
    use std::os::fd::AsRawFd;

    /// Another process moves a run while its owner waits for the record, and stages more there: the
    /// record is that process's, and the owner has none any more.
    #[test]
    fn a_record_that_is_another_ones_by_now_stays() {
        let directory = TestDir::new("again");
        let mut options = Options::new(&directory, crate::Mode::Posix);
        options.patience = 0;
        let engine = Engine::start(options, |_| ()).expect("an engine");
        let file = std::fs::File::create_new(directory.join("f")).expect("a file");
        let fd = file.as_raw_fd();
        engine.opened(fd, 0);
        let bytes = [pmem::UserIn::new(b"staged")];
        assert_eq!(engine.write(fd, None, &bytes), Some(Ok(6)));
        let known = locked(&engine.files).values().next().cloned().expect("it is served");
        let records = &engine.home().records;
        let record = records.find(known.ino).expect("its record");
        let theirs = {
            let mut state = known.change();
            let staged = records.staged(record, known.ino).expect("whole").expect("a run");
            let owner = records.new_owner(200, 0);
            let theirs = Staged { owner, base: 6, length: 3, ..staged };
            records.fill(record, known.ino, &theirs, b"");
            known.drain_locked(&engine, &mut state, true).expect("nothing is left to be moved");
            assert!(state.run.is_none() && state.size == 0 && state.stolen == 1);
            owner
        };
        let found = records.staged(record, known.ino).expect("whole").expect("a run");
        assert_eq!((found.owner, found.length), (theirs, 3));
        assert!(!engine.has_runs());
    }
}
