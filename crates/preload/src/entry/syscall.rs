//! System calls: the kernel itself, and those that a program makes by number: which of them the
//! exported functions serve.
//!
//! A number's arguments are the six that a system call can have, whether the program passed them or
//! not, and are passed on as they are: a function ignores what it does not take.

use std::arch::asm;
use std::ffi::{c_char, c_int, c_long, c_uint};

use crate::entry::{errno, set_errno};

/// Of any system call.
pub type Arguments = [usize; 6];

/// How a system call is served.
pub enum Route {
    /// By a function of the same arguments with an `int` for its answer.
    Int(*const ()),
    /// As above, with a `long`.
    Long(*const ()),
    /// By a function of another form.
    Special,
    /// Not at all: it takes a descriptor, which may be ours.
    Unserved,
    /// It has nothing to do with files.
    Kernel,
}

macro_rules! routes {
    ($number:expr; int { $($int:ident => $by_int:path),* $(,)? }
     long { $($long:ident => $by_long:path),* $(,)? }
     special { $($special:ident),* $(,)? }
     unserved { $($unserved:ident),* $(,)? }) => {
        match $number {
            $(libc::$int => Route::Int($by_int as *const ()),)*
            $(libc::$long => Route::Long($by_long as *const ()),)*
            $(libc::$special)|* => Route::Special,
            $(libc::$unserved)|* => Route::Unserved,
            _ => Route::Kernel,
        }
    };
}

unsafe extern "C" {
    fn getdents64(fd: c_int, to: *mut u8, len: usize) -> isize;
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int;
    fn execveat() -> c_int;
    fn name_to_handle_at() -> c_int;
    fn open_by_handle_at() -> c_int;
    fn open_tree() -> c_int;
    fn mount_setattr() -> c_int;
    fn move_mount() -> c_int;
    fn fspick() -> c_int;
    fn pidfd_getfd() -> c_int;
    fn pkey_mprotect() -> c_int;
}

/// Defines functions of the same arguments as the system calls, which pass on what they are given.
macro_rules! kernels {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty { $($body:tt)* })*) => {$(
        unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
            // SAFETY: the program's own arguments.
            unsafe { $($body)* }
        }
    )*};
}

// The kernel's rules where those of glibc's functions differ: these refuse what the kernel takes,
// look at what it ignores, give the error as their value, order the arguments otherwise, or have
// them wider (what stands in the upper half of such a register is anything).
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
    fn mknod(path: *const c_char, mode: c_uint, device: c_uint) -> c_int {
        libc::mknod(path, mode, device.into())
    }
    fn mknodat(dirfd: c_int, path: *const c_char, mode: c_uint, device: c_uint) -> c_int {
        libc::mknodat(dirfd, path, mode, device.into())
    }
    fn fadvise(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
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
    fn entries(fd: c_int, to: *mut u8, len: c_uint) -> c_long {
        getdents64(fd, to, len as usize) as c_long
    }
}

/// `cachestat` of Linux 6.5; `setxattrat` to `removexattrat` of Linux 6.13.
const LATER: [c_long; 5] = [451, 463, 464, 465, 466];

