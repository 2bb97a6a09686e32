//! The library calls no function of the C library's, or of the program's, that has locks, memory or
//! threads behind it: a counter in front of it and behind it sees none, while a program starts,
//! attaches what a killed one left, maps, forks, executes itself and has threads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Output};

use object::{Object, ObjectSymbol};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};

/// What it does call, each by the program's own call of such a function, outside of all locks.
const ALLOWED: &[(&str, &str)] = &[
    ("malloc", "`getcwd` of NULL gives memory of the program's own heap, which the program frees"),
    ("pthread_create", "the program's own call of it, which goes on to the C library's"),
];

struct Counted {
    place: TestDir,
    counter: PathBuf,
    program: PathBuf,
}

impl Counted {
    fn run(&self, counter_first: bool, how: &str) -> Output {
        let (first, second) = (library(), self.counter.clone());
        let [first, second] = if counter_first { [second, first] } else { [first, second] };
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(first);
        preload.push(":");
        preload.push(second);
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600", "env"]).arg(preload).arg(&self.program);
        command.arg(PREFIX).args((!how.is_empty()).then_some(how));
        command.env("SOLERA_VOLUME", self.place.volume()).env("SOLERA_AT", PREFIX);
        command.output().expect("it runs")
    }
}

/// The functions that hold these addresses of the library's file.
fn callers(file: &object::File, addresses: &[u64]) -> Vec<String> {
    let of = |&address: &u64| {
        let holds = |symbol: &object::Symbol| {
            (symbol.address()..symbol.address() + symbol.size()).contains(&address)
        };
        let found = file.symbols().find(holds);
        found.and_then(|symbol| symbol.name().ok().map(str::to_owned)).unwrap_or_default()
    };
    addresses.iter().map(of).collect()
}

/// What was called, with the places.
fn told(errors: &[u8]) -> BTreeMap<String, Vec<u64>> {
    let mut found = BTreeMap::<String, Vec<u64>>::new();
    for line in String::from_utf8_lossy(errors).lines() {
        let Some(line) = line.strip_prefix("counted: ") else { continue };
        let (name, place) = line.split_once('+').expect("a name and a place");
        let place = u64::from_str_radix(place, 16).expect("an address");
        found.entry(name.to_owned()).or_default().push(place);
    }
    found
}

fn check(file: &object::File, what: &str, output: &Output) -> Vec<String> {
    let found = told(&output.stderr);
    let new = found.iter().filter(|(name, _)| ALLOWED.iter().all(|allowed| allowed.0 != **name));
    new.map(|(name, places)| format!("{what}: {name} by {:?}", callers(file, places))).collect()
}

#[test]
fn it_calls_nothing_that_locks_or_allocates() {
    let place = TestDir::new("counted");
    let (counter, program) = (place.0.join("counter.so"), place.0.join("counted"));
    let options = ["-DLIBRARY", "-shared", "-fPIC", "-O1", "-fno-builtin", "-mgeneral-regs-only"];
    compile("counted.c", &counter, &options);
    compile("counted.c", &program, &["-O1", "-fno-builtin"]);
    format(&place.volume());
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let counted = Counted { place, counter, program };
    let mut wrong = Vec::new();
    for (order, counter_first) in [("in front", true), ("behind", false)] {
        for how in ["", "die", ""] {
            let output = counted.run(counter_first, how);
            let errors = String::from_utf8_lossy(&output.stderr);
            let kill = std::os::unix::process::ExitStatusExt::signal(&output.status);
            let right = if how == "die" { kill == Some(libc::SIGKILL) } else { kill.is_none() };
            assert!(right && (how == "die" || output.status.success()), "{order} {how}: {errors}");
            wrong.extend(check(&file, order, &output));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    check_left_in_order(&counted.place.volume());
}
