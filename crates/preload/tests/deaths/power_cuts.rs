//! The second engine and a power cut: every store, flush, fence and system call of a traced program
//! is recorded, and what a power cut could leave of its files between any two of them is recovered
//! and judged.
//!
//! The machine's model is the crash explorer's: stores to one line persist in the program's order,
//! as a prefix; a streamed line by its words, in any order; lines among each other in any order;
//! any line at any time, flushed or not; after a fence all that was flushed or streamed before it.
//! What the kernel does in a system call is durable when it returns. States at each fence, system
//! call and mark: nothing of what is pending, everything, each line alone, all but one, torn lines
//! (of the log without each of their words) and a seeded sample.
//!
//! The same states are taken with a fault built in, as a wrong program or a wrong recovery would
//! leave or believe them: each fault must be found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::{TestDir, compile, library};
use crate::tracer::{Event, Kind, OneProcessor, Touched};
use crate::walk::Walk;
use crate::{Random, one_of, text};

const LINE: usize = 64;
/// Bytes of a file that are looked at: the first lane of the log's data is larger, and mostly
/// unused.
const FILE_MAX: usize = 1 << 20;
/// States of a sample at one point.
const SAMPLE: usize = 4;

type Line = [u8; LINE];
type LineAddress = (usize, usize);

/// What a wrong program leaves, or a wrong recovery believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Bytes and their entry are fenced together.
    NoFenceBeforeEntry,
    /// Bytes and their length are fenced together.
    NoFenceBeforeLength,
    /// Staged bytes are never flushed.
    StagedNotFlushed,
    /// Records are never flushed.
    RecordNotFlushed,
    /// Entries are never flushed.
    EntryNotFlushed,
    /// The bytes of an overwrite that is logged are never flushed.
    LaneNotFlushed,
    /// Torn entries are believed.
    CheckNotAsked,
}

/// Faults, and the mode in which each shows.
const FAULTS: [(Fault, &str); 7] = [
    (Fault::NoFenceBeforeEntry, "strict"),
    (Fault::NoFenceBeforeLength, "sync"),
    (Fault::StagedNotFlushed, "sync"),
    (Fault::RecordNotFlushed, "sync"),
    (Fault::EntryNotFlushed, "strict"),
    (Fault::LaneNotFlushed, "strict"),
    (Fault::CheckNotAsked, "strict"),
];

/// Something that happened. Files are told by their number.
enum MachineEvent {
    /// A line has these bytes now.
    Store {
        spot: LineAddress,
        line: Line,
        streamed: bool,
    },
    Flush(LineAddress),
    Fence,
    /// The kernel has changed files: what they are now, or that they are gone.
    Kernel(Vec<(usize, Option<Vec<u8>>)>),
    /// A call of the program begins, or the last one has returned.
    Mark,
}

/// A run of the program.
struct Run {
    names: Vec<String>,
    /// What the files held at first.
    base: BTreeMap<usize, Vec<u8>>,
    happened: Vec<MachineEvent>,
}

/// Watches the files of a directory.
struct Files<'a> {
    directory: &'a Path,
    names: Vec<String>,
    now: BTreeMap<usize, Vec<u8>>,
}

