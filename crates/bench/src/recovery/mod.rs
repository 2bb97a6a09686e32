//! `solera bench recovery`: the cost of an unclean end for the next attach, of a check and of a
//! copy.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use rustix::io::Errno;
use serde_json::json;
use solera_bench::RecoveryArgs;
use vfs::{FileSystem, IoOffset, Kind, NewNode, Node, OpenFlags, UserIn};
use volume::{
    AttachOptions, FormatOptions, FsckOptions, Recovery, SnapshotOptions, SnapshotReport, Volume,
};

use crate::harness::scratch::ScratchVolume;
use crate::harness::stores;

/// Bytes of a volume for each file beyond its data: inode, name, and room to spare.
const FILE_BYTES: u64 = 1024;
/// Bytes of a volume beyond its files.
const FIXED_BYTES: u64 = 256 << 20;

/// Makes the volume, ends uncleanly, attaches, checks, prints.
pub fn run(args: &RecoveryArgs) -> Outcome {
    let each = args.data.div_ceil(args.files.max(1));
    let file = each.next_multiple_of(volume::BLOCK) + FILE_BYTES;
    let made = ScratchVolume(args.place.join(format!("solera-bench-{}.pm", std::process::id())));
    let size = Some(args.files.saturating_mul(file).saturating_mul(9) / 8 + FIXED_BYTES);
    volume::format(&made.0, &FormatOptions { size, ..FormatOptions::default() })?;
    let filling = Instant::now();
    fill_and_die(&made.0, args, each)?;
    let filled = filling.elapsed();

    let begun = Instant::now();
    let attached = volume::attach(&made.0, &AttachOptions::default())?;
    let attach = begun.elapsed();
    let recovery = attached.recovery().unwrap_or_default();
    let failed = |errno| Failure::errno("detach the volume", errno);
    attached.leave().map_err(failed)?;
    let begun = Instant::now();
    drop(volume::attach(&made.0, &AttachOptions::default())?);
    let clean = begun.elapsed();
    let begun = Instant::now();
    let report = volume::fsck(&made.0, &FsckOptions::default(), &mut |_, _| {})?;
    let fsck = begun.elapsed();
    if let Some(fault) = report.faults.first() {
        let found = format!("{} at {}: {}", fault.code, fault.place, fault.meaning);
        return Err(Failure::new("measure recovery", found, "this is a bug: please report it"));
    }
    let copy = ScratchVolume(made.0.with_extension("copy.pm"));
    let copied = volume::snapshot(&made.0, &copy.0, SnapshotOptions::default(), &mut |_, _| {})?;
    let times = Times { filled, attach, clean, fsck, copied };
    if args.json {
        output::emit_json(&times.to_json(args, &recovery))?;
    } else {
        output::emit(times.to_text(args, &recovery).as_bytes())?;
    }
    Ok(0)
}

struct Times {
    filled: Duration,
    attach: Duration,
    clean: Duration,
    fsck: Duration,
    copied: SnapshotReport,
}

impl Times {
    fn to_json(&self, args: &RecoveryArgs, recovery: &Recovery) -> serde_json::Value {
        json!({
            "files": args.files,
            "data_bytes": args.data,
            "inodes": recovery.inodes,
            "metadata_bytes": recovery.metadata_bytes,
            "fill_seconds": self.filled.as_secs_f64(),
            "attach_after_unclean_end_seconds": self.attach.as_secs_f64(),
            "undo_seconds": recovery.undo.as_secs_f64(),
            "mark_seconds": recovery.mark.as_secs_f64(),
            "publish_seconds": recovery.publish.as_secs_f64(),
            "settle_seconds": recovery.recover_ends.as_secs_f64(),
            "attach_clean_and_detach_seconds": self.clean.as_secs_f64(),
            "fsck_seconds": self.fsck.as_secs_f64(),
            "snapshot_seconds": self.copied.elapsed.as_secs_f64(),
            "snapshot_pause_seconds": self.copied.pause.as_secs_f64(),
            "snapshot_pause_bytes": self.copied.bytes_in_pause,
        })
    }

    fn to_text(&self, args: &RecoveryArgs, recovery: &Recovery) -> String {
        let row = |name: &str, time: Duration| vec![name.to_owned(), format!("{time:.1?}")];
        let rows = [
            row("filling the volume", self.filled),
            row("attach after an unclean end", self.attach),
            row("  undo what was open", recovery.undo),
            row("  mark what is in use", recovery.mark),
            row("  write the free map", recovery.publish),
            row("  settle sizes", recovery.recover_ends),
            row("attach and detach after an orderly end", self.clean),
            row("fsck", self.fsck),
            row("snapshot", self.copied.elapsed),
            row("  of it, changes wait", self.copied.pause),
        ];
        let head = format!(
            "{} files, {} of data, {} of metadata; {}\n",
            args.files,
            size::show(args.data),
            size::show(recovery.metadata_bytes),
            stores::line()
        );
        head + &output::table(&["", "time"], &rows)
    }
}

/// Fills the volume in a child that ends without detaching.
fn fill_and_die(path: &Path, args: &RecoveryArgs, each: u64) -> Result<(), Failure> {
    let failed = |errno| Failure::errno("start a process", errno);
    // SAFETY: this process has one thread, so the child may do whatever it likes.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(failed(Errno::AGAIN));
    }
    if child == 0 {
        let result = fill(path, args, each);
        if let Err(failure) = &result {
            eprintln!("solera: {failure}");
        }
        // SAFETY: ends the process at once: no detach, as a kill would.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if waited == child && status == 0 {
        return Ok(());
    }
    Err(Failure::new("fill the volume", "its process failed", "see its message above"))
}

fn fill(path: &Path, args: &RecoveryArgs, each: u64) -> Result<(), Failure> {
    let volume = volume::attach(path, &AttachOptions::default())?;
    let failed = |errno| Failure::errno("fill the volume", errno);
    let bytes = vec![0x5A; each as usize];
    let mut directory = volume.root();
    for number in 0..args.files {
        if number % args.per_directory == 0 {
            let name = format!("directory-{}", number / args.per_directory);
            let new = new(Kind::Directory, 0o755);
            directory = volume.create(volume.root(), name.as_bytes(), &new).map_err(failed)?;
        }
        fill_file(&volume, directory, &format!("file-{number}"), &bytes).map_err(failed)?;
    }
    // Behind it all, a call that never ended: the volume was in use to the last.
    std::mem::forget(volume);
    Ok(())
}

fn fill_file(volume: &Arc<Volume>, directory: Node, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let node = volume.create(directory, name.as_bytes(), &new(Kind::File, 0o644))?;
    if bytes.is_empty() {
        return Ok(());
    }
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None)?;
    volume.write(desc, &[UserIn::new(bytes)], IoOffset::POSITION)?;
    volume.close(desc)
}

fn new(kind: Kind, mode: u32) -> NewNode<'static> {
    NewNode { kind, mode, uid: 0, gid: 0, rdev: 0, target: b"" }
}
