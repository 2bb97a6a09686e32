//! Threads that are cancelled at any instruction of a call: of the C library's patched places, the
//! entry, the handler and the engine, and in its waits; with the deferred type and the asynchronous
//! one; and while another thread changes the user, which all threads take part in.
//!
//! What becomes of it is compared with what becomes of it without the library: a thread that is
//! cancelled at each of the C library's own instructions may end before its call or behind it, in
//! several ways, each with its bytes and positions. The library may show these, and no others: no
//! cleanup is left out, no lock is left, nothing hangs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::stepping::{Program, Reached};
use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};

/// More instructions than any of the calls has.
const ALL: usize = 1_000_000;
/// Of each call, about so many instructions are tried of the C library and the entry.
const OUTSIDE: u32 = 12;
/// And so many of the rest of this library.
const OF_LIBRARY: u32 = 8;
/// One call in so many is tried.
const PARTS: u32 = 3;

/// The calls, as `cancelled.c` names them.
const CASES: [(char, &str); 9] = [
    ('r', "read"),
    ('w', "write"),
    ('p', "read of an empty pipe"),
    ('f', "read of an empty fifo"),
    ('l', "F_SETLKW"),
    ('o', "open and close"),
    ('g', "fgetc"),
    ('s', "splice of an empty pipe"),
    ('S', "splice"),
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
}

/// What became of the thread, and where it was then, of all that were tried.
type Outcomes = BTreeMap<String, usize>;

struct Runs {
    place: TestDir,
    program: PathBuf,
    running: Option<Program>,
    on_volume: bool,
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
        Self { place, program, running: None, on_volume, entry: entry() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
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
        deed: Deed,
    ) -> Result<(String, Reached, Vec<u64>), String> {
        let mut program = match self.running.take() {
            Some(program) => program,
            None => Program::start(&mut self.command())?,
        };
        let mut go = || {
            program.begin(command)?;
            let reached = program.step_to(at)?;
            let path = std::mem::take(&mut program.path);
            if deed == Deed::SetUser {
                program.act("s", "set", true)?;
                program.settle()?;
            }
            program.act("c", "cancelled", false)?;
            Ok((program.outcome()?, reached, path))
        };
        let told = go();
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
        // The first times go their own way: what is found once, is found.
        for _ in 0..2 {
            self.trial(command, 0, Deed::Cancelled)?;
        }
        let (text, reached, path) = self.trial(command, ALL, deed)?;
        let places: Vec<Place> = path.iter().map(|&at| self.place_of(at)).collect();
        let mut outcomes = Outcomes::from([(text, path.len())]);
        let mut tried = 1;
        for (at, address) in path.iter().enumerate() {
            if chosen(at, &places) {
                let told = self.trial(command, at, deed);
                let text = match told {
                    Ok((text, ..)) => text,
                    Err(error) => format!("at {address:#x}, {error}"),
                };
                outcomes.entry(text).or_insert(at);
                tried += 1;
            }
        }
        let until = if reached == Reached::Waits { "until it waits" } else { "" };
        let (count, kinds) = (path.len(), outcomes.len());
        eprintln!("{command}: {tried} of {count} instructions {until}: {kinds} outcomes");
        Ok(outcomes)
    }

    fn place_of(&self, at: u64) -> Place {
        let Some(program) = &self.running else { return Place::Outside };
        let name = library();
        let mapped = program.mapped(&name.to_string_lossy());
        let Some(base) = mapped.first().map(|range| range.start) else { return Place::Outside };
        let of_entry = self.entry.start + base..self.entry.end + base;
        if of_entry.contains(&at) || !mapped.iter().any(|range| range.contains(&at)) {
            Place::Outside
        } else {
            Place::Library
        }
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
    let what = format!("{command}/{}", if deed == Deed::SetUser { "user" } else { "cancelled" });
    let allowed = plain.outcomes(command, deed, |_, _| true).expect("without the library");
    let chosen = |at: usize, places: &[Place]| {
        let wanted = if places[at] == Place::Outside { OUTSIDE } else { OF_LIBRARY };
        let same = places.iter().filter(|&&place| place == places[at]).count();
        rotation::chosen(&format!("instructions/{what}/{at}"), (same as u32 / wanted).max(1))
    };
    let outcomes = found.outcomes(command, deed, chosen).expect("on a volume");
    let new = outcomes.iter().filter(|(text, _)| !allowed.contains_key(*text));
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
        if !wanted.unwrap_or_else(|_| turn()) {
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
