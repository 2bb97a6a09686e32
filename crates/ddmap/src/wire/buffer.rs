//! What has arrived on a connection and is no whole frame yet.
//!
//! INVARIANT: `start..end` has arrived and was not taken. What was taken last stays where it is
//! until [`Buffer::room`].

use super::Bad;
use super::frame::{FRAME, HEADER, Header, MAGIC};
use std::ops::Range;

/// Room for the longest frame. The kernel gives memory where bytes come only.
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; FRAME].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Where the next bytes go: room for the rest of any frame.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes have come there.
    pub(super) fn came(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.bytes.len(), "the kernel gave more than was asked for");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The header of the frame that comes next. `None`: it is not there yet. What begins like no
    /// frame is not waited for.
    pub(super) fn header(&self, agreed: Option<u16>) -> Result<Option<Header>, Bad> {
        let here = &self.bytes[self.start..self.end];
        match here.first_chunk() {
            Some(first) if *first != MAGIC => Err(Bad::Magic(*first)),
            _ if here.len() < HEADER => Ok(None),
            _ => Header::parse(here, agreed).map(Some),
        }
    }

    /// Takes the frame of this header, if it is there whole; where its body is.
    pub(super) fn take(&mut self, header: &Header) -> Option<Range<usize>> {
        let body = self.start + HEADER;
        let end = body + header.body();
        if end > self.end {
            return None;
        }
        self.start = end;
        Some(body..end)
    }

    /// The body that was taken.
    pub(super) fn body(&self, body: Range<usize>) -> &[u8] {
        &self.bytes[body]
    }
}
