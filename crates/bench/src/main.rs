//! `solera-bench`: measures. `solera bench` and `solera age` execute it with their own arguments.
//!
//! Exit codes: 0 done, 1 failed, 2 a wrong command line.

// Figures for people: percentages, means and nanoseconds lie far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod age;
mod compaction;
mod ddmap;
mod door;
mod flac;
mod flex;
mod harness;
mod micro;
mod mount;
mod profile;
mod programs;
mod recovery;
mod split;
mod sqlite;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use console::failure::Outcome;
use console::{attachment, command_line, output};
use solera_bench::{AgeArgs, BenchArgs, BenchCommand};

/// What `solera` measures.
#[derive(Parser)]
#[command(name = "solera-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Age(AgeArgs),
    Bench(BenchArgs),
}

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    command_line::remember(&line, Cli::command);
    let cli = Cli::parse_from(line);
    if let Err(wrong) = output::check_patience().and_then(|()| volume::check_simulated()) {
        output::tell(wrong);
        return ExitCode::from(2);
    }
    if let Command::Age(args) = &cli.command {
        args.class.force();
    }
    attachment::find_pagers();
    // Under `solera run` the preload library's engine serves what is redirected to a volume.
    volume::work_beside_another();
    output::exit_code(match &cli.command {
        Command::Age(args) => age::run(args),
        Command::Bench(args) => measure(&args.command),
    })
}

/// Measures what is asked for.
fn measure(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Compaction(args) => compaction::run(args),
        BenchCommand::Ddmap(args) => ddmap::run(args),
        BenchCommand::DdmapWorker(args) => ddmap::worker(args),
        BenchCommand::Door(args) => door::run(args),
        BenchCommand::DoorStart(args) => door::start(args),
        BenchCommand::DoorWorker(args) => door::worker(args),
        BenchCommand::Flac(args) => flac::run(args),
        BenchCommand::FlacWorker(args) => flac::worker(args),
        BenchCommand::Flex(args) => flex::run(args),
        BenchCommand::Micro(args) => micro::run(args),
        BenchCommand::Mount(args) => mount::run(args),
        BenchCommand::Profile(args) => profile::run(args),
        BenchCommand::Programs(args) => programs::run(args),
        BenchCommand::Recovery(args) => recovery::run(args),
        BenchCommand::Split(args) => split::run(args),
        BenchCommand::Sqlite(args) => sqlite::run(args),
        BenchCommand::SqliteWorker(args) => sqlite::worker(args),
        BenchCommand::Worker(args) => worker::run(args),
    }
}
