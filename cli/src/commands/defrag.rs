//! `solera defrag`: scattered files become whole.

use std::ffi::OsStr;
use std::path::Path;

use rustix::io::Errno;
use serde_json::{Value, json};
use vfs::Kind;

use crate::args::DefragArgs;
use crate::failure::{Failure, Outcome, describe};
use crate::output::{self, Progress};
use crate::place::{self, Place};
use crate::runs::{CHUNK, Run, huge_bytes};
use crate::size;
use crate::tree::{Tree, VolumeTree};

/// A regular file on the volume.
struct Found {
    path: Vec<u8>,
    size: u64,
}

/// What became of the files.
#[derive(Default)]
struct Sum {
    files: u64,
    rewritten: u64,
    moved: u64,
    /// Bytes in whole chunks of the files, and how many of them can be huge pages.
    whole: u64,
    huge_before: u64,
    huge_after: u64,
    /// Files that stay scattered, and why.
    left: Vec<(String, Errno)>,
}

/// Rewrites files, and all files below directories.
pub fn run(args: &DefragArgs) -> Outcome {
    let mut sum = Sum::default();
    for place in &args.places {
        defrag(place, args.dry_run, &mut sum)?;
    }
    if args.json {
        output::emit_json(&to_json(&sum, args.dry_run))?;
    } else {
        output::emit(to_text(&sum, args.dry_run).as_bytes())?;
    }
    Ok(u8::from(!sum.left.is_empty()))
}

fn defrag(text: &OsStr, dry_run: bool, sum: &mut Sum) -> Result<(), Failure> {
    let (volume, path) = resolve(text)?;
    let tree =
        if dry_run { VolumeTree::attach_to_read(&volume)? } else { VolumeTree::attach(&volume)? };
    let shown = |path: &[u8]| format!("{}:{}", volume.display(), place::display(path));
    let mut files = Vec::new();
    collect(&tree, &path, &mut files)
        .map_err(|errno| Failure::errno(format!("defrag {}", shown(&path)), errno))?;
    let total: u64 = files.iter().map(|file| file.size).sum();
    let mut progress = Progress::new("rewriting");
    let mut done = 0;
    for file in &files {
        let mut each = |part: u64, parts: u64| {
            progress.update(done + file.size * part / parts.max(1), total.max(1));
            true
        };
        match rewrite(&tree, file, dry_run, sum, &mut each) {
            // Somebody removed it meanwhile.
            Ok(()) | Err(Errno::NOENT | Errno::STALE) => {}
            Err(errno) => sum.left.push((shown(&file.path), errno)),
        }
        done += file.size;
    }
    Ok(())
}

/// The volume and the path on it that a text names: `VOLUME:/path`, a volume, or a path below a mount of
/// one.
fn resolve(text: &OsStr) -> Result<(std::path::PathBuf, Vec<u8>), Failure> {
    use std::os::unix::ffi::OsStrExt;
    let (volume, path) = Place::on_volume(text);
    if path != b"/" {
        return Ok((volume, path));
    }
    let asked = || format!("defrag {}", Path::new(text).display());
    let failed = |error: std::io::Error| {
        Failure::errno(asked(), Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let mounts = vfs::mounts::list().map_err(failed)?;
    let Ok(real) = volume.canonicalize() else { return Ok((volume, path)) };
    match vfs::mounts::around(&mounts, &real) {
        Some(mount) => {
            let below = real.strip_prefix(&mount.at).unwrap_or(&real).as_os_str().as_bytes();
            Ok((mount.volume, place::join(b"/", below)))
        }
        None => Ok((volume, path)),
    }
}

/// All regular files at and below a path. What vanishes meanwhile is left out.
fn collect(tree: &VolumeTree, path: &[u8], files: &mut Vec<Found>) -> Result<(), Errno> {
    let meta = tree.meta(path, false)?;
    match meta.kind {
        Kind::File => files.push(Found { path: path.to_vec(), size: meta.size }),
        Kind::Directory => {
            for name in tree.list(path)? {
                match collect(tree, &place::join(path, &name), files) {
                    Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {}
                    result => result?,
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// One file: its layout before and after, and between the two, unless it is a dry run, the work.
fn rewrite(
    tree: &VolumeTree,
    file: &Found,
    dry_run: bool,
    sum: &mut Sum,
    each: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Errno> {
    let look = || -> Result<(u64, u64), Errno> {
        let (extents, size) = tree.extents(&file.path)?;
        let runs: Vec<Run> = extents.iter().map(Run::from).collect();
        Ok((huge_bytes(&runs), size / CHUNK * CHUNK))
    };
    let (before, whole) = look()?;
    let moved = if dry_run { Ok(0) } else { tree.rewrite(&file.path, each) };
    let (after, _) = look()?;
    sum.files += 1;
    sum.whole += whole;
    sum.huge_before += before;
    sum.huge_after += after;
    let moved = moved?;
    sum.rewritten += u64::from(moved > 0);
    sum.moved += moved;
    Ok(())
}

fn to_json(sum: &Sum, dry_run: bool) -> Value {
    let left = sum.left.iter();
    let left: Vec<Value> =
        left.map(|(path, errno)| json!({ "path": path, "reason": describe(*errno) })).collect();
    json!({
        "dry_run": dry_run,
        "files": sum.files,
        "files_rewritten": sum.rewritten,
        "moved_bytes": sum.moved,
        "whole_chunk_bytes": sum.whole,
        "huge_bytes_before": sum.huge_before,
        "huge_bytes_after": sum.huge_after,
        "left": left,
    })
}

fn to_text(sum: &Sum, dry_run: bool) -> String {
    let pages = |bytes: u64| bytes / CHUNK;
    let left: String = sum
        .left
        .iter()
        .map(|(path, errno)| match *errno {
            Errno::BUSY => format!("{path}: a program has mapped it; left as it is\n"),
            Errno::NOSPC => format!("{path}: no free chunk of 2 MiB is left\n"),
            errno => format!("{path}: {}\n", describe(errno)),
        })
        .collect();
    let of = format!("of {} whole 2 MiB in {} files", pages(sum.whole), sum.files);
    let told = if dry_run {
        format!("{of}, {} can be huge pages\n", pages(sum.huge_before))
    } else {
        format!(
            "{} files rewritten, {} moved; {of}, {} can be huge pages (before: {})\n",
            sum.rewritten,
            size::show(sum.moved),
            pages(sum.huge_after),
            pages(sum.huge_before)
        )
    };
    left + &told
}
