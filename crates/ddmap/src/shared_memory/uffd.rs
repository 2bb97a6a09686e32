//! A userfaultfd: how this process learns that a page of a mapping is not there, and puts it there.
//!
//! It works in SIGBUS mode: the thread that touches a page gets the signal, and serves itself. All
//! three kinds are registered, so that a page-table entry exists only because we put it there: a
//! hole of the page file traps (*missing*), a page that is in the file and not mapped here traps
//! (*minor*), a store to a protected page traps (*write-protect*). The kernel's own accesses get
//! `EFAULT`.
//!
//! A page that is mapped here is protected in the same step, if it is to be: so no store gets
//! through before. (A kernel before Linux 6.4 cannot map so what is in the file:
//! [`Uffd::can_protect`].)
//!
//! `UFFD_USER_MODE_ONLY` needs no privilege (`userfaultfd(2)`). It takes Linux 5.19 for all three
//! on shared memory. A child that is forked does not inherit a registration: mappings that are
//! registered must not be inherited either.

use crate::protocol::PAGE;
use crate::shared_memory::error::DomainError;
use os::InternalFd;
use os::interrupt::system_call;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `UFFD_USER_MODE_ONLY` of `userfaultfd(2)`.
const USER_MODE_ONLY: usize = 1;
/// The version of the interface.
const API: u64 = 0xAA;
/// Write protection of mapped pages; of shared memory; SIGBUS mode; missing and minor faults of
/// shared memory.
const FEATURES: u64 = 1 | 1 << 12 | 1 << 7 | 1 << 5 | 1 << 10;
/// Missing, write-protect and minor faults.
const MODES: u64 = 1 | 2 | 4;

#[repr(C)]
#[derive(Default)]
struct ApiCall {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Range {
    start: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct RegisterCall {
    range: Range,
    modes: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct CopyCall {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

/// Of `UFFDIO_COPY` and `UFFDIO_CONTINUE`: what is mapped is protected.
const PROTECTED: u64 = 2;

fn mode(protected: bool) -> u64 {
    if protected { PROTECTED } else { 0 }
}

/// Of `UFFDIO_ZEROPAGE` and `UFFDIO_CONTINUE`.
#[repr(C)]
#[derive(Default)]
struct PlaceCall {
    range: Range,
    mode: u64,
    placed: i64,
}

#[repr(C)]
#[derive(Default)]
struct ProtectCall {
    range: Range,
    mode: u64,
}

/// Why [`Uffd::open`] has failed, and what to do.
pub fn missing(asked: &str, errno: Errno) -> DomainError {
    let (found, advice) = match errno {
        Errno::PERM => (
            "userfaultfd is forbidden here".to_owned(),
            "allow the system call in the container's filter of system calls (seccomp); \
             vm.unprivileged_userfaultfd may be 0",
        ),
        Errno::NOSYS => (
            "this kernel has no userfaultfd, or a filter of system calls hides it".to_owned(),
            "use one with CONFIG_USERFAULTFD, or allow the system call (seccomp)",
        ),
        Errno::INVAL => {
            ("this kernel's userfaultfd is too old".to_owned(), "use Linux 5.19 or later")
        }
        errno => (format!("userfaultfd: {}", os::describe(errno)), ""),
    };
    DomainError::new(asked, found, advice)
}

/// The number of an ioctl that reads and writes a structure (`asm-generic/ioctl.h`).
const fn both<T>(number: usize) -> usize {
    3 << 30 | size_of::<T>() << 16 | 0xAA << 8 | number
}

/// A userfaultfd of a process: of this one, or of one that has handed it over.
#[derive(Debug)]
pub struct Uffd(InternalFd);

impl Uffd {
    /// One for this process. `EPERM`: a security filter or `vm.unprivileged_userfaultfd` forbids
    /// it; `ENOSYS`: this kernel has none; `EINVAL`: it is older than Linux 5.19.
    pub fn open() -> Result<Self, Errno> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC as usize | libc::O_NONBLOCK as usize;
        // SAFETY: it makes a descriptor from flags.
        let fd = unsafe { system_call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])? };
        // SAFETY: the kernel has just made it for us.
        let made = Self(InternalFd::new(unsafe { OwnedFd::from_raw_fd(fd as i32) }));
        let mut call = ApiCall { api: API, features: FEATURES, ioctls: 0 };
        made.call(both::<ApiCall>(0x3F), &mut call)?;
        Ok(made)
    }

