//! The bytes of a write, as the ways to write want them: one buffer of the caller's, or several.
//!
//! The caller's memory may change meanwhile, or vanish: what is stored has to be what is summed,
//! and a fault is an error of the call.

#![expect(clippy::inline_always, reason = "of one buffer the words stay in registers")]

use crate::Result;
use crate::data::file::{CALL_MAX, Source};
use pmem::{FenceBatch, Locality, Region, UserIn, checksum_after};
use rustix::io::Errno;

/// The bytes of a write. Generic code is compiled once for each kind of them.
pub(crate) trait Bytes {
    /// All of them, if nobody else can change them: what was stored once can be stored again.
    #[inline(always)]
    fn own(&self) -> Option<&[u8]> {
        None
    }

    /// How many they are.
    fn count(&self) -> usize;

    /// Copies the first ones.
    fn read(&self, to: &mut [u8]) -> Result<()>;

    /// Streams some of them to the region. A part may be stored if it fails: `EFAULT`, `EIO`.
    fn stream<'r>(&self, region: &'r Region, part: Part) -> Result<FenceBatch<'r>>;

    /// The same, with the crc32c of these bytes behind others whose sum is `before`.
    fn stream_checksummed<'r>(
        &self,
        region: &'r Region,
        part: Part,
        before: u32,
    ) -> Result<(FenceBatch<'r>, u32)>;
}

/// Some of the bytes, and their place.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Number of the first one.
    pub(crate) from: usize,
    /// Offset in the region.
    pub(crate) to: u64,
    pub(crate) length: usize,
    pub(crate) locality: Locality,
}

impl Part {
    /// Of bytes that go where others are, or where others are soon.
    pub(crate) fn near(from: usize, to: u64, length: usize) -> Self {
        Self { from, to, length, locality: Locality::Near }
    }

    /// Of bytes that go to new space.
    pub(crate) fn cold(from: usize, to: u64, length: usize) -> Self {
        Self { from, to, length, locality: Locality::Cold }
    }
}

impl Bytes for UserIn<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn read(&self, to: &mut [u8]) -> Result<()> {
        Ok(UserIn::read(self, to)?)
    }

    #[inline(always)]
    fn stream<'r>(&self, region: &'r Region, part: Part) -> Result<FenceBatch<'r>> {
        Ok(region.stream_from(part.to, &self.slice(part.from, part.length), part.locality)?.into())
    }

    #[inline(always)]
    fn stream_checksummed<'r>(
        &self,
        region: &'r Region,
        part: Part,
        before: u32,
    ) -> Result<(FenceBatch<'r>, u32)> {
        let Part { from, to, length, locality } = part;
        let (stored, sum) =
            region.stream_checksummed_on(to, &self.slice(from, length), before, locality)?;
        Ok((stored.into(), sum))
    }
}

/// A few bytes that nobody else can change.
pub(crate) struct Own<'a>(pub(crate) &'a [u8]);

impl Bytes for Own<'_> {
    #[inline(always)]
    fn own(&self) -> Option<&[u8]> {
        Some(self.0)
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn read(&self, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.0[..to.len()]);
        Ok(())
    }

    #[inline(always)]
    fn stream<'r>(&self, region: &'r Region, part: Part) -> Result<FenceBatch<'r>> {
        let bytes = &self.0[part.from..part.from + part.length];
        Ok(region.stream(part.to, bytes)?.into())
    }

    #[inline(always)]
    fn stream_checksummed<'r>(
        &self,
        region: &'r Region,
        part: Part,
        before: u32,
    ) -> Result<(FenceBatch<'r>, u32)> {
        let bytes = &self.0[part.from..part.from + part.length];
        Ok((region.stream(part.to, bytes)?.into(), checksum_after(before, bytes)))
    }
}

/// The first `count` bytes of several buffers, one behind the other.
#[derive(Clone, Copy)]
pub(crate) struct Several<'a> {
    pub(crate) buffers: &'a [UserIn<'a>],
    pub(crate) count: usize,
}

impl<'a> Several<'a> {
    /// All bytes of the buffers, as far as one call moves them.
    pub(crate) fn all(buffers: &'a [UserIn<'a>]) -> Self {
        let count = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        Self { buffers, count: count.min(CALL_MAX) as usize }
    }

    /// How many of them, from the first on, can be read; the pages of these are present.
    pub(crate) fn touch(&self) -> usize {
        let mut length = 0;
        for buffer in self.buffers {
            let reach = buffer.touch();
            length += reach;
            if reach < buffer.len() {
                break;
            }
        }
        length
    }
}

impl Bytes for Several<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn read(&self, to: &mut [u8]) -> Result<()> {
        let mut done = 0;
        for buffer in self.buffers {
            let take = buffer.len().min(to.len() - done);
            buffer.slice(0, take).read(&mut to[done..done + take])?;
            done += take;
        }
        if done < to.len() { Err(Errno::FAULT) } else { Ok(()) }
    }

    fn stream<'r>(&self, region: &'r Region, part: Part) -> Result<FenceBatch<'r>> {
        Source::Caller(self.buffers).stream(region, part)
    }

    fn stream_checksummed<'r>(
        &self,
        region: &'r Region,
        part: Part,
        before: u32,
    ) -> Result<(FenceBatch<'r>, u32)> {
        Source::Caller(self.buffers).stream_checksummed(region, part, before)
    }
}
