//! Where a system call's number leads: the dispatcher, made from the table (crate `calls`).

use std::ffi::{c_int, c_long};

use calls::Numbers;
use vfs::Errno;

use crate::entry::pointers::Out;
use crate::entry::syscall::{self, Arguments};
use crate::entry::{Inside, cached_fd, fdtable, report, set_errno};
use crate::processes::lifecycle;
use crate::start;

/// The bodies of all rooms, by the kernel's names.
mod bodies {
    pub(super) use crate::descriptors::calls::*;
    pub(super) use crate::entry::calls::*;
    pub(super) use crate::files::calls::*;
    pub(super) use crate::mappings::calls::*;
    pub(super) use crate::names::calls::*;
    pub(super) use crate::paths::calls::*;
    pub(super) use crate::processes::calls::*;
    pub(super) use crate::signals::calls::*;
}

/// How a system call is served.
pub struct Route {
    /// NULL: there is none.
    body: *const (),
    marks: u8,
}

// SAFETY: addresses of functions.
unsafe impl Sync for Route {}

/// Its body answers with a `long`, else with an `int`.
const LONG: u8 = 1;
/// It concerns the volume only if its first argument is a descriptor of it.
const OF_DESCRIPTOR: u8 = 2;
/// It is refused if its first argument is one.
const UNSERVED: u8 = 4;
/// The door looks at it first.
const WATCHED: u8 = 8;
/// Behind it the volume may be out of this process's reach.
const PARTS: u8 = 16;

const NONE: Route = Route { body: std::ptr::null(), marks: 0 };

/// How a row is served.
macro_rules! route {
    (volume int $name:ident) => {
        (bodies::$name as *const (), 0)
    };
    (volume long $name:ident) => {
        (bodies::$name as *const (), LONG)
    };
    (refused int $name:ident, $error:literal, $reason:literal) => {
        (bodies::$name as *const (), 0)
    };
    (unserved $reason:literal) => {
        (std::ptr::null(), UNSERVED)
    };
    (watched $what:ident) => {
        (std::ptr::null(), WATCHED)
    };
    (kernel) => {
        (std::ptr::null(), 0)
    };
}

/// Whether a call may take the volume out of this process's reach: it becomes another user, gets
/// another root, or less room.
const fn parts(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setgroups
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_capset
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_chroot
            | libc::SYS_pivot_root
            | libc::SYS_mount
            | libc::SYS_umount2
            | libc::SYS_move_mount
            | libc::SYS_seccomp
            | libc::SYS_landlock_restrict_self
            | libc::SYS_prctl
            | libc::SYS_setrlimit
            | libc::SYS_prlimit64
    )
}

/// Attaches the volume before such a call, if that was not needed yet.
#[cold]
fn attach_before(number: u32, given: &Arguments) {
    const SET_MDWE: usize = 65;
    let narrows = |resource: usize, new: usize| {
        let Ok([soft, _]) = Out(new as *mut [u64; 2]).value() else { return false };
        match resource as u32 {
            libc::RLIMIT_AS | libc::RLIMIT_DATA => soft != libc::RLIM_INFINITY,
            libc::RLIMIT_NOFILE => soft < NUMBERS_AT_LEAST,
            _ => false,
        }
    };
    let does = match c_long::from(number) {
        libc::SYS_prctl => {
            const BARS: [c_int; 2] = [libc::PR_SET_SECCOMP, libc::PR_CAPBSET_DROP];
            given[0] == SET_MDWE || BARS.contains(&(given[0] as c_int))
        }
        libc::SYS_setrlimit => narrows(given[0], given[1]),
        libc::SYS_prlimit64 => given[2] != 0 && narrows(given[1], given[2]),
        _ => true,
    };
    if does && let Some(process) = start::process() {
        process.fs.attach();
    }
}

/// So many descriptors a process has as a rule: with fewer there may be none for the volume.
const NUMBERS_AT_LEAST: u64 = 1024;