    /// In a forked child: one of its own, in the place of its parent's.
    pub fn renew(&self) -> Result<(), Errno> {
        let new = Self::open()?;
        let old = self.0.as_raw_fd();
        self.0.replace(new.0);
        // SAFETY: the number that this had until now, which nobody else closes.
        drop(unsafe { OwnedFd::from_raw_fd(old) });
        Ok(())
    }

    /// The userfaultfd of another process, which has handed it over.
    pub fn of_other(fd: OwnedFd) -> Self {
        Self(InternalFd::new(fd))
    }

    /// The same of a descriptor of which that is not sure. `EINVAL`: it is something else.
    pub fn of_other_if(fd: OwnedFd) -> Result<Self, Errno> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let target = rustix::fs::readlink(link, Vec::new())?;
        if target.to_bytes() != b"anon_inode:[userfaultfd]" {
            return Err(Errno::INVAL);
        }
        Ok(Self::of_other(fd))
    }

    fn call<T>(&self, number: usize, call: &mut T) -> Result<(), Errno> {
        let at = std::ptr::from_mut(call) as usize;
        let arguments = [self.0.as_raw_fd() as usize, number, at, 0, 0, 0];
        // SAFETY: the structure is the one that the number names. What the kernel does with memory
        // is what this module is for: see the callers.
        unsafe { system_call(libc::SYS_ioctl, arguments) }.map(drop)
    }

    /// From here on, accesses to pages of a mapping that we did not put there trap.
    pub fn register(&self, start: usize, length: usize) -> Result<(), Errno> {
        let range = Range { start: start as u64, length: length as u64 };
        self.call(both::<RegisterCall>(0), &mut RegisterCall { range, modes: MODES, ioctls: 0 })
    }

    /// Whether this kernel maps a page of the file and protects it in one step.
    pub fn can_protect(&self) -> bool {
        // Memory that is not registered: it is looked for behind the mode.
        let own = std::ptr::from_ref(&PROTECTED) as usize / PAGE as usize * PAGE as usize;
        self.show(own, PAGE, true) != Err(Errno::INVAL)
    }

    /// Puts bytes into holes of the file under a mapping, and maps them there, each page whole in
    /// one step, `protected` or not. `EEXIST`: a page is there already.
    pub fn install(&self, to: usize, bytes: &[u8], protected: bool) -> Result<(), Errno> {
        self.install_run(to, bytes, protected).1
    }

    /// The same of pages in a row: how many bytes were put there, and why no more.
    pub fn install_run(
        &self,
        to: usize,
        bytes: &[u8],
        protected: bool,
    ) -> (u64, Result<(), Errno>) {
        let (from, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        Self::repeat(length, |done| {
            let mut call = CopyCall {
                to: to as u64 + done,
                from: from + done,
                length: length - done,
                mode: mode(protected),
                copied: 0,
            };
            let outcome = self.call(both::<CopyCall>(3), &mut call);
            (outcome, call.copied)
        })
    }

    /// The same with zeros.
    pub fn install_zeros(&self, to: usize, length: u64) -> (u64, Result<(), Errno>) {
        self.place(4, to, length, 0)
    }

    /// Maps pages that are in the file, `protected` or not. `EEXIST`: one is mapped already;
    /// `EFAULT`: one is a hole.
    pub fn show(&self, at: usize, length: u64, protected: bool) -> Result<(), Errno> {
        self.place(7, at, length, mode(protected)).1
    }

    fn place(&self, number: usize, at: usize, length: u64, mode: u64) -> (u64, Result<(), Errno>) {
        Self::repeat(length, |done| {
            let range = Range { start: at as u64 + done, length: length - done };
            let mut call = PlaceCall { range, mode, placed: 0 };
            let outcome = self.call(both::<PlaceCall>(number), &mut call);
            (outcome, call.placed)
        })
    }

    /// Stores to these pages trap from here on, or can be made again.
    pub fn protect(&self, start: usize, length: u64, stores: bool) -> Result<(), Errno> {
        loop {
            let range = Range { start: start as u64, length };
            let mut call = ProtectCall { range, mode: u64::from(!stores) };
            match self.call(both::<ProtectCall>(6), &mut call) {
                // The mappings change meanwhile: `fork`, or `mmap` in another thread.
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
    }

    /// Makes a call for what is left, as often as the kernel stops half-way.
    fn repeat(
        length: u64,
        mut call: impl FnMut(u64) -> (Result<(), Errno>, i64),
    ) -> (u64, Result<(), Errno>) {
        let mut done = 0;
        while done < length {
            let (outcome, moved) = call(done);
            done += u64::try_from(moved).unwrap_or(0) / PAGE * PAGE;
            match outcome {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(errno) => return (done, Err(errno)),
            }
        }
        (done, Ok(()))
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
