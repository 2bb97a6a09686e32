//! Threads that are cancelled at any instruction of a call: of the C library's patched places, the
//! entry, the handler and the engine, and in its waits; with the deferred type and the asynchronous
//! one; and while another thread changes the user, which all threads take part in. At the same
//! instructions a signal comes, the thread is stopped, and its process killed.
//!
//! What becomes of it is compared with what becomes of it without the library: a thread that is
//! cancelled at each of the C library's own instructions may end before its call or behind it, in
//! several ways, each with its bytes and positions. The library may show these, and no others: no
//! cleanup is left out, no lock is left, nothing hangs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::stepping::{Program, Reached, Way};
use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, run, text};

/// More instructions than any of the calls has.
const ALL: usize = 1_000_000;
/// Of each call, about so many instructions are tried of the C library and the entry.
const OUTSIDE: u32 = 12;
/// And so many of the rest of this library.
const OF_LIBRARY: u32 = 8;
/// One call in so many is tried.
const PARTS: u32 = 3;

/// The bytes of the file.
const BYTES: usize = 6000;

/// What is told of a call that was interrupted and has moved nothing.
const INTERRUPTED: &str = "value -1, failed 4, at 0, has contents, piped ";

/// The calls, as `cancelled.c` names them.
const CASES: [(char, &str); 15] = [
    ('r', "read"),
    ('w', "write"),
    ('p', "read of an empty pipe"),
    ('f', "read of an empty fifo"),
    ('l', "F_SETLKW"),
    ('o', "open and close"),
    ('g', "fgetc"),
    ('s', "splice of an empty pipe"),
    ('S', "splice"),
    ('v', "writev"),
    ('V', "preadv"),
    ('e', "sendfile"),
    ('d', "getdents64"),
    ('P', "poll of an empty pipe"),
    ('k', "read and fork"),
];

/// Where an instruction is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In the program, the C library's patched code or the entry.
    Outside,
    Library,
}

/// What is done to the thread.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    Cancelled,
    /// The user changes first.
    SetUser,
    /// A signal comes first, whose handler makes calls.
    Signalled,
    /// The same, and it is cancelled in the handler.
    InHandler,
    /// It is stopped, while another one makes calls.
    Stopped,
}

/// What became of the thread, and where it was then, of all that were tried.
type Outcomes = BTreeMap<String, usize>;

/// What became of a thread that went all of its way, and how far that is.
type End = (String, Reached);

struct Runs {
    place: TestDir,
    program: PathBuf,
    running: Option<Program>,
    on_volume: bool,
    /// How often a thread was at another instruction than at the same number of its way before.
    elsewhere: usize,
    /// See [`entry`].
    entry: Range<u64>,
}

impl Runs {
    fn new(name: &str, on_volume: bool) -> Self {
        let place = TestDir::new(name);
        let program = place.0.join("cancelled");
        let options = ["-O1", "-g", "-fexceptions", "-fnon-call-exceptions", "-Wl,-z,now"];
        compile("cancelled.c", &program, &options);
        format(&place.volume());
        Self { place, program, running: None, on_volume, elsewhere: 0, entry: entry() }
    }

    /// The program, with the C library that it is tried with.
    fn bare_command(&self) -> Command {
        let Some(folder) = std::env::var_os("SOLERA_C_LIBRARY").map(PathBuf::from) else {
            return Command::new(&self.program);
        };
        let mut command = Command::new(folder.join("ld.so"));
        command.arg("--library-path").arg(folder).arg(&self.program);
        command
    }

    fn command(&self) -> Command {
        let mut command = self.bare_command();
        if self.on_volume {
            command.arg(PREFIX);
            command.env("SOLERA_VOLUME", self.place.volume()).env("SOLERA_AT", PREFIX);
            command.env("LD_PRELOAD", library());
        } else {
            command.arg(self.place.0.join("reference"));
        }
        command
    }

    /// One thread, and what becomes of it.
    fn trial(
        &mut self,
        command: &str,
        at: usize,
        way: &Way,
        deed: Deed,
    ) -> Result<(String, Reached, Vec<u64>), String> {
        let mut program = match self.running.take() {
            Some(program) => program,
            None => Program::start(&mut self.command())?,
        };
        let mut elsewhere = 0;
        let mut go = || {
            program.begin(command)?;
            let reached = program.go_to(at, way)?;
            let path = std::mem::take(&mut program.path);
            let found = program.address();
            elsewhere = usize::from(way.addresses.get(at).is_some_and(|&at| Some(at) != found));
            let found: Vec<u64> = found.into_iter().collect();
            let is_in_library = self.places_of(&program, &found).contains(&Place::Library);
            match deed {
                Deed::Cancelled => {}
                Deed::SetUser => {
                    program.act("s", "set", true)?;
                    program.settle()?;
                }
                Deed::Signalled | Deed::InHandler => {
                    let handler = if deed == Deed::Signalled { "u" } else { "h" };
                    program.act(handler, "sent", false)?;
                    program.settle()?;
                }
                // In the library it may hold what the other one needs.
                Deed::Stopped if is_in_library => {}
                Deed::Stopped => program.act_beside("b", "worked")?,
            }
            program.act("c", "cancelled", false)?;
            Ok((program.outcome()?, reached, path))
        };
        let told = go();
        self.elsewhere += elsewhere;
        match told {
            Ok(_) => self.running = Some(program),
            Err(_) => program.kill(),
        }
        told
    }