fn read(directory: &Path, name: &str) -> Option<Vec<u8>> {
    let file = File::open(directory.join(name)).ok()?;
    let length = file.metadata().ok()?.len().min(FILE_MAX as u64) as usize;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

impl Files<'_> {
    fn number(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.iter().position(|known| known == name) {
            return at;
        }
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    fn names(&self) -> Vec<String> {
        let hidden = std::fs::read_dir(self.directory.join(split::HOME_NAME));
        let hidden = hidden.into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            (name != "alive").then(|| format!("{}/{name}", split::HOME_NAME))
        });
        hidden.chain(["f".to_owned()]).collect()
    }

    /// What changed since it was looked at last.
    fn changes(&mut self) -> Vec<(usize, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let names = self.names();
        for name in &names {
            let number = self.number(name);
            // The kernel does not touch those after they were made.
            let quiet = name.contains("/records") || name.contains("/data.");
            if quiet && self.now.contains_key(&number) {
                continue;
            }
            let bytes = read(self.directory, name);
            if bytes.as_ref() != self.now.get(&number) {
                found.push((number, bytes));
            }
        }
        for (number, name) in self.names.iter().enumerate() {
            if self.now.contains_key(&number) && !names.contains(name) {
                found.push((number, None));
            }
        }
        for (number, bytes) in &found {
            match bytes {
                Some(bytes) => self.now.insert(*number, bytes.clone()),
                None => self.now.remove(number),
            };
        }
        found
    }

    /// The lines of a range, as they are now.
    fn stored(&mut self, touched: &Touched) -> Vec<(LineAddress, Line)> {
        let Ok(name) = touched.file.strip_prefix(self.directory) else { return Vec::new() };
        let name = name.to_string_lossy().into_owned();
        let number = self.number(&name);
        let mut found = Vec::new();
        let (first, end) =
            (touched.offset as usize / LINE, touched.offset as usize + touched.length);
        let Ok(file) = File::open(self.directory.join(&name)) else { return found };
        for at in (first * LINE..end).step_by(LINE).filter(|at| at + LINE <= FILE_MAX) {
            let mut line = [0; LINE];
            // The last line of a file may be short.
            let _ = file.read_at(&mut line, at as u64);
            let known = self.now.entry(number).or_default();
            let (start, kept) = (at.min(known.len()), known.len().saturating_sub(at).min(LINE));
            known[start..start + kept].copy_from_slice(&line[..kept]);
            found.push(((number, at), line));
        }
        found
    }
}

/// Runs the program from its first mark to its last.
fn record(walk: &mut Walk, directory: &Path, calls: usize) -> io::Result<Run> {
    let _together = OneProcessor::new(&walk.tracee)?;
    let mut files = Files { directory, names: Vec::new(), now: BTreeMap::new() };
    files.changes();
    let base = files.now.clone();
    let mut happened = vec![MachineEvent::Mark];
    let (mut marks, mut past) = (0, false);
    while marks < calls {
        match walk.tracee.step_to_point(past)? {
            Event::Mark => {
                marks += 1;
                happened.push(MachineEvent::Mark);
                past = false;
            }
            Event::Point(kind) => {
                past = true;
                let touched = walk.tracee.touched()?;
                match kind {
                    Kind::Fence => happened.push(MachineEvent::Fence),
                    Kind::Flush => {
                        let spots = touched.iter().flat_map(|touched| files.stored(touched));
                        happened.extend(spots.map(|(spot, _)| MachineEvent::Flush(spot)));
                    }
                    Kind::Call => {
                        walk.tracee.step_over()?;
                        past = false;
                        let changes = files.changes();
                        if !changes.is_empty() {
                            happened.push(MachineEvent::Kernel(changes));
                        }
                    }
                    Kind::Store | Kind::Locked => {
                        walk.tracee.step_over()?;
                        past = false;
                        for touched in &touched {
                            let streamed = touched.streamed;
                            let lines = files.stored(touched).into_iter();
                            happened.extend(lines.map(|(spot, line)| MachineEvent::Store {
                                spot,
                                line,
                                streamed,
                            }));
                        }
                    }
                }
            }
            Event::Ended => return Err(io::Error::other("it ended in its calls")),
            _ => past = false,
        }
    }
    Ok(Run { names: files.names, base, happened })
}

/// The machine's memory.
#[derive(Default)]
struct Machine {
    durable: BTreeMap<usize, Vec<u8>>,
    /// What each line held after each store that may be lost, and whether that is in flight.
    pending: BTreeMap<LineAddress, Vec<(Line, bool, bool)>>,
    /// Files whose lines are torn in every way but by one word.
    logs: BTreeSet<usize>,
}

/// How many of a line's stores persist; and with them some words of the next one.
type PersistedStores = BTreeMap<LineAddress, (usize, u8)>;

impl Machine {
    fn line(&self, (file, at): LineAddress) -> Line {
        let mut line = [0; LINE];
        if let Some(bytes) = self.durable.get(&file) {
            let there = bytes.get(at..bytes.len().min(at + LINE)).unwrap_or_default();
            line[..there.len()].copy_from_slice(there);
        }
        line
    }

    fn put(durable: &mut BTreeMap<usize, Vec<u8>>, (file, at): LineAddress, line: &Line) {
        if let Some(bytes) = durable.get_mut(&file) {
            let (at, kept) = (at.min(bytes.len()), bytes.len().saturating_sub(at).min(LINE));
            bytes[at..at + kept].copy_from_slice(&line[..kept]);
        }
    }

