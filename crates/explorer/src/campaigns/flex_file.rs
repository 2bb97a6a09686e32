//! No power cut takes away what a file of `flex` has returned as durable.

use std::sync::Arc;

use crate::states::{Limits, Tracker};
use flex::File;
use pmem::trace::Trace;
use pmem::{Class, Region};

const BYTES: usize = 16384;

/// What a program does: how it begins, and where. The length of each is its number's own.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append,
    /// At an offset.
    Write(u64),
    /// The same, and no wait.
    WriteOnly(u64),
    /// Waits for all that was written without.
    Fence,
}
use Act::{Append, Fence, Write, WriteOnly};

fn contents(number: usize) -> Vec<u8> {
    let len = [48, 100, 64, 4096, 1, 777, 2048][number % 7];
    (0..len).map(|at| (number * 37 + at * 5 + 1) as u8).collect()
}

/// Carries out a script, and cuts the power everywhere.
fn explore(script: &[Act], class: Class) -> Result<u64, String> {
    let base = vec![0; BYTES];
    let trace = Trace::new();
    let mut region = Region::in_memory(&base, Some(Arc::clone(&trace) as _));
    region.set_class(class);
    let file = File::create_on(region).expect("a file");
    let (mut image, mut durable) = (base.clone(), vec![base.clone()]);
    let mut known = vec![vec![true; BYTES]];
    for (number, act) in script.iter().enumerate() {
        let bytes = contents(number);
        let (at, ticket) = match *act {
            Append => file.append(&bytes).map(|(at, ticket)| (at, Some(ticket))).expect("appended"),
            Write(at) | WriteOnly(at) => (at, Some(file.write_at(at, &bytes).expect("written"))),
            Fence => (0, None),
        };
        if let Fence = act {
            file.fence().expect("durable");
        } else {
            image[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        // What was written and not waited for may be there or not.
        let mut sure = known.last().expect("one").clone();
        if let WriteOnly(_) = act {
            sure[at as usize..at as usize + bytes.len()].fill(false);
        } else {
            if let Some(ticket) = ticket {
                ticket.wait().expect("durable");
            }
            sure.fill(true);
        }
        durable.push(image.clone());
        known.push(sure);
        trace.mark("returned");
    }
    let events = trace.take();
    let mut tracker = Tracker::new(&base, &events, class);
    let (mut count, mut wrong) = (0, None);
    tracker.explore(0, &Limits::FULL, 1, &mut |state, acts| {
        count += 1;
        let mut found = base.clone();
        for (line, bytes) in state.overlay() {
            found[line as usize..line as usize + 64].copy_from_slice(&bytes);
        }
        // What the act under way writes may be there or not.
        let next = durable.get(acts + 1).unwrap_or(&durable[acts]);
        let lost = (0..BYTES).find(|&at| {
            let is_sure = known[acts][at] && durable[acts][at] == next[at];
            is_sure && found[at] != durable[acts][at]
        });
        if let Some(at) = lost {
            wrong = Some(format!("{script:?}, {class}, after {acts} acts: byte {at} is lost"));
        }
        wrong.is_none()
    });
    wrong.map_or(Ok(count), Err)
}

/// Writes in all orders, on both classes. Gives the number of states.
pub fn all() -> Result<u64, String> {
    let scripts: [&[Act]; 4] = [
        &[Append, Append, Append, Append, Append, Append],
        &[Append, Append, Write(10), Write(0), Append, Write(60)],
        &[Append, WriteOnly(20), WriteOnly(200), Fence, Append],
        &[Write(100), WriteOnly(0), Append, WriteOnly(3000), Fence, WriteOnly(64)],
    ];
    let mut states = 0;
    for script in scripts {
        for class in [Class::CacheLine, Class::Byte] {
            states += explore(script, class)?;
        }
    }
    Ok(states)
}