    /// What becomes of a thread at those chosen of all instructions of a call.
    fn outcomes(
        &mut self,
        command: &str,
        deed: Deed,
        chosen: impl Fn(usize, &[Place]) -> bool,
    ) -> Result<Outcomes, String> {
        let (way, places, (text, reached)) = self.way(command, deed)?;
        let mut outcomes = Outcomes::from([(text, way.addresses.len())]);
        let mut tried = 1;
        for (at, address) in way.addresses.iter().enumerate() {
            if chosen(at, &places) {
                let told = self.trial(command, at, &way, deed);
                let text = match told {
                    Ok((text, ..)) => text,
                    Err(error) => format!("at {address:#x}, {error}"),
                };
                outcomes.entry(text).or_insert(at);
                tried += 1;
            }
        }
        let until = if reached == Reached::Waits { " until it waits" } else { "" };
        let (count, kinds) = (way.addresses.len(), outcomes.len());
        let elsewhere = std::mem::take(&mut self.elsewhere);
        eprintln!(
            "{command}: {tried} of {count} instructions{until}, {elsewhere} on another way: \
             {kinds} outcomes"
        );
        Ok(outcomes)
    }

    /// Kills the process there: others find the file as it was, or as the call was to leave it.
    fn kill_at(&mut self, command: &str, at: usize, way: &Way) {
        let mut program = match self.running.take() {
            Some(program) => program,
            None => Program::start(&mut self.command()).expect("the program"),
        };
        program.begin(command).expect("its call");
        program.go_to(at, way).expect("an instruction of it");
        program.kill();
        check_left_in_order(&self.place.volume());
        let path = Path::new(PREFIX).join("file");
        let found = text(&run(Path::new("cat"), &path, Some(&self.place.volume())));
        let is_whole = found.starts_with("contents") || found.starts_with("wordents");
        assert!(is_whole && found.len() == BYTES, "{command}, killed at {at}: {found:.20}");
    }

    /// Where these instructions of a program are.
    fn places_of(&self, program: &Program, path: &[u64]) -> Vec<Place> {
        let library = library().canonicalize().expect("the library");
        let mut mapped = program.mapped(&library.to_string_lossy());
        let base = mapped.first().map_or(0, |range| range.start);
        assert_eq!(base != 0, self.on_volume, "where the library is");
        let of_entry = self.entry.start + base..self.entry.end + base;
        if self.on_volume {
            // The kernel's clock, which the library calls.
            mapped.extend(program.mapped("[vdso]"));
        }
        let is_library =
            |at: &u64| !of_entry.contains(at) && mapped.iter().any(|range| range.contains(at));
        let place = |at| if is_library(at) { Place::Library } else { Place::Outside };
        path.iter().map(place).collect()
    }

    /// The instructions of a call on its way, and where they are; what becomes of it behind them.
    fn way(&mut self, command: &str, deed: Deed) -> Result<(Way, Vec<Place>, End), String> {
        // The first times go their own way: what is found once, is found.
        for _ in 0..2 {
            self.trial(command, 0, &Way::default(), Deed::Cancelled)?;
        }
        let (text, reached, path) = self.trial(command, ALL, &Way::default(), deed)?;
        let program = self.running.as_ref().expect("it was left running");
        let places = self.places_of(program, &path);
        Ok((Way::new(path), places, (text, reached)))
    }

    fn end(mut self) {
        if let Some(program) = self.running.take() {
            program.end().expect("it ends in order");
        }
        if self.on_volume {
            check_left_in_order(&self.place.volume());
        }
    }
}

/// The addresses of the entry in the library's file.
fn entry() -> Range<u64> {
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let entry = file.symbols().find(|symbol| symbol.name() == Ok("solera_door_entry"));
    let entry = entry.expect("its entry");
    entry.address()..entry.address() + entry.size()
}

