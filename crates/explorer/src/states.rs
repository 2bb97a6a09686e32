//! Generates the states that a power cut may leave of a traced run.
//!
//! The model of a cache-line machine: 8-byte stores are atomic; the stores to one line persist in
//! program order, as a prefix; different lines in any order; a dirty line may be evicted at any
//! time, flushed or not; a streamed store is pending until the next fence, and its words persist in
//! any order. After a fence everything that its thread flushed or streamed before it is durable,
//! with what the same lines held before that; a line that was not flushed stays pending for as long
//! as the trace goes on: so a forgotten flush shows at every later point. On a machine of class
//! `byte` the state is a prefix of the program's order.
//!
//! At each fence, at each mark, and now and then inside an epoch of many stores: nothing,
//! everything, each unit alone, all but one, pairs, the power set of up to six, prefixes of the
//! program's order, torn lines, and a seeded sample. A unit is a line, or the inside of a long
//! store that one call made (its first and its last line are units of their own; the sample still
//! takes its lines one by one).

use pmem::Class;
use pmem::trace::Event;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

/// Stores of an epoch after which samples are taken inside it.
const EPOCH_STEP: usize = 32;

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// The bytes of a line.
pub type Line = [u8; LINE as usize];

/// Lines that a state has different from the base image, by offset.
pub type Overlay = Vec<(u64, Line)>;

/// How many states to take at one point.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// All pairs up to this number of units, a sample of pairs beyond.
    pub pairs: usize,
    /// The power set up to this number of units.
    pub power_set: usize,
    /// Random states.
    pub samples: usize,
    /// Prefixes of the program's order.
    pub prefixes: usize,
    /// Besides nothing and everything, one state in so many, drawn by the seed.
    pub one_in: u64,
}

impl Limits {
    /// Enough to find what one operation can do wrong.
    pub const FULL: Self = Self { pairs: 10, power_set: 6, samples: 12, prefixes: 12, one_in: 1 };
    /// For runs that differ little from one explored in full.
    pub const SPARSE: Self = Self { pairs: 0, power_set: 3, samples: 3, prefixes: 4, one_in: 1 };
    /// For long sequences of calls, of which there are many.
    pub const THIN: Self = Self { one_in: 6, ..Self::SPARSE };
}

/// A part of a store event inside one line.
#[derive(Clone, Copy, Debug)]
struct Piece {
    event: u32,
    /// First byte in the event.
    from: u32,
    /// First byte in the line, and number of bytes.
    at: u8,
    len: u8,
    streamed: bool,
    /// The threads that have it in flight: those that streamed it, or flushed it since.
    by: u8,
}

impl Piece {
    /// 8-byte words it touches: the units of tearing.
    fn words(self) -> u32 {
        u32::from((self.at + self.len - 1) / 8 - self.at / 8 + 1)
    }
}

/// Which of a line's pending words survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// The first so many.
    First(u32),
    /// Of the cached words a prefix, of the streamed ones any: drawn from this seed.
    Scattered(u64),
}

/// Lines, and what of their pending words survives.
type Survivors = Vec<(u64, Keep)>;

/// One state, as told to a visitor.
pub struct State<'t> {
    tracker: &'t Tracker<'t>,
    survivors: Survivors,
    /// What survives of the pending stores, in words.
    pub name: String,
}

impl State<'_> {
    /// Equal for equal images.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let tracker = self.tracker;
        self.survivors.iter().fold(tracker.hash, |hash, &(line, keep)| {
            let after = line_hash(line, &tracker.with_pending(line, keep));
            hash ^ line_hash(line, &tracker.line(line)) ^ after
        })
    }

    /// The lines in which the image differs from the base; where one comes twice, its last bytes
    /// count.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        let tracker = self.tracker;
        let mut lines = Overlay::with_capacity(tracker.durable.len() + self.survivors.len());
        lines.extend(tracker.durable.iter().map(|(&line, &bytes)| (line, bytes)));
        let stored = |&(line, keep): &(u64, Keep)| (line, tracker.with_pending(line, keep));
        lines.extend(self.survivors.iter().map(stored));
        lines
    }

    /// The callers whose stores are lost in this state.
    #[must_use]
    pub fn lost(&self) -> Vec<String> {
        let kept: HashMap<u64, Keep> = self.survivors.iter().copied().collect();
        let mut lost = Vec::new();
        for (line, pieces) in &self.tracker.pending {
            let mut left = match kept.get(line) {
                Some(Keep::First(words)) => *words,
                Some(Keep::Scattered(_)) | None => 0,
            };
            for piece in pieces {
                if piece.words() > left {
                    let place = self.tracker.place(piece.event);
                    lost.push(format!("{place} (line {line:#x})"));
                }
                left = left.saturating_sub(piece.words());
            }
        }
        lost.sort();
        lost.dedup_by_key(|text| text.split(' ').next().unwrap_or_default().to_owned());
        lost
    }
}

