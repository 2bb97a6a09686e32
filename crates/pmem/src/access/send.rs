//! Bytes that leave a region for a file of the kernel's, by one copy, which the kernel makes.
//!
//! A page that is gone or poisoned is the kernel's to notice: it ends the system call with
//! `EFAULT`, which is [`Errno::IO`] here.
//!
//! No locks.

use crate::region::Region;
use os::interrupt::system_call;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

impl Region {
    /// Writes `len` bytes from `off` on to the place `at` of a file. `EIO`: they cannot be read;
    /// else what `pwrite` gives; `ENOSPC` also if it wrote less than it was given.
    pub fn copy_to_file(
        &self,
        off: u64,
        len: u64,
        file: BorrowedFd<'_>,
        at: u64,
    ) -> Result<(), Errno> {
        let from = self.range(off, len)?;
        let moving = self.slow_memory().map(|slow| slow.read(self.base() as u64 + off, len));
        let mut done = 0;
        while done < len as usize {
            let start = from.wrapping_add(done) as usize;
            let place = at as usize + done;
            let arguments = [file.as_raw_fd() as usize, start, len as usize - done, place, 0, 0];
            // SAFETY: the kernel only reads the range, which is mapped, and checks each page of it.
            match unsafe { system_call(libc::SYS_pwrite64, arguments) } {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::FAULT) => return Err(Errno::IO),
                Err(errno) => return Err(errno),
            }
        }
        if let Some(moving) = moving {
            moving.wait();
        }
        Ok(())
    }
}
