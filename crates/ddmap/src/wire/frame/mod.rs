//! Frames: what a request or an answer is as bytes.
//!
//! ```text
//! | header: 64 bytes | entries: 16 bytes each | pages: 4096 bytes each |
//! ```
//!
//! `docs/format.md` draws them. A header has a sum of its own and one of the entries (or of the
//! text, or of what else follows); each page has its sum in its entry, which covers the page's
//! number and version, too. So a page that was damaged on its way leaves the frame readable, and
//! can be asked for again.
//!
//! # Invariants
//!
//! 1. How long a body may be follows from the header's kind and count, and is checked before a
//!    byte of it is read ([`Header::parse`]).
//! 2. Nothing is reserved by what a length says: only by the entries that are there.
//! 3. Magic, version, kind and sum of a header are where they are in all versions, and so are the
//!    kinds of a hello, its answer and a refusal: by them two nodes find out what both speak.

mod kept;
mod lines;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, Bound, Hello};
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, CLAIMS, CONTROL, PAGES, Request};
use crate::protocol::{NodeId, PAGE, Version};

/// The version that this build speaks. It talks to the one before and the one behind. (The one
/// before was never spoken: builds of version 1 know no spares, and are refused.)
pub const VERSION: u16 = 3;
/// The first bytes of each frame.
pub const MAGIC: [u8; 4] = *b"SLRd";
/// Bytes of a header.
pub const HEADER: usize = 64;
/// Bytes of an entry.
pub const ENTRY: usize = 16;
/// Bytes of a refusal's text, at most.
pub const TEXT: usize = 512;
/// Bytes of a frame, at most: of one with [`PAGES`] pages.
pub const FRAME: usize = HEADER + PAGES * (ENTRY + PAGE_BYTES);
/// Page numbers are below this.
pub const PAGE_NUMBERS: u64 = 1 << 52;

const PAGE_BYTES: usize = PAGE as usize;
/// What `more` of claims says if there are none behind.
const NO_MORE: u64 = u64::MAX;

const _: () = assert!(size_of::<Header>() == HEADER);
const _: () = assert!(size_of::<Entry>() == ENTRY);
const _: () = assert!(size_of::<HelloBody>() == 24 && size_of::<PongBody>() == 16);
const _: () = assert!(HEADER + CLAIMS * ENTRY <= FRAME && HEADER + TEXT <= FRAME);

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The first frame on a connection.
    Hello = 1,
    /// [`Request::Fetch`].
    Fetch = 2,
    /// [`Request::Store`].
    Store = 3,
    /// [`Request::Release`].
    Release = 4,
    /// [`Request::Claims`].
    Claims = 5,
    /// [`Request::Ping`].
    Ping = 6,
    /// [`Request::Control`].
    Control = 7,
    /// [`Request::Tables`].
    Tables = 8,
    /// [`Request::Lines`].
    Lines = 9,
    /// [`Request::Keep`].
    Keep = 10,
    /// A hello was accepted.
    Welcome = 65,
    /// [`Answer::Fetched`].
    Fetched = 66,
    /// [`Answer::Stored`].
    Stored = 67,
    /// [`Answer::Released`].
    Released = 68,
    /// [`Answer::Claims`].
    Claimed = 69,
    /// [`Answer::Pong`].
    Pong = 70,
    /// [`Answer::Refused`].
    Refused = 71,
    /// A page of the request arrived damaged: the request is to be sent again.
    Again = 72,
    /// [`Answer::Control`].
    Controlled = 73,
    /// [`Answer::Lined`].
    Lined = 74,
}

