//! A text between nodes, or between a process and its node, that is anything is refused, or is a
//! message that is written in the same way again; nothing panics.
//! `cargo +nightly fuzz run control CORPUS crates/fuzz/seeds/control` (cargo-fuzz; one seed of each
//! kind, without which hardly a message is found).

#![no_main]

use ddmap::reach::control::{self, Ask, Told};
use ddmap::reach::local::{Answered, Said};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fn again<T: Serialize + DeserializeOwned + PartialEq>(text: &str) {
    let Ok(said) = control::parse::<T>(text) else { return };
    let written = control::text(&said);
    assert!(control::parse(&written).is_ok_and(|again: T| again == said), "{written}");
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    again::<Ask>(text);
    again::<Told>(text);
    again::<Said>(text);
    again::<Answered>(text);
});
