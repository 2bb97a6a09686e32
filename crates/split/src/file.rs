//! A file that this process has open: its size, its windows, its run of staged bytes.
//!
//! Reads and overwrites are copies from and to windows, mapped on first use. The size is cached,
//! and other processes may change it, with or without an engine. It is never trusted where that
//! could show: a read that reaches the end asks the kernel again; a window's page that is gone is a
//! fault, after which the kernel is asked; and a page that was cut in its middle ends in zeros, so
//! a read or an overwrite whose last byte *is* zero in the file asks the kernel too. So no process
//! sees bytes beyond an end that it could have known of, and none writes there.
//!
//! Locks: `state` (shared for reads and overwrites, exclusive for all else), then the shared record
//! (see `records`). None is held while anything but the kernel is waited for.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pmem::{Fault, UserIn, UserOut};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;
use window::Window;

use crate::engine::Engine;
use crate::grow::Run;
use crate::internal_descriptors::HiddenFd;
use crate::records::Word;
use crate::{Result, sys};

/// A read of such a length that does not follow the last one prefetches all its lines. (A
/// sequential read's are on their way already.)
const FAR: std::ops::RangeInclusive<usize> = 512..=8192;
/// How often a call is begun anew before the kernel serves it.
const TRIES: usize = 16;

/// An open file.
pub struct File {
    /// The file system it is on.
    device: u64,
    /// Its inode number.
    pub ino: u64,
    /// Where it was found.
    pub path: Vec<u8>,
    /// It has a run: a hint for calls that the kernel serves.
    pub has_run: AtomicBool,
    /// One of its names was removed: it is not to rest.
    pub lost_name: AtomicBool,
    /// It was written through windows since its times were set.
    pub times_are_old: AtomicBool,
    /// Where the last read ended: a hint.
    read_to: AtomicU64,
    /// How often this process has made it durable.
    pub syncs: AtomicU64,
    /// What of it was left to the kernel, and reported: bits of [`KernelReason`].
    left: AtomicU8,
    /// Descriptions of this process.
    pub users: AtomicUsize,
    /// What tells it from another file that has its inode number later.
    pub birth: u64,
    state: RwLock<State>,
}

/// What changes.
pub struct State {
    /// The size, staged bytes included.
    pub size: u64,
    /// Staged bytes.
    pub run: Option<Run>,
    /// The engine's own descriptor, for reading and writing.
    pub own: Option<HiddenFd>,
    /// The process may hold record locks on the file, which any close of it would drop: the
    /// engine's own descriptor is there by now, or is not opened any more.
    pub locked: bool,
    /// Appends go to the kernel: the file is mapped, or cannot be opened for writing.
    pub direct: bool,
    /// Appends that lie in one page go to the kernel: a kill does not tear them.
    pub direct_in_page: bool,
    /// How often other processes have relinked what was staged here.
    pub stolen: u32,
    /// How often a run was small when it had to be relinked.
    pub small: u32,
    /// What the file was like when this process last made it durable.
    pub durable: Option<Durable>,
    windows: BTreeMap<u64, CachedWindow>,
}

/// A file's size and the time of its last change: as long as they stay, it is unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Durable(i64, i64, i64);

impl Durable {
    /// As it is now.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self(stat.st_size, stat.st_ctime, i64::from(stat.st_ctime_nsec as u32))
    }
}

/// A window, and when it was looked through last, in windows that were mapped since the start.
struct CachedWindow {
    window: Window,
    used: AtomicU64,
}

/// What is left to the kernel although it could be served: it costs less there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelReason {
    /// Overwrites of pages that are not written often.
    Overwrites = 1,
    /// Appends that are long.
    LongAppends = 2,
    /// Appends in one page, or all where `posix` allows it: what was staged was never much.
    ShortRuns = 4,
    /// Appends to a file that is mapped, or cannot be opened by the engine.
    Mapped = 8,
    /// Appends to a file on which a stream of the C library works.
    Streams = 16,
}

