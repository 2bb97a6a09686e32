//! `solera`: makes, inspects and serves volumes from the command line.
//!
//! Exit codes: 0 done, 1 failed, 2 a wrong command line. `fsck` and `run` have their own, which
//! their `--help` tells. What is reported goes to standard output, what failed to standard error:
//! what was asked, what was found, what to do.

// Figures for people: percentages, means and nanoseconds lie far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod commands;
mod domains;
mod location;
mod loss;
mod owner;
mod picture;
mod stream;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use console::{attachment, command_line, output};

use commands::Cli;

fn main() -> ExitCode {
    let line = arguments();
    command_line::remember(&line, Cli::command);
    let mut cli = match Cli::of(line) {
        Ok(cli) => cli,
        Err(error) => {
            let code = usage_code(error.exit_code());
            return match error.print() {
                // The help was asked for, and could not be printed.
                Err(_) if code == 0 => ExitCode::FAILURE,
                _ => ExitCode::from(code),
            };
        }
    };
    if let Err(wrong) = output::check_patience().and_then(|()| volume::check_simulated()) {
        output::tell(wrong);
        return ExitCode::from(usage_code(2));
    }
    cli.command.class().force();
    attachment::find_pagers();
    if let Err(failure) = cli.command.find_volumes() {
        return output::exit_code(Err(failure));
    }
    // Under `solera run` the preload library's engine serves what is redirected to a volume.
    volume::work_beside_another();
    output::exit_code(cli.command.run())
}

/// The arguments; mount(8) calls this program by another name, with others.
fn arguments() -> Vec<OsString> {
    let mut arguments = std::env::args_os();
    match std::env::args_os().next() {
        Some(name) if commands::mount::is_helper(&name) => {
            commands::mount::of_helper(arguments.by_ref().skip(1))
        }
        _ => arguments.collect(),
    }
}

/// `run` answers a wrong command line with 125, since 2 may be its program's own code; `fsck` with
/// 16, as every fsck.
fn usage_code(code: i32) -> u8 {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    match code {
        0 => 0,
        _ if command == "run" => commands::run::CODE_OWN_FAILURE,
        _ if command == "fsck" => commands::fsck::CODE_USAGE,
        _ => 2,
    }
}
