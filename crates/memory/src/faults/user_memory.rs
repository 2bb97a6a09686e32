//! Bytes in the program's memory: a source ([`UserIn`]) or a sink ([`UserOut`]) that may be
//! invalid.
//!
//! A program may hand any address to `read` or `write`: unmapped, read-only, past the end of a file
//! it mapped, or inside the region itself. So caller memory is never a Rust reference here; it is
//! touched by guarded copies only, and a bad address is [`Fault::Caller`] (`EFAULT`).

use crate::faults::key;
use crate::instructions::copy::{self, Side};
use crate::instructions::copy_asm;
use crate::instructions::copy_words;
use crate::instructions::dispatch::dispatch;
use rustix::io::Errno;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Which memory could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The region: an offset out of range, a poisoned or vanished page. `EIO`.
    Region,
    /// The caller's buffer. `EFAULT`.
    Caller,
}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        match fault {
            Fault::Region => Errno::IO,
            Fault::Caller => Errno::FAULT,
        }
    }
}

/// A buffer that lies in the guarded region, which is open just now, is the caller's fault.
#[inline]
pub fn check(start: *const u8, len: usize) -> Result<(), Fault> {
    if key::reach(start as usize, len) < len { Err(Fault::Caller) } else { Ok(()) }
}

/// The function that supplies missing pages of the caller's memory.
static SUPPLIER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// `supply` is asked for pages of the caller's memory that are found missing before a call's work
/// ([`UserIn::touch`], [`UserOut::touch`]), by address; it says whether there is a new page.
pub fn supply_pages_by(supply: fn(usize) -> bool) {
    SUPPLIER.store(supply as *mut (), Ordering::Release);
}

#[cold]
fn supply(address: usize) -> bool {
    let supplier = SUPPLIER.load(Ordering::Acquire);
    if supplier.is_null() {
        return false;
    }
    // SAFETY: only `supply_pages_by` stores here.
    let supplier = unsafe { std::mem::transmute::<*mut (), fn(usize) -> bool>(supplier) };
    supplier(address)
}

/// The page size of x86-64: the unit in which addresses can be bad.
const PAGE: usize = 4096;

/// The address of one byte of each page in `start..start + len`.
fn page_probes(start: usize, len: usize) -> impl Iterator<Item = usize> {
    let end = start.saturating_add(len);
    let next_page = (start | (PAGE - 1)).saturating_add(1);
    (start..end).take(1).chain((next_page..end).step_by(PAGE))
}

/// The length of the NUL-terminated text at `start`; `None` if the first `max` bytes hold no NUL.
///
/// # Safety
///
/// The address may be invalid. If it is mapped, it must be the caller's to read.
#[inline]
pub unsafe fn text_length(start: *const u8, max: usize) -> Result<Option<usize>, Fault> {
    let reach = key::reach(start as usize, max);
    // SAFETY: the routine is guarded and reads aligned blocks of 16 bytes only.
    match unsafe { copy_asm::find_nul(start, reach) } {
        usize::MAX => Err(Fault::Caller),
        length if length < reach => Ok(Some(length)),
        _ if reach < max => Err(Fault::Caller),
        _ => Ok(None),
    }
}

/// A source of bytes, maybe in the program's memory, maybe invalid.
#[derive(Clone, Copy, Debug)]
pub struct UserIn<'a> {
    start: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> UserIn<'a> {
    /// A source in memory that Rust knows to be valid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        UserIn { start: bytes.as_ptr(), len: bytes.len(), bytes: PhantomData }
    }

    /// A source at an address that the program gave.
    ///
    /// # Safety
    ///
    /// The address may be invalid. If it is mapped, it must be the caller's to read: the bytes are
    /// read whatever thread writes them meanwhile.
    #[inline]
    pub unsafe fn from_raw(start: *const u8, len: usize) -> UserIn<'static> {
        UserIn { start, len, bytes: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes from `start` on, cut to what there is.
    #[inline]
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> UserIn<'a> {
        let start = start.min(self.len);
        UserIn {
            start: self.start.wrapping_add(start),
            len: len.min(self.len - start),
            bytes: PhantomData,
        }
    }

    /// Reads a byte of each page, so that the pages are present before a lock is taken. Gives how
    /// many bytes from the start on can be read.
    #[inline]
    pub fn touch(&self) -> usize {
        let len = key::reach(self.start as usize, self.len);
        // SAFETY: a guarded read inside the caller's range.
        let reads = |at: usize| unsafe { copy::touch_read(self.start.wrapping_add(at)) };
        if (1..=PAGE).contains(&len) && reads(0) && reads(len - 1) {
            // Two pages at most.
            return len;
        }
        self.touch_pages(len)
    }

    /// The same of the first `len` bytes, page by page; the supplier of pages is asked for those
    /// that are missing.
    fn touch_pages(&self, len: usize) -> usize {
        for address in page_probes(self.start as usize, len) {
            // SAFETY: a guarded read inside the caller's range.
            let touch = || unsafe { copy::touch_read(address as *const u8) };
            if !(touch() || supply(address) && touch()) {
                return address - self.start as usize;
            }
        }
        len
    }

    /// Copies the first bytes into `to`, filling it as far as there are any.
    pub fn read(&self, to: &mut [u8]) -> Result<(), Fault> {
        let len = to.len().min(self.len);
        check(self.start, len)?;
        // SAFETY: `to` is valid for `len` bytes; the source is guarded.
        let copied = unsafe { copy::copy(dispatch(), to.as_mut_ptr(), self.start, len) };
        copied.map_err(|_| Fault::Caller)
    }

    /// Copies the first bytes as a value.
    ///
    /// # Safety
    ///
    /// Any bytes must make a `T`.
    #[inline]
    pub unsafe fn value<T: Copy>(&self) -> Result<T, Fault> {
        if self.len < size_of::<T>() {
            return Err(Fault::Caller);
        }
        check(self.start, size_of::<T>())?;
        if size_of::<T>() == size_of::<[u64; 4]>() {
            // SAFETY: the source is guarded.
            let words = unsafe { copy_words::load_four(self.start) }.ok_or(Fault::Caller)?;
            // SAFETY: as long as a `T`, which any bytes make.
            return Ok(unsafe { std::mem::transmute_copy(&words) });
        }
        let mut value = MaybeUninit::<T>::zeroed();
        let to = value.as_mut_ptr().cast();
        // SAFETY: `to` has room for a `T`; the source is guarded.
        let copied = unsafe { copy::copy(dispatch(), to, self.start, size_of::<T>()) };
        // SAFETY: all of it is initialised, and any bytes make a `T`.
        copied.map(|()| unsafe { value.assume_init() }).map_err(|_| Fault::Caller)
    }

    /// The address of the first byte.
    #[inline]
    #[must_use]
    pub fn start(&self) -> *const u8 {
        self.start
    }
}

