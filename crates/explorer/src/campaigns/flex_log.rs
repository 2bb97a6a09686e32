//! No power cut leaves a log of `flex` but what it promises: what was committed is there, in order
//! and whole; what was not is there whole or not at all; and nothing comes back to life behind what
//! the next writer appends. Also with two threads: one is held up at each event of its calls while
//! the other one makes its own.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::states::{Limits, Tracker};
use flex::Log;
use pmem::trace::Event;
use pmem::{Class, Hook, Region, UserIn};

const BYTES: usize = 8192;
/// So long a thread that is held up waits for the other one to end.
const WAIT: Duration = Duration::from_millis(5);

/// What a program does with a log.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append(usize),
    /// Of memory that is not there: it fails, and leaves a gap.
    AppendBad,
    Put(usize),
    /// Of all that is put.
    Commit,
    /// To the record of this number; to the end, if it is none yet. Of one thread only.
    Trim(usize),
    /// The same, and is killed before the head slot is written back; a `Reopen` follows.
    KilledTrim(usize),
    /// Is killed, and the next process opens the log: what it finds is there from then on.
    Reopen,
}
use Act::{Append, AppendBad, Commit, KilledTrim, Put, Reopen, Trim};

thread_local! {
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    threads: Vec<u8>,
    /// Events of the first thread so far.
    count: usize,
    other_ended: bool,
}

/// Records what each thread does, and holds the first one up.
#[derive(Default)]
struct Referee {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// The event of the first thread at which it is held up; 0: none.
    pause_at: usize,
    /// The next flush does not come: the process is killed.
    kills: AtomicBool,
}

impl Referee {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let mut inner = self.lock();
        inner.events.push(event);
        inner.threads.push(THREAD.get());
        if THREAD.get() == 0 {
            inner.count += 1;
            if inner.count == self.pause_at {
                let waits = |inner: &mut Inner| !inner.other_ended;
                let held = self.changed.wait_timeout_while(inner, WAIT, waits);
                drop(held.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn other_ended(&self) {
        self.lock().other_ended = true;
        self.changed.notify_all();
    }
}

impl Hook for Referee {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.push(Event::Store { off, bytes: bytes.to_vec(), streamed, at });
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        if self.kills.swap(false, Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("killed"));
        }
        self.push(Event::Flush { line: off, at });
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.push(Event::Fence { at });
    }
}

/// The contents of record `number` of a thread.
fn contents(thread: u8, number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + 1 + usize::from(thread) * 101) as u8).collect()
}

/// What an act that has returned promises.
#[derive(Clone, Copy, Debug)]
enum Promise {
    Nothing,
    /// All up to the record at this position is there.
    There(u64),
    /// All before this position is gone.
    Gone(u64),
}

/// What was done: the records, and what was promised when, in the order of the marks.
#[derive(Default)]
struct Done {
    records: Vec<(u64, Vec<u8>)>,
    promises: Vec<Promise>,
    /// What a trim that was killed said.
    killed_trim: Option<u64>,
}

/// Carries out a script as one of the threads.
fn carry_out(log: &Log, thread: u8, script: &[Act], done: &Mutex<Done>, referee: &Referee) {
    THREAD.set(thread);
    let (mut number, mut last) = (0, None);
    for act in script {
        let promise = match *act {
            Append(len) | Put(len) => {
                let bytes = contents(thread, number, len);
                number += 1;
                let position = match act {
                    Append(_) => log.append(&bytes),
                    _ => log.put(&bytes),
                };
                let position = position.expect("there is room");
                last = Some(position);
                done.lock().expect("the list").records.push((position, bytes));
                if matches!(act, Append(_)) { Promise::There(position) } else { Promise::Nothing }
            }
            AppendBad => {
                // SAFETY: never read but by guarded copies, which find that it is not there.
                let bad = unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 100) };
                assert!(log.append_pieces(&[bad]).is_err());
                Promise::Nothing
            }
            Commit => {
                // What another thread has put, too.
                let all = done.lock().expect("the list").records.iter().map(|it| it.0).max();
                let position = all.max(last).expect("a record");
                log.commit(position).expect("committed");
                Promise::There(position)
            }
            Trim(number) => {
                let record = done.lock().expect("the list").records.get(number).map(|it| it.0);
                let position = record.unwrap_or_else(|| log.committed());
                log.trim(position).expect("trimmed");
                Promise::Gone(position)
            }
            KilledTrim(number) => {
                let position = done.lock().expect("the list").records[number].0;
                referee.kills.store(true, Ordering::Relaxed);
                // Where stores need no flush it comes to its end.
                let _ = catch_unwind(AssertUnwindSafe(|| log.trim(position)));
                referee.kills.store(false, Ordering::Relaxed);
                done.lock().expect("the list").killed_trim = Some(position);
                continue;
            }
            Reopen => return,
        };
        // Together: the order of the marks is that of the promises.
        let mut done = done.lock().expect("the list");
        done.promises.push(promise);
        referee.push(Event::Mark("returned".to_owned()));
    }
}

