//! A peer: a thread that serves the page faults of another (the usual way of userfaultfd). It reads
//! the fault, does what is to be done, and wakes the thread that waits. For a page that is away it
//! fetches it over a plain connection and installs it by `UFFDIO_COPY`; a page that is here it
//! maps; of a page that is protected it takes the protection away.
//!
//! It does less than a node's program: no directory, no checksum, no second mapping, nobody who
//! sends pages away.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ddmap::Uffd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use super::connection::{Connection, PAGE, rest};
use super::mapping::Mapping;

/// `UFFD_USER_MODE_ONLY` of `userfaultfd(2)`.
const USER_MODE_ONLY: libc::c_int = 1;
/// The version of the interface.
const API: u64 = 0xAA;
/// Missing, minor and write-protect faults of memory files.
const FEATURES: u64 = 1 | 1 << 12 | 1 << 5 | 1 << 10;
/// `UFFDIO_API` (`linux/userfaultfd.h`).
const API_CALL: libc::c_ulong = 0xC018_AA3F;
/// `UFFD_EVENT_PAGEFAULT`.
const PAGEFAULT: u8 = 0x12;
/// How long the thread polls before it blocks, if it polls.
const SPIN: Duration = Duration::from_micros(50);

/// A userfaultfd that tells of faults. (A program's own gives signals.)
struct Faults(Uffd);

impl Faults {
    fn open(polls: bool) -> io::Result<Self> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC | if polls { libc::O_NONBLOCK } else { 0 };
        // SAFETY: it makes a descriptor from flags.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the call takes a structure of three words.
        if unsafe { libc::ioctl(fd, API_CALL, &mut [API, FEATURES, 0_u64]) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        Ok(Self(Uffd::of_other(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// The page of the next fault.
    fn next(&self, polls: bool) -> io::Result<usize> {
        let (mut told, begun) = ([0; 32], Instant::now());
        loop {
            match rustix::io::read(self.0.as_fd(), &mut told) {
                Ok(32) if told[0] == PAGEFAULT => {
                    let address = usize::from_le_bytes(told.as_chunks::<8>().0[2]);
                    return Ok(address / PAGE * PAGE);
                }
                Ok(_) => return Err(ErrorKind::InvalidData.into()),
                Err(Errno::AGAIN) => {
                    if polls && begun.elapsed() < SPIN {
                        rustix::thread::sched_yield();
                    } else {
                        poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)], None)?;
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// A memory file that is mapped, so that each touch of it is a fault.
fn memory(faults: &Faults, pages: usize, is_there: bool) -> io::Result<Mapping> {
    let file = File::from(memfd_create("solera-bench", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, (pages * PAGE) as u64)?;
    if is_there {
        for page in 0..pages {
            file.write_all_at(&[0x5A; PAGE], (page * PAGE) as u64)?;
        }
    }
    let map = Mapping::of(&file, pages * PAGE)?;
    faults.0.register(map.address(), map.bytes())?;
    Ok(map)
}

/// Microseconds of each of so many touches of pages that are away.
pub fn touches(
    connection: &mut Connection,
    polls: bool,
    count: usize,
    pause: Duration,
) -> io::Result<Vec<f64>> {
    let faults = Faults::open(polls)?;
    let map = memory(&faults, count, false)?;
    let load = |page| {
        map.load(page * PAGE);
    };
    served(faults, polls, count, pause, load, move |faults, at| {
        let page = connection.fetch()?;
        Ok(faults.0.install(at, page, false))
    })
}

/// Microseconds of each of so many touches of pages that are here: loads of what is not mapped,
/// or stores to what is protected.
pub fn traps(stores: bool, count: usize, pause: Duration) -> io::Result<Vec<f64>> {
    let faults = Faults::open(false)?;
    let map = memory(&faults, count, true)?;
    if !stores {
        let load = |page| {
            map.load(page * PAGE);
        };
        return served(faults, false, count, pause, load, |faults, at| {
            Ok(faults.0.show(at, PAGE as u64, false))
        });
    }
    faults.0.show(map.address(), map.bytes() as u64, false)?;
    faults.0.protect(map.address(), map.bytes() as u64, false)?;
    let store = |page| map.store(page * PAGE + 8, 1);
    served(faults, false, count, pause, store, |faults, at| {
        Ok(faults.0.protect(at, PAGE as u64, true))
    })
}

/// Microseconds of each of so many touches that a thread serves.
fn served(
    faults: Faults,
    polls: bool,
    count: usize,
    pause: Duration,
    touch: impl Fn(usize),
    mut serve: impl FnMut(&Faults, usize) -> io::Result<Result<(), Errno>> + Send,
) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        // It has the userfaultfd: where it fails, its end wakes who waits.
        let serving = scope.spawn(move || {
            let mut done = 0;
            while done < count {
                let at = faults.next(polls)?;
                match serve(&faults, at)? {
                    Ok(()) => done += 1,
                    // A fault is told again if a signal came meanwhile.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok::<_, io::Error>(())
        });
        for page in 0..count {
            rest(pause);
            let begun = Instant::now();
            touch(page);
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        serving.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    })?;
    Ok(times)
}
