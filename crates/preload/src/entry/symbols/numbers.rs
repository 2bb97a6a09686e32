//! Functions of glibc's that make, take, look at or close numbers, or begin a thread: unchanged,
//! except that the cached number is given back first, and that what they make is the program's
//! ([`cached`]).

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use calls::Numbers;

use crate::entry::Real;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::glibc::stdio;

/// Functions of glibc's, unchanged except for the cached number: those of which the table says one
/// of these.
macro_rules! before {
    ($numbers:tt $first:block $(fn $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty;)*) => {
        before! {
            $numbers $first then { |_answer, _given| {} }
            $(fn $name($($arg : $ty),*) -> $ret;)*
        }
    };
    ($numbers:tt $first:block then $last:block
     $(fn $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty;)*) => {
        $(before! { @one $numbers $first $last fn $name($($arg : $ty),*) -> $ret })*
    };
    (@one [$($numbers:ident)|+] $first:block $last:block
     fn $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty) => {
        const _: () = {
            let numbers = calls::named(stringify!($name)).numbers;
            assert!(matches!(numbers, $(Numbers::$numbers)|+), "the table says something else");
        };
        // SAFETY: the symbol replaces glibc's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0"));
            let _until_it_ends = $first;
            // SAFETY: glibc's function of this name, and the program's own arguments.
            let answer = unsafe {
                std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                    REAL.address(),
                )($($arg),*)
            };
            let last: fn($ret, ($($ty,)*)) = $last;
            last(answer, ($($arg,)*));
            answer
        }
    };
}

/// The program gets both numbers, if the call has not failed.
fn both_given(failed: c_int, pair: *const c_int) {
    if failed == 0 {
        // SAFETY: the kernel has put two numbers there.
        unsafe {
            cached_fd::given(*pair);
            cached_fd::given(*pair.add(1));
        }
    }
}