impl Kind {
    const ALL: [Self; 20] = [
        Self::Hello,
        Self::Fetch,
        Self::Store,
        Self::Release,
        Self::Claims,
        Self::Ping,
        Self::Welcome,
        Self::Fetched,
        Self::Stored,
        Self::Released,
        Self::Claimed,
        Self::Pong,
        Self::Refused,
        Self::Again,
        Self::Control,
        Self::Controlled,
        Self::Tables,
        Self::Lines,
        Self::Lined,
        Self::Keep,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether the side that connected sends it.
    pub fn is_request(self) -> bool {
        (self as u8) < Self::Welcome as u8
    }

    /// Whether a frame of this kind may be the answer to one of that kind.
    pub(super) fn answers(self, request: Self) -> bool {
        let right = match request {
            Self::Hello => Self::Welcome,
            Self::Fetch => Self::Fetched,
            Self::Store | Self::Tables | Self::Keep => Self::Stored,
            Self::Release => Self::Released,
            Self::Claims => Self::Claimed,
            Self::Control => Self::Controlled,
            Self::Lines => Self::Lined,
            _ => Self::Pong,
        };
        self == right || self == Self::Refused || self == Self::Again && request != Self::Hello
    }

    /// The kind of a request's frame.
    pub(super) fn of_request(request: &Request) -> Self {
        match request {
            Request::Fetch { .. } => Self::Fetch,
            Request::Store { .. } => Self::Store,
            Request::Tables { .. } => Self::Tables,
            Request::Keep { .. } => Self::Keep,
            Request::Release { .. } => Self::Release,
            Request::Claims { .. } => Self::Claims,
            Request::Ping => Self::Ping,
            Request::Control { .. } => Self::Control,
            Request::Lines { .. } => Self::Lines,
        }
    }

    /// Entries, at most.
    fn entries_max(self) -> usize {
        match self {
            Self::Fetch => 2 * PAGES,
            Self::Store
            | Self::Tables
            | Self::Keep
            | Self::Release
            | Self::Fetched
            | Self::Stored => PAGES,
            Self::Claimed => CLAIMS,
            Self::Lines | Self::Lined => 1,
            _ => 0,
        }
    }

    /// Whether a body of so many bytes can belong to so many entries.
    fn fits(self, count: usize, body: usize) -> bool {
        if count > self.entries_max() {
            return false;
        }
        let entries = count * ENTRY;
        match self {
            Self::Hello => body == size_of::<HelloBody>(),
            Self::Pong => body == size_of::<PongBody>(),
            Self::Refused => body <= TEXT,
            Self::Control | Self::Controlled => body <= CONTROL,
            Self::Store | Self::Tables => body == entries + count * PAGE_BYTES,
            Self::Fetched => {
                body >= entries
                    && (body - entries).is_multiple_of(PAGE_BYTES)
                    && (body - entries) / PAGE_BYTES <= count
            }
            Self::Lined => lines::fits(count, body),
            _ => body == entries,
        }
    }
}

/// The first 64 bytes of a frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    magic: [u8; 4],
    version: U16,
    kind: u8,
    zero: u8,
    id: U64,
    volume: [u8; 16],
    term: U32,
    session: U32,
    count: U32,
    body: U32,
    more: U64,
    body_sum: U32,
    own_sum: U32,
}

/// What a frame says of one page: its number, what it is, its version, its sum if it follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    page: U64,
    /// `| state 28..32 | version 0..28 |`
    word: U32,
    sum: U32,
}

/// The body of a hello.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloBody {
    process: U64,
    node: U64,
    store: U64,
}

/// The body of a pong.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PongBody {
    capacity: U64,
    used: U64,
}

impl Header {
    /// A frame's header, if its sum is right and its body may be read. `agreed`: the version that
    /// both sides speak; `None` before they have found out.
    pub fn parse(bytes: &[u8], agreed: Option<u16>) -> Result<Self, Bad> {
        let Ok((header, _)) = Self::read_from_prefix(bytes) else { return Err(Bad::Ends) };
        if header.magic != MAGIC {
            return Err(Bad::Magic(header.magic));
        }
        if header.sum() != header.own_sum.get() {
            return Err(Bad::HeaderSum);
        }
        let theirs = header.version.get();
        let right = match agreed {
            Some(agreed) => theirs == agreed,
            None => theirs != 0 && theirs.abs_diff(VERSION) <= 1,
        };
        if !right {
            return Err(Bad::Version { theirs, ours: agreed.unwrap_or(VERSION) });
        }
        let kind = Kind::of(header.kind).ok_or(Bad::Kind(header.kind))?;
        let (count, body) = (header.count.get(), header.body.get());
        if !kind.fits(count as usize, body as usize) {
            return Err(Bad::Length { kind, count, body });
        }
        if header.zero != 0 {
            return Err(Bad::Field("the reserved byte"));
        }
        Ok(header)
    }

