//! A peer: a thread that serves the page faults of another (the usual way of userfaultfd). It reads
//! the fault, fetches the page over a plain connection, and installs it by `UFFDIO_COPY`, which
//! wakes the thread that waits.
//!
//! It does less than a node's program: no directory, no checksum, no second mapping, nobody who
//! sends pages away.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::map::Mapping;
use super::remote::{Connection, PAGE, rest};

/// `UFFD_USER_MODE_ONLY` of `userfaultfd(2)`.
const USER_MODE_ONLY: libc::c_int = 1;
/// The version of the interface.
const API: u64 = 0xAA;
/// Missing faults, of memory files too.
const FEATURES: u64 = 1 << 5;
/// Missing faults.
const MISSING: u64 = 1;
/// `UFFD_EVENT_PAGEFAULT`.
const PAGEFAULT: u8 = 0x12;
/// How long the thread polls before it blocks, if it polls.
const SPIN: Duration = Duration::from_micros(50);

/// The number of an ioctl that reads and writes a structure (`asm-generic/ioctl.h`).
const fn both<T>(number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | 0xAA << 8 | number
}

/// A userfaultfd that tells of missing pages.
struct Faults(File);

impl Faults {
    fn open(polls: bool) -> io::Result<Self> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC | if polls { libc::O_NONBLOCK } else { 0 };
        // SAFETY: it makes a descriptor from flags.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        let faults = Self(File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) }));
        faults.call::<[u64; 3]>(0x3F, &mut [API, FEATURES, 0])?;
        Ok(faults)
    }

    fn call<T>(&self, number: u64, call: &mut T) -> io::Result<()> {
        // SAFETY: the structure is the one that the number names; the memory that it names is a
        // `Mapping`, or a buffer, that outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), both::<T>(number), call) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn register(&self, map: &Mapping) -> io::Result<()> {
        let mut call = [map.address() as u64, map.bytes() as u64, MISSING, 0];
        self.call::<[u64; 4]>(0, &mut call)
    }

    fn install(&self, to: u64, page: &[u8]) -> io::Result<()> {
        let mut call = [to, page.as_ptr() as u64, PAGE as u64, 0, 0];
        self.call::<[u64; 5]>(3, &mut call)
    }

    /// The page of the next fault.
    fn next(&self, polls: bool) -> io::Result<u64> {
        let (mut told, begun) = ([0; 32], Instant::now());
        loop {
            match (&self.0).read(&mut told) {
                Ok(32) if told[0] == PAGEFAULT => {
                    let address = told.as_chunks::<8>().0[2];
                    return Ok(u64::from_le_bytes(address) / PAGE as u64 * PAGE as u64);
                }
                Ok(_) => return Err(ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if polls && begun.elapsed() < SPIN {
                        rustix::thread::sched_yield();
                    } else {
                        poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)], None)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Microseconds of each of so many touches that a thread serves.
pub fn touches(
    connection: &mut Connection,
    polls: bool,
    count: usize,
    pause: Duration,
) -> io::Result<Vec<f64>> {
    let faults = Faults::open(polls)?;
    let file = memfd_create("solera-bench", MemfdFlags::CLOEXEC)?;
    let bytes = count * PAGE;
    ftruncate(&file, bytes as u64)?;
    let map = Mapping::of(&File::from(file), bytes)?;
    faults.register(&map)?;
    let mut times = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        // It has the userfaultfd: where it fails, its end wakes who waits.
        let serving = scope.spawn(move || {
            let faults = faults;
            serve(&faults, connection, polls, count)
        });
        for page in 0..count {
            rest(pause);
            let begun = Instant::now();
            map.load(page * PAGE);
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        serving.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    })?;
    Ok(times)
}

/// Serves so many pages.
fn serve(
    faults: &Faults,
    connection: &mut Connection,
    polls: bool,
    count: usize,
) -> io::Result<()> {
    let mut served = 0;
    while served < count {
        let to = faults.next(polls)?;
        match faults.install(to, connection.fetch()?) {
            Ok(()) => served += 1,
            // A fault is told again if a signal came meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
