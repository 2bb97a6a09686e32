//! A text between nodes, or between a process and its node, that is anything is refused, or is a
//! message that is written in the same way again; nothing panics.
//! `cargo +nightly fuzz run control CORPUS crates/fuzz/seeds/control` (cargo-fuzz; one seed of each
//! kind, without which hardly a message is found).

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    ddmap::round_trip_text(text);
});
