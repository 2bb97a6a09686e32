//! System calls that no library wraps, and those that must not go through what a preload library
//! interposes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use os::interrupt::system_call;
use pmem::UserIn;
use rustix::io::Errno;

use crate::Result;

/// `struct xfs_exchange_range`.
#[repr(C)]
struct ExchangeRange {
    file1: i32,
    pad: u32,
    offset1: u64,
    offset2: u64,
    length: u64,
    flags: u64,
}
const _: () = assert!(size_of::<ExchangeRange>() == 40);

/// `_IOW('X', 129, struct xfs_exchange_range)`.
const XFS_IOC_EXCHANGE_RANGE: usize = 0x4028_5881;
const TO_EOF: u64 = 1;

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    from: i64,
    from_offset: u64,
    length: u64,
    to_offset: u64,
}

/// `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: usize = 0x4020_940d;

/// Exchanges what two files hold from their offsets to their ends, and their sizes with it, in one
/// atomic step.
pub fn exchange_to_end(
    from: impl AsFd,
    from_offset: u64,
    to: impl AsFd,
    to_offset: u64,
) -> Result<()> {
    let range = ExchangeRange {
        file1: from.as_fd().as_raw_fd(),
        pad: 0,
        offset1: from_offset,
        offset2: to_offset,
        length: 0,
        flags: TO_EOF,
    };
    let to = to.as_fd().as_raw_fd() as usize;
    let arguments = [to, XFS_IOC_EXCHANGE_RANGE, (&raw const range) as usize, 0, 0, 0];
    // SAFETY: the structure that this request reads.
    unsafe { system_call(libc::SYS_ioctl, arguments) }.map(drop)
}

/// Lets `to` share the blocks of `from`.
pub fn clone_range(
    from: impl AsFd,
    from_offset: u64,
    to: impl AsFd,
    to_offset: u64,
    length: u64,
) -> Result<()> {
    let from = i64::from(from.as_fd().as_raw_fd());
    let range = CloneRange { from, from_offset, length, to_offset };
    let to = to.as_fd().as_raw_fd() as usize;
    let arguments = [to, FICLONERANGE, (&raw const range) as usize, 0, 0, 0];
    // SAFETY: the structure that this request reads.
    unsafe { system_call(libc::SYS_ioctl, arguments) }.map(drop)
}

/// `pwrite` from an address of a mapping (a page that is gone is `EFAULT`).
pub fn write_mapped(to: impl AsFd, from: usize, length: usize, offset: u64) -> Result<usize> {
    let to = to.as_fd().as_raw_fd() as usize;
    // SAFETY: the kernel copies from the address as from any, valid or not.
    unsafe { system_call(libc::SYS_pwrite64, [to, from, length, offset as usize, 0, 0]) }
}

/// As [`write_mapped`], at the end of that moment: it overwrites no other process's append.
pub fn append_mapped(to: impl AsFd, from: usize, length: usize) -> Result<usize> {
    let to = to.as_fd().as_raw_fd() as usize;
    let part = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: length };
    let (parts, flags) = ((&raw const part) as usize, libc::RWF_APPEND as usize);
    // SAFETY: one part; the kernel copies from its address as from any, valid or not.
    unsafe { system_call(libc::SYS_pwritev2, [to, parts, 1, 0, 0, flags]) }
}

/// `pwrite`, or `write` without a place, of the program's bytes to its descriptor.
pub fn write_number(to: RawFd, from: &UserIn<'_>, at: Option<u64>) -> Result<usize> {
    let (to, start, len) = (to as usize, from.start() as usize, from.len());
    // SAFETY: the kernel copies from the address as from any, valid or not.
    unsafe {
        match at {
            Some(at) => system_call(libc::SYS_pwrite64, [to, start, len, at as usize, 0, 0]),
            None => system_call(libc::SYS_write, [to, start, len, 0, 0, 0]),
        }
    }
}

/// The descriptor behind a number of the program's, for one call. It may be closed meanwhile: then
/// the kernel says `EBADF`.
pub fn borrow(fd: RawFd) -> Result<BorrowedFd<'static>> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: not -1; what stands behind it is asked anew at each call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// `_IOR('v', 1, long)`.
const FS_IOC_GETVERSION: usize = 0x8008_7601;