/// How this one is served.
pub fn route(number: c_long) -> Route {
    if LATER.contains(&number) {
        return Route::Unserved;
    }
    routes! { number;
        int {
            SYS_open => libc::open, SYS_openat => libc::openat, SYS_creat => libc::creat,
            SYS_close => libc::close, SYS_close_range => libc::close_range, SYS_stat => libc::stat,
            SYS_fstat => libc::fstat, SYS_lstat => libc::lstat, SYS_newfstatat => libc::fstatat,
            SYS_statx => libc::statx, SYS_statfs => libc::statfs, SYS_fstatfs => libc::fstatfs,
            SYS_access => libc::access, SYS_faccessat => faccessat,
            SYS_faccessat2 => libc::faccessat, SYS_dup => libc::dup, SYS_dup2 => libc::dup2,
            SYS_dup3 => libc::dup3, SYS_fcntl => libc::fcntl, SYS_ioctl => libc::ioctl,
            SYS_flock => libc::flock, SYS_fsync => libc::fsync, SYS_fdatasync => libc::fdatasync,
            SYS_syncfs => libc::syncfs, SYS_sync => sync,
            SYS_sync_file_range => libc::sync_file_range, SYS_fadvise64 => fadvise,
            SYS_truncate => libc::truncate, SYS_ftruncate => libc::ftruncate,
            SYS_fallocate => libc::fallocate, SYS_chdir => libc::chdir, SYS_fchdir => libc::fchdir,
            SYS_chroot => libc::chroot, SYS_umask => libc::umask, SYS_setrlimit => libc::setrlimit,
            SYS_prlimit64 => libc::prlimit, SYS_mkdir => libc::mkdir, SYS_mkdirat => libc::mkdirat,
            SYS_rmdir => libc::rmdir, SYS_mknod => mknod, SYS_mknodat => mknodat,
            SYS_link => libc::link, SYS_linkat => libc::linkat, SYS_symlink => libc::symlink,
            SYS_symlinkat => libc::symlinkat, SYS_unlink => libc::unlink,
            SYS_unlinkat => libc::unlinkat, SYS_rename => libc::rename,
            SYS_renameat => libc::renameat, SYS_renameat2 => libc::renameat2,
            SYS_chmod => libc::chmod, SYS_fchmod => libc::fchmod, SYS_fchmodat => fchmodat,
            SYS_fchmodat2 => fchmodat2, SYS_chown => libc::chown, SYS_fchown => libc::fchown,
            SYS_lchown => libc::lchown, SYS_fchownat => libc::fchownat, SYS_utime => libc::utime,
            SYS_utimes => libc::utimes, SYS_futimesat => futimesat, SYS_utimensat => utimensat,
            SYS_setxattr => libc::setxattr, SYS_lsetxattr => libc::lsetxattr,
            SYS_fsetxattr => libc::fsetxattr, SYS_removexattr => libc::removexattr,
            SYS_lremovexattr => libc::lremovexattr, SYS_fremovexattr => libc::fremovexattr,
            SYS_mprotect => libc::mprotect, SYS_munmap => libc::munmap, SYS_msync => libc::msync,
            SYS_madvise => libc::madvise, SYS_remap_file_pages => libc::remap_file_pages,
            SYS_mlock => libc::mlock, SYS_mlock2 => libc::mlock2, SYS_munlock => libc::munlock,
            SYS_mlockall => libc::mlockall, SYS_munlockall => libc::munlockall,
            SYS_pkey_mprotect => pkey_mprotect, SYS_sigaltstack => libc::sigaltstack,
            SYS_execve => libc::execve, SYS_execveat => execveat, SYS_bind => libc::bind,
            SYS_connect => libc::connect, SYS_accept => libc::accept, SYS_accept4 => libc::accept4,
            SYS_getsockname => libc::getsockname, SYS_getpeername => libc::getpeername,
            SYS_sendmmsg => libc::sendmmsg, SYS_recvmmsg => libc::recvmmsg,
            SYS_pidfd_getfd => pidfd_getfd, SYS_inotify_add_watch => libc::inotify_add_watch,
            SYS_fanotify_mark => libc::fanotify_mark, SYS_name_to_handle_at => name_to_handle_at,
            SYS_open_by_handle_at => open_by_handle_at, SYS_fspick => fspick,
            SYS_open_tree => open_tree, SYS_mount_setattr => mount_setattr,
            SYS_move_mount => move_mount, SYS_mount => libc::mount, SYS_umount2 => libc::umount2,
        }
        long {
            SYS_read => libc::read, SYS_write => libc::write, SYS_pread64 => libc::pread64,
            SYS_pwrite64 => libc::pwrite64, SYS_readv => libc::readv, SYS_writev => libc::writev,
            SYS_preadv => libc::preadv, SYS_pwritev => libc::pwritev, SYS_preadv2 => preadv2,
            SYS_pwritev2 => pwritev2, SYS_lseek => libc::lseek, SYS_sendfile => libc::sendfile,
            SYS_copy_file_range => libc::copy_file_range, SYS_readahead => libc::readahead,
            SYS_splice => libc::splice, SYS_tee => libc::tee, SYS_vmsplice => libc::vmsplice,
            SYS_process_vm_readv => libc::process_vm_readv,
            SYS_process_vm_writev => libc::process_vm_writev, SYS_readlink => libc::readlink,
            SYS_readlinkat => libc::readlinkat, SYS_getdents64 => entries,
            SYS_getxattr => libc::getxattr, SYS_lgetxattr => libc::lgetxattr,
            SYS_fgetxattr => libc::fgetxattr, SYS_listxattr => libc::listxattr,
            SYS_llistxattr => libc::llistxattr, SYS_flistxattr => libc::flistxattr,
            SYS_mmap => libc::mmap, SYS_mremap => libc::mremap, SYS_sendto => libc::sendto,
            SYS_recvfrom => libc::recvfrom, SYS_sendmsg => libc::sendmsg,
            SYS_recvmsg => libc::recvmsg,
        }
        special {
            SYS_getcwd, SYS_openat2, SYS_exit_group, SYS_io_setup, SYS_io_uring_setup, SYS_getdents,
            SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
            SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capset, SYS_unshare, SYS_setns,
        }
        unserved {
            SYS_quotactl_fd,
        }
    }
}

/// A function of each of the two answers, which may take less.
pub type IntCall = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;
pub type LongCall = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_long;

/// Without a volume: serves a call by this library's function for it; `None`: there is none.
pub fn by_function(number: c_long, [a, b, c, d, e, f]: Arguments) -> Option<c_long> {
    // SAFETY: interposed functions of those answers, with the program's own arguments.
    unsafe {
        match route(number) {
            Route::Int(function) => {
                Some(std::mem::transmute::<*const (), IntCall>(function)(a, b, c, d, e, f).into())
            }
            Route::Long(function) => {
                Some(std::mem::transmute::<*const (), LongCall>(function)(a, b, c, d, e, f))
            }
            Route::Special | Route::Unserved | Route::Kernel => None,
        }
    }
}

/// Calls the kernel, without glibc or any lock of it.
pub fn kernel(number: c_long, [a, b, c, d, e, f]: Arguments) -> c_long {
    let answer: c_long;
    // SAFETY: the kernel's own convention; callers here say why their arguments are right.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&answer) {
        set_errno(-answer as c_int);
        return -1;
    }
    answer
}
