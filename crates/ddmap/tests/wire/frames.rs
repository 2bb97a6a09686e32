//! Frames: what goes in comes out; whatever else comes is refused, by name, and reserves no more
//! than a frame may have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, CLAIMS, KeptPage, Lines, PAGES, Request};
use crate::protocol::{NodeId, Version};
use crate::wire::frame::{self, AnswerFrame, ENTRY, FRAME, HEADER, Header, Kind, PAGE_NUMBERS};
use crate::wire::link::Link;
use crate::wire::server::{Peer, Refusal, Server, Service};
use crate::wire::{Bad, Bound, Hello, Wire};
use proptest::prelude::*;

const PAGE: usize = 4096;
const BOUND: Bound = Bound { version: frame::VERSION, volume: [9; 16], term: 4, session: 7 };

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: each call is the system's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that this thread allocates meanwhile.
fn allocated<T>(what: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.with(Cell::get);
    let value = what();
    (value, ALLOCATED.with(Cell::get) - before)
}

fn request_frame(request: &Request) -> Vec<u8> {
    let mut head = Vec::new();
    let bytes = frame::encode_request(&mut head, &BOUND, 3, request).unwrap();
    [&head, bytes].concat()
}

fn answer_frame(asked: &[(u64, Version)], answer: &Answer) -> Vec<u8> {
    let mut head = Vec::new();
    let bytes = frame::encode_answer(&mut head, &BOUND, 3, asked, answer).unwrap();
    [&head, bytes].concat()
}

#[derive(PartialEq, Debug)]
enum Message {
    Request(Request),
    Answer(Answer),
    Hello(Hello),
    Other(Kind),
}

/// As a receiver does it: the header, then as much as it says, if that is there.
fn decode(bytes: &[u8], asked: &[(u64, Version)]) -> Result<Message, Bad> {
    let header = Header::parse(bytes, Some(BOUND.version))?;
    header.check(&BOUND)?;
    let body = bytes.get(HEADER..HEADER + header.body()).ok_or(Bad::Ends)?;
    match header.kind() {
        Kind::Hello => frame::decode_hello(&header, body).map(Message::Hello),
        kind if kind.is_request() => frame::decode_request(&header, body).map(Message::Request),
        kind => {
            let frame = AnswerFrame::parse(&header, body, asked)?;
            Ok(frame.answer().map_or(Message::Other(kind), Message::Answer))
        }
    }
}

/// Puts right sums into a frame whose other fields were changed.
fn sum_again(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
}

fn page() -> impl Strategy<Value = (u64, Version)> {
    (0..PAGE_NUMBERS, 0_u32..1 << 28).prop_map(|(page, version)| (page, Version::new(version)))
}

fn pages(most: usize) -> impl Strategy<Value = Vec<(u64, Version)>> {
    prop::collection::vec(page(), 0..=most)
}

fn kept(most: usize) -> impl Strategy<Value = Vec<KeptPage>> {
    let spares = prop::collection::vec(any::<bool>(), most);
    (pages(most), spares).prop_map(|(pages, spares)| {
        let of = |((page, version), is_spare)| KeptPage { page, version, is_spare };
        pages.into_iter().zip(spares).map(of).collect()
    })
}

/// Those of which one half are spares.
fn kept_of(pages: &[(u64, Version)]) -> Vec<KeptPage> {
    let of = |(at, (page, version)): (usize, &(u64, Version))| KeptPage {
        page: *page,
        version: *version,
        is_spare: at % 2 == 1,
    };
    pages.iter().enumerate().map(of).collect()
}

/// Bytes of so many pages that differ.
fn bytes(count: usize, seed: u8) -> Vec<u8> {
    (0..count * PAGE).map(|at| (at / 7) as u8 ^ (at / PAGE) as u8 ^ seed).collect()
}

fn lines() -> impl Strategy<Value = Lines> {
    let range = (0..4096_u64).prop_flat_map(|from| (Just(from), 1..=4096 - from));
    (0..PAGE_NUMBERS, range)
        .prop_map(|(page, (from, length))| Lines::of(page * 4096 + from, length).unwrap())
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        (pages(PAGES), kept(PAGES))
            .prop_map(|(pages, releases)| Request::Fetch { pages, releases }),
        (pages(PAGES), any::<u8>()).prop_map(|(pages, seed)| {
            let bytes = bytes(pages.len(), seed);
            Request::Store { pages, bytes }
        }),
        (pages(PAGES), any::<u8>()).prop_map(|(pages, seed)| {
            let bytes = bytes(pages.len(), seed);
            Request::Tables { pages, bytes }
        }),
        pages(PAGES).prop_map(|pages| Request::Keep { pages }),
        kept(PAGES).prop_map(|pages| Request::Release { pages }),
        any::<u64>().prop_map(|from| Request::Claims { from }),
        (lines(), any::<u32>()).prop_map(|(lines, version)| {
            Request::Lines { lines, version: Version::new(version) }
        }),
        Just(Request::Ping),
        "[a-z]{0,300}".prop_map(|text| Request::Control { text }),
    ]
}

