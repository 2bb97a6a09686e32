//! Staging files: where appended bytes wait for their relink.
//!
//! One serves one file at a time, so that its end can be cut where an exchange needs it. It is
//! mapped whole once (address space only), and allocated and made present ahead of use in steps
//! that double, so that a program that stages little pays for little. Where a run has become long
//! its next step is made ready by a thread (see `worker`). Unused staging files wait in a pool.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use window::Window;

use crate::Result;
use crate::hidden_directory::Home;
use crate::internal_descriptors::HiddenFd;
use crate::relink::{self, BLOCK, Backend};
use crate::worker::{Step, Worker};

/// The first step of allocation.
const STEP_MIN: u64 = 256 << 10;
/// The thread does the next step of a run that is as long.
const LONG: u64 = 2 << 20;
/// Blocks that a file keeps while it waits.
const KEPT: u64 = 32 << 20;
/// The largest.
const STEP_MAX: u64 = 16 << 20;

/// A staging file of this process.
pub struct Staging {
    /// Its number.
    pub number: u32,
    /// It, mapped.
    pub window: Window,
    /// It, open.
    pub fd: HiddenFd,
    limit: u64,
    /// The file offset at which the mapping begins.
    origin: u64,
    /// Where the next run may begin.
    next: u64,
    /// Up to here there are blocks.
    allocated: u64,
    /// It was last used for an exchange: what it holds is not at its usual place.
    swapped: bool,
    /// It is as long as its mapping: a step then changes no size, and a relink of another process
    /// may cut it meanwhile.
    sized: bool,
    /// How long the last run was: the next one may be as long. 0: there was none.
    usual: u64,
    /// The thread was asked for the next step.
    asked: bool,
    worker: Arc<Worker>,
    name: String,
}

/// The name of a staging file.
pub fn name(slot: u32, number: u32) -> String {
    format!("stage.{slot}.{number}")
}

impl Staging {
    /// Makes one.
    pub fn create(home: &Home, number: u32, limit: u64, worker: Arc<Worker>) -> Result<Self> {
        let name = name(home.slot(), number);
        let fd = home.open_file(&name, OFlags::CREATE | OFlags::EXCL)?;
        let fd = HiddenFd::new(fd);
        let window = Window::map(fd.as_fd(), 0, limit as usize, true, home.direct)
            .inspect_err(|_| home.remove_file(&name))?;
        Ok(Self {
            number,
            window,
            fd,
            limit,
            origin: 0,
            next: 0,
            allocated: 0,
            swapped: false,
            sized: false,
            usual: 0,
            asked: false,
            worker,
            name,
        })
    }

    /// Where a run for the file offset `base` begins: at the same place of its block; for an
    /// exchange, which swaps the sizes of two files, at the same offset.
    pub fn begin(&mut self, home: &Home, base: u64, backend: Backend) -> Result<u64> {
        self.collect();
        let exchanges = backend == Backend::Exchange;
        if exchanges || self.swapped || self.next > self.limit / 2 {
            rustix::fs::ftruncate(&self.fd, 0)?;
            (self.next, self.allocated, self.sized) = (0, 0, false);
        }
        self.swapped = exchanges;
        let origin = if exchanges { base - base % BLOCK } else { 0 };
        if origin != self.origin {
            let (fd, limit) = (self.fd.as_fd(), self.limit as usize);
            self.window = Window::map(fd, origin, limit, true, home.direct)?;
            self.origin = origin;
        }
        if !self.sized {
            rustix::fs::ftruncate(&self.fd, origin + self.limit)?;
            self.sized = true;
        }
        if exchanges {
            self.allocated = origin;
            Ok(base)
        } else {
            Ok(self.next + base % BLOCK)
        }
    }

    /// The file offset at which the mapping begins.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Where the offset `at` of the file lies in the mapping.
    pub fn position(&self, at: u64) -> usize {
        (at - self.origin) as usize
    }

    /// Makes room up to `end`. `EFBIG`: it is full.
    pub fn reach(&mut self, end: u64) -> Result<()> {
        if self.allocated < end {
            self.collect();
        }
        while self.allocated < end {
            let used = self.allocated - self.origin;
            let step = self.step();
            if step == 0 {
                return Err(Errno::FBIG);
            }
            allocate(&self.fd, self.allocated, step)?;
            self.window.populate(used as usize, step as usize, true);
            self.allocated += step;
        }
        let (used, filled) = (self.allocated - self.origin, end - self.origin);
        if !self.asked && used >= LONG && (used < self.usual || filled > self.usual) {
            self.ask();
        }
        Ok(())
    }

    /// The length of the next step; 0: it is full.
    fn step(&self) -> u64 {
        let used = self.allocated - self.origin;
        let wanted = if used == 0 { self.usual.next_multiple_of(BLOCK) } else { used };
        // What an exchange leaves unused is given back: no more is made than the last run took.
        let least = if self.swapped && self.usual > 0 { BLOCK } else { STEP_MIN };
        wanted.clamp(least, STEP_MAX).min(self.limit - used)
    }

    /// Lets the thread do the next step.
    #[cold]
    fn ask(&mut self) {
        let (start, length) = (self.allocated, self.step());
        if let Ok(address) = self.window.address(self.position(start), length as usize)
            && length > 0
        {
            let step = Step { fd: self.fd.as_fd().as_raw_fd(), start, length, address };
            self.asked = self.worker.wish(step);
        }
    }

    /// Takes what the thread has done, or what it was to do.
    fn collect(&mut self) {
        if self.asked {
            self.asked = false;
            if let Some(step) = self.worker.collect(self.fd.as_fd().as_raw_fd())
                && step.start == self.allocated
            {
                self.allocated += step.length;
            }
        }
    }

    /// A run that began at `at` and was `length` long has been relinked.
    pub fn ended(&mut self, backend: Backend, at: u64, length: u64) {
        self.collect();
        self.usual = length;
        match backend {
            // The pages are there to be used again.
            Backend::Copy => self.next = 0,
            Backend::Clone => {
                let start = at & !(BLOCK - 1);
                relink::punch(&self.fd, start, at + length - start);
                self.next = (at + length).next_multiple_of(BLOCK);
                self.allocated = self.allocated.max(self.next);
            }
            // It is emptied before it is used again, whatever it was begun for.
            Backend::Exchange => self.swapped = true,
        }
    }

    /// While it is unused it keeps no more than a few steps' blocks.
    pub fn trim(&mut self) -> Result<()> {
        if self.swapped {
            rustix::fs::ftruncate(&self.fd, 0)?;
            self.sized = false;
        } else if self.allocated > KEPT {
            rustix::fs::ftruncate(&self.fd, KEPT)?;
            self.sized = false;
            self.allocated = KEPT;
            if self.next > KEPT {
                self.next = KEPT;
            }
        }
        Ok(())
    }

    /// Removes its name: the blocks go with the mapping. Whether it is not there any more.
    pub fn remove(self, home: &Home) -> bool {
        home.has_removed(&self.name)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.collect();
    }
}

/// Gives a part of a staging file its blocks. Its size stays: a relink of a run goes by it.
pub fn allocate(fd: impl AsFd, start: u64, length: u64) -> Result<()> {
    loop {
        match rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, start, length) {
            Err(Errno::INTR) => {}
            // Blocks come as they are stored to.
            Err(Errno::OPNOTSUPP) => return Ok(()),
            result => return result,
        }
    }
}
