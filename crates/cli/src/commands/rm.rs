//! `solera rm`: removes volumes.

use console::failure::Outcome;
use console::output;
use serde_json::json;
use volume::Removed;

use crate::args::RmArgs;
use crate::domain;

/// Removes one after the other; goes on after one that stays, and fails at the end.
pub fn run(args: &RmArgs) -> Outcome {
    let (mut values, mut code) = (Vec::new(), 0);
    for path in &args.volumes {
        let shown = path.display();
        match domain::remove(path) {
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
