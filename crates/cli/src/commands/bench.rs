//! `solera bench` and `solera age`: a program of its own beside this one measures, which this
//! process becomes.

use std::os::unix::process::CommandExt;
use std::process::Command;

use console::failure::{Failure, Outcome};

/// The program's name.
const PROGRAM: &str = "solera-bench";

/// Becomes it, with the same arguments; returns only if that fails.
pub fn run() -> Outcome {
    let asked = format!("start {PROGRAM}");
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(&asked, error, "is /proc mounted?"))?;
    let program = own.with_file_name(PROGRAM);
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    let advice = "`solera bench` and `solera age` need it beside solera: install solera anew, or \
                  build it (cargo build --release -p solera-bench)";
    Err(Failure::new(asked, format!("{}: {error}", program.display()), advice))
}