/// What tells a reused inode number from the one that was meant: the inode's generation, where the
/// file system has one, and the time of its birth. 0 where it says neither.
pub fn birth(fd: impl AsFd) -> u64 {
    let fd = fd.as_fd();
    let mut generation = 0_u64;
    let at = (&raw mut generation) as usize;
    let arguments = [fd.as_raw_fd() as usize, FS_IOC_GETVERSION, at, 0, 0, 0];
    // SAFETY: the kernel fills in an int or a long, by file system. Where it does not, it stays 0.
    let _ = unsafe { system_call(libc::SYS_ioctl, arguments) };
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    let born = match rustix::fs::statx(fd, "", flags, rustix::fs::StatxFlags::BTIME) {
        Ok(found) if found.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0 => {
            (found.stx_btime.tv_sec as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(u64::from(found.stx_btime.tv_nsec))
        }
        _ => 0,
    };
    born ^ (generation & 0xffff_ffff).rotate_right(24)
}

/// The bits of [`birth`] that are the time's alone: births within 18 minutes differ in them.
const BIRTH_TIME: u64 = 0xff_ffff_ff00;

/// Whether a path's descriptor (`O_PATH`) may be of a file with this birth. It tells no generation.
pub fn may_have_birth(path: impl AsFd, birth: u64) -> bool {
    (self::birth(path) ^ birth) & BIRTH_TIME == 0
}

/// Which boot of the kernel this is: a number that no other has, and not 0.
pub fn boot() -> Result<u64> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::empty();
    let file = rustix::fs::open("/proc/sys/kernel/random/boot_id", flags, mode)?;
    let mut text = [0; 64];
    let got = rustix::io::read(&file, &mut text)?;
    let digits = text[..got].iter().filter_map(|&byte| char::from(byte).to_digit(16));
    Ok(digits.fold(0, |hash: u64, digit| hash.rotate_left(4) ^ u64::from(digit)) | 1)
}

/// All signals but those with which the C library talks to its threads.
const SIGNALS: u64 = !(0b11 << 31);

fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    let how = libc::SIG_SETMASK as usize;
    // SAFETY: two masks of the kernel's size.
    let _ = unsafe { system_call(libc::SYS_rt_sigprocmask, [how, new, old, 8, 0, 0]) };
    before
}

/// Blocks signals in this thread, for one that it is about to make; gives the mask as it was.
pub fn block_signals() -> u64 {
    set_mask(SIGNALS)
}

/// Sets the mask as it was.
pub fn set_signals(before: u64) {
    set_mask(before);
}

/// The stack of [`apart`].
const STACK_BYTES: usize = 256 << 10;

/// Runs `body` in another process that shares this one's memory and not its descriptors: what it
/// closes drops no record lock of this process. This thread waits meanwhile.
pub fn apart<T, F: FnOnce() -> T>(body: F) -> Result<T> {
    struct Call<F, T> {
        body: Option<F>,
        result: Option<T>,
    }
    extern "C" fn run<T, F: FnOnce() -> T>(call: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the structure below, which no other thread uses while this runs.
        let call = unsafe { &mut *call.cast::<Call<F, T>>() };
        call.result = call.body.take().map(|body| body());
        0
    }
    let mut stack = vec![0_u128; STACK_BYTES / 16];
    let mut call = Call { body: Some(body), result: None::<T> };
    // A handler of the program must not run in the other process.
    let before = set_mask(u64::MAX);
    // SAFETY: a stack of its own; this thread does not go on before the other process has ended.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let pid = libc::clone(run::<T, F>, top, flags, (&raw mut call).cast());
        if pid > 0 {
            let mut status = 0;
            let status = (&raw mut status) as usize;
            let arguments = [pid as usize, status, libc::__WALL as usize, 0, 0, 0];
            while system_call(libc::SYS_wait4, arguments) == Err(Errno::INTR) {}
        }
        pid
    };
    set_mask(before);
    if pid < 0 {
        return Err(Errno::AGAIN);
    }
    call.result.ok_or(Errno::IO)
}

/// Whether a file has bits that the kernel takes from it when it is written to: stores it does not
/// see.
pub(crate) fn has_set_id_bits(stat: &rustix::fs::Stat) -> bool {
    stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0
}