// They make a number.
before! { [Gives] { cached_fd::give_back() } then { |fd, _given| cached_fd::given(fd) }
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn __socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn eventfd(value: c_uint, flags: c_int) -> c_int;
    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn inotify_init() -> c_int;
    fn inotify_init1(flags: c_int) -> c_int;
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn pidfd_open(pid: c_int, flags: c_uint) -> c_int;
    fn fsopen(name: *const c_char, flags: c_uint) -> c_int;
    fn fsmount(fs: c_int, flags: c_uint, attributes: c_uint) -> c_int;
    fn shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn posix_openpt(flags: c_int) -> c_int;
    fn getpt() -> c_int;
}
before! { [Pair] { cached_fd::give_back() } then { |failed, (pair,)| both_given(failed, pair) }
    fn pipe(pair: *mut c_int) -> c_int;
    fn __pipe(pair: *mut c_int) -> c_int;
}
before! { [Pair] { cached_fd::give_back() } then { |failed, (pair, _)| both_given(failed, pair) }
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
}
before! { [Pair]
    { cached_fd::give_back() } then { |failed, (_, _, _, pair)| both_given(failed, pair) }
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
}
// They make numbers otherwise, begin threads, or look at any number.
before! { [Makes | Looks] { cached_fd::give_back() }
    fn mq_open(
        name: *const c_char, flags: c_int, mode: c_uint, attributes: *const c_void
    ) -> c_int;
    fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int;
    fn openpty(
        master: *mut c_int, slave: *mut c_int, name: *mut c_char, terminal: *const c_void,
        size: *const c_void
    ) -> c_int;
    fn setmntent(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn __setmntent(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn openlog(name: *const c_char, options: c_int, facility: c_int) -> ();
    fn poll(list: *mut c_void, count: c_long, time: c_int) -> c_int;
    fn __poll(list: *mut c_void, count: c_long, time: c_int) -> c_int;
    fn __poll_chk(list: *mut c_void, count: c_long, time: c_int, room: usize) -> c_int;
    fn select(
        highest: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void,
        time: *mut c_void
    ) -> c_int;
    fn __select(
        highest: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void,
        time: *mut c_void
    ) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int;
    fn timer_create(clock: c_int, event: *mut c_void, timer: *mut c_void) -> c_int;
    fn mq_notify(queue: c_int, event: *const c_void) -> c_int;
    fn getaddrinfo_a(
        mode: c_int, list: *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int;
}
// They take a number: the cached one is closed, so that they say `EBADF`.
before! { [Takes] { fdtable::get(fd) }
    fn isatty(fd: c_int) -> c_int;
    fn ttyname(fd: c_int) -> *mut c_char;
    fn ttyname_r(fd: c_int, name: *mut c_char, room: usize) -> c_int;
    fn __ttyname_r_chk(fd: c_int, name: *mut c_char, room: usize, all: usize) -> c_int;
    fn ptsname(fd: c_int) -> *mut c_char;
    fn ptsname_r(fd: c_int, name: *mut c_char, room: usize) -> c_int;
    fn __ptsname_r_chk(fd: c_int, name: *mut c_char, room: usize, all: usize) -> c_int;
    fn grantpt(fd: c_int) -> c_int;
    fn unlockpt(fd: c_int) -> c_int;
    fn tcgetattr(fd: c_int, terminal: *mut c_void) -> c_int;
    fn tcsetattr(fd: c_int, when: c_int, terminal: *const c_void) -> c_int;
    fn tcdrain(fd: c_int) -> c_int;
    fn tcflow(fd: c_int, action: c_int) -> c_int;
    fn tcflush(fd: c_int, queue: c_int) -> c_int;
    fn tcsendbreak(fd: c_int, time: c_int) -> c_int;
    fn tcgetpgrp(fd: c_int) -> c_int;
    fn tcsetpgrp(fd: c_int, group: c_int) -> c_int;
    fn tcgetsid(fd: c_int) -> c_int;
    fn sockatmark(fd: c_int) -> c_int;
    fn __recv(fd: c_int, to: *mut c_void, len: usize, flags: c_int) -> isize;
    fn __recv_chk(fd: c_int, to: *mut c_void, len: usize, room: usize, flags: c_int) -> isize;
    fn __recvfrom_chk(
        fd: c_int, to: *mut c_void, len: usize, room: usize, flags: c_int, address: *mut c_void,
        size: *mut c_uint
    ) -> isize;
    fn __sendmmsg(fd: c_int, list: *mut c_void, count: c_uint, flags: c_int) -> c_int;
    fn listen(fd: c_int, count: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, size: *mut c_uint
    ) -> c_int;
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, size: c_uint
    ) -> c_int;
    fn epoll_wait(fd: c_int, events: *mut c_void, count: c_int, time: c_int) -> c_int;
    fn timerfd_gettime(fd: c_int, value: *mut c_void) -> c_int;
    fn timerfd_settime(
        fd: c_int, flags: c_int, value: *const c_void, old: *mut c_void
    ) -> c_int;
    fn inotify_rm_watch(fd: c_int, watch: c_int) -> c_int;
    fn pidfd_send_signal(fd: c_int, signal: c_int, info: *mut c_void, flags: c_uint) -> c_int;
    fn process_madvise(
        fd: c_int, list: *const c_void, count: usize, advice: c_int, flags: c_uint
    ) -> isize;
    fn process_mrelease(fd: c_int, flags: c_uint) -> c_int;
    fn fsconfig(
        fd: c_int, command: c_uint, key: *const c_char, value: *const c_void, other: c_int
    ) -> c_int;
    fn mq_getattr(fd: c_int, attributes: *mut c_void) -> c_int;
    fn mq_setattr(fd: c_int, attributes: *const c_void, old: *mut c_void) -> c_int;
    fn mq_send(fd: c_int, message: *const c_char, size: usize, priority: c_uint) -> c_int;
    fn mq_receive(
        fd: c_int, message: *mut c_char, size: usize, priority: *mut c_uint
    ) -> isize;
    fn mq_timedsend(
        fd: c_int, message: *const c_char, size: usize, priority: c_uint, time: *const c_void
    ) -> c_int;
    fn mq_timedreceive(
        fd: c_int, message: *mut c_char, size: usize, priority: *mut c_uint, time: *const c_void
    ) -> isize;
}

before! { [Thread] { cached_fd::before_thread() }
    fn thrd_create(thread: *mut c_void, start: *mut c_void, argument: *mut c_void) -> c_int;
}

/// From now on the process may not be allowed to `close`.
fn before_sandbox(option: c_int) {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        cached_fd::give_back();
    }
    if option == libc::PR_SET_SECCOMP {
        flac::program::stop();
    }
}

// Variadic, and called as if it were not.
before! { [Looks] { before_sandbox(option) }
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
}

/// A stream of ours is closed by our `close`.
fn closes_unless_ours(stream: *mut c_void) -> Option<cached_fd::Closes> {
    (!stdio::is_of_volume(stream.cast())).then(|| {
        let closes = cached_fd::Closes::new();
        cached_fd::taken_back(stdio::number_of(stream.cast()));
        closes
    })
}

// They close numbers.
before! { [ClosesWithin] { cached_fd::Closes::new() }
    fn endmntent(stream: *mut c_void) -> c_int;
    fn __endmntent(stream: *mut c_void) -> c_int;
    fn fts_close(tree: *mut c_void) -> c_int;
    fn fts64_close(tree: *mut c_void) -> c_int;
    fn endpwent() -> ();
    fn endgrent() -> ();
    fn endspent() -> ();
    fn endsgent() -> ();
    fn endhostent() -> ();
    fn endservent() -> ();
    fn endprotoent() -> ();
    fn endnetent() -> ();
    fn endrpcent() -> ();
    fn endfsent() -> ();
    fn endttyent() -> c_int;
    fn endutent() -> ();
    fn endutxent() -> ();
    fn closelog() -> ();
    fn mq_close(queue: c_int) -> c_int;
}
before! { [ClosesWithin] { closes_unless_ours(stream) }
    fn fclose(stream: *mut c_void) -> c_int;
    fn _IO_fclose(stream: *mut c_void) -> c_int;
}
