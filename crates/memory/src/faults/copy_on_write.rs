//! Copy on write by the fault handler, for mappings that the kernel makes shared only.
//!
//! The device is mapped read-only. A guarded store into it faults, and the handler puts a private
//! copy of the piece (2 MiB, or what the device is aligned to) in its place; then the store is made
//! again. Reads cost nothing, and memory is used for pieces that are stored to.
//!
//! Invariants: a piece changes from the device's memory to a copy once, whole, by one `mremap`; its
//! byte in `copied` says so. A piece that cannot be read cannot be copied: such a store ends as a
//! fault of the region.
//!
//! Locks: `FILLING`, a spin lock, held by the handler for one piece. Only the handler of a fault in
//! a guarded store of this crate takes it, and no such store is made while it is held (reading the
//! device may fault, but is no store into a view).

use crate::instructions::copy;
use crate::instructions::dispatch::dispatch;
use crate::instructions::exception_table::expect_faults;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Views of one process at a time.
const VIEWS_MAX: usize = 16;

/// One view; all zero: none.
struct View {
    base: AtomicUsize,
    len: AtomicUsize,
    /// Bytes of a piece.
    piece: AtomicUsize,
    /// Address of a byte for each piece: 1 if it is a copy.
    copied: AtomicUsize,
}

static VIEWS: [View; VIEWS_MAX] = [const {
    View {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        piece: AtomicUsize::new(0),
        copied: AtomicUsize::new(0),
    }
}; VIEWS_MAX];

static FILLING: AtomicBool = AtomicBool::new(false);

/// Fresh private memory.
fn memory(len: usize) -> Result<*mut c_void, Errno> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }
}

/// Lets stores into `base..base + len`, a read-only mapping that starts and ends at a multiple of
/// `piece`, go to private copies from here on. `EMFILE` if there are too many views.
pub fn add(base: *mut u8, len: usize, piece: usize) -> Result<(), Errno> {
    let pieces = len.div_ceil(piece);
    let copied = memory(pieces)?;
    expect_faults();
    for view in &VIEWS {
        let free = view.piece.compare_exchange(0, piece, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            view.len.store(len, Ordering::Relaxed);
            view.copied.store(copied as usize, Ordering::Relaxed);
            view.base.store(base as usize, Ordering::Release);
            return Ok(());
        }
    }
    // SAFETY: the memory from above; nothing points into it.
    unsafe { rustix::mm::munmap(copied, pieces)? };
    Err(Errno::MFILE)
}

/// Forgets the view at `base`, if there is one; it is not in use any more.
pub fn remove(base: *mut u8) {
    let Some(view) = VIEWS.iter().find(|view| view.base.load(Ordering::Acquire) == base as usize)
    else {
        return;
    };
    view.base.store(0, Ordering::Release);
    let pieces = view.len.load(Ordering::Relaxed).div_ceil(view.piece.load(Ordering::Relaxed));
    let copied = view.copied.swap(0, Ordering::Relaxed) as *mut c_void;
    // SAFETY: the memory that `add` made; no thread finds the view from here on.
    let unmapped = unsafe { rustix::mm::munmap(copied, pieces) };
    debug_assert!(unmapped.is_ok(), "memory of our own unmaps");
    view.piece.store(0, Ordering::Release);
}

/// Serves a fault at `address`: true if the store that met it can be made again.
pub(crate) fn copy_piece_at(address: usize) -> bool {
    let view = VIEWS.iter().find(|view| {
        let base = view.base.load(Ordering::Acquire);
        base != 0 && address.wrapping_sub(base) < view.len.load(Ordering::Relaxed)
    });
    let Some(view) = view else { return false };
    while FILLING.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    let done = copy_piece(view, address).is_ok();
    FILLING.store(false, Ordering::Release);
    done
}

fn copy_piece(view: &View, address: usize) -> Result<(), Errno> {
    let base = view.base.load(Ordering::Relaxed);
    let piece = view.piece.load(Ordering::Relaxed);
    let index = (address - base) / piece;
    let copied = (view.copied.load(Ordering::Relaxed) as *mut u8).wrapping_add(index);
    // SAFETY: a byte of the view's table; it changes under `FILLING` only.
    if unsafe { copied.read() } != 0 {
        // Another thread met the same piece first.
        return Ok(());
    }
    let from = (base as *mut u8).wrapping_add(index * piece);
    let own = memory(piece)?;
    // SAFETY: `own` is `piece` bytes of fresh memory; the source is guarded.
    let filled = unsafe { copy::copy(dispatch(), own.cast(), from, piece) };
    if filled.is_err() {
        // SAFETY: the memory from above.
        unsafe { rustix::mm::munmap(own, piece)? };
        return Err(Errno::IO);
    }
    // SAFETY: replaces a piece of the view by memory with the same content.
    unsafe {
        let flags = MremapFlags::MAYMOVE;
        rustix::mm::mremap_fixed(own, piece, piece, flags, from.cast())?;
        copied.write(1);
    }
    Ok(())
}
