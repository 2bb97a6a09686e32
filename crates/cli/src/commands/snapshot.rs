//! `solera snapshot`.

use console::failure::Outcome;
use console::output::{self, Progress};
use console::size;
use serde_json::json;
use volume::SnapshotOptions;

use crate::args::SnapshotArgs;

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
