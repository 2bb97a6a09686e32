//! `solera recover`: puts what killed programs had staged into its files.

use std::path::PathBuf;

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use serde_json::{Value, json};

/// Put what killed programs had staged below a directory into its files.
///
/// Programs under `solera run --split DIR` stage what they append; if one is killed, the next one
/// that is started there does this by itself. It may be run at any time and again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera recover /srv/data

Exit code: 0 if nothing is left to be recovered, 1 if something is refused; what, and why, is
said, and it stays as it was.")]
pub struct RecoverArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The directory that was given to `solera run --split`.
    pub directory: PathBuf,
}

/// Recovers, and says what there was.
pub fn run(args: &RecoverArgs) -> Outcome {
    let mut progress = Progress::new("recovering");
    let result = split::recover_reporting(&args.directory, &mut |done, staged| {
        progress.update(done.bytes.min(staged), staged);
    });
    drop(progress);
    let (done, refused) = match result {
        Ok(done) => (done, Vec::new()),
        Err(incomplete) => (incomplete.recovered, incomplete.refused),
    };
    if args.json {
        let refused: Vec<Value> = refused
            .iter()
            .map(|it| json!({ "what": it.what.to_string_lossy(), "why": it.why() }))
            .collect();
        output::emit_json(&json!({
            "processes": done.processes,
            "log_entries": done.entries,
            "files": done.runs,
            "bytes": done.bytes,
            "files_gone": done.gone,
            "refused": refused,
        }))?;
    } else if refused.is_empty() || done != split::Recovered::default() {
        let text = format!(
            "{} dead processes, {} entries of their logs; {} bytes put into {} files, {} files are \
             gone\n",
            done.processes, done.entries, done.bytes, done.runs, done.gone
        );
        output::emit(text.as_bytes())?;
    }
    if refused.is_empty() {
        return Ok(0);
    }
    let asked = format!("recover all of {}", args.directory.display());
    let found: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let refusals: Vec<_> = refused.iter().filter_map(split::Refusal::advice).collect();
    Err(Failure::new(asked, found.join("; "), refusals.first().copied().unwrap_or_default()))
}
