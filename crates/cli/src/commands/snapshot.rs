//! `solera snapshot`.

use std::path::PathBuf;

use clap::Args;
use console::failure::Outcome;
use console::output::{self, Progress};
use console::size;
use serde_json::json;
use volume::SnapshotOptions;

/// Copy a volume as it is at one moment, while programs go on with it.
///
/// The copy holds every call that had returned by that moment, whole, and none of a later one: it
/// is a volume of its own, which can be attached, checked and copied anywhere. Most of it is copied
/// while all programs work; then all changes wait while the rest is: that pause grows with the
/// number of files (under a second for a million) and with the size of those that are being changed
/// or are mapped, not with the amount of data, and is printed. Where the file system can share
/// blocks (XFS, btrfs), nothing is copied at all. What a program stores into a file that it has
/// mapped is in the copy as far as it had come.
#[derive(Args)]
#[command(after_help = "\
Free space of the volume takes none in the copy. A target that exists is refused without --force.

A copy on an ordinary disk is read as any volume (`ls`, `cat`, `cp` out of it, `fsck`,
`run --read-only`).

Exit code: 0 the copy is whole, 1 there is none.

Examples:
  solera snapshot /dev/shm/v.pm /backup/v-monday.pm
  solera snapshot --force --json /dev/shm/v.pm /backup/v.pm
  solera fsck /backup/v-monday.pm && solera ls /backup/v-monday.pm
  solera cp /backup/v-monday.pm:/notes.txt .")]
pub struct SnapshotArgs {
    /// Replace the target if it exists.
    #[arg(long)]
    pub force: bool,
    /// Give the copy the same UUID. Otherwise it is a volume of its own, and both can be used on
    /// one machine at once.
    #[arg(long)]
    pub keep_uuid: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
    /// The file for the copy.
    #[arg(value_name = "FILE")]
    pub target: PathBuf,
}

/// Copies the volume and says how long other processes had to wait.
pub fn run(args: &SnapshotArgs) -> Outcome {
    let mut progress = Progress::new("copying");
    let options = SnapshotOptions { force: args.force, keep_uuid: args.keep_uuid };
    let copied = volume::snapshot(&args.volume, &args.target, options, &mut |done, total| {
        progress.update(done, total);
    });
    drop(progress);
    let report = copied?;
    if args.json {
        output::emit_json(&json!({
            "bytes": report.bytes,
            "bytes_in_pause": report.bytes_in_pause,
            "bytes_changed": report.bytes_changed,
            "pause_seconds": report.pause.as_secs_f64(),
            "seconds": report.elapsed.as_secs_f64(),
            "shared": report.shared,
        }))?;
    } else {
        let how = if report.shared { "shared" } else { "copied" };
        let text = format!(
            "{}: {} {how} in {:.1?}; changes waited for {:.1?}\n",
            args.target.display(),
            size::show(report.bytes),
            report.elapsed,
            report.pause,
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
