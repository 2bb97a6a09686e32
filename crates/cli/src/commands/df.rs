//! `solera df`.

use std::path::PathBuf;

use clap::Args;
use console::failure::Outcome;
use console::output;
use console::size;
use console::size::percent;
use serde_json::{Value, json};

/// Show the free space of volumes.
#[derive(Args)]
#[command(after_help = "\
Example:
  solera df /dev/shm/*.pm")]
pub struct DfArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volumes' files or devices.
    #[arg(required = true)]
    pub volumes: Vec<PathBuf>,
}

/// One line per volume; goes on after a volume that cannot be read, and fails at the end.
pub fn run(args: &DfArgs) -> Outcome {
    let mut rows = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut code = 0;
    for path in &args.volumes {
        let info = match volume::info(path) {
            Ok(info) => info,
            Err(error) => {
                output::tell(error);
                code = 1;
                continue;
            }
        };
        let used = info.size_bytes - info.free_bytes;
        rows.push(vec![
            path.display().to_string(),
            size::show(info.size_bytes),
            size::show(used),
            size::show(info.free_bytes),
            size::show(info.available_bytes),
            format!("{:.0} %", percent(used, info.size_bytes)),
            format!("{:.0} %", percent(info.free_aligned_bytes, info.free_bytes)),
        ]);
        values.push(json!({
            "volume": path.to_string_lossy(),
            "label": info.label,
            "size_bytes": info.size_bytes,
            "used_bytes": used,
            "free_bytes": info.free_bytes,
            "free_aligned_bytes": info.free_aligned_bytes,
            "available_bytes": info.available_bytes,
            "beneath_free_bytes": info.beneath_free_bytes,
        }));
    }
    if args.json {
        output::emit_json(&Value::Array(values))?;
    } else if !rows.is_empty() {
        let head = ["volume", "size", "used", "free", "available", "used", "free in huge pages"];
        output::emit(output::table(&head, &rows).as_bytes())?;
    }
    Ok(code)
}
