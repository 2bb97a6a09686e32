//! `solera defrag`: scattered files become whole.
//!
//! SIGINT and SIGTERM stop it between two chunks, and what was done so far is told; the second one
//! ends it at once, as any death.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use console::class::ClassArg;
use console::failure::{Failure, NO_ROOM_BENEATH, Outcome, describe};
use console::output::{self, Progress};
use console::runs::{CHUNK, Run, huge_bytes};
use console::size;
use rustix::io::Errno;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use vfs::Kind;

use crate::location::{self, Location};
use crate::tree::{Meta, Tree, VolumeTree};

/// Rewrite scattered files into whole chunks of 2 MiB, so that mappings of them get huge pages.
///
/// Programs go on with the files meanwhile: bytes move a chunk at a time, each step survives a
/// crash, and nothing about a file changes but where it lies. Files that a program has mapped stay
/// as they are (up to 256 MiB of each is rewritten when the last program has closed it), and so do
/// chunks with holes.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 done, 1 if a file stays scattered: mapped, or no free chunk is left; 130 if it was
interrupted (what is done stays so).

Examples:
  solera defrag /dev/shm/v.pm:/db            all files below
  solera defrag --dry-run /dev/shm/v.pm      how much there would be to do
  solera defrag /mnt/pm/db/data.mdb          by a mount of the volume")]
pub struct DefragArgs {
    /// Move nothing: only say how whole the files are.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Files or directories, as `VOLUME:/path` or by a mount; a volume means all that is on it.
    #[arg(required = true, value_name = "VOLUME[:/PATH]")]
    pub places: Vec<OsString>,
}

/// A regular file on the volume.
struct RegularFile {
    path: Vec<u8>,
    size: u64,
}

/// What became of the files.
#[derive(Default)]
struct Summary {
    files: u64,
    rewritten: u64,
    moved: u64,
    /// Bytes in whole chunks of the files, and how many of them can be huge pages.
    whole: u64,
    huge_before: u64,
    huge_after: u64,
    /// Files that stay scattered, and why.
    left: Vec<(String, String)>,
    interrupted: bool,
    /// The volume's almost empty chunks have been emptied.
    compacted: bool,
}

/// What lies below the places that were named.
struct FileList<'t> {
    tree: &'t VolumeTree,
    files: Vec<RegularFile>,
    /// Inodes of files that have more than one name: one of them is enough.
    linked: HashSet<u64>,
    /// What could not be looked into.
    left: Vec<(Vec<u8>, Errno)>,
}

/// Rewrites files, and all files below directories.
pub fn run(args: &DefragArgs) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
    }
    let mut sum = Summary::default();
    for place in &args.places {
        defrag(place, args.dry_run, &stop, &mut sum)?;
    }
    if args.json {
        output::emit_json(&to_json(&sum, args.dry_run))?;
    } else {
        output::emit(to_text(&sum, args.dry_run).as_bytes())?;
    }
    Ok(if sum.interrupted { 130 } else { u8::from(!sum.left.is_empty()) })
}

fn defrag(
    text: &OsStr,
    dry_run: bool,
    stop: &AtomicBool,
    sum: &mut Summary,
) -> Result<(), Failure> {
    let (volume, path) = resolve(text)?;
    let tree =
        if dry_run { VolumeTree::attach_to_read(&volume)? } else { VolumeTree::attach(&volume)? };
    let shown = |path: &[u8]| format!("{}:{}", volume.display(), location::display(path));
    let FileList { files, left, .. } = FileList::below(&tree, &path)
        .map_err(|errno| Failure::errno(format!("defrag {}", shown(&path)), errno))?;
    sum.left.extend(left.into_iter().map(|(path, errno)| (shown(&path), describe(errno))));
    let total: u64 = files.iter().map(|file| file.size).sum();
    let mut progress = Progress::new("rewriting");
    let mut done = 0;
    sum.compacted = false;
    for file in &files {
        if stop.load(Ordering::Relaxed) {
            sum.interrupted = true;
            break;
        }
        let mut stopped = false;
        let mut each = |part: u64, parts: u64| {
            let here = u128::from(file.size) * u128::from(part) / u128::from(parts.max(1));
            progress.update(done + here as u64, total.max(1));
            let goes_on = !stop.load(Ordering::Relaxed);
            stopped |= !goes_on;
            goes_on
        };
        let rewritten = rewrite(&tree, file, dry_run, sum, &mut each);
        sum.interrupted |= stopped;
        match rewritten {
            // Another process removed it meanwhile.
            Ok(()) | Err(Errno::NOENT | Errno::STALE) => {}
            Err(errno) => sum.left.push((shown(&file.path), reason(&tree, errno))),
        }
        done += file.size;
    }
    Ok(())
}

