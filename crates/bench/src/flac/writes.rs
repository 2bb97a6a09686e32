//! Overwrites through the cache, beside the same through the engine without it.
//!
//! Each side has a file of its own, of the same size: who writes past the cache changes the file's
//! version, and nothing of it would be cached any more.

use console::failure::Failure;
use flac::CHUNK;
use vfs::{Desc, FileSystem, IoOffset, UserIn};

use super::rows::{Peer, Rows, median_ns};
use super::worker::Bench;
use crate::harness::bound::Bound;

/// Bytes of a short write.
const SHORT: u64 = 4096;
/// The most that following a change may take, over the engine's write.
const TARGET: Bound = Bound::Times(1.05);

/// Nanoseconds of a write.
fn time(
    fs: &dyn FileSystem,
    desc: Desc,
    (at, bytes): (&[u64], u64),
    data: &[u8],
) -> Result<f64, Failure> {
    let data = &data[..bytes as usize];
    // Of all blocks, those of a chunk: the first one takes it out of the cache.
    let slice = if at.len() as u64 > CHUNK / SHORT { (CHUNK / SHORT) as usize } else { 1 };
    median_ns(at, slice, |at| {
        fs.write(desc, &[UserIn::new(data)], IoOffset::offset(at))
            .map(drop)
            .map_err(|errno| Failure::errno("write on the volume", errno))
    })
}

/// All rows of writes.
pub fn all(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let close = |desc| {
        let closed = bench.volume().close(desc);
        closed.map_err(|errno| Failure::errno("close a file", errno))
    };
    let cached = bench.file(b"cached")?;
    let not_cached = bench.file(b"not cached")?;
    let beside = bench.file(b"beside")?;
    let each_block: Vec<u64> = (0..bench.size / SHORT).map(|block| block * SHORT).collect();
    let each_chunk: Vec<u64> = (0..bench.size / CHUNK).map(|chunk| chunk * CHUNK).collect();
    for (name, at, bytes, desc) in [
        ("overwrite 4 KiB, all of a cached file", &each_block, SHORT, Some(cached)),
        ("overwrite 4 KiB, one of a cached chunk", &each_chunk, SHORT, Some(cached)),
        ("overwrite 4 KiB, not cached", &each_block, SHORT, None),
        ("overwrite 2 MiB, cached", &each_chunk, CHUNK, Some(cached)),
        ("overwrite 2 MiB, not cached", &each_chunk, CHUNK, None),
    ] {
        let engine = bench.volume();
        let peer = Box::new(move |data: &mut [u8]| {
            bench.read_all(engine, beside, data)?;
            time(engine, beside, (at, bytes), data)
        });
        let own = Box::new(move |data: &mut [u8]| {
            match desc {
                Some(desc) => bench.read_all(bench.cache(), desc, data)?,
                None => bench.read_all(engine, not_cached, data)?,
            }
            time(bench.cache(), desc.unwrap_or(not_cached), (at, bytes), data)
        });
        rows.measure(name, own, vec![Peer::new("volume", TARGET, peer)])?;
    }
    [cached, not_cached, beside].into_iter().try_for_each(close)
}
