//! What C programs hand over, checked.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flex::{Error, Result};
use pmem::{UserIn, UserOut};

/// A path. `Invalid`: NULL.
///
/// # Safety
///
/// NULL, or a string that stays.
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Error::Invalid("the path is NULL"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

fn check(is_null: bool, count: usize) -> Result<()> {
    if is_null && count > 0 {
        return Err(Error::Invalid("the bytes are at NULL"));
    }
    if count > isize::MAX as usize {
        return Err(Error::Invalid("the length is beyond SSIZE_MAX"));
    }
    Ok(())
}

/// Bytes to be read, of any address.
///
/// # Safety
///
/// If they are mapped they are the caller's to read.
pub unsafe fn source(bytes: *const u8, count: usize) -> Result<UserIn<'static>> {
    check(bytes.is_null(), count)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { UserIn::from_raw(bytes, count) })
}

/// Room for bytes, of any address.
///
/// # Safety
///
/// If it is mapped it is the caller's to overwrite.
pub unsafe fn sink(to: *mut u8, count: usize) -> Result<UserOut<'static>> {
    check(to.is_null(), count)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { UserOut::from_raw(to, count) })
}

/// An offset. `Invalid`: a negative one.
pub fn offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::Invalid("the offset is negative"))
}

/// Where a result goes. `Invalid`: NULL.
///
/// # Safety
///
/// NULL, or room for a `T`.
pub unsafe fn out<'a, T>(to: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { to.as_mut() }.ok_or(Error::Invalid("there is no room for the result: it is NULL"))
}

/// Options, as far as the program that was built with an older header has them; the rest is 0.
///
/// # Safety
///
/// NULL, or a structure that begins with its size; all zeros make a `T`, and so do any bytes.
pub unsafe fn options<T: Copy>(given: *const T) -> Result<Option<T>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: it begins with its size.
    let size = unsafe { given.cast::<usize>().read() };
    if !(size_of::<usize>()..=size_of::<T>()).contains(&size) {
        return Err(Error::Invalid("the options do not begin with the size of their structure"));
    }
    let mut options = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: so many bytes are there, and there is room for them; any bytes make a `T`.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), options.as_mut_ptr().cast(), size);
        Ok(Some(options.assume_init()))
    }
}
