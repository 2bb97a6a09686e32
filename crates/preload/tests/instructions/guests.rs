//! A static program, which a host serves, at each instruction of a call: of its own code that makes
//! the call (which traps, or is patched as Go's is), of the handler of SIGSYS, the ways into the
//! library and out of it, and of the host, which begins and ends its threads.
//!
//! There its process is killed: then the call has happened or has not, what was acknowledged before
//! is there, the check finds nothing, and no slot of a process is left. And there a signal comes:
//! then its handler, whose calls are served, runs once, and the call gives what it gives without.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use object::{Object, ObjectSymbol};

use crate::stepping::{Program, Reached, Way};
use crate::support::{
    PREFIX, TestDir, check_left_in_order, compile, format, library, one_of, text,
};

/// More instructions than any of the calls has.
const ALL: usize = 1_000_000;
/// Of each call about so many instructions are tried of the ways into the library, and of the rest.
const WAYS: usize = 6;
const REST: usize = 3;

/// The calls, as `guest_steps.c` names them, and what their files may be like when it is killed:
/// before the call and behind it.
struct Case {
    letter: char,
    name: &'static str,
    before: &'static str,
    behind: &'static str,
}

const fn case(
    letter: char,
    name: &'static str,
    before: &'static str,
    behind: &'static str,
) -> Case {
    Case { letter, name, before, behind }
}

/// What is there before each call.
const PREPARED: &str = "contents, it is old, it is new, it is there, none, none";
/// What a thread has made between its calls.
const BETWEEN: &str = "contents, it is old, it is new, it is there, , none";
const CALLS: [Case; 4] = [
    case(
        'w',
        "pwrite",
        PREPARED,
        "wordents, it is old, it is new, it is there, none, none", //
    ),
    case(
        'o',
        "open",
        PREPARED,
        "contents, it is old, it is new, it is there, none, made", //
    ),
    case(
        'r',
        "rename",
        PREPARED,
        "contents, none, it is old, it is there, none, none", //
    ),
    case('u', "unlink", PREPARED, "contents, it is old, it is new, none, none, none"),
];
/// A thread is made, lives and ends: the maker is stepped, the new one, and one that ends.
const THREADS: [Case; 3] = [
    case(
        't',
        "clone",
        PREPARED,
        "contents, it is old, it is new, it is there, it ran, none", //
    ),
    case(
        'n',
        "a new thread",
        PREPARED,
        "contents, it is old, it is new, it is there, it ran, none", //
    ),
    case('e', "exit of a thread", PREPARED, PREPARED),
];

/// Prints what the program says at its end of the files.
const LOOK: &str = r#"
cd "$0" || exit
said() { if [ -e "$1" ]; then cat "$1"; else printf none; fi; }
for name in file old new gone threads; do said "$name"; printf ', '; done
if [ -e made ]; then printf made; else printf none; fi
"#;

struct Runs {
    place: TestDir,
    program: PathBuf,
    running: Option<Program>,
    /// The ways into the library and out of it: addresses in its file.
    ways: Vec<Range<u64>>,
}

impl Runs {
    fn new(name: &str) -> Self {
        let place = TestDir::new(name);
        let program = place.0.join("guest_steps");
        compile("guest_steps.c", &program, &["-O1", "-g", "-static"]);
        format(&place.volume());
        Self { place, program, running: None, ways: ways() }
    }

    fn start(&mut self) -> Result<Program, String> {
        let file = File::open(&self.program).map_err(|error| error.to_string())?;
        // What a host is told: the program's open file, which it inherits.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).map_err(|e| e.to_string())?;
        let told = format!("{}:{}", file.as_raw_fd(), self.program.display());
        let mut command = Command::new(library().with_file_name("solera-host"));
        command.arg(PREFIX).env("SOLERA_GUEST", told).env("SOLERA_GUEST_CALLED", &self.program);
        command.env("SOLERA_VOLUME", self.place.volume()).env("SOLERA_AT", PREFIX);
        command.env("LD_PRELOAD", library());
        Program::start(&mut command)
    }

