//! How well an aged file system keeps huge pages: four measures.
//!
//! (a) of the free bytes, those in whole aligned free 2 MiB; (b) of a new file of 512 MiB, the part
//! that lies in contiguous aligned 2 MiB (at the same alignment in the file: what a mapping can
//! show as huge pages); (c) the same of a new file of 95 % of the free space; (d) the same of the
//! files that live, of 2 MiB and more, of their whole chunks. In percent; `None` where the file
//! system does not tell, or there is no byte or whole chunk.

use console::runs::{CHUNK, huge_bytes};
use rustix::io::Errno;

use super::target::Target;

/// The new file of measure (b): bytes.
pub const NEW_FILE: u64 = 512 << 20;

/// The four measures, and what stands behind them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Measures {
    pub free_bytes: Option<u64>,
    pub aligned_free_pct: Option<f64>,
    pub new_file_huge_pct: Option<f64>,
    pub new_max_file_huge_pct: Option<f64>,
    pub live_huge_pct: Option<f64>,
    /// Bytes of the file of measure (b), fewer than it should have where there was no more room.
    pub new_file_bytes: u64,
    /// Bytes of the file of measure (c).
    pub new_max_file_bytes: u64,
    /// Bytes of whole chunks in the files of measure (d).
    pub live_bytes: u64,
}

/// Measures. `large` are the live files of at least 2 MiB, with their sizes; `next` is a number
/// that no file has. Progress counts files looked at.
pub fn measure(
    target: &mut dyn Target,
    large: &[(u64, u64)],
    next: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Measures, Errno> {
    target.write_journal()?;
    let mut measures = Measures::default();
    if let Some(free) = target.free_space()? {
        let bytes: u64 = free.iter().map(|run| run.length).sum();
        measures.free_bytes = Some(bytes);
        measures.aligned_free_pct = percent(huge_bytes(&free), bytes);
    }
    let mut live = Some((0, 0));
    for (done, (number, size)) in large.iter().enumerate() {
        progress(done as u64, large.len() as u64);
        let extents = target.extents(*number)?;
        live = live.zip(extents).map(|((huge, whole), extents)| {
            (huge + huge_bytes(&extents), whole + size / CHUNK * CHUNK)
        });
    }
    measures.live_huge_pct = live.and_then(|(huge, whole)| percent(huge, whole));
    measures.live_bytes = live.map_or(0, |(_, whole)| whole);
    let free = measures.free_bytes;
    (measures.new_file_huge_pct, measures.new_file_bytes) = new_file(target, free, next, NEW_FILE)?;
    let largest = target.available()? / 100 * 95 / 4096 * 4096;
    (measures.new_max_file_huge_pct, measures.new_max_file_bytes) =
        new_file(target, free, next + 1, largest)?;
    Ok(measures)
}

/// The huge part of a new file of so many bytes, which is removed again, or of as many as can be
/// had; and how many that were. `ENOSPC` if nothing can, though there are `free` bytes.
fn new_file(
    target: &mut dyn Target,
    free: Option<u64>,
    number: u64,
    size: u64,
) -> Result<(Option<f64>, u64), Errno> {
    let mut size = size;
    loop {
        match target.create(number, 0, size) {
            Err(Errno::NOSPC) if size > CHUNK => size = size / 100 * 99,
            Err(Errno::NOSPC) if free.is_none_or(|free| free < 2 * CHUNK) => return Ok((None, 0)),
            Err(errno) => return Err(errno),
            Ok(()) => break,
        }
    }
    let extents = target.extents(number)?;
    target.remove(number)?;
    target.write_journal()?;
    let part = extents.and_then(|extents| percent(huge_bytes(&extents), size / CHUNK * CHUNK));
    Ok((part, size))
}

/// `part` of `whole` in percent. Of nothing there is no part.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}
