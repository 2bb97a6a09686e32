//! Serves a program that no dynamic linker starts, or that has another C library: static programs,
//! Go, musl. Such a *guest* runs in a process of a program of ours, the host (`solera-host`), which
//! the dynamic linker has started with this library: so everything here is as in any program.
//!
//! An exec of a guest executes the host, with the guest's arguments and variables, and tells it an
//! open descriptor of the guest's file ([`crate::processes::host_program`]). The host calls
//! `solera_guest_start`, which maps the file, builds the stack that the kernel would have built,
//! and enters it.
//!
//! | | |
//! |---|---|
//! | system calls | all arrive by SIGSYS ([`crate::dispatch`]), or from patched [`sites`] and
//! | | [`wrappers`] |
//! | thread pointer | two of them (see [`crate::runtime::guest`]) |
//! | threads | each is one of the host's, which goes on as the guest's ([`threads`]) |
//! | handlers | the guest's are called as those of any program, with its thread pointer |
//! | `brk` | memory behind the guest's image: the kernel's is the host's |
//! | names | `/proc/self/exe` leads to the guest's file, where a call names it so |
//!
//! What is left to the kernel by number is made on the guest's stack with its registers. A guest
//! that cannot be mapped ends with a message, and 126.

mod image;
pub mod lent;
mod memory;
mod names;
pub mod sites;
mod symbols;
mod threads;
mod traced;
pub mod wrappers;

use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::atomic::Ordering;

use vfs::Errno;

use crate::dispatch;
use crate::entry::Inside;
use crate::entry::pointers::Out;
use crate::entry::report;
use crate::entry::syscall::Arguments;
use crate::entry::thread::{OwnCode, here};
use crate::processes::{host_program, init, lifecycle};
use crate::runtime::guest::{self, Registers};
use crate::runtime::relocation;

/// The exit code of a program that cannot be executed.
const EXIT_NOT_RUNNABLE: c_int = 126;

/// Becomes the guest. Comes back only if there is none.
///
/// # Safety
///
/// What the C library gave to the host's `main`.
unsafe fn start(
    count: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let own = OwnCode::new();
    // Its threads and signals are of a kind of their own.
    relocation::finish();
    let Some(guest) = host_program::told() else {
        init::tell("this program is started by others, to run one that has no dynamic linker");
        return EXIT_NOT_RUNNABLE;
    };
    let inside = Inside::new();
    // SAFETY: as the caller says.
    let start = unsafe { image::Start::of(count, arguments, variables) };
    if init::is_bypassed() {
        let errno = image::execute(&guest, &start);
        init::tell(&format!("{} cannot be run: {errno}", guest.shown()));
        lifecycle::exit_now(EXIT_NOT_RUNNABLE);
    }
    let registers = image::load(&guest, &start).and_then(|loaded| {
        if !dispatch::begin_guest() {
            return Err("the kernel does not tell of its system calls".to_owned());
        }
        memory::begin(loaded.end);
        names::begin(&guest);
        traced::begin(&loaded.auxiliary);
        Ok(loaded.registers)
    });
    match registers {
        Ok(registers) => {
            // Its file is no descriptor of its own.
            drop(guest);
            drop(inside);
            drop(own);
            // SAFETY: the guest's first registers, of a stack that was built for them.
            unsafe { guest::enter(&registers) };
        }
        Err(why) => {
            init::tell(&format!("{} cannot be run: {why}", guest.shown()));
            lifecycle::exit_now(EXIT_NOT_RUNNABLE);
        }
    }
    EXIT_NOT_RUNNABLE
}

const ARCH_SET_GS: usize = 0x1001;
const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
const ARCH_GET_GS: usize = 0x1004;
/// No address of a program lies here or beyond.
const ADDRESSES_END: usize = 0x7fff_ffff_f000;

/// Whether [`answer`] does something for calls of this number.
pub fn answers(number: c_long) -> bool {
    let all = [
        libc::SYS_arch_prctl,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_exit,
        libc::SYS_set_tid_address,
        libc::SYS_set_robust_list,
        libc::SYS_ptrace,
    ];
    all.contains(&number)
}

/// What a call of the guest's gives that is not as in other programs; `None`: it is served as
/// others, with these arguments. Own code runs, outside.
pub fn answer(number: c_long, given: &mut Arguments, registers: &Registers) -> Option<isize> {
    let answered = |answer: Result<usize, Errno>| {
        Some(answer.map_or_else(|errno| -(errno.raw_os_error() as isize), |value| value as isize))
    };
    match number {
        libc::SYS_arch_prctl => thread_pointer(given).and_then(answered),
        libc::SYS_brk => Some(memory::brk(given[0]) as isize),
        libc::SYS_munmap => memory::unmap(given, registers),
        libc::SYS_clone | libc::SYS_clone3 => threads::clone(number, given, registers),
        libc::SYS_exit => threads::exit(),
        libc::SYS_set_tid_address => threads::clears_at_end(given[0]),
        libc::SYS_set_robust_list => answered(threads::robust_list(given)),
        libc::SYS_ptrace => dispatch::asks_for_tracer(number, given).then_some(0),
        // The thread has one, of the host's C library.
        libc::SYS_rseq => answered(Err(Errno::NOSYS)),
        libc::SYS_readlink => names::link(given[0], given[1], given[2]),
        libc::SYS_readlinkat => names::link(given[1], given[2], given[3]),
        _ => {
            names::replace(number, given);
            None
        }
    }
}

/// `arch_prctl`; `None`: it is of something else.
fn thread_pointer(given: &Arguments) -> Option<Result<usize, Errno>> {
    let pointer = &here().guest.pointer;
    Some(match given[0] {
        ARCH_SET_FS if given[1] >= ADDRESSES_END => Err(Errno::PERM),
        ARCH_SET_FS => {
            pointer.store(given[1], Ordering::Relaxed);
            Ok(0)
        }
        ARCH_GET_FS => Out(given[1] as *mut usize).put(pointer.load(Ordering::Relaxed)).map(|()| 0),
        ARCH_GET_GS => Out(given[1] as *mut usize).put(0).map(|()| 0),
        ARCH_SET_GS => {
            report::refused("arch_prctl", "register-gs-in-use", Errno::PERM);
            Err(Errno::PERM)
        }
        _ => return None,
    })
}

/// A text of the guest's that a call is given; `None`: it cannot be read.
fn text<'a>(address: usize) -> Option<&'a CStr> {
    let bytes = crate::entry::pointers::Text(address as *const c_char).bytes().ok()?;
    // SAFETY: measured, and read in place as all texts of a call.
    Some(unsafe {
        CStr::from_bytes_with_nul_unchecked(std::slice::from_raw_parts(
            bytes.as_ptr(),
            bytes.len() + 1,
        ))
    })
}