/// Answers, and the pages that were asked for.
fn answers() -> impl Strategy<Value = (Vec<(u64, Version)>, Answer)> {
    let found = prop::collection::vec((page(), any::<bool>()), 0..=PAGES);
    let stored = prop_oneof![Just(Stored::Kept), Just(Stored::Full), Just(Stored::Refused)];
    let stored = prop::collection::vec((page(), stored), 0..=PAGES);
    let next = prop::option::of(0..PAGE_NUMBERS);
    prop_oneof![
        (found, any::<u8>()).prop_map(|(found, seed)| {
            let (asked, found): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let bytes = bytes(found.iter().filter(|found| **found).count(), seed);
            (asked, Answer::Fetched { found, bytes })
        }),
        stored.prop_map(|stored| {
            let (asked, stored): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
            (asked, Answer::Stored(stored))
        }),
        (lines(), any::<(u32, Option<u8>)>()).prop_map(|(lines, (version, seed))| {
            let found = seed.map(|seed| bytes(1, seed)[..lines.bytes()].to_vec());
            (vec![(lines.number(), Version::new(version))], Answer::Lined(found))
        }),
        any::<u32>().prop_map(|count| (vec![], Answer::Released(count))),
        (kept(CLAIMS), next).prop_map(|(claims, next)| (vec![], Answer::Claims { claims, next })),
        any::<(u64, u64)>().prop_map(|(capacity, used)| (vec![], Answer::Pong { capacity, used })),
        (any::<u16>(), "[ -~]{0,512}")
            .prop_map(|(errno, text)| (vec![], Answer::Refused { errno, text })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_request_is_what_its_frame_says(request in requests()) {
        let bytes = request_frame(&request);
        prop_assert!(bytes.len() <= FRAME);
        prop_assert_eq!(decode(&bytes, &[]), Ok(Message::Request(request)));
    }

    #[test]
    fn an_answer_is_what_its_frame_says((asked, answer) in answers()) {
        let bytes = answer_frame(&asked, &answer);
        prop_assert!(bytes.len() <= FRAME);
        prop_assert_eq!(decode(&bytes, &asked), Ok(Message::Answer(answer)));
    }

    #[test]
    fn a_hello_is_what_its_frame_says(node in 1_u16..4096, process in any::<u64>()) {
        let node = NodeId::new(node).unwrap();
        let hello = Hello { node, process, session: 7, volume: [9; 16], term: 4, store: 0 };
        let mut bytes = Vec::new();
        frame::encode_hello(&mut bytes, frame::VERSION, 1, &hello);
        prop_assert_eq!(decode(&bytes, &[]), Ok(Message::Hello(hello)));
    }

    /// Right sums, and anything in all other fields and in the entries.
    #[test]
    fn nonsense_with_right_sums_reserves_little(
        kind in prop_oneof![0_u8..8, 64_u8..74, any::<u8>()],
        count in prop_oneof![0_u32..3, any::<u32>(), Just(u32::MAX)],
        length in prop_oneof![0_u32..100, any::<u32>(), Just(u32::MAX), Just(8224)],
        more in prop_oneof![0_u64..3, any::<u64>()],
        body in prop::collection::vec(any::<u8>(), 0..9000),
        summed in 0_usize..9000,
    ) {
        let mut bytes = request_frame(&Request::Ping);
        bytes.extend(&body);
        bytes[6] = kind;
        bytes[40..44].copy_from_slice(&count.to_le_bytes());
        bytes[44..48].copy_from_slice(&length.to_le_bytes());
        bytes[48..56].copy_from_slice(&more.to_le_bytes());
        let sum = crc32c::crc32c(&body[..summed.min(body.len())]);
        bytes[56..60].copy_from_slice(&sum.to_le_bytes());
        sum_again(&mut bytes);
        let (_, allocated) = allocated(|| decode(&bytes, &[]));
        prop_assert!(allocated <= FRAME);
    }
}

/// A frame, and the pages that were asked for.
type Framed = (Vec<u8>, Vec<(u64, Version)>);

/// A frame of each kind, small.
fn one_of_each() -> Vec<Framed> {
    let asked = vec![(17, Version::new(5)), (18, Version::new(6))];
    let hello = Hello {
        node: NodeId::new(2).unwrap(),
        process: 3,
        session: 7,
        volume: [9; 16],
        term: 4,
        store: 0,
    };
    let mut frames = Vec::new();
    for request in [
        Request::Fetch { pages: asked.clone(), releases: kept_of(&asked) },
        Request::Store { pages: asked.clone(), bytes: bytes(2, 1) },
        Request::Tables { pages: asked.clone(), bytes: bytes(2, 3) },
        Request::Keep { pages: asked.clone() },
        Request::Release { pages: kept_of(&asked) },
        Request::Claims { from: 3 },
        Request::Ping,
        Request::Lines { lines: Lines::of(17 << 12, 100).unwrap(), version: Version::new(5) },
    ] {
        frames.push((request_frame(&request), vec![]));
    }
    for answer in [
        Answer::Fetched { found: vec![false, true], bytes: bytes(1, 2) },
        Answer::Stored(vec![Stored::Kept, Stored::Full]),
        Answer::Released(7),
        Answer::Claims { claims: kept_of(&asked), next: Some(99) },
        Answer::Pong { capacity: 10, used: 5 },
        Answer::Refused { errno: 5, text: "it is broken".into() },
    ] {
        frames.push((answer_frame(&asked, &answer), asked.clone()));
    }
    let some = vec![(Lines::of(17 << 12, 100).unwrap().number(), Version::new(5))];
    for found in [None, Some(bytes(1, 3)[..128].to_vec())] {
        frames.push((answer_frame(&some, &Answer::Lined(found)), some.clone()));
    }
    let mut head = Vec::new();
    frame::encode_hello(&mut head, BOUND.version, 3, &hello);
    frames.push((head.clone(), vec![]));
    frame::encode_welcome(&mut head, &BOUND, 3);
    frames.push((head.clone(), vec![]));
    frame::encode_again(&mut head, &BOUND, 3, 17);
    frames.push((head, vec![]));
    frames
}

#[test]
fn a_frame_cut_off_anywhere_is_no_frame() {
    for (frame, asked) in one_of_each() {
        for length in 0..frame.len() {
            assert_eq!(decode(&frame[..length], &asked), Err(Bad::Ends), "{length} bytes");
        }
        assert!(decode(&frame, &asked).is_ok());
    }
}

#[test]
fn each_flipped_bit_is_seen_and_one_of_a_page_names_it() {
    for (mut frame, asked) in one_of_each() {
        let kind = Header::parse(&frame, None).unwrap().kind();
        let (pages, numbers) = match kind {
            Kind::Store | Kind::Tables => (HEADER + 2 * ENTRY, [17, 18]),
            Kind::Fetched => (HEADER + 2 * ENTRY, [18, 0]),
            Kind::Lined => (HEADER + ENTRY, [17, 0]),
            _ => (frame.len(), [0, 0]),
        };
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            let found = decode(&frame, &asked).unwrap_err();
            let page = (bit / 8).checked_sub(pages).map(|at| numbers[at / PAGE]);
            match (page, found) {
                (Some(page), found) => assert_eq!(found, Bad::PageSum { page }, "bit {bit}"),
                (None, Bad::Magic(_)) => assert!(bit < 32),
                (None, Bad::HeaderSum) => assert!((32..512).contains(&bit)),
                (None, found) => assert_eq!(found, Bad::BodySum(kind), "bit {bit}"),
            }
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_by_the_header_alone() {
    for (frame, _) in one_of_each() {
        for field in [40, 44] {
            for value in [0, 1, 4097, 1 << 20, u32::MAX - 63, u32::MAX] {
                let mut frame = frame.clone();
                let was = u32::from_le_bytes(frame[field..field + 4].try_into().unwrap());
                let kind = Header::parse(&frame, None).unwrap().kind();
                frame[field..field + 4].copy_from_slice(&value.to_le_bytes());
                sum_again(&mut frame);
                // A text may be shorter, and a fetch of a page that is not there.
                let may = kind == Kind::Refused && field == 44 && value <= 512;
                if value == was || may {
                    continue;
                }
                // The header alone: no body is asked for.
                let (found, allocated) = allocated(|| Header::parse(&frame[..HEADER], None));
                assert!(matches!(found, Err(Bad::Length { .. })), "{kind:?} {field} {value}");
                assert_eq!(allocated, 0);
            }
        }
    }
}

#[test]
fn a_frame_of_another_version_kind_volume_term_or_session_is_named() {
    let frame = request_frame(&Request::Ping);
    let changed = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        sum_again(&mut frame);
        decode(&frame, &[]).unwrap_err()
    };
    let other = frame::VERSION + 1;
    let wrong = Bad::Version { theirs: other, ours: frame::VERSION };
    assert_eq!(changed(4, other as u8), wrong);
    assert_eq!(changed(6, 99), Bad::Kind(99));
    assert_eq!(changed(7, 1), Bad::Field("the reserved byte"));
    let mut other = [9; 16];
    other[2] = 8;
    assert_eq!(changed(18, 8), Bad::Volume { theirs: other, ours: [9; 16] });
    assert_eq!(changed(32, 3), Bad::Term { theirs: 3, ours: 4 });
    assert_eq!(changed(36, 8), Bad::Session { theirs: 8, ours: 7 });
    let mut neighbour = frame.clone();
    neighbour[4] = 2;
    sum_again(&mut neighbour);
    assert!(Header::parse(&neighbour, None).is_ok(), "a neighbour's hello");
    assert!(Header::parse(&neighbour, Some(1)).is_err(), "after the hello");
}

#[test]
fn an_answer_for_other_pages_is_refused() {
    let (here, there) = ((17, Version::new(5)), (18, Version::new(5)));
    let answer = Answer::Fetched { found: vec![true], bytes: bytes(1, 3) };
    let frame = answer_frame(&[here], &answer);
    assert!(decode(&frame, &[here]).is_ok());
    for asked in [vec![there], vec![(17, Version::new(6))], vec![], vec![here, there]] {
        assert!(matches!(decode(&frame, &asked), Err(Bad::Field(_))), "{asked:?}");
    }
}

#[test]
fn what_is_beyond_a_frames_limits_is_not_encoded() {
    let many = vec![(1, Version::new(1)); PAGES + 1];
    let mut head = Vec::new();
    for request in [
        Request::Fetch { pages: many.clone(), releases: vec![] },
        Request::Fetch { pages: vec![], releases: kept_of(&many) },
        Request::Store { pages: many.clone(), bytes: bytes(PAGES + 1, 0) },
        Request::Store { pages: many[..1].to_vec(), bytes: vec![0; PAGE - 1] },
        Request::Keep { pages: many.clone() },
        Request::Release { pages: kept_of(&many) },
    ] {
        assert!(frame::encode_request(&mut head, &BOUND, 1, &request).is_err());
    }
    let claims = vec![KeptPage::new(1, Version::new(1)); CLAIMS + 1];
    for answer in [
        Answer::Fetched { found: vec![true], bytes: vec![] },
        Answer::Fetched { found: vec![], bytes: vec![] },
        Answer::Stored(vec![]),
        Answer::Claims { claims, next: None },
    ] {
        assert!(frame::encode_answer(&mut head, &BOUND, 1, &many[..1], &answer).is_err());
    }
    let text = "\u{e4}".repeat(400);
    let frame = answer_frame(&[], &Answer::Refused { errno: 1, text: text.clone() });
    let cut = Answer::Refused { errno: 1, text: text[..512].to_string() };
    assert_eq!(decode(&frame, &[]), Ok(Message::Answer(cut)));
}

struct OnePage;

impl Service for OnePage {
    fn hello(&self, _hello: &Hello) -> Result<(), Refusal> {
        Ok(())
    }

    fn serve(&self, _peer: &Peer, _request: Request) -> Answer {
        Answer::Fetched { found: vec![true], bytes: bytes(1, 0) }
    }

    fn bad(&self, _peer: &Peer, reason: &str) {
        panic!("{reason}");
    }
}

#[test]
fn a_fetch_of_a_page_allocates_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, Wire::Plain, 1, Arc::new(OnePage)).unwrap();
    let hello = Hello {
        node: NodeId::new(2).unwrap(),
        process: 3,
        session: 7,
        volume: [9; 16],
        term: 4,
        store: 0,
    };
    let long = Duration::from_secs(30);
    let mut link = Link::connect(server.address(), long, &hello, &Wire::Plain).unwrap();
    let fetch = Request::Fetch { pages: vec![(17, Version::new(5))], releases: vec![] };
    let page = bytes(1, 0);
    let mut once = || {
        link.send(&fetch, long).unwrap();
        let frame = link.poll_frame(long).unwrap().unwrap();
        assert!(frame.pages().eq([Some(&page[..])]));
    };
    once();
    let ((), allocated) = allocated(|| (0..100).for_each(|_| once()));
    assert_eq!(allocated, 0);
}
