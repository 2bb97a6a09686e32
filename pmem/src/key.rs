//! The protection key of a region: a thread can reach its memory only after it has opened it.
//!
//! [`Region::guard`](crate::Region::guard) lays one region of the process under a key of its own
//! (MPK). From then on a load or store in that mapping faults, unless its thread has called
//! [`open`] and not yet [`close`]. A face opens when a call reaches for the engine and closes when
//! it leaves: a stray pointer of the program's faults (see [`crate::stray`]), and no byte changes.
//! A file that the program maps has a mapping of its own, without the key.
//!
//! The kernel sees to the rest: signal handlers run with the key closed, and the interrupted code
//! gets its rights back afterwards; a new thread has its creator's rights; a new image has none;
//! threads that are older than the key have it closed; system calls obey the rights of the thread
//! that makes them.
//!
//! While the key is open a pointer of the program's could lead a copy of ours into the region. So
//! copies to and from the caller's buffers ask [`reach`] first, and a buffer in the guarded region
//! is the caller's fault (`EFAULT`), as it would be if the kernel copied.
//!
//! No locks. `BITS` is 0 until a region is guarded; then it never changes again.

use crate::interrupt::system_call;
use rustix::io::Errno;
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Why a region is not guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// The CPU has no protection keys.
    Cpu,
    /// The kernel does not use the CPU's.
    Kernel,
    /// Other users in this process have taken all of them.
    Taken,
    /// Another region of this process is guarded.
    Other,
    /// The kernel refused.
    Refused(Errno),
}

impl std::fmt::Display for Unguarded {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => out.write_str("this CPU has no protection keys"),
            Self::Kernel => out.write_str("the kernel does not use this CPU's protection keys"),
            Self::Taken => out.write_str("all protection keys of the process are taken"),
            Self::Other => out.write_str("another region of the process is guarded"),
            Self::Refused(errno) => {
                write!(out, "the kernel refused a protection key: {}", crate::plain(*errno))
            }
        }
    }
}

/// The two bits of the key in the register of rights (access, write); 0: nothing is guarded.
static BITS: AtomicU32 = AtomicU32::new(0);
/// The guarded addresses.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Both rights of the key with this number withheld.
fn bits_of(key: u32) -> u32 {
    0b11 << (2 * key)
}

/// The calling thread's rights, of all keys. Only where the kernel uses keys.
#[inline]
fn rights() -> u32 {
    let rights: u32;
    // SAFETY: reads a register of this thread's; the caller knows that the instruction is enabled.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _,
            options(nomem, nostack, preserves_flags));
    }
    rights
}

/// Sets them. Loads and stores stay on their side of it: the CPU's and, no `nomem`, the compiler's.
#[inline]
fn set_rights(rights: u32) {
    // SAFETY: as above; what becomes unreachable is the guarded region, which is only touched by
    // guarded instructions.
    unsafe {
        asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0,
            options(nostack, preserves_flags));
    }
}

/// Whether this machine has protection keys.
pub fn available() -> Result<(), Unguarded> {
    let features = __cpuid_count(7, 0).ecx;
    if features & (1 << 3) == 0 {
        return Err(Unguarded::Cpu);
    }
    // The kernel has enabled the instructions.
    if features & (1 << 4) == 0 { Err(Unguarded::Kernel) } else { Ok(()) }
}

/// `PKEY_DISABLE_ACCESS`.
const ACCESS_DISABLED: usize = 1;

/// Takes a key, closed for the calling thread.
pub(crate) fn allocate() -> Result<u32, Unguarded> {
    available()?;
    // SAFETY: numbers only.
    match unsafe { system_call(libc::SYS_pkey_alloc, [0, ACCESS_DISABLED, 0, 0, 0, 0]) } {
        Ok(key) => Ok(key as u32),
        Err(Errno::NOSPC) => Err(Unguarded::Taken),
        Err(Errno::NOSYS) => Err(Unguarded::Kernel),
        Err(errno) => Err(Unguarded::Refused(errno)),
    }
}

/// Gives a key back that guards nothing.
pub(crate) fn free(key: u32) {
    // SAFETY: a number only. A key that cannot be freed is lost.
    let _ = unsafe { system_call(libc::SYS_pkey_free, [key as usize, 0, 0, 0, 0, 0]) };
}

/// Protects `len` bytes from `start` on by `prot` and the key.
///
/// # Safety
///
/// The range is a mapping of the caller's.
pub(crate) unsafe fn protect(start: usize, len: usize, prot: u32, key: u32) -> Result<(), Errno> {
    let arguments = [start, len, prot as usize, key as usize, 0, 0];
    // SAFETY: the caller vouches for the range.
    unsafe { system_call(libc::SYS_pkey_mprotect, arguments) }.map(drop)
}

/// The addresses `start..start + len` are under `key` from here on; false: others are.
pub(crate) fn publish(start: usize, len: usize, key: u32) -> bool {
    let first = START.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first {
        END.store(start + len, Ordering::Relaxed);
        BITS.store(bits_of(key), Ordering::Release);
    }
    first
}

/// The key of a fault's that is ours, and where the guarded region begins.
pub(crate) fn is_own(key: u32) -> Option<usize> {
    let own = BITS.load(Ordering::Acquire);
    (key < 16 && own == bits_of(key)).then(|| START.load(Ordering::Relaxed))
}

/// Opens the guarded region to the calling thread, for loads and stores. Gives what [`close`]
/// wants: the thread's rights as they were, with the region closed; 0 if nothing is guarded.
#[inline]
#[must_use]
pub fn open() -> u32 {
    let bits = BITS.load(Ordering::Relaxed);
    if bits == 0 {
        return 0;
    }
    let rights = rights();
    set_rights(rights & !bits);
    rights | bits
}

/// Closes it. `closed` comes from [`open`] in the same thread.
#[inline]
pub fn close(closed: u32) {
    if closed != 0 {
        set_rights(closed);
    }
}

/// How many of the `len` bytes from `start` on lie before the guarded region or beyond it.
#[inline]
pub(crate) fn reach(start: usize, len: usize) -> usize {
    if start >= END.load(Ordering::Relaxed) {
        return len;
    }
    let region = START.load(Ordering::Relaxed);
    if start >= region { 0 } else { len.min(region - start) }
}
