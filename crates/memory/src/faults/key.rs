//! The protection key of regions: a thread can reach their memory only after it has opened them.
//!
//! [`Region::guard`](crate::Region::guard) lays a region under a key that the process has for all
//! of them (MPK). From then on a load or store in that mapping faults, unless its thread has called
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
//! copies to and from the caller's buffers ask [`reach`] first, and a buffer in a guarded region is
//! the caller's fault (`EFAULT`), as it would be if the kernel copied.
//!
//! One lock, around guarding; what calls do takes none. `BITS` is 0 until a region is guarded; then
//! it never changes again. A range is stored before it is counted, and counted before its memory is
//! under the key; `START` and `END` are around all of them.

use crate::instructions::dispatch::features;
use os::interrupt::system_call;
use rustix::io::Errno;
use std::arch::asm;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a region is not guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// The CPU has no protection keys.
    Cpu,
    /// The kernel does not use the CPU's.
    Kernel,
    /// Other users in this process have taken all of them.
    Taken,
    /// As many regions of this process are guarded as can be.
    Many,
    /// The kernel refused.
    Refused(Errno),
}

impl std::fmt::Display for Unguarded {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => out.write_str("this CPU has no protection keys"),
            Self::Kernel => out.write_str("the kernel does not use this CPU's protection keys"),
            Self::Taken => out.write_str("all protection keys of the process are taken"),
            Self::Many => write!(out, "{REGIONS_MAX} regions of the process are guarded"),
            Self::Refused(errno) => {
                write!(out, "the kernel refused a protection key: {}", os::describe(*errno))
            }
        }
    }
}

/// Regions that can be guarded.
const REGIONS_MAX: usize = 16;

/// The two bits of the key in the register of rights (access, write); 0: nothing is guarded.
static BITS: AtomicU32 = AtomicU32::new(0);
/// The addresses from the first guarded one to the last.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);
static END: AtomicUsize = AtomicUsize::new(0);
/// Start and end of each guarded region, and how many there are.
static RANGES: [[AtomicUsize; 2]; REGIONS_MAX] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; REGIONS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while a region becomes guarded.
static GUARDING: Mutex<()> = Mutex::new(());

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
    let features = features().ecx;
    if features & (1 << 3) == 0 {
        return Err(Unguarded::Cpu);
    }
    // The kernel has enabled the instructions.
    if features & (1 << 4) == 0 { Err(Unguarded::Kernel) } else { Ok(()) }
}

/// `PKEY_DISABLE_ACCESS`.
const ACCESS_DISABLED: usize = 1;

/// Counts the addresses `start..start + len` among the guarded ones; `protect` lays the memory
/// under the key that it is given. The key is taken when there is none yet.
pub fn guard(
    (start, len): (usize, usize),
    protect: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<u32, Unguarded> {
    let _guarding = GUARDING.lock().unwrap_or_else(PoisonError::into_inner);
    let count = COUNT.load(Ordering::Relaxed);
    let range = RANGES.get(count).ok_or(Unguarded::Many)?;
    let key = match BITS.load(Ordering::Relaxed) {
        0 => allocate()?,
        bits => bits.trailing_zeros() / 2,
    };
    range[0].store(start, Ordering::Relaxed);
    range[1].store(start + len, Ordering::Relaxed);
    COUNT.store(count + 1, Ordering::Release);
    START.fetch_min(start, Ordering::Relaxed);
    END.fetch_max(start + len, Ordering::Relaxed);
    BITS.store(bits_of(key), Ordering::Release);
    // If it is refused, nothing of this range is under the key, and opening is of no effect on it.
    protect(key).map_err(Unguarded::Refused)?;
    Ok(key)
}

/// The guarded regions.
fn ranges() -> impl Iterator<Item = (usize, usize)> {
    let ranges = RANGES.iter().take(COUNT.load(Ordering::Acquire));
    ranges.map(|[start, end]| (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)))
}

/// Takes a key, closed for the calling thread.
fn allocate() -> Result<u32, Unguarded> {
    available()?;
    // SAFETY: numbers only.
    match unsafe { system_call(libc::SYS_pkey_alloc, [0, ACCESS_DISABLED, 0, 0, 0, 0]) } {
        Ok(key) => Ok(key as u32),
        Err(Errno::NOSPC) => Err(Unguarded::Taken),
        Err(Errno::NOSYS) => Err(Unguarded::Kernel),
        Err(errno) => Err(Unguarded::Refused(errno)),
    }
}

/// Protects `len` bytes from `start` on by `prot` and the key.
///
/// # Safety
///
/// The range is a mapping of the caller's.
pub unsafe fn protect(start: usize, len: usize, prot: u32, key: u32) -> Result<(), Errno> {
    let arguments = [start, len, prot as usize, key as usize, 0, 0];
    // SAFETY: the caller vouches for the range.
    unsafe { system_call(libc::SYS_pkey_mprotect, arguments) }.map(drop)
}

/// Whether the key of a fault is ours: then where the guarded region around the address begins.
pub(crate) fn is_own(key: u32, address: usize) -> Option<usize> {
    if key >= 16 || BITS.load(Ordering::Acquire) != bits_of(key) {
        return None;
    }
    let around = ranges().find(|(start, end)| (*start..*end).contains(&address));
    around.map(|(start, _)| start)
}

/// Opens the guarded regions to the calling thread, for loads and stores. Gives what [`close`]
/// wants: the thread's rights as they were, with the regions closed; 0 if nothing is guarded.
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

/// Closes them. `closed` comes from [`open`] in the same thread.
#[inline]
pub fn close(closed: u32) {
    if closed != 0 {
        set_rights(closed);
    }
}

/// How many of the `len` bytes from `start` on lie before a guarded region, or beyond all.
#[inline]
pub fn reach(start: usize, len: usize) -> usize {
    if start >= END.load(Ordering::Relaxed) {
        return len;
    }
    let first = START.load(Ordering::Relaxed);
    if start < first { len.min(first - start) } else { reach_between(start, len) }
}

/// As [`reach`], from the first guarded region on.
#[cold]
fn reach_between(start: usize, len: usize) -> usize {
    let before =
        |(from, to): (usize, usize)| if start >= to { len } else { from.saturating_sub(start) };
    ranges().map(before).fold(len, usize::min)
}
