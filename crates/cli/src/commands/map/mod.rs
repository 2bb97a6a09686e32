//! `solera map`: where the bytes of a file lie, and which of them can be huge pages; on a volume of
//! a domain, on which node.

mod distribution;

use std::ffi::OsString;

use clap::Args;
use console::failure::{Failure, Outcome};
use console::file;
use console::output;
use console::runs::{self, CHUNK, Run};
use console::size;
use console::size::percent;
use serde_json::{Value, json};

use crate::commands::map::distribution::Distribution;
use crate::location::Location;
use crate::tree::{Tree, VolumeTree};

/// Show where the bytes of files lie, and which of them come as huge pages when mapped.
///
/// Of a file on a volume of a domain it shows on which node each page is now: here, on another
/// node, nowhere (zeros, of which no node has bytes), lost with a node that is gone, or unknown
/// (the directory's word is damaged). No page moves for it. A line for each node says how many
/// bytes it has; together these are the bytes of the file's blocks.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera map /dev/shm/v.pm:/db/data.mdb
  solera map dm/big:/db/data.mdb            on which node of its domain each page is
  solera map --json /dev/shm/v.pm:/db/data.mdb | jq .huge_bytes")]
pub struct MapArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A file: `VOLUME:/path`, or one of a kernel file system that tells where bytes lie (ext4,
    /// XFS).
    #[arg(value_name = "VOLUME:/PATH")]
    pub place: OsString,
}

/// Prints the extents of a file on a volume, or of one of the kernel's.
pub fn run(args: &MapArgs) -> Outcome {
    let (runs, length, placed) = match Location::parse(&args.place)? {
        Location::OnVolume { volume, path } => {
            let tree = VolumeTree::attach_to_read(&volume)?;
            let failed = |errno| Failure::errno(format!("map {}", tree.name(&path)), errno);
            let (extents, length) = tree.extents(&path).map_err(failed)?;
            let runs = extents.iter().map(|extent| (Run::from(extent), extent.written));
            let runs: Vec<_> = runs.collect();
            let placed = Distribution::find(&volume, &runs)?;
            (runs, length, placed)
        }
        Location::Local(path) => {
            let asked = format!("map {}", path.display());
            let failed = |error: std::io::Error| {
                let errno =
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                Failure::errno(&asked, errno)
            };
            let file = file::open(&asked, &path)?;
            let length = file.metadata().map_err(failed)?.len();
            let found = runs::kernel::extents(&file).map_err(|e| Failure::errno(&asked, e))?;
            let found = found.ok_or_else(|| {
                let advice = "ext4 and XFS do; for a file on a volume give VOLUME:/path";
                Failure::new(&asked, "its file system does not tell where bytes lie", advice)
            })?;
            (found.into_iter().map(|run| (run, true)).collect(), length, None)
        }
    };
    if args.json {
        let mut value = to_json(&runs, length);
        if let Some(placed) = &placed {
            placed.add_to(&mut value);
        }
        output::emit_json(&value)?;
    } else {
        // No page of a domain's volume is a huge one.
        let text = placed.map(|placed| placed.to_text(length, runs.len()));
        output::emit(text.unwrap_or_else(|| to_text(&runs, length)).as_bytes())?;
    }
    Ok(0)
}

fn huge_bytes(runs: &[(Run, bool)]) -> u64 {
    runs.iter().map(|(run, _)| run.huge_bytes()).sum()
}

fn to_json(runs: &[(Run, bool)], length: u64) -> Value {
    let extents: Vec<Value> = runs
        .iter()
        .map(|(run, written)| {
            json!({
                "file_offset": run.offset,
                "place": run.place,
                "length": run.length,
                "written": written,
                "huge_bytes": run.huge_bytes(),
            })
        })
        .collect();
    json!({
        "size_bytes": length,
        "allocated_bytes": runs.iter().map(|(run, _)| run.length).sum::<u64>(),
        "huge_bytes": huge_bytes(runs),
        "extents": extents,
    })
}

fn to_text(runs: &[(Run, bool)], length: u64) -> String {
    let row = |(run, written): &(Run, bool)| {
        let huge = match run.huge_bytes() / CHUNK {
            0 => String::new(),
            huge => huge.to_string(),
        };
        let state = if *written { "" } else { "unwritten" };
        vec![
            format!("{:#x}", run.offset),
            format!("{:#x}", run.place),
            size::show(run.length),
            huge,
            state.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let (huge, whole) = (huge_bytes(runs), length / CHUNK * CHUNK);
    let sum = format!(
        "{} in {} extents; {} of {} whole 2 MiB can be huge pages ({:.0} %)\n",
        size::show(length),
        runs.len(),
        huge / CHUNK,
        whole / CHUNK,
        percent(huge, whole)
    );
    if rows.is_empty() {
        return sum;
    }
    output::table(&["in the file", "on the medium", "length", "huge pages", ""], &rows) + &sum
}
