//! Numbers of processes, threads and processors; clocks, sleep, the end of the process.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{clockid_t, cpu_set_t, pid_t, sched_param, timespec};
use os::interrupt::system_call;
use rustix::time::ClockId;

use crate::runtime::errors::{errno, set_errno};
use crate::runtime::hidden;

/// Calls the kernel: its answer, or -1 and `errno`.
pub(super) fn kernel(number: c_long, given: [usize; 6]) -> c_long {
    // SAFETY: the arguments are those of a caller of the C function, or say why they are right.
    match unsafe { system_call(number, given) } {
        Ok(answer) => answer as c_long,
        Err(error) => {
            set_errno(error.raw_os_error());
            -1
        }
    }
}

/// Functions that are their system call, with its answer or -1 and `errno`.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty = $number:ident;)*) => {$(
        extern "C" fn $name($($arg: $type),*) -> $answer {
            let mut given = [0; 6];
            for (to, from) in given.iter_mut().zip([$($arg as usize),*]) {
                *to = from;
            }
            $crate::runtime::process::kernel(libc::$number, given) as $answer
        }
    )*};
}

pub(super) use calls;

calls! {
    fn getpid() -> pid_t = SYS_getpid;
    fn gettid() -> pid_t = SYS_gettid;
    fn getuid() -> u32 = SYS_getuid;
    fn getgid() -> u32 = SYS_getgid;
    fn setsid() -> pid_t = SYS_setsid;
    fn setpgid(process: pid_t, group: pid_t) -> c_int = SYS_setpgid;
    fn sched_yield() -> c_int = SYS_sched_yield;
    fn sched_getscheduler(process: pid_t) -> c_int = SYS_sched_getscheduler;
    fn sched_setscheduler(process: pid_t, policy: c_int, given: *const sched_param) -> c_int
        = SYS_sched_setscheduler;
}

/// The group of the calling process.
extern "C" fn getpgrp() -> pid_t {
    kernel(libc::SYS_getpgid, [0; 6]) as pid_t
}

extern "C" fn waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    let given = [process as usize, status as usize, options as usize, 0, 0, 0];
    kernel(libc::SYS_wait4, given) as pid_t
}

/// What the kernel does not fill is zero, and the answer is 0: both as in glibc.
extern "C" fn sched_getaffinity(process: pid_t, bytes: usize, to: *mut cpu_set_t) -> c_int {
    let given = [process as usize, bytes, to as usize, 0, 0, 0];
    let filled = kernel(libc::SYS_sched_getaffinity, given);
    let Ok(filled) = usize::try_from(filled) else { return -1 };
    // SAFETY: the caller's set of that many bytes, of which the kernel has filled some.
    unsafe { to.cast::<u8>().add(filled).write_bytes(0, bytes.saturating_sub(filled)) };
    0
}

/// The processor that the thread runs on, by the number that the kernel keeps in a register.
extern "C" fn sched_getcpu() -> c_int {
    let found: u32;
    // SAFETY: reads a limit of the descriptor table that Linux fills with node and processor on
    // every x86-64 processor: glibc's fallback does the same.
    unsafe {
        std::arch::asm!(
            "lsl {found:e}, {selector:e}",
            found = out(reg) found,
            selector = in(reg) PER_PROCESSOR,
            options(nomem, nostack),
        );
    }
    (found & PROCESSOR) as c_int
}

/// The kernel's segment of a processor's own number (`__CPUNODE_SEG`).
const PER_PROCESSOR: u32 = 0x7b;
/// The bits of it that are the processor's number.
const PROCESSOR: u32 = 0xfff;

extern "C" fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int {
    let known = match clock {
        libc::CLOCK_REALTIME => ClockId::Realtime,
        libc::CLOCK_MONOTONIC => ClockId::Monotonic,
        _ => {
            let given = [clock as usize, to as usize, 0, 0, 0, 0];
            return kernel(libc::SYS_clock_gettime, given) as c_int;
        }
    };
    // Without a system call, by the kernel's own function.
    let now = rustix::time::clock_gettime(known);
    // SAFETY: the caller's structure.
    unsafe { to.write(timespec { tv_sec: now.tv_sec, tv_nsec: now.tv_nsec as c_long }) };
    0
}

/// Gives its error as its value.
extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let given = [clock as usize, flags as usize, time as usize, left as usize, 0, 0];
    if kernel(libc::SYS_clock_nanosleep, given) == 0 { 0 } else { errno() }
}

/// What `std` asks: the size of a page, the number of processors that it may use.
extern "C" fn sysconf(name: c_int) -> c_long {
    match name {
        libc::_SC_PAGESIZE => 4096,
        libc::_SC_NPROCESSORS_ONLN => {
            let mut set = [0_u64; 128];
            let bytes = size_of_val(&set);
            let given = [0, bytes, set.as_mut_ptr() as usize, 0, 0, 0];
            let filled = kernel(libc::SYS_sched_getaffinity, given);
            if filled < 0 {
                1
            } else {
                set.iter().map(|word| c_long::from(word.count_ones())).sum()
            }
        }
        _ => -1,
    }
}

/// Ends the process by SIGABRT: by the program's handler, and if that returns by the default.
extern "C" fn abort() -> ! {
    let unblock = 1_u64 << (libc::SIGABRT - 1);
    let (process, thread) = (getpid() as usize, gettid() as usize);
    let raise = [process, thread, libc::SIGABRT as usize, 0, 0, 0];
    let mask = [libc::SIG_UNBLOCK as usize, &raw const unblock as usize, 0, 8, 0, 0];
    kernel(libc::SYS_rt_sigprocmask, mask);
    kernel(libc::SYS_tgkill, raise);
    // Handler, flags, restorer, mask: the default.
    let default = [0_u64; 4];
    let action = [libc::SIGABRT as usize, default.as_ptr() as usize, 0, 8, 0, 0];
    kernel(libc::SYS_rt_sigaction, action);
    kernel(libc::SYS_tgkill, raise);
    loop {
        kernel(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
    }
}

/// A mutex of a crate's, of which the first word is used: 0 free, 1 held.
extern "C" fn mutex_lock(mutex: *const AtomicU32) -> c_int {
    // SAFETY: the caller's mutex, of at least a word.
    let word = unsafe { &*mutex };
    while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        kernel(libc::SYS_sched_yield, [0; 6]);
    }
    0
}

extern "C" fn mutex_unlock(mutex: *const AtomicU32) -> c_int {
    // SAFETY: as above.
    unsafe { &*mutex }.store(0, Ordering::Release);
    0
}

/// No object has tables: a panic's message has addresses instead of names.
extern "C" fn dl_iterate_phdr(visit: *const c_void, data: *mut c_void) -> c_int {
    let _ = (visit, data);
    0
}

hidden! {
    "getpid" => getpid,
    "gettid" => gettid,
    "getuid" => getuid,
    "getgid" => getgid,
    "getpgrp" => getpgrp,
    "setsid" => setsid,
    "setpgid" => setpgid,
    "waitpid" => waitpid,
    "sched_yield" => sched_yield,
    "sched_getscheduler" => sched_getscheduler,
    "sched_setscheduler" => sched_setscheduler,
    "sched_getaffinity" => sched_getaffinity,
    "sched_getcpu" => sched_getcpu,
    "clock_gettime" => clock_gettime,
    "clock_nanosleep" => clock_nanosleep,
    "sysconf" => sysconf,
    "abort" => abort,
    "pthread_mutex_lock" => mutex_lock,
    "pthread_mutex_unlock" => mutex_unlock,
    "dl_iterate_phdr" => dl_iterate_phdr,
}