    fn fence(&mut self) {
        let Self { durable, pending, .. } = self;
        for (&spot, stores) in pending.iter_mut() {
            if let Some(last) = stores.iter().rposition(|&(_, _, in_flight)| in_flight) {
                Self::put(durable, spot, &stores[last].0);
                stores.drain(..=last);
            }
        }
        pending.retain(|_, stores| !stores.is_empty());
    }

    fn image(&self, kept: &PersistedStores) -> BTreeMap<usize, Vec<u8>> {
        let mut image = self.durable.clone();
        for (&spot, &(count, words)) in kept {
            let stores = &self.pending[&spot];
            let mut line = if count == 0 { self.line(spot) } else { stores[count - 1].0 };
            if let Some((next, ..)) = stores.get(count) {
                for word in (0..8).filter(|word| words >> word & 1 == 1) {
                    line[word * 8..word * 8 + 8].copy_from_slice(&next[word * 8..word * 8 + 8]);
                }
            }
            Self::put(&mut image, spot, &line);
        }
        image
    }

    /// The states at a point.
    fn states(&self, random: &mut Random) -> Vec<PersistedStores> {
        let whole = |spot: &LineAddress| (*spot, (self.pending[spot].len(), 0));
        let all: Vec<LineAddress> = self.pending.keys().copied().collect();
        let everything: PersistedStores = all.iter().map(whole).collect();
        let mut states = vec![PersistedStores::new(), everything.clone()];
        // Long copies are many lines of one kind: of these a few.
        let some = all.iter().filter(|_| all.len() <= 24 || random.below(all.len() as u64) < 24);
        for spot in some.collect::<Vec<_>>() {
            states.push(PersistedStores::from([whole(spot)]));
            let mut without = everything.clone();
            without.remove(spot);
            states.push(without);
            let stores = &self.pending[spot];
            let torn = random.below(stores.len() as u64) as usize;
            if stores[torn].1 && self.logs.contains(&spot.0) {
                for word in 0..8 {
                    let mut but_a_word = everything.clone();
                    but_a_word.insert(*spot, (torn, !(1 << word)));
                    states.push(but_a_word);
                }
            }
            if stores[torn].1 {
                states.push(PersistedStores::from([(*spot, (torn, random.below(256) as u8))]));
                let mut but_torn = everything.clone();
                but_torn.insert(*spot, (torn, random.below(256) as u8));
                states.push(but_torn);
            } else {
                states.push(PersistedStores::from([(*spot, (torn, 0))]));
            }
        }
        for _ in 0..SAMPLE {
            let some = all.iter().filter(|_| random.below(2) == 0).collect::<Vec<_>>();
            let cut = |spot: &LineAddress, random: &mut Random| {
                (*spot, (random.below(self.pending[spot].len() as u64 + 1) as usize, 0))
            };
            states.push(some.into_iter().map(|spot| cut(spot, random)).collect());
        }
        states
    }
}

/// The checksum of a log's entries, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 }
        })
    })
}

/// Gives every entry of a log the checksum of what it says.
fn believe(log: &mut [u8]) {
    for line in log.chunks_exact_mut(LINE).skip(1).filter(|line| line[8] != 0) {
        let check = crc32c(&line[..56]);
        line[56..60].copy_from_slice(&check.to_le_bytes());
    }
}

struct Judge<'a> {
    ground: &'a RecordedProgram,
    run: &'a Run,
    fault: Option<Fault>,
    machine: Machine,
    random: Random,
    seen: BTreeSet<u64>,
    /// Of a wrong program every state is looked at, of the right one a quarter, by rotation.
    whole: bool,
    states: usize,
    failure: Option<String>,
}

