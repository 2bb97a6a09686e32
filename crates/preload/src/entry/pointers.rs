//! The program's pointers: a string ([`Text`]), a value ([`Out`]), a buffer ([`Bytes`]).
//!
//! Each is a transparent wrapper, so that an interposed function takes it in place of the C
//! argument. A program may pass any address: NULL, unmapped, read-only, the last bytes of a page
//! before a gap. So nothing here is dereferenced: texts are measured and values are copied by the
//! guarded routines below the engine, and a bad address is `EFAULT`, as in the kernel. Bulk buffers
//! are handed to the engine, which copies them in the same way.
//!
//! A measured text is then read in place: it is the program's fault if another of its threads
//! unmaps it during the call.

use std::ffi::{CStr, c_char, c_void};

use vfs::walk::PATH_BYTES_MAX;
use vfs::{Errno, UserIn, UserOut};

use crate::entry::hooks;

/// A NUL-terminated string of the program's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(pub *const c_char);

impl Text {
    /// The bytes of a path: `EFAULT`, or `ENAMETOOLONG` if no NUL follows within `PATH_MAX`.
    #[inline]
    pub fn bytes(self) -> Result<&'static [u8], Errno> {
        self.within(PATH_BYTES_MAX, Errno::NAMETOOLONG)
    }

    /// The bytes of a text of at most `max`: `EFAULT`, or `too_long`.
    #[expect(clippy::inline_always, reason = "the way of each path")]
    #[inline(always)]
    pub fn within(self, max: usize, too_long: Errno) -> Result<&'static [u8], Errno> {
        if self.0.is_null() {
            // Without the fault that would tell so.
            return Err(Errno::FAULT);
        }
        // SAFETY: guarded; by the C contract the text lives as long as the call, and nothing made
        // from it outlives the call.
        unsafe {
            let length = measure(self.0.cast(), max + 1)?.ok_or(too_long)?;
            Ok(std::slice::from_raw_parts(self.0.cast(), length))
        }
    }
}

impl From<&CStr> for Text {
    fn from(text: &CStr) -> Self {
        Self(text.as_ptr())
    }
}

/// The length of a text.
///
/// # Safety
///
/// As `vfs::text_length`.
#[inline]
unsafe fn measure(start: *const u8, max: usize) -> Result<Option<usize>, pmem::Fault> {
    // SAFETY: the caller's contract.
    let measure = || unsafe { vfs::text_length(start, max) };
    measure().or_else(|fault| {
        let page = (start as usize | 0xfff) + 1;
        if supply(start as usize, 1) | supply(page, 1) { measure() } else { Err(fault) }
    })
}

/// Whether there are pages now, of mapped files, where these bytes had none.
#[cold]
fn supply(start: usize, len: usize) -> bool {
    let last = start.saturating_add(len.saturating_sub(1));
    (hooks::get().supply)(start) | (hooks::get().supply)(last)
}

/// A pointer to a value of the program's, to be read or filled in. `T` is a plain C structure: any
/// bytes make one.
#[repr(transparent)]
pub struct Out<T>(pub *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// Whether the program passed NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Stores a value: whole, or `EFAULT`.
    #[inline]
    pub fn put(self, value: T) -> Result<(), Errno> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        let sink = Bytes(self.0.cast()).sink(size_of::<T>());
        let again = |fault| {
            if supply(self.0 as usize, size_of::<T>()) { sink.put(&value) } else { Err(fault) }
        };
        Ok(sink.put(&value).or_else(again)?)
    }

    /// Reads the value; `EFAULT`.
    #[inline]
    pub fn value(self) -> Result<T, Errno> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        let source = Bytes(self.0.cast()).source(size_of::<T>());
        // SAFETY: a plain C structure.
        let value = || unsafe { source.value() };
        let again = |fault| {
            if supply(self.0 as usize, size_of::<T>()) { value() } else { Err(fault) }
        };
        Ok(value().or_else(again)?)
    }

    /// Reads the value; `None` for NULL, `EFAULT` for other bad addresses.
    #[inline]
    pub fn get(self) -> Result<Option<T>, Errno> {
        if self.0.is_null() { Ok(None) } else { self.value().map(Some) }
    }

    /// The values of an array of `count`.
    pub fn array(self, count: usize) -> Result<Vec<T>, Errno> {
        (0..count).map(|index| Self(self.0.wrapping_add(index)).value()).collect()
    }
}

impl Out<libc::stat> {
    /// As [`Out::put`], of its words.
    #[inline]
    pub fn put_words(self, words: &[u64; 18]) -> Result<(), Errno> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        let sink = Bytes(self.0.cast()).sink(size_of_val(words));
        let again = |fault| {
            let there = supply(self.0 as usize, size_of_val(words));
            if there { sink.put_stat(words) } else { Err(fault) }
        };
        Ok(sink.put_stat(words).or_else(again)?)
    }
}

/// No address of a program lies here or beyond.
const USER_END: usize = (1 << 56) - 4096;

/// A buffer of bytes of the program's whose length another argument tells.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(pub *mut c_void);

impl Bytes {
    /// As a source for the engine.
    #[inline]
    pub fn source(self, len: usize) -> UserIn<'static> {
        // SAFETY: the program's memory, or an invalid address: copied guarded.
        unsafe { UserIn::from_raw(self.0.cast(), len) }
    }

    /// As a sink for the engine.
    #[inline]
    pub fn sink(self, len: usize) -> UserOut<'static> {
        // SAFETY: as above.
        unsafe { UserOut::from_raw(self.0.cast(), len) }
    }

    /// Whether `len` bytes can be the program's at all: `EFAULT` at once if not, however few of
    /// them would be moved, as the kernel does for reads and writes.
    #[inline]
    pub fn check(self, len: usize) -> Result<Self, Errno> {
        match (self.0 as usize).checked_add(len) {
            Some(end) if end <= USER_END => Ok(self),
            _ => Err(Errno::FAULT),
        }
    }

    /// Stores `bytes` at the start of it; the caller knows that they fit. `EFAULT`.
    #[inline]
    pub fn put(self, bytes: &[u8]) -> Result<(), Errno> {
        let sink = self.sink(bytes.len());
        let again = |fault| {
            // Values and texts are shorter than a page.
            if supply(self.0 as usize, bytes.len()) { sink.write(bytes) } else { Err(fault) }
        };
        Ok(sink.write(bytes).or_else(again)?)
    }
}
