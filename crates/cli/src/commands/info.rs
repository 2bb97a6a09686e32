//! `solera info`, and the JSON form of what it tells, which `format` and `df` share.

use std::path::{Path, PathBuf};

use clap::Args;
use console::failure::{Failure, Outcome};
use console::file;
use console::output;
use console::preload::guard;
use console::runs::{CHUNK, Run};
use console::size::{self, percent};
use rustix::io::Errno;
use serde_json::{Value, json};
use vfs::Kind;
use volume::Info;

use crate::picture::{self, Chunk};
use crate::tree::{Tree, VolumeTree};

/// Show what a volume is and how its space is used.
#[derive(Args)]
#[command(after_help = "\
size = data + holes + free aligned + metadata, to the byte. \"holes\" are free 4 KiB blocks in 2 MiB
chunks that are partly used; \"free aligned\" are whole free 2 MiB chunks, good for huge pages.

Examples:
  solera info /dev/shm/v.pm
  solera info --json /dev/shm/v.pm | jq .free_bytes
  solera info --picture v.svg /dev/shm/v.pm      every chunk as a square: free, holes, huge pages")]
pub struct InfoArgs {
    /// Draw what each 2 MiB chunk is used for, into this SVG file. Reads the maps of all files.
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Prints what the volume is and how its space is used.
pub fn run(args: &InfoArgs) -> Outcome {
    if let Some(file) = &args.picture {
        draw(&args.volume, file)?;
    }
    let info = volume::info(&args.volume)?;
    if args.json {
        output::emit_json(&to_json(&info))?;
    } else {
        output::emit(to_text(&info).as_bytes())?;
    }
    Ok(0)
}

/// Draws the volume's chunks.
fn draw(volume: &Path, file: &Path) -> Result<(), Failure> {
    file::check(format!("write {}", file.display()), file)?;
    let tree = VolumeTree::attach_to_read(volume)?;
    let asked = format!("draw {}", volume.display());
    let failed = |errno| Failure::errno(&asked, errno);
    let uses = tree.volume().chunk_uses().map_err(failed)?;
    let size = tree.volume().info().map_err(failed)?.size_bytes;
    let first = size - uses.len() as u64 * CHUNK;
    let mut huge = vec![false; uses.len()];
    mark_huge(&tree, b"/", &mut |place| {
        if let Some(mark) = huge.get_mut((place.saturating_sub(first) / CHUNK) as usize) {
            *mark = true;
        }
    })
    .map_err(failed)?;
    let chunks: Vec<Chunk> =
        uses.iter().zip(huge).map(|(&used, huge)| Chunk::new(used, huge)).collect();
    let svg = picture::draw(&volume.display().to_string(), &chunks);
    file::write(format!("write {}", file.display()), file, &svg)
}

/// Tells the place of every huge page of every file below a directory.
fn mark_huge(tree: &VolumeTree, dir: &[u8], tell: &mut dyn FnMut(u64)) -> Result<(), Errno> {
    for name in tree.list(dir)? {
        let path = [dir, b"/", &name].concat();
        // A file that goes away meanwhile is not drawn.
        let Ok(meta) = tree.meta(&path, false) else { continue };
        match meta.kind {
            Kind::Directory => mark_huge(tree, &path, tell)?,
            Kind::File if meta.allocated >= CHUNK => {
                for extent in tree.extents(&path).map_or_else(|_| Vec::new(), |found| found.0) {
                    let run = Run::from(&extent);
                    let start = run.place.next_multiple_of(CHUNK);
                    (0..run.huge_bytes() / CHUNK).for_each(|n| tell(start + n * CHUNK));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// All of it, for programs. Names are stable: fields are added, never renamed.
pub fn to_json(info: &Info) -> Value {
    let attached: Vec<Value> = info
        .attached
        .iter()
        .map(|process| json!({ "pid": process.pid, "since_ns": process.since }))
        .collect();
    json!({
        "label": info.label,
        "uuid": info.uuid,
        "version": info.version,
        "clean": info.clean,
        "groups": info.groups,
        "size_bytes": info.size_bytes,
        "data_bytes": info.data_bytes,
        "hole_bytes": info.hole_bytes,
        "free_aligned_bytes": info.free_aligned_bytes,
        "metadata_bytes": info.metadata_bytes,
        "free_bytes": info.free_bytes,
        "available_bytes": info.available_bytes,
        "allocated_bytes": info.allocated_bytes,
        "beneath_free_bytes": info.beneath_free_bytes,
        "missing_bytes": info.missing_bytes,
        "inodes_used": info.inodes_used,
        "class": info.class,
        "class_reason": info.class_reason,
        "policy": info.policy,
        "flush": info.flush,
        "copy": info.copy,
        "protection_key": pmem::key::available().is_ok(),
        "attached": attached,
        "attached_asked": info.unasked.is_none(),
        "runtime": info.runtime.map(|used| json!({
            "processes": used.processes,
            "open_files": used.open_files,
            "file_locks": used.file_locks,
            "calls": used.calls,
        })),
    })
}

fn to_text(info: &Info) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text.push_str(&output::heading(&format!("{name:<16}")));
        text.push_str(&value);
        text.push('\n');
    };
    if !info.label.is_empty() {
        line("label", info.label.clone());
    }
    line("uuid", info.uuid.clone());
    line("format", format!("version {}, {} groups", info.version, info.groups));
    line("class", format!("{}: {}", info.class, info.class_reason));
    line("stores", format!("{}: {}", info.policy, info.policy_reason));
    line("instructions", format!("flush {}, copy {}", info.flush, info.copy));
    line("protection key", guard());
    line(
        "state",
        if info.clean { "clean" } else { "in use, or its last process was killed" }.to_owned(),
    );
    line("size", size::show(info.size_bytes));
    line("  data", share(info.data_bytes, info.size_bytes));
    line("  holes", share(info.hole_bytes, info.size_bytes));
    line("  free aligned", share(info.free_aligned_bytes, info.size_bytes));
    line("  metadata", share(info.metadata_bytes, info.size_bytes));
    line("free", size::show(info.free_bytes));
    line("memory", memory(info));
    line("inodes used", info.inodes_used.to_string());
    let pids: Vec<String> = info.attached.iter().map(|process| process.pid.to_string()).collect();
    line(
        "attached",
        match info.unasked {
            None if pids.is_empty() => "no process".to_owned(),
            None => pids.join(", "),
            Some(why) => {
                format!("{} (which of these live may not be asked: {why})", pids.join(", "))
            }
        },
    );
    if let Some(used) = info.runtime {
        line("open files", used.open_files.to_string());
        line("file locks", used.file_locks.to_string());
    }
    text
}

/// What the region's file has of its memory, and what it could get.
fn memory(info: &Info) -> String {
    let rest = info.size_bytes - info.allocated_bytes;
    let has = format!("{} taken", size::show(info.allocated_bytes));
    match info.beneath_free_bytes {
        _ if rest == 0 => format!("{has}, which is all"),
        Some(free) if info.missing_bytes > 0 => format!(
            "{has}; of {} more the file system beneath has {}: {} of the free space can be had",
            size::show(rest),
            size::show(free),
            size::show(info.available_bytes),
        ),
        _ => format!("{has}; {} more when files need it", size::show(rest)),
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:<10} {:5.1} %", size::show(part), percent(part, whole))
}
