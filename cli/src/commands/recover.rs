//! `solera recover`: what killed programs had staged goes into its files.

use serde_json::json;

use crate::args::RecoverArgs;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Recovers, and says what there was.
pub fn run(args: &RecoverArgs) -> Outcome {
    let asked = format!("recover {}", args.directory.display());
    let done = split::recover(&args.directory).map_err(|errno| Failure::errno(&asked, errno))?;
    if args.json {
        output::emit_json(&json!({
            "processes": done.processes,
            "log_entries": done.entries,
            "files": done.runs,
            "bytes": done.bytes,
            "files_gone": done.gone,
        }))?;
    } else {
        let text = format!(
            "{} dead processes, {} entries of their logs; {} bytes put into {} files, {} files are \
             gone\n",
            done.processes, done.entries, done.bytes, done.runs, done.gone
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