/// Hashes the offset of a line, of which no adversary chooses any.
#[derive(Default)]
struct OfLine(u64);

impl Hasher for OfLine {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// Replays a trace.
pub struct Tracker<'e> {
    base: &'e [u8],
    events: &'e [Event],
    /// The thread of each event; missing ones are the first thread's.
    threads: &'e [u8],
    durable: HashMap<u64, Line, BuildHasherDefault<OfLine>>,
    hash: u64,
    pending: BTreeMap<u64, Vec<Piece>>,
    class: Class,
}

impl<'e> Tracker<'e> {
    /// Starts from an image; `events` are replayed by [`Tracker::skip`] and [`Tracker::explore`].
    #[must_use]
    pub fn new(base: &'e [u8], events: &'e [Event], class: Class) -> Self {
        let (durable, pending) = (HashMap::default(), BTreeMap::new());
        Self { base, events, threads: &[], durable, hash: 0, pending, class }
    }

    /// Says which thread each event is of: a fence is for what its own thread has in flight.
    pub fn of_threads(&mut self, threads: &'e [u8]) {
        self.threads = threads;
    }

    fn thread(&self, event: usize) -> u8 {
        self.threads.get(event).copied().unwrap_or(0)
    }

    /// Lines in which the durable state differs from the base already.
    pub fn start_with(&mut self, overlay: &[(u64, Line)]) {
        for &(line, bytes) in overlay {
            self.set_durable(line, bytes);
        }
    }

    fn place(&self, event: u32) -> String {
        match &self.events[event as usize] {
            Event::Store { at, .. } => caller(at),
            _ => String::new(),
        }
    }

    fn line(&self, line: u64) -> Line {
        if let Some(bytes) = self.durable.get(&line) {
            return *bytes;
        }
        let mut bytes = [0; LINE as usize];
        let end = self.base.len().min((line + LINE) as usize);
        let there = self.base.get(line as usize..end).unwrap_or_default();
        bytes[..there.len()].copy_from_slice(there);
        bytes
    }

    /// The line with some of its pending words stored.
    fn with_pending(&self, line: u64, keep: Keep) -> Line {
        let words = match keep {
            Keep::First(words) => words,
            Keep::Scattered(seed) => return self.scattered(line, seed),
        };
        let mut bytes = self.line(line);
        let mut left = words;
        for piece in self.pending.get(&line).into_iter().flatten() {
            let cut = if piece.words() <= left {
                piece.len
            } else {
                // The boundary behind the last whole word that survives.
                ((u32::from(piece.at / 8) + left) * 8).saturating_sub(u32::from(piece.at)) as u8
            };
            self.store_piece(&mut bytes, piece, cut.min(piece.len));
            left = left.saturating_sub(piece.words());
            if left == 0 {
                break;
            }
        }
        bytes
    }

    /// The line with a prefix of its cached words and any of its streamed words.
    fn scattered(&self, line: u64, seed: u64) -> Line {
        let mut bytes = self.line(line);
        let mut cached = mix(seed) % 10;
        for (index, piece) in self.pending.get(&line).into_iter().flatten().enumerate() {
            for word in piece.at / 8..(piece.at + piece.len).div_ceil(8) {
                let lost = mix(seed ^ u64::from(word) << 8 ^ index as u64).is_multiple_of(2);
                if piece.streamed && lost || !piece.streamed && cached == 0 {
                    continue;
                }
                cached -= u64::from(!piece.streamed);
                let from = piece.at.max(word * 8);
                let to = (piece.at + piece.len).min(word * 8 + 8);
                let part =
                    Piece { from: piece.from + u32::from(from - piece.at), at: from, ..*piece };
                self.store_piece(&mut bytes, &part, to - from);
            }
        }
        bytes
    }

