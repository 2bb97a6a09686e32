//! Frames of lines: parts of pages that stay where they are.
//!
//! A request and its answer have one entry, whose page is the number of the lines
//! ([`Lines::number`]); so the sum in an answer's entry covers which lines they are, too.

use super::{Bad, ENTRY, Entry, Header, Kind, PAGE_BYTES, too_much};
use crate::protocol::Version;
use crate::protocol::messages::{LINE, Lines, Request};
use zerocopy::FromBytes;

/// Whether so many bytes can be the body of an answer with so many entries.
pub(super) fn fits(count: usize, body: usize) -> bool {
    let lines = body.checked_sub(count * ENTRY);
    lines.is_some_and(|bytes| bytes.is_multiple_of(LINE as usize) && bytes <= count * PAGE_BYTES)
}

/// The entry of an answer: of these lines, which are there, or not.
pub(super) fn entry(asked: &[(u64, Version)], bytes: Option<&[u8]>) -> Result<Entry, Bad> {
    let &[(number, version)] = asked else { return Err(too_much(Kind::Lined, asked.len(), 0)) };
    let entry = Entry::new(number, u32::from(bytes.is_some()), version);
    let Some(bytes) = bytes else { return Ok(entry) };
    if Lines::of_number(number).is_none_or(|lines| lines.bytes() != bytes.len()) {
        return Err(too_much(Kind::Lined, 1, bytes.len()));
    }
    Ok(entry.with_bytes(bytes))
}

/// What a request says.
pub(super) fn decode(header: &Header, body: &[u8]) -> Result<Request, Bad> {
    let entries = <[Entry]>::ref_from_bytes(header.head_of(body)?).map_err(|_| Bad::Ends)?;
    let [entry] = entries else { return Err(Bad::Field("the number of its entries")) };
    entry.check_alone(1)?;
    let (number, version) = entry.names();
    let lines = Lines::of_number(number).ok_or(Bad::Field("the lines of a page"))?;
    Ok(Request::Lines { lines, version })
}

/// Checks an answer, whose entry is that of the request.
pub(super) fn check(entries: &[Entry], bytes: &[u8]) -> Result<(), Bad> {
    let [entry] = entries else { return Err(Bad::Field("the number of its entries")) };
    let lines = Lines::of_number(entry.page.get()).ok_or(Bad::Field("the lines of a page"))?;
    let wanted = if entry.state() == 1 { lines.bytes() } else { 0 };
    if bytes.len() != wanted {
        return Err(Bad::Field("the number of its lines"));
    }
    if wanted == 0 {
        return entry.check_alone(1);
    }
    entry.check_bytes(bytes).map_err(|_| Bad::PageSum { page: lines.page() })
}
