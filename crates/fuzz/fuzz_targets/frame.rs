//! A frame of ddmap that is anything is refused, or is one that is written in the same way again;
//! nothing panics. `cargo +nightly fuzz run frame` (cargo-fuzz).
//!
//! An input is the bytes of a frame. Its sums are put right first, so that the fuzzer need not find
//! them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    ddmap::round_trip_frame(&mut input.to_vec());
});
