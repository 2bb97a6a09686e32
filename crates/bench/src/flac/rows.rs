//! Rows: what is measured of the cache, and the peers that it is compared with.
//!
//! A row's own work and its peers' take turns, round by round; the first round does not count.

use std::time::Instant;

use console::failure::Failure;
use emulation::Model;
use serde_json::{Value, json};

use crate::harness::bound::Bound;
use crate::harness::statistics::median_and_spread;

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Memory of this process, on huge pages where it gets them, touched.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + HUGE_BYTES];
        let start = bytes.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: a range of the vector; the call changes which pages it gets, not what they hold.
        // Where it fails they are small.
        unsafe { libc::madvise(bytes[start..].as_mut_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        bytes[start..start + len].fill(0xA5);
        Self { bytes, start, len }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Nanoseconds of a call: the median of slices of so many calls. So what else runs here takes time
/// of single slices only.
pub fn median_ns(
    at: &[u64],
    slice: usize,
    mut call: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(at.len() / slice + 1);
    for calls in at.chunks(slice) {
        let begun = Instant::now();
        for at in calls {
            call(*at)?;
        }
        times.push(begun.elapsed().as_nanos() as f64 / calls.len() as f64);
    }
    Ok(median_and_spread(&times).0)
}

/// What a peer does in a round, with the buffer that all share; gives nanoseconds of a call.
pub type Work<'a> = Box<dyn FnMut(&mut [u8]) -> Result<f64, Failure> + 'a>;

/// Somebody that a row is compared with.
pub struct Peer<'a> {
    pub name: String,
    pub at_most: Bound,
    pub work: Work<'a>,
}

impl<'a> Peer<'a> {
    pub fn new(name: impl Into<String>, at_most: Bound, work: Work<'a>) -> Self {
        Self { name: name.into(), at_most, work }
    }
}

/// The rows of one model.
pub struct Rows {
    pub model: Model,
    pub repeat: u32,
    pub buffer: Buffer,
    measured: Vec<Value>,
    skipped: Vec<String>,
}

impl Rows {
    /// `longest`: bytes of the longest read.
    pub fn new(model: Model, repeat: u32, longest: usize) -> Self {
        let buffer = Buffer::new(longest);
        Self { model, repeat, buffer, measured: Vec::new(), skipped: Vec::new() }
    }

    /// Says why a peer is missing.
    pub fn skip(&mut self, why: String) {
        self.skipped.push(why);
    }

    /// Measures a row.
    pub fn measure<'a>(
        &mut self,
        name: &str,
        mut own: Work<'a>,
        mut peers: Vec<Peer<'a>>,
    ) -> Result<(), Failure> {
        let mut times = vec![Vec::new(); peers.len() + 1];
        for round in 0..=self.repeat {
            let all = std::iter::once(&mut own).chain(peers.iter_mut().map(|peer| &mut peer.work));
            for (work, times) in all.zip(&mut times) {
                let ns = work(self.buffer.bytes())?;
                if round > 0 {
                    times.push(ns);
                }
            }
        }
        let (ns, spread) = median_and_spread(&times[0]);
        let peers: Vec<Value> =
            peers.iter().zip(&times[1..]).map(|(peer, times)| compared(ns, peer, times)).collect();
        let us = ns / 1000.0;
        self.measured
            .push(json!({ "row": name, "us": us, "spread_percent": spread, "peers": peers }));
        Ok(())
    }

    pub fn into_json(self) -> Value {
        json!({ "memory": self.model.to_string(), "rows": self.measured, "skipped": self.skipped })
    }
}

/// A peer's time, and what the row's is beside it.
fn compared(own_ns: f64, peer: &Peer<'_>, times: &[f64]) -> Value {
    let (ns, spread) = median_and_spread(times);
    let (ratio, more_us) = (own_ns / ns, (own_ns - ns) / 1000.0);
    let mut value = json!({
        "peer": peer.name, "us": ns / 1000.0, "spread_percent": spread, "ratio": ratio,
    });
    match peer.at_most {
        Bound::Times(most) => {
            value["at_most"] = most.into();
            value["met"] = (ratio <= most).into();
        }
        Bound::More(most_us) => {
            value["more_us"] = more_us.into();
            value["at_most_more_us"] = most_us.into();
            value["met"] = (more_us <= most_us).into();
        }
        Bound::Shown => {}
    }
    value
}
