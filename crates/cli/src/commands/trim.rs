//! `solera trim`.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use serde_json::json;

use crate::tree::VolumeTree;

/// Give the memory of free chunks back to the machine.
///
/// Chunks of 2 MiB that hold nothing are punched out of the volume's file; they come back when they
/// are written again.
#[derive(Args)]
pub struct TrimArgs {
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file.
    pub volume: PathBuf,
}

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