/// The volume and the path on it that a text names: `VOLUME:/path`, a volume, or a path below a
/// mount of one.
fn resolve(text: &OsStr) -> Result<(std::path::PathBuf, Vec<u8>), Failure> {
    use std::os::unix::ffi::OsStrExt;
    let (volume, path) = Location::on_volume(text)?;
    if path != b"/" {
        return Ok((volume, path));
    }
    let asked = || format!("defrag {}", Path::new(text).display());
    let mounts = vfs::mounts::list().map_err(|error| Failure::io(asked(), &error))?;
    let Ok(real) = volume.canonicalize() else { return Ok((volume, path)) };
    match vfs::mounts::around(&mounts, &real) {
        Some(mount) if mount.has_lost_its_file(mount.serves().as_ref()) => {
            Err(Failure::replaced(asked(), &mount, "or name a place on the new one: VOLUME:/PATH"))
        }
        Some(mount) => {
            let below = real.strip_prefix(&mount.at).unwrap_or(&real).as_os_str().as_bytes();
            Ok((mount.volume, location::join(b"/", below)))
        }
        None => Ok((volume, path)),
    }
}

impl<'t> FileList<'t> {
    /// The regular files at and below a path, each once. A symbolic link is followed if it is what
    /// was named; anything else that is no file and no directory is refused then, and passed over
    /// below.
    fn below(tree: &'t VolumeTree, path: &[u8]) -> Result<Self, Errno> {
        let mut all = Self { tree, files: Vec::new(), linked: HashSet::new(), left: Vec::new() };
        let meta = tree.meta(path, true)?;
        if !matches!(meta.kind, Kind::File | Kind::Directory) {
            return Err(Errno::INVAL);
        }
        all.add(path, &meta)?;
        Ok(all)
    }

    /// A file that vanishes meanwhile is left out.
    fn add(&mut self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        match meta.kind {
            Kind::File if meta.nlink < 2 || self.linked.insert(meta.ino) => {
                self.files.push(RegularFile { path: path.to_vec(), size: meta.size });
            }
            Kind::Directory => {
                for name in self.tree.list(path)? {
                    let path = location::join(path, &name);
                    let found = self.tree.meta(&path, false);
                    match found.and_then(|meta| self.add(&path, &meta)) {
                        Ok(()) | Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {}
                        Err(errno) => self.left.push((path, errno)),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// One file: its layout before and after, and between the two, unless it is a dry run, the work.
fn rewrite(
    tree: &VolumeTree,
    file: &RegularFile,
    dry_run: bool,
    sum: &mut Summary,
    each: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Errno> {
    let look = || -> Result<(u64, u64), Errno> {
        let (extents, size) = tree.extents(&file.path)?;
        let runs: Vec<Run> = extents.iter().map(Run::from).collect();
        Ok((huge_bytes(&runs), size / CHUNK * CHUNK))
    };
    let (before, whole) = look()?;
    let moved = || tree.volume().moved_bytes();
    let moved_before = moved();
    let mut rewritten = if dry_run { Ok(0) } else { tree.rewrite(&file.path, each) };
    if rewritten == Err(Errno::NOSPC) && !sum.compacted {
        // What lies in almost empty chunks makes room; once, for it looks at all chunks.
        sum.compacted = true;
        if tree.volume().compact().is_ok_and(|moved| moved > 0) {
            rewritten = tree.rewrite(&file.path, each);
        }
    }
    let (after, _) = look()?;
    sum.files += 1;
    sum.whole += whole;
    sum.huge_before += before;
    sum.huge_after += after;
    let moved = moved() - moved_before;
    sum.rewritten += u64::from(moved > 0);
    sum.moved += moved;
    rewritten.map(drop)
}

/// Why a file stays scattered.
fn reason(tree: &VolumeTree, errno: Errno) -> String {
    match errno {
        Errno::BUSY => "a program has mapped it; left as it is".to_owned(),
        Errno::NOSPC if tree.lacks_memory() => NO_ROOM_BENEATH.to_owned(),
        Errno::NOSPC => "no free chunk of 2 MiB is left".to_owned(),
        errno => describe(errno),
    }
}

fn to_json(sum: &Summary, dry_run: bool) -> Value {
    let left = sum.left.iter();
    let left: Vec<Value> =
        left.map(|(path, reason)| json!({ "path": path, "reason": reason })).collect();
    json!({
        "dry_run": dry_run,
        "files": sum.files,
        "files_rewritten": sum.rewritten,
        "moved_bytes": sum.moved,
        "whole_chunk_bytes": sum.whole,
        "huge_bytes_before": sum.huge_before,
        "huge_bytes_after": sum.huge_after,
        "left": left,
        "interrupted": sum.interrupted,
    })
}

fn to_text(sum: &Summary, dry_run: bool) -> String {
    let pages = |bytes: u64| bytes / CHUNK;
    let left = sum.left.iter().map(|(path, reason)| format!("{path}: {reason}\n"));
    let left = left.collect::<Vec<String>>().concat();
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
    let interrupted = if sum.interrupted { "interrupted; so far:\n" } else { "" };
    left + interrupted + &told
}