fn records_of(log: &Log) -> Vec<Vec<u8>> {
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

/// What a power cut left, judged after so many acts had returned.
fn judge(image: &[u8], done: &Done, returned: usize) -> Result<(), String> {
    let log = Log::open_on(Region::in_memory(image, None)).map_err(|error| error.to_string())?;
    let found = records_of(&log);
    let (mut there, mut gone, mut later) = (0, 0, Vec::new());
    let of = |position: u64| done.records.iter().filter(|record| record.0 < position).count();
    for (index, promise) in done.promises.iter().enumerate() {
        match *promise {
            Promise::There(position) if index < returned => there = there.max(of(position) + 1),
            Promise::Gone(position) if index < returned => gone = gone.max(of(position)),
            // A trim under way may have come.
            Promise::Gone(position) => later.push(of(position)),
            _ => {}
        }
    }
    let next = later.first().copied().unwrap_or(gone);
    let fits = [gone, next].into_iter().any(|first| {
        let end = first + found.len();
        let records = done.records.get(first..end);
        end >= there && records.is_some_and(|all| all.iter().map(|it| &it.1).eq(&found))
    });
    if !fits {
        let lengths: Vec<_> = found.iter().map(Vec::len).collect();
        return Err(format!(
            "{} records of lengths {lengths:?}; {there} of {} promised, {gone} trimmed",
            found.len(),
            done.records.len(),
        ));
    }
    // The next writer: nothing but its own record comes behind what is there.
    let next = b"the next writer's".to_vec();
    log.trim(log.committed()).map_err(|error| error.to_string())?;
    log.append(&next).map_err(|error| error.to_string())?;
    let again = Log::open_on(Region::in_memory(log.image(), None))
        .map_err(|error| format!("behind the next writer's: {error}"))?;
    let found = records_of(&again);
    if found == [next] { Ok(()) } else { Err(format!("behind the next writer's: {found:?}")) }
}

/// One run of two scripts, the first one held up at an event; gives the states, and whether there
/// is such an event.
fn run(scripts: [&[Act]; 2], pause_at: usize, class: Class) -> Result<(u64, bool), String> {
    let base = blank();
    let referee = Arc::new(Referee { pause_at, ..Referee::default() });
    let mut region = Region::in_memory(&base, Some(Arc::clone(&referee) as _));
    region.set_class(class);
    let mut log = Log::open_on(region).expect("a log");
    let done = Mutex::default();
    if scripts[1].is_empty() {
        for life in scripts[0].split_inclusive(|act| matches!(act, Reopen)) {
            carry_out(&log, 0, life, &done, &referee);
            if matches!(life.last(), Some(Reopen)) {
                log = Log::open_on(log.into_region().expect("its region")).expect("a log");
                let mut done = done.lock().expect("the list");
                let there = done.records.last().map(|it| Promise::There(it.0));
                let gone = done.killed_trim.take().map(Promise::Gone);
                for promise in [gone, there].into_iter().flatten() {
                    done.promises.push(promise);
                    referee.push(Event::Mark("reopened".to_owned()));
                }
            }
        }
    }
    std::thread::scope(|scope| {
        if scripts[1].is_empty() {
            return;
        }
        let first = scope.spawn(|| carry_out(&log, 0, scripts[0], &done, &referee));
        // It is held up, or has ended.
        while !first.is_finished() && referee.lock().count < pause_at {
            std::thread::yield_now();
        }
        carry_out(&log, 1, scripts[1], &done, &referee);
        referee.other_ended();
    });
    let mut done = done.into_inner().expect("the list");
    done.records.sort_by_key(|record| record.0);
    let (events, threads) = {
        let mut inner = referee.lock();
        (std::mem::take(&mut inner.events), std::mem::take(&mut inner.threads))
    };
    let mut tracker = Tracker::new(&base, &events, class);
    tracker.of_threads(&threads);
    let (mut seen, mut wrong) = (HashSet::new(), None);
    tracker.explore(0, &Limits::FULL, 1, &mut |state, returned| {
        if seen.insert((state.hash(), returned)) {
            let mut image = base.clone();
            for (line, bytes) in state.overlay() {
                image[line as usize..line as usize + 64].copy_from_slice(&bytes);
            }
            if let Err(found) = judge(&image, &done, returned) {
                let name = &state.name;
                wrong = Some(format!(
                    "{scripts:?}, {class}, held up at {pause_at}, after {returned} acts, {name}: \
                     {found}"
                ));
            }
        }
        wrong.is_none()
    });
    let count = referee.lock().count;
    wrong.map_or(Ok((seen.len() as u64, count >= pause_at)), Err)
}

fn explore(script: &[Act]) -> Result<u64, String> {
    let mut states = 0;
    for class in [Class::CacheLine, Class::Byte] {
        states += run([script, &[]], 0, class)?.0;
    }
    Ok(states)
}

/// The first one is held up at each of its events.
fn explore_two(first: &[Act], second: &[Act]) -> Result<u64, String> {
    let mut states = 0;
    for pause_at in 1.. {
        let (more, there) = run([first, second], pause_at, Class::CacheLine)?;
        states += more;
        if !there {
            break;
        }
    }
    Ok(states)
}

/// Records at the end, of one thread. Gives the number of states.
pub fn three_records() -> Result<u64, String> {
    Ok(explore(&[Append(48), Append(1), Append(1000)])?
        + explore(&[Put(48), Put(200), Commit, Put(7)])?
        + explore(&[Put(100), Append(48), Put(16), Put(300), Commit])?
        + explore(&[Append(48), Put(100), Put(7), Reopen, Append(48), Put(1), Reopen])?)
}

/// The last record before the end of the ring leaves each remainder there that it can leave.
pub fn around_the_end() -> Result<u64, String> {
    let mut states = 0;
    for (lines, short) in [(0, 0), (0, 7), (1, 0), (2, 60), (3, 1)] {
        // A key record, three of 1,000 bytes, and one up to the rest, which fills its last line or
        // not.
        let last = 4096 - 64 - 3 * 1024 - 64 * lines - 16 - short;
        let fill = [Append(1000), Append(1000), Append(1000), Append(last)];
        let appends = [Trim(2), Append(500), Put(48), Trim(4), Append(900)];
        states += explore(&[&fill[..], &appends[..]].concat())?;
        let puts = [Trim(3), Put(500), Put(48), Commit, Trim(9), Put(100)];
        states += explore(&[&fill[..], &puts[..]].concat())?;
        // The next process uses what a killed trim said was free.
        let killed = [KilledTrim(2), Reopen, Append(900), Append(40)];
        states += explore(&[&fill[..], &killed[..]].concat())?;
        // One commit of what lies before the end and behind the start.
        let around = [Trim(3), Put(last), Put(500), Put(48), Commit];
        states += explore(&[&fill[..3], &around[..]].concat())?;
    }
    Ok(states)
}

/// One thread inside the calls of another one.
pub fn two_threads() -> Result<u64, String> {
    let fill = [Append(1000), Append(1000), Append(1000)];
    Ok(explore_two(&[Append(48), Append(100)], &[Append(48)])?
        + explore_two(&[Put(48), Put(100), Commit], &[Put(48), Commit])?
        + explore_two(&[Append(48), AppendBad, AppendBad], &[Append(48)])?
        + explore_two(&[Append(48), Put(100)], &[Put(300), Put(8), Commit])?
        // Into the next lap, with its key.
        + explore_two(&[&fill[..], &[Trim(2), Append(900)]].concat(), &[Append(48)])?)
}

/// An append that fails, and one behind it.
pub fn a_gap() -> Result<u64, String> {
    explore(&[AppendBad, Append(8)])
}