impl Judge<'_> {
    fn is(&self, file: usize, kind: &str) -> bool {
        self.run.names[file].contains(kind)
    }

    /// Whether a fault lets this line never be flushed.
    fn is_forgotten(&self, file: usize) -> bool {
        match self.fault {
            Some(Fault::StagedNotFlushed) => self.is(file, "/stage."),
            Some(Fault::RecordNotFlushed) => self.is(file, "/records"),
            Some(Fault::EntryNotFlushed) => self.is(file, "/log."),
            Some(Fault::LaneNotFlushed) => self.is(file, "/data."),
            _ => false,
        }
    }

    /// Whether a fault leaves this fence out.
    fn is_left_out(&self, at: usize) -> bool {
        let kind = match self.fault {
            Some(Fault::NoFenceBeforeEntry) => "/log.",
            Some(Fault::NoFenceBeforeLength) => "/records",
            _ => return false,
        };
        let mut after = self.run.happened[at + 1..].iter();
        let next = after.find_map(|happened| match happened {
            MachineEvent::Store { spot, .. } => Some(self.is(spot.0, kind)),
            MachineEvent::Mark => Some(false),
            _ => None,
        });
        next.unwrap_or(false)
    }

    fn all(&mut self) {
        self.machine.durable = self.run.base.clone();
        let files = 0..self.run.names.len();
        self.machine.logs = files.filter(|&file| self.is(file, "/log.")).collect();
        let mut marks = 0;
        for (at, happened) in self.run.happened.iter().enumerate() {
            if matches!(
                happened,
                MachineEvent::Fence | MachineEvent::Kernel(_) | MachineEvent::Mark
            ) {
                // Between calls nothing is under way.
                let returned = matches!(happened, MachineEvent::Mark);
                self.point(marks, returned);
                if self.failure.is_some() {
                    return;
                }
            }
            match happened {
                MachineEvent::Store { spot, line, streamed } => {
                    let in_flight = *streamed && !self.is_forgotten(spot.0);
                    let stores = self.machine.pending.entry(*spot).or_default();
                    stores.push((*line, *streamed, in_flight));
                }
                MachineEvent::Flush(spot) if !self.is_forgotten(spot.0) => {
                    for store in self.machine.pending.get_mut(spot).into_iter().flatten() {
                        store.2 = true;
                    }
                }
                MachineEvent::Flush(_) => {}
                MachineEvent::Fence if self.is_left_out(at) => {}
                MachineEvent::Fence => self.machine.fence(),
                MachineEvent::Kernel(changes) => {
                    for (file, bytes) in changes {
                        self.machine.pending.retain(|spot, _| spot.0 != *file);
                        match bytes {
                            Some(bytes) => self.machine.durable.insert(*file, bytes.clone()),
                            None => self.machine.durable.remove(file),
                        };
                    }
                }
                MachineEvent::Mark => marks += 1,
            }
        }
    }

    /// Judges the states at a point, after so many marks.
    fn point(&mut self, marks: usize, returned: bool) {
        for kept in self.machine.states(&mut self.random) {
            let mut image = self.machine.image(&kept);
            if self.fault == Some(Fault::CheckNotAsked) {
                for (&file, bytes) in &mut image {
                    if self.run.names[file].contains("/log.") {
                        believe(bytes);
                    }
                }
            }
            let mut hasher = DefaultHasher::new();
            (&image, marks, returned).hash(&mut hasher);
            if !self.seen.insert(hasher.finish()) {
                continue;
            }
            self.states += 1;
            let state = format!("power/{}/{}", self.ground.mode, self.states);
            if !self.whole && !rotation::chosen(&state, 4) {
                continue;
            }
            self.ground.put_back(self.run, &image);
            let judged = self.ground.recovered(marks, returned);
            if let Err(error) = judged {
                let lines = kept.len();
                self.failure = Some(format!("call {marks}, {lines} lines persist: {error}"));
                return;
            }
        }
    }
}

struct RecordedProgram {
    _place: TestDir,
    directory: std::path::PathBuf,
    mode: &'static str,
    /// What the file holds before each call, and after the last.
    models: Vec<Vec<u8>>,
}

/// What the program's file holds before each of its calls, and after the last one.
fn models() -> Vec<Vec<u8>> {
    let mut file: Vec<u8> = (b'a'..=b'f').flat_map(|letter| [letter; 3000]).collect();
    let mut models = vec![file.clone()];
    let mut step = |file: &Vec<u8>| models.push(file.clone());
    file.extend([b'A'; 5000]);
    step(&file);
    file[1000..4000].fill(b'B');
    step(&file);
    file.extend([b'D'; 300]);
    step(&file);
    file[15000..17000].fill(b'C');
    step(&file);
    file.extend([b'E'; 6000]);
    step(&file);
    // The fsync.
    step(&file);
    file.extend([b'F'; 100]);
    step(&file);
    // The close.
    step(&file);
    models
}

