//! `solera detach`.

use serde_json::json;

use crate::args::DetachArgs;
use crate::failure::Outcome;
use crate::output;

/// Recovers what dead processes left, and lists the living.
pub fn run(args: &DetachArgs) -> Outcome {
    let pids = volume::detach_dead(&args.volume)?;
    let path = args.volume.display();
    if args.json {
        output::emit_json(&json!({ "attached": pids }))?;
    } else if pids.is_empty() {
        output::emit(format!("{path}: nobody is attached\n").as_bytes())?;
    } else {
        let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
        output::emit(format!("{path}: still attached: process {}\n", list.join(", ")).as_bytes())?;
    }
    Ok(u8::from(!pids.is_empty()))
}
