//! `solera detach`.
//!
//! Whoever attaches finds the dead and undoes what they left half done, and whoever detaches last
//! marks the volume clean: so this command attaches, looks who else is there, and detaches.

use serde_json::json;

use crate::args::DetachArgs;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::tree::VolumeTree;

/// Recovers what dead processes left, and lists the living.
pub fn run(args: &DetachArgs) -> Outcome {
    let path = args.volume.display();
    let tree = VolumeTree::attach(&args.volume)?;
    let info = tree
        .volume()
        .info()
        .map_err(|errno| Failure::errno(format!("look who uses {path}"), errno))?;
    drop(tree);
    let own = std::process::id();
    let pids: Vec<u32> =
        info.attached.iter().map(|process| process.pid).filter(|&pid| pid != own).collect();
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