/// A sink for bytes, maybe in the program's memory, maybe invalid.
#[derive(Debug)]
pub struct UserOut<'a> {
    start: *mut u8,
    len: usize,
    bytes: PhantomData<&'a mut [u8]>,
}

impl<'a> UserOut<'a> {
    /// A sink in memory that Rust knows to be valid.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        UserOut { start: bytes.as_mut_ptr(), len: bytes.len(), bytes: PhantomData }
    }

    /// A sink at an address that the program gave.
    ///
    /// # Safety
    ///
    /// The address may be invalid. If it is mapped and writable, it must be the caller's to
    /// overwrite.
    #[inline]
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> UserOut<'static> {
        UserOut { start, len, bytes: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes from `start` on, cut to what there is.
    #[inline]
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> UserOut<'a> {
        let start = start.min(self.len);
        UserOut {
            start: self.start.wrapping_add(start),
            len: len.min(self.len - start),
            bytes: PhantomData,
        }
    }

    /// Makes a write fault on each page without changing a byte. Gives how many bytes from the
    /// start on can be written.
    pub fn touch(&self) -> usize {
        let len = key::reach(self.start as usize, self.len);
        for address in page_probes(self.start as usize, len) {
            // SAFETY: a guarded access inside the caller's range that changes nothing.
            let touch = || unsafe { copy::touch_write(address as *mut u8) };
            if !(touch() || supply(address) && touch()) {
                return address - self.start as usize;
            }
        }
        len
    }

    /// Copies `from` to the start of the sink, as far as it fits.
    pub fn write(&self, from: &[u8]) -> Result<(), Fault> {
        let len = from.len().min(self.len);
        check(self.start, len)?;
        // SAFETY: the sink is the caller's for `len` bytes; the copy is guarded.
        let copied = unsafe { copy::copy(dispatch(), self.start, from.as_ptr(), len) };
        copied.map_err(|_| Fault::Caller)
    }

    /// Copies the bytes of a value, padding included, to the start of the sink.
    #[inline]
    pub fn put<T: Copy>(&self, value: &T) -> Result<(), Fault> {
        if self.len < size_of::<T>() {
            return Err(Fault::Caller);
        }
        check(self.start, size_of::<T>())?;
        let from = std::ptr::from_ref(value).cast();
        // SAFETY: the sink is the caller's; the copy is guarded and looks at no byte.
        let copied = unsafe { copy::copy(dispatch(), self.start, from, size_of::<T>()) };
        copied.map_err(|_| Fault::Caller)
    }

    /// As [`UserOut::put`], of a `struct stat`, as words.
    #[inline]
    pub fn put_stat(&self, words: &[u64; 18]) -> Result<(), Fault> {
        if self.len < size_of_val(words) {
            return Err(Fault::Caller);
        }
        check(self.start, size_of_val(words))?;
        // SAFETY: the sink is the caller's; the copy is guarded.
        let copied = unsafe { copy_words::copy_stat(self.start, words) };
        if copied { Ok(()) } else { Err(Fault::Caller) }
    }

    /// Zeroes the first `len` bytes, as far as there are any.
    pub fn zero(&self, len: usize) -> Result<(), Fault> {
        static ZEROES: [u8; PAGE] = [0; PAGE];
        let len = len.min(self.len);
        for start in (0..len).step_by(PAGE) {
            let piece = PAGE.min(len - start);
            self.slice(start, piece).write(&ZEROES[..piece])?;
        }
        Ok(())
    }

    /// The same bytes, to be read back.
    pub fn written(&self) -> UserIn<'_> {
        UserIn { start: self.start, len: self.len, bytes: PhantomData }
    }

    /// The address of the first byte.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.start
    }
}

/// Attributes a fault of a copy from the region to the caller.
#[inline]
pub fn region_to_caller(side: Side) -> Fault {
    match side {
        Side::Source => Fault::Region,
        Side::Target => Fault::Caller,
    }
}

/// Attributes a fault of a copy from the caller to the region.
#[inline]
pub fn caller_to_region(side: Side) -> Fault {
    match side {
        Side::Source => Fault::Caller,
        Side::Target => Fault::Region,
    }
}
