//! One request of the kernel's taken apart, and the buffer in which its answer grows.

use vfs::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{InHeader, OutHeader};

/// Bytes of the largest read or write.
pub const DATA_MAX: usize = 1 << 20;
/// Bytes that a request needs beside its data: headers, arguments, names.
const REQUEST_ROOM: usize = 16 * 1024;
/// Bytes of the largest request.
pub const REQUEST_MAX: usize = DATA_MAX + REQUEST_ROOM;

const HEADER: usize = size_of::<OutHeader>();

/// A request: its header, and the arguments that are not taken yet.
pub struct Request<'a> {
    /// The process that asks, and the node.
    pub header: InHeader,
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// `EIO` where the kernel's bytes make no request.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        let length = (header.len as usize).checked_sub(size_of::<InHeader>()).ok_or(Errno::IO)?;
        let rest = rest.get(..length).ok_or(Errno::IO)?;
        let known = rest.len().checked_sub(usize::from(header.extensions) * 8).ok_or(Errno::IO)?;
        Ok(Self { header, rest: &rest[..known] })
    }

    /// The next structure. `EIO` if it is not there.
    pub fn take<T: FromBytes>(&mut self) -> Result<T> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::IO)?;
        self.rest = rest;
        Ok(value)
    }

    /// The next NUL-terminated name.
    pub fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(name)
    }

    /// The next `length` bytes.
    pub fn data(&mut self, length: usize) -> Result<&'a [u8]> {
        let (data, rest) = self.rest.split_at_checked(length).ok_or(Errno::IO)?;
        self.rest = rest;
        Ok(data)
    }
}

/// An answer: room for its header, then what was put so far.
pub struct Answer {
    bytes: Box<[u8]>,
    length: usize,
    /// The file, as the kernel numbers it, that a `write` call has changed.
    pub written: Option<u64>,
}

impl Answer {
    /// Room for the largest answer.
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER + DATA_MAX].into_boxed_slice(), length: HEADER, written: None }
    }

    /// Room for an answer that says only whether it went well.
    pub fn small() -> Self {
        Self { bytes: vec![0; HEADER].into_boxed_slice(), length: HEADER, written: None }
    }

    /// Bytes put so far.
    pub const fn length(&self) -> usize {
        self.length - HEADER
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.length = HEADER;
        self.written = None;
    }

    /// Appends a structure.
    pub fn put<T: IntoBytes + Immutable + KnownLayout>(&mut self, value: &T) -> Result<()> {
        self.put_bytes(value.as_bytes())
    }

    /// Appends bytes.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.space(bytes.len())?.copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }

    /// The next `length` bytes, to be filled and then counted by [`Answer::grow`]. `ERANGE` where
    /// there is no room.
    pub fn space(&mut self, length: usize) -> Result<&mut [u8]> {
        self.bytes[self.length..].get_mut(..length).ok_or(Errno::RANGE)
    }

    /// Counts bytes that were filled in the space.
    pub fn grow(&mut self, length: usize) {
        self.length += length;
    }

    /// The whole message: what was put, or an error.
    pub fn message(&mut self, unique: u64, result: Result<()>) -> &[u8] {
        if result.is_err() {
            self.clear();
        }
        // The kernel knows its own numbers only.
        let error = result.err().map_or(0, |errno| match errno {
            vfs::INTERRUPTED | vfs::BEGIN_ANEW => libc::EINTR,
            errno => errno.raw_os_error(),
        });
        let header = OutHeader { len: self.length as u32, error: -error, unique };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
        &self.bytes[..self.length]
    }
}
