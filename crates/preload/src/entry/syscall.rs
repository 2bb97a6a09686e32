//! System calls: the kernel itself, and those that a program makes by number: the dispatcher, which
//! comes from the table (crate `calls`).
//!
//! A number's arguments are the six that a system call can have, whether the program passed them or
//! not, and are passed on as they are: a function ignores what it does not take.

use std::arch::asm;
use std::ffi::{c_int, c_long};

use crate::entry::own_forms as own;
use crate::entry::set_errno;

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

/// The function that a row names as its body: exported by this library, or of [`own`].
macro_rules! function {
    (own $name:ident) => {
        own::$name as *const ()
    };
    ($name:ident) => {{
        unsafe extern "C" {
            fn $name();
        }
        const _: calls::Named = calls::named(stringify!($name));
        $name as *const ()
    }};
}

/// How a row is served.
macro_rules! body {
    (volume special) => { Route::Special };
    (volume int $($function:ident)+) => { Route::Int(function!($($function)+)) };
    (volume long $($function:ident)+) => { Route::Long(function!($($function)+)) };
    (refused int $function:ident, $error:literal, $reason:literal) => {
        Route::Int(function!($function))
    };
    (refused special, $error:literal, $reason:literal) => { Route::Special };
    (unserved $reason:literal) => { Route::Unserved };
    (watched $what:ident) => { Route::Kernel };
    (kernel) => { Route::Kernel };
}

/// Makes the dispatcher of the table's rows: one that is served and names no body, or none that
/// there is, does not compile.
macro_rules! routes {
    ($(
        $number:literal $name:ident [$($argument:expr),*] $how:ident $(($($body:tt)*))?
        $(point($point:ident))? $(numbers($numbers:ident))? $(split($split:ident))?
        $(kind($kind:ident))? $(as [$($symbol:ident)*])?;
    )*) => {
        /// How this one is served.
        #[allow(clashing_extern_declarations)] // Only their addresses are taken.
        pub fn route(number: c_long) -> Route {
            match number {
                $($number => body!($how $($($body)*)?),)*
                // Of a later kernel.
                _ => Route::Kernel,
            }
        }
    };
}
calls::for_each_row!(routes);

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