    /// Begins a call, and brings the thread to an instruction of it.
    fn bring(
        &mut self,
        letter: char,
        kind: char,
        at: usize,
        way: &Way,
    ) -> Result<(Program, Reached), String> {
        let mut program = match self.running.take() {
            Some(program) => program,
            None => self.start()?,
        };
        program.follows_threads = true;
        let mut go = || {
            let command = if letter == 'n' { 't' } else { letter };
            program.begin(&format!("{command}{kind}"))?;
            if letter == 'n' {
                program.follow_new()?;
            }
            program.go_to(at, way)
        };
        match go() {
            Ok(reached) => Ok((program, reached)),
            Err(error) => {
                program.kill();
                Err(error)
            }
        }
    }

    /// What becomes of a call that goes on from there. `signal`: comes first.
    fn outcome(
        &mut self,
        (letter, kind): (char, char),
        at: usize,
        way: &Way,
        signal: i32,
    ) -> Result<(String, Vec<u64>), String> {
        let (mut program, reached) = self.bring(letter, kind, at, way)?;
        let path = std::mem::take(&mut program.path);
        let mut go = || {
            if signal != 0 && reached == Reached::Instruction {
                program.signal(signal)?;
            }
            program.outcome()
        };
        match go() {
            Ok(told) => {
                self.running = Some(program);
                Ok((told, path))
            }
            Err(error) => {
                program.kill();
                Err(error)
            }
        }
    }

    /// The way of a call, and which of its instructions are ways into the library, code of the
    /// program's, or of a page of its own (`false`: the rest of the library).
    fn way(&mut self, letter: char, kind: char) -> Result<(Way, Vec<bool>), String> {
        // The first times go their own way: what is found once, is found, and places are patched.
        for _ in 0..2 {
            self.outcome((letter, kind), 0, &Way::default(), 0)?;
        }
        let (_, path) = self.outcome((letter, kind), ALL, &Way::default(), 0)?;
        let program = self.running.as_ref().ok_or("it was left running")?;
        let library = library().canonicalize().map_err(|error| error.to_string())?;
        let mapped = program.mapped(&library.to_string_lossy());
        let base = mapped.first().map_or(0, |range| range.start);
        let is_way = |at: &u64| {
            !mapped.iter().any(|range| range.contains(at))
                || self.ways.iter().any(|way| (way.start + base..way.end + base).contains(at))
        };
        let kinds = path.iter().map(is_way).collect();
        Ok((Way::new(path), kinds))
    }

    /// The instructions of a way that are tried; in long tests all of the ways into the library,
    /// and a tenth of the rest, in which preloaded programs die, too.
    fn chosen(what: &str, kinds: &[bool]) -> Vec<usize> {
        let tried = |at: &usize| {
            if rotation::all() {
                return kinds[*at] || at.is_multiple_of(10);
            }
            let same = kinds.iter().filter(|&&kind| kind == kinds[*at]).count();
            let wanted = if kinds[*at] { WAYS } else { REST };
            let parts = (same / wanted).max(1) as u32;
            rotation::chosen(&format!("instructions/guests/{what}/{at}"), parts)
        };
        (0..kinds.len()).filter(tried).collect()
    }

    /// What a new process finds.
    fn look(&self) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", LOOK, PREFIX]).env("LD_PRELOAD", library());
        command.env("SOLERA_VOLUME", self.place.volume()).env("SOLERA_AT", PREFIX);
        text(&command.output().expect("a shell"))
    }

    /// Kills the process at an instruction; says what is wrong then.
    fn kill_at(&mut self, case: &Case, kind: char, at: usize, way: &Way) -> Result<(), String> {
        let (program, reached) = self.bring(case.letter, kind, at, way)?;
        let address = program.address().unwrap_or(0);
        program.kill();
        check_left_in_order(&self.place.volume());
        let found = self.look();
        let has_returned = reached == Reached::Returned;
        // Of a thread that writes a file there are two calls.
        let is_on_its_way = case.behind.contains("it ran") && found == BETWEEN;
        let may_be_before = !has_returned && (found == case.before || is_on_its_way);
        if found == case.behind || may_be_before {
            return Ok(());
        }
        Err(format!("killed at {at} ({address:#x}), {reached:?}: {found}"))
    }

    fn end(mut self) {
        if let Some(program) = self.running.take() {
            program.end().expect("it ends in order");
        }
        check_left_in_order(&self.place.volume());
    }
}

