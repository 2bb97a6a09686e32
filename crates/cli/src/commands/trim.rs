//! `solera trim`.

use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use serde_json::json;

use crate::args::TrimArgs;
use crate::tree::VolumeTree;

/// Gives the memory of free chunks back to the machine.
pub fn run(args: &TrimArgs) -> Outcome {
    let tree = VolumeTree::attach(&args.volume)?;
    let path = args.volume.display();
    let bytes = output::busy("trimming", || tree.volume().trim())
        .map_err(|errno| Failure::errno(format!("trim {path}"), errno))?;
    if args.json {
        output::emit_json(&json!({ "trimmed_bytes": bytes }))?;
    } else {
        output::emit(format!("{path}: {} given back\n", size::show(bytes)).as_bytes())?;
    }
    Ok(0)
}
