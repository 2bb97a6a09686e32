//! No power cut leaves a log of `flex` but what it promises: what was committed is there, in order
//! and whole; what was not is there whole or not at all; and nothing comes back to life behind what
//! the next writer appends.

use std::collections::HashSet;
use std::sync::Arc;

use explorer::states::{Limits, Tracker};
use flex::Log;
use pmem::trace::Trace;
use pmem::{Class, Region};

const BYTES: usize = 8192;

/// What a program does with a log.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append(usize),
    Put(usize),
    /// Of the last put.
    Commit,
    /// To the record of this number; to the end, if it is none yet.
    Trim(usize),
}
use Act::{Append, Commit, Put, Trim};

/// The contents of record `number`.
fn contents(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + 1) as u8).collect()
}

/// A script as it was carried out.
#[derive(Default)]
struct Done {
    records: Vec<(u64, Vec<u8>)>,
    /// After each act: records committed, records trimmed.
    after: Vec<(usize, usize)>,
}

fn carry_out(log: &Log, script: &[Act], mut marks: impl FnMut()) -> Done {
    let mut done = Done::default();
    let (mut committed, mut trimmed) = (0, 0);
    for act in script {
        match *act {
            Append(len) | Put(len) => {
                let bytes = contents(done.records.len(), len);
                let position = match act {
                    Append(_) => log.append(&bytes),
                    _ => log.put(&bytes),
                };
                done.records.push((position.expect("there is room"), bytes));
                if matches!(act, Append(_)) {
                    committed = done.records.len();
                }
            }
            Commit => {
                log.commit(done.records.last().expect("a record").0).expect("committed");
                committed = done.records.len();
            }
            Trim(number) => {
                let record = done.records.get(number);
                let position = record.map_or_else(|| log.committed(), |record| record.0);
                log.trim(position).expect("trimmed");
                trimmed = number.min(done.records.len());
            }
        }
        marks();
        done.after.push((committed, trimmed));
    }
    done
}

fn image_of(log: &Log) -> Vec<Vec<u8>> {
    let (mut position, mut all) = (log.oldest(), Vec::new());
    let mut buffer = vec![0; log.longest()];
    while let Some(record) = log.read(position, &mut buffer).expect("it can be read") {
        all.push(buffer[..record.len].to_vec());
        position = record.next;
    }
    all
}

fn blank() -> Vec<u8> {
    let region = Region::in_memory(vec![0xEE; BYTES], None);
    let log = Log::create_on(region).expect("an empty log");
    log.image()
}

/// What a power cut left, judged after `acts` acts had returned.
fn judge(image: &[u8], done: &Done, acts: usize) -> Result<(), String> {
    let (committed, trimmed) = if acts == 0 { (0, 0) } else { done.after[acts - 1] };
    let log = Log::open_on(Region::in_memory(image, None)).map_err(|error| error.to_string())?;
    let found = image_of(&log);
    let all: Vec<_> = done.records.iter().map(|record| &record.1).collect();
    // A trim under way may have come.
    let later = done.after.get(acts).map_or(trimmed, |next| next.1);
    let fits = [trimmed, later].into_iter().any(|first| {
        let end = first + found.len();
        end >= committed && end <= all.len() && all[first..end].iter().copied().eq(&found)
    });
    if !fits {
        let lengths: Vec<_> = found.iter().map(Vec::len).collect();
        return Err(format!(
            "{} records of lengths {lengths:?}; {committed} of {} committed, {trimmed} trimmed",
            found.len(),
            all.len(),
        ));
    }
    // The next writer: nothing but its own record comes behind what is there.
    let next = b"the next writer's".to_vec();
    log.trim(log.committed()).map_err(|error| error.to_string())?;
    log.append(&next).map_err(|error| error.to_string())?;
    let again = Log::open_on(Region::in_memory(log.image(), None)).expect("a log");
    let found = image_of(&again);
    if found == [next] { Ok(()) } else { Err(format!("behind the next writer's: {found:?}")) }
}

fn explore(script: &[Act]) -> u64 {
    let base = blank();
    let mut count = 0;
    for class in [Class::CacheLine, Class::Byte] {
        let trace = Trace::new();
        let mut region = Region::in_memory(&base, Some(Arc::clone(&trace) as _));
        region.set_class(class);
        let log = Log::open_on(region).expect("a log");
        let done = carry_out(&log, script, || trace.mark("returned"));
        let events = trace.take();
        let mut tracker = Tracker::new(&base, &events, class);
        let mut seen = HashSet::new();
        tracker.explore(0, &Limits::FULL, 1, &mut |state, marks| {
            if seen.insert((state.hash(), marks)) {
                count += 1;
                let mut image = base.clone();
                for (line, bytes) in state.overlay() {
                    image[line as usize..line as usize + 64].copy_from_slice(&bytes);
                }
                if let Err(wrong) = judge(&image, &done, marks) {
                    panic!("{script:?}, {class}, after {marks} acts, {}: {wrong}", state.name);
                }
            }
            true
        });
    }
    count
}

#[test]
fn three_records_at_the_end() {
    let states = explore(&[Append(48), Append(1), Append(1000)])
        + explore(&[Put(48), Put(200), Commit, Put(7)])
        + explore(&[Put(100), Append(48), Put(16), Put(300), Commit]);
    assert!(states > 100, "{states}");
}

/// The last record before the end of the ring leaves each remainder there that it can leave.
#[test]
fn around_the_end_of_the_ring_and_across_a_trim() {
    let mut states = 0;
    for (lines, short) in [(0, 0), (0, 7), (1, 0), (2, 60), (3, 1)] {
        // A key record, three of 1,000 bytes, and one up to the rest, which fills its last line or
        // not.
        let last = 4096 - 64 - 3 * 1024 - 64 * lines - 16 - short;
        let fill = [Append(1000), Append(1000), Append(1000), Append(last)];
        let appends = [Trim(2), Append(500), Put(48), Trim(4), Append(900)];
        states += explore(&[&fill[..], &appends[..]].concat());
        let puts = [Trim(3), Put(500), Put(48), Commit, Trim(9), Put(100)];
        states += explore(&[&fill[..], &puts[..]].concat());
    }
    assert!(states > 1000, "{states}");
}
