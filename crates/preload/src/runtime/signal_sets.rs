//! Sets of signals, which are bits.

use std::ffi::c_int;

use crate::runtime::hidden;

/// The highest number of a signal.
const LAST: c_int = 64;

/// The bit of a signal.
const fn bit_of(signal: c_int) -> Option<u64> {
    if signal < 1 || signal > LAST { None } else { Some(1 << (signal - 1)) }
}

extern "C" fn sigaddset(set: *mut u64, signal: c_int) -> c_int {
    let Some(bit) = bit_of(signal) else { return -1 };
    // SAFETY: the caller's set, whose first word has all signals.
    unsafe { *set |= bit };
    0
}

extern "C" fn sigdelset(set: *mut u64, signal: c_int) -> c_int {
    let Some(bit) = bit_of(signal) else { return -1 };
    // SAFETY: as above.
    unsafe { *set &= !bit };
    0
}

extern "C" fn sigismember(set: *const u64, signal: c_int) -> c_int {
    let Some(bit) = bit_of(signal) else { return -1 };
    // SAFETY: as above.
    c_int::from(unsafe { *set } & bit != 0)
}

/// All but the C library's own two.
extern "C" fn sigfillset(set: *mut u64) -> c_int {
    let all = !(0b11_u64 << 31);
    // SAFETY: the caller's set of 1,024 bits.
    unsafe {
        set.write(all);
        set.add(1).write_bytes(u8::MAX, 15);
    }
    0
}

const extern "C" fn last_realtime() -> c_int {
    LAST
}

hidden! {
    "sigaddset" => sigaddset,
    "sigdelset" => sigdelset,
    "sigismember" => sigismember,
    "sigfillset" => sigfillset,
    "__libc_current_sigrtmax" => last_realtime,
}