/// Compares one call, in one way.
fn compare(plain: &mut Runs, found: &mut Runs, command: &str, deed: Deed) -> Vec<String> {
    let what = match deed {
        Deed::Cancelled => "cancelled",
        Deed::SetUser => "user",
        Deed::Signalled => "signalled",
        Deed::InHandler => "handler",
        Deed::Stopped => "stopped",
    };
    let what = format!("{command}/{what}");
    let allowed = plain.outcomes(command, deed, |_, _| true).expect("without the library");
    let chosen = |at: usize, places: &[Place]| {
        if deed == Deed::Stopped && places[at] == Place::Library {
            return false;
        }
        let wanted = if places[at] == Place::Outside { OUTSIDE } else { OF_LIBRARY };
        let same = places.iter().filter(|&&place| place == places[at]).count();
        rotation::chosen(&format!("instructions/{what}/{at}"), (same as u32 / wanted).max(1))
    };
    let outcomes = found.outcomes(command, deed, chosen).expect("on a volume");
    // The kernel looks for signals before it moves something, too; for `sendfile` into a pipe only
    // while that is full (docs/differences.md).
    let moves = command.starts_with(['S', 'e']) && deed == Deed::Signalled;
    let is_interrupted = |text: &str| moves && text.contains(INTERRUPTED);
    let is_new = |text: &str| !allowed.contains_key(text) && !is_interrupted(text);
    let new = outcomes.iter().filter(|(text, _)| is_new(text));
    let new: Vec<_> = new.map(|(text, at)| format!("{what}, at {at}: {text}")).collect();
    if new.is_empty() {
        return new;
    }
    new.into_iter().chain(allowed.keys().map(|text| format!("{what}, allowed: {text}"))).collect()
}

/// All calls with threads of this type and stack.
fn compare_all(name: &str, letters: &str, deed: Deed) {
    let mut plain = Runs::new(&format!("{name}-plain"), false);
    let mut found = Runs::new(name, true);
    let mut wrong = Vec::new();
    for (letter, name) in CASES {
        let wanted = std::env::var("SOLERA_CALL").map(|wanted| wanted == name);
        let turn = || rotation::chosen(&format!("instructions/{letters}/{name}"), PARTS);
        // A thread that may be cancelled at any time must not make a child, nor one whose handler
        // is left with the C library's locks held.
        let is_sound = letter != 'k' || letters.starts_with('D') && deed != Deed::InHandler;
        if !is_sound || !wanted.unwrap_or_else(|_| turn()) {
            continue;
        }
        let different = compare(&mut plain, &mut found, &format!("{letter}{letters}"), deed);
        wrong.extend(different.into_iter().map(|text| format!("{name}: {text}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    plain.end();
    found.end();
}

#[test]
fn a_thread_is_cancelled_at_any_instruction() {
    compare_all("deferred", "Dn", Deed::Cancelled);
}

#[test]
fn a_thread_of_the_asynchronous_type_is_cancelled_at_any_instruction() {
    compare_all("asynchronous", "An", Deed::Cancelled);
}

#[test]
fn a_thread_with_the_least_stack_is_cancelled_at_any_instruction() {
    compare_all("least-stack", "Dm", Deed::Cancelled);
}

#[test]
fn the_user_changes_at_any_instruction() {
    compare_all("user", "Dn", Deed::SetUser);
}

#[test]
fn a_signal_comes_at_any_instruction() {
    compare_all("signalled", "Dn", Deed::Signalled);
}

/// Its process ended where the call was served, and not inside.
#[test]
fn a_handler_is_cancelled_at_any_instruction_that_it_has_interrupted() {
    compare_all("handler", "Dn", Deed::InHandler);
}

#[test]
fn a_handler_of_the_asynchronous_type_is_cancelled_at_any_instruction() {
    compare_all("asynchronous-handler", "An", Deed::InHandler);
}

#[test]
fn a_thread_is_stopped_at_any_instruction_outside_the_library() {
    compare_all("stopped", "Dn", Deed::Stopped);
}

/// Outside the library, and in the entry, no lock is held and nothing is in flight.
#[test]
fn a_process_is_killed_at_any_instruction_outside_the_library() {
    let mut runs = Runs::new("killed", true);
    for letter in ['r', 'w', 'o'] {
        let command = format!("{letter}Dn");
        let (way, places, _) = runs.way(&command, Deed::Cancelled).expect("its instructions");
        let outside = places.iter().filter(|&&place| place == Place::Outside).count() as u32;
        let mut tried = 0;
        for at in (0..places.len()).filter(|&at| places[at] == Place::Outside) {
            let name = format!("instructions/killed/{letter}/{at}");
            if rotation::chosen(&name, (outside / OUTSIDE).max(1)) {
                runs.kill_at(&command, at, &way);
                tried += 1;
            }
        }
        eprintln!("{command}: killed at {tried} of {outside} instructions outside the library");
    }
    runs.end();
}
