//! The program's pointers: a string ([`Text`]), a value ([`Out`]), a buffer ([`Bytes`]).
//!
//! Each is a transparent wrapper, so that an interposed function takes it in place of the C
//! argument. The C contract, that a program passes what the function's manual demands, is relied on
//! in their methods and nowhere else. Bulk buffers are never dereferenced here: the engine copies
//! them guarded.

use std::ffi::{CStr, c_char, c_void};

use vfs::Errno;

/// A NUL-terminated string of the program's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(pub *const c_char);

impl Text {
    /// Its bytes; `EFAULT` for NULL.
    #[inline]
    pub fn bytes(self) -> Result<&'static [u8], Errno> {
        self.optional().ok_or(Errno::FAULT)
    }

    /// Its bytes; `None` for NULL.
    #[inline]
    pub fn optional(self) -> Option<&'static [u8]> {
        // SAFETY: by the C contract a NUL-terminated string that lives as long as the call, and
        // nothing made from it outlives the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

impl From<&CStr> for Text {
    fn from(text: &CStr) -> Self {
        Self(text.as_ptr())
    }
}

/// A pointer to a value of the program's, to be read or filled in.
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

    /// Stores a value; `EFAULT` for NULL.
    pub fn put(self, value: T) -> Result<(), Errno> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: by the C contract it points to room for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads the value; `None` for NULL.
    pub fn get(self) -> Option<T> {
        // SAFETY: by the C contract it points to a `T`.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The values of an array of `count`; nothing for NULL.
    pub fn array(self, count: usize) -> Vec<T> {
        if self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: by the C contract it points to `count` values.
        (0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect()
    }
}

/// A buffer of bytes of the program's whose length another argument tells.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(pub *mut c_void);

impl Bytes {
    /// As a source for the engine.
    #[inline]
    pub fn source(self, len: usize) -> vfs::UserIn<'static> {
        // SAFETY: the program's memory, or an invalid address: copied guarded.
        unsafe { vfs::UserIn::from_raw(self.0.cast(), len) }
    }

    /// As a sink for the engine.
    #[inline]
    pub fn sink(self, len: usize) -> vfs::UserOut<'static> {
        // SAFETY: as above.
        unsafe { vfs::UserOut::from_raw(self.0.cast(), len) }
    }

    /// Stores `bytes` at the start of it; the caller knows that they fit.
    pub fn put(self, bytes: &[u8]) -> Result<(), Errno> {
        self.sink(bytes.len()).write(bytes).map_err(Errno::from)
    }
}