    fn store_piece(&self, line: &mut Line, piece: &Piece, len: u8) {
        if let Event::Store { bytes, .. } = &self.events[piece.event as usize] {
            let from = piece.from as usize;
            let at = usize::from(piece.at);
            let len = usize::from(len);
            line[at..at + len].copy_from_slice(&bytes[from..from + len]);
        }
    }

    fn set_durable(&mut self, line: u64, bytes: Line) {
        self.hash ^= line_hash(line, &self.line(line)) ^ line_hash(line, &bytes);
        self.durable.insert(line, bytes);
    }

    fn store(&mut self, event: u32) {
        let Event::Store { off, bytes, streamed, .. } = &self.events[event as usize] else {
            return;
        };
        let mut done = 0;
        while done < bytes.len() as u64 {
            let at = off + done;
            let take = (LINE - at % LINE).min(bytes.len() as u64 - done);
            let piece = Piece {
                event,
                from: done as u32,
                at: (at % LINE) as u8,
                len: take as u8,
                streamed: *streamed,
                by: if *streamed { 1 << self.thread(event as usize) } else { 0 },
            };
            self.pending.entry(at / LINE * LINE).or_default().push(piece);
            done += take;
        }
    }

    fn flush(&mut self, line: u64, by: u8) {
        for piece in self.pending.get_mut(&line).into_iter().flatten() {
            piece.by |= 1 << by;
        }
    }

    fn fence(&mut self, by: u8) {
        let pending = std::mem::take(&mut self.pending);
        for (line, mut pieces) in pending {
            let in_flight = |piece: &Piece| piece.by >> by & 1 == 1;
            // Earlier stores to a line go with it.
            let count = pieces.iter().rposition(in_flight).map_or(0, |last| last + 1);
            let left = pieces.split_off(count);
            if !pieces.is_empty() {
                let mut bytes = self.line(line);
                for piece in &pieces {
                    self.store_piece(&mut bytes, piece, piece.len);
                }
                self.set_durable(line, bytes);
            }
            if !left.is_empty() {
                self.pending.insert(line, left);
            }
        }
    }

    /// Everything pending becomes durable: on class `byte`, after each store.
    fn make_durable(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        for (line, pieces) in pending {
            let mut bytes = self.line(line);
            for piece in &pieces {
                self.store_piece(&mut bytes, piece, piece.len);
            }
            self.set_durable(line, bytes);
        }
    }

    fn step(&mut self, event: usize) {
        match &self.events[event] {
            Event::Store { .. } => self.store(event as u32),
            Event::Flush { line, .. } => self.flush(*line, self.thread(event)),
            Event::Fence { .. } => self.fence(self.thread(event)),
            Event::Mark(_) => {}
        }
        if self.class == Class::Byte {
            self.make_durable();
        }
    }

    /// Replays the first events, as far as `end`, without looking at states.
    pub fn skip(&mut self, end: usize) {
        for event in 0..end {
            self.step(event);
        }
    }

