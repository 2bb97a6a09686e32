//! `solera numa`: on which memory node a file lies, and pinning it to one.

use std::ffi::OsStr;
use std::fmt::Write;

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size;
use rustix::io::Errno;
use serde_json::json;

use crate::args::{NumaArgs, NumaCommand};
use crate::place::Place;
use crate::tree::{Tree, VolumeTree};

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
    match Place::parse(text)? {
        Place::OnVolume { volume, path } => Ok((volume, path)),
        Place::Local(path) => Err(Failure::new(
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
