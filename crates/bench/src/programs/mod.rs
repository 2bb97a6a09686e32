//! `solera bench programs`: whole programs, unchanged, on volumes, over kernel file systems, and on
//! those alone.
//!
//! Places take turns, program by program, so that a noisy machine is noisy for all of them. What is
//! timed is what a user would see: a shell in the place runs the program, and tells how long that
//! took. A program that fails in a place is left out there, and told; the others go on.

mod backend;
mod html;
mod machine;
mod process_group;
mod regression;
mod results;
mod runner;
mod suite;
mod testbed;

use std::io;
use std::path::Path;

use console::failure::{Failure, Outcome};
use console::file;
use console::output::{self, Progress};
use solera_bench::ProgramsBenchArgs;

use crate::harness::mounts;
use backend::Backend;
use machine::Machine;
use process_group::ProcessGroups;
use results::{Results, Skipped};
use runner::{Measured, Runner, Scale};
use suite::Program;
use testbed::Testbed;

/// What programs may take of a volume, or of a file system.
const QUICK_BYTES: u64 = 512 << 20;
const USUAL_BYTES: u64 = 2 << 30;
const FULL_BYTES: u64 = 8 << 30;
/// Of what a file system has, what is aged: the rest is its own.
const AGED_CAPACITY: f64 = 0.9;

/// Measures, and prints.
pub fn run(args: &ProgramsBenchArgs) -> Outcome {
    let programs = suite::chosen(&args.only)?;
    if args.list {
        return list(&programs, args.json).map(|()| 0);
    }
    let asked_report = |file: &Path| format!("write the report {}", file.display());
    if let Some(file) = &args.report {
        file::check(asked_report(file), file)?;
    }
    let (there, skipped) = installed(&programs);
    for skipped in &skipped {
        let (name, how) = (skipped.program.name, suite::installation(&skipped.packages));
        output::tell(format!("without {name}: not installed; {how}"));
    }
    let results = measure(args, &there, skipped)?;
    if let Some(file) = &args.report {
        file::write(asked_report(file), file, &html::page(&results))?;
    }
    if args.json {
        output::emit_json(&results.to_json())?;
    } else {
        output::emit(results.to_text().as_bytes())?;
    }
    Ok(if results.interrupted { 130 } else { results.failed().into() })
}

