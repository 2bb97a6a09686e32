//! Solera's own descriptors inside a program: at numbers out of its way, and moved if it wants one
//! of these.
//!
//! A program expects the lowest free numbers for its own. Where the hard limit of numbers allows it
//! ours stand beyond the *soft* limit, where no call of the program's reaches; else at 1000 or
//! above. A number that was vacated stays open for the caller, to be replaced in one step.
//!
//! A program may lower the limit afterwards. What is open beyond it stays open, but no call puts
//! another descriptor there: so the soft limit is raised for such a call ([`put_at`]).

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::io::{DupFlags, Errno};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Beyond higher soft limits the kernel's table of numbers, which fork copies, would grow too
/// large.
const SOFT_MAX: u64 = 4096;
/// Where ours stand if they cannot stand beyond the limit; lower where the limit is lower.
const HIGH: [RawFd; 3] = [1000, 200, 64];
/// Numbers beyond the soft limit that are tried.
const ROOM: u64 = 64;

/// Numbers that are listed: higher ones are not.
const LISTED: usize = 65_536;
/// A bit for each number that is one of ours.
static NUMBERS: [AtomicU64; LISTED / 64] = [const { AtomicU64::new(0) }; LISTED / 64];

fn list(number: RawFd, is_ours: bool) {
    let Some(word) = usize::try_from(number).ok().and_then(|number| NUMBERS.get(number / 64))
    else {
        return;
    };
    let bit = 1 << (number % 64);
    if is_ours {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether a number is that of an [`InternalFd`] of this process.
#[inline]
pub fn is_internal_number(number: RawFd) -> bool {
    let word = usize::try_from(number).ok().and_then(|number| NUMBERS.get(number / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (number % 64) != 0)
}

/// All of these, in ascending order.
pub fn internal_numbers() -> impl Iterator<Item = RawFd> {
    (0..).zip(&NUMBERS).flat_map(|(at, word)| {
        let mut bits = word.load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            let bit = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            (bit < 64).then_some(at * 64 + bit.cast_signed())
        })
    })
}

/// An open descriptor whose number may change.
#[derive(Debug)]
pub struct InternalFd(AtomicI32);

impl InternalFd {
    /// Moves a descriptor out of the program's way. (The number that it had is closed.)
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self::in_place(high(&fd).unwrap_or(fd))
    }

    /// Takes a descriptor where it stands.
    #[must_use]
    pub fn in_place(fd: OwnedFd) -> Self {
        let number = fd.into_raw_fd();
        list(number, true);
        Self(AtomicI32::new(number))
    }

    /// The descriptor, at the number that it has.
    #[must_use]
    pub fn into_owned(self) -> OwnedFd {
        let number = self.0.load(Ordering::Acquire);
        list(number, false);
        std::mem::forget(self);
        // SAFETY: it was this one's own, which is forgotten.
        unsafe { OwnedFd::from_raw_fd(number) }
    }

    /// Goes on under another number; the old one stays open for the caller.
    pub fn vacate(&self) -> Result<(), Errno> {
        let new = high(self)?.into_raw_fd();
        list(new, true);
        let old = self.0.swap(new, Ordering::AcqRel);
        list(old, false);
        Ok(())
    }

    /// Goes on as `other`; the old number stays open for the caller.
    pub fn replace(&self, other: Self) {
        let old = self.0.swap(other.as_raw_fd(), Ordering::AcqRel);
        list(old, false);
        std::mem::forget(other);
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        list(*self.0.get_mut(), false);
        // SAFETY: made from an owned descriptor, which no other code closes.
        drop(unsafe { OwnedFd::from_raw_fd(*self.0.get_mut()) });
    }
}

impl AsRawFd for InternalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.load(Ordering::Acquire)
    }
}

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as this lives; a number that was vacated meanwhile is used for at
        // most the call that had begun.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

/// A duplicate, close-on-exec, at a high number.
fn high(fd: &impl AsFd) -> Result<OwnedFd, Errno> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(soft) = limit.current
        && soft <= SOFT_MAX
        && limit.maximum.is_none_or(|hard| hard >= soft + ROOM)
    {
        let beyond = || rustix::io::fcntl_dupfd_cloexec(fd, soft as RawFd);
        if let Ok(beyond) = with_limit(&limit, soft + ROOM, beyond) {
            return Ok(beyond);
        }
    }
    let mut result = Err(Errno::MFILE);
    for least in HIGH {
        result = rustix::io::fcntl_dupfd_cloexec(fd, least);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Puts a copy of `new` in place of what is open at a number, which may lie beyond the limit that
/// is set by now. `EBADF`: it lies beyond the hard limit.
pub fn put_at(new: impl AsFd, number: RawFd, flags: DupFlags) -> Result<(), Errno> {
    // SAFETY: never dropped: the number stays its owner's.
    let mut at = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    let mut put = || rustix::io::dup3(&new, &mut at, flags);
    let limit = getrlimit(Resource::Nofile);
    match (limit.current, u64::try_from(number)) {
        (Some(soft), Ok(number)) if number >= soft => with_limit(&limit, number + 1, put),
        _ => put(),
    }
}

/// Calls with another soft limit.
fn with_limit<T>(
    limit: &Rlimit,
    soft: u64,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let more = Rlimit { current: Some(soft), maximum: limit.maximum };
    setrlimit(Resource::Nofile, more).map_err(|_| Errno::BADF)?;
    let called = call();
    setrlimit(Resource::Nofile, Rlimit { current: limit.current, maximum: limit.maximum })?;
    called
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};

    #[test]
    fn a_number_beyond_the_soft_limit_gets_another_description() {
        let open = || open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        // The lowest limit that leaves what other tests have.
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit { current: Some(900), ..limit };
        let fd = InternalFd::new(open());
        assert!(fd.as_raw_fd() >= 1000);
        let before = rustix::fs::fcntl_getfl(&fd).unwrap();
        setrlimit(Resource::Nofile, low).unwrap();
        let other = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
        let put = put_at(&other, fd.as_raw_fd(), DupFlags::CLOEXEC);
        let now = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, limit).unwrap();
        put.unwrap();
        assert_eq!(now.current, Some(900), "the limit is as it was");
        assert_ne!(rustix::fs::fcntl_getfl(&fd).unwrap(), before);
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn descriptors_move_up_and_close_on_exec() {
        let fd = open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        let fd = InternalFd::new(fd);
        let first = fd.as_raw_fd();
        assert!(first >= 1000);
        fd.vacate().unwrap();
        assert_ne!(fd.as_raw_fd(), first);
        assert!(is_internal_number(fd.as_raw_fd()) && !is_internal_number(first));
        assert!(internal_numbers().any(|number| number == fd.as_raw_fd()));
        // SAFETY: vacated: this test's own.
        let old = unsafe { OwnedFd::from_raw_fd(first) };
        for fd in [old.as_fd(), fd.as_fd()] {
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
