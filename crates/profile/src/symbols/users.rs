//! What makes a process another user's: no call on a file, and none that is counted.

use std::ffi::{c_int, c_uint};

use crate::process::hand_on;
use crate::symbols::timed;

timed! {
    fn [setuid](user: c_uint) -> c_int = |next| {
        hand_on(&[user]);
        next()
    };
    fn [setreuid](real: c_uint, effective: c_uint) -> c_int = |next| {
        hand_on(&[real, effective]);
        next()
    };
    fn [setresuid](real: c_uint, effective: c_uint, saved: c_uint) -> c_int = |next| {
        hand_on(&[real, effective, saved]);
        next()
    };
}
