//! `solera detach`.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;
use console::failure::Outcome;
use console::output;
use serde_json::{Value, json};
use volume::Recovery;

/// Clean up after processes that were killed, and list those that still use the volume.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 if no process is attached any more (the volume is then marked clean), 1 if one is.")]
pub struct DetachArgs {
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Recovers what dead processes left, and lists the attached ones.
pub fn run(args: &DetachArgs) -> Outcome {
    let work = || volume::detach_dead_telling(&args.volume);
    let (pids, recovery) = output::busy("recovering", work)?;
    let path = args.volume.display();
    if args.json {
        let recovery = recovery.as_ref().map(to_json);
        output::emit_json(&json!({ "attached": pids, "recovery": recovery }))?;
        return Ok(u8::from(!pids.is_empty()));
    }
    let recovered = recovery.as_ref().map_or_else(String::new, |done| {
        let Recovery { inodes, undone, ends, undo, mark, publish, recover_ends, .. } = done;
        format!(
            "{path}: recovered in {:.1?}: {undone} transactions undone ({undo:.1?}), {inodes} \
             inodes found ({mark:.1?}), free map written ({publish:.1?}), {ends} ends of files \
             put right ({recover_ends:.1?})\n",
            done.elapsed()
        )
    });
    let attached = if pids.is_empty() {
        "no process is attached".to_owned()
    } else {
        let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
        format!("still attached: process {}", list.join(", "))
    };
    output::emit(format!("{recovered}{path}: {attached}\n").as_bytes())?;
    Ok(u8::from(!pids.is_empty()))
}

fn to_json(done: &Recovery) -> Value {
    json!({
        "inodes": done.inodes,
        "metadata_bytes": done.metadata_bytes,
        "undone": done.undone,
        "settled": done.ends,
        "undo_seconds": done.undo.as_secs_f64(),
        "mark_seconds": done.mark.as_secs_f64(),
        "publish_seconds": done.publish.as_secs_f64(),
        "settle_seconds": done.recover_ends.as_secs_f64(),
    })
}
