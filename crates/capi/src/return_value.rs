//! How a call ends: with a value, or with -1, `errno` and a sentence.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use flex::{Error, Result};
use rustix::io::Errno;

thread_local! {
    static SENTENCE: RefCell<CString> = RefCell::new(CString::default());
}

/// What a function of C gives.
pub trait ReturnValue {
    /// It failed.
    const FAILED: Self;
}

impl ReturnValue for i32 {
    const FAILED: Self = -1;
}

impl ReturnValue for i64 {
    const FAILED: Self = -1;
}

impl ReturnValue for isize {
    const FAILED: Self = -1;
}

impl<T> ReturnValue for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// Does the work of the function `name`.
#[inline]
pub fn call<T: ReturnValue>(name: &str, work: impl FnOnce() -> Result<T>) -> T {
    // What panics is a mistake of the library's own; the program goes on.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => failed(name, &error),
        Err(_) => failed(name, &Error::System("the library has failed".to_owned(), Errno::IO)),
    }
}

#[cold]
fn failed<T: ReturnValue>(name: &str, error: &Error) -> T {
    let sentence = CString::new(format!("{name}: {error}").replace('\0', "?"));
    // A thread that ends has none any more.
    let _ = SENTENCE.try_with(|kept| kept.replace(sentence.unwrap_or_default()));
    // SAFETY: this thread's own word.
    unsafe { *libc::__errno_location() = error.errno().raw_os_error() };
    T::FAILED
}

/// The sentence of this thread's last failure.
pub fn last_error() -> *const c_char {
    SENTENCE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
