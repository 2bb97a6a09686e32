//! `solera fsck`: 0 clean, 1 faults, 2 not checked.

use serde_json::{Value, json};
use volume::{FsckOptions, FsckReport};

use crate::args::FsckArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Progress};

const CODE_CLEAN: u8 = 0;
const CODE_FAULTS: u8 = 1;
const CODE_NOT_CHECKED: u8 = 2;

/// Checks the volume and prints each fault.
pub fn run(args: &FsckArgs) -> Outcome {
    let mut progress = Progress::new("checking");
    let checked = volume::fsck(&args.volume, &FsckOptions::default(), &mut |done, total| {
        progress.update(done, total);
    });
    drop(progress);
    let report = checked.map_err(|error| Failure::from(error).code(CODE_NOT_CHECKED))?;
    let printed = if args.json {
        output::emit_json(&to_json(&report))
    } else {
        output::emit(to_text(&report).as_bytes())
    };
    printed.map_err(|failure| failure.code(CODE_NOT_CHECKED))?;
    Ok(if report.faults.is_empty() { CODE_CLEAN } else { CODE_FAULTS })
}

fn to_json(report: &FsckReport) -> Value {
    let faults: Vec<Value> = report
        .faults
        .iter()
        .map(|fault| json!({ "code": fault.code, "place": fault.place, "meaning": fault.meaning }))
        .collect();
    json!({
        "clean": faults.is_empty(),
        "faults": faults,
        "faults_omitted": report.faults_omitted,
        "files": report.files,
        "directories": report.directories,
        "others": report.others,
        "data_bytes": report.data_bytes,
        "metadata_bytes": report.metadata_bytes,
    })
}

fn to_text(report: &FsckReport) -> String {
    let faults = report.faults.iter();
    let lines =
        faults.map(|fault| format!("{} at {}: {}\n", fault.code, fault.place, fault.meaning));
    let count = report.faults.len() as u64 + report.faults_omitted;
    let verdict = match count {
        0 => "clean".to_owned(),
        1 => "1 fault".to_owned(),
        _ if report.faults_omitted > 0 => format!("{count} faults, the first are listed"),
        _ => format!("{count} faults"),
    };
    let FsckReport { files, directories, others, .. } = report;
    let summary = format!("{files} files, {directories} directories, {others} others: {verdict}\n");
    lines.chain([summary]).collect()
}
