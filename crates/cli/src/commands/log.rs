//! `solera log`: what a write-ahead log of `flex` holds.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use console::failure::{Failure, Outcome};
use console::output;
use console::size::show;
use flex::Checked;
use serde_json::json;

use crate::location::Location;

/// Show what a write-ahead log of the library `flex` holds.
///
/// It is only read, also while a process writes to it.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0; 1 if the file is no log, or a record is damaged that was committed.

Examples:
  solera log info /mnt/pm/wal                 what it is, and how full
  solera log info /dev/shm/v.pm:/wal          the same, of a volume that is not mounted
  solera log dump /mnt/pm/wal                 each record: position, length, bytes
  solera log dump --json /mnt/pm/wal | jq .position
  solera log check /mnt/pm/wal && echo whole")]
pub struct LogArgs {
    #[command(subcommand)]
    pub command: LogCommand,
}

/// What is to be shown.
#[derive(Subcommand)]
pub enum LogCommand {
    /// What the log is, and how full.
    Info(LogFile),
    /// Each record: its position, its length, and its bytes; with --json an object a line, the
    /// bytes in hexadecimal.
    Dump(LogFile),
    /// Whether all that was committed is there.
    Check(LogFile),
}

/// Which log, and how it is shown.
#[derive(Args)]
pub struct LogFile {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The log's file; of a volume also `VOLUME:/path`.
    pub file: PathBuf,
}

/// The exit code of a damaged log.
const DAMAGED: u8 = 1;

/// Shows it.
pub fn run(args: &LogArgs) -> Outcome {
    match &args.command {
        LogCommand::Info(file) => info(file),
        LogCommand::Dump(file) => dump(file),
        LogCommand::Check(file) => check(file),
    }
}

fn looked(file: &LogFile, each: impl FnMut(u64, &[u8])) -> Result<Checked, Failure> {
    let walked = match Location::parse(file.file.as_os_str())? {
        Location::OnVolume { volume, path } => flex::Place::open(&volume, true)
            .and_then(|place| place.walk(Path::new(OsStr::from_bytes(&path)), each)),
        Location::Local(path) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            // A volume's is read by its engine, which sees what is mapped there.
            match (flex::Place::of_volume(parent.unwrap_or(Path::new("."))), path.file_name()) {
                (Ok(Some(place)), Some(name)) => place.walk(Path::new(name), each),
                _ => flex::walk(&path, each),
            }
        }
    };
    walked.map_err(|error| Failure::new(format!("read the log {}", file.file.display()), error, ""))
}

fn code(found: &Checked) -> u8 {
    if found.is_damaged() { DAMAGED } else { 0 }
}

fn to_json(found: &Checked) -> serde_json::Value {
    json!({
        "capacity_bytes": found.capacity,
        "used_bytes": found.end - found.start,
        "records": found.records,
        "record_bytes": found.bytes,
        "start": found.start,
        "end": found.end,
        "committed": found.committed,
        "damaged": found.is_damaged(),
        "writer": found.writer,
    })
}

fn info(file: &LogFile) -> Outcome {
    let found = looked(file, |_, _| ())?;
    if file.json {
        output::emit_json(&to_json(&found))?;
        return Ok(code(&found));
    }
    let writer = match found.writer {
        None => "none".to_owned(),
        Some(0) => "a process that is not visible from here".to_owned(),
        Some(process) => format!("process {process}"),
    };
    let used = found.end - found.start;
    let text = format!(
        "capacity   {} ({} bytes), {} % used\n\
         records    {} of {} bytes\n\
         positions  {} to {}\n\
         writer     {writer}\n",
        show(found.capacity),
        found.capacity,
        used * 100 / found.capacity,
        found.records,
        found.bytes,
        found.start,
        found.end,
    );
    output::emit(text.as_bytes())?;
    Ok(code(&found))
}

fn dump(file: &LogFile) -> Outcome {
    let mut failed = None;
    let found = looked(file, |position, bytes| {
        let line = if file.json {
            let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 0xF]);
            let hex: String =
                digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect();
            format!("{}\n", json!({ "position": position, "length": bytes.len(), "bytes": hex }))
        } else {
            format!("{position} {} {}\n", bytes.len(), bytes.escape_ascii())
        };
        if failed.is_none() {
            failed = output::emit(line.as_bytes()).err();
        }
    })?;
    failed.map_or(Ok(code(&found)), Err)
}

fn check(file: &LogFile) -> Outcome {
    let found = looked(file, |_, _| ())?;
    if file.json {
        output::emit_json(&to_json(&found))?;
    } else if found.is_damaged() {
        let text = format!(
            "{}: damaged: the record at {} is not what was committed; what was committed ends at \
             {}. The {} records before it can be read (`solera log dump`)\n",
            file.file.display(),
            found.end,
            found.committed,
            found.records,
        );
        output::emit(text.as_bytes())?;
    } else {
        let text = format!("{}: {} records, whole\n", file.file.display(), found.records);
        output::emit(text.as_bytes())?;
    }
    Ok(code(&found))
}
