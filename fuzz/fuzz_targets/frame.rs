//! A frame of ddmap that is anything is refused, or is one that is written in the same way again;
//! nothing panics. `cargo +nightly fuzz run frame` (cargo-fuzz).
//!
//! An input is the bytes of a frame. Its sums are put right first, so that the fuzzer need not find
//! them.

#![no_main]

use ddmap::wire::Hello;
use ddmap::wire::frame::{self, AnswerFrame, HEADER, Header, Kind};
use libfuzzer_sys::fuzz_target;

fn sum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    if bytes.len() < HEADER {
        assert!(Header::parse(&bytes, None).is_err(), "a header cut off");
        return;
    }
    bytes[..4].copy_from_slice(&frame::MAGIC);
    let entries = u32::from_le_bytes(bytes[40..44].try_into().expect("4 bytes")) as usize;
    let end = HEADER.saturating_add(entries.saturating_mul(frame::ENTRY)).min(bytes.len());
    let with_pages = [Kind::Store as u8, Kind::Fetched as u8].contains(&bytes[6]);
    let body = sum(&bytes[HEADER..if with_pages { end } else { bytes.len() }]);
    bytes[56..60].copy_from_slice(&body);
    let head = sum(&bytes[..60]);
    bytes[60..64].copy_from_slice(&head);

    let Ok(header) = Header::parse(&bytes, None) else { return };
    let Some(body) = bytes.get(HEADER..HEADER + header.body()) else { return };
    assert!(HEADER + body.len() <= frame::FRAME, "no longer than a frame");
    let volume = bytes[16..32].try_into().expect("16 bytes");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let node = ddmap::protocol::NodeId::new(1).expect("a node");
    let hello = Hello { node, process: 0, session: word(36), volume, term: word(32) };
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
            // Of no pages that were asked for: what has some is refused.
            let Ok(found) = AnswerFrame::parse(&header, body, &[]) else { return };
            let Some(answer) = found.answer() else { return };
            let tail = frame::encode_answer(&mut head, &bound, header.id(), &[], &answer);
            let tail = tail.expect("what was decoded").to_vec();
            head.extend(tail);
        }
    }
    assert_eq!(head, bytes[..HEADER + body.len()], "written in the same way again");
});