    /// Whether a frame is of this connection.
    pub fn check(&self, bound: &Bound) -> Result<(), Bad> {
        if self.volume != bound.volume {
            return Err(Bad::Volume { theirs: self.volume, ours: bound.volume });
        }
        if self.term.get() != bound.term {
            return Err(Bad::Term { theirs: self.term.get(), ours: bound.term });
        }
        if self.session.get() != bound.session {
            return Err(Bad::Session { theirs: self.session.get(), ours: bound.session });
        }
        Ok(())
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        Kind::of(self.kind).expect("a header that was parsed")
    }

    /// The protocol's version.
    pub fn version(&self) -> u16 {
        self.version.get()
    }

    /// The request's number on its connection.
    pub fn id(&self) -> u64 {
        self.id.get()
    }

    /// Bytes behind the header.
    pub fn body(&self) -> usize {
        self.body.get() as usize
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..HEADER - size_of::<U32>()])
    }

    /// The body's part that `body_sum` covers: all but the pages.
    fn head_of<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], Bad> {
        if body.len() != self.body() {
            return Err(Bad::Ends);
        }
        let head = match self.kind() {
            Kind::Store | Kind::Tables | Kind::Fetched | Kind::Lined => {
                &body[..self.count.get() as usize * ENTRY]
            }
            _ => body,
        };
        if crc32c::crc32c(head) != self.body_sum.get() {
            return Err(Bad::BodySum(self.kind()));
        }
        Ok(head)
    }

    fn entries<'a>(&self, body: &'a [u8]) -> Result<&'a [Entry], Bad> {
        let entries = <[Entry]>::ref_from_bytes(self.head_of(body)?).map_err(|_| Bad::Ends)?;
        if entries.iter().any(|entry| entry.page.get() >= PAGE_NUMBERS) {
            return Err(Bad::Field("a page's number"));
        }
        Ok(entries)
    }
}

impl Entry {
    fn new(page: u64, state: u32, version: Version) -> Self {
        let word = U32::new(state << 28 | version.number());
        Self { page: U64::new(page), word, sum: U32::new(0) }
    }

    fn state(&self) -> u32 {
        self.word.get() >> 28
    }

    fn version(&self) -> Version {
        Version::new(self.word.get())
    }

    fn names(&self) -> (u64, Version) {
        (self.page.get(), self.version())
    }

    /// The sum of the page's bytes, as those of this page and version.
    fn sum_of(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[..12]), bytes)
    }

    fn with_bytes(mut self, bytes: &[u8]) -> Self {
        self.sum = U32::new(self.sum_of(bytes));
        self
    }

    fn check_bytes(&self, bytes: &[u8]) -> Result<(), Bad> {
        if self.sum_of(bytes) == self.sum.get() {
            return Ok(());
        }
        Err(Bad::PageSum { page: self.page.get() })
    }

    /// An entry to which no page belongs, in this state at most.
    fn check_alone(&self, states: u32) -> Result<(), Bad> {
        if self.sum.get() == 0 && self.state() < states {
            return Ok(());
        }
        Err(Bad::Field("an entry's state or sum"))
    }
}

