//! `solera rm`: removes volumes.

use std::path::PathBuf;

use clap::Args;
use console::failure::Outcome;
use console::output;
use serde_json::json;
use volume::Removed;

use crate::domains;

/// Remove a volume: its file, and the anchor directory beside it.
///
/// What lies on it is lost. A volume in use is refused, and so is what is no volume.
#[derive(Args)]
#[command(after_help = "\
A volume on a device is not removed: `solera format --force` makes it anew, `blkdiscard` or `ndctl`
empty it. Of a file with several names the one that is given goes.

A volume of a domain (DOMAIN/VOLUME) goes from all nodes; one that does not answer drops its pages
when it is back.

Exit code: 0 it is gone, 1 it is not.

Examples:
  solera rm /dev/shm/v.pm
  solera rm dm/big
  solera rm --json /backup/v-monday.pm /backup/v-tuesday.pm")]
pub struct RmArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volumes' files.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<PathBuf>,
}

/// Removes one after the other; goes on after one that stays, and fails at the end.
pub fn run(args: &RmArgs) -> Outcome {
    let (mut values, mut code) = (Vec::new(), 0);
    for path in &args.volumes {
        let shown = path.display();
        match domains::remove(path) {
            Ok(None) => {}
            Ok(Some(removed)) => {
                values.push(removed);
                continue;
            }
            Err(failure) => {
                eprintln!("solera: {failure}");
                code = 1;
                continue;
            }
        }
        let Removed { names_left, anchor_left } = match volume::remove(path) {
            Ok(removed) => removed,
            Err(error) => {
                eprintln!("solera: {error}");
                code = 1;
                continue;
            }
        };
        if names_left > 0 {
            eprintln!(
                "solera: {shown}: the volume lives on, {names_left} other names lead to its file"
            );
        }
        if let Some((anchor, why)) = anchor_left {
            eprintln!(
                "solera: {shown} is gone, but its anchor directory {} stays: {why}",
                anchor.display()
            );
        }
        values.push(json!({ "removed": path.to_string_lossy(), "names_left": names_left }));
    }
    if args.json {
        output::emit_json(&values.into())?;
    }
    Ok(code)
}
