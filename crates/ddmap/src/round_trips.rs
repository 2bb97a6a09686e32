//! Messages that are anything, for fuzzing (`crates/fuzz`): one is refused, or is written in the
//! same way again when it was read; nothing panics.

use crate::control::local_socket::{LocalReply, LocalRequest};
use crate::control::node_messages::{self, NodeReply, NodeRequest};
use crate::protocol::{NodeId, PAGE, Version};
use crate::wire::Hello;
use crate::wire::frame::{self, AnswerFrame, ENTRY, HEADER, Header, Kind};
use serde::{Serialize, de::DeserializeOwned};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Puts in all sums of a frame, and returns the pages that it names.
fn sum(bytes: &mut [u8]) -> Vec<(u64, Version)> {
    bytes[..4].copy_from_slice(&frame::MAGIC);
    let page_bytes = PAGE as usize;
    let entries = (word(bytes, 40) as usize).min((bytes.len() - HEADER) / ENTRY);
    let pages = HEADER + entries * ENTRY;
    let is_store = [Kind::Store as u8, Kind::Tables as u8].contains(&bytes[6]);
    let is_found = bytes[6] == Kind::Fetched as u8;
    let (mut named, mut page) = (Vec::new(), pages);
    for at in (HEADER..pages).step_by(ENTRY) {
        let (number, state) = (&bytes[at..at + 8], word(bytes, at + 8));
        let number = u64::from_le_bytes(number.try_into().expect("8 bytes"));
        named.push((number, Version::new(state)));
        if (is_store || is_found && state >> 28 == 1) && page + page_bytes <= bytes.len() {
            let sum = crc32c::crc32c(&bytes[at..at + 12]);
            let sum = crc32c::crc32c_append(sum, &bytes[page..page + page_bytes]);
            bytes[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
            page += page_bytes;
        }
    }
    let end = if is_store || is_found { pages } else { bytes.len() };
    let body = crc32c::crc32c(&bytes[HEADER..end]);
    bytes[56..60].copy_from_slice(&body.to_le_bytes());
    let head = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&head.to_le_bytes());
    named
}

/// Reads a frame, and writes what it says. `None`: it is refused.
fn rewritten(bytes: &[u8], named: &[(u64, Version)]) -> Option<Vec<u8>> {
    let header = Header::parse(bytes, None).ok()?;
    let body = bytes.get(HEADER..HEADER + header.body())?;
    assert!(HEADER + body.len() <= frame::FRAME, "no longer than a frame");
    let volume = bytes[16..32].try_into().expect("16 bytes");
    let node = NodeId::new(1).expect("a node");
    let (term, session) = (word(bytes, 32), word(bytes, 36));
    let hello = Hello { node, process: 0, session, volume, term, store: 0 };
    let bound = hello.bound(header.version());
    header.check(&bound).expect("of its own connection");
    let mut head = Vec::new();
    match header.kind() {
        Kind::Hello => {
            let hello = frame::decode_hello(&header, body).ok()?;
            frame::encode_hello(&mut head, header.version(), header.id(), &hello);
        }
        kind if kind.is_request() => {
            let request = frame::decode_request(&header, body).ok()?;
            let tail = frame::encode_request(&mut head, &bound, header.id(), &request);
            let tail = tail.expect("what was decoded").to_vec();
            head.extend(tail);
        }
        _ => {
            let answer = AnswerFrame::parse(&header, body, named).ok()?.answer()?;
            let tail = frame::encode_answer(&mut head, &bound, header.id(), named, &answer);
            let tail = tail.expect("what was decoded").to_vec();
            head.extend(tail);
        }
    }
    Some(head)
}

/// Reads a frame between nodes, whose sums are put right first, and writes what it says. Whether it
/// was taken; or refused.
///
/// # Panics
///
/// If what is written is not what was read.
pub fn round_trip_frame(bytes: &mut [u8]) -> bool {
    if bytes.len() < HEADER {
        assert!(Header::parse(bytes, None).is_err(), "a header cut off");
        return false;
    }
    let named = sum(bytes);
    let written = rewritten(bytes, &named);
    if let Some(written) = &written {
        assert_eq!(*written, bytes[..written.len()], "written in the same way again");
    }
    written.is_some()
}

/// Whether a text is a message of this kind.
fn is_message<T: Serialize + DeserializeOwned + PartialEq>(text: &str) -> bool {
    let Ok(said) = node_messages::parse::<T>(text) else { return false };
    let written = node_messages::text(&said);
    assert!(node_messages::parse(&written).is_ok_and(|again: T| again == said), "{written}");
    true
}

/// Reads a text between nodes, or between a process and its node, and writes what it says. Whether
/// it is a message of some kind.
///
/// # Panics
///
/// If what is written says something else.
pub fn round_trip_text(text: &str) -> bool {
    let kinds = [
        is_message::<NodeRequest>,
        is_message::<NodeReply>,
        is_message::<LocalRequest>,
        is_message::<LocalReply>,
    ];
    // Each kind, though one takes it: some texts are of several.
    kinds.map(|is_one| is_one(text)).contains(&true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::messages::Request;
    use std::path::Path;

    #[test]
    fn seeds_of_texts_are_messages() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/control");
        let seeds = std::fs::read_dir(folder).unwrap();
        let texts = seeds.map(|seed| std::fs::read_to_string(seed.unwrap().path()).unwrap());
        let messages = texts.filter(|text| round_trip_text(text)).count();
        assert!(messages >= 29, "{messages} messages");
        assert!(!round_trip_text("nonsense"));
    }

    #[test]
    fn a_frame_is_taken_and_one_of_another_kind_is_refused() {
        let node = NodeId::new(1).unwrap();
        let bound = Hello { node, process: 0, session: 7, volume: [9; 16], term: 4, store: 0 };
        let bound = bound.bound(frame::VERSION);
        let request = Request::Fetch { pages: vec![(5, Version::new(3))], releases: Vec::new() };
        let mut head = Vec::new();
        let tail = frame::encode_request(&mut head, &bound, 3, &request).unwrap();
        let mut bytes = [&head, tail].concat();
        assert!(round_trip_frame(&mut bytes));
        bytes[6] = u8::MAX;
        assert!(!round_trip_frame(&mut bytes));
        assert!(!round_trip_frame(&mut bytes[..HEADER - 1]));
    }
}