    /// Replays the events from `start` on and tells `visit` of the states at each point, with the
    /// number of marks passed. It gives `false` to stop.
    pub fn explore(
        &mut self,
        start: usize,
        limits: &Limits,
        seed: u64,
        visit: &mut dyn FnMut(&State<'_>, usize) -> bool,
    ) {
        let (mut marks, mut told_count, mut epoch) = (0, 0_u64, 0_usize);
        for event in start..self.events.len() {
            epoch =
                if matches!(self.events[event], Event::Store { .. }) { epoch + 1 } else { epoch };
            let inside = epoch > 0 && epoch.is_multiple_of(EPOCH_STEP);
            let point = match &self.events[event] {
                Event::Fence { at } => format!("fence@{}", caller(at)),
                Event::Mark(text) => {
                    marks += 1;
                    text.clone()
                }
                Event::Store { at, .. } if self.class == Class::Byte => {
                    format!("store@{}", caller(at))
                }
                _ => String::new(),
            };
            let point = format!("{event}:{point}");
            let mut go_on = true;
            let mut told = |state: &State<'_>| {
                told_count += 1;
                let always =
                    state.name.ends_with("/nothing") || state.name.ends_with("/everything");
                if always || mix(seed ^ told_count << 20).is_multiple_of(limits.one_in) {
                    go_on = go_on && visit(state, marks);
                }
            };
            match (&self.events[event], self.class) {
                (Event::Store { .. }, Class::Byte) => self.inside_store(event, &point, &mut told),
                (Event::Fence { .. }, Class::Byte) => {}
                (Event::Fence { .. } | Event::Mark(_), _) => {
                    epoch = 0;
                    self.at_point(&point, limits, seed ^ event as u64, &mut told);
                }
                (Event::Store { .. }, _) if inside => {
                    let mut tell = |what: &str, kept: Survivors| {
                        self.tell(&point, what, kept, &mut told);
                    };
                    self.samples(limits.samples, seed ^ event as u64, &mut tell);
                }
                _ => {}
            }
            if !go_on {
                return;
            }
            self.step(event);
        }
    }