/// The frame that a request is: its beginning goes to `head` (cleared first), its pages are
/// returned, to be sent behind. It fails if it is more than a frame holds; nothing is to be sent.
pub fn encode_request<'a>(
    head: &mut Vec<u8>,
    bound: &Bound,
    id: u64,
    request: &'a Request,
) -> Result<&'a [u8], Bad> {
    begin(head);
    let (kind, more, bytes): (_, u64, &[u8]) = match request {
        Request::Fetch { pages, releases } => {
            push(head, Kind::Fetch, pages, PAGES)?;
            kept::push(head, Kind::Fetch, releases, PAGES)?;
            (Kind::Fetch, releases.len() as u64, &[])
        }
        Request::Store { pages, bytes } | Request::Tables { pages, bytes } => {
            let kind = Kind::of_request(request);
            if bytes.len() != pages.len() * PAGE_BYTES || pages.len() > PAGES {
                return Err(too_much(kind, pages.len(), bytes.len()));
            }
            for ((page, version), bytes) in pages.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
                let entry = Entry::new(*page, 0, *version).with_bytes(bytes);
                head.extend_from_slice(entry.as_bytes());
            }
            (kind, 0, bytes)
        }
        Request::Keep { pages } => {
            push(head, Kind::Keep, pages, PAGES)?;
            (Kind::Keep, 0, &[])
        }
        Request::Release { pages } => {
            kept::push(head, Kind::Release, pages, PAGES)?;
            (Kind::Release, 0, &[])
        }
        Request::Lines { lines, version } => {
            push(head, Kind::Lines, &[(lines.number(), *version)], 1)?;
            (Kind::Lines, 0, &[])
        }
        Request::Claims { from } => (Kind::Claims, *from, &[]),
        Request::Ping => (Kind::Ping, 0, &[]),
        Request::Control { text } => {
            push_text(head, Kind::Control, text)?;
            (Kind::Control, 0, &[])
        }
    };
    finish(head, bound, kind, id, more, bytes.len());
    Ok(bytes)
}

/// The same for the answer to a request with these pages. It fails if it is no answer to that.
pub fn encode_answer<'a>(
    head: &mut Vec<u8>,
    bound: &Bound,
    id: u64,
    asked: &[(u64, Version)],
    answer: &'a Answer,
) -> Result<&'a [u8], Bad> {
    begin(head);
    let (kind, more, bytes): (_, u64, &[u8]) = match answer {
        Answer::Fetched { found, bytes } => {
            push_found(head, asked, found, bytes)?;
            (Kind::Fetched, 0, bytes)
        }
        Answer::Lined(found) => {
            let bytes = found.as_deref();
            head.extend_from_slice(lines::entry(asked, bytes)?.as_bytes());
            (Kind::Lined, 0, bytes.unwrap_or_default())
        }
        Answer::Stored(stored) => {
            if stored.len() != asked.len() || stored.len() > PAGES {
                return Err(too_much(Kind::Stored, stored.len(), 0));
            }
            for ((page, version), stored) in asked.iter().zip(stored) {
                let state = match stored {
                    Stored::Kept => 0,
                    Stored::Full => 1,
                    Stored::Refused => 2,
                };
                head.extend_from_slice(Entry::new(*page, state, *version).as_bytes());
            }
            (Kind::Stored, 0, &[])
        }
        Answer::Released(count) => (Kind::Released, u64::from(*count), &[]),
        Answer::Claims { claims, next } => {
            kept::push(head, Kind::Claimed, claims, CLAIMS)?;
            (Kind::Claimed, next.unwrap_or(NO_MORE), &[])
        }
        Answer::Pong { capacity, used } => {
            let body = PongBody { capacity: U64::new(*capacity), used: U64::new(*used) };
            head.extend_from_slice(body.as_bytes());
            (Kind::Pong, 0, &[])
        }
        Answer::Control { text } => {
            push_text(head, Kind::Controlled, text)?;
            (Kind::Controlled, 0, &[])
        }
        Answer::Refused { errno, text } => {
            head.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(TEXT)]);
            (Kind::Refused, u64::from(*errno), &[])
        }
    };
    finish(head, bound, kind, id, more, bytes.len());
    Ok(bytes)
}