impl RecordedProgram {
    /// The program, recorded and killed.
    fn new(mode: &'static str) -> io::Result<(Self, Run)> {
        let place = TestDir::new(&format!("deaths-power-{mode}"));
        let program = place.0.join("staged");
        compile("staged.c", &program, &["-O1"]);
        let directory = place.0.join("files");
        std::fs::create_dir_all(&directory)?;
        let copying = if std::is_x86_feature_detected!("avx2") { "avx2" } else { "sse2" };
        let mut command = Command::new(&program);
        command
            .args([directory.as_os_str(), "power".as_ref()])
            .env("LD_PRELOAD", library())
            .env("SOLERA_SPLIT", &directory)
            .env("SOLERA_MODE", mode)
            .env("SOLERA_SPLIT_PATIENCE", "0")
            .env("SOLERA_SPLIT_LOG", "4096")
            .env("SOLERA_COPY", copying)
            .env("SOLERA_EMULATE", "1");
        let mut walk = Walk::start(&mut command, &directory)?;
        if !walk.reach_mark()? {
            return Err(io::Error::other("it ended before its calls"));
        }
        let models = models();
        let run = record(&mut walk, &directory, models.len() - 1)?;
        walk.kill()?;
        Ok((Self { _place: place, directory, mode, models }, run))
    }

    /// Makes the files what a power cut left.
    fn put_back(&self, run: &Run, image: &BTreeMap<usize, Vec<u8>>) {
        for (number, name) in run.names.iter().enumerate() {
            let path = self.directory.join(name);
            let Some(bytes) = image.get(&number) else {
                // One that was not there then, or no more.
                let _ = std::fs::remove_file(&path);
                continue;
            };
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(false).open(&path);
            let file = file.expect("a file of the program's");
            let lanes = name.contains("/data.");
            file.set_len(0).expect("emptied");
            file.set_len(if lanes { 128 << 20 } else { bytes.len() as u64 }).expect("its length");
            file.write_all_at(bytes, 0).expect("its bytes");
        }
    }

    /// Judges what is there after so many marks; `returned`: the call that the last one began is
    /// over.
    fn recovered(&self, marks: usize, returned: bool) -> Result<(), String> {
        for _ in 0..2 {
            split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        }
        let found = std::fs::read(self.directory.join("f")).map_err(text)?;
        let after = &self.models[marks];
        let before = &self.models[marks.saturating_sub(1)];
        let is = |model: &Vec<u8>| found == *model;
        let torn = self.mode == "sync"
            && before.len() == after.len()
            && found.len() == after.len()
            && found.iter().zip(before.iter().zip(after)).all(|(it, (b, a))| it == b || it == a);
        let right = if returned { is(after) } else { is(before) || is(after) || torn };
        if right {
            return Ok(());
        }
        let place = found.iter().zip(after).position(|(found, after)| found != after);
        let (long, wanted) = (found.len(), after.len());
        Err(format!("{long} bytes of {wanted}, wrong from {place:?} on; returned: {returned}"))
    }

    fn judge(&self, run: &Run, fault: Option<Fault>) -> (usize, Option<String>) {
        let mut judge = Judge {
            ground: self,
            run,
            fault,
            machine: Machine::default(),
            random: Random(0x9E6C_63D0_876A_46AD),
            seen: BTreeSet::new(),
            whole: fault.is_some(),
            states: 0,
            failure: None,
        };
        judge.all();
        (judge.states, judge.failure)
    }
}

#[test]
fn power_cuts_beneath() {
    for &mode in one_of("power", &["sync", "strict"]) {
        let (ground, run) = RecordedProgram::new(mode).expect("a run");
        let (states, failure) = ground.judge(&run, None);
        eprintln!("{mode}: {} events, {states} states after power cuts", run.happened.len());
        assert_eq!(failure, None, "{mode}");
        assert!(states > 300, "{mode}: only {states} states");
        for (fault, _) in FAULTS.iter().filter(|(_, shows_in)| *shows_in == mode) {
            // One that is found is found in the same state each time.
            if !rotation::chosen(&format!("power/{fault:?}"), 4) {
                continue;
            }
            let (states, failure) = ground.judge(&run, Some(*fault));
            eprintln!("  {fault:?}: after {states} states: {failure:?}");
            assert!(failure.is_some(), "{fault:?} is not found in {states} states");
        }
    }
}
