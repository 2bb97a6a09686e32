//! `solera numa`: on which memory node a file lies, and pinning it to one.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

use clap::{Args, Subcommand};
use console::class::ClassArg;
use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size;
use rustix::io::Errno;
use serde_json::json;

use crate::location::Location;
use crate::tree::{Tree, VolumeTree};

/// Show on which memory node a file lies, or pin it to one.
///
/// Each allocation group of a volume belongs to one of the machine's memory nodes: the one that
/// holds most of its pages. A pinned file is given space on its node as long as there is room,
/// whichever process writes it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera numa get /dev/shm/v.pm:/db/data.mdb
  solera numa set --node 1 /dev/shm/v.pm:/db/data.mdb
  solera numa set --node 1 --move /dev/shm/v.pm:/db/data.mdb   and bring there what it has
  solera numa set --none /dev/shm/v.pm:/db/data.mdb")]
pub struct NumaArgs {
    #[command(subcommand)]
    pub command: NumaCommand,
}

#[derive(Subcommand)]
pub enum NumaCommand {
    /// Show the node that a file is pinned to, and where its bytes lie.
    Get {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// A file, as `VOLUME:/path`.
        #[arg(value_name = "VOLUME:/PATH")]
        place: OsString,
    },
    /// Pin a file to a node. What it holds already stays where it is, without --move.
    Set {
        /// The node's number.
        #[arg(long, required_unless_present = "none", conflicts_with = "none")]
        node: Option<u32>,
        /// No node any more.
        #[arg(long)]
        none: bool,
        /// Bring there what it holds. Refused while a program has it mapped.
        #[arg(long = "move", conflicts_with = "none")]
        moves: bool,
        #[command(flatten)]
        class: ClassArg,
        /// A file, as `VOLUME:/path`.
        #[arg(value_name = "VOLUME:/PATH")]
        place: OsString,
    },
}

/// Shows or pins.
pub fn run(args: &NumaArgs) -> Outcome {
    match &args.command {
        NumaCommand::Get { json, place } => get(place, *json),
        NumaCommand::Set { node, none, moves, place, .. } => {
            set(place, node.filter(|_| !none), *moves)
        }
    }
}

fn parse(text: &OsStr) -> Result<(std::path::PathBuf, Vec<u8>), Failure> {
    match Location::parse(text)? {
        Location::OnVolume { volume, path } => Ok((volume, path)),
        Location::Local(path) => Err(Failure::new(
            format!("look at {}", path.display()),
            "this is no place on a volume",
            "name it as VOLUME:/path",
        )),
    }
}

fn get(text: &OsStr, json: bool) -> Outcome {
    let (volume, path) = parse(text)?;
    let tree = VolumeTree::attach_to_read(&volume)?;
    let failed = |errno| Failure::errno(format!("look at {}", tree.name(&path)), errno);
    let pinned = tree.volume().node(tree.node(&path).map_err(failed)?).map_err(failed)?;
    let mut bytes = vec![0; tree.volume().nodes() as usize];
    for extent in tree.extents(&path).map_err(failed)?.0 {
        bytes[tree.volume().node_of(extent.region_offset) as usize] += extent.length;
    }
    if json {
        output::emit_json(&json!({ "pinned_node": pinned, "bytes_by_node": bytes }))?;
        return Ok(0);
    }
    let mut text = pinned.map_or_else(
        || "pinned to no node\n".to_owned(),
        |node| format!("pinned to node {node}\n"),
    );
    for (node, bytes) in bytes.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "node {node}: {}", size::show(*bytes));
    }
    output::emit(text.as_bytes())?;
    Ok(0)
}

fn set(text: &OsStr, node: Option<u32>, moves: bool) -> Outcome {
    let (volume, path) = parse(text)?;
    let tree = VolumeTree::attach(&volume)?;
    let asked = || format!("pin {}", tree.name(&path));
    let failed = |errno| match errno {
        Errno::INVAL => Failure::new(
            asked(),
            format!(
                "it is not a regular file, or there is no such node ({} here)",
                tree.volume().nodes()
            ),
            "",
        ),
        errno => Failure::errno(asked(), errno),
    };
    let file = tree.node(&path).map_err(failed)?;
    tree.volume().set_node(file, node).map_err(failed)?;
    if moves {
        let mut progress = Progress::new("moving");
        let moved = tree.volume().bring_home(file, &mut |done, of| {
            progress.update(done, of);
            true
        });
        moved.map_err(failed)?;
    }
    Ok(0)
}
