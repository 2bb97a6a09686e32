//! A log of `flex` whose bytes are changed is refused, or read up to the damage, and goes on;
//! nothing panics. `cargo +nightly fuzz run log` (cargo-fuzz).
//!
//! An input is changes of a log of some laps: three bytes each, where (of 8192) and what. So the
//! fuzzer need not find a checksum.

#![no_main]

use std::sync::OnceLock;

use flex::Log;
use libfuzzer_sys::fuzz_target;
use pmem::Region;

const BYTES: usize = 8192;

/// The same log for all inputs of a run.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let log = Log::create_on(Region::in_memory(vec![0; BYTES], None)).expect("a log");
        for number in 0..40_u8 {
            let record = vec![number; 1 + usize::from(number) * 17 % 400];
            while log.append(&record).is_err() {
                log.trim(log.committed()).expect("trimmed");
            }
        }
        log.image()
    })
}

fuzz_target!(|changes: &[u8]| {
    let mut bytes = image().to_vec();
    for change in changes.chunks_exact(3) {
        bytes[usize::from(u16::from_le_bytes([change[0], change[1]])) % BYTES] ^= change[2];
    }
    let Ok(log) = Log::open_on(Region::in_memory(bytes, None)) else { return };
    let (mut position, mut buffer) = (log.oldest(), vec![0; log.longest()]);
    while let Ok(Some(record)) = log.read(position, &mut buffer) {
        assert!(record.next > position, "it goes on");
        position = record.next;
    }
    if log.append(b"the next one's").is_err() {
        let _ = log.trim(log.committed());
        let _ = log.append(b"the next one's");
    }
});
