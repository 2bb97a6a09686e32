//! A process dies inside a call, a survivor goes on, then power fails: nothing of the survivor's
//! work is lost.
//!
//! The test executes itself as the process that dies. `SOLERA_DEATH=start/case` runs only what
//! begins so, at all points with `SOLERA_TEST_LONG`.

use explorer::survived;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "die") {
        return match survived::die(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let begun = Instant::now();
    let filter = std::env::var("SOLERA_DEATH").unwrap_or_default();
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let report = survived::run(&filter, long);
    println!(
        "{} cases, {} deaths, {} states, {} distinct, {} failures in {:.1} s",
        report.workloads,
        report.calls,
        report.states,
        report.distinct,
        report.failures.len(),
        begun.elapsed().as_secs_f64()
    );
    if report.failures.is_empty() && report.distinct > 0 {
        println!("test result: ok. 1 passed; 0 failed; 0 ignored");
        return ExitCode::SUCCESS;
    }
    eprintln!("{}", report.failures.join("\n"));
    println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
    ExitCode::FAILURE
}