/// Makes the dispatcher of the table's rows: one that is served and has no body does not compile.
macro_rules! routes {
    ($(
        $number:literal $name:ident [$($argument:expr),*] $how:ident $(($($body:tt)*))?
        $(numbers($numbers:ident))? $(split($split:ident))? $(kind($kind:ident))?
        $(as [$($symbol:ident)*])?;
    )*) => {
        /// How each is served, by number.
        static ROUTES: [Route; calls::LAST + 1] = {
            let mut routes = [NONE; calls::LAST + 1];
            $({
                let (body, marks) = route!($how $($($body)*)?);
                let alone = if calls::is_of_descriptor($number) { OF_DESCRIPTOR } else { 0 };
                // The dynamic linker's are a sign (see the door), and so is one that the C library
                // installs a handler of its own by.
                let is_sign = matches!($number, libc::SYS_mprotect | libc::SYS_rt_sigaction);
                let sign = if is_sign { WATCHED } else { 0 };
                let parts = if parts($number) { PARTS } else { 0 };
                routes[$number] = Route { body, marks: marks | alone | sign | parts };
            })*
            routes
        };
    };
}
calls::for_each_row!(routes);

/// How a call is served; of a later kernel's only that it has no body is known.
#[inline]
pub fn route(number: u32) -> &'static Route {
    ROUTES.get(number as usize).unwrap_or(&NONE)
}

/// A body of each of the two answers, which may take less.
type IntCall = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> c_int;
type LongCall = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> c_long;

impl Route {
    /// Whether the door looks at it first.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.marks & WATCHED != 0
    }

    /// Whether it concerns the volume only if its first argument is a descriptor of it.
    #[inline]
    pub fn is_of_descriptor(&self) -> bool {
        self.marks & OF_DESCRIPTOR != 0
    }

    /// Serves it, with the kernel's answer, or -1 and `errno`. `None`: the kernel is to make it.
    #[inline]
    pub fn serve(&self, number: u32, given: &Arguments) -> Option<c_long> {
        if self.marks & PARTS != 0 {
            attach_before(number, given);
        }
        if self.body.is_null() {
            return without_body(number, given, self.marks & UNSERVED != 0);
        }
        let [a, b, c, d, e, f] = *given;
        // SAFETY: a body of that answer; what it does not take it ignores, as the calling
        // convention has it.
        unsafe {
            Some(if self.marks & LONG != 0 {
                std::mem::transmute::<*const (), LongCall>(self.body)(a, b, c, d, e, f)
            } else {
                std::mem::transmute::<*const (), IntCall>(self.body)(a, b, c, d, e, f).into()
            })
        }
    }
}

/// A call that has no body: the kernel is to make it, or has made it where it gives numbers, which
/// are noted.
#[cold]
fn without_body(number: u32, given: &Arguments, is_refused: bool) -> Option<c_long> {
    start::process()?;
    let inside = Inside::new();
    let row = calls::row(number as usize);
    let number = c_long::from(number);
    if is_refused && let Some(desc) = fdtable::get(given[0] as c_int) {
        report::about(desc.member());
        let name = row.map_or("system call", |row| row.name);
        lifecycle::refused(name, "system-call-by-number", Errno::OPNOTSUPP);
        set_errno(Errno::OPNOTSUPP.raw_os_error());
        return Some(-1);
    }
    cached_fd::before_call(row);
    drop(inside);
    let numbers = row.map_or(Numbers::Unchanged, |row| row.numbers);
    let pair = match (numbers, number) {
        (Numbers::Gives, _) => {
            let fd = syscall::waiting(number, *given);
            cached_fd::given(fd as c_int);
            return Some(fd);
        }
        (Numbers::Pair, libc::SYS_socketpair) => given[3],
        (Numbers::Pair, _) => given[0],
        _ => return None,
    };
    let failed = syscall::waiting(number, *given);
    if failed == 0
        && let Ok(pair) = Out(pair as *mut [c_int; 2]).value()
    {
        pair.into_iter().for_each(cached_fd::given);
    }
    Some(failed)
}