/// The addresses, in the library's file, of what leads into the library and out of it, and of what
/// is done for a guest.
fn ways() -> Vec<Range<u64>> {
    const PARTS: [&str; 4] = ["solera_guest", "solera_dispatch", "8dispatch", "7preload4host"];
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let is_way = |name: &str| PARTS.iter().any(|part| name.contains(part));
    let ways = file.symbols().filter(|symbol| symbol.name().is_ok_and(is_way));
    let ways = ways.filter(|symbol| symbol.size() != 0);
    ways.map(|symbol| symbol.address()..symbol.address() + symbol.size()).collect()
}

/// How the calls are made: by an instruction that traps, or by one that is patched.
const KINDS: [(char, &str); 2] = [('s', "trapped"), ('g', "patched")];

/// `SOLERA_CALL` may name one.
fn is_wanted(case: &Case) -> bool {
    std::env::var("SOLERA_CALL").map_or(true, |wanted| wanted == case.name)
}

fn killed(name: &str, cases: &[Case], kinds: &[(char, &str)]) {
    let mut runs = Runs::new(name);
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| is_wanted(case)) {
        for (kind, how) in one_of(&format!("instructions/{name}/{}", case.name), kinds) {
            let what = format!("{name}/{}/{how}", case.name);
            let (way, kinds) = runs.way(case.letter, *kind).expect("its instructions");
            let chosen = Runs::chosen(&what, &kinds);
            let begun = Instant::now();
            for at in &chosen {
                let told = runs.kill_at(case, *kind, *at, &way);
                wrong.extend(told.err().map(|text| format!("{what}: {text}")));
            }
            report(&what, &chosen, &kinds, begun);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    runs.end();
}

fn report(what: &str, chosen: &[usize], kinds: &[bool], begun: Instant) {
    let ways = kinds.iter().filter(|kind| **kind).count();
    let (tried, all, took) = (chosen.len(), kinds.len(), begun.elapsed().as_millis());
    eprintln!("{what}: {tried} of {all} instructions, {ways} of ways: {took} ms");
}

#[test]
fn a_guest_is_killed_at_any_instruction_of_a_call() {
    killed("guests-killed", &CALLS, &KINDS);
}

#[test]
fn a_guest_is_killed_at_any_instruction_of_its_threads() {
    killed("guests-killed-threads", &THREADS, &KINDS[..1]);
}

/// The handlers stand on the stack in use, and on the program's signal stack.
#[test]
fn a_signal_comes_to_a_guest_at_any_instruction() {
    let mut runs = Runs::new("guests-signalled");
    let mut wrong = Vec::new();
    for case in CALLS.iter().chain(&THREADS).filter(|case| is_wanted(case)) {
        let kinds_of = if THREADS.iter().any(|one| one.letter == case.letter) { 1 } else { 2 };
        let turn = format!("instructions/guests-signalled/{}", case.name);
        for (kind, how) in one_of(&turn, &KINDS[..kinds_of]) {
            let (way, kinds) = runs.way(case.letter, *kind).expect("its instructions");
            let (plain, _) =
                runs.outcome((case.letter, *kind), 0, &Way::default(), 0).expect("a call");
            for (signal, stack) in [(libc::SIGUSR1, "its stack"), (libc::SIGUSR2, "signal stack")] {
                let what = format!("guests-signalled/{}/{how}/{stack}", case.name);
                let expected = plain.replace("handled 0", "handled 1");
                let chosen = Runs::chosen(&what, &kinds);
                let begun = Instant::now();
                for at in &chosen {
                    let told = runs.outcome((case.letter, *kind), *at, &way, signal);
                    let text = told.map_or_else(|error| error, |(text, _)| text);
                    // A thread that ends lets none come any more.
                    let is_right = text == expected || kinds_of == 1 && text == plain;
                    if !is_right {
                        let address = way.addresses[*at];
                        wrong.push(format!("{what}, at {at} ({address:#x}): {text}"));
                    }
                }
                report(&what, &chosen, &kinds, begun);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    runs.end();
}