/// The first frame on a connection, in a version of the protocol.
pub fn encode_hello(head: &mut Vec<u8>, version: u16, id: u64, hello: &Hello) {
    begin(head);
    let node = U64::new(u64::from(hello.node.number()));
    let (process, store) = (U64::new(hello.process), U64::new(hello.store));
    let body = HelloBody { process, node, store };
    head.extend_from_slice(body.as_bytes());
    finish(head, &hello.bound(version), Kind::Hello, id, 0, 0);
}

/// What a hello that is accepted is answered.
pub fn encode_welcome(head: &mut Vec<u8>, bound: &Bound, id: u64) {
    begin(head);
    finish(head, bound, Kind::Welcome, id, 0, 0);
}

/// Asks for a request again, of which this page arrived damaged.
pub fn encode_again(head: &mut Vec<u8>, bound: &Bound, id: u64, page: u64) {
    begin(head);
    finish(head, bound, Kind::Again, id, page, 0);
}

/// What a hello says.
pub fn decode_hello(header: &Header, body: &[u8]) -> Result<Hello, Bad> {
    let head = header.head_of(body)?;
    if header.kind() != Kind::Hello || header.more.get() != 0 {
        return Err(Bad::Unexpected(header.kind()));
    }
    let said = HelloBody::read_from_bytes(head).map_err(|_| Bad::Ends)?;
    let node = u16::try_from(said.node.get()).ok().and_then(NodeId::new);
    Ok(Hello {
        node: node.ok_or(Bad::Field("the node's number"))?,
        process: said.process.get(),
        store: said.store.get(),
        session: header.session.get(),
        volume: header.volume,
        term: header.term.get(),
    })
}

/// What a request's frame says, checked whole.
pub fn decode_request(header: &Header, body: &[u8]) -> Result<Request, Bad> {
    let more = header.more.get();
    let has_word = matches!(header.kind(), Kind::Fetch | Kind::Claims);
    if header.kind().is_request() && header.kind() != Kind::Hello && !has_word && more != 0 {
        return Err(Bad::Field("a word that is 0 in this kind"));
    }
    match header.kind() {
        Kind::Fetch => {
            let entries = header.entries(body)?;
            let releases = usize::try_from(more).ok().filter(|count| *count <= PAGES);
            let pages = releases.and_then(|count| entries.len().checked_sub(count));
            let Some(pages) = pages.filter(|count| *count <= PAGES) else {
                return Err(Bad::Field("the number of releases"));
            };
            let (pages, releases) = entries.split_at(pages);
            let releases = kept::of(alone(releases, 2)?);
            Ok(Request::Fetch { pages: names(alone(pages, 1)?), releases })
        }
        Kind::Store | Kind::Tables => {
            let entries = header.entries(body)?;
            let bytes = &body[entries.len() * ENTRY..];
            for (entry, bytes) in entries.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
                if entry.state() != 0 {
                    return Err(Bad::Field("an entry's state"));
                }
                entry.check_bytes(bytes)?;
            }
            let (pages, bytes) = (names(entries), bytes.to_vec());
            Ok(match header.kind() {
                Kind::Tables => Request::Tables { pages, bytes },
                _ => Request::Store { pages, bytes },
            })
        }
        Kind::Lines => lines::decode(header, body),
        Kind::Keep => Ok(Request::Keep { pages: names(alone(header.entries(body)?, 1)?) }),
        Kind::Release => Ok(Request::Release { pages: kept::of(alone(header.entries(body)?, 2)?) }),
        Kind::Claims => {
            header.head_of(body)?;
            Ok(Request::Claims { from: more })
        }
        Kind::Ping => {
            header.head_of(body)?;
            Ok(Request::Ping)
        }
        Kind::Control => {
            let text = std::str::from_utf8(header.head_of(body)?);
            let text = text.map_err(|_| Bad::Field("its text"))?.to_owned();
            Ok(Request::Control { text })
        }
        kind => Err(Bad::Unexpected(kind)),
    }
}

