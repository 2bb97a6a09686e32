//! `solera fsck`, with the exit codes of every fsck.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size;
use serde_json::{Value, json};
use volume::{FsckFault, FsckOptions, FsckReport, Remedy, RepairOptions, RepairReport};

use crate::loss;

/// Check every structure of a volume, and repair it if asked to.
///
/// A volume that is in use can be checked: all changes by all programs wait meanwhile, about half a
/// second for a million files; reading goes on. A repair needs the volume for itself.
#[derive(Args)]
#[command(after_help = "\
Each fault is named: a word for its kind, the place (a path where there is one), what it means, and
what it takes to mend it:
  repair    nothing that can be read is lost. Counters, leaked space, a superblock from its copy,
            the free map; damaged parts of directories, whose files get their names back or new
            ones in /lost+found; an inode's owner and permissions that are lost become the
            directory owner's, and only that user may use it
  salvage   something that cannot be read any more is given up: a name that leads nowhere is
            removed, the damaged part of a file becomes a hole
  none      nothing here can mend it: copy out what can be read, restore the rest from a backup
A volume on which damage was found can only be read until it is repaired.

Exit code (as of fsck and e2fsck): 0 clean, 1 faults were found and all are mended, 4 faults are
left, 8 it could not be checked, 16 a wrong command line.

