//! `solera generate`: manual pages and completions, of the same text as `--help`.
//!
//! `make install` and the packages call it, so that neither can differ from the command.

mod arguments;
mod page;

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use console::failure::{Failure, Outcome};
use console::output;

use crate::commands::Cli;
pub use arguments::GenerateArgs;
use arguments::GenerateCommand;
use page::Page;

/// Writes what is asked for.
pub fn run(args: &GenerateArgs) -> Outcome {
    match &args.command {
        GenerateCommand::Man { date, directory } => pages(date, directory),
        GenerateCommand::Completions { shell } => completions(*shell),
    }
}

/// A page of each command, in `directory`.
fn pages(date: &str, directory: &Path) -> Outcome {
    let fail =
        |error| Failure::io(format!("write manual pages to {}", directory.display()), &error);
    fs::create_dir_all(directory).map_err(fail)?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    for page in Page::of_all(&root, date) {
        let text = page.text().map_err(fail)?;
        fs::write(directory.join(page.file_name()), text).map_err(fail)?;
    }
    Ok(0)
}

fn completions(shell: Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown(&Cli::command()), "solera", &mut text);
    output::emit(&text)?;
    Ok(0)
}

/// A command without those in it that people do not type. A command cannot be taken out of one, and
/// `clap_complete` takes all: so it is made anew, with what completions need.
fn shown(command: &Command) -> Command {
    // Names are borrowed for as long as the process lives, which ends here.
    let name: &str = command.get_name().to_owned().leak();
    let is_shown = |inner: &&Command| !inner.is_hide_set();
    let mut made = Command::new(name)
        .disable_help_subcommand(true)
        .args(command.get_arguments())
        .groups(command.get_groups())
        .subcommands(command.get_subcommands().filter(is_shown).map(shown));
    if let Some(about) = command.get_about() {
        made = made.about(about.clone());
    }
    if command.get_version().is_some() {
        made = made.version(env!("CARGO_PKG_VERSION"));
    }
    made
}