impl KernelReason {
    /// As the report has it.
    const fn reason(self) -> &'static str {
        match self {
            Self::Overwrites => "overwrites-of-cold-pages",
            Self::LongAppends => "long-appends",
            Self::ShortRuns => "appends-in-short-runs",
            Self::Mapped => "appends-to-a-mapped-file",
            Self::Streams => "appends-beside-a-stream",
        }
    }
}

/// Why a copy could not be made from here.
enum Gap {
    /// This window is not mapped (for writing, if that is asked for).
    Window(u64),
    /// The file is not what it was.
    Stale,
    /// The caller's memory is bad, or the kernel is to serve the call for another reason.
    Kernel,
}

impl From<Fault> for Gap {
    fn from(fault: Fault) -> Self {
        if fault == Fault::Caller { Self::Kernel } else { Self::Stale }
    }
}

/// The total length of buffers.
pub fn length_in(buffers: &[UserIn<'_>]) -> usize {
    buffers.iter().map(UserIn::len).sum()
}

impl State {
    /// Where the staged bytes begin; the end if there are none.
    fn base(&self) -> u64 {
        self.run.as_ref().map_or(u64::MAX, |run| run.base)
    }

    /// Whether the run is still this process's, and no process is moving it.
    fn has_own_run(&self, cx: &Engine) -> bool {
        let records = &cx.home().records;
        self.run.as_ref().is_some_and(|run| {
            records.get(run.record, Word::Owner) == run.owner.0
                && records.get(run.record, Word::Lock) == 0
        })
    }

    /// The window of `offset`, and what lies from there to its end.
    fn window(&self, cx: &Engine, offset: u64, write: bool) -> std::result::Result<&Window, Gap> {
        let index = offset / cx.window_bytes();
        match self.windows.get(&index) {
            Some(kept) if !write || kept.window.writable() => {
                let now = cx.windows_made();
                if kept.used.load(Ordering::Relaxed) != now {
                    kept.used.store(now, Ordering::Relaxed);
                }
                Ok(&kept.window)
            }
            _ => Err(Gap::Window(index)),
        }
    }

    /// Asks for a part of a window to be brought near.
    fn prefetch(&self, cx: &Engine, offset: u64, len: usize) {
        if let Ok(window) = self.window(cx, offset, false) {
            let inside = (offset % cx.window_bytes()) as usize;
            window.prefetch(inside, len.min(cx.window_bytes() as usize - inside));
        }
    }

    /// Copies `[offset, offset + len)` out, which may be `near` by now.
    fn copy_out(
        &self,
        cx: &Engine,
        offset: u64,
        to: &UserOut<'_>,
        near: bool,
    ) -> std::result::Result<(), Gap> {
        let mut done = 0;
        while done < to.len() {
            let at = offset + done as u64;
            let left = to.len() - done;
            if let Some(run) = &self.run
                && at >= run.base
            {
                run.read(at, &to.slice(done, left))?;
                break;
            }
            let window = self.window(cx, at, false)?;
            let inside = (at % cx.window_bytes()) as usize;
            let room = (cx.window_bytes() as usize - inside)
                .min(usize::try_from(self.base() - at).unwrap_or(usize::MAX));
            let len = left.min(room);
            if near {
                window.read_near(inside, &to.slice(done, len), len)?;
            } else {
                window.read_to(inside, &to.slice(done, len), len)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Copies bytes to a range below the staged ones.
    fn copy_in(&self, cx: &Engine, offset: u64, from: &UserIn<'_>) -> std::result::Result<(), Gap> {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let window = self.window(cx, at, true)?;
            let inside = (at % cx.window_bytes()) as usize;
            let len = (from.len() - done).min(cx.window_bytes() as usize - inside);
            cx.put(window, inside, &from.slice(done, len))?;
            done += len;
        }
        Ok(())
    }

    /// Where the bytes end that are in the file itself.
    fn end(&self) -> u64 {
        self.size.min(self.base())
    }

    /// Whether the file may have been cut before `offset` in its page: then from there to the
    /// page's end, or the file's, all is zero.
    fn may_be_cut(&self, cx: &Engine, offset: u64) -> std::result::Result<bool, Gap> {
        let window = self.window(cx, offset, false)?;
        let byte = |at: u64| window.byte((at % cx.window_bytes()) as usize);
        let last = (offset | 0xfff).min(self.end() - 1);
        Ok(byte(offset)? == 0 && (last <= offset || byte(last)? == 0))
    }

    /// Drops the windows that begin at `size` or later.
    pub fn cut(&mut self, cx: &Engine, size: u64) {
        let first = size.div_ceil(cx.window_bytes());
        let before = self.windows.len();
        self.windows.split_off(&first);
        cx.windows_gone(before - self.windows.len());
    }

    /// When each window was used last.
    pub fn uses(&self) -> impl Iterator<Item = u64> {
        self.windows.values().map(|kept| kept.used.load(Ordering::Relaxed))
    }

    /// Drops the windows that were used last at `time` or earlier.
    pub fn cool(&mut self, cx: &Engine, time: u64) {
        let before = self.windows.len();
        self.windows.retain(|_, kept| kept.used.load(Ordering::Relaxed) > time);
        cx.windows_gone(before - self.windows.len());
    }
}

impl File {
    /// A file of which nothing is known but its size.
    pub fn new(stat: &rustix::fs::Stat, birth: u64, path: Vec<u8>) -> Self {
        let state = State {
            size: stat.st_size as u64,
            run: None,
            own: None,
            locked: false,
            direct: false,
            direct_in_page: false,
            stolen: 0,
            small: 0,
            durable: None,
            windows: BTreeMap::new(),
        };
        Self {
            device: stat.st_dev,
            ino: stat.st_ino,
            path,
            has_run: AtomicBool::new(false),
            lost_name: AtomicBool::new(false),
            times_are_old: AtomicBool::new(false),
            read_to: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            left: AtomicU8::new(0),
            users: AtomicUsize::new(0),
            birth,
            state: RwLock::new(state),
        }
    }

    /// Before any other thread knows of it: whether its appends go to the kernel.
    pub fn leave_appends(&mut self, direct: bool) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).direct = direct;
    }

    /// The state, to be changed.
    pub fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, to be looked at.
    pub fn look(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size that this process knows of.
    pub fn size(&self) -> u64 {
        self.look().size
    }

    /// Opens the engine's own descriptor; `None`: it may not be had.
    pub fn own<'a>(&self, cx: &Engine, state: &'a mut State, fd: i32) -> Option<&'a HiddenFd> {
        // A descriptor gets its high number by a duplicate, and the low one is closed.
        if state.own.is_none() && !state.locked && !cx.is_locked_elsewhere(self.ino) {
            state.own = Some(HiddenFd::new(self.open_anew(fd, OFlags::RDWR)?));
        }
        state.own.as_ref()
    }

    /// Opens the file of the program's `fd` by a description of the engine's own.
    fn open_anew(&self, fd: i32, access: OFlags) -> Option<OwnedFd> {
        let path = format!("/proc/self/fd/{fd}");
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, FileMode::empty()).ok()?;
        // The number may stand for another file by now.
        if !self.is(&rustix::fs::fstat(&file).ok()?) {
            // Closing that one could drop record locks of the process.
            std::mem::forget(file);
            return None;
        }
        Some(file)
    }

    /// A window for reading. It outlives the program's descriptors, so it must not hold their
    /// descriptions, with their locks and right to write. None where closing the descriptor that it
    /// maps would drop record locks.
    fn map_to_read(&self, cx: &Engine, state: &State, fd: i32, offset: u64) -> Option<Window> {
        if state.locked || cx.is_locked_elsewhere(self.ino) {
            return None;
        }
        let file = self.open_anew(fd, OFlags::RDONLY)?;
        let (len, sync) = (cx.window_bytes() as usize, cx.home().direct);
        Window::map(file.as_fd(), offset, len, false, sync).ok()
    }

    /// Before the process locks a part of the file by record.
    pub fn before_lock(&self, cx: &Engine, fd: i32) {
        let mut state = self.change();
        if self.own(cx, &mut state, fd).is_none() {
            state.direct = true;
        }
        state.locked = true;
    }

    /// Whether [`File::before_lock`] was called.
    pub fn is_locked(&self) -> bool {
        self.look().locked
    }

    /// What the kernel says of it; `EBADF` if the number stands for another file by now.
    pub fn stat(&self, fd: i32) -> Result<rustix::fs::Stat> {
        let stat = rustix::fs::fstat(sys::borrow(fd)?)?;
        if self.is(&stat) { Ok(stat) } else { Err(Errno::BADF) }
    }

    /// Whether `stat` is of this file: another file system has the same inode numbers.
    fn is(&self, stat: &rustix::fs::Stat) -> bool {
        (stat.st_dev, stat.st_ino) == (self.device, self.ino)
    }

    /// Whether the kernel says that the file ends where this process believes.
    fn ends_as_known(&self, fd: i32, state: &State) -> bool {
        self.stat(fd).is_ok_and(|stat| stat.st_size as u64 == state.end())
    }

    /// Maps a window. `false`: it cannot be had.
    fn map(&self, cx: &Engine, fd: i32, index: u64, write: bool) -> bool {
        if cx.windows_are_many() {
            cx.cool();
        }
        let mut state = self.change();
        let has_own = write && self.own(cx, &mut state, fd).is_some();
        if write && !has_own {
            return false;
        }
        if state.windows.get(&index).is_some_and(|kept| kept.window.writable() || !write) {
            return true;
        }
        let bytes = cx.window_bytes();
        let offset = index * bytes;
        // Reading a hole of a tmpfs through a mapping fills it.
        if cx.home().fills_holes
            && self.stat(fd).is_ok_and(|stat| (stat.st_blocks as u64) * 512 < stat.st_size as u64)
        {
            return false;
        }
        let sync = cx.home().direct;
        let mapped = match &state.own {
            Some(own) => Window::map(own.as_fd(), offset, bytes as usize, true, sync).ok(),
            None => self.map_to_read(cx, &state, fd, offset),
        };
        let Some(window) = mapped else { return false };
        // Elsewhere it would read all of it from the medium; a fault brings what is in memory
        // around it.
        if sync || cx.home().fills_holes {
            window.populate(0, state.size.saturating_sub(offset).min(bytes) as usize, false);
        }
        let kept = CachedWindow { window, used: AtomicU64::new(cx.windows_made()) };
        if state.windows.insert(index, kept).is_none() {
            cx.window_made();
        }
        true
    }

    /// Fetches what other processes have staged, then asks the kernel for the size.
    pub fn refresh(&self, cx: &Engine, fd: i32) -> Result<()> {
        let mut state = self.change();
        self.refresh_locked(cx, &mut state, fd)
    }

    /// As [`File::refresh`].
    pub fn refresh_locked(&self, cx: &Engine, state: &mut State, fd: i32) -> Result<()> {
        self.check_run(cx, state);
        if state.run.is_none() {
            self.fetch_others(cx, state, fd)?;
        }
        let stat = self.stat(fd)?;
        let size = stat.st_size as u64;
        if cx.home().fills_holes && (stat.st_blocks as u64) * 512 < size {
            // It has holes by now, which looking would fill.
            state.cut(cx, 0);
        }
        match &state.run {
            Some(run) if size == run.base => {}
            Some(_) => {
                let drained = self.drain_locked(cx, state, cx.home().durable());
                // A part may be at its place, without room for the rest: all of it is still staged.
                let no_room = matches!(drained, Err(Errno::NOSPC | Errno::DQUOT));
                let reaches = |run: &Run| (run.base..=run.base + run.length).contains(&size);
                if !(no_room && state.run.as_ref().is_some_and(reaches)) {
                    drained?;
                }
            }
            None => {
                if size < state.size {
                    state.cut(cx, size);
                }
                state.size = size;
            }
        }
        Ok(())
    }

    /// Reads at `offset`.
    pub fn read(
        &self,
        cx: &Engine,
        fd: i32,
        offset: u64,
        out: &[UserOut<'_>],
    ) -> Option<Result<usize>> {
        let wanted: usize = out.iter().map(UserOut::len).sum();
        let mut fresh = false;
        for _ in 0..TRIES {
            let state = self.look();
            if !fresh && offset.saturating_add(wanted as u64) > state.size {
                drop(state);
                self.refresh(cx, fd).ok()?;
                fresh = true;
                continue;
            }
            let len = state.size.saturating_sub(offset).min(wanted as u64) as usize;
            if len == 0 {
                return Some(Ok(0));
            }
            let last = offset + len as u64 - 1;
            let far = FAR.contains(&len) && self.read_to.load(Ordering::Relaxed) != offset;
            if far {
                state.prefetch(cx, offset, len);
            }
            self.read_to.store(last + 1, Ordering::Relaxed);
            // Another process may relink the run at any time: an exchange leaves other bytes in it.
            let copied = if last >= state.base() && !state.has_own_run(cx) {
                Err(Gap::Stale)
            } else if fresh || last >= state.base() {
                copy_all_out(cx, &state, offset, out, len, far)
            } else {
                // Before the copy: what lies behind a read's count stays as it was.
                match state.may_be_cut(cx, last) {
                    Ok(true) if !self.ends_as_known(fd, &state) => Err(Gap::Stale),
                    Ok(_) => copy_all_out(cx, &state, offset, out, len, far),
                    Err(gap) => Err(gap),
                }
            };
            match copied {
                Ok(()) if last >= state.base() && !state.has_own_run(cx) => {
                    drop(state);
                    self.refresh(cx, fd).ok()?;
                    fresh = true;
                }
                Ok(()) => return Some(Ok(len)),
                Err(Gap::Window(index)) => {
                    drop(state);
                    if !self.map(cx, fd, index, false) {
                        return None;
                    }
                }
                Err(Gap::Stale) => {
                    drop(state);
                    self.refresh(cx, fd).ok()?;
                    fresh = true;
                }
                Err(Gap::Kernel) => return None,
            }
        }
        None
    }

    /// Writes to a range that lies in the file below what is staged. `Ok(false)`: it does not, or
    /// the kernel is to do it.
    pub fn overwrite(
        &self,
        cx: &Engine,
        fd: i32,
        offset: u64,
        from: &[UserIn<'_>],
    ) -> Result<bool> {
        let len = length_in(from) as u64;
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        let mut fresh = false;
        for _ in 0..TRIES {
            let state = self.look();
            if end > state.size || end > state.base() {
                return Ok(false);
            }
            if let [piece] = from
                && cx.is_cold(self, offset, len)
                && sys::write_number(fd, piece, Some(offset)) == Ok(piece.len())
            {
                self.leaves(cx, KernelReason::Overwrites);
                return Ok(true);
            }
            let done = match state.may_be_cut(cx, end - 1) {
                Ok(true) if !fresh && !self.ends_as_known(fd, &state) => Err(Gap::Stale),
                Ok(_) => copy_all_in(cx, self, &state, offset, from),
                Err(gap) => Err(gap),
            };
            drop(state);
            match done {
                Ok(()) => {
                    self.age_times(cx);
                    return Ok(true);
                }
                Err(Gap::Window(index)) => {
                    if !self.map(cx, fd, index, true) {
                        return Ok(false);
                    }
                }
                Err(Gap::Stale) if fresh => return Ok(false),
                Err(Gap::Stale) => {
                    self.refresh(cx, fd)?;
                    fresh = true;
                }
                Err(Gap::Kernel) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Something of this file is left to the kernel: the report says so, once.
    pub fn leaves(&self, cx: &Engine, what: KernelReason) {
        let bit = what as u8;
        if self.left.load(Ordering::Relaxed) & bit == 0
            && self.left.fetch_or(bit, Ordering::Relaxed) & bit == 0
        {
            cx.fell_back(what.reason());
        }
    }

    /// The file was changed without the kernel's knowing.
    pub fn age_times(&self, cx: &Engine) {
        if !self.times_are_old.load(Ordering::Relaxed) {
            self.times_are_old.store(true, Ordering::Relaxed);
            cx.times_aged();
        }
    }

    /// Its bytes are at their place, to be made durable.
    pub fn synced(&self) {
        // A hint: two at once may count for one.
        self.syncs.store(self.syncs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.renew_times_by_own();
    }

    /// What other processes have staged goes to its place.
    pub fn fetch(&self, cx: &Engine, fd: i32) -> Result<()> {
        if !cx.anything_staged() {
            return Ok(());
        }
        let mut state = self.change();
        self.check_run(cx, &mut state);
        self.fetch_others(cx, &mut state, fd)
    }

    /// The size is to be asked for at the next call.
    pub fn size_is_stale(&self, cx: &Engine) {
        let mut state = self.change();
        if let Some(own) = &state.own
            && let Ok(stat) = rustix::fs::fstat(own)
        {
            state.size = stat.st_size as u64;
        } else {
            state.size = 0;
        }
        let size = state.size;
        state.cut(cx, size);
    }

    /// Everything mapped is unmapped.
    pub fn unmap(&self, cx: &Engine) {
        self.change().cut(cx, 0);
    }

    /// It is not in use any more: keeps the windows that the next opening may use. `false`: it has
    /// none.
    ///
    /// What is mapped for writing goes: it would keep the file from being executed.
    pub fn rest(&self, cx: &Engine) -> bool {
        let mut state = self.change();
        if state.own.is_some() || state.locked || self.lost_name.load(Ordering::Relaxed) {
            state.cut(cx, 0);
            state.own = None;
        }
        !state.windows.is_empty()
    }

    /// It is used again; it is `size` long.
    pub fn wake(&self, cx: &Engine, size: u64) {
        let mut state = self.change();
        // What could not be drained at its last close is still beyond that.
        if state.run.is_none() {
            state.cut(cx, size);
            state.size = size;
        }
    }

    /// How many windows it has.
    pub fn windows(&self) -> usize {
        self.look().windows.len()
    }

    /// Whether no other file can have its inode number: one that rests without windows may be gone.
    pub fn keeps_number(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0 || self.windows() > 0
    }
}

fn copy_all_out(
    cx: &Engine,
    state: &State,
    offset: u64,
    out: &[UserOut<'_>],
    len: usize,
    near: bool,
) -> std::result::Result<(), Gap> {
    let mut done = 0;
    for to in out {
        let part = to.len().min(len - done);
        state.copy_out(cx, offset + done as u64, &to.slice(0, part), near)?;
        done += part;
    }
    Ok(())
}

fn copy_all_in(
    cx: &Engine,
    file: &File,
    state: &State,
    offset: u64,
    from: &[UserIn<'_>],
) -> std::result::Result<(), Gap> {
    // All windows are mapped first: an entry that is logged and never applied would be replayed
    // later with whatever its lane holds then.
    let end = offset + length_in(from) as u64;
    let mut at = offset;
    while at < end {
        state.window(cx, at, true)?;
        at = (at / cx.window_bytes() + 1) * cx.window_bytes();
    }
    // Strict: the whole call is in the log before the first byte of it is in its place.
    let logged = cx.log_overwrite(state, file, offset, from)?;
    let mut done = 0;
    let copied = from.iter().try_for_each(|piece| {
        state.copy_in(cx, offset + done as u64, piece)?;
        done += piece.len();
        Ok(())
    });
    if cx.streams() {
        pmem::fence();
    }
    if let Some(logged) = logged {
        logged.applied();
    }
    copied
}
