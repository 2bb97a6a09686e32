//! A frame of ddmap that is anything is refused, or is one that is written in the same way again;
//! nothing panics. `cargo +nightly fuzz run frame` (cargo-fuzz).
//!
//! An input is the bytes of a frame. Its sums are put right first, so that the fuzzer need not find
//! them.

#![no_main]

use ddmap::protocol::{NodeId, Version};
use ddmap::wire::Hello;
use ddmap::wire::frame::{self, AnswerFrame, ENTRY, HEADER, Header, Kind};
use libfuzzer_sys::fuzz_target;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Puts in all sums, and returns the pages that the frame names.
fn sum(bytes: &mut [u8]) -> Vec<(u64, Version)> {
    bytes[..4].copy_from_slice(&frame::MAGIC);
    let entries = (word(bytes, 40) as usize).min((bytes.len() - HEADER) / ENTRY);
    let pages = HEADER + entries * ENTRY;
    let is_store = [Kind::Store as u8, Kind::Tables as u8].contains(&bytes[6]);
    let is_found = bytes[6] == Kind::Fetched as u8;
    let (mut named, mut page) = (Vec::new(), pages);
    for at in (HEADER..pages).step_by(ENTRY) {
        let (number, state) = (&bytes[at..at + 8], word(bytes, at + 8));
        let number = u64::from_le_bytes(number.try_into().expect("8 bytes"));
        named.push((number, Version::new(state)));
        if (is_store || is_found && state >> 28 == 1) && page + 4096 <= bytes.len() {
            let sum = crc32c::crc32c(&bytes[at..at + 12]);
            let sum = crc32c::crc32c_append(sum, &bytes[page..page + 4096]);
            bytes[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
            page += 4096;
        }
    }
    let end = if is_store || is_found { pages } else { bytes.len() };
    let body = crc32c::crc32c(&bytes[HEADER..end]);
    bytes[56..60].copy_from_slice(&body.to_le_bytes());
    let head = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&head.to_le_bytes());
    named
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    if bytes.len() < HEADER {
        assert!(Header::parse(&bytes, None).is_err(), "a header cut off");
        return;
    }
    let named = sum(&mut bytes);
    let Ok(header) = Header::parse(&bytes, None) else { return };
    let Some(body) = bytes.get(HEADER..HEADER + header.body()) else { return };
    assert!(HEADER + body.len() <= frame::FRAME, "no longer than a frame");
    let volume = bytes[16..32].try_into().expect("16 bytes");
    let node = NodeId::new(1).expect("a node");
    let (term, session) = (word(&bytes, 32), word(&bytes, 36));
    let hello = Hello { node, process: 0, session, volume, term };
    let bound = hello.bound(header.version());
    header.check(&bound).expect("of its own connection");

    let mut head = Vec::new();
    match header.kind() {
        Kind::Hello => {
            let Ok(hello) = frame::decode_hello(&header, body) else { return };
            frame::encode_hello(&mut head, header.version(), header.id(), &hello);
        }
        kind if kind.is_request() => {
            let Ok(request) = frame::decode_request(&header, body) else { return };
            let tail = frame::encode_request(&mut head, &bound, header.id(), &request);
            let tail = tail.expect("what was decoded").to_vec();
            head.extend(tail);
        }
        _ => {
            let Ok(found) = AnswerFrame::parse(&header, body, &named) else { return };
            let Some(answer) = found.answer() else { return };
            let tail = frame::encode_answer(&mut head, &bound, header.id(), &named, &answer);
            let tail = tail.expect("what was decoded").to_vec();
            head.extend(tail);
        }
    }
    assert_eq!(head, bytes[..HEADER + body.len()], "written in the same way again");
});