    /// The states before and inside one store, in the program's order.
    fn inside_store(&mut self, event: usize, point: &str, told: &mut dyn FnMut(&State<'_>)) {
        self.tell(point, "before", Vec::new(), told);
        self.store(event as u32);
        let all = self.everything();
        let words: u32 = all.iter().map(|&(_, words)| words).sum();
        let cuts = [words / 2, words - 1];
        for cut in cuts.into_iter().filter(|&cut| cut > 0 && cut < words) {
            let mut left = cut;
            let mut kept = Vec::new();
            for &(line, words) in &all {
                kept.push((line, Keep::First(words.min(left))));
                left -= words.min(left);
            }
            self.tell(point, &format!("word {cut}"), kept, told);
        }
        self.pending.clear();
    }

    fn tell(
        &self,
        point: &str,
        what: &str,
        mut survivors: Survivors,
        told: &mut dyn FnMut(&State<'_>),
    ) {
        survivors.retain(|&(_, keep)| keep != Keep::First(0));
        let name = format!("{point}/{what}");
        told(&State { tracker: self, survivors, name });
    }

    /// All pending lines with all their words.
    fn everything(&self) -> Vec<(u64, u32)> {
        let words = |pieces: &Vec<Piece>| pieces.iter().map(|piece| piece.words()).sum();
        self.pending.iter().map(|(&line, pieces)| (line, words(pieces))).collect()
    }

    /// Pending lines in units: runs of lines of one long store count as one, but for their ends.
    fn units(&self) -> Vec<Vec<(u64, u32)>> {
        let all = self.everything();
        let only_event = |line: u64| match self.pending.get(&line).map(Vec::as_slice) {
            Some([piece]) => Some(piece.event),
            _ => None,
        };
        let mut units: Vec<Vec<(u64, u32)>> = Vec::new();
        for (index, &(line, words)) in all.iter().enumerate() {
            let mine = only_event(line);
            let beside = |other: usize| {
                let same = |&(line, _): &(u64, u32)| only_event(line) == mine;
                mine.is_some() && all.get(other).is_some_and(same)
            };
            let inside = index >= 2 && beside(index - 1) && beside(index + 1) && beside(index - 2);
            match units.last_mut() {
                Some(unit) if inside => unit.push((line, words)),
                _ => units.push(vec![(line, words)]),
            }
        }
        units
    }

    fn at_point(&self, point: &str, limits: &Limits, seed: u64, told: &mut dyn FnMut(&State<'_>)) {
        let units = self.units();
        let count = units.len();
        let mut tell = |what: &str, kept: Survivors| self.tell(point, what, kept, told);
        let subset = |members: &dyn Fn(usize) -> bool| -> Survivors {
            let chosen = units.iter().enumerate().filter(|(index, _)| members(*index));
            let lines = chosen.flat_map(|(_, unit)| unit.iter());
            lines.map(|&(line, words)| (line, Keep::First(words))).collect()
        };
        tell("nothing", Vec::new());
        tell("everything", subset(&|_| true));
        if count <= limits.power_set {
            for set in 1..(1_usize << count).saturating_sub(1) {
                tell(&format!("set {set:b}"), subset(&|index| set >> index & 1 == 1));
            }
        } else {
            for one in 0..count {
                tell(&format!("alone {one}"), subset(&|index| index == one));
                tell(&format!("all but {one}"), subset(&|index| index != one));
            }
            pairs(count, limits, seed, &mut |one, two| {
                tell(&format!("pair {one} {two}"), subset(&|index| index == one || index == two));
            });
        }
        for (index, unit) in units.iter().enumerate() {
            let [(line, words)] = unit[..] else { continue };
            if words < 2 {
                continue;
            }
            let streamed = self.pending[&line].iter().any(|piece| piece.streamed);
            let cut = 1 + mix(seed ^ line) as u32 % (words - 1);
            let prefix = (Keep::First(cut), true);
            let scattered = (Keep::Scattered(seed ^ line), streamed);
            for (keep, _) in [prefix, scattered].into_iter().filter(|(_, legal)| *legal) {
                tell(&format!("{index} torn: {keep:?}"), vec![(line, keep)]);
                let mut others = subset(&|other| other != index);
                others.push((line, keep));
                tell(&format!("all, {index} torn: {keep:?}"), others);
            }
        }
        self.prefixes(limits.prefixes, &mut tell);
        self.samples(limits.samples, seed, &mut tell);
    }

    /// What a machine that evicts in program order would leave: a legal state of every class.
    fn prefixes(&self, most: usize, tell: &mut dyn FnMut(&str, Survivors)) {
        let mut steps: Vec<u32> =
            self.pending.values().flatten().map(|piece| piece.event).collect();
        steps.sort_unstable();
        steps.dedup();
        let stride = steps.len().div_ceil(most.max(1)).max(1);
        for &step in steps.iter().skip(1).step_by(stride) {
            let kept = self.pending.iter().map(|(&line, pieces)| {
                let before = pieces.iter().take_while(|piece| piece.event < step);
                (line, Keep::First(before.map(|piece| piece.words()).sum()))
            });
            tell(&format!("program order to {step}"), kept.collect());
        }
    }

    fn samples(&self, count: usize, seed: u64, tell: &mut dyn FnMut(&str, Survivors)) {
        let all = self.everything();
        if all.len() < 2 {
            return;
        }
        for draw in 0..count as u64 {
            let random = |line: u64| mix(seed ^ mix(line ^ draw << 48));
            let kept = all.iter().map(|&(line, words)| match random(line) % 4 {
                0 => (line, Keep::First(0)),
                1 if words > 1 => (line, Keep::Scattered(random(line) >> 8)),
                _ if random(draw) % 2 == random(line) >> 60 & 1 => (line, Keep::First(words)),
                _ => (line, Keep::First(0)),
            });
            tell(&format!("sample {draw}"), kept.collect());
        }
    }
}

/// All pairs of `count`, or a sample of them.
fn pairs(count: usize, limits: &Limits, seed: u64, pair: &mut dyn FnMut(usize, usize)) {
    if count <= limits.pairs {
        for one in 0..count {
            (one + 1..count).for_each(|two| pair(one, two));
        }
    } else if limits.pairs > 0 {
        for draw in 0..2 * limits.pairs as u64 {
            let random = mix(seed ^ draw << 32);
            let (one, two) = (random as usize % count, (random >> 32) as usize % count);
            pair(one, two);
        }
    }
}

fn caller(at: &Location<'_>) -> String {
    let file = at.file().rsplit('/').next().unwrap_or_default();
    format!("{file}:{}", at.line())
}

/// A well-mixed number.
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn line_hash(line: u64, bytes: &Line) -> u64 {
    bytes.chunks_exact(8).fold(mix(line), |hash, word| {
        mix(hash ^ u64::from_le_bytes(word.try_into().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn store(off: u64, bytes: &[u8], streamed: bool) -> Event {
        Event::Store { off, bytes: bytes.to_vec(), streamed, at: Location::caller() }
    }

    fn flush(line: u64) -> Event {
        Event::Flush { line, at: Location::caller() }
    }

    fn fence() -> Event {
        Event::Fence { at: Location::caller() }
    }

    /// All images of `length` bytes that are found, by number of marks passed.
    fn images(events: &[Event], class: Class, length: usize) -> BTreeSet<(usize, Vec<u8>)> {
        let base = vec![0; length];
        let mut tracker = Tracker::new(&base, events, class);
        let mut found = BTreeSet::new();
        tracker.explore(0, &Limits::FULL, 1, &mut |state, marks| {
            let mut image = base.clone();
            for (line, bytes) in state.overlay() {
                image[line as usize..line as usize + 64].copy_from_slice(&bytes);
            }
            found.insert((marks, image));
            true
        });
        found
    }

    fn image(length: usize, bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut image = vec![0; length];
        for &(at, byte) in bytes {
            image[at..at + 8].fill(byte);
        }
        image
    }

    #[test]
    fn lines_persist_in_any_order_and_words_of_a_line_as_a_prefix() {
        let events = [
            store(0, &[1; 8], false),
            store(64, &[2; 8], false),
            store(8, &[3; 8], false),
            fence(),
        ];
        let found = images(&events, Class::CacheLine, 128);
        let legal = [
            image(128, &[]),
            image(128, &[(0, 1)]),
            image(128, &[(64, 2)]),
            image(128, &[(0, 1), (64, 2)]),
            image(128, &[(0, 1), (8, 3)]),
            image(128, &[(0, 1), (8, 3), (64, 2)]),
        ];
        let legal: BTreeSet<_> = legal.into_iter().map(|image| (0, image)).collect();
        assert_eq!(found, legal);
    }

    #[test]
    fn a_fence_makes_only_flushed_and_streamed_stores_durable() {
        let events = [
            store(0, &[1; 8], false),
            flush(0),
            store(64, &[2; 8], false),
            store(128, &[3; 64], true),
            fence(),
            Event::Mark("end".into()),
        ];
        let found = images(&events, Class::CacheLine, 192);
        let mut durable = image(192, &[(0, 1)]);
        durable[128..].fill(3);
        let mut both = durable.clone();
        both[64..72].fill(2);
        let after: Vec<_> = found.iter().filter(|(marks, _)| *marks == 1).collect();
        assert_eq!(after, [&(1, durable), &(1, both)]);
    }

    #[test]
    fn a_fence_is_for_its_own_thread() {
        let events = [
            store(0, &[1; 8], false),
            flush(0),
            store(64, &[2; 64], true),
            fence(),
            Event::Mark("end".into()),
        ];
        let base = vec![0; 128];
        let mut tracker = Tracker::new(&base, &events, Class::CacheLine);
        tracker.of_threads(&[0, 0, 1, 1, 1]);
        tracker.skip(4);
        assert_eq!(tracker.pending.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(tracker.line(64), [2; 64]);
    }

    #[test]
    fn what_a_line_held_before_goes_with_it() {
        let events = [
            store(0, &[1; 8], false),
            store(0, &[2; 64], true),
            fence(),
            Event::Mark("end".into()),
        ];
        let found = images(&events, Class::CacheLine, 64);
        let after: Vec<_> = found.iter().filter(|(marks, _)| *marks == 1).collect();
        assert_eq!(after, [&(1, vec![2; 64])]);
        let mut tracker = Tracker::new(&[], &events, Class::CacheLine);
        tracker.skip(3);
        assert!(tracker.pending.is_empty());
        assert_eq!(tracker.line(0), [2; 64]);
    }

    #[test]
    fn a_byte_machine_leaves_prefixes() {
        let events = [
            store(64, &[1; 8], false),
            store(0, &[2; 8], false),
            fence(),
            Event::Mark("end".into()),
        ];
        let found = images(&events, Class::Byte, 128);
        let legal = [
            (0, image(128, &[])),
            (0, image(128, &[(64, 1)])),
            (1, image(128, &[(64, 1), (0, 2)])),
        ];
        assert_eq!(found, legal.into_iter().collect());
    }

    #[test]
    fn long_stores_are_few_units() {
        let events = [store(0, &[1; 4096], true), store(8192, &[2; 8], false), fence()];
        let mut tracker = Tracker::new(&[], &events, Class::CacheLine);
        tracker.skip(2);
        assert!(tracker.units().len() <= 5, "{:?}", tracker.units().len());
        let torn = images(&events, Class::CacheLine, 12_288);
        assert!(torn.len() > 20);
    }
}
