//! What the preload library tells other libraries of its process: a table, found by its name.
//!
//! A library that would attach a volume itself finds here that the process has it attached, and
//! goes by the C library's calls, which the preload library serves. It takes the table of its own
//! version only.

use std::ffi::{CStr, c_char, c_int};

use crate::lock_waits::Waits;

/// The exported function that gives the table: `extern "C" fn() -> *const Preloaded`.
pub const SYMBOL: &CStr = c"solera_preloaded";

/// The version of this build.
pub const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };

/// The table. What another version has behind `version` is not known.
#[repr(C)]
#[derive(Debug)]
pub struct Preloaded {
    /// The version, which stays.
    pub version: *const c_char,
    /// Says of which volume a descriptor is. 0: of none.
    pub of_descriptor: unsafe extern "C" fn(fd: c_int, told: *mut Told) -> c_int,
    /// Says where a volume appears, whose file or device has these numbers. 0: it is not attached.
    pub of_volume: unsafe extern "C" fn(device: u64, ino: u64, told: *mut Told) -> c_int,
    /// Notes an explicit buffer: cached reads may map into it. It is private anonymous memory, of
    /// whole pages of 2 MiB; nobody maps anything else there until `buffer_remove`. 0: it stays
    /// memory like any other.
    pub buffer_add: unsafe extern "C" fn(start: usize, length: usize) -> c_int,
    /// It is unmapped behind this.
    pub buffer_remove: extern "C" fn(start: usize, length: usize),
    /// What was mapped into it gives way to fresh memory. 0: the kernel refused some.
    pub buffer_detach: extern "C" fn(start: usize, length: usize) -> c_int,
    /// The same, with the bytes that it has; no other thread stores to it. 0: as above.
    pub buffer_keep: extern "C" fn(start: usize, length: usize) -> c_int,
    /// What the calling thread waits for locks, from now on.
    pub waits: extern "C" fn() -> *const Waits,
}

// SAFETY: the pointer is to text that stays and is not changed.
unsafe impl Sync for Preloaded {}

/// What is told of a volume. The texts stay.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Where it appears.
    pub prefix: *const c_char,
    /// The name of its class, and why it has that.
    pub class: *const c_char,
    /// See `class`.
    pub reason: *const c_char,
    /// A call that has returned is durable.
    pub durable: bool,
    /// A write is atomic.
    pub atomic: bool,
}

impl Told {
    /// Room for what is told.
    pub const NOTHING: Self = Self {
        prefix: std::ptr::null(),
        class: std::ptr::null(),
        reason: std::ptr::null(),
        durable: false,
        atomic: false,
    };
}