/// An answer as it lies in a buffer, checked whole.
#[derive(Clone, Copy)]
pub struct AnswerFrame<'a> {
    header: Header,
    entries: &'a [Entry],
    bytes: &'a [u8],
}

impl<'a> AnswerFrame<'a> {
    /// The answer to a request with these pages.
    pub fn parse(header: &Header, body: &'a [u8], asked: &[(u64, Version)]) -> Result<Self, Bad> {
        if header.kind().is_request() {
            return Err(Bad::Unexpected(header.kind()));
        }
        header.head_of(body)?;
        let frame = Self::of_checked(header, body);
        frame.check(asked)?;
        Ok(frame)
    }

    /// One that was parsed before.
    pub(super) fn of_checked(header: &Header, body: &'a [u8]) -> Self {
        let entries = match header.kind() {
            Kind::Pong | Kind::Refused | Kind::Controlled => 0,
            _ => header.count.get() as usize * ENTRY,
        };
        let (entries, bytes) = body.split_at(entries);
        let entries = <[Entry]>::ref_from_bytes(entries).expect("whole entries");
        Self { header: *header, entries, bytes }
    }

    fn check(&self, asked: &[(u64, Version)]) -> Result<(), Bad> {
        let more = self.header.more.get();
        match self.header.kind() {
            Kind::Fetched | Kind::Stored | Kind::Lined => {
                let same = self.entries.iter().map(Entry::names).eq(asked.iter().copied());
                if !same {
                    return Err(Bad::Field("its pages, which are not those asked for"));
                }
                match self.header.kind() {
                    Kind::Stored => _ = alone(self.entries, 3)?,
                    Kind::Lined => lines::check(self.entries, self.bytes)?,
                    _ => self.check_pages()?,
                }
            }
            Kind::Claimed => {
                alone(self.entries, 2)?;
            }
            Kind::Refused | Kind::Controlled => {
                std::str::from_utf8(self.bytes).map_err(|_| Bad::Field("its text"))?;
            }
            _ => {}
        }
        let limit = match self.header.kind() {
            Kind::Claimed => NO_MORE,
            Kind::Again => PAGE_NUMBERS,
            Kind::Released => u64::from(u32::MAX),
            Kind::Refused => u64::from(u16::MAX),
            _ => 0,
        };
        if more > limit { Err(Bad::Field("a word beyond its limit")) } else { Ok(()) }
    }

    fn check_pages(&self) -> Result<(), Bad> {
        let here = self.entries.iter().filter(|entry| entry.state() == 1);
        if here.clone().count() * PAGE_BYTES != self.bytes.len() {
            return Err(Bad::Field("the number of its pages"));
        }
        for (entry, bytes) in here.zip(self.bytes.chunks_exact(PAGE_BYTES)) {
            entry.check_bytes(bytes)?;
        }
        self.entries
            .iter()
            .filter(|entry| entry.state() != 1)
            .try_for_each(|one| one.check_alone(1))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.header.kind()
    }

    /// The page that a request of [`Kind::Again`] names.
    pub fn page(&self) -> u64 {
        self.header.more.get()
    }

    /// Of each page that was asked for, in this order: its bytes, if it is there.
    #[cfg(test)]
    pub fn pages(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut bytes = self.bytes.chunks_exact(PAGE_BYTES);
        self.entries.iter().map(move |one| if one.state() == 1 { bytes.next() } else { None })
    }

