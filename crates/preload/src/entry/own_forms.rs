//! Bodies of system calls whose rules differ from those of glibc's functions: they refuse what the
//! kernel takes, look at what it ignores, give the error as their value, order the arguments
//! otherwise, or have them wider (what stands in the upper half of such a register is anything).

use std::ffi::{c_char, c_int, c_long, c_uint};

use vfs::Errno;

use crate::entry::pointers::Out;
use crate::entry::syscall::kernel;
use crate::entry::{errno, fail, set_errno};

unsafe extern "C" {
    #[link_name = "futimesat"]
    fn times_at(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int;
    #[link_name = "getdents64"]
    fn entries(fd: c_int, to: *mut u8, len: usize) -> isize;
}

/// What is wrong with two times of microseconds: the kernel says so before it looks at the path,
/// and glibc's functions read them where they are.
fn check_times(times: *const libc::timeval) -> Result<(), Errno> {
    let given = Out(times.cast_mut().cast::<[libc::timeval; 2]>()).get()?;
    let wrong = |time: libc::timeval| !(0..1_000_000).contains(&time.tv_usec);
    if given.into_iter().flatten().any(wrong) { Err(Errno::INVAL) } else { Ok(()) }
}

/// The kernel takes the length of entries for a signed number: no entry fits in a negative one.
pub fn entries_length(len: c_uint) -> usize {
    usize::try_from(len.cast_signed()).unwrap_or(0)
}

/// Defines functions of the same arguments as the system calls, which pass on what they are given.
macro_rules! kernels {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty { $($body:tt)* })*) => {$(
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
            // SAFETY: the program's own arguments.
            unsafe { $($body)* }
        }
    )*};
}

kernels! {
    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int) -> c_int {
        libc::faccessat(dirfd, path, mode, 0)
    }
    fn fchmodat(dirfd: c_int, path: *const c_char, mode: c_uint) -> c_int {
        libc::fchmodat(dirfd, path, mode, 0)
    }
    // Until 2.39 glibc's knows no empty path. A file of a volume is served by then.
    fn fchmodat2(dirfd: c_int, path: *const c_char, mode: c_uint, flags: c_int) -> c_int {
        let answer = libc::fchmodat(dirfd, path, mode, flags);
        if answer == 0 || flags & libc::AT_EMPTY_PATH == 0 || errno() != libc::EINVAL {
            return answer;
        }
        let given = [dirfd as usize, path as usize, mode as usize, flags as usize, 0, 0];
        kernel(libc::SYS_fchmodat2, given) as c_int
    }
    // Without a path it is `futimens`, to which there are no flags.
    fn utimensat(
        dirfd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int
    ) -> c_int {
        if path.is_null() && flags == 0 && dirfd != libc::AT_FDCWD {
            return libc::futimens(dirfd, times);
        } else if path.is_null() {
            let given = [dirfd as usize, 0, times as usize, flags as usize, 0, 0];
            return kernel(libc::SYS_utimensat, given) as c_int;
        }
        libc::utimensat(dirfd, path, times, flags)
    }
    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
        if let Err(errno) = Out(times.cast_mut()).get() {
            return fail(errno);
        }
        libc::utime(path, times)
    }
    fn utimes(path: *const c_char, times: *const libc::timeval) -> c_int {
        if let Err(errno) = check_times(times) {
            return fail(errno);
        }
        libc::utimes(path, times)
    }
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int {
        if let Err(errno) = check_times(times) {
            return fail(errno);
        }
        times_at(dirfd, path, times)
    }
    fn mknod(path: *const c_char, mode: c_uint, device: c_uint) -> c_int {
        libc::mknod(path, mode, device.into())
    }
    fn mknodat(dirfd: c_int, path: *const c_char, mode: c_uint, device: c_uint) -> c_int {
        libc::mknodat(dirfd, path, mode, device.into())
    }
    fn fadvise64(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
        let error = libc::posix_fadvise(fd, offset, len, advice);
        if error == 0 { 0 } else { set_errno(error); -1 }
    }
    fn sync() -> c_int {
        libc::sync();
        0
    }
    // The offset is in one register; the next is its upper half on other machines.
    fn preadv2(
        fd: c_int, list: *const libc::iovec, count: c_int, at: i64, _upper: usize, flags: c_int
    ) -> c_long {
        libc::preadv2(fd, list, count, at, flags) as c_long
    }
    fn pwritev2(
        fd: c_int, list: *const libc::iovec, count: c_int, at: i64, _upper: usize, flags: c_int
    ) -> c_long {
        libc::pwritev2(fd, list, count, at, flags) as c_long
    }
    fn getdents64(fd: c_int, to: *mut u8, len: c_uint) -> c_long {
        entries(fd, to, entries_length(len)) as c_long
    }
}
