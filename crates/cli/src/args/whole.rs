//! The commands that do something to a volume as a whole, and to nothing in it.

use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;

/// Copy a volume as it is at one moment, while programs go on with it.
///
/// The copy holds every call that had returned by that moment, whole, and none of a later one: it
/// is a volume of its own, which can be attached, checked and copied anywhere. Most of it is copied
/// while all programs work; then all changes wait while the rest is: that pause grows with the
/// number of files (under a second for a million) and with the size of those that are being changed
/// or are mapped, not with the amount of data, and is printed. Where the file system can share
/// blocks (XFS, btrfs), nothing is copied at all. What a program stores into a file that it has
/// mapped is in the copy as far as it had come.
#[derive(Args)]
#[command(after_help = "\
Free space of the volume takes none in the copy. A target that exists is refused without --force.

A copy on an ordinary disk is read as any volume (`ls`, `cat`, `cp` out of it, `fsck`,
`run --read-only`).

Exit code: 0 the copy is whole, 1 there is none.

Examples:
  solera snapshot /dev/shm/v.pm /backup/v-monday.pm
  solera snapshot --force --json /dev/shm/v.pm /backup/v.pm
  solera fsck /backup/v-monday.pm && solera ls /backup/v-monday.pm
  solera cp /backup/v-monday.pm:/notes.txt .")]
pub struct SnapshotArgs {
    /// Replace the target if it exists.
    #[arg(long)]
    pub force: bool,
    /// Give the copy the same UUID. Otherwise it is a volume of its own, and both can be used on
    /// one machine at once.
    #[arg(long)]
    pub keep_uuid: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
    /// The file for the copy.
    #[arg(value_name = "FILE")]
    pub target: PathBuf,
}

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

/// Convert a volume that an earlier release made.
///
/// From 0.2 on every release reads and writes the volumes of all releases before it. Some of what a
/// newer one can do needs room that an older volume does not have; this makes it, in place. What
/// the volume holds is not touched, and a crash leaves the old volume or the new one. Releases from
/// 0.2 on go on reading it.
#[derive(Args)]
#[command(after_help = "\
No process may have the volume attached. One that an earlier program left in disorder is recovered
first. A volume of a version that this release does not know is refused: the release that made it
copies its files out (`solera cp`, or `solera export` from 0.2 on), and this one takes them in.

Exit code: 0 it is as this release makes volumes, or with --dry-run: it can be told what is to be
done; 1 it is as it was.

Examples:
  solera upgrade --dry-run /dev/shm/v.pm
  solera upgrade /mnt/dax/v.pm
  solera export old.pm | solera import new.pm")]
pub struct UpgradeArgs {
    #[command(flatten)]
    pub class: ClassArg,
    /// Say what is to be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

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

/// Remove a volume: its file, and the anchor directory beside it.
///
/// What lies on it is lost. A volume in use is refused, and so is what is no volume.
#[derive(Args)]
#[command(after_help = "\
A volume on a device is not removed: `solera format --force` makes it anew, `blkdiscard` or `ndctl`
empty it. Of a file with several names the one that is given goes.

A volume of a domain (DOMAIN/VOLUME) goes from all nodes; one that does not answer drops its pages
when it is back.

Exit code: 0 it is gone, 1 it is not.

Examples:
  solera rm /dev/shm/v.pm
  solera rm dm/big
  solera rm --json /backup/v-monday.pm /backup/v-tuesday.pm")]
pub struct RmArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volumes' files.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<PathBuf>,
}
