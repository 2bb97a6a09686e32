//! `solera generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// Write what is installed beside the command, from the text of `--help`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera generate man --date 2026-11-27 man1
  solera generate completions bash > solera")]
pub struct GenerateArgs {
    #[command(subcommand)]
    pub command: GenerateCommand,
}

/// What is to be written.
#[derive(Subcommand)]
pub enum GenerateCommand {
    /// A manual page of each command into a directory, which is made if need be.
    Man {
        /// The date in the pages' foot: YYYY-MM-DD.
        #[arg(long, value_parser = date)]
        date: String,
        /// The directory.
        directory: PathBuf,
    },
    /// The completions of a shell, to standard output.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

fn date(text: &str) -> Result<String, String> {
    let form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    if text.len() == 10 && text.bytes().enumerate().all(form) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not a date: give one such as 2026-11-27"))
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_years_months_days() {
        assert_eq!(date("2026-11-27"), Ok("2026-11-27".to_owned()));
        for text in ["", "27.11.2026", "2026-11-2", "2026-11-277", "2026/11/27", "YYYY-MM-DD"] {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
