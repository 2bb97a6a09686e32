//! Handles: what a C program holds of an object. A handle is a number that says which slot it is
//! of, and of which use of it, so that one that is closed, or made up, is found to be none.
//!
//! A program closes a handle while no other call on it is under way (`solera.h`): so a call that
//! has found its object may use it until it ends.
//!
//! Locks: `free`, for opening and closing only.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Slots of a chunk; chunks; together the objects of a kind that can be open.
const CHUNK: usize = 256;
const CHUNKS: usize = 256;
/// Bits of a handle: its kind, its slot, and the use of it.
const KIND_BITS: u32 = 4;
const SLOT_BITS: u32 = 16;
const _: () = assert!(CHUNK * CHUNKS == 1 << SLOT_BITS);

struct Slot<T> {
    /// The handle that it is in use by; 0: none.
    handle: AtomicUsize,
    object: AtomicPtr<T>,
}

/// Slots that are not in use: the use that comes next, and which.
struct Free {
    closed: Vec<(usize, usize)>,
    fresh: usize,
}

/// The open objects of a kind.
pub struct Handles<T> {
    kind: usize,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

impl<T: Send + Sync> Handles<T> {
    /// None yet. `kind` is 1 to 15, another one for each.
    pub const fn new(kind: usize) -> Self {
        let free = Free { closed: Vec::new(), fresh: 0 };
        Self { kind, chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(free) }
    }

    fn slot(&self, at: usize) -> Option<&Slot<T>> {
        self.chunks[at / CHUNK % CHUNKS].get().map(|chunk| &chunk[at % CHUNK])
    }

    /// A handle of an object; the object back, if there are too many.
    pub fn add(&self, object: T) -> Result<usize, T> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, number) = match free.closed.pop() {
            Some(closed) => closed,
            None if free.fresh < CHUNK * CHUNKS => {
                free.fresh += 1;
                (free.fresh - 1, 1)
            }
            None => return Err(object),
        };
        let empty = || Slot { handle: AtomicUsize::new(0), object: AtomicPtr::default() };
        let chunk = self.chunks[at / CHUNK].get_or_init(|| (0..CHUNK).map(|_| empty()).collect());
        let slot = &chunk[at % CHUNK];
        let handle = (number << SLOT_BITS | at) << KIND_BITS | self.kind;
        slot.object.store(Box::into_raw(Box::new(object)), Ordering::Release);
        slot.handle.store(handle, Ordering::Release);
        Ok(handle)
    }

    /// What a handle is of.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&T> {
        let slot = self.slot(handle >> KIND_BITS & ((1 << SLOT_BITS) - 1))?;
        if handle == 0 || slot.handle.load(Ordering::Acquire) != handle {
            return None;
        }
        // SAFETY: `add` has put it there, and `take` is not called while it is in use.
        unsafe { slot.object.load(Ordering::Acquire).as_ref() }
    }

    /// Ends a handle.
    pub fn take(&self, handle: usize) -> Option<Box<T>> {
        let at = handle >> KIND_BITS & ((1 << SLOT_BITS) - 1);
        let slot = self.slot(at)?;
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if handle == 0 || slot.handle.compare_exchange(handle, 0, order.0, order.1).is_err() {
            return None;
        }
        let object = slot.object.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let number = (handle >> (KIND_BITS + SLOT_BITS)) + 1;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.closed.push((at, number));
        // SAFETY: of `add`; the exchange has given it to this call alone.
        Some(unsafe { Box::from_raw(object) })
    }
}