Examples:
  solera fsck /dev/shm/v.pm
  solera fsck --repair /dev/shm/v.pm
  solera fsck --json /dev/shm/v.pm | jq '.faults[].place'")]
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct FsckArgs {
    /// Mend what can be mended without losing anything that can be read.
    #[arg(short = 'p', long, visible_short_alias = 'a')]
    pub repair: bool,
    /// Repair, and give up what cannot be read any more.
    #[arg(short = 'y', long)]
    pub salvage: bool,
    /// Change nothing: the default, for scripts that say it.
    #[arg(short = 'n', long, conflicts_with_all = ["repair", "salvage"])]
    pub no_changes: bool,
    /// Also read all contents of all files, to find memory that cannot be read.
    #[arg(short = 'c', long)]
    pub read_data: bool,
    /// Accepted as fsck does: a check is always a full one.
    #[arg(short = 'f', long, hide = true)]
    pub force: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

const CODE_CLEAN: u8 = 0;
const CODE_MENDED: u8 = 1;
const CODE_FAULTS_LEFT: u8 = 4;
pub const CODE_NOT_CHECKED: u8 = 8;
/// A wrong command line.
pub const CODE_USAGE: u8 = 16;

/// Checks the volume, repairs it if asked to, and prints each fault.
pub fn run(args: &FsckArgs) -> Outcome {
    let mut progress = Progress::new("checking");
    let mut tell = |done, total| progress.update(done, total);
    let check = FsckOptions { read_data: args.read_data, ..FsckOptions::default() };
    let done = if args.repair || args.salvage {
        let options = RepairOptions { salvage: args.salvage, check };
        volume::repair(&args.volume, &options, &mut tell)
    } else {
        let checked = volume::fsck(&args.volume, &check, &mut tell);
        checked.map(|after| RepairReport { after, ..RepairReport::default() })
    };
    drop(progress);
    let mut report = done.map_err(|error| Failure::from(error).code(CODE_NOT_CHECKED))?;
    let lost = name_nodes(args, &mut report.after);
    let lost = lost.map_err(|failure| failure.code(CODE_NOT_CHECKED))?;
    let printed = if args.json {
        output::emit_json(&to_json(&report, &lost))
    } else {
        output::emit(to_text(&report, args).as_bytes())
    };
    printed.map_err(|failure| failure.code(CODE_NOT_CHECKED))?;
    Ok(match (report.after.faults.is_empty(), report.mended.is_empty()) {
        (true, true) => CODE_CLEAN,
        (true, false) => CODE_MENDED,
        (false, _) => CODE_FAULTS_LEFT,
    })
}

/// Of a domain's volume: says in each file's fault how much of it is lost with which node. Gives
/// that for programs.
fn name_nodes(args: &FsckArgs, report: &mut FsckReport) -> Result<Vec<Value>, Failure> {
    let FsckReport { faults, lost, .. } = report;
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let Some(losses) = loss::by_file(&args.volume, lost)? else { return Ok(Vec::new()) };
    let mut told = Vec::new();
    for (data, loss) in lost.iter().zip(&losses) {
        let is_its = |fault: &&mut FsckFault| fault.code == "media" && fault.place == data.place;
        if let Some(fault) = faults.iter_mut().find(is_its) {
            fault.meaning = format!(
                "of it {}, the first at byte {}; restore the file from a copy, or overwrite it",
                loss.text(),
                data.first
            );
        }
        told.extend(loss.to_json(Some(&data.place)));
    }
    Ok(told)
}

fn faults_to_json(faults: &[FsckFault]) -> Vec<Value> {
    let one = |fault: &FsckFault| {
        json!({
            "code": fault.code,
            "place": fault.place,
            "meaning": fault.meaning,
            "remedy": fault.remedy.word(),
        })
    };
    faults.iter().map(one).collect()
}

fn to_json(report: &RepairReport, lost: &[Value]) -> Value {
    let RepairReport { mended, orphans, after } = report;
    json!({
        "clean": after.faults.is_empty(),
        "faults": faults_to_json(&after.faults),
        "faults_omitted": after.faults_omitted,
        "lost": lost,
        "mended": faults_to_json(mended),
        "lost_and_found": orphans,
        "files": after.files,
        "directories": after.directories,
        "others": after.others,
        "data_bytes": after.data_bytes,
        "metadata_bytes": after.metadata_bytes,
        "seconds": after.elapsed.as_secs_f64(),
        "missing_bytes": after.missing_bytes,
        "beneath_free_bytes": after.beneath_free_bytes,
        "pause_seconds": after.pause.map(|pause| pause.as_secs_f64()),
    })
}

fn to_text(report: &RepairReport, args: &FsckArgs) -> String {
    let RepairReport { mended, orphans, after } = report;
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for FsckFault { code, place, meaning, .. } in mended {
        line(format!("mended: {code} at {place}: {meaning}"));
    }
    for orphan in orphans {
        line(format!("found: {orphan}"));
    }
    for FsckFault { code, place, meaning, remedy, .. } in &after.faults {
        line(format!("{code} at {place}: {meaning} ({})", remedy.word()));
    }
    let FsckReport { files, directories, others, .. } = after;
    let mended = match mended.len() {
        0 => String::new(),
        count => format!("{count} mended, "),
    };
    let verdict = verdict(after);
    line(format!("{files} files, {directories} directories, {others} others: {mended}{verdict}"));
    if let Some(pause) = after.pause {
        line(format!("the volume is in use: changes waited for {pause:.1?} at most"));
    }
    if after.missing_bytes > 0 {
        line(missing(after));
    }
    if let Some(advice) = advice(after, args) {
        line(advice);
    }
    text
}

/// What the volume lacks that is no fault.
fn missing(report: &FsckReport) -> String {
    format!(
        "the file system beneath has {} left and could not supply {} of the volume: calls that \
         need more than it has give ENOSPC (no fault; removing files and `solera trim` need none)",
        size::show(report.beneath_free_bytes.unwrap_or(0)),
        size::show(report.missing_bytes),
    )
}

fn verdict(report: &FsckReport) -> String {
    match report.faults.len() as u64 + report.faults_omitted {
        0 => "clean".to_owned(),
        1 => "1 fault".to_owned(),
        count if report.faults_omitted > 0 => format!("{count} faults, the first are listed"),
        count => format!("{count} faults"),
    }
}

/// What to do about the faults that are left.
fn advice(report: &FsckReport, args: &FsckArgs) -> Option<String> {
    let volume = args.volume.display();
    let has = |remedy| report.faults.iter().any(|fault| fault.remedy == remedy);
    let end = if report.pause.is_some() { "end the programs that use it, then " } else { "" };
    if has(Remedy::Repair) && !args.repair && !args.salvage {
        Some(format!("to mend: {end}solera fsck --repair {volume}"))
    } else if has(Remedy::Salvage) && !args.salvage {
        Some(format!("to give up what cannot be read: {end}solera fsck --salvage {volume}"))
    } else if report.faults.is_empty() {
        None
    } else {
        Some("what is left cannot be mended: copy out what can be read".to_owned())
    }
}