    /// The answer. `None`: it is one of the connection, not of a request.
    pub fn answer(&self) -> Option<Answer> {
        let more = self.header.more.get();
        Some(match self.header.kind() {
            Kind::Fetched => Answer::Fetched {
                found: self.entries.iter().map(|entry| entry.state() == 1).collect(),
                bytes: self.bytes.to_vec(),
            },
            Kind::Lined => {
                let found = self.entries.first().is_some_and(|entry| entry.state() == 1);
                Answer::Lined(found.then(|| self.bytes.to_vec()))
            }
            Kind::Stored => {
                let states = [Stored::Kept, Stored::Full, Stored::Refused];
                Answer::Stored(
                    self.entries.iter().map(|one| states[one.state() as usize]).collect(),
                )
            }
            Kind::Released => Answer::Released(more as u32),
            Kind::Claimed => Answer::Claims {
                claims: kept::of(self.entries),
                next: (more != NO_MORE).then_some(more),
            },
            Kind::Pong => {
                let body = PongBody::read_from_bytes(self.bytes).ok()?;
                Answer::Pong { capacity: body.capacity.get(), used: body.used.get() }
            }
            Kind::Controlled => {
                Answer::Control { text: String::from_utf8_lossy(self.bytes).into_owned() }
            }
            Kind::Refused => Answer::Refused {
                errno: more as u16,
                text: String::from_utf8_lossy(self.bytes).into_owned(),
            },
            _ => return None,
        })
    }
}

fn alone(entries: &[Entry], states: u32) -> Result<&[Entry], Bad> {
    entries.iter().try_for_each(|entry| entry.check_alone(states))?;
    Ok(entries)
}

fn names(entries: &[Entry]) -> Vec<(u64, Version)> {
    entries.iter().map(Entry::names).collect()
}

fn begin(head: &mut Vec<u8>) {
    head.clear();
    head.resize(HEADER, 0);
}

fn push(head: &mut Vec<u8>, kind: Kind, pages: &[(u64, Version)], limit: usize) -> Result<(), Bad> {
    if pages.len() > limit {
        return Err(too_much(kind, pages.len(), 0));
    }
    for (page, version) in pages {
        head.extend_from_slice(Entry::new(*page, 0, *version).as_bytes());
    }
    Ok(())
}

fn push_text(head: &mut Vec<u8>, kind: Kind, text: &str) -> Result<(), Bad> {
    if text.len() > CONTROL {
        return Err(too_much(kind, 0, text.len()));
    }
    head.extend_from_slice(text.as_bytes());
    Ok(())
}

fn push_found(
    head: &mut Vec<u8>,
    asked: &[(u64, Version)],
    found: &[bool],
    bytes: &[u8],
) -> Result<(), Bad> {
    let here = found.iter().filter(|found| **found).count();
    if found.len() != asked.len() || found.len() > PAGES || bytes.len() != here * PAGE_BYTES {
        return Err(too_much(Kind::Fetched, found.len(), bytes.len()));
    }
    let mut pages = bytes.chunks_exact(PAGE_BYTES);
    for ((page, version), found) in asked.iter().zip(found) {
        let entry = Entry::new(*page, u32::from(*found), *version);
        let entry = match found.then(|| pages.next()).flatten() {
            Some(bytes) => entry.with_bytes(bytes),
            None => entry,
        };
        head.extend_from_slice(entry.as_bytes());
    }
    Ok(())
}

fn too_much(kind: Kind, count: usize, body: usize) -> Bad {
    let number = |value| u32::try_from(value).unwrap_or(u32::MAX);
    Bad::Length { kind, count: number(count), body: number(body) }
}

/// Writes the header in front of what `head` has.
fn finish(head: &mut [u8], bound: &Bound, kind: Kind, id: u64, more: u64, pages: usize) {
    let entries = if kind.entries_max() == 0 { 0 } else { (head.len() - HEADER) / ENTRY };
    let mut header = Header {
        magic: MAGIC,
        version: U16::new(bound.version),
        kind: kind as u8,
        zero: 0,
        id: U64::new(id),
        volume: bound.volume,
        term: U32::new(bound.term),
        session: U32::new(bound.session),
        count: U32::new(entries as u32),
        body: U32::new((head.len() - HEADER + pages) as u32),
        more: U64::new(more),
        body_sum: U32::new(crc32c::crc32c(&head[HEADER..])),
        own_sum: U32::new(0),
    };
    header.own_sum = U32::new(header.sum());
    debug_assert!(kind.fits(entries, header.body()));
    head[..HEADER].copy_from_slice(header.as_bytes());
}
