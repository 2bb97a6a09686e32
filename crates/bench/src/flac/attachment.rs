//! Reads that map what is cached: into buffers of a program that knows nothing of it, as under
//! `solera run --attach`, and into explicit ones. Beside them the same reads by copies.
//!
//! Each side has a buffer of its own: a copy over what another side has attached would take longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use console::failure::Failure;
use flac::{CHUNK, buffers};

use super::reads::{Copies, Reads, Source, peer};
use super::rows::{Buffer, Peer, Rows, Work};
use super::testbed;
use super::worker::Bench;
use crate::harness::bound::Bound;
use crate::harness::statistics::median_and_spread;

/// What a second thread that runs may add to a read of 2 MiB, in microseconds.
const SECOND_US: f64 = 15.0;

/// A buffer of which the cache knows.
struct ExplicitBuffer(Buffer);

impl ExplicitBuffer {
    fn new(len: usize) -> Option<Self> {
        let mut buffer = Buffer::new(len);
        let start = buffer.bytes().as_ptr() as usize;
        // SAFETY: private memory of whole pages, which this holds until it is removed.
        unsafe { buffers::add(start, len) }.then_some(Self(buffer))
    }

    fn range(&mut self) -> (usize, usize) {
        let bytes = self.0.bytes();
        (bytes.as_ptr() as usize, bytes.len())
    }
}

impl Drop for ExplicitBuffer {
    fn drop(&mut self) {
        let (start, len) = self.range();
        buffers::detach(start, len);
        buffers::remove(start, len);
    }
}

/// A row's own work, in a buffer of its own.
fn into(mut buffer: Buffer, reads: Reads, source: Source<'_>) -> Work<'_> {
    Box::new(move |_| reads.time(source, buffer.bytes()))
}

fn into_explicit(mut buffer: ExplicitBuffer, reads: Reads, source: Source<'_>) -> Work<'_> {
    Box::new(move |_| reads.time(source, buffer.0.bytes()))
}

/// All rows. The whole file is cached already.
pub fn all(bench: &Bench, copies: &Copies, rows: &mut Rows) -> Result<(), Failure> {
    let huge = flac::has_huge_pages(&testbed::cache(&bench.directory));
    let Some(attaching) = bench.attaching().filter(|_| huge) else {
        rows.skip("attached reads: they need root, for huge pages, and Linux 6.12".into());
        return Ok(());
    };
    let size = bench.size;
    let page_cache = &copies.files[0].1;
    for (name, bytes, summed, copied, cached) in [
        ("2 MiB, summed", CHUNK, true, Bound::Times(0.75), Bound::Times(1.0 / 3.0)),
        ("whole file, summed", size, true, Bound::Times(0.5), Bound::Shown),
        ("2 MiB, untouched", CHUNK, false, Bound::Times(1.0 / 12.0), Bound::Times(1.0 / 40.0)),
    ] {
        let reads = Reads::in_order(size, bytes, summed);
        let peers = |copied, cached| {
            vec![
                peer("copied", copied, reads.clone(), bench.cached()),
                peer("tmpfs, 4 KiB pages", cached, reads.clone(), Source::File(page_cache)),
            ]
        };
        let own = into(Buffer::new(bytes as usize), reads.clone(), attaching);
        rows.measure(&format!("attached, {name}"), own, peers(copied, cached))?;
        let Some(buffer) = ExplicitBuffer::new(bytes as usize) else { continue };
        let own = into_explicit(buffer, reads.clone(), bench.cached());
        let name = format!("explicit buffer, {name}");
        rows.measure(&name, own, peers(Bound::Shown, Bound::Shown))?;
    }
    changed(bench, attaching, rows)?;
    second_thread(bench, rows)?;
    explicit(bench, rows)
}

/// A program that stores to all that it has read.
fn changed(bench: &Bench, attaching: Source<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let reads = Reads::in_order(bench.size, CHUNK, true);
    let work = |source| -> Work<'_> {
        let (reads, mut buffer) = (reads.clone(), Buffer::new(CHUNK as usize));
        Box::new(move |_| reads.time_changing(source, buffer.bytes()))
    };
    let peer = Peer::new("copied", Bound::Times(1.1), work(bench.cached()));
    rows.measure("attached, 2 MiB, all changed behind it", work(attaching), vec![peer])
}

/// What a thread beside it, on another processor, adds: it has to forget what was mapped.
fn second_thread(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let reads = Reads::in_order(bench.size, CHUNK, true);
    let work = |busy: bool| -> Option<Work<'_>> {
        let (reads, mut buffer) = (reads.clone(), ExplicitBuffer::new(CHUNK as usize)?);
        Some(Box::new(move |_| {
            let stop = AtomicBool::new(!busy);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                let time = reads.time(bench.cached(), buffer.0.bytes());
                stop.store(true, Ordering::Relaxed);
                time
            })
        }))
    };
    let (Some(own), Some(alone)) = (work(true), work(false)) else { return Ok(()) };
    let peer = Peer::new("alone", Bound::More(SECOND_US), alone);
    rows.measure("explicit buffer, 2 MiB, summed, a second thread", own, vec![peer])
}

/// What a program does with an explicit buffer that was read into.
type Use = fn(&mut ExplicitBuffer);

/// A program gets memory of its own for what is attached, beside the page faults of one that does
/// not.
fn explicit(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let reads = Reads::in_order(bench.size, CHUNK, true);
    let work = |then: Use| -> Option<Work<'_>> {
        let (reads, mut buffer) = (reads.clone(), ExplicitBuffer::new(CHUNK as usize)?);
        Some(Box::new(move |_| {
            let mut times = Vec::new();
            for &at in reads.places() {
                reads.read(bench.cached(), at, buffer.0.bytes())?;
                let begun = Instant::now();
                then(&mut buffer);
                times.push(begun.elapsed().as_nanos() as f64);
            }
            Ok(median_and_spread(&times).0)
        }))
    };
    let faults: Use = |buffer| {
        buffer.0.bytes().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    };
    let keep: Use = |buffer| {
        let (start, len) = buffer.range();
        buffers::keep(start, len);
    };
    let detach: Use = |buffer| {
        let (start, len) = buffer.range();
        buffers::detach(start, len);
    };
    for (name, then, at_most) in [("fault", keep, 0.65), ("detach", detach, 0.1)] {
        let (Some(own), Some(natural)) = (work(then), work(faults)) else { return Ok(()) };
        let peer = Peer::new("page faults", Bound::Times(at_most), natural);
        rows.measure(&format!("explicit buffer, 2 MiB: {name}"), own, vec![peer])?;
    }
    Ok(())
}
