//! The number of the last error; texts and names of such numbers, which the C library would
//! translate, under a lock.

use std::arch::asm;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use syscalls::Errno;

use crate::runtime::hidden;

unsafe extern "C-unwind" {
    /// Called outside too, where a thread of the asynchronous type may be cancelled in it: so the
    /// frame that calls it must be one that can be unwound from here.
    fn __errno_location() -> *mut c_int;
}

/// How far it lies from the thread pointer, which is the same in all threads: in static memory of a
/// thread; 0: not asked for yet.
static DISTANCE: AtomicUsize = AtomicUsize::new(0);

/// Where the thread's `errno` is.
#[inline]
fn place() -> *mut c_int {
    match DISTANCE.load(Ordering::Relaxed) {
        0 => first_place(),
        distance => thread_pointer().wrapping_add(distance) as *mut c_int,
    }
}

#[cold]
fn first_place() -> *mut c_int {
    // SAFETY: takes nothing, and gives this thread's own address.
    let place = unsafe { __errno_location() };
    DISTANCE.store((place as usize).wrapping_sub(thread_pointer()), Ordering::Relaxed);
    place
}

#[inline]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the thread pointer points at itself. Not `pure`: code may go on in another thread
    // after a callback.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly));
    }
    pointer
}

/// Sets the thread's `errno`.
#[inline]
pub fn set_errno(value: i32) {
    // SAFETY: the address is this thread's own.
    unsafe { *place() = value };
}

/// The thread's `errno`.
#[inline]
pub fn errno() -> i32 {
    // SAFETY: the address is this thread's own.
    unsafe { *place() }
}

/// Its name (`ENOENT`); `None`: there is no such number.
pub fn name(number: c_int) -> Option<&'static str> {
    Errno::new(number).name()
}

/// What it says; the texts are the kernel's.
fn text(number: c_int) -> &'static str {
    Errno::new(number).description().unwrap_or("Unknown error")
}

/// Puts the text, cut to the buffer's size, and a NUL there.
extern "C" fn strerror_r(number: c_int, to: *mut c_char, size: usize) -> c_int {
    let text = text(number).as_bytes();
    let Some(most) = size.checked_sub(1) else { return libc::ERANGE };
    let len = text.len().min(most);
    // SAFETY: the caller's buffer of that size.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
        to.add(len).write(0);
    }
    0
}

hidden! { "__xpg_strerror_r" => strerror_r }