/// Programs that are installed, and the others.
fn installed(programs: &[&'static Program]) -> (Vec<&'static Program>, Vec<Skipped>) {
    let (mut there, mut skipped) = (Vec::new(), Vec::new());
    for program in programs {
        match program.missing() {
            packages if packages.is_empty() => there.push(*program),
            packages => skipped.push(Skipped { program, packages }),
        }
    }
    (there, skipped)
}

fn list(programs: &[&'static Program], json: bool) -> Result<(), Failure> {
    if json {
        let all: Vec<_> = programs
            .iter()
            .map(|it| {
                let (name, title) = (it.name, it.title);
                serde_json::json!({ "program": name, "title": title, "missing": it.missing() })
            })
            .collect();
        return output::emit_json(&all.into());
    }
    let lines = programs.iter().map(|it| {
        let missing = match it.missing() {
            packages if packages.is_empty() => String::new(),
            packages => format!("  ({})", suite::installation(&packages)),
        };
        format!("{:<18} {}{missing}\n", it.name, it.title)
    });
    output::emit(lines.collect::<String>().as_bytes())
}

fn measure(
    args: &ProgramsBenchArgs,
    programs: &[&'static Program],
    skipped: Vec<Skipped>,
) -> Result<Results, Failure> {
    let scale = match (args.quick, args.full) {
        (true, _) => Scale::Quick,
        (_, true) => Scale::Full,
        _ => Scale::Usual,
    };
    let repeat = args.repeat.unwrap_or_else(|| scale.of(2, 5, 9));
    // Ahead of all threads.
    let own_mounts = match mounts::own_namespace() {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
        Err(error) => return Err(Failure::new("make a place for the benchmark", error, "")),
    };
    let children = ProcessGroups::watch()?;
    let free = 1.0 - AGED_CAPACITY * args.aged.unwrap_or(0.0);
    let bytes = scale.of(QUICK_BYTES, USUAL_BYTES, FULL_BYTES) as f64 / free;
    let bytes = (bytes as u64).next_multiple_of(volume::CHUNK);
    let testbed = Testbed::make(args, bytes, own_mounts)?;
    suite::lay_out(&testbed.work.join("src"))
        .map_err(|error| Failure::new("write what runs", error, ""))?;
    let machine = Machine::look(testbed.huge);
    let runner = Runner { testbed: &testbed, children, scale, repeat };
    if let Some(part) = args.aged {
        age(&runner, part, bytes)?;
    }
    let (measured, interrupted) = all(&runner, programs)?;
    let mut results = Results {
        scale,
        repeat,
        aged: args.aged,
        machine,
        backends: testbed.backends.iter().map(|backend| backend.name.clone()).collect(),
        served: testbed.backends.iter().map(Backend::is_served).collect(),
        missing: testbed.missing.clone(),
        measured,
        skipped,
        interrupted,
        slower: None,
    };
    if args.against.is_some() && !interrupted {
        again(&runner, args, &mut results)?;
    }
    Ok(results)
}

fn age(runner: &Runner, part: f64, bytes: u64) -> Result<(), Failure> {
    let capacity = (bytes as f64 * AGED_CAPACITY) as u64;
    let mut progress = Progress::new("ageing");
    let total = runner.testbed.aged.len() as u64;
    for (done, (command, target)) in (0..).zip(&runner.testbed.aged) {
        progress.update(done, total);
        runner.age(command, target, part, capacity)?;
    }
    Ok(())
}

/// Measures them; after a signal what was measured until then, if that is whole programs.
fn all(runner: &Runner, programs: &[&'static Program]) -> Result<(Vec<Measured>, bool), Failure> {
    let mut progress = Progress::new("measuring");
    let total = runner.steps() * programs.len() as u64;
    let mut measured = Vec::new();
    for (number, program) in (0..).zip(programs) {
        let begun = number * runner.steps();
        let mut done = begun;
        let found = runner.measure(program, &mut |backend| {
            progress.name(&format!("{} on {backend}", program.name));
            progress.update(done, total);
            done += 1;
        });
        match found {
            Ok(found) => measured.push(found),
            Err(_) if runner.children.go_on().is_err() && !measured.is_empty() => break,
            Err(failure) => return Err(failure),
        }
    }
    drop(progress);
    for measured in &measured {
        for failed in &measured.failed {
            let (name, command) = (measured.program.name, &failed.command);
            output::tell(format!("{name} failed: {command}: {}", failed.found));
        }
    }
    let interrupted = measured.len() < programs.len();
    Ok((measured, interrupted))
}

/// Judges this build; what seems slower is measured once more, and only what is so again counts.
fn again(runner: &Runner, args: &ProgramsBenchArgs, results: &mut Results) -> Result<(), Failure> {
    let first = regression::slower(results, args.tolerance);
    let suspected: Vec<&'static Program> = results
        .measured
        .iter()
        .map(|measured| measured.program)
        .filter(|program| first.iter().any(|slower| slower.program == program.name))
        .collect();
    let (measured, interrupted) = all(runner, &suspected)?;
    let once = std::mem::replace(&mut results.measured, measured);
    let second = regression::slower(results, args.tolerance);
    (results.measured, results.interrupted) = (once, interrupted);
    let is_again = |slower: &regression::Regression| {
        second.iter().any(|other| other.row == slower.row && other.backend == slower.backend)
    };
    results.slower = Some(first.into_iter().filter(is_again).collect());
    Ok(())
}
